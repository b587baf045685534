//! A connection of a session (MS-SMB2 §3.3.1.14): what signs and encrypts its messages there.
//!
//! The connection that set the session up is its first channel; others are bound to it by a SESSION_SETUP that the session's key
//! signs, and by the user's authentication once more. A channel signs with a key of its own, and has its own range of nonces, so
//! that cores that serve channels of one session share nothing that one of them writes. The session ends with its last
//! channel, and what is open belongs to the session, not to a channel.

use crate::connection::Connection;
use crate::keys::Signer;
use crate::sealing::Nonces;
use crate::session::{Open, Session};
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use weir_vfs::{Flavour, Transport};

/// Channels that a session may have: as many as Windows allows (§3.3.5.5.2).
pub const MAX_CHANNELS: usize = 32;

/// A session on one of its connections.
pub struct Channel {
    /// The session.
    pub session: Arc<Session>,
    /// What signs its messages.
    pub signer: Arc<Signer>,
    /// The nonces of what is encrypted to the client.
    pub nonces: Nonces,
    /// Opens that requests on this connection have named.
    pub recent: Recent,
    /// Kerberos has established the user on this connection, rather than NTLM.
    pub kerberos: bool,
}

/// Properties of a message that export rules judge: how its user was established, and how it is protected.
pub type Security = (Flavour, Transport);

/// Opens that a connection has asked for before, so that its READ and WRITE need not take the lock of the session's table,
/// which channels on other cores take too. Only the event loop of the connection takes this one, so nobody waits. It
/// keeps nothing open.
#[derive(Default)]
pub struct Recent(Mutex<[Option<Named>; RECENT]>);

/// An open and its number.
type Named = (u64, Weak<Open>);

/// Opens that are remembered, each in the one place that its number gives it.
const RECENT: usize = 16;

impl Channel {
    /// Returns what export rules judge a message on this connection by.
    pub fn security(&self, signed: bool, sealed: bool) -> Security {
        // The session's keys are of the connection that set it up.
        let kerberos = self.kerberos && self.session.kerberos.load(Ordering::Relaxed);
        let flavour = match (kerberos, sealed, signed) {
            (false, ..) => Flavour::Ntlm,
            (true, true, _) => Flavour::Krb5Privacy,
            (true, false, true) => Flavour::Krb5Integrity,
            (true, false, false) => Flavour::Krb5,
        };
        let transport = match sealed {
            true => Transport::Tls,
            false => Transport::Clear,
        };
        (flavour, transport)
    }

    /// The open of this number.
    pub fn open(&self, id: u64) -> Option<Arc<Open>> {
        let mut recent = self.recent.0.lock();
        let place = &mut recent[id as usize % RECENT];
        if let Some((of, open)) = place
            && *of == id
            && let Some(open) = open.upgrade()
            && open.session.load(Ordering::Acquire) == self.session.id
        {
            return Some(open);
        }
        let open = self.session.open(id);
        *place = open.as_ref().map(|open| (id, Arc::downgrade(open)));
        open
    }
}

impl Deref for Channel {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// The connections of a session.
#[derive(Default)]
pub struct Channels {
    /// The number of the next channel: none is used twice, for the sake of the nonces.
    next: u16,
    on: Vec<Weak<Connection>>,
    ended: bool,
}

impl Channels {
    /// Adds a channel; its number. `None` if there are too many, or the session has ended.
    pub fn add(&mut self, on: &Arc<Connection>) -> Option<u16> {
        if self.ended || self.on.len() >= MAX_CHANNELS {
            return None;
        }
        let number = self.next;
        self.next = number.checked_add(1)?;
        self.on.push(Arc::downgrade(on));
        Some(number)
    }

    /// Takes the channel on a connection out; whether it was the last one.
    pub fn remove(&mut self, connection: u64) -> bool {
        let is = |on: &Weak<Connection>| on.upgrade().is_some_and(|on| on.id == connection);
        self.on.retain(|on| on.strong_count() > 0 && !is(on));
        self.on.is_empty()
    }

    /// Takes all out: no other can be added.
    pub fn end(&mut self) -> Vec<Arc<Connection>> {
        self.ended = true;
        let all = std::mem::take(&mut self.on);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Their connections, the newest first.
    pub fn newest_first(&self) -> Vec<Arc<Connection>> {
        self.on.iter().rev().filter_map(Weak::upgrade).collect()
    }
}
