//! A constituent of a large volume at its server.
//!
//! [`weir_constituents`] has the rules of large volumes, and a volume can carry out their records.
//! A [`Member`] brings both together at a server:
//!
//! - [`names`]: the records of the rules as changes of a volume;
//! - [`frame`]: the bytes of messages between servers;
//! - [`member`]: the constituent as operations of clients see it: locks of names, changes of
//!   several constituents, questions about inodes elsewhere;
//! - [`worker`]: the thread of a constituent, which handles requests, messages and time, and lets
//!   replies and messages leave once the log is durable.
//!
//! An operation on this constituent alone is an ordinary operation of the volume. It is carried out
//! while the member's names are held for reading, so that no part of a change of several
//! constituents is prepared meanwhile.

pub mod frame;
pub mod member;
mod names;
mod worker;

pub use frame::{Child, InodeAnswer, Node, Space};
pub use member::{Link, Member, Membership, NamesGuard, Parts};
pub use weir_constituents::{Attributes, Constituent, ROOT, Refusal, Reply, Request};
