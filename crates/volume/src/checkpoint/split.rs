//! Splits a clone from its origin by copying every shared block.
//!
//! Each checkpoint does a piece of it, before the volume's own changes are merged. The next leaves
//! of the clone's tree are read, and file blocks that belong to the origin are copied to blocks of
//! the clone's own. A record of each leaf that belongs to the origin is rewritten, which makes the
//! leaf and the nodes above it the clone's own. Behind the last leaf nothing is shared any more,
//! because data that the clone has changed meanwhile is its own anyway. If a range is cloned from
//! an uncopied part of a file to a copied one, the walk goes back to the target.

use std::collections::BTreeSet;

use weir_base::limits::engine::{
    SPLIT_BLOCKS, SPLIT_LEAVES as STEP_LEAVES, SPLIT_WRITE as LONGEST_WRITE,
};
use weir_base::{BlockAddr, Generation};
use weir_store::checkpoint::Run;
use weir_store::node::Key;
use weir_store::tree::{self, Edit, NodeSource, TreeRoot, Visitor};
use weir_store::{BlockPtr, CpWriter, StoreError};

use crate::checkpoint::edits::Edits;
use crate::checkpoint::job::Jobs;
use crate::format::catalog::{Catalog, Origin};
use crate::format::reading::after;
use crate::format::record::{StoredBlock, Window, kind};
use crate::format::shared_runs::SharedRuns;
use crate::overlay::volume::Volume;

/// Blocks copied in one step. In tests a split needs several steps.
const STEP_BLOCKS: usize = if cfg!(test) { 64 } else { SPLIT_BLOCKS };

/// Progress of a clone's splitting after a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Split {
    /// The split is not complete.
    None,
    /// The clone no longer depends on its origin.
    Done(Origin),
    /// A block of the origin cannot be read: the volume stays a clone.
    Failed,
}

/// Blocks and leaves to be rewritten.
struct RewritePlan {
    until: Generation,
    leaves: usize,
    blocks: usize,
    /// True if the current leaf belongs to the origin and has no edit yet.
    leaf: bool,
    last: Option<Key>,
    edits: Vec<Edit>,
    windows: Vec<(Key, Window)>,
    failed: Option<StoreError>,
}

impl Visitor for RewritePlan {
    fn node(&mut self, ptr: &BlockPtr, level: u8) -> bool {
        if level == 0 {
            self.leaf = ptr.birth <= self.until;
            self.leaves += 1;
        }
        true
    }

    fn record(&mut self, key: Key, value: &[u8]) {
        self.last = Some(key);
        if key.kind == kind::EXTENT && key.ino != 0 {
            let Some(window) = Window::decode(value) else {
                self.failed = Some(StoreError::Format("malformed extent".into()));
                return;
            };
            let shared = |s: &&StoredBlock| s.birth <= self.until;
            let count = window.blocks.iter().flatten().filter(shared).count();
            if count > 0 {
                self.blocks += count;
                self.windows.push((key, window));
                self.leaf = false;
                return;
            }
        }
        if self.leaf {
            self.leaf = false;
            self.edits.push(Edit::Put(key, value.to_vec()));
        }
    }

    fn fault(&mut self, _ptr: &BlockPtr, _first: Key, error: &StoreError) {
        self.failed = Some(error.clone());
    }

    fn enough(&self) -> bool {
        self.failed.is_some() || self.blocks >= STEP_BLOCKS || self.leaves > STEP_LEAVES
    }
}

impl Jobs {
    /// Does a piece of splitting a clone from its origin, if that was requested.
    pub(crate) fn split(
        &mut self,
        vol: &Volume,
        catalog: &mut Catalog,
        cp: &mut CpWriter,
        src: &impl NodeSource,
        edits: &mut Edits,
    ) -> Result<Split, StoreError> {
        let Some((number, from)) = self.split_of(vol.id) else {
            return Ok(Split::None);
        };
        let Some(origin) = catalog.rec.origin else {
            self.set_split(vol.id, number, None, edits);
            return Ok(Split::None);
        };
        let mut shared = RewritePlan {
            until: origin.generation,
            leaves: 0,
            blocks: 0,
            leaf: false,
            last: None,
            edits: Vec::new(),
            windows: Vec::new(),
            failed: None,
        };
        tree::walk_from(src, &catalog.rec.root, from, &mut shared);
        if let Some(error) = &shared.failed {
            return Ok(self.give_up(vol, number, error, edits));
        }
        // Blocks shared by files are copied for each file.
        let root = catalog.rec.root;
        let (mut counts, more_used) = match unshare(src, &root, &shared) {
            Ok(unshared) => unshared,
            Err(error) => return Ok(self.give_up(vol, number, &error, edits)),
        };
        // Copies need space, which requests may be using up: then the split is deferred.
        let space = vol.core.agg.space();
        let need = (shared.blocks + shared.leaves * 2 + counts.len()) as u64;
        if !space.reserve(need) {
            tracing::debug!(volume = %vol.id, "no room to split a clone; later");
            return Ok(Split::None);
        }
        let more = shared.enough();
        let last = shared.last;
        let copied = copy(vol, cp, shared);
        space.release_reserved(need);
        let mut changed = match copied {
            Ok(changed) => changed,
            Err(CopyError::Reading(error)) => {
                return Ok(self.give_up(vol, number, &error, edits));
            }
            Err(CopyError::Writing(error)) => return Err(error),
        };
        // A leaf of counts may also be rewritten as it is.
        let counted: BTreeSet<Key> = counts.iter().map(Edit::key).collect();
        changed.retain(|edit| !counted.contains(&edit.key()));
        changed.append(&mut counts);
        changed.sort_unstable_by_key(Edit::key);
        catalog.rec.used += more_used;
        if !changed.is_empty() {
            cp.origin_generation(origin.generation);
            let rec = &mut catalog.rec;
            let root = tree::apply(cp, src, vol.id, &rec.root, changed.into_iter());
            cp.origin_generation(Generation(0));
            rec.root = root?;
        }
        match last {
            Some(key) if more => {
                self.set_split(vol.id, number, Some(after(key)), edits);
                Ok(Split::None)
            }
            _ => {
                self.set_split(vol.id, number, None, edits);
                catalog.rec.origin = None;
                Ok(Split::Done(origin))
            }
        }
    }

    fn give_up(&mut self, vol: &Volume, number: u64, why: &StoreError, edits: &mut Edits) -> Split {
        tracing::error!(volume = %vol.id, error = %why, "cannot split the clone from its origin");
        self.set_split(vol.id, number, None, edits);
        Split::Failed
    }
}

/// Computes the counts after dropping the references of these windows, and the number of blocks
/// that the volume still refers to elsewhere.
fn unshare(
    src: &impl NodeSource,
    root: &TreeRoot,
    shared: &RewritePlan,
) -> Result<(Vec<Edit>, u64), StoreError> {
    let mut references = SharedRuns::default();
    let mut elsewhere = 0;
    for (_, window) in &shared.windows {
        let slots = window.blocks.iter().flatten();
        for stored in slots.filter(|stored| stored.birth <= shared.until) {
            elsewhere += u64::from(references.release(src, root, *stored)?);
        }
    }
    let mut counts = Vec::new();
    references.flush(&mut counts);
    Ok((counts, elsewhere))
}

enum CopyError {
    Reading(StoreError),
    Writing(StoreError),
}

/// Copies the blocks of the windows that were found. Returns all edits, sorted.
fn copy(vol: &Volume, cp: &mut CpWriter, shared: RewritePlan) -> Result<Vec<Edit>, CopyError> {
    let RewritePlan {
        until,
        mut edits,
        mut windows,
        ..
    } = shared;
    let mut slots: Vec<&mut StoredBlock> = windows
        .iter_mut()
        .flat_map(|(_, window)| window.blocks.iter_mut().flatten())
        .filter(|stored| stored.birth <= until)
        .collect();
    let cache = vol.core.agg.cache();
    let mut taken: Vec<Run> = Vec::new();
    for piece in slots.chunks_mut(LONGEST_WRITE) {
        let ptrs: Vec<BlockPtr> = piece.iter().map(|stored| stored.ptr()).collect();
        let frames = match cache.fetch_blocking(&ptrs) {
            Ok(frames) => frames,
            Err(error) => {
                // Nothing will refer to the blocks copied so far.
                taken.into_iter().for_each(|run| cp.release(run));
                return Err(CopyError::Reading(error));
            }
        };
        let mut done = 0;
        while done < piece.len() {
            let want = (piece.len() - done) as u32;
            let (addr, count) = cp.alloc(want, None).map_err(CopyError::Writing)?;
            taken.push(Run {
                addr,
                count,
                birth: cp.generation(),
            });
            let end = piece.len().min(done + count as usize);
            let written = frames.get(done..end).unwrap_or_default().to_vec();
            for (i, stored) in (0u64..).zip(piece.get_mut(done..end).unwrap_or_default()) {
                stored.addr = BlockAddr(addr.0 + i);
                stored.birth = cp.generation();
            }
            cp.write(addr, written).map_err(CopyError::Writing)?;
            done = end;
        }
    }
    for (key, window) in windows {
        let mut value = Vec::new();
        window.encode(&mut value);
        edits.push(Edit::Put(key, value));
    }
    edits.sort_unstable_by_key(Edit::key);
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use weir_base::{Ino, Time};

    use crate::overlay::volume::Volume;
    use crate::testing::{create, machine, run, write};
    use crate::types::SetIds;

    /// A range cloned from an uncopied part to a copied one is still copied. When the walk is
    /// complete, nothing of the origin is referred to, and the origin can be deleted.
    #[test]
    fn ranges_cloned_meanwhile_are_copied_too() {
        let (machine, engine, vol) = machine(6);
        let make = |name: &[u8], byte: u8| -> Ino {
            let file = create(&vol, name);
            write(&vol, file, 0, &vec![byte; 100 * 4096]);
            file
        };
        let clone = |vol: &Volume, from: (Ino, u64), to: (Ino, u64), blocks: u64| {
            let [from, to] = [from, to].map(|(ino, block)| (ino, block * 4096));
            run(vol, |cx| {
                vol.clone_range(SetIds::Keep, cx, from, to, blocks * 4096)
            });
        };
        let (a, z) = (make(b"a", 1), make(b"z", 2));
        engine.cp_now().unwrap();
        // Shared within the origin as well.
        clone(&vol, (z, 0), (z, 100), 40);
        vol.snapshot_create("s", Time::EPOCH).unwrap();
        engine.cp_now().unwrap();
        let copy = engine.clone_volume("vol", "s", "copy").unwrap();
        engine.cp_now().unwrap();
        let used = copy.used();
        // The first step covers a part of it.
        engine.split_clone("copy").unwrap();
        engine.cp_now().unwrap();
        assert!(copy.splitting(), "it has reached the second file");
        // The target is in the uncopied part, the source in front of it.
        clone(&copy, (z, 100), (a, 0), 30);
        while copy.splitting() {
            engine.cp_now().unwrap();
        }
        // Every block shared between files exists as often, the origin's as well as those cloned
        // since.
        assert_eq!(copy.used(), used + 40 * 4096);
        engine.delete_volume("vol").unwrap();
        while engine.reclaiming() {
            engine.cp_now().unwrap();
        }
        let got = run(&copy, |cx| copy.read(cx, a, 0, 100 * 4096)).to_vec();
        assert!(got == [vec![2; 30 * 4096], vec![1; 70 * 4096]].concat());
        engine.shutdown().unwrap();
        drop((vol, copy, engine));
        assert_eq!(machine.check().faults, []);
    }
}
