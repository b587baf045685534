//! Primitives of NTLM (MS-NLMP §3.4): MD4, HMAC-MD5, RC4.
//!
//! None of them is fit for anything new. They protect a password on its way and a session key once;
//! what follows is signed with keys that are derived by SHA-256.

use hmac::{Hmac, Mac};
use md4::Md4;
use md5::{Digest, Md5};
use rc4::{KeyInit, Rc4, StreamCipher};

/// Bytes of every hash and key here.
pub type Key = [u8; 16];

/// MD4 (RFC 1320) of a message.
pub fn md4(message: &[u8]) -> Key {
    Md4::digest(message).into()
}

/// MD5 of the parts in order.
pub fn md5(parts: &[&[u8]]) -> Key {
    let mut hash = Md5::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// HMAC-MD5 of the parts in order.
pub fn hmac_md5(key: &Key, parts: &[&[u8]]) -> Key {
    // Shorter than a block, so it is padded (RFC 2104 §2).
    let mut block = [0; 64];
    block[..16].copy_from_slice(key);
    let mut mac = <Hmac<Md5> as hmac::digest::KeyInit>::new(&block.into());
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// RC4 of `data` in place, from the start of the key's stream.
pub fn rc4(key: &Key, data: &mut [u8]) {
    Rc4::new(key.into()).apply_keystream(data);
}

/// Returns true if two secrets are equal, in a time that does not depend on where they differ.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// RFC 1320 §A.5.
    #[test]
    fn md4_is_the_published_one() {
        let cases: [(&[u8], &str); 4] = [
            (b"", "31d6cfe0d16ae931b73c59d7e0c089c0"),
            (b"abc", "a448017aaf21d8525fc10ae87aa6729d"),
            (
                b"abcdefghijklmnopqrstuvwxyz",
                "d79e1c308aa5bbcdeea8ed63df412da9",
            ),
            (
                b"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "e33b4ddc9c38f2199c3e7b164fcc0536",
            ),
        ];
        for (message, digest) in cases {
            assert_eq!(hex(&md4(message)), digest);
        }
    }

    /// RFC 2202 §2, RFC 6229's key of 128 bits.
    #[test]
    fn hmac_md5_and_rc4_are_the_published_ones() {
        assert_eq!(
            hex(&hmac_md5(&[0x0b; 16], &[b"Hi ", b"There"])),
            "9294727a3638bb1c13f48ef8158bfc9d"
        );
        let mut stream = [0; 16];
        rc4(&std::array::from_fn(|i| i as u8 + 1), &mut stream);
        assert_eq!(hex(&stream), "9ac7cc9a609d1ef7b2932899cde41b97");
        assert_eq!(
            hex(&md5(&[b"a", b"bc"])),
            "900150983cd24fb0d6963f7d28e17f72"
        );
    }
}
