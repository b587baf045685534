//! TLS for NFS and its companions (RFC 9289): the server's certificate, and the authorities for
//! certificates of clients.
//!
//! TLS 1.3 only. A client that names a protocol (ALPN) has to name `sunrpc`. Early Linux clients
//! name none, and are served. Sessions are not resumed: a mount makes few connections and keeps
//! them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};
use weir_vfs::{Rule, Transport};

use crate::cli::Serve;
use weir_net::kernel_tls;

/// Application-Layer Protocol Negotiation's name of RPC (RFC 9289 §8.2).
const ALPN: &[u8] = b"sunrpc";

/// The settings, if the options have a certificate; `rules` must not ask for more than they give.
///
/// # Errors
/// Files that cannot be read or do not belong together; rules that nobody could fulfil.
pub fn config(args: &Serve, rules: &[Rule]) -> Result<Option<Arc<ServerConfig>>> {
    let wanted = rules.iter().map(|rule| rule.transport).max();
    let (Some(certificate), Some(key)) = (&args.nfs_tls_cert, &args.nfs_tls_key) else {
        ensure!(
            wanted.is_none_or(|wanted| wanted == Transport::Clear),
            "export option xprtsec needs --nfs-tls-cert and --nfs-tls-key"
        );
        return Ok(None);
    };
    ensure!(
        wanted != Some(Transport::MutualTls) || args.nfs_tls_ca.is_some(),
        "export option xprtsec=mtls needs --nfs-tls-ca: whose certificates of clients count"
    );
    let chain = certificates(certificate).context("--nfs-tls-cert")?;
    let key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("--nfs-tls-key {}", key.display()))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13])?;
    let config = match &args.nfs_tls_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path).context("--nfs-tls-ca")? {
                roots.add(root).context("--nfs-tls-ca")?;
            }
            // Whether a client needs one is for the export's rule to say.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .context("--nfs-tls-ca")?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config
        .with_single_cert(chain, key)
        .context("--nfs-tls-cert and --nfs-tls-key")?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    let by_kernel = kernel_tls::ciphers();
    tracing::info!(ciphers = ?by_kernel, "TLS by the kernel");
    config.enable_secret_extraction = !by_kernel.is_empty();
    Ok(Some(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<_, _>>)
        .with_context(|| path.display().to_string())?;
    ensure!(!all.is_empty(), "{}: no certificate", path.display());
    Ok(all)
}
