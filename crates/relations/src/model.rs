//! The model of replication: relationships, policies, schedules, transfers; in ONTAP's terms.
//!
//! A relationship is known by its destination: a destination has one source, a source any number of
//! destinations. Times are seconds since 1970, UTC; sizes bytes; throttles KB/s with 1 KB = 1,024
//! bytes, as ONTAP counts.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
pub use weir_base::limits::replica::{THROTTLE_LEAST, THROTTLE_MOST};

pub use weir_base::SnapshotIdentity;

/// A volume of a storage virtual machine: `SVM:volume`, on a named peer or, with an empty cluster,
/// on this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Path {
    /// The peer's name; empty is this node.
    #[serde(default)]
    pub cluster: String,
    /// The storage virtual machine: a project.
    pub vserver: String,
    /// The volume's name in its storage virtual machine.
    pub volume: String,
}

impl Path {
    /// A volume of this node.
    pub fn local(vserver: &str, volume: &str) -> Path {
        Path {
            cluster: String::new(),
            vserver: vserver.to_owned(),
            volume: volume.to_owned(),
        }
    }

    /// Reads `SVM:volume`, `cluster://SVM/volume`, or `SVM:` for a whole machine, which is refused
    /// as no volume.
    pub fn parse(text: &str) -> Option<Path> {
        let (cluster, vserver, volume) = match text.split_once("://") {
            Some((cluster, rest)) => {
                let (vserver, volume) = rest.split_once('/').filter(|_| !cluster.is_empty())?;
                (cluster, vserver, volume)
            }
            None => {
                let (vserver, volume) = text.split_once(':')?;
                ("", vserver, volume)
            }
        };
        let sound = |part: &str| {
            !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        (sound(vserver) && sound(volume) && (cluster.is_empty() || sound(cluster))).then(|| Path {
            cluster: cluster.to_owned(),
            vserver: vserver.to_owned(),
            volume: volume.to_owned(),
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cluster.is_empty() {
            true => write!(f, "{}:{}", self.vserver, self.volume),
            false => write!(f, "{}://{}/{}", self.cluster, self.vserver, self.volume),
        }
    }
}

/// Identifies a volume among all volumes of all nodes: `weir_volume::Volume::uuid`.
pub type VolumeUuid = [u8; 16];

/// A file that a restore copies, by its paths from the roots of the two volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRestore {
    /// In the snapshot.
    pub source: String,
    /// In the volume.
    pub destination: String,
}

/// State of the destination with regard to its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MirrorState {
    /// Nothing was transferred yet.
    #[default]
    Uninitialized,
    /// A read-only copy of a snapshot.
    Snapmirrored,
    /// A writable volume of its own.
    BrokenOff,
}

impl MirrorState {
    /// Returns the state's name in ONTAP's API and CLI.
    pub fn word(self) -> &'static str {
        match self {
            MirrorState::Uninitialized => "Uninitialized",
            MirrorState::Snapmirrored => "Snapmirrored",
            MirrorState::BrokenOff => "Broken-off",
        }
    }
}

/// Activity of a relationship.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// No transfer runs or waits.
    #[default]
    Idle,
    /// Waiting for a slot.
    Queued,
    /// Comparing the snapshots of both sides.
    Preparing,
    /// Moving data to the destination.
    Transferring,
    /// Making the received data the destination's content.
    Finalizing,
    /// Ending the transfer on request.
    Aborting,
    /// Letting the running transfer finish; no other starts after it.
    Quiescing,
    /// No transfer starts until the relationship is resumed.
    Quiesced,
    /// Making the destination writable.
    Breaking,
    /// Synchronous only: replies to clients wait for both sides.
    InSync,
    /// Synchronous only: the partner lacks changes.
    OutOfSync,
}

impl Status {
    /// Returns the status's name in ONTAP's API and CLI.
    pub fn word(self) -> &'static str {
        match self {
            Status::Idle => "Idle",
            Status::Queued => "Queued",
            Status::Preparing => "Preparing",
            Status::Transferring => "Transferring",
            Status::Finalizing => "Finalizing",
            Status::Aborting => "Aborting",
            Status::Quiescing => "Quiescing",
            Status::Quiesced => "Quiesced",
            Status::Breaking => "Breaking",
            Status::InSync => "InSync",
            Status::OutOfSync => "OutOfSync",
        }
    }
}

/// Purpose of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferKind {
    /// The first transfer: everything.
    Initialize,
    /// The difference since the last transfer.
    Update,
    /// Makes the destination a copy again after a break.
    Resync,
    /// From the copy back into a volume.
    Restore,
}

impl TransferKind {
    /// Returns the kind's name in ONTAP's API and CLI.
    pub fn word(self) -> &'static str {
        match self {
            TransferKind::Initialize => "initialize",
            TransferKind::Update => "update",
            TransferKind::Resync => "resync",
            TransferKind::Restore => "restore",
        }
    }
}

/// Result and figures of the last transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTransfer {
    /// UUID of the transfer.
    pub uuid: String,
    /// The newest snapshot that it copied, or was to copy.
    pub snapshot: Option<String>,
    /// Purpose.
    pub kind: TransferKind,
    /// Logical bytes moved, before compression.
    pub bytes: u64,
    /// Bytes on the wire, after compression.
    pub wire_bytes: u64,
    /// Duration in milliseconds, from start to end.
    pub duration_ms: u64,
    /// The part of `duration_ms` before the first byte of data.
    pub setup_ms: u64,
    /// The part of `duration_ms` while data moved. A throttle limits only this part.
    pub data_ms: u64,
    /// The part of `duration_ms` after the last byte of data.
    pub finalize_ms: u64,
    /// Bytes a second on the wire while data moved; 0 if none moved. Bytes from before a restart
    /// from a checkpoint do not count.
    #[serde(default)]
    pub rate: u64,
    /// Time of the end, seconds since 1970.
    pub end: i64,
    /// Cause of the failure; `None` is success. [`ABORTED`] if the transfer was ended on request.
    pub error: Option<String>,
}

/// The error of a transfer that was aborted.
pub const ABORTED: &str = "Transfer aborted.";

/// A snapshot that a destination has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedSnapshot {
    /// Name at the destination.
    pub name: String,
    /// Time at which it was taken at the source, seconds since 1970.
    pub taken: i64,
    /// Identity, which does not depend on the name.
    pub id: SnapshotIdentity,
}

/// A running transfer, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// UUID; a restart from a checkpoint keeps it.
    pub uuid: String,
    /// Purpose.
    pub kind: TransferKind,
    /// The newest snapshot that it copies; `None` until it is chosen.
    pub snapshot: Option<String>,
    /// Time of the start, seconds since 1970.
    pub started: i64,
    /// Logical bytes so far, including those before a restart from a checkpoint.
    pub bytes: u64,
    /// Bytes on the wire so far, after compression.
    pub wire_bytes: u64,
    /// Logical bytes that a restart would not transfer again.
    pub checkpoint: u64,
    /// Time of these figures, seconds since 1970.
    pub updated: i64,
    /// Rate over the last seconds, bytes a second.
    pub rate: u64,
    /// The limit that binds: `relationship`, `incoming`, `outgoing`; `None` if none does.
    pub bound_by: Option<String>,
    /// Logical bytes in all; `None` until they are known.
    pub total: Option<u64>,
    /// Throttle of this transfer in KB/s, fixed when it began.
    pub throttle: Option<u64>,
}

impl Transfer {
    /// Returns the seconds until all data has moved at the current rate. Assumes that the rest
    /// compresses like the data so far. `None` if the total or the rate is not known.
    pub fn time_left(&self) -> Option<u64> {
        let left = u128::from(self.total?.checked_sub(self.bytes)?);
        let wire = (left * u128::from(self.wire_bytes)).checked_div(u128::from(self.bytes))?;
        let seconds = wire.checked_div(u128::from(self.rate))?;
        Some(u64::try_from(seconds).unwrap_or(u64::MAX))
    }
}

/// Attributes of a relationship that only the API of NetApp Volumes has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The bare id of the replication.
    pub id: String,
    /// Free text.
    pub description: Option<String>,
    /// Labels by key.
    pub labels: BTreeMap<String, String>,
    /// Time of creation of the replication, seconds since 1970.
    pub created: i64,
}

/// A relationship, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relationship {
    /// UUID, chosen at creation; never changes.
    pub uuid: String,
    /// The volume that data comes from.
    pub source: Path,
    /// The volume that is the copy.
    pub destination: Path,
    /// Name of the policy that selects snapshots.
    pub policy: String,
    /// Name of the schedule; `None` if transfers run on request only.
    pub schedule: Option<String>,
    /// KB/s for the next transfers; `None` is unlimited.
    pub throttle: Option<u64>,
    /// Number of attempts for a transfer that fails.
    pub tries: u32,
    /// State of the destination.
    pub state: MirrorState,
    /// Current activity.
    pub status: Status,
    /// The running transfer, if one runs.
    pub transfer: Option<Transfer>,
    /// The last transfer; `None` before the first ended.
    pub last: Option<LastTransfer>,
    /// False if something requires attention; see `unhealthy_reason`.
    pub healthy: bool,
    /// Cause; `None` if healthy.
    pub unhealthy_reason: Option<String>,
    /// The newest snapshot that the destination holds.
    pub newest: Option<CopiedSnapshot>,
    /// The snapshot that readers of the destination see.
    pub exported: Option<CopiedSnapshot>,
    /// Attributes for the API of NetApp Volumes; `None` if the relationship was created through
    /// ONTAP's interfaces.
    pub note: Option<Note>,
    /// Set if a pair replicates the volume with each change; `None` if transfers copy it.
    #[serde(default)]
    pub synchronous: Option<Synchronous>,
}

/// Additional state of a relationship between the two nodes of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synchronous {
    /// Time since which the partner lacks changes, seconds since 1970; `None` if it is in sync.
    pub behind_since: Option<i64>,
}

impl Relationship {
    /// Creates an idle relationship that has transferred nothing.
    pub fn new(uuid: String, source: Path, destination: Path, policy: &str) -> Relationship {
        Relationship {
            uuid,
            source,
            destination,
            policy: policy.to_owned(),
            schedule: None,
            throttle: None,
            tries: 0,
            state: MirrorState::Uninitialized,
            status: Status::Idle,
            transfer: None,
            last: None,
            healthy: true,
            unhealthy_reason: None,
            newest: None,
            exported: None,
            note: None,
            synchronous: None,
        }
    }

    /// Returns the seconds by which the destination is behind: the age of its newest snapshot, or,
    /// if synchronous, the time since it was last in sync. `None` if the destination is not a copy,
    /// not yet or no longer.
    pub fn lag(&self, now: i64) -> Option<u64> {
        if let Some(Synchronous { behind_since }) = self.synchronous {
            let behind = behind_since.map_or(0, |since| now - since);
            return Some(u64::try_from(behind).unwrap_or(0));
        }
        lag(self.state, self.newest.as_ref(), now)
    }
}

pub(crate) fn lag(state: MirrorState, newest: Option<&CopiedSnapshot>, now: i64) -> Option<u64> {
    let newest = newest.filter(|_| state == MirrorState::Snapmirrored)?;
    Some(u64::try_from(now - newest.taken).unwrap_or(0))
}

/// Kind of copy that a policy makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyKind {
    /// The newest state, for a failover.
    AsyncMirror,
    /// Selected snapshots, kept longer than at the source.
    Vault,
    /// The newest state, and selected snapshots.
    MirrorVault,
    /// Each change, on both nodes of a pair. A node that is left alone serves writes.
    SyncMirror,
    /// As `SyncMirror`, but a node that is left alone refuses writes.
    StrictSyncMirror,
}

impl PolicyKind {
    /// Returns the kind's name in ONTAP's API and CLI.
    pub fn word(self) -> &'static str {
        match self {
            PolicyKind::AsyncMirror => "async-mirror",
            PolicyKind::Vault => "vault",
            PolicyKind::MirrorVault => "mirror-vault",
            PolicyKind::SyncMirror => "sync-mirror",
            PolicyKind::StrictSyncMirror => "strict-sync-mirror",
        }
    }

    /// Returns true if the copy has each change before a client gets the reply.
    pub fn is_synchronous(self) -> bool {
        matches!(self, PolicyKind::SyncMirror | PolicyKind::StrictSyncMirror)
    }

    /// Parses a name of [`PolicyKind::word`]. `None` for the synchronous kinds, which users cannot
    /// create.
    pub fn from_word(word: &str) -> Option<PolicyKind> {
        [
            PolicyKind::AsyncMirror,
            PolicyKind::Vault,
            PolicyKind::MirrorVault,
        ]
        .into_iter()
        .find(|kind| kind.word() == word)
    }
}

/// Snapshots that a policy copies, and the number of them that it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Label of the snapshots, [`SM_CREATED`] (the transfer's own) or [`ALL`].
    pub label: String,
    /// Number of copies to keep at the destination.
    pub keep: u32,
    /// True if `keep` is a limit: a transfer that would exceed it is refused, and no copy is
    /// deleted to make room.
    #[serde(default)]
    pub preserve: bool,
    /// Name of the schedule by which the destination takes these snapshots of its own content.
    /// Snapshots of the source with the label are then not copied.
    #[serde(default)]
    pub schedule: Option<String>,
    /// Prefix of the names of these scheduled snapshots; `None` is the label.
    #[serde(default)]
    pub prefix: Option<String>,
}

/// Label of the snapshots that transfers take themselves.
pub const SM_CREATED: &str = "sm_created";
/// Label of a rule for all snapshots of the source.
pub const ALL: &str = "all_source_snapshots";

impl Rule {
    /// Creates a rule that keeps `keep` copies and has no other option set.
    pub fn new(label: &str, keep: u32) -> Rule {
        Rule {
            label: label.to_owned(),
            keep,
            preserve: false,
            schedule: None,
            prefix: None,
        }
    }

    /// Returns true if the rule copies snapshots of the source with this label.
    pub fn copies(&self, label: Option<&str>) -> bool {
        self.schedule.is_none() && label == Some(&*self.label)
    }

    /// Returns true if the rule is for a label that users give to snapshots.
    pub fn is_by_label(&self) -> bool {
        self.label != SM_CREATED && self.label != ALL
    }
}

/// Rules by which a relationship copies snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Name, unique among policies.
    pub name: String,
    /// Kind of copy.
    pub kind: PolicyKind,
    /// Rules, in the order in which they are listed.
    pub rules: Vec<Rule>,
    /// Free text; has no effect.
    pub comment: String,
    /// True to compress data on the wire.
    #[serde(default)]
    pub compression: bool,
    /// True for a built-in policy, which cannot be changed or deleted.
    pub system: bool,
}

/// Name of the policy of pairs in which a node that is left alone serves writes.
pub const SYNC: &str = "Sync";
/// Name of the policy of pairs in which a node that is left alone refuses writes.
pub const STRICT_SYNC: &str = "StrictSync";

/// Returns the built-in policies, with the names and rules of ONTAP's own.
pub fn system_policies() -> Vec<Policy> {
    let policy = |name: &str, kind, rules: &[(&str, u32)], comment: &str| Policy {
        name: name.to_owned(),
        kind,
        rules: rules
            .iter()
            .map(|(label, keep)| Rule::new(label, *keep))
            .collect(),
        comment: comment.to_owned(),
        compression: false,
        system: true,
    };
    use PolicyKind::{AsyncMirror, MirrorVault, StrictSyncMirror, SyncMirror, Vault};
    vec![
        policy(
            "MirrorAllSnapshots",
            AsyncMirror,
            &[("sm_created", 1), ("all_source_snapshots", 1)],
            "All snapshots of the source and its newest state",
        ),
        policy(
            "MirrorLatest",
            AsyncMirror,
            &[("sm_created", 1)],
            "The newest state of the source",
        ),
        policy(
            "MirrorAndVault",
            MirrorVault,
            &[("sm_created", 1), ("daily", 7), ("weekly", 52)],
            "The newest state, and daily and weekly snapshots",
        ),
        policy(
            STRICT_SYNC,
            StrictSyncMirror,
            &[],
            "Each change on both nodes of a pair; one alone changes nothing",
        ),
        policy(
            SYNC,
            SyncMirror,
            &[],
            "Each change on both nodes of a pair; one alone goes on",
        ),
        policy(
            "Unified7year",
            MirrorVault,
            &[
                ("sm_created", 1),
                ("daily", 7),
                ("weekly", 52),
                ("monthly", 84),
            ],
            "The newest state, and snapshots of seven years",
        ),
        policy(
            "XDPDefault",
            Vault,
            &[("daily", 7), ("weekly", 52)],
            "Daily and weekly snapshots",
        ),
    ]
}

/// Offer of pairing to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Name that the peer will have here.
    pub name: String,
    /// Address of the peer, `host:port`; `None` is the address that it connects from.
    pub address: Option<String>,
    /// Secret that the other node joins with: any node that has it becomes a peer.
    pub passphrase: String,
    /// End of the offer, seconds since 1970, UTC.
    pub expires: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_they_are_shown() {
        for text in ["SVM:vol_test", "dst://SVM/vol_test_1_dst"] {
            assert_eq!(Path::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", "SVM", "SVM:", ":vol", "a:b c", "x://a", "a:b/c", "://a/b",
        ] {
            assert_eq!(Path::parse(text), None, "{text}");
        }
    }
}
