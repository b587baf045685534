//! What can be asked for.
//!
//! Creations carry the whole resource as wanted; changes carry only what is to change, each field `None` where it stays.

use crate::assigned::Assign;
use crate::model::{
    ExportRule, Extra, Labels, Performance, Period, Presentation, Protocol, QosType, Role, Share,
    SmbSetting,
};
use crate::name::{Name, SnapshotName, Target, VolumeName};
use crate::named::{PolicyChange, PolicyName};
use crate::secret::Secret;
use weir_relations::manager::{Preconditions, Verb};

/// A storage pool to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewPool {
    /// `PREMIUM`, or another name of the levels file.
    pub service_level: String,
    /// Capacity, in GiB of 2^30 bytes.
    pub capacity_gib: u64,
    /// Automatic if not given.
    pub qos_type: Option<QosType>,
    /// Throughput and operations apart from capacity.
    pub custom_performance: bool,
    /// MiB/s, with custom performance.
    pub total_throughput_mibps: Option<f64>,
    /// Operations a second, with custom performance.
    pub total_iops: Option<u64>,
    /// The bare id of the Active Directory of its volumes with SMB, in the same place.
    pub active_directory: Option<String>,
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
    /// Another level: its volumes follow.
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

/// A volume to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewVolume {
    /// Where its capacity comes from: a pool or a tier. Of a pool with manual QoS it gets, unless it says how much, what
    /// automatic QoS would give, as far as there is any left.
    pub presentation: Presentation,
    /// The export path without its slash.
    pub share_name: String,
    /// Capacity, in GiB of 2^30 bytes.
    pub capacity_gib: u64,
    /// Protocols that clients may use: at least one, except of a Filestore instance, which has NFSv3 then.
    pub protocols: Vec<Protocol>,
    /// Export policy; without one the server's default for volumes counts (`--export-options`).
    pub export_rules: Option<Vec<ExportRule>>,
    /// What it is to clients of SMB.
    pub smb: Share,
    /// Permission bits of the root; 0o755 unless given.
    pub unix_permissions: Option<u32>,
    /// Whether clients see `.snapshot`; they do unless given.
    pub snapshot_directory: Option<bool>,
    /// Percent of the capacity kept for snapshots, 0 to 90.
    pub snap_reserve: Option<f64>,
    /// The snapshot policy, as sent.
    pub snapshot_policy: Option<serde_json::Value>,
    /// Whether deletion is refused (`restrictedActions`, `deletionProtectionEnabled`).
    pub deletion_restricted: bool,
    /// Make it as a destination: until a relationship of it is broken off, only transfers write to it.
    pub protection: bool,
    /// Make it as a copy of a snapshot.
    pub clone_of: Option<SnapshotName>,
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
    /// The revision that the change was made against (from the etag): ABORTED if it is another by now.
    pub if_revision: Option<u64>,
    /// Of a volume in a pool: another pool's bare id. The volume moves there, online.
    pub pool: Option<String>,
    /// Capacity, in GiB of 2^30 bytes; `None`: unchanged.
    pub capacity_gib: Option<u64>,
    /// Of a volume in a pool: MiB/s, with manual QoS.
    pub throughput_mibps: Option<f64>,
    /// Of a volume of a tier: custom performance; `Some(None)` removes it.
    pub performance: Option<Option<Performance>>,
    /// Protocols that clients may use; `None`: unchanged.
    pub protocols: Option<Vec<Protocol>>,
    /// The whole policy anew.
    pub export_rules: Option<Vec<ExportRule>>,
    /// Settings of its share over SMB; `None`: unchanged.
    pub smb_settings: Option<Vec<SmbSetting>>,
    /// The name of its share over SMB; `None`: unchanged.
    pub smb_name: Option<String>,
    /// Permission bits of the root.
    pub unix_permissions: Option<u32>,
    /// Whether clients see `.snapshot`.
    pub snapshot_directory: Option<bool>,
    /// Percent of the capacity kept for snapshots, 0 to 90; `None`: unchanged.
    pub snap_reserve: Option<f64>,
    /// As sent; null removes it.
    pub snapshot_policy: Option<serde_json::Value>,
    /// Whether deletion is refused; `None`: unchanged.
    pub deletion_restricted: Option<bool>,
    /// Policies by name, its path, and whether it is served.
    pub assign: Assign,
    /// Free text of up to 2,048 bytes; `None`: unchanged.
    pub description: Option<String>,
    /// Replaces all labels; `None`: unchanged.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// A snapshot to be taken. The label `snapmirror-label` becomes the one that replication policies choose by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewSnapshot {
    /// The schedule that takes it; `None` for people.
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

/// A domain of Active Directory that the server is to be a member of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewActiveDirectory {
    /// The domain's name in the DNS.
    pub domain: String,
    /// What the computer account's name begins with, of up to 10 characters.
    pub net_bios_prefix: String,
    /// The organizational unit of the account; empty: the domain's choice.
    pub organizational_unit: String,
    /// The domain controller to ask; empty: one that the DNS names.
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

/// Changes to a domain of Active Directory. With a password the server joins it anew; what joining depends on is changed only with one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveDirectoryChange {
    /// The organizational unit of a new account; `None`: unchanged.
    pub organizational_unit: Option<String>,
    /// The domain controller to ask; `None`: unchanged.
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

/// A change that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Make a storage pool.
    CreatePool(Name, NewPool),
    /// Change a storage pool.
    UpdatePool(Name, PoolChange),
    /// Delete a storage pool; refused while it has volumes.
    DeletePool(Name),
    /// Let the pool's zones change places: there is one machine, so nothing moves.
    SwitchPool(Name),
    /// Make a volume.
    CreateVolume(VolumeName, NewVolume),
    /// Change the settings of a volume.
    UpdateVolume(VolumeName, VolumeChange),
    /// Delete a volume with its data.
    DeleteVolume {
        /// The volume to delete.
        name: VolumeName,
        /// With its snapshots; otherwise refused while it has any.
        force: bool,
    },
    /// Make a volume what it was when a snapshot was taken.
    RevertVolume {
        /// The volume to revert.
        name: VolumeName,
        /// The snapshot's bare id.
        snapshot: String,
    },
    /// Copy what a clone shares with the volume that it was made from, so that neither depends on the other. The operation
    /// ends when that is done; the volume is used meanwhile.
    SplitVolume(VolumeName),
    /// Give a volume another name in its place. Refused while it is replicated: relationships know it by its name.
    RenameVolume {
        /// The volume to rename.
        name: VolumeName,
        /// Its new bare id.
        to: String,
    },
    /// Make, change or delete a policy that volumes refer to by name; the volumes that do change with it.
    ChangePolicy(PolicyName, PolicyChange),
    /// Take a snapshot of a volume.
    CreateSnapshot(SnapshotName, NewSnapshot),
    /// Change a snapshot's description or labels.
    UpdateSnapshot(SnapshotName, SnapshotChange),
    /// Give a snapshot another name. One that a schedule took is then kept until a user deletes it.
    RenameSnapshot {
        /// The snapshot to rename.
        name: SnapshotName,
        /// Its new bare id.
        to: String,
    },
    /// Delete a snapshot of a volume.
    DeleteSnapshot(SnapshotName),
    /// Join a domain of Active Directory.
    CreateActiveDirectory(Name, NewActiveDirectory),
    /// Change what is said of a domain, or join it anew.
    UpdateActiveDirectory(Name, ActiveDirectoryChange),
    /// Leave a domain; refused while storage pools refer to it.
    DeleteActiveDirectory(Name),
    /// Change relationships, or their policies, schedules, peers or throttles. It has been done when it was accepted, and
    /// is no operation; a transfer that it begins goes on.
    Replicate {
        /// The change to make.
        verb: Verb,
        /// What it has to know of the volumes.
        preconditions: Preconditions,
    },
}

impl Mutation {
    /// The resource that it changes.
    pub fn target(&self) -> Target {
        match self {
            Mutation::CreatePool(name, _)
            | Mutation::UpdatePool(name, _)
            | Mutation::DeletePool(name)
            | Mutation::SwitchPool(name) => Target::Pool(name.clone()),
            Mutation::CreateActiveDirectory(name, _)
            | Mutation::UpdateActiveDirectory(name, _)
            | Mutation::DeleteActiveDirectory(name) => Target::ActiveDirectory(name.clone()),
            Mutation::CreateVolume(name, _)
            | Mutation::UpdateVolume(name, _)
            | Mutation::DeleteVolume { name, .. }
            | Mutation::RevertVolume { name, .. }
            | Mutation::SplitVolume(name) => Target::Volume(name.clone()),
            Mutation::RenameVolume { name, to } => Target::Volume(name.place.of(name.surface, to)),
            Mutation::ChangePolicy(name, _) => Target::Relation(name.to_string().into()),
            Mutation::RenameSnapshot { name, to } => Target::Snapshot(name.parent.snapshot(to)),
            Mutation::CreateSnapshot(name, _)
            | Mutation::UpdateSnapshot(name, _)
            | Mutation::DeleteSnapshot(name) => Target::Snapshot(name.clone()),
            Mutation::Replicate { verb, .. } => Target::Relation(verb.subject().1.into()),
        }
    }

    /// What is done to it.
    pub fn verb(&self) -> &'static str {
        match self {
            Mutation::CreatePool(..)
            | Mutation::CreateVolume(..)
            | Mutation::CreateSnapshot(..)
            | Mutation::CreateActiveDirectory(..) => "create",
            Mutation::UpdatePool(..)
            | Mutation::UpdateVolume(..)
            | Mutation::UpdateSnapshot(..)
            | Mutation::UpdateActiveDirectory(..) => "update",
            Mutation::DeletePool(..)
            | Mutation::DeleteVolume { .. }
            | Mutation::DeleteSnapshot(..)
            | Mutation::DeleteActiveDirectory(..) => "delete",
            Mutation::SwitchPool(..) => "switch",
            Mutation::SplitVolume(..) => "split",
            Mutation::RenameSnapshot { .. } | Mutation::RenameVolume { .. } => "rename",
            Mutation::ChangePolicy(_, change) => change.verb(),
            Mutation::RevertVolume { .. } => "revert",
            Mutation::Replicate { verb, .. } => verb.subject().0,
        }
    }

    /// The password that it takes, which is in memory alone.
    pub(crate) fn secret(&self) -> Option<&Secret> {
        match self {
            Mutation::CreateActiveDirectory(_, new) => Some(&new.password),
            Mutation::UpdateActiveDirectory(_, change) => change.password.as_ref(),
            _ => None,
        }
    }

    /// The least role that may ask for it. A paired node may read everything for as long as it is paired, which is more
    /// than an editor's token grants and outlives it: access is for administrators to grant, as tokens are.
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
