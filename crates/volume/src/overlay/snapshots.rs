//! The snapshots of a volume in memory, as users see them, and the pending actions of checkpoints
//! on them.
//!
//! `V` is a volume's view of a snapshot; some requested views are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_base::AggregateId;
use weir_base::limits::MAX_SNAPSHOTS;
use weir_base::limits::engine::SNAPSHOT_VIEWS as VIEWS;
use weir_base::{BLOCK_SIZE, Generation, Ino, Time, VolumeId, invariant, less};
use weir_store::tree::TreeRoot;

use crate::format::catalog::{MAX_VOLUME_NAME, SnapshotRec};
use crate::format::content::ContentHash;
use crate::format::mark::MarkId;
use crate::overlay::inode::Inode;
use crate::types::FsError;
use weir_base::SnapshotIdentity;

/// A change of a snapshot other than its creation.
pub(crate) enum Change {
    Remove(u32),
    Name(u32, String, String),
}

/// A listed snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Identity within the volume; later ones are greater. Never changes, never reused.
    pub id: u32,
    /// Name, unique in the volume.
    pub name: String,
    /// Label for the selection by replication policies; may be empty.
    pub label: String,
    /// Time of creation.
    pub created: Time,
    /// Bytes that only this snapshot holds, as of the last checkpoint.
    pub used: u64,
    /// Bytes of file data that the volume had.
    pub referenced: u64,
    /// Clones that depend on it.
    pub clones: u32,
    /// Identity at its first creation: equal in each copy of it.
    pub identity: SnapshotIdentity,
    /// True if it cannot be deleted now: a transfer sends it, or a destination's clients see it.
    pub held: bool,
}

/// Properties of a snapshot from its creation on.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotProperties {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) created: Time,
    /// Place in the chain.
    pub(crate) place: u32,
}

/// A segment ended by a snapshot.
pub(crate) struct SealedSegment {
    pub(crate) segment: u64,
    pub(crate) inodes: Vec<Arc<Inode>>,
    pub(crate) next_ino: u64,
    pub(crate) made: SnapshotProperties,
}

/// A snapshot in memory.
struct Info {
    name: String,
    label: String,
    created: Time,
    /// Inode number after the last one used: lower numbers existed, unless removed.
    next_ino: u64,
    /// `None` until a checkpoint has made it.
    stored: Option<StoredSnapshot>,
    clones: u32,
    /// Identity at its first creation, if it was received.
    source: Option<SnapshotIdentity>,
    /// Hash of its contents, if it was computed.
    content: Option<ContentHash>,
    /// Number of transfers that send it.
    holds: u32,
}

/// Properties of a snapshot made by a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct StoredSnapshot {
    pub(crate) root: TreeRoot,
    generation: Generation,
    pub(crate) used: u64,
    unique: u64,
}

impl From<&SnapshotRec> for StoredSnapshot {
    fn from(rec: &SnapshotRec) -> StoredSnapshot {
        StoredSnapshot {
            root: rec.root,
            generation: rec.generation,
            used: rec.used,
            unique: rec.unique,
        }
    }
}

/// The snapshots of a volume, as users see them.
pub(crate) struct Snaps<V> {
    /// Identity of the next snapshot.
    next: u32,
    /// Place of the next snapshot, or of one that the volume is reverted to.
    next_place: u32,
    list: BTreeMap<u32, Info>,
    /// Time and number of the changes of the list.
    changed: Time,
    changes: u64,
    /// Aggregate and volume in the identities of snapshots made here.
    home: (AggregateId, VolumeId),
    /// Snapshot that clients of a destination see; it cannot be deleted.
    exported: Option<u32>,
    /// Kept views, the last used one last.
    views: Vec<View<V>>,
    /// Pending actions of the next checkpoint: renamed snapshots, those with a new content hash,
    /// removed ones, and the one to revert to with its new place.
    named: BTreeSet<u32>,
    hashed: BTreeSet<u32>,
    gone: Vec<u32>,
    gone_views: Vec<Arc<V>>,
    revert: Option<(u32, u32)>,
    empty: bool,
    /// True after the volume was deleted: its blocks are about to be freed.
    over: bool,
}

/// A kept view.
struct View<V> {
    snapshot: u32,
    shown: ViewRole,
    volume: Arc<V>,
}

/// Role in which clients see a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ViewRole {
    /// The snapshot, with a file-system identity of its own.
    AsSnapshot,
    /// The volume itself, a destination, with this base of its change counters.
    AsVolume { change_base: u64 },
}

/// Actions of a checkpoint on snapshots, besides making them.
pub(crate) struct SnapshotChanges<V> {
    pub(crate) next: u32,
    pub(crate) next_place: u32,
    /// Renamed snapshots: identity, new name, new label.
    pub(crate) named: Vec<(u32, String, String)>,
    pub(crate) hashed: Vec<(u32, ContentHash)>,
    pub(crate) gone: Vec<u32>,
    /// Identity and new place of the snapshot that the volume is reverted to.
    pub(crate) revert: Option<(u32, u32)>,
    /// True if the volume becomes empty.
    pub(crate) empty: bool,
    views: Vec<Arc<V>>,
}

impl<V> Snaps<V> {
    pub(crate) fn new(next: u32, next_place: u32, home: (AggregateId, VolumeId)) -> Snaps<V> {
        Snaps {
            next_place,
            home,
            exported: None,
            empty: false,
            over: false,
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

    /// Returns the identity of a snapshot at its first creation.
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

    /// Returns the hash of a snapshot's contents, if it was computed.
    pub(crate) fn content(&self, id: u32) -> Option<ContentHash> {
        self.list.get(&id)?.content
    }

    /// Stores the hash of a snapshot's contents. Returns true if it was unknown before.
    pub(crate) fn note_content(&mut self, id: u32, hash: ContentHash) -> bool {
        let Some(info) = self.list.get_mut(&id).filter(|i| i.content != Some(hash)) else {
            return false;
        };
        // A snapshot does not change.
        debug_assert!(info.content.is_none(), "two hashes of one snapshot");
        info.content = Some(hash);
        self.hashed.insert(id)
    }

    /// Returns the newest snapshot not after `id` that is in the tree and has a known content hash.
    pub(crate) fn known_content(&self, id: u32) -> Option<(SnapshotIdentity, ContentHash)> {
        let mut older = self.list.range(..=id).rev();
        older.find_map(|(id, info)| {
            info.stored?;
            Some((self.identity_of(*id, info), info.content?))
        })
    }

    /// Returns the snapshot with this identity at its first creation.
    pub(crate) fn with_identity(&self, identity: SnapshotIdentity) -> Option<u32> {
        let mut ids = self.list.keys();
        ids.find(|id| self.identity(**id) == Some(identity))
            .copied()
    }

    /// Sets the snapshot that clients of a destination see.
    pub(crate) fn export(&mut self, id: Option<u32>) {
        self.exported = id;
    }

    /// Returns the inode number after the last one that a snapshot uses.
    pub(crate) fn next_ino(&self, id: u32) -> Option<u64> {
        self.list.get(&id).map(|info| info.next_ino)
    }

    /// Counts one transfer more, or fewer, that sends a snapshot.
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

    /// Returns identity and place for a received snapshot, and its name: its own, if no other has
    /// it.
    pub(crate) fn receive(&mut self, name: &str) -> Option<(u32, u32, String)> {
        let id = self.next;
        self.next = self.next.checked_add(1)?;
        let place = self.take_place()?;
        let mut found = name.to_owned();
        for n in 1.. {
            if self.find(&found).is_none() {
                break;
            }
            let end = format!(".{n}");
            // Saturates: a name may be shorter than its suffix.
            let mut cut = name.len().min(MAX_VOLUME_NAME.saturating_sub(end.len()));
            while !name.is_char_boundary(cut) {
                cut -= 1;
            }
            found = format!("{}{end}", name.get(..cut).unwrap_or_default());
        }
        Some((id, place, found))
    }

    fn take_place(&mut self) -> Option<u32> {
        let place = self.next_place;
        self.next_place = place.checked_add(1)?;
        Some(place)
    }

    /// Adds a snapshot of the tree: at the start, or one that a checkpoint has made of a transfer.
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
        if MarkId::from_name(&rec.name).is_none() {
            self.note_change(rec.created);
        }
        self.list.insert(rec.id, info);
    }

    /// Requests that the volume become empty. There are no snapshots.
    pub(crate) fn begin_empty(&mut self) {
        self.empty = true;
    }

    /// Counts one clone more, or fewer, that depends on a snapshot.
    pub(crate) fn count_clone(&mut self, id: u32, more: bool) {
        self.count(id, more, "clones of a snapshot", |info| &mut info.clones);
    }

    pub(crate) fn has_clones(&self) -> bool {
        self.list.values().any(|s| s.clones > 0)
    }

    /// Notes that the list changes at about `now`; clients see a later time than before.
    pub(crate) fn note_change(&mut self, now: Time) {
        let after = self.changed.plus(std::time::Duration::from_nanos(1));
        self.changed = now.max(after);
        self.changes += 1;
    }

    /// Returns the start of a clone of this snapshot: its identity, tree, generation, and number of
    /// data blocks. `None` until a checkpoint has made it.
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

    /// Returns the snapshot with this name; not that of a mark.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let named = |s: &Info| s.name == name && MarkId::from_name(&s.name).is_none();
        let found = self.list.iter().find(|(_, s)| named(s));
        found.map(|(id, _)| *id)
    }

    /// Returns the volume's marks, oldest first, with their snapshots.
    pub(crate) fn marks(&self) -> Vec<(MarkId, u32)> {
        let marks = self.list.iter();
        marks
            .filter_map(|(id, s)| Some((MarkId::from_name(&s.name)?, *id)))
            .collect()
    }

    fn visible(&self) -> impl Iterator<Item = (&u32, &Info)> {
        self.list
            .iter()
            .filter(|(_, s)| MarkId::from_name(&s.name).is_none())
    }

    /// Returns true if there are no snapshots except those of marks.
    pub(crate) fn none_visible(&self) -> bool {
        self.visible().next().is_none()
    }

    /// Requests a revert of the volume to this snapshot.
    pub(crate) fn begin_revert(&mut self, name: &str) -> Result<(), FsError> {
        let id = self.find(name).ok_or(FsError::NotFound)?;
        self.begin_revert_to(id)
    }

    /// Like [`Snaps::begin_revert`], by identity.
    pub(crate) fn begin_revert_to(&mut self, id: u32) -> Result<(), FsError> {
        if !self.list.contains_key(&id) {
            return Err(FsError::NotFound);
        }
        // Saturates: no snapshot gets the last number.
        let mut later = self.list.range(id.saturating_add(1)..);
        if later.any(|(_, s)| s.clones > 0 || s.holds > 0) {
            return Err(FsError::Busy);
        }
        let place = self.take_place().ok_or(FsError::NoSpace)?;
        self.revert = Some((id, place));
        Ok(())
    }

    /// Like [`Snaps::begin_revert_to`], for a copy of another volume: later snapshots do not exist
    /// there, and new ones get the identities that they have there.
    pub(crate) fn begin_return_to(&mut self, id: u32) -> Result<(), FsError> {
        self.begin_revert_to(id)?;
        // Saturates: no snapshot gets the last number.
        self.next = id.saturating_add(1);
        Ok(())
    }

    /// Skips the identity of a snapshot that is not made: no other gets it.
    pub(crate) fn skip(&mut self, id: u32) {
        // Saturates: no snapshot gets the last number.
        self.next = self.next.max(id.saturating_add(1));
    }

    /// Requests a revert of a destination to the exported snapshot. Snapshots made after it were
    /// made of it (`snapshot_take_of_copy`), and stay.
    pub(crate) fn begin_revert_to_last(&mut self) -> Result<(), FsError> {
        let (last, _) = self.list.last_key_value().ok_or(FsError::NotFound)?;
        self.begin_revert_to(*last)
    }

    /// Takes the pending actions. Called while the epoch lock is held exclusively.
    pub(crate) fn take_changes(&mut self) -> SnapshotChanges<V> {
        let named = std::mem::take(&mut self.named);
        let named = named.into_iter().filter_map(|id| {
            let info = self.list.get(&id)?;
            Some((id, info.name.clone(), info.label.clone()))
        });
        let hashed = std::mem::take(&mut self.hashed);
        let hashed = hashed
            .into_iter()
            .filter_map(|id| Some((id, self.content(id)?)));
        SnapshotChanges {
            named: named.collect(),
            hashed: hashed.collect(),
            gone: std::mem::take(&mut self.gone),
            revert: self.revert.take(),
            empty: std::mem::take(&mut self.empty),
            views: std::mem::take(&mut self.gone_views),
            next: self.next,
            next_place: self.next_place,
        }
    }

    /// Applies the results of a checkpoint. Returns the views whose snapshots are gone.
    pub(crate) fn publish(
        &mut self,
        changes: SnapshotChanges<V>,
        changed: Vec<SnapshotRec>,
    ) -> Vec<Arc<V>> {
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
        views
    }

    /// Ends all views, because the checkpoint that took these changes deletes the volume. Returns
    /// the existing ones.
    pub(crate) fn end(&mut self, changes: SnapshotChanges<V>) -> Vec<Arc<V>> {
        self.over = true;
        let mut views = changes.views;
        views.extend(self.views.drain(..).map(|view| view.volume));
        views
    }

    fn take_views(&mut self, id: u32, out: &mut Vec<Arc<V>>) {
        let gone = self.views.extract_if(.., |view| view.snapshot == id);
        out.extend(gone.map(|view| view.volume));
    }

    /// Removes a snapshot from the list.
    fn remove(&mut self, id: u32) {
        self.list.remove(&id);
        self.named.remove(&id);
        self.hashed.remove(&id);
        self.gone.push(id);
        let mut gone = std::mem::take(&mut self.gone_views);
        self.take_views(id, &mut gone);
        self.gone_views = gone;
    }

    /// Returns the identity for a new snapshot with this name.
    pub(crate) fn place_for(&self, name: &str) -> Result<u32, FsError> {
        if self.find(name).is_some() {
            return Err(FsError::Exists);
        }
        if self.visible().count() >= MAX_SNAPSHOTS {
            return Err(FsError::NoSpace);
        }
        self.next_id()
    }

    fn next_id(&self) -> Result<u32, FsError> {
        match u32::MAX > self.next.max(self.next_place) {
            true => Ok(self.next),
            false => Err(FsError::NoSpace),
        }
    }

    /// Returns the identity for the snapshot of a mark.
    pub(crate) fn place_for_mark(&self) -> Result<u32, FsError> {
        self.next_id()
    }

    /// Adds a snapshot, which gets its place; `next_ino` is the number after the last inode.
    pub(crate) fn add(&mut self, made: &mut SnapshotProperties, next_ino: u64) {
        let info = Info {
            name: made.name.clone(),
            label: made.label.clone(),
            created: made.created,
            next_ino,
            stored: None,
            clones: 0,
            source: None,
            content: None,
            holds: 0,
        };
        if MarkId::from_name(&made.name).is_none() {
            self.note_change(made.created);
        }
        made.place = self.next_place;
        // Saturates: the numbers come from the log; no snapshot gets the last one.
        self.next_place = made.place.saturating_add(1);
        self.next = self.next.max(made.id.saturating_add(1));
        self.list.insert(made.id, info);
    }

    /// Returns true if a snapshot with this identity exists, or existed.
    pub(crate) fn knows(&self, id: u32) -> bool {
        self.next > id
    }

    /// Returns the snapshot with this name, if nothing needs it.
    pub(crate) fn to_delete(&self, name: &str) -> Result<u32, FsError> {
        let id = self.find(name).ok_or(FsError::NotFound)?;
        let needed = |s: &Info| s.clones > 0 || s.holds > 0;
        if self.list.get(&id).is_some_and(needed) || self.exported == Some(id) {
            return Err(FsError::Busy);
        }
        Ok(id)
    }

    /// Returns the label of a snapshot; may be empty.
    pub(crate) fn label(&self, id: u32) -> &str {
        self.list.get(&id).map_or("", |s| &s.label)
    }

    /// Applies a change of the log; repeating it changes nothing.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Remove(id) if self.list.contains_key(&id) => self.remove(id),
            Change::Remove(_) => {}
            Change::Name(id, name, label) => {
                if let Some(info) = self.list.get_mut(&id) {
                    (info.name, info.label) = (name, label);
                    self.named.insert(id);
                }
            }
        }
    }

    /// Returns the properties of a snapshot made by a checkpoint; `None` until then.
    ///
    /// # Errors
    /// `Stale` if there is no such snapshot.
    pub(crate) fn stored(&self, id: u32) -> Result<Option<StoredSnapshot>, FsError> {
        let info = self.list.get(&id).filter(|_| !self.over);
        Ok(info.ok_or(FsError::Stale)?.stored)
    }

    /// Returns a kept view.
    pub(crate) fn kept_view(&mut self, id: u32, shown: ViewRole) -> Option<Arc<V>> {
        let wanted = |view: &View<V>| view.snapshot == id && view.shown == shown;
        let at = self.views.iter().rposition(wanted)?;
        let found = self.views.remove(at);
        let view = Arc::clone(&found.volume);
        self.views.push(found);
        Some(view)
    }

    /// Keeps a view; the one that was not used for longest makes room.
    pub(crate) fn keep_view(&mut self, id: u32, shown: ViewRole, view: &Arc<V>) {
        if self.views.len() >= VIEWS {
            // A caller that still uses the old view keeps it; nothing of it is lost.
            let old = self.views.remove(0);
            let still_used = Arc::strong_count(&old.volume) > 1;
            if still_used {
                // A view in use must be notified of the snapshot's end, so it is the one that
                // stays.
                self.views.push(old);
            }
        }
        self.views.push(View {
            snapshot: id,
            shown,
            volume: Arc::clone(view),
        });
    }

    /// Returns all snapshots, oldest first.
    pub(crate) fn listing(&self) -> Vec<Snapshot> {
        let all = self.visible();
        all.map(|(id, info)| self.listed(*id, info)).collect()
    }

    pub(crate) fn get(&self, id: u32) -> Option<Snapshot> {
        self.list.get(&id).map(|info| self.listed(id, info))
    }

    /// Calls `each` with identity and name of the snapshots from `from` on that had the directory
    /// `dir`, until it returns `false`.
    pub(crate) fn had(&self, dir: Ino, from: u32, each: &mut dyn FnMut(u32, &str) -> bool) {
        // An existing inode with a lower number existed then: numbers are assigned in order.
        let had = |info: &Info| dir.0 < info.next_ino && MarkId::from_name(&info.name).is_none();
        for (id, info) in self.list.range(from..).filter(|(_, info)| had(info)) {
            if !each(*id, &info.name) {
                break;
            }
        }
    }

    /// Returns the time and the number of the changes of the list.
    pub(crate) fn last_change(&self) -> (Time, u64) {
        (self.changed, self.changes)
    }

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
