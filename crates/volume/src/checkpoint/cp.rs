//! Consistency points: from frozen overlays to the next durable trees.
//!
//! 1. The epoch lock is held exclusively for an instant: the epoch advances, the log is cut, the
//!    lists of changed inodes are taken. What follows runs beside operations.
//! 2. The overlays of the ended segments are frozen and merged into new trees. A
//!    volume has one segment, and one more for each snapshot that was made since the
//!    last consistency point: its end is what the snapshot is of ([`crate::lifecycle::snapshot`]).
//! 3. Work in the background gets its share ([`crate::checkpoint::job`]).
//! 4. When everything is durable, the superblock makes it current, and the log is
//!    released up to the cut.
//! 5. The new roots are published, and only then the frozen overlays are dropped:
//!    a reader always finds a change in one or the other.
//!
//! Only volumes in which something has changed are looked at.
//!
//! An error leaves the old trees and the log as they are. The aggregate is
//! poisoned then: nothing more can be promised, but everything can be read, and
//! after a restart the log has all that was acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use weir_base::limits::engine::CHECKPOINT_READ_TRIES as READ_TRIES;
use weir_base::{Generation, Ino, invariant};
use weir_store::aggregate::Blocking;
use weir_store::log::LogCut;
use weir_store::node::Key;
use weir_store::tree::{self, Edit, NodeSource, Stop, TreeRoot};
use weir_store::{BlockPtr, CpWriter, Frame, StoreError};

use crate::checkpoint::edits::Edits;
use crate::checkpoint::job::{Jobs, Volumes};
use crate::checkpoint::merge::{Merge, Merged};
use crate::checkpoint::orphans::{Orphans, read_orphans};
use crate::checkpoint::split::Split;
use crate::checkpoint::table::VolumeTable;
use crate::format::catalog::{
    self, AGGREGATE_TREE, AggregateRec, Catalog, Job, SnapshotRec, VolumeRec,
};
use crate::overlay::core::Core;
use crate::overlay::delta::Delta;
use crate::overlay::inode::Inode;
use crate::overlay::receiving::TakenBatch;
use crate::overlay::role::Ancestry;
use crate::overlay::root::RootState;
use crate::overlay::schedule::MakeCheckpoint;
use crate::overlay::segments::Part;
use crate::overlay::snapshots::{Changes, Made, Sealed};
use crate::overlay::volume::{LiveVolume, Volume};

/// An aggregate's volumes, and what makes its consistency points.
pub(crate) struct Checkpointer {
    core: Arc<Core>,
    table: VolumeTable,
    /// Held while a consistency point is made: there is one at a time.
    running: Mutex<()>,
    /// Work in the background; consistency points alone change it.
    jobs: Mutex<Jobs>,
    /// There is some.
    backlog: AtomicBool,
    /// Microseconds that the last consistency point took.
    micros: AtomicU64,
    /// What the tree says of the aggregate as a whole.
    stored: RwLock<AggregateRec>,
    /// The next consistency point is the last one: nothing is changed after it.
    closing: AtomicBool,
}

/// Old nodes, read with some patience.
pub(crate) struct Patient<'a>(Blocking<'a>);

impl NodeSource for Patient<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        let mut result = self.0.node(ptr);
        for _ in 1..READ_TRIES {
            match &result {
                Err(Stop::Fail(StoreError::Io(error))) => {
                    tracing::warn!(%error, "reading again for a consistency point");
                    result = self.0.node(ptr);
                }
                _ => break,
            }
        }
        result
    }

    fn prefetch(&self, ptrs: &[BlockPtr]) {
        self.0.prefetch(ptrs);
    }
}

/// What is taken under the exclusive epoch lock from a volume.
struct Taken {
    vol: LiveVolume,
    sealed: Vec<Sealed>,
    last: Part,
    next_ino: u64,
    changes: Changes<Volume>,
    received: TakenBatch,
    /// Inodes without a name that are to go, of which the tree has everything.
    ended: Vec<Ino>,
}

/// What merging a segment gave: its overlays are dropped when the roots are published.
struct Done {
    inodes: Vec<Arc<Inode>>,
    deltas: Vec<(Ino, Arc<Delta>)>,
    inode_blocks: Vec<(usize, u64)>,
}

/// What merging changed of a volume, to be published.
struct Built {
    vol: LiveVolume,
    root: TreeRoot,
    segment: u64,
    parts: Vec<Done>,
    changes: Changes<Volume>,
    /// The snapshots that are not as they were.
    snapshots: Vec<SnapshotRec>,
    reverted: bool,
    /// Its inodes without a name, if it was reverted.
    unlinked: Option<Vec<Ino>>,
    /// The volume's new base, if counters have gone back ([`crate::checkpoint::change`]).
    change_base: Option<u64>,
    received: TakenBatch,
    /// A clone is split from this, or could not be.
    split: Split,
}

/// A panic ends a consistency point, and perhaps its thread, but nobody's waiting for either.
struct Ended<'a>(&'a Core);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.agg.poison("a consistency point ended in a panic");
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
            stored: RwLock::default(),
            closing: AtomicBool::new(false),
        })
    }

    /// Takes in what the tree says.
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

    /// What the tree says of the aggregate as a whole.
    pub(crate) fn stored(&self) -> AggregateRec {
        *self.stored.read()
    }

    /// Work in the background.
    #[cfg(test)]
    pub(crate) fn jobs(&self) -> &Mutex<Jobs> {
        &self.jobs
    }

    /// Whether there is work in the background.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Acquire)
    }

    /// How long the last consistency point took.
    pub(crate) fn took(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// The next consistency point is the last one: nothing is changed after it.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Makes one consistency point. Waits while another is being made.
    pub(crate) fn run(&self) {
        let core = &*self.core;
        let _one = self.running.lock();
        if core.is_poisoned() {
            core.schedule.notify();
            return;
        }
        core.schedule.set_active(true);
        let _ended = Ended(core);
        let (began, log) = (core.agg.clock().monotonic(), core.agg.log().fill().0);
        let result = self.attempt(None);
        // Saturates: times.
        let took = core.agg.clock().monotonic().saturating_sub(began);
        tracing::debug!(
            ?took,
            log_before = log,
            log_after = core.agg.log().fill().0,
            "consistency point"
        );
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros, Ordering::Relaxed);
        core.schedule.set_active(false);
        match result {
            Ok(epoch) => core.schedule.complete(epoch),
            Err(error) => {
                core.agg
                    .poison(&format!("a consistency point failed: {error}"));
                core.schedule.notify();
            }
        }
    }

    /// Makes one during recovery, of what has been applied: the records before `cut`.
    /// Nobody else is at work.
    pub(crate) fn run_recovered(&self, cut: LogCut) -> Result<(), StoreError> {
        let _one = self.running.lock();
        let epoch = self.attempt(Some(cut))?;
        self.core.schedule.complete(epoch);
        tracing::info!(position = %cut.pos, "a part of the intent log is in a consistency point");
        Ok(())
    }

    /// `cut`: where the log is cut; `None`: where it ends now.
    fn attempt(&self, cut: Option<LogCut>) -> Result<u64, StoreError> {
        let (core, table) = (&*self.core, &self.table);
        let (epoch, (cut, taken, doomed, own, unused)) = core.epoch_lock().advance(|| {
            let changed = core.schedule.take_changed().into_iter();
            let taken: Vec<Taken> = changed.filter_map(|id| table.get(id)).map(take).collect();
            let doomed: Vec<Taken> = table.take_doomed().into_iter().map(take).collect();
            let cut = cut.unwrap_or_else(|| core.agg.log().cut());
            let unused = core.placements.take_unused();
            let closing = self.closing.load(Ordering::Acquire);
            if closing {
                for vol in table.all() {
                    // A revert that is under way has the same effect.
                    vol.live().standing.close();
                }
            }
            let own = (
                core.log.calls().take_fresh(),
                core.clients.take_changed(),
                core.log.position(),
                closing,
            );
            (cut, taken, doomed, own, unused)
        });
        let (calls, clients, position, closing) = own;

        let mut cp = core.agg.begin()?;
        for stray in core.placements.take_strays() {
            stray.settle(&core.agg)?;
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
                // Removed files are still being deleted: the next one goes on with it.
                core.schedule.note_changed(vol.id);
                more = true;
            }
        }
        for vol in dropped {
            let ancestry = std::mem::replace(&mut *vol.live().ancestry.lock(), Ancestry::Own);
            if let Some(origin) = ancestry.origin() {
                table.forget_clone(origin);
            }
            vol.root.load().supersede(Arc::clone(&before));
            vol.root.store(RootState::new(TreeRoot::EMPTY));
        }
        if closing {
            // What was turned by this one is closed as well.
            table
                .all()
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

fn take(vol: LiveVolume) -> Taken {
    let live = vol.live();
    let ended = vol.end_unlinked(live);
    let (sealed, last) = live.segments.take();
    // It gives a number to the snapshot that has arrived.
    let received = vol.take_batch();
    let changes = live.snaps.lock().take_changes();
    Taken {
        ended,
        received,
        sealed,
        last,
        next_ino: vol.counters.next_ino(),
        changes,
        vol,
    }
}

/// Drops the overlays of a deleted volume.
fn discard(taken: Taken, cp: &mut CpWriter) -> LiveVolume {
    let Taken {
        vol,
        sealed,
        last,
        received,
        ..
    } = taken;
    vol.discharge_batch(&received.batch);
    let sealed = sealed.into_iter().flat_map(|s| s.inodes);
    for inode in sealed.chain(last.inodes) {
        let mut st = inode.state.write();
        st.dead = true;
        let frozen = std::mem::take(&mut st.frozen);
        let active = st.active.take();
        drop(st);
        for delta in frozen.iter().map(|d| &**d).chain(active.as_deref()) {
            for (addr, count) in delta.data.iter().flat_map(|data| data.reserved()) {
                cp.unused(addr, count);
            }
            vol.discharge(delta);
        }
    }
    vol
}

fn merge(
    taken: Taken,
    cp: &mut CpWriter,
    src: &Patient<'_>,
    edits: &mut Edits,
    jobs: &mut Jobs,
) -> Result<Built, StoreError> {
    let Taken {
        vol,
        sealed,
        last,
        next_ino,
        changes,
        mut received,
        ended,
    } = taken;
    let mut catalog = vol.live().catalog.lock();
    catalog.orphans.extend(ended);
    let before: Vec<SnapshotRec> = catalog.snapshots.values().cloned().collect();
    let rec_before = catalog.rec.clone();
    catalog.rec.change_top = rec_before.change_top.max(vol.counters.top());
    let split = jobs.split(&vol, &mut catalog, cp, src, edits)?;
    let mut volume = Merging {
        vol: &vol,
        catalog: &mut catalog,
        cp: &mut *cp,
        src,
        // With several segments, the attributes that an overlay was frozen with do
        // not know what the segments before did to the file's blocks.
        alone: sealed.is_empty(),
        parts: Vec::new(),
        segment: last.segment,
        known: HashMap::new(),
        first_target: None,
    };
    volume.correct()?;
    for s in sealed {
        volume.part(Part {
            segment: s.segment,
            inodes: s.inodes,
        })?;
        volume.catalog.rec.next_ino = s.next_ino;
        let generation = volume.cp.generation();
        volume.catalog.make_snapshot(s.made, generation);
        volume.cp.divide()?;
    }
    volume.part(last)?;
    volume.received(&mut received)?;
    let (parts, segment) = (volume.parts, volume.segment);
    if let Some(first) = volume.first_target {
        jobs.split_again(vol.id, first, edits);
    }
    catalog.rec.next_ino = next_ino;
    catalog.rec.mirror = received.rec;
    catalog.rec.key = vol.key.get();
    catalog.rec.limit = vol.space.limit();
    catalog.rec.next_snapshot = changes.next;
    for (id, name, label) in &changes.named {
        if let Some(number) = catalog.place_of(*id)
            && let Some(s) = catalog.snapshots.get_mut(&number)
        {
            s.name.clone_from(name);
            s.label.clone_from(label);
        }
    }
    for (id, content) in &changes.hashed {
        if let Some(number) = catalog.place_of(*id)
            && let Some(s) = catalog.snapshots.get_mut(&number)
        {
            s.content = Some(*content);
        }
    }
    for id in &changes.gone {
        jobs.drop_snapshot(&vol, &mut catalog, cp, src, edits, *id)?;
    }
    let mut reverted = false;
    let mut unlinked = None;
    if let Some((id, number)) = changes.revert {
        reverted = jobs.revert(&vol, &mut catalog, cp, src, edits, id, number)?;
    }
    if changes.empty {
        jobs.empty(&vol, &mut catalog, edits);
        reverted = true;
    }
    if reverted {
        // Those of a destination are the source's business.
        let orphans = match catalog.rec.mirror {
            Some(_) => Orphans::default(),
            None => read_orphans(src, &catalog.rec.root)?,
        };
        catalog.orphans = orphans.dying;
        unlinked = Some(orphans.unlinked);
    }
    vol.counters.set_top(catalog.rec.change_top);
    let gone_back = reverted || received.arrived.is_some();
    let change_base = gone_back.then(|| vol.next_change_base(catalog.rec.change_top));
    catalog.rec.change_base = change_base.unwrap_or_else(|| vol.counters.base());
    vol.space
        .set_committed(catalog.rec.used, catalog.rec.dead_blocks);
    let snapshots = record(&vol, &mut catalog, &rec_before, &before, edits);
    let root = catalog.rec.root;
    drop(catalog);
    Ok(Built {
        vol,
        root,
        segment,
        parts,
        changes,
        snapshots,
        reverted,
        unlinked,
        change_base,
        received,
        split,
    })
}

/// Puts what has changed of a volume's records; answers the snapshots that have.
fn record(
    vol: &Volume,
    catalog: &mut Catalog,
    rec_before: &VolumeRec,
    before: &[SnapshotRec],
    edits: &mut Edits,
) -> Vec<SnapshotRec> {
    let old: BTreeMap<u32, &SnapshotRec> = before.iter().map(|s| (s.number, s)).collect();
    for number in old.keys().filter(|n| !catalog.snapshots.contains_key(*n)) {
        edits.del(SnapshotRec::key(vol.id, *number));
    }
    let mut changed = Vec::new();
    for (number, snapshot) in &catalog.snapshots {
        if old.get(number).is_none_or(|was| *was != snapshot) {
            edits.put(SnapshotRec::key(vol.id, *number), snapshot.encode());
            changed.push(snapshot.clone());
        }
    }
    let (unique, dead) = (
        catalog.snapshots.values().map(|s| s.unique),
        catalog.rec.dead_blocks,
    );
    let unique: u64 = unique.sum();
    invariant!(vol.core.agg.guard() => unique <= dead, "snapshots of volume {} have {unique} blocks of their own, of {dead} dead ones", vol.id);
    if !catalog.stored || catalog.rec != *rec_before {
        edits.put(VolumeRec::key(vol.id), catalog.rec.encode());
        catalog.stored = true;
    }
    let annotation = vol.annotation();
    if catalog.annotation != annotation {
        let key = catalog::annotation_key(vol.id);
        match annotation.is_empty() {
            true => edits.del(key),
            false => edits.put(key, catalog::encode_annotation(&annotation)),
        }
        catalog.annotation = annotation;
    }
    changed
}

/// Merging the segments of one volume.
struct Merging<'a> {
    vol: &'a LiveVolume,
    catalog: &'a mut Catalog,
    cp: &'a mut CpWriter,
    src: &'a Patient<'a>,
    alone: bool,
    parts: Vec<Done>,
    segment: u64,
    /// Data blocks of the inodes merged so far, if there are several segments.
    known: HashMap<Ino, u64>,
    /// The first window into which something was cloned.
    first_target: Option<Key>,
}

impl Merging<'_> {
    /// Merges what a transfer has brought; its snapshot, if that was all.
    fn received(&mut self, taken: &mut TakenBatch) -> Result<(), StoreError> {
        if taken.batch.is_empty() {
            return Ok(());
        }
        self.merge(|merge| merge.receive(&mut taken.batch))?;
        if let (Some((incoming, content)), Some((id, name))) =
            (&taken.batch.arriving, &taken.arrived)
        {
            let generation = self.cp.generation();
            let made = Made {
                id: *id,
                name: name.clone(),
                label: incoming.label.clone(),
                created: incoming.created,
            };
            self.catalog.make_snapshot(made, generation);
            if let Some(rec) = self.catalog.snapshots.get_mut(id) {
                rec.source = Some(incoming.target);
                rec.content = Some(*content);
                rec.next_ino = incoming.next_ino;
            }
            self.cp.divide()?;
        }
        Ok(())
    }

    /// Sets the counts of references that a repair knows better.
    fn correct(&mut self) -> Result<(), StoreError> {
        let counts = std::mem::take(&mut self.catalog.corrections);
        if counts.is_empty() {
            return Ok(());
        }
        let orphans = std::mem::take(&mut self.catalog.orphans);
        self.merge(|merge| merge.correct(&counts))?;
        self.catalog.orphans = orphans;
        Ok(())
    }

    /// Has `how` make the volume's next tree; answers the blocks of inodes.
    fn merge(
        &mut self,
        how: impl FnOnce(Merge<'_, Patient<'_>>) -> Result<Merged, StoreError>,
    ) -> Result<Vec<(usize, u64)>, StoreError> {
        let foreign = self.catalog.rec.foreign();
        self.cp.foreign(foreign);
        self.cp.retain(self.catalog.newest().map(|s| s.generation));
        let known = (!self.alone).then_some(&mut self.known);
        let merge = Merge::new(self.vol, self.cp, self.src, self.catalog.rec.root, known);
        let merged = how(merge)?;
        let retained = self.cp.take_retained();
        self.cp.retain(None);
        self.cp.foreign(Generation(0));
        let rec = &mut self.catalog.rec;
        rec.root = merged.root;
        let guard = self.vol.core.agg.guard();
        rec.used = guard.changed(rec.used, merged.blocks, "data blocks of a volume");
        rec.change_top = rec.change_top.max(merged.change_top);
        self.catalog.orphans = merged.orphans;
        self.first_target = self
            .first_target
            .into_iter()
            .chain(merged.first_target)
            .min();
        let mut buried = self.catalog.bury(self.src, retained)?;
        if !buried.is_empty() {
            buried.sort_unstable_by_key(Edit::key);
            let rec = &mut self.catalog.rec;
            rec.dead = tree::apply(
                self.cp,
                self.src,
                self.vol.id,
                &rec.dead,
                buried.into_iter(),
            )?;
        }
        Ok(merged.inode_blocks)
    }

    fn part(&mut self, part: Part) -> Result<(), StoreError> {
        let Part {
            segment,
            mut inodes,
        } = part;
        inodes.sort_unstable_by_key(|i| i.ino);
        debug_assert!(
            inodes.is_sorted_by(|a, b| a.ino < b.ino),
            "an inode is merged twice"
        );
        let mut deltas = Vec::with_capacity(inodes.len());
        for inode in &inodes {
            let mut st = inode.state.write();
            if st.active.as_ref().is_some_and(|d| d.segment == segment) {
                st.freeze();
            }
            if let Some(frozen) = st.frozen.iter().find(|d| d.segment == segment) {
                deltas.push((inode.ino, Arc::clone(frozen)));
            }
        }
        let orphans = std::mem::take(&mut self.catalog.orphans);
        let inode_blocks = self.merge(|merge| merge.run(&orphans, &deltas))?;
        self.parts.push(Done {
            inodes,
            deltas,
            inode_blocks,
        });
        Ok(())
    }
}

/// Publishes a volume's new root and drops the overlays that it has taken in.
fn publish(core: &Core, table: &VolumeTable, built: Built, before: &Arc<weir_store::RootLife>) {
    let Built {
        vol,
        root,
        segment,
        parts,
        mut changes,
        snapshots,
        reverted,
        unlinked,
        change_base,
        received,
        split,
    } = built;
    let live = vol.live();
    let asked = changes.revert.is_some() || changes.empty;
    if !reverted {
        changes.revert = None;
    }
    match split {
        Split::None => {}
        Split::Failed => live.ancestry.lock().stay(),
        Split::Done(origin) => {
            *live.ancestry.lock() = Ancestry::Own;
            table.forget_clone(origin);
        }
    }
    if reverted {
        // Until the new root stands, nothing is loaded; what was loaded before is
        // not used any more.
        live.standing.begin_swap();
        vol.table.retire(false);
        for part in &parts {
            drop_overlays(&vol, part, segment);
        }
    }
    if let Some(unlinked) = unlinked {
        if !unlinked.is_empty() {
            core.schedule.note_changed(vol.id);
        }
        live.unlinked.replace(unlinked);
    }
    if let Some(base) = change_base {
        // Nobody can read what it does not belong to: of a volume that was reverted nothing is loaded, and of a
        // destination clients see a view, which has its own base.
        vol.counters.set_base(base);
    }
    let old = vol.root.load_full();
    if old.root != root {
        old.supersede(Arc::clone(before));
        vol.root.store(RootState::new(root));
    }
    drop(old);
    let gone_views;
    {
        let mut snaps = live.snaps.lock();
        if let Some((id, _)) = &received.arrived {
            snapshots
                .iter()
                .filter(|rec| rec.id == *id)
                .for_each(|rec| snaps.take_in(rec));
        }
        gone_views = snaps.publish(changes, snapshots);
    }
    for view in gone_views {
        view.retire(before);
    }
    vol.publish_mirror(&received);
    if !reverted {
        for part in &parts {
            drop_overlays(&vol, part, segment);
        }
    }
    if asked {
        live.standing.turned();
        core.schedule.notify();
    }
}

/// Drops the overlays up to `segment` of these inodes.
fn drop_overlays(vol: &Volume, part: &Done, segment: u64) {
    let core = &vol.core;
    let mut blocks = part.inode_blocks.iter().peekable();
    let mut inodes = part.inodes.iter();
    for (i, (ino, delta)) in part.deltas.iter().enumerate() {
        let count = blocks.next_if(|(at, _)| *at == i).map(|(_, n)| *n);
        let Some(inode) = inodes.by_ref().find(|inode| inode.ino == *ino) else {
            invariant!(core.agg.guard() => false, "inode {ino} was merged and is not among those that were taken");
            continue;
        };
        let mut st = inode.state.write();
        if let Some(count) = count {
            st.rec.blocks = count;
        }
        st.frozen.retain(|d| d.segment > segment);
        if st.active.is_none() && st.frozen.is_empty() {
            st.unlogged = false;
        }
        drop(st);
        vol.discharge(delta);
    }
}

impl Catalog {
    /// The volume as it is now becomes a snapshot.
    pub(crate) fn make_snapshot(&mut self, made: Made, generation: Generation) {
        if self.place_of(made.id).is_some() {
            return;
        }
        let snapshot = SnapshotRec {
            id: made.id,
            number: made.id,
            name: made.name,
            label: made.label,
            root: self.rec.root,
            generation,
            created: made.created,
            next_ino: self.rec.next_ino,
            used: self.rec.used,
            unique: 0,
            source: None,
            content: None,
        };
        self.snapshots.insert(made.id, snapshot);
    }
}
