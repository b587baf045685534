//! The data folder: access by other users, and the secret of file handles.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use weir_base::Rng;
use weir_base::small_file::{read, replace};

/// The file with the secret that file handles are sealed with.
pub const HANDLE_KEY: &str = "handle-key";
/// Bytes of the secret.
const KEY_BYTES: usize = 16;
/// A file of versions before the first release.
const CLIENTS: &str = "clients";

/// Closes a folder of the server, and the files in it, to all other users: it holds data, keys and
/// permissions. Folders within are not entered; other users cannot reach them any more.
///
/// # Errors
/// The folder or a file in it is another user's.
pub fn close_to_others(folder: &Path) -> Result<()> {
    close(folder)?;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            close(&entry.path())?;
        }
    }
    Ok(())
}

fn close(path: &Path) -> Result<()> {
    const OTHERS: u32 = 0o077;
    let place = || path.display().to_string();
    let mode = fs::symlink_metadata(path)
        .with_context(place)?
        .permissions()
        .mode()
        & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & !OTHERS)).with_context(|| {
        format!(
            "other users may read {} (mode {mode:04o}), and it could not be closed to them; \
             make it the server's own (chown), or serve a folder within it",
            place()
        )
    })?;
    tracing::warn!(
        "{} was open to other users (mode {mode:04o}), and is not any more",
        place()
    );
    Ok(())
}

/// The secret that `folder`'s file handles are sealed with; made at the first start.
///
/// Handles outlive the server (a client keeps its mount over a restart), and clients must not
/// be able to make them up: so it is random, and kept.
pub fn handle_key(folder: &Path, rng: &dyn Rng) -> Result<[u8; KEY_BYTES]> {
    let path = folder.join(HANDLE_KEY);
    let place = || path.display().to_string();
    let mut key = [0; KEY_BYTES];
    if let Some(bytes) = read(&path).with_context(place)? {
        let len = bytes.len();
        ensure!(
            len == KEY_BYTES,
            "{} has {len} bytes instead of {KEY_BYTES}: it is damaged",
            place()
        );
        key.copy_from_slice(&bytes);
    } else {
        for word in key.chunks_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        replace(folder, HANDLE_KEY, &key).with_context(place)?;
    }
    Ok(key)
}

/// Returns true if a server has been started on a folder.
pub fn is_served(folder: &Path) -> bool {
    folder.join(HANDLE_KEY).is_file()
}

/// Refuses a folder with the lock records of a version before the first release. This version does
/// not read them, and would grant those locks to other clients without a grace period.
///
/// # Errors
/// The file is in the folder, or that cannot be determined.
pub fn refuse_client_file(folder: &Path) -> Result<()> {
    let path = folder.join(CLIENTS);
    ensure!(
        !path.try_exists()?,
        "{} is of a version before the first release, which knew from it whose locks to keep over a restart. When no client \
         has locks of before any more, delete it and start again",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::SeededRng;

    #[test]
    fn a_key_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = handle_key(folder.path(), &SeededRng::new(1)).unwrap();
        assert_ne!(first, [0; KEY_BYTES]);
        assert_eq!(
            handle_key(folder.path(), &SeededRng::new(2)).unwrap(),
            first
        );
        fs::write(folder.path().join(HANDLE_KEY), "short").unwrap();
        assert!(handle_key(folder.path(), &SeededRng::new(3)).is_err());
    }

    #[test]
    fn a_folder_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            let path = folder.path().join(name);
            fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
        };
        let set = |name: &str, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(folder.path().join(name), mode).unwrap();
        };
        fs::create_dir(folder.path().join("within")).unwrap();
        for (name, open) in [("a", 0o644), ("b", 0o600), ("c", 0o777)] {
            fs::write(folder.path().join(name), "x").unwrap();
            set(name, open);
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let elsewhere = fs::metadata("/etc/passwd").unwrap().permissions().mode();
        set("within", 0o755);
        set(".", 0o2775);
        close_to_others(folder.path()).unwrap();
        assert_eq!(mode("."), 0o2700);
        assert_eq!((mode("a"), mode("b"), mode("c")), (0o600, 0o600, 0o700));
        assert_eq!(mode("within"), 0o755);
        let now = fs::metadata("/etc/passwd").unwrap().permissions().mode();
        assert_eq!(now, elsewhere, "what a link leads to is not the folder's");
    }

    #[test]
    fn a_file_of_clients_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        refuse_client_file(folder.path()).unwrap();
        fs::write(
            folder.path().join("clients"),
            "weir client records, version 1\n",
        )
        .unwrap();
        let refused = refuse_client_file(folder.path()).unwrap_err().to_string();
        assert!(
            refused.contains("clients is of a version before"),
            "{refused}"
        );
    }
}
