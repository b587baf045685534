//! Plain LZ77 of Xpress (MS-XCA §2.3, §2.4): the codec of compressed messages.
//!
//! Compressed bytes are groups: a word of 32 flags, from the highest bit on, and the items of the
//! flags. 0 is a literal byte, 1 a match: 13 bits of distance and 3 of length in a word of 16 bits.
//! A length that does not fit continues in half a byte, which two matches share, then in a byte, a
//! word and a double word. Flags behind the end are ones.
//!
//! **Decompression** takes untrusted bytes. Its output has exactly the length that the caller
//! gives, or it fails; it never writes more. Each step consumes input or ends, and matches are
//! copied in pieces that double, so its time is linear in both.
//!
//! **Compression** is greedy, with one candidate for each hash of four bytes. A better search would
//! find little more in the format's window of 8 KiB. Steps grow where nothing matches. The table is
//! on the stack, and compression ends as soon as the output is longer than the caller can use.

use weir_auth::wire::{DecodeError, Put, Reader};

/// Farthest that a match may reach back in bytes (MS-XCA §2.3).
const WINDOW: usize = 8192;
/// Shortest match that can be said, in bytes.
const SHORTEST: usize = 3;
/// Bytes that a match begins with here. One of three bytes would save less than a byte.
const HASHED: usize = 4;
/// Bits of a hash. As many places as the window has bytes: 16 KiB.
const BITS: u32 = 13;
/// Positions without a match after which steps grow by one.
const PATIENCE: usize = 16;

/// Largest length that is said in the word of a match itself, in half a byte, and in a byte, less
/// one: what is this or more goes on.
const IN_WORD: usize = 7;
const IN_NIBBLE: usize = 15;
const IN_BYTE: usize = 255;

/// Appends the `size` bytes that `input` decompresses to to `out`. Matches refer to those bytes
/// alone.
///
/// # Errors
/// The result is longer or shorter, or `input` is malformed. Up to `size` meaningless bytes may
/// have been appended then.
pub fn decompress(input: &[u8], size: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    let end = start.checked_add(size).ok_or(DecodeError)?;
    let mut r = Reader::new(input);
    let mut nibble = None;
    while !r.rest().is_empty() {
        let (mut flags, mut left) = (r.u32()?, u32::BITS);
        while left > 0 && !r.rest().is_empty() {
            let literals = flags.leading_zeros().min(left);
            if literals > 0 {
                // The flags behind the end may be zeroes, too.
                let n = (literals as usize).min(r.rest().len());
                if n > end - out.len() {
                    return Err(DecodeError);
                }
                out.put(r.bytes(n)?);
                flags = flags.checked_shl(literals).unwrap_or(0);
                left -= literals;
                continue;
            }
            let (distance, len) = matched(&mut r, &mut nibble)?;
            let len = usize::try_from(len).map_err(|_| DecodeError)?;
            if distance > out.len() - start || len > end - out.len() {
                return Err(DecodeError);
            }
            repeat(out, distance, len);
            flags <<= 1;
            left -= 1;
        }
    }
    match out.len() == end {
        true => Ok(()),
        false => Err(DecodeError),
    }
}

/// Distance and length of a match. `nibble` is the half of a byte that was read and not used.
fn matched(r: &mut Reader<'_>, nibble: &mut Option<u8>) -> Result<(usize, u64), DecodeError> {
    let word = r.u16()?;
    let mut len = u64::from(word) & IN_WORD as u64;
    if len == IN_WORD as u64 {
        let more = match nibble.take() {
            Some(high) => high,
            None => {
                let byte = r.u8()?;
                *nibble = Some(byte >> 4);
                byte & 15
            }
        };
        len += u64::from(more);
        if usize::from(more) == IN_NIBBLE {
            let more = r.u8()?;
            len += u64::from(more);
            if usize::from(more) == IN_BYTE {
                // From here on the whole length, not what the steps before left over.
                let whole = match r.u16()? {
                    0 => u64::from(r.u32()?),
                    whole => u64::from(whole),
                };
                if whole < (IN_WORD + IN_NIBBLE) as u64 {
                    return Err(DecodeError);
                }
                len = whole;
            }
        }
    }
    Ok((usize::from(word >> 3) + 1, len + SHORTEST as u64))
}

/// Appends `len` bytes of what is `distance` bytes before the end, as often as that takes.
fn repeat(out: &mut Vec<u8>, distance: usize, mut len: usize) {
    let from = out.len() - distance;
    while len > 0 {
        let n = len.min(out.len() - from);
        out.extend_from_within(from..from + n);
        len -= n;
    }
}

/// Appends `input`, which is below 4 GiB, compressed to `out` and returns true; or appends nothing
/// and returns false, if it would be more than `most` bytes.
pub fn compress(input: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut places = [0u16; 1 << BITS];
    let mut writer = Writer::new(out);
    // Bytes before `literal` are written.
    let (mut at, mut literal, mut missed) = (0, 0, 0);
    while let Some(bytes) = input
        .get(at..)
        .and_then(|rest| rest.first_chunk::<HASHED>())
    {
        if writer.out.len() - start + (at - literal) > most {
            break;
        }
        // The lower half of a position is enough: what is farther away than the window is of no
        // use, and what was there is compared.
        let place = &mut places[hash(*bytes)];
        let distance = usize::from((at as u16).wrapping_sub(*place));
        *place = at as u16;
        let found = match at.checked_sub(distance) {
            Some(found) if (1..=WINDOW).contains(&distance) => found,
            _ => at,
        };
        if found < at && input[found..].starts_with(bytes) {
            let more = common(&input[found + HASHED..], &input[at + HASHED..]);
            writer.literals(&input[literal..at]);
            writer.matched(distance, HASHED + more);
            at += HASHED + more;
            (literal, missed) = (at, 0);
        } else {
            at += 1 + missed / PATIENCE;
            missed += 1;
        }
    }
    let rest = &input[literal..];
    let fits = writer.out.len() - start + rest.len() <= most;
    if fits {
        writer.literals(rest);
        writer.finish();
    }
    let fits = fits && out.len() - start <= most;
    if !fits {
        out.truncate(start);
    }
    fits
}

fn hash(bytes: [u8; HASHED]) -> usize {
    (u32::from_le_bytes(bytes).wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS)) as usize
}

/// Returns the length of the common prefix; `b` is no longer than `a`.
fn common(a: &[u8], b: &[u8]) -> usize {
    let same = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let whole = 8 * same.take_while(|(a, b)| a == b).count();
    let rest = a[whole..].iter().zip(&b[whole..]);
    whole + rest.take_while(|(a, b)| a == b).count()
}

/// Writes groups of flags and what they stand for.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    flags: u32,
    /// Flags of the group so far, below 32.
    count: u32,
    /// Offset in `out` of the group's flags.
    at: usize,
    /// The byte of whose upper half no use has been made.
    nibble: Option<usize>,
}

impl Writer<'_> {
    fn new(out: &mut Vec<u8>) -> Writer<'_> {
        let at = out.len();
        out.put_u32(0);
        Writer {
            out,
            flags: 0,
            count: 0,
            at,
            nibble: None,
        }
    }

    /// Ends a group that is full.
    fn turn(&mut self) {
        if self.count == u32::BITS {
            self.out.set_u32(self.at, self.flags);
            self.at = self.out.len();
            self.out.put_u32(0);
            (self.flags, self.count) = (0, 0);
        }
    }

    fn literals(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = bytes.len().min((u32::BITS - self.count) as usize);
            let (now, rest) = bytes.split_at(n);
            self.out.put(now);
            self.flags = self.flags.checked_shl(n as u32).unwrap_or(0);
            self.count += n as u32;
            self.turn();
            bytes = rest;
        }
    }

    /// A match of at least [`SHORTEST`] bytes, at most [`WINDOW`] back.
    fn matched(&mut self, distance: usize, len: usize) {
        let word = ((distance - 1) as u16) << 3;
        let whole = len - SHORTEST;
        self.out.put_u16(word | whole.min(IN_WORD) as u16);
        if let Some(more) = whole.checked_sub(IN_WORD) {
            self.nibble(more.min(IN_NIBBLE) as u8);
            if let Some(more) = more.checked_sub(IN_NIBBLE) {
                self.out.put_u8(more.min(IN_BYTE) as u8);
                if more >= IN_BYTE {
                    match u16::try_from(whole) {
                        Ok(whole) => self.out.put_u16(whole),
                        Err(_) => {
                            self.out.put_u16(0);
                            self.out.put_u32(whole as u32);
                        }
                    }
                }
            }
        }
        self.flags = self.flags << 1 | 1;
        self.count += 1;
        self.turn();
    }

    fn nibble(&mut self, value: u8) {
        match self.nibble.take() {
            Some(at) => self.out[at] |= value << 4,
            None => {
                self.nibble = Some(self.out.len());
                self.out.put_u8(value);
            }
        }
    }

    fn finish(self) {
        let free = u32::BITS - self.count;
        let padded = (u64::from(self.flags) << free) | ((1 << free) - 1);
        self.out.set_u32(self.at, padded as u32);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proto::keys::tests::unhex;
    use proptest::prelude::*;
    use weir_base::{Rng, SeededRng};

    fn compressed(input: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        assert!(compress(input, usize::MAX, &mut out));
        out.split_off(6)
    }

    fn decompressed(input: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
        let mut out = b"before".to_vec();
        let done = decompress(input, size, &mut out);
        assert!(out.len() <= 6 + size, "no more than was asked for");
        done.map(|()| out.split_off(6))
    }

    fn comes_back(input: &[u8]) -> usize {
        let packed = compressed(input);
        assert!(decompressed(&packed, input.len()).as_deref() == Ok(input));
        assert!(decompressed(&packed, input.len() + 1).is_err());
        if let Some(less) = input.len().checked_sub(1) {
            assert!(decompressed(&packed, less).is_err());
        }
        packed.len()
    }

    pub(crate) fn random(len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        SeededRng::new(len as u64).fill(&mut out);
        out
    }

    /// Text that repeats itself as logs do.
    pub(crate) fn text(len: usize) -> Vec<u8> {
        let rng = SeededRng::new(7);
        let words = [
            "error", "request", "volume", "a", "of", "snapshot", "\n", "the",
        ];
        let mut out = Vec::new();
        while out.len() < len {
            out.put(words[(rng.next_u64() % 8) as usize].as_bytes());
            out.put_u8(b' ');
        }
        out.truncate(len);
        out
    }

    /// MS-XCA §3.1: both published examples, in both directions.
    #[test]
    fn the_published_examples() {
        let letters = b"abcdefghijklmnopqrstuvwxyz";
        let packed = [&[0x3f, 0, 0, 0][..], letters].concat();
        assert_eq!(compressed(letters), packed);
        assert_eq!(decompressed(&packed, 26).as_deref(), Ok(&letters[..]));
        let repeated = b"abc".repeat(100);
        let packed = unhex("ffffff1f61626317000fff2601");
        assert_eq!(compressed(&repeated), packed);
        assert_eq!(decompressed(&packed, 300), Ok(repeated));
    }

    #[test]
    fn every_kind_of_input_comes_back() {
        assert_eq!(comes_back(b""), 4);
        for len in (0..300).chain([4095, 4096, 8191, 8192, 8193, 65_535, 65_536, 70_000]) {
            for byte in [0, 0xff] {
                let packed = comes_back(&vec![byte; len]);
                assert!(packed < 24, "{len} of one byte in {packed}");
            }
            let packed = comes_back(&random(len));
            assert!(packed <= len + len / 32 * 4 + 8, "{len} in {packed}");
            comes_back(&text(len));
            // Two halves that are the same, near and too far away.
            comes_back(&random(len).repeat(2));
        }
        let packed = comes_back(&text(70_000));
        assert!(packed < 40_000, "{packed}");
    }

    /// A length that takes the double word, and the last one that does not.
    #[test]
    fn matches_of_any_length_come_back() {
        for len in (60..340).chain([65_530, 65_538, 65_539, 65_540, 65_541, 1 << 20]) {
            let input = [
                &b"start"[..],
                &vec![b'x'; len],
                b"middle",
                &[b'y'; 40],
                b"end",
            ];
            comes_back(&input.concat());
        }
    }

    #[test]
    fn what_is_too_long_is_given_up_and_leaves_nothing() {
        let (dense, long) = (random(4096), text(8192));
        let whole = compressed(&long);
        for (input, most, fits) in [
            (&dense, 4095, false),
            (&dense, 0, false),
            (&long, whole.len(), true),
            (&long, whole.len() - 1, false),
        ] {
            let mut out = b"before".to_vec();
            assert_eq!(compress(input, most, &mut out), fits);
            assert_eq!(out.len() > 6, fits);
            assert!(out.starts_with(b"before"));
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for (bytes, size) in [
            // A group that is cut off.
            ("ffffff", 1),
            // A match before anything to match, and one byte too far back.
            ("ffffffff0000", 3),
            ("ffffff7f610800", 4),
            // A match without its word, its half byte, its byte, its word, its double word.
            ("ffffff7f6100", 4),
            ("ffffff7f610700", 40),
            ("ffffff7f6107000f", 40),
            ("ffffff7f6107000fff", 400),
            ("ffffff7f6107000fffff", 400),
            ("ffffff7f6107000fff0000", 400),
            // A long length that would have been a short one.
            ("ffffff7f6107000fff1500", 25),
            // More than is expected, by 4 GiB.
            ("ffffff7f6107000fff0000ffffffff", 1 << 20),
            // Bytes behind the end.
            ("0000000061626364", 3),
        ] {
            assert_eq!(
                decompressed(&unhex(bytes), size),
                Err(DecodeError),
                "{bytes}"
            );
        }
        // Ends that are none.
        assert_eq!(decompressed(&[], 0), Ok(Vec::new()));
        assert_eq!(decompressed(&unhex("ffffffff"), 0), Ok(Vec::new()));
        assert_eq!(decompressed(&unhex("0000000061"), 1), Ok(b"a".to_vec()));
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(
            parts in prop::collection::vec((any::<u8>(), 1usize..20_000, 0u8..4), 0..5),
        ) {
            let mut input = Vec::new();
            for (byte, len, kind) in parts {
                match kind {
                    0 => input.put(&random(len)),
                    1 => input.put(&vec![byte; len]),
                    2 => input.put(&text(len)),
                    _ => input.extend_from_within(..len.min(input.len())),
                }
            }
            comes_back(&input);
        }

        #[test]
        fn any_bytes_stand_for_no_more_than_is_expected(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            ones in any::<bool>(),
            size in 0usize..5000,
        ) {
            let flags: &[u8] = if ones { &[0xff, 0xff, 0xff, 0x0f] } else { &[] };
            let _ = decompressed(&[flags, &bytes].concat(), size);
        }
    }
}
