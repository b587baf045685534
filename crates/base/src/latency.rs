//! Histograms of latencies, in buckets that double.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets of a histogram. The first one holds latencies below [`FIRST_BUCKET`], each
/// further one up to twice as much as the one before, the last one all others.
pub const BUCKETS: usize = 22;
/// Upper bound of the first bucket, in nanoseconds.
pub const FIRST_BUCKET: u64 = 1 << 14;

/// Returns the bucket of a latency in nanoseconds.
pub fn bucket_of(nanos: u64) -> usize {
    let doublings = u64::BITS - (nanos / FIRST_BUCKET).leading_zeros();
    (doublings as usize).min(BUCKETS - 1)
}

/// Latencies of one kind of operation until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Operations that were counted.
    pub count: u64,
    /// Sum of their latencies, in nanoseconds.
    pub nanos: u64,
    /// Numbers of operations, by latency.
    pub buckets: [u64; BUCKETS],
}

impl Latencies {
    /// Returns the number of operations that took at most so many seconds, for each bucket's upper
    /// bound. The last one is infinite.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut sum = 0;
        self.buckets
            .into_iter()
            .enumerate()
            .map(move |(at, count)| {
                sum += count;
                let bound = match at + 1 {
                    BUCKETS => f64::INFINITY,
                    _ => (FIRST_BUCKET << at) as f64 / 1e9,
                };
                (bound, sum)
            })
    }

    /// Returns the sum of the latencies in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

/// A histogram that threads add to without a lock. It suits operations of which one or a few
/// threads count some thousands a second: all write to the same memory.
#[derive(Debug, Default)]
pub struct Histogram {
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Histogram {
    /// Counts an operation that took `nanos` nanoseconds.
    pub fn record(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(nanos)) {
            bucket.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the latencies so far. Of an operation that is being counted it may include the time
    /// but not the count.
    pub fn read(&self) -> Latencies {
        let mut buckets = [0; BUCKETS];
        for (read, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *read = bucket.load(Ordering::Acquire);
        }
        Latencies {
            count: buckets.iter().sum(),
            nanos: self.nanos.load(Ordering::Relaxed),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_has_a_bucket() {
        let histogram = Histogram::default();
        for nanos in [0, FIRST_BUCKET - 1, FIRST_BUCKET, 2 * FIRST_BUCKET] {
            histogram.record(nanos);
        }
        let cumulative: Vec<(f64, u64)> = histogram.read().cumulative().collect();
        assert_eq!(cumulative[..2], [(16_384e-9, 2), (32_768e-9, 3)]);
        assert_eq!(cumulative.last(), Some(&(f64::INFINITY, 4)));
        histogram.record(1 << 60);
        let read = histogram.read();
        assert_eq!(read.count, 5);
        assert_eq!(read.nanos, 4 * FIRST_BUCKET - 1 + (1 << 60));
        assert_eq!(read.buckets[..3], [2, 1, 1]);
        assert_eq!(read.buckets[BUCKETS - 1], 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn threads_count_together() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| histogram.record(3)));
            }
        });
        let read = histogram.read();
        assert_eq!(
            (read.count, read.nanos, read.buckets[0]),
            (4000, 12_000, 4000)
        );
    }
}
