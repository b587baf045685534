//! Finds data and holes in a file (NFSv4.2 SEEK, RFC 7862 section 15.11; `lseek` with SEEK_DATA and
//! SEEK_HOLE).
//!
//! A block that is stored, or is in memory to be stored, is data, whatever its contents. So is one
//! that shares another's block, until the checkpoint that resolves the share. All else is hole.
//! Data is found by passing over the file's records; holes have none. A hole is searched for in
//! steps of bounded length, since a file without any has to be passed over to its end.

use std::ops::{ControlFlow, Range};

use smallvec::{SmallVec, smallvec};
use weir_base::{BLOCK_SIZE, Ino};
use weir_store::node::Key;
use weir_store::tree;

use crate::format::record::{WINDOW, Window, blocks_of, kind};
use crate::ops::data::regular;
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::file_delta::Piece;
use crate::overlay::inode::{State, malformed};
use crate::overlay::volume::Volume;
use crate::types::{Seek, Sought, Stop};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Number of blocks in a step of the search for a hole.
const STEP: u64 = 1 << 15;

/// Ranges of blocks, in order.
type Ranges = SmallVec<[Range<u64>; 4]>;

impl Volume {
    /// Returns the first byte from `from` on that is data, or in a hole. The file's end is the
    /// beginning of a hole.
    ///
    /// # Errors
    /// `Invalid` or `IsDir` for anything but a regular file; `Stale`, `Io`.
    pub fn seek(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        from: u64,
        what: Seek,
    ) -> Result<Sought, Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        regular(&st)?;
        let size = st.rec.size;
        if from >= size {
            return Ok(Sought::End(size));
        }
        let (first, end) = (from / BLOCK, blocks_of(size));
        let at = |block: u64| match block {
            block if block >= end => Sought::End(size),
            block => Sought::At(from.max(block * BLOCK)),
        };
        match what {
            Seek::Data => Ok(at(self.first_data(cx, ino, &st, first..end)?)),
            Seek::Hole => {
                let step = end.min(first + STEP);
                Ok(match self.first_hole(cx, ino, &st, first..step)? {
                    Some(block) => at(block),
                    None if step == end => Sought::End(size),
                    None => Sought::NotBefore(step * BLOCK),
                })
            }
        }
    }

    /// Passes the blocks of these ranges stored in the tree, in order.
    fn stored_in(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        ranges: &Ranges,
        each: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let root = self.root.load();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let from = Key::new(ino.0, kind::EXTENT, Window::start_of(range.start));
            let to = Key::new(ino.0, kind::EXTENT, range.end - 1);
            let cache = self.core.agg.cache();
            let (mut broken, mut bad) = (false, false);
            let scanned = tree::scan(
                &Source { cache, cx },
                &root.root,
                from,
                to,
                &mut |key, value| {
                    let Some(window) = Window::decode(value) else {
                        bad = true;
                        return ControlFlow::Break(());
                    };
                    for (index, stored) in (0..WINDOW).zip(&window.blocks) {
                        let block = key.sub + index;
                        if stored.is_some() && range.contains(&block) && each(block).is_break() {
                            broken = true;
                            return ControlFlow::Break(());
                        }
                    }
                    ControlFlow::Continue(())
                },
            );
            scanned.map_err(|stop| self.stop(cx, &root, stop))?;
            if bad {
                return Err(malformed(self.id, ino, "extent"));
            }
            if broken {
                break;
            }
        }
        Ok(())
    }

    /// Returns the first block of data; the end of the range if there is none.
    fn first_data(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        range: Range<u64>,
    ) -> Result<u64, Stop> {
        let mut found = range.end;
        // The overlays come before the root: a root is published before the overlays that it
        // contains are dropped.
        let below = below(st, smallvec![range], &mut |piece| {
            // Later ranges of a layer are behind it.
            found = found.min(piece.start);
            ControlFlow::Break(())
        });
        let below: Ranges = below
            .into_iter()
            .map(|r| r.start..r.end.min(found))
            .collect();
        self.stored_in(cx, ino, &below, &mut |block| {
            found = found.min(block);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Returns the first block of the range that is a hole.
    fn first_hole(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        range: Range<u64>,
    ) -> Result<Option<u64>, Stop> {
        let start = range.start;
        let mut data = vec![false; (range.end - start) as usize];
        let mut mark = |blocks: Range<u64>| {
            let blocks = (blocks.start - start) as usize..(blocks.end - start) as usize;
            if let Some(blocks) = data.get_mut(blocks) {
                blocks.fill(true);
            }
        };
        let below = below(st, smallvec![range], &mut |piece| {
            mark(piece);
            ControlFlow::Continue(())
        });
        self.stored_in(cx, ino, &below, &mut |block| {
            mark(block..block + 1);
            ControlFlow::Continue(())
        })?;
        let hole = data.iter().position(|data| !data);
        Ok(hole.map(|at| start + at as u64))
    }
}

/// Calls `each` with the pieces of these ranges in the overlays, layer by layer, until it breaks
/// off within a range. Returns the ranges that the tree decides about.
fn below(
    st: &State,
    mut open: Ranges,
    each: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
) -> Ranges {
    for delta in st.layers() {
        let mut below = Ranges::new();
        match &delta.data {
            None => below = open,
            Some(data) => {
                for range in open {
                    let end = range.end;
                    let _ = data.pieces(range, &mut |piece| match piece {
                        Piece::Page(block, _) => each(block..block + 1),
                        Piece::Shared(first, share) => each(first..share.end.min(end)),
                        Piece::Below(range) => {
                            below.push(range);
                            ControlFlow::Continue(())
                        }
                    });
                }
            }
        }
        if delta.new {
            // Layers below a new file do not count.
            below.clear();
        }
        open = below;
    }
    open
}
