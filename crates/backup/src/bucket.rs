//! The trait of places for objects.

/// Error of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// There is no object of this name.
    #[error("cannot read {0}: no such object in the bucket")]
    Missing(String),
    /// There is no room, or a quota is used up.
    #[error("bucket full: {0}")]
    Full(String),
    /// The credentials are wrong, or do not allow it.
    #[error("access to bucket denied: {0}")]
    Denied(String),
    /// It may be tried again.
    #[error("bucket unavailable: {0}")]
    Unavailable(String),
    /// It will not do by trying again.
    #[error("request refused by bucket: {0}")]
    Refused(String),
}

/// A place for objects, which are written as a whole and never changed. Names have parts separated
/// by `/`, of letters, digits, `-`, `_` and `.`. Calls block the thread.
pub trait Bucket: Send + Sync {
    /// Writes an object. It is durable on return, and others see all of it or nothing.
    ///
    /// # Errors
    /// All but `Missing`.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BucketError>;

    /// Reads `length` bytes of an object from `from` on. Fewer are returned if it ends before.
    ///
    /// # Errors
    /// `Missing`, `Denied`, `Unavailable`, `Refused`.
    fn get(&self, name: &str, from: u64, length: u64) -> Result<Vec<u8>, BucketError>;

    /// Returns the size of an object in bytes.
    ///
    /// # Errors
    /// As [`Bucket::get`].
    fn size(&self, name: &str) -> Result<u64, BucketError>;

    /// Returns the names of all objects that begin with `prefix`, in no particular order.
    ///
    /// # Errors
    /// As [`Bucket::get`], but for `Missing`.
    fn list(&self, prefix: &str) -> Result<Vec<String>, BucketError>;

    /// Deletes an object. One that is not there is deleted already.
    ///
    /// # Errors
    /// As [`Bucket::list`].
    fn delete(&self, name: &str) -> Result<(), BucketError>;
}
