//! The right to serve an aggregate: which of the two nodes of a synchronous pair has it, or which
//! of many machines on shared objects, and when another may take over.
//!
//! - [`mod@file`]: a witness that keeps registers in files;
//! - [`register`]: the state that the witness keeps, one compare-and-swap register for each
//!   aggregate;
//! - [`node`]: the rules by which a node replies, reads, acknowledges, continues alone and takes
//!   over; pure.
//! - [`owner`]: the rules by which one of many machines takes over and keeps an aggregate on
//!   shared objects; pure.
//! - [`drift`]: compares the clock rates of the two nodes;
//! - [`wire`]: the messages between the nodes: entries of the stream of the store's log, which the
//!   engine of the standby applies;
//! - [`ask`]: the requests of nodes to a witness, and its replies.
//!
//! Nothing here opens a socket or reads a clock.

pub mod ask;
pub mod drift;
pub mod file;
pub mod node;
pub mod owner;
pub mod register;
pub mod wire;
#[cfg(test)]
mod world;

pub use drift::Clocks;
pub use file::FileWitness;
pub use node::{Action, Node, Replies, Role, Timing};
pub use owner::{Loss, ObservedOwner, Owner, OwnerAction, OwnerRole, OwnerTiming};
pub use register::{MemoryWitness, Register, Side, Swap, Unreachable, Witness};
