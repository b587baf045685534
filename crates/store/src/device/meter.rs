//! Latencies of a device's operations, from their submission to their completion.

use std::sync::{Arc, OnceLock};

use weir_base::Clock;
use weir_base::latency::{Histogram, Latencies};

use crate::error::IoKind;

/// Kinds of operations that are measured.
pub const MEASURED: [IoKind; 3] = [IoKind::Read, IoKind::Write, IoKind::Flush];

/// Measures a device's operations with a clock; without a clock it measures nothing.
#[derive(Default)]
pub struct Meter {
    clock: OnceLock<Arc<dyn Clock>>,
    reads: Histogram,
    writes: Histogram,
    flushes: Histogram,
}

impl Meter {
    /// Starts measuring with `clock`. Only the first call counts.
    pub fn begin(&self, clock: Arc<dyn Clock>) {
        let _ = self.clock.set(clock);
    }

    fn histogram(&self, kind: IoKind) -> Option<&Histogram> {
        match kind {
            IoKind::Read => Some(&self.reads),
            IoKind::Write => Some(&self.writes),
            IoKind::Flush => Some(&self.flushes),
            IoKind::Discard => None,
        }
    }

    /// Returns the present time in nanoseconds, if there is a clock.
    pub fn current_nanos(&self) -> Option<u64> {
        let now = self.clock.get()?.monotonic();
        u64::try_from(now.as_nanos()).ok()
    }

    /// Counts an operation that began at `begun` and is complete.
    pub fn count(&self, kind: IoKind, begun: u64) {
        if let (Some(histogram), Some(now)) = (self.histogram(kind), self.current_nanos()) {
            // Saturates: the clock is read on two threads.
            histogram.record(now.saturating_sub(begun));
        }
    }

    /// Returns the latencies of each kind of operation so far.
    pub fn latencies(&self) -> [(IoKind, Latencies); MEASURED.len()] {
        MEASURED.map(|kind| {
            let histogram = self.histogram(kind);
            (kind, histogram.map(Histogram::read).unwrap_or_default())
        })
    }
}
