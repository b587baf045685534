//! How long a request waits for another client to give up what it was granted: until it has, or some ticks have passed.
//! Then the request is answered DELAY and its client asks again (RFC 8881 §10.2.1), so that no slot is taken
//! for as long as a silent client has until it loses what it was granted.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Ticks that a request waits at most, of a second each: more than a client needs that is there. Clients wait for a second before
/// they try again, and one that does so ten times (pynfs) must not have kept another of its sessions silent for a lease.
const TICKS: u64 = 1;

#[derive(Default)]
struct Inner {
    ticks: u64,
    waiting: Vec<Waker>,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Patience(Mutex<Inner>);

impl Patience {
    /// A second has passed.
    pub(super) fn tick(&self) {
        let waiting = {
            let mut inner = self.0.lock();
            inner.ticks += 1;
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for `event`; whether it happened before patience was lost.
    pub(super) async fn wait(&self, event: impl Future<Output = ()>) -> bool {
        let end = self.0.lock().ticks + TICKS;
        let mut event = pin!(event);
        std::future::poll_fn(|cx: &mut Context<'_>| {
            let event: Pin<&mut _> = event.as_mut();
            if event.poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            let mut inner = self.0.lock();
            if inner.ticks >= end {
                return Poll::Ready(false);
            }
            if !inner.waiting.iter().any(|w| w.will_wake(cx.waker())) {
                inner.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
