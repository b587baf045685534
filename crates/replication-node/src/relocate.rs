//! Drives the moves of volumes to other aggregates: compares the rows with what runs, and begins
//! the next step of each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use weir_base::VolumeId;
use weir_control::moves::arriving_key;
use weir_control::{LocationName, Volume};
use weir_relations::cutover::{Departure, MoveState};
use weir_transfer::progress::Progress;

use super::depart;
use super::moves::{MovePhase, MoveStatus, Moves, OutgoingMove};
use super::state::Replication;

/// Interval in which rows are compared with the moves that run.
const TICK: Duration = Duration::from_millis(200);
/// First pause after a failed attempt. It doubles with each further one.
const PAUSE_MS: u64 = 500;
/// Longest pause between two attempts.
const PAUSE_MAX_MS: u64 = 30_000;
/// Time after which a copy whose source does not come back is deleted, in milliseconds.
const ORPHAN_MS: u64 = 600_000;
/// Interval of the checks for such copies.
const SWEEP_MS: u64 = 10_000;

fn written(volume: &Volume) -> MoveState {
    let moving = volume.moving.as_ref();
    match moving.is_some_and(|moving| moving.handed_over.is_some()) {
        true => MoveState::HandedOver,
        false => MoveState::Copying,
    }
}

impl Replication {
    /// Holds the volumes that were handed over before the start, before anyone is served.
    pub(crate) fn hold_handed_over(&self) {
        let Some(moves) = &self.moves else { return };
        for volume in self.control.view().moving() {
            self.begin_leaving(moves, volume);
        }
    }

    fn begin_leaving(&self, moves: &Moves, volume: &Volume) {
        let mut leaving = moves.leaving.lock();
        if leaving.contains_key(&*volume.key) {
            return;
        }
        let machine = Departure::restarted(written(volume));
        let number = VolumeId(volume.number.unwrap_or_default());
        if !machine.serves() {
            moves.vfs.relocations.hold(number);
            // It is in no state in which it could be refused.
            if let Err(error) = self.engine.hold_changes(&volume.key) {
                tracing::error!(volume = %volume.name, %error, "cannot hold a volume that was handed over");
            }
        }
        let new = OutgoingMove {
            machine,
            volume: number,
            busy: false,
            aggregate: None,
            progress: None,
            next_ms: 0,
            pause_ms: PAUSE_MS,
            why: String::new(),
            held_since_ms: 0,
        };
        leaving.insert(volume.key.to_string(), new);
    }

    /// Lets clients use a volume again.
    pub(crate) fn release_volume(&self, moves: &Moves, key: &str, volume: VolumeId) {
        self.engine.release_changes(key);
        moves.vfs.relocations.release(volume);
    }

    /// Runs moves until the server stops.
    pub(crate) fn drive_moves(self: &Arc<Self>) {
        let Some(moves) = &self.moves else { return };
        let mut swept = 0;
        while !self.stopping() {
            let now = self.current_time().ms;
            let view = self.control.view();
            let wanted: HashMap<String, Arc<Volume>> = { view.moving() }
                .map(|volume| (volume.key.to_string(), Arc::clone(volume)))
                .collect();
            for volume in wanted.values() {
                self.begin_leaving(moves, volume);
            }
            self.expire(moves, &wanted, now);
            for volume in wanted.values() {
                self.attempt(moves, volume, now);
            }
            if now >= swept + SWEEP_MS {
                swept = now;
                self.sweep(moves, now);
            }
            let mut manager = self.manager.lock();
            self.changed.wait_for(&mut manager, TICK);
        }
    }

    /// Ends holds that have lasted too long, and forgets moves that are over.
    fn expire(&self, moves: &Moves, wanted: &HashMap<String, Arc<Volume>>, now: u64) {
        let mut released = Vec::new();
        moves.leaving.lock().retain(|key, leaving| {
            let over = !wanted.contains_key(key) && !leaving.busy;
            if leaving.machine.expire(now) || over && leaving.machine.release() {
                released.push((key.clone(), leaving.volume));
            }
            !over
        });
        for (key, volume) in released {
            tracing::warn!(
                key,
                "cannot move a volume yet: the last copy took too long; retrying"
            );
            self.release_volume(moves, &key, volume);
        }
    }

    /// Begins the next step of a move on a thread of its own, if it is due.
    fn attempt(self: &Arc<Self>, moves: &Moves, volume: &Arc<Volume>, now: u64) {
        let key = volume.key.to_string();
        let due = moves.with(&key, |leaving| {
            let due = !leaving.busy && leaving.next_ms <= now;
            leaving.busy |= due;
            due
        });
        if due != Some(true) {
            return;
        }
        let of = Arc::clone(volume);
        let begun = self.spawn("weir-move", move |service| {
            let outcome = depart::run(service, &of);
            let Some(moves) = &service.moves else { return };
            moves.with(&of.key, |leaving| {
                leaving.busy = false;
                leaving.progress = None;
                match outcome {
                    Ok(()) => {
                        leaving.pause_ms = PAUSE_MS;
                        leaving.why.clear();
                    }
                    Err(why) => {
                        tracing::info!(volume = %of.name, %why, "cannot go on with a move now; retrying");
                        leaving.next_ms = service.current_time().ms + leaving.pause_ms;
                        leaving.pause_ms = match leaving.machine {
                            // Clients wait.
                            Departure::HandedOver => PAUSE_MS,
                            _ => (leaving.pause_ms * 2).min(PAUSE_MAX_MS),
                        };
                        leaving.why = why;
                    }
                }
            });
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "cannot move a volume now");
            moves.with(&key, |leaving| leaving.busy = false);
        }
    }

    /// Deletes copies whose sources have not come back.
    fn sweep(&self, moves: &Moves, now: u64) {
        let prefix = arriving_key(0);
        let prefix = prefix.split_at(2).0;
        let view = self.control.view();
        let ids = { self.engine.volumes().into_iter() }.filter_map(|volume| {
            let id = u64::from_str_radix(volume.name().strip_prefix(prefix)?, 16).ok()?;
            let received = moves.receiving.lock().contains(&id);
            (!received && !view.has_key(volume.name())).then_some(id)
        });
        let ids: HashSet<u64> = ids.collect();
        let mut orphans = moves.orphans.lock();
        orphans.retain(|id, _| ids.contains(id));
        let mut old = Vec::new();
        for id in ids {
            let since = *orphans.entry(id).or_insert(now);
            if now.saturating_sub(since) >= ORPHAN_MS {
                old.push(id);
            }
        }
        drop(orphans);
        for id in old {
            tracing::info!("deleting the copy of move {id:016x}: its source has not come back");
            self.runtime.block_on(self.control.drop_copy(id));
        }
    }

    /// Notes how far the current difference of a departing volume has been sent.
    pub(crate) fn note_sent(&self, project: &str, volume: &str, progress: Progress) {
        let Some(moves) = &self.moves else { return };
        if moves.leaving.lock().is_empty() {
            return;
        }
        if let Ok(named) = self.local(project, volume) {
            moves.with(&named.key, |leaving| leaving.progress = Some(progress));
        }
    }

    /// Returns the moves of volumes of this node.
    pub fn moves(&self) -> Vec<MoveStatus> {
        let Some(moves) = &self.moves else {
            return Vec::new();
        };
        let view = self.control.view();
        let leaving = moves.leaving.lock();
        let status = |volume: &Arc<Volume>| {
            let moving = volume.moving.as_ref()?;
            let now = leaving.get(&*volume.key)?;
            let phase = match now.machine {
                Departure::Serving if now.aggregate.is_some() && now.busy => MovePhase::Copying,
                Departure::Serving => MovePhase::Waiting,
                Departure::Held { .. } | Departure::Writing { .. } => MovePhase::Cutover,
                Departure::HandedOver if now.busy => MovePhase::Cutover,
                Departure::HandedOver => MovePhase::Undecided,
                Departure::Left => MovePhase::Announcing,
            };
            Some(MoveStatus {
                volume: volume.name.clone(),
                pool: moving.pool.clone(),
                aggregate: now.aggregate.clone().or_else(|| moving.aggregate.clone()),
                phase,
                sent: now.progress.map_or(0, |progress| progress.logical),
                total: now.progress.and_then(|progress| progress.total),
                why: now.why.clone(),
            })
        };
        view.moving().filter_map(status).collect()
    }

    /// Returns true if the cluster has another aggregate of this name.
    pub fn knows_aggregate(&self, name: &str) -> bool {
        let directory = self.moves.as_ref().map(|moves| moves.vfs.directory());
        directory.is_some_and(|directory| {
            let mut servers = directory.servers().iter();
            servers.any(|server| server.aggregate == name)
        })
    }

    /// Returns the place of a volume, as the other side names it.
    pub(crate) fn place_of(volume: &Volume) -> (String, String) {
        let LocationName { project, location } = &volume.name.place;
        (project.to_string(), location.to_string())
    }
}
