//! The protocol's bytes: headers, dialects, signatures, encryption, compression, names.

pub mod compression;
pub mod credits;
pub mod dialect;
pub mod encryption;
pub(crate) mod filter;
pub(crate) mod gmac;
pub mod header;
pub mod keys;
pub mod lz77;
pub(crate) mod mask;
pub mod names;
pub mod negotiate;
pub(crate) mod reply_bound;
pub(crate) mod security;
pub mod status;
