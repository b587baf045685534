//! Resources by their tables of fields: records, lists, and what bodies set.

use serde_json::{Map, Value, json};
use weir_ontap::fields::{Field, Input, Kind, Set, Table, Value as Typed, Way, export, qos};
use weir_ontap::storage::{NamedKind, StoragePolicy, Svm};
use weir_ontap::value::{identity as uuid, iso_duration, iso_timestamp};

use super::body::Fields;
use super::listing::{Listing, texts};
use super::refusal::{HandlerResult, Refusal};
use super::surface::{CallContext, Reply, itself};

/// Returns a value as REST has it; null is none.
pub fn json_of(value: &Typed) -> Value {
    match value {
        Typed::None => Value::Null,
        Typed::Flag(flag) => json!(flag),
        Typed::Number(n) | Typed::Percent(n) | Typed::Bytes(n) | Typed::Capacity(n) => json!(n),
        Typed::Decimal(number) => json!(number),
        Typed::Time(at) | Typed::Moment(at) => match iso_timestamp(*at) {
            text if text == "-" => Value::Null,
            text => json!(text),
        },
        Typed::Span(seconds) => json!(iso_duration(*seconds)),
        Typed::Text(text) | Typed::Remark(text) => json!(text),
        Typed::Word(word) => json!(word.replace('-', "_")),
        Typed::Spelled(_, word) => json!(word),
        Typed::Mode(mode) => json!(format!("{mode:o}").parse::<u32>().unwrap_or(0)),
        Typed::List(all) => Value::Array(all.iter().map(json_of).collect()),
        Typed::Object(fields) => {
            let mut out = Map::new();
            for (name, value) in fields {
                place(&mut out, name, json_of(value));
            }
            Value::Object(out)
        }
        Typed::Shown(_, value) | Typed::Apart(_, value) => json_of(value),
    }
}

/// Puts a value at a dotted name; null is left out.
fn place(out: &mut Map<String, Value>, name: &str, value: Value) {
    if value.is_null() {
        return;
    }
    match name.split_once('.') {
        None => match (out.get_mut(name), &value) {
            // The object has fields already.
            (Some(Value::Object(_)), Value::Object(more)) if more.is_empty() => {}
            _ => {
                out.insert(name.to_owned(), value);
            }
        },
        Some((first, rest)) => {
            let inner = out
                .entry(first)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                place(inner, rest, value);
            }
        }
    }
}

/// Returns a record of a table, with a link to itself.
pub fn record<T, D>(table: &Table<T, D>, of: &T) -> Value {
    let mut out = Map::new();
    out.insert("_links".to_owned(), itself(&table.link(of)));
    for field in table.rest() {
        place(&mut out, field.rest, json_of(&field.value(of)));
    }
    Value::Object(out)
}

/// Reads the parameters of a list of a table's records.
///
/// # Errors
/// As [`Listing::parse`].
pub fn listing<T, D>(query: &[(String, String)], table: &Table<T, D>) -> HandlerResult<Listing> {
    let names = table.names();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    Listing::parse(query, &known)
}

/// Handles GET of a table: of all records that `rows` returns, or of the one whose path it is.
/// `rows` gets true if a field that is costly is asked for.
pub fn get<T, D>(
    a: &CallContext<'_>,
    table: &Table<T, D>,
    one: bool,
    rows: impl FnOnce(bool) -> Vec<T>,
) -> HandlerResult<Reply> {
    let listing = listing(&a.call.query, table)?;
    let rows = rows(table.is_costly(|name| listing.asks(name)));
    match one {
        true => Ok(listing.one(table.keys, record(table, &found(a, table, rows)?))),
        false => Ok(list(a, &listing, table, &rows)),
    }
}

/// Returns a page of records.
pub fn list<T, D>(
    a: &CallContext<'_>,
    listing: &Listing,
    table: &Table<T, D>,
    rows: &[T],
) -> Reply {
    let records = rows.iter().map(|row| record(table, row)).collect();
    listing.reply(&a.here(), table.keys, table.order, records)
}

/// Returns the record whose path the request has.
///
/// # Errors
/// There is none.
pub fn found<T, D>(a: &CallContext<'_>, table: &Table<T, D>, rows: Vec<T>) -> HandlerResult<T> {
    let here = a.here();
    let found = rows.into_iter().find(|row| table.link(row) == here);
    found.ok_or_else(Refusal::no_entry)
}

/// Returns the reply to a change that made a record.
pub fn made<T, D>(
    a: &CallContext<'_>,
    table: &Table<T, D>,
    row: Option<T>,
) -> HandlerResult<Reply> {
    a.done(row.map(|row| (table.link(&row), record(table, &row))))
}

/// Puts what a body sets into a draft, and refuses all other fields. `like`: the record that is
/// changed, or that the new one is like.
///
/// # Errors
/// A field that cannot be set, or not to that value; one that the resource does not have.
pub fn read<T, D>(
    a: &CallContext<'_>,
    table: &Table<T, D>,
    fields: &mut Fields,
    way: Way,
    draft: &mut D,
    like: Option<&T>,
) -> HandlerResult<()> {
    for field in table.rest() {
        match field.effect(way) {
            Set::No => {}
            Set::Only(values) => {
                fields.fixed(&[(field.rest, values)])?;
                if let Some(whole) = field.rest.strip_suffix(".name") {
                    fields.fixed(&[(whole, values)])?;
                }
            }
            Set::Same => same(table, field, fields, like)?,
            Set::By(set) => {
                if let Some(input) = input(a, field.rest, field.kind, fields)? {
                    set(draft, input);
                }
            }
        }
    }
    // A record may not be said to have a field that no record has.
    for name in table.absent {
        if fields.is_nothing(name) {
            fields.ignore(&[name]);
        }
    }
    let names = table.names();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    std::mem::take(fields).done_of(&known)
}

/// Refuses a field that is given otherwise than a record has it.
fn same<T, D>(
    table: &Table<T, D>,
    field: &Field<T, D>,
    fields: &mut Fields,
    like: Option<&T>,
) -> HandlerResult<()> {
    let whole = field.rest.strip_suffix(".name");
    let given = fields.take(field.rest);
    let Some(given) = given.or_else(|| fields.take(whole?)) else {
        return Ok(());
    };
    let mut here = like.map_or_else(Vec::new, |row| texts(&json_of(&field.value(row)), ""));
    let mut given = texts(&given, "");
    here.sort_unstable();
    given.sort_unstable();
    match given == here {
        true => Ok(()),
        false => {
            let why = format!("it is \"{}\" here: {}", here.join(","), table.why(field));
            Err(Refusal::not_here(field.rest, &why))
        }
    }
}

/// Takes a field out of a body; `None`: it is not there, or null where that says nothing.
fn input(
    a: &CallContext<'_>,
    name: &str,
    kind: Kind,
    fields: &mut Fields,
) -> HandlerResult<Option<Input>> {
    let given = match kind {
        Kind::Policy(kind) => return Ok(policy(a, fields, name, kind)?.map(Input::Text)),
        Kind::Pool => return Ok(pool(fields, name)?.map(Input::Text)),
        Kind::Svm => return Ok(svm(a, fields, name)?.map(Input::Text)),
        Kind::MirrorPolicy => return Ok(mirror_policy(a, fields, name)?.map(Input::Text)),
        Kind::Schedule => return schedule(a, fields, name),
        Kind::Objects(part) => return Ok(objects(fields, name, part)?.map(Input::List)),
        Kind::List => return Ok(fields.list(name)?.map(Input::List)),
        _ => fields.take(name),
    };
    let text = match (given, kind) {
        (None, _) => return Ok(None),
        (Some(Value::Null), Kind::Label | Kind::Limit(_)) => return Ok(Some(Input::None)),
        (Some(Value::Null), _) => return Ok(None),
        (Some(Value::String(text)), _) => text,
        (Some(other), Kind::Text | Kind::Path | Kind::Words(_) | Kind::Label | Kind::Nested) => {
            return Err(Refusal::value(name, &other.to_string(), "string"));
        }
        (Some(other), _) => other.to_string(),
    };
    match kind.of_rest(&text) {
        Some(input) => Ok(Some(input)),
        None => Err(Refusal::value(name, &text, &kind.rest_words())),
    }
}

/// The forms in which a body names something: `X`, `X.name`, and `X.uuid` or `X.id`.
struct Reference {
    name: Option<String>,
    id: Option<String>,
}

/// Takes a reference out of a body. `name` is that of its name.
fn reference(fields: &mut Fields, name: &str) -> HandlerResult<Reference> {
    let of = name.strip_suffix(".name").unwrap_or(name);
    let whole = fields.text(of)?;
    let name = fields.text(&format!("{of}.name"))?.or(whole);
    let id = ["uuid", "id"].map(|part| fields.take(&format!("{of}.{part}")));
    let id = match id.into_iter().flatten().next() {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id),
        Some(other) => Some(other.to_string()),
    };
    Ok(Reference { name, id })
}

/// Returns a policy's name.
fn policy(
    a: &CallContext<'_>,
    fields: &mut Fields,
    field: &str,
    kind: NamedKind,
) -> HandlerResult<Option<String>> {
    let Reference { name, id } = reference(fields, field)?;
    let Some(id) = id else { return Ok(name) };
    let by = |p: &StoragePolicy| qos::uuid(p) == id || export::id(p).to_string() == id;
    let found = a.cluster.storage_policies(kind).into_iter().find(by);
    let found = found.ok_or_else(Refusal::no_entry)?.key.name;
    match name {
        Some(name) if name != found => {
            Err(Refusal::value(field, &name, "that is another policy's"))
        }
        _ => Ok(Some(found)),
    }
}

/// Returns the machine that a body names.
pub fn svm(a: &CallContext<'_>, fields: &mut Fields, field: &str) -> HandlerResult<Option<String>> {
    let Reference { name, id } = reference(fields, field)?;
    let Some(asked) = name.clone().or(id.clone()) else {
        return Ok(None);
    };
    let meant = |svm: &Svm| {
        name.as_ref().is_none_or(|name| svm.name == *name)
            && id.as_ref().is_none_or(|id| uuid("svm", &svm.name) == *id)
    };
    let found = a.cluster.svms().into_iter().find(meant);
    Ok(Some(found.ok_or_else(|| Refusal::no_svm(&asked))?.name))
}

/// Returns the policy of SnapMirror that a body names.
fn mirror_policy(
    a: &CallContext<'_>,
    fields: &mut Fields,
    field: &str,
) -> HandlerResult<Option<String>> {
    let Reference { name, id } = reference(fields, field)?;
    let Some(asked) = name.clone().or(id.clone()) else {
        return Ok(None);
    };
    let mut all = a.cluster.policies().into_iter();
    let found = all.find(|p| {
        name.as_ref().is_none_or(|name| p.name == *name)
            && id.as_ref().is_none_or(|id| uuid("policy", &p.name) == *id)
    });
    let found = found.ok_or_else(|| Refusal::value(field, &asked, "no such policy"));
    found.map(|policy| Some(policy.name))
}

/// Returns the schedule that a body names; null or nothing takes it away.
pub fn schedule(
    a: &CallContext<'_>,
    fields: &mut Fields,
    field: &str,
) -> HandlerResult<Option<Input>> {
    let of = field.strip_suffix(".name").unwrap_or(field);
    for name in [of, field] {
        if fields.is_nothing(name) {
            fields.ignore(&[name]);
            return Ok(Some(Input::None));
        }
    }
    let Reference { name, id } = reference(fields, field)?;
    let Some(asked) = name.clone().or(id.clone()) else {
        return Ok(None);
    };
    let mut all = a.cluster.schedules().into_iter();
    let found = all.find(|s| {
        name.as_ref().is_none_or(|name| s.name == *name)
            && id
                .as_ref()
                .is_none_or(|id| uuid("schedule", &s.name) == *id)
    });
    let found = found.ok_or_else(|| Refusal::value(field, &asked, "no such schedule"));
    found.map(|schedule| Some(Input::Text(schedule.name)))
}

/// Returns the name in a list of one at most.
fn pool(fields: &mut Fields, field: &str) -> HandlerResult<Option<String>> {
    if let Some(name) = fields.text(&format!("{field}.name"))? {
        return Ok(Some(name));
    }
    let wrong = |v: &Value| Refusal::value(field, &v.to_string(), "a list of one name");
    match fields.take(field) {
        None | Some(Value::Null) => Ok(None),
        Some(list) => match list.as_array().map(Vec::as_slice) {
            Some([]) => Ok(None),
            Some([one]) => match one.get("name").and_then(Value::as_str) {
                Some(name) => Ok(Some(name.to_owned())),
                None => Err(wrong(&list)),
            },
            _ => Err(wrong(&list)),
        },
    }
}

/// Returns the values of one field of a list of objects.
fn objects(fields: &mut Fields, field: &str, part: &str) -> HandlerResult<Option<Vec<String>>> {
    let list = match fields.take(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(list) => list,
    };
    let text = |one: &Value| Some(one.get(part)?.as_str()?.to_owned());
    let all = list.as_array().into_iter().flatten();
    let all = all.map(text).collect::<Option<Vec<_>>>();
    match all.filter(|_| list.is_array()) {
        Some(all) => Ok(Some(all)),
        None => {
            let kind = format!("a list of objects with \"{part}\"");
            Err(Refusal::value(field, &list.to_string(), &kind))
        }
    }
}
