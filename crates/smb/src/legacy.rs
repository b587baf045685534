//! What NTLM is made of (MS-NLMP §3.4): MD4, HMAC-MD5, RC4.
//!
//! None of them is fit for anything new. They protect a password on its way and a session key once; what follows is signed
//! with keys that are derived by SHA-256.

use hmac::{Hmac, Mac};
use md5::{Digest, Md5};

/// Bytes of every hash and key here.
pub type Key = [u8; 16];

/// MD4 (RFC 1320) of a message.
pub fn md4(message: &[u8]) -> Key {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(8 * message.len() as u64).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (blocks, _) = padded.as_chunks::<64>();
    for block in blocks {
        let mut x = [0u32; 16];
        let (words, _) = block.as_chunks::<4>();
        for (to, word) in x.iter_mut().zip(words) {
            *to = u32::from_le_bytes(*word);
        }
        let before = state;
        // Each step replaces one word and turns the four about.
        let mut step = |mix: fn(u32, u32, u32) -> u32, k: usize, shift: u32, add: u32| {
            let [a, b, c, d] = state;
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(x[k]);
            state = [d, sum.wrapping_add(add).rotate_left(shift), b, c];
        };
        for i in 0..16 {
            step(|b, c, d| b & c | !b & d, i, [3, 7, 11, 19][i % 4], 0);
        }
        for i in 0..16 {
            let k = i % 4 * 4 + i / 4;
            step(
                |b, c, d| b & c | b & d | c & d,
                k,
                [3, 5, 9, 13][i % 4],
                0x5a82_7999,
            );
        }
        for i in 0..16 {
            let k = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15][i];
            step(|b, c, d| b ^ c ^ d, k, [3, 9, 11, 15][i % 4], 0x6ed9_eba1);
        }
        for (word, old) in state.iter_mut().zip(before) {
            *word = word.wrapping_add(old);
        }
    }
    let mut out = [0; 16];
    for (to, word) in out.chunks_mut(4).zip(state) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    out
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
pub fn rc4(key: &[u8], data: &mut [u8]) {
    let mut s: [u8; 256] = std::array::from_fn(|i| i as u8);
    let mut j = 0u8;
    for i in 0..256 {
        j = j.wrapping_add(s[i]).wrapping_add(key[i % key.len()]);
        s.swap(i, usize::from(j));
    }
    let (mut i, mut j) = (0u8, 0u8);
    for byte in data {
        i = i.wrapping_add(1);
        j = j.wrapping_add(s[usize::from(i)]);
        s.swap(usize::from(i), usize::from(j));
        let at = s[usize::from(i)].wrapping_add(s[usize::from(j)]);
        *byte ^= s[usize::from(at)];
    }
}

/// Whether two secrets are equal, in a time that does not say where they differ.
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

    /// RFC 2202 §2, RFC 6229's key 0102030405.
    #[test]
    fn hmac_md5_and_rc4_are_the_published_ones() {
        assert_eq!(
            hex(&hmac_md5(&[0x0b; 16], &[b"Hi ", b"There"])),
            "9294727a3638bb1c13f48ef8158bfc9d"
        );
        let mut stream = [0; 16];
        rc4(&[1, 2, 3, 4, 5], &mut stream);
        assert_eq!(hex(&stream), "b2396305f03dc027ccc3524a0a1118a8");
        assert_eq!(
            hex(&md5(&[b"a", b"bc"])),
            "900150983cd24fb0d6963f7d28e17f72"
        );
    }
}
