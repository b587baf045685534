//! Errors of backups.

use weir_volume::FsError;

use crate::bucket::BucketError;

/// Why a backup was not made, restored or verified.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The bucket does not do what is asked.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// An object is not what was written, or was written with another key.
    #[error("{object} is damaged, or sealed with another key: {what}")]
    Damaged {
        /// The object's name in the bucket.
        object: String,
        /// The fault found.
        what: &'static str,
    },
    /// A later version of this program has written the vault.
    #[error("cannot open vault: format {0} is newer than this version")]
    Format(u32),
    /// There is a vault already.
    #[error("cannot create vault: the bucket has one of this name")]
    VaultExists,
    /// There is no vault.
    #[error("cannot open vault: the bucket has none of this name")]
    NoVault,
    /// There is a backup of this name already.
    #[error("cannot create backup {0}: the vault has one of another snapshot")]
    Exists(String),
    /// There is no such backup.
    #[error("cannot find backup {0}: the vault has none of this name")]
    NotFound(String),
    /// The backup has no file of this path.
    #[error("cannot restore {0}: the backup has no such file")]
    NoFile(String),
    /// The volume does not allow it.
    #[error(transparent)]
    Volume(#[from] FsError),
    /// The restored tree has another hash of contents than the source's had.
    #[error("cannot complete restoration: content hash differs from the source's")]
    Different,
    /// The caller has ended it.
    #[error("stopped on request")]
    Stopped,
}

impl BackupError {
    pub(crate) fn damaged(object: impl Into<String>, what: &'static str) -> BackupError {
        BackupError::Damaged {
            object: object.into(),
            what,
        }
    }
}
