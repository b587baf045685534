//! Simulation: the parts with which the tests of Weir prove that it keeps its promises.
//!
//! - [`device_suite`]: promises that every kind of device keeps;
//! - [`rados`]: a simulated cluster of objects, with fencing and OSDs that learn of it late;
//! - [`large`]: a large volume over constituents that crash and lose messages;
//! - [`large_engine`]: its protocol on volumes of the engine;
//! - [`owner`]: machines that take an aggregate on it over from each other;
//! - [`disk`]: simulated devices that lose power, tear, reorder, fail, rot and fill up;
//! - [`model`]: a reference model of a volume, made of plain maps;
//! - [`generate`]: random operations, dense in collisions and corner cases;
//! - [`runner`]: performs them on a [`subject`] and the model, and compares everything;
//! - [`minimise`]: shrinks a failing sequence;
//! - [`histories`]: volumes as a whole: snapshots, clones, reverts, deletions.
//!
//! Everything random comes from a seed ([`rand::Choices`]); a failing test prints it.
//!
//! This crate is test code in library form: here, unlike in the product, an impossible state
//! panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod crash;
pub mod device_suite;
pub mod disk;
pub mod engine;
pub mod faults;
pub mod fuzz;
pub mod generate;
pub mod histories;
pub mod large;
pub mod large_engine;
pub mod machine;
pub mod minimise;
pub mod mirrors;
pub mod model;
pub mod nfs;
pub mod owner;
pub mod pair;
pub mod rados;
pub mod rand;
pub mod restart;
pub mod runner;
pub mod subject;
pub mod suite;
pub mod suites;
pub mod threads;
