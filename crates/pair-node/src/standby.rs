//! Applies the primary's entries in order. The thread that has received an entry applies it if it
//! need not wait, as is almost always the case. Entries that have to wait for the disk, and those
//! after them, go to a thread of their own, since beats must not wait.
//!
//! Entries that have arrived together are [gathered](weir_store::log::Log::gather): this side's log
//! writes them with one write, and they are acknowledged together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use weir_base::{BLOCK_SIZE, Lsn};
use weir_volume::{Ahead, Engine, FsError, StandbyError, StreamPosition};

use super::advance::AdvanceState;
use super::config::Mode;

/// Bounds of the bytes that were received and not applied: a share of the memory for page frames,
/// as a divisor, and a maximum. An eighth of all memory is left for the heap.
const SHARE: usize = 64;
const MOST: usize = 16 << 20;
/// Bounds of the bytes of pages that arrive before their entries. They are in page frames on their
/// way to their place, unless no frames are free or entries are acknowledged on arrival. The
/// maximum is twice the size of 256 writes of 64 KiB: with a quarter of it a pair lost 15 % of such
/// writes' rate, and with this it loses 2 % (docs/operating/mirror.md).
const SHARE_AHEAD: usize = 16;
const MOST_AHEAD: usize = 32 << 20;

/// An entry as it was received.
pub struct ReceivedEntry {
    pub at: StreamPosition,
    pub meta: Vec<u8>,
    pub pages: Vec<Box<[u8]>>,
    /// Pages that arrived before the entry and are being written to their place.
    pub ahead: Option<Ahead>,
}

impl ReceivedEntry {
    fn bytes(&self) -> usize {
        self.meta.len() + self.pages.len() * BLOCK_SIZE + 64
    }
}

#[derive(Default)]
struct Queue {
    received: VecDeque<ReceivedEntry>,
    bytes: usize,
    /// True while entries taken from the queue are being applied, by the receiving thread or by the
    /// other one.
    busy: bool,
    /// Entries that are applied and not known to be durable.
    applied: VecDeque<(StreamPosition, Lsn)>,
    failed: Option<String>,
    /// LSN of the last entry that was applied.
    last: Option<Lsn>,
    /// Set if the copy is to be brought up anew, whatever its position says.
    again: Option<ResyncBase>,
}

/// Base from which a copy is brought up anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResyncBase {
    /// A mark that both sides hold.
    Mark,
    /// Nothing: the copy is sent whole.
    Nothing,
}

/// Receiving side of the stream; see the module's head.
pub struct Standby {
    queue: Mutex<Queue>,
    /// Signals, with `queue`, that there are entries for the thread.
    more: Condvar,
    /// Signals, with `queue`, that nothing is being applied.
    rests: Condvar,
    room: Notify,
    /// True if an applied entry is not known to be durable.
    waits: AtomicBool,
    /// Maximum number of bytes that were received and not applied.
    most: usize,
    /// Maximum number of bytes that may arrive before their entries.
    ahead: u32,
    /// Point at which an entry is acknowledged.
    mode: Mode,
}

impl Standby {
    /// Returns true if an acknowledgement waits for the log's progress.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }

    /// Starts the thread that applies entries; `send` is notified when there may be something to
    /// acknowledge.
    pub fn start(engine: &Arc<Engine>, send: &Arc<Notify>, mode: Mode) -> Result<Arc<Standby>> {
        let frames = engine.aggregate().cache().pool().total() * BLOCK_SIZE;
        let ahead = match mode {
            Mode::Durable => SHARE_AHEAD,
            Mode::Memory => SHARE,
        };
        let standby = Arc::new(Standby {
            queue: Mutex::default(),
            more: Condvar::new(),
            rests: Condvar::new(),
            room: Notify::new(),
            waits: AtomicBool::new(false),
            most: (frames / SHARE).min(MOST),
            ahead: (frames / ahead).min(MOST_AHEAD) as u32,
            mode,
        });
        let (runs, engine, send) = (Arc::clone(&standby), Arc::clone(engine), Arc::clone(send));
        std::thread::Builder::new()
            .name("weir-standby".to_owned())
            .spawn(move || {
                weir_base::short_slice();
                runs.run(&engine, &send);
            })?;
        Ok(standby)
    }

    fn run(&self, engine: &Engine, send: &Notify) {
        let mut queue = self.queue.lock();
        loop {
            if queue.busy || queue.received.is_empty() {
                self.more.wait(&mut queue);
                continue;
            }
            queue.busy = true;
            let mut batch = std::mem::take(&mut queue.received);
            drop(queue);
            let log = engine.aggregate().log();
            let mut gather = Some(log.gather());
            while let Some(mut received) = batch.pop_front() {
                let (at, bytes) = (received.at, received.bytes());
                let applied = match try_apply(engine, &mut received) {
                    Ok(None) => {
                        // The event that it waits for may depend on the log.
                        drop(gather.take());
                        let applied = apply(engine, received);
                        gather = Some(log.gather());
                        applied
                    }
                    Ok(Some(lsn)) => Ok(lsn),
                    Err(error) => Err(error),
                };
                if !self.applied(engine, send, at, bytes, applied) {
                    batch.clear();
                }
            }
            drop(gather);
            queue = self.queue.lock();
            queue.busy = false;
            self.rests.notify_all();
        }
    }

    /// Takes the outcome of an entry of `bytes` bytes. Returns true if the next one may follow.
    fn applied(
        &self,
        engine: &Engine,
        send: &Notify,
        at: StreamPosition,
        bytes: usize,
        applied: Result<Lsn, StandbyError>,
    ) -> bool {
        let mut queue = self.queue.lock();
        queue.bytes -= bytes;
        self.room.notify_one();
        let lsn = match applied {
            Ok(lsn) => lsn,
            Err(error) => {
                let why = format!("this copy cannot go on: {error}");
                tracing::error!("{why}");
                queue.failed = Some(why);
                match error {
                    StandbyError::Malformed(_) | StandbyError::Diverged(_) => {
                        queue.again = Some(ResyncBase::Nothing);
                    }
                    StandbyError::NoMark(missing) => {
                        // The next greeting no longer names the mark.
                        if let Err(error) = engine.drop_marks(|mark| mark <= missing) {
                            tracing::error!("cannot drop a mark: {error}");
                            queue.again = Some(ResyncBase::Nothing);
                        }
                    }
                    StandbyError::Gap { .. } | StandbyError::Engine(_) => {}
                }
                queue.received.clear();
                queue.bytes = 0;
                send.notify_one();
                return false;
            }
        };
        queue.applied.push_back((at, lsn));
        queue.last = Some(lsn);
        // Before the check of the durable position, so that either this thread or the log's
        // notifies.
        self.waits.store(true, Ordering::SeqCst);
        drop(queue);
        if self.mode == Mode::Memory || engine.durable() >= lsn {
            send.notify_one();
        }
        true
    }

    /// Returns the maximum number of bytes of pages that may arrive before their entries.
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Begins to write pages to their place before their entry arrives. In memory mode an
    /// acknowledgement waits for no disk, so the pages wait in memory for their entry; they do as
    /// well if there is no space.
    pub fn place(&self, engine: &Engine, pages: Vec<Box<[u8]>>) -> AdvanceState {
        let placing = match self.mode {
            Mode::Durable => engine.place(&pages),
            Mode::Memory => None,
        };
        placing.map_or(AdvanceState::Pages(pages), AdvanceState::Placed)
    }

    /// Takes entries that have arrived together, once there is room.
    ///
    /// # Errors
    /// One of the entries, or an earlier one, could not be applied.
    pub async fn take(
        &self,
        engine: &Engine,
        send: &Notify,
        mut batch: VecDeque<ReceivedEntry>,
    ) -> Result<()> {
        loop {
            {
                let mut queue = self.queue.lock();
                if let Some(why) = queue.failed.take() {
                    bail!("{why}");
                }
                if queue.bytes < self.most {
                    queue.bytes += batch.iter().map(ReceivedEntry::bytes).sum::<usize>();
                    if queue.busy || !queue.received.is_empty() {
                        queue.received.extend(batch);
                        return Ok(());
                    }
                    queue.busy = true;
                    break;
                }
            }
            self.room.notified().await;
        }
        // All entries come on this thread, so none are queued meanwhile.
        let gather = engine.aggregate().log().gather();
        while let Some(mut received) = batch.pop_front() {
            let (at, bytes) = (received.at, received.bytes());
            let applied = match try_apply(engine, &mut received) {
                Ok(None) => {
                    batch.push_front(received);
                    break;
                }
                Ok(Some(lsn)) => Ok(lsn),
                Err(error) => Err(error),
            };
            if !self.applied(engine, send, at, bytes, applied) {
                batch.clear();
            }
        }
        drop(gather);
        let mut queue = self.queue.lock();
        queue.busy = false;
        queue.received.extend(batch);
        if queue.received.is_empty() {
            self.rests.notify_all();
        } else {
            self.more.notify_one();
        }
        Ok(())
    }

    /// Waits until everything that was taken is applied.
    pub fn drain(&self) {
        let mut queue = self.queue.lock();
        while queue.busy || !queue.received.is_empty() {
            self.rests.wait(&mut queue);
        }
        queue.failed = None;
    }

    /// Waits until everything that was acknowledged is durable; blocks.
    ///
    /// # Errors
    /// The log's: it has failed for good.
    pub fn wait_durable(&self, engine: &Engine) -> Result<(), FsError> {
        if self.mode == Mode::Durable {
            // What was acknowledged is durable.
            return Ok(());
        }
        self.drain();
        let last = self.queue.lock().last;
        engine.wait_durable(last)
    }

    /// Marks the copy to be brought up anew: from nothing with `everything`, else from a mark that
    /// both sides hold.
    pub fn begin_again(&self, everything: bool) {
        let from = if everything {
            ResyncBase::Nothing
        } else {
            ResyncBase::Mark
        };
        self.queue.lock().again = Some(from);
    }

    /// Returns the base from which the copy is to be brought up anew, if it is to be.
    pub fn again(&self) -> Option<ResyncBase> {
        self.queue.lock().again
    }

    /// Notes that the copy is at a position in the primary's stream.
    pub fn is_at_a_place(&self) {
        self.queue.lock().again = None;
    }

    /// Returns the reason why this copy cannot follow any more, if there is one. Each reason is
    /// returned once.
    pub fn failure(&self) -> Option<String> {
        self.queue.lock().failed.take()
    }

    /// Returns the term and number of the last entry that can be acknowledged and was not returned
    /// before. In durable mode entries count once they are durable, in memory mode once they are
    /// applied.
    pub fn acknowledge(&self, engine: &Engine) -> Option<(u64, u64)> {
        let durable = engine.durable();
        let mut queue = self.queue.lock();
        let mut last = None;
        let due = |lsn: Lsn| self.mode == Mode::Memory || lsn <= durable;
        while let Some((at, _)) = queue.applied.front().filter(|(_, lsn)| due(*lsn)) {
            last = Some((at.term, at.sequence));
            queue.applied.pop_front();
        }
        if queue.applied.is_empty() {
            self.waits.store(false, Ordering::SeqCst);
        }
        last
    }
}

fn try_apply(engine: &Engine, received: &mut ReceivedEntry) -> Result<Option<Lsn>, StandbyError> {
    let ReceivedEntry {
        at,
        meta,
        pages,
        ahead,
    } = received;
    engine.try_entry(*at, meta, pages, ahead)
}

fn apply(engine: &Engine, received: ReceivedEntry) -> Result<Lsn, StandbyError> {
    let ReceivedEntry {
        at,
        meta,
        pages,
        mut ahead,
    } = received;
    engine.prepare_entry(&meta, pages.len(), ahead.as_mut())?;
    let mut frames = Vec::with_capacity(pages.len());
    for page in pages {
        let mut frame = engine.blank_page()?;
        frame.copy_from_slice(&page);
        frames.push(frame.freeze());
    }
    engine.apply_entry(at, &meta, frames, ahead)
}
