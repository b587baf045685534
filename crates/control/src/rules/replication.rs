//! Rules for relationships: requests of users, and their dependence on volumes.
//!
//! A relationship is lost with either of its volumes, and with the newest snapshot that both have:
//! after that everything would have to be copied again. Neither may be deleted while the
//! relationship exists, whichever client asks and through whichever API. That is checked in the
//! transaction that would delete it. A relationship is created in the transaction that checks that
//! its volumes exist.

use super::names;
use crate::model::{Extra, State, Volume};
use crate::mutation::{MoveChange, Mutation};
use crate::name::{SnapshotName, Surface, VolumeName};
use crate::refusal::{Refusal, Status};
use crate::view::View;
use std::sync::Arc;
use weir_relations::manager::{
    self, ChangeSet, Edit, Entry, Preconditions, Reason, Use, Verb, VerbRefusal,
};
use weir_relations::model::{MirrorState, Path};

/// Returns the changes of rows by a verb. `now` is in seconds since 1970.
pub fn change(
    view: &View,
    verb: &Verb,
    preconditions: &Preconditions,
    now: i64,
) -> Result<Vec<Edit>, Refusal> {
    if let Verb::Create { note, .. } | Verb::Modify { note, .. } = verb
        && let Some(note) = note
    {
        let description = note.description.as_deref().unwrap_or_default();
        names::check_words(description, &note.labels, &Extra::new())?;
    }
    let mut next = ChangeSet::to(&view.relations);
    manager::change(&mut next, verb, preconditions, now)?;
    let edits = next.into_edits();
    let ends = matches!(verb, Verb::Create { .. }) || verb.queues();
    for edit in edits.iter().filter(|_| ends) {
        if let Edit::Relationship(entry) = edit {
            // The volumes existed when the preconditions were gathered.
            stays(view, "source", &entry.source)?;
            stays(view, "destination", &entry.destination)?;
        }
    }
    Ok(edits)
}

/// Returns the volume of this node with this name in a project.
///
/// # Errors
/// There is none, or one in each of several locations.
pub fn local_volume(view: &View, project: &str, volume: &str) -> Result<Arc<Volume>, VerbRefusal> {
    match view.volume_at(&Path::local(project, volume)) {
        Ok(Some(found)) => Ok(Arc::clone(found)),
        Ok(None) => Err(VerbRefusal::new(Reason::NotFound, "entry doesn't exist")),
        Err([one, other]) => Err(VerbRefusal::new(
            Reason::Invalid,
            format!(
                "{project}:{volume} is in more than one location: {} and {}",
                one.name.place.location, other.name.place.location
            ),
        )),
    }
}

/// Refuses a local volume that does not exist any more, is being deleted or reverted, or is
/// offline. A revert would delete data that a transfer may need meanwhile.
fn stays(view: &View, end: &str, path: &Path) -> Result<(), VerbRefusal> {
    if !path.cluster.is_empty() {
        return Ok(());
    }
    let volume = view.volume_at(path).ok().flatten();
    match volume.map(|v| (v.state, v.assigned.offline)) {
        None | Some((State::Deleting, _)) => {}
        Some((State::Restoring, _)) => return Err(going_back(path)),
        Some((_, true)) => return Err(VerbRefusal::new(Reason::State, offline(path))),
        Some(_) => return Ok(()),
    }
    let text = format!("Failed to find {end} volume \"{path}\": entry doesn't exist");
    Err(VerbRefusal::new(Reason::NotFound, text))
}

/// Returns the reason why a volume that is offline takes part in no transfer.
pub fn offline(path: &Path) -> String {
    format!("Volume \"{path}\" is offline.")
}

fn going_back(path: &Path) -> VerbRefusal {
    let text = format!("Volume \"{path}\" is being reverted to a snapshot.");
    VerbRefusal::new(Reason::Busy, text)
}

/// Returns true if a due transfer has to wait, because one of its ends is being reverted.
pub fn waits(view: &View, entry: &Entry) -> bool {
    [&entry.source, &entry.destination].into_iter().any(|path| {
        let at = view.volume_at(path).ok().flatten();
        at.is_some_and(|volume| volume.state == State::Restoring)
    })
}

/// Reason why a volume or a snapshot must not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicationHold {
    /// The volume is an end of a relationship.
    Volume {
        /// The volume that would change.
        path: Path,
        /// The end that it is.
        used: Use,
        /// The relationship, by its destination.
        destination: Path,
    },
    /// The snapshot is the newest common one.
    Snapshot {
        /// The volume of the snapshot.
        path: Path,
        /// The name of the snapshot.
        name: String,
    },
    /// The revert would delete that snapshot.
    Newer {
        /// The volume to be reverted.
        path: Path,
        /// The snapshot to revert to.
        to: String,
        /// The snapshots that would be deleted.
        newer: Vec<String>,
    },
    /// A transfer from or to the volume is in progress.
    Transfer {
        /// The volume to be reverted.
        path: Path,
        /// The relationship, by its destination.
        destination: Path,
    },
    /// Only transfers may change the volume.
    Protected {
        /// The volume that would change.
        path: Path,
    },
    /// Its path would be ambiguous.
    Name {
        /// The path that both would have.
        path: Path,
        /// Location of the other volume.
        location: String,
    },
}

impl ReplicationHold {
    /// Formats it in ONTAP's words.
    pub fn in_ontaps_words(&self, doing: &str) -> String {
        match self {
            ReplicationHold::Volume {
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
            ReplicationHold::Volume { path, .. } => format!(
                "Volume \"{}\" in Vserver \"{}\" is the destination endpoint of one or more SnapMirror relationships. \
                 Before you delete the volume, you must delete the SnapMirror relationships using \"snapmirror delete\".",
                path.volume, path.vserver
            ),
            ReplicationHold::Snapshot { path, name } => format!(
                "Failed to {doing} snapshot \"{name}\" of volume \"{}\" on Vserver \"{}\". Reason: This Snapshot copy is \
                 currently used as a reference Snapshot copy by one or more SnapMirror relationships. Deleting the \
                 Snapshot copy can cause future SnapMirror operations to fail.",
                path.volume, path.vserver
            ),
            ReplicationHold::Newer { to, newer, .. } => format!(
                "Failed to promote Snapshot copy \"{to}\" because one or more newer Snapshot copies are currently used as \
                 a reference Snapshot copy for data protection operations: {}.",
                newer.join(", ")
            ),
            ReplicationHold::Transfer { destination, .. } => format!(
                "Failed to promote Snapshot copy because a SnapMirror transfer to \"{destination}\" is in progress."
            ),
            ReplicationHold::Protected { path } => format!(
                "This operation is not permitted on data-protection volume \"{path}\". Use \"snapmirror break\" first."
            ),
            ReplicationHold::Name { path, location } => format!(
                "Volume name \"{}\" is in use in location \"{location}\" by one or more SnapMirror relationships.",
                path.volume
            ),
        }
    }

    /// Converts it to a refusal of the control plane.
    pub(crate) fn refusal(&self) -> Refusal {
        let (reason, message) = match self {
            ReplicationHold::Volume {
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
            ReplicationHold::Snapshot { path, name } => (
                "SNAPSHOT_REPLICATED",
                format!(
                    "snapshot {name} of volume {} is the newest that both volumes of a replication have; without it \
                     everything would have to be copied again",
                    path.volume
                ),
            ),
            ReplicationHold::Newer { path, to, newer } => (
                "SNAPSHOT_REPLICATED",
                format!(
                    "going back to snapshot {to} would delete what a replication of volume {} needs: {}",
                    path.volume,
                    newer.join(", ")
                ),
            ),
            ReplicationHold::Transfer { path, destination } => (
                "TRANSFER_IN_PROGRESS",
                format!(
                    "volume {} is an end of the replication into {destination}, which is being transferred; try again when \
                     that has ended",
                    path.volume
                ),
            ),
            ReplicationHold::Protected { path } => (
                "VOLUME_READ_ONLY",
                format!(
                    "volume {} is the destination of a replication; stop the replication first",
                    path.volume
                ),
            ),
            ReplicationHold::Name { path, location } => (
                "VOLUME_NAME_REPLICATED",
                format!(
                    "a volume {} of location {location} is replicated, and the two would have one path, {path}; take \
                     another name",
                    path.volume
                ),
            ),
        };
        let status = match self {
            // Temporary.
            ReplicationHold::Transfer { .. } => Status::Aborted,
            _ => Status::FailedPrecondition,
        };
        Refusal::new(status, reason, message)
    }
}

/// Returns the path of a volume in replication, as in ONTAP: only volumes of NetApp Volumes have
/// one.
fn path_of(name: &VolumeName) -> Option<Path> {
    let known = name.surface == Surface::Netapp;
    known.then(|| Path::local(&name.place.project, &name.id))
}

/// Returns the reason against a mutation, if any.
pub fn hold(view: &View, mutation: &Mutation) -> Option<ReplicationHold> {
    match mutation {
        Mutation::CreateVolume(name, _) => another(view, name),
        Mutation::DeleteVolume { name, .. }
        | Mutation::RenameVolume { name, .. }
        | Mutation::MoveVolume(name, MoveChange::Start { .. }) => {
            let path = path_of(name)?;
            view.volume(name)?;
            let (used, destination) = view.relations.volume_in_use(&path)?;
            Some(ReplicationHold::Volume {
                path,
                used,
                destination,
            })
        }
        Mutation::RenameSnapshot { name, .. } | Mutation::DeleteSnapshot(name) => {
            reference(view, name)
        }
        Mutation::RevertVolume { name, snapshot } => ahead(view, name, snapshot),
        _ => None,
    }
}

fn another(view: &View, name: &VolumeName) -> Option<ReplicationHold> {
    let path = path_of(name)?;
    view.relations.volume_in_use(&path)?;
    // A name that exists at the same place is refused as taken.
    let mut namesakes = view.namesakes(&path.vserver, &path.volume);
    let other = namesakes.find(|volume| volume.name != *name)?;
    let location = other.name.place.location.to_string();
    Some(ReplicationHold::Name { path, location })
}

fn reference(view: &View, name: &SnapshotName) -> Option<ReplicationHold> {
    let path = path_of(&name.parent)?;
    let id = view.snapshot(name)?.engine?.identity;
    let name = name.id.to_string();
    let needed = view.relations.needed(&path).contains(&id);
    needed.then_some(ReplicationHold::Snapshot { path, name })
}

/// Returns true if only transfers change a volume: it is the destination of a relationship that is
/// not broken off.
pub fn is_copy(view: &View, name: &VolumeName) -> bool {
    let entry = path_of(name).and_then(|path| view.relations.entry(&path).cloned());
    entry.is_some_and(|entry| entry.state != MirrorState::BrokenOff)
}

/// Returns the destination of a transfer, in progress or queued, from or to a volume. The snapshots
/// that it takes at its source are needed before they are recorded.
fn transferring(view: &View, path: &Path) -> Option<Path> {
    let own = view.relations.entry(path).into_iter();
    let mut all = own.chain(view.relations.copying(path));
    let busy = all.find(|entry| entry.pending.is_some())?;
    Some(busy.destination.clone())
}

/// Returns the reason against reverting to a snapshot: only transfers change a destination, and
/// snapshots that a replication needs are not deleted.
fn ahead(view: &View, name: &VolumeName, to: &str) -> Option<ReplicationHold> {
    let path = path_of(name)?;
    view.volume(name)?;
    if is_copy(view, name) {
        return Some(ReplicationHold::Protected { path });
    }
    if let Some(destination) = transferring(view, &path) {
        return Some(ReplicationHold::Transfer { path, destination });
    }
    let to_snapshot = view.snapshot(&name.snapshot(to))?;
    let back = to_snapshot.engine?.number;
    let needed = view.relations.needed(&path);
    let newer: Vec<String> = view
        .snapshots(name, None)
        .filter(|s| {
            let engine = s.engine;
            engine.is_some_and(|e| e.number > back && needed.contains(&e.identity))
        })
        .map(|s| s.name.id.to_string())
        .collect();
    (!newer.is_empty()).then(|| ReplicationHold::Newer {
        path,
        to: to.to_owned(),
        newer,
    })
}
