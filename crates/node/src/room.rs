//! Room on the host's file system for what has to be written when it is full.
//!
//! A server on a full disk must start, so that something can be deleted. The device and the log are
//! provisioned. The catalog's write-ahead log and some small files need space at a start, and for
//! each change through the API. So a file of some mebibytes is kept in the data folder. It is
//! deleted when the file system is (nearly) full, and created again when there is space. The device
//! does not grow into that space (`weir_store::HOST_MARGIN`). The catalog's log is provisioned at
//! once, so that other writers to the disk do not take the space.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The file in the data folder.
const NAME: &str = "reserve";
/// Bytes that it keeps.
const BYTES: u64 = 16 << 20;
/// With less than this free at a start, it is deleted.
const LOW_AT_START: u64 = 8 << 20;
/// And while the server runs.
const LOW: u64 = 1 << 20;
/// It is made anew with so much free.
const PLENTY: u64 = 8 * BYTES;
/// Bytes that the catalog's log is provisioned with: some hundred changes.
const CATALOG_LOG: u64 = 4 << 20;

/// See the module's head.
pub struct DiskReserve {
    folder: PathBuf,
    /// Its file has its space.
    kept: bool,
    /// The space was released, because the file system was full.
    released: bool,
    /// The file system cannot keep space for a file.
    unable: bool,
}

impl DiskReserve {
    /// Creates the reserve in a data folder that this process has locked, or releases it if the
    /// disk is nearly full. Call this before anything else is written there.
    pub fn at_start(folder: &Path) -> DiskReserve {
        let mut room = DiskReserve {
            folder: folder.to_owned(),
            kept: false,
            released: false,
            unable: false,
        };
        match free(folder) {
            Ok(free) if free < LOW_AT_START => room.release(free),
            Ok(_) => room.keep(),
            Err(error) => tracing::warn!(%error, "cannot tell how much space the host has"),
        }
        room
    }

    fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Releases the reserve when the host's file system becomes full, and creates it again when
    /// there is enough space. Returns true while it is released.
    pub fn poll(&mut self) -> bool {
        let Ok(free) = free(&self.folder) else {
            return false;
        };
        if free < LOW && self.kept {
            self.release(free);
        } else if free > PLENTY && !self.kept && !self.unable {
            self.keep();
        }
        self.released
    }

    fn keep(&mut self) {
        let made = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path())
            .and_then(|file| provision(&file, BYTES, false));
        match made {
            Ok(()) => {
                self.kept = true;
                self.released = false;
            }
            Err(error) => {
                tracing::warn!(%error, "no space can be kept for when the host's file system is full");
                self.unable = true;
                // What a failed call did provide.
                self.remove();
            }
        }
    }

    fn release(&mut self, free: u64) {
        self.kept = false;
        self.released = true;
        self.remove();
        tracing::error!(
            free,
            "host's file system is full: what was kept for that is released, so that things can be deleted"
        );
    }

    fn remove(&self) {
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(%error, "cannot remove the reserve");
            }
            _ => {}
        }
    }
}

/// Provisions the write-ahead log of a catalog in a file: SQLite reuses it from its beginning, and
/// does not shorten it.
pub fn for_catalog(file: &Path) {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    // SQLite has no locks on this file that closing a descriptor of it would undo.
    let provided = OpenOptions::new()
        .write(true)
        .open(&log)
        .and_then(|log| provision(&log, CATALOG_LOG, true));
    if let Err(error) = provided {
        tracing::debug!(%error, "the catalog's log has no space of its own");
    }
}

/// Reserves space on the host's file system for the first `bytes` of a file.
fn provision(file: &File, bytes: u64, keep_size: bool) -> io::Result<()> {
    let mode = match keep_size {
        true => FallocateFlags::KEEP_SIZE,
        false => FallocateFlags::empty(),
    };
    Ok(fallocate(file, mode, 0, bytes)?)
}

/// Bytes that this process may still write on the file system of `folder`.
fn free(folder: &Path) -> io::Result<u64> {
    let stat = statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_kept_and_released() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = DiskReserve::at_start(folder.path());
        let path = folder.path().join(NAME);
        let kept = |path: &Path| {
            use std::os::unix::fs::MetadataExt as _;
            fs::metadata(path).map_or(0, |m| m.blocks() * 512)
        };
        assert!(room.kept && kept(&path) >= BYTES);
        assert!(!room.poll());
        room.release(0);
        assert!(!path.exists() && room.released);
        assert!(!room.poll(), "there is plenty");
        assert!(room.kept && kept(&path) >= BYTES);
    }
}
