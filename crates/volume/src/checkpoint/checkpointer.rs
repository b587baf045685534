//! Checkpoints: from frozen overlays to the next durable trees.
//!
//! 1. The epoch lock is held exclusively for an instant: the epoch advances, the log is cut, the
//!    lists of changed inodes are taken. The later steps run beside operations.
//! 2. The overlays of the ended segments are frozen and merged into new trees. A volume has one
//!    segment, and one more for each snapshot made since the last checkpoint, which captures the
//!    end of its segment ([`crate::lifecycle::snapshot`]).
//! 3. Background jobs get their share ([`crate::checkpoint::job`]).
//! 4. When everything is durable, the superblock makes it current, and the log is released up to
//!    the cut.
//! 5. The new roots are published, and only then the frozen overlays are dropped: a reader always
//!    finds a change in one or the other.
//!
//! Only changed volumes are processed.
//!
//! An error leaves the old trees and the log as they are, and poisons the aggregate. Then nothing
//! more can be reserved, but everything can be read, and after a restart the log has every
//! acknowledged change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use weir_base::latency::{Histogram, Latencies};
use weir_store::StoreError;
use weir_store::log::LogCut;
use weir_store::node::Key;
use weir_store::tree::{self, TreeRoot};

use crate::checkpoint::build::{Patient, TakenChanges, discard, merge, take};
use crate::checkpoint::edits::Edits;
use crate::checkpoint::job::{Jobs, Volumes};
use crate::checkpoint::publish::publish;
use crate::checkpoint::table::VolumeTable;
use crate::format::catalog::{AGGREGATE_TREE, AggregateRec, Job};
use crate::overlay::checkpoint_pacing::MakeCheckpoint;
use crate::overlay::core::Core;
use crate::overlay::role::Ancestry;
use crate::overlay::root::RootState;

/// An aggregate's volumes, and the state for taking checkpoints.
pub(crate) struct Checkpointer {
    core: Arc<Core>,
    table: VolumeTable,
    /// Held during a checkpoint: only one is in progress at a time.
    running: Mutex<()>,
    /// Background jobs; only checkpoints change them.
    jobs: Mutex<Jobs>,
    /// True if `jobs` is not empty; read without its lock.
    backlog: AtomicBool,
    /// Duration of the last checkpoint in microseconds.
    micros: AtomicU64,
    /// Durations of all since the start.
    durations: Histogram,
    /// The aggregate's record in the tree.
    stored: RwLock<AggregateRec>,
    /// True if the next checkpoint is the last one: nothing changes after it.
    closing: AtomicBool,
}

/// Ends a checkpoint on drop, so that a panic, which ends the checkpoint and perhaps its thread,
/// leaves no thread waiting for either.
struct PanicGuard<'a>(&'a Core);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.agg.poison("a checkpoint panicked");
            self.0.schedule.set_active(false);
        }
    }
}

impl MakeCheckpoint for Checkpointer {
    fn make(&self) {
        self.run();
    }
}

impl Checkpointer {
    pub(crate) fn new(core: Arc<Core>) -> Arc<Checkpointer> {
        Arc::new(Checkpointer {
            core,
            table: VolumeTable::new(),
            running: Mutex::default(),
            jobs: Mutex::default(),
            backlog: AtomicBool::new(false),
            micros: AtomicU64::new(0),
            durations: Histogram::default(),
            stored: RwLock::default(),
            closing: AtomicBool::new(false),
        })
    }

    /// Restores the state from the tree.
    pub(crate) fn restore(&self, jobs: Jobs, aggregate: AggregateRec) {
        self.backlog.store(!jobs.is_empty(), Ordering::Release);
        *self.jobs.lock() = jobs;
        *self.stored.write() = aggregate;
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn table(&self) -> &VolumeTable {
        &self.table
    }

    /// Returns the aggregate's record in the tree.
    pub(crate) fn stored(&self) -> AggregateRec {
        *self.stored.read()
    }

    /// Returns the background jobs.
    #[cfg(test)]
    pub(crate) fn jobs(&self) -> &Mutex<Jobs> {
        &self.jobs
    }

    /// Returns true if there are background jobs.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Acquire)
    }

    /// Returns the duration of the last checkpoint.
    pub(crate) fn took(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// Returns the durations of the checkpoints since the start, except those of the recovery.
    pub(crate) fn latencies(&self) -> Latencies {
        self.durations.read()
    }

    /// Marks the next checkpoint as the last one: nothing changes after it.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Takes one checkpoint. Blocks while another is in progress.
    pub(crate) fn run(&self) {
        let core = &*self.core;
        let _one = self.running.lock();
        if core.is_poisoned() {
            core.schedule.notify();
            return;
        }
        core.schedule.set_active(true);
        let _ended = PanicGuard(core);
        let (began, log) = (core.agg.clock().monotonic(), core.agg.log().fill().0);
        let result = self.attempt(None);
        // Saturates: the numbers are times.
        let took = core.agg.clock().monotonic().saturating_sub(began);
        tracing::debug!(
            ?took,
            log_before = log,
            log_after = core.agg.log().fill().0,
            "checkpoint"
        );
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros, Ordering::Relaxed);
        self.durations.record(micros.saturating_mul(1000));
        core.schedule.set_active(false);
        match result {
            Ok(epoch) => core.schedule.complete(epoch),
            Err(error) => {
                core.agg.poison(&format!("a checkpoint failed: {error}"));
                core.schedule.notify();
            }
        }
    }

    /// Takes a checkpoint of the applied records, those before `cut`, during recovery. No other
    /// thread is at work.
    pub(crate) fn run_recovered(&self, cut: LogCut) -> Result<(), StoreError> {
        let _one = self.running.lock();
        let epoch = self.attempt(Some(cut))?;
        self.core.schedule.complete(epoch);
        tracing::info!(position = %cut.pos, "checkpointed a part of the intent log during recovery");
        Ok(())
    }

    /// Tries a checkpoint. `cut`: position at which the log is cut; `None`: its current end.
    fn attempt(&self, cut: Option<LogCut>) -> Result<u64, StoreError> {
        let (core, table) = (&*self.core, &self.table);
        let (epoch, (cut, taken, doomed, own, unused)) = core.epoch_lock().advance(|| {
            let changed = core.schedule.take_changed().into_iter();
            let taken: Vec<TakenChanges> =
                changed.filter_map(|id| table.get(id)).map(take).collect();
            let doomed: Vec<TakenChanges> = table.take_doomed().into_iter().map(take).collect();
            let cut = cut.unwrap_or_else(|| core.agg.log().cut());
            let unused = core.placements.take_unused();
            let closing = self.closing.load(Ordering::Acquire);
            if closing {
                for vol in table.list_volumes() {
                    // A revert in progress has the same effect.
                    vol.live().standing.close();
                }
            }
            let own = (
                core.log.calls().take_fresh(),
                core.clients.take_changed(),
                core.log.position(),
                core.last_mark(),
                closing,
            );
            (cut, taken, doomed, own, unused)
        });
        let (calls, clients, position, last_mark, closing) = own;

        let mut cp = core.agg.begin()?;
        for stray in core.placements.take_strays() {
            stray.wait_and_free(&core.agg)?;
        }
        for (addr, count) in unused {
            cp.unused(addr, count);
        }
        let src = Patient(core.agg.source());
        let mut jobs = self.jobs.lock();
        let mut edits = Edits::default();
        let mut built = Vec::new();
        let mut dropped = Vec::new();
        for t in doomed {
            jobs.bury_volume(&t.vol, &mut edits);
            dropped.push(discard(t, &mut cp));
        }
        for id in table.take_splits() {
            jobs.add(id, Job::Split { from: Key::MIN }, &mut edits);
        }
        for t in taken {
            built.push(merge(t, &mut cp, &src, &mut edits, &mut jobs)?);
        }
        jobs.step(Volumes { core, table }, &mut cp, &src, &mut edits)?;
        let aggregate = AggregateRec {
            next_volume: table.next(),
            in_use: !closing,
            position,
            last_mark,
        };
        if std::mem::replace(&mut *self.stored.write(), aggregate) != aggregate {
            edits.put(AggregateRec::KEY, aggregate.encode());
        }
        for (key, value) in calls.records() {
            edits.put(key, value);
        }
        for (key, value) in clients {
            match value {
                Some(value) => edits.put(key, value),
                None => edits.del(key),
            }
        }
        let root = tree::apply(
            &mut cp,
            &src,
            AGGREGATE_TREE,
            &core.agg.root(),
            edits.into_sorted(),
        )?;
        let before = core.agg.life();
        core.agg.commit(cp, root, cut)?;

        let mut more = false;
        for b in built {
            let vol = b.vol.clone();
            publish(core, table, b, &before);
            if !vol.live().catalog.lock().orphans.is_empty() {
                // Removed files are still being deleted; the next checkpoint continues.
                core.schedule.note_changed(vol.id);
                more = true;
            }
        }
        for (vol, views) in dropped {
            views.iter().for_each(|view| view.retire(&before));
            let ancestry = std::mem::replace(&mut *vol.live().ancestry.lock(), Ancestry::Own);
            if let Some(origin) = ancestry.origin() {
                table.forget_clone(origin);
            }
            vol.root.load().supersede(Arc::clone(&before));
            vol.root.store(RootState::new(TreeRoot::EMPTY));
        }
        if closing {
            // A volume reverted by this checkpoint is closed as well.
            table
                .list_volumes()
                .iter()
                .for_each(|vol| vol.live().standing.close());
        }
        for id in jobs.splits() {
            core.schedule.note_changed(id);
        }
        self.backlog.store(!jobs.is_empty(), Ordering::Release);
        drop(jobs);
        if more {
            core.schedule.want(core.epoch_lock().epoch());
        }
        Ok(epoch)
    }
}
