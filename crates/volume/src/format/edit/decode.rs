//! Decodes edits from a record of the log.

use weir_base::limits::MAX_VALUE;
use weir_base::{BlockAddr, Ino, Time, VolumeId};

use super::{Crcs, Edit, SnapshotEdit, VERSION, tag};
use crate::format::calls::CallKey;
use crate::format::catalog::{MAX_LABEL, MAX_VOLUME_NAME, StreamPosition};
use crate::format::clients::MAX_CLIENT;
use crate::format::codec::Reader;
use crate::format::hash::HashKey;
use crate::format::record::{DirentRef, InodeRec, kind};

/// Reason why a record cannot be applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EditError(pub(crate) &'static str);

impl std::fmt::Display for EditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed log record: {}", self.0)
    }
}

impl std::error::Error for EditError {}

/// Decodes a record that carries `pages` pages. Total: any bytes give a result.
pub(crate) fn decode(meta: &[u8], pages: usize) -> Result<(VolumeId, Vec<Edit<'_>>), EditError> {
    let mut r = Reader::new(meta);
    match r.u8() {
        Some(VERSION) => {}
        _ => return Err(EditError("unknown version")),
    }
    let volume = VolumeId(r.u64().ok_or(EditError("too short"))?);
    let mut edits = Vec::new();
    let mut seen = 0usize;
    while !r.is_empty() {
        let edit = decode_one(&mut r).ok_or(EditError("malformed edit"))?;
        if let Edit::Pages { count, .. } = &edit {
            seen += usize::from(*count);
        }
        edits.push(edit);
    }
    if seen != pages {
        return Err(EditError("pages do not match the edits"));
    }
    Ok((volume, edits))
}

fn decode_one<'a>(r: &mut Reader<'a>) -> Option<Edit<'a>> {
    let tag = r.u8()?;
    let ino = Ino(r.u64()?);
    Some(match tag {
        tag::INODE => Edit::Inode {
            ino,
            rec: InodeRec::read(r)?,
        },
        tag::DEAD => Edit::Dead { ino },
        tag::PUT_ENTRY => {
            let cookie = r.u64()?;
            let len = usize::from(r.u16()?);
            Edit::PutEntry {
                dir: ino,
                cookie,
                entry: DirentRef::decode(r.bytes(len)?)?,
            }
        }
        tag::DEL_ENTRY => Edit::DelEntry {
            dir: ino,
            cookie: r.u64()?,
        },
        tag::SYMLINK => {
            let len = usize::from(r.u16()?);
            Edit::Symlink {
                ino,
                target: r
                    .bytes(len)
                    .filter(|_| len <= weir_base::limits::MAX_SYMLINK)?,
            }
        }
        tag::PAGES => {
            let (first, count) = (r.u64()?, r.u16()?);
            first.checked_add(u64::from(count))?;
            Edit::Pages { ino, first, count }
        }
        tag::PLACED => {
            let (first, count) = (r.u64()?, r.u16()?);
            let addr = BlockAddr(r.u64()?);
            first.checked_add(u64::from(count))?;
            addr.checked_add(u64::from(count))?;
            let crcs = Crcs(r.bytes(usize::from(count) * 4)?);
            Edit::Placed {
                ino,
                first,
                addr,
                crcs,
            }
        }
        tag::CUT => Edit::Cut {
            ino,
            size: r.u64()?,
        },
        tag::PUNCH => {
            let (first, blocks) = (r.u64()?, r.u64().filter(|blocks| *blocks > 0)?);
            first.checked_add(blocks)?;
            Edit::Punch { ino, first, blocks }
        }
        tag::SHARE => {
            let (first, blocks) = (r.u64()?, r.u64().filter(|blocks| *blocks > 0)?);
            let source = (Ino(r.u64()?), r.u64()?);
            first.checked_add(blocks)?;
            source.1.checked_add(blocks)?;
            Edit::Share {
                ino,
                first,
                blocks,
                source,
            }
        }
        tag::CALL => Edit::Call {
            ino,
            key: CallKey(r.array()?),
            secs: r.i64()?,
        },
        tag::OPENED => Edit::Opened,
        tag::SIDE | tag::NO_SIDE => {
            let (side, sub) = (r.u8()?, r.u64()?);
            if !kind::SIDE.contains(&side) {
                return None;
            }
            let value = match tag {
                tag::SIDE => {
                    let len = usize::from(r.u16()?);
                    Some(r.bytes(len).filter(|_| (1..=MAX_VALUE).contains(&len))?)
                }
                _ => None,
            };
            Edit::Side {
                ino,
                kind: side,
                sub,
                value,
            }
        }
        tag::POSITION => Edit::Position(StreamPosition {
            term: ino.0,
            sequence: r.u64()?,
        }),
        tag::CLIENT => {
            let len = usize::from(r.u16()?);
            let record = r.bytes(len).filter(|_| (1..=MAX_CLIENT).contains(&len))?;
            Edit::Client {
                number: ino.0,
                record: Some(record),
            }
        }
        tag::NO_CLIENT => Edit::Client {
            number: ino.0,
            record: None,
        },
        tag::VOLUME_MADE => {
            let key = HashKey(ino.0, r.u64()?);
            let name = text(r, MAX_VOLUME_NAME).filter(|name| !name.is_empty())?;
            Edit::VolumeMade { key, name }
        }
        tag::SNAPSHOT_MADE => {
            let id = u32::try_from(ino.0).ok()?;
            let created = Time {
                secs: r.i64()?,
                nanos: r.u32().filter(|n| *n < 1_000_000_000)?,
            };
            let (name, label) = names(r)?;
            Edit::Snapshot(SnapshotEdit::Made {
                id,
                created,
                name,
                label,
            })
        }
        tag::SNAPSHOT_GONE => {
            let id = u32::try_from(ino.0).ok()?;
            Edit::Snapshot(SnapshotEdit::Gone { id })
        }
        tag::SNAPSHOT_NAMED => {
            let id = u32::try_from(ino.0).ok()?;
            let (name, label) = names(r)?;
            Edit::Snapshot(SnapshotEdit::Named { id, name, label })
        }
        _ => return None,
    })
}

fn text<'a>(r: &mut Reader<'a>, most: usize) -> Option<&'a str> {
    let len = usize::from(r.u16()?);
    let bytes = r.bytes(len).filter(|_| len <= most)?;
    std::str::from_utf8(bytes).ok()
}

fn names<'a>(r: &mut Reader<'a>) -> Option<(&'a str, &'a str)> {
    let name = text(r, MAX_VOLUME_NAME).filter(|name| !name.is_empty())?;
    Some((name, text(r, MAX_LABEL)?))
}

/// Checks that a record's bytes are well formed: the entry for fuzzing and for offline
/// verification. Returns the number of edits.
///
/// # Errors
/// A description of the malformed part.
pub fn verify_record(meta: &[u8], pages: usize) -> Result<usize, EditError> {
    decode(meta, pages).map(|(_, edits)| edits.len())
}
