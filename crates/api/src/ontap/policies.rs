//! `snapmirror/policies`.
//!
//! ONTAP's REST knows one type, `async`, and distinguishes the three kinds by what they copy. These
//! are the newest state alone or with all snapshots (async-mirror), and snapshots by their labels
//! without (vault) or with the newest state (mirror-vault).

use serde_json::{Map, Value, json};
use weir_ontap::commands::policy::KEEP;
use weir_relations::manager::Verb;
use weir_relations::model::{ALL, Policy, PolicyKind, Rule};

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself};
use weir_ontap::value::identity as uuid;

const KNOWN: &[&str] = &[
    "uuid",
    "name",
    "type",
    "scope",
    "svm.name",
    "svm.uuid",
    "comment",
    "throttle",
    "retention.label",
    "retention.count",
    "retention.prefix",
    "retention.creation_schedule.name",
    "retention.creation_schedule.uuid",
    "retention.preserve",
    "retention.warn",
    "network_compression_enabled",
    "copy_all_source_snapshots",
    "copy_latest_source_snapshot",
    "create_snapshot_on_source",
    "identity_preservation",
    "sync_type",
    "transfer_schedule.name",
    "rpo",
];

fn link(policy: &str) -> String {
    format!("/api/snapmirror/policies/{}", uuid("policy", policy))
}

fn record(p: &Policy) -> Value {
    let has = |label: &str| p.rules.iter().any(|rule| rule.label == label);
    let by_label = p.rules.iter().filter(|rule| rule.is_by_label());
    let retention: Vec<Value> = by_label
        .map(|rule| {
            let (count, preserve) = (rule.keep.to_string(), rule.preserve);
            let mut out =
                json!({"label": rule.label, "count": count, "preserve": preserve, "warn": 0});
            if let (Some(name), Some(out)) = (&rule.schedule, out.as_object_mut()) {
                let prefix = rule.prefix.as_ref().unwrap_or(&rule.label);
                let schedule = json!({"name": name, "uuid": uuid("schedule", name)});
                out.insert("creation_schedule".to_owned(), schedule);
                out.insert("prefix".to_owned(), json!(prefix));
            }
            out
        })
        .collect();
    let mut out = Map::new();
    for (name, value) in [
        ("_links", itself(&link(&p.name))),
        ("uuid", json!(uuid("policy", &p.name))),
        ("name", json!(p.name)),
        (
            "type",
            json!(if p.kind.is_synchronous() {
                "sync"
            } else {
                "async"
            }),
        ),
        ("scope", json!("cluster")),
        ("comment", json!(p.comment)),
        ("throttle", json!(0)),
        ("network_compression_enabled", json!(p.compression)),
    ] {
        out.insert(name.to_owned(), value);
    }
    if !retention.is_empty() {
        out.insert("retention".to_owned(), Value::Array(retention));
    }
    match p.kind {
        PolicyKind::AsyncMirror if has(ALL) => {
            out.insert("copy_all_source_snapshots".to_owned(), json!(true));
        }
        PolicyKind::AsyncMirror => {
            out.insert("copy_latest_source_snapshot".to_owned(), json!(true));
        }
        PolicyKind::Vault => {
            out.insert("create_snapshot_on_source".to_owned(), json!(false));
        }
        PolicyKind::MirrorVault => {
            out.insert("create_snapshot_on_source".to_owned(), json!(true));
        }
        PolicyKind::SyncMirror => {
            out.insert("sync_type".to_owned(), json!("sync"));
        }
        PolicyKind::StrictSyncMirror => {
            out.insert("sync_type".to_owned(), json!("strict_sync"));
        }
    }
    Value::Object(out)
}

/// Returns the policy that a body names, by `policy`, `policy.name` or `policy.uuid`.
pub fn named(a: &Asked<'_>, fields: &mut Fields) -> Answered<Option<String>> {
    let (whole, name) = (fields.text("policy")?, fields.text("policy.name")?);
    let (name, id) = (name.or(whole), fields.text("policy.uuid")?);
    fields.ignore(&["policy.type"]);
    if name.is_none() && id.is_none() {
        return Ok(None);
    }
    let all = a.cluster.policies();
    let found = all.into_iter().find(|p| {
        name.as_ref().is_none_or(|name| p.name == *name)
            && id.as_ref().is_none_or(|id| uuid("policy", &p.name) == *id)
    });
    match found {
        Some(found) => Ok(Some(found.name)),
        None => {
            let asked = name.or(id).unwrap_or_default();
            Err(Refusal::value("policy.name", &asked, "no such policy"))
        }
    }
}

fn find(a: &Asked<'_>, id: &str) -> Answered<Policy> {
    let all = a.cluster.policies();
    let found = all.into_iter().find(|p| uuid("policy", &p.name) == id);
    found.ok_or_else(Refusal::no_entry)
}

/// Handles GET of policies; with `id`, of one.
pub fn list(a: &Asked<'_>, id: Option<&str>) -> Answered<Reply> {
    let mut listing = Listing::parse(&a.call.query, KNOWN)?;
    if let Some(id) = id {
        return Ok(listing.one(&["uuid", "name"], record(&find(a, id)?)));
    }
    // Policies of the user belong to all machines here, so a query for one machine's policies finds
    // them too.
    let (scope, svm) = (listing.take("scope"), listing.take("svm.name"));
    let own = scope.as_deref() == Some("svm") || svm.is_some();
    let all = a.cluster.policies();
    let shown = all.iter().filter(|p| !own || !p.system).map(|p| {
        let mut record = record(p);
        if let (true, Some(record)) = (own, record.as_object_mut()) {
            let name = svm.clone().unwrap_or_else(|| a.cluster.name());
            let id = uuid("svm", &name);
            record.insert("scope".to_owned(), json!("svm"));
            record.insert("svm".to_owned(), json!({"name": name, "uuid": id}));
        }
        record
    });
    Ok(listing.reply(
        &a.here(),
        &["uuid", "name"],
        &["name", "uuid"],
        shown.collect(),
    ))
}

/// Returns the schedule that a rule names, by name or UUID.
fn schedule(a: &Asked<'_>, rule: &mut Fields) -> Answered<Option<String>> {
    let mut text = |name: &str| -> Answered<Option<String>> {
        let given = rule.text(&format!("creation_schedule.{name}"))?;
        Ok(given.filter(|text| !text.is_empty() && text != "-"))
    };
    let (name, id) = (text("name")?, text("uuid")?);
    rule.ignore(&["creation_schedule"]);
    let Some(id) = id else { return Ok(name) };
    let all = a.cluster.schedules();
    let fits =
        |known: &str| uuid("schedule", known) == id && name.as_deref().is_none_or(|n| n == known);
    match all.into_iter().find(|s| fits(&s.name)) {
        Some(found) => Ok(Some(found.name)),
        None => Err(Refusal::value(
            "retention.creation_schedule.uuid",
            &id,
            "no such schedule",
        )),
    }
}

/// Returns `retention`: labels with how many to keep.
fn retention(a: &Asked<'_>, fields: &mut Fields) -> Answered<Option<Vec<Rule>>> {
    let list = match fields.take("retention") {
        None => return Ok(None),
        Some(Value::Null) => return Ok(Some(Vec::new())),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(Refusal::value(
                "retention",
                &other.to_string(),
                "a list of rules",
            ));
        }
    };
    let mut out: Vec<Rule> = Vec::new();
    for rule in &list {
        let mut rule = Fields::read(rule)?;
        let label = rule.text("label")?;
        let label = label.ok_or_else(|| Refusal::required("retention.label"))?;
        let count = rule.number("count")?;
        let count = count.ok_or_else(|| Refusal::required("retention.count"))?;
        let keep = u32::try_from(count).ok().filter(|keep| KEEP.contains(keep));
        let keep =
            keep.ok_or_else(|| Refusal::value("retention.count", &count.to_string(), "1 to 1019"))?;
        let schedule = schedule(a, &mut rule)?;
        let prefix = rule.text("prefix")?;
        let preserve = rule.flag("preserve")?.unwrap_or(false);
        rule.ignore(&["warn", "period"]);
        rule.done()?;
        if out.iter().any(|there| there.label == label) {
            return Err(Refusal::value("retention.label", &label, "there twice"));
        }
        out.push(Rule {
            label,
            keep,
            preserve,
            // Without a schedule there is nothing that it would name.
            prefix: prefix.filter(|text| !text.is_empty() && schedule.is_some()),
            schedule,
        });
    }
    Ok(Some(out))
}

fn change_or(a: &Asked<'_>, change: Verb) -> Answered<()> {
    a.cluster.change(change.into()).map_err(Refusal::of)
}

/// Refuses the fields that a policy cannot have here; being off, or not being there, may be said.
fn refuse_others(fields: &mut Fields) -> Answered<()> {
    for name in [
        "transfer_schedule.name",
        "transfer_schedule.uuid",
        "sync_type",
        "rpo",
    ] {
        if fields.text(name)?.is_some_and(|text| !text.is_empty()) {
            return Err(Refusal::not_here(
                name,
                "relationships have it, policies do not",
            ));
        }
    }
    if fields.throttle("throttle")?.flatten().is_some() {
        return Err(Refusal::not_here(
            "throttle",
            "relationships have it, policies do not",
        ));
    }
    fields.ignore(&["identity_preservation", "transfer_schedule"]);
    Ok(())
}

/// Handles POST of a policy, of type `async`.
pub fn create(a: &Asked<'_>) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let name = fields
        .text("name")?
        .ok_or_else(|| Refusal::required("name"))?;
    fields.ignore(&["svm.name", "svm.uuid", "svm", "owner", "scope"]);
    match fields.text("type")?.as_deref() {
        None | Some("async") => {}
        Some(other) => return Err(Refusal::value("type", other, "async")),
    }
    let all = fields.flag("copy_all_source_snapshots")?.unwrap_or(false);
    let latest = fields.flag("copy_latest_source_snapshot")?.unwrap_or(false);
    let own = fields.flag("create_snapshot_on_source")?.unwrap_or(true);
    let comment = fields.text("comment")?.unwrap_or_default();
    let compression = fields.flag("network_compression_enabled")?.unwrap_or(false);
    let retention = retention(a, &mut fields)?.unwrap_or_default();
    refuse_others(&mut fields)?;
    fields.done()?;
    if (all || latest) && !retention.is_empty() {
        let why = "copies of all snapshots, or of the newest state alone, take no labels";
        return Err(Refusal::not_here("retention", why));
    }
    let kind = match (all || latest, own) {
        (true, _) => PolicyKind::AsyncMirror,
        (false, true) => PolicyKind::MirrorVault,
        (false, false) => PolicyKind::Vault,
    };
    let everything = all.then(|| Rule::new(ALL, 1));
    let create = Verb::PolicyCreate {
        name: name.clone(),
        kind,
        comment,
        compression,
        rules: everything.into_iter().chain(retention).collect(),
    };
    change_or(a, create)?;
    let made = find(a, &uuid("policy", &name))?;
    a.done(Some((link(&name), record(&made))))
}

/// Handles PATCH: `retention` replaces the whole list of rules.
pub fn change(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let p = find(a, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let comment = fields.text("comment")?;
    let compression = fields.flag("network_compression_enabled")?;
    let rules = retention(a, &mut fields)?;
    refuse_others(&mut fields)?;
    fields.done()?;
    if comment.is_some() || compression.is_some() || rules.is_some() {
        let change = Verb::PolicyModify {
            name: p.name,
            comment,
            compression,
            rules,
        };
        change_or(a, change)?;
    }
    a.done(None)
}

/// Handles DELETE of a policy.
pub fn delete(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let p = find(a, id)?;
    change_or(a, Verb::PolicyDelete(p.name))?;
    a.done(None)
}
