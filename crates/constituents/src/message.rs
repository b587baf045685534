//! Messages between the constituents of a large volume. Each may be lost, delayed, repeated and
//! overtaken.

use std::fmt;

use weir_base::Ino;

use crate::number::Constituent;
use crate::part::Part;
use crate::record::Target;
use crate::request::Refusal;

/// Identity of a change that concerns several constituents. Never used twice: the epoch rises with
/// every start of the constituent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    /// Constituent whose directory decides.
    pub decider: Constituent,
    /// Epoch of the decider when it began the change.
    pub epoch: u64,
    /// Number of the change within the epoch.
    pub number: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.decider, self.epoch, self.number)
    }
}

/// Identity of a part that a constituent has prepared, or of a closing of its gate. Never used
/// twice by the constituent that gave it. A part that is prepared again has another ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket {
    /// Epoch of the constituent that gave the ticket.
    pub epoch: u64,
    /// Number of the ticket within the epoch.
    pub number: u64,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Decider: requests that the receiver prepares a part.
    Prepare {
        /// Change that the part belongs to.
        token: Token,
        /// Part to prepare.
        part: Part,
    },
    /// Participant: the answer to [`Message::Prepare`], once it is durable.
    Vote {
        /// Change that the part belongs to.
        token: Token,
        /// Part that was to be prepared.
        part: Part,
        /// Ticket of the prepared part, with the inode that it concerns; or the reason why it
        /// cannot be prepared.
        answer: Result<(Ticket, Option<Target>), Refusal>,
    },
    /// Decider: the end of a prepared part.
    Finish {
        /// Change that the part belongs to.
        token: Token,
        /// Ticket of the prepared part.
        ticket: Ticket,
        /// True if the change was decided, false if it is not and never will be.
        commit: bool,
    },
    /// Participant: the part of this ticket is finished, durably.
    Finished {
        /// Change that the part belongs to.
        token: Token,
        /// Ticket of the part.
        ticket: Ticket,
    },
    /// Participant: asks what was decided. The answer is [`Message::Finish`], or nothing while
    /// nothing is decided.
    Ask {
        /// Change that the part belongs to.
        token: Token,
        /// Ticket of the prepared part.
        ticket: Ticket,
    },
    /// Decider: asks for the parent of a directory, for a change that has the lock of moves.
    Parent {
        /// Change that needs the answer.
        token: Token,
        /// Directory whose parent is asked for.
        directory: Ino,
    },
    /// The answer to [`Message::Parent`].
    ParentIs {
        /// Change that needs the answer.
        token: Token,
        /// Directory whose parent was asked for.
        directory: Ino,
        /// Its parent.
        answer: Result<Ino, Refusal>,
    },
    /// Decider of a snapshot: requests that the receiver closes its gate.
    Close {
        /// The snapshot.
        token: Token,
    },
    /// The answer to [`Message::Close`].
    Closed {
        /// The snapshot.
        token: Token,
        /// Identity of this closing.
        ticket: Ticket,
    },
}
