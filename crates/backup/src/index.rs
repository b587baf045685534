//! Chunks that a vault is known to have.
//!
//! An index object names chunks whose packs are complete. Losing one costs nothing but uploads:
//! chunks that are not known are uploaded again. One that named a lost pack would cost data, so
//! packs are deleted only after the index was written anew ([`crate::prune()`]).

use std::collections::HashMap;

use weir_base::hex;
use weir_base::limits::backup as limits;

use crate::chunk::{Chunk, PackId, Reader};
use crate::error::BackupError;
use crate::refs::{Referrer, packs_of};
use crate::seal::ChunkId;
use crate::vault::Vault;

/// Prefix of the objects within a vault.
pub(crate) const PREFIX: &str = "index/";

/// Reads an index object.
pub(crate) fn read(vault: &Vault, object: &str) -> Result<Vec<Chunk>, BackupError> {
    let bytes = vault.get_sealed(object)?;
    decode(&bytes).ok_or_else(|| BackupError::damaged(vault.object(object), "it is cut off"))
}

/// Decodes an index object. `None` if it is cut off.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Chunk>> {
    let mut reader = Reader(bytes);
    let mut chunks = Vec::new();
    while !reader.is_empty() {
        chunks.push(Chunk::take(&mut reader)?);
    }
    Some(chunks)
}

/// Returns an index object as a referrer to packs; `None`: no version has made it.
pub(crate) fn referrer(object: &str) -> Option<Referrer> {
    let name = object.strip_prefix(PREFIX)?;
    hex::decode(name).map(Referrer::index)
}

/// Writes index objects that name `chunks`, and passes each with its packs to `note`.
pub(crate) fn write(
    vault: &Vault,
    chunks: &[Chunk],
    note: &mut dyn FnMut(Referrer, Vec<PackId>),
) -> Result<u64, BackupError> {
    let mut moved = 0;
    for some in chunks.chunks(limits::INDEX_CHUNKS) {
        let mut bytes = Vec::new();
        some.iter().for_each(|chunk| chunk.put(&mut bytes));
        let mut name = [0; 16];
        vault.sealer.rng().fill(&mut name);
        moved += vault.put_sealed(&format!("{PREFIX}{}", hex::encode(&name)), bytes)?;
        note(Referrer::index(name), packs_of(some.iter()));
    }
    Ok(moved)
}

/// The chunks by name, at most [`limits::KNOWN_CHUNKS`].
pub(crate) struct ChunkIndex(HashMap<ChunkId, Chunk>);

impl ChunkIndex {
    /// Reads as much of the index as there is room for.
    pub(crate) fn load(vault: &Vault) -> Result<ChunkIndex, BackupError> {
        let mut known = ChunkIndex(HashMap::new());
        for object in vault.list(PREFIX)? {
            if known.0.len() >= limits::KNOWN_CHUNKS {
                break;
            }
            match read(vault, &object) {
                Ok(chunks) => chunks.iter().for_each(|chunk| known.add(*chunk)),
                // It is not needed, and a verification reports the damage of what is.
                Err(BackupError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }

    pub(crate) fn add(&mut self, chunk: Chunk) {
        if self.0.len() < limits::KNOWN_CHUNKS {
            self.0.insert(chunk.id, chunk);
        }
    }

    pub(crate) fn get(&self, id: ChunkId) -> Option<Chunk> {
        self.0.get(&id).copied()
    }
}
