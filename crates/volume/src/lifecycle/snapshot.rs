//! Snapshots, as users make, see and remove them.
//!
//! **Making one** must not wait for a consistency point, which takes as long as there
//! is data to write. So it ends the volume's *segment*: with the gate closed, which
//! takes microseconds, a record goes into the intent log, the list of changed inodes is
//! put aside, and the segment's number advances. What is changed from then on goes to
//! new overlays above the old ones, which nobody changes any more. The snapshot is
//! durable when its record is: replay ends the segment at the same place. The next
//! consistency point merges the segments one after the other, and the root that it has
//! between two of them is the snapshot's. The cost is the same however large the volume
//! is, and in space it is one record.
//!
//! What was written without stability and not committed is in the snapshot, too, but as
//! in the volume itself a crash before the next consistency point loses it.
//!
//! Each segment makes readers of what it has changed look into one layer more. So after
//! some of them a consistency point is asked for, and after many it is waited for. The
//! record itself is small, and does not queue behind writers that are being paced.
//!
//! **Deleting one** is a record in the log and a removal from the list here. What only
//! it referred to is freed in the background ([`crate::checkpoint::dead`], [`crate::checkpoint::job`]).
//!
//! **Reading one** is reading a volume that cannot be changed and has its root. Such a
//! view is made when it is first asked for, and some are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub use weir_base::limits::MAX_SNAPSHOTS;

use weir_base::{BLOCK_SIZE, Generation, Ino, Lsn, Time, VolumeId, invariant, less};
use weir_store::RootLife;
use weir_store::superblock::AggregateId;
use weir_store::tree::TreeRoot;

use crate::format::catalog::{
    Catalog, MAX_VOLUME_NAME, SnapshotRec, VolumeRec, check_label, check_name,
};
use crate::format::edit::{Edits, SnapshotEdit};
use crate::format::identity::SnapshotIdentity;
use crate::lifecycle::content::ContentHash;
use crate::lifecycle::mirror::SnapshotHold;
use crate::overlay::inode::Inode;
use crate::overlay::volume::{GONE, RootState, Volume};
use crate::types::{FsError, Pressure, Stop};

/// Segments after which a consistency point is asked for, and waited for.
const SEALED_SOON: usize = 4;
const SEALED_MOST: usize = 512;

/// Views of snapshots that a volume keeps.
const VIEWS: usize = 32;

/// A snapshot, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Identity within the volume; later ones are greater. Never changes, never used again.
    pub id: u32,
    /// Name.
    pub name: String,
    /// The word by which replication policies choose; empty: none.
    pub label: String,
    /// When it was made.
    pub created: Time,
    /// Bytes that only this snapshot holds, as of the last consistency point.
    pub used: u64,
    /// Bytes of file data that the volume had.
    pub referenced: u64,
    /// Clones that depend on it.
    pub clones: u32,
    /// Where it was first made: the same at each copy of it.
    pub identity: SnapshotIdentity,
    /// It cannot be deleted now: a transfer sends it, or a destination's clients see it.
    pub held: bool,
}

/// What is known of a snapshot from the moment it is made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) created: Time,
}

/// A segment that a snapshot has ended.
pub(crate) struct Sealed {
    pub(crate) segment: u64,
    pub(crate) inodes: Vec<Arc<Inode>>,
    pub(crate) next_ino: u64,
    pub(crate) made: Made,
}

/// A snapshot in memory.
struct Info {
    name: String,
    label: String,
    created: Time,
    /// Inodes with lower numbers were there, unless they had been removed.
    next_ino: u64,
    /// `None` until a consistency point has made it.
    stored: Option<Stored>,
    clones: u32,
    /// It was received: where it was first made.
    source: Option<SnapshotIdentity>,
    /// Of its contents, if it was computed.
    content: Option<ContentHash>,
    /// Transfers that send it.
    holds: u32,
}

#[derive(Clone, Copy)]
struct Stored {
    root: TreeRoot,
    generation: Generation,
    used: u64,
    unique: u64,
}

impl From<&SnapshotRec> for Stored {
    fn from(rec: &SnapshotRec) -> Stored {
        Stored {
            root: rec.root,
            generation: rec.generation,
            used: rec.used,
            unique: rec.unique,
        }
    }
}

/// The snapshots of a volume, as users see them.
pub(crate) struct Snaps {
    /// Identity (and place) of the next one.
    next: u32,
    list: BTreeMap<u32, Info>,
    /// When the list was last changed, and how often it has been.
    changed: Time,
    changes: u64,
    /// Where snapshots that are made here are first made.
    home: (AggregateId, VolumeId),
    /// Of a destination, what clients see; it cannot be deleted.
    exported: Option<u32>,
    /// Views that are kept, the last used one last.
    views: Vec<View>,
    /// For the next consistency point: renamed ones, those whose contents' hash is new, removed ones, and the one to
    /// revert to with its new place.
    named: BTreeSet<u32>,
    hashed: BTreeSet<u32>,
    gone: Vec<u32>,
    gone_views: Vec<Arc<Volume>>,
    revert: Option<(u32, u32)>,
    empty: bool,
}

/// A view that is kept.
struct View {
    snapshot: u32,
    /// It is shown as the volume itself.
    exported: bool,
    volume: Arc<Volume>,
}

/// What a consistency point is to do about snapshots, besides making them.
pub(crate) struct Changes {
    pub(crate) next: u32,
    /// Identity, name, label.
    pub(crate) named: Vec<(u32, String, String)>,
    pub(crate) hashed: Vec<(u32, ContentHash)>,
    pub(crate) gone: Vec<u32>,
    /// Identity and new place of the snapshot that the volume becomes.
    pub(crate) revert: Option<(u32, u32)>,
    /// The volume becomes empty.
    pub(crate) empty: bool,
    views: Vec<Arc<Volume>>,
}

impl Snaps {
    pub(crate) fn new(next: u32, home: (AggregateId, VolumeId)) -> Snaps {
        Snaps {
            home,
            exported: None,
            empty: false,
            next,
            list: BTreeMap::new(),
            changed: Time::EPOCH,
            changes: 0,
            views: Vec::new(),
            named: BTreeSet::new(),
            hashed: BTreeSet::new(),
            gone: Vec::new(),
            gone_views: Vec::new(),
            revert: None,
        }
    }

    pub(crate) fn restore(&mut self, snapshots: &BTreeMap<u32, SnapshotRec>) {
        for rec in snapshots.values() {
            self.take_in(rec);
        }
    }

    /// Where a snapshot was first made.
    pub(crate) fn identity(&self, id: u32) -> Option<SnapshotIdentity> {
        self.list.get(&id).map(|info| self.identity_of(id, info))
    }

    fn identity_of(&self, id: u32, info: &Info) -> SnapshotIdentity {
        let (aggregate, volume) = self.home;
        info.source.unwrap_or(SnapshotIdentity {
            aggregate,
            volume,
            snapshot: id,
            birth: info.created,
        })
    }

    /// The hash of a snapshot's contents, if it was computed.
    pub(crate) fn content(&self, id: u32) -> Option<ContentHash> {
        self.list.get(&id)?.content
    }

    /// Notes the hash of a snapshot's contents; whether that is news.
    pub(crate) fn note_content(&mut self, id: u32, hash: ContentHash) -> bool {
        let Some(info) = self.list.get_mut(&id).filter(|i| i.content != Some(hash)) else {
            return false;
        };
        // A snapshot does not change.
        debug_assert!(info.content.is_none(), "two hashes of one snapshot");
        info.content = Some(hash);
        self.hashed.insert(id)
    }

    /// The newest snapshot not after `id` that the tree has and whose contents' hash is known.
    pub(crate) fn known_content(&self, id: u32) -> Option<(SnapshotIdentity, ContentHash)> {
        let mut older = self.list.range(..=id).rev();
        older.find_map(|(id, info)| {
            info.stored?;
            Some((self.identity_of(*id, info), info.content?))
        })
    }

    /// The snapshot that was first made there.
    pub(crate) fn with_identity(&self, identity: SnapshotIdentity) -> Option<u32> {
        let mut ids = self.list.keys();
        ids.find(|id| self.identity(**id) == Some(identity))
            .copied()
    }

    /// What clients of a destination see.
    pub(crate) fn export(&mut self, id: Option<u32>) {
        self.exported = id;
    }

    /// The number below which inodes were there.
    pub(crate) fn next_ino(&self, id: u32) -> Option<u64> {
        self.list.get(&id).map(|info| info.next_ino)
    }

    /// One transfer more, or fewer, sends a snapshot.
    pub(crate) fn hold(&mut self, id: u32, more: bool) {
        self.count(id, more, "transfers of a snapshot", |info| &mut info.holds);
    }

    fn count(&mut self, id: u32, more: bool, what: &str, of: fn(&mut Info) -> &mut u32) {
        let Some(count) = self.list.get_mut(&id).map(of) else {
            invariant!(false, "{what}: snapshot {id} is gone");
            return;
        };
        *count = match more {
            true => *count + 1,
            false => less(*count, 1, what),
        };
    }

    /// Place for a snapshot that was received, and the name that it gets: its own, if
    /// no other has it.
    pub(crate) fn receive(&mut self, name: &str) -> Option<(u32, String)> {
        let id = self.next;
        self.next = self.next.checked_add(1)?;
        let mut found = name.to_owned();
        for n in 1.. {
            if self.find(&found).is_none() {
                break;
            }
            let end = format!(".{n}");
            // Saturates: a name may be no longer than its end.
            let mut cut = name.len().min(MAX_VOLUME_NAME.saturating_sub(end.len()));
            while !name.is_char_boundary(cut) {
                cut -= 1;
            }
            found = format!("{}{end}", name.get(..cut).unwrap_or_default());
        }
        Some((id, found))
    }

    /// Takes in a snapshot that the tree has: at the start, or one that a consistency point has made of what was
    /// received.
    pub(crate) fn take_in(&mut self, rec: &SnapshotRec) {
        let info = Info {
            name: rec.name.clone(),
            label: rec.label.clone(),
            created: rec.created,
            next_ino: rec.next_ino,
            stored: Some(rec.into()),
            clones: 0,
            source: rec.source,
            content: rec.content,
            holds: 0,
        };
        self.note_change(rec.created);
        self.list.insert(rec.id, info);
    }

    /// Asks for the volume to become empty. There are no snapshots.
    pub(crate) fn begin_empty(&mut self) {
        self.empty = true;
    }

    /// One clone more, or fewer, depends on a snapshot.
    pub(crate) fn count_clone(&mut self, id: u32, more: bool) {
        self.count(id, more, "clones of a snapshot", |info| &mut info.clones);
    }

    pub(crate) fn has_clones(&self) -> bool {
        self.list.values().any(|s| s.clones > 0)
    }

    /// The list changes, at about `now`; clients see it by a later time.
    fn note_change(&mut self, now: Time) {
        let after = self.changed.plus(std::time::Duration::from_nanos(1));
        self.changed = now.max(after);
        self.changes += 1;
    }

    /// What a clone of this snapshot begins with: its identity, tree, generation, and
    /// number of data blocks. `None` until a consistency point has made it.
    pub(crate) fn to_clone(
        &self,
        name: &str,
    ) -> Result<Option<(u32, TreeRoot, Generation, u64)>, FsError> {
        let id = self.find(name).ok_or(FsError::NotFound)?;
        let stored = self.list.get(&id).and_then(|info| info.stored);
        Ok(stored.map(|s| (id, s.root, s.generation, s.used)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn find(&self, name: &str) -> Option<u32> {
        let found = self.list.iter().find(|(_, s)| s.name == name);
        found.map(|(id, _)| *id)
    }

    /// Asks for the volume to become what it was at this snapshot.
    pub(crate) fn begin_revert(&mut self, name: &str) -> Result<(), FsError> {
        let id = self.find(name).ok_or(FsError::NotFound)?;
        self.begin_revert_to(id)
    }

    /// As [`Snaps::begin_revert`], by identity.
    pub(crate) fn begin_revert_to(&mut self, id: u32) -> Result<(), FsError> {
        if !self.list.contains_key(&id) {
            return Err(FsError::NotFound);
        }
        // Saturates: no snapshot gets the last number.
        let mut later = self.list.range(id.saturating_add(1)..);
        if later.any(|(_, s)| s.clones > 0 || s.holds > 0) {
            return Err(FsError::Busy);
        }
        let place = self.next;
        self.next = self.next.checked_add(1).ok_or(FsError::NoSpace)?;
        self.revert = Some((id, place));
        Ok(())
    }

    /// Called while the gate is closed.
    pub(crate) fn take_changes(&mut self) -> Changes {
        let named = std::mem::take(&mut self.named);
        let named = named.into_iter().filter_map(|id| {
            let info = self.list.get(&id)?;
            Some((id, info.name.clone(), info.label.clone()))
        });
        let hashed = std::mem::take(&mut self.hashed);
        let hashed = hashed
            .into_iter()
            .filter_map(|id| Some((id, self.content(id)?)));
        Changes {
            named: named.collect(),
            hashed: hashed.collect(),
            gone: std::mem::take(&mut self.gone),
            revert: self.revert.take(),
            empty: std::mem::take(&mut self.empty),
            views: std::mem::take(&mut self.gone_views),
            next: self.next,
        }
    }

    /// Takes in what a consistency point has made of them. `life` is of the one before.
    pub(crate) fn publish(
        &mut self,
        changes: Changes,
        changed: Vec<SnapshotRec>,
        life: &Arc<RootLife>,
    ) {
        for rec in &changed {
            if let Some(info) = self.list.get_mut(&rec.id) {
                info.stored = Some(rec.into());
            }
        }
        let mut views = changes.views;
        if let Some((id, _)) = changes.revert {
            // Saturates: no snapshot gets the last number.
            let later = self.list.split_off(&id.saturating_add(1));
            for id in later.into_keys() {
                self.named.remove(&id);
                self.hashed.remove(&id);
                self.take_views(id, &mut views);
            }
        }
        for view in views {
            view.retire(life);
        }
    }

    fn take_views(&mut self, id: u32, out: &mut Vec<Arc<Volume>>) {
        let gone = self.views.extract_if(.., |view| view.snapshot == id);
        out.extend(gone.map(|view| view.volume));
    }

    /// Removes one from the list.
    fn remove(&mut self, id: u32) {
        self.list.remove(&id);
        self.named.remove(&id);
        self.hashed.remove(&id);
        self.gone.push(id);
        let mut gone = std::mem::take(&mut self.gone_views);
        self.take_views(id, &mut gone);
        self.gone_views = gone;
    }
}

impl Catalog {
    /// The volume as it is now becomes a snapshot.
    pub(crate) fn make_snapshot(&mut self, made: Made, generation: Generation) {
        if self.place_of(made.id).is_some() {
            return;
        }
        let snapshot = SnapshotRec {
            id: made.id,
            number: made.id,
            name: made.name,
            label: made.label,
            root: self.rec.root,
            generation,
            created: made.created,
            next_ino: self.rec.next_ino,
            used: self.rec.used,
            unique: 0,
            source: None,
            content: None,
        };
        self.snapshots.insert(made.id, snapshot);
    }
}

impl Volume {
    /// Makes a snapshot of everything that has been answered until now, without a
    /// label. See [`Volume::snapshot_take`].
    ///
    /// # Errors
    /// As there.
    pub fn snapshot_create(&self, name: &str, now: Time) -> Result<(), FsError> {
        self.snapshot_take(name, "", now).map(|_| ())
    }

    /// Makes a snapshot of everything that has been answered until now, and answers its
    /// identity. It is durable when this returns. Waits for the log, and for a
    /// consistency point only if very many have just been made.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for an empty name, `.`, `..`, or one with `/` or NUL;
    /// `NameTooLong` (also for a label); `NoSpace` if the volume has as many as it can
    /// have; `Busy` while it is being split from its origin; `ReadOnly`; `Stale`.
    pub fn snapshot_take(&self, name: &str, label: &str, now: Time) -> Result<u32, FsError> {
        check_name(name)?;
        check_label(label)?;
        loop {
            match self.try_take(name, label, now) {
                Ok((id, lsn)) => {
                    self.durable(lsn)?;
                    return Ok(id);
                }
                Err(stop) => self.wait_to_retry(stop)?,
            }
        }
    }

    fn wait_to_retry(&self, stop: Stop) -> Result<(), FsError> {
        self.resume_blocking(&mut crate::overlay::cx::Cx::new(Time::EPOCH), stop)
    }

    fn durable(&self, lsn: Lsn) -> Result<(), FsError> {
        let log = self.core.agg.log();
        log.wait_blocking(lsn).map_err(|_| FsError::Io)
    }

    fn try_take(&self, name: &str, label: &str, now: Time) -> Result<(u32, Lsn), Stop> {
        let _admin = self.admin.lock();
        self.writable()?;
        if self.protected.load(Ordering::Acquire) {
            return Err(FsError::ReadOnly.into());
        }
        if self.splitting.load(Ordering::Acquire) {
            return Err(FsError::Busy.into());
        }
        let sealed = self.sealed.lock().len();
        if sealed >= SEALED_MOST {
            return Err(Stop::Wait(Pressure::Epoch(self.core.gate.epoch())));
        }
        let made = {
            let snaps = self.snaps.lock();
            if snaps.find(name).is_some() {
                return Err(FsError::Exists.into());
            }
            if snaps.list.len() >= MAX_SNAPSHOTS || snaps.next == u32::MAX {
                return Err(FsError::NoSpace.into());
            }
            Made {
                id: snaps.next,
                name: name.to_owned(),
                label: label.to_owned(),
                created: now,
            }
        };
        let id = made.id;
        let mut edits = Edits::new(self.id, 600);
        edits.snapshot(SnapshotEdit::Made {
            id,
            created: now,
            name,
            label,
        });
        let lsn = self.core.gate.close(|| {
            if self.hold.load(Ordering::Relaxed) == GONE {
                return Err(FsError::Stale.into());
            }
            let lsn = self.core.append(edits)?;
            self.seal(made);
            Ok::<_, Stop>(lsn)
        })?;
        if sealed + 1 >= SEALED_SOON {
            self.core.want(self.core.gate.epoch());
        }
        Ok((id, lsn))
    }

    /// Ends the segment with this snapshot. Nobody is inside the gate.
    pub(crate) fn seal(&self, made: Made) {
        let inodes = std::mem::take(&mut *self.dirty.lock());
        let info = Info {
            name: made.name.clone(),
            label: made.label.clone(),
            created: made.created,
            next_ino: self.next_ino.load(Ordering::Relaxed),
            stored: None,
            clones: 0,
            source: None,
            content: None,
            holds: 0,
        };
        {
            let mut snaps = self.snaps.lock();
            snaps.note_change(made.created);
            // Saturates: a number from the log; no snapshot gets the last one.
            snaps.next = snaps.next.max(made.id.saturating_add(1));
            snaps.list.insert(made.id, info);
        }
        self.sealed.lock().push(Sealed {
            segment: self.segment.fetch_add(1, Ordering::Relaxed),
            inodes,
            next_ino: self.next_ino.load(Ordering::Relaxed),
            made,
        });
        self.core.note_changed(self.id);
    }

    /// Applies what the log says of a snapshot; doing it again changes nothing.
    pub(crate) fn replay_snapshot(&self, edit: SnapshotEdit<'_>) {
        match edit {
            SnapshotEdit::Made {
                id,
                created,
                name,
                label,
            } => {
                // One that is there, or was, has been made by a consistency point.
                let old = self.snaps.lock().next > id;
                if !old {
                    self.seal(Made {
                        id,
                        created,
                        name: name.to_owned(),
                        label: label.to_owned(),
                    });
                }
            }
            SnapshotEdit::Gone { id } => {
                let mut snaps = self.snaps.lock();
                if snaps.list.contains_key(&id) {
                    snaps.remove(id);
                }
            }
            SnapshotEdit::Named { id, name, label } => {
                let mut snaps = self.snaps.lock();
                if let Some(info) = snaps.list.get_mut(&id) {
                    name.clone_into(&mut info.name);
                    label.clone_into(&mut info.label);
                    snaps.named.insert(id);
                }
            }
        }
        self.core.note_changed(self.id);
    }

    /// Deletes a snapshot. Durable when this returns; the space comes back in the
    /// background.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a clone depends on it, a transfer sends it, or it is what
    /// clients of a destination see; `ReadOnly`; `Stale`.
    pub fn snapshot_delete(&self, name: &str) -> Result<(), FsError> {
        let delete = |snaps: &Snaps, edits: &mut Edits| {
            let id = snaps.find(name).ok_or(FsError::NotFound)?;
            let needed = |s: &Info| s.clones > 0 || s.holds > 0;
            if snaps.list.get(&id).is_some_and(needed) || snaps.exported == Some(id) {
                return Err(FsError::Busy);
            }
            edits.snapshot(SnapshotEdit::Gone { id });
            Ok(Change::Remove(id))
        };
        match self.change(delete) {
            Err(FsError::Busy) if self.core.settle_retired()? => self.change(delete),
            done => done,
        }
    }

    /// Renames a snapshot. Durable when this returns.
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
            let label = snaps.list.get(&id).map_or("", |s| &s.label);
            edits.snapshot(SnapshotEdit::Named {
                id,
                name: to,
                label,
            });
            Ok(Change::Name(id, to.to_owned(), label.to_owned()))
        })
    }

    /// Gives a snapshot another label; empty: none. Durable when this returns.
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

    /// Changes something about a snapshot that is one record in the log: `plan` says
    /// what, and writes it down.
    fn change(
        &self,
        mut plan: impl FnMut(&Snaps, &mut Edits) -> Result<Change, FsError>,
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
        plan: &mut impl FnMut(&Snaps, &mut Edits) -> Result<Change, FsError>,
    ) -> Result<Lsn, Stop> {
        let _admin = self.admin.lock();
        self.writable()?;
        let _pass = self.enter_as_admin()?;
        let mut snaps = self.snaps.lock();
        let mut edits = Edits::new(self.id, 600);
        let change = plan(&snaps, &mut edits)?;
        let lsn = self.core.append(edits)?;
        snaps.note_change(self.core.agg.clock().now());
        match change {
            Change::Remove(id) => snaps.remove(id),
            Change::Name(id, name, label) => {
                if let Some(info) = snaps.list.get_mut(&id) {
                    (info.name, info.label) = (name, label);
                    snaps.named.insert(id);
                }
            }
        }
        drop(snaps);
        self.core.note_changed(self.id);
        Ok(lsn)
    }

    /// A snapshot as a volume that cannot be changed.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`.
    pub fn open_snapshot(&self, name: &str) -> Result<Arc<Volume>, FsError> {
        let id = self.snaps.lock().find(name).ok_or(FsError::NotFound)?;
        self.open(id)
    }

    /// As [`Volume::open_snapshot`], of one that is held.
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

    /// The snapshot with this identity as a volume that cannot be changed.
    ///
    /// # Errors
    /// `Stale` if there is none; a wait for the consistency point that makes it.
    pub fn view(&self, id: u32) -> Result<Arc<Volume>, Stop> {
        self.view_as(id, false)
    }

    /// As [`Volume::view`]; `exported`: shown as the volume itself.
    pub(crate) fn view_as(&self, id: u32, exported: bool) -> Result<Arc<Volume>, Stop> {
        let mut snaps = self.snaps.lock();
        let change_base = match exported {
            true => self.change_base.load(Ordering::Acquire),
            false => 0,
        };
        let wanted = |view: &View| {
            let base = view.volume.change_base.load(Ordering::Relaxed);
            view.snapshot == id && view.exported == exported && base == change_base
        };
        if let Some(at) = snaps.views.iter().rposition(wanted) {
            let found = snaps.views.remove(at);
            let view = Arc::clone(&found.volume);
            snaps.views.push(found);
            return Ok(view);
        }
        let Some(info) = snaps.list.get(&id) else {
            return Err(FsError::Stale.into());
        };
        let Some(stored) = info.stored else {
            return Err(Stop::Wait(Pressure::Epoch(self.core.gate.epoch())));
        };
        let rec = VolumeRec {
            name: self.name.clone(),
            root: stored.root,
            key: self.key.get(),
            next_ino: 0,
            limit: 0,
            used: stored.used,
            next_snapshot: 0,
            dead: TreeRoot::EMPTY,
            dead_blocks: 0,
            change_base,
            change_top: 0,
            origin: None,
            mirror: None,
        };
        let mut view = Volume::new(Arc::clone(&self.core), self.id, rec);
        view.read_only = true;
        view.snapshot = id;
        view.shown_as = if exported { 0 } else { id };
        let view = Arc::new(view);
        if snaps.views.len() >= VIEWS {
            // Whoever still uses it keeps it; nothing of it is lost.
            let old = snaps.views.remove(0);
            let still_used = Arc::strong_count(&old.volume) > 1;
            if still_used {
                // It must hear of the snapshot's end, so it is the one that stays.
                snaps.views.push(old);
            }
        }
        snaps.views.push(View {
            snapshot: id,
            exported,
            volume: Arc::clone(&view),
        });
        Ok(view)
    }

    /// Nothing leads to this view's or volume's root any more; `life` is of the last
    /// consistency point that had it. What is still being read keeps its blocks.
    pub(crate) fn retire(&self, life: &Arc<RootLife>) {
        self.hold.store(GONE, Ordering::SeqCst);
        self.table.retire(true);
        self.root.load().supersede(Arc::clone(life));
        self.root.store(RootState::new(TreeRoot::EMPTY));
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let snaps = self.snaps.lock();
        let all = snaps.list.iter().map(|(id, info)| snaps.listed(*id, info));
        all.collect()
    }

    /// Whether there are any.
    pub fn has_snapshots(&self) -> bool {
        !self.snaps.lock().list.is_empty()
    }

    /// The snapshot of this name.
    pub fn snapshot(&self, name: &str) -> Option<Snapshot> {
        let snaps = self.snaps.lock();
        let id = snaps.find(name)?;
        snaps.list.get(&id).map(|info| snaps.listed(id, info))
    }

    /// The snapshot with this identity, whatever it is called, if the volume has it.
    pub fn snapshot_with(&self, identity: SnapshotIdentity) -> Option<Snapshot> {
        let snaps = self.snaps.lock();
        let id = snaps.with_identity(identity)?;
        snaps.list.get(&id).map(|info| snaps.listed(id, info))
    }

    /// Calls `each` with identity and name of the snapshots later than `after` that have
    /// the directory `dir`, which exists now, oldest first, until it answers `false`.
    pub fn snapshots_of(&self, dir: Ino, after: u32, each: &mut dyn FnMut(u32, &str) -> bool) {
        let snaps = self.snaps.lock();
        let Some(from) = after.checked_add(1) else {
            // No snapshot has a later number.
            return;
        };
        // What exists and has a lower number existed then: numbers are given out in order.
        let had = |info: &Info| dir.0 < info.next_ino;
        for (id, info) in snaps.list.range(from..).filter(|(_, info)| had(info)) {
            if !each(*id, &info.name) {
                break;
            }
        }
    }

    /// When the list of snapshots was last changed, and a number that changes with it.
    pub fn snapshots_changed(&self) -> (Time, u64) {
        let snaps = self.snaps.lock();
        (snaps.changed, snaps.changes)
    }

    /// Bytes that snapshots hold and the volume itself does not refer to any more, as
    /// of the last consistency point.
    pub fn snapshot_used(&self) -> u64 {
        self.dead_blocks.load(Ordering::Relaxed) * BLOCK_SIZE as u64
    }
}

/// What is done about a snapshot besides making it.
enum Change {
    Remove(u32),
    Name(u32, String, String),
}

impl Snaps {
    fn listed(&self, id: u32, info: &Info) -> Snapshot {
        Snapshot {
            id,
            name: info.name.clone(),
            label: info.label.clone(),
            created: info.created,
            used: info.stored.map_or(0, |s| s.unique) * BLOCK_SIZE as u64,
            referenced: info.stored.map_or(0, |s| s.used) * BLOCK_SIZE as u64,
            clones: info.clones,
            identity: self.identity_of(id, info),
            held: info.holds > 0 || self.exported == Some(id),
        }
    }
}
