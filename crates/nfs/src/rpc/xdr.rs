//! XDR (RFC 4506): a reader over borrowed bytes and writers onto a `Vec<u8>`.
//!
//! The reader never copies and never allocates: opaque data and strings come
//! back as slices of the request. Every length that the peer states is checked
//! against what the buffer holds before it is used, so no request can make the
//! server reserve memory. Nothing here panics on any input.
//!
//! Pad bytes are skipped unread: RFC 4506 §3 wants them zero,
//! but senders exist that leave them unset, and they carry no meaning.

/// Reason why bytes are not the expected XDR type. The RPC layer replies to all of these with
/// GARBAGE_ARGS (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdrError {
    /// The data ends before the value does.
    Truncated,
    /// A variable-length value is longer than its type allows.
    TooLong,
    /// A boolean, enumeration or union discriminant outside its type.
    BadValue,
}

/// Result of decoding; fails with [`XdrError`].
pub type Result<T> = std::result::Result<T, XdrError>;

/// Returns the number of bytes that pad `len` to the next multiple of four (RFC 4506 §3): 0 to 3.
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Reads XDR values from the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Reader { rest: data }
    }

    /// Returns the bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let (head, tail) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(XdrError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Reads an unsigned integer (RFC 4506 §4.2).
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(|b| u32::from_be_bytes(*b))
    }

    /// Reads an integer (RFC 4506 §4.1).
    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(|b| i32::from_be_bytes(*b))
    }

    /// Reads an unsigned hyper integer (RFC 4506 §4.5).
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(|b| u64::from_be_bytes(*b))
    }

    /// Reads a boolean (RFC 4506 §4.4): exactly 0 or 1.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::BadValue),
        }
    }

    /// Reads fixed-length opaque data (RFC 4506 §4.9); `N` must be a multiple of four.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        const { assert!(N % 4 == 0) };
        self.array().copied()
    }

    /// Reads variable-length opaque data or a string of at most `max` bytes (RFC 4506 §4.10,
    /// §4.11).
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(XdrError::TooLong);
        }
        let (data, tail) = self.rest.split_at_checked(len).ok_or(XdrError::Truncated)?;
        self.rest = tail.get(padding(len)..).ok_or(XdrError::Truncated)?;
        Ok(data)
    }

    /// Reads a string of any length within the record. Used for names, whose limit is reported by
    /// the protocol's status (NFS3ERR_NAMETOOLONG) and not as undecodable arguments.
    pub fn string(&mut self) -> Result<&'a [u8]> {
        self.opaque(usize::MAX)
    }
}

/// Appends XDR values to a byte vector.
pub trait Put {
    /// Appends an unsigned integer (RFC 4506 §4.2).
    fn put_u32(&mut self, v: u32);
    /// Appends an unsigned hyper integer (RFC 4506 §4.5).
    fn put_u64(&mut self, v: u64);
    /// Appends a boolean (RFC 4506 §4.4).
    fn put_bool(&mut self, v: bool);
    /// Appends fixed-length opaque data, padded (RFC 4506 §4.9).
    fn put_fixed(&mut self, v: &[u8]);
    /// Appends variable-length opaque data or a string, padded (RFC 4506 §4.10, §4.11). `v` comes
    /// from the server and is far below 2^32 bytes.
    fn put_opaque(&mut self, v: &[u8]);
}

impl Put for Vec<u8> {
    #[inline]
    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_be_bytes());
    }

    #[inline]
    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_be_bytes());
    }

    #[inline]
    fn put_bool(&mut self, v: bool) {
        self.put_u32(u32::from(v));
    }

    fn put_fixed(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
        self.extend_from_slice(&[0; 3][..padding(v.len())]);
    }

    fn put_opaque(&mut self, v: &[u8]) {
        self.put_u32(v.len() as u32);
        self.put_fixed(v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn padding_completes_words() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
    }

    #[test]
    fn golden_values() {
        let mut v = Vec::new();
        v.put_u32(0x0102_0304);
        v.put_u64(0x0506_0708_090a_0b0c);
        v.put_bool(true);
        v.put_opaque(b"abcde");
        v.put_fixed(b"xy");
        let want = b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\0\0\0\x01\0\0\0\x05abcde\0\0\0xy\0\0";
        assert_eq!(v, want);
    }

    #[test]
    fn a_stated_length_is_checked_before_use() {
        assert_eq!(Reader::new(&[0xff; 8]).string(), Err(XdrError::Truncated));
        assert_eq!(
            Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).opaque(8),
            Err(XdrError::Truncated)
        );
        let padded = [0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0];
        assert_eq!(Reader::new(&padded).opaque(4), Err(XdrError::TooLong));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(XdrError::BadValue));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(a: u32, b: u64, c: bool, d: Vec<u8>, e: [u8; 8]) {
            let mut v = Vec::new();
            v.put_u32(a);
            v.put_u64(b);
            v.put_bool(c);
            v.put_opaque(&d);
            v.put_fixed(&e);
            prop_assert_eq!(v.len() % 4, 0);
            let mut r = Reader::new(&v);
            prop_assert_eq!(r.u32(), Ok(a));
            prop_assert_eq!(r.u64(), Ok(b));
            prop_assert_eq!(r.bool(), Ok(c));
            prop_assert_eq!(r.string(), Ok(d.as_slice()));
            prop_assert_eq!(r.fixed::<8>(), Ok(e));
            prop_assert!(r.rest().is_empty());
        }
    }
}
