//! Direct writes: large stable data is written in place at once.
//!
//! Through the log such data is written twice, there and in place. A checkpoint would write it
//! once. But a request that waits for the checkpoint waits for everything else that it writes, and
//! the device idles until enough requests wait. So, as ZFS does with its indirect log blocks, the
//! data is written to blocks allocated for it, several requests at a time. One flush makes all
//! completed writes durable ([`weir_store::DirectWriteBatcher`]). Only then a record with the
//! location and the checksums goes to the log. The next checkpoint takes the blocks into the tree
//! instead of writing the data again.
//!
//! A WRITE is direct if the log has a backlog or other direct writes are in progress. A single
//! WRITE gets its reply through the log in a third of the time. The log takes one durable write,
//! and the device has time to write the data once more.
//!
//! A partner gets the data when its local write starts ([`weir_store::log::advance`]), and writes
//! it in place meanwhile. While the partner is not connected, all data goes through the log. With
//! 24 writes of 64 KiB at a time, on two disks of 240 MB/s and over a link of 0.5 ms, a pair is as
//! fast as one node, within 2 %. Through both logs it had 0.87 of that rate.
//!
//! **The record comes last.** A durable record implies that its data is durable. So recovery does
//! not even read the data: a block that does not match its checksum when it is read is damaged,
//! like one of a tree. And small operations, which share batches of the log with the record, never
//! wait for data.
//!
//! **Ownership of the blocks.** They are allocated until a checkpoint takes them. They are in no
//! map, so a crash frees them.
//!
//! 1. Until the record is in the log a [`Direct`] owns them. If it is dropped because its client is
//!    gone they are free at once. If data may still be in flight to them, they are free when the
//!    next checkpoint has waited for it ([`Stray`]).
//! 2. Then pages of the overlay own them ([`PlacedPage`]). A page that is overwritten, cut off or
//!    removed before the checkpoint leaves them to its delta. The log still refers to them, so they
//!    must not be reallocated until the log is cut behind the record. That is the case when the
//!    delta's checkpoint is durable ([`CpWriter::unused`](weir_store::CpWriter::unused)), because
//!    the record was appended in the same epoch.
//! 3. Recovery marks the blocks that the log refers to as allocated before anything is allocated.
//!    Its pages are on the device only. A reader of one holds the volume's root of that moment, as
//!    for a block of the tree. Blocks that become unused wait, with those that the same checkpoint
//!    frees, until no reader holds it ([`weir_store::RootPin`]).

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
use weir_store::log::advance::{AdvancedPages, InAdvance};
use weir_store::{DirectWriteBatcher, Frame, Io, IoError, StoreError};

use crate::format::record::PlacedPage;
use crate::overlay::file_delta::Page;
use crate::overlay::reservation::Reservation;

/// The direct writes of all volumes.
pub(crate) struct Placements {
    agg: Arc<Aggregate>,
    /// Threads that make direct writes durable; `None` without background threads.
    batcher: Option<DirectWriteBatcher>,
    /// Number of requests whose direct write is in progress, or complete and not in the log.
    sending: AtomicU64,
    /// Backlog of the log in bytes from which on large stable data is written in place.
    behind: u64,
    /// Reserved blocks that data may still be in flight to although no request waits for it.
    strays: Mutex<Vec<Stray>>,
    /// Reserved blocks that the log refers to, and no overlay of the current epoch.
    unused: Mutex<Vec<(BlockAddr, u32)>>,
}

impl Placements {
    /// Creates the state. `background`: with threads that make data durable.
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

    /// Returns true if large stable data is written in place, and not through the log.
    pub(crate) fn sends(&self) -> bool {
        let log = self.agg.log();
        (!log.ships() || log.advances())
            && (self.sending.load(Ordering::Relaxed) > 0 || log.queued() >= self.behind)
    }

    /// Takes the blocks whose requests were dropped. Called by checkpoints.
    pub(crate) fn take_strays(&self) -> Vec<Stray> {
        std::mem::take(&mut *self.strays.lock())
    }

    /// Adds allocated blocks that the log refers to and no overlay owns.
    pub(crate) fn leave_unused(&self, blocks: impl IntoIterator<Item = (BlockAddr, u32)>) {
        self.unused.lock().extend(blocks);
    }

    /// Takes the unused blocks. Called by checkpoints while the epoch lock is held exclusively.
    pub(crate) fn take_unused(&self) -> Vec<(BlockAddr, u32)> {
        std::mem::take(&mut *self.unused.lock())
    }
}

/// A file block that has been written in place.
pub(crate) struct DirectBlock {
    pub(crate) block: u64,
    pub(crate) frame: Frame,
    pub(crate) placed: PlacedPage,
}

/// A direct write in progress, or complete: see the module's head.
pub(crate) struct Direct {
    of: Arc<Placements>,
    runs: Vec<(BlockAddr, u32)>,
    sent: Vec<DirectBlock>,
    /// Bytes of a write before and after its whole blocks.
    pub(crate) edges: (Box<[u8]>, Box<[u8]>),
    /// Set if the partner has been sent the pages.
    advanced: Option<AdvancedPages>,
    way: Way,
}

/// Progress of a direct write.
enum Way {
    /// A thread writes the data and makes it durable.
    Settling(Io<()>),
    /// The data is being written; the waiting request makes it durable.
    Writing(VecDeque<Io<()>>),
    Durable,
}

impl Way {
    /// Waits until the data is durable.
    async fn go(&mut self, agg: &Aggregate) -> Result<(), IoError> {
        match self {
            Way::Settling(io) => io.await?,
            Way::Writing(writes) => {
                // A completed write is removed from the list, so that it is not awaited again.
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

/// Blocks without an owner, and the writes to them that are still in flight.
pub(crate) struct Stray {
    way: Way,
    runs: Vec<(BlockAddr, u32)>,
}

impl Stray {
    /// Waits for the writes, blocking, and frees the blocks.
    pub(crate) fn wait_and_free(self, agg: &Aggregate) -> Result<(), StoreError> {
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
    /// Begins to write the pages of these file blocks, at least one. Returns `None` if no blocks
    /// can be allocated without waiting; `reservation` covers them.
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
                    let placed = PlacedPage {
                        addr: BlockAddr(addr),
                        crc: page_crc(&frame),
                    };
                    sent.push(DirectBlock {
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

    /// Waits until the data is durable. On failure the contents of the device are unknown.
    pub(crate) async fn land(&mut self) -> Result<(), IoError> {
        self.way.go(&self.of.agg).await
    }

    /// Returns true if the data is durable, or the error of its write.
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

    /// Returns the reference for an entry that has the pages from its page `first` on.
    pub(crate) fn in_advance(&self, first: usize) -> Option<InAdvance> {
        let advanced = self.advanced.as_ref()?;
        Some(advanced.within(first))
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Returns the written blocks, in order. All of them must be durable.
    pub(crate) fn sent(&self) -> &[DirectBlock] {
        assert!(
            matches!(self.way, Way::Durable),
            "a record must not come before its data"
        );
        &self.sent
    }

    /// Hands the blocks to the caller, after the record has been appended to the log.
    pub(crate) fn taken(mut self) -> Vec<DirectBlock> {
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

impl DirectBlock {
    /// Returns it as a block of a file whose block `first` is the first of these.
    pub(crate) fn behind(self, first: u64) -> DirectBlock {
        DirectBlock {
            block: first + self.block,
            ..self
        }
    }

    /// Returns the file block and its location.
    pub(crate) fn place(&self) -> (u64, PlacedPage) {
        (self.block, self.placed)
    }

    /// Returns it as a page of an overlay: the log has its location.
    pub(crate) fn page(self) -> (u64, Page) {
        (self.block, Page::placed(Some(self.frame), self.placed))
    }
}

/// Returns the whole blocks among the bytes from `off` to `end`.
pub(crate) fn whole_blocks(off: u64, end: u64) -> std::ops::Range<u64> {
    let block = BLOCK_SIZE as u64;
    off.div_ceil(block)..end / block
}
