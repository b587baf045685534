//! Consistency points: from frozen overlays to the next durable trees.
//!
//! 1. The gate is closed for an instant: the epoch advances, the log is cut, the
//!    lists of changed inodes are taken. What follows runs beside operations.
//! 2. The overlays of the ended epoch are frozen and merged into new trees.
//! 3. When everything is durable, the superblock makes it current, and the log is
//!    released up to the cut.
//! 4. The new roots are published, and only then the frozen overlays are dropped:
//!    a reader always finds a change in one or the other.
//!
//! An error leaves the old trees and the log as they are. The aggregate is
//! poisoned then: nothing more can be promised, but everything can be read, and
//! after a restart the log has all that was acknowledged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_base::Ino;
use weir_store::aggregate::Blocking;
use weir_store::tree::{self, Edit, NodeSource, Stop};
use weir_store::{BlockPtr, CpWriter, Frame, StoreError};

use crate::catalog::AGGREGATE_TREE;
use crate::core::Core;
use crate::delta::Delta;
use crate::inode::Inode;
use crate::merge::Merge;
use crate::snapshot::VolumeState;
use crate::volume::{RootState, Volume};

/// Times that a consistency point tries to read a node. Giving up poisons the
/// aggregate, so an error that passes should not be enough for it.
const READ_TRIES: usize = 5;

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

/// What the gate's closing takes from a volume.
struct Taken {
    vol: Arc<Volume>,
    inodes: Vec<Arc<Inode>>,
    next_ino: u64,
}

/// What merging changed of a volume, to be published.
struct Built {
    vol: Arc<Volume>,
    root: Arc<RootState>,
    inodes: Vec<Arc<Inode>>,
    deltas: Vec<(Ino, Arc<Delta>)>,
    inode_blocks: Vec<(usize, u64)>,
}

/// Makes one consistency point. Waits while another is being made.
pub(crate) fn run(core: &Arc<Core>) {
    let _one = core.cp.running.lock();
    if core.is_poisoned() {
        core.progress.happen();
        return;
    }
    core.cp.active.store(true, Ordering::Release);
    let result = attempt(core);
    core.cp.active.store(false, Ordering::Release);
    core.progress.happen();
    match result {
        Ok(epoch) => core.complete(epoch),
        Err(error) => {
            core.agg
                .poison(&format!("a consistency point failed: {error}"));
            core.progress.happen();
        }
    }
}

fn attempt(core: &Arc<Core>) -> Result<u64, StoreError> {
    let parity = core.gate.epoch() % 2;
    let (epoch, (cut, taken)) = core.gate.advance(|| {
        core.changed.store(false, Ordering::Relaxed);
        core.begin_pace();
        let take = |vol: &Arc<Volume>| {
            let [even, odd] = &vol.dirty;
            let list = if parity == 0 { even } else { odd };
            Taken {
                inodes: std::mem::take(&mut *list.lock()),
                next_ino: vol.next_ino.load(Ordering::Relaxed),
                vol: Arc::clone(vol),
            }
        };
        let taken: Vec<Taken> = core.volumes.read().values().map(take).collect();
        (core.agg.log().cut(), taken)
    });

    let mut cp = core.agg.begin()?;
    let src = Patient(core.agg.source());
    let mut edits: Vec<Edit> = Vec::new();
    let mut merged = Vec::new();
    for t in taken {
        merged.push(merge(t, epoch, &mut cp, &src, &mut edits)?);
    }
    edits.sort_unstable_by_key(Edit::key);
    let root = tree::apply(
        &mut cp,
        &src,
        AGGREGATE_TREE,
        &core.agg.root(),
        edits.into_iter(),
    )?;
    let life = core.agg.commit(cp, root, cut)?;

    let built: Vec<Built> = merged
        .into_iter()
        .map(|m| {
            let root = RootState::new(m.root, Arc::clone(&life));
            m.vol.root.store(Arc::clone(&root));
            Built {
                vol: m.vol,
                root,
                inodes: m.inodes,
                deltas: m.deltas,
                inode_blocks: m.inode_blocks,
            }
        })
        .collect();
    let more = built
        .iter()
        .any(|b| !b.vol.catalog.lock().orphans.is_empty());
    for b in built {
        publish(b);
    }
    if more {
        // Removed files are still being deleted: the next one goes on with it.
        core.changed.store(true, Ordering::Relaxed);
        core.want(core.gate.epoch());
    }
    Ok(epoch)
}

struct MergedVolume {
    vol: Arc<Volume>,
    root: tree::TreeRoot,
    inodes: Vec<Arc<Inode>>,
    deltas: Vec<(Ino, Arc<Delta>)>,
    inode_blocks: Vec<(usize, u64)>,
}

fn merge(
    taken: Taken,
    epoch: u64,
    cp: &mut CpWriter,
    src: &Patient<'_>,
    edits: &mut Vec<Edit>,
) -> Result<MergedVolume, StoreError> {
    let Taken {
        vol,
        mut inodes,
        next_ino,
    } = taken;
    inodes.sort_unstable_by_key(|i| i.ino);
    let mut deltas = Vec::with_capacity(inodes.len());
    for inode in &inodes {
        let mut st = inode.state.write();
        if st.active.as_ref().is_some_and(|d| d.epoch == epoch) {
            st.freeze();
        }
        if let Some(frozen) = &st.frozen {
            deltas.push((inode.ino, Arc::clone(frozen)));
        }
    }
    let old = vol.root.load().root;
    let mut catalog = vol.catalog.lock();
    catalog.delete_snapshots(&vol, cp, src, edits)?;
    cp.retain(catalog.newest_snapshot());
    let orphans = std::mem::take(&mut catalog.orphans);
    let merged = Merge::new(&vol, cp, src, old).run(&orphans, &deltas)?;
    let retained = cp.take_retained();
    cp.retain(None);
    catalog.orphans = merged.orphans;
    let used = vol
        .used
        .load(Ordering::Relaxed)
        .saturating_add_signed(merged.blocks);
    vol.used.store(used, Ordering::Relaxed);
    let state = VolumeState {
        root: merged.root,
        next_ino,
        limit: vol.limit.load(Ordering::Relaxed),
        used,
        retained,
    };
    catalog.record(&vol, cp.generation(), state, edits);
    drop(catalog);
    Ok(MergedVolume {
        vol,
        root: merged.root,
        inodes,
        deltas,
        inode_blocks: merged.inode_blocks,
    })
}

/// Drops the frozen overlays of a volume whose new root is published.
fn publish(built: Built) {
    let Built {
        vol,
        root,
        inodes,
        deltas,
        inode_blocks,
    } = built;
    let mut blocks = inode_blocks.into_iter().peekable();
    let mut inodes = inodes.into_iter();
    for (i, (ino, delta)) in deltas.into_iter().enumerate() {
        let count = blocks.next_if(|(at, _)| *at == i).map(|(_, n)| n);
        let Some(inode) = inodes.by_ref().find(|inode| inode.ino == ino) else {
            continue;
        };
        let mut st = inode.state.write();
        if let Some(count) = count {
            st.rec.blocks = count;
        }
        st.frozen = None;
        if st.active.is_none() {
            st.unlogged = false;
        }
        drop(st);
        vol.discharge(&delta);
    }
    drop(root);
}
