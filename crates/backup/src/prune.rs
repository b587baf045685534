//! Deletes packs that no backup refers to.

use std::collections::HashSet;

use crate::chunk::PackId;
use crate::error::BackupError;
use crate::index;
use crate::manifest::{Entry, Segments};
use crate::vault::Vault;

/// Packs that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Number of packs.
    pub packs: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Deletes the packs that no backup refers to, such as those of interrupted backups. A pack of
/// which a backup needs a single chunk stays. No backup may be made meanwhile. Blocks the thread.
///
/// # Errors
/// `Damaged` if a manifest is: nothing is deleted then. The bucket's: what is left is deleted the
/// next time.
pub fn prune(vault: &Vault) -> Result<Pruned, BackupError> {
    let used = used(vault)?;
    // The index first: it never names a pack that is gone.
    let old = vault.list(index::PREFIX)?;
    let mut kept = Vec::new();
    for object in &old {
        match index::read(vault, object) {
            Ok(chunks) => kept.extend(chunks.into_iter().filter(|c| used.contains(&c.pack))),
            Err(BackupError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    index::write(vault, &kept)?;
    for object in &old {
        vault.bucket().delete(&vault.object(object))?;
    }
    let used: HashSet<String> = used.iter().map(|pack| pack.object()).collect();
    let mut pruned = Pruned::default();
    for object in vault.list("packs/")? {
        if !used.contains(&object) {
            let object = vault.object(&object);
            pruned.bytes += vault.bucket().size(&object)?;
            pruned.packs += 1;
            vault.bucket().delete(&object)?;
        }
    }
    Ok(pruned)
}

/// Packs that backups refer to.
fn used(vault: &Vault) -> Result<HashSet<PackId>, BackupError> {
    let (mut packs, mut seen) = (HashSet::new(), HashSet::new());
    for name in vault.backups()? {
        let backup = vault.backup(&name)?;
        let lists = backup.lists()?;
        packs.extend(lists.iter().map(|list| list.pack));
        let mut segments = Segments::new(vault, lists);
        while let Some((segment, _)) = segments.peek()? {
            segments.pass();
            packs.insert(segment.chunk.pack);
            if !seen.insert(segment.chunk.id) {
                continue;
            }
            for entry in segment.entries(vault)? {
                if let Entry::Window { window, .. } = entry {
                    packs.extend(window.pieces.iter().map(|piece| piece.pack));
                }
            }
        }
    }
    Ok(packs)
}
