//! `storage/volumes`: what their users read, make and change.
//!
//! Fields that ONTAP has and this node does not serve (compression, tiering, encryption, …) are
//! known, with the one value that they have here. A client may ask for them, and set them to that
//! value. Another value is refused.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_ontap::cluster::Volume;
use weir_ontap::commands::volume::permissions as permissions_of;
use weir_ontap::storage::{NamedKind, QuotaState, Settings, StoragePolicy};
use weir_ontap::{Change, Snapshot};
use weir_relations::model::Path;

use super::body::Fields;
use super::listing::Listing;
use super::named;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself, time};
use super::svms::{aggregate_uuid, svm, svm_of};

const KEYS: &[&str] = &["uuid", "name"];

const KNOWN: &[&str] = &[
    "uuid",
    "name",
    "svm.name",
    "svm.uuid",
    "type",
    "state",
    "style",
    "size",
    "create_time",
    "comment",
    "language",
    "aggregates.name",
    "aggregates.uuid",
    "nas.path",
    "nas.export_policy.name",
    "nas.export_policy.id",
    "nas.security_style",
    "nas.unix_permissions",
    "nas.uid",
    "nas.gid",
    "nas.junction_parent.name",
    "nas.junction_parent.uuid",
    "space.size",
    "space.used",
    "space.available",
    "space.percent_used",
    "space.physical_used",
    "space.footprint",
    "space.snapshot.used",
    "space.snapshot.reserve_percent",
    "space.snapshot.reserve_size",
    "space.snapshot.autodelete_enabled",
    "space.snapshot.autodelete.enabled",
    "space.snapshot.autodelete.trigger",
    "space.snapshot.autodelete.target_free_space",
    "space.snapshot.autodelete.delete_order",
    "space.snapshot.autodelete.commitment",
    "space.snapshot.autodelete.defer_delete",
    "space.snapshot.autodelete.prefix",
    "space.logical_space.used",
    "space.logical_space.enforcement",
    "space.logical_space.reporting",
    "space.nearly_full_threshold_percent",
    "space.full_threshold_percent",
    "space.large_size_enabled",
    "guarantee.type",
    "guarantee.honored",
    "snapshot_policy.name",
    "snapshot_policy.uuid",
    "snapshot_directory_access_enabled",
    "snapshot_locking_enabled",
    "snapshot_count",
    "qos.policy.name",
    "qos.policy.uuid",
    "access_time_enabled",
    "activity_tracking.state",
    "activity_tracking.supported",
    "analytics.state",
    "analytics.supported",
    "anti_ransomware.state",
    "anti_ransomware.attack_probability",
    "anti_ransomware.dry_run_start_time",
    "autosize.mode",
    "autosize.maximum",
    "autosize.minimum",
    "autosize.grow_threshold",
    "autosize.shrink_threshold",
    "clone.is_flexclone",
    "clone.parent_volume.name",
    "clone.parent_volume.uuid",
    "clone.parent_snapshot.name",
    "clone.parent_snapshot.uuid",
    "clone.parent_svm.name",
    "clone.parent_svm.uuid",
    "clone.split_initiated",
    "clone.split_complete_percent",
    "clone.split_estimate",
    "cloud_retrieval_policy",
    "constituents_per_aggregate",
    "efficiency.state",
    "efficiency.op_state",
    "efficiency.compression",
    "efficiency.dedupe",
    "efficiency.compaction",
    "efficiency.cross_volume_dedupe",
    "efficiency.policy.name",
    "efficiency.schedule",
    "efficiency.storage_efficiency_mode",
    "efficiency.volume_path",
    "efficiency.scanner.state",
    "encryption.enabled",
    "encryption.state",
    "encryption.type",
    "files.maximum",
    "files.used",
    "flexcache_endpoint_type",
    "granular_data",
    "is_constituent",
    "is_object_store",
    "is_svm_root",
    "max_dir_size",
    "movement.state",
    "movement.destination_aggregate.name",
    "movement.destination_aggregate.uuid",
    "quota.state",
    "quota.enabled",
    "snaplock.type",
    "snaplock.append_mode_enabled",
    "snaplock.autocommit_period",
    "snaplock.privileged_delete",
    "snaplock.retention.default",
    "snaplock.retention.maximum",
    "snaplock.retention.minimum",
    "snapmirror.is_protected",
    "snapmirror.destinations.is_cloud",
    "snapmirror.destinations.is_ontap",
    "tiering.policy",
    "tiering.min_cooling_days",
    "tiering.object_tags",
    "_tags",
];

/// Fields with the one value that they have here.
const FIXED: &[(&str, &str)] = &[
    ("style", "flexvol"),
    ("language", "c.utf_8|utf8mb4|en_us.utf_8"),
    ("guarantee.type", "none"),
    ("nas.security_style", "unix"),
    ("nas.uid", "0"),
    ("nas.gid", "0"),
    ("access_time_enabled", "true"),
    ("activity_tracking.state", "off"),
    ("analytics.state", "off"),
    ("anti_ransomware.state", "disabled"),
    ("autosize.mode", "off"),
    ("cloud_retrieval_policy", "default"),
    ("efficiency.compression", "none"),
    ("efficiency.dedupe", "none"),
    ("efficiency.compaction", "none"),
    ("efficiency.cross_volume_dedupe", "none"),
    ("efficiency.policy.name", "-|none"),
    ("encryption.enabled", "false"),
    ("granular_data", "false"),
    ("snaplock.type", "non_snaplock"),
    ("snapshot_locking_enabled", "false"),
    ("space.logical_space.enforcement", "false"),
    ("space.logical_space.reporting", "false"),
    ("space.snapshot.autodelete_enabled", "false"),
    ("space.snapshot.autodelete.enabled", "false"),
    ("tiering.policy", "none"),
];

/// Returns the path of a volume's record.
pub fn link(v: &Volume) -> String {
    format!("/api/storage/volumes/{}", v.uuid)
}

/// Returns the bytes that a volume may hold.
fn size(v: &Volume) -> u64 {
    v.size.unwrap_or(v.details.provisioned)
}

/// Returns permission bits as ONTAP writes them: the decimal digits are octal.
pub(super) fn permissions(mode: u32) -> Value {
    json!(format!("{mode:o}").parse::<u32>().unwrap_or(0))
}

fn efficiency(v: &Volume) -> Value {
    json!({
        "state": "disabled",
        "op_state": "idle",
        "compression": "none",
        "dedupe": "none",
        "compaction": "none",
        "cross_volume_dedupe": "none",
        "policy": {"name": "-"},
        "storage_efficiency_mode": "default",
        "volume_path": format!("/vol/{}", v.path.volume),
    })
}

fn record(v: &Volume, protected: bool, snapshots: Option<&[Snapshot]>) -> Value {
    let d = &v.details;
    let (size, switch) = (size(v), |on| if on { "online" } else { "offline" });
    let reserve = u64::try_from(u128::from(size) * u128::from(d.snapshot_reserve) / 100);
    let mut out = json!({
        "_links": itself(&link(v)),
        "uuid": v.uuid,
        "name": v.path.volume,
        "svm": svm(&v.path.vserver),
        "type": if v.protection { "dp" } else { "rw" },
        "state": switch(d.online),
        "style": "flexvol",
        "size": size,
        "create_time": time(v.created),
        "comment": d.comment,
        "language": "c.utf_8",
        "aggregates": [{"name": v.pool, "uuid": aggregate_uuid(&v.path.vserver, &v.location, &v.pool)}],
        "nas": {
            "export_policy": {"name": d.export_policy},
            "security_style": d.security_style(),
            "unix_permissions": permissions(d.permissions),
        },
        "space": {
            "size": size,
            "used": v.used,
            "available": v.available(size),
            "percent_used": (u128::from(v.used) * 100).checked_div(u128::from(size)).unwrap_or(0) as u64,
            "physical_used": v.used,
            "footprint": v.used,
            "snapshot": {
                "reserve_percent": d.snapshot_reserve,
                "reserve_size": reserve.unwrap_or(u64::MAX),
                "autodelete_enabled": false,
                "autodelete": {"enabled": false},
            },
            "logical_space": {"used": v.used, "enforcement": false, "reporting": false},
        },
        "guarantee": {"type": "none", "honored": true},
        "snapshot_policy": {"name": d.snapshot_policy},
        "snapshot_directory_access_enabled": d.snapshot_directory,
        "snapshot_locking_enabled": false,
        "access_time_enabled": true,
        "activity_tracking": {"state": "off", "supported": false},
        "analytics": {"state": "off", "supported": false},
        "anti_ransomware": {"state": "disabled"},
        "autosize": {"mode": "off"},
        "cloud_retrieval_policy": "default",
        "efficiency": efficiency(v),
        "encryption": {"enabled": false, "state": "none"},
        "flexcache_endpoint_type": "none",
        "granular_data": false,
        "is_constituent": false,
        "is_object_store": false,
        "is_svm_root": false,
        "quota": {"state": "off", "enabled": false},
        "snaplock": {"type": "non_snaplock"},
        "snapmirror": {
            "is_protected": protected,
            "destinations": {"is_cloud": false, "is_ontap": protected},
        },
        "tiering": {"policy": "none"},
        "clone": {"is_flexclone": v.parent.is_some()},
    });
    let mut set = |pointer: &str, name: &str, value: Value| {
        if let Some(of) = out.pointer_mut(pointer).and_then(Value::as_object_mut) {
            of.insert(name.to_owned(), value);
        }
    };
    if let Some(junction) = &v.junction {
        set("/nas", "path", json!(junction));
    }
    if let Some(policy) = &d.qos_policy {
        set("", "qos", json!({"policy": {"name": policy}}));
    }
    if let Some((path, snapshot)) = &v.parent {
        set("/clone", "parent_volume", json!({"name": path.volume}));
        set("/clone", "parent_snapshot", json!({"name": snapshot}));
        set("/clone", "parent_svm", svm(&path.vserver));
        set("/clone", "split_initiated", json!(d.splitting));
    }
    if let Some(snapshots) = snapshots {
        let used: u64 = snapshots.iter().map(|s| s.size).sum();
        set("/space/snapshot", "used", json!(used));
        set("", "snapshot_count", json!(snapshots.len()));
    }
    out
}

/// Returns a volume by its UUID.
pub fn find(a: &Asked<'_>, id: &str) -> Answered<Volume> {
    let found = a.cluster.volumes().into_iter().find(|v| v.uuid == id);
    found.ok_or_else(Refusal::no_entry)
}

/// Switches the quota rules of a volume on or off, if that is asked for.
fn switch_quotas(a: &Asked<'_>, volume: &Path, on: Option<bool>) -> Answered<()> {
    let Some(on) = on else {
        // The body does not mention them.
        return Ok(());
    };
    let volume = volume.clone();
    let changed = a.cluster.change(Change::QuotasOn { volume, on });
    changed.map_err(Refusal::of_volume)
}

/// Returns a volume's record with the state of its quotas.
fn with_quotas(mut record: Value, state: Option<&QuotaState>) -> Value {
    let words = match state {
        None | Some(QuotaState::Off) => "off",
        Some(QuotaState::Initializing) => "initializing",
        Some(QuotaState::On) => "on",
    };
    if let Some(quota) = record.get_mut("quota") {
        *quota = json!({"state": words, "enabled": words != "off"});
    }
    record
}

/// Handles GET of volumes; with `id`, of one.
pub fn list(a: &Asked<'_>, id: Option<&str>) -> Answered<Reply> {
    let listing = Listing::parse(&a.call.query, KNOWN)?;
    let copied = a.cluster.destinations().into_iter().map(|r| r.source);
    let sources: BTreeSet<Path> = copied.collect();
    let states = a.cluster.quota_states();
    // Space of snapshots is counted one by one: only where it is asked for.
    let counts = listing.asks("space.snapshot.used") || listing.asks("snapshot_count");
    let whole = |v: &Volume| {
        let snapshots = counts.then(|| a.cluster.snapshots(Some(&v.path)));
        let record = record(v, sources.contains(&v.path), snapshots.as_deref());
        with_quotas(record, states.get(&v.path))
    };
    if let Some(id) = id {
        return Ok(listing.one(KEYS, whole(&find(a, id)?)));
    }
    let all = a.cluster.volumes();
    Ok(listing.reply(
        &a.here(),
        KEYS,
        &["svm.name", "name", "uuid"],
        all.iter().map(whole).collect(),
    ))
}

/// Reads permission bits: `755`, `0755`, or `---rwxr-xr-x`.
fn mode(fields: &mut Fields) -> Answered<Option<u32>> {
    const NAME: &str = "nas.unix_permissions";
    let text = match fields.take(NAME) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    match permissions_of(&text) {
        Some(mode) => Ok(Some(mode)),
        None => Err(Refusal::value(NAME, &text, "octal digits")),
    }
}

/// Returns a policy's name, from `{field}`, `{field}.name` or `{field}.uuid`.
fn policy(
    a: &Asked<'_>,
    fields: &mut Fields,
    field: &str,
    kind: NamedKind,
) -> Answered<Option<String>> {
    let dotted = |part: &str| format!("{field}.{part}");
    let plain = fields.text(field)?;
    let name = fields.text(&dotted("name"))?.or(plain);
    let id = match fields
        .take(&dotted("uuid"))
        .or_else(|| fields.take(&dotted("id")))
    {
        None | Some(Value::Null) => return Ok(name),
        Some(Value::String(id)) => id,
        Some(other) => other.to_string(),
    };
    let by = |p: &StoragePolicy| named::uuid_of(p) == id || named::id_of(p).to_string() == id;
    let found = a.cluster.storage_policies(kind).into_iter().find(by);
    let found = found.ok_or_else(Refusal::no_entry)?.key.name;
    match name {
        Some(name) if name != found => Err(Refusal::value(
            &dotted("name"),
            &name,
            "that is another policy's",
        )),
        _ => Ok(Some(found)),
    }
}

/// Returns the settings in a body.
fn settings(a: &Asked<'_>, fields: &mut Fields) -> Answered<Settings> {
    let (size, space) = (fields.number("size")?, fields.number("space.size")?);
    let online = match fields.text("state")?.as_deref() {
        None => None,
        Some("online") => Some(true),
        Some("offline") => Some(false),
        Some(other) => return Err(Refusal::value("state", other, "online, offline")),
    };
    let reserve = match fields.number("space.snapshot.reserve_percent")? {
        None => None,
        Some(percent) => match u32::try_from(percent).ok().filter(|p| *p <= 90) {
            Some(percent) => Some(percent),
            None => {
                let name = "space.snapshot.reserve_percent";
                return Err(Refusal::value(name, &percent.to_string(), "0 to 90"));
            }
        },
    };
    Ok(Settings {
        size: size.or(space),
        aggregate: aggregate(fields)?,
        comment: fields.text("comment")?,
        online,
        junction: fields
            .text("nas.path")?
            .map(|path| Some(path).filter(|path| !path.is_empty())),
        export_policy: policy(a, fields, "nas.export_policy", NamedKind::Export)?,
        snapshot_policy: policy(a, fields, "snapshot_policy", NamedKind::Snapshot)?,
        qos_policy: policy(a, fields, "qos.policy", NamedKind::Qos)?,
        permissions: mode(fields)?,
        snapshot_directory: fields.flag("snapshot_directory_access_enabled")?,
        snapshot_reserve: reserve,
    })
}

/// Returns `aggregates`: a list of one at most.
fn aggregate(fields: &mut Fields) -> Answered<Option<String>> {
    if let Some(name) = fields.text("aggregates.name")? {
        return Ok(Some(name));
    }
    let wrong = |v: &Value| Refusal::value("aggregates", &v.to_string(), "a list of one name");
    match fields.take("aggregates") {
        None | Some(Value::Null) => Ok(None),
        Some(list) => match list.as_array().map(Vec::as_slice) {
            Some([]) => Ok(None),
            Some([one]) => match one.get("name").and_then(Value::as_str) {
                Some(name) => Ok(Some(name.to_owned())),
                None => Err(wrong(&list)),
            },
            _ => Err(wrong(&list)),
        },
    }
}

/// Returns the volume and the snapshot that a clone is made of; `None`: it is no clone.
fn parent(
    a: &Asked<'_>,
    svm: &str,
    fields: &mut Fields,
) -> Answered<Option<(Path, Option<String>)>> {
    let (name, id) = (
        fields.text("clone.parent_volume.name")?,
        fields.text("clone.parent_volume.uuid")?,
    );
    let of = match fields.text("clone.parent_svm.name")? {
        Some(of) => of,
        None => svm.to_owned(),
    };
    let (snapshot, snapshot_id) = (
        fields.text("clone.parent_snapshot.name")?,
        fields.text("clone.parent_snapshot.uuid")?,
    );
    let wanted = fields.flag("clone.is_flexclone")?;
    fields.ignore(&["clone.parent_svm.uuid"]);
    if name.is_none() && id.is_none() {
        return match wanted {
            Some(true) => Err(Refusal::required("clone.parent_volume.name")),
            _ => Ok(None),
        };
    }
    if wanted == Some(false) {
        return Err(Refusal::value(
            "clone.is_flexclone",
            "false",
            "a clone has a parent",
        ));
    }
    let all = a.cluster.volumes();
    let meant = |v: &&Volume| {
        let named = name
            .as_ref()
            .is_none_or(|name| v.path.volume == *name && v.path.vserver == of);
        named && id.as_ref().is_none_or(|id| v.uuid == *id)
    };
    let parent = all.iter().find(meant).ok_or_else(Refusal::no_entry)?;
    let snapshot = match (snapshot, snapshot_id) {
        (None, Some(id)) => {
            let all = a.cluster.snapshots(Some(&parent.path));
            let found = all.into_iter().find(|s| s.uuid == id);
            Some(found.ok_or_else(Refusal::no_entry)?.name)
        }
        (snapshot, _) => snapshot,
    };
    Ok(Some((parent.path.clone(), snapshot)))
}

/// Handles POST of a volume, or of a clone.
pub fn create(a: &Asked<'_>) -> Answered<Reply> {
    a.only(&["sizing_method"])?;
    let mut fields = Fields::read(&a.call.body)?;
    let name = fields.text("name")?;
    let name = name.ok_or_else(|| Refusal::required("name"))?;
    let svm = svm_of(a, &mut fields)?;
    let kind = fields.text("type")?.unwrap_or_else(|| "rw".to_owned());
    let protection = match kind.to_ascii_lowercase().as_str() {
        "rw" => false,
        "dp" => true,
        _ => return Err(Refusal::value("type", &kind, "rw, dp")),
    };
    let parent = parent(a, &svm, &mut fields)?;
    let split = fields.flag("clone.split_initiated")?;
    let mut settings = settings(a, &mut fields)?;
    // ONTAP's own words for a volume of whatever QoS.
    settings.qos_policy = settings.qos_policy.filter(|name| !name.is_empty());
    // A new volume has no rules that could hold.
    fields.ignore(&["quota.enabled"]);
    fields.fixed(FIXED)?;
    fields.done_of(KNOWN)?;
    let path = Path::parse(&format!("{svm}:{name}"));
    let path = path.ok_or_else(|| Refusal::value("name", &name, "volume name"))?;
    let change = match parent {
        Some((parent, snapshot)) => Change::VolumeClone {
            path: path.clone(),
            parent,
            snapshot,
            settings,
        },
        None => {
            let size = settings.size.ok_or_else(|| Refusal::required("size"))?;
            Change::VolumeCreate {
                path: path.clone(),
                size,
                protection,
                settings,
            }
        }
    };
    a.cluster.change(change).map_err(Refusal::of)?;
    if split == Some(true) {
        let split = Change::VolumeSplit(path.clone());
        a.cluster.change(split).map_err(Refusal::of)?;
    }
    let made = a.cluster.volumes().into_iter().find(|v| v.path == path);
    a.done(made.map(|v| (link(&v), record(&v, false, None))))
}

/// Handles PATCH of a volume: settings, its name, a split, a restore.
pub fn change(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    const RESTORE: &[&str] = &[
        "restore_to.snapshot.name",
        "restore_to.snapshot.uuid",
        "sizing_method",
    ];
    a.only(RESTORE)?;
    let v = find(a, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let mut restore: [Option<String>; 2] = [None, None];
    for (name, to) in RESTORE.iter().zip(&mut restore) {
        let queried = a.parameter(name).map(str::to_owned);
        *to = fields.text(name)?.or(queried);
    }
    let new_name = fields.text("name")?.filter(|name| *name != v.path.volume);
    let split = fields.flag("clone.split_initiated")?;
    let moves = fields.text("movement.destination_aggregate.name")?;
    let quotas = fields.flag("quota.enabled")?;
    let mut settings = settings(a, &mut fields)?;
    settings.aggregate = settings.aggregate.or(moves);
    fields.fixed(FIXED)?;
    fields.done_of(KNOWN)?;
    let refuse = |failure| Refusal::of_volume(failure);
    if let [Some(_), _] | [_, Some(_)] = &restore {
        let all = a.cluster.snapshots(Some(&v.path));
        let [name, uuid] = &restore;
        let meant = |s: &&Snapshot| {
            name.as_ref().is_none_or(|name| s.name == *name)
                && uuid.as_ref().is_none_or(|uuid| s.uuid == *uuid)
        };
        let snapshot = all.iter().find(meant).ok_or_else(Refusal::no_snapshot)?;
        let change = Change::SnapshotRestore {
            path: v.path.clone(),
            name: snapshot.name.clone(),
        };
        a.cluster.change(change).map_err(refuse)?;
    }
    if settings != Settings::default() {
        let path = v.path.clone();
        let change = Change::VolumeModify { path, settings };
        a.cluster.change(change).map_err(refuse)?;
    }
    switch_quotas(a, &v.path, quotas)?;
    match (split, &v.parent) {
        (None | Some(false), _) => {}
        (Some(true), None) => {
            let why = "the volume is no clone, and depends on no other";
            return Err(Refusal::not_here("clone.split_initiated", why));
        }
        (Some(true), Some(_)) => {
            let change = Change::VolumeSplit(v.path.clone());
            a.cluster.change(change).map_err(refuse)?;
        }
    }
    if let Some(to) = new_name {
        let change = Change::VolumeRename { path: v.path, to };
        a.cluster.change(change).map_err(refuse)?;
    }
    a.done(None)
}

/// Handles DELETE of a volume.
pub fn delete(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&["force"])?;
    let v = find(a, id)?;
    let change = Change::VolumeDelete(v.path);
    a.cluster.change(change).map_err(Refusal::of_volume)?;
    a.done(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_in_all_their_forms() {
        for (given, wanted) in [
            (json!(755), Some(0o755)),
            (json!("0755"), Some(0o755)),
            (json!("---rwxr-x---"), Some(0o750)),
            (json!("rwxrwxrwx"), Some(0o777)),
            (json!(1777), Some(0o1777)),
            (json!("789"), None),
            (json!("rwxrwxrw?"), None),
            (json!(77777), None),
        ] {
            let body = json!({"nas": {"unix_permissions": given}});
            let mut fields = Fields::read(&body).unwrap();
            assert_eq!(mode(&mut fields).ok().flatten(), wanted, "{body}");
        }
        assert_eq!(permissions(0o1755), json!(1755));
    }
}
