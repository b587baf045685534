//! Freeing a tree, piece by piece.
//!
//! Of a tree that nothing leads to any more, the nodes and what their records
//! refer to are to be freed, except for what it shares with an older tree: and that is exactly what
//! was born no later than the older tree. A subtree whose pointer is so old is left without being
//! read, so the cost is what is freed.
//!
//! It goes in key order and can stop between any two leaves. An interior node is
//! freed when the last subtree below it is. So what is left at a stop is the path to the next key
//! and everything behind it; nothing on it has been freed, and the key is all that has to be
//! remembered. What precedes it may have been overwritten by others, and is not read again.

use weir_base::Generation;

use super::{NodeSource, Stop, TreeRoot, view};
use crate::block::BlockPtr;
use crate::error::StoreError;
use crate::node::Key;

/// Children announced to the source at once.
const AHEAD: usize = 32;

/// Takes what [`reap`] frees.
pub trait Reaper {
    /// A node. What is below it has been freed before.
    fn node(&mut self, ptr: &BlockPtr);

    /// A record of a leaf that is being freed.
    fn record(&mut self, key: Key, value: &[u8]);

    /// A node is damaged: what is below it cannot be found and stays allocated.
    fn lost(&mut self, ptr: &BlockPtr, error: &StoreError);

    /// Asked before each node: `true` stops.
    fn enough(&self) -> bool;
}

/// Frees the part of a tree that was born after `since`, from the key `from` on. Returns the key to
/// go on from; `None` if it is done. A node that cannot be read for the moment is a stop, too; the
/// source must not return [`Stop::Fetch`].
pub fn reap(
    src: &impl NodeSource,
    root: &TreeRoot,
    since: Generation,
    from: Key,
    reaper: &mut dyn Reaper,
) -> Option<Key> {
    let (ptr, level) = root.top()?;
    let mut reap = Reap {
        src,
        since,
        from,
        reaper,
    };
    reap.subtree(&ptr, level, from).err()
}

struct Reap<'a, S> {
    src: &'a S,
    since: Generation,
    from: Key,
    reaper: &'a mut dyn Reaper,
}

impl<S: NodeSource> Reap<'_, S> {
    /// `Err` with the key to go on from.
    fn subtree(&mut self, ptr: &BlockPtr, level: u8, first: Key) -> Result<(), Key> {
        if ptr.birth <= self.since {
            return Ok(());
        }
        let here = first.max(self.from);
        if self.reaper.enough() {
            return Err(here);
        }
        let frame = match self.src.node(ptr) {
            Ok(frame) => frame,
            Err(Stop::Fail(error @ StoreError::Corrupt { .. })) => {
                self.reaper.lost(ptr, &error);
                return Ok(());
            }
            Err(_) => return Err(here),
        };
        let node = match view(ptr, level, &frame).and_then(|node| node.validate().map(|()| node)) {
            Ok(node) => node,
            Err(error) => {
                self.reaper.lost(ptr, &error);
                return Ok(());
            }
        };
        if level == 0 {
            for i in 0..node.count() {
                match node.value(i) {
                    Ok(value) => self.reaper.record(node.key(i), value),
                    Err(error) => self.reaper.lost(ptr, &error),
                }
            }
            self.reaper.node(ptr);
            return Ok(());
        }
        // Saturates: what comes before the first key belongs to the first child.
        let start = node.rank(&self.from).saturating_sub(1);
        for i in start..node.count() {
            if (i - start).is_multiple_of(AHEAD) && level <= 2 {
                let ahead: Vec<BlockPtr> = (i..node.count().min(i + AHEAD))
                    .filter_map(|i| node.child(i).ok())
                    .filter(|child| child.birth > self.since)
                    .collect();
                if !ahead.is_empty() && !self.reaper.enough() {
                    self.src.prefetch(&ahead);
                }
            }
            match node.child(i) {
                Ok(child) => self.subtree(&child, level - 1, node.key(i))?,
                Err(error) => self.reaper.lost(ptr, &error),
            }
        }
        self.reaper.node(ptr);
        Ok(())
    }
}
