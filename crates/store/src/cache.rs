//! The block cache: blocks read from or written to the device, by address.
//!
//! **Identity.** Addresses are reused, so a lookup finds a page only by a pointer that names both
//! its address and its birth. A lookup by an old pointer misses.
//!
//! **Memory.** The cache has no size of its own. It keeps pages for as long as the frame pool has
//! room, and frees clean pages when a caller needs a frame ([`Cache::alloc`]). So dirty pages of
//! the overlay and cached pages share one budget, and no fixed division between them has to be
//! guessed. A page that has another holder (a reply being sent, an operation about to be retried)
//! is not evicted, since that would free nothing.
//!
//! **Replacement** is S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for
//! cache eviction", SOSP 2023). New pages pass through a small queue, and only pages that are
//! requested again move to the main one, so one long scan does not empty the cache. A hit changes
//! one byte; LRU would relink a list under the lock each time.
//!
//! **Locks.** A shard holds groups of 16 neighbouring blocks. So the blocks of one read mostly
//! share a lock, and different reads mostly do not. [`Cache::get_run`] takes a lock once a group.
//!
//! **Reading.** [`Cache::fetch`] joins neighbouring blocks into one device read, and waits for a
//! read in flight instead of repeating it. The task that started a read may be cancelled (its
//! connection closed); the tasks that joined it then read the block themselves. Every block is
//! verified after its read. A failed read of several blocks is repeated block by block, so that one
//! bad block does not take its neighbours with it.
//!
//! **Reading ahead.** [`Cache::read_ahead`] fetches blocks before a request asks for them, within a
//! share of the memory (see `cache/ahead.rs`).

mod ahead;
mod load;
mod shard;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_base::limits::engine::{EVICT_BATCH, EVICT_SEARCH as SEARCH, EVICT_SHARE};
use weir_base::{BlockAddr, Generation};

use crate::block::BlockPtr;
use crate::device::Device;
use crate::frame::{Class, Frame, FrameMut, FramePool};

use ahead::Ahead;
use shard::{Fresh, Shard};

/// Number of shards, a power of two. It is far more than the cores, so that two cores rarely meet.
/// A hit takes 45 to 60 ns (`benches/io.rs`).
const SHARDS: usize = 64;

/// Neighbouring blocks that share a lock and a place in memory, as a power of two: 64 KiB.
const GROUP_BITS: u32 = 4;

#[repr(align(64))]
struct Slot(Mutex<Shard>);

/// The cache of one aggregate's device.
pub struct Cache {
    pool: Arc<FramePool>,
    device: Arc<dyn Device>,
    shards: Box<[Slot]>,
    /// Shard at which the next search for a page to evict begins.
    hand: AtomicUsize,
    ahead: Arc<Ahead>,
    /// Blocks read whose contents did not match their pointer.
    damaged: AtomicU64,
}

/// Counters since the cache was created, and its current size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found their page.
    pub hits: u64,
    /// Lookups that did not find their page.
    pub misses: u64,
    /// Pages in memory now.
    pub pages: usize,
    /// Blocks that read-ahead has fetched.
    pub ahead: u64,
    /// Read-ahead blocks that were dropped without having been requested.
    pub ahead_wasted: u64,
    /// Read-ahead blocks that are in memory or being read, and have not been requested.
    pub ahead_unread: usize,
    /// Blocks read whose contents did not match their pointer.
    pub damaged: u64,
}

impl Cache {
    /// Creates a cache of `device` with the frames of `pool`.
    pub fn new(pool: Arc<FramePool>, device: Arc<dyn Device>) -> Cache {
        let share = pool.total() / SHARDS;
        let ahead = Arc::new(Ahead::new(pool.total()));
        let shards = (0..SHARDS)
            .map(|_| Slot(Mutex::new(Shard::new(share, Arc::clone(&ahead)))))
            .collect();
        Cache {
            pool,
            device,
            shards,
            hand: AtomicUsize::new(0),
            ahead,
            damaged: AtomicU64::new(0),
        }
    }

    /// Returns the device that is cached.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Returns the pool that frames come from.
    pub fn pool(&self) -> &Arc<FramePool> {
        &self.pool
    }

    fn shard(&self, addr: BlockAddr) -> &Mutex<Shard> {
        // Fibonacci hashing of the group; the high bits are well mixed.
        let hash = (addr.0 >> GROUP_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.shard_at((hash >> (64 - SHARDS.trailing_zeros())) as usize)
    }

    fn shard_at(&self, index: usize) -> &Mutex<Shard> {
        debug_assert_eq!(self.shards.len(), SHARDS);
        // SAFETY: there are SHARDS shards, a power of two, and the index is masked.
        unsafe { &self.shards.get_unchecked(index & (SHARDS - 1)).0 }
    }

    /// Returns the page that `ptr` names, if it is in memory.
    pub fn get(&self, ptr: &BlockPtr) -> Option<Frame> {
        self.shard(ptr.addr).lock().get(ptr)
    }

    /// Passes the pages of `count` consecutive blocks from `first` on, all of the same birth, to
    /// `each` in order. This equals [`Cache::get`] for each block at a fraction of the cost. `each`
    /// is called under a lock and must not call the cache. Returns the number of read-ahead pages
    /// found for the first time.
    pub fn get_run(
        &self,
        first: BlockAddr,
        birth: Generation,
        count: u64,
        mut each: impl FnMut(Option<Frame>),
    ) -> usize {
        // Saturates: the address comes from the disk.
        let end = first.0.saturating_add(count);
        let mut at = first.0;
        let mut foreseen = 0;
        while at < end {
            let last = (at | ((1 << GROUP_BITS) - 1)).min(end - 1);
            let mut shard = self.shard(BlockAddr(at)).lock();
            foreseen += shard.get_run(at, last, birth, &mut each);
            at = last + 1;
        }
        foreseen
    }

    /// Keeps `frame`, which has just been written, as the page that `ptr` names. The caller
    /// guarantees the checksum.
    pub fn insert(&self, ptr: BlockPtr, frame: Frame) {
        // A displaced page is dropped outside the lock.
        let displaced = self.shard(ptr.addr).lock().insert(ptr, frame, Fresh::No);
        drop(displaced);
    }

    /// Allocates a frame to write to, evicting clean pages if none is free. Returns `None` if every
    /// page is dirty or in use; the caller then has to wait for a checkpoint or for requests to
    /// end.
    pub fn alloc(&self, class: Class) -> Option<FrameMut> {
        loop {
            if let Some(frame) = self.pool.alloc(class) {
                return Some(frame);
            }
            if self.evict() == 0 {
                // Another thread may have returned a frame during the search.
                return self.pool.alloc(class);
            }
        }
    }

    /// Returns the frames of some clean pages to the pool, and their number: 0 only if no page can
    /// be evicted.
    fn evict(&self) -> usize {
        let mut victims = Vec::with_capacity(EVICT_BATCH);
        // First by merit, for two visits to each shard; then any page that is not in use, however
        // popular.
        for ruthless in [false, true] {
            for _ in 0..2 * SHARDS {
                let at = self.hand.fetch_add(1, Ordering::Relaxed);
                let steps = if ruthless { usize::MAX } else { SEARCH };
                let mut shard = self.shard_at(at).lock();
                let want = EVICT_BATCH.min(shard.len() / EVICT_SHARE + 1);
                shard.evict(want, steps, ruthless, &mut victims);
                drop(shard);
                if !victims.is_empty() {
                    return victims.len();
                }
            }
        }
        0
    }

    /// Drops the pages of `count` blocks from `addr` on: their contents are void.
    pub fn forget(&self, addr: BlockAddr, count: u64) {
        // Saturates: the address comes from the disk.
        for n in addr.0..addr.0.saturating_add(count) {
            let page = self.shard(BlockAddr(n)).lock().remove(n);
            drop(page);
        }
    }

    /// Returns the sums over all shards; each shard is locked for a moment.
    pub fn stats(&self) -> CacheStats {
        let mut sum = self.ahead.stats();
        sum.damaged = self.damaged.load(Ordering::Relaxed);
        for slot in &self.shards {
            let s = slot.0.lock();
            sum.hits += s.hits;
            sum.misses += s.misses;
            sum.pages += s.len();
        }
        sum
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({:?})", self.stats())
    }
}
