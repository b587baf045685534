//! The whole intended state, as one immutable value.
//!
//! Reads come from here and never wait. A change creates a new view that shares all but O(log n)
//! nodes with the previous one (persistent red-black trees). So neither ten thousand volumes nor a
//! reader that keeps an old view make a change costly. Frequently used indexes are updated with
//! each change: the export at a path, and the usage of a pool.

mod edit;

use crate::figures::{self, PoolFigures, PoolUse};
use crate::levels::Levels;
use crate::model::{
    ActiveDirectory, Backup, BackupPolicy, BackupVault, Operation, Pool, Resource, Snapshot, Volume,
};
use crate::name::{
    BackupName, FILESTORE_VAULT, LocationName, Name, SnapshotName, Surface, Target, VolumeName,
};
use crate::policies::{self, NamedPolicy, PolicyName};
use rpds::RedBlackTreeMapSync;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use weir_base::network::AddressBlock;
use weir_relations::manager::Relations;
use weir_relations::model::Path;

type Map<K, V> = RedBlackTreeMapSync<K, V>;

/// All resources at one moment, ordered by name.
#[derive(Clone, Debug)]
pub struct View {
    /// Number of changes.
    pub revision: u64,
    /// Number of changes that the data path sees.
    pub generation: u64,
    /// Service levels in force.
    pub levels: Arc<Levels>,
    pub(crate) pools: Map<Name, Arc<Pool>>,
    pub(crate) volumes: Map<VolumeName, Arc<Volume>>,
    pub(crate) snapshots: Map<SnapshotName, Arc<Snapshot>>,
    pub(crate) operations: Map<Name, Arc<Operation>>,
    /// Volumes of NetApp Volumes by project, id and location, because replication paths have no
    /// location.
    pub(crate) ids: Map<[Arc<str>; 3], ()>,
    /// Addresses of the server that instances get for their own.
    pub instance_addresses: Option<AddressBlock>,
    /// Volumes by export path, without the leading slash.
    pub(crate) exports: Map<Arc<str>, VolumeName>,
    /// Instances by their own address.
    pub(crate) addresses: Map<IpAddr, VolumeName>,
    pub(crate) uses: Map<Name, PoolUse>,
    /// GiB of all storage pools and instances: the sum of the promises.
    pub(crate) provisioned_gib: u64,
    /// GiB of all volumes and instances.
    pub(crate) volumes_gib: u64,
    pub(crate) members: Map<(Name, Arc<str>), ()>,
    /// Operations that have not ended.
    pub(crate) pending: Map<Name, ()>,
    /// Volumes in the state ERROR.
    pub(crate) failed: Map<VolumeName, ()>,
    /// Volumes that move to another aggregate.
    pub(crate) moving: Map<VolumeName, ()>,
    /// Relationships, with their policies, schedules, peers and throttles.
    pub relations: Relations,
    /// Policies that volumes refer to.
    pub(crate) policies: Map<PolicyName, Arc<NamedPolicy>>,
    pub(crate) directories: Map<Name, Arc<ActiveDirectory>>,
    pub(crate) vaults: Map<Name, Arc<BackupVault>>,
    pub(crate) backups: Map<BackupName, Arc<Backup>>,
    pub(crate) backup_policies: Map<Name, Arc<BackupPolicy>>,
}

/// A part of a collection: a place, where the location may be `-` for all, and the name to begin
/// after.
#[derive(Clone, Debug)]
pub struct Within<'a> {
    /// The bare id of the project.
    pub project: &'a str,
    /// Id of the location; `-` means all.
    pub location: &'a str,
    /// Name to begin after (of the previous page).
    pub after: Option<&'a Name>,
}

impl<'a> Within<'a> {
    /// Returns all of a place.
    pub fn place(place: &'a LocationName) -> Within<'a> {
        Within {
            project: &place.project,
            location: &place.location,
            after: None,
        }
    }

    /// Returns all of a project, in any location.
    pub fn project(project: &'a str) -> Within<'a> {
        Within {
            project,
            location: "-",
            after: None,
        }
    }
}

/// Returns the part of a map, whose keys `key` makes from names. `within` returns true if a key is
/// in the place, or in its project in any location.
fn part_of<'v, K: Ord, V, F, G>(
    map: &'v Map<K, Arc<V>>,
    part: &Within<'_>,
    key: F,
    within: G,
) -> impl Iterator<Item = &'v Arc<V>> + use<'v, K, V, F, G>
where
    F: Fn(Name) -> K,
    G: Fn(&K, &LocationName, bool) -> bool,
{
    let all = part.location == "-";
    let first = LocationName::new(part.project, if all { "" } else { part.location }).name("");
    let place = first.place.clone();
    let from = match part.after {
        Some(after) if *after >= first => Bound::Excluded(key(after.clone())),
        _ => Bound::Included(key(first)),
    };
    map.range((from, Bound::Unbounded))
        .take_while(move |(key, _)| within(key, &place, all))
        .map(|(_, value)| value)
}

fn is_in(of: &LocationName, place: &LocationName, all: bool) -> bool {
    of.project == place.project && (all || of.location == place.location)
}

fn named_in(name: &Name, place: &LocationName, all: bool) -> bool {
    is_in(&name.place, place, all)
}

impl View {
    /// Creates an empty view.
    pub fn empty(levels: Arc<Levels>) -> View {
        View {
            revision: 0,
            generation: 0,
            levels,
            pools: Map::default(),
            volumes: Map::default(),
            snapshots: Map::default(),
            operations: Map::default(),
            ids: Map::default(),
            instance_addresses: None,
            exports: Map::default(),
            addresses: Map::default(),
            uses: Map::default(),
            provisioned_gib: 0,
            volumes_gib: 0,
            members: Map::default(),
            pending: Map::default(),
            failed: Map::default(),
            moving: Map::default(),
            relations: Relations::default(),
            policies: policies::builtin()
                .into_iter()
                .map(|policy| (policy.name.clone(), Arc::new(policy)))
                .collect(),
            directories: Map::default(),
            vaults: Map::default(),
            backups: Map::default(),
            backup_policies: Map::default(),
        }
    }

    /// Returns the storage pool with this name.
    pub fn pool(&self, name: &Name) -> Option<&Arc<Pool>> {
        self.pools.get(name)
    }

    /// Returns the volume with this name.
    pub fn volume(&self, name: &VolumeName) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    /// Returns the volume that a target is, or is a snapshot or a quota rule of.
    pub fn volume_of(&self, target: &Target) -> Option<&Arc<Volume>> {
        match target {
            Target::Volume(name) => self.volume(name),
            Target::Snapshot(name) => self.volume(&name.parent),
            Target::QuotaRule(name) => self.volume(&name.volume),
            Target::Pool(_)
            | Target::Replication(_)
            | Target::ActiveDirectory(_)
            | Target::BackupVault(_)
            | Target::BackupPolicy(_)
            | Target::Backup(_)
            | Target::Relation(_) => None,
        }
    }

    /// Returns the Active Directory domain with this name.
    pub fn active_directory(&self, name: &Name) -> Option<&Arc<ActiveDirectory>> {
        self.directories.get(name)
    }

    /// Returns the Active Directory domain of a pool's SMB volumes.
    pub fn active_directory_of(&self, pool: &Pool) -> Option<&Arc<ActiveDirectory>> {
        let id = pool.active_directory.as_ref()?;
        self.active_directory(&pool.name.place.name(id))
    }

    /// Returns all Active Directory domains of all places, in the order of their names.
    pub fn every_active_directory(&self) -> impl Iterator<Item = &Arc<ActiveDirectory>> {
        self.directories.values()
    }

    /// Returns the vault with this name.
    pub fn backup_vault(&self, name: &Name) -> Option<&Arc<BackupVault>> {
        self.vaults.get(name)
    }

    /// Returns the backup with this name.
    pub fn backup(&self, name: &BackupName) -> Option<&Arc<Backup>> {
        self.backups.get(name)
    }

    /// Returns the policy of backups with this name.
    pub fn backup_policy(&self, name: &Name) -> Option<&Arc<BackupPolicy>> {
        self.backup_policies.get(name)
    }

    /// Returns the volumes that have this policy of backups.
    pub fn volumes_backed_up_by<'v>(
        &'v self,
        policy: &'v Name,
    ) -> impl Iterator<Item = &'v Arc<Volume>> {
        let has = move |volume: &&Arc<Volume>| {
            let config = volume.backup.as_ref();
            volume.name.place == policy.place
                && config.is_some_and(|config| config.policies.contains(&policy.id))
        };
        self.every_volume(Surface::Netapp).filter(has)
    }

    /// Returns the backups of a vault, in the order of their names.
    pub fn backups_in(&self, vault: &Name) -> impl Iterator<Item = &Arc<Backup>> {
        let first = BackupName {
            vault: vault.clone(),
            id: "".into(),
        };
        let from = self.backups.range(first..).map(|(_, backup)| backup);
        from.take_while(move |backup| backup.name.vault == *vault)
    }

    /// Returns the backups of instances, in the order of their names.
    pub fn instance_backups(&self, part: &Within<'_>) -> impl Iterator<Item = &Arc<Backup>> {
        let key = |name: Name| BackupName::of_instance(&name.place, &name.id);
        let within = |name: &BackupName, place: &LocationName, all: bool| {
            is_in(&name.vault.place, place, all)
        };
        part_of(&self.backups, part, key, within)
            .filter(|backup| backup.name.surface() == Surface::Filestore)
    }

    /// Returns the backups of all vaults, in the order of their names.
    pub fn every_backup(&self) -> impl Iterator<Item = &Arc<Backup>> {
        self.backups.values()
    }

    /// Returns the snapshot with this name.
    pub fn snapshot(&self, name: &SnapshotName) -> Option<&Arc<Snapshot>> {
        self.snapshots.get(name)
    }

    /// Returns the operation with this name.
    pub fn operation(&self, name: &Name) -> Option<&Arc<Operation>> {
        self.operations.get(name)
    }

    /// Returns the policy with this name.
    pub fn policy(&self, name: &PolicyName) -> Option<&Arc<NamedPolicy>> {
        self.policies.get(name)
    }

    /// Returns all policies, by kind, project and bare id.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<NamedPolicy>> {
        self.policies.values()
    }

    /// Returns all storage pools of all places, in the order of their names.
    pub fn every_pool(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }

    /// Returns all operations of all places, in the order of their names.
    pub fn every_operation(&self) -> impl Iterator<Item = &Arc<Operation>> {
        self.operations.values()
    }

    /// Returns the present state of an operation's target.
    pub fn resource(&self, target: &Target) -> Option<Resource> {
        match target {
            Target::Pool(name) => self.pool(name).cloned().map(Resource::Pool),
            Target::Volume(name) => self.volume(name).cloned().map(Resource::Volume),
            Target::Snapshot(name) => self.snapshot(name).cloned().map(Resource::Snapshot),
            Target::QuotaRule(name) => {
                let volume = self.volume(&name.volume)?;
                let rule = volume.quotas.rule(&name.id)?;
                Some(Resource::QuotaRule(name.clone(), rule.clone()))
            }
            Target::ActiveDirectory(name) => {
                let found = self.active_directory(name).cloned();
                found.map(Resource::ActiveDirectory)
            }
            Target::BackupVault(name) => {
                let found = self.backup_vault(name).cloned();
                found.map(Resource::BackupVault)
            }
            Target::Backup(name) => self.backup(name).cloned().map(Resource::Backup),
            Target::BackupPolicy(name) => {
                let found = self.backup_policy(name).cloned();
                found.map(Resource::BackupPolicy)
            }
            Target::Replication(_) | Target::Relation(_) => None,
        }
    }

    /// Returns vaults, in the order of their names, without those of instances.
    pub fn backup_vaults(&self, part: &Within<'_>) -> impl Iterator<Item = &Arc<BackupVault>> {
        part_of(&self.vaults, part, |name| name, named_in)
            .filter(|vault| &*vault.name.id != FILESTORE_VAULT)
    }

    /// Returns policies of backups, in the order of their names.
    pub fn backup_policies(&self, part: &Within<'_>) -> impl Iterator<Item = &Arc<BackupPolicy>> {
        part_of(&self.backup_policies, part, |name| name, named_in)
    }

    /// Returns Active Directory domains, in the order of their names.
    pub fn active_directories(
        &self,
        part: &Within<'_>,
    ) -> impl Iterator<Item = &Arc<ActiveDirectory>> {
        part_of(&self.directories, part, |name| name, named_in)
    }

    /// Returns storage pools, in the order of their names.
    pub fn pools(&self, part: &Within<'_>) -> impl Iterator<Item = &Arc<Pool>> {
        part_of(&self.pools, part, |name| name, named_in)
    }

    /// Returns volumes of a surface, in the order of their names.
    pub fn volumes(
        &self,
        surface: Surface,
        part: &Within<'_>,
    ) -> impl Iterator<Item = &Arc<Volume>> {
        let key = move |name: Name| name.place.volume_name(surface, &name.id);
        let within = move |name: &VolumeName, place: &LocationName, all: bool| {
            name.surface == surface && is_in(&name.place, place, all)
        };
        part_of(&self.volumes, part, key, within)
    }

    /// Returns operations, in the order of their names.
    pub fn operations(&self, part: &Within<'_>) -> impl Iterator<Item = &Arc<Operation>> {
        part_of(&self.operations, part, |name| name, named_in)
    }

    /// Returns snapshots of a volume, in the order of their names. `after` is the bare id to begin
    /// after.
    pub fn snapshots(
        &self,
        parent: &VolumeName,
        after: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Snapshot>> {
        let first = parent.snapshot(after.unwrap_or(""));
        let parent = parent.clone();
        let from = match after {
            Some(_) => Bound::Excluded(first),
            None => Bound::Included(first),
        };
        self.snapshots
            .range((from, Bound::Unbounded))
            .take_while(move |(name, _)| name.parent == parent)
            .map(|(_, snapshot)| snapshot)
    }

    /// Returns a pool's volumes, in the order of their names.
    pub fn volumes_of<'v>(&'v self, pool: &'v Name) -> impl Iterator<Item = &'v Arc<Volume>> {
        self.members
            .range((
                Bound::Included((pool.clone(), Arc::from(""))),
                Bound::Unbounded,
            ))
            .take_while(move |((of, _), ())| of == pool)
            .filter_map(|((of, id), ())| self.volumes.get(&of.place.volume(id)))
    }

    /// Returns all volumes of a surface in all places, in the order of their names.
    pub fn every_volume(&self, surface: Surface) -> impl Iterator<Item = &Arc<Volume>> {
        let first = LocationName::new("", "").volume_name(surface, "");
        self.volumes
            .range((Bound::Included(first), Bound::Unbounded))
            .map(|(_, volume)| volume)
            .take_while(move |volume| volume.name.surface == surface)
    }

    /// Returns true if a volume has this key in the engine.
    pub fn has_key(&self, key: &str) -> bool {
        self.volumes.values().any(|volume| *volume.key == *key)
    }

    /// Returns the volumes that move to another aggregate.
    pub fn moving(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.moving.keys().filter_map(|name| self.volume(name))
    }

    /// Returns the volumes of NetApp Volumes with this id in a project, in any location.
    pub fn namesakes<'v>(
        &'v self,
        project: &str,
        id: &str,
    ) -> impl Iterator<Item = &'v Arc<Volume>> + use<'v> {
        let (project, id): (Arc<str>, Arc<str>) = (project.into(), id.into());
        let first = [Arc::clone(&project), Arc::clone(&id), "".into()];
        self.ids
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(move |([of, name, _], ())| *of == project && *name == id)
            .filter_map(|([project, id, location], ())| {
                self.volume(&LocationName::new(project, location).volume(id))
            })
    }

    /// Returns the local volume that a path names, in any location, as paths have none. `Err`: the
    /// first two of several.
    ///
    /// # Errors
    /// If two volumes in the project have that name.
    pub fn volume_at(&self, path: &Path) -> Result<Option<&Arc<Volume>>, [&Arc<Volume>; 2]> {
        let local = path.cluster.is_empty();
        let mut named = self
            .namesakes(&path.vserver, &path.volume)
            .filter(|_| local);
        match (named.next(), named.next()) {
            (Some(one), Some(other)) => Err([one, other]),
            (found, _) => Ok(found),
        }
    }

    /// Returns the number of volumes, everywhere.
    pub fn volume_count(&self) -> usize {
        self.volumes.size()
    }

    /// Returns the GiB of all storage pools and instances: the sum of the promises.
    pub fn provisioned_gib(&self) -> u64 {
        self.provisioned_gib
    }

    /// Returns a pool's usage by its volumes.
    pub fn pool_use(&self, name: &Name) -> PoolUse {
        self.uses.get(name).copied().unwrap_or_default()
    }

    /// Returns a pool's derived values as its users see them: total and available throughput,
    /// allocated capacity, number of volumes.
    pub fn pool_figures(&self, pool: &Pool) -> PoolFigures {
        figures::pool_figures(&self.levels, pool, self.pool_use(&pool.name))
    }

    /// Returns the pool that a volume is in; volumes of a tier are in none.
    pub fn pool_of(&self, volume: &Volume) -> Option<&Arc<Pool>> {
        self.pool(&volume.pool()?)
    }

    /// Returns a volume's own limit, in bytes a second; `None` if only the pool limits it, or
    /// nothing.
    pub fn volume_throughput(&self, volume: &Volume) -> Option<u64> {
        figures::volume_throughput(&self.levels, self.pool_of(volume)?, volume)
    }

    /// Returns the volume exported at a path, which is written without its leading slash.
    pub fn export(&self, path: &str) -> Option<&VolumeName> {
        self.exports.get(path)
    }

    /// Returns the instances that have an address of the server for their own, by it.
    pub fn addressed(&self) -> impl Iterator<Item = (IpAddr, &VolumeName)> {
        self.addresses
            .iter()
            .map(|(address, name)| (*address, name))
    }

    /// Returns true if no instance has this address of the server for its own.
    pub fn is_address_free(&self, address: IpAddr) -> bool {
        !self.addresses.contains_key(&address)
    }

    /// Returns true if nothing is exported at this path, above it or below it.
    pub fn is_path_free(&self, path: &str) -> bool {
        let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        if above.chain([path]).any(|path| self.export(path).is_some()) {
            return false;
        }
        let folder: Arc<str> = format!("{path}/").into();
        let from = (Bound::Included(Arc::clone(&folder)), Bound::Unbounded);
        let next = self.exports.range(from).next();
        next.is_none_or(|(path, _)| !path.starts_with(&*folder))
    }
}
