//! Names of resources, as the HTTP surfaces spell them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The scope of names: `projects/{project}/locations/{location}`. Any project and location are
/// accepted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocationName {
    /// The bare id of the project.
    pub project: Arc<str>,
    /// The bare id of the location.
    pub location: Arc<str>,
}

impl LocationName {
    /// Creates a place of these two ids.
    pub fn new(project: &str, location: &str) -> LocationName {
        LocationName {
            project: project.into(),
            location: location.into(),
        }
    }

    /// Returns the place of the resources that the first start creates.
    pub fn local() -> LocationName {
        LocationName::new("weir", "local")
    }

    /// Returns the name of a pool or an operation in this place.
    pub fn name(&self, id: &str) -> Name {
        Name {
            place: self.clone(),
            id: id.into(),
        }
    }

    /// Returns the name of a volume of NetApp Volumes in this place.
    pub fn volume(&self, id: &str) -> VolumeName {
        self.volume_name(Surface::Netapp, id)
    }

    /// Returns the name of a Filestore instance in this place.
    pub fn instance(&self, id: &str) -> VolumeName {
        self.volume_name(Surface::Filestore, id)
    }

    /// Returns the name of a volume in this place, by the surface that it was created through.
    pub fn volume_name(&self, surface: Surface, id: &str) -> VolumeName {
        VolumeName {
            surface,
            place: self.clone(),
            id: id.into(),
        }
    }
}

impl fmt::Display for LocationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "projects/{}/locations/{}", self.project, self.location)
    }
}

/// Name of a pool or operation within a [`LocationName`]; the map that it is a key of determines
/// the kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name {
    /// The project and location.
    pub place: LocationName,
    /// Bare id: the last part of the full name.
    pub id: Arc<str>,
}

impl Name {
    /// Returns the full name: `projects/p/locations/l/{collection}/{id}`.
    pub fn full(&self, collection: Collection) -> String {
        format!("{}/{}/{}", self.place, collection.as_str(), self.id)
    }
}

/// Collections of a [`LocationName`] beside its volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Collection {
    /// Storage pools: `…/storagePools`.
    Pools,
    /// Long-running operations: `…/operations`.
    Operations,
    /// Domains of Active Directory: `…/activeDirectories`.
    ActiveDirectories,
    /// Vaults of backups: `…/backupVaults`.
    BackupVaults,
    /// Policies of backups: `…/backupPolicies`.
    BackupPolicies,
}

impl Collection {
    /// Returns its spelling in a full name.
    pub fn as_str(self) -> &'static str {
        match self {
            Collection::Pools => "storagePools",
            Collection::Operations => "operations",
            Collection::ActiveDirectories => "activeDirectories",
            Collection::BackupVaults => "backupVaults",
            Collection::BackupPolicies => "backupPolicies",
        }
    }
}

/// The API that a volume was created through. It determines the scope of its name and its
/// presentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Surface {
    /// NetApp Volumes, and ONTAP's interface: a volume.
    Netapp,
    /// Filestore: an instance with its one share.
    Filestore,
}

impl Surface {
    /// Both surfaces.
    pub const ALL: [Surface; 2] = [Surface::Netapp, Surface::Filestore];

    /// Returns the collection of its volumes, as spelled in a full name.
    pub fn collection(self) -> &'static str {
        match self {
            Surface::Netapp => "volumes",
            Surface::Filestore => "instances",
        }
    }

    /// Returns its word for a volume.
    pub fn noun(self) -> &'static str {
        match self {
            Surface::Netapp => "volume",
            Surface::Filestore => "instance",
        }
    }
}

/// Name of a volume, `projects/p/locations/l/volumes/v` or `…/instances/i`: unique in the catalog.
/// A volume and an instance may have the same id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeName {
    /// The API that it was created through.
    pub surface: Surface,
    /// The project and location.
    pub place: LocationName,
    /// Bare id: the last part of the full name.
    pub id: Arc<str>,
}

impl VolumeName {
    /// Returns the name of a snapshot of this volume.
    pub fn snapshot(&self, id: &str) -> SnapshotName {
        SnapshotName {
            parent: self.clone(),
            id: id.into(),
        }
    }

    /// Returns the name of a quota rule of this volume.
    pub fn quota_rule(&self, id: &str) -> QuotaRuleName {
        QuotaRuleName {
            volume: self.clone(),
            id: id.into(),
        }
    }

    /// Parses a full name.
    pub fn parse(full: &str) -> Option<VolumeName> {
        let parts: Vec<&str> = full.split('/').collect();
        let ["projects", project, "locations", location, collection, id] = parts[..] else {
            return None;
        };
        let is = |surface: &Surface| surface.collection() == collection;
        let surface = Surface::ALL.into_iter().find(is)?;
        Some(LocationName::new(project, location).volume_name(surface, id))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}",
            self.place,
            self.surface.collection(),
            self.id
        )
    }
}

/// Name of a snapshot: `…/volumes/{v}/snapshots/{s}` or `…/instances/{i}/snapshots/{s}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SnapshotName {
    /// The snapshot's volume.
    pub parent: VolumeName,
    /// Last part of the name: also the snapshot's name in the engine, and in `.snapshot`.
    pub id: Arc<str>,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/snapshots/{}", self.parent, self.id)
    }
}

/// Name of a quota rule: `…/volumes/{v}/quotaRules/{q}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QuotaRuleName {
    /// The rule's volume.
    pub volume: VolumeName,
    /// Bare id: the last part of the full name.
    pub id: Arc<str>,
}

impl fmt::Display for QuotaRuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/quotaRules/{}", self.volume, self.id)
    }
}

/// Name of a relationship in NetApp Volumes, as seen from one of its volumes:
/// `…/volumes/{v}/replications/{r}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicationName {
    /// The volume from which it is seen.
    pub volume: VolumeName,
    /// Bare id: the last part of the full name.
    pub id: Arc<str>,
}

impl fmt::Display for ReplicationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/replications/{}", self.volume, self.id)
    }
}

/// Bare id of the vault of each place that has the backups of Filestore's instances. It is no id
/// that a client may give a vault, and no vault that clients see.
pub const FILESTORE_VAULT: &str = ".filestore";

/// Name of a backup: `…/backupVaults/{v}/backups/{b}`, or of an instance's `…/backups/{b}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BackupName {
    /// The vault that holds it.
    pub vault: Name,
    /// Bare id: the last part of the full name, and the backup's name in the bucket.
    pub id: Arc<str>,
}

impl BackupName {
    /// Returns the name of an instance's backup in a place.
    pub fn of_instance(place: &LocationName, id: &str) -> BackupName {
        BackupName {
            vault: place.name(FILESTORE_VAULT),
            id: id.into(),
        }
    }

    /// Returns the API that has it.
    pub fn surface(&self) -> Surface {
        if &*self.vault.id == FILESTORE_VAULT {
            Surface::Filestore
        } else {
            Surface::Netapp
        }
    }

    /// Parses the full name of an instance's backup.
    pub fn parse_of_instance(full: &str) -> Option<BackupName> {
        let parts: Vec<&str> = full.split('/').collect();
        let ["projects", project, "locations", location, "backups", id] = parts[..] else {
            return None;
        };
        Some(BackupName::of_instance(
            &LocationName::new(project, location),
            id,
        ))
    }

    /// Parses the full name of a volume's backup.
    pub fn parse(full: &str) -> Option<BackupName> {
        let parts: Vec<&str> = full.split('/').collect();
        let [
            "projects",
            project,
            "locations",
            location,
            "backupVaults",
            vault,
            "backups",
            id,
        ] = parts[..]
        else {
            return None;
        };
        let name = BackupName {
            vault: LocationName::new(project, location).name(vault),
            id: id.into(),
        };
        (name.surface() == Surface::Netapp).then_some(name)
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.surface() {
            Surface::Filestore => write!(f, "{}/backups/{}", self.vault.place, self.id),
            Surface::Netapp => {
                let vault = self.vault.full(Collection::BackupVaults);
                write!(f, "{vault}/backups/{}", self.id)
            }
        }
    }
}

/// Name of a possible target of an operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// The name of a storage pool.
    Pool(Name),
    /// The name of a volume.
    Volume(VolumeName),
    /// A snapshot of a volume.
    Snapshot(SnapshotName),
    /// The name of a quota rule of a volume.
    QuotaRule(QuotaRuleName),
    /// The name of a replication.
    Replication(ReplicationName),
    /// The name of a domain of Active Directory.
    ActiveDirectory(Name),
    /// The name of a vault of backups.
    BackupVault(Name),
    /// The name of a policy of backups.
    BackupPolicy(Name),
    /// The name of a backup.
    Backup(BackupName),
    /// A relationship by its destination, a policy, a schedule, a peer or an option, in ONTAP's
    /// terms.
    Relation(Arc<str>),
}

impl Target {
    /// Returns the project and location that it is in.
    pub fn place(&self) -> LocationName {
        match self {
            Target::Pool(name)
            | Target::ActiveDirectory(name)
            | Target::BackupVault(name)
            | Target::BackupPolicy(name) => name.place.clone(),
            Target::Backup(name) => name.vault.place.clone(),
            Target::Volume(name) => name.place.clone(),
            Target::Snapshot(name) => name.parent.place.clone(),
            Target::QuotaRule(name) => name.volume.place.clone(),
            Target::Replication(name) => name.volume.place.clone(),
            Target::Relation(_) => LocationName::local(),
        }
    }

    /// Returns the API's word for the target: `volume`.
    pub fn noun(&self) -> &'static str {
        match self {
            Target::Pool(_) => "storage pool",
            Target::ActiveDirectory(_) => "Active Directory",
            Target::BackupVault(_) => "backup vault",
            Target::BackupPolicy(_) => "backup policy",
            Target::Backup(_) => "backup",
            Target::Volume(name) => name.surface.noun(),
            Target::Snapshot(_) => "snapshot",
            Target::QuotaRule(_) => "quota rule",
            Target::Replication(_) | Target::Relation(_) => "replication",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pool(name) => f.write_str(&name.full(Collection::Pools)),
            Target::ActiveDirectory(name) => f.write_str(&name.full(Collection::ActiveDirectories)),
            Target::BackupVault(name) => f.write_str(&name.full(Collection::BackupVaults)),
            Target::BackupPolicy(name) => f.write_str(&name.full(Collection::BackupPolicies)),
            Target::Backup(name) => name.fmt(f),
            Target::Volume(name) => name.fmt(f),
            Target::Snapshot(name) => name.fmt(f),
            Target::QuotaRule(name) => name.fmt(f),
            Target::Replication(name) => name.fmt(f),
            Target::Relation(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_of_both_apis_have_names_of_their_own() {
        let of_volume = "projects/p/locations/l/backupVaults/v/backups/b";
        let of_instance = "projects/p/locations/l/backups/b";
        let name = BackupName::parse(of_volume).unwrap();
        assert_eq!(
            (name.surface(), name.to_string()),
            (Surface::Netapp, of_volume.to_owned())
        );
        assert_eq!(BackupName::parse_of_instance(of_volume), None);
        let name = BackupName::parse_of_instance(of_instance).unwrap();
        assert_eq!(
            (name.surface(), name.to_string()),
            (Surface::Filestore, of_instance.to_owned())
        );
        for hidden in [
            of_instance.to_owned(),
            of_volume.replace("/v/", "/.filestore/"),
        ] {
            assert_eq!(BackupName::parse(&hidden), None, "{hidden}");
        }
    }
}
