//! Jobs under way: beginning them, what happens to them, and what follows from their end.

use super::state::{Entry, Work};
use super::{AT_ONCE, Done, Event, Failure, Job, Manager, Now, Order, Progress, Task};
use crate::model::{ABORTED, LastTransfer, MirrorState, Status, Transfer, TransferKind};
use weir_base::invariant;

/// A failed transfer is tried again after this, then after twice as long, and so on.
const RETRY_FIRST_MS: u64 = 5_000;
/// But no longer than this.
const RETRY_MOST_MS: u64 = 300_000;

/// A job that was begun.
#[derive(Debug)]
pub(super) struct Running {
    pub id: u64,
    work: Work,
    phase: Phase,
    aborting: bool,
    started: u64,
    /// Milliseconds spent in each phase, without the one it is in.
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

impl Running {
    fn enter(&mut self, phase: Phase, now: Now) {
        // Saturates: times.
        self.spent[self.phase as usize] += now.ms.saturating_sub(self.since);
        (self.phase, self.since) = (phase, now.ms);
    }

    pub fn status(&self) -> Status {
        match self.phase {
            _ if self.work == Work::Break => Status::Breaking,
            _ if self.aborting => Status::Aborting,
            Phase::Preparing => Status::Preparing,
            Phase::Moving => Status::Transferring,
            Phase::Finalizing => Status::Finalizing,
        }
    }

    fn last(
        &self,
        uuid: String,
        kind: TransferKind,
        error: Option<String>,
        now: Now,
    ) -> LastTransfer {
        LastTransfer {
            uuid,
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
            error,
        }
    }
}

impl Manager {
    /// The transfer of a relationship that runs, or waits for its turn.
    pub(super) fn transfer(&self, entry: &Entry) -> Option<Transfer> {
        let pending = entry.pending.as_ref()?;
        let Work::Transfer(kind) = pending.work else {
            return None;
        };
        let running = self.running.get(&entry.uuid);
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

    /// Begins what waits, oldest first, as far as there is room.
    pub(super) fn start_queued(&mut self, now: Now) {
        let mut waiting: Vec<(i64, usize)> = Vec::new();
        for (at, entry) in self.state.entries.iter().enumerate() {
            let Some(pending) = &entry.pending else {
                // It has nothing to do.
                continue;
            };
            let rests = entry.quiesced && pending.work != Work::Break;
            let later = self.retries.get(&entry.uuid).is_some_and(|at| *at > now.ms);
            if !(rests || later || self.running.contains_key(&entry.uuid)) {
                waiting.push((pending.begun, at));
            }
        }
        waiting.sort_unstable();
        for (_, at) in waiting {
            if self.running.len() >= AT_ONCE {
                break;
            }
            self.start(at, now);
        }
    }

    fn start(&mut self, at: usize, now: Now) {
        let waiting = self.state.entries.get(at);
        let Some((entry, pending)) = waiting.and_then(|e| Some((e, e.pending.as_ref()?))) else {
            invariant!(false, "relationship {at} was found to have something to do");
            return;
        };
        let Some(policy) = self.policy(&entry.policy) else {
            // Its policy was deleted: it waits until it has one again.
            return;
        };
        let throttle = pending.throttle.under(entry.throttle);
        let id = self.next_job;
        self.next_job += 1;
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
            anew: entry.anew,
            serial: entry.transfers,
        };
        let running = Running {
            id,
            work: pending.work,
            phase: Phase::Preparing,
            aborting: false,
            started: now.ms,
            spent: [0; 3],
            since: now.ms,
            progress: Progress::default(),
            updated: now.wall,
            throttle,
            snapshot: None,
        };
        self.retries.remove(&entry.uuid);
        self.running.insert(entry.uuid.clone(), running);
        self.orders.push(Order::Start(Box::new(job)));
    }

    /// Ends a running job; whether there was one.
    pub(super) fn abort_running(&mut self, uuid: &str) -> bool {
        let Some(running) = self.running.get_mut(uuid) else {
            return false;
        };
        if !running.aborting {
            running.aborting = true;
            self.orders.push(Order::Abort { id: running.id });
        }
        true
    }

    /// Something happened to a job. What is said of one that has ended is ignored.
    pub fn event(&mut self, id: u64, event: Event, now: Now) {
        let found = self.running.iter_mut().find(|(_, r)| r.id == id);
        let Some((uuid, running)) = found else {
            // It has ended.
            return;
        };
        match event {
            Event::Chosen(snapshot) => running.snapshot = Some(snapshot),
            Event::Moving => running.enter(Phase::Moving, now),
            Event::Progress(progress) => {
                running.progress = progress;
                running.updated = now.wall;
            }
            Event::Finalizing => running.enter(Phase::Finalizing, now),
            Event::Snapshot(copied) => {
                let uuid = uuid.clone();
                if let Some(entry) = self.state.named(&uuid) {
                    // From here on the destination is a copy that can be read, however the transfer ends.
                    if !entry.restore {
                        entry.state = MirrorState::Snapmirrored;
                    }
                    entry.newest = Some(copied);
                    entry.anew = false;
                    self.save();
                }
            }
            Event::Ended(outcome) => {
                let uuid = uuid.clone();
                self.ended(&uuid, outcome, now);
            }
        }
    }

    fn ended(&mut self, uuid: &str, outcome: Result<Done, Failure>, now: Now) {
        let Some(mut running) = self.running.remove(uuid) else {
            invariant!(false, "the job of {uuid} has ended, and none was running");
            return;
        };
        running.enter(running.phase, now);
        let Some(entry) = self.state.named(uuid) else {
            // It was deleted while the job ran.
            return;
        };
        let gone = match outcome {
            Ok(done) => succeed(entry, &running, done, now),
            Err(failure) => {
                if let Some(after) = fail(entry, &running, failure, now) {
                    self.retries.insert(uuid.to_owned(), now.ms + after);
                }
                false
            }
        };
        let (source, destination) = (entry.source.clone(), entry.destination.clone());
        if gone {
            self.state.entries.retain(|e| e.uuid != uuid);
            self.state.known.retain(|known| known.uuid != uuid);
        } else if source.cluster.is_empty() {
            self.state.know(uuid, &source, &destination, Some(now.wall));
        }
        self.save();
    }
}

/// Whether the relationship has served its purpose.
fn succeed(entry: &mut Entry, running: &Running, done: Done, now: Now) -> bool {
    let uuid = entry.pending.take().map(|p| p.uuid).unwrap_or_default();
    entry.trouble = None;
    let Work::Transfer(kind) = running.work else {
        entry.state = MirrorState::BrokenOff;
        // Nothing is left to keep from transferring: a resync needs no resume before it.
        entry.quiesced = false;
        return false;
    };
    entry.state = MirrorState::Snapmirrored;
    entry.anew = false;
    if done.newest.is_some() {
        entry.newest = done.newest;
    }
    entry.last = Some(running.last(uuid, kind, None, now));
    entry.restore
}

/// After how many milliseconds it is to be tried again, if at all.
fn fail(entry: &mut Entry, running: &Running, failure: Failure, now: Now) -> Option<u64> {
    let (message, again) = match failure {
        Failure::Aborted => (ABORTED.to_owned(), false),
        Failure::Retry(message) => (message, !running.aborting),
        Failure::Final(message) => (message, false),
    };
    let Work::Transfer(kind) = running.work else {
        // The destination is what it was; the user is told and asks again.
        entry.trouble = Some(format!("Break failed. ({message})"));
        entry.pending = None;
        return None;
    };
    // Whatever it was that an aborted transfer died of.
    let said = match running.aborting || message == ABORTED {
        true => ABORTED.to_owned(),
        false => format!("Transfer failed. ({message})"),
    };
    let pending = entry.pending.as_mut()?;
    entry.last = Some(running.last(pending.uuid.clone(), kind, Some(said.clone()), now));
    entry.trouble = Some(said);
    pending.failures += 1;
    if again && pending.failures < entry.tries {
        let doubled = RETRY_FIRST_MS << (pending.failures - 1).min(8);
        return Some(doubled.min(RETRY_MOST_MS));
    }
    entry.pending = None;
    None
}
