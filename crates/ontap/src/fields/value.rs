//! Values of fields, with all their spellings.

use crate::value;

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// There is none: a dash on lines.
    None,
    /// True or false.
    Flag(bool),
    /// A whole number.
    Number(u64),
    /// A number with three decimal places on lines.
    Decimal(f64),
    /// A part in percent: `5%` on lines, else a number.
    Percent(u64),
    /// Bytes: rounded on lines (`1.50GB`), else in full.
    Bytes(u64),
    /// Bytes that a user gave: on lines as they were given (`16GB`), else in full.
    Capacity(u64),
    /// Seconds since 1970, UTC: `Thu May  4 10:41:30 2023` on lines, else RFC 3339.
    Time(i64),
    /// Seconds since 1970, UTC: `05/04 10:41:30` on lines, else RFC 3339.
    Moment(i64),
    /// Seconds that something takes: `0:4:41` on lines, else ISO 8601.
    Span(u64),
    /// Any text, also none.
    Text(String),
    /// Text that people write: if it is empty, a dash on lines.
    Remark(String),
    /// A word of ONTAP's as lines have it; programs write `_` for its dashes.
    Word(&'static str),
    /// A word with one spelling for the command line and one for REST.
    Spelled(&'static str, &'static str),
    /// Permission bits: `---rwxr-xr-x`; in REST a number whose decimal digits are octal.
    Mode(u32),
    /// Several values; on lines separated by `, `.
    List(Vec<Value>),
    /// An object of REST, by dotted names.
    Object(Vec<(&'static str, Value)>),
    /// A text for lines, and the value for programs.
    Shown(String, Box<Value>),
    /// A text for the command line, and the value for REST.
    Apart(String, Box<Value>),
}

/// A value for programs that use commands.
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

/// Creates a text.
pub(crate) fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

/// Creates the identity of a resource that is known by its name.
pub(crate) fn identity(kind: &str, name: &str) -> Value {
    text(value::identity(kind, name))
}

/// Returns the identity of a storage pool.
pub fn pool_uuid(svm: &str, location: &str, name: &str) -> String {
    value::identity("aggregate", &format!("{svm}/{location}/{name}"))
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::None, Into::into)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number as u64)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl Value {
    /// Returns the value of a text in a table: a boolean, a number, `-` for none, or a word.
    pub(crate) fn constant(text: &'static str) -> Value {
        match text {
            "-" => Value::None,
            "true" => Value::Flag(true),
            "false" => Value::Flag(false),
            word => match word.parse() {
                Ok(number) => Value::Number(number),
                Err(_) if word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') => {
                    Value::Word(word)
                }
                Err(_) => word.into(),
            },
        }
    }

    /// Returns the value as people read it on the command line.
    pub fn line(&self) -> String {
        match self {
            Value::None | Value::Object(_) => "-".to_owned(),
            Value::Flag(flag) => flag.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Decimal(number) => format!("{number:.3}"),
            Value::Percent(percent) => format!("{percent}%"),
            Value::Bytes(bytes) => value::size(*bytes),
            Value::Capacity(bytes) => value::tidy_size(*bytes),
            Value::Time(at) => value::long_timestamp(*at),
            Value::Moment(at) => value::timestamp(*at),
            Value::Span(seconds) => value::duration(*seconds),
            Value::Remark(text) if text.is_empty() => "-".to_owned(),
            Value::Text(text)
            | Value::Remark(text)
            | Value::Shown(text, _)
            | Value::Apart(text, _) => text.clone(),
            Value::Word(word) | Value::Spelled(word, _) => (*word).to_owned(),
            Value::Mode(mode) => value::signs(*mode),
            Value::List(all) => {
                let all: Vec<String> = all.iter().map(Value::line).collect();
                match all.is_empty() {
                    true => "-".to_owned(),
                    false => all.join(", "),
                }
            }
        }
    }

    /// Returns the value as programs get it that use commands.
    pub fn scalar(&self) -> Scalar {
        match self {
            Value::None => Scalar::None,
            Value::Flag(flag) => Scalar::Flag(*flag),
            Value::Number(number)
            | Value::Percent(number)
            | Value::Bytes(number)
            | Value::Capacity(number) => Scalar::Number(*number),
            Value::Time(at) | Value::Moment(at) => Scalar::text(value::iso_timestamp(*at)),
            Value::Span(seconds) => Scalar::Text(value::iso_duration(*seconds)),
            Value::Word(word) => Scalar::text(word.replace('-', "_")),
            Value::Shown(_, value) => value.scalar(),
            other => Scalar::text(other.line()),
        }
    }
}

impl Scalar {
    /// Creates a text; none, where it is empty or a dash.
    fn text(text: String) -> Scalar {
        match text.as_str() {
            "-" | "" => Scalar::None,
            _ => Scalar::Text(text),
        }
    }
}
