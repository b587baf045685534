//! What makes a volume the destination of a replication.
//!
//! Such a volume is *protected*: no client changes it, and what clients read is not the volume as it stands, into
//! which a transfer may just be writing, but the newest snapshot that arrived completely: the *exported* one. So a
//! transfer that runs, fails or is broken off is never seen, and when one has ended all clients change over at once.
//! What is seen keeps the volume's own file-system identity and inode numbers, so handles stay good from one
//! snapshot to the next, and beyond a break.
//!
//! **Identity.** A snapshot that was received is known by where it was first made ([`SnapshotIdentity`]). It keeps that
//! through any number of copies, so what two volumes have in common is found without names, which may change,
//! also when a relationship is turned round. That both hold the same under it is compared ([`crate::lifecycle::content`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_base::Time;

use crate::format::catalog::MirrorRec;
use crate::format::identity::SnapshotIdentity;
use crate::format::record::ROOT_INO;
use crate::lifecycle::engine::Engine;
use crate::overlay::cx::Cx;
use crate::overlay::receiving::Receiving;
use crate::overlay::volume::{CLOSED, GONE, Volume};
use crate::types::{FsError, Pressure, Stop};

/// A place in the order in which a transfer sends: bytes of a key, which compare as keys do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub [u8; 17]);

impl Position {
    /// Before everything.
    pub const START: Position = Position([0; 17]);
    /// Behind everything.
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
    volume: Arc<Volume>,
    id: u32,
}

impl SnapshotHold {
    /// The snapshot.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.volume.snaps.lock().hold(self.id, false);
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
        let rec = self.mirror.lock().rec?;
        Some(Mirror {
            exported: (rec.exported != 0).then_some(rec.exported),
            partial: Volume::partial(&rec),
        })
    }

    /// Whether it is the destination of a replication: clients change nothing, and see what [`Volume::serving`] says.
    pub fn protected(&self) -> bool {
        self.protected.load(Ordering::Relaxed)
    }

    /// What clients see in place of the volume itself; `None`: the volume itself.
    ///
    /// # Errors
    /// `Access` if there is nothing to be seen yet.
    pub fn serving(&self) -> Result<Option<Arc<Volume>>, Stop> {
        if !self.protected.load(Ordering::Acquire) {
            return Ok(None);
        }
        match self.exported.load_full() {
            Some(view) => Ok(Some(view)),
            None => self.find_exported(),
        }
    }

    #[cold]
    fn find_exported(&self) -> Result<Option<Arc<Volume>>, Stop> {
        // Under the lock under which it changes.
        let receiving = self.mirror.lock();
        let Some(rec) = receiving.rec else {
            // It is being broken off.
            return match self.hold.load(Ordering::Acquire) {
                0 => Ok(None),
                GONE => Err(FsError::Stale.into()),
                epoch => Err(Stop::Wait(Pressure::Epoch(epoch))),
            };
        };
        if rec.exported == 0 {
            return Err(FsError::Access.into());
        }
        // Until it is the snapshot again, what clients saw last had later change counters.
        match self.hold.load(Ordering::Acquire) {
            0 | GONE | CLOSED => {}
            epoch => return Err(Stop::Wait(Pressure::Epoch(epoch))),
        }
        let view = self.view_as(rec.exported, true)?;
        self.exported.store(Some(Arc::clone(&view)));
        Ok(Some(view))
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

    /// Takes in what is stored.
    pub(crate) fn restore_mirror(&self, rec: Option<MirrorRec>) {
        self.protected.store(rec.is_some(), Ordering::Release);
        let exported = rec.map(|rec| rec.exported).filter(|id| *id != 0);
        self.snaps.lock().export(exported);
        self.mirror.lock().rec = rec;
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
        let mut snaps = self.snaps.lock();
        let id = snaps.with_identity(identity).ok_or(FsError::NotFound)?;
        snaps.hold(id, true);
        drop(snaps);
        Ok(SnapshotHold {
            volume: Arc::clone(self),
            id,
        })
    }

    /// Changes what the volume is to transfers while nothing else goes on in it; the caller has its `admin`. Durable
    /// when this returns.
    fn turn(
        &self,
        change: impl FnOnce(&mut Receiving) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        let core = &self.core;
        core.gate().close(|| {
            if self.hold.load(Ordering::Relaxed) == GONE {
                return Err(FsError::Stale);
            }
            let mut receiving = self.mirror.lock();
            receiving.idle()?;
            change(&mut receiving)?;
            self.hold.store(core.gate().epoch(), Ordering::SeqCst);
            core.schedule.note_changed(self.id);
            Ok(())
        })?;
        core.schedule.cp_now()
    }

    /// Has what a transfer that was cut short has brought taken back; the caller has the volume's `admin`.
    pub(crate) fn discard(&self) -> Result<(), FsError> {
        self.turn(|receiving| {
            self.drop_batch(receiving);
            let Some(rec) = receiving.rec.as_mut() else {
                return Err(FsError::Invalid);
            };
            match rec.exported {
                0 => self.snaps.lock().begin_empty(),
                id => self.snaps.lock().begin_revert_to(id)?,
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
    /// `NotFound`; `NotEmpty` if there is anything in it, or it is a clone; `ReadOnly`; `Stale`.
    pub fn protect(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.volume(volume).ok_or(FsError::NotFound)?;
        let _admin = vol.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if vol.protected() {
            return Ok(());
        }
        // What is being deleted would be deleted from what arrives.
        self.cp_now()?;
        let mut cx = Cx::new(Time::EPOCH);
        let top = vol.drive_blocking(&mut cx, |cx| vol.inode(cx, ROOT_INO))?;
        if !vol.catalog.lock().orphans.is_empty() || !vol.unlinked.is_empty() {
            return Err(FsError::NotEmpty);
        }
        let core = &self.core;
        core.gate().close(|| {
            if vol.hold.load(Ordering::Relaxed) == GONE {
                return Err(FsError::Stale);
            }
            let entries = top.state.read().rec.entries;
            let bare = vol.snaps.lock().is_empty() && vol.origin().is_none();
            if entries > 0 || !bare {
                return Err(FsError::NotEmpty);
            }
            vol.mirror.lock().rec = Some(MirrorRec::default());
            vol.protected.store(true, Ordering::Release);
            core.schedule.note_changed(vol.id);
            Ok(())
        })?;
        core.schedule.cp_now()
    }

    /// Makes a volume a destination again that is, or was, one: it becomes what it was at `snapshot`, later
    /// snapshots and changes are lost, and clients see that snapshot from now on. What a transfer that was cut short
    /// has brought is discarded. Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if something depends on a later snapshot, a transfer is running, or the volume is being
    /// split from its origin; `ReadOnly`; `Stale`.
    pub fn resync(&self, volume: &str, snapshot: SnapshotIdentity) -> Result<(), FsError> {
        let vol = self.volume(volume).ok_or(FsError::NotFound)?;
        let _admin = vol.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if vol.splitting() {
            return Err(FsError::Busy);
        }
        vol.turn(|receiving| {
            let mut snaps = vol.snaps.lock();
            let id = snaps.with_identity(snapshot).ok_or(FsError::NotFound)?;
            snaps.begin_revert_to(id)?;
            snaps.export(Some(id));
            drop(snaps);
            vol.drop_batch(receiving);
            receiving.rec = Some(MirrorRec {
                exported: id,
                transfer: None,
            });
            vol.exported.store(None);
            vol.protected.store(true, Ordering::Release);
            Ok(())
        })
    }

    /// Makes a destination a volume that can be written to, at the last snapshot that arrived completely. A
    /// volume that is no destination stays as it is. Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if no transfer has ended yet; `Busy` while one is running; `ReadOnly`; `Stale`.
    pub fn break_off(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.volume(volume).ok_or(FsError::NotFound)?;
        let _admin = vol.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        if !vol.protected() {
            return Ok(());
        }
        vol.turn(|receiving| {
            let exported = receiving.rec.map_or(0, |rec| rec.exported);
            if exported == 0 {
                return Err(FsError::Invalid);
            }
            vol.snaps.lock().begin_revert_to(exported)?;
            vol.drop_batch(receiving);
            receiving.rec = None;
            receiving.ending = true;
            // Saturates: numbers of another machine.
            let jump = |n: u64| Some(n.saturating_add(BREAK_INODES).min(1 << 62));
            let _ = vol
                .next_ino
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, jump);
            Ok(())
        })
    }

    /// Discards what a transfer that was cut short has brought, so that the next one begins from its start.
    /// Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the volume is no destination; `Busy` while one is running; `ReadOnly`; `Stale`.
    pub fn discard_partial(&self, volume: &str) -> Result<(), FsError> {
        let vol = self.volume(volume).ok_or(FsError::NotFound)?;
        let _admin = vol.admin.lock();
        vol.writable().map_err(Stop::refusal)?;
        let partial = vol.mirror().ok_or(FsError::Invalid)?.partial;
        match partial {
            Some(_) => vol.discard(),
            None => Ok(()),
        }
    }
}
