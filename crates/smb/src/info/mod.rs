//! What is read of files and directories: attributes, listings, lists of access, reports of changes.

pub(crate) mod access;
pub(crate) mod apple;
pub(crate) mod change_notify;
pub(crate) mod dir;
pub(crate) mod ea;
pub(crate) mod entry;
pub(crate) mod previous;
pub(crate) mod reparse;
pub(crate) mod shown;
