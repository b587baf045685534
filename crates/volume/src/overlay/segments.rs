//! The segments of a volume's history: the current one, and those that snapshots have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::overlay::inode::Inode;
use crate::overlay::snapshots::{SealedSegment, SnapshotProperties};

/// The segments of a volume.
pub(crate) struct Segments {
    /// Number of the current segment: it changes while the epoch lock is held exclusively.
    current: AtomicU64,
    /// Inodes with changes in the current segment.
    dirty: Mutex<Vec<Arc<Inode>>>,
    /// Segments ended by a snapshot, for the next checkpoint.
    sealed: Mutex<Vec<SealedSegment>>,
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

    /// Returns the number of the current segment.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// Adds an inode that changes for the first time in the current segment. Returns true for the
    /// first such inode.
    pub(crate) fn add_dirty(&self, inode: &Arc<Inode>) -> bool {
        let mut dirty = self.dirty.lock();
        dirty.push(Arc::clone(inode));
        dirty.len() == 1
    }

    /// Returns the number of segments besides the current one that wait for the next checkpoint.
    pub(crate) fn sealed(&self) -> usize {
        self.sealed.lock().len()
    }

    /// Ends the current segment with a snapshot; `next_ino` is the number after the last inode. No
    /// operation holds the epoch lock.
    pub(crate) fn seal(&self, made: SnapshotProperties, next_ino: u64) {
        let Part { segment, inodes } = self.end();
        self.sealed.lock().push(SealedSegment {
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

    /// Takes all segments for a checkpoint, oldest first, and ends the current one. No operation
    /// holds the epoch lock.
    pub(crate) fn take(&self) -> (Vec<SealedSegment>, Part) {
        let last = self.end();
        (std::mem::take(&mut *self.sealed.lock()), last)
    }
}
