//! Progress of a COPY, which is kept while it is suspended.

use weir_vfs::volume::ReadOut;

/// Bytes that a request copies at most, unless they are shared or of holes.
pub(super) const MOST: u64 = 4 << 20;

/// How far a COPY has come.
#[derive(Default)]
pub(super) struct Copying {
    /// The blocks cannot be shared.
    pub(super) piecewise: bool,
    /// Bytes to be copied by this request.
    pub(super) count: u64,
    pub(super) done: u64,
    /// Bytes that this request has moved.
    pub(super) moved: u64,
    pub(super) next: Next,
}

/// What comes next of a source.
#[derive(Default)]
pub(super) enum Next {
    #[default]
    Unknown,
    /// Data begins here.
    Data,
    /// A hole of so many bytes.
    Hole(u64),
    /// What was read, and is written from its given byte on.
    Read(Box<ReadOut>, usize),
}

impl Copying {
    /// Whether it is more than one request copies, and has not begun.
    pub(super) fn is_long(&self) -> bool {
        self.count > MOST && self.done == 0 && matches!(self.next, Next::Unknown)
    }

    /// One of `count` bytes, which are read and written.
    pub(super) fn in_pieces(count: u64) -> Copying {
        Copying {
            piecewise: true,
            count,
            ..Copying::default()
        }
    }

    /// Bytes to be copied.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes that were copied.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn is_done(&self) -> bool {
        self.done == self.count
    }
}
