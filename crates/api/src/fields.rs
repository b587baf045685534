//! Taking a message in normal form apart: what the model knows becomes typed, the rest stays as it
//! was sent.

use crate::error::{ApiError, ApiResult};
use crate::json::{Object, abbreviate};
use crate::schema::Message;
use serde_json::Value;
use weir_base::limits::api::{MAX_RESOURCE_LABEL, MAX_RESOURCE_LABELS};
use weir_control::{Extra, Labels, State};

/// Returns the public API's name of a state, for resources that are nowhere in use or restored.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::Ready => "READY",
        State::Creating => "CREATING",
        State::Deleting => "DELETING",
        State::Updating | State::Restoring => "UPDATING",
        State::Error => "ERROR",
    }
}

/// Statement of a request on a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldUpdate<T> {
    /// Nothing: it stays as it is.
    Nothing,
    /// The field is to be as if never set.
    Clear,
    /// The field is to become this value.
    Set(T),
}

impl<T> FieldUpdate<T> {
    /// Returns the value; `None` for nothing and for clearing, which are the same where something
    /// is made.
    pub fn value(self) -> Option<T> {
        match self {
            FieldUpdate::Set(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the value, where clearing means the type's default.
    pub fn or_default(self) -> Option<T>
    where
        T: Default,
    {
        match self {
            FieldUpdate::Nothing => None,
            FieldUpdate::Clear => Some(T::default()),
            FieldUpdate::Set(v) => Some(v),
        }
    }

    /// Returns the value, where the resource cannot be without.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it would be cleared.
    pub fn kept(self, field: &str) -> ApiResult<Option<T>> {
        match self {
            FieldUpdate::Nothing => Ok(None),
            FieldUpdate::Clear => Err(ApiError::field(
                field,
                format!("'{field}' is required and cannot be cleared"),
            )),
            FieldUpdate::Set(v) => Ok(Some(v)),
        }
    }

    fn try_map<U>(self, f: impl FnOnce(T) -> ApiResult<U>) -> ApiResult<FieldUpdate<U>> {
        Ok(match self {
            FieldUpdate::Nothing => FieldUpdate::Nothing,
            FieldUpdate::Clear => FieldUpdate::Clear,
            FieldUpdate::Set(v) => FieldUpdate::Set(f(v)?),
        })
    }
}

/// A message of which fields are taken one by one.
#[derive(Debug)]
pub struct Fields(Object);

impl Fields {
    /// Creates the fields of a message in normal form, or of what a mask made of one.
    pub fn new(mut object: Object) -> Fields {
        object.remove("name");
        Fields(object)
    }

    /// Puts a field back in.
    pub fn put(&mut self, field: &str, value: Value) {
        self.0.insert(field.to_owned(), value);
    }

    /// Returns a field, which stays.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// Takes a field, whatever its type.
    pub fn take(&mut self, field: &str) -> FieldUpdate<Value> {
        match self.0.remove(field) {
            None => FieldUpdate::Nothing,
            Some(Value::Null) => FieldUpdate::Clear,
            Some(v) => FieldUpdate::Set(v),
        }
    }

    /// Takes text; a value of another kind clears the field.
    pub fn text(&mut self, field: &str) -> FieldUpdate<String> {
        match self.take(field) {
            FieldUpdate::Set(Value::String(s)) => FieldUpdate::Set(s),
            FieldUpdate::Nothing => FieldUpdate::Nothing,
            _ => FieldUpdate::Clear,
        }
    }

    /// Takes true or false.
    pub fn flag(&mut self, field: &str) -> FieldUpdate<bool> {
        match self.take(field) {
            FieldUpdate::Set(v) => FieldUpdate::Set(v.as_bool().unwrap_or(false)),
            FieldUpdate::Nothing => FieldUpdate::Nothing,
            FieldUpdate::Clear => FieldUpdate::Clear,
        }
    }

    /// Takes a number that cannot be negative; 0 means "not set" on the wire.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is negative.
    pub fn count(&mut self, field: &str) -> ApiResult<FieldUpdate<u64>> {
        self.take(field).try_map(|v| {
            v.as_u64().ok_or_else(|| {
                ApiError::field(field, format!("'{field}' is {v}; it cannot be negative"))
            })
        })
    }

    /// Takes a rate, which is 0 or more.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is negative.
    pub fn rate(&mut self, field: &str) -> ApiResult<FieldUpdate<f64>> {
        self.take(field)
            .try_map(|v| match v.as_f64().filter(|f| *f >= 0.0) {
                Some(f) => Ok(f),
                None => Err(ApiError::field(
                    field,
                    format!("'{field}' is {v}; it cannot be negative"),
                )),
            })
    }

    /// Takes a value of a set that the model has as a type.
    ///
    /// # Errors
    /// FAILED_PRECONDITION: the public API knows it, this server does not.
    pub fn one_of<T>(
        &mut self,
        field: &str,
        from_name: impl Fn(&str) -> Option<T>,
    ) -> ApiResult<FieldUpdate<T>> {
        self.text(field)
            .try_map(|s| from_name(&s).ok_or_else(|| not_here(field, &s)))
    }

    /// Takes the labels, checked against the limits of labels.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: too many, or against their syntax.
    pub fn labels(&mut self) -> ApiResult<FieldUpdate<Labels>> {
        self.take("labels").try_map(|v| {
            let map = match v {
                Value::Object(o) => o,
                _ => Object::new(),
            };
            if map.len() > MAX_RESOURCE_LABELS {
                return Err(ApiError::field(
                    "labels",
                    format!(
                        "{} labels; a resource may have {MAX_RESOURCE_LABELS}",
                        map.len()
                    ),
                ));
            }
            let mut out = Labels::new();
            for (k, v) in map {
                let v = match v {
                    Value::String(s) => s,
                    _ => String::new(),
                };
                check_label(&k, &v)?;
                out.insert(k, v);
            }
            Ok(out)
        })
    }

    /// Refuses a field of a feature that this server does not have: storing it would suggest an
    /// effect that it lacks. Null, false and empty values have none, and are taken. `instead` says
    /// what to do.
    ///
    /// # Errors
    /// FAILED_PRECONDITION: the field is set.
    pub fn without(&mut self, field: &str, instead: &str) -> ApiResult<()> {
        let asks = |v: &Value| match v {
            Value::Bool(b) => *b,
            Value::Array(a) => !a.is_empty(),
            Value::Object(o) => !o.is_empty(),
            Value::String(s) => !s.is_empty(),
            _ => false,
        };
        match self.take(field) {
            FieldUpdate::Set(v) if asks(&v) => Err({
                let mut e = ApiError::unimplemented(&format!("'{field}'"), instead);
                e.metadata.push(("field".to_owned(), field.to_owned()));
                e
            }),
            _ => Ok(()),
        }
    }

    /// Refuses what `field` asks for if this server would not do it. `asks` says whether a value
    /// asks for anything; one that does not is kept and returned as it was sent. `instead` says
    /// what to do.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with the reason NOT_OFFERED.
    pub fn refuse(
        &self,
        field: &str,
        asks: impl Fn(&Value) -> bool,
        instead: &str,
    ) -> ApiResult<()> {
        let Some(value) = self.0.get(field).filter(|value| asks(value)) else {
            return Ok(());
        };
        let shown = match value {
            Value::String(s) => abbreviate(s),
            Value::Object(_) | Value::Array(_) => "…".to_owned(),
            other => other.to_string(),
        };
        let mut e = ApiError::field(
            field,
            format!("'{field}: {shown}' is not offered by this server: {instead}"),
        );
        e.reason = "NOT_OFFERED".to_owned();
        Err(e)
    }

    /// Checks that a field that cannot change once the resource is made does not; saying what it is
    /// already is no change.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the value differs from the current one.
    pub fn fixed(&mut self, field: &str, current: &Object) -> ApiResult<()> {
        let empty = |v: &Value| matches!(v, Value::Null | Value::Bool(false));
        let now = current.get(field).cloned().unwrap_or(Value::Null);
        match self.0.remove(field) {
            None => Ok(()),
            Some(v) if v == now || (empty(&v) && empty(&now)) => Ok(()),
            Some(_) => Err(ApiError::field(
                field,
                format!("'{field}' cannot be changed once the resource exists"),
            )),
        }
    }

    /// Returns everything that was not taken: the client's own fields. Nulls stay where a change is
    /// meant.
    pub fn rest(self) -> Extra {
        self.0
    }
}

/// Returns true if a value is anything but the type's default.
pub fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty() && s != "0",
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => o.values().any(is_set),
    }
}

/// Creates the error of a value that the public API has, but nothing here does.
pub fn not_here(field: &str, value: &str) -> Box<ApiError> {
    let mut e = ApiError::unimplemented(
        &format!("'{field}: {}'", abbreviate(value)),
        "Leave it out, or take another value",
    );
    e.metadata.push(("field".to_owned(), field.to_owned()));
    e
}

/// Checks that a new resource has a field that it must have.
///
/// # Errors
/// INVALID_ARGUMENT: it has not.
pub fn required<T>(value: Option<T>, field: &str) -> ApiResult<T> {
    value.ok_or_else(|| ApiError::field(field, format!("'{field}' is required")))
}

fn check_label(key: &str, value: &str) -> ApiResult<()> {
    let allowed = |s: &str| {
        s.chars()
            .all(|c| (c.is_alphanumeric() && !c.is_uppercase()) || c == '_' || c == '-')
    };
    let starts = key.chars().next().is_some_and(char::is_alphabetic);
    // Terraform and SnapMirror labels keep to these rules too.
    if starts
        && allowed(key)
        && allowed(value)
        && key.chars().count() <= MAX_RESOURCE_LABEL
        && value.chars().count() <= MAX_RESOURCE_LABEL
    {
        return Ok(());
    }
    Err(ApiError::field(
        format!("labels.{}", abbreviate(key)),
        format!(
            "Invalid label '{}={}': keys begin with a lower-case letter; keys and values have at most {MAX_RESOURCE_LABEL} lower-case letters, digits, '_' and '-'",
            abbreviate(key),
            abbreviate(value)
        ),
    ))
}

/// Checks the id of a new resource: letters, digits, `-` and `_`, beginning with a letter, ending
/// with a letter or digit, at most 63 of them. That is the public API's rule for `volumeId`, and
/// the underscore, which Terraform users are used to.
///
/// # Errors
/// INVALID_ARGUMENT: no id, or one against these rules.
pub fn check_id(parameter: &str, id: Option<&str>) -> ApiResult<String> {
    let id = id.unwrap_or_default();
    if id.is_empty() {
        return Err(ApiError::field(
            parameter,
            format!("'{parameter}' is required"),
        ));
    }
    let b = id.as_bytes();
    let ok = b.len() <= 63
        && b.first().is_some_and(u8::is_ascii_alphabetic)
        && b.last().is_some_and(u8::is_ascii_alphanumeric)
        && b.iter()
            .all(|b| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_');
    if ok {
        return Ok(id.to_owned());
    }
    Err(ApiError::field(
        parameter,
        format!(
            "Invalid '{parameter}' \"{}\": letters, digits, '-' and '_', at most 63, a letter first and a letter or digit last",
            abbreviate(id)
        ),
    ))
}

/// Builds a resource for the wire. Empty text and maps are left out, as the JSON mapping leaves out
/// defaults.
#[derive(Debug, Default)]
pub struct ResourceBuilder(Object);

impl ResourceBuilder {
    /// Creates a resource that begins with the client's own fields: those of the server override
    /// them.
    pub fn from_extra(extra: &Extra) -> ResourceBuilder {
        ResourceBuilder(extra.clone())
    }

    /// Sets a field; null and empty values remove it.
    pub fn set(&mut self, field: &str, value: impl Into<Value>) -> &mut ResourceBuilder {
        let value = value.into();
        let empty = match &value {
            Value::Null => true,
            Value::String(s) => s.is_empty(),
            Value::Array(a) => a.is_empty(),
            Value::Object(o) => o.is_empty(),
            _ => false,
        };
        if empty {
            self.0.remove(field);
        } else {
            self.0.insert(field.to_owned(), value);
        }
        self
    }

    /// Sets a field unless the client's own form of it was kept.
    pub fn set_unless_kept(
        &mut self,
        field: &str,
        value: impl Into<Value>,
    ) -> &mut ResourceBuilder {
        if self.0.get(field).is_none_or(Value::is_null) {
            self.set(field, value);
        }
        self
    }

    /// Sets the labels, as a map.
    pub fn labels(&mut self, labels: &Labels) -> &mut ResourceBuilder {
        let map: Object = labels
            .iter()
            .map(|(k, v)| (k.clone(), Value::String(v.clone())))
            .collect();
        self.set("labels", map)
    }

    /// Returns everything that was set, of no message in particular.
    pub fn into_object(self) -> Object {
        self.0
    }

    /// Returns the fields that `message` has; nulls and unknown names are dropped.
    pub fn done(self, message: &Message) -> Object {
        let mut o = self.0;
        // Fields that an older version of this program kept and the table no longer knows stay
        // hidden.
        let shown = |k: &str| message.field(k).is_some_and(|f| !f.input_only);
        o.retain(|k, v| !v.is_null() && shown(k));
        o
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_and_labels_keep_to_their_syntax() {
        for id in ["a", "v1", "my-vol_2", &"a".repeat(63)] {
            assert_eq!(check_id("volumeId", Some(id)).unwrap(), id);
        }
        for id in [
            "",
            "1a",
            "a-",
            "-a",
            "a.b",
            "a/b",
            "ä",
            "a b",
            &"a".repeat(64),
        ] {
            assert_eq!(
                check_id("volumeId", Some(id)).unwrap_err().code(),
                400,
                "{id}"
            );
        }
        for (k, v, ok) in [
            ("team", "geo", true),
            ("goog-terraform-provisioned", "true", true),
            ("équipe", "géo-1_2", true),
            ("snapmirror-label", "", true),
            ("Team", "geo", false),
            ("team", "Geo", false),
            ("1team", "a", false),
            ("", "a", false),
            ("a b", "a", false),
        ] {
            assert_eq!(check_label(k, v).is_ok(), ok, "{k}={v}");
        }
    }

    #[test]
    fn what_a_mask_cleared_is_told_from_what_it_left_alone() {
        let mut f = Fields::new(
            json!({"name": "n", "description": null, "capacityGib": 5, "kerberosEnabled": true, "network": "x"})
                .as_object()
                .cloned()
                .unwrap(),
        );
        assert_eq!(f.text("description"), FieldUpdate::Clear);
        assert_eq!(f.text("shareName"), FieldUpdate::Nothing);
        assert_eq!(f.count("capacityGib").unwrap(), FieldUpdate::Set(5));
        let refused = f.without("kerberosEnabled", "Leave it out").unwrap_err();
        assert_eq!(refused.code(), 400);
        assert!(refused.message.ends_with(". Leave it out"));
        assert_eq!(Value::Object(f.rest()), json!({"network": "x"}));
    }
}
