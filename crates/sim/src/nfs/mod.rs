//! The NFSv3 surface as a subject: a client that encodes operations and reads replies.
//!
//! The codec is this crate's own, written from RFC 1813 and RFC 5531, so that a misreading in the server's codec cannot
//! hide behind the same misreading here.

pub mod client;
pub mod persistent;
pub mod repeat;
pub mod server;
pub mod story;
pub mod xdr;
