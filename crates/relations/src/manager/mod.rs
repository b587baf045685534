//! Management of relationships: users' commands, schedules, jobs and their results.
//!
//! Relationships, pending work and results are rows of the catalog ([`rows`]). The rules are
//! functions from the current rows to edits: [`change`] for users' commands, [`apply_step`] for
//! events of transfers and for schedules. They run inside the catalog's transaction, so their
//! checks still hold when the edits are written. They make no calls of their own: the facts about
//! volumes that a verb needs are passed in as [`Preconditions`].
//!
//! The [`Manager`] has the state that is in memory only: the running jobs and their progress. It
//! compares that state with the rows and returns [`Command`]s for the caller, which moves data.
//! Tests can therefore run everything in virtual time, with a script in place of transfers.
//!
//! **Nothing is lost by a crash.** A pending transfer is part of its relationship's row until it
//! has ended. After a restart it begins again and resumes from the destination's checkpoint, which
//! the transfer itself manages. Neither the progress of a transfer nor the time of its retry is in
//! a row.
//!
//! **One operation at a time** on a destination: a transfer or a break. Verbs that would need two
//! are refused, as in ONTAP.
//!
//! **Throttles.** A transfer takes its relationship's throttle when it starts, and again at each
//! restart after an abort, a failure or a crash. Changing the relationship's throttle does not
//! affect a running transfer. Global throttles have their own commands and act at once.

mod rows;
mod settings;
#[cfg(test)]
mod tests;
mod transfers;
mod verbs;

use crate::model::{
    ABORTED, CopiedSnapshot, FileRestore, Note, Path, Policy, PolicyKind, Rule, TransferKind,
    VolumeUuid,
};
use crate::retention::LabelledSnapshot;
use crate::schedule::Schedule;
pub use rows::{
    ChangeSet, Edit, Entry, KnownDestination, OwnThrottle, Peer, PendingWork, Relations, Table,
    Work,
};
pub use transfers::{Manager, Step, apply_step};
pub use verbs::{change, looped};
pub use weir_base::limits::replica::{TRANSFER_TRIES as TRIES, TRANSFERS_AT_ONCE as AT_ONCE};

/// Policy of relationships that are created without one.
pub const DEFAULT_POLICY: &str = "MirrorAndVault";
/// ONTAP's message for an object that does not exist.
pub const NO_ENTRIES: &str = "There are no entries matching your query.";

/// Current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970; may jump.
    pub wall: i64,
    /// Milliseconds of a monotonic clock.
    pub ms: u64,
}

/// Kind of a refusal. Programs get a code for it; people read the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The named object does not exist.
    NotFound,
    /// The object to create exists already.
    Duplicate,
    /// A value is invalid.
    Invalid,
    /// The state of the relationship does not allow it.
    State,
    /// Another operation is in progress; a retry may succeed.
    Busy,
    /// This server does not implement it.
    Unsupported,
    /// The user lacks the permission.
    Denied,
    /// It failed: a disk, a peer or a limit.
    Failed,
}

/// Refusal of a verb, in ONTAP's words where it has some. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct VerbRefusal {
    /// The kind of refusal, for programs.
    pub reason: Reason,
    /// The message that users see.
    pub text: String,
}

impl VerbRefusal {
    /// Creates a refusal.
    pub fn new(reason: Reason, text: impl Into<String>) -> VerbRefusal {
        let text = text.into();
        VerbRefusal { reason, text }
    }
}

fn refuse<T>(reason: Reason, text: impl Into<String>) -> Result<T, VerbRefusal> {
    Err(VerbRefusal::new(reason, text))
}

/// A user's command on relationships, policies, schedules, peers or throttles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Creates a relationship, on the node of its destination.
    Create {
        /// Source as users wrote it; [`Preconditions::found`] has its location.
        source: Path,
        /// The volume that becomes the copy, on this node.
        destination: Path,
        /// The policy's name; `None` is [`DEFAULT_POLICY`].
        policy: Option<String>,
        /// Name of the schedule; `None` if transfers run on request only.
        schedule: Option<String>,
        /// KB/s; `None` is unlimited.
        throttle: Option<u64>,
        /// Number of attempts for a transfer; `None` is [`TRIES`].
        tries: Option<u32>,
        /// Stored and shown as `Relationship::note`.
        note: Option<Note>,
        /// Set to start the first transfer as well.
        initialize: Option<First>,
    },
    /// Changes a relationship; a `None` leaves the attribute unchanged.
    Modify {
        /// The relationship, by its destination.
        destination: Path,
        /// The name of another policy.
        policy: Option<String>,
        /// Another schedule, or none.
        schedule: Option<Option<String>>,
        /// Another throttle, or unlimited.
        throttle: Option<Option<u64>>,
        /// Number of attempts for a transfer.
        tries: Option<u32>,
        /// Replaces the stored `Relationship::note`.
        note: Option<Note>,
    },
    /// Starts the first transfer: everything that the policy copies.
    Initialize {
        /// The relationship, by its destination.
        destination: Path,
        /// Name of the snapshot of the source to copy; `None` is the newest state.
        source_snapshot: Option<String>,
        /// Throttle of this transfer only, in KB/s or unlimited; `None` is the relationship's.
        throttle: Option<Option<u64>>,
    },
    /// Transfers the difference since the last transfer.
    Update {
        /// The relationship, by its destination.
        destination: Path,
        /// Name of the snapshot of the source to copy; `None` is the newest state.
        source_snapshot: Option<String>,
        /// Throttle of this transfer only, in KB/s or unlimited; `None` is the relationship's.
        throttle: Option<Option<u64>>,
    },
    /// Allows no more transfers until resumed; a running one ends first.
    Quiesce(Path),
    /// Allows transfers again after `Quiesce`.
    Resume(Path),
    /// Aborts the running transfer.
    Abort {
        /// The relationship, by its destination.
        destination: Path,
        /// True to discard the checkpoint too.
        hard: bool,
    },
    /// Makes the destination a writable volume of its own.
    Break(Path),
    /// `Break` from any state, in one step, so that neither a schedule nor a retry comes between. A
    /// transfer is aborted first, and an uninitialized relationship is quiesced.
    Stop(Path),
    /// `Stop`, followed by deletion of the relationship. If both ends are on this node, both forget
    /// it, even if it was reversed.
    End(Path),
    /// Makes the destination a copy again; discards its changes since the newest common snapshot.
    Resync {
        /// The relationship, by its destination.
        destination: Path,
        /// Source of a relationship to create, for the reverse direction; `None` if the
        /// relationship exists.
        source: Option<Path>,
    },
    /// Reverses a broken-off relationship with all its attributes: its source becomes a copy of its
    /// destination.
    Reverse(Path),
    /// Copies a snapshot of a copy back into a volume.
    Restore {
        /// The copy that the snapshot is read from.
        source: Path,
        /// The volume that the snapshot is copied into.
        destination: Path,
        /// Name of the snapshot; `None` is the newest.
        source_snapshot: Option<String>,
        /// KB/s; `None` is unlimited.
        throttle: Option<u64>,
        /// Files to copy into a writable volume; empty is the whole volume.
        files: Vec<FileRestore>,
    },
    /// Makes the source forget a destination.
    Release(Path),
    /// Deletes a relationship at its destination.
    Delete(Path),
    /// Creates a user's policy.
    PolicyCreate {
        /// Its name, unique among those of its kind.
        name: String,
        /// Kind of copy.
        kind: PolicyKind,
        /// Free text; has no effect.
        comment: String,
        /// True to compress data on the wire.
        compression: bool,
        /// Rules besides the one for the transfer's own snapshots, which every kind but a vault
        /// has.
        rules: Vec<Rule>,
    },
    /// Changes a user's policy; a `None` leaves the attribute unchanged.
    PolicyModify {
        /// Its name, unique among those of its kind.
        name: String,
        /// Free text; has no effect.
        comment: Option<String>,
        /// True to compress data on the wire.
        compression: Option<bool>,
        /// Rules that replace all rules for labels that users give.
        rules: Option<Vec<Rule>>,
    },
    /// Deletes a user's policy by name.
    PolicyDelete(String),
    /// Adds, changes or removes a rule of a policy.
    PolicyRule {
        /// Name of the policy to change.
        name: String,
        /// The label that the rule names: [`Rule::label`].
        label: String,
        /// Number of copies to keep; `None` removes the rule.
        keep: Option<u32>,
        /// [`Rule::preserve`]; `None` leaves it unchanged, or false for a new rule.
        preserve: Option<bool>,
        /// [`Rule::schedule`]; the outer `None` leaves it unchanged, or none for a new rule.
        schedule: Option<Option<String>>,
        /// [`Rule::prefix`]; the outer `None` leaves it unchanged, or none for a new rule.
        prefix: Option<Option<String>>,
    },
    /// Creates a user's schedule.
    ScheduleCreate {
        /// Its name, unique among those of its kind.
        name: String,
        /// Times at which transfers run.
        schedule: Schedule,
    },
    /// Deletes a user's schedule by name.
    ScheduleDelete(String),
    /// Pairs another node with this one.
    PeerCreate {
        /// Name of the peer on this node.
        name: String,
        /// Address `host:port`; `None` if only the peer connects.
        address: Option<String>,
        /// SHA-256 of its certificate, hexadecimal, with colons or without.
        fingerprint: String,
    },
    /// Offers pairing to another node, which proves that it knows a passphrase. The offer is not a
    /// row.
    PeerInvite {
        /// Name of the peer on this node.
        name: String,
        /// Address `host:port`; `None` is the address that it connects from, with the port that it
        /// reports.
        address: Option<String>,
    },
    /// Ends the pairing with the peer of this name.
    PeerDelete(String),
    /// Sets the global throttle of one direction.
    GlobalThrottle {
        /// True for incoming transfers, false for outgoing ones.
        incoming: bool,
        /// KB/s; `None` sets it to unlimited.
        max: Option<u64>,
    },
}

/// Options of a relationship's first transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct First {
    /// Name of the snapshot of the source to copy; `None` is the newest state.
    pub source_snapshot: Option<String>,
    /// Throttle of this transfer only, in KB/s or unlimited; `None` is the relationship's.
    pub throttle: Option<Option<u64>>,
    /// True to wait until the source's node is paired with this one. The transfer itself then
    /// checks the source.
    pub once_paired: bool,
}

impl Verb {
    /// Returns the full name of the command, and its object (a path or a name), for the audit log.
    pub fn subject(&self) -> (&'static str, String) {
        let (command, path): (&str, &Path) = match self {
            Verb::Create { destination, .. } => ("snapmirror create", destination),
            Verb::Modify { destination, .. } => ("snapmirror modify", destination),
            Verb::Initialize { destination, .. } => ("snapmirror initialize", destination),
            Verb::Update { destination, .. } => ("snapmirror update", destination),
            Verb::Quiesce(destination) => ("snapmirror quiesce", destination),
            Verb::Resume(destination) => ("snapmirror resume", destination),
            Verb::Abort { destination, .. } => ("snapmirror abort", destination),
            Verb::Break(destination) => ("snapmirror break", destination),
            Verb::Stop(destination) => ("replication stop", destination),
            Verb::End(destination) => ("replication delete", destination),
            Verb::Resync { destination, .. } => ("snapmirror resync", destination),
            Verb::Reverse(destination) => ("snapmirror reverse", destination),
            Verb::Restore { destination, .. } => ("snapmirror restore", destination),
            Verb::Release(destination) => ("snapmirror release", destination),
            Verb::Delete(destination) => ("snapmirror delete", destination),
            Verb::PolicyCreate { name, .. } => return ("snapmirror policy create", name.clone()),
            Verb::PolicyModify { name, .. } => return ("snapmirror policy modify", name.clone()),
            Verb::PolicyDelete(name) => return ("snapmirror policy delete", name.clone()),
            Verb::PolicyRule { name, keep, .. } => {
                let command = match keep {
                    Some(_) => "snapmirror policy add-rule",
                    None => "snapmirror policy remove-rule",
                };
                return (command, name.clone());
            }
            Verb::ScheduleCreate { name, .. } => return ("job schedule create", name.clone()),
            Verb::ScheduleDelete(name) => return ("job schedule delete", name.clone()),
            Verb::PeerCreate { name, .. } => return ("cluster peer create", name.clone()),
            Verb::PeerInvite { name, .. } => {
                return ("cluster peer create -generate-passphrase", name.clone());
            }
            Verb::PeerDelete(name) => return ("cluster peer delete", name.clone()),
            Verb::GlobalThrottle { incoming, max } => {
                let direction = if *incoming { "incoming" } else { "outgoing" };
                let max = max.map_or_else(|| "unlimited".to_owned(), |kbs| kbs.to_string());
                let option = format!("replication.throttle.{direction}.max_kbs={max}");
                return ("options", option);
            }
        };
        (command, path.to_string())
    }

    /// Returns true if it queues a transfer, which continues after the verb has returned.
    pub fn queues(&self) -> bool {
        matches!(
            self,
            Verb::Initialize { .. }
                | Verb::Update { .. }
                | Verb::Resync { .. }
                | Verb::Reverse(_)
                | Verb::Restore { .. }
                | Verb::Create {
                    initialize: Some(_),
                    ..
                }
        )
    }
}

/// Attributes of a volume that the rules check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Maximum size in bytes; `None` is no limit.
    pub size: Option<u64>,
    /// True if only transfers may write to it.
    pub data_protection: bool,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<LabelledSnapshot>,
    /// Identity of the volume.
    pub uuid: VolumeUuid,
    /// The volumes that it is a copy of, on any node, the nearest first.
    pub above: Vec<VolumeUuid>,
}

/// Facts that a verb needs from outside of the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preconditions {
    /// Random number for the UUID of a new relationship.
    pub unique: u128,
    /// Location of the source, with the peer's name in `cluster` if it is on another node; `None`
    /// is the path that the user gave.
    pub found: Option<Path>,
    /// The source, or the cause for which it is not known.
    pub source: Result<Side, String>,
    /// The destination, or the cause for which it is not known.
    pub destination: Result<Side, String>,
    /// True if some volume is replicated synchronously.
    pub synchronous: bool,
    /// True if a job of the relationship runs now.
    pub running: bool,
    /// SHA-256 of this node's own certificate, lower-case hexadecimal.
    pub fingerprint: String,
}

impl Preconditions {
    /// Returns the value for verbs that need no facts.
    pub fn none() -> Preconditions {
        Preconditions {
            unique: 0,
            found: None,
            source: Err("it was not asked for".to_owned()),
            destination: Err("it was not asked for".to_owned()),
            synchronous: false,
            running: false,
            fingerprint: String::new(),
        }
    }
}

/// Operation of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Moves data for this purpose.
    Transfer(TransferKind),
    /// Makes the destination writable at its last complete snapshot.
    Break,
}

/// Complete description of a job for the caller that carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Identity of the job in [`Manager::event`].
    pub id: u64,
    /// UUID of the relationship that it works for.
    pub relationship: String,
    /// Operation.
    pub task: Task,
    /// The volume that data is read from.
    pub source: Path,
    /// The volume that data is written to.
    pub destination: Path,
    /// Policy whose rules select what is copied and kept.
    pub policy: Policy,
    /// Name of the only snapshot to copy; `None` is a selection by the policy.
    pub source_snapshot: Option<String>,
    /// Throttle in KB/s; `None` is unlimited.
    pub throttle: Option<u64>,
    /// Files to copy into a writable volume; empty is the whole volume.
    pub files: Vec<FileRestore>,
    /// True if all data of the job is at the destination ([`Step::Arrived`]).
    pub arrived: bool,
    /// True to discard a checkpoint.
    pub anew: bool,
    /// Number of the request within the relationship, the same for all its attempts.
    pub serial: u64,
}

/// Command for the caller that moves data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Starts a job. The caller has to report [`Event::Ended`] for it.
    Start(Box<Job>),
    /// Aborts a job; [`Event::Ended`] follows.
    Abort {
        /// The number of the job: [`Job::id`].
        id: u64,
    },
    /// Sets the global throttles, in KB/s.
    Throttle {
        /// Limit of incoming transfers; `None` is unlimited.
        incoming: Option<u64>,
        /// Limit of outgoing transfers; `None` is unlimited.
        outgoing: Option<u64>,
    },
    /// Takes a snapshot of a destination for a rule that has a schedule, and deletes those that the
    /// rule no longer keeps. [`Step::Ruled`] has to report it.
    Take(Box<Take>),
    /// Deletes the own snapshots at the source of a relationship that was released.
    Forget {
        /// UUID of the released relationship.
        relationship: String,
        /// The source, on this node.
        source: Path,
    },
}

/// A snapshot of a destination to take for a rule with a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// UUID of the relationship.
    pub relationship: String,
    /// The volume that is the copy.
    pub destination: Path,
    /// The rule.
    pub rule: Rule,
    /// Name of the snapshot.
    pub name: String,
    /// Time, seconds since 1970. Earlier slots of the rule's schedule count as run.
    pub at: i64,
}

/// Progress of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Logical bytes, including those before a restart from a checkpoint.
    pub bytes: u64,
    /// Bytes on the wire, including those before a restart from a checkpoint.
    pub wire_bytes: u64,
    /// The part of `wire_bytes` that this attempt has moved.
    pub moved: u64,
    /// The part of `bytes` that a restart would not transfer again.
    pub checkpoint: u64,
    /// Rate over the last seconds, bytes a second.
    pub rate: u64,
    /// Name of the limit that binds; `None` if none does.
    pub bound_by: Option<String>,
    /// Logical bytes in all; `None` until they are known.
    pub total: Option<u64>,
}

/// Failure of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The job was aborted on request.
    Aborted,
    /// A retry may succeed. The cause.
    Retry(String),
    /// A retry would fail too. The cause.
    Final(String),
}

impl Failure {
    /// Returns the cause as users see it.
    pub fn words(&self) -> &str {
        match self {
            Failure::Aborted => ABORTED,
            Failure::Retry(why) | Failure::Final(why) => why,
        }
    }
}

/// Result of a job that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The newest snapshot that the destination has now; `None` leaves the stored one unchanged.
    pub newest: Option<CopiedSnapshot>,
    /// The volumes that the destination is a copy of now, its source first.
    pub above: Vec<VolumeUuid>,
}

/// Event of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Name of the newest snapshot that the job copies.
    Chosen(String),
    /// Data begins to move. May come again, for the next snapshot.
    Moving,
    /// Progress so far.
    Progress(Progress),
    /// All data of a snapshot has arrived and is being made the destination's content.
    Finalizing,
    /// The destination now has the content of this snapshot: a further one, or the one that a
    /// resync reverted to.
    Snapshot(CopiedSnapshot),
    /// The job has ended; no event of it follows.
    Ended(Result<Done, Failure>),
}

/// End of a relationship.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The volume that is copied.
    Source,
    /// The volume that is the copy.
    Destination,
}

impl Use {
    /// Returns the word used in messages.
    pub fn word(self) -> &'static str {
        match self {
            Use::Source => "source",
            Use::Destination => "destination",
        }
    }
}

/// The global throttle of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Global {
    /// Never set: no limit.
    #[default]
    Unset,
    /// Set to no limit.
    Unlimited,
    /// Set to so many KB/s.
    Max(u64),
}

impl Global {
    /// Returns the limit in KB/s; `None` if there is none.
    pub fn kbs(self) -> Option<u64> {
        match self {
            Global::Max(kbs) => Some(kbs),
            Global::Unset | Global::Unlimited => None,
        }
    }
}

/// Returns a UUID of version 4 (RFC 9562 §5.4) made from 128 random bits.
fn uuid(unique: u128) -> String {
    uuid::Builder::from_random_bytes(unique.to_be_bytes())
        .into_uuid()
        .to_string()
}
