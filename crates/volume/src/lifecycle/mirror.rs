//! What makes a volume the destination of a replication.
//!
//! Such a volume is *protected*: no client changes it, and what clients read is not the volume's current state, into
//! which a transfer may just be writing, but the newest snapshot that arrived completely: the *exported* one. So a
//! transfer that runs, fails or is broken off is never seen, and when one has ended all clients change over at once.
//! What is seen keeps the volume's own file-system identity and inode numbers, so handles stay good from one snapshot
//! to the next, and beyond a break.
//!
//! **Identity.** A snapshot that was received is known by where it was first made ([`SnapshotIdentity`]). It keeps that
//! through any number of copies, so what two volumes have in common is found without names, which may change,
//! also when a relationship is turned round. That both hold the same under it is compared ([`crate::lifecycle::content`]).

use std::sync::Arc;

use weir_base::Time;

use crate::format::catalog::MirrorRec;
use crate::format::record::ROOT_INO;
use crate::lifecycle::engine::Engine;
use crate::overlay::context::EngineContext;
use crate::overlay::receiving::Receiving;
use crate::overlay::role::{State, Writers};
use crate::overlay::volume::{Live, LiveVolume, Volume};
use crate::types::{Backpressure, FsError, Replaced, Stop};
use weir_base::SnapshotIdentity;

/// A place in the order in which a transfer sends: bytes of a key, which compare as keys do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub [u8; 17]);

impl Position {
    /// Compares lower than the position of every record.
    pub const START: Position = Position([0; 17]);
    /// Compares higher than the position of every record.
    pub const END: Position = Position([0xFF; 17]);
}

/// A transfer that has not arrived completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// What it is the difference to; `None`: nothing.
    pub base: Option<SnapshotIdentity>,
    /// The snapshot that it brings.
    pub target: SnapshotIdentity,
    /// Bytes received so far, before compression, up to the place from which it would go on.
    pub logical: u64,
    /// The same as they came over the wire.
    pub wire: u64,
}

/// What is known of a protected volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// Identity (in this volume) of the snapshot that clients see; `None` until a first transfer has ended.
    pub exported: Option<u32>,
    /// The transfer that runs or was cut short.
    pub partial: Option<Partial>,
}

/// Keeps a snapshot from being deleted for as long as it lives.
pub struct SnapshotHold {
    volume: LiveVolume,
    id: u32,
}

impl SnapshotHold {
    /// The snapshot's number in its volume.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The volume to which the snapshot belongs.
    pub fn volume(&self) -> &Arc<Volume> {
        self.volume.volume()
    }
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.volume.live().snaps.lock().hold(self.id, false);
    }
}

/// How far inode numbers jump when a destination becomes writable: what clients make in it then gets no number that the
/// source gives to something else, should the destination become its copy again.
const BREAK_INODES: u64 = 1 << 40;

impl Volume {
    /// Identifies the volume among all volumes of all aggregates.
    pub fn uuid(&self) -> [u8; 16] {
        self.core.uuid_of(self.id)
    }

    /// What the volume is as a destination; `None` if it is none, and so can be written to.
    pub fn mirror(&self) -> Option<Mirror> {
        let rec = self.as_live()?.receiving.lock().rec?;
        Some(Mirror {
            exported: (rec.exported != 0).then_some(rec.exported),
            partial: partial(&rec),
        })
    }

    /// What clients see in place of the volume itself; `None`: the volume itself.
    ///
    /// # Errors
    /// `Access` if there is nothing to be seen yet.
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
            // It is being broken off.
            return match state {
                State::Serving(_) | State::Closed(_) => Ok(None),
                State::Deleted => Err(FsError::Stale.into()),
                State::Turning { until, .. } => Err(Stop::Wait(Backpressure::Epoch(until))),
            };
        };
        if rec.exported == 0 {
            return Err(FsError::Access.into());
        }
        // Until it is the snapshot again, what clients saw last had later change counters.
        if let State::Turning { until, .. } = state {
            return Err(Stop::Wait(Backpressure::Epoch(until)));
        }
        let view = self.view_as(rec.exported, true)?;
        live.exported.store(Some(Arc::clone(&view)));
        Ok(Some(view))
    }

    /// Keeps a snapshot from being deleted, and the volume from being reverted to an older one (`Busy`), for as long
    /// as the hold lives.
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
    /// Changes what the volume is to transfers while nothing else goes on in it; the caller has its `admin`. Durable
    /// when this returns.
    fn turn(
        &self,
        writers: Option<Writers>,
        change: impl FnOnce(&mut Receiving) -> Result<(), FsError>,
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

    /// Has what a transfer that was cut short has brought taken back; the caller has the volume's `admin`.
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
    /// Makes an empty volume without snapshots the destination of a replication (ONTAP's type `DP`). Clients can
    /// read it once a first transfer has ended; until then they are refused. One that is a destination stays as it is.
    /// Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` if there is anything in it, or it is a clone; `NotSupported` while a partner gets all changes
    /// ([`Engine::begin_stream`]); `ReadOnly`; `Stale`.
    pub fn protect(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.live_volume(volume)?;
        let live = vol.live();
        let _admin = live.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if vol.protected() {
            return Ok(());
        }
        // What is being deleted would be deleted from what arrives.
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
        core.replaced(vol.id, Replaced::Whole);
        core.schedule.cp_now()
    }

    /// Makes a volume a destination again that is, or was, one: it becomes what it was at `snapshot`, later
    /// snapshots and changes are lost, and clients see that snapshot from now on. What a transfer that was cut short
    /// has brought is discarded. Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if something depends on a later snapshot, a transfer is running, or the volume is being
    /// split from its origin; `NotSupported` as for [`Engine::protect`]; `ReadOnly`; `Stale`.
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
        self.core.replaced(vol.id, Replaced::Whole);
        done
    }

    /// Makes a destination a volume that can be written to, at the last snapshot that arrived completely. A
    /// volume that is no destination stays as it is. Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if no transfer has ended yet; `Busy` while one is running; `ReadOnly`; `Stale`.
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

    /// Discards what a transfer that was cut short has brought, so that the next one begins from its start.
    /// Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the volume is no destination; `Busy` while one is running; `ReadOnly`; `Stale`.
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

/// The transfer that runs or was cut short.
fn partial(rec: &MirrorRec) -> Option<Partial> {
    rec.transfer.map(|t| Partial {
        base: t.base,
        target: t.target,
        logical: t.logical,
        wire: t.wire,
    })
}
