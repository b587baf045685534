//! The limits to be effective: the configuration, as immutable data.
//!
//! The control plane, which knows the provisioned throughput, makes a [`Plan`]; the throttle makes
//! its shapers match it. A plan is replaced as a whole, or by a [`Change`]. A part that is equal in
//! two plans keeps its meters, so a change costs no client credit.

use crate::Limits;
use std::sync::Arc;

/// All limits that are to be effective at once.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Number that grows with every change; a plan with a lower number than the effective one is
    /// stale.
    pub generation: u64,
    /// The pools, sorted by id.
    pub pools: Vec<PoolPlan>,
    /// The volumes, sorted by their number.
    pub volumes: Vec<VolumePlan>,
}

/// The difference between one plan and the next, so that a change among very many volumes costs
/// only its own size.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Number of the resulting plan.
    pub generation: u64,
    /// True if only the parts named below are in the next plan; otherwise the others stay as they
    /// are.
    pub whole: bool,
    /// New or changed pools.
    pub pools: Vec<PoolPlan>,
    /// Ids of pools that are not in the next plan.
    pub pools_gone: Vec<u64>,
    /// New or changed volumes.
    pub volumes: Vec<VolumePlan>,
    /// Volumes that are not in the next plan.
    pub volumes_gone: Vec<u64>,
}

impl Change {
    /// Returns true if the next plan equals the previous one.
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

/// Part of a throughput limit that several servers have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPart {
    /// Identity of the limit, the same at all of its servers.
    pub limit: u64,
    /// Number of this server's part, below `parts`.
    pub part: u8,
    /// Number of parts.
    pub parts: u8,
}

/// Limits of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Identifier, stable for the pool's life.
    pub id: u64,
    /// Name given by users.
    pub name: Arc<str>,
    /// Limits on the sum of its volumes.
    pub limits: Limits,
    /// Origin of the limits, in words: `Flex: 16 MiB/s × 40 TiB`.
    pub source: Arc<str>,
    /// The limit on bytes of which [`Limits::total`] is an equal part; `None` if this server has
    /// the limit alone.
    pub shared: Option<SharedPart>,
}

/// Limits of one volume, and of each of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// The engine's number of the volume.
    pub volume: u64,
    /// Name given by users.
    pub name: Arc<str>,
    /// [`PoolPlan::id`] of its pool.
    pub pool: u64,
    /// Limits of the volume; its weight counts among the pool's volumes.
    pub limits: Limits,
    /// Limits of each single client on this volume.
    pub client: Limits,
    /// Origin of the limits, in words: `Premium: 64 MiB/s per TiB × 2 TiB`.
    pub source: Arc<str>,
    /// As for a pool.
    pub shared: Option<SharedPart>,
}
