//! ONC RPC: messages and replies as bytes, what becomes of a call, and which calls were answered
//! before.

pub(crate) mod drc;
pub(crate) mod failure;
pub(crate) mod held;
pub(crate) mod message;
pub mod operation;
pub(crate) mod outcome;
pub(crate) mod outgoing;
pub mod portmap;
pub(crate) mod reply;
pub mod xdr;

pub use message::*;
