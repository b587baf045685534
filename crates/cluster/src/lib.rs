//! The control plane of a cluster: several machines that serve aggregates on Ceph RADOS.
//!
//! PostgreSQL holds what is wanted: nodes, aggregates, which node is to own an aggregate and which
//! is to stand by for it ([`rows`]). RADOS decides who owns an aggregate, and a standby takes over
//! by itself; none of that asks PostgreSQL. One of the daemons leads by a lease: it makes the rows
//! follow what the daemons report, and gives each aggregate a standby again ([`rules`]). It
//! also divides limits that several servers have together ([`shares`]).

pub mod commands;
pub mod conditions;
pub mod config;
pub mod daemon;
pub mod database;
pub mod directory;
pub mod explain;
pub mod gateway;
pub mod grants;
pub mod metrics;
pub mod placement;
pub mod rows;
pub mod rules;
pub mod servers;
pub mod shares;
pub mod show;
#[cfg(test)]
mod world;
