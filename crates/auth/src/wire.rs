//! Encoding of little-endian integers, UTF-16 names and offsets within a message, with checks of
//! bounds.
//!
//! Every decoder is total: any bytes give a value or [`DecodeError`]. A length is
//! compared with the bytes that have arrived before it is used, and allocations are at most a small
//! multiple of those bytes.

use weir_base::Time;
use weir_vfs::{Failure, Stop};

/// Error of a decoder: the bytes do not have the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

impl<F: Failure + From<DecodeError>> From<DecodeError> for Stop<F> {
    fn from(malformed: DecodeError) -> Stop<F> {
        Stop::Failed(malformed.into())
    }
}

/// A position in bytes that have arrived.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

macro_rules! integers {
    ($($name:ident: $type:ty,)*) => {
        $(
            #[doc = concat!("A little-endian `", stringify!($type), "`.")]
            ///
            /// # Errors
            /// It is not there.
            #[inline]
            pub fn $name(&mut self) -> Result<$type, DecodeError> {
                Ok(<$type>::from_le_bytes(self.array()?))
            }
        )*
    };
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns the bytes that have not been read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(DecodeError)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError)?;
        self.rest = rest;
        Ok(*taken)
    }

    integers! {
        u8: u8,
        u16: u16,
        u32: u32,
        u64: u64,
    }
}

/// The part of a message at `offset`, of `len` bytes; of no bytes wherever it is.
///
/// # Errors
/// It reaches beyond the message.
#[inline]
pub fn part(message: &[u8], offset: usize, len: usize) -> Result<&[u8], DecodeError> {
    if len == 0 {
        return Ok(&[]);
    }
    let end = offset.checked_add(len).ok_or(DecodeError)?;
    message.get(offset..end).ok_or(DecodeError)
}

/// Writing behind what is there.
pub trait Put {
    /// One byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes, little-endian.
    fn put_u16(&mut self, value: u16);
    /// Four bytes, little-endian.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes, little-endian.
    fn put_u64(&mut self, value: u64);
    /// Bytes as they are.
    fn put(&mut self, bytes: &[u8]);
    /// Appends `n` zeroes.
    fn put_zeroes(&mut self, n: usize);
    /// A string in UTF-16, little-endian.
    fn put_utf16(&mut self, text: &str);
    /// Zeroes up to a multiple of `to` bytes counted from `start`.
    fn align(&mut self, start: usize, to: usize);
    /// Writes over four bytes that were written before, at `at`.
    fn set_u32(&mut self, at: usize, value: u32);
}

impl Put for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    #[inline]
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    #[inline]
    fn put_zeroes(&mut self, n: usize) {
        self.resize(self.len() + n, 0);
    }
    fn put_utf16(&mut self, text: &str) {
        text.encode_utf16().for_each(|unit| self.put_u16(unit));
    }
    #[inline]
    fn align(&mut self, start: usize, to: usize) {
        let over = (self.len() - start) % to;
        if over > 0 {
            self.put_zeroes(to - over);
        }
    }
    #[inline]
    fn set_u32(&mut self, at: usize, value: u32) {
        self[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// A string in UTF-16.
pub fn utf16(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * text.len());
    out.put_utf16(text);
    out
}

/// A string from UTF-16.
///
/// # Errors
/// It has an odd number of bytes, or a surrogate without its partner.
pub fn from_utf16(bytes: &[u8]) -> Result<String, DecodeError> {
    let (pairs, odd) = bytes.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(DecodeError);
    }
    let units = pairs.iter().map(|pair| u16::from_le_bytes(*pair));
    char::decode_utf16(units)
        .collect::<Result<String, _>>()
        .map_err(|_| DecodeError)
}

/// Seconds from 1601-01-01, where FILETIME begins (MS-DTYP §2.3.3), to 1970-01-01.
const EPOCH: i64 = 11_644_473_600;
/// Steps of FILETIME a second.
const STEPS: i64 = 10_000_000;

/// A time as FILETIME; what it cannot express is its nearest end.
#[inline]
pub fn filetime(time: Time) -> u64 {
    // Saturates: a time that a client has set may be any.
    let steps = time.secs.saturating_add(EPOCH).saturating_mul(STEPS);
    let steps = steps.saturating_add(i64::from(time.nanos / 100));
    u64::try_from(steps).unwrap_or(0)
}

/// A FILETIME as time; `None` of what is none (MS-FSCC §2.4.7: 0, −1 and −2 have meanings of their
/// own).
#[inline]
pub fn from_filetime(steps: u64) -> Option<Time> {
    let steps = i64::try_from(steps).ok().filter(|steps| *steps > 0)?;
    Some(Time {
        secs: steps / STEPS - EPOCH,
        nanos: u32::try_from(steps % STEPS).ok()? * 100,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_to_a_hundred_nanoseconds() {
        for (secs, nanos) in [(0, 0), (-1, 999_999_900), (1_700_000_000, 123_456_700)] {
            let time = Time { secs, nanos };
            assert_eq!(from_filetime(filetime(time)), Some(time));
        }
        assert_eq!(filetime(Time::EPOCH), 116_444_736_000_000_000);
        assert_eq!(from_filetime(0), None);
        assert_eq!(from_filetime(u64::MAX), None);
        let far = Time {
            secs: i64::MIN,
            nanos: 0,
        };
        assert_eq!(filetime(far), 0);
    }

    #[test]
    fn strings_are_utf16_or_refused() {
        for text in ["", "a", "Grüße", "🦀.txt"] {
            assert_eq!(from_utf16(&utf16(text)).as_deref(), Ok(text));
        }
        assert_eq!(from_utf16(&[0x41]), Err(DecodeError));
        assert_eq!(from_utf16(&[0x00, 0xd8, 0x41, 0x00]), Err(DecodeError));
    }

    #[test]
    fn parts_stay_within_the_message() {
        assert_eq!(part(b"abc", 1, 2), Ok(&b"bc"[..]));
        assert_eq!(part(b"abc", 1, 3), Err(DecodeError));
        assert_eq!(part(b"abc", usize::MAX, 2), Err(DecodeError));
        assert_eq!(part(b"abc", 999, 0), Ok(&b""[..]));
    }
}
