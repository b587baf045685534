//! Sessions and opens, what they cache and lock, and what outlives them.
//!
//! Four modules import each other: an open (`session`) has what it caches by (`leases`) and may
//! outlive its session (`durable`) and the server (`persistent`); a break of a lease asks the
//! sessions that have it, and what outlives a session is a table of opens.

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
