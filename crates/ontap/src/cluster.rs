//! What commands are asked of.

use weir_replica::model::{Path, Policy, PolicyKind, Relationship};

/// Why something was refused, in ONTAP's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The volume.
    pub path: Path,
    /// Its name.
    pub name: String,
    /// Seconds since 1970.
    pub created: i64,
    /// Bytes that only it holds.
    pub size: u64,
    /// `snapmirror-label`.
    pub label: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Where.
    pub path: Path,
    /// Bytes that it may hold; `None` is all there is.
    pub size: Option<u64>,
    /// Bytes that it holds.
    pub used: u64,
    /// `DP` for the destination of a relationship, else `RW`.
    pub protection: bool,
}

/// What a command changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `snapmirror create`
    Create {
        /// From.
        source: Path,
        /// To.
        destination: Path,
        /// `None`: the default policy.
        policy: Option<String>,
        /// By name.
        schedule: Option<String>,
        /// KB/s; `None` is unlimited.
        throttle: Option<u64>,
    },
    /// `snapmirror modify`: what is `None` stays.
    Modify {
        /// The relationship.
        destination: Path,
        /// Another policy.
        policy: Option<String>,
        /// Another schedule, or none.
        schedule: Option<Option<String>>,
        /// Another throttle, or unlimited.
        throttle: Option<Option<u64>>,
        /// How often to try.
        tries: Option<u32>,
    },
    /// `snapmirror initialize`, with a source where it is to make the relationship too.
    Initialize {
        /// The relationship.
        destination: Path,
        /// Instead of the newest.
        source_snapshot: Option<String>,
        /// For this transfer only, KB/s.
        throttle: Option<u64>,
    },
    /// `snapmirror update`
    Update {
        /// The relationship.
        destination: Path,
        /// Instead of the newest.
        source_snapshot: Option<String>,
        /// For this transfer only, KB/s.
        throttle: Option<u64>,
    },
    /// `snapmirror quiesce`
    Quiesce(Path),
    /// `snapmirror resume`
    Resume(Path),
    /// `snapmirror abort`
    Abort {
        /// The relationship.
        destination: Path,
        /// Discard the checkpoint.
        hard: bool,
    },
    /// `snapmirror break`
    Break(Path),
    /// `snapmirror resync`
    Resync {
        /// The relationship.
        destination: Path,
        /// The other way round: this source, which is the destination of today.
        source: Option<Path>,
        /// Not look for data that is there already.
        quick: bool,
    },
    /// `snapmirror restore`
    Restore {
        /// The copy.
        source: Path,
        /// Into this.
        destination: Path,
        /// Which snapshot; `None` is the newest.
        source_snapshot: Option<String>,
    },
    /// `snapmirror release`, at the source.
    Release(Path),
    /// `snapmirror delete`, at the destination.
    Delete(Path),
    /// `snapmirror policy create`
    PolicyCreate {
        /// Its name.
        name: String,
        /// What kind.
        kind: PolicyKind,
        /// Free text.
        comment: String,
    },
    /// `snapmirror policy delete`
    PolicyDelete(String),
    /// `snapmirror policy add-rule`, `modify-rule`
    PolicyRule {
        /// The policy.
        name: String,
        /// Which snapshots.
        label: String,
        /// How many to keep; `None` removes the rule.
        keep: Option<u32>,
    },
    /// `snapshot create`
    SnapshotCreate {
        /// The volume.
        path: Path,
        /// Its name.
        name: String,
        /// `snapmirror-label`.
        label: Option<String>,
    },
    /// `snapshot delete`
    SnapshotDelete {
        /// The volume.
        path: Path,
        /// Its name.
        name: String,
    },
    /// `snapshot rename`
    SnapshotRename {
        /// The volume.
        path: Path,
        /// Its name.
        name: String,
        /// Its new name.
        new_name: String,
    },
    /// `snapshot modify`
    SnapshotLabel {
        /// The volume.
        path: Path,
        /// Its name.
        name: String,
        /// `snapmirror-label`; `None` takes it away.
        label: Option<String>,
    },
    /// `volume snapshot restore`
    SnapshotRestore {
        /// The volume.
        path: Path,
        /// Its name.
        name: String,
    },
    /// `options`: the global throttles. `None` as set to `unlimited`.
    GlobalThrottle {
        /// Incoming, else outgoing.
        incoming: bool,
        /// KB/s.
        max: Option<u64>,
    },
}

/// A global throttle, as shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// Never set.
    Unset,
    /// Set to no limit.
    Unlimited,
    /// KB/s.
    Max(u64),
}

/// What is replicated, and what can be done about it.
pub trait Cluster {
    /// Its name.
    fn name(&self) -> String;
    /// Seconds since 1970.
    fn now(&self) -> i64;
    /// Relationships whose destination is here, in the order of their making.
    fn relationships(&self) -> Vec<Relationship>;
    /// Relationships whose source is here: source, destination, whether it still transfers.
    fn destinations(&self) -> Vec<Relationship>;
    /// Policies, by name.
    fn policies(&self) -> Vec<Policy>;
    /// The names of schedules, with what they mean.
    fn schedules(&self) -> Vec<(String, String)>;
    /// Volumes.
    fn volumes(&self) -> Vec<Volume>;
    /// Snapshots of all volumes, oldest first within each.
    fn snapshots(&self) -> Vec<Snapshot>;
    /// The global throttle.
    fn global_throttle(&self, incoming: bool) -> Throttle;
    /// Carries a change out, or queues what takes time.
    fn change(&self, change: Change) -> Result<(), Failure>;
}
