//! Volumes: file semantics on top of the store.
//!
//! An operation touches memory only: overlays with the changes since the last checkpoint, and
//! cached nodes of the committed tree ([`types`] describes how it waits for anything else). Every
//! change that must be durable is in the intent log before its reply; checkpoints merge overlays
//! into new trees in the background.
//!
//! The folders are layers, in a reading order: `types`, `format` (`record`), `overlay` (`delta`,
//! `inode`, `volume`), `ops` (`data`, `names`; then `overlay::direct`), `checkpoint` (`merge`,
//! `cp`, `dead`, `job`), `lifecycle` (`snapshot`, `recovery`), `check`.

pub mod check;
mod checkpoint;
mod format;
mod lifecycle;
mod ops;
mod overlay;
#[cfg(test)]
mod testing;
mod types;

pub use format::calls::{CallKey, DoneCall, KEPT as KEPT_CALLS};
pub use format::catalog::{MAX_ANNOTATION, MAX_LABEL, MAX_VOLUME_NAME, StreamPosition};
pub use format::clients::{MAX_CLIENT, MAX_CLIENTS};
pub use format::content::ContentHash;
pub use format::edit::{EditError, verify_record};
pub use format::mark::MarkId;
pub use format::record::{DIRECTORY_LINK, DOS_ATTRIBUTES, elsewhere, is_elsewhere};
pub use lifecycle::clients::ClientRecords;
pub use lifecycle::content::ContentWalk;
pub use lifecycle::difference::{Difference, Part};
pub use lifecycle::engine::{Engine, EngineOptions};
pub use lifecycle::mirror::{Mirror, Partial, Position, SnapshotHold};
pub use lifecycle::receive::{Leads, Mark, Receive, leads, verify_tree_record};
pub use lifecycle::recovery::RecoveryStats;
pub use lifecycle::round::{Round, RoundEntry};
pub use lifecycle::scrub::{ScrubFault, ScrubStats, ScrubWatch};
pub use lifecycle::sending::{BlockRef, DiffItem, SnapshotDiff};
pub use lifecycle::standby::{AdvanceWrite, Ahead, StandbyError};
pub use lifecycle::state_hash::VolumeState;
pub use ops::constituent::{ConstituentChange, ConstituentInode, TokenChange};
pub use ops::convert::Conversion;
pub use ops::pin::Pin;
pub use ops::side::SetHow;
pub use ops::stream::Stream;
pub use overlay::context::{EngineContext, Limits};
pub use overlay::role::{State, Writers};
pub use overlay::snapshots::Snapshot;
pub use overlay::transfer_state::TransferHeader;
pub use overlay::volume::Volume;
pub use types::{
    AtEnd, Attr, Backpressure, Change, CreateHow, CreateOut, DirEntry, Done, FileKind, FsError,
    Guard, LinkOut, LookupOut, QuotaEntry, QuotaId, QuotaKind, QuotaLimit, QuotaRules, QuotaState,
    QuotaUsage, ReadDirLimit, ReadDirOut, ReadOut, RemoveOut, RenameOut, ReplacementKind, Seek,
    SetAttr, SetIds, SetTime, Sought, Stability, StatFs, Stop, Tree, WriteOut, without_set_ids,
};
pub use weir_base::limits::MAX_SNAPSHOTS;
pub use weir_store::Frame;
pub use weir_store::log::advance::{Advance, AdvanceId, Carrier, InAdvance};
pub use weir_store::log::stream::{ChangeStream, Entry, NotShipped, Sequence};
pub use weir_store::log::{LogWrites, PartnerCost};
