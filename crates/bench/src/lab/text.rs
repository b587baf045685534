//! Results for a terminal, and as Markdown.

use super::outcome::Run;
use super::overhead;
use super::published;
use super::units::{duration, utc};
use super::view::{Row, View, views, warnings};

/// The tables for a terminal.
pub fn terminal(run: &Run) -> String {
    let mut out = String::new();
    for view in views(run) {
        out.push_str(&format!("\n{}\n  {}\n", view.heading, view.load));
        out.push_str(&aligned(view.axis.name(), &labels(&view), &view.rows(run)));
    }
    for t in overhead::tables(run) {
        out.push_str(&format!("\n{}\n", t.heading));
        out.push_str(&aligned("", &t.columns, &t.rows));
    }
    for t in published::in_report(run).map_or_else(Vec::new, |(tables, _)| tables) {
        out.push_str(&format!("\n{}\n", t.heading));
        out.push_str(&aligned(&t.corner, &t.columns, &t.rows));
    }
    let warnings = warnings(run);
    if !warnings.is_empty() {
        out.push('\n');
    }
    for w in warnings {
        out.push_str(&format!("note: {w}\n"));
    }
    for f in run.faults() {
        out.push_str(&format!("FAULT: {f}\n"));
    }
    out
}

fn labels(view: &View<'_>) -> Vec<String> {
    view.columns.iter().map(|c| c.label.clone()).collect()
}

/// Columns under each other, figures to the right.
pub fn aligned(corner: &str, columns: &[String], rows: &[Row]) -> String {
    let width = |s: &str| s.chars().count();
    let first = rows
        .iter()
        .map(|r| width(&r.label))
        .chain([width(corner)])
        .max()
        .unwrap_or(0);
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, c)| {
            rows.iter()
                .filter_map(|r| r.cells.get(i))
                .map(|t| width(t))
                .chain([width(c)])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    let mut line = |label: &str, cells: &[String]| {
        let pad = first - width(label).min(first);
        out.push_str(&format!("  {label}{}", " ".repeat(pad)));
        for (cell, w) in cells.iter().zip(&widths) {
            out.push_str(&format!("   {}{cell}", " ".repeat(w - width(cell).min(*w))));
        }
        out.push('\n');
    };
    line(corner, columns);
    for r in rows {
        line(&r.label, &r.cells);
    }
    out
}

/// A table in Markdown.
pub fn markdown_table(corner: &str, columns: &[String], rows: &[Row]) -> String {
    let escape = |s: &str| s.replace('|', "\\|");
    let mut out = format!("| {} |", escape(corner));
    for c in columns {
        out.push_str(&format!(" {} |", escape(c)));
    }
    out.push_str("\n|---|");
    out.push_str(&"--:|".repeat(columns.len()));
    out.push('\n');
    for r in rows {
        let (open, close) = if r.main { ("**", "**") } else { ("", "") };
        out.push_str(&format!("| {open}{}{close} |", escape(&r.label)));
        for c in &r.cells {
            out.push_str(&format!(" {} |", escape(c)));
        }
        out.push('\n');
    }
    out
}

/// The whole report as Markdown.
pub fn markdown(run: &Run) -> String {
    let mut out = format!("# {}\n\n", run.definition.title);
    if !run.label.is_empty() {
        out.push_str(&format!("**{}**\n\n", run.label));
    }
    out.push_str(&format!("`{}`\n\n", run.command));
    out.push_str(&format!(
        "{}, {}, {} repetition(s) of {} after at least {} of warm-up, {} in all.\n\n",
        utc(run.started),
        run.tool,
        run.definition.time.repetitions,
        duration(run.definition.time.measure),
        duration(run.definition.time.warmup),
        duration(run.updated.saturating_sub(run.started) as f64)
    ));
    if let Some((tables, note)) = published::in_report(run) {
        for t in tables {
            out.push_str(&format!("## {}\n\n", t.heading));
            out.push_str(&markdown_table(&t.corner, &t.columns, &t.rows));
            out.push_str(&format!("\n{note}\n\n"));
        }
    }
    for view in views(run) {
        out.push_str(&format!("## {}\n\n{}\n\n", view.heading, view.load));
        out.push_str(&markdown_table(
            view.axis.name(),
            &labels(&view),
            &view.rows(run),
        ));
        out.push('\n');
    }
    for t in overhead::tables(run) {
        out.push_str(&format!("## {}\n\n", t.heading));
        out.push_str(&markdown_table("", &t.columns, &t.rows));
        out.push('\n');
    }
    section(&mut out, "What to know about these figures", &warnings(run));
    section(&mut out, "Faults", &run.faults());
    section(&mut out, "Changed from the definition", &run.changes);
    let mut notes = run.definition.notes.clone();
    if !run.definition.source.is_empty() {
        notes.insert(0, format!("Source: {}.", run.definition.source));
    }
    section(&mut out, "About this definition", &notes);
    for t in &run.targets {
        let facts: Vec<String> = [
            ("given as", &t.given),
            ("protocol", &t.protocol),
            ("load by", &t.generator),
        ]
        .into_iter()
        .map(|(k, v)| format!("{k}: {v}"))
        .chain(t.facts.iter().map(|(k, v)| format!("{k}: {v}")))
        .collect();
        section(&mut out, &format!("Target {}", t.label), &facts);
    }
    let machine: Vec<String> = run
        .machine
        .iter()
        .map(|(k, v)| format!("{k}: {v}"))
        .collect();
    section(&mut out, "Machine", &machine);
    out
}

fn section(out: &mut String, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("## {heading}\n\n"));
    for l in lines {
        out.push_str(&format!("- {l}\n"));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let rows = [
            Row {
                label: "Read MiB/s".into(),
                cells: vec!["4,304".into(), "0".into()],
                main: true,
            },
            Row {
                label: "±µ".into(),
                cells: vec!["–".into(), "1,476 ±12 %".into()],
                main: false,
            },
        ];
        let columns = ["100/0".to_owned(), "0/100".to_owned()];
        let text = aligned("read/write %", &columns, &rows);
        assert_eq!(
            text,
            "  read/write %   100/0         0/100\n  Read MiB/s     4,304             0\n  ±µ                 –   1,476 ±12 %\n"
        );
        let md = markdown_table("x|y", &columns, &rows);
        assert!(md.starts_with(
            "| x\\|y | 100/0 | 0/100 |\n|---|--:|--:|\n| **Read MiB/s** | 4,304 | 0 |"
        ));
    }
}
