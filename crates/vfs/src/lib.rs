//! The waist between protocols and volumes: identity, export policy, access
//! checks, file handles, claims. Nothing below knows a protocol; nothing above
//! touches a volume except through here.
//!
//! A protocol hands in a [`Session`] and an operation; this crate admits, charges and runs it
//! ([`pipeline`]).
//!
//! Reading order: `session` (the caller), `pipeline` (the way to a volume), `ops` (the operations),
//! `snapshot_dir` (the directory of snapshots), `error` (failures and waits). Then come `access`
//! (permissions) with `acl` and `acl_cache`, and `exports` (the clients that are admitted) with
//! `clients`, `names` and `admission`. Volumes of other servers are in `directory` and
//! `relocation`. The rest is `throttle` (limits), `claims` (what others hold
//! of a file), `grace` (claims that outlive a restart) and `notify` (reports of changed names).

pub mod access;
pub mod acl;
mod acl_cache;
mod admission;
pub mod claims;
mod clients;
mod conflict;
pub mod directory;
mod error;
mod exports;
pub mod grace;
mod handle;
mod identity;
mod large;
mod large_ops;
pub mod names;
pub mod notify;
mod open_ops;
mod ops;
pub mod pipeline;
mod rare;
pub mod relocation;
mod session;
mod snapshot_dir;
pub mod stats;
pub mod throttle;
mod trees;
mod vfs;
pub mod waits;

pub use admission::Admissions;
pub use clients::Clients;
pub use error::{BadName, DeviceWait, Error, Event, Failure, OpResult, RoomWait, Stop, Suspend};
pub use exports::{
    Export, ExportTable, Flavours, NOBODY, Protocol, Protocols, Rule, Scope, Share, Squash,
    Transport, Verdict,
};
pub use handle::{AGGREGATE_BYTES, BadHandle, FileId, HANDLE_BYTES, HandleKey, Namespace};
pub use identity::{Creds, DOMAIN_NUMBERS, Groups, Identity, Sid, Token};
pub use large::{Constituents, Elsewhere};
pub use large_ops::{CreateReply, LookupReply};
pub use ops::{AccessRights, LockAccess};
pub use pipeline::{
    AdmittedFile, ChargeProof, Cost, DataRead, DataWrite, Exempt, MetadataRead, MetadataWrite,
    OpContext, Operand,
};
pub use session::{AccessModel, Flavour, GrantedAccess, Session};
pub use snapshot_dir::{FileRef, SNAPSHOT_DIRECTORY};
pub use throttle::ClientKey;
pub use vfs::{Redirect, Vfs};
/// Events that happen once.
pub use weir_base::signal;
pub use weir_qos::{Direction, Metadata, SharedPart};
/// The types of volumes, for the protocols above.
pub use weir_volume as volume;

pub use weir_volume::{EngineContext, Volume};
