//! A layer's changes to a file's data.
//!
//! File data is a map from block number to page. A truncation is one number, the first block from
//! which on everything *below* this layer is hidden. Ranges punched out before it are hidden as
//! well; pages written later are in the map again. So are ranges that share the blocks of others
//! ([`crate::overlay::shares`]).

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_base::BlockAddr;
use weir_store::Frame;

use crate::format::record::PlacedPage;
use crate::overlay::shares::{CommittedBlock, Share, Shares};

/// Estimated memory in bytes of a page's place in the map.
pub(crate) const PAGE_BYTES: u64 = 96;
/// Estimated memory in bytes of a punched range.
pub(crate) const RANGE_BYTES: u64 = 64;

/// One changed file block.
#[derive(Debug)]
pub(crate) struct Page {
    /// `None` only for a page in place: recovery has not read it.
    pub(crate) frame: Option<Frame>,
    pub(crate) placed: Option<PlacedPage>,
    /// True if the log has the page.
    logged: AtomicBool,
}

impl Page {
    pub(crate) fn unlogged(frame: Frame) -> Page {
        Page {
            frame: Some(frame),
            placed: None,
            logged: AtomicBool::new(false),
        }
    }

    pub(crate) fn logged(frame: Frame) -> Page {
        Page {
            frame: Some(frame),
            placed: None,
            logged: AtomicBool::new(true),
        }
    }

    /// Creates a page whose location the log has.
    pub(crate) fn placed(frame: Option<Frame>, placed: PlacedPage) -> Page {
        Page {
            frame,
            placed: Some(placed),
            logged: AtomicBool::new(true),
        }
    }

    /// Returns true if it is this page in memory.
    pub(crate) fn is(&self, frame: &Frame) -> bool {
        self.frame.as_ref().is_some_and(|own| own.same_page(frame))
    }

    pub(crate) fn is_logged(&self) -> bool {
        self.logged.load(Ordering::Relaxed)
    }
}

/// Pages by file block. Most files are small, and many have only one block: a single page takes no
/// allocation of its own (a map's is of eleven).
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Set only while `many` is empty.
    one: Option<(u64, Page)>,
    many: BTreeMap<u64, Page>,
}

impl Pages {
    pub(crate) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.many.len()
    }

    fn get(&self, block: u64) -> Option<&Page> {
        match &self.one {
            Some((at, page)) => (*at == block).then_some(page),
            None => self.many.get(&block),
        }
    }

    fn get_mut(&mut self, block: u64) -> Option<&mut Page> {
        match &mut self.one {
            Some((at, page)) => (*at == block).then_some(page),
            None => self.many.get_mut(&block),
        }
    }

    /// Inserts a page. Returns the earlier page of the block.
    fn insert(&mut self, block: u64, page: Page) -> Option<Page> {
        match &mut self.one {
            Some((at, old)) if *at == block => Some(std::mem::replace(old, page)),
            None if self.many.is_empty() => {
                self.one = Some((block, page));
                None
            }
            one => {
                self.many.extend(one.take());
                self.many.insert(block, page)
            }
        }
    }

    /// Puts back the pages removed by [`Pages::split_off`].
    fn append(&mut self, mut behind: Pages) {
        if self.len() == 0 {
            *self = behind;
            return;
        }
        if behind.len() > 0 {
            self.many.extend(self.one.take());
            self.many.extend(behind.one.take());
            self.many.append(&mut behind.many);
        }
    }

    /// Removes the pages from `first` on.
    fn split_off(&mut self, first: u64) -> Pages {
        Pages {
            one: self.one.take_if(|(at, _)| *at >= first),
            many: self.many.split_off(&first),
        }
    }

    /// Returns the pages in the order of their blocks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.range(0..=u64::MAX)
    }

    pub(crate) fn range(
        &self,
        range: std::ops::RangeInclusive<u64>,
    ) -> impl Iterator<Item = (u64, &Page)> {
        let one = self.one.iter().filter({
            let range = range.clone();
            move |(at, _)| range.contains(at)
        });
        let many = self.many.range(range);
        one.map(|(at, page)| (*at, page))
            .chain(many.map(|(at, page)| (*at, page)))
    }
}

/// Changes to a file's data.
#[derive(Debug, Default)]
pub(crate) struct FileDelta {
    pages: Pages,
    /// First block from which on the layers below are hidden.
    cut: Option<u64>,
    /// Ranges in which the layers below are hidden: the first block, and the one after the last.
    /// They are before the cut, apart from one another, and in order.
    punched: BTreeMap<u64, u64>,
    /// Ranges that have the blocks of others, hidden or not; a page at a block has priority.
    shares: Shares,
    /// Number of pages that the log does not have.
    unlogged: AtomicU64,
    /// Reserved blocks of pages that are no longer in this layer.
    unused: Vec<(BlockAddr, u32)>,
}

/// Page that a new one of the same block has replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// The layer had no page for the block.
    New,
    /// A page that a checkpoint would have had to write.
    Over,
    /// A page in place, whose block is not free before the checkpoint is durable.
    OverPlaced,
}

/// A layer's state of a block.
pub(crate) enum Layer<'a> {
    /// The block has these contents.
    Page(&'a Page),
    /// The block is shared from this one, which may be a hole.
    Shared(CommittedBlock),
    /// The block is a hole.
    Hole,
    /// The layer below decides.
    Below,
}

/// A layer's state of a part of a range. Holes are left out.
pub(crate) enum Piece<'a> {
    /// The contents of a block.
    Page(u64, &'a Page),
    /// From this block on, the blocks of another range.
    Shared(u64, Share),
    /// The layer below decides.
    Below(Range<u64>),
}

impl FileDelta {
    pub(crate) fn get(&self, block: u64) -> Layer<'_> {
        match self.pages.get(block) {
            Some(page) => Layer::Page(page),
            None => match self.shares.get(block) {
                Some(seen) => Layer::Shared(seen),
                None if self.hides(block) => Layer::Hole,
                None => Layer::Below,
            },
        }
    }

    /// Returns true if the layers below are hidden for a block, and no share replaces it.
    pub(crate) fn hides(&self, block: u64) -> bool {
        let punched = || self.punched.range(..=block).next_back();
        let hidden = self.cut.is_some_and(|cut| block >= cut)
            || punched().is_some_and(|(_, end)| block < *end);
        hidden && !self.shares.has_block(block)
    }

    /// Returns the ranges that have the blocks of others.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Gives a range, which was just punched out, the blocks of another one.
    pub(crate) fn share(&mut self, first: u64, share: Share) {
        self.shares.insert(first, share);
    }

    /// Passes this layer's state of a range, piece by piece, to `each` until it breaks. Pages come
    /// in order.
    pub(crate) fn pieces(
        &self,
        range: Range<u64>,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = range.start;
        if range.is_empty() {
            return ControlFlow::Continue(());
        }
        for (block, page) in self.pages.range(range.start..=range.end - 1) {
            self.without_pages(at..block, each)?;
            each(Piece::Page(block, page))?;
            at = block + 1;
        }
        self.without_pages(at..range.end, each)
    }

    fn without_pages(
        &self,
        range: Range<u64>,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = range.start;
        for (first, share) in self.shares.within(range.clone()) {
            let (from, end) = (first.max(range.start), share.end.min(range.end));
            self.not_shared(at..from, each)?;
            let mut part = share.behind(from - first);
            part.end = end;
            each(Piece::Shared(from, part))?;
            at = end;
        }
        self.not_shared(at..range.end, each)
    }

    fn not_shared(
        &self,
        range: Range<u64>,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // Holes are left out.
        let end = self.cut.map_or(range.end, |cut| cut.min(range.end));
        let mut at = range.start;
        let before = self.punched.range(..at).next_back();
        let inside = (at < end).then(|| self.punched.range(at..end));
        let punched = before.into_iter().chain(inside.into_iter().flatten());
        for (first, behind) in punched {
            if at < *first {
                each(Piece::Below(at..*first))?;
            }
            at = at.max(*behind);
        }
        match at < end {
            true => each(Piece::Below(at..end)),
            false => ControlFlow::Continue(()),
        }
    }

    /// Returns the punched ranges, in order: the first block, and the one after the last.
    pub(crate) fn punched(&self) -> impl Iterator<Item = (u64, u64)> {
        self.punched.iter().map(|(first, end)| (*first, *end))
    }

    /// Hides the blocks from `first` on and before `end`.
    pub(crate) fn punch(&mut self, first: u64, end: u64) {
        let mut dropped = self.pages.split_off(first);
        let behind = dropped.split_off(end);
        for (_, page) in dropped.iter() {
            self.forget(page);
        }
        self.pages.append(behind);
        self.shares.remove(first, end);
        let end = self.cut.map_or(end, |cut| end.min(cut));
        if first >= end {
            return;
        }
        let mut whole = (first, end);
        // Ranges that it touches are merged with it.
        let touched: Vec<(u64, u64)> = self
            .punched
            .range(..=end)
            .rev()
            .map(|(f, e)| (*f, *e))
            .take_while(|(_, e)| *e >= first)
            .collect();
        for (from, to) in touched {
            self.punched.remove(&from);
            whole = (whole.0.min(from), whole.1.max(to));
        }
        self.punched.insert(whole.0, whole.1);
    }

    /// Sets a block's page.
    pub(crate) fn put(&mut self, block: u64, page: Page) -> Put {
        if !page.is_logged() {
            *self.unlogged.get_mut() += 1;
        }
        match self.pages.insert(block, page) {
            Some(old) => {
                self.forget(&old);
                match old.placed {
                    Some(_) => Put::OverPlaced,
                    None => Put::Over,
                }
            }
            None => Put::New,
        }
    }

    fn forget(&mut self, old: &Page) {
        if !old.is_logged() {
            *self.unlogged.get_mut() -= 1;
        }
        if let Some(PlacedPage { addr, .. }) = old.placed {
            match self.unused.last_mut() {
                Some((first, count)) if first.0 + u64::from(*count) == addr.0 => *count += 1,
                _ => self.unused.push((addr, 1)),
            }
        }
    }

    /// Returns the reserved blocks of pages that were replaced or cut off: the log may refer to
    /// them until it is cut for the layer's checkpoint.
    pub(crate) fn unused(&self) -> &[(BlockAddr, u32)] {
        &self.unused
    }

    /// Returns all allocated blocks of the layer, for dropping it without merging.
    pub(crate) fn allocated(&self) -> impl Iterator<Item = (BlockAddr, u32)> {
        let placed = self.pages.iter().filter_map(|(_, page)| page.placed);
        let used = placed.map(|placed| (placed.addr, 1));
        self.unused.iter().copied().chain(used)
    }

    /// Notes that a page has been written in place, in an active layer.
    pub(crate) fn set_placed(&mut self, block: u64, placed: PlacedPage) {
        self.mark_logged(block);
        if let Some(page) = self.pages.get_mut(block) {
            assert!(page.placed.is_none(), "a page that the log had");
            page.placed = Some(placed);
        }
    }

    /// Hides all blocks from `first` on. Returns the number of dropped pages.
    pub(crate) fn cut(&mut self, first: u64) -> u64 {
        let dropped = self.pages.split_off(first);
        for (_, page) in dropped.iter() {
            self.forget(page);
        }
        self.shares.remove(first, u64::MAX);
        self.cut = Some(self.cut.map_or(first, |c| c.min(first)));
        self.punched.split_off(&first);
        if let Some(mut last) = self.punched.last_entry() {
            let end = (*last.get()).min(first);
            last.insert(end);
        }
        dropped.len() as u64
    }

    pub(crate) fn cut_at(&self) -> Option<u64> {
        self.cut
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    pub(crate) fn has_unlogged(&self) -> bool {
        self.unlogged.load(Ordering::Relaxed) > 0
    }

    /// Returns the pages in `range` that the log does not have, in order.
    pub(crate) fn unlogged_in(
        &self,
        range: std::ops::RangeInclusive<u64>,
    ) -> impl Iterator<Item = (u64, &Page)> {
        let some = self.has_unlogged().then(|| self.pages.range(range));
        some.into_iter()
            .flatten()
            .filter(|(_, page)| !page.is_logged())
    }

    /// Notes that the log has this block now, in an active or a frozen layer.
    pub(crate) fn mark_logged(&self, block: u64) {
        if let Some(page) = self.pages.get(block)
            && !page.logged.swap(true, Ordering::Relaxed)
        {
            self.unlogged.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Ino, Rng, SeededRng};
    use weir_store::tree::TreeRoot;

    fn page() -> Page {
        Page::unlogged(Frame::zero())
    }

    #[test]
    fn a_cut_hides_below_but_not_later_pages() {
        let mut d = FileDelta::default();
        for b in 0..10 {
            assert_eq!(d.put(b, page()), Put::New);
        }
        assert_eq!(d.put(3, page()), Put::Over);
        assert_eq!(d.cut(4), 6);
        d.put(7, page());
        d.cut(9);
        assert!(matches!(d.get(3), Layer::Page(_)));
        assert!(matches!(d.get(4), Layer::Hole));
        assert!(matches!(d.get(7), Layer::Page(_)));
        assert!(matches!(d.get(100), Layer::Hole));
        assert_eq!(d.cut_at(), Some(4));
        assert_eq!(d.pages().len(), 5);
    }

    /// Compares with a layer that holds each block separately.
    #[test]
    fn punches_cuts_and_pages_in_any_order() {
        let rng = SeededRng::new(8);
        const BLOCKS: u64 = 40;
        for _ in 0..2000 {
            let mut d = FileDelta::default();
            // 0: below, 1: a hole, 2: a page, 3: shared.
            let mut plain = [0u8; BLOCKS as usize];
            for _ in 0..rng.below(12) {
                let (a, b) = (rng.below(BLOCKS), rng.below(BLOCKS));
                match rng.below(8) {
                    0 => {
                        d.cut(a);
                        plain[a as usize..].fill(1);
                    }
                    1 | 2 => {
                        let (first, end) = (a.min(b), a.max(b) + 1);
                        d.punch(first, end);
                        plain[first as usize..end as usize].fill(1);
                    }
                    3 | 4 => {
                        let (first, end) = (a.min(b), a.max(b) + 1);
                        d.punch(first, end);
                        let seen = CommittedBlock {
                            root: crate::overlay::root::RootState::new(TreeRoot::EMPTY),
                            ino: Ino(7),
                            block: first + 100,
                        };
                        let merged = (Ino(7), first + 100);
                        let stored = 0;
                        d.share(
                            first,
                            Share {
                                end,
                                seen,
                                merged,
                                stored,
                            },
                        );
                        plain[first as usize..end as usize].fill(3);
                    }
                    _ => {
                        d.put(a, page());
                        plain[a as usize] = 2;
                    }
                }
            }
            for (block, what) in (0..).zip(plain) {
                let found = match d.get(block) {
                    Layer::Below => 0,
                    Layer::Hole => 1,
                    Layer::Page(_) => 2,
                    Layer::Shared(seen) => {
                        assert_eq!(seen.block, block + 100);
                        3
                    }
                };
                assert_eq!(found, what, "block {block} of {d:?}");
            }
            let (a, b) = (rng.below(BLOCKS), rng.below(BLOCKS));
            let range = a.min(b)..a.max(b);
            let mut said = [1u8; BLOCKS as usize];
            let all = d.pieces(range.clone(), &mut |piece| {
                match piece {
                    Piece::Page(block, _) => said[block as usize] = 2,
                    Piece::Shared(first, share) => {
                        assert!(first < share.end);
                        assert_eq!(share.merged.1, first + 100);
                        said[first as usize..share.end as usize].fill(3);
                    }
                    Piece::Below(range) => {
                        assert!(!range.is_empty());
                        said[range.start as usize..range.end as usize].fill(0);
                    }
                }
                ControlFlow::Continue(())
            });
            assert!(all.is_continue());
            let within = range.start as usize..range.end as usize;
            assert_eq!(said[within.clone()], plain[within], "{range:?} of {d:?}");
            assert!(said[range.end as usize..].iter().all(|what| *what == 1));
            let pages = plain.iter().filter(|what| **what == 2).count();
            assert_eq!(d.pages().len(), pages);
            assert_eq!(d.unlogged_in(0..=BLOCKS).count(), pages);
            let ranges: Vec<(u64, u64)> = d.punched().collect();
            assert!(
                ranges
                    .iter()
                    .all(|(first, end)| first < end && d.cut_at().is_none_or(|c| *end <= c))
            );
            assert!(
                ranges.windows(2).all(|two| two[0].1 < two[1].0),
                "{ranges:?}"
            );
        }
    }

    #[test]
    fn the_places_of_pages_that_are_gone_are_remembered() {
        let placed = |addr| {
            let place = PlacedPage {
                addr: BlockAddr(addr),
                crc: 0,
            };
            Page::placed(None, place)
        };
        let mut d = FileDelta::default();
        for b in 0..8 {
            assert_eq!(d.put(b, placed(100 + b)), Put::New);
        }
        assert!(d.unused().is_empty());
        assert_eq!(d.put(1, page()), Put::OverPlaced);
        assert_eq!(d.put(1, page()), Put::Over);
        assert_eq!(d.put(2, placed(200)), Put::OverPlaced);
        d.cut(6);
        assert_eq!(d.unused(), [(BlockAddr(101), 2), (BlockAddr(106), 2)]);
        d.set_placed(
            1,
            PlacedPage {
                addr: BlockAddr(300),
                crc: 0,
            },
        );
        let mut all: Vec<u64> = d
            .allocated()
            .flat_map(|(addr, count)| addr.0..addr.0 + u64::from(count))
            .collect();
        all.sort_unstable();
        assert_eq!(all, [100, 101, 102, 103, 104, 105, 106, 107, 200, 300]);
        assert!(!d.has_unlogged());
    }

    #[test]
    fn unlogged_pages_are_counted() {
        let mut d = FileDelta::default();
        d.put(1, page());
        d.put(1, page());
        d.put(2, Page::logged(Frame::zero()));
        d.put(3, page());
        let unlogged = |range| -> Vec<u64> { d.unlogged_in(range).map(|(b, _)| b).collect() };
        assert_eq!(unlogged(0..=10), [1, 3]);
        assert_eq!(unlogged(2..=10), [3]);
        d.mark_logged(1);
        d.mark_logged(1);
        assert!(d.has_unlogged());
        d.cut(3);
        assert!(!d.has_unlogged());
    }
}
