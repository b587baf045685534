//! Changes to a view, with the indexes and sums kept beside the resources.

use super::View;
use crate::figures::{PoolUse, bytes_of};
use crate::model::{
    ActiveDirectory, Backup, BackupPolicy, BackupVault, Operation, Pool, Snapshot, State, Volume,
};
use crate::name::{BackupName, Name, SnapshotName, Surface, VolumeName};
use crate::policies::{NamedPolicy, PolicyName};
use std::sync::Arc;
use weir_base::invariant;

/// Returns the key of [`View::ids`], for names that are in it.
fn by_id(name: &VolumeName) -> Option<[Arc<str>; 3]> {
    let VolumeName { surface, place, id } = name;
    let known = *surface == Surface::Netapp;
    known.then(|| {
        [
            Arc::clone(&place.project),
            Arc::clone(id),
            Arc::clone(&place.location),
        ]
    })
}

impl View {
    pub(crate) fn put_pool(&mut self, pool: Arc<Pool>) {
        self.generation += 1;
        self.unprovision(&pool.name);
        self.provisioned_gib = self.provisioned_gib.saturating_add(pool.capacity_gib);
        self.pools.insert_mut(pool.name.clone(), pool);
    }

    fn unprovision(&mut self, pool: &Name) {
        let before = self.pools.get(pool).map_or(0, |pool| pool.capacity_gib);
        self.provisioned_gib = self.provisioned_gib.saturating_sub(before);
    }

    pub(crate) fn remove_pool(&mut self, name: &Name) {
        self.generation += 1;
        self.unprovision(name);
        self.pools.remove_mut(name);
        self.uses.remove_mut(name);
    }

    pub(crate) fn put_volume(&mut self, volume: Arc<Volume>) {
        invariant!(
            volume.name.surface == volume.presentation.surface(),
            "{} is presented as {:?}",
            volume.name,
            volume.presentation.surface()
        );
        self.generation += 1;
        let before = self.volumes.get(&volume.name).cloned();
        // Each changed entry copies a path of its tree, and most changes affect only one of them.
        let same = |same: fn(&Volume, &Volume) -> bool| {
            before.as_ref().is_some_and(|before| same(before, &volume))
        };
        let accounted =
            same(|a, b| (a.capacity_gib, &a.presentation) == (b.capacity_gib, &b.presentation));
        let shared = same(|a, b| a.paths == b.paths);
        let stays = same(|a, b| a.state == b.state);
        if !accounted {
            self.unaccount(&volume.name);
            self.volumes_gib = self.volumes_gib.saturating_add(volume.capacity_gib);
            if volume.pool().is_none() {
                let all = self.provisioned_gib.saturating_add(volume.capacity_gib);
                self.provisioned_gib = all;
            }
            if let Some(pool) = volume.pool() {
                let mut taken = self.pool_use(&pool);
                taken.volumes += 1;
                taken.capacity_gib += volume.capacity_gib;
                taken.throughput += volume.throughput_mibps().map_or(0, bytes_of);
                self.uses.insert_mut(pool.clone(), taken);
                self.members.insert_mut((pool, volume.name.id.clone()), ());
            }
        }
        if let (None, Some(id)) = (&before, by_id(&volume.name)) {
            self.ids.insert_mut(id, ());
        }
        if !stays {
            match volume.state {
                State::Error => self.failed.insert_mut(volume.name.clone(), ()),
                _ => {
                    self.failed.remove_mut(&volume.name);
                }
            }
        }
        self.note_move(&volume);
        if !shared {
            for path in before.iter().flat_map(|before| &before.paths) {
                self.exports.remove_mut(path);
            }
            for path in &volume.paths {
                self.exports.insert_mut(path.clone(), volume.name.clone());
            }
        }
        let own = volume.own_address();
        let had = before.as_ref().and_then(|before| before.own_address());
        if own != had {
            if let Some(had) = had {
                self.addresses.remove_mut(&had);
            }
            if let Some(own) = own {
                self.addresses.insert_mut(own, volume.name.clone());
            }
        }
        self.volumes.insert_mut(volume.name.clone(), volume);
    }

    /// Lists a volume among those that move, or does not any more.
    fn note_move(&mut self, volume: &Volume) {
        match (&volume.moving, self.moving.contains_key(&volume.name)) {
            (Some(_), false) => self.moving.insert_mut(volume.name.clone(), ()),
            (None, true) => {
                self.moving.remove_mut(&volume.name);
            }
            _ => {}
        }
    }

    pub(crate) fn put_policy(&mut self, policy: Arc<NamedPolicy>) {
        self.policies.insert_mut(policy.name.clone(), policy);
    }

    pub(crate) fn remove_policy(&mut self, name: &PolicyName) {
        self.policies.remove_mut(name);
    }

    pub(crate) fn put_directory(&mut self, directory: Arc<ActiveDirectory>) {
        self.directories
            .insert_mut(directory.name.clone(), directory);
    }

    pub(crate) fn remove_directory(&mut self, name: &Name) {
        self.directories.remove_mut(name);
    }

    pub(crate) fn put_vault(&mut self, vault: Arc<BackupVault>) {
        self.vaults.insert_mut(vault.name.clone(), vault);
    }

    pub(crate) fn remove_vault(&mut self, name: &Name) {
        self.vaults.remove_mut(name);
    }

    pub(crate) fn put_backup(&mut self, backup: Arc<Backup>) {
        self.backups.insert_mut(backup.name.clone(), backup);
    }

    pub(crate) fn remove_backup(&mut self, name: &BackupName) {
        self.backups.remove_mut(name);
    }

    pub(crate) fn put_backup_policy(&mut self, policy: Arc<BackupPolicy>) {
        self.backup_policies.insert_mut(policy.name.clone(), policy);
    }

    pub(crate) fn remove_backup_policy(&mut self, name: &Name) {
        self.backup_policies.remove_mut(name);
    }

    /// Stores a change that affects neither the data path nor the pool.
    pub(crate) fn note_volume(&mut self, volume: Arc<Volume>) {
        self.volumes.insert_mut(volume.name.clone(), volume);
    }

    pub(crate) fn remove_volume(&mut self, name: &VolumeName) {
        self.generation += 1;
        self.failed.remove_mut(name);
        self.moving.remove_mut(name);
        if let Some(volume) = self.unaccount(name) {
            for path in &volume.paths {
                self.exports.remove_mut(path);
            }
            if let Some(own) = volume.own_address() {
                self.addresses.remove_mut(&own);
            }
            if let Some(id) = by_id(name) {
                self.ids.remove_mut(&id);
            }
            self.volumes.remove_mut(name);
        }
    }

    /// Removes a volume from its pool's sums, if it is in one.
    fn unaccount(&mut self, name: &VolumeName) -> Option<Arc<Volume>> {
        let volume = self.volumes.get(name).cloned()?;
        self.volumes_gib = self.volumes_gib.saturating_sub(volume.capacity_gib);
        if volume.pool().is_none() {
            let left = self.provisioned_gib.saturating_sub(volume.capacity_gib);
            self.provisioned_gib = left;
        }
        if let Some(pool) = volume.pool() {
            let taken = self.pool_use(&pool);
            let given = volume.throughput_mibps().map_or(0, bytes_of);
            let left = PoolUse {
                volumes: taken.volumes.saturating_sub(1),
                capacity_gib: taken.capacity_gib.saturating_sub(volume.capacity_gib),
                throughput: taken.throughput.saturating_sub(given),
            };
            self.members
                .remove_mut(&(pool.clone(), volume.name.id.clone()));
            self.uses.insert_mut(pool, left);
        }
        Some(volume)
    }

    pub(crate) fn put_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshots.insert_mut(snapshot.name.clone(), snapshot);
    }

    pub(crate) fn remove_snapshot(&mut self, name: &SnapshotName) {
        self.snapshots.remove_mut(name);
    }

    /// Returns all snapshots of a volume, for changing them.
    pub(crate) fn snapshots_to_go(&self, parent: &VolumeName) -> Vec<Arc<Snapshot>> {
        self.snapshots(parent, None).cloned().collect()
    }

    pub(crate) fn put_operation(&mut self, operation: Arc<Operation>) {
        match operation.done() {
            true => {
                self.pending.remove_mut(&operation.name);
            }
            false => self.pending.insert_mut(operation.name.clone(), ()),
        }
        self.operations
            .insert_mut(operation.name.clone(), operation);
    }

    pub(crate) fn remove_operation(&mut self, name: &Name) {
        self.pending.remove_mut(name);
        self.operations.remove_mut(name);
    }
}
