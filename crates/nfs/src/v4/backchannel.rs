//! Back channels (RFC 8881 §2.10.3.1): their limits, slots and connections, and their pending
//! calls. `callback` decides on the calls and their time.

use super::args::{Channel, Security};
use super::callback::{CallState, Callback, Entry};
use super::client::Client;
use super::session::Session;
use crate::rpc::message::{AUTH_NONE, AUTH_SYS};
use crate::rpc::xdr::Put;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Maximum number of slots of a back channel.
const MAX_SLOTS: u32 = 16;
/// Maximum number of connections of a back channel.
const MAX_CONNECTIONS: usize = 16;
/// Minimum size of a request in bytes for a back channel to be used.
const MIN_REQUEST: u32 = 1024;

/// Bits of `sr_status_flags` (§18.46.3).
pub mod flag {
    /// SEQ4_STATUS_CB_PATH_DOWN.
    pub const CB_PATH_DOWN: u32 = 0x1;
    /// SEQ4_STATUS_ADMIN_STATE_REVOKED.
    pub const ADMIN_REVOKED: u32 = 0x20;
    /// SEQ4_STATUS_RECALLABLE_STATE_REVOKED.
    pub const RECALLABLE_REVOKED: u32 = 0x40;
    /// SEQ4_STATUS_RESTART_RECLAIM_NEEDED.
    pub const RESTART_RECLAIM_NEEDED: u32 = 0x100;
    /// SEQ4_STATUS_CB_PATH_DOWN_SESSION.
    pub const CB_PATH_DOWN_SESSION: u32 = 0x200;
    /// SEQ4_STATUS_BACKCHANNEL_FAULT.
    pub const BACKCHANNEL_FAULT: u32 = 0x400;
}

#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    /// Sequence number of the last call.
    pub(super) sequence: u32,
    /// True if a call is under way in the slot, or is to be repeated in it.
    pub(super) busy: bool,
}

pub(super) struct Inner {
    pub(super) program: u32,
    /// Flavour and body of the credential, encoded.
    pub(super) credential: Box<[u8]>,
    /// Numbers of its connections; the last one is used.
    pub(super) connections: Vec<u64>,
    pub(super) slots: Vec<Slot>,
    pub(super) queue: VecDeque<Entry>,
    /// Calls to be retried at the next tick.
    pub(super) later: Vec<Entry>,
}

impl Inner {
    /// Takes the next call that has a slot. A lost call is repeated in its own slot under the same
    /// number, by which the client recognises it.
    pub(super) fn next(&mut self) -> Option<(usize, Entry)> {
        let first = self.queue.front()?;
        let own = first.slot.filter(|slot| *slot < self.slots.len());
        let slot = match own {
            Some(slot) => slot,
            None => self.slots.iter().position(|slot| !slot.busy)?,
        };
        Some((slot, self.queue.pop_front()?))
    }

    /// Queues a call, in place of one that it replaces.
    pub(super) fn add(&mut self, what: Callback) {
        let queue = &mut self.queue;
        queue.retain(|e| e.made != CallState::Not || !what.replaces(&e.what));
        queue.push_back(Entry::new(what));
    }

    /// Puts a call that was lost with its connection back to the front of the queue, and keeps its
    /// slot for it.
    pub(super) fn lose(&mut self, slot: usize, entry: Entry) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.sequence = slot.sequence.wrapping_sub(1);
        }
        let made = match entry.made {
            CallState::Not => CallState::Lost,
            made => made,
        };
        self.queue.push_front(Entry {
            made,
            slot: Some(slot),
            ..entry
        });
    }
}

/// The back channel of a session.
pub struct BackChannel {
    /// The granted limits.
    pub limits: Channel,
    /// True if the client asked for a back channel, and calls fit into its limits.
    asked: bool,
    status: AtomicU32,
    pub(super) inner: Mutex<Inner>,
}

/// Encodes flavour and body of a credential; `None` for one that is not implemented for callbacks.
fn credential(security: &Security<'_>) -> Option<Box<[u8]>> {
    let mut out = Vec::new();
    match security {
        Security::None => [AUTH_NONE, 0]
            .into_iter()
            .for_each(|word| out.put_u32(word)),
        Security::Sys(body) => {
            out.put_u32(AUTH_SYS);
            out.put_opaque(body);
        }
        Security::Unusable => return None,
    }
    Some(out.into())
}

impl BackChannel {
    /// Creates a back channel without connections.
    pub fn new(
        asked: bool,
        channel: Channel,
        program: u32,
        security: &Security<'_>,
    ) -> BackChannel {
        let limits = Channel {
            header_pad: 0,
            max_requests: channel.max_requests.min(MAX_SLOTS),
            ..channel
        };
        let credential = credential(security);
        let fits = limits.max_requests > 0
            && limits.max_operations >= 2
            && limits.max_request >= MIN_REQUEST;
        BackChannel {
            asked: asked && fits && credential.is_some(),
            status: AtomicU32::new(flag::CB_PATH_DOWN_SESSION),
            inner: Mutex::new(Inner {
                program,
                credential: credential.unwrap_or_default(),
                connections: Vec::new(),
                slots: vec![Slot::default(); limits.max_requests as usize],
                queue: VecDeque::new(),
                later: Vec::new(),
            }),
            limits,
        }
    }

    /// Returns true if the client has asked for it.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// Returns its status flags for SEQUENCE.
    pub fn status(&self) -> u32 {
        match self.asked {
            true => self.status.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// Returns true if it has a connection.
    pub fn is_connected(&self) -> bool {
        self.asked && self.status() & flag::CB_PATH_DOWN_SESSION == 0
    }

    /// Returns true if calls reach the client, as far as is known.
    pub fn is_up(&self) -> bool {
        self.asked && self.status() == 0
    }

    /// Sets or clears bits of the status. Returns true if any has changed.
    pub(super) fn mark(&self, bits: u32, on: bool) -> bool {
        let before = match on {
            true => self.status.fetch_or(bits, Ordering::Relaxed),
            false => self.status.fetch_and(!bits, Ordering::Relaxed),
        };
        match on {
            true => before & bits != bits,
            false => before & bits != 0,
        }
    }

    /// BACKCHANNEL_CTL (§18.33): changes program and credential. Returns false if the credential
    /// cannot be used.
    pub fn change(&self, program: u32, security: &Security<'_>) -> bool {
        let Some(credential) = credential(security) else {
            return false;
        };
        let mut inner = self.inner.lock();
        inner.program = program;
        inner.credential = credential;
        true
    }

    pub(super) fn bind(&self, connection: u64) {
        let mut inner = self.inner.lock();
        inner.connections.retain(|c| *c != connection);
        if inner.connections.len() >= MAX_CONNECTIONS {
            inner.connections.remove(0);
        }
        inner.connections.push(connection);
        self.mark(u32::MAX, false);
    }

    /// Removes a lost connection.
    pub(super) fn lost(&self, connection: u64) {
        let mut inner = self.inner.lock();
        inner.connections.retain(|c| *c != connection);
        if inner.connections.is_empty() {
            self.mark(flag::CB_PATH_DOWN_SESSION, true);
        }
    }
}

/// Returns the client's sessions that have a back channel, the newest last.
pub(super) fn back_sessions(client: &Client) -> Vec<Arc<Session>> {
    let backs = client.backs.lock();
    let sessions = backs.iter().filter_map(Weak::upgrade);
    sessions.filter(|s| !s.is_dead()).collect()
}

/// Returns the newest of the client's sessions over which calls reach it.
pub(super) fn working(client: &Client) -> Option<Arc<Session>> {
    let sessions = back_sessions(client).into_iter();
    sessions.rev().find(|s| s.back.is_up())
}

/// Updates the client's state after a change of its back channels: if it can be called, and the
/// status flags of all of its sessions.
pub(super) fn note_path(client: &Client) {
    let mut backs = client.backs.lock();
    backs.retain(|s| s.upgrade().is_some_and(|s| !s.is_dead()));
    let all = || backs.iter().filter_map(Weak::upgrade);
    client.note_path(
        all().any(|s| s.back.is_up()),
        all().any(|s| s.back.is_connected()),
    );
}
