//! Locks that clients wait for (RFC 8881 §9.6, §20.11). A client whose READW or WRITEW lock is
//! denied asks again from time to time. If it can be called, it is notified as soon as the lock is
//! likely to be granted.
//!
//! The request is queued in the table of claims, with those of NLM, in the order of arrival. When
//! its turn comes the table grants the lock to its owner, although the client has not asked again.
//! The lock is kept for some seconds, and the client is notified (CB_NOTIFY_LOCK). If it asks in
//! that time it gets the lock; otherwise the lock goes to the next request. A request that its
//! client does not repeat for the length of a lease is forgotten, since the client does not report
//! that it gives up.
//!
//! An owner that already has locks in the file is not queued: the new lock could not be
//! distinguished from those.

use super::client::Client;
use super::state::Open;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_vfs::FileId;
use weir_vfs::claims::Lock;

/// Maximum number of requests; further clients ask again by themselves.
pub(super) const MOST: usize = 4096;

pub(super) struct BlockedLock {
    pub(super) file: FileId,
    pub(super) lock: Lock,
    pub(super) open: Arc<Open>,
    pub(super) client: Arc<Client>,
    /// True if it has been granted the lock, and its client was notified.
    pub(super) granted: bool,
    /// Time of its last request, or of the grant.
    pub(super) since: Duration,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct BlockedLockQueue {
    pub(super) all: Mutex<Vec<BlockedLock>>,
    pub(super) count: AtomicUsize,
}

impl BlockedLockQueue {
    /// Removes and returns the requests that `select` chooses.
    pub(super) fn take(&self, select: impl Fn(&BlockedLock) -> bool) -> Vec<BlockedLock> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut all = self.all.lock();
        let taken = all.extract_if(.., |w| select(w)).collect();
        self.count.store(all.len(), Ordering::Release);
        taken
    }

    /// Returns true if this request is queued.
    pub(super) fn contains(&self, file: FileId, lock: &Lock) -> bool {
        let any = self.count.load(Ordering::Acquire) > 0;
        any && self
            .all
            .lock()
            .iter()
            .any(|w| w.file == file && w.lock == *lock)
    }

    /// Adds a request that is to be queued, or renews it. Returns false if there are too many.
    pub(super) fn enter(
        &self,
        file: FileId,
        lock: &Lock,
        open: &Arc<Open>,
        client: &Arc<Client>,
        now: Duration,
    ) -> bool {
        let mut all = self.all.lock();
        if let Some(w) = all.iter_mut().find(|w| w.file == file && w.lock == *lock) {
            w.since = now;
            return true;
        }
        if all.len() >= MOST {
            return false;
        }
        all.push(BlockedLock {
            file,
            lock: lock.clone(),
            open: Arc::clone(open),
            client: Arc::clone(client),
            granted: false,
            since: now,
        });
        self.count.store(all.len(), Ordering::Release);
        true
    }
}
