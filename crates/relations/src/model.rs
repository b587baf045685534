//! The model of replication: relationships, policies, schedules, transfers; in ONTAP's terms.
//!
//! A relationship is known by its destination: a destination has one source, a source any number of destinations.
//! Times are seconds since 1970, UTC; sizes bytes; throttles KB/s with 1 KB = 1,024 bytes, as ONTAP counts.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
pub use weir_base::limits::replica::{THROTTLE_LEAST, THROTTLE_MOST};

pub use weir_base::SnapshotIdentity;

/// A volume of a storage virtual machine: `SVM:volume`, on a named peer or, with an empty cluster, on this node.
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

    /// Reads `SVM:volume`, `cluster://SVM/volume`, or `SVM:` for a whole machine, which is refused as no volume.
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

/// What the destination is, as against its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MirrorState {
    /// Nothing was transferred yet.
    #[default]
    Uninitialized,
    /// A read-only copy of a snapshot.
    Snapmirrored,
    /// Writable, on its own.
    BrokenOff,
}

impl MirrorState {
    /// ONTAP's word for it, as its API and CLI show it.
    pub fn word(self) -> &'static str {
        match self {
            MirrorState::Uninitialized => "Uninitialized",
            MirrorState::Snapmirrored => "Snapmirrored",
            MirrorState::BrokenOff => "Broken-off",
        }
    }
}

/// What the relationship is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// No transfer runs or waits.
    #[default]
    Idle,
    /// Waiting for its turn.
    Queued,
    /// Comparing the snapshots of both sides.
    Preparing,
    /// Moving data to the destination.
    Transferring,
    /// Making what came the destination's content.
    Finalizing,
    /// Ending a transfer on request.
    Aborting,
    /// Letting a running transfer finish, then resting.
    Quiescing,
    /// At rest until resumed.
    Quiesced,
    /// Making the destination writable.
    Breaking,
    /// Of a synchronous mirror: replies wait for both sides.
    InSync,
    /// Of a synchronous mirror: the partner lacks something.
    OutOfSync,
}

impl Status {
    /// ONTAP's word for it, as its API and CLI show it.
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

/// What a transfer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferKind {
    /// The first one: everything.
    Initialize,
    /// The difference since the last.
    Update,
    /// After a break: back to being a copy.
    Resync,
    /// Into a volume, from its copy.
    Restore,
}

impl TransferKind {
    /// ONTAP's word for it, as its API and CLI show it.
    pub fn word(self) -> &'static str {
        match self {
            TransferKind::Initialize => "initialize",
            TransferKind::Update => "update",
            TransferKind::Resync => "resync",
            TransferKind::Restore => "restore",
        }
    }
}

/// How the last transfer ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTransfer {
    /// Its identity, a UUID.
    pub uuid: String,
    /// The newest snapshot that it brought, or was to bring.
    pub snapshot: Option<String>,
    /// What the transfer is for.
    pub kind: TransferKind,
    /// Logical bytes moved, before compression.
    pub bytes: u64,
    /// Bytes on the wire, after compression.
    pub wire_bytes: u64,
    /// How long it took in all, in milliseconds.
    pub duration_ms: u64,
    /// Of these, until the first byte of data.
    pub setup_ms: u64,
    /// Of these, while data moved: what a throttle holds for.
    pub data_ms: u64,
    /// Of these, after the last byte of data.
    pub finalize_ms: u64,
    /// Bytes a second on the wire while data moved, without what had come before a restart from a checkpoint; 0 if none
    /// moved.
    #[serde(default)]
    pub rate: u64,
    /// When it ended, seconds since 1970.
    pub end: i64,
    /// Why it failed, if it did; [`ABORTED`] where it was ended on request.
    pub error: Option<String>,
}

/// The error of a transfer that was aborted.
pub const ABORTED: &str = "Transfer aborted.";

/// A snapshot that a destination has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Its name at the destination.
    pub name: String,
    /// When it was taken at the source, seconds since 1970.
    pub taken: i64,
    /// Which it is, whatever it is called.
    pub id: SnapshotIdentity,
}

/// A running transfer, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its identity, a UUID; a restart from a checkpoint keeps it.
    pub uuid: String,
    /// What the transfer is for.
    pub kind: TransferKind,
    /// The newest snapshot that it brings, once chosen.
    pub snapshot: Option<String>,
    /// When it began, seconds since 1970.
    pub started: i64,
    /// Logical bytes so far, with those before a restart from a checkpoint.
    pub bytes: u64,
    /// Bytes on the wire so far, after compression.
    pub wire_bytes: u64,
    /// Logical bytes behind which a restart would begin.
    pub checkpoint: u64,
    /// When this figure was taken.
    pub updated: i64,
    /// The rate over the last seconds, bytes a second.
    pub rate: u64,
    /// Which limit binds: `relationship`, `incoming`, `outgoing`, or nothing.
    pub bound_by: Option<String>,
    /// Logical bytes in all, once known.
    pub total: Option<u64>,
    /// The throttle that this transfer runs under, KB/s; it was fixed when the transfer began.
    pub throttle: Option<u64>,
}

impl Transfer {
    /// Seconds until all data has moved, at the rate of now. What is left compresses as what has come did.
    pub fn time_left(&self) -> Option<u64> {
        let left = u128::from(self.total?.checked_sub(self.bytes)?);
        let wire = (left * u128::from(self.wire_bytes)).checked_div(u128::from(self.bytes))?;
        let seconds = wire.checked_div(u128::from(self.rate))?;
        Some(u64::try_from(seconds).unwrap_or(u64::MAX))
    }
}

/// What the API of NetApp Volumes has of a relationship, and ONTAP's words do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The bare id of the replication.
    pub id: String,
    /// Free text.
    pub description: Option<String>,
    /// By key.
    pub labels: BTreeMap<String, String>,
    /// When the replication was made, seconds since 1970.
    pub created: i64,
}

/// A relationship, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relationship {
    /// Given at creation; never changes.
    pub uuid: String,
    /// Where data comes from.
    pub source: Path,
    /// The volume that is the copy.
    pub destination: Path,
    /// Name of the policy that chooses snapshots.
    pub policy: String,
    /// Name of the schedule; `None`: transfers on request only.
    pub schedule: Option<String>,
    /// KB/s for the next transfers; `None` is unlimited.
    pub throttle: Option<u64>,
    /// How often a failed transfer is tried.
    pub tries: u32,
    /// What the destination is.
    pub state: MirrorState,
    /// What is going on.
    pub status: Status,
    /// The running transfer, if one runs.
    pub transfer: Option<Transfer>,
    /// How the last one ended.
    pub last: Option<LastTransfer>,
    /// Whether all is well.
    pub healthy: bool,
    /// Why it is not healthy; `None` if it is.
    pub unhealthy_reason: Option<String>,
    /// The newest snapshot that the destination holds.
    pub newest: Option<Copied>,
    /// The snapshot that readers of the destination see.
    pub exported: Option<Copied>,
    /// What the API of NetApp Volumes has of it besides; `None`: it was made in ONTAP's words.
    pub note: Option<Note>,
    /// It is of a volume that two nodes keep, and copied with each change, not by transfers; `None`: by transfers.
    #[serde(default)]
    pub synchronous: Option<Synchronous>,
}

/// Of a relationship by which a volume is the same on two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synchronous {
    /// Since when the partner lacks something, seconds since 1970; `None`: it has everything.
    pub behind_since: Option<i64>,
}

impl Relationship {
    /// One of which nothing is known but this: it has copied nothing, and nothing is going on.
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

    /// Seconds by which the destination is behind: since the newest snapshot that it holds was taken. `None` for what is no
    /// copy: not yet, or not any more. Of a synchronous one: since it was in sync.
    pub fn lag(&self, now: i64) -> Option<u64> {
        if let Some(Synchronous { behind_since }) = self.synchronous {
            let behind = behind_since.map_or(0, |since| now - since);
            return Some(u64::try_from(behind).unwrap_or(0));
        }
        lag(self.state, self.newest.as_ref(), now)
    }
}

pub(crate) fn lag(state: MirrorState, newest: Option<&Copied>, now: i64) -> Option<u64> {
    let newest = newest.filter(|_| state == MirrorState::Snapmirrored)?;
    Some(u64::try_from(now - newest.taken).unwrap_or(0))
}

/// What kind of copy a policy makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyKind {
    /// The newest state, for taking over.
    AsyncMirror,
    /// Chosen snapshots, kept longer than at the source.
    Vault,
    /// The newest state, and chosen snapshots.
    MirrorVault,
    /// Each change, on two nodes that keep one aggregate; one of them alone goes on.
    SyncMirror,
    /// The same; one of them alone changes nothing.
    StrictSyncMirror,
}

impl PolicyKind {
    /// ONTAP's word for it, as its API and CLI show it.
    pub fn word(self) -> &'static str {
        match self {
            PolicyKind::AsyncMirror => "async-mirror",
            PolicyKind::Vault => "vault",
            PolicyKind::MirrorVault => "mirror-vault",
            PolicyKind::SyncMirror => "sync-mirror",
            PolicyKind::StrictSyncMirror => "strict-sync-mirror",
        }
    }

    /// Whether the copy has each change before it is reported to a client.
    pub fn is_synchronous(self) -> bool {
        matches!(self, PolicyKind::SyncMirror | PolicyKind::StrictSyncMirror)
    }

    /// The kind of a user's policy with this word of ONTAP's ([`PolicyKind::word`]).
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

/// Which snapshots a policy copies, and how many of them it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// A snapshot's label, or `sm_created` (the transfer's own), or `all_source_snapshots`.
    pub label: String,
    /// How many to keep at the destination.
    pub keep: u32,
    /// With so many there, transfers that would bring another are refused, and none is deleted to make room.
    #[serde(default)]
    pub preserve: bool,
    /// Name of the schedule by which the destination makes the snapshots itself, of what it holds then; those of the
    /// source with the label are not copied.
    #[serde(default)]
    pub schedule: Option<String>,
    /// What the names of these begin with; `None`: the label.
    #[serde(default)]
    pub prefix: Option<String>,
}

/// The label of snapshots that transfers take for themselves.
pub const SM_CREATED: &str = "sm_created";
/// The label by which a rule names all snapshots of the source.
pub const ALL: &str = "all_source_snapshots";

impl Rule {
    /// A rule by which so many are kept, and nothing besides.
    pub fn new(label: &str, keep: u32) -> Rule {
        Rule {
            label: label.to_owned(),
            keep,
            preserve: false,
            schedule: None,
            prefix: None,
        }
    }

    /// Whether snapshots of the source with its label are copied.
    pub fn copies(&self, label: Option<&str>) -> bool {
        self.schedule.is_none() && label == Some(&*self.label)
    }

    /// Whether it names snapshots of the source by the label that users gave them.
    pub fn is_by_label(&self) -> bool {
        self.label != SM_CREATED && self.label != ALL
    }
}

/// Which snapshots a relationship copies, by rules, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Name, unique among policies.
    pub name: String,
    /// What kind of copy it makes.
    pub kind: PolicyKind,
    /// The rules, in the order in which they are listed.
    pub rules: Vec<Rule>,
    /// Free text, only shown.
    pub comment: String,
    /// Compress on the wire.
    #[serde(default)]
    pub compression: bool,
    /// Ours, as against the user's: cannot be changed or deleted.
    pub system: bool,
}

/// The policy of volumes that one of two nodes changes alone when its partner is lost.
pub const SYNC: &str = "Sync";
/// The policy of volumes that it does not.
pub const STRICT_SYNC: &str = "StrictSync";

/// The policies that are there from the start (ONTAP's own of the same names).
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
