//! Records, and the batches that one write carries.

use super::format::HEAD;
use super::position::LogPos;
use crate::frame::Frame;
use smallvec::SmallVec;
use weir_base::{BLOCK_SIZE, Lsn};

/// A record to append: opaque bytes, and whole pages by reference.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The edits, in the caller's encoding.
    pub meta: Vec<u8>,
    /// Payload pages; the log checksums them itself.
    pub pages: SmallVec<[Frame; 2]>,
}

/// Records that one write carries, laid out as they are written except for the head.
///
/// The appending thread lays its record out and computes the checksums of its pages. The only log
/// thread writes nothing while it computes. The thread that allocated a record's memory also frees
/// it.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) pos: LogPos,
    pub(super) prev_end: LogPos,
    pub(super) first: Lsn,
    pub(super) records: u32,
    /// Lengths and meta of each record.
    pub(super) body: Vec<u8>,
    /// Checksums of the pages, which follow the body.
    pub(super) sums: Vec<u8>,
    pub(super) frames: Vec<Frame>,
}

pub(super) fn blocks_of(meta_bytes: usize, pages: usize) -> u64 {
    (meta_bytes.div_ceil(BLOCK_SIZE) + pages) as u64
}

impl Batch {
    /// Returns the length of head and body in bytes.
    pub(super) fn meta_bytes(&self) -> usize {
        HEAD + self.body.len() + self.sums.len()
    }

    pub(super) fn end(&self) -> LogPos {
        LogPos(self.pos.0 + blocks_of(self.meta_bytes(), self.frames.len()))
    }

    pub(super) fn push(&mut self, meta: &[u8], pages: SmallVec<[Frame; 2]>, sums: &[u32]) {
        self.records += 1;
        self.body.extend((meta.len() as u32).to_le_bytes());
        self.body.extend((pages.len() as u32).to_le_bytes());
        self.body.extend(meta);
        for sum in sums {
            self.sums.extend(sum.to_le_bytes());
        }
        self.frames.extend(pages);
    }

    /// Returns an empty batch with the buffers of this one.
    pub(super) fn emptied(mut self) -> Batch {
        self.body.clear();
        self.sums.clear();
        self.frames.clear();
        Batch {
            body: self.body,
            sums: self.sums,
            frames: self.frames,
            ..Batch::default()
        }
    }
}
