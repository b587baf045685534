//! The memory budget: one number for the whole process, from which code that holds bytes on behalf
//! of a client reserves them first.
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
}

impl Budget {
    /// A budget of `total` bytes.
    pub fn new(total: usize) -> Arc<Budget> {
        Arc::new(Budget {
            total,
            used: AtomicUsize::new(0),
        })
    }

    /// Reserves `bytes`; `None` if fewer are available. Dropping the reservation releases them.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.take(bytes).then(|| Reservation {
            budget: Arc::clone(self),
            bytes,
        })
    }

    fn take(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.total)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        let used = self.used.fetch_sub(bytes, Ordering::Relaxed);
        invariant!(
            used >= bytes,
            "{bytes} of {used} reserved bytes are released"
        );
    }

    /// Bytes that are reserved now, 0 ..= [`Budget::total`].
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that the budget holds in all.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Bytes that could be reserved now.
    pub fn available(&self) -> usize {
        // Never more than there is: see `take`.
        self.total - self.used()
    }
}

/// Bytes reserved from a [`Budget`]; dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Reservation {
    /// Bytes that this reservation holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds `bytes` to this reservation; `false` (and no change) if the budget
    /// does not have them.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let ok = self.budget.take(bytes);
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
}
