//! Progress of a check, for a thread that watches it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that a check has seen, of those in use. The caller shares one with the check.
#[derive(Debug, Default)]
pub struct Progress {
    seen: AtomicU64,
    in_use: AtomicU64,
}

impl Progress {
    /// Returns the blocks seen and the blocks in use; `None` until the latter are known.
    pub fn blocks(&self) -> Option<(u64, u64)> {
        let in_use = self.in_use.load(Ordering::Relaxed);
        let seen = self.seen.load(Ordering::Relaxed).min(in_use);
        (in_use > 0).then_some((seen, in_use))
    }

    /// Begins a check of an aggregate that has `in_use` blocks in use.
    pub(super) fn begin(&self, in_use: u64) {
        self.seen.store(0, Ordering::Relaxed);
        self.in_use.store(in_use, Ordering::Relaxed);
    }

    /// Notes that many more blocks.
    pub(super) fn see(&self, blocks: u32) {
        self.seen.fetch_add(u64::from(blocks), Ordering::Relaxed);
    }
}
