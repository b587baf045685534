//! Copies in the background: a COPY that its client need not wait for (RFC 7862 §15.2.3, §15.8,
//! §15.9, §16.1).
//!
//! A long COPY that asks for it, and whose blocks cannot be shared, is answered at once with a
//! stateid. It is carried out piece by piece by what the server runs such work on ([`Background`]),
//! under the limits of both volumes and as the user who asked for it, whether or not the connection
//! lasts. Each piece is copied only while both opens are the client's still. CB_OFFLOAD reports the
//! end; OFFLOAD_STATUS asks how far it is, OFFLOAD_CANCEL ends it.
//!
//! **Bounds.** A client has [`MOST_OF_CLIENT`] copies at once, all have [`MOST_OF_ALL`], each with
//! one piece in memory; a further one, and that of a client that cannot be called, is copied before
//! the reply, in part (see [`super::ops::copy`]). What has ended and was not acknowledged counts,
//! and the oldest of it goes when a new one needs its place.
//!
//! After a restart of the server nothing is known of a copy: its client learns of the restart and
//! copies again what it has not seen acknowledged.

use super::status::Status;
use super::types::StateId;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use weir_vfs::FileId;

/// Work that no connection waits for.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Copies of a client that are under way or not acknowledged.
pub(super) const MOST_OF_CLIENT: usize = 16;

/// Copies under way of all clients.
pub(super) const MOST_OF_ALL: usize = 64;

/// A copy in the background.
pub struct Offload {
    /// Its stateid.
    pub id: StateId,
    /// The file that is written.
    pub file: FileId,
    /// The write verifier as the copy began.
    pub verifier: [u8; 8],
    pub(super) copied: AtomicU64,
    pub(super) cancelled: AtomicBool,
    pub(super) ended: OnceLock<Status>,
}

impl Offload {
    /// Bytes that were copied so far.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Acquire)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Status> {
        self.ended.get().copied()
    }

    /// Nobody wants it any more.
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
    /// Has `run` carry copies out. Only the first counts.
    pub(crate) fn run_with(&self, run: Arc<dyn Fn(Background) + Send + Sync>) {
        let _ = self.run.set(run);
    }
}
