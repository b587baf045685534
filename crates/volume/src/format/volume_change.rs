//! Changes of volumes as a whole, as entries of the stream that a partner applies
//! ([`weir_store::log::stream`]).
//!
//! Such a change is not in the log: a checkpoint makes it durable. It is not an after-image either.
//! The partner, whose volumes are equal at this place of the stream, makes the same change to its
//! own, with blocks and generations of its own choice.
//!
//! An entry is a byte 0, in place of the version of a log record; a kind (1); the volume's number
//! (8); then by kind a number (8) and text.

use weir_base::VolumeId;

use crate::format::codec::{Put, Reader};

const MARK: u8 = 0;

mod kind {
    pub(super) const RETIRED: u8 = 1;
    pub(super) const REVERTED: u8 = 2;
    pub(super) const CLONED: u8 = 3;
    pub(super) const SPLIT: u8 = 4;
    pub(super) const LIMIT: u8 = 5;
    pub(super) const ANNOTATED: u8 = 6;
}

/// A change of a volume as a whole: see the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VolumeChange<'a> {
    /// The volume is deleted.
    Retired,
    /// The volume is reverted to this snapshot.
    Reverted { snapshot: &'a str },
    /// Another volume with this number and name begins as a clone of its snapshot.
    Cloned {
        number: VolumeId,
        snapshot: &'a str,
        name: &'a str,
    },
    /// The volume is being split from its origin.
    Split,
    /// The volume's capacity in bytes; 0: no limit.
    Limit { bytes: u64 },
    /// The text that is stored with the volume.
    Annotated { text: &'a str },
}

impl<'a> VolumeChange<'a> {
    pub(crate) fn encode(&self, volume: VolumeId) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.put_u8(MARK);
        let mut head = |kind: u8| {
            out.put_u8(kind);
            out.put_u64(volume.0);
        };
        match self {
            VolumeChange::Retired => head(kind::RETIRED),
            VolumeChange::Split => head(kind::SPLIT),
            VolumeChange::Reverted { snapshot } => {
                head(kind::REVERTED);
                out.put(snapshot.as_bytes());
            }
            VolumeChange::Cloned {
                number,
                snapshot,
                name,
            } => {
                head(kind::CLONED);
                out.put_u64(number.0);
                out.put_u16(snapshot.len() as u16);
                out.put(snapshot.as_bytes());
                out.put(name.as_bytes());
            }
            VolumeChange::Limit { bytes } => {
                head(kind::LIMIT);
                out.put_u64(*bytes);
            }
            VolumeChange::Annotated { text } => {
                head(kind::ANNOTATED);
                out.put(text.as_bytes());
            }
        }
        out
    }

    /// Decodes an entry; `None` if it is a record of the log's form instead. A malformed entry is
    /// an error.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Result<(VolumeId, VolumeChange<'a>), ()>> {
        let (mark, rest) = bytes.split_first()?;
        (*mark == MARK).then(|| VolumeChange::read(rest).ok_or(()))
    }

    fn read(bytes: &'a [u8]) -> Option<(VolumeId, VolumeChange<'a>)> {
        let mut r = Reader::new(bytes);
        let (kind, volume) = (r.u8()?, VolumeId(r.u64()?));
        let text = |r: Reader<'a>| std::str::from_utf8(r.rest()).ok();
        let change = match kind {
            kind::RETIRED | kind::SPLIT if !r.is_empty() => return None,
            kind::RETIRED => VolumeChange::Retired,
            kind::SPLIT => VolumeChange::Split,
            kind::REVERTED => VolumeChange::Reverted { snapshot: text(r)? },
            kind::CLONED => {
                let number = VolumeId(r.u64()?);
                let len = usize::from(r.u16()?);
                VolumeChange::Cloned {
                    number,
                    snapshot: std::str::from_utf8(r.bytes(len)?).ok()?,
                    name: text(r)?,
                }
            }
            kind::LIMIT => {
                let bytes = r.u64().filter(|_| r.is_empty())?;
                VolumeChange::Limit { bytes }
            }
            kind::ANNOTATED => VolumeChange::Annotated { text: text(r)? },
            _ => return None,
        };
        Some((volume, change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};

    #[test]
    fn all_changes_round_trip_and_no_bytes_panic() {
        let all = [
            VolumeChange::Retired,
            VolumeChange::Reverted { snapshot: "daily" },
            VolumeChange::Cloned {
                number: VolumeId(9),
                snapshot: "daily",
                name: "copy",
            },
            VolumeChange::Split,
            VolumeChange::Limit { bytes: 1 << 40 },
            VolumeChange::Annotated { text: "{}" },
            VolumeChange::Annotated { text: "" },
        ];
        for change in all {
            let bytes = change.encode(VolumeId(7));
            let read = VolumeChange::decode(&bytes).unwrap();
            assert_eq!(read, Ok((VolumeId(7), change)));
            for cut in 1..bytes.len() {
                let _ = VolumeChange::decode(&bytes[..cut]);
            }
        }
        assert_eq!(VolumeChange::decode(&[2, 0, 0]), None);
        let rng = SeededRng::new(3);
        for _ in 0..10_000 {
            let mut bytes = vec![0u8; 1 + rng.below(40) as usize];
            rng.fill(&mut bytes);
            bytes[0] = 0;
            if let Some(kind) = bytes.get_mut(1) {
                *kind %= 8;
            }
            let _ = VolumeChange::decode(&bytes);
        }
    }
}
