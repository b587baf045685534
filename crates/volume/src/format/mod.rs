//! Encodings of stored and logged volume data.

pub(crate) mod calls;
pub(crate) mod catalog;
pub(crate) mod clients;
pub(crate) mod codec;
pub(crate) mod content;
#[cfg(test)]
mod document;
pub(crate) mod edit;
pub(crate) mod fold;
pub(crate) mod hash;
pub(crate) mod mark;
pub(crate) mod reading;
pub(crate) mod record;
pub(crate) mod shared_runs;
pub(crate) mod side;
pub(crate) mod step;
pub(crate) mod usage;
pub(crate) mod volume_change;
