//! Rates, windows and latencies of completions.

use super::load::Done;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Unit of a limit, and so of what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of file data.
    Bytes,
    /// Operations, of any size.
    Ops,
}

impl Unit {
    /// Returns how much a completion counts.
    pub fn amount(self, done: &Done) -> u64 {
        match self {
            Unit::Bytes => u64::from(done.bytes),
            Unit::Ops => 1,
        }
    }
}

/// Those within a stretch of time.
pub fn within(done: &[Done], from: u64, to: u64) -> &[Done] {
    let start = done.partition_point(|d| d.at < from);
    let end = done.partition_point(|d| d.at < to);
    done.get(start..end).unwrap_or_default()
}

/// All flows' completions in the order of time.
pub fn merged(flows: &[Vec<Done>]) -> Vec<Done> {
    let mut all: Vec<Done> = flows.iter().flatten().copied().collect();
    all.sort_by_key(|done| done.at);
    all
}

/// The rate a second between two moments. It runs from one completion to another, the last before
/// either moment, so that a request that straddles a border does not count as an error of the rate:
/// with requests of 1 MiB at 1 MiB/s one more or less is a tenth of ten seconds.
pub fn rate(done: &[Done], unit: Unit, from: u64, to: u64) -> f64 {
    let inside = within(done, from, to);
    let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
        return 0.0;
    };
    // Those that came in one batch with the first are counted with what was before.
    let sum: u64 = inside
        .iter()
        .filter(|d| d.at > first.at)
        .map(|d| unit.amount(d))
        .sum();
    sum as f64 * SECOND as f64 / (last.at - first.at).max(1) as f64
}

/// Units in each window of `window` nanoseconds.
pub fn windows(done: &[Done], unit: Unit, from: u64, to: u64, window: u64) -> Vec<u64> {
    let count = to.saturating_sub(from) / window.max(1);
    let mut sums = vec![0; count as usize];
    for d in within(done, from, from + count * window) {
        if let Some(sum) = sums.get_mut(((d.at - from) / window) as usize) {
            *sum += unit.amount(d);
        }
    }
    sums
}

/// The most units that any window of this length holds.
pub fn densest(done: &[Done], unit: Unit, from: u64, to: u64, window: u64) -> u64 {
    let inside = within(done, from, to);
    let (mut most, mut sum, mut start) = (0, 0, 0);
    for (end, d) in inside.iter().enumerate() {
        sum += unit.amount(d);
        while let Some(first) = inside
            .get(start)
            .filter(|first| start < end && d.at - first.at >= window)
        {
            sum -= unit.amount(first);
            start += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Standard deviation relative to the mean.
pub fn variation(values: &[u64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<u64>() as f64 / n;
    let variance = values
        .iter()
        .map(|v| (*v as f64 - mean).powi(2))
        .sum::<f64>()
        / n;
    variance.sqrt() / mean.max(f64::MIN_POSITIVE)
}

/// A quantile of the latencies, in microseconds.
pub fn latency(done: &[Done], quantile: f64) -> f64 {
    let mut all: Vec<u32> = done.iter().map(|d| d.took).collect();
    if all.is_empty() {
        return 0.0;
    }
    let at = ((all.len() - 1) as f64 * quantile) as usize;
    let (_, value, _) = all.select_nth_unstable(at);
    f64::from(*value) / 1000.0
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// A confidence interval of the median of the distribution that the values are a sample of: the
/// narrowest interval between two of them, counted alike from both ends, that is right with a
/// probability of at least 95 % whatever the distribution is. Of fewer than six values all.
pub fn middle(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    // So many values are below the median with this probability: as heads among n coins.
    let mut exactly = 0.5f64.powi(n as i32);
    let (mut below, mut inner) = (exactly, 0);
    for k in 1..n / 2 {
        if below > 0.025 {
            break;
        }
        inner = k - 1;
        exactly *= (n + 1 - k) as f64 / k as f64;
        below += exactly;
    }
    let at = |k: usize| values.get(k).copied().unwrap_or(0.0);
    [at(inner), at(n.saturating_sub(1 + inner))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(every: u64, bytes: u32, count: u64) -> Vec<Done> {
        (0..count)
            .map(|n| Done {
                at: n * every,
                took: 1000,
                bytes,
            })
            .collect()
    }

    #[test]
    fn a_steady_rate_is_told_exactly_however_large_the_requests() {
        let done = steady(SECOND, 1 << 20, 10);
        assert_eq!(
            rate(&done, Unit::Bytes, SECOND / 2, 9 * SECOND - 1),
            f64::from(1 << 20)
        );
        assert_eq!(rate(&done, Unit::Ops, 0, 10 * SECOND), 1.0);
        assert_eq!(
            windows(&done, Unit::Ops, 0, 10 * SECOND, 2 * SECOND),
            [2; 5]
        );
        assert_eq!(variation(&[2; 5]), 0.0);
        assert_eq!(variation(&[1, 3]), 0.5);
    }

    #[test]
    fn the_densest_window_is_found_wherever_it_lies() {
        let mut done = steady(10, 1, 100);
        done.extend((0..5).map(|n| Done {
            at: 432 + n,
            took: 0,
            bytes: 1,
        }));
        done.sort_by_key(|d| d.at);
        assert_eq!(densest(&done, Unit::Bytes, 0, 1000, 100), 15);
        assert_eq!(densest(&done, Unit::Bytes, 500, 1000, 100), 10);
    }

    #[test]
    fn quantiles() {
        let done: Vec<Done> = (1..=100u32)
            .rev()
            .map(|n| Done {
                at: 0,
                took: n * 1000,
                bytes: 0,
            })
            .collect();
        assert_eq!(latency(&done, 0.99), 99.0);
        assert_eq!(latency(&[], 0.99), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_the_tables() {
        let of = |n: u32| middle((1..=n).rev().map(f64::from).collect());
        // The ranks of tables of the sign test (two-sided, 5 %).
        assert_eq!(of(3), [1.0, 3.0]);
        assert_eq!(of(6), [1.0, 6.0]);
        assert_eq!(of(9), [2.0, 8.0]);
        assert_eq!(of(15), [4.0, 12.0]);
        assert_eq!(of(25), [8.0, 18.0]);
        assert_eq!(of(100), [40.0, 61.0]);
        assert_eq!(middle(Vec::new()), [0.0, 0.0]);
    }
}
