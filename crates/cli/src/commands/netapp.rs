//! Storage pools, volumes, snapshots.

use serde_json::{Value, json};

use super::steps::{Body, Tables, delete, last, list, open, open_named, own};
use super::{moves, replications};
use crate::Environment;
use crate::args::{
    Async, BackupFilesRestore, FileFind, FileNamed, FileRestore, PoolCreate, PoolUpdate,
    QuotaRules, ResourceArgs, Schedules, Snapshots, StoragePools, VolumeClone, VolumeCreate,
    VolumeDelete, VolumeFields, VolumeUpdate, Volumes,
};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::http::Method;
use crate::mount;
use crate::session::{Change, Io, Session};
use crate::values::Dict;

/// Collection of vaults.
pub(super) const BACKUP_VAULTS: &str = "backupVaults";
/// Collection of policies of backups.
pub(super) const BACKUP_POLICIES: &str = "backupPolicies";
const POOLS: &str = "table(name.basename():label=STORAGE_POOL_NAME:sort=1,
    name.segment(3):label=LOCATION, serviceLevel, capacityGib, network, state, volumeCapacityGib)";

const OWN_POOLS: &str = "table(name.basename():label=STORAGE_POOL_NAME:sort=1,
    name.segment(3):label=LOCATION, serviceLevel, capacityGib, volumeCapacityGib,
    spaceStatus.usedBytes.size():label=USED, spaceStatus.physicalSizeBytes.size():label=PHYSICAL_SIZE,
    spaceStatus.physicalFreeBytes.size():label=PHYSICAL_FREE,
    spaceStatus.overcommitRatio:label=OVERCOMMIT, state)";

const OWN_VOLUMES: &str = "table(name.basename():label=VOLUME_NAME:sort=1,
    name.segment(3):label=LOCATION, storagePool, capacityGib,
    spaceStatus.usedBytes.size():label=USED, spaceStatus.freeBytes.size():label=FREE,
    serviceLevel, shareName, state)";

const OWN_SNAPSHOTS: &str = "table(name.basename():label=SNAPSHOT_NAME:sort=1,
    createTime.date(), usedBytes.size():label=USED, state, description)";

const QUOTA_RULES: &str = "table(name.basename():label=QUOTA_RULE_NAME:sort=1, type, target,
    diskLimitMib:label=DISK_LIMIT_MIB, state)";

const VERSIONS: &str = "table(firstSnapshot, lastSnapshot, snapshotCount:label=SNAPSHOTS, type,
    sizeBytes.size():label=SIZE, modifyTime.date():label=MODIFIED, inLiveVolume:label=LIVE)";

const VOLUMES: &str = "table(name.basename():label=VOLUME_NAME:sort=1,
    name.segment(3):label=LOCATION, storagePool, capacityGib:label=CAPACITY_GB, serviceLevel,
    shareName, state)";

/// Runs `weir storage-pools` and its verbs.
pub fn pools(
    command: &StoragePools,
    tables: Tables,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    match command {
        StoragePools::List(args) => list(
            args,
            "storagePools",
            &tables.pick(OWN_POOLS, POOLS)?,
            environment,
            io,
        ),
        StoragePools::Describe(named) => {
            let mut s = open_named(named, environment, io)?;
            let name = s.name("storagePools", &named.name)?;
            s.describe(&name)
        }
        StoragePools::Create(args) => {
            create_pool(args, &mut open_named(&args.named, environment, io)?)
        }
        StoragePools::Update(args) => {
            update_pool(args, &mut open_named(&args.named, environment, io)?)
        }
        StoragePools::Delete(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("storagePools", &args.named.name)?;
            s.confirm_change(
                args.wait,
                &format!("You are about to delete a Storage Pool {name}."),
            )?;
            delete(&mut s, name, Vec::new(), args.wait, "storage pool")
        }
        StoragePools::Switch(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("storagePools", &args.named.name)?;
            let done = format!("Switched storage pool [{}].", last(&name));
            act(&mut s, &name, "switch", json!({}), args.wait, done)
        }
        StoragePools::Execute(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("storagePools", &args.named.name)?;
            let path = format!("{name}/ontap/api/private/cli");
            let body = json!({"body": {"input": args.line}});
            let answer = s.call(Method::Post, &path, &[], Some(&body))?;
            s.print(&answer, &Format::plain(Kind::Yaml))
        }
    }
}

fn create_pool(args: &PoolCreate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name("storagePools", &args.named.name)?;
    let mut body = Body::default();
    body.set("serviceLevel", Some(args.service_level.as_str()));
    s.warn(args.capacity.1.as_deref())?;
    body.int64("capacityGib", Some(args.capacity.0));
    body.set("qosType", args.qos_type.as_deref());
    body.set("network", args.network.text("name"));
    body.set("psaRange", args.network.text("psa-range"));
    body.set(
        "activeDirectory",
        directory(s, args.active_directory.as_deref())?,
    );
    body.words(&args.words);
    body.set("customPerformanceEnabled", args.custom_performance_enabled);
    body.int64("totalThroughputMibps", args.total_throughput.map(|t| t.0));
    body.int64("totalIops", args.total_iops);
    create(s, &name, "storagePoolId", body, args.wait, "storage pool")
}

/// Returns the full name of an Active Directory; empty: none.
fn directory(s: &Session<'_, '_>, name: Option<&str>) -> Result<Option<String>, Error> {
    match name {
        Some(name) if !name.is_empty() => s.name("activeDirectories", name).map(Some),
        other => Ok(other.map(str::to_owned)),
    }
}

/// Creates a resource of a full name.
pub(super) fn create(
    s: &mut Session<'_, '_>,
    name: &str,
    id: &'static str,
    mut body: Body,
    wait: Async,
    what: &str,
) -> Result<(), Error> {
    body.set("name", Some(name));
    let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
    s.change(Change {
        method: Method::Post,
        name: parent.to_owned(),
        query: vec![(id, last(name).to_owned())],
        body: Some(Value::Object(body.0)),
        wait,
        done: format!("Created {what} [{}].", last(name)),
        format: &Format::plain(Kind::None),
    })
}

/// Changes the fields of a body.
pub(super) fn update(
    s: &mut Session<'_, '_>,
    name: String,
    mut body: Body,
    wait: Async,
    what: &str,
) -> Result<(), Error> {
    let mask = body.mask()?;
    body.set("name", Some(name.as_str()));
    s.change(Change {
        method: Method::Patch,
        done: format!("Updated {what} [{}].", last(&name)),
        name,
        query: vec![("updateMask", mask)],
        body: Some(Value::Object(body.0)),
        wait,
        format: &Format::plain(Kind::None),
    })
}

/// Calls a custom method of a resource.
pub(super) fn act(
    s: &mut Session<'_, '_>,
    name: &str,
    verb: &str,
    body: Value,
    wait: Async,
    done: String,
) -> Result<(), Error> {
    s.change(Change {
        method: Method::Post,
        name: format!("{name}:{verb}"),
        query: Vec::new(),
        body: Some(body),
        wait,
        done,
        format: &Format::plain(Kind::None),
    })
}

fn update_pool(args: &PoolUpdate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name("storagePools", &args.named.name)?;
    let current = s.get(&name)?;
    let mut body = Body::default();
    s.warn(args.capacity.as_ref().and_then(|c| c.1.as_deref()))?;
    body.int64("capacityGib", args.capacity.as_ref().map(|c| c.0));
    body.set("qosType", args.qos_type.as_deref());
    body.set(
        "activeDirectory",
        directory(s, args.active_directory.as_deref())?,
    );
    body.changed_words(&current, &args.words);
    body.int64("totalThroughputMibps", args.total_throughput.map(|t| t.0));
    body.int64("totalIops", args.total_iops);
    update(s, name, body, args.wait, "storage pool")
}

/// Runs `weir volumes` and its verbs.
pub fn volumes(
    command: &Volumes,
    tables: Tables,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    match command {
        Volumes::List(args) => list(
            args,
            "volumes",
            &tables.pick(OWN_VOLUMES, VOLUMES)?,
            environment,
            io,
        ),
        Volumes::Describe(named) => {
            let mut s = open_named(named, environment, io)?;
            let name = s.name("volumes", &named.name)?;
            s.describe(&name)
        }
        Volumes::Create(args) => {
            create_volume(args, &mut open_named(&args.named, environment, io)?)
        }
        Volumes::Update(args) => {
            update_volume(args, &mut open_named(&args.named, environment, io)?)
        }
        Volumes::Delete(args) => delete_volume(args, environment, io),
        Volumes::Revert(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("volumes", &args.named.name)?;
            s.confirm_change(
                args.wait,
                &format!(
                    "You are about to revert Volume {name} back to Snapshot {}.",
                    args.snapshot
                ),
            )?;
            s.change(Change {
                method: Method::Post,
                done: format!("Reverted volume [{}].", last(&name)),
                name: format!("{name}:revert"),
                query: Vec::new(),
                body: Some(json!({"snapshotId": last(&args.snapshot)})),
                wait: args.wait,
                format: &Format::plain(Kind::None),
            })
        }
        Volumes::Clone(args) => clone_volume(args, &mut open_named(&args.named, environment, io)?),
        Volumes::Split(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("volumes", &args.named.name)?;
            let done = format!("Split volume [{}].", last(&name));
            act(
                &mut s,
                &name,
                "startSplit",
                json!({"name": name}),
                args.wait,
                done,
            )
        }
        Volumes::Move(args) => moves::run(args, environment, io),
        Volumes::RestoreBackupFiles(args) => restore_backup_files(args, environment, io),
        Volumes::MountHelp(named) => mount_help(named, environment, io),
        Volumes::Snapshots { command } => snapshots(command, tables, environment, io),
        Volumes::QuotaRules { command } => quota_rules(command, environment, io),
        Volumes::Replications { command } => replications::run(command, environment, io),
    }
}

/// Copies files of a backup into a volume.
fn restore_backup_files(
    args: &BackupFilesRestore,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let mut s = open_named(&args.named, environment, io)?;
    let name = s.name("volumes", &args.named.name)?;
    let body = json!({
        "backup": s.name("backups", &args.backup)?,
        "fileList": args.file_list.0,
        "restoreDestinationPath": args.restore_destination_path,
    });
    let done = format!("Restored files into volume [{}].", last(&name));
    act(&mut s, &name, "restore", body, args.wait, done)
}

fn delete_volume(
    args: &VolumeDelete,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let mut s = open_named(&args.named, environment, io)?;
    let name = s.name("volumes", &args.named.name)?;
    s.confirm_change(
        args.wait,
        &format!("You are about to delete a Volume [{name}]."),
    )?;
    delete(
        &mut s,
        name,
        vec![("force", args.force.to_string())],
        args.wait,
        "volume",
    )
}

/// Prints the commands that mount a volume.
fn mount_help(
    named: &ResourceArgs,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let mut s = open_named(named, environment, io)?;
    let name = s.name("volumes", &named.name)?;
    let volume = s.get(&name)?;
    let help = mount::help(&volume).ok_or_else(|| {
        Error::Other(format!(
            "Volume [{}] has no NFS export to mount yet (its state: {}).",
            last(&name),
            volume
                .get("state")
                .map(crate::format::text)
                .unwrap_or_default()
        ))
    })?;
    match named.common.is_json() {
        true => s.put_json(&json!({"name": name, "help": help})),
        false => s.put(&help),
    }
}

fn create_volume(args: &VolumeCreate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name("volumes", &args.named.name)?;
    let mut body = Body::default();
    body.set("storagePool", Some(args.storage_pool.as_str()));
    s.warn(args.capacity.1.as_deref())?;
    body.int64("capacityGib", Some(args.capacity.0));
    body.set("protocols", Some(json!(args.protocols.0)));
    body.set("shareName", Some(args.share_name.as_str()));
    fields(&args.fields, &mut body)?;
    // gcloud's default.
    body.set(
        "snapshotDirectory",
        Some(args.fields.snapshot_directory.unwrap_or(true)),
    );
    body.set("labels", args.labels.as_ref().map(|labels| json!(labels)));
    let source = |snapshot: &String| json!({"sourceSnapshot": snapshot});
    body.set(
        "restoreParameters",
        args.source_snapshot.as_ref().map(source),
    );
    let backup = args.source_backup.as_ref();
    let backup = backup.map(|backup| json!({"sourceBackup": backup}));
    body.set("restoreParameters", backup);
    if let Some(config) = &args.fields.backup_config {
        body.set("backupConfig", Some(backup_config(s, config)?));
    }
    body.set("largeCapacity", args.large_capacity);
    let peer = args.hybrid_replication_parameters.as_ref();
    body.set(
        "hybridReplicationParameters",
        peer.map(|peer| Value::Object(peer.0.clone())),
    );
    body.set("multipleEndpoints", args.multiple_endpoints);
    create(s, &name, "volumeId", body, args.wait, "volume")
}

fn update_volume(args: &VolumeUpdate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name("volumes", &args.named.name)?;
    let current = s.get(&name)?;
    let mut body = Body::default();
    body.set("storagePool", args.storage_pool.as_deref());
    s.warn(args.capacity.as_ref().and_then(|c| c.1.as_deref()))?;
    body.int64("capacityGib", args.capacity.as_ref().map(|c| c.0));
    body.set("protocols", args.protocols.as_ref().map(|p| json!(p.0)));
    body.set("shareName", args.share_name.as_deref());
    fields(&args.fields, &mut body)?;
    let policy = current.get("snapshotPolicy");
    let policy = policy.filter(|_| !args.clear_snapshot_schedules);
    match (body.0.remove("snapshotPolicy"), policy) {
        (Some(new), Some(old)) => body.set("snapshotPolicy", Some(merge_values(old, new))),
        (Some(new), None) => body.set("snapshotPolicy", Some(new)),
        (None, _) if args.clear_snapshot_schedules => {
            body.set("snapshotPolicy", Some(json!({"enabled": false})));
        }
        (None, _) => {}
    }
    if let Some(config) = &args.fields.backup_config {
        let new = backup_config(s, config)?;
        let before = current
            .get("backupConfig")
            .cloned()
            .unwrap_or_else(|| json!({}));
        body.set("backupConfig", Some(merge_values(&before, new)));
    }
    body.set("labels", Session::labels(&current, &args.labels));
    update(s, name, body, args.wait, "volume")
}

/// Returns a volume's `backupConfig` out of the flag of that name.
fn backup_config(s: &Session<'_, '_>, args: &Dict) -> Result<Value, Error> {
    let mut out = Body::default();
    if let Some(policies) = args.text("backup-policies") {
        let names = policies.split('#').filter(|name| !name.is_empty());
        let names: Result<Vec<String>, Error> =
            names.map(|name| s.name(BACKUP_POLICIES, name)).collect();
        out.set("backupPolicies", Some(json!(names?)));
    }
    if let Some(vault) = args.text("backup-vault") {
        let vault = match vault.is_empty() {
            true => vault,
            false => s.name(BACKUP_VAULTS, &vault)?,
        };
        out.set("backupVault", Some(vault));
    }
    let enabled = args.boolean("enable-scheduled-backups")?;
    out.set("scheduledBackupEnabled", enabled);
    Ok(Value::Object(out.0))
}

/// Returns an object with what another one sets, at any depth. A schedule that is not named stays,
/// and so does what is not said of one that is.
fn merge_values(old: &Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut merged = old.clone();
            for (key, value) in new {
                let value = match merged.get(&key) {
                    Some(before) => merge_values(before, value),
                    None => value,
                };
                merged.insert(key, value);
            }
            Value::Object(merged)
        }
        (_, new) => new,
    }
}

/// Fields that a clone takes over from the volume that it is made from, besides its data.
const INHERITED: &[&str] = &[
    "capacityGib",
    "exportPolicy",
    "largeCapacity",
    "protocols",
    "securityStyle",
    "smbSettings",
    "snapReserve",
    "snapshotDirectory",
    "storagePool",
    "unixPermissions",
];

fn clone_volume(args: &VolumeClone, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name("volumes", &args.named.name)?;
    let source = s.name("volumes", &args.source_volume)?;
    let current = s.get(&source)?;
    let mut body = Body::default();
    for field in INHERITED {
        body.set(field, current.get(*field).cloned());
    }
    let share = args.share_name.as_deref().unwrap_or(last(&name));
    body.set("shareName", Some(share));
    body.set("storagePool", args.storage_pool.as_deref());
    s.warn(args.capacity.as_ref().and_then(|c| c.1.as_deref()))?;
    body.int64("capacityGib", args.capacity.as_ref().map(|c| c.0));
    body.set("throughputMibps", args.throughput_mibps);
    body.words(&args.words);
    let snapshot = match &args.source_snapshot {
        Some(snapshot) if snapshot.starts_with("projects/") => s.name("snapshots", snapshot)?,
        Some(snapshot) => format!("{source}/snapshots/{snapshot}"),
        None => {
            let id = format!("clone-{}", last(&name));
            let taken = s.call(
                Method::Post,
                &format!("{source}/snapshots"),
                &[("snapshotId", id.clone())],
                Some(&json!({"description": format!("what volume {} began with", last(&name))})),
            )?;
            s.finish(taken)?;
            s.say(&format!("Created snapshot [{id}]."))?;
            format!("{source}/snapshots/{id}")
        }
    };
    body.set(
        "restoreParameters",
        Some(json!({"sourceSnapshot": snapshot})),
    );
    create(s, &name, "volumeId", body, args.wait, "volume")
}

fn fields(args: &VolumeFields, body: &mut Body) -> Result<(), Error> {
    if args
        .throughput_mibps
        .is_some_and(|t| !t.is_finite() || t < 0.0)
    {
        return Err(Error::Usage(
            "argument --throughput-mibps: a throughput is a positive number".to_owned(),
        ));
    }
    body.set("throughputMibps", args.throughput_mibps);
    if !args.export_policy.is_empty() {
        let rules: Result<Vec<Value>, String> = args.export_policy.iter().map(rule).collect();
        body.set("exportPolicy", Some(json!({"rules": rules?})));
    }
    body.set("unixPermissions", args.unix_permissions.as_deref());
    body.set("snapshotDirectory", args.snapshot_directory);
    body.set("snapshotPolicy", schedules(&args.schedules)?);
    body.set("snapReserve", args.snap_reserve);
    body.set("securityStyle", args.security_style.as_deref());
    body.set("kerberosEnabled", args.enable_kerberos);
    body.set(
        "smbSettings",
        args.smb_settings.as_ref().map(|l| json!(l.0)),
    );
    body.set(
        "restrictedActions",
        args.restricted_actions.as_ref().map(|l| json!(l.0)),
    );
    body.set("description", args.description.as_deref());
    Ok(())
}

/// Returns a rule of an export policy.
fn rule(rule: &Dict) -> Result<Value, String> {
    let mut out = Body::default();
    for (key, field) in crate::args::RULE_KEYS {
        match *key {
            "allowed-clients" => out.set(field, rule.text(key)),
            "has-root-access" => out.set(field, rule.text(key).map(|t| t.to_lowercase())),
            "access-type" | "squash-mode" => {
                let value = rule.text(key).map(|t| crate::values::enumerator(&t));
                out.set(field, value.transpose()?);
            }
            "anon-uid" => out.int64(field, rule.integer(key)?),
            _ => out.set(field, rule.boolean(key)?),
        }
    }
    Ok(Value::Object(out.0))
}

fn schedules(args: &Schedules) -> Result<Option<Value>, String> {
    let mut policy = Body::default();
    for (name, schedule) in [
        ("hourlySchedule", &args.snapshot_hourly),
        ("dailySchedule", &args.snapshot_daily),
        ("weeklySchedule", &args.snapshot_weekly),
        ("monthlySchedule", &args.snapshot_monthly),
    ] {
        let Some(schedule) = schedule else { continue };
        let mut out = Body::default();
        out.set("snapshotsToKeep", schedule.integer("snapshots-to-keep")?);
        out.set("minute", schedule.integer("minute")?);
        out.set("hour", schedule.integer("hour")?);
        let day = if name == "monthlySchedule" {
            "daysOfMonth"
        } else {
            "day"
        };
        out.set(day, schedule.text("day"));
        policy.set(name, Some(Value::Object(out.0)));
    }
    if policy.0.is_empty() {
        return Ok(None);
    }
    policy.set("enabled", Some(true));
    Ok(Some(Value::Object(policy.0)))
}

/// Returns the full name of a volume.
pub(super) fn of_volume(
    s: &Session<'_, '_>,
    volume: Option<&String>,
    to: &str,
) -> Result<String, Error> {
    let volume = volume.ok_or_else(|| {
        Error::Usage(format!(
            "Missing required argument [--volume]: Requires a volume to {to}"
        ))
    })?;
    s.name("volumes", volume)
}

/// Returns the full name of something in a volume.
pub(super) fn in_volume(
    s: &Session<'_, '_>,
    volume: Option<&String>,
    to: &str,
    collection: &str,
    named: &ResourceArgs,
) -> Result<String, Error> {
    if named.name.starts_with("projects/") {
        return s.name(collection, &named.name);
    }
    let volume = of_volume(s, volume, to)?;
    // For the check of the name alone.
    s.name(collection, &named.name)?;
    Ok(format!("{volume}/{collection}/{}", named.name))
}

fn snapshots(
    command: &Snapshots,
    tables: Tables,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    if let Snapshots::List(args) = command {
        let mut s = open(&args.listed.common, &args.listed.at, environment, io)?;
        let volume = of_volume(&s, args.volume.as_ref(), "list snapshots of")?;
        let format = match tables {
            Tables::Own => own(OWN_SNAPSHOTS)?,
            Tables::Gcloud => Format::plain(Kind::Yaml),
        };
        return s.list(&volume, "snapshots", &args.listed.listing, &format);
    }
    let (snapshot, verb) = match command {
        Snapshots::Find(args) => return find_file(args, environment, io),
        Snapshots::RestoreFile(args) => return restore_file(args, environment, io),
        Snapshots::Create(args) => (&args.snapshot, "create snapshot of"),
        Snapshots::Describe(args) => (args, "describe snapshot of"),
        Snapshots::Update(args) => (&args.snapshot, "update snapshot of"),
        Snapshots::Rename(args) => (&args.snapshot, "rename snapshot of"),
        Snapshots::Delete(args) => (&args.snapshot, "delete snapshot of"),
        Snapshots::List(_) => return Ok(()),
    };
    let mut s = open_named(&snapshot.named, environment, io)?;
    let volume = snapshot.volume.as_ref();
    let name = in_volume(&s, volume, verb, "snapshots", &snapshot.named)?;
    match command {
        Snapshots::Create(args) => {
            let mut body = Body::default();
            body.words(&args.words);
            create(&mut s, &name, "snapshotId", body, args.wait, "snapshot")
        }
        Snapshots::Update(args) => {
            let current = s.get(&name)?;
            let mut body = Body::default();
            body.changed_words(&current, &args.words);
            update(&mut s, name, body, args.wait, "snapshot")
        }
        Snapshots::Rename(args) => {
            let to = last(&args.new_name);
            let body = json!({"newSnapshotId": to});
            let done = format!("Renamed snapshot [{}] to [{to}].", last(&name));
            act(&mut s, &name, "rename", body, args.wait, done)
        }
        Snapshots::Delete(args) => {
            s.confirm_change(
                args.wait,
                &format!("You are about to delete a Snapshot {name}."),
            )?;
            delete(&mut s, name, Vec::new(), args.wait, "snapshot")
        }
        Snapshots::Find(_)
        | Snapshots::RestoreFile(_)
        | Snapshots::Describe(_)
        | Snapshots::List(_) => s.describe(&name),
    }
}

fn quota_rules(
    command: &QuotaRules,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let (rule, verb) = match command {
        QuotaRules::List(args) => {
            let mut s = open(&args.listed.common, &args.listed.at, environment, io)?;
            let volume = of_volume(&s, args.volume.as_ref(), "list quota rules of")?;
            return s.list(
                &volume,
                "quotaRules",
                &args.listed.listing,
                &own(QUOTA_RULES)?,
            );
        }
        QuotaRules::Create(args) => (&args.rule, "create quota rule of"),
        QuotaRules::Describe(args) => (args, "describe quota rule of"),
        QuotaRules::Update(args) => (&args.rule, "update quota rule of"),
        QuotaRules::Delete(args) => (&args.rule, "delete quota rule of"),
    };
    let mut s = open_named(&rule.named, environment, io)?;
    let name = in_volume(&s, rule.volume.as_ref(), verb, "quotaRules", &rule.named)?;
    match command {
        QuotaRules::Create(args) => {
            let mut body = Body::default();
            body.set("type", Some(args.r#type.as_str()));
            body.set("target", args.target.as_deref());
            body.set("diskLimitMib", Some(args.disk_limit_mib));
            body.words(&args.words);
            create(&mut s, &name, "quotaRuleId", body, args.wait, "quota rule")
        }
        QuotaRules::Update(args) => {
            let current = s.get(&name)?;
            let mut body = Body::default();
            body.set("diskLimitMib", args.disk_limit_mib);
            body.changed_words(&current, &args.words);
            update(&mut s, name, body, args.wait, "quota rule")
        }
        QuotaRules::Delete(args) => {
            s.confirm_change(
                args.wait,
                &format!("You are about to delete a Quota Rule {name}."),
            )?;
            delete(&mut s, name, Vec::new(), args.wait, "quota rule")
        }
        QuotaRules::Describe(_) | QuotaRules::List(_) => s.describe(&name),
    }
}

/// Returns the field of a request that has a file's path, and its value: text, or base64 of what is
/// no text.
fn path_field(file: &FileNamed) -> (&'static str, String) {
    use base64::Engine as _;
    use std::os::unix::ffi::OsStrExt as _;
    match file.path.to_str() {
        Some(text) => ("path", text.to_owned()),
        None => {
            let bytes = file.path.as_bytes();
            let text = base64::engine::general_purpose::STANDARD.encode(bytes);
            ("pathBytes", text)
        }
    }
}

/// Lists the versions of a file over a volume's snapshots, newest first.
fn find_file(args: &FileFind, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let file = &args.file;
    let mut s = open(&file.common, &file.at, environment, io)?;
    let name = s.name("volumes", &file.volume)?;
    let path = [path_field(file)];
    let found = s.call(Method::Get, &format!("{name}:findFile"), &path, None)?;
    if file.common.is_json() {
        return s.put_json(&found);
    }
    let versions = found.get("versions").and_then(Value::as_array);
    let versions = versions.map_or(&[][..], Vec::as_slice);
    let counts = versions
        .iter()
        .filter_map(|v| v.get("snapshotCount")?.as_u64());
    let now = match found.get("live") {
        Some(_) => "is in the volume",
        None => "is not in the volume",
    };
    s.say(&format!(
        "{} {now}, and in {} of {} snapshots.",
        found
            .get("path")
            .map(crate::format::text)
            .unwrap_or_default(),
        counts.sum::<u64>(),
        found
            .get("searchedSnapshots")
            .map(crate::format::text)
            .unwrap_or_default(),
    ))?;
    if let Some(omitted) = found.get("omittedVersions") {
        s.warn(Some(&format!(
            "{} older versions are not shown.",
            crate::format::text(omitted)
        )))?;
    }
    s.print_all(versions, &own(VERSIONS)?)
}

/// Copies a file of a snapshot back into its volume.
fn restore_file(
    args: &FileRestore,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let file = &args.file;
    let mut s = open(&file.common, &file.at, environment, io)?;
    let name = s.name("volumes", &file.volume)?;
    let (field, path) = path_field(file);
    if args.overwrite && !args.validate_only {
        s.confirm(&format!(
            "You are about to replace {} by its version of Snapshot {}.",
            file.path.to_string_lossy(),
            args.snapshot
        ))?;
    }
    let mut body = Body::default();
    body.set("snapshot", Some(args.snapshot.as_str()));
    body.set(field, Some(path));
    body.set("inPlace", args.in_place.then_some(true));
    body.set("overwrite", args.overwrite.then_some(true));
    let body = Value::Object(body.0);
    let path = format!("{name}:restoreFile");
    if args.validate_only {
        return s.validate_only(Method::Post, &path, Vec::new(), Some(body));
    }
    let done = s.call(Method::Post, &path, &[], Some(&body))?;
    let restored = done
        .get("path")
        .map(crate::format::text)
        .unwrap_or_default();
    s.say(&format!(
        "Restored [{restored}] from snapshot [{}].",
        last(&args.snapshot)
    ))?;
    s.print(&done, &Format::plain(Kind::None))
}
