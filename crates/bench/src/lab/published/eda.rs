//! The published figure of chip design on a large volume, and a run beside it.
//!
//! NetApp Volumes' page gives one number of operations and one throughput, of both phases at once
//! and at all addresses together. A run has a table for each phase, so each of its tables is put
//! beside the figure that its phase is about, and the table of both phases beside both.

use super::super::outcome::{Cell, LimitingFactor, OperationClass, Run};
use super::super::spec::{Kind, Table, Unit};
use super::super::stats::Spread;
use super::super::units::{latency, thousands};
use super::super::view::{Column, Row, View, figure, views};
use super::{Beside, rounded};

/// Figure of a large volume.
pub struct LargeVolume {
    /// Operations a second.
    pub iops: f64,
    /// Throughput in GiB a second.
    pub gib_s: f64,
    /// Addresses of the volume, over which the clients were spread evenly.
    pub addresses: u32,
}

/// The figure of NetApp Volumes' page.
pub const EDA: LargeVolume = LargeVolume {
    iops: 1_350_000.0,
    gib_s: 21.5,
    addresses: 6,
};

impl LargeVolume {
    fn figure(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Iops => self.iops,
            Unit::Throughput => self.gib_s * 1024.0,
        }
    }
}

/// Returns the units in which a table of this kind is beside the published figure.
fn units_of(table: &Table) -> &'static [Unit] {
    match table.kind {
        Kind::EdaFrontEnd => &[Unit::Iops],
        Kind::EdaBackEnd => &[Unit::Throughput],
        Kind::Eda => &[Unit::Iops, Unit::Throughput],
        Kind::Data => &[],
    }
}

/// Returns true if every measurement of a column had the load that was offered.
fn is_kept(cell: &Cell) -> bool {
    let counted = cell.counted();
    !counted.is_empty() && counted.iter().all(|r| r.bound == LimitingFactor::Offered)
}

/// Returns the rate of all operations, COMMITs included, or of all bytes.
fn total(cell: &Cell, unit: Unit) -> Option<Spread> {
    cell.spread(|r| {
        let commits = match unit {
            Unit::Iops => r.commits_per_s,
            Unit::Throughput => 0.0,
        };
        Some(r.total(unit) + commits)
    })
}

/// Returns the column with the most load that was kept, or the greatest rate if none was kept.
fn best<'v>(view: &'v View<'_>, unit: Unit) -> Option<(&'v Column<'v>, &'v Cell)> {
    let rate = |cell: &Cell| total(cell, unit).map_or(0.0, |s| s.median);
    let measured = view.columns.iter();
    let measured = measured.filter_map(|c| c.cell.map(|cell| (c, cell)));
    measured
        .filter(|(_, cell)| !cell.repetitions.is_empty())
        .max_by(|(_, a), (_, b)| {
            let by_kept = is_kept(a).cmp(&is_kept(b));
            by_kept.then(rate(a).total_cmp(&rate(b)))
        })
}

/// Returns the greatest of the 99th percentiles of reads, writes and other operations.
fn p99(cell: &Cell) -> Option<f64> {
    let all = OperationClass::ALL.into_iter();
    all.filter_map(|which| cell.quantile(which, 0.99))
        .map(|s| s.median)
        .max_by(f64::total_cmp)
}

fn percent(ratio: f64) -> String {
    format!("{:.2} %", ratio * 100.0)
}

fn rows(run: &Run, view: &View<'_>, table: &Table, several: bool) -> Vec<Row> {
    let addresses = run.targets.get(view.target).map_or(1, |t| t.addresses);
    let mut out = Vec::new();
    for &unit in units_of(table) {
        let Some((column, cell)) = best(view, unit) else {
            continue;
        };
        let Some(mine) = total(cell, unit) else {
            continue;
        };
        let name = match several {
            true => view.heading.clone(),
            false => table.heading(),
        };
        let unit_name = match unit {
            Unit::Iops => "ops/s",
            Unit::Throughput => unit.name(),
        };
        let kept = if is_kept(cell) { "" } else { ", not kept" };
        let theirs = EDA.figure(unit);
        out.push(Row {
            label: format!("{name}, {unit_name}"),
            cells: vec![
                thousands(theirs.round()),
                figure(&mine),
                percent(mine.median / theirs),
                format!("{}{kept}", column.label),
                p99(cell).map_or_else(|| "–".into(), latency),
            ],
            main: true,
        });
        let theirs = theirs / f64::from(EDA.addresses);
        let mine = mine.median / f64::from(addresses);
        out.push(Row {
            label: format!("per address: {} published, {addresses} here", EDA.addresses),
            cells: vec![
                thousands(theirs.round()),
                thousands(rounded(mine)),
                percent(mine / theirs),
                String::new(),
                String::new(),
            ],
            main: false,
        });
    }
    out
}

/// Puts a run beside the published figure; returns the table, and how it was scaled.
pub fn beside(run: &Run) -> (Vec<Beside>, String) {
    let several = run.targets.len() > 1;
    let rows: Vec<Row> = views(run)
        .iter()
        .filter_map(|view| Some((view, run.definition.tables.get(view.table)?)))
        .flat_map(|(view, table)| rows(run, view, table, several))
        .collect();
    let note = format!(
        "The published figures are of a large volume at {} addresses, with both phases at once; neither the service's size nor the clients' is published. Scaled: the rows “per address” divide them by {0} and this run's by its own number of addresses. This run's clients share {} cores{}. “Offered” is the most load that was kept, or the one with the greatest rate.",
        EDA.addresses,
        run.cores,
        match run.targets.iter().all(|t| t.local == Some(true)) {
            true => " with the server",
            false => "",
        },
    );
    if rows.is_empty() {
        return (Vec::new(), note);
    }
    let table = Beside {
        heading: "Beside NetApp Volumes' figure of a large volume".into(),
        corner: String::new(),
        columns: [
            "published",
            "this run",
            "share",
            "offered ops/s",
            "p99, slowest kind",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
    };
    (vec![table], note)
}
