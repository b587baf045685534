//! Merges cloned ranges: the target's windows get the source's blocks, and the counts go up. See
//! [`crate::format::shared_runs`] and [`crate::overlay::shares`].
//!
//! All clones of a segment come before the rest of it, and read the tree from before the segment. A
//! file that is cloned and then overwritten or deleted still has its blocks there. The targets' old
//! blocks are freed after all references have been counted. The rest of the merge begins from the
//! resulting tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weir_base::Ino;
use weir_store::StoreError;
use weir_store::checkpoint::Run;
use weir_store::node::Key;
use weir_store::tree::NodeSource;

use super::Merge;
use crate::format::record::{StoredBlock, WINDOW, Window, kind};
use crate::format::shared_runs::GROUP;
use crate::overlay::delta::Delta;
use crate::overlay::file_delta::FileDelta;

/// Estimated memory of a changed record of counts, in bytes.
const GROUP_BYTES: usize = GROUP as usize * 24;

/// A window of a target.
struct Target {
    start: u64,
    window: Window,
    /// Number of blocks that it had; `None` if it did not exist.
    had: Option<u64>,
}

/// Blocks whose references are dropped after all have been counted.
#[derive(Default)]
struct DroppedRuns(Vec<Run>);

impl DroppedRuns {
    fn push(&mut self, block: StoredBlock) {
        match self.0.last_mut() {
            Some(last)
                if last.birth == block.birth
                    && last.addr.0 + u64::from(last.count) == block.addr.0
                    && last.count < u32::MAX =>
            {
                last.count += 1;
            }
            _ => self.0.push(Run {
                addr: block.addr,
                count: 1,
                birth: block.birth,
            }),
        }
    }
}

fn blocks_of(run: Run) -> impl Iterator<Item = StoredBlock> {
    (run.addr.0..)
        .take(run.count as usize)
        .map(move |addr| StoredBlock {
            addr: weir_base::BlockAddr(addr),
            birth: run.birth,
            crc: 0,
        })
}

impl<S: NodeSource> Merge<'_, S> {
    /// Gives the targets of all clones the blocks of their sources.
    pub(super) fn clones(&mut self, deltas: &[(Ino, Arc<Delta>)]) -> Result<(), StoreError> {
        let mut dropped = DroppedRuns::default();
        for (ino, delta) in deltas.iter().filter(|(_, delta)| !delta.dead) {
            let Some(data) = delta.data.as_deref().filter(|d| !d.shares().is_empty()) else {
                // The file is not the target of a clone.
                continue;
            };
            let change = self.target(*ino, delta.new, data, &mut dropped)?;
            self.blocks += change;
            self.cloned.insert(*ino, change);
        }
        if self.cloned.is_empty() {
            return Ok(());
        }
        self.apply()?;
        for run in dropped.0 {
            self.free_blocks(blocks_of(run))?;
        }
        self.apply()?;
        self.old = self.root;
        Ok(())
    }

    /// Adds a reference to a block.
    fn refer(&mut self, block: StoredBlock) -> Result<(), StoreError> {
        let before = self.shared.changed();
        self.shared.share(self.src, &self.root, block)?;
        self.bytes += (self.shared.changed() - before) * GROUP_BYTES;
        // The file has one more block, the volume has not.
        self.blocks -= 1;
        Ok(())
    }

    /// Drops a reference to a block. Returns true if others remain.
    pub(super) fn drop_reference(&mut self, block: StoredBlock) -> Result<bool, StoreError> {
        let before = self.shared.changed();
        let shared = self.shared.release(self.src, &self.root, block)?;
        let changed = self.shared.changed() - before;
        self.bytes += changed * GROUP_BYTES;
        // Saturates: records that are read together are changed together.
        self.budget = self.budget.saturating_sub(changed as u64);
        if shared {
            // The file has one block less, the volume has not.
            self.blocks += 1;
        }
        Ok(shared)
    }

    /// Returns the windows that a file had before the segment in a range of its blocks, and the
    /// block from which more may follow.
    fn windows_in(
        &self,
        ino: Ino,
        blocks: Range<u64>,
    ) -> Result<(BTreeMap<u64, Window>, Option<u64>), StoreError> {
        let from = Key::new(ino.0, kind::EXTENT, Window::start_of(blocks.start));
        let to = Key::new(ino.0, kind::EXTENT, Window::start_of(blocks.end - 1));
        let (found, next) = self.windows(from, to)?;
        let found = found.into_iter().map(|(key, window)| (key.sub, window));
        Ok((found.collect(), next.map(|key| key.sub)))
    }

    /// Makes the windows of one target. Returns the change of its number of blocks.
    fn target(
        &mut self,
        ino: Ino,
        is_new: bool,
        data: &FileDelta,
        dropped: &mut DroppedRuns,
    ) -> Result<i64, StoreError> {
        let mut change = 0;
        // Two ranges may meet in one window.
        let mut current: Option<Target> = None;
        for (first, share) in data.shares().iter() {
            let mut at = first;
            while at < share.end {
                let (source, from) = (share.merged.0, share.merged.1 + (at - first));
                let blocks = from..from + (share.end - at);
                let (sources, more) = self.windows_in(source, blocks)?;
                let (mut targets, more_targets) = match is_new {
                    true => (BTreeMap::new(), None),
                    false => self.windows_in(ino, at..share.end)?,
                };
                // Up to where both are known.
                let known = more.map(|block| block - from + at);
                let known = known.into_iter().chain(more_targets).min();
                let end = known.map_or(share.end, |known| known.min(share.end));
                let mut starts: BTreeSet<u64> = targets.keys().copied().collect();
                for start in sources.keys() {
                    let filled = from.max(*start)..(from + (end - at)).min(start + WINDOW);
                    let to = |block: u64| Window::start_of(block - from + at);
                    if !filled.is_empty() {
                        starts.extend([to(filled.start), to(filled.end - 1)]);
                    }
                }
                for start in starts.range(..end).copied() {
                    if current.as_ref().is_none_or(|target| target.start != start) {
                        change += self.put_target(ino, current.take())?;
                        let old = targets.remove(&start);
                        current = Some(Target {
                            start,
                            had: old.as_ref().map(Window::stored),
                            window: old.unwrap_or(Window::EMPTY),
                        });
                    }
                    let Some(target) = &mut current else {
                        unreachable!("it was set above");
                    };
                    for block in at.max(start)..end.min(start + WINDOW) {
                        if data.pages().range(block..=block).next().is_some() {
                            // A page written since replaces the cloned block.
                            continue;
                        }
                        let (seen, of) = (from + (block - at), Window::start_of);
                        let window = sources.get(&of(seen));
                        let new = window.and_then(|w| w.blocks[(seen - of(seen)) as usize]);
                        let slot = &mut target.window.blocks[(block - start) as usize];
                        if *slot == new {
                            continue;
                        }
                        let old = std::mem::replace(slot, new);
                        old.into_iter().for_each(|old| dropped.push(old));
                        if let Some(new) = new {
                            self.refer(new)?;
                        }
                    }
                }
                at = end;
            }
        }
        let least = data.shares().iter().next();
        let least = least.map(|(first, _)| Key::new(ino.0, kind::EXTENT, Window::start_of(first)));
        self.first_target = match (self.first_target, least) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Ok(change + self.put_target(ino, current)?)
    }

    fn put_target(&mut self, ino: Ino, target: Option<Target>) -> Result<i64, StoreError> {
        let Some(Target { start, window, had }) = target else {
            // There is no window yet.
            return Ok(0);
        };
        let key = Key::new(ino.0, kind::EXTENT, start);
        match window.is_empty() {
            false => {
                let mut value = Vec::new();
                window.encode(&mut value);
                self.put(key, value);
            }
            true if had.is_some() => self.del(key),
            true => {}
        }
        self.apply_if_full()?;
        Ok(window.stored() as i64 - had.unwrap_or(0) as i64)
    }
}
