//! Holds a volume still for the last copy before it moves to another aggregate.

use crate::lifecycle::engine::Engine;
use crate::types::FsError;

impl Engine {
    /// Holds back all changes of clients in a volume until [`Engine::release_changes`]. On return
    /// no change is in progress, so that a snapshot has all that was ever acknowledged. Snapshots
    /// can be made. In memory only: a start releases the volume.
    ///
    /// The caller holds back requests before they get here. One that passed it before waits for a
    /// checkpoint and is then run again from its start.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly` for the destination of a replication; `Busy` while the volume is
    /// reverted; `Stale`.
    pub fn hold_changes(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.live_volume(volume)?;
        let epoch_lock = self.core.epoch_lock();
        epoch_lock.exclusive(|| vol.live().standing.hold(epoch_lock.epoch()))
    }

    /// Lets clients change a volume again. One that is not held, or is gone, stays as it is.
    pub fn release_changes(&self, volume: &str) {
        if let Ok(vol) = self.live_volume(volume) {
            vol.live().standing.unhold();
        }
    }
}
