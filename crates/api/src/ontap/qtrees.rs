//! `storage/qtrees` and `storage/quota`. Every volume is its own one qtree, number 0 without a name;
//! more cannot be made, and there are no quotas besides a volume's size.

use serde_json::{Value, json};
use weir_ontap::cluster::Volume;

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::svms::svm;
use super::volumes::{find, permissions};
use super::{Asked, Reply, itself};
use crate::route::Verb;

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

const QUOTAS: &[&str] = &[
    "uuid",
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
    "user_mapping",
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

/// Handles requests to `storage/quota/rules` and `storage/quota/reports`.
pub fn quotas(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    match (verb, path) {
        (Verb::Get, ["rules" | "reports"]) => {
            let listing = Listing::parse(&a.call.query, QUOTAS)?;
            Ok(listing.reply(&a.here(), &["uuid", "index"], &["uuid"], Vec::new()))
        }
        (Verb::Post, ["rules"]) => {
            let why = "quotas are not served; a volume's size is its limit";
            Err(Refusal::not_here("type", why))
        }
        (_, ["rules" | "reports", ..]) => Err(Refusal::no_entry()),
        _ => Err(Refusal::no_api()),
    }
}
