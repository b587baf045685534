//! Users who may log on, and the names of users and groups of this machine.

use crate::legacy::Key;
use std::sync::Arc;
use weir_vfs::Identity;
use weir_vfs::signal::Signal;

/// A user who may log on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, as it was created.
    pub name: String,
    /// See [`crate::ntlm::nt_hash`].
    pub nt_hash: Key,
    /// The identity that the user's sessions act as.
    pub identity: Identity,
}

/// The users who may log on.
pub trait Users: Send + Sync {
    /// Returns the user of this name, in any case. Called on event loops, so it must not block.
    fn find(&self, name: &str) -> Option<Arc<User>>;

    /// Returns the user who acts as this number; of several, the first by name. Must not block.
    fn with_uid(&self, uid: u32) -> Option<Arc<User>>;

    /// Returns all users that [`Users::with_uid`] finds, in ascending order of their numbers. Must
    /// not block.
    fn list_users(&self) -> Arc<[Arc<User>]>;
}

/// Names of this machine's users and groups, from its name service. A name that is not known yet is
/// looked up in the background, and the error is the signal to wait for.
pub trait Machine: Send + Sync {
    /// Returns the name of the group, or user, with this number.
    ///
    /// # Errors
    /// It is not known yet.
    fn name(&self, group: bool, number: u32) -> Result<Option<String>, Arc<Signal<()>>>;

    /// Returns the number of the group, or user, of this name.
    ///
    /// # Errors
    /// It is not known yet.
    fn number(&self, group: bool, name: &str) -> Result<Option<u32>, Arc<Signal<()>>>;

    /// Gives up look-ups that take too long. Called about once a second.
    fn tick(&self);
}
