//! Populates fresh frames before they are taken.
//!
//! The first touch of a page makes the kernel find, clear and map one. With huge pages advised and
//! memory fragmented, the kernel first moves other pages out of the way, for milliseconds. With a
//! fault for every new file, every hundredth creation took ten times as long as the median. So a
//! thread of its own keeps the next few megabytes of the arena populated (`MADV_POPULATE_WRITE`),
//! ahead of the frames that requests take. The call does not change the contents of a page and so
//! is safe while others hold the page. The thread has nothing to do once the whole arena is
//! populated, as used frames are taken before fresh ones.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

use rustix::mm::{self, Advice};
use weir_base::BLOCK_SIZE;

use super::{FramePool, HUGE};

/// Frames populated in one step: a huge page.
const STEP: u32 = (HUGE / BLOCK_SIZE) as u32;

/// Frames to keep populated: 32 MiB, 30 ms of a fast disk. In a small arena it is one part in
/// [`SHARE`].
const READY: u32 = 16 * STEP;
const SHARE: u32 = 16;

/// Progress of the populating, and its goal.
#[derive(Default)]
pub(super) struct Ahead {
    /// End of the fresh frames that have been taken.
    taken: AtomicU32,
    /// End of the populated frames.
    ready: AtomicU32,
    thread: OnceLock<Thread>,
}

impl Ahead {
    /// Notes that fresh frames up to `end` have been taken. The depot is locked.
    pub(super) fn taken(&self, end: u32) {
        self.taken.store(end, Ordering::Relaxed);
        if let Some(thread) = self.thread.get()
            // Saturates: a pool may have up to 2^32 frames.
            && end.saturating_add(READY / 2) > self.ready.load(Ordering::Relaxed)
        {
            thread.unpark();
        }
    }
}

/// The thread that populates a pool before its frames are used. It ends when this is dropped.
pub struct Populator {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Populator {
    /// Starts the thread. A second one for the same pool has no effect.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(pool: &Arc<FramePool>) -> std::io::Result<Populator> {
        let stop = Arc::new(AtomicBool::new(false));
        let (pool, stopped) = (Arc::clone(pool), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("weir-pages".into())
            .spawn(move || {
                weir_base::idle_priority();
                let ahead = &pool.inner().ahead;
                // Only the first thread is woken.
                let _ = ahead.thread.set(std::thread::current());
                while !stopped.load(Ordering::Relaxed) {
                    if !pool.populate_step() {
                        std::thread::park();
                    }
                }
            })?;
        Ok(Populator {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Populator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has ended the process already, or affects only the populating.
            let _ = thread.join();
        }
    }
}

impl FramePool {
    /// Populates the next part of the arena; returns `false` if enough is populated.
    fn populate_step(&self) -> bool {
        let inner = self.inner();
        let (taken, ready) = (&inner.ahead.taken, &inner.ahead.ready);
        let from = ready.load(Ordering::Relaxed);
        let goal = taken
            .load(Ordering::Relaxed)
            // Saturates: a pool may have up to 2^32 frames.
            .saturating_add(READY.min(inner.total / SHARE))
            .min(inner.total);
        if from >= goal {
            return false;
        }
        // Frames taken meanwhile have been touched.
        let from = from.max(taken.load(Ordering::Relaxed) / STEP * STEP);
        let count = STEP.min(inner.total - from);
        #[cfg(target_os = "linux")]
        // SAFETY: the range is inside the arena's mapping, and this advice leaves the contents of
        // pages as they are. A kernel that does not know it refuses, which changes nothing.
        let _ = unsafe {
            mm::madvise(
                inner.base.as_ptr().add(from as usize * BLOCK_SIZE).cast(),
                count as usize * BLOCK_SIZE,
                Advice::LinuxPopulateWrite,
            )
        };
        ready.store(from + count.max(1), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Class;

    /// Populating stays ahead of the frames taken, up to the arena's end, and frames in use keep
    /// their contents.
    #[test]
    fn stays_ahead_and_changes_nothing() {
        let total = 5 * STEP + 100;
        let pool = FramePool::new(total as usize).unwrap();
        let populator = Populator::start(&pool).unwrap();
        let mut held = Vec::new();
        for n in 0..u64::from(total) {
            let Some(mut frame) = pool.alloc(Class::Cp) else {
                panic!("a frame that nobody holds was not found");
            };
            frame[..8].copy_from_slice(&n.to_le_bytes());
            held.push(frame);
        }
        let inner = pool.inner();
        while inner.ahead.ready.load(Ordering::Relaxed) < total {
            std::thread::yield_now();
        }
        drop(populator);
        for (n, frame) in (0u64..).zip(&held) {
            assert_eq!(frame[..8], n.to_le_bytes());
        }
    }
}
