//! Deletes packs that no backup refers to.

use std::collections::HashSet;

use crate::chunk::PackId;
use crate::error::BackupError;
use crate::index;
use crate::manifest::Segments;
use crate::refs::{Referrer, Refs, packs_of};
use crate::vault::Vault;

/// Packs that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneStats {
    /// Number of packs.
    pub packs: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Deletes the packs that no backup refers to, such as those of interrupted backups. A pack of
/// which a backup needs a single chunk stays. No backup may be made meanwhile. Blocks the thread.
///
/// It reads the lists of segments of the backups that remain. It reads a segment, or an object of
/// the index, only if nothing is noted of it ([`crate::refs`]), and an object of the
/// index also if a pack goes that it names.
///
/// # Errors
/// `Damaged` if a list is, or a segment of which nothing is noted: nothing is deleted then. The
/// bucket's: what is left is deleted the next time.
pub fn prune(vault: &Vault) -> Result<PruneStats, BackupError> {
    let mut refs = Refs::load(vault)?;
    let mut live = HashSet::new();
    let used = used(vault, &mut refs, &mut live)?;
    let names: HashSet<String> = used.iter().map(|pack| pack.object()).collect();
    let mut gone = vault.list("packs/")?;
    gone.retain(|object| !names.contains(object));
    // The index first: it never names a pack that is gone.
    prune_index(vault, &used, !gone.is_empty(), &mut refs, &mut live)?;
    refs.keep(vault, &live)?;
    let mut pruned = PruneStats::default();
    for object in gone {
        let object = vault.object(&object);
        pruned.bytes += vault.bucket().size(&object)?;
        pruned.packs += 1;
        vault.bucket().delete(&object)?;
    }
    Ok(pruned)
}

/// Replaces the objects of the index that name packs that are not used, if there may be `any`.
fn prune_index(
    vault: &Vault,
    used: &HashSet<PackId>,
    any: bool,
    refs: &mut Refs,
    live: &mut HashSet<Referrer>,
) -> Result<(), BackupError> {
    let (mut kept, mut old) = (Vec::new(), Vec::new());
    for object in vault.list(index::PREFIX)? {
        let id = index::referrer(&object);
        let noted = id.and_then(|id| refs.get(id));
        let stays = noted.is_some_and(|packs| packs.iter().all(|pack| used.contains(pack)));
        if let Some(id) = id.filter(|_| stays || !any) {
            live.insert(id);
            continue;
        }
        match index::read(vault, &object) {
            Ok(chunks) if chunks.iter().all(|chunk| used.contains(&chunk.pack)) => {
                if let Some(id) = id {
                    refs.note(id, packs_of(chunks.iter()));
                    live.insert(id);
                }
            }
            Ok(chunks) => {
                kept.extend(chunks.into_iter().filter(|c| used.contains(&c.pack)));
                old.push(object);
            }
            Err(BackupError::Damaged { .. }) => old.push(object),
            Err(error) => return Err(error),
        }
    }
    index::write(vault, &kept, &mut |id, packs| {
        live.insert(id);
        refs.note(id, packs);
    })?;
    for object in &old {
        vault.bucket().delete(&vault.object(object))?;
    }
    Ok(())
}

/// Returns the packs that backups refer to, and adds their segments to `live`.
fn used(
    vault: &Vault,
    refs: &mut Refs,
    live: &mut HashSet<Referrer>,
) -> Result<HashSet<PackId>, BackupError> {
    let mut packs = HashSet::new();
    for name in vault.backups()? {
        let backup = vault.backup(&name)?;
        let lists = backup.lists()?;
        packs.extend(lists.iter().map(|list| list.pack));
        let mut segments = Segments::new(vault, lists);
        while let Some((segment, _)) = segments.peek()? {
            segments.pass();
            packs.insert(segment.chunk.pack);
            if live.insert(Referrer::segment(segment.chunk.id)) {
                packs.extend(refs.of_segment(vault, &segment)?);
            }
        }
    }
    Ok(packs)
}
