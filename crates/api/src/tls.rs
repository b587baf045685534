//! The certificate that the listener shows.

use crate::grpc;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{self, ServerConfig};

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
    key: PathBuf,
    /// Path of the certificate, for clients that are to trust it.
    pub certificate: PathBuf,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl Tls {
    /// Reads files in PEM: the certificate with its chain, and its key.
    ///
    /// # Errors
    /// They cannot be read, are not PEM, or do not belong together.
    pub fn given(certificate: &Path, key: &Path) -> io::Result<Tls> {
        Ok(Tls {
            config: Arc::new(RwLock::new(settings(certificate, key)?)),
            key: key.to_owned(),
            certificate: certificate.to_owned(),
        })
    }

    /// Reads the files anew.
    ///
    /// # Errors
    /// As [`Tls::given`].
    pub fn read(&self) -> io::Result<Arc<ServerConfig>> {
        settings(&self.certificate, &self.key)
    }

    /// Replaces the certificate for connections from now on by what was [read](Tls::read).
    pub fn replace(&self, config: Arc<ServerConfig>) {
        // Nothing panics while it is locked.
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Opens a folder: `api-cert.pem` and `api-key.pem` in it. They are made there the first time,
    /// signed by themselves, for these names and addresses, and for those that are `asked` for. A
    /// certificate that is not for all that is asked for is replaced by one that is, with the same
    /// key. Clients have to be given it.
    ///
    /// # Errors
    /// The files cannot be made or used, or something asked for is neither a name nor an address.
    pub fn generated(folder: &Path, names: &[String], asked: &[String]) -> io::Result<Tls> {
        let certificate = folder.join("api-cert.pem");
        let key = folder.join("api-key.pem");
        let there = certificate.exists();
        let wanted = asked.iter().map(|name| {
            ServerName::try_from(name.as_str())
                .map_err(|_| invalid(format!("'{name}' is neither a host name nor an address")))
        });
        let wanted: Vec<ServerName<'_>> = wanted.collect::<io::Result<_>>()?;
        if there && is_for(&certificate, &wanted)? {
            return Tls::given(&certificate, &key);
        }
        let pair = match there {
            true => KeyPair::from_pem(&std::fs::read_to_string(&key)?).map_err(invalid)?,
            false => KeyPair::generate().map_err(invalid)?,
        };
        let mut all: Vec<String> = names.iter().chain(asked).cloned().collect();
        all.sort_unstable();
        all.dedup();
        let params = CertificateParams::new(all).map_err(invalid)?;
        let made = params.self_signed(&pair).map_err(invalid)?;
        // The key is written first: where the certificate is, both are whole.
        if !there {
            write(&key, &pair.serialize_pem())?;
        }
        write(&certificate, &made.pem())?;
        if there {
            let place = certificate.display();
            tracing::warn!(
                "replaced the certificate {place}, which was not for {}: give the new one to clients that trusted the old one",
                asked.join(", ")
            );
        }
        Tls::given(&certificate, &key)
    }

    pub(crate) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        tokio_rustls::TlsAcceptor::from(Arc::clone(&config))
    }
}

/// Returns the settings of a listener whose certificate and key are in these files.
fn settings(certificate: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let named = |p: &Path| {
        let p = p.display().to_string();
        move |e: rustls_pki_types::pem::Error| invalid(format!("{p}: {e}"))
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .map_err(named(certificate))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(named(certificate))?;
    if chain.is_empty() {
        return Err(invalid(format!(
            "{}: no certificate in it",
            certificate.display()
        )));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(named(key))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(invalid)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| invalid(format!("{}: {e}", certificate.display())))?;
    // In the order of preference: only a client that offers nothing else gets HTTP/2.
    config.alpn_protocols = vec![b"http/1.1".to_vec(), grpc::ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// Returns true if a certificate is for all these names and addresses.
fn is_for(certificate: &Path, names: &[ServerName<'_>]) -> io::Result<bool> {
    let der = CertificateDer::from_pem_file(certificate)
        .map_err(|e| invalid(format!("{}: {e}", certificate.display())))?;
    let parsed = ParsedCertificate::try_from(&der).map_err(invalid)?;
    Ok(names
        .iter()
        .all(|name| verify_server_name(&parsed, name).is_ok()))
}

/// Writes a file so that it is there as a whole or not at all.
fn write(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let new = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_certificate_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["localhost".to_owned(), "10.0.0.7".to_owned()];
        let tls = Tls::generated(dir.path(), &names, &[]).unwrap();
        let first = std::fs::read(&tls.certificate).unwrap();
        let again = Tls::generated(dir.path(), &names, &names[..1]).unwrap();
        assert_eq!(std::fs::read(again.certificate).unwrap(), first);
        // Until it is to be for more than it is for; the key stays.
        let key_before = std::fs::read(dir.path().join("api-key.pem")).unwrap();
        let asked = ["weir.example.com".to_owned(), "fd00::7".to_owned()];
        let more = Tls::generated(dir.path(), &names, &asked).unwrap();
        let second = std::fs::read(&more.certificate).unwrap();
        assert_ne!(second, first);
        assert_eq!(
            std::fs::read(dir.path().join("api-key.pem")).unwrap(),
            key_before
        );
        for name in names.iter().chain(&asked) {
            let name = ServerName::try_from(name.as_str()).unwrap();
            assert!(is_for(&more.certificate, &[name]).unwrap());
        }
        Tls::generated(dir.path(), &names, &asked).unwrap();
        assert_eq!(std::fs::read(&more.certificate).unwrap(), second);
        let nonsense = ["a b".to_owned()];
        assert!(Tls::generated(dir.path(), &names, &nonsense).is_err());
        use std::os::unix::fs::PermissionsExt as _;
        let key = std::fs::metadata(dir.path().join("api-key.pem")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let tls = Tls::generated(dir.path(), &["localhost".to_owned()], &[]).unwrap();
        let key = dir.path().join("api-key.pem");
        let nothing = dir.path().join("nothing.pem");
        assert!(
            Tls::given(&nothing, &key)
                .unwrap_err()
                .to_string()
                .contains("nothing.pem")
        );
        assert!(Tls::given(&tls.certificate, &nothing).is_err());
        assert!(Tls::given(&key, &key).is_err());
        std::fs::write(&nothing, "text").unwrap();
        assert!(Tls::given(&tls.certificate, &nothing).is_err());
    }
}
