//! Locks that clients wait for (RFC 8881 §9.6, §20.11): a client that is denied a READW or WRITEW lock asks again from
//! time to time; if it can be called, it is notified as soon as that is worth while.
//!
//! The request is queued in the table of claims, with those of NLM, in the order of arrival. When its turn comes the table
//! gives the lock to its owner, which is not the client's doing: the lock is kept for it for some seconds, and the client is
//! notified (CB_NOTIFY_LOCK). If it asks in that time it has it; if not, the lock goes to the next one. A request that its client does
//! not repeat for as long as a lease is forgotten: the client does not say when it gives up.
//!
//! An owner that has locks in the file already is not queued: what it would be given could not be told apart from those.

use super::callback::Callback;
use super::client::Client;
use super::serve::Nfs4;
use super::state::Open;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_vfs::FileId;
use weir_vfs::claims::{Grant, Lock, Owner, Range};
use weir_vfs::grace::LEASE;

/// Time for which a lock is kept for its owner.
const KEPT: Duration = Duration::from_secs(2);
/// Requests at most; further clients ask again by themselves.
const MOST: usize = 4096;

struct Waiting {
    file: FileId,
    lock: Lock,
    open: Arc<Open>,
    client: Arc<Client>,
    /// It has the lock, and was notified.
    granted: bool,
    /// When it asked last, or was granted the lock.
    since: Duration,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Blocked {
    all: Mutex<Vec<Waiting>>,
    count: AtomicUsize,
}

impl Blocked {
    /// Takes out those that `select` chooses.
    fn take(&self, select: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
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

impl Nfs4 {
    /// Ends that requests wait, and what was given to their owners.
    fn end_waiting(&self, ended: Vec<Waiting>) {
        let claims = &self.vfs.claims;
        for w in ended {
            // If it is not queued, its turn has come.
            if !claims.cancel(w.file, &w.lock) {
                self.give_up(w.file, &w.lock.owner);
            }
        }
    }

    /// Unlocks what was kept for an owner.
    pub(super) fn give_up(&self, file: FileId, owner: &Owner) {
        // Unlocking all of it splits nothing, so it needs no memory.
        let unlocked = self.vfs.claims.unlock(file, owner, Range::ALL);
        assert!(unlocked.is_ok(), "an unlock of everything needs memory");
    }

    /// The owner asks for a lock: what it waited for in the file is over, unless it is this. Whether this was kept for it. To
    /// be called with the client's states locked.
    pub(super) fn asks_again(&self, file: FileId, want: &Lock) -> bool {
        let of_owner = |w: &Waiting| w.file == file && w.lock.owner == want.owner;
        let ended = self
            .blocked
            .take(|w| of_owner(w) && (w.granted || w.lock != *want));
        let (kept, ended): (Vec<_>, Vec<_>) = ended.into_iter().partition(|w| w.lock == *want);
        self.end_waiting(ended);
        !kept.is_empty()
    }

    /// The owner waits for nothing in the file: it was not queued after all, or the file is gone.
    pub(super) fn not_waiting(&self, file: FileId, owner: &Owner) {
        self.blocked
            .take(|w| w.file == file && w.lock.owner == *owner);
    }

    /// An open is closed. To be called with the client's states locked.
    pub(super) fn end_waiting_under(&self, open: &Arc<Open>) {
        let ended = self.blocked.take(|w| Arc::ptr_eq(&w.open, open));
        self.end_waiting(ended);
    }

    /// The client is gone; what it had in the table of claims is released with it.
    pub(super) fn forget_waiting(&self, client: &Client) {
        self.blocked.take(|w| w.client.id == client.id);
    }

    /// A request's turn has come.
    pub(super) fn granted(&self, grant: Grant) {
        let Grant { file, lock } = grant;
        let now = self.monotonic();
        let client = {
            let mut all = self.blocked.all.lock();
            let found = all.iter_mut().find(|w| w.file == file && w.lock == lock);
            found.map(|w| {
                (w.granted, w.since) = (true, now);
                Arc::clone(&w.client)
            })
        };
        let Some(client) = client else {
            // It has asked for it again meanwhile, or given it up.
            return;
        };
        let call = Callback::NotifyLock {
            file,
            client: client.id,
            owner: Arc::clone(&lock.owner.shown),
        };
        self.call_back(&client, call);
    }

    /// Passes on what was kept for too long, and forgets who does not ask any more; about once a second.
    pub(super) fn tick_blocked(&self) {
        let now = self.monotonic();
        let late = |w: &Waiting| {
            let most = if w.granted { KEPT } else { LEASE };
            now.saturating_sub(w.since) >= most
        };
        let clients: Vec<Arc<Client>> = {
            let all = self.blocked.all.lock();
            all.iter()
                .filter(|w| late(w))
                .map(|w| Arc::clone(&w.client))
                .collect()
        };
        for client in clients {
            // A LOCK that takes what was kept holds them.
            let _states = client.states.write();
            let ended = self.blocked.take(|w| w.client.id == client.id && late(w));
            self.end_waiting(ended);
        }
    }
}
