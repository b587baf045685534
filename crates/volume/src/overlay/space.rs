//! The space of one volume: its limit and its usage.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{BLOCK_SIZE, Poison, invariant};

/// The space of one volume.
pub(crate) struct Space {
    /// Capacity in bytes; 0: no limit.
    limit: AtomicU64,
    /// Bytes of the capacity reserved for blocks that only snapshots hold.
    snapshot_reserve: AtomicU64,
    /// Data blocks of the committed tree; its nodes are not counted.
    used: AtomicU64,
    /// Blocks that overlays may need.
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

    /// Returns the capacity in bytes; 0: no limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the capacity reserved for blocks that only snapshots hold.
    pub(crate) fn snapshot_reserve(&self) -> u64 {
        self.snapshot_reserve.load(Ordering::Relaxed)
    }

    pub(crate) fn set_snapshot_reserve(&self, bytes: u64) {
        self.snapshot_reserve.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of data blocks as of the last checkpoint.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks that only snapshots hold, as of the last checkpoint.
    pub(crate) fn dead(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    /// Sets the block counts of a checkpoint.
    pub(crate) fn set_committed(&self, used: u64, dead: u64) {
        self.used.store(used, Ordering::Relaxed);
        self.dead.store(dead, Ordering::Relaxed);
    }

    /// Charges `blocks` that overlays may need.
    pub(crate) fn charge(&self, blocks: u64) {
        self.charged.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Takes back a charge.
    pub(crate) fn discharge(&self, guard: &Poison, blocks: u64, what: &str) {
        let charged = self.charged.fetch_sub(blocks, Ordering::Relaxed);
        invariant!(guard => charged >= blocks, "{what} is discharged of {blocks} blocks, of {charged} of its volume");
    }

    /// Returns the blocks that count towards [`Space::room`]: data, blocks that overlays may need,
    /// and blocks of snapshots beyond the reserve.
    pub(crate) fn blocks_used(&self) -> u64 {
        let kept = self.snapshot_reserve() / BLOCK_SIZE as u64;
        // Saturates: the reserve may exceed the held blocks.
        self.used() + self.charged.load(Ordering::Relaxed) + self.dead().saturating_sub(kept)
    }

    /// Returns the bytes of the capacity not reserved for snapshots; 0: no limit.
    pub(crate) fn room(&self) -> u64 {
        match self.limit() {
            0 => 0,
            // Saturates: the reserve may exceed the capacity.
            limit => limit.saturating_sub(self.snapshot_reserve()).max(1),
        }
    }
}
