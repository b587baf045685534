//! `snapmirror/policies`.
//!
//! ONTAP's REST knows one type, `async`, and distinguishes the three kinds by what they copy. These
//! are the newest state alone or with all snapshots (async-mirror), and snapshots by their labels
//! without (vault) or with the newest state (mirror-vault).

use serde_json::Value;
use weir_ontap::commands::policy::KEEP;
use weir_ontap::fields::Way;
use weir_ontap::fields::mirror_policy::{Draft, TABLE, rows};
use weir_ontap::value::identity as uuid;
use weir_relations::manager::Verb;
use weir_relations::model::{ALL, Policy, PolicyKind, Rule};

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};

fn find(a: &CallContext<'_>, id: &str) -> HandlerResult<Policy> {
    let all = a.cluster.policies();
    let found = all.into_iter().find(|p| uuid("policy", &p.name) == id);
    found.ok_or_else(Refusal::no_entry)
}

/// Handles GET of policies, or of the one whose path it is.
pub fn list(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    let mut listing = resource::listing(&a.call.query, &TABLE)?;
    let mut all = rows(a.cluster);
    if one {
        let found = resource::found(a, &TABLE, all)?;
        return Ok(listing.one(TABLE.keys, resource::record(&TABLE, &found)));
    }
    // Policies of the user belong to all machines here, so a query for one machine's policies finds
    // them too.
    let (scope, svm) = (listing.take("scope"), listing.take("svm.name"));
    if scope.as_deref() == Some("svm") || svm.is_some() {
        all.retain(|row| !row.policy.system);
        for row in &mut all {
            row.svm = Some(svm.clone().unwrap_or_else(|| a.cluster.name()));
        }
    }
    Ok(resource::list(a, &listing, &TABLE, &all))
}

/// Returns the schedule that a rule names, by name or UUID.
fn schedule(a: &CallContext<'_>, rule: &mut Fields) -> HandlerResult<Option<String>> {
    let mut text = |name: &str| -> HandlerResult<Option<String>> {
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
fn retention(a: &CallContext<'_>, fields: &mut Fields) -> HandlerResult<Option<Vec<Rule>>> {
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

fn change_or(a: &CallContext<'_>, change: Verb) -> HandlerResult<()> {
    a.cluster
        .change(change.into())
        .map_err(Refusal::from_failure)
}

/// Returns what a body sets, and its rules.
fn draft(a: &CallContext<'_>, way: Way) -> HandlerResult<(Draft, Option<Vec<Rule>>)> {
    let mut fields = Fields::read(&a.call.body)?;
    let rules = retention(a, &mut fields)?;
    // Said in ways that mean none.
    fields.ignore(&["owner", "transfer_schedule"]);
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, way, &mut draft, None)?;
    Ok((draft, rules))
}

/// Handles POST of a policy, of type `async`.
pub fn create(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let (draft, retention) = draft(a, Way::Create)?;
    let name = draft.name.ok_or_else(|| Refusal::required("name"))?;
    let [all, latest] = draft.copies.map(|copies| copies.unwrap_or(false));
    let own = draft.own.unwrap_or(true);
    let retention = retention.unwrap_or_default();
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
        comment: draft.comment.unwrap_or_default(),
        compression: draft.compression.unwrap_or(false),
        rules: everything.into_iter().chain(retention).collect(),
    };
    change_or(a, create)?;
    let mut all = rows(a.cluster).into_iter();
    resource::made(a, &TABLE, all.find(|row| row.policy.name == name))
}

/// Handles PATCH: `retention` replaces the whole list of rules.
pub fn change(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let p = find(a, id)?;
    let (draft, rules) = draft(a, Way::Modify)?;
    let (comment, compression) = (draft.comment, draft.compression);
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
pub fn delete(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let p = find(a, id)?;
    change_or(a, Verb::PolicyDelete(p.name))?;
    a.done(None)
}
