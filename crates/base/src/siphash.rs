//! SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash of short messages. Without the 128-bit
//! key its values cannot be forged or inverted, and collisions cannot be constructed.

use std::hash::Hasher as _;

use sip128::Hasher128 as _;
use siphasher::{sip, sip128};

/// A secret key of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SipKey(pub u64, pub u64);

impl SipKey {
    /// Creates a key from 16 secret bytes.
    pub fn new(secret: [u8; 16]) -> SipKey {
        let v = u128::from_le_bytes(secret);
        SipKey(v as u64, (v >> 64) as u64)
    }

    /// Returns the 64-bit hash of `data`.
    pub fn hash(self, data: &[u8]) -> u64 {
        sip::SipHasher24::new_with_keys(self.0, self.1).hash(data)
    }

    /// Returns the 128-bit hash of the concatenation of `parts`.
    pub fn hash128(self, parts: &[&[u8]]) -> u128 {
        let mut hash = sip128::SipHasher24::new_with_keys(self.0, self.1);
        for part in parts {
            hash.write(part);
        }
        hash.finish128().into()
    }

    /// Derives a key for another purpose. The derived key reveals nothing about this one.
    #[must_use]
    pub fn derive(self, purpose: &[u8]) -> SipKey {
        let v = self.hash128(&[purpose]);
        SipKey(v as u64, (v >> 64) as u64)
    }
}

impl std::fmt::Debug for SipKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SipKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key 00..0f, as in all test vectors.
    const KEY: SipKey = SipKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);

    #[test]
    fn matches_the_reference_vectors() {
        // Appendix A of the paper, and the first vector of the reference implementation: message
        // 00, 01, …
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(KEY.hash(&message), 0xa129_ca61_49be_45e5);
        assert_eq!(KEY.hash(&[]), 0x726f_db47_dd0e_0e31);
        for (len, hash) in [
            (0, 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128),
            (1, 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45),
            (2, 0x8177_228d_a4a4_5dc7_fca3_8bde_f60a_ffe4),
        ] {
            assert_eq!(KEY.hash128(&[&message[..len]]), hash.swap_bytes());
        }
    }

    #[test]
    fn parts_are_one_message() {
        let message: Vec<u8> = (0..40).collect();
        let whole = KEY.hash128(&[&message]);
        for a in 0..=40 {
            for b in a..=40 {
                let parts = [&message[..a], &message[a..b], &message[b..]];
                assert_eq!(KEY.hash128(&parts), whole);
            }
        }
        assert_ne!(KEY.derive(b"one"), KEY.derive(b"other"));
    }
}
