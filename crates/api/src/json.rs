//! Protocol buffers' JSON mapping, driven by the tables of [`crate::schema`].
//!
//! Decoding makes one normal form of the many that clients send. It has names in lowerCamelCase,
//! 64-bit integers and doubles as JSON numbers, enums as names, and nothing that is null,
//! unspecified or output-only. Encoding goes the other way: 64-bit integers as strings, enums as
//! names or numbers as the client asked.

use crate::error::{ApiError, ApiResult, Violation};
use crate::schema::{Enum, Field, Kind, Message};
use serde_json::{Map, Number, Value};

/// A message in normal form.
pub type Object = Map<String, Value>;

/// Maximum number of wrong fields that one response names: enough to mend a file by, and bounded.
const MAX_VIOLATIONS: usize = 20;

/// Reads a body. An empty one is an empty message.
///
/// # Errors
/// INVALID_ARGUMENT: not JSON, not an object, or fields that are unknown or of another type, with
/// their paths.
pub fn decode_body(message: &Message, body: &[u8]) -> ApiResult<Object> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Object::new());
    }
    let value: Value = serde_json::from_slice(body).map_err(|e| {
        ApiError::new(
            weir_control::Status::InvalidArgument,
            "INVALID_JSON",
            format!("Invalid JSON payload received. {e}"),
        )
    })?;
    decode(message, &value)
}

/// Makes the normal form of a message.
///
/// # Errors
/// INVALID_ARGUMENT with the path of every wrong field.
pub fn decode(message: &Message, value: &Value) -> ApiResult<Object> {
    let mut wrong = Wrong(Vec::new());
    let out = match value {
        Value::Object(o) => decode_object(message, o, "", &mut wrong),
        _ => {
            wrong.value("", message.name, value);
            Object::new()
        }
    };
    if wrong.0.is_empty() {
        Ok(out)
    } else {
        Err(ApiError::fields(wrong.0))
    }
}

struct Wrong(Vec<Violation>);

impl Wrong {
    fn add(&mut self, path: &str, description: String) {
        if self.0.len() < MAX_VIOLATIONS {
            self.0.push(Violation {
                field: path.to_owned(),
                description,
            });
        }
    }

    fn value(&mut self, path: &str, wanted: &str, got: &Value) {
        let shown = abbreviate(&got.to_string());
        let at = if path.is_empty() {
            String::new()
        } else {
            format!(" at '{path}'")
        };
        self.add(path, format!("Invalid value{at} ({wanted}), {shown}"));
    }

    /// Adds a wrong value like [`Wrong::value`], with the values that an enum has.
    fn choice(&mut self, path: &str, of: &Enum, got: &Value) {
        let names = of.values.iter().skip(1).map(|(name, _)| *name);
        let valid = names.collect::<Vec<_>>().join(", ");
        let shown = abbreviate(&got.to_string());
        let what = format!("Invalid value at '{path}' ({}), {shown}", of.name);
        self.add(path, format!("{what}; valid values: {valid}"));
    }
}

/// Returns the first characters of something that a client sent, for messages.
pub fn abbreviate(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn decode_object(message: &Message, from: &Object, path: &str, wrong: &mut Wrong) -> Object {
    let mut out = Object::new();
    for (key, value) in from {
        let Some(f) = message.field(key) else {
            let shown = abbreviate(key);
            let at = if path.is_empty() {
                String::new()
            } else {
                format!(" at '{path}'")
            };
            wrong.add(
                &join(path, &shown),
                format!(
                    "Invalid JSON payload received. Unknown name \"{shown}\"{at}: Cannot find field."
                ),
            );
            continue;
        };
        let at = join(path, f.name);
        if value.is_null() {
            continue;
        }
        let Some(value) = decode_field(f, value, &at, wrong) else {
            continue;
        };
        if f.output_only {
            continue;
        }
        if out.contains_key(f.name) {
            wrong.add(
                &at,
                format!("Invalid value at '{at}', the field is set twice"),
            );
            continue;
        }
        if let Some(group) = f.one_of {
            let other = message
                .fields
                .iter()
                .find(|g| g.one_of == Some(group) && out.contains_key(g.name));
            if let Some(other) = other {
                wrong.add(
                    &at,
                    format!(
                        "Invalid value at '{at}' (oneof), oneof field '{group}' is already set by '{}'",
                        other.name
                    ),
                );
                continue;
            }
        }
        out.insert(f.name.to_owned(), value);
    }
    out
}

fn decode_field(f: &Field, value: &Value, path: &str, wrong: &mut Wrong) -> Option<Value> {
    if !f.repeated {
        return decode_one(f.kind, value, path, wrong);
    }
    let Value::Array(items) = value else {
        wrong.value(path, "repeated", value);
        return None;
    };
    let mut out = Vec::with_capacity(items.len().min(64));
    for (i, item) in items.iter().enumerate() {
        let at = format!("{path}[{i}]");
        let before = wrong.0.len();
        match decode_one(f.kind, item, &at, wrong) {
            Some(v) => out.push(v),
            // Within a list, "not said" says nothing: it is refused rather than dropped.
            None if wrong.0.len() == before => wrong.value(&at, f.kind.name(), item),
            None => {}
        }
    }
    Some(Value::Array(out))
}

impl Kind {
    /// Returns the type's name as error messages of the public APIs have it.
    fn name(self) -> &'static str {
        match self {
            Kind::String => "TYPE_STRING",
            Kind::Bool => "TYPE_BOOL",
            Kind::Int32 => "TYPE_INT32",
            Kind::Int64 => "TYPE_INT64",
            Kind::Double => "TYPE_DOUBLE",
            Kind::Timestamp => "type.googleapis.com/google.protobuf.Timestamp",
            Kind::Labels => "map",
            Kind::Any => "type.googleapis.com/google.protobuf.Struct",
            Kind::Enum(e) => e.name,
            Kind::Message(m) => m.name,
        }
    }
}

/// Returns the normal form of one value; `None` when it is wrong (and said so) or says nothing.
fn decode_one(kind: Kind, value: &Value, path: &str, wrong: &mut Wrong) -> Option<Value> {
    let made = match (kind, value) {
        (Kind::String, Value::String(_)) | (Kind::Bool, Value::Bool(_)) | (Kind::Any, _) => {
            Some(value.clone())
        }
        (Kind::Timestamp, Value::String(s)) => s
            .parse::<jiff::Timestamp>()
            .ok()
            .map(|_| Value::String(s.clone())),
        (Kind::Int64, _) => integer(value).map(Value::from),
        (Kind::Int32, _) => integer(value)
            .and_then(|n| i32::try_from(n).ok())
            .map(Value::from),
        (Kind::Double, _) => double(value).map(Value::Number),
        (Kind::Labels, Value::Object(o)) => {
            let mut out = Object::new();
            for (k, v) in o {
                match v {
                    Value::String(s) => {
                        out.insert(k.clone(), Value::String(s.clone()));
                    }
                    _ => wrong.value(&join(path, &abbreviate(k)), "TYPE_STRING", v),
                }
            }
            Some(Value::Object(out))
        }
        (Kind::Message(m), Value::Object(o)) => {
            Some(Value::Object(decode_object(m, o, path, wrong)))
        }
        (Kind::Enum(e), _) => {
            let name = enum_name(e, value);
            if name.as_deref() == Some(e.unspecified()) {
                return None;
            }
            name.map(Value::String)
        }
        _ => None,
    };
    if made.is_none() {
        match kind {
            Kind::Enum(e) => wrong.choice(path, e, value),
            _ => wrong.value(path, kind.name(), value),
        }
    }
    made
}

/// Returns an integer that arrives as a number, as a number with nothing behind the point, or as
/// decimal text.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(n) => n.as_i64().or_else(|| {
            let f = n.as_f64()?;
            // Beyond 2^53 a double no longer says which integer was meant.
            (f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0).then_some(f as i64)
        }),
        // `str::parse` also takes a leading plus, which JSON's mapping does not.
        Value::String(s) if !s.starts_with('+') => s.parse().ok(),
        _ => None,
    }
}

fn double(value: &Value) -> Option<Number> {
    let f = match value {
        Value::Number(n) => n.as_f64()?,
        // Only what a JSON number could say: no "inf", no "1_000".
        Value::String(s) if s.bytes().all(|b| b"+-.eE0123456789".contains(&b)) => s.parse().ok()?,
        _ => return None,
    };
    Number::from_f64(f)
}

fn enum_name(e: &Enum, value: &Value) -> Option<String> {
    match value {
        Value::Number(n) => e.name_of(n.as_i64()?).map(str::to_owned),
        Value::String(s) => {
            let own = || {
                let mut letters = s.bytes();
                e.open
                    && s.len() <= 63
                    && letters.next().is_some_and(|b| b.is_ascii_uppercase())
                    && letters.all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            };
            if e.number(s).is_some() || own() {
                return Some(s.clone());
            }
            // The services read names in any case; clients rely on it (`tier: standard`).
            let upper = s.to_ascii_uppercase();
            e.number(&upper).is_some().then_some(upper)
        }
        _ => None,
    }
}

/// Form of enums in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnumsAs {
    /// Names, such as `"READY"`.
    #[default]
    Names,
    /// Numbers, such as `1`, for `$alt=json;enum-encoding=int`.
    Numbers,
}

/// Writes a message. What the table does not know is written as it is.
pub fn encode(message: &Message, from: &Object, enums: EnumsAs) -> Value {
    let mut out = Object::new();
    for (key, value) in from {
        let value = match message.field(key) {
            Some(f) => encode_field(f.kind, value, enums),
            None => value.clone(),
        };
        if !value.is_null() {
            out.insert(key.clone(), value);
        }
    }
    Value::Object(out)
}

fn encode_field(kind: Kind, value: &Value, enums: EnumsAs) -> Value {
    match (kind, value) {
        (_, Value::Array(items)) => {
            Value::Array(items.iter().map(|v| encode_field(kind, v, enums)).collect())
        }
        (Kind::Int64, Value::Number(n)) => Value::String(n.to_string()),
        (Kind::Enum(e), Value::String(s)) if enums == EnumsAs::Numbers => {
            // A level that an operator defined has no number; 0 is what a client makes of names it
            // does not know.
            Value::from(e.number(s).unwrap_or(0))
        }
        (Kind::Message(m), Value::Object(o)) => encode(m, o, enums),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests;
