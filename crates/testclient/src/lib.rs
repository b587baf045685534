//! An NFSv3 client for tests: calls as values, which encode themselves and decode their replies. No
//! sockets.
//!
//! The codec shares nothing with the server's: written from RFC 4506 (XDR), RFC 5531 (RPC) and RFC
//! 1813, so that a misreading there cannot hide behind the same misreading here. What a reply may
//! not contain is an error.

pub mod nfs3;
pub mod rpc;
pub mod xdr;

pub use nfs3::{Call, Reply};
pub use rpc::Caller;
pub use xdr::{In, Malformed, Out};
