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
