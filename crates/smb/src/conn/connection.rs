//! A connection: its negotiated dialect, the message numbers that it may use, and its sessions
//! (MS-SMB2 §3.3.1.7).

use crate::auth::kerberos::Logon;
use crate::auth::ntlm::Challenge;
use crate::auth::spnego::Mechanism;
use crate::open::channel::Channel;
use crate::open::session::{Line, Session};
use crate::proto::compression::Algorithms;
use crate::proto::credits::Window;
use crate::proto::dialect::Dialect;
use crate::proto::header::{Header, flag};
use crate::proto::keys::Preauth;
use crate::proto::negotiate::Negotiated;
use crate::proto::status::Status;
use parking_lot::Mutex;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_vfs::signal::Signal;

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
pub struct Slot(OnceCell<Arc<Connection>>);

impl Slot {
    /// Returns the service's part of the connection, if a message has come over it.
    pub(crate) fn get(&self) -> Option<&Arc<Connection>> {
        self.0.get()
    }
}

/// Returns the service's part of `conn`.
pub(crate) fn of(conn: &ConnInfo) -> &Arc<Connection> {
    let (peer, local) = (conn.peer.ip(), conn.local.ip());
    let new = || Arc::new(Connection::new(conn.id, peer, local));
    conn.state.0.get_or_init(new)
}

/// A connection of a client.
pub struct Connection {
    /// Its number, unique in this run of the server.
    pub id: u64,
    /// The client's address, canonical.
    pub peer: IpAddr,
    /// The server's address that it has reached, canonical.
    pub local: IpAddr,
    /// The mutable state. Only the event loop of the connection takes the lock, so nobody waits.
    pub state: Mutex<State>,
}

/// See [`Connection::state`].
#[derive(Default)]
pub struct State {
    /// The outcome of NEGOTIATE.
    pub negotiated: Option<Negotiated>,
    /// An SMB1 NEGOTIATE was answered, and one of SMB2 has to follow.
    pub began_as_smb1: bool,
    /// The hash of the NEGOTIATE and its response.
    pub preauth: Preauth,
    /// Message numbers that may be used.
    pub window: Window,
    /// Sessions that are being set up.
    pub setups: HashMap<u64, Setup>,
    /// Requests that wait on purpose.
    pub pending: Vec<Pending>,
    /// Sessions that are set up.
    pub sessions: HashMap<u64, Arc<Channel>>,
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
            id,
            peer: peer.to_canonical(),
            local: local.to_canonical(),
            state: Mutex::default(),
        }
    }

    /// The session of this number.
    pub fn session(&self, id: u64) -> Option<Arc<Channel>> {
        self.state.lock().sessions.get(&id).cloned()
    }

    /// Returns true if a user has been authenticated on it.
    pub fn has_users(&self) -> bool {
        !self.state.lock().sessions.is_empty()
    }

    /// Returns the algorithms by which messages may be compressed; `None` if none was negotiated.
    pub fn compression(&self) -> Option<Algorithms> {
        let state = self.state.lock();
        let both = state.negotiated.as_ref()?.offer.compression;
        both.filter(|both| both.any())
    }

    /// The dialect, once it is negotiated.
    pub fn dialect(&self) -> Option<Dialect> {
        let state = self.state.lock();
        state.negotiated.as_ref().map(|n| n.dialect)
    }
}

/// A request that waits, as CANCEL finds it.
pub struct Pending {
    /// Its async id.
    pub(crate) id: u64,
    /// Its number.
    pub(crate) message: u64,
    /// The session that it is of.
    pub(crate) session: u64,
    /// Status of the response when the wait ends.
    pub(crate) over: Status,
    pub(crate) cancelled: Arc<Signal<Status>>,
}

impl Connection {
    /// CANCEL (§3.3.5.16): ends the wait of the request that it names, if there is one.
    pub(crate) fn cancel(&self, header: &Header) {
        let state = self.state.lock();
        let named = state
            .pending
            .iter()
            .find(|p| match header.has(flag::ASYNC) {
                true => p.id == header.async_id(),
                false => p.message == header.message,
            });
        let cancelled = named.map(|p| Arc::clone(&p.cancelled));
        drop(state);
        if let Some(cancelled) = cancelled {
            cancelled.set(Status::CANCELLED);
        }
    }

    /// Ends the waits of a session's requests: it is over.
    pub(crate) fn cancel_all_of(&self, session: u64) {
        let state = self.state.lock();
        let of = state.pending.iter().filter(|p| p.session == session);
        let all: Vec<_> = of.map(|p| (Arc::clone(&p.cancelled), p.over)).collect();
        drop(state);
        all.iter()
            .for_each(|(cancelled, over)| cancelled.set(*over));
    }
}

impl Line for Connection {
    fn id(&self) -> u64 {
        self.id
    }

    fn forget(&self, session: u64) {
        self.state.lock().sessions.remove(&session);
        self.cancel_all_of(session);
    }
}

/// The subject of a SESSION_SETUP.
pub(crate) struct Asked {
    /// The number of the session.
    pub id: u64,
    /// The session that it is to replace; 0: none.
    pub previous: u64,
    /// The client's signing requirements, for this session.
    pub(crate) mode: u16,
    /// The existing session whose user is to be authenticated anew.
    pub renews: Option<Arc<Channel>>,
}
