//! Files that the primary sends to its standby beside the stream.

use std::path::Path;

use anyhow::{Context, Result, bail};
use weir_base::small_file;

use super::files::{CATALOG, MOST};
use super::pair::Pair;

/// A file that is being received.
#[derive(Default)]
pub struct IncomingFile {
    bytes: Vec<u8>,
}

impl IncomingFile {
    /// Takes the next piece; writes the file after its last one.
    ///
    /// # Errors
    /// The file is not one of a pair's, is too large, or cannot be written; or this node serves.
    pub fn take(
        &mut self,
        pair: &Pair,
        name: &str,
        bytes: &[u8],
        first: bool,
        last: bool,
    ) -> Result<()> {
        if first {
            self.bytes.clear();
        }
        if self.bytes.len() + bytes.len() > MOST {
            bail!("{name} is too large");
        }
        self.bytes.extend(bytes);
        if !last {
            return Ok(());
        }
        if pair.inner.lock().rules.serving() {
            bail!("cannot take a file from the partner: this node serves");
        }
        let whole = std::mem::take(&mut self.bytes);
        if let Some(name) = pair.shipped_files.iter().find(|other| **other == name) {
            return Ok(small_file::replace(&pair.folder, name, &whole)?);
        }
        match (name, &pair.catalog) {
            (CATALOG, Some(path)) => put_catalog(path, &whole),
            _ => bail!("{name} is no file of a pair"),
        }
    }
}

fn put_catalog(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path
        .parent()
        .context("cannot replace the catalog: its path has no folder")?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .context("cannot replace the catalog: its path has no file name in UTF-8")?;
    // Remains of a catalog that this node served itself.
    for tail in ["-wal", "-shm"] {
        match std::fs::remove_file(folder.join(format!("{name}{tail}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(small_file::replace(folder, name, bytes)?)
}
