//! Transforms of values: those of gcloud's that fit what is listed here.

use jiff::fmt::strtime;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::cell::{joined, number, text};
use super::key::Key;
use super::parse::Scanner;

/// A transform with its arguments.
#[derive(Debug, Clone)]
pub enum Transform {
    /// The last part of a path
    Basename,
    /// A part of a path
    Segment(i64),
    /// The rest behind a part of a path
    Scope(Vec<String>),
    /// A time, formatted as strftime does
    Date(String),
    /// The items, joined with this separator
    List(String),
    /// One of two texts
    YesNo(Option<String>, Option<String>),
    /// The number of items or characters
    Len,
    /// The text in small letters
    Lower,
    /// The text in capital letters
    Upper,
    /// A number of bytes with a unit, after multiplication by so much
    Size(f64),
    /// Between two times, in the words of ISO 8601 without the leading `PT`
    Duration(Key, Key),
}

fn unit(letters: &str) -> Option<f64> {
    let power = match letters.trim_end_matches('B').trim_end_matches('i') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    Some(1024f64.powi(power))
}

impl Transform {
    /// Returns the transform of a name; none where there is no such one or its arguments are not
    /// its.
    pub fn from_name(
        name: &str,
        positional: Vec<String>,
        named: Vec<(String, String)>,
    ) -> Option<Self> {
        let argument = |place: usize, name: &str| {
            let by_name = named
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.clone());
            by_name.or_else(|| positional.get(place).cloned())
        };
        Some(match name {
            "basename" => Self::Basename,
            "segment" => Self::Segment(argument(0, "index").map_or(Some(-1), |i| i.parse().ok())?),
            "scope" if positional.is_empty() => {
                Self::Scope(vec!["regions".to_owned(), "zones".to_owned()])
            }
            "scope" => Self::Scope(positional),
            "date" => {
                let format = argument(0, "format");
                let format = format.unwrap_or_else(|| "%Y-%m-%dT%H:%M:%S".to_owned());
                strtime::format(&format, Timestamp::UNIX_EPOCH).ok()?;
                Self::Date(format)
            }
            "list" => Self::List(argument(9, "separator").unwrap_or_else(|| ",".to_owned())),
            "join" => Self::List(argument(0, "sep").unwrap_or_else(|| "/".to_owned())),
            "yesno" => Self::YesNo(argument(0, "yes"), argument(1, "no")),
            "len" | "count" => Self::Len,
            "lower" => Self::Lower,
            "upper" => Self::Upper,
            "size" => Self::Size(unit(&argument(9, "units_in").unwrap_or_default())?),
            "duration" => {
                let key = |text: Option<String>| Scanner::new(&text?).key().ok();
                Self::Duration(key(argument(0, "start"))?, key(argument(1, "end"))?)
            }
            _ => return None,
        })
    }

    /// Returns the value that it makes of one found in `resource`.
    pub fn apply(&self, value: Value, resource: &Value) -> Value {
        match self {
            Self::Basename => Value::from(text(&value).rsplit('/').next().unwrap_or("")),
            Self::Segment(index) => {
                let path = text(&value);
                let parts: Vec<&str> = path.split('/').collect();
                let len = i64::try_from(parts.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 {
                    len.saturating_add(*index)
                } else {
                    *index
                };
                let part = usize::try_from(index).ok().and_then(|i| parts.get(i));
                Value::from(part.copied().unwrap_or(""))
            }
            Self::Scope(names) => {
                let path = text(&value);
                let after = names
                    .iter()
                    .find_map(|n| path.split_once(&format!("/{n}/")).map(|(_, rest)| rest));
                let last = path.rsplit('/').next().unwrap_or("");
                Value::from(after.unwrap_or(last))
            }
            Self::Date(format) => {
                let time = text(&value).parse::<Timestamp>().ok();
                let shown = time.and_then(|time| strtime::format(format, time).ok());
                Value::from(shown.unwrap_or_default())
            }
            Self::List(separator) => Value::from(joined(&value, separator)),
            Self::YesNo(yes, no) => match (is_true(&value), yes, no) {
                (true, Some(yes), _) => Value::from(yes.as_str()),
                (true, None, _) => value,
                (false, _, Some(no)) => Value::from(no.as_str()),
                (false, ..) => Value::from("No"),
            },
            Self::Len => Value::from(match &value {
                Value::Array(items) => items.len(),
                Value::Object(map) => map.len(),
                other => text(other).chars().count(),
            }),
            Self::Lower => Value::from(text(&value).to_lowercase()),
            Self::Upper => Value::from(text(&value).to_uppercase()),
            Self::Size(factor) => Value::from(size(number(&value).unwrap_or(0.0) * factor)),
            Self::Duration(start, end) => {
                let time = |key: &Key| text(&key.get(resource)).parse::<Timestamp>().ok();
                match (time(start), time(end)) {
                    (Some(start), Some(end)) => Value::from(lasted(end.duration_since(start))),
                    _ => Value::from(""),
                }
            }
        }
    }
}

/// Returns true if Python takes the value as true.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Returns a number of bytes in its largest unit.
pub fn size(mut amount: f64) -> String {
    if amount == 0.0 {
        return "0".to_owned();
    }
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if amount.abs() < 1024.0 {
            return format!("{} {unit}", short(amount));
        }
        amount /= 1024.0;
    }
    format!("{} PiB", short(amount))
}

/// Returns an amount with one digit after the point, unless it is a zero.
fn short(amount: f64) -> String {
    let text = format!("{amount:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns `2H2M9S`; empty below a second. Seconds are rounded.
fn lasted(duration: SignedDuration) -> String {
    let mut seconds = duration.as_secs();
    if duration.subsec_millis() >= 500 {
        seconds = seconds.saturating_add(1);
    }
    let mut out = String::new();
    for (unit, length) in [("H", 3600), ("M", 60), ("S", 1)] {
        let n = seconds / length;
        seconds %= length;
        if n > 0 {
            out.push_str(&format!("{n}{unit}"));
        }
    }
    out
}
