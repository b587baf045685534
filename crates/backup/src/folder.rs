//! A folder as a bucket: of another disk, or of a file system that another machine exports.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::bucket::{Bucket, BucketError};

/// A folder that holds objects as files.
pub struct Folder {
    root: PathBuf,
}

/// Files under construction have this ending, which no object has.
const UNFINISHED: &str = ".unfinished";

fn failed(name: &str, error: &io::Error) -> BucketError {
    let said = format!("{name}: {error}");
    match error.kind() {
        io::ErrorKind::NotFound => BucketError::Missing(name.to_owned()),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BucketError::Full(said),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            BucketError::Denied(said)
        }
        io::ErrorKind::Interrupted | io::ErrorKind::TimedOut => BucketError::Unavailable(said),
        _ => BucketError::Refused(said),
    }
}

impl Folder {
    /// Uses an existing folder.
    ///
    /// # Errors
    /// `Missing`, `Denied`; `Refused` if it is no folder.
    pub fn new(root: &Path) -> Result<Folder, BucketError> {
        let name = root.display().to_string();
        let found = fs::metadata(root).map_err(|e| failed(&name, &e))?;
        match found.is_dir() {
            true => Ok(Folder { root: root.into() }),
            false => Err(BucketError::Refused(format!("{name} is no folder"))),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.root.join(name);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let moved = written.and_then(|()| fs::rename(&unfinished, &path));
        if moved.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        moved?;
        File::open(folder)?.sync_all()
    }

    fn below(&self, folder: &Path, into: &mut Vec<String>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.below(&path, into)?;
                continue;
            }
            let name = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
            if let Some(name) = name.filter(|name| !name.ends_with(UNFINISHED)) {
                into.push(name.to_owned());
            }
        }
        Ok(())
    }
}

impl Bucket for Folder {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BucketError> {
        self.write(name, bytes).map_err(|e| failed(name, &e))
    }

    fn get(&self, name: &str, from: u64, length: u64) -> Result<Vec<u8>, BucketError> {
        let read = || {
            let mut file = File::open(self.root.join(name))?;
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(length).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|e| failed(name, &e))
    }

    fn size(&self, name: &str) -> Result<u64, BucketError> {
        let found = fs::metadata(self.root.join(name));
        found.map(|m| m.len()).map_err(|e| failed(name, &e))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, BucketError> {
        let (folder, _) = prefix.rsplit_once('/').unwrap_or(("", prefix));
        let mut names = Vec::new();
        match self.below(&self.root.join(folder), &mut names) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(|e| failed(prefix, &e))?,
        }
        names.retain(|name| name.starts_with(prefix));
        Ok(names)
    }

    fn delete(&self, name: &str) -> Result<(), BucketError> {
        match fs::remove_file(self.root.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|e| failed(name, &e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_files_of_which_unfinished_ones_are_not_seen() {
        let at = tempfile::tempdir().unwrap();
        let folder = Folder::new(at.path()).unwrap();
        folder.put("v/packs/a", b"0123456789").unwrap();
        folder.put("v/packs/ab", b"").unwrap();
        folder.put("w/x", b"x").unwrap();
        fs::write(at.path().join("v/packs/b.unfinished"), b"half").unwrap();
        assert_eq!(folder.get("v/packs/a", 8, 9).unwrap(), b"89");
        assert_eq!(folder.size("v/packs/a").unwrap(), 10);
        let mut names = folder.list("v/packs/").unwrap();
        names.sort();
        assert_eq!(names, ["v/packs/a", "v/packs/ab"]);
        assert_eq!(folder.list("nothing/").unwrap(), [""; 0]);
        folder.delete("v/packs/a").unwrap();
        folder.delete("v/packs/a").unwrap();
        let missing = BucketError::Missing("v/packs/a".into());
        assert_eq!(folder.get("v/packs/a", 0, 1), Err(missing.clone()));
        assert_eq!(folder.size("v/packs/a"), Err(missing));
        assert!(Folder::new(&at.path().join("none")).is_err());
        assert!(Folder::new(&at.path().join("w/x")).is_err());
    }
}
