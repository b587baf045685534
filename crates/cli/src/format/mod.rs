//! gcloud's output formats: `--format=NAME[attributes](projection)`.
//!
//! A format is parsed once ([`mod@parse`]) and applied to one resource or to a list of them. A
//! command has a default format of its own (mostly a table). Labels and the order of a table's rows
//! that a user's format leaves open are taken from there, column by column, by the column's key.
//! The output is compared with gcloud's own, byte for byte, in `tests/golden.rs`.

mod cell;
mod flat;
mod key;
mod model;
mod parse;
mod table;
mod transform;
mod yaml;

pub use cell::{compare, number, text};
pub use key::Key;
pub use model::{Column, Format, Kind};
pub use parse::{Scanner, parse};
pub use transform::size;
pub use yaml::document as yaml_document;

use std::cmp::Ordering;

use serde_json::Value;

use cell::needs_projection;

impl Format {
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

/// Returns indented JSON with a line end.
fn json(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
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
