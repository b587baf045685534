//! Restores single files of a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_base::Ino;
use weir_volume::{Leads, Position, Volume, leads};

use crate::error::BackupError;
use crate::manifest::Entry;
use crate::restore::{Groups, begin, end, receive_group};
use crate::vault::{Backup, Vault};
use crate::{Progress, Watch};

/// Inodes of which records are needed.
#[derive(Default)]
struct Selection {
    /// Directories, with the inodes that their needed entries lead to.
    directories: BTreeMap<Ino, BTreeSet<Ino>>,
    /// Files and streams, with all that belongs to them.
    files: BTreeSet<Ino>,
}

impl Selection {
    fn inodes(&self) -> BTreeSet<Ino> {
        self.directories
            .keys()
            .chain(&self.files)
            .copied()
            .collect()
    }

    fn has_entry(&self, ino: Ino, entry: &Entry) -> bool {
        if entry.position().inode() != ino {
            return false;
        }
        let (Some(children), false) = (self.directories.get(&ino), self.files.contains(&ino))
        else {
            return true;
        };
        match entry {
            Entry::Window { .. } => false,
            Entry::Record { at, value } => match leads(*at, value) {
                Some(Leads::Entry { ino, .. }) => children.contains(&ino),
                Some(Leads::Stream { .. }) => false,
                None => *at == Position::of_inode(ino),
            },
        }
    }
}

/// Calls `see` with the records of an inode until it returns false.
fn records(
    vault: &Vault,
    backup: &Backup,
    ino: Ino,
    mut see: impl FnMut(Leads<'_>) -> bool,
) -> Result<(), BackupError> {
    let mut groups = Groups::new(vault, backup, Position::of_inode(ino))?;
    while let Some(group) = groups.next_group()? {
        for entry in &group {
            if entry.position().inode() != ino {
                return Ok(());
            }
            let Entry::Record { at, value } = entry else {
                continue;
            };
            if leads(*at, value).is_some_and(|found| !see(found)) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Finds the inodes on the way to files, and those that belong to the files.
fn select(
    vault: &Vault,
    backup: &Backup,
    root: Ino,
    paths: &[Vec<Vec<u8>>],
) -> Result<Selection, BackupError> {
    let mut selected = Selection::default();
    for path in paths {
        let mut at = root;
        for wanted in path {
            let mut child = None;
            records(vault, backup, at, |found| {
                if let Leads::Entry { name, ino } = found
                    && name == &wanted[..]
                {
                    child = Some(ino);
                }
                child.is_none()
            })?;
            let child = child.ok_or_else(|| BackupError::NoFile(display_path(path)))?;
            selected.directories.entry(at).or_default().insert(child);
            at = child;
        }
        records(vault, backup, at, |found| {
            if let Leads::Stream { ino } = found {
                selected.files.insert(ino);
            }
            true
        })?;
        selected.files.insert(at);
    }
    Ok(selected)
}

/// Returns a path for people.
fn display_path(path: &[Vec<u8>]) -> String {
    let names = path.iter().map(|name| String::from_utf8_lossy(name));
    names
        .map(|name| format!("/{}", name.escape_debug()))
        .collect()
}

/// Restores single files into an empty volume that is protected ([`weir_volume::Engine::protect`]):
/// the files at `paths`, each the names from the root on, with their attributes and streams, and of
/// the directories on the way the entries that lead to them. On return the volume has a snapshot of
/// the backup's snapshot's name with these. It fits together only along these paths, so it is to be
/// read and then deleted. Blocks the thread.
///
/// # Errors
/// `NotFound` with the path of a file that the backup does not have; `Damaged`, `Stopped`; the
/// volume's and the bucket's.
pub fn restore_files(
    vault: &Vault,
    backup: &Backup,
    volume: &Arc<Volume>,
    paths: &[Vec<Vec<u8>>],
    watch: Watch<'_>,
) -> Result<(), BackupError> {
    let selected = select(vault, backup, volume.root(), paths)?;
    let mut receive = begin(backup, volume)?;
    let mut progress = Progress::default();
    for ino in selected.inodes() {
        let mut groups = Groups::new(vault, backup, Position::of_inode(ino))?;
        let mut more = true;
        while more {
            let Some(mut group) = groups.next_group()? else {
                break;
            };
            more = group
                .last()
                .is_some_and(|last| last.position().inode() == ino);
            group.retain(|entry| selected.has_entry(ino, entry));
            receive_group(vault, &mut receive, &group, &mut progress)?;
            if !watch(progress) {
                return Err(BackupError::Stopped);
            }
        }
    }
    let content = end(&mut receive, progress)?;
    receive.finish(content)?;
    Ok(())
}
