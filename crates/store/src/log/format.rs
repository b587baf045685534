//! Format of the log on disk: its header block, and the head and body of a batch. All numbers are
//! little-endian; checksums are CRC32C.
//!
//! Log header (blocks 0 and 1 of the device, two copies):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `WEIRLOG\x01` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | block size, 4096 |
//! | 16 | 16 | log id |
//! | 32 | 8 | blocks in the ring |
//! | 40 | 8 | blocks in a segment |
//! | 48 | 4 | checksum of bytes 0..48 |
//! | 52 | 4 | 1: not every block of the ring has been written yet; 0 |
//! | 56 | 4 | checksum of bytes 0..56; without it the ring counts as written |
//!
//! The ring begins at block 2.
//!
//! Batch: a head, a body, zeroes up to the end of the block, payload pages.
//!
//! | offset | bytes | field of the head |
//! |---|---|---|
//! | 0 | 8 | magic `WEIRBTCH` |
//! | 8 | 16 | log id |
//! | 24 | 8 | position of this batch |
//! | 32 | 8 | position where the batch before it ended |
//! | 40 | 8 | LSN of its first record (of the next one, if it has none) |
//! | 48 | 4 | records |
//! | 52 | 4 | payload pages |
//! | 56 | 4 | bytes of head and body |
//! | 60 | 4 | checksum of the body |
//! | 64 | 4 | checksum of bytes 0..64 |
//! | 68 | 4 | zero |
//!
//! The head fits in one sector, so a torn write leaves it old or new, never mixed. The body holds
//! for each record the length of its meta (4), its number of pages (4) and its meta. The checksum
//! (4) of each payload page follows.

use weir_base::{BLOCK_SIZE, BlockAddr, Lsn};

use super::position::{LogId, LogPos};

pub(super) const FORMAT_VERSION: u32 = 1;
/// Blocks before the ring.
pub(super) const FIXED_BLOCKS: u64 = 2;
/// Bytes of a batch's head.
pub(super) const HEAD: usize = 72;
/// Bytes before each record's meta.
pub(super) const RECORD_HEAD: usize = 8;
/// Bytes of a page's checksum in the body.
pub(super) const PAGE_SUM: usize = 4;
/// Maximum number of blocks of head and body: replay reads them in one piece.
pub(super) const MAX_META_BLOCKS: u64 = 66;

const LOG_MAGIC: [u8; 8] = *b"WEIRLOG\x01";
const BATCH_MAGIC: [u8; 8] = *b"WEIRBTCH";

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

/// The geometry of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ring {
    /// Total number of blocks: a multiple of `segment`.
    pub blocks: u64,
    /// Blocks in a segment. No batch crosses a multiple of this, so the first block of every
    /// segment that was reached is the head of a batch.
    pub segment: u64,
}

impl Ring {
    /// Returns the geometry for a device of `length` blocks; `None` if that is too small.
    pub fn for_device(length: u64) -> Option<Ring> {
        let room = length.checked_sub(FIXED_BLOCKS)?;
        // At least four segments: recovery reads two of them in full, so it reads only a part of a
        // large ring. At most 4 MiB, which is more than a batch needs.
        let mut segment = 1024;
        while segment > 8 && segment * 4 > room {
            segment /= 2;
        }
        let blocks = room / segment * segment;
        (blocks >= 4 * segment).then_some(Ring { blocks, segment })
    }

    pub fn addr(&self, pos: LogPos) -> BlockAddr {
        BlockAddr(FIXED_BLOCKS + pos.0 % self.blocks)
    }

    /// Returns the number of blocks from `pos` to the end of its segment; a whole segment at its
    /// start.
    pub fn left_in_segment(&self, pos: LogPos) -> u64 {
        self.segment - pos.0 % self.segment
    }

    /// Returns the first position of the segment after that of `pos`.
    pub fn next_segment(&self, pos: LogPos) -> LogPos {
        LogPos(pos.0 + self.left_in_segment(pos))
    }
}

/// Encodes the log header. `whole`: every block of the ring has been written.
pub(super) fn encode_log_header(id: LogId, ring: Ring, whole: bool) -> [u8; 60] {
    let mut out = [0; 60];
    let fields: [&[u8]; 6] = [
        &LOG_MAGIC,
        &FORMAT_VERSION.to_le_bytes(),
        &(BLOCK_SIZE as u32).to_le_bytes(),
        &id.0,
        &ring.blocks.to_le_bytes(),
        &ring.segment.to_le_bytes(),
    ];
    put(&mut out, &fields);
    let sum = crc32c::crc32c(out.get(..48).unwrap_or_default());
    put(
        out.get_mut(48..).unwrap_or_default(),
        &[&sum.to_le_bytes(), &u32::from(!whole).to_le_bytes()],
    );
    let (covered, sum) = out.split_at_mut(56);
    sum.copy_from_slice(&crc32c::crc32c(covered).to_le_bytes());
    out
}

/// Contents of a log's header block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogHeader {
    /// A log of this build's format. The flag is true if every block of its ring has been written.
    Good(LogId, Ring, bool),
    /// A log of another format version.
    Version(u32),
    /// A damaged header, or no log.
    Bad,
}

pub(super) fn decode_log_header(block: &[u8]) -> LogHeader {
    let parse = || {
        let covered = block.get(..48)?;
        if !covered.starts_with(&LOG_MAGIC) || u32_at(block, 48)? != crc32c::crc32c(covered) {
            return None;
        }
        let version = u32_at(covered, 8)?;
        if version != FORMAT_VERSION {
            return Some(LogHeader::Version(version));
        }
        let id = LogId(*covered.get(16..)?.first_chunk()?);
        let ring = Ring {
            blocks: u64_at(covered, 32)?,
            segment: u64_at(covered, 40)?,
        };
        let sound = u32_at(covered, 12)? as usize == BLOCK_SIZE
            && ring.segment > 0
            && ring.blocks > 0
            && ring.blocks.is_multiple_of(ring.segment);
        let unfinished =
            u32_at(block, 52)? == 1 && u32_at(block, 56)? == crc32c::crc32c(block.get(..56)?);
        sound.then_some(LogHeader::Good(id, ring, !unfinished))
    };
    parse().unwrap_or(LogHeader::Bad)
}

/// The head of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub pos: LogPos,
    pub prev_end: LogPos,
    pub first: Lsn,
    pub records: u32,
    pub pages: u32,
    pub meta_bytes: u32,
    pub body_sum: u32,
}

impl Head {
    pub fn encode(&self, id: LogId) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        let fields: [&[u8]; 9] = [
            &BATCH_MAGIC,
            &id.0,
            &self.pos.0.to_le_bytes(),
            &self.prev_end.0.to_le_bytes(),
            &self.first.0.to_le_bytes(),
            &self.records.to_le_bytes(),
            &self.pages.to_le_bytes(),
            &self.meta_bytes.to_le_bytes(),
            &self.body_sum.to_le_bytes(),
        ];
        put(&mut out, &fields);
        let (covered, rest) = out.split_at_mut(64);
        put(rest, &[&crc32c::crc32c(covered).to_le_bytes()]);
        out
    }

    /// Returns the head at the start of `block`, if it is one of log `id`.
    fn parse(block: &[u8], id: LogId) -> Option<Head> {
        let covered = block.get(..64)?;
        if !covered.starts_with(&BATCH_MAGIC)
            || covered.get(8..24)? != id.0
            || u32_at(block, 64)? != crc32c::crc32c(covered)
        {
            return None;
        }
        let head = Head {
            pos: LogPos(u64_at(covered, 24)?),
            prev_end: LogPos(u64_at(covered, 32)?),
            first: Lsn(u64_at(covered, 40)?),
            records: u32_at(covered, 48)?,
            pages: u32_at(covered, 52)?,
            meta_bytes: u32_at(covered, 56)?,
            body_sum: u32_at(covered, 60)?,
        };
        let sound = head.meta_bytes as usize >= HEAD && head.meta_blocks() <= MAX_META_BLOCKS;
        sound.then_some(head)
    }

    /// Like [`Head::parse`], if the head is also in the slot of its position, and describes a batch
    /// that fits there.
    pub fn decode(block: &[u8], id: LogId, ring: Ring, slot: BlockAddr) -> Option<Head> {
        Head::parse(block, id).filter(|head| {
            ring.addr(head.pos) == slot && head.blocks() <= ring.left_in_segment(head.pos)
        })
    }

    /// Returns the number of blocks of head and body.
    pub fn meta_blocks(&self) -> u64 {
        u64::from(self.meta_bytes).div_ceil(BLOCK_SIZE as u64)
    }

    /// Returns the number of blocks of the whole batch.
    pub fn blocks(&self) -> u64 {
        self.meta_blocks() + u64::from(self.pages)
    }

    /// Returns the position at which the batch ends.
    pub fn end(&self) -> LogPos {
        LogPos(self.pos.0 + self.blocks())
    }
}

/// One record as described by the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BodyRecord {
    pub meta: Vec<u8>,
    pub pages: u32,
}

/// Splits a body into records and page checksums. Returns `None` if it does not match `head`.
pub(super) fn decode_body(head: &Head, body: &[u8]) -> Option<(Vec<BodyRecord>, Vec<u32>)> {
    let mut rest = body;
    let mut records = Vec::new();
    let mut pages = 0u32;
    for _ in 0..head.records {
        let len = u32_at(rest, 0)? as usize;
        let count = u32_at(rest, 4)?;
        let (meta, after) = rest.get(RECORD_HEAD..)?.split_at_checked(len)?;
        pages = pages.checked_add(count)?;
        records.push(BodyRecord {
            meta: meta.to_vec(),
            pages: count,
        });
        rest = after;
    }
    let sums: Vec<u32> = rest
        .chunks_exact(PAGE_SUM)
        .filter_map(|s| u32_at(s, 0))
        .collect();
    let exact = pages == head.pages && rest.len() == pages as usize * PAGE_SUM;
    exact.then_some((records, sums))
}

/// Head and body of a batch, parsed without regard to its place: for tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedBatch {
    /// Position of the batch in the log.
    pub pos: LogPos,
    /// Position at which the previous batch ended.
    pub prev_end: LogPos,
    /// The LSN of its first record.
    pub first: Lsn,
    /// Meta and number of pages of each record.
    pub records: Vec<(Vec<u8>, u32)>,
    /// Checksums of the payload pages that follow.
    pub sums: Vec<u32>,
}

/// Parses the batch of log `id` whose first blocks are `bytes`. Returns `None` if its head or body
/// is damaged.
pub fn parse_batch(bytes: &[u8], id: LogId) -> Option<ParsedBatch> {
    let head = Head::parse(bytes, id)?;
    let body = bytes.get(HEAD..head.meta_bytes as usize)?;
    if crc32c::crc32c(body) != head.body_sum {
        return None;
    }
    let (records, sums) = decode_body(&head, body)?;
    Some(ParsedBatch {
        pos: head.pos,
        prev_end: head.prev_end,
        first: head.first,
        records: records.into_iter().map(|r| (r.meta, r.pages)).collect(),
        sums,
    })
}

/// Copies `fields` one after another to the start of `out`.
fn put(out: &mut [u8], fields: &[&[u8]]) {
    let bytes = fields.iter().flat_map(|f| f.iter());
    for (to, from) in out.iter_mut().zip(bytes) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring {
        blocks: 64,
        segment: 16,
    };

    fn head() -> Head {
        Head {
            pos: LogPos(64 + 5),
            prev_end: LogPos(64 + 5),
            first: Lsn(9),
            records: 2,
            pages: 1,
            meta_bytes: (HEAD + 2 * RECORD_HEAD + 3 + PAGE_SUM) as u32,
            body_sum: 77,
        }
    }

    #[test]
    fn log_header_round_trips_and_notices_damage() {
        for whole in [false, true] {
            let good = encode_log_header(LogId([3; 16]), RING, whole);
            let header = LogHeader::Good(LogId([3; 16]), RING, whole);
            assert_eq!(decode_log_header(&good), header);
            for bit in 0..good.len() * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                // The fields behind the first checksum only affect speed.
                let want = match bit / 8 {
                    0..52 => LogHeader::Bad,
                    _ => LogHeader::Good(LogId([3; 16]), RING, true),
                };
                assert_eq!(decode_log_header(&bad), want);
            }
            let mut newer = good;
            newer[8] = 2;
            let sum = crc32c::crc32c(&newer[..48]);
            newer[48..52].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(decode_log_header(&newer), LogHeader::Version(2));
        }
        assert_eq!(decode_log_header(&[]), LogHeader::Bad);
    }

    #[test]
    fn head_round_trips_only_in_its_own_log_and_slot() {
        let id = LogId([7; 16]);
        let bytes = head().encode(id);
        let slot = RING.addr(head().pos);
        assert_eq!(slot, BlockAddr(7));
        assert_eq!(Head::decode(&bytes, id, RING, slot), Some(head()));
        assert_eq!(Head::decode(&bytes, LogId([8; 16]), RING, slot), None);
        assert_eq!(Head::decode(&bytes, id, RING, BlockAddr(8)), None);
        for bit in 0..68 * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&bad, id, RING, slot), None);
        }
        let too_long = Head {
            pages: 11,
            ..head()
        };
        assert_eq!(Head::decode(&too_long.encode(id), id, RING, slot), None);
    }

    #[test]
    fn body_must_add_up() {
        let mut body = Vec::new();
        for (meta, pages) in [(&b"abc"[..], 0u32), (b"", 1)] {
            body.extend((meta.len() as u32).to_le_bytes());
            body.extend(pages.to_le_bytes());
            body.extend(meta);
        }
        body.extend(5u32.to_le_bytes());
        let (records, sums) = decode_body(&head(), &body).unwrap();
        assert_eq!(
            records[0],
            BodyRecord {
                meta: b"abc".to_vec(),
                pages: 0
            }
        );
        assert_eq!(
            records[1],
            BodyRecord {
                meta: vec![],
                pages: 1
            }
        );
        assert_eq!(sums, [5]);
        for cut in 0..body.len() {
            assert!(decode_body(&head(), &body[..cut]).is_none());
        }
        body.push(0);
        assert!(decode_body(&head(), &body).is_none());
        let more = Head {
            records: u32::MAX,
            ..head()
        };
        assert!(decode_body(&more, &body).is_none());
    }

    #[test]
    fn a_batch_is_taken_apart_without_its_place() {
        let id = LogId([9; 16]);
        let mut body = 3u32.to_le_bytes().to_vec();
        body.extend(0u32.to_le_bytes());
        body.extend(b"abc");
        let head = Head {
            records: 1,
            pages: 0,
            meta_bytes: (HEAD + body.len()) as u32,
            body_sum: crc32c::crc32c(&body),
            ..head()
        };
        let mut bytes = head.encode(id).to_vec();
        bytes.extend(&body);
        bytes.resize(BLOCK_SIZE, 0);
        let parsed = parse_batch(&bytes, id).unwrap();
        assert_eq!(parsed.records, [(b"abc".to_vec(), 0)]);
        assert_eq!((parsed.pos, parsed.first), (head.pos, Lsn(9)));
        bytes[HEAD + 9] ^= 1;
        assert_eq!(parse_batch(&bytes, id), None);
        assert_eq!(parse_batch(&bytes[..HEAD + 2], id), None);
    }

    #[test]
    fn geometry_fits_the_device() {
        assert_eq!(Ring::for_device(33), None);
        assert_eq!(
            Ring::for_device(34),
            Some(Ring {
                blocks: 32,
                segment: 8
            })
        );
        assert_eq!(
            Ring::for_device(258),
            Some(Ring {
                blocks: 256,
                segment: 64
            })
        );
        assert_eq!(
            Ring::for_device(65536),
            Some(Ring {
                blocks: 64512,
                segment: 1024
            })
        );
        assert_eq!(RING.next_segment(LogPos(16)), LogPos(32));
        assert_eq!(RING.next_segment(LogPos(31)), LogPos(32));
    }
}
