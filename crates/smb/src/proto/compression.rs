//! Compressed messages (MS-SMB2 §2.2.42, §3.1.4.4, §3.1.5.3, §3.3.5.2.1.2): a message, or a chain,
//! behind a header of its own.
//!
//! The header comes in two forms. *Unchained*: the message's beginning as it is, and the rest in
//! one algorithm. *Chained*, if both sides have negotiated it: any number of payloads, each with an
//! algorithm of its own: none, LZ77, or Pattern_V1, which repeats one byte. A signature covers the
//! message before compression. Encryption comes after compression.
//!
//! **Received.** A client may compress any message once compression is negotiated. The decompressed
//! size is in the header, and is checked before memory is allocated. Its bound is that of a message
//! that is not compressed, which is small on a connection without a user.
//!
//! **Sent.** The response to a READ that asks for it is compressed, from [`LEAST`] bytes of data
//! on, and only if it becomes shorter by a sixteenth. Runs of one byte at both ends are found in
//! place. Of the rest one block is tried, and only if it compresses well, the rest is gathered and
//! compressed. So incompressible data cost a few microseconds, and are sent from the cache's pages
//! as always.

use crate::proto::dialect::MAX_TRANSFER;
use crate::proto::lz77;
use weir_auth::wire::{DecodeError, Put, Reader};
use weir_base::limits::net::MAX_RECORD;

/// First bytes of a compressed message.
pub const COMPRESSED: [u8; 4] = [0xfc, b'S', b'M', b'B'];
/// Bytes of the header of an unchained one, and of a chained one with that of its first payload
/// (§2.2.42.1, §2.2.42.2).
pub const HEADER: usize = 16;
/// Bytes of a chained one's own header.
const CHAIN: usize = 8;
/// Bytes in front of a payload of a chain (§2.2.42.2.1), and of Pattern_V1's (§2.2.42.2.2).
const PAYLOAD: usize = 8;
const PATTERN: usize = 8;
/// Largest part of a message in bytes that may be compressed (§3.3.5.2.1.2).
const LARGEST: usize = 256 + HEADER + MAX_TRANSFER as usize;
const _: () = assert!(LARGEST <= MAX_RECORD);

/// Numbers of the algorithms (§2.2.3.1.3).
mod algorithm {
    pub const NONE: u16 = 0;
    pub const LZ77: u16 = 2;
    pub const PATTERN_V1: u16 = 4;
}
/// SMB2_COMPRESSION_FLAG_CHAINED (§2.2.42), and SMB2_COMPRESSION_CAPABILITIES_FLAG_CHAINED
/// (§2.2.3.1.3).
const CHAINED: u16 = 1;

/// Bytes of a READ's data from which they are compressed.
pub const LEAST: usize = 4096;
/// Bytes of data that are tried.
const SAMPLE: usize = 4096;
/// Least saving, as the divisor of a length: a sixteenth of a message, an eighth of the sample.
const SAVED: usize = 16;
const SAVED_OF_SAMPLE: usize = 8;
/// Shortest run that is a pattern, and shortest rest that is compressed, in bytes (§3.1.4.4.1,
/// §3.1.4.4).
const LEAST_RUN: usize = 64;
const LEAST_REST: usize = 1024;

/// Compression algorithms of a connection (§3.3.1.7, Connection.CompressionIds,
/// Connection.SupportsChainedCompression).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// LZ77 was offered.
    pub lz77: bool,
    /// Pattern_V1 was. Never without `chained`: there is no other form for it.
    pub pattern: bool,
    /// Messages may be chains of payloads.
    pub chained: bool,
}

impl Algorithms {
    /// Returns the algorithms that a client's SMB2_COMPRESSION_CAPABILITIES has in common with this
    /// server (§2.2.3.1.3).
    ///
    /// # Errors
    /// It is malformed, or offers nothing.
    pub fn choose(context: &[u8]) -> Result<Algorithms, DecodeError> {
        let mut r = Reader::new(context);
        let count = usize::from(r.u16()?);
        r.u16()?;
        let chained = r.u32()? & u32::from(CHAINED) != 0;
        let (offered, _) = r.bytes(2 * count)?.as_chunks::<2>();
        let offers = |id: u16| offered.contains(&id.to_le_bytes());
        match count {
            0 => Err(DecodeError),
            _ => Ok(Algorithms {
                lz77: offers(algorithm::LZ77),
                pattern: chained && offers(algorithm::PATTERN_V1),
                chained,
            }),
        }
    }

    /// Returns true if an algorithm is known to both sides.
    pub fn any(self) -> bool {
        self.lz77 || self.pattern
    }

    /// The context of the response: what both have, or NONE (§3.3.5.4).
    pub fn context(self) -> Vec<u8> {
        let mut ids = Vec::with_capacity(2);
        if self.lz77 {
            ids.push(algorithm::LZ77);
        }
        if self.pattern {
            ids.push(algorithm::PATTERN_V1);
        }
        if ids.is_empty() {
            ids.push(algorithm::NONE);
        }
        let mut out = Vec::with_capacity(12);
        out.put_u16(ids.len() as u16);
        out.put_u16(0);
        out.put_u32(u32::from(self.chained && self.any()));
        ids.iter().for_each(|id| out.put_u16(*id));
        out
    }
}

/// Decompresses a message to `most` bytes at most.
///
/// # Errors
/// It is malformed, longer, or compressed with what was not negotiated: the connection is to be
/// closed (§3.3.5.2.1.2).
pub fn decompress(message: &[u8], with: Algorithms, most: usize) -> Result<Vec<u8>, DecodeError> {
    let mut r = Reader::new(message);
    if r.array()? != COMPRESSED {
        return Err(DecodeError);
    }
    let size = r.u32()? as usize;
    if size > LARGEST.min(most) {
        return Err(DecodeError);
    }
    let payloads = r;
    let (algorithm, flags, offset) = (r.u16()?, r.u16()?, r.u32()? as usize);
    match flags {
        0 if algorithm == algorithm::LZ77 && with.lz77 => {
            let front = r.bytes(offset)?;
            if front.len() > most - size {
                return Err(DecodeError);
            }
            let mut out = Vec::with_capacity(front.len() + size);
            out.put(front);
            lz77::decompress(r.rest(), size, &mut out)?;
            Ok(out)
        }
        CHAINED if with.chained => chain(payloads, with, size),
        _ => Err(DecodeError),
    }
}

/// Decompresses the payloads of a chain to exactly `size` bytes.
fn chain(mut r: Reader<'_>, with: Algorithms, size: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(size);
    while !r.rest().is_empty() {
        // Flags say which is the first, and that is known.
        let (algorithm, _flags, len) = (r.u16()?, r.u16()?, r.u32()? as usize);
        let mut payload = Reader::new(r.bytes(len)?);
        let room = size - out.len();
        let fits = |n: usize| if n <= room { Ok(n) } else { Err(DecodeError) };
        match algorithm {
            algorithm::NONE => {
                fits(len)?;
                out.put(payload.rest());
            }
            algorithm::PATTERN_V1 if with.pattern => {
                let (byte, _) = (payload.u8()?, payload.array::<3>()?);
                let n = fits(payload.u32()? as usize)?;
                if !payload.rest().is_empty() {
                    return Err(DecodeError);
                }
                out.resize(out.len() + n, byte);
            }
            algorithm::LZ77 if with.lz77 => {
                let n = fits(payload.u32()? as usize)?;
                lz77::decompress(payload.rest(), n, &mut out)?;
            }
            _ => return Err(DecodeError),
        }
    }
    match out.len() == size {
        true => Ok(out),
        false => Err(DecodeError),
    }
}

/// A byte, so many times.
#[derive(Clone, Copy, Default)]
struct Run {
    byte: u8,
    n: usize,
}

impl Run {
    /// The run that the first of `slices` begins with, or the last one ends with.
    fn from_slices<'a>(slices: impl Iterator<Item = &'a [u8]>, backwards: bool) -> Run {
        let mut run = Run::default();
        for slice in slices.filter(|slice| !slice.is_empty()) {
            if run.n == 0 {
                run.byte = slice[if backwards { slice.len() - 1 } else { 0 }];
            }
            let same = match backwards {
                false => leading(slice.as_chunks().0, slice, run.byte),
                true => trailing(slice.as_rchunks().1, slice, run.byte),
            };
            run.n += same;
            if same < slice.len() {
                break;
            }
        }
        match run.n < LEAST_RUN {
            true => Run::default(),
            false => run,
        }
    }

    /// Appends it as a payload.
    fn put(self, out: &mut Vec<u8>) {
        if self.n > 0 {
            out.put_u16(algorithm::PATTERN_V1);
            out.put_u16(0);
            out.put_u32(PATTERN as u32);
            out.put_u32(u32::from(self.byte));
            out.put_u32(self.n as u32);
        }
    }

    /// Bytes that it takes so.
    fn len(self) -> usize {
        if self.n > 0 { PAYLOAD + PATTERN } else { 0 }
    }
}

/// Bytes that are compared at a time.
const STEP: usize = 32;

/// Returns the number of bytes equal to `byte` at the beginning of `slice`. `steps` is the slice
/// cut from its beginning.
fn leading(steps: &[[u8; STEP]], slice: &[u8], byte: u8) -> usize {
    let whole = STEP * steps.iter().take_while(|s| **s == [byte; STEP]).count();
    let rest = slice[whole..].iter();
    whole + rest.take_while(|b| **b == byte).count()
}

/// Returns the number of bytes equal to `byte` at the end of `slice`. `steps` is the slice cut from
/// its end.
fn trailing(steps: &[[u8; STEP]], slice: &[u8], byte: u8) -> usize {
    let same = steps.iter().rev().take_while(|s| **s == [byte; STEP]);
    let whole = STEP * same.count();
    let rest = slice[..slice.len() - whole].iter().rev();
    whole + rest.take_while(|b| **b == byte).count()
}

/// Appends the message of `head` and `data` behind it to `out`, compressed, if that makes it
/// shorter by a sixteenth; otherwise nothing, and returns false. `head` is not compressed.
pub fn compress(out: &mut Vec<u8>, head: &[u8], data: &[&[u8]], with: Algorithms) -> bool {
    let start = out.len();
    let len: usize = data.iter().map(|slice| slice.len()).sum();
    let plain = head.len() + len;
    if len < LEAST || plain > LARGEST || !with.any() {
        return false;
    }
    let most = plain - plain / SAVED;
    let compressed = match with.chained {
        false => unchained(out, head, data, (len, most)),
        true => chained(out, head, data, (len, most), with),
    };
    if !compressed {
        out.truncate(start);
    }
    compressed
}

fn unchained(out: &mut Vec<u8>, head: &[u8], data: &[&[u8]], (len, most): (usize, usize)) -> bool {
    let Some(most) = most.checked_sub(HEADER + head.len()) else {
        return false;
    };
    if !compresses(out, data, 0, len) {
        return false;
    }
    out.put(&COMPRESSED);
    out.put_u32(len as u32);
    out.put_u16(algorithm::LZ77);
    out.put_u16(0);
    out.put_u32(head.len() as u32);
    out.put(head);
    lz77::compress(&gathered(data, 0, len), most, out)
}

/// The chain of §3.1.4.4: what is not compressed, a run, what is left, another run.
fn chained(
    out: &mut Vec<u8>,
    head: &[u8],
    data: &[&[u8]],
    (len, most): (usize, usize),
    with: Algorithms,
) -> bool {
    let runs = |backwards: bool| match (with.pattern, backwards) {
        (false, _) => Run::default(),
        (true, false) => Run::from_slices(data.iter().copied(), false),
        (true, true) => Run::from_slices(data.iter().rev().copied(), true),
    };
    let front = runs(false);
    let back = if front.n < len {
        runs(true)
    } else {
        Run::default()
    };
    let rest = len - front.n - back.n;
    let around = CHAIN + PAYLOAD + head.len() + front.len() + back.len();
    // With LZ77, and as it is.
    let packs = with.lz77 && rest > LEAST_REST && compresses(out, data, front.n, rest);
    let plain = if rest > 0 { PAYLOAD + rest } else { 0 };
    if !packs && around + plain > most {
        return false;
    }
    out.put(&COMPRESSED);
    out.put_u32((head.len() + len) as u32);
    out.put_u16(algorithm::NONE);
    out.put_u16(CHAINED);
    out.put_u32(head.len() as u32);
    out.put(head);
    front.put(out);
    if rest > 0 {
        let rest = gathered(data, front.n, rest);
        let packed = packs
            && most
                .checked_sub(around + PAYLOAD + 4)
                .is_some_and(|most| put_packed(out, &rest, most));
        if !packed {
            if around + plain > most {
                return false;
            }
            out.put_u16(algorithm::NONE);
            out.put_u16(0);
            out.put_u32(rest.len() as u32);
            out.put(&rest);
        }
    }
    back.put(out);
    true
}

/// Appends a payload of LZ77, if that has `most` bytes at most; otherwise nothing.
fn put_packed(out: &mut Vec<u8>, data: &[u8], most: usize) -> bool {
    let start = out.len();
    out.put_u16(algorithm::LZ77);
    out.put_u16(0);
    out.put_u32(0);
    out.put_u32(data.len() as u32);
    let packed = lz77::compress(data, most, out);
    match packed {
        true => {
            let len = out.len() - start - PAYLOAD;
            out.set_u32(start + 4, len as u32);
        }
        false => out.truncate(start),
    }
    packed
}

/// Returns true if the block in the middle of a range compresses well. Leaves `out` as it was.
fn compresses(out: &mut Vec<u8>, data: &[&[u8]], from: usize, len: usize) -> bool {
    let mut at = from + len / 2;
    for slice in data {
        if let Some(before) = at.checked_sub(slice.len()) {
            at = before;
            continue;
        }
        // Of the slice alone, which is a page or more but at the ends of what was read.
        let first = at.min(slice.len().saturating_sub(SAMPLE));
        let sample = &slice[first..slice.len().min(first + SAMPLE)];
        let start = out.len();
        let fits = lz77::compress(sample, sample.len() - sample.len() / SAVED_OF_SAMPLE, out);
        out.truncate(start);
        return fits;
    }
    false
}

/// A range of slices as one.
fn gathered(data: &[&[u8]], from: usize, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    let mut skip = from;
    for slice in data {
        let Some(part) = slice.get(skip..) else {
            skip -= slice.len();
            continue;
        };
        skip = 0;
        let part = &part[..part.len().min(len - out.len())];
        out.put(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::keys::tests::unhex;
    use crate::proto::lz77::tests::random;
    use crate::proto::lz77::tests::text;
    use proptest::prelude::*;

    const LZ77: Algorithms = Algorithms {
        lz77: true,
        pattern: false,
        chained: false,
    };
    const ALL: Algorithms = Algorithms {
        lz77: true,
        pattern: true,
        chained: true,
    };
    const PATTERNS: Algorithms = Algorithms { lz77: false, ..ALL };
    const MOST: usize = MAX_RECORD;

    fn context(chained: u32, ids: &[u16]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u16(ids.len() as u16);
        out.put_u16(0);
        out.put_u32(chained);
        ids.iter().for_each(|id| out.put_u16(*id));
        out
    }

    #[test]
    fn what_both_have_is_answered() {
        for (chained, offered, answered) in [
            // Windows, and Linux.
            (1, &[4u16, 2, 3, 1][..], (1, &[2u16, 4][..])),
            (0, &[2, 3, 1], (0, &[2])),
            (0, &[4, 2], (0, &[2])),
            (1, &[4], (1, &[4])),
            (1, &[2, 5], (1, &[2])),
            (0, &[4], (0, &[0])),
            (1, &[3, 1, 5], (0, &[0])),
        ] {
            let chosen = Algorithms::choose(&context(chained, offered)).unwrap();
            assert_eq!(chosen.context(), context(answered.0, answered.1));
            assert_eq!(chosen.any(), answered.1 != [0]);
        }
        let whole = context(1, &[2, 4]);
        for malformed in [
            &context(0, &[])[..],
            &whole[..whole.len() - 1],
            &whole[..7],
            &[],
        ] {
            assert_eq!(Algorithms::choose(malformed), Err(DecodeError));
        }
    }

    /// The message, compressed with its data cut in slices, and how many bytes that saves.
    fn saved(data: &[u8], slice: usize, with: Algorithms) -> usize {
        let head = [7; 80];
        let slices: Vec<&[u8]> = data.chunks(slice).collect();
        let mut out = b"mark".to_vec();
        if !compress(&mut out, &head, &slices, with) {
            assert_eq!(out, b"mark");
            return 0;
        }
        let plain = [&head[..], data].concat();
        let packed = &out[4..];
        assert!(decompress(packed, with, MOST).as_deref() == Ok(&plain[..]));
        assert!(decompress(packed, with, plain.len() - 1).is_err());
        assert!(packed.len() <= plain.len() - plain.len() / SAVED);
        plain.len() - packed.len()
    }

    #[test]
    fn what_compresses_is_shorter_and_comes_back() {
        let (none, some) = (random(20_000), text(20_000));
        let zeroes = vec![0; 20_000];
        let mixed = [&zeroes[..9000], &none, &[b'x'; 8000]].concat();
        let ends = [&zeroes[..100], &some, &[0xff; 100]].concat();
        for slice in [1, 97, 4096, 50_000] {
            for with in [LZ77, ALL] {
                assert!(saved(&some, slice, with) > 10_000 || slice < 4096);
                assert!(saved(&zeroes, slice, with) > 19_900 || (slice < 4096 && with == LZ77));
                assert_eq!(saved(&none, slice, with), 0);
                assert_eq!(saved(&some[..LEAST - 1], slice, with), 0);
            }
            assert!(saved(&zeroes, slice, PATTERNS) > 19_900);
            assert_eq!(saved(&some, slice, PATTERNS), 0);
            // The runs at the ends, whatever is between.
            for with in [ALL, PATTERNS] {
                let less = saved(&mixed, slice, with);
                assert!((16_900..17_000).contains(&less), "{less}");
            }
            assert_eq!(saved(&mixed, slice, LZ77), 0, "the middle was tried");
            assert!(saved(&ends, slice, ALL) > 10_000 || slice < 4096);
            // A run that is too short.
            let short = [&[0; 63][..], &none, &[0; 64]].concat();
            assert_eq!(saved(&short, slice, ALL), 0);
        }
        let chained = Algorithms {
            pattern: false,
            ..ALL
        };
        assert!(saved(&some, 4096, chained) > 10_000);
        assert!(saved(&text(1 << 20), 4096, ALL) > 500_000);
        assert_eq!(saved(&text(LARGEST), 4096, ALL), 0, "clients refuse more");
    }

    /// A message as Windows sends it: a payload for the header, a pattern, LZ77, a pattern.
    #[test]
    fn chains_are_put_together() {
        let mut bytes = unhex("fc534d42");
        bytes.put_u32(6 + 70 + 300 + 64);
        bytes.put(&unhex("0000010006000000"));
        bytes.put(b"header");
        bytes.put(&unhex("040000000800000041ffffff46000000"));
        bytes.put(&unhex("02000000110000002c010000ffffff1f61626317000fff2601"));
        bytes.put(&unhex("04000000080000000000000040000000"));
        let expected = [&b"header"[..], &[0x41; 70], &b"abc".repeat(100), &[0; 64]].concat();
        assert_eq!(decompress(&bytes, ALL, MOST), Ok(expected));
        for with in [
            PATTERNS,
            LZ77,
            Algorithms {
                pattern: false,
                ..ALL
            },
        ] {
            assert_eq!(decompress(&bytes, with, MOST), Err(DecodeError));
        }
        for cut in 0..bytes.len() {
            assert_eq!(
                decompress(&bytes[..cut], ALL, MOST),
                Err(DecodeError),
                "{cut}"
            );
        }
        // One byte more or less than is said in front.
        for off in [1u8, 255] {
            let mut wrong = bytes.clone();
            wrong[4] = wrong[4].wrapping_add(off);
            assert_eq!(decompress(&wrong, ALL, MOST), Err(DecodeError));
        }
    }

    #[test]
    fn what_is_malformed_or_not_negotiated_is_refused() {
        let unchained = |size: u32, id: u16, flags: u16, offset: u32, rest: &[u8]| {
            let mut out = COMPRESSED.to_vec();
            out.put_u32(size);
            out.put_u16(id);
            out.put_u16(flags);
            out.put_u32(offset);
            out.put(rest);
            out
        };
        let abc = unhex("ffffff1f61626317000fff2601");
        let good = [b"head", &abc[..]].concat();
        let whole = unchained(300, 2, 0, 4, &good);
        assert_eq!(decompress(&whole, LZ77, MOST).unwrap().len(), 304);
        assert_eq!(decompress(&whole, ALL, 304).unwrap().len(), 304);
        for (bytes, with) in [
            (unchained(300, 2, 0, 4, &good), PATTERNS),
            (unchained(300, 2, 0, 4, &good), Algorithms::default()),
            (unchained(301, 2, 0, 4, &good), LZ77),
            (unchained(299, 2, 0, 4, &good), LZ77),
            (unchained(300, 2, 0, 5, &good), LZ77),
            (unchained(300, 2, 0, u32::MAX, &good), LZ77),
            (unchained(300, 0, 0, 4, &good), ALL),
            (unchained(300, 3, 0, 4, &good), ALL),
            (unchained(300, 4, 0, 4, &good), ALL),
            (unchained(300, 2, 2, 4, &good), ALL),
            (unchained(u32::MAX, 2, 0, 4, &good), ALL),
            (unchained(LARGEST as u32 + 1, 2, 0, 0, &good), ALL),
            // A chain: not negotiated; of nothing; of a pattern longer than all, or than itself; of
            // an unknown algorithm.
            (unchained(4, 0, 1, 4, b"head"), LZ77),
            (unchained(5, 0, 1, 4, b"head"), ALL),
            (unchained(3, 0, 1, 4, b"head"), ALL),
            (unchained(4, 4, 1, 8, &[0, 0, 0, 0, 5, 0, 0, 0]), ALL),
            (
                unchained(4, 4, 1, 8, &[0, 0, 0, 0, 255, 255, 255, 255]),
                ALL,
            ),
            (unchained(4, 4, 1, 9, &[0, 0, 0, 0, 4, 0, 0, 0, 0]), ALL),
            (unchained(4, 4, 1, 7, &[0, 0, 0, 0, 4, 0, 0]), ALL),
            (unchained(4, 1, 1, 4, b"head"), ALL),
            (unchained(4, 2, 1, 2, &[4, 0]), ALL),
        ] {
            assert_eq!(
                decompress(&bytes, with, MOST),
                Err(DecodeError),
                "{bytes:?}"
            );
        }
        assert_eq!(decompress(&whole, LZ77, 303), Err(DecodeError));
        assert_eq!(decompress(&whole, LZ77, 299), Err(DecodeError));
        let chain = unchained(4, 0, 1, 4, b"head");
        assert_eq!(decompress(&chain, ALL, 4).as_deref(), Ok(&b"head"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(
            size in 0u32..3000,
            algorithm in 0u16..6,
            flags in 0u16..3,
            rest in prop::collection::vec(any::<u8>(), 0..200),
            most in 0usize..2000,
        ) {
            let mut bytes = COMPRESSED.to_vec();
            bytes.put_u32(size);
            bytes.put_u16(algorithm);
            bytes.put_u16(flags);
            bytes.put(&rest);
            for with in [LZ77, ALL, PATTERNS] {
                if let Ok(plain) = decompress(&bytes, with, most) {
                    prop_assert!(plain.len() <= most);
                }
            }
            let _ = Algorithms::choose(&rest);
        }

        #[test]
        fn data_of_any_kind_come_back(
            parts in prop::collection::vec((0usize..9000, any::<u8>(), 0u8..3), 0..5),
            slice in 1usize..9000,
        ) {
            let mut data = Vec::new();
            for (len, byte, kind) in parts {
                match kind {
                    0 => data.put(&random(len)),
                    1 => data.put(&vec![byte; len]),
                    _ => data.put(&text(len)),
                }
            }
            for with in [LZ77, ALL, PATTERNS] {
                saved(&data, slice, with);
            }
        }
    }
}
