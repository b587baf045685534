//! Limiters, in which transfers wait for their throttles.
//!
//! One [`Limiter`] is one direction of this node: the tree of limits ([`weir_relations::throttle`])
//! behind a lock that is held only during a calculation. Each transfer has a [`Flow`]. A transfer
//! that has to wait sleeps until the next release of any transfer, and then releases all that are
//! due. So no thread is needed for this, and a waiter that goes away does not block others. A
//! change of limits wakes all waiters, so it acts at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_base::Clock;
use weir_relations::throttle::{PIECE, Throttle, ThrottleOutcome, TransferLeaf};

/// Longest sleep, in case a clock stands still.
const LONGEST: Duration = Duration::from_secs(60);

/// Throttles of one direction of this node.
pub struct Limiter {
    inner: Mutex<Inner>,
    clock: Arc<dyn Clock>,
}

struct Inner {
    throttle: Throttle,
    waiting: HashMap<TransferLeaf, Arc<Notify>>,
    released: HashSet<TransferLeaf>,
}

/// Limit that made a transfer wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingLimit {
    /// None: it did not wait.
    Free,
    /// The transfer's own limit.
    Own,
    /// The global limit.
    Global,
}

/// A transfer's membership in a limiter.
pub struct Flow {
    limiter: Arc<Limiter>,
    /// `None` if the throttle has no place for the transfer, which is then not limited.
    place: Option<TransferLeaf>,
    bound: AtomicU8,
    waiting: AtomicBool,
}

impl Limiter {
    /// Creates a limiter without limits.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Limiter> {
        Arc::new(Limiter {
            inner: Mutex::new(Inner {
                throttle: Throttle::new(None),
                waiting: HashMap::new(),
                released: HashSet::new(),
            }),
            clock,
        })
    }

    fn monotonic_nanos(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Changes the global limit in KB/s, at once; `None` is no limit.
    pub fn set_global(&self, kbs: Option<u64>) {
        let now = self.monotonic_nanos();
        let mut inner = self.inner.lock();
        inner.throttle.set_global(kbs, now);
        inner.let_through(now);
        // The others may have less time to wait.
        for waiter in inner.waiting.values() {
            waiter.notify_one();
        }
    }

    /// Adds a transfer with its own limit in KB/s; `None` is no limit.
    pub fn join(self: &Arc<Self>, kbs: Option<u64>) -> Flow {
        Flow {
            place: self.inner.lock().throttle.join(kbs),
            limiter: Arc::clone(self),
            bound: AtomicU8::new(0),
            waiting: AtomicBool::new(false),
        }
    }
}

impl Inner {
    fn let_through(&mut self, now: u64) {
        while let Some(place) = self.throttle.release(now) {
            if let Some(waiter) = self.waiting.get(&place) {
                self.released.insert(place);
                waiter.notify_one();
            }
        }
    }
}

/// Removes a waiter from the list when dropped, however its wait ends.
struct WaiterGuard<'p> {
    flow: &'p Flow,
    place: TransferLeaf,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.flow.waiting.store(false, Ordering::Relaxed);
        let mut inner = self.flow.limiter.inner.lock();
        inner.waiting.remove(&self.place);
        inner.released.remove(&self.place);
    }
}

impl Flow {
    /// Waits until `bytes` may move. A caller that drops the future must not call this again.
    pub async fn take(&self, bytes: u64) {
        let Some(place) = self.place else {
            return;
        };
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE);
            left -= piece;
            self.wait(place, piece).await;
        }
    }

    async fn wait(&self, place: TransferLeaf, bytes: u64) {
        let notify = Arc::new(Notify::new());
        {
            let now = self.limiter.monotonic_nanos();
            let mut inner = self.limiter.inner.lock();
            // Transfers that are due have priority over this one.
            inner.let_through(now);
            if inner.throttle.request_bytes(place, bytes, now) != ThrottleOutcome::Wait {
                return;
            }
            inner.waiting.insert(place, Arc::clone(&notify));
            let bound = match inner.throttle.bound_by_global(place) {
                Some(true) => 2,
                _ => 1,
            };
            self.bound.store(bound, Ordering::Relaxed);
            self.waiting.store(true, Ordering::Relaxed);
        }
        let _off_the_list = WaiterGuard { flow: self, place };
        loop {
            let sleep = {
                let now = self.limiter.monotonic_nanos();
                let mut inner = self.limiter.inner.lock();
                inner.let_through(now);
                if inner.released.contains(&place) {
                    return;
                }
                let next = inner.throttle.next_release();
                next.map_or(LONGEST, |at| Duration::from_nanos(at.saturating_sub(now)))
            };
            tokio::select! {
                () = notify.notified() => {}
                () = tokio::time::sleep(sleep.min(LONGEST)) => {}
            }
        }
    }

    /// Returns the limit that the transfer waits for, or has waited for since the last call.
    pub fn bound(&self) -> BindingLimit {
        let bound = match self.waiting.load(Ordering::Relaxed) {
            true => self.bound.load(Ordering::Relaxed),
            false => self.bound.swap(0, Ordering::Relaxed),
        };
        match bound {
            1 => BindingLimit::Own,
            2 => BindingLimit::Global,
            _ => BindingLimit::Free,
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let now = self.limiter.monotonic_nanos();
            let mut inner = self.limiter.inner.lock();
            inner.throttle.leave(place, now);
            inner.let_through(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::SystemClock;

    #[tokio::test]
    async fn limits_that_change_let_waiters_go() {
        let limiter = Limiter::new(Arc::new(SystemClock::new()));
        limiter.set_global(Some(4));
        let (flow, other) = (limiter.join(None), limiter.join(Some(4)));
        // The first piece goes at once; the second would take a quarter of a minute.
        flow.take(PIECE).await;
        let mut second = Box::pin(flow.take(PIECE));
        tokio::select! {
            () = &mut second => panic!("it was to wait"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(flow.bound(), BindingLimit::Global);
        assert_eq!(flow.bound(), BindingLimit::Global, "it still waits");
        limiter.set_global(None);
        second.await;
        // A future that is dropped while it waits leaves nothing behind.
        other.take(PIECE).await;
        {
            let mut waits = Box::pin(other.take(PIECE));
            tokio::select! {
                () = &mut waits => panic!("it was to wait"),
                () = tokio::task::yield_now() => {}
            }
            assert_eq!(other.bound(), BindingLimit::Own);
        }
        drop(other);
        assert!(limiter.inner.lock().waiting.is_empty());
        assert_eq!(limiter.inner.lock().throttle.next_release(), None);
    }
}
