//! The payload of a frame of records (byte layout in docs/internals/format.md).
//!
//! Operations come first, followed by their pages in the same order. A frame is therefore written
//! and read in one pass, and a page is copied once on each side. Each frame is complete in itself:
//! it has the position up to which everything has been sent once it is applied, and a transfer may
//! resume from there.

use smallvec::SmallVec;
use weir_base::BLOCK_SIZE;
use weir_volume::{FsError, Position, Receive};

/// Bytes before the operations: position, and length of the operations.
pub(crate) const PREFIX: usize = 21;

const PUT: u8 = 1;
const GONE: u8 = 2;
const DATA: u8 = 3;

/// Returns the bytes of an operation that puts a value of `value` bytes.
pub(crate) const fn put_size(value: usize) -> usize {
    20 + value
}

/// Bytes of an operation that deletes a record.
pub(crate) const GONE_SIZE: usize = 18;

/// Returns the bytes of an operation that changes so many blocks, without the blocks.
pub(crate) const fn data_size(blocks: usize) -> usize {
    26 + 4 * blocks
}

/// Encoder of a payload. Appends operations; the caller appends the pages after all operations.
pub(crate) struct Ops<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
}

impl<'o> Ops<'o> {
    /// Starts a payload at the end of `out`.
    pub(crate) fn begin(out: &'o mut Vec<u8>) -> Ops<'o> {
        let begin = out.len();
        out.extend_from_slice(&[0; PREFIX]);
        Ops { out, begin }
    }

    /// Returns the bytes of the payload so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len() - self.begin
    }

    pub(crate) fn put(&mut self, at: Position, value: &[u8]) {
        self.out.push(PUT);
        self.out.extend_from_slice(&at.0);
        self.out
            .extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.out.extend_from_slice(value);
    }

    pub(crate) fn gone(&mut self, at: Position) {
        self.out.push(GONE);
        self.out.extend_from_slice(&at.0);
    }

    pub(crate) fn data(
        &mut self,
        at: Position,
        puts: u32,
        holes: u32,
        crcs: impl Iterator<Item = u32>,
    ) {
        self.out.push(DATA);
        self.out.extend_from_slice(&at.0);
        self.out.extend_from_slice(&puts.to_le_bytes());
        self.out.extend_from_slice(&holes.to_le_bytes());
        for crc in crcs {
            self.out.extend_from_slice(&crc.to_le_bytes());
        }
    }

    /// Ends the operations. Everything before `position` has been sent once the payload is applied.
    /// The caller appends the pages after this.
    pub(crate) fn end(self, position: Position) {
        let length = (self.len() - PREFIX) as u32;
        if let Some(prefix) = self.out.get_mut(self.begin..self.begin + PREFIX) {
            let (at, of) = prefix.split_at_mut(17);
            at.copy_from_slice(&position.0);
            of.copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// Cause for which a payload was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplyError {
    /// No correct sender sends it.
    Malformed(&'static str),
    /// The volume refuses it.
    Volume(FsError),
}

/// Target of applied operations.
pub(crate) trait Into {
    fn put(&mut self, at: Position, value: &[u8]) -> Result<(), FsError>;
    fn gone(&mut self, at: Position) -> Result<(), FsError>;
    fn data(
        &mut self,
        at: Position,
        puts: u32,
        holes: u32,
        crcs: &[u32],
        pages: &[u8],
    ) -> Result<(), FsError>;
}

impl Into for Receive {
    fn put(&mut self, at: Position, value: &[u8]) -> Result<(), FsError> {
        Receive::put(self, at, value)
    }
    fn gone(&mut self, at: Position) -> Result<(), FsError> {
        Receive::gone(self, at)
    }
    fn data(
        &mut self,
        at: Position,
        puts: u32,
        holes: u32,
        crcs: &[u32],
        pages: &[u8],
    ) -> Result<(), FsError> {
        Receive::data(self, at, puts, holes, crcs, pages)
    }
}

fn split<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], ApplyError> {
    let (head, rest) = bytes
        .split_first_chunk::<N>()
        .ok_or(ApplyError::Malformed("an operation that is cut off"))?;
    *bytes = rest;
    Ok(*head)
}

fn slice<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], ApplyError> {
    let (head, rest) = bytes
        .split_at_checked(length)
        .ok_or(ApplyError::Malformed("an operation that is cut off"))?;
    *bytes = rest;
    Ok(head)
}

/// Applies the operations of a payload to `into`. Returns the position up to which everything has
/// been sent.
pub(crate) fn apply(payload: &[u8], into: &mut impl Into) -> Result<Position, ApplyError> {
    let mut rest = payload;
    let position = Position(split(&mut rest)?);
    let length = u32::from_le_bytes(split(&mut rest)?) as usize;
    let mut ops = slice(&mut rest, length)?;
    let mut pages = rest;
    let refused = |e| match e {
        FsError::Invalid => ApplyError::Malformed("a record that cannot be"),
        FsError::Io => ApplyError::Malformed("a block whose checksum is wrong"),
        e => ApplyError::Volume(e),
    };
    while !ops.is_empty() {
        let [op] = split(&mut ops)?;
        let at = Position(split(&mut ops)?);
        match op {
            PUT => {
                let length = usize::from(u16::from_le_bytes(split(&mut ops)?));
                into.put(at, slice(&mut ops, length)?).map_err(refused)?;
            }
            GONE => into.gone(at).map_err(refused)?,
            DATA => {
                let puts = u32::from_le_bytes(split(&mut ops)?);
                let holes = u32::from_le_bytes(split(&mut ops)?);
                let mut crcs: SmallVec<[u32; 32]> = SmallVec::new();
                for _ in 0..puts.count_ones() {
                    crcs.push(u32::from_le_bytes(split(&mut ops)?));
                }
                let data = slice(&mut pages, crcs.len() * BLOCK_SIZE)?;
                into.data(at, puts, holes, &crcs, data).map_err(refused)?;
            }
            _ => return Err(ApplyError::Malformed("an unknown operation")),
        }
    }
    match pages.is_empty() {
        true => Ok(position),
        false => Err(ApplyError::Malformed("pages that belong to nothing")),
    }
}

/// Change of a payload by a dishonest or faulty sender: see [`forge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// Attributes of an inode are changed.
    Attributes,
    /// The contents of a block are changed, with a matching checksum.
    Contents,
    /// The last operation is omitted.
    Omission,
}

/// Changes a payload so that it is still valid but has other content, for tests. Returns false if
/// there was nothing to change.
pub fn forge(payload: &mut Vec<u8>, how: Forgery) -> bool {
    struct Op {
        kind: u8,
        at: usize,
        end: usize,
        pages: usize,
    }
    let read = |payload: &[u8]| {
        let length = payload.get(17..PREFIX)?.first_chunk::<4>()?;
        let end = PREFIX + u32::from_le_bytes(*length) as usize;
        let (mut at, mut ops) = (PREFIX, Vec::new());
        while at < end {
            let kind = *payload.get(at)?;
            let (size, own) = match kind {
                PUT => {
                    let value = payload.get(at + 18..)?.first_chunk::<2>()?;
                    (put_size(usize::from(u16::from_le_bytes(*value))), 0)
                }
                GONE => (GONE_SIZE, 0),
                _ => {
                    let puts = payload.get(at + 18..)?.first_chunk::<4>()?;
                    let blocks = u32::from_le_bytes(*puts).count_ones() as usize;
                    (data_size(blocks), blocks)
                }
            };
            ops.push(Op {
                kind,
                at,
                end: at + size,
                pages: own,
            });
            at += size;
        }
        Some((ops, end))
    };
    let Some((ops, end)) = read(payload) else {
        return false;
    };
    match how {
        Forgery::Attributes => {
            // After the key, whose ninth byte is the kind of record, and the length come version,
            // kind and mode.
            let inode = |op: &&Op| op.kind == PUT && payload.get(op.at + 9) == Some(&0);
            let mode = ops.iter().find(inode).map(|op| op.at + 22);
            let byte = mode.and_then(|at| payload.get_mut(at));
            byte.map(|byte| *byte ^= 1).is_some()
        }
        Forgery::Contents => {
            let Some(first) = ops.iter().find(|op| op.pages > 0) else {
                return false;
            };
            let sum = first.at + data_size(0);
            let Some(page) = payload.get_mut(end..end + BLOCK_SIZE) else {
                return false;
            };
            page.iter_mut().for_each(|byte| *byte ^= 0x55);
            let crc = crc32c::crc32c(page).to_le_bytes();
            payload
                .get_mut(sum..sum + 4)
                .map(|at| at.copy_from_slice(&crc))
                .is_some()
        }
        Forgery::Omission => {
            let Some(last) = ops.last() else {
                return false;
            };
            let kept = payload.len() - last.pages * BLOCK_SIZE;
            payload.truncate(kept);
            payload.drain(last.at..last.end);
            let length = ((last.at - PREFIX) as u32).to_le_bytes();
            payload
                .get_mut(17..PREFIX)
                .map(|at| at.copy_from_slice(&length))
                .is_some()
        }
    }
}

/// Returns the digest of a transfer after another payload. It depends on all payloads before and on
/// their order.
pub(crate) fn digest(before: u64, payload: &[u8]) -> u64 {
    let sum = u64::from(crc32c::crc32c(payload)) << 32 | payload.len() as u64;
    let mut x = (before ^ sum).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Parses a payload without applying it, for fuzzing. Returns the number of operations.
///
/// # Errors
/// The fault of the payload.
pub fn verify(payload: &[u8]) -> Result<usize, &'static str> {
    struct Count(usize);
    impl Into for Count {
        fn put(&mut self, _: Position, _: &[u8]) -> Result<(), FsError> {
            self.0 += 1;
            Ok(())
        }
        fn gone(&mut self, _: Position) -> Result<(), FsError> {
            self.0 += 1;
            Ok(())
        }
        fn data(
            &mut self,
            _: Position,
            _: u32,
            _: u32,
            _: &[u32],
            _: &[u8],
        ) -> Result<(), FsError> {
            self.0 += 1;
            Ok(())
        }
    }
    let mut count = Count(0);
    match apply(payload, &mut count) {
        Ok(_) => Ok(count.0),
        Err(ApplyError::Malformed(what)) => Err(what),
        Err(ApplyError::Volume(_)) => Err("refused"),
    }
}
