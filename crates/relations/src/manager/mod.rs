//! Which volumes are replicated, from where, when, and with what result.
//!
//! What is intended, and what has become of it, are rows of the catalog ([`rows`]). Rules are functions from the rows as
//! they are to edits of them: what users request ([`change`]), and what happened to transfers or the time has brought
//! ([`settle`]). They are called inside the catalog's transaction, so what they have checked is so when it is written.
//! They make no calls of their own: what a verb needs to know of the volumes is handed in as [`Preconditions`].
//!
//! The [`Manager`] is what is in memory only: which jobs run and how far they are. It compares that with the rows and
//! gives [`Command`]s to the caller, which moves data. So all of it runs in virtual time, with a script in place of
//! transfers.
//!
//! **Nothing is lost by a crash.** A transfer that is to be made is part of its relationship's row until it has ended: after
//! a restart it is begun again, and goes on from the destination's checkpoint, which is the transfer's own business. How
//! far it has come is in no row, and neither is when it is tried again.
//!
//! **One thing at a time** happens to a destination: a transfer, or its end as a copy (break). Verbs that would need two
//! are refused, as ONTAP refuses them.
//!
//! **Throttles.** A transfer takes its relationship's throttle along when it starts, also when it starts again after an
//! abort, a failure or a crash; changing the relationship's changes nothing that is under way. Global throttles are
//! commands of their own and act at once.

mod rows;
mod settings;
#[cfg(test)]
mod tests;
mod transfers;
mod verbs;

use crate::model::{
    ABORTED, Copied, FileRestore, Note, Path, Policy, PolicyKind, Rule, TransferKind, VolumeUuid,
};
use crate::retention::Held;
use crate::schedule::Schedule;
pub use rows::{Changes, Edit, Entry, Known, OwnThrottle, Peer, Pending, Relations, Table, Work};
pub use transfers::{Manager, Step, settle};
pub use verbs::{change, looped};
pub use weir_base::limits::replica::{TRANSFER_TRIES as TRIES, TRANSFERS_AT_ONCE as AT_ONCE};

/// The policy of relationships that name none.
pub const DEFAULT_POLICY: &str = "MirrorAndVault";
/// Nothing of the kind, in ONTAP's words.
pub const NO_ENTRIES: &str = "There are no entries matching your query.";

/// What time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970; may jump.
    pub wall: i64,
    /// Milliseconds that only grow.
    pub ms: u64,
}

/// What kind of refusal it is: programs get a code for it, people the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// What was named is not there.
    NotFound,
    /// What was to be made is there.
    Duplicate,
    /// A value that nothing could be done with.
    Invalid,
    /// The state does not allow it, until the state is changed.
    State,
    /// Something else is under way; later it may work.
    Busy,
    /// Not something that this server does.
    Unsupported,
    /// Not something that this user may do.
    Denied,
    /// It could not be done: a disk, a peer, a limit.
    Failed,
}

/// Why not, in ONTAP's words where it has some. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    /// The kind of refusal, for programs.
    pub reason: Reason,
    /// The message that users see.
    pub text: String,
}

impl Refused {
    /// A refusal with this kind and message.
    pub fn new(reason: Reason, text: impl Into<String>) -> Refused {
        let text = text.into();
        Refused { reason, text }
    }
}

fn refuse<T>(reason: Reason, text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::new(reason, text))
}

/// A user's command on relationships, policies, schedules, peers or throttles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Make a relationship, at its destination's node.
    Create {
        /// From, as it is to be shown; [`Preconditions::found`] says where it is.
        source: Path,
        /// The volume that becomes the copy, on this node.
        destination: Path,
        /// The policy's name; `None` is [`DEFAULT_POLICY`].
        policy: Option<String>,
        /// The schedule's name; `None`: transfers on request only.
        schedule: Option<String>,
        /// KB/s; `None` is unlimited.
        throttle: Option<u64>,
        /// How often to try; `None` is [`TRIES`].
        tries: Option<u32>,
        /// Stored and shown as [`Relationship::note`].
        note: Option<Note>,
        /// And begin the first transfer.
        initialize: Option<First>,
    },
    /// Change one: what is `None` stays.
    Modify {
        /// The relationship, by its destination.
        destination: Path,
        /// The name of another policy.
        policy: Option<String>,
        /// Another schedule, or none.
        schedule: Option<Option<String>>,
        /// Another throttle, or unlimited.
        throttle: Option<Option<u64>>,
        /// How often to try.
        tries: Option<u32>,
        /// Replaces the stored [`Relationship::note`].
        note: Option<Note>,
    },
    /// Begin the first transfer: all that the policy copies.
    Initialize {
        /// The relationship, by its destination.
        destination: Path,
        /// This snapshot of the source, not the newest state.
        source_snapshot: Option<String>,
        /// For this transfer only, KB/s or unlimited; `None`: the relationship's.
        throttle: Option<Option<u64>>,
    },
    /// The difference since the last.
    Update {
        /// The relationship, by its destination.
        destination: Path,
        /// This snapshot of the source, not the newest state.
        source_snapshot: Option<String>,
        /// For this transfer only, KB/s or unlimited; `None`: the relationship's.
        throttle: Option<Option<u64>>,
    },
    /// No more transfers until resumed; a running one ends first.
    Quiesce(Path),
    /// Allow transfers again, after `Quiesce`.
    Resume(Path),
    /// End the running transfer.
    Abort {
        /// The relationship, by its destination.
        destination: Path,
        /// Forget how far it came.
        hard: bool,
    },
    /// Make the destination a volume of its own.
    Break(Path),
    /// The same from any state: a transfer is aborted first, and what has nothing to show yet is at rest. So no schedule and
    /// no further try comes between.
    Stop(Path),
    /// The same, and then forget it, at both ends where both are on this node; whichever way round it has been.
    End(Path),
    /// Make the destination a copy again; what it got since the newest common snapshot goes.
    Resync {
        /// The relationship, by its destination.
        destination: Path,
        /// From this source, where there is no relationship yet: the other way round.
        source: Option<Path>,
    },
    /// Turn a relationship that is broken off round, with all that it has: its source becomes a copy of its destination.
    Reverse(Path),
    /// Copy a snapshot of a copy back into a volume.
    Restore {
        /// The copy that the snapshot is read from.
        source: Path,
        /// The volume that the snapshot is copied into.
        destination: Path,
        /// Which; `None` is the newest.
        source_snapshot: Option<String>,
        /// KB/s; `None` is unlimited.
        throttle: Option<u64>,
        /// Only these, into a volume that can be written to; empty is the whole volume.
        files: Vec<FileRestore>,
    },
    /// Forget a destination, at the source.
    Release(Path),
    /// Forget a source, at the destination.
    Delete(Path),
    /// A policy of one's own.
    PolicyCreate {
        /// Its name, unique among those of its kind.
        name: String,
        /// What kind of copy the policy makes.
        kind: PolicyKind,
        /// Free text, only shown.
        comment: String,
        /// Compress on the wire.
        compression: bool,
        /// Besides that for the transfer's own snapshots, which every kind but a vault has.
        rules: Vec<Rule>,
    },
    /// Change one: what is `None` stays.
    PolicyModify {
        /// Its name, unique among those of its kind.
        name: String,
        /// Another comment: free text, only shown.
        comment: Option<String>,
        /// Compress on the wire.
        compression: Option<bool>,
        /// In place of all that name snapshots of the source by their labels.
        rules: Option<Vec<Rule>>,
    },
    /// Delete one of the users' own policies, by name.
    PolicyDelete(String),
    /// Add, change or remove a rule.
    PolicyRule {
        /// Name of the policy to change.
        name: String,
        /// The label that the rule names: [`Rule::label`].
        label: String,
        /// How many to keep; `None` removes the rule.
        keep: Option<u32>,
        /// [`Rule::preserve`]; `None`: as it is, or not.
        preserve: Option<bool>,
        /// [`Rule::schedule`]; the outer `None`: as it is, or none.
        schedule: Option<Option<String>>,
        /// [`Rule::prefix`]; the outer `None`: as it is, or none.
        prefix: Option<Option<String>>,
    },
    /// A schedule of one's own.
    ScheduleCreate {
        /// Its name, unique among those of its kind.
        name: String,
        /// When its transfers run.
        schedule: Schedule,
    },
    /// Delete one of the users' own schedules, by name.
    ScheduleDelete(String),
    /// Pair another node with this one.
    PeerCreate {
        /// What to call it.
        name: String,
        /// `host:port`; `None` where only it connects to us.
        address: Option<String>,
        /// SHA-256 of its certificate, hexadecimal, with colons or without.
        fingerprint: String,
    },
    /// Offer pairing to another node, which proves that it knows a passphrase: the offer is not a row.
    PeerInvite {
        /// What to call it.
        name: String,
        /// `host:port`; `None`: where it connects from, with the port that it gives.
        address: Option<String>,
    },
    /// End the pairing with the peer of this name.
    PeerDelete(String),
    /// Set the global throttle of one direction.
    GlobalThrottle {
        /// Of what comes in, else of what goes out.
        incoming: bool,
        /// KB/s; `None` is set to unlimited.
        max: Option<u64>,
    },
}

/// What is said of a relationship's first transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct First {
    /// This snapshot of the source, not the newest state.
    pub source_snapshot: Option<String>,
    /// For this transfer only, KB/s or unlimited; `None`: the relationship's.
    pub throttle: Option<Option<u64>>,
    /// It waits until the source's node is paired with this one: what the source is, the transfer itself finds out.
    pub once_paired: bool,
}

impl Verb {
    /// Its command in full, and the one thing that it is about: a path, or a name. For the audit log.
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

    /// Whether it begins a transfer, which goes on when the verb has been done.
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

/// A volume, as far as the rules need to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Bytes that it may hold; `None` is all there is.
    pub size: Option<u64>,
    /// Only transfers may write to it.
    pub data_protection: bool,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<Held>,
    /// Which volume it is.
    pub uuid: VolumeUuid,
    /// The volumes that it is a copy of, over whatever nodes, the nearest first.
    pub above: Vec<VolumeUuid>,
}

/// What a verb may have to know that is not the manager's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preconditions {
    /// For a new relationship's name.
    pub unique: u128,
    /// Where the source that was named is found: with the peer's name in `cluster` where it is another node's. `None`: as it
    /// was named.
    pub found: Option<Path>,
    /// The source; or why nothing is known of it, in words.
    pub source: Result<Side, String>,
    /// The destination; or why nothing is known of it, in words.
    pub destination: Result<Side, String>,
    /// Some volume is mirrored synchronously.
    pub synchronous: bool,
    /// A job of the relationship runs now.
    pub running: bool,
    /// SHA-256 of this node's own certificate, lower-case hexadecimal.
    pub fingerprint: String,
}

impl Preconditions {
    /// For verbs that need none.
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

/// What is to be done for a relationship.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Move data, for this purpose.
    Transfer(TransferKind),
    /// Make the destination writable, at its last complete snapshot.
    Break,
}

/// Everything that doing it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What [`Manager::event`] identifies it by.
    pub id: u64,
    /// UUID of the relationship that it works for.
    pub relationship: String,
    /// What the job does.
    pub task: Task,
    /// The volume that data is read from.
    pub source: Path,
    /// The volume that data is written to.
    pub destination: Path,
    /// Its rules choose what is copied and kept.
    pub policy: Policy,
    /// Name of the only snapshot to copy; `None`: those that the policy chooses.
    pub source_snapshot: Option<String>,
    /// KB/s; `None` is unlimited.
    pub throttle: Option<u64>,
    /// Only these files, into a volume that can be written to; empty is the whole volume.
    pub files: Vec<FileRestore>,
    /// All that it copies is at the destination: [`Step::Arrived`].
    pub arrived: bool,
    /// A checkpoint that there may be is not to be used.
    pub anew: bool,
    /// The request's number within the relationship: all its tries have it.
    pub serial: u64,
}

/// What the caller that moves data is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin. The caller must report [`Event::Ended`] from now on.
    Start(Box<Job>),
    /// End it soon; [`Event::Ended`] says when.
    Abort {
        /// The number of the job: [`Job::id`].
        id: u64,
    },
    /// The global throttles, KB/s.
    Throttle {
        /// Of what comes in.
        incoming: Option<u64>,
        /// Of what goes out.
        outgoing: Option<u64>,
    },
    /// Make a snapshot of a destination for a rule that has a schedule, and delete those that it does not keep.
    /// [`Step::Ruled`] is to say that this was done.
    Take(Box<Take>),
    /// The source keeps nothing for this relationship any more: its own snapshots may go.
    Forget {
        /// UUID of the released relationship.
        relationship: String,
        /// The source, on this node.
        source: Path,
    },
}

/// A snapshot that a rule's schedule wants of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// UUID of the relationship.
    pub relationship: String,
    /// The volume that is the copy.
    pub destination: Path,
    /// The rule.
    pub rule: Rule,
    /// What the snapshot is called.
    pub name: String,
    /// Slots of the rule's schedule up to this second count as run then, seconds since 1970.
    pub at: i64,
}

/// How far a transfer has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Logical bytes, with those before a restart from a checkpoint.
    pub bytes: u64,
    /// Bytes on the wire, likewise.
    pub wire_bytes: u64,
    /// Of these, those that this try has moved.
    pub moved: u64,
    /// Of the logical bytes, those behind which a restart would begin.
    pub checkpoint: u64,
    /// Bytes a second over the last seconds.
    pub rate: u64,
    /// Name of the limit that binds; `None`: none does.
    pub bound_by: Option<String>,
    /// Logical bytes in all, once known.
    pub total: Option<u64>,
}

/// How a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was ended on request.
    Aborted,
    /// Trying again may help.
    Retry(String),
    /// Trying again will not help.
    Final(String),
}

impl Failure {
    /// Why it failed, as users see it.
    pub fn words(&self) -> &str {
        match self {
            Failure::Aborted => ABORTED,
            Failure::Retry(why) | Failure::Final(why) => why,
        }
    }
}

/// How a job came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The newest snapshot that the destination has now.
    pub newest: Option<Copied>,
    /// The volumes that the destination is a copy of now, its source first.
    pub above: Vec<VolumeUuid>,
}

/// What happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The newest snapshot that it is to bring.
    Chosen(String),
    /// Data begins to move. May come again, for the next snapshot.
    Moving,
    /// How far it has come.
    Progress(Progress),
    /// All data of a snapshot is there; it is being made the destination's content.
    Finalizing,
    /// This complete snapshot is what the destination is now: a further one, or the one that a resync went back to.
    Snapshot(Copied),
    /// The job has ended; no event of it follows.
    Ended(Result<Done, Failure>),
}

/// Which end of a relationship a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The volume that is copied.
    Source,
    /// The volume that is the copy.
    Destination,
}

impl Use {
    /// The word for it in messages.
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
    /// KB/s, if it limits anything.
    pub fn kbs(self) -> Option<u64> {
        match self {
            Global::Max(kbs) => Some(kbs),
            Global::Unset | Global::Unlimited => None,
        }
    }
}

/// A UUID of version 4 (RFC 9562 §5.4) from 128 random bits.
fn uuid(unique: u128) -> String {
    uuid::Builder::from_random_bytes(unique.to_be_bytes())
        .into_uuid()
        .to_string()
}
