//! A step of a round that changes volumes as a whole: it brings a copy up to a mark and is not a
//! log record of a volume.
//!
//! The copy carries the step out, takes a checkpoint, and then records its position. Carrying the
//! step out again changes nothing.
//!
//! An entry is a byte 1, in place of the version of a log record; a kind (1); then the fields,
//! little-endian, in the order in which they are written here. Texts that are not last have their
//! length (2) before them.

use weir_base::{Ino, VolumeId};

use crate::format::calls::{CallKey, DoneCall};
use crate::format::catalog::StreamPosition;
use crate::format::codec::{Put, Reader};
use crate::format::hash::HashKey;
use crate::format::mark::MarkId;

const STEP: u8 = 1;

mod kind {
    pub(super) const BEGIN: u8 = 1;
    pub(super) const VOLUME: u8 = 2;
    pub(super) const FORGET: u8 = 3;
    pub(super) const CALLS: u8 = 4;
    pub(super) const END: u8 = 5;
}

/// State of a volume on the copy before its snapshots are transferred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeStep<'a> {
    pub(crate) number: VolumeId,
    /// Mark of the volume on the copy that differences refer to; `None`: the volume is created
    /// anew.
    pub(crate) base: Option<MarkId>,
    pub(crate) key: HashKey,
    /// Capacity in bytes; 0: no limit.
    pub(crate) limit: u64,
    /// Change counters shown so far: at least the base of the copy, and the top of them.
    pub(crate) change: (u64, u64),
    /// Origin of a clone that is created anew: the volume and the snapshot.
    pub(crate) origin: Option<(VolumeId, u32)>,
    /// Snapshots of the copy that are kept.
    pub(crate) kept: Vec<u32>,
    pub(crate) name: &'a str,
    pub(crate) annotation: &'a str,
}

/// One step: see the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step<'a> {
    /// The first step: the copy becomes its state at this mark; `None`: empty.
    Begin {
        base: Option<MarkId>,
    },
    Volume(VolumeStep<'a>),
    /// Forgets the calls and clients that the copy knows, because they are not the primary's.
    Forget,
    /// Adds calls that were carried out.
    Calls(Vec<DoneCall>),
    /// The last step: volumes that have not been transferred do not exist. The copy is then at a
    /// position of a stream, or at the mark.
    End {
        next_volume: u64,
        at: StreamPosition,
    },
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.put_u16(text.len() as u16);
    out.put(text.as_bytes());
}

fn read_text<'a>(r: &mut Reader<'a>) -> Option<&'a str> {
    let len = usize::from(r.u16()?);
    std::str::from_utf8(r.bytes(len)?).ok()
}

fn mark(raw: u64) -> Option<MarkId> {
    (raw != 0).then_some(MarkId(raw))
}

impl<'a> Step<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![STEP];
        match self {
            Step::Begin { base } => {
                out.put_u8(kind::BEGIN);
                out.put_u64(base.map_or(0, |base| base.0));
            }
            Step::Volume(v) => {
                out.put_u8(kind::VOLUME);
                out.put_u64(v.number.0);
                out.put_u64(v.base.map_or(0, |base| base.0));
                out.put_u64(v.key.0);
                out.put_u64(v.key.1);
                out.put_u64(v.limit);
                out.put_u64(v.change.0);
                out.put_u64(v.change.1);
                let (origin, snapshot) = v.origin.unwrap_or((VolumeId(0), 0));
                out.put_u64(origin.0);
                out.put_u32(snapshot);
                out.put_u16(v.kept.len() as u16);
                v.kept.iter().for_each(|id| out.put_u32(*id));
                text(&mut out, v.name);
                text(&mut out, v.annotation);
            }
            Step::Forget => out.put_u8(kind::FORGET),
            Step::Calls(calls) => {
                out.put_u8(kind::CALLS);
                for call in calls {
                    out.put(&call.key.0);
                    out.put_u64(call.volume.0);
                    out.put_u64(call.ino.0);
                    out.put_i64(call.secs);
                }
            }
            Step::End { next_volume, at } => {
                out.put_u8(kind::END);
                out.put_u64(*next_volume);
                out.put_u64(at.term);
                out.put_u64(at.sequence);
            }
        }
        out
    }

    /// Decodes a step; `None` if it is another kind of entry. A malformed step is an error.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Result<Step<'a>, ()>> {
        let (first, rest) = bytes.split_first()?;
        (*first == STEP).then(|| Step::read(rest).ok_or(()))
    }

    fn read(bytes: &'a [u8]) -> Option<Step<'a>> {
        let mut r = Reader::new(bytes);
        let step = match r.u8()? {
            kind::BEGIN => Step::Begin {
                base: mark(r.u64()?),
            },
            kind::VOLUME => {
                let (number, base) = (VolumeId(r.u64()?), mark(r.u64()?));
                let key = HashKey(r.u64()?, r.u64()?);
                let limit = r.u64()?;
                let change = (r.u64()?, r.u64()?);
                let (origin, snapshot) = (VolumeId(r.u64()?), r.u32()?);
                let count = r.u16()?;
                let kept = (0..count).map(|_| r.u32()).collect::<Option<_>>()?;
                let name = read_text(&mut r).filter(|name| !name.is_empty())?;
                Step::Volume(VolumeStep {
                    number,
                    base,
                    key,
                    limit,
                    change,
                    origin: (origin.0 != 0).then_some((origin, snapshot)),
                    kept,
                    name,
                    annotation: read_text(&mut r)?,
                })
            }
            kind::FORGET => Step::Forget,
            kind::CALLS => {
                let mut calls = Vec::new();
                while !r.is_empty() {
                    calls.push(DoneCall {
                        key: CallKey(r.array()?),
                        volume: VolumeId(r.u64()?),
                        ino: Ino(r.u64()?),
                        secs: r.i64()?,
                    });
                }
                Step::Calls(calls)
            }
            kind::END => Step::End {
                next_volume: r.u64()?,
                at: StreamPosition {
                    term: r.u64()?,
                    sequence: r.u64()?,
                },
            },
            _ => return None,
        };
        r.is_empty().then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_round_trip_and_parts_of_them_are_refused() {
        let volume = VolumeStep {
            number: VolumeId(7),
            base: Some(MarkId(3)),
            key: HashKey(1, 2),
            limit: 4,
            change: (5, 6),
            origin: Some((VolumeId(8), 9)),
            kept: vec![1, 5],
            name: "vol",
            annotation: "text",
        };
        let call = DoneCall {
            key: CallKey([4; CallKey::LEN]),
            volume: VolumeId(1),
            ino: Ino(2),
            secs: -3,
        };
        let at = StreamPosition {
            term: 3,
            sequence: 9,
        };
        let all = [
            Step::Begin { base: None },
            Step::Begin {
                base: Some(MarkId(1)),
            },
            Step::Volume(VolumeStep {
                base: None,
                origin: None,
                kept: vec![],
                annotation: "",
                ..volume.clone()
            }),
            Step::Volume(volume),
            Step::Forget,
            Step::Calls(vec![call; 3]),
            Step::End { next_volume: 4, at },
        ];
        for step in all {
            let bytes = step.encode();
            assert_eq!(Step::decode(&bytes), Some(Ok(step.clone())));
            let cut = Step::decode(&bytes[..bytes.len() - 1]);
            assert!(matches!(cut, Some(Err(())) | None), "{step:?}");
            assert_eq!(Step::decode(&[&bytes[..], b"a"].concat()), Some(Err(())));
        }
        assert_eq!(Step::decode(&[2, 1]), None);
        assert_eq!(Step::decode(&[STEP, 9]), Some(Err(())));
    }
}
