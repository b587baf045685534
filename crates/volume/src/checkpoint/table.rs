//! The volumes of an aggregate, by number and by name, and the pending actions of the next
//! checkpoint on whole volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use weir_base::VolumeId;
use weir_store::tree::TreeRoot;

use crate::format::catalog::{Origin, VolumeRec};
use crate::format::hash::HashKey;
use crate::format::record::FIRST_INO;
use crate::overlay::core::Core;
use crate::overlay::volume::LiveVolume;
use crate::types::FsError;

#[derive(Default)]
struct VolumeIndex {
    by_id: BTreeMap<VolumeId, LiveVolume>,
    by_name: HashMap<String, VolumeId>,
}

/// The table of volumes: see the module's head.
pub(crate) struct VolumeTable {
    listed: RwLock<VolumeIndex>,
    /// Held while a volume is created: of two with one name, one is first.
    making: Mutex<()>,
    /// Number of the next volume.
    next: AtomicU64,
    /// Volumes that the next checkpoint deletes.
    doomed: Mutex<Vec<LiveVolume>>,
    /// Clones that the next checkpoint begins to split.
    new_splits: Mutex<Vec<VolumeId>>,
}

/// Permission to create a volume; only one exists at a time.
pub(crate) struct CreatePermit<'a>(#[expect(dead_code)] MutexGuard<'a, ()>);

impl VolumeTable {
    pub(crate) fn new() -> VolumeTable {
        VolumeTable {
            listed: RwLock::default(),
            making: Mutex::default(),
            next: AtomicU64::new(1),
            doomed: Mutex::default(),
            new_splits: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, id: VolumeId) -> Option<LiveVolume> {
        self.listed.read().by_id.get(&id).cloned()
    }

    pub(crate) fn find_by_name(&self, name: &str) -> Option<LiveVolume> {
        let listed = self.listed.read();
        listed.by_id.get(listed.by_name.get(name)?).cloned()
    }

    /// Returns all volumes, by number.
    pub(crate) fn list_volumes(&self) -> Vec<LiveVolume> {
        self.listed.read().by_id.values().cloned().collect()
    }

    pub(crate) fn insert(&self, vol: LiveVolume) {
        let mut listed = self.listed.write();
        listed.by_name.insert(vol.name.clone(), vol.id);
        listed.by_id.insert(vol.id, vol);
    }

    /// Waits for the permission to create a volume. No other volume is created while it is held.
    pub(crate) fn begin_making(&self) -> CreatePermit<'_> {
        CreatePermit(self.making.lock())
    }

    /// Returns a number for a new volume. A number is never reused, because clients may still have
    /// the handles of the old volume.
    pub(crate) fn next_id(&self) -> Result<VolumeId, FsError> {
        let more = |n: u64| n.checked_add(1);
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map(VolumeId)
            .map_err(|_| FsError::NoSpace)
    }

    /// Returns the number of the next volume.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Ensures that no volume gets a number below this one from now on.
    pub(crate) fn begin_at(&self, next: u64) {
        self.next.fetch_max(next, Ordering::Relaxed);
    }

    /// Adds an empty volume to the table.
    pub(crate) fn add_empty(
        &self,
        core: &Arc<Core>,
        id: VolumeId,
        key: HashKey,
        name: &str,
    ) -> LiveVolume {
        let rec = VolumeRec {
            name: name.to_owned(),
            root: TreeRoot::EMPTY,
            key,
            next_ino: FIRST_INO,
            limit: 0,
            used: 0,
            next_snapshot: 1,
            next_place: 1,
            dead: TreeRoot::EMPTY,
            dead_blocks: 0,
            change_base: 0,
            change_top: 0,
            origin: None,
            mirror: None,
        };
        let vol = LiveVolume::new(Arc::clone(core), id, rec);
        // Saturates: no volume gets the last number.
        self.begin_at(id.0.saturating_add(1));
        self.insert(vol.clone());
        vol
    }

    /// Makes the next checkpoint delete this volume; lookups no longer find it.
    pub(crate) fn doom(&self, vol: &LiveVolume) {
        let mut listed = self.listed.write();
        if listed.by_id.remove(&vol.id).is_some() {
            listed.by_name.remove(&vol.name);
        }
        drop(listed);
        self.doomed.lock().push(vol.clone());
    }

    pub(crate) fn take_doomed(&self) -> Vec<LiveVolume> {
        std::mem::take(&mut *self.doomed.lock())
    }

    /// Makes the next checkpoint begin to split this clone from its origin.
    pub(crate) fn split(&self, id: VolumeId) {
        self.new_splits.lock().push(id);
    }

    pub(crate) fn take_splits(&self) -> Vec<VolumeId> {
        std::mem::take(&mut *self.new_splits.lock())
    }

    /// Notes that one clone fewer depends on its origin.
    pub(crate) fn forget_clone(&self, origin: Origin) {
        if let Some(parent) = self.get(origin.volume) {
            parent
                .live()
                .snaps
                .lock()
                .count_clone(origin.snapshot, false);
        }
    }
}
