//! Rules that refuse changes.
//!
//! Everything here is a pure function of the view and the request: no catalog, no engine, no clock.
//! A refusal names the rule, the numbers, and a valid value.

pub(crate) mod active_directory;
pub(crate) mod backup;
pub(crate) mod exports;
pub(crate) mod large;
pub(crate) mod moves;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod plan;
pub(crate) mod policies;
pub(crate) mod pool;
pub(crate) mod quota;
pub mod replication;
pub(crate) mod smb;
pub(crate) mod snapshot;
pub(crate) mod space;
pub(crate) mod tier;
pub(crate) mod trees;
pub(crate) mod volume;
pub(crate) mod warnings;

pub use volume::capacity;

use crate::backend::Facts;
use crate::model::Volume;
use crate::view::View;
use std::sync::Arc;

/// Facts that the acceptance of a change needs besides the view.
pub(crate) struct Inputs {
    /// Number for a new resource.
    pub id: u64,
    /// Bytes of the target's data, if its capacity decreases.
    pub used: Option<u64>,
    /// True if the operation is forgotten when it has succeeded.
    pub quiet: bool,
    /// State and settings of the node.
    pub facts: Facts,
}

/// Describes the origin of a volume's limits; `None` if its pool does not exist.
pub fn limit_source(view: &View, volume: &Volume) -> Option<Arc<str>> {
    plan::volume(view, volume, 0).map(|plan| plan.source)
}
