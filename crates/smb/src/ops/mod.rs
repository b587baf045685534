//! The commands.

pub(crate) mod breaks;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod fsctl;
pub(crate) mod ioctl;
pub(crate) mod moved;
pub(crate) mod query;
pub(crate) mod quota;
pub(crate) mod read_write;
pub(crate) mod reconnect;
pub(crate) mod recording;
pub(crate) mod request;
pub(crate) mod setup;
pub(crate) mod srvsvc;
pub(crate) mod streams;
pub(crate) mod ticket;
