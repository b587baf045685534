//! NetApp Volumes: the public API's resources to and from the model.

use crate::backups;
use crate::error::{ApiError, ApiResult};
use crate::fields::{FieldUpdate, Fields, ResourceBuilder, is_set, not_here, required};
use crate::json::{Object, abbreviate};
use crate::mount;
use crate::schema::netapp as schema;
use serde_json::{Value, json};
use weir_control::{
    AccessType, BackupName, CONSTITUENT_LABEL, Constituent, ExportRule, Extra, KerberosRule,
    KerberosRules, Labels, LocationName, NewPool, NewSnapshot, NewVolume, Pool, PoolChange,
    PooledSettings, Presentation, Protocol, QosType, SPAN_LABEL, SecurityStyle, Share, SmbSetting,
    Snapshot, SnapshotChange, SnapshotName, Span, SquashMode, View, Volume, VolumeChange,
};

/// Bytes in a GiB.
const GIB: u64 = 1 << 30;

/// Features that the public API has and this server does not (encryption of traffic,
/// caching, block devices). Their fields would have no effect, so they are refused rather than
/// stored.
const NOT_HERE: [(&str, &str); 4] = [
    (
        "kerberosEnabled",
        "Demand Kerberos by rules of the export policy (kerberos5ReadWrite, …), and leave it out",
    ),
    (
        "cacheParameters",
        "Replicate the other cluster's volume (hybridReplicationParameters), and leave it out",
    ),
    (
        "hybridReplicationParameters",
        "Name the peer when the volume is made, and leave it out here",
    ),
    (
        "blockDevices",
        "Put files on a volume over NFS or SMB, and leave it out",
    ),
];

/// Returns `hybridReplicationParameters` of a new volume, if it has any: the volume is to be a copy
/// of a peer's.
pub fn take_hybrid(body: &mut Object) -> Option<Object> {
    match body.remove("hybridReplicationParameters") {
        Some(Value::Object(said)) if !said.is_empty() => Some(said),
        _ => None,
    }
}

/// Refuses fields of a pool that this server would store without effect. What is left without a
/// meaning here describes where a pool is (`network`, `psaRange`, `zone`).
fn check_pool(f: &Fields) -> ApiResult<()> {
    let one_tier = "there is one tier, on this server's own disk; leave it out";
    let no_directory = "users and groups are the numbers that NFS clients send; leave it out";
    for (field, instead) in [
        ("ldapEnabled", no_directory),
        ("globalAccessAllowed", no_directory),
        (
            "kmsConfig",
            "it does not encrypt what it stores; encrypt the disk below it and leave it out",
        ),
        (
            "replicaZone",
            "a pool is on one server; replicate its volumes to another one (weir volumes replications create) and leave it out",
        ),
        ("allowAutoTiering", one_tier),
        ("hotTierSizeGib", one_tier),
        ("enableHotTierAutoResize", one_tier),
    ] {
        f.refuse(field, is_set, instead)?;
    }
    f.refuse(
        "type",
        |v| v == "UNIFIED",
        "there are no block volumes; leave it out, or say FILE",
    )?;
    f.refuse(
        "mode",
        |v| v == "ONTAP",
        "ONTAP's words reach every pool anyway (weir ontap, /api); leave it out, or say DEFAULT",
    )?;
    f.refuse(
        "scaleType",
        |v| v == "SCALE_TYPE_SCALEOUT",
        "a pool is on one server; leave it out",
    )
}

/// Refuses the fields of a volume that this server cannot have.
fn check_volume(f: &Fields, constituent: bool) -> ApiResult<()> {
    if constituent {
        return check_tiering(f);
    }
    f.refuse(
        "multipleEndpoints",
        is_set,
        "a server has one address; mount with nconnect=16 to spread the load, and leave it out",
    )?;
    f.refuse(
        "largeCapacityConfig",
        is_set,
        "a large volume is one volume here; leave it out",
    )?;
    check_tiering(f)
}

fn check_tiering(f: &Fields) -> ApiResult<()> {
    let tiers = |v: &Value| {
        let on = v.get("tierAction").is_some_and(|a| a == "ENABLED");
        on || v.get("hotTierBypassModeEnabled").is_some_and(is_set)
    };
    f.refuse(
        "tieringPolicy",
        tiers,
        "there is one tier, on this server's own disk; leave it out, or say PAUSED",
    )
}

/// Returns a storage pool on the wire.
pub fn pool(view: &View, p: &Pool) -> Object {
    let f = view.pool_figures(p);
    let mut m = ResourceBuilder::from_extra(&p.extra);
    m.set(
        "name",
        format!("{}/storagePools/{}", p.name.place, p.name.id),
    )
    .set("serviceLevel", &*p.service_level)
    .set("capacityGib", p.capacity_gib)
    .set("volumeCapacityGib", f.volume_capacity_gib)
    .set("volumeCount", f.volume_count)
    .set("state", p.state.as_str())
    .set("stateDetails", p.state_details.as_str())
    .set("createTime", p.created.rfc3339())
    .set("description", p.description.as_str())
    .set("qosType", p.qos_type.as_str())
    // The total is a whole number on the wire; rounding up would report throughput that the pool
    // does not have.
    .set(
        "totalThroughputMibps",
        f.total_throughput_mibps.map(|t| t as i64),
    )
    .set("availableThroughputMibps", f.available_throughput_mibps)
    .set("totalIops", f.total_iops)
    .set("activeDirectory", directory(p))
    .labels(&labels_of(p));
    if p.custom_performance {
        m.set("customPerformanceEnabled", true);
    }
    m.done(&schema::STORAGE_POOL)
}

/// Returns the labels of a pool, with its place in one that spans aggregates.
fn labels_of(p: &Pool) -> Labels {
    let mut labels = p.labels.clone();
    if let Some(span) = p.span {
        labels.insert(SPAN_LABEL.to_owned(), span.to_string());
    }
    labels
}

/// Returns the place in a pool that spans aggregates that a node of the cluster gives to a new one.
fn span_of(f: &Fields) -> ApiResult<Option<Span>> {
    let label = f.get("labels").and_then(|labels| labels.get(SPAN_LABEL));
    let Some(label) = label else {
        return Ok(None);
    };
    let span = label.as_str().and_then(Span::parse);
    let wrong = || format!("Invalid label '{SPAN_LABEL}': nodes of a cluster set it");
    Ok(Some(
        span.ok_or_else(|| ApiError::field("labels", wrong()))?,
    ))
}

/// Returns labels without the place in a pool that spans aggregates.
fn own_labels(mut labels: Labels) -> Labels {
    labels.remove(SPAN_LABEL);
    labels
}

/// Returns the full name of a pool's Active Directory.
fn directory(p: &Pool) -> Option<String> {
    let id = p.active_directory.as_ref()?;
    Some(format!("{}/activeDirectories/{id}", p.name.place))
}

/// Returns the bare id of an Active Directory, which is named in full or by its id.
fn directory_id(place: &LocationName, sent: &str) -> ApiResult<String> {
    in_place(place, sent, "activeDirectories", "activeDirectory")
}

/// Returns a storage pool to be made.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn new_pool(place: &LocationName, body: Object) -> ApiResult<NewPool> {
    let mut f = Fields::new(body);
    check_pool(&f)?;
    let span = span_of(&f)?;
    let directory = f.text("activeDirectory").value();
    let directory = directory.filter(|sent| !sent.is_empty());
    Ok(NewPool {
        service_level: required(f.text("serviceLevel").value(), "serviceLevel")?,
        capacity_gib: required(f.count("capacityGib")?.value(), "capacityGib")?,
        qos_type: f.one_of("qosType", QosType::from_name)?.value(),
        custom_performance: f.flag("customPerformanceEnabled").value().unwrap_or(false),
        total_throughput_mibps: f.count("totalThroughputMibps")?.value().map(|t| t as f64),
        total_iops: f.count("totalIops")?.value(),
        active_directory: directory
            .map(|sent| directory_id(place, &sent))
            .transpose()?,
        span,
        description: f.text("description").value().unwrap_or_default(),
        labels: own_labels(f.labels()?.value().unwrap_or_default()),
        extra: f.rest(),
    })
}

/// Changes to a storage pool, out of what the mask left.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn pool_change(
    place: &LocationName,
    changed: Object,
    current: &Object,
) -> ApiResult<PoolChange> {
    let mut f = Fields::new(changed);
    check_pool(&f)?;
    let directory = match f.text("activeDirectory").or_default() {
        Some(sent) if !sent.is_empty() => Some(directory_id(place, &sent)?),
        other => other,
    };
    f.fixed("customPerformanceEnabled", current)?;
    Ok(PoolChange {
        capacity_gib: f.count("capacityGib")?.kept("capacityGib")?,
        qos_type: f.one_of("qosType", QosType::from_name)?.kept("qosType")?,
        total_throughput_mibps: f
            .count("totalThroughputMibps")?
            .kept("totalThroughputMibps")?
            .map(|t| t as f64),
        total_iops: f.count("totalIops")?.kept("totalIops")?,
        service_level: f.text("serviceLevel").kept("serviceLevel")?,
        active_directory: directory,
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default().map(own_labels),
        extra: f.rest(),
    })
}

/// Returns a volume on the wire. `used` is in bytes; `at` is where it can be mounted from.
pub fn volume(view: &View, v: &Volume, pooled: &PooledSettings, used: Option<u64>) -> Object {
    let pool = view.pool_of(v);
    let mut m = ResourceBuilder::from_extra(&v.extra);
    m.set("name", v.name.to_string())
        .set("state", v.state.as_str())
        .set("stateDetails", v.state_details.as_str())
        .set("createTime", v.created.rfc3339())
        .set("shareName", &*v.share_name)
        .set("storagePool", &*pooled.pool)
        .set("capacityGib", v.capacity_gib)
        .set("description", v.description.as_str())
        .set("snapReserve", v.snap_reserve)
        .set("snapshotPolicy", v.snapshot_policy.clone())
        .set("throughputMibps", pooled.throughput_mibps)
        .set_unless_kept("unixPermissions", format!("{:04o}", v.unix_permissions))
        .labels(&v.labels);
    if let Some(p) = pool {
        m.set("serviceLevel", &*p.service_level);
        m.set("activeDirectory", directory(p));
        for field in [
            "network",
            "psaRange",
            "kmsConfig",
            "ldapEnabled",
            "zone",
            "replicaZone",
        ] {
            m.set(field, p.extra.get(field).cloned().unwrap_or(Value::Null));
        }
    }
    if let Some(used) = used {
        m.set("usedGib", used_gib(used));
    }
    if v.snapshot_directory {
        m.set("snapshotDirectory", true);
    }
    set_large(&mut m, pooled);
    if v.deletion_restricted {
        m.set("restrictedActions", json!(["DELETE"]));
    }
    let protocols: Vec<&str> = v.protocols.iter().map(|p| p.as_str()).collect();
    m.set("protocols", json!(protocols));
    if !v.smb.settings.is_empty() {
        let settings: Vec<&str> = v.smb.settings.iter().map(|s| s.as_str()).collect();
        m.set("smbSettings", json!(settings));
    }
    m.set("securityStyle", v.smb.style.map(SecurityStyle::as_str));
    if let Some(rules) = &v.export_rules {
        let rules: Vec<Value> = rules.iter().map(rule).collect();
        // An empty policy admits no client; that it is there has to be seen.
        m.set("exportPolicy", json!({"rules": rules}));
    }
    if let Some(of) = &v.clone_of {
        m.set(
            "cloneDetails",
            json!({
                "sourceSnapshot": of.to_string(),
                "sourceVolume": of.parent.to_string(),
                "splitState": split_state(v),
            }),
        );
    }
    if let Some(of) = &v.restore_of {
        m.set("restoreParameters", json!({"sourceBackup": of.to_string()}));
    }
    m.set("backupConfig", backups::config(view, v));
    m.set("mountOptions", mount::exports(v));
    m.done(&schema::VOLUME)
}

/// Sets that a volume is a large one, and its number of constituents if it has several.
fn set_large(m: &mut ResourceBuilder, pooled: &PooledSettings) {
    if pooled.large {
        m.set("largeCapacity", true);
    }
    if let Some(constituent) = pooled.constituent {
        let config = json!({"constituentCount": constituent.members});
        m.set("largeCapacityConfig", config);
    }
}

/// Returns bytes in GiB, rounded up, so that only an empty volume is said to hold nothing.
fn used_gib(bytes: u64) -> u64 {
    bytes.div_ceil(GIB)
}

/// Adds to a volume how many bytes it holds.
pub fn set_used(volume: &mut Object, bytes: u64) {
    volume.insert("usedGib".to_owned(), json!(used_gib(bytes)));
}

/// Adds to a volume whether it is an end of a replication.
pub fn set_replicated(volume: &mut Object, replicated: bool) {
    if replicated {
        volume.insert("hasReplication".to_owned(), json!(true));
    }
}

/// Text that the control plane puts into a volume's details when it could not be split.
const SPLITTING_FAILED: &str = "splitting failed";

fn split_state(v: &Volume) -> &'static str {
    if v.splitting {
        "SPLIT_STATE_IN_PROGRESS"
    } else if v.state_details.starts_with(SPLITTING_FAILED) {
        "SPLIT_STATE_FAILED"
    } else {
        "SPLIT_STATE_NOT_SPLITTING"
    }
}

/// Returns the state of splitting a clone.
///
/// # Errors
/// `FAILED_PRECONDITION` for a volume that is no clone, or no more.
pub fn split_status(v: &Volume) -> ApiResult<Object> {
    if v.clone_of.is_none() {
        return Err(ApiError::new(
            weir_control::Status::FailedPrecondition,
            "VOLUME_IS_NO_CLONE",
            format!("volume {} is no clone, and depends on no other", v.name.id),
        ));
    }
    let mut m = ResourceBuilder::default();
    m.set("splitState", split_state(v))
        .set("stateDetails", v.state_details.as_str());
    Ok(m.done(&schema::SPLIT_STATUS))
}

/// Returns a rule's switches of Kerberos that the client sent.
fn kerberos_of(r: &ExportRule) -> [(&'static str, Option<bool>); 6] {
    let KerberosRules { krb5, krb5i, krb5p } = r.kerberos;
    [
        ("kerberos5ReadOnly", krb5.read_only),
        ("kerberos5ReadWrite", krb5.read_write),
        ("kerberos5iReadOnly", krb5i.read_only),
        ("kerberos5iReadWrite", krb5i.read_write),
        ("kerberos5pReadOnly", krb5p.read_only),
        ("kerberos5pReadWrite", krb5p.read_write),
    ]
}

fn rule(r: &ExportRule) -> Value {
    let mut m = ResourceBuilder::from_extra(&r.extra);
    for (field, said) in kerberos_of(r) {
        if let Some(said) = said {
            m.set(field, said);
        }
    }
    m.set_unless_kept("allowedClients", r.allowed_clients.as_str())
        .set("accessType", r.access.map(AccessType::as_str))
        .set_unless_kept("hasRootAccess", r.root_access.map(|b| b.to_string()))
        .set("nfsv3", r.nfsv3)
        .set("nfsv4", r.nfsv4)
        .set("squashMode", r.squash.map(SquashMode::as_str))
        .set("anonUid", r.anon_uid);
    Value::Object(m.done(&schema::SIMPLE_EXPORT_POLICY_RULE))
}

/// Returns the place in a large volume that a node of the cluster gives to a new volume.
fn constituent_of(f: &Fields) -> ApiResult<Option<Constituent>> {
    let label = f
        .get("labels")
        .and_then(|labels| labels.get(CONSTITUENT_LABEL));
    let Some(label) = label else {
        return Ok(None);
    };
    let constituent = label.as_str().and_then(Constituent::parse);
    let wrong = || format!("Invalid label '{CONSTITUENT_LABEL}': nodes of a cluster set it");
    let constituent = constituent.ok_or_else(|| ApiError::field("labels", wrong()))?;
    Ok(Some(constituent))
}

/// Returns a volume to be made.
///
/// # Errors
/// INVALID_ARGUMENT naming the field; FAILED_PRECONDITION for what this server does not have.
pub fn new_volume(place: &LocationName, body: Object) -> ApiResult<NewVolume> {
    let mut f = Fields::new(body);
    for (field, instead) in NOT_HERE {
        f.without(field, instead)?;
    }
    let constituent = constituent_of(&f)?;
    check_volume(&f, constituent.is_some())?;
    let (clone_of, restore_of) = source(place, &mut f)?;
    let (unix_permissions, original) = permissions(&mut f)?;
    let mut new = NewVolume {
        presentation: Presentation::Netapp(PooledSettings {
            pool: pool_id(
                place,
                &required(f.text("storagePool").value(), "storagePool")?,
            )?
            .into(),
            throughput_mibps: f.rate("throughputMibps")?.value().filter(|t| *t > 0.0),
            large: f.flag("largeCapacity").value().unwrap_or(false),
            constituent,
        }),
        share_name: required(f.text("shareName").value(), "shareName")?,
        capacity_gib: required(f.count("capacityGib")?.value(), "capacityGib")?,
        protocols: required(protocols(&mut f)?.value(), "protocols")?,
        export_rules: rules(&mut f)?.value(),
        smb: Share {
            name: None,
            settings: smb_settings(&mut f)?.value().unwrap_or_default(),
            style: f.one_of("securityStyle", SecurityStyle::from_name)?.value(),
        },
        unix_permissions: unix_permissions.value(),
        // Absent is false in the JSON mapping; gcloud says true where its user says nothing.
        snapshot_directory: Some(f.flag("snapshotDirectory").value().unwrap_or(false)),
        snap_reserve: f.rate("snapReserve")?.value(),
        snapshot_policy: f.take("snapshotPolicy").value(),
        backup: backups::take_config(place, &mut f)?.filter(|c| *c != Default::default()),
        deletion_restricted: restricted(&mut f).value().unwrap_or(false),
        clone_of,
        restore_of,
        protection: false,
        assign: Default::default(),
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    };
    new.labels.remove(CONSTITUENT_LABEL);
    new.extra
        .extend(original.into_iter().filter(|(_, v)| !v.is_null()));
    Ok(new)
}

/// Changes to a volume, out of what the mask left.
///
/// # Errors
/// As [`new_volume`].
pub fn volume_change(
    place: &LocationName,
    changed: Object,
    current: &Object,
) -> ApiResult<VolumeChange> {
    let mut f = Fields::new(changed);
    for (field, instead) in NOT_HERE {
        f.without(field, instead)?;
    }
    check_volume(&f, current.contains_key("largeCapacityConfig"))?;
    for field in [
        "shareName",
        "largeCapacity",
        "securityStyle",
        "restoreParameters",
        "largeCapacityConfig",
        "multipleEndpoints",
    ] {
        f.fixed(field, current)?;
    }
    let pool = f.text("storagePool").kept("storagePool")?;
    let (unix_permissions, original) = permissions(&mut f)?;
    let mut change = VolumeChange {
        pool: pool.map(|p| pool_id(place, &p)).transpose()?,
        capacity_gib: f.count("capacityGib")?.kept("capacityGib")?,
        throughput_mibps: f.rate("throughputMibps")?.kept("throughputMibps")?,
        protocols: protocols(&mut f)?.kept("protocols")?,
        export_rules: rules(&mut f)?.or_default(),
        smb_settings: smb_settings(&mut f)?.or_default(),
        unix_permissions: unix_permissions.kept("unixPermissions")?,
        snapshot_directory: f.flag("snapshotDirectory").or_default(),
        snap_reserve: f.rate("snapReserve")?.or_default(),
        snapshot_policy: match f.take("snapshotPolicy") {
            FieldUpdate::Nothing => None,
            FieldUpdate::Clear => Some(Value::Null),
            FieldUpdate::Set(v) => Some(v),
        },
        backup: backups::take_config(place, &mut f)?,
        deletion_restricted: restricted(&mut f).or_default(),
        assign: Default::default(),
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default(),
        extra: f.rest(),
        ..VolumeChange::default()
    };
    change.extra.extend(original);
    Ok(change)
}

/// Returns the bare id of a pool that is named bare or in full; it has to be in the volume's own
/// place.
fn pool_id(place: &LocationName, name: &str) -> ApiResult<String> {
    in_place(place, name, "storagePools", "storagePool")
}

/// Returns the bare id of a resource of a place, which is named bare or in full.
fn in_place(place: &LocationName, name: &str, collection: &str, field: &str) -> ApiResult<String> {
    let here = format!("{place}/{collection}/");
    let id = name.strip_prefix(&here).unwrap_or(name);
    if id.is_empty() || id.contains('/') {
        return Err(ApiError::field(
            field,
            format!(
                "Invalid '{field}' \"{}\": the id of one of {place}/{collection}, or its full name",
                abbreviate(name)
            ),
        ));
    }
    Ok(id.to_owned())
}

/// Reads what a new volume is made of: the snapshot that it is a clone of, or the backup that it is
/// restored from.
fn source(
    place: &LocationName,
    f: &mut Fields,
) -> ApiResult<(Option<SnapshotName>, Option<BackupName>)> {
    let Some(Value::Object(mut from)) = f.take("restoreParameters").value() else {
        return Ok((None, None));
    };
    let mut named = |field: &str| match from.remove(field) {
        Some(Value::String(name)) => Some(name),
        _ => None,
    };
    if let Some(name) = named("sourceBackup") {
        let backup = BackupName::parse(&name).filter(|backup| backup.vault.place == *place);
        return match backup {
            Some(backup) => Ok((None, Some(backup))),
            None => Err(ApiError::field(
                "restoreParameters.sourceBackup",
                format!(
                    "Invalid 'restoreParameters.sourceBackup' \"{}\": the full name of a backup in {place}",
                    abbreviate(&name)
                ),
            )),
        };
    }
    let Some(name) = named("sourceSnapshot") else {
        return Ok((None, None));
    };
    let rest = name.strip_prefix(&format!("{place}/volumes/"));
    match rest.and_then(|r| r.split_once("/snapshots/")) {
        Some((v, s)) if !v.is_empty() && !s.is_empty() && !v.contains('/') && !s.contains('/') => {
            Ok((Some(place.volume(v).snapshot(s)), None))
        }
        _ => Err(ApiError::field(
            "restoreParameters.sourceSnapshot",
            format!(
                "Invalid 'restoreParameters.sourceSnapshot' \"{}\": the full name of a snapshot in {place}",
                abbreviate(&name)
            ),
        )),
    }
}

/// Reads permission bits from octal text, and returns the text itself where it is not the form that
/// they are shown in. What a client sent comes back as it was.
fn permissions(f: &mut Fields) -> ApiResult<(FieldUpdate<u32>, Extra)> {
    const FIELD: &str = "unixPermissions";
    let mut original = Extra::new();
    let said = match f.text(FIELD) {
        FieldUpdate::Nothing => FieldUpdate::Nothing,
        FieldUpdate::Clear => FieldUpdate::Clear,
        FieldUpdate::Set(s) => {
            let digits = s.bytes().all(|b| (b'0'..=b'7').contains(&b)) && s.len() <= 5;
            let bits = u32::from_str_radix(&s, 8)
                .ok()
                .filter(|b| digits && *b <= 0o7777);
            let bits = bits.ok_or_else(|| {
                ApiError::field(
                    FIELD,
                    format!(
                        "Invalid '{FIELD}' \"{}\": octal digits such as 0755",
                        abbreviate(&s)
                    ),
                )
            })?;
            let kept = if s == format!("{bits:04o}") {
                Value::Null
            } else {
                Value::String(s)
            };
            original.insert(FIELD.to_owned(), kept);
            FieldUpdate::Set(bits)
        }
    };
    Ok((said, original))
}

fn protocols(f: &mut Fields) -> ApiResult<FieldUpdate<Vec<Protocol>>> {
    let list = match f.take("protocols") {
        FieldUpdate::Set(Value::Array(list)) if !list.is_empty() => list,
        FieldUpdate::Nothing => return Ok(FieldUpdate::Nothing),
        _ => return Ok(FieldUpdate::Clear),
    };
    let mut out = Vec::new();
    for p in list {
        let name = p.as_str().unwrap_or_default();
        out.push(Protocol::from_name(name).ok_or_else(|| not_here("protocols", name))?);
    }
    Ok(FieldUpdate::Set(out))
}

fn smb_settings(f: &mut Fields) -> ApiResult<FieldUpdate<Vec<SmbSetting>>> {
    let list = match f.take("smbSettings") {
        FieldUpdate::Nothing => return Ok(FieldUpdate::Nothing),
        FieldUpdate::Set(Value::Array(list)) => list,
        _ => return Ok(FieldUpdate::Clear),
    };
    let each = list.iter().map(|setting| {
        let name = setting.as_str().unwrap_or_default();
        SmbSetting::from_name(name).ok_or_else(|| not_here("smbSettings", name))
    });
    Ok(FieldUpdate::Set(each.collect::<ApiResult<_>>()?))
}

fn restricted(f: &mut Fields) -> FieldUpdate<bool> {
    match f.take("restrictedActions") {
        FieldUpdate::Nothing => FieldUpdate::Nothing,
        FieldUpdate::Clear => FieldUpdate::Clear,
        // DELETE is the only action that there is.
        FieldUpdate::Set(v) => FieldUpdate::Set(v.as_array().is_some_and(|a| !a.is_empty())),
    }
}

fn rules(f: &mut Fields) -> ApiResult<FieldUpdate<Vec<ExportRule>>> {
    let mut policy = match f.take("exportPolicy") {
        FieldUpdate::Nothing => return Ok(FieldUpdate::Nothing),
        FieldUpdate::Set(Value::Object(o)) => o,
        _ => return Ok(FieldUpdate::Clear),
    };
    let list = match policy.remove("rules") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let mut out = Vec::with_capacity(list.len());
    for (i, r) in list.into_iter().enumerate() {
        let object = match r {
            Value::Object(o) => o,
            _ => Object::new(),
        };
        out.push(one_rule(i, object)?);
    }
    Ok(FieldUpdate::Set(out))
}

fn one_rule(i: usize, object: Object) -> ApiResult<ExportRule> {
    let at = |field: &str| format!("exportPolicy.rules[{i}].{field}");
    let mut f = Fields::new(object);
    let mut extra = Extra::new();
    let mut kind = |read_only, read_write| KerberosRule {
        read_only: f.flag(read_only).value(),
        read_write: f.flag(read_write).value(),
    };
    let kerberos = KerberosRules {
        krb5: kind("kerberos5ReadOnly", "kerberos5ReadWrite"),
        krb5i: kind("kerberos5iReadOnly", "kerberos5iReadWrite"),
        krb5p: kind("kerberos5pReadOnly", "kerberos5pReadWrite"),
    };
    let root_access = match f.text("hasRootAccess").value() {
        None => None,
        Some(s) => {
            let b = match s.to_ascii_lowercase().as_str() {
                "true" => true,
                "false" => false,
                _ => {
                    return Err(ApiError::field(
                        at("hasRootAccess"),
                        format!(
                            "Invalid '{}' \"{}\": true or false",
                            at("hasRootAccess"),
                            abbreviate(&s)
                        ),
                    ));
                }
            };
            if s != b.to_string() {
                extra.insert("hasRootAccess".to_owned(), Value::String(s));
            }
            Some(b)
        }
    };
    let rule = ExportRule {
        allowed_clients: f.text("allowedClients").value().unwrap_or_default(),
        access: f.one_of("accessType", AccessType::from_name)?.value(),
        kerberos,
        root_access,
        nfsv3: f.flag("nfsv3").value(),
        nfsv4: f.flag("nfsv4").value(),
        squash: f.one_of("squashMode", SquashMode::from_name)?.value(),
        anon_uid: id(&at("anonUid"), f.take("anonUid"))?,
        anon_gid: None,
        extra,
    };
    Ok(rule)
}

/// Returns a user or group id: 32 bits, unsigned.
pub fn id(field: &str, said: FieldUpdate<Value>) -> ApiResult<Option<u32>> {
    match said.value() {
        None => Ok(None),
        Some(v) => match v.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) => Ok(Some(n)),
            None => Err(ApiError::field(
                field,
                format!("Invalid '{field}' {v}: 0 to {}", u32::MAX),
            )),
        },
    }
}

/// Returns a snapshot on the wire. `used` is in bytes.
pub fn snapshot(s: &Snapshot, used: Option<u64>) -> Object {
    let mut m = ResourceBuilder::from_extra(&s.extra);
    m.set("name", s.name.to_string())
        .set("state", s.state.as_str())
        .set("stateDetails", s.state_details.as_str())
        .set("createTime", s.created.rfc3339())
        .set("description", s.description.as_str())
        .set("usedBytes", used.map(|u| u as f64))
        .labels(&s.labels);
    m.done(&schema::SNAPSHOT)
}

/// Returns a snapshot to be taken; the same for both APIs.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn new_snapshot(body: Object) -> ApiResult<NewSnapshot> {
    let mut f = Fields::new(body);
    Ok(NewSnapshot {
        schedule: None,
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    })
}

/// Changes to a snapshot's description; the same for both APIs.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn snapshot_change(changed: Object) -> ApiResult<SnapshotChange> {
    let mut f = Fields::new(changed);
    Ok(SnapshotChange {
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default(),
        extra: f.rest(),
    })
}
