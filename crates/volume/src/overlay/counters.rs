//! The counters of a volume from which its inodes and their change counters come ([`crate::checkpoint::change`]).

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's head.
pub(crate) struct Counters {
    /// Added to each inode's change counter.
    base: AtomicU64,
    /// No counter has been higher, as of the last checkpoint and of what was replayed.
    top: AtomicU64,
    /// The number that the next inode gets.
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

    /// Added to each inode's change counter.
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Acquire)
    }

    pub(crate) fn set_base(&self, base: u64) {
        self.base.store(base, Ordering::Release);
    }

    /// No inode's change counter is higher, but for what was changed since the last checkpoint.
    pub(crate) fn top(&self) -> u64 {
        self.top.load(Ordering::Relaxed)
    }

    pub(crate) fn set_top(&self, top: u64) {
        self.top.store(top, Ordering::Relaxed);
    }

    /// An inode's change counter is this high.
    pub(crate) fn raise_top(&self, top: u64) {
        self.top.fetch_max(top, Ordering::Relaxed);
    }

    /// The number that the next inode gets.
    pub(crate) fn next_ino(&self) -> u64 {
        self.next_ino.load(Ordering::Relaxed)
    }

    /// A number for a new inode.
    pub(crate) fn take_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// No inode gets a number below this one from now on.
    pub(crate) fn begin_inodes_at(&self, next: u64) {
        self.next_ino.fetch_max(next, Ordering::Relaxed);
    }

    /// Skips so many numbers, up to `most`.
    pub(crate) fn skip_inodes(&self, count: u64, most: u64) {
        // Saturates: numbers of another machine.
        let jump = |n: u64| Some(n.saturating_add(count).min(most));
        let _ = self
            .next_ino
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, jump);
    }
}
