//! The limits that are to be effective: what is configured, as immutable data.
//!
//! The control plane, which knows what was provisioned, makes a [`Plan`]; the throttle makes its shapers match it. A
//! plan is replaced as a whole, or as a [`Change`] says; what did not change between two plans keeps its meters, so a
//! change costs no client credit.

use crate::Limits;
use std::sync::Arc;

/// All limits that are to be effective at once.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Counts up with every change; a plan with a lower number than the effective one is stale.
    pub generation: u64,
    /// The pools, sorted by id.
    pub pools: Vec<PoolPlan>,
    /// The volumes, sorted by their number.
    pub volumes: Vec<VolumePlan>,
}

/// From one plan to the next: only what is different, so that a change among very many volumes costs what the change does.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The number of the plan that it leads to.
    pub generation: u64,
    /// Whatever is not named below is not in the next plan; otherwise it stays as it is.
    pub whole: bool,
    /// Pools that are new or different.
    pub pools: Vec<PoolPlan>,
    /// Ids of pools that are not in the next plan.
    pub pools_gone: Vec<u64>,
    /// Volumes that are new or different.
    pub volumes: Vec<VolumePlan>,
    /// Volumes that are not in the next plan.
    pub volumes_gone: Vec<u64>,
}

impl Change {
    /// Whether the next plan is as the one before.
    pub fn is_empty(&self) -> bool {
        !self.whole
            && self.pools.is_empty()
            && self.pools_gone.is_empty()
            && self.volumes.is_empty()
            && self.volumes_gone.is_empty()
    }
}

impl From<&Plan> for Change {
    fn from(plan: &Plan) -> Change {
        Change {
            generation: plan.generation,
            whole: true,
            pools: plan.pools.clone(),
            volumes: plan.volumes.clone(),
            ..Change::default()
        }
    }
}

/// What a pool's volumes may do together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Stable for the pool's life.
    pub id: u64,
    /// As its users call it.
    pub name: Arc<str>,
    /// What binds the sum of its volumes.
    pub limits: Limits,
    /// Where the limits come from, in words: `Flex: 16 MiB/s × 40 TiB`.
    pub source: Arc<str>,
}

/// What one volume may do, and each of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// The engine's number of the volume.
    pub volume: u64,
    /// As its users call it.
    pub name: Arc<str>,
    /// [`PoolPlan::id`] of its pool.
    pub pool: u64,
    /// What the volume may do; its weight counts among the pool's volumes.
    pub limits: Limits,
    /// What each single client may do on this volume.
    pub client: Limits,
    /// Where the limits come from, in words: `Premium: 64 MiB/s per TiB × 2 TiB`.
    pub source: Arc<str>,
}
