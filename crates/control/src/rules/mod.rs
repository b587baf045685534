//! What is refused.
//!
//! Everything here is a pure function of the view and of what is asked for: no catalog, no engine, no clock. A refusal
//! names the rule, the numbers, and what would fit.

pub(crate) mod active_directory;
pub(crate) mod exports;
pub(crate) mod named;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod plan;
pub(crate) mod pool;
pub mod replication;
pub(crate) mod smb;
pub(crate) mod snapshot;
pub(crate) mod space;
pub(crate) mod tier;
pub(crate) mod volume;
pub(crate) mod warnings;

use crate::backend::Facts;
use crate::model::Volume;
use crate::view::View;
use std::sync::Arc;

/// Facts that the acceptance of a change takes besides the view.
pub(crate) struct Inputs {
    /// A number for a new resource.
    pub id: u64,
    /// Bytes that the target's data holds, where its capacity is to fall.
    pub used: Option<u64>,
    /// The operation is forgotten when it has succeeded.
    pub quiet: bool,
    /// The node's state and settings.
    pub facts: Facts,
}

/// Returns the words that say where a volume's limits come from; `None` if its pool does not exist.
pub fn limit_source(view: &View, volume: &Volume) -> Option<Arc<str>> {
    plan::volume(view, volume, 0).map(|plan| plan.source)
}
