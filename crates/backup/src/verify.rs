//! Reads all that a backup refers to.

use std::collections::HashSet;

use weir_base::limits::backup as limits;
use weir_volume::Position;

use crate::error::BackupError;
use crate::manifest::Entry;
use crate::restore::{Groups, contents, pieces};
use crate::vault::{Backup, Vault};
use crate::{Progress, Watch};

/// Result of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Records of the volume: names, attributes, and windows of files.
    pub records: u64,
    /// Bytes of file contents.
    pub contents: u64,
    /// Bytes fetched from the bucket.
    pub fetched: u64,
}

/// Reads, opens and compares everything that a backup refers to. Blocks the thread.
///
/// # Errors
/// `Damaged`, with the first object that is; `Stopped`; the bucket's, of which `Missing` is damage
/// as well.
pub fn verify(vault: &Vault, backup: &Backup, watch: Watch<'_>) -> Result<Verified, BackupError> {
    let mut groups = Groups::new(vault, backup, Position::START)?;
    let mut verified = Verified::default();
    let mut seen = HashSet::new();
    let mut before = None;
    while let Some(group) = groups.next_group()? {
        let mut wanted = pieces(&group);
        wanted.retain(|piece| !seen.contains(&piece.id));
        let read = vault.chunks(&wanted)?;
        verified.fetched += read.moved;
        for entry in &group {
            if before.replace(entry.at()) >= Some(entry.at()) {
                return Err(backup.malformed());
            }
            verified.records += 1;
            if let Entry::Window { window, .. } = entry {
                verified.contents += (window.blocks.len() * weir_base::BLOCK_SIZE) as u64;
                let fresh = window
                    .pieces
                    .iter()
                    .all(|p| read.contents.contains_key(&p.id));
                if fresh {
                    contents(vault, window, &read)?;
                }
            }
        }
        if seen.len() < limits::KNOWN_CHUNKS {
            seen.extend(read.contents.keys().copied());
        }
        let progress = Progress {
            contents: verified.contents,
            moved: verified.fetched,
        };
        if !watch(progress) {
            return Err(BackupError::Stopped);
        }
    }
    Ok(verified)
}
