//! Client side of NTLMv2 (MS-NLMP), signatures and encryption (MS-SMB2 §3.1.4), in SMB
//! 3.1.1 alone.
//!
//! The client asks for no key exchange, so the session's key is the one that the response to the
//! challenge was made with; and it sends NTLM without SPNEGO around it, which servers take as it
//! is.

use aes::Aes128;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{digest, hmac as hmac_sha};
use clap::ValueEnum;
use cmac::Cmac;
use hmac::{Hmac, Mac};
use md4::Md4;
use md5::{Digest, Md5};
use serde::Serialize;

/// Bytes of a session's key, and of a signature.
pub type Key = [u8; 16];

/// Signing algorithm (MS-SMB2 §2.2.3.1.7).
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u16)]
pub enum Signing {
    /// HMAC-SHA256, cut to 16 bytes.
    Hmac = 0,
    /// AES-128-CMAC.
    Cmac = 1,
    /// AES-128-GMAC.
    Gmac = 2,
}

/// Cipher (MS-SMB2 §2.2.3.1.2).
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u16)]
pub enum Cipher {
    /// AES-128-GCM.
    #[value(name = "aes-128-gcm")]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm = 2,
    /// AES-256-GCM.
    #[value(name = "aes-256-gcm")]
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm = 4,
}

/// The hash of the messages that lead to a session (MS-SMB2 §3.2.5.2).
#[derive(Clone, Copy)]
pub struct Preauth([u8; 64]);

impl Preauth {
    /// Zeroes, which the first message is hashed behind.
    pub const NONE: Self = Self([0; 64]);

    /// SHA-512 of the value before and the message, from its header on.
    pub fn add(&mut self, message: &[u8]) {
        let mut hash = digest::Context::new(&digest::SHA512);
        hash.update(&self.0);
        hash.update(message);
        self.0.copy_from_slice(hash.finish().as_ref());
    }
}

/// SP 800-108 §5.1 in counter mode with HMAC-SHA256, of one block.
fn derive<const N: usize>(key: &Key, label: &[u8], preauth: &Preauth) -> [u8; N] {
    const { assert!(N <= 32, "one block of SHA-256") };
    let mut mac = hmac_sha::Context::with_key(&hmac_sha::Key::new(hmac_sha::HMAC_SHA256, key));
    mac.update(&1u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(&preauth.0);
    mac.update(&(8 * N as u32).to_be_bytes());
    let mut out = [0; N];
    out.copy_from_slice(&mac.sign().as_ref()[..N]);
    out
}

fn gcm(key: Result<UnboundKey, Unspecified>) -> Box<LessSafeKey> {
    match key {
        Ok(key) => Box::new(LessSafeKey::new(key)),
        Err(Unspecified) => unreachable!("a key of its cipher's length"),
    }
}

/// AES-128-GMAC (SP 800-38D): GCM of no data, the message being what is authenticated beside it.
fn gmac(key: &LessSafeKey, nonce: [u8; 12], message: &[u8]) -> Key {
    let nonce = Nonce::assume_unique_for_key(nonce);
    let mut out = [0; 16];
    match key.seal_in_place_separate_tag(nonce, Aad::from(message), &mut []) {
        Ok(tag) => out.copy_from_slice(tag.as_ref()),
        Err(Unspecified) => unreachable!("no message is 64 GiB long"),
    }
    out
}

/// Signer of a connection's messages.
pub enum Signer {
    /// See [`Signing::Hmac`].
    Hmac(Box<hmac_sha::Key>),
    /// See [`Signing::Cmac`].
    Cmac(Box<Cmac<Aes128>>),
    /// See [`Signing::Gmac`].
    Gmac(Box<LessSafeKey>),
}

impl Signer {
    /// Makes the signer of a connection whose authentication ended with `key`.
    pub fn new(how: Signing, key: &Key, preauth: &Preauth) -> Self {
        let key: Key = derive(key, b"SMBSigningKey\0", preauth);
        match how {
            Signing::Hmac => Self::Hmac(Box::new(hmac_sha::Key::new(hmac_sha::HMAC_SHA256, &key))),
            Signing::Cmac => Self::Cmac(Box::new(Cmac::new(&key.into()))),
            Signing::Gmac => Self::Gmac(gcm(UnboundKey::new(&AES_128_GCM, &key))),
        }
    }

    /// The signature of a message that begins with its header, in which the signature is zero.
    pub fn sign(&self, message: &[u8]) -> Key {
        let mut out = [0; 16];
        match self {
            Self::Hmac(key) => {
                out.copy_from_slice(&hmac_sha::sign(key, message).as_ref()[..16]);
            }
            Self::Cmac(key) => {
                let mut mac = (**key).clone();
                mac.update(message);
                out = mac.finalize().into_bytes().into();
            }
            Self::Gmac(key) => {
                // The number of the message, and who sent it (MS-SMB2 §3.1.4.1).
                let mut nonce = [0; 12];
                nonce[..8].copy_from_slice(&message[24..32]);
                nonce[8] = message[16] & 1;
                out = gmac(key, nonce, message);
            }
        }
        out
    }
}

/// Ciphers of a session's messages, to the server and from it.
pub struct Sealer {
    out: Box<LessSafeKey>,
    inward: Box<LessSafeKey>,
}

impl Sealer {
    /// Makes the ciphers of a session whose authentication ended with `key`.
    pub fn new(cipher: Cipher, key: &Key, preauth: &Preauth) -> Self {
        let direction = |label: &[u8]| match cipher {
            Cipher::Aes128Gcm => gcm(UnboundKey::new(
                &AES_128_GCM,
                &derive::<16>(key, label, preauth),
            )),
            Cipher::Aes256Gcm => gcm(UnboundKey::new(
                &AES_256_GCM,
                &derive::<32>(key, label, preauth),
            )),
        };
        Self {
            out: direction(b"SMBC2SCipherKey\0"),
            inward: direction(b"SMBS2CCipherKey\0"),
        }
    }

    /// Encrypts in place; the code.
    pub fn seal(&self, nonce: [u8; 12], head: &[u8], data: &mut [u8]) -> Key {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let mut out = [0; 16];
        match self
            .out
            .seal_in_place_separate_tag(nonce, Aad::from(head), data)
        {
            Ok(tag) => out.copy_from_slice(tag.as_ref()),
            Err(_) => unreachable!("no message is 64 GiB long"),
        }
        out
    }

    /// Decrypts in place; whether the message is the server's, and unchanged.
    pub fn open(&self, nonce: [u8; 12], head: &[u8], code: Key, data: &mut [u8]) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.inward
            .open_in_place_separate_tag(nonce, Aad::from(head), &code, data)
            .is_ok()
    }
}

fn hmac_md5(key: &Key, parts: &[&[u8]]) -> Key {
    // Shorter than a block, so it is padded (RFC 2104 §2).
    let mut block = [0; 64];
    block[..16].copy_from_slice(key);
    let mut mac = <Hmac<Md5> as hmac::digest::KeyInit>::new(&block.into());
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Text as Windows writes it.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
/// UNICODE, REQUEST_TARGET, SIGN, NTLM, ALWAYS_SIGN, EXTENDED_SESSIONSECURITY, TARGET_INFO, 128
/// (MS-NLMP §2.2.2.5).
const FLAGS: u32 = 1 | 4 | 0x10 | 0x200 | 0x8000 | 0x8_0000 | 0x80_0000 | 0x2000_0000;
/// Bytes of an AUTHENTICATE before its payload, without a version and an integrity code.
const FIXED: usize = 64;

/// The NEGOTIATE message (MS-NLMP §2.2.1.1).
pub fn ntlm_negotiate() -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&FLAGS.to_le_bytes());
    out.resize(32, 0);
    out
}

/// The AUTHENTICATE message (§2.2.1.3) in reply to a CHALLENGE, and the session's key; `None` if
/// that is no CHALLENGE.
pub fn ntlm_authenticate(
    challenge: &[u8],
    user: &str,
    password: &str,
    nonce: [u8; 8],
) -> Option<(Vec<u8>, Key)> {
    if !challenge.starts_with(SIGNATURE) || challenge.get(8..12)? != 2u32.to_le_bytes() {
        return None;
    }
    let server = challenge.get(24..32)?;
    let len = usize::from(u16::from_le_bytes(challenge.get(40..42)?.try_into().ok()?));
    let at = u32::from_le_bytes(challenge.get(44..48)?.try_into().ok()?) as usize;
    let info = challenge.get(at..at.checked_add(len)?)?;
    // The server's time if it says one (MsvAvTimestamp), as the client is to send (§3.1.5.1.2).
    let mut time = [0; 8];
    let mut pairs = info;
    while let Some((head, rest)) = pairs.split_first_chunk::<4>() {
        let (kind, len) = (
            u16::from_le_bytes([head[0], head[1]]),
            u16::from_le_bytes([head[2], head[3]]),
        );
        let (value, rest) = rest.split_at_checked(usize::from(len))?;
        match kind {
            0 => break,
            7 => time = value.try_into().ok()?,
            _ => {}
        }
        pairs = rest;
    }
    let mut blob = vec![1, 1, 0, 0, 0, 0, 0, 0];
    blob.extend_from_slice(&time);
    blob.extend_from_slice(&nonce);
    blob.extend_from_slice(&[0; 4]);
    blob.extend_from_slice(info);
    blob.extend_from_slice(&[0; 4]);
    let hash: Key = Md4::digest(utf16(password)).into();
    // The domain is empty: the server's own.
    let owner = hmac_md5(&hash, &[&utf16(&user.to_uppercase())]);
    let proof = hmac_md5(&owner, &[server, &blob]);
    let key = hmac_md5(&owner, &[&proof]);
    let response = [&proof[..], &blob].concat();
    // LM's response, NTLM's, domain, user, workstation, exchanged key.
    let fields = [
        vec![0; 24],
        response,
        Vec::new(),
        utf16(user),
        Vec::new(),
        Vec::new(),
    ];
    let mut out = SIGNATURE.to_vec();
    out.extend_from_slice(&3u32.to_le_bytes());
    let mut at = FIXED;
    for field in &fields {
        let len = u16::try_from(field.len()).ok()?.to_le_bytes();
        out.extend_from_slice(&len);
        out.extend_from_slice(&len);
        out.extend_from_slice(&(at as u32).to_le_bytes());
        at += field.len();
    }
    out.extend_from_slice(&FLAGS.to_le_bytes());
    fields.iter().for_each(|field| out.extend_from_slice(field));
    Some((out, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
            .collect()
    }

    /// MS-NLMP §4.2.4: user "User", password "Password"; the domain there is "Domain", so the parts
    /// are checked.
    #[test]
    fn the_published_proof_comes_out() {
        let hash: Key = Md4::digest(utf16("Password")).into();
        assert_eq!(hash.to_vec(), unhex("a4f49c406510bdcab6824ee7c30fd852"));
        let owner = hmac_md5(&hash, &[&utf16("USER"), &utf16("Domain")]);
        assert_eq!(owner.to_vec(), unhex("0c868a403bfd7a93a3001ef22ef02e3f"));
    }

    #[test]
    fn only_a_challenge_is_replied_to() {
        let mut challenge = SIGNATURE.to_vec();
        challenge.extend_from_slice(&2u32.to_le_bytes());
        challenge.resize(48, 0);
        challenge[40..42].copy_from_slice(&16u16.to_le_bytes());
        challenge[44..48].copy_from_slice(&48u32.to_le_bytes());
        challenge.extend_from_slice(&[7, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]);
        let (message, _) = ntlm_authenticate(&challenge, "me", "secret", [9; 8]).unwrap();
        assert_eq!(message[8..12], 3u32.to_le_bytes());
        // The server's time is repeated, behind 24 bytes of LM's response and 16 of proof.
        let blob = FIXED + 24 + 16;
        assert_eq!(message[blob + 8..blob + 16], [1, 2, 3, 4, 5, 6, 7, 8]);
        for len in 0..challenge.len() {
            assert!(ntlm_authenticate(&challenge[..len], "me", "secret", [9; 8]).is_none());
        }
    }

    #[test]
    fn the_published_code_of_gmac_comes_out() {
        let key: Key = unhex("77be63708971c4e240d1cb79e8d77feb")
            .try_into()
            .unwrap();
        let nonce = unhex("e0e00f19fed7ba0136a797f3").try_into().unwrap();
        let message = unhex("7a43ec1d9c0a5a78a0b16533a6213cab");
        let code = gmac(&gcm(UnboundKey::new(&AES_128_GCM, &key)), nonce, &message);
        assert_eq!(code.to_vec(), unhex("209fcc8d3675ed938e9c7166709dd946"));
    }

    /// RFC 4493 §4, example 3: the key schedule apart, signatures are CMAC of the whole message.
    #[test]
    fn cmac_is_the_published_one() {
        let key: Key = unhex("2b7e151628aed2a6abf7158809cf4f3c")
            .try_into()
            .unwrap();
        let signer = Signer::Cmac(Box::new(Cmac::new(&key.into())));
        let message = unhex(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411",
        );
        assert_eq!(
            signer.sign(&message).to_vec(),
            unhex("dfa66747de9ae63030ca32611497c827")
        );
    }
}
