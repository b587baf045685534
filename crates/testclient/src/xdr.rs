//! XDR (RFC 4506), as far as NFSv3 needs it.

/// Appends encoded items to its bytes.
#[derive(Debug, Default, Clone)]
pub struct Out(pub Vec<u8>);

impl Out {
    /// Appends an unsigned 32-bit integer.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Appends an unsigned 64-bit integer.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Appends a boolean, as 0 or 1.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }

    /// Variable-length opaque or string, padded.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.fixed(bytes)
    }

    /// Fixed-length opaque, padded.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// An optional item: its presence, and itself.
    pub fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.bool(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
        self
    }
}

/// Error of decoding, with the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(pub &'static str);

/// Reads encoded items from the front of its bytes.
#[derive(Debug, Clone)]
pub struct In<'a>(pub &'a [u8]);

type Read<T> = Result<T, DecodeError>;

impl<'a> In<'a> {
    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        if self.0.len() < len {
            return Err(DecodeError("reply ends early"));
        }
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(head)
    }

    /// Takes an unsigned 32-bit integer.
    ///
    /// # Errors
    /// At the end of the data; so for all others.
    pub fn u32(&mut self) -> Read<u32> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        Ok(u32::from_be_bytes(bytes))
    }

    /// Takes an unsigned 64-bit integer.
    #[allow(missing_docs, clippy::missing_errors_doc)]
    pub fn u64(&mut self) -> Read<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// Boolean: nothing but 0 and 1.
    #[allow(clippy::missing_errors_doc)]
    pub fn bool(&mut self) -> Read<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError("a boolean that is neither 0 nor 1")),
        }
    }

    /// Variable-length opaque; its padding must be zero.
    #[allow(clippy::missing_errors_doc)]
    pub fn opaque(&mut self) -> Read<&'a [u8]> {
        let len = self.u32()? as usize;
        let bytes = self.take(len)?;
        let pad = self.take(len.next_multiple_of(4) - len)?;
        if pad.iter().any(|&b| b != 0) {
            return Err(DecodeError("padding that is not zero"));
        }
        Ok(bytes)
    }

    /// Fixed-length opaque of a multiple of four bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn fixed<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// Checks that nothing follows.
    #[allow(clippy::missing_errors_doc)]
    pub fn end(&self) -> Read<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(DecodeError("bytes after the end of the reply"))
        }
    }
}
