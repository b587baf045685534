//! Preparing the ring: every block of it is written once before the log reaches it.
//!
//! A block that a host file system has only reserved is marked as such in the file's metadata. The
//! first write to it changes that mark, and a durable write then waits for the file system's own
//! journal. So the ring is written with zeroes in advance. For a ring of 2 GiB that takes seconds,
//! too long for a first start. So only the beginning is written when the log is created. A thread
//! does the rest, block by block in ascending order, while the log is in its first lap.
//!
//! **Ranges.** The log may write positions before [`PrepareProgress::upto`]; the preparing thread
//! writes those behind it. The bound only rises, after the blocks that it passes have been written.
//! The log's thread waits before it writes a batch that ends behind the bound. So the two never
//! meet, and zeroes never land on records.
//!
//! **While the log is in use**, the thread prepares only the next [`AHEAD`] blocks. It does the
//! rest when nothing is logged for a while. Each of its writes delays the log's own for some
//! milliseconds. A ring of 2 GiB prepared as fast as its pauses allowed took a sixth of the device
//! during the first six seconds of load. Every hundredth rename took twelve times the median.
//!
//! **Recovery does not rely on it.** The old contents of a block are never a head of a batch,
//! because heads carry the log's random identity. After a crash before the whole ring is prepared,
//! the next start repeats the rest, from the end of the log on. In the first lap nothing behind
//! that is in use. A flag in the log's header says whether the whole ring is prepared, and no batch
//! is written behind the first lap before that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
pub(super) use weir_base::limits::engine::PREPARE_AT_ONCE as AT_ONCE;
use weir_base::limits::engine::{PREPARE_AHEAD as AHEAD, PREPARE_REST as REST};

use parking_lot::{Condvar, Mutex};

use super::error::LogError;
use super::format::{FIXED_BLOCKS, Ring, encode_log_header};
use super::log_state::LogState;
use super::position::{LogId, LogPos};
use crate::device::Device;
use crate::error::{IoError, IoKind};
use crate::frame::{Class, Frame, FramePool};

/// Progress of the preparation.
pub(super) struct PrepareProgress {
    /// Positions before this may be written; `u64::MAX`: all.
    upto: AtomicU64,
    /// True while the log's thread waits for more.
    wanted: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    /// Notified when any of these has changed.
    changed: Condvar,
}

impl PrepareProgress {
    pub fn new(upto: Option<LogPos>) -> PrepareProgress {
        PrepareProgress {
            upto: AtomicU64::new(upto.map_or(u64::MAX, |pos| pos.0)),
            wanted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Blocks until the log may write up to `end`; returns `false` if it never may, because it is
    /// being dropped.
    pub fn wait_for(&self, end: LogPos) -> bool {
        let ready = || end.0 <= self.upto.load(Ordering::Acquire);
        if ready() {
            return true;
        }
        let mut lock = self.lock.lock();
        while !ready() && !self.stop.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::Relaxed);
            self.changed.notify_all();
            self.changed.wait(&mut lock);
        }
        self.wanted.store(false, Ordering::Relaxed);
        ready()
    }

    fn advance(&self, upto: u64) {
        let _held = self.lock.lock();
        self.upto.store(upto, Ordering::Release);
        self.changed.notify_all();
    }

    /// Ends the preparing thread, and wakes the log's thread if it waits for that.
    pub fn stop(&self) {
        let _held = self.lock.lock();
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Pauses. Returns `false` at once if the log waits or is being dropped.
    fn rest(&self) -> bool {
        let mut lock = self.lock.lock();
        let may = || !self.wanted.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed);
        if may() {
            self.changed.wait_for(&mut lock, REST);
        }
        may()
    }
}

/// Zeroes for one write: a segment, 4 MiB in a large ring. Each write makes the host's file system
/// commit its journal.
struct Zeroes(Vec<Frame>);

impl Zeroes {
    fn new(ring: Ring) -> Result<Zeroes, LogError> {
        let count = ring.segment as usize;
        let pool = FramePool::new(count).map_err(|_| LogError::NoMemory)?;
        let frame = |_| pool.zeroed(Class::Cp).map(crate::frame::FrameMut::freeze);
        let frames: Option<Vec<Frame>> = (0..count).map(frame).collect();
        frames.map(Zeroes).ok_or(LogError::NoMemory)
    }

    /// Writes zeroes from `pos` on, in the first lap, up to `end` at most. Returns the position
    /// where it stopped.
    fn write(
        &self,
        device: &dyn Device,
        ring: Ring,
        pos: LogPos,
        end: u64,
    ) -> Result<LogPos, IoError> {
        // Saturates: nothing is left past the end.
        let count = (self.0.len() as u64).min(end.saturating_sub(pos.0));
        let frames = self.0.iter().take(count as usize).cloned().collect();
        device.write(ring.addr(pos), frames).wait()?;
        Ok(LogPos(pos.0 + count))
    }
}

/// Prepares the beginning of a new ring. Returns true if that is all of it.
pub(super) fn begin(device: &dyn Device, ring: Ring, at_once: u64) -> Result<bool, LogError> {
    let end = ring.blocks.min(at_once);
    let zeroes = Zeroes::new(ring)?;
    let mut pos = LogPos(0);
    while pos.0 < end {
        pos = zeroes.write(device, ring, pos, end)?;
    }
    Ok(end == ring.blocks)
}

/// Writes both copies of the header, one after the other.
pub(super) fn write_header(
    device: &dyn Device,
    id: LogId,
    ring: Ring,
    whole: bool,
) -> Result<(), LogError> {
    let pool = FramePool::new(1).map_err(|_| LogError::NoMemory)?;
    let mut frame = pool.zeroed(Class::Cp).ok_or(LogError::NoMemory)?;
    for (to, from) in frame.iter_mut().zip(encode_log_header(id, ring, whole)) {
        *to = from;
    }
    let frame = frame.freeze();
    for copy in 0..FIXED_BLOCKS {
        let addr = weir_base::BlockAddr(copy);
        device.write(addr, vec![frame.clone()]).wait()?;
    }
    Ok(())
}

/// Starts the thread that prepares the rest.
pub(super) fn spawn(shared: Arc<LogState>) -> Result<JoinHandle<()>, LogError> {
    std::thread::Builder::new()
        .name("log-prepare".into())
        .spawn(move || {
            weir_base::idle_priority();
            let all = LetGo(shared);
            if let Err(error) = run(&all.0) {
                // The log works without it: slower for a lap, and the next start retries.
                tracing::warn!(%error, "cannot prepare the intent log's ring; the next start retries");
            }
        })
        .map_err(|e| LogError::Io(IoError::new(IoKind::Write, Default::default(), 0, e)))
}

/// Releases the log's thread when the preparing thread ends for any reason: it writes nothing any
/// more.
struct LetGo(Arc<LogState>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.prepared.advance(u64::MAX);
    }
}

fn run(shared: &LogState) -> Result<(), LogError> {
    let LogState {
        device,
        id,
        ring,
        prepared,
        progress,
        queue,
        ..
    } = shared;
    let zeroes = Zeroes::new(*ring)?;
    let mut pos = LogPos(prepared.upto.load(Ordering::Relaxed));
    while pos.0 < ring.blocks {
        let mut before = progress.written();
        if prepared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        pos = zeroes.write(&**device, *ring, pos, ring.blocks)?;
        prepared.advance(pos.0);
        while progress.written() != before {
            before = progress.written();
            let far = || pos.0 >= queue.lock().open_end().0 + AHEAD;
            if !prepared.rest() || !far() {
                break;
            }
        }
    }
    write_header(&**device, *id, *ring, true)?;
    tracing::info!(
        size_bytes = ring.blocks * weir_base::BLOCK_SIZE as u64,
        "intent log preallocated"
    );
    Ok(())
}
