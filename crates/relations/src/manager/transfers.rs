//! State that is in memory only: running jobs, and the times at which runs are due. Also the edits
//! of rows that follow from their events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use weir_base::limits::replica::{RETRY_FIRST_MS, RETRY_MOST_MS};

use super::rows::{ChangeSet, Edit, Entry, Relations, Work};
use super::{AT_ONCE, Command, Done, Event, Failure, Global, Job, Now, Progress, Take, Task};
use crate::model::{
    ABORTED, CopiedSnapshot, LastTransfer, MirrorState, Path, Relationship, SnapshotIdentity,
    Status, Transfer, TransferKind,
};
use crate::schedule;

/// Returns the milliseconds until the next attempt after this number of failures.
fn backoff(failures: u32) -> u64 {
    let doubled = RETRY_FIRST_MS << (failures - 1).min(8);
    doubled.min(RETRY_MOST_MS)
}

/// Event that changes rows; [`apply_step`] makes the edits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A slot of a relationship's schedule has come.
    Due(String),
    /// An aborted transfer will not start again.
    Withdrawn(String),
    /// The relationship's destination now has the content of a complete snapshot.
    Snapshot(String, CopiedSnapshot),
    /// All files of a relationship's restore have arrived; they are renamed after this.
    Arrived(String),
    /// A job has ended.
    Ended {
        /// UUID of the relationship.
        relationship: String,
        /// UUID of the work.
        transfer: String,
        /// Result.
        outcome: Result<Done, Failure>,
        /// Figures of a transfer; its error follows from the outcome. `None` for a break.
        last: Option<LastTransfer>,
    },
    /// A transfer of a volume of this node was sent, up to the snapshot `newest`. The destination
    /// is known here from now on, and needs that snapshot for its next transfer.
    Served {
        /// UUID of the relationship.
        relationship: String,
        /// The source volume, on this node.
        source: Path,
        /// The destination, with the peer's name.
        destination: Path,
        /// The last snapshot that was sent.
        newest: SnapshotIdentity,
    },
    /// The own snapshots of a released relationship are deleted at its source.
    Forgotten(String),
    /// The snapshot for a policy rule's schedule was taken, or has to wait for the next slot.
    Ruled {
        /// UUID of the relationship.
        relationship: String,
        /// The rule's label.
        label: String,
        /// Slots up to this second count as run.
        at: i64,
    },
}

/// A job that was started.
#[derive(Debug)]
struct RunningJob {
    id: u64,
    /// UUID of its work.
    transfer: String,
    work: Work,
    phase: Phase,
    aborting: bool,
    /// True after the end of the job, until its row has been updated.
    ended: bool,
    started: u64,
    /// Milliseconds spent in each phase, without the current one.
    spent: [u64; 3],
    since: u64,
    progress: Progress,
    updated: i64,
    throttle: Option<u64>,
    snapshot: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Preparing,
    Moving,
    Finalizing,
}

impl RunningJob {
    fn enter(&mut self, phase: Phase, now: Now) {
        // Saturates: times.
        self.spent[self.phase as usize] += now.ms.saturating_sub(self.since);
        (self.phase, self.since) = (phase, now.ms);
    }

    fn status(&self) -> Status {
        match self.phase {
            _ if self.work == Work::Break => Status::Breaking,
            _ if self.aborting => Status::Aborting,
            Phase::Preparing => Status::Preparing,
            Phase::Moving => Status::Transferring,
            Phase::Finalizing => Status::Finalizing,
        }
    }

    fn last(&self, now: Now) -> Option<LastTransfer> {
        let Work::Transfer(kind) = self.work else {
            return None;
        };
        Some(LastTransfer {
            uuid: self.transfer.clone(),
            snapshot: self.snapshot.clone(),
            kind,
            bytes: self.progress.bytes,
            wire_bytes: self.progress.wire_bytes,
            // Saturates: times.
            duration_ms: now.ms.saturating_sub(self.started),
            setup_ms: self.spent[Phase::Preparing as usize],
            data_ms: self.spent[Phase::Moving as usize],
            finalize_ms: self.spent[Phase::Finalizing as usize],
            // Saturates: any number of bytes.
            rate: (self.progress.moved.saturating_mul(1000))
                .checked_div(self.spent[Phase::Moving as usize])
                .unwrap_or(0),
            end: now.wall,
            error: None,
        })
    }
}

/// Slot of a relationship whose last run is in the future because the clock was set back. That run
/// counts as one of the moment at which this was noticed.
struct Slot {
    last: i64,
    at: i64,
}

/// Interval in which the last runs of all relationships are compared with the clock, in
/// milliseconds.
const COMPARE_MS: u64 = 60_000;

/// See the module's head.
#[derive(Default)]
pub struct Manager {
    /// Jobs that run, by their relationship's UUID.
    running: BTreeMap<String, RunningJob>,
    /// Time of the last failure of a transfer in milliseconds, by the relationship's UUID.
    failed: BTreeMap<String, u64>,
    /// Relationships whose last run is in the future, by UUID.
    ahead: BTreeMap<String, Slot>,
    /// Time at which all last runs were last compared with the clock.
    compared: Option<Now>,
    last_job: u64,
    /// Throttles as last sent to the caller.
    throttles: Option<[Global; 2]>,
    /// Released relationships whose snapshots are being deleted.
    forgetting: BTreeSet<String>,
    /// Minute since 1970 in which the schedules of policies' rules were last compared with the
    /// clock.
    ruled: Option<i64>,
}

impl Manager {
    /// Handles an event of a job; events of a job that has ended are ignored. Returns the step that
    /// changes its row, if any.
    pub fn event(&mut self, id: u64, event: Event, now: Now) -> Option<Step> {
        let mut all = self.running.iter_mut();
        let (uuid, running) = all.find(|(_, r)| r.id == id && !r.ended)?;
        match event {
            Event::Chosen(snapshot) => running.snapshot = Some(snapshot),
            Event::Moving => running.enter(Phase::Moving, now),
            Event::Progress(progress) => {
                running.progress = progress;
                running.updated = now.wall;
            }
            Event::Finalizing => running.enter(Phase::Finalizing, now),
            Event::Snapshot(copied) => return Some(Step::Snapshot(uuid.clone(), copied)),
            Event::Ended(outcome) => {
                running.enter(running.phase, now);
                running.ended = true;
                if outcome.is_err() {
                    self.failed.insert(uuid.clone(), now.ms);
                }
                return Some(Step::Ended {
                    relationship: uuid.clone(),
                    transfer: running.transfer.clone(),
                    outcome,
                    last: running.last(now),
                });
            }
        }
        None
    }

    /// Returns the steps that have become due with time. To be called about twice a second.
    pub fn due(&mut self, rows: &Relations, now: Now) -> Vec<Step> {
        let of = |uuid: &String| rows.find_by_uuid(uuid).filter(|entry| entry.may_run());
        self.ahead.retain(|uuid, slot| {
            slot.last > now.wall && of(uuid).is_some_and(|entry| entry.scheduled == slot.last)
        });
        let since = self.compared;
        if since.is_none_or(|at| now.wall < at.wall || now.ms >= at.ms + COMPARE_MS) {
            self.compare_all(rows, now);
        }
        let passed = self.ahead.iter().filter(|(_, slot)| slot.at <= now.wall);
        let slots = rows.due(now.wall).map(|entry| &entry.uuid);
        let slots = slots.chain(passed.map(|(uuid, _)| uuid));
        let mut due: Vec<Step> = slots.cloned().map(Step::Due).collect();
        let aborted = rows.busy().filter(|(_, pending)| pending.aborting);
        let aborted = aborted.filter(|(entry, _)| !self.running.contains_key(&entry.uuid));
        due.extend(aborted.map(|(entry, _)| Step::Withdrawn(entry.uuid.clone())));
        due
    }

    /// Finds the relationships whose last run is in the future.
    fn compare_all(&mut self, rows: &Relations, now: Now) {
        self.compared = Some(now);
        for entry in rows.entries(0).filter(|entry| entry.may_run()) {
            if entry.scheduled > now.wall {
                let schedule = entry.schedule.as_deref().and_then(|s| rows.schedule(s));
                if let Some(at) = schedule.and_then(|schedule| schedule.next(now.wall)) {
                    let last = entry.scheduled;
                    self.ahead.insert(entry.uuid.clone(), Slot { last, at });
                }
            }
        }
    }

    /// Returns the commands, in order, that make the running jobs match the rows. Each is returned
    /// once. To be called when all steps so far are in the rows.
    pub fn reconcile(&mut self, rows: &Relations, now: Now) -> Vec<Command> {
        let mut commands = Vec::new();
        self.running.retain(|_, running| !running.ended);
        self.failed.retain(|uuid, _| {
            let entry = rows.find_by_uuid(uuid);
            entry.is_some_and(|entry| entry.pending.is_some())
        });
        let throttles = [rows.global_throttle(true), rows.global_throttle(false)];
        if self.throttles != Some(throttles) {
            self.throttles = Some(throttles);
            let [incoming, outgoing] = throttles.map(Global::kbs);
            commands.push(Command::Throttle { incoming, outgoing });
        }
        self.forgetting.retain(|uuid| {
            let known = rows.destination(uuid);
            known.is_some_and(|known| known.released)
        });
        for known in rows.released() {
            if self.forgetting.insert(known.uuid.clone()) {
                commands.push(Command::Forget {
                    relationship: known.uuid.clone(),
                    source: known.source.clone(),
                });
            }
        }
        let minute = now.wall.div_euclid(60);
        if self.ruled != Some(minute) {
            self.ruled = Some(minute);
            let takes = due_by_rules(rows, now.wall).into_iter();
            commands.extend(takes.map(|take| Command::Take(Box::new(take))));
        }
        for (uuid, running) in &mut self.running {
            let pending = rows
                .find_by_uuid(uuid)
                .and_then(|entry| entry.pending.as_ref());
            let wanted = pending.is_some_and(|p| p.uuid == running.transfer && !p.aborting);
            if !wanted && !running.aborting {
                running.aborting = true;
                commands.push(Command::Abort { id: running.id });
            }
        }
        let mut waiting: Vec<(i64, u64, &Entry)> = Vec::new();
        for (entry, pending) in rows.busy() {
            let rests = pending.work != Work::Break && (entry.quiesced || rows.awaits_peer(entry));
            let failed = self.failed.get(&entry.uuid);
            let later = pending.failures > 0
                && failed.is_some_and(|at| at + backoff(pending.failures) > now.ms);
            let running = self.running.contains_key(&entry.uuid);
            if !(rests || later || running || pending.aborting) {
                waiting.push((pending.begun, entry.number, entry));
            }
        }
        waiting.sort_unstable_by_key(|(begun, number, _)| (*begun, *number));
        for (.., entry) in waiting {
            if self.running.len() >= AT_ONCE {
                break;
            }
            commands.extend(self.start(rows, entry, now));
        }
        commands
    }

    fn start(&mut self, rows: &Relations, entry: &Entry, now: Now) -> Option<Command> {
        let pending = entry.pending.as_ref()?;
        // Without its policy, a relationship waits until it has one again.
        let policy = rows.policy(&entry.policy)?;
        let throttle = pending.throttle.under(entry.throttle);
        self.last_job += 1;
        let id = self.last_job;
        let job = Job {
            id,
            relationship: entry.uuid.clone(),
            task: match pending.work {
                Work::Transfer(kind) => Task::Transfer(kind),
                Work::Break => Task::Break,
            },
            source: entry.source.clone(),
            destination: entry.destination.clone(),
            policy,
            source_snapshot: pending.source_snapshot.clone(),
            throttle,
            files: entry.files.clone(),
            arrived: pending.arrived,
            anew: entry.anew,
            serial: entry.transfers,
        };
        let running = RunningJob {
            id,
            transfer: pending.uuid.clone(),
            work: pending.work,
            phase: Phase::Preparing,
            aborting: false,
            ended: false,
            started: now.ms,
            spent: [0; 3],
            since: now.ms,
            progress: Progress::default(),
            updated: now.wall,
            throttle,
            snapshot: None,
        };
        self.failed.remove(&entry.uuid);
        self.running.insert(entry.uuid.clone(), running);
        Some(Command::Start(Box::new(job)))
    }

    /// Returns true if a job of this relationship runs.
    pub fn runs(&self, relationship: &str) -> bool {
        self.running.contains_key(relationship)
    }

    /// Returns the relationships whose destination is on this node, in the order of creation.
    pub fn relationships(&self, rows: &Relations) -> Vec<Relationship> {
        rows.entries(0)
            .map(|entry| self.describe_entry(entry))
            .collect()
    }

    /// Returns the relationships whose source is on this node, with what is known of them here.
    pub fn destinations(&self, rows: &Relations) -> Vec<Relationship> {
        let known = rows.known().filter(|known| !known.released);
        known
            .map(|known| match rows.find_by_uuid(&known.uuid) {
                Some(entry) => self.describe_entry(entry),
                None => known.to_relationship(),
            })
            .collect()
    }

    /// Returns the relationships that a volume of this node is an end of. Those whose destination
    /// is on this node come first.
    pub fn replications(&self, rows: &Relations, volume: &Path) -> Vec<Relationship> {
        let here = rows.entry(volume).into_iter().chain(rows.copying(volume));
        let elsewhere = rows.copies(volume);
        let elsewhere = elsewhere.filter(|known| rows.find_by_uuid(&known.uuid).is_none());
        here.map(|entry| self.describe_entry(entry))
            .chain(elsewhere.map(|known| known.to_relationship()))
            .collect()
    }

    /// Returns a relationship with its current activity.
    pub fn describe_entry(&self, entry: &Entry) -> Relationship {
        let quiesced = || "The relationship is quiesced: no updates are made.".to_owned();
        let trouble = entry.trouble.clone();
        let reason = trouble.or_else(|| entry.quiesced.then(quiesced));
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
            note: entry.note.clone(),
            synchronous: None,
        }
    }

    /// Returns the job that does the row's pending work.
    fn doing(&self, entry: &Entry) -> Option<&RunningJob> {
        let pending = entry.pending.as_ref()?;
        let running = self.running.get(&entry.uuid)?;
        (running.transfer == pending.uuid && !running.ended).then_some(running)
    }

    /// Returns the current activity of a relationship.
    pub fn status(&self, entry: &Entry) -> Status {
        let working = self.doing(entry).map(RunningJob::status);
        match (&entry.pending, working) {
            (Some(pending), _) if pending.work == Work::Break => Status::Breaking,
            (Some(pending), _) if pending.aborting => Status::Aborting,
            (_, Some(_)) if entry.quiesced => Status::Quiescing,
            (_, Some(status)) => status,
            (_, None) if entry.quiesced => Status::Quiesced,
            (Some(_), None) => Status::Queued,
            (None, None) => Status::Idle,
        }
    }

    /// Returns the running or queued transfer of a relationship.
    fn transfer(&self, entry: &Entry) -> Option<Transfer> {
        let pending = entry.pending.as_ref()?;
        let Work::Transfer(kind) = pending.work else {
            return None;
        };
        let running = self.doing(entry);
        let progress = running.map(|r| r.progress.clone()).unwrap_or_default();
        Some(Transfer {
            uuid: pending.uuid.clone(),
            kind,
            snapshot: running.and_then(|r| r.snapshot.clone()),
            started: pending.begun,
            bytes: progress.bytes,
            wire_bytes: progress.wire_bytes,
            checkpoint: progress.checkpoint,
            updated: running.map_or(pending.begun, |r| r.updated),
            rate: progress.rate,
            bound_by: progress.bound_by,
            total: progress.total,
            throttle: match running {
                Some(running) => running.throttle,
                None => pending.throttle.under(entry.throttle),
            },
        })
    }
}

impl Step {
    /// Returns true if the step may be lost in a crash because a repeated transfer leads to the
    /// same result. The end of a restore may not: users write to the volume after it. Nor may a
    /// transfer served to another node, which does not report it again.
    pub fn is_lazily_durable(&self, rows: &Relations) -> bool {
        match self {
            Step::Ended { relationship, .. } => !rows
                .find_by_uuid(relationship)
                .is_some_and(|entry| entry.restore),
            Step::Served { destination, .. } => destination.cluster.is_empty(),
            Step::Arrived(_) => false,
            _ => true,
        }
    }
}

/// Returns the snapshots that policies' rules with schedules want of destinations now. If one
/// cannot be taken, it is returned again in the next minute.
fn due_by_rules(rows: &Relations, now: i64) -> Vec<Take> {
    let mut due = Vec::new();
    let own = rows.own_policies();
    if own
        .flat_map(|p| &p.rules)
        .all(|rule| rule.schedule.is_none())
    {
        return due;
    }
    let copies = |e: &&Arc<Entry>| e.state == MirrorState::Snapmirrored && !e.quiesced;
    for entry in rows.entries(0).filter(copies) {
        let (Some(policy), Some(newest)) = (rows.policy(&entry.policy), &entry.newest) else {
            // Nothing has arrived yet that a snapshot could be taken of.
            continue;
        };
        for rule in policy.rules {
            let schedule = rule.schedule.as_ref().and_then(|name| rows.schedule(name));
            let last = entry.ruled.get(&rule.label).copied();
            if schedule.is_some_and(|when| schedule::due(&when, last, newest.taken, now)) {
                let stem = rule.prefix.as_ref().unwrap_or(&rule.label);
                let time = Timestamp::from_second(now).unwrap_or(Timestamp::UNIX_EPOCH);
                due.push(Take {
                    relationship: entry.uuid.clone(),
                    destination: entry.destination.clone(),
                    name: format!("{stem}.{}", time.strftime("%Y-%m-%d_%H%M")),
                    rule,
                    at: now,
                });
            }
        }
    }
    due
}

/// Writes the end of an entry's transfer into the rows.
fn end_transfer(
    next: &mut ChangeSet,
    mut entry: Entry,
    outcome: &Result<Done, Failure>,
    last: Option<&LastTransfer>,
    now: i64,
) {
    let done = match outcome {
        Ok(done) => {
            succeed(&mut entry, done, last.cloned());
            true
        }
        Err(failure) => {
            fail(&mut entry, failure, last.cloned());
            false
        }
    };
    entry.stop(now);
    let (source, to) = (entry.source.clone(), entry.destination.clone());
    if done && entry.restore {
        if last.is_some() && entry.files.is_empty() {
            // The arrival is recorded before anyone can write to the volume: a repeated
            // transfer after a crash would revert those writes.
            entry.begin(Work::Break, None, None, now);
            return next.put(entry);
        }
        next.make(Edit::NoRelationship(to));
        return next.make(Edit::NoDestination(entry.uuid));
    }
    if source.cluster.is_empty() {
        next.know(&entry.uuid, &source, &to, now, None);
    }
    next.put_or_end(entry);
}

/// Writes an event into the rows. A step that has been overtaken changes nothing: its relationship
/// was deleted, or its transfer is no longer wanted.
pub fn apply_step(next: &mut ChangeSet, step: &Step, now: i64) {
    let entry = |uuid: &str| {
        next.rows
            .find_by_uuid(uuid)
            .map(|entry| Entry::clone(entry))
    };
    match step {
        Step::Due(uuid) => {
            if let Some(mut entry) = entry(uuid).filter(Entry::may_run) {
                entry.scheduled = now;
                entry.begin(Work::Transfer(TransferKind::Update), None, None, now);
                next.put(entry);
            }
        }
        Step::Withdrawn(uuid) => {
            let aborting = |e: &Entry| e.pending.as_ref().is_some_and(|p| p.aborting);
            if let Some(mut entry) = entry(uuid).filter(aborting) {
                entry.withdraw(now);
                next.put_or_end(entry);
            }
        }
        Step::Snapshot(uuid, copied) => {
            if let Some(mut entry) = entry(uuid) {
                // From here on the destination is a readable copy, whatever the result of the
                // transfer.
                if !entry.restore {
                    entry.state = MirrorState::Snapmirrored;
                }
                entry.newest = Some(copied.clone());
                entry.anew = false;
                next.put(entry);
            }
        }
        Step::Arrived(uuid) => {
            if let Some(mut entry) = entry(uuid)
                && let Some(pending) = &mut entry.pending
            {
                pending.arrived = true;
                next.put(entry);
            }
        }
        Step::Ended {
            relationship,
            transfer,
            outcome,
            last,
        } => {
            let wanted = |e: &Entry| e.pending.as_ref().is_some_and(|p| p.uuid == *transfer);
            if let Some(entry) = entry(relationship).filter(wanted) {
                end_transfer(next, entry, outcome, last.as_ref(), now);
            }
        }
        Step::Served {
            relationship,
            source,
            destination,
            newest,
        } => next.know(relationship, source, destination, now, Some(*newest)),
        Step::Ruled {
            relationship,
            label,
            at,
        } => {
            if let Some(mut entry) = entry(relationship) {
                entry.ruled.insert(label.clone(), *at);
                next.put(entry);
            }
        }
        Step::Forgotten(uuid) => {
            if next.rows.destination(uuid).is_some_and(|k| k.released) {
                next.make(Edit::NoDestination(uuid.clone()));
            }
        }
    }
}

fn succeed(entry: &mut Entry, done: &Done, last: Option<LastTransfer>) {
    entry.pending = None;
    entry.trouble = None;
    if last.is_none() {
        entry.state = MirrorState::BrokenOff;
        // No transfers are left to hold back: a resync needs no resume before it.
        entry.quiesced = false;
        return;
    }
    entry.last = last;
    if !entry.restore {
        entry.state = MirrorState::Snapmirrored;
    }
    entry.anew = false;
    if done.newest.is_some() {
        entry.newest.clone_from(&done.newest);
        entry.above.clone_from(&done.above);
    }
}

fn fail(entry: &mut Entry, failure: &Failure, last: Option<LastTransfer>) {
    let Some(mut pending) = entry.pending.take() else {
        // It was aborted in the meantime.
        return;
    };
    let Some(mut last) = last else {
        // The destination is unchanged; the user sees the error and can repeat the request.
        entry.trouble = Some(format!("Break failed. ({})", failure.words()));
        entry.ending = false;
        return;
    };
    // An aborted transfer counts as aborted, whatever error ended it.
    let said = match pending.aborting || *failure == Failure::Aborted {
        true => ABORTED.to_owned(),
        false => format!("Transfer failed. ({})", failure.words()),
    };
    last.error = Some(said.clone());
    entry.last = Some(last);
    entry.trouble = Some(said);
    pending.failures += 1;
    let again = matches!(failure, Failure::Retry(_)) && !pending.aborting;
    if again && pending.failures < entry.tries {
        entry.pending = Some(pending);
    }
}
