//! Holds a synchronisation back while clients feel it.
//!
//! Clients wait for this node's log, and a synchronisation reads from the same disk (and from the
//! same processors). So the log's own writes say whether it is too fast: as long as a write takes
//! about as long as it takes at best, the synchronisation goes faster and faster; where it takes
//! more than twice as long, it goes on at half of what it sent last. What is best is learned every
//! few seconds, at the least rate: it cannot be seen beside a synchronisation at full rate, and
//! changes with what clients write.
//!
//! It never goes below [`LEAST`]: the time without a partner is to end. While nobody writes it has
//! no limit.

use std::time::Duration;

use weir_volume::LogWrites;

/// From one look to the next.
const EVERY: Duration = Duration::from_millis(100);
/// Bytes a second at which a synchronisation goes on in any case.
const LEAST: f64 = (16 << 20) as f64;
/// A write is slow that takes longer than the best by this factor, and by this time: disks differ
/// by as much from write to write.
const SLOW: u32 = 2;
const NOISE: Duration = Duration::from_micros(500);
/// From one look to the next, with nothing in the way.
const FASTER: f64 = 1.25;
/// From one time that the best is learned to the next.
const LEARN_EVERY: Duration = Duration::from_secs(5);

/// How long a write of the log takes at best.
#[derive(Clone, Copy, Default)]
enum Best {
    #[default]
    Unknown,
    /// It is being learned; the limit in bytes a second behind that.
    Learning(Option<f64>),
    /// In seconds, and until when that counts.
    Known(f64, Duration),
}

/// See the module's head.
#[derive(Default)]
pub struct ResyncRate {
    /// The last look, and what the log had written then.
    last: Option<(Duration, LogWrites)>,
    /// Bytes sent since the last look.
    sent: u64,
    best: Best,
    /// Bytes a second.
    limit: Option<f64>,
    /// When more may be sent.
    due: Duration,
}

impl ResyncRate {
    /// How long to wait before `bytes` more are sent; the log has written this by now.
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

    /// Bytes a second, if that is what holds it back.
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
            // A limit that does not hold anything back is none.
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
