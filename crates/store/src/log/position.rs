//! Identity of a log, positions in it, and the boundaries between its batches.

use std::fmt;
use weir_base::Lsn;

/// Identity of a log: 128 random bits that no client knows, so that a client cannot forge a batch
/// in a payload page.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(pub [u8; 16]);

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({:032x})", u128::from_be_bytes(self.0))
    }
}

/// A position in the log: blocks since its creation. Never wraps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogPos(pub u64);

impl fmt::Display for LogPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A boundary between batches: records before `next` are stored before `pos`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogCut {
    /// The position at which replay begins.
    pub pos: LogPos,
    /// The LSN of the first record there.
    pub next: Lsn,
}

impl LogCut {
    /// The start of a new log.
    pub const START: LogCut = LogCut {
        pos: LogPos(0),
        next: Lsn(1),
    };

    /// Returns the last record before the boundary; LSN 0 if there is none.
    pub fn last(&self) -> Lsn {
        // Saturates: the number comes from the disk.
        Lsn(self.next.0.saturating_sub(1))
    }
}
