//! Transfers of snapshots between volumes, under throttles.

pub mod model;
