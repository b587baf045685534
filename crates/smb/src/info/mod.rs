//! What is read of files and directories: attributes, listings, lists of access, reports of
//! changes.
//!
//! Four modules import each other: a listing (`dir`) has what macOS asks for beside (`apple`),
//! whose entries (`entry`) show a file as a response to CREATE does (`shown`).

pub(crate) mod access;
pub(crate) mod apple;
pub(crate) mod change_notify;
pub(crate) mod dir;
pub(crate) mod ea;
pub(crate) mod entry;
pub(crate) mod previous;
pub(crate) mod reparse;
pub(crate) mod shown;
