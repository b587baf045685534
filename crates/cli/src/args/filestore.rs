//! `gcloud filestore`.

#![allow(rustdoc::broken_intra_doc_links)] // Brackets in help texts enclose what may be left out.

use clap::{ArgGroup, Args, Subcommand};

use super::backups::DescribedUpdate;
use super::common::{Async, DeleteOne, ListArgs, ResourceArgs, WordChanges, Words};
use super::netapp::Locations;
use super::netapp::Operations;
use crate::values::{self, Dict};

/// `weir filestore`
#[derive(Debug, Subcommand)]
pub enum Filestore {
    /// Instances: a tier, a share, a capacity
    Instances {
        /// Command to run
        #[command(subcommand)]
        command: Instances,
    },
    /// Backups of instances
    Backups {
        /// Command to run
        #[command(subcommand)]
        command: InstanceBackups,
    },
    /// Long-running operations
    Operations {
        /// Command to run
        #[command(subcommand)]
        command: Operations,
    },
    /// Locations
    Locations {
        /// Command to run
        #[command(subcommand)]
        command: Locations,
    },
}

/// `weir filestore instances`
#[derive(Debug, Subcommand)]
pub enum Instances {
    /// Create an instance
    Create(Box<InstanceCreate>),
    /// List instances
    List(ListArgs),
    /// Show an instance
    Describe(ResourceArgs),
    /// Change an instance
    Update(Box<InstanceUpdate>),
    /// Delete an instance and what is in it
    Delete(InstanceDelete),
    /// Make an instance again what it was when a snapshot was taken
    Revert(InstanceRevert),
    /// Snapshots of instances
    Snapshots {
        /// Command to run
        #[command(subcommand)]
        command: InstanceSnapshots,
    },
}

/// `weir filestore instances revert`
#[derive(Debug, Args)]
pub struct InstanceRevert {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    pub target_snapshot: String,
}

/// `weir filestore instances snapshots`
#[derive(Debug, Subcommand)]
pub enum InstanceSnapshots {
    /// Create a snapshot
    Create(InstanceSnapshotCreate),
    /// List the snapshots of an instance
    List(InstanceSnapshotList),
    /// Show a snapshot
    Describe(InstanceSnapshotNamed),
    /// Change a snapshot's labels or description
    Update(InstanceSnapshotUpdate),
    /// Delete a snapshot
    Delete(InstanceSnapshotDelete),
}

/// The instance of a snapshot.
#[derive(Debug, Clone, Args)]
pub struct OfInstance {
    /// The instance
    #[arg(long, value_name = "INSTANCE")]
    pub instance: Option<String>,
    /// The instance's location; --location is the same
    #[arg(long, visible_aliases = ["instance-region", "instance-zone"], value_name = "LOCATION",
          conflicts_with = "location")]
    pub instance_location: Option<String>,
}

/// A snapshot of an instance.
#[derive(Debug, Args)]
pub struct InstanceSnapshotNamed {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub of: OfInstance,
}

/// `weir filestore instances snapshots create`
#[derive(Debug, Args)]
pub struct InstanceSnapshotCreate {
    #[command(flatten)]
    pub snapshot: InstanceSnapshotNamed,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub words: Words,
}

/// `weir filestore instances snapshots list`
#[derive(Debug, Args)]
pub struct InstanceSnapshotList {
    #[command(flatten)]
    pub of: OfInstance,
    #[command(flatten)]
    pub listed: ListArgs,
}

/// `weir filestore instances snapshots update`
#[derive(Debug, Args)]
pub struct InstanceSnapshotUpdate {
    #[command(flatten)]
    pub snapshot: InstanceSnapshotNamed,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir filestore instances snapshots delete`
#[derive(Debug, Args)]
pub struct InstanceSnapshotDelete {
    #[command(flatten)]
    pub snapshot: InstanceSnapshotNamed,
    #[command(flatten)]
    pub wait: Async,
}

/// `weir filestore backups`
#[derive(Debug, Subcommand)]
pub enum InstanceBackups {
    /// Back an instance up
    Create(InstanceBackupCreate),
    /// List backups of instances
    List(ListArgs),
    /// Show a backup: its state, its instance, its size
    Describe(ResourceArgs),
    /// Change a backup's labels or description
    Update(DescribedUpdate),
    /// Delete a backup
    Delete(DeleteOne),
}

/// `weir filestore backups create`
#[derive(Debug, Args)]
pub struct InstanceBackupCreate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The instance to back up
    #[arg(long, value_name = "INSTANCE")]
    pub instance: String,
    /// The instance's location; the backup's own
    #[arg(long, visible_aliases = ["instance-region", "instance-zone"], value_name = "LOCATION")]
    pub instance_location: Option<String>,
    /// The instance's share
    #[arg(long, value_name = "SHARE")]
    pub file_share: Option<String>,
    #[command(flatten)]
    pub words: Words,
}

/// `weir filestore instances create`
#[derive(Debug, Args)]
pub struct InstanceCreate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// basic-hdd, basic-ssd, high-scale-ssd, zonal, regional, enterprise, or a tier of the server's
    /// own
    #[arg(long, value_name = "TIER", default_value = "basic-hdd", value_parser = values::enumerator)]
    pub tier: String,
    /// nfs-v3 or nfs-v4-1
    #[arg(long, value_name = "PROTOCOL", default_value = "nfs-v3", value_parser = values::enumerator)]
    pub protocol: String,
    /// name=NAME,capacity=CAPACITY (GB or with a unit)[,source-backup=BACKUP
    /// [,source-backup-region=LOCATION]]; nfs-export-options through --flags-file
    #[arg(long, value_name = "SHARE", value_parser = new_file_share)]
    pub file_share: Dict,
    /// name=NETWORK[,reserved-ip-range=RANGE][,connect-mode=MODE]; kept for clients that read it
    #[arg(long, value_name = "NETWORK", default_value = "name=default", value_parser = network)]
    pub network: Dict,
    /// max-iops=N or max-iops-per-tb=N
    #[arg(long, value_name = "PERFORMANCE", value_parser = performance)]
    pub performance: Option<Dict>,
    #[command(flatten)]
    pub words: Words,
}

/// `weir filestore instances update`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("share").args(["clear_nfs_export_options"]).requires("file_share"))]
pub struct InstanceUpdate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// name=NAME,capacity=CAPACITY (GB or with a unit); nfs-export-options through --flags-file
    #[arg(long, value_name = "SHARE", value_parser = file_share)]
    pub file_share: Option<Dict>,
    /// Everybody may mount it again
    #[arg(long)]
    pub clear_nfs_export_options: bool,
    /// max-iops=N or max-iops-per-tb=N
    #[arg(long, value_name = "PERFORMANCE", value_parser = performance)]
    pub performance: Option<Dict>,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir filestore instances delete`
#[derive(Debug, Args)]
pub struct InstanceDelete {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// Delete its snapshots as well
    #[arg(long)]
    pub force: bool,
}

fn new_file_share(text: &str) -> Result<Dict, String> {
    let restored = ["source-backup", "source-backup-region"];
    share_of(text, &[&restored[..], &SHARE_KEYS].concat())
}

const SHARE_KEYS: [&str; 3] = ["capacity", "name", "nfs-export-options"];

fn file_share(text: &str) -> Result<Dict, String> {
    share_of(text, &SHARE_KEYS)
}

fn share_of(text: &str, keys: &[&str]) -> Result<Dict, String> {
    let share = values::dict(text)?.only(keys)?;
    share.required("name")?;
    values::gib(&share.required("capacity")?)?;
    Ok(share)
}

fn network(text: &str) -> Result<Dict, String> {
    let network = values::dict(text)?.only(&["connect-mode", "name", "reserved-ip-range"])?;
    network.required("name")?;
    Ok(network)
}

fn performance(text: &str) -> Result<Dict, String> {
    let keys = ["max-iops", "max-iops-per-tb"];
    let performance = values::dict(text)?.only(&keys)?;
    if performance.0.len() != 1 {
        return Err("one of max-iops and max-iops-per-tb is needed".to_owned());
    }
    for key in keys {
        if performance.integer(key)?.is_some_and(|n| n < 1) {
            return Err(format!("{key} is at least 1"));
        }
    }
    Ok(performance)
}

impl Filestore {
    /// Returns the command's last words.
    pub fn verb(&self) -> String {
        match self {
            Self::Instances { command } => {
                let verb = match command {
                    Instances::Create(_) => "create",
                    Instances::List(_) => "list",
                    Instances::Describe(_) => "describe",
                    Instances::Update(_) => "update",
                    Instances::Delete(_) => "delete",
                    Instances::Revert(_) => "revert",
                    Instances::Snapshots { command } => match command {
                        InstanceSnapshots::Create(_) => "snapshots.create",
                        InstanceSnapshots::List(_) => "snapshots.list",
                        InstanceSnapshots::Describe(_) => "snapshots.describe",
                        InstanceSnapshots::Update(_) => "snapshots.update",
                        InstanceSnapshots::Delete(_) => "snapshots.delete",
                    },
                };
                format!("instances.{verb}")
            }
            Self::Backups { command } => {
                let verb = match command {
                    InstanceBackups::Create(_) => "create",
                    InstanceBackups::List(_) => "list",
                    InstanceBackups::Describe(_) => "describe",
                    InstanceBackups::Update(_) => "update",
                    InstanceBackups::Delete(_) => "delete",
                };
                format!("backups.{verb}")
            }
            Self::Operations { command } => format!("operations.{}", command.verb()),
            Self::Locations { command } => format!("locations.{}", command.verb()),
        }
    }
}
