//! The intent log: every acknowledged change is in it before it is anywhere else.
//!
//! **Purpose.** A reply to a stable operation may leave only when the operation survives a crash.
//! Writing trees for every operation would cost many scattered writes. The log costs one sequential
//! write for *all* operations that arrived during the previous write (group commit). A durable
//! write of 128 KiB takes hardly longer than one of 4 KiB (measured), so the more load, the larger
//! the batches and the cheaper each operation.
//!
//! **Shape.** A ring of blocks, each written with zeroes before the log comes to it ([`prepare`]).
//! So an append never changes a file's length or allocation, which would make the host file system
//! commit its own journal first. Appending assigns an LSN and a position under a short lock and
//! does nothing else. One thread forms batches, checksums them and writes them. Payload pages are
//! passed by reference into the device's vectored write.
//!
//! **One batch in flight at a time.** The next one collects meanwhile, so no rate is lost with many
//! operations waiting. With few, an operation waits half a write longer than it would beside a
//! second batch. (A virtual disk took 5,900 flushed writes a second one at a time, 11,900 two at a
//! time.) It makes recovery exact. At any crash everything before the last submitted batch is
//! durable, and that batch is in any mixture of old and new sectors. Nothing behind it was ever
//! written.
//!
//! **Positions** count blocks since the log's creation and never wrap; the slot in the ring is the
//! position modulo its size. Each batch's head names its own position and the end of its
//! predecessor. So a head of an earlier lap is never mistaken for a current one.
//!
//! **Segments.** The ring is cut into segments that no batch crosses. A batch that does not fit in
//! the rest of one begins at the next. Recovery follows that jump because the head at the segment's
//! start names the position before the jump. So a write never wraps around the ring's end, and the
//! first block of every segment reached is a head. Recovery uses that to find later batches without
//! reading the whole ring.
//!
//! **End or damage?** Recovery stops at the first damaged batch. By the rule of one in flight this
//! is the end, unless a head exists whose predecessor *ended beyond* the place where recovery
//! stopped. Such a batch was only submitted after everything up to there was durable, so
//! acknowledged data was damaged, and recovery reports it instead of dropping it silently. (A
//! damaged *last* batch cannot be distinguished from a torn one.)
//!
//! **Dead branches.** A torn batch leaves a head and pages behind. A later crash could complete
//! them by overwriting just the right sectors with the same data. So it could revive operations of
//! a dead server whose reserved blocks have new owners. So each recovery first writes an empty
//! batch at the end, and the log is usable only when that is durable. The empty batch overwrites
//! the torn head. If that head is at the next segment's start, the empty batch moves the end away
//! from the position that the head claims to continue.
//!
//! **Failure.** A failed write poisons the log: nothing further is accepted or acknowledged. The
//! write is never retried, because its effect on the device is unknown. A violated invariant of the
//! aggregate poisons the log as well: no further batch is written, and queued records were never
//! acknowledged.

pub mod advance;
mod begins;
mod cost;
mod format;
mod prepare;
mod recover;
pub mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
mod wait;
mod writer;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use weir_base::limits::engine::LOG_BATCH as BATCH_BLOCKS;
pub use weir_base::limits::engine::MAX_RECORD_META;
use weir_base::{BLOCK_SIZE, Lsn, Poison, invariant};

use crate::block::page_crc;
use crate::device::Device;
use crate::error::{IoError, StoreError};
use crate::frame::{Frame, FramePool};

use begins::Begins;
pub use cost::{LogWrites, PartnerCost};
use format::{HEAD, MAX_META_BLOCKS, PAGE_SUM, RECORD_HEAD, Ring};
pub use format::{ParsedBatch, parse_batch};
use prepare::Prepared;
pub use recover::{Replay, Replayed, Replaying};
use stream::{ChangeStream, NO_STREAM, Summed};
use wait::Progress;
pub use wait::Wait;

const _: () = assert!(
    HEAD + RECORD_HEAD + MAX_RECORD_META + 1024 * PAGE_SUM <= MAX_META_BLOCKS as usize * BLOCK_SIZE
);

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

/// A record to append: opaque bytes, and whole pages by reference.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The edits, in the caller's encoding.
    pub meta: Vec<u8>,
    /// Payload pages; the log checksums them itself.
    pub pages: SmallVec<[Frame; 2]>,
}

/// The log accepts and acknowledges nothing any more. The reason is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Poisoned(pub Arc<str>);

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the intent log has stopped: {}", self.0)
    }
}

impl std::error::Error for Poisoned {}

impl From<Poisoned> for StoreError {
    fn from(p: Poisoned) -> StoreError {
        StoreError::Poisoned(p.0)
    }
}

/// Reason why a record was not appended. Nothing has changed in that case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppendError {
    /// An earlier write failed.
    Poisoned(Poisoned),
    /// The ring has no room until [`Log::release`].
    Full,
    /// The record exceeds [`Log::max_record`].
    TooLarge,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Poisoned(p) => p.fmt(f),
            AppendError::Full => f.write_str("the intent log is full"),
            AppendError::TooLarge => f.write_str("the record is too large for the intent log"),
        }
    }
}

impl std::error::Error for AppendError {}

/// Reason why a log cannot be created or recovered.
#[derive(Clone, Debug)]
pub enum LogError {
    /// The device failed. An *unreadable* block is not taken for the end.
    Io(IoError),
    /// The device is too small to hold a ring.
    TooSmall,
    /// Both header blocks are damaged, or it is no log.
    NotALog,
    /// The log belongs to another aggregate.
    WrongId(LogId),
    /// The log was written by a newer version of the format.
    Version(u32),
    /// Acknowledged records are lost: the batch at `at` is damaged, although a later one at `later`
    /// shows that it had been durable.
    DamagedMiddle {
        /// The first damaged batch.
        at: LogPos,
        /// A batch that was written after the damaged one was durable.
        later: LogPos,
    },
    /// The log contradicts itself or the cut that recovery was given.
    Inconsistent {
        /// The position of the contradiction.
        at: LogPos,
        /// The contradiction, as a message.
        what: &'static str,
    },
    /// No page frame was free to read into.
    NoMemory,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io(e) => write!(f, "intent log: {e}"),
            LogError::TooSmall => f.write_str("the device is too small for an intent log"),
            LogError::NotALog => f.write_str("not an intent log, or its header is damaged"),
            LogError::WrongId(id) => {
                write!(f, "this intent log belongs to another aggregate ({id:?})")
            }
            LogError::Version(v) => write!(
                f,
                "intent log has format {v}, which is newer than this version supports"
            ),
            LogError::DamagedMiddle { at, later } => write!(
                f,
                "the intent log is damaged at position {at}: the batch at {later} shows that \
                 acknowledged records stood there"
            ),
            LogError::Inconsistent { at, what } => {
                write!(f, "the intent log is inconsistent at position {at}: {what}")
            }
            LogError::NoMemory => f.write_str("no page frame is free to read the intent log"),
        }
    }
}

impl std::error::Error for LogError {}

impl From<IoError> for LogError {
    fn from(e: IoError) -> LogError {
        LogError::Io(e)
    }
}

impl From<LogError> for StoreError {
    fn from(e: LogError) -> StoreError {
        match e {
            LogError::Io(e) => StoreError::Io(e),
            LogError::NoMemory => StoreError::NoMemory,
            other => StoreError::Format(other.to_string().into()),
        }
    }
}

/// Records that one write carries, laid out as they are written except for the head.
///
/// The appending thread lays its record out and computes the checksums of its pages. The only log
/// thread writes nothing while it computes. The thread that allocated a record's memory also frees
/// it.
#[derive(Default)]
struct Batch {
    pos: LogPos,
    prev_end: LogPos,
    first: Lsn,
    records: u32,
    /// Lengths and meta of each record.
    body: Vec<u8>,
    /// Checksums of the pages, which follow the body.
    sums: Vec<u8>,
    frames: Vec<Frame>,
}

fn blocks_of(meta_bytes: usize, pages: usize) -> u64 {
    (meta_bytes.div_ceil(BLOCK_SIZE) + pages) as u64
}

impl Batch {
    /// Returns the length of head and body in bytes.
    fn meta_bytes(&self) -> usize {
        HEAD + self.body.len() + self.sums.len()
    }

    fn end(&self) -> LogPos {
        LogPos(self.pos.0 + blocks_of(self.meta_bytes(), self.frames.len()))
    }

    fn push(&mut self, meta: &[u8], pages: SmallVec<[Frame; 2]>, sums: &[u32]) {
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
    fn emptied(mut self) -> Batch {
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

/// Positions and queue, protected by the append lock.
struct Queue {
    /// Batch that collects records. It has a position once it has a record.
    open: Batch,
    /// Closed batches in order, not yet taken by the log thread.
    closed: VecDeque<Batch>,
    /// The LSN of the next record.
    next: Lsn,
    /// End of the last closed batch, written or not.
    end: LogPos,
    /// Position before which space may be overwritten.
    released: LogPos,
    /// Emptied batch, reused as the next open one.
    spare: Batch,
    /// True while the log thread waits for work.
    idle: bool,
    stop: bool,
    /// Stream that receives every change as well, if one is attached.
    stream: Option<Arc<ChangeStream>>,
}

impl Queue {
    fn close(&mut self) {
        if self.open.records == 0 {
            return;
        }
        self.end = self.open.end();
        let next = std::mem::take(&mut self.spare);
        self.closed
            .push_back(std::mem::replace(&mut self.open, next));
    }

    /// Returns true, once, if the log's thread has to be woken for the queued records.
    fn finds_writer_asleep(&mut self) -> bool {
        (self.open.records > 0 || !self.closed.is_empty()) && std::mem::take(&mut self.idle)
    }

    /// Returns the end of the log if the open batch were closed now.
    fn open_end(&self) -> LogPos {
        if self.open.records == 0 {
            self.end
        } else {
            self.open.end()
        }
    }

    /// Returns the position of a new batch of `blocks`.
    fn place(&self, ring: &Ring, blocks: u64) -> LogPos {
        if blocks <= ring.left_in_segment(self.end) {
            self.end
        } else {
            ring.next_segment(self.end)
        }
    }
}

thread_local! {
    /// The log for which this thread gathers records, by its address (0: none). The flag records
    /// that its thread, or its stream's sender, has to be woken afterwards.
    static GATHERING: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// Defers the wake-ups of the log's thread and of its stream's sender until it is dropped: see
/// [`Log::gather`].
#[must_use = "records are gathered only while it lives"]
pub struct Gather<'a> {
    log: &'a Log,
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        self.log.shared.gathered();
    }
}

struct Shared {
    device: Arc<dyn Device>,
    id: LogId,
    ring: Ring,
    queue: Mutex<Queue>,
    /// Blocks in use, queued records included. Changed under the queue's lock; every operation
    /// reads it without the lock.
    used: AtomicU64,
    /// Free bytes of the stream's window; [`NO_STREAM`] without a stream. Read like `used`.
    stream_room: AtomicI64,
    /// True while a stream is attached.
    ships: AtomicBool,
    work: Condvar,
    progress: Arc<Progress>,
    prepared: Prepared,
    begins: Begins,
}

impl Shared {
    /// Ends this thread's gathering of records.
    fn gathered(&self) {
        let (_, owed) = GATHERING.replace((0, false));
        if owed {
            let mut q = self.queue.lock();
            let writer = q.finds_writer_asleep();
            let sender = q.stream.clone();
            drop(q);
            self.wake(writer, sender.as_deref());
        }
    }

    /// Wakes the log's thread and the sender if they were found asleep. No lock is held: waking a
    /// thread takes some microseconds.
    fn wake(&self, writer: bool, sender: Option<&ChangeStream>) {
        if writer {
            self.work.notify_one();
        }
        if let Some(stream) = sender {
            stream.ring();
        }
    }

    /// Returns the wake-ups due for records appended under this lock: that of the log's thread, and
    /// the stream whose sender sleeps. A gathering thread wakes them later.
    fn owes(&self, q: &mut Queue) -> (bool, Option<Arc<ChangeStream>>) {
        let sender = q.stream.as_ref().filter(|stream| stream.rests()).cloned();
        if GATHERING.get().0 == std::ptr::from_ref(self).addr() {
            if q.idle || sender.is_some() {
                GATHERING.set((std::ptr::from_ref(self).addr(), true));
            }
            return (false, None);
        }
        // Another thread that appends meanwhile finds it idle and wakes it.
        (q.finds_writer_asleep(), sender)
    }

    fn note_used(&self, q: &Queue) {
        let (end, released) = (q.open_end(), q.released);
        invariant!(self.progress.guard() => released <= end, "released up to {released}, of what ends at {end}");
        self.used.store(end.0 - released.0, Ordering::Relaxed);
    }
}

/// The intent log of one aggregate, open for appending.
///
/// Dropping it ends its thread after the batch in flight. Records still queued were never
/// acknowledged and are not written.
pub struct Log {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    preparing: Option<JoinHandle<()>>,
}

impl Log {
    /// Creates an empty log on the whole `device`, which must have been opened durable: a completed
    /// write has to survive. `id` must never have been used there.
    ///
    /// # Errors
    /// [`LogError::TooSmall`], [`LogError::Io`].
    pub fn create(device: Arc<dyn Device>, id: LogId) -> Result<Arc<Log>, LogError> {
        Self::create_with(device, id, prepare::AT_ONCE)
    }

    fn create_with(device: Arc<dyn Device>, id: LogId, at_once: u64) -> Result<Arc<Log>, LogError> {
        let (ring, whole) = recover::format(&*device, id, at_once)?;
        let prepared = (!whole).then_some(LogPos(at_once));
        Self::start(device, id, ring, LogCut::START, LogPos(0), prepared)
    }

    /// Creates an empty log like [`Log::create`], without opening it.
    ///
    /// # Errors
    /// As [`Log::create`].
    pub fn format(device: &dyn Device, id: LogId) -> Result<(), LogError> {
        recover::format(device, id, prepare::AT_ONCE).map(drop)
    }

    /// Opens a log and finds the records from `from` on: all acknowledged ones, and possibly some
    /// that were not yet acknowledged. The log is ready for appending. The space of the records to
    /// be replayed is held until it is [released](Log::release).
    ///
    /// # Errors
    /// Any [`LogError`]; the log is unchanged in that case, except that [`LogError::Io`] may come
    /// from the one block that recovery writes.
    pub fn recover(
        device: Arc<dyn Device>,
        id: LogId,
        from: LogCut,
        pool: &Arc<FramePool>,
    ) -> Result<(Arc<Log>, Replay), LogError> {
        let found = recover::survey(&device, id, from, pool)?;
        let end = recover::mark_end(&*device, id, &found)?;
        let log = Self::start(
            device,
            id,
            found.ring,
            LogCut {
                pos: end,
                next: found.next,
            },
            from.pos,
            (!found.whole).then_some(end),
        )?;
        Ok((log, found.replay))
    }

    /// Returns the records that [`Log::recover`] would find. Nothing is written.
    ///
    /// # Errors
    /// Any [`LogError`].
    pub fn inspect(
        device: Arc<dyn Device>,
        id: LogId,
        from: LogCut,
        pool: &Arc<FramePool>,
    ) -> Result<Replay, LogError> {
        recover::survey(&device, id, from, pool).map(|found| found.replay)
    }

    fn start(
        device: Arc<dyn Device>,
        id: LogId,
        ring: Ring,
        at: LogCut,
        released: LogPos,
        prepared: Option<LogPos>,
    ) -> Result<Arc<Log>, LogError> {
        let unfinished = prepared.is_some();
        let shared = Arc::new(Shared {
            device,
            id,
            ring,
            used: AtomicU64::new(at.pos.0 - released.0),
            stream_room: AtomicI64::new(NO_STREAM),
            ships: AtomicBool::new(false),
            queue: Mutex::new(Queue {
                open: Batch::default(),
                closed: VecDeque::new(),
                next: at.next,
                end: at.pos,
                released,
                spare: Batch::default(),
                idle: false,
                stop: false,
                stream: None,
            }),
            work: Condvar::new(),
            progress: Arc::new(Progress::starting_at(at.last())),
            prepared: Prepared::new(prepared),
            begins: Begins::default(),
        });
        let mut log = Log {
            thread: Some(writer::spawn(Arc::clone(&shared))?),
            preparing: None,
            shared,
        };
        if unfinished {
            log.preparing = Some(prepare::spawn(Arc::clone(&log.shared))?);
        }
        Ok(Arc::new(log))
    }

    /// Queues a record and returns its LSN. Never waits for the device.
    ///
    /// # Errors
    /// See [`AppendError`]; the record is dropped in that case.
    pub fn append(&self, record: Record) -> Result<Lsn, AppendError> {
        self.append_in(record, None)
    }

    /// Appends `record`. The stream gets `shipped` in its place, if given.
    fn append_in(&self, record: Record, shipped: Option<Summed>) -> Result<Lsn, AppendError> {
        let s = &*self.shared;
        if let Some(why) = s.progress.guard().why() {
            return Err(AppendError::Poisoned(Poisoned(Arc::clone(why))));
        }
        let pages = record.pages.len();
        if !self.fits(record.meta.len(), pages) {
            return Err(AppendError::TooLarge);
        }
        let bytes = RECORD_HEAD + record.meta.len() + pages * PAGE_SUM;
        let sums: SmallVec<[u32; 2]> = record.pages.iter().map(|page| page_crc(page)).collect();

        let mut q = s.queue.lock();
        if q.open.records > 0 {
            let meta_bytes = q.open.meta_bytes() + bytes;
            let grown = blocks_of(meta_bytes, q.open.frames.len() + pages);
            let meta_blocks = meta_bytes.div_ceil(BLOCK_SIZE) as u64;
            if grown > BATCH_BLOCKS.min(s.ring.left_in_segment(q.open.pos))
                || meta_blocks > MAX_META_BLOCKS
            {
                q.close();
            }
        }
        let fresh = q.open.records == 0;
        let blocks = blocks_of(q.open.meta_bytes() + bytes, q.open.frames.len() + pages);
        let pos = match fresh {
            true => q.place(&s.ring, blocks),
            false => q.open.pos,
        };
        if pos.0 + blocks > q.released.0 + s.ring.blocks {
            return Err(AppendError::Full);
        }
        let lsn = q.next;
        q.next = lsn.next();
        invariant!(s.progress.guard() => pos.0 >= q.end.0 && q.released.0 <= pos.0, "a batch at {pos}, between {} and {}", q.released, q.end);
        if fresh {
            q.open.pos = pos;
            q.open.prev_end = q.end;
            q.open.first = lsn;
        }
        let Queue { open, stream, .. } = &mut *q;
        match stream {
            None => open.push(&record.meta, record.pages, &sums),
            Some(stream) => {
                open.push(&record.meta, record.pages.clone(), &sums);
                let summed = shipped.unwrap_or(Summed {
                    record,
                    sums,
                    advance: None,
                });
                s.push(stream, summed, lsn);
            }
        }
        s.note_used(&q);
        let (writer, sender) = s.owes(&mut q);
        drop(q);
        s.wake(writer, sender.as_deref());
        Ok(lsn)
    }

    /// Gathers the records that this thread appends until the guard is dropped, so that they are
    /// written, and sent to a partner, together. A sleeping log thread or sender is woken at the
    /// end and not for the first record.
    pub fn gather(&self) -> Gather<'_> {
        GATHERING.set((std::ptr::from_ref(&*self.shared).addr(), false));
        Gather { log: self }
    }

    /// Returns true if a record of this size can be appended at all.
    pub fn fits(&self, meta_bytes: usize, pages: usize) -> bool {
        meta_bytes <= MAX_RECORD_META
            && pages as u64 <= self.shared.ring.segment
            && blocks_of(HEAD + RECORD_HEAD + meta_bytes + pages * PAGE_SUM, pages)
                <= self.shared.ring.segment
    }

    /// Returns the bytes of meta and the number of pages that fit in one record together.
    pub fn max_record(&self) -> (usize, usize) {
        let segment = self.shared.ring.segment as usize;
        let meta = MAX_RECORD_META.min(segment / 4 * BLOCK_SIZE);
        let used = (HEAD + RECORD_HEAD + meta + segment * PAGE_SUM).div_ceil(BLOCK_SIZE);
        // Saturates: nothing is left of a segment that is filled by meta.
        (meta, segment.saturating_sub(used))
    }

    /// Returns the last record up to which all are durable: on both sides, while a [`stream`] is
    /// attached.
    pub fn durable(&self) -> Lsn {
        self.shared.progress.durable()
    }

    /// Waits until the record `lsn` is durable.
    ///
    /// # Errors
    /// [`Poisoned`] if the record never will be.
    pub fn wait(&self, lsn: Lsn) -> Wait {
        Wait::new(Arc::clone(&self.shared.progress), lsn)
    }

    /// Like [`Log::wait`], but blocks the calling thread.
    ///
    /// # Errors
    /// [`Poisoned`] if the record never will be.
    pub fn wait_blocking(&self, lsn: Lsn) -> Result<(), Poisoned> {
        self.shared.gathered();
        self.shared.progress.wait_blocking(lsn)
    }

    /// Registers `f` for a call by the log's thread after each batch became durable, and when the
    /// log is poisoned. `f` must not block.
    pub fn on_advance(&self, f: Arc<dyn Fn() + Send + Sync>) {
        self.shared.progress.listen(f);
    }

    /// Puts a boundary between all records appended so far and all later ones. The caller has to
    /// prevent other threads from appending records that belong before it.
    pub fn cut(&self) -> LogCut {
        let mut q = self.shared.queue.lock();
        q.close();
        LogCut {
            pos: q.end,
            next: q.next,
        }
    }

    /// Releases the space before `upto`, a position from [`Log::cut`]: nothing before it will be
    /// replayed.
    pub fn release(&self, upto: LogPos) {
        let mut q = self.shared.queue.lock();
        invariant!(self.guard() => upto <= q.end, "the log is released up to {upto}, and ends at {}", q.end);
        q.released = q.released.max(upto.min(q.end));
        self.shared.note_used(&q);
    }

    /// Sets the mode in which a record is durable only once a checkpoint contains it. It is for a
    /// device that may be lost with its machine, without a partner that is sure to serve the
    /// device's contents.
    pub fn rely_on_checkpoints(&self, relies: bool) {
        self.shared.progress.rely_on_checkpoints(relies);
    }

    /// Sets the callback that requests a checkpoint of the written records. It must not block. Only
    /// the first call counts.
    pub fn ask_for_checkpoints_by(&self, ask: Box<dyn Fn() + Send + Sync>) {
        self.shared.progress.ask_by(ask);
    }

    /// Notes that a checkpoint with everything before the cut is durable.
    pub(crate) fn checkpointed(&self, cut: &LogCut) {
        self.release(cut.pos);
        self.shared.progress.checkpoint(cut.last());
    }

    /// Returns the used bytes of the ring, queued records included, and its size. A batch may leave
    /// up to a segment (4 MiB at most, a quarter of a small ring) unused before it, which counts as
    /// used.
    pub fn fill(&self) -> (u64, u64) {
        (
            self.shared.used.load(Ordering::Relaxed) * BLOCK_SIZE as u64,
            self.shared.ring.blocks * BLOCK_SIZE as u64,
        )
    }

    /// Returns the number of appended bytes that the log's thread has not begun to write: its
    /// backlog. The batch in flight (1 MiB at most) does not count.
    pub fn queued(&self) -> u64 {
        let q = self.shared.queue.lock();
        let begin = match q.closed.front() {
            Some(batch) => batch.pos,
            None if q.open.records == 0 => q.end,
            None => q.open.pos,
        };
        (q.open_end().0 - begin.0) * BLOCK_SIZE as u64
    }

    /// Returns true if every appended record is written.
    pub fn is_idle(&self) -> bool {
        let last = self.shared.queue.lock().last();
        self.shared.progress.written() >= last
    }

    /// Returns true if the log has stopped: records that are not durable never will be. Takes no
    /// lock.
    pub fn is_poisoned(&self) -> bool {
        self.shared.progress.poisoned().is_some()
    }

    /// Returns the guard that stops the log when it is set: appending threads at once, waiting ones
    /// before the next batch.
    pub fn guard(&self) -> &Arc<Poison> {
        self.shared.progress.guard()
    }

    /// Returns the reason why the log has stopped, if it has.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.shared.progress.poisoned()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.queue.lock().stop = true;
        self.shared.work.notify_one();
        self.shared.prepared.stop();
        if let Some(thread) = self.preparing.take() {
            // A panic there has been reported, and costs only its work.
            let _ = thread.join();
        }
        if let Some(thread) = self.thread.take() {
            // A listener may have held the last reference: the thread cannot wait for itself. A
            // panic there has poisoned the log already.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, size) = self.fill();
        write!(
            f,
            "Log({:?}, durable {}, {used} of {size} bytes)",
            self.shared.id,
            self.durable()
        )
    }
}
