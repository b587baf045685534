//! Mandatory byte ranges of a file (SMB). Each stays as it was asked for, and any number of one
//! open's may lie upon each other. A range is removed only by naming it exactly (MS-FSA §2.1.5.8,
//! §2.1.5.9).
//!
//! Shared and exclusive ones are in a tree each, since they are tested against different sets of
//! owners. A write is stopped by everybody's shared ranges, one's own included, but not by one's
//! own exclusive ones.

use super::holder::Holder;
use super::tree::{HolderId, Tree};
use crate::claims::types::{Lock, Range};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_base::invariant;

struct Piece {
    last: u64,
    exclusive: bool,
    holder: Arc<Holder>,
}

/// Mandatory ranges of a file (see the module's head).
#[derive(Default)]
pub(in crate::claims) struct Stacked {
    shared: Tree,
    exclusive: Tree,
    /// All of them, by holder, first byte and number.
    own: BTreeMap<(HolderId, u64, u64), Piece>,
    next: u64,
}

impl Stacked {
    pub(in crate::claims) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    fn found(&self, id: HolderId, start: u64, number: u64) -> Option<(Arc<Holder>, Lock)> {
        let piece = self.own.get(&(id, start, number));
        invariant!(piece.is_some(), "a mandatory range is in one index only");
        piece.map(|p| (Arc::clone(&p.holder), lock_of(start, p)))
    }

    fn search(
        &self,
        me: Option<HolderId>,
        range: &Range,
        exclusive: bool,
    ) -> Option<(Arc<Holder>, Lock)> {
        if *range == Range::NOWHERE {
            return None;
        }
        let tree = match exclusive {
            true => &self.exclusive,
            false => &self.shared,
        };
        let node = tree.conflict(me, range, true)?;
        self.found(node.owner, node.start, node.number)
    }

    /// Returns a range that keeps an advisory lock out: another's, if either is exclusive.
    pub(in crate::claims) fn against_advisory(
        &self,
        me: Option<HolderId>,
        range: &Range,
        exclusive: bool,
    ) -> Option<(Arc<Holder>, Lock)> {
        let found = self.search(me, range, true);
        match exclusive {
            true => found.or_else(|| self.search(me, range, false)),
            false => found,
        }
    }

    /// Returns a range that keeps a mandatory lock out: for an exclusive one any range, one's own
    /// too; for a shared one another's exclusive range.
    pub(in crate::claims) fn against_mandatory(
        &self,
        me: Option<HolderId>,
        range: &Range,
        exclusive: bool,
    ) -> Option<(Arc<Holder>, Lock)> {
        match exclusive {
            true => self
                .search(None, range, true)
                .or_else(|| self.search(None, range, false)),
            false => self.search(me, range, true),
        }
    }

    /// Returns a range that stops a read or write of SMB.
    pub(in crate::claims) fn against_use(
        &self,
        me: Option<HolderId>,
        range: &Range,
        write: bool,
    ) -> Option<(Arc<Holder>, Lock)> {
        let found = self.search(me, range, true);
        match write {
            true => found.or_else(|| self.search(None, range, false)),
            false => found,
        }
    }

    pub(in crate::claims) fn put(&mut self, holder: &Arc<Holder>, range: Range, exclusive: bool) {
        let (id, number) = (holder.id, self.next);
        self.next += 1;
        if range != Range::NOWHERE {
            let tree = match exclusive {
                true => &mut self.exclusive,
                false => &mut self.shared,
            };
            tree.insert(id, number, range, true);
        }
        let piece = Piece {
            last: range.last,
            exclusive,
            holder: Arc::clone(holder),
        };
        let old = self.own.insert((id, range.start, number), piece);
        invariant!(old.is_none(), "a number of a range twice");
        holder.count(false, 1);
    }

    fn remove(&mut self, key: (HolderId, u64, u64)) -> Option<Range> {
        let piece = self.own.remove(&key)?;
        let (id, start, number) = key;
        let last = piece.last;
        let range = Range { start, last };
        if range != Range::NOWHERE {
            match piece.exclusive {
                true => self.exclusive.remove(id, start, number),
                false => self.shared.remove(id, start, number),
            }
        }
        piece.holder.count(false, -1);
        Some(range)
    }

    /// Removes one range of the holder that is exactly `range`, an exclusive one first; whether
    /// there was one.
    pub(in crate::claims) fn unlock(&mut self, id: HolderId, range: Range) -> bool {
        let at = (id, range.start, 0)..=(id, range.start, u64::MAX);
        let same = || {
            let at = self.own.range(at.clone());
            at.filter(|(_, p)| p.last == range.last)
        };
        let key = same().find(|(_, p)| p.exclusive).or_else(|| same().next());
        let key = key.map(|(key, _)| *key);
        key.is_some_and(|key| self.remove(key).is_some())
    }

    /// Removes all ranges of the holder; how many there were.
    pub(in crate::claims) fn clear(&mut self, id: HolderId) -> usize {
        let keys = self.own.range((id, 0, 0)..=(id, u64::MAX, u64::MAX));
        let keys: Vec<_> = keys.map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| self.remove(*key)).count()
    }

    /// Returns true if a range of the holder `id` is in the way of `want`; `None` if `most`
    /// comparisons do not show it.
    pub(in crate::claims) fn holds_up(
        &self,
        id: HolderId,
        want: &Lock,
        most: usize,
    ) -> Option<bool> {
        let all = self.own.range((id, 0, 0)..=(id, u64::MAX, u64::MAX));
        for (n, ((_, start, _), piece)) in all.enumerate() {
            let held = lock_of(*start, piece);
            if (held.exclusive || want.exclusive) && held.range.overlaps(&want.range) {
                return Some(true);
            }
            if n == most {
                return None;
            }
        }
        Some(false)
    }

    /// Returns all locks that are held.
    #[cfg(test)]
    pub(in crate::claims) fn held(&self) -> Vec<Lock> {
        let in_trees = self.shared.check() + self.exclusive.check();
        let all = self.own.iter().map(|((_, start, _), p)| lock_of(*start, p));
        let all: Vec<Lock> = all.collect();
        let nowhere = all.iter().filter(|l| l.range == Range::NOWHERE).count();
        assert_eq!(in_trees + nowhere, all.len());
        all
    }
}

fn lock_of(start: u64, piece: &Piece) -> Lock {
    Lock {
        owner: piece.holder.owner.clone(),
        range: Range {
            start,
            last: piece.last,
        },
        exclusive: piece.exclusive,
        mandatory: true,
    }
}
