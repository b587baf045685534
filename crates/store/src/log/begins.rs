//! Waiting for the log to begin a write: what is written to the same device right behind it delays it least.
//!
//! A device takes what it is given in order, more or less. What is written while the log rests is most likely in front of its next write, which comes as soon
//! as clients have the replies to the last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Log;

/// Writes that were begun.
#[derive(Default)]
pub(super) struct Begins {
    count: Mutex<u64>,
    begun: Condvar,
    /// Threads that wait for the next.
    waiting: AtomicUsize,
}

impl Begins {
    /// The device has been given a write.
    pub(super) fn note(&self) {
        // One that has come to wait just now waits for the next.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            *self.count.lock() += 1;
            self.begun.notify_all();
        }
    }

    fn wait(&self, patience: Duration) {
        let mut count = self.count.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let before = *count;
        let passed = |now: &mut u64| *now == before;
        self.begun.wait_while_for(&mut count, passed, patience);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Log {
    /// Blocks the thread until the log has begun another write, but not for longer than this.
    pub fn wait_begun(&self, patience: Duration) {
        self.shared.begins.wait(patience);
    }
}
