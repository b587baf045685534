//! The statistics behind the results, apart from where the numbers come from.
//!
//! *Steady state* is that of the SNIA Solid State Storage Performance Test Specification:
//! over a window of five rounds, the greatest excursion of the rounds is at most 20 % of
//! their mean, and the least-squares line through them rises or falls by at most 10 % of
//! the mean from the window's one end to its other. The specification's rounds are a
//! minute each; ours are a fifth of the measurement, and the report says how long.
//!
//! *Little's law*: mean number in flight = rate × mean latency, whatever the
//! distributions. A closed loop keeps clients × jobs × depth in flight, so a result far
//! from that did not do what was asked: below it the generator could not keep its queues
//! full, above it rate or latency is wrong.

use serde::{Deserialize, Serialize};

/// Rounds of the steady-state window.
pub const ROUNDS: usize = 5;
/// Greatest excursion of a steady window, as a share of its mean.
pub const MAX_RANGE: f64 = 0.20;
/// Greatest excursion of its fitted line, as a share of its mean.
pub const MAX_SLOPE: f64 = 0.10;
/// Tolerance between operations in flight and those asked for.
/// Estimated: a tenth covers the edges of a short measurement.
const LITTLE_TOLERANCE: f64 = 0.10;

/// Middle and extremes of repeated measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median of the values.
    pub median: f64,
    /// The least of the values.
    pub least: f64,
    /// The greatest of the values.
    pub greatest: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// Returns the summary of these values; `None` when there are none.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, greatest) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let median = if sorted.len() % 2 == 1 {
            upper
        } else {
            (sorted.get(sorted.len() / 2 - 1)? + upper) / 2.0
        };
        Some(Self {
            median,
            least,
            greatest,
            count: sorted.len(),
        })
    }

    /// Half the distance of the extremes, as a share of the median.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.greatest - self.least) / 2.0 / self.median
        }
    }

    /// The ratio of this to `base`: the medians', and the range it can have taken from
    /// the extremes of both.
    pub fn ratio_to(&self, base: &Self) -> Option<Self> {
        if base.median <= 0.0 || base.least <= 0.0 {
            return None;
        }
        Some(Self {
            median: self.median / base.median,
            least: self.least / base.greatest,
            greatest: self.greatest / base.least,
            count: self.count.min(base.count),
        })
    }
}

/// Steadiness of a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Seconds of each of its rounds.
    pub round_s: f64,
    /// Greatest excursion, as a share of the mean.
    pub range: f64,
    /// Excursion of the fitted line, as a share of the mean.
    pub slope: f64,
    /// Both are within the limits.
    pub steady: bool,
}

impl Steady {
    /// Judges the last [`ROUNDS`] rounds; `None` when there are fewer, or nothing was done.
    pub fn from_rounds(rounds: &[f64], round_s: f64) -> Option<Self> {
        let window = rounds.get(rounds.len().checked_sub(ROUNDS)?..)?;
        let n = window.len() as f64;
        let mean = window.iter().sum::<f64>() / n;
        if mean <= 0.0 {
            return None;
        }
        let least = window.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = window.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Least squares over x = 0, 1, …, n − 1.
        let mid = (n - 1.0) / 2.0;
        let (mut xy, mut xx) = (0.0, 0.0);
        for (i, y) in window.iter().enumerate() {
            let x = i as f64 - mid;
            xy += x * (y - mean);
            xx += x * x;
        }
        let range = (greatest - least) / mean;
        let slope = (xy / xx * (n - 1.0)).abs() / mean;
        Some(Self {
            round_s,
            range,
            slope,
            steady: range <= MAX_RANGE && slope <= MAX_SLOPE,
        })
    }

    /// Judges a measurement from cumulative counts: `(seconds, count)`, in order. It is
    /// cut into [`ROUNDS`] rounds of equal length; counts in between are interpolated.
    pub fn of_cumulative(points: &[(f64, f64)]) -> Option<Self> {
        let (end, _) = *points.last()?;
        if points.len() < ROUNDS || end <= 0.0 {
            return None;
        }
        let round = end / ROUNDS as f64;
        let at = |t: f64| {
            let mut before = (0.0, 0.0);
            for &(s, n) in points {
                if s >= t {
                    let share = if s > before.0 {
                        (t - before.0) / (s - before.0)
                    } else {
                        1.0
                    };
                    return before.1 + share * (n - before.1);
                }
                before = (s, n);
            }
            before.1
        };
        let rounds: Vec<f64> = (0..ROUNDS)
            .map(|i| (at(round * (i + 1) as f64) - at(round * i as f64)) / round)
            .collect();
        Self::from_rounds(&rounds, round)
    }
}

/// The self-check by Little's law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Little {
    /// Rate × mean latency.
    pub in_flight: f64,
    /// Operations that the settings keep in flight; `None` in an open loop, where it follows.
    pub asked: Option<f64>,
    /// True if they agree to within a tenth, or one in flight.
    pub agrees: bool,
}

impl Little {
    /// Compares the measured with what was asked.
    pub fn new(in_flight: f64, asked: Option<f64>) -> Self {
        let agrees = asked.is_none_or(|n| {
            n > 0.0 && (in_flight / n - 1.0).abs() <= LITTLE_TOLERANCE.max(1.0 / n)
        });
        Self {
            in_flight,
            asked,
            agrees,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_extremes() {
        let s = Spread::from_values(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((s.median, s.least, s.greatest, s.count), (2.0, 1.0, 3.0, 3));
        assert_eq!(s.relative(), 0.5);
        assert_eq!(Spread::from_values(&[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::from_values(&[]), None);
        let base = Spread::from_values(&[2.0, 4.0, 3.0]).unwrap();
        let ratio = Spread::from_values(&[6.0, 5.0, 9.0])
            .unwrap()
            .ratio_to(&base)
            .unwrap();
        assert_eq!(
            (ratio.median, ratio.least, ratio.greatest),
            (2.0, 1.25, 4.5)
        );
        assert_eq!(base.ratio_to(&Spread::from_values(&[0.0]).unwrap()), None);
    }

    /// Series with excursions that can be computed by hand.
    #[test]
    fn steady_state_is_judged_as_the_specification_does() {
        // Flat but for noise of ±4 %: range 8 %, slope 0 by symmetry.
        let s = Steady::from_rounds(&[100.0, 104.0, 96.0, 104.0, 100.0], 1.0).unwrap();
        assert!((s.range - 0.08 / 1.008).abs() < 1e-12, "{s:?}");
        assert!(s.slope < 1e-12 && s.steady, "{s:?}");
        // A ramp of 3 a round: the line rises by 12 of a mean of 106, 11.3 % > 10 %.
        let s = Steady::from_rounds(&[100.0, 103.0, 106.0, 109.0, 112.0], 1.0).unwrap();
        assert!((s.slope - 12.0 / 106.0).abs() < 1e-12);
        assert!(s.range < MAX_RANGE && !s.steady, "{s:?}");
        // A ramp of 2 a round is within it: 8 of 104.
        assert!(
            Steady::from_rounds(&[100.0, 102.0, 104.0, 106.0, 108.0], 1.0)
                .unwrap()
                .steady
        );
        // One outlier in the middle has no slope but too great a range.
        let s = Steady::from_rounds(&[100.0, 100.0, 75.0, 100.0, 100.0], 1.0).unwrap();
        assert!(s.slope < 1e-12 && s.range > MAX_RANGE && !s.steady);
        // Only the last five rounds count.
        assert!(
            Steady::from_rounds(&[1.0, 50.0, 100.0, 100.0, 100.0, 100.0, 100.0], 1.0)
                .unwrap()
                .steady
        );
        assert_eq!(Steady::from_rounds(&[1.0; 4], 1.0), None);
        assert_eq!(Steady::from_rounds(&[0.0; 5], 1.0), None);
    }

    #[test]
    fn a_cumulative_series_is_cut_into_equal_rounds() {
        // 10 a second for 10 s, sampled unevenly.
        let even: Vec<(f64, f64)> = [0.7, 1.9, 3.3, 4.0, 6.5, 7.7, 10.0]
            .map(|t| (t, t * 10.0))
            .to_vec();
        let s = Steady::of_cumulative(&even).unwrap();
        assert!(
            (s.round_s - 2.0).abs() < 1e-12 && s.range < 1e-9 && s.steady,
            "{s:?}"
        );
        // Nothing in the last fifth: the rounds are 10, 10, 10, 10, 0.
        let stalled: Vec<(f64, f64)> = (1..=10)
            .map(|t| (f64::from(t), f64::from(t.min(8)) * 10.0))
            .collect();
        let s = Steady::of_cumulative(&stalled).unwrap();
        assert!((s.range - 10.0 / 8.0).abs() < 1e-9 && !s.steady, "{s:?}");
        assert_eq!(Steady::of_cumulative(&[]), None);
    }

    #[test]
    fn littles_law_finds_queues_that_were_not_full() {
        // 24 in flight: 240.02 MiB/s of 64 KiB blocks at 6.248 ms (diskspd -t8 -o3).
        let l = Little::new(240.02 * 16.0 * 0.006_248, Some(24.0));
        assert!((l.in_flight - 24.0).abs() < 0.01 && l.agrees, "{l:?}");
        assert!(!Little::new(15.0, Some(24.0)).agrees);
        assert!(!Little::new(30.0, Some(24.0)).agrees);
        assert!(Little::new(0.9, Some(1.0)).agrees);
        assert!(Little::new(7.0, None).agrees);
    }
}
