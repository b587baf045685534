//! The connection that a message came over, and the time of its arrival.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use weir_base::Time;
use weir_vfs::{Admissions, Transport};

/// Identity and state of a connection. `S` is the state that its protocol keeps.
#[derive(Clone, Debug)]
pub struct ConnInfo<S = ()> {
    /// Number of the connection, unique in this run of the server.
    pub id: u64,
    /// The client's address and port.
    pub peer: SocketAddr,
    /// The server's address and port.
    pub local: SocketAddr,
    /// True if another server of the cluster passes a client's messages on over it. The peer is
    /// that client.
    pub forwarded: bool,
    /// Protection of the connection.
    pub transport: Transport,
    /// Export rules that admitted its last requests.
    pub admitted: Admissions,
    /// The state that its protocol keeps.
    pub state: S,
    /// Set when the peer sends no more.
    ended: Arc<AtomicBool>,
}

/// Weak reference to a connection that a call came over.
pub struct Line {
    port: u16,
    ended: Weak<AtomicBool>,
}

impl Line {
    /// Returns true while the peer may send something on the connection.
    pub fn is_open(&self) -> bool {
        let ended = self.ended.upgrade();
        ended.is_some_and(|ended| !ended.load(Ordering::Relaxed))
    }

    /// Returns true if the same client may send a call again on `conn`, which comes from the same
    /// address.
    pub fn may_repeat_on<S>(&self, conn: &ConnInfo<S>) -> bool {
        self.port == conn.peer.port() || !self.is_open()
    }
}

impl<S> ConnInfo<S> {
    /// Creates the identity of a connection that has just begun.
    pub fn new(id: u64, peer: SocketAddr, local: SocketAddr) -> ConnInfo<S>
    where
        S: Default,
    {
        ConnInfo {
            id,
            peer,
            local,
            forwarded: false,
            transport: Transport::Clear,
            admitted: Admissions::default(),
            state: S::default(),
            ended: Arc::default(),
        }
    }

    /// Records that the peer sends nothing more on this connection. Dropping the last copy has the
    /// same effect.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns the client's address, canonical.
    pub fn address(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Returns true if the peer sends nothing more on the connection.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns a weak reference to the connection.
    pub fn line(&self) -> Line {
        Line {
            port: self.peer.port(),
            ended: Arc::downgrade(&self.ended),
        }
    }
}

/// Time of a message's arrival, and limit on its reply.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Civil time, for the message's changes.
    pub time: Time,
    /// Nanoseconds on the monotonic clock if the caller has read it, which saves a read of the
    /// clock for each message.
    pub monotonic: Option<u64>,
    /// Maximum number of bytes that a READ returns.
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
