//! Time as a value that is handed in.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point in civil time: seconds since 1970-01-01 00:00:00 UTC, which may be
/// negative, and nanoseconds within that second (0 ..= 999,999,999).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Seconds since the epoch; negative before it.
    pub secs: i64,
    /// Nanoseconds that follow `secs`, always forward in time.
    pub nanos: u32,
}

impl Time {
    /// The epoch: 1970-01-01 00:00:00 UTC.
    pub const EPOCH: Time = Time { secs: 0, nanos: 0 };

    /// Returns this time moved forward by `by`, saturating at the end of the range.
    #[must_use]
    pub fn plus(self, by: Duration) -> Time {
        let nanos = u64::from(self.nanos) + u64::from(by.subsec_nanos());
        let carry = nanos / 1_000_000_000;
        // Saturates: a client may have set any time.
        let secs = i64::try_from(by.as_secs().saturating_add(carry)).unwrap_or(i64::MAX);
        Time {
            // Saturates: a client may have set any time.
            secs: self.secs.saturating_add(secs),
            nanos: (nanos % 1_000_000_000) as u32,
        }
    }
}

impl From<SystemTime> for Time {
    fn from(t: SystemTime) -> Time {
        match t.duration_since(UNIX_EPOCH) {
            Ok(d) => Time::EPOCH.plus(d),
            Err(before) => {
                // `before` is the distance to the epoch; nanoseconds still count forward.
                let back = before.duration();
                let secs = i64::try_from(back.as_secs()).unwrap_or(i64::MAX);
                match back.subsec_nanos() {
                    0 => Time {
                        // Saturates: the system's clock may show any time.
                        secs: secs.saturating_neg(),
                        nanos: 0,
                    },
                    n => Time {
                        // Saturates: the system's clock may show any time.
                        secs: secs.saturating_neg().saturating_sub(1),
                        nanos: 1_000_000_000 - n,
                    },
                }
            }
        }
    }
}

/// The source of time for everything below the binary.
pub trait Clock: Send + Sync {
    /// Returns civil time, for timestamps that users see. It may step in both directions.
    fn current_time(&self) -> Time;

    /// Returns the time since an arbitrary fixed point, for intervals. It never goes back.
    fn monotonic(&self) -> Duration;
}

/// The operating system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Creates a clock whose monotonic time is zero now.
    #[allow(clippy::disallowed_methods)] // The one implementation of `Clock` on real time.
    pub fn new() -> SystemClock {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // The one implementation of `Clock` on real time.
    fn current_time(&self) -> Time {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock for tests and the simulator. It moves only by [`ManualClock::advance`] and
/// [`ManualClock::set`].
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(Time, Duration)>,
}

impl ManualClock {
    /// Creates a clock set to `now`, with monotonic time zero.
    pub fn new(now: Time) -> ManualClock {
        ManualClock {
            state: Mutex::new((now, Duration::ZERO)),
        }
    }

    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        let mut s = self.lock();
        s.0 = s.0.plus(by);
        // Saturates: a test may advance by any time.
        s.1 = s.1.saturating_add(by);
    }

    /// Sets civil time (a step of the wall clock); monotonic time is untouched.
    pub fn set(&self, now: Time) {
        self.lock().0 = now;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Time, Duration)> {
        // A panic elsewhere cannot leave the pair half changed.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock::new(Time {
            secs: 1_700_000_000,
            nanos: 0,
        })
    }
}

impl Clock for ManualClock {
    fn current_time(&self) -> Time {
        self.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_count_nanoseconds_forward() {
        let t: Time = (UNIX_EPOCH - Duration::from_millis(250)).into();
        assert_eq!(
            t,
            Time {
                secs: -1,
                nanos: 750_000_000
            }
        );
        let t: Time = (UNIX_EPOCH - Duration::from_secs(3)).into();
        assert_eq!(t, Time { secs: -3, nanos: 0 });
    }

    #[test]
    fn plus_carries_and_saturates() {
        let t = Time {
            secs: 1,
            nanos: 900_000_000,
        }
        .plus(Duration::from_millis(200));
        assert_eq!(
            t,
            Time {
                secs: 2,
                nanos: 100_000_000
            }
        );
        assert_eq!(
            Time {
                secs: i64::MAX,
                nanos: 0
            }
            .plus(Duration::from_secs(9))
            .secs,
            i64::MAX
        );
        assert_eq!(Time::EPOCH.plus(Duration::MAX).secs, i64::MAX);
    }

    #[test]
    fn manual_clock_moves_only_when_told() {
        let c = ManualClock::new(Time::EPOCH);
        assert_eq!(
            (c.current_time(), c.monotonic()),
            (Time::EPOCH, Duration::ZERO)
        );
        c.advance(Duration::from_nanos(1_500_000_000));
        c.set(Time { secs: -5, nanos: 1 });
        assert_eq!(c.current_time(), Time { secs: -5, nanos: 1 });
        assert_eq!(c.monotonic(), Duration::from_millis(1500));
    }

    #[test]
    fn system_clock_does_not_go_back() {
        let c = SystemClock::new();
        let a = c.monotonic();
        assert!(c.monotonic() >= a);
        assert!(c.current_time().secs > 1_600_000_000);
    }
}
