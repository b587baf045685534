//! Service accounts' keys: made here, and written to a file of Google's form. The private key is
//! sent nowhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// A new key, and the file that it is to be written to. Without [`KeyFile::write`] the file goes
/// away again: it would be in the way of the next try.
pub struct KeyFile {
    path: PathBuf,
    file: File,
    private: String,
    /// The public key, in PEM.
    pub public: String,
    id: String,
    written: bool,
}

impl KeyFile {
    /// Makes a key, and the file, which nobody else may read.
    ///
    /// # Errors
    /// The file is there already, or cannot be made.
    pub fn new(path: &Path) -> io::Result<KeyFile> {
        // First, so that no account is left behind whose key cannot be written.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let mut made = KeyFile {
            path: path.to_owned(),
            file,
            private: String::new(),
            public: String::new(),
            id: String::new(),
            written: false,
        };
        made.generate()
            .map_err(|_| io::Error::other("no key could be made"))?;
        Ok(made)
    }

    fn generate(&mut self) -> Result<(), Unspecified> {
        let pair = KeyPair::generate(KeySize::Rsa2048)?;
        let private: Pkcs8V1Der<'_> = pair.as_der()?;
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
        let mut id = [0; 20];
        rand::fill(&mut id)?;
        self.private = pem("PRIVATE KEY", private.as_ref());
        self.public = pem("PUBLIC KEY", public.as_ref());
        self.id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(())
    }

    /// Writes the key of the account `name`, which the server has, in Google's form.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(mut self, name: &str, project: &str, token_uri: &str) -> io::Result<()> {
        let key = json!({
            "type": "service_account",
            "project_id": project,
            "private_key_id": self.id,
            "private_key": self.private,
            "client_email": format!("{name}@{project}.weir.internal"),
            "client_id": name,
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        });
        self.file.write_all(format!("{key:#}\n").as_bytes())?;
        self.file.sync_all()?;
        self.written = true;
        Ok(())
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        if !self.written {
            // The failure that led here is reported; this one would add nothing.
            let _ = fs::remove_file(&self.path);
        }
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
