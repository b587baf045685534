//! Runs futures without a runtime: [`block_on`] on this thread, [`detach`] on the threads that wake
//! them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use parking_lot::Mutex;

/// Drives a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        // An unpark between poll and park makes park return at once.
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// State: no thread polls the future.
const IDLE: u8 = 0;
/// State: a thread polls the future.
const POLLED: u8 = 1;
/// State: the future was woken while being polled.
const WOKEN: u8 = 2;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct DetachedTask {
    state: AtomicU8,
    /// The future; `None` once it has ended.
    work: Mutex<Option<Work>>,
}

/// Runs a future to its end without a waiter: first on this thread, then on each thread that wakes
/// it, which is the one that completes its wait. The future must not take long between two waits,
/// nor block.
pub fn detach(work: impl Future<Output = ()> + Send + 'static) {
    Arc::new(DetachedTask {
        state: AtomicU8::new(IDLE),
        work: Mutex::new(Some(Box::pin(work))),
    })
    .wake();
}

impl Wake for DetachedTask {
    fn wake(self: Arc<Self>) {
        let woken = |state| Some(if state == IDLE { POLLED } else { WOKEN });
        let before = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, woken);
        if before != Ok(IDLE) {
            // The polling thread polls it once more.
            return;
        }
        let waker = Waker::from(Arc::clone(&self));
        loop {
            let mut slot = self.work.lock();
            let Some(work) = slot.as_mut() else {
                // The future has ended; a waker was kept.
                return;
            };
            if let Poll::Ready(()) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                let ended = slot.take();
                drop(slot);
                drop(ended);
                return;
            }
            drop(slot);
            let rests =
                self.state
                    .compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if rests.is_ok() {
                return;
            }
            self.state.store(POLLED, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::device::Io;

    #[test]
    fn goes_on_wherever_it_is_woken_and_ends_once() {
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..200 {
            let (one, first) = Io::<u32>::pair();
            let (two, second) = Io::<u32>::pair();
            let count = Arc::clone(&ended);
            detach(async move {
                let sum = first.await.unwrap() + second.await.unwrap();
                count.fetch_add(sum as usize, Ordering::SeqCst);
            });
            let other = std::thread::spawn(move || two.complete(Ok(2)));
            one.complete(Ok(1));
            other.join().unwrap();
        }
        assert_eq!(ended.load(Ordering::SeqCst), 600);
    }

    #[test]
    fn woken_while_it_is_polled_it_is_polled_again() {
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        detach(poll_fn(move |cx| {
            if count.fetch_add(1, Ordering::SeqCst) == 4 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        assert_eq!(polls.load(Ordering::SeqCst), 5);
    }
}
