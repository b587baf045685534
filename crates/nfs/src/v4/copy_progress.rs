//! Progress of a COPY, which is kept while it is suspended.

use weir_vfs::volume::ReadOut;

/// Maximum number of bytes that a request copies, except for shared blocks and holes.
pub(super) const MOST: u64 = 4 << 20;

/// Progress of a COPY.
#[derive(Default)]
pub(super) struct CopyProgress {
    /// True if the blocks cannot be shared.
    pub(super) piecewise: bool,
    /// Number of bytes to be copied by this request.
    pub(super) count: u64,
    pub(super) done: u64,
    /// Number of bytes that this request has read and written.
    pub(super) moved: u64,
    pub(super) next: Next,
}

/// Next part of the source.
#[derive(Default)]
pub(super) enum Next {
    #[default]
    Unknown,
    /// Data begins at the position.
    Data,
    /// A hole of this many bytes.
    Hole(u64),
    /// Data that was read, and is to be written from this byte on.
    Read(Box<ReadOut>, usize),
}

impl CopyProgress {
    /// Returns true if the copy is too long for one request, and has not begun.
    pub(super) fn is_long(&self) -> bool {
        self.count > MOST && self.done == 0 && matches!(self.next, Next::Unknown)
    }

    /// Returns the progress of a copy of `count` bytes that are read and written.
    pub(super) fn in_pieces(count: u64) -> CopyProgress {
        CopyProgress {
            piecewise: true,
            count,
            ..CopyProgress::default()
        }
    }

    /// Returns the number of bytes to be copied.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of bytes copied so far.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn is_done(&self) -> bool {
        self.done == self.count
    }
}
