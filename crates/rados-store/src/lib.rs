//! Aggregates on Ceph RADOS: devices on objects, and who may write them.
//!
//! Objects of an aggregate, in a namespace of its own:
//!
//! | Object | Contents | Guarded |
//! |---|---|---|
//! | `owner` | the lock; `identity`, `epoch`, `holder`, `heir`, `touch`, `alone`, `length` | yes |
//! | `d.N` | blocks 1024·N to 1024·N + 1023 of the device | those with superblocks |
//! | `l.h` | the two header blocks of the log | yes |
//! | `l.N`, 16 hexadecimal digits | segment N of the log | yes |
//! | `f.NAME` | a small file that the next owner needs | yes |
//! | `s.N` | a [standby](Standbys), which counts up in it | no |
//!
//! **Ownership.** The rules are those of [`weir_mirror::owner`]. Each object that is guarded has
//! the owner's epoch as an attribute, and each write to it compares that attribute in the same
//! atomic operation. Data blocks are not guarded, because a guarded write excludes all others to
//! its object. So writes of data wait in the [`Session`] until the blocklist is in force, while
//! the log is replayed and written already.
//!
//! **Reads.** A reply needs no write, so no guard refuses an old owner that answers reads from its
//! memory. It may answer within [`LEASE`](weir_base::limits::rados::LEASE) of sending a touch that
//! was accepted; a touch compares the epoch of `owner`. The new owner answers nothing before that
//! lease is over ([`Ownership::finish_takeover`]).
//!
//! **The log.** A segment is an object and no batch crosses a segment, so a batch is written as a
//! whole or not at all. One batch is in flight at a time, so its guard costs nothing.
//!
//! **A full pool.** The cluster makes writers wait when a pool is full, for ever. So all writes ask
//! for an error instead, and the device grows only while the pool has [a
//! floor](weir_base::limits::rados::FLOOR_SHARE) free.

mod aggregate;
mod device;
mod layout;
mod owner;
mod process;
mod record;
mod session;
mod standbys;
pub mod steps;

pub use aggregate::{AggregateObjects, RadosAggregate, RadosPlace, Sizes};
pub use owner::{OwnerState, Ownership, Patience, StandbyObserver};
pub use process::Process;
pub use record::{Epoch, Identity, LOCK, OWNER, Record};
pub use session::Session;
pub use standbys::{Standby, Standbys};
pub use weir_mirror::Loss;
