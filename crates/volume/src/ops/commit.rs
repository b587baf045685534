//! COMMIT: makes unstable writes durable.
//!
//! A few pages go into the log, with the attributes. Up to [`ROUND`] pages are written in place
//! ([`crate::overlay::direct`]): they have to be written there anyway, and writing them to the log
//! first would be a second write. The rest is left to a checkpoint, which writes it in long runs.
//! These are larger amounts, pages that cannot be written in place, and pages that are still not
//! durable after some rounds because clients keep writing. Writing 40 MiB of each commit in rounds
//! slowed a sequential writer from 3,400 to 620 MiB/s.
//!
//! A page may be overwritten while its old contents are being written. A commit has to make the
//! data durable that was written before it came. So if the newer contents are in no log yet the
//! older ones still go there. If they are, the older ones must not come after them.
//!
//! A partner has the data since it was written ([`weir_store::log::stream`]), and keeps everything
//! that it has acknowledged. So of a commit it gets the attributes only, never older contents than
//! it has. Waiting for its acknowledgement needs the LSN of a record, so a commit that has nothing
//! to log appends one.

use smallvec::SmallVec;
use weir_base::limits::engine::{
    COMMIT_IDLE_LOG_PAGES as IDLE_LOG_PAGES, COMMIT_LOG_PAGES as LOG_PAGES, COMMIT_ROUND as ROUND,
    COMMIT_ROUNDS as ROUNDS,
};
use weir_base::{BLOCK_SIZE, Ino, Lsn};
use weir_store::Frame;

use crate::format::edit::Edits;
use crate::ops::admission::SMALL_OP;
use crate::overlay::context::EngineContext;
use crate::overlay::delta::Delta;
use crate::overlay::direct::{Direct, DirectBlock};
use crate::overlay::file_delta::{Layer, Page};
use crate::overlay::inode::{State, alive};
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, Volume};
use crate::types::{Backpressure, Change, Done, FileKind, FsError, Stop};

impl Volume {
    /// Makes the data written so far to `len` bytes at `off` durable (0: to the end of the file).
    /// May wait for a checkpoint.
    ///
    /// # Errors
    /// `IsDir`, `Invalid`, `ReadOnly` if the aggregate is poisoned, `Stale`, `Io`.
    pub fn commit(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        off: u64,
        len: u64,
    ) -> Result<Done<Change>, Stop> {
        self.writable()?;
        let inode = self.inode(cx, ino)?;
        let block = BLOCK_SIZE as u64;
        let first = off / block;
        let last = match len {
            0 => u64::MAX,
            // Saturates: the offset comes from a client.
            _ => off.saturating_add(len - 1) / block,
        };
        let pass = self.enter()?;
        let mut st = inode.state.write();
        alive(&st)?;
        match st.rec.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDir.into()),
            _ => return Err(FsError::Invalid.into()),
        }
        let attr = self.attr_of(ino, &st);
        let value = Change {
            before: attr,
            after: attr,
        };
        // It has waited for the checkpoint after the data to commit.
        if cx
            .commit_epoch
            .is_some_and(|e| self.core.schedule.is_durable(e))
        {
            let lsn = match self.core.log.ships() {
                true => Some(self.log_attributes(ino, &st)?),
                false => None,
            };
            return Ok(Done { value, lsn });
        }
        if let Some(direct) = cx.direct.take() {
            let landed = self.log_sent(&pass, ino, &mut st, direct);
            landed.map_err(|failed| {
                let (direct, stop) = *failed;
                cx.direct = Some(direct);
                stop
            })?;
        }
        let most = match self.core.placements.sends() {
            true => LOG_PAGES,
            false => IDLE_LOG_PAGES,
        };
        let most = most.min(self.core.agg.log().max_record().1);
        let pages = unlogged(&st, first, last, ROUND);
        if pages.len() > most {
            if pages.len() <= ROUND && cx.commit_rounds < ROUNDS {
                cx.commit_rounds += 1;
                let mut reservation = Reservation::if_possible(&self.core.agg, pages.len() as u64);
                cx.direct =
                    Direct::begin(&self.core.placements, &mut reservation, pages.into_vec());
                if cx.direct.is_some() {
                    return Err(Stop::Land);
                }
            }
            let epoch = pass.epoch();
            cx.commit_epoch = Some(epoch);
            return Err(Stop::Wait(Backpressure::Epoch(epoch)));
        }
        if pages.is_empty() && !st.unlogged && self.core.log.ships() {
            let lsn = Some(self.log_attributes(ino, &st)?);
            return Ok(Done { value, lsn });
        }
        if pages.is_empty() && !st.unlogged {
            // Records appended by other calls must be durable all the same.
            return Ok(Done {
                value,
                lsn: self.core.log.last_appended(),
            });
        }
        self.core
            .schedule
            .admit((pages.len() * BLOCK_SIZE) as u64 + SMALL_OP)?;
        let mut edits = Edits::new(self.id, 256);
        edits.inode(ino, &st.rec);
        edits.pages(ino, pages.iter().map(|(b, f)| (*b, f)));
        let shipped = || (self.attributes(ino, &st), None);
        let lsn = self.core.log.append_as(edits, shipped)?;
        for delta in st.layers() {
            if let Some(data) = &delta.data {
                for (block, _) in &pages {
                    data.mark_logged(*block);
                }
            }
        }
        st.unlogged = false;
        Ok(Done {
            value,
            lsn: Some(lsn),
        })
    }

    fn attributes(&self, ino: Ino, st: &State) -> Edits {
        let mut edits = Edits::new(self.id, 128);
        edits.inode(ino, &st.rec);
        edits
    }

    /// Appends a record that changes nothing.
    fn log_attributes(&self, ino: Ino, st: &State) -> Result<Lsn, Stop> {
        self.core.schedule.admit(SMALL_OP)?;
        self.core.log.append(self.attributes(ino, st))
    }

    /// Logs the locations of the pages that have been written in place. Returns the pages that
    /// cannot be logged.
    fn log_sent(
        &self,
        entered: &ChangePermit<'_>,
        ino: Ino,
        st: &mut State,
        direct: Direct,
    ) -> Result<(), Box<(Direct, Stop)>> {
        let segment = entered.live().segments.current();
        // Two flags: the log gets the page, and the location replaces the current page.
        let fate = |sent: &DirectBlock| match visible(st, sent.block) {
            Some((_, page)) if page.is_logged() => (false, false),
            Some((depth, page)) => {
                let current = |d: &Delta| d.segment == segment;
                let active = depth == 0 && st.active.as_deref().is_some_and(current);
                (true, active && page.is(&sent.frame))
            }
            None => (false, false),
        };
        let fates: Vec<(bool, bool)> = direct.sent().iter().map(fate).collect();
        let chosen = direct
            .sent()
            .iter()
            .zip(&fates)
            .filter(|(_, (log, _))| *log);
        let mut edits = Edits::new(self.id, 160 + 4 * fates.len());
        edits.inode(ino, &st.rec);
        edits.placed(ino, chosen.map(|(sent, _)| sent.place()));
        if let Err(stop) = self
            .core
            .schedule
            .admit(edits.meta.len() as u64)
            .and_then(|()| {
                let shipped = || (self.attributes(ino, st), None);
                self.core.log.append_as(edits, shipped).map(drop)
            })
        {
            return Err(Box::new((direct, stop)));
        }
        st.unlogged = false;
        let mut unused = Vec::new();
        for (sent, (_, takes)) in direct.taken().into_iter().zip(fates) {
            let (block, placed) = sent.place();
            match st.active.as_deref_mut().filter(|_| takes) {
                Some(active) => active.file().set_placed(block, placed),
                None => {
                    // A checkpoint is writing the page, or it is outdated.
                    let same = visible(st, block)
                        .filter(|(_, page)| page.is(&sent.frame))
                        .map(|(depth, _)| depth);
                    let layer = same.and_then(|depth| st.layers().nth(depth));
                    if let Some(data) = layer.and_then(|layer| layer.data.as_deref()) {
                        data.mark_logged(block);
                    }
                    unused.push((placed.addr, 1));
                }
            }
        }
        self.core.placements.leave_unused(unused);
        Ok(())
    }
}

/// Returns the visible page of a block, and its layer's number; `None` if the overlays have none.
fn visible(st: &State, block: u64) -> Option<(usize, &Page)> {
    let said = st.layers().map(|layer| layer.block(block)).enumerate();
    let mut said = said.filter(|(_, layer)| !matches!(layer, Layer::Below));
    match said.next()? {
        (depth, Layer::Page(page)) => Some((depth, page)),
        _ => None,
    }
}

/// Returns the visible pages in a range that the log does not have, in order. If there are more
/// than `most`, it returns more than `most` of them, but not all.
fn unlogged(st: &State, first: u64, last: u64, most: usize) -> SmallVec<[(u64, Frame); 4]> {
    let mut found: SmallVec<[(u64, Frame); 4]> = SmallVec::new();
    for (depth, layer) in st.layers().enumerate() {
        let Some(data) = layer.data.as_deref() else {
            // The layer has no changed data.
            continue;
        };
        // Data hidden by a newer layer need not be made durable again.
        let visible = |block: u64| {
            let mut above = st.layers().take(depth);
            above.all(|a| matches!(a.block(block), Layer::Below))
        };
        let pages = data
            .unlogged_in(first..=last)
            .filter(|(block, _)| visible(*block))
            .take(most + 1);
        // A page that the log does not have is in memory.
        found.extend(pages.filter_map(|(block, page)| Some((block, page.frame.clone()?))));
        if found.len() > most {
            // A layer below, which a checkpoint is writing, may have as many again, each to be
            // looked up here.
            break;
        }
    }
    found.sort_unstable_by_key(|(block, _)| *block);
    found
}
