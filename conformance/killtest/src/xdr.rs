//! XDR (RFC 4506) as far as an NFSv3 client needs it: big-endian words, opaque data padded to four bytes.

/// What went wrong, for a person to read. The test stops at the first one, so there is nothing to match on.
pub type Fault = String;

/// Builds a message.
#[derive(Default)]
pub struct Enc(pub Vec<u8>);

impl Enc {
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.0.extend_from_slice(&v.to_be_bytes());
        self
    }

    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.0.extend_from_slice(&v.to_be_bytes());
        self
    }

    /// Bytes without a length, padded.
    pub fn fixed(&mut self, v: &[u8]) -> &mut Self {
        self.0.extend_from_slice(v);
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
        self
    }

    /// Bytes with their length, padded.
    pub fn opaque(&mut self, v: &[u8]) -> &mut Self {
        self.u32(v.len() as u32).fixed(v)
    }
}

/// Takes a message apart.
pub struct Dec<'a>(pub &'a [u8]);

impl<'a> Dec<'a> {
    pub fn fixed(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let padded = len.next_multiple_of(4);
        if self.0.len() < padded {
            return Err(format!(
                "a reply ends {} bytes early",
                padded - self.0.len()
            ));
        }
        let (head, rest) = self.0.split_at(padded);
        self.0 = rest;
        Ok(head.get(..len).unwrap_or_default())
    }

    pub fn u32(&mut self) -> Result<u32, Fault> {
        let b = self.fixed(4)?;
        Ok(b.iter().fold(0, |v, x| v << 8 | u32::from(*x)))
    }

    pub fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    pub fn opaque(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.u32()? as usize;
        self.fixed(len)
    }

    /// XDR booleans and the discriminants of optional data.
    pub fn flag(&mut self) -> Result<bool, Fault> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(format!("{n} where a boolean was due")),
        }
    }
}
