//! Tables: columns as wide as their widest cell, two spaces between, or lines around all (`box`).

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::cell::text;
use super::model::{Align, Column, Format};

/// Returns the heading of a column: of `serviceLevel` it is `SERVICE_LEVEL`.
pub fn heading(column: &Column) -> String {
    if let Some(label) = &column.label {
        return label.clone();
    }
    let mut out = String::new();
    let mut before = false;
    for c in column.key.last().unwrap_or("").chars() {
        if c.is_uppercase() && before {
            out.push('_');
        }
        before = c.is_lowercase() || c.is_ascii_digit();
        out.extend(c.to_uppercase());
    }
    out
}

/// Returns the text with control characters written out. A cell is on one line, and a user who
/// names a resource must not control the terminals of users who list it.
fn visible(cell: String) -> String {
    if !cell.chars().any(char::is_control) {
        return cell;
    }
    let shown = |c: char| match c {
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    cell.chars().map(shown).collect()
}

fn pad(cell: &str, width: usize, align: Align) -> String {
    let space = width.saturating_sub(cell.width());
    let left = match align {
        Align::Left => 0,
        Align::Center => space / 2,
        Align::Right => space,
    };
    format!("{}{cell}{}", " ".repeat(left), " ".repeat(space - left))
}

/// Returns the rows as an aligned table; empty without rows.
pub fn print(format: &Format, rows: &[&Value]) -> Result<String, String> {
    if rows.is_empty() {
        return Ok(String::new());
    }
    let cells = |row: &&Value| -> Vec<String> {
        format
            .columns
            .iter()
            .map(|c| visible(text(&c.key.get(row))))
            .collect()
    };
    let body: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let shown: Vec<(usize, &Column)> = format
        .columns
        .iter()
        .enumerate()
        .filter(|(i, c)| {
            !c.optional
                || body
                    .iter()
                    .any(|row| row.get(*i).is_some_and(|cell| !cell.is_empty()))
        })
        .collect();
    let with_heading = !format.has_attribute("no-heading");
    let mut lines: Vec<Vec<String>> = Vec::new();
    if with_heading {
        lines.push(shown.iter().map(|(_, c)| heading(c)).collect());
    }
    for row in &body {
        let pick = |(i, _): &(usize, &Column)| row.get(*i).cloned().unwrap_or_default();
        lines.push(shown.iter().map(pick).collect());
    }
    let widths: Vec<usize> = (0..shown.len())
        .map(|i| {
            lines
                .iter()
                .filter_map(|l| l.get(i))
                .map(|c| c.width())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let padded = |line: &Vec<String>| -> Vec<String> {
        let columns = line.iter().zip(&widths).zip(&shown);
        columns
            .map(|((cell, width), (_, c))| pad(cell, *width, c.align))
            .collect()
    };
    let lines: Vec<Vec<String>> = lines.iter().map(padded).collect();
    let title = format.attribute("title");
    Ok(if format.has_attribute("box") {
        boxed(title, with_heading, &lines, &widths)
    } else {
        plain(title, &lines, &widths)
    })
}

/// Returns lines of padded cells with two spaces between the columns.
fn plain(title: Option<&str>, lines: &[Vec<String>], widths: &[usize]) -> String {
    let mut out = String::new();
    if let Some(title) = title {
        let width = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let left = width.saturating_sub(title.width()) / 2;
        out.push_str(&format!("{}{title}\n", " ".repeat(left)));
    }
    for line in lines {
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// Returns lines of padded cells with rules around and between the columns.
fn boxed(title: Option<&str>, heading: bool, lines: &[Vec<String>], widths: &[usize]) -> String {
    let rule = |left: char, middle: &str, right: char| {
        let parts: Vec<String> = widths.iter().map(|w| "─".repeat(w + 2)).collect();
        format!("{left}{}{right}\n", parts.join(middle))
    };
    let mut out = String::new();
    match title {
        Some(title) => {
            let width = widths.iter().map(|w| w + 3).sum::<usize>();
            out.push_str(&rule('┌', "─", '┐'));
            let title = pad(title, width.saturating_sub(1), Align::Center);
            out.push_str(&format!("│{title}│\n"));
            out.push_str(&rule('├', "┬", '┤'));
        }
        None => out.push_str(&rule('┌', "┬", '┐')),
    }
    for (n, line) in lines.iter().enumerate() {
        out.push_str(&format!("│ {} │\n", line.join(" │ ")));
        if n == 0 && heading {
            out.push_str(&rule('├', "┼", '┤'));
        }
    }
    out.push_str(&rule('└', "┴", '┘'));
    out
}
