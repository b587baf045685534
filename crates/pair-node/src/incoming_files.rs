//! Files that the primary sends to its standby beside the stream.

use std::path::Path;

use anyhow::{Context, Result, bail};
use weir_base::small_file;

use super::files::{CATALOG, MOST};
use super::pair::Pair;

/// A file that is coming.
#[derive(Default)]
pub struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    /// The next piece.
    ///
    /// # Errors
    /// It is none of those files, too large, or cannot be written.
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
            bail!("a file for a node that serves");
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
    let folder = path.parent().context("the catalog's folder")?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .context("the catalog's name")?;
    // Those of a catalog that was served from here.
    for tail in ["-wal", "-shm"] {
        match std::fs::remove_file(folder.join(format!("{name}{tail}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(small_file::replace(folder, name, bytes)?)
}
