//! Vaults and backups of NetApp Volumes: the public API's resources to and from the model.
//!
//! Vaults are in the server's own bucket: another region, retention that nobody can end, and keys
//! of a key service are refused. The vault's key is the server's.

use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, Made, is_set, required, state_name};
use crate::json::Object;
use crate::schema::netapp as schema;
use weir_control::{
    Backup, BackupVault, Collection, DescriptionChange, NewBackup, NewBackupVault, Place, State,
    VolumeName,
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
    let mut m = Made::over(&v.extra);
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
    let mut m = Made::over(&b.extra);
    let state = match b.state {
        State::Creating => "UPLOADING",
        state => state_name(state),
    };
    let snapshot = b.snapshot.as_ref();
    m.set("name", b.name.to_string())
        .set("state", state)
        .set("stateDetails", b.state_details.as_str())
        .set("createTime", b.created.rfc3339())
        .set("backupType", "MANUAL")
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
pub fn new_backup(place: &Place, body: Object) -> ApiResult<NewBackup> {
    let mut f = Fields::new(body);
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
    for field in ["sourceVolume", "sourceSnapshot"] {
        f.fixed(field, current)?;
    }
    described(f)
}

fn described(mut f: Fields) -> ApiResult<DescriptionChange> {
    Ok(DescriptionChange {
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default(),
        extra: f.rest(),
    })
}
