//! The aggregate's own tree: volumes, their snapshots, and jobs.
//!
//! Keys begin with the volume's number in place of the inode number of a volume's tree; number 0 is
//! the aggregate as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
pub use weir_base::limits::{ANNOTATION_PIECE, MAX_ANNOTATION, MAX_LABEL, MAX_VOLUME_NAME};

use weir_base::{Generation, Ino, Time, VolumeId};
use weir_store::node::Key;
use weir_store::tree::{ROOT_SIZE, TreeRoot};

use crate::format::codec::{Put, Reader};
use crate::format::content::ContentHash;
use crate::format::hash::HashKey;
use crate::format::mark::MarkId;
use crate::format::shared_runs::CountedBlock;
use crate::types::FsError;
use weir_base::SnapshotIdentity;

mod job;
mod mirror;

pub(crate) use job::{Job, Places};
pub(crate) use mirror::{MirrorRec, TransferRec};

/// Tree number in the nodes of the aggregate's own tree.
pub(crate) const AGGREGATE_TREE: VolumeId = VolumeId(0);

/// Kinds of key below a volume's number.
pub(crate) mod kind {
    /// The volume record (sub 0).
    pub(crate) const VOLUME: u8 = 1;
    /// A snapshot (sub = its place in the chain).
    pub(crate) const SNAPSHOT: u8 = 2;
    /// A job (sub = its number).
    pub(crate) const JOB: u8 = 4;
    /// The aggregate's own record, [`super::AggregateRec`] (sub 0).
    pub(crate) const AGGREGATE: u8 = 5;
    /// Calls carried out in the aggregate (sub = number of the record).
    pub(crate) const CALLS: u8 = 6;
    /// A volume's annotation, in pieces (sub 0, 1, …); absent if it is empty.
    pub(crate) const ANNOTATION: u8 = 7;
    /// A client record of the aggregate (sub = its number).
    pub(crate) const CLIENT: u8 = 8;
}

/// Checks that a snapshot may have this name: it is a directory entry of `.snapshot`.
pub(crate) fn check_name(name: &str) -> Result<(), FsError> {
    if name.is_empty() || name == "." || name == ".." || name.bytes().any(|b| b == b'/' || b == 0) {
        return Err(FsError::Invalid);
    }
    if name.len() > MAX_VOLUME_NAME {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

pub(crate) fn check_label(label: &str) -> Result<(), FsError> {
    if label.len() > MAX_LABEL {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

/// Version of the records of jobs and annotations.
const VERSION: u8 = 2;
/// Version of the aggregate's own record. Earlier ones were never released.
const AGGREGATE_VERSION: u8 = 4;
/// Version of the records of volumes and snapshots. Earlier ones were never released.
pub(crate) const RECORD_VERSION: u8 = 6;

/// Flag of a volume: it is the destination of a replication.
const MIRROR: u8 = 1;

/// Flags of a snapshot: it was received; the hash of its contents is known.
const RECEIVED: u8 = 1;
const HASHED: u8 = 2;

/// Origin of a clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(crate) volume: VolumeId,
    /// Number of the origin's snapshot that the clone was made from.
    pub(crate) snapshot: u32,
    /// Blocks born at or before this generation belong to the origin.
    pub(crate) generation: Generation,
}

/// Stored record of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeRec {
    pub(crate) name: String,
    pub(crate) root: TreeRoot,
    pub(crate) key: HashKey,
    pub(crate) next_ino: u64,
    /// Capacity in bytes; 0: unlimited.
    pub(crate) limit: u64,
    /// Number of data blocks of all files.
    pub(crate) used: u64,
    /// Identity of the next snapshot.
    pub(crate) next_snapshot: u32,
    /// Place of the next snapshot, or of one that the volume is reverted to. Greater than all
    /// earlier places.
    pub(crate) next_place: u32,
    /// The tree of dead blocks.
    pub(crate) dead: TreeRoot,
    /// Number of blocks that `dead` lists.
    pub(crate) dead_blocks: u64,
    /// Number added to the change counter of each inode when it is shown
    /// ([`crate::checkpoint::change`]).
    pub(crate) change_base: u64,
    /// Upper bound of the change counters of all inodes that the volume has or had.
    pub(crate) change_top: u64,
    pub(crate) origin: Option<Origin>,
    /// State of a replication destination, if the volume is one.
    pub(crate) mirror: Option<MirrorRec>,
}

fn put_identity(out: &mut Vec<u8>, identity: &SnapshotIdentity) {
    out.put(&identity.encode());
}

fn read_identity(r: &mut Reader<'_>) -> Option<SnapshotIdentity> {
    SnapshotIdentity::decode(&r.array()?)
}

impl VolumeRec {
    pub(crate) fn key(id: VolumeId) -> Key {
        Key::new(id.0, kind::VOLUME, 0)
    }

    /// Returns the generation up to which blocks belong to the origin.
    pub(crate) fn origin_generation(&self) -> Generation {
        self.origin.map_or(Generation(0), |o| o.generation)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(230 + self.name.len());
        out.put_u8(RECORD_VERSION);
        out.put_u8(if self.mirror.is_some() { MIRROR } else { 0 });
        out.put(&self.root.encode());
        out.put_u64(self.key.0);
        out.put_u64(self.key.1);
        out.put_u64(self.next_ino);
        out.put_u64(self.limit);
        out.put_u64(self.used);
        out.put_u32(self.next_snapshot);
        out.put_u32(self.next_place);
        out.put(&self.dead.encode());
        out.put_u64(self.dead_blocks);
        out.put_u64(self.change_base);
        out.put_u64(self.change_top);
        out.put_u64(self.origin.map_or(0, |o| o.volume.0));
        out.put_u32(self.origin.map_or(0, |o| o.snapshot));
        out.put_u64(self.origin_generation().0);
        if let Some(mirror) = &self.mirror {
            mirror.encode(&mut out);
        }
        out.put(self.name.as_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<VolumeRec> {
        let mut r = Reader::new(bytes);
        if r.u8()? != RECORD_VERSION {
            return None;
        }
        let flags = r.u8().filter(|flags| flags & !MIRROR == 0)?;
        let root = TreeRoot::decode(&r.array::<ROOT_SIZE>()?);
        let key = HashKey(r.u64()?, r.u64()?);
        let (next_ino, limit, used) = (r.u64()?, r.u64()?, r.u64()?);
        let (next_snapshot, next_place) = (r.u32()?, r.u32()?);
        let dead = TreeRoot::decode(&r.array::<ROOT_SIZE>()?);
        let dead_blocks = r.u64()?;
        let (change_base, change_top) = (r.u64()?, r.u64()?);
        let (volume, snapshot) = (VolumeId(r.u64()?), r.u32()?);
        let generation = Generation(r.u64()?);
        let mirror = match flags & MIRROR {
            0 => None,
            _ => Some(MirrorRec::decode(&mut r)?),
        };
        Some(VolumeRec {
            root,
            key,
            next_ino,
            limit,
            used,
            next_snapshot,
            next_place,
            dead,
            dead_blocks,
            change_base,
            change_top,
            origin: (volume.0 != 0).then_some(Origin {
                volume,
                snapshot,
                generation,
            }),
            mirror,
            name: name(r.rest())?,
        })
    }
}

/// Stored record of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotRec {
    /// Identity: never changes, never reused.
    pub(crate) id: u32,
    /// Place in the chain, which dead blocks refer to. It changes when the volume is reverted to
    /// this snapshot. In the order of identities.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Label for replication policies; may be empty.
    pub(crate) label: String,
    pub(crate) root: TreeRoot,
    /// Generation of the snapshot: later blocks are not in it.
    pub(crate) generation: Generation,
    pub(crate) created: Time,
    /// Inode number after the last one used: lower numbers existed, unless removed.
    pub(crate) next_ino: u64,
    /// Number of data blocks of its tree.
    pub(crate) used: u64,
    /// Number of blocks that only this snapshot refers to.
    pub(crate) unique: u64,
    /// Identity at its first creation, if the snapshot was received.
    pub(crate) source: Option<SnapshotIdentity>,
    /// Hash of its contents, if it was computed.
    pub(crate) content: Option<ContentHash>,
}

impl SnapshotRec {
    pub(crate) fn key(id: VolumeId, number: u32) -> Key {
        Key::new(id.0, kind::SNAPSHOT, u64::from(number))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(90 + self.name.len() + self.label.len());
        out.put_u8(RECORD_VERSION);
        let flag = |is: bool, flag| if is { flag } else { 0 };
        out.put_u8(flag(self.source.is_some(), RECEIVED) | flag(self.content.is_some(), HASHED));
        out.put_u32(self.id);
        out.put(&self.root.encode());
        out.put_u64(self.generation.0);
        out.put_i64(self.created.secs);
        out.put_u32(self.created.nanos);
        out.put_u64(self.next_ino);
        out.put_u64(self.used);
        out.put_u64(self.unique);
        if let Some(source) = &self.source {
            put_identity(&mut out, source);
        }
        if let Some(content) = &self.content {
            out.put(&content.encode());
        }
        out.put_u16(self.label.len() as u16);
        out.put(self.label.as_bytes());
        out.put(self.name.as_bytes());
        out
    }

    pub(crate) fn decode(number: u64, bytes: &[u8]) -> Option<SnapshotRec> {
        let mut r = Reader::new(bytes);
        if r.u8()? != RECORD_VERSION {
            return None;
        }
        let flags = r.u8().filter(|f| f & !(RECEIVED | HASHED) == 0)?;
        let id = r.u32()?;
        let root = TreeRoot::decode(&r.array::<ROOT_SIZE>()?);
        let generation = Generation(r.u64()?);
        let created = Time {
            secs: r.i64()?,
            nanos: r.u32()?,
        };
        let (next_ino, used, unique) = (r.u64()?, r.u64()?, r.u64()?);
        let source = match flags & RECEIVED {
            0 => None,
            _ => Some(read_identity(&mut r)?),
        };
        let content = match flags & HASHED {
            0 => None,
            _ => Some(ContentHash::decode(&r.array()?)),
        };
        let label = usize::from(r.u16()?);
        let label = label_of(r.bytes(label)?)?;
        Some(SnapshotRec {
            id,
            number: u32::try_from(number).ok()?,
            root,
            generation,
            created,
            next_ino,
            used,
            unique,
            source,
            content,
            label,
            name: name(r.rest())?,
        })
    }
}

pub(crate) fn name(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() || bytes.len() > MAX_VOLUME_NAME {
        return None;
    }
    String::from_utf8(bytes.to_vec()).ok()
}

pub(crate) fn label_of(bytes: &[u8]) -> Option<String> {
    if bytes.len() > MAX_LABEL {
        return None;
    }
    String::from_utf8(bytes.to_vec()).ok()
}

/// Returns the key of a piece of a volume's annotation.
pub(crate) fn annotation_key(id: VolumeId, piece: usize) -> Key {
    Key::new(id.0, kind::ANNOTATION, piece as u64)
}

/// Cuts an annotation into pieces, each at most [`ANNOTATION_PIECE`] bytes of whole characters.
pub(crate) fn annotation_pieces(text: &str) -> Vec<&str> {
    assert!(
        text.len() <= MAX_ANNOTATION,
        "an annotation of {} bytes",
        text.len()
    );
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.len().min(ANNOTATION_PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

pub(crate) fn encode_annotation(text: &str) -> Vec<u8> {
    assert!(
        !text.is_empty() && text.len() <= ANNOTATION_PIECE,
        "a piece of an annotation of {} bytes",
        text.len()
    );
    let mut out = Vec::with_capacity(1 + text.len());
    out.put_u8(VERSION);
    out.put(text.as_bytes());
    out
}

pub(crate) fn decode_annotation(bytes: &[u8]) -> Option<String> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return None;
    }
    let text = r.rest();
    if text.is_empty() || text.len() > ANNOTATION_PIECE {
        return None;
    }
    String::from_utf8(text.to_vec()).ok()
}

/// A position in a stream of changes that several aggregates share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct StreamPosition {
    /// The term of the primary.
    pub term: u64,
    /// Number within the term.
    pub sequence: u64,
}

/// Bit that marks the term of a copy that is being brought up to a mark; the mark's number takes
/// the term's place.
const RECEIVING: u64 = 1 << 63;

/// Shift of the plan's digest above the number of entries.
const PLAN_SHIFT: u32 = 48;

impl StreamPosition {
    /// Creates the position of a copy with `entries` entries of a round to `mark`, by a plan with
    /// this digest. The primary never had this state.
    pub(crate) fn in_round(mark: MarkId, plan: u16, entries: u64) -> StreamPosition {
        StreamPosition {
            term: RECEIVING | mark.0,
            sequence: u64::from(plan) << PLAN_SHIFT | entries,
        }
    }

    /// Returns the digest of the plan of the round.
    pub(crate) fn plan(self) -> u16 {
        (self.sequence >> PLAN_SHIFT) as u16
    }

    /// Returns the number of entries of the round that the copy has.
    pub(crate) fn entries(self) -> u64 {
        self.sequence & ((1 << PLAN_SHIFT) - 1)
    }

    /// Creates the position of a copy that equals the mark.
    #[must_use]
    pub fn at_mark(mark: MarkId) -> StreamPosition {
        StreamPosition {
            term: RECEIVING | mark.0,
            sequence: u64::MAX,
        }
    }

    /// Returns the mark that the copy is being brought to, or equals; `None` for a position in a
    /// stream of changes.
    #[must_use]
    pub fn mark(self) -> Option<MarkId> {
        (self.term & RECEIVING != 0).then_some(MarkId(self.term & !RECEIVING))
    }

    /// Returns true if the copy is in a state that the primary had.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.mark().is_none() || self.sequence == u64::MAX
    }
}

/// Stored record of the aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AggregateRec {
    /// Number of the next volume; 0: none was created yet.
    pub(crate) next_volume: u64,
    /// True if the aggregate was opened since its last clean close.
    pub(crate) in_use: bool,
    /// The last recorded position in a stream of changes.
    pub(crate) position: StreamPosition,
    /// The newest mark so far; its number is never reused.
    pub(crate) last_mark: MarkId,
}

impl AggregateRec {
    pub(crate) const KEY: Key = Key::new(0, kind::AGGREGATE, 0);

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(34);
        out.put_u8(AGGREGATE_VERSION);
        out.put_u8(u8::from(self.in_use));
        out.put_u64(self.next_volume);
        out.put_u64(self.position.term);
        out.put_u64(self.position.sequence);
        out.put_u64(self.last_mark.0);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<AggregateRec> {
        let mut r = Reader::new(bytes);
        if r.u8()? != AGGREGATE_VERSION {
            return None;
        }
        let in_use = match r.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let next_volume = r.u64()?;
        let position = StreamPosition {
            term: r.u64()?,
            sequence: r.u64()?,
        };
        let last_mark = MarkId(r.u64()?);
        r.is_empty().then_some(AggregateRec {
            next_volume,
            in_use,
            position,
            last_mark,
        })
    }
}

/// State of a volume that only checkpoints use. No other thread waits for its lock.
pub(crate) struct Catalog {
    /// The volume's record as stored by the last checkpoint.
    pub(crate) rec: VolumeRec,
    /// True if the record was stored at all.
    pub(crate) stored: bool,
    /// Snapshots by their place in the chain, oldest first.
    pub(crate) snapshots: BTreeMap<u32, SnapshotRec>,
    /// Removed inodes whose records are still being deleted.
    pub(crate) orphans: Vec<Ino>,
    /// The volume's stored annotation; empty: none.
    pub(crate) annotation: Arc<str>,
    /// Reference counts that the next checkpoint sets for a repair.
    pub(crate) corrections: Vec<(CountedBlock, u64)>,
}

impl Catalog {
    pub(crate) fn newest(&self) -> Option<&SnapshotRec> {
        self.snapshots.values().next_back()
    }

    /// Returns the place of the snapshot with this identity.
    pub(crate) fn place_of(&self, id: u32) -> Option<u32> {
        // Places are in the order of identities, and usually equal to them.
        let at = |number: &u32| self.snapshots.get(number).is_some_and(|s| s.id == id);
        if at(&id) {
            return Some(id);
        }
        self.snapshots
            .values()
            .find(|s| s.id == id)
            .map(|s| s.number)
    }
}

#[cfg(test)]
mod tests {
    use weir_base::AggregateId;

    use super::*;

    #[test]
    fn records_round_trip() {
        let mut v = VolumeRec {
            name: "vol1".into(),
            root: TreeRoot::EMPTY,
            key: HashKey(1, 2),
            next_ino: 3,
            limit: 4,
            used: 5,
            next_snapshot: 6,
            next_place: 11,
            dead: TreeRoot::EMPTY,
            dead_blocks: 7,
            change_base: 8,
            change_top: 9,
            origin: None,
            mirror: None,
        };
        assert_eq!(VolumeRec::decode(&v.encode()), Some(v.clone()));
        v.origin = Some(Origin {
            volume: VolumeId(8),
            snapshot: 9,
            generation: Generation(10),
        });
        assert_eq!(VolumeRec::decode(&v.encode()), Some(v.clone()));
        let identity = |id| SnapshotIdentity {
            aggregate: AggregateId([id as u8; 16]),
            volume: VolumeId(u64::from(id) + 1),
            snapshot: id,
            birth: Time { secs: -1, nanos: 2 },
        };
        for base in [None, Some(identity(3))] {
            v.mirror = Some(MirrorRec {
                exported: 11,
                transfer: Some(TransferRec {
                    base,
                    target: identity(4),
                    position: Key::new(5, 6, 7),
                    digest: 8,
                    logical: 9,
                    wire: 10,
                }),
            });
            assert_eq!(VolumeRec::decode(&v.encode()), Some(v.clone()));
        }
        v.mirror = Some(MirrorRec::default());
        assert_eq!(VolumeRec::decode(&v.encode()), Some(v.clone()));
        assert_eq!(VolumeRec::decode(&v.encode()[..20]), None);
        let mut s = SnapshotRec {
            id: 9,
            number: 12,
            name: "before".into(),
            label: "daily".into(),
            root: TreeRoot::EMPTY,
            generation: Generation(7),
            created: Time { secs: -1, nanos: 2 },
            next_ino: 3,
            used: 8,
            unique: 10,
            source: None,
            content: None,
        };
        let content = ContentHash::decode(&[7; ContentHash::LEN]);
        for (source, content) in [
            (None, None),
            (Some(identity(2)), None),
            (None, Some(content)),
            (Some(identity(2)), Some(content)),
        ] {
            (s.source, s.content) = (source, content);
            assert_eq!(SnapshotRec::decode(12, &s.encode()), Some(s.clone()));
        }
    }

    #[test]
    fn jobs_round_trip() {
        let places = Places {
            died: (1, 2),
            born: (0, u32::MAX),
        };
        let (root, from) = (TreeRoot::EMPTY, Key::new(1, 2, 3));
        let since = Generation(4);
        for job in [
            Job::Reap { root, since, from },
            Job::ReapDead {
                root,
                from,
                spared: vec![places; 3],
            },
            Job::Free(places),
            Job::Forget(places),
            Job::Split { from },
        ] {
            let bytes = job.encode();
            assert_eq!(Job::decode(&bytes).as_ref(), Some(&job));
            assert_eq!(Job::decode(&bytes[..bytes.len() - 1]), None);
        }
        let long = "é".repeat(MAX_ANNOTATION / 2);
        let pieces = annotation_pieces(&long);
        assert_eq!(pieces.concat(), long);
        assert_eq!(pieces.len(), MAX_ANNOTATION / ANNOTATION_PIECE);
        assert!(annotation_pieces("").is_empty());
        let text = "a".repeat(ANNOTATION_PIECE);
        let bytes = encode_annotation(&text);
        assert_eq!(decode_annotation(&bytes), Some(text));
        assert_eq!(decode_annotation(&[VERSION]), None);
        assert_eq!(decode_annotation(&[&bytes[..], b"a"].concat()), None);
        assert!(places.contains(2, 7) && !places.contains(3, 7));
        for in_use in [false, true] {
            let rec = AggregateRec {
                next_volume: 9,
                in_use,
                position: StreamPosition {
                    term: 1,
                    sequence: 2,
                },
                last_mark: MarkId(3),
            };
            assert_eq!(AggregateRec::decode(&rec.encode()), Some(rec));
        }
    }
}
