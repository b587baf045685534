//! Keys: `exportPolicy.rules[0].allowedClients.list()`: a path into a resource, and transforms of
//! what is found there.

use serde_json::{Map, Value};

use super::transform::Transform;

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The field of that name
    Name(String),
    /// An element of a list, from the end when negative
    Index(i64),
    /// Every element of a list
    All,
}

/// A path and transforms.
#[derive(Debug, Clone, Default)]
pub struct Key {
    /// Empty is the resource itself
    pub path: Vec<Step>,
    /// Applied in order, each to what the one before returned
    pub transforms: Vec<Transform>,
}

impl Key {
    /// Returns the value in a resource; null where there is none.
    pub fn get(&self, resource: &Value) -> Value {
        let found = find(resource, &self.path).unwrap_or(Value::Null);
        self.transforms
            .iter()
            .fold(found, |value, transform| transform.apply(value, resource))
    }

    /// Returns true if a resource has a value there.
    pub fn is_in(&self, resource: &Value) -> bool {
        find(resource, &self.path).is_some_and(|v| !v.is_null())
    }

    /// Returns the last name of the path.
    pub fn last(&self) -> Option<&str> {
        self.path.iter().rev().find_map(|step| match step {
            Step::Name(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Returns the path as it is written.
    pub fn written(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Name(name) => {
                    if !out.is_empty() {
                        out.push('.');
                    }
                    out.push_str(name);
                }
                Step::Index(i) => out.push_str(&format!("[{i}]")),
                Step::All => out.push_str("[]"),
            }
        }
        out
    }

    /// Copies what it finds to the same place in another value.
    pub fn copy(&self, from: &Value, to: &mut Value) {
        let value = self.get(from);
        if !value.is_null() {
            place(from, &self.path, value, to);
        }
    }
}

/// Returns the field of a name, which may also be written in snake case.
fn field<'a>(map: &'a Map<String, Value>, name: &str) -> Option<(&'a String, &'a Value)> {
    map.get_key_value(name).or_else(|| {
        let mut camel = String::new();
        let mut upper = false;
        for c in name.chars() {
            if c == '_' {
                upper = true;
            } else if upper {
                camel.extend(c.to_uppercase());
                upper = false;
            } else {
                camel.push(c);
            }
        }
        map.get_key_value(&camel)
    })
}

fn element(items: &[Value], index: i64) -> Option<&Value> {
    let index = if index < 0 {
        i64::try_from(items.len()).ok()?.checked_add(index)?
    } else {
        index
    };
    items.get(usize::try_from(index).ok()?)
}

/// Returns the value at a path. A name after a list means that name in each of its elements.
fn find(value: &Value, path: &[Step]) -> Option<Value> {
    let Some((step, rest)) = path.split_first() else {
        return Some(value.clone());
    };
    match (step, value) {
        (Step::Name(name), Value::Object(map)) => find(field(map, name)?.1, rest),
        (Step::Name(_), Value::Array(items)) => each(items, path),
        (Step::Index(index), Value::Array(items)) => find(element(items, *index)?, rest),
        (Step::All, Value::Array(items)) => each(items, rest),
        (Step::All, other) => find(other, rest),
        _ => None,
    }
}

fn each(items: &[Value], path: &[Step]) -> Option<Value> {
    let found: Vec<Value> = items.iter().filter_map(|item| find(item, path)).collect();
    (!found.is_empty()).then_some(Value::Array(found))
}

/// Puts `value` at the place of `path` in `to`, objects being made as they are needed. Below a
/// list the whole list is kept: a projection of its elements has no place of its own.
fn place(from: &Value, path: &[Step], value: Value, to: &mut Value) {
    match (path.split_first(), from, &mut *to) {
        (Some((Step::Name(name), rest)), Value::Object(source), Value::Object(map)) => {
            let Some((name, below)) = field(source, name) else {
                return;
            };
            let list = matches!(rest.first(), Some(Step::Index(_) | Step::All));
            if rest.is_empty() || list || below.is_array() {
                let all = matches!(rest, []) || !list;
                let kept = if all && !rest.is_empty() {
                    below.clone()
                } else {
                    value
                };
                let kept = if list && !kept.is_array() {
                    Value::Array(vec![kept])
                } else {
                    kept
                };
                map.insert(name.clone(), kept);
            } else {
                let slot = map
                    .entry(name.clone())
                    .or_insert_with(|| Value::Object(Map::new()));
                place(below, rest, value, slot);
            }
        }
        (None, _, _) => *to = value,
        _ => {}
    }
}
