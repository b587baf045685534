//! The folder that holds an aggregate: its files, the identity of the aggregate, and the lock
//! against other processes.
//!
//! ```text
//! DIR/weir.json       what this is: {"magic":"weir-aggregate","format":1,"id":…}
//! DIR/lock            locked by the process that has the aggregate open
//! DIR/device          the aggregate's device
//! DIR/log             the intent log, unless it is elsewhere:
//! LOGDIR/weir-log.json, LOGDIR/lock, LOGDIR/log
//! ```
//!
//! Only an empty folder or one of Weir's is ever changed. While an aggregate is being created the
//! identity file is called `weir.json.new`; it gets its final name last. So an interrupted creation
//! can be distinguished from an aggregate, and begun again. The identity in both identity files and
//! in the superblock must be the same: a log of another aggregate would be replayed into this one.
//!
//! **The files' inodes.** ext4 keeps 16 inodes in one block. Without a journal, a durable write of
//! one file also writes that block when *another* of the 16 inodes has changed, and waits for it.
//! The device grows with nearly every flush, and the log, created right after it, would share its
//! inode block. With a shared block, stable writes of 64 KiB came in at 5,300 a second, and at
//! 14,000 with a block each. So the log's inode is created at a distance from the device's.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::features::{self, AggregateFormat, FEATURES, Feature};
use crate::superblock::{FORMAT_VERSION, other_format};
use weir_base::AggregateId;
use weir_base::limits::engine::{LOCK_PAUSE, LOCK_TRIES};

const MAGIC: &str = "weir-aggregate";
const LOG_MAGIC: &str = "weir-log";
const IDENTITY: &str = "weir.json";
const LOG_IDENTITY: &str = "weir-log.json";
/// Name of an identity file with more features until it takes the place of the old one. It differs
/// from the name that marks a creation.
const FEATURES_DRAFT: &str = "weir.json.features";
const LOCK: &str = "lock";
const DEVICE: &str = "device";
const LOG: &str = "log";
/// Maximum number of inodes in one block of a file system: those of ext4 have 128 bytes at least.
const INODES_A_BLOCK: u64 = 32;
/// The one entry in the root of a fresh ext file system.
const LOST_FOUND: &str = "lost+found";

/// Contents of an identity file.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Identity {
    magic: String,
    format: u32,
    id: String,
    /// True if the log is in another folder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    external_log: bool,
    /// Names of the format features that are on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    features: Vec<String>,
}

/// Purpose of a file of an open aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// The identity file of the folder.
    Identity,
    /// The file of the aggregate's device.
    Device,
    /// The file of the intent log.
    Log,
    /// The lock of the data folder.
    Lock,
}

/// An aggregate's folder, locked by this process.
pub struct Folder {
    data: PathBuf,
    log: PathBuf,
    id: AggregateId,
    /// Names of the format features that are on.
    features: Vec<String>,
    /// Folders that are being created: the log's last.
    begun: Vec<FolderCreation>,
    /// Lock files of the folders; closing them unlocks.
    _locks: Vec<File>,
}

/// A folder that is being created.
struct FolderCreation {
    dir: PathBuf,
    /// Name of the identity file.
    name: &'static str,
    /// Folders that were missing, the innermost first.
    missing: Vec<PathBuf>,
}

impl FolderCreation {
    /// Removes everything that was created. Links and devices were not.
    fn undo(&self) {
        // In a log folder created here no file is called device.
        let device = (self.name == IDENTITY).then_some(DEVICE);
        let begun = new_name(self.name);
        for file in device.into_iter().chain([LOG, self.name, &begun, LOCK]) {
            let path = self.dir.join(file);
            if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
                // A file that stays is found, and named, by the next creation.
                let _ = fs::remove_file(path);
            }
        }
        for dir in &self.missing {
            // Another process may have created a file there.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Returns the folders that are missing on the way to `dir`, the innermost first.
fn missing(dir: &Path) -> Vec<PathBuf> {
    let missing = dir.ancestors().take_while(|dir| {
        // The empty path is the current folder.
        !dir.as_os_str().is_empty() && matches!(dir.try_exists(), Ok(false))
    });
    missing.map(Path::to_owned).collect()
}

fn refuse(path: &Path, why: impl std::fmt::Display) -> StoreError {
    StoreError::Format(format!("{}: {why}", path.display()).into())
}

impl Folder {
    /// Returns true if an aggregate has been created in this folder.
    ///
    /// # Errors
    /// [`StoreError::Format`] if the folder cannot be read.
    pub fn exists(data: &Path) -> Result<bool, StoreError> {
        let path = data.join(IDENTITY);
        path.try_exists().map_err(|e| refuse(&path, e))
    }

    /// Locks an existing aggregate's folder. `log` is the log's folder, if it is a different one.
    ///
    /// # Errors
    /// [`StoreError::Format`] if it is in use, not Weir's, of a newer format, or the log's folder
    /// belongs to another aggregate. Nothing is changed in that case.
    pub fn open(data: &Path, log: Option<&Path>) -> Result<Folder, StoreError> {
        let (identity, id) = identify(data)?;
        match (identity.external_log, log) {
            (true, None) => {
                return Err(refuse(
                    data,
                    "its intent log is in another folder: name it with --log-dir",
                ));
            }
            (false, Some(_)) => {
                return Err(refuse(
                    data,
                    "its intent log is in this folder: leave out --log-dir",
                ));
            }
            _ => {}
        }
        let mut locks = vec![lock(data)?];
        if let Some(log) = log {
            let other = read_identity(log, LOG_IDENTITY, LOG_MAGIC)?;
            if other.id != identity.id {
                return Err(refuse(
                    log,
                    format!("it holds the log of aggregate {}, not of {id}", other.id),
                ));
            }
            locks.push(lock(log)?);
        }
        Ok(Folder {
            data: data.to_owned(),
            log: log.unwrap_or(data).to_owned(),
            id,
            features: identity.features,
            begun: Vec::new(),
            _locks: locks,
        })
    }

    /// Returns true if an aggregate has its log in a folder of its own, and `log` is empty. A log
    /// that was being [renewed](Folder::renew) there does not count.
    ///
    /// # Errors
    /// [`StoreError::Format`] if a folder cannot be read.
    pub fn log_is_lost(data: &Path, log: &Path) -> Result<bool, StoreError> {
        Ok(Folder::exists(data)?
            && read_identity(data, IDENTITY, MAGIC)?.external_log
            && vacant(log, LOG_IDENTITY, &[LOG]).is_ok())
    }

    /// Like [`Folder::open`], with an empty folder for the log in place of a lost one.
    /// [`Folder::complete`] makes it the aggregate's.
    ///
    /// # Errors
    /// As [`Folder::open`], and if the folder is not empty.
    pub fn renew(data: &Path, log: &Path) -> Result<Folder, StoreError> {
        let (identity, id) = identify(data)?;
        let data_lock = lock(data)?;
        let (begun, log_lock) = begin(log, LOG_IDENTITY, LOG_MAGIC, id, &[LOG], false)?;
        Ok(Folder {
            data: data.to_owned(),
            log: log.to_owned(),
            id,
            features: identity.features,
            begun: vec![begun],
            _locks: vec![data_lock, log_lock],
        })
    }

    /// Locks an empty folder (created if it is missing), or one with an interrupted creation, for a
    /// new aggregate. [`Folder::complete`] makes it one.
    ///
    /// # Errors
    /// [`StoreError::Format`] if it is in use or holds anything else, or the host refuses. Nothing
    /// of it remains in that case.
    pub fn create(data: &Path, log: Option<&Path>, id: AggregateId) -> Result<Folder, StoreError> {
        vacant(data, IDENTITY, &[DEVICE, LOG])?;
        if let Some(log) = log {
            vacant(log, LOG_IDENTITY, &[LOG])?;
            if same(data, log) {
                return Err(refuse(log, "this is the data folder: leave out --log-dir"));
            }
        }
        let files = [DEVICE, LOG];
        let (begun, lock) = begin(data, IDENTITY, MAGIC, id, &files, log.is_some())?;
        let mut folder = Folder {
            data: data.to_owned(),
            log: log.unwrap_or(data).to_owned(),
            id,
            features: features::names(),
            begun: vec![begun],
            _locks: vec![lock],
        };
        if let Some(log) = log {
            match begin(log, LOG_IDENTITY, LOG_MAGIC, id, &files, false) {
                Ok((begun, lock)) => {
                    folder.begun.push(begun);
                    folder._locks.push(lock);
                }
                Err(error) => return Err(folder.undo(error)),
            }
        }
        match make_apart(&folder.device_path(), &folder.log) {
            Ok(()) => Ok(folder),
            Err(error) => Err(folder.undo(refuse(data, error))),
        }
    }

    /// Removes everything that was created for a folder that cannot be
    /// [completed](Folder::complete) because of `error`, and returns `error`.
    pub fn undo(self, error: StoreError) -> StoreError {
        for begun in self.begun.iter().rev() {
            begun.undo();
        }
        error
    }

    /// Gives the identity files their final names, after the aggregate, or its log, has been
    /// created.
    ///
    /// # Errors
    /// [`StoreError::Format`] if the file system refuses.
    pub fn complete(&self) -> Result<(), StoreError> {
        // The log's folder first: an aggregate without a log cannot be opened.
        for FolderCreation { dir, name, .. } in self.begun.iter().rev() {
            fs::rename(dir.join(new_name(name)), dir.join(name))
                .and_then(|()| File::open(dir)?.sync_all())
                .map_err(|e| refuse(dir, e))?;
        }
        Ok(())
    }

    /// Returns the aggregate that the folder belongs to.
    pub fn id(&self) -> AggregateId {
        self.id
    }

    /// Returns the names of the format features that are on.
    pub(crate) fn features(&self) -> &[String] {
        &self.features
    }

    /// Returns the path of the aggregate's device.
    pub fn device_path(&self) -> PathBuf {
        self.data.join(DEVICE)
    }

    /// Returns the path of the intent log.
    pub fn log_path(&self) -> PathBuf {
        self.log.join(LOG)
    }

    /// Returns the files that the next start needs unchanged.
    pub fn files(&self) -> [(FileRole, PathBuf); 4] {
        [
            (FileRole::Identity, self.data.join(IDENTITY)),
            (FileRole::Device, self.device_path()),
            (FileRole::Log, self.log_path()),
            (FileRole::Lock, self.data.join(LOCK)),
        ]
    }

    /// Returns the number of blocks that the host's file system could still give to the log.
    pub fn host_free_for_log(&self) -> Option<u64> {
        free_in(&self.log)
    }
}

/// Begins a creation in a folder, which must be empty or begun before. Returns the created files,
/// and the lock.
fn begin(
    dir: &Path,
    name: &'static str,
    magic: &str,
    id: AggregateId,
    files: &[&str],
    external_log: bool,
) -> Result<(FolderCreation, File), StoreError> {
    let made = FolderCreation {
        dir: dir.to_owned(),
        name,
        missing: missing(dir),
    };
    let mut own = DirBuilder::new();
    if let Err(error) = own.recursive(true).mode(0o700).create(dir) {
        made.missing
            .iter()
            .for_each(|dir| drop(fs::remove_dir(dir)));
        return Err(refuse(dir, error));
    }
    // The identity file in the making comes first: with it the folder is recognised as Weir's, and
    // without it the folder must be empty. If one exists, another server may be creating the folder
    // now.
    let begun = dir.join(new_name(name));
    let mut own = OpenOptions::new();
    match own.write(true).create_new(true).mode(0o600).open(&begun) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(refuse(dir, e)),
        _ => {}
    }
    let lock = lock(dir)?;
    vacant(dir, name, files)?;
    let identity = Identity {
        magic: magic.to_owned(),
        format: FORMAT_VERSION,
        id: id.to_string(),
        external_log,
        features: match name {
            IDENTITY => features::names(),
            _ => Vec::new(),
        },
    };
    match write_synced(&begun, &identity) {
        Ok(()) => Ok((made, lock)),
        Err(error) => {
            made.undo();
            Err(refuse(dir, error))
        }
    }
}

/// Creates the device and the log, both empty, with inodes in different blocks. A log that is there
/// already stays, wherever it is: it may be a link to a device.
fn make_apart(device: &Path, log_folder: &Path) -> io::Result<()> {
    let block = |file: &File| {
        // There is no inode 0, and the first inode is at the beginning of a block.
        let place = |meta: fs::Metadata| (meta.dev(), meta.ino().wrapping_sub(1) / INODES_A_BLOCK);
        file.metadata().map(place)
    };
    let mut own = OpenOptions::new();
    own.write(true).create(true).truncate(false).mode(0o600);
    let taken = block(&own.open(device)?)?;
    let log = log_folder.join(LOG);
    if log.symlink_metadata().is_ok() {
        return Ok(());
    }
    // Logs created beside the device keep their inodes until one is created elsewhere.
    let mut beside = Vec::new();
    for _ in 0..INODES_A_BLOCK {
        let file = own.open(&log)?;
        if block(&file)? != taken {
            break;
        }
        fs::remove_file(&log)?;
        beside.push(file);
    }
    if !log.try_exists()? {
        // A file system whose inode numbers are not places.
        own.open(&log)?;
    }
    Ok(())
}

fn free_in(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    let bytes = stat.f_bavail.checked_mul(stat.f_frsize)?;
    Some(bytes / weir_base::BLOCK_SIZE as u64)
}

fn new_name(name: &str) -> String {
    format!("{name}.new")
}

fn same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// Checks that a folder may be used for a new aggregate.
fn vacant(dir: &Path, identity: &str, files: &[&str]) -> Result<(), StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(refuse(dir, e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|e| refuse(dir, e))?.file_name();
        if name != LOST_FOUND {
            names.push(name);
        }
    }
    let begun = new_name(identity);
    let interrupted = names.iter().any(|name| *name == *begun);
    let ours = |name: &std::ffi::OsString| {
        *name == *begun || *name == *LOCK || files.iter().any(|file| *name == **file)
    };
    if names.iter().any(|name| *name == *identity) {
        return Err(refuse(dir, "there is an aggregate in this folder"));
    }
    match names.iter().find(|name| !(interrupted && ours(name))) {
        None => Ok(()),
        Some(name) => Err(refuse(
            dir,
            format!(
                "the folder is neither empty nor an aggregate (it contains {}); \
                 name an empty or new one",
                name.to_string_lossy()
            ),
        )),
    }
}

/// Reads the identity file of a data folder.
fn identify(data: &Path) -> Result<(Identity, AggregateId), StoreError> {
    let identity = read_identity(data, IDENTITY, MAGIC)?;
    let id = parse_id(&identity.id);
    let id = id.ok_or_else(|| refuse(&data.join(IDENTITY), "the identity is damaged"))?;
    Ok((identity, id))
}

fn read_identity(dir: &Path, name: &str, magic: &str) -> Result<Identity, StoreError> {
    read_identity_with(dir, name, magic, FEATURES)
}

/// Reads an identity file as a program that knows the features `known`.
fn read_identity_with(
    dir: &Path,
    name: &str,
    magic: &str,
    known: &[Feature],
) -> Result<Identity, StoreError> {
    let path = dir.join(name);
    let mut text = String::new();
    // An identity file is a few hundred bytes; a much longer file is none.
    File::open(&path)
        .and_then(|file| file.take(65_536).read_to_string(&mut text))
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                refuse(dir, format!("not a folder of Weir: {name} does not exist"))
            }
            _ => refuse(&path, e),
        })?;
    let foreign = || refuse(&path, "this is not a description of an aggregate of Weir");
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|_| foreign())?;
    if value.get("magic").and_then(|m| m.as_str()) != Some(magic) {
        return Err(foreign());
    }
    // The version comes before the rest: another format may have other fields.
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    match format.map(u32::try_from) {
        Some(Ok(FORMAT_VERSION)) => {}
        Some(version) => {
            return Err(refuse(&path, other_format(version.unwrap_or(u32::MAX))));
        }
        None => return Err(foreign()),
    }
    let identity: Identity = serde_json::from_value(value).map_err(|_| foreign())?;
    let admitted = features::admit_with(&identity.features, known);
    admitted.map_err(|why| refuse(&path, why))?;
    Ok(identity)
}

/// Returns the format of the data folder, which a server may be using.
///
/// # Errors
/// The folder has no aggregate, or one that this program cannot open.
pub fn format(data: &Path) -> Result<AggregateFormat, StoreError> {
    format_with(data, FEATURES)
}

fn format_with(data: &Path, known: &[Feature]) -> Result<AggregateFormat, StoreError> {
    let identity = read_identity_with(data, IDENTITY, MAGIC, known)?;
    Ok(AggregateFormat {
        version: identity.format,
        off: features::off(&identity.features, known),
        on: identity.features,
    })
}

/// Switches on all format features that this program knows, durably and all at once. Returns the
/// names of those that were off.
///
/// # Errors
/// As [`format()`]; a server has the folder open; the identity file cannot be written.
pub fn switch_features_on(data: &Path) -> Result<Vec<&'static str>, StoreError> {
    switch_on_with(data, FEATURES)
}

fn switch_on_with(data: &Path, known: &[Feature]) -> Result<Vec<&'static str>, StoreError> {
    let _alone = lock(data)?;
    let mut identity = read_identity_with(data, IDENTITY, MAGIC, known)?;
    let off = features::off(&identity.features, known);
    if off.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&'static str> = off.iter().map(|feature| feature.name).collect();
    identity
        .features
        .extend(names.iter().map(|name| (*name).to_owned()));
    let (path, draft) = (data.join(IDENTITY), data.join(FEATURES_DRAFT));
    write_synced(&draft, &identity)
        .and_then(|()| fs::rename(&draft, &path))
        .and_then(|()| File::open(data)?.sync_all())
        .map_err(|error| refuse(&path, error))?;
    Ok(names)
}

fn write_synced(path: &Path, identity: &Identity) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(identity)?;
    text.push('\n');
    let mut own = OpenOptions::new();
    own.write(true).create(true).truncate(true).mode(0o600);
    let mut file = own.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Locks a folder without an aggregate of its own, such as the data folder of a server whose
/// aggregate is elsewhere, for as long as the returned file is open.
///
/// # Errors
/// [`StoreError::Format`] if another process has it.
pub fn lock_only(dir: &Path) -> Result<File, StoreError> {
    lock(dir)
}

/// Locks the folder for as long as the file is open. The lock ends with the process, however it
/// ends.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| refuse(&path, e))?;
    if !take(&file).map_err(|e| refuse(&path, e))? {
        let who = match read_holder(&file).as_str() {
            "" => String::new(),
            pid => format!(" (process {pid})"),
        };
        return Err(refuse(
            dir,
            format!("the folder is in use by another server{who}"),
        ));
    }
    // A failed creation removes its lock file.
    let there = fs::metadata(&path).is_ok_and(|there| {
        file.metadata()
            .is_ok_and(|locked| (locked.dev(), locked.ino()) == (there.dev(), there.ino()))
    });
    if !there {
        return Err(refuse(dir, "another server has just left the folder"));
    }
    // For people only; a failure to write it does not affect the aggregate.
    let _ = file.set_len(0);
    let _ = writeln!(&file, "{}", std::process::id());
    Ok(file)
}

/// Takes the lock; false if another process has it. A command that only looks whether a process has
/// the lock ([`holder`]) shares it for an instant, and is waited for.
fn take(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        match flock(file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => flock(file, FlockOperation::Unlock)?,
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(false)
}

/// Returns the process that a lock file names; empty if none.
fn read_holder(file: &File) -> String {
    let mut holder = String::new();
    let _ = file.take(32).read_to_string(&mut holder);
    holder.trim().to_owned()
}

/// Returns the process that has the folder's lock; empty if it is unknown which. `None`: no process
/// has it.
pub fn holder(dir: &Path) -> Option<String> {
    let file = File::open(dir.join(LOCK)).ok()?;
    let free = flock(&file, FlockOperation::NonBlockingLockShared);
    let held = free.is_err_and(|error| error == Errno::WOULDBLOCK);
    held.then(|| read_holder(&file))
}

fn parse_id(text: &str) -> Option<AggregateId> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let mut id = [0u8; 16];
    if digits.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8);
    }
    Some(AggregateId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: AggregateId = AggregateId([0x5A; 16]);

    fn text<T>(result: Result<T, StoreError>) -> String {
        match result {
            Ok(_) => panic!("it was accepted"),
            Err(e) => e.to_string(),
        }
    }

    fn listing(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn made(data: &Path, log: Option<&Path>) -> Folder {
        let folder = Folder::create(data, log, ID).unwrap();
        fs::write(folder.device_path(), b"d").unwrap();
        fs::write(folder.log_path(), b"l").unwrap();
        folder.complete().unwrap();
        folder
    }

    #[test]
    fn device_and_log_share_no_block_of_inodes() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..4 {
            let data = dir.path().join(format!("data{n}"));
            drop(made(&data, None));
            let block = |name| (fs::metadata(data.join(name)).unwrap().ino() - 1) / INODES_A_BLOCK;
            assert_ne!(block(DEVICE), block(LOG));
            assert_eq!(listing(&data), ["device", "lock", "log", "weir.json"]);
        }
    }

    #[test]
    fn a_prepared_log_stays_where_it_is() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        // Two files with inodes in one block, as two device nodes may have.
        let files: Vec<PathBuf> = (0..40).map(|n| dir.path().join(n.to_string())).collect();
        files.iter().for_each(|file| fs::write(file, b"").unwrap());
        let block = |file: &PathBuf| (fs::metadata(file).unwrap().ino() - 1) / INODES_A_BLOCK;
        let mut pairs = files.windows(2);
        let pair = pairs
            .find(|pair| block(&pair[0]) == block(&pair[1]))
            .unwrap();
        let data = dir.path().join("data");
        let prepare = || {
            fs::create_dir_all(&data).unwrap();
            fs::write(data.join("weir.json.new"), b"").unwrap();
            for (name, file) in [DEVICE, LOG].into_iter().zip(pair) {
                let _ = fs::remove_file(data.join(name));
                symlink(file, data.join(name)).unwrap();
            }
        };
        let links = || [DEVICE, LOG].map(|name| fs::read_link(data.join(name)).unwrap());
        prepare();
        let failed = Folder::create(&data, None, ID).unwrap();
        failed.undo(StoreError::NoSpace);
        assert_eq!(links(), *pair);
        prepare();
        drop(made(&data, None));
        assert_eq!(links(), *pair);
    }

    #[test]
    fn locked_while_others_look_who_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        drop(lock_only(dir.path()).unwrap());
        let look = File::open(dir.path().join(LOCK)).unwrap();
        flock(&look, FlockOperation::LockShared).unwrap();
        std::thread::scope(|scope| {
            let locked = scope.spawn(|| lock_only(dir.path()));
            assert_eq!(holder(dir.path()), None);
            drop(look);
            let lock = locked.join().unwrap().unwrap();
            assert!(holder(dir.path()).is_some());
            assert!(text(lock_only(dir.path())).contains("in use by another server"));
            drop(lock);
        });
    }

    #[test]
    fn made_then_opened_and_locked_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        assert!(!Folder::exists(&data).unwrap());
        let folder = made(&data, None);
        assert!(Folder::exists(&data).unwrap());
        assert!(text(Folder::open(&data, None)).contains("in use by another server (process "));
        drop(folder);
        let folder = Folder::open(&data, None).unwrap();
        assert_eq!(folder.id(), ID);
        drop(folder);
        assert!(text(Folder::create(&data, None, ID)).contains("there is an aggregate"));
        assert_eq!(listing(&data), ["device", "lock", "log", "weir.json"]);
    }

    #[test]
    fn foreign_folders_are_refused_untouched() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("holiday.jpg"), b"x").unwrap();
        assert!(text(Folder::create(dir.path(), None, ID)).contains("holiday.jpg"));
        assert!(Folder::open(dir.path(), None).is_err());
        assert_eq!(listing(dir.path()), ["holiday.jpg"]);
        fs::write(dir.path().join(IDENTITY), b"{\"magic\":\"other\"}").unwrap();
        assert!(text(Folder::open(dir.path(), None)).contains("not a description"));
        fs::write(dir.path().join(IDENTITY), vec![b'['; 100_000]).unwrap();
        assert!(text(Folder::open(dir.path(), None)).contains("not a description"));
        assert_eq!(listing(dir.path()), ["holiday.jpg", "weir.json"]);
        // A file in place of the folder.
        assert!(Folder::create(&dir.path().join("holiday.jpg"), None, ID).is_err());
    }

    #[test]
    fn another_format_is_refused_untouched() {
        let dir = tempfile::tempdir().unwrap();
        for (version, why) in [(1, "1 was never released"), (3, "3 is newer")] {
            let other = format!(r#"{{"magic":"weir-aggregate","format":{version},"id":[1,2]}}"#);
            fs::write(dir.path().join(IDENTITY), other).unwrap();
            let refused = text(Folder::open(dir.path(), None));
            assert!(
                refused.contains(&format!("format version {why}")),
                "{refused}"
            );
            assert_eq!(listing(dir.path()), ["weir.json"]);
        }
    }

    #[test]
    fn features_are_switched_on_by_hand_and_refused_by_programs_that_do_not_know_them() {
        const KNOWN: &[Feature] = &[
            Feature {
                name: "first",
                about: "",
            },
            Feature {
                name: "second",
                about: "",
            },
        ];
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let folder = made(&data, None);
        assert!(
            text(switch_on_with(&data, KNOWN)).contains("in use by another server"),
            "a server is using it"
        );
        drop(folder);
        assert_eq!(format(&data).unwrap().off, []);
        let mut identity = read_identity(&data, IDENTITY, MAGIC).unwrap();
        identity.features.clear();
        write_synced(&data.join(IDENTITY), &identity).unwrap();
        // A start switches nothing on.
        let folder = Folder::open(&data, None).unwrap();
        assert_eq!(folder.features(), [""; 0]);
        drop(folder);
        let format = format_with(&data, KNOWN).unwrap();
        assert_eq!((format.on.len(), format.off.as_slice()), (0, KNOWN));
        assert_eq!(switch_on_with(&data, &KNOWN[..1]).unwrap(), ["first"]);
        let format = format_with(&data, KNOWN).unwrap();
        assert_eq!(format.on, ["first"]);
        assert_eq!(format.off, &KNOWN[1..]);
        assert_eq!(switch_on_with(&data, KNOWN).unwrap(), ["second"]);
        assert_eq!(switch_on_with(&data, KNOWN).unwrap(), [""; 0]);

        // A program that knows the first alone.
        let before = fs::read(data.join(IDENTITY)).unwrap();
        let refused = text(read_identity_with(&data, IDENTITY, MAGIC, &KNOWN[..1]));
        assert!(refused.contains("does not know: second"), "{refused}");
        let refused = text(switch_on_with(&data, &KNOWN[..1]));
        assert!(refused.contains("does not know: second"), "{refused}");
        let refused = text(Folder::open(&data, None));
        assert!(
            refused.contains("does not know: first, second"),
            "{refused}"
        );
        assert_eq!(fs::read(data.join(IDENTITY)).unwrap(), before);
        assert_eq!(listing(&data), ["device", "lock", "log", "weir.json"]);
    }

    #[test]
    fn an_interrupted_creation_is_begun_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(LOST_FOUND)).unwrap();
        let folder = Folder::create(dir.path(), None, ID).unwrap();
        fs::write(folder.device_path(), b"half").unwrap();
        assert!(text(Folder::create(dir.path(), None, ID)).contains("in use"));
        drop(folder);
        assert!(!Folder::exists(dir.path()).unwrap());
        drop(made(dir.path(), None));
        Folder::open(dir.path(), None).unwrap();
    }

    #[test]
    fn a_creation_that_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), b"x").unwrap();
        let data = dir.path().join("a/b");
        // The log's folder cannot be created; then the device cannot.
        let log = dir.path().join("file/log");
        assert!(text(Folder::create(&data, Some(&log), ID)).contains("file/log"));
        assert_eq!(listing(dir.path()), ["file"]);
        let log = dir.path().join("log");
        let folder = Folder::create(&data, Some(&log), ID).unwrap();
        fs::write(folder.device_path(), b"d").unwrap();
        fs::write(folder.log_path(), b"l").unwrap();
        assert!(matches!(
            folder.undo(StoreError::NoSpace),
            StoreError::NoSpace
        ));
        assert_eq!(listing(dir.path()), ["file"]);
        // An empty folder that existed before stays.
        fs::create_dir_all(&data).unwrap();
        Folder::create(&data, None, ID)
            .unwrap()
            .undo(StoreError::NoSpace);
        assert!(listing(&data).is_empty());
    }

    #[test]
    fn log_folders_must_belong_together() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(text(Folder::create(&at("a"), Some(&at("a")), ID)).contains("leave out"));
        drop(made(&at("a"), Some(&at("la"))));
        assert_eq!(listing(&at("la")), ["lock", "log", "weir-log.json"]);
        assert_eq!(listing(&at("a")), ["device", "lock", "weir.json"]);
        drop(Folder::open(&at("a"), Some(&at("la"))).unwrap());
        assert!(text(Folder::open(&at("a"), None)).contains("name it with --log-dir"));

        let other = Folder::create(&at("b"), Some(&at("lb")), AggregateId([1; 16])).unwrap();
        other.complete().unwrap();
        drop(other);
        assert!(
            text(Folder::open(&at("a"), Some(&at("lb")))).contains("holds the log of aggregate")
        );
        assert!(
            text(Folder::create(&at("c"), Some(&at("lb")), ID)).contains("there is an aggregate")
        );
        assert!(!at("c").exists());
        drop(made(&at("d"), None));
        assert!(text(Folder::open(&at("d"), Some(&at("la")))).contains("leave out --log-dir"));
    }

    #[test]
    fn a_lost_log_folder_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(
            !Folder::log_is_lost(&at("a"), &at("la")).unwrap(),
            "nothing was made"
        );
        drop(made(&at("a"), Some(&at("la"))));
        assert!(!Folder::log_is_lost(&at("a"), &at("la")).unwrap());
        assert!(text(Folder::renew(&at("a"), &at("la"))).contains("there is an aggregate"));
        fs::remove_dir_all(at("la")).unwrap();
        assert!(Folder::open(&at("a"), Some(&at("la"))).is_err());
        assert!(Folder::log_is_lost(&at("a"), &at("la")).unwrap());
        // An interrupted renewal is begun again.
        drop(Folder::renew(&at("a"), &at("la")).unwrap());
        assert!(Folder::log_is_lost(&at("a"), &at("la")).unwrap());
        let folder = Folder::renew(&at("a"), &at("la")).unwrap();
        assert_eq!(folder.id(), ID);
        fs::write(folder.log_path(), b"l").unwrap();
        folder.complete().unwrap();
        drop(folder);
        drop(Folder::open(&at("a"), Some(&at("la"))).unwrap());
        // A folder with other files stays as it is.
        fs::create_dir(at("lb")).unwrap();
        fs::write(at("lb/photo"), b"x").unwrap();
        assert!(!Folder::log_is_lost(&at("a"), &at("lb")).unwrap());
        assert!(text(Folder::renew(&at("a"), &at("lb"))).contains("photo"));
        drop(made(&at("d"), None));
        assert!(
            !Folder::log_is_lost(&at("d"), &at("none")).unwrap(),
            "it is inside"
        );
    }

    #[test]
    fn identities_are_parsed_strictly() {
        assert_eq!(parse_id(&ID.to_string()), Some(ID));
        assert_eq!(parse_id("5a"), None);
        assert_eq!(parse_id(&"g".repeat(32)), None);
    }
}
