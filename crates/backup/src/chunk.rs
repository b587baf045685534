//! Chunks: what is stored once, and referred to by its name and place.

use weir_base::hex;
use weir_base::limits::backup as limits;

use crate::seal::{ChunkId, Sealer};

/// Name of a pack: random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PackId(pub(crate) [u8; 16]);

impl PackId {
    /// Returns the object's name within the vault.
    pub(crate) fn object(self) -> String {
        format!("packs/{}", hex::encode(&self.0))
    }
}

/// A chunk and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Name, by its contents.
    pub id: ChunkId,
    /// The pack that has it.
    pub pack: PackId,
    /// Offset in the pack in bytes.
    pub at: u32,
    /// Length in the pack in bytes.
    pub length: u32,
}

/// Length of an encoded [`Chunk`] in bytes.
pub(crate) const CHUNK_LEN: usize = 40;

impl Chunk {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.pack.0);
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<Chunk> {
        Some(Chunk {
            id: ChunkId(reader.bytes()?),
            pack: PackId(reader.bytes()?),
            at: u32::from_le_bytes(reader.bytes()?),
            length: u32::from_le_bytes(reader.bytes()?),
        })
    }
}

/// Takes values off the front of encoded bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Fast, and close to what higher levels give for file contents.
const LEVEL: i32 = 3;

/// Appends a chunk's contents as a pack holds them: compressed if that is shorter, and sealed.
pub(crate) fn write(sealer: &Sealer, id: ChunkId, contents: &[u8], out: &mut Vec<u8>) {
    let mut plain = vec![ZSTD];
    match zstd::bulk::compress(contents, LEVEL) {
        Ok(shorter) if shorter.len() < contents.len() => plain.extend_from_slice(&shorter),
        _ => {
            plain = vec![PLAIN];
            plain.extend_from_slice(contents);
        }
    }
    sealer.seal(&id.0, plain, out);
}

/// Reads what [`write()`] wrote. `None` if it is anything else.
pub(crate) fn read(sealer: &Sealer, id: ChunkId, stored: &[u8]) -> Option<Vec<u8>> {
    let plain = sealer.open(&id.0, stored)?;
    let contents = match plain.split_first()? {
        (&PLAIN, contents) => contents.to_vec(),
        (&ZSTD, shorter) => zstd::bulk::decompress(shorter, limits::MAX_CHUNK).ok()?,
        _ => return None,
    };
    (sealer.name(&contents) == id).then_some(contents)
}
