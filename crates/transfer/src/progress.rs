//! Types that sender and receiver of a transfer share: phases, counters and errors.

use crate::wire::{Message, Reason, Refusal, WireError};
use weir_volume::{ContentHash, FsError};

/// Nanoseconds of a monotonic clock, which the caller passes in.
pub type Nanos = u64;

/// Failure of a transfer. All but `Refused` and `Different` may be retried: the received data is
/// kept, and the next attempt resumes after it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// The stream cannot be read: another version, or damage.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The other side has refused, or this side has refused and reported it.
    #[error("{0}")]
    Refused(Refusal),
    /// The volume does not allow it.
    #[error("{0}")]
    Volume(#[from] FsError),
    /// The source's tree or data cannot be read.
    #[error("cannot read the source: {0}")]
    Source(String),
    /// The received data differs from the data that was sent.
    #[error("received data differs from the data sent: {0}")]
    Corrupt(&'static str),
    /// A snapshot has different content at the two ends. A retry would not change that.
    #[error("{0}")]
    Different(Difference),
}

/// A snapshot with different content at the two ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "snapshot \"{name}\"{of} does not hold the same at both ends: the source has {source_content}, the destination \
     {destination}",
    of = if *.base { ", on which the transfer builds," } else { "" }
)]
pub struct Difference {
    /// Name at the source.
    pub name: String,
    /// True for the base of the transfer, false for the snapshot that it transferred.
    pub base: bool,
    /// Hash of the source's tree.
    pub source_content: ContentHash,
    /// Hash of the destination's tree.
    pub destination: ContentHash,
}

/// Phase of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// The two sides agree on the snapshots and the position.
    Setup,
    /// Data moves. A throttle limits only this phase.
    Data,
    /// The destination makes the received data its newest snapshot.
    Finalise,
    /// The transfer has succeeded.
    Done,
}

/// Counters and times of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Current phase.
    pub phase: Phase,
    /// Bytes before compression, including those before a restart from a checkpoint.
    pub logical: u64,
    /// Bytes on the wire, including those before a restart.
    pub wire: u64,
    /// The part of `logical` before the restart.
    pub resumed: u64,
    /// The part of `wire` before the restart.
    pub resumed_wire: u64,
    /// The part of `logical` that is durable at the destination.
    pub durable: u64,
    /// Expected final value of `logical`; `None` if it was not counted.
    pub total: Option<u64>,
    /// Start, on the caller's clock.
    pub began: Nanos,
    /// Time at which the first data was sent or received.
    pub data_began: Option<Nanos>,
    /// Time at which the last data was sent or received.
    pub data_ended: Option<Nanos>,
    /// Time of the successful end.
    pub ended: Option<Nanos>,
}

impl Progress {
    /// Returns the counters of a transfer that begins now.
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

/// Appends the refusal that ends a transfer on request.
pub(crate) fn aborted(out: &mut Vec<u8>) {
    let refusal = Refusal {
        reason: Reason::Aborted,
        text: "the transfer was aborted".to_owned(),
    };
    // A frame of this length is never refused.
    let _ = refusal.frame(out);
}
