//! What replication needs of volumes, for those who would take it away.
//!
//! A relationship is lost with either of its volumes, and with the newest snapshot that both have: after that everything
//! would have to be copied again. Neither goes while there is the relationship, whoever asks and in whatever words: the
//! control plane asks here before its mutations ([`Control::set_guard`]), ONTAP's commands before that, since their users
//! know other words for it ([`Hindrance::in_ontaps_words`]).

use std::sync::Arc;

use weir_control::{Mutation, Name, Refusal, SnapshotName, SnapshotOf, Status, View, Within};
use weir_replica::manager::Use;
use weir_replica::model::Path;

use super::Replication;

/// Why a volume or a snapshot has to stay as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// The volume is an end of a relationship.
    Volume {
        /// The volume.
        path: Path,
        /// Which end.
        used: Use,
        /// The relationship.
        destination: Path,
    },
    /// The snapshot is the newest that both ends have.
    Snapshot {
        /// The volume.
        path: Path,
        /// The snapshot.
        name: String,
    },
    /// Going back would delete that snapshot.
    Newer {
        /// The volume.
        path: Path,
        /// The snapshot to go back to.
        to: String,
        /// Those that would be deleted.
        newer: Vec<String>,
    },
    /// Nothing but transfers changes it.
    Protected {
        /// The volume.
        path: Path,
    },
    /// Its path would mean two volumes.
    Name {
        /// The path.
        path: Path,
        /// Where the other one is.
        location: String,
    },
}

impl Hindrance {
    /// As ONTAP says it.
    pub fn in_ontaps_words(&self, doing: &str) -> String {
        match self {
            Hindrance::Volume {
                path,
                used: Use::Source,
                ..
            } => format!(
                "Volume \"{}\" in Vserver \"{}\" is the source endpoint of one or more SnapMirror relationships. \
                 Before you delete the volume, you must release the source endpoints of the SnapMirror relationships \
                 using \"snapmirror release\". To display the destinations to be used in the \"snapmirror release\" \
                 commands, use the \"snapmirror list-destinations -source-path {path}\" command.",
                path.volume, path.vserver
            ),
            Hindrance::Volume { path, .. } => format!(
                "Volume \"{}\" in Vserver \"{}\" is the destination endpoint of one or more SnapMirror relationships. \
                 Before you delete the volume, you must delete the SnapMirror relationships using \"snapmirror delete\".",
                path.volume, path.vserver
            ),
            Hindrance::Snapshot { path, name } => format!(
                "Failed to {doing} snapshot \"{name}\" of volume \"{}\" on Vserver \"{}\". Reason: This Snapshot copy is \
                 currently used as a reference Snapshot copy by one or more SnapMirror relationships. Deleting the \
                 Snapshot copy can cause future SnapMirror operations to fail.",
                path.volume, path.vserver
            ),
            Hindrance::Newer { to, newer, .. } => format!(
                "Failed to promote Snapshot copy \"{to}\" because one or more newer Snapshot copies are currently used as \
                 a reference Snapshot copy for data protection operations: {}.",
                newer.join(", ")
            ),
            Hindrance::Protected { path } => format!(
                "This operation is not permitted on data-protection volume \"{path}\". Use \"snapmirror break\" first."
            ),
            Hindrance::Name { path, location } => format!(
                "Volume name \"{}\" is in use in location \"{location}\" by one or more SnapMirror relationships.",
                path.volume
            ),
        }
    }

    /// As the control plane says it.
    fn refusal(&self) -> Refusal {
        let (reason, message) = match self {
            Hindrance::Volume {
                path,
                used,
                destination,
            } => (
                "VOLUME_REPLICATED",
                format!(
                    "volume {} is the {} of the replication into {destination}; delete the replication first",
                    path.volume,
                    used.word()
                ),
            ),
            Hindrance::Snapshot { path, name } => (
                "SNAPSHOT_REPLICATED",
                format!(
                    "snapshot {name} of volume {} is the newest that both volumes of a replication have; without it \
                     everything would have to be copied again",
                    path.volume
                ),
            ),
            Hindrance::Newer { path, to, newer } => (
                "SNAPSHOT_REPLICATED",
                format!(
                    "going back to snapshot {to} would delete what a replication of volume {} needs: {}",
                    path.volume,
                    newer.join(", ")
                ),
            ),
            Hindrance::Protected { path } => (
                "VOLUME_READ_ONLY",
                format!(
                    "volume {} is the destination of a replication; stop the replication first",
                    path.volume
                ),
            ),
            Hindrance::Name { path, location } => (
                "VOLUME_NAME_REPLICATED",
                format!(
                    "a volume {} of location {location} is replicated, and the two would have one path, {path}; take \
                     another name",
                    path.volume
                ),
            ),
        };
        Refusal::new(Status::FailedPrecondition, reason, message)
    }
}

fn path_of(name: &Name) -> Path {
    Path::local(&name.place.project, &name.id)
}

impl Replication {
    /// Has the control plane ask from now on.
    pub(super) fn stand_guard(self: &Arc<Self>) {
        let service = Arc::downgrade(self);
        self.control
            .set_guard(Arc::new(move |mutation, view| match service.upgrade() {
                Some(service) => match service.hindrance(mutation, view) {
                    Some(why) => Err(why.refusal()),
                    None => Ok(()),
                },
                None => Ok(()),
            }));
    }

    /// What speaks against a mutation.
    pub(super) fn hindrance(&self, mutation: &Mutation, view: &View) -> Option<Hindrance> {
        match mutation {
            Mutation::CreateVolume(name, _) => self.another(name, view),
            Mutation::DeleteVolume { name, .. } => {
                let path = path_of(name);
                let (used, destination) = self.manager.lock().volume_in_use(&path)?;
                Some(Hindrance::Volume {
                    path,
                    used,
                    destination,
                })
            }
            Mutation::RenameSnapshot { name, .. } | Mutation::DeleteSnapshot(name) => {
                self.reference(name, view)
            }
            Mutation::RevertVolume { name, snapshot } => self.ahead(name, snapshot, view),
            _ => None,
        }
    }

    fn another(&self, name: &Name, view: &View) -> Option<Hindrance> {
        let path = path_of(name);
        self.manager.lock().volume_in_use(&path)?;
        let within = Within {
            project: &path.vserver,
            location: "-",
            after: None,
        };
        let other = view.volumes(&within).find(|v| v.name.id == name.id)?;
        // The same name at the same place is the control plane's to refuse.
        let elsewhere = other.name != *name;
        elsewhere.then(|| Hindrance::Name {
            path,
            location: other.name.place.location.to_string(),
        })
    }

    fn reference(&self, name: &SnapshotName, view: &View) -> Option<Hindrance> {
        if name.of != SnapshotOf::Volume {
            return None;
        }
        let path = path_of(&name.parent);
        let needed = self.manager.lock().needed(&path);
        let volume = self.engine.volume(&view.volume(&name.parent)?.key)?;
        let name = name.id.to_string();
        let id = volume.snapshot(&name)?.identity;
        needed
            .contains(&id)
            .then_some(Hindrance::Snapshot { path, name })
    }

    fn ahead(&self, name: &Name, to: &str, view: &View) -> Option<Hindrance> {
        let path = path_of(name);
        let volume = self.engine.volume(&view.volume(name)?.key)?;
        if volume.protected() {
            return Some(Hindrance::Protected { path });
        }
        let needed = self.manager.lock().needed(&path);
        // Oldest first.
        let all = volume.snapshots();
        let behind = all.iter().skip_while(|s| s.name != to).skip(1);
        let newer: Vec<String> = behind
            .filter(|s| needed.contains(&s.identity))
            .map(|s| s.name.clone())
            .collect();
        (!newer.is_empty()).then(|| Hindrance::Newer {
            path,
            to: to.to_owned(),
            newer,
        })
    }
}
