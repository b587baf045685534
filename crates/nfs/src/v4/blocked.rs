//! Locks that clients wait for (RFC 8881 §9.6, §20.11): a client that is denied a READW or WRITEW
//! lock asks again from time to time; if it can be called, it is notified as soon as that is worth
//! while.
//!
//! The request is queued in the table of claims, with those of NLM, in the order of arrival. When
//! its turn comes the table gives the lock to its owner, which is not the client's doing: the lock
//! is kept for it for some seconds, and the client is notified (CB_NOTIFY_LOCK). If it asks in that
//! time it has it; if not, the lock goes to the next one. A request that its client does not repeat
//! for as long as a lease is forgotten: the client does not say when it gives up.
//!
//! An owner that has locks in the file already is not queued: what it would be given could not be
//! told apart from those.

use super::client::Client;
use super::state::Open;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_vfs::FileId;
use weir_vfs::claims::Lock;

/// Requests at most; further clients ask again by themselves.
pub(super) const MOST: usize = 4096;

pub(super) struct Waiting {
    pub(super) file: FileId,
    pub(super) lock: Lock,
    pub(super) open: Arc<Open>,
    pub(super) client: Arc<Client>,
    /// It has the lock, and was notified.
    pub(super) granted: bool,
    /// When it asked last, or was granted the lock.
    pub(super) since: Duration,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Blocked {
    pub(super) all: Mutex<Vec<Waiting>>,
    pub(super) count: AtomicUsize,
}

impl Blocked {
    /// Takes out those that `select` chooses.
    pub(super) fn take(&self, select: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut all = self.all.lock();
        let taken = all.extract_if(.., |w| select(w)).collect();
        self.count.store(all.len(), Ordering::Release);
        taken
    }

    /// Whether this request waits.
    pub(super) fn has(&self, file: FileId, lock: &Lock) -> bool {
        let any = self.count.load(Ordering::Acquire) > 0;
        any && self
            .all
            .lock()
            .iter()
            .any(|w| w.file == file && w.lock == *lock)
    }

    /// A request is about to be queued, or is asked again; false if there are too many.
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
        all.push(Waiting {
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
