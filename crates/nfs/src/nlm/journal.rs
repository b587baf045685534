//! The durable record of who holds locks: written by a thread of its own, in batches.
//!
//! A host's first lock is granted only when its name is on the disk, and a flush takes as long as the disk likes. So the
//! thread that has the call only puts a line into the current batch and parks the call; the thread that runs
//! [`Journal::keep`] appends batch after batch, each with one flush, and everything that waited for a batch is settled
//! with it. A hundred hosts that arrive during a flush cost one more.
//!
//! The record grows by appending, so it is replaced as a whole when it is much longer than what it says, and after a
//! failed append, which may have left half a line.

use parking_lot::{Condvar, Mutex};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Bytes by which the record may be longer than twice what it says.
const GARBAGE: usize = 64 << 10;

/// Where the record is kept. Implemented with one small file. All calls may block for as long as a disk does; after
/// the start they come from the thread that keeps the record only.
pub trait HostStore: Send + Sync {
    /// The record; `None` if there was none.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the record, durably and atomically.
    ///
    /// # Errors
    /// If that failed; the record is the old one or the new one.
    fn replace(&self, record: &[u8]) -> io::Result<()>;

    /// Appends to the record, durably.
    ///
    /// # Errors
    /// If that failed; any part of `lines` may be there.
    fn append(&self, lines: &[u8]) -> io::Result<()>;
}

#[derive(Default)]
struct Outcome {
    /// Whether the batch was written, once that is known.
    written: Option<bool>,
    waiting: Vec<Waker>,
}

/// What becomes of a batch.
#[derive(Default)]
pub(crate) struct Slip(Mutex<Outcome>);

impl Slip {
    /// Whether the batch was written; `None` while that is not known.
    pub(crate) fn written(&self) -> Option<bool> {
        self.0.lock().written
    }

    fn settle(&self, written: bool) {
        let mut outcome = self.0.lock();
        outcome.written = Some(written);
        outcome.waiting.drain(..).for_each(Waker::wake);
    }

    /// Resolves when the batch was written (true) or could not be.
    pub(crate) fn settled(self: Arc<Self>) -> Settled {
        Settled(self)
    }
}

/// See [`Slip::settled`].
pub(crate) struct Settled(Arc<Slip>);

impl Future for Settled {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut outcome = self.0.0.lock();
        match outcome.written {
            Some(written) => Poll::Ready(written),
            None => {
                if !outcome.waiting.iter().any(|w| w.will_wake(cx.waker())) {
                    outcome.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

#[derive(Default)]
struct State {
    /// Lines of the current batch.
    lines: String,
    slip: Arc<Slip>,
    /// Bytes of the record, and of what it said when it was last replaced.
    length: usize,
    live: usize,
    /// The last append failed.
    broken: bool,
    closed: bool,
}

impl State {
    fn take(&mut self) -> (String, Arc<Slip>) {
        (
            std::mem::take(&mut self.lines),
            std::mem::take(&mut self.slip),
        )
    }
}

/// See the module's head.
pub(crate) struct Journal {
    store: Arc<dyn HostStore>,
    state: Mutex<State>,
    work: Condvar,
}

impl Journal {
    pub(crate) fn new(store: Arc<dyn HostStore>) -> Journal {
        Journal {
            store,
            state: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Reads the record. At the start only: it blocks.
    pub(crate) fn load(&self) -> io::Result<Option<Vec<u8>>> {
        self.store.load()
    }

    /// Replaces the record. At the start only: it blocks.
    pub(crate) fn begin(&self, record: &str) -> io::Result<()> {
        let done = self.store.replace(record.as_bytes());
        let mut state = self.state.lock();
        (state.length, state.live) = (record.len(), record.len());
        state.broken = done.is_err();
        done
    }

    /// Adds lines to the current batch.
    pub(crate) fn add(&self, lines: &str) -> Arc<Slip> {
        let mut state = self.state.lock();
        state.lines.push_str(lines);
        self.work.notify_one();
        Arc::clone(&state.slip)
    }

    /// Writes batches until [`Journal::close`]: for one thread. `whole` returns the record of this moment; it calls its
    /// argument while nothing can be added.
    pub(crate) fn keep(&self, whole: &dyn Fn(&mut dyn FnMut()) -> String) {
        loop {
            {
                let mut state = self.state.lock();
                while state.lines.is_empty() && !state.closed {
                    self.work.wait(&mut state);
                }
                if state.closed && state.lines.is_empty() {
                    return;
                }
            }
            self.write(whole);
        }
    }

    /// Writes the current batch, if there is one.
    pub(crate) fn write(&self, whole: &dyn Fn(&mut dyn FnMut()) -> String) {
        let mut state = self.state.lock();
        if state.lines.is_empty() {
            return;
        }
        let replace = state.broken || state.length + state.lines.len() > 2 * state.live + GARBAGE;
        let (bytes, slip, done);
        if replace {
            drop(state);
            // What is added before this moment is in it, what is added later is in the next batch.
            let mut taken = None;
            bytes = whole(&mut || taken = Some(self.state.lock().take()));
            slip = taken.map(|(_, slip)| slip).unwrap_or_default();
            done = self.store.replace(bytes.as_bytes());
        } else {
            (bytes, slip) = state.take();
            drop(state);
            done = self.store.append(bytes.as_bytes());
        }
        let mut state = self.state.lock();
        match (&done, replace) {
            (Ok(()), true) => {
                (state.length, state.live, state.broken) = (bytes.len(), bytes.len(), false)
            }
            (Ok(()), false) => state.length += bytes.len(),
            (Err(error), _) => {
                tracing::error!(%error, "cannot write the record of lock holders; first locks of hosts are refused");
                state.broken = true;
            }
        }
        drop(state);
        slip.settle(done.is_ok());
    }

    /// Ends [`Journal::keep`], which writes what was added before.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }
}
