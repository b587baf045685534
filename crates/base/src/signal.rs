//! An event that happens once and that tasks wait for: a break that was answered, a record that
//! became durable.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

struct Inner<T> {
    value: Option<T>,
    waiting: Vec<Waker>,
}

/// A value that is set once. Tasks that polled [`Signal::settled`] before are woken then.
pub struct Signal<T>(Mutex<Inner<T>>);

impl<T> Default for Signal<T> {
    fn default() -> Signal<T> {
        Signal(Mutex::new(Inner {
            value: None,
            waiting: Vec::new(),
        }))
    }
}

impl<T: Copy> Signal<T> {
    /// Returns the value, once it is set.
    pub fn get(&self) -> Option<T> {
        self.0.lock().value
    }

    /// Sets the value and wakes all that wait. A second value is ignored: a break that is answered
    /// while it is revoked.
    pub fn set(&self, value: T) {
        let mut inner = self.0.lock();
        inner.value.get_or_insert(value);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Resolves to the value when it is set.
    pub fn settled(self: Arc<Self>) -> SignalFuture<T> {
        SignalFuture(self)
    }
}

/// The future that [`Signal::settled`] returns.
pub struct SignalFuture<T>(Arc<Signal<T>>);

impl<T: Copy> Future for SignalFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut inner = self.0.0.lock();
        match inner.value {
            Some(value) => Poll::Ready(value),
            None => {
                if !inner.waiting.iter().any(|w| w.will_wake(cx.waker())) {
                    inner.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
