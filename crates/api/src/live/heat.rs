//! Histograms of latencies over time: what a heat map shows.

use std::collections::VecDeque;
use weir_base::limits::api::LIVE_HEAT_COLUMNS;

/// Rows of a histogram: the first has what took less than [`FIRST_SECONDS`], each further one up to
/// twice as much as the one before, the last everything.
pub const LATENCIES: usize = 22;
/// Upper bound of the first row, in seconds.
pub const FIRST_SECONDS: f64 = 16_384e-9;

/// Numbers of operations, by latency.
pub type Latencies = [u32; LATENCIES];

/// Steps of a logarithmic scale to a doubling: a number is kept to within 5 %.
const STEPS: f64 = 8.0;
/// Columns by which a grid grows.
const GROWTH: usize = 30;

/// A column as it is kept: numbers on a logarithmic scale.
#[derive(Clone, Copy)]
struct Kept {
    /// Seconds since 1970 of its last second.
    at: u32,
    numbers: [u8; LATENCIES],
}

/// Returns a number as it is kept.
fn pack(number: u32) -> u8 {
    // A conversion to integers saturates.
    ((1.0 + f64::from(number)).log2() * STEPS).round() as u8
}

fn unpack(kept: u8) -> u32 {
    ((f64::from(kept) / STEPS).exp2() - 1.0).round() as u32
}

/// Columns of one width, oldest first; those without an operation take no place.
pub(super) struct Grid {
    /// Seconds of a column.
    step: u64,
    columns: VecDeque<Kept>,
    sum: Latencies,
}

impl Grid {
    pub(super) fn new(step: u64) -> Grid {
        Grid {
            step,
            columns: VecDeque::new(),
            sum: Latencies::default(),
        }
    }

    /// Adds a second. A column ends where its step divides the time.
    pub(super) fn record(&mut self, at: u64, latencies: &Latencies) {
        for (sum, more) in self.sum.iter_mut().zip(latencies) {
            // Saturates: more than can be shown.
            *sum = sum.saturating_add(*more);
        }
        if !(at + 1).is_multiple_of(self.step) {
            return;
        }
        let from = (at + 1).saturating_sub(LIVE_HEAT_COLUMNS * self.step);
        while self.columns.front().is_some_and(|c| u64::from(c.at) < from) {
            self.columns.pop_front();
        }
        let whole = std::mem::take(&mut self.sum);
        if whole == Latencies::default() {
            if self.columns.is_empty() {
                self.columns = VecDeque::new();
            }
            return;
        }
        if self.columns.len() == self.columns.capacity() {
            self.columns.reserve_exact(GROWTH);
        }
        self.columns.push_back(Kept {
            at: u32::try_from(at).unwrap_or(u32::MAX),
            numbers: whole.map(pack),
        });
    }

    /// Returns the column that ends with a second.
    pub(super) fn at(&self, at: u64) -> Option<Latencies> {
        let place = { &self.columns }.binary_search_by_key(&at, |column| column.at.into());
        let column = self.columns.get(place.ok()?)?;
        Some(column.numbers.map(unpack))
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.capacity() * size_of::<Kept>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.sum == Latencies::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_to_within_a_twentieth() {
        for number in [0, 1, 2, 3, 10, 1000, 123_456, 1_000_000_000] {
            let back = unpack(pack(number));
            let off = (f64::from(back) - f64::from(number)).abs();
            assert!(off <= f64::from(number) * 0.05, "{number} became {back}");
        }
        assert!(unpack(pack(u32::MAX)) > 1 << 30);
    }

    #[test]
    fn columns_are_sums_of_their_seconds_and_bounded() {
        let mut grid = Grid::new(5);
        let mut one = Latencies::default();
        one[3] = 1;
        for at in 1000..1012 {
            grid.record(at, &one);
        }
        assert_eq!(grid.at(1004).unwrap()[3], 5);
        assert_eq!((grid.at(1003), grid.at(1014)), (None, None));
        assert!(!grid.is_empty());
        for at in 1012..1020 {
            grid.record(at, &Latencies::default());
        }
        // Two seconds of the third column had operations; the fourth has none.
        assert_eq!(grid.at(1014).unwrap()[3], 2);
        assert_eq!(grid.at(1019), None);
        for at in 1020..20_000 {
            grid.record(at, &one);
        }
        assert_eq!(grid.columns.len() as u64, LIVE_HEAT_COLUMNS);
        assert!(grid.bytes() < 6000, "{}", grid.bytes());
        for at in 20_000..21_000 {
            grid.record(at, &Latencies::default());
        }
        assert!(grid.is_empty() && grid.bytes() == 0);
    }
}
