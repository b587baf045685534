//! Commands of `weir` that do not serve: they work on a data folder, or ask the server of one.

pub mod backup;
pub mod catalog;
pub mod check;
pub mod cluster;
pub mod node;
pub mod pair;
pub mod scrub;
pub mod upgrade;
pub mod verify;
