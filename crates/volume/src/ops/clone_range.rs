//! Clones a range of a file (NFSv4.2 CLONE, RFC 7862 section 15.13; SMB's
//! FSCTL_DUPLICATE_EXTENTS_TO_FILE, MS-FSCC section 2.3.8).
//!
//! The target refers to the source's own blocks, and a block is copied when one of the two files
//! overwrites it. Only the records that lead to the blocks are read or written. The next checkpoint
//! counts the references to a block ([`crate::format::shared_runs`]). Until then the target's
//! overlay records the range of the source ([`crate::overlay::shares`]), a few dozen bytes whatever
//! its length.
//!
//! **Data outside the committed tree.** Pages of the source that only its overlay has do not have a
//! block to share yet. A few of them are copied, by reference in memory and as pages in the log. If
//! there are more, the clone waits for the checkpoint that gives them blocks.
//!
//! **The log** has the clone as it was requested, range by range, and not as a list of blocks.
//! Replay finds the same blocks. A range logged this way was not in any overlay, so the tree had
//! its contents at that moment. The log is replayed over that tree or the one before it, which
//! differ elsewhere only. Later writes to the source are later in the log.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use weir_base::limits::MAX_FILE_SIZE;
use weir_base::limits::engine::CLONE_PIECES as MOST;
use weir_base::{BLOCK_SIZE, Ino, Time};
use weir_store::node::Key;
use weir_store::tree::{self, NodeSource};
use weir_store::{Frame, StoreError};

use crate::format::edit::Edits;
use crate::format::record::{InodeRec, WINDOW, Window, blocks_of, kind};
use crate::ops::admission::SMALL_OP;
use crate::ops::data::regular;
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::file_delta::{Page, Piece, RANGE_BYTES};
use crate::overlay::inode::{Inode, LockedInodes, State, malformed, stamped};
use crate::overlay::quota::QuotaReservation;
use crate::overlay::shares::{CommittedBlock, Share};
use crate::overlay::volume::{ChangePermit, Volume};
use crate::types::{Backpressure, Change, Done, FsError, SetIds, Stop};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The contents of a range, by its own blocks. Missing blocks are holes.
#[derive(Default)]
pub(crate) struct Contents {
    /// Pages of overlays; `None`: the page is on the device only.
    pub(crate) pages: Vec<(u64, Option<Frame>)>,
    /// Ranges of trees, by their first blocks.
    pub(crate) shares: Vec<(u64, Share)>,
}

/// A checked clone request, in blocks.
struct Plan {
    from: u64,
    to: u64,
    blocks: u64,
    rec: InodeRec,
}

impl Volume {
    /// Makes `len` bytes of the file `to.0` from `to.1` on share the blocks of the file `from.0`
    /// from `from.1` on. A length of 0 means everything up to the source's end. The target grows if
    /// necessary. The operation is atomic, its cost is that of the records that lead to the blocks,
    /// and it is durable once the log has reached `Done::lsn`.
    ///
    /// The target's old blocks are freed as by a write. Until the next checkpoint the clone counts
    /// as the space of the tree's nodes, afterwards as none: [`crate::StatFs`] and the capacity
    /// count a shared block once. An inode's `used` counts it for each file.
    ///
    /// # Errors
    /// `Invalid` for anything but regular files, for overlapping ranges of one file, for a range
    /// beyond the source's end, for offsets that are not multiples of 4096, and for such a length
    /// unless the range ends at the end of the source, and at or beyond that of the target;
    /// `IsDir`; `FileTooBig`; `NoSpace`, `ReadOnly`, `Stale`, `Io`.
    pub fn clone_range(
        &self,
        set_ids: SetIds,
        cx: &mut EngineContext,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<Done<Change>, Stop> {
        self.clone_range_if(set_ids, cx, from, to, len, || Ok(()))
    }

    /// Like [`Volume::clone_range`], if `allowed` permits it at the moment of the change: it is
    /// evaluated under the locks of both files. It must not wait for anything.
    ///
    /// # Errors
    /// As [`Volume::clone_range`], and the errors of `allowed`.
    pub fn clone_range_if<E: From<Stop> + From<FsError>>(
        &self,
        set_ids: SetIds,
        cx: &mut EngineContext,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        allowed: impl FnOnce() -> Result<(), E>,
    ) -> Result<Done<Change>, E> {
        self.writable()?;
        let source = self.inode(cx, from.0)?;
        let target = self.inode(cx, to.0)?;
        let nodes = self.nodes_for(&source, from.1, len);
        let mut reservation = self.reserve(cx, nodes + 2 * MOST as u64 + 8)?;
        self.core
            .schedule
            .admit(SMALL_OP + MOST as u64 * (BLOCK + 64))?;
        let pass = self.enter()?;
        let mut locked = LockedInodes::new(&[&source, &target]);
        let plan = plan(&locked, cx, set_ids, from, to, len)?;
        allowed()?;
        let st = locked.get(to.0)?;
        let before = self.attr_of(to.0, st);
        let Some(plan) = plan else {
            let after = before;
            return Ok(Done {
                value: Change { before, after },
                lsn: None,
            });
        };
        let range = plan.from..plan.from + plan.blocks;
        let contents = self.contents(from.0, locked.get(from.0)?, range, MOST);
        let pages: Option<Vec<(u64, Frame)>> = contents.as_ref().and_then(|contents| {
            let pages = contents.pages.iter();
            pages
                .map(|(block, frame)| Some((block - plan.from + plan.to, frame.clone()?)))
                .collect()
        });
        let (Some(contents), Some(pages)) = (contents, pages) else {
            return Err(Stop::Wait(Backpressure::Epoch(self.core.epoch_lock().epoch())).into());
        };

        let held = self.hold_clone(cx, &pass, (to.0, locked.get(to.0)?), &plan)?;
        let mut edits = Edits::new(self.id, 64 * contents.shares.len() + 2 * InodeRec::LEN);
        edits.punch(to.0, plan.to, plan.blocks);
        for (first, share) in &contents.shares {
            let target = first - plan.from + plan.to;
            edits.share(to.0, target, share.end - first, (from.0, *first));
        }
        edits.pages(to.0, pages.iter().map(|(block, page)| (*block, page)));
        edits.inode(to.0, &plan.rec);
        let lsn = self.core.log.append_call(cx, self.id, edits, to.0)?;
        let Some((inode, st)) = locked.get_mut(to.0) else {
            unreachable!("it was locked above");
        };
        let delta = self.touch(&pass, inode, st, &mut reservation);
        delta.file().punch(plan.to, plan.to + plan.blocks);
        let ranges = contents.shares.len() as u64 + 1;
        for (first, mut share) in contents.shares {
            share.end = share.end - plan.from + plan.to;
            delta.file().share(first - plan.from + plan.to, share);
        }
        let charge = reservation.take(nodes + 2);
        self.charge(delta, charge, ranges * RANGE_BYTES * 2);
        for (block, page) in pages {
            self.put_page(delta, block, Page::logged(page), &mut reservation);
        }
        held.loosely(true).finish(st, plan.rec);
        let after = self.attr_of(to.0, st);
        Ok(Done {
            value: Change { before, after },
            lsn: Some(lsn),
        })
    }

    /// Takes room for the blocks that the target of a clone gets.
    fn hold_clone(
        &self,
        cx: &mut EngineContext,
        pass: &ChangePermit<'_>,
        target: (Ino, &State),
        plan: &Plan,
    ) -> Result<QuotaReservation<'_>, Stop> {
        let changed = plan.to..plan.to + plan.blocks;
        self.hold_growth(cx, pass, target, changed, plan.rec.size)
    }

    /// Returns the number of nodes that a clone's checkpoint may write: those of the target's
    /// windows, and of the counts.
    fn nodes_for(&self, source: &Inode, from: u64, len: u64) -> u64 {
        let st = source.state.read();
        // Saturates: the numbers come from a client.
        let there = st.rec.size.saturating_sub(from);
        let len = match len {
            0 => there,
            len => len.min(there),
        };
        let blocks = blocks_of(len);
        let filled = blocks.min(st.used() / BLOCK);
        (blocks / WINDOW + 2).min(filled) / 2 + filled / 64
    }

    /// Returns the contents of a range of a file; `None` if they are more than `most` pages and
    /// ranges.
    fn contents(&self, ino: Ino, st: &State, range: Range<u64>, most: usize) -> Option<Contents> {
        let Some(live) = self.as_live() else {
            unreachable!("nothing is cloned into a view");
        };
        let segment = live.segments.current();
        let mut found = Contents::default();
        let mut open: SmallVec<[Range<u64>; 4]> = smallvec![range];
        for delta in st.layers() {
            let Some(data) = &delta.data else {
                if delta.new {
                    // Layers below a new file do not count.
                    open.clear();
                }
                continue;
            };
            let mut below: SmallVec<[Range<u64>; 4]> = SmallVec::new();
            for piece in open {
                let said = data.pieces(piece, &mut |piece| {
                    match piece {
                        Piece::Page(block, page) => found.pages.push((block, page.frame.clone())),
                        Piece::Shared(first, mut share) => {
                            if delta.segment != segment {
                                // That segment is merged first.
                                share.merged = (ino, first);
                            }
                            found.shares.push((first, share));
                        }
                        Piece::Below(range) => below.push(range),
                    }
                    match found.pages.len() + found.shares.len() + below.len() > most {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                });
                if said.is_break() {
                    return None;
                }
            }
            if delta.new {
                below.clear();
            }
            open = below;
        }
        // After the overlays: a root is published before the overlays that it contains are dropped.
        let root = self.root.load_full();
        let stored = st.used() / BLOCK;
        for Range { start, end } in open {
            let seen = CommittedBlock {
                root: Arc::clone(&root),
                ino,
                block: start,
            };
            let merged = (ino, start);
            let share = Share {
                end,
                seen,
                merged,
                stored,
            };
            found.shares.push((start, share));
        }
        found.pages.sort_unstable_by_key(|(block, _)| *block);
        found.shares.sort_unstable_by_key(|(first, _)| *first);
        Some(found)
    }

    /// Returns the contents of a range while the log is replayed, with all pages read, by the
    /// target's blocks. The source is not locked.
    pub(crate) fn replayed_contents(
        &self,
        source: &Inode,
        from: u64,
        blocks: u64,
        to: u64,
    ) -> Result<Contents, StoreError> {
        let st = source.state.read();
        let found = self.contents(source.ino, &st, from..from + blocks, usize::MAX);
        let mut found = found.unwrap_or_default();
        for (block, frame) in &mut found.pages {
            if frame.is_none() {
                let mut cx = EngineContext::new(Time::EPOCH);
                let read = |cx: &mut EngineContext| self.block(cx, source.ino, &st, *block);
                let base = self.drive_blocking(&mut cx, read);
                let base = base.map_err(|error| {
                    StoreError::Format(format!("cannot apply the log: {error}").into())
                })?;
                *frame = base.map(|base| base.frame);
            }
            *block = *block - from + to;
        }
        for (first, share) in &mut found.shares {
            *first = *first - from + to;
            share.end = share.end - from + to;
        }
        Ok(found)
    }

    /// Returns the contents of a block in the tree of `seen`; `None` for a hole.
    pub(crate) fn seen(
        &self,
        cx: &mut EngineContext,
        seen: &CommittedBlock,
    ) -> Result<Option<Frame>, Stop> {
        let start = Window::start_of(seen.block);
        let key = Key::new(seen.ino.0, kind::EXTENT, start);
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        let value = tree::get(&src, &seen.root.root, &key);
        let Some(value) = value.map_err(|stop| self.stop(cx, &seen.root, stop))? else {
            return Ok(None);
        };
        let stored = Window::find(&value, (seen.block - start) as usize)
            .map_err(|_| malformed(self.id, seen.ino, "extent"))?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        let frame = src.node(&stored.ptr());
        frame
            .map(Some)
            .map_err(|stop| self.stop(cx, &seen.root, stop))
    }
}

/// Checks the request; `None` if it changes nothing.
fn plan(
    locked: &LockedInodes<'_>,
    cx: &EngineContext,
    set_ids: SetIds,
    from: (Ino, u64),
    to: (Ino, u64),
    len: u64,
) -> Result<Option<Plan>, Stop> {
    let (source, target) = (locked.get(from.0)?, locked.get(to.0)?);
    regular(source)?;
    regular(target)?;
    let invalid = Stop::Fail(FsError::Invalid);
    let size = source.rec.size;
    let end = match len {
        0 => Some(size),
        len => from.1.checked_add(len),
    };
    let Some(end) = end.filter(|end| *end <= size && from.1 <= *end) else {
        return Err(invalid);
    };
    let len = end - from.1;
    let to_end = to.1.checked_add(len);
    let to_end = to_end
        .filter(|end| *end <= MAX_FILE_SIZE)
        .ok_or(FsError::FileTooBig)?;
    let aligned = from.1.is_multiple_of(BLOCK) && to.1.is_multiple_of(BLOCK);
    // Bytes after the source's end in its last block are zeroes, which must not replace data of the
    // target.
    let whole = len.is_multiple_of(BLOCK) || end == size && to_end >= target.rec.size;
    if !aligned || !whole {
        return Err(invalid);
    }
    let plan = Plan {
        from: from.1 / BLOCK,
        to: to.1 / BLOCK,
        blocks: blocks_of(len),
        rec: stamped(target.rec, cx.now, true),
    };
    let apart = plan.from.abs_diff(plan.to) >= plan.blocks;
    if from.0 == to.0 && !apart {
        return Err(invalid);
    }
    if len == 0 {
        return Ok(None);
    }
    let mut plan = plan;
    plan.rec.size = plan.rec.size.max(to_end);
    plan.rec.mode = set_ids.after_write(plan.rec.mode);
    Ok(Some(plan))
}
