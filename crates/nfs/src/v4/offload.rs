//! Copies in the background: a COPY whose reply comes before its end (RFC 7862 §15.2.3, §15.8,
//! §15.9, §16.1).
//!
//! A long COPY that asks for it, and whose blocks cannot be shared, is answered at once with a
//! stateid. The server's executor ([`Background`]) carries it out piece by piece, under the limits
//! of both volumes and as the user who asked for it. It does not depend on the connection. Each
//! piece is copied only while the client still has both opens. CB_OFFLOAD reports the end;
//! OFFLOAD_STATUS asks for the progress, OFFLOAD_CANCEL ends the copy.
//!
//! **Bounds.** A client may have [`MOST_OF_CLIENT`] copies at once, all clients [`MOST_OF_ALL`],
//! each with one piece in memory. A further copy is carried out before the reply, in part (see
//! `ops::copy`), and so is that of a client that cannot be called. A copy that has ended
//! counts until it is acknowledged; the oldest one is forgotten when a new copy needs its place.
//!
//! A restart of the server forgets copies. The client notices the restart and repeats the copies
//! that were not acknowledged.

use super::status::Status;
use super::types::StateId;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use weir_vfs::FileId;

/// Work that no connection waits for.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Maximum number of a client's copies that are under way or not acknowledged.
pub(super) const MOST_OF_CLIENT: usize = 16;

/// Maximum number of copies under way of all clients.
pub(super) const MOST_OF_ALL: usize = 64;

/// A copy in the background.
pub struct Offload {
    /// Its stateid.
    pub id: StateId,
    /// The file that is written.
    pub file: FileId,
    /// The write verifier at the start of the copy.
    pub verifier: [u8; 8],
    pub(super) copied: AtomicU64,
    pub(super) cancelled: AtomicBool,
    pub(super) ended: OnceLock<Status>,
}

impl Offload {
    /// Returns the number of bytes copied so far.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Acquire)
    }

    /// Returns the status with which it ended, if it has.
    pub fn ended(&self) -> Option<Status> {
        self.ended.get().copied()
    }

    /// Returns true if the copy was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// The copies of all clients.
#[derive(Default)]
pub(crate) struct Offloads {
    pub(super) run: OnceLock<Arc<dyn Fn(Background) + Send + Sync>>,
    pub(super) under_way: AtomicUsize,
}

impl Offloads {
    /// Sets the executor `run` of copies. Only the first call has an effect.
    pub(crate) fn run_with(&self, run: Arc<dyn Fn(Background) + Send + Sync>) {
        let _ = self.run.set(run);
    }
}
