//! The slots of a session: each request is carried out once (RFC 8881 §2.10.6).
//!
//! A slot has at most one request under way. The sequence number distinguishes a new request (the
//! next number), a retransmission (the same number), and a client that has lost count (any other).
//! A retransmission gets the reply of the first execution, if the client had asked for it to be
//! kept, and waits for the same log record: a replay must not promise more than its original. A
//! checksum of the first bytes and of the length distinguishes a retransmission from another
//! request under the same number.
//!
//! **Dropped requests.** The connection of a suspended request may end. If the request has changed
//! nothing, the slot goes back to the number before, and a retransmission is a new request.
//! Otherwise its reply is kept: DELAY for the suspended operation, and the results of those before
//! it.
//!
//! **Memory.** The first slots are charged with the session, others in groups when they are first
//! used, kept replies when they are kept. A request in a slot without memory is answered DELAY. If
//! the budget has no room for a reply, the reply is not kept. The client notices this only if it
//! needs the reply (RETRY_UNCACHED_REP). When memory is short, clients are to use fewer slots: the
//! *target* is halved, and replies kept beyond it are dropped once the client has followed
//! (§2.10.6.1). The target rises again when memory has sufficed for a while. The server always
//! accepts the granted number of slots, so no slot's sequence number ever starts anew.

use super::status::Status;
use crate::rpc::failure::Cut;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use weir_base::{Budget, Lsn, Reservation};

/// Number of slots that are allocated and charged together.
const GROUP: usize = 16;
/// Minimum target of a client with more slots.
const LEAST_TARGET: u32 = 8;
/// Memory charged for a kept reply besides its bytes.
const KEPT_OVERHEAD: usize = 64;

/// The results of a COMPOUND, from its status on.
pub struct Results {
    /// The results, encoded as XDR.
    pub bytes: Box<[u8]>,
    /// The log record that they wait for.
    pub lsn: Option<Lsn>,
    /// Place to cut the results if that record is never written.
    pub cut: Option<Cut>,
}

/// A reply that is kept.
pub struct CachedReply {
    /// The results as they were sent.
    pub results: Results,
    _memory: Reservation,
}

#[derive(Default)]
struct State {
    /// Sequence number of the last request.
    sequence: u32,
    /// Checksum of the last request; `None` before the first one, and after one that was undone.
    checksum: Option<u32>,
    kept: Option<Arc<CachedReply>>,
}

/// A slot, in a cache line of its own: a client distributes its slots over connections, which
/// belong to different cores.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    state: Mutex<State>,
    /// True while a request is under way. It is set under the lock; a request whose reply is not
    /// kept clears it without.
    busy: AtomicBool,
}

impl Slot {
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}

/// Slots that are allocated together.
type Group = Box<[Slot]>;

/// Returns the size of `count` slots in bytes.
fn bytes_of(count: usize) -> usize {
    count * size_of::<Slot>()
}

/// See the module's head.
pub struct Slots {
    count: u32,
    groups: Box<[OnceLock<Group>]>,
    /// Memory of all allocated groups.
    memory: Mutex<Reservation>,
    /// Number of slots that the client should use.
    target: AtomicU32,
    /// Number of slots whose replies are kept: all until the client has followed a lower target.
    trimmed: AtomicU32,
    /// True if a reply was not kept, or a slot not allocated, for lack of memory.
    pressed: AtomicBool,
    budget: Arc<Budget>,
    /// Number of the highest slot ever used.
    highest: AtomicU32,
}

/// State of a request in its slot.
pub enum SlotOutcome {
    /// New; it is now under way.
    New,
    /// A retransmission, with its kept reply.
    Answered(Arc<CachedReply>),
    /// Refused: SEQUENCE fails with this status.
    Refused(Status),
}

impl Slots {
    /// Creates `count` slots; `None` if the budget has no room for the first group.
    pub fn new(count: u32, budget: &Arc<Budget>) -> Option<Slots> {
        let groups = (count as usize).div_ceil(GROUP);
        let memory = budget.try_reserve(groups * size_of::<OnceLock<Group>>())?;
        let slots = Slots {
            count,
            groups: (0..groups).map(|_| OnceLock::new()).collect(),
            memory: Mutex::new(memory),
            target: AtomicU32::new(count),
            trimmed: AtomicU32::new(count),
            pressed: AtomicBool::new(false),
            budget: Arc::clone(budget),
            highest: AtomicU32::new(0),
        };
        let has_first = slots.slot_or_new(0).is_some();
        has_first.then_some(slots)
    }

    /// Returns the number of slots.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns a slot if its group has been allocated.
    fn slot(&self, slot: u32) -> Option<&Slot> {
        let group = self.groups.get(slot as usize / GROUP)?.get()?;
        group.get(slot as usize % GROUP)
    }

    /// Returns a slot, after allocating its group if necessary; `None` if there is no memory.
    fn slot_or_new(&self, slot: u32) -> Option<&Slot> {
        if let Some(slot) = self.slot(slot) {
            return Some(slot);
        }
        let at = slot as usize / GROUP;
        let group = self.groups.get(at)?;
        let mut memory = self.memory.lock();
        if group.get().is_none() {
            let count = GROUP.min(self.count as usize - at * GROUP);
            if !memory.grow(bytes_of(count)) {
                self.pressed.store(true, Ordering::Relaxed);
                return None;
            }
            group.get_or_init(|| (0..count).map(|_| Slot::default()).collect());
        }
        drop(memory);
        self.slot(slot)
    }

    /// Returns the slots that are allocated, with their numbers.
    fn allocated(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let groups = (0..).step_by(GROUP).zip(&self.groups);
        groups.flat_map(|(first, group)| {
            let slots = group.get().into_iter().flatten();
            (first..).zip(slots)
        })
    }

    /// Returns the number of slots that the client should use.
    pub fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    /// Halves the target. Returns the new one, or `None` if it was at its minimum.
    pub fn lower(&self) -> Option<u32> {
        let lower = |target: u32| (target > LEAST_TARGET).then(|| (target / 2).max(LEAST_TARGET));
        let order = Ordering::Relaxed;
        self.target.fetch_update(order, order, lower).ok()?;
        Some(self.target())
    }

    /// Doubles the target; returns false if it already includes all slots.
    pub fn raise(&self) -> bool {
        let (all, order) = (self.count(), Ordering::Relaxed);
        let higher = |target: u32| (target < all).then(|| (target * 2).min(all));
        let raised = self.target.fetch_update(order, order, higher).is_ok();
        if raised {
            self.trimmed.store(all, order);
        }
        raised
    }

    /// Handles a request whose client uses no slot beyond `highest`: if that is below the target,
    /// drops the replies kept beyond the target.
    pub fn follows(&self, highest: u32) {
        let target = self.target();
        if target >= self.trimmed.load(Ordering::Relaxed) || highest >= target {
            return;
        }
        self.trimmed.store(target, Ordering::Relaxed);
        for (_, slot) in self.allocated().filter(|(at, _)| *at >= target) {
            slot.state.lock().kept = None;
        }
    }

    /// Returns true if memory was lacking since the last call.
    pub fn take_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed) && self.pressed.swap(false, Ordering::Relaxed)
    }

    /// Returns the number of the highest slot ever used.
    pub fn highest(&self) -> u32 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Begins a request with this sequence number in a slot; `None` if there is no memory for the
    /// slot.
    pub fn begin(&self, slot: u32, sequence: u32, checksum: u32) -> Option<SlotOutcome> {
        if slot >= self.count {
            return Some(SlotOutcome::Refused(Status::BadSlot));
        }
        let of = self.slot_or_new(slot)?;
        Some(self.begin_in(of, slot, sequence, checksum))
    }

    fn begin_in(&self, of: &Slot, slot: u32, sequence: u32, checksum: u32) -> SlotOutcome {
        let mut s = of.state.lock();
        if sequence == s.sequence.wrapping_add(1) {
            if of.is_busy() {
                return SlotOutcome::Refused(Status::SeqMisordered);
            }
            *s = State {
                sequence,
                checksum: Some(checksum),
                kept: None,
            };
            of.busy.store(true, Ordering::Relaxed);
            drop(s);
            if slot > self.highest() {
                self.highest.fetch_max(slot, Ordering::Relaxed);
            }
            return SlotOutcome::New;
        }
        let Some(known) = s.checksum.filter(|_| sequence == s.sequence) else {
            return SlotOutcome::Refused(Status::SeqMisordered);
        };
        match &s.kept {
            _ if of.is_busy() => SlotOutcome::Refused(Status::Delay),
            _ if known != checksum => SlotOutcome::Refused(Status::SeqFalseRetry),
            Some(kept) => SlotOutcome::Answered(Arc::clone(kept)),
            None => SlotOutcome::Refused(Status::RetryUncachedRep),
        }
    }

    /// Ends the request in the slot, and keeps `reply`, if any.
    pub fn end(&self, slot: u32, reply: Option<Results>) {
        let kept = reply.and_then(|results| {
            let bytes = results.bytes.len() + KEPT_OVERHEAD;
            let memory = self.budget.try_reserve(bytes);
            if memory.is_none() {
                self.pressed.store(true, Ordering::Relaxed);
            }
            Some(Arc::new(CachedReply {
                results,
                _memory: memory?,
            }))
        });
        self.release_slot(slot, |state| {
            kept.map(|kept| {
                let mut s = state.lock();
                s.kept = Some(kept);
                s
            })
        });
    }

    /// Undoes the request in the slot, which changed nothing.
    pub fn undo(&self, slot: u32) {
        self.release_slot(slot, |state| {
            let mut s = state.lock();
            let sequence = s.sequence.wrapping_sub(1);
            // The state of the request before is lost. Its client has the reply, so a
            // retransmission of it would be out of order.
            *s = State {
                sequence,
                ..State::default()
            };
            Some(s)
        });
    }

    /// Ends the request in the slot. If `change` takes the lock, the slot becomes free before the
    /// lock is released.
    fn release_slot(
        &self,
        slot: u32,
        change: impl FnOnce(&Mutex<State>) -> Option<MutexGuard<'_, State>>,
    ) {
        if let Some(slot) = self.slot(slot) {
            assert!(slot.is_busy(), "a slot whose request ends has one");
            let changed = change(&slot.state);
            slot.busy.store(false, Ordering::Release);
            drop(changed);
        }
    }

    /// Returns true if any request but the one in `slot` is under way.
    pub fn busy_beside(&self, slot: Option<u32>) -> bool {
        let mut others = self.allocated().filter(|(at, _)| slot != Some(*at));
        others.any(|(_, s)| s.is_busy())
    }
}

#[cfg(test)]
mod tests;
