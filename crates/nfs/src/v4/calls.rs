//! Calls to clients that are under way, by connection and transaction id.

use super::callback::Entry;
use super::session::Session;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Sends a message on a connection; returns false if there is no room for it now.
pub(crate) type Sender = dyn Fn(u64, Box<[u8]>) -> bool + Send + Sync;

/// A call that is under way.
pub(super) struct Call {
    pub(super) session: Arc<Session>,
    pub(super) slot: usize,
    pub(super) entry: Entry,
    pub(super) since: Duration,
}

#[derive(Default)]
pub(super) struct Calls {
    pub(super) next: u32,
    /// Calls by connection and transaction id.
    pub(super) under_way: HashMap<(u64, u32), Call>,
    /// Sessions whose back channels have a connection, by connection.
    pub(super) bound: HashMap<u64, Vec<Weak<Session>>>,
    /// Sessions with calls to be retried.
    pub(super) again: Vec<Arc<Session>>,
}

/// All calls to clients.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub(super) sender: OnceLock<Arc<Sender>>,
    pub(super) calls: Mutex<Calls>,
}

impl Callbacks {
    /// Sends calls with `sender` from now on. Only the first call has an effect.
    pub(crate) fn send_with(&self, sender: Arc<Sender>) {
        let _ = self.sender.set(sender);
    }

    /// Returns true if clients can be called at all.
    pub(super) fn can_send(&self) -> bool {
        self.sender.get().is_some()
    }

    pub(super) fn try_again(&self, session: &Arc<Session>) {
        let mut calls = self.calls.lock();
        if !calls.again.iter().any(|s| Arc::ptr_eq(s, session)) {
            calls.again.push(Arc::clone(session));
        }
    }
}
