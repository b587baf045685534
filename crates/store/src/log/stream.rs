//! The stream: every change in order, for a partner that keeps a second copy of the aggregate (a synchronous mirror).
//!
//! The log alone is not enough for that. Some changes are not logged, since a checkpoint makes them durable: data that was
//! written without stability, and what is done to volumes as a whole. A snapshot holds the first and depends on the second, so a partner that had the log's
//! records alone would hold other snapshots. So the stream is a superset of the log: each record that is
//! [appended](Log::append) is an *entry* of it, and so is what is [shipped](Log::ship) without being logged.
//!
//! **Order.** Entries get consecutive numbers under the lock under which records get their LSNs. What is shipped is shipped
//! under the locks that order it against records (an inode's, a volume's), so the partner who applies entries in the
//! order of their numbers has at each of them a state that this side had.
//!
//! **Durable on both sides.** While a stream is attached, [`Log::durable`] is the lesser of what the device has and of
//! the last record that the partner has acknowledged; nothing that waits for a record knows the difference.
//! Both are awaited at the same time, so what it costs is the greater of the two, and per batch, not per record.
//! The log's space and the blocks that checkpoints free stay the business of one side: those wait for
//! [what is written](Log::wait_written).
//!
//! **The window.** Entries stay until they are acknowledged, so that a connection that breaks can go on where the partner
//! is; pages are kept by reference. What they take is bounded: an operation checks [`Log::stream_full`] *before* it
//! changes anything and waits then, as for a full log. So the bound is exceeded by no more than the operations that run at the moment.
//!
//! **The end.** A stream that was [detached](Log::detach) holds nothing up any more: what the device has is durable. The
//! caller sees to it that the partner can never be taken for an equal after that.
//!
//! **Following.** A partner that is still being brought up to date gets the same entries, but nothing waits for it: the stream
//! [follows](Log::attach_following). If the window does not suffice until the partner is there, it is *overrun*:
//! the entries are gone, nobody has been held up, and the partner needs another beginning. Once it is close enough it is
//! [joined](Log::join). A partner that is lost and may come back is [followed](Log::follow) again.
//!
//! Without a stream all this costs an appending thread one check of an `Option` under the lock that it holds anyway.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;
use weir_base::{BLOCK_SIZE, Clock, Lsn};

use super::advance::{Advances, InAdvance};
use super::{AppendError, Log, LogWrites, PartnerCost, Poisoned, Queue, Record, Shared};
use crate::block::page_crc;
use crate::frame::Frame;

/// Number of an entry in the stream of an aggregate's changes. Consecutive, and never used twice in one term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The next one.
    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

/// One change.
#[derive(Debug)]
pub struct Entry {
    /// Its number.
    pub sequence: Sequence,
    /// The edits, in the appender's encoding.
    pub meta: Vec<u8>,
    /// Payload pages.
    pub pages: SmallVec<[Frame; 2]>,
    /// Their checksums (CRC32C), in order.
    pub sums: SmallVec<[u32; 2]>,
    /// Which of the pages may have been sent before.
    pub advance: Option<InAdvance>,
    /// The last record of the log up to here.
    lsn: Lsn,
}

/// What an entry takes of the window besides meta and pages, in bytes.
const ENTRY_BYTES: usize = 160;

impl Entry {
    /// Bytes that it takes of the window.
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
    /// The number of the last entry.
    last: Sequence,
    acknowledged: Sequence,
    /// The last record of the log up to the acknowledged entry.
    acknowledged_lsn: Lsn,
    detached: bool,
    /// Nothing waits for the partner.
    following: bool,
    /// Entries were dropped that the partner does not have. Only of one that follows.
    overrun: bool,
    /// Bytes that the entries take, and may take.
    held: i64,
    limit: i64,
}

/// The stream of a log's changes from when it was [attached](Log::attach) on.
///
/// Its lock is taken after that of the log's queue.
pub struct ChangeStream {
    window: Mutex<Window>,
    advances: Advances,
    /// The sender has sent everything, and is to be woken.
    idle: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// An acknowledgement of what was never shipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotShipped;

impl std::fmt::Display for NotShipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the partner acknowledges what it was never sent")
    }
}

impl std::error::Error for NotShipped {}

impl ChangeStream {
    /// The entry after `sequence`; `None`: there is none yet, or it was acknowledged already.
    pub fn after(&self, sequence: Sequence) -> Option<Arc<Entry>> {
        let window = self.window.lock();
        let first = window.entries.front()?.sequence;
        let at = sequence.next().0.checked_sub(first.0)?;
        window.entries.get(usize::try_from(at).ok()?).cloned()
    }

    /// The last entry; of a stream without any, the one after which it began.
    pub fn last(&self) -> Sequence {
        self.window.lock().last
    }

    /// The last entry that the partner has acknowledged.
    pub fn acknowledged(&self) -> Sequence {
        self.window.lock().acknowledged
    }

    /// The last record of the log up to the last entry that the partner has acknowledged.
    pub fn acknowledged_record(&self) -> Lsn {
        self.window.lock().acknowledged_lsn
    }

    /// Whether it has lost entries that the partner does not have: it is of no use any more.
    pub fn is_overrun(&self) -> bool {
        self.window.lock().overrun
    }

    /// Bytes of entries that are not acknowledged.
    pub fn held(&self) -> u64 {
        self.window.lock().held.unsigned_abs()
    }

    /// How the one who sends the entries is woken. Only the first counts. It must not block.
    pub fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Only the first counts.
        let _ = self.wake.set(wake);
    }

    /// The sender has sent all it has found. To be called before it looks for the last time; it is woken once.
    pub fn rest(&self) {
        self.idle.store(true, Ordering::SeqCst);
    }

    /// Whether the sender rests. To be read after an entry was added: the sender that does not see that entry rests by then.
    pub(super) fn rests(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    /// Wakes the sender if it rests.
    pub(super) fn ring(&self) {
        if self.idle.swap(false, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Whether nothing waits for this stream any more.
    pub fn is_detached(&self) -> bool {
        self.window.lock().detached
    }

    pub(super) fn advances(&self) -> &Advances {
        &self.advances
    }

    /// Adds an entry; the caller holds the queue's lock. Returns what it takes of the room for which operations wait.
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

/// The window's room where there is no stream.
pub(super) const NO_STREAM: i64 = i64::MAX;

impl Shared {
    /// Makes an entry of the record that has just got this LSN, or of what is as new as it.
    pub(super) fn push(&self, stream: &ChangeStream, summed: Summed, lsn: Lsn) {
        let weight = stream.push(summed, lsn);
        self.stream_room.fetch_sub(weight, Ordering::Relaxed);
    }
}

impl Queue {
    /// The LSN of the last record; 0: there is none.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.next.0 - 1)
    }
}

impl Log {
    /// From now on each change is an entry of a stream, the first with the number after `from`, and nothing is durable
    /// without the partner's acknowledgement. What was appended before is not: the partner has it. `window`: bytes that
    /// entries may take. `None` if there is a stream already.
    ///
    /// No other thread changes anything meanwhile, or it may be that half of what it does is in the stream.
    pub fn attach(&self, from: Sequence, window: u32) -> Option<Arc<ChangeStream>> {
        self.attach_as(from, window, false)
    }

    /// As [`Log::attach`], but nothing waits for the partner until it is [joined](Log::join).
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

    /// From now on nothing is durable without the partner's acknowledgement; what was before is. Returns whether it is so:
    /// not of a stream that is detached or overrun.
    pub fn join(&self, stream: &ChangeStream) -> bool {
        let s = &*self.shared;
        // Nothing is pushed meanwhile.
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

    /// Nothing waits for the partner any more until it is [joined](Log::join) again; entries stay for it while there is room. What
    /// waited and is written is durable at once. The caller sees to it that the partner is not taken for an equal meanwhile.
    pub fn follow(&self, stream: &ChangeStream) {
        let s = &*self.shared;
        // Nothing is pushed meanwhile.
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

    /// Ends the stream, if there is one: nothing waits for the partner any more. What waited and is written is
    /// durable at once.
    pub fn detach(&self) {
        let s = &*self.shared;
        let Some(stream) = s.queue.lock().stream.take() else {
            // Nobody is waited for.
            return;
        };
        let mut window = stream.window.lock();
        s.ships.store(false, Ordering::Relaxed);
        s.stream_room.store(NO_STREAM, Ordering::Relaxed);
        window.detached = true;
        // Under the lock under which acknowledgements move it.
        s.progress.mirror(None);
        let entries = std::mem::take(&mut window.entries);
        drop(window);
        drop(entries);
    }

    /// The partner has everything up to `sequence`. One that is detached is not waited for.
    ///
    /// # Errors
    /// [`NotShipped`]: there is no such entry.
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
        // Their pages may be the last references.
        drop(gone);
        Ok(())
    }

    /// Makes an entry of a change that is not logged. Without a stream nothing happens.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`]; [`AppendError::TooLarge`] for what would not be a record of the log either.
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

    /// As [`Log::append`]; the stream gets `shipped` in its place, which does the same to the partner. `advance`: of its pages those that may
    /// have been [sent before](Log::advance).
    ///
    /// # Errors
    /// As there.
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

    /// Whether a stream is attached. Certain only where the caller keeps streams from being attached.
    pub fn ships(&self) -> bool {
        self.shared.ships.load(Ordering::Relaxed)
    }

    /// The last entry of the stream, if one is attached.
    pub fn streamed(&self) -> Option<Sequence> {
        let q = self.shared.queue.lock();
        q.stream.as_ref().map(|stream| stream.last())
    }

    /// The last entry that the partner has acknowledged, if there is a stream whose partner is waited for.
    pub fn acknowledged(&self) -> Option<Sequence> {
        let q = self.shared.queue.lock();
        let window = q.stream.as_ref()?.window.lock();
        (!window.following).then_some(window.acknowledged)
    }

    /// Whether the window is full: nothing is to be changed before the partner has acknowledged more.
    pub fn stream_full(&self) -> bool {
        self.shared.stream_room.load(Ordering::Relaxed) <= 0
    }

    /// Has [`Log::partner_cost`] measured by this clock.
    pub fn measure_partner(&self, clock: Arc<dyn Clock>) {
        self.shared.progress.measure(clock);
    }

    /// What this side's device was given, and how long it took; nothing, if it is not [measured](Log::measure_partner).
    pub fn writes(&self) -> LogWrites {
        self.shared.progress.meter().writes()
    }

    /// What waiting for the partner has cost in the last minute; nothing, if it is not [measured](Log::measure_partner).
    pub fn partner_cost(&self) -> PartnerCost {
        self.shared.progress.cost()
    }

    /// The last record that the device has, whatever the partner has.
    pub fn written(&self) -> Lsn {
        self.shared.progress.written()
    }

    /// Waits until the device has the record, whatever the partner has. Blocks the thread.
    ///
    /// # Errors
    /// [`Poisoned`] if it never will.
    pub fn wait_written(&self, lsn: Lsn) -> Result<(), Poisoned> {
        self.shared.gathered();
        self.shared.progress.wait_written(lsn)
    }
}
