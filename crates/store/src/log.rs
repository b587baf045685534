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
mod batch;
mod begins;
mod cost;
mod error;
mod format;
mod log_state;
mod position;
mod prepare;
mod queue;
mod recover;
mod ship;
pub mod stream;
#[cfg(test)]
mod tests;
mod wait;
mod writer;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use weir_base::limits::engine::LOG_BATCH as BATCH_BLOCKS;
pub use weir_base::limits::engine::MAX_RECORD_META;
use weir_base::{BLOCK_SIZE, Lsn, Poison, invariant};

use crate::block::page_crc;
use crate::device::Device;
use crate::frame::FramePool;

pub use batch::Record;
use batch::{Batch, blocks_of};
use begins::Begins;
pub use cost::{LogWrites, PartnerCost};
pub use error::{AppendError, LogError, LogPoisonError};
use format::{HEAD, MAX_META_BLOCKS, PAGE_SUM, RECORD_HEAD, Ring};
pub use format::{ParsedBatch, parse_batch};
use log_state::{GATHERING, LogState};
pub use position::{LogCut, LogId, LogPos};
use prepare::PrepareProgress;
use queue::Queue;
pub use recover::{Replay, ReplayProgress, ReplayedRecord};
use stream::{ChecksummedRecord, NO_STREAM};
use wait::Progress;
pub use wait::Wait;

const _: () = assert!(
    HEAD + RECORD_HEAD + MAX_RECORD_META + 1024 * PAGE_SUM <= MAX_META_BLOCKS as usize * BLOCK_SIZE
);

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

/// The intent log of one aggregate, open for appending.
///
/// Dropping it ends its thread after the batch in flight. Records still queued were never
/// acknowledged and are not written.
pub struct Log {
    shared: Arc<LogState>,
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
        let shared = Arc::new(LogState {
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
            prepared: PrepareProgress::new(prepared),
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
    fn append_in(
        &self,
        record: Record,
        shipped: Option<ChecksummedRecord>,
    ) -> Result<Lsn, AppendError> {
        let s = &*self.shared;
        if let Some(why) = s.progress.guard().why() {
            return Err(AppendError::Poisoned(LogPoisonError(Arc::clone(why))));
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
                let summed = shipped.unwrap_or(ChecksummedRecord {
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
    /// [`LogPoisonError`] if the record never will be.
    pub fn wait(&self, lsn: Lsn) -> Wait {
        Wait::new(Arc::clone(&self.shared.progress), lsn)
    }

    /// Like [`Log::wait`], but blocks the calling thread.
    ///
    /// # Errors
    /// [`LogPoisonError`] if the record never will be.
    pub fn wait_blocking(&self, lsn: Lsn) -> Result<(), LogPoisonError> {
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

    /// Blocks the thread until the log has begun another write, or until `patience` has passed.
    pub fn wait_begun(&self, patience: Duration) {
        self.shared.begins.wait(patience);
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
    pub fn poisoned(&self) -> Option<LogPoisonError> {
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
