//! Common parts of all `show` commands: fields with names, queries on them, and three forms to
//! print them in.

use super::refusal::{none, refused};
use crate::cluster::Failure;
use crate::grammar::{self, Parsed};
use crate::{query, table, value};

/// A field of a kind of record.
pub struct Field<T> {
    /// Its name in `-fields` and in queries.
    pub name: &'static str,
    /// Its heading in `-instance`.
    pub label: &'static str,
    /// Part of the key: included in every `-fields` table.
    pub key: bool,
    /// Its value; `-` where there is none.
    pub value: fn(&T) -> String,
    /// Its value, if that is a number.
    pub number: Option<Number<T>>,
    /// Its value in full, where the text is rounded.
    pub exact: Option<fn(&T) -> Option<u64>>,
    /// Value that records are ordered by, for a key, where it is not the text.
    pub order: Option<fn(&T) -> u64>,
    /// Its value for programs, where that is a time or a duration.
    pub instant: Option<fn(&T) -> Option<Instant>>,
    /// Its values are words of ONTAP's, which programs write with underscores.
    pub words: bool,
    /// Shown only if it is asked for by its whole name.
    pub aside: bool,
}

/// The reader of a field that is a number.
pub enum Number<T> {
    /// Bytes, which are rounded for people.
    Bytes(fn(&T) -> u64),
    /// Any other number.
    Plain(fn(&T) -> u64),
}

/// A time or a duration, which programs get in the form of ISO 8601.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    /// Seconds since 1970, UTC.
    At(i64),
    /// Seconds.
    For(u64),
}

impl<T> Field<T> {
    /// Creates a field that is not part of the key.
    pub const fn new(name: &'static str, label: &'static str, value: fn(&T) -> String) -> Field<T> {
        Field {
            name,
            label,
            key: false,
            value,
            number: None,
            exact: None,
            order: None,
            instant: None,
            words: false,
            aside: false,
        }
    }

    /// Creates a field with a number of bytes, rounded for people.
    pub const fn sized(name: &'static str, label: &'static str, bytes: fn(&T) -> u64) -> Field<T> {
        Field {
            number: Some(Number::Bytes(bytes)),
            ..Field::new(name, label, |_| String::new())
        }
    }

    /// Creates a field with a number.
    pub const fn counted(name: &'static str, label: &'static str, n: fn(&T) -> u64) -> Field<T> {
        Field {
            number: Some(Number::Plain(n)),
            ..Field::new(name, label, |_| String::new())
        }
    }

    /// Returns its value as text.
    pub fn text(&self, record: &T) -> String {
        match self.number {
            Some(Number::Bytes(bytes)) => value::size(bytes(record)),
            Some(Number::Plain(n)) => n(record).to_string(),
            None => (self.value)(record),
        }
    }

    /// Returns a field of the key.
    pub const fn key(name: &'static str, label: &'static str, value: fn(&T) -> String) -> Field<T> {
        Field {
            key: true,
            ..Field::new(name, label, value)
        }
    }

    /// Returns the field with its value in full.
    pub const fn exact(self, exact: fn(&T) -> Option<u64>) -> Field<T> {
        Field {
            exact: Some(exact),
            ..self
        }
    }

    /// Returns the key with records ordered by a number.
    pub const fn ordered(self, order: fn(&T) -> u64) -> Field<T> {
        Field {
            order: Some(order),
            ..self
        }
    }

    /// Returns the field with its value as a time or a duration.
    pub const fn instant(self, instant: fn(&T) -> Option<Instant>) -> Field<T> {
        Field {
            instant: Some(instant),
            ..self
        }
    }

    /// Returns the field as one whose values are words.
    pub const fn words(self) -> Field<T> {
        Field {
            words: true,
            ..self
        }
    }

    /// Returns the field as one that is shown only if it is asked for.
    pub const fn aside(self) -> Field<T> {
        Field {
            aside: true,
            ..self
        }
    }

    /// Returns the value that records are ordered by.
    fn place(&self, record: &T) -> String {
        match self.order {
            Some(order) => order(record).to_string(),
            None => self.text(record),
        }
    }

    fn scalar(&self, record: &T) -> Scalar {
        if let Some(Number::Bytes(number) | Number::Plain(number)) = self.number {
            return Scalar::Number(number(record));
        }
        if let Some(exact) = self.exact {
            return exact(record).map_or(Scalar::None, Scalar::Number);
        }
        if let Some(instant) = self.instant {
            return instant(record).map_or(Scalar::None, |at| {
                Scalar::Text(match at {
                    Instant::At(seconds) => value::iso_timestamp(seconds),
                    Instant::For(seconds) => value::iso_duration(seconds),
                })
            });
        }
        let mut text = (self.value)(record);
        if self.words {
            text = text.replace('-', "_");
        }
        match text.as_str() {
            "-" | "" => Scalar::None,
            "true" => Scalar::Flag(true),
            "false" => Scalar::Flag(false),
            "_" if self.words => Scalar::None,
            digits if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
                Ok(number) => Scalar::Number(number),
                Err(_) => Scalar::Text(text),
            },
            _ => Scalar::Text(text),
        }
    }
}

/// A value for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// The field has no value; `-` in tables.
    None,
    /// A boolean, printed as `true` or `false`.
    Flag(bool),
    /// A number; bytes, where it is a size.
    Number(u64),
    /// Any other value, as text.
    Text(String),
}

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
fn chosen<'f, T>(
    fields: &'f [Field<T>],
    text: &str,
    lenient: bool,
) -> Result<Vec<&'f Field<T>>, Failure> {
    let mut wanted: Vec<&'static str> = Vec::new();
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        // Programs write underscores.
        let name = &name.replace('_', "-");
        let exact = fields.iter().map(|f| f.name).find(|known| known == name);
        let found: Vec<&'static str> = match exact {
            Some(exact) => vec![exact],
            None if lenient => continue,
            None => fields
                .iter()
                .filter(|f| !f.aside)
                .map(|f| f.name)
                .filter(|known| known.starts_with(name.as_str()))
                .collect(),
        };
        match found.as_slice() {
            [one] => wanted.push(one),
            [] => {
                let valid = fields.iter().filter(|f| !f.aside);
                let valid: Vec<&str> = valid.map(|f| f.name).collect();
                return Err(super::refusal::not_among(
                    name,
                    "fields",
                    "fieldname>, ...",
                    &valid.join(", "),
                ));
            }
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

/// Returns the records that match the queries among the arguments.
///
/// # Errors
/// A program queries a field that there is none of.
pub fn matching<T>(
    fields: &[Field<T>],
    parsed: &Parsed,
    records: Vec<T>,
) -> Result<Vec<T>, Failure> {
    let named = |name: &str| fields.iter().find(|f| f.name == name);
    let mut queries: Vec<(&Field<T>, &str)> = parsed
        .arguments
        .iter()
        .filter_map(|(name, text)| Some((named(name)?, text.as_str())))
        .collect();
    for (name, text) in &parsed.queries {
        match named(name) {
            Some(field) => queries.push((field, text)),
            None if parsed.lenient => {}
            None => return Err(refused(grammar::no_argument(name))),
        }
    }
    Ok(records
        .into_iter()
        .filter(|record| {
            queries.iter().all(|(field, text)| {
                let value = field.text(record);
                match field.words && parsed.for_programs {
                    true => query::matches(&text.replace('_', "-"), &value),
                    false => query::matches(text, &value),
                }
            })
        })
        .collect())
}

/// Prints the records that match. With `-fields` it is a table of these; with `-instance` or where
/// the key is given they are one below the other; else it is as `summary` does.
pub fn print<T>(
    fields: &[Field<T>],
    parsed: &Parsed,
    records: Vec<T>,
    key: &[&str],
    summary: impl FnOnce(&[T]) -> String,
) -> Result<Answer, Failure> {
    let records = matching(fields, parsed, records)?;
    if parsed.for_programs {
        return for_programs(fields, parsed, &records);
    }
    let chosen = parsed
        .get("fields")
        .map(|text| chosen(fields, text, false))
        .transpose()?;
    if records.is_empty() {
        return match parsed
            .arguments
            .iter()
            .any(|(name, _)| fields.iter().any(|f| f.name == *name))
        {
            true => Err(none()),
            false => Ok("This table is currently empty.\n".to_owned().into()),
        };
    }
    if let Some(chosen) = chosen {
        let names: Vec<&str> = chosen.iter().map(|f| f.name).collect();
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
        let rows: Vec<Vec<(&str, String)>> = records
            .iter()
            .map(|record| {
                fields
                    .iter()
                    .filter(|f| !f.aside)
                    .map(|f| (f.label, f.text(record)))
                    .collect()
            })
            .collect();
        return Ok(table::instances(&rows).into());
    }
    Ok(summary(&records).into())
}

/// Returns the keys and the fields asked for (`*`: all); without `-fields`, the keys alone, as
/// ONTAP's interface for programs does it.
fn for_programs<T>(fields: &[Field<T>], parsed: &Parsed, records: &[T]) -> Result<Answer, Failure> {
    let chosen: Vec<&Field<T>> = match parsed.get("fields") {
        Some("*" | "**") => fields.iter().collect(),
        text => chosen(fields, text.unwrap_or_default(), parsed.lenient)?,
    };
    let keys = fields.iter().filter(|f| f.key);
    let values = |record| Record {
        place: keys.clone().map(|f| f.place(record)).collect(),
        fields: chosen.iter().map(|f| (f.name, f.scalar(record))).collect(),
    };
    Ok(Answer::Records(records.iter().map(values).collect()))
}

/// Returns the value, or a dash for none.
pub fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}
