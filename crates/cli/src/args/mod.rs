//! Grammar of the command line: gcloud's words and flags.

// Flags that commands share are flattened into them and have no help besides their own. That every
// flag has some, the test below checks of what users get.
#![allow(missing_docs)]

mod backups;
mod common;
mod directories;
mod filestore;
mod netapp;
mod ontap;
mod replications;
mod server;

pub use backups::{
    BackupLimits, BackupNamed, BackupPolicies, BackupRestore, BackupVaults, Backups,
};
pub use common::{
    Async, At, Common, LabelChanges, ListArgs, Listing, ResourceArgs, WordChanges, Words,
};
pub use directories::{ActiveDirectories, DirectoryCreate, DirectoryFields, DirectoryUpdate};
pub use filestore::{
    Filestore, InstanceBackups, InstanceCreate, InstanceDelete, InstanceSnapshotNamed,
    InstanceSnapshots, InstanceUpdate, Instances, OfInstance,
};
pub use netapp::{
    BackupFilesRestore, FileFind, FileNamed, FileRestore, Locations, Operations, PoolCreate,
    PoolUpdate, QuotaRules, Schedules, SnapshotCreate, SnapshotUpdate, Snapshots, StoragePools,
    VolumeClone, VolumeCreate, VolumeDelete, VolumeFields, VolumeMove, VolumeUpdate, Volumes,
};
pub use ontap::{
    Ontap, PeerCreate, PeerInvite, PeerJoin, PeerList, PeerNamed, PeerShow, Peers, Snapmirror,
};
pub use replications::{ReplicationCreate, ReplicationNamed, Replications};
pub use server::{Audit, Conditions, Config, Status, SupportBundle, TokenCreate, Tokens};

pub(crate) use netapp::RULE_KEYS;

use clap::Subcommand;

use crate::plan::PlanArgs;

/// The commands that talk to a server's API, and those that prepare for it.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Storage pools: capacity and throughput to make volumes of
    StoragePools {
        /// Command to run
        #[command(subcommand)]
        command: StoragePools,
    },
    /// Volumes, their snapshots, and how to mount them
    Volumes {
        /// Command to run
        #[command(subcommand)]
        command: Volumes,
    },
    /// Vaults in the server's bucket, which hold backups
    BackupVaults {
        /// Command to run
        #[command(subcommand)]
        command: BackupVaults,
    },
    /// Backups of volumes in a vault: make, list, delete, restore
    Backups {
        /// Command to run
        #[command(subcommand)]
        command: Backups,
    },
    /// Policies by which volumes are backed up every day, week and month
    BackupPolicies {
        /// Command to run
        #[command(subcommand)]
        command: BackupPolicies,
    },
    /// Domains that the server is a member of, for volumes with SMB
    ActiveDirectories {
        /// Command to run
        #[command(subcommand)]
        command: ActiveDirectories,
    },
    /// Filestore instances
    Filestore {
        /// Command to run
        #[command(subcommand)]
        command: Filestore,
    },
    /// Long-running operations
    Operations {
        /// Command to run
        #[command(subcommand)]
        command: Operations,
    },
    /// Locations that have resources
    Locations {
        /// Command to run
        #[command(subcommand)]
        command: Locations,
    },
    /// Run the same commands under gcloud's word for them: `gcloud netapp …` is `weir netapp …`
    #[command(hide = true)]
    Netapp {
        /// Command to run
        #[command(subcommand)]
        command: Netapp,
    },
    /// ONTAP's command language: one line, or a prompt
    Ontap(Ontap),
    /// Replication, in ONTAP's words, with a progress bar
    Snapmirror(Snapmirror),
    /// Other nodes that this one replicates with
    Peers {
        /// Command to run
        #[command(subcommand)]
        command: Peers,
    },
    /// Access tokens of the API
    Tokens {
        /// Command to run
        #[command(subcommand)]
        command: Tokens,
    },
    /// Show who changed what, newest first
    Audit(Audit),
    /// Show what limits hold and what is wrong, the worst first: since when, and what to do
    Conditions(Conditions),
    /// Find the cheapest service level and pools for a list of volumes
    Plan(Box<PlanArgs>),
    /// The state of a server on one screen: version, role, health, capacity, pair
    Status(Status),
    /// Write a file for those who help: status, metrics, audit log, versions, and settings without
    /// passwords
    SupportBundle(SupportBundle),
    /// Pools, volumes and clients as they are now: throughput, latency, and what limits them
    Top(Box<crate::top::TopArgs>),
    /// Settings of this command line: where the server is, project, location
    Config {
        /// Command to run
        #[command(subcommand)]
        command: Config,
    },
    /// Print a script that completes commands and flags in a shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// `weir netapp …`
#[derive(Debug, Subcommand)]
pub enum Netapp {
    /// Storage pools
    StoragePools {
        /// Command to run
        #[command(subcommand)]
        command: StoragePools,
    },
    /// Volumes
    Volumes {
        /// Command to run
        #[command(subcommand)]
        command: Volumes,
    },
    /// Backup vaults
    BackupVaults {
        /// Command to run
        #[command(subcommand)]
        command: BackupVaults,
    },
    /// Backup policies
    BackupPolicies {
        /// Command to run
        #[command(subcommand)]
        command: BackupPolicies,
    },
    /// Active Directories
    ActiveDirectories {
        /// Command to run
        #[command(subcommand)]
        command: ActiveDirectories,
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

impl Command {
    /// Returns the words of the command, joined with dots.
    pub fn path(&self) -> String {
        match self {
            Self::StoragePools { command } => format!("storage-pools.{}", command.verb()),
            Self::Volumes { command } => format!("volumes.{}", command.verb()),
            Self::ActiveDirectories { command } => {
                format!("active-directories.{}", command.verb())
            }
            Self::BackupVaults { command } => format!("backup-vaults.{}", command.verb()),
            Self::Backups { command } => format!("backups.{}", command.verb()),
            Self::BackupPolicies { command } => format!("backup-policies.{}", command.verb()),
            Self::Filestore { command } => format!("filestore.{}", command.verb()),
            Self::Operations { command } => format!("operations.{}", command.verb()),
            Self::Locations { command } => format!("locations.{}", command.verb()),
            Self::Netapp { command } => match command {
                Netapp::StoragePools { command } => format!("storage-pools.{}", command.verb()),
                Netapp::Volumes { command } => format!("volumes.{}", command.verb()),
                Netapp::ActiveDirectories { command } => {
                    format!("active-directories.{}", command.verb())
                }
                Netapp::BackupVaults { command } => format!("backup-vaults.{}", command.verb()),
                Netapp::BackupPolicies { command } => {
                    format!("backup-policies.{}", command.verb())
                }
                Netapp::Operations { command } => format!("operations.{}", command.verb()),
                Netapp::Locations { command } => format!("locations.{}", command.verb()),
            },
            Self::Ontap(_) => "ontap".to_owned(),
            Self::Snapmirror(_) => "snapmirror".to_owned(),
            Self::Peers { command } => format!("peers.{}", command.verb()),
            Self::Tokens { command } => format!("tokens.{}", command.verb()),
            Self::Audit(_) => "audit".to_owned(),
            Self::Conditions(_) => "conditions".to_owned(),
            Self::Plan(_) => "plan".to_owned(),
            Self::Status(_) => "status".to_owned(),
            Self::SupportBundle(_) => "support-bundle".to_owned(),
            Self::Top(_) => "top".to_owned(),
            Self::Config { command } => format!("config.{}", command.verb()),
            Self::Completion { .. } => "completion".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_help(command: &clap::Command, out: &mut Vec<String>) {
        let name = command.get_name();
        let bare = |arg: &&clap::Arg| arg.get_help().is_none();
        let arguments = command.get_arguments().filter(bare);
        out.extend(arguments.map(|arg| format!("{name} {}", arg.get_id())));
        for below in command.get_subcommands() {
            if below.get_about().is_none() {
                out.push(below.get_name().to_owned());
            }
            without_help(below, out);
        }
    }

    #[test]
    fn every_command_and_flag_has_help() {
        let whole = Command::augment_subcommands(clap::Command::new("weir"));
        let mut out = Vec::new();
        without_help(&whole, &mut out);
        assert!(whole.get_subcommands().count() > 5);
        assert_eq!(out, Vec::<String>::new());
    }
}
