//! State of a replication destination: the progress of its transfer, and the data received since
//! the last checkpoint.

use std::time::Duration;

use weir_base::{Time, less};
use weir_store::Frame;
use weir_store::node::Key;
use weir_store::tree::Edit;

use crate::format::catalog::MirrorRec;
use crate::format::content::ContentHash;
use crate::overlay::delta::Charge;
use crate::types::FsError;
use weir_base::SnapshotIdentity;

/// Description of a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferHeader {
    /// Base of the difference; `None`: the transfer is complete by itself.
    pub base: Option<SnapshotIdentity>,
    /// The snapshot that is transferred.
    pub target: SnapshotIdentity,
    /// Name of the snapshot.
    pub name: String,
    /// Label of the snapshot; may be empty.
    pub label: String,
    /// Time of the snapshot's creation.
    pub created: Time,
    /// Inode number after the last one used: lower numbers existed, unless removed.
    pub next_ino: u64,
    /// The key of the source's directory hash.
    pub key: (u64, u64),
}

/// Changed blocks of a window of a file.
pub(crate) struct ChangedWindow {
    pub(crate) key: Key,
    /// Blocks that are holes now, one bit each.
    pub(crate) holes: u32,
    /// Number of the batch's pages that belong to the window; pages are stored in the windows'
    /// order.
    pub(crate) pages: usize,
}

/// Data received since the last checkpoint began.
#[derive(Default)]
pub(crate) struct Batch {
    /// Records in the order of their keys, like the windows.
    pub(crate) records: Vec<Edit>,
    pub(crate) windows: Vec<ChangedWindow>,
    /// Pages, each with its block's place in its window.
    pub(crate) pages: Vec<(u8, Frame)>,
    pub(crate) charge: Charge,
    /// Memory of the batch in bytes.
    pub(crate) bytes: u64,
    /// The snapshot and the hash of its contents, once the transfer is complete.
    pub(crate) arriving: Option<(TransferHeader, ContentHash)>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.windows.is_empty() && self.arriving.is_none()
    }

    /// Appends further data. Its first window may be the batch's last one: a frame had no room for
    /// the rest of it, or a sender begins again with it.
    fn append(&mut self, more: &mut Batch) {
        self.records.append(&mut more.records);
        let mut pages = std::mem::take(&mut more.pages);
        let mut windows = more.windows.drain(..).peekable();
        if let Some(first) = windows.peek()
            && let Some(last) = self.windows.last_mut()
            && last.key == first.key
        {
            let rest = pages.split_off(first.pages.min(pages.len()));
            let begin = less(self.pages.len(), last.pages, "pages of a batch");
            let mut own = self.pages.split_off(begin);
            let again = |at: u8| pages.iter().any(|(b, _)| *b == at) || first.holes >> at & 1 == 1;
            own.retain(|(at, _)| !again(*at));
            let filled = pages.iter().fold(0u32, |mask, (at, _)| mask | 1 << at);
            last.holes = last.holes & !filled | first.holes;
            own.append(&mut pages);
            last.pages = own.len();
            self.pages.append(&mut own);
            pages = rest;
            windows.next();
        }
        self.windows.extend(windows);
        self.pages.append(&mut pages);
        self.bytes += std::mem::take(&mut more.bytes);
        let charge = std::mem::take(&mut more.charge);
        self.charge.blocks += charge.blocks;
        self.charge.unreserved += charge.unreserved;
        self.charge.pages += charge.pages;
        self.charge.heap += charge.heap;
    }
}

/// State of a volume as a destination.
#[derive(Default)]
pub(crate) struct DestinationState {
    /// Record with everything received; `None`: the volume is not a destination.
    pub(crate) rec: Option<MirrorRec>,
    pub(crate) batch: Batch,
    /// Time at which the batch was begun.
    since: Option<Duration>,
    /// Bytes that a checkpoint is merging.
    in_flight: u64,
    /// Bytes of the transfer that are in the last checkpoint.
    durable: u64,
    /// True while a transfer is being received.
    running: bool,
    /// True if the next checkpoint makes the volume an ordinary one.
    pub(crate) ending: bool,
}

/// The part of the state that a checkpoint takes.
pub(crate) struct TakenBatch {
    pub(crate) batch: Batch,
    /// Record of the volume at that moment.
    pub(crate) rec: Option<MirrorRec>,
    /// The snapshot to be made: identity, place and name.
    pub(crate) arrived: Option<(u32, u32, String)>,
    /// True if the volume is no longer a destination.
    pub(crate) ended: bool,
}

impl DestinationState {
    /// Creates the state from the stored record.
    pub(crate) fn new(rec: Option<MirrorRec>) -> DestinationState {
        DestinationState {
            rec,
            ..DestinationState::default()
        }
    }

    /// Refuses with `Busy` while a transfer is being received.
    pub(crate) fn idle(&self) -> Result<(), FsError> {
        match self.running {
            true => Err(FsError::Busy),
            false => Ok(()),
        }
    }

    /// Refuses unless the tree is the exported snapshot: with `Busy`, and with `Invalid` if there
    /// is none.
    pub(crate) fn complete(&self) -> Result<(), FsError> {
        self.idle()?;
        match self.rec {
            Some(rec) if rec.transfer.is_some() => Err(FsError::Busy),
            Some(rec) if rec.exported != 0 => Ok(()),
            _ => Err(FsError::Invalid),
        }
    }

    /// Begins to receive; `logical` bytes of the transfer have come before.
    pub(crate) fn begin(&mut self, logical: u64) {
        if self.batch.is_empty() {
            self.durable = logical;
        }
        self.running = true;
    }

    /// Ends the receiving, complete or interrupted.
    pub(crate) fn end(&mut self) {
        self.running = false;
    }

    /// Returns the bytes of the transfer that are in the last checkpoint.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns the time at which the batch was begun, unless it is empty.
    pub(crate) fn since(&self) -> Option<Duration> {
        self.since
    }

    /// Adds data received until `now`. Returns the bytes of the batch, and those that a checkpoint
    /// is merging.
    pub(crate) fn add(&mut self, more: &mut Batch, now: Duration) -> (u64, u64) {
        self.batch.append(more);
        self.since.get_or_insert(now);
        (self.batch.bytes, self.in_flight)
    }

    /// Drops the batch and returns it.
    pub(crate) fn drop_batch(&mut self) -> Batch {
        self.since = None;
        std::mem::take(&mut self.batch)
    }

    /// Takes the batch for a checkpoint that begins. Returns true if it makes the volume an
    /// ordinary one.
    pub(crate) fn take(&mut self) -> (Batch, bool) {
        let batch = self.drop_batch();
        self.in_flight = batch.bytes;
        (batch, std::mem::take(&mut self.ending))
    }

    /// Notes that the checkpoint is durable.
    pub(crate) fn merged(&mut self, taken: &TakenBatch) {
        self.in_flight = 0;
        if let Some(transfer) = taken.rec.and_then(|rec| rec.transfer) {
            self.durable = transfer.logical;
        }
        if taken.arrived.is_some() {
            self.rec = taken.rec;
        }
    }
}
