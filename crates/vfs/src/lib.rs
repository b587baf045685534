//! The waist between protocols and volumes: identity, export policy, access
//! checks, file handles, locks. Nothing below knows a protocol; nothing above
//! touches a volume except through here.
//!
//! Reading order: `vfs` (from a handle to a caller on an inode), `ops` (what
//! the caller does there), `access` (whether it may), `exports`, `locks`.

pub mod access;
mod exports;
mod handle;
mod identity;
pub mod locks;
mod ops;
mod vfs;

pub use exports::{Clients, Export, ExportTable, NOBODY, Rule, Squash};
pub use handle::{BadHandle, FileId, HANDLE_BYTES, HandleKey};
pub use identity::Creds;
pub use ops::{Outcome, Permitted, Subject};
pub use vfs::{NoSubject, Vfs};
/// The types of volumes, for the protocols above.
pub use weir_volume as volume;

pub use weir_volume::{Cx, Volume};
