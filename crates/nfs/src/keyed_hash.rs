//! A keyed hash for tables whose keys come from clients.
//!
//! The standard library's SipHash is safe against keys that are made to collide,
//! and takes longer than the rest of a look-up. KeyedHasher multiplication (multiply to
//! 128 bits and add the halves, as in wyhash) by a secret is several times as fast.
//! It is no cryptographic function, but a client never sees a hash, only how
//! long its own calls take, so it has nothing to find the secret by; and the
//! tables it fills are bounded.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A secret, drawn anew for each table.
#[derive(Clone, Copy)]
pub(crate) struct KeyedBuildHasher {
    start: u64,
    factor: u64,
}

impl Default for KeyedBuildHasher {
    fn default() -> KeyedBuildHasher {
        let random = || RandomState::new().build_hasher().finish();
        KeyedBuildHasher {
            start: random(),
            // Odd: no input bit is multiplied away.
            factor: random() | 1,
        }
    }
}

impl BuildHasher for KeyedBuildHasher {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher {
            state: self.start,
            factor: self.factor,
        }
    }
}

/// The hasher of [`KeyedBuildHasher`].
pub(crate) struct KeyedHasher {
    state: u64,
    factor: u64,
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(tail) {
            *to = *from;
        }
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.state ^ n) * u128::from(self.factor);
        // The rotation keeps a state of zero from hiding what comes next.
        self.state = (product as u64 ^ (product >> 64) as u64)
            .rotate_left(23)
            .wrapping_add(self.factor);
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.state) * u128::from(self.factor);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash table uses the low and the high bits of a hash. Both are spread evenly over keys that
    /// count up, as transaction ids do.
    #[test]
    fn counted_keys_spread() {
        for _ in 0..20 {
            let keyed = KeyedBuildHasher::default();
            let mut low = [0u32; 256];
            let mut high = [0u32; 256];
            for n in 0..64_000u64 {
                let mut h = keyed.build_hasher();
                h.write_u64(7);
                h.write_u64(n << 32);
                let hash = h.finish();
                low[hash as usize % 256] += 1;
                high[(hash >> 56) as usize] += 1;
            }
            // 250 expected; ten standard deviations are 158.
            let even = |counts: &[u32]| counts.iter().all(|n| (92..408).contains(n));
            assert!(
                even(&low) && even(&high),
                "{:x} {:x}",
                keyed.start,
                keyed.factor
            );
        }
    }
}
