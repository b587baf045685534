//! Transfers of snapshots between volumes, under throttles.
//!
//! - [`model`]: relationships, policies and transfers, in ONTAP's terms;
//! - [`schedule`]: when a transfer is due; [`retention`]: which snapshots it copies and which copies are kept;
//! - [`throttle`]: how fast transfers may go, each and together.
//!
//! All of it is pure: what time it is, and what moves bytes, is handed in.

pub mod model;
pub mod retention;
pub mod schedule;
pub mod throttle;
