//! What lets reads, writes and changes of names pass a file without claims for one relaxed load.
//!
//! Counters by hash of how many files have claims that bind others: denials that are enforced, mandatory ranges, caching
//! grants; a second set by volume, for changes of names, which do not know the file yet. A counter of 0 is certain; one
//! that is not sends its callers to the table, also those of other files with its hash, which costs them a mutex and
//! nothing else.
//!
//! A claim counts before its holder learns that it has it. An operation that read the counter just before then goes on,
//! and runs to its end in the same turn of its thread: it can change a file some microseconds after another client was
//! granted a cache of it, without a break. Today nothing grants caches; before the first protocol does, writes have to
//! read the counter again after they were made, and to break what was granted between.

use crate::handle::FileId;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_base::VolumeId;

/// Counters of files. 16 KiB.
const FILES: usize = 4096;
/// Counters of volumes.
const VOLUMES: usize = 256;

const _: () = assert!(FILES.is_power_of_two() && VOLUMES.is_power_of_two());

/// See the module's head.
pub(super) struct Hints {
    files: Box<[AtomicU32]>,
    volumes: Box<[AtomicU32]>,
}

/// Spreads neighbouring numbers (Fibonacci hashing, Knuth 6.4).
fn spread(number: u64, buckets: usize) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (buckets - 1)
}

impl Hints {
    pub(super) fn new() -> Hints {
        let zeros = |n| (0..n).map(|_| AtomicU32::new(0)).collect();
        Hints {
            files: zeros(FILES),
            volumes: zeros(VOLUMES),
        }
    }

    fn of_file(&self, file: FileId) -> &AtomicU32 {
        let number = file.ino.0 ^ file.volume.0 << 40;
        &self.files[spread(number, FILES)]
    }

    fn of_volume(&self, volume: VolumeId) -> &AtomicU32 {
        &self.volumes[spread(volume.0, VOLUMES)]
    }

    /// Whether certainly nothing of the file binds others.
    pub(super) fn none(&self, file: FileId) -> bool {
        self.of_file(file).load(Ordering::Relaxed) == 0
    }

    /// Likewise of all files of the volume.
    pub(super) fn none_in(&self, volume: VolumeId) -> bool {
        self.of_volume(volume).load(Ordering::Relaxed) == 0
    }

    /// Counts a file, or ends that. Under the lock of its shard.
    pub(super) fn count(&self, file: FileId, add: bool) {
        for counter in [self.of_file(file), self.of_volume(file.volume)] {
            let before = match add {
                true => counter.fetch_add(1, Ordering::Relaxed),
                false => counter.fetch_sub(1, Ordering::Relaxed),
            };
            assert!(add || before > 0, "a hint below zero");
        }
    }
}
