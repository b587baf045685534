//! Schedules checkpoints: when they are due, which operations wait for one, and how fast changes
//! may come meanwhile.
//!
//! **Due time.** A checkpoint is due when overlays hold a third of the page frames or of the other
//! memory that they may take. It is due when the log is half full and the checkpoint needs the rest
//! of it. And it is due some seconds after a change. While it is written, operations continue in
//! the next epoch.
//!
//! The later it begins, the more overwritten data is written in place only once. But it has to
//! write the overlays while clients keep filling the log. Twice the overlays' size is left free in
//! the log for that. Direct writes take neither memory nor log and so make no checkpoint due,
//! though replaced blocks are freed only by checkpoints. A file of 1 GiB that was overwritten at
//! 1.9 GB/s took 12 GiB of the device. A checkpoint for each gigabyte kept that to 4 GiB, and cost
//! 10 to 20 % of the rate, because free space came in shorter runs.
//!
//! **Priority.** An urgent checkpoint takes the whole device, and every write of the log waits
//! behind its writes. Durable writes of 8 KiB had a fifth of their rate during it (measured). In a
//! pair a reply waits for both nodes, and so for both checkpoints, one after the other if they do
//! not coincide. On disks of 240 MB/s that alone was a third of all writes of 64 KiB.
//!
//! So as long as no operation waits for it, a checkpoint writes as fast as clients use up their
//! remaining room ([`Schedule::needed`]). It is done when the room is used up, and nobody has to
//! wait. It always makes some progress: about 25 MB/s when little is logged and about 110 MB/s when
//! nothing is. It has little in flight. While it is not late, each of its writes follows a write of
//! the log that has just begun; in front of one it would delay everything in that. In a pair, whose
//! replies wait for the slower log, that took 4 to 9 % of 24 writes of 8 KiB on two such disks;
//! behind it nothing could be measured.
//!
//! **Pacing.** If clients change data faster than the device takes it, the next epoch would fill
//! the rest of memory or log before the checkpoint is done. All clients would be blocked until
//! then. So the room of the next epoch grows with the progress of the checkpoint. A quarter of it
//! is there at once, for bursts, and the rest as the frozen overlays are written. An operation that
//! is ahead waits for further progress. That makes clients as fast as the device, smoothly, and
//! needs no clock.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::limits::engine::{
    CHECKPOINT_BEHIND_LOG as BEHIND, CHECKPOINT_FIRST_YIELD as FIRST_REST,
    CHECKPOINT_LEAD as AHEAD, CHECKPOINT_YIELD as REST, CHECKPOINT_YIELDS as RESTS,
};
use weir_base::{BLOCK_SIZE, VolumeId, invariant};
use weir_store::aggregate::Aggregate;
use weir_store::log::stream::Sequence;

use crate::overlay::epoch_lock::EpochLock;
use crate::overlay::event::Event;
use crate::overlay::reservation::Totals;
use crate::types::{Backpressure, FsError, Stop};

/// Takes checkpoints. A layer above implements it.
pub(crate) trait MakeCheckpoint: Send + Sync {
    /// Takes a checkpoint, if possible; blocks while another is in progress.
    fn make(&self);
}

/// Bytes used by overlays and the log.
#[derive(Default)]
struct InUse {
    frames: AtomicU64,
    heap: AtomicU64,
    log: AtomicU64,
}

/// Returns the number of bytes of a log of this size that may be in use.
fn most_log(size: u64) -> u64 {
    size / 10 * 9
}

/// The schedule of checkpoints: see the module's head.
pub(crate) struct Schedule {
    agg: Arc<Aggregate>,
    epoch_lock: EpochLock,
    totals: Totals,
    /// Notified when a checkpoint completes or fails.
    progress: Event,
    /// Notified when a checkpoint is requested, or the engine stops.
    work: Event,
    /// Epoch of the last completed checkpoint.
    completed: AtomicU64,
    /// The highest requested epoch.
    wanted: AtomicU64,
    /// True while a checkpoint is in progress.
    active: AtomicBool,
    /// Usage at the beginning of the current checkpoint.
    frozen: InUse,
    /// Bytes of overlays that the current checkpoint has merged.
    merged: AtomicU64,
    /// The highest epoch that an operation waits for.
    hurry: AtomicU64,
    /// Epoch of the current or last checkpoint. It is not a generation of the aggregate: a
    /// checkpoint with snapshots takes several of those.
    writing: AtomicU64,
    /// Takes a checkpoint that an operation waits for, if the engine has no thread for it.
    maker: OnceLock<Weak<dyn MakeCheckpoint>>,
    /// True if a thread of the engine takes checkpoints; if not, the thread that waits for one
    /// takes it.
    background: bool,
    /// True while no checkpoints are taken: before the start, and after the stop.
    stopping: AtomicBool,
    /// True if there were changes since the last checkpoint began.
    changed: AtomicBool,
    /// The volumes with changes.
    changed_volumes: Mutex<BTreeSet<VolumeId>>,
    /// Bytes of all page frames.
    memory: u64,
    /// Bytes that overlays may take besides page frames.
    heap: u64,
}

impl Schedule {
    /// Creates a schedule. `heap`: bytes that overlays may take besides page frames; `None`: an
    /// eighth of those.
    pub(crate) fn new(agg: &Arc<Aggregate>, background: bool, heap: Option<u64>) -> Schedule {
        let completed = agg.generation().0;
        let memory = (agg.pool().total() * BLOCK_SIZE) as u64;
        Schedule {
            agg: Arc::clone(agg),
            epoch_lock: EpochLock::new(completed + 1, Arc::clone(agg.guard())),
            totals: Totals::default(),
            progress: Event::default(),
            work: Event::default(),
            completed: AtomicU64::new(completed),
            wanted: AtomicU64::new(0),
            active: AtomicBool::new(false),
            frozen: InUse::default(),
            merged: AtomicU64::new(0),
            hurry: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            maker: OnceLock::new(),
            background,
            // Until recovery is done no thread may take a checkpoint: it would release log records
            // that are not applied yet.
            stopping: AtomicBool::new(true),
            changed: AtomicBool::new(false),
            changed_volumes: Mutex::default(),
            memory,
            heap: heap.unwrap_or(memory / 8),
        }
    }

    /// Sets the maker of checkpoints that are waited for, without a thread for it.
    pub(crate) fn made_by(&self, maker: Weak<dyn MakeCheckpoint>) {
        let again = self.maker.set(maker).is_err();
        assert!(!again, "checkpoints are made by one");
    }

    /// Returns the lock between operations and checkpoints.
    pub(crate) fn epoch_lock(&self) -> &EpochLock {
        &self.epoch_lock
    }

    /// Returns the totals of the overlays' charges.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Allows checkpoints, after recovery.
    pub(crate) fn start(&self) {
        self.stopping.store(false, Ordering::Release);
    }

    /// Stops checkpoints, and ends all waits for one.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Returns true if no checkpoints are taken, before the start or after the stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Notes that the next checkpoint has work.
    pub(crate) fn note_change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Notes that the next checkpoint has to process this volume.
    pub(crate) fn note_changed(&self, id: VolumeId) {
        self.changed_volumes.lock().insert(id);
        self.note_change();
    }

    /// Returns true if there were changes since the last checkpoint began.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Begins the checkpoint of this epoch, under the exclusive epoch lock: notes the usage, and
    /// takes the volumes with changes.
    pub(crate) fn take_changed(&self) -> BTreeSet<VolumeId> {
        self.changed.store(false, Ordering::Relaxed);
        self.begin_pace(self.epoch_lock.epoch());
        std::mem::take(&mut *self.changed_volumes.lock())
    }

    /// Notes that a checkpoint begins or has ended.
    pub(crate) fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Release);
        if !active {
            self.progress.notify_all();
        }
    }

    /// Makes waiters for progress check again, because a condition beyond this schedule has
    /// changed.
    pub(crate) fn notify(&self) {
        self.progress.notify_all();
    }

    /// Returns true if a thread of the engine takes checkpoints.
    pub(crate) fn background(&self) -> bool {
        self.background
    }

    /// Returns the event to register a waker with, to check [`Schedule::is_relieved`] again.
    pub(crate) fn progress(&self) -> &Event {
        &self.progress
    }

    /// Blocks the thread that takes checkpoints until one is requested, the engine stops, or `time`
    /// has passed. Returns true if one is requested.
    pub(crate) fn wait_for_work(&self, time: Duration) -> bool {
        self.work
            .wait_for(time, || self.wanted().is_some() || self.stopped())
    }

    /// Blocks the thread until the engine stops.
    pub(crate) fn wait_for_stop(&self) {
        self.work.wait_until(|| self.stopped());
    }

    /// Takes a checkpoint that contains every change made until now, and waits for it.
    pub(crate) fn cp_now(&self) -> Result<(), FsError> {
        let epoch = self.epoch_lock.epoch();
        self.request_checkpoint(Backpressure::Epoch(epoch));
        self.progress.wait_until(|| self.completed(epoch));
        if self.is_durable(epoch) {
            Ok(())
        } else {
            Err(FsError::ReadOnly)
        }
    }

    /// Waits until the partner has acknowledged this entry of the stream, or is no longer waited
    /// for.
    pub(crate) fn wait_acknowledged(&self, sequence: Sequence) -> Result<(), FsError> {
        let log = self.agg.log();
        let acknowledged = || log.acknowledged().is_none_or(|to| to >= sequence);
        self.progress
            .wait_until(|| acknowledged() || self.agg.guard().is_set() || self.stopped());
        match acknowledged() {
            true => Ok(()),
            false => Err(FsError::ReadOnly),
        }
    }

    /// Waits until an operation that will log `bytes` is admitted.
    pub(crate) fn admit_blocking(&self, bytes: u64) -> Result<(), FsError> {
        loop {
            if self.agg.guard().is_set() {
                return Err(FsError::ReadOnly);
            }
            match self.admit(bytes) {
                Ok(()) => return Ok(()),
                Err(Stop::Wait(pressure)) => {
                    let target = self.request_checkpoint(pressure);
                    self.progress
                        .wait_until(|| self.is_relieved(pressure, target));
                    if self.stopped() {
                        return Err(FsError::Delay);
                    }
                }
                Err(Stop::Fail(error)) => return Err(error),
                Err(Stop::Fetch(_) | Stop::Land) => return Err(FsError::Delay),
            }
        }
    }

    /// Admits an operation that will log `bytes`, unless memory or log are short; requests a
    /// checkpoint in time.
    pub(crate) fn admit(&self, bytes: u64) -> Result<(), Stop> {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
        if self.agg.log().stream_full() {
            return Err(Stop::Wait(Backpressure::Mirror));
        }
        let frozen = &self.frozen;
        let frames = self.totals.frames();
        if frames > self.memory / 3 {
            self.ask_or_pace(frames, &frozen.frames, self.most_frames())?;
        }
        let heap = self.totals.heap();
        if heap > self.heap / 3 {
            self.ask_or_pace(heap, &frozen.heap, self.heap)?;
        }
        if bytes > 0 {
            let (used, size) = self.agg.log().fill();
            // Saturates: overlays may hold more than the log.
            let later = most_log(size).saturating_sub(2 * (frames + heap));
            if used + bytes > later.max(size / 2) {
                self.ask_or_pace(used + bytes, &frozen.log, most_log(size))?;
            }
        }
        Ok(())
    }

    /// Requests a checkpoint because `used` bytes are too many, or makes the growth since the
    /// current one began keep pace with it.
    #[cold]
    fn ask_or_pace(&self, used: u64, frozen: &AtomicU64, most: u64) -> Result<(), Stop> {
        if !self.active.load(Ordering::Acquire) {
            self.want(self.epoch_lock.epoch());
            return match used > most {
                true => Err(Stop::Wait(Backpressure::Memory)),
                false => Ok(()),
            };
        }
        let frozen = frozen.load(Ordering::Relaxed);
        let (merged, all) = self.merged();
        // Saturates: the bound holds for the growth, not for the usage at the beginning.
        let room = most.saturating_sub(frozen);
        let share = u128::from(room) * u128::from(merged.min(all)) / u128::from(all);
        let allowed = room / 4 + (share as u64) / 4 * 3;
        // Saturates: frozen overlays may have been dropped.
        if used.saturating_sub(frozen) > allowed {
            return Err(Stop::Wait(Backpressure::Pace(merged)));
        }
        Ok(())
    }

    /// Returns true if overlays hold so much memory that recovery has to take a checkpoint: a third
    /// of it, as where clients make a checkpoint due. The log's next batch, its read window (a
    /// quarter at most) and the checkpoint need the rest.
    pub(crate) fn overlays_fill(&self) -> bool {
        self.totals.frames() > self.memory / 3 || self.totals.heap() > self.heap / 2
    }

    /// Notes the beginning of the checkpoint `epoch`, under the exclusive epoch lock.
    fn begin_pace(&self, epoch: u64) {
        self.writing.store(epoch, Ordering::Relaxed);
        let frozen = &self.frozen;
        frozen.frames.store(self.totals.frames(), Ordering::Relaxed);
        frozen.heap.store(self.totals.heap(), Ordering::Relaxed);
        frozen.log.store(self.agg.log().fill().0, Ordering::Relaxed);
        self.merged.store(0, Ordering::Relaxed);
    }

    /// Blocks until the current checkpoint may write more without taking the device from the log;
    /// not for long, and least if the log is idle.
    pub(crate) fn give_way(&self) {
        if !self.background {
            return;
        }
        let log = self.agg.log();
        let before = log.fill().0;
        let rests = std::iter::once(FIRST_REST).chain(std::iter::repeat_n(REST, RESTS));
        let mut idle = false;
        for rest in rests {
            let may = self.work.wait_for(rest, || self.may_write());
            idle = log.is_idle() && log.fill().0 == before;
            if idle || may {
                break;
            }
        }
        if !self.hurries() && self.is_ahead(0) {
            // With one write of a client in flight, the log is idle for a round trip, again and
            // again.
            log.wait_begun(if idle { REST } else { BEHIND });
        }
    }

    /// Returns true if an operation waits for the current checkpoint.
    pub(crate) fn hurries(&self) -> bool {
        self.hurry.load(Ordering::Relaxed) >= self.writing.load(Ordering::Relaxed)
            || self.stopping.load(Ordering::Acquire)
    }

    /// Returns true if the current checkpoint need not wait for the log.
    fn may_write(&self) -> bool {
        self.hurries() || !self.is_ahead(AHEAD)
    }

    /// Returns true if the checkpoint is ahead of its schedule by more than `by` bytes.
    fn is_ahead(&self, by: u64) -> bool {
        let (merged, all) = self.merged();
        merged as f64 > by as f64 + self.needed() * all as f64
    }

    /// Returns the bytes of overlays that the checkpoint has merged, and their total.
    fn merged(&self) -> (u64, u64) {
        let all =
            self.frozen.frames.load(Ordering::Relaxed) + self.frozen.heap.load(Ordering::Relaxed);
        (self.merged.load(Ordering::Relaxed), all.max(1))
    }

    /// Returns the part of the room left at the beginning of the checkpoint that clients have used
    /// up since: the same part of the checkpoint should be done.
    fn needed(&self) -> f64 {
        let part = |used: u64, frozen: &AtomicU64, most: u64| {
            let frozen = frozen.load(Ordering::Relaxed);
            // Saturates: frozen overlays may have been dropped, and may have exceeded the limit.
            let (more, room) = (used.saturating_sub(frozen), most.saturating_sub(frozen));
            more as f64 / room.max(1) as f64
        };
        let (used, size) = self.agg.log().fill();
        let frames = part(
            self.totals.frames(),
            &self.frozen.frames,
            self.most_frames(),
        );
        let heap = part(self.totals.heap(), &self.frozen.heap, self.heap);
        frames
            .max(heap)
            .max(part(used, &self.frozen.log, most_log(size)))
    }

    /// Returns the bytes of page frames that overlays may take.
    fn most_frames(&self) -> u64 {
        self.memory / 4 * 3
    }

    /// Notes that the checkpoint has merged this many bytes of the overlays.
    pub(crate) fn progressed(&self, bytes: u64) {
        self.merged.fetch_add(bytes, Ordering::Relaxed);
        self.progress.notify_all();
    }

    /// Returns true if an operation that waits for `pressure`, and so for `target`, can continue.
    pub(crate) fn is_relieved(&self, pressure: Backpressure, target: u64) -> bool {
        match pressure {
            Backpressure::Pace(merged) => {
                self.merged.load(Ordering::Relaxed) != merged
                    || !self.active.load(Ordering::Acquire)
                    || self.completed(target)
            }
            Backpressure::Mirror => {
                !self.agg.log().stream_full() || self.agg.guard().is_set() || self.stopped()
            }
            // The partner's part of it is not known here.
            Backpressure::Partner => self.agg.guard().is_set() || self.stopped(),
            _ => self.completed(target),
        }
    }

    /// Requests the checkpoint of `epoch`.
    pub(crate) fn want(&self, epoch: u64) {
        if self.wanted.fetch_max(epoch, Ordering::AcqRel) < epoch && self.background {
            self.work.notify_all();
        }
    }

    /// Requests a checkpoint of the changes made so far, which clients wait for. Does not wait.
    pub(crate) fn hasten(&self) {
        let epoch = self.epoch_lock.epoch();
        self.press(epoch);
        self.want(epoch);
    }

    /// Notes that an operation waits for the checkpoint of this epoch.
    fn press(&self, epoch: u64) {
        if self.hurry.fetch_max(epoch, Ordering::Relaxed) < epoch {
            self.work.notify_all();
        }
    }

    /// Returns the requested epoch that has not completed, if any.
    pub(crate) fn wanted(&self) -> Option<u64> {
        let wanted = self.wanted.load(Ordering::Acquire);
        (wanted > self.completed.load(Ordering::Acquire)).then_some(wanted)
    }

    /// Requests the checkpoint that relieves this back-pressure. Returns the epoch to wait for.
    pub(crate) fn request_checkpoint(&self, pressure: Backpressure) -> u64 {
        let target = match pressure {
            Backpressure::Epoch(n) => n,
            // The next checkpoint releases the present charges.
            Backpressure::Space => self.epoch_lock.epoch(),
            // A checkpoint in progress helps as well.
            Backpressure::Memory | Backpressure::Log | Backpressure::Pace(_) => {
                self.completed.load(Ordering::Acquire) + 1
            }
            // No checkpoint makes room in another machine.
            Backpressure::Mirror | Backpressure::Partner => return 0,
        };
        self.press(target);
        if !matches!(pressure, Backpressure::Pace(_)) {
            self.want(target);
        }
        if !self.background {
            while !self.completed(target) {
                let Some(maker) = self.maker.get().and_then(Weak::upgrade) else {
                    unreachable!("a checkpoint is waited for, and nobody makes it");
                };
                maker.make();
            }
        }
        target
    }

    /// Returns true if the checkpoint `epoch` is durable and published.
    pub(crate) fn is_durable(&self, epoch: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= epoch
    }

    /// Returns true if a wait is over: the checkpoint `epoch` is durable, or will never be taken.
    pub(crate) fn completed(&self, epoch: u64) -> bool {
        self.is_durable(epoch) || self.agg.guard().is_set() || self.stopping.load(Ordering::Acquire)
    }

    /// Notes that a checkpoint is durable and published.
    pub(crate) fn complete(&self, epoch: u64) {
        let before = self.completed.fetch_max(epoch, Ordering::AcqRel);
        invariant!(self.agg.guard() => before + 1 == epoch, "checkpoint {epoch} is complete after {before}");
        self.progress.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use weir_base::{ManualClock, Rng, SeededRng, Time};
    use weir_store::aggregate::Env;
    use weir_store::{FramePool, MemDevice};

    use super::*;
    use crate::lifecycle::engine::{Engine, EngineOptions};
    use crate::overlay::context::EngineContext;
    use crate::overlay::volume::Volume;
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

    /// A wrong count ends the thread of checkpoints in tests: a thread that waits for one must not
    /// wait for ever.
    #[test]
    fn who_waits_for_a_checkpoint_is_told_that_it_panicked() {
        let (engine, vol) = engine(true);
        let name = b"file";
        let cx = || EngineContext::new(Time::EPOCH);
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
        vol.live().unwrap().catalog.lock().rec.used -= 1;
        vol.drive_blocking(&mut cx(), |cx| vol.remove(cx, vol.root(), name))
            .unwrap();
        assert_eq!(engine.cp_now(), Err(FsError::ReadOnly));
        let why = engine.poisoned().unwrap();
        assert!(why.contains("1 data blocks of a volume"), "{why}");
        assert_eq!(engine.shutdown(), Err(FsError::ReadOnly));
    }

    #[test]
    fn a_checkpoint_is_done_when_clients_have_used_up_the_room() {
        let (engine, vol) = engine(false);
        let schedule = &vol.core.schedule;
        let cx = || EngineContext::new(Time::EPOCH);
        let file = vol.drive_blocking(&mut cx(), |cx| {
            let set = SetAttr::default();
            vol.create(cx, vol.root(), b"file", CreateHow::Guarded, &set)
        });
        let file = file.unwrap().value.ino;
        const PIECE: usize = 256 << 10;
        let write = |pieces: std::ops::Range<u64>| {
            for n in pieces {
                let data = [7; PIECE];
                vol.drive_blocking(&mut cx(), |cx| {
                    vol.write(cx, file, n * PIECE as u64, &data, Stability::Unstable)
                })
                .unwrap();
            }
        };
        // 5 of 16 MiB, of which 12 may be used.
        write(0..20);
        schedule.begin_pace(schedule.epoch_lock().epoch());
        assert!(schedule.may_write());
        let (_, all) = schedule.merged();
        assert!(all > 5 << 20);
        schedule.progressed(all);
        assert!(!schedule.may_write(), "nobody wants the room");
        write(20..28);
        assert!(schedule.may_write(), "{}", schedule.needed());
        assert!(
            (0.2..0.4).contains(&schedule.needed()),
            "{}",
            schedule.needed()
        );
        drop(engine);
    }

    #[test]
    fn who_waits_for_a_checkpoint_is_heard_after_snapshots() {
        let (engine, vol) = engine(false);
        let schedule = &vol.core.schedule;
        for name in ["a", "b", "c"] {
            vol.snapshot_create(name, Time::EPOCH).unwrap();
            engine.cp_now().unwrap();
        }
        let epoch = schedule.epoch_lock().epoch();
        assert!(
            schedule.agg.generation().0 > epoch,
            "they count differently"
        );
        schedule.begin_pace(epoch);
        schedule.progressed(1 << 30);
        assert!(!schedule.may_write());
        schedule.hurry.fetch_max(epoch, Ordering::Relaxed);
        assert!(schedule.may_write());
    }
}
