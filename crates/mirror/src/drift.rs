//! Compares the clock rates of two nodes.
//!
//! A primary answers reads for as long as its lease runs by its own clock, and the standby serves
//! after its promise by a different one. The margin between them allows for clocks that differ by 1
//! %. If they differ by more, a read may miss a write made at the other node, and no message would
//! show it. So the standby compares the clocks.
//!
//! Each beat contains its sending time by the primary's clock. Its arrival time by the standby's
//! clock, minus that, is the constant difference of the two clocks' zeros plus the transit time.
//! The minimum over many beats is nearly free of the transit time. If the minimum grows or shrinks
//! over time, the clocks diverge. Transit times change, and machines stall for moments. Such steps
//! stay below [`STEP`]: beyond it the connection ends and the comparison starts anew. Beats that
//! waited for a busy standby come in a burst, and say nothing ([`BURST`]).

use std::time::Duration;

/// Number of beats that a minimum is taken over.
const BEATS: u32 = 50;
/// Maximum sudden change of the difference, in seconds.
const STEP: f64 = 2.0;
/// Beats that arrive in less than this part of the time in which they were sent have waited.
const BURST: f64 = 0.1;
/// Maximum difference of the clock rates: [`crate::Timing::promise`] allows for it.
const RATE: f64 = 0.01;

/// Compares the clocks of the two ends of one connection.
#[derive(Clone, Default, Debug)]
pub struct Clocks {
    /// The end of the first beats and their minimum difference, in seconds.
    first: Option<(f64, f64)>,
    least: Option<f64>,
    /// Arrival and sending time of the first of these beats, in seconds.
    began: Option<(f64, f64)>,
    beats: u32,
}

impl Clocks {
    /// Notes a beat that was sent at `sent`, by the other clock, and arrives now. Returns the rate
    /// of the other clock, in its seconds per second of this clock, if that is too far from one.
    pub fn hear(&mut self, now: Duration, sent: Duration) -> Option<f64> {
        let now = now.as_secs_f64();
        let sent = sent.as_secs_f64();
        let difference = now - sent;
        let (arrived, begun) = *self.began.get_or_insert((now, sent));
        let least = self.least.map_or(difference, |least| least.min(difference));
        self.least = Some(least);
        self.beats += 1;
        if self.beats < BEATS {
            return None;
        }
        (self.least, self.began, self.beats) = (None, None, 0);
        if now - arrived < BURST * (sent - begun) {
            return None;
        }
        let (since, first) = *self.first.get_or_insert((now, least));
        let (passed, apart) = (now - since, least - first);
        (apart.abs() > RATE * passed + STEP).then(|| 1.0 - apart / passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates an hour of beats, by a clock of this rate, with a transit time of up to `way`
    /// seconds. Returns the time at which the clocks were found to diverge, and the reported rate.
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
        // A changed transit time, and a machine that stalled for a moment.
        assert_eq!(found(1.0, |n| if n > 400 { 1.5 } else { 0.0 }), None);
        assert_eq!(found(1.0, |n| if n % 500 == 70 { 60.0 } else { 0.0 }), None);
        // A standby that was busy for a minute, and read all beats at once then.
        let busy = |n: u32| match n {
            3..330 => f64::from(330 - n) / 5.0,
            _ => 0.0,
        };
        assert_eq!(found(1.0, busy), None);
        for rate in [0.9, 0.97, 1.02, 1.1, 5.0] {
            let (after, said) = found(rate, jitter).unwrap();
            let expected = STEP / (f64::abs(rate - 1.0) - RATE * rate);
            assert!(after < expected + 25.0, "{rate}: found after {after} s");
            assert!((said - 1.0 / rate).abs() < 0.02, "{rate}: {said}");
        }
    }
}
