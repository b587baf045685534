//! Place of a waiting request in its pool's tree: some words; the request itself, with its payload,
//! belongs to the connection that polls.

use super::charge::Charge;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::Waker;
use weir_base::invariant;

pub(super) enum State {
    Waiting(Option<Waker>),
    /// Released by the tree, and charged.
    Granted(Charge),
    /// Taken out of the tree without having been released: its volume was moved or removed, or its
    /// connection ended.
    Evicted,
}

/// A request's place in a tree. Locked after the domain's state, never before it.
pub(super) struct Slot {
    pub(super) state: Mutex<State>,
}

impl Slot {
    pub(super) fn new() -> Arc<Slot> {
        Arc::new(Slot {
            state: Mutex::new(State::Waiting(None)),
        })
    }

    fn end(&self, with: State) -> Option<Waker> {
        match std::mem::replace(&mut *self.state.lock(), with) {
            State::Waiting(waker) => waker,
            _ => {
                invariant!(
                    false,
                    "a request is released or taken out that does not wait"
                );
                None
            }
        }
    }

    /// Marks the slot as released; what is returned is to be woken once no lock is held.
    pub(super) fn grant(&self, charge: Charge) -> Option<Waker> {
        self.end(State::Granted(charge))
    }

    /// Marks the slot as taken out, likewise.
    pub(super) fn evict(&self) -> Option<Waker> {
        self.end(State::Evicted)
    }
}
