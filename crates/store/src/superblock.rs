//! The superblock: the one structure that is overwritten in place. It determines the current
//! checkpoint.
//!
//! It is written to two slots alternately, after everything that it refers to is durable. A crash
//! during its write leaves the other slot. The checkpoint of that slot is intact, because none of
//! its blocks has been overwritten.
//!
//! Each slot also has a mirror elsewhere on the device. The two slots protect from torn writes.
//! They do not help when the newest superblock is damaged *later*, because the blocks, map slots
//! and log space of the older one have been reused by then. The mirror restores such a superblock
//! without loss. Only if both copies are gone is the older slot used, and then its user must report
//! it loudly.
//!
//! The layout is defined in `docs/internals/format.md`. All numbers are little-endian.

use std::fmt;

use weir_base::{AggregateId, BLOCK_SIZE, Generation, Lsn};

use crate::layout::{SUPER_BLOCKS, Slot};
use crate::log::{LogCut, LogId, LogPos};
use crate::tree::{ROOT_SIZE, TreeRoot};

/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"WEIRAGGR";
/// Format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 2;

const HEADER: usize = 128;
const INDEX_REF: usize = 16;
const MAX_BYTES: usize = SUPER_BLOCKS as usize * BLOCK_SIZE;
/// Maximum number of groups of chunks that a superblock can refer to: about 124 TiB.
pub const MAX_GROUPS: usize = (MAX_BYTES - HEADER) / INDEX_REF;

/// A reference to an index block of the allocation map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexRef {
    /// The checkpoint that wrote the block; 0 if it was never written.
    pub generation: Generation,
    /// CRC32C of the block.
    pub crc: u32,
    /// The slot that the block is in.
    pub slot: Slot,
}

/// The contents of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Identity of the aggregate, in every copy.
    pub id: AggregateId,
    /// The checkpoint that this superblock completes.
    pub generation: Generation,
    /// Identity of the intent log. It is random and never disclosed, so that a client cannot forge
    /// a part of the log in file data.
    pub log: LogId,
    /// Position in the intent log from which records have to be applied.
    pub cut: LogCut,
    /// Blocks of the device in use for allocation.
    pub length: u64,
    /// The aggregate's own tree.
    pub root: TreeRoot,
    /// The allocation map's index, by group of chunks.
    pub index: Vec<IndexRef>,
}

/// Reason why bytes are not a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// The magic does not match.
    NotASuperblock,
    /// The format is unknown to this code, newer or never released.
    OtherFormat(u32),
    /// The checksum or the lengths are wrong.
    Damaged,
}

/// Returns the reason, for people, why an aggregate of this format version cannot be opened.
pub(crate) fn other_format(version: u32) -> String {
    match version < FORMAT_VERSION {
        true => format!(
            "format version {version} was never released; this server reads version {FORMAT_VERSION}"
        ),
        false => {
            format!("format version {version} is newer than this server knows ({FORMAT_VERSION})")
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::NotASuperblock => f.write_str("no superblock"),
            Invalid::OtherFormat(version) => f.write_str(&other_format(*version)),
            Invalid::Damaged => f.write_str("a damaged superblock"),
        }
    }
}

impl Superblock {
    /// Returns the slot for this checkpoint's superblock.
    pub fn slot(generation: Generation) -> Slot {
        Slot::from_bit((generation.0 & 1) as u32)
    }

    /// Encodes the superblock for the disk, a whole number of blocks; `None` if there are too many
    /// groups of chunks.
    pub fn encode(&self) -> Option<Vec<u8>> {
        if self.index.len() > MAX_GROUPS {
            return None;
        }
        let length = HEADER + self.index.len() * INDEX_REF;
        let mut out = Vec::with_capacity(length.next_multiple_of(BLOCK_SIZE));
        out.extend(MAGIC);
        out.extend(FORMAT_VERSION.to_le_bytes());
        out.extend(u32::try_from(length).ok()?.to_le_bytes());
        out.extend([0; 4]); // checksum, below
        out.extend(u32::try_from(self.index.len()).ok()?.to_le_bytes());
        out.extend(self.id.0);
        out.extend(self.generation.0.to_le_bytes());
        out.extend(self.log.0);
        out.extend(self.cut.pos.0.to_le_bytes());
        out.extend(self.cut.next.0.to_le_bytes());
        out.extend(self.length.to_le_bytes());
        out.extend(self.root.encode());
        out.resize(HEADER, 0);
        for group in &self.index {
            out.extend(group.generation.0.to_le_bytes());
            out.extend(group.crc.to_le_bytes());
            out.extend(group.slot.index().to_le_bytes());
        }
        let crc = crc32c::crc32c(&out).to_le_bytes();
        out.get_mut(16..20)?.copy_from_slice(&crc);
        out.resize(length.next_multiple_of(BLOCK_SIZE), 0);
        Some(out)
    }

    /// Decodes a superblock encoded by [`Superblock::encode`]; later bytes are not read.
    ///
    /// # Errors
    /// [`Invalid`] if the bytes are not a usable superblock.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, Invalid> {
        let mut header = Reader(bytes);
        if header.take::<8>() != Some(MAGIC) {
            return Err(Invalid::NotASuperblock);
        }
        let version = header.u32().ok_or(Invalid::Damaged)?;
        let length = header.u32().ok_or(Invalid::Damaged)? as usize;
        let crc = header.u32().ok_or(Invalid::Damaged)?;
        let groups = header.u32().ok_or(Invalid::Damaged)? as usize;
        if length > MAX_BYTES {
            return Err(Invalid::Damaged);
        }
        let covered = bytes.get(..length).ok_or(Invalid::Damaged)?;
        let (before, after) = (covered.get(..16), covered.get(20..));
        let (Some(before), Some(after)) = (before, after) else {
            return Err(Invalid::Damaged);
        };
        let sum = crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]);
        if crc32c::crc32c_append(sum, after) != crc {
            return Err(Invalid::Damaged);
        }
        // Magic, version, length and checksum keep their places in all formats, so that a newer
        // format can be distinguished from damage.
        if version != FORMAT_VERSION {
            return Err(Invalid::OtherFormat(version));
        }
        if groups > MAX_GROUPS || length != HEADER + groups * INDEX_REF {
            return Err(Invalid::Damaged);
        }
        let mut parse = || {
            let id = AggregateId(header.take()?);
            let generation = Generation(header.u64()?);
            let log = LogId(header.take()?);
            let cut = LogCut {
                pos: LogPos(header.u64()?),
                next: Lsn(header.u64()?),
            };
            let length = header.u64()?;
            let root = TreeRoot::decode(&header.take::<ROOT_SIZE>()?);
            let mut refs = Reader(covered.get(HEADER..)?);
            let index = (0..groups)
                .map(|_| {
                    Some(IndexRef {
                        generation: Generation(refs.u64()?),
                        crc: refs.u32()?,
                        slot: Slot::from_bit(refs.u32()?),
                    })
                })
                .collect::<Option<Vec<_>>>()?;
            Some(Superblock {
                id,
                generation,
                log,
                cut,
                length,
                root,
                index,
            })
        };
        parse().ok_or(Invalid::Damaged)
    }
}

/// Reads little-endian numbers from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockPtr;
    use weir_base::BlockAddr;

    fn sample(groups: usize) -> Superblock {
        let ptr = BlockPtr {
            addr: BlockAddr(77),
            birth: Generation(5),
            crc: 0xABCD,
        };
        Superblock {
            id: AggregateId([7; 16]),
            generation: Generation(6),
            log: LogId([8; 16]),
            cut: LogCut {
                pos: LogPos(1234),
                next: Lsn(99),
            },
            length: 8192,
            root: TreeRoot {
                ptr: Some(ptr),
                height: 2,
            },
            index: (0..groups as u32)
                .map(|i| IndexRef {
                    generation: Generation(u64::from(i)),
                    crc: i * 3,
                    slot: Slot::from_bit(i),
                })
                .collect(),
        }
    }

    #[test]
    fn round_trip_at_all_sizes() {
        for groups in [0, 1, 248, 249, MAX_GROUPS] {
            let sb = sample(groups);
            let bytes = sb.encode().unwrap();
            assert!(bytes.len() <= MAX_BYTES && bytes.len().is_multiple_of(BLOCK_SIZE));
            assert_eq!(Superblock::decode(&bytes), Ok(sb));
        }
        assert!(sample(MAX_GROUPS + 1).encode().is_none());
    }

    #[test]
    fn encoding_is_the_documented_one() {
        let bytes = sample(2).encode().unwrap();
        assert_eq!(bytes.len(), BLOCK_SIZE);
        assert_eq!(bytes[..8], *b"WEIRAGGR");
        assert_eq!(bytes[8..16], [2, 0, 0, 0, 160, 0, 0, 0]);
        assert_eq!(bytes[20..24], [2, 0, 0, 0]);
        assert_eq!(bytes[24..40], [7; 16]);
        assert_eq!(bytes[40..48], 6u64.to_le_bytes());
        assert_eq!(bytes[48..64], [8; 16]);
        assert_eq!(bytes[64..72], 1234u64.to_le_bytes());
        assert_eq!(bytes[72..80], 99u64.to_le_bytes());
        assert_eq!(bytes[80..88], 8192u64.to_le_bytes());
        assert_eq!(bytes[88], 2);
        assert_eq!(bytes[89..97], 77u64.to_le_bytes());
        assert_eq!(bytes[105..109], 0xABCDu32.to_le_bytes());
        assert_eq!(bytes[109..144], [0; 35]);
        assert_eq!(
            bytes[144..160],
            [1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0]
        );
    }

    #[test]
    fn each_flipped_bit_and_each_cut_is_noticed() {
        let bytes = sample(3).encode().unwrap();
        for at in 0..HEADER + 3 * INDEX_REF {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(Superblock::decode(&bad).is_err(), "byte {at} bit {bit}");
            }
            assert!(Superblock::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn another_format_is_named() {
        for version in [1, 3] {
            let mut bytes = sample(1).encode().unwrap();
            bytes[8] = version;
            assert_eq!(Superblock::decode(&bytes), Err(Invalid::Damaged));
            bytes[16..20].fill(0);
            let crc = crc32c::crc32c(&bytes[..HEADER + INDEX_REF]);
            bytes[16..20].copy_from_slice(&crc.to_le_bytes());
            let other = Invalid::OtherFormat(version.into());
            assert_eq!(Superblock::decode(&bytes), Err(other));
        }
        assert_eq!(Superblock::decode(&[0; 4096]), Err(Invalid::NotASuperblock));
        assert_eq!(AggregateId([0xAB; 16]).to_string().len(), 36);
    }

    #[test]
    fn slots_alternate() {
        assert_ne!(
            Superblock::slot(Generation(4)),
            Superblock::slot(Generation(5))
        );
    }
}
