//! Applies what the primary sends, in order, on a thread of its own: an entry may have to wait for the disk, and beats must not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use weir_base::{BLOCK_SIZE, Lsn};
use weir_volume::{Engine, StandbyError, StreamPosition};

/// Bytes that may have been received and not applied: of the memory for page frames this part, and the most. An eighth of all memory is left
/// for what is on the heap.
const SHARE: usize = 64;
const MOST: usize = 16 << 20;

/// An entry as it came.
pub struct Received {
    pub at: StreamPosition,
    pub meta: Vec<u8>,
    pub pages: Vec<Box<[u8]>>,
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
    /// One is being applied.
    busy: bool,
    /// Applied, and not known to be durable.
    applied: VecDeque<(StreamPosition, Lsn)>,
    failed: Option<String>,
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
    /// With `queue`: there is more, or nothing any more.
    changed: Condvar,
    room: Notify,
    /// Something that was applied is not known to be durable.
    waits: AtomicBool,
    /// Bytes that may have been received and not applied.
    most: usize,
}

impl Standby {
    /// Whether the log's progress is waited for.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }

    /// Begins; `send` rings when there may be something to acknowledge.
    pub fn start(engine: &Arc<Engine>, send: &Arc<Notify>) -> Result<Arc<Standby>> {
        let standby = Arc::new(Standby {
            queue: Mutex::default(),
            changed: Condvar::new(),
            room: Notify::new(),
            waits: AtomicBool::new(false),
            most: (engine.aggregate().cache().pool().total() * BLOCK_SIZE / SHARE).min(MOST),
        });
        let (runs, engine, send) = (Arc::clone(&standby), Arc::clone(engine), Arc::clone(send));
        std::thread::Builder::new()
            .name("weir-standby".to_owned())
            .spawn(move || runs.run(&engine, &send))?;
        Ok(standby)
    }

    fn run(&self, engine: &Engine, send: &Notify) {
        let mut queue = self.queue.lock();
        loop {
            let Some(received) = queue.received.pop_front() else {
                queue.busy = false;
                self.changed.notify_all();
                self.changed.wait(&mut queue);
                continue;
            };
            queue.busy = true;
            drop(queue);
            let (at, bytes) = (received.at, received.bytes());
            let applied = apply(engine, received);
            queue = self.queue.lock();
            queue.bytes -= bytes;
            self.room.notify_one();
            match applied {
                Ok(lsn) => {
                    queue.applied.push_back((at, lsn));
                    // Before the look at what is durable: either this or the log's thread rings.
                    self.waits.store(true, Ordering::SeqCst);
                }
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
                }
            }
            if engine.durable() >= queue.applied.back().map_or(Lsn(u64::MAX), |(_, lsn)| *lsn) {
                send.notify_one();
            }
        }
    }

    /// Takes an entry, once there is room.
    ///
    /// # Errors
    /// One before could not be applied.
    pub async fn take(&self, received: Received) -> Result<()> {
        loop {
            {
                let mut queue = self.queue.lock();
                if let Some(why) = queue.failed.take() {
                    bail!("{why}");
                }
                if queue.bytes < self.most {
                    queue.bytes += received.bytes();
                    queue.received.push_back(received);
                    self.changed.notify_all();
                    return Ok(());
                }
            }
            self.room.notified().await;
        }
    }

    /// Waits until everything that was taken is applied.
    pub fn drain(&self) {
        let mut queue = self.queue.lock();
        while queue.busy || !queue.received.is_empty() {
            self.changed.wait(&mut queue);
        }
        queue.failed = None;
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

    /// Term and number of the last entry that has become durable since this was called last.
    pub fn acknowledge(&self, engine: &Engine) -> Option<(u64, u64)> {
        let durable = engine.durable();
        let mut queue = self.queue.lock();
        let mut last = None;
        while let Some((at, _)) = queue.applied.front().filter(|(_, lsn)| *lsn <= durable) {
            last = Some((at.term, at.sequence));
            queue.applied.pop_front();
        }
        if queue.applied.is_empty() {
            self.waits.store(false, Ordering::SeqCst);
        }
        last
    }
}

fn apply(engine: &Engine, received: Received) -> Result<Lsn, StandbyError> {
    let Received { at, meta, pages } = received;
    engine.prepare_entry(&meta, pages.len())?;
    let mut frames = Vec::with_capacity(pages.len());
    for page in pages {
        let mut frame = engine.blank_page()?;
        frame.copy_from_slice(&page);
        frames.push(frame.freeze());
    }
    engine.apply_entry(at, &meta, frames)
}
