//! Counts of HTTP requests, for `/metrics`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::{Pieces, histogram};

/// First status code that there is.
const FIRST: u16 = 100;
/// Number of status codes: 100 to 599.
const CODES: usize = 500;
/// Upper bounds of the histogram's buckets, in milliseconds.
const BOUNDS: [u64; 6] = [1, 5, 25, 100, 1000, 10_000];

/// Counters of replies. A reply is counted when its head is made; its body may be a stream that
/// goes on for hours.
pub(crate) struct Requests {
    codes: [AtomicU64; CODES],
    buckets: [AtomicU64; BOUNDS.len()],
    nanos: AtomicU64,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests {
            codes: [const { AtomicU64::new(0) }; CODES],
            buckets: [const { AtomicU64::new(0) }; BOUNDS.len()],
            nanos: AtomicU64::new(0),
        }
    }
}

impl Requests {
    /// Counts a request that was answered with `code` after `time`.
    pub fn record(&self, code: u16, time: Duration) {
        let place = usize::from(code.saturating_sub(FIRST));
        if let Some(count) = self.codes.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let slowest = BOUNDS
            .iter()
            .position(|bound| time <= Duration::from_millis(*bound));
        if let Some(bucket) = slowest.and_then(|at| self.buckets.get(at)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns a page of metrics with these counters at its end.
    pub fn behind(self: &Arc<Self>, page: Pieces) -> Pieces {
        let requests = Arc::clone(self);
        Box::new(page.chain(std::iter::once_with(move || requests.render())))
    }

    /// Returns the families in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut out = String::from(
            "# HELP weir_http_requests_total HTTP requests of the API, by the status of the reply.\n\
             # TYPE weir_http_requests_total counter\n",
        );
        let mut all = 0;
        for (code, count) in (FIRST..).zip(&self.codes) {
            let count = count.load(Ordering::Relaxed);
            all += count;
            if count > 0 {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "weir_http_requests_total{{code=\"{code}\"}} {count}");
            }
        }
        let mut below = 0;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BOUNDS.len() + 1);
        for (bound, count) in BOUNDS.iter().zip(&self.buckets) {
            below += count.load(Ordering::Relaxed);
            buckets.push((*bound as f64 / 1000.0, below));
        }
        buckets.push((f64::INFINITY, all.max(below)));
        let sum = self.nanos.load(Ordering::Relaxed) as f64 / 1e9;
        let help = "Time from the request's head to the reply's head.";
        histogram(
            &mut out,
            ("weir_http_seconds", help),
            buckets.into_iter(),
            sum,
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_status_and_time() {
        let requests = Requests::default();
        requests.record(200, Duration::from_millis(1));
        requests.record(200, Duration::from_millis(20));
        requests.record(503, Duration::from_secs(60));
        let page = requests.render();
        for line in [
            "weir_http_requests_total{code=\"200\"} 2\n",
            "weir_http_requests_total{code=\"503\"} 1\n",
            "weir_http_seconds_bucket{le=\"0.001\"} 1\n",
            "weir_http_seconds_bucket{le=\"0.025\"} 2\n",
            "weir_http_seconds_bucket{le=\"10\"} 2\n",
            "weir_http_seconds_bucket{le=\"+Inf\"} 3\n",
            "weir_http_seconds_sum 60.021\n",
            "weir_http_seconds_count 3\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        assert!(!page.contains("404"));
    }
}
