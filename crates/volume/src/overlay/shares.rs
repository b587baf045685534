//! Ranges of a file in an overlay that share the blocks of other ranges: the state of
//! [`crate::ops::clone_range`] until the next checkpoint.
//!
//! The blocks are not listed, whatever their number: their addresses can be looked up in a tree
//! that does not change. Two trees are needed, because a clone outlives the current one. It is
//! *read* in the tree that was committed when it was made, which is held meanwhile. And it is
//! *merged* from the tree that the volume has when its segment is merged. There the same blocks are
//! at the cloned place, since only this or a later segment changes them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weir_base::{Ino, invariant};

use crate::overlay::root::RootState;

/// A block of a file in a committed tree.
#[derive(Clone)]
pub(crate) struct CommittedBlock {
    pub(crate) root: Arc<RootState>,
    pub(crate) ino: Ino,
    pub(crate) block: u64,
}

impl fmt::Debug for CommittedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} of inode {}", self.block, self.ino)
    }
}

/// Source of the blocks of a range.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Block after the last one of the range.
    pub(crate) end: u64,
    /// The first source block as it is read until the next checkpoint.
    pub(crate) seen: CommittedBlock,
    /// The first source block in the tree that the volume has before this segment is merged.
    pub(crate) merged: (Ino, u64),
    /// Upper bound of the source blocks that are stored and not holes.
    pub(crate) stored: u64,
}

impl Share {
    /// Returns the part of it that begins `skip` blocks later.
    pub(crate) fn behind(&self, skip: u64) -> Share {
        let mut rest = self.clone();
        rest.seen.block += skip;
        rest.merged.1 += skip;
        rest
    }
}

/// Ranges by their first block, apart from one another.
#[derive(Default, Debug)]
pub(crate) struct Shares(BTreeMap<u64, Share>);

impl Shares {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an upper bound of the stored blocks in all ranges.
    pub(crate) fn stored(&self) -> u64 {
        let of = |(first, share): (u64, &Share)| share.stored.min(share.end - first);
        self.iter().map(of).sum()
    }

    /// Returns the ranges in order, with their first blocks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Share)> {
        self.0.iter().map(|(first, share)| (*first, share))
    }

    /// Returns the ranges with blocks in `range`, in order; the first and the last may reach beyond
    /// it.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Share)> {
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|(_, share)| share.end > range.start);
        let some = !range.is_empty();
        let inside = some.then(|| self.0.range(range));
        let all = before.into_iter().filter(move |_| some);
        let all = all.chain(inside.into_iter().flatten());
        all.map(|(first, share)| (*first, share))
    }

    /// Returns true if this block is in a range.
    pub(crate) fn has_block(&self, block: u64) -> bool {
        let last = self.0.range(..=block).next_back();
        last.is_some_and(|(_, share)| block < share.end)
    }

    /// Returns the source of a block.
    pub(crate) fn get(&self, block: u64) -> Option<CommittedBlock> {
        let (first, share) = self.0.range(..=block).next_back()?;
        (block < share.end).then(|| share.behind(block - first).seen)
    }

    /// Removes these blocks.
    pub(crate) fn remove(&mut self, first: u64, end: u64) {
        let touched: Vec<u64> = self.within(first..end).map(|(at, _)| at).collect();
        for at in touched {
            let Some(share) = self.0.remove(&at) else {
                unreachable!("it was there");
            };
            if share.end > end {
                self.0.insert(end, share.behind(end - at));
            }
            if at < first {
                self.0.insert(
                    at,
                    Share {
                        end: first,
                        ..share
                    },
                );
            }
        }
    }

    /// Inserts a range, replacing what overlaps it.
    pub(crate) fn insert(&mut self, first: u64, share: Share) {
        invariant!(
            first < share.end,
            "no blocks from {first} on are shared: {share:?}"
        );
        self.remove(first, share.end);
        self.0.insert(first, share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};
    use weir_store::tree::TreeRoot;

    /// Compares with a list that holds each block separately.
    #[test]
    fn ranges_over_ranges() {
        const BLOCKS: u64 = 40;
        let root = RootState::new(TreeRoot::EMPTY);
        let rng = SeededRng::new(2);
        for _ in 0..2000 {
            let mut shares = Shares::default();
            let mut plain = [None; BLOCKS as usize];
            for _ in 0..rng.below(10) {
                let (a, b) = (rng.below(BLOCKS), rng.below(BLOCKS));
                let (first, end) = (a.min(b), a.max(b) + 1);
                if rng.below(3) == 0 {
                    shares.remove(first, end);
                    plain[first as usize..end as usize].fill(None);
                    continue;
                }
                let (ino, block) = (Ino(20 + rng.below(5)), rng.below(1000));
                let seen = CommittedBlock {
                    root: Arc::clone(&root),
                    ino,
                    block,
                };
                let merged = (ino, block + 7);
                let stored = BLOCKS;
                shares.insert(
                    first,
                    Share {
                        end,
                        seen,
                        merged,
                        stored,
                    },
                );
                for at in first..end {
                    plain[at as usize] = Some((ino, block + at - first));
                }
            }
            for (at, want) in (0..).zip(plain) {
                let seen = shares.get(at).map(|seen| (seen.ino, seen.block));
                assert_eq!(seen, want, "block {at} of {shares:?}");
                assert_eq!(shares.has_block(at), want.is_some());
                let mut one = shares.within(at..at + 1);
                let merged = one.next().map(|(first, share)| share.behind(at - first));
                let merged = merged.map(|share| share.merged);
                assert_eq!(merged, want.map(|(ino, block)| (ino, block + 7)));
                assert!(one.next().is_none());
                assert!(shares.within(at..at).next().is_none(), "no blocks at all");
            }
            assert_eq!(shares.stored(), plain.iter().flatten().count() as u64);
        }
    }
}
