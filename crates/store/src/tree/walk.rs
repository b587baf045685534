//! Visiting a whole tree to verify it.

use super::{NodeSource, Stop, TreeRoot, view};
use crate::block::BlockPtr;
use crate::error::StoreError;
use crate::node::{Key, NodeView};

/// Leaves that are announced to the source at a time. Estimated: enough for a device's queue.
const AHEAD: usize = 32;

/// What [`walk`] reports to.
pub trait Visitor {
    /// A node is referred to, and has not been read yet. `false` skips it and
    /// all below it (a node that an earlier walk has seen, say).
    fn node(&mut self, ptr: &BlockPtr, level: u8) -> bool;

    /// A record of a leaf.
    fn record(&mut self, key: Key, value: &[u8]);

    /// The node at `ptr`, and so what is below it from `first` on, is damaged or
    /// cannot be read. Nothing below it is visited.
    fn fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError);

    /// Asked after each record: `true` ends the walk.
    fn enough(&self) -> bool {
        false
    }
}

/// Visits each node and record of a tree in key order. Damage is reported and
/// stepped over. The source must not return [`Stop::Fetch`].
pub fn walk(src: &impl NodeSource, root: &TreeRoot, visitor: &mut dyn Visitor) {
    walk_from(src, root, Key::MIN, visitor);
}

/// As [`walk`], with the records from `from` on and the nodes that lead to them.
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
    /// Visits a subtree; `false` if that is enough.
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
    /// Has the source read the next leaves below `node` together, from the `first` on.
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
