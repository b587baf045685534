//! Calls that the service makes to clients: lock grants and restart notices.
//! They are put here as encoded messages; the connection layer finds the port,
//! sends, and brings the reply back by its token.

use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;

/// Most messages waiting to be taken. A connection layer that takes none must
/// not make the service grow; whoever is due a call gets it at a later try.
const MAX_WAITING: usize = 4096;

/// One call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Identifies the call in `Service::outgoing_done`.
    pub token: u64,
    /// The host to call. Its rpcbind knows the port.
    pub to: IpAddr,
    /// The address of ours to call from, if it still is one: clients take a grant
    /// only from the address that they asked.
    pub from: IpAddr,
    /// Program to ask the port of.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The whole RPC call, without record mark.
    pub message: Vec<u8>,
}

/// The messages not taken yet.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Vec<Outgoing>>,
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Outbox {
    pub(crate) fn push(&self, out: Outgoing) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MAX_WAITING {
            waiting.push(out);
        }
        drop(waiting);
        let wake = self.wake.lock().clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    pub(crate) fn take(&self) -> Vec<Outgoing> {
        std::mem::take(&mut *self.waiting.lock())
    }

    pub(crate) fn on_push(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        *self.wake.lock() = Some(wake);
    }
}
