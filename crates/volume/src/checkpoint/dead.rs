//! Dead blocks: those that a snapshot still refers to and the volume does not.
//!
//! Once a snapshot exists, a block that the volume drops is freed only if it was born after the
//! newest snapshot. If not, it is recorded in the volume's *dead tree*, under two snapshots. D is
//! the newest one when it died. B is the oldest one that refers to it, which follows from its
//! birth. Exactly the snapshots from B to D refer to it. So it can be freed when no snapshot is
//! left between B and D, both included, which follows from their numbers. A record is not touched
//! again until its blocks are freed. Deleting a snapshot S with the neighbours P and N frees the
//! groups with B in (P, S] and D in [S, N). These are exactly the blocks that only S refers to.
//!
//! (Matthew Ahrens' dead lists, "Is it magic? How ZFS implements snapshots", 2005, keep one list
//! for each snapshot. Deleting a snapshot appends the unfreed blocks to its neighbour's list; his
//! later sub-lists save scanning it. With both ends in the key nothing moves at all.)
//!
//! For each group the tree has its *sum*, the number of blocks. So the space that a snapshot holds
//! is known without reading the blocks.

use std::ops::ControlFlow;

use weir_base::{BlockAddr, Generation};
use weir_store::StoreError;
use weir_store::checkpoint::Run;
use weir_store::node::Key;
use weir_store::tree::{Edit, NodeSource, TreeRoot};

use crate::format::catalog::{Catalog, Places};
use crate::format::codec::{Put, Reader};
use crate::format::reading::{get, scan};

/// Kinds of key below D.
pub(crate) mod kind {
    /// The sum of a group (sub = B << 32).
    pub(crate) const SUM: u8 = 0;
    /// A piece of a group (sub = B << 32 | number).
    pub(crate) const PIECE: u8 = 1;
}

/// Runs in one piece, of 20 bytes each.
pub(crate) const RUNS: usize = weir_base::limits::MAX_VALUE / 20;

/// Summary of a group, without its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sum {
    /// Number of blocks in all pieces of the group.
    pub(crate) blocks: u64,
    /// Number of pieces, which is the number of the next one.
    pub(crate) pieces: u32,
}

impl Sum {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        out.put_u64(self.blocks);
        out.put_u32(self.pieces);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Sum> {
        let mut r = Reader::new(bytes);
        let (blocks, pieces) = (r.u64()?, r.u32()?);
        r.is_empty().then_some(Sum { blocks, pieces })
    }
}

pub(crate) fn key(died: u32, kind: u8, born: u32, piece: u32) -> Key {
    let sub = u64::from(born) << 32 | u64::from(piece);
    Key::new(u64::from(died), kind, sub)
}

/// Returns the B of a key.
pub(crate) fn born_of(key: &Key) -> u32 {
    (key.sub >> 32) as u32
}

pub(crate) fn encode(runs: &[Run]) -> Vec<u8> {
    let mut out = Vec::with_capacity(runs.len() * 20);
    for run in runs {
        out.put_u64(run.addr.0);
        out.put_u64(run.birth.0);
        out.put_u32(run.count);
    }
    out
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Run>> {
    let mut r = Reader::new(bytes);
    let mut runs = Vec::with_capacity(bytes.len() / 20);
    while !r.is_empty() {
        runs.push(Run {
            addr: BlockAddr(r.u64()?),
            birth: Generation(r.u64()?),
            count: r.u32()?,
        });
    }
    Some(runs)
}

pub(crate) fn malformed() -> StoreError {
    StoreError::Format("a record of dead blocks is malformed".into())
}

fn newer() -> StoreError {
    StoreError::Format("a dead block is newer than every snapshot".into())
}

/// Sorts runs by birth and address, and joins adjacent ones.
fn join(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|r| (r.birth, r.addr));
    let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last)
                if last.birth == run.birth
                    && last.addr.0 + u64::from(last.count) == run.addr.0
                    && last.count.checked_add(run.count).is_some() =>
            {
                last.count += run.count;
            }
            _ => joined.push(run),
        }
    }
    joined
}

impl Catalog {
    /// Records blocks that have just died; a snapshot refers to them. Returns the edits of the dead
    /// tree.
    pub(crate) fn bury(
        &mut self,
        src: &impl NodeSource,
        runs: Vec<Run>,
    ) -> Result<Vec<Edit>, StoreError> {
        let mut edits = Vec::new();
        let births: Vec<(Generation, u32)> = self
            .snapshots
            .values()
            .map(|s| (s.generation, s.number))
            .collect();
        let Some((_, died)) = births.last().copied() else {
            return match runs.is_empty() {
                true => Ok(edits),
                false => Err(StoreError::Format("dead blocks without a snapshot".into())),
            };
        };
        let runs = join(runs);
        let mut rest = runs.as_slice();
        while let Some(first) = rest.first() {
            let at = births.partition_point(|(generation, _)| *generation < first.birth);
            let (until, born) = births.get(at).copied().ok_or_else(newer)?;
            let (group, others) = rest.split_at(rest.partition_point(|r| r.birth <= until));
            rest = others;
            self.bury_group(src, died, born, group, &mut edits)?;
        }
        Ok(edits)
    }

    fn bury_group(
        &mut self,
        src: &impl NodeSource,
        died: u32,
        born: u32,
        group: &[Run],
        edits: &mut Vec<Edit>,
    ) -> Result<(), StoreError> {
        let sum_key = key(died, kind::SUM, born, 0);
        let mut sum = match get(src, &self.rec.dead, &sum_key)? {
            Some(value) => Sum::decode(&value).ok_or_else(malformed)?,
            None => Sum::default(),
        };
        let blocks: u64 = group.iter().map(|r| u64::from(r.count)).sum();
        sum.blocks += blocks;
        // The last piece is filled up, so that many small checkpoints do not leave as many small
        // pieces.
        let mut runs = Vec::new();
        if let Some(last) = sum.pieces.checked_sub(1) {
            let last_key = key(died, kind::PIECE, born, last);
            if let Some(value) = get(src, &self.rec.dead, &last_key)? {
                let found = decode(&value).ok_or_else(malformed)?;
                if found.len() < RUNS {
                    runs = found;
                    sum.pieces = last;
                }
            }
        }
        runs.extend_from_slice(group);
        for piece in runs.chunks(RUNS) {
            edits.push(Edit::Put(
                key(died, kind::PIECE, born, sum.pieces),
                encode(piece),
            ));
            sum.pieces = sum.pieces.checked_add(1).ok_or_else(malformed)?;
        }
        edits.push(Edit::Put(sum_key, sum.encode()));
        self.rec.dead_blocks += blocks;
        if born == died
            && let Some(newest) = self.snapshots.get_mut(&died)
        {
            newest.unique += blocks;
        }
        Ok(())
    }
}

/// Calls `each` with D, B and sum of the groups at these places.
pub(crate) fn sums(
    src: &impl NodeSource,
    root: &TreeRoot,
    places: Places,
    each: &mut dyn FnMut(u32, u32, Sum),
) -> Result<(), StoreError> {
    let mut died = places.died.0;
    let mut bad = false;
    loop {
        // Find the next existing D.
        let mut found = None;
        let from = key(died, kind::SUM, 0, 0);
        let to = key(places.died.1, u8::MAX, u32::MAX, u32::MAX);
        if from > to {
            break;
        }
        scan(src, root, from, to, &mut |key, _| {
            found = u32::try_from(key.ino).ok();
            ControlFlow::Break(())
        })?;
        let Some(next) = found else { break };
        let from = key(next, kind::SUM, places.born.0, 0);
        let to = key(next, kind::SUM, places.born.1, u32::MAX);
        if from <= to {
            scan(src, root, from, to, &mut |key, value| {
                match Sum::decode(value) {
                    Some(sum) => each(next, born_of(&key), sum),
                    None => bad = true,
                }
                ControlFlow::Continue(())
            })?;
        }
        match next.checked_add(1) {
            Some(after) if after <= places.died.1 => died = after,
            _ => break,
        }
    }
    match bad {
        true => Err(malformed()),
        false => Ok(()),
    }
}

/// Returns the number of blocks in the groups at these places.
pub(crate) fn total(
    src: &impl NodeSource,
    root: &TreeRoot,
    places: Places,
) -> Result<u64, StoreError> {
    let mut blocks = 0;
    sums(src, root, places, &mut |_, _, sum| blocks += sum.blocks)?;
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_round_trip() {
        let runs: Vec<Run> = (0..RUNS as u64)
            .map(|i| Run {
                addr: BlockAddr(i * 10),
                count: i as u32,
                birth: Generation(i),
            })
            .collect();
        let bytes = encode(&runs);
        assert!(bytes.len() <= weir_base::limits::MAX_VALUE);
        assert_eq!(decode(&bytes), Some(runs));
        assert_eq!(decode(&bytes[1..]), None);
        let sum = Sum {
            blocks: 7,
            pieces: 8,
        };
        assert_eq!(Sum::decode(&sum.encode()), Some(sum));
    }

    #[test]
    fn neighbours_of_one_age_are_joined() {
        let run = |addr, count, birth| Run {
            addr: BlockAddr(addr),
            count,
            birth: Generation(birth),
        };
        let joined = join(vec![
            run(12, 1, 1),
            run(10, 2, 1),
            run(13, 1, 2),
            run(20, 1, 1),
        ]);
        assert_eq!(joined, [run(10, 3, 1), run(20, 1, 1), run(13, 1, 2)]);
    }
}
