//! Usage by owner: the blocks and inodes that count for each user, group and tree.
//!
//! The records belong to the volume's tree, so each snapshot has the usage of its own inodes, a
//! revert restores it with them, and a clone begins with it. A checkpoint changes them together
//! with the inodes that it merges ([`crate::checkpoint::merge`]). So they are exact in every tree,
//! whatever crash comes between.
//!
//! **Volumes from before.** A tree that was begun without usage has no record
//! [`COUNTED`]. Its records have the changes since checkpoints began to count. So the difference
//! between them and the sum over all inodes stays the same, and one walk of any of its roots finds
//! it ([`crate::checkpoint::count`]).
//!
//! A copy counts for itself: neither transfers nor hashes of contents include these records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use smallvec::SmallVec;
use weir_store::StoreError;
use weir_store::node::Key;
use weir_store::tree::{NodeSource, TreeRoot};

use crate::format::codec::{Put, Reader};
use crate::format::reading::scan;
use crate::format::record::{InodeRec, kind};
use crate::types::{QuotaId, QuotaKind, QuotaUsage};

/// Version of a record.
pub(crate) const VERSION: u8 = 1;

/// Key part in place of an inode number: behind all inode numbers.
pub(crate) const INO: u64 = u64::MAX;

/// Key of the record that says that all inodes of the tree are counted.
pub(crate) const COUNTED: Key = Key {
    ino: INO,
    kind: kind::USAGE,
    sub: 0,
};

/// Usage by owner, or changes of it.
pub(crate) type Usages = BTreeMap<QuotaId, QuotaUsage>;

/// The owners that one inode counts for.
pub(crate) type Ids = SmallVec<[QuotaId; 3]>;

/// The owners of an inode. Inodes outside of any tree (0) count for none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Owners {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) tree: u32,
}

impl Owners {
    pub(crate) fn from_record(rec: &InodeRec) -> Owners {
        let (uid, gid, tree) = (rec.uid, rec.gid, rec.tree);
        Owners { uid, gid, tree }
    }

    pub(crate) fn ids(self) -> Ids {
        let mut ids: Ids = [QuotaId::user(self.uid), QuotaId::group(self.gid)]
            .into_iter()
            .collect();
        if self.tree != 0 {
            ids.push(QuotaId::tree(self.tree));
        }
        ids
    }
}

/// Adds `change` to the usage of all owners.
pub(crate) fn add(usages: &mut Usages, owners: Owners, change: QuotaUsage) {
    for id in owners.ids() {
        usages.entry(id).or_default().add(change);
    }
}

/// Returns the usage of one inode with so many blocks.
pub(crate) fn of_inode(blocks: u64) -> QuotaUsage {
    QuotaUsage {
        // A device has fewer blocks.
        blocks: blocks.cast_signed(),
        files: 1,
    }
}

fn number(kind: QuotaKind) -> u64 {
    match kind {
        QuotaKind::User => 1,
        QuotaKind::Group => 2,
        QuotaKind::Tree => 3,
    }
}

pub(crate) fn key(id: QuotaId) -> Key {
    let sub = number(id.kind) << 32 | u64::from(id.id);
    Key { sub, ..COUNTED }
}

/// Returns the owner of a record; `None` if it is another record.
pub(crate) fn id_of(key: &Key) -> Option<QuotaId> {
    let kinds = [QuotaKind::User, QuotaKind::Group, QuotaKind::Tree];
    let kind = kinds.into_iter().find(|k| number(*k) == key.sub >> 32)?;
    let id = (key.sub & u64::from(u32::MAX)) as u32;
    (key.ino == INO && key.kind == kind::USAGE).then_some(QuotaId { kind, id })
}

pub(crate) fn encode(usage: QuotaUsage) -> Vec<u8> {
    let mut out = Vec::with_capacity(17);
    out.put_u8(VERSION);
    out.put_i64(usage.blocks);
    out.put_i64(usage.files);
    out
}

/// Decodes a record; `None` if it is malformed. No record has a usage of nothing.
pub(crate) fn decode(bytes: &[u8]) -> Option<QuotaUsage> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return None;
    }
    let usage = QuotaUsage {
        blocks: r.i64()?,
        files: r.i64()?,
    };
    (r.is_empty() && usage != QuotaUsage::default()).then_some(usage)
}

/// Returns the numbers of the trees that have inodes, as recorded in a volume's tree.
pub(crate) fn trees(
    src: &impl NodeSource,
    root: &TreeRoot,
) -> Result<Vec<u32>, weir_store::tree::Stop> {
    let (first, last) = (key(QuotaId::tree(0)), key(QuotaId::tree(u32::MAX)));
    let mut numbers = Vec::new();
    weir_store::tree::scan(src, root, first, last, &mut |key, _| {
        numbers.extend(id_of(&key).map(|id| id.id));
        ControlFlow::Continue(())
    })?;
    Ok(numbers)
}

/// Reads the usage in a tree. Returns true as well if all inodes are counted there.
pub(crate) fn read(src: &impl NodeSource, root: &TreeRoot) -> Result<(Usages, bool), StoreError> {
    let (mut usages, mut counted, mut good) = (Usages::new(), false, true);
    let to = Key {
        sub: u64::MAX,
        ..COUNTED
    };
    scan(src, root, COUNTED, to, &mut |key, value| {
        match (key == COUNTED, id_of(&key), decode(value)) {
            (true, ..) => counted = true,
            (false, Some(id), Some(usage)) => {
                usages.insert(id, usage);
            }
            _ => good = false,
        }
        ControlFlow::Continue(())
    })?;
    match good {
        true => Ok((usages, counted)),
        false => Err(StoreError::Format("a record of usage is malformed".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_round_trip() {
        for id in [
            QuotaId::user(0),
            QuotaId::user(u32::MAX),
            QuotaId::group(7),
            QuotaId::tree(1),
        ] {
            assert_eq!(id_of(&key(id)), Some(id));
            assert!(key(id) > COUNTED);
        }
        assert_eq!(id_of(&COUNTED), None);
        let usage = QuotaUsage {
            blocks: -3,
            files: 9,
        };
        assert_eq!(decode(&encode(usage)), Some(usage));
        assert_eq!(decode(&encode(QuotaUsage::default())), None);
        for cut in 0..17 {
            assert_eq!(decode(&encode(usage)[..cut]), None);
        }
    }
}
