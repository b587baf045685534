//! Addresses of the fixed structures of an aggregate on its device.
//!
//! The device is divided into chunks of 128 MiB: one 4 KiB bitmap has a bit for each block. The
//! allocation map and its index have fixed addresses, so that writing them allocates nothing. A map
//! that recorded its own allocation would have to be rewritten until nothing changes any more. Each
//! structure has two slots that are written alternately, because a torn write must not touch the
//! slot that the newest superblock refers to.
//!
//! ```text
//! chunk 0:   0 superblock A   16 superblock B   32 map ×2   34 index ×2   36 …
//!         2048 mirror of A  2064 mirror of B  2080 …
//! chunk n:   0 map ×2          2 …
//! chunk n divisible by 250:    2 index ×2       4 …
//! ```

use weir_base::{BLOCK_SIZE, BlockAddr};

/// Blocks in a chunk: the number of bits in a map page.
pub const CHUNK_BLOCKS: u32 = (BLOCK_SIZE * 8) as u32;
/// Blocks that are discarded together: 4 MiB. A chunk has 32 such pieces.
pub const PIECE_BLOCKS: u32 = 1024;
/// Blocks of a superblock slot (64 KiB).
pub const SUPER_BLOCKS: u32 = 16;
/// Chunks that one index block describes: 31.25 GiB of device.
pub const GROUP_CHUNKS: u32 = 250;
/// Minimum length of a device in blocks: 16 MiB, twice the span of the fixed structures.
pub const MIN_BLOCKS: u64 = 4096;

/// Maximum length of a device in blocks: the largest whose map a superblock can refer to.
pub const MAX_BLOCKS: u64 =
    crate::superblock::MAX_GROUPS as u64 * GROUP_CHUNKS as u64 * CHUNK_BLOCKS as u64;

/// Minimum length of a chunk in blocks. A shorter rest of the device is not used.
const MIN_TAIL: u64 = 64;
const MIRROR_AT: u32 = 2048;
const CHUNK_0_FIXED: u32 = 2 * SUPER_BLOCKS;

const _: () = assert!(MIRROR_AT as u64 + (2 * SUPER_BLOCKS) as u64 <= MIN_BLOCKS);

/// One of two slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Slot {
    /// The first of two; superblocks of even generations.
    #[default]
    A,
    /// The second of two; superblocks of odd generations.
    B,
}

impl Slot {
    /// Both slots, `A` first.
    pub const BOTH: [Slot; 2] = [Slot::A, Slot::B];

    /// Returns the other slot.
    #[must_use]
    pub fn other(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }

    /// Returns 0 for `A`, 1 for `B`.
    pub fn index(self) -> u32 {
        match self {
            Slot::A => 0,
            Slot::B => 1,
        }
    }

    /// Returns the slot of a bit, 0 or 1 (only the lowest bit counts).
    pub fn from_bit(bit: u32) -> Slot {
        if bit & 1 == 0 { Slot::A } else { Slot::B }
    }
}

/// Returns the addresses of a superblock slot's copies: the slot and its mirror.
pub fn superblock(slot: Slot) -> [BlockAddr; 2] {
    let at = u64::from(slot.index() * SUPER_BLOCKS);
    [BlockAddr(at), BlockAddr(u64::from(MIRROR_AT) + at)]
}

/// Returns the first block of a chunk.
pub fn chunk_start(chunk: u32) -> u64 {
    u64::from(chunk) * u64::from(CHUNK_BLOCKS)
}

/// Returns the block of a chunk's map page.
pub fn map_page(chunk: u32, slot: Slot) -> BlockAddr {
    let first = if chunk == 0 { CHUNK_0_FIXED } else { 0 };
    BlockAddr(chunk_start(chunk) + u64::from(first + slot.index()))
}

/// Returns the block of a chunk group's index.
pub fn index_page(group: u32, slot: Slot) -> BlockAddr {
    let chunk = group * GROUP_CHUNKS;
    BlockAddr(map_page(chunk, Slot::A).0 + 2 + u64::from(slot.index()))
}

/// Returns the fixed parts of a chunk: (first block within the chunk, blocks).
pub fn fixed(chunk: u32) -> impl Iterator<Item = (u32, u32)> {
    let index = if chunk.is_multiple_of(GROUP_CHUNKS) {
        2
    } else {
        0
    };
    let (front, mirror) = match chunk {
        0 => (
            CHUNK_0_FIXED + 2 + index,
            Some((MIRROR_AT, 2 * SUPER_BLOCKS)),
        ),
        _ => (2 + index, None),
    };
    std::iter::once((0, front)).chain(mirror)
}

/// Returns the number of usable blocks of a device of `length` blocks. A rest at its end that is
/// too small for a chunk is not used.
pub fn usable(length: u64) -> u64 {
    let tail = length % u64::from(CHUNK_BLOCKS);
    if tail < MIN_TAIL {
        length - tail
    } else {
        length
    }
}

/// Returns the number of chunks of a device, or `None` if it is larger than the map can describe.
pub fn chunks(length: u64) -> Option<u32> {
    u32::try_from(usable(length).div_ceil(u64::from(CHUNK_BLOCKS))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_structures_do_not_overlap_and_are_all_covered() {
        for chunk in [0, 1, 249, 250, 251, 500] {
            let mut used = std::collections::BTreeSet::new();
            let mut claim = |addr: BlockAddr, count: u32| {
                for block in 0..u64::from(count) {
                    assert!(used.insert(addr.0 + block - chunk_start(chunk)));
                }
            };
            for slot in Slot::BOTH {
                claim(map_page(chunk, slot), 1);
                if chunk % GROUP_CHUNKS == 0 {
                    claim(index_page(chunk / GROUP_CHUNKS, slot), 1);
                }
                if chunk == 0 {
                    superblock(slot)
                        .into_iter()
                        .for_each(|at| claim(at, SUPER_BLOCKS));
                }
            }
            let fixed: std::collections::BTreeSet<u64> = fixed(chunk)
                .flat_map(|(at, count)| u64::from(at)..u64::from(at + count))
                .collect();
            assert_eq!(fixed, used);
        }
    }

    #[test]
    fn a_tail_that_is_too_small_is_left_alone() {
        assert_eq!(usable(32768 + 63), 32768);
        assert_eq!(usable(32768 + 64), 32768 + 64);
        assert_eq!(chunks(32768 + 64), Some(2));
        assert_eq!(chunks(u64::MAX), None);
    }
}
