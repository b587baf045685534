//! Watches that the files that this server writes are those that the next start will open.
//!
//! A reply that a change is durable promises that it is there after a restart. If the data folder
//! is deleted, moved or covered by a mount while the server runs, or a file in it is replaced or
//! truncated, writes to the open descriptors still succeed, but their data will never be read
//! again. So a thread compares the files at the paths with the opened files some times a second,
//! which costs some calls of stat(2). A changed file of the aggregate makes the aggregate
//! read-only: reads continue, and no reply reports a change as durable. If the catalog has changed,
//! the API refuses every change. Both last until a restart, since this thread cannot verify that
//! the files are right again.
//!
//! Losing the lock file alone does no harm: device and log are locked as well.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use weir_base::BLOCK_SIZE;
use weir_control::Control;
use weir_store::folder::FileRole;
use weir_volume::Engine;

use crate::fill::{self, Fill};
use crate::health::{AGGREGATE_FULL, Health, Subject};
use crate::room::{self, DiskReserve};

/// Time between two polls of the files.
const PERIOD: Duration = Duration::from_millis(250);

/// Identifies a file: its device and inode.
type Identity = (u64, u64);

/// A file as it was opened.
struct WatchedFile {
    path: PathBuf,
    identity: Identity,
}

/// Change of a file since it was opened.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Gone,
    Replaced,
    Truncated(u64),
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::Gone => f.write_str("is not there any more"),
            Change::Replaced => f.write_str("is another file than the one that was opened"),
            Change::Truncated(bytes) => write!(f, "was truncated to {bytes} bytes"),
        }
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

impl WatchedFile {
    fn from_path(path: PathBuf) -> Result<WatchedFile> {
        let metadata = fs::metadata(&path).with_context(|| path.display().to_string())?;
        Ok(WatchedFile {
            identity: identity(&metadata),
            path,
        })
    }

    /// Returns the change since the file was opened. A regular file has to have `least` bytes.
    fn change(&self, least: u64) -> Option<Change> {
        match fs::metadata(&self.path) {
            Ok(now) if identity(&now) != self.identity => Some(Change::Replaced),
            Ok(now) if now.is_file() && now.len() < least => Some(Change::Truncated(now.len())),
            Ok(_) => None,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Some(Change::Gone),
                // It may pass.
                _ => None,
            },
        }
    }
}

/// The files of an open aggregate.
pub struct Files {
    engine: Arc<Engine>,
    known: Vec<(FileRole, WatchedFile)>,
    log_bytes: u64,
}

impl Files {
    /// Records the files as they are now; call this right after they were opened.
    ///
    /// # Errors
    /// If one of them is gone already.
    pub fn from_engine(engine: Arc<Engine>) -> Result<Files> {
        let mut known = Vec::new();
        for (role, path) in engine.aggregate().files() {
            known.push((role, WatchedFile::from_path(std::path::absolute(path)?)?));
        }
        let log = known.iter().find(|(role, _)| *role == FileRole::Log);
        let log_bytes = match log {
            Some((_, log)) => fs::metadata(&log.path)?.len(),
            None => 0,
        };
        Ok(Files {
            engine,
            known,
            log_bytes,
        })
    }

    fn poll_space(&self, fill: &mut Fill, health: &Health) -> fill::State {
        let aggregate = self.engine.aggregate();
        let space = aggregate.space();
        let state = fill.poll(aggregate.physical(), space.is_refusing(), health);
        if state == fill::State::Enough {
            space.note_enough();
        }
        state
    }

    fn poll(&self, health: &Health, control: &Control) {
        // Before the file's own length: it grows first.
        let device_bytes = self.engine.aggregate().space().stats().total * BLOCK_SIZE as u64;
        for (role, known) in &self.known {
            let least = match role {
                FileRole::Device => device_bytes,
                FileRole::Log => self.log_bytes,
                FileRole::Identity | FileRole::Lock => 0,
            };
            let Some(change) = known.change(least) else {
                if *role == FileRole::Lock {
                    health.clear(Subject::Lock);
                }
                continue;
            };
            let path = known.path.display();
            if *role == FileRole::Lock {
                health.raise(
                    Subject::Lock,
                    &format!(
                        "{path} {change}; device and log are still locked, but do not start another server on this folder"
                    ),
                );
            } else if !health.has_problem(Subject::Aggregate) {
                let why = format!(
                    "{path} {change}: what is written now would be lost, so nothing is accepted any more. Put it back and restart"
                );
                self.engine.aggregate().poison(&why);
                health.raise(Subject::Aggregate, &why);
                control.halt(&why);
            }
        }
    }
}

/// A catalog in a file, with what SQLite has beside it.
struct CatalogFiles {
    main: WatchedFile,
    /// Identities of the write-ahead log and its index at the last poll. SQLite may create them
    /// again after it has closed all connections.
    beside: BTreeMap<PathBuf, Option<Identity>>,
    /// At the last poll one of them was still open here, though it had been deleted.
    suspicious: bool,
}

impl CatalogFiles {
    fn from_path(file: &Path) -> Result<CatalogFiles> {
        let file = std::path::absolute(file)?;
        // As /proc has it.
        let real = fs::canonicalize(&file).with_context(|| file.display().to_string())?;
        let beside = ["-wal", "-shm"].map(|tail| {
            let mut name = real.as_os_str().to_owned();
            name.push(tail);
            let path = PathBuf::from(name);
            let now = fs::metadata(&path).ok().map(|m| identity(&m));
            (path, now)
        });
        Ok(CatalogFiles {
            main: WatchedFile::from_path(file)?,
            beside: beside.into(),
            suspicious: false,
        })
    }

    fn poll(&mut self, health: &Health, control: &Control) {
        if health.has_problem(Subject::Catalog) {
            return;
        }
        let path = self.main.path.display();
        let mut why = self.main.change(0).map(|change| format!("{path} {change}"));
        let mut changed = self.suspicious;
        for (path, before) in &mut self.beside {
            let now = fs::metadata(path).ok().map(|m| identity(&m));
            changed |= before.is_some() && now != *before;
            *before = now;
        }
        if changed && why.is_none() {
            let deleted = self.beside.keys().find(|path| is_open_but_deleted(path));
            // SQLite itself closes them right after deleting them.
            let again = std::mem::replace(&mut self.suspicious, deleted.is_some());
            why = deleted
                .filter(|_| again)
                .map(|path| format!("{} was deleted while it was in use", path.display()));
        }
        if let Some(why) = why {
            let why = format!(
                "{why}: what the API would change now would be lost, so it refuses every change. Put the catalog back and restart"
            );
            health.raise(Subject::Catalog, &why);
            control.halt(&why);
        }
    }
}

/// Returns true if this process has a deleted file open that was at `path`.
fn is_open_but_deleted(path: &Path) -> bool {
    let mut wanted = path.as_os_str().to_owned();
    wanted.push(" (deleted)");
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|target| target.as_os_str() == wanted)
}

/// The thread that polls. Dropping it ends it.
pub struct Watch {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to poll the aggregate's files, the catalog if it is in a file, and the free space.
    ///
    /// # Errors
    /// If a thread cannot be started, or the catalog's file is gone already.
    pub fn start(
        files: Files,
        catalog: Option<&Path>,
        mut room: DiskReserve,
        health: Arc<Health>,
        control: Arc<Control>,
    ) -> Result<Watch> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let mut catalog = catalog.map(CatalogFiles::from_path).transpose()?;
        let mut fill = Fill::default();
        if let Some(catalog) = &catalog {
            room::for_catalog(&catalog.main.path);
        }
        let thread = std::thread::Builder::new()
            .name("weir-watch".to_owned())
            .spawn(move || {
                let (stop, woken) = &*stopped;
                let mut stop = stop.lock();
                while !*stop {
                    parking_lot::MutexGuard::unlocked(&mut stop, || {
                        files.poll(&health, &control);
                        if let Some(catalog) = &mut catalog {
                            catalog.poll(&health, &control);
                        }
                        let host_full = room.poll();
                        let full = files.poll_space(&mut fill, &health) == fill::State::Full;
                        if host_full || full {
                            let why = if host_full {
                                "the host's file system is full: free some space on it"
                            } else {
                                AGGREGATE_FULL
                            };
                            health.raise(Subject::Space, why);
                        } else {
                            health.clear(Subject::Space);
                        }
                    });
                    if !*stop {
                        woken.wait_for(&mut stop, PERIOD);
                    }
                }
            })
            .context("starting a thread")?;
        Ok(Watch {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has ended the process.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, [1; 100]).unwrap();
        let known = WatchedFile::from_path(path.clone()).unwrap();
        assert_eq!(known.change(100), None);
        assert_eq!(known.change(101), Some(Change::Truncated(100)));
        let away = folder.path().join("g");
        fs::rename(&path, &away).unwrap();
        assert_eq!(known.change(0), Some(Change::Gone));
        fs::write(&path, [1; 100]).unwrap();
        assert_eq!(known.change(0), Some(Change::Replaced));
        fs::rename(&away, &path).unwrap();
        assert_eq!(known.change(100), None);
        drop(folder);
        assert_eq!(known.change(0), Some(Change::Gone));
    }

    #[test]
    fn a_deleted_file_that_is_open_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("f");
        let open = fs::File::create(&path).unwrap();
        assert!(!is_open_but_deleted(&path));
        fs::remove_file(&path).unwrap();
        assert!(is_open_but_deleted(&path));
        drop(open);
        assert!(!is_open_but_deleted(&path));
    }
}
