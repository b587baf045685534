//! Vaults, backups and backup policies of NetApp Volumes: the public API's resources to and from
//! the model.
//!
//! Vaults are in the server's own bucket: another region, retention that nobody can end, and keys
//! of a key service are refused. The vault's key is the server's.

use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, ResourceBuilder, is_set, required, state_name};
use crate::json::{Object, abbreviate};
use crate::schema::netapp as schema;
use serde_json::{Value, json};
use weir_control::{
    Backup, BackupConfig, BackupName, BackupPolicy, BackupPolicyChange, BackupVault, Collection,
    DescriptionChange, LocationName, NewBackup, NewBackupPolicy, NewBackupVault, RestoreFiles,
    State, View, Volume, VolumeName,
};

/// Fields of vaults that this server would store without effect.
const NOT_HERE: [(&str, &str); 3] = [
    ("backupRegion", "the bucket has its own place; leave it out"),
    (
        "backupRetentionPolicy",
        "protect objects by the bucket's own retention; leave it out",
    ),
    (
        "kmsConfig",
        "vaults are encrypted with keys that the server keeps; leave it out",
    ),
];

/// Returns a vault on the wire.
pub fn vault(v: &BackupVault) -> Object {
    let mut m = ResourceBuilder::from_extra(&v.extra);
    m.set("name", v.name.full(Collection::BackupVaults))
        .set("state", state_name(v.state))
        .set("stateDetails", v.state_details.as_str())
        .set("createTime", v.created.rfc3339())
        .set("backupVaultType", "IN_REGION")
        .set("sourceRegion", v.name.place.to_string())
        .set("encryptionState", "ENCRYPTION_STATE_COMPLETED")
        .set("description", v.description.as_str())
        .labels(&v.labels);
    m.done(&schema::BACKUP_VAULT)
}

/// Returns a backup on the wire.
pub fn backup(b: &Backup) -> Object {
    let mut m = ResourceBuilder::from_extra(&b.extra);
    let state = match b.state {
        State::Creating => "UPLOADING",
        state => state_name(state),
    };
    let snapshot = b.snapshot.as_ref();
    m.set("name", b.name.to_string())
        .set("state", state)
        .set("stateDetails", b.state_details.as_str())
        .set("createTime", b.created.rfc3339())
        .set(
            "backupType",
            match b.schedule {
                Some(_) => "SCHEDULED",
                None => "MANUAL",
            },
        )
        .set("sourceVolume", b.source.to_string())
        .set(
            "sourceSnapshot",
            snapshot.map(|id| b.source.snapshot(id).to_string()),
        )
        .set("volumeUsageBytes", b.bytes.to_string())
        .set("chainStorageBytes", b.uploaded.to_string())
        .set("description", b.description.as_str())
        .labels(&b.labels);
    m.done(&schema::BACKUP)
}

/// Returns a policy of backups on the wire.
pub fn policy(view: &View, p: &BackupPolicy) -> Object {
    let mut m = ResourceBuilder::from_extra(&p.extra);
    m.set("name", p.name.full(Collection::BackupPolicies))
        .set("dailyBackupLimit", p.daily)
        .set("weeklyBackupLimit", p.weekly)
        .set("monthlyBackupLimit", p.monthly)
        .set("enabled", p.enabled)
        .set(
            "assignedVolumeCount",
            view.volumes_backed_up_by(&p.name).count(),
        )
        .set("createTime", p.created.rfc3339())
        .set("state", "READY")
        .set("description", p.description.as_str())
        .labels(&p.labels);
    m.done(&schema::BACKUP_POLICY)
}

/// Returns a volume's `backupConfig` on the wire; `None` if it has none.
pub fn config(view: &View, v: &Volume) -> Option<Value> {
    let config = v.backup.as_ref()?;
    let place = &v.name.place;
    let mut m = ResourceBuilder::default();
    let policies = config.policies.iter();
    let policies = policies.map(|id| place.name(id).full(Collection::BackupPolicies));
    m.set("backupPolicies", json!(policies.collect::<Vec<_>>()));
    m.set("scheduledBackupEnabled", config.enabled);
    if let Some(id) = &config.vault {
        let vault = place.name(id);
        let of_volume = view.backups_in(&vault).filter(|b| b.source_id == v.id);
        let uploaded: u64 = of_volume.map(|b| b.uploaded).sum();
        m.set("backupVault", vault.full(Collection::BackupVaults))
            .set("backupChainBytes", uploaded.to_string());
    }
    Some(Value::Object(m.done(&schema::BACKUP_CONFIG)))
}

/// Returns the bare id of a resource of `place`, which is named in full.
fn id_in(
    place: &LocationName,
    collection: Collection,
    field: &str,
    name: &str,
) -> ApiResult<String> {
    let example = place.name("NAME").full(collection);
    let within = example.strip_suffix("NAME").unwrap_or_default();
    let id = name.strip_prefix(within);
    let id = id.filter(|id| !id.is_empty() && !id.contains('/'));
    id.map(str::to_owned).ok_or_else(|| {
        ApiError::field(
            field,
            format!("Invalid '{field}' \"{}\": {example}", abbreviate(name)),
        )
    })
}

/// Reads a volume's `backupConfig`, cleared or set; `None`: nothing was said.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn take_config(place: &LocationName, f: &mut Fields) -> ApiResult<Option<BackupConfig>> {
    let sent = match f.take("backupConfig").or_default() {
        None => return Ok(None),
        Some(Value::Object(sent)) => sent,
        Some(_) => return Ok(Some(BackupConfig::default())),
    };
    let mut f = Fields::new(sent);
    let mut config = BackupConfig {
        enabled: f.flag("scheduledBackupEnabled").value(),
        ..BackupConfig::default()
    };
    if let Some(Value::Array(policies)) = f.take("backupPolicies").value() {
        let field = "backupConfig.backupPolicies";
        for name in policies.iter().filter_map(Value::as_str) {
            let id = id_in(place, Collection::BackupPolicies, field, name)?;
            config.policies.push(id.into());
        }
    }
    let vault = f
        .text("backupVault")
        .value()
        .filter(|name| !name.is_empty());
    if let Some(name) = vault {
        let field = "backupConfig.backupVault";
        let id = id_in(place, Collection::BackupVaults, field, &name)?;
        config.vault = Some(id.into());
    }
    Ok(Some(config))
}

/// Returns a limit of a policy; its field has 32 bits.
fn limit(f: &mut Fields, field: &str) -> ApiResult<Option<u32>> {
    let sent = f.count(field)?.or_default();
    Ok(sent.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)))
}

/// Returns a policy to be made.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn new_policy(body: Object) -> ApiResult<NewBackupPolicy> {
    let mut f = Fields::new(body);
    Ok(NewBackupPolicy {
        daily: required(limit(&mut f, "dailyBackupLimit")?, "dailyBackupLimit")?,
        weekly: limit(&mut f, "weeklyBackupLimit")?.unwrap_or(0),
        monthly: limit(&mut f, "monthlyBackupLimit")?.unwrap_or(0),
        enabled: f.flag("enabled").value().unwrap_or(true),
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    })
}

/// Changes to a policy, out of what the mask left.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn policy_change(changed: Object) -> ApiResult<BackupPolicyChange> {
    let mut f = Fields::new(changed);
    Ok(BackupPolicyChange {
        daily: limit(&mut f, "dailyBackupLimit")?,
        weekly: limit(&mut f, "weeklyBackupLimit")?,
        monthly: limit(&mut f, "monthlyBackupLimit")?,
        enabled: f.flag("enabled").or_default(),
        words: described(f)?,
    })
}

fn check(f: &Fields) -> ApiResult<()> {
    for (field, instead) in NOT_HERE {
        f.refuse(field, is_set, instead)?;
    }
    Ok(())
}

/// Returns a vault to be made.
///
/// # Errors
/// FAILED_PRECONDITION naming the field that this server does not have.
pub fn new_vault(body: Object) -> ApiResult<NewBackupVault> {
    let mut f = Fields::new(body);
    check(&f)?;
    let _ = f.take("backupVaultType");
    Ok(NewBackupVault {
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    })
}

/// Returns a backup to be made.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn new_backup(place: &LocationName, body: Object) -> ApiResult<NewBackup> {
    let mut f = Fields::new(body);
    f.without(
        "ontapSource",
        "Name the volume by 'sourceVolume', and leave it out",
    )?;
    let _ = f.take("backupType");
    let sent = required(f.text("sourceVolume").value(), "sourceVolume")?;
    let source = VolumeName::parse(&sent).filter(|name| name.place == *place);
    let invalid = |field: &'static str, sent: &str| {
        ApiError::field(
            field,
            format!("Invalid '{field}' \"{sent}\": the full name of one in {place}"),
        )
    };
    let source = source.ok_or_else(|| invalid("sourceVolume", &sent))?;
    let snapshot = match f.text("sourceSnapshot").value().filter(|s| !s.is_empty()) {
        None => None,
        Some(sent) => {
            let within = format!("{source}/snapshots/");
            let id = sent.strip_prefix(&within).filter(|id| !id.is_empty());
            let id = id.ok_or_else(|| invalid("sourceSnapshot", &sent))?;
            Some(id.to_owned())
        }
    };
    Ok(NewBackup {
        source,
        snapshot,
        schedule: None,
        share: None,
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    })
}

/// Changes to a vault, out of what the mask left.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn vault_change(changed: Object) -> ApiResult<DescriptionChange> {
    let mut f = Fields::new(changed);
    check(&f)?;
    let _ = f.take("backupVaultType");
    described(f)
}

/// Changes to a backup, out of what the mask left.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn backup_change(changed: Object, current: &Object) -> ApiResult<DescriptionChange> {
    let mut f = Fields::new(changed);
    for field in ["sourceVolume", "sourceSnapshot", "ontapSource"] {
        f.fixed(field, current)?;
    }
    described(f)
}

/// Changes of a description, out of what is left of a message.
///
/// # Errors
/// INVALID_ARGUMENT: labels against their syntax.
pub fn described(mut f: Fields) -> ApiResult<DescriptionChange> {
    Ok(DescriptionChange {
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default(),
        extra: f.rest(),
    })
}

/// Returns the files of a backup to be copied into a volume of `place`.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn restore_files(place: &LocationName, body: Object) -> ApiResult<RestoreFiles> {
    let mut f = Fields::new(body);
    let sent = required(f.text("backup").value(), "backup")?;
    let backup = BackupName::parse(&sent).filter(|backup| backup.vault.place == *place);
    let backup = backup.ok_or_else(|| {
        ApiError::field(
            "backup",
            format!(
                "Invalid 'backup' \"{}\": the full name of a backup in {place}",
                abbreviate(&sent)
            ),
        )
    })?;
    let files = match required(f.take("fileList").value(), "fileList")? {
        Value::Array(files) => files,
        _ => Vec::new(),
    };
    let files: Vec<String> = files
        .iter()
        .filter_map(|path| path.as_str().map(str::to_owned))
        .collect();
    let directory = f.text("restoreDestinationPath").value();
    let directory = required(directory, "restoreDestinationPath")?;
    Ok(RestoreFiles {
        backup,
        files,
        directory,
    })
}
