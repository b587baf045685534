//! NFS version 4, minor versions 1 and 2 (RFC 8881, RFC 7862, RFC 8276), sans-I/O as version 3 is.
//!
//! **A COMPOUND is a cursor.** Its operations are decoded and carried out one after the other
//! ([`compound`]). An operation that waits (for the device, a limit, a name) suspends the cursor,
//! not the connection. The cursor continues with that operation, and repeats none before it. An
//! operation changes nothing before it has everything that it needs, as in NFSv3. The reply waits
//! for the highest log record of its operations. If that is never written, the reply is cut at the
//! first operation concerned (`failure::Cut`).
//!
//! **Once.** Each request has a slot of its session ([`slot`]); a retransmission gets the reply of
//! the first execution. So version 4 does not use the duplicate-request cache of version 3. Over a
//! restart, the log has the operations that were carried out ([`persistent`]).
//!
//! **State** has two parts: claims (opens, share reservations, locks) in the table that all
//! protocols share, and stateids that name them ([`state`]). Both belong to a client ([`client`]),
//! which a lease keeps alive.
//!
//! **Names** begin in a pseudo file system ([`pseudo`]) that leads to the exports that the client
//! may use.
//!
//! Not served: minor version 0 (MINOR_VERS_MISMATCH), and what docs/reference/nfs4.md lists
//! (NOTSUPP).
//!
//! Four modules import each other: a client (`client`) has sessions (`session`), a session its
//! client and a back channel (`backchannel`), whose calls are the client's. A connection remembers
//! the session of its last request (`remembered`), which spares the client's table.
//!
//! Reading order: `args`, `types`, `status` (the wire), `client`, `session`, `slot` (the client's
//! side), `compound` (the run of a request), then the operations in `ops`.

pub mod args;
pub mod attrs;
mod backchannel;
mod callback;
mod calls;
mod client;
mod client_records;
mod compound;
mod connection_cache;
mod copy_progress;
mod cursor;
mod lock_waiters;
mod offload;
mod ops;
pub(crate) mod persistent;
mod protect;
mod pseudo;
mod reach;
mod recall_history;
mod record_encoding;
mod records;
mod referral;
mod serve;
mod server;
mod session;
mod slot;
mod state;
pub mod status;
pub mod types;

pub use client::Counts;
pub use connection_cache::{ConnInfo, ConnectionState};
pub use offload::Background;
pub use referral::{Location, Referral};
pub(crate) use server::{Nfs4, Parts};
pub use state::StateCounts;
pub use types::COMPOUND;

use crate::idmap::Names;
use crate::rpc::xdr::Reader;

/// Decodes a whole COMPOUND, one operation after the other, for fuzzing. Returns true if all
/// decode.
pub fn decode(args: &[u8]) -> bool {
    let mut r = Reader::new(args);
    let Ok(head) = args::Head::decode(&mut r) else {
        return false;
    };
    (0..head.count).all(|_| {
        let operation = r.u32();
        operation.is_ok_and(|operation| {
            args::decode(head.minor, operation, &mut r).is_ok_and(|args| {
                if let args::Args::SetAttr(_, new) = &args {
                    // Neither may panic, whatever the data.
                    let _ = attrs::New::decode(head.minor, new, &Names::default());
                }
                !matches!(args, args::Args::Illegal | args::Args::NotServed)
            })
        })
    })
}
