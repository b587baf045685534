//! Applies what the primary sends, in order. The thread that has received an entry applies it if
//! nothing has to be waited for, as almost always; entries that have to wait for the disk, and
//! those behind them, go to a thread of their own, since beats must not wait.
//!
//! Entries that have come together are [gathered](weir_store::log::Log::gather): this side's log
//! writes them with one write, and they are acknowledged together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use weir_base::{BLOCK_SIZE, Lsn};
use weir_volume::{Ahead, Engine, FsError, StandbyError, StreamPosition};

use super::advance::Held;
use super::config::Mode;

/// Bytes that may have been received and not applied: of the memory for page frames this part, and
/// the most. An eighth of all memory is left for what is on the heap.
const SHARE: usize = 64;
const MOST: usize = 16 << 20;
/// The same of pages that may have come before their entries. They are in page frames, on their way
/// to their place, unless there are none or entries are acknowledged when they have come. The most
/// is twice what 256 writes of 64 KiB are: of those a pair lost 15 % with a fourth of it, and loses
/// 2 % (docs/operating/mirror.md).
const SHARE_AHEAD: usize = 16;
const MOST_AHEAD: usize = 32 << 20;

/// An entry as it came.
pub struct Received {
    pub at: StreamPosition,
    pub meta: Vec<u8>,
    pub pages: Vec<Box<[u8]>>,
    /// Others, which came before it and are on their way to their place.
    pub ahead: Option<Ahead>,
}

impl Received {
    fn bytes(&self) -> usize {
        self.meta.len() + self.pages.len() * BLOCK_SIZE + 64
    }
}

#[derive(Default)]
struct Queue {
    received: VecDeque<Received>,
    bytes: usize,
    /// Some are being applied that are not in the queue any more, by the thread that received them
    /// or by the other.
    busy: bool,
    /// Applied, and not known to be durable.
    applied: VecDeque<(StreamPosition, Lsn)>,
    failed: Option<String>,
    /// The record of the last entry that was applied.
    last: Option<Lsn>,
    /// The copy is to be brought up anew, whatever its position says.
    again: Option<Again>,
}

/// From where a copy is brought up anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// A mark that both sides hold.
    Mark,
    /// Nothing.
    Nothing,
}

/// See the module's head.
pub struct Standby {
    queue: Mutex<Queue>,
    /// With `queue`: there is something for the thread.
    more: Condvar,
    /// With `queue`: nothing is being applied.
    rests: Condvar,
    room: Notify,
    /// Something that was applied is not known to be durable.
    waits: AtomicBool,
    /// Bytes that may have been received and not applied.
    most: usize,
    /// Bytes that may have come before their entries.
    ahead: u32,
    /// What is acknowledged.
    mode: Mode,
}

impl Standby {
    /// Whether the log's progress is waited for.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }

    /// Begins; `send` rings when there may be something to acknowledge.
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
                        // What it waits for may wait for the log.
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

    /// What became of an entry of so many bytes; returns whether the next one may follow.
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
                        queue.again = Some(Again::Nothing);
                    }
                    StandbyError::NoMark(missing) => {
                        // It is not named in the next greeting.
                        if let Err(error) = engine.drop_marks(|mark| mark <= missing) {
                            tracing::error!("a mark cannot be dropped: {error}");
                            queue.again = Some(Again::Nothing);
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
        // Before the look at what is durable: either this or the log's thread rings.
        self.waits.store(true, Ordering::SeqCst);
        drop(queue);
        if self.mode == Mode::Memory || engine.durable() >= lsn {
            send.notify_one();
        }
        true
    }

    /// Bytes of pages that may have come before their entries.
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Has pages written to their place that an entry will refer to. What is acknowledged when it
    /// has been received waits for no disk, so they wait for the entry then; and so they do if
    /// there is no space.
    pub fn place(&self, engine: &Engine, pages: Vec<Box<[u8]>>) -> Held {
        let placing = match self.mode {
            Mode::Durable => engine.place(&pages),
            Mode::Memory => None,
        };
        placing.map_or(Held::Pages(pages), Held::Placed)
    }

    /// Takes entries that have come together, once there is room.
    ///
    /// # Errors
    /// One, or one before them, could not be applied.
    pub async fn take(
        &self,
        engine: &Engine,
        send: &Notify,
        mut batch: VecDeque<Received>,
    ) -> Result<()> {
        loop {
            {
                let mut queue = self.queue.lock();
                if let Some(why) = queue.failed.take() {
                    bail!("{why}");
                }
                if queue.bytes < self.most {
                    queue.bytes += batch.iter().map(Received::bytes).sum::<usize>();
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
    /// The log's: it never will be.
    pub fn settle(&self, engine: &Engine) -> Result<(), FsError> {
        if self.mode == Mode::Durable {
            // What was acknowledged is durable.
            return Ok(());
        }
        self.drain();
        let last = self.queue.lock().last;
        engine.wait_durable(last)
    }

    /// The copy is brought up anew.
    pub fn begin_again(&self, everything: bool) {
        let from = if everything {
            Again::Nothing
        } else {
            Again::Mark
        };
        self.queue.lock().again = Some(from);
    }

    /// Whether it is to be.
    pub fn again(&self) -> Option<Again> {
        self.queue.lock().again
    }

    /// It is at a place of the primary's stream.
    pub fn is_at_a_place(&self) {
        self.queue.lock().again = None;
    }

    /// Why this copy cannot go on, if so. Told once.
    pub fn failure(&self) -> Option<String> {
        self.queue.lock().failed.take()
    }

    /// Term and number of the last entry that has become durable since this was called last, or was
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

fn try_apply(engine: &Engine, received: &mut Received) -> Result<Option<Lsn>, StandbyError> {
    let Received {
        at,
        meta,
        pages,
        ahead,
    } = received;
    engine.try_entry(*at, meta, pages, ahead)
}

fn apply(engine: &Engine, received: Received) -> Result<Lsn, StandbyError> {
    let Received {
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
