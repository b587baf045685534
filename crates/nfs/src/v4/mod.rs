//! NFS version 4, minor versions 1 and 2 (RFC 8881, RFC 7862, RFC 8276), sans-I/O as version 3 is.
//!
//! **A COMPOUND is a cursor.** Its operations are decoded and carried out one after the other
//! ([`compound`]). What an operation waits for (the device, a limit, a name) suspends the cursor,
//! not the connection; it goes on with that operation, and what was done is not done again. An
//! operation changes nothing before it has all that it needs, as in version
//! 3. The reply waits for the highest log record of its operations. If that is never written, the
//!    reply is cut at the first operation concerned (`failure::Cut`).
//!
//! **Once.** Each request has a slot of its session ([`slot`]); a retransmission gets the reply of
//! the first execution. So the duplicate-request cache of version 3 has no part here. Over a
//! restart, the log knows what was carried out ([`persistent`]).
//!
//! **State** is of two halves: claims (opens, share reservations, locks) in the table that all
//! protocols share, and stateids that name them ([`state`]). Both belong to a client ([`client`]),
//! which a lease keeps alive.
//!
//! **Names** begin in a pseudo file system ([`pseudo`]) that leads to the exports that the client
//! may use.
//!
//! Not served: minor version 0 (MINOR_VERS_MISMATCH), and what docs/reference/nfs4.md lists (NOTSUPP).
//!
//! Four modules import each other: a client (`client`) has sessions (`session`), a session its client
//! and a back channel (`backchannel`), whose calls are the client's; and a connection remembers the
//! session of its last request (`remembered`), by which the client's table is spared.
//!
//! Reading order: `args`, `types`, `status` (the wire), `client`, `session`, `slot` (the client's
//! side), `compound` (how a request is run), then the operations in `ops`.

pub mod args;
pub mod attrs;
mod backchannel;
mod blocked;
mod callback;
mod calls;
mod client;
mod compound;
mod copying;
mod cursor;
mod kept;
mod offload;
mod ops;
pub(crate) mod persistent;
mod protect;
mod pseudo;
mod reach;
mod recalled;
mod recorded;
mod records;
mod referral;
mod remembered;
mod serve;
mod server;
mod session;
mod slot;
mod state;
pub mod status;
pub mod types;

pub use client::Counts;
pub use offload::Background;
pub use referral::{Location, Referral};
pub use remembered::{ConnInfo, Remembered};
pub(crate) use server::{Nfs4, Parts};
pub use state::StateCounts;
pub use types::COMPOUND;

use crate::idmap::Names;
use crate::rpc::xdr::Reader;

/// Decodes a whole COMPOUND, one operation after the other: whether all decode. For fuzzing.
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
                    // Neither may panic, whatever it is.
                    let _ = attrs::New::decode(head.minor, new, &Names::default());
                }
                !matches!(args, args::Args::Illegal | args::Args::NotServed)
            })
        })
    })
}
