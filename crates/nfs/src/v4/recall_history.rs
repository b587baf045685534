//! Files whose delegation was recalled lately.

use std::sync::atomic::{AtomicU32, Ordering};
use weir_vfs::FileId;

/// Time in seconds without new delegations of a file after a recall.
pub(super) const COOLING: u32 = 30;

/// Number of buckets of files that were recalled lately.
pub(super) const BUCKETS: usize = 1024;

/// Time of the last recall by the hash of the file: seconds on the monotonic clock, from 1.
pub(super) struct RecallTimes(Box<[AtomicU32]>);

impl Default for RecallTimes {
    fn default() -> RecallTimes {
        RecallTimes((0..BUCKETS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl RecallTimes {
    pub(super) fn bucket(&self, file: FileId) -> &AtomicU32 {
        let number = (file.ino.0 ^ file.volume.0 << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(number >> 32) as usize % BUCKETS]
    }

    pub(super) fn note(&self, file: FileId, now: u64) {
        self.bucket(file).store(now as u32 + 1, Ordering::Relaxed);
    }

    pub(super) fn lately(&self, file: FileId, now: u64) -> bool {
        match self.bucket(file).load(Ordering::Relaxed) {
            0 => false,
            then => (now as u32 + 1).wrapping_sub(then) < COOLING,
        }
    }
}
