//! Rules for vaults and backups.

use super::names;
use crate::model::{Backup, BackupVault, State};
use crate::mutation::{DescriptionChange, NewBackup, NewBackupVault};
use crate::name::{BackupName, Name, Surface};
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;

fn busy(noun: &str, id: &str, state: State) -> Result<(), Refusal> {
    match state {
        State::Ready | State::Error => Ok(()),
        state => Err(Refusal::new(
            Status::Aborted,
            "RESOURCE_BUSY",
            format!(
                "{noun} {id} is {}; try again when it is not",
                state.as_str()
            ),
        )),
    }
}

/// Returns a vault to be made, with this identifier, or the refusal; `bucket` is true if the server
/// has one.
pub fn create_vault(
    view: &View,
    name: &Name,
    new: &NewBackupVault,
    (id, bucket): (u64, bool),
    now: Stamp,
) -> Result<BackupVault, Refusal> {
    names::check(&name.place, &name.id)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if view.backup_vault(name).is_some() {
        return Err(super::names::taken("backup vault", &name.id));
    }
    if !bucket {
        return Err(Refusal::new(
            Status::FailedPrecondition,
            "NO_BACKUP_BUCKET",
            "this server has no bucket for backups: start it with --backup-bucket, or take snapshots (…/snapshots), or \
             replicate the volume (…/replications)",
        ));
    }
    Ok(BackupVault {
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

/// Returns the vault with another description.
pub fn update_vault(
    vault: &BackupVault,
    change: &DescriptionChange,
) -> Result<BackupVault, Refusal> {
    let mut next = vault.clone();
    next.revision += 1;
    let (description, labels) = (&mut next.description, &mut next.labels);
    names::describe(description, labels, &mut next.extra, change)?;
    Ok(next)
}

/// Checks that a vault can be deleted.
pub fn delete_vault(view: &View, vault: &BackupVault) -> Result<(), Refusal> {
    let id = &vault.name.id;
    busy("backup vault", id, vault.state)?;
    match view.backups_in(&vault.name).next() {
        None => Ok(()),
        Some(backup) => Err(Refusal::new(
            Status::FailedPrecondition,
            "BACKUP_VAULT_NOT_EMPTY",
            format!(
                "backup vault {id} has backups, such as {}; delete them first",
                backup.name.id
            ),
        )),
    }
}

/// Returns a backup to be made, or the refusal.
pub fn create(
    view: &View,
    name: &BackupName,
    new: &NewBackup,
    id: u64,
    now: Stamp,
) -> Result<Backup, Refusal> {
    names::check(&name.vault.place, &name.id)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    let field = |refusal: Refusal, field: &'static str| Err(refusal.field(field));
    let missing = |message: String| Refusal::new(Status::NotFound, "NOT_FOUND", message);
    let Some(vault) = view.backup_vault(&name.vault) else {
        return Err(missing(format!(
            "there is no backup vault {} in {}",
            name.vault.id, name.vault.place
        )));
    };
    busy("backup vault", &vault.name.id, vault.state)?;
    if view.backup(name).is_some() {
        return Err(super::names::taken("backup", &name.id));
    }
    let source = view.volume(&new.source);
    let Some(source) = source.filter(|of| of.name.surface == Surface::Netapp) else {
        let refusal = missing(format!("there is no volume {}", new.source));
        return field(refusal, "sourceVolume");
    };
    source.idle()?;
    if let Some(snapshot) = &new.snapshot {
        let found = view.snapshot(&source.name.snapshot(snapshot));
        if found.is_none_or(|snapshot| snapshot.state != State::Ready) {
            let refusal = missing(format!(
                "volume {} has no snapshot {snapshot}",
                source.name.id
            ));
            return field(refusal, "sourceSnapshot");
        }
    }
    Ok(Backup {
        id,
        name: name.clone(),
        revision: 1,
        state: State::Creating,
        state_details: String::new(),
        created: now,
        source: source.name.clone(),
        source_id: source.id,
        snapshot: new.snapshot.as_deref().map(Into::into),
        bytes: 0,
        uploaded: 0,
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    })
}

/// Returns the backup with another description.
pub fn update(backup: &Backup, change: &DescriptionChange) -> Result<Backup, Refusal> {
    let mut next = backup.clone();
    next.revision += 1;
    let (description, labels) = (&mut next.description, &mut next.labels);
    names::describe(description, labels, &mut next.extra, change)?;
    Ok(next)
}

/// Checks that a backup can be deleted: it is not being made, deleted or restored.
pub fn delete(view: &View, backup: &Backup) -> Result<(), Refusal> {
    let id = &backup.name.id;
    busy("backup", id, backup.state)?;
    let restoring = view.volumes.values().find(|volume| {
        volume.state == State::Creating && volume.restore_of.as_ref() == Some(&backup.name)
    });
    match restoring {
        None => Ok(()),
        Some(volume) => Err(Refusal::new(
            Status::FailedPrecondition,
            "BACKUP_IN_USE",
            format!(
                "backup {id} is being restored into volume {}",
                volume.name.id
            ),
        )),
    }
}

/// Checks that a volume of `capacity_gib` can be made out of a backup.
pub fn restore(view: &View, name: &BackupName, capacity_gib: u64) -> Result<(), Refusal> {
    let field = |refusal: Refusal| Err(refusal.field("restoreParameters.sourceBackup"));
    let Some(backup) = view
        .backup(name)
        .filter(|backup| backup.state == State::Ready)
    else {
        let message = format!("there is no backup {name} to restore");
        return field(Refusal::new(Status::NotFound, "BACKUP_NOT_FOUND", message));
    };
    let needed = backup.bytes.div_ceil(1 << 30);
    if needed > capacity_gib {
        let message = format!(
            "backup {} has {needed} GiB, more than the {capacity_gib} GiB of the volume",
            name.id
        );
        let refusal = Refusal::new(Status::InvalidArgument, "VOLUME_TOO_SMALL", message);
        return Err(refusal.field("capacityGib"));
    }
    Ok(())
}
