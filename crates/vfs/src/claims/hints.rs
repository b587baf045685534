//! Counters by which reads, writes and changes of names pass a file without claims for one relaxed
//! load.
//!
//! Counters by hash of how many files have claims that bind others: denials that are enforced,
//! mandatory ranges, caching grants. A second set counts by volume, for changes of names, which do
//! not know the file yet. A counter of 0 is certain. Any other sends its callers to the table, also
//! those of other files with its hash, which costs them a mutex and nothing else.
//!
//! **An operation that passes while a claim is made.** A claim counts before its holder learns that
//! it has it. But an operation may have read the counter just before. So data are read, written and
//! cut only after the counter was read *under the file's lock* in the volume. A client that was
//! granted a cache fills it by reads, under the same lock. If such a read is before the operation,
//! then by the order of the lock the operation sees the claim, and begins anew with the table. If
//! it is after it, the cache has what the operation did. Either way no cache has what is no longer
//! so, though both loads are relaxed.
//!
//! An operation on a file with claims asks the table first, outside of the file's lock (the table
//! notifies services). The same load shows that its answer still holds. Besides the count, the word
//! has a number that moves with every change of the claims of a file that has some
//! ([`ClaimsVersion`]).
//!
//! Changes of names concern up to four files, and ask before they are made. Afterwards they read
//! the volume's word once more, and have caches broken that were granted meanwhile; then no
//! operation waits for the answers.

use crate::handle::FileId;
use weir_base::sync::atomic::{AtomicU64, Ordering};
use weir_base::{VolumeId, invariant};

/// Words of files. 32 KiB.
const FILES: usize = if cfg!(model) { 2 } else { 4096 };
/// Words of volumes. 2 KiB.
const VOLUMES: usize = if cfg!(model) { 2 } else { 256 };

const _: () = assert!(FILES.is_power_of_two() && VOLUMES.is_power_of_two());

/// The count, in the low half of a word.
const COUNT: u64 = 0xffff_ffff;
/// One in the number, in the high half, which wraps around.
const CHANGE: u64 = 1 << 32;

/// State of the claims of a file or a volume as it was read: until it changes, what the table said
/// afterwards holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimsVersion(u64);

impl ClaimsVersion {
    /// Returns true if there are certainly none.
    pub fn none(self) -> bool {
        self.0 & COUNT == 0
    }
}

/// Counters of files with claims that bind others (see the module's head).
pub(super) struct Hints {
    files: Box<[AtomicU64]>,
    volumes: Box<[AtomicU64]>,
}

/// Spreads neighbouring numbers (Fibonacci hashing, Knuth 6.4).
fn spread(number: u64, buckets: usize) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (buckets - 1)
}

impl Hints {
    pub(super) fn new() -> Hints {
        let zeros = |n| (0..n).map(|_| AtomicU64::new(0)).collect();
        Hints {
            files: zeros(FILES),
            volumes: zeros(VOLUMES),
        }
    }

    fn of_file(&self, file: FileId) -> &AtomicU64 {
        let number = file.ino.0 ^ file.volume.0 << 40;
        &self.files[spread(number, FILES)]
    }

    fn of_volume(&self, volume: VolumeId) -> &AtomicU64 {
        &self.volumes[spread(volume.0, VOLUMES)]
    }

    pub(super) fn version_of(&self, file: FileId) -> ClaimsVersion {
        ClaimsVersion(self.of_file(file).load(Ordering::Relaxed))
    }

    pub(super) fn version_in(&self, volume: VolumeId) -> ClaimsVersion {
        ClaimsVersion(self.of_volume(volume).load(Ordering::Relaxed))
    }

    /// Counts a file, or ends that; or only says that what it has is another thing now. Under the
    /// lock of its shard.
    pub(super) fn change(&self, file: FileId, had: bool, has: bool) {
        // The number also moves when the count falls: it is then another word than before.
        let by = match (had, has) {
            (false, false) => return,
            (false, true) => CHANGE + 1,
            (true, true) => CHANGE,
            (true, false) => CHANGE - 1,
        };
        for word in [self.of_file(file), self.of_volume(file.volume)] {
            let before = word.fetch_add(by, Ordering::Relaxed);
            invariant!(!had || before & COUNT > 0, "a hint below zero");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn what_was_heard_holds_until_the_claims_change() {
        let (hints, f) = (Hints::new(), file(1));
        assert!(hints.version_of(f).none() && hints.version_in(f.volume).none());
        let changes = [(false, true), (true, true), (true, true), (true, false)];
        for (had, has) in changes {
            let before = (hints.version_of(f), hints.version_in(f.volume));
            hints.change(f, had, has);
            let after = (hints.version_of(f), hints.version_in(f.volume));
            assert!(after.0 != before.0 && after.1 != before.1, "{had} {has}");
            assert_eq!((after.0.none(), after.1.none()), (!has, !has));
        }
        let before = hints.version_of(f);
        hints.change(f, false, false);
        assert_eq!(hints.version_of(f), before);
    }

    #[cfg(model)]
    mod orders {
        use weir_base::Ino;
        use weir_base::sync::{Arc, Mutex, model, thread};

        use super::*;

        /// The claim of the module's head: a client is granted a cache and fills it under the
        /// file's lock, while another writes under the same lock, having seen no claim.
        #[test]
        fn no_cache_has_what_a_write_that_passed_has_replaced() {
            model(|| {
                let hints = Arc::new(Hints::new());
                let content = Arc::new(Mutex::new("old"));
                let file = FileId {
                    volume: VolumeId(1),
                    ino: Ino(7),
                    namespace: crate::handle::Namespace::Live,
                };
                let writer = {
                    let (hints, content) = (Arc::clone(&hints), Arc::clone(&content));
                    thread::spawn(move || {
                        let mut content = content.lock();
                        let passes = hints.heard(file).none();
                        if passes {
                            *content = "new";
                        }
                        passes
                    })
                };
                hints.change(file, false, true);
                let cached = *content.lock();
                if writer.join().unwrap() {
                    assert_eq!(cached, "new");
                }
            });
        }
    }
}
