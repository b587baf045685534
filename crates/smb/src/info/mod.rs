//! Information about files and directories: attributes, listings, access lists, reports of changes.
//!
//! Four modules import each other: a listing (`dir`) has the attributes for macOS (`apple`), and
//! its entries (`entry`) show a file as the response to CREATE does (`shown`).

pub(crate) mod access;
pub(crate) mod apple;
pub(crate) mod attributes;
pub(crate) mod change_notify;
pub(crate) mod dir;
pub(crate) mod ea;
pub(crate) mod entry;
pub(crate) mod previous;
pub(crate) mod reparse;
