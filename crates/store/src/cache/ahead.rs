//! Read-ahead: fetching blocks before a request asks for them.
//!
//! A caller that foresees a read calls [`Cache::read_ahead`], and does not wait for it. The blocks
//! enter the cache as pages that are evicted first. A request that arrives during the read joins
//! it. A failure is not reported: the request that needs the block repeats the read and reports the
//! error.
//!
//! **Bounds.** Unread read-ahead takes up at most one part in [`SHARE`] of the page frames. The
//! streams of requests share that by a dynamic threshold (Choudhury and Hahne: "Dynamic queue
//! length thresholds in a shared-memory packet switch", 1998). Each may have read ahead half of the
//! free room ([`Cache::ahead_room`]). So a single stream gets a third, sixteen get an eighteenth
//! each, a new one always finds room, and no stream has to be counted.
//!
//! **Dropping.** Blocks that are never requested must not fill that share for ever. Read-ahead is
//! remembered in order. Once twice the share was read after a block, or no room is left, the oldest
//! unread blocks are dropped.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_base::limits::engine::{
    AHEAD_LEAST as LEAST, AHEAD_MOST as MOST, AHEAD_READ as RUN, AHEAD_SHARE as SHARE,
};
use weir_base::{BlockAddr, Generation, invariant};

use super::load::{Duty, Load};
use super::{Cache, CacheStats};
use crate::block::BlockPtr;
use crate::frame::Class;
use crate::task::detach;

/// Neighbouring blocks that were read ahead together.
#[derive(Clone, Copy)]
struct Span {
    first: BlockAddr,
    birth: Generation,
    count: usize,
}

/// Read-ahead spans, oldest first.
#[derive(Default)]
struct Order {
    spans: VecDeque<Span>,
    blocks: usize,
}

/// Accounting of read-ahead.
pub(super) struct Ahead {
    /// Maximum number of unread blocks.
    limit: usize,
    unread: AtomicUsize,
    read: AtomicU64,
    wasted: AtomicU64,
    order: Mutex<Order>,
}

impl Ahead {
    /// Creates the accounting for a pool of `frames` frames.
    pub fn new(frames: usize) -> Ahead {
        Ahead {
            limit: (frames / SHARE).min(MOST),
            unread: AtomicUsize::new(0),
            read: AtomicU64::new(0),
            wasted: AtomicU64::new(0),
            order: Mutex::default(),
        }
    }

    fn begun(&self, blocks: usize) {
        self.unread.fetch_add(blocks, Ordering::Relaxed);
        self.read.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    /// Notes that `blocks` read-ahead blocks have been requested.
    pub fn asked_for(&self, blocks: usize) {
        let before = self.unread.fetch_sub(blocks, Ordering::Relaxed);
        debug_assert!(before >= blocks, "{blocks} of {before} unread blocks");
    }

    /// Notes that `blocks` blocks were dropped without having been requested.
    pub fn wasted(&self, blocks: usize) {
        self.asked_for(blocks);
        self.wasted.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    pub fn stats(&self) -> CacheStats {
        CacheStats {
            ahead: self.read.load(Ordering::Relaxed),
            ahead_wasted: self.wasted.load(Ordering::Relaxed),
            ahead_unread: self.unread.load(Ordering::Relaxed),
            ..CacheStats::default()
        }
    }
}

impl Cache {
    /// Returns the number of blocks that one stream of requests may have read ahead now.
    pub fn ahead_room(&self) -> u64 {
        let unread = self.ahead.unread.load(Ordering::Relaxed);
        // Saturates: reads in flight may have passed the limit by a little.
        let free = self.ahead.limit.saturating_sub(unread);
        (free / 2).max(self.ahead.limit / LEAST) as u64
    }

    /// Starts reading those blocks that are neither in memory nor being read, in order, neighbours
    /// with one device request. `keep` is held until the reads are complete, so that the blocks are
    /// not reused. Returns the number of blocks being read.
    pub fn read_ahead(
        self: &Arc<Cache>,
        ptrs: &[BlockPtr],
        keep: &Arc<impl Any + Send + Sync + ?Sized>,
    ) -> usize {
        let mut total = 0;
        let mut run: Vec<Arc<Load>> = Vec::new();
        let mut next = None;
        for ptr in ptrs {
            let Some(load) = self.claim_ahead(ptr) else {
                // The block is in memory, or being read.
                continue;
            };
            if next != Some(ptr.addr) || run.len() >= RUN {
                self.start_ahead(std::mem::take(&mut run), keep);
            }
            next = ptr.addr.checked_add(1);
            run.push(load);
            total += 1;
        }
        self.start_ahead(run, keep);
        self.drop_oldest();
        total
    }

    fn claim_ahead(&self, ptr: &BlockPtr) -> Option<Arc<Load>> {
        let mut shard = self.shard(ptr.addr).lock();
        if shard.contains(ptr) || shard.loading.contains_key(&ptr.addr.0) {
            return None;
        }
        let load = Load::new(*ptr, true);
        shard.loading.insert(ptr.addr.0, Arc::clone(&load));
        // Counted before a request can ask for the block.
        self.ahead.begun(1);
        Some(load)
    }

    fn start_ahead(
        self: &Arc<Cache>,
        run: Vec<Arc<Load>>,
        keep: &Arc<impl Any + Send + Sync + ?Sized>,
    ) {
        let Some(first) = run.first().map(|load| load.ptr().addr) else {
            // Nothing is to be read.
            return;
        };
        self.note_order(&run);
        let read = self
            .frames(run.len(), Class::Foreground)
            .map(|frames| self.device.read(first, frames));
        let (cache, keep) = (Arc::clone(self), Arc::clone(keep));
        detach(async move {
            // From here on each load is finished in any case, at the latest on drop; a request that
            // joined then reads the block itself.
            let duties: Vec<_> = run
                .into_iter()
                .map(|load| Duty::new(&cache, load, 0))
                .collect();
            let Some(read) = read else {
                // No memory is free for the read.
                return;
            };
            let Ok(frames) = read.await else {
                // The request that needs the block reads it again, and reports the error.
                return;
            };
            for (mut duty, frame) in duties.into_iter().zip(frames) {
                if duty.ptr().verifies(&frame) {
                    duty.finish(Some(Ok(frame.freeze())));
                }
            }
            drop(keep);
        });
    }

    fn note_order(&self, run: &[Arc<Load>]) {
        let mut order = self.ahead.order.lock();
        for together in run.chunk_by(|a, b| a.ptr().birth == b.ptr().birth) {
            let Some(first) = together.first().map(|load| load.ptr()) else {
                invariant!(false, "no block is read together with none");
                continue;
            };
            order.blocks += together.len();
            order.spans.push_back(Span {
                first: first.addr,
                birth: first.birth,
                count: together.len(),
            });
        }
    }

    /// Drops the oldest read-ahead blocks that have not been requested.
    fn drop_oldest(&self) {
        let ahead = &self.ahead;
        loop {
            let oldest = {
                let mut order = ahead.order.lock();
                let full = ahead.unread.load(Ordering::Relaxed) > ahead.limit;
                if !full && order.blocks <= 2 * ahead.limit {
                    return;
                }
                let Some(oldest) = order.spans.pop_front() else {
                    // All unread blocks are still being read.
                    return;
                };
                order.blocks -= oldest.count;
                oldest
            };
            for addr in (oldest.first.0..).take(oldest.count) {
                let mut shard = self.shard(BlockAddr(addr)).lock();
                let page = shard.remove_unread(addr, oldest.birth);
                drop(shard);
                drop(page);
            }
        }
    }
}
