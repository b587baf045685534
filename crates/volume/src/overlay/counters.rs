//! Counters of a volume for inode numbers and change counters ([`crate::checkpoint::change`]).

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a volume.
pub(crate) struct Counters {
    /// Number added to each inode's change counter.
    base: AtomicU64,
    /// Upper bound of all change counters, as of the last checkpoint and of the replayed records.
    top: AtomicU64,
    /// Number of the next inode.
    next_ino: AtomicU64,
}

impl Counters {
    pub(crate) fn new(base: u64, top: u64, next_ino: u64) -> Counters {
        Counters {
            base: AtomicU64::new(base),
            top: AtomicU64::new(top),
            next_ino: AtomicU64::new(next_ino),
        }
    }

    /// Returns the number added to each inode's change counter.
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Acquire)
    }

    pub(crate) fn set_base(&self, base: u64) {
        self.base.store(base, Ordering::Release);
    }

    /// Returns the upper bound of all change counters, except for changes since the last
    /// checkpoint.
    pub(crate) fn top(&self) -> u64 {
        self.top.load(Ordering::Relaxed)
    }

    pub(crate) fn set_top(&self, top: u64) {
        self.top.store(top, Ordering::Relaxed);
    }

    /// Raises the upper bound to an inode's change counter.
    pub(crate) fn raise_top(&self, top: u64) {
        self.top.fetch_max(top, Ordering::Relaxed);
    }

    /// Returns the number of the next inode.
    pub(crate) fn next_ino(&self) -> u64 {
        self.next_ino.load(Ordering::Relaxed)
    }

    /// Takes a number for a new inode.
    pub(crate) fn take_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// Ensures that no inode gets a number below this one from now on.
    pub(crate) fn begin_inodes_at(&self, next: u64) {
        self.next_ino.fetch_max(next, Ordering::Relaxed);
    }

    /// Skips `count` inode numbers, up to `most`.
    pub(crate) fn skip_inodes(&self, count: u64, most: u64) {
        // Saturates: the numbers come from another machine.
        let jump = |n: u64| Some(n.saturating_add(count).min(most));
        let _ = self
            .next_ino
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, jump);
    }
}
