//! `protocols/nfs/export-policies`, and their rules.

use serde_json::Value;
use weir_ontap::fields::Way;
use weir_ontap::fields::export::{Draft, RULES, Rule, RuleDraft, TABLE, rules};
use weir_ontap::storage::{ExportRule, NamedKind, PolicyBody, PolicyChange, StoragePolicy};

use super::body::Fields;
use super::named::{all, delete, edit, find, key, made, rename, submit};
use super::refusal::{Answered, Refusal};
use super::resource;
use super::surface::{Asked, Reply};
use crate::route::Verb;

/// Reads a rule; what the body does not say is as `before`, or as in ONTAP. Returns the index that
/// it says as well.
fn read_rule(
    a: &Asked<'_>,
    fields: &mut Fields,
    before: Option<&ExportRule>,
) -> Answered<(ExportRule, Option<u32>)> {
    let mut draft = RuleDraft::default();
    resource::read(a, &RULES, fields, Way::Modify, &mut draft, None)?;
    let index = match draft.index {
        None => None,
        Some(n) => match u32::try_from(n).ok().filter(|n| *n > 0) {
            Some(n) => Some(n),
            None => return Err(Refusal::value("index", &n.to_string(), "1 and more")),
        },
    };
    let any = || vec!["any".to_owned()];
    let mut rule = before.cloned().unwrap_or_else(|| ExportRule {
        index: 0,
        clients: Vec::new(),
        protocols: any(),
        ro: Vec::new(),
        rw: Vec::new(),
        superuser: any(),
        anonymous: "65534".to_owned(),
    });
    for (given, to) in [
        (draft.clients, &mut rule.clients),
        (draft.protocols, &mut rule.protocols),
        (draft.ro, &mut rule.ro),
        (draft.rw, &mut rule.rw),
        (draft.superuser, &mut rule.superuser),
    ] {
        if let Some(list) = given {
            *to = list;
        }
    }
    rule.anonymous = draft.anonymous.unwrap_or(rule.anonymous);
    for (name, empty) in [
        ("clients", rule.clients.is_empty()),
        ("ro_rule", rule.ro.is_empty()),
        ("rw_rule", rule.rw.is_empty()),
    ] {
        if empty {
            return Err(Refusal::required(name));
        }
    }
    Ok((rule, index))
}

/// Returns `rules` of a policy's body, numbered from 1 unless they say otherwise.
fn read_rules(a: &Asked<'_>, fields: &mut Fields) -> Answered<Option<Vec<ExportRule>>> {
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
        let (rule, index) = read_rule(a, &mut fields, None)?;
        let index = index.unwrap_or(place);
        out.push(ExportRule { index, ..rule });
    }
    out.sort_by_key(|r| r.index);
    Ok(Some(out))
}

/// Handles requests to `protocols/nfs/export-policies`.
pub fn list_or_change(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    const KIND: NamedKind = NamedKind::Export;
    let read = |way| -> Answered<(Draft, Option<Vec<ExportRule>>)> {
        let mut draft = Draft::default();
        let mut fields = Fields::read(&a.call.body)?;
        let rules = read_rules(a, &mut fields)?;
        resource::read(a, &TABLE, &mut fields, way, &mut draft, None)?;
        Ok((draft, rules))
    };
    match (verb, path) {
        // Ansible writes a slash behind the collection.
        (Verb::Get, [] | [_]) => {
            let one = !matches!(path, [] | [""]);
            resource::get(a, &TABLE, one, |_| all(a, KIND))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let (draft, rules) = read(Way::Create)?;
            let key = key(KIND, draft.name, draft.svm)?;
            let body = PolicyBody::Export(rules.unwrap_or_default());
            let comment = String::new();
            submit(a, key.clone(), PolicyChange::Create { comment, body })?;
            resource::made(a, &TABLE, made(a, &key))
        }
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            let policy = find(a, KIND, id)?;
            let (draft, rules) = read(Way::Modify)?;
            edit(a, KIND, id, None, |_| {
                Ok(rules.clone().map(PolicyBody::Export))
            })?;
            rename(a, &policy, draft.name)?;
            a.done(None)
        }
        (Verb::Delete, [id]) => delete(a, KIND, id),
        (_, [id, "rules", rest @ ..]) => export_rules(a, verb, id, rest),
        _ => Err(Refusal::no_api()),
    }
}

fn row(policy: &StoragePolicy, rule: &ExportRule) -> Rule {
    Rule {
        policy: Some(policy.clone()),
        rule: rule.clone(),
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
        let found = rules(of).iter().find(|r| r.index == index).cloned();
        found.ok_or_else(Refusal::no_entry)
    };
    match (verb, at) {
        (Verb::Get, _) => {
            let rows = |_| {
                rules(&policy)
                    .iter()
                    .map(|rule| row(&policy, rule))
                    .collect()
            };
            resource::get(a, &RULES, at.is_some(), rows)
        }
        (Verb::Post, None) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let (new, asked) = read_rule(a, &mut fields, None)?;
            let place = |of: &StoragePolicy| {
                let last = rules(of).last().map_or(0, |r| r.index);
                asked.unwrap_or(last.saturating_add(1))
            };
            edit(a, KIND, id, None, |policy| {
                Ok(Some(PolicyBody::Export(inserted(
                    rules(policy),
                    &new,
                    place(policy),
                ))))
            })?;
            let index = place(&policy);
            let after = find(a, KIND, id)?;
            let made = ExportRule { index, ..new };
            resource::made(a, &RULES, Some(row(&after, &made)))
        }
        (Verb::Patch, Some(at)) => {
            a.only(&["new_index"])?;
            let mut fields = Fields::read(&a.call.body)?;
            // Read once: the fields are taken out of the body.
            let (changed, named) = read_rule(a, &mut fields, Some(&found(&policy, at)?))?;
            let to = match a.parameter("new_index") {
                None => named,
                Some(text) => match text.parse().ok().filter(|n| *n > 0) {
                    Some(n) => Some(n),
                    None => return Err(Refusal::value("new_index", text, "1 and more")),
                },
            };
            edit(a, KIND, id, None, |policy| {
                found(policy, at)?;
                let others: Vec<ExportRule> = rules(policy)
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
                let left = rules(policy).iter().filter(|r| r.index != at).cloned();
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
