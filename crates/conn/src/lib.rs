//! Code shared by protocols and event loops: identity of connections, framing of messages, and
//! outcomes of messages.
//!
//! A protocol gets a message with its connection ([`ConnInfo`]) and returns an [`Outcome`]. Most
//! messages are answered at once. A message that has to wait is suspended ([`weir_vfs::Suspend`])
//! and becomes a future of its connection, which [`mod@resume`] runs to its end for all protocols.
//!
//! The event loops split a stream into messages ([`Inbox`]) by the [`Framing`] of the protocol, and
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
pub use outcome::{Begin, Outcome, RequestFuture};
pub use patience::Patience;
pub use resume::{Parts, Request, WaitOutcome, resume};
