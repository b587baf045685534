//! The space of one volume: what it may use, and what it uses.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{BLOCK_SIZE, Poison, invariant};

/// See the module's head.
pub(crate) struct Space {
    /// Capacity in bytes; 0: no limit.
    limit: AtomicU64,
    /// Bytes of it that are kept for what only snapshots hold.
    snapshot_reserve: AtomicU64,
    /// Data blocks that the committed tree uses; its nodes are not counted.
    used: AtomicU64,
    /// Blocks that overlays may come to need.
    charged: AtomicU64,
    /// Blocks that only snapshots refer to.
    dead: AtomicU64,
}

impl Space {
    pub(crate) fn new(limit: u64, used: u64, dead: u64) -> Space {
        Space {
            limit: AtomicU64::new(limit),
            snapshot_reserve: AtomicU64::new(0),
            used: AtomicU64::new(used),
            charged: AtomicU64::new(0),
            dead: AtomicU64::new(dead),
        }
    }

    /// Capacity in bytes; 0: no limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of the capacity that are kept for what only snapshots hold.
    pub(crate) fn snapshot_reserve(&self) -> u64 {
        self.snapshot_reserve.load(Ordering::Relaxed)
    }

    pub(crate) fn set_snapshot_reserve(&self, bytes: u64) {
        self.snapshot_reserve.store(bytes, Ordering::Relaxed);
    }

    /// Data blocks as of the last checkpoint.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Blocks that only snapshots hold, as of the last checkpoint.
    pub(crate) fn dead(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    /// A checkpoint has these.
    pub(crate) fn set_committed(&self, used: u64, dead: u64) {
        self.used.store(used, Ordering::Relaxed);
        self.dead.store(dead, Ordering::Relaxed);
    }

    /// Overlays may come to need so many blocks more.
    pub(crate) fn charge(&self, blocks: u64) {
        self.charged.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Something that was charged is dropped.
    pub(crate) fn discharge(&self, guard: &Poison, blocks: u64, what: &str) {
        let charged = self.charged.fetch_sub(blocks, Ordering::Relaxed);
        invariant!(guard => charged >= blocks, "{what} is discharged of {blocks} blocks, of {charged} of its volume");
    }

    /// Blocks that count towards [`Space::room`]: data, what overlays may come to
    /// need, and what only snapshots hold beyond what is kept for that.
    pub(crate) fn blocks_used(&self) -> u64 {
        let kept = self.snapshot_reserve() / BLOCK_SIZE as u64;
        // Saturates: more may be kept than is held.
        self.used() + self.charged.load(Ordering::Relaxed) + self.dead().saturating_sub(kept)
    }

    /// Bytes of the capacity that are not kept for snapshots; 0: no limit.
    pub(crate) fn room(&self) -> u64 {
        match self.limit() {
            0 => 0,
            // Saturates: more may be kept than there is.
            limit => limit.saturating_sub(self.snapshot_reserve()).max(1),
        }
    }
}
