//! GET in ONTAP's way: `fields`, queries on any field, `order_by`, `max_records` with a link to go
//! on, `return_records`.
//!
//! A record is made whole, as JSON; queries and fields are dotted names into it. Of what there may
//! be very much of (relationships), records are made only for the page: queries and orders read
//! single fields, by [`Listing::choose`].
//!
//! The link to the next page names the last record of this one, by the fields that the list is
//! ordered by. A record that is made or deleted between two pages hides no other record and repeats
//! none. No state is kept for it.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};
use weir_base::percent::{UNRESERVED, UnescapedSet, escape};
use weir_ontap::query;

use super::refusal::{HandlerResult, Refusal};
use super::surface::Reply;

/// Parameters that are no queries.
const RESERVED: &[&str] = &[
    "fields",
    "order_by",
    "max_records",
    "start",
    "return_records",
    "return_timeout",
    "return_metadata",
    "return_unmatched_nested_array_objects",
    "ignore_unknown_fields",
    "privilege_level",
    "pretty",
    "pretty_print",
];

/// Records in one reply where the client does not say: ONTAP's own figure.
const PAGE: usize = 10_000;
/// Bytes that the links of ONTAP leave as they are.
const IN_LINKS: UnescapedSet = UNRESERVED.and(b"*,:");

/// Bytes of a `start` parameter.
const START_MAX: usize = 4096;

/// The last record of the page before: the values of the fields in `order_by`, its place in the
/// list's own order, and how many records with the same values and place were shown.
#[derive(Debug)]
struct Start {
    values: Vec<String>,
    place: Vec<String>,
    shown: usize,
}

impl Start {
    fn parse(text: &str) -> Option<Start> {
        let (values, place, shown) = serde_json::from_str(text).ok()?;
        Some(Start {
            values,
            place,
            shown,
        })
    }

    fn text(&self) -> String {
        json!([self.values, self.place, self.shown]).to_string()
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// The records, in order.
    pub items: Vec<T>,
    /// The `start` parameter of the next page; `None`: this is the last one.
    next: Option<String>,
}

impl<T> Page<T> {
    /// Returns the same page with each item made into another one.
    pub fn map<U>(self, make: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(make).collect(),
            next: self.next,
        }
    }
}

/// Parameters of a list request: fields, queries, order and page.
#[derive(Debug)]
pub struct Listing {
    fields: Option<Vec<String>>,
    queries: Vec<(String, String)>,
    order: Vec<(String, bool)>,
    most: usize,
    start: Option<Start>,
    records: bool,
    again: Vec<(String, String)>,
}

impl Listing {
    /// Reads a query; `known` are the dotted names of all fields.
    ///
    /// # Errors
    /// A name that is not in `known`, a value that is not of its kind.
    pub fn parse(query: &[(String, String)], known: &[&str]) -> HandlerResult<Listing> {
        let lenient = query.iter().any(|(name, value)| {
            name == "ignore_unknown_fields" && value.eq_ignore_ascii_case("true")
        });
        let is_known = |name: &str| {
            let below = |k: &&str| {
                k.strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            known.iter().any(below)
        };
        let mut out = Listing {
            fields: None,
            queries: Vec::new(),
            order: Vec::new(),
            most: PAGE,
            start: None,
            records: true,
            again: Vec::new(),
        };
        for (name, text) in query {
            if name != "start" {
                out.again.push((name.clone(), text.clone()));
            }
            let number = || {
                let n: Result<usize, _> = text.parse();
                n.map_err(|_| Refusal::value(name, text, "integer"))
            };
            match name.as_str() {
                "fields" => {
                    let all = out.fields.get_or_insert_default();
                    for field in text.split(',').map(str::trim).filter(|f| !f.is_empty()) {
                        // `nas.*` is all of `nas`.
                        let field = field.trim_end_matches(".**").trim_end_matches(".*");
                        if !matches!(field, "*" | "**") && !is_known(field) {
                            if lenient {
                                continue;
                            }
                            return Err(Refusal::value("fields", field, "field name"));
                        }
                        all.push(field.to_owned());
                    }
                }
                "order_by" => {
                    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
                        let (field, way) = part.split_once(' ').unwrap_or((part, "asc"));
                        let down = match way.trim().to_ascii_lowercase().as_str() {
                            "asc" => false,
                            "desc" => true,
                            _ => return Err(Refusal::value("order_by", part, "asc|desc")),
                        };
                        if !is_known(field) {
                            return Err(Refusal::value("order_by", field, "field name"));
                        }
                        out.order.push((field.to_owned(), down));
                    }
                }
                "max_records" => {
                    out.most = match number()? {
                        0 => PAGE,
                        n => n.min(PAGE),
                    };
                }
                "start" => {
                    let start = Some(text).filter(|text| text.len() <= START_MAX);
                    let start = start.and_then(|text| Start::parse(text));
                    out.start = Some(start.ok_or_else(|| wrong_start(text))?);
                }
                "return_records" => {
                    out.records = match text.to_ascii_lowercase().as_str() {
                        "true" => true,
                        "false" => false,
                        _ => return Err(Refusal::value(name, text, "boolean")),
                    }
                }
                reserved if RESERVED.contains(&reserved) => {}
                field if is_known(field) => out.queries.push((name.clone(), text.clone())),
                _ if lenient => {}
                _ => return Err(Refusal::unexpected(name)),
            }
        }
        match &out.start {
            Some(start) if start.values.len() != out.order.len() => {
                Err(wrong_start("another order"))
            }
            _ => Ok(out),
        }
    }

    /// Creates the listing of records that were queried in another way: their order and which page
    /// of them is shown.
    ///
    /// # Errors
    /// As [`Listing::parse`].
    pub fn of_page(query: &[(String, String)], known: &[&str]) -> HandlerResult<Listing> {
        const PAGE: [&str; 4] = ["order_by", "max_records", "start", "return_records"];
        let all = query.iter();
        let page: Vec<_> = all
            .clone()
            .filter(|(name, _)| PAGE.contains(&name.as_str()))
            .cloned()
            .collect();
        Ok(Listing {
            again: all.filter(|(name, _)| name != "start").cloned().collect(),
            ..Listing::parse(&page, known)?
        })
    }

    /// Returns the value that a field is queried for.
    pub fn exactly(&self, name: &str) -> Option<&str> {
        let query = self.queries.iter().find(|(n, _)| n == name);
        query.map(|(_, wanted)| wanted.as_str())
    }

    /// Takes a query out, for a field that is matched in another way.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.queries.iter().position(|(n, _)| n == name)?;
        Some(self.queries.remove(at).1)
    }

    /// Returns true if a field was asked for by its name or by what it is a part of, or is queried.
    pub fn asks(&self, name: &str) -> bool {
        let part = |of: &str| {
            let rest = name.strip_prefix(of);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let fields = self.fields.iter().flatten();
        fields.into_iter().any(|f| part(f)) || self.queries.iter().any(|(n, _)| part(n))
    }

    /// Returns the reply: those of `records` that match. Each has the fields asked for, `keys` in
    /// any case; all fields, if none is asked for. `order` names the fields that the list is
    /// ordered by; together they are unique.
    pub fn reply(&self, path: &str, keys: &[&str], order: &[&str], records: Vec<Value>) -> Reply {
        let place = |record: &Value| order.iter().map(|f| texts(record, f).concat()).collect();
        self.page(path, keys, self.choose(records.into_iter(), texts, place))
    }

    /// Returns those of `all` that belong to the page, in order. `texts` reads the values of a
    /// field. `place` is the place in the list's own order, which decides among records that
    /// `order_by` does not tell apart; it never changes.
    pub fn choose<T>(
        &self,
        all: impl Iterator<Item = T>,
        texts: impl Fn(&T, &str) -> Vec<String>,
        place: impl Fn(&T) -> Vec<String>,
    ) -> Page<T> {
        let matches = |item: &T| {
            self.queries.iter().all(|(name, wanted)| {
                let found = texts(item, name);
                match found.is_empty() {
                    // A dash is ONTAP's word for no value.
                    true => match wanted.strip_prefix('!') {
                        Some(other) => !is_none(other),
                        None => is_none(wanted),
                    },
                    false => found.iter().any(|text| query::matches(wanted, text)),
                }
            })
        };
        let start = self.start.as_ref();
        let after =
            start.map(|start| Rank::from_values(start.values.iter().cloned(), &start.place));
        let mut same = start.map_or(0, |start| start.shown);
        let mut ranked: Vec<(Rank, usize, T)> = Vec::new();
        for (at, item) in all.filter(matches).enumerate() {
            let values = self
                .order
                .iter()
                .map(|(name, _)| texts(&item, name).concat());
            let rank = Rank::from_values(values, &place(&item));
            match after.as_ref().map(|after| self.compare(&rank, after)) {
                Some(Ordering::Less) => continue,
                Some(Ordering::Equal) if same > 0 => same -= 1,
                _ => ranked.push((rank, at, item)),
            }
        }
        type RankedItem<T> = (Rank, usize, T);
        let compare = |a: &RankedItem<T>, b: &RankedItem<T>| {
            let order = self.compare(&a.0, &b.0);
            order.then(a.1.cmp(&b.1))
        };
        let more = self.most < ranked.len();
        if more {
            ranked.select_nth_unstable_by(self.most, compare);
            ranked.truncate(self.most);
        }
        ranked.sort_unstable_by(compare);
        let last = ranked.last().filter(|_| more);
        let next = last.map(|(last, ..)| {
            let is_last = |rank: &Rank| self.compare(rank, last).is_eq();
            let shown = ranked.iter().filter(|(rank, ..)| is_last(rank)).count();
            let before = start.filter(|_| after.as_ref().is_some_and(&is_last));
            let start = Start {
                values: last.values.iter().map(Key::text).collect(),
                place: last.place.iter().map(Key::text).collect(),
                shown: shown + before.map_or(0, |start| start.shown),
            };
            start.text()
        });
        Page {
            items: ranked.into_iter().map(|(.., item)| item).collect(),
            next,
        }
    }

    fn compare(&self, a: &Rank, b: &Rank) -> Ordering {
        let mut each = a.values.iter().zip(&b.values).zip(&self.order);
        let by_values = each.find_map(|((a, b), (_, down))| {
            let order = if *down { b.cmp(a) } else { a.cmp(b) };
            Some(order).filter(|order| order.is_ne())
        });
        by_values.unwrap_or_else(|| a.place.cmp(&b.place))
    }

    /// Returns the reply with a page. If more records follow it, a link leads to them.
    pub fn page(&self, path: &str, keys: &[&str], page: Page<Value>) -> Reply {
        let mut links = json!({"self": {"href": href(path, &self.again, None)}});
        if let (Some(next), Some(links)) = (page.next, links.as_object_mut()) {
            let next = href(path, &self.again, Some(next));
            links.insert("next".to_owned(), json!({"href": next}));
        }
        let records = page.items.into_iter().map(|r| self.select(r, keys));
        let records: Vec<Value> = records.collect();
        let mut body = json!({"num_records": records.len(), "_links": links});
        if let (true, Some(body)) = (self.records, body.as_object_mut()) {
            body.insert("records".to_owned(), Value::Array(records));
        }
        Reply::ok(body)
    }

    /// Returns the reply for one record.
    pub fn one(&self, keys: &[&str], record: Value) -> Reply {
        Reply::ok(self.select(record, keys))
    }

    fn select(&self, record: Value, keys: &[&str]) -> Value {
        let Some(fields) = &self.fields else {
            return record;
        };
        if fields.iter().any(|f| f.starts_with('*')) {
            return record;
        }
        let mut out = Value::Object(Map::new());
        // ONTAP shows the fields of queries too, and Trident reads them.
        let queried = self.queries.iter().map(|(name, _)| name.as_str());
        let wanted = keys
            .iter()
            .copied()
            .chain(fields.iter().map(String::as_str))
            .chain(queried);
        for name in wanted.chain(["_links"]) {
            copy(&record, &mut out, name);
            // A resource that is referred to by its identity comes with its name, as in ONTAP:
            // clients read it.
            if let Some(of) = name.strip_suffix(".uuid") {
                copy(&record, &mut out, &format!("{of}.name"));
            }
        }
        out
    }
}

/// Returns true for a query that matches fields without a value.
fn is_none(wanted: &str) -> bool {
    ["null", "-", "\"-\""].contains(&wanted)
}

fn wrong_start(text: &str) -> Box<Refusal> {
    Refusal::value("start", text, "place from the link to a next page")
}

/// The position of a record in an ordered list.
struct Rank {
    /// The values of the fields in `order_by`.
    values: Vec<Key>,
    /// The place in the list's own order.
    place: Vec<Key>,
}

impl Rank {
    fn from_values(values: impl Iterator<Item = String>, place: &[String]) -> Rank {
        Rank {
            values: values.map(Key::from_text).collect(),
            place: place.iter().cloned().map(Key::from_text).collect(),
        }
    }
}

/// A value that records are ordered by: nothing comes first, then numbers and durations, then text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    None,
    /// A number that is not negative; of a duration, its seconds.
    Number(u64),
    Text(String),
}

impl Key {
    fn from_text(text: String) -> Key {
        if text.is_empty() {
            return Key::None;
        }
        let number = text.parse().ok().or_else(|| {
            let span: jiff::SignedDuration = text.strip_prefix("PT").and(text.parse().ok())?;
            u64::try_from(span.as_secs()).ok()
        });
        number.map_or(Key::Text(text), Key::Number)
    }

    /// Returns a text with this key.
    fn text(&self) -> String {
        match self {
            Key::None => String::new(),
            Key::Number(n) => n.to_string(),
            Key::Text(text) => text.clone(),
        }
    }
}

/// Copies the value that a dotted name refers to; a list is copied whole.
fn copy(from: &Value, to: &mut Value, name: &str) {
    let (first, rest) = match name.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (name, None),
    };
    let (Some(value), Some(to)) = (from.get(first), to.as_object_mut()) else {
        return;
    };
    match (rest, value) {
        (Some(rest), Value::Object(_)) => {
            let inner = to.entry(first).or_insert_with(|| Value::Object(Map::new()));
            copy(value, inner, rest);
        }
        _ => {
            to.insert(first.to_owned(), value.clone());
        }
    }
}

/// Returns the texts of all values that a dotted name refers to.
pub fn texts(record: &Value, name: &str) -> Vec<String> {
    match record {
        Value::Array(all) => all.iter().flat_map(|one| texts(one, name)).collect(),
        Value::Object(object) => {
            let (first, rest) = match name.split_once('.') {
                Some((first, rest)) => (first, rest),
                None => (name, ""),
            };
            object.get(first).map_or_else(Vec::new, |v| texts(v, rest))
        }
        Value::Null => Vec::new(),
        _ if !name.is_empty() => Vec::new(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

fn href(path: &str, query: &[(String, String)], start: Option<String>) -> String {
    let mut out = path.to_owned();
    let start = start.map(|start| ("start".to_owned(), start));
    for (i, (name, value)) in query.iter().cloned().chain(start).enumerate() {
        out.push(if i == 0 { '?' } else { '&' });
        escape(&mut out, &name, IN_LINKS);
        out.push('=');
        escape(&mut out, &value, IN_LINKS);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["uuid", "name", "size", "svm.name", "rules.label"];

    fn records() -> Vec<Value> {
        ["a", "b", "c"]
            .iter()
            .enumerate()
            .map(|(i, name)| {
                json!({"uuid": format!("u{i}"), "name": name, "size": (10 - i) * 1024,
                       "svm": {"name": "S"}, "rules": [{"label": "daily"}, {"label": name}]})
            })
            .collect()
    }

    fn request_listing(pairs: &[(&str, &str)]) -> HandlerResult<Reply> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Ok(Listing::parse(&pairs, KNOWN)?.reply("/api/x", &["uuid"], &["name", "uuid"], records()))
    }

    fn names(pairs: &[(&str, &str)]) -> Vec<String> {
        let body = request_listing(pairs).unwrap().body;
        let all = body["records"].as_array().unwrap();
        all.iter()
            .map(|r| r["uuid"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn queries_orders_fields_and_pages() {
        assert_eq!(names(&[]), ["u0", "u1", "u2"]);
        assert_eq!(names(&[("name", "b|c")]), ["u1", "u2"]);
        assert_eq!(names(&[("size", ">=9KB")]), ["u0", "u1"]);
        assert_eq!(names(&[("rules.label", "c")]), ["u2"]);
        assert_eq!(names(&[("svm.name", "!S")]), Vec::<String>::new());
        assert_eq!(names(&[("order_by", "size asc")]), ["u2", "u1", "u0"]);
        let body = request_listing(&[("fields", "svm.name,rules")])
            .unwrap()
            .body;
        assert_eq!(
            body["records"][0],
            json!({"uuid": "u0", "svm": {"name": "S"}, "rules": [{"label": "daily"}, {"label": "a"}]})
        );
        let body = request_listing(&[("fields", "svm.name"), ("name", "b")])
            .unwrap()
            .body;
        assert_eq!(
            body["records"][0],
            json!({"uuid": "u1", "name": "b", "svm": {"name": "S"}})
        );
        let of = json!({"uuid": "u", "svm": {"name": "S", "uuid": "s"}});
        let svm = [("fields".to_owned(), "svm.uuid".to_owned())];
        let listing = Listing::parse(&svm, &["uuid", "svm.name", "svm.uuid"]).unwrap();
        assert_eq!(listing.one(&["uuid"], of.clone()).body, of);
        let page = request_listing(&[("max_records", "2"), ("name", "*")])
            .unwrap()
            .body;
        assert_eq!(page["num_records"], 2);
        assert_eq!(
            page["_links"]["next"]["href"],
            "/api/x?max_records=2&name=*&start=%5B%5B%5D,%5B%22b%22,%22u1%22%5D,1%5D"
        );
        let start = r#"[[],["b","u1"],1]"#;
        assert_eq!(names(&[("max_records", "2"), ("start", start)]), ["u2"]);
        let gone = r#"[[],["aa","u9"],1]"#;
        assert_eq!(names(&[("start", gone)]), ["u1", "u2"]);
        let counted = request_listing(&[("return_records", "false")])
            .unwrap()
            .body;
        assert_eq!(
            (&counted["num_records"], counted.get("records")),
            (&json!(3), None)
        );
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        for (name, value, code) in [
            ("colour", "red", 262_179),
            ("fields", "name,colour", 262_197),
            ("order_by", "name sideways", 262_197),
            ("max_records", "many", 262_197),
            ("return_records", "1", 262_197),
            ("start", "2", 262_197),
            ("start", r#"[["x"],[],1]"#, 262_197),
        ] {
            assert_eq!(
                request_listing(&[(name, value)]).unwrap_err().code,
                code,
                "{name}"
            );
        }
    }
}
