//! Blocks that several places in a volume's files share since one was cloned from the other
//! ([`crate::ops::clone_range`]), and their reference counts.
//!
//! A block of the device belongs to one volume, whose tree normally refers to it in one place of
//! one file. Such a block has no record. Only a block that several places refer to has a *count*,
//! beside the files. So a volume without clones pays nothing for this. A volume with clones has a
//! record for each 32 blocks of the device with a shared one among them. Dropping a reference to a
//! block with a count decrements it, and the block stays allocated. The last reference is like that
//! to any other block.
//!
//! **Snapshots.** The counts are records of the volume's tree. So each snapshot has the counts that
//! its own tree needs, a revert restores them with the files, and a clone of the volume begins with
//! them. Dead blocks ([`crate::checkpoint::dead`]) are not affected. They depend on the first and
//! last time at which the *volume* referred to a block. Between the two some file referred to it
//! without a gap, because a clone copies existing references.
//!
//! **The order within a checkpoint**: all references that clones add are counted before any is
//! dropped ([`crate::checkpoint::merge`]). Otherwise a file that is cloned and then deleted would
//! take the blocks with it.
//!
//! **The keys come after those of all inodes.** A dropped tree is freed from its first key to its
//! last, over many checkpoints ([`crate::checkpoint::job`]). Its extents, which come first, skip
//! blocks with a count. The records of the counts, which come last, free each such block once.
//! Until then they can be read: the nodes that lead to them are freed after them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use smallvec::SmallVec;
use weir_base::limits::engine::SHARED_RUNS_KEPT as KEPT;
use weir_base::{BlockAddr, Generation};
use weir_store::StoreError;
use weir_store::checkpoint::Run;
use weir_store::node::Key;
use weir_store::tree::{Edit, NodeSource, TreeRoot};

use crate::format::codec::{Put, Reader};
use crate::format::reading::{get, scan};
use crate::format::record::{StoredBlock, kind};

/// Blocks of the device in one record.
pub(crate) const GROUP: u64 = 32;

/// Key part in place of an inode number: behind all inode numbers.
pub(crate) const INO: u64 = u64::MAX;

/// A block of the device, as counts identify it.
pub(crate) type CountedBlock = (BlockAddr, Generation);

/// Reference count of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Count {
    /// Number of places that refer to the block: two or more.
    pub(crate) references: u64,
    pub(crate) birth: Generation,
}

/// A record of counts: for blocks that are adjacent on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group([Option<Count>; GROUP as usize]);

pub(crate) fn key(group: u64) -> Key {
    Key::new(INO, kind::SHARED, group)
}

/// Returns the record that a block belongs to, and its place there.
fn place(addr: BlockAddr) -> (u64, usize) {
    (addr.0 / GROUP, (addr.0 % GROUP) as usize)
}

impl Group {
    const EMPTY: Group = Group([None; GROUP as usize]);

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Returns the runs of adjacent blocks with the same count and birth: first place, number,
    /// count.
    fn stretches(&self) -> SmallVec<[(usize, usize, Count); 8]> {
        let mut runs: SmallVec<[(usize, usize, Count); 8]> = SmallVec::new();
        for (at, slot) in self.0.iter().enumerate() {
            let Some(count) = slot else {
                // Not shared: a gap.
                continue;
            };
            match runs.last_mut() {
                Some((first, blocks, of)) if *first + *blocks == at && of == count => *blocks += 1,
                _ => runs.push((at, 1, *count)),
            }
        }
        runs
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let runs = self.stretches();
        let mut out = Vec::with_capacity(1 + runs.len() * 18);
        out.put_u8(runs.len() as u8);
        for (first, blocks, count) in runs {
            out.put_u8(first as u8);
            out.put_u8(blocks as u8);
            out.put_u64(count.references);
            out.put_u64(count.birth.0);
        }
        out
    }

    /// Decodes a record; `None` if it is malformed. A record has exactly one form.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Group> {
        let mut group = Group::EMPTY;
        let mut r = Reader::new(bytes);
        let (mut next, mut last) = (0, None);
        for _ in 0..r.u8()? {
            let (first, blocks) = (usize::from(r.u8()?), usize::from(r.u8()?));
            let count = Count {
                references: r.u64().filter(|references| *references >= 2)?,
                birth: Generation(r.u64()?),
            };
            let one = last.replace(count) == Some(count) && first == next;
            if first < next || blocks == 0 || one {
                return None;
            }
            next = first + blocks;
            group.0.get_mut(first..next)?.fill(Some(count));
        }
        (r.is_empty() && !group.is_empty()).then_some(group)
    }

    /// Returns the blocks that have a count, with it.
    pub(crate) fn blocks(&self, number: u64) -> impl Iterator<Item = (BlockAddr, Count)> {
        // Saturates: the number comes from the disk, and no device is that long.
        let first = number.saturating_mul(GROUP);
        let counted = (first..).zip(self.0);
        counted.filter_map(|(addr, slot)| Some((BlockAddr(addr), slot?)))
    }

    /// Returns the blocks that have a count, as runs to be freed.
    pub(crate) fn runs(&self, number: u64) -> impl Iterator<Item = Run> {
        self.blocks(number).map(|(addr, count)| Run {
            addr,
            count: 1,
            birth: count.birth,
        })
    }
}

pub(crate) fn malformed() -> StoreError {
    StoreError::Format("a record of shared blocks is malformed".into())
}

struct LoadedGroup {
    group: Group,
    changed: bool,
    /// True if the record is in the tree.
    stored: bool,
}

/// The counts of one tree, read as needed, with changes that the tree does not have yet.
#[derive(Default)]
pub(crate) struct SharedRuns {
    /// True if the tree has any counts, once that is known.
    any: Option<bool>,
    groups: BTreeMap<u64, LoadedGroup>,
    changed: usize,
}

impl SharedRuns {
    /// Returns true if nothing is shared.
    pub(crate) fn is_empty(
        &mut self,
        src: &impl NodeSource,
        root: &TreeRoot,
    ) -> Result<bool, StoreError> {
        let any = match self.any {
            Some(any) => any,
            None => {
                let mut found = false;
                scan(src, root, key(0), key(u64::MAX), &mut |_, _| {
                    found = true;
                    ControlFlow::Break(())
                })?;
                *self.any.insert(found)
            }
        };
        Ok(!any)
    }

    fn group(
        &mut self,
        src: &impl NodeSource,
        root: &TreeRoot,
        number: u64,
    ) -> Result<&mut LoadedGroup, StoreError> {
        if self.groups.len() >= KEPT + self.changed {
            self.groups.retain(|_, loaded| loaded.changed);
        }
        match self.groups.entry(number) {
            std::collections::btree_map::Entry::Occupied(there) => Ok(there.into_mut()),
            std::collections::btree_map::Entry::Vacant(free) => {
                let stored = get(src, root, &key(number))?;
                let group = match &stored {
                    Some(value) => Group::decode(value).ok_or_else(malformed)?,
                    None => Group::EMPTY,
                };
                Ok(free.insert(LoadedGroup {
                    group,
                    changed: false,
                    stored: stored.is_some(),
                }))
            }
        }
    }

    /// Changes a block's count with `how`: `None` means one reference, or none.
    fn change<T>(
        &mut self,
        src: &impl NodeSource,
        root: &TreeRoot,
        block: StoredBlock,
        how: impl FnOnce(Option<Count>) -> Result<(Option<Count>, T), StoreError>,
    ) -> Result<T, StoreError> {
        let (number, at) = place(block.addr);
        let loaded = self.group(src, root, number)?;
        let slot = loaded.group.0.get_mut(at).ok_or_else(malformed)?;
        if slot.is_some_and(|count| count.birth != block.birth) {
            return Err(StoreError::Corrupt {
                addr: block.addr,
                what: "it is shared by another age than its file has it",
            });
        }
        let (new, result) = how(*slot)?;
        if new != *slot {
            *slot = new;
            if !std::mem::replace(&mut loaded.changed, true) {
                self.changed += 1;
            }
        }
        Ok(result)
    }

    /// Returns true if several places refer to a block.
    pub(crate) fn is_shared(
        &mut self,
        src: &impl NodeSource,
        root: &TreeRoot,
        block: StoredBlock,
    ) -> Result<bool, StoreError> {
        if self.is_empty(src, root)? {
            return Ok(false);
        }
        self.change(src, root, block, |count| Ok((count, count.is_some())))
    }

    /// Adds a reference to a block.
    pub(crate) fn share(
        &mut self,
        src: &impl NodeSource,
        root: &TreeRoot,
        block: StoredBlock,
    ) -> Result<(), StoreError> {
        self.any = Some(true);
        self.change(src, root, block, |count| {
            let references = count.map_or(1, |count| count.references);
            let more = Count {
                references: references.checked_add(1).ok_or_else(malformed)?,
                birth: block.birth,
            };
            Ok((Some(more), ()))
        })
    }

    /// Drops a reference to a block. Returns true if others remain.
    pub(crate) fn release(
        &mut self,
        src: &impl NodeSource,
        root: &TreeRoot,
        block: StoredBlock,
    ) -> Result<bool, StoreError> {
        if self.is_empty(src, root)? {
            return Ok(false);
        }
        self.change(src, root, block, |count| {
            let left = count.map(|count| Count {
                references: count.references - 1,
                ..count
            });
            let shared = left.filter(|left| left.references > 1);
            Ok((shared, left.is_some()))
        })
    }

    /// Returns the number of records whose change the tree does not have.
    pub(crate) fn changed(&self) -> usize {
        self.changed
    }

    /// Adds the edits that bring the tree up to date. The next query must be against the tree that
    /// has them.
    pub(crate) fn flush(&mut self, edits: &mut Vec<Edit>) {
        self.changed = 0;
        for (number, loaded) in std::mem::take(&mut self.groups) {
            match (loaded.changed, loaded.group.is_empty()) {
                (false, _) => {}
                (true, true) if !loaded.stored => {}
                (true, true) => edits.push(Edit::Del(key(number))),
                (true, false) => edits.push(Edit::Put(key(number), loaded.group.encode())),
            }
        }
    }

    /// Sets a count that a check has found to be wrong; with fewer than two references, the block
    /// is not shared.
    pub(crate) fn correct(
        &mut self,
        src: &impl NodeSource,
        root: &TreeRoot,
        (addr, birth): CountedBlock,
        references: u64,
    ) -> Result<(), StoreError> {
        self.any = Some(true);
        let block = StoredBlock {
            addr,
            birth,
            crc: 0,
        };
        self.change(src, root, block, |_| {
            Ok(((references > 1).then_some(Count { references, birth }), ()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};

    #[test]
    fn records_round_trip_and_have_one_form() {
        let rng = SeededRng::new(4);
        for _ in 0..300 {
            let mut group = Group::EMPTY;
            for slot in &mut group.0 {
                if rng.below(3) > 0 {
                    *slot = Some(Count {
                        references: 2 + rng.below(2),
                        birth: Generation(7 + rng.below(2)),
                    });
                }
            }
            let bytes = group.encode();
            assert!(bytes.len() <= weir_base::limits::MAX_VALUE);
            assert_eq!(Group::decode(&bytes), Some(group).filter(|g| !g.is_empty()));
            for cut in 0..bytes.len() {
                assert_eq!(Group::decode(&bytes[..cut]), None);
            }
        }
        // A gap, another count, and the first one again.
        let count = |references| {
            Some(Count {
                references,
                birth: Generation(1),
            })
        };
        let mut group = Group::EMPTY;
        (group.0[0], group.0[5], group.0[6]) = (count(2), count(3), count(2));
        assert_eq!(Group::decode(&group.encode()), Some(group));
        // Counts of one reference, of no blocks, and of the same block twice are refused.
        let run = |first: u8, blocks: u8, references: u64| {
            let mut run = vec![first, blocks];
            run.extend(references.to_le_bytes());
            run.extend(9u64.to_le_bytes());
            run
        };
        let of = |runs: &[Vec<u8>]| [vec![runs.len() as u8], runs.concat()].concat();
        assert!(Group::decode(&of(&[run(3, 2, 2), run(5, 27, 3)])).is_some());
        for bad in [
            of(&[]),
            of(&[run(3, 2, 1)]),
            of(&[run(3, 0, 2)]),
            of(&[run(3, 2, 2), run(4, 1, 3)]),
            of(&[run(31, 2, 2)]),
            of(&[run(3, 2, 2), run(5, 1, 2)]),
        ] {
            assert_eq!(Group::decode(&bad), None);
        }
    }

    #[test]
    fn references_are_counted() {
        struct EmptySource;
        impl NodeSource for EmptySource {
            fn node(
                &self,
                _: &weir_store::BlockPtr,
            ) -> Result<weir_store::Frame, weir_store::tree::Stop> {
                unreachable!("the tree is empty")
            }
        }
        let (src, root) = (&EmptySource, &TreeRoot::EMPTY);
        let block = StoredBlock {
            addr: BlockAddr(100),
            birth: Generation(3),
            crc: 5,
        };
        let mut shared = SharedRuns::default();
        assert!(!shared.release(src, root, block).unwrap(), "the only one");
        shared.share(src, root, block).unwrap();
        shared.share(src, root, block).unwrap();
        let other_age = StoredBlock {
            birth: Generation(4),
            ..block
        };
        assert!(shared.share(src, root, other_age).is_err());
        assert!(shared.is_shared(src, root, block).unwrap());
        assert!(shared.release(src, root, block).unwrap());
        let mut edits = Vec::new();
        shared.flush(&mut edits);
        let [Edit::Put(at, value)] = &edits[..] else {
            panic!("one record: {edits:?}")
        };
        let group = Group::decode(value).unwrap();
        let counted: Vec<(BlockAddr, Count)> = group.blocks(at.sub).collect();
        let count = Count {
            references: 2,
            birth: Generation(3),
        };
        assert_eq!(counted, [(BlockAddr(100), count)]);
        shared.share(src, root, block).unwrap();
        assert!(shared.release(src, root, block).unwrap());
        assert!(!shared.release(src, root, block).unwrap());
        edits.clear();
        shared.flush(&mut edits);
        assert!(edits.is_empty(), "what the tree never had: {edits:?}");
    }
}
