//! Other nodes, and how this one and they know each other.
//!
//! They are the rows of the catalog; what they know each other by is [`weir_peer_link::identity`].

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

use weir_peer_link::identity::{Fingerprints, Identity, Known, fingerprint};
use weir_peer_link::pairing;

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
        self.identity
            .server(Known::Any(Arc::new(CatalogPeers(Arc::clone(
                &self.control,
            )))))
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

/// Certificates of the peers that the catalog has.
struct CatalogPeers(Arc<Control>);

impl Fingerprints for CatalogPeers {
    fn contain(&self, fingerprint: &str) -> bool {
        let view = self.0.view();
        view.relations.peers().any(|p| p.fingerprint == fingerprint)
    }
}
