//! What all `show` commands have in common: fields with names, queries on them, and three forms to print them in.

use super::{none, refused};
use crate::cluster::Failure;
use crate::grammar::Parsed;
use crate::{query, table};

/// A field of a kind of record.
pub struct Field<T> {
    /// Its name in `-fields` and in queries.
    pub name: &'static str,
    /// Its heading in `-instance`.
    pub label: &'static str,
    /// Part of the key: stands in every `-fields` table.
    pub key: bool,
    /// Its value; `-` where there is none.
    pub value: fn(&T) -> String,
}

/// Reads `-fields`: known names, in the order of the table of fields, with the keys first.
fn chosen<'f, T>(fields: &'f [Field<T>], text: &str) -> Result<Vec<&'f Field<T>>, Failure> {
    let mut wanted: Vec<&str> = Vec::new();
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let found: Vec<&str> = match fields.iter().any(|f| f.name == name) {
            true => vec![name],
            false => fields
                .iter()
                .map(|f| f.name)
                .filter(|known| known.starts_with(name))
                .collect(),
        };
        match found.as_slice() {
            [one] => wanted.push(one),
            [] => return Err(super::invalid(name, "fields", "fieldname>, ...")),
            many => {
                return Err(refused(format!(
                    "\"{name}\" is ambiguous: it may be {}",
                    many.join(", ")
                )));
            }
        }
    }
    Ok(fields
        .iter()
        .filter(|f| f.key || wanted.contains(&f.name))
        .collect())
}

/// The records that match the queries among the arguments.
pub fn matching<T>(fields: &[Field<T>], parsed: &Parsed, records: Vec<T>) -> Vec<T> {
    let queries: Vec<(&Field<T>, &str)> = parsed
        .arguments
        .iter()
        .filter_map(|(name, text)| Some((fields.iter().find(|f| f.name == *name)?, text.as_str())))
        .collect();
    records
        .into_iter()
        .filter(|record| {
            queries
                .iter()
                .all(|(field, text)| query::matches(text, &(field.value)(record)))
        })
        .collect()
}

/// Prints the records that match: with `-fields` as a table of these, with `-instance` or where the key is given one
/// below the other, else as `summary` does.
pub fn print<T>(
    fields: &[Field<T>],
    parsed: &Parsed,
    records: Vec<T>,
    key: &[&str],
    summary: impl FnOnce(&[T]) -> String,
) -> Result<String, Failure> {
    let records = matching(fields, parsed, records);
    let chosen = parsed
        .get("fields")
        .map(|text| chosen(fields, text))
        .transpose()?;
    if records.is_empty() {
        return match parsed
            .arguments
            .iter()
            .any(|(name, _)| fields.iter().any(|f| f.name == *name))
        {
            true => Err(none()),
            false => Ok("This table is currently empty.\n".to_owned()),
        };
    }
    if let Some(chosen) = chosen {
        let names: Vec<&str> = chosen.iter().map(|f| f.name).collect();
        let rows: Vec<Vec<String>> = records
            .iter()
            .map(|record| chosen.iter().map(|f| (f.value)(record)).collect())
            .collect();
        return Ok(table::fields(&names, &rows));
    }
    let whole_key = key.iter().all(|name| {
        parsed
            .get(name)
            .is_some_and(|value| !value.contains(['*', '|', '!', '<', '>']))
    });
    if parsed.get("instance").is_some() || whole_key {
        let rows: Vec<Vec<(&str, String)>> = records
            .iter()
            .map(|record| {
                fields
                    .iter()
                    .map(|f| (f.label, (f.value)(record)))
                    .collect()
            })
            .collect();
        return Ok(table::instances(&rows));
    }
    Ok(summary(&records))
}

/// A dash for nothing.
pub fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}
