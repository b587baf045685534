//! Pairing by a passphrase: two nodes learn each other's certificates, and nobody has to compare
//! fingerprints.
//!
//! One node **offers**: it makes a passphrase of 140 random bits, which its administrator carries
//! to the other node. That one **joins**: it connects, and both show their certificates (TLS 1.3
//! proves that each has the key). Each then proves that it knows the passphrase by
//!
//! HMAC-SHA256(passphrase, protocol · side · exporter · certificate of the joining node ·
//! certificate of the offering one)
//!
//! Certificates are given by their SHA-256. The exporter is the secret that only the two ends of
//! this connection have (RFC 8446 §7.5; RFC 9266 uses it for channel binding). So the passphrase is
//! never sent, and a recorded proof is worth nothing on another connection. A man in the middle has
//! two connections with two exporters and two certificates, and cannot pass on either proof. One
//! side's proof differs from the other's, so it cannot be sent back. A PAKE would protect a
//! passphrase that can be guessed from a listener who tries all of them. One of 140 random bits
//! cannot be guessed, so a MAC suffices, and nothing else has to be implemented.

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::rustls::{self, CommonState, ConnectionCommon};
use weir_base::Rng;

use crate::identity::fingerprint;

/// Protocol name (ALPN) by which a joining node announces its request, before it shows a
/// certificate that is not known yet.
pub const PROTOCOL: &[u8] = b"weir-pair/1";
/// Label of the secret that is exported from the connection.
const LABEL: &[u8] = b"EXPORTER-weir-pair";
/// Maximum number of bytes of a message.
const MAX_MESSAGE: usize = 4096;
/// Characters of passphrases (RFC 4648 §6, in lower case), without 0, 1, 8 and 9, which look like
/// letters.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Number of groups of four characters, of five bits each.
const GROUPS: usize = 7;

/// Returns a passphrase of 140 random bits to read out: `abcd-efgh-…`.
pub fn passphrase(rng: &dyn Rng) -> String {
    let character = |_| {
        let at = usize::try_from(rng.below(32)).unwrap_or_default();
        char::from(ALPHABET.get(at).copied().unwrap_or(b'a'))
    };
    let group = |_| (0..4).map(character).collect::<String>();
    (0..GROUPS).map(group).collect::<Vec<_>>().join("-")
}

/// Side that a proof belongs to.
#[derive(Clone, Copy)]
pub enum Side {
    /// The node that connects.
    Joins,
    /// The node that made the passphrase.
    Offers,
}

/// Secrets and certificates of one connection, which both its ends know and no other connection
/// has.
pub struct Channel {
    exporter: [u8; 32],
    joins: String,
    offers: String,
}

impl Channel {
    /// Describes a connection between the nodes with the fingerprints `joins` and `offers`.
    ///
    /// # Errors
    /// The handshake is not over.
    pub fn from_connection<Data>(
        connection: &ConnectionCommon<Data>,
        joins: String,
        offers: String,
    ) -> Result<Channel, rustls::Error> {
        let exporter = connection.export_keying_material([0; 32], LABEL, None)?;
        Ok(Channel {
            exporter,
            joins,
            offers,
        })
    }

    fn message(&self, side: Side) -> Vec<u8> {
        let side: &[u8] = match side {
            Side::Joins => b"joins",
            Side::Offers => b"offers",
        };
        let (joins, offers) = (self.joins.as_bytes(), self.offers.as_bytes());
        [PROTOCOL, b" ", side, b" ", &self.exporter, joins, offers].concat()
    }

    /// Returns a side's proof that it knows the passphrase.
    pub fn prove(&self, passphrase: &str, side: Side) -> Vec<u8> {
        let tag = hmac::sign(&key(passphrase), &self.message(side));
        tag.as_ref().to_vec()
    }

    /// Returns true if a proof is valid; takes constant time.
    pub fn proves(&self, passphrase: &str, side: Side, proof: &[u8]) -> bool {
        hmac::verify(&key(passphrase), &self.message(side), proof).is_ok()
    }
}

/// Returns the key of a passphrase. Accepts capitals and blanks, and needs no dashes.
fn key(passphrase: &str) -> hmac::Key {
    let written = passphrase.chars().filter(char::is_ascii_alphanumeric);
    let written: String = written.map(|c| c.to_ascii_lowercase()).collect();
    hmac::Key::new(hmac::HMAC_SHA256, written.as_bytes())
}

/// Message of the exchange: its length, then JSON. Its size does not matter, because it is sent
/// once in a node's life.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// Request of the joining node.
    Join {
        /// Name that the node gives itself.
        name: String,
        /// Port on which it listens for peers.
        port: Option<u16>,
        /// Proof that it knows the passphrase.
        proof: Vec<u8>,
    },
    /// Reply of the offering node.
    Offer {
        /// Name that the node gives itself.
        name: String,
        /// Proof that it knows the passphrase.
        proof: Vec<u8>,
    },
    /// The peer's row is written.
    Paired,
    /// The peer's row is not written, for this reason.
    Refused(String),
}

/// Sends a message.
///
/// # Errors
/// The connection is gone.
pub async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &Message,
) -> std::io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&text).await?;
    stream.flush().await
}

/// Receives a message.
///
/// # Errors
/// The connection is gone, or the message is too long or malformed.
pub async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Message> {
    let length = stream.read_u32().await? as usize;
    if length > MAX_MESSAGE {
        return Err(std::io::Error::other("a message that is too long"));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

/// Returns the fingerprint of the certificate that the other end has shown, and proven to be its
/// own.
pub fn shown_fingerprint(connection: &CommonState) -> Option<String> {
    let chain = connection.peer_certificates()?;
    Some(fingerprint(chain.first()?))
}
