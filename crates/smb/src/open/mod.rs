//! Sessions and opens, what they cache and lock, and what outlives them.

pub(crate) mod caching;
pub(crate) mod channel;
pub(crate) mod deletions;
pub(crate) mod durable;
pub(crate) mod feed;
pub(crate) mod leases;
pub(crate) mod moves;
pub(crate) mod notify;
pub(crate) mod persistent;
pub(crate) mod session;
pub(crate) mod shares;
pub(crate) mod waits;
