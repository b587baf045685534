//! What is known of clients over restarts, as far as grace needs it.

use crate::signal::Signal;
use std::io;
use std::sync::Arc;

/// What becomes of a change: `true` once it is durable, `false` if that failed.
pub type Slip = Signal<bool>;

/// The records of all services' clients: pairs of a key and a value, both text of one line, the key without ` = `.
/// A key begins with a word that says whose and what it is.
///
/// Implemented with a file ([`super::FileRecords`]). Changes are made durable in the order in which they are made, and
/// nothing but [`Records::load`] and [`Records::write`] blocks.
pub trait Records: Send + Sync {
    /// All records, in the order of their keys. At the start only.
    ///
    /// # Errors
    /// If they cannot be read.
    fn load(&self) -> io::Result<Vec<(String, String)>>;

    /// Makes a record, in place of one with the same key.
    fn set(&self, key: &str, value: &str) -> Arc<Slip>;

    /// Removes a record, if there is one.
    fn remove(&self, key: &str) -> Arc<Slip>;

    /// Has everything durable, or known not to be, when it returns.
    fn write(&self);
}
