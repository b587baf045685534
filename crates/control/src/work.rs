//! Counts of what the control plane has done, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::latency::{Histogram, Latencies};

/// Counters that the catalog's writer and the jobs add to.
#[derive(Default)]
pub(crate) struct Counters {
    commits: Histogram,
    done: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    /// Counts a batch of changes that took `nanos` nanoseconds to become durable in the catalog and
    /// in its second place.
    pub fn committed(&self, nanos: u64) {
        self.commits.record(nanos);
    }

    /// Counts a job that has ended.
    pub fn ended(&self, failed: bool) {
        let counter = if failed { &self.failed } else { &self.done };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far; `running` jobs have begun or wait for others of their resource.
    pub fn read(&self, running: usize) -> Work {
        Work {
            commits: self.commits.read(),
            running,
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

/// Work of the control plane since the server's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Times in which changes became durable in the catalog.
    pub commits: Latencies,
    /// Number of jobs that have not ended.
    pub running: usize,
    /// Number of jobs that have ended well.
    pub done: u64,
    /// Number of jobs that have failed.
    pub failed: u64,
}
