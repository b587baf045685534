//! The aggregate's own tree: volumes, their snapshots, and dead lists.
//!
//! Keys begin with the volume's number where a volume's tree has an inode number.

use std::collections::BTreeMap;

use weir_base::{BlockAddr, Generation, Ino, Time, VolumeId};
use weir_store::node::Key;
use weir_store::tree::{ROOT_SIZE, TreeRoot};

use crate::codec::{Put, Reader};
use crate::hash::HashKey;

/// The name under which the aggregate's own tree marks its nodes.
pub(crate) const AGGREGATE_TREE: VolumeId = VolumeId(0);

/// Kinds of key below a volume's number.
pub(crate) mod kind {
    /// The volume record (sub 0).
    pub(crate) const VOLUME: u8 = 1;
    /// A snapshot (sub = its number).
    pub(crate) const SNAPSHOT: u8 = 2;
    /// A piece of a dead list (sub = snapshot number << 32 | sequence).
    pub(crate) const DEAD: u8 = 3;
}

/// Longest name of a volume or snapshot in bytes.
pub const MAX_VOLUME_NAME: usize = 255;

const VERSION: u8 = 1;

/// A volume as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeRec {
    pub(crate) name: String,
    pub(crate) root: TreeRoot,
    pub(crate) key: HashKey,
    pub(crate) next_ino: u64,
    /// Capacity in bytes; 0: none.
    pub(crate) limit: u64,
    /// Data blocks and tree nodes.
    pub(crate) used: u64,
    /// Number that the next snapshot gets.
    pub(crate) next_snapshot: u32,
}

impl VolumeRec {
    pub(crate) fn key(id: VolumeId) -> Key {
        Key::new(u64::from(id.0), kind::VOLUME, 0)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80 + self.name.len());
        out.put_u8(VERSION);
        out.put(&self.root.encode());
        out.put_u64(self.key.0);
        out.put_u64(self.key.1);
        out.put_u64(self.next_ino);
        out.put_u64(self.limit);
        out.put_u64(self.used);
        out.put_u32(self.next_snapshot);
        out.put(self.name.as_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<VolumeRec> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return None;
        }
        let root = TreeRoot::decode(&r.array::<ROOT_SIZE>()?);
        let key = HashKey(r.u64()?, r.u64()?);
        let (next_ino, limit, used) = (r.u64()?, r.u64()?, r.u64()?);
        let next_snapshot = r.u32()?;
        Some(VolumeRec {
            root,
            key,
            next_ino,
            limit,
            used,
            next_snapshot,
            name: name(r.rest())?,
        })
    }
}

/// A snapshot as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotRec {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) root: TreeRoot,
    /// The consistency point that it is of: blocks born later are not in it.
    pub(crate) generation: Generation,
    pub(crate) created: Time,
    /// Number of pieces of its dead list: blocks that it refers to and that were
    /// freed while it was the newest snapshot.
    pub(crate) dead_pieces: u32,
}

impl SnapshotRec {
    pub(crate) fn key(id: VolumeId, number: u32) -> Key {
        Key::new(u64::from(id.0), kind::SNAPSHOT, u64::from(number))
    }

    pub(crate) fn dead_key(id: VolumeId, number: u32, piece: u32) -> Key {
        let sub = u64::from(number) << 32 | u64::from(piece);
        Key::new(u64::from(id.0), kind::DEAD, sub)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.name.len());
        out.put_u8(VERSION);
        out.put(&self.root.encode());
        out.put_u64(self.generation.0);
        out.put_i64(self.created.secs);
        out.put_u32(self.created.nanos);
        out.put_u32(self.dead_pieces);
        out.put(self.name.as_bytes());
        out
    }

    pub(crate) fn decode(number: u64, bytes: &[u8]) -> Option<SnapshotRec> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return None;
        }
        let root = TreeRoot::decode(&r.array::<ROOT_SIZE>()?);
        let generation = Generation(r.u64()?);
        let created = Time {
            secs: r.i64()?,
            nanos: r.u32()?,
        };
        Some(SnapshotRec {
            number: u32::try_from(number).ok()?,
            root,
            generation,
            created,
            dead_pieces: r.u32()?,
            name: name(r.rest())?,
        })
    }
}

fn name(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() || bytes.len() > MAX_VOLUME_NAME {
        return None;
    }
    String::from_utf8(bytes.to_vec()).ok()
}

/// A volume's catalog entries in memory.
pub(crate) struct Catalog {
    /// As stored last.
    pub(crate) rec: VolumeRec,
    /// It has been stored at all.
    pub(crate) stored: bool,
    /// Snapshots to be made by the next consistency point.
    pub(crate) pending_create: Vec<(String, Time)>,
    /// Snapshots to be deleted by it.
    pub(crate) pending_delete: Vec<u32>,
    /// Snapshots by number, oldest first.
    pub(crate) snapshots: BTreeMap<u32, SnapshotRec>,
    /// Removed inodes whose records are still being deleted.
    pub(crate) orphans: Vec<Ino>,
}

impl Catalog {
    /// The generation of the newest snapshot.
    pub(crate) fn newest_snapshot(&self) -> Option<Generation> {
        self.snapshots.values().next_back().map(|s| s.generation)
    }
}

/// Blocks that the current tree no longer refers to and a snapshot does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeadRun {
    pub(crate) addr: BlockAddr,
    pub(crate) count: u32,
    pub(crate) birth: Generation,
}

/// Runs in one piece of a dead list: 20 bytes each.
pub(crate) const DEAD_RUNS: usize = weir_base::limits::MAX_VALUE / 20;

pub(crate) fn encode_dead(runs: &[DeadRun]) -> Vec<u8> {
    let mut out = Vec::with_capacity(runs.len() * 20);
    for run in runs {
        out.put_u64(run.addr.0);
        out.put_u64(run.birth.0);
        out.put_u32(run.count);
    }
    out
}

pub(crate) fn decode_dead(bytes: &[u8]) -> Option<Vec<DeadRun>> {
    let mut r = Reader::new(bytes);
    let mut runs = Vec::with_capacity(bytes.len() / 20);
    while !r.is_empty() {
        runs.push(DeadRun {
            addr: BlockAddr(r.u64()?),
            birth: Generation(r.u64()?),
            count: r.u32()?,
        });
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let v = VolumeRec {
            name: "vol1".into(),
            root: TreeRoot::EMPTY,
            key: HashKey(1, 2),
            next_ino: 3,
            limit: 4,
            used: 5,
            next_snapshot: 6,
        };
        assert_eq!(VolumeRec::decode(&v.encode()), Some(v.clone()));
        assert_eq!(VolumeRec::decode(&v.encode()[..20]), None);
        let s = SnapshotRec {
            number: 9,
            name: "before".into(),
            root: TreeRoot::EMPTY,
            generation: Generation(7),
            created: Time { secs: -1, nanos: 2 },
            dead_pieces: 8,
        };
        assert_eq!(SnapshotRec::decode(9, &s.encode()), Some(s));
    }

    #[test]
    fn dead_lists_round_trip() {
        let runs: Vec<DeadRun> = (0..DEAD_RUNS as u64)
            .map(|i| DeadRun {
                addr: BlockAddr(i * 10),
                count: i as u32,
                birth: Generation(i),
            })
            .collect();
        let bytes = encode_dead(&runs);
        assert!(bytes.len() <= weir_base::limits::MAX_VALUE);
        assert_eq!(decode_dead(&bytes), Some(runs));
        assert_eq!(decode_dead(&bytes[1..]), None);
    }
}
