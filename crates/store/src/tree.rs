//! Copy-on-write B+trees that hold all committed state.
//!
//! A tree is never changed. [`mod@apply`] merges a sorted batch of edits into it and yields the
//! root of a new tree that shares every untouched node with the old one. The old root stays
//! readable for as long as its blocks are kept. So readers take no latch, a snapshot is a root that
//! is kept, and the difference of two trees is found by skipping the shared nodes ([`mod@diff`]).
//! Rodeh, "B-trees, Shadowing, and Clones" (2008) describes the idea. As the edits come in batches
//! here, one merging pass in key order replaces the top-down splits described there, and each
//! touched node is written once a batch.
//!
//! Functions that read take a [`NodeSource`]. In the foreground that is the cache: a missing node
//! ends the call with [`Stop::Fetch`], the caller awaits the block and calls again.

mod apply;
mod diff;
mod reap;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::{ControlFlow, Deref};

use smallvec::{SmallVec, smallvec};

use crate::block::BlockPtr;
use crate::error::StoreError;
use crate::frame::Frame;
use crate::node::{Key, NodeView};

pub use apply::{Edit, NodeSink, apply};
pub use diff::{Diff, Differs, diff};
pub use reap::{Reaper, reap};
pub use walk::{Visitor, walk, walk_from};

/// Number of leaves that a scan requests at once when the next one is not in memory.
///
/// Estimated: enough that a cold listing does not wait for the device at every leaf, few enough
/// that a listing that stops early has read little in vain.
const SCAN_AHEAD: usize = 8;

/// Reason why a foreground operation is suspended or fails. The operation has changed nothing and
/// can be called again once the cause is gone.
#[derive(Debug, Clone)]
pub enum Stop {
    /// These blocks are not in memory.
    Fetch(SmallVec<[BlockPtr; 4]>),
    /// A resource is exhausted for the moment.
    Wait(Pressure),
    /// The operation failed.
    Fail(StoreError),
}

/// An exhausted resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// Page frames: all are dirty or in use.
    Memory,
    /// Room in the intent log.
    Log,
}

impl From<StoreError> for Stop {
    fn from(e: StoreError) -> Stop {
        Stop::Fail(e)
    }
}

impl Stop {
    /// Returns a stop that requests one block.
    pub fn fetch(ptr: BlockPtr) -> Stop {
        Stop::Fetch(smallvec![ptr])
    }
}

/// A source of nodes.
pub trait NodeSource {
    /// Returns the node that `ptr` refers to, its checksum verified.
    ///
    /// # Errors
    /// [`Stop::Fetch`] if it is not in memory (never from a source that blocks), [`Stop::Fail`] if
    /// it cannot be read.
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop>;

    /// Announces that these nodes will be requested soon. A source that blocks reads them together.
    fn prefetch(&self, _ptrs: &[BlockPtr]) {}
}

impl<S: NodeSource + ?Sized> NodeSource for &S {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        (**self).node(ptr)
    }
    fn prefetch(&self, ptrs: &[BlockPtr]) {
        (**self).prefetch(ptrs);
    }
}

/// The root of a tree, which describes it completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeRoot {
    /// The top node; `None` if the tree is empty.
    pub ptr: Option<BlockPtr>,
    /// Number of levels; 0 if the tree is empty.
    pub height: u8,
}

/// Bytes of a [`TreeRoot`] on disk.
pub const ROOT_SIZE: usize = 21;

impl TreeRoot {
    /// The tree without records.
    pub const EMPTY: TreeRoot = TreeRoot {
        ptr: None,
        height: 0,
    };

    /// Encodes the root for the disk: height (u8), then the pointer, zeros if there is none.
    pub fn encode(&self) -> [u8; ROOT_SIZE] {
        let mut out = [0; ROOT_SIZE];
        if let (Some(ptr), [height, rest @ ..]) = (self.ptr, &mut out) {
            *height = self.height;
            rest.copy_from_slice(&ptr.encode());
        }
        out
    }

    /// Decodes a root encoded by [`TreeRoot::encode`].
    pub fn decode(bytes: &[u8; ROOT_SIZE]) -> TreeRoot {
        let [height, ptr @ ..] = bytes;
        match height {
            0 => TreeRoot::EMPTY,
            _ => TreeRoot {
                ptr: Some(BlockPtr::decode(ptr)),
                height: *height,
            },
        }
    }

    fn top(&self) -> Option<(BlockPtr, u8)> {
        // Saturates: the height comes from the disk.
        self.ptr.map(|ptr| (ptr, self.height.saturating_sub(1)))
    }
}

/// A record's value: a part of a cached node, which it keeps in memory.
#[derive(Clone)]
pub struct Value {
    frame: Frame,
    at: u16,
    len: u16,
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let at = usize::from(self.at);
        self.frame
            .get(at..at + usize::from(self.len))
            .unwrap_or(&[])
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Checks that the node at `ptr` is of the level that its parent requires.
#[inline]
fn view<'a>(ptr: &BlockPtr, level: u8, frame: &'a Frame) -> Result<NodeView<'a>, StoreError> {
    let node = NodeView::new(ptr, frame)?;
    if node.level() != level {
        return Err(node.corrupt("tree node of another level"));
    }
    Ok(node)
}

/// Returns the value of `key`.
///
/// # Errors
/// As the source; [`StoreError::Corrupt`] for a damaged node.
pub fn get(src: &impl NodeSource, root: &TreeRoot, key: &Key) -> Result<Option<Value>, Stop> {
    Ok(last_le(src, root, key)?.and_then(|(found, value)| (found == *key).then_some(value)))
}

/// Returns the record with the greatest key that is not greater than `key`.
///
/// # Errors
/// As the source; [`StoreError::Corrupt`] for a damaged node.
pub fn last_le(
    src: &impl NodeSource,
    root: &TreeRoot,
    key: &Key,
) -> Result<Option<(Key, Value)>, Stop> {
    let Some((mut ptr, mut level)) = root.top() else {
        return Ok(None);
    };
    loop {
        let frame = src.node(&ptr)?;
        let node = view(&ptr, level, &frame)?;
        // Interior keys are the first keys of their subtrees. So a subtree whose key is not greater
        // than `key` has such a record.
        let Some(index) = node.rank(key).checked_sub(1) else {
            return Ok(None);
        };
        if level == 0 {
            let found = node.key(index);
            let (at, len) = node.value_range(index)?;
            return Ok(Some((found, Value { frame, at, len })));
        }
        ptr = node.child(index)?;
        level -= 1;
    }
}

/// Calls `each` with the records of keys `from ..= to`, in order, until it breaks off.
///
/// # Errors
/// As the source; [`StoreError::Corrupt`] for a damaged node. Records before the missing or damaged
/// node have been delivered. A caller that continues after [`Stop::Fetch`] either starts again or
/// continues after the last key it saw.
pub fn scan(
    src: &impl NodeSource,
    root: &TreeRoot,
    from: Key,
    to: Key,
    each: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
) -> Result<(), Stop> {
    if let Some((ptr, level)) = root.top() {
        let frame = src.node(&ptr)?;
        let _ = scan_node(src, view(&ptr, level, &frame)?, &from, &to, each)?;
    }
    Ok(())
}

fn scan_node(
    src: &impl NodeSource,
    node: NodeView<'_>,
    from: &Key,
    to: &Key,
    each: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Stop> {
    let below = node.rank(from);
    if node.level() == 0 {
        let first = match below.checked_sub(1) {
            Some(last) if node.key(last) == *from => last,
            _ => below,
        };
        for i in first..node.count() {
            let key = node.key(i);
            if key > *to || each(key, node.value(i)?).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        return Ok(ControlFlow::Continue(()));
    }
    // Saturates: a key before the first one belongs to the first child.
    for i in below.saturating_sub(1)..node.count() {
        if node.key(i) > *to {
            return Ok(ControlFlow::Break(()));
        }
        let ptr = node.child(i)?;
        let frame = match src.node(&ptr) {
            Err(Stop::Fetch(mut missing)) if node.level() == 1 => {
                let end = node.count().min(i + SCAN_AHEAD);
                for next in (i + 1..end).take_while(|next| node.key(*next) <= *to) {
                    missing.push(node.child(next)?);
                }
                return Err(Stop::Fetch(missing));
            }
            other => other?,
        };
        let child = view(&ptr, node.level() - 1, &frame)?;
        if scan_node(src, child, from, to, each)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
