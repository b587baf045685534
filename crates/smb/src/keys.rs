//! Keys and signatures (MS-SMB2 §3.1.4.1, §3.1.4.2).
//!
//! A session's keys are derived from the key that its authentication ended with: by SP 800-108 in counter mode with
//! HMAC-SHA256, from 3.1.1 on with the hash of all messages up to there as context, so that a man in the middle who changed one of them has
//! other keys. Before 3.0 the session's key itself signs. A signature covers the header with the signature field zeroed and
//! everything behind it, in a chain each message with its padding.

use crate::legacy::{Key, equal};
use crate::negotiate::Dialect;
use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use ring::{digest, hmac};

/// The hash of the messages that led to a session (§3.3.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preauth(pub [u8; 64]);

impl Default for Preauth {
    fn default() -> Preauth {
        Preauth([0; 64])
    }
}

impl Preauth {
    /// Adds a message.
    pub fn add(&mut self, message: &[u8]) {
        let mut hash = digest::Context::new(&digest::SHA512);
        hash.update(&self.0);
        hash.update(message);
        self.0.copy_from_slice(hash.finish().as_ref());
    }
}

/// SP 800-108 §5.1 in counter mode with HMAC-SHA256: one block, of which the first 128 bits count.
pub fn derive(key: &[u8], label: &[u8], context: &[u8]) -> Key {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    mac.update(&1u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(context);
    mac.update(&128u32.to_be_bytes());
    let mut out = [0; 16];
    out.copy_from_slice(&mac.sign().as_ref()[..16]);
    out
}

/// What signs a session's messages.
pub enum Signer {
    /// HMAC-SHA256, cut to 16 bytes: before 3.0.
    Hmac(hmac::Key),
    /// AES-128-CMAC (RFC 4493): from 3.0 on.
    Cmac(Box<Cmac>),
}

impl Signer {
    /// The signer of a session (§3.3.5.5.3) with this key, whose messages had this hash.
    pub fn new(dialect: Dialect, session_key: &Key, preauth: &Preauth) -> Signer {
        match dialect {
            Dialect::Smb210 => Signer::Hmac(hmac::Key::new(hmac::HMAC_SHA256, session_key)),
            Dialect::Smb300 | Dialect::Smb302 => {
                let key = derive(session_key, b"SMB2AESCMAC\0", b"SmbSign\0");
                Signer::Cmac(Box::new(Cmac::new(&key)))
            }
            Dialect::Smb311 => {
                let key = derive(session_key, b"SMBSigningKey\0", &preauth.0);
                Signer::Cmac(Box::new(Cmac::new(&key)))
            }
        }
    }

    /// The signature of a message in pieces.
    pub fn sign<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> [u8; 16] {
        match self {
            Signer::Hmac(key) => {
                let mut mac = hmac::Context::with_key(key);
                pieces.for_each(|piece| mac.update(piece));
                let mut out = [0; 16];
                out.copy_from_slice(&mac.sign().as_ref()[..16]);
                out
            }
            Signer::Cmac(cmac) => cmac.sign(pieces),
        }
    }

    /// Whether a message, which begins with its header, has the signature that it should.
    pub fn verify(&self, message: &[u8]) -> bool {
        let Some((before, rest)) = message.split_at_checked(48) else {
            return false;
        };
        let Some((signature, after)) = rest.split_at_checked(16) else {
            return false;
        };
        let pieces = [before, &[0; 16], after];
        equal(&self.sign(pieces.into_iter()), signature)
    }
}

/// AES-128-CMAC (RFC 4493).
pub struct Cmac {
    cipher: Aes128,
    whole: Key,
    partial: Key,
}

/// Doubling in GF(2^128).
fn double(block: Key) -> Key {
    let n = u128::from_be_bytes(block);
    let carry = (n >> 127) * 0x87;
    (n << 1 ^ carry).to_be_bytes()
}

fn xor(to: &mut Key, with: &[u8]) {
    to.iter_mut().zip(with).for_each(|(to, with)| *to ^= with);
}

impl Cmac {
    /// With this key.
    pub fn new(key: &Key) -> Cmac {
        let cipher = Aes128::new(&(*key).into());
        let mut zero = [0u8; 16].into();
        cipher.encrypt_block(&mut zero);
        let whole = double(zero.into());
        Cmac {
            cipher,
            whole,
            partial: double(whole),
        }
    }

    fn encrypt(&self, state: &mut Key) {
        let mut block = (*state).into();
        self.cipher.encrypt_block(&mut block);
        *state = block.into();
    }

    /// The code of a message in pieces.
    pub fn sign<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Key {
        let mut state = [0; 16];
        // The block that may be the last: `filled` bytes of it have been added to `state`.
        let mut filled = 0;
        for mut piece in pieces {
            while !piece.is_empty() {
                if filled == 16 {
                    self.encrypt(&mut state);
                    filled = 0;
                }
                let (now, rest) = piece.split_at(piece.len().min(16 - filled));
                xor_at(&mut state, filled, now);
                filled += now.len();
                piece = rest;
            }
        }
        match filled {
            16 => xor(&mut state, &self.whole),
            _ => {
                xor_at(&mut state, filled, &[0x80]);
                xor(&mut state, &self.partial);
            }
        }
        self.encrypt(&mut state);
        state
    }
}

fn xor_at(state: &mut Key, at: usize, with: &[u8]) {
    let to = state[at..].iter_mut();
    to.zip(with).for_each(|(to, with)| *to ^= with);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
            .collect()
    }

    /// RFC 4493 §4, also with the message cut anywhere.
    #[test]
    fn cmac_is_the_published_one() {
        let key = unhex("2b7e151628aed2a6abf7158809cf4f3c")
            .try_into()
            .unwrap();
        let message = unhex(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
             30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        );
        let cmac = Cmac::new(&key);
        for (len, code) in [
            (0, "bb1d6929e95937287fa37d129b756746"),
            (16, "070a16b46b4d4144f79bdd9dd04a287c"),
            (40, "dfa66747de9ae63030ca32611497c827"),
            (64, "51f0bebf7e3b9d92fc49741779363cfe"),
        ] {
            for cut in 0..=len {
                let (a, b) = message[..len].split_at(cut);
                assert_eq!(cmac.sign([a, b].into_iter()).to_vec(), unhex(code));
            }
        }
    }

    #[test]
    fn a_signature_covers_all_but_itself() {
        for dialect in [Dialect::Smb210, Dialect::Smb302, Dialect::Smb311] {
            let signer = Signer::new(dialect, &[7; 16], &Preauth::default());
            let mut message: Vec<u8> = (0..100).collect();
            message[48..64].fill(0);
            let signature = signer.sign([&message[..]].into_iter());
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
        let code = |dialect, preauth| {
            Signer::new(dialect, &[1; 16], preauth).sign([&b"x"[..]].into_iter())
        };
        let none = Preauth::default();
        assert_ne!(code(Dialect::Smb311, &none), code(Dialect::Smb311, &other));
        assert_eq!(code(Dialect::Smb302, &none), code(Dialect::Smb302, &other));
    }
}
