//! Cost of each target over the first one, as the DataKeeper article tables it:
//! throughput and mean latency with and without the mirror, and the overhead.
//!
//! Overhead is a share of the baseline: of its throughput lost, and added to its latency.
//! (The article divides latencies by the mirrored figure, which turns a doubling into 50 %.)

use super::outcome::{Cell, OperationClass, Point, Run};
use super::spec::Unit;
use super::stats::Spread;
use super::units::thousands;
use super::view::Row;

/// A table of overheads.
pub struct Overhead {
    /// Heading of the table.
    pub heading: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// A row a block size and target.
    pub rows: Vec<Row>,
}

/// Share of the baseline's rate that is lost, in percent.
pub fn of_rate(baseline: f64, other: f64) -> f64 {
    (baseline - other) / baseline * 100.0
}

/// Share of the baseline's latency that is added, in percent.
pub fn of_latency(baseline: f64, other: f64) -> f64 {
    (other - baseline) / baseline * 100.0
}

/// The tables; none unless the definition names the first target a baseline and there
/// are others.
pub fn tables(run: &Run) -> Vec<Overhead> {
    if !run.definition.baseline || run.targets.len() < 2 {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for (number, table) in run.definition.tables.iter().enumerate() {
        let points: Vec<Point> = super::plan::points(&run.definition, 1)
            .into_iter()
            .filter(|p| p.table == number)
            .collect();
        for point in points {
            let which = if point.read_percent == 100 {
                OperationClass::Read
            } else {
                OperationClass::Write
            };
            let mixed = match point.read_percent {
                _ if table.mixes.len() == 1 => "",
                100 => "reads ",
                0 => "writes ",
                _ => "writes of a mix ",
            };
            let measured = |target: usize| -> Option<(Spread, Spread)> {
                let cell: &Cell = run.cell(&Point { target, ..point })?;
                Some((
                    cell.rate(which, Unit::Throughput)?,
                    cell.spread(|r| r.side(which).map(|s| s.mean_us / 1000.0))?,
                ))
            };
            let Some(base) = measured(0) else { continue };
            for (target, facts) in run.targets.iter().enumerate() {
                let Some((rate, ms)) = measured(target) else {
                    continue;
                };
                let percent = |v: f64| {
                    if target == 0 {
                        String::new()
                    } else {
                        format!("{v:.2} %")
                    }
                };
                rows.push(Row {
                    label: format!("{} {mixed}{}", table.block_size, facts.label),
                    main: true,
                    cells: vec![
                        thousands(rate.median),
                        percent(of_rate(base.0.median, rate.median)),
                        format!("{:.3}", ms.median),
                        percent(of_latency(base.1.median, ms.median)),
                    ],
                });
            }
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let baseline = run
        .targets
        .first()
        .map(|t| t.label.clone())
        .unwrap_or_default();
    vec![Overhead {
        heading: format!("Overhead over {baseline}"),
        columns: [
            "MiB/s",
            "throughput lost",
            "mean latency, ms",
            "latency added",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The article's own figures: throughput overheads come out as printed; its latency
    /// overheads only when divided by the mirrored latency.
    #[test]
    fn overheads_are_those_of_the_article_where_it_divides_by_the_baseline() {
        for (baseline, mirror, printed) in [
            (240.02, 240.01, 0.00),
            (96.8, 58.87, 39.18),
            (37.54, 29.34, 21.84),
        ] {
            assert!(
                (of_rate(baseline, mirror) - printed).abs() < 0.006,
                "{baseline}"
            );
        }
        for (baseline, mirror, printed) in [
            (6.248, 6.247, -0.02),
            (1.935, 3.183, 39.21),
            (2.495, 3.194, 21.88),
        ] {
            let as_printed: f64 = (mirror - baseline) / mirror * 100.0;
            assert!((as_printed - printed).abs() < 0.006, "{baseline}");
        }
        assert!((of_latency(1.935, 3.183) - 64.5).abs() < 0.01);
    }
}
