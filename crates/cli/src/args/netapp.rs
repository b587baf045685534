//! `gcloud netapp`: storage pools, volumes, snapshots, operations, locations.

#![allow(rustdoc::broken_intra_doc_links)] // Brackets in help texts enclose what may be left out.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::json;

use super::common::{
    Async, At, Common, DeleteOne, LabelChanges, ListArgs, Listing, ResourceArgs, WordChanges, Words,
};
use super::replications::Replications;
use crate::values::{self, Capacity, Dict, List, Mibps};

/// `weir storage-pools`
#[derive(Debug, Subcommand)]
pub enum StoragePools {
    /// Create a storage pool
    Create(Box<PoolCreate>),
    /// List storage pools
    List(ListArgs),
    /// Show a storage pool
    Describe(ResourceArgs),
    /// Change a storage pool
    Update(Box<PoolUpdate>),
    /// Delete a storage pool that has no volumes
    Delete(DeleteOne),
    /// Have a regional Flex pool served from its other zone
    Switch(DeleteOne),
    /// Run a line of ONTAP's command language at the pool
    Execute(PoolExecute),
}

/// `weir storage-pools execute`
#[derive(Debug, Args)]
pub struct PoolExecute {
    #[command(flatten)]
    pub named: ResourceArgs,
    /// The line, such as 'snapmirror show'
    #[arg(value_name = "COMMAND")]
    pub line: String,
}

/// `weir storage-pools create`
#[derive(Debug, Args)]
pub struct PoolCreate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The capacity, in GiB or with a unit (2TiB)
    #[arg(long, value_name = "CAPACITY", value_parser = values::capacity)]
    pub capacity: Capacity,
    /// standard, premium, extreme, flex, or a level of the server's own
    #[arg(long, value_name = "SERVICE_LEVEL", value_parser = values::enumerator)]
    pub service_level: String,
    /// auto: a volume's throughput follows its capacity; manual: it is set for each volume
    #[arg(long, value_name = "QOS_TYPE", value_parser = values::enumerator)]
    pub qos_type: Option<String>,
    /// name=NETWORK[,psa-range=RANGE]; kept for clients that read it
    #[arg(long, value_name = "NETWORK", default_value = "name=default", value_parser = network)]
    pub network: Dict,
    /// The Active Directory that users of its volumes with SMB are of
    #[arg(long, value_name = "ACTIVE_DIRECTORY")]
    pub active_directory: Option<String>,
    #[command(flatten)]
    pub words: Words,
    /// Throughput and IOPS apart from capacity (flex)
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub custom_performance_enabled: Option<bool>,
    /// Throughput of the pool, in MiB/s or with a unit (custom performance)
    #[arg(long, value_name = "THROUGHPUT", value_parser = values::mibps)]
    pub total_throughput: Option<Mibps>,
    /// IOPS of the pool (custom performance)
    #[arg(long, value_name = "IOPS")]
    pub total_iops: Option<u64>,
}

fn network(text: &str) -> Result<Dict, String> {
    let network = values::dict(text)?.only(&["name", "psa-range"])?;
    network.required("name")?;
    Ok(network)
}

/// `weir storage-pools update`
#[derive(Debug, Args)]
pub struct PoolUpdate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The capacity, in GiB or with a unit (2TiB)
    #[arg(long, value_name = "CAPACITY", value_parser = values::capacity)]
    pub capacity: Option<Capacity>,
    /// manual: throughput is set for each volume from now on
    #[arg(long, value_name = "QOS_TYPE", value_parser = values::enumerator)]
    pub qos_type: Option<String>,
    /// The Active Directory that users of its volumes with SMB are of; empty: none
    #[arg(long, value_name = "ACTIVE_DIRECTORY")]
    pub active_directory: Option<String>,
    #[command(flatten)]
    pub words: WordChanges,
    /// Throughput of the pool, in MiB/s or with a unit (custom performance)
    #[arg(long, value_name = "THROUGHPUT", value_parser = values::mibps)]
    pub total_throughput: Option<Mibps>,
    /// IOPS of the pool (custom performance)
    #[arg(long, value_name = "IOPS")]
    pub total_iops: Option<u64>,
}

/// `weir volumes`
#[derive(Debug, Subcommand)]
pub enum Volumes {
    /// Create a volume
    Create(Box<VolumeCreate>),
    /// List volumes
    List(ListArgs),
    /// Show a volume
    Describe(ResourceArgs),
    /// Change a volume, online: capacity, throughput, pool, export policy, …
    Update(Box<VolumeUpdate>),
    /// Delete a volume and what is in it
    Delete(VolumeDelete),
    /// Set a volume back to a snapshot
    Revert(VolumeRevert),
    /// Make a volume out of another one's snapshot: writable at once, whatever its size
    Clone(Box<VolumeClone>),
    /// Copy what a clone shares with the volume that it was made from, so that neither depends on
    /// the other
    Split(VolumeSplit),
    /// Move a volume to another aggregate of the cluster while clients use it
    Move(VolumeMove),
    /// Copy files of a backup into a volume; none replaces what is there
    RestoreBackupFiles(BackupFilesRestore),
    /// Print how to mount a volume
    MountHelp(ResourceArgs),
    /// Snapshots of volumes
    Snapshots {
        /// Command to run
        #[command(subcommand)]
        command: Snapshots,
    },
    /// Limits of what users and groups hold in a volume
    QuotaRules {
        /// Command to run
        #[command(subcommand)]
        command: QuotaRules,
    },
    /// Replications of volumes
    Replications {
        /// Command to run
        #[command(subcommand)]
        command: Replications,
    },
}

/// Fields of a volume that creation and change have in common.
#[derive(Debug, Args)]
pub struct VolumeFields {
    /// Limit of the throughput in MiB/s (pools with manual QoS)
    #[arg(long, value_name = "MIBPS")]
    pub throughput_mibps: Option<f64>,
    /// Clients that may mount it, in order (repeat for several rules):
    /// allowed-clients=ADDRESS|NETWORK|HOST,…[,access-type=READ_ONLY|READ_WRITE|READ_NONE]
    /// [,has-root-access=true|false][,nfsv3=BOOLEAN][,nfsv4=BOOLEAN][,squash-mode=MODE]
    /// [,anon-uid=UID]
    #[arg(long, value_name = "RULE", value_parser = export_rule)]
    pub export_policy: Vec<Dict>,
    /// Permissions of its root folder, in octal
    #[arg(long, value_name = "MODE")]
    pub unix_permissions: Option<String>,
    /// Show .snapshot to clients
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub snapshot_directory: Option<bool>,
    #[command(flatten)]
    pub schedules: Schedules,
    /// Scheduled backups: [backup-policies=POLICY],[backup-vault=VAULT]
    /// [,enable-scheduled-backups=BOOLEAN]
    #[arg(long, value_name = "BACKUP_CONFIG", value_parser = backup_config)]
    pub backup_config: Option<Dict>,
    /// Per cent of the capacity that live data may not use
    #[arg(long, value_name = "PERCENT")]
    pub snap_reserve: Option<f64>,
    /// unix or ntfs
    #[arg(long, value_name = "STYLE", value_parser = values::enumerator)]
    pub security_style: Option<String>,
    /// Use Kerberos
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub enable_kerberos: Option<bool>,
    /// Settings of SMB, such as browsable,show_snapshot
    #[arg(long, value_name = "SETTING", value_parser = values::enumerators)]
    pub smb_settings: Option<List>,
    /// Actions that are refused: delete
    #[arg(long, value_name = "ACTION", value_parser = values::enumerators)]
    pub restricted_actions: Option<List>,
    /// A description
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
}

/// Snapshots that are made by themselves.
#[derive(Debug, Args)]
pub struct Schedules {
    /// Every hour: snapshots-to-keep=N[,minute=M]
    #[arg(long, value_name = "SCHEDULE", value_parser = hourly)]
    pub snapshot_hourly: Option<Dict>,
    /// Every day: snapshots-to-keep=N[,minute=M][,hour=H]
    #[arg(long, value_name = "SCHEDULE", value_parser = daily)]
    pub snapshot_daily: Option<Dict>,
    /// Every week: snapshots-to-keep=N[,minute=M][,hour=H][,day=DAY]
    #[arg(long, value_name = "SCHEDULE", value_parser = weekly)]
    pub snapshot_weekly: Option<Dict>,
    /// Every month: snapshots-to-keep=N[,minute=M][,hour=H][,day=1,15]
    #[arg(long, value_name = "SCHEDULE", value_parser = weekly)]
    pub snapshot_monthly: Option<Dict>,
}

/// The keys of a rule of an export policy and the fields that they are.
pub(crate) const RULE_KEYS: &[(&str, &str)] = &[
    ("access-type", "accessType"),
    ("allowed-clients", "allowedClients"),
    ("anon-uid", "anonUid"),
    ("has-root-access", "hasRootAccess"),
    ("kerberos-5-read-only", "kerberos5ReadOnly"),
    ("kerberos-5-read-write", "kerberos5ReadWrite"),
    ("kerberos-5i-read-only", "kerberos5iReadOnly"),
    ("kerberos-5i-read-write", "kerberos5iReadWrite"),
    ("kerberos-5p-read-only", "kerberos5pReadOnly"),
    ("kerberos-5p-read-write", "kerberos5pReadWrite"),
    ("nfsv3", "nfsv3"),
    ("nfsv4", "nfsv4"),
    ("squash-mode", "squashMode"),
];

fn export_rule(text: &str) -> Result<Dict, String> {
    let keys: Vec<&str> = RULE_KEYS.iter().map(|(key, _)| *key).collect();
    let rule = values::dict(text)?.only(&keys)?;
    for key in keys
        .iter()
        .filter(|k| k.starts_with("kerberos") || k.starts_with("nfs"))
    {
        rule.boolean(key)?;
    }
    rule.integer("anon-uid")?;
    Ok(rule)
}

fn backup_config(text: &str) -> Result<Dict, String> {
    let keys = [
        "backup-policies",
        "backup-vault",
        "enable-scheduled-backups",
    ];
    let config = values::dict(text)?.only(&keys)?;
    config.boolean("enable-scheduled-backups")?;
    Ok(config)
}

fn schedule(text: &str, keys: &[&str]) -> Result<Dict, String> {
    let schedule = values::dict(text)?.only(keys)?;
    for key in ["snapshots-to-keep", "minute", "hour"] {
        schedule.integer(key)?;
    }
    Ok(schedule)
}

fn hourly(text: &str) -> Result<Dict, String> {
    schedule(text, &["snapshots-to-keep", "minute"])
}

fn daily(text: &str) -> Result<Dict, String> {
    schedule(text, &["snapshots-to-keep", "minute", "hour"])
}

fn weekly(text: &str) -> Result<Dict, String> {
    schedule(text, &["snapshots-to-keep", "minute", "hour", "day"])
}

/// `weir volumes create`
#[derive(Debug, Args)]
pub struct VolumeCreate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The capacity, in GiB or with a unit (2TiB)
    #[arg(long, value_name = "CAPACITY", value_parser = values::capacity)]
    pub capacity: Capacity,
    /// The pool to make it in
    #[arg(long, value_name = "STORAGE_POOL")]
    pub storage_pool: String,
    /// nfsv3, nfsv4, smb, or several
    #[arg(long, value_name = "PROTOCOL,…", value_parser = values::protocols)]
    pub protocols: List,
    /// The name under which clients mount it
    #[arg(long, value_name = "SHARE_NAME")]
    pub share_name: String,
    #[command(flatten)]
    pub fields: VolumeFields,
    /// Labels, KEY=VALUE,…
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::labels)]
    pub labels: Option<BTreeMap<String, String>>,
    /// Fill it with a snapshot (full name)
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "source_backup")]
    pub source_snapshot: Option<String>,
    /// Fill it with a backup (full name)
    #[arg(long, value_name = "BACKUP")]
    pub source_backup: Option<String>,
    /// A large volume: up to 30 GiB/s
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub large_capacity: Option<bool>,
    /// Several addresses to mount it from (large volumes)
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub multiple_endpoints: Option<bool>,
    /// Make it a copy of another node's volume: replication=ID,peer-cluster-name=NAME,
    /// peer-svm-name=SVM,peer-volume-name=VOLUME[,peer-ip-addresses=HOST:PORT]
    /// [,replication-schedule=SCHEDULE][,description=TEXT]
    #[arg(long, value_name = "PARAMETERS", value_parser = hybrid)]
    pub hybrid_replication_parameters: Option<Dict>,
}

const HYBRID: &[(&str, &str)] = &[
    ("replication", "replication"),
    ("peer-cluster-name", "peerClusterName"),
    ("peer-svm-name", "peerSvmName"),
    ("peer-volume-name", "peerVolumeName"),
    ("replication-schedule", "replicationSchedule"),
    ("description", "description"),
    ("peer-ip-addresses", "peerIpAddresses"),
];

/// Reads the parameters of a hybrid replication into the API's message.
fn hybrid(text: &str) -> Result<Dict, String> {
    let keys: Vec<&str> = HYBRID.iter().map(|(key, _)| *key).collect();
    let given = values::dict(text)?.only(&keys)?;
    let mut message = serde_json::Map::new();
    for (key, field) in HYBRID {
        let text = match *key {
            "description" | "replication-schedule" | "peer-ip-addresses" => given.text(key),
            _ => Some(given.required(key)?),
        };
        let Some(text) = text else { continue };
        let value = match *key {
            "replication-schedule" => json!(values::enumerator(&text)?),
            "peer-ip-addresses" => json!([text]),
            _ => json!(text),
        };
        message.insert((*field).to_owned(), value);
    }
    Ok(Dict(message))
}

/// `weir volumes update`
#[derive(Debug, Args)]
pub struct VolumeUpdate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The capacity, in GiB or with a unit (2TiB)
    #[arg(long, value_name = "CAPACITY", value_parser = values::capacity)]
    pub capacity: Option<Capacity>,
    /// Another pool to move it to, online
    #[arg(long, value_name = "STORAGE_POOL")]
    pub storage_pool: Option<String>,
    /// nfsv3, nfsv4, smb, or several
    #[arg(long, value_name = "PROTOCOL,…", value_parser = values::protocols)]
    pub protocols: Option<List>,
    /// The name under which clients mount it
    #[arg(long, value_name = "SHARE_NAME")]
    pub share_name: Option<String>,
    #[command(flatten)]
    pub fields: VolumeFields,
    /// Take no snapshots by schedules any more, but those given here; what they took stays
    #[arg(long)]
    pub clear_snapshot_schedules: bool,
    #[command(flatten)]
    pub labels: LabelChanges,
}

/// `weir volumes delete`
#[derive(Debug, Args)]
pub struct VolumeDelete {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// Delete its snapshots as well
    #[arg(long)]
    pub force: bool,
}

/// `weir volumes revert`
#[derive(Debug, Args)]
pub struct VolumeRevert {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    pub snapshot: String,
}

/// `weir volumes clone`
#[derive(Debug, Args)]
pub struct VolumeClone {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The volume to copy
    #[arg(long, value_name = "VOLUME")]
    pub source_volume: String,
    /// Its snapshot to begin with; without one, a snapshot is taken
    #[arg(long, value_name = "SNAPSHOT")]
    pub source_snapshot: Option<String>,
    /// The name under which clients mount it; the volume's own unless given
    #[arg(long, value_name = "SHARE_NAME")]
    pub share_name: Option<String>,
    /// The pool to make it in; the other volume's unless given
    #[arg(long, value_name = "STORAGE_POOL")]
    pub storage_pool: Option<String>,
    /// The capacity, in GiB or with a unit (2TiB); the other volume's unless given
    #[arg(long, value_name = "CAPACITY", value_parser = values::capacity)]
    pub capacity: Option<Capacity>,
    /// Limit of the throughput in MiB/s (pools with manual QoS)
    #[arg(long, value_name = "MIBPS")]
    pub throughput_mibps: Option<f64>,
    #[command(flatten)]
    pub words: Words,
}

/// `weir volumes split`
#[derive(Debug, Args)]
pub struct VolumeSplit {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
}

/// `weir volumes move`
#[derive(Debug, Args)]
pub struct VolumeMove {
    #[command(flatten)]
    pub named: ResourceArgs,
    /// The storage pool or the aggregate that gets it
    #[arg(long, value_name = "POOL|AGGREGATE", required_unless_present_any = ["abort", "show"])]
    pub to: Option<String>,
    /// End the move: the volume stays
    #[arg(long, conflicts_with_all = ["to", "show"])]
    pub abort: bool,
    /// Show how far the move is
    #[arg(long, conflicts_with = "to")]
    pub show: bool,
    /// Do not wait for the end of the move
    #[arg(long, conflicts_with_all = ["abort", "show"])]
    pub r#async: bool,
}

/// `weir volumes restore-backup-files`
#[derive(Debug, Args)]
pub struct BackupFilesRestore {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The backup (full name)
    #[arg(long, value_name = "BACKUP")]
    pub backup: String,
    /// Files of the backup's volume, by their paths from its root on
    #[arg(long, value_name = "PATH,…", value_parser = values::list)]
    pub file_list: List,
    /// Directory of the volume that gets them, from its root on
    #[arg(long, value_name = "PATH")]
    pub restore_destination_path: String,
}

/// `weir volumes snapshots`
#[derive(Debug, Subcommand)]
pub enum Snapshots {
    /// Create a snapshot
    Create(SnapshotCreate),
    /// List the snapshots of a volume
    List(SnapshotList),
    /// Show a snapshot
    Describe(SnapshotNamed),
    /// Change a snapshot's labels or description
    Update(SnapshotUpdate),
    /// Give a snapshot another name; a schedule's is then kept until it is deleted
    Rename(SnapshotRename),
    /// Delete a snapshot
    Delete(SnapshotDelete),
    /// Find the snapshots that have a file, and its versions in them
    Find(FileFind),
    /// Copy a file of a snapshot back into the volume, as NAME.from-SNAPSHOT beside the original
    RestoreFile(FileRestore),
}

/// A file of a volume.
#[derive(Debug, Args)]
pub struct FileNamed {
    /// The volume, or its full name
    #[arg(value_name = "VOLUME")]
    pub volume: String,
    /// The file's path from the volume's root on
    #[arg(value_name = "PATH")]
    pub path: std::ffi::OsString,
    #[command(flatten)]
    pub at: At,
    #[command(flatten)]
    pub common: Common,
}

/// `weir volumes snapshots find`
#[derive(Debug, Args)]
pub struct FileFind {
    #[command(flatten)]
    pub file: FileNamed,
}

/// `weir volumes snapshots restore-file`
#[derive(Debug, Args)]
pub struct FileRestore {
    #[command(flatten)]
    pub file: FileNamed,
    /// The snapshot to take it from
    #[arg(long, value_name = "SNAPSHOT")]
    pub snapshot: String,
    /// Restore it under its own name, if no file has that now
    #[arg(long)]
    pub in_place: bool,
    /// Restore it under its own name, over the file that has it now
    #[arg(long)]
    pub overwrite: bool,
    /// Check the restore and print the file it would make; change nothing
    #[arg(long)]
    pub validate_only: bool,
}

/// A snapshot.
#[derive(Debug, Args)]
pub struct SnapshotNamed {
    #[command(flatten)]
    pub named: ResourceArgs,
    /// The volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
}

/// `weir volumes snapshots list`
#[derive(Debug, Args)]
pub struct SnapshotList {
    /// The volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    #[command(flatten)]
    pub listed: ListArgs,
}

/// `weir volumes snapshots create`
#[derive(Debug, Args)]
pub struct SnapshotCreate {
    #[command(flatten)]
    pub snapshot: SnapshotNamed,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub words: Words,
}

/// `weir volumes snapshots update`
#[derive(Debug, Args)]
pub struct SnapshotUpdate {
    #[command(flatten)]
    pub snapshot: SnapshotNamed,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir volumes snapshots rename`
#[derive(Debug, Args)]
pub struct SnapshotRename {
    #[command(flatten)]
    pub snapshot: SnapshotNamed,
    #[command(flatten)]
    pub wait: Async,
    /// Its new name
    #[arg(long, value_name = "NAME")]
    pub new_name: String,
}

/// `weir volumes snapshots delete`
#[derive(Debug, Args)]
pub struct SnapshotDelete {
    #[command(flatten)]
    pub snapshot: SnapshotNamed,
    #[command(flatten)]
    pub wait: Async,
}

/// `weir volumes quota-rules`
#[derive(Debug, Subcommand)]
pub enum QuotaRules {
    /// Limit what a user, a group, or each of all others holds in a volume
    Create(QuotaRuleCreate),
    /// List the quota rules of a volume
    List(QuotaRuleList),
    /// Show a quota rule
    Describe(QuotaRuleNamed),
    /// Change a limit, at once
    Update(QuotaRuleUpdate),
    /// Remove a limit
    Delete(QuotaRuleDelete),
}

/// A quota rule.
#[derive(Debug, Args)]
pub struct QuotaRuleNamed {
    #[command(flatten)]
    pub named: ResourceArgs,
    /// The volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
}

/// `weir volumes quota-rules list`
#[derive(Debug, Args)]
pub struct QuotaRuleList {
    /// The volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    #[command(flatten)]
    pub listed: ListArgs,
}

/// `weir volumes quota-rules create`
#[derive(Debug, Args)]
pub struct QuotaRuleCreate {
    #[command(flatten)]
    pub rule: QuotaRuleNamed,
    #[command(flatten)]
    pub wait: Async,
    /// individual-user-quota, individual-group-quota, default-user-quota or default-group-quota
    #[arg(long, value_name = "TYPE", value_parser = values::enumerator)]
    pub r#type: String,
    /// Number of the user or the group, for an individual quota
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// The limit, in MiB
    #[arg(long, value_name = "DISK_LIMIT_MIB")]
    pub disk_limit_mib: u32,
    #[command(flatten)]
    pub words: Words,
}

/// `weir volumes quota-rules update`
#[derive(Debug, Args)]
pub struct QuotaRuleUpdate {
    #[command(flatten)]
    pub rule: QuotaRuleNamed,
    #[command(flatten)]
    pub wait: Async,
    /// The limit, in MiB
    #[arg(long, value_name = "DISK_LIMIT_MIB")]
    pub disk_limit_mib: Option<u32>,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir volumes quota-rules delete`
#[derive(Debug, Args)]
pub struct QuotaRuleDelete {
    #[command(flatten)]
    pub rule: QuotaRuleNamed,
    #[command(flatten)]
    pub wait: Async,
}

impl QuotaRules {
    /// Returns the command's last words.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "quota-rules.create",
            Self::List(_) => "quota-rules.list",
            Self::Describe(_) => "quota-rules.describe",
            Self::Update(_) => "quota-rules.update",
            Self::Delete(_) => "quota-rules.delete",
        }
    }
}

/// `weir operations`
#[derive(Debug, Subcommand)]
pub enum Operations {
    /// List operations
    List(ListArgs),
    /// Show an operation
    Describe(ResourceArgs),
    /// Wait until an operation is done
    Wait(ResourceArgs),
    /// Ask for an operation to be given up
    Cancel(ResourceArgs),
    /// Forget an operation that is done
    Delete(ResourceArgs),
}

/// `weir locations`
#[derive(Debug, Subcommand)]
pub enum Locations {
    /// List locations
    List(LocationList),
    /// Show a location
    Describe(LocationNamed),
}

/// `weir locations list`
#[derive(Debug, Args)]
pub struct LocationList {
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub common: Common,
}

/// `weir locations describe`
#[derive(Debug, Args)]
pub struct LocationNamed {
    /// The location
    #[arg(value_name = "LOCATION")]
    pub name: String,
    #[command(flatten)]
    pub common: Common,
}

impl StoragePools {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
            Self::Switch(_) => "switch",
            Self::Execute(_) => "execute",
        }
    }
}

impl Volumes {
    /// Returns the command's last words.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
            Self::Revert(_) => "revert",
            Self::Clone(_) => "clone",
            Self::Split(_) => "split",
            Self::Move(_) => "move",
            Self::RestoreBackupFiles(_) => "restore-backup-files",
            Self::MountHelp(_) => "mount-help",
            Self::QuotaRules { command } => command.verb(),
            Self::Snapshots { command } => match command {
                Snapshots::Create(_) => "snapshots.create",
                Snapshots::List(_) => "snapshots.list",
                Snapshots::Describe(_) => "snapshots.describe",
                Snapshots::Update(_) => "snapshots.update",
                Snapshots::Rename(_) => "snapshots.rename",
                Snapshots::Delete(_) => "snapshots.delete",
                Snapshots::Find(_) => "snapshots.find",
                Snapshots::RestoreFile(_) => "snapshots.restore-file",
            },
            Self::Replications { command } => command.verb(),
        }
    }
}

impl Operations {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
            Self::Wait(_) => "wait",
            Self::Cancel(_) => "cancel",
            Self::Delete(_) => "delete",
        }
    }
}

impl Locations {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
        }
    }
}
