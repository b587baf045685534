//! Arguments that are put together in one expression, and fields that are taken from a reply.

#![allow(clippy::unwrap_used)] // A client of tests fails loudly.

use crate::nfs3::{Fattr, Sattr, Wcc};
use crate::{DecodeError, In, Out};

/// Encoded arguments.
#[derive(Clone, Default, Debug)]
pub struct Args(pub Vec<u8>);

impl Args {
    /// No arguments.
    #[must_use]
    pub fn new() -> Args {
        Args::default()
    }

    fn put(self, put: impl FnOnce(&mut Out)) -> Args {
        let mut out = Out(self.0);
        put(&mut out);
        Args(out.0)
    }

    /// Appends an unsigned 32-bit integer.
    #[must_use]
    pub fn u(self, value: u32) -> Args {
        self.raw(&value.to_be_bytes())
    }

    /// Appends an unsigned 64-bit integer.
    #[must_use]
    pub fn h(self, value: u64) -> Args {
        self.raw(&value.to_be_bytes())
    }

    /// Appends bytes that are encoded already.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Args {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a variable-length opaque.
    #[must_use]
    pub fn o(self, bytes: &[u8]) -> Args {
        self.put(|out| {
            out.opaque(bytes);
        })
    }

    /// Appends a `sattr3` that sets nothing but what is given.
    #[must_use]
    pub fn sattr(self, mode: Option<u32>, size: Option<u64>) -> Args {
        let attr = Sattr {
            mode,
            size,
            ..Sattr::default()
        };
        self.put(|out| attr.encode(out))
    }

    /// Appends a `bitmap4` of these numbers, below 96.
    #[must_use]
    pub fn bitmap(self, numbers: &[u32]) -> Args {
        let mut words = [0u32; 3];
        for number in numbers {
            words[*number as usize / 32] |= 1 << (number % 32);
        }
        words.into_iter().fold(self.u(3), Args::u)
    }
}

/// Fields of a reply, from a place on; every take must succeed.
#[derive(Debug)]
pub struct Fields(pub Vec<u8>, pub usize);

impl Fields {
    fn take<T>(&mut self, take: impl FnOnce(&mut In<'_>) -> Result<T, DecodeError>) -> T {
        let mut rest = In(&self.0[self.1..]);
        let taken = take(&mut rest).unwrap();
        self.1 = self.0.len() - rest.0.len();
        taken
    }

    /// Takes an unsigned 32-bit integer.
    pub fn u(&mut self) -> u32 {
        self.take(|rest| rest.u32())
    }

    /// Takes an unsigned 64-bit integer.
    pub fn h(&mut self) -> u64 {
        self.take(|rest| rest.u64())
    }

    /// Takes so many bytes.
    pub fn raw(&mut self, bytes: usize) -> Vec<u8> {
        self.1 += bytes;
        self.0[self.1 - bytes..self.1].to_vec()
    }

    /// Takes a variable-length opaque.
    pub fn o(&mut self) -> Vec<u8> {
        self.take(|rest| rest.opaque().map(<[u8]>::to_vec))
    }

    /// Takes an `fattr3`.
    pub fn fattr(&mut self) -> Fattr {
        self.take(Fattr::decode)
    }

    /// Takes a `post_op_attr`.
    pub fn post_op(&mut self) -> Option<Fattr> {
        self.take(Fattr::optional)
    }

    /// Takes a `wcc_data`: true if "before" is present, and "after".
    pub fn wcc(&mut self) -> (bool, Option<Fattr>) {
        let wcc = self.take(Wcc::decode);
        (wcc.before.is_some(), wcc.after)
    }

    /// Returns the fields that have not been taken.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.0[self.1..]
    }

    /// Checks that nothing follows.
    pub fn end(&self) {
        assert_eq!(self.rest(), b"", "bytes after the results");
    }
}
