//! The log's thread: takes queued records, writes them as one batch, notifies the waiters.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::MutexGuard;
use weir_base::{BLOCK_SIZE, Lsn, invariant};

use super::batch::Batch;
use super::error::{LogError, LogPoisonError};
use super::format::{HEAD, Head, MAX_META_BLOCKS};
use super::log_state::LogState;
use super::position::LogId;
use crate::error::{IoError, IoKind};
use crate::frame::{Class, Frame, FramePool};

pub(super) fn spawn(shared: Arc<LogState>) -> Result<JoinHandle<()>, LogError> {
    let failed = |e| LogError::Io(IoError::new(IoKind::Write, Default::default(), 0, e));
    // One batch is in flight at a time, so memory for one batch's meta is enough.
    let pool = FramePool::new(MAX_META_BLOCKS as usize).map_err(failed)?;
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || {
            let mut writer = Writer {
                guard: PoisonOnExit(shared),
                pool,
                backoff: Cell::new(0),
            };
            weir_base::short_slice();
            weir_base::ioprio_realtime();
            writer.run();
        })
        .map_err(failed)
}

/// Wakes all waiters however the thread ends, a panic included.
struct PoisonOnExit(Arc<LogState>);

impl Drop for PoisonOnExit {
    fn drop(&mut self) {
        self.0
            .progress
            .poison(LogPoisonError("it was closed".into()));
    }
}

/// Number of times that the thread polls for work before it sleeps, yielding its core in between.
/// Waking a thread on an idle core takes some 30 µs, as long as half a write; a polling thread
/// needs no wake-up. On two cores, where clients want the processor too, the gain is small. It is
/// some percent for renames, within the spread of three runs, and none for 8 KiB FILE_SYNC writes.
///
/// When other programs keep the cores busy, each poll gives one of them its slice. The thread then
/// sleeps at once for the next [`SPIN_BACKOFF`] times. In the one run without that, continued
/// polling cost several times the rate. A client with one call in flight is polled for as well.
/// Sleeping at once, after polls that were all in vain, saved 13 µs of the 69 that this thread
/// takes for a stable write of 4 KiB. It added 6 to the 142 that the write takes (a CREATE: 19 to
/// 140).
const SPINS: u32 = 100;

/// Number of times that the thread sleeps at once after a poll took long.
const SPIN_BACKOFF: u32 = 256;

struct Writer {
    guard: PoisonOnExit,
    pool: Arc<FramePool>,
    /// Number of times that the thread still sleeps at once.
    backoff: Cell<u32>,
}

impl Writer {
    fn run(&mut self) {
        let mut done = Batch::default();
        while let Some(mut batch) = self.next(done) {
            let last = Lsn(batch.first.0 + u64::from(batch.records) - 1);
            if !self.guard.0.prepared.wait_for(batch.end()) {
                return;
            }
            let progress = &self.guard.0.progress;
            let written = progress.written();
            invariant!(progress.guard() => batch.first == written.next(), "record {} is written after {written}", batch.first);
            // A thread that finds an invariant violated sets the guard and does not wake this one.
            if progress.guard().is_set() {
                return;
            }
            let begun = progress.meter().current_time();
            if let Err(e) = self.write(&mut batch) {
                let at = batch.pos;
                tracing::error!(position = at.0, error = %e, "cannot write the intent log; the aggregate is read-only until a restart");
                self.guard
                    .0
                    .progress
                    .poison(LogPoisonError(e.to_string().into()));
                return;
            }
            let progress = &self.guard.0.progress;
            progress.meter().wrote(begun);
            progress.advance(last);
            done = batch.emptied();
        }
    }

    /// Waits for the next batch. Returns `None` when the log is being dropped.
    fn next(&self, spare: Batch) -> Option<Batch> {
        let s = &*self.guard.0;
        let mut looks = 0;
        let mut q = s.queue.lock();
        q.spare = spare;
        loop {
            if q.stop {
                return None;
            }
            if q.closed.is_empty() {
                q.close();
            }
            if let Some(batch) = q.closed.pop_front() {
                q.idle = false;
                return Some(batch);
            }
            let backoff = self.backoff.get();
            if backoff == 0 && looks < SPINS {
                // An operation released by the last batch often brings the next one at once.
                looks += 1;
                if MutexGuard::unlocked(&mut q, weir_base::yield_timed) {
                    self.backoff.set(SPIN_BACKOFF);
                }
                continue;
            }
            // Saturates: `backoff` is 0 when the thread has polled often enough.
            self.backoff.set(backoff.saturating_sub(1));
            q.idle = true;
            s.work.wait(&mut q);
        }
    }

    fn write(&mut self, batch: &mut Batch) -> Result<(), IoError> {
        let s = &*self.guard.0;
        batch.body.append(&mut batch.sums);
        let head = Head {
            pos: batch.pos,
            prev_end: batch.prev_end,
            first: batch.first,
            records: batch.records,
            pages: batch.frames.len() as u32,
            meta_bytes: batch.meta_bytes() as u32,
            body_sum: crc32c::crc32c(&batch.body),
        };
        let addr = s.ring.addr(batch.pos);
        let mut frames = Vec::with_capacity(head.blocks() as usize);
        if !fill_meta(&self.pool, &head, s.id, &batch.body, &mut frames) {
            let e = io::Error::other("a batch is longer than the log's buffers");
            return Err(IoError::new(IoKind::Write, addr, head.blocks(), e));
        }
        frames.append(&mut batch.frames);
        let writing = s.device.write(addr, frames);
        s.begins.note();
        writing.wait()
    }
}

/// Lays head and body out in frames, padded with zeroes. Returns `false` if the pool is too small
/// for them.
pub(super) fn fill_meta(
    pool: &FramePool,
    head: &Head,
    id: LogId,
    body: &[u8],
    into: &mut Vec<Frame>,
) -> bool {
    let (first, rest) = body.split_at(body.len().min(BLOCK_SIZE - HEAD));
    let Some(mut frame) = pool.alloc(Class::Cp) else {
        return false;
    };
    let (h, b) = frame.split_at_mut(HEAD);
    h.copy_from_slice(&head.encode(id));
    fill_padded(b, first);
    into.push(frame.freeze());
    for chunk in rest.chunks(BLOCK_SIZE) {
        let Some(mut frame) = pool.alloc(Class::Cp) else {
            return false;
        };
        fill_padded(&mut frame[..], chunk);
        into.push(frame.freeze());
    }
    true
}

fn fill_padded(to: &mut [u8], from: &[u8]) {
    let (data, padding) = to.split_at_mut(from.len().min(to.len()));
    data.copy_from_slice(from);
    padding.fill(0);
}
