//! How long a request waits for another client to give up what it was granted, or to claim again what it had before a start: until it has,
//! or some ticks have passed. Then the request is answered DELAY, or JUKEBOX, and its client asks again (RFC 8881 §10.2.1): no slot is taken
//! for as long as a silent client has until it loses what it was granted. Linux asks again after a second over NFSv4 and after five over
//! NFSv3, whatever happened meanwhile.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Ticks that a request of NFSv4 waits at most, of a second each, the first one in part: more than a client needs that is there. Clients wait
/// for a second before they try again, and one that does so ten times (pynfs) must not have kept another of its sessions silent for a lease.
pub(crate) const NFS4: u64 = 1;
/// The same of NFSv3, whose clients wait longer: a client of NFSv4 that finds its server started anew needs some round trips.
pub(crate) const NFS3: u64 = 3;

#[derive(Default)]
struct Inner {
    ticks: u64,
    waiting: Vec<Waker>,
}

/// See the module's head.
pub(crate) struct Patience {
    most: u64,
    inner: Mutex<Inner>,
}

impl Patience {
    /// Requests wait for so many ticks at most.
    pub(crate) fn of(most: u64) -> Patience {
        Patience {
            most,
            inner: Mutex::default(),
        }
    }

    /// A second has passed.
    pub(crate) fn tick(&self) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.ticks += 1;
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for `event`; whether it happened before patience was lost.
    pub(crate) async fn wait(&self, event: impl Future<Output = ()>) -> bool {
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
