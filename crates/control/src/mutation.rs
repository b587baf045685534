//! What can be asked for.
//!
//! Creations carry the whole resource as wanted; changes carry only what is to change, each field `None` where it stays.

use crate::model::{ExportRule, Extra, Labels, Performance, Period, Protocol, QosType, Role};
use crate::name::{Name, SnapshotName, Target};
use weir_replica::manager::{Facts, Verb};

/// A storage pool to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewPool {
    /// `PREMIUM`, or another name of the levels file.
    pub service_level: String,
    /// GiB.
    pub capacity_gib: u64,
    /// Automatic unless given.
    pub qos_type: Option<QosType>,
    /// Throughput and operations apart from capacity.
    pub custom_performance: bool,
    /// MiB/s, with custom performance.
    pub total_throughput_mibps: Option<f64>,
    /// Operations a second, with custom performance.
    pub total_iops: Option<u64>,
    /// Free text.
    pub description: String,
    /// Labels.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a storage pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolChange {
    /// GiB.
    pub capacity_gib: Option<u64>,
    /// Automatic to manual only.
    pub qos_type: Option<QosType>,
    /// MiB/s, with custom performance.
    pub total_throughput_mibps: Option<f64>,
    /// Operations a second, with custom performance.
    pub total_iops: Option<u64>,
    /// Another level: its volumes follow.
    pub service_level: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// All labels anew.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// A volume to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewVolume {
    /// The pool's bare id.
    pub pool: String,
    /// The export path without its slash.
    pub share_name: String,
    /// GiB.
    pub capacity_gib: u64,
    /// MiB/s, for pools with manual QoS; what automatic QoS would give, as far as there is any left, unless given.
    pub throughput_mibps: Option<f64>,
    /// A large volume.
    pub large: bool,
    /// At least one.
    pub protocols: Vec<Protocol>,
    /// Export policy; without one the server's default for volumes counts (`--export-options`).
    pub export_rules: Option<Vec<ExportRule>>,
    /// Permission bits of the root; 0o755 unless given.
    pub unix_permissions: Option<u32>,
    /// Whether clients see `.snapshot`; they do unless given.
    pub snapshot_directory: Option<bool>,
    /// Percent.
    pub snap_reserve: Option<f64>,
    /// As sent.
    pub snapshot_policy: Option<serde_json::Value>,
    /// Deletion is refused.
    pub deletion_restricted: bool,
    /// Make it as a copy of a snapshot.
    pub clone_of: Option<SnapshotName>,
    /// Free text.
    pub description: String,
    /// Labels.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeChange {
    /// Another pool's bare id: the volume moves there, online.
    pub pool: Option<String>,
    /// GiB.
    pub capacity_gib: Option<u64>,
    /// MiB/s, with manual QoS.
    pub throughput_mibps: Option<f64>,
    /// Protocols.
    pub protocols: Option<Vec<Protocol>>,
    /// The whole policy anew.
    pub export_rules: Option<Vec<ExportRule>>,
    /// Permission bits of the root.
    pub unix_permissions: Option<u32>,
    /// Whether clients see `.snapshot`.
    pub snapshot_directory: Option<bool>,
    /// Percent.
    pub snap_reserve: Option<f64>,
    /// As sent; null removes it.
    pub snapshot_policy: Option<serde_json::Value>,
    /// Deletion is refused.
    pub deletion_restricted: Option<bool>,
    /// Free text.
    pub description: Option<String>,
    /// All labels anew.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// A snapshot to be taken. The label `snapmirror-label` becomes the one that replication policies choose by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewSnapshot {
    /// The schedule that takes it; `None` for people.
    pub schedule: Option<Period>,
    /// Free text.
    pub description: String,
    /// Labels.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a snapshot's description.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotChange {
    /// Free text.
    pub description: Option<String>,
    /// All labels anew.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}

/// A Filestore instance to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewInstance {
    /// `BASIC_HDD`, or another name of the levels file.
    pub tier: String,
    /// The one share's name.
    pub share_name: String,
    /// GB of 2^30 bytes.
    pub capacity_gb: u64,
    /// NFSv3 unless given.
    pub protocol: Option<Protocol>,
    /// `nfsExportOptions`.
    pub export_rules: Option<Vec<ExportRule>>,
    /// Custom performance.
    pub performance: Option<Performance>,
    /// Deletion is refused.
    pub deletion_protected: bool,
    /// Free text.
    pub description: String,
    /// Labels.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a Filestore instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceChange {
    /// GB of 2^30 bytes.
    pub capacity_gb: Option<u64>,
    /// All options anew.
    pub export_rules: Option<Vec<ExportRule>>,
    /// Custom performance; `Some(None)` removes it.
    pub performance: Option<Option<Performance>>,
    /// Deletion is refused.
    pub deletion_protected: Option<bool>,
    /// The revision that the change was made against (from the etag): ABORTED if it is another by now.
    pub if_revision: Option<u64>,
    /// Free text.
    pub description: Option<String>,
    /// All labels anew.
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
    CreateVolume(Name, NewVolume),
    /// Change a volume.
    UpdateVolume(Name, VolumeChange),
    /// Delete a volume.
    DeleteVolume {
        /// Which.
        name: Name,
        /// With its snapshots; otherwise refused while it has any.
        force: bool,
    },
    /// Make a volume what it was when a snapshot was taken.
    RevertVolume {
        /// Which.
        name: Name,
        /// The snapshot's bare id.
        snapshot: String,
    },
    /// Copy what a clone shares with the volume that it was made from, so that neither depends on the other. The operation
    /// ends when that is done; the volume is used meanwhile.
    SplitVolume(Name),
    /// Take a snapshot.
    CreateSnapshot(SnapshotName, NewSnapshot),
    /// Change a snapshot's description or labels.
    UpdateSnapshot(SnapshotName, SnapshotChange),
    /// Give a snapshot another name. One that a schedule took is then kept until somebody deletes it.
    RenameSnapshot {
        /// Which.
        name: SnapshotName,
        /// Its new bare id.
        to: String,
    },
    /// Delete a snapshot.
    DeleteSnapshot(SnapshotName),
    /// Make a Filestore instance.
    CreateInstance(Name, NewInstance),
    /// Change a Filestore instance.
    UpdateInstance(Name, InstanceChange),
    /// Delete a Filestore instance.
    DeleteInstance {
        /// Which.
        name: Name,
        /// With its snapshots; otherwise refused while it has any.
        force: bool,
    },
    /// Make an instance what it was when a snapshot was taken.
    RevertInstance {
        /// Which.
        name: Name,
        /// The snapshot's bare id.
        snapshot: String,
    },
    /// Change relationships, or their policies, schedules, peers or throttles. It has been done when it was accepted, and
    /// is no operation; a transfer that it begins goes on.
    Replicate {
        /// What.
        verb: Verb,
        /// What it has to know of the volumes.
        facts: Facts,
    },
}

impl Mutation {
    /// What it changes.
    pub fn target(&self) -> Target {
        match self {
            Mutation::CreatePool(name, _)
            | Mutation::UpdatePool(name, _)
            | Mutation::DeletePool(name)
            | Mutation::SwitchPool(name) => Target::Pool(name.clone()),
            Mutation::CreateVolume(name, _)
            | Mutation::UpdateVolume(name, _)
            | Mutation::DeleteVolume { name, .. }
            | Mutation::RevertVolume { name, .. }
            | Mutation::SplitVolume(name) => Target::Volume(name.clone()),
            Mutation::RenameSnapshot { name, to } => {
                Target::Snapshot(name.parent.snapshot(name.of, to))
            }
            Mutation::CreateSnapshot(name, _)
            | Mutation::UpdateSnapshot(name, _)
            | Mutation::DeleteSnapshot(name) => Target::Snapshot(name.clone()),
            Mutation::CreateInstance(name, _)
            | Mutation::UpdateInstance(name, _)
            | Mutation::DeleteInstance { name, .. }
            | Mutation::RevertInstance { name, .. } => Target::Instance(name.clone()),
            Mutation::Replicate { verb, .. } => Target::Relation(verb.subject().1.into()),
        }
    }

    /// What is done to it.
    pub fn verb(&self) -> &'static str {
        match self {
            Mutation::CreatePool(..)
            | Mutation::CreateVolume(..)
            | Mutation::CreateSnapshot(..)
            | Mutation::CreateInstance(..) => "create",
            Mutation::UpdatePool(..)
            | Mutation::UpdateVolume(..)
            | Mutation::UpdateSnapshot(..)
            | Mutation::UpdateInstance(..) => "update",
            Mutation::DeletePool(..)
            | Mutation::DeleteVolume { .. }
            | Mutation::DeleteSnapshot(..)
            | Mutation::DeleteInstance { .. } => "delete",
            Mutation::SwitchPool(..) => "switch",
            Mutation::SplitVolume(..) => "split",
            Mutation::RenameSnapshot { .. } => "rename",
            Mutation::RevertVolume { .. } | Mutation::RevertInstance { .. } => "revert",
            Mutation::Replicate { verb, .. } => verb.subject().0,
        }
    }

    /// The least role that may ask for it. A paired node may read everything for as long as it is paired, which is more than
    /// an editor's token grants and outlives it: who has access is for administrators, as tokens are.
    pub fn role(&self) -> Role {
        match self {
            Mutation::Replicate {
                verb: Verb::PeerCreate { .. } | Verb::PeerDelete(_),
                ..
            } => Role::Admin,
            _ => Role::Editor,
        }
    }
}
