//! `storage/qtrees` and `storage/quota`. Every volume is its own one qtree, number 0 without a
//! name; more cannot be made. Quotas are those of users and groups, by their numbers. A rule holds
//! as soon as it is made, unless the quotas of its volume are off (`quota.enabled` of the volume).

use serde_json::{Map, Value, json};
use weir_ontap::cluster::{Change, Volume};
use weir_ontap::storage::{QuotaLimits, QuotaRule, QuotaTarget, QuotaUse};
use weir_relations::model::Path;

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself};
use super::svms::{svm, svm_of};
use super::volumes::{find, permissions};
use crate::route::Verb;
use weir_ontap::value::identity as uuid;

const QTREES: &[&str] = &[
    "id",
    "name",
    "path",
    "svm.name",
    "svm.uuid",
    "volume.name",
    "volume.uuid",
    "export_policy.name",
    "export_policy.id",
    "security_style",
    "unix_permissions",
    "qos_policy.name",
    "qos_policy.uuid",
    "user.name",
    "user.id",
    "group.name",
    "group.id",
    "nas.path",
];

const WHY: &str = "a volume has one qtree here, itself: make a volume instead";

fn qtree(v: &Volume) -> Value {
    let d = &v.details;
    let mut out = json!({
        "_links": itself(&format!("/api/storage/qtrees/{}/0", v.uuid)),
        "id": 0,
        "name": "",
        "svm": svm(&v.path.vserver),
        "volume": {"name": v.path.volume, "uuid": v.uuid},
        "export_policy": {"name": d.export_policy},
        "security_style": d.security_style(),
        "unix_permissions": permissions(d.permissions),
    });
    if let (Some(junction), Some(out)) = (&v.junction, out.as_object_mut()) {
        out.insert("path".to_owned(), json!(junction));
        out.insert("nas".to_owned(), json!({"path": junction}));
    }
    out
}

/// Handles requests to `storage/qtrees`.
pub fn qtrees(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    const KEYS: &[&str] = &["id", "name", "svm", "volume"];
    match (verb, path) {
        (Verb::Get, []) => {
            let listing = Listing::parse(&a.call.query, QTREES)?;
            let records = a.cluster.volumes().iter().map(qtree).collect();
            let order = ["svm.name", "volume.name", "volume.uuid"];
            Ok(listing.reply(&a.here(), KEYS, &order, records))
        }
        (Verb::Get, [volume, "0"]) => {
            let listing = Listing::parse(&a.call.query, QTREES)?;
            Ok(listing.one(KEYS, qtree(&find(a, volume)?)))
        }
        (Verb::Post, []) => Err(Refusal::not_here("name", WHY)),
        (Verb::Patch, [volume, "0"]) => {
            a.only(&[])?;
            let record = qtree(&find(a, volume)?);
            let why = "the volume's own fields change it";
            Fields::read(&a.call.body)?.same_as(&record, QTREES, why)?;
            a.done(None)
        }
        (Verb::Delete, [volume, "0"]) => {
            find(a, volume)?;
            Err(Refusal::not_here("id", "the volume's own qtree stays"))
        }
        (_, [volume, _]) => {
            find(a, volume)?;
            Err(Refusal::no_entry())
        }
        _ => Err(Refusal::no_api()),
    }
}

const RULES: &[&str] = &[
    "uuid",
    "type",
    "svm.name",
    "svm.uuid",
    "volume.name",
    "volume.uuid",
    "qtree.name",
    "qtree.id",
    "users.name",
    "users.id",
    "group.name",
    "group.id",
    "user_mapping",
    "space.hard_limit",
    "space.soft_limit",
    "files.hard_limit",
    "files.soft_limit",
];

const REPORTS: &[&str] = &[
    "index",
    "type",
    "specifier",
    "svm.name",
    "svm.uuid",
    "volume.name",
    "volume.uuid",
    "qtree.name",
    "qtree.id",
    "users.name",
    "users.id",
    "group.name",
    "group.id",
    "space.hard_limit",
    "space.soft_limit",
    "space.used.total",
    "space.used.hard_limit_percent",
    "space.used.soft_limit_percent",
    "files.hard_limit",
    "files.soft_limit",
    "files.used.total",
    "files.used.hard_limit_percent",
    "files.used.soft_limit_percent",
    "show_default_records",
];

fn uuid_of(rule: &QuotaRule) -> String {
    let QuotaRule { volume, target, .. } = rule;
    let text = format!(
        "{}:{} {} {}",
        volume.vserver,
        volume.volume,
        target.kind(),
        target.name()
    );
    uuid("quota", &text)
}

/// Returns an object with the fields that are not 0.
fn limits(hard: u64, soft: u64) -> Map<String, Value> {
    let both = [("hard_limit", hard), ("soft_limit", soft)];
    let given = both.into_iter().filter(|(_, limit)| *limit > 0);
    given
        .map(|(name, limit)| (name.to_owned(), json!(limit)))
        .collect()
}

/// Returns what a rule and a report have in common; `volumes` are those of the cluster.
fn shared(rule: &QuotaRule, volumes: &[Volume]) -> Map<String, Value> {
    let path = &rule.volume;
    let id = volumes.iter().find(|v| v.path == *path).map(|v| &v.uuid);
    let mut out = Map::new();
    for (name, value) in [
        ("svm", svm(&path.vserver)),
        ("volume", json!({"name": path.volume, "uuid": id})),
        ("type", json!(rule.target.kind())),
    ] {
        out.insert(name.to_owned(), value);
    }
    let name = rule.target.name();
    match rule.target {
        // A user by number has no name in a rule of ONTAP's.
        QuotaTarget::User(_) => out.insert("users".to_owned(), json!([{"id": name}])),
        QuotaTarget::DefaultUser => out.insert("users".to_owned(), json!([{"name": ""}])),
        QuotaTarget::Group(_) | QuotaTarget::DefaultGroup => {
            out.insert("group".to_owned(), json!({"name": name, "id": name}))
        }
    };
    let limit = &rule.limits;
    for (name, hard, soft) in [
        ("space", limit.bytes, limit.soft_bytes),
        ("files", limit.files, limit.soft_files),
    ] {
        out.insert(name.to_owned(), Value::Object(limits(hard, soft)));
    }
    out
}

fn rule_record(rule: &QuotaRule, volumes: &[Volume]) -> Value {
    let id = uuid_of(rule);
    let mut out = shared(rule, volumes);
    out.insert("_links".to_owned(), itself(&rule_link(&id)));
    out.insert("uuid".to_owned(), json!(id));
    out.insert("user_mapping".to_owned(), json!(false));
    Value::Object(out)
}

fn rule_link(id: &str) -> String {
    format!("/api/storage/quota/rules/{id}")
}

fn report_record(index: usize, held: &QuotaUse, volumes: &[Volume]) -> Value {
    let mut out = shared(&held.rule, volumes);
    out.insert("index".to_owned(), json!(index));
    out.insert("specifier".to_owned(), json!(held.rule.target.name()));
    out.insert("qtree".to_owned(), json!({"name": "", "id": 0}));
    let limit = &held.rule.limits;
    for (name, used, hard, soft) in [
        ("space", held.used_bytes, limit.bytes, limit.soft_bytes),
        ("files", held.used_files, limit.files, limit.soft_files),
    ] {
        let percent = |of: u64| (u128::from(used) * 100).checked_div(u128::from(of));
        let mut total = Map::new();
        total.insert("total".to_owned(), json!(used));
        for (name, percent) in [
            ("hard_limit_percent", percent(hard)),
            ("soft_limit_percent", percent(soft)),
        ] {
            if let Some(percent) = percent {
                total.insert(name.to_owned(), json!(percent as u64));
            }
        }
        let space = out.get_mut(name).and_then(Value::as_object_mut);
        if let Some(space) = space {
            space.insert("used".to_owned(), Value::Object(total));
        }
    }
    Value::Object(out)
}

/// Handles requests to `storage/quota/rules` and `storage/quota/reports`.
pub fn quotas(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    match (verb, path) {
        (Verb::Get, ["rules"]) => {
            let listing = Listing::parse(&a.call.query, RULES)?;
            let volumes = a.cluster.volumes();
            let rules = a.cluster.quota_rules();
            let records = rules.iter().map(|rule| rule_record(rule, &volumes));
            let order = ["svm.name", "volume.name", "type", "uuid"];
            Ok(listing.reply(&a.here(), &["uuid"], &order, records.collect()))
        }
        (Verb::Get, ["rules", id]) => {
            let listing = Listing::parse(&a.call.query, RULES)?;
            let record = rule_record(&find_rule(a, id)?, &a.cluster.volumes());
            Ok(listing.one(&["uuid"], record))
        }
        (Verb::Get, ["reports"]) => {
            let listing = Listing::parse(&a.call.query, REPORTS)?;
            let volumes = a.cluster.volumes();
            let all = a.cluster.quota_report();
            let records = all.iter().enumerate();
            let records = records.map(|(index, held)| report_record(index, held, &volumes));
            let order = ["svm.name", "volume.name", "type", "index"];
            Ok(listing.reply(&a.here(), &["index"], &order, records.collect()))
        }
        (Verb::Post, ["rules"]) => create(a),
        (Verb::Patch, ["rules", id]) => modify(a, id),
        (Verb::Delete, ["rules", id]) => {
            a.only(&[])?;
            let QuotaRule { volume, target, .. } = find_rule(a, id)?;
            change_quota(a, Change::QuotaRemove { volume, target })?;
            a.done(None)
        }
        (_, ["rules" | "reports", ..]) => Err(Refusal::no_entry()),
        _ => Err(Refusal::no_api()),
    }
}

fn find_rule(a: &Asked<'_>, id: &str) -> Answered<QuotaRule> {
    let all = a.cluster.quota_rules();
    let found = all.into_iter().find(|rule| uuid_of(rule) == id);
    found.ok_or_else(Refusal::no_entry)
}

fn change_quota(a: &Asked<'_>, change: Change) -> Answered<()> {
    a.cluster.change(change).map_err(Refusal::of)
}

/// Returns the volume that a body names.
fn volume_of(a: &Asked<'_>, fields: &mut Fields) -> Answered<Path> {
    let svm = svm_of(a, fields)?;
    let (name, id) = (fields.text("volume.name")?, fields.text("volume.uuid")?);
    let mut all = a.cluster.volumes().into_iter();
    let found = all.find(|v| {
        v.path.vserver == svm
            && name.as_ref().is_none_or(|name| v.path.volume == *name)
            && id.as_ref().is_none_or(|id| v.uuid == *id)
    });
    match (found, name.or(id)) {
        (Some(found), Some(_)) => Ok(found.path),
        (None, Some(asked)) => Err(Refusal::value("volume.name", &asked, "no such volume")),
        (_, None) => Err(Refusal::required("volume.name")),
    }
}

/// Returns the name that a field has, or its id; empty if neither is there.
fn named(fields: &mut Fields, of: &str) -> Answered<String> {
    let (name, id) = (format!("{of}.name"), format!("{of}.id"));
    let (name, id) = (fields.text(&name)?, fields.text(&id)?);
    Ok(name.or(id).unwrap_or_default())
}

/// Returns the users that a body names, as one text.
fn users(fields: &mut Fields) -> Answered<String> {
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

fn target(fields: &mut Fields) -> Answered<QuotaTarget> {
    let kind = fields
        .text("type")?
        .ok_or_else(|| Refusal::required("type"))?;
    let (users, group) = (users(fields)?, named(fields, "group")?);
    if !named(fields, "qtree")?.is_empty() {
        return Err(Refusal::not_here(
            "qtree.name",
            "a volume has one qtree here, itself",
        ));
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
        "tree" => {
            let why = "a volume has one qtree here, itself; its size limits it";
            Err(Refusal::not_here("type", why))
        }
        other => Err(Refusal::value("type", other, "user|group")),
    }
}

/// Returns the limits that a body sets; those that it does not name are as in `now`. -1 and 0 are
/// none.
fn limits_of(fields: &mut Fields, now: QuotaLimits) -> Answered<QuotaLimits> {
    let mut limit = |name: &str, now: u64| -> Answered<u64> {
        match fields.take(name) {
            None => Ok(now),
            Some(Value::Null) => Ok(0),
            Some(value) => {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                match text.as_str() {
                    "-1" | "-" => Ok(0),
                    text => text
                        .parse()
                        .map_err(|_| Refusal::value(name, text, "integer")),
                }
            }
        }
    };
    Ok(QuotaLimits {
        bytes: limit("space.hard_limit", now.bytes)?,
        soft_bytes: limit("space.soft_limit", now.soft_bytes)?,
        files: limit("files.hard_limit", now.files)?,
        soft_files: limit("files.soft_limit", now.soft_files)?,
    })
}

fn create(a: &Asked<'_>) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let target = target(&mut fields)?;
    let volume = volume_of(a, &mut fields)?;
    let limits = limits_of(&mut fields, QuotaLimits::default())?;
    fields.fixed(&[("user_mapping", "false|off")])?;
    fields.done_of(RULES)?;
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
    let record = rule_record(&rule, &a.cluster.volumes());
    a.done(Some((rule_link(&uuid_of(&rule)), record)))
}

fn modify(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let rule = find_rule(a, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let limits = limits_of(&mut fields, rule.limits)?;
    fields.fixed(&[("user_mapping", "false|off")])?;
    fields.done_of(RULES)?;
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
