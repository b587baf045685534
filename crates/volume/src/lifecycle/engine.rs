//! The engine: an aggregate with its volumes, and the thread that takes checkpoints.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::limits::engine::{DISCARD_PAUSE, JOB_PAUSE as LEAST_PAUSE};
use weir_base::{Lsn, Rng, Time};
use weir_store::StoreError;
use weir_store::aggregate::{Aggregate, Replay};

use crate::checkpoint::checkpointer::Checkpointer;
use crate::format::calls::DoneCall;
use crate::format::catalog::StreamPosition;
use crate::format::catalog::{self, MAX_ANNOTATION, MAX_VOLUME_NAME};
use crate::format::edit::Edits;
use crate::format::hash::HashKey;
use crate::format::record::{InodeRec, ROOT_INO};
use crate::format::volume_change::VolumeChange;
use crate::lifecycle::recovery::{self, RecoveryStats};
use crate::lifecycle::restore::restore;
use crate::overlay::checkpoint_pacing::MakeCheckpoint;
use crate::overlay::core::{Core, CoreOptions};
use crate::overlay::inode::Inode;
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, LiveVolume, Volume};
use crate::types::{FileKind, FsError, Stop};

/// Options of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineOptions {
    /// A thread takes checkpoints when they are due. Without it, the thread that has to wait for
    /// one takes it: for simulations that must be reproducible.
    pub background: bool,
    /// Maximum time until a change is in a checkpoint.
    pub flush_interval: Duration,
    /// Maximum number of unchanged inodes kept in memory, for all volumes together.
    pub inodes: usize,
    /// Bytes of memory, besides page frames, that changes may take before they are in a checkpoint;
    /// `None`: an eighth of the page frames.
    pub heap: Option<u64>,
    /// Backlog of the log in bytes from which on large stable data is written in place instead of
    /// through the log; 0: always.
    pub behind: u64,
    /// True if checkpoints count the usage of owners, so that quotas can be set, provided that the
    /// aggregate's format has the feature. False only in tests, for volumes from before.
    pub usage: bool,
    /// True if the engine applies another one's stream of changes ([`Engine::prepare_entry`]) and
    /// has no clients.
    pub standby: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            background: true,
            // ext4 and XFS use similar times for their journals and write-back; the log bounds
            // recovery anyway.
            flush_interval: Duration::from_secs(10),
            // About 100 MiB if all are used.
            inodes: 262_144,
            heap: None,
            // As much as the log writes at a time: the backlog exceeds what the next write can
            // take.
            behind: 1 << 20,
            usage: true,
            standby: false,
        }
    }
}

/// An open aggregate with its volumes. Dropping it stops its thread without a last checkpoint:
/// every acknowledged change is in the log.
pub struct Engine {
    pub(crate) core: Arc<Core>,
    pub(crate) cp: Arc<Checkpointer>,
    thread: Mutex<Option<JoinHandle<()>>>,
    recovered: RecoveryStats,
}

impl Engine {
    /// Opens the volumes of `agg` and applies the log.
    ///
    /// # Errors
    /// If a volume's record or the log cannot be read.
    pub fn open(
        agg: Arc<Aggregate>,
        replay: Replay,
        rng: &dyn Rng,
        options: EngineOptions,
    ) -> Result<Engine, StoreError> {
        Engine::open_prepared(agg, replay, rng, options, |_| {})
    }

    /// Like [`Engine::open`], but calls `prepare` before the log is applied.
    pub(crate) fn open_prepared(
        agg: Arc<Aggregate>,
        replay: Replay,
        rng: &dyn Rng,
        options: EngineOptions,
        prepare: impl FnOnce(&Checkpointer),
    ) -> Result<Engine, StoreError> {
        let parts = CoreOptions {
            background: options.background,
            inodes: options.inodes,
            heap: options.heap,
            behind: options.behind,
            usage: options.usage,
        };
        let core = Core::new(agg, rng, &parts)?;
        let cp = Checkpointer::new(Arc::clone(&core));
        let maker: Arc<dyn MakeCheckpoint> = Arc::clone(&cp) as _;
        core.schedule.made_by(Arc::downgrade(&maker));
        restore(&cp)?;
        prepare(&cp);
        let began = core.agg.clock().monotonic();
        let mut recovered = recovery::replay(&cp, replay.records)?;
        // Saturates: the numbers are times.
        recovered.took = core.agg.clock().monotonic().saturating_sub(began);
        if core.clients.is_empty() && !options.standby {
            core.end_grace();
        }
        core.schedule.start();
        note_opened(&core)?;
        if recovered.records > 0 {
            tracing::info!(
                records = recovered.records,
                edits = recovered.edits,
                "recovered from the intent log"
            );
        }
        let thread = match options.background {
            true => Some(spawn(Arc::clone(&cp), options.flush_interval)?),
            false => None,
        };
        Ok(Engine {
            core,
            cp,
            thread: Mutex::new(thread),
            recovered,
        })
    }

    /// Returns the counts of the log records replayed at the opening.
    pub fn recovered(&self) -> RecoveryStats {
        self.recovered
    }

    /// Returns the calls carried out last, in no order, including those before the last start.
    pub fn done_calls(&self) -> Vec<DoneCall> {
        self.core.log.calls().list()
    }

    /// Returns true if checkpoints count the usage of owners, so that quotas can be set.
    pub fn counts_usage(&self) -> bool {
        self.core.counts_usage()
    }

    /// Returns true if the format has trees (qtrees).
    pub fn has_trees(&self) -> bool {
        self.core.counts_usage() && self.core.has_trees()
    }

    /// Returns the engine's aggregate.
    pub fn aggregate(&self) -> &Arc<Aggregate> {
        &self.core.agg
    }

    /// Returns the volumes, by number.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.cp
            .table()
            .list_volumes()
            .iter()
            .map(|vol| Arc::clone(vol.volume()))
            .collect()
    }

    /// Like [`Engine::volume`], for operations on volumes as a whole.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn live_volume(&self, name: &str) -> Result<LiveVolume, FsError> {
        self.cp.table().find_by_name(name).ok_or(FsError::NotFound)
    }

    /// Returns the volume with this name.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.cp
            .table()
            .find_by_name(name)
            .map(|vol| Arc::clone(vol.volume()))
    }

    /// Creates an empty volume whose root directory has these owners and mode. Durable on return.
    ///
    /// # Errors
    /// `Exists`, `Invalid` for an empty name, `NameTooLong`, `ReadOnly`.
    pub fn create_volume(
        &self,
        name: &str,
        owner: (u32, u32),
        mode: u32,
        now: Time,
        rng: &dyn Rng,
    ) -> Result<Arc<Volume>, FsError> {
        if name.is_empty() {
            return Err(FsError::Invalid);
        }
        if name.len() > MAX_VOLUME_NAME {
            return Err(FsError::NameTooLong);
        }
        let mut top = InodeRec::new(FileKind::Directory, mode, now);
        top.parent = ROOT_INO;
        (top.uid, top.gid) = owner;
        let key = HashKey(rng.next_u64(), rng.next_u64());
        self.core.schedule.admit_blocking(1024)?;
        let mut reservation = Reservation::if_possible(&self.core.agg, 8);
        let (vol, lsn) = {
            // The epoch lock is held, so that a checkpoint has the volume with its root directory,
            // or neither.
            let pass = self.core.epoch_lock().enter();
            let table = self.cp.table();
            let making = table.begin_making();
            if table.find_by_name(name).is_some() {
                return Err(FsError::Exists);
            }
            let id = table.next_id()?;
            let mut edits = Edits::new(id, 512);
            edits.volume_made(key, name);
            edits.inode(ROOT_INO, &top);
            let lsn = self.core.log.append(edits).map_err(|stop| match stop {
                Stop::Fail(error) => error,
                _ => FsError::Delay,
            })?;
            let vol = table.add_empty(&self.core, id, key, name);
            drop(making);
            let inode = Arc::new(Inode::new(ROOT_INO, top));
            let entered = ChangePermit::with(pass, &vol);
            vol.touch(&entered, &inode, &mut inode.state.write(), &mut reservation)
                .new = true;
            vol.table.insert_new(&inode);
            drop(entered);
            (vol, lsn)
        };
        self.wait_durable(Some(lsn))?;
        Ok(Arc::clone(vol.volume()))
    }

    /// Limits a volume's capacity to `bytes` (0: no limit), at once. Existing data stays. Durable
    /// with the next checkpoint.
    pub fn set_limit(&self, vol: &Volume, bytes: u64) {
        let _pass = self.core.epoch_lock().enter();
        // Both sides of two concurrent calls must take the same one for the last.
        let order = vol.as_live().map(|live| live.annotation.lock());
        vol.space.set_limit(bytes);
        let change = VolumeChange::Limit { bytes };
        if self.core.log.ship_change(vol.id, &change).is_err() {
            tracing::error!(volume = %vol.id, "cannot send the volume's limit to the partner: the aggregate is read-only until a restart");
        }
        drop(order);
        self.core.schedule.note_changed(vol.id);
    }

    /// Reserves `bytes` of a volume's capacity for blocks that only its snapshots hold, at once.
    /// Live data cannot use them; blocks of snapshots beyond them reduce the space of live data.
    /// The reserve is in memory only, and has to be set again after each start.
    pub fn set_snapshot_reserve(&self, vol: &Volume, bytes: u64) {
        vol.space.set_snapshot_reserve(bytes);
    }

    /// Stores a text with a volume, in place of the earlier one; empty: none. The engine does not
    /// interpret it, and clones do not inherit it. Durable with the next checkpoint.
    ///
    /// # Errors
    /// `Invalid` if it is longer than [`MAX_ANNOTATION`] bytes.
    pub fn annotate(&self, vol: &Volume, text: &str) -> Result<(), FsError> {
        if text.len() > MAX_ANNOTATION {
            return Err(FsError::Invalid);
        }
        let _pass = self.core.epoch_lock().enter();
        let mut now = vol.live()?.annotation.lock();
        if **now != *text {
            let change = VolumeChange::Annotated { text };
            let shipped = self.core.log.ship_change(vol.id, &change);
            shipped.map_err(Stop::refusal)?;
            *now = text.into();
            drop(now);
            self.core.schedule.note_changed(vol.id);
        }
        Ok(())
    }

    /// Takes a checkpoint that contains every change made until now, and waits for it.
    ///
    /// # Errors
    /// `ReadOnly` if the aggregate is poisoned, before or by this.
    pub fn cp_now(&self) -> Result<(), FsError> {
        self.core.schedule.cp_now()
    }

    /// Records in the log the position of a stream of changes: all earlier log records are in the
    /// stream, up to this position.
    ///
    /// # Errors
    /// `ReadOnly`; a wait for room in the log.
    pub fn note_position(&self, at: StreamPosition) -> Result<Lsn, Stop> {
        let mut edits = Edits::new(catalog::AGGREGATE_TREE, 17);
        edits.position(at);
        let _pass = self.core.epoch_lock().enter();
        let lsn = self.core.log.append(edits)?;
        self.core.log.note_position(at);
        self.core.schedule.note_change();
        Ok(lsn)
    }

    /// Returns the last recorded position, also from before the last start; all zero: none was
    /// recorded.
    pub fn position(&self) -> StreamPosition {
        self.core.log.position()
    }

    /// Returns the log record up to which everything is durable.
    pub fn durable(&self) -> Lsn {
        self.core.agg.log().durable()
    }

    /// Blocks the thread until `lsn` is durable: for tools and tests.
    ///
    /// # Errors
    /// `Io` if it never will be.
    pub fn wait_durable(&self, lsn: Option<Lsn>) -> Result<(), FsError> {
        match lsn {
            None => Ok(()),
            Some(lsn) => self
                .core
                .agg
                .log()
                .wait_blocking(lsn)
                .map_err(|_| FsError::Io),
        }
    }

    /// Returns the reason why changes are refused, if they are.
    pub fn poisoned(&self) -> Option<String> {
        self.core.agg.poisoned().map(|why| why.to_string())
    }

    /// Closes with a checkpoint, so that no log has to be replayed. Afterwards changes are refused
    /// (`Delay`).
    ///
    /// # Errors
    /// `ReadOnly` if the checkpoint failed; the log has every acknowledged change.
    pub fn shutdown(&self) -> Result<(), FsError> {
        self.cp.close();
        let result = self.cp_now();
        self.stop();
        result
    }

    fn stop(&self) {
        self.core.schedule.stop();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of that thread has been reported; nothing more can be done.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes it durable that the aggregate is in use, before any of its state is visible: see
/// [`crate::checkpoint::change`].
fn note_opened(core: &Core) -> Result<(), StoreError> {
    let mut edits = Edits::new(catalog::AGGREGATE_TREE, 9);
    edits.opened();
    let noted = match core.log.append(edits) {
        Ok(lsn) => core.agg.log().wait_blocking(lsn).map_err(|_| FsError::Io),
        // The crash has left the log full.
        Err(Stop::Wait(_)) => core.schedule.cp_now(),
        Err(stop) => Err(stop.refusal()),
    };
    noted.map_err(|e| {
        StoreError::Format(format!("cannot write the start record to the log: {e}").into())
    })
}

/// Returns the pause of background jobs: nine times the duration of the checkpoint that did a piece
/// of them.
fn pause(cp: &Checkpointer) -> Duration {
    // Saturates: the numbers are times.
    cp.took().saturating_mul(9).max(LEAST_PAUSE)
}

/// Waits like `Schedule::wait_for_work`, and discards free space meanwhile.
fn wait_discarding(cp: &Checkpointer, rest: Duration) -> bool {
    let core = cp.core();
    let mut left = rest;
    while left > DISCARD_PAUSE && core.agg.discard_free() {
        if core.schedule.wait_for_work(DISCARD_PAUSE) {
            return true;
        }
        left -= DISCARD_PAUSE;
    }
    core.schedule.wait_for_work(left)
}

fn spawn(cp: Arc<Checkpointer>, interval: Duration) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name("weir-cp".into())
        .spawn(move || {
            weir_base::idle_priority();
            let schedule = &cp.core().schedule;
            while !schedule.stopped() {
                let backlog = cp.has_backlog();
                let rest = match backlog {
                    true => pause(&cp).min(interval),
                    false => interval,
                };
                let due = wait_discarding(&cp, rest);
                if schedule.stopped() {
                    break;
                }
                if due || backlog || schedule.has_changed() {
                    if cp.core().is_poisoned() {
                        // Checkpoints have ended for good; wait for the stop.
                        schedule.notify();
                        schedule.wait_for_stop();
                        break;
                    }
                    cp.run();
                }
            }
        })
        .map_err(|e| StoreError::Format(format!("cannot start a thread: {e}").into()))
}
