//! The keyed hash that places names in a directory.
//!
//! Directory entries are ordered by a hash of their name, so that a position
//! (the READDIR cookie) belongs to the entry and not to the sequence. The hash is
//! keyed with a secret of the volume: otherwise a user could construct names that
//! collide and exhaust the disambiguators of one hash. SipHash-2-4 (Aumasson and
//! Bernstein, 2012) is the function made for this.

use std::sync::atomic::{AtomicU64, Ordering};

/// A 128-bit key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashKey(pub(crate) u64, pub(crate) u64);

/// A volume's key. It changes once at most: an empty volume gets that of the volume
/// whose copy it becomes.
pub(crate) struct KeyCell(AtomicU64, AtomicU64);

impl KeyCell {
    pub(crate) fn new(key: HashKey) -> KeyCell {
        KeyCell(AtomicU64::new(key.0), AtomicU64::new(key.1))
    }

    pub(crate) fn get(&self) -> HashKey {
        HashKey(
            self.0.load(Ordering::Relaxed),
            self.1.load(Ordering::Relaxed),
        )
    }

    /// Nobody looks a name up meanwhile.
    pub(crate) fn set(&self, key: HashKey) {
        self.0.store(key.0, Ordering::Relaxed);
        self.1.store(key.1, Ordering::Relaxed);
    }
}

/// SipHash-2-4 of `data`.
pub(crate) fn siphash(key: HashKey, data: &[u8]) -> u64 {
    let mut v0 = key.0 ^ 0x736f_6d65_7073_6575;
    let mut v1 = key.1 ^ 0x646f_7261_6e64_6f6d;
    let mut v2 = key.0 ^ 0x6c79_6765_6e65_7261;
    let mut v3 = key.1 ^ 0x7465_6462_7974_6573;
    let mut round = |m: Option<u64>, n: usize| {
        if let Some(m) = m {
            v3 ^= m;
        } else {
            v2 ^= 0xff;
        }
        for _ in 0..n {
            v0 = v0.wrapping_add(v1);
            v1 = v1.rotate_left(13) ^ v0;
            v0 = v0.rotate_left(32);
            v2 = v2.wrapping_add(v3);
            v3 = v3.rotate_left(16) ^ v2;
            v0 = v0.wrapping_add(v3);
            v3 = v3.rotate_left(21) ^ v0;
            v2 = v2.wrapping_add(v1);
            v1 = v1.rotate_left(17) ^ v2;
            v2 = v2.rotate_left(32);
        }
        if let Some(m) = m {
            v0 ^= m;
        }
        v0 ^ v1 ^ v2 ^ v3
    };
    let (words, tail) = data.as_chunks::<8>();
    for word in words {
        round(Some(u64::from_le_bytes(*word)), 2);
    }
    let mut last = (data.len() as u64) << 56;
    for (i, b) in tail.iter().enumerate() {
        last |= u64::from(*b) << (8 * i);
    }
    round(Some(last), 2);
    round(None, 4)
}

/// Entries of one hash that a directory can hold.
pub(crate) const DISAMBIGUATORS: u64 = 256;

/// The first cookie of a name: its 55-bit hash above an eight-bit disambiguator.
/// The top bit is clear (some clients treat cookies as signed), and it is never
/// below 256, so 0, 1 and 2 stay free for the start, "." and "..".
pub(crate) fn first_cookie(key: HashKey, name: &[u8]) -> u64 {
    (siphash(key, name) >> 9).max(1) << 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_vectors() {
        // Appendix A of the SipHash paper, and the first of the reference
        // implementation's vectors: key 00..0f, message 00, 01, …
        let key = HashKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(key, &message), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash(key, &[]), 0x726f_db47_dd0e_0e31);
    }

    #[test]
    fn cookies_leave_room() {
        for i in 0..1000u32 {
            let c = first_cookie(HashKey(1, 2), &i.to_le_bytes());
            assert_eq!(c & 0xff, 0);
            assert!(c >= 256 && c <= i64::MAX as u64);
        }
    }
}
