//! What a volume is as the destination of a transfer: how far that has come, and what was received since the last checkpoint.

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

/// What a transfer brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// What it is the difference to; `None`: nothing.
    pub base: Option<SnapshotIdentity>,
    /// The snapshot that the transfer brings.
    pub target: SnapshotIdentity,
    /// The name that the snapshot gets.
    pub name: String,
    /// Its label; empty: none.
    pub label: String,
    /// When it was made.
    pub created: Time,
    /// Inodes with lower numbers were there, unless they had been removed.
    pub next_ino: u64,
    /// The key of the source's directory hash.
    pub key: (u64, u64),
}

/// Blocks of a window of a file that have changed.
pub(crate) struct Changed {
    pub(crate) key: Key,
    /// Blocks that are holes now.
    pub(crate) holes: u32,
    /// How many of the batch's pages are the window's; pages are stored in the windows' order.
    pub(crate) pages: usize,
}

/// What was received since the last checkpoint began.
#[derive(Default)]
pub(crate) struct Batch {
    /// In the order of their keys, as the windows.
    pub(crate) records: Vec<Edit>,
    pub(crate) windows: Vec<Changed>,
    /// With the block's place in its window.
    pub(crate) pages: Vec<(u8, Frame)>,
    pub(crate) charge: Charge,
    /// What it takes in memory.
    pub(crate) bytes: u64,
    /// The transfer has ended: this is the snapshot, and the hash of its contents.
    pub(crate) arriving: Option<(Incoming, ContentHash)>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.windows.is_empty() && self.arriving.is_none()
    }

    /// Takes in what follows. The first window may be one that the batch ends with: a frame had no
    /// room for the rest of it, or a sender begins again with it.
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

/// What a volume is as a destination.
#[derive(Default)]
pub(crate) struct Receiving {
    /// With all that was received; `None`: it is none.
    pub(crate) rec: Option<MirrorRec>,
    pub(crate) batch: Batch,
    /// When the batch was begun.
    since: Option<Duration>,
    /// Bytes that a checkpoint is merging.
    in_flight: u64,
    /// Of the transfer's bytes, those that the last checkpoint has.
    durable: u64,
    /// A transfer is being received.
    running: bool,
    /// The next checkpoint makes it none.
    pub(crate) ending: bool,
}

/// What a checkpoint takes of it.
pub(crate) struct TakenBatch {
    pub(crate) batch: Batch,
    /// What the volume is as of then.
    pub(crate) rec: Option<MirrorRec>,
    /// The snapshot that is to be made: identity and name.
    pub(crate) arrived: Option<(u32, u32, String)>,
    /// It is no destination any more.
    pub(crate) ended: bool,
}

impl Receiving {
    /// As it is stored.
    pub(crate) fn new(rec: Option<MirrorRec>) -> Receiving {
        Receiving {
            rec,
            ..Receiving::default()
        }
    }

    /// Refuses what is impossible while a transfer is being received: `Busy`.
    pub(crate) fn idle(&self) -> Result<(), FsError> {
        match self.running {
            true => Err(FsError::Busy),
            false => Ok(()),
        }
    }

    /// Refuses what is impossible unless the tree is what clients see: `Busy`, and `Invalid` while that is nothing.
    pub(crate) fn complete(&self) -> Result<(), FsError> {
        self.idle()?;
        match self.rec {
            Some(rec) if rec.transfer.is_some() => Err(FsError::Busy),
            Some(rec) if rec.exported != 0 => Ok(()),
            _ => Err(FsError::Invalid),
        }
    }

    /// Begins to receive; `logical` of the transfer's bytes have come before.
    pub(crate) fn begin(&mut self, logical: u64) {
        if self.batch.is_empty() {
            self.durable = logical;
        }
        self.running = true;
    }

    /// The transfer has ended, or was cut short.
    pub(crate) fn end(&mut self) {
        self.running = false;
    }

    /// Of the transfer's bytes, those that the last checkpoint has.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// When the batch was begun, if anything is in it.
    pub(crate) fn since(&self) -> Option<Duration> {
        self.since
    }

    /// Takes in what was received until `now`; returns the bytes of the batch, and those that a checkpoint is merging.
    pub(crate) fn add(&mut self, more: &mut Batch, now: Duration) -> (u64, u64) {
        self.batch.append(more);
        self.since.get_or_insert(now);
        (self.batch.bytes, self.in_flight)
    }

    /// Gives up the batch.
    pub(crate) fn drop_batch(&mut self) -> Batch {
        self.since = None;
        std::mem::take(&mut self.batch)
    }

    /// A checkpoint begins, which merges the batch; whether it makes the volume no destination.
    pub(crate) fn take(&mut self) -> (Batch, bool) {
        let batch = self.drop_batch();
        self.in_flight = batch.bytes;
        (batch, std::mem::take(&mut self.ending))
    }

    /// The checkpoint is durable.
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
