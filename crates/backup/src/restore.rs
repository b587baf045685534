//! Restores a backup into a volume.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_base::BLOCK_SIZE;
use weir_base::limits::backup as limits;
use weir_volume::{ContentHash, Mark, Position, Receive, TransferHeader, Volume};

use crate::chunk::Chunk;
use crate::error::BackupError;
use crate::manifest::{Entry, Segments, WINDOW, Window};
use crate::vault::{Backup, Read, Vault};
use crate::{Progress, Watch};

/// Pieces of files that are fetched at a time.
const PIECES: usize = limits::FETCH_BYTES / (WINDOW * BLOCK_SIZE);

/// Entries without contents that are applied at a time.
const RECORDS: usize = 16_384;

/// Restores a backup into an empty volume that is protected ([`weir_volume::Engine::protect`]).
/// An interrupted restoration goes on where it was. On return the volume has the backup's snapshot,
/// whose tree was compared with the source's; until then clients see nothing of it. Returns the
/// snapshot's number in the volume. Blocks the thread.
///
/// # Errors
/// `Different` if the comparison fails, which discards what was restored; `Damaged`, `Stopped`; the
/// volume's and the bucket's.
pub fn restore(
    vault: &Vault,
    backup: &Backup,
    volume: &Arc<Volume>,
    watch: Watch<'_>,
) -> Result<u32, BackupError> {
    let mut receive = begin(backup, volume)?;
    let mut groups = Groups::new(vault, backup, receive.mark().position)?;
    let mut progress = Progress {
        contents: receive.mark().logical,
        moved: receive.mark().wire,
    };
    while let Some(group) = groups.next_group()? {
        receive_group(vault, &mut receive, &group, &mut progress)?;
        if !watch(progress) {
            return Err(BackupError::Stopped);
        }
    }
    let content = end(&mut receive, progress)?;
    if content != backup.content {
        receive.discard()?;
        return Err(BackupError::Different);
    }
    Ok(receive.finish(content)?)
}

/// Begins to receive a backup's snapshot into an empty volume, or goes on.
pub(crate) fn begin(backup: &Backup, volume: &Arc<Volume>) -> Result<Receive, BackupError> {
    Ok(volume.receive(&TransferHeader {
        base: None,
        target: backup.identity().ok_or_else(|| backup.malformed())?,
        name: backup.snapshot.clone(),
        label: backup.label.clone(),
        created: backup.time(),
        next_ino: backup.next_ino,
        key: backup.key,
    })?)
}

/// Receives entries that follow each other, with their contents.
pub(crate) fn receive_group(
    vault: &Vault,
    receive: &mut Receive,
    group: &[Entry],
    progress: &mut Progress,
) -> Result<(), BackupError> {
    let Some(last) = group.last() else {
        return Ok(());
    };
    let read = vault.chunks(&pieces(group))?;
    progress.moved += read.moved;
    for entry in group {
        progress.contents += apply(vault, receive, entry, &read)?;
    }
    Ok(receive.commit(mark(last.position().behind(), *progress))?)
}

/// Completes what was received. Returns the hash of its contents.
pub(crate) fn end(receive: &mut Receive, progress: Progress) -> Result<ContentHash, BackupError> {
    receive.commit(mark(Position::END, progress))?;
    receive.checkpoint()?;
    Ok(receive.content_walk()?.finish()?)
}

fn mark(position: Position, progress: Progress) -> Mark {
    Mark {
        position,
        digest: 0,
        logical: progress.contents,
        wire: progress.moved,
    }
}

/// Chunks that hold the contents of entries.
pub(crate) fn pieces(group: &[Entry]) -> Vec<Chunk> {
    let windows = group.iter().filter_map(|entry| match entry {
        Entry::Window { window, .. } => Some(&window.pieces),
        Entry::Record { .. } => None,
    });
    windows.flatten().copied().collect()
}

/// Returns the contents of a window's blocks, in order.
pub(crate) fn contents(
    vault: &Vault,
    window: &Window,
    read: &Read,
) -> Result<Vec<u8>, BackupError> {
    let mut pages = Vec::with_capacity(window.blocks.len() * BLOCK_SIZE);
    for block in &window.blocks {
        let piece = window.pieces.get(usize::from(block.piece));
        let page = piece
            .and_then(|piece| read.contents.get(&piece.id))
            .and_then(|piece| Window::contents(block, piece));
        let damaged = || BackupError::damaged(vault.name(), "a block of a file is missing");
        pages.extend_from_slice(page.ok_or_else(damaged)?);
    }
    Ok(pages)
}

/// Receives an entry. Returns the bytes of contents in it.
fn apply(
    vault: &Vault,
    receive: &mut Receive,
    entry: &Entry,
    read: &Read,
) -> Result<u64, BackupError> {
    match entry {
        Entry::Record { at, value } => {
            receive.put(*at, value)?;
            Ok(0)
        }
        Entry::Window { at, window } => {
            let pages = contents(vault, window, read)?;
            let places = window.blocks.iter();
            let mask = places.fold(0, |mask, block| mask | 1 << block.place);
            let crcs: Vec<u32> = window.blocks.iter().map(|block| block.crc).collect();
            receive.data(*at, mask, 0, &crcs, &pages)?;
            Ok(pages.len() as u64)
        }
    }
}

/// The entries of a manifest from a position on, as many at a time as are to be held in memory.
pub(crate) struct Groups<'v> {
    vault: &'v Vault,
    segments: Segments<'v>,
    entries: VecDeque<Entry>,
    from: Position,
}

impl<'v> Groups<'v> {
    pub(crate) fn new(
        vault: &'v Vault,
        backup: &Backup,
        from: Position,
    ) -> Result<Groups<'v>, BackupError> {
        Ok(Groups {
            vault,
            segments: Segments::new(vault, backup.lists()?),
            entries: VecDeque::new(),
            from,
        })
    }

    pub(crate) fn next_group(&mut self) -> Result<Option<Vec<Entry>>, BackupError> {
        let (mut group, mut count) = (Vec::new(), 0);
        while count < PIECES && group.len() < RECORDS {
            let Some(entry) = self.entries.pop_front() else {
                let Some((segment, end)) = self.segments.peek()? else {
                    break;
                };
                self.segments.pass();
                if end > self.from {
                    self.entries = segment.entries(self.vault)?;
                }
                continue;
            };
            if entry.position() >= self.from {
                if let Entry::Window { window, .. } = &entry {
                    count += window.pieces.len();
                }
                group.push(entry);
            }
        }
        Ok((!group.is_empty()).then_some(group))
    }
}
