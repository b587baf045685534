//! The claims of one file: advisory locks and waiting requests here, what files seldom have in
//! [`More`]. All of it is reached under the lock of the file's shard.

pub(super) mod grants;
pub(super) mod holder;
pub(super) mod mandatory_ranges;
pub(super) mod opens;
pub(super) mod tree;

use super::map::HashSet;
use super::types::{Lock, Modes, Owner, Range, Removal, Ticket};
use grants::Grants;
use holder::{ByOwner, Holder};
use mandatory_ranges::Stacked;
use opens::Opens;
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::{HolderId, Tree, step};
use weir_base::invariant;

/// Maximum number of one owner's locks that are removed one by one; more are removed in one pass
/// over the file.
const ONE_BY_ONE: usize = 64;
/// Ranges of a parked holder that are compared with a request; with more it counts as in the way.
const MANY: usize = 1024;

/// A lock as the index by owner stores it.
struct Piece {
    last: u64,
    exclusive: bool,
    holder: Arc<Holder>,
}

/// A queued request for a byte range, as its client made it.
pub(super) struct Waiter {
    pub(super) holder: Arc<Holder>,
    pub(super) range: Range,
    pub(super) exclusive: bool,
    pub(super) mandatory: bool,
    /// Bytes by which the client wants the owner shown in the grant of this request.
    pub(super) shown: Arc<[u8]>,
}

impl Waiter {
    pub(super) fn is(&self, want: &Lock) -> bool {
        self.range == want.range
            && self.exclusive == want.exclusive
            && self.mandatory == want.mandatory
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
            mandatory: self.mandatory,
        }
    }
}

/// Claims that few files have: they take memory only there.
#[derive(Default)]
pub(super) struct More {
    pub(super) opens: Opens,
    pub(super) stacked: Stacked,
    pub(super) grants: Grants,
    /// Holders that lose what they have here as soon as it conflicts with a request.
    pub(super) parked: BTreeMap<HolderId, Arc<Holder>>,
    /// Mark for deletion: the file goes with its last open.
    pub(super) doomed: Option<Box<DeleteMark>>,
}

/// A mark for deletion on close (see `deleting`).
pub(super) struct DeleteMark {
    /// The owner whose open marked the file.
    pub(super) by: Owner,
    pub(super) removal: Removal,
    /// True if it is opened no more; if false, it is marked when that open is closed.
    pub(super) pending: bool,
    /// The removal, once the service was notified: over when it is done or cannot be.
    pub(super) removing: Option<Ticket>,
}

/// Returns the bytes at which a request `wanted` may be granted when `freed` is free. An empty
/// range stands between two bytes, and was kept out by a lock that covered both.
fn touched(freed: Range, wanted: Range) -> Range {
    match wanted.is_empty() {
        true => Range {
            // Saturates: nothing touches it before the first byte or behind the last.
            start: freed.start.saturating_sub(1),
            last: freed.last.saturating_add(1),
        },
        false => freed,
    }
}

/// Change that [`File::install`] made in the file.
pub(super) struct LockChange {
    /// Locks of the file more than before (or fewer).
    pub(super) added: i64,
    /// An exclusive lock of the owner became shared: waiting requests may be granted.
    pub(super) weaker: bool,
}

/// Claims in a file (see the module's head).
#[derive(Default)]
pub(super) struct File {
    holders: HashSet<ByOwner>,
    next_holder: HolderId,
    /// Locks of `tree`, by owner and first byte.
    own: BTreeMap<(HolderId, u64), Piece>,
    tree: Tree,
    /// Queued requests by number: in the order of arrival.
    pub(super) waiting: BTreeMap<u64, Waiter>,
    more: Option<Box<More>>,
    /// True if the hints count it.
    pub(super) hinted: bool,
}

impl File {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.more().is_none_or(|m| m.doomed.is_none())
    }

    pub(super) fn holder(&self, owner: &Owner) -> Option<&Arc<Holder>> {
        self.holders.get(owner).map(|h| &h.0)
    }

    /// Enters an owner that is not there yet.
    pub(super) fn enter(&mut self, owner: Owner) -> Arc<Holder> {
        let holder = Arc::new(Holder::new(owner, self.next_holder));
        self.next_holder += 1;
        let new = self.holders.insert(ByOwner(Arc::clone(&holder)));
        invariant!(new, "an owner twice in a file");
        holder
    }

    /// Removes an owner that has nothing in the file any more.
    pub(super) fn leave(&mut self, holder: &Holder) {
        invariant!(holder.idle(), "an owner leaves and has something");
        self.holders.remove(&holder.owner);
        if let Some(more) = &mut self.more {
            more.parked.remove(&holder.id);
        }
        if self.holders.capacity() > 64 && self.holders.len() < self.holders.capacity() / 4 {
            self.holders.shrink_to(self.holders.len() * 2);
        }
    }

    /// Returns the owners that `select` chooses.
    pub(super) fn holders_of(&self, select: impl Fn(&Owner) -> bool) -> Vec<Arc<Holder>> {
        let chosen = self.holders.iter().filter(|h| select(&h.0.owner));
        chosen.map(|h| Arc::clone(&h.0)).collect()
    }

    pub(super) fn more(&self) -> Option<&More> {
        self.more.as_deref()
    }

    pub(super) fn more_mut(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Returns true if reads, writes or changes of names may be stopped here, or have to break
    /// caches.
    pub(super) fn binds_others(&self) -> bool {
        self.more()
            .is_some_and(|m| m.opens.enforced() || !m.stacked.is_empty() || !m.grants.is_empty())
    }

    /// Returns the owners, in no order.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Arc<Holder>> {
        self.holders.iter().map(|h| &h.0)
    }

    pub(super) fn parked(&self, id: HolderId) -> bool {
        self.more().is_some_and(|m| m.parked.contains_key(&id))
    }

    /// Returns true if it has byte ranges of any kind.
    pub(super) fn has_ranges(&self) -> bool {
        !self.own.is_empty() || self.more().is_some_and(|m| !m.stacked.is_empty())
    }

    fn piece(&self, id: HolderId, start: u64) -> Option<(Arc<Holder>, Lock)> {
        let piece = self.own.get(&(id, start));
        invariant!(piece.is_some(), "a lock is in one index only");
        piece.map(|p| {
            let lock = Lock {
                owner: p.holder.owner.clone(),
                range: Range {
                    start,
                    last: p.last,
                },
                exclusive: p.exclusive,
                mandatory: false,
            };
            (Arc::clone(&p.holder), lock)
        })
    }

    fn id_of(&self, owner: &Owner) -> Option<HolderId> {
        self.holder(owner).map(|h| h.id)
    }

    /// Returns an advisory lock of another owner in the way.
    fn advisory(
        &self,
        me: Option<HolderId>,
        range: &Range,
        exclusive: bool,
    ) -> Option<(Arc<Holder>, Lock)> {
        if *range == Range::NOWHERE {
            return None;
        }
        let node = self.tree.conflict(me, range, exclusive)?;
        self.piece(node.owner, node.start)
    }

    /// Returns the first range in the way of `want`, and its holder.
    pub(super) fn conflict(&self, want: &Lock) -> Option<(Arc<Holder>, Lock)> {
        self.in_the_way(
            self.id_of(&want.owner),
            &want.range,
            want.exclusive,
            want.mandatory,
        )
    }

    fn in_the_way(
        &self,
        me: Option<HolderId>,
        range: &Range,
        exclusive: bool,
        mandatory: bool,
    ) -> Option<(Arc<Holder>, Lock)> {
        let stacked = || {
            let stacked = &self.more()?.stacked;
            match mandatory {
                true => stacked.against_mandatory(me, range, exclusive),
                false => stacked.against_advisory(me, range, exclusive),
            }
        };
        self.advisory(me, range, exclusive).or_else(stacked)
    }

    /// Returns the holder that stops a write of NFS: one of an exclusive mandatory range.
    pub(super) fn against_nfs_write(
        &self,
        me: Option<HolderId>,
        range: &Range,
    ) -> Option<Arc<Holder>> {
        let found = self.more()?.stacked.against_use(me, range, false);
        found.map(|(holder, _)| holder)
    }

    /// Returns the holder that stops a read or write of SMB: one of any range.
    pub(super) fn against_smb_use(
        &self,
        me: Option<HolderId>,
        range: &Range,
        write: bool,
    ) -> Option<Arc<Holder>> {
        let stacked = || self.more()?.stacked.against_use(me, range, write);
        let found = self.advisory(me, range, write).or_else(stacked);
        found.map(|(holder, _)| holder)
    }

    /// Returns true if anything is in the way of the queued request.
    fn blocked(&self, w: &Waiter) -> bool {
        self.in_the_way(Some(w.holder.id), &w.range, w.exclusive, w.mandatory)
            .is_some()
    }

    /// Returns up to `most` different owners of locks in the way of `want`.
    pub(super) fn blockers(&self, want: &Lock, most: usize) -> Vec<Owner> {
        let me = self.id_of(&want.owner);
        let mut seen = HashSet::default();
        let mut out = Vec::new();
        // One owner may be in the way with any number of locks.
        let mut left = most * 4;
        self.tree
            .conflicts(me, &want.range, want.exclusive, &mut |node| {
                left -= 1;
                if seen.insert(node.owner) {
                    out.extend(self.piece(node.owner, node.start).map(|(_, l)| l.owner));
                }
                left > 0 && out.len() < most
            });
        out
    }

    /// Returns true if a lock of `owner` is in the way of `want`, as far as a few comparisons show.
    pub(super) fn blocks(&self, owner: &Owner, want: &Lock) -> bool {
        step();
        let holder = self.holder(owner).filter(|_| *owner != want.owner);
        // Pieces of either mode alternate at worst; the search for deadlocks is content with the
        // first few.
        holder.is_some_and(|h| self.holds_up(h.id, want, 16) == Some(true))
    }

    /// Returns true if a range of the holder `id` is in the way of `want`; `None` if `most`
    /// comparisons do not show it.
    fn holds_up(&self, id: HolderId, want: &Lock, most: usize) -> Option<bool> {
        let Range { start, last } = want.range;
        if want.range == Range::NOWHERE {
            return Some(false);
        }
        let conflicts = |exclusive| exclusive || want.exclusive;
        let before = self.own.range((id, 0)..(id, start)).next_back();
        if before.is_some_and(|(_, p)| p.last >= start && conflicts(p.exclusive)) {
            return Some(true);
        }
        let within = match start <= last {
            true => Some(self.own.range((id, start)..=(id, last))),
            false => None,
        };
        for (n, (_, piece)) in within.into_iter().flatten().enumerate() {
            if conflicts(piece.exclusive) {
                return Some(true);
            }
            if n == most {
                return None;
            }
        }
        self.more()
            .map_or(Some(false), |m| m.stacked.holds_up(id, want, most))
    }

    /// Returns the parked holders whose ranges may be in the way of `want`.
    pub(super) fn parked_ranges(&self, want: &Lock) -> Vec<Arc<Holder>> {
        let Some(more) = self.more() else {
            return Vec::new();
        };
        let mut all: Vec<_> = more.parked.values().map(Arc::clone).collect();
        all.retain(|h| h.owner != want.owner && self.holds_up(h.id, want, MANY) != Some(false));
        all
    }

    /// Returns true if a range of this holder may be in the way of a request that waits.
    pub(super) fn keeps_waiting(&self, holder: &Holder) -> bool {
        self.waiting.values().any(|w| {
            w.holder.id != holder.id && self.holds_up(holder.id, &w.lock(), MANY) != Some(false)
        })
    }

    /// Returns true if the lock's owner holds all of its range in at least its mode.
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

    /// Returns the first bytes of the owner's locks that overlap `range`, or touch it if
    /// `touching`.
    fn own_in(&self, id: HolderId, range: Range, touching: bool) -> Vec<u64> {
        let by = u64::from(touching);
        let (from, to) = (
            // Saturates: as in `touched`.
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
        self.tree.insert(holder.id, 0, range, exclusive);
        let piece = Piece {
            last: range.last,
            exclusive,
            holder: Arc::clone(holder),
        };
        let old = self.own.insert((holder.id, range.start), piece);
        invariant!(old.is_none(), "one owner's locks are disjoint");
        holder.count(false, 1);
    }

    /// Removes the owner's locks that begin at `starts` (ascending) and returns them.
    fn take(&mut self, holder: &Holder, starts: &[u64]) -> Vec<(Range, bool)> {
        let bulk = starts.len() > ONE_BY_ONE && starts.len() > self.own.len() / 16;
        if let (true, Some(&first), Some(&last)) = (bulk, starts.first(), starts.last()) {
            // All locks between the first and the last of them are among them, but for locks of
            // another mode that touch.
            self.tree.retain(|n| {
                n.owner != holder.id
                    || !(first..=last).contains(&n.start)
                    || starts.binary_search(&n.start).is_err()
            });
        }
        let mut out = Vec::with_capacity(starts.len());
        for &start in starts {
            if !bulk {
                self.tree.remove(holder.id, start, 0);
            }
            let piece = self.own.remove(&(holder.id, start));
            invariant!(piece.is_some(), "a lock is in one index only");
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

    /// Returns true if removing `range` makes two locks of one.
    pub(super) fn splits(&self, holder: &Holder, range: Range) -> bool {
        let before = self
            .own
            .range((holder.id, 0)..(holder.id, range.start))
            .next_back();
        before.is_some_and(|(_, p)| p.last > range.last)
    }

    /// Removes `range` from the owner's locks, splitting what reaches beyond. Returns by how many
    /// locks the file has more than before (or fewer), and whether anything was removed.
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

    /// Gives the owner a lock that does not conflict, in place of what it had in the range, joined
    /// with its neighbours.
    pub(super) fn install(
        &mut self,
        holder: &Arc<Holder>,
        range: Range,
        exclusive: bool,
    ) -> LockChange {
        let near = self.own_in(holder.id, range, true);
        // Locks that touch the range in another mode stay.
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
        LockChange { added, weaker }
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

    /// Returns the numbers of the owner's queued requests that `select` chooses.
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

    /// Takes out, in the order of arrival, the queued requests that may go on now that `freed` was
    /// unlocked, and locks for them. Each is passed to `granted` with its number and by how many
    /// locks the file has more than before.
    ///
    /// A request that does not overlap `freed` cannot have become free. As soon as a grant covers
    /// all of it, only requests that are compatible with that grant are tried. So a thousand
    /// requests for one byte cost one grant and a pass.
    pub(super) fn wake(&mut self, mut freed: Range, granted: &mut dyn FnMut(u64, &Waiter, i64)) {
        let mut cover: Option<(HolderId, bool)> = None;
        let mut from = 0;
        while let Some((&number, w)) = self.waiting.range(from..).find(|(_, w)| {
            step();
            let covered = cover.is_some_and(|(owner, exclusive)| {
                !w.range.is_empty() && owner != w.holder.id && (exclusive || w.exclusive)
            });
            w.range.overlaps(&touched(freed, w.range)) && !covered && !self.blocked(w)
        }) {
            from = number + 1;
            if w.range.start <= freed.start
                && w.range.last >= freed.last
                && cover.is_none_or(|(_, exclusive)| !exclusive)
            {
                cover = Some((w.holder.id, w.exclusive));
            }
            let Some(w) = self.unqueue(number) else {
                // Granted or given up meanwhile.
                continue;
            };
            let installed = match w.mandatory {
                true => {
                    let stacked = &mut self.more_mut().stacked;
                    stacked.put(&w.holder, w.range, w.exclusive);
                    LockChange {
                        added: 1,
                        weaker: false,
                    }
                }
                false => self.install(&w.holder, w.range, w.exclusive),
            };
            granted(number, &w, installed.added);
            if installed.weaker {
                // An owner that waited twice took the weaker lock second.
                (cover, from) = (None, 0);
                freed = freed.hull(&w.range);
            }
        }
    }

    /// Returns the parked holders whose open excludes these modes; with `deny` `None`, those whose
    /// open stops such a use.
    pub(super) fn parked_opens(&self, access: Modes, deny: Option<Modes>) -> Vec<Arc<Holder>> {
        self.more().map_or_else(Vec::new, |m| {
            let ids = m.parked.keys().copied();
            m.opens
                .in_the_way(ids, access, deny)
                .map(Arc::clone)
                .collect()
        })
    }

    /// Releases what is kept for claims that few files have, if there are none.
    pub(super) fn tidy(&mut self) {
        if self.more().is_some_and(|m| {
            let held = !m.opens.is_empty() || !m.stacked.is_empty() || !m.grants.is_empty();
            !held && m.parked.is_empty() && m.doomed.is_none()
        }) {
            self.more = None;
        }
    }

    /// Returns all locks, and checks that both indexes hold the same.
    #[cfg(test)]
    pub(super) fn held(&self) -> Vec<Lock> {
        assert_eq!(self.tree.check(), self.own.len());
        let keys = self.own.keys();
        let advisory = keys.filter_map(|(id, start)| self.piece(*id, *start));
        let mut all: Vec<Lock> = advisory.map(|(_, lock)| lock).collect();
        all.extend(self.more().map_or_else(Vec::new, |m| m.stacked.held()));
        all
    }
}
