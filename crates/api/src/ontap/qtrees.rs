//! `storage/qtrees` and `storage/quota`. Every volume is a qtree itself, number 0 without a name;
//! the others are folders in its root directory. Quotas are those of users and groups, by their
//! numbers, and of qtrees. A rule holds as soon as it is made, unless the quotas of its volume are
//! off (`quota.enabled` of the volume).

use serde_json::{Map, Value, json};
use weir_ontap::cluster::{Change, Volume};
use weir_ontap::commands::volume::permissions as permissions_of;
use weir_ontap::storage::{Qtree, QuotaLimits, QuotaRule, QuotaTarget, QuotaUse};
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

const INHERITED: &str = "qtrees have what their volume has";

/// Returns the volume's own qtree, number 0.
fn own(v: &Volume) -> Qtree {
    Qtree {
        volume: v.path.clone(),
        number: 0,
        name: String::new(),
        permissions: v.details.permissions,
        owner: 0,
        group: 0,
    }
}

fn qtree_link(v: &Volume, number: u32) -> String {
    format!("/api/storage/qtrees/{}/{number}", v.uuid)
}

fn qtree(v: &Volume, of: &Qtree) -> Value {
    let d = &v.details;
    let mut out = json!({
        "_links": itself(&qtree_link(v, of.number)),
        "id": of.number,
        "name": of.name,
        "svm": svm(&v.path.vserver),
        "volume": {"name": v.path.volume, "uuid": v.uuid},
        "export_policy": {"name": d.export_policy},
        "security_style": d.security_style(),
        "unix_permissions": permissions(of.permissions),
        "user": {"id": of.owner.to_string()},
        "group": {"id": of.group.to_string()},
    });
    if let (Some(junction), Some(out)) = (&v.junction, out.as_object_mut()) {
        let path = match of.name.as_str() {
            "" => junction.clone(),
            name => format!("{}/{name}", junction.trim_end_matches('/')),
        };
        out.insert("path".to_owned(), json!(path));
        out.insert("nas".to_owned(), json!({"path": path}));
    }
    out
}

/// Returns the records of all qtrees, each volume's own first.
fn all_qtrees(a: &Asked<'_>) -> Vec<Value> {
    let qtrees = a.cluster.qtrees(None);
    let mut records = Vec::new();
    for volume in a.cluster.volumes() {
        records.push(qtree(&volume, &own(&volume)));
        let here = qtrees.iter().filter(|q| q.volume == volume.path);
        records.extend(here.map(|q| qtree(&volume, q)));
    }
    records
}

/// Returns the volume and the qtree of a path.
fn find_qtree(a: &Asked<'_>, volume: &str, number: &str) -> Answered<(Volume, Qtree)> {
    let volume = find(a, volume)?;
    if number == "0" {
        let qtree = own(&volume);
        return Ok((volume, qtree));
    }
    let mut all = a.cluster.qtrees(Some(&volume.path)).into_iter();
    let found = all.find(|q| q.number.to_string() == number);
    found.map_or_else(|| Err(Refusal::no_entry()), |qtree| Ok((volume, qtree)))
}

/// Handles requests to `storage/qtrees`.
pub fn qtrees(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    const KEYS: &[&str] = &["id", "name", "svm", "volume"];
    match (verb, path) {
        (Verb::Get, []) => {
            let listing = Listing::parse(&a.call.query, QTREES)?;
            let order = ["svm.name", "volume.name", "volume.uuid", "name"];
            Ok(listing.reply(&a.here(), KEYS, &order, all_qtrees(a)))
        }
        (Verb::Get, [volume, number]) => {
            let listing = Listing::parse(&a.call.query, QTREES)?;
            let (volume, of) = find_qtree(a, volume, number)?;
            Ok(listing.one(KEYS, qtree(&volume, &of)))
        }
        (Verb::Post, []) => create_qtree(a),
        (Verb::Patch, [volume, "0"]) => {
            a.only(&[])?;
            let volume = find(a, volume)?;
            let record = qtree(&volume, &own(&volume));
            let why = "the volume's own fields change it";
            Fields::read(&a.call.body)?.same_as(&record, QTREES, why)?;
            a.done(None)
        }
        (Verb::Patch, [volume, number]) => modify_qtree(a, find_qtree(a, volume, number)?),
        (Verb::Delete, [volume, "0"]) => {
            find(a, volume)?;
            Err(Refusal::not_here("id", "the volume's own qtree stays"))
        }
        (Verb::Delete, [volume, number]) => {
            a.only(&[])?;
            let (Volume { path, .. }, Qtree { name, .. }) = find_qtree(a, volume, number)?;
            change_quota(a, Change::QtreeDelete { volume: path, name })?;
            a.done(None)
        }
        _ => Err(Refusal::no_api()),
    }
}

/// Reads permission bits: `755`, `0755`, or `---rwxr-xr-x`.
fn mode(fields: &mut Fields) -> Answered<Option<u32>> {
    const NAME: &str = "unix_permissions";
    let text = match fields.take(NAME) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    let mode = permissions_of(&text);
    mode.map_or_else(
        || Err(Refusal::value(NAME, &text, "octal digits")),
        |mode| Ok(Some(mode)),
    )
}

fn create_qtree(a: &Asked<'_>) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let volume = volume_of(a, &mut fields)?;
    let name = fields.text("name")?;
    let name = name.ok_or_else(|| Refusal::required("name"))?;
    let permissions = mode(&mut fields)?;
    let record = qtree(&volume, &own(&volume));
    fields.same_as(&record, QTREES, INHERITED)?;
    let change = Change::QtreeCreate {
        volume: volume.path.clone(),
        name: name.clone(),
        permissions,
    };
    change_quota(a, change)?;
    let mut all = a.cluster.qtrees(Some(&volume.path)).into_iter();
    let made = all.find(|q| q.name == name);
    a.done(made.map(|made| (qtree_link(&volume, made.number), qtree(&volume, &made))))
}

fn modify_qtree(a: &Asked<'_>, (volume, of): (Volume, Qtree)) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let to = fields.text("name")?.filter(|to| *to != of.name);
    let permissions = mode(&mut fields)?.filter(|mode| *mode != of.permissions);
    fields.same_as(&qtree(&volume, &of), QTREES, INHERITED)?;
    if to.is_some() || permissions.is_some() {
        let change = Change::QtreeModify {
            volume: volume.path,
            name: of.name,
            to,
            permissions,
        };
        change_quota(a, change)?;
    }
    a.done(None)
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

/// The volumes and the qtrees that quotas are about.
struct Places {
    volumes: Vec<Volume>,
    qtrees: Vec<Qtree>,
}

impl Places {
    fn of(a: &Asked<'_>) -> Places {
        Places {
            volumes: a.cluster.volumes(),
            qtrees: a.cluster.qtrees(None),
        }
    }

    /// Returns the qtree of a rule, as records have it.
    fn qtree(&self, rule: &QuotaRule) -> Option<Value> {
        let QuotaTarget::Tree(number) = rule.target else {
            return (rule.target == QuotaTarget::DefaultTree).then(|| json!({"name": ""}));
        };
        let is_it = |q: &&Qtree| q.volume == rule.volume && q.number == number;
        let name = self.qtrees.iter().find(is_it).map(|q| &q.name);
        Some(json!({"name": name, "id": number}))
    }
}

/// Returns what a rule and a report have in common.
fn shared(rule: &QuotaRule, places: &Places) -> Map<String, Value> {
    let path = &rule.volume;
    let id = places
        .volumes
        .iter()
        .find(|v| v.path == *path)
        .map(|v| &v.uuid);
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
        QuotaTarget::Tree(_) | QuotaTarget::DefaultTree => places
            .qtree(rule)
            .and_then(|qtree| out.insert("qtree".to_owned(), qtree)),
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

fn rule_record(rule: &QuotaRule, places: &Places) -> Value {
    let id = uuid_of(rule);
    let mut out = shared(rule, places);
    out.insert("_links".to_owned(), itself(&rule_link(&id)));
    out.insert("uuid".to_owned(), json!(id));
    out.insert("user_mapping".to_owned(), json!(false));
    Value::Object(out)
}

fn rule_link(id: &str) -> String {
    format!("/api/storage/quota/rules/{id}")
}

fn report_record(index: usize, held: &QuotaUse, places: &Places) -> Value {
    let mut out = shared(&held.rule, places);
    out.insert("index".to_owned(), json!(index));
    let specifier = match out.get("qtree").and_then(|qtree| qtree.get("name")) {
        Some(name) => name.clone(),
        None => json!(held.rule.target.name()),
    };
    out.insert("specifier".to_owned(), specifier);
    out.entry("qtree".to_owned())
        .or_insert_with(|| json!({"name": "", "id": 0}));
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
            let places = Places::of(a);
            let rules = a.cluster.quota_rules();
            let records = rules.iter().map(|rule| rule_record(rule, &places));
            let order = ["svm.name", "volume.name", "type", "uuid"];
            Ok(listing.reply(&a.here(), &["uuid"], &order, records.collect()))
        }
        (Verb::Get, ["rules", id]) => {
            let listing = Listing::parse(&a.call.query, RULES)?;
            let record = rule_record(&find_rule(a, id)?, &Places::of(a));
            Ok(listing.one(&["uuid"], record))
        }
        (Verb::Get, ["reports"]) => {
            let listing = Listing::parse(&a.call.query, REPORTS)?;
            let places = Places::of(a);
            let all = a.cluster.quota_report();
            let records = all.iter().enumerate();
            let records = records.map(|(index, held)| report_record(index, held, &places));
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
fn volume_of(a: &Asked<'_>, fields: &mut Fields) -> Answered<Volume> {
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

/// Returns the target of a rule for qtrees of a volume.
fn tree(a: &Asked<'_>, volume: &Path, name: &str) -> Answered<QuotaTarget> {
    if matches!(name, "" | "*") {
        return Ok(QuotaTarget::DefaultTree);
    }
    let mut all = a.cluster.qtrees(Some(volume)).into_iter();
    let found = all.find(|q| q.name == name || q.number.to_string() == name);
    let found = found.ok_or_else(|| Refusal::value("qtree.name", name, "no such qtree"))?;
    Ok(QuotaTarget::Tree(found.number))
}

fn target(a: &Asked<'_>, volume: &Path, fields: &mut Fields) -> Answered<QuotaTarget> {
    let kind = fields
        .text("type")?
        .ok_or_else(|| Refusal::required("type"))?;
    let (users, group) = (users(fields)?, named(fields, "group")?);
    let qtree = named(fields, "qtree")?;
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
    let volume = volume_of(a, &mut fields)?.path;
    let target = target(a, &volume, &mut fields)?;
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
    let record = rule_record(&rule, &Places::of(a));
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
