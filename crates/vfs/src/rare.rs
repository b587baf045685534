//! A table that is empty on most servers. A reader of an empty one reads one word.

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table that may be empty.
pub(crate) trait Contents: Clone {
    fn is_empty(&self) -> bool;
}

impl<T: Clone> Contents for Vec<T> {
    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Rare<T> {
    used: AtomicBool,
    table: ArcSwap<T>,
    /// Held while the table is replaced.
    changes: Mutex<()>,
}

impl<T: Contents> Rare<T> {
    /// Returns the table, if there is something in it.
    #[inline]
    pub(crate) fn read(&self) -> Option<Guard<Arc<T>>> {
        self.is_used().then(|| self.table.load())
    }

    /// Returns true if there is something in the table.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Replaces the table by a changed one.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        let _one = self.changes.lock();
        let mut table = T::clone(&self.table.load());
        change(&mut table);
        let used = !table.is_empty();
        self.table.store(Arc::new(table));
        self.used.store(used, Ordering::Release);
    }
}
