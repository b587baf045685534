//! NFS versions 3 and 4, and the protocols MOUNT, NLM and NSM that version 3 needs, sans-I/O:
//! messages in, messages out. No sockets, no tasks, no clock of its own.
//!
//! Reading order: `xdr`, `rpc`, `service` (the way of a call), then the programs.

pub mod forward;
pub mod groups;
pub mod gss;
pub mod idmap;
pub mod mount3;
pub mod nlm;
pub mod nsm;
mod reply_bound;
pub mod rpc;
pub mod rquota;
mod service;
pub mod v3;
pub mod v4;

pub use reply_bound::reply_bound;
pub use rpc::call_queue::OutgoingCall;
pub use rpc::outcome::{Begin, Later, Outcome};
pub use rpc::reply::ReplyBuf;
pub use rpc::{MOUNT_PROGRAM, NFS_PROGRAM, NLM_PROGRAM, NSM_PROGRAM, RQUOTA_PROGRAM};
pub use rpc::{operation, portmap, xdr};
pub use service::{Config, Service};
pub use v4::ConnInfo;
pub use weir_conn::Arrival;

/// Decodes the security wrapping of a call (RPCSEC_GSS), for fuzzing. Returns true if it decodes.
pub fn decode_sealed(record: &[u8]) -> bool {
    gss::decode(record)
}

/// Decodes the arguments of any call that the service serves, by program, version and procedure,
/// for fuzzing; the service uses the same functions. Returns true if they decode, `None` if there
/// is no such call.
pub fn decode_any(program: u32, version: u32, procedure: u32, args: &[u8]) -> Option<bool> {
    match (program, version) {
        (NFS_PROGRAM, 4) if procedure == v4::COMPOUND => Some(v4::decode(args)),
        (NFS_PROGRAM, 3) => v3::args::decode(procedure, args).map(|r| r.is_ok()),
        (MOUNT_PROGRAM, 3) => mount3::decode(procedure, args).map(|r| r.is_ok()),
        (NLM_PROGRAM, 4) => nlm::wire::decode(procedure, args).map(|r| r.is_ok()),
        (NSM_PROGRAM, 1) => nsm::decode(procedure, args).map(|r| r.is_ok()),
        (RQUOTA_PROGRAM, 1 | 2) => rquota::decode(version, procedure, args).map(|r| r.is_ok()),
        _ => None,
    }
}
