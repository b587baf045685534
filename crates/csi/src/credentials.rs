//! Credentials of the driver at the server: a token in a file, or the key of a service account, by
//! which it signs what it shows (JSON Web Tokens with RS256, RFC 7518 §3.3).

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::json;
use weir_base::Clock;

/// Audience of what is signed: the API that the driver speaks, as Google's libraries write it.
const AUDIENCE: &str = "https://netapp.googleapis.com/";

/// Seconds for which a signature holds: the longest that Google's libraries use.
const SIGNED_FOR: i64 = 3600;

/// Seconds that clocks may differ by.
const SKEW: i64 = 10;

/// Proof of identity that the driver shows to the server.
pub enum Credentials {
    /// Nothing: the server is one that only its own machine reaches.
    None,
    /// The content of a file, which is read for each request: Kubernetes replaces it.
    Token(PathBuf),
    /// Claims that a key signs.
    Key(Box<Key>),
}

/// The key of a service account.
pub struct Key {
    id: String,
    email: String,
    pair: RsaKeyPair,
}

#[derive(Deserialize)]
struct KeyFile {
    private_key_id: String,
    private_key: String,
    client_email: String,
}

impl Key {
    /// Reads a key file.
    ///
    /// # Errors
    /// It cannot be read, or is no key of a service account.
    pub fn read(path: &Path) -> Result<Key> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let file: KeyFile = serde_json::from_str(&text)
            .with_context(|| format!("{} is no key of a service account", path.display()))?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(file.private_key.as_bytes());
        let pair = der
            .ok()
            .and_then(|der| RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok());
        Ok(Key {
            id: file.private_key_id,
            email: file.client_email,
            pair: pair.with_context(|| {
                format!(
                    "{}: private_key is no RSA key in PEM (PKCS #8)",
                    path.display()
                )
            })?,
        })
    }

    /// Returns claims with a signature, which hold from `now` (seconds since 1970) on.
    fn sign(&self, now: i64) -> Option<String> {
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = part(json!({"alg": "RS256", "typ": "JWT", "kid": self.id}));
        let claims = part(json!({
            "iss": self.email,
            "sub": self.email,
            "aud": AUDIENCE,
            "iat": now - SKEW,
            "exp": now - SKEW + SIGNED_FOR,
        }));
        let signed = format!("{head}.{claims}");
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl Credentials {
    /// Returns the text behind `Bearer`; `Ok(None)`: nothing is shown.
    ///
    /// # Errors
    /// The reason for there being none, for people.
    pub fn bearer(&self, clock: &dyn Clock) -> Result<Option<String>, String> {
        match self {
            Credentials::None => Ok(None),
            Credentials::Token(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(Some(text.trim().to_owned())),
                Err(e) => Err(format!("cannot read {}: {e}", path.display())),
            },
            Credentials::Key(key) => match key.sign(clock.current_time().secs) {
                Some(text) => Ok(Some(text)),
                None => Err("cannot sign with the service account's key".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_key_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        let why = |text: &str| {
            std::fs::write(&path, text).unwrap();
            format!("{:#}", Key::read(&path).err().unwrap())
        };
        assert!(why("x").contains("is no key of a service account"));
        let text = r#"{"private_key_id": "1", "private_key": "2", "client_email": "3"}"#;
        assert!(
            why(text).contains("private_key is no RSA key"),
            "{}",
            why(text)
        );
        let gone = Key::read(&folder.path().join("none")).err().unwrap();
        assert!(format!("{gone:#}").contains("cannot read"));
    }

    #[test]
    fn tokens_are_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let all = Credentials::Token(path.clone());
        let clock = weir_base::SystemClock::new();
        assert!(all.bearer(&clock).unwrap_err().contains("cannot read"));
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(all.bearer(&clock).unwrap().as_deref(), Some("one"));
        assert_eq!(Credentials::None.bearer(&clock), Ok(None));
    }
}
