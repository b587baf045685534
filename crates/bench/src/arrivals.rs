//! Times at which the operations of an open loop are due.
//!
//! A closed loop sends the next request only after a reply: a server that stalls for a second gets
//! no requests meanwhile, and the stall shows in one latency instead of in the thousands of
//! requests that users would have sent (*coordinated omission*). An open loop fixes the times
//! beforehand, at a rate that does not depend on the replies, and counts latency from the moment an
//! operation was *due*, however late a free slot let it be sent. Where the server cannot keep up,
//! latencies grow without bound: that is the result, not a defect of it.
//!
//! Arrivals are evenly spaced or a Poisson process (exponential gaps by inversion). The
//! sum of independent Poisson processes is one again, so each connection has its own.

use crate::pattern::Rand;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Spacing of the arrivals of an open loop.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Evenly.
    Constant,
    /// As independent requests come: exponential gaps.
    Poisson,
}

/// The due times of one connection's operations, without end.
#[derive(Debug, Clone)]
pub struct Arrivals {
    spacing: Spacing,
    mean_gap_ns: f64,
    start_ns: u64,
    offset_ns: f64,
    rand: Rand,
}

impl Arrivals {
    /// Arrivals at `rate` operations a second (greater than 0) from `start_ns` on. The
    /// first one is a random part of a gap after the start, so that connections do not
    /// march in step.
    pub fn new(spacing: Spacing, rate: f64, start_ns: u64, seed: u64) -> Self {
        let mut arrivals = Self {
            spacing,
            mean_gap_ns: 1e9 / rate.max(1e-9),
            start_ns,
            offset_ns: 0.0,
            rand: Rand::new(seed),
        };
        arrivals.offset_ns = arrivals.mean_gap_ns * arrivals.fraction();
        arrivals
    }

    /// A number in (0, 1].
    fn fraction(&mut self) -> f64 {
        // 53 bits are what a double holds exactly.
        ((self.rand.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Returns the time at which the next operation is due (monotonic clock, in nanoseconds).
    pub fn due_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.offset_ns as u64)
    }

    /// Moves on to the operation after the next one.
    pub fn advance(&mut self) {
        self.offset_ns += match self.spacing {
            Spacing::Constant => self.mean_gap_ns,
            Spacing::Poisson => -self.fraction().ln() * self.mean_gap_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(spacing: Spacing, n: usize) -> Vec<f64> {
        let mut a = Arrivals::new(spacing, 1000.0, 5_000, 42);
        let mut last = a.due_ns();
        (0..n)
            .map(|_| {
                a.advance();
                let due = a.due_ns();
                let gap = (due - last) as f64;
                last = due;
                gap
            })
            .collect()
    }

    #[test]
    fn the_rate_is_kept_and_the_gaps_are_of_their_kind() {
        let even = gaps(Spacing::Constant, 1000);
        assert!(even.iter().all(|g| (999_999.0..=1_000_001.0).contains(g)));
        let n = 100_000;
        let random = gaps(Spacing::Poisson, n);
        let mean = random.iter().sum::<f64>() / n as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
        // Exponential: the deviation equals the mean, and 1/e of the gaps are longer.
        let variance = random.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03);
        let longer = random.iter().filter(|g| **g > mean).count() as f64 / n as f64;
        assert!((longer - (-1f64).exp()).abs() < 0.01, "{longer}");
    }

    #[test]
    fn connections_do_not_start_in_step() {
        let first = |seed| Arrivals::new(Spacing::Constant, 1.0, 0, seed).due_ns();
        assert_ne!(first(1), first(2));
        assert!(first(1) <= 1_000_000_000);
    }
}
