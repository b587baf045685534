//! A connection of a session (MS-SMB2 §3.3.1.14), with its keys for signing and encryption.
//!
//! The connection that set the session up is its first channel. Others are bound to it by a
//! SESSION_SETUP that the session's key signs, and by authenticating the user once more. A channel
//! signs with a key of its own, and has its own range of nonces, so that cores that serve channels
//! of one session share no mutable state. The session ends with its last channel, and opens belong
//! to the session, not to a channel.

use crate::open::session::{Open, Session};
use crate::proto::keys::Signer;
use crate::proto::sealing::Nonces;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use weir_vfs::{Flavour, Transport};

/// A session on one of its connections.
pub struct Channel {
    /// The session.
    pub session: Arc<Session>,
    /// Signs the messages of this channel.
    pub signer: Arc<Signer>,
    /// Nonces for messages encrypted to the client.
    pub nonces: Nonces,
    /// Opens that requests on this connection have named.
    pub recent: Recent,
    /// Kerberos has established the user on this connection, rather than NTLM.
    pub kerberos: bool,
}

/// Properties of a message that export rules judge: how its user was established, and how it is
/// protected.
pub type Security = (Flavour, Transport);

/// Opens that a connection has asked for before, so that its READ and WRITE need not take the lock
/// of the session's table, which channels on other cores take too. Only the event loop of the
/// connection takes this one, so nobody waits. It keeps nothing open.
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
