//! The memory budget of the process. Code that holds bytes on behalf of a client reserves them
//! first.
//!
//! One atomic counter is enough: reservations are made a buffer at a time
//! (kilobytes), not an allocation at a time, so it is not contended.

use crate::invariant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bounded number of bytes that may be reserved.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    used: AtomicUsize,
    /// The budget that this one is a part of. Every reservation here is one there as well.
    whole: Option<Arc<Budget>>,
    /// Holding limit of this part in bytes, beyond which `reserve` bytes of the whole are left to
    /// other parts.
    small: usize,
    reserve: usize,
}

impl Budget {
    /// Creates a budget of `total` bytes.
    pub fn new(total: usize) -> Arc<Budget> {
        Arc::new(Budget {
            total,
            used: AtomicUsize::new(0),
            whole: None,
            small: 0,
            reserve: 0,
        })
    }

    /// Creates a part of `whole` that holds at most `total` bytes. Parts may add up to more than
    /// the whole.
    pub fn part_of(whole: &Arc<Budget>, total: usize) -> Arc<Budget> {
        Budget::share_of(whole, total, total, 0)
    }

    /// Like [`Budget::part_of`], but a part that holds more than `small` bytes leaves `reserve`
    /// bytes of the whole to parts that hold less.
    pub fn share_of(
        whole: &Arc<Budget>,
        total: usize,
        small: usize,
        reserve: usize,
    ) -> Arc<Budget> {
        Arc::new(Budget {
            total,
            used: AtomicUsize::new(0),
            whole: Some(Arc::clone(whole)),
            small,
            reserve,
        })
    }

    /// Reserves `bytes`; returns `None` if fewer are available. Dropping the reservation releases
    /// them.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.take(bytes, 0).then(|| Reservation {
            budget: Arc::clone(self),
            bytes,
        })
    }

    /// Takes `bytes` if `leave` bytes remain available afterwards.
    fn take(&self, bytes: usize, leave: usize) -> bool {
        let order = Ordering::Relaxed;
        // Saturates: a part may be smaller than the bytes that it has to leave.
        let most = self.total.saturating_sub(leave);
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= most);
        let Ok(used) = self.used.fetch_update(order, order, within) else {
            return false;
        };
        let is_small = used + bytes <= self.small;
        let leave = if is_small { 0 } else { self.reserve };
        let whole = self.whole.as_ref();
        let taken = whole.is_none_or(|whole| whole.take(bytes, leave));
        if !taken {
            self.used.fetch_sub(bytes, order);
        }
        taken
    }

    fn give_back(&self, bytes: usize) {
        let used = self.used.fetch_sub(bytes, Ordering::Relaxed);
        invariant!(
            used >= bytes,
            "{bytes} of {used} reserved bytes are released"
        );
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }

    /// Returns the number of reserved bytes, 0 ..= [`Budget::total`].
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the size of the budget in bytes.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of bytes that can be reserved now.
    pub fn available(&self) -> usize {
        // `take` keeps `used` at or below `total`.
        let own = self.total - self.used();
        let whole = self.whole.as_ref();
        whole.map_or(own, |whole| own.min(whole.available()))
    }
}

/// Bytes reserved from a [`Budget`]; dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Reservation {
    /// Returns the number of bytes that this reservation holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds `bytes` to this reservation; returns `false`, with no change, if the budget does not
    /// have them.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.grow_leaving(bytes, 0)
    }

    /// Like [`Reservation::grow`], but only if `leave` bytes of the budget remain available.
    #[must_use]
    pub fn grow_leaving(&mut self, bytes: usize, leave: usize) -> bool {
        let ok = self.budget.take(bytes, leave);
        if ok {
            self.bytes += bytes;
        }
        ok
    }

    /// Releases all but `bytes`; does nothing if less is held.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let Some(excess) = self.bytes.checked_sub(bytes) {
            self.budget.give_back(excess);
            self.bytes = bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_bounded_and_come_back() {
        let b = Budget::new(100);
        let mut r = b.try_reserve(60).unwrap();
        assert!(b.try_reserve(41).is_none());
        assert!(b.try_reserve(usize::MAX).is_none());
        assert!(r.grow(40));
        assert!(!r.grow(1));
        assert_eq!((b.used(), b.available(), r.bytes()), (100, 0, 100));
        r.shrink_to(10);
        r.shrink_to(50);
        assert_eq!(b.used(), 10);
        drop(r);
        assert_eq!(b.used(), 0);
    }

    #[test]
    fn a_part_takes_no_more_than_its_own_and_what_is_left_of_the_whole() {
        let whole = Budget::new(100);
        let (a, b) = (Budget::part_of(&whole, 60), Budget::part_of(&whole, 60));
        let mut of_a = a.try_reserve(50).unwrap();
        assert!(!of_a.grow(11), "its own");
        let of_b = b.try_reserve(40).unwrap();
        assert!(b.try_reserve(11).is_none(), "the whole");
        assert_eq!((a.used(), b.used(), whole.used()), (50, 40, 90));
        assert_eq!(
            (a.available(), b.available(), whole.available()),
            (10, 10, 10)
        );
        of_a.shrink_to(20);
        drop(of_b);
        assert_eq!((a.used(), b.used(), whole.used()), (20, 0, 20));
    }

    #[test]
    fn concurrent_reservations_never_exceed_the_total() {
        let b = Budget::new(1000);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..5000 {
                        let r = b.try_reserve(300);
                        assert!(b.used() <= 1000);
                        drop(r);
                    }
                });
            }
        });
        assert_eq!(b.used(), 0);
    }

    #[test]
    fn a_part_that_holds_much_leaves_a_reserve_to_those_that_hold_little() {
        let whole = Budget::new(1000);
        let share = || Budget::share_of(&whole, 1000, 100, 200);
        let (greedy, modest) = (share(), share());
        let mut held = greedy.try_reserve(100).unwrap();
        assert!(held.grow(700) && !held.grow(1));
        assert_eq!((greedy.used(), whole.used()), (800, 800));
        let mut little = modest.try_reserve(60).unwrap();
        assert!(!little.grow(41), "more than little");
        assert!(little.grow(40));
        let others = share().try_reserve(100).unwrap();
        assert!(share().try_reserve(1).is_none());
        drop((held, others));
        assert!(little.grow(600) && !little.grow(200));
        drop(little);
        assert_eq!((modest.used(), whole.used()), (0, 0));
    }
}
