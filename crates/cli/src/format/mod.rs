//! gcloud's output formats: `--format=NAME[attributes](projection)`.
//!
//! A format is parsed once ([`parse`]) and applied to one resource or to a list of them. A command
//! has a default format of its own (mostly a table). Labels and the order of a table's rows that a
//! user's format leaves open are taken from there, column by column, by the column's key. What
//! comes out is compared with gcloud's own, byte for byte, in `tests/golden.rs`.

mod flat;
mod key;
mod parse;
mod table;
mod transform;
mod yaml;

pub use key::Key;
pub use parse::{Scanner, parse};
pub use transform::size;
pub use yaml::document as yaml_document;

use std::cmp::Ordering;

use serde_json::Value;

/// The output formats, named as gcloud names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Aligned columns under headings, for people
    Table,
    /// The whole resource as JSON
    Json,
    /// The whole resource as YAML
    Yaml,
    /// Comma-separated values, quoted as they need it
    Csv,
    /// Tab-separated values, for scripts
    Value,
    /// Tab-separated values in full: without the transforms of the command's own format
    Get,
    /// One `path: value` a line
    Flattened,
    /// Indented lines, an item behind a dash
    List,
    /// Nothing is printed at all
    None,
}

/// Alignment of a column of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Align {
    /// To the left, as text is
    #[default]
    Left,
    /// In the middle of the column
    Center,
    /// To the right, as numbers are
    Right,
}

/// A column of a projection.
#[derive(Debug, Clone, Default)]
pub struct Column {
    /// The value that it shows
    pub key: Key,
    /// Its heading; none takes the key's last name
    pub label: Option<String>,
    /// Its place among the columns by which rows are ordered, from 1
    pub sort: Option<u32>,
    /// True if that order is descending
    pub reverse: bool,
    /// Place of cells in the width
    pub align: Align,
    /// True if it is not shown when no row has a value
    pub optional: bool,
}

/// A parsed `--format`, or a command's own.
#[derive(Debug, Clone)]
pub struct Format {
    /// The form of the output
    pub kind: Kind,
    /// Attributes, `no-heading` being the value `false` of `heading`
    pub attributes: Vec<(String, Option<String>)>,
    /// The projection; empty shows all
    pub columns: Vec<Column>,
}

impl Format {
    /// Creates a format that shows all.
    pub fn plain(kind: Kind) -> Self {
        Self {
            kind,
            attributes: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// Takes what is open from a command's default.
    #[must_use]
    pub fn over(mut self, default: Option<&Self>) -> Self {
        let Some(default) = default else {
            return self;
        };
        let sorted = self.columns.iter().any(|c| c.sort.is_some());
        let cells = matches!(
            self.kind,
            Kind::Table | Kind::Csv | Kind::Value | Kind::List
        );
        for column in &mut self.columns {
            let same = |c: &&Column| c.key.path == column.key.path;
            if let Some(from) = default.columns.iter().find(same) {
                if column.label.is_none() {
                    column.label.clone_from(&from.label);
                }
                if cells && column.key.transforms.is_empty() {
                    column.key.transforms.clone_from(&from.key.transforms);
                }
                if !sorted {
                    column.sort = from.sort;
                }
            }
        }
        self
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let of_name = |(n, v): &'_ (String, Option<String>)| (n == name).then(|| v.clone());
        let found = self.attributes.iter().position(|a| of_name(a).is_some())?;
        self.attributes.get(found)?.1.as_deref()
    }

    fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(n, _)| n == name)
    }

    /// Prints a list of resources. `ordered` says that the user chose their order already.
    ///
    /// # Errors
    /// A format that needs a projection and has none.
    pub fn list(&self, resources: &[Value], ordered: bool) -> Result<String, String> {
        match self.kind {
            Kind::None => Ok(String::new()),
            Kind::Json => {
                let shown: Vec<Value> = resources.iter().map(|r| self.project(r)).collect();
                Ok(json(&Value::Array(shown)))
            }
            Kind::Yaml => Ok(resources
                .iter()
                .map(|r| format!("---\n{}", yaml_document(&self.project(r))))
                .collect()),
            Kind::Table => table::print(self, &self.rows(resources, ordered)?),
            Kind::Csv => flat::csv(self, resources),
            Kind::Value | Kind::Get => flat::values(self, resources),
            Kind::Flattened => Ok(resources
                .iter()
                .map(|r| format!("---\n{}", flat::flattened(&self.project(r))))
                .collect()),
            Kind::List => Ok(flat::list(self, resources)),
        }
    }

    /// Prints one resource, not as a list.
    ///
    /// # Errors
    /// As [`Format::list`].
    pub fn one(&self, resource: &Value) -> Result<String, String> {
        match self.kind {
            Kind::Json => Ok(json(&self.project(resource))),
            Kind::Yaml => Ok(yaml_document(&self.project(resource))),
            Kind::Flattened => Ok(flat::flattened(&self.project(resource))),
            _ => self.list(std::slice::from_ref(resource), false),
        }
    }

    /// Returns the rows in the order that the columns ask for.
    fn rows<'a>(&self, resources: &'a [Value], ordered: bool) -> Result<Vec<&'a Value>, String> {
        if self.columns.is_empty() {
            return Err(needs_projection("table"));
        }
        let mut rows: Vec<&Value> = resources.iter().collect();
        let mut by: Vec<&Column> = self.columns.iter().filter(|c| c.sort.is_some()).collect();
        by.sort_by_key(|c| c.sort);
        if !ordered && !by.is_empty() {
            rows.sort_by(|a, b| {
                by.iter()
                    .map(|c| {
                        let order = compare(&c.key.get(a), &c.key.get(b));
                        if c.reverse { order.reverse() } else { order }
                    })
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            });
        }
        Ok(rows)
    }

    /// Returns the part of a resource that a JSON or YAML projection keeps, in its place.
    fn project(&self, resource: &Value) -> Value {
        if self.columns.is_empty() {
            return resource.clone();
        }
        let mut kept = Value::Object(serde_json::Map::new());
        for column in &self.columns {
            column.key.copy(resource, &mut kept);
        }
        kept
    }
}

/// Says that a format needs a projection.
fn needs_projection(name: &str) -> String {
    format!(
        "Format [{name}] requires a non-empty projection. Use key parameters to specify a \
         projection like so `{name}(foo, bar.baz)`"
    )
}

/// Returns indented JSON with a line end.
fn json(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
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
fn joined(value: &Value, delimiter: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resource() -> Value {
        serde_json::json!({
            "name": "projects/p/locations/l/volumes/v", "capacityGib": "1024", "a": [1, {"b": "c"}],
            "labels": {"k": "v"}, "createTime": "2026-11-21T10:00:00Z", "description": "x\u{1b}[2J\ny",
        })
    }

    #[test]
    fn a_name_has_no_say_over_the_terminal() {
        let format = parse("table(description)").unwrap();
        let printed = format.list(&[resource()], false).unwrap();
        assert_eq!(printed, "DESCRIPTION\nx\\u{1b}[2J\\ny\n");
    }

    #[test]
    fn dates_with_formats_that_are_none() {
        assert!(parse("value(createTime.date(\"%!\"))").is_err());
        assert!(parse("value(createTime.date(\"%Y\"))").is_ok());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            kind in prop::sample::select(vec!["table", "csv", "value", "json", "yaml", "list", "flattened"]),
            rest in "[\\[(a-e.:,=)\\]0-9'\"-]{0,10}",
            call in prop::sample::select(vec!["segment", "scope", "date", "list", "join", "yesno", "len", "size", "duration", "basename"]),
            arguments in "[a-z=,'%Y0-9-]{0,8}",
        ) {
            for text in [format!("{kind}{rest}"), format!("{kind}(name.{call}({arguments}))"), format!("{kind}[box](a[{arguments}].b,createTime.{call}():sort=1)")] {
                if let Ok(format) = parse(&text) {
                    let _ = (format.one(&resource()), format.list(&[resource(), Value::Null], false));
                }
            }
        }
    }
}
