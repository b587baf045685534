//! YAML in block style, as gcloud writes it. Fields are ordered by name, lists are not indented
//! below their name, and a string is in quotes only where it would be read as something else.

use serde_json::Value;

/// Returns a value as a document without its `---`.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out
}

/// Appends a value whose lines begin at column `indent`.
fn write(value: &Value, indent: usize, out: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, below) in map {
                out.push_str(&format!("{margin}{}:", scalar(name)));
                match below {
                    Value::Object(m) if !m.is_empty() => {
                        out.push('\n');
                        write(below, indent + 2, out);
                    }
                    Value::Array(items) if !items.is_empty() => {
                        out.push('\n');
                        write(below, indent, out);
                    }
                    other => {
                        out.push(' ');
                        leaf(other, indent + 2, out);
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&format!("{margin}- "));
                match item {
                    Value::Object(m) if !m.is_empty() => nested(item, indent, out),
                    Value::Array(l) if !l.is_empty() => nested(item, indent, out),
                    other => leaf(other, indent + 2, out),
                }
            }
        }
        other => {
            out.push_str(&margin);
            leaf(other, indent, out);
        }
    }
}

/// Writes an item that has lines of its own: the first follows the dash.
fn nested(item: &Value, indent: usize, out: &mut String) {
    let mut lines = String::new();
    write(item, indent + 2, &mut lines);
    out.push_str(lines.get(indent + 2..).unwrap_or(""));
}

fn leaf(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(text) if is_block(text) => {
            let keep = match (text.ends_with("\n\n"), text.ends_with('\n')) {
                (true, _) => "|+",
                (false, true) => "|",
                (false, false) => "|-",
            };
            out.push_str(keep);
            out.push('\n');
            for line in text.lines() {
                if !line.is_empty() {
                    out.push_str(&" ".repeat(indent));
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        Value::String(text) => {
            out.push_str(&scalar(text));
            out.push('\n');
        }
        other => {
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

/// Returns true if a string can be written as lines of their own: none begins or ends with white
/// space.
fn is_block(text: &str) -> bool {
    let odd = |line: &str| line.starts_with(' ') || line.ends_with(' ');
    text.contains('\n')
        && !text.starts_with('\n')
        && !text.chars().any(|c| c.is_control() && c != '\n')
        && !text.lines().any(odd)
}

/// Returns a string on one line.
fn scalar(text: &str) -> String {
    if text.chars().any(char::is_control) {
        // JSON's strings are YAML's in double quotes.
        return Value::from(text).to_string();
    }
    if is_plain(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// Returns true if a string needs no quotes. It begins with nothing that YAML has a use for, holds
/// no comment and no key, and resolves to no other type.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return false;
    };
    let second = chars.next();
    let indicator = match first {
        '-' | '?' | ':' => second.is_none_or(char::is_whitespace),
        c => ",[]{}#&*!|>'\"%@`".contains(c) || c.is_whitespace(),
    };
    !indicator
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text != "---"
        && text != "..."
        && !resolves(text)
}

/// Returns true if YAML's schema makes something else of a plain string.
fn resolves(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    if matches!(
        lower.as_str(),
        "~" | "null"
            | "true"
            | "false"
            | "yes"
            | "no"
            | "on"
            | "off"
            | "<<"
            | "="
            | ".inf"
            | "+.inf"
            | "-.inf"
            | ".nan"
    ) {
        return true;
    }
    let digits = lower.trim_start_matches(['-', '+']);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let only = |set: &str, t: &str| !t.is_empty() && t.chars().all(|c| set.contains(c));
    only("0123456789_", digits)
        || digits
            .strip_prefix("0x")
            .is_some_and(|t| only("0123456789abcdef_", t))
        || digits
            .strip_prefix("0o")
            .is_some_and(|t| only("01234567_", t))
        || digits.strip_prefix("0b").is_some_and(|t| only("01_", t))
        || is_float(digits)
        || is_sexagesimal(digits)
        || is_date(digits)
}

fn is_float(text: &str) -> bool {
    text.contains(['.', 'e'])
        && text.chars().any(|c| c.is_ascii_digit())
        && text.replace('_', "").parse::<f64>().is_ok()
}

/// Returns true for a number such as `12:30:00`, with minutes and seconds below 60.
fn is_sexagesimal(text: &str) -> bool {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or("");
    let rest: Vec<&str> = parts.collect();
    let number = |t: &str| !t.is_empty() && t.chars().all(|c| c.is_ascii_digit());
    !rest.is_empty()
        && number(first)
        && rest
            .iter()
            .all(|t| number(t) && t.len() <= 2 && t.parse::<u8>().is_ok_and(|n| n < 60))
}

/// Returns true for a date such as `2026-11-21`, also with a time behind it.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let number = |t: Option<&str>, len: &[usize]| {
        t.is_some_and(|t| len.contains(&t.len()) && t.chars().all(|c| c.is_ascii_digit()))
    };
    let (year, month, rest) = (parts.next(), parts.next(), parts.next().unwrap_or(""));
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (day, time) = rest.split_at(end);
    number(year, &[4])
        && number(month, &[1, 2])
        && number(Some(day), &[1, 2])
        && (time.is_empty()
            || time.starts_with(['t', ' '])
                && time.contains(':')
                && time
                    .chars()
                    .all(|c| c.is_ascii_digit() || "t :.z+-".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_where_they_are_needed() {
        for (text, expected) in [
            ("", "''"),
            ("2048", "'2048'"),
            ("0755", "'0755'"),
            ("true", "'true'"),
            (
                "2026-11-21T10:00:00.000000000Z",
                "'2026-11-21T10:00:00.000000000Z'",
            ),
            ("10.0.0.5", "10.0.0.5"),
            ("10.0.0.0/8,192.168.1.1", "10.0.0.0/8,192.168.1.1"),
            ("10.0.0.5:/share1", "10.0.0.5:/share1"),
            (
                "manual: \"databases\", and more",
                "'manual: \"databases\", and more'",
            ),
            ("@type", "'@type'"),
            ("it's", "it's"),
            ("- a", "'- a'"),
            ("-a", "-a"),
            ("a: b's", "'a: b''s'"),
            ("1.5", "'1.5'"),
            ("a\tb", "\"a\\tb\""),
        ] {
            assert_eq!(scalar(text), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in "[ -~\\n\\t가]{0,12}") {
            let value = serde_json::json!({"a": text, "b": [text, {"c": text}]});
            let read: Value = serde_yaml_ng::from_str(&document(&value))
                .map_err(|e| TestCaseError::fail(format!("{e}: {}", document(&value))))?;
            prop_assert_eq!(read, value);
        }
    }
}
