//! A simulated node for tests: volumes as entries of a map, failures on demand, and calls that stop
//! for good in the middle, as in a killed process.

use crate::backend::{
    Backend, BackendError, BackupSpec, BackupState, Capacity, DomainSpec, ExportSpec, Facts, Point,
    Publication, SnapshotIdentity, SnapshotState, TakenSnapshot, ThrottleState, VolumeSpec,
    VolumeState,
};
use parking_lot::{Condvar, Mutex};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_qos::plan::{Plan, PoolPlan, VolumePlan};

/// The password that its domains accept.
pub const PASSWORD: &str = "correct horse";

/// A volume of the simulated node.
#[derive(Clone, Debug)]
pub struct SimVolume {
    /// Number assigned by the engine.
    pub number: u64,
    /// Capacity in bytes.
    pub capacity: Option<u64>,
    /// Bytes of it reserved for snapshots.
    pub reserve: u64,
    /// Permission bits of the root.
    pub mode: u32,
    /// Bytes of its data.
    pub used: u64,
    /// Its snapshots, the oldest first.
    pub snapshots: Vec<SnapshotState>,
    /// Number of polls before it is split from its origin; `None` if it is not a clone.
    pub shared: Option<u32>,
    /// True if only transfers write to it.
    pub protection: bool,
    /// Origin of the clone.
    pub origin: Option<(String, String)>,
    /// Stored annotation.
    pub annotation: Arc<str>,
    /// Numbers and names of its qtrees.
    pub trees: Vec<(u32, String)>,
}

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and has done nothing.
    Before(BackendError),
    /// The call is done, but the reply is an error.
    After(BackendError),
}

/// Sum of the publications so far.
#[derive(Clone, Debug, Default)]
pub struct PublishedState {
    /// Every volume that is served, sorted by key.
    pub exports: Vec<Arc<ExportSpec>>,
    /// Limits of pools and volumes.
    pub plan: Plan,
}

#[derive(Clone, Default)]
struct ServingState {
    generation: u64,
    exports: BTreeMap<Arc<str>, Arc<ExportSpec>>,
    pools: BTreeMap<u64, PoolPlan>,
    volumes: BTreeMap<u64, VolumePlan>,
}

impl ServingState {
    fn take_in(&mut self, next: &Publication) {
        if next.whole {
            self.exports.clear();
        }
        if next.limits.whole {
            self.pools.clear();
            self.volumes.clear();
        }
        self.generation = next.limits.generation;
        for key in &next.withdrawn {
            assert!(self.exports.remove(key).is_some(), "{key} was not served");
        }
        for export in &next.exports {
            self.exports
                .insert(export.key.as_str().into(), Arc::clone(export));
        }
        for id in &next.limits.volumes_gone {
            assert!(self.volumes.remove(id).is_some(), "volume {id} had no plan");
        }
        for plan in &next.limits.volumes {
            self.volumes.insert(plan.volume, plan.clone());
        }
        for id in &next.limits.pools_gone {
            assert!(self.pools.remove(id).is_some(), "pool {id} had no plan");
        }
        for plan in &next.limits.pools {
            self.pools.insert(plan.id, plan.clone());
        }
    }

    fn whole(&self) -> PublishedState {
        PublishedState {
            exports: self.exports.values().cloned().collect(),
            plan: Plan {
                generation: self.generation,
                pools: self.pools.values().cloned().collect(),
                volumes: self.volumes.values().cloned().collect(),
            },
        }
    }
}

#[derive(Default)]
struct State {
    aggregate: String,
    volumes: BTreeMap<String, SimVolume>,
    /// Deletions that a crash undoes.
    passing: BTreeMap<String, SimVolume>,
    point: u64,
    durable: u64,
    throttled: BTreeMap<String, ThrottleState>,
    next: u64,
    time: i128,
    faults: Vec<(&'static str, Fault)>,
    published: Option<ServingState>,
    last: Option<Arc<Publication>>,
    publications: u64,
    calls: u64,
    /// Number of calls until the stop, and true to stop after the call's effect.
    stop: Option<(u64, bool)>,
    facts: Facts,
    /// True to let deletions of qtrees take until the next restart.
    trees_stay: bool,
    /// Domain that the node is a member of.
    domain: Option<String>,
    /// Backups of each vault.
    vaults: BTreeMap<String, BTreeSet<String>>,
    /// True if a call has stopped.
    stopped: bool,
    /// Number of restarts: calls that stopped before one of them end without a result.
    life: u64,
}

/// The simulated node. Clones are the same node.
#[derive(Clone, Default)]
pub struct SimBackend {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl SimBackend {
    /// Creates an empty node.
    pub fn new() -> SimBackend {
        SimBackend::default()
    }

    /// Creates an empty node whose aggregate has this identity.
    pub fn of_aggregate(id: &str) -> SimBackend {
        let node = SimBackend::default();
        id.clone_into(&mut node.lock().aggregate);
        node
    }

    /// Makes the next call of this name (`create_volume`, `publish`, …) fail.
    pub fn inject(&self, call: &'static str, fault: Fault) {
        self.lock().faults.push((call, fault));
    }

    /// Makes the changing call after `calls` more stop, before or after its effect, as if the
    /// process had been killed in it. It never returns, and neither does any later call, until
    /// [`SimBackend::revive`].
    pub fn stop_in(&self, calls: u64, after: bool) {
        let mut state = self.lock();
        state.stop = Some((state.calls + calls, after));
    }

    /// Returns true if a call has stopped.
    pub fn stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Restarts the node in another process, with its durable state: deletions may be undone.
    pub fn revive(&self) {
        let mut state = self.lock();
        state.stop = None;
        state.trees_stay = false;
        state.stopped = false;
        state.life += 1;
        state.published = None;
        let back = std::mem::take(&mut state.passing);
        state.volumes.extend(back);
        self.state.1.notify_all();
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.0.lock()
    }

    /// Returns the domain that the node is a member of.
    pub fn domain(&self) -> Option<String> {
        self.lock().domain.clone()
    }

    /// Returns the backups of all vaults.
    pub fn backups(&self) -> BTreeSet<String> {
        let state = self.lock();
        state.vaults.values().flatten().cloned().collect()
    }

    /// Returns every volume of the node, by key.
    pub fn list_volumes(&self) -> BTreeMap<String, SimVolume> {
        self.lock().volumes.clone()
    }

    /// Returns the published state.
    pub fn published(&self) -> Option<PublishedState> {
        self.lock().published.as_ref().map(ServingState::whole)
    }

    /// Returns the last publication.
    pub fn last_publication(&self) -> Option<Arc<Publication>> {
        self.lock().last.clone()
    }

    /// Makes every change so far durable.
    pub fn checkpoint(&self) {
        let mut state = self.lock();
        state.passing.clear();
        state.point += 1;
        state.durable = state.point;
    }

    /// Returns the number of publications.
    pub fn publications(&self) -> u64 {
        self.lock().publications
    }

    /// Makes the node report that a volume's requests are throttled.
    pub fn throttle(&self, key: &str, throttled: ThrottleState) {
        self.lock().throttled.insert(key.to_owned(), throttled);
    }

    /// Creates a volume without the control plane.
    pub fn put(&self, key: &str, used: u64) {
        let mut state = self.lock();
        state.next += 1;
        let volume = SimVolume {
            number: state.next,
            capacity: None,
            reserve: 0,
            mode: 0o777,
            used,
            snapshots: Vec::new(),
            shared: None,
            protection: false,
            origin: None,
            annotation: Arc::default(),
            trees: Vec::new(),
        };
        state.volumes.insert(key.to_owned(), volume);
    }

    /// Removes a volume without the control plane.
    pub fn lose(&self, key: &str) {
        self.lock().volumes.remove(key);
    }

    /// Sets physical space and settings.
    pub fn set_facts(&self, facts: Facts) {
        self.lock().facts = facts;
    }

    /// Lets deletions of qtrees take until the next restart.
    pub fn keep_trees(&self) {
        self.lock().trees_stay = true;
    }

    /// Returns the qtrees of a volume.
    pub fn trees_of(&self, key: &str) -> Vec<(u32, String)> {
        let state = self.lock();
        let volume = state.volumes.get(key);
        volume
            .map(|volume| volume.trees.clone())
            .unwrap_or_default()
    }

    /// Makes a qtree without the control plane.
    pub fn add_tree(&self, key: &str, number: u32, name: &str) {
        if let Some(volume) = self.lock().volumes.get_mut(key) {
            volume.trees.push((number, name.to_owned()));
        }
    }

    /// Changes a volume's annotation without the control plane.
    pub fn annotate(&self, key: &str, text: &str) {
        if let Some(volume) = self.lock().volumes.get_mut(key) {
            volume.annotation = text.into();
        }
    }

    /// Changes a volume's snapshots without the control plane.
    pub fn snapshots_mut(&self, key: &str, f: impl FnOnce(&mut Vec<SnapshotState>)) {
        if let Some(volume) = self.lock().volumes.get_mut(key) {
            f(&mut volume.snapshots);
        }
    }

    /// Changes a volume's usage.
    pub fn fill(&self, key: &str, used: u64) {
        if let Some(volume) = self.lock().volumes.get_mut(key) {
            volume.used = used;
        }
    }

    fn call<T>(
        &self,
        name: &'static str,
        f: impl FnOnce(&mut State) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let mut state = self.lock();
        state.calls += 1;
        let here = state
            .stop
            .map(|(at, after)| (state.calls.cmp(&(at + 1)), after));
        match here {
            Some((Ordering::Greater, _)) | Some((Ordering::Equal, false)) => {
                return self.killed(state);
            }
            _ => {}
        }
        let fault = state.faults.iter().position(|(call, _)| *call == name);
        let fault = fault.map(|at| state.faults.remove(at).1);
        if let Some(Fault::Before(error)) = fault {
            return Err(error);
        }
        let result = f(&mut state);
        if here == Some((Ordering::Equal, true)) {
            return self.killed(state);
        }
        match fault {
            Some(Fault::After(error)) => Err(error),
            _ => result,
        }
    }

    fn killed<T>(&self, mut state: parking_lot::MutexGuard<'_, State>) -> Result<T, BackendError> {
        state.stopped = true;
        let life = state.life;
        while state.life == life {
            self.state.1.wait(&mut state);
        }
        Err(BackendError::Failed("killed".to_owned()))
    }

    fn call_on_volume<T>(
        &self,
        name: &'static str,
        key: &str,
        f: impl FnOnce(&mut SimVolume, i128) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        self.call(name, |state| {
            state.time += 1_000_000_000;
            let time = state.time;
            match state.volumes.get_mut(key) {
                Some(volume) => f(volume, time),
                None => Err(BackendError::NotFound(format!("volume {key}"))),
            }
        })
    }
}

fn state_of(key: &str, volume: &SimVolume) -> VolumeState {
    VolumeState {
        key: key.to_owned(),
        number: volume.number,
        used: volume.used,
        shared: volume.shared.is_some(),
        splitting: volume.shared.is_some_and(|left| left < u32::MAX),
        protection: volume.protection,
        limit: volume.capacity.unwrap_or(0),
        annotation: Arc::clone(&volume.annotation),
    }
}

/// Returns the identity of a snapshot taken on this node.
#[allow(clippy::expect_used)] // The text has the form that it is to have.
pub fn identity(volume: u64, number: u32) -> SnapshotIdentity {
    let text = format!("00000000-0000-0000-0000-000000000001/{volume}/{number}/1.000000000");
    text.parse().expect("its own form")
}

impl Backend for SimBackend {
    /// Except before a stop, where the calling thread stalls.
    fn is_prompt(&self) -> bool {
        self.lock().stop.is_none()
    }

    fn facts(&self) -> Facts {
        self.lock().facts
    }

    fn volumes(&self) -> Result<Vec<VolumeState>, BackendError> {
        let state = self.lock();
        Ok(state.volumes.iter().map(|(k, v)| state_of(k, v)).collect())
    }

    fn volume(&self, key: &str) -> Result<VolumeState, BackendError> {
        let mut state = self.lock();
        let found = state.volumes.get_mut(key).map(|volume| {
            volume.shared = match volume.shared {
                Some(u32::MAX) => Some(u32::MAX),
                left => left.and_then(|left| left.checked_sub(1)),
            };
            state_of(key, volume)
        });
        found.ok_or_else(|| BackendError::NotFound(format!("volume {key}")))
    }

    fn throttled(&self, key: &str) -> Result<ThrottleState, BackendError> {
        let state = self.lock();
        Ok(state.throttled.get(key).cloned().unwrap_or_default())
    }

    fn aggregate(&self) -> String {
        self.lock().aggregate.clone()
    }

    fn origin(&self, key: &str) -> Result<Option<(String, String)>, BackendError> {
        let state = self.lock();
        let volume = state.volumes.get(key).filter(|v| v.shared.is_some());
        Ok(volume.and_then(|volume| volume.origin.clone()))
    }

    fn trees(&self, key: &str) -> Result<Vec<(u32, String)>, BackendError> {
        let state = self.lock();
        let volume = state.volumes.get(key);
        Ok(volume
            .map(|volume| volume.trees.clone())
            .unwrap_or_default())
    }

    fn delete_tree(&self, key: &str, number: u32) -> Result<(), BackendError> {
        let state = self.lock();
        if state.trees_stay {
            return self.killed(state);
        }
        drop(state);
        self.call("delete_tree", |state| {
            let volume = state.volumes.get_mut(key);
            let volume = volume.ok_or_else(|| BackendError::NotFound(format!("volume {key}")))?;
            volume.trees.retain(|(had, _)| *had != number);
            Ok(())
        })
    }

    fn create_volume(&self, spec: &VolumeSpec) -> Result<VolumeState, BackendError> {
        self.call("create_volume", |state| {
            if let Some((parent, snapshot)) = &spec.clone_of {
                let parent = state.volumes.get(parent);
                let there = parent
                    .is_some_and(|parent| parent.snapshots.iter().any(|s| s.name == *snapshot));
                if !there {
                    return Err(BackendError::NotFound(format!("snapshot {snapshot}")));
                }
            }
            if !state.volumes.contains_key(&spec.key) {
                state.next += 1;
                let volume = SimVolume {
                    number: state.next,
                    capacity: spec.capacity.bytes,
                    reserve: spec.capacity.reserve,
                    mode: spec.root_mode,
                    used: 0,
                    snapshots: Vec::new(),
                    shared: spec.clone_of.as_ref().map(|_| u32::MAX),
                    protection: spec.protection,
                    origin: spec.clone_of.clone(),
                    annotation: Arc::default(),
                    trees: Vec::new(),
                };
                state.volumes.insert(spec.key.clone(), volume);
            }
            let made = state.volumes.get(&spec.key);
            made.map(|volume| state_of(&spec.key, volume))
                .ok_or_else(|| BackendError::Failed("lost".to_owned()))
        })
    }

    fn delete_volume(&self, key: &str) -> Result<(), BackendError> {
        self.call("delete_volume", |state| {
            if let Some(volume) = state.volumes.remove(key) {
                state.passing.insert(key.to_owned(), volume);
            }
            Ok(())
        })
    }

    fn set_capacity(&self, key: &str, capacity: Capacity) -> Result<(), BackendError> {
        self.call_on_volume("set_capacity", key, |volume, _| {
            volume.capacity = capacity.bytes;
            volume.reserve = capacity.reserve;
            Ok(())
        })
    }

    fn set_root_mode(&self, key: &str, mode: u32) -> Result<(), BackendError> {
        self.call_on_volume("set_root_mode", key, |volume, _| {
            volume.mode = mode;
            Ok(())
        })
    }

    fn snapshots(&self, key: &str) -> Result<Vec<SnapshotState>, BackendError> {
        let state = self.lock();
        let found = state.volumes.get(key).map(|v| v.snapshots.clone());
        found.ok_or_else(|| BackendError::NotFound(format!("volume {key}")))
    }

    fn snapshot_create(
        &self,
        key: &str,
        name: &str,
        label: &str,
    ) -> Result<TakenSnapshot, BackendError> {
        self.call_on_volume("snapshot_create", key, |volume, created| {
            if let Some(found) = volume.snapshots.iter_mut().find(|s| s.name == name) {
                label.clone_into(&mut found.label);
                return Ok(TakenSnapshot {
                    state: found.clone(),
                    found: true,
                });
            }
            let last = volume.snapshots.iter().map(|s| s.number).max();
            let number = last.unwrap_or(0) + 1;
            let state = SnapshotState {
                name: name.to_owned(),
                created,
                used: 0,
                label: label.to_owned(),
                busy: false,
                number,
                identity: identity(volume.number, number),
            };
            volume.snapshots.push(state.clone());
            Ok(TakenSnapshot {
                state,
                found: false,
            })
        })
    }

    fn snapshot_rename(&self, key: &str, from: &str, to: &str) -> Result<(), BackendError> {
        self.call_on_volume("snapshot_rename", key, |volume, _| {
            let there = volume.snapshots.iter().any(|s| s.name == to);
            match volume.snapshots.iter_mut().find(|s| s.name == from) {
                Some(_) if there => Err(BackendError::Precondition(format!("there is a {to}"))),
                Some(found) => {
                    to.clone_into(&mut found.name);
                    Ok(())
                }
                None if there => Ok(()),
                None => Err(BackendError::NotFound(format!("snapshot {from}"))),
            }
        })
    }

    fn snapshot_label(&self, key: &str, name: &str, label: &str) -> Result<(), BackendError> {
        self.call_on_volume("snapshot_label", key, |volume, _| {
            match volume.snapshots.iter_mut().find(|s| s.name == name) {
                Some(found) => {
                    label.clone_into(&mut found.label);
                    Ok(())
                }
                None => Err(BackendError::NotFound(format!("snapshot {name}"))),
            }
        })
    }

    fn snapshot_delete(&self, key: &str, name: &str) -> Result<(), BackendError> {
        self.call_on_volume("snapshot_delete", key, |volume, _| {
            if volume.snapshots.iter().any(|s| s.name == name && s.busy) {
                return Err(BackendError::Precondition(format!("{name} is in use")));
            }
            volume.snapshots.retain(|s| s.name != name);
            Ok(())
        })
    }

    fn split(&self, key: &str) -> Result<(), BackendError> {
        self.call_on_volume("split", key, |volume, _| {
            volume.shared = volume.shared.map(|left| left.min(2));
            Ok(())
        })
    }

    fn revert(&self, key: &str, snapshot: &str) -> Result<(), BackendError> {
        self.call_on_volume("revert", key, |volume, _| {
            let Some(at) = volume.snapshots.iter().position(|s| s.name == snapshot) else {
                return Err(BackendError::NotFound(format!("snapshot {snapshot}")));
            };
            volume.snapshots.truncate(at + 1);
            Ok(())
        })
    }

    fn join_domain(&self, spec: &DomainSpec) -> Result<String, BackendError> {
        self.call("join_domain", |state| {
            if spec.password.text() != PASSWORD {
                return Err(BackendError::Precondition(
                    "the password is wrong".to_owned(),
                ));
            }
            state.domain = Some(spec.domain.clone());
            Ok(format!("{}.{}", spec.computer, spec.domain))
        })
    }

    fn leave_domain(&self, domain: &str) -> Result<(), BackendError> {
        self.call("leave_domain", |state| {
            if state.domain.as_deref() == Some(domain) {
                state.domain = None;
            }
            Ok(())
        })
    }

    fn restore_volume(
        &self,
        spec: &VolumeSpec,
        vault: &str,
        backup: &str,
    ) -> Result<VolumeState, BackendError> {
        let there = self
            .lock()
            .vaults
            .get(vault)
            .is_some_and(|all| all.contains(backup));
        match there {
            true => self.create_volume(spec),
            false => Err(BackendError::NotFound(format!("backup {backup}"))),
        }
    }

    fn vault_create(&self, vault: &str) -> Result<(), BackendError> {
        self.call("vault_create", |state| {
            state.vaults.entry(vault.to_owned()).or_default();
            Ok(())
        })
    }

    fn vault_delete(&self, vault: &str) -> Result<(), BackendError> {
        self.call("vault_delete", |state| {
            state.vaults.remove(vault);
            Ok(())
        })
    }

    fn backup_take(&self, spec: &BackupSpec) -> Result<BackupState, BackendError> {
        self.call("backup_take", |state| {
            let vault = state.vaults.get_mut(&spec.vault);
            let vault = vault.ok_or_else(|| BackendError::NotFound(spec.vault.clone()))?;
            vault.insert(spec.name.clone());
            let used = state.volumes.get(&spec.volume).map(|volume| volume.used);
            let used = used.ok_or_else(|| BackendError::NotFound(spec.volume.clone()))?;
            Ok(BackupState {
                bytes: used,
                uploaded: used,
            })
        })
    }

    fn backup_delete(&self, vault: &str, backup: &str) -> Result<(), BackendError> {
        self.call("backup_delete", |state| {
            if let Some(vault) = state.vaults.get_mut(vault) {
                vault.remove(backup);
            }
            Ok(())
        })
    }

    fn point(&self) -> Point {
        Point(self.lock().point + 1)
    }

    fn reached(&self, point: Point) -> bool {
        self.lock().durable >= point.0
    }

    fn publish(&self, publication: Arc<Publication>) -> Result<(), BackendError> {
        self.call("publish", |state| {
            state
                .published
                .get_or_insert_with(ServingState::default)
                .take_in(&publication);
            for (key, text) in &publication.annotations {
                if let Some(volume) = state.volumes.get_mut(&**key) {
                    volume.annotation = Arc::clone(text);
                }
            }
            state.last = Some(publication);
            state.publications += 1;
            Ok(())
        })
    }
}
