//! The synchronous mirror: which of two nodes answers for an aggregate, and when the other may take over.
//!
//! - [`file`]: a witness that keeps registers in files;
//! - [`register`]: what the witness keeps, one compare-and-swap register for each aggregate;
//! - [`node`]: the rules by which a node replies, reads, acknowledges, goes on alone and takes over; pure.
//! - [`drift`]: whether the clocks of the two nodes run alike;
//! - [`wire`]: what travels between the nodes: entries of the stream of the store's log, which the engine of the standby applies;
//! - [`ask`]: what nodes ask a witness, and what it replies.
//!
//! Nothing here opens a socket or reads a clock.

pub mod ask;
pub mod drift;
pub mod file;
pub mod node;
pub mod register;
pub mod wire;
#[cfg(test)]
mod world;

pub use drift::Clocks;
pub use file::FileWitness;
pub use node::{Action, Node, Replies, Role, Timing};
pub use register::{MemoryWitness, Register, Side, Swap, Unreachable, Witness};
