//! State of a log that appending threads, its own thread and waiting ones share.

use super::begins::Begins;
use super::format::Ring;
use super::position::LogId;
use super::prepare::PrepareProgress;
use super::queue::Queue;
use super::stream::{ChangeStream, ChecksummedRecord};
use super::wait::Progress;
use crate::device::Device;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use weir_base::{Lsn, invariant};

thread_local! {
    /// The log for which this thread gathers records, by its address (0: none). The flag records
    /// that its thread, or its stream's sender, has to be woken afterwards.
    pub(super) static GATHERING: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

pub(super) struct LogState {
    pub(super) device: Arc<dyn Device>,
    pub(super) id: LogId,
    pub(super) ring: Ring,
    pub(super) queue: Mutex<Queue>,
    /// Blocks in use, queued records included. Changed under the queue's lock; every operation
    /// reads it without the lock.
    pub(super) used: AtomicU64,
    /// Free bytes of the stream's window; [`super::stream::NO_STREAM`] without a stream. Read like
    /// `used`.
    pub(super) stream_room: AtomicI64,
    /// True while a stream is attached.
    pub(super) ships: AtomicBool,
    pub(super) work: Condvar,
    pub(super) progress: Arc<Progress>,
    pub(super) prepared: PrepareProgress,
    pub(super) begins: Begins,
}

impl LogState {
    /// Ends this thread's gathering of records.
    pub(super) fn gathered(&self) {
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
    pub(super) fn wake(&self, writer: bool, sender: Option<&ChangeStream>) {
        if writer {
            self.work.notify_one();
        }
        if let Some(stream) = sender {
            stream.ring();
        }
    }

    /// Returns the wake-ups due for records appended under this lock: that of the log's thread, and
    /// the stream whose sender sleeps. A gathering thread wakes them later.
    pub(super) fn owes(&self, q: &mut Queue) -> (bool, Option<Arc<ChangeStream>>) {
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

    pub(super) fn note_used(&self, q: &Queue) {
        let (end, released) = (q.open_end(), q.released);
        invariant!(self.progress.guard() => released <= end, "released up to {released}, of what ends at {end}");
        self.used.store(end.0 - released.0, Ordering::Relaxed);
    }

    /// Makes an entry of the record with LSN `lsn`, or of a change shipped right after it.
    pub(super) fn push(&self, stream: &ChangeStream, summed: ChecksummedRecord, lsn: Lsn) {
        let weight = stream.push(summed, lsn);
        self.stream_room.fetch_sub(weight, Ordering::Relaxed);
    }
}
