//! Operations on whole volumes: deletion, revert, cloning and splitting.
//!
//! The next checkpoint carries them out, which makes them atomic and durable. They only exchange
//! roots: unreachable blocks are freed in the background ([`crate::checkpoint::job`]).

use std::sync::Arc;

use weir_base::VolumeId;
use weir_store::tree::TreeRoot;

use crate::checkpoint::orphans::read_orphans;
use crate::format::catalog::{MAX_VOLUME_NAME, Origin, VolumeRec};
use crate::format::volume_change::VolumeChange;
use crate::lifecycle::engine::Engine;
use crate::overlay::role::{Ancestry, State};
use crate::overlay::volume::{Live, LiveVolume, Volume};
use crate::types::{FsError, ReplacementKind, Stop};

impl Engine {
    /// Registers `follower` for a call after a volume was deleted, or its content replaced, on the
    /// thread that did it. Returns false if there is a follower already.
    pub fn on_replaced(
        &self,
        follower: impl Fn(VolumeId, ReplacementKind) + Send + Sync + 'static,
    ) -> bool {
        self.core.on_replaced(Arc::new(follower))
    }

    /// Deletes a volume with its snapshots; a missing one counts as deleted. A caller that still
    /// has it open gets `Stale`. Durable on return; the space is freed in the background, in
    /// bounded steps, also after a restart.
    ///
    /// # Errors
    /// `Busy` if a clone depends on one of its snapshots; `ReadOnly`.
    pub fn delete_volume(&self, name: &str) -> Result<(), FsError> {
        match self.retire_volume(name)? {
            true => {
                self.core.schedule.cp_now()?;
                self.mirrored()
            }
            false => Ok(()),
        }
    }

    /// Like [`Engine::delete_volume`], but durable only with the next checkpoint, which this does
    /// not wait for ([`Engine::epoch`], [`Engine::is_durable`]). Until then a crash brings the
    /// volume back, and its name must not be given to another volume. Returns true if the volume
    /// existed.
    ///
    /// # Errors
    /// `Busy` if a clone depends on one of its snapshots; `ReadOnly`.
    pub fn retire_volume(&self, name: &str) -> Result<bool, FsError> {
        let Ok(vol) = self.live_volume(name) else {
            return Ok(false);
        };
        let core = &self.core;
        let live = vol.live();
        let _admin = live.admin.lock();
        let depended_on = || live.snaps.lock().has_clones();
        if depended_on() && (!core.settle_retired()? || depended_on()) {
            return Err(FsError::Busy);
        }
        vol.writable().map_err(Stop::refusal)?;
        let retired = core.epoch_lock().exclusive(|| {
            if live.standing.delete() {
                self.cp.table().doom(&vol);
                core.schedule.note_change();
                core.note_retired();
                return core.log.ship_change(vol.id, &VolumeChange::Retired);
            }
            Ok(())
        });
        retired.map_err(Stop::refusal)?;
        vol.table.retire(true);
        core.replaced(vol.id, ReplacementKind::Whole);
        Ok(true)
    }

    /// Returns the current epoch: a change made now is in it, or in a later one.
    pub fn epoch(&self) -> u64 {
        self.core.epoch_lock().epoch()
    }

    /// Returns true if every change made in `epoch` and before is durable in the volumes' trees.
    pub fn is_durable(&self, epoch: u64) -> bool {
        self.core.schedule.is_durable(epoch)
    }

    /// Reverts a volume to a snapshot; later snapshots are deleted. Inodes keep their numbers, so
    /// handles stay valid; those of inodes that did not exist then become stale. Durable on return.
    /// Concurrent changes wait, and are then made to the reverted volume.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a clone depends on a later snapshot, or the volume is being split from
    /// its origin; `ReadOnly`; `Stale`.
    pub fn revert(&self, volume: &str, snapshot: &str) -> Result<(), FsError> {
        let vol = self.live_volume(volume)?;
        let live = vol.live();
        let _admin = live.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if vol.protected() {
            return Err(FsError::ReadOnly);
        }
        if vol.splitting() {
            return Err(FsError::Busy);
        }
        let core = &self.core;
        let begin = || {
            core.epoch_lock().exclusive(|| {
                live.standing.free()?;
                live.snaps.lock().begin_revert(snapshot)?;
                live.standing.begin_turn(core.epoch_lock().epoch(), None)?;
                core.schedule.note_changed(vol.id);
                let change = VolumeChange::Reverted { snapshot };
                let shipped = core.log.ship_change(vol.id, &change);
                shipped.map_err(Stop::refusal)
            })
        };
        match begin() {
            Err(FsError::Busy) if core.settle_retired()? => begin()?,
            begun => begun?,
        }
        let done = core.schedule.cp_now();
        core.replaced(vol.id, ReplacementKind::Whole);
        done?;
        self.mirrored()
    }

    /// Creates a volume as a clone of another one's snapshot that shares its blocks: writable at
    /// once, whatever its size, and with the origin's limit. Durable on return. The snapshot cannot
    /// be deleted until the clone is split from it.
    ///
    /// # Errors
    /// `NotFound` for the other volume or the snapshot; `Exists`; `Invalid` for an empty name,
    /// `NameTooLong`; `ReadOnly`; `Stale`.
    pub fn clone_volume(
        &self,
        parent: &str,
        snapshot: &str,
        name: &str,
    ) -> Result<Arc<Volume>, FsError> {
        self.clone_as(parent, snapshot, name, None)
    }

    /// Like [`Engine::clone_volume`]. `number`: that of a clone in another aggregate, of which this
    /// one is the copy.
    pub(crate) fn clone_as(
        &self,
        parent: &str,
        snapshot: &str,
        name: &str,
        number: Option<VolumeId>,
    ) -> Result<Arc<Volume>, FsError> {
        if name.is_empty() {
            return Err(FsError::Invalid);
        }
        if name.len() > MAX_VOLUME_NAME {
            return Err(FsError::NameTooLong);
        }
        let origin = self.live_volume(parent)?;
        let of = origin.live();
        let _admin = of.admin.lock();
        origin.writable().map_err(Stop::refusal)?;
        let begin = loop {
            if let Some(begin) = of.snaps.lock().to_clone(snapshot)? {
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
        let vol = core.epoch_lock().exclusive(|| {
            let table = self.cp.table();
            let _making = table.begin_making();
            if of.standing.state() == State::Deleted {
                return Err(FsError::Stale);
            }
            if table.find_by_name(name).is_some() {
                return Err(FsError::Exists);
            }
            let number = match number {
                Some(number) => number,
                None => table.next_id()?,
            };
            // Saturates: no volume gets the last number.
            table.begin_at(number.0.saturating_add(1));
            let rec = VolumeRec {
                name: name.to_owned(),
                root,
                // The places of names in directories are derived from it.
                key: origin.key.get(),
                next_ino: origin.counters.next_ino(),
                limit: origin.space.limit(),
                used,
                next_snapshot: 1,
                next_place: 1,
                dead: TreeRoot::EMPTY,
                dead_blocks: 0,
                // Clients know the clone by its own identity, so they have seen none of its values.
                change_base: 0,
                change_top: origin.counters.top(),
                origin: Some(Origin {
                    volume: origin.id,
                    snapshot: id,
                    generation,
                }),
                mirror: None,
            };
            let vol = LiveVolume::new(Arc::clone(core), number, rec);
            vol.live().catalog.lock().orphans = orphans.dying;
            vol.live().unlinked.replace(orphans.unlinked);
            table.insert(vol.clone());
            of.snaps.lock().count_clone(id, true);
            core.schedule.note_changed(number);
            let change = VolumeChange::Cloned {
                number,
                snapshot,
                name,
            };
            let shipped = core.log.ship_change(origin.id, &change);
            shipped.map_err(Stop::refusal)?;
            Ok(vol)
        })?;
        self.cp_now()?;
        self.mirrored()?;
        Ok(Arc::clone(vol.volume()))
    }

    /// Begins to copy the blocks that a clone shares with its origin, so that it no longer depends
    /// on it. The copying runs in the background, also after a restart; [`Volume::origin`] returns
    /// `None` when it is complete. A volume that is not a clone counts as split. The clone can be
    /// used meanwhile, but not have snapshots.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if the clone has snapshots; `ReadOnly`; `Stale`.
    pub fn split_clone(&self, name: &str) -> Result<(), FsError> {
        let vol = self.live_volume(name)?;
        let live = vol.live();
        let _admin = live.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if matches!(*live.ancestry.lock(), Ancestry::Clone(_)) {
            // Marks keep the blocks that it shares with its origin.
            self.drop_marks_of(&vol, |_| true)?;
            self.cp_now()?;
        }
        let pass = self.core.epoch_lock().enter();
        let mut ancestry = live.ancestry.lock();
        if !matches!(*ancestry, Ancestry::Clone(_)) {
            return Ok(());
        }
        if !live.snaps.lock().is_empty() {
            return Err(FsError::Busy);
        }
        let shipped = self.core.log.ship_change(vol.id, &VolumeChange::Split);
        shipped.map_err(Stop::refusal)?;
        ancestry.begin_split();
        drop(ancestry);
        self.cp.table().split(vol.id);
        self.core.schedule.note_changed(vol.id);
        drop(pass);
        self.cp_now()?;
        self.mirrored()
    }

    /// Returns true while space is being freed in the background.
    pub fn reclaiming(&self) -> bool {
        self.cp.has_backlog()
    }
}

impl Volume {
    /// Returns the volume's number and the snapshot's identity that this one is a clone of.
    pub fn origin(&self) -> Option<(VolumeId, u32)> {
        let origin = self.as_live()?.ancestry.lock().origin()?;
        Some((origin.volume, origin.snapshot))
    }

    /// Returns true while it is being split from its origin.
    pub fn splitting(&self) -> bool {
        let splits = |live: &Live| matches!(*live.ancestry.lock(), Ancestry::Splitting(_));
        self.as_live().is_some_and(splits)
    }
}

#[cfg(test)]
mod tests {
    use weir_base::{ManualClock, Rng, SeededRng, Time};
    use weir_store::aggregate::{Aggregate, Env};
    use weir_store::{FramePool, MemDevice};

    use super::*;
    use crate::lifecycle::engine::EngineOptions;
    use crate::overlay::role::Writers;

    /// The last checkpoint may carry out a revert. Once, the reverted volume was open again
    /// afterwards: clients could change it after the engine had been shut down, and the next start
    /// took outdated counters for current ones.
    #[test]
    fn what_the_last_checkpoint_reverts_is_closed_as_well() {
        let rng = Arc::new(SeededRng::new(5));
        let env = Env {
            pool: FramePool::new(4096).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::clone(&rng) as Arc<dyn Rng>,
        };
        let (device, log) = (MemDevice::new(64 << 8), MemDevice::new(4 << 8));
        let (agg, replay) = Aggregate::create_on(Arc::new(device), Arc::new(log), env).unwrap();
        let options = EngineOptions {
            background: false,
            ..EngineOptions::default()
        };
        let engine = Engine::open(agg, replay, &*rng, options).unwrap();
        let made = engine.create_volume("vol", (0, 0), 0o755, Time::EPOCH, &*rng);
        let vol = made.unwrap().to_live().unwrap();
        vol.snapshot_create("s", Time::EPOCH).unwrap();
        engine.cp_now().unwrap();
        let live = vol.live();
        live.snaps.lock().begin_revert("s").unwrap();
        let epoch = engine.epoch();
        live.standing.begin_turn(epoch, None).unwrap();
        engine.core.schedule.note_changed(vol.id);
        engine.shutdown().unwrap();
        assert_eq!(live.standing.state(), State::Closed(Writers::Clients));
        assert!(matches!(vol.enter(), Err(Stop::Fail(FsError::Delay))));
    }
}
