//! Encryption types of Kerberos (RFC 3961): ciphers and checksums for a key and a usage.
//!
//! Four types are implemented: AES with HMAC-SHA1 (RFC 3962), whose checksum is over the plain
//! text, and AES with HMAC-SHA2 (RFC 8009), whose checksum is over the cipher text. The keys of
//! each usage are derived from the context's key: a [`Cipher`] has one for encryption and one for
//! its checksum, a [`Checksum`] has one.
//!
//! Messages arrive in parts, and leave in one piece. Both directions process a message [`PIECE`] by
//! piece, so that a byte is copied, hashed and encrypted while it is in the nearest cache.

use super::cbc::{self, Aes, BLOCK, HashInput, STRETCH};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384};
use smallvec::SmallVec;

/// Number of bytes processed at a time.
const PIECE: usize = 4096;
const _: () = assert!(PIECE % STRETCH == 0 && STRETCH % BLOCK == 0);

/// Number of random bytes in front of the plain text that make equal messages different (RFC 3961
/// §3, "confounder").
pub const CONFOUNDER: usize = BLOCK;

/// A checksum: 24 bytes at most.
pub type Sum = SmallVec<[u8; 24]>;

/// The encryption types that are implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enctype {
    /// aes128-cts-hmac-sha1-96.
    Aes128Sha1,
    /// aes256-cts-hmac-sha1-96.
    Aes256Sha1,
    /// aes128-cts-hmac-sha256-128.
    Aes128Sha256,
    /// aes256-cts-hmac-sha384-192.
    Aes256Sha384,
}

/// Purpose of a derived key (RFC 3961 §5.3).
#[derive(Clone, Copy)]
enum Purpose {
    Encryption = 0xaa,
    Integrity = 0x55,
    Checksum = 0x99,
}

impl Enctype {
    /// Returns the type with this number (RFC 3962 §7, RFC 8009 §8).
    pub fn from_number(number: u32) -> Option<Enctype> {
        match number {
            17 => Some(Enctype::Aes128Sha1),
            18 => Some(Enctype::Aes256Sha1),
            19 => Some(Enctype::Aes128Sha256),
            20 => Some(Enctype::Aes256Sha384),
            _ => None,
        }
    }

    /// Bytes of a context's key, and of keys that encrypt.
    fn key_bytes(self) -> usize {
        match self {
            Enctype::Aes128Sha1 | Enctype::Aes128Sha256 => 16,
            Enctype::Aes256Sha1 | Enctype::Aes256Sha384 => 32,
        }
    }

    /// Bytes of a checksum.
    pub fn sum_bytes(self) -> usize {
        match self {
            Enctype::Aes128Sha1 | Enctype::Aes256Sha1 => 12,
            Enctype::Aes128Sha256 => 16,
            Enctype::Aes256Sha384 => 24,
        }
    }

    /// Derives the key for a purpose and usage; `None` if `key` has the wrong length.
    fn derive(self, key: &[u8], usage: u32, purpose: Purpose) -> Option<SmallVec<[u8; 32]>> {
        if key.len() != self.key_bytes() {
            return None;
        }
        let [a, b, c, d] = usage.to_be_bytes();
        let label = [a, b, c, d, purpose as u8];
        match self {
            Enctype::Aes128Sha1 | Enctype::Aes256Sha1 => folded(key, &label),
            Enctype::Aes128Sha256 => stretched::<Hmac<Sha256>>(key, &label, 16),
            Enctype::Aes256Sha384 => {
                let bytes = match purpose {
                    Purpose::Encryption => 32,
                    Purpose::Integrity | Purpose::Checksum => 24,
                };
                stretched::<Hmac<Sha384>>(key, &label, bytes)
            }
        }
    }

    /// Returns the cipher for `key` and a usage; `None` if the key does not fit this type.
    pub fn cipher(self, key: &[u8], usage: u32) -> Option<Box<dyn Cipher>> {
        let encryption = self.derive(key, usage, Purpose::Encryption)?;
        let integrity = self.derive(key, usage, Purpose::Integrity)?;
        let (e, i, n) = (&*encryption, &*integrity, self.sum_bytes());
        Some(match self {
            Enctype::Aes128Sha1 | Enctype::Aes256Sha1 => {
                Pair::<Hmac<Sha1>>::boxed(e, i, n, HashInput::Plain)?
            }
            Enctype::Aes128Sha256 => Pair::<Hmac<Sha256>>::boxed(e, i, n, HashInput::Sealed)?,
            Enctype::Aes256Sha384 => Pair::<Hmac<Sha384>>::boxed(e, i, n, HashInput::Sealed)?,
        })
    }

    /// Returns the checksum for `key` and a usage; `None` if the key does not fit this type.
    pub fn checksum(self, key: &[u8], usage: u32) -> Option<Box<dyn Checksum>> {
        let key = self.derive(key, usage, Purpose::Checksum)?;
        let (key, n) = (&*key, self.sum_bytes());
        Some(match self {
            Enctype::Aes128Sha1 | Enctype::Aes256Sha1 => MacChecksum::<Hmac<Sha1>>::boxed(key, n)?,
            Enctype::Aes128Sha256 => MacChecksum::<Hmac<Sha256>>::boxed(key, n)?,
            Enctype::Aes256Sha384 => MacChecksum::<Hmac<Sha384>>::boxed(key, n)?,
        })
    }
}

/// Encrypts and decrypts messages, with a checksum (RFC 3961 §3, `encrypt` and `decrypt`).
pub trait Cipher: Send + Sync {
    /// Appends the cipher text of `confounder` and `parts`, and its checksum. The length is
    /// [`CONFOUNDER`] plus that of `parts` and of the checksum.
    fn encrypt(&self, confounder: &[u8; CONFOUNDER], parts: &[&[u8]], out: &mut Vec<u8>);
    /// Appends the plain text of `sealed`, confounder included. Returns false if the checksum is
    /// wrong; then the appended bytes are undefined.
    #[must_use]
    fn decrypt(&self, sealed: &[u8], out: &mut Vec<u8>) -> bool;
}

/// Makes and verifies checksums (RFC 3961 §4, `get_mic` and `verify_mic`).
pub trait Checksum: Send + Sync {
    /// Returns the checksum of a message that consists of `parts`.
    fn sum(&self, parts: &[&[u8]]) -> Sum;
    /// Returns true if `sum` is the checksum of `parts`. Takes constant time, so it does not reveal
    /// where they differ.
    #[must_use]
    fn verify(&self, parts: &[&[u8]], sum: &[u8]) -> bool;
}

struct MacChecksum<M> {
    mac: M,
    bytes: usize,
}

impl<M: Mac + KeyInit + Clone + Send + Sync + 'static> MacChecksum<M> {
    fn boxed(key: &[u8], bytes: usize) -> Option<Box<dyn Checksum>> {
        let mac = <M as Mac>::new_from_slice(key).ok()?;
        Some(Box::new(MacChecksum { mac, bytes }))
    }

    fn compute_mac(&self, parts: &[&[u8]]) -> M {
        let mut mac = self.mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl<M: Mac + KeyInit + Clone + Send + Sync + 'static> Checksum for MacChecksum<M> {
    fn sum(&self, parts: &[&[u8]]) -> Sum {
        let whole = self.compute_mac(parts).finalize().into_bytes();
        Sum::from_slice(&whole[..self.bytes])
    }

    fn verify(&self, parts: &[&[u8]], sum: &[u8]) -> bool {
        sum.len() == self.bytes && self.compute_mac(parts).verify_truncated_left(sum).is_ok()
    }
}

struct Pair<M> {
    cipher: Aes,
    mac: M,
    /// Number of bytes to which the checksum is cut (12 to 24).
    bytes: usize,
    /// Input of the checksum: the plain text or the cipher text.
    hashed: HashInput,
}

impl<M: Mac + KeyInit + Clone + Send + Sync + 'static> Pair<M> {
    fn boxed(e: &[u8], i: &[u8], bytes: usize, hashed: HashInput) -> Option<Box<dyn Cipher>> {
        Some(Box::new(Pair {
            cipher: Aes::new(e)?,
            mac: <M as Mac>::new_from_slice(i).ok()?,
            bytes,
            hashed,
        }))
    }

    fn start(&self) -> M {
        let mut mac = self.mac.clone();
        if self.hashed == HashInput::Sealed {
            // The cipher state, which is that of a message of its own (RFC 8009 §5).
            mac.update(&[0; BLOCK]);
        }
        mac
    }
}

impl<M: Mac + KeyInit + Clone + Send + Sync + 'static> Cipher for Pair<M> {
    fn encrypt(&self, confounder: &[u8; CONFOUNDER], parts: &[&[u8]], out: &mut Vec<u8>) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        out.reserve(CONFOUNDER + bytes + self.bytes);
        let (mut mac, mut chain) = (self.start(), [0; BLOCK]);
        // The bytes in front belong to the caller.
        let mut done = out.len();
        out.extend_from_slice(confounder);
        for piece in parts.iter().flat_map(|part| part.chunks(PIECE)) {
            out.extend_from_slice(piece);
            // The last two blocks are swapped, and which they are is known only at the end.
            let ready = (out.len() - done).checked_sub(2 * BLOCK);
            let ready = ready.unwrap_or(0) / STRETCH * STRETCH;
            let data = &mut out[done..done + ready];
            let hash = |part: &[u8]| mac.update(part);
            self.cipher.encrypt(&mut chain, data, self.hashed, hash);
            done += ready;
        }
        let rest = &mut out[done..];
        let (front, end) = rest.split_at_mut(rest.len() - cbc::end(rest.len()));
        let hash = |part: &[u8]| mac.update(part);
        self.cipher.encrypt(&mut chain, front, self.hashed, hash);
        if self.hashed == HashInput::Plain {
            mac.update(end);
        }
        self.cipher.encrypt_end(&chain, end);
        if self.hashed == HashInput::Sealed {
            mac.update(end);
        }
        out.extend_from_slice(&mac.finalize().into_bytes()[..self.bytes]);
    }

    fn decrypt(&self, sealed: &[u8], out: &mut Vec<u8>) -> bool {
        let text = sealed.len().checked_sub(self.bytes);
        let Some((text, sum)) = text.and_then(|text| sealed.split_at_checked(text)) else {
            return false;
        };
        if text.len() < CONFOUNDER {
            return false;
        }
        let (mut mac, mut chain) = (self.start(), [0; BLOCK]);
        out.reserve(text.len());
        let (front, end) = text.split_at(text.len() - cbc::end(text.len()));
        for (piece, last) in front.chunks(PIECE).map(|p| (p, false)).chain([(end, true)]) {
            if self.hashed == HashInput::Sealed {
                mac.update(piece);
            }
            let at = out.len();
            out.extend_from_slice(piece);
            let data = &mut out[at..];
            match last {
                false => self.cipher.decrypt(&mut chain, data),
                true => self.cipher.decrypt_end(&chain, data),
            }
            if self.hashed == HashInput::Plain {
                mac.update(data);
            }
        }
        mac.verify_truncated_left(sum).is_ok()
    }
}

/// Returns a key of the length of `key`, which encrypts the folded label (RFC 3961 §5.1, `DK`).
fn folded(key: &[u8], label: &[u8]) -> Option<SmallVec<[u8; 32]>> {
    let cipher = Aes::new(key)?;
    let mut block = [0; BLOCK];
    fold(label, &mut block);
    let mut made = SmallVec::new();
    while made.len() < key.len() {
        cipher.encrypt_block(&mut block);
        made.extend_from_slice(&block);
    }
    Some(made)
}

/// Stretches or compresses `text` to the length of `out` (RFC 3961 §5.1, `n-fold`): adds up copies
/// of it in ones' complement, each rotated right by 13 bits more than the one before.
fn fold(text: &[u8], out: &mut [u8]) {
    let (bits, len) = (8 * text.len(), out.len());
    let all = text.len() / common_divisor(text.len(), len) * len;
    let bit = |place: usize| {
        let turned = (place / bits * 13) % bits;
        let from = (place % bits + bits - turned) % bits;
        text[from / 8] >> (7 - from % 8) & 1
    };
    let byte = |at: usize| (0..8).fold(0, |byte, n| byte << 1 | bit(8 * at + n));
    out.fill(0);
    let mut carry = 0u32;
    for start in (0..all).step_by(len) {
        for (at, to) in out.iter_mut().enumerate().rev() {
            carry += u32::from(*to) + u32::from(byte(start + at));
            *to = carry as u8;
            carry >>= 8;
        }
    }
    while carry > 0 {
        for to in out.iter_mut().rev() {
            carry += u32::from(*to);
            *to = carry as u8;
            carry >>= 8;
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => common_divisor(b, a % b),
    }
}

/// Derives a key of this many bytes (RFC 8009 §3, `KDF-HMAC-SHA2`).
fn stretched<M: Mac + KeyInit>(
    key: &[u8],
    label: &[u8],
    bytes: usize,
) -> Option<SmallVec<[u8; 32]>> {
    let mut mac = <M as Mac>::new_from_slice(key).ok()?;
    mac.update(&1u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(&(8 * bytes as u32).to_be_bytes());
    mac.finalize()
        .into_bytes()
        .get(..bytes)
        .map(SmallVec::from_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::krb5::tests::bytes;
    use Enctype::*;

    /// RFC 3961, appendix A.1.
    #[test]
    fn samples_of_folding() {
        for (text, expected) in [
            ("012345", "be072631276b1955"),
            ("password", "78a07b6caf85fa"),
            ("Rough Consensus, and Running Code", "bb6ed30870b7f0e0"),
            ("password", "59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e"),
            (
                "MASSACHVSETTS INSTITVTE OF TECHNOLOGY",
                "db3b0d8f0b061e603282b308a50841229ad798fab9540c1b",
            ),
            ("Q", "518a54a215a8452a518a54a215a8452a518a54a215"),
            ("ba", "fb25d531ae8974499f52fd92ea9857c4ba24cf297e"),
            ("kerberos", "6b65726265726f737b9b5b2b93132b93"),
        ] {
            let expected = bytes(expected);
            let mut out = vec![0; expected.len()];
            fold(text.as_bytes(), &mut out);
            assert_eq!(out, expected, "{text}");
        }
    }

    const SHA256: &str = "3705d96080c17728a0e800eab6e0d23c";
    const SHA384: &str = "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52";

    /// RFC 8009, appendix A.
    #[test]
    fn samples_of_derived_keys() {
        for (enctype, key, checksum, encryption, integrity) in [
            (
                Aes128Sha256,
                SHA256,
                "b31a018a48f54776f403e9a396325dc3",
                "9b197dd1e8c5609d6e67c3e37c62c72e",
                "9fda0e56ab2d85e1569a688696c26a6c",
            ),
            (
                Aes256Sha384,
                SHA384,
                "ef5718be86cc84963d8bbb5031e9f5c4ba41f28faf69e73d",
                "56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49",
                "69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f",
            ),
        ] {
            for (purpose, expected) in [
                (Purpose::Checksum, checksum),
                (Purpose::Encryption, encryption),
                (Purpose::Integrity, integrity),
            ] {
                let made = enctype.derive(&bytes(key), 2, purpose).unwrap();
                assert_eq!(made[..], bytes(expected), "{enctype:?}");
            }
        }
    }

    /// RFC 8009, appendix A.
    #[test]
    fn sample_encryptions() {
        for (enctype, key, text, confounder, expected) in [
            (
                Aes128Sha256,
                SHA256,
                "",
                "7e5895eaf2672435bad817f545a37148",
                "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
            ),
            (
                Aes128Sha256,
                SHA256,
                "000102030405",
                "7bca285e2fd4130fb55b1a5c83bc5b24",
                "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfdf8976c",
            ),
            (
                Aes128Sha256,
                SHA256,
                "000102030405060708090a0b0c0d0e0f",
                "56ab21713ff62c0a1457200f6fa9948f",
                "3517d640f50ddc8ad3628722b3569d2ae07493fa8263254080ea65c1008e8fc2\
                 95fb4852e7d83e1e7c48c37eebe6b0d3",
            ),
            (
                Aes128Sha256,
                SHA256,
                "000102030405060708090a0b0c0d0e0f1011121314",
                "a7a4e29a4728ce10664fb64e49ad3fac",
                "720f73b18d9859cd6ccb4346115cd336c70f58edc0c4437c5573544c31c813bc\
                 e1e6d072c186b39a413c2f92ca9b8334a287ffcbfc",
            ),
            (
                Aes256Sha384,
                SHA384,
                "",
                "f764e9fa15c276478b2c7d0c4e5f58e4",
                "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac61274\
                 8b9bbfbe7eb4ce3c",
            ),
            (
                Aes256Sha384,
                SHA384,
                "000102030405",
                "b80d3251c1f6471494256ffe712d0b9a",
                "4ed7b37c2bcac8f74f23c1cf07e62bc7b75fb3f637b9f559c7f664f69eab7b60\
                 92237526ea0d1f61cb20d69d10f2",
            ),
            (
                Aes256Sha384,
                SHA384,
                "000102030405060708090a0b0c0d0e0f",
                "53bf8a0d105265d4e276428624ce5e63",
                "bc47ffec7998eb91e8115cf8d19dac4bbbe2e163e87dd37f49beca92027764f6\
                 8cf51f14d798c2273f35df574d1f932e40c4ff255b36a266",
            ),
            (
                Aes256Sha384,
                SHA384,
                "000102030405060708090a0b0c0d0e0f1011121314",
                "763e65367e864f02f55153c7e3b58af1",
                "40013e2df58e8751957d2878bcd2d6fe101ccfd556cb1eae79db3c3ee86429f2\
                 b2a602ac86fef6ecb647d6295fae077a1feb517508d2c16b4192e01f62",
            ),
        ] {
            let cipher = enctype.cipher(&bytes(key), 2).unwrap();
            let (text, confounder) = (bytes(text), bytes(confounder));
            let mut sealed = Vec::new();
            cipher.encrypt(confounder[..].try_into().unwrap(), &[&text], &mut sealed);
            assert_eq!(sealed, bytes(expected), "{enctype:?}");
            let mut opened = Vec::new();
            assert!(cipher.decrypt(&sealed, &mut opened));
            assert_eq!(opened, [confounder, text].concat());
        }
    }

    #[test]
    fn a_key_of_another_length_is_none() {
        for enctype in [Aes128Sha1, Aes256Sha1, Aes128Sha256, Aes256Sha384] {
            for bytes in [0, 15, 17, 24, 31, 33, 48 - enctype.key_bytes()] {
                assert!(enctype.cipher(&vec![0; bytes], 2).is_none());
                assert!(enctype.checksum(&vec![0; bytes], 2).is_none());
            }
        }
    }
}
