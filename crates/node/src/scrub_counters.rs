//! Counts of damaged blocks and of scrubs, for the metrics and the conditions.

use parking_lot::Mutex;

/// Blocks found damaged and scrubs made since the server's start.
#[derive(Debug, Default)]
pub struct ScrubCounters {
    facts: Mutex<ScrubFacts>,
}

/// State of [`ScrubCounters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubFacts {
    /// A scrub runs.
    pub running: bool,
    /// Bytes read and verified by all scrubs.
    pub read_bytes: u64,
    /// Damaged blocks found by all scrubs; one that is found again counts again.
    pub faults: u64,
    /// End of the last scrub that read everything, in seconds since 1970.
    pub finished: Option<i64>,
    /// Damaged blocks that the newest scrub has found: of one that read everything, all there are.
    damaged: u64,
    /// Damaged blocks that requests had met when the last complete scrub began.
    met: u64,
}

impl ScrubFacts {
    /// Returns the number of blocks that are known to be damaged, where requests have met
    /// `damaged_reads` since the server's start: those of the last scrub, and reads since it began.
    pub fn known(&self, damaged_reads: u64) -> u64 {
        let since = damaged_reads.saturating_sub(self.met);
        self.damaged.saturating_add(since)
    }
}

impl ScrubCounters {
    /// Returns the state now.
    pub fn facts(&self) -> ScrubFacts {
        *self.facts.lock()
    }

    pub(crate) fn begin(&self) {
        self.facts.lock().running = true;
    }

    pub(crate) fn read(&self, bytes: u64) {
        let mut facts = self.facts.lock();
        facts.read_bytes = facts.read_bytes.saturating_add(bytes);
    }

    /// Counts a fault, the `nth` of its scrub.
    pub(crate) fn fault(&self, nth: u64) {
        let mut facts = self.facts.lock();
        facts.faults = facts.faults.saturating_add(1);
        facts.damaged = facts.damaged.max(nth);
    }

    /// Ends the scrub. `complete`: its faults, the number of damaged reads when it began, and the
    /// time, if it has read everything.
    pub(crate) fn end(&self, complete: Option<(u64, u64, i64)>) {
        let mut facts = self.facts.lock();
        facts.running = false;
        if let Some((faults, met, now)) = complete {
            (facts.damaged, facts.met, facts.finished) = (faults, met, Some(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_scrub_forgets_what_was_damaged_before_it() {
        let counters = ScrubCounters::default();
        assert_eq!(counters.facts().known(0), 0);
        // Requests met two damaged blocks; the scrub finds one of them and another.
        assert_eq!(counters.facts().known(2), 2);
        counters.begin();
        counters.read(8192);
        counters.fault(1);
        counters.fault(2);
        assert_eq!(counters.facts().known(2), 4);
        counters.end(Some((2, 2, 77)));
        // One more was met while it ran.
        assert_eq!(counters.facts().known(3), 3);
        // A scrub that ends early proves nothing.
        counters.begin();
        counters.fault(1);
        counters.end(None);
        assert_eq!(counters.facts().known(3), 3);
        counters.begin();
        counters.end(Some((0, 3, 99)));
        let facts = counters.facts();
        assert_eq!((facts.known(3), facts.known(4)), (0, 1));
        assert_eq!(
            (facts.running, facts.faults, facts.read_bytes),
            (false, 3, 8192)
        );
        assert_eq!(facts.finished, Some(99));
    }
}
