//! The register of a pair without a witness, which the side that has the last word keeps in a
//! folder of its data folder.

use std::path::Path;

use anyhow::Result;
use weir_mirror::{FileWitness, Register};

/// The register of the side that has the last word, in a folder of the data folder.
pub const FOLDER: &str = "pair-register";
/// In it: the other side has been there, and may have been made to serve since.
pub const MET: &str = "met";
/// A user has this side serve, whatever the other one does; for one start.
const BY_HAND: &str = "by-hand";

/// This side has the last word from now on, whatever the other does until this one has started
/// again, and the register is this.
pub fn take(folder: &Path, id: [u8; 16], register: Register) -> Result<()> {
    let folder = folder.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    FileWitness::open(&folder)?.keep(id, &register)?;
    note(&folder, BY_HAND)
}

/// Whether a user has this side serve from this start on. Says so once.
pub fn was_taken(folder: &Path) -> Result<bool> {
    match std::fs::remove_file(folder.join(FOLDER).join(BY_HAND)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The other side has been there: it may have a copy from now on.
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

/// The pair is no more.
pub fn forget(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder.join(FOLDER)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
