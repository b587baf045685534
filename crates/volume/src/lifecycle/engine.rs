//! The engine: an aggregate with its volumes, and the thread that makes
//! consistency points.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use weir_base::{Ino, Lsn, Rng, Time, VolumeId};
use weir_store::StoreError;
use weir_store::aggregate::Aggregate;
use weir_store::aggregate::Replay;
use weir_store::node::Key;
use weir_store::tree::{NodeSource, TreeRoot};

use crate::checkpoint::job::Jobs;
use crate::checkpoint::merge::{get, scan};
use crate::format::catalog::{
    self, AggregateRec, Catalog, Job, MAX_ANNOTATION, MAX_VOLUME_NAME, SnapshotRec, VolumeRec,
};
use crate::format::edit::{Edits, StreamPosition};
use crate::format::hash::{HashKey, KeyCell};
use crate::format::record::{FIRST_INO, InodeRec, ROOT_INO, kind};
use crate::lifecycle::recovery::{self, Recovered};
use crate::lifecycle::snapshot::Snaps;
use crate::overlay::admission::Promise;
use crate::overlay::calls::{self, DoneCall};
use crate::overlay::clients;
use crate::overlay::core::Core;
use crate::overlay::inode::Inode;
use crate::overlay::unlinked::Unlinked;
use crate::overlay::volume::{RootState, Volume};
use crate::types::{FileKind, FsError, Stop};

/// The least rest of work in the background between two pieces.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// How an engine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineOptions {
    /// A thread makes consistency points when they are due. Without it, whoever
    /// has to wait for one makes it: for simulations that must be reproducible.
    pub background: bool,
    /// A change is in a consistency point after this time at the latest.
    pub flush_interval: Duration,
    /// Inodes that are kept in memory, of all volumes together, besides changed ones.
    pub inodes: usize,
    /// Bytes of memory, besides page frames, that changes may take before they are
    /// in a consistency point; `None`: an eighth of the page frames.
    pub heap: Option<u64>,
    /// Bytes that the log may be behind before large stable data goes to its place at once
    /// instead of through the log; 0: it always does.
    pub behind: u64,
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
        }
    }
}

/// An open aggregate with its volumes. Dropping it stops its thread without a
/// last consistency point: what was acknowledged is in the log.
pub struct Engine {
    pub(crate) core: Arc<Core>,
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
        let core = Core::new(agg, rng, &options)?;
        restore(&core)?;
        let recovered = recovery::replay(&core, replay.records)?;
        core.in_grace
            .store(!core.clients.is_empty(), Ordering::Release);
        core.stopping.store(false, Ordering::Release);
        core.note_opened()?;
        if recovered.records > 0 {
            tracing::info!(
                records = recovered.records,
                edits = recovered.edits,
                "recovered from the intent log"
            );
        }
        let thread = match options.background {
            true => Some(spawn(Arc::clone(&core), options.flush_interval)?),
            false => None,
        };
        Ok(Engine {
            core,
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
        self.core.calls.list()
    }

    /// The aggregate.
    pub fn aggregate(&self) -> &Arc<Aggregate> {
        &self.core.agg
    }

    /// The volumes, by number.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.core.volumes.read().values().cloned().collect()
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.core.volumes.read().named(name).cloned()
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
        self.core.admit_blocking(1024)?;
        let mut promise = Promise::if_possible(&self.core, 8);
        let (vol, lsn) = {
            // Under one pass, so that a consistency point has the volume with its root directory, or neither.
            let pass = self.core.gate.enter();
            let making = self.core.making.lock();
            if self.core.volumes.read().named(name).is_some() {
                return Err(FsError::Exists);
            }
            let id = self.core.next_volume_id()?;
            let mut edits = Edits::new(id, 512);
            edits.volume_made(key, name);
            edits.inode(ROOT_INO, &top);
            let lsn = self.core.append(edits).map_err(|stop| match stop {
                Stop::Fail(error) => error,
                _ => FsError::Delay,
            })?;
            let vol = self.core.add_volume(id, key, name);
            drop(making);
            let inode = Arc::new(Inode::new(ROOT_INO, top));
            vol.touch(&pass, &inode, &mut inode.state.write(), &mut promise)
                .fresh = true;
            vol.table.insert_new(&inode);
            (vol, lsn)
        };
        self.wait_durable(Some(lsn))?;
        Ok(vol)
    }

    /// Limits a volume's capacity to `bytes` (0: no limit), at once. What is stored
    /// already stays. Durable with the next consistency point.
    pub fn set_limit(&self, vol: &Volume, bytes: u64) {
        vol.limit.store(bytes, Ordering::Relaxed);
        self.core.note_changed(vol.id);
    }

    /// Keeps `bytes` of a volume's capacity for what only its snapshots hold, at once:
    /// live data cannot have them, and what snapshots hold beyond them takes room from
    /// live data. In memory only: to be set again after each start.
    pub fn set_reserve(&self, vol: &Volume, bytes: u64) {
        vol.reserve.store(bytes, Ordering::Relaxed);
    }

    /// Stores a text with a volume that means nothing to the engine, in place of the one before; empty: none. Clones
    /// do not inherit it. Durable with the next consistency point.
    ///
    /// # Errors
    /// `Invalid` if it is longer than [`MAX_ANNOTATION`] bytes.
    pub fn annotate(&self, vol: &Volume, text: &str) -> Result<(), FsError> {
        if text.len() > MAX_ANNOTATION {
            return Err(FsError::Invalid);
        }
        let mut now = vol.annotation.lock();
        if **now != *text {
            *now = text.into();
            drop(now);
            self.core.note_changed(vol.id);
        }
        Ok(())
    }

    /// Makes a consistency point that contains everything done until now, and
    /// waits for it.
    ///
    /// # Errors
    /// `ReadOnly` if the aggregate is poisoned, before or by this.
    pub fn cp_now(&self) -> Result<(), FsError> {
        self.core.cp_now()
    }

    /// Notes in the log how far a stream of changes has come: what was logged before is in it, up to this position.
    ///
    /// # Errors
    /// `ReadOnly`; a wait for room in the log.
    pub fn note_position(&self, at: StreamPosition) -> Result<Lsn, Stop> {
        let mut edits = Edits::new(catalog::AGGREGATE_TREE, 17);
        edits.position(at);
        let _pass = self.core.gate.enter();
        let lsn = self.core.append(edits)?;
        self.core.note_position(at);
        Ok(lsn)
    }

    /// The last position that was noted, also before the last start; all zero: none was.
    pub fn position(&self) -> StreamPosition {
        *self.core.position.lock()
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

    /// Ends with a consistency point, so that there is no log to replay. Nothing can be changed any more (`Delay`).
    ///
    /// # Errors
    /// `ReadOnly` if that was not possible; the log has all that was acknowledged.
    pub fn shutdown(&self) -> Result<(), FsError> {
        self.core.closing.store(true, Ordering::Release);
        let result = self.cp_now();
        self.stop();
        result
    }

    fn stop(&self) {
        self.core.stopping.store(true, Ordering::Release);
        self.core.work.happen();
        self.core.progress.happen();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of that thread has been reported; there is no more to do.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        // Volumes refer to the core, which lists them.
        self.core.volumes.write().clear();
    }
}

impl Core {
    /// A number for a new volume: never one that another had, whose handles clients may
    /// still have.
    pub(crate) fn next_volume_id(&self) -> Result<VolumeId, FsError> {
        let more = |n: u64| n.checked_add(1);
        self.next_volume
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map(VolumeId)
            .map_err(|_| FsError::NoSpace)
    }

    /// Makes a volume known in which there is nothing yet.
    pub(crate) fn add_volume(
        self: &Arc<Self>,
        id: VolumeId,
        key: HashKey,
        name: &str,
    ) -> Arc<Volume> {
        let rec = VolumeRec {
            name: name.to_owned(),
            root: TreeRoot::EMPTY,
            key,
            next_ino: FIRST_INO,
            limit: 0,
            used: 0,
            next_snapshot: 1,
            dead: TreeRoot::EMPTY,
            dead_blocks: 0,
            change_base: 0,
            change_top: 0,
            origin: None,
            mirror: None,
        };
        let vol = Arc::new(Volume::new(Arc::clone(self), id, rec));
        self.next_volume
            // Saturates: no volume gets the last number.
            .fetch_max(id.0.saturating_add(1), Ordering::Relaxed);
        self.volumes.write().insert(Arc::clone(&vol));
        vol
    }

    /// Waits until an operation that is going to log `bytes` may pass.
    fn admit_blocking(self: &Arc<Self>, bytes: u64) -> Result<(), FsError> {
        loop {
            if self.is_poisoned() {
                return Err(FsError::ReadOnly);
            }
            match self.admit(bytes) {
                Ok(()) => return Ok(()),
                Err(Stop::Wait(pressure)) => {
                    let target = self.relieve(pressure);
                    self.progress.wait_until(|| self.eased(pressure, target));
                    if self.stopping.load(Ordering::Acquire) {
                        return Err(FsError::Delay);
                    }
                }
                Err(Stop::Fail(error)) => return Err(error),
                Err(Stop::Fetch(_) | Stop::Land) => return Err(FsError::Delay),
            }
        }
    }

    /// Makes it durable that the aggregate is in use, before anybody sees anything of it: see [`crate::checkpoint::change`].
    fn note_opened(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut edits = Edits::new(catalog::AGGREGATE_TREE, 9);
        edits.opened();
        let noted = match self.append(edits) {
            Ok(lsn) => self.agg.log().wait_blocking(lsn).map_err(|_| FsError::Io),
            // As full as the crash has left it.
            Err(Stop::Wait(_)) => self.cp_now(),
            Err(stop) => Err(crate::lifecycle::volumes::refusal(stop)),
        };
        noted.map_err(|e| {
            StoreError::Format(format!("cannot note the start in the log: {e}").into())
        })
    }

    /// How long work in the background rests: nine times as long as the consistency point
    /// took that did a piece of it.
    fn pause(&self) -> Duration {
        let worked = self.cp_micros.load(Ordering::Relaxed);
        // Saturates: times.
        Duration::from_micros(worked.saturating_mul(9)).max(LEAST_PAUSE)
    }

    pub(crate) fn cp_now(self: &Arc<Self>) -> Result<(), FsError> {
        let epoch = self.gate.epoch();
        self.relieve(crate::types::Pressure::Epoch(epoch));
        self.progress.wait_until(|| self.completed(epoch));
        if self.is_durable(epoch) {
            Ok(())
        } else {
            Err(FsError::ReadOnly)
        }
    }
}

fn spawn(core: Arc<Core>, interval: Duration) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name("weir-cp".into())
        .spawn(move || {
            weir_base::background();
            while !core.stopping.load(Ordering::Acquire) {
                let backlog = core.backlog.load(Ordering::Acquire);
                let pause = match backlog {
                    true => core.pause().min(interval),
                    false => interval,
                };
                let due = core.work.wait_for(pause, || {
                    core.wanted().is_some() || core.stopping.load(Ordering::Acquire)
                });
                if core.stopping.load(Ordering::Acquire) {
                    break;
                }
                if due || backlog || core.changed.load(Ordering::Relaxed) {
                    if core.is_poisoned() {
                        // Nothing will ever be done again; wait for the end.
                        core.progress.happen();
                        core.work
                            .wait_until(|| core.stopping.load(Ordering::Acquire));
                        break;
                    }
                    crate::checkpoint::cp::run(&core);
                }
            }
        })
        .map_err(|e| StoreError::Format(format!("cannot start a thread: {e}").into()))
}

/// What the aggregate's tree says of a volume.
struct ReadVolume {
    id: VolumeId,
    rec: VolumeRec,
    snapshots: BTreeMap<u32, SnapshotRec>,
    annotation: Arc<str>,
}

/// What the aggregate's tree says.
#[derive(Default)]
struct Read {
    volumes: Vec<ReadVolume>,
    jobs: Jobs,
    aggregate: AggregateRec,
    calls: Vec<(u64, u64, Vec<DoneCall>)>,
    clients: Vec<(u64, Box<[u8]>)>,
}

impl Read {
    fn take(&mut self, key: Key, value: &[u8]) -> Option<()> {
        let id = VolumeId(key.ino);
        match key.kind {
            catalog::kind::VOLUME => {
                self.volumes.push(ReadVolume {
                    id,
                    rec: VolumeRec::decode(value)?,
                    snapshots: BTreeMap::new(),
                    annotation: Arc::default(),
                });
            }
            catalog::kind::SNAPSHOT => {
                let of = self.volumes.last_mut().filter(|of| of.id == id)?;
                let rec = SnapshotRec::decode(key.sub, value)?;
                of.snapshots.insert(rec.number, rec);
            }
            catalog::kind::ANNOTATION => {
                let of = self.volumes.last_mut().filter(|of| of.id == id)?;
                of.annotation = catalog::decode_annotation(value)?.into();
            }
            catalog::kind::JOB => self.jobs.restore(id, key.sub, Job::decode(value)?),
            catalog::kind::CALLS => {
                let (next, calls) = calls::decode(key.sub, value)?;
                self.calls.push((key.sub, next, calls));
            }
            catalog::kind::CLIENT => {
                let record = clients::decode(value)?;
                self.clients.push((key.sub, record.into()));
            }
            catalog::kind::AGGREGATE => self.aggregate = AggregateRec::decode(value)?,
            _ => return None,
        }
        Some(())
    }
}

/// Makes the volumes of the aggregate's tree.
fn restore(core: &Arc<Core>) -> Result<(), StoreError> {
    let src = core.agg.source();
    let mut read = Read::default();
    let mut bad = None;
    let root = core.agg.root();
    scan(
        &src,
        &root,
        Key::MIN,
        Key::MAX,
        &mut |key, value| match read.take(key, value) {
            Some(()) => ControlFlow::Continue(()),
            None => {
                bad = Some(format!("the record {key} of the aggregate is malformed"));
                ControlFlow::Break(())
            }
        },
    )?;
    if let Some(what) = bad {
        return Err(StoreError::Format(what.into()));
    }
    let mut next = read.aggregate.next_volume.max(1);
    *core.stored.lock() = read.aggregate;
    let mut volumes = core.volumes.write();
    for ReadVolume {
        id,
        rec,
        snapshots,
        annotation,
    } in read.volumes
    {
        // Saturates: likewise.
        next = next.max(id.0.saturating_add(1));
        // What a destination's tree has of removed inodes is the source's business.
        let orphans = match rec.mirror {
            Some(_) => Orphans::default(),
            None => read_orphans(&src, &rec.root)?,
        };
        let mirror = rec.mirror;
        let vol = Volume::new(Arc::clone(core), id, rec);
        vol.snaps.lock().restore(&snapshots);
        vol.restore_mirror(mirror);
        {
            let mut catalog = vol.catalog.lock();
            catalog.stored = true;
            catalog.snapshots = snapshots;
            *vol.annotation.lock() = Arc::clone(&annotation);
            catalog.annotation = annotation;
            if !orphans.dying.is_empty() || !orphans.unlinked.is_empty() {
                core.note_changed(id);
            }
            catalog.orphans = orphans.dying;
            vol.unlinked.replace(orphans.unlinked);
        }
        volumes.insert(Arc::new(vol));
    }
    for vol in volumes.values() {
        let origin = vol.catalog.lock().rec.origin;
        if let Some(origin) = origin
            && let Some(parent) = volumes.get(&origin.volume)
        {
            parent.snaps.lock().count_clone(origin.snapshot, true);
        }
    }
    for id in read.jobs.splits() {
        if let Some(vol) = volumes.get(&id) {
            vol.splitting.store(true, Ordering::Release);
            core.note_changed(id);
        }
    }
    core.calls.restore(read.calls);
    core.clients.restore(read.clients);
    *core.position.lock() = read.aggregate.position;
    core.next_volume.store(next, Ordering::Relaxed);
    core.backlog.store(!read.jobs.is_empty(), Ordering::Release);
    *core.jobs.lock() = read.jobs;
    Ok(())
}

/// The inodes of a tree to which no name leads.
#[derive(Default)]
pub(crate) struct Orphans {
    /// Those that are removed, and whose records are still to be deleted.
    pub(crate) dying: Vec<Ino>,
    /// Those that were open when they lost their last name.
    pub(crate) unlinked: Vec<Ino>,
}

/// The inodes of a tree to which no name leads.
pub(crate) fn read_orphans(src: &impl NodeSource, root: &TreeRoot) -> Result<Orphans, StoreError> {
    let mut orphans = Vec::new();
    let key = |sub| Key::new(0, kind::ORPHAN, sub);
    scan(src, root, key(0), key(u64::MAX), &mut |key, _| {
        orphans.push(Ino(key.sub));
        ControlFlow::Continue(())
    })?;
    let mut found = Orphans::default();
    for ino in orphans {
        match get(src, root, &Key::new(ino.0, kind::INODE, 0))? {
            Some(_) => found.unlinked.push(ino),
            None => found.dying.push(ino),
        }
    }
    Ok(found)
}

impl Volume {
    /// A volume with nothing in memory.
    pub(crate) fn new(core: Arc<Core>, id: VolumeId, rec: VolumeRec) -> Volume {
        Volume {
            id,
            name: rec.name.clone(),
            key: KeyCell::new(rec.key),
            root: ArcSwap::new(RootState::new(rec.root)),
            table: core.inodes.inodes(),
            dirty: Mutex::default(),
            segment: AtomicU64::new(1),
            sealed: Mutex::default(),
            snaps: Mutex::new(Snaps::new(rec.next_snapshot, (core.agg.id(), id))),
            admin: Mutex::new(()),
            hold: AtomicU64::new(0),
            dead_blocks: AtomicU64::new(rec.dead_blocks),
            change_base: AtomicU64::new(rec.change_base),
            change_top: AtomicU64::new(rec.change_top),
            origin: Mutex::new(rec.origin),
            splitting: AtomicBool::new(false),
            swapping: AtomicBool::new(false),
            snapshot: 0,
            shown_as: 0,
            mirror: Mutex::default(),
            protected: AtomicBool::new(false),
            exported: ArcSwapOption::empty(),
            next_ino: AtomicU64::new(rec.next_ino),
            limit: AtomicU64::new(rec.limit),
            annotation: Mutex::default(),
            reserve: AtomicU64::new(0),
            used: AtomicU64::new(rec.used),
            charged: AtomicU64::new(0),
            catalog: Mutex::new(Catalog {
                rec,
                stored: false,
                snapshots: BTreeMap::new(),
                orphans: Vec::new(),
                annotation: Arc::default(),
            }),
            unlinked: Unlinked::default(),
            renames: Mutex::new(()),
            read_only: false,
            core,
        }
    }
}
