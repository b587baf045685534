//! A witness that keeps its registers in files: one file of one line for each aggregate, replaced
//! as a whole.
//!
//! A line has the format's name and number, version, term, primary, `mirrored` or `alone`, and the
//! CRC32C of all before it. It is written under another name, flushed, renamed, and the folder
//! flushed: after a crash there is the old line or the new one. A file that is neither is damaged,
//! and the register is unreachable until it is repaired by hand, because recreating it could give
//! the aggregate two primaries. Only one process has the folder at a time; it handles requests one
//! by one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::register::{Register, Side, Swap, Unreachable, Witness};

const FORM: &str = "weir-witness 1";

/// A witness with files: see the module's head.
#[derive(Debug)]
pub struct FileWitness {
    folder: PathBuf,
    /// Lock file, held until this is dropped.
    _lock: File,
}

fn unreachable_as(what: &str) -> impl Fn(io::Error) -> Unreachable + '_ {
    move |error| Unreachable(format!("{what}: {error}"))
}

fn encode(register: &Register) -> String {
    let primary = match register.primary {
        Side::A => 'A',
        Side::B => 'B',
    };
    let partner = match register.mirrored {
        true => "mirrored",
        false => "alone",
    };
    let (version, term) = (register.version, register.term);
    let line = format!("{FORM} {version} {term} {primary} {partner}");
    format!("{line} {:08x}\n", crc32c::crc32c(line.as_bytes()))
}

fn decode(text: &str) -> Option<Register> {
    let (line, sum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(line.as_bytes()) {
        return None;
    }
    let mut words = line.strip_prefix(FORM)?.strip_prefix(' ')?.split(' ');
    let register = Register {
        version: words.next()?.parse().ok()?,
        term: words.next()?.parse().ok()?,
        primary: match words.next()? {
            "A" => Side::A,
            "B" => Side::B,
            _ => return None,
        },
        mirrored: match words.next()? {
            "mirrored" => true,
            "alone" => false,
            _ => return None,
        },
    };
    words.next().is_none().then_some(register)
}

impl FileWitness {
    /// Opens the folder, which has to exist.
    ///
    /// # Errors
    /// If another process has it open, or its files cannot be written.
    pub fn open(folder: &Path) -> Result<FileWitness, Unreachable> {
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(unreachable_as("lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Unreachable("another process uses the folder".into()));
        }
        Ok(FileWitness {
            folder: folder.to_owned(),
            _lock: lock,
        })
    }

    /// Overwrites a register, whatever its state, for a user who has decided so.
    ///
    /// # Errors
    /// The file system's error.
    pub fn keep(&mut self, aggregate: [u8; 16], register: &Register) -> Result<(), Unreachable> {
        self.write(aggregate, register)
            .map_err(unreachable_as("write"))
    }

    fn path(&self, aggregate: [u8; 16]) -> PathBuf {
        let name = u128::from_be_bytes(aggregate);
        self.folder.join(format!("{name:032x}"))
    }

    fn write(&self, aggregate: [u8; 16], register: &Register) -> io::Result<()> {
        let path = self.path(aggregate);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(encode(register).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()
    }
}

impl Witness for FileWitness {
    fn read(&mut self, aggregate: [u8; 16]) -> Result<Option<Register>, Unreachable> {
        let path = self.path(aggregate);
        match fs::read_to_string(&path) {
            Ok(text) => match decode(&text) {
                Some(register) => Ok(Some(register)),
                None => Err(Unreachable(format!("{} is damaged", path.display()))),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(unreachable_as("read")(e)),
        }
    }

    fn swap(&mut self, aggregate: [u8; 16], to: Register) -> Result<Swap, Unreachable> {
        match self.read(aggregate)? {
            Some(now) if now.version + 1 != to.version => Ok(Swap::Lost(now)),
            None if to.version != 1 => Err(Unreachable("the register does not exist".into())),
            _ => {
                let written = self.write(aggregate, &to);
                written.map_err(unreachable_as("write"))?;
                Ok(Swap::Done(to))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_survive_and_damage_is_no_empty_register() {
        let folder = tempfile::tempdir().unwrap();
        let id = [9; 16];
        let first = Register::new(Side::A);
        let mut witness = FileWitness::open(folder.path()).unwrap();
        assert!(FileWitness::open(folder.path()).is_err(), "it is taken");
        assert_eq!(witness.read(id), Ok(None));
        assert_eq!(witness.swap(id, first), Ok(Swap::Done(first)));
        drop(witness);
        let mut witness = FileWitness::open(folder.path()).unwrap();
        let alone = first.alone(Side::B);
        assert_eq!(witness.swap(id, alone), Ok(Swap::Done(alone)));
        assert_eq!(
            witness.swap(id, first.alone(Side::A)),
            Ok(Swap::Lost(alone))
        );
        assert_eq!(witness.read(id), Ok(Some(alone)));
        // A crash before the rename leaves the old line.
        fs::write(witness.path(id).with_extension("new"), "weir").unwrap();
        assert_eq!(witness.read(id), Ok(Some(alone)));

        let line = encode(&alone);
        for at in 0..line.len() {
            let mut bytes = line.clone().into_bytes();
            bytes[at] ^= 1;
            fs::write(witness.path(id), bytes).unwrap();
            assert!(witness.read(id).is_err(), "byte {at}");
            assert!(witness.swap(id, alone.joined()).is_err());
        }
        fs::write(witness.path(id), "").unwrap();
        assert!(witness.read(id).is_err());
    }
}
