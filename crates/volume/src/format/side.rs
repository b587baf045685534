//! Records beside an inode: extended attributes and access control lists, and the pieces that they
//! are stored in.
//!
//! Both are values of up to 64 KiB, stored in pieces of a tree value each.
//!
//! **Key.** The number of an attribute's piece consists of 47 bits of the hash, 8 bits that
//! distinguish attributes with one hash, and the number of the piece (8). That of an access control
//! list is the number of the piece.

use std::collections::BTreeMap;

use weir_base::limits::{MAX_NAME, MAX_VALUE, MAX_XATTR};
use weir_store::node::Key;

use crate::format::codec::{Put, Reader};
use crate::format::hash::DISAMBIGUATOR_BITS;
use crate::format::record::{InodeRec, ROOT_INO, flag, kind};

/// Bits of an attribute's number that identify the piece.
pub(crate) const PIECE_BITS: u32 = 8;

/// Maximum number of attributes with one hash.
pub(crate) const SAME_HASH: u64 = 1 << (DISAMBIGUATOR_BITS - PIECE_BITS);

/// Bytes before the name in the first piece of an attribute: length of the name (1) and of the
/// value (4).
const HEAD: usize = 5;

const _: () = assert!((HEAD + MAX_NAME + MAX_XATTR).div_ceil(MAX_VALUE) <= 1 << PIECE_BITS);

/// All or some records of one kind of an inode; or whole attributes, by their numbers without the
/// piece.
pub(crate) type Pieces = BTreeMap<u64, Vec<u8>>;

/// Encodes an attribute: name and value.
pub(crate) fn encode(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + name.len() + value.len());
    // Both lengths were checked.
    out.put_u8(name.len() as u8);
    out.put_u32(value.len() as u32);
    out.put(name);
    out.put(value);
    out
}

pub(crate) fn decode(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut r = Reader::new(bytes);
    let (name, value) = (usize::from(r.u8()?), r.u32()? as usize);
    if name == 0 || value > MAX_XATTR {
        return None;
    }
    let (name, value) = (r.bytes(name)?, r.bytes(value)?);
    r.is_empty().then_some((name, value))
}

/// Joins attributes from their pieces, by their numbers without the piece; `None` if a piece is
/// missing.
pub(crate) fn join(pieces: &Pieces) -> Option<Pieces> {
    let mut all = Pieces::new();
    for (sub, piece) in pieces {
        let (of, at) = (sub >> PIECE_BITS, (sub & ((1 << PIECE_BITS) - 1)) as usize);
        let whole = all.entry(of).or_default();
        if whole.len() != at * MAX_VALUE {
            return None;
        }
        whole.extend_from_slice(piece);
    }
    Some(all)
}

/// Returns true if a record of this kind can be part of a well-formed value: received records are
/// checked one at a time.
pub(crate) fn well_formed(key: Key, value: &[u8]) -> bool {
    let place = match key.kind {
        kind::XATTR => key.sub >> DISAMBIGUATOR_BITS > 0 && key.sub <= i64::MAX as u64,
        kind::ACL => key.sub < MAX_XATTR.div_ceil(MAX_VALUE) as u64,
        kind::TOKEN => key.ino == ROOT_INO.0,
        _ => return false,
    };
    key.ino != 0 && place && !value.is_empty() && value.len() <= MAX_VALUE
}

/// Collects the attributes of an inode in a tree, for `check`.
#[derive(Default)]
pub(crate) struct AttributeCollector {
    xattrs: Pieces,
    acl: Pieces,
    /// Number of tokens.
    pub(crate) tokens: u64,
}

impl AttributeCollector {
    pub(crate) fn push(&mut self, key: Key, value: &[u8]) {
        match key.kind {
            kind::XATTR => drop(self.xattrs.insert(key.sub, value.to_vec())),
            kind::TOKEN => self.tokens += 1,
            _ => drop(self.acl.insert(key.sub, value.to_vec())),
        }
    }

    /// Returns the fault of the attributes, given the inode that they belong to; `None` if there is
    /// none.
    pub(crate) fn fault(
        &self,
        rec: &InodeRec,
        place: impl Fn(&[u8]) -> u64,
    ) -> Option<&'static str> {
        let Some(xattrs) = join(&self.xattrs) else {
            return Some("extended attribute with a gap");
        };
        for (of, bytes) in &xattrs {
            let Some((name, _)) = decode(bytes) else {
                return Some("malformed extended attribute");
            };
            if of >> (DISAMBIGUATOR_BITS - PIECE_BITS) != place(name) >> DISAMBIGUATOR_BITS {
                return Some("extended attribute at the wrong place");
            }
        }
        let gap = self.acl.keys().zip(0..).any(|(sub, at)| *sub != at);
        if gap {
            return Some("access control list with a gap");
        }
        let unflagged = !xattrs.is_empty() && rec.flags & flag::XATTRS == 0
            || self.acl.is_empty() == (rec.flags & flag::ACL != 0);
        unflagged.then_some("attributes that the inode does not mention")
    }
}

/// Returns the edits that replace one value by another, by pieces.
pub(crate) fn difference(
    base: u64,
    old: &Pieces,
    new: Option<&[u8]>,
) -> Vec<(u64, Option<Vec<u8>>)> {
    let pieces = new.into_iter().flat_map(|value| value.chunks(MAX_VALUE));
    let mut out: Vec<(u64, Option<Vec<u8>>)> = (base..)
        .zip(pieces)
        .map(|(sub, piece)| (sub, Some(piece.to_vec())))
        .collect();
    let end = base + out.len() as u64;
    let last = base | ((1 << PIECE_BITS) - 1);
    out.extend(old.range(end..=last).map(|(sub, _)| (*sub, None)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip_in_pieces() {
        for len in [0, 1, 900, 1024, 5000, MAX_XATTR] {
            let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let bytes = encode(b"user.name", &value);
            assert_eq!(decode(&bytes), Some((&b"user.name"[..], &*value)));
            let base = 77 << DISAMBIGUATOR_BITS;
            let pieces: Pieces = difference(base, &Pieces::new(), Some(&bytes))
                .into_iter()
                .map(|(sub, piece)| (sub, piece.unwrap()))
                .collect();
            assert!(
                pieces
                    .iter()
                    .all(|(sub, piece)| { well_formed(Key::new(9, kind::XATTR, *sub), piece) })
            );
            let joined = join(&pieces).unwrap();
            assert_eq!(joined.len(), 1);
            assert_eq!(joined[&(base >> PIECE_BITS)], bytes);
            // A shorter value leaves no pieces behind.
            let removed = difference(base, &pieces, Some(&bytes[..1]));
            let gone = removed.iter().filter(|(_, piece)| piece.is_none()).count();
            assert_eq!(gone, pieces.len() - 1);
            let mut lost = pieces.clone();
            if pieces.len() > 1 {
                lost.remove(&base);
                assert_eq!(join(&lost), None);
            }
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&encode(b"", b"x")), None);
    }
}
