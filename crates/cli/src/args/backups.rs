//! Backup vaults, backups and backup policies.

use clap::{Args, Subcommand};

use super::common::{Async, DeleteOne, ListArgs, ResourceArgs, WordChanges, Words};
use crate::values::{self, Capacity, List};

/// `weir backup-vaults`
#[derive(Debug, Subcommand)]
pub enum BackupVaults {
    /// Make a vault for backups in the server's bucket
    Create(DescribedCreate),
    /// List backup vaults
    List(ListArgs),
    /// Show a backup vault
    Describe(ResourceArgs),
    /// Change the description of a backup vault
    Update(DescribedUpdate),
    /// Delete a backup vault that has no backups
    Delete(DeleteOne),
    /// Backups: the same as `weir backups`
    Backups {
        /// Command to run
        #[command(subcommand)]
        command: Backups,
    },
}

/// A new resource with a description.
#[derive(Debug, Args)]
pub struct DescribedCreate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub words: Words,
}

/// Changes of a description.
#[derive(Debug, Args)]
pub struct DescribedUpdate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir backup-policies`
#[derive(Debug, Subcommand)]
pub enum BackupPolicies {
    /// Make a policy: how many scheduled backups of a volume are kept
    Create(BackupPolicyCreate),
    /// List backup policies
    List(ListArgs),
    /// Show a backup policy, and how many volumes have it
    Describe(ResourceArgs),
    /// Change a backup policy, for all volumes that have it
    Update(BackupPolicyUpdate),
    /// Delete a backup policy that no volume has
    Delete(DeleteOne),
}

/// Numbers of backups to keep.
#[derive(Debug, Args)]
pub struct BackupLimits {
    /// Daily backups to keep, at least 2
    #[arg(long, value_name = "N")]
    pub daily_backup_limit: Option<u32>,
    /// Weekly backups to keep; 0 makes none
    #[arg(long, value_name = "N")]
    pub weekly_backup_limit: Option<u32>,
    /// Monthly backups to keep; 0 makes none
    #[arg(long, value_name = "N")]
    pub monthly_backup_limit: Option<u32>,
    /// Make backups by this policy
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub enabled: Option<bool>,
}

/// `weir backup-policies create`
#[derive(Debug, Args)]
pub struct BackupPolicyCreate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub limits: BackupLimits,
    #[command(flatten)]
    pub words: Words,
}

/// `weir backup-policies update`
#[derive(Debug, Args)]
pub struct BackupPolicyUpdate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub limits: BackupLimits,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir backups`
#[derive(Debug, Subcommand)]
pub enum Backups {
    /// Back a volume up
    Create(BackupCreate),
    /// List the backups of a vault
    List(BackupList),
    /// Show a backup: its state, its volume, its size
    Describe(BackupNamed),
    /// Change the description of a backup
    Update(BackupUpdate),
    /// Delete a backup
    Delete(BackupDelete),
    /// Make a volume of a backup
    Restore(BackupRestore),
}

/// A backup.
#[derive(Debug, Args)]
pub struct BackupNamed {
    #[command(flatten)]
    pub named: ResourceArgs,
    /// The vault that holds it
    #[arg(long, value_name = "BACKUP_VAULT")]
    pub backup_vault: Option<String>,
}

/// `weir backups list`
#[derive(Debug, Args)]
pub struct BackupList {
    /// The vault
    #[arg(long, value_name = "BACKUP_VAULT")]
    pub backup_vault: Option<String>,
    #[command(flatten)]
    pub listed: ListArgs,
}

/// `weir backups create`
#[derive(Debug, Args)]
pub struct BackupCreate {
    #[command(flatten)]
    pub backup: BackupNamed,
    #[command(flatten)]
    pub wait: Async,
    /// The volume to back up
    #[arg(long, value_name = "VOLUME")]
    pub source_volume: String,
    /// One of its snapshots, in place of the volume as it is now
    #[arg(long, value_name = "SNAPSHOT")]
    pub source_snapshot: Option<String>,
    #[command(flatten)]
    pub words: Words,
}

/// `weir backups update`
#[derive(Debug, Args)]
pub struct BackupUpdate {
    #[command(flatten)]
    pub backup: BackupNamed,
    #[command(flatten)]
    pub wait: Async,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir backups delete`
#[derive(Debug, Args)]
pub struct BackupDelete {
    #[command(flatten)]
    pub backup: BackupNamed,
    #[command(flatten)]
    pub wait: Async,
}

/// `weir backups restore`
#[derive(Debug, Args)]
pub struct BackupRestore {
    #[command(flatten)]
    pub backup: BackupNamed,
    #[command(flatten)]
    pub wait: Async,
    /// The volume to make
    #[arg(long, value_name = "VOLUME")]
    pub volume: String,
    /// The pool to make it in
    #[arg(long, value_name = "STORAGE_POOL")]
    pub storage_pool: String,
    /// Its capacity, in GiB or with a unit (2TiB); 100 GiB, or as much as the backup needs
    #[arg(long, value_name = "CAPACITY", value_parser = values::capacity)]
    pub capacity: Option<Capacity>,
    /// nfsv3, nfsv4, smb, or several
    #[arg(long, value_name = "PROTOCOL,…", value_parser = values::protocols, default_value = "nfsv3")]
    pub protocols: List,
    /// The name under which clients mount it; the volume's own
    #[arg(long, value_name = "SHARE_NAME")]
    pub share_name: Option<String>,
}

impl BackupVaults {
    /// Returns the command's last words.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
            Self::Backups { command } => match command {
                Backups::Create(_) => "backups.create",
                Backups::List(_) => "backups.list",
                Backups::Describe(_) => "backups.describe",
                Backups::Update(_) => "backups.update",
                Backups::Delete(_) => "backups.delete",
                Backups::Restore(_) => "backups.restore",
            },
        }
    }
}

impl BackupPolicies {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
        }
    }
}

impl Backups {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
            Self::Restore(_) => "restore",
        }
    }
}
