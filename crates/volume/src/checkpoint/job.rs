//! Background jobs: freeing the blocks of deleted volumes and snapshots and the remains of reverts,
//! and splitting clones.
//!
//! A job is a record in the aggregate's tree. Each checkpoint does a bounded piece of it and stores
//! the remainder, both or neither. So a job resumes at the same point after a restart, and nothing
//! is freed twice. Jobs of one volume run in the order in which they were made.
//!
//! **Pace.** A piece is some hundred megabytes of freed blocks, which is tens of milliseconds of
//! work. Requests do not notice the piece but its checkpoint: flushes that their log records wait
//! behind, and writes of data that would have been overwritten in memory. So the thread waits nine
//! times as long as the checkpoint took before it begins the next one. Under load that is seconds,
//! close to when the next would have begun anyway; on an idle server it is a tenth of a second. An
//! operation that waits for space does not wait for this.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use weir_base::limits::engine::{JOB_BLOCKS as STEP_BLOCKS, SCAN_PIECES};
use weir_base::{Generation, VolumeId};
use weir_store::checkpoint::Run;
use weir_store::node::Key;
use weir_store::tree::{self, Edit, NodeSource, Reaper, TreeRoot};
use weir_store::{BlockPtr, CpWriter, StoreError};

use crate::checkpoint::dead::{self, born_of};
use crate::checkpoint::edits::{Edits, put_job};
use crate::checkpoint::table::VolumeTable;
use crate::format::catalog::{
    Catalog, Job, Places, SnapshotRec, VolumeRec, annotation_key, annotation_pieces,
};
use crate::format::reading::{after, scan};
use crate::format::record::{Window, kind};
use crate::format::shared_runs::{Group, SharedRuns};
use crate::overlay::core::Core;
use crate::overlay::volume::LiveVolume;

/// Nodes and dead-list pieces that a step reads. In tests a job needs several steps.
const STEP_NODES: u64 = if cfg!(test) { 2 } else { 2048 };

/// The remaining allowance of a step.
pub(crate) struct Allowance {
    pub(crate) blocks: u64,
    pub(crate) nodes: u64,
}

impl Allowance {
    fn new() -> Allowance {
        Allowance {
            blocks: STEP_BLOCKS,
            nodes: STEP_NODES,
        }
    }

    fn spent(&self) -> bool {
        self.blocks == 0 || self.nodes == 0
    }

    fn take(&mut self, blocks: u64) {
        // Saturates: a started run is freed as a whole.
        self.blocks = self.blocks.saturating_sub(blocks);
    }

    fn node(&mut self) {
        // Saturates: nodes that belong together are read together.
        self.nodes = self.nodes.saturating_sub(1);
    }
}

/// The volumes that jobs work on.
#[derive(Clone, Copy)]
pub(crate) struct Volumes<'a> {
    pub(crate) core: &'a Core,
    pub(crate) table: &'a VolumeTable,
}

/// All jobs. Only checkpoints change them.
#[derive(Default)]
pub(crate) struct Jobs {
    list: BTreeMap<(VolumeId, u64), Job>,
    next: u64,
}

impl Jobs {
    /// Restores a stored job.
    pub(crate) fn restore(&mut self, id: VolumeId, number: u64, job: Job) {
        // Saturates: the number comes from the disk.
        self.next = self.next.max(number.saturating_add(1));
        self.list.insert((id, number), job);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the number and the position of a clone's split.
    pub(crate) fn split_of(&self, id: VolumeId) -> Option<(u64, Key)> {
        let mut all = self.list.range((id, 0)..=(id, u64::MAX));
        all.find_map(|(at, job)| match job {
            Job::Split { from } => Some((at.1, *from)),
            _ => None,
        })
    }

    pub(crate) fn set_split(
        &mut self,
        id: VolumeId,
        number: u64,
        from: Option<Key>,
        edits: &mut Edits,
    ) {
        self.set((id, number), from.map(|from| Job::Split { from }), edits);
    }

    /// Moves a clone's split back to the window `first`, into which a range was cloned. The range
    /// may contain blocks of the origin, and the split has passed the window.
    pub(crate) fn split_again(&mut self, id: VolumeId, first: Key, edits: &mut Edits) {
        if let Some((number, from)) = self.split_of(id)
            && first < from
        {
            self.set_split(id, number, Some(first), edits);
        }
    }

    /// Returns the clones that are being split.
    pub(crate) fn splits(&self) -> Vec<VolumeId> {
        let split =
            |(at, job): (&(VolumeId, u64), &Job)| matches!(job, Job::Split { .. }).then_some(at.0);
        self.list.iter().filter_map(split).collect()
    }

    pub(crate) fn add(&mut self, id: VolumeId, job: Job, edits: &mut Edits) {
        let number = self.next;
        self.next += 1;
        put_job(edits, id, number, Some(&job));
        self.list.insert((id, number), job);
    }

    fn set(&mut self, at: (VolumeId, u64), job: Option<Job>, edits: &mut Edits) {
        put_job(edits, at.0, at.1, job.as_ref());
        match job {
            Some(job) => self.list.insert(at, job),
            None => self.list.remove(&at),
        };
    }

    fn list_for_volume(&self, id: VolumeId) -> Vec<(u64, Job)> {
        self.list
            .range((id, 0)..=(id, u64::MAX))
            .map(|((_, number), job)| (*number, job.clone()))
            .collect()
    }

    /// Removes a volume's records and queues all of its own blocks for freeing.
    pub(crate) fn bury_volume(&mut self, vol: &LiveVolume, edits: &mut Edits) {
        let catalog = vol.live().catalog.lock();
        let mut spared = Vec::new();
        for (number, job) in self.list_for_volume(vol.id) {
            if let Job::Forget(places) = job {
                spared.push(places);
            }
            if job.needs_volume() {
                self.set((vol.id, number), None, edits);
            }
        }
        edits.del(VolumeRec::key(vol.id));
        for piece in 0..annotation_pieces(&catalog.annotation).len() {
            edits.del(annotation_key(vol.id, piece));
        }
        for number in catalog.snapshots.keys() {
            edits.del(SnapshotRec::key(vol.id, *number));
        }
        let reap = Job::Reap {
            root: catalog.rec.root,
            since: catalog.rec.origin_generation(),
            from: Key::MIN,
        };
        self.add(vol.id, reap, edits);
        let dead = Job::ReapDead {
            root: catalog.rec.dead,
            from: Key::MIN,
            spared,
        };
        self.add(vol.id, dead, edits);
    }

    /// Removes a snapshot. Blocks that only it refers to are freed later, and belong to no snapshot
    /// from now on.
    pub(crate) fn drop_snapshot(
        &mut self,
        vol: &LiveVolume,
        catalog: &mut Catalog,
        cp: &mut CpWriter,
        src: &impl NodeSource,
        edits: &mut Edits,
        id: u32,
    ) -> Result<(), StoreError> {
        let Some(place) = catalog.place_of(id) else {
            return Ok(());
        };
        catalog.snapshots.remove(&place);
        let mut older = catalog.snapshots.range(..place).map(|(n, _)| *n).rev();
        let (previous, before_that) = (older.next(), older.next());
        let mut newer = catalog.snapshots.range(place..).map(|(n, _)| *n);
        let (next, after_that) = (newer.next(), newer.next());
        // `behind`: after a snapshot, or from the beginning; `until`: up to before a snapshot, or
        // to the end.
        // Saturates: no snapshot gets the last number, nor is there a number 0.
        let behind = |n: Option<u32>| n.map_or(0, |n| n.saturating_add(1));
        let until = |n: Option<u32>| n.map_or(u32::MAX, |n| n.saturating_sub(1));
        let dead = catalog.rec.dead;
        let own = Places {
            died: (place, until(next)),
            born: (behind(previous), place),
        };
        // Blocks that it shared with one neighbour are now the neighbour's alone.
        if let Some(previous) = previous {
            let places = Places {
                died: (place, until(next)),
                born: (behind(before_that), previous),
            };
            let more = dead::total(src, &dead, places)?;
            if let Some(s) = catalog.snapshots.get_mut(&previous) {
                s.unique += more;
            }
        }
        if let Some(next) = next {
            let places = Places {
                died: (next, until(after_that)),
                born: own.born,
            };
            let more = dead::total(src, &dead, places)?;
            if let Some(s) = catalog.snapshots.get_mut(&next) {
                s.unique += more;
            }
        }
        let freed = forget_sums(vol, catalog, cp, src, own)?;
        let guard = vol.core.agg.guard();
        catalog.rec.dead_blocks = guard.less(catalog.rec.dead_blocks, freed, "dead blocks");
        if freed > 0 {
            self.add(vol.id, Job::Free(own), edits);
        }
        Ok(())
    }

    /// Empties the volume. It has no snapshots.
    pub(crate) fn empty(&mut self, vol: &LiveVolume, catalog: &mut Catalog, edits: &mut Edits) {
        let reap = Job::Reap {
            root: catalog.rec.root,
            since: catalog.rec.origin_generation(),
            from: Key::MIN,
        };
        self.add(vol.id, reap, edits);
        catalog.rec.root = TreeRoot::EMPTY;
        catalog.rec.used = 0;
    }

    /// Reverts the volume to a snapshot, which moves to the end of the chain; later snapshots are
    /// removed. Returns false if that is impossible.
    #[expect(clippy::too_many_arguments)]
    pub(crate) fn revert(
        &mut self,
        vol: &LiveVolume,
        catalog: &mut Catalog,
        cp: &mut CpWriter,
        src: &impl NodeSource,
        edits: &mut Edits,
        id: u32,
        number: u32,
    ) -> Result<bool, StoreError> {
        let Some(place) = catalog.place_of(id) else {
            return Ok(false);
        };
        let Some(mut target) = catalog.snapshots.remove(&place) else {
            return Ok(false);
        };
        catalog.snapshots.retain(|n, _| *n < place);
        let last = number - 1;
        let after = Places {
            died: (place, last),
            born: (place + 1, last),
        };
        let again = Places {
            died: (place, last),
            born: (0, place),
        };
        let freed = forget_sums(vol, catalog, cp, src, after)?;
        let revived = forget_sums(vol, catalog, cp, src, again)?;
        let rec = &mut catalog.rec;
        let guard = vol.core.agg.guard();
        rec.dead_blocks = guard.less(rec.dead_blocks, freed + revived, "dead blocks");
        if freed > 0 {
            self.add(vol.id, Job::Free(after), edits);
        }
        if revived > 0 {
            self.add(vol.id, Job::Forget(again), edits);
        }
        let reap = Job::Reap {
            root: rec.root,
            since: target.generation,
            from: Key::MIN,
        };
        self.add(vol.id, reap, edits);
        rec.root = target.root;
        rec.used = target.used;
        target.number = number;
        target.unique = 0;
        catalog.snapshots.insert(number, target);
        Ok(true)
    }

    /// Does one checkpoint's share of all jobs.
    pub(crate) fn step(
        &mut self,
        of: Volumes<'_>,
        cp: &mut CpWriter,
        src: &impl NodeSource,
        edits: &mut Edits,
    ) -> Result<(), StoreError> {
        if self.list.is_empty() {
            return Ok(());
        }
        let mut allowance = Allowance::new();
        // An unfinished job keeps later ones of its volume waiting.
        let mut waiting = None;
        for (at, job) in self.list.clone() {
            if allowance.spent() {
                break;
            }
            if waiting == Some(at.0) || matches!(job, Job::Split { .. }) {
                continue;
            }
            let rest = step(of, cp, src, edits, at.0, job.clone(), &mut allowance)?;
            if rest.is_some() {
                waiting = Some(at.0);
            }
            if rest.as_ref() != Some(&job) {
                self.set(at, rest, edits);
            }
        }
        Ok(())
    }
}

/// Does a piece of a job. Returns the remainder.
fn step(
    of: Volumes<'_>,
    cp: &mut CpWriter,
    src: &impl NodeSource,
    edits: &mut Edits,
    id: VolumeId,
    job: Job,
    allowance: &mut Allowance,
) -> Result<Option<Job>, StoreError> {
    Ok(match job {
        Job::Reap { root, since, from } => {
            let mut reaper = BlockReaper {
                core: of.core,
                cp,
                since,
                dead: None,
                allowance,
                tree: (src, &root),
                shared: SharedRuns::default(),
            };
            tree::reap(src, &root, since, from, &mut reaper).map(|from| Job::Reap {
                root,
                since,
                from,
            })
        }
        Job::ReapDead { root, from, spared } => {
            let mut reaper = BlockReaper {
                core: of.core,
                cp,
                since: Generation(0),
                dead: Some(&spared),
                allowance,
                tree: (src, &root),
                shared: SharedRuns::default(),
            };
            let rest = tree::reap(src, &root, Generation(0), from, &mut reaper);
            rest.map(|from| Job::ReapDead { root, from, spared })
        }
        Job::Free(places) => {
            sweep(of, cp, src, edits, id, places, true, allowance)?.then_some(Job::Free(places))
        }
        Job::Forget(places) => {
            sweep(of, cp, src, edits, id, places, false, allowance)?.then_some(Job::Forget(places))
        }
        Job::Split { .. } => Some(job),
    })
}

/// Frees a tree's blocks.
struct BlockReaper<'a, S> {
    core: &'a Core,
    cp: &'a mut CpWriter,
    since: Generation,
    /// Places that are not freed, if the tree is one of dead blocks.
    dead: Option<&'a [Places]>,
    allowance: &'a mut Allowance,
    /// The tree whose blocks are freed: its store and its root.
    tree: (&'a S, &'a TreeRoot),
    /// Counts of shared blocks, which are freed with the counts, at the end.
    shared: SharedRuns,
}

impl<S: NodeSource> BlockReaper<'_, S> {
    fn give(&mut self, run: Run) {
        self.core.agg.cache().forget(run.addr, u64::from(run.count));
        self.cp.release(run);
        self.allowance.take(u64::from(run.count));
    }
}

impl<S: NodeSource> Reaper for BlockReaper<'_, S> {
    fn node(&mut self, ptr: &BlockPtr) {
        self.allowance.node();
        self.give(Run {
            addr: ptr.addr,
            count: 1,
            birth: ptr.birth,
        });
    }

    fn record(&mut self, key: Key, value: &[u8]) {
        match self.dead {
            None if key.kind == kind::EXTENT => {
                let Some(window) = Window::decode(value) else {
                    tracing::error!(
                        inode = key.ino,
                        "malformed extent; its blocks stay allocated"
                    );
                    return;
                };
                let (src, root) = self.tree;
                for stored in window.blocks.iter().flatten() {
                    if stored.birth <= self.since {
                        continue;
                    }
                    match self.shared.is_shared(src, root, *stored) {
                        Ok(false) => self.give(Run {
                            addr: stored.addr,
                            count: 1,
                            birth: stored.birth,
                        }),
                        Ok(true) => {}
                        Err(error) => {
                            tracing::error!(block = %stored.addr, %error, "cannot read the reference count of a block; it stays allocated");
                        }
                    }
                }
            }
            None if key.kind == kind::SHARED => {
                let Some(group) = Group::decode(value) else {
                    tracing::error!("malformed count of references; its blocks stay allocated");
                    return;
                };
                for run in group.runs(key.sub) {
                    if run.birth > self.since {
                        self.give(run);
                    }
                }
            }
            Some(spared) if key.kind == dead::kind::PIECE => {
                if spared.iter().any(|p| p.contains(key.ino, born_of(&key))) {
                    return;
                }
                let Some(runs) = dead::decode(value) else {
                    tracing::error!("malformed dead blocks; they stay allocated");
                    return;
                };
                for run in runs {
                    self.give(run);
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, ptr: &BlockPtr, error: &StoreError) {
        tracing::error!(block = %ptr.addr, %error, "cannot read a node of a deleted tree; its blocks stay allocated");
    }

    fn enough(&self) -> bool {
        self.allowance.spent()
    }
}

/// Removes pieces at these places from a volume's dead tree, and frees their blocks. Returns true
/// if more remain.
#[expect(clippy::too_many_arguments)]
fn sweep(
    of: Volumes<'_>,
    cp: &mut CpWriter,
    src: &impl NodeSource,
    edits: &mut Edits,
    id: VolumeId,
    places: Places,
    free: bool,
    allowance: &mut Allowance,
) -> Result<bool, StoreError> {
    let Some(vol) = of.table.get(id) else {
        // The volume was deleted since this checkpoint began. The next checkpoint queues the
        // volume's blocks for freeing, and has to include this job. Blocks to forget are referred
        // to by the volume again, and must not be freed twice.
        return Ok(true);
    };
    let mut catalog = vol.live().catalog.lock();
    let mut gone: Vec<Edit> = Vec::new();
    let mut died = places.died.0;
    let mut from = dead::key(died, dead::kind::PIECE, places.born.0, 0);
    let last = dead::key(places.died.1, u8::MAX, u32::MAX, u32::MAX);
    let mut more = true;
    while !allowance.spent() {
        // The pieces of one D.
        let to = dead::key(died, dead::kind::PIECE, places.born.1, u32::MAX);
        let mut found: Vec<(Key, Vec<u8>)> = Vec::new();
        scan(src, &catalog.rec.dead, from, to, &mut |key, value| {
            found.push((key, value.to_vec()));
            match found.len() < SCAN_PIECES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let mut done = found.len() < SCAN_PIECES;
        for (key, value) in found {
            if allowance.spent() {
                done = false;
                break;
            }
            let runs = dead::decode(&value).ok_or_else(dead::malformed)?;
            for run in runs.into_iter().filter(|_| free) {
                of.core.agg.cache().forget(run.addr, u64::from(run.count));
                cp.release(run);
                allowance.take(u64::from(run.count));
            }
            allowance.node();
            gone.push(Edit::Del(key));
            from = after(key);
        }
        if !done {
            continue;
        }
        // Find the next existing D.
        let mut next = None;
        let behind = dead::key(died, u8::MAX, u32::MAX, u32::MAX);
        if behind < last {
            scan(src, &catalog.rec.dead, behind, last, &mut |key, _| {
                next = u32::try_from(key.ino).ok();
                ControlFlow::Break(())
            })?;
        }
        match next {
            Some(d) if d > died => {
                died = d;
                from = dead::key(died, dead::kind::PIECE, places.born.0, 0);
                // A D without anything to free costs a read, too.
                allowance.node();
            }
            _ => {
                more = false;
                break;
            }
        }
    }
    if !gone.is_empty() {
        let rec = &mut catalog.rec;
        rec.dead = tree::apply(cp, src, id, &rec.dead, gone.into_iter())?;
        edits.put(VolumeRec::key(id), rec.encode());
    }
    Ok(more)
}

/// Removes the sums of the groups at these places, whose blocks no longer belong to a snapshot.
/// Returns the number of those blocks.
fn forget_sums(
    vol: &LiveVolume,
    catalog: &mut Catalog,
    cp: &mut CpWriter,
    src: &impl NodeSource,
    places: Places,
) -> Result<u64, StoreError> {
    let mut blocks = 0;
    let mut gone = Vec::new();
    dead::sums(src, &catalog.rec.dead, places, &mut |died, born, sum| {
        blocks += sum.blocks;
        gone.push(Edit::Del(dead::key(died, dead::kind::SUM, born, 0)));
    })?;
    if !gone.is_empty() {
        let rec = &mut catalog.rec;
        rec.dead = tree::apply(cp, src, vol.id, &rec.dead, gone.into_iter())?;
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use weir_base::Time;

    use crate::testing::{create, machine, run, write};
    use crate::types::SetAttr;

    /// A volume is deleted during a checkpoint that began before, while the rest of a revert is
    /// still pending. Once, the job counted as done, and the blocks restored by the revert were
    /// freed twice: once as the volume's and once as dead ones. That failed the checkpoint and
    /// every one after each restart.
    #[test]
    fn a_job_outlives_a_checkpoint_that_does_not_find_its_volume() {
        let (machine, engine, vol) = machine(3);
        let file = create(&vol, b"file");
        let write = |block: u64| write(&vol, file, block, &[7; 4096]);
        // Blocks of several ages die under the oldest snapshot and are freed with it, in more
        // pieces than one step handles.
        (0..12).for_each(write);
        for n in 0..6 {
            vol.snapshot_create(&format!("s{n}"), Time::EPOCH).unwrap();
            engine.cp_now().unwrap();
            write(n);
            write(n + 6);
        }
        engine.cp_now().unwrap();
        engine.revert("vol", "s0").unwrap();
        let core = &vol.core;
        let jobs = engine.cp.jobs();
        let unfinished = jobs.lock().list_for_volume(vol.id).len();
        assert!(unfinished > 1, "the revert is to leave work");

        let held = jobs.lock();
        let before = core.epoch_lock().epoch();
        run(&vol, |cx| vol.setattr(cx, file, &SetAttr::default(), None));
        std::thread::scope(|s| {
            let point = s.spawn(|| engine.cp_now());
            while core.epoch_lock().epoch() == before {
                std::thread::yield_now();
            }
            assert!(engine.retire_volume("vol").unwrap());
            drop(held);
            point.join().unwrap().unwrap();
        });
        for _ in 0..40 {
            engine.cp_now().unwrap();
        }
        assert!(jobs.lock().is_empty());
        engine.shutdown().unwrap();
        drop((vol, engine));
        assert_eq!(machine.check().faults, []);
    }
}
