//! Randomness as a value that is handed in.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::rand::{GetRandomFlags, getrandom};

/// The source of randomness for everything below the binary.
pub trait Rng: Send + Sync {
    /// Returns 64 random bits, uniformly distributed.
    fn next_u64(&self) -> u64;

    /// Returns a number below `bound`, without bias; 0 if `bound` is 0.
    fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Lemire, "Fast Random Integer Generation in an Interval" (2019).
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if (wide as u64) >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Fills `out` with random bytes.
    fn fill(&self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }
}

/// The operating system's generator (getrandom(2)): fit for identifiers, write
/// verifiers and hash keys.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        let mut bytes = [0u8; 8];
        if getrandom(&mut bytes, GetRandomFlags::empty()) == Ok(bytes.len()) {
            return u64::from_le_bytes(bytes);
        }
        // Kernels without getrandom(2), or a seccomp filter: the standard
        // library seeds its hasher from whatever the system offers instead.
        let mut h = RandomState::new().build_hasher();
        h.write_u64(0);
        h.finish()
    }
}

/// A reproducible generator (SplitMix64; Steele, Lea, Flood 2014). Several
/// threads may draw from one; then only the set of numbers is reproducible.
#[derive(Debug)]
pub struct SeededRng {
    state: AtomicU64,
}

impl SeededRng {
    /// Creates a generator. `seed` determines its whole sequence.
    pub fn new(seed: u64) -> SeededRng {
        SeededRng {
            state: AtomicU64::new(seed),
        }
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self
            .state
            .fetch_add(GAMMA, Ordering::Relaxed)
            .wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_sequence_is_the_published_one() {
        // First outputs of SplitMix64 for seed 1234567, as in its reference implementation.
        let r = SeededRng::new(1_234_567);
        assert_eq!(r.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(r.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let r = SeededRng::new(7);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[r.below(10) as usize] = true;
        }
        assert!(seen.iter().all(|s| *s));
        assert_eq!(r.below(0), 0);
        assert_eq!(r.below(1), 0);
    }

    #[test]
    fn fill_covers_odd_lengths() {
        let mut a = [0u8; 13];
        let mut b = [0u8; 13];
        SeededRng::new(1).fill(&mut a);
        SeededRng::new(2).fill(&mut b);
        assert_ne!(a, b);
        assert_ne!(a[8..], [0; 5]);
    }

    #[test]
    fn system_generator_does_not_repeat() {
        assert_ne!(SystemRng.next_u64(), SystemRng.next_u64());
    }
}
