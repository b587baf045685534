//! Tries again what a bucket has not answered.

use std::time::Duration;

use weir_base::limits::backup as limits;

use crate::bucket::{Bucket, BucketError};

/// A bucket whose requests are repeated while it does not answer, each time after twice the pause.
/// All requests can be repeated: objects are written as a whole.
pub struct RetryBucket<B> {
    bucket: B,
    pause: fn(Duration),
}

impl<B: Bucket> RetryBucket<B> {
    /// Waits with `pause`.
    pub fn new(bucket: B, pause: fn(Duration)) -> RetryBucket<B> {
        RetryBucket { bucket, pause }
    }

    fn tried<T>(&self, request: impl Fn(&B) -> Result<T, BucketError>) -> Result<T, BucketError> {
        let mut pause = limits::FIRST_PAUSE;
        for _ in 1..limits::TRIES {
            match request(&self.bucket) {
                Err(BucketError::Unavailable(_)) => {
                    (self.pause)(pause);
                    pause *= 2;
                }
                done => return done,
            }
        }
        request(&self.bucket)
    }
}

impl<B: Bucket> Bucket for RetryBucket<B> {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BucketError> {
        self.tried(|bucket| bucket.put(name, bytes))
    }

    fn get(&self, name: &str, from: u64, length: u64) -> Result<Vec<u8>, BucketError> {
        self.tried(|bucket| bucket.get(name, from, length))
    }

    fn size(&self, name: &str) -> Result<u64, BucketError> {
        self.tried(|bucket| bucket.size(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, BucketError> {
        self.tried(|bucket| bucket.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<(), BucketError> {
        self.tried(|bucket| bucket.delete(name))
    }
}
