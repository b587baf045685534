//! The change stream: every change in order, for a partner that keeps a second copy of the
//! aggregate (a synchronous pair).
//!
//! The log alone is not enough for that. Some changes are not logged, since a checkpoint makes them
//! durable: unstable writes, and operations on volumes as a whole. A snapshot contains the former
//! and depends on the latter, so a partner with the log's records alone would have different
//! snapshots. So the stream is a superset of the log. Each record that is
//! [appended](super::Log::append) is an *entry* of it, and so is each change that is
//! [shipped](super::Log::ship) without being logged.
//!
//! **Order.** Entries get consecutive numbers under the lock under which records get their LSNs. A
//! change is shipped under the locks that order it against records (an inode's, a volume's). So a
//! partner that applies entries in the order of their numbers passes only through states that this
//! side had.
//!
//! **Durable on both sides.** While a stream is attached, [`super::Log::durable`] is the lesser of
//! the last record written here and the last one acknowledged by the partner. A waiter for a record
//! does not notice the difference. Both are awaited at the same time, so the cost is the greater of
//! the two, and per batch, not per record. The log's space and the blocks that checkpoints free
//! concern this side alone: they wait for [written records](super::Log::wait_written).
//!
//! **The window.** Entries stay until they are acknowledged, so that a broken connection can resume
//! at the partner's position; pages are kept by reference. The window is bounded: an operation
//! checks [`super::Log::stream_full`] *before* it changes anything and then waits, as for a full
//! log. So only the operations running at the moment can exceed the bound.
//!
//! **The end.** A [detached](super::Log::detach) stream delays nothing any more: a record on this
//! device is durable. The caller ensures that the partner can never be considered in sync after
//! that.
//!
//! **Following.** A partner in its initial sync or resync gets the same entries, but nothing waits
//! for it: the stream [follows](super::Log::attach_following). If the window fills up before the
//! partner has caught up, the stream is *overrun*. Its entries are gone, nothing was delayed, and
//! the partner needs another start. Once the partner is close enough the stream is
//! [joined](super::Log::join). If a partner is lost and may come back, the stream
//! [follows](super::Log::follow) again.
//!
//! Without a stream all this costs an appending thread one check of an `Option` under the lock that
//! it holds anyway.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;
use weir_base::{BLOCK_SIZE, Lsn};

use super::advance::{Advances, InAdvance};
use super::batch::Record;
use crate::block::page_crc;
use crate::frame::Frame;

/// Number of an entry in the stream of an aggregate's changes. Consecutive, and never reused within
/// one term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Returns the next number.
    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

/// One change in the stream.
#[derive(Debug)]
pub struct Entry {
    /// Number of the entry.
    pub sequence: Sequence,
    /// The edits, in the appender's encoding.
    pub meta: Vec<u8>,
    /// Payload pages.
    pub pages: SmallVec<[Frame; 2]>,
    /// Checksums of the pages (CRC32C), in order.
    pub sums: SmallVec<[u32; 2]>,
    /// Pages of the entry that may have been sent before it.
    pub advance: Option<InAdvance>,
    /// The last record of the log up to this entry.
    pub(super) lsn: Lsn,
}

/// Bytes that an entry takes in the window besides meta and pages.
const ENTRY_BYTES: usize = 160;

impl Entry {
    /// Returns the number of bytes that the entry takes in the window.
    #[must_use]
    pub fn weight(&self) -> i64 {
        (ENTRY_BYTES + self.meta.len() + self.pages.len() * BLOCK_SIZE) as i64
    }
}

/// A record with the checksums of its pages.
pub(super) struct ChecksummedRecord {
    pub(super) record: Record,
    pub(super) sums: SmallVec<[u32; 2]>,
    pub(super) advance: Option<InAdvance>,
}

impl ChecksummedRecord {
    pub(super) fn new(record: Record) -> ChecksummedRecord {
        let sums = record.pages.iter().map(|page| page_crc(page)).collect();
        ChecksummedRecord {
            record,
            sums,
            advance: None,
        }
    }
}

/// Entries that the partner has not acknowledged.
#[derive(Default)]
pub(super) struct Window {
    pub(super) entries: VecDeque<Arc<Entry>>,
    /// Number of the last entry.
    pub(super) last: Sequence,
    pub(super) acknowledged: Sequence,
    /// The last record of the log up to the acknowledged entry.
    pub(super) acknowledged_lsn: Lsn,
    pub(super) detached: bool,
    /// True while nothing waits for the partner.
    pub(super) following: bool,
    /// True if entries were dropped that the partner does not have. Only while following.
    pub(super) overrun: bool,
    /// Bytes that the entries take, and their limit.
    pub(super) held: i64,
    pub(super) limit: i64,
}

/// The stream of a log's changes from its [attaching](super::Log::attach) on.
///
/// Its lock is taken after that of the log's queue.
pub struct ChangeStream {
    pub(super) window: Mutex<Window>,
    pub(super) advances: Advances,
    /// True while the sender has sent everything and has to be woken.
    pub(super) idle: AtomicBool,
    pub(super) wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The error for an acknowledgement of an entry that was never shipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotShipped;

impl std::fmt::Display for NotShipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the partner acknowledges what it was never sent")
    }
}

impl std::error::Error for NotShipped {}

impl ChangeStream {
    /// Returns the entry after `sequence`; `None` if it does not exist yet, or was acknowledged
    /// already.
    pub fn after(&self, sequence: Sequence) -> Option<Arc<Entry>> {
        let window = self.window.lock();
        let first = window.entries.front()?.sequence;
        let at = sequence.next().0.checked_sub(first.0)?;
        window.entries.get(usize::try_from(at).ok()?).cloned()
    }

    /// Returns the last entry; for a stream without any, the one after which it began.
    pub fn last(&self) -> Sequence {
        self.window.lock().last
    }

    /// Returns the last entry that the partner has acknowledged.
    pub fn acknowledged(&self) -> Sequence {
        self.window.lock().acknowledged
    }

    /// Returns the last record of the log up to the last acknowledged entry.
    pub fn acknowledged_record(&self) -> Lsn {
        self.window.lock().acknowledged_lsn
    }

    /// Returns true if the stream has lost entries that the partner does not have: it is useless
    /// from then on.
    pub fn is_overrun(&self) -> bool {
        self.window.lock().overrun
    }

    /// Returns the bytes of unacknowledged entries.
    pub fn held(&self) -> u64 {
        self.window.lock().held.unsigned_abs()
    }

    /// Sets the callback that wakes the sender. It must not block. Only the first call counts.
    pub fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Later calls have no effect.
        let _ = self.wake.set(wake);
    }

    /// Notes that the sender has sent all entries that it found. The sender calls this before its
    /// last look, and is then woken once.
    pub fn rest(&self) {
        self.idle.store(true, Ordering::SeqCst);
    }

    /// Returns true if the sender sleeps. Call it after adding an entry: a sender that does not see
    /// that entry sleeps by then.
    pub(super) fn rests(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    /// Wakes the sender if it sleeps.
    pub(super) fn ring(&self) {
        if self.idle.swap(false, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Returns true if nothing waits for this stream any more.
    pub fn is_detached(&self) -> bool {
        self.window.lock().detached
    }

    pub(super) fn advances(&self) -> &Advances {
        &self.advances
    }

    /// Adds an entry; the caller holds the queue's lock. Returns the room that the entry takes, for
    /// which operations wait.
    pub(super) fn push(&self, summed: ChecksummedRecord, lsn: Lsn) -> i64 {
        let mut window = self.window.lock();
        let sequence = window.last.next();
        window.last = sequence;
        let ChecksummedRecord {
            record,
            sums,
            advance,
        } = summed;
        let entry = Entry {
            sequence,
            meta: record.meta,
            pages: record.pages,
            sums,
            advance,
            lsn,
        };
        let weight = entry.weight();
        if window.following && window.held + weight > window.limit {
            window.overrun = true;
            window.entries.clear();
            window.held = 0;
        }
        if window.overrun {
            return 0;
        }
        window.held += weight;
        window.entries.push_back(Arc::new(entry));
        if window.following { 0 } else { weight }
    }
}

impl std::fmt::Debug for ChangeStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let w = self.window.lock();
        write!(f, "ChangeStream({:?} of {:?})", w.acknowledged, w.last)
    }
}

/// Value of the window's room without a stream.
pub(super) const NO_STREAM: i64 = i64::MAX;

#[cfg(test)]
mod tests;
