//! Other nodes, and how this one and they know each other.
//!
//! There is no authority that would vouch for a node: each node has a certificate of its own, made at its first start
//! and kept in the data folder, and pairing is giving each node the SHA-256 of the other's, by hand or as [`pairing`] does
//! it. TLS 1.3 in both directions;
//! a client that shows a certificate whose sum is not among the peers', or does not have its key, does not get past the
//! handshake. Names, validity and issuers in certificates mean nothing here, so none of them is checked.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::sync::watch;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig,
    SignatureScheme,
};
use weir_base::limits::replica::PEER_CONNECT as CONNECT;
use weir_control::Control;
pub use weir_replica::manager::Peer;

use super::pairing;
use crate::state;

/// This node's certificate and key.
const CERTIFICATE: &str = "replication-cert.pem";
const KEY: &str = "replication-key.pem";
/// A peer that is gone is noticed after about this.
const GONE: Duration = Duration::from_secs(30);

/// This node's own certificate, and the peers that the catalog has.
pub struct Peers {
    control: Arc<Control>,
    /// How it went when they were last asked, by name.
    seen: Mutex<HashMap<String, Result<(), String>>>,
    /// Changes with each deletion.
    deleted: watch::Sender<()>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
    /// Of this node's certificate.
    pub fingerprint: String,
}

/// SHA-256 of a certificate, in hexadecimal.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let sum = ::ring::digest::digest(&::ring::digest::SHA256, certificate);
    sum.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

impl Peers {
    /// Of a data folder. The certificate is made at the first start.
    ///
    /// # Errors
    /// Files that cannot be read, written or understood.
    pub fn open(folder: &Path, control: Arc<Control>) -> Result<Peers> {
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        // The key is written first: where the certificate is, both are whole.
        if !certificate.exists() {
            let pair = KeyPair::generate()?;
            let params = CertificateParams::new(vec!["weir".to_owned()])?;
            let made = params.self_signed(&pair)?;
            state::replace(folder, KEY, pair.serialize_pem().as_bytes())?;
            state::replace(folder, CERTIFICATE, made.pem().as_bytes())?;
        }
        let chain = CertificateDer::pem_file_iter(&certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| certificate.display().to_string())?;
        let own = chain
            .first()
            .ok_or_else(|| anyhow!("{}: no certificate", certificate.display()))?;
        let private =
            PrivateKeyDer::from_pem_file(&key).with_context(|| key.display().to_string())?;
        Ok(Peers {
            control,
            seen: Mutex::default(),
            deleted: watch::Sender::new(()),
            fingerprint: fingerprint(own),
            key: private,
            chain,
            provider: Arc::new(ring::default_provider()),
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
        self.serves(Known::Any(Arc::clone(&self.control)))
            .map(Arc::new)
    }

    /// The same for nodes that join: their certificates are learned.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn offering(&self) -> Result<Arc<ServerConfig>> {
        let mut config = self.serves(Known::Anyone)?;
        config.alpn_protocols = vec![pairing::PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }

    fn serves(&self, known: Known) -> Result<ServerConfig> {
        let pinned = self.pinned(known);
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(pinned)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(config)
    }

    fn pinned(&self, known: Known) -> Arc<Pinned> {
        let provider = Arc::clone(&self.provider);
        Arc::new(Pinned { known, provider })
    }

    /// For connecting to a peer.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn client(&self, peer: &Peer) -> Result<Arc<ClientConfig>> {
        self.connects(Known::One(peer.fingerprint.clone()))
            .map(Arc::new)
    }

    /// For joining a node whose certificate is not known yet.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn joining(&self) -> Result<Arc<ClientConfig>> {
        let mut config = self.connects(Known::Anyone)?;
        config.alpn_protocols = vec![pairing::PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }

    fn connects(&self, known: Known) -> Result<ClientConfig> {
        let pinned = self.pinned(known);
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(config)
    }
}

/// A connection to `address`, set up as replication wants it.
///
/// # Errors
/// Nothing listens at `address`, or it cannot be reached.
pub fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = None;
    let all: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
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

#[derive(Debug)]
struct Pinned {
    known: Known,
    provider: Arc<CryptoProvider>,
}

enum Known {
    One(String),
    Any(Arc<Control>),
    /// Who it is, a passphrase says: [`pairing`].
    Anyone,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Known::One(_) => "One",
            Known::Any(_) => "Any",
            Known::Anyone => "Anyone",
        })
    }
}

impl Pinned {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let print = fingerprint(shown);
        let known = match &self.known {
            Known::One(one) => *one == print,
            Known::Any(control) => {
                let view = control.view();
                view.relations.peers().any(|p| p.fingerprint == print)
            }
            Known::Anyone => true,
        };
        match known {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Only TLS 1.3 is spoken, so this is never asked.
fn no_tls12<T>() -> Result<T, rustls::Error> {
    Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
