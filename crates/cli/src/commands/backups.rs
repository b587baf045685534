//! `weir backup-vaults`, `weir backups` and `weir backup-policies`.

use serde_json::{Value, json};

use super::netapp::{BACKUP_POLICIES, BACKUP_VAULTS, create, update};
use super::steps::{Body, delete, last, list, open, open_named, own};
use crate::Environment;
use crate::args::{
    BackupLimits, BackupNamed, BackupPolicies, BackupRestore, BackupVaults, Backups,
};
use crate::error::Error;
use crate::session::{Io, Session};

const BACKUP_VAULT: &str = "backup vault";
const BACKUP_POLICY: &str = "backup policy";
const BACKUP: &str = "backup";

const BACKUP_VAULT_TABLE: &str = "table(name.basename():label=BACKUP_VAULT_NAME:sort=1,
    name.segment(3):label=LOCATION, state, createTime, stateDetails)";
const BACKUP_POLICY_TABLE: &str = "table(name.basename():label=BACKUP_POLICY_NAME:sort=1,
    name.segment(3):label=LOCATION, dailyBackupLimit:label=DAILY, weeklyBackupLimit:label=WEEKLY,
    monthlyBackupLimit:label=MONTHLY, enabled, assignedVolumeCount:label=VOLUMES)";
const BACKUP_TABLE: &str = "table(name.basename():label=BACKUP_NAME, state,
    sourceVolume.basename():label=VOLUME, backupType:label=TYPE, createTime:sort=1,
    volumeUsageBytes:label=BYTES, chainStorageBytes:label=UPLOADED, stateDetails)";

/// Smallest capacity in GiB of a volume.
const SMALLEST_GIB: u64 = 100;

fn limits(args: &BackupLimits, body: &mut Body) {
    body.set("dailyBackupLimit", args.daily_backup_limit);
    body.set("weeklyBackupLimit", args.weekly_backup_limit);
    body.set("monthlyBackupLimit", args.monthly_backup_limit);
    body.set("enabled", args.enabled);
}

/// Runs `weir backup-vaults` and its verbs.
pub fn backup_vaults(
    command: &BackupVaults,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    match command {
        BackupVaults::List(args) => list(
            args,
            BACKUP_VAULTS,
            &own(BACKUP_VAULT_TABLE)?,
            environment,
            io,
        ),
        BackupVaults::Describe(named) => {
            let mut s = open_named(named, environment, io)?;
            let name = s.name(BACKUP_VAULTS, &named.name)?;
            s.describe(&name)
        }
        BackupVaults::Create(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name(BACKUP_VAULTS, &args.named.name)?;
            let mut body = Body::default();
            body.words(&args.words);
            create(
                &mut s,
                &name,
                "backupVaultId",
                body,
                args.wait,
                BACKUP_VAULT,
            )
        }
        BackupVaults::Update(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name(BACKUP_VAULTS, &args.named.name)?;
            let mut body = Body::default();
            body.changed_words(&s.get(&name)?, &args.words);
            update(&mut s, name, body, args.wait, BACKUP_VAULT)
        }
        BackupVaults::Delete(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name(BACKUP_VAULTS, &args.named.name)?;
            let question = format!("You are about to delete a Backup Vault {name}.");
            s.confirm_change(args.wait, &question)?;
            delete(&mut s, name, Vec::new(), args.wait, BACKUP_VAULT)
        }
        BackupVaults::Backups { command } => backups(command, environment, io),
    }
}

/// Runs `weir backup-policies` and its verbs.
pub fn backup_policies(
    command: &BackupPolicies,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    match command {
        BackupPolicies::List(args) => list(
            args,
            BACKUP_POLICIES,
            &own(BACKUP_POLICY_TABLE)?,
            environment,
            io,
        ),
        BackupPolicies::Describe(named) => {
            let mut s = open_named(named, environment, io)?;
            let name = s.name(BACKUP_POLICIES, &named.name)?;
            s.describe(&name)
        }
        BackupPolicies::Create(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name(BACKUP_POLICIES, &args.named.name)?;
            let mut body = Body::default();
            limits(&args.limits, &mut body);
            body.words(&args.words);
            create(
                &mut s,
                &name,
                "backupPolicyId",
                body,
                args.wait,
                BACKUP_POLICY,
            )
        }
        BackupPolicies::Update(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name(BACKUP_POLICIES, &args.named.name)?;
            let mut body = Body::default();
            limits(&args.limits, &mut body);
            body.changed_words(&s.get(&name)?, &args.words);
            update(&mut s, name, body, args.wait, BACKUP_POLICY)
        }
        BackupPolicies::Delete(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name(BACKUP_POLICIES, &args.named.name)?;
            let question = format!("You are about to delete a Backup Policy {name}.");
            s.confirm_change(args.wait, &question)?;
            delete(&mut s, name, Vec::new(), args.wait, BACKUP_POLICY)
        }
    }
}

/// Returns the full name of a vault.
fn of_vault(s: &Session<'_, '_>, vault: Option<&String>) -> Result<String, Error> {
    let vault = vault.ok_or_else(|| {
        Error::Usage("Missing required argument [--backup-vault]: the vault of backups".to_owned())
    })?;
    s.name(BACKUP_VAULTS, vault)
}

/// Returns the full name of a backup.
fn backup_name(s: &Session<'_, '_>, args: &BackupNamed) -> Result<String, Error> {
    let name = &args.named.name;
    if name.starts_with("projects/") {
        return s.name("backups", name);
    }
    let vault = of_vault(s, args.backup_vault.as_ref())?;
    // For the check of the name alone.
    s.name("backups", name)?;
    Ok(format!("{vault}/backups/{name}"))
}

/// Runs `weir backups` and its verbs.
pub fn backups(command: &Backups, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let backup = match command {
        Backups::List(args) => {
            let mut s = open(&args.listed.common, &args.listed.at, environment, io)?;
            let vault = of_vault(&s, args.backup_vault.as_ref())?;
            return s.list(&vault, "backups", &args.listed.listing, &own(BACKUP_TABLE)?);
        }
        Backups::Create(args) => &args.backup,
        Backups::Describe(args) => args,
        Backups::Update(args) => &args.backup,
        Backups::Delete(args) => &args.backup,
        Backups::Restore(args) => &args.backup,
    };
    let mut s = open_named(&backup.named, environment, io)?;
    let name = backup_name(&s, backup)?;
    match command {
        Backups::Create(args) => {
            let volume = s.name("volumes", &args.source_volume)?;
            let mut body = Body::default();
            let snapshot = args.source_snapshot.as_ref().map(|snapshot| {
                match snapshot.starts_with("projects/") {
                    true => snapshot.clone(),
                    false => format!("{volume}/snapshots/{snapshot}"),
                }
            });
            body.set("sourceVolume", Some(volume));
            body.set("sourceSnapshot", snapshot);
            body.words(&args.words);
            create(&mut s, &name, "backupId", body, args.wait, BACKUP)
        }
        Backups::Update(args) => {
            let mut body = Body::default();
            body.changed_words(&s.get(&name)?, &args.words);
            update(&mut s, name, body, args.wait, BACKUP)
        }
        Backups::Delete(args) => {
            let question = format!("You are about to delete a Backup {name}.");
            s.confirm_change(args.wait, &question)?;
            delete(&mut s, name, Vec::new(), args.wait, BACKUP)
        }
        Backups::Restore(args) => restore_backup(args, &mut s, name),
        Backups::Describe(_) | Backups::List(_) => s.describe(&name),
    }
}

/// Makes a volume of a backup.
fn restore_backup(
    args: &BackupRestore,
    s: &mut Session<'_, '_>,
    backup: String,
) -> Result<(), Error> {
    let name = s.name("volumes", &args.volume)?;
    s.warn(args.capacity.as_ref().and_then(|c| c.1.as_deref()))?;
    let capacity = match &args.capacity {
        Some(capacity) => capacity.0.to_string(),
        None => {
            let current = s.get(&backup)?;
            let bytes = current.get("volumeUsageBytes").and_then(Value::as_str);
            let bytes: u64 = bytes.and_then(|text| text.parse().ok()).unwrap_or(0);
            bytes.div_ceil(1 << 30).max(SMALLEST_GIB).to_string()
        }
    };
    let mut body = Body::default();
    body.set("storagePool", Some(args.storage_pool.as_str()));
    body.set("capacityGib", Some(capacity));
    body.set("protocols", Some(json!(args.protocols.0)));
    let share = args.share_name.as_deref().unwrap_or(last(&name));
    body.set("shareName", Some(share));
    body.set("snapshotDirectory", Some(true));
    body.set("restoreParameters", Some(json!({"sourceBackup": backup})));
    create(s, &name, "volumeId", body, args.wait, "volume")
}
