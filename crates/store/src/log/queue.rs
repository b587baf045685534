//! Queue of what was appended and not yet written.

use super::batch::Batch;
use super::format::Ring;
use super::position::LogPos;
use super::stream::ChangeStream;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_base::Lsn;

/// Positions and queue, protected by the append lock.
pub(super) struct Queue {
    /// Batch that collects records. It has a position once it has a record.
    pub(super) open: Batch,
    /// Closed batches in order, not yet taken by the log thread.
    pub(super) closed: VecDeque<Batch>,
    /// The LSN of the next record.
    pub(super) next: Lsn,
    /// End of the last closed batch, written or not.
    pub(super) end: LogPos,
    /// Position before which space may be overwritten.
    pub(super) released: LogPos,
    /// Emptied batch, reused as the next open one.
    pub(super) spare: Batch,
    /// True while the log thread waits for work.
    pub(super) idle: bool,
    pub(super) stop: bool,
    /// Stream that receives every change as well, if one is attached.
    pub(super) stream: Option<Arc<ChangeStream>>,
}

impl Queue {
    pub(super) fn close(&mut self) {
        if self.open.records == 0 {
            return;
        }
        self.end = self.open.end();
        let next = std::mem::take(&mut self.spare);
        self.closed
            .push_back(std::mem::replace(&mut self.open, next));
    }

    /// Returns true, once, if the log's thread has to be woken for the queued records.
    pub(super) fn finds_writer_asleep(&mut self) -> bool {
        (self.open.records > 0 || !self.closed.is_empty()) && std::mem::take(&mut self.idle)
    }

    /// Returns the end of the log if the open batch were closed now.
    pub(super) fn open_end(&self) -> LogPos {
        if self.open.records == 0 {
            self.end
        } else {
            self.open.end()
        }
    }

    /// Returns the position of a new batch of `blocks`.
    pub(super) fn place(&self, ring: &Ring, blocks: u64) -> LogPos {
        if blocks <= ring.left_in_segment(self.end) {
            self.end
        } else {
            ring.next_segment(self.end)
        }
    }

    /// Returns the LSN of the last record; 0 if there is none.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.next.0 - 1)
    }
}
