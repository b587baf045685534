//! The index of the allocation map: one block describes the map pages of a group of chunks.
//!
//! ```text
//! 0  magic "WIDX"      8  generation u64    20 zeros
//! 4  group u32        16  entries u32       96 entries of 16 bytes …
//! entry: generation u64, crc u32, used blocks u32 (top bit: slot B)
//! ```

use weir_base::{BLOCK_SIZE, Generation};

use crate::layout::{GROUP_CHUNKS, Slot};

const MAGIC: [u8; 4] = *b"WIDX";
const HEADER: usize = 96;
const ENTRY: usize = 16;
const SLOT_B: u32 = 1 << 31;

const _: () = assert!(HEADER + GROUP_CHUNKS as usize * ENTRY == BLOCK_SIZE);

/// Index entry of a chunk's map page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    /// The checkpoint that wrote the page; 0 if none did, and only the fixed structures are
    /// allocated.
    pub(super) generation: Generation,
    /// CRC32C of the page.
    pub(super) crc: u32,
    /// The slot that the page is in.
    pub(super) slot: Slot,
    /// Number of allocated blocks, fixed structures included.
    pub(super) used: u32,
}

pub(super) fn encode(
    page: &mut [u8; BLOCK_SIZE],
    group: u32,
    generation: Generation,
    entries: impl ExactSizeIterator<Item = Entry>,
) {
    page.fill(0);
    let mut header = [0u8; 20];
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&group.to_le_bytes());
    header[8..16].copy_from_slice(&generation.0.to_le_bytes());
    header[16..20].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    let (front, rest) = page.split_at_mut(HEADER);
    if let Some(front) = front.first_chunk_mut() {
        *front = header;
    }
    for (into, entry) in rest.chunks_exact_mut(ENTRY).zip(entries) {
        let used = entry.used | if entry.slot == Slot::B { SLOT_B } else { 0 };
        into[..8].copy_from_slice(&entry.generation.0.to_le_bytes());
        into[8..12].copy_from_slice(&entry.crc.to_le_bytes());
        into[12..].copy_from_slice(&used.to_le_bytes());
    }
}

/// Decodes the entries of an index block; `None` if it is not the expected one.
pub(super) fn decode(
    page: &[u8; BLOCK_SIZE],
    group: u32,
    generation: Generation,
) -> Option<Vec<Entry>> {
    let (header, rest) = page.split_at_checked(HEADER)?;
    let u32_at = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
    let written = u64::from_le_bytes(*header.get(8..)?.first_chunk()?);
    let count = u32_at(16)?;
    if header.first_chunk() != Some(&MAGIC)
        || u32_at(4)? != group
        || written != generation.0
        || count > GROUP_CHUNKS
    {
        return None;
    }
    let entries = rest.chunks_exact(ENTRY).take(count as usize).map(|bytes| {
        let bytes: &[u8; ENTRY] = bytes.first_chunk()?;
        let [g0, g1, g2, g3, g4, g5, g6, g7, c0, c1, c2, c3, u @ ..] = *bytes;
        let used = u32::from_le_bytes(u);
        Some(Entry {
            generation: Generation(u64::from_le_bytes([g0, g1, g2, g3, g4, g5, g6, g7])),
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
            slot: if used & SLOT_B == 0 { Slot::A } else { Slot::B },
            used: used & !SLOT_B,
        })
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_mismatches() {
        let entries: Vec<Entry> = (0..GROUP_CHUNKS)
            .map(|i| Entry {
                generation: Generation(u64::from(i)),
                crc: i ^ 0xFFFF,
                slot: Slot::from_bit(i),
                used: i * 131,
            })
            .collect();
        let mut page = [9; BLOCK_SIZE];
        encode(&mut page, 3, Generation(8), entries.iter().copied());
        assert_eq!(decode(&page, 3, Generation(8)), Some(entries));
        assert_eq!(decode(&page, 4, Generation(8)), None);
        assert_eq!(decode(&page, 3, Generation(9)), None);
        page[16] = 251;
        assert_eq!(decode(&page, 3, Generation(8)), None);
    }
}
