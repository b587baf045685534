//! Rules for taking, describing, deleting snapshots, and reverting to them.

use super::names;
use crate::figures::words::count;
use crate::model::{Snapshot, State, Volume};
use crate::mutation::{NewSnapshot, SnapshotChange};
use crate::name::{SnapshotName, VolumeName};
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;

/// Maximum number of snapshots of one volume: the engine's limit.
const MAX_SNAPSHOTS: usize = weir_volume::MAX_SNAPSHOTS;

/// Returns a new snapshot, or the refusal. The caller checks that its volume exists.
pub fn create(
    view: &View,
    name: &SnapshotName,
    new: &NewSnapshot,
    id: u64,
    now: Stamp,
) -> Result<Snapshot, Refusal> {
    names::check_snapshot(name)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if view.snapshot(name).is_some() {
        return Err(super::names::taken("snapshot", &name.id));
    }
    if view.snapshots(&name.parent, None).count() >= MAX_SNAPSHOTS {
        return Err(Refusal::new(
            Status::ResourceExhausted,
            "TOO_MANY_SNAPSHOTS",
            format!(
                "{} has {} snapshots, and no more fit; delete one",
                name.parent.id,
                count(MAX_SNAPSHOTS as u64)
            ),
        ));
    }
    Ok(Snapshot {
        id,
        name: name.clone(),
        revision: 1,
        state: State::Creating,
        state_details: String::new(),
        created: now,
        engine: None,
        schedule: new.schedule,
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    })
}

/// Returns the changed snapshot: only descriptive fields can change.
pub fn update(snapshot: &Snapshot, change: &SnapshotChange) -> Result<Snapshot, Refusal> {
    let mut next = snapshot.clone();
    next.revision += 1;
    if let Some(description) = &change.description {
        next.description.clone_from(description);
    }
    if let Some(labels) = &change.labels {
        next.labels.clone_from(labels);
    }
    names::merge(&mut next.extra, change.extra.clone());
    names::check_words(&next.description, &next.labels, &next.extra)?;
    Ok(next)
}

/// Returns the renamed snapshot, which no longer belongs to a schedule.
pub fn rename(view: &View, name: &SnapshotName, to: &str) -> Result<Snapshot, Refusal> {
    revert(view, name)?;
    let next = name.parent.snapshot(to);
    names::check_snapshot(&next)?;
    if view.snapshot(&next).is_some() {
        return Err(super::names::taken("snapshot", &next.id));
    }
    let Some(snapshot) = view.snapshot(name) else {
        return Err(missing(name));
    };
    let mut snapshot = Snapshot::clone(snapshot);
    snapshot.name = next;
    snapshot.revision += 1;
    snapshot.state = State::Updating;
    snapshot.schedule = None;
    Ok(snapshot)
}

/// Refuses changes that are impossible while a volume is being split from its origin.
pub fn whole(volume: &Volume) -> Result<(), Refusal> {
    if !volume.splitting {
        return Ok(());
    }
    Err(Refusal::new(
        Status::FailedPrecondition,
        "VOLUME_SPLITTING",
        format!(
            "volume {} is being split from the volume that it is a clone of; try again when that is done",
            volume.name.id
        ),
    ))
}

fn missing(name: &SnapshotName) -> Refusal {
    Refusal::new(
        Status::NotFound,
        "NOT_FOUND",
        format!("Resource '{name}' was not found"),
    )
}

/// Checks that a volume may be reverted to this snapshot.
pub fn revert(view: &View, name: &SnapshotName) -> Result<(), Refusal> {
    match view.snapshot(name) {
        Some(snapshot) if snapshot.state == State::Ready => Ok(()),
        Some(_) => Err(Refusal::new(
            Status::FailedPrecondition,
            "SNAPSHOT_NOT_READY",
            format!("snapshot {} is not ready", name.id),
        )),
        None => Err(missing(name)),
    }
}

/// Refuses to delete a volume with snapshots, unless `force`.
pub fn none_left(view: &View, parent: &VolumeName, force: bool) -> Result<(), Refusal> {
    let left = view.snapshots(parent, None).count();
    if force || left == 0 {
        return Ok(());
    }
    Err(Refusal::new(
        Status::FailedPrecondition,
        "HAS_SNAPSHOTS",
        format!(
            "{} has {} snapshots; delete them first, or delete it with force",
            parent.id,
            count(left as u64)
        ),
    )
    .with("snapshotCount", left))
}
