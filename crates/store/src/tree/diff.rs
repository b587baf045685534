//! The difference of two trees.
//!
//! Two cursors run through both trees in key order. A cursor stands on a record
//! or on a whole subtree that has not been opened. Where both stand on the same
//! pointer, both step over it: what two trees share is skipped unread, at the
//! highest level at which they share it. Otherwise the subtree that starts
//! earlier is opened, because no subtree of the other side that starts later can
//! be the same; of two that start together, the higher one, because the lower
//! one may be inside it. Interior keys are exactly the first keys of their
//! subtrees, so this misses no shared subtree, and the cost is proportional to
//! what differs.

use smallvec::SmallVec;

use super::{NodeSource, Stop, TreeRoot, view};
use crate::block::BlockPtr;
use crate::frame::Frame;
use crate::node::Key;

/// Called with a key, its value in the old tree and its value in the new one.
pub type OnDifference<'a> = dyn FnMut(Key, Option<&[u8]>, Option<&[u8]>) -> Result<(), Stop> + 'a;

/// Calls `each`, in key order, for every record that is not the same in both
/// trees.
///
/// # Errors
/// As the source and `each`; [`crate::StoreError::Corrupt`] for a damaged node.
pub fn diff(
    src: &impl NodeSource,
    old: &TreeRoot,
    new: &TreeRoot,
    each: &mut OnDifference<'_>,
) -> Result<(), Stop> {
    let mut a = Cursor::new(old);
    let mut b = Cursor::new(new);
    loop {
        match (a.place(src)?, b.place(src)?) {
            (None, None) => return Ok(()),
            (Some(x), None) => {
                if a.open(src, &x)? {
                    each(x.key, Some(a.value()?), None)?;
                    a.step();
                }
            }
            (None, Some(y)) => {
                if b.open(src, &y)? {
                    each(y.key, None, Some(b.value()?))?;
                    b.step();
                }
            }
            (Some(x), Some(y)) => {
                if x.key < y.key {
                    if a.open(src, &x)? {
                        each(x.key, Some(a.value()?), None)?;
                        a.step();
                    }
                } else if y.key < x.key {
                    if b.open(src, &y)? {
                        each(y.key, None, Some(b.value()?))?;
                        b.step();
                    }
                } else if x.subtree.is_some() && x.subtree == y.subtree {
                    a.step();
                    b.step();
                } else if x.height() > y.height() {
                    a.open(src, &x)?;
                } else if x.height() < y.height() {
                    b.open(src, &y)?;
                } else {
                    let records = a.open(src, &x)?;
                    b.open(src, &y)?;
                    if records {
                        if a.value()? != b.value()? {
                            each(x.key, Some(a.value()?), Some(b.value()?))?;
                        }
                        a.step();
                        b.step();
                    }
                }
            }
        }
    }
}

/// What a cursor stands on: a subtree (with its root's level) or a record.
struct Place {
    key: Key,
    subtree: Option<(BlockPtr, u8)>,
}

impl Place {
    fn height(&self) -> i32 {
        self.subtree.map_or(-1, |(_, level)| i32::from(level))
    }
}

struct Opened {
    ptr: BlockPtr,
    level: u8,
    frame: Frame,
    index: usize,
}

struct Cursor {
    /// The whole tree, as long as it is not opened.
    root: Option<(BlockPtr, u8)>,
    path: SmallVec<[Opened; 8]>,
}

impl Cursor {
    fn new(root: &TreeRoot) -> Cursor {
        Cursor {
            root: root.top(),
            path: SmallVec::new(),
        }
    }

    /// Where the cursor stands; `None` at the end.
    fn place(&mut self, src: &impl NodeSource) -> Result<Option<Place>, Stop> {
        if let Some((ptr, level)) = self.root {
            let frame = src.node(&ptr)?;
            let key = view(&ptr, level, &frame)?.key(0);
            return Ok(Some(Place {
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
                return Ok(Some(Place {
                    key: node.key(top.index),
                    subtree,
                }));
            }
            self.path.pop();
            self.step();
        }
        Ok(None)
    }

    /// Opens the subtree it stands on; `true` if it is a record already.
    fn open(&mut self, src: &impl NodeSource, place: &Place) -> Result<bool, Stop> {
        let Some((ptr, level)) = place.subtree else {
            return Ok(true);
        };
        let frame = src.node(&ptr)?;
        self.root = None;
        self.path.push(Opened {
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

    fn value(&self) -> Result<&[u8], Stop> {
        match self.path.last() {
            Some(top) => Ok(view(&top.ptr, top.level, &top.frame)?.value(top.index)?),
            None => Ok(&[]),
        }
    }
}
