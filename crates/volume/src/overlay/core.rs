//! What all volumes of an aggregate share, as parts that keep their state to themselves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weir_base::{Rng, VolumeId};
use weir_store::aggregate::Aggregate;
use weir_store::{IoError, StoreError};

use crate::format::mark::MarkId;
use crate::overlay::clients::Clients;
use crate::overlay::direct::Placements;
use crate::overlay::epoch_lock::EpochLock;
use crate::overlay::inode::Table;
use crate::overlay::log::LogFront;
use crate::overlay::readahead::ReadAhead;
use crate::overlay::reservation::Totals;
use crate::overlay::schedule::Schedule;
use crate::types::{FsError, Replaced};

/// Called with a volume that was deleted or replaced, and how ([`Replaced`]).
type Follower = Arc<dyn Fn(VolumeId, Replaced) + Send + Sync>;

/// See the module's head.
pub(crate) struct Core {
    pub(crate) agg: Arc<Aggregate>,
    pub(crate) log: LogFront,
    pub(crate) schedule: Schedule,
    /// Data that is written to its place outside of checkpoints.
    pub(crate) placements: Arc<Placements>,
    /// The inodes in memory.
    pub(crate) inodes: Arc<Table>,
    /// The streams of requests that files are read by.
    pub(crate) read_ahead: ReadAhead,
    /// What is recorded of clients.
    pub(crate) clients: Clients,
    /// Clients may still reclaim what they had open before the start.
    in_grace: AtomicBool,
    /// Called with a volume that was deleted or replaced, and how ([`Replaced`]).
    replaced: OnceLock<Follower>,
    /// The epoch in which a volume was last deleted.
    retired: AtomicU64,
    /// The newest mark that there has ever been.
    last_mark: AtomicU64,
    fsid_base: u64,
    verifier: u64,
    /// That of another machine in whose place this one serves, with all that was written there; 0: there is none.
    handed_verifier: AtomicU64,
}

/// How the parts are made.
pub(crate) struct CoreOptions {
    /// A thread makes checkpoints.
    pub(crate) background: bool,
    /// Inodes that are kept in memory besides changed ones.
    pub(crate) inodes: usize,
    /// Bytes that overlays may take besides page frames; `None`: an eighth of those.
    pub(crate) heap: Option<u64>,
    /// Bytes that the log may be behind before large stable data goes to its place.
    pub(crate) behind: u64,
}

impl Core {
    pub(crate) fn new(
        agg: Arc<Aggregate>,
        rng: &dyn Rng,
        options: &CoreOptions,
    ) -> Result<Arc<Core>, StoreError> {
        let [a, b, c, d, e, f, g, h, ..] = agg.id().0;
        Ok(Arc::new(Core {
            log: LogFront::new(&agg),
            schedule: Schedule::new(&agg, options.background, options.heap),
            placements: Placements::new(&agg, options.background, options.behind)?,
            inodes: Table::new(options.inodes),
            read_ahead: ReadAhead::default(),
            clients: Clients::default(),
            in_grace: AtomicBool::new(true),
            replaced: OnceLock::new(),
            retired: AtomicU64::new(0),
            last_mark: AtomicU64::new(0),
            fsid_base: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            verifier: rng.next_u64(),
            handed_verifier: AtomicU64::new(0),
            agg,
        }))
    }

    /// The lock between operations and checkpoints.
    pub(crate) fn epoch_lock(&self) -> &EpochLock {
        self.schedule.epoch_lock()
    }

    /// What overlays count for.
    pub(crate) fn totals(&self) -> &Totals {
        self.schedule.totals()
    }

    /// What file-system identities are made from.
    pub(crate) fn fsid_base(&self) -> u64 {
        self.fsid_base
    }

    /// Identifies a volume among all of all aggregates.
    pub(crate) fn uuid_of(&self, id: VolumeId) -> [u8; 16] {
        let mut uuid = self.agg.id().0;
        for (byte, of) in uuid.iter_mut().rev().zip(id.0.to_le_bytes()) {
            *byte ^= of;
        }
        uuid
    }

    pub(crate) fn verifier(&self) -> u64 {
        // A poisoned aggregate returns another verifier, so that clients notice
        // that what they have not committed may be gone.
        let v = match self.handed_verifier.load(Ordering::Relaxed) {
            0 => self.verifier,
            handed => handed,
        };
        if self.is_poisoned() { !v } else { v }
    }

    /// Goes on with another machine's verifier; `None`: with its own. Before any client is served.
    pub(crate) fn take_verifier(&self, handed: Option<u64>) {
        self.handed_verifier
            .store(handed.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.agg.guard().is_set()
    }

    /// Total and available blocks of the aggregate.
    pub(crate) fn capacity(&self) -> (u64, u64) {
        let s = self.agg.space().stats();
        // Saturates: numbers of the host.
        (s.total.saturating_add(s.growth), s.available())
    }

    /// File data cannot be written to its place: the contents of the device are unknown.
    pub(crate) fn unwritten(&self, error: &IoError) -> FsError {
        let why = format!("file data cannot be written: {error}");
        self.agg.poison(&why);
        self.schedule.notify();
        FsError::ReadOnly
    }

    /// Has `follower` called after a volume was deleted, or its content replaced; false if there is a follower already.
    pub(crate) fn on_replaced(&self, follower: Follower) -> bool {
        self.replaced.set(follower).is_ok()
    }

    /// Notifies the follower of volumes ([`Core::on_replaced`]).
    pub(crate) fn replaced(&self, volume: VolumeId, how: Replaced) {
        if let Some(follower) = self.replaced.get() {
            follower(volume, how);
        }
    }

    /// Whether clients may still reclaim what they had open before the start.
    pub(crate) fn in_grace(&self) -> bool {
        self.in_grace.load(Ordering::Acquire)
    }

    /// Ends the time in which they may; whether it had not ended before.
    pub(crate) fn end_grace(&self) -> bool {
        self.in_grace.swap(false, Ordering::AcqRel)
    }

    /// Notes that a volume is deleted in the current epoch; the epoch lock is held exclusively.
    pub(crate) fn note_retired(&self) {
        self.retired
            .store(self.epoch_lock().epoch(), Ordering::Release);
    }

    /// The newest mark that there has ever been, here or where this is a copy of.
    pub(crate) fn last_mark(&self) -> MarkId {
        MarkId(self.last_mark.load(Ordering::Acquire))
    }

    /// Notes that there is, or was, a mark. The epoch lock is held exclusively, or nothing else is at work.
    pub(crate) fn note_mark(&self, mark: MarkId) {
        self.last_mark.fetch_max(mark.0, Ordering::AcqRel);
    }

    /// Makes the next checkpoint store an older mark as the newest.
    #[cfg(test)]
    pub(crate) fn forget_marks_after(&self, mark: MarkId) {
        self.last_mark.store(mark.0, Ordering::Release);
    }

    /// A deleted volume counts as a clone of its origin's snapshot until the checkpoint that makes its deletion
    /// durable. If there is such a volume, makes that checkpoint and returns true: what was refused as busy may
    /// be tried once more.
    ///
    /// # Errors
    /// `ReadOnly` if the aggregate is poisoned.
    pub(crate) fn settle_retired(&self) -> Result<bool, FsError> {
        if self
            .schedule
            .is_durable(self.retired.load(Ordering::Acquire))
        {
            return Ok(false);
        }
        self.schedule.cp_now().map(|()| true)
    }
}
