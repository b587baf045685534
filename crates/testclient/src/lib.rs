//! NFS clients for tests, and a server of PostgreSQL ([`postgres`]). [`nfs3`] has calls as values,
//! which encode themselves and decode their replies, and [`compound`] NFSv4's operations and
//! results, both without sockets; [`nfs4`] is a client with a session over TCP.
//!
//! The codecs share nothing with the server's: written from RFC 4506 (XDR), RFC 5531 (RPC), RFC
//! 1813 and RFC 8881, so that a misreading there cannot hide behind the same misreading here. What
//! a reply may not contain is an error.

pub mod args;
pub mod compound;
pub mod nfs3;
pub mod nfs4;
pub mod postgres;
pub mod rpc;
pub mod xdr;

pub use args::{Args, Fields};
pub use nfs3::{Call, Reply};
pub use rpc::Caller;
pub use xdr::{DecodeError, In, Out};
