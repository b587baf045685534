//! NFS version 3 and its companions MOUNT, NLM and NSM, sans-I/O: messages in,
//! messages out. No sockets, no tasks, no clock of its own.
//!
//! Reading order: `xdr`, `rpc`, `record` (how bytes become calls), `service`
//! (what becomes of a call), then the programs.

mod drc;
mod failure;
pub mod mount3;
pub mod nlm;
pub mod nsm;
mod outgoing;
pub mod portmap;
pub mod record;
mod reply;
pub mod rpc;
mod service;
pub mod v3;
pub mod xdr;

pub use nlm::HostStore;
pub use outgoing::Outgoing;
pub use reply::ReplyBuf;
pub use service::{Config, ConnInfo, Handled, Later, Service};
pub use service::{MAX_RECORD, MOUNT_PROGRAM, NFS_PROGRAM, NLM_PROGRAM, NSM_PROGRAM};
