//! `protocols/nfs/export-policies`, and their rules.

use serde_json::Value;
use weir_ontap::fields::Way;
use weir_ontap::fields::export::{Draft, RULES, Rule, RuleDraft, TABLE, inserted, rules};
use weir_ontap::storage::{ExportRule, NamedKind, PolicyBody, PolicyChange, StoragePolicy};

use super::body::Fields;
use super::policy_common::{delete, edit, find, key, list_policies, made, rename, submit};
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};
use crate::route::Verb;

/// Reads a rule; what the body does not say is as `before`, or as in ONTAP. Returns the index that
/// it says as well.
fn read_rule(
    a: &CallContext<'_>,
    fields: &mut Fields,
    before: Option<&ExportRule>,
) -> HandlerResult<(ExportRule, Option<u32>)> {
    let mut draft = RuleDraft::default();
    resource::read(a, &RULES, fields, Way::Modify, &mut draft, None)?;
    let index = match draft.index {
        None => None,
        Some(n) => match u32::try_from(n).ok().filter(|n| *n > 0) {
            Some(n) => Some(n),
            None => return Err(Refusal::rule_index("index", &n.to_string())),
        },
    };
    let rule = draft.rule(before, "any");
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
fn read_rules(a: &CallContext<'_>, fields: &mut Fields) -> HandlerResult<Option<Vec<ExportRule>>> {
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
pub fn list_or_change(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    const KIND: NamedKind = NamedKind::Export;
    let read = |way| -> HandlerResult<(Draft, Option<Vec<ExportRule>>)> {
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
            resource::get(a, &TABLE, one, |_| list_policies(a, KIND))
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

fn export_rules(a: &CallContext<'_>, verb: Verb, id: &str, path: &[&str]) -> HandlerResult<Reply> {
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
        (Verb::Post, None) => create_rule(a, id, &policy),
        (Verb::Patch, Some(at)) => {
            a.only(&["new_index"])?;
            let mut fields = Fields::read(&a.call.body)?;
            // Read once: the fields are taken out of the body.
            let (changed, named) = read_rule(a, &mut fields, Some(&found(&policy, at)?))?;
            let to = match a.parameter("new_index") {
                None => named,
                Some(text) => match text.parse().ok().filter(|n| *n > 0) {
                    Some(n) => Some(n),
                    None => return Err(Refusal::rule_index("new_index", text)),
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

/// Handles POST of a rule of a policy.
fn create_rule(a: &CallContext<'_>, id: &str, policy: &StoragePolicy) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let (new, asked) = read_rule(a, &mut fields, None)?;
    let place = |of: &StoragePolicy| {
        let last = rules(of).last().map_or(0, |r| r.index);
        asked.unwrap_or(last.saturating_add(1))
    };
    let same = |rule: &ExportRule| {
        let index = rule.index;
        let new = ExportRule {
            index,
            ..new.clone()
        };
        *rule == new && asked.is_none_or(|asked| asked == index)
    };
    if rules(policy).iter().any(same) {
        return Err(Refusal::rule_exists());
    }
    edit(a, NamedKind::Export, id, None, |policy| {
        Ok(Some(PolicyBody::Export(inserted(
            rules(policy),
            &new,
            place(policy),
        ))))
    })?;
    let index = place(policy);
    let after = find(a, NamedKind::Export, id)?;
    let made = ExportRule { index, ..new };
    resource::made(a, &RULES, Some(row(&after, &made)))
}
