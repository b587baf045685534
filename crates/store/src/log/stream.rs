//! The change stream: every change in order, for a partner that keeps a second copy of the
//! aggregate (a synchronous pair).
//!
//! The log alone is not enough for that. Some changes are not logged, since a checkpoint makes them
//! durable: unstable writes, and operations on volumes as a whole. A snapshot contains the former
//! and depends on the latter, so a partner with the log's records alone would have different
//! snapshots. So the stream is a superset of the log. Each record that is [appended](Log::append)
//! is an *entry* of it, and so is each change that is [shipped](Log::ship) without being logged.
//!
//! **Order.** Entries get consecutive numbers under the lock under which records get their LSNs. A
//! change is shipped under the locks that order it against records (an inode's, a volume's). So a
//! partner that applies entries in the order of their numbers passes only through states that this
//! side had.
//!
//! **Durable on both sides.** While a stream is attached, [`Log::durable`] is the lesser of the
//! last record written here and the last one acknowledged by the partner. A waiter for a record
//! does not notice the difference. Both are awaited at the same time, so the cost is the greater of
//! the two, and per batch, not per record. The log's space and the blocks that checkpoints free
//! concern this side alone: they wait for [written records](Log::wait_written).
//!
//! **The window.** Entries stay until they are acknowledged, so that a broken connection can resume
//! at the partner's position; pages are kept by reference. The window is bounded: an operation
//! checks [`Log::stream_full`] *before* it changes anything and then waits, as for a full log. So
//! only the operations running at the moment can exceed the bound.
//!
//! **The end.** A [detached](Log::detach) stream delays nothing any more: a record on this device
//! is durable. The caller ensures that the partner can never be considered in sync after that.
//!
//! **Following.** A partner in its initial sync or resync gets the same entries, but nothing waits
//! for it: the stream [follows](Log::attach_following). If the window fills up before the partner
//! has caught up, the stream is *overrun*. Its entries are gone, nothing was delayed, and the
//! partner needs another start. Once the partner is close enough the stream is [joined](Log::join).
//! If a partner is lost and may come back, the stream [follows](Log::follow) again.
//!
//! Without a stream all this costs an appending thread one check of an `Option` under the lock that
//! it holds anyway.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;
use weir_base::latency::Latencies;
use weir_base::{BLOCK_SIZE, Clock, Lsn};

use super::advance::{Advances, InAdvance};
use super::{AppendError, Log, LogWrites, PartnerCost, Poisoned, Queue, Record, Shared};
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
    lsn: Lsn,
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
pub(super) struct Summed {
    pub(super) record: Record,
    pub(super) sums: SmallVec<[u32; 2]>,
    pub(super) advance: Option<InAdvance>,
}

impl Summed {
    pub(super) fn new(record: Record) -> Summed {
        let sums = record.pages.iter().map(|page| page_crc(page)).collect();
        Summed {
            record,
            sums,
            advance: None,
        }
    }
}

/// Entries that the partner has not acknowledged.
#[derive(Default)]
struct Window {
    entries: VecDeque<Arc<Entry>>,
    /// Number of the last entry.
    last: Sequence,
    acknowledged: Sequence,
    /// The last record of the log up to the acknowledged entry.
    acknowledged_lsn: Lsn,
    detached: bool,
    /// True while nothing waits for the partner.
    following: bool,
    /// True if entries were dropped that the partner does not have. Only while following.
    overrun: bool,
    /// Bytes that the entries take, and their limit.
    held: i64,
    limit: i64,
}

/// The stream of a log's changes from its [attaching](Log::attach) on.
///
/// Its lock is taken after that of the log's queue.
pub struct ChangeStream {
    window: Mutex<Window>,
    advances: Advances,
    /// True while the sender has sent everything and has to be woken.
    idle: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
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
    fn push(&self, summed: Summed, lsn: Lsn) -> i64 {
        let mut window = self.window.lock();
        let sequence = window.last.next();
        window.last = sequence;
        let Summed {
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

impl Shared {
    /// Makes an entry of the record with LSN `lsn`, or of a change shipped right after it.
    pub(super) fn push(&self, stream: &ChangeStream, summed: Summed, lsn: Lsn) {
        let weight = stream.push(summed, lsn);
        self.stream_room.fetch_sub(weight, Ordering::Relaxed);
    }
}

impl Queue {
    /// Returns the LSN of the last record; 0 if there is none.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.next.0 - 1)
    }
}

impl Log {
    /// Attaches a stream: each further change is an entry of it, the first with the number after
    /// `from`, and nothing is durable without the partner's acknowledgement. Earlier records are
    /// not in it: the partner has them. `window`: bytes that entries may take. Returns `None` if a
    /// stream is attached already.
    ///
    /// The caller prevents concurrent changes; otherwise half of an operation may be missing from
    /// the stream.
    pub fn attach(&self, from: Sequence, window: u32) -> Option<Arc<ChangeStream>> {
        self.attach_as(from, window, false)
    }

    /// Like [`Log::attach`], but nothing waits for the partner until it is [joined](Log::join).
    pub fn attach_following(&self, from: Sequence, window: u32) -> Option<Arc<ChangeStream>> {
        self.attach_as(from, window, true)
    }

    fn attach_as(&self, from: Sequence, window: u32, following: bool) -> Option<Arc<ChangeStream>> {
        let s = &*self.shared;
        let mut q = s.queue.lock();
        if q.stream.is_some() {
            return None;
        }
        let stream = Arc::new(ChangeStream {
            window: Mutex::new(Window {
                last: from,
                acknowledged: from,
                acknowledged_lsn: q.last(),
                following,
                limit: i64::from(window),
                ..Window::default()
            }),
            advances: Advances::default(),
            idle: AtomicBool::new(false),
            wake: OnceLock::new(),
        });
        if !following {
            s.progress.mirror(Some(q.last()));
            s.stream_room.store(i64::from(window), Ordering::Relaxed);
        }
        s.ships.store(true, Ordering::Relaxed);
        q.stream = Some(Arc::clone(&stream));
        Some(stream)
    }

    /// Joins the stream: from now on nothing is durable without the partner's acknowledgement;
    /// earlier durable records stay durable. Returns false for a detached or overrun stream.
    pub fn join(&self, stream: &ChangeStream) -> bool {
        let s = &*self.shared;
        // Holding the queue's lock prevents pushes.
        let _q = s.queue.lock();
        let mut window = stream.window.lock();
        if window.detached || window.overrun {
            return false;
        }
        if window.following {
            window.following = false;
            let room = window.limit - window.held;
            s.stream_room.store(room, Ordering::Relaxed);
            s.progress.mirror(Some(window.acknowledged_lsn));
        }
        true
    }

    /// Makes the stream follow: nothing waits for the partner until it is [joined](Log::join)
    /// again, and entries stay for it while there is room. Written records whose waiters waited for
    /// the partner are durable at once. The caller ensures that the partner is not considered in
    /// sync meanwhile.
    pub fn follow(&self, stream: &ChangeStream) {
        let s = &*self.shared;
        // Holding the queue's lock prevents pushes.
        let q = s.queue.lock();
        let mut window = stream.window.lock();
        if window.detached || window.following {
            return;
        }
        window.following = true;
        let mut gone = VecDeque::new();
        if window.held > window.limit {
            window.overrun = true;
            window.held = 0;
            gone = std::mem::take(&mut window.entries);
        }
        s.stream_room.store(NO_STREAM, Ordering::Relaxed);
        s.progress.mirror(None);
        drop(window);
        drop(q);
        drop(gone);
    }

    /// Detaches the stream, if there is one: nothing waits for the partner any more. Written
    /// records whose waiters waited for the partner are durable at once.
    pub fn detach(&self) {
        let s = &*self.shared;
        let Some(stream) = s.queue.lock().stream.take() else {
            // There is no stream.
            return;
        };
        let mut window = stream.window.lock();
        s.ships.store(false, Ordering::Relaxed);
        s.stream_room.store(NO_STREAM, Ordering::Relaxed);
        window.detached = true;
        // Under the lock under which acknowledgements change it.
        s.progress.mirror(None);
        let entries = std::mem::take(&mut window.entries);
        drop(window);
        drop(entries);
    }

    /// Notes that the partner has everything up to `sequence`. A detached stream's partner is not
    /// waited for.
    ///
    /// # Errors
    /// [`NotShipped`] if there is no such entry.
    pub fn acknowledge(&self, stream: &ChangeStream, sequence: Sequence) -> Result<(), NotShipped> {
        let s = &*self.shared;
        let mut window = stream.window.lock();
        if sequence > window.last {
            return Err(NotShipped);
        }
        if window.detached || window.overrun || sequence <= window.acknowledged {
            return Ok(());
        }
        let count = (sequence.0 - window.acknowledged.0) as usize;
        window.acknowledged = sequence;
        let gone: Vec<Arc<Entry>> = window.entries.drain(..count).collect();
        let weight = gone.iter().map(|entry| entry.weight()).sum();
        window.held -= weight;
        if let Some(last) = gone.last() {
            window.acknowledged_lsn = last.lsn;
        }
        if !window.following {
            s.stream_room.fetch_add(weight, Ordering::Relaxed);
            s.progress.mirror(Some(window.acknowledged_lsn));
        }
        drop(window);
        // Dropped outside the lock: these may be the last references to the pages.
        drop(gone);
        Ok(())
    }

    /// Makes an entry of a change that is not logged. Does nothing without a stream.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`]; [`AppendError::TooLarge`] for a change that would also be too
    /// large for a record.
    pub fn ship(&self, record: Record) -> Result<(), AppendError> {
        let s = &*self.shared;
        if let Some(why) = s.progress.guard().why() {
            return Err(AppendError::Poisoned(Poisoned(Arc::clone(why))));
        }
        if !self.fits(record.meta.len(), record.pages.len()) {
            return Err(AppendError::TooLarge);
        }
        let summed = Summed::new(record);
        let mut q = s.queue.lock();
        if let Some(stream) = &q.stream {
            s.push(stream, summed, q.last());
            let (writer, sender) = s.owes(&mut q);
            drop(q);
            s.wake(writer, sender.as_deref());
        }
        Ok(())
    }

    /// Like [`Log::append`], but the stream gets `shipped` in place of `record`; it has the same
    /// effect on the partner. `advance` names those of its pages that may have been [sent
    /// before](Log::advance).
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_as(
        &self,
        record: Record,
        shipped: Record,
        advance: Option<InAdvance>,
    ) -> Result<Lsn, AppendError> {
        if !self.fits(shipped.meta.len(), shipped.pages.len()) {
            return Err(AppendError::TooLarge);
        }
        let shipped = Summed::new(shipped);
        self.append_in(record, Some(Summed { advance, ..shipped }))
    }

    pub(super) fn stream(&self) -> Option<Arc<ChangeStream>> {
        self.shared.queue.lock().stream.clone()
    }

    /// Returns true if a stream is attached. Reliable only if the caller prevents streams from
    /// being attached.
    pub fn ships(&self) -> bool {
        self.shared.ships.load(Ordering::Relaxed)
    }

    /// Returns the last entry of the stream, if one is attached.
    pub fn streamed(&self) -> Option<Sequence> {
        let q = self.shared.queue.lock();
        q.stream.as_ref().map(|stream| stream.last())
    }

    /// Returns the last entry that the partner has acknowledged, if there is a stream whose partner
    /// is waited for.
    pub fn acknowledged(&self) -> Option<Sequence> {
        let q = self.shared.queue.lock();
        let window = q.stream.as_ref()?.window.lock();
        (!window.following).then_some(window.acknowledged)
    }

    /// Returns true if the window is full: nothing may be changed before the partner has
    /// acknowledged more.
    pub fn stream_full(&self) -> bool {
        self.shared.stream_room.load(Ordering::Relaxed) <= 0
    }

    /// Starts measuring [`Log::partner_cost`] with this clock.
    pub fn measure_partner(&self, clock: Arc<dyn Clock>) {
        self.shared.progress.measure(clock);
    }

    /// Returns the writes of this side's device and their times; nothing unless they are
    /// [measured](Log::measure_partner).
    pub fn writes(&self) -> LogWrites {
        self.shared.progress.meter().writes()
    }

    /// Returns the latencies of the writes to this side's device, of a batch each; nothing unless
    /// they are [measured](Log::measure_partner).
    pub fn latencies(&self) -> Latencies {
        self.shared.progress.meter().latencies()
    }

    /// Returns the cost of waiting for the partner in the last minute; nothing unless it is
    /// [measured](Log::measure_partner).
    pub fn partner_cost(&self) -> PartnerCost {
        self.shared.progress.cost()
    }

    /// Returns the last record written to this side's device, whatever the partner has.
    pub fn written(&self) -> Lsn {
        self.shared.progress.written()
    }

    /// Blocks until the record is written to this side's device, whatever the partner has.
    ///
    /// # Errors
    /// [`Poisoned`] if it never will be.
    pub fn wait_written(&self, lsn: Lsn) -> Result<(), Poisoned> {
        self.shared.gathered();
        self.shared.progress.wait_written(lsn)
    }
}
