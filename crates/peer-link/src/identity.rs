//! Certificate that identifies this node, and TLS between nodes that know each other's
//! certificates.
//!
//! No authority vouches for a node. Each node has its own certificate, created at its first start
//! and kept in the data folder. Pairing gives each node the SHA-256 of the other's, by hand or by a
//! passphrase ([`crate::pairing`]). Connections use TLS 1.3 with certificates on both sides. A
//! client whose certificate is not a peer's, or that lacks its key, fails the handshake. Names,
//! validity and issuers in certificates have no meaning here, so none of them is checked.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ::aws_lc_rs::digest::{SHA256, digest};
use anyhow::{Context, Result, anyhow};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct,
    DistinguishedName, ServerConfig, SignatureScheme,
};
use weir_base::{hex, small_file};

/// Files of this node's certificate and key.
const CERTIFICATE: &str = "replication-cert.pem";
const KEY: &str = "replication-key.pem";

/// A certificate with its key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
    /// Fingerprint of the certificate.
    pub fingerprint: String,
}

/// Describes an error of a connection between nodes. A lost connection is described without TLS's
/// words.
pub fn in_words(error: &anyhow::Error) -> String {
    let lost = error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
    });
    match lost {
        true => "the other end is gone, or has closed the connection".to_owned(),
        false => format!("{error:#}"),
    }
}

/// Returns true if the other end does not know this node's certificate. TLS 1.3 reports that only
/// after the handshake.
pub fn is_stranger(error: &anyhow::Error) -> bool {
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    let denied = rustls::Error::AlertReceived(AlertDescription::AccessDenied);
    inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) == Some(&denied)
}

/// Returns the SHA-256 of a certificate, in hexadecimal.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    hex::encode(digest(&SHA256, certificate).as_ref())
}

impl Identity {
    /// Opens the identity of a data folder. Creates the certificate at the first start.
    ///
    /// # Errors
    /// The files cannot be read, written or parsed.
    pub fn open(folder: &Path) -> Result<Identity> {
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        // The key is written first: if the certificate exists, both are complete.
        if !certificate.exists() {
            let pair = KeyPair::generate()?;
            let params = CertificateParams::new(vec!["weir".to_owned()])?;
            let made = params.self_signed(&pair)?;
            small_file::replace(folder, KEY, pair.serialize_pem().as_bytes())?;
            small_file::replace(folder, CERTIFICATE, made.pem().as_bytes())?;
        }
        let chain = CertificateDer::pem_file_iter(&certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| certificate.display().to_string())?;
        let own = chain
            .first()
            .ok_or_else(|| anyhow!("{}: no certificate", certificate.display()))?;
        let private =
            PrivateKeyDer::from_pem_file(&key).with_context(|| key.display().to_string())?;
        Ok(Identity {
            fingerprint: fingerprint(own),
            key: private,
            chain,
            provider: Arc::new(aws_lc_rs::default_provider()),
        })
    }

    /// Returns TLS settings for connections to this node from nodes in `known`.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn server(&self, known: AdmittedCertificates) -> Result<Arc<ServerConfig>> {
        self.serves(known).map(Arc::new)
    }

    /// Returns TLS settings for connections to this node with any certificate. `protocol` (ALPN) is
    /// the protocol that then identifies the other node.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn offering(&self, protocol: &[u8]) -> Result<Arc<ServerConfig>> {
        let mut config = self.serves(AdmittedCertificates::Anyone)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns TLS settings for connections to the node with this fingerprint.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn client(&self, fingerprint: &str) -> Result<Arc<ClientConfig>> {
        let known = AdmittedCertificates::These(vec![fingerprint.to_owned()]);
        self.connects(known).map(Arc::new)
    }

    /// Returns TLS settings for connections to a node that is [offering](Identity::offering).
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn joining(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>> {
        let mut config = self.connects(AdmittedCertificates::Anyone)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    fn serves(&self, known: AdmittedCertificates) -> Result<ServerConfig> {
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(self.pinned(known))
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(config)
    }

    fn connects(&self, known: AdmittedCertificates) -> Result<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.pinned(known))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        Ok(config)
    }

    fn pinned(&self, known: AdmittedCertificates) -> Arc<PinnedVerifier> {
        let provider = Arc::clone(&self.provider);
        Arc::new(PinnedVerifier { known, provider })
    }
}

#[derive(Debug)]
struct PinnedVerifier {
    known: AdmittedCertificates,
    provider: Arc<CryptoProvider>,
}

/// Fingerprints of the nodes that are peers now.
pub trait Fingerprints: Send + Sync {
    /// Returns true if a peer has the certificate with this fingerprint.
    fn contain(&self, fingerprint: &str) -> bool;
}

/// Certificates that are admitted.
pub enum AdmittedCertificates {
    /// A fixed list.
    These(Vec<String>),
    /// A list that changes while connections are accepted.
    Any(Arc<dyn Fingerprints>),
    /// All. The protocol that follows identifies the node.
    Anyone,
}

impl std::fmt::Debug for AdmittedCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AdmittedCertificates::These(_) => "These",
            AdmittedCertificates::Any(_) => "Any",
            AdmittedCertificates::Anyone => "Anyone",
        })
    }
}

impl PinnedVerifier {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let print = fingerprint(shown);
        let known = match &self.known {
            AdmittedCertificates::These(these) => these.contains(&print),
            AdmittedCertificates::Any(peers) => peers.contain(&print),
            AdmittedCertificates::Anyone => true,
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

/// Never called, because only TLS 1.3 is enabled.
fn no_tls12<T>() -> Result<T, rustls::Error> {
    Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
}

impl ServerCertVerifier for PinnedVerifier {
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

impl ClientCertVerifier for PinnedVerifier {
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
