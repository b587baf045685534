//! Visiting a whole tree to verify it.

use super::{NodeSource, Stop, TreeRoot, view};
use crate::block::BlockPtr;
use crate::error::StoreError;
use crate::node::{Key, NodeView};

/// What [`walk`] reports to.
pub trait Visitor {
    /// A node is referred to, and has not been read yet. `false` skips it and
    /// all below it (a node that an earlier walk has seen, say).
    fn node(&mut self, ptr: &BlockPtr, level: u8) -> bool;

    /// A record.
    fn record(&mut self, key: Key, value: &[u8]);

    /// The node at `ptr`, and so what is below it from `first` on, is damaged or
    /// cannot be read. Nothing below it is visited.
    fn fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError);
}

/// Visits each node and record of a tree in key order. Damage is reported and
/// stepped over. The source must not answer [`Stop::Fetch`].
pub fn walk(src: &impl NodeSource, root: &TreeRoot, visitor: &mut dyn Visitor) {
    if let Some((ptr, level)) = root.top() {
        visit(src, &ptr, level, None, None, visitor);
    }
}

fn visit(
    src: &impl NodeSource,
    ptr: &BlockPtr,
    level: u8,
    first: Option<Key>,
    upper: Option<Key>,
    visitor: &mut dyn Visitor,
) {
    if !visitor.node(ptr, level) {
        return;
    }
    let reported = first.unwrap_or(Key::MIN);
    let frame = match src.node(ptr) {
        Ok(frame) => frame,
        Err(Stop::Fail(e)) => return visitor.fault(ptr, reported, &e),
        Err(_) => return visitor.fault(ptr, reported, &StoreError::NoMemory),
    };
    let node = match view(ptr, level, &frame).and_then(|node| checked(node, first, upper)) {
        Ok(node) => node,
        Err(e) => return visitor.fault(ptr, reported, &e),
    };
    for i in 0..node.count() {
        let key = node.key(i);
        if level == 0 {
            match node.value(i) {
                Ok(value) => visitor.record(key, value),
                Err(e) => visitor.fault(ptr, key, &e),
            }
            continue;
        }
        let end = if i + 1 < node.count() {
            Some(node.key(i + 1))
        } else {
            upper
        };
        match node.child(i) {
            Ok(child) => visit(src, &child, level - 1, Some(key), end, visitor),
            Err(e) => visitor.fault(ptr, key, &e),
        }
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
