//! Checkpoints, which turn overlays into the next durable trees, and the background jobs that they
//! carry out.

pub(crate) mod build;
pub(crate) mod change;
pub(crate) mod checkpointer;
pub(crate) mod count;
pub(crate) mod dead;
pub(crate) mod edits;
pub(crate) mod job;
pub(crate) mod merge;
pub(crate) mod orphans;
pub(crate) mod publish;
pub(crate) mod split;
pub(crate) mod table;
pub(crate) mod transfer;
