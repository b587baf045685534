//! A timing wheel of the trees that have requests to release, by time.
//!
//! A core serves many trees (pools). Few of them are throttled at a time, and each moves its next
//! release at every request. A heap would pay log n for each move and keep stale entries; the wheel
//! (Varghese and Lauck 1987) pays a push. Time is cut into slots. An entry goes to the slot of its
//! time, and stays there when its time is moved. The woken core reads the tree's true next release
//! and schedules the tree anew. So a stale entry costs one read.
//!
//! One level of 4,096 slots of 64 µs spans 262 ms. Later entries wait in the farthest slot and are
//! passed on from there. A limit of 4 KB/s causes that four times a second: cheaper than a second
//! level.

use crate::meter::Nanos;

/// Length of a slot as a power of two: 65,536 ns. Releases are late by at most one slot; the burst
/// of a limit compensates for that ([`crate::meter`]).
const SLOT_BITS: u32 = 16;
const SLOTS: u64 = 4096;

/// Entries by the time at which they are due.
#[derive(Debug)]
pub struct Wheel<E> {
    slots: Vec<Vec<(Nanos, E)>>,
    /// First slot not yet handed out, counted from the clock's zero.
    next: u64,
    len: usize,
}

impl<E> Wheel<E> {
    /// Creates an empty wheel that starts at `now`.
    pub fn new(now: Nanos) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            next: now >> SLOT_BITS,
            len: 0,
        }
    }

    /// Returns the number of entries, stale ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the wheel has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry that is due at `time`; a past time means the next [`Wheel::expire`].
    pub fn schedule(&mut self, time: Nanos, entry: E) {
        // The end of the slot must not be before the entry's time, or it would be released early.
        let slot = time
            .div_ceil(1 << SLOT_BITS)
            .clamp(self.next, self.next + SLOTS - 1);
        if let Some(slot) = self.slots.get_mut((slot % SLOTS) as usize) {
            slot.push((time, entry));
            self.len += 1;
        }
    }

    /// Passes the entries due at `now` to `due`, in the order of slots.
    pub fn expire(&mut self, now: Nanos, mut due: impl FnMut(E)) {
        let end = now >> SLOT_BITS;
        let mut later = Vec::new();
        // After a long pause each slot needs to be visited only once.
        // Saturates: the numbers are
        // times.
        let first = self.next.max((end + 1).saturating_sub(SLOTS));
        if first > self.next {
            for slot in &mut self.slots {
                later.append(slot);
            }
            self.len -= later.len();
        } else {
            for slot in first..=end {
                if let Some(slot) = self.slots.get_mut((slot % SLOTS) as usize) {
                    self.len -= slot.len();
                    later.append(slot);
                }
            }
        }
        self.next = self.next.max(end + 1);
        for (time, entry) in later {
            if time <= now {
                due(entry);
            } else {
                self.schedule(time, entry);
            }
        }
    }

    /// Returns the time for the next call of [`Wheel::expire`]; `None` while the wheel is empty.
    pub fn next_expiry(&self) -> Option<Nanos> {
        if self.len == 0 {
            return None;
        }
        let filled = |slot: &u64| {
            self.slots
                .get((slot % SLOTS) as usize)
                .is_some_and(|slot| !slot.is_empty())
        };
        (self.next..self.next + SLOTS)
            .find(filled)
            .map(|slot| slot << SLOT_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_early_nothing_lost_nothing_later_than_a_slot(
            start in 0u64..1 << 40,
            steps in prop::collection::vec((0u64..400_000_000, 0u64..700_000_000), 1..120),
        ) {
            let mut wheel = Wheel::new(start);
            let mut now = start;
            let mut model: Vec<Nanos> = Vec::new();
            for (wait, ahead) in steps {
                wheel.schedule(now + ahead, now + ahead);
                model.push(now + ahead);
                now += wait;
                let mut out = Vec::new();
                wheel.expire(now, |time| out.push(time));
                prop_assert!(out.iter().all(|time| *time <= now));
                out.sort_unstable();
                let mut due: Vec<_> = model.iter().copied().filter(|time| out.contains(time)).collect();
                due.sort_unstable();
                prop_assert_eq!(&out, &due);
                model.retain(|time| !out.contains(time));
                prop_assert!(model.iter().all(|time| *time + (1 << SLOT_BITS) > now), "late");
                prop_assert_eq!(wheel.len(), model.len());
                prop_assert_eq!(wheel.next_expiry().is_some(), !model.is_empty());
                if let (Some(at), Some(first)) = (wheel.next_expiry(), model.iter().min()) {
                    prop_assert!(at <= *first + (1 << SLOT_BITS));
                }
            }
        }
    }
}
