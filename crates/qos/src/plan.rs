//! The limits that are to be in force: what is configured, as immutable data.
//!
//! Whoever knows what was provisioned makes a [`Plan`]; whoever holds requests back makes its shapers match it. A plan
//! is replaced as a whole, and what did not change between two plans keeps its meters, so a change costs nobody credit.

use crate::Limits;
use std::sync::Arc;

/// Everything that is to be in force at once.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Counts up with every change; a plan with a lower number than the one in force is stale.
    pub generation: u64,
    /// Sorted by id.
    pub pools: Vec<PoolPlan>,
    /// Sorted by volume.
    pub volumes: Vec<VolumePlan>,
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
    /// The pool's id.
    pub pool: u64,
    /// What the volume may do; its weight counts among the pool's volumes.
    pub limits: Limits,
    /// What each single client may do on this volume.
    pub client: Limits,
    /// Where the limits come from, in words: `Premium: 64 MiB/s per TiB × 2 TiB`.
    pub source: Arc<str>,
}
