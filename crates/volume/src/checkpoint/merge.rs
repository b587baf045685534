//! Merging a volume's frozen overlays into its tree.
//!
//! Changed inodes are merged in the order of their numbers. Changed pages get device blocks (long
//! runs, in file order) and are queued for writing. The windows of the file's map that contain them
//! are replaced, and the replaced blocks are freed. The inode's other records become edits of the
//! tree. The edits are applied in batches, so that memory is bounded however large the overlays
//! were.
//!
//! Deleting a file frees its blocks window by window. For a large file that takes long, so a
//! checkpoint deletes only a bounded number of windows. The inode disappears at once, an orphan
//! record remembers the rest, and the next checkpoints continue.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use weir_base::limits::MAX_SYMLINK;
use weir_base::limits::engine::{
    MERGE_EDITS as BATCH_BYTES, MERGE_REPORT as REPORT_BYTES, REAP_WINDOWS, SCAN_WINDOWS,
};
use weir_base::{Ino, invariant};
use weir_store::block::page_crc;
use weir_store::checkpoint::Run;
use weir_store::frame::Frame;
use weir_store::node::Key;
use weir_store::tree::{self, Edit, NodeSource, TreeRoot};
use weir_store::{CpWriter, StoreError};

use crate::format::reading::{after, get, scan};
use crate::format::record::{Dirent, InodeRec, SYMLINK_PIECE, StoredBlock, Window, kind};
use crate::format::shared_runs::{CountedBlock, SharedRuns};
use crate::format::usage::{self, Owners, Usages};
use crate::overlay::delta::Delta;
use crate::overlay::direct::LONGEST_WRITE;
use crate::overlay::transfer_state::{Batch, ChangedWindow};
use crate::overlay::volume::Volume;

mod count;
mod file;
mod place;
mod shares;

/// Result of merging a volume.
pub(crate) struct MergedTree {
    pub(crate) root: TreeRoot,
    /// Change of the number of data blocks.
    pub(crate) blocks: i64,
    /// Data blocks of each inode that has some, by position in the input.
    pub(crate) inode_blocks: Vec<(usize, u64)>,
    /// Inodes whose deletion is to be continued.
    pub(crate) orphans: Vec<Ino>,
    /// The highest change counter among the merged inodes.
    pub(crate) change_top: u64,
    /// The first window that was a target of a clone.
    pub(crate) first_target: Option<Key>,
    /// Changes of the usage of owners.
    pub(crate) usage: Usages,
    /// The part of them that unlinked inodes have made whose records were all in the tree.
    pub(crate) ended: Usages,
}

/// The merge of one volume. `S` reads the old tree, blocking.
pub(crate) struct Merge<'a, S> {
    vol: &'a Volume,
    cp: &'a mut CpWriter,
    src: &'a S,
    root: TreeRoot,
    /// The volume's old tree with its clones applied: all old records are read from it.
    old: TreeRoot,
    /// Reference counts, of the newest tree.
    shared: SharedRuns,
    /// Change of the number of blocks of inodes that were targets of clones.
    cloned: HashMap<Ino, i64>,
    first_target: Option<Key>,
    edits: Vec<Edit>,
    bytes: usize,
    budget: u64,
    blocks: i64,
    orphans: Vec<Ino>,
    change_top: u64,
    /// Data blocks of inodes merged before, if their overlays do not have the number.
    known: Option<&'a mut HashMap<Ino, u64>>,
    /// True if the old tree was empty.
    fresh: bool,
    /// Changes of the usage of owners, and the part of them of ended inodes.
    usage: Usages,
    ended: Usages,
    /// Number of written blocks at the last pause for the log.
    gave_way: u64,
    /// Bytes of merged overlays, and the part of them that has been reported.
    progress: u64,
    reported: u64,
}

impl<'a, S: NodeSource> Merge<'a, S> {
    /// Creates a merge. `known`: the overlays were frozen before earlier ones of the same inodes
    /// were merged, so their numbers of data blocks are outdated. The current numbers are in
    /// `known`, or in the tree.
    pub(crate) fn new(
        vol: &'a Volume,
        cp: &'a mut CpWriter,
        src: &'a S,
        old: TreeRoot,
        known: Option<&'a mut HashMap<Ino, u64>>,
    ) -> Self {
        Merge {
            known,
            vol,
            cp,
            src,
            root: old,
            old,
            shared: SharedRuns::default(),
            cloned: HashMap::new(),
            first_target: None,
            edits: Vec::new(),
            bytes: 0,
            budget: REAP_WINDOWS,
            blocks: 0,
            orphans: Vec::new(),
            change_top: 0,
            fresh: old == TreeRoot::EMPTY,
            usage: Usages::new(),
            ended: Usages::new(),
            gave_way: 0,
            progress: 0,
            reported: 0,
        }
    }

    /// Counts bytes of merged overlays, for operations under back-pressure.
    fn progressed(&mut self, bytes: u64) {
        self.progress += bytes;
        let news = self.progress - self.reported;
        if news >= REPORT_BYTES {
            self.reported = self.progress;
            self.vol.core.schedule.progressed(news);
        }
    }

    /// Merges `deltas`, sorted by inode number, and continues the deletion of `orphans`.
    pub(crate) fn run(
        mut self,
        orphans: &[Ino],
        deltas: &[(Ino, Arc<Delta>)],
    ) -> Result<MergedTree, StoreError> {
        self.clones(deltas)?;
        for ino in orphans {
            // An inode that was open until now still has all its records.
            self.count_ended(*ino)?;
            self.del(Key::new(ino.0, kind::INODE, 0));
            if self.reap(*ino)? {
                self.del(Key::new(0, kind::ORPHAN, ino.0));
            } else {
                self.orphans.push(*ino);
            }
        }
        let mut inode_blocks = Vec::new();
        for (i, (ino, delta)) in deltas.iter().enumerate() {
            let before = self.progress;
            if let Some(blocks) = self.inode(*ino, delta)? {
                inode_blocks.push((i, blocks));
            }
            // Pages have been counted as they were written.
            let counted = self.progress - before;
            // Saturates: recovery has read pages that it was not charged for.
            self.progressed(delta.charge.bytes().saturating_sub(counted));
            self.apply_if_full()?;
        }
        self.count()?;
        self.apply()?;
        Ok(self.merged(inode_blocks))
    }

    fn merged(self, inode_blocks: Vec<(usize, u64)>) -> MergedTree {
        MergedTree {
            root: self.root,
            blocks: self.blocks,
            inode_blocks,
            orphans: self.orphans,
            change_top: self.change_top,
            first_target: self.first_target,
            usage: self.usage,
            ended: self.ended,
        }
    }

    /// Sets reference counts that a check has found to be wrong, and changes usage after a count of
    /// all inodes.
    pub(crate) fn correct(
        mut self,
        counts: &[(CountedBlock, u64)],
        miscounts: Option<Usages>,
    ) -> Result<MergedTree, StoreError> {
        for (block, references) in counts {
            self.shared
                .correct(self.src, &self.root, *block, *references)?;
        }
        if let Some(changes) = miscounts {
            self.usage = changes;
            self.put(usage::COUNTED, vec![usage::VERSION]);
        }
        self.run(&[], &[])
    }

    /// Merges a received batch: records as they are, pages into their windows.
    pub(crate) fn receive(mut self, batch: &mut Batch) -> Result<MergedTree, StoreError> {
        let pages = std::mem::take(&mut batch.pages);
        let mut placed = Vec::with_capacity(pages.len());
        let mut run: Vec<(u64, Frame, u32)> = Vec::with_capacity(LONGEST_WRITE);
        for (place, frame) in pages {
            let crc = page_crc(&frame);
            run.push((u64::from(place), frame, crc));
            if run.len() == LONGEST_WRITE {
                self.write_run(&mut run, &mut placed)?;
            }
        }
        self.write_run(&mut run, &mut placed)?;
        let mut records = std::mem::take(&mut batch.records).into_iter().peekable();
        let mut placed = placed.into_iter();
        for changed in &batch.windows {
            while let Some(edit) = records.next_if(|edit| edit.key() < changed.key) {
                self.record(edit)?;
            }
            let new = placed.by_ref().take(changed.pages);
            self.window(changed, new)?;
        }
        for edit in records {
            self.record(edit)?;
        }
        self.count()?;
        self.apply()?;
        self.progressed(batch.charge.heap);
        Ok(self.merged(Vec::new()))
    }

    fn record(&mut self, edit: Edit) -> Result<(), StoreError> {
        self.count_record(&edit)?;
        self.bytes += match &edit {
            Edit::Put(key, value) => {
                if key.kind == kind::INODE {
                    let rec = InodeRec::decode(value).ok_or_else(|| damaged(*key))?;
                    self.change_top = self.change_top.max(rec.change);
                }
                value.len() + 64
            }
            Edit::Del(_) => 64,
        };
        self.edits.push(edit);
        self.apply_if_full()
    }

    /// Changes the blocks of one window.
    fn window(
        &mut self,
        changed: &ChangedWindow,
        new: impl Iterator<Item = (u64, StoredBlock)>,
    ) -> Result<(), StoreError> {
        let key = changed.key;
        let old = match get(self.src, &self.old, &key)? {
            Some(value) => Some(Window::decode(&value).ok_or_else(|| damaged(key))?),
            None => None,
        };
        let had = old.is_some();
        let mut window = old.unwrap_or(Window::EMPTY);
        let before = window.stored() as i64;
        let mut gone: Vec<StoredBlock> = Vec::new();
        for (place, slot) in window.blocks.iter_mut().enumerate() {
            if changed.holes >> place & 1 == 1 {
                gone.extend(slot.take());
            }
        }
        for (place, stored) in new {
            match window.blocks.get_mut(place as usize) {
                Some(slot) => gone.extend(slot.replace(stored)),
                None => {
                    invariant!(self.vol.core.agg.guard() => false, "block {place} of the window at {key}");
                }
            }
        }
        self.blocks += window.stored() as i64 - before;
        self.free_blocks(gone.into_iter())?;
        self.put_window(key, &window, had);
        self.apply_if_full()
    }

    /// Edits a window's record; `had`: it exists already.
    fn put_window(&mut self, key: Key, window: &Window, had: bool) {
        if !window.is_empty() {
            let mut value = Vec::with_capacity(64);
            window.encode(&mut value);
            self.put(key, value);
        } else if had {
            self.del(key);
        }
    }

    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.bytes += value.len() + 64;
        self.edits.push(Edit::Put(key, value));
    }

    fn del(&mut self, key: Key) {
        self.bytes += 64;
        self.edits.push(Edit::Del(key));
    }

    /// Applies the edits if they have used up their memory.
    fn apply_if_full(&mut self) -> Result<(), StoreError> {
        match self.bytes > BATCH_BYTES {
            true => self.apply(),
            false => Ok(()),
        }
    }

    fn apply(&mut self) -> Result<(), StoreError> {
        let mut edits = std::mem::take(&mut self.edits);
        self.shared.flush(&mut edits);
        self.bytes = 0;
        if edits.is_empty() {
            return Ok(());
        }
        edits.sort_unstable_by_key(Edit::key);
        self.root = tree::apply(
            self.cp,
            self.src,
            self.vol.id,
            &self.root,
            edits.into_iter(),
        )?;
        Ok(())
    }

    /// Merges one inode. Returns its number of data blocks if it is a file.
    fn inode(&mut self, ino: Ino, delta: &Delta) -> Result<Option<u64>, StoreError> {
        for (addr, count) in delta.data.iter().flat_map(|data| data.unused()) {
            self.cp.unused(*addr, *count);
        }
        if let Some(rec) = &delta.rec {
            self.change_top = self.change_top.max(rec.change);
        }
        let stored = self.count_stored(ino, delta)?;
        if delta.dead {
            if !delta.new {
                self.del(Key::new(ino.0, kind::INODE, 0));
                if !self.reap(ino)? {
                    self.put(Key::new(0, kind::ORPHAN, ino.0), Vec::new());
                    self.orphans.push(ino);
                } else if delta.unlinked {
                    self.del(Key::new(0, kind::ORPHAN, ino.0));
                }
            }
            return Ok(None);
        }
        let Some(mut rec) = delta.rec else {
            return Err(StoreError::Format("overlay without attributes".into()));
        };
        if self.known.is_some() {
            rec.blocks = stored.unwrap_or(0);
        }
        let mut result = None;
        if let Some(data) = &delta.data {
            let change = self.file(ino, delta.new, data)?;
            self.blocks += change;
            let change = change + self.cloned.get(&ino).copied().unwrap_or(0);
            let guard = self.vol.core.agg.guard();
            rec.blocks = guard.changed(rec.blocks, change, "data blocks of an inode");
            result = Some(rec.blocks);
        }
        if let Some(known) = &mut self.known {
            known.insert(ino, rec.blocks);
        }
        self.count_inode(Owners::from_record(&rec), usage::of_inode(rec.blocks));
        let mut value = Vec::with_capacity(InodeRec::LEN);
        rec.encode(&mut value);
        self.put(Key::new(ino.0, kind::INODE, 0), value);
        if rec.nlink == 0 {
            self.put(Key::new(0, kind::ORPHAN, ino.0), Vec::new());
        }
        if let Some(target) = &delta.symlink {
            for (piece, bytes) in (0..).zip(target.chunks(SYMLINK_PIECE)) {
                self.put(Key::new(ino.0, kind::SYMLINK, piece), bytes.to_vec());
            }
            // The link in the tree may be longer.
            let pieces = target.len().div_ceil(SYMLINK_PIECE) as u64;
            let others = pieces..MAX_SYMLINK.div_ceil(SYMLINK_PIECE) as u64;
            for piece in others.filter(|_| !delta.new) {
                self.del(Key::new(ino.0, kind::SYMLINK, piece));
            }
        }
        for (cookie, name) in delta.names() {
            let key = Key::new(ino.0, kind::DIRENT, *cookie);
            match name.entry() {
                Some(entry) => {
                    let mut value = Vec::new();
                    Dirent::borrowed(entry).encode(&mut value);
                    self.put(key, value);
                }
                None if delta.new => {}
                None => self.del(key),
            }
        }
        for ((kind, sub), value) in delta.side_range((0, 0)..=(u8::MAX, u64::MAX)) {
            let key = Key::new(ino.0, *kind, *sub);
            match value {
                Some(value) => self.put(key, value.to_vec()),
                None if delta.new => {}
                None => self.del(key),
            }
        }
        Ok(result)
    }

    /// Stops counting an inode for its owners before its overlay is merged. Returns its number of
    /// data blocks.
    fn count_stored(&mut self, ino: Ino, delta: &Delta) -> Result<Option<u64>, StoreError> {
        let stored = self.stored(ino, delta)?;
        if let Some(blocks) = stored {
            self.count_inode(delta.was, usage::of_inode(blocks).negated());
        }
        Ok(stored)
    }

    /// Returns the inode's number of data blocks before its overlay is merged; `None` if the
    /// inode does not exist before.
    fn stored(&self, ino: Ino, delta: &Delta) -> Result<Option<u64>, StoreError> {
        if delta.new {
            return Ok(None);
        }
        let frozen = delta.rec.map(|rec| rec.blocks);
        match &self.known {
            None => Ok(frozen),
            Some(known) => match known.get(&ino) {
                Some(blocks) => Ok(Some(*blocks)),
                None => Ok(self.stored_inode(ino)?.map(|rec| rec.blocks)),
            },
        }
    }

    /// Returns the inode's record in the old tree.
    fn stored_inode(&self, ino: Ino) -> Result<Option<InodeRec>, StoreError> {
        let key = Key::new(ino.0, kind::INODE, 0);
        let value = get(self.src, &self.old, &key)?;
        let rec = value.map(|value| InodeRec::decode(&value).ok_or_else(|| damaged(key)));
        rec.transpose()
    }

    /// Deletes the records of a removed inode, as many as the budget allows. Returns true if none
    /// is left.
    fn reap(&mut self, ino: Ino) -> Result<bool, StoreError> {
        let mut from = Key::new(ino.0, kind::INODE + 1, 0);
        let to = Key::new(ino.0, u8::MAX, u64::MAX);
        loop {
            let mut keys: Vec<(Key, Option<Window>)> = Vec::new();
            let mut bad = None;
            scan(self.src, &self.old, from, to, &mut |key, value| {
                let window = match key.kind {
                    kind::EXTENT => match Window::decode(value) {
                        Some(w) => Some(w),
                        None => {
                            bad = Some(key);
                            return ControlFlow::Break(());
                        }
                    },
                    _ => None,
                };
                keys.push((key, window));
                if keys.len() < SCAN_WINDOWS {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            if let Some(key) = bad {
                return Err(damaged(key));
            }
            let more = keys.len() == SCAN_WINDOWS;
            for (key, window) in &keys {
                if let Some(window) = window {
                    self.blocks -= window.stored() as i64;
                    self.free_blocks(window.blocks.iter().flatten().copied())?;
                }
                self.del(*key);
            }
            // Saturates: records that are read together are deleted together.
            self.budget = self.budget.saturating_sub(keys.len() as u64);
            self.apply_if_full()?;
            match keys.last() {
                Some((last, _)) if more => from = after(*last),
                _ => return Ok(true),
            }
            if self.budget == 0 {
                return Ok(false);
            }
        }
    }

    /// Notes that a file no longer refers to these blocks.
    fn free_blocks(&mut self, blocks: impl Iterator<Item = StoredBlock>) -> Result<(), StoreError> {
        for b in blocks {
            if self.drop_reference(b)? {
                continue;
            }
            self.vol.core.agg.cache().forget(b.addr, 1);
            self.cp.freed_run(Run {
                addr: b.addr,
                count: 1,
                birth: b.birth,
            });
        }
        Ok(())
    }
}

fn damaged(_key: Key) -> StoreError {
    StoreError::Format("a record of the volume's tree is malformed".into())
}
