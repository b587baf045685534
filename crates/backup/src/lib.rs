//! Backups of volumes in a bucket: incremental, deduplicated, encrypted, verified.
//!
//! A [`Vault`] is the objects of a bucket under one prefix, sealed with one key. They are written
//! once and never changed:
//!
//! - *packs* of [`chunk`]s: the contents of files by windows of 128 KiB, and segments of manifests;
//! - a [`backup`](Backup) is one small object that refers to the segments of its *manifest*: all
//!   records of the volume's snapshot in the order of their keys, with the chunks that hold the
//!   contents of its files. So each backup is complete by itself, and shares with others whatever
//!   is equal;
//! - *indexes* name chunks with their places, so that equal contents are not uploaded twice;
//! - *refs* say which packs a segment and an index refer to, so that a deletion reads no manifest.
//!
//! [`take()`] walks the difference of two snapshots, as a transfer does, and merges it into the
//! manifest of the backup before. [`restore()`] receives a manifest into an empty volume, as a
//! transfer is received, and ends well only if the volume's own tree has the hash of contents that
//! the source's tree had. [`restore_files()`] brings single files.
//! [`verify()`] reads everything that a backup refers to.
//!
//! The object of a backup is written last. What an interrupted one has uploaded is found in the
//! index and used by the next. The caller sees to it that one process at a time writes to a vault.

mod bucket;
pub mod chunk;
pub mod decode;
mod error;
mod folder;
mod index;
mod manifest;
mod merge;
mod pack;
mod prune;
mod refs;
mod restore;
mod retry;
mod s3;
mod seal;
mod select;
mod take;
mod vault;
mod verify;

pub use bucket::{Bucket, BucketError};
pub use error::BackupError;
pub use folder::Folder;
pub use prune::{PruneStats, prune};
pub use restore::restore;
pub use retry::RetryBucket;
pub use s3::{S3, S3Settings};
pub use seal::VaultKey;
pub use select::restore_files;
pub use take::{Source, take};
pub use vault::{Backup, Vault};
pub use verify::{VerifyStats, verify};

/// Progress of a backup, a restoration or a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of file contents that were gone through.
    pub contents: u64,
    /// Bytes sent to the bucket, or fetched from it.
    pub moved: u64,
}

/// Called between two steps with how far the work is. It may wait, as a throttle does. False ends
/// the work with [`BackupError::Stopped`].
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> bool;
