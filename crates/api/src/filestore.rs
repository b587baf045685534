//! Filestore: the public API's resources to and from the model.

use crate::backups::described;
use crate::error::{ApiError, ApiResult};
use crate::fields::{FieldUpdate, Fields, ResourceBuilder, is_set, required};
use crate::json::{Object, abbreviate};
use crate::netapp::id;
use crate::schema::filestore as schema;
use serde_json::{Value, json};
use weir_control::{
    AccessType, Backup, BackupName, DescriptionChange, ExportRule, Extra, KerberosRules,
    LocationName, NewBackup, NewVolume, Performance, Presentation, Protocol, Snapshot, SquashMode,
    State, Status, Surface, TieredSettings, View, Volume, VolumeChange, VolumeName, figures,
};

/// The clients of an option that has no addresses: all of them.
const EVERYONE: &str = "*";

/// Features that the public API has and this server does not.
const NOT_HERE: [(&str, &str); 2] = [
    (
        "replication",
        "Replicate volumes of NetApp Volumes (weir volumes replications create), and leave it out",
    ),
    (
        "directoryServices",
        "Users are the numbers that NFS clients send; leave it out",
    ),
];

/// Returns an instance on the wire. `ip` is where its share can be mounted from.
pub fn instance(view: &View, i: &Volume, tiered: &TieredSettings) -> Object {
    let mut m = ResourceBuilder::from_extra(&i.extra);
    let state = match i.state {
        State::Creating => "CREATING",
        State::Deleting => "DELETING",
        State::Restoring => "REVERTING",
        State::Error => "ERROR",
        // A change keeps an instance ready: the public API has no name for it.
        State::Ready | State::Updating => "READY",
    };
    m.set("name", i.name.to_string())
        .set("state", state)
        .set("statusMessage", i.state_details.as_str())
        .set("createTime", i.created.rfc3339())
        .set("description", i.description.as_str())
        .set("tier", &*tiered.tier)
        .set("protocol", i.protocols.first().copied().map(protocol_name))
        .set("etag", etag(i.revision))
        .set("fileShares", json!([share(i)]))
        .set("capacityGb", i.capacity_gib)
        .set("networks", networks(i))
        .set("performanceConfig", tiered.performance.map(performance))
        .set("exportPaths", export_paths(i))
        .labels(&i.labels);
    if let Some(l) = figures::tier_figures(&view.levels, i) {
        m.set(
            "performanceLimits",
            json!({
                "maxIops": l.read_iops.max(l.write_iops),
                "maxReadIops": l.read_iops,
                "maxWriteIops": l.write_iops,
                "maxReadThroughputBps": l.read_bps,
                "maxWriteThroughputBps": l.write_bps,
            }),
        );
    }
    if view
        .levels
        .tier(&tiered.tier)
        .is_some_and(|t| !t.custom_performance.is_empty())
    {
        m.set("customPerformanceSupported", true);
    }
    if i.deletion_restricted {
        m.set("deletionProtectionEnabled", true);
    }
    m.done(&schema::INSTANCE)
}

/// Returns the etag of a revision.
pub fn etag(revision: u64) -> String {
    format!("{revision:016x}")
}

fn protocol_name(p: Protocol) -> &'static str {
    match p {
        Protocol::Nfsv4 => "NFS_V4_1",
        _ => "NFS_V3",
    }
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "NFS_V3" => Some(Protocol::Nfsv3),
        "NFS_V4_1" => Some(Protocol::Nfsv4),
        _ => None,
    }
}

fn performance(p: Performance) -> Value {
    match p {
        Performance::IopsPerTb(n) => json!({"iopsPerTb": {"maxIopsPerTb": n}}),
        Performance::FixedIops(n) => json!({"fixedIops": {"maxIops": n}}),
    }
}

/// Returns the networks with the instance's own address. Those of an instance at the server's
/// address have none: [`crate::mount::reach`] completes them.
fn networks(i: &Volume) -> Value {
    let mut networks = match i.extra.get("networks") {
        Some(Value::Array(all)) if !all.is_empty() => all.clone(),
        _ => vec![json!({})],
    };
    if let Some(own) = i.own_address() {
        for network in networks.iter_mut().filter_map(Value::as_object_mut) {
            network.insert("ipAddresses".to_owned(), json!([own.to_string()]));
        }
    }
    Value::Array(networks)
}

/// Returns the paths that lead to the share at the instance's address, the one that is always its
/// own first.
fn export_paths(i: &Volume) -> Vec<String> {
    match i.own_address() {
        Some(_) => vec![format!("/{}", i.share_name)],
        None => i.paths.iter().map(|path| format!("/{path}")).collect(),
    }
}

fn share(i: &Volume) -> Value {
    let mut m = ResourceBuilder::default();
    m.set("name", &*i.share_name)
        .set("capacityGb", i.capacity_gib)
        .set(
            "sourceBackup",
            i.restore_of.as_ref().map(ToString::to_string),
        );
    if let Some(rules) = &i.export_rules {
        let options: Vec<Value> = rules.iter().map(option).collect();
        m.set("nfsExportOptions", options);
    }
    Value::Object(m.done(&schema::FILE_SHARE_CONFIG))
}

fn option(r: &ExportRule) -> Value {
    let mut m = ResourceBuilder::from_extra(&r.extra);
    if r.allowed_clients != EVERYONE {
        let ranges: Vec<&str> = r.allowed_clients.split(',').collect();
        m.set("ipRanges", json!(ranges));
    }
    m.set("accessMode", r.access.map(AccessType::as_str))
        .set("squashMode", r.squash.map(SquashMode::as_str))
        .set("anonUid", r.anon_uid)
        .set("anonGid", r.anon_gid);
    Value::Object(m.done(&schema::NFS_EXPORT_OPTIONS))
}

/// Refuses a key of a key service, which this server would store without effect.
fn check_key(f: &Fields, field: &str) -> ApiResult<()> {
    f.refuse(
        field,
        is_set,
        "it does not encrypt what it stores; encrypt the disk below it and leave it out",
    )
}

/// Returns an instance to be made.
///
/// # Errors
/// INVALID_ARGUMENT naming the field; FAILED_PRECONDITION for what this server does not have.
pub fn new_instance(place: &LocationName, body: Object) -> ApiResult<NewVolume> {
    let mut f = Fields::new(body);
    for (field, instead) in NOT_HERE {
        f.without(field, instead)?;
    }
    check_key(&f, "kmsKeyName")?;
    f.take("etag");
    let mut share = required(one_share(f.take("fileShares"))?, "fileShares")?;
    let restore_of = source_backup(place, &mut share)?;
    let tier = required(f.text("tier").value(), "tier")?;
    Ok(NewVolume {
        share_name: required(share.text("name").value(), "fileShares[0].name")?,
        capacity_gib: required(
            capacity(f.count("capacityGb")?.value(), &mut share)?,
            "fileShares[0].capacityGb",
        )?,
        protocols: f
            .one_of("protocol", protocol)?
            .value()
            .into_iter()
            .collect(),
        export_rules: options(&mut share)?,
        presentation: Presentation::Filestore(TieredSettings {
            tier: tier.into(),
            performance: config(&mut f)?.value(),
            address: None,
        }),
        deletion_restricted: f.flag("deletionProtectionEnabled").value().unwrap_or(false),
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        restore_of,
        extra: f.rest(),
        ..NewVolume::default()
    })
}

/// Changes to an instance, out of what the mask left. `sent` is the whole body: its etag counts
/// whatever the mask says.
///
/// # Errors
/// As [`new_instance`]; ABORTED: the etag is of no revision.
pub fn instance_change(
    changed: Object,
    sent_etag: Option<&str>,
    current: &Object,
) -> ApiResult<VolumeChange> {
    let mut f = Fields::new(changed);
    for (field, instead) in NOT_HERE {
        f.without(field, instead)?;
    }
    check_key(&f, "kmsKeyName")?;
    f.take("etag");
    for field in ["tier", "protocol", "kmsKeyName"] {
        f.fixed(field, current)?;
    }
    let mut change = VolumeChange {
        if_revision: match sent_etag.filter(|e| !e.is_empty()) {
            None => None,
            Some(e) => Some(u64::from_str_radix(e, 16).map_err(|_| stale())?),
        },
        performance: match config(&mut f)? {
            FieldUpdate::Nothing => None,
            FieldUpdate::Clear => Some(None),
            FieldUpdate::Set(p) => Some(Some(p)),
        },
        deletion_restricted: f.flag("deletionProtectionEnabled").or_default(),
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default(),
        ..VolumeChange::default()
    };
    // The fields that were read are sent back beside a share that has changed.
    let now = current.get("capacityGb").and_then(Value::as_u64);
    let whole = f.count("capacityGb")?.kept("capacityGb")?;
    let whole = whole.filter(|gb| Some(*gb) != now);
    match f.take("fileShares") {
        FieldUpdate::Nothing => change.capacity_gib = whole,
        said => {
            let mut share = required(one_share(said)?, "fileShares")?;
            let now = current
                .get("fileShares")
                .and_then(|s| s.get(0))
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            if let FieldUpdate::Set(name) = share.text("sourceBackup")
                && now.get("sourceBackup").and_then(Value::as_str) != Some(name.as_str())
            {
                return Err(fixed("fileShares[0].sourceBackup"));
            }
            if let FieldUpdate::Set(name) = share.text("name")
                && now.get("name").and_then(Value::as_str) != Some(name.as_str())
            {
                return Err(fixed("fileShares[0].name"));
            }
            change.capacity_gib = capacity(whole, &mut share)?;
            // Options that are not sent stay: proto3 cannot distinguish "none" from "not said".
            // Taking "not said" for "none" would open the share to everyone whenever it is grown.
            change.export_rules = options(&mut share)?;
        }
    }
    change.extra = f.rest();
    Ok(change)
}

/// Returns the capacity of the one share, which v1beta1 has for the instance as well.
fn capacity(whole: Option<u64>, share: &mut Fields) -> ApiResult<Option<u64>> {
    match (whole, share.count("capacityGb")?.value()) {
        (Some(whole), Some(share)) if whole != share => Err(ApiError::field(
            "capacityGb",
            format!(
                "'capacityGb' is {whole} and 'fileShares[0].capacityGb' is {share}; the one share of an instance has all of it"
            ),
        )),
        (whole, share) => Ok(share.or(whole)),
    }
}

fn fixed(field: &str) -> Box<ApiError> {
    let why = format!("'{field}' cannot be changed once the instance exists");
    ApiError::field(field, why)
}

/// Reads the backup that a new share is restored from.
fn source_backup(place: &LocationName, share: &mut Fields) -> ApiResult<Option<BackupName>> {
    let sent = share.text("sourceBackup").value();
    let Some(sent) = sent.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let name = BackupName::parse_of_instance(&sent);
    match name.filter(|name| name.vault.place.project == place.project) {
        Some(name) => Ok(Some(name)),
        None => Err(full_name_error(
            place,
            "fileShares[0].sourceBackup",
            &sent,
            "backups",
        )),
    }
}

/// Creates the error of a field that is not the full name of one of the project's.
fn full_name_error(
    place: &LocationName,
    field: &str,
    sent: &str,
    collection: &str,
) -> Box<ApiError> {
    let (sent, project) = (abbreviate(sent), &place.project);
    ApiError::field(
        field,
        format!(
            "Invalid '{field}' \"{sent}\": projects/{project}/locations/LOCATION/{collection}/NAME"
        ),
    )
}

fn stale() -> Box<ApiError> {
    ApiError::new(
        Status::Aborted,
        "ETAG_MISMATCH",
        "The etag is not that of the instance as it is now; read it again and repeat the change",
    )
}

fn one_share(said: FieldUpdate<Value>) -> ApiResult<Option<Fields>> {
    let Some(Value::Array(list)) = said.value() else {
        return Ok(None);
    };
    let count = list.len();
    let mut list = list.into_iter();
    match (list.next(), list.next()) {
        (Some(Value::Object(o)), None) => {
            // `Fields` leaves names out, since resources are named by their path; a share is named
            // by its field.
            let name = o.get("name").cloned();
            let mut f = Fields::new(o);
            if let Some(name) = name {
                f.put("name", name);
            }
            Ok(Some(f))
        }
        _ => Err(ApiError::field(
            "fileShares",
            format!("{count} entries in 'fileShares'; an instance has exactly one"),
        )),
    }
}

fn config(f: &mut Fields) -> ApiResult<FieldUpdate<Performance>> {
    let mut c = match f.take("performanceConfig") {
        FieldUpdate::Nothing => return Ok(FieldUpdate::Nothing),
        FieldUpdate::Set(Value::Object(o)) => o,
        _ => return Ok(FieldUpdate::Clear),
    };
    let mut inner = |group: &str, field: &str| -> ApiResult<Option<u64>> {
        match c.remove(group) {
            Some(Value::Object(o)) => {
                let path = format!("performanceConfig.{group}.{field}");
                let n = Fields::new(o).count(field)?.value();
                Ok(Some(required(n, &path)?))
            }
            _ => Ok(None),
        }
    };
    let per_tb = inner("iopsPerTb", "maxIopsPerTb")?.map(Performance::IopsPerTb);
    let fixed = inner("fixedIops", "maxIops")?.map(Performance::FixedIops);
    Ok(per_tb
        .or(fixed)
        .map_or(FieldUpdate::Clear, FieldUpdate::Set))
}

fn options(share: &mut Fields) -> ApiResult<Option<Vec<ExportRule>>> {
    let list = match share.take("nfsExportOptions").value() {
        Some(Value::Array(list)) if !list.is_empty() => list,
        _ => return Ok(None),
    };
    let mut out = Vec::with_capacity(list.len());
    for (i, o) in list.into_iter().enumerate() {
        let at = |field: &str| format!("fileShares[0].nfsExportOptions[{i}].{field}");
        let object = match o {
            Value::Object(o) => o,
            _ => Object::new(),
        };
        let mut f = Fields::new(object);
        let mut extra = Extra::new();
        let ranges: Vec<String> = match f.take("ipRanges").value() {
            Some(Value::Array(a)) => a
                .into_iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        };
        if let Some(bad) = ranges
            .iter()
            .find(|r| r.contains(',') || r.trim().is_empty())
        {
            return Err(ApiError::field(
                at("ipRanges"),
                format!(
                    "Invalid '{}' \"{bad}\": one address or network in each",
                    at("ipRanges")
                ),
            ));
        }
        let clients = if ranges.is_empty() {
            EVERYONE.to_owned()
        } else {
            ranges.join(",")
        };
        if clients == EVERYONE && !ranges.is_empty() {
            extra.insert("ipRanges".to_owned(), json!(ranges));
        }
        let squash = f.one_of("squashMode", SquashMode::from_name)?.value();
        let (anon_uid, anon_gid) = (
            id(&at("anonUid"), f.take("anonUid"))?,
            id(&at("anonGid"), f.take("anonGid"))?,
        );
        // The public API's rule.
        if squash != Some(SquashMode::RootSquash) && (anon_uid.is_some() || anon_gid.is_some()) {
            return Err(ApiError::field(
                at("anonUid"),
                format!(
                    "'{}' and anonGid can only be set with ROOT_SQUASH",
                    at("anonUid")
                ),
            ));
        }
        out.push(ExportRule {
            allowed_clients: clients,
            access: f.one_of("accessMode", access)?.value(),
            kerberos: KerberosRules::default(),
            // Filestore's default is that root stays root.
            root_access: None,
            nfsv3: None,
            nfsv4: None,
            squash,
            anon_uid,
            anon_gid,
            extra,
        });
    }
    Ok(Some(out))
}

fn access(name: &str) -> Option<AccessType> {
    AccessType::from_name(name).filter(|a| *a != AccessType::ReadNone)
}

/// Returns a snapshot of an instance on the wire. `used` is in bytes.
pub fn snapshot(s: &Snapshot, used: Option<u64>) -> Object {
    let mut m = ResourceBuilder::from_extra(&s.extra);
    let state = match s.state {
        State::Creating => "CREATING",
        State::Deleting => "DELETING",
        _ => "READY",
    };
    m.set("name", s.name.to_string())
        .set("state", state)
        .set("createTime", s.created.rfc3339())
        .set("description", s.description.as_str())
        .set("filesystemUsedBytes", used)
        .labels(&s.labels);
    m.done(&schema::SNAPSHOT)
}

/// Returns a backup of an instance on the wire.
pub fn backup(b: &Backup) -> Object {
    let mut m = ResourceBuilder::from_extra(&b.extra);
    let state = match b.state {
        State::Creating => "CREATING",
        State::Deleting => "DELETING",
        State::Error => "INVALID",
        _ => "READY",
    };
    m.set("name", b.name.to_string())
        .set("state", state)
        .set("stateDetails", b.state_details.as_str())
        .set("createTime", b.created.rfc3339())
        .set("sourceInstance", b.source.to_string())
        .set("storageBytes", b.uploaded)
        .set("downloadBytes", b.bytes)
        .set("description", b.description.as_str())
        .labels(&b.labels);
    m.done(&schema::BACKUP)
}

/// Returns a backup to be made. What it says of its instance is noted, because the instance may go.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn new_backup(view: &View, place: &LocationName, body: Object) -> ApiResult<NewBackup> {
    const SOURCE: &str = "sourceInstance";
    let mut f = Fields::new(body);
    check_key(&f, "kmsKey")?;
    let sent = required(f.text(SOURCE).value(), SOURCE)?;
    let source = VolumeName::parse(&sent).filter(|source| {
        source.surface == Surface::Filestore && source.place.project == place.project
    });
    let source = source.ok_or_else(|| full_name_error(place, SOURCE, &sent, "instances"))?;
    let share = f.text("sourceFileShare").value();
    if let Some(instance) = view.volume(&source) {
        f.put("sourceFileShare", json!(*instance.share_name));
        f.put("capacityGb", json!(instance.capacity_gib));
        if let Presentation::Filestore(tiered) = &instance.presentation {
            f.put("sourceInstanceTier", json!(*tiered.tier));
        }
        // An instance that names none has the API's default.
        let protocol = instance.protocols.first().copied();
        let protocol = protocol_name(protocol.unwrap_or(Protocol::Nfsv3));
        f.put("fileSystemProtocol", json!(protocol));
    }
    Ok(NewBackup {
        source,
        snapshot: None,
        schedule: None,
        share: share.filter(|share| !share.is_empty()),
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    })
}

/// Changes to a backup, out of what the mask left.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn backup_change(changed: Object, current: &Object) -> ApiResult<DescriptionChange> {
    let mut f = Fields::new(changed);
    check_key(&f, "kmsKey")?;
    for field in ["sourceInstance", "sourceFileShare", "kmsKey"] {
        f.fixed(field, current)?;
    }
    described(f)
}
