//! Implementations of the operations.

pub(crate) mod admission;
pub(crate) mod attr;
pub(crate) mod clone_range;
pub(crate) mod commit;
pub(crate) mod constituent;
pub(crate) mod convert;
pub(crate) mod data;
pub(crate) mod directory;
pub(crate) mod names;
pub(crate) mod pin;
pub(crate) mod punch;
pub(crate) mod quota;
pub(crate) mod readdir;
pub(crate) mod rename;
pub(crate) mod retry;
pub(crate) mod seek;
pub(crate) mod side;
pub(crate) mod stream;
pub(crate) mod tree;
pub(crate) mod unlink;
