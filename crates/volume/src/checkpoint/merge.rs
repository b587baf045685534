//! Merging a volume's frozen overlays into its tree.
//!
//! For each changed inode, in the order of their numbers: changed pages are given
//! device blocks (long runs, in file order) and queued for writing; the windows of
//! the file's map that they fall into are replaced; what they replace is freed;
//! and the inode's other records become edits of the tree. The edits are applied
//! in batches, so that memory is bounded however large the overlays were.
//!
//! Deleting a file frees its blocks window by window. For a large file that takes
//! long, so a checkpoint deletes a bounded number of windows only: the
//! inode disappears at once, an orphan record remembers the rest, and the next
//! checkpoints go on with it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use weir_base::limits::engine::{
    MERGE_EDITS as BATCH_BYTES, MERGE_REPORT as REPORT_BYTES, REAP_WINDOWS, SCAN_WINDOWS,
};
use weir_base::{BLOCK_SIZE, BlockAddr, Ino, invariant};
use weir_store::block::page_crc;
use weir_store::cp::Run;
use weir_store::frame::Frame;
use weir_store::node::Key;
use weir_store::tree::{self, Edit, NodeSource, TreeRoot};
use weir_store::{BlockPtr, CpWriter, StoreError};

use crate::format::reading::{after, get, scan};
use crate::format::record::{Dirent, InodeRec, SYMLINK_PIECE, Stored, WINDOW, Window, kind};
use crate::format::shared_runs::{Counted, SharedRuns};
use crate::overlay::delta::{Delta, FileDelta};
use crate::overlay::direct::LONGEST_WRITE;
use crate::overlay::receiving::{Batch, Changed};
use crate::overlay::volume::Volume;

mod shares;

/// Windows of a file, by their keys.
type Windows = Vec<(Key, Window)>;

/// What merging a volume gave.
pub(crate) struct Merged {
    pub(crate) root: TreeRoot,
    /// Change of the number of data blocks.
    pub(crate) blocks: i64,
    /// Data blocks of each inode that has some, by position in the input.
    pub(crate) inode_blocks: Vec<(usize, u64)>,
    /// Inodes whose deletion is to be continued.
    pub(crate) orphans: Vec<Ino>,
    /// The highest change counter met.
    pub(crate) change_top: u64,
    /// The first window into which something was cloned.
    pub(crate) first_target: Option<Key>,
}

/// One volume's merge. `S` reads the old tree, blocking.
pub(crate) struct Merge<'a, S> {
    vol: &'a Volume,
    cp: &'a mut CpWriter,
    src: &'a S,
    root: TreeRoot,
    /// The tree that the volume had, and what was cloned in it: all old records are read from it.
    old: TreeRoot,
    /// Counts of references, of the newest tree.
    shared: SharedRuns,
    /// Change of the number of blocks of inodes into which something was cloned.
    cloned: HashMap<Ino, i64>,
    first_target: Option<Key>,
    edits: Vec<Edit>,
    bytes: usize,
    budget: u64,
    blocks: i64,
    orphans: Vec<Ino>,
    change_top: u64,
    /// Data blocks of inodes merged before, if overlays do not know them themselves.
    known: Option<&'a mut HashMap<Ino, u64>>,
    /// Blocks that were written when it last gave way to the log.
    gave_way: u64,
    /// Bytes of overlays dealt with, and how many of them have been reported.
    progress: u64,
    reported: u64,
}

impl<'a, S: NodeSource> Merge<'a, S> {
    /// `known`: the overlays were frozen before earlier ones of the same inodes were
    /// merged, so the number of data blocks that they have is outdated; it is here, or
    /// in the tree.
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
            gave_way: 0,
            progress: 0,
            reported: 0,
        }
    }

    /// Counts bytes of overlays that have been merged, for operations that wait to go on.
    fn progressed(&mut self, bytes: u64) {
        self.progress += bytes;
        let news = self.progress - self.reported;
        if news >= REPORT_BYTES {
            self.reported = self.progress;
            self.vol.core.schedule.progressed(news);
        }
    }

    /// Merges `deltas`, sorted by inode number, and continues the deletion of
    /// `orphans`.
    pub(crate) fn run(
        mut self,
        orphans: &[Ino],
        deltas: &[(Ino, Arc<Delta>)],
    ) -> Result<Merged, StoreError> {
        self.clones(deltas)?;
        for ino in orphans {
            // One that was open until now has everything still.
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
            if self.bytes > BATCH_BYTES {
                self.apply()?;
            }
        }
        self.apply()?;
        Ok(Merged {
            root: self.root,
            blocks: self.blocks,
            inode_blocks,
            orphans: self.orphans,
            change_top: self.change_top,
            first_target: self.first_target,
        })
    }

    /// Sets counts of references that a check has found to be wrong.
    pub(crate) fn correct(mut self, counts: &[(Counted, u64)]) -> Result<Merged, StoreError> {
        for (block, references) in counts {
            self.shared
                .correct(self.src, &self.root, *block, *references)?;
        }
        self.run(&[], &[])
    }

    /// Merges what was received: records as they are, pages into their windows.
    pub(crate) fn receive(mut self, batch: &mut Batch) -> Result<Merged, StoreError> {
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
        self.apply()?;
        self.progressed(batch.charge.heap);
        Ok(Merged {
            root: self.root,
            blocks: self.blocks,
            inode_blocks: Vec::new(),
            orphans: Vec::new(),
            change_top: self.change_top,
            first_target: None,
        })
    }

    fn record(&mut self, edit: Edit) -> Result<(), StoreError> {
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
        match self.bytes > BATCH_BYTES {
            true => self.apply(),
            false => Ok(()),
        }
    }

    /// Changes blocks of one window.
    fn window(
        &mut self,
        changed: &Changed,
        new: impl Iterator<Item = (u64, Stored)>,
    ) -> Result<(), StoreError> {
        let key = changed.key;
        let old = match get(self.src, &self.old, &key)? {
            Some(value) => Some(Window::decode(&value).ok_or_else(|| damaged(key))?),
            None => None,
        };
        let had = old.is_some();
        let mut window = old.unwrap_or(Window::EMPTY);
        let before = window.stored() as i64;
        let mut gone: Vec<Stored> = Vec::new();
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
        if !window.is_empty() {
            let mut value = Vec::with_capacity(64);
            window.encode(&mut value);
            return self.record(Edit::Put(key, value));
        }
        match had {
            true => self.record(Edit::Del(key)),
            false => Ok(()),
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

    /// Merges one inode; returns its number of data blocks if it is a file.
    fn inode(&mut self, ino: Ino, delta: &Delta) -> Result<Option<u64>, StoreError> {
        for (addr, count) in delta.data.iter().flat_map(|data| data.unused()) {
            self.cp.unused(*addr, *count);
        }
        if let Some(rec) = &delta.rec {
            self.change_top = self.change_top.max(rec.change);
        }
        if delta.dead {
            if !delta.fresh {
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
        if let Some(known) = &self.known {
            rec.blocks = match known.get(&ino) {
                Some(blocks) => *blocks,
                None if delta.fresh => 0,
                None => self.stored_blocks(ino)?,
            };
        }
        let mut result = None;
        if let Some(data) = &delta.data {
            let change = self.file(ino, delta.fresh, data)?;
            self.blocks += change;
            let change = change + self.cloned.get(&ino).copied().unwrap_or(0);
            let guard = self.vol.core.agg.guard();
            rec.blocks = guard.changed(rec.blocks, change, "data blocks of an inode");
            result = Some(rec.blocks);
        }
        if let Some(known) = &mut self.known {
            known.insert(ino, rec.blocks);
        }
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
        }
        for (cookie, name) in delta.names() {
            let key = Key::new(ino.0, kind::DIRENT, *cookie);
            match name.entry() {
                Some(entry) => {
                    let mut value = Vec::new();
                    Dirent::borrowed(entry).encode(&mut value);
                    self.put(key, value);
                }
                None if delta.fresh => {}
                None => self.del(key),
            }
        }
        for ((kind, sub), value) in delta.side_range((0, 0)..=(u8::MAX, u64::MAX)) {
            let key = Key::new(ino.0, *kind, *sub);
            match value {
                Some(value) => self.put(key, value.to_vec()),
                None if delta.fresh => {}
                None => self.del(key),
            }
        }
        Ok(result)
    }

    fn stored_blocks(&self, ino: Ino) -> Result<u64, StoreError> {
        let key = Key::new(ino.0, kind::INODE, 0);
        match get(self.src, &self.old, &key)? {
            Some(value) => {
                let rec = InodeRec::decode(&value).ok_or_else(|| damaged(key))?;
                Ok(rec.blocks)
            }
            None => Ok(0),
        }
    }

    /// Deletes the records of a removed inode, as many as the budget allows; returns whether that was all.
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
            // Saturates: what is read together is done together.
            self.budget = self.budget.saturating_sub(keys.len() as u64);
            if self.bytes > BATCH_BYTES {
                self.apply()?;
            }
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
    fn free_blocks(&mut self, blocks: impl Iterator<Item = Stored>) -> Result<(), StoreError> {
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

    /// Merges a file's data; returns the change of its number of blocks.
    fn file(&mut self, ino: Ino, fresh: bool, data: &FileDelta) -> Result<i64, StoreError> {
        let cut = if fresh { Some(0) } else { data.cut_at() };
        let mut change = 0i64;
        if let Some(cut) = cut.filter(|_| !fresh) {
            change -= self.cut_windows(ino, cut, data)?;
        }
        if !fresh {
            for (first, end) in data.punched() {
                change -= self.punch_windows(ino, (first, end), data)?;
            }
        }
        let placed = self.place(data)?;
        // The window that a cut falls into changes even if no page falls into it.
        let split = cut
            .filter(|c| !fresh && c % WINDOW != 0)
            .map(Window::start_of);
        let mut placed = placed.into_iter().peekable();
        let mut split = split;
        loop {
            let start = match (placed.peek(), split) {
                (None, None) => break,
                (Some((b, _)), None) => Window::start_of(*b),
                (None, Some(s)) => s,
                (Some((b, _)), Some(s)) => s.min(Window::start_of(*b)),
            };
            if split == Some(start) {
                split = None;
            }
            let key = Key::new(ino.0, kind::EXTENT, start);
            let cloned = data.shares().within(start..start + WINDOW).next();
            let old = match cut {
                Some(cut) if start >= cut && cloned.is_none() => None,
                _ => match get(self.src, &self.old, &key)? {
                    Some(value) => Some(Window::decode(&value).ok_or_else(|| damaged(key))?),
                    None => None,
                },
            };
            let before = old.as_ref().map_or(0, Window::stored) as i64;
            let had = old.is_some();
            let mut window = old.unwrap_or(Window::EMPTY);
            let mut gone: Vec<Stored> = Vec::new();
            for (block, slot) in (start..).zip(&mut window.blocks) {
                if data.hides(block) {
                    gone.extend(slot.take());
                }
            }
            while let Some((block, stored)) = placed.next_if(|(b, _)| Window::start_of(*b) == start)
            {
                match window.blocks.get_mut((block - start) as usize) {
                    Some(slot) => gone.extend(slot.replace(stored)),
                    None => {
                        invariant!(self.vol.core.agg.guard() => false, "block {block} of inode {ino} in the window at {start}");
                    }
                }
            }
            self.free_blocks(gone.into_iter())?;
            change += window.stored() as i64 - before;
            if window.is_empty() {
                if had {
                    self.del(key);
                }
            } else {
                let mut value = Vec::new();
                window.encode(&mut value);
                self.put(key, value);
            }
            if self.bytes > BATCH_BYTES {
                self.apply()?;
            }
        }
        Ok(change)
    }

    /// Takes a range out of the windows that are not changed besides; returns how many blocks they had there.
    fn punch_windows(
        &mut self,
        ino: Ino,
        (first, end): (u64, u64),
        data: &FileDelta,
    ) -> Result<i64, StoreError> {
        let mut from = Key::new(ino.0, kind::EXTENT, Window::start_of(first));
        let to = Key::new(ino.0, kind::EXTENT, Window::start_of(end - 1));
        // The window of a cut is changed with it.
        let cut = data.cut_at().filter(|cut| cut % WINDOW != 0);
        let mut freed = 0;
        loop {
            let (found, next) = self.windows(from, to)?;
            for (key, mut window) in found {
                // Saturates: the last window ends with the numbers.
                let range = key.sub..=key.sub.saturating_add(WINDOW - 1);
                let with_pages = data.pages().range(range.clone()).next().is_some();
                if with_pages || cut.is_some_and(|cut| range.contains(&cut)) {
                    continue;
                }
                // Another range may have been taken out of it already: all that are in it go at once, with the first.
                let own = data.punched().find(|(_, end)| *end > key.sub);
                if own != Some((first, end)) {
                    continue;
                }
                let mut gone: Vec<Stored> = Vec::new();
                for (block, slot) in (key.sub..).zip(&mut window.blocks) {
                    if data.hides(block) {
                        gone.extend(slot.take());
                    }
                }
                freed += gone.len() as i64;
                self.put_rest(key, window, gone)?;
            }
            if self.bytes > BATCH_BYTES {
                self.apply()?;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(freed),
            }
        }
    }

    /// Frees blocks that were taken out of a window, and puts what is left of it.
    fn put_rest(&mut self, key: Key, window: Window, gone: Vec<Stored>) -> Result<(), StoreError> {
        if gone.is_empty() {
            // All of it was cloned there since.
            return Ok(());
        }
        self.free_blocks(gone.into_iter())?;
        if window.is_empty() {
            self.del(key);
        } else {
            let mut value = Vec::new();
            window.encode(&mut value);
            self.put(key, value);
        }
        Ok(())
    }

    /// Some of the old tree's windows between two keys, in order, and the key to go on from if there may be more.
    fn windows(&self, from: Key, to: Key) -> Result<(Windows, Option<Key>), StoreError> {
        let mut found: Vec<(Key, Option<Window>)> = Vec::new();
        scan(self.src, &self.old, from, to, &mut |key, value| {
            found.push((key, Window::decode(value)));
            if found.len() < SCAN_WINDOWS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let last = found.last().filter(|_| found.len() == SCAN_WINDOWS);
        let next = last.map(|(key, _)| after(*key));
        let whole = |(key, window): (Key, Option<Window>)| Some((key, window?));
        let found: Option<Windows> = found.into_iter().map(whole).collect();
        Ok((found.ok_or_else(|| damaged(from))?, next))
    }

    /// Frees the windows wholly behind a cut; returns how many blocks they had.
    fn cut_windows(&mut self, ino: Ino, cut: u64, data: &FileDelta) -> Result<i64, StoreError> {
        let first = cut.next_multiple_of(WINDOW);
        let mut from = Key::new(ino.0, kind::EXTENT, first);
        let to = Key::new(ino.0, kind::EXTENT, u64::MAX);
        let mut freed = 0;
        loop {
            let (found, next) = self.windows(from, to)?;
            for (key, mut window) in found {
                // Saturates: a number from the disk.
                let behind = key.sub.saturating_add(WINDOW);
                let with_pages = data.pages().range(key.sub..=behind - 1).next().is_some();
                if data.shares().within(key.sub..behind).next().is_some() {
                    // What was cloned there since stays.
                    if !with_pages {
                        let slots = (key.sub..).zip(&mut window.blocks);
                        let hidden = slots.filter(|(block, _)| data.hides(*block));
                        let gone: Vec<Stored> = hidden.filter_map(|(_, s)| s.take()).collect();
                        freed += gone.len() as i64;
                        self.put_rest(key, window, gone)?;
                    }
                    continue;
                }
                freed += window.stored() as i64;
                self.free_blocks(window.blocks.iter().flatten().copied())?;
                // A window that has pages again is put, which is its one edit.
                if !with_pages {
                    self.del(key);
                }
            }
            if self.bytes > BATCH_BYTES {
                self.apply()?;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(freed),
            }
        }
    }

    /// Gives every page that has none its place on the device and queues its writing.
    fn place(&mut self, data: &FileDelta) -> Result<Vec<(u64, Stored)>, StoreError> {
        let mut placed = Vec::with_capacity(data.pages().len());
        let mut run: Vec<(u64, Frame, u32)> = Vec::new();
        let mut adopted = (BlockAddr(0), 0);
        for (block, page) in data.pages().iter() {
            if let Some(place) = &page.placed {
                self.write_run(&mut run, &mut placed)?;
                let (first, count) = adopted;
                if first.0 + u64::from(count) != place.addr.0 {
                    self.adopt(adopted)?;
                    adopted = (place.addr, 0);
                }
                adopted.1 += 1;
                let stored = Stored {
                    addr: place.addr,
                    birth: self.cp.generation(),
                    crc: place.crc,
                };
                if let Some(frame) = &page.frame {
                    self.keep(stored, frame);
                }
                placed.push((block, stored));
                continue;
            }
            let Some(frame) = &page.frame else {
                unreachable!("a page is somewhere");
            };
            run.push((block, frame.clone(), page_crc(frame)));
            if run.len() == LONGEST_WRITE {
                self.write_run(&mut run, &mut placed)?;
            }
        }
        self.adopt(adopted)?;
        self.write_run(&mut run, &mut placed)?;
        Ok(placed)
    }

    /// Takes blocks into the checkpoint that have been written already.
    fn adopt(&mut self, (addr, count): (BlockAddr, u32)) -> Result<(), StoreError> {
        if count > 0 {
            self.cp.commit(addr, count)?;
            self.progressed(u64::from(count) * BLOCK_SIZE as u64);
        }
        Ok(())
    }

    fn write_run(
        &mut self,
        run: &mut Vec<(u64, Frame, u32)>,
        placed: &mut Vec<(u64, Stored)>,
    ) -> Result<(), StoreError> {
        let birth = self.cp.generation();
        let mut rest = std::mem::take(run);
        while !rest.is_empty() {
            let (addr, count) = self.cp.alloc(rest.len() as u32, None)?;
            let tail = rest.split_off((count as usize).min(rest.len()));
            for (i, (block, frame, crc)) in (0u64..).zip(&rest) {
                let stored = Stored {
                    addr: BlockAddr(addr.0 + i),
                    birth,
                    crc: *crc,
                };
                self.keep(stored, frame);
                placed.push((*block, stored));
            }
            self.progressed((rest.len() * BLOCK_SIZE) as u64);
            self.give_way();
            self.cp
                .write(addr, rest.into_iter().map(|(_, frame, _)| frame).collect())?;
            rest = tail;
        }
        Ok(())
    }

    /// Leaves the log its share of the device, once for each longest write.
    fn give_way(&mut self) {
        let written = self.cp.written();
        if written - self.gave_way >= LONGEST_WRITE as u64 {
            self.gave_way = written;
            let bytes = written * BLOCK_SIZE as u64;
            self.vol.core.schedule.give_way(bytes);
        }
    }

    /// Leaves a page that is being written in the cache, where reads find it
    /// once the overlay is dropped.
    fn keep(&self, stored: Stored, frame: &Frame) {
        let ptr = BlockPtr {
            addr: stored.addr,
            birth: stored.birth,
            crc: stored.crc,
        };
        self.vol.core.agg.cache().insert(ptr, frame.clone());
    }
}

fn damaged(_key: Key) -> StoreError {
    StoreError::Format("a record of the volume's tree is malformed".into())
}
