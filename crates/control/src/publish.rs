//! Publishes the view to the data path, as the difference from the previous publication.
//!
//! One task publishes. It always takes the newest view, so that any number of mutations made
//! meanwhile are one publication. The view comes with the names of changed resources. Only those
//! are compared with their last publication, so a publication costs only the change's size, however
//! many volumes there are. After each, the task pauses for several times its duration: however fast
//! mutations come, publishing takes a bounded part of one core. A caller that has to know that a
//! change is in force waits for a generation. After a failure everything is published again.
//!
//! Most changes during a mutation are invisible to the data path. Comparing finds this in some
//! microseconds on the spot: the node is called, and a thread woken for it, only if there is a
//! difference.

use crate::backend::{Backend, BackendError, ExportSpec, Publication, call};
use crate::model::{Pool, SecurityStyle, State, Volume};
use crate::name::{Name, Surface, VolumeName};
use crate::policy_assignment::Synchronous;
use crate::record::Record;
use crate::refusal::{Refusal, Status};
use crate::rules::{exports, plan, smb};
use crate::store::{ChangedResources, Store};
use crate::view::View;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use weir_qos::plan::{PoolPlan, VolumePlan};

/// Pause after a publication, in multiples of its duration.
const REST: u32 = 4;
/// Maximum pause between two publications.
const REST_MAX: Duration = Duration::from_secs(1);
/// Time that a caller waits for a generation to be in force.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of changes that are compared on the spot: they cost no more than waking a thread.
const FEW: usize = 16;
/// Interval between attempts at a failed publication.
const RETRY: Duration = Duration::from_millis(500);

/// The generation in force, and the reason why a newer one is not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effective {
    pub generation: u64,
    pub error: Option<String>,
}

/// Waits until `generation` is in force.
pub(crate) async fn wait_for(
    mut published: watch::Receiver<Effective>,
    generation: u64,
) -> Result<(), Refusal> {
    let reached = async {
        let seen = published.wait_for(|now| now.generation >= generation).await;
        seen.map(|_| ())
    };
    let waited = tokio::time::timeout(PATIENCE, reached).await;
    match waited {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Refusal::new(
            Status::Unavailable,
            "CLOSING",
            "the server is being stopped",
        )),
        Err(_) => {
            let error = published.borrow().error.clone().unwrap_or_default();
            Err(Refusal::new(
                Status::Unavailable,
                "NOT_IN_FORCE",
                format!("the change is recorded but not yet in force: {error}"),
            ))
        }
    }
}

/// Publishes for as long as the store lives.
pub(crate) async fn run(
    store: std::sync::Weak<Store>,
    backend: Arc<dyn Backend>,
    clock: Arc<dyn weir_base::Clock>,
    mut revisions: watch::Receiver<u64>,
    published: watch::Sender<Effective>,
) {
    let mut memory = Memory::default();
    let mut rested = Duration::ZERO;
    loop {
        revisions.mark_unchanged();
        let Some(view) = store.upgrade().map(|store| store.view()) else {
            return;
        };
        if view.generation <= published.borrow().generation {
            if revisions.changed().await.is_err() {
                return;
            }
            continue;
        }
        let began = clock.monotonic();
        if began < rested {
            tokio::time::sleep(rested.saturating_sub(began)).await;
        }
        let Some((view, changed)) = store.upgrade().map(|store| store.take_changed()) else {
            return;
        };
        let began = clock.monotonic();
        let generation = view.generation;
        let (kept, result) = publish(memory, view, changed, &backend).await;
        memory = kept;
        match result {
            Ok(called) => {
                published.send_replace(Effective {
                    generation,
                    error: None,
                });
                if called {
                    let now = clock.monotonic();
                    rested = now + (now.saturating_sub(began) * REST).min(REST_MAX);
                }
            }
            Err(error) => {
                tracing::error!(%error, generation, "cannot publish to the data path; retrying");
                published.send_modify(|now| now.error = Some(error.to_string()));
                // The node's state is unknown.
                if let Some(store) = store.upgrade() {
                    store.all_changed();
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Publishes `view` to the node. Returns the published state, and true if there was a difference.
async fn publish(
    mut memory: Memory,
    view: Arc<View>,
    changed: ChangedResources,
    backend: &Arc<dyn Backend>,
) -> (Memory, Result<bool, BackendError>) {
    // With very many volumes this takes milliseconds.
    let on_the_spot = changed.is_few(FEW) && backend.is_prompt();
    let told = call(backend, on_the_spot, move |node| {
        let next = memory.build(&view, &changed);
        let result = match next.is_empty() {
            true => Ok(false),
            false => node.publish(Arc::new(next)).map(|()| true),
        };
        Ok((memory, result))
    });
    told.await
        .unwrap_or_else(|panic| (Memory::default(), Err(panic)))
}

/// A volume as the node sees it.
#[derive(PartialEq)]
struct VolumePublication {
    export: ExportSpec,
    plan: VolumePlan,
}

/// Last publication of a volume.
struct PublishedVolume {
    key: Arc<str>,
    export: Arc<ExportSpec>,
    plan: VolumePlan,
}

/// Everything published so far, for comparison with a view.
#[derive(Default)]
struct Memory {
    volumes: HashMap<VolumeName, PublishedVolume>,
    /// The engine's key and the stored [`Record`], including volumes that are not served.
    records: HashMap<VolumeName, (Arc<str>, Arc<str>)>,
    pools: HashMap<Name, (Arc<Pool>, PoolPlan)>,
    /// True if the pool for volumes of tiers exists.
    has_tiered: bool,
}

fn served(state: State) -> bool {
    !matches!(state, State::Creating | State::Deleting)
}

fn slashed(paths: &[Arc<str>]) -> Vec<String> {
    paths.iter().map(|path| format!("/{path}")).collect()
}

/// Returns the export and limits of a volume; `None` if it is not served.
fn seen(view: &View, volume: &Volume) -> Option<VolumePublication> {
    let number = volume.number.filter(|_| served(volume.state))?;
    if !volume.assigned.served() {
        return None;
    }
    let protocols = exports::spoken(volume.name.surface, &volume.protocols);
    let export = ExportSpec {
        key: volume.key.to_string(),
        paths: slashed(&volume.paths),
        home: volume
            .own_address()
            .map(|own| (own, format!("/{}", volume.share_name))),
        rules: exports::enforced(volume.export_rules.as_deref(), protocols),
        trees: exports::enforced_in_trees(&volume.trees, protocols),
        protocols,
        share: smb::share(volume),
        ntfs: volume.smb.style == Some(SecurityStyle::Ntfs),
        snapshot_directory: volume.snapshot_directory,
        strict: volume.assigned.synchronous == Some(Synchronous::StrictSync),
        quotas: volume.quotas.enforced(),
        constituent: volume.constituent(),
        origin: volume.origin,
    };
    Some(VolumePublication {
        export,
        plan: plan::volume(view, volume, number)?,
    })
}

/// Returns the record for the engine to store with a volume that it has.
fn record(view: &View, volume: &Volume) -> Option<Arc<str>> {
    let there = volume.number.is_some() && served(volume.state);
    there.then(|| Record::from_volume(view, volume).text())
}

/// Returns true if the data path sees no difference between a volume in one view and the same
/// volume in another.
pub(crate) fn alike(before: (&View, &Volume), after: (&View, &Volume)) -> bool {
    seen(before.0, before.1) == seen(after.0, after.1)
        && record(before.0, before.1) == record(after.0, after.1)
}

/// Adds the export of `name` to the publication, if it has changed.
fn differ(
    kept: &mut HashMap<VolumeName, PublishedVolume>,
    name: &VolumeName,
    now: Option<(&Arc<str>, VolumePublication)>,
    out: &mut Publication,
) {
    let before = kept.remove(name);
    // Another volume may have the name by now.
    let goes = before.as_ref().filter(|before| {
        now.as_ref()
            .is_none_or(|(key, now)| before.key != **key || before.plan.volume != now.plan.volume)
    });
    if let Some(before) = goes {
        out.limits.volumes_gone.push(before.plan.volume);
        if now.as_ref().is_none_or(|(key, ..)| before.key != **key) {
            out.withdrawn.push(Arc::clone(&before.key));
        }
    }
    let Some((key, now)) = now else {
        return;
    };
    let VolumePublication { export, plan } = now;
    if before.as_ref().is_none_or(|before| before.plan != plan) {
        out.limits.volumes.push(plan.clone());
    }
    let export = match before {
        Some(before) if *before.export == export => before.export,
        _ => {
            let export = Arc::new(export);
            out.exports.push(Arc::clone(&export));
            export
        }
    };
    let key = Arc::clone(key);
    let kept_now = PublishedVolume { key, export, plan };
    kept.insert(name.clone(), kept_now);
}

impl Memory {
    /// Returns the difference of `view`, which is limited to `changed`, from the last publication.
    fn build(&mut self, view: &View, changed: &ChangedResources) -> Publication {
        let mut out = Publication {
            whole: changed.all,
            ..Publication::default()
        };
        out.limits.generation = view.generation;
        out.limits.whole = changed.all;
        if changed.all {
            *self = Memory::default();
            for name in view.pools.keys() {
                self.pool(view, name, &mut out);
            }
            for name in view.volumes.keys() {
                self.volume(view, name, &mut out);
            }
        } else {
            let mut volumes = changed.volumes.clone();
            for name in &changed.pools {
                if self.pool(view, name, &mut out) {
                    volumes.extend(view.volumes_of(name).map(|volume| volume.name.clone()));
                }
            }
            for name in &volumes {
                self.volume(view, name, &mut out);
            }
        }
        self.pool_of_tiers(view, &mut out);
        out.exports.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        out
    }

    fn volume(&mut self, view: &View, name: &VolumeName, out: &mut Publication) {
        let volume = view.volume(name);
        let now = volume.and_then(|volume| Some((&volume.key, seen(view, volume)?)));
        differ(&mut self.volumes, name, now, out);
        let Some((volume, text)) = volume.and_then(|v| Some((v, record(view, v)?))) else {
            self.records.remove(name);
            return;
        };
        let now = (Arc::clone(&volume.key), text);
        if self.records.get(name) != Some(&now) {
            out.annotations.push(now.clone());
            self.records.insert(name.clone(), now);
        }
    }

    /// Publishes a pool. Returns true if its volumes' limits may have changed as well.
    fn pool(&mut self, view: &View, name: &Name, out: &mut Publication) -> bool {
        let before = self.pools.remove(name);
        let Some(pool) = view.pool(name) else {
            out.limits
                .pools_gone
                .extend(before.map(|(pool, _)| pool.id));
            return false;
        };
        let plan = plan::pool(&view.levels, pool);
        let same = |(was, _): &(Arc<Pool>, PoolPlan)| was.id == pool.id;
        if let Some((other, _)) = before.as_ref().filter(|before| !same(before)) {
            out.limits.pools_gone.push(other.id);
        }
        let before = before.filter(same);
        if before.as_ref().is_none_or(|(_, before)| *before != plan) {
            out.limits.pools.push(plan.clone());
        }
        let volumes_too = before.is_none_or(|(was, _)| !plan::same_for_volumes(&was, pool));
        self.pools.insert(name.clone(), (Arc::clone(pool), plan));
        volumes_too
    }

    fn pool_of_tiers(&mut self, view: &View, out: &mut Publication) {
        let wanted = view.every_volume(Surface::Filestore).next().is_some();
        match (self.has_tiered, wanted) {
            (false, true) => out.limits.pools.push(plan::instances()),
            (true, false) => out.limits.pools_gone.push(plan::INSTANCES),
            _ => {}
        }
        self.has_tiered = wanted;
    }
}
