//! File contents that prove where they came from.
//!
//! Every 4 KiB block begins with its own name (file, offset, seed, version) and
//! the rest is a pseudo-random stream derived from that name. A reader that knows
//! file and offset can therefore distinguish a right block, a hole, another file's or offset's
//! block (misplaced), and a damaged one. The version is taken from the block, not expected, so
//! blocks stay verifiable while others overwrite them. The stream is splitmix64: it does not
//! compress, and a block costs about a microsecond to make or to check.

use std::fmt;

/// Size of one self-describing block, in bytes.
pub const BLOCK: usize = 4096;

const MAGIC: u64 = u64::from_be_bytes(*b"WEIRBLK1");
const HEADER_WORDS: usize = 5;

/// Finding about a block that is not the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// All zeros: never written, or lost.
    Hole,
    /// Does not start as a block of ours does.
    Foreign,
    /// A block of ours, but of this file, offset and seed.
    Misplaced {
        /// File number found in the block.
        file: u64,
        /// Byte offset found in the block.
        offset: u64,
        /// Seed found in the block.
        seed: u64,
    },
    /// The right block up to this byte within it, damaged there.
    Damaged {
        /// First differing byte, rounded down to eight.
        at: usize,
    },
    /// Fewer bytes than a block.
    Partial,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hole => write!(f, "zeros where data was written"),
            Self::Foreign => write!(f, "not a block of the pattern"),
            Self::Misplaced { file, offset, seed } => write!(
                f,
                "the block of file {file}, offset {offset}, seed {seed:#x}"
            ),
            Self::Damaged { at } => write!(f, "damaged from byte {at} of the block on"),
            Self::Partial => write!(f, "not a whole number of blocks"),
        }
    }
}

/// One step of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
/// number generators", 2014).
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn stream_start(header: &[u64; HEADER_WORDS]) -> u64 {
    header.iter().fold(0, |acc, w| {
        let mut s = acc ^ *w;
        mix(&mut s)
    })
}

/// Fills `out` with the blocks of `file` from `offset` on. `offset` and the length
/// are multiples of [`BLOCK`]; an incomplete last block gets the block's beginning.
pub fn fill(out: &mut [u8], file: u64, offset: u64, seed: u64, version: u64) {
    let mut at = offset;
    for block in out.chunks_mut(BLOCK) {
        let header = [MAGIC, file, at, seed, version];
        let mut state = stream_start(&header);
        let mut names = header.into_iter();
        for word in block.chunks_mut(8) {
            let value = names.next().unwrap_or_else(|| mix(&mut state));
            let bytes = value.to_be_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
        at = at.wrapping_add(BLOCK as u64);
    }
}

fn word(block: &[u8], index: usize) -> u64 {
    block
        .get(index * 8..index * 8 + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_be_bytes)
}

/// Checks that `data` is what [`fill`] made for this place, in any version.
/// On failure: the byte offset of the bad block within the file, and what it is.
pub fn check(data: &[u8], file: u64, offset: u64, seed: u64) -> Result<(), (u64, Mismatch)> {
    let mut at = offset;
    for block in data.chunks(BLOCK) {
        check_block(block, file, at, seed).map_err(|m| (at, m))?;
        at = at.wrapping_add(BLOCK as u64);
    }
    Ok(())
}

fn check_block(block: &[u8], file: u64, offset: u64, seed: u64) -> Result<(), Mismatch> {
    if block.len() != BLOCK {
        return Err(Mismatch::Partial);
    }
    let mut header = [0u64; HEADER_WORDS];
    for (i, w) in header.iter_mut().enumerate() {
        *w = word(block, i);
    }
    let [magic, f, o, s, _version] = header;
    if magic != MAGIC {
        return Err(if block.iter().all(|b| *b == 0) {
            Mismatch::Hole
        } else {
            Mismatch::Foreign
        });
    }
    if (f, o, s) != (file, offset, seed) {
        return Err(Mismatch::Misplaced {
            file: f,
            offset: o,
            seed: s,
        });
    }
    let mut state = stream_start(&header);
    for (i, chunk) in block.chunks_exact(8).enumerate().skip(HEADER_WORDS) {
        if chunk != mix(&mut state).to_be_bytes() {
            return Err(Mismatch::Damaged { at: i * 8 });
        }
    }
    Ok(())
}

/// A small generator for offsets and choices: splitmix64, seeded.
#[derive(Debug, Clone)]
pub struct Rand(u64);

impl Rand {
    /// The generator that always yields the same sequence for `seed`.
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        Self(mix(&mut s))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        mix(&mut self.0)
    }

    /// A number below `n`, or 0 when `n` is 0 (multiply-shift; its bias of n/2⁶⁴
    /// is of no account here).
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_recognised() {
        let mut data = vec![0u8; 4 * BLOCK];
        fill(&mut data, 3, 8192, 99, 1);
        assert_eq!(check(&data, 3, 8192, 99), Ok(()));
        // Blocks written at different times belong together all the same.
        fill(&mut data[BLOCK..2 * BLOCK], 3, 8192 + 4096, 99, 77);
        assert_eq!(check(&data, 3, 8192, 99), Ok(()));

        assert!(matches!(
            check(&data, 4, 8192, 99),
            Err((8192, Mismatch::Misplaced { file: 3, .. }))
        ));
        assert!(matches!(
            check(&data, 3, 0, 99),
            Err((0, Mismatch::Misplaced { offset: 8192, .. }))
        ));
        assert!(matches!(
            check(&data, 3, 8192, 98),
            Err((8192, Mismatch::Misplaced { seed: 99, .. }))
        ));
        assert_eq!(
            check(&data[..BLOCK + 1], 3, 8192, 99),
            Err((12288, Mismatch::Partial))
        );
        // A change of any bit of any byte is seen.
        for at in (0..BLOCK).step_by(37) {
            let mut bad = data.clone();
            bad[2 * BLOCK + at] ^= 1 << (at % 8);
            let (offset, _) = check(&bad, 3, 8192, 99).unwrap_err();
            assert_eq!(offset, 8192 + 2 * BLOCK as u64, "flip at {at}");
        }
        data[BLOCK..2 * BLOCK].fill(0);
        assert_eq!(check(&data, 3, 8192, 99), Err((12288, Mismatch::Hole)));
        data[..8].fill(1);
        assert_eq!(check(&data, 3, 8192, 99), Err((8192, Mismatch::Foreign)));
    }

    #[test]
    fn the_stream_has_no_byte_in_favour() {
        // Incompressible means, to a first order, evenly spread byte values.
        let mut data = vec![0u8; 64 * BLOCK];
        fill(&mut data, 1, 0, 1, 0);
        let mut counts = [0usize; 256];
        for b in &data {
            counts[usize::from(*b)] += 1;
        }
        let entropy: f64 = counts
            .iter()
            .map(|c| {
                let p = *c as f64 / data.len() as f64;
                if p > 0.0 { -p * p.log2() } else { 0.0 }
            })
            .sum();
        assert!(entropy > 7.9, "{entropy} bits a byte");
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut r = Rand::new(5);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[r.below(7) as usize] = true;
        }
        assert!(seen.iter().all(|s| *s));
        assert_eq!(r.below(0), 0);
    }
}
