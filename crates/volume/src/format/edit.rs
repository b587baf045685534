//! Edits: the content of the log records of operations (byte layout in docs/internals/format.md).
//!
//! A log record holds the edits of one operation, so the whole operation is in the log or nothing
//! of it. Edits are *after-images*: they state the new contents of a record, not the change.
//! Applying them in order to any state that already contains some of them ends in the same state.
//! So recovery need not know which of them a checkpoint already contains, and may itself be
//! interrupted and restarted.
//!
//! Two edits compute. [`Edit::Cut`], truncation, zeroes the rest of the last block, whatever it
//! contains. Its after-image would be that block's contents, which for an unstable write need not
//! be durable at all; cutting is idempotent as it is. [`Edit::Share`] finds the blocks of another
//! range, which are the same each time ([`crate::ops::clone_range`]).

use smallvec::SmallVec;
use weir_base::{BlockAddr, Ino, Time, VolumeId};
use weir_store::Frame;
use weir_store::log::Record;

use crate::format::calls::CallKey;
use crate::format::catalog::StreamPosition;
use crate::format::codec::Put;
use crate::format::hash::HashKey;
use crate::format::record::{DirentRef, InodeRec, PlacedPage};

mod decode;

pub(crate) use decode::decode;
pub use decode::{EditError, verify_record};

const VERSION: u8 = 2;

mod tag {
    pub(super) const INODE: u8 = 1;
    pub(super) const DEAD: u8 = 2;
    pub(super) const PUT_ENTRY: u8 = 3;
    pub(super) const DEL_ENTRY: u8 = 4;
    pub(super) const SYMLINK: u8 = 5;
    pub(super) const PAGES: u8 = 6;
    pub(super) const CUT: u8 = 7;
    pub(super) const SNAPSHOT_MADE: u8 = 8;
    pub(super) const SNAPSHOT_GONE: u8 = 9;
    pub(super) const SNAPSHOT_NAMED: u8 = 10;
    pub(super) const VOLUME_MADE: u8 = 11;
    pub(super) const CALL: u8 = 12;
    pub(super) const PLACED: u8 = 13;
    pub(super) const OPENED: u8 = 14;
    pub(super) const SIDE: u8 = 15;
    pub(super) const NO_SIDE: u8 = 16;
    pub(super) const POSITION: u8 = 17;
    pub(super) const CLIENT: u8 = 18;
    pub(super) const NO_CLIENT: u8 = 19;
    pub(super) const PUNCH: u8 = 20;
    pub(super) const SHARE: u8 = 21;

    #[cfg(test)]
    pub(super) const ALL: &[u8] = &[
        INODE,
        DEAD,
        PUT_ENTRY,
        DEL_ENTRY,
        SYMLINK,
        PAGES,
        CUT,
        SNAPSHOT_MADE,
        SNAPSHOT_GONE,
        SNAPSHOT_NAMED,
        VOLUME_MADE,
        CALL,
        PLACED,
        OPENED,
        SIDE,
        NO_SIDE,
        POSITION,
        CLIENT,
        NO_CLIENT,
        PUNCH,
        SHARE,
    ];
}

/// One edit of a log record, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Edit<'a> {
    /// The inode has these attributes (its block count excepted).
    Inode { ino: Ino, rec: InodeRec },
    /// The inode and its subtree are removed.
    Dead { ino: Ino },
    /// The directory has this entry.
    PutEntry {
        dir: Ino,
        cookie: u64,
        entry: DirentRef<'a>,
    },
    /// The directory has no such entry.
    DelEntry { dir: Ino, cookie: u64 },
    /// The symbolic link has this target.
    Symlink { ino: Ino, target: &'a [u8] },
    /// Contents of consecutive file blocks: the record's next `count` pages, whose checksums the
    /// log keeps itself.
    Pages { ino: Ino, first: u64, count: u16 },
    /// Contents of consecutive file blocks, stored in consecutive blocks of the device with these
    /// checksums.
    Placed {
        ino: Ino,
        first: u64,
        addr: BlockAddr,
        crcs: Crcs<'a>,
    },
    /// The file ends at `size`; blocks beyond it read as zeros if it grows again.
    Cut { ino: Ino, size: u64 },
    /// Consecutive file blocks, at least one, become holes.
    Punch { ino: Ino, first: u64, blocks: u64 },
    /// Consecutive file blocks, at least one, share the blocks of `source`: a file and its first
    /// block.
    Share {
        ino: Ino,
        first: u64,
        blocks: u64,
        source: (Ino, u64),
    },
    /// The record's volume exists, if it did not before: the first edit of its record.
    VolumeMade { key: HashKey, name: &'a str },
    /// The record is the effect of this call, whose reply names `ino`. Changes nothing.
    Call { ino: Ino, key: CallKey, secs: i64 },
    /// The inode has this record of [`kind::SIDE`](crate::format::record::kind::SIDE); `None`: it
    /// does not.
    Side {
        ino: Ino,
        kind: u8,
        sub: u64,
        value: Option<&'a [u8]>,
    },
    /// The log up to and including this record is the content of a stream of changes up to this
    /// position (on the standby of a pair). The last edit of its record.
    Position(StreamPosition),
    /// The client's record; `None`: it has none any more. The only edit of its record, which
    /// belongs to no volume.
    Client {
        number: u64,
        record: Option<&'a [u8]>,
    },
    /// The aggregate was opened: the only edit of its record, which belongs to no volume
    /// ([`crate::checkpoint::change`]).
    Opened,
    /// A change of a snapshot: the only edit of its record.
    Snapshot(SnapshotEdit<'a>),
}

impl Edit<'_> {
    /// Returns the blocks of the device that the edit refers to, if any.
    pub(crate) fn place(&self) -> Option<(BlockAddr, u32)> {
        match self {
            Edit::Placed { addr, crcs, .. } => Some((*addr, crcs.len())),
            _ => None,
        }
    }
}

/// Checksums, encoded as in the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Crcs<'a>(&'a [u8]);

impl Crcs<'_> {
    pub(crate) fn len(&self) -> u32 {
        // The count in the record has 16 bits.
        (self.0.len() / 4) as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let (crcs, _) = self.0.as_chunks::<4>();
        crcs.iter().map(|crc| u32::from_le_bytes(*crc))
    }
}

/// A change of a snapshot, which its identity names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SnapshotEdit<'a> {
    /// The snapshot was made of everything that precedes this in the log.
    Made {
        id: u32,
        created: Time,
        name: &'a str,
        label: &'a str,
    },
    /// The snapshot was removed.
    Gone { id: u32 },
    /// The snapshot has this name.
    Named {
        id: u32,
        name: &'a str,
        label: &'a str,
    },
}

/// A log record under construction.
pub(crate) struct Edits {
    pub(crate) meta: Vec<u8>,
    pub(crate) pages: SmallVec<[Frame; 2]>,
}

impl Edits {
    /// Creates a record of this volume without edits. `room`: expected bytes of edits.
    pub(crate) fn new(volume: VolumeId, room: usize) -> Edits {
        let mut meta = Vec::with_capacity(room + 9);
        meta.put_u8(VERSION);
        meta.put_u64(volume.0);
        Edits {
            meta,
            pages: SmallVec::new(),
        }
    }

    /// Returns the volume of the record.
    pub(crate) fn volume(&self) -> VolumeId {
        let number = self.meta.get(1..).and_then(<[u8]>::first_chunk);
        // Records from another machine are decoded elsewhere.
        VolumeId(number.map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Creates a record with these edits and pages, and last the position of the stream that it
    /// reaches.
    pub(crate) fn again(meta: &[u8], pages: &[Frame], at: StreamPosition) -> Edits {
        let mut edits = Edits {
            meta: Vec::with_capacity(meta.len() + 17),
            pages: pages.iter().cloned().collect(),
        };
        edits.meta.put(meta);
        edits.position(at);
        edits
    }

    /// Converts it to a record for the log.
    pub(crate) fn into_record(self) -> Record {
        Record {
            meta: self.meta,
            pages: self.pages,
        }
    }

    pub(crate) fn inode(&mut self, ino: Ino, rec: &InodeRec) {
        self.meta.put_u8(tag::INODE);
        self.meta.put_u64(ino.0);
        rec.encode(&mut self.meta);
    }

    pub(crate) fn dead(&mut self, ino: Ino) {
        self.meta.put_u8(tag::DEAD);
        self.meta.put_u64(ino.0);
    }

    pub(crate) fn put_entry(&mut self, dir: Ino, cookie: u64, entry: DirentRef<'_>) {
        self.meta.put_u8(tag::PUT_ENTRY);
        self.meta.put_u64(dir.0);
        self.meta.put_u64(cookie);
        self.meta.put_u16((9 + entry.name.len()) as u16);
        entry.encode(&mut self.meta);
    }

    pub(crate) fn del_entry(&mut self, dir: Ino, cookie: u64) {
        self.meta.put_u8(tag::DEL_ENTRY);
        self.meta.put_u64(dir.0);
        self.meta.put_u64(cookie);
    }

    pub(crate) fn symlink(&mut self, ino: Ino, target: &[u8]) {
        self.meta.put_u8(tag::SYMLINK);
        self.meta.put_u64(ino.0);
        self.meta.put_u16(target.len() as u16);
        self.meta.put(target);
    }

    pub(crate) fn cut(&mut self, ino: Ino, size: u64) {
        self.meta.put_u8(tag::CUT);
        self.meta.put_u64(ino.0);
        self.meta.put_u64(size);
    }

    pub(crate) fn punch(&mut self, ino: Ino, first: u64, blocks: u64) {
        self.meta.put_u8(tag::PUNCH);
        self.meta.put_u64(ino.0);
        self.meta.put_u64(first);
        self.meta.put_u64(blocks);
    }

    pub(crate) fn share(&mut self, ino: Ino, first: u64, blocks: u64, source: (Ino, u64)) {
        self.meta.put_u8(tag::SHARE);
        self.meta.put_u64(ino.0);
        self.meta.put_u64(first);
        self.meta.put_u64(blocks);
        self.meta.put_u64(source.0.0);
        self.meta.put_u64(source.1);
    }

    pub(crate) fn call(&mut self, ino: Ino, key: &CallKey, secs: i64) {
        self.meta.put_u8(tag::CALL);
        self.meta.put_u64(ino.0);
        self.meta.put(&key.0);
        self.meta.put_i64(secs);
    }

    pub(crate) fn side(&mut self, ino: Ino, kind: u8, sub: u64, value: Option<&[u8]>) {
        self.meta.put_u8(match value {
            Some(_) => tag::SIDE,
            None => tag::NO_SIDE,
        });
        self.meta.put_u64(ino.0);
        self.meta.put_u8(kind);
        self.meta.put_u64(sub);
        if let Some(value) = value {
            self.meta.put_u16(value.len() as u16);
            self.meta.put(value);
        }
    }

    pub(crate) fn position(&mut self, at: StreamPosition) {
        self.meta.put_u8(tag::POSITION);
        self.meta.put_u64(at.term);
        self.meta.put_u64(at.sequence);
    }

    pub(crate) fn client(&mut self, number: u64, record: Option<&[u8]>) {
        self.meta.put_u8(match record {
            Some(_) => tag::CLIENT,
            None => tag::NO_CLIENT,
        });
        self.meta.put_u64(number);
        if let Some(record) = record {
            self.meta.put_u16(record.len() as u16);
            self.meta.put(record);
        }
    }

    pub(crate) fn opened(&mut self) {
        self.meta.put_u8(tag::OPENED);
        self.meta.put_u64(0);
    }

    pub(crate) fn volume_made(&mut self, key: HashKey, name: &str) {
        self.meta.put_u8(tag::VOLUME_MADE);
        self.meta.put_u64(key.0);
        self.meta.put_u64(key.1);
        self.meta.put_u16(name.len() as u16);
        self.meta.put(name.as_bytes());
    }

    pub(crate) fn snapshot(&mut self, edit: SnapshotEdit<'_>) {
        match edit {
            SnapshotEdit::Made {
                id,
                created,
                name,
                label,
            } => {
                self.meta.put_u8(tag::SNAPSHOT_MADE);
                self.meta.put_u64(u64::from(id));
                self.meta.put_i64(created.secs);
                self.meta.put_u32(created.nanos);
                self.names(name, label);
            }
            SnapshotEdit::Gone { id } => {
                self.meta.put_u8(tag::SNAPSHOT_GONE);
                self.meta.put_u64(u64::from(id));
            }
            SnapshotEdit::Named { id, name, label } => {
                self.meta.put_u8(tag::SNAPSHOT_NAMED);
                self.meta.put_u64(u64::from(id));
                self.names(name, label);
            }
        }
    }

    fn names(&mut self, name: &str, label: &str) {
        for text in [name, label] {
            self.meta.put_u16(text.len() as u16);
            self.meta.put(text.as_bytes());
        }
    }

    /// Adds blocks whose contents are already stored in place, in ascending order.
    pub(crate) fn placed(&mut self, ino: Ino, blocks: impl Iterator<Item = (u64, PlacedPage)>) {
        let mut open: Option<(usize, u64, BlockAddr, u16)> = None; // position of the count, what follows, count
        for (block, placed) in blocks {
            match &mut open {
                Some((at, next, addr, count))
                    if *next == block && *addr == placed.addr && *count < u16::MAX =>
                {
                    *count += 1;
                    *next += 1;
                    addr.0 += 1;
                    let bytes = count.to_le_bytes();
                    if let Some(slot) = self.meta.get_mut(*at..*at + 2) {
                        slot.copy_from_slice(&bytes);
                    }
                }
                _ => {
                    self.meta.put_u8(tag::PLACED);
                    self.meta.put_u64(ino.0);
                    self.meta.put_u64(block);
                    let follows = BlockAddr(placed.addr.0 + 1);
                    open = Some((self.meta.len(), block + 1, follows, 1));
                    self.meta.put_u16(1);
                    self.meta.put_u64(placed.addr.0);
                }
            }
            self.meta.put_u32(placed.crc);
        }
    }

    /// Adds pages given as (file block, page) in ascending order.
    pub(crate) fn pages<'p>(&mut self, ino: Ino, pages: impl Iterator<Item = (u64, &'p Frame)>) {
        let Edits { meta, pages: kept } = self;
        let blocks = pages.map(|(block, page)| {
            kept.push(page.clone());
            block
        });
        page_places(meta, ino, blocks);
    }

    /// Adds the file blocks, in ascending order, of pages that are added separately.
    pub(crate) fn page_places(&mut self, ino: Ino, blocks: impl Iterator<Item = u64>) {
        page_places(&mut self.meta, ino, blocks);
    }
}

fn page_places(meta: &mut Vec<u8>, ino: Ino, blocks: impl Iterator<Item = u64>) {
    let mut open: Option<(usize, u64, u16)> = None; // position of the count, next block, count
    for block in blocks {
        match &mut open {
            Some((at, next, count)) if *next == block && *count < u16::MAX => {
                *count += 1;
                *next += 1;
                let bytes = count.to_le_bytes();
                if let Some(slot) = meta.get_mut(*at..*at + 2) {
                    slot.copy_from_slice(&bytes);
                }
            }
            _ => {
                meta.put_u8(tag::PAGES);
                meta.put_u64(ino.0);
                meta.put_u64(block);
                open = Some((meta.len(), block + 1, 1));
                meta.put_u16(1);
            }
        }
    }
}

/// Returns the kinds of edits.
#[cfg(test)]
pub(crate) fn tags() -> std::collections::BTreeSet<u8> {
    tag::ALL.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::kind;
    use crate::types::FileKind;
    use weir_base::{Rng, SeededRng, Time};

    #[test]
    fn all_edits_round_trip() {
        let mut e = Edits::new(VolumeId(7), 100);
        let rec = InodeRec::new(FileKind::Regular, 0o644, Time::EPOCH);
        let entry = DirentRef {
            ino: Ino(9),
            kind: FileKind::Regular,
            name: b"name",
        };
        let z = Frame::zero();
        e.inode(Ino(9), &rec);
        e.dead(Ino(8));
        e.put_entry(Ino(2), 512, entry);
        e.del_entry(Ino(2), 256);
        e.symlink(Ino(10), b"target");
        e.pages(Ino(9), [(4, &z), (5, &z), (9, &z)].into_iter());
        e.cut(Ino(9), 12345);
        e.punch(Ino(9), 3, 1 << 40);
        e.share(Ino(9), 3, 1 << 30, (Ino(8), 7));
        e.volume_made(HashKey(11, 12), "v-1");
        e.call(Ino(9), &CallKey([7; CallKey::LEN]), -5);
        e.opened();
        e.side(Ino(9), kind::ACL, 3, Some(b"acl"));
        e.side(Ino(9), kind::XATTR, 1 << 40, None);
        let at = StreamPosition {
            term: 4,
            sequence: 5,
        };
        e.position(at);
        e.client(6, Some(b"client"));
        e.client(7, None);
        let place = |addr: u64| PlacedPage {
            addr: BlockAddr(addr),
            crc: addr as u32 * 3,
        };
        let blocks = [(7, 70), (8, 71), (9, 90), (11, 91)];
        e.placed(
            Ino(9),
            blocks.into_iter().map(|(block, addr)| (block, place(addr))),
        );
        let (volume, edits) = decode(&e.meta, e.pages.len()).unwrap();
        assert_eq!(volume, VolumeId(7));
        assert_eq!(
            edits,
            vec![
                Edit::Inode { ino: Ino(9), rec },
                Edit::Dead { ino: Ino(8) },
                Edit::PutEntry {
                    dir: Ino(2),
                    cookie: 512,
                    entry
                },
                Edit::DelEntry {
                    dir: Ino(2),
                    cookie: 256
                },
                Edit::Symlink {
                    ino: Ino(10),
                    target: b"target"
                },
                Edit::Pages {
                    ino: Ino(9),
                    first: 4,
                    count: 2
                },
                Edit::Pages {
                    ino: Ino(9),
                    first: 9,
                    count: 1
                },
                Edit::Cut {
                    ino: Ino(9),
                    size: 12345
                },
                Edit::Punch {
                    ino: Ino(9),
                    first: 3,
                    blocks: 1 << 40
                },
                Edit::Share {
                    ino: Ino(9),
                    first: 3,
                    blocks: 1 << 30,
                    source: (Ino(8), 7)
                },
                Edit::VolumeMade {
                    key: HashKey(11, 12),
                    name: "v-1"
                },
                Edit::Call {
                    ino: Ino(9),
                    key: CallKey([7; CallKey::LEN]),
                    secs: -5
                },
                Edit::Opened,
                Edit::Side {
                    ino: Ino(9),
                    kind: kind::ACL,
                    sub: 3,
                    value: Some(b"acl")
                },
                Edit::Side {
                    ino: Ino(9),
                    kind: kind::XATTR,
                    sub: 1 << 40,
                    value: None
                },
                Edit::Position(at),
                Edit::Client {
                    number: 6,
                    record: Some(b"client")
                },
                Edit::Client {
                    number: 7,
                    record: None
                },
                Edit::Placed {
                    ino: Ino(9),
                    first: 7,
                    addr: BlockAddr(70),
                    crcs: Crcs(&[210, 0, 0, 0, 213, 0, 0, 0])
                },
                Edit::Placed {
                    ino: Ino(9),
                    first: 9,
                    addr: BlockAddr(90),
                    crcs: Crcs(&[14, 1, 0, 0])
                },
                Edit::Placed {
                    ino: Ino(9),
                    first: 11,
                    addr: BlockAddr(91),
                    crcs: Crcs(&[17, 1, 0, 0])
                },
            ]
        );
        assert!(decode(&e.meta, 2).is_err());
        for cut in 1..e.meta.len() {
            let _ = decode(&e.meta[..cut], 3);
        }
    }

    #[test]
    fn any_bytes_give_a_result() {
        let rng = SeededRng::new(1);
        for _ in 0..20_000 {
            let mut bytes = vec![0u8; rng.below(80) as usize];
            rng.fill(&mut bytes);
            if let Some(b) = bytes.first_mut() {
                *b = VERSION;
            }
            if let Some(b) = bytes.get_mut(9) {
                *b %= 23;
            }
            let _ = verify_record(&bytes, 0);
        }
    }
}
