//! The part of a checkpoint that concerns one volume: it takes the changes, and merges them,
//! segment by segment, into the next tree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use weir_base::limits::engine::CHECKPOINT_READ_TRIES as READ_TRIES;
use weir_base::{BLOCK_SIZE, Generation, Ino, invariant};
use weir_store::aggregate::BlockingSource;
use weir_store::node::Key;
use weir_store::tree::{self, Edit, NodeSource, Stop, TreeRoot};
use weir_store::{BlockPtr, CpWriter, Frame, StoreError};

use crate::checkpoint::edits::Edits;
use crate::checkpoint::job::Jobs;
use crate::checkpoint::merge::{Merge, MergedTree};
use crate::checkpoint::orphans::{Orphans, read_orphans};
use crate::checkpoint::split::Split;
use crate::format::catalog::{self, Catalog, SnapshotRec, VolumeRec};
use crate::format::usage::{self, Owners, Usages};
use crate::overlay::delta::Delta;
use crate::overlay::inode::Inode;
use crate::overlay::segments::Part;
use crate::overlay::snapshots::{SealedSegment, SnapshotChanges, SnapshotProperties};
use crate::overlay::transfer_state::TakenBatch;
use crate::overlay::volume::{LiveVolume, Volume};

/// A source of old nodes that retries failed reads.
pub(super) struct Patient<'a>(pub(super) BlockingSource<'a>);

impl NodeSource for Patient<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        let mut result = self.0.node(ptr);
        for _ in 1..READ_TRIES {
            match &result {
                Err(Stop::Fail(StoreError::Io(error))) => {
                    tracing::warn!(%error, "cannot read a node for a checkpoint; retrying");
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

/// Changes of a volume, taken under the exclusive epoch lock.
pub(super) struct TakenChanges {
    pub(super) vol: LiveVolume,
    pub(super) sealed: Vec<SealedSegment>,
    pub(super) last: Part,
    pub(super) next_ino: u64,
    pub(super) changes: SnapshotChanges<Volume>,
    pub(super) received: TakenBatch,
    /// Unlinked inodes to delete whose records are all in the tree.
    pub(super) ended: Vec<Ino>,
    /// True if the usage in the tree is to be loaded for quotas.
    pub(super) loads_usage: bool,
}

/// Result of merging a segment: its overlays are dropped when the roots are published.
pub(super) struct Done {
    pub(super) inodes: Vec<Arc<Inode>>,
    pub(super) deltas: Vec<(Ino, Arc<Delta>)>,
    pub(super) inode_blocks: Vec<(usize, u64)>,
}

/// Result of merging a volume, to be published.
pub(super) struct MergedVolume {
    pub(super) vol: LiveVolume,
    pub(super) root: TreeRoot,
    pub(super) segment: u64,
    pub(super) parts: Vec<Done>,
    pub(super) changes: SnapshotChanges<Volume>,
    /// Snapshots that have changed.
    pub(super) snapshots: Vec<SnapshotRec>,
    pub(super) reverted: bool,
    /// Its unlinked inodes, if the volume was reverted.
    pub(super) unlinked: Option<Vec<Ino>>,
    /// The volume's new change base, if counters have gone back ([`crate::checkpoint::change`]).
    pub(super) change_base: Option<u64>,
    pub(super) received: TakenBatch,
    /// Result of splitting the clone.
    pub(super) split: Split,
    pub(super) usage: UsageNews,
}

/// Result of a merge for the quotas of a volume.
#[derive(Default)]
pub(super) struct UsageNews {
    /// Changes of usage in the tree.
    pub(super) changes: Usages,
    /// The part of them that no operation has added.
    pub(super) ended: Usages,
    /// Usage in a tree, if it is needed.
    pub(super) loaded: LoadedUsage,
}

/// Usage in a tree.
#[derive(Default)]
pub(super) enum LoadedUsage {
    #[default]
    Nothing,
    /// Usage below the overlays that were taken.
    Below(Usages),
    /// Usage in the new tree, whose contents replace the old ones.
    Anew(Usages),
    /// Not all inodes of the tree are counted.
    Uncounted,
}

pub(super) fn take(vol: LiveVolume) -> TakenChanges {
    let live = vol.live();
    let ended = vol.end_unlinked(live);
    let (sealed, last) = live.segments.take();
    let epoch = vol.core.epoch_lock().epoch();
    let loads_usage = vol.quota.begin(epoch, || {
        let sealed = sealed.iter().flat_map(|s| &s.inodes);
        pending(sealed.chain(&last.inodes))
    });
    // The batch gives a number to the snapshot that has arrived.
    let received = vol.take_batch();
    let changes = live.snaps.lock().take_changes();
    TakenChanges {
        ended,
        loads_usage,
        received,
        sealed,
        last,
        next_ino: vol.counters.next_ino(),
        changes,
        vol,
    }
}

/// Returns what the overlays of these inodes change in the usage of the tree below them.
fn pending<'i>(inodes: impl Iterator<Item = &'i Arc<Inode>>) -> Usages {
    let mut usages = Usages::new();
    let mut seen = HashSet::new();
    for inode in inodes.filter(|inode| seen.insert(inode.ino)) {
        let st = inode.state.read();
        let oldest = st.frozen.first().map(|delta| &**delta);
        let Some(oldest) = oldest.or(st.active.as_deref()) else {
            // It has no changes.
            continue;
        };
        if !oldest.new {
            let below = usage::of_inode(st.rec.blocks);
            usage::add(&mut usages, oldest.was, below.negated());
        }
        if !st.dead {
            let now = usage::of_inode(st.used() / BLOCK_SIZE as u64);
            usage::add(&mut usages, Owners::from_record(&st.rec), now);
        }
    }
    usages
}

/// Drops the overlays of a deleted volume; returns it with the views of its snapshots.
pub(super) fn discard(taken: TakenChanges, cp: &mut CpWriter) -> (LiveVolume, Vec<Arc<Volume>>) {
    let TakenChanges {
        vol,
        sealed,
        last,
        received,
        changes,
        ..
    } = taken;
    let views = vol.live().snaps.lock().end(changes);
    vol.discharge_batch(&received.batch);
    let sealed = sealed.into_iter().flat_map(|s| s.inodes);
    for inode in sealed.chain(last.inodes) {
        let mut st = inode.state.write();
        st.dead = true;
        let frozen = std::mem::take(&mut st.frozen);
        let active = st.active.take();
        drop(st);
        for delta in frozen.iter().map(|d| &**d).chain(active.as_deref()) {
            for (addr, count) in delta.data.iter().flat_map(|data| data.allocated()) {
                cp.unused(addr, count);
            }
            vol.discharge(delta);
        }
    }
    (vol, views)
}

pub(super) fn merge(
    taken: TakenChanges,
    cp: &mut CpWriter,
    src: &Patient<'_>,
    edits: &mut Edits,
    jobs: &mut Jobs,
) -> Result<MergedVolume, StoreError> {
    let TakenChanges {
        vol,
        sealed,
        last,
        next_ino,
        changes,
        mut received,
        ended,
        loads_usage,
    } = taken;
    let mut catalog = vol.live().catalog.lock();
    let usage = UsageNews::before(loads_usage, src, &catalog.rec.root)?;
    catalog.orphans.extend(ended);
    let before: Vec<SnapshotRec> = catalog.snapshots.values().cloned().collect();
    let rec_before = catalog.rec.clone();
    catalog.rec.change_top = rec_before.change_top.max(vol.counters.top());
    let split = jobs.split(&vol, &mut catalog, cp, src, edits)?;
    let mut volume = SegmentMerger {
        vol: &vol,
        catalog: &mut catalog,
        cp: &mut *cp,
        src,
        // With several segments, a frozen overlay's attributes do not include the effect of earlier
        // segments on the file's blocks.
        alone: sealed.is_empty(),
        parts: Vec::new(),
        segment: last.segment,
        known: HashMap::new(),
        first_target: None,
        usage,
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
        volume.cp.bump_generation()?;
    }
    volume.part(last)?;
    volume.received(&mut received)?;
    let (parts, segment, mut usage) = (volume.parts, volume.segment, volume.usage);
    if let Some(first) = volume.first_target {
        jobs.split_again(vol.id, first, edits);
    }
    catalog.rec.next_ino = next_ino;
    catalog.rec.mirror = received.rec;
    catalog.rec.key = vol.key.get();
    catalog.rec.limit = vol.space.limit();
    catalog.rec.next_snapshot = changes.next;
    catalog.rec.next_place = changes.next_place;
    describe_snapshots(&mut catalog, &changes);
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
        // Orphans of a destination are the source's concern.
        let orphans = match catalog.rec.mirror {
            Some(_) => Orphans::default(),
            None => read_orphans(src, &catalog.rec.root)?,
        };
        catalog.orphans = orphans.dying;
        unlinked = Some(orphans.unlinked);
    }
    vol.counters.set_top(catalog.rec.change_top);
    if (reverted || !received.batch.is_empty()) && vol.quota.is_tracked() {
        usage.loaded = UsageNews::read(src, &catalog.rec.root, LoadedUsage::Anew)?;
    }
    let gone_back = reverted || received.arrived.is_some();
    let change_base = gone_back.then(|| vol.next_change_base(catalog.rec.change_top));
    catalog.rec.change_base = change_base.unwrap_or_else(|| vol.counters.base());
    vol.space
        .set_committed(catalog.rec.used, catalog.rec.dead_blocks);
    let snapshots = record(&vol, &mut catalog, &rec_before, &before, edits);
    let root = catalog.rec.root;
    drop(catalog);
    Ok(MergedVolume {
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
        usage,
    })
}

/// Gives snapshots their new names, labels and hashes.
fn describe_snapshots(catalog: &mut Catalog, changes: &SnapshotChanges<Volume>) {
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
}

impl UsageNews {
    /// Creates the news of a merge over the tree `root`. `loads`: the usage there is needed.
    fn before(loads: bool, src: &Patient<'_>, root: &TreeRoot) -> Result<UsageNews, StoreError> {
        let loaded = match loads {
            true => UsageNews::read(src, root, LoadedUsage::Below)?,
            false => LoadedUsage::Nothing,
        };
        Ok(UsageNews {
            loaded,
            ..UsageNews::default()
        })
    }

    /// Returns the usage in a tree as `what` it is.
    fn read(
        src: &Patient<'_>,
        root: &TreeRoot,
        what: fn(Usages) -> LoadedUsage,
    ) -> Result<LoadedUsage, StoreError> {
        let (usages, counted) = usage::read(src, root)?;
        Ok(match counted || *root == TreeRoot::EMPTY {
            true => what(usages),
            false => LoadedUsage::Uncounted,
        })
    }
}

/// Puts the changed records of a volume. Returns the changed snapshots.
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
        let before = catalog::annotation_pieces(&catalog.annotation);
        let now = catalog::annotation_pieces(&annotation);
        for piece in 0..before.len().max(now.len()) {
            let key = catalog::annotation_key(vol.id, piece);
            match now.get(piece) {
                None => edits.del(key),
                text if text == before.get(piece) => {}
                Some(text) => edits.put(key, catalog::encode_annotation(text)),
            }
        }
        catalog.annotation = annotation;
    }
    changed
}

/// Merging the segments of one volume.
struct SegmentMerger<'a> {
    vol: &'a LiveVolume,
    catalog: &'a mut Catalog,
    cp: &'a mut CpWriter,
    src: &'a Patient<'a>,
    alone: bool,
    parts: Vec<Done>,
    segment: u64,
    /// Number of data blocks of the inodes merged so far, if there are several segments.
    known: HashMap<Ino, u64>,
    /// The first window that was a target of a clone.
    first_target: Option<Key>,
    usage: UsageNews,
}

impl SegmentMerger<'_> {
    /// Merges the received batch of a transfer. Creates its snapshot if the transfer is complete.
    fn received(&mut self, taken: &mut TakenBatch) -> Result<(), StoreError> {
        if taken.batch.is_empty() {
            return Ok(());
        }
        self.merge(|merge| merge.receive(&mut taken.batch))?;
        if let (Some((incoming, content)), Some((id, place, name))) =
            (&taken.batch.arriving, &taken.arrived)
        {
            let generation = self.cp.generation();
            let made = SnapshotProperties {
                id: *id,
                name: name.clone(),
                label: incoming.label.clone(),
                created: incoming.created,
                place: *place,
            };
            self.catalog.make_snapshot(made, generation);
            if let Some(rec) = self.catalog.snapshots.get_mut(place) {
                rec.source = Some(incoming.target);
                rec.content = Some(*content);
                rec.next_ino = incoming.next_ino;
            }
            self.cp.bump_generation()?;
        }
        Ok(())
    }

    /// Sets the reference counts that a repair has corrected, and the usage after a count.
    fn correct(&mut self) -> Result<(), StoreError> {
        let counts = std::mem::take(&mut self.catalog.corrections);
        let miscounts = self.vol.quota.take_corrections();
        if counts.is_empty() && miscounts.is_none() {
            return Ok(());
        }
        let orphans = std::mem::take(&mut self.catalog.orphans);
        self.merge(|merge| merge.correct(&counts, miscounts))?;
        self.catalog.orphans = orphans;
        Ok(())
    }

    /// Makes the volume's next tree with `how`. Returns the number of blocks of inodes.
    fn merge(
        &mut self,
        how: impl FnOnce(Merge<'_, Patient<'_>>) -> Result<MergedTree, StoreError>,
    ) -> Result<Vec<(usize, u64)>, StoreError> {
        let origin_generation = self.catalog.rec.origin_generation();
        self.cp.origin_generation(origin_generation);
        self.cp.retain(self.catalog.newest().map(|s| s.generation));
        let known = (!self.alone).then_some(&mut self.known);
        let merge = Merge::new(self.vol, self.cp, self.src, self.catalog.rec.root, known);
        let merged = how(merge)?;
        let retained = self.cp.take_retained();
        self.cp.retain(None);
        self.cp.origin_generation(Generation(0));
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
        for (id, change) in merged.usage {
            self.usage.changes.entry(id).or_default().add(change);
        }
        for (id, change) in merged.ended {
            self.usage.ended.entry(id).or_default().add(change);
        }
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

impl Catalog {
    /// Makes the volume's current state a snapshot.
    pub(crate) fn make_snapshot(&mut self, made: SnapshotProperties, generation: Generation) {
        if self.place_of(made.id).is_some() {
            return;
        }
        let snapshot = SnapshotRec {
            id: made.id,
            number: made.place,
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
        self.snapshots.insert(snapshot.number, snapshot);
    }
}
