//! What sender and receiver of a transfer have in common.

use crate::wire::{Message, Reason, Refusal, WireError};
use weir_volume::{ContentHash, FsError};

/// Nanoseconds of a clock that never goes back; the caller that drives a transfer hands them in.
pub type Nanos = u64;

/// How a transfer fails. All but `Refused` may be tried again: what has arrived is kept, and the next attempt goes on
/// behind it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// The stream cannot be read: another version, damage.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The other side says no, or this side has said so to it.
    #[error("{0}")]
    Refused(Refusal),
    /// The volume does not allow it.
    #[error("{0}")]
    Volume(#[from] FsError),
    /// The source's tree or data cannot be read.
    #[error("the source cannot be read: {0}")]
    Source(String),
    /// What arrived is not what was sent.
    #[error("what arrived is not what was sent: {0}")]
    Corrupt(&'static str),
    /// A snapshot does not hold the same at both ends. It will not by trying again.
    #[error("{0}")]
    Different(Difference),
}

/// A snapshot that does not hold the same at both ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "snapshot \"{name}\"{of} does not hold the same at both ends: the source has {source_content}, the destination \
     {destination}",
    of = if *.base { ", on which the transfer builds," } else { "" }
)]
pub struct Difference {
    /// Its name at the source.
    pub name: String,
    /// It is what the transfer was to build on, not what it has brought.
    pub base: bool,
    /// By the source's tree.
    pub source_content: ContentHash,
    /// By the destination's tree.
    pub destination: ContentHash,
}

/// Where a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// The two sides agree on what is to be sent, from where.
    Setup,
    /// Data moves: what a throttle holds for.
    Data,
    /// The destination makes what came its newest snapshot.
    Finalise,
    /// It has ended well.
    Done,
}

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The phase that the transfer is in.
    pub phase: Phase,
    /// Bytes before compression, with those before a restart from a checkpoint.
    pub logical: u64,
    /// Bytes on the wire, with those before a restart.
    pub wire: u64,
    /// Of `logical`, those before the restart.
    pub resumed: u64,
    /// Of `wire`, those before the restart.
    pub resumed_wire: u64,
    /// Of `logical`, those that are durable at the destination.
    pub durable: u64,
    /// `logical` when all will have been sent, if that was counted.
    pub total: Option<u64>,
    /// When it began, on the caller's clock.
    pub began: Nanos,
    /// When the first data were sent or received.
    pub data_began: Option<Nanos>,
    /// When the last data had been.
    pub data_ended: Option<Nanos>,
    /// When it ended well.
    pub ended: Option<Nanos>,
}

impl Progress {
    /// Of a transfer that begins now.
    pub fn new(now: Nanos) -> Progress {
        Progress {
            phase: Phase::Setup,
            logical: 0,
            wire: 0,
            resumed: 0,
            resumed_wire: 0,
            durable: 0,
            total: None,
            began: now,
            data_began: None,
            data_ended: None,
            ended: None,
        }
    }
}

/// Appends the word that a transfer ends on request.
pub(crate) fn aborted(out: &mut Vec<u8>) {
    let refusal = Refusal {
        reason: Reason::Aborted,
        text: "the transfer was aborted".to_owned(),
    };
    // A frame of this length is never refused.
    let _ = refusal.frame(out);
}
