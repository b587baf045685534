//! The protocol's bytes: headers, dialects, signatures, encryption, compression, names.

pub(crate) mod bound;
pub mod compression;
pub mod credits;
pub mod dialect;
pub(crate) mod filter;
pub(crate) mod gmac;
pub mod header;
pub mod keys;
pub mod lz77;
pub(crate) mod mask;
pub mod names;
pub mod negotiate;
pub mod sealing;
pub(crate) mod security;
pub mod status;
