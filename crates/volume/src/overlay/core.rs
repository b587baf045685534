//! What all volumes of an aggregate share: the log's front door, admission by
//! memory and log, and the state of consistency points.
//!
//! **When a consistency point is due.** When overlays hold a third of the page
//! frames or of the other memory that they may take, or the log is half full and
//! what is left of it is needed for the time that the consistency point takes, or
//! some seconds have passed since a change.
//! While it is written, operations go on in the next epoch. The log share: the
//! later it begins, the more of what is overwritten in between is written to its
//! place only once; but it has to write the overlays while clients go on
//! filling the log. Twice what the overlays hold is left free for that.
//!
//! **Who goes first.** A consistency point in a hurry takes the whole device, and
//! every write of the log waits behind its writes: measured, durable writes of 8 KiB
//! went on at a fifth of their rate for as long as it took. So as long as nobody
//! waits for it and memory is not short, it writes a byte for every two that are
//! logged: it is done when the log has grown by the twice that were left free. It goes
//! on nevertheless, at some 200 MB/s when little is logged and at four times that when
//! nothing is.
//!
//! **Pacing.** If clients change things faster than the device takes them, the
//! next epoch would fill what is left of memory or log before the consistency point
//! is done, and everybody would stand still until then. So the room that the next
//! epoch may use grows with the progress of the consistency point: a quarter of it
//! at once, for bursts, and the rest as the frozen overlays are written. Whoever is
//! ahead waits for the next bit of progress. That makes clients as fast as the
//! device, smoothly, and needs no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use weir_base::{BLOCK_SIZE, BlockAddr, Ino, Lsn, Rng, VolumeId, invariant};
use weir_store::aggregate::Aggregate;
use weir_store::log::{AppendError, Record};
use weir_store::{Settler, StoreError};

use crate::checkpoint::job::Jobs;
use crate::format::catalog::{AggregateRec, Origin};
use crate::format::edit::{Edits, StreamPosition};
use crate::lifecycle::engine::EngineOptions;
use crate::overlay::admission::Totals;
use crate::overlay::calls::{Calls, DoneCall};
use crate::overlay::clients::Clients;
use crate::overlay::cx::Cx;
use crate::overlay::direct::Stray;
use crate::overlay::event::Event;
use crate::overlay::gate::Gate;
use crate::overlay::inode::Table;
use crate::overlay::readahead::ReadAhead;
use crate::overlay::volume::Volume;
use crate::types::{FsError, Pressure, Stop};

/// The state of consistency points, by number.
#[derive(Default)]
pub(crate) struct CpState {
    /// The last one that completed.
    completed: AtomicU64,
    /// The highest that somebody asked for.
    wanted: AtomicU64,
    /// Held while one is made: there is one at a time.
    pub(crate) running: Mutex<()>,
    /// One is being made now.
    pub(crate) active: AtomicBool,
    /// What was in use when it began.
    frozen: InUse,
    /// Bytes of overlays that it has dealt with.
    merged: AtomicU64,
    /// Somebody waits for this one.
    hurry: AtomicU64,
    /// The one that is being made, or was last. It is no generation of the aggregate's: of those a consistency point with
    /// snapshots in it takes several.
    writing: AtomicU64,
}

/// How long a consistency point that is not in a hurry waits for the log's share
/// of the device, for each write of [`LONGEST_WRITE`](crate::checkpoint::merge::LONGEST_WRITE)
/// blocks: so often, so long.
const GIVE_WAY: u32 = 4;
const GIVE_WAY_FOR: Duration = Duration::from_micros(250);

/// Bytes that a consistency point may be ahead of the log's share.
const AHEAD: u64 = 4 << 20;

/// Bytes of what overlays and the log take up.
#[derive(Default)]
struct InUse {
    frames: AtomicU64,
    heap: AtomicU64,
    log: AtomicU64,
}

/// The volumes, by number and by name.
#[derive(Default)]
pub(crate) struct Volumes {
    by_id: BTreeMap<VolumeId, Arc<Volume>>,
    by_name: HashMap<String, VolumeId>,
}

impl Volumes {
    pub(crate) fn get(&self, id: &VolumeId) -> Option<&Arc<Volume>> {
        self.by_id.get(id)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Volume>> {
        self.by_id.get(self.by_name.get(name)?)
    }

    pub(crate) fn insert(&mut self, vol: Arc<Volume>) {
        self.by_name.insert(vol.name.clone(), vol.id);
        self.by_id.insert(vol.id, vol);
    }

    pub(crate) fn remove(&mut self, id: &VolumeId) {
        if let Some(vol) = self.by_id.remove(id) {
            self.by_name.remove(&vol.name);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Volumes::default();
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.by_id.values()
    }
}

/// See the module's head.
pub(crate) struct Core {
    pub(crate) agg: Arc<Aggregate>,
    pub(crate) gate: Gate,
    pub(crate) totals: Totals,
    /// Happens when a consistency point completes or fails.
    pub(crate) progress: Event,
    /// Happens when a consistency point is asked for, or the engine stops.
    pub(crate) work: Event,
    pub(crate) cp: CpState,
    pub(crate) volumes: RwLock<Volumes>,
    /// Held while a volume is made: of two with one name one is first.
    pub(crate) making: Mutex<()>,
    /// A thread of the engine makes consistency points; if not, whoever waits for
    /// one makes it.
    pub(crate) background: bool,
    /// No consistency points are made, not yet or not any more.
    pub(crate) stopping: AtomicBool,
    /// Something has changed since the last consistency point began.
    pub(crate) changed: AtomicBool,
    /// The volumes in which.
    pub(crate) changed_volumes: Mutex<BTreeSet<VolumeId>>,
    /// Volumes that the next consistency point deletes.
    pub(crate) doomed: Mutex<Vec<Arc<Volume>>>,
    /// The epoch in which a volume was last deleted.
    pub(crate) retired: AtomicU64,
    /// Clones that the next consistency point begins to split.
    pub(crate) new_splits: Mutex<Vec<VolumeId>>,
    /// The number that the next volume gets.
    pub(crate) next_volume: AtomicU64,
    /// Clients may still reclaim what they had open before the start.
    pub(crate) in_grace: AtomicBool,
    /// What is recorded of clients.
    pub(crate) clients: Clients,
    /// The last position of a stream of changes that was noted; none if it is 0.
    pub(crate) position: Mutex<StreamPosition>,
    /// What the tree says of the aggregate as a whole.
    pub(crate) stored: Mutex<AggregateRec>,
    /// The next consistency point is the last one: nothing is changed after it.
    pub(crate) closing: AtomicBool,
    /// Work in the background; consistency points alone look at it.
    pub(crate) jobs: Mutex<Jobs>,
    /// There is some.
    pub(crate) backlog: AtomicBool,
    /// Microseconds that the last consistency point took.
    pub(crate) cp_micros: AtomicU64,
    pub(crate) fsid_base: u64,
    verifier: AtomicU64,
    /// The last record that was appended.
    last: AtomicU64,
    /// Bytes of all page frames.
    memory: u64,
    /// Bytes that overlays may take besides.
    heap: u64,
    /// The inodes in memory.
    pub(crate) inodes: Arc<Table>,
    /// The calls that were carried out last.
    pub(crate) calls: Calls,
    /// The streams of requests that files are read by.
    pub(crate) read_ahead: ReadAhead,
    /// Makes data durable that is written to its place outside of consistency points; none if
    /// there is no thread for it.
    pub(crate) settler: Option<Settler>,
    /// Requests whose data is on its way to its place, or there and not in the log.
    pub(crate) sending: AtomicU64,
    /// Bytes that the log may be behind before large stable data goes to its place.
    behind: u64,
    /// Reserved blocks to which data may still be on its way though nobody waits for it.
    pub(crate) strays: Mutex<Vec<Stray>>,
    /// Reserved blocks that the log refers to, and no overlay of the current epoch.
    pub(crate) unused: Mutex<Vec<(BlockAddr, u32)>>,
}

impl Core {
    pub(crate) fn new(
        agg: Arc<Aggregate>,
        rng: &dyn Rng,
        options: &EngineOptions,
    ) -> Result<Arc<Core>, StoreError> {
        let settler =
            match options.background {
                true => Some(Settler::start(Arc::clone(agg.device())).map_err(|e| {
                    StoreError::Format(format!("cannot start a thread: {e}").into())
                })?),
                false => None,
            };
        let completed = agg.generation().0;
        let memory = (agg.pool().total() * BLOCK_SIZE) as u64;
        let [a, b, c, d, e, f, g, h, ..] = agg.id().0;
        Ok(Arc::new(Core {
            gate: Gate::new(completed + 1, Arc::clone(agg.guard())),
            totals: Totals::default(),
            progress: Event::default(),
            work: Event::default(),
            cp: CpState {
                completed: AtomicU64::new(completed),
                ..CpState::default()
            },
            volumes: RwLock::default(),
            making: Mutex::default(),
            background: options.background,
            // Until recovery is done nobody may make a consistency point: it
            // would release records of the log that are not applied yet.
            stopping: AtomicBool::new(true),
            changed: AtomicBool::new(false),
            changed_volumes: Mutex::default(),
            doomed: Mutex::default(),
            retired: AtomicU64::new(0),
            new_splits: Mutex::default(),
            next_volume: AtomicU64::new(1),
            in_grace: AtomicBool::new(true),
            clients: Clients::default(),
            position: Mutex::default(),
            stored: Mutex::default(),
            closing: AtomicBool::new(false),
            jobs: Mutex::default(),
            backlog: AtomicBool::new(false),
            cp_micros: AtomicU64::new(0),
            fsid_base: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            verifier: AtomicU64::new(rng.next_u64()),
            last: AtomicU64::new(0),
            memory,
            heap: options.heap.unwrap_or(memory / 8),
            inodes: Table::new(options.inodes),
            calls: Calls::default(),
            read_ahead: ReadAhead::default(),
            settler,
            sending: AtomicU64::new(0),
            behind: options.behind,
            strays: Mutex::default(),
            unused: Mutex::default(),
            agg,
        }))
    }

    /// Whether large stable data goes to its place at once, and not through the log.
    pub(crate) fn sends(&self) -> bool {
        self.sending.load(Ordering::Relaxed) > 0 || self.agg.log().queued() >= self.behind
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
        // A poisoned aggregate answers another verifier, so that clients notice
        // that what they have not committed may be gone.
        let v = self.verifier.load(Ordering::Relaxed);
        if self.is_poisoned() { !v } else { v }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.agg.guard().is_set()
    }

    /// Notes that the next consistency point has to look at this volume.
    pub(crate) fn note_changed(&self, id: VolumeId) {
        self.changed_volumes.lock().insert(id);
        self.changed.store(true, Ordering::Relaxed);
    }

    /// One clone less depends on its origin.
    pub(crate) fn forget_clone(&self, origin: Origin) {
        if let Some(parent) = self.volumes.read().get(&origin.volume) {
            parent.snaps.lock().count_clone(origin.snapshot, false);
        }
    }

    /// Total and available blocks of the aggregate.
    pub(crate) fn capacity(&self) -> (u64, u64) {
        let s = self.agg.space().stats();
        // Saturates: numbers of the host.
        (s.total.saturating_add(s.growth), s.available())
    }

    /// Appends an operation's edits. The caller changes memory only afterwards.
    pub(crate) fn append(&self, edits: Edits) -> Result<Lsn, Stop> {
        let record = Record {
            meta: edits.meta,
            pages: edits.pages,
        };
        match self.agg.log().append(record) {
            Ok(lsn) => {
                // The caller's locks order this before anybody sees the effect.
                self.last.fetch_max(lsn.0, Ordering::Relaxed);
                Ok(lsn)
            }
            Err(AppendError::Full) => Err(Stop::Wait(Pressure::Log)),
            Err(AppendError::Poisoned(_)) => Err(Stop::Fail(FsError::ReadOnly)),
            Err(AppendError::TooLarge) => Err(Stop::Fail(FsError::Invalid)),
        }
    }

    pub(crate) fn note_position(&self, at: StreamPosition) {
        let mut position = self.position.lock();
        *position = at.max(*position);
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Appends what a call did, with what the call is known by; the reply to it names `ino` (0: none).
    pub(crate) fn append_call(
        &self,
        cx: &Cx,
        volume: VolumeId,
        mut edits: Edits,
        ino: Ino,
    ) -> Result<Lsn, Stop> {
        let Some(key) = cx.call else {
            return self.append(edits);
        };
        let secs = cx.now.secs;
        edits.call(ino, &key, secs);
        let lsn = self.append(edits)?;
        self.calls.push(DoneCall {
            key,
            volume,
            ino,
            secs,
        });
        Ok(lsn)
    }

    /// The record that must be durable for everything visible now to be so.
    pub(crate) fn last_appended(&self) -> Option<Lsn> {
        match self.last.load(Ordering::Relaxed) {
            0 => None,
            n => Some(Lsn(n)),
        }
    }

    /// Lets an operation pass that is going to log `bytes`, unless memory or log
    /// are short; asks for a consistency point in time.
    pub(crate) fn admit(&self, bytes: u64) -> Result<(), Stop> {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
        let frozen = &self.cp.frozen;
        let frames = self.totals.frames();
        if frames > self.memory / 3 {
            self.ask_or_pace(frames, &frozen.frames, self.memory / 4 * 3)?;
        }
        let heap = self.totals.heap();
        if heap > self.heap / 3 {
            self.ask_or_pace(heap, &frozen.heap, self.heap)?;
        }
        if bytes > 0 {
            let (used, size) = self.agg.log().fill();
            // Saturates: overlays may hold more than the log.
            let later = (size / 10 * 9).saturating_sub(2 * (frames + heap));
            if used + bytes > later.max(size / 2) {
                self.ask_or_pace(used + bytes, &frozen.log, size / 10 * 9)?;
            }
        }
        Ok(())
    }

    /// `used` bytes are more than should be: begins a consistency point, or sees
    /// to it that those used since it began keep pace with it.
    #[cold]
    fn ask_or_pace(&self, used: u64, frozen: &AtomicU64, most: u64) -> Result<(), Stop> {
        if !self.cp.active.load(Ordering::Acquire) {
            self.want(self.gate.epoch());
            return match used > most {
                true => Err(Stop::Wait(Pressure::Memory)),
                false => Ok(()),
            };
        }
        let frozen = frozen.load(Ordering::Relaxed);
        let merged = self.cp.merged.load(Ordering::Relaxed);
        let all = self.cp.frozen.frames.load(Ordering::Relaxed)
            + self.cp.frozen.heap.load(Ordering::Relaxed);
        let all = all.max(1);
        // Saturates: the bound holds for what is added, not for what was there when it began.
        let room = most.saturating_sub(frozen);
        let share = u128::from(room) * u128::from(merged.min(all)) / u128::from(all);
        let allowed = room / 4 + (share as u64) / 4 * 3;
        // Saturates: what was frozen may have been dropped.
        if used.saturating_sub(frozen) > allowed {
            return Err(Stop::Wait(Pressure::Pace(merged)));
        }
        Ok(())
    }

    /// Whether overlays hold so much memory that recovery cannot just go on. A third of it,
    /// as where clients make a consistency point due: the log's next batch, what it is read
    /// through (a quarter at most) and the consistency point need the rest.
    pub(crate) fn overlays_fill(&self) -> bool {
        self.totals.frames() > self.memory / 3 || self.totals.heap() > self.heap / 2
    }

    /// Notes where the consistency point `epoch` begins: the gate is closed.
    pub(crate) fn begin_pace(&self, epoch: u64) {
        self.cp.writing.store(epoch, Ordering::Relaxed);
        let frozen = &self.cp.frozen;
        frozen.frames.store(self.totals.frames(), Ordering::Relaxed);
        frozen.heap.store(self.totals.heap(), Ordering::Relaxed);
        frozen.log.store(self.agg.log().fill().0, Ordering::Relaxed);
        self.cp.merged.store(0, Ordering::Relaxed);
    }

    /// Waits until the consistency point that is being made, which has written `written` bytes,
    /// may write more without taking the device from the log; not for long, and least if
    /// the log wants nothing.
    pub(crate) fn give_way(&self, written: u64) {
        if !self.background {
            return;
        }
        let before = self.logged();
        for _ in 0..GIVE_WAY {
            let may = self.work.wait_for(GIVE_WAY_FOR, || self.may_write(written));
            if may || self.logged() == before {
                return;
            }
        }
    }

    /// What the log has taken since the consistency point that is being made began.
    fn logged(&self) -> u64 {
        let began = self.cp.frozen.log.load(Ordering::Relaxed);
        // Saturates: it may have been released.
        self.agg.log().fill().0.saturating_sub(began)
    }

    /// Whether the consistency point that is being made, which has written `written` bytes, need
    /// not wait for the log.
    pub(crate) fn may_write(&self, written: u64) -> bool {
        written <= AHEAD + self.logged() / 2
            || self.cp.hurry.load(Ordering::Relaxed) >= self.cp.writing.load(Ordering::Relaxed)
            || self.totals.frames() > self.memory / 3
            || self.totals.heap() > self.heap / 3
            || self.stopping.load(Ordering::Acquire)
    }

    /// Notes that the consistency point has dealt with this much of the overlays.
    pub(crate) fn progressed(&self, bytes: u64) {
        self.cp.merged.fetch_add(bytes, Ordering::Relaxed);
        self.progress.happen();
    }

    /// Whether an operation that waits for `pressure`, and so for `target`, can go
    /// on.
    pub(crate) fn eased(&self, pressure: Pressure, target: u64) -> bool {
        match pressure {
            Pressure::Pace(merged) => {
                self.cp.merged.load(Ordering::Relaxed) != merged
                    || !self.cp.active.load(Ordering::Acquire)
                    || self.completed(target)
            }
            _ => self.completed(target),
        }
    }

    /// Asks for the consistency point of `epoch`.
    pub(crate) fn want(&self, epoch: u64) {
        if self.cp.wanted.fetch_max(epoch, Ordering::AcqRel) < epoch && self.background {
            self.work.happen();
        }
    }

    /// The epoch that is wanted and has not completed, if any.
    pub(crate) fn wanted(&self) -> Option<u64> {
        let wanted = self.cp.wanted.load(Ordering::Acquire);
        (wanted > self.cp.completed.load(Ordering::Acquire)).then_some(wanted)
    }

    /// Sees to it that there will be less of this pressure; answers the
    /// consistency point to wait for.
    pub(crate) fn relieve(self: &Arc<Self>, pressure: Pressure) -> u64 {
        let target = match pressure {
            Pressure::Epoch(n) => n,
            // What is charged now is given back by the next one.
            Pressure::Space => self.gate.epoch(),
            // One that runs already helps as well.
            Pressure::Memory | Pressure::Log | Pressure::Pace(_) => {
                self.cp.completed.load(Ordering::Acquire) + 1
            }
        };
        if self.cp.hurry.fetch_max(target, Ordering::Relaxed) < target {
            self.work.happen();
        }
        if !matches!(pressure, Pressure::Pace(_)) {
            self.want(target);
        }
        if !self.background {
            while !self.completed(target) {
                crate::checkpoint::cp::run(self);
            }
        }
        target
    }

    /// Whether the consistency point `epoch` is durable and published.
    pub(crate) fn is_durable(&self, epoch: u64) -> bool {
        self.cp.completed.load(Ordering::Acquire) >= epoch
    }

    /// Whether there is nothing to wait for: the consistency point `epoch` is
    /// durable, or nobody will ever make it.
    pub(crate) fn completed(&self, epoch: u64) -> bool {
        self.is_durable(epoch) || self.is_poisoned() || self.stopping.load(Ordering::Acquire)
    }

    /// Notes that a consistency point is durable and published.
    pub(crate) fn complete(&self, epoch: u64) {
        let before = self.cp.completed.fetch_max(epoch, Ordering::AcqRel);
        invariant!(self.agg.guard() => before + 1 == epoch, "consistency point {epoch} is complete after {before}");
        self.progress.happen();
    }
}

#[cfg(test)]
mod tests {
    use weir_base::{ManualClock, SeededRng, Time};
    use weir_store::aggregate::Env;
    use weir_store::{FramePool, MemDevice};

    use super::*;
    use crate::lifecycle::engine::Engine;
    use crate::types::{CreateHow, SetAttr, Stability};

    fn engine(background: bool) -> (Engine, Arc<Volume>) {
        let rng = Arc::new(SeededRng::new(7));
        let env = Env {
            pool: FramePool::new(4096).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::clone(&rng) as Arc<dyn Rng>,
        };
        let device = Arc::new(MemDevice::new(64 << 8));
        let log = Arc::new(MemDevice::new(4 << 8));
        let (agg, replay) = Aggregate::create_on(device, log, env).unwrap();
        let options = EngineOptions {
            background,
            ..EngineOptions::default()
        };
        let engine = Engine::open(agg, replay, &*rng, options).unwrap();
        let vol = engine
            .create_volume("vol", (0, 0), 0o755, Time::EPOCH, &*rng)
            .unwrap();
        (engine, vol)
    }

    /// A count that is wrong ends the thread of consistency points in tests: whoever waits for one must not wait for ever.
    #[test]
    fn who_waits_for_a_consistency_point_is_told_that_it_panicked() {
        let (engine, vol) = engine(true);
        let name = b"file";
        let cx = || Cx::new(Time::EPOCH);
        let file = vol.drive_blocking(&mut cx(), |cx| {
            let set = SetAttr::default();
            vol.create(cx, vol.root(), name, CreateHow::Guarded, &set)
        });
        let file = file.unwrap().value.ino;
        vol.drive_blocking(&mut cx(), |cx| {
            vol.write(cx, file, 0, &[1; 8192], Stability::Unstable)
        })
        .unwrap();
        engine.cp_now().unwrap();
        vol.catalog.lock().rec.used -= 1;
        vol.drive_blocking(&mut cx(), |cx| vol.remove(cx, vol.root(), name))
            .unwrap();
        assert_eq!(engine.cp_now(), Err(FsError::ReadOnly));
        let why = engine.poisoned().unwrap();
        assert!(why.contains("1 data blocks of a volume"), "{why}");
        assert_eq!(engine.shutdown(), Err(FsError::ReadOnly));
    }

    #[test]
    fn who_waits_for_a_consistency_point_is_heard_after_snapshots() {
        let (engine, vol) = engine(false);
        let core = &vol.core;
        for name in ["a", "b", "c"] {
            vol.snapshot_create(name, Time::EPOCH).unwrap();
            engine.cp_now().unwrap();
        }
        let epoch = core.gate.epoch();
        assert!(core.agg.generation().0 > epoch, "they count differently");
        core.begin_pace(epoch);
        assert!(!core.may_write(1 << 30));
        core.cp.hurry.fetch_max(epoch, Ordering::Relaxed);
        assert!(core.may_write(1 << 30));
    }
}
