//! `protocols/nfs/export-policies`, and their rules.

use serde_json::{Value, json};
use weir_ontap::storage::{ExportRule, NamedKind, PolicyBody, PolicyChange, StoragePolicy};

use super::body::Fields;
use super::listing::Listing;
use super::named::{all, delete, edit, find, id_of, key, made, rename, submit};
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself};
use super::svms::svm;
use crate::route::Verb;

const EXPORTS: &[&str] = &[
    "id",
    "name",
    "svm.name",
    "svm.uuid",
    "rules.index",
    "rules.clients.match",
    "rules.protocols",
    "rules.ro_rule",
    "rules.rw_rule",
    "rules.superuser",
    "rules.anonymous_user",
    "rules.allow_suid",
    "rules.chown_mode",
    "rules.ntfs_unix_security",
    "rules.allow_device_creation",
];

const RULES: &[&str] = &[
    "index",
    "clients.match",
    "protocols",
    "ro_rule",
    "rw_rule",
    "superuser",
    "anonymous_user",
    "allow_suid",
    "chown_mode",
    "ntfs_unix_security",
    "allow_device_creation",
    "policy.name",
    "policy.id",
    "svm.name",
    "svm.uuid",
];

/// Fields of a rule that have one value here, and no other.
const RULE_FIXED: &[(&str, &str)] = &[
    ("allow_suid", "true"),
    ("allow_device_creation", "true"),
    ("chown_mode", "restricted"),
    ("ntfs_unix_security", "fail"),
];

fn rules_of(policy: &StoragePolicy) -> &[ExportRule] {
    match &policy.body {
        PolicyBody::Export(rules) => rules,
        _ => &[],
    }
}

fn export_link(policy: &StoragePolicy) -> String {
    format!("/api/protocols/nfs/export-policies/{}", id_of(policy))
}

fn rule(policy: Option<&StoragePolicy>, rule: &ExportRule) -> Value {
    let clients: Vec<Value> = rule.clients.iter().map(|c| json!({"match": c})).collect();
    let mut out = json!({
        "index": rule.index,
        "clients": clients,
        "protocols": rule.protocols,
        "ro_rule": rule.ro,
        "rw_rule": rule.rw,
        "superuser": rule.superuser,
        "anonymous_user": rule.anonymous,
        "allow_suid": true,
        "chown_mode": "restricted",
        "ntfs_unix_security": "fail",
        "allow_device_creation": true,
    });
    if let (Some(policy), Some(out)) = (policy, out.as_object_mut()) {
        let link = format!("{}/rules/{}", export_link(policy), rule.index);
        out.insert("_links".to_owned(), itself(&link));
        out.insert(
            "policy".to_owned(),
            json!({"id": id_of(policy), "name": policy.key.name}),
        );
        out.insert("svm".to_owned(), svm(&policy.key.svm));
    }
    out
}

fn export(policy: &StoragePolicy) -> Value {
    let rules: Vec<Value> = rules_of(policy).iter().map(|r| rule(None, r)).collect();
    json!({
        "_links": itself(&export_link(policy)),
        "id": id_of(policy),
        "name": policy.key.name,
        "svm": svm(&policy.key.svm),
        "rules": rules,
    })
}

/// Returns a rule from a body; what it does not say is as `before`, or as in ONTAP.
fn read_rule(fields: &mut Fields, before: Option<&ExportRule>, index: u32) -> Answered<ExportRule> {
    let any = || vec!["any".to_owned()];
    let mut rule = before.cloned().unwrap_or_else(|| ExportRule {
        index,
        clients: Vec::new(),
        protocols: any(),
        ro: Vec::new(),
        rw: Vec::new(),
        superuser: any(),
        anonymous: "65534".to_owned(),
    });
    match fields.take("clients") {
        None | Some(Value::Null) => {}
        Some(list) => {
            let text = |one: &Value| Some(one.get("match")?.as_str()?.to_owned());
            let all = list
                .as_array()
                .map(|all| all.iter().map(text).collect::<Option<Vec<_>>>());
            match all.flatten() {
                Some(all) => rule.clients = all,
                None => {
                    let kind = "a list of objects with \"match\"";
                    return Err(Refusal::value("clients", &list.to_string(), kind));
                }
            }
        }
    }
    for (name, to) in [
        ("protocols", &mut rule.protocols),
        ("ro_rule", &mut rule.ro),
        ("rw_rule", &mut rule.rw),
        ("superuser", &mut rule.superuser),
    ] {
        if let Some(list) = fields.list(name)? {
            *to = list;
        }
    }
    match fields.take("anonymous_user") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => rule.anonymous = text,
        Some(other) => rule.anonymous = other.to_string(),
    }
    fields.fixed(RULE_FIXED)?;
    for (name, empty) in [
        ("clients", rule.clients.is_empty()),
        ("ro_rule", rule.ro.is_empty()),
        ("rw_rule", rule.rw.is_empty()),
    ] {
        if empty {
            return Err(Refusal::required(name));
        }
    }
    Ok(rule)
}

/// Returns `rules` of a policy's body, numbered from 1 unless they say otherwise.
fn read_rules(fields: &mut Fields) -> Answered<Option<Vec<ExportRule>>> {
    let list = match fields.take("rules") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(Refusal::value(
                "rules",
                &other.to_string(),
                "a list of rules",
            ));
        }
    };
    let mut out: Vec<ExportRule> = Vec::new();
    for (body, place) in list.iter().zip(1..) {
        let mut fields = Fields::read(body)?;
        let index = index(&mut fields)?.unwrap_or(place);
        out.push(read_rule(&mut fields, None, index)?);
        fields.done_of(RULES)?;
    }
    out.sort_by_key(|r| r.index);
    Ok(Some(out))
}

fn index(fields: &mut Fields) -> Answered<Option<u32>> {
    match fields.number("index")? {
        None => Ok(None),
        Some(n) => match u32::try_from(n).ok().filter(|n| *n > 0) {
            Some(n) => Ok(Some(n)),
            None => Err(Refusal::value("index", &n.to_string(), "1 and more")),
        },
    }
}

/// Handles requests to `protocols/nfs/export-policies`.
pub fn list_or_change(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    const KIND: NamedKind = NamedKind::Export;
    match (verb, path) {
        // Ansible writes a slash behind the collection.
        (Verb::Get, [] | [""]) => {
            let listing = Listing::parse(&a.call.query, EXPORTS)?;
            let records = all(a, KIND).iter().map(export).collect();
            Ok(listing.reply(
                &a.here(),
                &["id", "name"],
                &["svm.name", "name", "id"],
                records,
            ))
        }
        (Verb::Get, [id]) => {
            let listing = Listing::parse(&a.call.query, EXPORTS)?;
            Ok(listing.one(&["id", "name"], export(&find(a, KIND, id)?)))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let (key, comment) = (key(a, &mut fields, KIND)?, String::new());
            let body = PolicyBody::Export(read_rules(&mut fields)?.unwrap_or_default());
            fields.done_of(EXPORTS)?;
            submit(a, key.clone(), PolicyChange::Create { comment, body })?;
            made(a, &key, |p| (export_link(p), export(p)))
        }
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            let policy = find(a, KIND, id)?;
            let mut fields = Fields::read(&a.call.body)?;
            let to = fields.text("name")?;
            let rules = read_rules(&mut fields)?;
            fields.done_of(EXPORTS)?;
            edit(a, KIND, id, None, |_| {
                Ok(rules.clone().map(PolicyBody::Export))
            })?;
            rename(a, &policy, to)?;
            a.done(None)
        }
        (Verb::Delete, [id]) => delete(a, KIND, id),
        (_, [id, "rules", rest @ ..]) => export_rules(a, verb, id, rest),
        _ => Err(Refusal::no_api()),
    }
}

fn export_rules(a: &Asked<'_>, verb: Verb, id: &str, path: &[&str]) -> Answered<Reply> {
    const KIND: NamedKind = NamedKind::Export;
    let at = match path {
        [] => None,
        [text] => Some(text.parse::<u32>().map_err(|_| Refusal::no_entry())?),
        _ => return Err(Refusal::no_api()),
    };
    let policy = find(a, KIND, id)?;
    let found = |of: &StoragePolicy, index: u32| {
        let found = rules_of(of).iter().find(|r| r.index == index).cloned();
        found.ok_or_else(Refusal::no_entry)
    };
    match (verb, at) {
        (Verb::Get, None) => {
            let listing = Listing::parse(&a.call.query, RULES)?;
            let records = rules_of(&policy)
                .iter()
                .map(|r| rule(Some(&policy), r))
                .collect();
            Ok(listing.reply(&a.here(), &["index"], &["index"], records))
        }
        (Verb::Get, Some(at)) => {
            let listing = Listing::parse(&a.call.query, RULES)?;
            Ok(listing.one(&["index"], rule(Some(&policy), &found(&policy, at)?)))
        }
        (Verb::Post, None) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let asked = index(&mut fields)?;
            let new = read_rule(&mut fields, None, 0)?;
            fields.done_of(RULES)?;
            let place = |of: &StoragePolicy| {
                let last = rules_of(of).last().map_or(0, |r| r.index);
                asked.unwrap_or(last.saturating_add(1))
            };
            edit(a, KIND, id, None, |policy| {
                Ok(Some(PolicyBody::Export(inserted(
                    rules_of(policy),
                    &new,
                    place(policy),
                ))))
            })?;
            let index = place(&policy);
            let after = find(a, KIND, id)?;
            let made = ExportRule { index, ..new };
            let link = format!("{}/rules/{index}", export_link(&after));
            a.done(Some((link, rule(Some(&after), &made))))
        }
        (Verb::Patch, Some(at)) => {
            a.only(&["new_index"])?;
            let mut fields = Fields::read(&a.call.body)?;
            let named = index(&mut fields)?;
            let to = match a.parameter("new_index") {
                None => named,
                Some(text) => match text.parse().ok().filter(|n| *n > 0) {
                    Some(n) => Some(n),
                    None => return Err(Refusal::value("new_index", text, "1 and more")),
                },
            };
            // Read once: the fields are taken out of the body.
            let changed = read_rule(&mut fields, Some(&found(&policy, at)?), at)?;
            fields.done_of(RULES)?;
            edit(a, KIND, id, None, |policy| {
                found(policy, at)?;
                let others: Vec<ExportRule> = rules_of(policy)
                    .iter()
                    .filter(|r| r.index != at)
                    .cloned()
                    .collect();
                Ok(Some(PolicyBody::Export(inserted(
                    &others,
                    &changed,
                    to.unwrap_or(at),
                ))))
            })?;
            a.done(None)
        }
        (Verb::Delete, Some(at)) => {
            a.only(&[])?;
            edit(a, KIND, id, None, |policy| {
                found(policy, at)?;
                let left = rules_of(policy).iter().filter(|r| r.index != at).cloned();
                Ok(Some(PolicyBody::Export(left.collect())))
            })?;
            a.done(None)
        }
        _ => Err(Refusal::no_api()),
    }
}

/// Returns the rules with one more at `index`; those that are there move on by one, as far as they
/// are in each other's way.
fn inserted(rules: &[ExportRule], new: &ExportRule, index: u32) -> Vec<ExportRule> {
    let mut out: Vec<ExportRule> = rules.iter().filter(|r| r.index < index).cloned().collect();
    let mut next = ExportRule {
        index,
        ..new.clone()
    };
    for rule in rules.iter().filter(|r| r.index >= index) {
        let free = next.index.saturating_add(1);
        out.push(next);
        next = ExportRule {
            index: rule.index.max(free),
            ..rule.clone()
        };
    }
    out.push(next);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(index: u32, client: &str) -> ExportRule {
        let any = vec!["any".to_owned()];
        ExportRule {
            index,
            clients: vec![client.to_owned()],
            protocols: any.clone(),
            ro: any.clone(),
            rw: any.clone(),
            superuser: any,
            anonymous: "65534".to_owned(),
        }
    }

    #[test]
    fn a_rule_takes_its_place_and_moves_those_behind_it() {
        let rules = [rule(1, "a"), rule(2, "b"), rule(5, "c")];
        for (index, wanted) in [
            (1, "1x 2a 3b 5c"),
            (2, "1a 2x 3b 5c"),
            (3, "1a 2b 3x 5c"),
            (5, "1a 2b 5x 6c"),
            (9, "1a 2b 5c 9x"),
        ] {
            let all = inserted(&rules, &rule(0, "x"), index);
            let all: Vec<String> = all
                .iter()
                .map(|r| format!("{}{}", r.index, r.clients[0]))
                .collect();
            assert_eq!(all.join(" "), wanted, "at {index}");
        }
    }
}
