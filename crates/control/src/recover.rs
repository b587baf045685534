//! The start: reconciles the catalog and the engine.
//!
//! - Unfinished operations are run again; no client is served until they have ended.
//! - A volume that the catalog has and the engine lacks is never recreated silently: data is
//!   missing, and an empty volume in its place would hide it. The volume goes to ERROR.
//! - A volume that the engine has and the catalog does not is deleted only if the catalog has a
//!   tombstone for it; any other is left alone and named in the log.
//! - On the first start, volumes of an older program are adopted under their own names; if there
//!   are none, `vol1` is created. But if the engine has volumes that a catalog has known, an empty
//!   catalog is a lost one, and the start is refused ([`crate::rebuild`]).

use crate::backend::{Capacity, VolumeState, is_keyed};
use crate::bootstrap::{POOL, pool, volume};
use crate::catalog::CatalogContents;
use crate::job::Job;
use crate::jobs::{JobContext, lane_of};
use crate::model::{Operation, Outcome, State};
use crate::name::LocationName;
use crate::open_error::OpenError;
use crate::publish;
use crate::rebuild::{self, Rebuilt};
use crate::rules;
use std::collections::HashMap;
use std::sync::Arc;
use weir_base::Rng;

const GIB: u64 = 1 << 30;
/// Name of the volume of the first start.
const VOLUME: &str = "vol1";

/// Mode of the start.
#[derive(Clone)]
pub(crate) struct StartMode {
    /// True if the catalog already has its aggregate's identity.
    pub marked: bool,
    /// True to create rows for engine volumes that the catalog does not know.
    pub rebuild: bool,
    /// Place of what the first start creates.
    pub first_place: LocationName,
}

/// Reconciles the engine with the catalog. On return the intended state is in force.
pub(crate) async fn recover(
    context: &Arc<JobContext>,
    loaded: &CatalogContents,
    rng: &dyn Rng,
    device_bytes: u64,
    how: StartMode,
) -> Result<Rebuilt, OpenError> {
    let engine = context.call_node(|node| node.volumes()).await;
    let engine = engine.map_err(|e| OpenError::Backend(e.to_string()))?;
    let fresh = !context
        .store
        .catalog
        .settled()
        .await
        .map_err(|e| OpenError::from_catalog(&context.store.catalog, e))?;
    let mut rebuilt = Rebuilt::default();
    match (fresh, how.rebuild) {
        (_, true) => {
            rebuilt = rebuild::run(context, &engine, &loaded.tombstones, rng, device_bytes).await?;
        }
        (true, false) => {
            first_start(context, &engine, rng, (how.first_place, device_bytes)).await?;
        }
        (false, false) => {}
    }
    if fresh || !how.marked {
        let aggregate: Arc<str> = context.backend.aggregate().into();
        let settled = context.store.commit_with_retry(|tx| {
            tx.settled(Arc::clone(&aggregate));
        });
        settled
            .await
            .map_err(|refusal| OpenError::Backend(refusal.message))?;
    }
    compare(context, &engine, loaded).await?;
    resume(context).await;
    fit_all(context).await;
    for key in &loaded.tombstones {
        context.delete_deferred(&key.as_str().into()).await;
    }
    let generation = context.store.view().generation;
    publish::wait_for(context.published.clone(), generation)
        .await
        .map_err(|refusal| OpenError::Backend(refusal.message))?;
    Ok(rebuilt)
}

/// Sets every volume's capacity: the engine may have forgotten it, and an unchanged one costs
/// nothing.
async fn fit_all(context: &Arc<JobContext>) {
    let view = context.store.view();
    let there = view.volumes.values().filter(|v| v.number.is_some());
    let wanted: Vec<(String, Capacity)> = there
        .map(|volume| {
            (
                volume.key.to_string(),
                rules::volume::capacity(&view, volume),
            )
        })
        .collect();
    let done = context.call_node(move |node| {
        for (key, bytes) in wanted {
            if let Err(error) = node.set_capacity(&key, bytes) {
                tracing::error!(key, %error, "cannot set a volume's capacity");
            }
        }
        Ok(())
    });
    // Each failure has been logged; a volume without its limit is served all the same.
    let _ = done.await;
}

/// Runs every operation that has not ended and is not running, and waits for them.
pub(crate) async fn resume(context: &Arc<JobContext>) {
    let view = context.store.view();
    let pending = view.pending.keys().filter_map(|name| view.operation(name));
    let mut pending: Vec<Arc<Operation>> = pending.cloned().collect();
    pending.sort_by_key(|operation| (operation.created, operation.audit));
    let mut running = tokio::task::JoinSet::new();
    for operation in pending {
        let lane = lane_of(&view, &operation);
        if let Some(place) = context.lanes.enter(lane, &operation.name) {
            tracing::info!(operation = %operation.full_name(), verb = operation.verb(), target = %operation.target(), "resuming operation");
            let context = Arc::clone(context);
            // These take as long as there is data, and no caller has to wait for them.
            let aside = matches!(
                operation.job,
                Job::Split(_) | Job::Move(_) | Job::DeleteTree { .. }
            );
            let run = async move { context.run(Operation::clone(&operation), place, None).await };
            match aside {
                true => drop(tokio::spawn(run)),
                false => drop(running.spawn(run)),
            }
        }
    }
    while running.join_next().await.is_some() {}
}

/// Retries deferred work: operations without a job, pending deletions of engine volumes, capacities
/// that the engine did not accept.
pub(crate) async fn tidy(context: &Arc<JobContext>) {
    resume(context).await;
    context.purge_tombstones().await;
    let view = context.store.view();
    for name in view.failed.keys() {
        if view
            .volume(name)
            .is_none_or(|volume| volume.number.is_none())
        {
            continue;
        }
        if context.fit(name, true, false).await.is_err() {
            continue;
        }
        let ready = context.store.commit_with_retry(|tx| {
            let now = tx.view.volume(name).cloned();
            if let Some(now) = now.filter(|now| now.state == State::Error) {
                tx.set_state(&now, State::Ready, "", None);
            }
        });
        if ready.await.is_err() {
            return;
        }
    }
}

/// Corrects differences that do not affect data.
async fn compare(
    context: &Arc<JobContext>,
    engine: &[VolumeState],
    loaded: &CatalogContents,
) -> Result<(), OpenError> {
    let has: HashMap<&str, &VolumeState> = engine.iter().map(|v| (v.key.as_str(), v)).collect();
    let view = context.store.view();
    let mut wrong = Vec::new();
    for volume in view.volumes.values() {
        let settled = !matches!(volume.state, State::Creating | State::Deleting);
        let found = has.get(&*volume.key);
        match found {
            None if settled => {
                tracing::error!(name = %volume.name, key = %volume.key, "volume is missing in the engine; its state is ERROR");
                wrong.push((Arc::clone(volume), None));
            }
            Some(state) if settled && volume.number != Some(state.number) => {
                wrong.push((Arc::clone(volume), Some(state.number)));
            }
            _ => {}
        }
    }
    if !wrong.is_empty() {
        let marked = context.store.commit_with_retry(|tx| {
            for (volume, number) in &wrong {
                let (state, details) = match number {
                    Some(_) => (volume.state, ""),
                    None => (State::Error, "the engine does not have this volume's data"),
                };
                tx.set_state(volume, state, details, *number);
            }
        });
        marked
            .await
            .map_err(|refusal| OpenError::Backend(refusal.message))?;
    }
    let known: std::collections::HashSet<&str> = view.volumes.values().map(|v| &*v.key).collect();
    for state in engine {
        let to_go = loaded.tombstones.contains(&state.key);
        let arrives = rules::moves::is_arriving(&state.key);
        if !to_go && !arrives && !known.contains(state.key.as_str()) {
            tracing::error!(
                key = state.key,
                bytes = state.used,
                record = &*state.annotation,
                "cannot serve a volume of the engine: not in the catalog (`weir catalog rebuild` gives it a row)"
            );
        }
    }
    Ok(())
}

async fn first_start(
    context: &Arc<JobContext>,
    engine: &[VolumeState],
    rng: &dyn Rng,
    (place, device_bytes): (LocationName, u64),
) -> Result<(), OpenError> {
    let id = || (rng.next_u64() >> 1).max(1);
    let capacity = device_bytes.div_ceil(GIB).max(1);
    let old = engine.iter().filter(|state| !is_keyed(&state.key));
    let old: Vec<(u64, &VolumeState)> = old.map(|state| (id(), state)).collect();
    let (pool_id, volume_id) = (id(), id());
    let made = context.store.commit_with_retry(|tx| {
        let now = tx.now;
        if tx.view.pool(&place.name(POOL)).is_none() {
            tx.put_pool(pool(place.name(POOL), pool_id, capacity, now));
        }
        for (id, state) in &old {
            let name = place.volume(&state.key);
            if tx.view.volume(&name).is_none() {
                let mut volume = volume(name, *id, capacity, now);
                volume.key = state.key.as_str().into();
                volume.number = Some(state.number);
                tx.put_volume(volume);
                tracing::info!(volume = state.key, "adopted");
            }
        }
        let new = old.is_empty() && tx.view.volume(&place.volume(VOLUME)).is_none();
        if new {
            let mut volume = volume(place.volume(VOLUME), volume_id, capacity, now);
            volume.state = State::Creating;
            tx.put_volume(volume);
            tx.put_operation(Operation {
                name: place.name(&format!("operation-first-{volume_id:016x}")),
                job: Job::Create(place.volume(VOLUME)),
                quiet: false,
                audit: None,
                created: now,
                ended: None,
                outcome: None::<Outcome>,
                warnings: Vec::new(),
                response: None,
            });
        }
    });
    made.await
        .map(|_| ())
        .map_err(|refusal| OpenError::Backend(refusal.message))
}
