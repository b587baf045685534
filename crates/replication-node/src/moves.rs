//! Moves of volumes between the aggregates of a cluster.
//!
//! The source drives a move: the wish is in its row. It connects to the destination and offers the
//! volume. The destination then asks for one snapshot after the other, as for SnapMirror, until the
//! last difference was short, and ends the move ([`weir_relations::cutover`]). A connection that is
//! lost, or a server that starts anew, costs nothing but time: the source connects again, and the
//! destination goes on with the copy that it has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use weir_base::VolumeId;
use weir_control::VolumeName;
use weir_relations::cutover::{Arrivals, Departure};
use weir_transfer::progress::Progress;
use weir_vfs::Vfs;

/// Parts that moves need besides those of transfers.
pub struct MoveParts {
    /// Access of clients to volumes, and the cluster's directory.
    pub vfs: Arc<Vfs>,
    /// The secret of this aggregate's file handles.
    pub secret: [u8; 16],
}

/// Phase of a move at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovePhase {
    /// The source looks for its destination, or waits to try again.
    Waiting,
    /// Snapshots are being copied.
    Copying,
    /// Requests of clients are held for the last copy.
    Cutover,
    /// The destination decides who serves the volume, and does not answer.
    Undecided,
    /// The destination serves the volume, and not all servers know it yet.
    Announcing,
}

/// A move, as its source sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct MoveStatus {
    /// The volume.
    pub volume: VolumeName,
    /// Storage pool that gets it.
    pub pool: Option<Arc<str>>,
    /// Aggregate that gets it, once it is known.
    pub aggregate: Option<Arc<str>>,
    /// Its phase.
    pub phase: MovePhase,
    /// Bytes of the current difference that were sent.
    pub sent: u64,
    /// Bytes of the current difference, once they are counted.
    pub total: Option<u64>,
    /// Reason why the last attempt failed; empty if none has.
    pub why: String,
}

/// A volume that departs.
pub(crate) struct OutgoingMove {
    pub machine: Departure,
    /// Number of the volume in the engine.
    pub volume: VolumeId,
    /// True while a thread works on it.
    pub busy: bool,
    /// Aggregate that has accepted it.
    pub aggregate: Option<Arc<str>>,
    pub progress: Option<Progress>,
    /// Monotonic time in milliseconds of the next attempt.
    pub next_ms: u64,
    pub pause_ms: u64,
    pub why: String,
    /// Monotonic time in milliseconds since which requests are held.
    pub held_since_ms: u64,
}

/// State of moves.
pub(crate) struct Moves {
    pub vfs: Arc<Vfs>,
    pub secret: [u8; 16],
    /// Volumes that depart, by their keys in the engine.
    pub leaving: Mutex<HashMap<String, OutgoingMove>>,
    pub arrivals: Mutex<Arrivals>,
    /// Moves whose volumes are being received.
    pub receiving: Mutex<HashSet<u64>>,
    /// Copies without a connection, and since when, in milliseconds of monotonic time.
    pub orphans: Mutex<HashMap<u64, u64>>,
    pub departed: AtomicU64,
    pub arrived: AtomicU64,
    pub failed: AtomicU64,
    /// Milliseconds for which requests were held at the last departure.
    pub pause_ms: AtomicU64,
}

impl Moves {
    pub fn new(parts: MoveParts) -> Moves {
        Moves {
            vfs: parts.vfs,
            secret: parts.secret,
            leaving: Mutex::default(),
            arrivals: Mutex::default(),
            receiving: Mutex::default(),
            orphans: Mutex::default(),
            departed: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            pause_ms: AtomicU64::new(0),
        }
    }

    /// Changes the state of a departure; `None` if there is none.
    pub fn with<T>(&self, key: &str, change: impl FnOnce(&mut OutgoingMove) -> T) -> Option<T> {
        self.leaving.lock().get_mut(key).map(change)
    }
}
