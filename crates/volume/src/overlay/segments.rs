//! The segments of a volume's history: the current one, and those that snapshots have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::overlay::inode::Inode;
use crate::overlay::snapshots::{Made, Sealed};

/// See the module's head.
pub(crate) struct Segments {
    /// The number of the current one: it changes while the epoch lock is held exclusively.
    current: AtomicU64,
    /// Inodes with changes of the current one.
    dirty: Mutex<Vec<Arc<Inode>>>,
    /// Those that a snapshot has ended, for the next checkpoint.
    sealed: Mutex<Vec<Sealed>>,
}

/// A segment, taken to be merged.
pub(crate) struct Part {
    pub(crate) segment: u64,
    pub(crate) inodes: Vec<Arc<Inode>>,
}

impl Segments {
    pub(crate) fn new() -> Segments {
        Segments {
            current: AtomicU64::new(1),
            dirty: Mutex::default(),
            sealed: Mutex::default(),
        }
    }

    /// The number of the current one.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// An inode is changed for the first time in the current one; whether it is the first that is.
    pub(crate) fn add_dirty(&self, inode: &Arc<Inode>) -> bool {
        let mut dirty = self.dirty.lock();
        dirty.push(Arc::clone(inode));
        dirty.len() == 1
    }

    /// How many wait for the next checkpoint besides the current one.
    pub(crate) fn sealed(&self) -> usize {
        self.sealed.lock().len()
    }

    /// A snapshot ends the current one; inodes with lower numbers than `next_ino` were there. No operation holds the
    /// epoch lock.
    pub(crate) fn seal(&self, made: Made, next_ino: u64) {
        let Part { segment, inodes } = self.end();
        self.sealed.lock().push(Sealed {
            segment,
            inodes,
            next_ino,
            made,
        });
    }

    fn end(&self) -> Part {
        Part {
            inodes: std::mem::take(&mut *self.dirty.lock()),
            segment: self.current.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// A checkpoint takes all of them, oldest first, and ends the current one. No operation holds the epoch
    /// lock.
    pub(crate) fn take(&self) -> (Vec<Sealed>, Part) {
        let last = self.end();
        (std::mem::take(&mut *self.sealed.lock()), last)
    }
}
