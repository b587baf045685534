//! Bodies of POST and PATCH: fields by dotted names.
//!
//! ONTAP takes `{"source": {"path": "a:b"}}` and `{"source.path": "a:b"}` for the same, and numbers
//! and truth as text. So a body is flattened first, fields are taken out one by one, and those left
//! in the end are refused.

use std::collections::BTreeMap;

use serde_json::Value;

use super::refusal::{HandlerResult, Refusal};

/// The fields of a body that were not taken yet.
#[derive(Debug, Default)]
pub struct Fields(BTreeMap<String, Value>);

impl Fields {
    /// Lays a body flat; no body is one without fields.
    ///
    /// # Errors
    /// It is no object, or has a field twice.
    pub fn read(body: &Value) -> HandlerResult<Fields> {
        let mut fields = Fields::default();
        match body {
            Value::Null => {}
            Value::Object(_) => fields.lay(String::new(), body)?,
            _ => return Err(Refusal::no_json("an object is expected")),
        }
        Ok(fields)
    }

    fn lay(&mut self, name: String, value: &Value) -> HandlerResult<()> {
        match value {
            Value::Object(inner) => {
                for (key, value) in inner {
                    let name = match name.is_empty() {
                        true => key.clone(),
                        false => format!("{name}.{key}"),
                    };
                    self.lay(name, value)?;
                }
                Ok(())
            }
            other => match self.0.insert(name.clone(), other.clone()) {
                None => Ok(()),
                Some(_) => Err(Refusal::value(&name, "", "it was given twice")),
            },
        }
    }

    /// Returns a field as it is; `null` counts as one.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Returns true if a field is there and not taken yet.
    pub fn has_field(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns true if a field is there, with nothing in it: `null` or an empty text.
    pub fn is_nothing(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(Value::String(text)) => text.is_empty(),
            found => found.is_some_and(Value::is_null),
        }
    }

    /// Takes a text; `null` and nothing are the same.
    ///
    /// # Errors
    /// It is something else.
    pub fn text(&mut self, name: &str) -> HandlerResult<Option<String>> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Refusal::value(name, &other.to_string(), "string")),
        }
    }

    /// Returns a whole number that is not negative.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&mut self, name: &str) -> HandlerResult<Option<u64>> {
        let wrong = |text: &str| Refusal::value(name, text, "integer");
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => text.parse().map(Some).map_err(|_| wrong(&text)),
            Some(other) => match other.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(&other.to_string())),
            },
        }
    }

    /// Returns a boolean: `true` or `false`, also as text.
    ///
    /// # Errors
    /// It is something else.
    pub fn flag(&mut self, name: &str) -> HandlerResult<Option<bool>> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
                "true" => Ok(Some(true)),
                "false" => Ok(Some(false)),
                _ => Err(Refusal::value(name, &text, "boolean")),
            },
            Some(other) => Err(Refusal::value(name, &other.to_string(), "boolean")),
        }
    }

    /// Takes out fields that say nothing here.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.0.remove(*name);
        }
    }

    /// Takes out fields that have one value here (`a|b`: or another that means the same), and
    /// refuses all others.
    ///
    /// # Errors
    /// A field that was given another value.
    pub fn fixed(&mut self, all: &[(&str, &str)]) -> HandlerResult<()> {
        for (name, here) in all {
            let given = match self.take(name) {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => text,
                Some(other) => other.to_string(),
            };
            if !weir_ontap::fields::is_only(here, &given) {
                let here = here.split('|').next().unwrap_or_default();
                return Err(Refusal::not_here(name, &format!("it is \"{here}\" here")));
            }
        }
        Ok(())
    }

    /// Returns a list of texts; one text is a list of one.
    ///
    /// # Errors
    /// It is something else.
    pub fn list(&mut self, name: &str) -> HandlerResult<Option<Vec<String>>> {
        let wrong = |other: &Value| Refusal::value(name, &other.to_string(), "a list of strings");
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(one)) => {
                Ok(Some(one.split(',').map(|s| s.trim().to_owned()).collect()))
            }
            Some(Value::Array(all)) => {
                let text = |v: &Value| v.as_str().map(str::to_owned).ok_or_else(|| wrong(v));
                all.iter().map(text).collect::<HandlerResult<_>>().map(Some)
            }
            Some(other) => Err(wrong(&other)),
        }
    }

    /// Refuses what is left; `known` are the fields that ONTAP has for this resource.
    ///
    /// # Errors
    /// A field that cannot be set, or one that the resource does not have.
    pub fn done_of(self, known: &[&str]) -> HandlerResult<()> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) if known.iter().any(|k| is_part(k, &name)) => {
                Err(Refusal::not_here(&name, "it is not served here"))
            }
            Some(name) => Err(Refusal::unexpected(&name)),
        }
    }

    /// Refuses what is left.
    ///
    /// # Errors
    /// A field that the request does not have.
    pub fn done(self) -> HandlerResult<()> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(Refusal::unexpected(&name)),
        }
    }
}

/// Returns true if a dotted name is this one, or a part of it.
fn is_part(name: &str, of: &str) -> bool {
    let rest = name.strip_prefix(of);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_and_dotted_names_are_the_same() {
        for body in [
            json!({"source": {"path": "a:b"}, "throttle": "8192", "restore": "true"}),
            json!({"source.path": "a:b", "throttle": 8192, "restore": true}),
        ] {
            let mut fields = Fields::read(&body).unwrap();
            assert_eq!(fields.text("source.path").unwrap().as_deref(), Some("a:b"));
            assert_eq!(fields.number("throttle").unwrap(), Some(8192));
            assert_eq!(fields.flag("restore").unwrap(), Some(true));
            fields.done().unwrap();
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let both = json!({"source": {"path": "a:b"}, "source.path": "a:c"});
        assert_eq!(
            Fields::read(&both).unwrap_err().target.as_deref(),
            Some("source.path")
        );
        assert_eq!(Fields::read(&json!([])).unwrap_err().code, 262_254);
        let mut fields = Fields::read(
            &json!({"a": 1, "b": "x", "c": 3, "d": -1, "e": "maybe", "f": 2_147_483_649_u64}),
        )
        .unwrap();
        assert_eq!(fields.text("a").unwrap_err().code, 262_197);
        assert_eq!(fields.number("b").unwrap_err().code, 262_197);
        assert_eq!(fields.flag("c").unwrap_err().code, 262_197);
        assert_eq!(fields.number("d").unwrap_err().code, 262_197);
        assert_eq!(fields.flag("e").unwrap_err().code, 262_197);
        assert_eq!(fields.flag("f").unwrap_err().code, 262_197);
        let left = Fields::read(&json!({"g": {"h": 1}})).unwrap();
        let e = left.done().unwrap_err();
        assert_eq!((e.code, e.target.as_deref()), (262_179, Some("g.h")));
    }
}
