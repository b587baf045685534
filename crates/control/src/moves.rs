//! Moves of volumes to other aggregates: what becomes of their rows.
//!
//! Both aggregates have a catalog of their own. The order in which their rows change is that of
//! [`weir_relations::cutover`]; the node copies the data and calls the functions here. That a
//! volume has arrived is recorded as an ended operation, whose name has the number of the attempt:
//! it outlives the volume's own row, should that be deleted or move on.

use crate::backend::{Backend, BackendError, Capacity, VolumeSpec};
use crate::control::Control;
use crate::job::Job;
use crate::jobs::{JobContext, gone};
use crate::model::{
    EngineSnapshot, HandedOver, Operation, Origin, Outcome, Snapshot, State, Volume,
};
use crate::name::{LocationName, Name, Target, VolumeName};
use crate::refusal::{Refusal, Status};
use crate::rules::{self, moves};
use crate::view::View;
use std::collections::HashMap;
use std::sync::Arc;

pub use crate::rules::moves::{DepartingRows, arriving_key};

/// Returns the name of the operation that records an arrival.
fn arrival(place: &LocationName, attempt: u64) -> Name {
    place.name(&format!("operation-arrival-{attempt:016x}"))
}

/// Reason why a volume has not arrived.
#[derive(Debug)]
pub enum NotArrived {
    /// It cannot: nothing has changed.
    Refused(Refusal),
    /// It cannot now: nothing has changed.
    Later(String),
    /// The server stops: the next start knows whether it has arrived.
    Unknown,
}

fn unavailable(error: &BackendError) -> Refusal {
    Refusal::new(Status::Unavailable, "ENGINE_FAILED", error.to_string())
}

impl JobContext {
    /// Waits until a volume has moved, or stays.
    pub(crate) async fn wait_for_move(&self, name: &VolumeName) -> Result<(), Refusal> {
        let mut revisions = self.store.revisions();
        loop {
            revisions.mark_unchanged();
            let view = self.store.view();
            match view.volume(name) {
                None => return Ok(()),
                Some(volume) if volume.moving.is_none() => {
                    let why = volume.state_details.clone();
                    return Err(Refusal::new(Status::FailedPrecondition, "MOVE_FAILED", why));
                }
                Some(_) => {}
            }
            if revisions.changed().await.is_err() {
                return Err(gone(&Target::Volume(name.clone())));
            }
        }
    }
}

/// Returns a volume by its key in the engine.
fn by_key(view: &View, key: &str) -> Option<Arc<Volume>> {
    let mut moving = view.moving();
    moving.find(|volume| *volume.key == *key).cloned()
}

fn absent(key: &str) -> Refusal {
    let words = format!("volume {key} is not being moved");
    Refusal::new(Status::NotFound, "NOT_FOUND", words)
}

impl Control {
    /// Returns what the destination of a move needs to decide whether it can get the volume.
    ///
    /// # Errors
    /// The volume is not being moved, or cannot be any more.
    pub fn departing(&self, key: &str) -> Result<DepartingRows, Refusal> {
        let view = self.view();
        let volume = by_key(&view, key).ok_or_else(|| absent(key))?;
        moves::movable(&view, &volume)?;
        Ok(departing(&view, &volume))
    }

    /// Lets the aggregate `to` decide from now on who serves a volume. Durable on return. `cut` is
    /// the number of the last snapshot that the destination has.
    ///
    /// # Errors
    /// The volume cannot be handed over now: nothing has changed.
    pub async fn hand_over(
        &self,
        key: &str,
        to: HandedOver,
        cut: u32,
    ) -> Result<DepartingRows, Refusal> {
        let written = self.context.store.commit_with_retry(|tx| {
            let volume = by_key(&tx.view, key).ok_or_else(|| absent(key))?;
            volume.idle()?;
            moves::movable(&tx.view, &volume)?;
            if let Some(why) = moves::unsettled(&tx.view, &volume, cut) {
                return Err(Refusal::new(Status::Aborted, "RESOURCE_BUSY", why));
            }
            let mut next = Volume::clone(&volume);
            if let Some(moving) = &mut next.moving {
                moving.handed_over = Some(to);
            }
            tx.note_volume(next);
            Ok(departing(&tx.view, &volume))
        });
        let (departing, _) = written.await?;
        departing
    }

    /// Takes a volume back that its destination has refused. Durable on return.
    ///
    /// # Errors
    /// The server stops.
    pub async fn take_back(&self, key: &str, attempt: u64) -> Result<(), Refusal> {
        let written = self.context.store.commit_with_retry(|tx| {
            let Some(volume) = by_key(&tx.view, key) else {
                return;
            };
            let mut next = Volume::clone(&volume);
            if let Some(moving) = &mut next.moving
                && moving.handed_over.is_some_and(|to| to.attempt == attempt)
            {
                moving.handed_over = None;
                tx.note_volume(next);
            }
        });
        written.await.map(|_| ())
    }

    /// Ends a move: the volume stays, for this reason.
    ///
    /// # Errors
    /// The server stops.
    pub async fn end_move(&self, key: &str, why: &str) -> Result<(), Refusal> {
        let written = self.context.store.commit_with_retry(|tx| {
            let Some(volume) = by_key(&tx.view, key) else {
                return;
            };
            let mut next = Volume::clone(&volume);
            next.moving = None;
            next.state_details = format!("the move failed: {why}");
            tx.put_volume(next);
        });
        written.await.map(|_| ())
    }

    /// Forgets a volume that another aggregate serves, and deletes its data.
    ///
    /// # Errors
    /// The server stops.
    pub async fn departed(&self, key: &str) -> Result<(), Refusal> {
        let context = &self.context;
        let written = context.store.commit_with_retry(|tx| {
            let Some(volume) = by_key(&tx.view, key) else {
                return;
            };
            tx.remove_volume(&volume);
            tx.tombstone(&volume.key);
        });
        let ((), generation) = written.await?;
        context.effective(generation).await?;
        context.delete_deferred(&key.into()).await;
        Ok(())
    }

    /// Refuses a volume that could not arrive here now.
    ///
    /// # Errors
    /// The reason.
    pub fn may_arrive(&self, departing: &DepartingRows, pool: Option<&str>) -> Result<(), Refusal> {
        let arrives = moves::arrive(&self.view(), departing, pool, 1);
        arrives.map(|_| ())
    }

    /// Creates the copy of a move, or finds it, with this capacity in bytes.
    ///
    /// # Errors
    /// The node cannot.
    pub async fn create_copy(&self, id: u64, capacity: Option<u64>) -> Result<(), Refusal> {
        let spec = VolumeSpec {
            key: arriving_key(id),
            capacity: Capacity {
                bytes: capacity,
                reserve: 0,
            },
            root_mode: 0o755,
            clone_of: None,
            protection: true,
            constituent: None,
        };
        let made = self.context.call_node(move |node| {
            node.create_volume(&spec)?;
            node.set_capacity(&spec.key, spec.capacity)
        });
        made.await.map_err(|error| unavailable(&error))
    }

    /// Deletes the copy of a move that has not arrived.
    pub async fn drop_copy(&self, id: u64) {
        let key: Arc<str> = arriving_key(id).into();
        if !self.view().has_key(&key) {
            self.context.delete_deferred(&key).await;
        }
    }

    /// Returns true if a volume of this place has arrived by this attempt.
    pub fn has_arrived(&self, place: &LocationName, attempt: u64) -> bool {
        self.view().operation(&arrival(place, attempt)).is_some()
    }

    /// Makes the copy of a move a volume of this aggregate, which clients may use. Durable and in
    /// force on return.
    ///
    /// # Errors
    /// See [`NotArrived`].
    pub async fn arrive(
        &self,
        departing: &DepartingRows,
        id: u64,
        attempt: u64,
        (pool, origin): (Option<&str>, Origin),
    ) -> Result<(), NotArrived> {
        let context = &self.context;
        let key = arriving_key(id);
        let found = {
            let key = key.clone();
            let asked =
                context.call_node(move |node| Ok((node.volume(&key)?, node.snapshots(&key)?)));
            asked
                .await
                .map_err(|error| NotArrived::Later(error.to_string()))?
        };
        let engine: HashMap<_, EngineSnapshot> = { found.1.iter() }
            .map(|state| (state.identity, state.engine()))
            .collect();
        // Ids have 63 bits, and a move brings few rows.
        let first = (self.rng.next_u64() >> 2).max(1);
        let written = context.store.commit_with_retry(|tx| {
            let arriving = moves::arrive(&tx.view, departing, pool, first)?;
            let mut volume = arriving.volume;
            volume.key = key.as_str().into();
            volume.number = Some(found.0.number);
            volume.revision += 1;
            volume.origin = Some(volume.origin.unwrap_or(origin));
            for policy in arriving.policies {
                tx.put_policy(policy);
            }
            let name = volume.name.clone();
            tx.put_volume(volume);
            let ids = first.saturating_add(1 + departing.policies.len() as u64)..;
            for (snapshot, id) in departing.snapshots.iter().zip(ids) {
                let identity = snapshot.engine.map(|engine| engine.identity);
                let Some(engine) = identity.and_then(|identity| engine.get(&identity)) else {
                    continue;
                };
                let mut snapshot = snapshot.clone();
                snapshot.id = id;
                snapshot.engine = Some(*engine);
                tx.put_snapshot(snapshot);
            }
            tx.put_operation(Operation {
                name: arrival(&name.place, attempt),
                job: Job::EndMove {
                    of: name,
                    arrived: true,
                },
                quiet: false,
                audit: None,
                created: tx.now,
                ended: Some(tx.now),
                outcome: Some(Outcome::Done),
                warnings: Vec::new(),
                response: None,
            });
            Ok::<_, Refusal>(())
        });
        let (accepted, generation) = written.await.map_err(|_| NotArrived::Unknown)?;
        accepted.map_err(NotArrived::Refused)?;
        // It has arrived, whatever becomes of this.
        if let Err(why) = context.effective(generation).await {
            tracing::error!(%why, "cannot serve a volume that has arrived yet");
        }
        self.fit_arrived(&key).await;
        Ok(())
    }

    /// Gives a volume that has arrived the capacity of its row.
    async fn fit_arrived(&self, key: &str) {
        let view = self.view();
        let volume = view.volumes.values().find(|volume| *volume.key == *key);
        if let Some(volume) = volume {
            let capacity = rules::volume::capacity(&view, volume);
            let key = key.to_owned();
            let set = move |node: &dyn Backend| node.set_capacity(&key, capacity);
            if let Err(error) = self.context.ask_promptly(set).await {
                tracing::error!(%error, "cannot set the capacity of a volume that has arrived");
            }
        }
    }
}

fn departing(view: &View, volume: &Volume) -> DepartingRows {
    let snapshots = view.snapshots(&volume.name, None);
    let ready = snapshots.filter(|snapshot| snapshot.state == State::Ready);
    DepartingRows {
        volume: volume.clone(),
        snapshots: ready.map(|snapshot| Snapshot::clone(snapshot)).collect(),
        policies: moves::policies_of(view, volume),
    }
}
