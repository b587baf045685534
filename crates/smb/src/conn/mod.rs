//! Connections and the state of the service that they share.

pub mod connection;
pub mod operation;
pub(crate) mod reply;
pub(crate) mod server;
