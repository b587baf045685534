//! Lists in pages (AIP-158), in an order of the client's choice (AIP-132).
//!
//! A page token says behind which resource to go on: its name, and what it was ordered by. No state
//! is kept for it, and a page costs the same wherever it lies. A resource that is made or deleted
//! between two pages neither repeats nor hides anything else. The token also carries a fingerprint
//! of the question, because going on with another filter or order would answer neither question.

use crate::error::{ApiError, ApiResult};
use crate::filter::Filter;
use crate::json::{Object, abbreviate};
use crate::schema::{Kind, Message};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::cmp::Ordering;
use weir_base::limits::api::MAX_ORDER_KEYS;
pub use weir_base::limits::api::MAX_PAGE;

/// Resources in a page when the client does not say.
pub const DEFAULT_PAGE: usize = 500;

/// Parameters of a list request.
#[derive(Debug)]
pub struct ListQuery {
    filter: Option<Filter>,
    order: Vec<Key>,
    size: usize,
    after: Option<Position>,
    fingerprint: u64,
}

#[derive(Debug)]
struct Key {
    path: Vec<&'static str>,
    /// Kind of the field at the end of the path.
    kind: Kind,
    descending: bool,
}

#[derive(Debug)]
struct Position {
    keys: Vec<Value>,
    name: String,
}

/// A page of a list.
#[derive(Debug, PartialEq)]
pub struct Page<T> {
    /// The resources, and each in normal form.
    pub items: Vec<(T, Object)>,
    /// Empty at the end.
    pub next: String,
}

/// The parameters as they arrived.
#[derive(Debug, Default, Clone, Copy)]
pub struct ListParams<'a> {
    /// `pageSize`, as text (AIP-158).
    pub page_size: Option<&'a str>,
    /// `pageToken` of the page before.
    pub page_token: Option<&'a str>,
    /// `filter`, not parsed yet.
    pub filter: Option<&'a str>,
    /// `orderBy`: fields, each with an optional `desc`.
    pub order_by: Option<&'a str>,
}

impl ListQuery {
    /// Reads the parameters of a list of `message`s under `collection`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the parameter.
    pub fn parse(
        message: &'static Message,
        collection: &str,
        params: ListParams<'_>,
    ) -> ApiResult<ListQuery> {
        let filter_text = params.filter.unwrap_or_default();
        let order_text = params.order_by.unwrap_or_default();
        let filter = Filter::parse(message, filter_text)?;
        let order = order(message, order_text)?;
        let size = match params.page_size.unwrap_or_default() {
            "" => DEFAULT_PAGE,
            text => match text.parse::<i64>() {
                Ok(0) => DEFAULT_PAGE,
                Ok(n) if n > 0 => usize::try_from(n).unwrap_or(MAX_PAGE).min(MAX_PAGE),
                _ => {
                    return Err(ApiError::field(
                        "pageSize",
                        format!(
                            "Invalid value at 'pageSize' (TYPE_INT32), \"{}\"",
                            abbreviate(text)
                        ),
                    ));
                }
            },
        };
        let fingerprint = fingerprint(&[collection, filter_text, order_text]);
        let after = match params.page_token.unwrap_or_default() {
            "" => None,
            token => Some(position(token, fingerprint, order.len()).ok_or_else(|| {
                ApiError::field(
                    "pageToken",
                    "Invalid 'pageToken': it is not one that this list with this filter and order has handed out",
                )
            })?),
        };
        Ok(ListQuery {
            filter,
            order,
            size,
            after,
            fingerprint,
        })
    }

    /// Returns the name behind which the page begins, if the order is by name: a caller that has
    /// the resources sorted can begin there.
    pub fn after(&self) -> Option<&str> {
        let by_name = self.order.is_empty();
        self.after
            .as_ref()
            .filter(|_| by_name)
            .map(|a| a.name.as_str())
    }

    /// Returns the page, out of resources that come in the order of their names. `object` makes the
    /// normal form. Without an order of the client's own it is called only for what the page holds
    /// or the filter has to see.
    pub fn page<T>(
        &self,
        resources: impl Iterator<Item = T>,
        name: impl Fn(&T) -> &str,
        object: impl Fn(&T) -> Object,
    ) -> Page<T> {
        if self.order.is_empty() {
            self.by_name(resources, name, object)
        } else {
            self.ordered(resources, name, object)
        }
    }

    fn by_name<T>(
        &self,
        resources: impl Iterator<Item = T>,
        name: impl Fn(&T) -> &str,
        object: impl Fn(&T) -> Object,
    ) -> Page<T> {
        let mut items: Vec<(T, Object)> = Vec::new();
        let mut last = String::new();
        for r in resources {
            let n = name(&r);
            if self.after.as_ref().is_some_and(|a| n <= a.name.as_str()) {
                continue;
            }
            let o = object(&r);
            if self.filter.as_ref().is_some_and(|f| !f.matches(&o)) {
                continue;
            }
            if items.len() == self.size {
                let next = self.token(&[], &last);
                return Page { items, next };
            }
            n.clone_into(&mut last);
            items.push((r, o));
        }
        Page {
            items,
            next: String::new(),
        }
    }

    fn ordered<T>(
        &self,
        resources: impl Iterator<Item = T>,
        name: impl Fn(&T) -> &str,
        object: impl Fn(&T) -> Object,
    ) -> Page<T> {
        let mut all: Vec<(Vec<Value>, String, (T, Object))> = resources
            .filter_map(|r| {
                let o = object(&r);
                let passes = self.filter.as_ref().is_none_or(|f| f.matches(&o));
                passes.then(|| (self.keys(&o), name(&r).to_owned(), (r, o)))
            })
            .collect();
        all.sort_by(|a, b| self.compare((&a.0, &a.1), (&b.0, &b.1)));
        let start = match &self.after {
            None => 0,
            Some(p) => all.partition_point(|x| {
                self.compare((&x.0, &x.1), (&p.keys, &p.name)) != Ordering::Greater
            }),
        };
        let end = start.saturating_add(self.size).min(all.len());
        let next = match end.checked_sub(1).and_then(|i| all.get(i)) {
            Some((keys, name, _)) if end < all.len() => self.token(keys, name),
            _ => String::new(),
        };
        Page {
            items: all.drain(start..end).map(|(_, _, item)| item).collect(),
            next,
        }
    }

    /// Returns the maximum number of resources of the page.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Lowers the maximum number of resources of the page.
    pub fn shrink(&mut self, most: usize) {
        self.size = self.size.min(most);
    }

    /// Returns the page and its token, out of resources on the wire that several servers have
    /// returned for this question; `more`: one of them has more.
    pub fn merged(&self, resources: Vec<Value>, more: bool) -> (Vec<Value>, String) {
        let mut all: Vec<(Vec<Value>, String, Value)> = Vec::with_capacity(resources.len());
        for resource in resources {
            let object = resource.as_object();
            let keys = object.map_or_else(Vec::new, |object| self.keys_on_wire(object));
            let name = resource.get("name").and_then(Value::as_str);
            all.push((keys, sorted_name(name.unwrap_or_default()), resource));
        }
        // Stable: of two servers that have the name, the first is shown.
        all.sort_by(|a, b| self.compare((&a.0, &a.1), (&b.0, &b.1)));
        all.dedup_by(|a, b| a.1 == b.1);
        let more = more || all.len() > self.size;
        all.truncate(self.size);
        let next = match all.last() {
            Some((keys, name, _)) if more => self.token(keys, name),
            _ => String::new(),
        };
        (
            all.into_iter().map(|(.., resource)| resource).collect(),
            next,
        )
    }

    /// Returns the keys of a resource on the wire, as they are in normal form.
    fn keys_on_wire(&self, object: &Object) -> Vec<Value> {
        let keys = self.keys(object).into_iter().zip(&self.order);
        let normal = keys.map(|(value, key)| match (key.kind, &value) {
            (Kind::Int64, Value::String(text)) => text.parse().map_or(value, |n: i64| json!(n)),
            (Kind::Enum(of), Value::Number(n)) => {
                let name = n.as_i64().and_then(|n| of.name_of(n));
                name.map_or(Value::Null, |name| json!(name))
            }
            _ => value,
        });
        normal.collect()
    }

    fn keys(&self, object: &Object) -> Vec<Value> {
        self.order
            .iter()
            .map(|k| {
                let mut at = None;
                for (i, step) in k.path.iter().enumerate() {
                    at = match i {
                        0 => object.get(*step),
                        _ => at.and_then(|v: &Value| v.get(*step)),
                    };
                }
                at.cloned().unwrap_or(Value::Null)
            })
            .collect()
    }

    fn compare(&self, a: (&[Value], &str), b: (&[Value], &str)) -> Ordering {
        for (i, key) in self.order.iter().enumerate() {
            let o = compare_values(a.0.get(i), b.0.get(i));
            let o = if key.descending { o.reverse() } else { o };
            if o != Ordering::Equal {
                return o;
            }
        }
        a.1.cmp(b.1)
    }

    fn token(&self, keys: &[Value], name: &str) -> String {
        URL_SAFE_NO_PAD.encode(json!([self.fingerprint, keys, name]).to_string())
    }
}

/// Returns a full name, `projects/P/locations/L/COLLECTION/ID`, as text that sorts as names do:
/// part by part.
fn sorted_name(name: &str) -> String {
    let mut parts = name.split('/').skip(1).step_by(2);
    let parts = [parts.next(), parts.next(), parts.next()];
    parts.map(Option::unwrap_or_default).join("\0")
}

/// Compares two values: absent before present, numbers as numbers, text as text.
fn compare_values(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(x)), Some(Value::Number(y))) => x
            .as_f64()
            .partial_cmp(&y.as_f64())
            .unwrap_or(Ordering::Equal),
        (Some(Value::String(x)), Some(Value::String(y))) => x.cmp(y),
        (Some(Value::Bool(x)), Some(Value::Bool(y))) => x.cmp(y),
        (a, b) => {
            let set = |v: Option<&Value>| v.is_some_and(|v| !v.is_null());
            set(a).cmp(&set(b))
        }
    }
}

fn order(message: &'static Message, text: &str) -> ApiResult<Vec<Key>> {
    let bad = |why: &str| {
        ApiError::field(
            "orderBy",
            format!("Invalid 'orderBy' \"{}\": {why}", abbreviate(text)),
        )
    };
    let mut out = Vec::new();
    if text.trim().is_empty() {
        return Ok(out);
    }
    for part in text.split(',') {
        let mut words = part.split_whitespace();
        let field = words.next().unwrap_or_default();
        let descending = match (words.next(), words.next()) {
            (None, _) => false,
            (Some("asc"), None) => false,
            (Some("desc"), None) => true,
            _ => return Err(bad("after a field comes nothing, 'asc' or 'desc'")),
        };
        let (path, kind) = sortable(message, field).ok_or_else(|| {
            bad(&format!(
                "'{}' is not a field to order by",
                abbreviate(field)
            ))
        })?;
        if out.len() == MAX_ORDER_KEYS {
            return Err(bad("too many fields"));
        }
        out.push(Key {
            path,
            kind,
            descending,
        });
    }
    Ok(out)
}

/// Returns the path of a field that has one value with an order.
fn sortable(message: &'static Message, path: &str) -> Option<(Vec<&'static str>, Kind)> {
    let mut at = message;
    let mut out = Vec::new();
    let mut rest = path;
    loop {
        let (name, tail) = match rest.split_once('.') {
            Some((name, tail)) => (name, Some(tail)),
            None => (rest, None),
        };
        let f = at.field(name).filter(|f| !f.repeated)?;
        out.push(f.name);
        match (f.kind, tail) {
            (Kind::Message(inner), Some(tail)) => {
                at = inner;
                rest = tail;
            }
            (Kind::Message(_) | Kind::Labels | Kind::Any, _) | (_, Some(_)) => return None,
            (kind, None) => return Some((out, kind)),
        }
    }
}

fn position(token: &str, fingerprint: u64, keys: usize) -> Option<Position> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (f, k, name): (u64, Vec<Value>, String) = serde_json::from_slice(&bytes).ok()?;
    (f == fingerprint && k.len() == keys).then_some(Position { keys: k, name })
}

/// Returns an FNV-1a hash: it must come out the same after a restart. It guards against mistakes,
/// not against forgery: a forged token shows nothing that the list would not.
fn fingerprint(parts: &[&str]) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for b in parts.iter().flat_map(|p| p.bytes().chain([0])) {
        h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    }
    h
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::netapp::VOLUME;

    fn resources() -> Vec<Object> {
        (0..25)
            .map(|i| {
                json!({"name": format!("v{i:02}"), "capacityGib": i % 4, "description": format!("d{}", i % 3)})
                    .as_object()
                    .cloned()
                    .unwrap()
            })
            .collect()
    }

    fn names<T>(p: &Page<T>) -> Vec<String> {
        p.items
            .iter()
            .map(|(_, o)| o["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn list_all_pages(
        params: ListParams<'_>,
        between: impl Fn(usize, &mut Vec<Object>),
    ) -> Vec<String> {
        let mut out = Vec::new();
        let mut token = String::new();
        let mut world = resources();
        for turn in 0.. {
            let q = ListQuery::parse(
                &VOLUME,
                "c",
                ListParams {
                    page_token: Some(&token),
                    ..params
                },
            )
            .unwrap();
            let p = q.page(
                world.iter(),
                |o| o["name"].as_str().unwrap(),
                |o| (*o).clone(),
            );
            out.extend(names(&p));
            if p.next.is_empty() {
                break;
            }
            token = p.next;
            between(turn, &mut world);
        }
        out
    }

    #[test]
    fn pages_put_together_are_the_list() {
        for size in ["1", "7", "24", "25", "26", "0", ""] {
            let page_size = Some(size);
            let got = list_all_pages(
                ListParams {
                    page_size,
                    ..Default::default()
                },
                |_, _| {},
            );
            let want: Vec<String> = (0..25).map(|i| format!("v{i:02}")).collect();
            assert_eq!(got, want, "{size}");
            let got = list_all_pages(
                ListParams {
                    page_size,
                    order_by: Some("capacityGib desc, name"),
                    filter: Some("description=d1"),
                    ..Default::default()
                },
                |_, _| {},
            );
            let mut want: Vec<i32> = (0..25).filter(|i| i % 3 == 1).collect();
            want.sort_by_key(|i| (-(i % 4), *i));
            let want: Vec<String> = want.iter().map(|i| format!("v{i:02}")).collect();
            assert_eq!(got, want, "{size}");
        }
    }

    #[test]
    fn what_changes_between_pages_hides_nothing_else() {
        for order_by in [
            None,
            Some("capacityGib"),
            Some("description desc,capacityGib"),
        ] {
            let got = list_all_pages(
                ListParams {
                    page_size: Some("4"),
                    order_by,
                    ..Default::default()
                },
                |turn, world| {
                    // The last one that was shown goes away, and others come.
                    if turn == 0 {
                        world.retain(|o| {
                            !["v03", "v12", "v22"].contains(&o["name"].as_str().unwrap())
                        });
                    }
                },
            );
            let mut distinct = got.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!(distinct.len(), got.len());
            for i in (0..25).filter(|i| ![3, 12, 22].contains(i)) {
                assert!(got.contains(&format!("v{i:02}")), "{i} of {order_by:?}");
            }
        }
    }

    #[test]
    fn pages_of_several_servers_are_one_list() {
        let resource = |i: usize| {
            let name = format!("projects/p/locations/l/volumes/v{i:02}");
            json!({"name": name, "capacityGib": i % 4, "description": format!("d{}", i % 3)})
        };
        // Each server has the resources in the order of their names, as its catalog has them.
        let server = |n: usize| (0..25).filter(move |i| i % 3 == n).map(resource);
        let object = |v: &Value| v.as_object().cloned().unwrap();
        for (size, order_by, filter) in [
            ("1", None, None),
            ("4", Some("capacityGib desc,name"), None),
            ("7", Some("description"), Some("capacityGib>0")),
            ("25", Some("description desc"), None),
            ("30", None, Some("description=d1")),
        ] {
            let (mut token, mut got, mut want) = (String::new(), Vec::new(), Vec::new());
            fn params<'a>(token: &'a str, of: &ListParams<'a>) -> ListParams<'a> {
                ListParams {
                    page_token: Some(token),
                    ..*of
                }
            }
            let of = ListParams {
                page_size: Some(size),
                page_token: None,
                order_by,
                filter,
            };
            loop {
                let q = ListQuery::parse(&VOLUME, "c", params(&token, &of)).unwrap();
                let (mut all, mut more) = (Vec::new(), false);
                for n in 0..3 {
                    let names: Vec<(String, Value)> = server(n)
                        .map(|v| (sorted_name(v["name"].as_str().unwrap()), v))
                        .collect();
                    let page = q.page(names.iter(), |(name, _)| name, |(_, v)| object(v));
                    more |= !page.next.is_empty();
                    // On the wire, as JSON's mapping has 64-bit integers.
                    all.extend(page.items.into_iter().map(|(_, o)| {
                        crate::json::encode(&VOLUME, &o, crate::json::EnumsAs::Names)
                    }));
                }
                let (items, next) = q.merged(all, more);
                got.extend(items.iter().map(|v| v["name"].clone()));
                assert!(items.len() <= size.parse().unwrap());
                token = next;
                if token.is_empty() {
                    break;
                }
            }
            let whole = ListParams {
                page_size: None,
                ..params("", &of)
            };
            let q = ListQuery::parse(&VOLUME, "c", whole).unwrap();
            let names: Vec<(String, Value)> = (0..25)
                .map(resource)
                .map(|v| (sorted_name(v["name"].as_str().unwrap()), v))
                .collect();
            let page = q.page(names.iter(), |(name, _)| name, |(_, v)| object(v));
            want.extend(page.items.iter().map(|(_, o)| o["name"].clone()));
            assert_eq!(got, want, "{size} {order_by:?} {filter:?}");
        }
    }

    #[test]
    fn wrong_parameters_are_named() {
        let world = resources();
        let page = ListQuery::parse(
            &VOLUME,
            "c",
            ListParams {
                page_size: Some("4"),
                ..Default::default()
            },
        )
        .unwrap()
        .page(
            world.iter(),
            |o| o["name"].as_str().unwrap(),
            |o| (*o).clone(),
        );
        for (params, field) in [
            (
                ListParams {
                    page_size: Some("-1"),
                    ..Default::default()
                },
                "pageSize",
            ),
            (
                ListParams {
                    page_size: Some("x"),
                    ..Default::default()
                },
                "pageSize",
            ),
            (
                ListParams {
                    page_token: Some("nonsense"),
                    ..Default::default()
                },
                "pageToken",
            ),
            (
                ListParams {
                    page_token: Some(&page.next),
                    filter: Some("a"),
                    ..Default::default()
                },
                "pageToken",
            ),
            (
                ListParams {
                    page_token: Some(&page.next),
                    order_by: Some("name"),
                    ..Default::default()
                },
                "pageToken",
            ),
            (
                ListParams {
                    filter: Some("("),
                    ..Default::default()
                },
                "filter",
            ),
            (
                ListParams {
                    order_by: Some("nope"),
                    ..Default::default()
                },
                "orderBy",
            ),
            (
                ListParams {
                    order_by: Some("name sideways"),
                    ..Default::default()
                },
                "orderBy",
            ),
            (
                ListParams {
                    order_by: Some("labels"),
                    ..Default::default()
                },
                "orderBy",
            ),
            (
                ListParams {
                    order_by: Some("name,,"),
                    ..Default::default()
                },
                "orderBy",
            ),
        ] {
            let e = ListQuery::parse(&VOLUME, "c", params).unwrap_err();
            assert_eq!((e.code(), e.violations[0].field.as_str()), (400, field));
        }
        // Anything above the most is the most.
        let q = ListQuery::parse(
            &VOLUME,
            "c",
            ListParams {
                page_size: Some("99999999999"),
                ..Default::default()
            },
        );
        assert_eq!(q.unwrap().size, MAX_PAGE);
    }
}
