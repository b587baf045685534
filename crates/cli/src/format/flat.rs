//! Formats without structure: `csv`, `value`, `flattened`, `list`.

use serde_json::Value;

use super::cell::{joined, needs_projection, text};
use super::key::Key;
use super::model::Format;
use super::table::heading;

/// Returns comma-separated values, quoted where they need it (RFC 4180).
pub fn csv(format: &Format, resources: &[Value]) -> Result<String, String> {
    if format.columns.is_empty() {
        return Err(needs_projection("csv"));
    }
    let separator = format.attribute("separator").unwrap_or(",");
    let delimiter = format.attribute("delimiter").unwrap_or(";");
    let quoted = |cell: String| {
        if cell.contains(separator) || cell.contains(['"', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell
        }
    };
    let mut out = String::new();
    let mut line = |cells: Vec<String>| {
        out.push_str(
            &cells
                .into_iter()
                .map(quoted)
                .collect::<Vec<_>>()
                .join(separator),
        );
        out.push('\n');
    };
    if !format.has_attribute("no-heading") && !resources.is_empty() {
        line(
            format
                .columns
                .iter()
                .map(|c| heading(c).to_lowercase())
                .collect(),
        );
    }
    for resource in resources {
        let cell = |key: &Key| joined(&key.get(resource), delimiter);
        line(format.columns.iter().map(|c| cell(&c.key)).collect());
    }
    Ok(out)
}

/// Returns tab-separated values without a heading.
pub fn values(format: &Format, resources: &[Value]) -> Result<String, String> {
    if format.columns.is_empty() {
        return Err(needs_projection("value"));
    }
    let separator = format.attribute("separator").unwrap_or("\t");
    let delimiter = format.attribute("delimiter").unwrap_or(";");
    let mut out = String::new();
    for resource in resources {
        let cell = |key: &Key| joined(&key.get(resource), delimiter);
        let cells: Vec<String> = format.columns.iter().map(|c| cell(&c.key)).collect();
        out.push_str(&cells.join(separator));
        out.push('\n');
    }
    Ok(out)
}

fn leaves(value: &Value, path: &str, out: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, below) in map {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(below, &format!("{path}{dot}{name}"), out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, below) in items.iter().enumerate() {
                leaves(below, &format!("{path}[{i}]"), out);
            }
        }
        Value::String(s) if s.contains('\n') => {
            out.push((path.to_owned(), Value::from(s.as_str()).to_string()));
        }
        other => out.push((path.to_owned(), text(other))),
    }
}

/// Returns one `path: value` a line, aligned.
pub fn flattened(resource: &Value) -> String {
    let mut found = Vec::new();
    leaves(resource, "", &mut found);
    let width = found.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    let line = |(path, value): &(String, String)| {
        let colon = format!("{path}:");
        format!("{colon:<0$} {value}", width + 1)
            .trim_end()
            .to_owned()
            + "\n"
    };
    found.iter().map(line).collect()
}

/// Returns an indented line for each field, or for each column of a projection.
pub fn list(format: &Format, resources: &[Value]) -> String {
    let mut out = String::new();
    for resource in resources {
        let lines: Vec<String> = match resource {
            Value::Object(map) if format.columns.is_empty() => map
                .iter()
                .map(|(name, value)| format!("{name}: {}", text(value)))
                .collect(),
            _ => format
                .columns
                .iter()
                .map(|c| text(&c.key.get(resource)))
                .collect(),
        };
        for (i, line) in lines.iter().enumerate() {
            out.push_str(if i == 0 { " - " } else { "   " });
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}
