//! Throttles a resync while it slows clients down.
//!
//! Clients wait for this node's log, and a resync reads from the same disk and uses the same
//! processors. So the log's own writes show whether the resync is too fast. While a write takes
//! about its best time, the resync accelerates; once a write takes more than twice that, the resync
//! continues at half of its last rate. The best time is measured every few seconds at the minimum
//! rate: it cannot be seen beside a resync at full rate, and changes with the clients' load.
//!
//! The rate never falls below [`LEAST`], so that the time without a partner ends. While nobody
//! writes there is no limit.

use std::time::Duration;

use weir_volume::LogWrites;

/// Interval between measurements.
const EVERY: Duration = Duration::from_millis(100);
/// Minimum rate of a resync, in bytes a second.
const LEAST: f64 = (16 << 20) as f64;
/// A write is slow if it takes longer than the best by this factor and by [`NOISE`]: disks vary by
/// as much from write to write.
const SLOW: u32 = 2;
const NOISE: Duration = Duration::from_micros(500);
/// Factor by which the limit grows per measurement while writes are fast.
const FASTER: f64 = 1.25;
/// Interval between measurements of the best time.
const LEARN_EVERY: Duration = Duration::from_secs(5);

/// Best time of a write of the log.
#[derive(Clone, Copy, Default)]
enum Best {
    #[default]
    Unknown,
    /// It is being measured. The value is the limit to restore afterwards, in bytes a second.
    Learning(Option<f64>),
    /// Best time in seconds, and the time until which it counts, by the clock.
    Known(f64, Duration),
}

/// Limiter of a resync's rate; see the module's head.
#[derive(Default)]
pub struct ResyncRate {
    /// Time of the last measurement, and the log's counters then.
    last: Option<(Duration, LogWrites)>,
    /// Number of bytes sent since the last measurement.
    sent: u64,
    best: Best,
    /// Limit in bytes a second, if there is one.
    limit: Option<f64>,
    /// Time from which more may be sent, by the clock.
    due: Duration,
}

impl ResyncRate {
    /// Returns the time to wait before `bytes` more are sent. `writes` are the log's counters now.
    pub fn wait(&mut self, now: Duration, writes: LogWrites, bytes: usize) -> Duration {
        self.look(now, writes);
        self.sent += bytes as u64;
        let Some(limit) = self.limit else {
            self.due = now;
            return Duration::ZERO;
        };
        let wait = self.due.saturating_sub(now);
        self.due = self.due.max(now) + Duration::from_secs_f64(bytes as f64 / limit);
        wait
    }

    /// Returns the limit in bytes a second, if there is one.
    pub fn limit(&self) -> Option<f64> {
        self.limit
    }

    fn look(&mut self, now: Duration, writes: LogWrites) {
        let Some((then, before)) = self.last else {
            self.last = Some((now, writes));
            return;
        };
        let passed = now.saturating_sub(then);
        if passed < EVERY {
            return;
        }
        self.last = Some((now, writes));
        let rate = std::mem::take(&mut self.sent) as f64 / passed.as_secs_f64();
        let Some(mean) = writes.mean_since(before).map(|mean| mean.as_secs_f64()) else {
            (self.limit, self.best) = (None, Best::Unknown);
            return;
        };
        let best = match self.best {
            Best::Known(best, until) if now < until => best,
            Best::Learning(limit) => {
                self.best = Best::Known(mean, now + LEARN_EVERY);
                self.limit = limit;
                return;
            }
            Best::Unknown | Best::Known(..) => {
                self.best = Best::Learning(self.limit);
                self.limit = Some(LEAST);
                return;
            }
        };
        self.limit = match mean > best * f64::from(SLOW) && mean > best + NOISE.as_secs_f64() {
            true => Some((self.limit.unwrap_or(rate).min(rate) / 2.0).max(LEAST)),
            // A limit far above the actual rate is dropped.
            false => (self.limit.map(|limit| limit * FASTER))
                .filter(|limit| *limit < 4.0 * rate.max(LEAST)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk whose writes take 200 µs by themselves, and more the more is read beside them; what
    /// is read of it in so many seconds, by the second.
    fn reads(seconds: u64, writes_at: impl Fn(u64) -> bool) -> Vec<u64> {
        const ENTRY: usize = 256 << 10;
        let mut ease = ResyncRate::default();
        let (mut now, mut writes) = (Duration::ZERO, LogWrites::default());
        let mut each = vec![0; seconds as usize];
        while let Some(second) = each.get_mut(now.as_secs() as usize) {
            let held = ease.wait(now, writes, ENTRY);
            // It reads 1 GB/s at most.
            let took = held + Duration::from_micros(262);
            let busy = 262e-6 / took.as_secs_f64();
            if writes_at(now.as_secs()) {
                writes.batches += 1;
                writes.nanos += (200e3 + 2e6 * busy) as u64;
            }
            now += took;
            *second += ENTRY as u64;
        }
        each
    }

    #[test]
    fn with_nobody_who_writes_nothing_holds_it_back() {
        let each = reads(3, |_| false);
        assert!(each.iter().all(|bytes| *bytes > 900_000_000), "{each:?}");
    }

    #[test]
    fn it_slows_down_while_writes_are_slow_and_never_stops() {
        let each = reads(30, |second| second >= 10);
        assert!(each[5] > 900_000_000, "{each:?}");
        let later: u64 = each[20..].iter().sum::<u64>() / 10;
        // Of 262 µs in each entry's time a fifth or so may be taken before a write takes twice as
        // long.
        assert!((20_000_000..500_000_000).contains(&later), "{each:?}");
        assert!(
            each.iter().all(|bytes| *bytes as f64 >= LEAST / 2.0),
            "{each:?}"
        );
    }

    #[test]
    fn what_was_best_is_learned_again() {
        let mut ease = ResyncRate::default();
        let (mut now, mut writes) = (Duration::ZERO, LogWrites::default());
        let mut looks = |ease: &mut ResyncRate, n: u64, micros: u64| {
            for _ in 0..n {
                now += EVERY;
                writes.batches += 10;
                writes.nanos += 10_000 * micros;
                let _ = ease.wait(now, writes, 10 << 20);
            }
            ease.limit()
        };
        assert_eq!(looks(&mut ease, 40, 200), None);
        assert!(looks(&mut ease, 5, 2000).is_some());
        // Clients write more at a time now.
        assert_eq!(looks(&mut ease, 90, 2000), None);
    }
}
