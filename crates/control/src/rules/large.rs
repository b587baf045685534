//! Rules of volumes that are constituents of a large volume: what large volumes do not have is
//! refused by its name.

use crate::model::{Protocol, Volume};
use crate::mutation::{Mutation, NewVolume, VolumeChange};
use crate::name::VolumeName;
use crate::refusal::{Refusal, Status};
use crate::view::View;

/// Refuses a change that large volumes do not have.
///
/// # Errors
/// FAILED_PRECONDITION, naming it.
pub fn check(view: &View, mutation: &Mutation) -> Result<(), Refusal> {
    let (name, what) = match mutation {
        Mutation::CreateVolume(name, new) => return check_new(view, name, new),
        Mutation::UpdateVolume(name, change) => match changed(change) {
            Some(what) => (name, what),
            None => return Ok(()),
        },
        Mutation::RenameVolume { name, .. } => (name, "another name"),
        Mutation::RevertVolume { name, .. } => (name, "snapshots"),
        Mutation::SplitVolume(name) => (name, "clones"),
        Mutation::RestoreFiles(name, _) => (name, "backups"),
        Mutation::CreateSnapshot(name, _) => (&name.parent, "snapshots"),
        Mutation::CreateQuotaRule(name, _) => (&name.volume, "quotas"),
        Mutation::CreateBackup(_, new) => (&new.source, "backups"),
        _ => return Ok(()),
    };
    match view
        .volume(name)
        .is_some_and(|volume| is_constituent(volume))
    {
        true => Err(refused(name, what)),
        false => Ok(()),
    }
}

fn is_constituent(volume: &Volume) -> bool {
    volume.constituent().is_some()
}

fn check_new(view: &View, name: &VolumeName, new: &NewVolume) -> Result<(), Refusal> {
    let of_large = |of: &VolumeName| view.volume(of).is_some_and(|v| is_constituent(v));
    if let Some(of) = new.clone_of.as_ref().filter(|of| of_large(&of.parent)) {
        return Err(refused(&of.parent, "clones"));
    }
    let crate::model::Presentation::Netapp(pooled) = &new.presentation else {
        return Ok(());
    };
    if pooled.constituent.is_none() {
        return Ok(());
    }
    let schedules = |policy: &serde_json::Value| {
        policy.get("enabled").and_then(serde_json::Value::as_bool) == Some(true)
    };
    let wants = [
        (new.protocols != [Protocol::Nfsv3], "protocols but NFSV3"),
        (new.clone_of.is_some(), "clones"),
        (new.restore_of.is_some() || new.backup.is_some(), "backups"),
        (
            new.snapshot_policy.as_ref().is_some_and(schedules),
            "snapshots",
        ),
        (new.protection, "replication"),
    ];
    match wants.into_iter().find(|(wants, _)| *wants) {
        Some((_, what)) => Err(refused(name, what)),
        None => Ok(()),
    }
}

/// Returns what a change asks for that large volumes do not have.
fn changed(change: &VolumeChange) -> Option<&'static str> {
    let schedules = |policy: &serde_json::Value| {
        policy.get("enabled").and_then(serde_json::Value::as_bool) == Some(true)
    };
    let other = |protocols: &Vec<Protocol>| *protocols != [Protocol::Nfsv3];
    let wants = [
        (
            change.protocols.as_ref().is_some_and(other),
            "protocols but NFSV3",
        ),
        (change.backup.is_some(), "backups"),
        (
            change.snapshot_policy.as_ref().is_some_and(schedules),
            "snapshots",
        ),
        (change.pool.is_some(), "a change of their pools"),
    ];
    let found = wants.into_iter().find(|(wants, _)| *wants);
    found.map(|(_, what)| what)
}

fn refused(name: &VolumeName, what: &str) -> Refusal {
    Refusal::new(
        Status::FailedPrecondition,
        "NOT_IN_LARGE_VOLUMES",
        format!(
            "large volumes of a cluster have no {what} yet; {} is one",
            name.id
        ),
    )
}
