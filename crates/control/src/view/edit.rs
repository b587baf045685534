//! Changes to a view, with everything that is kept up beside the resources themselves.

use super::{PoolUse, View};
use crate::model::{Instance, Operation, Pool, Snapshot, State, Volume};
use crate::name::{Name, SnapshotName, SnapshotOf, Target};
use crate::rules::bytes_of;
use std::sync::Arc;

impl View {
    pub(crate) fn put_pool(&mut self, pool: Arc<Pool>) {
        self.generation += 1;
        self.pools.insert_mut(pool.name.clone(), pool);
    }

    pub(crate) fn remove_pool(&mut self, name: &Name) {
        self.generation += 1;
        self.pools.remove_mut(name);
        self.uses.remove_mut(name);
    }

    pub(crate) fn put_volume(&mut self, volume: Arc<Volume>) {
        self.generation += 1;
        let before = self.volumes.get(&volume.name).cloned();
        // Each entry that is put anew copies a path of its tree, and most changes concern one of them.
        let same = |same: fn(&Volume, &Volume) -> bool| {
            before.as_ref().is_some_and(|before| same(before, &volume))
        };
        let accounted = same(|a, b| {
            (&a.pool, a.capacity_gib, a.throughput_mibps)
                == (&b.pool, b.capacity_gib, b.throughput_mibps)
        });
        let shared = same(|a, b| a.paths == b.paths);
        let stays = same(|a, b| a.state == b.state);
        if !accounted {
            self.unaccount(&volume.name);
            let pool = volume.name.place.name(&volume.pool);
            let mut taken = self.pool_use(&pool);
            taken.volumes += 1;
            taken.capacity_gib += volume.capacity_gib;
            taken.throughput += volume.throughput_mibps.map_or(0, bytes_of);
            self.uses.insert_mut(pool.clone(), taken);
            self.members.insert_mut((pool, volume.name.id.clone()), ());
        }
        if !stays {
            self.note_state(Target::Volume(volume.name.clone()), volume.state);
        }
        if !shared {
            for path in &volume.paths {
                let target = Target::Volume(volume.name.clone());
                self.exports.insert_mut(path.clone(), target);
            }
        }
        self.volumes.insert_mut(volume.name.clone(), volume);
    }

    /// What does not concern the data path, nor the pool.
    pub(crate) fn note_volume(&mut self, volume: Arc<Volume>) {
        self.volumes.insert_mut(volume.name.clone(), volume);
    }

    pub(crate) fn remove_volume(&mut self, name: &Name) {
        self.generation += 1;
        self.failed.remove_mut(&Target::Volume(name.clone()));
        if let Some(volume) = self.unaccount(name) {
            for path in &volume.paths {
                self.exports.remove_mut(path);
            }
            self.volumes.remove_mut(name);
        }
    }

    fn note_state(&mut self, target: Target, state: State) {
        match state {
            State::Error => self.failed.insert_mut(target, ()),
            _ => {
                self.failed.remove_mut(&target);
            }
        }
    }

    /// Takes a volume out of its pool's sums.
    fn unaccount(&mut self, name: &Name) -> Option<Arc<Volume>> {
        let volume = self.volumes.get(name).cloned()?;
        let pool = name.place.name(&volume.pool);
        let taken = self.pool_use(&pool);
        let given = volume.throughput_mibps.map_or(0, bytes_of);
        let left = PoolUse {
            volumes: taken.volumes.saturating_sub(1),
            capacity_gib: taken.capacity_gib.saturating_sub(volume.capacity_gib),
            throughput: taken.throughput.saturating_sub(given),
        };
        self.members
            .remove_mut(&(pool.clone(), volume.name.id.clone()));
        self.uses.insert_mut(pool, left);
        Some(volume)
    }

    pub(crate) fn put_instance(&mut self, instance: Arc<Instance>) {
        self.generation += 1;
        self.note_state(Target::Instance(instance.name.clone()), instance.state);
        for path in &instance.paths {
            let target = Target::Instance(instance.name.clone());
            self.exports.insert_mut(path.clone(), target);
        }
        self.instances.insert_mut(instance.name.clone(), instance);
    }

    pub(crate) fn remove_instance(&mut self, name: &Name) {
        self.generation += 1;
        self.failed.remove_mut(&Target::Instance(name.clone()));
        if let Some(instance) = self.instances.get(name).cloned() {
            for path in &instance.paths {
                self.exports.remove_mut(path);
            }
            self.instances.remove_mut(name);
        }
    }

    pub(crate) fn put_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshots.insert_mut(snapshot.name.clone(), snapshot);
    }

    pub(crate) fn remove_snapshot(&mut self, name: &SnapshotName) {
        self.snapshots.remove_mut(name);
    }

    /// All snapshots of something that goes.
    pub(crate) fn snapshots_to_go(&self, of: SnapshotOf, parent: &Name) -> Vec<Arc<Snapshot>> {
        self.snapshots(of, parent, None).cloned().collect()
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
