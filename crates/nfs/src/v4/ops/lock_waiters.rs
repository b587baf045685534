//! Locks that clients wait for: keeps a granted lock for its owner, and notifies the client. See
//! [`crate::v4::lock_waiters`].

use crate::v4::callback::Callback;
use crate::v4::client::Client;
use crate::v4::lock_waiters::BlockedLock;
use crate::v4::server::Nfs4;
use crate::v4::state::Open;
use std::sync::Arc;
use std::time::Duration;
use weir_vfs::FileId;
use weir_vfs::claims::{Grant, Lock, Owner, Range};
use weir_vfs::grace::LEASE;

/// Time for which a granted lock is kept for its owner.
const KEPT: Duration = Duration::from_secs(2);
impl Nfs4 {
    /// Ends requests, and releases the locks that were kept for them.
    fn end_waiting(&self, ended: Vec<BlockedLock>) {
        let claims = &self.vfs.claims;
        for w in ended {
            // A request that is not queued any more has been granted.
            if !claims.cancel(w.file, &w.lock) {
                self.give_up(w.file, &w.lock.owner);
            }
        }
    }

    /// Releases the lock that was kept for an owner.
    pub(in crate::v4) fn give_up(&self, file: FileId, owner: &Owner) {
        // A complete unlock splits nothing, so it needs no memory.
        let unlocked = self.vfs.claims.unlock(file, owner, Range::ALL);
        assert!(unlocked.is_ok(), "an unlock of everything needs memory");
    }

    /// Handles a new request of an owner. Its other requests in the file end. Returns true if this
    /// lock was granted and kept for it. The caller holds the lock on the client's states.
    pub(in crate::v4) fn asks_again(&self, file: FileId, want: &Lock) -> bool {
        let of_owner = |w: &BlockedLock| w.file == file && w.lock.owner == want.owner;
        let ended = self
            .blocked
            .take(|w| of_owner(w) && (w.granted || w.lock != *want));
        let (kept, ended): (Vec<_>, Vec<_>) = ended.into_iter().partition(|w| w.lock == *want);
        self.end_waiting(ended);
        !kept.is_empty()
    }

    /// Forgets the owner's requests in the file, without releasing a lock: it was not queued after
    /// all, or the file is gone.
    pub(in crate::v4) fn not_waiting(&self, file: FileId, owner: &Owner) {
        self.blocked
            .take(|w| w.file == file && w.lock.owner == *owner);
    }

    /// Ends the requests under an open that is closed. The caller holds the lock on the client's
    /// states.
    pub(in crate::v4) fn end_waiting_under(&self, open: &Arc<Open>) {
        let ended = self.blocked.take(|w| Arc::ptr_eq(&w.open, open));
        self.end_waiting(ended);
    }

    /// Keeps a granted lock for its owner, and notifies the client.
    pub(in crate::v4) fn granted(&self, grant: Grant) {
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
            // The owner has asked again meanwhile, or given up.
            return;
        };
        let call = Callback::NotifyLock {
            file,
            client: client.id,
            owner: Arc::clone(&lock.owner.shown),
        };
        self.call_back(&client, call);
    }

    /// Releases locks that were kept for too long, and forgets requests that were not repeated.
    /// Call it about once a second.
    pub(in crate::v4) fn tick_blocked(&self) {
        let now = self.monotonic();
        let late = |w: &BlockedLock| {
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
            // A LOCK that takes a kept lock holds the lock on the states.
            let _states = client.states.write();
            let ended = self.blocked.take(|w| w.client.id == client.id && late(w));
            self.end_waiting(ended);
        }
    }
}
