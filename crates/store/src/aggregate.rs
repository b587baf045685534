//! The aggregate: device, intent log, cache and allocator under one superblock.
//!
//! **Durability of a checkpoint**, in this order:
//!
//! 1. The checkpoint's data, nodes and map pages are written, to blocks and slots that the previous
//!    checkpoint does not refer to.
//! 2. The log is durable up to the cut, so that the older superblock would find an unbroken log,
//!    too.
//! 3. The device is flushed.
//! 4. The superblock is written to the slot that the previous one did not use, and the device is
//!    flushed. *From this moment the checkpoint is durable.*
//! 5. The superblock's mirror copy is written and flushed.
//!
//! A crash before the end of step 4 leaves the previous checkpoint, and the log from *its* cut on.
//! A crash after it leaves this checkpoint. Log space and blocks that this checkpoint released are
//! handed out only after step 4. Blocks also wait until no reader uses an older root ([`RootPin`]).
//!
//! Slot and mirror are never written at the same time, so a crash tears at most one of them. Damage
//! to both copies of a slot is therefore proof of damage at rest, and opening reports it. The older
//! superblock that is used instead may lack acknowledged data that was not in the log.
//!
//! **Poisoning.** After a failed write or flush the contents of the device are unknown; after a
//! violated invariant the contents of memory are. The aggregate then writes no further log record
//! and no superblock before a restart. The restart begins at the last superblock that is on the
//! device.

mod files;
mod lull;
mod open;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use weir_base::limits::engine::LEAST_GROWTH;
use weir_base::{BLOCK_SIZE, Clock, Generation, Poison, Rng, invariant};

use self::lull::Lull;
use crate::block::BlockPtr;
use crate::cache::Cache;
use crate::checkpoint::CpWriter;
use crate::device::Device;
use crate::error::StoreError;
use crate::features::Feature;
use crate::folder::{FileRole, Folder};
use crate::frame::{Frame, FrameMut, FramePool};
use crate::layout;
use crate::life::RootPin;
use crate::log::{Log, LogCut, LogId};
use crate::space::{Physical, Space, Stats};
use crate::superblock::Superblock;
use crate::tree::{NodeSink, NodeSource, Stop, TreeRoot};
use weir_base::AggregateId;

pub use files::{AggregateDevices, FolderLocation, InspectedAggregate, Location};
pub use open::{Finding, Inspection, Replay};

/// Services that an aggregate uses: memory, time and randomness.
#[derive(Clone)]
pub struct Env {
    /// The pool of page frames for the cache, the log and checkpoints.
    pub pool: Arc<FramePool>,
    /// The source of time; a simulated one in tests.
    pub clock: Arc<dyn Clock>,
    /// The source of the random identities of aggregate and log.
    pub rng: Arc<dyn Rng>,
}

struct Current {
    generation: Generation,
    root: TreeRoot,
    cut: LogCut,
    life: Arc<RootPin>,
    /// Number of the next checkpoint.
    next: Generation,
}

/// An open aggregate: device, intent log, block cache and allocator.
pub struct Aggregate {
    id: AggregateId,
    log_id: LogId,
    device: Arc<dyn Device>,
    log: Arc<Log>,
    cache: Arc<Cache>,
    space: Arc<Space>,
    env: Env,
    current: Mutex<Current>,
    lull: Mutex<Lull>,
    /// True while a checkpoint is being written.
    writing: AtomicBool,
    /// Names of the format features that are on; `None`: all.
    features: Option<Vec<String>>,
    /// The locked folder of the aggregate; `None` if it is not in a folder.
    folder: Option<Folder>,
}

/// Description of an aggregate by its place, besides the devices.
#[derive(Default)]
pub(crate) struct LocationInfo {
    /// Identity that the superblock has to have.
    pub id: Option<AggregateId>,
    /// Names of the format features that are on; `None`: all.
    pub features: Option<Vec<String>>,
    /// The locked folder.
    pub folder: Option<Folder>,
}

impl From<Folder> for LocationInfo {
    fn from(folder: Folder) -> LocationInfo {
        LocationInfo {
            id: Some(folder.id()),
            features: Some(folder.features().to_vec()),
            folder: Some(folder),
        }
    }
}

impl Aggregate {
    /// Returns true if the format feature is on.
    pub fn has_feature(&self, feature: &Feature) -> bool {
        let on = self.features.as_ref();
        on.is_none_or(|on| on.iter().any(|name| name == feature.name))
    }

    /// Returns the aggregate's identity, chosen at random when it was created.
    pub fn id(&self) -> AggregateId {
        self.id
    }

    /// Returns the device that holds data, nodes and map.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The intent log, open for appending.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The cache of the device's blocks.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns the pool of [`Env`] that page frames come from.
    pub fn pool(&self) -> &Arc<FramePool> {
        &self.env.pool
    }

    /// The allocator of the device's blocks.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Returns the clock of [`Env`], simulated in tests.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.env.clock
    }

    /// The source of randomness.
    pub fn rng(&self) -> &Arc<dyn Rng> {
        &self.env.rng
    }

    /// Returns the number of the newest durable checkpoint.
    pub fn generation(&self) -> Generation {
        self.current.lock().generation
    }

    /// Returns the aggregate's own tree in the newest durable checkpoint.
    pub fn root(&self) -> TreeRoot {
        self.current.lock().root
    }

    /// Returns the position from which the log is replayed on top of the newest durable checkpoint.
    pub fn cut(&self) -> LogCut {
        self.current.lock().cut
    }

    /// Returns the pin of the newest durable checkpoint. A reader of that checkpoint's roots has to
    /// hold it for as long as it reads.
    pub fn life(&self) -> Arc<RootPin> {
        Arc::clone(&self.current.lock().life)
    }

    /// Returns a source of nodes that blocks on the device: for checkpoints and tools.
    pub fn source(&self) -> BlockingSource<'_> {
        BlockingSource(&self.cache)
    }

    /// Begins a checkpoint. Only one may be in progress.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`]; [`StoreError::Format`] if a checkpoint is in progress.
    pub fn begin(self: &Arc<Self>) -> Result<CpWriter, StoreError> {
        self.sound()?;
        if self.writing.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Format(
                "a checkpoint is already in progress".into(),
            ));
        }
        self.space.reclaim();
        let generation = self.current.lock().next;
        Ok(CpWriter::new(Arc::clone(self), generation))
    }

    /// Makes a checkpoint durable. `root` is the aggregate's tree; the checkpoint contains the
    /// log's records before `cut`. Blocks until the checkpoint is durable, and returns the pin that
    /// readers of the new roots have to hold.
    ///
    /// # Errors
    /// Any failure poisons the aggregate. The checkpoint may or may not be durable in that case;
    /// the next start finds out.
    pub fn commit(
        &self,
        mut cp: CpWriter,
        root: TreeRoot,
        cut: LogCut,
    ) -> Result<Arc<RootPin>, StoreError> {
        let result = self
            .sound()
            .and_then(|()| self.write_superblock(&mut cp, root, cut));
        if let Err(error) = &result {
            self.poison(&format!("checkpoint {} failed: {error}", cp.generation()));
        }
        cp.done();
        self.writing.store(false, Ordering::Release);
        result
    }

    fn write_superblock(
        &self,
        cp: &mut CpWriter,
        root: TreeRoot,
        cut: LogCut,
    ) -> Result<Arc<RootPin>, StoreError> {
        let generation = cp.generation();
        let freed = cp.close_allocation()?;
        let pages = std::cell::RefCell::new(&mut *cp);
        let map = self.space.write_out(
            generation,
            &mut || pages.borrow_mut().frame(),
            &mut |addr, page| pages.borrow_mut().write(addr, vec![page]),
        )?;
        cp.wait_all()?;
        self.log.wait_written(cut.last())?;
        self.device.flush().wait()?;

        let superblock = Superblock {
            id: self.id,
            generation,
            log: self.log_id,
            cut,
            length: map.length,
            root,
            index: map.index,
        };
        let frames = encode_frames(&superblock, &mut || cp.frame())?;
        let slot = Superblock::slot(generation);
        {
            let now = self.current.lock();
            invariant!(self.guard() => now.generation < generation && slot != Superblock::slot(now.generation), "superblock {generation} is written over {}", now.generation);
            invariant!(self.guard() => now.cut.pos <= cut.pos && now.cut.next <= cut.next, "the log is cut at {cut:?} after {:?}", now.cut);
        }
        let [slot, mirror] = layout::superblock(slot);
        // Last chance: an invariant may have been found violated during the writes.
        self.sound()?;
        self.device.write(slot, frames.clone()).wait()?;
        self.device.flush().wait()?;

        let life = RootPin::new(generation);
        {
            let mut current = self.current.lock();
            let before = std::mem::replace(
                &mut *current,
                Current {
                    generation,
                    root,
                    cut,
                    life: Arc::clone(&life),
                    next: generation.next(),
                },
            );
            drop(current);
            before
                .life
                .succeed(Arc::clone(&life), freed, Arc::clone(&self.space));
        }
        self.log.checkpointed(&cut);

        self.device.write(mirror, frames).wait()?;
        self.device.flush().wait()?;
        self.space.reclaim();
        self.prepare_space();
        Ok(life)
    }

    /// Returns the number of blocks that the device could still grow by; `None` if that is unknown.
    fn growable(&self) -> Option<u64> {
        let stats = self.space.stats();
        let host_free = self.device.host_free()?;
        let taken = match self.device.hints().thin {
            true => stats.free,
            false => 0,
        };
        // Saturates: the maximum may be below the current length, and the host may have less than
        // the device.
        let most = self.device.max_length();
        let beyond = most.saturating_sub(self.device.length());
        let growable = host_free.saturating_sub(taken);
        Some(growable.min(beyond.saturating_add(stats.holes)))
    }

    /// Returns the current physical space: the device's, and the space that the host's file system
    /// can still give to it.
    pub fn physical(&self) -> Physical {
        let stats = self.space.stats();
        let growth = self.growable().unwrap_or(stats.growth);
        let growth = if growth < LEAST_GROWTH { 0 } else { growth };
        // Saturates: the values are informative, and a device may report any size.
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE as u64);
        Physical {
            size: bytes(Stats { growth, ..stats }.capacity()),
            free: bytes(Stats { growth, ..stats }.available()),
        }
    }

    /// Discards a run of free blocks if far more were free for a while than are going to be needed
    /// soon, so the host gets their space. Blocks the calling thread on the device. Returns true if
    /// another call may find more.
    pub fn discard_free(&self) -> bool {
        self.limit_thin();
        let mut lull = self.lull.lock();
        // Before what the last checkpoint freed counts: that is the least that was free.
        let spare = lull.note(self.env.clock.monotonic(), self.space.spare());
        // The next request would do so otherwise, and there may be none.
        self.space.reclaim();
        let free = self.space.spare();
        // Saturates: requests take blocks meanwhile.
        let kept = free.saturating_sub(spare);
        let more = self.sound().is_ok() && self.space.discard(kept + self.space.discard_leaves());
        lull.took(free.saturating_sub(self.space.spare()));
        more
    }

    /// Bounds the space by the host's, if the device has none of its own.
    fn limit_thin(&self) {
        if self.device.hints().thin {
            self.space.limit(self.device.host_free());
        }
    }

    fn prepare_space(&self) {
        self.limit_thin();
        let host_free = self.growable();
        // Enough for all of memory; no more is reserved before the next checkpoint.
        self.space.prepare(host_free, self.env.pool.total() as u64);
    }

    /// Ends a checkpoint that was begun and dropped. If it had `touched` the allocator, the
    /// aggregate is poisoned.
    pub(crate) fn abandoned(&self, touched: bool) {
        if touched {
            self.poison("a checkpoint was given up");
        }
        self.writing.store(false, Ordering::Release);
    }

    /// Refuses all further writes, for `reason`, a text for people. Only the first call counts.
    pub fn poison(&self, reason: &str) {
        if self.guard().set(reason) {
            tracing::error!(aggregate = %self.id, reason, "cannot write to the aggregate; it is read-only until a restart");
        }
    }

    /// Returns the files that the next start needs; none if the aggregate is not in a folder.
    pub fn files(&self) -> Vec<(FileRole, PathBuf)> {
        let folder = self.folder.as_ref();
        folder.map_or_else(Vec::new, |folder| folder.files().into())
    }

    /// Returns the reason why the aggregate is read-only, if it is.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.guard().why().cloned()
    }

    /// Returns the guard that the aggregate's invariants name: see [`weir_base::invariant!`].
    pub fn guard(&self) -> &Arc<Poison> {
        self.log.guard()
    }

    fn sound(&self) -> Result<(), StoreError> {
        match self.poisoned() {
            Some(reason) => Err(StoreError::Poisoned(reason)),
            None => Ok(()),
        }
    }
}

/// A source of nodes that blocks on the device: see [`Aggregate::source`].
#[derive(Clone, Copy)]
pub struct BlockingSource<'a>(&'a Cache);

impl NodeSource for BlockingSource<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        if let Some(frame) = self.0.get(ptr) {
            return Ok(frame);
        }
        let mut frames = self.0.fetch_blocking(&[*ptr]).map_err(Stop::Fail)?;
        frames.pop().ok_or(Stop::Fail(StoreError::NoMemory))
    }

    fn prefetch(&self, ptrs: &[BlockPtr]) {
        // The failure is reported when the node itself is read.
        let _ = self.0.fetch_blocking(ptrs);
    }
}

/// Encodes a superblock into frames for the device.
fn encode_frames(
    superblock: &Superblock,
    frame: &mut dyn FnMut() -> Result<FrameMut, StoreError>,
) -> Result<Vec<Frame>, StoreError> {
    let bytes = superblock
        .encode()
        .ok_or_else(|| StoreError::Format("the device is larger than 124 TiB".into()))?;
    let page = |bytes: &[u8]| {
        let mut page = frame()?;
        page.copy_from_slice(bytes);
        Ok(page.freeze())
    };
    bytes.chunks_exact(BLOCK_SIZE).map(page).collect()
}
