//! Reads and writes file data.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use weir_base::limits::{MAX_FILE_SIZE, MAX_IO};
use weir_base::{BLOCK_SIZE, Ino, Time, invariant};
use weir_store::frame::{self, Reread};
use weir_store::node::Key;
use weir_store::tree;
use weir_store::{BlockPtr, Class, Frame, FrameMut};

use crate::format::edit::Edits;
use crate::format::record::{InodeRec, StoredBlock, WINDOW, Window, blocks_of, kind};
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::delta::{Charge, Delta};
use crate::overlay::direct::{self, Direct, DirectBlock, LARGE};
use crate::overlay::file_delta::{Layer, Page, Put};
use crate::overlay::inode::{Inode, State, alive, malformed, stamped};
use crate::overlay::readahead::Plan;
use crate::overlay::shares::CommittedBlock;
use crate::overlay::volume::Volume;
use crate::types::{
    Attr, Backpressure, Change, Done, FileKind, FsError, ReadOut, SetIds, Stability, Stop, WriteOut,
};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A block's contents, from an overlay or from the tree.
pub(crate) struct Base {
    pub(crate) frame: Frame,
    /// True if the log or the tree has the contents.
    pub(crate) durable: bool,
}

/// State of a block in the overlays.
enum Overlay {
    Page(Base),
    /// A page that is on the device only.
    Away(BlockPtr),
    /// A block cloned from this one.
    Shared(CommittedBlock),
    Hole,
    Tree,
}

fn overlay(st: &State, block: u64) -> Overlay {
    for delta in st.layers() {
        match Delta::block(delta, block) {
            Layer::Page(page) => {
                return match (&page.frame, &page.placed) {
                    (Some(frame), _) => Overlay::Page(Base {
                        frame: frame.clone(),
                        durable: page.is_logged(),
                    }),
                    (None, Some(placed)) => Overlay::Away(placed.ptr()),
                    (None, None) => unreachable!("a page is somewhere"),
                };
            }
            Layer::Shared(seen) => return Overlay::Shared(seen),
            Layer::Hole => return Overlay::Hole,
            Layer::Below => {}
        }
    }
    Overlay::Tree
}

fn has_data(delta: &Delta) -> bool {
    delta.data.is_some() || delta.new
}

/// Checks that the inode is a regular file. Directories get an error of their own because protocols
/// distinguish them.
pub(crate) fn regular(st: &State) -> Result<(), Stop> {
    alive(st)?;
    match st.rec.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(FsError::IsDir.into()),
        _ => Err(FsError::Invalid.into()),
    }
}

impl Volume {
    /// Allocates a frame for new data.
    pub(crate) fn frame(&self) -> Result<FrameMut, Stop> {
        self.core
            .agg
            .cache()
            .alloc(Class::Foreground)
            .ok_or(Stop::Wait(Backpressure::Memory))
    }

    /// Returns the number of blocks in a range of a file that are holes. What is shared with
    /// another file since the last checkpoint counts as holes.
    pub(crate) fn holes(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        range: Range<u64>,
    ) -> Result<u64, Stop> {
        let mut holes = 0;
        for block in range {
            let hole = match overlay(st, block) {
                Overlay::Page(_) | Overlay::Away(_) => false,
                Overlay::Shared(_) | Overlay::Hole => true,
                Overlay::Tree => self.stored(cx, ino, block)?.is_none(),
            };
            holes += u64::from(hole);
        }
        Ok(holes)
    }

    /// Returns the location of a file block in the committed tree.
    fn stored(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        block: u64,
    ) -> Result<Option<StoredBlock>, Stop> {
        let start = Window::start_of(block);
        let key = Key::new(ino.0, kind::EXTENT, start);
        match self.tree_get(cx, &key)? {
            None => Ok(None),
            Some(value) => Window::find(&value, (block - start) as usize)
                .map_err(|_| malformed(self.id, ino, "extent")),
        }
    }

    /// Returns the contents of one block; `None` for a hole.
    pub(crate) fn block(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        block: u64,
    ) -> Result<Option<Base>, Stop> {
        let ptr = match overlay(st, block) {
            Overlay::Page(base) => return Ok(Some(base)),
            Overlay::Hole => return Ok(None),
            Overlay::Away(ptr) => ptr,
            Overlay::Shared(seen) => {
                let frame = self.seen(cx, &seen)?;
                return Ok(frame.map(|frame| Base {
                    frame,
                    durable: true,
                }));
            }
            Overlay::Tree => match self.stored(cx, ino, block)? {
                Some(stored) => stored.ptr(),
                None => return Ok(None),
            },
        };
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        let root = self.root.load();
        let frame = tree::NodeSource::node(&src, &ptr).map_err(|s| self.stop(cx, &root, s))?;
        Ok(Some(Base {
            frame,
            durable: true,
        }))
    }

    /// Reads up to `len` bytes at `off`; fewer at the end of the file, or before an unreadable
    /// block. Holes are read as zeros.
    ///
    /// # Errors
    /// `IsDir`, `Invalid` if it is not a regular file, `Stale`, `Io` if the first block cannot be
    /// read.
    pub fn read(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        off: u64,
        len: usize,
    ) -> Result<ReadOut, Stop> {
        self.read_if(cx, ino, off, len, |_| Ok(()))
    }

    /// Like [`Volume::read`], if the file's attributes at that moment allow it. If not, nothing is
    /// fetched and no access recorded.
    ///
    /// # Errors
    /// As [`Volume::read`], and the errors of `allowed`.
    pub fn read_if<E: From<Stop>>(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        off: u64,
        len: usize,
        allowed: impl FnOnce(&Attr) -> Result<(), E>,
    ) -> Result<ReadOut, E> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        regular(&st)?;
        let attr = self.attr_of(ino, &st);
        allowed(&attr)?;
        // Saturates: the offset comes from a client.
        let end = off.saturating_add(len.min(MAX_IO) as u64).min(st.rec.size);
        if off >= end {
            return Ok(ReadOut {
                pages: SmallVec::new(),
                first: 0,
                len: 0,
                eof: off >= st.rec.size,
                attr,
            });
        }
        let blocks = off / BLOCK..(end - 1) / BLOCK + 1;
        let mut foreseen = 0;
        let pages = self.pages(cx, ino, &st, blocks.clone(), &mut foreseen);
        if foreseen > 0 || matches!(pages, Err(Stop::Fetch(_))) {
            self.foresee(cx, ino, blocks, blocks_of(st.rec.size));
        }
        let pages = pages?;
        // Nothing has to be fetched for this request.
        if let Some(plan) = cx.ahead.take() {
            plan.start(self.core.agg.cache());
        }
        let mut out = read_out(pages, off, end, attr);
        if access_is_news(&attr, cx.now) && self.as_live().is_some() {
            drop(st);
            inode.state.write().rec.atime = cx.now;
            out.attr.atime = cx.now;
        }
        Ok(out)
    }

    /// Notes a request for these blocks of a file of `size` blocks, once a request, and plans the
    /// read-ahead for the next ones.
    fn foresee(&self, cx: &mut EngineContext, ino: Ino, blocks: Range<u64>, size: u64) {
        if std::mem::replace(&mut cx.noted, true) {
            return;
        }
        let room = self.core.agg.cache().ahead_room();
        let file = self.table.file_id(ino);
        let next = self.core.read_ahead.request(file, blocks, size, room);
        cx.ahead = next.map(|blocks| Plan::new(self.root.load_full(), ino, blocks));
    }

    /// Returns the pages of these blocks; fewer if one in between cannot be read, at least one.
    /// Adds to `foreseen` the number of read-ahead pages requested for the first time.
    fn pages(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        blocks: Range<u64>,
        foreseen: &mut usize,
    ) -> Result<SmallVec<[Frame; 16]>, Stop> {
        let (first, last) = (blocks.start, blocks.end - 1);
        let mut pages = SmallVec::with_capacity((last - first + 1) as usize);
        let layered = st.layers().any(has_data);
        let mut missing: SmallVec<[BlockPtr; 4]> = SmallVec::new();
        let mut window: Option<(u64, Option<tree::Value>)> = None;
        // The deltas are consulted before the root is loaded: a root is published before the delta
        // that it contains is dropped.
        let root = self.root.load();
        let cache = self.core.agg.cache();
        let mut absent: SmallVec<[usize; 8]> = SmallVec::new();
        let mut block = first;
        'blocks: while block <= last {
            if layered {
                match overlay(st, block) {
                    Overlay::Page(base) => {
                        pages.push(base.frame);
                        block += 1;
                        continue;
                    }
                    Overlay::Away(ptr) => {
                        if let Some(frame) = cache.get(&ptr).or_else(|| cx.pinned(&ptr).cloned()) {
                            pages.push(frame);
                        } else if !cx.is_bad(&ptr) {
                            missing.push(ptr);
                            pages.push(Frame::zero());
                        } else if pages.is_empty() {
                            return Err(FsError::Io.into());
                        } else {
                            // The pages before it are the reply.
                            break;
                        }
                        block += 1;
                        continue;
                    }
                    Overlay::Shared(seen) => {
                        match self.seen(cx, &seen) {
                            Ok(frame) => pages.push(frame.unwrap_or_else(Frame::zero)),
                            Err(Stop::Fetch(ptrs)) => {
                                let new = ptrs.into_iter().filter(|ptr| !missing.contains(ptr));
                                let new: SmallVec<[BlockPtr; 4]> = new.collect();
                                missing.extend(new);
                                pages.push(Frame::zero());
                            }
                            Err(_) if !pages.is_empty() && missing.is_empty() => break,
                            Err(stop) => return Err(stop),
                        }
                        block += 1;
                        continue;
                    }
                    Overlay::Hole => {
                        pages.push(Frame::zero());
                        block += 1;
                        continue;
                    }
                    Overlay::Tree => {}
                }
            }
            let start = Window::start_of(block);
            if window.as_ref().is_none_or(|(at, _)| *at != start) {
                let key = Key::new(ino.0, kind::EXTENT, start);
                let src = Source { cache, cx };
                match tree::get(&src, &root.root, &key) {
                    Ok(value) => window = Some((start, value)),
                    Err(tree::Stop::Fetch(ptrs)) => {
                        missing.extend(ptrs);
                        break;
                    }
                    // A damaged node costs only the blocks that it covers.
                    Err(tree::Stop::Fail(_)) if !pages.is_empty() && missing.is_empty() => break,
                    Err(stop) => return Err(self.stop(cx, &root, stop)),
                }
            }
            let found = match &window {
                Some((_, Some(value))) => Window::span(value, (block - start) as usize)
                    .map_err(|_| malformed(self.id, ino, "extent"))?,
                _ => None,
            };
            let Some(span) = found else {
                pages.push(Frame::zero());
                block += 1;
                continue;
            };
            // Below an overlay each block has to be requested by itself.
            let count = match layered {
                true => 1,
                false => span.len().min(last.min(start + WINDOW - 1) - block + 1),
            };
            let base = pages.len();
            *foreseen += cache.get_run(span.addr, span.birth, count, |frame| {
                if frame.is_none() {
                    absent.push(pages.len());
                }
                pages.push(frame.unwrap_or_else(Frame::zero));
            });
            block += count;
            for at in absent.drain(..) {
                let Some(stored) = span.get(at - base) else {
                    invariant!(
                        false,
                        "page {at} was not in the cache, of {} from {base} on",
                        span.len()
                    );
                    continue;
                };
                let ptr = stored.ptr();
                if let Some(frame) = cx.pinned(&ptr) {
                    if let Some(page) = pages.get_mut(at) {
                        *page = frame.clone();
                    }
                } else if cx.is_bad(&ptr) {
                    if at == 0 {
                        return Err(FsError::Io.into());
                    }
                    pages.truncate(at);
                    break 'blocks;
                } else {
                    missing.push(ptr);
                }
            }
        }
        if missing.is_empty() {
            return Ok(pages);
        }
        cx.hold(&root);
        Err(Stop::Fetch(missing))
    }

    /// Like [`Volume::write_by`], for a privileged caller.
    ///
    /// # Errors
    /// As [`Volume::write_by`].
    pub fn write(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        off: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<Done<WriteOut>, Stop> {
        self.write_by(SetIds::Keep, cx, ino, off, data, stability)
    }

    /// Writes `data` at `off`, extending the file if necessary, and changes its mode as `set_ids`
    /// says. The requested stability is granted. Stable data goes to the log with the attributes,
    /// or large data in place before them, so `DataSync` becomes `FileSync`. Of data for the log,
    /// as much is written as one record holds, since a record is atomic. After [`Stop::Land`] the
    /// data has been taken: in the retry only its length counts.
    ///
    /// # Errors
    /// `IsDir`, `Invalid` (not a regular file; more than `MAX_IO` bytes), `FileTooBig`, `NoSpace`,
    /// `ReadOnly`, `Stale`, `Io`.
    pub fn write_by(
        &self,
        set_ids: SetIds,
        cx: &mut EngineContext,
        ino: Ino,
        off: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<Done<WriteOut>, Stop> {
        self.write_if(set_ids, cx, ino, off, data, stability, |_| Ok(()))
    }

    /// Like [`Volume::write_by`], if `allowed` permits it at the moment of the change. `allowed` is
    /// evaluated under the file's lock, so each read is either before or after it, for the file's
    /// size before the write. It must not wait for anything.
    ///
    /// # Errors
    /// As [`Volume::write_by`], and the errors of `allowed`.
    #[allow(clippy::too_many_arguments)] // Of a write, and when.
    pub fn write_if<E: From<Stop> + From<FsError>>(
        &self,
        set_ids: SetIds,
        cx: &mut EngineContext,
        ino: Ino,
        off: u64,
        data: &[u8],
        stability: Stability,
        allowed: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Done<WriteOut>, E> {
        self.writable()?;
        if data.len() > MAX_IO {
            return Err(FsError::Invalid.into());
        }
        off.checked_add(data.len() as u64)
            .filter(|end| *end <= MAX_FILE_SIZE)
            .ok_or(FsError::FileTooBig)?;
        let inode = self.inode(cx, ino)?;
        if data.is_empty() {
            let st = inode.state.read();
            regular(&st)?;
            allowed(st.rec.size)?;
            let attr = self.attr_of(ino, &st);
            let change = Change {
                before: attr,
                after: attr,
            };
            return Ok(written(0, change, stability, None));
        }
        if stability != Stability::Unstable
            && cx.direct.is_none()
            && self.send(cx, &inode, off, data)?
        {
            return Err(Stop::Land.into());
        }
        let mut direct = cx.direct.take();
        let data = match (stability, &direct) {
            (Stability::Unstable, _) | (_, Some(_)) => data,
            (_, None) => {
                let pages = self.core.agg.log().max_record().1 as u64;
                let most = (off / BLOCK + pages) * BLOCK - off;
                data.get(..most as usize).unwrap_or(data)
            }
        };
        let result = self.write_in(
            set_ids,
            cx,
            &inode,
            off,
            data,
            stability,
            &mut direct,
            allowed,
        );
        cx.direct = direct;
        result
    }

    /// Begins to write large stable data in place; returns `false` if it goes through the log.
    fn send(
        &self,
        cx: &mut EngineContext,
        inode: &Inode,
        off: u64,
        data: &[u8],
    ) -> Result<bool, Stop> {
        let blocks = direct::whole_blocks(off, off + data.len() as u64);
        // Saturates: there may be no whole block.
        let count = blocks.end.saturating_sub(blocks.start);
        if count < LARGE || !self.core.placements.sends() || self.protected() {
            return Ok(false);
        }
        regular(&inode.state.read())?;
        self.core.schedule.admit(0)?;
        let mut reservation = self.reserve(cx, count)?;
        let skip = (blocks.start * BLOCK - off) as usize;
        let whole = data.get(skip..skip + count as usize * BLOCK_SIZE);
        let frames = self.fill_frames(0, whole.unwrap_or_default(), Reread::Soon)?;
        let pages = (0..count)
            .zip(frames)
            .map(|(i, frame)| (blocks.start + i, frame.freeze()));
        cx.direct = Direct::begin(&self.core.placements, &mut reservation, pages.collect());
        Ok(match &mut cx.direct {
            Some(direct) => {
                let (head, rest) = data.split_at(skip);
                let (_, tail) = rest.split_at(count as usize * BLOCK_SIZE);
                direct.edges = (head.into(), tail.into());
                direct.advance();
                true
            }
            None => false,
        })
    }

    /// Writes. Data in `direct` is already in place, and is taken from it.
    #[allow(clippy::too_many_arguments)] // Of one caller, which has them all.
    fn write_in<E: From<Stop> + From<FsError>>(
        &self,
        set_ids: SetIds,
        cx: &mut EngineContext,
        inode: &Arc<Inode>,
        off: u64,
        data: &[u8],
        stability: Stability,
        direct: &mut Option<Direct>,
        allowed: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Done<WriteOut>, E> {
        let ino = inode.ino;
        let stable = stability != Stability::Unstable;
        let end = off + data.len() as u64;
        let (first, last) = (off / BLOCK, (end - 1) / BLOCK);
        let placed = match direct {
            Some(_) => direct::whole_blocks(off, end),
            None => last + 1..last + 1,
        };
        let (count, allocated) = (last - first + 1, placed.end - placed.start);
        let others = count - allocated;
        let nodes = count / WINDOW + 4;
        let mut reservation = self.reserve_beside(cx, others + nodes, allocated)?;
        self.core.schedule.admit(match stable {
            true => others * BLOCK + allocated * 4 + 512,
            false => 0,
        })?;
        let (head, tail) = match direct {
            Some(Direct { edges, .. }) => (&*edges.0, &*edges.1),
            None => (data, &[][..]),
        };
        // A partner is sent the data at once, stable or not.
        let reread = match stable || self.core.log.ships() {
            true => Reread::Soon,
            false => Reread::Late,
        };
        let mut frames = self.fill_frames(off, head, reread)?;
        frames.extend(self.fill_frames(0, tail, reread)?);

        let pass = self.enter()?;
        let mut st = inode.state.write();
        let st = &mut *st;
        regular(st)?;
        allowed(st.rec.size)?;
        self.merge_edges(cx, ino, st, off, end, &mut frames)?;
        let before = self.attr_of(ino, st);
        let mut rec = stamped(st.rec, cx.now, true);
        rec.size = rec.size.max(end);
        rec.mode = set_ids.after_write(rec.mode);
        let held = self.hold_growth(cx, &pass, (ino, st), first..last + 1, rec.size)?;
        let numbers = (first..placed.start).chain(placed.end..=last);
        let frames = frames.into_iter().map(FrameMut::freeze);
        let pages: SmallVec<[(u64, Frame); 16]> = numbers.zip(frames).collect();
        let lsn = if stable {
            let mut edits = Edits::new(self.id, 160 + 4 * allocated as usize);
            edits.inode(ino, &rec);
            edits.pages(ino, pages.iter().map(|(block, page)| (*block, page)));
            if let Some(direct) = direct {
                edits.placed(ino, direct.sent().iter().map(DirectBlock::place));
                let shipped = || {
                    let before = (placed.start - first) as usize;
                    let edits = self.with_contents(ino, &rec, &pages, direct);
                    (edits, direct.in_advance(before))
                };
                Some(self.core.log.append_as(edits, shipped)?)
            } else {
                Some(self.core.log.append(edits)?)
            }
        } else {
            if self.core.log.ships() {
                let mut edits = Edits::new(self.id, 160);
                edits.inode(ino, &rec);
                edits.pages(ino, pages.iter().map(|(block, page)| (*block, page)));
                self.core.log.ship(edits)?;
            }
            None
        };
        let delta = self.touch(&pass, inode, st, &mut reservation);
        let (mut new, mut placed, mut again) = (0u64, 0u64, 0u64);
        for (block, frame) in pages {
            let page = match stable {
                true => Page::logged(frame),
                false => Page::unlogged(frame),
            };
            match delta.file().put(block, page) {
                Put::New => new += 1,
                Put::Over => {}
                Put::OverPlaced => again += 1,
            }
        }
        for (block, page) in direct
            .take()
            .into_iter()
            .flat_map(Direct::taken)
            .map(DirectBlock::page)
        {
            if delta.file().put(block, page) == Put::New {
                placed += 1;
            }
        }
        let all = new + placed;
        if all + again > 0 {
            let charge = reservation.take(new + again + all.div_ceil(WINDOW));
            self.charge_pages(delta, Charge { placed, ..charge }, all);
        }
        held.finish(st, rec);
        st.unlogged = !stable;
        let change = Change {
            before,
            after: self.attr_of(ino, st),
        };
        Ok(written(data.len(), change, stability, lsn))
    }

    /// Returns the edits of a write for another machine: data in place here is included as pages.
    fn with_contents(
        &self,
        ino: Ino,
        rec: &InodeRec,
        pages: &[(u64, Frame)],
        direct: &Direct,
    ) -> Edits {
        let sent = direct.sent().iter().map(|sent| (sent.block, &sent.frame));
        let mut all: Vec<_> = pages.iter().map(|(block, page)| (*block, page)).collect();
        all.extend(sent);
        all.sort_unstable_by_key(|(block, _)| *block);
        let mut edits = Edits::new(self.id, 160);
        edits.inode(ino, rec);
        edits.pages(ino, all.into_iter());
        edits
    }

    /// Returns frames for the blocks that `data` at `off` touches, with zeros around it.
    fn fill_frames(
        &self,
        off: u64,
        data: &[u8],
        reread: Reread,
    ) -> Result<SmallVec<[FrameMut; 16]>, Stop> {
        let skip = (off % BLOCK) as usize;
        let count = match data.is_empty() {
            true => 0,
            false => (skip + data.len()).div_ceil(BLOCK_SIZE),
        };
        let frames = (0..count).map(|_| self.frame());
        let mut frames = frames.collect::<Result<SmallVec<[FrameMut; 16]>, Stop>>()?;
        // Neighbours in memory that are neighbours in the file, too, form one segment of a device
        // request.
        frames.sort_unstable_by_key(|frame| frame.as_ptr());
        frame::fill(&mut frames, skip, data, reread);
        Ok(frames)
    }

    /// Completes the first and the last frame with the file's bytes around the write.
    fn merge_edges(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        off: u64,
        end: u64,
        frames: &mut [FrameMut],
    ) -> Result<(), Stop> {
        let (first, last) = (off / BLOCK, (end - 1) / BLOCK);
        let head = (off % BLOCK) as usize;
        let tail = (end % BLOCK) as usize;
        let size = st.rec.size;
        let head_needed = head != 0 && first * BLOCK < size;
        let tail_needed = tail != 0 && end < size;
        if head_needed
            && let (Some(base), Some(frame)) = (self.block(cx, ino, st, first)?, frames.first_mut())
        {
            copy_range(frame, &base.frame, 0..head);
            if first == last && tail_needed {
                copy_range(frame, &base.frame, tail..BLOCK_SIZE);
            }
        }
        if tail_needed
            && !(head_needed && first == last)
            && let (Some(base), Some(frame)) = (self.block(cx, ino, st, last)?, frames.last_mut())
        {
            copy_range(frame, &base.frame, tail..BLOCK_SIZE);
        }
        Ok(())
    }
}

/// Seconds after which an access is recorded even if nothing was written: a day.
const ACCESS_AGE: i64 = 86_400;

/// Returns true if an access at `now` has to be recorded: the first one after a change, and one a
/// day, as under `relatime` of Linux. It is kept in memory only: a log record for each read would
/// be a high price for a time that clients hardly ever read.
fn access_is_news(attr: &Attr, now: Time) -> bool {
    // Saturates: the times may be set by clients.
    let since = now.secs.saturating_sub(attr.atime.secs);
    let first = attr.atime <= attr.mtime && (attr.mtime <= now || since > 0);
    now > attr.atime && (first || since > ACCESS_AGE)
}

fn copy_range(to: &mut FrameMut, from: &Frame, range: std::ops::Range<usize>) {
    if let (Some(to), Some(from)) = (to.get_mut(range.clone()), from.get(range)) {
        to.copy_from_slice(from);
    }
}

fn written(
    len: usize,
    change: Change,
    stability: Stability,
    lsn: Option<weir_base::Lsn>,
) -> Done<WriteOut> {
    Done {
        value: WriteOut {
            len,
            change,
            granted: match stability {
                Stability::Unstable => Stability::Unstable,
                _ => Stability::FileSync,
            },
        },
        lsn,
    }
}

/// Cuts the found pages to the requested bytes.
fn read_out(pages: SmallVec<[Frame; 16]>, off: u64, end: u64, attr: Attr) -> ReadOut {
    let first = (off % BLOCK) as usize;
    let have = pages.len() * BLOCK_SIZE - first;
    let len = have.min((end - off) as usize);
    ReadOut {
        pages,
        first,
        len,
        eof: off + len as u64 >= attr.size,
        attr,
    }
}
