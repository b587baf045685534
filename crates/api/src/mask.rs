//! Update masks: which fields of a body count (AIP-134, AIP-161).
//!
//! gcloud sends back the whole resource that it read with a mask that names the one field it
//! changes. So a mask decides alone. A field that it names and the body lacks is cleared; a field
//! that the body has and the mask does not name is ignored. A path may lead into a message or name
//! a label. Then the value is merged into what the resource has now, so that the rest of the
//! message stays.

use crate::error::{ApiError, ApiResult, Violation};
use crate::json::{Object, abbreviate};
use crate::schema::{Field, Kind, Message};
use serde_json::Value;
use weir_base::limits::api::MAX_MASK_PATHS;

/// The fields that a request changes.
#[derive(Debug)]
pub struct Mask {
    /// Each path from the top of the message: fields, and at the end perhaps the key of a label.
    paths: Vec<Vec<Step>>,
    /// `*`: the body is the whole resource.
    all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(&'static str),
    Key(String),
}

impl Step {
    fn name(&self) -> &str {
        match self {
            Step::Field(f) => f,
            Step::Key(k) => k,
        }
    }
}

impl Mask {
    /// Reads `a,b.c` in lowerCamelCase or snake_case; `*` is every field that clients may set
    /// (AIP-134: full replacement). Without a mask, the fields that the body has are meant.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: a field that there is not, that only the server sets, that names the
    /// resource, or a path into a list.
    pub fn parse(message: &'static Message, text: Option<&str>, body: &Object) -> ApiResult<Mask> {
        let text = text.unwrap_or_default().trim();
        let settable = |f: &&Field| !f.output_only && f.name != "name" && f.name != "etag";
        if text.is_empty() || text == "*" {
            let paths = message
                .fields
                .iter()
                .filter(settable)
                .filter(|f| text == "*" || body.contains_key(f.name))
                .map(|f| vec![Step::Field(f.name)])
                .collect();
            let all = text == "*";
            return Ok(Mask { paths, all });
        }
        let mut paths: Vec<Vec<Step>> = Vec::new();
        let mut wrong = Vec::new();
        for path in text.split(',') {
            match steps(message, path.trim()) {
                Ok(p) if paths.contains(&p) => {}
                Ok(p) if paths.len() < MAX_MASK_PATHS => paths.push(p),
                Ok(_) => {
                    return Err(ApiError::field(
                        "updateMask",
                        "Too many paths in 'updateMask'",
                    ));
                }
                Err(why) if wrong.len() < 20 => wrong.push(Violation {
                    field: "updateMask".to_owned(),
                    description: why,
                }),
                Err(_) => {}
            }
        }
        if wrong.is_empty() {
            Ok(Mask { paths, all: false })
        } else {
            Err(ApiError::fields(wrong))
        }
    }

    /// Returns true if it is `*`.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Returns the top-level fields that change, with their new values; `Null` for those that are
    /// cleared. `current` is the resource as it is.
    pub fn apply(&self, current: &Object, body: &Object) -> Object {
        let mut out = Object::new();
        for path in &self.paths {
            let Some((first, rest)) = path.split_first() else {
                continue;
            };
            let sent = body.get(first.name());
            // In a whole resource, most is what it was, also what can neither be changed nor be
            // cleared.
            if self.all && same(sent, current.get(first.name())) {
                continue;
            }
            let value = if rest.is_empty() {
                sent.cloned().unwrap_or(Value::Null)
            } else {
                // A second path into the same message goes on from what the first made of it.
                let base = out.remove(first.name());
                let base = base.or_else(|| current.get(first.name()).cloned());
                merge(base.unwrap_or(Value::Null), sent, rest)
            };
            out.insert(first.name().to_owned(), value);
        }
        out
    }
}

/// Returns true if two values of a field are the same; one that says nothing is the same as none.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let says = |v: &&Value| !matches!(v, Value::Null | Value::Bool(false));
    match (a.filter(says), b.filter(says)) {
        (Some(a), Some(b)) => a == b || a.as_f64().is_some_and(|a| b.as_f64() == Some(a)),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn merge(base: Value, sent: Option<&Value>, path: &[Step]) -> Value {
    let Some((first, rest)) = path.split_first() else {
        return sent.cloned().unwrap_or(Value::Null);
    };
    let mut object = match base {
        Value::Object(o) => o,
        _ => Object::new(),
    };
    let sent = sent
        .and_then(Value::as_object)
        .and_then(|o| o.get(first.name()));
    let inner = object.remove(first.name()).unwrap_or(Value::Null);
    let value = merge(inner, sent, rest);
    if !value.is_null() {
        object.insert(first.name().to_owned(), value);
    }
    Value::Object(object)
}

/// Returns the steps of one path, or why it is not one.
fn steps(message: &'static Message, path: &str) -> Result<Vec<Step>, String> {
    let shown = abbreviate(path);
    let mut at = message;
    let mut out = Vec::new();
    let mut rest = path;
    loop {
        let (name, tail) = match rest.split_once('.') {
            Some((name, tail)) => (name, Some(tail)),
            None => (rest, None),
        };
        let Some(f) = at.field(name) else {
            return Err(format!(
                "Invalid field '{shown}' in 'updateMask': {} has no such field",
                at.name
            ));
        };
        if f.output_only || (out.is_empty() && f.name == "name") {
            return Err(format!(
                "Invalid field '{shown}' in 'updateMask': it is output only"
            ));
        }
        out.push(Step::Field(f.name));
        let Some(tail) = tail else { return Ok(out) };
        match f.kind {
            Kind::Message(inner) if !f.repeated => {
                at = inner;
                rest = tail;
            }
            Kind::Labels => {
                out.push(Step::Key(tail.trim_matches('`').to_owned()));
                return Ok(out);
            }
            _ => {
                return Err(format!(
                    "Invalid field '{shown}' in 'updateMask': '{}' holds no fields that could be named",
                    f.name
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{filestore, netapp};
    use serde_json::json;

    fn object(v: Value) -> Object {
        v.as_object().cloned().unwrap()
    }

    fn apply(mask: Option<&str>, current: Value, body: Value) -> Value {
        let body = object(body);
        let mask = Mask::parse(&netapp::VOLUME, mask, &body).unwrap();
        Value::Object(mask.apply(&object(current), &body))
    }

    #[test]
    fn a_mask_decides_alone() {
        let body = json!({"name": "n", "capacityGib": 5, "storagePool": "p", "description": "d"});
        for mask in [
            "capacityGib,storagePool",
            "capacity_gib, storage_pool",
            "storagePool,capacityGib,capacityGib",
        ] {
            assert_eq!(
                apply(Some(mask), json!({}), body.clone()),
                json!({"capacityGib": 5, "storagePool": "p"})
            );
        }
        assert_eq!(
            apply(Some("unixPermissions"), json!({}), body.clone()),
            json!({"unixPermissions": null})
        );
        assert_eq!(
            apply(None, json!({}), body.clone()),
            json!({"capacityGib": 5, "storagePool": "p", "description": "d"})
        );
        let now = json!({"exportPolicy": {"rules": []}, "shareName": "s", "capacityGib": 4, "storagePool": "p"});
        let all = apply(Some("*"), now, body);
        assert_eq!(
            all,
            json!({"capacityGib": 5, "description": "d", "exportPolicy": null, "shareName": null})
        );
    }

    #[test]
    fn a_path_into_a_message_leaves_the_rest_of_it() {
        let current = json!({
            "labels": {"a": "1", "b": "2"},
            "snapshotPolicy": {"enabled": false, "hourlySchedule": {"minute": 5.0, "snapshotsToKeep": 2.0}},
        });
        let body = json!({"labels": {"b": "3", "d.e": "4"}, "snapshotPolicy": {"enabled": true, "hourlySchedule": {"minute": 9.0}}});
        assert_eq!(
            apply(
                Some("labels.b,labels.a,labels.d.e"),
                current.clone(),
                body.clone()
            ),
            json!({"labels": {"b": "3", "d.e": "4"}})
        );
        assert_eq!(
            apply(
                Some("snapshotPolicy.hourlySchedule.minute,snapshot_policy.enabled"),
                current,
                body
            ),
            json!({"snapshotPolicy": {"enabled": true, "hourlySchedule": {"minute": 9.0, "snapshotsToKeep": 2.0}}})
        );
    }

    #[test]
    fn fields_that_are_not_the_clients_are_refused() {
        for mask in [
            "usedGib",
            "state",
            "create_time",
            "mountOptions",
            "name",
            "nope",
            "capacityGib,,network",
            "capacityGib.x",
            "exportPolicy.rules.anonUid",
            "protocols.NFSV3",
            "exportPolicy.nope",
            ".",
            "a.b",
        ] {
            let e = Mask::parse(&netapp::VOLUME, Some(mask), &Object::new()).unwrap_err();
            assert_eq!(
                (e.code(), e.violations.first().unwrap().field.as_str()),
                (400, "updateMask"),
                "{mask}"
            );
        }
        assert!(
            Mask::parse(
                &filestore::INSTANCE,
                Some("fileShares.name"),
                &Object::new()
            )
            .is_err()
        );
        let long = "labels.x,".repeat(100_000) + "labels.y";
        assert!(Mask::parse(&netapp::VOLUME, Some(&long), &Object::new()).is_ok());
        let many: Vec<String> = (0..1000).map(|i| format!("labels.x{i}")).collect();
        assert!(Mask::parse(&netapp::VOLUME, Some(&many.join(",")), &Object::new()).is_err());
    }
}
