//! What happens to volumes as a whole: deletion and revert.
//!
//! Both are carried out by the next consistency point, which makes them atomic and
//! durable, and both only exchange roots: what nothing leads to any more is freed in
//! the background ([`crate::job`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::types::{FsError, Stop};
use crate::volume::GONE;

impl Engine {
    /// Deletes a volume with its snapshots; one that does not exist is deleted already.
    /// Whoever still has it open is told that it is stale. Durable when this returns;
    /// the space comes back in the background, in bounded steps, also after a restart.
    ///
    /// # Errors
    /// `Busy` if a clone depends on one of its snapshots; `ReadOnly`.
    pub fn delete_volume(&self, name: &str) -> Result<(), FsError> {
        let Some(vol) = self.volume(name) else {
            return Ok(());
        };
        let _admin = vol.admin.lock();
        if vol.snaps.lock().has_clones() {
            return Err(FsError::Busy);
        }
        vol.writable().map_err(refusal)?;
        let core = &self.core;
        core.gate.close(|| {
            if vol.hold.swap(GONE, Ordering::SeqCst) != GONE {
                core.volumes.write().remove(&vol.id);
                core.doomed.lock().push(Arc::clone(&vol));
                core.changed.store(true, Ordering::Relaxed);
            }
        });
        vol.table.retire(true);
        let origin = vol.catalog.lock().rec.origin;
        core.cp_now()?;
        if let Some(origin) = origin
            && let Some(parent) = core.volumes.read().get(&origin.volume)
        {
            parent.snaps.lock().count_clone(origin.snapshot, false);
        }
        Ok(())
    }

    /// Makes a volume what it was when the snapshot was made. Later snapshots are
    /// deleted. Inodes keep their numbers, so handles stay good; what did not exist
    /// then is stale. Durable when this returns. Changes that come meanwhile wait, and
    /// are then made to the volume as it was.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a clone depends on a later snapshot, or the volume is being
    /// split from its origin; `ReadOnly`; `Stale`.
    pub fn revert(&self, volume: &str, snapshot: &str) -> Result<(), FsError> {
        let vol = self.volume(volume).ok_or(FsError::NotFound)?;
        let _admin = vol.admin.lock();
        vol.writable().map_err(refusal)?;
        if vol.splitting.load(Ordering::Acquire) {
            return Err(FsError::Busy);
        }
        let core = &self.core;
        core.gate.close(|| {
            if vol.hold.load(Ordering::Relaxed) == GONE {
                return Err(FsError::Stale);
            }
            vol.snaps.lock().begin_revert(snapshot)?;
            vol.hold.store(core.gate.epoch(), Ordering::SeqCst);
            core.note_changed(vol.id);
            Ok(())
        })?;
        core.cp_now()
    }

    /// Whether space is still being given back in the background.
    pub fn reclaiming(&self) -> bool {
        self.core.backlog.load(Ordering::Acquire)
    }
}

/// What a stop is that does not ask for a repetition.
fn refusal(stop: Stop) -> FsError {
    match stop {
        Stop::Fail(e) => e,
        Stop::Wait(_) | Stop::Fetch(_) => FsError::Delay,
    }
}
