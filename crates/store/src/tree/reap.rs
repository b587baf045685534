//! Frees a tree, piece by piece.
//!
//! When nothing leads to a tree any more, its nodes and the blocks of its records are freed, except
//! for those that it shares with an older tree. Exactly the blocks born no later than the older
//! tree are shared. A subtree whose pointer is that old is skipped unread, so the cost is
//! proportional to the freed part.
//!
//! Freeing goes in key order and can stop between any two leaves. An interior node is freed when
//! the last subtree below it is. So at a stop the path to the next key and everything behind it is
//! left. Nothing on the path has been freed, and only the key has to be remembered. Nodes before it
//! may have been overwritten, and are not read again.

use weir_base::Generation;

use super::{NodeSource, Stop, TreeRoot, view};
use crate::block::BlockPtr;
use crate::error::StoreError;
use crate::node::Key;

/// Number of children announced to the source at once.
const AHEAD: usize = 32;

/// Receives the parts that [`reap`] frees.
pub trait Reaper {
    /// Frees a node. Its subtree has been freed before.
    fn node(&mut self, ptr: &BlockPtr);

    /// Frees a record of a leaf that is being freed.
    fn record(&mut self, key: Key, value: &[u8]);

    /// Reports a damaged node: its subtree cannot be found and stays allocated.
    fn lost(&mut self, ptr: &BlockPtr, error: &StoreError);

    /// Returns `true` to stop. Called before each node.
    fn enough(&self) -> bool;
}

/// Frees the part of a tree that was born after `since`, from the key `from` on. Returns the key to
/// continue from; `None` if the tree is freed. A node that cannot be read for the moment stops it,
/// too. The source must not return [`Stop::Fetch`].
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
    /// Frees a subtree; returns `Err` with the key to continue from.
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
        // Saturates: a key before the first one belongs to the first child.
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
