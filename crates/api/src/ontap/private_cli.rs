//! `private/cli`: every command of the command line as a resource, and whole lines as `{"input":
//! "…"}`.
//!
//! The path is the command without its verb, where that is one of the four that HTTP has. GET is
//! `show`, POST `create`, PATCH `modify`, DELETE `delete`. Any other verb is the last part of a
//! path that is posted to. Arguments come in the query and in the body, with underscores or with
//! dashes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use weir_ontap::commands::{COMMANDS, Record, error};
use weir_ontap::{Answer, Reason, Scalar};

use super::listing::{Listing, texts};
use super::refusal::{HandlerResult, Refusal};
use super::surface::{CallContext, Reply};
use crate::route::Verb;

/// Parameters that belong to the request and to no command.
const REQUEST: &[&str] = &[
    "privilege_level",
    "return_timeout",
    "return_records",
    "max_records",
    "order_by",
    "start",
    "pretty",
    "ignore_unknown_fields",
];

/// Handles a request below `private/cli`.
pub fn run(a: &CallContext<'_>, words: &[&str]) -> HandlerResult<Reply> {
    if words.is_empty() {
        return line(a);
    }
    let words = &*weir_ontap::grammar::written_out(words);
    let verb = match a.call.verb {
        Some(Verb::Get) => "show",
        Some(Verb::Post) => "create",
        Some(Verb::Patch) => "modify",
        Some(Verb::Delete) => "delete",
        None => return Err(Refusal::no_method("of this kind")),
    };
    if a.call.verb == Some(Verb::Get) && super::absent::is_command(words) {
        return super::absent::nothing(a);
    }
    if a.call.verb == Some(Verb::Get) && words == ["network", "interface"] {
        return super::network::lines(a);
    }
    let lenient = a.flag("ignore_unknown_fields")?;
    let known = |path: &[&str]| COMMANDS.iter().any(|c| c.path == path);
    let with_verb: Vec<&str> = words.iter().copied().chain([verb]).collect();
    // `show-x` is GET of `x`.
    let shown = words.split_last().map(|(last, before)| {
        let last = format!("{verb}-{last}");
        (before.to_vec(), last)
    });
    let path: Vec<&str> = match shown.as_ref() {
        _ if known(&with_verb) => with_verb,
        // `options` modifies where it is given a value.
        _ if a.call.verb == Some(Verb::Post) && known(words) => words.to_vec(),
        _ if a.call.verb == Some(Verb::Get) && known(words) => words.to_vec(),
        Some((before, last)) => {
            let path: Vec<&str> = before.iter().copied().chain([last.as_str()]).collect();
            if !known(&path) {
                return Err(Refusal::no_api());
            }
            path
        }
        None => return Err(Refusal::no_api()),
    };
    let answer = weir_ontap::call(&path, arguments(a)?, lenient, a.cluster);
    let answer = match answer {
        // No record is no failure for a program that queries.
        Err(failure) if failure.reason == Reason::NotFound && verb == "show" => {
            Answer::Records(Vec::new())
        }
        other => other.map_err(Refusal::from_failure)?,
    };
    Ok(match answer {
        Answer::Records(records) => listed(a, &records)?,
        Answer::Text(text) => {
            let mut body = json!({"cli_output": text});
            let counted = text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
            if let (Some(n), Some(body)) = (counted, body.as_object_mut()) {
                body.insert("num_records".to_owned(), json!(n));
            }
            Reply {
                status: match a.call.verb {
                    Some(Verb::Post) => 201,
                    _ => 200,
                },
                location: None,
                body,
            }
        }
    })
}

/// Returns the page of records that a query asks for.
fn listed(a: &CallContext<'_>, records: &[Record]) -> HandlerResult<Reply> {
    let fields = records
        .iter()
        .flat_map(|record| &record.fields)
        .filter(|(_, value)| *value != Scalar::None);
    let names: BTreeSet<&str> = fields.map(|(name, _)| *name).collect();
    if names.is_empty() {
        return Ok(Reply::ok(json!({"num_records": 0, "records": []})));
    }
    let names: Vec<String> = names.into_iter().map(field_name).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let listing = Listing::of_page(&a.call.query, &known)?;
    let values = |record: &&Record, wanted: &str| {
        let fields = record.fields.iter();
        let found = fields.filter(|(name, _)| field_name(name) == wanted);
        found
            .flat_map(|(_, value)| texts(&json_of(value), ""))
            .collect()
    };
    let page = listing.choose(records.iter(), values, |record| record.place.clone());
    Ok(listing.page(&a.here(), &[], page.map(|chosen| record(&chosen.fields))))
}

/// Returns a record: names with underscores; fields without a value are left out.
fn record(fields: &[(&'static str, Scalar)]) -> Value {
    let mut out = Map::new();
    for (name, value) in fields {
        if *value != Scalar::None {
            out.insert(field_name(name), json_of(value));
        }
    }
    Value::Object(out)
}

/// Returns a field's name, as a record has it.
fn field_name(name: &str) -> String {
    name.replace('-', "_")
}

fn json_of(value: &Scalar) -> Value {
    match value {
        Scalar::None => Value::Null,
        Scalar::Flag(flag) => json!(flag),
        Scalar::Number(number) => json!(number),
        Scalar::Text(text) => json!(text),
    }
}

/// Returns the arguments, of the query and of the body.
fn arguments(a: &CallContext<'_>) -> HandlerResult<Vec<(String, String)>> {
    let mut out: Vec<(String, String)> = Vec::new();
    for (name, value) in &a.call.query {
        if !REQUEST.contains(&name.as_str()) {
            out.push((name.clone(), value.clone()));
        }
    }
    match &a.call.body {
        Value::Null => {}
        Value::Object(body) => {
            for (name, value) in body {
                out.push((name.clone(), text(name, value)?));
            }
        }
        _ => return Err(Refusal::no_json("an object is expected")),
    }
    Ok(out)
}

fn text(name: &str, value: &Value) -> HandlerResult<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => "-".to_owned(),
        Value::Array(list) => {
            let parts: HandlerResult<Vec<String>> = list
                .iter()
                .map(|one| match one {
                    Value::Array(_) | Value::Object(_) => {
                        Err(Refusal::value(name, &one.to_string(), "text"))
                    }
                    one => text(name, one),
                })
                .collect();
            parts?.join(",")
        }
        Value::Object(_) => return Err(Refusal::value(name, &value.to_string(), "text")),
    })
}

/// Runs a line from `{"input": "snapmirror show"}` and returns what is printed. A refusal comes
/// with the text as well.
fn line(a: &CallContext<'_>) -> HandlerResult<Reply> {
    if a.call.verb != Some(Verb::Post) {
        return Err(Refusal::no_method("of this kind"));
    }
    let body = match &a.call.body {
        Value::Object(body) => body,
        _ => return Err(Refusal::required("input")),
    };
    if let Some(name) = body
        .keys()
        .find(|name| *name != "input" && *name != "privilege_level")
    {
        return Err(Refusal::unexpected(name));
    }
    let input = match body.get("input") {
        Some(Value::String(text)) => text,
        None => return Err(Refusal::required("input")),
        Some(other) => return Err(Refusal::value("input", &other.to_string(), "string")),
    };
    match weir_ontap::run(input, a.cluster) {
        Ok(output) => Ok(Reply::ok(json!({"output": output}))),
        Err((echo, failure)) => {
            let output = format!("{echo}{}", error(&failure.message));
            let mut reply = Reply::refused(&Refusal::from_failure(failure));
            if let Some(body) = reply.body.as_object_mut() {
                body.insert("output".to_owned(), json!(output));
            }
            Ok(reply)
        }
    }
}
