//! Names of resources, as the HTTP surfaces spell them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// `projects/{project}/locations/{location}`: where names are unique. Any project and location are accepted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The bare id of the project.
    pub project: Arc<str>,
    /// The bare id of the location.
    pub location: Arc<str>,
}

impl Place {
    /// A place of those two ids.
    pub fn new(project: &str, location: &str) -> Place {
        Place {
            project: project.into(),
            location: location.into(),
        }
    }

    /// The place that holds what the first start creates.
    pub fn local() -> Place {
        Place::new("weir", "local")
    }

    /// A name in this place.
    pub fn name(&self, id: &str) -> Name {
        Name {
            place: self.clone(),
            id: id.into(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "projects/{}/locations/{}", self.project, self.location)
    }
}

/// A pool, volume, instance or operation within a [`Place`]; which of these, the map says that it is a key of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name {
    /// The project and location.
    pub place: Place,
    /// The bare id: the last part of the full name.
    pub id: Arc<str>,
}

impl Name {
    /// The full name: `projects/p/locations/l/{collection}/{id}`.
    pub fn full(&self, collection: Collection) -> String {
        format!("{}/{}/{}", self.place, collection.as_str(), self.id)
    }

    /// The snapshot of this volume or instance.
    pub fn snapshot(&self, of: SnapshotOf, id: &str) -> SnapshotName {
        SnapshotName {
            of,
            parent: self.clone(),
            id: id.into(),
        }
    }
}

/// Collections of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Collection {
    /// Storage pools: `…/storagePools`.
    Pools,
    /// Volumes of NetApp Volumes: `…/volumes`.
    Volumes,
    /// Filestore's instances: `…/instances`.
    Instances,
    /// Long-running operations: `…/operations`.
    Operations,
}

impl Collection {
    /// As it is spelled in a full name.
    pub fn as_str(self) -> &'static str {
        match self {
            Collection::Pools => "storagePools",
            Collection::Volumes => "volumes",
            Collection::Instances => "instances",
            Collection::Operations => "operations",
        }
    }
}

/// What a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SnapshotOf {
    /// A volume of NetApp Volumes.
    Volume,
    /// An instance of Filestore.
    Instance,
}

impl SnapshotOf {
    /// The collection that holds the parent.
    pub fn collection(self) -> Collection {
        match self {
            SnapshotOf::Volume => Collection::Volumes,
            SnapshotOf::Instance => Collection::Instances,
        }
    }
}

/// The name of a snapshot: `…/volumes/{v}/snapshots/{s}` or `…/instances/{i}/snapshots/{s}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SnapshotName {
    /// Whether the parent is a volume or an instance.
    pub of: SnapshotOf,
    /// The volume or instance.
    pub parent: Name,
    /// The last part: also the snapshot's name in the engine, and in `.snapshot`.
    pub id: Arc<str>,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = self.parent.full(self.of.collection());
        write!(f, "{parent}/snapshots/{}", self.id)
    }
}

/// `…/volumes/{v}/replications/{r}`: what NetApp Volumes calls a relationship, as seen from one of its volumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicationName {
    /// The volume from which it is seen.
    pub volume: Name,
    /// The bare id: the last part of the full name.
    pub id: Arc<str>,
}

impl fmt::Display for ReplicationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let volume = self.volume.full(Collection::Volumes);
        write!(f, "{volume}/replications/{}", self.id)
    }
}

/// The name of anything that an operation can have as its target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// The name of a storage pool.
    Pool(Name),
    /// The name of a volume.
    Volume(Name),
    /// The name of a Filestore instance.
    Instance(Name),
    /// A snapshot of either.
    Snapshot(SnapshotName),
    /// The name of a replication.
    Replication(ReplicationName),
    /// A relationship by its destination, a policy, a schedule, a peer or an option, as ONTAP calls it.
    Relation(Arc<str>),
}

impl Target {
    /// The project and location that it is in.
    pub fn place(&self) -> Place {
        match self {
            Target::Pool(name) | Target::Volume(name) | Target::Instance(name) => {
                name.place.clone()
            }
            Target::Snapshot(name) => name.parent.place.clone(),
            Target::Replication(name) => name.volume.place.clone(),
            Target::Relation(_) => Place::local(),
        }
    }

    /// What the API calls such a thing: `volume`.
    pub fn noun(&self) -> &'static str {
        match self {
            Target::Pool(_) => "storage pool",
            Target::Volume(_) => "volume",
            Target::Instance(_) => "instance",
            Target::Snapshot(_) => "snapshot",
            Target::Replication(_) | Target::Relation(_) => "replication",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pool(name) => f.write_str(&name.full(Collection::Pools)),
            Target::Volume(name) => f.write_str(&name.full(Collection::Volumes)),
            Target::Instance(name) => f.write_str(&name.full(Collection::Instances)),
            Target::Snapshot(name) => name.fmt(f),
            Target::Replication(name) => name.fmt(f),
            Target::Relation(name) => f.write_str(name),
        }
    }
}
