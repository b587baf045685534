//! Volumes: file semantics on top of the store.
//!
//! An operation touches memory only: overlays of what changed since the last
//! consistency point, and cached nodes of the committed tree ([`types`] says how
//! it waits for anything else). Every change that must be durable is in the intent
//! log before its answer; consistency points merge overlays into new trees in the
//! background. A reading order for this crate: `types`, `format::record`, `overlay` (`delta`, `inode`,
//! `volume`), `ops` (`data`, `names`), `overlay::direct`, `checkpoint` (`merge`, `cp`, `dead`, `job`), `lifecycle` (`snapshot`,
//! `recovery`).

pub mod check;
mod checkpoint;
#[cfg(test)]
mod document;
mod format;
mod lifecycle;
mod ops;
mod overlay;
mod types;

pub use format::catalog::{MAX_ANNOTATION, MAX_LABEL, MAX_VOLUME_NAME};
pub use format::edit::{EditError, StreamPosition, verify_record};
pub use format::identity::{NoIdentity, SnapshotIdentity};
pub use format::record::DOS_ATTRIBUTES;
pub use lifecycle::content::{ContentHash, ContentWalk};
pub use lifecycle::difference::{Difference, Part};
pub use lifecycle::engine::{Engine, EngineOptions};
pub use lifecycle::mirror::{Mirror, Partial, Position, SnapshotHold};
pub use lifecycle::outgoing::{BlockRef, Outgoing, Sent};
pub use lifecycle::receive::{Incoming, Mark, Receive, verify_tree_record};
pub use lifecycle::recovery::Recovered;
pub use lifecycle::scrub::{ScrubFault, ScrubWatch, Scrubbed};
pub use lifecycle::snapshot::{MAX_SNAPSHOTS, Snapshot};
pub use ops::side::SetHow;
pub use overlay::calls::{CallKey, DoneCall, KEPT as KEPT_CALLS};
pub use overlay::clients::{MAX_CLIENT, MAX_CLIENTS};
pub use overlay::cx::Cx;
pub use overlay::unlinked::Pin;
pub use overlay::volume::Volume;
pub use types::{
    Attr, Change, CreateHow, Created, DirEntry, Done, FileKind, Found, FsError, Linked, Pressure,
    ReadDirLimit, ReadDirOut, ReadOut, Removed, Renamed, SetAttr, SetIds, SetTime, Stability,
    StatFs, Stop, Written, without_set_ids,
};
pub use weir_store::Frame;
