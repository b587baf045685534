//! Other nodes, and how this one and they know each other.
//!
//! They are the rows of the catalog; what they know each other by is [`crate::identity`].

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use weir_base::limits::replica::PEER_CONNECT as CONNECT;
use weir_control::Control;
pub use weir_relations::manager::Peer;

use super::pairing;
use crate::identity::{Identity, Known, fingerprint};

/// A peer that is gone is noticed after about this.
const GONE: Duration = Duration::from_secs(30);

/// This node's own certificate, and the peers that the catalog has.
pub struct Peers {
    control: Arc<Control>,
    /// How it went when they were last asked, by name.
    seen: Mutex<HashMap<String, Result<(), String>>>,
    /// Changes with each deletion.
    deleted: watch::Sender<()>,
    identity: Identity,
    /// Of this node's certificate.
    pub fingerprint: String,
}

impl Peers {
    /// Of a data folder. The certificate is made at the first start.
    ///
    /// # Errors
    /// Files that cannot be read, written or understood.
    pub fn open(folder: &Path, control: Arc<Control>) -> Result<Peers> {
        let identity = Identity::open(folder)?;
        Ok(Peers {
            control,
            seen: Mutex::default(),
            deleted: watch::Sender::new(()),
            fingerprint: identity.fingerprint.clone(),
            identity,
        })
    }

    /// The peer of this name, if one is paired.
    pub fn get(&self, name: &str) -> Option<Arc<Peer>> {
        self.control.view().relations.peer(name).cloned()
    }

    /// Notes that one was deleted: its connections end, with the transfers on them.
    pub fn deleted(&self) {
        self.deleted.send_replace(());
    }

    /// Whether this is a peer still: of this name, with this certificate.
    pub fn has(&self, peer: &Peer) -> bool {
        let now = self.get(&peer.name);
        now.is_some_and(|now| now.fingerprint == peer.fingerprint)
    }

    /// Waits until this is no peer any more.
    pub async fn gone(&self, peer: &Peer) {
        let mut deleted = self.deleted.subscribe();
        while self.has(peer) {
            if deleted.changed().await.is_err() {
                return;
            }
        }
    }

    /// Notes how asking a peer went.
    pub fn note(&self, name: &str, outcome: Result<(), String>) {
        self.seen.lock().insert(name.to_owned(), outcome);
    }

    /// Whether a peer answered when it was last asked, and if not, why.
    pub fn available(&self, name: &str) -> Option<Result<(), String>> {
        self.seen.lock().get(name).cloned()
    }

    /// The peer that this certificate belongs to.
    pub fn of(&self, certificate: &CertificateDer<'_>) -> Option<Arc<Peer>> {
        let print = fingerprint(certificate);
        let view = self.control.view();
        let mut all = view.relations.peers();
        all.find(|p| p.fingerprint == print).cloned()
    }

    /// TLS settings for connections that other nodes open to this one.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn server(&self) -> Result<Arc<ServerConfig>> {
        self.identity.server(Known::Any(Arc::clone(&self.control)))
    }

    /// The same for nodes that join: their certificates are learned.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn offering(&self) -> Result<Arc<ServerConfig>> {
        self.identity.offering(pairing::PROTOCOL)
    }

    /// For connecting to a peer.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn client(&self, peer: &Peer) -> Result<Arc<ClientConfig>> {
        self.identity.client(&peer.fingerprint)
    }

    /// For joining a node whose certificate is not known yet.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn joining(&self) -> Result<Arc<ClientConfig>> {
        self.identity.joining(pairing::PROTOCOL)
    }
}

/// A connection to `address`, set up as replication wants it.
///
/// # Errors
/// Nothing listens at `address`, or it cannot be reached.
pub fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = None;
    let found = address
        .to_socket_addrs()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => error,
            // The resolver's own words name calls of its library.
            _ => std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "host not found (check the name, or give an IP address)",
            ),
        });
    let all: Vec<SocketAddr> = found?.collect();
    for one in all {
        match TcpStream::connect_timeout(&one, CONNECT) {
            Ok(stream) => {
                prepare(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other(format!("{address} has no address"))))
}

/// No waiting for full segments, and an end to connections whose other end is gone. A transfer under a tight throttle
/// may say nothing for long, so silence alone is no sign of that.
pub fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let probes = socket2::TcpKeepalive::new()
        .with_time(GONE / 3)
        .with_interval(GONE / 6)
        .with_retries(4);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(GONE))?;
    stream.set_nonblocking(true)
}
