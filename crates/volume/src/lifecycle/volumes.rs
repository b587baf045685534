//! What happens to volumes as a whole: deletion, revert, cloning and splitting.
//!
//! All are carried out by the next consistency point, which makes them atomic and
//! durable, and they only exchange roots: what nothing leads to any more is freed in
//! the background ([`crate::checkpoint::job`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_base::VolumeId;
use weir_store::tree::TreeRoot;

use crate::checkpoint::orphans::read_orphans;
use crate::format::catalog::{MAX_VOLUME_NAME, Origin, VolumeRec};
use crate::lifecycle::engine::Engine;
use crate::overlay::volume::{GONE, Volume};
use crate::types::{FsError, Stop};

impl Engine {
    /// Deletes a volume with its snapshots; one that does not exist is deleted already.
    /// Whoever still has it open is told that it is stale. Durable when this returns;
    /// the space comes back in the background, in bounded steps, also after a restart.
    ///
    /// # Errors
    /// `Busy` if a clone depends on one of its snapshots; `ReadOnly`.
    pub fn delete_volume(&self, name: &str) -> Result<(), FsError> {
        match self.retire_volume(name)? {
            true => self.core.schedule.cp_now(),
            false => Ok(()),
        }
    }

    /// As [`Engine::delete_volume`], but durable only with the next consistency point,
    /// which this does not wait for ([`Engine::epoch`], [`Engine::is_durable`]): until
    /// then a crash brings the volume back. Its name must not be given to another
    /// volume until it is. Answers whether there was such a volume.
    ///
    /// # Errors
    /// `Busy` if a clone depends on one of its snapshots; `ReadOnly`.
    pub fn retire_volume(&self, name: &str) -> Result<bool, FsError> {
        let Some(vol) = self.volume(name) else {
            return Ok(false);
        };
        let core = &self.core;
        let _admin = vol.admin.lock();
        let depended_on = || vol.snaps.lock().has_clones();
        if depended_on() && (!core.settle_retired()? || depended_on()) {
            return Err(FsError::Busy);
        }
        vol.writable().map_err(Stop::refusal)?;
        core.gate().close(|| {
            if vol.hold.swap(GONE, Ordering::SeqCst) != GONE {
                self.cp.table().doom(&vol);
                core.schedule.note_change();
                core.note_retired();
            }
        });
        vol.table.retire(true);
        Ok(true)
    }

    /// The epoch that runs: what is done now is in it, or in a later one.
    pub fn epoch(&self) -> u64 {
        self.core.gate().epoch()
    }

    /// Whether everything done in `epoch` and before is durable in the volumes' trees.
    pub fn is_durable(&self, epoch: u64) -> bool {
        self.core.schedule.is_durable(epoch)
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
        vol.writable().map_err(Stop::refusal)?;
        if vol.protected.load(Ordering::Acquire) {
            return Err(FsError::ReadOnly);
        }
        if vol.splitting.load(Ordering::Acquire) {
            return Err(FsError::Busy);
        }
        let core = &self.core;
        let begin = || {
            core.gate().close(|| {
                if vol.hold.load(Ordering::Relaxed) == GONE {
                    return Err(FsError::Stale);
                }
                vol.snaps.lock().begin_revert(snapshot)?;
                vol.hold.store(core.gate().epoch(), Ordering::SeqCst);
                core.schedule.note_changed(vol.id);
                Ok(())
            })
        };
        match begin() {
            Err(FsError::Busy) if core.settle_retired()? => begin()?,
            begun => begun?,
        }
        core.schedule.cp_now()
    }

    /// Makes a volume that begins as a snapshot of another one and shares its blocks:
    /// writable at once, whatever its size. The limit is the other's. Durable when this
    /// returns. Until it is split from it, the snapshot cannot be deleted.
    ///
    /// # Errors
    /// `NotFound` for the other volume or the snapshot; `Exists`; `Invalid` for an empty
    /// name, `NameTooLong`; `ReadOnly`; `Stale`.
    pub fn clone_volume(
        &self,
        parent: &str,
        snapshot: &str,
        name: &str,
    ) -> Result<Arc<Volume>, FsError> {
        if name.is_empty() {
            return Err(FsError::Invalid);
        }
        if name.len() > MAX_VOLUME_NAME {
            return Err(FsError::NameTooLong);
        }
        let origin = self.volume(parent).ok_or(FsError::NotFound)?;
        let _admin = origin.admin.lock();
        origin.writable().map_err(Stop::refusal)?;
        let begin = loop {
            if let Some(begin) = origin.snaps.lock().to_clone(snapshot)? {
                break begin;
            }
            self.cp_now()?;
        };
        let (id, root, generation, used) = begin;
        let core = &self.core;
        let orphans = read_orphans(&core.agg.source(), &root).map_err(|error| {
            tracing::error!(volume = %origin.id, %error, "cannot read a snapshot to clone it");
            FsError::Io
        })?;
        let vol = core.gate().close(|| {
            let table = self.cp.table();
            let _making = table.begin_making();
            if origin.hold.load(Ordering::Relaxed) == GONE {
                return Err(FsError::Stale);
            }
            if table.named(name).is_some() {
                return Err(FsError::Exists);
            }
            let number = table.next_id()?;
            let rec = VolumeRec {
                name: name.to_owned(),
                root,
                // The places of names in directories come of it.
                key: origin.key.get(),
                next_ino: origin.next_ino.load(Ordering::Relaxed),
                limit: origin.limit.load(Ordering::Relaxed),
                used,
                next_snapshot: 1,
                dead: TreeRoot::EMPTY,
                dead_blocks: 0,
                // Clients know it by an identity of its own, so nothing of it has been shown.
                change_base: 0,
                change_top: origin.change_top.load(Ordering::Relaxed),
                origin: Some(Origin {
                    volume: origin.id,
                    snapshot: id,
                    generation,
                }),
                mirror: None,
            };
            let vol = Arc::new(Volume::new(Arc::clone(core), number, rec));
            vol.catalog.lock().orphans = orphans.dying;
            vol.unlinked.replace(orphans.unlinked);
            table.insert(Arc::clone(&vol));
            origin.snaps.lock().count_clone(id, true);
            core.schedule.note_changed(number);
            Ok(vol)
        })?;
        self.cp_now()?;
        Ok(vol)
    }

    /// Begins to copy what a clone shares with its origin, so that it no longer depends
    /// on it. That goes on in the background, also after a restart;
    /// [`Volume::origin`] says when it is done. A volume that is no clone is split
    /// already. The clone can be used meanwhile, but not have snapshots.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if the clone has snapshots; `ReadOnly`; `Stale`.
    pub fn split_clone(&self, name: &str) -> Result<(), FsError> {
        let vol = self.volume(name).ok_or(FsError::NotFound)?;
        let _admin = vol.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if vol.origin().is_none() || vol.splitting.load(Ordering::Acquire) {
            return Ok(());
        }
        if !vol.snaps.lock().is_empty() {
            return Err(FsError::Busy);
        }
        vol.splitting.store(true, Ordering::Release);
        self.cp.table().split(vol.id);
        self.core.schedule.note_changed(vol.id);
        self.cp_now()
    }

    /// Whether space is still being given back in the background.
    pub fn reclaiming(&self) -> bool {
        self.cp.has_backlog()
    }
}

impl Volume {
    /// Number of the volume and identity of the snapshot that this one is a clone of.
    pub fn origin(&self) -> Option<(VolumeId, u32)> {
        self.origin.lock().map(|o| (o.volume, o.snapshot))
    }

    /// Whether it is being split from its origin.
    pub fn splitting(&self) -> bool {
        self.splitting.load(Ordering::Acquire)
    }
}
