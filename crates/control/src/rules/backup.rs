//! Rules for vaults and backups.

use super::{names, trees};
use crate::model::{Backup, BackupConfig, BackupPolicy, BackupVault, Period, State, Volume};
use crate::mutation::{
    BackupPolicyChange, DescriptionChange, NewBackup, NewBackupPolicy, NewBackupVault, RestoreFiles,
};
use crate::name::{BackupName, FILESTORE_VAULT, LocationName, Name, Surface};
use crate::policy::{Rule, Rules};
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;
use std::collections::BTreeSet;
use weir_base::limits::api::{MAX_RESTORED_FILES, MAX_SCHEDULED_BACKUPS};
use weir_relations::schedule::{Numbers, Schedule};

/// Smallest number of daily backups that a policy keeps, as in NetApp Volumes.
const MIN_DAILY: u32 = 2;

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
    new_vault(view, name, new, (id, bucket), now)
}

/// Returns a vault to be made as [`create_vault`] does, whatever its bare id.
pub fn new_vault(
    view: &View,
    name: &Name,
    new: &NewBackupVault,
    (id, bucket): (u64, bool),
    now: Stamp,
) -> Result<BackupVault, Refusal> {
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
    let mut volumes = view.every_volume(Surface::Netapp);
    let user = volumes.find(|volume| {
        let config = volume
            .backup
            .as_ref()
            .and_then(|config| config.vault.as_ref());
        volume.name.place == vault.name.place && config == Some(id)
    });
    if let Some(volume) = user {
        return Err(Refusal::new(
            Status::FailedPrecondition,
            "BACKUP_VAULT_IN_USE",
            format!(
                "backup vault {id} is for the scheduled backups of volume {}; change its backupConfig first",
                volume.name.id
            ),
        ));
    }
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

/// Returns the field of a backup that names what it is of.
fn source_field(surface: Surface) -> &'static str {
    match surface {
        Surface::Netapp => "sourceVolume",
        Surface::Filestore => "sourceInstance",
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
    let surface = name.surface();
    // The vault of instances is made with its first backup: those behind it wait in its lane.
    if surface == Surface::Netapp {
        busy("backup vault", &vault.name.id, vault.state)?;
    }
    if view.backup(name).is_some() {
        return Err(super::names::taken("backup", &name.id));
    }
    let source = view.volume(&new.source);
    let Some(source) = source.filter(|of| of.name.surface == surface) else {
        let refusal = missing(format!("there is no {} {}", surface.noun(), new.source));
        return field(refusal, source_field(surface));
    };
    source.idle()?;
    if let Some(share) = new.share.as_deref().filter(|s| **s != *source.share_name) {
        let refusal = missing(format!(
            "instance {} has no share {share}; it has {}",
            source.name.id, source.share_name
        ));
        return field(refusal, "sourceFileShare");
    }
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
        trees: trees::names(view, source),
        schedule: new.schedule,
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
                "backup {id} is being restored into {} {}",
                volume.name.surface.noun(),
                volume.name.id
            ),
        )),
    }
}

/// Checks that a volume of `capacity_gib` can be made out of a backup.
pub fn restore(view: &View, name: &BackupName, capacity_gib: u64) -> Result<(), Refusal> {
    let (source, capacity) = match name.surface() {
        Surface::Netapp => ("restoreParameters.sourceBackup", "capacityGib"),
        Surface::Filestore => ("fileShares[0].sourceBackup", "fileShares[0].capacityGb"),
    };
    let noun = name.surface().noun();
    let field = |refusal: Refusal| Err(refusal.field(source));
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
            "backup {} has {needed} GiB, more than the {capacity_gib} GiB of the {noun}",
            name.id
        );
        let refusal = Refusal::new(Status::InvalidArgument, "VOLUME_TOO_SMALL", message);
        return Err(refusal.field(capacity));
    }
    Ok(())
}

/// Returns a policy to be made, with this identifier, or the refusal.
pub fn create_policy(
    view: &View,
    name: &Name,
    new: &NewBackupPolicy,
    id: u64,
    now: Stamp,
) -> Result<BackupPolicy, Refusal> {
    names::check(&name.place, &name.id)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if view.backup_policy(name).is_some() {
        return Err(super::names::taken("backup policy", &name.id));
    }
    let policy = BackupPolicy {
        id,
        name: name.clone(),
        revision: 1,
        created: now,
        daily: new.daily,
        weekly: new.weekly,
        monthly: new.monthly,
        enabled: new.enabled,
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    };
    check_limits(&policy)?;
    Ok(policy)
}

fn check_limits(policy: &BackupPolicy) -> Result<(), Refusal> {
    let refuse = |field: &'static str, message: String| {
        let refusal = Refusal::new(Status::InvalidArgument, "BACKUP_POLICY_INVALID", message);
        Err(refusal.field(field))
    };
    if policy.daily < MIN_DAILY {
        return refuse(
            "dailyBackupLimit",
            format!(
                "dailyBackupLimit: {} is less than {MIN_DAILY}",
                policy.daily
            ),
        );
    }
    for (field, limit) in [
        ("dailyBackupLimit", policy.daily),
        ("weeklyBackupLimit", policy.weekly),
        ("monthlyBackupLimit", policy.monthly),
    ] {
        if limit > MAX_SCHEDULED_BACKUPS {
            return refuse(
                field,
                format!("{field}: {limit} is more than {MAX_SCHEDULED_BACKUPS}"),
            );
        }
    }
    Ok(())
}

/// Returns the policy as changed.
pub fn update_policy(
    policy: &BackupPolicy,
    change: &BackupPolicyChange,
) -> Result<BackupPolicy, Refusal> {
    let mut next = policy.clone();
    next.revision += 1;
    next.daily = change.daily.unwrap_or(next.daily);
    next.weekly = change.weekly.unwrap_or(next.weekly);
    next.monthly = change.monthly.unwrap_or(next.monthly);
    next.enabled = change.enabled.unwrap_or(next.enabled);
    let (description, labels) = (&mut next.description, &mut next.labels);
    names::describe(description, labels, &mut next.extra, &change.words)?;
    check_limits(&next)?;
    Ok(next)
}

/// Checks that no volume has the policy.
pub fn delete_policy(view: &View, policy: &BackupPolicy) -> Result<(), Refusal> {
    match view.volumes_backed_up_by(&policy.name).next() {
        None => Ok(()),
        Some(volume) => Err(Refusal::new(
            Status::FailedPrecondition,
            "BACKUP_POLICY_IN_USE",
            format!(
                "volume {} has backup policy {}; change its backupConfig first",
                volume.name.id, policy.name.id
            ),
        )),
    }
}

/// Checks the scheduled backups of a volume in `place`.
pub fn check_config(
    view: &View,
    place: &LocationName,
    config: &BackupConfig,
) -> Result<(), Refusal> {
    let refuse = |field: &'static str, status: Status, reason: &'static str, message: String| {
        Err(Refusal::new(status, reason, message).field(field))
    };
    let (invalid, missing) = (Status::InvalidArgument, Status::NotFound);
    let (policies, vault) = ("backupConfig.backupPolicies", "backupConfig.backupVault");
    if config.policies.len() > 1 {
        let message = "a volume has one backup policy at most".to_owned();
        return refuse(policies, invalid, "TOO_MANY_BACKUP_POLICIES", message);
    }
    if let Some(id) = &config.vault
        && (view.backup_vault(&place.name(id)).is_none() || &**id == FILESTORE_VAULT)
    {
        let message = format!("there is no backup vault {id} in {place}");
        return refuse(vault, missing, "NOT_FOUND", message);
    }
    let Some(id) = config.policies.first() else {
        return Ok(());
    };
    if view.backup_policy(&place.name(id)).is_none() {
        let message = format!("there is no backup policy {id} in {place}");
        return refuse(policies, missing, "NOT_FOUND", message);
    }
    if config.vault.is_none() {
        let message = "a volume with a backup policy needs a backup vault".to_owned();
        return refuse(vault, invalid, "BACKUP_VAULT_MISSING", message);
    }
    Ok(())
}

/// Returns the schedules of a volume's backup policy: at midnight, every day, on Mondays, and on
/// the first day of a month.
pub fn schedules(view: &View, volume: &Volume) -> Rules {
    let config = volume.backup.as_ref();
    let config = config.filter(|c| c.enabled != Some(false) && c.vault.is_some());
    let policy = config.and_then(|config| config.policies.first());
    let policy = policy.and_then(|id| view.backup_policy(&volume.name.place.name(id)));
    let Some(policy) = policy.filter(|policy| policy.enabled) else {
        return Rules::new();
    };
    let (monday, first) = (
        Numbers::from_numbers([1], 0, 6),
        Numbers::from_numbers([1], 1, 31),
    );
    let daily = Some(Schedule::daily(0, 0));
    let weekly = monday.map(|days| Schedule::weekly(days, 0, 0));
    let monthly = first.map(|days| Schedule::monthly(days, 0, 0));
    let all = [
        (Period::Daily, daily, policy.daily),
        (Period::Weekly, weekly, policy.weekly),
        (Period::Monthly, monthly, policy.monthly),
    ];
    let kept = all.into_iter().filter(|(_, _, keep)| *keep > 0);
    let rules = kept.filter_map(|(period, schedule, keep)| {
        let (schedule, keep) = (schedule?, keep as usize);
        Some((period, Rule { schedule, keep }))
    });
    rules.collect()
}

/// Checks that files of a backup can be copied into a volume.
pub fn restore_files(view: &View, volume: &Volume, restore: &RestoreFiles) -> Result<(), Refusal> {
    let (invalid, missing) = (Status::InvalidArgument, Status::NotFound);
    let refuse = |status: Status, reason: &'static str, field: &'static str, message: String| {
        Err(Refusal::new(status, reason, message).field(field))
    };
    let found = view.backup(&restore.backup);
    if found.is_none_or(|backup| backup.state != State::Ready)
        || volume.name.surface != Surface::Netapp
    {
        let message = format!("there is no backup {} to restore", restore.backup);
        return refuse(missing, "BACKUP_NOT_FOUND", "backup", message);
    }
    if restore.files.is_empty() || restore.files.len() > MAX_RESTORED_FILES {
        let message = format!("fileList: 1 to {MAX_RESTORED_FILES} files are restored at once");
        return refuse(invalid, "FILE_LIST_INVALID", "fileList", message);
    }
    let mut names = BTreeSet::new();
    for path in restore.files.iter().chain([&restore.directory]) {
        let bad = |name: &str| matches!(name, "." | "..") || name.contains('\0');
        if path.split('/').any(bad) {
            let message = format!("fileList: {path:?} has a name that no file can have");
            return refuse(invalid, "FILE_LIST_INVALID", "fileList", message);
        }
    }
    for path in &restore.files {
        let name = path.trim_end_matches('/').rsplit('/').next();
        let name = name.unwrap_or_default();
        if name.is_empty() || !path.starts_with('/') {
            let message = format!("fileList: {path:?} is no path from the volume's root on");
            return refuse(invalid, "FILE_LIST_INVALID", "fileList", message);
        }
        if !names.insert(name) {
            let message = format!("fileList: two files would be called {name}");
            return refuse(invalid, "FILE_LIST_INVALID", "fileList", message);
        }
    }
    if !restore.directory.starts_with('/') {
        let message = "restoreDestinationPath: a path from the volume's root on".to_owned();
        return refuse(
            invalid,
            "DESTINATION_INVALID",
            "restoreDestinationPath",
            message,
        );
    }
    Ok(())
}
