//! Bound on the time that a request waits for another client to return a delegation or lock, or to
//! reclaim its state after a restart of the server: some ticks. Then the reply is DELAY or JUKEBOX,
//! and the client retries (RFC 8881 §10.2.1). Otherwise a request would occupy a slot for as long
//! as a silent client has until its state is revoked. Linux retries after a second over NFSv4 and
//! after five over NFSv3, whatever happened meanwhile.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct Inner {
    ticks: u64,
    waiting: Vec<Waker>,
}

/// Tick counter for the requests of one protocol.
pub struct Patience {
    most: u64,
    inner: Mutex<Inner>,
}

impl Patience {
    /// Creates patience of `most` ticks.
    pub fn new(most: u64) -> Patience {
        Patience {
            most,
            inner: Mutex::default(),
        }
    }

    /// Counts a tick; to be called once a second.
    pub fn tick(&self) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.ticks += 1;
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for `event`. Returns true if it happened before patience ended.
    pub async fn wait(&self, event: impl Future<Output = ()>) -> bool {
        let end = self.inner.lock().ticks + self.most;
        let mut event = pin!(event);
        std::future::poll_fn(|cx: &mut Context<'_>| {
            let event: Pin<&mut _> = event.as_mut();
            if event.poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            let mut inner = self.inner.lock();
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
