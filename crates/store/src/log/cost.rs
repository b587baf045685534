//! Cost of the partner: the time that replies waited for it beyond this side's own log, over the
//! last minute.
//!
//! Both logs are awaited at the same time. So the cost of a batch is the time between its own write
//! and its acknowledgement: nothing, if the acknowledgement came first. Batches are weighted by
//! their records. Sums are kept for twelve spans of five seconds each, the oldest of which is
//! dropped as a whole; so a minute is 55 to 60 seconds.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::latency::{Histogram, Latencies};
use weir_base::limits::mirror::MAX_MEASURED_BATCHES;
use weir_base::{Clock, Lsn};

/// Length of a span; twelve spans make a minute.
const SPAN: Duration = Duration::from_secs(5);
const SPANS: u32 = 12;
/// Number of histogram buckets. The first one holds times up to a microsecond; then each doubling
/// has four, up to 16 s.
const BUCKETS: usize = 1 + 4 * 24;

/// Waits for the partner in the last minute.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PartnerCost {
    /// Records that the partner has acknowledged while replies waited for it.
    pub records: u64,
    /// Mean time that they waited for the partner beyond this side's log.
    pub mean: Duration,
    /// 99th percentile of that time, to within a fifth.
    pub p99: Duration,
}

/// Writes of a log since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogWrites {
    /// Batches written to the device.
    pub batches: u64,
    /// Sum of the times that their writes took on this side's device, in nanoseconds.
    pub nanos: u64,
}

impl LogWrites {
    /// Returns the mean time of a write since `before`; `None` if there was none.
    pub fn mean_since(self, before: LogWrites) -> Option<Duration> {
        let (batches, nanos) = (self.batches - before.batches, self.nanos - before.nanos);
        nanos.checked_div(batches).map(Duration::from_nanos)
    }
}

/// Measures the partner's cost with a clock; without a clock it measures nothing.
#[derive(Default)]
pub(super) struct CostMeter {
    clock: OnceLock<Arc<dyn Clock>>,
    state: Mutex<State>,
    writes: Histogram,
}

#[derive(Default)]
struct State {
    /// Batches that are written here and not acknowledged: the last record, the number of records,
    /// and the time of the write.
    waiting: VecDeque<(Lsn, u64, Duration)>,
    /// The last written record, if replies waited for the partner then; and the last acknowledged
    /// one.
    last: Option<Lsn>,
    acknowledged: Lsn,
    /// Spans, the newest last.
    spans: VecDeque<Span>,
}

struct Span {
    begun: Duration,
    records: u64,
    nanos: u128,
    buckets: [u64; BUCKETS],
}

fn bucket(wait: Duration) -> usize {
    let micros = wait.as_nanos() as f64 / 1000.0;
    match micros > 1.0 {
        true => ((micros.log2() * 4.0).ceil() as usize).min(BUCKETS - 1),
        false => 0,
    }
}

/// Returns the largest time that a bucket holds; zero for the first.
fn most(bucket: usize) -> Duration {
    match bucket {
        0 => Duration::ZERO,
        _ => Duration::from_secs_f64((bucket as f64 / 4.0).exp2() / 1e6),
    }
}

impl CostMeter {
    /// Starts measuring with `clock`. Only the first call counts.
    pub fn begin(&self, clock: Arc<dyn Clock>) {
        let _ = self.clock.set(clock);
    }

    /// Returns the current time, if there is a clock.
    pub fn current_time(&self) -> Option<Duration> {
        self.clock.get().map(|clock| clock.monotonic())
    }

    /// Notes that a batch begun at `begun` is written. Called by one thread.
    pub fn wrote(&self, begun: Option<Duration>) {
        if let (Some(begun), Some(now)) = (begun, self.current_time()) {
            self.writes.record((now - begun).as_nanos() as u64);
        }
    }

    /// Returns the writes so far. For a batch in the course of being noted it may include the time
    /// but not the count.
    pub fn writes(&self) -> LogWrites {
        let Latencies { count, nanos, .. } = self.writes.read();
        LogWrites {
            batches: count,
            nanos,
        }
    }

    /// Returns the latencies of the writes so far.
    pub fn latencies(&self) -> Latencies {
        self.writes.read()
    }

    /// Runs `f` with the state and the time. The clock is read under the lock, because two threads
    /// report, and their times have to be in order.
    fn with<T>(&self, f: impl FnOnce(&mut State, Duration) -> T) -> Option<T> {
        let clock = self.clock.get()?;
        let mut state = self.state.lock();
        let now = clock.monotonic();
        Some(f(&mut state, now))
    }

    /// Notes that this side's log has everything up to this record, and that replies wait for the
    /// partner.
    pub fn written(&self, lsn: Lsn) {
        self.with(|state, now| state.written(now, lsn));
    }

    /// Notes that the partner has acknowledged everything up to this record.
    pub fn acknowledged(&self, lsn: Lsn) {
        self.with(|state, now| state.acknowledged(now, lsn));
    }

    /// Notes that replies do not wait for the partner any more.
    pub fn alone(&self) {
        self.state.lock().alone();
    }

    pub fn minute(&self) -> PartnerCost {
        self.with(State::minute).unwrap_or_default()
    }
}

impl State {
    fn written(&mut self, now: Duration, lsn: Lsn) {
        let Some(before) = self.last.replace(lsn) else {
            // The beginning of the first batch is unknown.
            return;
        };
        let records = lsn.0 - before.0;
        if lsn <= self.acknowledged {
            self.count(now, records, Duration::ZERO);
        } else if self.waiting.len() < MAX_MEASURED_BATCHES {
            self.waiting.push_back((lsn, records, now));
        }
    }

    fn acknowledged(&mut self, now: Duration, lsn: Lsn) {
        self.acknowledged = self.acknowledged.max(lsn);
        while let Some(&(last, records, at)) = self.waiting.front()
            && last <= lsn
        {
            self.waiting.pop_front();
            self.count(now, records, now - at);
        }
    }

    fn alone(&mut self) {
        self.waiting.clear();
        self.last = None;
    }

    fn count(&mut self, now: Duration, records: u64, wait: Duration) {
        self.pass(now);
        if let Some(span) = self.spans.back_mut() {
            span.records += records;
            span.nanos += u128::from(records) * wait.as_nanos();
            if let Some(count) = span.buckets.get_mut(bucket(wait)) {
                *count += records;
            }
        }
    }

    /// Begins another span if it is time, and drops those older than a minute.
    fn pass(&mut self, now: Duration) {
        if self
            .spans
            .back()
            .is_some_and(|span| now < span.begun + SPAN)
        {
            return;
        }
        self.spans.retain(|span| now < span.begun + SPAN * SPANS);
        self.spans.push_back(Span {
            begun: now,
            records: 0,
            nanos: 0,
            buckets: [0; BUCKETS],
        });
    }

    fn minute(&mut self, now: Duration) -> PartnerCost {
        self.pass(now);
        let records: u64 = self.spans.iter().map(|span| span.records).sum();
        let nanos: u128 = self.spans.iter().map(|span| span.nanos).sum();
        let Some(mean) = nanos.checked_div(u128::from(records)) else {
            return PartnerCost::default();
        };
        let mut below = 0;
        let p99 = (0..BUCKETS).find(|at| {
            let of = |span: &Span| span.buckets.get(*at).copied().unwrap_or(0);
            below += self.spans.iter().map(of).sum::<u64>();
            below * 100 >= records * 99
        });
        PartnerCost {
            records,
            mean: Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)),
            p99: p99.map_or(Duration::ZERO, most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_batch_costs_what_its_acknowledgement_comes_later_than_its_write() {
        let mut cost = State::default();
        cost.written(ms(0), Lsn(10));
        let none = PartnerCost::default();
        assert_eq!(cost.minute(ms(0)), none, "where it began is not known");
        // Ten records wait for 4 ms, thirty for 2 ms, and one for nothing.
        cost.written(ms(0), Lsn(20));
        cost.written(ms(2), Lsn(50));
        cost.acknowledged(ms(3), Lsn(19));
        cost.acknowledged(ms(4), Lsn(51));
        cost.written(ms(4), Lsn(51));
        let minute = cost.minute(ms(4));
        assert_eq!(minute.records, 41);
        assert_eq!(minute.mean, Duration::from_nanos(100_000_000 / 41));
        assert!(minute.p99 >= ms(4) && minute.p99 < ms(5), "{minute:?}");
        // Records without a waiter do not count.
        cost.written(ms(5), Lsn(60));
        cost.alone();
        cost.acknowledged(ms(6), Lsn(60));
        assert_eq!(cost.minute(ms(6)).records, 41);
    }

    #[test]
    fn a_mean_is_of_what_was_written_in_between() {
        let clock = Arc::new(weir_base::ManualClock::default());
        let meter = CostMeter::default();
        meter.wrote(meter.current_time());
        assert_eq!(meter.writes(), LogWrites::default(), "without a clock");
        meter.begin(Arc::clone(&clock) as _);
        let write = |millis| {
            let begun = meter.current_time();
            clock.advance(ms(millis));
            meter.wrote(begun);
        };
        write(9);
        let before = meter.writes();
        assert_eq!(before.mean_since(before), None);
        write(1);
        write(3);
        assert_eq!(meter.writes().mean_since(before), Some(ms(2)));
    }

    #[test]
    fn both_report_from_threads_of_their_own() {
        let meter = CostMeter::default();
        assert_eq!(meter.minute(), PartnerCost::default(), "without a clock");
        meter.begin(Arc::new(weir_base::SystemClock::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=60_000).for_each(|n| meter.written(Lsn(n))));
            scope.spawn(|| (1..=60_000).for_each(|n| meter.acknowledged(Lsn(n))));
        });
        meter.acknowledged(Lsn(60_000));
        assert_eq!(meter.minute().records, 59_999);
    }

    #[test]
    fn after_a_minute_nothing_of_it_is_left() {
        let mut cost = State::default();
        for n in 1..=100 {
            cost.written(ms(1000 * n), Lsn(n));
            cost.acknowledged(ms(1000 * n + 1), Lsn(n));
        }
        let minute = cost.minute(ms(100_500));
        assert!((55..=60).contains(&minute.records), "{minute:?}");
        assert_eq!(minute.mean, ms(1));
        assert_eq!(cost.minute(ms(161_000)), PartnerCost::default());
    }

    #[test]
    fn a_wait_is_in_the_bucket_that_holds_it() {
        for micros in [2, 3, 100, 999, 1000, 12_345, 1_000_000, 10_000_000] {
            let wait = Duration::from_micros(micros);
            let at = bucket(wait);
            assert!(wait <= most(at).mul_f64(1.000_001), "{wait:?}");
            assert!(wait > most(at - 1), "{wait:?}");
        }
        assert_eq!([0, 1].map(|n| bucket(Duration::from_micros(n))), [0, 0]);
        assert_eq!(bucket(Duration::from_secs(1000)), BUCKETS - 1);
    }
}
