//! Tests of the service by its messages, with what they need of the crate's own types.

mod channel;
mod compression;
mod directory_lease;
mod durable;
mod kerberos;
mod lease;
mod notify;
mod persistent;
pub(crate) mod service;
