//! Large data that has to be stable goes to its place at once.
//!
//! Through the log such data is written twice, there and to its place. Left to a checkpoint
//! it is written once, but a request that waits for it waits for everything else that the
//! checkpoint writes, and the device rests until enough wait. So, as ZFS does with its
//! indirect log blocks, the data is written to blocks that are allocated for it, several requests
//! at a time; one flush covers all whose data has arrived ([`weir_store::DirectWriteBatcher`]); and only then
//! a record goes to the log that says where the data is, with its checksums. The next checkpoint
//! takes the blocks into the tree instead of writing them again.
//!
//! A WRITE goes that way when the log has fallen behind or others go that way already: one that is
//! alone has its reply in a third of the time through the log, which takes one write that is
//! durable by itself, and the device has time to write the data once more. A partner gets the data when it sets out for its place here
//! ([`weir_store::log::advance`]), and writes it to a place of its own meanwhile; while it is not connected, all data goes through the log. Of 24 writes of 64 KiB at a time, on two disks
//! of 240 MB/s and over a link of 0.5 ms, a pair so does as many as one node, within 2 %; through both logs it did 0.87 of them.
//!
//! **Why the record comes last.** A record that is durable says that its data is. So
//! recovery does not even read it: a block that does not match its checksum when it is read
//! is damage, and is treated as damage in a tree is. And small operations, which share
//! batches of the log with the record, never wait for data.
//!
//! **Ownership of the blocks.** They are allocated until a checkpoint takes them: in no map,
//! so that a crash frees them by itself.
//!
//! 1. Until the record is in the log a [`Direct`] owns them. If it is dropped (the client is
//!    gone) they are free at once, or, if data may still be on its way to them, when the
//!    next checkpoint has waited for it ([`Stray`]).
//! 2. Then pages of the overlay own them ([`Placed`]). A page that is overwritten, cut off or
//!    removed before the checkpoint leaves them to its delta: the log still
//!    refers to them, so they must not be allocated again until the log is cut behind
//!    the record. That is when the checkpoint is durable to which the delta
//!    belongs ([`CpWriter::unused`](weir_store::CpWriter::unused)), for the record was
//!    appended in the same epoch.
//! 3. Recovery marks what the log refers to as allocated before anything is allocated. Its pages
//!    are on the device only. A reader of one holds the volume's root of that moment, as for a
//!    block of the tree; and blocks that become unused wait with those that the same checkpoint
//!    frees until no reader holds it ([`weir_store::RootPin`]).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use weir_base::limits::engine::DIRECT_RUN as SHORTEST_RUN;
pub(crate) use weir_base::limits::engine::{
    CHECKPOINT_WRITE as LONGEST_WRITE, DIRECT_LEAST as LARGE,
};
use weir_base::{BLOCK_SIZE, BlockAddr};
use weir_store::aggregate::Aggregate;
use weir_store::block::page_crc;
use weir_store::log::advance::{Advanced, InAdvance};
use weir_store::{DirectWriteBatcher, Frame, Io, IoError, StoreError};

use crate::format::record::Placed;
use crate::overlay::file_delta::Page;
use crate::overlay::reservation::Reservation;

/// What is written to its place, of all volumes.
pub(crate) struct Placements {
    agg: Arc<Aggregate>,
    /// Makes such data durable; none if there is no thread for it.
    batcher: Option<DirectWriteBatcher>,
    /// Requests whose data is on its way to its place, or there and not in the log.
    sending: AtomicU64,
    /// Bytes that the log may be behind before large stable data goes to its place.
    behind: u64,
    /// Reserved blocks to which data may still be on its way though no request waits for it.
    strays: Mutex<Vec<Stray>>,
    /// Reserved blocks that the log refers to, and no overlay of the current epoch.
    unused: Mutex<Vec<(BlockAddr, u32)>>,
}

impl Placements {
    /// `background`: with a thread that makes data durable.
    pub(crate) fn new(
        agg: &Arc<Aggregate>,
        background: bool,
        behind: u64,
    ) -> Result<Arc<Placements>, StoreError> {
        let start = || DirectWriteBatcher::start(Arc::clone(agg.device()));
        let batcher = background.then(start).transpose();
        let failed = |e| StoreError::Format(format!("cannot start a thread: {e}").into());
        Ok(Arc::new(Placements {
            agg: Arc::clone(agg),
            batcher: batcher.map_err(failed)?,
            sending: AtomicU64::new(0),
            behind,
            strays: Mutex::default(),
            unused: Mutex::default(),
        }))
    }

    /// Whether large stable data goes to its place at once, and not through the log.
    pub(crate) fn sends(&self) -> bool {
        let log = self.agg.log();
        (!log.ships() || log.advances())
            && (self.sending.load(Ordering::Relaxed) > 0 || log.queued() >= self.behind)
    }

    /// Takes the blocks whose owning requests are gone. Called by checkpoints.
    pub(crate) fn take_strays(&self) -> Vec<Stray> {
        std::mem::take(&mut *self.strays.lock())
    }

    /// These allocated blocks, to which the log refers, are no overlay's.
    pub(crate) fn leave_unused(&self, blocks: impl IntoIterator<Item = (BlockAddr, u32)>) {
        self.unused.lock().extend(blocks);
    }

    /// Takes them. Called by checkpoints while the epoch lock is held exclusively.
    pub(crate) fn take_unused(&self) -> Vec<(BlockAddr, u32)> {
        std::mem::take(&mut *self.unused.lock())
    }
}

/// A file block that has been written to a place of its own.
pub(crate) struct Sent {
    pub(crate) block: u64,
    pub(crate) frame: Frame,
    pub(crate) placed: Placed,
}

/// Data on its way to allocated blocks, or there; see the module's head.
pub(crate) struct Direct {
    of: Arc<Placements>,
    runs: Vec<(BlockAddr, u32)>,
    sent: Vec<Sent>,
    /// Bytes of a write before and behind its whole blocks.
    pub(crate) edges: (Box<[u8]>, Box<[u8]>),
    /// The partner has been sent it.
    advanced: Option<Advanced>,
    way: Way,
}

/// How far data has come.
enum Way {
    /// A thread writes it and makes it durable.
    Settling(Io<()>),
    /// Being written; the request that waits for it makes it durable.
    Writing(VecDeque<Io<()>>),
    Durable,
}

impl Way {
    /// Waits until it is durable.
    async fn go(&mut self, agg: &Aggregate) -> Result<(), IoError> {
        match self {
            Way::Settling(io) => io.await?,
            Way::Writing(writes) => {
                // One that is complete is taken off the list, so that it is not waited for again.
                while let Some(io) = writes.front_mut() {
                    io.await?;
                    writes.pop_front();
                }
                agg.device().flush().await?;
            }
            Way::Durable => {}
        }
        *self = Way::Durable;
        Ok(())
    }
}

/// Blocks whose owner is gone, and what is still being written to them.
pub(crate) struct Stray {
    way: Way,
    runs: Vec<(BlockAddr, u32)>,
}

impl Stray {
    /// Waits for the writes, blocking, and frees the blocks.
    pub(crate) fn settle(self, agg: &Aggregate) -> Result<(), StoreError> {
        match self.way {
            Way::Settling(io) => io.wait()?,
            Way::Writing(writes) => writes.into_iter().try_for_each(Io::wait)?,
            Way::Durable => {}
        }
        for (addr, count) in self.runs {
            agg.space().abandon(addr, count);
        }
        Ok(())
    }
}

impl Direct {
    /// Begins to write the pages of these file blocks, at least one. `None` if there are no
    /// blocks to be had without waiting; `reservation` covers them.
    pub(crate) fn begin(
        of: &Arc<Placements>,
        reservation: &mut Reservation<'_>,
        pages: Vec<(u64, Frame)>,
    ) -> Option<Direct> {
        let count = u32::try_from(pages.len()).ok()?;
        if !reservation.covers(u64::from(count)) {
            return None;
        }
        let most = pages.len().div_ceil(SHORTEST_RUN);
        let runs = of.agg.space().allocate_reserved(count, most)?;
        reservation.spent(u64::from(count));
        let mut pages = pages.into_iter();
        let mut sent = Vec::with_capacity(count as usize);
        let mut pieces = VecDeque::with_capacity(1);
        for (start, count) in &runs {
            let mut at = start.0;
            let end = at + u64::from(*count);
            while at < end {
                let len = (end - at).min(LONGEST_WRITE as u64);
                let mut frames = Vec::with_capacity(len as usize);
                for (addr, (block, frame)) in (at..at + len).zip(pages.by_ref()) {
                    frames.push(frame.clone());
                    let placed = Placed {
                        addr: BlockAddr(addr),
                        crc: page_crc(&frame),
                    };
                    sent.push(Sent {
                        block,
                        frame,
                        placed,
                    });
                }
                assert_eq!(frames.len() as u64, len, "as many blocks as pages");
                pieces.push_back((BlockAddr(at), frames));
                at += len;
            }
        }
        of.sending.fetch_add(1, Ordering::Relaxed);
        Some(Direct {
            of: Arc::clone(of),
            runs,
            sent,
            edges: Default::default(),
            advanced: None,
            way: match &of.batcher {
                Some(batcher) => Way::Settling(batcher.write(pieces)),
                None => {
                    let write = |(addr, frames)| of.agg.device().write(addr, frames);
                    Way::Writing(pieces.into_iter().map(write).collect())
                }
            },
        })
    }

    /// Waits until the data is durable. If that fails, the contents of the device are unknown.
    pub(crate) async fn land(&mut self) -> Result<(), IoError> {
        self.way.go(&self.of.agg).await
    }

    /// Whether the data is durable, or has failed to become so.
    pub(crate) fn landed(&mut self) -> Result<bool, IoError> {
        let mut landing = pin!(self.land());
        let mut task = Context::from_waker(Waker::noop());
        match landing.as_mut().poll(&mut task) {
            Poll::Ready(landed) => landed.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Sends the pages to the partner, if there is one: their entry will follow.
    pub(crate) fn advance(&mut self) {
        let log = self.of.agg.log();
        if log.ships() {
            let pages = self.sent.iter();
            self.advanced = log.advance(pages.map(|sent| (sent.frame.clone(), sent.placed.crc)));
        }
    }

    /// What the entry says of them that has them from its page `first` on.
    pub(crate) fn in_advance(&self, first: usize) -> Option<InAdvance> {
        let advanced = self.advanced.as_ref()?;
        Some(advanced.within(first))
    }

    /// How many pages it is.
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// What was written, in order, if all of it is durable.
    pub(crate) fn sent(&self) -> &[Sent] {
        assert!(
            matches!(self.way, Way::Durable),
            "a record must not come before its data"
        );
        &self.sent
    }

    /// The record is in the log: the blocks belong to the caller from now on.
    pub(crate) fn taken(mut self) -> Vec<Sent> {
        self.runs.clear();
        if let Some(advanced) = self.advanced.take() {
            advanced.used();
        }
        std::mem::take(&mut self.sent)
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.of.sending.fetch_sub(1, Ordering::Relaxed);
        let runs = std::mem::take(&mut self.runs);
        if runs.is_empty() || self.of.agg.guard().is_set() {
            return;
        }
        match std::mem::replace(&mut self.way, Way::Durable) {
            Way::Durable => {
                for (addr, count) in runs {
                    self.of.agg.space().abandon(addr, count);
                }
            }
            way => self.of.strays.lock().push(Stray { way, runs }),
        }
    }
}

impl Sent {
    /// As of a file whose block `first` is the first of these.
    pub(crate) fn behind(self, first: u64) -> Sent {
        Sent {
            block: first + self.block,
            ..self
        }
    }

    /// The file block and where it is.
    pub(crate) fn place(&self) -> (u64, Placed) {
        (self.block, self.placed)
    }

    /// As a page of an overlay: the log says where it is.
    pub(crate) fn page(self) -> (u64, Page) {
        (self.block, Page::placed(Some(self.frame), self.placed))
    }
}

/// The whole blocks among the bytes from `off` to `end`.
pub(crate) fn whole_blocks(off: u64, end: u64) -> std::ops::Range<u64> {
    let block = BLOCK_SIZE as u64;
    off.div_ceil(block)..end / block
}
