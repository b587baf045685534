//! The engine, and operations on whole volumes and snapshots.

pub(crate) mod clients;
pub(crate) mod content;
pub(crate) mod copy;
pub(crate) mod difference;
pub(crate) mod engine;
pub(crate) mod marks;
pub(crate) mod mirror;
pub(crate) mod receive;
pub(crate) mod recovery;
pub(crate) mod restore;
pub(crate) mod round;
pub(crate) mod scrub;
pub(crate) mod sending;
pub(crate) mod snapshot;
pub(crate) mod standby;
pub(crate) mod state_hash;
pub(crate) mod stream;
pub(crate) mod volume_move;
pub(crate) mod volumes;
