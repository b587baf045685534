//! Byte-range locks that wait for others (MS-SMB2 §3.3.5.14.2).
//!
//! The table of claims keeps the queue and says whose turn it is. A request that waits is found here by its open and its range;
//! it ends with a lock, with CANCEL, or with its open.

use crate::service::Service;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use weir_vfs::FileId;
use weir_vfs::claims::{Lock, Verdict, Who};
use weir_vfs::signal::Signal;

/// The number of an open, and a range of it.
type Key = (u64, u64, u64);

/// Requests for locks that wait.
#[derive(Default)]
pub struct Waits {
    /// What each waits for: true, it has the lock; false, its open is over.
    waiting: Mutex<HashMap<Key, Arc<Signal<bool>>>>,
}

fn key(lock: &Lock) -> Key {
    let number = match lock.owner.who {
        Who::Key(0, number) => number,
        _ => 0,
    };
    (number, lock.range.start, lock.range.last)
}

impl Waits {
    /// A queued request has its lock.
    pub fn granted(&self, lock: &Lock) {
        let found = self.waiting.lock().remove(&key(lock));
        if let Some(signal) = found {
            signal.set(true);
        }
    }

    /// An open is over: nothing of it waits any more.
    pub fn end(&self, open: u64) {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return;
        }
        let mut over = Vec::new();
        waiting.retain(|(number, ..), signal| {
            let stays = *number != open;
            if !stays {
                over.push(Arc::clone(signal));
            }
            stays
        });
        drop(waiting);
        over.iter().for_each(|signal| signal.set(false));
    }
}

/// A request for a lock that waits. Dropped before its lock was taken over, it has none.
pub(crate) struct Waiting {
    service: Arc<Service>,
    file: FileId,
    want: Lock,
    came: Arc<Signal<bool>>,
    taken: bool,
}

impl Waiting {
    /// Asks the table for a lock, and waits for it if that is in order; what the table said.
    pub fn ask(
        service: &Arc<Service>,
        file: FileId,
        want: Lock,
        grant: &Who,
    ) -> (Verdict, Option<Waiting>) {
        let waits = &service.leases.waits;
        let came = Arc::<Signal<bool>>::default();
        let key = key(&want);
        {
            let mut waiting = waits.waiting.lock();
            if waiting.contains_key(&key) {
                // The same open waits for the same range: for itself.
                return (Verdict::Deadlock, None);
            }
            waiting.insert(key, Arc::clone(&came));
        }
        let verdict = service.vfs.claims.lock(file, &want, grant, true);
        if verdict != Verdict::Queued {
            waits.waiting.lock().remove(&key);
            return (verdict, None);
        }
        let waiting = Waiting {
            service: Arc::clone(service),
            file,
            want,
            came,
            taken: false,
        };
        (verdict, Some(waiting))
    }

    /// What it waits for.
    pub fn over(&self) -> Arc<Signal<bool>> {
        Arc::clone(&self.came)
    }

    /// Whether its open is over.
    pub fn is_over(&self) -> bool {
        self.came.get() == Some(false)
    }

    /// Takes the lock over, if it was granted.
    pub fn take(&mut self) -> bool {
        self.taken |= self.came.get() == Some(true);
        self.taken
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        self.service
            .leases
            .waits
            .waiting
            .lock()
            .remove(&key(&self.want));
        let claims = &self.service.vfs.claims;
        // If it was granted meanwhile, nobody knows of it.
        if !claims.cancel(self.file, &self.want) {
            claims.unlock_exact(self.file, &self.want.owner, self.want.range);
        }
    }
}
