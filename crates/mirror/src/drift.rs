//! Whether the clocks of two nodes run alike.
//!
//! A primary answers reads for as long as its lease runs by its own clock, and the standby serves after its promise by another one. The
//! margin between them allows for clocks that differ by 1 %. If they differ by more, a read may miss what was written at the other node,
//! and nothing in the messages would say so. So the standby compares them.
//!
//! Each beat says when it was sent by the primary's clock; the time of its arrival by the standby's, less that, is an unknown constant, the difference of the
//! two clocks' zeros, and what the beat took on the way. The least of many is nearly free of the second. If the least grows or shrinks as
//! time passes, the clocks run apart. Ways get longer, and machines stand still for moments: such steps stay below [`STEP`], since beyond it
//! the connection ends and the comparison begins anew.

use std::time::Duration;

/// Beats of which the least counts.
const BEATS: u32 = 50;
/// What may change at once.
const STEP: f64 = 2.0;
/// By how much the clocks may differ: as [`crate::Timing::promise`] allows for.
const RATE: f64 = 0.01;

/// Compares the clocks of the two ends of one connection.
#[derive(Clone, Default, Debug)]
pub struct Clocks {
    /// Of the first beats: when they ended, and the least difference, in seconds.
    first: Option<(f64, f64)>,
    least: Option<f64>,
    beats: u32,
}

impl Clocks {
    /// A beat that was sent at `sent`, by the other clock, arrives now. How many seconds a second of this clock are by the other one, if
    /// that is too far from one.
    pub fn hear(&mut self, now: Duration, sent: Duration) -> Option<f64> {
        let now = now.as_secs_f64();
        let difference = now - sent.as_secs_f64();
        let least = self.least.map_or(difference, |least| least.min(difference));
        self.least = Some(least);
        self.beats += 1;
        if self.beats < BEATS {
            return None;
        }
        (self.least, self.beats) = (None, 0);
        let (since, first) = *self.first.get_or_insert((now, least));
        let (passed, apart) = (now - since, least - first);
        (apart.abs() > RATE * passed + STEP).then(|| 1.0 - apart / passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beats of an hour, by a clock of this rate, on a way that takes up to `way` seconds: when the two were found to run apart, and what was
    /// said.
    fn found(rate: f64, way: impl Fn(u32) -> f64) -> Option<(f64, f64)> {
        let mut clocks = Clocks::default();
        (0..5 * 3600).find_map(|n| {
            let sent = 1000.0 + f64::from(n) / 5.0;
            let now = Duration::from_secs_f64(7.0 + f64::from(n) / 5.0 * rate + way(n));
            let said = clocks.hear(now, Duration::from_secs_f64(sent));
            said.map(|said| (f64::from(n) / 5.0, said))
        })
    }

    #[test]
    fn clocks_that_run_apart_are_found_and_ways_that_change_are_not() {
        let jitter = |n: u32| f64::from(n * 7919 % 101) / 500.0;
        assert_eq!(found(1.0, jitter), None);
        assert_eq!(found(1.009, jitter), None);
        assert_eq!(found(0.992, jitter), None);
        // Another way, and a machine that stood still for a moment.
        assert_eq!(found(1.0, |n| if n > 400 { 1.5 } else { 0.0 }), None);
        assert_eq!(found(1.0, |n| if n % 500 == 70 { 60.0 } else { 0.0 }), None);
        for rate in [0.9, 0.97, 1.02, 1.1] {
            let (after, said) = found(rate, jitter).unwrap();
            let expected = STEP / (f64::abs(rate - 1.0) - RATE * rate);
            assert!(after < expected + 25.0, "{rate}: found after {after} s");
            assert!((said - 1.0 / rate).abs() < 0.02, "{rate}: {said}");
        }
    }
}
