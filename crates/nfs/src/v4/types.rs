//! The basic data types of NFSv4.1 (RFC 8881 §3) on the wire.

use crate::rpc::xdr::{self, Put, Reader, XdrError};
use weir_base::Time;
use weir_vfs::volume::Stability;

/// Longest file handle (`NFS4_FHSIZE`, RFC 8881 §3.2).
pub const MAX_HANDLE: usize = 128;
/// Longest opaque data without a bound of its own (`NFS4_OPAQUE_LIMIT`): owners of clients, opens
/// and locks.
pub const MAX_OPAQUE: usize = 1024;

/// `sessionid4`: unique over restarts of the server.
pub type SessionId = [u8; 16];

/// `stateid4` (RFC 8881 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateId {
    /// Counts the changes of the state, from 1; 0 means the newest.
    pub seqid: u32,
    /// Identifies the state; all zeros and all ones are special (§8.2.3).
    pub other: [u8; 12],
}

impl StateId {
    /// All zeros: no state.
    pub const ANONYMOUS: StateId = StateId {
        seqid: 0,
        other: [0; 12],
    };
    /// All ones: READ bypasses locks.
    pub const BYPASS: StateId = StateId {
        seqid: u32::MAX,
        other: [0xff; 12],
    };
    /// The stateid returned by an earlier operation of the COMPOUND (§8.2.3).
    pub const CURRENT: StateId = StateId {
        seqid: 1,
        other: [0; 12],
    };
    /// The invalid stateid, returned by operations that end a state (§8.2.3).
    pub const INVALID: StateId = StateId {
        seqid: u32::MAX,
        other: [0; 12],
    };

    /// Decodes the 16 bytes of a stateid.
    pub fn decode(r: &mut Reader<'_>) -> xdr::Result<StateId> {
        Ok(StateId {
            seqid: r.u32()?,
            other: r.fixed()?,
        })
    }

    /// Appends the 16 bytes of the stateid.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut b = [0; 16];
        b[..4].copy_from_slice(&self.seqid.to_be_bytes());
        b[4..].copy_from_slice(&self.other);
        out.extend_from_slice(&b);
    }
}

/// `bitmap4`: a set of numbers below 96, which includes all attributes and operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: [u32; 3],
    /// True if a greater number is in the set.
    pub beyond: bool,
}

impl Bitmap {
    /// Returns the set of these numbers.
    pub const fn from_numbers(numbers: &[u32]) -> Bitmap {
        let mut words = [0; 3];
        let mut at = 0;
        while at < numbers.len() {
            words[(numbers[at] / 32) as usize] |= 1 << (numbers[at] % 32);
            at += 1;
        }
        Bitmap {
            words,
            beyond: false,
        }
    }

    /// Decodes a set. Further words set only `beyond`, unless they are zero.
    pub fn decode(r: &mut Reader<'_>) -> xdr::Result<Bitmap> {
        const MOST: u32 = 64;
        let count = r.u32()?;
        if count > MOST {
            return Err(XdrError::TooLong);
        }
        let mut map = Bitmap::default();
        for at in 0..count as usize {
            let word = r.u32()?;
            match map.words.get_mut(at) {
                Some(place) => *place = word,
                None => map.beyond |= word != 0,
            }
        }
        Ok(map)
    }

    /// Appends the set, without trailing zero words.
    pub fn put(&self, out: &mut Vec<u8>) {
        let count = self
            .words
            .iter()
            .rposition(|w| *w != 0)
            .map_or(0, |p| p + 1);
        out.put_u32(count as u32);
        self.words.iter().take(count).for_each(|w| out.put_u32(*w));
    }

    /// Returns true if a number is in the set.
    pub const fn contains(&self, number: u32) -> bool {
        self.words[(number / 32) as usize] & 1 << (number % 32) != 0
    }

    /// Adds a number.
    pub fn set(&mut self, number: u32) {
        self.words[(number / 32) as usize] |= 1 << (number % 32);
    }

    /// Returns the set without a number.
    #[must_use]
    pub const fn without(mut self, number: u32) -> Bitmap {
        self.words[(number / 32) as usize] &= !(1 << (number % 32));
        self
    }

    /// Returns the intersection.
    #[must_use]
    pub const fn and(&self, other: &Bitmap) -> Bitmap {
        let [a, b, c] = self.words;
        let [x, y, z] = other.words;
        Bitmap {
            words: [a & x, b & y, c & z],
            beyond: false,
        }
    }

    /// Returns the union.
    #[must_use]
    pub const fn or(&self, other: &Bitmap) -> Bitmap {
        let [a, b, c] = self.words;
        let [x, y, z] = other.words;
        Bitmap {
            words: [a | x, b | y, c | z],
            beyond: self.beyond || other.beyond,
        }
    }

    /// Returns the set without the numbers in `other`.
    #[must_use]
    pub const fn minus(&self, other: &Bitmap) -> Bitmap {
        let [a, b, c] = self.words;
        let [x, y, z] = other.words;
        Bitmap {
            words: [a & !x, b & !y, c & !z],
            beyond: self.beyond,
        }
    }

    /// Returns the first two words, if the second is the last that is not zero.
    pub const fn two_words(&self) -> Option<[u32; 2]> {
        match self.words {
            [first, second, 0] if second != 0 => Some([first, second]),
            _ => None,
        }
    }

    /// Returns true if the numbers up to `last` are exactly those in the first word of `other`.
    /// `last` must be below 31.
    pub const fn starts_with(&self, other: &Bitmap, last: u32) -> bool {
        let upto = (1 << (last + 1)) - 1;
        self.words[0] & upto == other.words[0]
    }

    /// Returns true if the numbers from `first` on are exactly those in `other` behind its first
    /// word. `first` must be between 32 and 63.
    pub const fn is_all_from(&self, other: &Bitmap, first: u32) -> bool {
        let from = u32::MAX << (first - 32);
        self.words[1] & from == other.words[1] && self.words[2] == other.words[2]
    }

    /// Returns true if the set is a subset of `other`.
    pub fn within(&self, other: &Bitmap) -> bool {
        !self.beyond && self.and(other).words == self.words
    }

    /// Returns true if the sets have a number in common.
    pub fn any(&self, other: &Bitmap) -> bool {
        self.and(other).words != [0; 3]
    }

    /// Returns the numbers in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words;
        (0..3).flat_map(move |at| {
            let mut word = words[at as usize];
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                (word != 0).then(|| {
                    word &= word - 1;
                    at * 32 + bit
                })
            })
        })
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words == [0; 3] && !self.beyond
    }
}

/// Decodes an `nfstime4` with signed seconds. The operation checks that the nanoseconds are below a
/// second (INVAL).
pub fn time(r: &mut Reader<'_>) -> xdr::Result<Time> {
    Ok(Time {
        secs: r.u64()? as i64,
        nanos: r.u32()?,
    })
}

/// Encodes an `nfstime4`: seconds and nanoseconds.
pub fn wire_time(t: Time) -> [u8; 12] {
    let mut b = [0; 12];
    b[..8].copy_from_slice(&t.secs.to_be_bytes());
    b[8..].copy_from_slice(&t.nanos.to_be_bytes());
    b
}

/// Appends an `nfstime4`.
pub fn put_time(out: &mut Vec<u8>, t: Time) {
    out.extend_from_slice(&wire_time(t));
}

/// Appends a `change_info4` of an atomic change (§3.3.3, `atomic`).
pub fn put_change(out: &mut Vec<u8>, before: u64, after: u64) {
    let mut b = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    b[4..12].copy_from_slice(&before.to_be_bytes());
    b[12..].copy_from_slice(&after.to_be_bytes());
    out.extend_from_slice(&b);
}

/// Appends a `write_response4` without its stateid.
pub(super) fn put_written(out: &mut Vec<u8>, count: u64, stable: Stability, verifier: &[u8; 8]) {
    out.put_u64(count);
    out.put_u32(match stable {
        Stability::Unstable => 0,
        Stability::DataSync => 1,
        Stability::FileSync => 2,
    });
    out.put_fixed(verifier);
}

/// Number of the procedure COMPOUND (RFC 8881 §16.2).
pub const COMPOUND: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_are_read_back_and_know_what_is_beyond() {
        let map = Bitmap::from_numbers(&[0, 33, 82]);
        let mut out = Vec::new();
        map.put(&mut out);
        assert_eq!(out.len(), 16);
        let read = Bitmap::decode(&mut Reader::new(&out)).unwrap();
        assert_eq!(read, map);
        assert!(read.contains(82) && !read.contains(81) && read.within(&map));
        let wide = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let read = Bitmap::decode(&mut Reader::new(&wide)).unwrap();
        assert!(read.beyond && !read.within(&map) && !read.is_empty());
        let huge = [0, 0, 0, 65];
        assert_eq!(
            Bitmap::decode(&mut Reader::new(&huge)),
            Err(XdrError::TooLong)
        );
    }
}
