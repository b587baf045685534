//! Merges a batch of edits into a tree.
//!
//! The batch is sorted, so one pass in key order does everything. The pass reads the old nodes that
//! the edits touch and writes new ones from one open *builder* a level. A leaf's records, merged
//! with the edits, flow into the builder of level 0. A builder that has collected enough writes a
//! node and hands its pointer to the builder above. A subtree that no edit touches goes to the
//! builder above it unread. So the cost is proportional to the touched paths, and memory to the
//! height: not to the batch.
//!
//! **Occupancy.** Nodes are written between [`MIN_FILL`] and full. The entries of an old node are
//! written as one node if their size allows, so that nodes keep their borders from batch to batch.
//! Larger ones are split: in halves if two nodes suffice, and in a stream of 7/8-full nodes if not.
//! Smaller ones wait for the records of the next touched node. If an untouched subtree comes next,
//! the last node on the left is reopened and the two are merged or evened out. Only the leftmost
//! node of a level, which has nothing on its left, may stay too small. So there is at most one such
//! node a level at any time.
//!
//! The alternative, descending once an edit with splits and merges on the way, would write a node
//! once an edit or need a dirty-node table in memory.

use std::collections::VecDeque;

use weir_base::limits::MAX_VALUE;
use weir_base::{Generation, VolumeId};

use super::{NodeSource, Stop, TreeRoot, view};
use crate::block::{BlockPtr, PTR_SIZE};
use crate::error::StoreError;
use crate::frame::FrameMut;
use crate::node::{self, Key, MAX_LEVEL, NODE_CAPACITY, NodeView};

/// Minimum size in bytes of a node; a smaller one is merged with its left neighbour. It is a third
/// of the capacity: halves of a split node stay above it even when records of the largest size make
/// them uneven. So a split is never followed by a merge.
const MIN_FILL: usize = NODE_CAPACITY / 3;
/// Size in bytes of nodes in the middle of a long run. The free rest keeps the next edits from
/// splitting each of them.
const RUN_FILL: usize = NODE_CAPACITY / 8 * 7;
/// Size in bytes above which a builder writes a node without waiting for more. Halving less than
/// this gives two nodes that both fit, whatever the sizes of the records.
const OVERFLOW: usize = 2 * (NODE_CAPACITY - MAX_ENTRY / 2 - 1);
const MAX_ENTRY: usize = node::KEY_SIZE + 4 + MAX_VALUE;
/// Number of edits taken in advance, to read the nodes that they touch together.
const LOOK_AHEAD: usize = 256;

const _: () = assert!(OVERFLOW / 2 - MAX_ENTRY / 2 > MIN_FILL);
const _: () = assert!(NODE_CAPACITY / 2 - MAX_ENTRY / 2 - 1 > MIN_FILL);
const _: () = assert!(OVERFLOW > NODE_CAPACITY + MIN_FILL);
const _: () = assert!(OVERFLOW > RUN_FILL + MIN_FILL);

/// One change to a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Sets the record to this value (at most [`MAX_VALUE`] bytes).
    Put(Key, Vec<u8>),
    /// Removes the record; it may be absent already.
    Del(Key),
}

impl Edit {
    /// Returns the key that is changed.
    pub fn key(&self) -> Key {
        match self {
            Edit::Put(key, _) | Edit::Del(key) => *key,
        }
    }
}

/// The destination of new nodes: a checkpoint in progress.
pub trait NodeSink {
    /// Returns the generation being written.
    fn generation(&self) -> Generation;

    /// Returns a frame for a node, contents unspecified.
    ///
    /// # Errors
    /// If there is no memory even for a checkpoint.
    fn frame(&mut self) -> Result<FrameMut, StoreError>;

    /// Allocates a block for a node and queues its writing. From now on the source that is used
    /// together with this sink must find the node.
    ///
    /// # Errors
    /// If no block is free or an earlier write failed.
    fn write_node(&mut self, node: FrameMut) -> Result<BlockPtr, StoreError>;

    /// Notes that the new tree no longer refers to this node.
    fn freed(&mut self, ptr: BlockPtr);
}

/// Merges `edits`, in strictly ascending order of their keys, into the tree at `root`, and returns
/// the new tree's root. `tree` is the tree's number, stored in the written nodes.
///
/// The source must not return [`Stop::Fetch`].
///
/// # Errors
/// As source and sink; [`StoreError::Format`] for edits out of order or values that are too long.
/// After an error the old tree is intact, and the nodes that the sink has received are useless.
pub fn apply(
    sink: &mut impl NodeSink,
    src: &impl NodeSource,
    tree: VolumeId,
    root: &TreeRoot,
    edits: impl Iterator<Item = Edit>,
) -> Result<TreeRoot, StoreError> {
    let mut merge = Merge {
        edits: Edits {
            rest: edits.fuse(),
            ahead: VecDeque::new(),
            last: None,
        },
        sink,
        src,
        tree,
        levels: Vec::new(),
    };
    if merge.edits.peek()?.is_none() {
        return Ok(*root);
    }
    match root.top() {
        Some((ptr, level)) => merge.descend(&ptr, level, None)?,
        None => {
            while let Some(edit) = merge.edits.next_below(None)? {
                merge.put(edit)?;
            }
        }
    }
    merge.finish()
}

/// The edits, with a window in front.
struct Edits<I> {
    rest: std::iter::Fuse<I>,
    ahead: VecDeque<Edit>,
    last: Option<Key>,
}

impl<I: Iterator<Item = Edit>> Edits<I> {
    fn fill(&mut self) -> Result<(), StoreError> {
        if self.ahead.is_empty() {
            for edit in self.rest.by_ref().take(LOOK_AHEAD) {
                if self.last.is_some_and(|last| last >= edit.key()) {
                    return Err(StoreError::Format("edits out of order".into()));
                }
                if matches!(&edit, Edit::Put(_, value) if value.len() > MAX_VALUE) {
                    return Err(StoreError::Format("record too long".into()));
                }
                self.last = Some(edit.key());
                self.ahead.push_back(edit);
            }
        }
        Ok(())
    }

    fn peek(&mut self) -> Result<Option<Key>, StoreError> {
        self.fill()?;
        Ok(self.ahead.front().map(Edit::key))
    }

    /// Returns true if the next edit is before `upper`; `None` stands for the end.
    fn is_below(&mut self, upper: Option<Key>) -> Result<bool, StoreError> {
        Ok(self
            .peek()?
            .is_some_and(|key| upper.is_none_or(|upper| key < upper)))
    }

    fn next_below(&mut self, upper: Option<Key>) -> Result<Option<Edit>, StoreError> {
        Ok(if self.is_below(upper)? {
            self.ahead.pop_front()
        } else {
            None
        })
    }
}

/// Entries collected by a builder, in key order, values back to back.
#[derive(Default)]
struct Level {
    entries: VecDeque<(Key, usize)>,
    values: Vec<u8>,
    size: usize,
}

impl Level {
    fn push(&mut self, level: u8, key: Key, value: &[u8]) {
        self.entries.push_back((key, value.len()));
        self.values.extend_from_slice(value);
        self.size += node::entry_size(level, value.len());
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of leading entries that take up to `target` bytes: the cut nearest to it,
    /// or the last one before it.
    fn cut(&self, level: u8, target: usize, nearest: bool) -> usize {
        let mut size = 0;
        for (i, (_, len)) in self.entries.iter().enumerate() {
            let next = size + node::entry_size(level, *len);
            if next > target {
                return if nearest && next - target < target - size {
                    i + 1
                } else {
                    i
                };
            }
            size = next;
        }
        self.entries.len()
    }
}

struct Merge<'a, I, K, S> {
    edits: Edits<I>,
    sink: &'a mut K,
    src: &'a S,
    tree: VolumeId,
    levels: Vec<Level>,
}

impl<I: Iterator<Item = Edit>, K: NodeSink, S: NodeSource> Merge<'_, I, K, S> {
    /// Rewrites the subtree at `ptr` with the edits before `upper`.
    fn descend(&mut self, ptr: &BlockPtr, level: u8, upper: Option<Key>) -> Result<(), StoreError> {
        let frame = blocking(self.src.node(ptr))?;
        let node = view(ptr, level, &frame)?;
        self.sink.freed(*ptr);
        if level == 0 {
            self.merge_leaf(node, upper)?;
        } else {
            self.announce(node, upper)?;
            for i in 0..node.count() {
                let child = node.child(i)?;
                let end = if i + 1 < node.count() {
                    Some(node.key(i + 1))
                } else {
                    upper
                };
                if self.edits.is_below(end)? {
                    self.descend(&child, level - 1, end)?;
                } else {
                    self.keep(level - 1, node.key(i), child)?;
                }
            }
        }
        // Keep the old node's borders, unless a builder below is still open.
        let open = |level: &Level| !level.is_empty();
        if !self.levels.iter().take(usize::from(level)).any(open)
            && (MIN_FILL..=NODE_CAPACITY).contains(&self.level(level)?.size)
        {
            self.flush(level)?;
        }
        Ok(())
    }

    fn merge_leaf(&mut self, node: NodeView<'_>, upper: Option<Key>) -> Result<(), StoreError> {
        for i in 0..node.count() {
            let key = node.key(i);
            while let Some(edit) = self.edits.next_below(Some(key))? {
                self.put(edit)?;
            }
            if self.edits.peek()? == Some(key) {
                if let Some(edit) = self.edits.next_below(None)? {
                    self.put(edit)?;
                }
            } else {
                self.push(0, key, node.value(i)?)?;
            }
        }
        while let Some(edit) = self.edits.next_below(upper)? {
            self.put(edit)?;
        }
        Ok(())
    }

    /// Announces to the source which children the edits in the window will touch.
    fn announce(&mut self, node: NodeView<'_>, upper: Option<Key>) -> Result<(), StoreError> {
        self.edits.fill()?;
        let mut touched = Vec::new();
        let mut last = None;
        for edit in &self.edits.ahead {
            let key = edit.key();
            if upper.is_some_and(|upper| key >= upper) {
                break;
            }
            // Saturates: a key before the first one belongs to the first child.
            let index = node.rank(&key).saturating_sub(1);
            if last != Some(index) {
                last = Some(index);
                touched.push(node.child(index)?);
            }
        }
        if touched.len() > 1 {
            self.src.prefetch(&touched);
        }
        Ok(())
    }

    fn level(&mut self, level: u8) -> Result<&mut Level, StoreError> {
        if level > MAX_LEVEL {
            return Err(StoreError::Format("tree too high".into()));
        }
        let index = usize::from(level);
        if self.levels.len() <= index {
            self.levels.resize_with(index + 1, Level::default);
        }
        self.levels
            .get_mut(index)
            .ok_or_else(|| StoreError::Format("tree too high".into()))
    }

    fn put(&mut self, edit: Edit) -> Result<(), StoreError> {
        match edit {
            Edit::Put(key, value) => self.push(0, key, &value),
            Edit::Del(_) => Ok(()),
        }
    }

    fn push(&mut self, level: u8, key: Key, value: &[u8]) -> Result<(), StoreError> {
        let builder = self.level(level)?;
        builder.push(level, key, value);
        if builder.size > OVERFLOW {
            let count = builder.cut(level, RUN_FILL, false);
            self.write(level, count)?;
        }
        Ok(())
    }

    /// Takes over an untouched node of `level`, with its subtree.
    fn keep(&mut self, level: u8, key: Key, ptr: BlockPtr) -> Result<(), StoreError> {
        for below in 0..=level {
            self.complete_level(below)?;
        }
        self.push(level + 1, key, &ptr.encode())
    }

    /// Writes the open entries of `level`, after filling them up if they are too few.
    fn complete_level(&mut self, level: u8) -> Result<(), StoreError> {
        let builder = self.level(level)?;
        if !builder.is_empty() && builder.size < MIN_FILL {
            self.reopen(level)?;
        }
        self.flush(level)
    }

    /// Writes the open entries of `level`.
    fn flush(&mut self, level: u8) -> Result<(), StoreError> {
        loop {
            let builder = self.level(level)?;
            let count = match builder.size {
                0 => return Ok(()),
                size if size <= NODE_CAPACITY => builder.entries.len(),
                size => builder.cut(level, size / 2, true),
            };
            self.write(level, count)?;
        }
    }

    /// Puts the node on the left back into the builder; returns `false` if there is none.
    fn reopen(&mut self, level: u8) -> Result<bool, StoreError> {
        if usize::from(level) + 1 >= self.levels.len() {
            return Ok(false);
        }
        if self.level(level + 1)?.is_empty() && !self.reopen(level + 1)? {
            return Ok(false);
        }
        let above = self.level(level + 1)?;
        let Some(ptr) = above.values.last_chunk::<PTR_SIZE>().map(BlockPtr::decode) else {
            return Ok(false);
        };
        above.entries.pop_back();
        above.values.truncate(above.values.len() - PTR_SIZE);
        above.size -= node::entry_size(level + 1, PTR_SIZE);

        let frame = blocking(self.src.node(&ptr))?;
        let node = view(&ptr, level, &frame)?;
        self.sink.freed(ptr);
        let mut joined = Level::default();
        for i in 0..node.count() {
            match level {
                0 => joined.push(level, node.key(i), node.value(i)?),
                _ => joined.push(level, node.key(i), &node.child(i)?.encode()),
            }
        }
        let builder = self.level(level)?;
        joined.entries.append(&mut builder.entries);
        joined.values.append(&mut builder.values);
        joined.size += builder.size;
        *builder = joined;
        Ok(true)
    }

    /// Writes the first `count` entries of a builder as one node.
    fn write(&mut self, level: u8, count: usize) -> Result<(), StoreError> {
        let mut frame = self.sink.frame()?;
        let (tree, generation) = (self.tree, self.sink.generation());
        let builder = self.level(level)?;
        let mut first = None;
        let mut at = 0;
        let mut size = 0;
        let entries = builder.entries.iter().take(count).map(|(key, len)| {
            first.get_or_insert(*key);
            size += node::entry_size(level, *len);
            let value = builder.values.get(at..at + len).unwrap_or(&[]);
            at += len;
            (*key, value)
        });
        node::encode(&mut frame, level, tree, generation, entries)?;
        builder.entries.drain(..count.min(builder.entries.len()));
        builder.values.drain(..at);
        builder.size -= size;
        let Some(first) = first else {
            return Err(StoreError::Format("empty tree node".into()));
        };
        let ptr = self.sink.write_node(frame)?;
        self.push(level + 1, first, &ptr.encode())
    }

    /// Closes the builders from the leaves up until one node is on top of all.
    fn finish(mut self) -> Result<TreeRoot, StoreError> {
        let mut level = 0;
        loop {
            let above = usize::from(level) + 1;
            let top = self.levels.iter().skip(above).all(Level::is_empty);
            let builder = self.level(level)?;
            if top && builder.is_empty() {
                return Ok(TreeRoot::EMPTY);
            }
            if top && level > 0 && builder.entries.len() == 1 {
                let ptr = builder
                    .values
                    .first_chunk::<PTR_SIZE>()
                    .map(BlockPtr::decode);
                return self.lower(TreeRoot { ptr, height: level });
            }
            if !top || builder.size > NODE_CAPACITY {
                self.complete_level(level)?;
            } else {
                self.flush(level)?;
            }
            level += 1;
        }
    }

    /// Removes interior nodes with one child from the top.
    fn lower(&mut self, mut root: TreeRoot) -> Result<TreeRoot, StoreError> {
        while let Some((ptr, level)) = root.top().filter(|(_, level)| *level > 0) {
            let frame = blocking(self.src.node(&ptr))?;
            let node = view(&ptr, level, &frame)?;
            if node.count() > 1 {
                break;
            }
            self.sink.freed(ptr);
            root = TreeRoot {
                ptr: Some(node.child(0)?),
                height: level,
            };
        }
        Ok(root)
    }
}

/// Converts a stop into an error, as a checkpoint cannot be suspended.
fn blocking<T>(result: Result<T, Stop>) -> Result<T, StoreError> {
    result.map_err(|stop| match stop {
        Stop::Fail(e) => e,
        Stop::Fetch(_) => StoreError::Format("a node was not in memory".into()),
        Stop::Wait(_) => StoreError::NoMemory,
    })
}
