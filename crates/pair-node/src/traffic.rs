//! Bytes sent to the partner for each byte that clients write, over the last minute.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Interval between two samples of the counters, and the time that they cover.
const SPAN: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// Counters of traffic to the partner; see the module's head.
#[derive(Default)]
pub struct Traffic {
    sent: AtomicU64,
    /// Samples, the newest last: time, bytes sent, and bytes written by clients.
    notes: Mutex<VecDeque<(Duration, u64, u64)>>,
}

impl Traffic {
    /// Counts bytes of changes sent, without the overhead of TLS.
    pub fn send(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of bytes sent since the start.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Samples the counters when it is time to; `written` is the number of bytes that clients have
    /// written. To be called more often than every five seconds.
    pub fn tick(&self, now: Duration, written: u64) {
        let mut notes = self.notes.lock();
        if notes.back().is_some_and(|(at, ..)| now < *at + SPAN) {
            return;
        }
        notes.retain(|(at, ..)| now < *at + MINUTE);
        notes.push_back((now, self.sent(), written));
    }

    /// Returns the bytes sent for each byte written in the last minute; `None` if none was written.
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
