//! Keys and signatures (MS-SMB2 §3.1.4.1, §3.1.4.2).
//!
//! A session's keys are derived from the key of its authentication, by SP 800-108 in counter mode
//! with HMAC-SHA256. From 3.1.1 on the context is the hash of all messages so far, so a man in the
//! middle who changed one of them gets other keys. Before 3.0 the session's key itself signs. Each
//! channel of a session has a key of its own. A signature covers the header with the signature
//! field zeroed and everything behind it, in a chain each message with its padding.

use crate::proto::dialect::Dialect;
use crate::proto::gmac::Gmac;
use crate::proto::header::{HEADER, command, flag};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{cmac, digest, hmac};
use weir_auth::legacy::{Key, equal};

/// The hash of the messages that led to a session (§3.3.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preauth(pub [u8; 64]);

impl Default for Preauth {
    fn default() -> Preauth {
        Preauth([0; 64])
    }
}

impl Preauth {
    /// SHA-512 of the value before and the message, from its header on.
    pub fn add(&mut self, message: &[u8]) {
        let mut hash = digest::Context::new(&digest::SHA512);
        hash.update(&self.0);
        hash.update(message);
        self.0.copy_from_slice(hash.finish().as_ref());
    }
}

/// SP 800-108 §5.1 in counter mode with HMAC-SHA256: one block, of which the first `N` bytes are
/// the key.
pub fn derive<const N: usize>(key: &[u8], label: &[u8], context: &[u8]) -> [u8; N] {
    const { assert!(N <= 32, "one block of SHA-256") };
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    mac.update(&1u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(context);
    mac.update(&(8 * N as u32).to_be_bytes());
    let mut out = [0; N];
    out.copy_from_slice(&mac.sign().as_ref()[..N]);
    out
}

/// The key of a session whose authentication ended with `full` (§3.3.5.5.3): its first 16 bytes,
/// with zeroes behind a shorter one.
pub fn short(full: &[u8]) -> Key {
    let mut key = [0; 16];
    let len = full.len().min(key.len());
    key[..len].copy_from_slice(&full[..len]);
    key
}

/// Signing algorithms (§2.2.3.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Signing {
    /// HMAC-SHA256, cut to 16 bytes: the only one before 3.0.
    Hmac = 0,
    /// AES-128-CMAC (RFC 4493): the only one of 3.0 and 3.0.2.
    Cmac = 1,
    /// AES-128-GMAC (SP 800-38D).
    Gmac = 2,
}

impl Signing {
    /// The algorithm to use with a client of 3.1.1 that offers these: GMAC, which is many times
    /// faster than CMAC, or the first of the others; CMAC also where nothing fits (§3.3.5.4).
    pub fn choose(offered: &[[u8; 2]]) -> Signing {
        if offered.contains(&(Signing::Gmac as u16).to_le_bytes()) {
            return Signing::Gmac;
        }
        let mut offered = offered.iter().map(|id| u16::from_le_bytes(*id));
        let known = [Signing::Cmac, Signing::Hmac];
        let found = offered.find_map(|id| known.into_iter().find(|s| *s as u16 == id));
        found.unwrap_or(Signing::Cmac)
    }
}

/// Signs the messages of a channel.
pub enum Signer {
    /// See [`Signing::Hmac`].
    Hmac(Box<hmac::Key>),
    /// See [`Signing::Cmac`].
    Cmac(Box<cmac::Key>),
    /// See [`Signing::Gmac`].
    Gmac(Box<Gmac>),
}

impl Signer {
    /// The signer of a channel (§3.3.5.5.3) whose authentication ended with this key, and whose
    /// messages had this hash.
    pub fn new(
        (dialect, signing): (Dialect, Signing),
        session_key: &Key,
        preauth: &Preauth,
    ) -> Signer {
        let key = match dialect {
            Dialect::Smb210 => *session_key,
            Dialect::Smb300 | Dialect::Smb302 => {
                derive(session_key, b"SMB2AESCMAC\0", b"SmbSign\0")
            }
            Dialect::Smb311 => derive(session_key, b"SMBSigningKey\0", &preauth.0),
        };
        match signing {
            Signing::Hmac => Signer::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &key))),
            Signing::Cmac => Signer::Cmac(Box::new(cmac_key(&key))),
            Signing::Gmac => Signer::Gmac(Box::new(Gmac::new(&key))),
        }
    }

    /// The signature of a message: `head` begins with its header, in which the signature is zeroed,
    /// and `data` follows.
    pub fn sign<'a>(&self, head: &'a [u8], data: impl Iterator<Item = &'a [u8]>) -> [u8; 16] {
        let pieces = std::iter::once(head).chain(data);
        match self {
            Signer::Hmac(key) => {
                let mut mac = hmac::Context::with_key(key);
                pieces.for_each(|piece| mac.update(piece));
                let mut out = [0; 16];
                out.copy_from_slice(&mac.sign().as_ref()[..16]);
                out
            }
            Signer::Cmac(key) => cmac_of(key, pieces),
            Signer::Gmac(key) => key.code(gmac_nonce(head), pieces),
        }
    }

    /// Returns true if the signature of a message, which begins with its header, is right.
    pub fn verify(&self, message: &[u8]) -> bool {
        let Some((head, data)) = message.split_first_chunk::<HEADER>() else {
            return false;
        };
        let mut unsigned = *head;
        unsigned[48..].fill(0);
        let data = Some(data).filter(|data| !data.is_empty());
        equal(&self.sign(&unsigned, data.into_iter()), &head[48..])
    }
}

fn cmac_key(key: &Key) -> cmac::Key {
    match cmac::Key::new(cmac::AES_128, key) {
        Ok(key) => key,
        Err(Unspecified) => unreachable!("the key has the cipher's length"),
    }
}

/// AES-128-CMAC (RFC 4493) of a message in pieces.
fn cmac_of<'a>(key: &cmac::Key, mut pieces: impl Iterator<Item = &'a [u8]>) -> Key {
    let mut mac = cmac::Context::with_key(key);
    let made = pieces.try_for_each(|piece| mac.update(piece));
    let made = made.and_then(|()| mac.sign());
    match made.map(|tag| tag.as_ref().try_into()) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) | Err(Unspecified) => unreachable!("it fails for no key and no message"),
    }
}

/// The nonce of a message with this header (§3.1.4.1): its number, who sends it, and whether it is
/// a CANCEL, which has the number of another message.
fn gmac_nonce(header: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&header[24..32]);
    let cancels = header[12..14] == command::CANCEL.to_le_bytes();
    nonce[8] = header[16] & flag::RESPONSE as u8 | u8::from(cancels) << 1;
    nonce
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
            .collect()
    }

    /// RFC 4493 §4, also with the message cut anywhere.
    #[test]
    fn cmac_is_the_published_one() {
        let key = unhex("2b7e151628aed2a6abf7158809cf4f3c");
        let key = cmac_key(&key.try_into().unwrap());
        let message = unhex(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
             30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        );
        for (len, code) in [
            (0, "bb1d6929e95937287fa37d129b756746"),
            (16, "070a16b46b4d4144f79bdd9dd04a287c"),
            (40, "dfa66747de9ae63030ca32611497c827"),
            (64, "51f0bebf7e3b9d92fc49741779363cfe"),
        ] {
            for cut in 0..=len {
                let (a, b) = message[..len].split_at(cut);
                assert_eq!(cmac_of(&key, [a, b].into_iter()).to_vec(), unhex(code));
            }
        }
    }

    #[test]
    fn another_sender_another_number_or_a_cancel_is_another_nonce() {
        let header = [0; HEADER];
        let mut seen = std::collections::HashSet::from([gmac_nonce(&header)]);
        for (at, with) in [(16, 1), (24, 1), (31, 1), (12, command::CANCEL as u8)] {
            let mut other = header;
            other[at] = with;
            assert!(seen.insert(gmac_nonce(&other)), "byte {at}");
        }
    }

    #[test]
    fn gmac_is_chosen_where_it_is_offered_and_cmac_where_nothing_fits() {
        for (offered, chosen) in [
            (&[[1, 0], [2, 0]][..], Signing::Gmac),
            (&[[0, 0], [1, 0]], Signing::Hmac),
            (&[[1, 0], [0, 0]], Signing::Cmac),
            (&[[9, 0]], Signing::Cmac),
        ] {
            assert_eq!(Signing::choose(offered), chosen);
        }
    }

    const KINDS: [(Dialect, Signing); 5] = [
        (Dialect::Smb210, Signing::Hmac),
        (Dialect::Smb302, Signing::Cmac),
        (Dialect::Smb311, Signing::Hmac),
        (Dialect::Smb311, Signing::Cmac),
        (Dialect::Smb311, Signing::Gmac),
    ];

    #[test]
    fn a_signature_covers_all_but_itself() {
        for kind in KINDS {
            let signer = Signer::new(kind, &[7; 16], &Preauth::default());
            let mut message: Vec<u8> = (0..100).collect();
            message[48..64].fill(0);
            let signature = signer.sign(&message, std::iter::empty());
            for cut in [64, 65, 99] {
                let (a, b) = message.split_at(cut);
                assert_eq!(signer.sign(a, std::iter::once(b)), signature);
            }
            message[48..64].copy_from_slice(&signature);
            assert!(signer.verify(&message));
            for at in 0..message.len() {
                message[at] ^= 1;
                assert!(!signer.verify(&message), "byte {at}");
                message[at] ^= 1;
            }
            assert!(!signer.verify(&message[..63]));
        }
    }

    /// The keys depend on every message before them, and only from 3.1.1 on.
    #[test]
    fn keys_depend_on_what_was_negotiated() {
        let mut other = Preauth::default();
        other.add(b"a message");
        let code = |kind, preauth| {
            Signer::new(kind, &[1; 16], preauth).sign(&[0; HEADER], std::iter::empty())
        };
        let none = Preauth::default();
        for kind in KINDS {
            let same = code(kind, &none) == code(kind, &other);
            assert_eq!(same, kind.0 < Dialect::Smb311);
        }
    }
}
