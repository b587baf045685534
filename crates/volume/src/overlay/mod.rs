//! State in memory: changes since the last checkpoint, and the state shared by all volumes of an
//! aggregate.

pub(crate) mod calls;
pub(crate) mod checkpoint_pacing;
pub(crate) mod clients;
pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod counters;
pub(crate) mod delta;
pub(crate) mod direct;
pub(crate) mod epoch_lock;
pub(crate) mod event;
pub(crate) mod file_delta;
pub(crate) mod inode;
pub(crate) mod log;
pub(crate) mod open_inodes;
pub(crate) mod quota;
pub(crate) mod readahead;
pub(crate) mod reservation;
pub(crate) mod role;
pub(crate) mod root;
pub(crate) mod segments;
pub(crate) mod shares;
pub(crate) mod snapshots;
pub(crate) mod space;
pub(crate) mod strict;
pub(crate) mod transfer_state;
pub(crate) mod volume;
