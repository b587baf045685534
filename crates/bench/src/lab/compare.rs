//! Runs side by side: `weir bench compare`.
//!
//! A *subject* is compared: a target of a run. The first subject is what the
//! others are divided by. Points belong together when block size, pattern, kind and
//! column are the same; where the load around them differs, the comparison says so
//! instead of refusing, because a change of the load may be the very question.
//!
//! A ratio is that of the medians; beside it is the range that follows from the extremes of both
//! sides' repetitions, which is wide where the runs were noisy.

use super::cli::CompareArgs;
use super::files;
use super::outcome::{Cell, OperationClass, Run};
use super::published::{self, Beside};
use super::report::page::Page;
use super::report::svg::{Bar, Bars};
use super::spec::Unit;
use super::stats::Spread;
use super::text;
use super::units::{Size, latency, utc};
use super::view::{Row, View, figure, views, warnings};
use crate::error::BenchError;
use serde::Serialize;

/// Longest name that rows and charts repeat; longer ones get a letter.
const SHORT: usize = 20;

/// A target of a run.
struct Subject<'r> {
    name: String,
    /// Meaning of a letter.
    meaning: Option<String>,
    run: &'r Run,
    views: Vec<View<'r>>,
}

/// A figure of one subject beside the first one's.
#[derive(Debug, Clone, Serialize)]
pub struct Ratio {
    /// Heading of the table.
    pub table: String,
    /// Label of the column.
    pub column: String,
    /// Read, Write or Names and attributes.
    pub side: &'static str,
    /// Compared figure: a rate's unit, or `p99`.
    pub figure: &'static str,
    /// Name of the first subject.
    pub base: String,
    /// Name of the other subject.
    pub subject: String,
    /// The first subject's figure.
    pub base_value: Spread,
    /// The other subject's figure.
    pub value: Spread,
    /// Other over first; `None` when the first is 0.
    pub ratio: Option<Spread>,
}

/// The tables, ratios and notes of a comparison.
struct Comparison {
    title: String,
    subjects: Vec<String>,
    legend: Vec<String>,
    notes: Vec<String>,
    /// Warnings about each run by itself.
    warnings: Vec<String>,
    tables: Vec<ComparisonTable>,
    ratios: Vec<Ratio>,
    beside: Vec<(String, Vec<Beside>)>,
}

struct ComparisonTable {
    heading: String,
    corner: String,
    columns: Vec<String>,
    rows: Vec<Row>,
    charts: Vec<Bars>,
}

/// `weir bench compare`: writes the files asked for; returns the text.
pub fn compare(args: &CompareArgs) -> Result<String, BenchError> {
    for path in [&args.html, &args.markdown, &args.json]
        .into_iter()
        .flatten()
    {
        files::refuse_existing(path, args.force)?;
    }
    let runs = args
        .runs
        .iter()
        .map(|p| files::read(p))
        .collect::<Result<Vec<Run>, _>>()?;
    let subjects = subjects(&runs);
    if subjects.len() < 2 && args.published.is_none() {
        return Err(BenchError::Usage(
            "there is nothing to compare with: give a second run, or --published NAME".into(),
        ));
    }
    let mut comparison = build(&subjects);
    if let Some(set) = &args.published {
        for run in &runs {
            let (mut tables, note) = published::beside(run, set, args.per)?;
            if tables.is_empty() {
                return Err(BenchError::Usage(format!(
                    "{} has no table that {set} has (block size, pattern and mixes)",
                    run.label
                )));
            }
            if runs.len() > 1 {
                for t in &mut tables {
                    t.heading = format!("{}: {}", run.label, t.heading);
                }
            }
            comparison
                .beside
                .push((format!("{}. {note}", run.label), tables));
        }
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&comparison.ratios)
            .map_err(|e| BenchError::Io("write JSON".into(), std::io::Error::other(e)))?;
        files::write(path, &json)?;
    }
    if let Some(path) = &args.html {
        files::write(path, &html(&comparison))?;
    }
    if let Some(path) = &args.markdown {
        files::write(path, &markdown(&comparison))?;
    }
    Ok(terminal(&comparison))
}

fn subjects(runs: &[Run]) -> Vec<Subject<'_>> {
    let mut out: Vec<Subject<'_>> = Vec::new();
    for (n, run) in runs.iter().enumerate() {
        for (target, facts) in run.targets.iter().enumerate() {
            let mut name = if run.targets.len() > 1 {
                facts.label.clone()
            } else {
                run.label.clone()
            };
            if out.iter().any(|s| s.name == name) {
                name = format!("{name} ({})", n + 1);
            }
            let meaning = (name.chars().count() > SHORT).then(|| name.clone());
            if meaning.is_some() {
                let letter = u8::try_from(out.len()).unwrap_or(25).min(25);
                name = char::from(b'A' + letter).to_string();
            }
            out.push(Subject {
                name,
                meaning,
                run,
                views: views(run)
                    .into_iter()
                    .filter(|v| v.target == target)
                    .collect(),
            });
        }
    }
    out
}

/// Returns true if two tables are the same.
fn same_table(a: (&Run, &View<'_>), b: (&Run, &View<'_>)) -> bool {
    let key = |(run, view): (&Run, &View<'_>)| {
        run.definition.tables.get(view.table).map(|t| {
            (
                t.block_size,
                t.pattern.name(),
                t.kind,
                t.unit() == Unit::Iops,
            )
        })
    };
    key(a) == key(b) && a.1.axis == b.1.axis
}

fn build(subjects: &[Subject<'_>]) -> Comparison {
    let names: Vec<String> = subjects.iter().map(|s| s.name.clone()).collect();
    let mut out = Comparison {
        title: format!("Comparison of {}", names.join(" and ")),
        subjects: names,
        legend: Vec::new(),
        notes: Vec::new(),
        warnings: Vec::new(),
        tables: Vec::new(),
        ratios: Vec::new(),
        beside: Vec::new(),
    };
    let Some((base, others)) = subjects.split_first() else {
        return out;
    };
    for s in subjects {
        if let Some(m) = &s.meaning {
            out.legend.push(format!("{} is {m}", s.name));
        }
    }
    let mut seen: Vec<&Run> = Vec::new();
    for s in subjects {
        if !seen.iter().any(|r| std::ptr::eq(*r, s.run)) {
            seen.push(s.run);
            let of = |w: String| format!("{}: {w}", s.run.label);
            out.warnings.extend(warnings(s.run).into_iter().map(of));
        }
    }
    for other in others {
        differences(base, other, &mut out.notes);
    }
    for view in &base.views {
        let matching: Vec<(&Subject<'_>, &View<'_>)> = others
            .iter()
            .filter_map(|o| {
                // Among several alike (another axis makes them differ) the same place.
                let place = |views: &[View<'_>], run: &Run, at: &View<'_>| {
                    views
                        .iter()
                        .filter(|v| same_table((run, v), (base.run, view)))
                        .position(|v| std::ptr::eq(v, at))
                };
                let nth = place(&base.views, base.run, view)?;
                o.views
                    .iter()
                    .filter(|v| same_table((o.run, v), (base.run, view)))
                    .nth(nth)
                    .map(|v| (o, v))
            })
            .collect();
        if !matching.is_empty() {
            let table = compared(base, view, &matching, &mut out.ratios);
            out.tables.push(table);
        }
    }
    out
}

/// Differences of the load and the place that a reader must know.
fn differences(a: &Subject<'_>, b: &Subject<'_>, notes: &mut Vec<String>) {
    let mut differ = |what: &str, x: String, y: String| {
        if x != y {
            notes.push(format!("{what}: {} {x}, {} {y}", a.name, b.name));
        }
    };
    let (l, m) = (&a.run.definition.load, &b.run.definition.load);
    differ(
        "working set",
        l.working_set.to_string(),
        m.working_set.to_string(),
    );
    differ("clients", l.clients.to_string(), m.clients.to_string());
    differ("jobs a client", l.jobs.to_string(), m.jobs.to_string());
    differ("nconnect", l.nconnect.to_string(), m.nconnect.to_string());
    differ("caches", l.cache.name().into(), m.cache.name().into());
    differ("cores", a.run.cores.to_string(), b.run.cores.to_string());
    differ(
        "memory",
        Size(a.run.memory.0 >> 30 << 30).to_string(),
        Size(b.run.memory.0 >> 30 << 30).to_string(),
    );
    for key in ["kernel", "processor"] {
        let of = |s: &Subject<'_>| s.run.machine.get(key).cloned().unwrap_or_default();
        differ(key, of(a), of(b));
    }
    let protocol = |s: &Subject<'_>| {
        s.views
            .first()
            .and_then(|v| s.run.targets.get(v.target))
            .map(|t| format!("{} through {}", t.protocol, t.generator))
            .unwrap_or_default()
    };
    differ("protocol", protocol(a), protocol(b));
    let tiers = |s: &Subject<'_>| {
        let mut all: Vec<&str> = s
            .views
            .iter()
            .flat_map(|v| v.columns.iter().filter_map(|c| c.cell))
            .flat_map(|c| c.repetitions.iter().map(|r| r.tier.name()))
            .collect();
        all.sort_unstable();
        all.dedup();
        all.join(", ")
    };
    differ("durable at the reply", tiers(a), tiers(b));
    let time = |s: &Subject<'_>| {
        let t = s.run.definition.time;
        format!("{} × {} s", t.repetitions, t.measure)
    };
    differ("measured", time(a), time(b));
}

/// A figure that subjects are compared by: a rate or the 99th percentile of a latency.
#[derive(Clone, Copy)]
struct Figure {
    which: OperationClass,
    unit: Unit,
    is_rate: bool,
}

impl Figure {
    /// Returns both figures of a side; `unit` is that of the table's rates.
    fn both(which: OperationClass, unit: Unit) -> [Figure; 2] {
        let unit = match which {
            OperationClass::Other => Unit::Iops,
            _ => unit,
        };
        [true, false].map(|is_rate| Figure {
            which,
            unit,
            is_rate,
        })
    }

    fn name(&self) -> &'static str {
        if self.is_rate {
            self.unit.name()
        } else {
            "p99"
        }
    }

    fn find_spread(&self, cell: &Cell) -> Option<Spread> {
        if self.is_rate {
            cell.rate(self.which, self.unit)
        } else {
            cell.quantile(self.which, 0.99)
        }
    }

    fn text(&self, value: Option<&Spread>) -> String {
        match value {
            Some(value) if self.is_rate => figure(value),
            Some(value) => latency(value.median),
            None => "–".into(),
        }
    }

    /// Returns the title of a chart over `base`.
    fn title(&self, base: &str) -> String {
        let name = if self.is_rate {
            self.unit.name()
        } else {
            "p99 latency (less is better)"
        };
        format!("{} {name}: multiple of {base}", self.which.name())
    }
}

/// Returns a ratio with its spread, if it has one.
fn multiple(ratio: &Spread) -> String {
    if ratio.count > 1 {
        format!(
            "×{:.2} ({:.2}–{:.2})",
            ratio.median, ratio.least, ratio.greatest
        )
    } else {
        format!("×{:.2}", ratio.median)
    }
}

fn compared(
    base: &Subject<'_>,
    view: &View<'_>,
    others: &[(&Subject<'_>, &View<'_>)],
    ratios: &mut Vec<Ratio>,
) -> ComparisonTable {
    let mut rows = Vec::new();
    let mut charts = Vec::new();
    let all: Vec<(&Subject<'_>, &View<'_>)> = std::iter::once((base, view))
        .chain(others.iter().copied())
        .collect();
    let cell = |v: &View<'_>, label: &str| -> Option<Cell> {
        v.columns
            .iter()
            .find(|c| c.label == label)
            .and_then(|c| c.cell.cloned())
    };
    let sides = OperationClass::ALL
        .into_iter()
        .filter(|w| view.has_side(*w));
    for figure in sides.flat_map(|which| Figure::both(which, view.unit)) {
        let figures: Vec<Vec<Option<Spread>>> = all
            .iter()
            .map(|(_, v)| {
                view.columns
                    .iter()
                    .map(|c| cell(v, &c.label).and_then(|c| figure.find_spread(&c)))
                    .collect()
            })
            .collect();
        for ((subject, _), row) in all.iter().zip(&figures) {
            rows.push(Row {
                label: format!(
                    "{} {}, {}",
                    figure.which.name(),
                    figure.name(),
                    subject.name
                ),
                main: figure.is_rate,
                cells: row.iter().map(|s| figure.text(s.as_ref())).collect(),
            });
        }
        let Some((first, rest)) = figures.split_first() else {
            continue;
        };
        let mut bars: Vec<Vec<Option<Bar>>> = vec![Vec::new(); view.columns.len()];
        for ((subject, _), row) in others.iter().zip(rest) {
            let mut cells = Vec::new();
            for (i, column) in view.columns.iter().enumerate() {
                let pair = first
                    .get(i)
                    .copied()
                    .flatten()
                    .zip(row.get(i).copied().flatten());
                let ratio = pair.and_then(|(b, v)| v.ratio_to(&b));
                cells.push(ratio.as_ref().map_or_else(String::new, multiple));
                if let Some(group) = bars.get_mut(i) {
                    group.push(ratio.map(|r| Bar {
                        value: r.median,
                        least: r.least,
                        greatest: r.greatest,
                    }));
                }
                if let Some((b, v)) = pair {
                    ratios.push(Ratio {
                        table: view.heading.clone(),
                        column: column.label.clone(),
                        side: figure.which.name(),
                        figure: figure.name(),
                        base: base.name.clone(),
                        subject: subject.name.clone(),
                        base_value: b,
                        value: v,
                        ratio,
                    });
                }
            }
            rows.push(Row {
                label: format!("{} over {}", subject.name, base.name),
                main: false,
                cells,
            });
        }
        let columns = view.columns.iter().map(|c| c.label.clone());
        charts.push(Bars {
            title: figure.title(&base.name),
            unit: "×".into(),
            x: view.axis.name().into(),
            series: others.iter().map(|(s, _)| s.name.clone()).collect(),
            groups: columns.zip(bars).collect(),
            mark: Some(1.0),
        });
    }
    for row in 0..2 {
        for (subject, v) in &all {
            rows.extend(v.rests_on().into_iter().nth(row).map(|r| Row {
                label: format!("{}, {}", r.label, subject.name),
                ..r
            }));
        }
    }
    let heading = base
        .run
        .definition
        .tables
        .get(view.table)
        .map_or_else(|| view.heading.clone(), super::spec::Table::heading);
    ComparisonTable {
        heading,
        corner: view.axis.name().into(),
        columns: view.columns.iter().map(|c| c.label.clone()).collect(),
        rows,
        charts,
    }
}

fn terminal(c: &Comparison) -> String {
    let mut out = String::new();
    for l in &c.legend {
        out.push_str(&format!("{l}\n"));
    }
    if c.subjects.len() > 1 {
        for t in &c.tables {
            out.push_str(&format!("\n{}\n", t.heading));
            out.push_str(&text::aligned(&t.corner, &t.columns, &t.rows));
        }
        if c.tables.is_empty() {
            out.push_str("the runs have no table in common\n");
        }
        if !c.notes.is_empty() {
            out.push('\n');
        }
        for n in &c.notes {
            out.push_str(&format!("differs: {n}\n"));
        }
        for w in &c.warnings {
            out.push_str(&format!("note: {w}\n"));
        }
    }
    for (note, tables) in &c.beside {
        for t in tables {
            out.push_str(&format!("\n{}\n", t.heading));
            out.push_str(&text::aligned(&t.corner, &t.columns, &t.rows));
        }
        out.push_str(&format!("\nnote: {note}\n"));
    }
    out
}

fn markdown(c: &Comparison) -> String {
    let mut out = format!("# {}\n\n", c.title);
    for l in &c.legend {
        out.push_str(&format!("- {l}\n"));
    }
    for n in &c.notes {
        out.push_str(&format!("- differs: {n}\n"));
    }
    for w in &c.warnings {
        out.push_str(&format!("- {w}\n"));
    }
    if c.subjects.len() > 1 {
        for t in &c.tables {
            out.push_str(&format!("\n## {}\n\n", t.heading));
            out.push_str(&text::markdown_table(&t.corner, &t.columns, &t.rows));
        }
    }
    for (note, tables) in &c.beside {
        for t in tables {
            out.push_str(&format!("\n## {}\n\n", t.heading));
            out.push_str(&text::markdown_table(&t.corner, &t.columns, &t.rows));
        }
        out.push_str(&format!("\n{note}\n"));
    }
    out
}

fn html(c: &Comparison) -> String {
    let mut page = Page::new(&c.title);
    page.soft(&format!(
        "made {} by weir bench compare",
        utc(crate::clock::unix_seconds())
    ));
    page.list(&c.legend, "plain");
    if let Some(base) = c.subjects.first() {
        if c.subjects.len() > 1 {
            page.soft(&format!(
                "Ratios are multiples of {base}: medians, with the range that the repetitions' extremes allow."
            ));
        }
    }
    let notes: Vec<String> = c.notes.iter().map(|n| format!("Differs: {n}")).collect();
    page.list(&[notes, c.warnings.clone()].concat(), "notes");
    if c.subjects.len() > 1 {
        for t in &c.tables {
            page.heading(&t.heading);
            page.table(&t.corner, &t.columns, &t.rows);
            let charts: Vec<String> = t.charts.iter().map(Bars::draw).collect();
            page.charts(&charts);
        }
    }
    for (note, tables) in &c.beside {
        for t in tables {
            page.heading(&t.heading);
            page.table(&t.corner, &t.columns, &t.rows);
        }
        page.soft(note);
    }
    page.finish()
}
