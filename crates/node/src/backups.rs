//! Backups on the node: vaults in the server's bucket, and their keys in the data folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use weir_api::files::FilePath;
use weir_backup::{BackupError, Bucket, BucketError, Source, Vault, VaultKey};
use weir_base::{Clock, Rng, small_file};
use weir_control::backend::{BackendError, BackupSpec, BackupState, FilesSpec};
use weir_volume::{Engine, FsError, Volume};

use crate::backend::{Outcome, failed};

/// The file of the data folder with the keys of vaults, by the vaults' names in the bucket. Without
/// it the backups cannot be read.
pub const KEYS: &str = "backup-keys.json";

/// Vaults in a bucket.
pub struct Backups {
    bucket: Arc<dyn Bucket>,
    folder: PathBuf,
    rng: Arc<dyn Rng>,
    clock: Arc<dyn Clock>,
    /// Held while the file of keys changes.
    keys: Mutex<()>,
    /// The server stops.
    stops: Arc<AtomicBool>,
}

/// Returns the keys of the vaults of a data folder, by the vaults' names in the bucket.
///
/// # Errors
/// The file of keys cannot be read, or is malformed.
pub fn vault_keys(folder: &Path) -> Outcome<BTreeMap<String, VaultKey>> {
    let keys = read_keys(folder)?.into_iter().map(|(vault, text)| {
        let key = parsed(&vault, &text)?;
        Ok((vault, key))
    });
    keys.collect()
}

/// Reads the key of a vault.
fn parsed(vault: &str, text: &str) -> Outcome<VaultKey> {
    let malformed = || BackendError::Precondition(format!("{KEYS}: no key of {vault}"));
    VaultKey::from_hex(text).ok_or_else(malformed)
}

fn read_keys(folder: &Path) -> Outcome<BTreeMap<String, String>> {
    let path = folder.join(KEYS);
    let unread = |why: String| BackendError::Failed(format!("{}: {why}", path.display()));
    match small_file::read(&path).map_err(|e| unread(e.to_string()))? {
        None => Ok(BTreeMap::new()),
        Some(text) => serde_json::from_slice(&text).map_err(|e| unread(e.to_string())),
    }
}

/// Translates a failure into one that is tried again or not.
fn refused(error: BackupError) -> BackendError {
    let words = error.to_string();
    match error {
        BackupError::Bucket(BucketError::Full(_)) => BackendError::NoSpace(words),
        BackupError::NoVault | BackupError::NotFound(_) => BackendError::NotFound(words),
        BackupError::Bucket(BucketError::Denied(_) | BucketError::Refused(_))
        | BackupError::Damaged { .. }
        | BackupError::Format(_)
        | BackupError::VaultExists
        | BackupError::Exists(_)
        | BackupError::Different
        | BackupError::NoFile(_)
        | BackupError::Volume(FsError::NotSupported) => BackendError::Precondition(words),
        BackupError::Volume(error) => failed("volume", "of the backup")(error),
        BackupError::Bucket(_) | BackupError::Stopped => BackendError::Failed(words),
    }
}

impl Backups {
    /// Vaults in `bucket`, with their keys in the data folder.
    pub fn new(
        bucket: Arc<dyn Bucket>,
        folder: PathBuf,
        rng: Arc<dyn Rng>,
        clock: Arc<dyn Clock>,
    ) -> Backups {
        Backups {
            bucket,
            folder,
            rng,
            clock,
            keys: Mutex::new(()),
            stops: Arc::default(),
        }
    }

    /// Ends running work soon; the next start goes on with it.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Returns the flag that is set when the server stops.
    pub fn stops(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stops)
    }

    fn goes_on(&self) -> bool {
        !self.stops.load(Ordering::Relaxed)
    }

    fn write_keys(&self, keys: &BTreeMap<String, String>) -> Outcome<()> {
        let text = serde_json::to_vec_pretty(keys).unwrap_or_default();
        let written = small_file::replace(&self.folder, KEYS, &text);
        written.map_err(|e| BackendError::Failed(format!("{KEYS}: {e}")))
    }

    fn key(&self, vault: &str) -> Outcome<Option<VaultKey>> {
        let text = read_keys(&self.folder)?.remove(vault);
        text.map(|text| parsed(vault, &text)).transpose()
    }

    fn open(&self, vault: &str) -> Outcome<Vault> {
        let missing = || BackendError::Precondition(format!("{KEYS} has no key of vault {vault}"));
        let key = self.key(vault)?.ok_or_else(missing)?;
        let (bucket, rng) = (Arc::clone(&self.bucket), Arc::clone(&self.rng));
        Vault::open(bucket, vault, &key, rng).map_err(refused)
    }

    /// Makes a vault, or finds it made. Its key is durable before anything is sealed with it.
    ///
    /// # Errors
    /// The bucket's, or the data folder's.
    pub fn create(&self, vault: &str) -> Outcome<()> {
        let key = {
            let _changing = self.keys.lock();
            match self.key(vault)? {
                Some(key) => key,
                None => {
                    let key = VaultKey::random(&*self.rng);
                    let mut keys = read_keys(&self.folder)?;
                    keys.insert(vault.to_owned(), key.to_hex());
                    self.write_keys(&keys)?;
                    key
                }
            }
        };
        let (bucket, rng) = (Arc::clone(&self.bucket), Arc::clone(&self.rng));
        match Vault::create(bucket, vault, &key, rng) {
            Err(BackupError::VaultExists) => self.open(vault).map(drop),
            made => made.map(drop).map_err(refused),
        }
    }

    /// Deletes a vault, or finds it deleted, and forgets its key.
    ///
    /// # Errors
    /// The bucket's, or the data folder's.
    pub fn delete(&self, vault: &str) -> Outcome<()> {
        if self.key(vault)?.is_none() {
            return Ok(());
        }
        match self.open(vault) {
            Ok(open) => open.destroy().map_err(refused)?,
            Err(BackendError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let _changing = self.keys.lock();
        let mut keys = read_keys(&self.folder)?;
        keys.remove(vault);
        self.write_keys(&keys)
    }

    /// Makes a backup, or finds it made.
    ///
    /// # Errors
    /// The volume's, and the bucket's.
    pub fn take(&self, volume: &Arc<Volume>, spec: &BackupSpec) -> Outcome<BackupState> {
        if spec.take && volume.snapshot(&spec.snapshot).is_none() {
            let taken = volume.snapshot_take(&spec.snapshot, "", self.clock.current_time());
            taken.map_err(failed("snapshot", &spec.snapshot))?;
        }
        let snapshot = volume.snapshot(&spec.snapshot);
        let missing = || BackendError::NotFound(format!("snapshot {}", spec.snapshot));
        let source = Source {
            volume,
            name: &spec.source,
            snapshot: snapshot.ok_or_else(missing)?.identity,
        };
        let vault = self.open(&spec.vault)?;
        let base = match spec.base.as_ref().map(|base| vault.backup(base)) {
            Some(Ok(base)) => Some(base),
            None | Some(Err(BackupError::NotFound(_) | BackupError::Damaged { .. })) => None,
            Some(Err(error)) => return Err(refused(error)),
        };
        let mut watch = |_| self.goes_on();
        let made = weir_backup::take(&vault, &source, base.as_ref(), &spec.name, &mut watch);
        let made = made.map_err(refused)?;
        Ok(BackupState {
            bytes: made.referenced,
            uploaded: made.uploaded,
        })
    }

    /// Deletes a backup, or finds it deleted, and the packs that no other one needs.
    ///
    /// # Errors
    /// The bucket's.
    pub fn delete_backup(&self, vault: &str, backup: &str) -> Outcome<()> {
        let vault = self.open(vault)?;
        match vault.delete(backup) {
            Ok(()) | Err(BackupError::NotFound(_)) => {}
            Err(error) => return Err(refused(error)),
        }
        let pruned = weir_backup::prune(&vault).map_err(refused)?;
        tracing::info!(
            vault = vault.name(),
            packs = pruned.packs,
            bytes = pruned.bytes,
            "packs deleted"
        );
        Ok(())
    }

    /// Fills an empty protected volume with a backup, and makes it writable.
    ///
    /// # Errors
    /// The volume's, and the bucket's.
    pub fn restore(
        &self,
        engine: &Engine,
        volume: &Arc<Volume>,
        (vault, backup): (&str, &str),
    ) -> Outcome<()> {
        let vault = self.open(vault)?;
        let backup = vault.backup(backup).map_err(refused)?;
        let mut watch = |_| self.goes_on();
        match weir_backup::restore(&vault, &backup, volume, &mut watch) {
            // An attempt that was interrupted behind its last step.
            Ok(_) | Err(BackupError::Volume(FsError::Exists)) => {}
            Err(error) => return Err(refused(error)),
        }
        let name = volume.name();
        engine.break_off(name).map_err(failed("volume", name))?;
        let snapshot = &backup.snapshot;
        match volume.snapshot_delete(snapshot) {
            Ok(()) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(failed("snapshot", snapshot)(error)),
        }
    }

    /// Brings files of a backup into an empty protected volume. Returns the name of its snapshot
    /// that has them.
    ///
    /// # Errors
    /// A path that is none, or that the backup does not have; the volume's, and the bucket's.
    pub fn restore_files(&self, volume: &Arc<Volume>, spec: &FilesSpec) -> Outcome<String> {
        let vault = self.open(&spec.vault)?;
        let backup = vault.backup(&spec.backup).map_err(refused)?;
        let names = |path: &String| {
            let path = FilePath::parse(path.as_bytes()).map_err(BackendError::Precondition)?;
            Ok(path.names().to_vec())
        };
        let paths: Outcome<Vec<Vec<Vec<u8>>>> = spec.files.iter().map(names).collect();
        let mut watch = |_| self.goes_on();
        weir_backup::restore_files(&vault, &backup, volume, &paths?, &mut watch)
            .map_err(refused)?;
        Ok(backup.snapshot)
    }
}
