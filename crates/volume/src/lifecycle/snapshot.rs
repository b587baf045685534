//! Snapshots, as users make, see and delete them.
//!
//! **Making one** must not wait for a checkpoint, which takes as long as there is data to write. So
//! it ends the volume's *segment*. The epoch lock is held exclusively, for microseconds: a record
//! goes into the intent log, the list of changed inodes is put aside, and the segment's number
//! advances. Later changes go to new overlays above the old ones, which are not changed any more.
//! The snapshot is durable when its record is: replay ends the segment at the same place. The next
//! checkpoint merges the segments one after the other, and the root between two of them is the
//! snapshot's. The cost does not depend on the size of the volume; the space is one record.
//!
//! The snapshot contains unstable writes too. As in the volume itself, a crash before the next
//! checkpoint loses them.
//!
//! Each segment makes readers of its changes search one more layer. So after some of them a
//! checkpoint is requested, and after many it is waited for. The record itself is small, and does
//! not queue behind throttled writers.
//!
//! **Deleting one** is a record in the log and a removal from the list here. Blocks that only it
//! referred to are freed in the background ([`crate::checkpoint::dead`],
//! [`crate::checkpoint::job`]).
//!
//! **Reading one** is reading a read-only volume that has its root. Such a view is created when it
//! is first requested, and some are kept.

use std::sync::Arc;

use weir_base::limits::engine::{SEALED_MOST, SEALED_SOON};
use weir_base::{BLOCK_SIZE, Ino, Lsn, Time};

use crate::format::catalog::{check_label, check_name};
use crate::format::edit::{Edits, SnapshotEdit};
use crate::format::mark::MarkId;
use crate::lifecycle::mirror::SnapshotHold;
use crate::overlay::context::EngineContext;
use crate::overlay::role::{Ancestry, State};
use crate::overlay::snapshots::{Change, Snaps, Snapshot, SnapshotProperties};
use crate::overlay::volume::{Live, Volume};
use crate::types::{Backpressure, FsError, Stop};
use weir_base::SnapshotIdentity;

impl Volume {
    /// Makes a snapshot of every operation that has returned until now, without a label. See
    /// [`Volume::snapshot_take`].
    ///
    /// # Errors
    /// As [`Volume::snapshot_take`].
    pub fn snapshot_create(&self, name: &str, now: Time) -> Result<(), FsError> {
        self.snapshot_take(name, "", now).map(|_| ())
    }

    /// Makes a snapshot of every operation that has returned until now, and returns its identity.
    /// Durable on return. Waits for the log, and for a checkpoint only if very many snapshots have
    /// just been made.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for an empty name, `.`, `..`, or one with `/` or NUL; `NameTooLong`
    /// (also for a label); `NoSpace` if the volume has the maximum number of snapshots; `Busy`
    /// while it is being split from its origin; `ReadOnly`; `Stale`.
    pub fn snapshot_take(&self, name: &str, label: &str, now: Time) -> Result<u32, FsError> {
        self.take(name, label, now, false)
    }

    /// Makes a snapshot of a destination, beside those that transfers bring. It contains the data
    /// that clients see, the exported snapshot, which stays exported.
    ///
    /// # Errors
    /// As [`Volume::snapshot_take`]; `Invalid` if the volume is not a destination, or no transfer
    /// has completed yet; `Busy` while one is in progress or has been interrupted, because the
    /// volume's tree is then between two snapshots.
    pub fn snapshot_take_of_copy(
        &self,
        name: &str,
        label: &str,
        now: Time,
    ) -> Result<u32, FsError> {
        self.take(name, label, now, true)
    }

    fn take(&self, name: &str, label: &str, now: Time, of_copy: bool) -> Result<u32, FsError> {
        check_name(name)?;
        check_label(label)?;
        loop {
            match self.try_take(name, label, now, of_copy) {
                Ok((id, lsn)) => {
                    self.durable(lsn)?;
                    return Ok(id);
                }
                Err(stop) => self.wait_to_retry(stop)?,
            }
        }
    }

    fn wait_to_retry(&self, stop: Stop) -> Result<(), FsError> {
        self.resume_blocking(&mut EngineContext::new(Time::EPOCH), stop)
    }

    fn durable(&self, lsn: Lsn) -> Result<(), FsError> {
        let log = self.core.agg.log();
        log.wait_blocking(lsn).map_err(|_| FsError::Io)
    }

    fn try_take(
        &self,
        name: &str,
        label: &str,
        now: Time,
        of_copy: bool,
    ) -> Result<(u32, Lsn), Stop> {
        let live = self.live()?;
        // No transfer begins while it is held.
        let _admin = live.admin.lock();
        self.writable()?;
        match (self.protected(), of_copy) {
            (false, false) => {}
            (true, false) => return Err(FsError::ReadOnly.into()),
            (true, true) => live.receiving.lock().complete()?,
            (false, true) => return Err(FsError::Invalid.into()),
        }
        if matches!(*live.ancestry.lock(), Ancestry::Splitting(_)) {
            return Err(FsError::Busy.into());
        }
        let sealed = live.segments.sealed();
        if sealed >= SEALED_MOST {
            return Err(Stop::Wait(Backpressure::Epoch(
                self.core.epoch_lock().epoch(),
            )));
        }
        let id = live.snaps.lock().place_for(name)?;
        let made = SnapshotProperties {
            id,
            name: name.to_owned(),
            label: label.to_owned(),
            created: now,
            place: 0,
        };
        let mut edits = Edits::new(self.id, 600);
        edits.snapshot(SnapshotEdit::Made {
            id,
            created: now,
            name,
            label,
        });
        let lsn = self.core.epoch_lock().exclusive(|| {
            if live.standing.state() == State::Deleted {
                return Err(FsError::Stale.into());
            }
            let lsn = self.core.log.append(edits)?;
            self.seal(live, made);
            Ok::<_, Stop>(lsn)
        })?;
        if sealed + 1 >= SEALED_SOON {
            self.core.schedule.want(self.core.epoch_lock().epoch());
        }
        Ok((id, lsn))
    }

    /// Ends the segment with this snapshot. No operation holds the epoch lock.
    pub(crate) fn seal(&self, live: &Live, mut made: SnapshotProperties) {
        let next_ino = self.counters.next_ino();
        if let Some(mark) = MarkId::from_name(&made.name) {
            self.core.note_mark(mark);
        }
        live.snaps.lock().add(&mut made, next_ino);
        live.segments.seal(made, next_ino);
        self.core.schedule.note_changed(self.id);
    }

    /// Applies a snapshot edit of the log; repeating it changes nothing.
    pub(crate) fn replay_snapshot(&self, live: &Live, edit: SnapshotEdit<'_>) {
        match edit {
            SnapshotEdit::Made {
                id,
                created,
                name,
                label,
            } => {
                // A snapshot that exists, or existed, has been made by a checkpoint.
                let old = live.snaps.lock().knows(id);
                if !old {
                    let made = SnapshotProperties {
                        id,
                        created,
                        name: name.to_owned(),
                        label: label.to_owned(),
                        place: 0,
                    };
                    self.seal(live, made);
                }
            }
            SnapshotEdit::Gone { id } => live.snaps.lock().apply(Change::Remove(id)),
            SnapshotEdit::Named { id, name, label } => {
                let change = Change::Name(id, name.to_owned(), label.to_owned());
                live.snaps.lock().apply(change);
            }
        }
        self.core.schedule.note_changed(self.id);
    }

    /// Deletes a snapshot. Durable on return; the space is freed in the background.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a clone depends on it, a transfer sends it, or it is the exported
    /// snapshot of a destination; `ReadOnly`; `Stale`.
    pub fn snapshot_delete(&self, name: &str) -> Result<(), FsError> {
        let delete = |snaps: &Snaps<Volume>, edits: &mut Edits| {
            let id = snaps.to_delete(name)?;
            edits.snapshot(SnapshotEdit::Gone { id });
            Ok(Change::Remove(id))
        };
        match self.change(delete) {
            Err(FsError::Busy) if self.core.settle_retired()? => self.change(delete),
            done => done,
        }
    }

    /// Renames a snapshot. Durable on return.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, `NameTooLong`, `ReadOnly`, `Stale`.
    pub fn snapshot_rename(&self, name: &str, to: &str) -> Result<(), FsError> {
        check_name(to)?;
        self.change(|snaps, edits| {
            let id = snaps.find(name).ok_or(FsError::NotFound)?;
            if snaps.find(to).is_some_and(|other| other != id) {
                return Err(FsError::Exists);
            }
            let label = snaps.label(id);
            edits.snapshot(SnapshotEdit::Named {
                id,
                name: to,
                label,
            });
            Ok(Change::Name(id, to.to_owned(), label.to_owned()))
        })
    }

    /// Gives a snapshot another label; empty: none. Durable on return.
    ///
    /// # Errors
    /// `NotFound`, `NameTooLong`, `ReadOnly`, `Stale`.
    pub fn snapshot_label(&self, name: &str, label: &str) -> Result<(), FsError> {
        check_label(label)?;
        self.change(|snaps, edits| {
            let id = snaps.find(name).ok_or(FsError::NotFound)?;
            edits.snapshot(SnapshotEdit::Named { id, name, label });
            Ok(Change::Name(id, name.to_owned(), label.to_owned()))
        })
    }

    /// Changes a snapshot with one record in the log. `plan` checks the change and encodes it.
    fn change(
        &self,
        mut plan: impl FnMut(&Snaps<Volume>, &mut Edits) -> Result<Change, FsError>,
    ) -> Result<(), FsError> {
        loop {
            match self.try_change(&mut plan) {
                Ok(lsn) => return self.durable(lsn),
                Err(stop) => self.wait_to_retry(stop)?,
            }
        }
    }

    fn try_change(
        &self,
        plan: &mut impl FnMut(&Snaps<Volume>, &mut Edits) -> Result<Change, FsError>,
    ) -> Result<Lsn, Stop> {
        let live = self.writable()?;
        let _admin = live.admin.lock();
        let _pass = self.enter_as_admin()?;
        let mut snaps = live.snaps.lock();
        let mut edits = Edits::new(self.id, 600);
        let change = plan(&snaps, &mut edits)?;
        let lsn = self.core.log.append(edits)?;
        snaps.note_change(self.core.agg.clock().current_time());
        snaps.apply(change);
        drop(snaps);
        self.core.schedule.note_changed(self.id);
        Ok(lsn)
    }

    /// Opens a snapshot as a read-only volume.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`.
    pub fn open_snapshot(&self, name: &str) -> Result<Arc<Volume>, FsError> {
        let live = self.as_live().ok_or(FsError::NotFound)?;
        let id = live.snaps.lock().find(name).ok_or(FsError::NotFound)?;
        self.open(id)
    }

    /// Like [`Volume::open_snapshot`], for a held snapshot.
    pub(crate) fn open_held(&self, hold: &SnapshotHold) -> Result<Arc<Volume>, FsError> {
        self.open(hold.id())
    }

    fn open(&self, id: u32) -> Result<Arc<Volume>, FsError> {
        loop {
            match self.view(id) {
                Ok(view) => return Ok(view),
                Err(Stop::Fail(FsError::Stale)) => return Err(FsError::NotFound),
                Err(stop) => self.wait_to_retry(stop)?,
            }
        }
    }

    /// Opens the snapshot with this identity as a read-only volume.
    ///
    /// # Errors
    /// `Stale` if there is none; a wait for the checkpoint that makes it.
    pub fn view(&self, id: u32) -> Result<Arc<Volume>, Stop> {
        self.view_as(id, false)
    }

    /// Returns the snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let list = |live: &Live| live.snaps.lock().listing();
        self.as_live().map_or_else(Vec::new, list)
    }

    /// Returns true if the volume has snapshots.
    pub fn has_snapshots(&self) -> bool {
        self.as_live()
            .is_some_and(|live| !live.snaps.lock().none_visible())
    }

    /// Returns the snapshot with this name.
    pub fn snapshot(&self, name: &str) -> Option<Snapshot> {
        let snaps = self.as_live()?.snaps.lock();
        let id = snaps.find(name)?;
        snaps.get(id)
    }

    /// Returns the snapshot with this identity, whatever its name, if the volume has it.
    pub fn snapshot_with(&self, identity: SnapshotIdentity) -> Option<Snapshot> {
        let snaps = self.as_live()?.snaps.lock();
        let id = snaps.with_identity(identity)?;
        snaps.get(id)
    }

    /// Calls `each` with identity and name of the snapshots later than `after` that contain the
    /// directory `dir`, which exists now. The oldest comes first. Ends when `each` returns `false`.
    pub fn snapshots_of(&self, dir: Ino, after: u32, each: &mut dyn FnMut(u32, &str) -> bool) {
        // No snapshot has a later number than the last.
        if let (Some(live), Some(from)) = (self.as_live(), after.checked_add(1)) {
            live.snaps.lock().had(dir, from, each);
        }
    }

    /// Returns the time of the last change of the snapshot list, and a number that changes with it.
    pub fn snapshots_changed(&self) -> (Time, u64) {
        let last = |live: &Live| live.snaps.lock().last_change();
        self.as_live().map_or((Time::EPOCH, 0), last)
    }

    /// Returns the bytes that only snapshots refer to, as of the last checkpoint.
    pub fn snapshot_used(&self) -> u64 {
        self.space.dead() * BLOCK_SIZE as u64
    }
}
