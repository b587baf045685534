//! The handle to an operation in flight.
//!
//! Connection tasks `.await` a handle (on any runtime: only the standard waker is used); the log
//! and checkpoint threads block. One small shared cell serves both kinds of waiters. Its lock is
//! held for a few instructions and never contended by more than the two sides.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};
use weir_base::BlockAddr;

use crate::error::{IoError, IoKind};

enum Cell<T> {
    Pending(Option<Waker>),
    Done(Result<T, IoError>),
    Taken,
}

struct SharedCell<T> {
    cell: Mutex<Cell<T>>,
    done: Condvar,
}

enum State<T> {
    Ready(Option<Result<T, IoError>>),
    Shared(Arc<SharedCell<T>>),
}

/// An operation in flight: a future, or a handle to [`Io::wait`] for. Dropping it does not cancel
/// the operation.
#[must_use = "an operation's failure must be noticed"]
pub struct Io<T> {
    state: State<T>,
}

/// The device's end of an [`Io`], which completes it exactly once. If dropped without a result, it
/// completes the operation with an error, so a waiter never hangs.
pub struct Completer<T> {
    shared: Option<Arc<SharedCell<T>>>,
}

fn lost(what: &'static str) -> IoError {
    IoError::new(IoKind::Read, BlockAddr(0), 0, io::Error::other(what))
}

impl<T> Io<T> {
    /// Creates a handle and the end that completes it.
    pub fn pair() -> (Completer<T>, Io<T>) {
        let shared = Arc::new(SharedCell {
            cell: Mutex::new(Cell::Pending(None)),
            done: Condvar::new(),
        });
        (
            Completer {
                shared: Some(Arc::clone(&shared)),
            },
            Io {
                state: State::Shared(shared),
            },
        )
    }

    /// Returns the handle of an operation that is already complete.
    pub fn ready(result: Result<T, IoError>) -> Io<T> {
        Io {
            state: State::Ready(Some(result)),
        }
    }

    /// Blocks the calling thread until the operation is complete.
    ///
    /// # Errors
    /// The operation's own error.
    pub fn wait(self) -> Result<T, IoError> {
        match self.state {
            State::Ready(result) => {
                result.unwrap_or_else(|| Err(lost("the result was taken already")))
            }
            State::Shared(shared) => {
                let mut cell = shared.cell.lock();
                loop {
                    match std::mem::replace(&mut *cell, Cell::Taken) {
                        Cell::Done(result) => return result,
                        Cell::Taken => return Err(lost("the result was taken already")),
                        pending @ Cell::Pending(_) => {
                            *cell = pending;
                            shared.done.wait(&mut cell);
                        }
                    }
                }
            }
        }
    }
}

// The result is moved out, never pinned.
impl<T> Unpin for Io<T> {}

impl<T> Future for Io<T> {
    type Output = Result<T, IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Ready(result) => Poll::Ready(
                result
                    .take()
                    .unwrap_or_else(|| Err(lost("the result was taken already"))),
            ),
            State::Shared(shared) => {
                let mut cell = shared.cell.lock();
                match std::mem::replace(&mut *cell, Cell::Taken) {
                    Cell::Done(result) => Poll::Ready(result),
                    Cell::Taken => Poll::Ready(Err(lost("the result was taken already"))),
                    Cell::Pending(old) => {
                        // Keep the registered waker if it wakes the same task.
                        let waker = match old {
                            Some(w) if w.will_wake(cx.waker()) => w,
                            _ => cx.waker().clone(),
                        };
                        *cell = Cell::Pending(Some(waker));
                        Poll::Pending
                    }
                }
            }
        }
    }
}

impl<T> Completer<T> {
    /// Hands the result to the waiter.
    pub fn complete(mut self, result: Result<T, IoError>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<T, IoError>) {
        let Some(shared) = self.shared.take() else {
            // The operation was completed before the drop.
            return;
        };
        let before = std::mem::replace(&mut *shared.cell.lock(), Cell::Done(result));
        shared.done.notify_all();
        if let Cell::Pending(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.finish(Err(lost(
            "the device was closed before the operation was complete",
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn waits_for_another_thread() {
        for _ in 0..200 {
            let (done, io) = Io::pair();
            let t = std::thread::spawn(move || done.complete(Ok(5)));
            assert_eq!(io.wait().unwrap(), 5);
            t.join().unwrap();
        }
    }

    #[test]
    fn wakes_the_latest_waker_once() {
        let (done, mut io) = Io::<u8>::pair();
        let first = Arc::new(Count(AtomicUsize::new(0)));
        let last = Arc::new(Count(AtomicUsize::new(0)));
        for c in [&first, &last, &last] {
            let w = Waker::from(Arc::clone(c));
            assert!(
                Pin::new(&mut io)
                    .poll(&mut Context::from_waker(&w))
                    .is_pending()
            );
        }
        done.complete(Ok(1));
        assert_eq!(first.0.load(Ordering::SeqCst), 0);
        assert_eq!(last.0.load(Ordering::SeqCst), 1);
        let w = Waker::from(last);
        assert!(matches!(
            Pin::new(&mut io).poll(&mut Context::from_waker(&w)),
            Poll::Ready(Ok(1))
        ));
        assert!(io.wait().is_err(), "a result is handed out once");
    }

    #[test]
    fn a_lost_operation_is_an_error_not_a_hang() {
        let (done, io) = Io::<()>::pair();
        drop(done);
        assert!(io.wait().is_err());
    }
}
