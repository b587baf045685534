//! Packs that segments of manifests, and objects of the index, refer to.
//!
//! To know which packs are needed, all manifests would have to be read. Objects `refs/…` note it
//! instead: the packs of the chunks that a segment names, by the segment's name, and those of an
//! object of the index, by its name. Segments are named by their contents, and objects of the index
//! are never changed. So what was noted once stays true: these objects can be written, merged and
//! lost in any order. What is not noted is read, and noted then. [`crate::verify()`] compares.

use std::collections::{BTreeMap, HashSet};

use weir_base::hex;
use weir_base::limits::backup as limits;

use crate::chunk::{Chunk, PackId, Reader};
use crate::error::BackupError;
use crate::manifest::{Entry, Segment};
use crate::seal::ChunkId;
use crate::vault::Vault;

/// Prefix of the objects within a vault.
const PREFIX: &str = "refs/";

/// A segment of a manifest or an object of the index, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Referrer([u8; 16]);

impl Referrer {
    /// Returns the segment with this name.
    pub(crate) fn segment(id: ChunkId) -> Referrer {
        Referrer(id.0)
    }

    /// Returns the object of the index with these random bytes in its name.
    pub(crate) fn index(name: [u8; 16]) -> Referrer {
        Referrer(name)
    }
}

/// Returns the packs of chunks, in order and each once.
pub(crate) fn packs_of<'c>(chunks: impl Iterator<Item = &'c Chunk>) -> Vec<PackId> {
    let mut packs = Vec::new();
    for chunk in chunks {
        // Neighbours are mostly in one pack.
        if packs.last() != Some(&chunk.pack) {
            packs.push(chunk.pack);
        }
    }
    packs.sort_unstable();
    packs.dedup();
    packs
}

/// Returns the packs that the entries of a segment refer to.
pub(crate) fn packs_in<'e>(entries: impl Iterator<Item = &'e Entry>) -> Vec<PackId> {
    packs_of(entries.flat_map(|entry| match entry {
        Entry::Window { window, .. } => &window.pieces[..],
        Entry::Record { .. } => &[],
    }))
}

/// Notes of a vault, at most [`limits::KNOWN_SEGMENTS`].
#[derive(Default)]
pub(crate) struct Refs {
    noted: BTreeMap<Referrer, Vec<PackId>>,
    /// Objects that the notes were read from.
    objects: Vec<String>,
    /// True if the notes differ from those of the objects.
    changed: bool,
}

impl Refs {
    /// Reads the notes.
    ///
    /// # Errors
    /// The bucket's. Damaged objects are passed over.
    pub(crate) fn load(vault: &Vault) -> Result<Refs, BackupError> {
        let mut refs = Refs::default();
        for object in vault.list(PREFIX)? {
            match vault.get_sealed(&object).map(|bytes| decode(&bytes)) {
                Ok(Some(notes)) => {
                    let room = limits::KNOWN_SEGMENTS.saturating_sub(refs.noted.len());
                    refs.noted.extend(notes.into_iter().take(room));
                }
                Ok(None) | Err(BackupError::Damaged { .. }) => refs.changed = true,
                Err(error) => return Err(error),
            }
            refs.objects.push(object);
        }
        Ok(refs)
    }

    /// Returns the packs that are noted of a referrer.
    pub(crate) fn get(&self, of: Referrer) -> Option<&[PackId]> {
        self.noted.get(&of).map(Vec::as_slice)
    }

    /// Notes the packs of a referrer.
    pub(crate) fn note(&mut self, of: Referrer, packs: Vec<PackId>) {
        if self.noted.len() < limits::KNOWN_SEGMENTS {
            self.changed |= self.noted.insert(of, packs).is_none();
        }
    }

    /// Returns the packs that a segment refers to, reading it if nothing is noted of it.
    ///
    /// # Errors
    /// `Damaged` if the segment is; the bucket's.
    pub(crate) fn of_segment(
        &mut self,
        vault: &Vault,
        segment: &Segment,
    ) -> Result<Vec<PackId>, BackupError> {
        let id = Referrer::segment(segment.chunk.id);
        if let Some(packs) = self.get(id) {
            return Ok(packs.to_vec());
        }
        let packs = packs_in(segment.entries(vault)?.iter());
        self.note(id, packs.clone());
        Ok(packs)
    }

    /// Writes all notes, as objects beside those that are there.
    ///
    /// # Errors
    /// The bucket's.
    pub(crate) fn write(&self, vault: &Vault) -> Result<u64, BackupError> {
        let (mut moved, mut bytes) = (0, Vec::new());
        for (of, packs) in &self.noted {
            bytes.extend_from_slice(&of.0);
            bytes.extend_from_slice(&(packs.len() as u32).to_le_bytes());
            packs
                .iter()
                .for_each(|pack| bytes.extend_from_slice(&pack.0));
            if bytes.len() >= limits::REFS_BYTES {
                moved += put(vault, std::mem::take(&mut bytes))?;
            }
        }
        if !bytes.is_empty() {
            moved += put(vault, bytes)?;
        }
        Ok(moved)
    }

    /// Replaces the vault's objects by the notes of these referrers, if they differ.
    ///
    /// # Errors
    /// The bucket's. No note of these is lost then.
    pub(crate) fn keep(
        mut self,
        vault: &Vault,
        live: &HashSet<Referrer>,
    ) -> Result<(), BackupError> {
        let before = self.noted.len();
        self.noted.retain(|of, _| live.contains(of));
        if !self.changed && self.noted.len() == before && self.objects.len() <= 1 {
            return Ok(());
        }
        self.write(vault)?;
        for object in &self.objects {
            vault.bucket().delete(&vault.object(object))?;
        }
        Ok(())
    }
}

fn put(vault: &Vault, bytes: Vec<u8>) -> Result<u64, BackupError> {
    let mut name = [0; 16];
    vault.sealer.rng().fill(&mut name);
    vault.put_sealed(&format!("{PREFIX}{}", hex::encode(&name)), bytes)
}

/// Decodes an object. `None` if it is malformed.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<(Referrer, Vec<PackId>)>> {
    let (mut reader, mut notes) = (Reader(bytes), Vec::new());
    while !reader.is_empty() {
        let of = Referrer(reader.bytes()?);
        let count = u32::from_le_bytes(reader.bytes()?) as usize;
        let (packs, rest) = reader.slice(count.checked_mul(16)?)?.as_chunks::<16>();
        if !rest.is_empty() {
            return None;
        }
        notes.push((of, packs.iter().copied().map(PackId).collect()));
    }
    Some(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_notes_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(notes) = decode(&bytes) {
                let packs: usize = notes.iter().map(|(_, packs)| packs.len()).sum();
                prop_assert_eq!(20 * notes.len() + 16 * packs, bytes.len());
            }
        }
    }
}
