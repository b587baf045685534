//! SMB 2.1 to 3.1.1 (MS-SMB2): messages in, messages out.
//!
//! Sans-I/O as `weir-nfs` is: the binary brings a connection's messages and takes the responses away; what waits is a future
//! on the connection's own thread. Nothing here opens a socket, reads a clock of its own or blocks.
//!
//! **Who.** A client negotiates a dialect, and a user logs on with NTLMv2 or a ticket of Kerberos. Every message after that is signed or encrypted, in both
//! directions, unless both sides are to do without ([`negotiate::Protection`]). There is no guest and no anonymous user. A session may have several connections, on any cores (`channel`).
//!
//! **What.** A share is an export; its files are reached by the same pipeline as NFS's (`weir_vfs::pipeline`): admitted by the
//! export's rules, charged to the same limits, under one table of claims. Access is decided when a file is opened, by its
//! mode or list, and then by what was granted.
//!
//! **How long.** An open ends with its session, or is kept for its client (`durable`), over a restart as well (`persistent`).
//!
//! Reading order: `service` (the entrance), `chain` (how requests are run), `setup` (who), `create` and `files` (what), `apple` (what macOS asks for beside);
//! `wire` and `header` (bytes), `negotiate`, `spnego`, `kerberos` and `ntlm` over `legacy`, `keys` (signatures), `sealing` (encryption),
//! `compression` over `lz77`, `credits` (message numbers).

mod access;
mod apple;
mod bound;
mod breaks;
mod caching;
mod chain;
mod channel;
#[cfg(test)]
mod channel_tests;
pub mod compression;
#[cfg(test)]
mod compression_tests;
pub mod connection;
mod create;
pub mod credits;
mod deletions;
mod dir;
#[cfg(test)]
mod directory_lease_tests;
pub mod domains;
mod durable;
#[cfg(test)]
mod durable_tests;
mod ea;
mod feed;
mod files;
mod fsctl;
mod gmac;
pub mod header;
mod info;
mod ioctl;
pub mod kerberos;
#[cfg(test)]
mod kerberos_tests;
pub mod keys;
#[cfg(test)]
mod lease_tests;
mod leases;
pub mod legacy;
mod lsa;
pub mod lz77;
mod moves;
pub mod names;
pub mod negotiate;
mod notify;
#[cfg(test)]
mod notify_tests;
pub mod ntlm;
pub mod operation;
pub mod pac;
mod penalties;
mod pending;
mod persistent;
#[cfg(test)]
mod persistent_tests;
mod pipe;
mod previous;
mod query;
mod reparse;
mod reply;
mod request;
mod restore;
mod rpc;
mod samr;
mod samr_info;
pub mod sealing;
pub mod security;
mod service;
#[cfg(test)]
mod service_tests;
mod session;
mod setup;
mod shares;
mod shown;
pub mod spnego;
pub mod status;
mod streams;
mod waits;
pub mod wire;
mod wkssvc;

pub use bound::reply_bound;
pub use connection::{ConnInfo, Slot};
pub use leases::Mail;
pub use penalties::PENALTY;
pub use reply::Reply;
pub use service::{Config, Later, Machine, Outcome, SERVICE, Service, SessionInfo, User, Users};
