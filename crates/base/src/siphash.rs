//! SipHash-2-4 (Aumasson and Bernstein, 2012), with 64 and with 128 bits: a keyed hash of short messages that nobody can
//! collide, forge or invert who has not the key.

/// A secret of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SipKey(pub u64, pub u64);

impl SipKey {
    /// From 16 secret bytes.
    pub fn new(secret: [u8; 16]) -> SipKey {
        let v = u128::from_le_bytes(secret);
        SipKey(v as u64, (v >> 64) as u64)
    }

    /// The hash of `data` with 64 bits.
    pub fn hash(self, data: &[u8]) -> u64 {
        let mut hash = SipHash::new(self, 0);
        hash.write(data);
        hash.finish(0xff)
    }

    /// The hash of the concatenation of `parts` with 128 bits.
    pub fn hash128(self, parts: &[&[u8]]) -> u128 {
        let mut hash = SipHash::new(self, 0xee);
        for part in parts {
            hash.write(part);
        }
        let low = hash.finish(0xee);
        hash.v1 ^= 0xdd;
        hash.rounds(4);
        u128::from(hash.sum()) << 64 | u128::from(low)
    }

    /// A key for another purpose that tells nothing about this one.
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

struct SipHash {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
    /// Bytes that do not make a word yet, and their number in the low bits of `len`.
    tail: u64,
    len: usize,
}

impl SipHash {
    fn new(key: SipKey, width: u64) -> SipHash {
        SipHash {
            v0: key.0 ^ 0x736f_6d65_7073_6575,
            v1: key.1 ^ 0x646f_7261_6e64_6f6d ^ width,
            v2: key.0 ^ 0x6c79_6765_6e65_7261,
            v3: key.1 ^ 0x7465_6462_7974_6573,
            tail: 0,
            len: 0,
        }
    }

    #[inline]
    fn rounds(&mut self, n: usize) {
        for _ in 0..n {
            self.v0 = self.v0.wrapping_add(self.v1);
            self.v1 = self.v1.rotate_left(13) ^ self.v0;
            self.v0 = self.v0.rotate_left(32);
            self.v2 = self.v2.wrapping_add(self.v3);
            self.v3 = self.v3.rotate_left(16) ^ self.v2;
            self.v0 = self.v0.wrapping_add(self.v3);
            self.v3 = self.v3.rotate_left(21) ^ self.v0;
            self.v2 = self.v2.wrapping_add(self.v1);
            self.v1 = self.v1.rotate_left(17) ^ self.v2;
            self.v2 = self.v2.rotate_left(32);
        }
    }

    #[inline]
    fn word(&mut self, m: u64) {
        self.v3 ^= m;
        self.rounds(2);
        self.v0 ^= m;
    }

    #[inline]
    fn write(&mut self, data: &[u8]) {
        let odd = self.len % 8;
        self.len += data.len();
        let (first, rest) = data.split_at(if odd == 0 { 0 } else { data.len().min(8 - odd) });
        for (i, byte) in first.iter().enumerate() {
            self.tail |= u64::from(*byte) << (8 * (odd + i));
        }
        if odd > 0 && odd + first.len() == 8 {
            let tail = std::mem::take(&mut self.tail);
            self.word(tail);
        }
        let (words, last) = rest.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        for (i, byte) in last.iter().enumerate() {
            self.tail |= u64::from(*byte) << (8 * i);
        }
    }

    fn sum(&self) -> u64 {
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    fn finish(&mut self, mark: u64) -> u64 {
        self.word(self.tail | (self.len as u64) << 56);
        self.v2 ^= mark;
        self.rounds(4);
        self.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key 00..0f, as all vectors have it.
    const KEY: SipKey = SipKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);

    #[test]
    fn matches_the_reference_vectors() {
        // Appendix A of the paper, and the first of the reference implementation's: message 00, 01, …
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
