//! The lease within which replies may leave: a primary of a pair answers within a lease of its
//! standby's (`weir_mirror::node`).
//!
//! Without a pair the lease never ends, and checking it is one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_base::Clock;

/// End of a lease that never ends.
const FOREVER: u64 = u64::MAX;

/// Lease of one served aggregate. The pair renews it, and the reply gate asks for it.
pub struct Lease {
    /// End in nanoseconds of the clock.
    until: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Lease {
    /// Creates a lease that never ends.
    pub fn unlimited(clock: Arc<dyn Clock>) -> Lease {
        Lease {
            until: AtomicU64::new(FOREVER),
            clock,
        }
    }

    /// Creates a lease that has ended.
    pub fn expired(clock: Arc<dyn Clock>) -> Lease {
        Lease {
            until: AtomicU64::new(0),
            clock,
        }
    }

    /// Sets the end of the lease; [`Duration::MAX`] is no end.
    pub fn set(&self, until: Duration) {
        // Saturates: 584 years are for ever.
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(FOREVER);
        self.until.store(nanos, Ordering::Release);
    }

    /// Returns true if a reply may leave now that was computed before this is called.
    #[inline]
    pub fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == FOREVER || self.clock.monotonic() < Duration::from_nanos(until)
    }
}
