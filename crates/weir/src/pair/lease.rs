//! Until when replies may leave: a primary of a pair answers within a lease of its standby's (`weir_mirror::node`).
//!
//! A process serves one aggregate, so there is one. Without a pair it never ends, and a look at it is one load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir_base::Clock;

/// Never.
const FOREVER: u64 = u64::MAX;

/// See the module's head.
pub struct Lease {
    /// In nanoseconds of the clock.
    until: AtomicU64,
    clock: OnceLock<Arc<dyn Clock>>,
}

/// The process's.
pub static LEASE: Lease = Lease {
    until: AtomicU64::new(FOREVER),
    clock: OnceLock::new(),
};

impl Lease {
    /// From now on replies may leave only for as long as [`Lease::set`] says, by this clock.
    pub fn begin(&self, clock: &Arc<dyn Clock>) {
        // Only the first counts, and a process has one clock.
        let _ = self.clock.set(Arc::clone(clock));
        self.set(Duration::ZERO);
    }

    /// Replies may leave until then; [`Duration::MAX`]: for ever.
    pub fn set(&self, until: Duration) {
        // Saturates: 584 years are for ever.
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(FOREVER);
        self.until.store(nanos, Ordering::Release);
    }

    /// Whether a reply may leave now that was worked out before this is called.
    #[inline]
    pub fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == FOREVER || self.not_over(until)
    }

    fn not_over(&self, until: u64) -> bool {
        let Some(clock) = self.clock.get() else {
            return false;
        };
        clock.monotonic() < Duration::from_nanos(until)
    }
}
