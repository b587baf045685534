//! Places of volumes and pools in the table of limits.

use super::domain::Domain;
use std::sync::Arc;
use weir_qos::{PoolPlan, VolumePlan};

/// A volume's place in the table: its pool, its slot there, and its limits.
pub(super) struct Entry {
    pub(super) domain: Arc<Domain>,
    /// Index in the domain's volumes.
    pub(super) slot: usize,
    /// True if anything on the path limits.
    pub(super) limited: bool,
    /// True if anything on the path limits the operations of both ways together, which metadata
    /// takes a part of.
    pub(super) counts_metadata: bool,
    pub(super) plan: VolumePlan,
}

/// A pool in the table.
pub(super) struct Pool {
    pub(super) domain: Arc<Domain>,
    pub(super) plan: PoolPlan,
}
