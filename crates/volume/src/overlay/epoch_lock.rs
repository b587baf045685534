//! The lock between operations and checkpoints.
//!
//! A checkpoint must contain each operation entirely or not at all, although operations touch
//! several inodes and append to the log. So each mutation holds the epoch lock from its first
//! change until its log record is queued. A checkpoint takes it exclusively for the instant in
//! which it advances the epoch and marks its place in the log. Operations never wait for I/O while
//! they hold it, so the instant is microseconds.
//!
//! One reader-writer lock would make every mutation of every core write the same cache line. So
//! there are several: each thread uses its own, and exclusion takes them all.
//!
//! A panic under the lock leaves a partial change. The process then ends. Where the panic is caught
//! instead, the aggregate is poisoned before the lock can be taken exclusively, so that no
//! checkpoint makes the partial change durable.

use std::sync::Arc;

use weir_base::Poison;
use weir_base::sync::atomic::{AtomicU64, Ordering};
use weir_base::sync::{RwLock, RwLockReadGuard, thread_number};

/// Number of locks: a power of two, at least the cores of known machines.
const SHARDS: usize = if cfg!(model) { 2 } else { 32 };

#[repr(align(128))]
struct Shard(RwLock<()>);

/// The lock between operations and checkpoints.
pub(crate) struct EpochLock {
    shards: [Shard; SHARDS],
    epoch: AtomicU64,
    guard: Arc<Poison>,
}

/// Keeps the epoch from advancing until it is dropped.
pub(crate) struct OpGuard<'a> {
    _held: RwLockReadGuard<'a, ()>,
    epoch: u64,
    guard: &'a Poison,
}

impl Drop for OpGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.guard.set("a panic in the middle of a change");
        }
    }
}

impl OpGuard<'_> {
    /// Returns the epoch that every change made under it belongs to.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl EpochLock {
    /// Creates a lock. `guard`: of the aggregate that is changed.
    pub(crate) fn new(epoch: u64, guard: Arc<Poison>) -> EpochLock {
        EpochLock {
            shards: std::array::from_fn(|_| Shard(RwLock::new(()))),
            epoch: AtomicU64::new(epoch),
            guard,
        }
    }

    /// Takes the lock shared, for an operation. The calling thread must not hold it already.
    pub(crate) fn enter(&self) -> OpGuard<'_> {
        let [first, ..] = &self.shards;
        let shard = self.shards.get(thread_number() % SHARDS).unwrap_or(first);
        let held = shard.0.read();
        OpGuard {
            _held: held,
            epoch: self.epoch.load(Ordering::Relaxed),
            guard: &self.guard,
        }
    }

    /// Waits until no operation holds the lock, and runs `then`, which sees each operation entirely
    /// or not at all. The epoch stays.
    pub(crate) fn exclusive<T>(&self, then: impl FnOnce() -> T) -> T {
        let held: Vec<_> = self.shards.iter().map(|s| s.0.write()).collect();
        let result = then();
        drop(held);
        result
    }

    /// Waits until no operation holds the lock, runs `cut` and advances the epoch. Returns the
    /// epoch that ended and `cut`'s result.
    pub(crate) fn advance<T>(&self, cut: impl FnOnce() -> T) -> (u64, T) {
        let held: Vec<_> = self.shards.iter().map(|s| s.0.write()).collect();
        let ended = self.epoch.load(Ordering::Relaxed);
        let result = cut();
        // The locks order this store before every later `enter`.
        self.epoch.store(ended + 1, Ordering::Relaxed);
        drop(held);
        (ended, result)
    }

    /// Returns the current epoch; it may be outdated when it is used.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thread adds to two counters of its epoch under one op guard; a cut in between would see
    /// them differ.
    #[test]
    fn nothing_is_ever_half_inside() {
        let lock = EpochLock::new(1, Arc::default());
        let a = AtomicU64::new(0);
        let b = AtomicU64::new(0);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let pass = lock.enter();
                        a.fetch_add(1, Ordering::Relaxed);
                        std::hint::spin_loop();
                        b.fetch_add(1, Ordering::Relaxed);
                        assert!(pass.epoch() >= 1);
                    }
                });
            }
            for i in 0..500 {
                let (ended, (x, y)) =
                    lock.advance(|| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)));
                assert_eq!((ended, x), (i + 1, y));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(lock.epoch(), 501);
    }

    #[test]
    fn a_panic_inside_poisons_before_the_lock_is_exclusive() {
        let guard = Arc::new(Poison::default());
        let lock = EpochLock::new(1, Arc::clone(&guard));
        drop(lock.enter());
        assert!(!guard.is_set());
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _pass = lock.enter();
            panic!("half done");
        }));
        assert!(caught.is_err());
        lock.exclusive(|| assert!(guard.is_set()));
    }

    #[cfg(model)]
    mod orders {
        use weir_base::sync::{Arc as Shared, model, set_thread_number, thread};

        use super::*;

        /// Each operation adds to the counter of its epoch. Whatever a cut has not seen belongs to
        /// the next epoch.
        #[test]
        fn a_cut_sees_all_operations_of_its_epoch() {
            model(|| {
                let lock = Shared::new(EpochLock::new(0, Arc::default()));
                let done = Shared::new([AtomicU64::new(0), AtomicU64::new(0)]);
                let operations = [0, 1].map(|number| {
                    let (lock, done) = (Shared::clone(&lock), Shared::clone(&done));
                    thread::spawn(move || {
                        set_thread_number(number);
                        let pass = lock.enter();
                        done[pass.epoch() as usize].fetch_add(1, Ordering::Relaxed);
                    })
                });
                let (ended, seen) = lock.advance(|| done[0].load(Ordering::Relaxed));
                for operation in operations {
                    operation.join().unwrap();
                }
                assert_eq!((ended, seen), (0, done[0].load(Ordering::Relaxed)));
                assert_eq!(seen + done[1].load(Ordering::Relaxed), 2);
            });
        }
    }
}
