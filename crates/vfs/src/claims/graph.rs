//! Graph of the owners that wait for locks, for the detection of deadlocks.
//!
//! An owner that waits for a lock waits for every owner whose lock is in the way. If one of those,
//! directly or over others that wait, waits for the first owner itself, none of them would ever go
//! on. The search begins when a request is to be queued, which is the only moment at which such a
//! cycle can close. It follows the waits of owners that wait themselves: the others cannot be part
//! of a cycle.
//!
//! A lock may be in the way of very many (shared locks of thousands of processes), and very many
//! may wait. So a step takes the side that is smaller: the owners in the way, if they are [`FEW`]
//! at most, else those that wait. After [`SEARCH`] comparisons the search ends, and a deadlock
//! behind that is not found: its owners wait until one gives up, as POSIX allows (EDEADLK "may" be
//! reported). Linux ends after ten.

use super::Claims;
use super::file::tree::step;
use super::map::{HashMap, HashSet};
use super::types::{Lock, Owner, Range};
use crate::handle::FileId;

pub(super) use weir_base::limits::protocol::DEADLOCK_SEARCH as SEARCH;

/// Owners in the way that are followed one by one.
const FEW: usize = 64;

struct Wait {
    file: FileId,
    number: u64,
    range: Range,
    exclusive: bool,
    mandatory: bool,
}

/// Graph of the owners that wait (see the module's head).
#[derive(Default)]
pub(super) struct Graph {
    waits: HashMap<Owner, Vec<Wait>>,
}

impl Graph {
    pub(super) fn add(&mut self, owner: Owner, file: FileId, number: u64, want: &Lock) {
        let wait = Wait {
            file,
            number,
            range: want.range,
            exclusive: want.exclusive,
            mandatory: want.mandatory,
        };
        let waits = self.waits.entry(owner).or_default();
        waits.reserve_exact(1);
        waits.push(wait);
    }

    pub(super) fn remove(&mut self, owner: &Owner, number: u64) {
        if let Some(waits) = self.waits.get_mut(owner) {
            waits.retain(|w| w.number != number);
            if waits.is_empty() {
                self.waits.remove(owner);
                super::ledger::shrink(&mut self.waits);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Returns true if this very request is queued.
    pub(super) fn has_wait(&self, owner: &Owner, file: FileId, want: &Lock) -> bool {
        let same = |w: &Wait| {
            w.file == file
                && w.range == want.range
                && w.exclusive == want.exclusive
                && w.mandatory == want.mandatory
        };
        self.waits
            .get(owner)
            .is_some_and(|waits| waits.iter().any(same))
    }

    /// Returns true if waiting for `want` would close a cycle. No shard may be locked.
    pub(super) fn closes_cycle(&self, table: &Claims, file: FileId, want: &Lock) -> bool {
        // Nobody waits, so nobody waits for this owner.
        if self.waits.is_empty() {
            return false;
        }
        let mut left = SEARCH;
        let mut seen: HashSet<&Owner> = HashSet::default();
        let mut next = vec![(file, want.clone())];
        while let Some((file, lock)) = next.pop() {
            let Some(blockers) = self.blockers(table, file, &lock, &want.owner, &mut left) else {
                return true;
            };
            for owner in blockers {
                if !seen.insert(owner) {
                    continue;
                }
                for wait in self.waits.get(owner).into_iter().flatten() {
                    // Saturates: the search ends when nothing is left.
                    left = left.saturating_sub(1);
                    let lock = Lock {
                        owner: owner.clone(),
                        range: wait.range,
                        exclusive: wait.exclusive,
                        mandatory: wait.mandatory,
                    };
                    // A request that was granted or cancelled a moment ago is not waited for.
                    let shard = table.shard(wait.file);
                    if shard
                        .get(&wait.file)
                        .is_some_and(|f| f.waiting.contains_key(&wait.number))
                    {
                        next.push((wait.file, lock));
                    }
                }
            }
            if left == 0 {
                tracing::debug!(?file, "the search for a deadlock was ended");
                return false;
            }
        }
        false
    }

    /// Returns the waiting owners whose locks are in the way of `lock`; `None` if one of `seeker`'s
    /// is.
    fn blockers<'g>(
        &'g self,
        table: &Claims,
        file: FileId,
        lock: &Lock,
        seeker: &Owner,
        left: &mut usize,
    ) -> Option<Vec<&'g Owner>> {
        let shard = table.shard(file);
        let Some(f) = shard.get(&file) else {
            return Some(Vec::new());
        };
        if f.blocks(seeker, lock) {
            return None;
        }
        let few = f.blockers(lock, FEW);
        // Saturates: the search ends when nothing is left.
        *left = left.saturating_sub(few.len());
        if few.len() < FEW {
            let waiting = few.iter().filter_map(|o| self.waits.get_key_value(o));
            return Some(waiting.map(|(owner, _)| owner).collect());
        }
        let mut out = Vec::new();
        for owner in self.waits.keys() {
            if *left == 0 {
                break;
            }
            *left -= 1;
            step();
            if f.blocks(owner, lock) {
                out.push(owner);
            }
        }
        Some(out)
    }
}
