//! What makes a volume the destination of a replication.
//!
//! Such a volume is *protected*: no client changes it, and what clients read is not the volume as it stands, into
//! which a transfer may just be writing, but the newest snapshot that arrived completely: the *exported* one. So a
//! transfer that runs, fails or is broken off is never seen, and when one has ended all clients change over at once.
//! What is seen keeps the volume's own file-system identity and inode numbers, so handles stay good from one
//! snapshot to the next, and beyond a break.
//!
//! **Identity.** A snapshot that was received is known by where it was first made: that volume's identity and the
//! snapshot's there. It keeps that through any number of copies, so what two volumes have in common is told without
//! looking at names, which may change, also when a relationship is turned round.

use std::fmt;
use std::sync::Arc;

use crate::engine::Engine;
use crate::snapshot::Snapshot;
use crate::types::FsError;
use crate::volume::Volume;

/// Where a snapshot was first made. Two snapshots with the same identity have the same content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotIdentity {
    /// The volume, see [`Volume::uuid`].
    pub volume: [u8; 16],
    /// The snapshot's identity there.
    pub id: u32,
}

impl fmt::Display for SnapshotIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.volume {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ".{}", self.id)
    }
}

/// A place in the order in which a transfer sends: bytes of a key, which compare as keys do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub [u8; 17]);

impl Position {
    /// Before everything.
    pub const START: Position = Position([0; 17]);
    /// Behind everything.
    pub const END: Position = Position([0xFF; 17]);
}

/// A transfer that has not arrived completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// What it is the difference to; `None`: nothing.
    pub base: Option<SnapshotIdentity>,
    /// The snapshot that it brings.
    pub target: SnapshotIdentity,
    /// Bytes received so far, before compression, up to the place from which it would go on.
    pub logical: u64,
    /// The same as they came over the wire.
    pub wire: u64,
}

/// What is known of a protected volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// Identity (in this volume) of the snapshot that clients see; `None` until a first transfer has ended.
    pub exported: Option<u32>,
    /// The transfer that runs or was cut short.
    pub partial: Option<Partial>,
}

/// Keeps a snapshot from being deleted for as long as it lives.
pub struct SnapshotHold {
    volume: Arc<Volume>,
    id: u32,
}

impl SnapshotHold {
    /// The snapshot.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }
}

impl Volume {
    /// Identifies the volume among all volumes of all aggregates.
    pub fn uuid(&self) -> [u8; 16] {
        [0; 16]
    }

    /// What the volume is as a destination; `None` if it is none, and so can be written to.
    pub fn mirror(&self) -> Option<Mirror> {
        None
    }

    /// The snapshot with this identity, if the volume has it.
    pub fn snapshot_with(&self, _identity: SnapshotIdentity) -> Option<Snapshot> {
        None
    }

    /// Keeps a snapshot from being deleted, and the volume from being reverted to an older one (`Busy`), for as long
    /// as the hold lives.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn hold_snapshot(self: &Arc<Self>, _name: &str) -> Result<SnapshotHold, FsError> {
        Err(FsError::NotSupported)
    }
}

impl Engine {
    /// Makes an empty volume without snapshots the destination of a replication (ONTAP's type `DP`). Clients can
    /// read it once a first transfer has ended; until then they are refused. Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` if there is anything in it; `Busy`; `ReadOnly`.
    pub fn protect(&self, _volume: &str) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Makes a volume a destination again that is, or was, one: it becomes what it was at `snapshot`, later
    /// snapshots and changes are lost, and clients see that snapshot from now on. What a transfer that was cut short
    /// has brought is discarded. Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if something depends on a later snapshot, or a transfer is running; `ReadOnly`.
    pub fn resync(&self, _volume: &str, _snapshot: &str) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Makes a destination a volume that can be written to, at the last snapshot that arrived completely. A
    /// volume that is no destination stays as it is. Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if no transfer has ended yet; `Busy` while one is running; `ReadOnly`.
    pub fn break_off(&self, _volume: &str) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Discards what a transfer that was cut short has brought, so that the next one begins from its start.
    /// Durable when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while it is running; `ReadOnly`.
    pub fn discard_partial(&self, _volume: &str) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }
}
