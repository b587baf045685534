//! Sessions and opens, their caching and locks, and the opens that outlive them.
//!
//! Four modules import each other: an open (`session`) has a lease or oplock (`leases`) and may
//! outlive its session (`durable`) and the server (`persistent`). The break of a lease goes to the
//! sessions that have it, and opens without a session are in tables.

pub(crate) mod caching;
pub(crate) mod channel;
pub(crate) mod deletions;
pub(crate) mod durable;
pub(crate) mod feed;
pub(crate) mod leases;
pub(crate) mod line;
pub(crate) mod moves;
pub(crate) mod notify;
pub(crate) mod persistent;
pub(crate) mod session;
pub(crate) mod shares;
pub(crate) mod waits;
