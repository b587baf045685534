//! The difference of two trees.
//!
//! Two cursors run through both trees in key order. A cursor is at a record or at an unopened
//! subtree. Where both are at the same pointer, both step over it: shared parts are skipped unread,
//! at the highest level at which they are shared. Otherwise the subtree that starts earlier is
//! opened, because no subtree of the other side that starts later can be the same. Of two that
//! start together, the higher one is opened, because the lower one may be inside it. Interior keys
//! are exactly the first keys of their subtrees, so this misses no shared subtree, and the cost is
//! proportional to the difference.

use smallvec::SmallVec;

use super::{NodeSource, Stop, TreeRoot, Value, view};
use crate::block::BlockPtr;
use crate::error::StoreError;
use crate::frame::Frame;
use crate::node::Key;

/// Callback that receives a key, its value in the old tree and its value in the new one.
pub type OnDifference<'a> = dyn FnMut(Key, Option<&[u8]>, Option<&[u8]>) -> Result<(), Stop> + 'a;

/// Calls `each`, in key order, for every record that differs between the trees.
///
/// # Errors
/// As the source and `each`; [`crate::StoreError::Corrupt`] for a damaged node.
pub fn diff(
    src: &impl NodeSource,
    old: &TreeRoot,
    new: &TreeRoot,
    each: &mut OnDifference<'_>,
) -> Result<(), Stop> {
    let mut run = Diff::new(old, new);
    while let Some(found) = run.advance(src)? {
        each(found.key, found.old.as_deref(), found.new.as_deref())?;
    }
    Ok(())
}

/// A record that differs between the trees.
#[derive(Clone, Debug)]
pub struct Differs {
    /// The key of the record.
    pub key: Key,
    /// Value in the old tree, if any.
    pub old: Option<Value>,
    /// Value in the new tree, if any.
    pub new: Option<Value>,
}

/// The difference of two trees, a record at a time: see the module's head.
pub struct Diff {
    old: Cursor,
    new: Cursor,
}

impl Diff {
    /// Creates a difference that begins at the first differing record.
    pub fn new(old: &TreeRoot, new: &TreeRoot) -> Diff {
        Diff {
            old: Cursor::new(old),
            new: Cursor::new(new),
        }
    }

    /// Creates a difference that begins at the first differing record with a key of at least
    /// `from`, at the cost of two descents.
    ///
    /// # Errors
    /// As the source.
    pub fn from(
        src: &impl NodeSource,
        old: &TreeRoot,
        new: &TreeRoot,
        from: Key,
    ) -> Result<Diff, Stop> {
        let mut diff = Diff::new(old, new);
        if from > Key::MIN {
            diff.old.seek(src, from)?;
            diff.new.seek(src, from)?;
        }
        Ok(diff)
    }

    /// Returns the next difference in key order; `None` at the end.
    ///
    /// # Errors
    /// As the source; [`crate::StoreError::Corrupt`] for a damaged node.
    pub fn advance(&mut self, src: &impl NodeSource) -> Result<Option<Differs>, Stop> {
        let (a, b) = (&mut self.old, &mut self.new);
        loop {
            match (a.place(src)?, b.place(src)?) {
                (None, None) => return Ok(None),
                (Some(x), None) => {
                    if a.open(src, &x)? {
                        return Ok(Some(a.take(x.key, true)?));
                    }
                    a.announce(src, None)?;
                }
                (None, Some(y)) => {
                    if b.open(src, &y)? {
                        return Ok(Some(b.take(y.key, false)?));
                    }
                    b.announce(src, None)?;
                }
                (Some(x), Some(y)) => {
                    if x.key < y.key {
                        if a.open(src, &x)? {
                            return Ok(Some(a.take(x.key, true)?));
                        }
                        a.announce(src, Some(b))?;
                    } else if y.key < x.key {
                        if b.open(src, &y)? {
                            return Ok(Some(b.take(y.key, false)?));
                        }
                        b.announce(src, Some(a))?;
                    } else if x.subtree.is_some() && x.subtree == y.subtree {
                        a.step();
                        b.step();
                    } else if x.height() > y.height() {
                        a.open(src, &x)?;
                        a.announce(src, Some(b))?;
                    } else if x.height() < y.height() {
                        b.open(src, &y)?;
                        b.announce(src, Some(a))?;
                    } else {
                        let records = a.open(src, &x)?;
                        b.open(src, &y)?;
                        if records {
                            let (old, new) = (a.value()?, b.value()?);
                            a.step();
                            b.step();
                            if *old != *new {
                                return Ok(Some(Differs {
                                    key: x.key,
                                    old: Some(old),
                                    new: Some(new),
                                }));
                            }
                        } else {
                            a.announce(src, Some(b))?;
                            b.announce(src, Some(a))?;
                        }
                    }
                }
            }
        }
    }
}

/// Number of a node's children that are announced together when it is opened.
const AHEAD: usize = 64;

/// Position of a cursor: a subtree (with its root's level) or a record.
struct CursorPosition {
    key: Key,
    subtree: Option<(BlockPtr, u8)>,
}

impl CursorPosition {
    fn height(&self) -> i32 {
        self.subtree.map_or(-1, |(_, level)| i32::from(level))
    }
}

struct OpenNode {
    ptr: BlockPtr,
    level: u8,
    frame: Frame,
    index: usize,
}

struct Cursor {
    /// The root of the tree, until it is opened.
    root: Option<(BlockPtr, u8)>,
    path: SmallVec<[OpenNode; 8]>,
}

impl Cursor {
    fn new(root: &TreeRoot) -> Cursor {
        Cursor {
            root: root.top(),
            path: SmallVec::new(),
        }
    }

    /// Returns the cursor's position; `None` at the end.
    fn place(&mut self, src: &impl NodeSource) -> Result<Option<CursorPosition>, Stop> {
        if let Some((ptr, level)) = self.root {
            let frame = src.node(&ptr)?;
            let key = view(&ptr, level, &frame)?.key(0);
            return Ok(Some(CursorPosition {
                key,
                subtree: Some((ptr, level)),
            }));
        }
        while let Some(top) = self.path.last() {
            let node = view(&top.ptr, top.level, &top.frame)?;
            if top.index < node.count() {
                let subtree = match top.level {
                    0 => None,
                    level => Some((node.child(top.index)?, level - 1)),
                };
                return Ok(Some(CursorPosition {
                    key: node.key(top.index),
                    subtree,
                }));
            }
            self.path.pop();
            self.step();
        }
        Ok(None)
    }

    /// Opens the subtree at the position; returns `true` if it is a record already.
    fn open(&mut self, src: &impl NodeSource, place: &CursorPosition) -> Result<bool, Stop> {
        let Some((ptr, level)) = place.subtree else {
            return Ok(true);
        };
        let frame = src.node(&ptr)?;
        self.root = None;
        self.path.push(OpenNode {
            ptr,
            level,
            frame,
            index: 0,
        });
        Ok(false)
    }

    fn step(&mut self) {
        match self.path.last_mut() {
            Some(top) => top.index += 1,
            None => self.root = None,
        }
    }

    /// Moves to the first record with a key of at least `from`.
    fn seek(&mut self, src: &impl NodeSource, from: Key) -> Result<(), Stop> {
        let Some((mut ptr, mut level)) = self.root.take() else {
            return Ok(());
        };
        loop {
            let frame = src.node(&ptr)?;
            let node = view(&ptr, level, &frame)?;
            let below = node.rank(&from);
            // The subtree that would contain the key is the last one that does not begin behind it.
            // Among records, it is one that has the key itself.
            let here = below.checked_sub(1);
            let index = match here {
                Some(here) if level > 0 || node.key(here) == from => here,
                _ => below,
            };
            let child = match level {
                0 => None,
                _ => Some(node.child(index)?),
            };
            self.path.push(OpenNode {
                ptr,
                level,
                frame,
                index,
            });
            match child {
                // The parent's place is the child until it has been gone through.
                Some(child) => {
                    ptr = child;
                    level -= 1;
                }
                None => return Ok(()),
            }
        }
    }

    /// Takes the record at the cursor, as one that only this side has; advances.
    fn take(&mut self, key: Key, old: bool) -> Result<Differs, Stop> {
        let value = Some(self.value()?);
        self.step();
        let (old, new) = match old {
            true => (value, None),
            false => (None, value),
        };
        Ok(Differs { key, old, new })
    }

    fn value(&self) -> Result<Value, Stop> {
        let Some(top) = self.path.last() else {
            return Err(Stop::Fail(StoreError::Format("no record here".into())));
        };
        let (at, len) = view(&top.ptr, top.level, &top.frame)?.value_range(top.index)?;
        Ok(Value {
            frame: top.frame.clone(),
            at,
            len,
        })
    }

    /// Announces the children of a node that has just been opened. Children that the other side's
    /// open node of that level shares are left out: they will be stepped over.
    fn announce(&self, src: &impl NodeSource, other: Option<&Cursor>) -> Result<(), Stop> {
        let Some(top) = self.path.last().filter(|top| top.level > 0) else {
            return Ok(());
        };
        let node = view(&top.ptr, top.level, &top.frame)?;
        let beside = other.and_then(|o| o.path.iter().find(|open| open.level == top.level));
        let beside = match beside {
            Some(open) => Some(view(&open.ptr, open.level, &open.frame)?),
            None => None,
        };
        let mut ahead: SmallVec<[BlockPtr; AHEAD]> = SmallVec::new();
        for i in top.index..node.count() {
            let child = node.child(i)?;
            let shared = match &beside {
                Some(beside) => match beside.rank(&node.key(i)).checked_sub(1) {
                    Some(at) => beside.child(at)? == child,
                    None => false,
                },
                None => false,
            };
            if !shared {
                ahead.push(child);
                if ahead.len() == AHEAD {
                    break;
                }
            }
        }
        if ahead.len() > 1 {
            src.prefetch(&ahead);
        }
        Ok(())
    }
}
