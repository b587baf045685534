//! Other nodes, and the certificates by which they and this node identify each other.
//!
//! Peers are rows of the catalog; [`weir_peer_link::identity`] has the certificates. The servers of
//! a cluster are peers as well, by its directory, for moves of volumes between their aggregates.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use weir_control::Control;
pub use weir_relations::manager::Peer;

use weir_peer_link::identity::{AdmittedCertificates, Fingerprints, Identity, fingerprint};
use weir_peer_link::pairing;
use weir_vfs::Vfs;

/// This node's certificate, and the catalog's peers.
pub struct Peers {
    control: Arc<Control>,
    /// The cluster's directory, whose servers are peers for moves of volumes.
    cluster: Option<Arc<Vfs>>,
    /// Result of the last request to each peer, by name.
    seen: Mutex<HashMap<String, Result<(), String>>>,
    /// Changes with each deletion of a peer.
    deleted: watch::Sender<()>,
    identity: Identity,
    /// Fingerprint of this node's certificate.
    pub fingerprint: String,
}

impl Peers {
    /// Opens the identity of a data folder. Creates the certificate at the first start.
    ///
    /// # Errors
    /// The files cannot be read, written or parsed.
    pub fn open(folder: &Path, control: Arc<Control>, cluster: Option<Arc<Vfs>>) -> Result<Peers> {
        let identity = Identity::open(folder)?;
        Ok(Peers {
            control,
            cluster,
            seen: Mutex::default(),
            deleted: watch::Sender::new(()),
            fingerprint: identity.fingerprint.clone(),
            identity,
        })
    }

    /// Returns the peer of this name, if one is paired.
    pub fn get(&self, name: &str) -> Option<Arc<Peer>> {
        self.control.view().relations.peer(name).cloned()
    }

    /// Reports that a peer was deleted: its connections end, with the transfers on them.
    pub fn deleted(&self) {
        self.deleted.send_replace(());
    }

    /// Returns true if this is still a peer, with this name and this certificate.
    pub fn has_peer(&self, peer: &Peer) -> bool {
        if peer.name.starts_with(SERVER) {
            return server_of(self.cluster.as_deref(), &peer.fingerprint).is_some();
        }
        let now = self.get(&peer.name);
        now.is_some_and(|now| now.fingerprint == peer.fingerprint)
    }

    /// Returns true if the peer is another server of the cluster.
    pub fn is_server(peer: &Peer) -> bool {
        peer.name.starts_with(SERVER)
    }

    /// Waits until this is no longer a peer.
    pub async fn gone(&self, peer: &Peer) {
        let mut deleted = self.deleted.subscribe();
        while self.has_peer(peer) {
            if deleted.changed().await.is_err() {
                return;
            }
        }
    }

    /// Records the result of a request to a peer.
    pub fn note(&self, name: &str, outcome: Result<(), String>) {
        self.seen.lock().insert(name.to_owned(), outcome);
    }

    /// Returns the result of the last request to a peer, with the cause of a failure; `None` if
    /// there was no request.
    pub fn available(&self, name: &str) -> Option<Result<(), String>> {
        self.seen.lock().get(name).cloned()
    }

    /// Returns the peer with this certificate.
    pub fn find_by_certificate(&self, certificate: &CertificateDer<'_>) -> Option<Arc<Peer>> {
        let print = fingerprint(certificate);
        let view = self.control.view();
        let mut all = view.relations.peers();
        let paired = all.find(|p| p.fingerprint == print).cloned();
        paired.or_else(|| server_of(self.cluster.as_deref(), &print).map(Arc::new))
    }

    /// Returns the TLS settings for connecting to the server with this certificate.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn client_of(&self, fingerprint: &str) -> Result<Arc<ClientConfig>> {
        self.identity.client(fingerprint)
    }

    /// Returns the TLS settings for connections of peers to this node.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn server(&self) -> Result<Arc<ServerConfig>> {
        self.identity
            .server(AdmittedCertificates::Any(Arc::new(KnownPeers {
                control: Arc::clone(&self.control),
                cluster: self.cluster.clone(),
            })))
    }

    /// Returns the TLS settings for connections of joining nodes to this node, whose certificates
    /// are learned.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn offering(&self) -> Result<Arc<ServerConfig>> {
        self.identity.offering(pairing::PROTOCOL)
    }

    /// Returns the TLS settings for connecting to a peer.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn client(&self, peer: &Peer) -> Result<Arc<ClientConfig>> {
        self.identity.client(&peer.fingerprint)
    }

    /// Returns the TLS settings for joining a node whose certificate is not known yet.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn joining(&self) -> Result<Arc<ClientConfig>> {
        self.identity.joining(pairing::PROTOCOL)
    }
}

/// Start of the names of peers that are servers of the cluster. No paired peer's name has a blank.
const SERVER: &str = "aggregate ";

/// Returns the server of the cluster with this certificate.
fn server_of(cluster: Option<&Vfs>, fingerprint: &str) -> Option<Peer> {
    let directory = cluster?.directory();
    let mut servers = directory.servers().iter();
    let server = servers.find(|server| server.fingerprint == fingerprint)?;
    Some(Peer {
        name: format!("{SERVER}{}", server.aggregate),
        address: None,
        fingerprint: fingerprint.to_owned(),
    })
}

/// Fingerprints of the catalog's peers and of the cluster's servers.
struct KnownPeers {
    control: Arc<Control>,
    cluster: Option<Arc<Vfs>>,
}

impl Fingerprints for KnownPeers {
    fn contain(&self, fingerprint: &str) -> bool {
        let view = self.control.view();
        let mut paired = view.relations.peers();
        paired.any(|p| p.fingerprint == fingerprint)
            || server_of(self.cluster.as_deref(), fingerprint).is_some()
    }
}
