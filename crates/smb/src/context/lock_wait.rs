//! A request for a byte-range lock that waits for others. See [`crate::open::waits`].

use crate::conn::server::Service;
use crate::open::waits::key;
use std::sync::Arc;
use weir_vfs::FileId;
use weir_vfs::claims::{Lock, OwnerId, Verdict};
use weir_vfs::signal::Signal;

/// A request for a lock that waits. Dropped before its lock was taken over, it has none.
pub(crate) struct LockWait {
    service: Arc<Service>,
    file: FileId,
    want: Lock,
    came: Arc<Signal<bool>>,
    taken: bool,
}

impl LockWait {
    /// Asks the table for a lock, and waits for it if that is in order; what the table said.
    pub fn request_lock(
        service: &Arc<Service>,
        file: FileId,
        want: Lock,
        grant: &OwnerId,
    ) -> (Verdict, Option<LockWait>) {
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
        let waiting = LockWait {
            service: Arc::clone(service),
            file,
            want,
            came,
            taken: false,
        };
        (verdict, Some(waiting))
    }

    /// Returns the signal that ends the wait.
    pub fn end_signal(&self) -> Arc<Signal<bool>> {
        Arc::clone(&self.came)
    }

    /// Returns true if its open has ended.
    pub fn is_over(&self) -> bool {
        self.came.get() == Some(false)
    }

    /// Takes the lock over, if it was granted.
    pub fn take(&mut self) -> bool {
        self.taken |= self.came.get() == Some(true);
        self.taken
    }
}

impl Drop for LockWait {
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
