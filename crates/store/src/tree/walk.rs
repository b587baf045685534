//! Visits a whole tree to verify it.

use super::{NodeSource, Stop, TreeRoot, view};
use crate::block::BlockPtr;
use crate::error::StoreError;
use crate::node::{Key, NodeView};

/// Number of leaves announced to the source at a time. Estimated: enough for a device's queue.
const AHEAD: usize = 32;

/// Receives the results of [`walk`].
pub trait Visitor {
    /// Visits a reference to a node that has not been read yet. Returns `false` to skip the node
    /// and its subtree, for example if an earlier walk has seen it.
    fn node(&mut self, ptr: &BlockPtr, level: u8) -> bool;

    /// Visits a record of a leaf.
    fn record(&mut self, key: Key, value: &[u8]);

    /// Reports that the node at `ptr`, and so its subtree from `first` on, is damaged or cannot be
    /// read. Nothing below it is visited.
    fn fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError);

    /// Returns `true` to end the walk. Called after each record.
    fn enough(&self) -> bool {
        false
    }
}

/// Visits each node and record of a tree in key order. Damage is reported and stepped over. The
/// source must not return [`Stop::Fetch`].
pub fn walk(src: &impl NodeSource, root: &TreeRoot, visitor: &mut dyn Visitor) {
    walk_from(src, root, Key::MIN, visitor);
}

/// Like [`walk`], for the records from `from` on and the nodes that lead to them.
pub fn walk_from(src: &impl NodeSource, root: &TreeRoot, from: Key, visitor: &mut dyn Visitor) {
    if let Some((ptr, level)) = root.top() {
        let mut walk = Walk { src, from, visitor };
        walk.visit(&ptr, level, None, None);
    }
}

struct Walk<'a, S> {
    src: &'a S,
    from: Key,
    visitor: &'a mut dyn Visitor,
}

impl<S: NodeSource> Walk<'_, S> {
    /// Visits a subtree; returns `false` if the visitor has enough.
    fn visit(&mut self, ptr: &BlockPtr, level: u8, first: Option<Key>, upper: Option<Key>) -> bool {
        if !self.visitor.node(ptr, level) {
            return true;
        }
        let reported = first.unwrap_or(Key::MIN);
        let frame = match self.src.node(ptr) {
            Ok(frame) => frame,
            Err(stop) => {
                let error = match stop {
                    Stop::Fail(error) => error,
                    _ => StoreError::NoMemory,
                };
                self.visitor.fault(ptr, reported, &error);
                return true;
            }
        };
        let node = match view(ptr, level, &frame).and_then(|node| checked(node, first, upper)) {
            Ok(node) => node,
            Err(error) => {
                self.visitor.fault(ptr, reported, &error);
                return true;
            }
        };
        for i in 0..node.count() {
            let key = node.key(i);
            if level == 1 && i.is_multiple_of(AHEAD) {
                self.announce(node, i);
            }
            if level == 0 {
                if key < self.from {
                    continue;
                }
                match node.value(i) {
                    Ok(value) => self.visitor.record(key, value),
                    Err(error) => self.visitor.fault(ptr, key, &error),
                }
                if self.visitor.enough() {
                    return false;
                }
                continue;
            }
            let end = match i + 1 {
                next if next < node.count() => Some(node.key(next)),
                _ => upper,
            };
            if end.is_some_and(|end| end <= self.from) {
                continue;
            }
            match node.child(i) {
                Ok(child) => {
                    if !self.visit(&child, level - 1, Some(key), end) {
                        return false;
                    }
                }
                Err(error) => self.visitor.fault(ptr, key, &error),
            }
        }
        true
    }
}

impl<S: NodeSource> Walk<'_, S> {
    /// Makes the source read the next leaves below `node` together, starting at `first`.
    fn announce(&self, node: NodeView<'_>, first: usize) {
        let last = node.count().min(first + AHEAD);
        if last < node.count() && node.key(last) <= self.from {
            return;
        }
        let next = (first..last).filter_map(|i| node.child(i).ok());
        self.src.prefetch(&next.collect::<Vec<_>>());
    }
}

fn checked(
    node: NodeView<'_>,
    first: Option<Key>,
    upper: Option<Key>,
) -> Result<NodeView<'_>, StoreError> {
    node.validate()?;
    if first.is_some_and(|first| node.key(0) != first) {
        return Err(node.corrupt("tree node that does not start where its parent says"));
    }
    if upper.is_some_and(|upper| node.key(node.count() - 1) >= upper) {
        return Err(node.corrupt("tree node that reaches into its neighbour"));
    }
    Ok(node)
}
