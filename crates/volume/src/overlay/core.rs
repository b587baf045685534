//! State shared by all volumes of an aggregate, as parts that keep their state to themselves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weir_base::{Rng, VolumeId};
use weir_store::aggregate::Aggregate;
use weir_store::features::{CONSTITUENTS, TREES, USAGE};
use weir_store::{IoError, StoreError};

use crate::format::mark::MarkId;
use crate::overlay::checkpoint_pacing::Schedule;
use crate::overlay::clients::Clients;
use crate::overlay::direct::Placements;
use crate::overlay::epoch_lock::EpochLock;
use crate::overlay::inode::Table;
use crate::overlay::log::LogFront;
use crate::overlay::readahead::ReadAhead;
use crate::overlay::reservation::Totals;
use crate::types::{FsError, ReplacementKind};

/// Callback for a volume that was deleted or replaced, and the kind of change
/// ([`ReplacementKind`]).
type Follower = Arc<dyn Fn(VolumeId, ReplacementKind) + Send + Sync>;

/// State shared by all volumes of an aggregate.
pub(crate) struct Core {
    pub(crate) agg: Arc<Aggregate>,
    pub(crate) log: LogFront,
    pub(crate) schedule: Schedule,
    /// Direct writes, outside of checkpoints.
    pub(crate) placements: Arc<Placements>,
    /// The inodes in memory.
    pub(crate) inodes: Arc<Table>,
    /// Sequential streams of read requests.
    pub(crate) read_ahead: ReadAhead,
    /// Records of the protocols' clients.
    pub(crate) clients: Clients,
    /// True while clients may still reclaim opens from before the start.
    in_grace: AtomicBool,
    /// Callback for a volume that was deleted or replaced ([`ReplacementKind`]).
    replaced: OnceLock<Follower>,
    /// Epoch in which a volume was last deleted.
    retired: AtomicU64,
    /// The newest mark so far.
    last_mark: AtomicU64,
    fsid_base: u64,
    /// True if checkpoints count the usage of owners.
    counts_usage: bool,
    has_trees: bool,
    has_constituents: bool,
    verifier: u64,
    /// Write verifier of another machine that this one replaces with all of its data; 0: none.
    handed_verifier: AtomicU64,
}

/// Options of the parts.
pub(crate) struct CoreOptions {
    /// True if a thread takes checkpoints.
    pub(crate) background: bool,
    /// Maximum number of unchanged inodes in memory.
    pub(crate) inodes: usize,
    /// Bytes that overlays may take besides page frames; `None`: an eighth of those.
    pub(crate) heap: Option<u64>,
    /// Backlog of the log in bytes from which on large stable data is written in place.
    pub(crate) behind: u64,
    /// True if checkpoints count the usage of owners.
    pub(crate) usage: bool,
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
            counts_usage: options.usage && agg.has_feature(&USAGE),
            has_trees: agg.has_feature(&TREES),
            has_constituents: agg.has_feature(&CONSTITUENTS),
            verifier: rng.next_u64(),
            handed_verifier: AtomicU64::new(0),
            agg,
        }))
    }

    /// Returns the lock between operations and checkpoints.
    pub(crate) fn epoch_lock(&self) -> &EpochLock {
        self.schedule.epoch_lock()
    }

    /// Returns the totals of the overlays' charges.
    pub(crate) fn totals(&self) -> &Totals {
        self.schedule.totals()
    }

    /// Returns true if checkpoints count the usage of owners.
    pub(crate) fn counts_usage(&self) -> bool {
        self.counts_usage
    }

    /// Returns true if the format has inodes that belong to trees.
    pub(crate) fn has_trees(&self) -> bool {
        self.has_trees
    }

    /// Returns true if the format has entries that name inodes of other volumes.
    pub(crate) fn has_constituents(&self) -> bool {
        self.has_constituents
    }

    /// Returns the number that file-system identities are derived from.
    pub(crate) fn fsid_base(&self) -> u64 {
        self.fsid_base
    }

    /// Returns the identity of a volume among all volumes of all aggregates.
    pub(crate) fn uuid_of(&self, id: VolumeId) -> [u8; 16] {
        let mut uuid = self.agg.id().0;
        for (byte, of) in uuid.iter_mut().rev().zip(id.0.to_le_bytes()) {
            *byte ^= of;
        }
        uuid
    }

    pub(crate) fn verifier(&self) -> u64 {
        // A poisoned aggregate returns another verifier, so that clients notice that uncommitted
        // data may be lost.
        let v = match self.handed_verifier.load(Ordering::Relaxed) {
            0 => self.verifier,
            handed => handed,
        };
        if self.is_poisoned() { !v } else { v }
    }

    /// Continues with another machine's verifier; `None`: with its own. Call it before any client
    /// is served.
    pub(crate) fn take_verifier(&self, handed: Option<u64>) {
        self.handed_verifier
            .store(handed.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.agg.guard().is_set()
    }

    /// Returns the total and the available blocks of the aggregate.
    pub(crate) fn capacity(&self) -> (u64, u64) {
        let s = self.agg.space().stats();
        // Saturates: the numbers come from the host.
        (s.capacity(), s.available())
    }

    /// Poisons the aggregate because a direct write failed: the contents of the device are unknown.
    pub(crate) fn unwritten(&self, error: &IoError) -> FsError {
        let why = format!("cannot write file data: {error}");
        self.agg.poison(&why);
        self.schedule.notify();
        FsError::ReadOnly
    }

    /// Registers `follower` for a call after a volume was deleted, or its content replaced. Returns
    /// false if there is a follower already.
    pub(crate) fn on_replaced(&self, follower: Follower) -> bool {
        self.replaced.set(follower).is_ok()
    }

    /// Notifies the follower of volumes ([`Core::on_replaced`]).
    pub(crate) fn replaced(&self, volume: VolumeId, how: ReplacementKind) {
        if let Some(follower) = self.replaced.get() {
            follower(volume, how);
        }
    }

    /// Returns true while clients may still reclaim opens from before the start.
    pub(crate) fn in_grace(&self) -> bool {
        self.in_grace.load(Ordering::Acquire)
    }

    /// Ends the grace period. Returns true if it had not ended before.
    pub(crate) fn end_grace(&self) -> bool {
        self.in_grace.swap(false, Ordering::AcqRel)
    }

    /// Notes that a volume is deleted in the current epoch; the epoch lock is held exclusively.
    pub(crate) fn note_retired(&self) {
        self.retired
            .store(self.epoch_lock().epoch(), Ordering::Release);
    }

    /// Returns the newest mark so far, here or on the side that this is a copy of.
    pub(crate) fn last_mark(&self) -> MarkId {
        MarkId(self.last_mark.load(Ordering::Acquire))
    }

    /// Notes that a mark exists, or existed. The epoch lock is held exclusively, or nothing else is
    /// at work.
    pub(crate) fn note_mark(&self, mark: MarkId) {
        self.last_mark.fetch_max(mark.0, Ordering::AcqRel);
    }

    /// Makes the next checkpoint store an older mark as the newest.
    #[cfg(test)]
    pub(crate) fn forget_marks_after(&self, mark: MarkId) {
        self.last_mark.store(mark.0, Ordering::Release);
    }

    /// Takes the checkpoint that makes a deletion durable, if a volume has been deleted and is not
    /// yet. Until then it counts as a clone of its origin's snapshot. Returns true if the
    /// checkpoint was taken: an operation refused as busy may be retried once.
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
