//! NFS version 3 and its companions MOUNT, NLM and NSM, sans-I/O: messages in,
//! messages out. No sockets, no tasks, no clock of its own.
//!
//! Reading order: `xdr`, `rpc`, `record` (how bytes become calls), `service`
//! (what becomes of a call), then the programs.

mod failure;
pub mod portmap;
pub mod record;
mod reply;
pub mod rpc;
mod service;
pub mod xdr;

pub use reply::ReplyBuf;
pub use service::{Config, ConnInfo, Handled, Later, Service};
pub use service::{MOUNT_PROGRAM, NFS_PROGRAM, NLM_PROGRAM, NSM_PROGRAM};
