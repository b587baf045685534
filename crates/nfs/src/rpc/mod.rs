//! ONC RPC: encoding of messages and replies, outcomes of calls, and the cache of answered calls.

pub(crate) mod call_queue;
pub(crate) mod deferred_calls;
pub(crate) mod drc;
pub(crate) mod failure;
pub(crate) mod message;
pub mod operation;
pub(crate) mod outcome;
pub mod portmap;
pub(crate) mod reply;
pub mod xdr;

pub use message::*;
