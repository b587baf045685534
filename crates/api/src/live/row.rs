//! Figures of one second or one minute, and how they are kept.

use super::heat::{Latencies, OperationTimes};
use std::fmt::Write as _;

/// Names of a row's figures, in their order.
pub const COLUMNS: [&str; 12] = [
    "readBytesPerSecond",
    "writeBytesPerSecond",
    "readOperationsPerSecond",
    "writeOperationsPerSecond",
    "otherOperationsPerSecond",
    "p50Seconds",
    "p99Seconds",
    "waitingRequests",
    "waitingBytes",
    "boundSeconds",
    "boundBy",
    "limitBytesPerSecond",
];

/// Levels of limits, as the API names them.
const LEVELS: [&str; 3] = ["POOL", "VOLUME", "CLIENT"];

/// Limits of a level, as `bindingLimit` names them.
const LIMITS: [&str; 6] = [
    "BYTES",
    "OPS",
    "READ_BYTES",
    "READ_OPS",
    "WRITE_BYTES",
    "WRITE_OPS",
];

/// Returns the number of a limit in rows, by its name; `level` counts from the pool's.
pub fn bound_by(level: usize, limit: &str) -> u8 {
    let place = LIMITS.iter().position(|n| n.eq_ignore_ascii_case(limit));
    let number = place.map_or(0, |place| 1 + level * LIMITS.len() + place);
    u8::try_from(number).unwrap_or(0)
}

/// Returns the level and the name of a limit by its number in rows.
pub fn limit_of(number: u8) -> Option<(&'static str, &'static str)> {
    let at = usize::from(number).checked_sub(1)?;
    let level = LEVELS.get(at / LIMITS.len())?;
    let limit = LIMITS.get(at % LIMITS.len())?;
    Some((level, limit))
}

/// Returns the names of all limits, at their numbers in rows.
pub fn limits() -> Vec<String> {
    let most = u8::try_from(LEVELS.len() * LIMITS.len()).unwrap_or(0);
    let name = |number| {
        limit_of(number).map_or_else(String::new, |(level, limit)| format!("{level}/{limit}"))
    };
    (0..=most).map(name).collect()
}

/// Figures of one second, or of one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// Bytes read a second.
    pub read_bytes: f64,
    /// Bytes written a second.
    pub write_bytes: f64,
    /// Reads a second.
    pub reads: f64,
    /// Writes a second.
    pub writes: f64,
    /// Operations of other kinds a second.
    pub others: f64,
    /// Latency in seconds that half of the operations did not exceed; 0 without any.
    pub p50: f64,
    /// Latency in seconds that 99 of 100 operations did not exceed; 0 without any.
    pub p99: f64,
    /// Requests that limits hold.
    pub waiting: f64,
    /// Bytes of the requests that limits hold.
    pub waiting_bytes: f64,
    /// Seconds in which a limit held something back.
    pub bound: f64,
    /// The limit that did for the longest, by [`bound_by`]; 0 for none.
    pub bound_by: u8,
    /// Limit on bytes a second in force; 0 for none.
    pub limit: f64,
    /// Numbers of operations by latency; of seconds alone, and not kept with the other figures.
    pub latencies: Latencies,
    /// Time of operations, by cause; kept like the numbers by latency.
    pub spent: OperationTimes,
}

impl Row {
    /// Returns the figures in the order of [`COLUMNS`].
    pub fn figures(&self) -> [f64; COLUMNS.len()] {
        [
            self.read_bytes,
            self.write_bytes,
            self.reads,
            self.writes,
            self.others,
            self.p50,
            self.p99,
            self.waiting,
            self.waiting_bytes,
            self.bound,
            f64::from(self.bound_by),
            self.limit,
        ]
    }

    /// Tells that nothing happened and nothing waits.
    pub fn is_idle(&self) -> bool {
        Row {
            limit: 0.0,
            ..*self
        } == Row::default()
    }

    /// Returns what it weighs among others of its kind: an operation as much as a block.
    pub(super) fn weight(&self) -> f64 {
        let operations = self.reads + self.writes + self.others;
        self.read_bytes + self.write_bytes + operations * 4096.0 + self.waiting_bytes
    }

    /// Adds another row of the same minute.
    pub(super) fn add(&mut self, next: &Row) {
        self.read_bytes += next.read_bytes;
        self.write_bytes += next.write_bytes;
        self.reads += next.reads;
        self.writes += next.writes;
        self.others += next.others;
        self.p50 = self.p50.max(next.p50);
        self.p99 = self.p99.max(next.p99);
        self.waiting += next.waiting;
        self.waiting_bytes += next.waiting_bytes;
        self.bound += next.bound;
        if next.bound_by > 0 {
            self.bound_by = next.bound_by;
        }
        if next.limit > 0.0 {
            self.limit = next.limit;
        }
    }

    /// Returns the row of a minute from the sum of so many seconds.
    pub(super) fn mean(mut self, seconds: f64) -> Row {
        for figure in [
            &mut self.read_bytes,
            &mut self.write_bytes,
            &mut self.reads,
            &mut self.writes,
            &mut self.others,
            &mut self.waiting,
            &mut self.waiting_bytes,
        ] {
            *figure /= seconds;
        }
        self
    }
}

/// Writes a figure as JSON: whole if it is large, else to six digits behind the point.
pub(super) fn write_figure(out: &mut String, figure: f64) {
    // Writing to a string cannot fail.
    let _ = match figure {
        whole if whole.fract() == 0.0 || whole >= 10_000.0 => write!(out, "{whole:.0}"),
        seconds if seconds < 1.0 => write!(out, "{}", (seconds * 1e6).round() / 1e6),
        other => write!(out, "{}", (other * 100.0).round() / 100.0),
    };
}

/// Steps of a logarithmic scale to a doubling: a figure is kept to within 0.03 %.
const STEPS: f64 = 1400.0;
/// Figures of a row but the limit that binds.
const KEPT: usize = COLUMNS.len() - 1;
/// Units to one of each figure: seconds are kept in nanoseconds.
const UNITS: [f64; KEPT] = [1.0, 1.0, 1.0, 1.0, 1.0, 1e9, 1e9, 1.0, 1.0, 1e9, 1.0];

/// A row as it is kept: figures on a logarithmic scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedRow {
    /// Seconds since 1970.
    pub(super) at: u32,
    figures: [u16; KEPT],
    bound_by: u8,
}

impl PackedRow {
    /// Packs a row of a moment.
    pub(super) fn new(at: u64, row: &Row) -> PackedRow {
        let all = row.figures();
        let [a, b, c, d, e, f, g, h, i, j, _, limit] = all;
        let mut figures = [0; KEPT];
        let wanted = [a, b, c, d, e, f, g, h, i, j, limit].into_iter().zip(UNITS);
        for (kept, (figure, unit)) in figures.iter_mut().zip(wanted) {
            // A conversion to integers saturates.
            *kept = ((1.0 + figure.max(0.0) * unit).log2() * STEPS).round() as u16;
        }
        PackedRow {
            at: u32::try_from(at).unwrap_or(u32::MAX),
            figures,
            bound_by: row.bound_by,
        }
    }

    /// Returns the row. Limits are round figures mostly, so the nearest one is taken.
    pub(super) fn row(&self) -> Row {
        let mut all = [0.0; KEPT];
        for (figure, (kept, unit)) in all.iter_mut().zip(self.figures.iter().zip(UNITS)) {
            *figure = ((f64::from(*kept) / STEPS).exp2() - 1.0).round() / unit;
        }
        let [a, b, c, d, e, f, g, h, i, j, limit] = all;
        let grid = (limit.max(1.0).log2().floor() - 10.0).exp2().max(1.0);
        let limit = (limit / grid).round() * grid;
        Row {
            read_bytes: a,
            write_bytes: b,
            reads: c,
            writes: d,
            others: e,
            p50: f,
            p99: g,
            waiting: h,
            waiting_bytes: i,
            bound: j,
            bound_by: self.bound_by,
            limit,
            latencies: Latencies::default(),
            spent: OperationTimes::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_numbers_and_names() {
        let names = limits();
        assert_eq!(names.len(), 19);
        assert_eq!((&*names[0], &*names[1]), ("", "POOL/BYTES"));
        let by = bound_by(1, "write_ops");
        assert_eq!(names[usize::from(by)], "VOLUME/WRITE_OPS");
        assert_eq!(limit_of(by), Some(("VOLUME", "WRITE_OPS")));
        assert_eq!(bound_by(1, "nothing"), 0);
        assert_eq!((limit_of(0), limit_of(19)), (None, None));
    }

    #[test]
    fn what_is_kept_is_close_to_what_was() {
        for figure in [0.0, 1.0, 7.0, 999.0, 4096.0, 268_435_456.0, 7e10] {
            let row = Row {
                read_bytes: figure,
                p99: figure / 1e9,
                limit: figure,
                bound_by: 7,
                ..Row::default()
            };
            let back = PackedRow::new(5, &row).row();
            for (was, is) in row.figures().into_iter().zip(back.figures()) {
                assert!((was - is).abs() <= was * 6e-4, "{was} became {is}");
            }
            if figure < 1000.0 {
                assert_eq!(back.read_bytes, figure);
            }
        }
        for mibps in [1.0, 20.0, 128.0, 333.0, 1000.0, 4500.0] {
            let row = Row {
                limit: mibps * f64::from(1 << 20),
                ..Row::default()
            };
            assert_eq!(PackedRow::new(5, &row).row().limit, row.limit);
        }
        let huge = Row {
            limit: 1e30,
            ..Row::default()
        };
        assert!(PackedRow::new(0, &huge).row().limit > 1e13);
        assert_eq!(size_of::<PackedRow>(), 28);
    }

    #[test]
    fn figures_are_written_as_numbers_of_json() {
        let mut out = String::new();
        for figure in [0.0, 3.0, 268_435_456.4, 0.000_123_456_7, 12.345, 0.1] {
            write_figure(&mut out, figure);
            out.push(' ');
        }
        assert_eq!(out, "0 3 268435456 0.000123 12.35 0.1 ");
        for text in out.split_whitespace() {
            assert!(serde_json::from_str::<f64>(text).is_ok());
        }
    }
}
