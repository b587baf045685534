//! Foundation of all other crates of Weir: identifiers and units as distinct types, the limits of
//! the system in one place, and [`invariant!`]. Time, randomness and memory are values that callers
//! pass in.
//!
//! Nothing below the binary reads a clock or a random source of its own. A run under the simulator
//! must be reproducible from a seed, which requires that every source of difference is a [`Clock`]
//! or an [`Rng`].

mod budget;
mod clock;
pub mod hex;
mod ids;
mod invariant;
pub mod latency;
pub mod limits;
pub mod network;
pub mod percent;
mod placement;
mod priority;
mod rng;
pub mod signal;
mod siphash;
pub mod small_file;
mod snapshot_identity;
pub mod sync;

pub use budget::{Budget, Reservation};
pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use ids::{AggregateId, BlockAddr, Generation, Ino, Lsn, VolumeId};
pub use invariant::{Count, Poison, less, violated, violations};
pub use limits::BLOCK_SIZE;
pub use placement::Placement;
pub use priority::{idle_priority, ioprio_realtime, nice, short_slice, yield_timed};
pub use rng::{Rng, SeededRng, SystemRng};
pub use siphash::SipKey;
pub use snapshot_identity::{NoIdentity, SnapshotIdentity};
