//! The locks, waiting requests and reservations of one file. All of it is reached under the lock of the file's shard.

use super::tree::{HolderId, Tree, step};
use super::{Lock, Owner, Range};
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Of one owner's locks so many are removed one by one; more of them in one pass over the file.
const ONE_BY_ONE: usize = 64;

/// An owner that has something in the file. Shared by the indexes of the file; the counts change under the shard's
/// lock only.
pub(super) struct Holder {
    pub(super) owner: Owner,
    pub(super) id: HolderId,
    /// Locks, waiting requests and reservations.
    uses: AtomicU32,
    /// Waiting requests among them.
    waits: AtomicU32,
}

impl Holder {
    fn count(&self, waits: bool, by: i64) {
        let add = |n: &AtomicU32| {
            let new = i64::from(n.load(Ordering::Relaxed)) + by;
            debug_assert!(new >= 0, "an owner's count below zero");
            n.store(u32::try_from(new).unwrap_or(0), Ordering::Relaxed);
        };
        add(&self.uses);
        if waits {
            add(&self.waits);
        }
    }

    pub(super) fn idle(&self) -> bool {
        self.uses.load(Ordering::Relaxed) == 0
    }

    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed) > 0
    }
}

/// A holder, found by its owner.
struct ByOwner(Arc<Holder>);

impl Borrow<Owner> for ByOwner {
    fn borrow(&self) -> &Owner {
        &self.0.owner
    }
}

impl Hash for ByOwner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.owner.hash(state);
    }
}

impl PartialEq for ByOwner {
    fn eq(&self, other: &ByOwner) -> bool {
        self.0.owner == other.0.owner
    }
}

impl Eq for ByOwner {}

/// A lock as the index by owner stores it.
struct Piece {
    last: u64,
    exclusive: bool,
    holder: Arc<Holder>,
}

/// A queued request.
pub(super) struct Waiter {
    pub(super) holder: Arc<Holder>,
    pub(super) range: Range,
    pub(super) exclusive: bool,
    /// What the client wants shown of the owner in the grant of this request.
    pub(super) shown: Arc<[u8]>,
}

impl Waiter {
    pub(super) fn is(&self, want: &Lock) -> bool {
        self.range == want.range
            && self.exclusive == want.exclusive
            && self.holder.owner == want.owner
    }

    pub(super) fn lock(&self) -> Lock {
        Lock {
            owner: Owner {
                shown: Arc::clone(&self.shown),
                ..self.holder.owner.clone()
            },
            range: self.range,
            exclusive: self.exclusive,
        }
    }
}

struct Share {
    holder: Arc<Holder>,
    access: u32,
    deny: u32,
}

/// Share reservations, with the number of those that use or deny reading (bit 0) and writing (bit 1).
#[derive(Default)]
struct Shares {
    by_holder: BTreeMap<HolderId, Share>,
    access: [usize; 2],
    deny: [usize; 2],
}

fn bits(mode: u32) -> [usize; 2] {
    [usize::from(mode & 1 != 0), usize::from(mode & 2 != 0)]
}

impl Shares {
    fn count(&mut self, access: u32, deny: u32, add: bool) {
        let modes = [
            (&mut self.access, bits(access)),
            (&mut self.deny, bits(deny)),
        ];
        for (counts, by) in modes {
            for (count, by) in counts.iter_mut().zip(by) {
                *count = if add { *count + by } else { *count - by };
            }
        }
    }
}

/// What [`File::install`] did.
pub(super) struct Installed {
    /// Locks of the file more than before (or fewer).
    pub(super) added: i64,
    /// An exclusive lock of the owner became shared: who waits may go on.
    pub(super) weaker: bool,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct File {
    holders: HashSet<ByOwner>,
    next_holder: HolderId,
    /// The same locks as in `tree`, by owner and first byte.
    own: BTreeMap<(HolderId, u64), Piece>,
    tree: Tree,
    /// By number: in the order of arrival.
    pub(super) waiting: BTreeMap<u64, Waiter>,
    shares: Option<Box<Shares>>,
}

impl File {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub(super) fn holder(&self, owner: &Owner) -> Option<&Arc<Holder>> {
        self.holders.get(owner).map(|h| &h.0)
    }

    /// Enters an owner that is not there yet.
    pub(super) fn enter(&mut self, owner: Owner) -> Arc<Holder> {
        let holder = Arc::new(Holder {
            owner,
            id: self.next_holder,
            uses: AtomicU32::new(0),
            waits: AtomicU32::new(0),
        });
        self.next_holder += 1;
        let new = self.holders.insert(ByOwner(Arc::clone(&holder)));
        debug_assert!(new, "an owner twice in a file");
        holder
    }

    /// Removes an owner that has nothing in the file any more.
    pub(super) fn leave(&mut self, holder: &Holder) {
        debug_assert!(holder.idle());
        self.holders.remove(&holder.owner);
        if self.holders.capacity() > 64 && self.holders.len() < self.holders.capacity() / 4 {
            self.holders.shrink_to(self.holders.len() * 2);
        }
    }

    /// The owners that `select` chooses.
    pub(super) fn holders_of(&self, select: impl Fn(&Owner) -> bool) -> Vec<Arc<Holder>> {
        let chosen = self.holders.iter().filter(|h| select(&h.0.owner));
        chosen.map(|h| Arc::clone(&h.0)).collect()
    }

    fn lock_of(&self, id: HolderId, start: u64) -> Option<Lock> {
        let piece = self.own.get(&(id, start));
        debug_assert!(piece.is_some(), "a lock is in one index only");
        piece.map(|p| Lock {
            owner: p.holder.owner.clone(),
            range: Range {
                start,
                last: p.last,
            },
            exclusive: p.exclusive,
        })
    }

    /// The first lock in the way of `want`.
    pub(super) fn conflict(&self, want: &Lock) -> Option<Lock> {
        let me = self.holder(&want.owner).map(|h| h.id);
        let node = self.tree.conflict(me, &want.range, want.exclusive)?;
        self.lock_of(node.owner, node.start)
    }

    /// Whether anything is in the way of a request of `holder`.
    fn blocked(&self, holder: &Holder, range: &Range, exclusive: bool) -> bool {
        self.tree
            .conflict(Some(holder.id), range, exclusive)
            .is_some()
    }

    /// Up to `most` different owners of locks in the way of `want`.
    pub(super) fn blockers(&self, want: &Lock, most: usize) -> Vec<Owner> {
        let me = self.holder(&want.owner).map(|h| h.id);
        let mut seen = HashSet::new();
        let mut out = Vec::new();
        // One owner may be in the way with any number of locks.
        let mut left = most * 4;
        self.tree
            .conflicts(me, &want.range, want.exclusive, &mut |node| {
                left -= 1;
                if seen.insert(node.owner) {
                    out.extend(self.lock_of(node.owner, node.start).map(|l| l.owner));
                }
                left > 0 && out.len() < most
            });
        out
    }

    /// Whether a lock of `owner` is in the way of `want`.
    pub(super) fn blocks(&self, owner: &Owner, want: &Lock) -> bool {
        step();
        let Some(holder) = self.holder(owner).filter(|_| *owner != want.owner) else {
            return false;
        };
        let conflicts = |p: &Piece| p.exclusive || want.exclusive;
        let Range { start, last } = want.range;
        let before = self
            .own
            .range((holder.id, 0)..(holder.id, start))
            .next_back();
        if before.is_some_and(|(_, p)| p.last >= start && conflicts(p)) {
            return true;
        }
        let mut within = self.own.range((holder.id, start)..=(holder.id, last));
        // Pieces of either mode alternate at worst; the search for deadlocks is content with the first few.
        within.by_ref().take(16).any(|(_, p)| conflicts(p))
    }

    /// Whether `owner` holds all of `range` in at least this mode.
    pub(super) fn holds(&self, lock: &Lock) -> bool {
        let Some(holder) = self.holder(&lock.owner) else {
            return false;
        };
        let Range { start, last } = lock.range;
        let piece = self
            .own
            .range((holder.id, 0)..=(holder.id, start))
            .next_back();
        piece.is_some_and(|(_, p)| p.last >= last && p.exclusive >= lock.exclusive)
    }

    /// First bytes of the owner's locks that overlap `range`, or touch it if `touching`.
    fn own_in(&self, id: HolderId, range: Range, touching: bool) -> Vec<u64> {
        let by = u64::from(touching);
        let (from, to) = (
            range.start.saturating_sub(by),
            range.last.saturating_add(by),
        );
        let before = self.own.range((id, 0)..(id, from)).next_back();
        let before = before
            .filter(|(_, p)| p.last >= from)
            .map(|((_, start), _)| *start);
        let within = self
            .own
            .range((id, from)..=(id, to))
            .map(|((_, start), _)| *start);
        before.into_iter().chain(within).collect()
    }

    fn put(&mut self, holder: &Arc<Holder>, range: Range, exclusive: bool) {
        self.tree.insert(holder.id, range, exclusive);
        let piece = Piece {
            last: range.last,
            exclusive,
            holder: Arc::clone(holder),
        };
        let old = self.own.insert((holder.id, range.start), piece);
        debug_assert!(old.is_none(), "one owner's locks are disjoint");
        holder.count(false, 1);
    }

    /// Removes the owner's locks that begin at `starts` (ascending) and returns them.
    fn take(&mut self, holder: &Holder, starts: &[u64]) -> Vec<(Range, bool)> {
        let bulk = starts.len() > ONE_BY_ONE && starts.len() > self.own.len() / 16;
        if let (true, Some(&first), Some(&last)) = (bulk, starts.first(), starts.last()) {
            // What is between the first and the last of them is among them, but for locks of another mode that touch.
            self.tree.retain(|n| {
                n.owner != holder.id
                    || !(first..=last).contains(&n.start)
                    || starts.binary_search(&n.start).is_err()
            });
        }
        let mut out = Vec::with_capacity(starts.len());
        for &start in starts {
            if !bulk {
                self.tree.remove(holder.id, start);
            }
            let piece = self.own.remove(&(holder.id, start));
            debug_assert!(piece.is_some());
            out.extend(piece.map(|p| {
                (
                    Range {
                        start,
                        last: p.last,
                    },
                    p.exclusive,
                )
            }));
        }
        holder.count(false, -(out.len() as i64));
        out
    }

    /// Whether removing `range` makes two locks of one.
    pub(super) fn splits(&self, holder: &Holder, range: Range) -> bool {
        let before = self
            .own
            .range((holder.id, 0)..(holder.id, range.start))
            .next_back();
        before.is_some_and(|(_, p)| p.last > range.last)
    }

    /// Removes `range` from the owner's locks, splitting what reaches beyond. Returns by how many locks the file has more
    /// than before (or fewer), and whether anything was removed.
    pub(super) fn cut(&mut self, holder: &Arc<Holder>, range: Range) -> (i64, bool) {
        let starts = self.own_in(holder.id, range, false);
        let gone = self.take(holder, &starts);
        let mut added = -(gone.len() as i64);
        let any = !gone.is_empty();
        for (whole, exclusive) in gone {
            for rest in whole.without(&range) {
                self.put(holder, rest, exclusive);
                added += 1;
            }
        }
        (added, any)
    }

    /// Gives the owner a lock that does not conflict, in place of what it had in the range, joined with its neighbours.
    pub(super) fn install(
        &mut self,
        holder: &Arc<Holder>,
        range: Range,
        exclusive: bool,
    ) -> Installed {
        let near = self.own_in(holder.id, range, true);
        // What touches the range in another mode stays.
        let gone: Vec<u64> = near
            .into_iter()
            .filter(|start| {
                let piece = self.own.get(&(holder.id, *start));
                piece.is_some_and(|p| {
                    p.exclusive == exclusive
                        || (Range {
                            start: *start,
                            last: p.last,
                        })
                        .overlaps(&range)
                })
            })
            .collect();
        let gone = self.take(holder, &gone);
        let mut added = 1 - gone.len() as i64;
        let (mut joined, mut weaker) = (range, false);
        for (old, was_exclusive) in gone {
            if was_exclusive == exclusive {
                joined.start = joined.start.min(old.start);
                joined.last = joined.last.max(old.last);
                continue;
            }
            weaker |= was_exclusive;
            for rest in old.without(&range) {
                self.put(holder, rest, was_exclusive);
                added += 1;
            }
        }
        self.put(holder, joined, exclusive);
        Installed { added, weaker }
    }

    /// Queues a request under `number`.
    pub(super) fn queue(&mut self, number: u64, waiter: Waiter) {
        waiter.holder.count(true, 1);
        self.waiting.insert(number, waiter);
    }

    /// Takes a queued request out.
    pub(super) fn unqueue(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.waiting.remove(&number)?;
        waiter.holder.count(true, -1);
        Some(waiter)
    }

    /// The numbers of the owner's queued requests that `select` chooses.
    pub(super) fn queued_by(&self, holder: &Holder, select: impl Fn(&Waiter) -> bool) -> Vec<u64> {
        if !holder.waits() {
            return Vec::new();
        }
        let of = |w: &Waiter| {
            step();
            w.holder.id == holder.id && select(w)
        };
        self.waiting
            .iter()
            .filter(|(_, w)| of(w))
            .map(|(n, _)| *n)
            .collect()
    }

    /// Takes out, in the order of arrival, the queued requests that may go on now that `freed` was unlocked, and locks for
    /// them. Each is passed to `granted` with its number and by how many locks the file has more than before.
    ///
    /// A request that does not overlap `freed` cannot have become free. As soon as a grant covers all of it, only requests
    /// that are compatible with that grant are tried: a thousand requests for one byte cost one grant and a pass.
    pub(super) fn wake(&mut self, mut freed: Range, granted: &mut dyn FnMut(u64, &Waiter, i64)) {
        let mut cover: Option<(HolderId, bool)> = None;
        let mut from = 0;
        while let Some((&number, w)) = self.waiting.range(from..).find(|(_, w)| {
            step();
            let covered = cover.is_some_and(|(owner, exclusive)| {
                owner != w.holder.id && (exclusive || w.exclusive)
            });
            w.range.overlaps(&freed) && !covered && !self.blocked(&w.holder, &w.range, w.exclusive)
        }) {
            from = number + 1;
            if w.range.start <= freed.start
                && w.range.last >= freed.last
                && cover.is_none_or(|(_, exclusive)| !exclusive)
            {
                cover = Some((w.holder.id, w.exclusive));
            }
            let Some(w) = self.unqueue(number) else {
                continue;
            };
            let installed = self.install(&w.holder, w.range, w.exclusive);
            granted(number, &w, installed.added);
            if installed.weaker {
                // An owner that waited twice took the weaker lock second.
                (cover, from) = (None, 0);
                freed = freed.hull(&w.range);
            }
        }
    }

    /// Whether a reservation of another owner excludes these modes.
    pub(super) fn reserved(&self, owner: &Owner, access: u32, deny: u32) -> bool {
        let Some(shares) = &self.shares else {
            return false;
        };
        let own = self.holder(owner).and_then(|h| shares.by_holder.get(&h.id));
        let (own_access, own_deny) =
            own.map_or(([0; 2], [0; 2]), |s| (bits(s.access), bits(s.deny)));
        let clash = |mode: u32, counts: [usize; 2], own: [usize; 2]| {
            let others = counts.iter().zip(own).map(|(all, own)| all - own);
            bits(mode)
                .iter()
                .zip(others)
                .any(|(bit, others)| *bit != 0 && others != 0)
        };
        clash(deny, shares.access, own_access) || clash(access, shares.deny, own_deny)
    }

    /// Enters a reservation in place of the owner's previous one; true if there was none.
    pub(super) fn reserve(&mut self, holder: &Arc<Holder>, access: u32, deny: u32) -> bool {
        let shares = self.shares.get_or_insert_default();
        let share = Share {
            holder: Arc::clone(holder),
            access,
            deny,
        };
        shares.count(access, deny, true);
        match shares.by_holder.insert(holder.id, share) {
            Some(old) => {
                shares.count(old.access, old.deny, false);
                false
            }
            None => {
                holder.count(false, 1);
                true
            }
        }
    }

    /// Ends the owner's reservation; false if there is none.
    pub(super) fn unreserve(&mut self, holder: &Holder) -> bool {
        let Some(shares) = &mut self.shares else {
            return false;
        };
        let Some(old) = shares.by_holder.remove(&holder.id) else {
            return false;
        };
        shares.count(old.access, old.deny, false);
        old.holder.count(false, -1);
        if shares.by_holder.is_empty() {
            self.shares = None;
        }
        true
    }

    /// All locks, and a check that both indexes hold the same.
    #[cfg(test)]
    pub(super) fn held(&self) -> Vec<Lock> {
        assert_eq!(self.tree.check(), self.own.len());
        let keys = self.own.keys();
        keys.filter_map(|(id, start)| self.lock_of(*id, *start))
            .collect()
    }
}
