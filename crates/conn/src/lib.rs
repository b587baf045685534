//! What protocols and event loops share: a connection's identity, the framing of its messages, and
//! the outcome of one.
//!
//! A protocol gets a message with the connection that it came over ([`ConnInfo`]) and returns an
//! [`Outcome`]. Most messages are answered at once. One that has to wait is suspended
//! ([`weir_vfs::Suspend`]) and becomes a future of its connection, which [`resume`] drives to its
//! end for every protocol alike.
//!
//! The event loops cut a stream into messages ([`Inbox`]) by the [`Framing`] of the protocol, and
//! gather replies into vectored writes ([`Outbox`]).

mod connection;
mod framing;
mod inbox;
mod outbox;
mod outcome;
mod patience;
mod resume;

pub use connection::{Arrival, ConnInfo, Line};
pub use framing::{Broken, DirectTcp, Framing, MARK_BYTES, Piece, RecordMarks};
pub use inbox::{Admit, Flow, Inbox, Receiver};
pub use outbox::{Outbox, Pieces, Reply};
pub use outcome::{Begin, Outcome, Pending};
pub use patience::Patience;
pub use resume::{Parts, Request, Resumed, resume};
