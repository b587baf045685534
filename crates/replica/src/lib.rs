//! Transfers of snapshots between volumes, under throttles.
//!
//! - [`model`]: relationships, policies and transfers, in ONTAP's terms;
//! - [`schedule`]: when a transfer is due; [`retention`]: which snapshots it copies and which copies are kept;
//! - [`throttle`]: how fast transfers may go, each and together;
//! - [`send`] and [`receive`]: the two sides of one transfer; [`wire`]: what they say to each other;
//! - [`plan`]: what a transfer copies, and which snapshots are deleted after it; [`session`]: what two nodes
//!   say about it;
//! - [`manager`]: relationships, the users' commands on them, and their results.
//!
//! The time and what moves bytes are passed in by the caller.

pub mod batch;
pub mod manager;
pub mod model;
pub mod pipe;
pub mod plan;
pub mod receive;
pub mod retention;
pub mod schedule;
pub mod send;
pub mod session;
pub mod throttle;
pub mod transfer;
pub mod wire;
