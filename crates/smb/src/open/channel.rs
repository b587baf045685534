//! A connection of a session (MS-SMB2 §3.3.1.14), with its keys for signing and encryption.
//!
//! The connection that set the session up is its first channel. Others are bound to it by a
//! SESSION_SETUP that the session's key signs, and by authenticating the user once more. A channel
//! signs with a key of its own, and has its own range of nonces, so that cores that serve channels
//! of one session share no mutable state. The session ends with its last channel, and opens belong
//! to the session, not to a channel.

use crate::open::session::{Open, Session, Tree};
use crate::proto::encryption::Nonces;
use crate::proto::keys::Signer;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use weir_vfs::{Flavour, Transport};

/// A session on one of its connections. Only the event loop of the connection has it.
pub struct Channel {
    /// The session.
    pub session: Arc<Session>,
    /// Signs the messages of this channel.
    pub signer: Arc<Signer>,
    /// Nonces for messages encrypted to the client.
    pub nonces: Nonces,
    /// Kerberos has established the user on this connection, rather than NTLM.
    pub kerberos: bool,
    /// Opens that requests on this connection have named. It keeps nothing open.
    opens: Recent<Weak<Open>, RECENT_OPENS>,
    /// Tree connects that requests on this connection have named.
    trees: Recent<Arc<Tree>, RECENT_TREES>,
}

/// Properties of a message that export rules judge: how its user was established, and how it is
/// protected.
pub type Security = (Flavour, Transport);

/// Entries of a session's tables that requests have named before, so that later ones need not take
/// the tables' locks, which channels on other cores take too. Each has the one place that its
/// number gives it.
type Recent<T, const N: usize> = RefCell<[Option<(u64, T)>; N]>;

/// Opens that are remembered.
const RECENT_OPENS: usize = 16;
/// Tree connects that are remembered.
const RECENT_TREES: usize = 4;

impl Channel {
    /// Returns the channel of a session that has this `number` within it.
    pub fn new(session: Arc<Session>, signer: Arc<Signer>, number: u16, kerberos: bool) -> Channel {
        Channel {
            session,
            signer,
            nonces: Nonces::new(number),
            kerberos,
            opens: RefCell::default(),
            trees: RefCell::default(),
        }
    }

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
        let mut recent = self.opens.borrow_mut();
        let place = &mut recent[id as usize % RECENT_OPENS];
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

    /// The tree connect of this number.
    pub fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        let mut recent = self.trees.borrow_mut();
        let place = &mut recent[id as usize % RECENT_TREES];
        if let Some((of, tree)) = place
            && *of == u64::from(id)
            && !tree.is_gone()
        {
            return Some(Arc::clone(tree));
        }
        let tree = self.session.tree(id);
        *place = tree.as_ref().map(|tree| (u64::from(id), Arc::clone(tree)));
        tree
    }
}

impl Deref for Channel {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}
