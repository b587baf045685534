//! The engine: an aggregate with its volumes, and the thread that makes
//! checkpoints.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::limits::engine::JOB_PAUSE as LEAST_PAUSE;
use weir_base::{Lsn, Rng, Time};
use weir_store::StoreError;
use weir_store::aggregate::{Aggregate, Replay};

use crate::checkpoint::cp::Checkpointer;
use crate::format::calls::DoneCall;
use crate::format::catalog::StreamPosition;
use crate::format::catalog::{self, MAX_ANNOTATION, MAX_VOLUME_NAME};
use crate::format::edit::Edits;
use crate::format::hash::HashKey;
use crate::format::record::{InodeRec, ROOT_INO};
use crate::format::volume_change::VolumeChange;
use crate::lifecycle::recovery::{self, Recovered};
use crate::lifecycle::restore::restore;
use crate::overlay::core::{Core, CoreOptions};
use crate::overlay::inode::Inode;
use crate::overlay::reservation::Reservation;
use crate::overlay::schedule::MakeCheckpoint;
use crate::overlay::volume::{Entered, LiveVolume, Volume};
use crate::types::{FileKind, FsError, Stop};

/// How an engine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineOptions {
    /// A thread makes checkpoints when they are due. Without it, the thread that has to wait for one makes it:
    /// for simulations that must be reproducible.
    pub background: bool,
    /// A change is in a checkpoint after this time at the latest.
    pub flush_interval: Duration,
    /// Inodes that are kept in memory, of all volumes together, besides changed ones.
    pub inodes: usize,
    /// Bytes of memory, besides page frames, that changes may take before they are
    /// in a checkpoint; `None`: an eighth of the page frames.
    pub heap: Option<u64>,
    /// Bytes that the log may be behind before large stable data goes to its place at once
    /// instead of through the log; 0: it always does.
    pub behind: u64,
    /// The engine applies another one's stream of changes ([`Engine::prepare_entry`]) and has no clients.
    pub standby: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            background: true,
            // As ext4 and XFS take for their journals and write-back; the log
            // bounds recovery anyway.
            flush_interval: Duration::from_secs(10),
            // About 100 MiB when all are used.
            inodes: 262_144,
            heap: None,
            // As much as the log writes at a time: more waits already than the next write
            // can take.
            behind: 1 << 20,
            standby: false,
        }
    }
}

/// An open aggregate with its volumes. Dropping it stops its thread without a
/// last checkpoint: what was acknowledged is in the log.
pub struct Engine {
    pub(crate) core: Arc<Core>,
    pub(crate) cp: Arc<Checkpointer>,
    thread: Mutex<Option<JoinHandle<()>>>,
    recovered: Recovered,
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

    /// As [`Engine::open`]; `prepare` has its turn before the log is applied.
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
        };
        let core = Core::new(agg, rng, &parts)?;
        let cp = Checkpointer::new(Arc::clone(&core));
        let maker: Arc<dyn MakeCheckpoint> = Arc::clone(&cp) as _;
        core.schedule.made_by(Arc::downgrade(&maker));
        restore(&cp)?;
        prepare(&cp);
        let recovered = recovery::replay(&cp, replay.records)?;
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

    /// What opening took out of the log.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// The calls that were carried out last, in no order, also before the last start.
    pub fn done_calls(&self) -> Vec<DoneCall> {
        self.core.log.calls().list()
    }

    /// The aggregate that the engine has open.
    pub fn aggregate(&self) -> &Arc<Aggregate> {
        &self.core.agg
    }

    /// The volumes, by number.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.cp
            .table()
            .all()
            .iter()
            .map(|vol| Arc::clone(vol.volume()))
            .collect()
    }

    /// As [`Engine::volume`], for what is done to volumes as a whole.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn live_volume(&self, name: &str) -> Result<LiveVolume, FsError> {
        self.cp.table().named(name).ok_or(FsError::NotFound)
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.cp
            .table()
            .named(name)
            .map(|vol| Arc::clone(vol.volume()))
    }

    /// Makes an empty volume whose root directory has these owners and mode.
    /// Durable when it returns.
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
            // With the epoch lock held, so that a checkpoint has the volume with its root directory, or neither.
            let pass = self.core.epoch_lock().enter();
            let table = self.cp.table();
            let making = table.begin_making();
            if table.named(name).is_some() {
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
            let entered = Entered::with(pass, &vol);
            vol.touch(&entered, &inode, &mut inode.state.write(), &mut reservation)
                .new = true;
            vol.table.insert_new(&inode);
            drop(entered);
            (vol, lsn)
        };
        self.wait_durable(Some(lsn))?;
        Ok(Arc::clone(vol.volume()))
    }

    /// Limits a volume's capacity to `bytes` (0: no limit), at once. What is stored
    /// already stays. Durable with the next checkpoint.
    pub fn set_limit(&self, vol: &Volume, bytes: u64) {
        let _pass = self.core.epoch_lock().enter();
        // Of two at once the partner takes the same for the last.
        let order = vol.as_live().map(|live| live.annotation.lock());
        vol.space.set_limit(bytes);
        let change = VolumeChange::Limit { bytes };
        if self.core.log.ship_change(vol.id, &change).is_err() {
            tracing::error!(volume = %vol.id, "a limit does not reach the partner: the aggregate is poisoned");
        }
        drop(order);
        self.core.schedule.note_changed(vol.id);
    }

    /// Keeps `bytes` of a volume's capacity for what only its snapshots hold, at once:
    /// live data cannot have them, and what snapshots hold beyond them takes room from
    /// live data. In memory only: to be set again after each start.
    pub fn set_snapshot_reserve(&self, vol: &Volume, bytes: u64) {
        vol.space.set_snapshot_reserve(bytes);
    }

    /// Stores a text with a volume that means nothing to the engine, in place of the one before; empty: none. Clones
    /// do not inherit it. Durable with the next checkpoint.
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

    /// Makes a checkpoint that contains everything done until now, and
    /// waits for it.
    ///
    /// # Errors
    /// `ReadOnly` if the aggregate is poisoned, before or by this.
    pub fn cp_now(&self) -> Result<(), FsError> {
        self.core.schedule.cp_now()
    }

    /// Notes in the log how far a stream of changes has come: what was logged before is in it, up to this position.
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

    /// The last position that was noted, also before the last start; all zero: none was.
    pub fn position(&self) -> StreamPosition {
        self.core.log.position()
    }

    /// Everything up to this record is durable.
    pub fn durable(&self) -> Lsn {
        self.core.agg.log().durable()
    }

    /// Waits until `lsn` is durable, blocking the thread: for tools and tests.
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

    /// Why nothing can be changed any more, if so.
    pub fn poisoned(&self) -> Option<String> {
        self.core.agg.poisoned().map(|why| why.to_string())
    }

    /// Ends with a checkpoint, so that there is no log to replay. Nothing can be changed any more (`Delay`).
    ///
    /// # Errors
    /// `ReadOnly` if that was not possible; the log has all that was acknowledged.
    pub fn shutdown(&self) -> Result<(), FsError> {
        self.cp.close();
        let result = self.cp_now();
        self.stop();
        result
    }

    fn stop(&self) {
        self.core.schedule.stop();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of that thread has been reported; there is no more to do.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes it durable that the aggregate is in use, before anything of it is visible: see [`crate::checkpoint::change`].
fn note_opened(core: &Core) -> Result<(), StoreError> {
    let mut edits = Edits::new(catalog::AGGREGATE_TREE, 9);
    edits.opened();
    let noted = match core.log.append(edits) {
        Ok(lsn) => core.agg.log().wait_blocking(lsn).map_err(|_| FsError::Io),
        // As full as the crash has left it.
        Err(Stop::Wait(_)) => core.schedule.cp_now(),
        Err(stop) => Err(stop.refusal()),
    };
    noted.map_err(|e| StoreError::Format(format!("cannot note the start in the log: {e}").into()))
}

/// How long work in the background rests: nine times as long as the checkpoint
/// took that did a piece of it.
fn pause(cp: &Checkpointer) -> Duration {
    // Saturates: times.
    cp.took().saturating_mul(9).max(LEAST_PAUSE)
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
                let due = schedule.wait_for_work(rest);
                if schedule.stopped() {
                    break;
                }
                if due || backlog || schedule.has_changed() {
                    if cp.core().is_poisoned() {
                        // Nothing will ever be done again; wait for the end.
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
