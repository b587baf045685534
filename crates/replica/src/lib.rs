//! Transfers of snapshots between volumes, under throttles.
//!
//! - [`model`]: relationships, policies and transfers, in ONTAP's terms;
//! - [`schedule`]: when a transfer is due; [`retention`]: which snapshots it copies and which copies are kept;
//! - [`throttle`]: how fast transfers may go, each and together;
//! - [`send`] and [`receive`]: the two sides of one transfer; [`wire`]: what they say to each other.
//!
//! All of it is handed what time it is, and what moves bytes.

pub mod model;
pub mod receive;
pub mod retention;
pub mod schedule;
pub mod send;
pub mod throttle;
pub mod transfer;
pub mod wire;
