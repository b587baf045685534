//! Bytes and values: how volumes are stored and logged.

pub(crate) mod catalog;
pub(crate) mod codec;
pub(crate) mod edit;
pub(crate) mod fold;
pub(crate) mod hash;
pub(crate) mod identity;
pub(crate) mod record;
