//! What the data path sees, made from the view and handed over as a whole.
//!
//! One task publishes; it always takes the newest view, so that any number of mutations that came in meanwhile are one
//! publication, and then rests for several times as long as the publication took. However many volumes there are and
//! however fast mutations come, publishing takes a bounded part of one core. Whoever has to know that a change is in force
//! waits for a generation. What did not change since the last time is the same `Arc`.

use crate::backend::{Backend, BackendError, ExportSpec, Published};
use crate::model::{Instance, Pool, Protocol, State, Volume};
use crate::refusal::{Refusal, Status};
use crate::rules::{exports, plan};
use crate::store::Store;
use crate::view::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use weir_qos::plan::{Plan, PoolPlan, VolumePlan};

/// Rest, in multiples of what the publication took.
const REST: u32 = 4;
/// Rest at most.
const REST_MAX: Duration = Duration::from_secs(1);
/// How long somebody waits for a generation to be in force.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between attempts at a publication that failed.
const RETRY: Duration = Duration::from_millis(500);

/// Which generation is in force, and why a newer one is not.
#[derive(Clone, Debug, Default)]
pub(crate) struct InForce {
    pub generation: u64,
    pub error: Option<String>,
}

/// Waits until `generation` is in force.
pub(crate) async fn wait_for(
    mut published: watch::Receiver<InForce>,
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
    published: watch::Sender<InForce>,
) {
    let mut memory = Memory::default();
    loop {
        revisions.mark_unchanged();
        let Some(view) = store.upgrade().map(|store| store.view()) else {
            return;
        };
        if view.generation > published.borrow().generation {
            let began = clock.monotonic();
            let generation = view.generation;
            let to = Arc::clone(&backend);
            // Built there as well: with very many volumes it takes milliseconds.
            let done = tokio::task::spawn_blocking(move || {
                let all = memory.build(&view);
                let result = to.publish(Arc::new(all));
                (memory, result)
            });
            let result = match done.await {
                Ok((kept, result)) => {
                    memory = kept;
                    result
                }
                Err(panic) => {
                    memory = Memory::default();
                    Err(BackendError::Failed(panic.to_string()))
                }
            };
            match result {
                Ok(()) => {
                    published.send_replace(InForce {
                        generation,
                        error: None,
                    });
                    let took = clock.monotonic().saturating_sub(began);
                    tokio::time::sleep((took * REST).min(REST_MAX)).await;
                }
                Err(error) => {
                    tracing::error!(%error, generation, "publishing failed; trying again");
                    published.send_modify(|now| now.error = Some(error.to_string()));
                    tokio::time::sleep(RETRY).await;
                }
            }
            continue;
        }
        if revisions.changed().await.is_err() {
            return;
        }
    }
}

/// What a volume or instance was made from, and what came of it.
struct Kept {
    source: Source,
    export: Arc<ExportSpec>,
    plan: VolumePlan,
    seen: u64,
}

#[derive(Clone)]
enum Source {
    Volume(Arc<Volume>, Arc<Pool>),
    Instance(Arc<Instance>),
}

impl Source {
    fn same(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Volume(a, p), Source::Volume(b, q)) => Arc::ptr_eq(a, b) && Arc::ptr_eq(p, q),
            (Source::Instance(a), Source::Instance(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn key(&self) -> &Arc<str> {
        match self {
            Source::Volume(volume, _) => &volume.key,
            Source::Instance(instance) => &instance.key,
        }
    }
}

/// The last publication.
#[derive(Default)]
struct Memory {
    kept: BTreeMap<Arc<str>, Kept>,
    pools: BTreeMap<u64, (Arc<Pool>, PoolPlan)>,
    round: u64,
}

fn served(state: State) -> bool {
    !matches!(state, State::Creating | State::Deleting)
}

impl Memory {
    fn build(&mut self, view: &View) -> Published {
        self.round += 1;
        for volume in view.volumes.values() {
            let Some(number) = volume.number.filter(|_| served(volume.state)) else {
                continue;
            };
            if let Some(pool) = view.pool_of(volume) {
                let source = Source::Volume(Arc::clone(volume), Arc::clone(pool));
                self.keep(view, source, number);
            }
        }
        for instance in view.instances.values() {
            if let Some(number) = instance.number.filter(|_| served(instance.state)) {
                self.keep(view, Source::Instance(Arc::clone(instance)), number);
            }
        }
        let round = self.round;
        self.kept.retain(|_, kept| kept.seen == round);
        let mut plans: Vec<&VolumePlan> = self.kept.values().map(|kept| &kept.plan).collect();
        plans.sort_unstable_by_key(|plan| plan.volume);
        Published {
            exports: self.kept.values().map(|k| Arc::clone(&k.export)).collect(),
            plan: Plan {
                generation: view.generation,
                volumes: plans.into_iter().cloned().collect(),
                pools: self.pool_plans(view),
            },
        }
    }

    fn keep(&mut self, view: &View, source: Source, number: u64) {
        if let Some(kept) = self.kept.get_mut(source.key()) {
            if kept.source.same(&source) {
                kept.seen = self.round;
                return;
            }
        }
        let (export, plan) = match &source {
            Source::Volume(volume, pool) => (
                ExportSpec {
                    key: volume.key.to_string(),
                    path: format!("/{}", volume.share_name),
                    rules: exports::enforced(volume.export_rules.as_deref(), &volume.protocols),
                    snapshot_directory: volume.snapshot_directory,
                    read_only: volume.read_only,
                },
                plan::volume(&view.levels, pool, volume, number),
            ),
            Source::Instance(instance) => (
                ExportSpec {
                    key: instance.key.to_string(),
                    path: format!("/{}", instance.share_name),
                    rules: exports::enforced(
                        instance.export_rules.as_deref(),
                        &[instance.protocol.unwrap_or(Protocol::Nfsv3)],
                    ),
                    snapshot_directory: true,
                    read_only: false,
                },
                plan::instance(&view.levels, instance, number),
            ),
        };
        // A change of limits alone leaves the export what it was.
        let before = self.kept.get(source.key()).map(|kept| &kept.export);
        let export = match before {
            Some(before) if **before == export => Arc::clone(before),
            _ => Arc::new(export),
        };
        let kept = Kept {
            export,
            plan,
            seen: self.round,
            source: source.clone(),
        };
        self.kept.insert(Arc::clone(source.key()), kept);
    }

    fn pool_plans(&mut self, view: &View) -> Vec<PoolPlan> {
        let mut pools = BTreeMap::new();
        for pool in view.pools.values() {
            let plan = match self.pools.remove(&pool.id) {
                Some((from, plan)) if Arc::ptr_eq(&from, pool) => plan,
                _ => plan::pool(&view.levels, pool),
            };
            pools.insert(pool.id, (Arc::clone(pool), plan));
        }
        self.pools = pools;
        let root = (!view.instances.is_empty()).then(plan::instances);
        let each = self.pools.values().map(|(_, plan)| plan.clone());
        root.into_iter().chain(each).collect()
    }
}
