//! Makes a backup of a snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_base::limits::backup as limits;
use weir_base::{BLOCK_SIZE, SnapshotIdentity, invariant};
use weir_volume::{DiffItem, Frame, Position, SnapshotDiff, Volume};

use crate::error::BackupError;
use crate::manifest::{Entry, Window};
use crate::merge::Merge;
use crate::pack::Packer;
use crate::vault::{Backup, BackupParts, Vault};
use crate::{Progress, Watch};

/// Source of a backup.
pub struct Source<'a> {
    /// The volume.
    pub volume: &'a Arc<Volume>,
    /// Its name, for the description of the backup.
    pub name: &'a str,
    /// The snapshot. It is held meanwhile.
    pub snapshot: SnapshotIdentity,
}

/// Makes the backup `name` of a snapshot, as the difference to `base` if the volume still has the
/// snapshot of that one, else by going through all of it. If the vault has it already, returns it.
/// Blocks the thread.
///
/// # Errors
/// `Exists` if the vault has one of this name of another snapshot, `Volume(NotFound)` if the volume
/// does not have the snapshot, `Stopped`, `Damaged` if the manifest of `base` is; the bucket's.
pub fn take(
    vault: &Vault,
    source: &Source<'_>,
    base: Option<&Backup>,
    name: &str,
    watch: Watch<'_>,
) -> Result<Backup, BackupError> {
    if let Some(made) = vault.existing(name)? {
        // An attempt that ended before it learned that it had succeeded.
        return match made.identity() == Some(source.snapshot) {
            true => Ok(made),
            false => Err(BackupError::Exists(name.to_owned())),
        };
    }
    let base = base.filter(|base| precedes(source, base) && is_held(source.volume, base));
    let identity = base.and_then(Backup::identity);
    let mut outgoing = SnapshotDiff::new(source.volume, identity, source.snapshot)?;
    let lists = base.map(Backup::lists).transpose()?.unwrap_or_default();
    let mut merge = Merge::new(Packer::new(vault)?, lists);
    let mut contents = 0;
    loop {
        let (differences, pages) = read_ahead(&mut outgoing)?;
        if differences.is_empty() {
            break;
        }
        contents += (pages.len() * BLOCK_SIZE) as u64;
        put(&mut merge, differences, pages)?;
        let moved = merge.packer().moved();
        if !watch(Progress { contents, moved }) {
            return Err(BackupError::Stopped);
        }
    }
    let (lists, uploaded) = merge.finish()?;
    let content = source.volume.content_walk(source.snapshot)?.finish()?;
    let made = BackupParts {
        name: name.to_owned(),
        volume: source.name.to_owned(),
        referenced: outgoing.referenced(),
        uploaded,
        content,
        lists,
    };
    let backup = Backup::new(outgoing.incoming(), made);
    vault.add(&backup)?;
    Ok(backup)
}

/// True if the volume has the snapshot of a backup, with the same contents.
/// Returns true if a backup is of a snapshot that was taken before that of the source: differences
/// lead from the older to the newer one.
fn precedes(source: &Source<'_>, base: &Backup) -> bool {
    let number = |identity| source.volume.snapshot_with(identity).map(|s| s.id);
    let base = base.identity().and_then(number);
    base.is_some() && base < number(source.snapshot)
}

fn is_held(volume: &Arc<Volume>, base: &Backup) -> bool {
    let Some(identity) = base.identity() else {
        return false;
    };
    let walk = volume.content_walk(identity).ok();
    let content = walk.and_then(|walk| walk.finish().ok());
    content == Some(base.content)
}

/// Reads differences, and the blocks of them.
fn read_ahead(
    outgoing: &mut SnapshotDiff,
) -> Result<(VecDeque<DiffItem>, VecDeque<Frame>), BackupError> {
    let (mut differences, mut wanted) = (VecDeque::new(), Vec::new());
    while wanted.len() < limits::AHEAD_BLOCKS && differences.len() < limits::AHEAD_BLOCKS {
        let Some(sent) = outgoing.advance()? else {
            break;
        };
        if let DiffItem::Data { blocks, .. } = &sent {
            wanted.extend(blocks.iter().map(|(_, block)| *block));
        }
        differences.push_back(sent);
    }
    let pages = match wanted.is_empty() {
        true => VecDeque::new(),
        false => outgoing.read(&wanted)?.into(),
    };
    Ok((differences, pages))
}

fn put(
    merge: &mut Merge<'_>,
    differences: VecDeque<DiffItem>,
    mut pages: VecDeque<Frame>,
) -> Result<(), BackupError> {
    for sent in differences {
        match sent {
            DiffItem::Put { at, value } => {
                merge.advance(at)?;
                let value = value.to_vec();
                merge.push(&Entry::Record { at, value })?;
            }
            DiffItem::Gone { at } => drop(merge.advance(at)?),
            DiffItem::Data { at, blocks, holes } => {
                let count = blocks.len();
                invariant!(
                    pages.len() >= count,
                    "{count} blocks of a window were not read"
                );
                let data: Vec<Frame> = pages.drain(..count).collect();
                let places: Vec<(u8, u32)> = blocks
                    .iter()
                    .map(|(place, block)| (*place, block.crc()))
                    .collect();
                put_window(merge, at, &places, &data, holes)?;
            }
        }
    }
    Ok(())
}

fn put_window(
    merge: &mut Merge<'_>,
    at: Position,
    places: &[(u8, u32)],
    data: &[Frame],
    holes: u32,
) -> Result<(), BackupError> {
    let mut window = match merge.advance(at)? {
        Some(Entry::Window { window, .. }) => window,
        _ => Window::default(),
    };
    window.clear(holes);
    if !places.is_empty() {
        let mut contents = Vec::with_capacity(data.len() * BLOCK_SIZE);
        data.iter()
            .for_each(|page| contents.extend_from_slice(&page[..]));
        let piece = merge.packer().add(&contents)?;
        window.set(piece, places);
    }
    match window.blocks.is_empty() {
        true => Ok(()),
        false => merge.push(&Entry::Window { at, window }),
    }
}
