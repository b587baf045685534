//! Volumes: file semantics on top of the store.
//!
//! An operation touches memory only: overlays of what changed since the last
//! consistency point, and cached nodes of the committed tree ([`types`] says how
//! it waits for anything else). Every change that must be durable is in the intent
//! log before its answer; consistency points merge overlays into new trees in the
//! background. A reading order for this crate: `types`, `record`, `delta`, `inode`,
//! `volume`, `data`, `direct`, `names`, `merge`, `cp`, `snapshot`, `dead`, `job`, `recovery`.

mod admission;
mod attr;
mod calls;
mod catalog;
mod change;
pub mod check;
mod clients;
mod codec;
mod commit;
mod content;
mod core;
mod cp;
mod cx;
mod data;
mod dead;
mod delta;
mod difference;
mod direct;
#[cfg(test)]
mod document;
mod edit;
mod engine;
mod event;
mod fold;
mod gate;
mod hash;
mod identity;
mod inode;
mod job;
mod lifecycle;
mod merge;
mod mirror;
mod names;
mod outgoing;
mod punch;
mod readahead;
mod readdir;
mod receive;
mod record;
mod recovery;
mod rename;
mod scrub;
mod side;
mod snapshot;
mod split;
mod types;
mod unlinked;
mod volume;

pub use calls::{CallKey, DoneCall, KEPT as KEPT_CALLS};
pub use catalog::{MAX_ANNOTATION, MAX_LABEL, MAX_VOLUME_NAME};
pub use clients::{MAX_CLIENT, MAX_CLIENTS};
pub use content::{ContentHash, ContentWalk};
pub use cx::Cx;
pub use difference::{Difference, Part};
pub use edit::{EditError, StreamPosition, verify_record};
pub use engine::{Engine, EngineOptions};
pub use identity::{NoIdentity, SnapshotIdentity};
pub use mirror::{Mirror, Partial, Position, SnapshotHold};
pub use outgoing::{BlockRef, Outgoing, Sent};
pub use receive::{Incoming, Mark, Receive, verify_tree_record};
pub use record::DOS_ATTRIBUTES;
pub use recovery::Recovered;
pub use scrub::{ScrubFault, ScrubWatch, Scrubbed};
pub use side::SetHow;
pub use snapshot::{MAX_SNAPSHOTS, Snapshot};
pub use types::{
    Attr, Change, CreateHow, Created, DirEntry, Done, FileKind, Found, FsError, Linked, Pressure,
    ReadDirLimit, ReadDirOut, ReadOut, Removed, Renamed, SetAttr, SetIds, SetTime, Stability,
    StatFs, Stop, Written, without_set_ids,
};
pub use unlinked::Pin;
pub use volume::Volume;
pub use weir_store::Frame;
