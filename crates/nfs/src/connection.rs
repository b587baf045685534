//! What a call brings along besides its bytes: the connection that it came over, and when it came.

use crate::rpc::Credential;
use crate::{v3, v4};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use weir_base::Time;
use weir_vfs::{Admissions, Protocol, Transport};

/// The connection that a call came over.
#[derive(Clone, Debug)]
pub struct ConnInfo {
    /// Number of the connection, unique in this run of the server.
    pub id: u64,
    /// The client's address and port.
    pub peer: SocketAddr,
    /// The server's address and port.
    pub local: SocketAddr,
    /// How the connection is protected.
    pub transport: Transport,
    /// How its last requests were admitted.
    pub admitted: Admissions,
    /// The session of NFSv4 that its last request was of.
    pub(crate) session: Remembered,
    /// What its last requests read and wrote under.
    pub(crate) states: v4::Recent,
    /// The peer sends no more.
    ended: Arc<AtomicBool>,
}

/// A session that a connection remembers.
#[derive(Clone, Default)]
pub(crate) struct Remembered(RefCell<Option<Arc<v4::Session>>>);

impl std::ops::Deref for Remembered {
    type Target = RefCell<Option<Arc<v4::Session>>>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::fmt::Debug for Remembered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remembered")
    }
}

/// What is remembered of a connection that a call came over.
pub(crate) struct Line {
    port: u16,
    ended: Weak<AtomicBool>,
}

impl Line {
    /// Returns true while the peer may send something on the connection.
    pub(crate) fn is_open(&self) -> bool {
        let ended = self.ended.upgrade();
        ended.is_some_and(|ended| !ended.load(Ordering::Relaxed))
    }

    /// Whether the same client may send a call again on `conn`, which comes from the same address.
    pub(crate) fn may_repeat_on(&self, conn: &ConnInfo) -> bool {
        let ended = || {
            self.ended
                .upgrade()
                .is_none_or(|e| e.load(Ordering::Relaxed))
        };
        self.port == conn.peer.port() || ended()
    }
}

impl ConnInfo {
    /// A connection that has just begun.
    pub fn new(id: u64, peer: SocketAddr, local: SocketAddr) -> ConnInfo {
        ConnInfo {
            id,
            peer,
            local,
            transport: Transport::Clear,
            admitted: Admissions::default(),
            session: Remembered::default(),
            states: v4::Recent::default(),
            ended: Arc::default(),
        }
    }

    /// The peer sends nothing more on this connection, which also ends when its last copy is dropped.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The client's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Whether the peer sends nothing more on it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn line(&self) -> Line {
        Line {
            port: self.peer.port(),
            ended: Arc::downgrade(&self.ended),
        }
    }

    /// The session of a call with this credential. A client of NFSv3 is its address.
    pub(crate) fn session<'s>(&'s self, credential: &'s Credential) -> v3::Session<'s> {
        let origin = self.address();
        v3::Session {
            origin,
            protocol: Protocol::Nfsv3,
            flavour: credential.flavour(),
            transport: self.transport,
            identity: credential.identity(),
            access: v3::access::EachCall,
            client: origin.into(),
            admitted: &self.admitted,
        }
    }
}

/// When a call arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Civil time, for what the call changes.
    pub time: Time,
    /// Nanoseconds on the monotonic clock, if the caller has read the clock: spares reading it for each call.
    pub monotonic: Option<u64>,
    /// Bytes that a READ of it returns at most.
    pub reads: usize,
}

impl From<Time> for Arrival {
    fn from(time: Time) -> Arrival {
        Arrival {
            time,
            monotonic: None,
            reads: usize::MAX,
        }
    }
}
