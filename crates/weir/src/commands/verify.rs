//! `weir backup verify`: reads backups of volumes in their bucket, beside a running server.
//!
//! Nothing is written. The keys of the vaults come from the data folder, or from a copy of it that
//! `weir backup` has made.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use weir_backup::{BackupError, Bucket, Progress, Vault, VaultKey};
use weir_base::SystemRng;
use weir_node::backups;
use weir_node::size::Size;

use crate::cli::Verify;
use crate::cli::progress::Task;
use crate::control::bucket;

/// Result of the verification of a backup.
struct VerificationReport {
    vault: String,
    /// `None` if the vault itself cannot be read.
    backup: Option<String>,
    /// The volume, by its name at that time.
    volume: Option<String>,
    /// Bytes of file contents.
    contents: u64,
    /// Bytes fetched from the bucket.
    fetched: u64,
    /// The first fault found.
    fault: Option<String>,
}

impl VerificationReport {
    fn new(vault: &str, backup: Option<&str>) -> VerificationReport {
        VerificationReport {
            vault: vault.to_owned(),
            backup: backup.map(str::to_owned),
            volume: None,
            contents: 0,
            fetched: 0,
            fault: None,
        }
    }

    fn data(&self) -> Value {
        json!({
            "vault": self.vault,
            "backup": self.backup,
            "volume": self.volume,
            "contents": self.contents,
            "fetched": self.fetched,
            "fault": self.fault,
        })
    }
}

impl std::fmt::Display for VerificationReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.vault)?;
        if let Some(backup) = &self.backup {
            write!(f, "/{backup}")?;
        }
        if let Some(volume) = &self.volume {
            write!(f, " of {volume}")?;
        }
        match &self.fault {
            Some(fault) => write!(f, ": fault: {fault}"),
            None => write!(f, ": verified, {} of files", Size(self.contents)),
        }
    }
}

/// Reads everything that the chosen backups refer to, and prints what is damaged. Faults make it an
/// error.
pub fn run(args: &Verify) -> Result<()> {
    let Some(bucket) = bucket::open(&args.bucket)? else {
        return Err(crate::cli::usage::error(
            "--backup-bucket is missing: name the bucket as `weir serve` has it",
        ));
    };
    let keys = backups::vault_keys(&args.data)?;
    let named = |vault: &String| args.vault.as_ref().is_none_or(|wanted| wanted == vault);
    let keys: Vec<(String, VaultKey)> =
        keys.into_iter().filter(|(vault, _)| named(vault)).collect();
    ensure!(
        !keys.is_empty(),
        "{} has no key of a vault{} (name the data folder with --data)",
        args.data.join(backups::KEYS).display(),
        args.vault
            .as_ref()
            .map_or(String::new(), |vault| format!(" {vault}"))
    );
    let fetched = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&fetched);
    let task = Task::of_bytes("verifying backups", "nothing was changed", move || {
        shown.load(Ordering::Relaxed)
    })?;
    let mut all = Vec::new();
    for (vault, key) in &keys {
        vault_of(
            &bucket,
            (vault, key),
            args.backup.as_deref(),
            &fetched,
            &mut all,
        )?;
    }
    drop(task);
    if let (Some(wanted), true) = (&args.backup, all.is_empty()) {
        bail!("no vault has a backup {wanted}");
    }
    let faults = all.iter().filter(|one| one.fault.is_some()).count();
    if args.output.json {
        let each: Vec<Value> = all.iter().map(VerificationReport::data).collect();
        args.output.print(&json!({"backups": each}), "")?;
    } else {
        let mut out = std::io::stdout();
        for one in &all {
            writeln!(out, "{one}")?;
        }
        writeln!(out, "{} backups, {faults} faults", all.len())?;
    }
    ensure!(
        faults == 0,
        "{faults} of {} backups cannot be restored (make new ones, and delete these)",
        all.len()
    );
    Ok(())
}

/// Verifies the backups of a vault. Fails if the bucket does not answer.
fn vault_of(
    bucket: &Arc<dyn Bucket>,
    (name, key): (&str, &VaultKey),
    wanted: Option<&str>,
    fetched: &AtomicU64,
    all: &mut Vec<VerificationReport>,
) -> Result<()> {
    let place = || format!("cannot verify vault {name}");
    let vault = match Vault::open(Arc::clone(bucket), name, key, Arc::new(SystemRng)) {
        Ok(vault) => vault,
        Err(error) => {
            let fault = Some(fault(error).with_context(place)?);
            let none = VerificationReport::new(name, None);
            all.push(VerificationReport { fault, ..none });
            return Ok(());
        }
    };
    let backups = vault.backups().with_context(place)?;
    for backup in backups.iter().filter(|b| wanted.is_none_or(|w| w == *b)) {
        let mut one = VerificationReport::new(name, Some(backup));
        let before = fetched.load(Ordering::Relaxed);
        let mut watch = |progress: Progress| {
            fetched.store(before + progress.moved, Ordering::Relaxed);
            true
        };
        let read = vault.backup(backup).and_then(|read| {
            one.volume = Some(read.volume.clone());
            weir_backup::verify(&vault, &read, &mut watch)
        });
        match read {
            Ok(verified) => (one.contents, one.fetched) = (verified.contents, verified.fetched),
            Err(error) => one.fault = Some(fault(error).with_context(place)?),
        }
        all.push(one);
    }
    Ok(())
}

/// Returns the words of a fault of what is stored; other errors are not the backup's.
fn fault(error: BackupError) -> Result<String, BackupError> {
    use weir_backup::BucketError::Missing;
    match error {
        BackupError::Damaged { .. }
        | BackupError::NotFound(_)
        | BackupError::NoVault
        | BackupError::Bucket(Missing(_)) => Ok(error.to_string()),
        other => Err(other),
    }
}
