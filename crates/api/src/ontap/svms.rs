//! `svm` and `storage/aggregates`: projects and storage pools.
//!
//! A project is there when it has a pool, a volume or a policy; one that is made here is there
//! before that, with nothing. Pools are made through the NetApp Volumes API: ONTAP has no words for
//! a service level.

use serde_json::{Value, json};
use weir_ontap::Change;
use weir_ontap::storage::{
    Aggregate, NamedKind, PolicyBody, PolicyChange, PolicyKey, StoragePolicy, Svm,
};

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself};
use weir_ontap::value::identity as uuid;

const KEYS: &[&str] = &["uuid", "name"];

const SVMS: &[&str] = &[
    "uuid",
    "name",
    "state",
    "subtype",
    "comment",
    "language",
    "aggregates.name",
    "aggregates.uuid",
    "aggregates.state",
    "aggregates.available_size",
    "ipspace.name",
    "ipspace.uuid",
    "snapshot_policy.name",
    "snapshot_policy.uuid",
    "max_volumes",
    "nfs.allowed",
    "nfs.enabled",
    "cifs.allowed",
    "cifs.enabled",
    "fcp.allowed",
    "fcp.enabled",
    "iscsi.allowed",
    "iscsi.enabled",
    "nvme.allowed",
    "nvme.enabled",
    "ndmp.allowed",
    "s3.allowed",
    "s3.enabled",
    "certificate.uuid",
    "qos_policy.name",
    "auto_enable_analytics",
    "auto_enable_activity_tracking",
    "is_space_enforcement_logical",
    "is_space_reporting_logical",
    "storage.limit",
    "storage.limit_threshold_alert",
    "storage.limit_threshold_exceeded",
    "storage.allocated",
    "anti_ransomware_default_volume_state",
    "number_of_volumes_in_recovery_queue",
];

const AGGREGATES: &[&str] = &[
    "uuid",
    "name",
    "state",
    "node.name",
    "node.uuid",
    "home_node.name",
    "volume_count",
    "snaplock_type",
    "data_encryption.software_encryption_enabled",
    "data_encryption.drive_protection_enabled",
    "block_storage.primary.disk_class",
    "block_storage.primary.disk_count",
    "block_storage.primary.disk_type",
    "block_storage.primary.raid_type",
    "block_storage.primary.raid_size",
    "block_storage.hybrid_cache.enabled",
    "block_storage.mirror.enabled",
    "block_storage.storage_type",
    "block_storage.uses_partitions",
    "space.footprint",
    "space.block_storage.size",
    "space.block_storage.used",
    "space.block_storage.available",
    "space.block_storage.used_percent",
    "space.block_storage.physical_used",
    "space.cloud_storage.used",
    "cloud_storage.attach_eligible",
    "_tags",
];

/// Fields of every machine that have one value here, and no other.
const FIXED: &[(&str, &str)] = &[
    ("subtype", "default"),
    ("state", "running"),
    ("language", "c.utf_8|utf8mb4|en_us.utf_8"),
    ("ipspace", "Default"),
    ("ipspace.name", "Default"),
    ("snapshot_policy", "none"),
    ("snapshot_policy.name", "none"),
    ("max_volumes", "unlimited"),
    ("nfs.allowed", "true"),
    ("nfs.enabled", "true"),
    ("cifs.allowed", "false"),
    ("cifs.enabled", "false"),
    ("fcp.allowed", "false"),
    ("fcp.enabled", "false"),
    ("iscsi.allowed", "false"),
    ("iscsi.enabled", "false"),
    ("nvme.allowed", "false"),
    ("nvme.enabled", "false"),
    ("ndmp.allowed", "false"),
    ("s3.allowed", "false"),
    ("s3.enabled", "false"),
    ("auto_enable_analytics", "false"),
    ("auto_enable_activity_tracking", "false"),
    ("storage.limit", "0"),
    ("storage.limit_threshold_alert", "90"),
];

/// Returns a machine, as records refer to it.
pub fn svm(name: &str) -> Value {
    json!({"name": name, "uuid": uuid("svm", name)})
}

/// Returns the machine that a body names, by `svm.name`, `svm.uuid` or both.
pub fn svm_of(a: &Asked<'_>, fields: &mut Fields) -> Answered<String> {
    let (name, id) = (fields.text("svm.name")?, fields.text("svm.uuid")?);
    let name = match name {
        Some(name) => Some(name),
        None => fields.text("svm")?,
    };
    let asked = name.clone().or_else(|| id.clone());
    let asked = asked.ok_or_else(|| Refusal::required("svm.name"))?;
    let meant = |svm: &Svm| {
        name.as_ref().is_none_or(|name| svm.name == *name)
            && id.as_ref().is_none_or(|id| uuid("svm", &svm.name) == *id)
    };
    let found = a.cluster.svms().into_iter().find(meant);
    Ok(found.ok_or_else(|| Refusal::no_svm(&asked))?.name)
}

/// Returns the UUID of an aggregate.
pub fn aggregate_uuid(svm: &str, location: &str, name: &str) -> String {
    uuid("aggregate", &format!("{svm}/{location}/{name}"))
}

fn svm_link(name: &str) -> String {
    format!("/api/svm/svms/{}", uuid("svm", name))
}

fn record(a: &Asked<'_>, svm: &Svm, pools: &[Aggregate]) -> Value {
    let physical = a.cluster.physical();
    let off = json!({"allowed": false, "enabled": false});
    let pools = pools.iter().filter(|p| p.svm == svm.name);
    let pools = pools.map(|p| {
        let id = aggregate_uuid(&p.svm, &p.location, &p.name);
        json!({"name": p.name, "uuid": id, "state": "online", "available_size": physical.bound(p.size.saturating_sub(p.used))})
    });
    json!({
        "_links": itself(&svm_link(&svm.name)),
        "uuid": uuid("svm", &svm.name),
        "name": svm.name,
        "state": "running",
        "subtype": "default",
        "comment": svm.comment,
        "language": "c.utf_8",
        "aggregates": pools.collect::<Vec<_>>(),
        "ipspace": {"name": "Default", "uuid": uuid("ipspace", "Default")},
        "snapshot_policy": {"name": "none", "uuid": uuid("snapshot-policy", "none")},
        "max_volumes": "unlimited",
        "nfs": {"allowed": true, "enabled": true},
        "cifs": off,
        "fcp": off,
        "iscsi": off,
        "nvme": off,
        "s3": off,
        "ndmp": {"allowed": false},
        "auto_enable_analytics": false,
        "auto_enable_activity_tracking": false,
        "is_space_enforcement_logical": false,
        "is_space_reporting_logical": false,
        "storage": {"limit": 0, "limit_threshold_alert": 90, "limit_threshold_exceeded": false},
    })
}

fn find(a: &Asked<'_>, id: &str) -> Answered<Svm> {
    let found = a
        .cluster
        .svms()
        .into_iter()
        .find(|svm| uuid("svm", &svm.name) == id);
    found.ok_or_else(Refusal::no_entry)
}

/// Handles GET of the machines.
pub fn list(a: &Asked<'_>, id: Option<&str>) -> Answered<Reply> {
    let listing = Listing::parse(&a.call.query, SVMS)?;
    if let Some(id) = id {
        let pools = a.cluster.aggregates();
        return Ok(listing.one(KEYS, record(a, &find(a, id)?, &pools)));
    }
    let (all, pools) = (a.cluster.svms(), a.cluster.aggregates());
    let records = all.iter().map(|svm| record(a, svm, &pools));
    Ok(listing.reply(&a.here(), KEYS, &["name", "uuid"], records.collect()))
}

fn key(svm: &str) -> PolicyKey {
    PolicyKey {
        kind: NamedKind::Project,
        svm: svm.to_owned(),
        name: svm.to_owned(),
    }
}

/// Returns the machine's own record, if it was made by name.
fn row(a: &Asked<'_>, svm: &str) -> Option<StoragePolicy> {
    let all = a.cluster.storage_policies(NamedKind::Project);
    all.into_iter().find(|p| p.key.name == svm)
}

fn change(a: &Asked<'_>, svm: &str, change: PolicyChange) -> Answered<()> {
    let key = key(svm);
    a.cluster
        .change(Change::Policy { key, change })
        .map_err(Refusal::of)
}

/// Returns the aggregates in a body: they can be named, not changed.
fn pools(fields: &mut Fields, svm: Option<&Svm>) -> Answered<()> {
    let Some(list) = fields.take("aggregates") else {
        return Ok(());
    };
    let all = list.as_array().into_iter().flatten();
    let mut asked: Vec<&str> = all.filter_map(|one| one.get("name")?.as_str()).collect();
    asked.sort_unstable();
    let mut own: Vec<&str> = svm
        .iter()
        .flat_map(|svm| &svm.aggregates)
        .map(String::as_str)
        .collect();
    own.sort_unstable();
    match asked == own {
        true => Ok(()),
        false => {
            let why =
                "an SVM has the storage pools of its project, which the NetApp Volumes API makes";
            Err(Refusal::not_here("aggregates", why))
        }
    }
}

/// Handles POST of a machine.
pub fn create(a: &Asked<'_>) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let name = fields
        .text("name")?
        .ok_or_else(|| Refusal::required("name"))?;
    let comment = fields.text("comment")?.unwrap_or_default();
    pools(&mut fields, None)?;
    fields.fixed(FIXED)?;
    fields.done_of(SVMS)?;
    if a.cluster.svms().iter().any(|svm| svm.name == name) {
        return Err(Refusal::duplicate(&format!(
            "SVM \"{name}\" already exists."
        )));
    }
    let body = PolicyBody::Project;
    change(a, &name, PolicyChange::Create { comment, body })?;
    let made = a.cluster.svms().into_iter().find(|svm| svm.name == name);
    a.done(made.map(|svm| (svm_link(&svm.name), record(a, &svm, &[]))))
}

/// Handles PATCH of a machine: its comment.
pub fn modify(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let svm = find(a, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let comment = fields.text("comment")?;
    pools(&mut fields, Some(&svm))?;
    fields.fixed(&[("name", &svm.name)])?;
    fields.fixed(FIXED)?;
    fields.done_of(SVMS)?;
    if let Some(comment) = comment.filter(|comment| *comment != svm.comment) {
        let made = match row(a, &svm.name) {
            Some(row) => PolicyChange::Set {
                revision: row.revision,
                comment: Some(comment),
                body: None,
            },
            None => PolicyChange::Create {
                comment,
                body: PolicyBody::Project,
            },
        };
        change(a, &svm.name, made)?;
    }
    a.done(None)
}

/// Handles DELETE of a machine that has nothing.
pub fn delete(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let svm = find(a, id)?;
    if row(a, &svm.name).is_none() {
        let why = format!(
            "SVM \"{}\" has storage pools, volumes or policies.",
            svm.name
        );
        return Err(Refusal::in_use(&why));
    }
    change(a, &svm.name, PolicyChange::Delete)?;
    a.done(None)
}

/// Handles GET of pairs of machines: relationships need none here, nodes are paired as wholes.
pub fn svm_peers(a: &Asked<'_>) -> Answered<Reply> {
    let known = [
        "uuid",
        "name",
        "svm.name",
        "svm.uuid",
        "peer.svm.name",
        "peer.svm.uuid",
        "peer.cluster.name",
        "peer.cluster.uuid",
        "applications",
        "state",
    ];
    let listing = Listing::parse(&a.call.query, &known)?;
    Ok(listing.reply(&a.here(), &["uuid"], &["uuid"], Vec::new()))
}

fn aggregate(a: &Asked<'_>, pool: &Aggregate) -> Value {
    let id = aggregate_uuid(&pool.svm, &pool.location, &pool.name);
    let percent = (u128::from(pool.used) * 100).checked_div(u128::from(pool.size));
    json!({
        "_links": itself(&format!("/api/storage/aggregates/{id}")),
        "uuid": id,
        "name": pool.name,
        "state": "online",
        "node": {"name": a.cluster.name(), "uuid": a.cluster.uuid()},
        "home_node": {"name": a.cluster.name()},
        "volume_count": pool.volumes,
        "snaplock_type": "non_snaplock",
        "data_encryption": {"software_encryption_enabled": false, "drive_protection_enabled": false},
        "block_storage": {
            "primary": {"disk_class": "solid_state", "disk_count": 1, "disk_type": "ssd", "raid_type": "raid0"},
            "hybrid_cache": {"enabled": false},
            "mirror": {"enabled": false},
            "storage_type": "ssd",
        },
        "space": {
            "footprint": pool.used,
            "block_storage": {
                "size": pool.size,
                "used": pool.used,
                "available": a.cluster.physical().bound(pool.size.saturating_sub(pool.used)),
                "used_percent": percent.unwrap_or(0) as u64,
                "physical_used": pool.used,
            },
        },
    })
}

/// Handles GET of the aggregates; with `id`, of one.
pub fn aggregates(a: &Asked<'_>, id: Option<&str>) -> Answered<Reply> {
    let listing = Listing::parse(&a.call.query, AGGREGATES)?;
    let all = a.cluster.aggregates();
    let Some(id) = id else {
        let records = all.iter().map(|pool| aggregate(a, pool));
        return Ok(listing.reply(&a.here(), KEYS, &["name", "uuid"], records.collect()));
    };
    let named = |p: &&Aggregate| aggregate_uuid(&p.svm, &p.location, &p.name) == id;
    let one = all.iter().find(named).ok_or_else(Refusal::no_entry)?;
    Ok(listing.one(KEYS, aggregate(a, one)))
}
