//! `storage/qtrees` and `storage/quota`. Every volume is a qtree itself, number 0 without a name;
//! the others are folders in its root directory. Quotas are those of users and groups, by their
//! numbers, and of qtrees. A rule holds as soon as it is made, unless the quotas of its volume are
//! off (`quota.enabled` of the volume).

use serde_json::Value;
use weir_ontap::cluster::{Change, Volume};
use weir_ontap::fields::qtree::{self, TABLE};
use weir_ontap::fields::{Way, quota};
use weir_ontap::storage::{QuotaLimits, QuotaRule, QuotaTarget};
use weir_relations::model::Path;

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};
use super::svms::svm_of;
use crate::route::Verb;

/// Returns the qtree whose path the request has.
fn find(a: &CallContext<'_>) -> HandlerResult<qtree::Row> {
    resource::found(a, &TABLE, qtree::rows(a.cluster))
}

/// Handles requests to `storage/qtrees`.
pub fn qtrees(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    match (verb, path) {
        (Verb::Get, [] | [_, _]) => {
            let one = !path.is_empty();
            resource::get(a, &TABLE, one, |_| qtree::rows(a.cluster))
        }
        (Verb::Post, []) => create_qtree(a),
        (Verb::Patch, [_, _]) => modify_qtree(a, &find(a)?),
        (Verb::Delete, [_, "0"]) => {
            find(a)?;
            Err(Refusal::default_qtree())
        }
        (Verb::Delete, [_, _]) => {
            a.only(&[])?;
            let qtree = find(a)?.qtree;
            let (volume, name) = (qtree.volume, qtree.name);
            change_quota(a, Change::QtreeDelete { volume, name })?;
            a.done(None)
        }
        _ => Err(Refusal::no_api()),
    }
}

fn create_qtree(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let volume = volume_of(a, &mut fields)?;
    let mut draft = qtree::Draft::default();
    let like = qtree::own(&volume);
    resource::read(a, &TABLE, &mut fields, Way::Create, &mut draft, Some(&like))?;
    let name = draft.name.ok_or_else(|| Refusal::required("name"))?;
    let change = Change::QtreeCreate {
        volume: volume.path.clone(),
        name: name.clone(),
        permissions: draft.permissions,
        export_policy: draft.export_policy,
    };
    change_quota(a, change)?;
    let mut all = a.cluster.qtrees(Some(&volume.path)).into_iter();
    let made = all.find(|q| q.name == name);
    let made = made.map(|qtree| qtree::Row { qtree, volume });
    resource::made(a, &TABLE, made)
}

fn modify_qtree(a: &CallContext<'_>, row: &qtree::Row) -> HandlerResult<Reply> {
    a.only(&[])?;
    let of = &row.qtree;
    let mut draft = qtree::Draft::default();
    let mut fields = Fields::read(&a.call.body)?;
    resource::read(a, &TABLE, &mut fields, Way::Modify, &mut draft, Some(row))?;
    let to = draft.name.filter(|to| *to != of.name);
    let permissions = draft.permissions.filter(|mode| *mode != of.permissions);
    let export_policy = draft
        .export_policy
        .filter(|policy| policy != of.export_policy.as_deref().unwrap_or(""));
    if of.number == 0 {
        let why = "the volume's own fields change it";
        let other = export_policy.filter(|policy| policy != row.export_policy());
        return match (to, permissions, other) {
            (None, None, None) => a.done(None),
            (Some(_), ..) => Err(Refusal::not_here("name", why)),
            (None, Some(_), _) => Err(Refusal::not_here("unix_permissions", why)),
            (None, None, Some(_)) => Err(Refusal::not_here("export_policy.name", why)),
        };
    }
    if to.is_some() || permissions.is_some() || export_policy.is_some() {
        let change = Change::QtreeModify {
            volume: of.volume.clone(),
            name: of.name.clone(),
            to,
            permissions,
            export_policy,
        };
        change_quota(a, change)?;
    }
    a.done(None)
}

/// Handles requests to `storage/quota/rules` and `storage/quota/reports`.
pub fn quotas(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    match (verb, path) {
        (Verb::Get, ["rules"] | ["rules", _]) => {
            let one = path.len() > 1;
            resource::get(a, &quota::TABLE, one, |_| quota::rows(a.cluster))
        }
        (Verb::Get, ["reports"]) => reports(a),
        (Verb::Post, ["rules"]) => create(a),
        (Verb::Patch, ["rules", _]) => modify(a),
        (Verb::Delete, ["rules", _]) => {
            a.only(&[])?;
            let QuotaRule { volume, target, .. } = find_rule(a)?;
            change_quota(a, Change::QuotaRemove { volume, target })?;
            a.done(None)
        }
        (_, ["rules" | "reports", ..]) => Err(Refusal::no_entry()),
        _ => Err(Refusal::no_api()),
    }
}

/// Handles GET of the report. Default rules are in it only if they are asked for.
fn reports(a: &CallContext<'_>) -> HandlerResult<Reply> {
    const DEFAULTS: &str = "show_default_records";
    let defaults = a.flag(DEFAULTS)?;
    let mut query = a.call.query.clone();
    query.retain(|(name, _)| name != DEFAULTS);
    let listing = resource::listing(&query, &quota::REPORTS)?;
    let mut lines = quota::lines(a.cluster);
    lines.retain(|line| defaults || !line.of.rule.target.is_default());
    Ok(resource::list(a, &listing, &quota::REPORTS, &lines))
}

fn find_rule(a: &CallContext<'_>) -> HandlerResult<QuotaRule> {
    Ok(resource::found(a, &quota::TABLE, quota::rows(a.cluster))?.rule)
}

fn change_quota(a: &CallContext<'_>, change: Change) -> HandlerResult<()> {
    a.cluster.change(change).map_err(Refusal::of_qtree)
}

/// Returns the volume that a body names.
fn volume_of(a: &CallContext<'_>, fields: &mut Fields) -> HandlerResult<Volume> {
    let svm = svm_of(a, fields)?;
    let (name, id) = (fields.text("volume.name")?, fields.text("volume.uuid")?);
    let mut all = a.cluster.volumes().into_iter();
    let found = all.find(|v| {
        v.path.vserver == svm
            && name.as_ref().is_none_or(|name| v.path.volume == *name)
            && id.as_ref().is_none_or(|id| v.uuid == *id)
    });
    match (found, name.or(id)) {
        (Some(found), Some(_)) => Ok(found),
        (None, Some(asked)) => Err(Refusal::no_volume(&asked)),
        (_, None) => Err(Refusal::no_volume("")),
    }
}

/// Returns the name that a field has, or its id; empty if neither is there.
fn take_name_or_id(fields: &mut Fields, of: &str) -> HandlerResult<String> {
    let (name, id) = (format!("{of}.name"), format!("{of}.id"));
    let (name, id) = (fields.text(&name)?, fields.text(&id)?);
    Ok(name.or(id).unwrap_or_default())
}

/// Returns the users that a body names, as one text.
fn users(fields: &mut Fields) -> HandlerResult<String> {
    let Some(list) = fields.take("users") else {
        let names = fields.list("users.name")?.unwrap_or_default();
        return Ok(names.join(","));
    };
    let Value::Array(list) = list else {
        return Err(Refusal::value(
            "users",
            &list.to_string(),
            "a list of users",
        ));
    };
    let mut names = Vec::with_capacity(list.len());
    for user in &list {
        let mut user = Fields::read(user)?;
        let (name, id) = (user.text("name")?, user.text("id")?);
        names.push(name.or(id).unwrap_or_default());
    }
    Ok(names.join(","))
}

/// Returns the target of a rule for qtrees of a volume.
fn tree(a: &CallContext<'_>, volume: &Path, name: &str) -> HandlerResult<QuotaTarget> {
    if matches!(name, "" | "*") {
        return Ok(QuotaTarget::DefaultTree);
    }
    let mut all = a.cluster.qtrees(Some(volume)).into_iter();
    let found = all.find(|q| q.name == name || q.number.to_string() == name);
    let found = found.ok_or_else(|| Refusal::value("qtree.name", name, "no such qtree"))?;
    Ok(QuotaTarget::Tree(found.number))
}

fn target(a: &CallContext<'_>, volume: &Path, fields: &mut Fields) -> HandlerResult<QuotaTarget> {
    let kind = fields
        .text("type")?
        .ok_or_else(|| Refusal::required("type"))?;
    let (users, group) = (users(fields)?, take_name_or_id(fields, "group")?);
    let qtree = take_name_or_id(fields, "qtree")?;
    if kind != "tree" && !matches!(qtree.as_str(), "" | "0") {
        let why = "users and groups are limited in the whole volume";
        return Err(Refusal::not_here("qtree.name", why));
    }
    let number = |field: &str, name: &str| match name {
        "root" => Ok(0),
        name => name.parse::<u32>().map_err(|_| {
            Refusal::value(
                field,
                name,
                "the number of one user or group: names are not looked up",
            )
        }),
    };
    let default = |name: &str| matches!(name, "" | "*");
    match kind.as_str() {
        "user" if default(&users) => Ok(QuotaTarget::DefaultUser),
        "user" => Ok(QuotaTarget::User(number("users.name", &users)?)),
        "group" if default(&group) => Ok(QuotaTarget::DefaultGroup),
        "group" => Ok(QuotaTarget::Group(number("group.name", &group)?)),
        "tree" => tree(a, volume, &qtree),
        other => Err(Refusal::value("type", other, "tree|user|group")),
    }
}

/// Returns the limits that a body sets; those that it does not name are as in `now`.
fn limits(
    a: &CallContext<'_>,
    fields: &mut Fields,
    way: Way,
    now: QuotaLimits,
) -> HandlerResult<QuotaLimits> {
    let mut draft = quota::Draft::default();
    resource::read(a, &quota::TABLE, fields, way, &mut draft, None)?;
    Ok(draft.limits(now))
}

fn create(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let volume = volume_of(a, &mut fields)?.path;
    let target = target(a, &volume, &mut fields)?;
    let limits = limits(a, &mut fields, Way::Create, QuotaLimits::default())?;
    let rule = QuotaRule {
        volume: volume.clone(),
        target,
        limits,
    };
    let new = true;
    change_quota(
        a,
        Change::QuotaSet {
            volume,
            target,
            new,
            limits,
        },
    )?;
    resource::made(a, &quota::TABLE, Some(quota::row(rule, a.cluster)))
}

fn modify(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let rule = find_rule(a)?;
    let mut fields = Fields::read(&a.call.body)?;
    let limits = limits(a, &mut fields, Way::Modify, rule.limits)?;
    let (volume, target, new) = (rule.volume, rule.target, false);
    change_quota(
        a,
        Change::QuotaSet {
            volume,
            target,
            new,
            limits,
        },
    )?;
    a.done(None)
}
