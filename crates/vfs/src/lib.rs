//! The waist between protocols and volumes: identity, export policy, access
//! checks, file handles, locks. Nothing below knows a protocol; nothing above
//! touches a volume except through here.
//!
//! Reading order: `vfs` (from a handle to a caller on an inode), `ops` (what
//! the caller does there), `snapdir` (the directory of snapshots), `access` (whether it may), `exports` (who is let in) with `clients`,
//! `names` and `admission`, `throttle` (when it may), `locks`.

pub mod access;
mod admission;
mod clients;
mod exports;
mod handle;
mod identity;
pub mod locks;
pub mod names;
mod ops;
mod snapdir;
pub mod stats;
pub mod throttle;
mod vfs;

pub use admission::{Admissions, Client};
pub use clients::Clients;
pub use exports::{Export, ExportTable, NOBODY, Protocol, Protocols, Rule, Squash, Verdict};
pub use handle::{BadHandle, FileId, HANDLE_BYTES, HandleKey, Place};
pub use identity::Creds;
pub use ops::{LockAccess, Outcome, Permitted, Subject};
pub use snapdir::{SNAPSHOT_DIRECTORY, Spot};
pub use vfs::{NoSubject, Vfs};
pub use weir_qos::{Direction, Upkeep};
/// The types of volumes, for the protocols above.
pub use weir_volume as volume;

pub use weir_volume::{Cx, Volume};
