//! Bitmap of one chunk, processed a word at a time.

use weir_base::BLOCK_SIZE;

use crate::layout::CHUNK_BLOCKS;

const WORDS: usize = BLOCK_SIZE / 8;

/// One bit for each block of a chunk. Ranges that leave the chunk are cut off at its end.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bitmap([u64; WORDS]);

impl Bitmap {
    pub(crate) fn new() -> Box<Bitmap> {
        Box::new(Bitmap([0; WORDS]))
    }

    /// Decodes a map page: bit `n` is bit `n % 8` of byte `n / 8`.
    pub(crate) fn decode(page: &[u8; BLOCK_SIZE]) -> Box<Bitmap> {
        let mut map = Bitmap::new();
        for (word, bytes) in map.0.iter_mut().zip(page.chunks_exact(8)) {
            *word = bytes
                .first_chunk()
                .map_or(u64::MAX, |b| u64::from_le_bytes(*b));
        }
        map
    }

    pub(crate) fn encode(&self, page: &mut [u8; BLOCK_SIZE]) {
        for (word, bytes) in self.0.iter().zip(page.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Returns the words that hold the `count` bits from `at` on, each with its mask.
    fn masks(at: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
        let end = (at + count).min(CHUNK_BLOCKS);
        let mut next = at;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let bit = next % 64;
            let bits = (64 - bit).min(end - next);
            let mask = (u64::MAX >> (64 - bits)) << bit;
            let word = (next / 64) as usize;
            next += bits;
            Some((word, mask))
        })
    }

    /// Clears the bits that are set in `other`.
    pub(crate) fn remove(&mut self, other: &Bitmap) {
        for (word, mask) in self.0.iter_mut().zip(&other.0) {
            *word &= !mask;
        }
    }

    pub(crate) fn set(&mut self, at: u32, count: u32) {
        for (word, mask) in Self::masks(at, count) {
            if let Some(word) = self.0.get_mut(word) {
                *word |= mask;
            }
        }
    }

    pub(crate) fn clear(&mut self, at: u32, count: u32) {
        for (word, mask) in Self::masks(at, count) {
            if let Some(word) = self.0.get_mut(word) {
                *word &= !mask;
            }
        }
    }

    /// Returns the number of set bits among `count` bits from `at` on.
    pub(crate) fn ones(&self, at: u32, count: u32) -> u32 {
        Self::masks(at, count)
            .map(|(word, mask)| (self.word(word) & mask).count_ones())
            .sum()
    }

    fn word(&self, index: usize) -> u64 {
        // Beyond the end everything counts as allocated.
        self.0.get(index).copied().unwrap_or(u64::MAX)
    }

    /// Returns the first bit from `at` on that equals `set`.
    fn next(&self, at: u32, set: bool) -> Option<u32> {
        let flip = if set { 0 } else { u64::MAX };
        let mut index = (at / 64) as usize;
        let mut mask = u64::MAX << (at % 64);
        while index < WORDS {
            let bits = (self.word(index) ^ flip) & mask;
            if bits != 0 {
                return Some(index as u32 * 64 + bits.trailing_zeros());
            }
            mask = u64::MAX;
            index += 1;
        }
        None
    }

    /// Returns the first run of bits equal to `set` from `at` on: (first, length).
    pub(crate) fn run(&self, at: u32, set: bool) -> Option<(u32, u32)> {
        let first = self.next(at, set)?;
        let end = self.next(first, !set).unwrap_or(CHUNK_BLOCKS);
        Some((first, end - first))
    }

    /// Returns the first run of at least `least` clear bits from `at` on.
    pub(crate) fn free_run(&self, at: u32, least: u32) -> Option<(u32, u32)> {
        let mut at = at;
        loop {
            let (first, len) = self.run(at, false)?;
            if len >= least {
                return Some((first, len));
            }
            at = first + len;
        }
    }

    /// Returns the runs of set bits.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (first, len) = self.run(at, true)?;
            at = first + len;
            Some((first, len))
        })
    }

    /// Returns the bits that are set here but not in `other`.
    pub(crate) fn minus(&self, other: &Bitmap) -> Box<Bitmap> {
        let mut out = Bitmap::new();
        for ((out, a), b) in out.0.iter_mut().zip(&self.0).zip(&other.0) {
            *out = a & !b;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};

    #[test]
    fn matches_an_array_of_booleans() {
        let rng = SeededRng::new(5);
        let mut map = Bitmap::new();
        let mut model = vec![false; CHUNK_BLOCKS as usize];
        for _ in 0..3000 {
            let at = (rng.next_u64() % u64::from(CHUNK_BLOCKS)) as u32;
            let count = (rng.next_u64() % 300) as u32;
            let range = at as usize..((at + count) as usize).min(model.len());
            match rng.next_u64() % 3 {
                0 => {
                    map.set(at, count);
                    model[range].fill(true);
                }
                1 => {
                    map.clear(at, count);
                    model[range].fill(false);
                }
                _ => {
                    let ones = model[range].iter().filter(|b| **b).count() as u32;
                    assert_eq!(map.ones(at, count), ones);
                    let set = rng.next_u64().is_multiple_of(2);
                    let first = (at as usize..model.len()).find(|i| model[*i] == set);
                    let run = first.map(|first| {
                        let len = model[first..].iter().take_while(|b| **b == set).count();
                        (first as u32, len as u32)
                    });
                    assert_eq!(map.run(at, set), run);
                }
            }
        }
        let mut page = [0; BLOCK_SIZE];
        map.encode(&mut page);
        assert!(*Bitmap::decode(&page) == *map);
        let total: u32 = map.runs().map(|(_, len)| len).sum();
        assert_eq!(total, model.iter().filter(|b| **b).count() as u32);
        for (i, bit) in model.iter().enumerate() {
            assert_eq!(page[i / 8] >> (i % 8) & 1 == 1, *bit);
        }
        assert_eq!(map.minus(&map).runs().count(), 0);
    }
}
