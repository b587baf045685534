//! A connection: its negotiated dialect, the message numbers that it may use, and its sessions
//! (MS-SMB2 §3.3.1.7).
//!
//! Its state belongs to the event loop of the connection: it is neither `Send` nor `Sync`, and is
//! used without a lock. Other cores reach a connection by its [`Line`] alone. A session that ends
//! on another core is marked there, and leaves its connections when they next look for it.

use crate::open::channel::Channel;
use crate::open::line::Line;
use crate::open::session::Session;
use crate::proto::compression::Algorithms;
use crate::proto::credits::Window;
use crate::proto::dialect::Dialect;
use crate::proto::header::{Header, flag};
use crate::proto::keys::Preauth;
use crate::proto::negotiate::Negotiation;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use weir_auth::ntlm::Challenge;
use weir_auth::spnego::Mechanism;
use weir_auth::tickets::Logon;

/// Sessions that a connection may have.
pub const MAX_SESSIONS: usize = 256;
/// Sessions that may be being set up on a connection. It bounds the memory that a client without a
/// user can take.
pub const MAX_SETUPS: usize = 16;
/// Longest list of mechanisms that is kept, in bytes.
pub const MAX_MECHANISMS: usize = 1024;

/// The connection that a message came over.
pub type ConnInfo = weir_conn::ConnInfo<Slot>;

/// Place of the service's part of a connection, which is made with the first message.
#[derive(Clone, Default)]
pub struct Slot(OnceCell<Rc<Connection>>);

impl Slot {
    /// Returns the service's part of the connection, if a message has come over it.
    pub(crate) fn get(&self) -> Option<&Rc<Connection>> {
        self.0.get()
    }
}

/// Returns the service's part of `conn`.
pub(crate) fn get_or_create(conn: &ConnInfo) -> &Rc<Connection> {
    let (peer, local) = (conn.peer.ip(), conn.local.ip());
    let new = || Rc::new(Connection::new(conn.id, peer, local));
    conn.state.0.get_or_init(new)
}

/// A connection of a client. No method runs foreign code while it borrows a part of the state.
pub struct Connection {
    /// The client's address, canonical.
    pub peer: IpAddr,
    /// The server's address that it has reached, canonical.
    pub local: IpAddr,
    /// The part that other cores reach.
    pub line: Arc<Line>,
    /// The outcome of NEGOTIATE.
    pub negotiated: OnceCell<Negotiation>,
    /// An SMB1 NEGOTIATE was answered, and one of SMB2 has to follow.
    pub began_as_smb1: Cell<bool>,
    /// The hash of the NEGOTIATE and its response.
    preauth: Cell<Preauth>,
    /// Message numbers that may be used.
    window: RefCell<Window>,
    /// Sessions that are being set up.
    setups: RefCell<HashMap<u64, Setup>>,
    /// Sessions that are set up. Some may have ended.
    sessions: RefCell<HashMap<u64, Rc<Channel>>>,
}

/// A session that is being set up, or set up anew.
#[derive(Default)]
pub struct Setup {
    /// The hash of the messages so far.
    pub preauth: Preauth,
    /// The message that the client has to send next.
    pub stage: Stage,
    /// The mechanisms that the client offered, encoded.
    pub mechanisms: Option<Vec<u8>>,
    /// The session that the connection is to be bound to.
    pub binds: Option<Arc<Session>>,
}

/// Progress of an authentication.
#[derive(Default)]
pub enum Stage {
    /// The client has sent no token yet.
    #[default]
    Begins,
    /// The client has to respond to a challenge of NTLM.
    Challenged(Challenge),
    /// The client has to send a Kerberos ticket, which it did not do by itself.
    WantsTicket(Mechanism),
    /// Its ticket was good. It has to prove that the mechanisms that have arrived are those that it
    /// offered.
    WantsProof(Box<Logon>),
}

impl Connection {
    /// A connection that has just begun.
    pub fn new(id: u64, peer: IpAddr, local: IpAddr) -> Connection {
        Connection {
            peer: peer.to_canonical(),
            local: local.to_canonical(),
            line: Arc::new(Line::new(id)),
            negotiated: OnceCell::new(),
            began_as_smb1: Cell::new(false),
            preauth: Cell::default(),
            window: RefCell::default(),
            setups: RefCell::default(),
            sessions: RefCell::default(),
        }
    }

    /// The session of this number, unless it has ended.
    pub fn session(&self, id: u64) -> Option<Rc<Channel>> {
        let mut sessions = self.sessions.borrow_mut();
        let channel = sessions.get(&id)?;
        if channel.has_ended() {
            sessions.remove(&id);
            return None;
        }
        Some(Rc::clone(channel))
    }

    /// Returns true if a user has been authenticated on it, whose session has not ended.
    pub fn has_users(&self) -> bool {
        let sessions = self.sessions.borrow();
        sessions.values().any(|channel| !channel.has_ended())
    }

    /// Returns true if it may have another session.
    pub(crate) fn has_room(&self) -> bool {
        let mut sessions = self.sessions.borrow_mut();
        sessions.retain(|_, channel| !channel.has_ended());
        sessions.len() < MAX_SESSIONS
    }

    /// Adds a session.
    pub(crate) fn add(&self, channel: Channel) {
        let id = channel.id;
        let mut sessions = self.sessions.borrow_mut();
        sessions.insert(id, Rc::new(channel));
    }

    /// Removes and returns all sessions.
    pub(crate) fn take_sessions(&self) -> Vec<Rc<Channel>> {
        self.sessions.take().into_values().collect()
    }

    /// Uses `charge` message numbers from `number` on. Returns false if one of them may not be
    /// used.
    pub(crate) fn take_numbers(&self, number: u64, charge: u16) -> bool {
        self.window.borrow_mut().take(number, charge)
    }

    /// Grants up to `wanted` more credits, and returns their number ([`Window::grant`]).
    pub(crate) fn grant(&self, wanted: u16) -> u16 {
        self.window.borrow_mut().grant(wanted)
    }

    /// Returns the hash of the NEGOTIATE and its response.
    pub(crate) fn preauth(&self) -> Preauth {
        self.preauth.get()
    }

    /// Adds a message to the hash of the NEGOTIATE and its response.
    pub(crate) fn add_to_preauth(&self, message: &[u8]) {
        let mut preauth = self.preauth.get();
        preauth.add(message);
        self.preauth.set(preauth);
    }

    /// Adds a response to the hash of the session that is being set up under this number, if there
    /// is one.
    pub(crate) fn add_to_setup(&self, id: u64, message: &[u8]) {
        if let Some(setup) = self.setups.borrow_mut().get_mut(&id) {
            setup.preauth.add(message);
        }
    }

    /// Removes and returns the session that is being set up under this number.
    pub(crate) fn take_setup(&self, id: u64) -> Option<Setup> {
        self.setups.borrow_mut().remove(&id)
    }

    /// Returns true if another session may be set up.
    pub(crate) fn has_room_for_setup(&self) -> bool {
        self.setups.borrow().len() < MAX_SETUPS && self.has_room()
    }

    /// Adds a session that is being set up.
    pub(crate) fn add_setup(&self, id: u64, setup: Setup) {
        self.setups.borrow_mut().insert(id, setup);
    }

    /// Returns the algorithms by which messages may be compressed; `None` if none was negotiated.
    pub fn compression(&self) -> Option<Algorithms> {
        let both = self.negotiated.get()?.offer.compression;
        both.filter(|both| both.any())
    }

    /// The dialect, once it is negotiated.
    pub fn dialect(&self) -> Option<Dialect> {
        self.negotiated.get().map(|n| n.dialect)
    }

    /// CANCEL (§3.3.5.16): ends the wait of the request that it names, if there is one.
    pub(crate) fn cancel(&self, header: &Header) {
        self.line.cancel(|wait| {
            if header.has_flag(flag::ASYNC) {
                wait.id == header.async_id()
            } else {
                wait.message == header.message
            }
        });
    }
}

/// The subject of a SESSION_SETUP.
pub(crate) struct SetupSubject {
    /// The number of the session.
    pub id: u64,
    /// The session that it is to replace; 0: none.
    pub previous: u64,
    /// The client's signing requirements, for this session.
    pub(crate) mode: u16,
    /// The existing session whose user is to be authenticated anew.
    pub renews: Option<Rc<Channel>>,
}
