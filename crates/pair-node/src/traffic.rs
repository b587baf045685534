//! What is sent to the partner for each byte that clients write, over the last minute.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Between two notes of the counters, and how far they go back.
const SPAN: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// See the module's head.
#[derive(Default)]
pub struct Traffic {
    sent: AtomicU64,
    /// When the counters were noted, and what they were: sent, and written. The newest last.
    notes: Mutex<VecDeque<(Duration, u64, u64)>>,
}

impl Traffic {
    /// So many bytes of changes were sent, TLS' own not among them.
    pub fn send(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// All bytes that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Notes the counters when it is time to; `written` are the bytes that clients have written. To
    /// be called more often than every five seconds.
    pub fn tick(&self, now: Duration, written: u64) {
        let mut notes = self.notes.lock();
        if notes.back().is_some_and(|(at, ..)| now < *at + SPAN) {
            return;
        }
        notes.retain(|(at, ..)| now < *at + MINUTE);
        notes.push_back((now, self.sent(), written));
    }

    /// Bytes sent for each byte written in the last minute; `None`: nothing was.
    pub fn amplification(&self, written: u64) -> Option<f64> {
        let (_, sent, before) = *self.notes.lock().front()?;
        let sent = self.sent().checked_sub(sent)?;
        let written = written.checked_sub(before)?;
        (written > 0).then(|| sent as f64 / written as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_the_last_minute() {
        let traffic = Traffic::default();
        let mut written = 7;
        assert_eq!(traffic.amplification(written), None);
        let second = |written: &mut u64, n, factor: usize| {
            traffic.tick(Duration::from_secs(n), *written);
            *written += 1000;
            traffic.send(1000 * factor);
        };
        (0..100).for_each(|n| second(&mut written, n, 9));
        assert_eq!(traffic.amplification(written), Some(9.0));
        (100..170).for_each(|n| second(&mut written, n, 2));
        assert_eq!(traffic.amplification(written), Some(2.0));
        (170..240).for_each(|n| traffic.tick(Duration::from_secs(n), written));
        assert_eq!(traffic.amplification(written), None, "nothing is written");
    }
}
