//! Relationships between volumes and their copies, as rules without threads, sockets or an engine.
//!
//! - [`model`]: relationships, policies and transfers, in ONTAP's terms;
//! - [`schedule`]: times at which transfers are due; [`retention`]: the snapshots that they copy,
//!   and the copies that are kept;
//! - [`throttle`]: rate limits of transfers, each and together;
//! - [`manager`]: relationships, the users' commands on them, and their results;
//! - [`policy`]: export, QoS and snapshot policies, in the form shared by the catalog and ONTAP's
//!   interfaces;
//! - [`plan`]: what a transfer copies, and which snapshots are deleted after it;
//! - [`cutover`]: who serves a volume that moves to another aggregate.
//!
//! The caller passes in the time and carries out the transfers (crate `weir-transfer`).

pub mod cutover;
pub mod manager;
pub mod model;
pub mod plan;
pub mod policy;
pub mod retention;
pub mod schedule;
pub mod throttle;
