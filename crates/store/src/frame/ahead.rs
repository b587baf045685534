//! Fresh frames are made ready before they are asked for.
//!
//! The first touch of a page makes the kernel find, clear and map one. Where it tries
//! for a huge page, as it is advised to, and memory is fragmented, it first moves
//! other pages out of the way, for milliseconds. That is no business of a thread
//! that serves requests: with every new file a fault, every hundredth creation took
//! ten times as long as the median. So a thread of its own keeps the next few
//! megabytes of the arena populated (`MADV_POPULATE_WRITE`, which changes nothing
//! of what a page holds and so is safe while others hold the page), ahead of what requests take. It
//! has nothing to do once the whole arena is populated, as used frames are taken before fresh ones.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

use rustix::mm::{self, Advice};
use weir_base::BLOCK_SIZE;

use super::{FramePool, HUGE};

/// Frames in one step: a huge page.
const STEP: u32 = (HUGE / BLOCK_SIZE) as u32;

/// Frames to be ready: 32 MiB, 30 ms of a fast disk; in a small arena one part
/// in [`SHARE`].
const READY: u32 = 16 * STEP;
const SHARE: u32 = 16;

/// How far the arena is populated and is to be.
#[derive(Default)]
pub(super) struct Ahead {
    /// Fresh frames up to here have been taken.
    taken: AtomicU32,
    /// Frames up to here are populated.
    ready: AtomicU32,
    thread: OnceLock<Thread>,
}

impl Ahead {
    /// Fresh frames up to `end` have been taken. The depot is locked.
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

/// The thread that populates a pool before its frames are used; ends when this is dropped.
pub struct Populator {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Populator {
    /// Starts it. A second one for the same pool does no harm and no good.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(pool: &Arc<FramePool>) -> std::io::Result<Populator> {
        let stop = Arc::new(AtomicBool::new(false));
        let (pool, stopped) = (Arc::clone(pool), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("weir-pages".into())
            .spawn(move || {
                weir_base::idle_priority();
                let ahead = &pool.inner().ahead;
                // The thread that was first stays the one that is woken.
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
            // A panic there has ended the process already, or costs only the populating.
            let _ = thread.join();
        }
    }
}

impl FramePool {
    /// Populates some more of the arena; `false` if enough is.
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
        // What has been taken meanwhile has been touched.
        let from = from.max(taken.load(Ordering::Relaxed) / STEP * STEP);
        let count = STEP.min(inner.total - from);
        #[cfg(target_os = "linux")]
        // SAFETY: the range is inside the arena's mapping, and this advice leaves the contents
        // of pages as they are. A kernel that does not know it refuses, and everything is as
        // it would be without.
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

    /// Populating keeps in front of what is taken, to the arena's end, and frames in use
    /// keep what they hold.
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
