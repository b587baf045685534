//! Users who may log on, and the names of users and groups of this machine.

use crate::proto::legacy::Key;
use std::sync::Arc;
use weir_vfs::Identity;
use weir_vfs::signal::Signal;

/// A user who may log on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, as it was created.
    pub name: String,
    /// See [`crate::auth::ntlm::nt_hash`].
    pub nt_hash: Key,
    /// On whose behalf the user's sessions act.
    pub identity: Identity,
}

/// The users who may log on.
pub trait Users: Send + Sync {
    /// The user of this name, in any case. Called on event loops: it must not block.
    fn find(&self, name: &str) -> Option<Arc<User>>;

    /// The user who acts as this number; of several the first by name. Likewise.
    fn with_uid(&self, uid: u32) -> Option<Arc<User>>;

    /// All that [`Users::with_uid`] finds, in ascending order of their numbers. Likewise.
    fn all(&self) -> Arc<[Arc<User>]>;
}

/// This machine's users and groups, as its name service has them. What is not known yet is looked up meanwhile: the error is what to wait for.
pub trait Machine: Send + Sync {
    /// The name of the group, or user, with this number.
    ///
    /// # Errors
    /// It is not known yet.
    fn name(&self, group: bool, number: u32) -> Result<Option<String>, Arc<Signal<()>>>;

    /// The number of the group, or user, of this name.
    ///
    /// # Errors
    /// Likewise.
    fn number(&self, group: bool, name: &str) -> Result<Option<u32>, Arc<Signal<()>>>;

    /// Gives up what takes too long; about once a second.
    fn tick(&self);
}
