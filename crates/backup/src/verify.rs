//! Reads all that a backup refers to.

use std::collections::HashSet;

use weir_base::limits::backup as limits;
use weir_volume::Position;

use crate::chunk::Chunk;
use crate::error::BackupError;
use crate::manifest::{Entry, Segments};
use crate::refs::{Referrer, Refs, packs_in};
use crate::restore::{Groups, contents, pieces};
use crate::vault::{Backup, Vault};
use crate::{Progress, Watch};

/// Result of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyStats {
    /// Records of the volume: names, attributes, and windows of files.
    pub records: u64,
    /// Bytes of file contents.
    pub contents: u64,
    /// Bytes fetched from the bucket.
    pub fetched: u64,
}

/// Compares what is noted of segments with what they refer to: a note that lacked a pack would cost
/// it.
fn verify_refs(vault: &Vault, lists: Vec<Chunk>) -> Result<(), BackupError> {
    let refs = Refs::load(vault)?;
    let mut segments = Segments::new(vault, lists);
    while let Some((segment, _)) = segments.peek()? {
        segments.pass();
        let Some(noted) = refs.get(Referrer::segment(segment.chunk.id)) else {
            continue;
        };
        if noted != packs_in(segment.entries(vault)?.iter()) {
            let what = "the packs that are noted of a segment are not those that it refers to";
            return Err(BackupError::damaged(vault.object("refs"), what));
        }
    }
    Ok(())
}

/// Reads, opens and compares everything that a backup refers to. Blocks the thread.
///
/// # Errors
/// `Damaged`, with the first object that is; `Stopped`; the bucket's, of which `Missing` is damage
/// as well.
pub fn verify(
    vault: &Vault,
    backup: &Backup,
    watch: Watch<'_>,
) -> Result<VerifyStats, BackupError> {
    verify_refs(vault, backup.lists()?)?;
    let mut groups = Groups::new(vault, backup, Position::START)?;
    let mut verified = VerifyStats::default();
    let mut seen = HashSet::new();
    let mut before = None;
    while let Some(group) = groups.next_group()? {
        let mut wanted = pieces(&group);
        wanted.retain(|piece| !seen.contains(&piece.id));
        let read = vault.chunks(&wanted)?;
        verified.fetched += read.moved;
        for entry in &group {
            if before.replace(entry.position()) >= Some(entry.position()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;
    use crate::manifest::Window;
    use crate::merge::Merge;
    use crate::pack::Packer;
    use crate::prune;
    use crate::seal::VaultKey;
    use std::sync::Arc;
    use weir_base::SeededRng;

    #[test]
    fn a_note_that_lacks_a_pack_is_found() {
        let at = tempfile::tempdir().unwrap();
        let (bucket, rng) = (Folder::new(at.path()).unwrap(), Arc::new(SeededRng::new(3)));
        let key = VaultKey::random(&*rng);
        let vault = Vault::create(Arc::new(bucket), "v", &key, rng).unwrap();
        let mut merge = Merge::new(Packer::new(&vault).unwrap(), Vec::new());
        let mut window = Window::default();
        let piece = merge.packer().add(&[7; weir_base::BLOCK_SIZE]).unwrap();
        window.set(piece, &[(0, 1)]);
        let at = Position([1; 17]);
        merge.push(&Entry::Window { at, window }).unwrap();
        let (lists, _) = merge.finish().unwrap();
        verify_refs(&vault, lists.clone()).unwrap();
        // Each note is of one segment or of one object of the index.
        let right = Refs::load(&vault).unwrap();
        let (first, _) = Segments::new(&vault, lists.clone())
            .peek()
            .unwrap()
            .unwrap();
        let segment = Referrer::segment(first.chunk.id);
        assert_eq!(right.get(segment), Some(&[piece.pack][..]));
        for object in vault.list("refs/").unwrap() {
            vault.bucket().delete(&vault.object(&object)).unwrap();
        }
        verify_refs(&vault, lists.clone()).unwrap();
        let mut wrong = Refs::default();
        wrong.note(segment, Vec::new());
        wrong.write(&vault).unwrap();
        let found = verify_refs(&vault, lists);
        assert!(
            matches!(found, Err(BackupError::Damaged { .. })),
            "{found:?}"
        );
        prune(&vault).unwrap();
        assert_eq!(vault.list("").unwrap(), ["vault"]);
    }
}
