//! Choices of a test: a seeded generator with the draws that the generators and the simulated
//! devices need.

use weir_base::{Rng, SeededRng};

/// Seeded choices. Everything a simulated run decides comes from one of these, so its seed
/// reproduces the run.
#[derive(Debug)]
pub struct Choices {
    rng: SeededRng,
}

impl Choices {
    /// Choices that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Choices {
        Choices {
            rng: SeededRng::new(seed),
        }
    }

    /// An independent stream of choices, so that more draws in one place do not shift another.
    #[must_use]
    pub fn fork(&self) -> Choices {
        Choices::new(self.rng.next_u64())
    }

    /// 64 random bits, uniformly distributed.
    pub fn bits(&self) -> u64 {
        self.rng.next_u64()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// An index below `len`; 0 if `len` is 0.
    pub fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `low ..= high`.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// True in `part` of `whole` cases.
    pub fn chance(&self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// Returns one element of `list`, which must not be empty.
    pub fn pick<'a, T>(&self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }

    /// An index, chosen with these weights.
    pub fn weighted(&self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let mut at = self.below(total);
        for (index, weight) in weights.iter().enumerate() {
            if at < u64::from(*weight) {
                return index;
            }
            at -= u64::from(*weight);
        }
        0
    }

    /// Puts `list` into random order (Fisher and Yates).
    pub fn shuffle<T>(&self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.index(last + 1));
        }
    }
}

/// The seeds of a test: `count` of them from 0 on, unless `WEIR_SEEDS` (how many) and `WEIR_SEED`
/// (the first) say otherwise.
#[must_use]
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let first = number("WEIR_SEED").unwrap_or(0);
    first..first + number("WEIR_SEEDS").unwrap_or(count)
}
