//! The namespace of a large volume: one tree over several volumes, its *constituents*.
//!
//! A directory's entries are in the directory's constituent, an inode is in the constituent that
//! its [number] names, and an entry may name an inode of another constituent. A change that
//! concerns more than one constituent is atomic by a protocol with one decision:
//!
//! - [`part`]: what one constituent contributes to a change;
//! - [`record`]: the log records of a constituent, each atomic;
//! - [`message`]: the messages between constituents;
//! - [`protocol`]: the rules of one constituent: prepare, decide, finish, recover;
//! - [`codec`]: the bytes of messages and of what a constituent stores;
//! - [`placement`]: which constituent gets a new directory.
//!
//! The protocol and the reasons why each crash is safe are in docs/internals/large-volumes.md.
//! Nothing here opens a socket, reads a clock or starts a thread.

pub mod codec;
mod decide;
mod gate;
mod lock;
pub mod message;
pub mod number;
pub mod part;
pub mod placement;
mod prepare;
pub mod protocol;
pub mod record;
mod request;

pub use message::{Message, Ticket, Token};
pub use number::{Constituent, ROOT};
pub use part::{Part, PreparedPart};
pub use protocol::{Durable, Output, Protocol};
pub use record::{Change, Kind, Namespace, Note, Object, Record, Target};
pub use request::{Attributes, Refusal, Reply, Request};
