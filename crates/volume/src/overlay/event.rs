//! Waiting for progress: tasks register their waker, threads block.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// An event that is notified again and again. Waiters check their own condition after each
/// notification: an event carries no state. So a waiter that registers first and checks then misses
/// none.
#[derive(Default)]
pub(crate) struct Event {
    inner: Mutex<Inner>,
    happened: Condvar,
}

#[derive(Default)]
struct Inner {
    wakers: Vec<Waker>,
}

impl Event {
    pub(crate) fn register(&self, waker: &Waker) {
        let mut inner = self.inner.lock();
        if !inner.wakers.iter().any(|w| w.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
    }

    /// Wakes all waiters: threads and registered wakers.
    pub(crate) fn notify_all(&self) {
        let wakers = std::mem::take(&mut self.inner.lock().wakers);
        self.happened.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Blocks until `done` is true, which is checked after each notification.
    pub(crate) fn wait_until(&self, mut done: impl FnMut() -> bool) {
        let mut inner = self.inner.lock();
        while !done() {
            self.happened.wait(&mut inner);
        }
    }

    /// Like [`Event::wait_until`], for at most `time`. Returns true if `done` is. A notification
    /// for another waiter does not end the wait.
    pub(crate) fn wait_for(&self, time: Duration, mut done: impl FnMut() -> bool) -> bool {
        let mut inner = self.inner.lock();
        self.happened.wait_while_for(&mut inner, |_| !done(), time);
        done()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut task = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_notification_for_another_does_not_end_a_wait() {
        let event = Event::default();
        let checks = AtomicU32::new(0);
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| {
                event.wait_for(Duration::from_secs(3600), || {
                    checks.fetch_add(1, Ordering::Relaxed) >= 2
                })
            });
            while !waiter.is_finished() {
                event.notify_all();
            }
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let event = Event::default();
        assert!(!event.wait_for(Duration::from_millis(1), || false));
    }
}
