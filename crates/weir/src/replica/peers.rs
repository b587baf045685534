//! Other nodes, and how this one and they know each other.
//!
//! There is no authority that would vouch for anybody: each node has a certificate of its own, made at its first start
//! and kept in the data folder, and pairing is telling each node the SHA-256 of the other's. TLS 1.3 in both directions;
//! whoever shows a certificate whose sum is not among the peers', or has not its key, does not get past the handshake.
//! Names, validity and issuers in certificates mean nothing here, so nothing of them is looked at.

use std::fs;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde::{Deserialize, Serialize};
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

use crate::state;

/// The peers, in the data folder.
const PEERS: &str = "peers.json";
/// This node's certificate and key.
const CERTIFICATE: &str = "replication-cert.pem";
const KEY: &str = "replication-key.pem";
/// More are no pairing but an accident.
const MOST: usize = 256;
/// A connection has to come about within this.
const CONNECT: Duration = Duration::from_secs(10);
/// A peer that is gone is noticed after about this.
const GONE: Duration = Duration::from_secs(30);

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// What it is called here.
    pub name: String,
    /// `host:port`; `None` where only it connects to us.
    pub address: Option<String>,
    /// SHA-256 of its certificate, lower-case hexadecimal.
    pub fingerprint: String,
    /// Whether it answered when it was last asked, and if not, why.
    #[serde(skip)]
    pub available: Option<Result<(), String>>,
}

/// All of them, and this node's own certificate.
pub struct Peers {
    folder: PathBuf,
    list: Arc<Mutex<Vec<Peer>>>,
    /// Changes with each deletion.
    deleted: watch::Sender<()>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
    /// Of this node's certificate.
    pub fingerprint: String,
}

/// SHA-256 of a certificate, in hexadecimal.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let sum = ::ring::digest::digest(&::ring::digest::SHA256, certificate);
    sum.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// A fingerprint as people copy it: with colons or without, in either case.
fn normal(fingerprint: &str) -> Option<String> {
    let text = fingerprint.strip_prefix("SHA256:").unwrap_or(fingerprint);
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let sound = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    sound.then(|| digits.to_ascii_lowercase())
}

impl Peers {
    /// Of a data folder. The certificate is made at the first start.
    ///
    /// # Errors
    /// Files that cannot be read, written or understood.
    pub fn open(folder: &Path) -> Result<Peers> {
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
        let list: Vec<Peer> = match fs::read(folder.join(PEERS)) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| PEERS.to_owned())?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).context(PEERS),
        };
        Ok(Peers {
            folder: folder.to_owned(),
            list: Arc::new(Mutex::new(list)),
            deleted: watch::Sender::new(()),
            fingerprint: fingerprint(own),
            key: private,
            chain,
            provider: Arc::new(ring::default_provider()),
        })
    }

    /// By name.
    pub fn list(&self) -> Vec<Peer> {
        self.list.lock().clone()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<Peer> {
        self.list.lock().iter().find(|p| p.name == name).cloned()
    }

    /// Adds one.
    ///
    /// # Errors
    /// Why not, in words; nothing has changed.
    pub fn create(&self, name: &str, address: Option<&str>, print: &str) -> Result<(), String> {
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > 63 || !name.chars().all(sound) {
            return Err(format!("\"{name}\" is not a valid name for a peer."));
        }
        let fingerprint = normal(print).ok_or_else(|| {
            format!("\"{print}\" is not a SHA-256 fingerprint: 64 hexadecimal digits are wanted.")
        })?;
        if fingerprint == self.fingerprint {
            return Err("That is the fingerprint of this node itself.".to_owned());
        }
        if let Some(address) = address {
            let port = address.rsplit_once(':').and_then(|(host, port)| {
                port.parse::<u16>()
                    .ok()
                    .filter(|port| *port > 0 && !host.is_empty())
            });
            if port.is_none() {
                return Err(format!("\"{address}\" is not HOST:PORT."));
            }
        }
        let mut list = self.list.lock();
        let same = list
            .iter()
            .find(|p| p.name == name || p.fingerprint == fingerprint);
        if let Some(same) = same {
            return Err(match same.name == name {
                true => format!("Peer \"{name}\" already exists."),
                false => format!("Peer \"{}\" already has that fingerprint.", same.name),
            });
        }
        if list.len() >= MOST {
            return Err(format!("There are already {MOST} peers."));
        }
        let mut next = list.clone();
        next.push(Peer {
            name: name.to_owned(),
            address: address.map(str::to_owned),
            fingerprint,
            available: None,
        });
        next.sort_by(|a, b| a.name.cmp(&b.name));
        self.write(&next)?;
        *list = next;
        Ok(())
    }

    /// Takes one away; whether it was there. Its connections end, with the transfers on them.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn delete(&self, name: &str) -> Result<bool, String> {
        let mut list = self.list.lock();
        let mut next = list.clone();
        next.retain(|p| p.name != name);
        let there = next.len() < list.len();
        if there {
            self.write(&next)?;
            *list = next;
            self.deleted.send_replace(());
        }
        Ok(there)
    }

    /// Whether this is a peer still: of this name, with this certificate.
    pub fn has(&self, peer: &Peer) -> bool {
        let list = self.list.lock();
        list.iter()
            .any(|p| p.name == peer.name && p.fingerprint == peer.fingerprint)
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

    fn write(&self, list: &[Peer]) -> Result<(), String> {
        let bytes = serde_json::to_vec_pretty(list).map_err(|e| e.to_string())?;
        state::replace(&self.folder, PEERS, &bytes)
            .map_err(|e| format!("The change could not be recorded: {e}"))
    }

    /// Notes how asking a peer went.
    pub fn seen(&self, name: &str, outcome: Result<(), String>) {
        let mut list = self.list.lock();
        if let Some(peer) = list.iter_mut().find(|p| p.name == name) {
            peer.available = Some(outcome);
        }
    }

    /// Who showed this certificate.
    pub fn of(&self, certificate: &CertificateDer<'_>) -> Option<Peer> {
        let print = fingerprint(certificate);
        let list = self.list.lock();
        list.iter().find(|p| p.fingerprint == print).cloned()
    }

    /// For who connects to us.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn server(&self) -> Result<Arc<ServerConfig>> {
        let pinned = Arc::new(Pinned {
            known: Known::Any(Arc::clone(&self.list)),
            provider: Arc::clone(&self.provider),
        });
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(pinned)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(Arc::new(config))
    }

    /// For connecting to a peer.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn client(&self, peer: &Peer) -> Result<Arc<ClientConfig>> {
        let pinned = Arc::new(Pinned {
            known: Known::One(peer.fingerprint.clone()),
            provider: Arc::clone(&self.provider),
        });
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(Arc::new(config))
    }
}

/// A connection to `address`, set up as replication wants it.
///
/// # Errors
/// Nobody is there.
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

/// No waiting for full segments, and an end to connections that nobody is at the other end of. A transfer under a tight
/// throttle may say nothing for long, so it is not silence that tells.
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
    Any(Arc<Mutex<Vec<Peer>>>),
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Known::One(_) => "One",
            Known::Any(_) => "Any",
        })
    }
}

impl Pinned {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let print = fingerprint(shown);
        let known = match &self.known {
            Known::One(one) => *one == print,
            Known::Any(list) => list.lock().iter().any(|p| p.fingerprint == print),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_outlive_the_server_and_nonsense_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let peers = Peers::open(dir.path()).unwrap();
        let print = "AB:".repeat(31) + "AB";
        peers.create("far", Some("10.0.0.7:8051"), &print).unwrap();
        for (name, address, print, words) in [
            ("far", None, "cd".repeat(32), "already exists"),
            (
                "near",
                None,
                "ab".repeat(32),
                "already has that fingerprint",
            ),
            ("a b", None, "cd".repeat(32), "not a valid name"),
            ("near", Some("nowhere"), "cd".repeat(32), "not HOST:PORT"),
            ("near", Some(":1"), "cd".repeat(32), "not HOST:PORT"),
            ("near", None, "cd".repeat(31), "not a SHA-256 fingerprint"),
            ("near", None, peers.fingerprint.clone(), "this node itself"),
        ] {
            let why = peers.create(name, address, &print).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let again = Peers::open(dir.path()).unwrap();
        assert_eq!(again.fingerprint, peers.fingerprint);
        assert_eq!(again.list(), peers.list());
        assert_eq!(again.list()[0].fingerprint, "ab".repeat(32));
        assert!(again.delete("far").unwrap());
        assert!(!again.delete("far").unwrap());
        assert_eq!(Peers::open(dir.path()).unwrap().list(), []);
    }
}
