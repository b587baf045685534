//! Encryption (MS-SMB2 §2.2.41, §3.1.4.3, §3.3.4.1.4, §3.3.5.2.1.1): a message, or a chain, within
//! a header of its own.
//!
//! Each direction has a key, which all connections of a session share. A nonce must never be used
//! twice under a key, so it consists of the channel's number within the session and a count within
//! the channel. Channels need no coordination for that. An encrypted message is not signed, since
//! its authentication code proves the sender. The response to an encrypted message is encrypted
//! too.

use crate::proto::dialect::Dialect;
use crate::proto::keys::{Preauth, derive, short};
use aes::{Aes128, Aes256};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use ccm::aead::{AeadInPlace, KeyInit};
use ccm::consts::{U11, U16};
use std::cell::Cell;
use weir_auth::wire::{DecodeError, Put, Reader};

/// First bytes of an encrypted message.
pub const TRANSFORM: [u8; 4] = [0xfd, b'S', b'M', b'B'];
/// Bytes of the header of an encrypted message (§2.2.41).
pub const HEADER: usize = 52;
/// Range of the authentication code in the header, after the first four bytes.
const CODE: std::ops::Range<usize> = 4..20;
/// Offset in the header from which it is authenticated: that of the nonce.
const AUTHENTICATED: usize = 20;
/// The Encrypted flag, which is always set (§2.2.41, Flags).
const ENCRYPTED: u16 = 1;

/// Encryption algorithms (§2.2.3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Cipher {
    /// AES-128-CCM: the only one before 3.1.1.
    Aes128Ccm = 1,
    /// AES-128-GCM.
    Aes128Gcm = 2,
    /// AES-256-CCM.
    Aes256Ccm = 3,
    /// AES-256-GCM.
    Aes256Gcm = 4,
}

impl Cipher {
    /// The cipher to use with a client that offers these, in the client's order: the first GCM,
    /// which is many times faster, or the first CCM.
    pub fn choose(offered: &[[u8; 2]]) -> Option<Cipher> {
        let known = |wanted: &[Cipher]| {
            let mut offered = offered.iter().map(|id| u16::from_le_bytes(*id));
            offered.find_map(|id| wanted.iter().copied().find(|c| *c as u16 == id))
        };
        known(&[Cipher::Aes128Gcm, Cipher::Aes256Gcm])
            .or_else(|| known(&[Cipher::Aes128Ccm, Cipher::Aes256Ccm]))
    }

    /// Bytes of its nonce (§2.2.41).
    fn nonce_len(self) -> usize {
        match self {
            Cipher::Aes128Ccm | Cipher::Aes256Ccm => 11,
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => 12,
        }
    }
}

/// A key of one direction.
enum Direction {
    Gcm(Box<LessSafeKey>),
    Ccm128(Box<ccm::Ccm<Aes128, U16, U11>>),
    Ccm256(Box<ccm::Ccm<Aes256, U16, U11>>),
}

impl Direction {
    /// Derives the key of a direction from a session's key (§3.1.4.2).
    fn new(cipher: Cipher, session_key: &[u8], label: &[u8], context: &[u8]) -> Direction {
        let short = || derive::<16>(session_key, label, context);
        let long = || derive::<32>(session_key, label, context);
        let gcm = |key: UnboundKey| Direction::Gcm(Box::new(LessSafeKey::new(key)));
        // A key of the right length is a key.
        let gcm = |key: Result<UnboundKey, _>| match key {
            Ok(key) => gcm(key),
            Err(Unspecified) => unreachable!("the key has the cipher's length"),
        };
        match cipher {
            Cipher::Aes128Ccm => Direction::Ccm128(Box::new(KeyInit::new(&short().into()))),
            Cipher::Aes256Ccm => Direction::Ccm256(Box::new(KeyInit::new(&long().into()))),
            Cipher::Aes128Gcm => gcm(UnboundKey::new(&AES_128_GCM, &short())),
            Cipher::Aes256Gcm => gcm(UnboundKey::new(&AES_256_GCM, &long())),
        }
    }

    fn seal(&self, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
        match self {
            Direction::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*nonce);
                match key.seal_in_place_separate_tag(nonce, Aad::from(aad), data) {
                    Ok(tag) => tag.as_ref().try_into().unwrap_or([0; 16]),
                    Err(Unspecified) => unreachable!("no message is 64 GiB long"),
                }
            }
            Direction::Ccm128(key) => ccm_seal(&**key, nonce, aad, data),
            Direction::Ccm256(key) => ccm_seal(&**key, nonce, aad, data),
        }
    }

    /// Decrypts `data`, whose last 16 bytes are its code.
    fn open(&self, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> bool {
        match self {
            Direction::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*nonce);
                key.open_in_place(nonce, Aad::from(aad), data).is_ok()
            }
            Direction::Ccm128(key) => ccm_open(&**key, nonce, aad, data),
            Direction::Ccm256(key) => ccm_open(&**key, nonce, aad, data),
        }
    }
}

/// AES-CCM of any key size. Its nonces have eleven of the twelve bytes (§2.2.41).
trait Ccm: AeadInPlace<NonceSize = U11, TagSize = U16> {}
impl<K: AeadInPlace<NonceSize = U11, TagSize = U16>> Ccm for K {}

fn ccm_seal(key: &impl Ccm, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
    match key.encrypt_in_place_detached((&nonce[..11]).into(), aad, data) {
        Ok(tag) => tag.into(),
        Err(ccm::aead::Error) => unreachable!("no message is 4 GiB long"),
    }
}

fn ccm_open(key: &impl Ccm, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> bool {
    let at = data.len() - 16;
    let (data, tag) = data.split_at_mut(at);
    let tag = (&*tag).into();
    key.decrypt_in_place_detached((&nonce[..11]).into(), aad, data, tag)
        .is_ok()
}

/// The keys of a session for both directions.
pub struct Sealing {
    cipher: Cipher,
    /// Messages to the client.
    out: Direction,
    /// Messages from the client.
    inward: Direction,
}

impl Sealing {
    /// Derives the server's keys of a session from the `key` of its authentication and the hash of
    /// its messages (§3.3.5.5.3). Keys of 256 bits are derived from all of `key`, others from the
    /// part that is the session's key (§3.1.4.2).
    pub fn new(cipher: Cipher, dialect: Dialect, key: &[u8], preauth: &Preauth) -> Sealing {
        let short = short(key);
        let session_key = match cipher {
            Cipher::Aes256Ccm | Cipher::Aes256Gcm => key,
            Cipher::Aes128Ccm | Cipher::Aes128Gcm => &short,
        };
        let both: [(&[u8], &[u8]); 2] = match dialect {
            Dialect::Smb311 => [
                (b"SMBS2CCipherKey\0", &preauth.0),
                (b"SMBC2SCipherKey\0", &preauth.0),
            ],
            _ => [
                (b"SMB2AESCCM\0", b"ServerOut\0"),
                (b"SMB2AESCCM\0", b"ServerIn \0"),
            ],
        };
        let [out, inward] =
            both.map(|(label, context)| Direction::new(cipher, session_key, label, context));
        Sealing {
            cipher,
            out,
            inward,
        }
    }

    /// Returns the client's view of the keys, for tests and the client of `weir bench smb`.
    #[must_use]
    pub fn turned(self) -> Sealing {
        Sealing {
            cipher: self.cipher,
            out: self.inward,
            inward: self.out,
        }
    }

    /// Appends an encrypted message of `session` to `out`. The nonce is used up.
    pub fn seal<'a>(
        &self,
        out: &mut Vec<u8>,
        nonce: NonceValue,
        session: u64,
        plain: impl Iterator<Item = &'a [u8]>,
    ) {
        let start = out.len();
        out.put(&TRANSFORM);
        out.put_zeroes(16);
        let mut used = [0; 12];
        used[..self.cipher.nonce_len()].copy_from_slice(&nonce.0[..self.cipher.nonce_len()]);
        out.put(&used);
        out.put_zeroes(4);
        let len_at = out.len();
        out.put_u32(0);
        out.put_u16(0);
        out.put_u16(ENCRYPTED);
        out.put_u64(session);
        let body = out.len();
        plain.for_each(|piece| out.put(piece));
        let len = (out.len() - body) as u32;
        out.set_u32(len_at, len);
        let (head, data) = out[start..].split_at_mut(HEADER);
        let code = self.out.seal(&used, &head[AUTHENTICATED..], data);
        head[CODE].copy_from_slice(&code);
    }

    /// Decrypts a message; `None` if it is not from the client, or was changed.
    pub fn open(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (head, data) = message.split_at_checked(HEADER)?;
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&head[AUTHENTICATED..AUTHENTICATED + 12]);
        let mut out = Vec::with_capacity(data.len() + 16);
        out.put(data);
        out.put(&head[CODE]);
        let opened = self.inward.open(&nonce, &head[AUTHENTICATED..], &mut out);
        out.truncate(data.len());
        opened.then_some(out)
    }
}

/// The session that an encrypted message is of (§3.3.5.2.1.1).
///
/// # Errors
/// Its header is malformed.
pub fn session_of(message: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(message);
    if r.array()? != TRANSFORM {
        return Err(DecodeError);
    }
    r.bytes(32)?;
    r.bytes(4)?; // Its length: the framing's says the same, and is compared by `length_fits`.
    r.u16()?;
    match r.u16()? {
        ENCRYPTED => Ok(r.u64()?),
        _ => Err(DecodeError),
    }
}

/// Returns true if an encrypted message is as long as its header says.
pub fn length_fits(message: &[u8]) -> bool {
    let said = message.get(36..40).and_then(|b| b.try_into().ok());
    let said = said.map(u32::from_le_bytes);
    said.is_some_and(|said| message.len().checked_sub(HEADER) == Some(said as usize))
}

/// A nonce that no other message under the same key has.
pub struct NonceValue([u8; 12]);

/// The nonces of a channel: its number within the session in the upper bytes, a count in the lower
/// ones.
pub struct Nonces {
    channel: u16,
    next: Cell<u64>,
}

impl Nonces {
    /// Returns the nonces of the session's channel of this number.
    pub fn new(channel: u16) -> Nonces {
        Nonces {
            channel,
            next: Cell::new(0),
        }
    }

    /// The next one. 2^64 of them are more than a connection has messages.
    pub fn next(&self) -> NonceValue {
        let count = self.next.get();
        self.next.set(count + 1);
        let mut out = [0; 12];
        out[..8].copy_from_slice(&count.to_le_bytes());
        out[8..10].copy_from_slice(&self.channel.to_le_bytes());
        NonceValue(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::keys::tests::unhex;

    const ALL: [Cipher; 4] = [
        Cipher::Aes128Ccm,
        Cipher::Aes128Gcm,
        Cipher::Aes256Ccm,
        Cipher::Aes256Gcm,
    ];

    #[test]
    fn gcm_is_chosen_before_ccm_in_the_clients_order() {
        let choose = |ids: &[u16]| {
            let ids: Vec<[u8; 2]> = ids.iter().map(|id| id.to_le_bytes()).collect();
            Cipher::choose(&ids)
        };
        assert_eq!(choose(&[1, 2]), Some(Cipher::Aes128Gcm));
        assert_eq!(choose(&[4, 2, 3, 1]), Some(Cipher::Aes256Gcm));
        assert_eq!(choose(&[3, 1]), Some(Cipher::Aes256Ccm));
        assert_eq!(choose(&[1]), Some(Cipher::Aes128Ccm));
        assert_eq!(choose(&[0, 5, 9]), None);
    }

    #[test]
    fn what_is_sealed_is_opened_and_no_bit_may_change() {
        for cipher in ALL {
            let made = || Sealing::new(cipher, Dialect::Smb311, &[7; 16], &Preauth::default());
            let (server, client) = (made(), made().turned());
            let nonces = Nonces::new(3);
            let mut wire = b"mark".to_vec();
            let plain: Vec<u8> = (0..300u32).map(|n| n as u8).collect();
            let pieces = [&plain[..100], &plain[100..]];
            server.seal(&mut wire, nonces.next(), 42, pieces.into_iter());
            let message = &wire[4..];
            assert_eq!(session_of(message), Ok(42));
            assert!(length_fits(message) && !length_fits(&message[..message.len() - 1]));
            assert_eq!(client.open(message).as_deref(), Some(&plain[..]));
            // The other direction has another key.
            assert_eq!(server.open(message), None);
            for at in 4..message.len() {
                let mut changed = message.to_vec();
                changed[at] ^= 1;
                assert_eq!(client.open(&changed), None, "{cipher:?}, byte {at}");
            }
            for cut in [0, 3, HEADER - 1, HEADER] {
                assert_eq!(client.open(&message[..cut]), None);
            }
        }
    }

    #[test]
    fn no_nonce_comes_twice_over_all_channels() {
        let mut seen = std::collections::HashSet::new();
        for channel in [0, 1, 256, u16::MAX] {
            let nonces = Nonces::new(channel);
            for _ in 0..1000 {
                let nonce = nonces.next().0;
                // CCM has 11 bytes of it.
                assert!(seen.insert(nonce[..11].to_vec()));
            }
        }
    }

    /// The keys of 3.0 are of its own labels, those of 3.1.1 depend on the messages before.
    #[test]
    fn keys_depend_on_what_was_negotiated() {
        let mut other = Preauth::default();
        other.add(b"a message");
        let sealed = |dialect, preauth: &Preauth| {
            let sealing = Sealing::new(Cipher::Aes128Ccm, dialect, &[1; 16], preauth);
            let mut out = Vec::new();
            let nonce = Nonces::new(0).next();
            sealing.seal(&mut out, nonce, 1, std::iter::once(&b"x"[..]));
            out
        };
        let none = Preauth::default();
        assert_ne!(
            sealed(Dialect::Smb311, &none),
            sealed(Dialect::Smb311, &other)
        );
        assert_eq!(
            sealed(Dialect::Smb302, &none),
            sealed(Dialect::Smb300, &other)
        );
        assert_ne!(
            sealed(Dialect::Smb302, &none),
            sealed(Dialect::Smb311, &none)
        );
    }

    /// The example of Microsoft's blog on encryption in SMB 3.0: session key, decryption key, and a
    /// WRITE that was sent.
    #[test]
    fn the_keys_of_3_0_are_the_published_ones() {
        let session_key = unhex("b4546771b515f766a86735532dd6c4f0");
        let inward = derive::<16>(&session_key, b"SMB2AESCCM\0", b"ServerIn \0");
        assert_eq!(inward.to_vec(), unhex("261b72350558f2e9dcf613070383edbf"));
        let out = derive::<16>(&session_key, b"SMB2AESCCM\0", b"ServerOut\0");
        assert_eq!(out.to_vec(), unhex("8fe2b57ec34d2db5b1a9727f526bbdb5"));
    }
}
