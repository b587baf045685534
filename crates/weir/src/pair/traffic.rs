//! What is sent to the partner for each byte that clients write, over the last minute.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Between two notes of the counters, and how far they go back.
const SPAN: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// Counts the bytes that clients have written; it may begin anew at less.
pub type Written = Box<dyn Fn() -> u64 + Send + Sync>;

/// See the module's head.
#[derive(Default)]
pub struct Traffic {
    sent: AtomicU64,
    /// Of the node that serves.
    written: OnceLock<Written>,
    /// When the counters were noted, and what they were: sent, and written. The newest last.
    notes: Mutex<VecDeque<(Duration, u64, u64)>>,
}

impl Traffic {
    /// Clients are served from now on.
    pub fn serves(&self, written: Written) {
        // A process begins to serve once.
        let _ = self.written.set(written);
    }

    /// So many bytes of changes were sent, TLS' own not among them.
    pub fn send(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// All bytes that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn written(&self) -> u64 {
        self.written.get().map_or(0, |written| written())
    }

    /// Time passes. To be called more often than every five seconds.
    pub fn tick(&self, now: Duration) {
        let mut notes = self.notes.lock();
        if notes.back().is_some_and(|(at, ..)| now < *at + SPAN) {
            return;
        }
        notes.retain(|(at, ..)| now < *at + MINUTE);
        notes.push_back((now, self.sent(), self.written()));
    }

    /// Bytes sent for each byte written in the last minute; `None`: nothing was.
    pub fn amplification(&self) -> Option<f64> {
        let (_, sent, written) = *self.notes.lock().front()?;
        let (sent, written) = (
            self.sent().checked_sub(sent)?,
            self.written().checked_sub(written)?,
        );
        (written > 0).then(|| sent as f64 / written as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_counts_is_the_last_minute() {
        let traffic = Traffic::default();
        let bytes = Arc::new(AtomicU64::new(7));
        let counter = Arc::clone(&bytes);
        traffic.serves(Box::new(move || counter.load(Ordering::Relaxed)));
        assert_eq!(traffic.amplification(), None);
        let second = |n, factor: usize| {
            traffic.tick(Duration::from_secs(n));
            bytes.fetch_add(1000, Ordering::Relaxed);
            traffic.send(1000 * factor);
        };
        (0..100).for_each(|n| second(n, 9));
        assert_eq!(traffic.amplification(), Some(9.0));
        (100..170).for_each(|n| second(n, 2));
        assert_eq!(traffic.amplification(), Some(2.0));
        (170..240).for_each(|n| traffic.tick(Duration::from_secs(n)));
        assert_eq!(traffic.amplification(), None, "nothing is written");
    }
}
