//! Everything that is intended, as one immutable value.
//!
//! Reads come from here and never wait. A change makes a new view that shares all but O(log n) nodes with the one
//! before (persistent red-black trees), so that neither ten thousand volumes nor a reader that keeps an old view make a
//! change dear. What is asked for often is kept up with each change: what is exported at a path, and how much of a pool
//! is taken.

mod edit;

use crate::figures::{self, PoolFigures, PoolUse};
use crate::levels::Levels;
use crate::model::{ActiveDirectory, Operation, Pool, Resource, Snapshot, Volume};
use crate::name::{Name, Place, SnapshotName, Surface, Target, VolumeName};
use crate::named::{self, NamedPolicy, PolicyName};
use rpds::RedBlackTreeMapSync;
use std::ops::Bound;
use std::sync::Arc;
use weir_relations::manager::Relations;
use weir_relations::model::Path;

type Map<K, V> = RedBlackTreeMapSync<K, V>;

/// All resources at one moment, ordered by name.
#[derive(Clone, Debug)]
pub struct View {
    /// Counts up with every change.
    pub revision: u64,
    /// Counts up with every change that the data path is to see.
    pub generation: u64,
    /// The service levels in force.
    pub levels: Arc<Levels>,
    pub(crate) pools: Map<Name, Arc<Pool>>,
    pub(crate) volumes: Map<VolumeName, Arc<Volume>>,
    pub(crate) snapshots: Map<SnapshotName, Arc<Snapshot>>,
    pub(crate) operations: Map<Name, Arc<Operation>>,
    /// Volumes of NetApp Volumes by project, id and location: what paths of replication have no location in.
    pub(crate) ids: Map<[Arc<str>; 3], ()>,
    /// By export path, without the leading slash.
    pub(crate) exports: Map<Arc<str>, VolumeName>,
    pub(crate) uses: Map<Name, PoolUse>,
    /// GiB of all storage pools and instances: what users were promised.
    pub(crate) provisioned_gib: u64,
    /// GiB of all volumes and instances.
    pub(crate) volumes_gib: u64,
    pub(crate) members: Map<(Name, Arc<str>), ()>,
    /// Operations that have not ended.
    pub(crate) pending: Map<Name, ()>,
    /// Volumes in the state ERROR.
    pub(crate) failed: Map<VolumeName, ()>,
    /// Relationships, with their policies, schedules, peers and throttles.
    pub relations: Relations,
    /// Policies that volumes refer to.
    pub(crate) policies: Map<PolicyName, Arc<NamedPolicy>>,
    pub(crate) directories: Map<Name, Arc<ActiveDirectory>>,
}

/// Which part of a collection is wanted: a place, where the location may be `-` for all, and after which name to begin.
#[derive(Clone, Debug)]
pub struct Within<'a> {
    /// The bare id of the project.
    pub project: &'a str,
    /// The location's id; `-` is all of them.
    pub location: &'a str,
    /// Begin behind this name (of the page before).
    pub after: Option<&'a Name>,
}

impl<'a> Within<'a> {
    /// All of a place.
    pub fn place(place: &'a Place) -> Within<'a> {
        Within {
            project: &place.project,
            location: &place.location,
            after: None,
        }
    }

    /// All of a project, in whatever location.
    pub fn project(project: &'a str) -> Within<'a> {
        Within {
            project,
            location: "-",
            after: None,
        }
    }
}

/// What such a part has of a map, whose keys `key` makes of names. `within` says whether a key is of the place, or of its
/// project in whatever location.
fn part_of<'v, K: Ord, V, F, G>(
    map: &'v Map<K, Arc<V>>,
    part: &Within<'_>,
    key: F,
    within: G,
) -> impl Iterator<Item = &'v Arc<V>> + use<'v, K, V, F, G>
where
    F: Fn(Name) -> K,
    G: Fn(&K, &Place, bool) -> bool,
{
    let all = part.location == "-";
    let first = Place::new(part.project, if all { "" } else { part.location }).name("");
    let place = first.place.clone();
    let from = match part.after {
        Some(after) if *after >= first => Bound::Excluded(key(after.clone())),
        _ => Bound::Included(key(first)),
    };
    map.range((from, Bound::Unbounded))
        .take_while(move |(key, _)| within(key, &place, all))
        .map(|(_, value)| value)
}

fn is_in(of: &Place, place: &Place, all: bool) -> bool {
    of.project == place.project && (all || of.location == place.location)
}

fn named_in(name: &Name, place: &Place, all: bool) -> bool {
    is_in(&name.place, place, all)
}

impl View {
    /// With nothing in it.
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
            exports: Map::default(),
            uses: Map::default(),
            provisioned_gib: 0,
            volumes_gib: 0,
            members: Map::default(),
            pending: Map::default(),
            failed: Map::default(),
            relations: Relations::default(),
            policies: named::builtin()
                .into_iter()
                .map(|policy| (policy.name.clone(), Arc::new(policy)))
                .collect(),
            directories: Map::default(),
        }
    }

    /// The storage pool of this name.
    pub fn pool(&self, name: &Name) -> Option<&Arc<Pool>> {
        self.pools.get(name)
    }

    /// The volume of this name.
    pub fn volume(&self, name: &VolumeName) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    /// The volume that a target is, or is a snapshot of.
    pub fn volume_of(&self, target: &Target) -> Option<&Arc<Volume>> {
        match target {
            Target::Volume(name) => self.volume(name),
            Target::Snapshot(name) => self.volume(&name.parent),
            Target::Pool(_)
            | Target::Replication(_)
            | Target::ActiveDirectory(_)
            | Target::Relation(_) => None,
        }
    }

    /// The domain of Active Directory of this name.
    pub fn active_directory(&self, name: &Name) -> Option<&Arc<ActiveDirectory>> {
        self.directories.get(name)
    }

    /// The domain of Active Directory of a pool's volumes with SMB.
    pub fn active_directory_of(&self, pool: &Pool) -> Option<&Arc<ActiveDirectory>> {
        let id = pool.active_directory.as_ref()?;
        self.active_directory(&pool.name.place.name(id))
    }

    /// All domains of Active Directory of all places, in the order of their names.
    pub fn every_active_directory(&self) -> impl Iterator<Item = &Arc<ActiveDirectory>> {
        self.directories.values()
    }

    /// The snapshot of this name.
    pub fn snapshot(&self, name: &SnapshotName) -> Option<&Arc<Snapshot>> {
        self.snapshots.get(name)
    }

    /// The operation of this name.
    pub fn operation(&self, name: &Name) -> Option<&Arc<Operation>> {
        self.operations.get(name)
    }

    /// The policy of this name.
    pub fn policy(&self, name: &PolicyName) -> Option<&Arc<NamedPolicy>> {
        self.policies.get(name)
    }

    /// All policies, by kind, project and bare id.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<NamedPolicy>> {
        self.policies.values()
    }

    /// All storage pools of all places, in the order of their names.
    pub fn every_pool(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }

    /// All operations of all places, in the order of their names.
    pub fn every_operation(&self) -> impl Iterator<Item = &Arc<Operation>> {
        self.operations.values()
    }

    /// Whatever an operation's target is by now.
    pub fn resource(&self, target: &Target) -> Option<Resource> {
        match target {
            Target::Pool(name) => self.pool(name).cloned().map(Resource::Pool),
            Target::Volume(name) => self.volume(name).cloned().map(Resource::Volume),
            Target::Snapshot(name) => self.snapshot(name).cloned().map(Resource::Snapshot),
            Target::ActiveDirectory(name) => {
                let found = self.active_directory(name).cloned();
                found.map(Resource::ActiveDirectory)
            }
            Target::Replication(_) | Target::Relation(_) => None,
        }
    }

    /// Domains of Active Directory, in the order of their names.
    pub fn active_directories(
        &self,
        part: &Within<'_>,
    ) -> impl Iterator<Item = &Arc<ActiveDirectory>> {
        part_of(&self.directories, part, |name| name, named_in)
    }

    /// Storage pools, in the order of their names.
    pub fn pools(&self, part: &Within<'_>) -> impl Iterator<Item = &Arc<Pool>> {
        part_of(&self.pools, part, |name| name, named_in)
    }

    /// Volumes of a surface, in the order of their names.
    pub fn volumes(
        &self,
        surface: Surface,
        part: &Within<'_>,
    ) -> impl Iterator<Item = &Arc<Volume>> {
        let key = move |name: Name| name.place.of(surface, &name.id);
        let within = move |name: &VolumeName, place: &Place, all: bool| {
            name.surface == surface && is_in(&name.place, place, all)
        };
        part_of(&self.volumes, part, key, within)
    }

    /// Operations, in the order of their names.
    pub fn operations(&self, part: &Within<'_>) -> impl Iterator<Item = &Arc<Operation>> {
        part_of(&self.operations, part, |name| name, named_in)
    }

    /// Snapshots of a volume, in the order of their names. `after` is the bare id to begin behind.
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

    /// A pool's volumes, in the order of their names.
    pub fn volumes_of<'v>(&'v self, pool: &'v Name) -> impl Iterator<Item = &'v Arc<Volume>> {
        self.members
            .range((
                Bound::Included((pool.clone(), Arc::from(""))),
                Bound::Unbounded,
            ))
            .take_while(move |((of, _), ())| of == pool)
            .filter_map(|((of, id), ())| self.volumes.get(&of.place.volume(id)))
    }

    /// All volumes of a surface in all places, in the order of their names.
    pub fn every_volume(&self, surface: Surface) -> impl Iterator<Item = &Arc<Volume>> {
        let first = Place::new("", "").of(surface, "");
        self.volumes
            .range((Bound::Included(first), Bound::Unbounded))
            .map(|(_, volume)| volume)
            .take_while(move |volume| volume.name.surface == surface)
    }

    /// The volumes of NetApp Volumes that have this id in a project, in whatever location.
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
                self.volume(&Place::new(project, location).volume(id))
            })
    }

    /// The volume of this node that a path names: in whatever location, as paths have none. `Err`: those of several.
    ///
    /// # Errors
    /// There are two volumes of that name in the project.
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

    /// How many volumes there are, everywhere.
    pub fn volume_count(&self) -> usize {
        self.volumes.size()
    }

    /// GiB of all storage pools and instances: what users were promised.
    pub fn provisioned_gib(&self) -> u64 {
        self.provisioned_gib
    }

    /// What a pool's volumes take of it.
    pub fn pool_use(&self, name: &Name) -> PoolUse {
        self.uses.get(name).copied().unwrap_or_default()
    }

    /// A pool's figures as its users see them: total and available throughput, allocated capacity, number of volumes.
    pub fn pool_figures(&self, pool: &Pool) -> PoolFigures {
        figures::pool_figures(&self.levels, pool, self.pool_use(&pool.name))
    }

    /// The pool that a volume is in; those of a tier are in none.
    pub fn pool_of(&self, volume: &Volume) -> Option<&Arc<Pool>> {
        self.pool(&volume.pool()?)
    }

    /// What a volume may do, in bytes a second; `None` where only the pool binds, or nothing.
    pub fn volume_throughput(&self, volume: &Volume) -> Option<u64> {
        figures::volume_throughput(&self.levels, self.pool_of(volume)?, volume)
    }

    /// What is exported at a path, which is written without its leading slash.
    pub fn export(&self, path: &str) -> Option<&VolumeName> {
        self.exports.get(path)
    }

    /// Whether nothing is exported at this path, above it or below it.
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
