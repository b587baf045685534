//! Columns of a heat map: histograms of latencies, and the causes that operations waited for.

use std::collections::VecDeque;
use weir_base::limits::api::LIVE_HEAT_COLUMNS;

/// Rows of a histogram: the first has what took less than [`FIRST_SECONDS`], each further one up to
/// twice as much as the one before, the last everything.
pub const LATENCIES: usize = 22;
/// Upper bound of the first row, in seconds.
pub const FIRST_SECONDS: f64 = 16_384e-9;

/// Numbers of operations, by latency.
pub type Latencies = [u32; LATENCIES];

/// Causes of waits, as responses name them. Levels of limits come first, from the pool's.
pub const WAITS: [&str; 6] = ["pool", "volume", "client", "log", "device", "claim"];

/// Operations of a span and their time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperationTimes {
    /// Operations that were answered.
    pub count: f32,
    /// Sum of their latencies.
    pub operations: f32,
    /// Part of it in which they waited, by cause; a wait counts when it is over.
    pub waits: [f32; WAITS.len()],
}

impl OperationTimes {
    /// Adds another span.
    pub fn add(&mut self, more: &OperationTimes) {
        self.count += more.count;
        self.operations += more.operations;
        for (sum, more) in self.waits.iter_mut().zip(more.waits) {
            *sum += more;
        }
    }
}

/// A column: operations by latency, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Column {
    /// Numbers of operations, by latency.
    pub numbers: Latencies,
    /// Time of the operations, by cause.
    pub spent: OperationTimes,
}

/// Steps of a logarithmic scale to a doubling: a number is kept to within 5 %.
const STEPS: f64 = 8.0;
/// Steps to a doubling of times and exact numbers, kept to within 0.1 %, in millionths.
const TIME_STEPS: f64 = 1000.0;
/// Columns by which a grid grows.
const GROWTH: usize = 30;

/// A column as it is kept: numbers on a logarithmic scale.
#[derive(Clone, Copy)]
struct PackedColumn {
    /// Seconds since 1970 of its last second.
    at: u32,
    numbers: [u8; LATENCIES],
    count: u16,
    operations: u16,
    waits: [u16; WAITS.len()],
}

/// Returns a number as it is kept.
fn pack(number: u32) -> u8 {
    // A conversion to integers saturates.
    ((1.0 + f64::from(number)).log2() * STEPS).round() as u8
}

fn unpack(kept: u8) -> u32 {
    ((f64::from(kept) / STEPS).exp2() - 1.0).round() as u32
}

/// Returns a figure as it is kept.
fn pack_time(seconds: f32) -> u16 {
    // A conversion to integers saturates, beyond centuries.
    ((1.0 + f64::from(seconds.max(0.0)) * 1e6).log2() * TIME_STEPS).round() as u16
}

fn unpack_time(kept: u16) -> f32 {
    (((f64::from(kept) / TIME_STEPS).exp2() - 1.0).round() / 1e6) as f32
}

/// Columns of one width, oldest first; those without an operation take no place.
pub(super) struct Grid {
    /// Seconds of a column.
    step: u64,
    columns: VecDeque<PackedColumn>,
    sum: Column,
}

impl Grid {
    pub(super) fn new(step: u64) -> Grid {
        Grid {
            step,
            columns: VecDeque::new(),
            sum: Column::default(),
        }
    }

    /// Adds a second. A column ends where its step divides the time.
    pub(super) fn record(&mut self, at: u64, latencies: &Latencies, spent: &OperationTimes) {
        self.sum.spent.add(spent);
        for (sum, more) in self.sum.numbers.iter_mut().zip(latencies) {
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
        if whole == Column::default() {
            if self.columns.is_empty() {
                self.columns = VecDeque::new();
            }
            return;
        }
        if self.columns.len() == self.columns.capacity() {
            self.columns.reserve_exact(GROWTH);
        }
        self.columns.push_back(PackedColumn {
            at: u32::try_from(at).unwrap_or(u32::MAX),
            numbers: whole.numbers.map(pack),
            count: pack_time(whole.spent.count),
            operations: pack_time(whole.spent.operations),
            waits: whole.spent.waits.map(pack_time),
        });
    }

    /// Returns the column that ends with a second.
    pub(super) fn find_column(&self, at: u64) -> Option<Column> {
        let place = { &self.columns }.binary_search_by_key(&at, |column| column.at.into());
        let column = self.columns.get(place.ok()?)?;
        Some(Column {
            numbers: column.numbers.map(unpack),
            spent: OperationTimes {
                count: unpack_time(column.count),
                operations: unpack_time(column.operations),
                waits: column.waits.map(unpack_time),
            },
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.capacity() * size_of::<PackedColumn>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.sum == Column::default()
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
        for seconds in [0.0, 1e-6, 0.000_25, 0.5, 90.0, 1e6, 1e8] {
            let back = unpack_time(pack_time(seconds));
            assert!(
                (back - seconds).abs() <= seconds * 1e-3,
                "{seconds} became {back}"
            );
        }
        assert_eq!(pack_time(-1.0), 0);
    }

    #[test]
    fn columns_are_sums_of_their_seconds_and_bounded() {
        let mut grid = Grid::new(5);
        let mut one = Latencies::default();
        one[3] = 1;
        let mut spent = OperationTimes {
            count: 1.0,
            operations: 0.5,
            ..OperationTimes::default()
        };
        spent.waits[3] = 0.125;
        for at in 1000..1012 {
            grid.record(at, &one, &spent);
        }
        let column = grid.find_column(1004).unwrap();
        assert_eq!(column.numbers[3], 5);
        assert!((column.spent.count - 5.0).abs() < 0.01);
        assert!((column.spent.operations - 2.5).abs() < 0.01);
        assert!((column.spent.waits[3] - 0.625).abs() < 0.003);
        assert_eq!(column.spent.waits[2], 0.0);
        assert_eq!(
            (grid.find_column(1003), grid.find_column(1014)),
            (None, None)
        );
        assert!(!grid.is_empty());
        for at in 1012..1020 {
            grid.record(at, &Latencies::default(), &OperationTimes::default());
        }
        // Two seconds of the third column had operations; the fourth has none.
        assert_eq!(grid.find_column(1014).unwrap().numbers[3], 2);
        assert_eq!(grid.find_column(1019), None);
        for at in 1020..20_000 {
            grid.record(at, &one, &spent);
        }
        assert_eq!(grid.columns.len() as u64, LIVE_HEAT_COLUMNS);
        assert!(grid.bytes() < 6000, "{}", grid.bytes());
        for at in 20_000..21_000 {
            grid.record(at, &Latencies::default(), &OperationTimes::default());
        }
        assert!(grid.is_empty() && grid.bytes() == 0);
    }
}
