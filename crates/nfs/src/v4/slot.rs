//! The slots of a session: each request is carried out once (RFC 8881 §2.10.6).
//!
//! A slot has one request under way at most. Its sequence number distinguishes a new request (the next number), a
//! retransmission (the same), and a client that has lost count (any other). A retransmission gets the reply of the first
//! execution, if the client had asked for it to be kept, together with the log record that the first one waited for: a
//! replay must not say more than its original. What distinguishes a retransmission from another request under the same
//! number is a checksum of its first bytes and its length.
//!
//! **A request that is dropped.** The connection of a request that waits may end. If it has changed nothing, the slot goes
//! back to the number before, and the retransmission is a new request. If it has, its reply is kept as it stands: the
//! operation that waited is answered DELAY, and those before it with what they did.
//!
//! **Memory.** The first slots are charged when the session is made, others in groups when they are first used, kept replies when
//! they are kept. A request in a slot that there is no room for is answered DELAY. If the budget has no room
//! for a reply it is not kept, which the client learns only if it needs it (RETRY_UNCACHED_REP). When memory is short, clients are
//! to use fewer slots: the *target* is halved, and what is kept beyond it goes when the client has followed (§2.10.6.1). It rises again
//! when memory has been enough for a while. The number of slots that are accepted stays what was granted, so no slot's
//! sequence number is ever begun anew.

use super::status::Status;
use crate::rpc::failure::Cut;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use weir_base::{Budget, Lsn, Reservation};

/// Slots that are allocated, and charged for, together.
const GROUP: usize = 16;
/// Slots that a client with more may always use.
const LEAST_TARGET: u32 = 8;
/// What a kept reply is charged beyond its bytes.
const KEPT_OVERHEAD: usize = 64;

/// The results of a COMPOUND, from its status on.
pub struct Results {
    /// The results, encoded as XDR.
    pub bytes: Box<[u8]>,
    /// The log record that they wait for.
    pub lsn: Option<Lsn>,
    /// How they fail if that is never written.
    pub cut: Option<Cut>,
}

/// A reply that is kept.
pub struct Kept {
    /// The results as they were sent.
    pub results: Results,
    _memory: Reservation,
}

#[derive(Default)]
struct State {
    /// Of the last request.
    sequence: u32,
    /// Of its first bytes; `None` before the first one, and after one that was never made.
    checksum: Option<u32>,
    kept: Option<Arc<Kept>>,
}

/// In a cache line of its own: a client deals its slots to connections as they come, and those are of different cores.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    state: Mutex<State>,
    /// A request is under way. It begins under the lock; one whose reply is not kept ends without.
    busy: AtomicBool,
}

impl Slot {
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}

/// Slots that were allocated together.
type Group = Box<[Slot]>;

/// Bytes of `count` slots.
fn bytes_of(count: usize) -> usize {
    count * size_of::<Slot>()
}

/// See the module's head.
pub struct Slots {
    count: u32,
    groups: Box<[OnceLock<Group>]>,
    /// Of all groups that are allocated.
    memory: Mutex<Reservation>,
    /// How many the client is to use.
    target: AtomicU32,
    /// The target beyond which nothing is kept any more; all slots if the client has not followed yet.
    trimmed: AtomicU32,
    /// A reply was not kept for want of memory.
    pressed: AtomicBool,
    budget: Arc<Budget>,
    /// The highest slot that was ever used.
    highest: AtomicU32,
}

/// What a request is to its slot.
pub enum Seen {
    /// A new one, which is under way now.
    New,
    /// Sent again, and this was the reply.
    Answered(Arc<Kept>),
    /// An error of SEQUENCE.
    Refused(Status),
}

impl Slots {
    /// Makes `count` slots; `None` if the budget has no room for the first of them.
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

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns a slot that was used, or is a neighbour of one.
    fn slot(&self, slot: u32) -> Option<&Slot> {
        let group = self.groups.get(slot as usize / GROUP)?.get()?;
        group.get(slot as usize % GROUP)
    }

    /// Returns a slot, which is allocated with its neighbours if need be; `None` if there is no memory.
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

    /// How many the client is to use.
    pub fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    /// Halves the target; returns it, unless it is as low as it gets.
    pub fn lower(&self) -> Option<u32> {
        let lower = |target: u32| (target > LEAST_TARGET).then(|| (target / 2).max(LEAST_TARGET));
        let order = Ordering::Relaxed;
        self.target.fetch_update(order, order, lower).ok()?;
        Some(self.target())
    }

    /// Doubles the target; false if it is that of all slots.
    pub fn raise(&self) -> bool {
        let (all, order) = (self.count(), Ordering::Relaxed);
        let higher = |target: u32| (target < all).then(|| (target * 2).min(all));
        let raised = self.target.fetch_update(order, order, higher).is_ok();
        if raised {
            self.trimmed.store(all, order);
        }
        raised
    }

    /// The client uses no slot beyond `highest`: what is kept of those beyond the target goes.
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

    /// Whether a reply was not kept for want of memory since this was asked last.
    pub fn take_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed) && self.pressed.swap(false, Ordering::Relaxed)
    }

    /// The highest slot that was ever used.
    pub fn highest(&self) -> u32 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Begins a request with this number in a slot; `None` if there is no memory for the slot, which was never used.
    pub fn begin(&self, slot: u32, sequence: u32, checksum: u32) -> Option<Seen> {
        if slot >= self.count {
            return Some(Seen::Refused(Status::BadSlot));
        }
        let of = self.slot_or_new(slot)?;
        Some(self.begin_in(of, slot, sequence, checksum))
    }

    fn begin_in(&self, of: &Slot, slot: u32, sequence: u32, checksum: u32) -> Seen {
        let mut s = of.state.lock();
        if sequence == s.sequence.wrapping_add(1) {
            if of.is_busy() {
                return Seen::Refused(Status::SeqMisordered);
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
            return Seen::New;
        }
        let Some(known) = s.checksum.filter(|_| sequence == s.sequence) else {
            return Seen::Refused(Status::SeqMisordered);
        };
        match &s.kept {
            _ if of.is_busy() => Seen::Refused(Status::Delay),
            _ if known != checksum => Seen::Refused(Status::SeqFalseRetry),
            Some(kept) => Seen::Answered(Arc::clone(kept)),
            None => Seen::Refused(Status::RetryUncachedRep),
        }
    }

    /// The request in the slot is answered; with `reply`, that is kept.
    pub fn end(&self, slot: u32, reply: Option<Results>) {
        let kept = reply.and_then(|results| {
            let bytes = results.bytes.len() + KEPT_OVERHEAD;
            let memory = self.budget.try_reserve(bytes);
            if memory.is_none() {
                self.pressed.store(true, Ordering::Relaxed);
            }
            Some(Arc::new(Kept {
                results,
                _memory: memory?,
            }))
        });
        self.over(slot, |state| {
            kept.map(|kept| {
                let mut s = state.lock();
                s.kept = Some(kept);
                s
            })
        });
    }

    /// The request in the slot was never made.
    pub fn undo(&self, slot: u32) {
        self.over(slot, |state| {
            let mut s = state.lock();
            let sequence = s.sequence.wrapping_sub(1);
            // Nothing is known of the request before: a retransmission of it is out of order, and its client has its reply.
            *s = State {
                sequence,
                ..State::default()
            };
            Some(s)
        });
    }

    /// The request in the slot ends, together with what `change` does under the lock, if it takes it.
    fn over(&self, slot: u32, change: impl FnOnce(&Mutex<State>) -> Option<MutexGuard<'_, State>>) {
        if let Some(slot) = self.slot(slot) {
            assert!(slot.is_busy(), "a slot whose request ends has one");
            let changed = change(&slot.state);
            slot.busy.store(false, Ordering::Release);
            drop(changed);
        }
    }

    /// Whether any request is under way but the one in `slot`.
    pub fn busy_beside(&self, slot: Option<u32>) -> bool {
        let mut others = self.allocated().filter(|(at, _)| slot != Some(*at));
        others.any(|(_, s)| s.is_busy())
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
