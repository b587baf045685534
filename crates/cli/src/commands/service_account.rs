//! Service accounts: a key file of Google's form, whose private key is made here and sent nowhere.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::error::Error;
use crate::http::Method;
use crate::session::Session;

/// A new key, in PEM.
struct Key {
    private: String,
    public: String,
    id: String,
}

/// Creates the account `name` at the server, with the role and lifetime of `body`, and writes its
/// key to `file`.
///
/// # Errors
/// The file exists already or cannot be written; the server's.
pub(super) fn create(
    session: &mut Session<'_, '_>,
    name: &str,
    file: &Path,
    body: &mut Value,
) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::Other(format!("cannot write {}: {error}", file.display()))
    };
    // First, so that no account is left behind whose key could not be written.
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| failed(&error))?;
    let made = make(session, name, body).and_then(|key_file| {
        let text = format!("{key_file:#}\n");
        let written = out.write_all(text.as_bytes()).and_then(|()| out.sync_all());
        written.map_err(|error| failed(&error))
    });
    if made.is_err() {
        // What failed is reported; the empty file would be in the way of the next try.
        let _ = fs::remove_file(file);
    }
    made
}

/// Creates the account, and returns the content of its key file.
fn make(session: &mut Session<'_, '_>, name: &str, body: &mut Value) -> Result<Value, Error> {
    let key = Key::make().map_err(|_| Error::Other("cannot make a key of RSA".to_owned()))?;
    let token_uri = format!("{}/token", session.client().address());
    if let Some(fields) = body.as_object_mut() {
        fields.insert("publicKey".to_owned(), Value::from(key.public));
        fields.insert("tokenUri".to_owned(), Value::from(token_uri.as_str()));
    }
    let query = [("tokenId", name.to_owned())];
    session.call(Method::Post, "tokens", &query, Some(body))?;
    let project = session.project_id();
    Ok(json!({
        "type": "service_account",
        "project_id": project,
        "private_key_id": key.id,
        "private_key": key.private,
        "client_email": format!("{name}@{project}.weir.internal"),
        "client_id": name,
        "token_uri": token_uri,
        "universe_domain": "googleapis.com",
    }))
}

impl Key {
    fn make() -> Result<Key, Unspecified> {
        let pair = KeyPair::generate(KeySize::Rsa2048)?;
        let private: Pkcs8V1Der<'_> = pair.as_der()?;
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
        let mut id = [0; 20];
        rand::fill(&mut id)?;
        Ok(Key {
            private: pem("PRIVATE KEY", private.as_ref()),
            public: pem("PUBLIC KEY", public.as_ref()),
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// Returns bytes in the textual encoding of RFC 7468.
fn pem(label: &str, der: &[u8]) -> String {
    let mut out = format!("-----BEGIN {label}-----\n");
    let text = STANDARD.encode(der);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = behind;
    }
    out + &format!("-----END {label}-----\n")
}
