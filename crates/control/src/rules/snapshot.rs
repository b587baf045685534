//! Snapshots: what may be taken, described anew, deleted, and reverted to.

use super::names;
use super::words::count;
use crate::model::{Snapshot, State};
use crate::mutation::{NewSnapshot, SnapshotChange};
use crate::name::{Name, SnapshotName, SnapshotOf};
use crate::refusal::{Refusal, Status};
use crate::stamp::Stamp;
use crate::view::View;

/// Snapshots of one volume at most, as NetApp Volumes has it.
const MAX_SNAPSHOTS: usize = 255;

/// A new snapshot, or why not. That its volume exists is the caller's to see.
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
        return Err(super::pool::taken("snapshot", &name.id));
    }
    if view.snapshots(name.of, &name.parent, None).count() >= MAX_SNAPSHOTS {
        return Err(Refusal::new(
            Status::ResourceExhausted,
            "TOO_MANY_SNAPSHOTS",
            format!(
                "{} has {MAX_SNAPSHOTS} snapshots, and no more fit; delete one",
                name.parent.id
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
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    })
}

/// The snapshot as changed: only what describes it can be.
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

/// Whether a volume or instance may be reverted to this snapshot.
pub fn revert(view: &View, name: &SnapshotName) -> Result<(), Refusal> {
    match view.snapshot(name) {
        Some(snapshot) if snapshot.state == State::Ready => Ok(()),
        Some(_) => Err(Refusal::new(
            Status::FailedPrecondition,
            "SNAPSHOT_NOT_READY",
            format!("snapshot {} is not ready", name.id),
        )),
        None => Err(Refusal::new(
            Status::NotFound,
            "NOT_FOUND",
            format!("there is no {name}"),
        )),
    }
}

/// Refuses to delete what has snapshots, unless they may go too.
pub fn none_left(view: &View, of: SnapshotOf, parent: &Name, force: bool) -> Result<(), Refusal> {
    let left = view.snapshots(of, parent, None).count();
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
