//! The summary of a run, `summary.json`: each rate with its spread, what it rests on, and the
//! published figures beside it. A Weir server that has the run's folder among its benchmarks reads
//! this file; it needs neither the tables of this program nor the repetitions.

use super::outcome::{Cell, OperationClass, Run, State};
use super::published::{self, Figure};
use super::view::{Column, View, views, warnings};
use serde::Serialize;

/// Version of the file's format.
const FORMAT: u32 = 1;

/// A whole run in short.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'r> {
    format: u32,
    tool: &'r str,
    command: &'r str,
    name: &'r str,
    title: &'r str,
    label: &'r str,
    started_seconds: u64,
    ended_seconds: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
    targets: Vec<Target<'r>>,
    clients: u32,
    cores: u32,
    repetitions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<PublishedSet<'r>>,
    warnings: Vec<String>,
    tables: Vec<Table>,
}

/// A target that was measured.
#[derive(Serialize)]
struct Target<'r> {
    label: &'r str,
    protocol: &'r str,
    generator: &'r str,
}

/// The set of published figures, and the machines that made them.
#[derive(Serialize)]
struct PublishedSet<'r> {
    set: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<u32>,
}

/// A table of results.
#[derive(Serialize)]
struct Table {
    heading: String,
    load: String,
    axis: &'static str,
    unit: &'static str,
    rows: Vec<Row>,
}

/// A rate: of one column of a table, and of reads or writes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    column: String,
    side: &'static str,
    value: f64,
    least: f64,
    greatest: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_seconds: Option<f64>,
    bound_by: Vec<String>,
    durability: &'static str,
    published: Vec<Figure>,
}

/// Rounds to six significant digits: what is measured has fewer.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 10f64.powf(5.0 - value.abs().log10().floor());
    (value * digits).round() / digits
}

fn row(
    run: &Run,
    set: Option<&str>,
    view: &View<'_>,
    column: &Column<'_>,
    which: OperationClass,
) -> Option<Row> {
    let cell: &Cell = column.cell?;
    let published = set.map_or_else(Vec::new, |set| {
        published::figures(run, set, view, column, which)
    });
    let factor = set.map_or(1.0, |set| published::factor(set, view.unit));
    let rate = cell.rate(which, view.unit)?;
    let mut bound_by: Vec<String> = cell.counted().iter().map(|r| r.bound.name()).collect();
    bound_by.sort();
    bound_by.dedup();
    let tier = cell.typical().map_or("", |r| r.tier.name());
    Some(Row {
        column: column.label.clone(),
        side: which.name(),
        value: rounded(rate.median * factor),
        least: rounded(rate.least * factor),
        greatest: rounded(rate.greatest * factor),
        p99_seconds: cell.quantile(which, 0.99).map(|s| rounded(s.median / 1e6)),
        bound_by,
        durability: tier,
        published,
    })
}

fn table(run: &Run, set: Option<&str>, view: &View<'_>) -> Table {
    let rows = OperationClass::ALL.into_iter().flat_map(|which| {
        let columns = view.columns.iter();
        columns.filter_map(move |column| row(run, set, view, column, which))
    });
    Table {
        heading: view.heading.clone(),
        load: view.load.clone(),
        axis: view.axis.name(),
        unit: published::unit(set.unwrap_or_default(), view.unit),
        rows: rows.collect(),
    }
}

/// Returns the summary of a run as JSON, beside the published figures that its definition repeats.
pub fn json(run: &Run) -> String {
    let set = run.definition.published.as_deref();
    let set = set.filter(|set| published::SETS.contains(set));
    let (state, reason) = match &run.state {
        State::Running => ("running", None),
        State::Complete => ("complete", None),
        State::Interrupted => ("interrupted", None),
        State::Failed(why) => ("failed", Some(why.as_str())),
    };
    let tables = views(run);
    let summary = Summary {
        format: FORMAT,
        tool: &run.tool,
        command: &run.command,
        name: &run.definition.name,
        title: &run.definition.title,
        label: &run.label,
        started_seconds: run.started,
        ended_seconds: run.updated,
        state,
        reason,
        targets: { run.targets.iter() }
            .map(|t| Target {
                label: &t.label,
                protocol: &t.protocol,
                generator: &t.generator,
            })
            .collect(),
        clients: run.definition.load.clients,
        cores: run.cores,
        repetitions: run.definition.time.repetitions,
        published: set.map(|set| {
            let (clients, cores) = published::machines(set);
            PublishedSet {
                set,
                clients,
                cores,
            }
        }),
        warnings: warnings(run),
        tables: tables.iter().map(|view| table(run, set, view)).collect(),
    };
    // Strings and numbers only: nothing that cannot be written as JSON.
    serde_json::to_string_pretty(&summary).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_six_digits() {
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(rounded(f64::NAN), 0.0);
        assert_eq!(rounded(1_234.567_89), 1_234.57);
        assert_eq!(rounded(0.001_234_567_8), 0.001_234_57);
        assert_eq!(rounded(-380_000.4), -380_000.0);
    }
}
