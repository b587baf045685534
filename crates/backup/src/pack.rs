//! Collects chunks into packs, and uploads these.

use weir_base::limits::backup as limits;

use crate::chunk::{self, Chunk, PackId};
use crate::error::BackupError;
use crate::index::{self, ChunkIndex};
use crate::refs::{Referrer, Refs};
use crate::vault::Vault;

/// Puts chunks into a vault that does not have them.
pub(crate) struct Packer<'v> {
    vault: &'v Vault,
    known: ChunkIndex,
    pack: PackId,
    open: Vec<u8>,
    /// The chunk added last.
    last: Option<Chunk>,
    /// Chunks that no index names.
    fresh: Vec<Chunk>,
    /// Packs that the new segments and objects of the index refer to.
    refs: Refs,
    moved: u64,
}

impl<'v> Packer<'v> {
    pub(crate) fn new(vault: &'v Vault) -> Result<Packer<'v>, BackupError> {
        Ok(Packer {
            vault,
            known: ChunkIndex::load(vault)?,
            pack: new_pack(vault),
            open: Vec::with_capacity(limits::PACK_BYTES + limits::MAX_CHUNK),
            last: None,
            fresh: Vec::new(),
            refs: Refs::default(),
            moved: 0,
        })
    }

    /// Returns the vault.
    pub(crate) fn vault(&self) -> &'v Vault {
        self.vault
    }

    /// Returns the bytes sent to the bucket so far.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// Adds a chunk, unless it is there.
    pub(crate) fn add(&mut self, contents: &[u8]) -> Result<Chunk, BackupError> {
        weir_base::invariant!(contents.len() <= limits::MAX_CHUNK, "a chunk is too long");
        let id = self.vault.sealer.name(contents);
        if let Some(chunk) = self.known.get(id) {
            return Ok(chunk);
        }
        let at = self.open.len();
        chunk::write(&self.vault.sealer, id, contents, &mut self.open);
        let chunk = Chunk {
            id,
            pack: self.pack,
            at: at as u32,
            length: (self.open.len() - at) as u32,
        };
        self.known.add(chunk);
        self.fresh.push(chunk);
        self.last = Some(chunk);
        if self.open.len() >= limits::PACK_BYTES {
            self.upload()?;
            if self.fresh.len() >= limits::INDEX_CHUNKS {
                self.write_index()?;
            }
        }
        Ok(chunk)
    }

    /// Uploads the open pack, names its chunks in the index, and notes what refers to which pack.
    pub(crate) fn flush(&mut self) -> Result<(), BackupError> {
        if !self.open.is_empty() {
            self.upload()?;
        }
        self.write_index()?;
        self.moved += self.refs.write(self.vault)?;
        Ok(())
    }

    /// Adds a segment of a manifest, whose entries refer to chunks in `packs`.
    pub(crate) fn add_segment(
        &mut self,
        contents: &[u8],
        packs: Vec<PackId>,
    ) -> Result<Chunk, BackupError> {
        let chunk = self.add(contents)?;
        self.refs.note(Referrer::segment(chunk.id), packs);
        Ok(chunk)
    }

    fn upload(&mut self) -> Result<(), BackupError> {
        let Some(last) = self.last else {
            return Ok(());
        };
        let object = self.vault.object(&self.pack.object());
        self.vault.bucket().put(&object, &self.open)?;
        self.moved += self.open.len() as u64;
        // A bucket may have stored less than it says, or nothing: the end is read back.
        self.vault.chunk(&last)?;
        self.open.clear();
        self.pack = new_pack(self.vault);
        Ok(())
    }

    fn write_index(&mut self) -> Result<(), BackupError> {
        let refs = &mut self.refs;
        let mut note = |id, packs| refs.note(id, packs);
        self.moved += index::write(self.vault, &self.fresh, &mut note)?;
        self.fresh.clear();
        Ok(())
    }
}

fn new_pack(vault: &Vault) -> PackId {
    let mut id = [0; 16];
    vault.sealer.rng().fill(&mut id);
    PackId(id)
}
