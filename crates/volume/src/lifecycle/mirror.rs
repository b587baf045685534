//! Destinations of a replication.
//!
//! A destination is *protected*: no client changes it. Clients do not read the volume's current
//! state, which a transfer may be writing, but the newest snapshot that arrived completely, the
//! *exported* one. So a transfer that is in progress, fails or is broken off is never visible, and
//! when one completes all clients switch over at once. The exported snapshot keeps the volume's own
//! file-system identity and inode numbers. So handles stay valid from one snapshot to the next, and
//! beyond a break.
//!
//! **Identity.** A received snapshot is identified by its first creation ([`SnapshotIdentity`]),
//! through any number of copies. So common snapshots of two volumes are found without names, which
//! may change, even after a relationship is reversed. The contents of both are compared as well
//! ([`crate::lifecycle::content`]).

use std::sync::Arc;

use weir_base::{Ino, Time};
use weir_store::node::Key;

use crate::format::catalog::MirrorRec;
use crate::format::record::ROOT_INO;
use crate::lifecycle::engine::Engine;
use crate::overlay::context::EngineContext;
use crate::overlay::role::{State, Writers};
use crate::overlay::transfer_state::DestinationState;
use crate::overlay::volume::{Live, LiveVolume, Volume};
use crate::types::{Backpressure, FsError, ReplacementKind, Stop};
use weir_base::SnapshotIdentity;

/// A position in the sending order of a transfer: bytes of a key, which compare like keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub [u8; 17]);

impl Position {
    /// Compares lower than the position of every record.
    pub const START: Position = Position([0; 17]);
    /// Compares higher than the position of every record.
    pub const END: Position = Position([0xFF; 17]);

    /// Returns the position of an inode's first record, the inode itself.
    pub fn of_inode(ino: Ino) -> Position {
        Position(Key::new(ino.0, 0, 0).encode())
    }

    /// Returns the inode that the record at this position belongs to.
    pub fn inode(self) -> Ino {
        Ino(Key::decode(&self.0).ino)
    }

    /// Returns the position right behind a record.
    pub fn behind(self) -> Position {
        let mut bytes = self.0;
        for byte in bytes.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                return Position(bytes);
            }
        }
        Position::END
    }
}

/// A transfer that has not arrived completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// Base of the difference; `None`: the transfer is complete by itself.
    pub base: Option<SnapshotIdentity>,
    /// The snapshot that it transfers.
    pub target: SnapshotIdentity,
    /// Bytes received so far, before compression, up to the position from which it would resume.
    pub logical: u64,
    /// Bytes received so far on the wire, after compression.
    pub wire: u64,
}

/// State of a protected volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// Identity (in this volume) of the snapshot that clients see; `None` until a first transfer
    /// has completed.
    pub exported: Option<u32>,
    /// The transfer that is in progress or was interrupted.
    pub partial: Option<Partial>,
}

/// Keeps a snapshot from being deleted until it is dropped.
pub struct SnapshotHold {
    volume: LiveVolume,
    id: u32,
}

impl SnapshotHold {
    /// Returns the snapshot's number in its volume.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the volume that the snapshot belongs to.
    pub fn volume(&self) -> &Arc<Volume> {
        self.volume.volume()
    }
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.volume.live().snaps.lock().hold(self.id, false);
    }
}

/// Distance that inode numbers jump when a destination becomes writable. New inodes then get no
/// number that the source gives to another inode, in case the destination becomes its copy again.
const BREAK_INODES: u64 = 1 << 40;

impl Volume {
    /// Returns an identity of the volume among all volumes of all aggregates.
    pub fn uuid(&self) -> [u8; 16] {
        self.core.uuid_of(self.id)
    }

    /// Returns the volume's state as a destination; `None` if it is not one, and so can be written
    /// to.
    pub fn mirror(&self) -> Option<Mirror> {
        let rec = self.as_live()?.receiving.lock().rec?;
        Some(Mirror {
            exported: (rec.exported != 0).then_some(rec.exported),
            partial: partial(&rec),
        })
    }

    /// Returns the view that clients see in place of the volume; `None`: the volume itself.
    ///
    /// # Errors
    /// `Access` if there is nothing to see yet.
    pub fn serving(&self) -> Result<Option<Arc<Volume>>, Stop> {
        let Some(live) = self.as_live().filter(|_| self.protected()) else {
            return Ok(None);
        };
        match live.exported.load_full() {
            Some(view) => Ok(Some(view)),
            None => self.find_exported(live),
        }
    }

    #[cold]
    fn find_exported(&self, live: &Live) -> Result<Option<Arc<Volume>>, Stop> {
        // Under the lock under which it changes.
        let receiving = live.receiving.lock();
        let state = live.standing.state();
        let Some(rec) = receiving.rec else {
            // The volume is being broken off.
            return match state {
                State::Serving(_) | State::Held { .. } | State::Closed(_) => Ok(None),
                State::Deleted => Err(FsError::Stale.into()),
                State::Turning { until, .. } => Err(Stop::Wait(Backpressure::Epoch(until))),
            };
        };
        if rec.exported == 0 {
            return Err(FsError::Access.into());
        }
        // Clients have seen later change counters until the volume is the snapshot again.
        if let State::Turning { until, .. } = state {
            return Err(Stop::Wait(Backpressure::Epoch(until)));
        }
        let view = self.view_as(rec.exported, true)?;
        live.exported.store(Some(Arc::clone(&view)));
        Ok(Some(view))
    }

    /// Keeps a snapshot from being deleted, and the volume from being reverted to an older one
    /// (`Busy`), until the hold is dropped.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn hold_identity(
        self: &Arc<Self>,
        identity: SnapshotIdentity,
    ) -> Result<SnapshotHold, FsError> {
        let volume = self.to_live().map_err(|_| FsError::NotFound)?;
        let mut snaps = volume.live().snaps.lock();
        let id = snaps.with_identity(identity).ok_or(FsError::NotFound)?;
        snaps.hold(id, true);
        drop(snaps);
        Ok(SnapshotHold { volume, id })
    }
}

impl LiveVolume {
    /// Changes the volume's state for transfers while no other operation runs in it; the caller
    /// holds its `admin` lock. Durable on return.
    fn turn(
        &self,
        writers: Option<Writers>,
        change: impl FnOnce(&mut DestinationState) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        let core = &self.core;
        core.epoch_lock().exclusive(|| {
            let live = self.live();
            live.standing.free()?;
            let mut receiving = live.receiving.lock();
            receiving.idle()?;
            change(&mut receiving)?;
            live.standing
                .begin_turn(core.epoch_lock().epoch(), writers)?;
            core.schedule.note_changed(self.id);
            Ok(())
        })?;
        core.schedule.cp_now()
    }

    /// Reverts the data of an interrupted transfer; the caller holds the volume's `admin` lock.
    pub(crate) fn discard(&self) -> Result<(), FsError> {
        self.turn(None, |receiving| {
            self.drop_batch(receiving);
            let Some(rec) = receiving.rec.as_mut() else {
                return Err(FsError::Invalid);
            };
            match rec.exported {
                0 => self.live().snaps.lock().begin_empty(),
                _ => self.live().snaps.lock().begin_revert_to_last()?,
            }
            rec.transfer = None;
            Ok(())
        })
    }
}

impl Engine {
    /// Makes an empty volume without snapshots the destination of a replication (ONTAP's type
    /// `DP`). Clients can read it once a first transfer has completed; until then they are refused.
    /// An existing destination stays as it is. Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` if the volume is not empty, or is a clone; `NotSupported` while a
    /// partner gets all changes ([`Engine::begin_stream`]); `ReadOnly`; `Stale`.
    pub fn protect(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.live_volume(volume)?;
        let live = vol.live();
        let _admin = live.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if vol.protected() {
            return Ok(());
        }
        // Pending deletions would be deletions from the received tree.
        self.cp_now()?;
        let mut cx = EngineContext::new(Time::EPOCH);
        let top = vol.drive_blocking(&mut cx, |cx| vol.inode(cx, ROOT_INO))?;
        if !live.catalog.lock().orphans.is_empty() || !live.unlinked.is_empty() {
            return Err(FsError::NotEmpty);
        }
        let core = &self.core;
        core.epoch_lock().exclusive(|| {
            live.standing.free()?;
            self.not_in_a_stream()?;
            let entries = top.state.read().rec.entries;
            let bare = live.snaps.lock().is_empty() && vol.origin().is_none();
            if entries > 0 || !bare {
                return Err(FsError::NotEmpty);
            }
            live.standing.protect()?;
            live.receiving.lock().rec = Some(MirrorRec::default());
            core.schedule.note_changed(vol.id);
            Ok(())
        })?;
        core.replaced(vol.id, ReplacementKind::Whole);
        core.schedule.cp_now()
    }

    /// Makes a volume that is or was a destination one again. It is reverted to `snapshot`, later
    /// snapshots and changes are lost, and clients see that snapshot from now on. The data of an
    /// interrupted transfer is discarded. Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if something depends on a later snapshot, a transfer is in progress, or
    /// the volume is being split from its origin; `NotSupported` as for [`Engine::protect`];
    /// `ReadOnly`; `Stale`.
    pub fn resync(&self, volume: &str, snapshot: SnapshotIdentity) -> Result<(), FsError> {
        let vol = self.live_volume(volume)?;
        let live = vol.live();
        let _admin = live.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if vol.splitting() {
            return Err(FsError::Busy);
        }
        let done = vol.turn(Some(Writers::Transfers), |receiving| {
            self.not_in_a_stream()?;
            let mut snaps = live.snaps.lock();
            let id = snaps.with_identity(snapshot).ok_or(FsError::NotFound)?;
            snaps.begin_revert_to(id)?;
            snaps.export(Some(id));
            drop(snaps);
            vol.drop_batch(receiving);
            receiving.rec = Some(MirrorRec {
                exported: id,
                transfer: None,
            });
            live.exported.store(None);
            Ok(())
        });
        self.core.replaced(vol.id, ReplacementKind::Whole);
        done
    }

    /// Makes a destination writable, at the last snapshot that arrived completely. A volume that is
    /// not a destination stays as it is. Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if no transfer has completed yet; `Busy` while one is in progress;
    /// `ReadOnly`; `Stale`.
    pub fn break_off(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.live_volume(volume)?;
        let live = vol.live();
        let _admin = live.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if !vol.protected() {
            return Ok(());
        }
        vol.turn(None, |receiving| {
            if receiving.rec.is_none_or(|rec| rec.exported == 0) {
                return Err(FsError::Invalid);
            }
            live.snaps.lock().begin_revert_to_last()?;
            vol.drop_batch(receiving);
            receiving.rec = None;
            receiving.ending = true;
            vol.counters.skip_inodes(BREAK_INODES, 1 << 62);
            Ok(())
        })
    }

    /// Discards the data of an interrupted transfer, so that the next one begins from its start.
    /// Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the volume is not a destination; `Busy` while a transfer is in
    /// progress; `ReadOnly`; `Stale`.
    pub fn discard_partial(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.live_volume(volume)?;
        let live = vol.live();
        let _admin = live.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        let partial = vol.mirror().ok_or(FsError::Invalid)?.partial;
        match partial {
            Some(_) => vol.discard(),
            None => Ok(()),
        }
    }
}

/// Returns the transfer that is in progress or was interrupted.
fn partial(rec: &MirrorRec) -> Option<Partial> {
    rec.transfer.map(|t| Partial {
        base: t.base,
        target: t.target,
        logical: t.logical,
        wire: t.wire,
    })
}
