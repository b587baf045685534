//! Acceptance experiments: each starts servers of its own, puts loads on them, and compares what it
//! measures with a target.
//!
//! Run one with `bench/experiment qos`, `snapshots` or `snapmirror`.

pub mod qos;
pub mod snapmirror;
pub mod snapshots;
