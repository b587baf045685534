//! The open inodes of a volume, and those without a name ([`crate::ops::pin`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_base::Ino;

use crate::types::{FsError, Stop};

/// The pins of a volume, and its inodes without a name. Locked in this order, and after an inode.
#[derive(Default)]
pub(crate) struct UnlinkedInodes {
    inodes: Mutex<BTreeSet<Ino>>,
    pins: Mutex<HashMap<Ino, u32>>,
    /// Number of pinned inodes, read without the lock.
    pinned: AtomicUsize,
}

impl UnlinkedInodes {
    /// Returns true if a client has the inode open; the caller has its lock.
    pub(crate) fn is_pinned(&self, ino: Ino) -> bool {
        self.pinned.load(Ordering::Relaxed) > 0 && self.pins.lock().contains_key(&ino)
    }

    /// Returns true if an inode without links is kept for the time being.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.inodes.lock().contains(&ino)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }

    pub(crate) fn insert(&self, ino: Ino) {
        self.inodes.lock().insert(ino);
    }

    /// Removes it. Returns true if it was in the set.
    pub(crate) fn remove(&self, ino: Ino) -> bool {
        self.inodes.lock().remove(&ino)
    }

    /// Replaces the whole set.
    pub(crate) fn replace(&self, all: Vec<Ino>) {
        *self.inodes.lock() = all.into_iter().collect();
    }

    /// Adds a pin; `named`: the inode has a name.
    pub(crate) fn pin(&self, ino: Ino, named: bool) -> Result<(), Stop> {
        let inodes = self.inodes.lock();
        if !named && !inodes.contains(&ino) {
            return Err(FsError::Stale.into());
        }
        let mut pins = self.pins.lock();
        *pins.entry(ino).or_default() += 1;
        self.pinned.store(pins.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Removes a pin. Returns true if that was the last one of an inode without a name.
    pub(crate) fn unpin(&self, ino: Ino) -> bool {
        let inodes = self.inodes.lock();
        let mut pins = self.pins.lock();
        let Some(count) = pins.get_mut(&ino) else {
            unreachable!("a pin that is not counted");
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        pins.remove(&ino);
        self.pinned.store(pins.len(), Ordering::Relaxed);
        inodes.contains(&ino)
    }

    /// Takes the inodes that no client has open.
    pub(crate) fn take(&self) -> Vec<Ino> {
        let mut inodes = self.inodes.lock();
        if inodes.is_empty() {
            return Vec::new();
        }
        let pins = self.pins.lock();
        let free: Vec<Ino> = inodes
            .iter()
            .filter(|ino| !pins.contains_key(ino))
            .copied()
            .collect();
        free.iter().for_each(|ino| {
            inodes.remove(ino);
        });
        free
    }
}
