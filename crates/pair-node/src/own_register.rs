//! The register of a pair without a witness, which the side that has the last word keeps in a
//! folder of its data folder.

use std::path::Path;

use anyhow::Result;
use weir_mirror::{FileWitness, Register};

/// The register of the side that has the last word, in a folder of the data folder.
pub const FOLDER: &str = "pair-register";
/// Marker file in [`FOLDER`]: the other side has connected, and may have been made to serve since.
pub const MET: &str = "met";
/// Marker file for one start: a user makes this side serve, whatever the other one does.
const BY_HAND: &str = "by-hand";

/// Gives this side the last word from now on, with `register`, whatever the other side does until
/// this node has started again.
pub fn take(folder: &Path, id: [u8; 16], register: Register) -> Result<()> {
    let folder = folder.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    FileWitness::open(&folder)?.keep(id, &register)?;
    note(&folder, BY_HAND)
}

/// Returns true if a user has made this side serve from this start on, and removes that mark.
pub fn was_taken(folder: &Path) -> Result<bool> {
    match std::fs::remove_file(folder.join(FOLDER).join(BY_HAND)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Records that the other side has connected and may hold a copy from now on.
pub fn has_met(folder: &Path) -> Result<()> {
    let folder = folder.join(FOLDER);
    match folder.join(MET).exists() {
        true => Ok(()),
        false => note(&folder, MET),
    }
}

fn note(folder: &Path, name: &str) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::File::create(folder.join(name))?.sync_all()?;
    Ok(std::fs::File::open(folder)?.sync_all()?)
}

/// Removes the register of a pair that has ended.
pub fn forget(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder.join(FOLDER)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
