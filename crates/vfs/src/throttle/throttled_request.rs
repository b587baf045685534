//! A request that waits for its limits: the future that its connection polls.

use super::Throttle;
use super::charge::{Charge, Request};
use super::domain::Domain;
use super::slot::{Slot, State};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use weir_qos::NodeId;

/// A request that waits. Resolves to its charge when it may start (`None`: nothing limits it any
/// more). Dropping it takes the request out of its queue, with all others of its connection:
/// requests are dropped because the connection is over.
pub struct LimitWait {
    throttle: Arc<Throttle>,
    domain: Arc<Domain>,
    slot: Arc<Slot>,
    request: Request,
    leaf: NodeId,
}

impl LimitWait {
    pub(super) fn new(
        throttle: Arc<Throttle>,
        domain: Arc<Domain>,
        slot: Arc<Slot>,
        request: Request,
        leaf: NodeId,
    ) -> LimitWait {
        LimitWait {
            throttle,
            domain,
            slot,
            request,
            leaf,
        }
    }
}

impl Future for LimitWait {
    type Output = Option<Charge>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Charge>> {
        loop {
            {
                let mut state = self.slot.state.lock();
                match &mut *state {
                    State::Waiting(waker) => {
                        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                            *waker = Some(cx.waker().clone());
                        }
                        return Poll::Pending;
                    }
                    State::Granted(charge) => {
                        let charge = *charge;
                        // The charge is the caller's now.
                        *state = State::Evicted;
                        return Poll::Ready(Some(charge));
                    }
                    State::Evicted => {}
                }
            }
            match self.throttle.gate_alone(&self.request, None) {
                Ok(charge) => return Poll::Ready(charge),
                Err(again) => *self = *again,
            }
        }
    }
}

impl Drop for LimitWait {
    fn drop(&mut self) {
        let granted = match &*self.slot.state.lock() {
            State::Evicted => return,
            State::Granted(charge) => Some(*charge),
            State::Waiting(_) => None,
        };
        let granted = granted.or_else(|| {
            let woken =
                self.domain
                    .forget(self.leaf, self.request.flow, self.throttle.current_time());
            woken.into_iter().for_each(Waker::wake);
            // It may have been released just before.
            match &*self.slot.state.lock() {
                State::Granted(charge) => Some(*charge),
                _ => None,
            }
        });
        if let Some(charge) = granted {
            self.throttle.give_back(charge);
        }
    }
}
