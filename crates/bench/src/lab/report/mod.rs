//! Reports for browsers: one self-contained HTML file, charts included.

pub mod page;
pub mod svg;

use super::outcome::{Cell, OperationClass, QUANTILES, Run};
use super::overhead;
use super::published;
use super::spec::Unit;
use super::units::{duration, utc};
use super::view::{Axis, View, views, warnings};
use page::Page;
use svg::{Bar, Bars, COLOURS, Line, Lines, seconds_ticks};

/// Greatest number of lines in one chart.
const LINES: usize = COLOURS;

/// The report of a run.
pub fn run_page(run: &Run) -> String {
    let mut page = Page::new(&run.definition.title);
    if !run.label.is_empty() {
        page.soft(&run.label);
    }
    page.soft(&format!(
        "{} · {} · {} repetition(s) of {} after at least {} of warm-up · {} in all",
        utc(run.started),
        run.tool,
        run.definition.time.repetitions,
        duration(run.definition.time.measure),
        duration(run.definition.time.warmup),
        duration(run.updated.saturating_sub(run.started) as f64)
    ));
    page.code(&run.command);
    page.list(&warnings(run), "notes");
    page.list(&run.faults(), "notes faults");
    let views = views(run);
    put_published(&mut page, run);
    page.charts(&overview(run, &views));
    for view in &views {
        page.heading(&view.heading);
        page.soft(&view.load);
        let columns: Vec<String> = view.columns.iter().map(|c| c.label.clone()).collect();
        page.table(view.axis.name(), &columns, &view.rows(run));
        page.charts(&charts(view));
    }
    for t in overhead::tables(run) {
        page.heading(&t.heading);
        page.table("", &t.columns, &t.rows);
    }
    page.heading("How this was measured");
    page.list(
        &run.changes
            .iter()
            .map(|c| format!("Changed from the definition: {c}"))
            .collect::<Vec<_>>(),
        "plain",
    );
    let mut notes = run.definition.notes.clone();
    if !run.definition.source.is_empty() {
        notes.insert(
            0,
            format!("Source of the parameters: {}.", run.definition.source),
        );
    }
    notes.push("“Bound by” is what ran out first: the offered rate, a known cap, the generator, this machine's processors, its disk, or none of them (latency × depth). ± is half the distance between the least and the greatest repetition.".into());
    page.list(&notes, "plain");
    for t in &run.targets {
        page.subheading(&format!("Target {}", t.label));
        let mut facts = vec![
            ("given as".to_owned(), t.given.clone()),
            ("protocol".to_owned(), t.protocol.clone()),
            ("load by".to_owned(), t.generator.clone()),
        ];
        facts.extend(t.facts.iter().map(|(k, v)| (k.clone(), v.clone())));
        page.facts(&facts);
    }
    page.subheading("Machine");
    let facts: Vec<(String, String)> = run
        .machine
        .iter()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    page.facts(&facts);
    page.finish()
}

/// Adds the published figures that a report has beside its own.
fn put_published(page: &mut Page, run: &Run) {
    let Some((tables, note)) = published::in_report(run) else {
        return;
    };
    for t in tables {
        page.heading(&t.heading);
        page.table(&t.corner, &t.columns, &t.rows);
        page.soft(&note);
    }
}

fn bar(cell: &Cell, unit: Unit, which: Option<OperationClass>) -> Option<Bar> {
    let s = match which {
        Some(w) => cell.rate(w, unit)?,
        None => cell.spread(|r| Some(r.total(unit)))?,
    };
    Some(Bar {
        value: s.median,
        least: s.least,
        greatest: s.greatest,
    })
}

/// Throughput and operations of all tables in two charts, where the tables share their
/// columns.
fn overview(run: &Run, views: &[View<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    for (target, facts) in run.targets.iter().enumerate() {
        let of_target: Vec<&View<'_>> = views.iter().filter(|v| v.target == target).collect();
        let Some(first) = of_target.first() else {
            continue;
        };
        let columns: Vec<String> = first.columns.iter().map(|c| c.label.clone()).collect();
        let same = of_target.iter().all(|v| {
            v.columns.len() == columns.len()
                && v.columns.iter().zip(&columns).all(|(c, l)| c.label == *l)
        });
        if of_target.len() < 2 || !same {
            continue;
        }
        for unit in [Unit::Throughput, Unit::Iops] {
            let prefix = if run.targets.len() > 1 {
                format!("{}: ", facts.label)
            } else {
                String::new()
            };
            out.push(
                Bars {
                    title: format!(
                        "{prefix}{} by block size and {}",
                        match unit {
                            Unit::Throughput => "Throughput",
                            Unit::Iops => "Operations",
                        },
                        first.axis.name()
                    ),
                    unit: unit.name().into(),
                    x: "block size".into(),
                    series: columns.clone(),
                    groups: of_target
                        .iter()
                        .map(|v| {
                            let table = run.definition.tables.get(v.table);
                            let name = table.map_or_else(String::new, |t| {
                                let order = match t.pattern {
                                    super::spec::Pattern::Sequential => "seq.",
                                    super::spec::Pattern::Random => "rand.",
                                };
                                format!("{} {order}", t.block_size)
                            });
                            let bars = v
                                .columns
                                .iter()
                                .map(|c| c.cell.and_then(|c| bar(c, unit, None)))
                                .collect();
                            (name, bars)
                        })
                        .collect(),
                    mark: None,
                }
                .draw(),
            );
        }
    }
    out
}

fn charts(view: &View<'_>) -> Vec<String> {
    let mut out = vec![rates(view), latencies(view), over_time(view)];
    for which in OperationClass::ALL {
        out.push(percentiles(view, which));
    }
    out.retain(|c| !c.is_empty());
    out
}

fn present(view: &View<'_>) -> Vec<OperationClass> {
    OperationClass::ALL
        .into_iter()
        .filter(|w| view.has_side(*w))
        .collect()
}

fn rates(view: &View<'_>) -> String {
    let sides = present(view);
    Bars {
        title: format!(
            "{} by {}",
            match view.unit {
                Unit::Throughput => "Throughput",
                Unit::Iops => "Operations",
            },
            view.axis.name()
        ),
        unit: view.unit.name().into(),
        x: view.axis.name().into(),
        series: sides.iter().map(|w| w.name().to_owned()).collect(),
        groups: view
            .columns
            .iter()
            .map(|c| {
                let bars = sides
                    .iter()
                    .map(|w| c.cell.and_then(|cell| bar(cell, view.unit, Some(*w))))
                    .collect();
                (c.label.clone(), bars)
            })
            .collect(),
        mark: None,
    }
    .draw()
}

fn latencies(view: &View<'_>) -> String {
    let mut series = Vec::new();
    for which in present(view) {
        for (name, q) in [("median", 0.5), ("p99", 0.99)] {
            let points: Vec<(f64, f64)> = view
                .columns
                .iter()
                .enumerate()
                .filter_map(|(i, c)| {
                    let s = c.cell?.quantile(which, q)?;
                    Some((i as f64, s.median / 1000.0))
                })
                .collect();
            if !points.is_empty() {
                series.push(Line {
                    name: format!("{} {name}", which.name()),
                    colour: series.len(),
                    points,
                });
            }
        }
    }
    Lines {
        title: format!("Latency by {}", view.axis.name()),
        unit: "ms".into(),
        x: view.axis.name().into(),
        x_ticks: view
            .columns
            .iter()
            .enumerate()
            .map(|(i, c)| (i as f64, c.label.clone()))
            .collect(),
        log: true,
        series,
        dots: true,
    }
    .draw()
}

fn over_time(view: &View<'_>) -> String {
    let mut longest: f64 = 0.0;
    let mut series = Vec::new();
    for (colour, c) in view.columns.iter().take(LINES).enumerate() {
        let Some(r) = c.cell.and_then(Cell::typical) else {
            continue;
        };
        let points: Vec<(f64, f64)> = r
            .series
            .iter()
            .map(|m| {
                let y = match view.unit {
                    Unit::Throughput => m.mib,
                    Unit::Iops => m.reads + m.others,
                };
                (m.at_s, y)
            })
            .collect();
        longest = points.last().map_or(longest, |p| longest.max(p.0));
        if points.len() > 1 {
            series.push(Line {
                name: c.label.clone(),
                colour,
                points,
            });
        }
    }
    Lines {
        title: match view.axis {
            Axis::Mix => "Reads and writes together, over time".into(),
            _ => "Over time".into(),
        },
        unit: view.unit.name().into(),
        x: "seconds".into(),
        x_ticks: seconds_ticks(longest),
        log: false,
        series,
        dots: false,
    }
    .draw()
}

fn percentiles(view: &View<'_>, which: OperationClass) -> String {
    // By the number of nines, so that the tail has as much room as the rest.
    let along = |q: f64| -(1.0 - q).log10();
    let series: Vec<Line> = view
        .columns
        .iter()
        .take(LINES)
        .enumerate()
        .filter_map(|(colour, c)| {
            let side = c.cell?.typical()?.side(which)?;
            let points = QUANTILES
                .iter()
                .zip(&side.quantiles_us)
                .map(|(q, us)| (along(*q), us / 1000.0))
                .collect();
            Some(Line {
                name: c.label.clone(),
                colour,
                points,
            })
        })
        .collect();
    Lines {
        title: format!("{} latency by percentile", which.name()),
        unit: "ms".into(),
        x: "percentile".into(),
        x_ticks: std::iter::once((0.0, String::new()))
            .chain(
                [
                    (0.5, "50"),
                    (0.9, "90"),
                    (0.99, "99"),
                    (0.999, "99.9"),
                    (0.9999, "99.99"),
                ]
                .map(|(q, l)| (along(q), l.to_owned())),
            )
            .collect(),
        log: true,
        series,
        dots: false,
    }
    .draw()
}
