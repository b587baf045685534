//! Jobs that checkpoints carry out in bounded steps.

use weir_base::{Generation, VolumeId};
use weir_store::node::Key;
use weir_store::tree::{ROOT_SIZE, TreeRoot};

use super::{VERSION, kind};
use crate::format::codec::{Put, Reader};

/// Ranges of snapshots that dead blocks belong to, by their places in the chain. Both ends are
/// inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// Range of the newest snapshot that refers to the blocks.
    pub(crate) died: (u32, u32),
    /// Range of the oldest snapshot that refers to the blocks.
    pub(crate) born: (u32, u32),
}

impl Places {
    pub(crate) fn contains(&self, died: u64, born: u32) -> bool {
        let within =
            |n: u64, (from, to): (u32, u32)| (u64::from(from)..=u64::from(to)).contains(&n);
        within(died, self.died) && within(u64::from(born), self.born)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.died.0, self.died.1, self.born.0, self.born.1] {
            out.put_u32(n);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Option<Places> {
        Some(Places {
            died: (r.u32()?, r.u32()?),
            born: (r.u32()?, r.u32()?),
        })
    }
}

/// A job that checkpoints carry out in bounded steps. A step and the remainder after it become
/// durable together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// Frees the blocks of a tree that are younger than `since`.
    Reap {
        root: TreeRoot,
        since: Generation,
        from: Key,
    },
    /// Frees a deleted volume's dead blocks and their tree, except the blocks at `spared`, which
    /// the volume's own tree refers to again.
    ReapDead {
        root: TreeRoot,
        from: Key,
        spared: Vec<Places>,
    },
    /// Frees the blocks at these places: nothing refers to them.
    Free(Places),
    /// Forgets the blocks at these places: the volume refers to them again.
    Forget(Places),
    /// Copies the blocks that a clone shares with its origin, from this key on.
    Split { from: Key },
}

impl Job {
    pub(crate) fn key(id: VolumeId, number: u64) -> Key {
        Key::new(id.0, kind::JOB, number)
    }

    /// Returns true if the job works on a tree that its volume still uses.
    pub(crate) fn needs_volume(&self) -> bool {
        matches!(self, Job::Free(_) | Job::Forget(_) | Job::Split { .. })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.put_u8(VERSION);
        match self {
            Job::Reap { root, since, from } => {
                out.put_u8(1);
                out.put(&root.encode());
                out.put_u64(since.0);
                out.put(&from.encode());
            }
            Job::ReapDead { root, from, spared } => {
                out.put_u8(2);
                out.put(&root.encode());
                out.put(&from.encode());
                for places in spared {
                    places.encode(&mut out);
                }
            }
            Job::Free(places) => {
                out.put_u8(3);
                places.encode(&mut out);
            }
            Job::Forget(places) => {
                out.put_u8(4);
                places.encode(&mut out);
            }
            Job::Split { from } => {
                out.put_u8(5);
                out.put(&from.encode());
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Job> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return None;
        }
        let kind = r.u8()?;
        let root = |r: &mut Reader<'_>| Some(TreeRoot::decode(&r.array::<ROOT_SIZE>()?));
        let key = |r: &mut Reader<'_>| Some(Key::decode(&r.array()?));
        let job = match kind {
            1 => Job::Reap {
                root: root(&mut r)?,
                since: Generation(r.u64()?),
                from: key(&mut r)?,
            },
            2 => {
                let (root, from) = (root(&mut r)?, key(&mut r)?);
                let mut spared = Vec::new();
                while !r.is_empty() {
                    spared.push(Places::decode(&mut r)?);
                }
                Job::ReapDead { root, from, spared }
            }
            3 => Job::Free(Places::decode(&mut r)?),
            4 => Job::Forget(Places::decode(&mut r)?),
            5 => Job::Split { from: key(&mut r)? },
            _ => return None,
        };
        r.is_empty().then_some(job)
    }
}
