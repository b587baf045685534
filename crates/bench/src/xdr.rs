//! XDR (RFC 4506) as far as a load generator needs it.
//!
//! Written apart from the server's codec on purpose: two independent readings of
//! the standard that talk to each other check each other. Encoding appends to a
//! byte vector; decoding walks a borrowed slice and never copies, because a reply is read once,
//! where it was received.

use std::fmt;

/// Fault of bytes that are not the expected XDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdrError {
    /// The data ends inside an item.
    Truncated,
    /// A variable-length item is longer than its type allows (RFC 4506 §4.10).
    TooLong {
        /// Length found, in bytes.
        found: u32,
        /// Greatest length allowed, in bytes.
        limit: u32,
    },
    /// A boolean that is neither 0 nor 1 (RFC 4506 §4.4).
    BadBool(u32),
    /// A value that the call does not allow.
    Unexpected {
        /// Name of the value.
        what: &'static str,
        /// The value.
        found: u32,
    },
}

impl fmt::Display for XdrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "data ends inside an item"),
            Self::TooLong { found, limit } => {
                write!(f, "item of {found} bytes where at most {limit} are allowed")
            }
            Self::BadBool(v) => write!(f, "boolean with the value {v}"),
            Self::Unexpected { what, found } => write!(f, "{what}: {found}"),
        }
    }
}

impl std::error::Error for XdrError {}

/// Bytes that pad an opaque item of `len` bytes to a multiple of four.
pub const fn padding(len: usize) -> usize {
    (4 - len % 4) % 4
}

/// Appends a 32-bit unsigned integer.
pub fn put_u32(out: &mut Vec<u8>, v: u32) {
    out.extend_from_slice(&v.to_be_bytes());
}

/// Appends a 64-bit unsigned integer.
pub fn put_u64(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_be_bytes());
}

/// Appends 32-bit unsigned integers, at once.
pub fn put_words<const N: usize>(out: &mut Vec<u8>, words: [u32; N]) {
    out.extend_from_slice(words.map(u32::to_be_bytes).as_flattened());
}

/// Appends a variable-length opaque (or string): length, bytes, padding.
pub fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0u8; 3][..padding(bytes.len())]);
}

/// A cursor over received XDR.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not yet consumed.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes exactly `n` bytes.
    pub fn fixed(&mut self, n: usize) -> Result<&'a [u8], XdrError> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(XdrError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (head, tail) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(XdrError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Takes a 32-bit unsigned integer.
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes a 64-bit unsigned integer.
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes eight opaque bytes: a cookie or write verifier.
    pub fn verifier(&mut self) -> Result<[u8; 8], XdrError> {
        self.array()
    }

    /// Takes a boolean: a word of 0 or 1.
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(XdrError::BadBool(v)),
        }
    }

    /// Takes a variable-length opaque of at most `limit` bytes.
    pub fn opaque(&mut self, limit: u32) -> Result<&'a [u8], XdrError> {
        let found = self.u32()?;
        if found > limit {
            return Err(XdrError::TooLong { found, limit });
        }
        let len = found as usize;
        let bytes = self.fixed(len)?;
        self.fixed(padding(len))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_is_padded_to_four_bytes() {
        for len in 0..9usize {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let mut out = Vec::new();
            put_opaque(&mut out, &bytes);
            assert_eq!(out.len(), 4 + len.div_ceil(4) * 4);
            let mut r = Reader::new(&out);
            assert_eq!(r.opaque(16), Ok(&bytes[..]));
            assert!(r.rest().is_empty());
        }
    }

    #[test]
    fn integers_are_big_endian() {
        let mut out = Vec::new();
        put_u32(&mut out, 0x0102_0304);
        put_u64(&mut out, 0x0506_0708_090a_0b0c);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let mut words = Vec::new();
        put_words(&mut words, [0x0102_0304, 0x0506_0708, 0x090a_0b0c]);
        assert_eq!(words, out);
        let mut r = Reader::new(&out);
        assert_eq!(r.u32(), Ok(0x0102_0304));
        assert_eq!(r.u64(), Ok(0x0506_0708_090a_0b0c));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Reader::new(&[0, 0, 0]).u32(), Err(XdrError::Truncated));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(XdrError::BadBool(2)));
        assert_eq!(
            Reader::new(&[0, 0, 0, 5, 1, 2]).opaque(8),
            Err(XdrError::Truncated)
        );
        assert_eq!(
            Reader::new(&[0, 0, 0, 9]).opaque(8),
            Err(XdrError::TooLong { found: 9, limit: 8 })
        );
        // The padding belongs to the item.
        assert_eq!(
            Reader::new(&[0, 0, 0, 1, 7, 0, 0]).opaque(8),
            Err(XdrError::Truncated)
        );
    }
}
