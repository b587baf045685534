//! A file's data: the windows that contain its changed pages, cuts and punched ranges.

use std::ops::ControlFlow;

use weir_base::limits::engine::SCAN_WINDOWS;
use weir_base::{Ino, invariant};
use weir_store::StoreError;
use weir_store::node::Key;
use weir_store::tree::NodeSource;

use super::{Merge, damaged};
use crate::format::reading::{after, get, scan};
use crate::format::record::{StoredBlock, WINDOW, Window, kind};
use crate::overlay::file_delta::FileDelta;

/// Windows of a file, by their keys.
type Windows = Vec<(Key, Window)>;

impl<S: NodeSource> Merge<'_, S> {
    /// Merges a file's data. Returns the change of its number of blocks.
    pub(super) fn file(
        &mut self,
        ino: Ino,
        new: bool,
        data: &FileDelta,
    ) -> Result<i64, StoreError> {
        let cut = if new { Some(0) } else { data.cut_at() };
        let mut change = 0i64;
        if let Some(cut) = cut.filter(|_| !new) {
            change -= self.cut_windows(ino, cut, data)?;
        }
        if !new {
            for (first, end) in data.punched() {
                change -= self.punch_windows(ino, (first, end), data)?;
            }
        }
        let placed = self.place(data)?;
        // The window that contains the cut changes even without a page in it.
        let split = cut
            .filter(|c| !new && c % WINDOW != 0)
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
            let mut gone: Vec<StoredBlock> = Vec::new();
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
            self.put_window(key, &window, had);
            self.apply_if_full()?;
        }
        Ok(change)
    }

    /// Punches a range out of the windows that have no other change. Returns the number of blocks
    /// that they had there.
    fn punch_windows(
        &mut self,
        ino: Ino,
        (first, end): (u64, u64),
        data: &FileDelta,
    ) -> Result<i64, StoreError> {
        let mut from = Key::new(ino.0, kind::EXTENT, Window::start_of(first));
        let to = Key::new(ino.0, kind::EXTENT, Window::start_of(end - 1));
        // The window of a cut is changed with the cut.
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
                // Another range of the window may be punched already: all of its ranges are punched
                // together, with the first.
                let own = data.punched().find(|(_, end)| *end > key.sub);
                if own != Some((first, end)) {
                    continue;
                }
                let mut gone: Vec<StoredBlock> = Vec::new();
                for (block, slot) in (key.sub..).zip(&mut window.blocks) {
                    if data.hides(block) {
                        gone.extend(slot.take());
                    }
                }
                freed += gone.len() as i64;
                self.put_rest(key, window, gone)?;
            }
            self.apply_if_full()?;
            match next {
                Some(next) => from = next,
                None => return Ok(freed),
            }
        }
    }

    /// Frees blocks that were punched out of a window, and puts the rest of it.
    fn put_rest(
        &mut self,
        key: Key,
        window: Window,
        gone: Vec<StoredBlock>,
    ) -> Result<(), StoreError> {
        if gone.is_empty() {
            // The whole range was the target of a clone since.
            return Ok(());
        }
        self.free_blocks(gone.into_iter())?;
        self.put_window(key, &window, true);
        Ok(())
    }

    /// Returns some of the old tree's windows between two keys, in order, and the key to continue
    /// from if there may be more.
    pub(super) fn windows(&self, from: Key, to: Key) -> Result<(Windows, Option<Key>), StoreError> {
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

    /// Frees the windows entirely behind a cut. Returns the number of blocks that they had.
    fn cut_windows(&mut self, ino: Ino, cut: u64, data: &FileDelta) -> Result<i64, StoreError> {
        let first = cut.next_multiple_of(WINDOW);
        let mut from = Key::new(ino.0, kind::EXTENT, first);
        let to = Key::new(ino.0, kind::EXTENT, u64::MAX);
        let mut freed = 0;
        loop {
            let (found, next) = self.windows(from, to)?;
            for (key, mut window) in found {
                // Saturates: the number comes from the disk.
                let behind = key.sub.saturating_add(WINDOW);
                let with_pages = data.pages().range(key.sub..=behind - 1).next().is_some();
                if data.shares().within(key.sub..behind).next().is_some() {
                    // Blocks cloned there since stay.
                    if !with_pages {
                        let slots = (key.sub..).zip(&mut window.blocks);
                        let hidden = slots.filter(|(block, _)| data.hides(*block));
                        let gone: Vec<StoredBlock> = hidden.filter_map(|(_, s)| s.take()).collect();
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
            self.apply_if_full()?;
            match next {
                Some(next) => from = next,
                None => return Ok(freed),
            }
        }
    }
}
