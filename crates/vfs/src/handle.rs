//! File handles: 32 bytes that name an inode of a volume, and that nobody but
//! this server can make.
//!
//! A handle is a capability in NFSv3. A client that has one may try operations on it, and the
//! export's rules are applied to the volume that it names. A client that could make up handles
//! could name inodes below directories that it may not search. So a handle ends in a keyed hash
//! (SipHash-2-4, Aumasson and Bernstein 2012) of the rest; the key belongs to the aggregate and
//! survives restarts, as handles must. A handle that does not verify is BADHANDLE; one that does
//! but whose volume or inode is gone is STALE.
//!
//! Layout, big-endian: version (1), the first bytes of the aggregate's identity (3), volume (8),
//! inode (8), namespace (4: 0 the volume itself, 2^32 - 1 the directory of snapshots of the
//! directory with this inode number, otherwise a snapshot's identity), hash (8). Inode numbers and
//! identities of snapshots are never used again, so there is no generation. Where several
//! aggregates are served the three bytes select the one to ask first. Aggregates with equal bytes
//! are distinguished by the hash, since each has a key of its own.
//!
//! A handle of a large volume has version 3, zeros in place of the aggregate, the large volume's
//! identity in place of the volume, and the inode's number in the large volume. Its key is the
//! large volume's, so that each constituent's server can make handles of all. The server to ask
//! follows from the number's constituent.

use weir_base::{Ino, SipKey, VolumeId};

/// Bytes of a file handle.
pub const HANDLE_BYTES: usize = 32;
const HASHED: usize = HANDLE_BYTES - 8;
const VERSION: u8 = 2;
/// Version of handles of large volumes.
const LARGE: u8 = 3;

/// Bytes of an aggregate's identity in a handle.
pub const AGGREGATE_BYTES: usize = 3;

/// Tree of names of a volume that an inode is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespace {
    /// The volume as it is now.
    #[default]
    Live,
    /// The snapshot with this identity.
    Snapshot(u32),
    /// Not the inode, a directory, but the directory of its snapshots.
    Snapshots,
}

impl Namespace {
    fn number(self) -> u32 {
        match self {
            Namespace::Live => 0,
            Namespace::Snapshot(id) => id,
            Namespace::Snapshots => u32::MAX,
        }
    }

    fn of_number(number: u32) -> Namespace {
        match number {
            0 => Namespace::Live,
            u32::MAX => Namespace::Snapshots,
            id => Namespace::Snapshot(id),
        }
    }
}

/// Object that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The volume, by its number in the engine.
    pub volume: VolumeId,
    /// The inode in it.
    pub ino: Ino,
    /// The live volume, or which snapshot.
    pub namespace: Namespace,
}

/// The secret that handles are made with.
#[derive(Clone, Copy, Debug)]
pub struct HandleKey {
    key: SipKey,
    aggregate: [u8; AGGREGATE_BYTES],
}

/// Inode of a large volume that a handle says it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeFile {
    /// Identity of the large volume.
    pub(crate) large: u64,
    /// Number of the inode in the large volume.
    pub(crate) ino: Ino,
}

impl LargeFile {
    /// Returns the handle of the file with the large volume's secret.
    pub(crate) fn encode(self, secret: [u8; 16]) -> [u8; HANDLE_BYTES] {
        let mut h = [0; HANDLE_BYTES];
        h[0] = LARGE;
        h[4..12].copy_from_slice(&self.large.to_be_bytes());
        h[12..20].copy_from_slice(&self.ino.0.to_be_bytes());
        let hash = SipKey::new(secret).hash(&h[..HASHED]);
        h[HASHED..].copy_from_slice(&hash.to_be_bytes());
        h
    }

    /// Returns the file that `handle` says it names; `None` if it is not of a large volume. An
    /// operation on it compares the handle with that of [`LargeFile::encode`].
    pub(crate) fn of_handle(handle: &[u8]) -> Option<LargeFile> {
        let h: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
        (h[0] == LARGE).then(|| LargeFile {
            large: u64::from_be_bytes(eight(h, 4)),
            ino: Ino(u64::from_be_bytes(eight(h, 12))),
        })
    }
}

/// A handle that this server did not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHandle;

impl HandleKey {
    /// Returns the key of an aggregate, from 16 secret bytes.
    pub fn new(secret: [u8; 16], aggregate: [u8; 16]) -> HandleKey {
        let [a, b, c, ..] = aggregate;
        HandleKey {
            key: SipKey::new(secret),
            aggregate: [a, b, c],
        }
    }

    /// Returns the first bytes of the identity of the aggregate that `handle` says it is of; `None`
    /// if it is no handle at all.
    pub fn aggregate_of(handle: &[u8]) -> Option<[u8; AGGREGATE_BYTES]> {
        let h: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
        (h[0] == VERSION).then_some([h[1], h[2], h[3]])
    }

    /// Returns the aggregate and the volume that `handle` says it is of, without verifying it;
    /// `None` if it is no handle at all.
    pub(crate) fn parts_of(handle: &[u8]) -> Option<([u8; AGGREGATE_BYTES], VolumeId)> {
        let aggregate = HandleKey::aggregate_of(handle)?;
        let volume = handle.get(4..12)?.try_into().ok()?;
        Some((aggregate, VolumeId(u64::from_be_bytes(volume))))
    }

    /// Returns the first bytes of the identity of its aggregate.
    pub(crate) fn aggregate(&self) -> [u8; AGGREGATE_BYTES] {
        self.aggregate
    }

    /// Returns a secret for another purpose that is kept as long as this one.
    pub fn derive(&self, purpose: &[u8]) -> SipKey {
        self.key.derive(purpose)
    }

    /// Returns the handle of `id`.
    pub fn encode(&self, id: FileId) -> [u8; HANDLE_BYTES] {
        let mut h = [0u8; HANDLE_BYTES];
        h[0] = VERSION;
        h[1..4].copy_from_slice(&self.aggregate);
        h[4..12].copy_from_slice(&id.volume.0.to_be_bytes());
        h[12..20].copy_from_slice(&id.ino.0.to_be_bytes());
        h[20..24].copy_from_slice(&id.namespace.number().to_be_bytes());
        let mac = self.hash(&h);
        h[HASHED..].copy_from_slice(&mac.to_be_bytes());
        h
    }

    /// Returns the file that `handle` names, if this key made it.
    pub fn decode(&self, handle: &[u8]) -> Result<FileId, BadHandle> {
        let h: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| BadHandle)?;
        let (volume, ino) = (eight(h, 4), eight(h, 12));
        let namespace = u32::from_be_bytes([h[20], h[21], h[22], h[23]]);
        if h[0] != VERSION || u64::from_be_bytes(eight(h, HASHED)) != self.hash(h) {
            return Err(BadHandle);
        }
        Ok(FileId {
            volume: VolumeId(u64::from_be_bytes(volume)),
            ino: Ino(u64::from_be_bytes(ino)),
            namespace: Namespace::of_number(namespace),
        })
    }

    fn hash(&self, h: &[u8; HANDLE_BYTES]) -> u64 {
        self.key.hash(&h[..HASHED])
    }
}

fn eight(h: &[u8; HANDLE_BYTES], at: usize) -> [u8; 8] {
    let mut v = [0; 8];
    v.copy_from_slice(&h[at..at + 8]);
    v
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_altered_bit_is_noticed() {
        let key = HandleKey::new(*b"0123456789abcdef", [5; 16]);
        let mut id = FileId {
            volume: VolumeId(1 << 50 | 7),
            ino: Ino(1 << 40),
            namespace: Namespace::Live,
        };
        for namespace in [
            Namespace::Snapshots,
            Namespace::Snapshot(9),
            Namespace::Live,
        ] {
            id.namespace = namespace;
            assert_eq!(key.decode(&key.encode(id)), Ok(id));
        }
        let good = key.encode(id);
        for bit in 0..HANDLE_BYTES * 8 {
            let mut h = good;
            h[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.decode(&h), Err(BadHandle), "bit {bit}");
        }
        assert_eq!(
            HandleKey::new([0; 16], [5; 16]).decode(&good),
            Err(BadHandle)
        );
        assert_eq!(HandleKey::aggregate_of(&good), Some([5; AGGREGATE_BYTES]));
    }

    #[test]
    fn a_handle_of_a_large_volume_names_its_inode() {
        let file = LargeFile {
            large: 1 << 60 | 5,
            ino: Ino(2 << 56 | 77),
        };
        let handle = file.encode([1; 16]);
        assert_eq!(LargeFile::of_handle(&handle), Some(file));
        assert_ne!(handle, file.encode([2; 16]));
        let key = HandleKey::new([1; 16], [0; 16]);
        assert_eq!(key.decode(&handle), Err(BadHandle));
        assert_eq!(HandleKey::aggregate_of(&handle), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(h: Vec<u8>) {
            prop_assert_eq!(HandleKey::new([3; 16], [0; 16]).decode(&h), Err(BadHandle));
        }
    }
}
