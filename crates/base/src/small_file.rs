//! Small files that are read whole and replaced whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Reads a file; `None` if it does not exist.
///
/// # Errors
/// Any other error of the file system.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the contents of the file `name` in `folder`, durably: after a crash it has the old
/// contents or the new ones. Only the owner may read the file.
///
/// # Errors
/// Those of the file system; the file then has its old contents.
pub fn replace(folder: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}
