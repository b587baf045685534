//! Common parts of all `show` commands: fields with names, queries on them, and three forms to
//! print them in.

use crate::cluster::Failure;
use crate::fields::{Field, Scalar, Value};
use crate::grammar::ParsedCommand;
use crate::query;
use crate::refusal::{none, not_among, refused};
use crate::table::{self, Column};

/// Answer of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The text that ONTAP would print.
    Text(String),
    /// Records with the values asked for.
    Records(Vec<Record>),
}

/// A record for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The values that records are ordered by, those of the key; they never change.
    pub place: Vec<String>,
    /// Values by the names of fields.
    pub fields: Vec<(&'static str, Scalar)>,
}

impl From<String> for Answer {
    fn from(text: String) -> Answer {
        Answer::Text(text)
    }
}

/// Reads `-fields`: known names, in the order of the table of fields, with the keys first.
/// `lenient`: other names are passed over, and none is abbreviated.
fn chosen<'f, T, D>(
    fields: &'f [Field<T, D>],
    text: &str,
    lenient: bool,
) -> Result<Vec<&'f Field<T, D>>, Failure> {
    let columns = || fields.iter().filter(|f| !f.column.is_empty());
    let plain = || columns().filter(|f| !f.aside).map(|f| f.column);
    let mut wanted: Vec<&'static str> = Vec::new();
    for name in names(text) {
        let exact = columns().map(|f| f.column).find(|known| *known == name);
        let found: Vec<&'static str> = match exact {
            Some(exact) => vec![exact],
            None if lenient => continue,
            None => plain().filter(|known| known.starts_with(&name)).collect(),
        };
        match found.as_slice() {
            [one] => wanted.push(one),
            [] => {
                let valid = plain().collect::<Vec<_>>().join(", ");
                return Err(not_among(&name, "fields", "fieldname>, ...", &valid));
            }
            many => {
                return Err(refused(format!(
                    "\"{name}\" is ambiguous: it may be {}",
                    many.join(", ")
                )));
            }
        }
    }
    let all = columns().filter(|f| f.key || wanted.contains(&f.column));
    Ok(all.collect())
}

/// Returns the names in `-fields`; programs write underscores.
fn names(text: &str) -> impl Iterator<Item = String> {
    let all = text.split(',').map(|name| name.trim().replace('_', "-"));
    all.filter(|name| !name.is_empty())
}

/// Returns true if a field that is costly is asked for, by its name or with all others, or queried.
pub fn asks_costly<T, D>(fields: &[Field<T, D>], parsed: &ParsedCommand) -> bool {
    let named = |text: &str, column: &str| names(text).any(|n| n == column || n.starts_with('*'));
    let mut costly = fields.iter().filter(|f| f.costly).map(|f| f.column);
    costly.any(|column| {
        let asked = parsed.get("fields").is_some_and(|text| named(text, column));
        asked || parsed.get(column).is_some()
    })
}

/// Returns the records that match the queries among the arguments.
pub fn matching<T, D>(
    fields: &[Field<T, D>],
    parsed: &ParsedCommand,
    mut records: Vec<T>,
) -> Vec<T> {
    let all = parsed.arguments.iter().filter_map(|(name, text)| {
        Some((fields.iter().find(|f| f.column == *name)?, text.as_str()))
    });
    for (field, text) in all {
        records.retain(|record| match field.value(record) {
            // Programs write words with underscores.
            Value::Word(word) if parsed.for_programs => {
                query::matches(&text.replace('_', "-"), word)
            }
            value => query::matches(text, &value.line()),
        });
    }
    records
}

/// Prints the records that match. With `-fields` it is a table of these; with `-instance` or where
/// the key is given they are one below the other; else it is as `summary` does.
pub fn print<T, D>(
    fields: &[Field<T, D>],
    parsed: &ParsedCommand,
    records: Vec<T>,
    key: &[&str],
    summary: impl FnOnce(&[T]) -> String,
) -> Result<Answer, Failure> {
    let records = matching(fields, parsed, records);
    if parsed.for_programs {
        return for_programs(fields, parsed, &records);
    }
    let chosen = parsed
        .get("fields")
        .map(|text| chosen(fields, text, false))
        .transpose()?;
    if records.is_empty() {
        let asked = |name: &str| fields.iter().any(|f| f.column == name);
        return match parsed.arguments.iter().any(|(name, _)| asked(name)) {
            true => Err(none()),
            false => Ok("This table is currently empty.\n".to_owned().into()),
        };
    }
    if let Some(chosen) = chosen {
        let names: Vec<&str> = chosen.iter().map(|f| f.column).collect();
        let rows: Vec<Vec<String>> = records
            .iter()
            .map(|record| chosen.iter().map(|f| f.text(record)).collect())
            .collect();
        return Ok(table::fields(&names, &rows).into());
    }
    let whole_key = key.iter().all(|name| {
        parsed
            .get(name)
            .is_some_and(|value| !value.contains(['*', '|', '!', '<', '>']))
    });
    if parsed.get("instance").is_some() || whole_key {
        let shown = |f: &&Field<T, D>| !f.aside && !f.column.is_empty();
        let row = |record| {
            let all = fields.iter().filter(shown);
            all.map(|f| (f.label, f.text(record))).collect()
        };
        let rows: Vec<Vec<(&str, String)>> = records.iter().map(row).collect();
        return Ok(table::instances(&rows).into());
    }
    Ok(summary(&records).into())
}

/// Returns the cells of a record: the fields that the columns show. A column of no field has a
/// dash.
pub fn cells<T, D>(fields: &[Field<T, D>], columns: &[Column], record: &T) -> Vec<String> {
    let cell = |column: &Column| {
        let shows = |f: &&Field<T, D>| !f.column.is_empty() && f.column == column.field;
        let field = fields.iter().find(shows);
        let text = field.map_or_else(|| "-".to_owned(), |f| f.text(record));
        match column.right {
            true => format!("{text:>width$}", width = column.width),
            false => text,
        }
    };
    columns.iter().map(cell).collect()
}

/// Prints as [`print()`] does, with a summary of fields.
pub fn list<T, D>(
    fields: &[Field<T, D>],
    parsed: &ParsedCommand,
    records: Vec<T>,
    key: &[&str],
    columns: &[Column],
) -> Result<Answer, Failure> {
    print(fields, parsed, records, key, |all| {
        let rows: Vec<Vec<String>> = all.iter().map(|r| cells(fields, columns, r)).collect();
        table::fixed(columns, &rows)
    })
}

/// Returns the keys and the fields asked for (`*`: all); without `-fields`, the keys alone, as
/// ONTAP's interface for programs does it.
fn for_programs<T, D>(
    fields: &[Field<T, D>],
    parsed: &ParsedCommand,
    records: &[T],
) -> Result<Answer, Failure> {
    let chosen: Vec<&Field<T, D>> = match parsed.get("fields") {
        Some("*" | "**") => fields.iter().filter(|f| !f.column.is_empty()).collect(),
        text => chosen(fields, text.unwrap_or_default(), parsed.lenient)?,
    };
    let keys = fields.iter().filter(|f| f.key);
    let values = |record| Record {
        place: keys.clone().map(|f| f.place(record)).collect(),
        fields: chosen
            .iter()
            .map(|f| (f.column, f.value(record).scalar()))
            .collect(),
    };
    Ok(Answer::Records(records.iter().map(values).collect()))
}

/// Returns the value, or a dash for none.
pub fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Value;

    #[test]
    fn a_column_of_no_field_has_a_dash() {
        let fields: &[Field<u8>] = &[
            Field::rest("uuid", |_| Value::Text("no column".to_owned())),
            Field::new("name", "name", "Name", |n| Value::Text(n.to_string())),
        ];
        let columns = [
            Column::new(&["Name"], 4).with_field("name"),
            Column::new(&["Root"], 4),
            Column::new(&["Gone"], 4).with_field("gone"),
        ];
        assert_eq!(cells(fields, &columns, &7), ["7", "-", "-"]);
    }
}
