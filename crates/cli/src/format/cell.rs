//! Values as cells show them.

use std::cmp::Ordering;

use serde_json::Value;

/// Says that a format needs a projection.
pub fn needs_projection(name: &str) -> String {
    format!(
        "Format [{name}] requires a non-empty projection. Use key parameters to specify a \
         projection like so `{name}(foo, bar.baz)`"
    )
}

/// Returns a number, or the number that a string is: int64 values travel as strings.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) if s.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            s.parse().ok()
        }
        _ => None,
    }
}

/// Returns the order of two values: absent ones first, numbers by size, the rest by their text.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => text(a).cmp(&text(b)),
        },
    }
}

/// Returns a value as a cell shows it: as Python would, because gcloud does.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => python(other),
    }
}

/// Returns a value as Python's `repr` writes it.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => {
            let quote = if s.contains('\'') && !s.contains('"') {
                '"'
            } else {
                '\''
            };
            let mut out = String::from(quote);
            for c in s.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '\n' => out.push_str("\\n"),
                    '\t' => out.push_str("\\t"),
                    '\r' => out.push_str("\\r"),
                    c if c == quote => {
                        out.push('\\');
                        out.push(c);
                    }
                    c => out.push(c),
                }
            }
            out.push(quote);
            out
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let items: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}: {}", python(&Value::from(k.as_str())), python(v)))
                .collect();
            format!("{{{}}}", items.join(", "))
        }
    }
}

/// Returns a list or dictionary as one cell of `csv` or `value`: items joined with `delimiter`.
pub fn joined(value: &Value, delimiter: &str) -> String {
    match value {
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(delimiter),
        Value::Object(map) => map
            .iter()
            .map(|(k, v)| format!("{k}={}", text(v)))
            .collect::<Vec<_>>()
            .join(delimiter),
        other => text(other),
    }
}
