//! Waits for the log to begin a write: a write to the same device right behind it delays the log
//! least.
//!
//! A device takes requests more or less in order. A write issued while the log is idle is most
//! likely in front of the log's next write. That comes as soon as clients have the replies to the
//! last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Counter of writes that were begun.
#[derive(Default)]
pub(super) struct Begins {
    count: Mutex<u64>,
    begun: Condvar,
    /// Number of threads that wait for the next write.
    waiting: AtomicUsize,
}

impl Begins {
    /// Notes that the device has been given a write.
    pub(super) fn note(&self) {
        // A thread that begins to wait just now waits for the next write.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            *self.count.lock() += 1;
            self.begun.notify_all();
        }
    }

    pub(super) fn wait(&self, patience: Duration) {
        let mut count = self.count.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let before = *count;
        let passed = |now: &mut u64| *now == before;
        self.begun.wait_while_for(&mut count, passed, patience);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
