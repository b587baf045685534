//! Who replicates what, when, and what becomes of it.
//!
//! The manager is a state machine over one value, [`State`]: relationships, policies, schedules, global throttles. What
//! comes in are verbs of users ([`Manager::change`]), what happened to transfers ([`Manager::event`]) and the time
//! ([`Manager::tick`]); what goes out are [`Order`]s to whoever moves data. It asks nobody anything: what a verb needs to
//! know of the volumes is handed in as [`Facts`]. So all of it runs in virtual time, with a fake in place of transfers.
//!
//! **Nothing is lost by a crash.** A change is made to a copy of the state, the copy is written to the [`Journal`] as a
//! whole, and only then is it in force and answered; a journal that fails leaves everything as it was. The state is a few
//! hundred bytes a relationship and changes a few times a transfer, so writing all of it costs less than a log of changes
//! would cost in care. A transfer that is to be made is part of the state until it has ended: after a restart it is
//! begun again, and goes on from the destination's checkpoint, which is the transfer's own business. How far it has come
//! is not part of the state, and neither is when it is tried again.
//!
//! **One thing at a time** happens to a destination: a transfer, or its end as a copy (break). Verbs that would need two
//! are refused, as ONTAP refuses them.
//!
//! **Throttles.** A transfer takes its relationship's throttle along when it starts, also when it starts again after an
//! abort, a failure or a crash; changing the relationship's changes nothing that is under way. Global throttles are
//! orders of their own and act at once.

mod state;
#[cfg(test)]
mod tests;
mod transfers;
mod verbs;

use std::collections::BTreeMap;

use crate::model::{
    Copied, MirrorState, Path, Policy, PolicyKind, Relationship, SnapshotIdentity, Status,
    TransferKind, system_policies,
};
use crate::retention::Held;
use crate::schedule::{self, Schedule};
pub use state::State;
use state::{Entry, Work};
use transfers::Running;

/// Transfers at once; the others are queued. As many as ONTAP runs on a node.
pub const AT_ONCE: usize = 100;
/// How often a transfer is tried unless the relationship says otherwise.
pub const TRIES: u32 = 8;
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
    /// The state does not allow it, until somebody changes the state.
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
    /// For programs.
    pub reason: Reason,
    /// For people.
    pub text: String,
}

impl Refused {
    /// A refusal.
    pub fn new(reason: Reason, text: impl Into<String>) -> Refused {
        let text = text.into();
        Refused { reason, text }
    }
}

fn refuse<T>(reason: Reason, text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::new(reason, text))
}

/// Where the state is kept.
pub trait Journal: Send {
    /// Replaces what is kept, as a whole and durably: after a crash there is the old or the new.
    ///
    /// # Errors
    /// Why it could not be written. The old is still there then.
    fn write(&mut self, contents: &[u8]) -> Result<(), String>;
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Make a relationship.
    Create {
        /// From; with the peer's name in `cluster` where it is another node's.
        source: Path,
        /// The source as users are to see it.
        shown: Path,
        /// To.
        destination: Path,
        /// `None`: [`DEFAULT_POLICY`].
        policy: Option<String>,
        /// By name.
        schedule: Option<String>,
        /// KB/s; `None` is unlimited.
        throttle: Option<u64>,
        /// How often to try; `None` is [`TRIES`].
        tries: Option<u32>,
        /// [`Relationship::annotation`].
        annotation: String,
    },
    /// Change one: what is `None` stays.
    Modify {
        /// Which.
        destination: Path,
        /// Another policy.
        policy: Option<String>,
        /// Another schedule, or none.
        schedule: Option<Option<String>>,
        /// Another throttle, or unlimited.
        throttle: Option<Option<u64>>,
        /// How often to try.
        tries: Option<u32>,
        /// [`Relationship::annotation`].
        annotation: Option<String>,
    },
    /// The first transfer.
    Initialize(Wanted),
    /// The difference since the last.
    Update(Wanted),
    /// No more transfers until resumed; a running one ends first.
    Quiesce(Path),
    /// Transfers again.
    Resume(Path),
    /// End the running transfer.
    Abort {
        /// The relationship.
        destination: Path,
        /// Forget how far it came.
        hard: bool,
    },
    /// Make the destination a volume of its own.
    Break(Path),
    /// Make the destination a copy again; what it got since the newest common snapshot goes.
    Resync {
        /// The relationship.
        destination: Path,
        /// From this source (resolved, and as shown), where there is no relationship yet.
        source: Option<(Path, Path)>,
    },
    /// Copy a snapshot of a copy back into a volume.
    Restore {
        /// The copy, resolved.
        source: Path,
        /// As shown.
        shown: Path,
        /// Into this.
        destination: Path,
        /// Which; `None` is the newest.
        source_snapshot: Option<String>,
        /// KB/s, or unlimited.
        throttle: Option<u64>,
    },
    /// Forget a destination, at the source.
    Release(Path),
    /// Forget a source, at the destination.
    Delete(Path),
    /// A policy of one's own.
    PolicyCreate {
        /// Its name.
        name: String,
        /// What kind.
        kind: PolicyKind,
        /// Free text.
        comment: String,
        /// Compress on the wire.
        compression: bool,
    },
    /// Change one: what is `None` stays.
    PolicyModify {
        /// Its name.
        name: String,
        /// Free text.
        comment: Option<String>,
        /// Compress on the wire.
        compression: Option<bool>,
    },
    /// Delete one.
    PolicyDelete(String),
    /// Add, change or remove a rule.
    PolicyRule {
        /// The policy.
        name: String,
        /// Which snapshots.
        label: String,
        /// How many to keep; `None` removes the rule.
        keep: Option<u32>,
    },
    /// A schedule of one's own.
    ScheduleCreate {
        /// Its name.
        name: String,
        /// When.
        schedule: Schedule,
    },
    /// Delete one.
    ScheduleDelete(String),
    /// The global throttle.
    GlobalThrottle {
        /// Of what comes in, else of what goes out.
        incoming: bool,
        /// KB/s; `None` is set to unlimited.
        max: Option<u64>,
    },
}

/// A transfer that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The relationship.
    pub destination: Path,
    /// This snapshot of the source, not the newest state.
    pub source_snapshot: Option<String>,
    /// For this transfer only, KB/s or unlimited; `None`: the relationship's.
    pub throttle: Option<Option<u64>>,
}

impl Wanted {
    /// The newest state under the relationship's throttle.
    pub fn plain(destination: Path) -> Wanted {
        Wanted {
            destination,
            source_snapshot: None,
            throttle: None,
        }
    }
}

/// A volume, as far as the rules need to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Bytes that it may hold; `None` is all there is.
    pub size: Option<u64>,
    /// Nobody but a transfer may write to it.
    pub data_protection: bool,
    /// Oldest first.
    pub snapshots: Vec<Held>,
}

/// What a verb may have to know that is not the manager's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// For a new relationship's name.
    pub unique: u128,
    /// The source; or why nothing is known of it, in words.
    pub source: Result<Side, String>,
    /// The destination, likewise.
    pub destination: Result<Side, String>,
    /// Some volume is mirrored synchronously.
    pub synchronous: bool,
}

impl Facts {
    /// For verbs that need none.
    pub fn none() -> Facts {
        Facts {
            unique: 0,
            source: Err("it was not asked for".to_owned()),
            destination: Err("it was not asked for".to_owned()),
            synchronous: false,
        }
    }
}

/// What is to be done for a relationship.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Move data.
    Transfer(TransferKind),
    /// Make the destination writable, at its last complete snapshot.
    Break,
}

/// Everything that doing it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What [`Manager::event`] is to be told with.
    pub id: u64,
    /// The relationship's name.
    pub relationship: String,
    /// What.
    pub task: Task,
    /// From.
    pub source: Path,
    /// To.
    pub destination: Path,
    /// The rules.
    pub policy: Policy,
    /// This snapshot only.
    pub source_snapshot: Option<String>,
    /// KB/s.
    pub throttle: Option<u64>,
    /// A checkpoint that there may be is not to be used.
    pub anew: bool,
    /// The request's number within the relationship: all its tries have it.
    pub serial: u64,
}

/// What whoever moves data is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Begin. [`Event::Ended`] is owed from now on.
    Start(Box<Job>),
    /// End it soon; [`Event::Ended`] says when.
    Abort {
        /// The job.
        id: u64,
    },
    /// The global throttles, KB/s.
    Throttle {
        /// Of what comes in.
        incoming: Option<u64>,
        /// Of what goes out.
        outgoing: Option<u64>,
    },
    /// The source keeps nothing for this relationship any more: its own snapshots may go.
    Forget {
        /// The relationship's name.
        relationship: String,
        /// The source, on this node.
        source: Path,
    },
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
    /// Which limit binds.
    pub bound_by: Option<String>,
    /// Logical bytes in all, once known.
    pub total: Option<u64>,
}

/// How a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// On request.
    Aborted,
    /// Trying again may help.
    Retry(String),
    /// It will not.
    Final(String),
}

/// How a job came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The newest snapshot that the destination has now.
    pub newest: Option<Copied>,
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
    /// It has ended.
    Ended(Result<Done, Failure>),
}

/// Which end of a relationship a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// What is copied.
    Source,
    /// The copy.
    Destination,
}

impl Use {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Use::Source => "source",
            Use::Destination => "destination",
        }
    }
}

/// A global throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// Never set.
    Unset,
    /// Set to no limit.
    Unlimited,
    /// KB/s.
    Max(u64),
}

/// See the module's head.
pub struct Manager {
    state: State,
    journal: Box<dyn Journal>,
    /// What happened could not be written; tried again with each tick.
    unsaved: bool,
    running: BTreeMap<String, Running>,
    /// When a failed transfer is tried again, milliseconds.
    retries: BTreeMap<String, u64>,
    /// The next slot of a relationship's schedule: of what run, as of when, at what time.
    slots: BTreeMap<String, Slot>,
    next_job: u64,
    orders: Vec<Order>,
}

struct Slot {
    schedule: Schedule,
    last: i64,
    asked: i64,
    at: Option<i64>,
}

impl Manager {
    /// Goes on with what the journal holds; `None` is the first start.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn open(contents: Option<&[u8]>, journal: Box<dyn Journal>) -> Result<Manager, String> {
        let state = match contents {
            Some(bytes) => State::decode(bytes)?,
            None => State::default(),
        };
        let mut manager = Manager {
            state,
            journal,
            unsaved: false,
            running: BTreeMap::new(),
            retries: BTreeMap::new(),
            slots: BTreeMap::new(),
            next_job: 1,
            orders: Vec::new(),
        };
        manager.order_throttles();
        Ok(manager)
    }

    /// What is to be done, in this order. Each is given once.
    pub fn orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Lets time pass: begins what is due, and what waits for its turn.
    pub fn tick(&mut self, now: Now) {
        if self.unsaved {
            self.save();
        }
        self.run_schedules(now);
        self.start_queued(now);
    }

    /// Relationships whose destination is here, in the order of their making.
    pub fn relationships(&self) -> Vec<Relationship> {
        self.state
            .entries
            .iter()
            .map(|entry| self.shown(entry))
            .collect()
    }

    /// One of them.
    pub fn relationship(&self, destination: &Path) -> Option<Relationship> {
        let entry = self.state.entry(destination)?;
        Some(self.shown(entry))
    }

    /// Relationships whose source is here, with what is known of them here.
    pub fn destinations(&self) -> Vec<Relationship> {
        let known = self.state.known.iter();
        known
            .map(|known| {
                let entry = self.state.entries.iter().find(|e| e.uuid == known.uuid);
                entry.map_or_else(|| known.shown(), |entry| self.shown(entry))
            })
            .collect()
    }

    /// A transfer of a volume of ours has been sent, as far as its snapshot `newest`: from now on the destination is
    /// known here, and needs that snapshot for its next transfer.
    pub fn served(
        &mut self,
        uuid: &str,
        from: &Path,
        to: &Path,
        at: i64,
        newest: SnapshotIdentity,
    ) {
        let mut next = self.state.clone();
        next.know(uuid, from, to, Some(at));
        if let Some(known) = next.known.iter_mut().find(|known| known.uuid == uuid) {
            known.newest = Some(newest);
        }
        if next != self.state {
            self.state = next;
            self.save();
        }
    }

    /// The snapshots of a volume without which relationships would have to begin anew.
    pub fn needed(&self, path: &Path) -> Vec<SnapshotIdentity> {
        let copies = self.state.known.iter().filter(|k| k.source == *path);
        let copies = copies.filter_map(|k| k.newest);
        let own = self.state.entry(path).and_then(|e| e.newest.as_ref());
        copies.chain(own.map(|newest| newest.id)).collect()
    }

    /// The source, as it is to be found, of a relationship.
    pub fn source_of(&self, destination: &Path) -> Option<Path> {
        Some(self.state.entry(destination)?.source.clone())
    }

    /// Whether some relationship copies from this peer.
    pub fn uses_peer(&self, name: &str) -> bool {
        let mut entries = self.state.entries.iter();
        entries.any(|e| e.source.cluster == name)
    }

    /// What hinders the deletion of a volume: a relationship that it is an end of, or one elsewhere that has not been
    /// released; by its destination.
    pub fn volume_in_use(&self, path: &Path) -> Option<(Use, Path)> {
        if let Some(entry) = self.state.entry(path) {
            return Some((Use::Destination, entry.destination.clone()));
        }
        let entries = self.state.entries.iter();
        let entries = entries.map(|e| (&e.source, &e.destination));
        let known = self.state.known.iter();
        let known = known.map(|k| (&k.source, &k.destination));
        let (_, destination) = entries.chain(known).find(|(source, _)| *source == path)?;
        Some((Use::Source, destination.clone()))
    }

    /// All policies, by name.
    pub fn policies(&self) -> Vec<Policy> {
        let mut all = system_policies();
        all.extend(self.state.policies.iter().cloned());
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn policy(&self, name: &str) -> Option<Policy> {
        self.policies().into_iter().find(|p| p.name == name)
    }

    /// The users' own schedules by name. Those of the start are [`schedule::named`].
    pub fn own_schedules(&self) -> Vec<(String, Schedule)> {
        let own = self.state.schedules.iter();
        own.map(|(name, schedule)| (name.clone(), *schedule))
            .collect()
    }

    fn schedule(&self, name: &str) -> Option<Schedule> {
        let built_in = schedule::named().into_iter().find(|(n, ..)| *n == name);
        match built_in {
            Some((_, schedule, _)) => Some(schedule),
            None => self.state.schedules.get(name).copied(),
        }
    }

    /// A global throttle.
    pub fn global_throttle(&self, incoming: bool) -> Global {
        match self.state.throttle(incoming) {
            None => Global::Unset,
            Some(None) => Global::Unlimited,
            Some(Some(kbs)) => Global::Max(kbs),
        }
    }

    fn order_throttles(&mut self) {
        self.orders.push(Order::Throttle {
            incoming: self.state.throttle(true).flatten(),
            outgoing: self.state.throttle(false).flatten(),
        });
    }

    /// Puts a changed state into the journal, and then into force.
    fn commit(&mut self, next: State) -> Result<(), Refused> {
        if next != self.state || self.unsaved {
            let written = self.journal.write(&next.encode());
            written.map_err(|why| {
                let text = format!("The change could not be recorded: {why}");
                Refused::new(Reason::Failed, text)
            })?;
            self.unsaved = false;
            self.state = next;
        }
        Ok(())
    }

    /// Writes down what has happened. It stays true if that fails; then it is tried again.
    fn save(&mut self) {
        self.unsaved = self.journal.write(&self.state.encode()).is_err();
    }

    /// Whether something is not in the journal yet because that could not be written.
    pub fn unsaved(&self) -> bool {
        self.unsaved
    }

    /// Whether the schedule of `entry` has a slot since the last run that has passed.
    fn is_due(&mut self, uuid: &str, schedule: Schedule, last: i64, now: i64) -> bool {
        let known = self.slots.get(uuid).filter(|slot| {
            slot.schedule == schedule && slot.last == last && (slot.asked..).contains(&now)
        });
        let at = match known {
            Some(slot) => slot.at,
            None => {
                let at = schedule.next(last.min(now));
                let slot = Slot {
                    schedule,
                    last,
                    asked: now,
                    at,
                };
                self.slots.insert(uuid.to_owned(), slot);
                at
            }
        };
        at.is_some_and(|at| at <= now)
    }

    fn run_schedules(&mut self, now: Now) {
        let candidates: Vec<(String, Schedule, i64)> = self
            .state
            .entries
            .iter()
            .filter(|e| e.state == MirrorState::Snapmirrored && !e.quiesced && e.pending.is_none())
            .filter_map(|e| {
                let schedule = self.schedule(e.schedule.as_deref()?)?;
                Some((e.uuid.clone(), schedule, e.scheduled))
            })
            .collect();
        let due: Vec<String> = candidates
            .into_iter()
            .filter(|(uuid, schedule, last)| self.is_due(uuid, *schedule, *last, now.wall))
            .map(|(uuid, ..)| uuid)
            .collect();
        if due.is_empty() {
            return;
        }
        let mut next = self.state.clone();
        for entry in &mut next.entries {
            if due.contains(&entry.uuid) {
                entry.scheduled = now.wall;
                entry.begin(Work::Transfer(TransferKind::Update), None, None, now.wall);
            }
        }
        // A slot that cannot be written down is not begun; the next tick tries again.
        let _ = self.commit(next);
    }

    fn shown(&self, entry: &Entry) -> Relationship {
        let reason = self.unhealthy(entry);
        Relationship {
            uuid: entry.uuid.clone(),
            source: entry.shown.clone(),
            destination: entry.destination.clone(),
            policy: entry.policy.clone(),
            schedule: entry.schedule.clone(),
            throttle: entry.throttle,
            tries: entry.tries,
            state: entry.state,
            status: self.status(entry),
            transfer: self.transfer(entry),
            last: entry.last.clone(),
            healthy: reason.is_none(),
            unhealthy_reason: reason,
            newest: entry.newest.clone(),
            exported: entry.newest.clone(),
            annotation: entry.annotation.clone(),
        }
    }

    fn status(&self, entry: &Entry) -> Status {
        let working = self.running.get(&entry.uuid).map(Running::status);
        match (&entry.pending, working) {
            (Some(pending), _) if pending.work == Work::Break => Status::Breaking,
            (_, Some(Status::Aborting)) => Status::Aborting,
            (_, Some(_)) if entry.quiesced => Status::Quiescing,
            (_, Some(status)) => status,
            (_, None) if entry.quiesced => Status::Quiesced,
            (Some(_), None) => Status::Queued,
            (None, None) => Status::Idle,
        }
    }

    fn unhealthy(&self, entry: &Entry) -> Option<String> {
        let quiesced = || "The relationship is quiesced: no updates are made.".to_owned();
        let trouble = entry.trouble.clone();
        trouble.or_else(|| entry.quiesced.then(quiesced))
    }
}

/// A UUID of version 4 (RFC 9562 §5.4) from 128 random bits.
fn uuid(unique: u128) -> String {
    uuid::Builder::from_random_bytes(unique.to_be_bytes())
        .into_uuid()
        .to_string()
}
