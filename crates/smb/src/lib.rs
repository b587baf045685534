//! SMB 2.1 to 3.1.1 (MS-SMB2): messages in, messages out.
//!
//! Sans-I/O as `weir-nfs` is: the binary passes a connection's messages in and takes the responses.
//! A request that waits is a future on the connection's own thread. This crate opens no socket,
//! reads no clock of its own and does not block.
//!
//! **Authentication.** A client negotiates a dialect, and a user logs on with NTLMv2 or a Kerberos
//! ticket. Every message after that is signed or encrypted, in both directions, unless both sides
//! agree to do without ([`negotiate::Protection`]). There is no guest and no anonymous user. A
//! session may have several connections, on any cores (`channel`).
//!
//! **Access.** A share is an export. Its files are reached by the same pipeline as NFS's
//! (`weir_vfs::pipeline`): admitted by the export's rules, charged to the same limits, under one
//! table of claims. Access is decided when a file is opened, by its mode or list. Operations on the
//! open are limited to the access that was granted.
//!
//! **Lifetime.** An open ends with its session, or is kept for its client (`durable`), over a
//! restart as well (`persistent`).
//!
//! Reading order: `service` (the entrance), `chain` (execution of requests), `context` (the state
//! of a running command), `ops` (the commands: `setup` authenticates, `create` and `read_write`
//! reach files), `info` (attributes and listings), `open` and `conn` (the state), `pipes`
//! (accounts), `proto` (bytes, signatures, encryption, compression, message numbers). Users and
//! their logon are [`weir_auth`]'s.

mod chain;
mod conn;
mod context;
mod info;
mod open;
mod ops;
mod pending_requests;
mod pipes;
mod proto;
mod restore;
mod service;
#[cfg(test)]
mod tests;

pub use conn::connection::{ConnInfo, Slot};
pub use conn::reply::Reply;
pub use conn::server::{Config, Service, SessionInfo};
pub use conn::{connection, operation};
pub use open::leases::Mail;
pub use proto::reply_bound::reply_bound;
pub use proto::{
    compression, credits, dialect, encryption, header, keys, lz77, names, negotiate, status,
};
pub use service::{Later, Outcome};

/// Number of this service in the table of claims.
pub const SERVICE: weir_vfs::claims::ServiceId = weir_vfs::claims::ServiceId(2);
