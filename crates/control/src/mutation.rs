//! The mutations that can be requested.
//!
//! Creations contain the whole resource; changes contain only the changed fields, and `None` for
//! the others.

use crate::constituent::Span;
use crate::model::{
    BackupConfig, ExportRule, Extra, Labels, Performance, Period, Presentation, Protocol, QosType,
    Role, Share, SmbSetting,
};
use crate::name::{BackupName, Name, QuotaRuleName, SnapshotName, Target, VolumeName};
use crate::policies::{PolicyChange, PolicyName};
use crate::policy_assignment::Assign;
use crate::quota::{NewQuotaRule, QuotaRuleChange};
use crate::secret::Secret;
use weir_relations::manager::{Preconditions, Verb};

/// A new storage pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewPool {
    /// `PREMIUM`, or another name of the levels file.
    pub service_level: String,
    /// Capacity, in GiB of 2^30 bytes.
    pub capacity_gib: u64,
    /// Assignment of throughput; automatic if `None`.
    pub qos_type: Option<QosType>,
    /// True if throughput and operations are independent of capacity.
    pub custom_performance: bool,
    /// MiB/s, with custom performance.
    pub total_throughput_mibps: Option<f64>,
    /// Operations a second, with custom performance.
    pub total_iops: Option<u64>,
    /// Bare id of the Active Directory of its SMB volumes, in the same place.
    pub active_directory: Option<String>,
    /// Its place among pools of the same name in other aggregates.
    pub span: Option<Span>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a storage pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolChange {
    /// Capacity, in GiB of 2^30 bytes; `None`: unchanged.
    pub capacity_gib: Option<u64>,
    /// Automatic to manual only.
    pub qos_type: Option<QosType>,
    /// MiB/s, with custom performance.
    pub total_throughput_mibps: Option<f64>,
    /// Operations a second, with custom performance.
    pub total_iops: Option<u64>,
    /// New service level, which its volumes follow.
    pub service_level: Option<String>,
    /// The bare id of an Active Directory; empty: none; `None`: unchanged.
    pub active_directory: Option<String>,
    /// Free text of up to 2,048 bytes; `None`: unchanged.
    pub description: Option<String>,
    /// Replaces all labels; `None`: unchanged.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// A new volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewVolume {
    /// Source of its capacity: a pool or a tier. In a pool with manual QoS a volume without a given
    /// throughput gets the automatic one, as far as any is left.
    pub presentation: Presentation,
    /// The export path without its slash.
    pub share_name: String,
    /// Capacity, in GiB of 2^30 bytes.
    pub capacity_gib: u64,
    /// Protocols that clients may use: at least one, except for a Filestore instance, which then
    /// has NFSv3.
    pub protocols: Vec<Protocol>,
    /// Export policy; without one the server's default for volumes applies (`--export-options`).
    pub export_rules: Option<Vec<ExportRule>>,
    /// Share for clients of SMB.
    pub smb: Share,
    /// Permission bits of the root; 0o755 if `None`.
    pub unix_permissions: Option<u32>,
    /// True if clients see `.snapshot`; true if `None`.
    pub snapshot_directory: Option<bool>,
    /// Percentage of the capacity reserved for snapshots, 0 to 90.
    pub snap_reserve: Option<f64>,
    /// The snapshot policy, as sent.
    pub snapshot_policy: Option<serde_json::Value>,
    /// Scheduled backups.
    pub backup: Option<BackupConfig>,
    /// True if deletion is refused (`restrictedActions`, `deletionProtectionEnabled`).
    pub deletion_restricted: bool,
    /// True for a destination: until its relationship is broken off, only transfers write to it.
    pub protection: bool,
    /// Snapshot to clone.
    pub clone_of: Option<SnapshotName>,
    /// Backup to restore.
    pub restore_of: Option<BackupName>,
    /// Policies by name, and its path.
    pub assign: Assign,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeChange {
    /// Revision that the change was made against (from the etag): ABORTED if it is different by
    /// now.
    pub if_revision: Option<u64>,
    /// Bare id of another pool, for a volume in a pool. The volume moves there, online.
    pub pool: Option<String>,
    /// Capacity, in GiB of 2^30 bytes; `None`: unchanged.
    pub capacity_gib: Option<u64>,
    /// MiB/s, for a volume in a pool with manual QoS.
    pub throughput_mibps: Option<f64>,
    /// Custom performance, for a volume of a tier; `Some(None)` removes it.
    pub performance: Option<Option<Performance>>,
    /// Protocols that clients may use; `None`: unchanged.
    pub protocols: Option<Vec<Protocol>>,
    /// The new export policy as a whole.
    pub export_rules: Option<Vec<ExportRule>>,
    /// Settings of its share over SMB; `None`: unchanged.
    pub smb_settings: Option<Vec<SmbSetting>>,
    /// The name of its share over SMB; `None`: unchanged.
    pub smb_name: Option<String>,
    /// Permission bits of the root.
    pub unix_permissions: Option<u32>,
    /// True if clients see `.snapshot`.
    pub snapshot_directory: Option<bool>,
    /// Percentage of the capacity reserved for snapshots, 0 to 90; `None`: unchanged.
    pub snap_reserve: Option<f64>,
    /// Snapshot policy as sent; null removes it.
    pub snapshot_policy: Option<serde_json::Value>,
    /// Scheduled backups; an empty configuration ends them.
    pub backup: Option<BackupConfig>,
    /// True if deletion is refused; `None`: unchanged.
    pub deletion_restricted: Option<bool>,
    /// Policies by name, its path, and its availability.
    pub assign: Assign,
    /// True if its quota rules hold; `None`: unchanged.
    pub quotas_on: Option<bool>,
    /// Free text of up to 2,048 bytes; `None`: unchanged.
    pub description: Option<String>,
    /// Replaces all labels; `None`: unchanged.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// A new snapshot. The label `snapmirror-label` becomes the one for replication policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewSnapshot {
    /// Schedule that takes it; `None` for users.
    pub schedule: Option<Period>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a snapshot's description.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotChange {
    /// Free text of up to 2,048 bytes; `None`: unchanged.
    pub description: Option<String>,
    /// Replaces all labels; `None`: unchanged.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// An Active Directory domain for the server to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewActiveDirectory {
    /// DNS name of the domain.
    pub domain: String,
    /// Prefix of the computer account's name, of up to 10 characters.
    pub net_bios_prefix: String,
    /// The organizational unit of the account; empty: the domain's choice.
    pub organizational_unit: String,
    /// Domain controller to use; empty: one found through DNS.
    pub kdc_hostname: String,
    /// A user of the domain who may join computers.
    pub username: String,
    /// That user's password.
    pub password: Secret,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to an Active Directory domain. With a password the server joins it again; fields that
/// joining depends on can be changed only with one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveDirectoryChange {
    /// The organizational unit of a new account; `None`: unchanged.
    pub organizational_unit: Option<String>,
    /// Domain controller to use; `None`: unchanged.
    pub kdc_hostname: Option<String>,
    /// A user of the domain who may join computers; `None`: unchanged.
    pub username: Option<String>,
    /// That user's password.
    pub password: Option<Secret>,
    /// Free text of up to 2,048 bytes; `None`: unchanged.
    pub description: Option<String>,
    /// Replaces all labels; `None`: unchanged.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// A new vault of backups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewBackupVault {
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// A new backup.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBackup {
    /// Volume to back up.
    pub source: VolumeName,
    /// Bare id of one of its snapshots; `None`: as the volume is now.
    pub snapshot: Option<String>,
    /// Schedule that makes it; `None` for users.
    pub schedule: Option<Period>,
    /// Name of the instance's share, which has to be this; `None` for volumes.
    pub share: Option<String>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Files of a backup to copy into a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreFiles {
    /// The backup.
    pub backup: BackupName,
    /// Paths of the files in the backup's volume, from its root on.
    pub files: Vec<String>,
    /// Path of the directory of the volume that gets them.
    pub directory: String,
}

/// A new policy of backups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewBackupPolicy {
    /// Daily backups to keep, at least 2.
    pub daily: u32,
    /// Weekly backups to keep; 0: none are made.
    pub weekly: u32,
    /// Monthly backups to keep; 0: none are made.
    pub monthly: u32,
    /// False if it makes no backups.
    pub enabled: bool,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a policy of backups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackupPolicyChange {
    /// Daily backups to keep, at least 2; `None`: unchanged.
    pub daily: Option<u32>,
    /// Weekly backups to keep; `None`: unchanged.
    pub weekly: Option<u32>,
    /// Monthly backups to keep; `None`: unchanged.
    pub monthly: Option<u32>,
    /// False if it makes no backups; `None`: unchanged.
    pub enabled: Option<bool>,
    /// Description, labels and the client's own fields.
    pub words: DescriptionChange,
}

/// Changes to the description of a vault, a backup or a policy of backups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DescriptionChange {
    /// Free text of up to 2,048 bytes; `None`: unchanged.
    pub description: Option<String>,
    /// Replaces all labels; `None`: unchanged.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// Change of a volume's move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveChange {
    /// Begin it.
    Start {
        /// Bare id of the storage pool that gets the volume, in the same place; `None`: the only
        /// one there.
        pool: Option<String>,
        /// Name of the aggregate that gets it; `None`: that of the pool.
        aggregate: Option<String>,
    },
    /// End it: the volume stays.
    Abort,
}

/// A requested change.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Create a storage pool.
    CreatePool(Name, NewPool),
    /// Change a storage pool.
    UpdatePool(Name, PoolChange),
    /// Delete a storage pool; refused while it has volumes.
    DeletePool(Name),
    /// Exchange the pool's zones: there is only one machine, so nothing moves.
    SwitchPool(Name),
    /// Create a volume.
    CreateVolume(VolumeName, NewVolume),
    /// Change the settings of a volume.
    UpdateVolume(VolumeName, VolumeChange),
    /// Delete a volume with its data.
    DeleteVolume {
        /// The volume to delete.
        name: VolumeName,
        /// True to delete its snapshots too; otherwise it is refused while it has any.
        force: bool,
    },
    /// Revert a volume to a snapshot.
    RevertVolume {
        /// The volume to revert.
        name: VolumeName,
        /// The snapshot's bare id.
        snapshot: String,
    },
    /// Copy single files of a backup into a volume. The operation ends when that is complete.
    RestoreFiles(VolumeName, RestoreFiles),
    /// Delete a qtree of a volume with all that is in it, and its quota rule. The operation ends
    /// when nothing of it is left; its name is free before that.
    DeleteTree {
        /// The volume.
        of: VolumeName,
        /// Number of the qtree.
        number: u32,
    },
    /// Copy the blocks that a clone shares with its origin, so that neither depends on the other.
    /// The operation ends when that is complete; the volume is in use meanwhile.
    SplitVolume(VolumeName),
    /// Move a volume to a storage pool of another aggregate, or end the move. The operation ends
    /// when the other aggregate serves the volume.
    MoveVolume(VolumeName, MoveChange),
    /// Rename a volume within its place. Refused while it is replicated: relationships refer to it
    /// by its name.
    RenameVolume {
        /// The volume to rename.
        name: VolumeName,
        /// Its new bare id.
        to: String,
    },
    /// Create, change or delete a policy that volumes refer to by name; those volumes change with
    /// it.
    ChangePolicy(PolicyName, PolicyChange),
    /// Take a snapshot of a volume.
    CreateSnapshot(SnapshotName, NewSnapshot),
    /// Change a snapshot's description or labels.
    UpdateSnapshot(SnapshotName, SnapshotChange),
    /// Rename a snapshot. A scheduled one is then kept until a user deletes it.
    RenameSnapshot {
        /// The snapshot to rename.
        name: SnapshotName,
        /// Its new bare id.
        to: String,
    },
    /// Delete a snapshot of a volume.
    DeleteSnapshot(SnapshotName),
    /// Limit what a user, a group or all others of them hold in a volume.
    CreateQuotaRule(QuotaRuleName, NewQuotaRule),
    /// Change a limit.
    UpdateQuotaRule(QuotaRuleName, QuotaRuleChange),
    /// Remove a limit.
    DeleteQuotaRule(QuotaRuleName),
    /// Join a domain of Active Directory.
    CreateActiveDirectory(Name, NewActiveDirectory),
    /// Change the description of a domain, or join it again.
    UpdateActiveDirectory(Name, ActiveDirectoryChange),
    /// Leave a domain; refused while storage pools refer to it.
    DeleteActiveDirectory(Name),
    /// Make a vault for backups.
    CreateBackupVault(Name, NewBackupVault),
    /// Change the description of a vault.
    UpdateBackupVault(Name, DescriptionChange),
    /// Delete a vault; refused while it has backups.
    DeleteBackupVault(Name),
    /// Make a policy of backups.
    CreateBackupPolicy(Name, NewBackupPolicy),
    /// Change a policy of backups, for all volumes that have it.
    UpdateBackupPolicy(Name, BackupPolicyChange),
    /// Delete a policy of backups; refused while volumes have it.
    DeleteBackupPolicy(Name),
    /// Back a volume up.
    CreateBackup(BackupName, NewBackup),
    /// Change the description of a backup.
    UpdateBackup(BackupName, DescriptionChange),
    /// Delete a backup.
    DeleteBackup(BackupName),
    /// Change relationships, or their policies, schedules, peers or throttles. It is done when it
    /// is accepted, and is not an operation; a transfer that it starts continues.
    Replicate {
        /// The change to make.
        verb: Verb,
        /// Facts about the volumes that it depends on.
        preconditions: Preconditions,
    },
}

impl Mutation {
    /// Returns the resource that it changes.
    pub fn target(&self) -> Target {
        match self {
            Mutation::CreatePool(name, _)
            | Mutation::UpdatePool(name, _)
            | Mutation::DeletePool(name)
            | Mutation::SwitchPool(name) => Target::Pool(name.clone()),
            Mutation::CreateActiveDirectory(name, _)
            | Mutation::UpdateActiveDirectory(name, _)
            | Mutation::DeleteActiveDirectory(name) => Target::ActiveDirectory(name.clone()),
            Mutation::CreateBackupVault(name, _)
            | Mutation::UpdateBackupVault(name, _)
            | Mutation::DeleteBackupVault(name) => Target::BackupVault(name.clone()),
            Mutation::CreateBackupPolicy(name, _)
            | Mutation::UpdateBackupPolicy(name, _)
            | Mutation::DeleteBackupPolicy(name) => Target::BackupPolicy(name.clone()),
            Mutation::CreateBackup(name, _)
            | Mutation::UpdateBackup(name, _)
            | Mutation::DeleteBackup(name) => Target::Backup(name.clone()),
            Mutation::CreateVolume(name, _)
            | Mutation::UpdateVolume(name, _)
            | Mutation::DeleteVolume { name, .. }
            | Mutation::RevertVolume { name, .. }
            | Mutation::RestoreFiles(name, _)
            | Mutation::MoveVolume(name, _)
            | Mutation::DeleteTree { of: name, .. }
            | Mutation::SplitVolume(name) => Target::Volume(name.clone()),
            Mutation::RenameVolume { name, to } => {
                Target::Volume(name.place.volume_name(name.surface, to))
            }
            Mutation::ChangePolicy(name, _) => Target::Relation(name.to_string().into()),
            Mutation::RenameSnapshot { name, to } => Target::Snapshot(name.parent.snapshot(to)),
            Mutation::CreateSnapshot(name, _)
            | Mutation::UpdateSnapshot(name, _)
            | Mutation::DeleteSnapshot(name) => Target::Snapshot(name.clone()),
            Mutation::CreateQuotaRule(name, _)
            | Mutation::UpdateQuotaRule(name, _)
            | Mutation::DeleteQuotaRule(name) => Target::QuotaRule(name.clone()),
            Mutation::Replicate { verb, .. } => Target::Relation(verb.subject().1.into()),
        }
    }

    /// Returns the action.
    pub fn verb(&self) -> &'static str {
        match self {
            Mutation::CreatePool(..)
            | Mutation::CreateVolume(..)
            | Mutation::CreateSnapshot(..)
            | Mutation::CreateQuotaRule(..)
            | Mutation::CreateActiveDirectory(..)
            | Mutation::CreateBackupVault(..)
            | Mutation::CreateBackupPolicy(..)
            | Mutation::CreateBackup(..) => "create",
            Mutation::UpdatePool(..)
            | Mutation::UpdateVolume(..)
            | Mutation::UpdateSnapshot(..)
            | Mutation::UpdateQuotaRule(..)
            | Mutation::UpdateActiveDirectory(..)
            | Mutation::UpdateBackupVault(..)
            | Mutation::UpdateBackupPolicy(..)
            | Mutation::UpdateBackup(..) => "update",
            Mutation::DeletePool(..)
            | Mutation::DeleteVolume { .. }
            | Mutation::DeleteSnapshot(..)
            | Mutation::DeleteQuotaRule(..)
            | Mutation::DeleteActiveDirectory(..)
            | Mutation::DeleteBackupVault(..)
            | Mutation::DeleteBackupPolicy(..)
            | Mutation::DeleteBackup(..) => "delete",
            Mutation::SwitchPool(..) => "switch",
            Mutation::SplitVolume(..) => "split",
            Mutation::MoveVolume(_, MoveChange::Start { .. }) => "move",
            Mutation::MoveVolume(_, MoveChange::Abort) => "abortMove",
            Mutation::RestoreFiles(..) => "restore",
            Mutation::DeleteTree { .. } => "deleteQtree",
            Mutation::RenameSnapshot { .. } | Mutation::RenameVolume { .. } => "rename",
            Mutation::ChangePolicy(_, change) => change.verb(),
            Mutation::RevertVolume { .. } => "revert",
            Mutation::Replicate { verb, .. } => verb.subject().0,
        }
    }

    /// Returns its password, which is only in memory.
    pub(crate) fn secret(&self) -> Option<&Secret> {
        match self {
            Mutation::CreateActiveDirectory(_, new) => Some(&new.password),
            Mutation::UpdateActiveDirectory(_, change) => change.password.as_ref(),
            _ => None,
        }
    }

    /// Returns the least role that may request it. A paired node may read everything for as long as
    /// it is paired, which is more than an editor's token grants and outlives it. So administrators
    /// grant access to peers, as they do for tokens.
    pub fn role(&self) -> Role {
        match self {
            Mutation::Replicate {
                verb: Verb::PeerCreate { .. } | Verb::PeerInvite { .. } | Verb::PeerDelete(_),
                ..
            } => Role::Admin,
            _ => Role::Editor,
        }
    }
}
