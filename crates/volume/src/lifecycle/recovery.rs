//! Recovery: applies the log's records to the last durable trees.
//!
//! The edits go into the overlays, as if the operations had just run, and the next checkpoint
//! merges them like others.
//!
//! Recovery can itself be interrupted anywhere. As long as memory suffices nothing is written. A
//! log with more changes than memory can hold (it was filled by a server that had more) is applied
//! in parts. Between two batches of the log, a checkpoint takes the changes applied so far, and its
//! superblock says that the log begins after them. After a crash the next recovery continues from
//! there. Such a checkpoint is an ordinary one: exactly the records before its cut are in its
//! trees.

use std::sync::Arc;
use std::time::Duration;

use weir_base::{BlockAddr, Ino, Time};
use weir_store::log;
use weir_store::{Class, Frame, StoreError};

use crate::checkpoint::checkpointer::Checkpointer;
use crate::format::calls::DoneCall;
use crate::format::edit::{self, Crcs, Edit, SnapshotEdit};
use crate::format::mark::MarkId;
use crate::format::record::{InodeRec, PlacedPage, blocks_of};
use crate::ops::clone_range::Contents;
use crate::overlay::context::EngineContext;
use crate::overlay::core::Core;
use crate::overlay::delta::{Delta, ENTRY_BYTES};
use crate::overlay::event::block_on;
use crate::overlay::file_delta::{Page, RANGE_BYTES};
use crate::overlay::inode::Inode;
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, LiveVolume};
use crate::types::{FileKind, FsError, Stop};

/// Counts of what recovery replayed from the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryStats {
    /// Log records that were applied.
    pub records: u64,
    /// Edits in those records.
    pub edits: u64,
    /// Checkpoints taken during the replay, for lack of memory.
    pub points: u64,
    /// Time that the replay took.
    pub took: Duration,
    /// True if the aggregate had not been closed by [`Engine::shutdown`](crate::Engine::shutdown).
    pub unclean: bool,
}

/// Inode numbers that are skipped after a crash. Operations that were never acknowledged, and so
/// are in no log, may have shown their numbers to another client for a moment. Far fewer than this
/// were in flight.
const SKIP_INODES: u64 = 1 << 20;

/// Applies `records` in order.
pub(crate) fn replay(
    cp: &Checkpointer,
    mut records: log::Replay,
) -> Result<RecoveryStats, StoreError> {
    let (core, table) = (cp.core(), cp.table());
    let mut done = RecoveryStats {
        unclean: cp.stored().in_use,
        ..RecoveryStats::default()
    };
    // Frames that checkpoints during the replay leave in the cache are evicted.
    let mut frame = || core.agg.cache().alloc(Class::Foreground);
    loop {
        if core.schedule.overlays_fill()
            && let Some(cut) = records.boundary()
        {
            if done.points == 0 {
                skip_inodes(cp);
                allocate_rest(core, &mut records)?;
            }
            cp.run_recovered(cut)?;
            done.points += 1;
        }
        let Some(record) = records.next_in(&mut frame).transpose()? else {
            // Every record has been applied.
            break;
        };
        done.unclean = true;
        let (id, edits) = edit::decode(&record.meta, record.pages.len())
            .map_err(|e| StoreError::Format(format!("log record {}: {e}", record.lsn).into()))?;
        match edits.first() {
            Some(Edit::Opened) => {
                table.raise_change_bases();
                continue;
            }
            Some(Edit::Client { number, record }) => {
                core.clients.replay(*number, *record);
                core.schedule.note_change();
            }
            _ => {}
        }
        if let Some(Edit::Position(at)) = edits.last() {
            core.log.note_position(*at);
            core.schedule.note_change();
        }
        if let Some(Edit::Position(_) | Edit::Client { .. }) = edits.first() {
            continue;
        }
        let mut vol = table.get(id);
        if let (None, Some(Edit::VolumeMade { key, name })) = (&vol, edits.first()) {
            vol = Some(table.add_empty(core, id, *key, name));
        }
        let Some(vol) = vol else {
            // The volume was deleted after the log was cut for the checkpoint that did it.
            tracing::debug!(volume = %id, lsn = %record.lsn, "a record of a deleted volume");
            for (addr, count) in edits.iter().filter_map(Edit::place) {
                core.agg.space().mark_recovered(addr, count)?;
                core.placements.leave_unused([(addr, count)]);
            }
            continue;
        };
        done.records += 1;
        done.edits += edits.len() as u64;
        let exact = matches!(edits.last(), Some(Edit::Position(_)));
        let mut pages = record.pages.into_iter();
        for edit in edits {
            match edit {
                // The mark may lack earlier unstable writes, and is not at the partner.
                Edit::Snapshot(SnapshotEdit::Made { id, name, .. })
                    if !exact && MarkId::from_name(name).is_some() =>
                {
                    MarkId::from_name(name)
                        .into_iter()
                        .for_each(|mark| core.note_mark(mark));
                    vol.live().snaps.lock().skip(id);
                    core.schedule.note_changed(vol.id);
                }
                Edit::VolumeMade { .. } | Edit::Position(_) => {}
                Edit::Call { ino, key, secs } => core.log.calls().push(DoneCall {
                    key,
                    volume: id,
                    ino,
                    secs,
                }),
                Edit::Snapshot(edit) => vol.replay_snapshot(vol.live(), edit),
                edit => {
                    let pass = ChangePermit::with(core.epoch_lock().enter(), &vol);
                    vol.apply(&pass, edit, &mut pages)?;
                }
            }
        }
    }
    if done.unclean {
        skip_inodes(cp);
        table.raise_change_bases();
    }
    Ok(done)
}

/// Reserves the blocks of the log records that have not been applied yet, because a checkpoint is
/// about to allocate some.
fn allocate_rest(core: &Core, records: &mut log::Replay) -> Result<(), StoreError> {
    let mut marked = Ok(());
    records.peek(&mut |meta, pages| {
        // Undecodable records are reported when they are applied.
        let edits = edit::decode(meta, pages).map(|(_, edits)| edits);
        for (addr, count) in edits.iter().flatten().filter_map(Edit::place) {
            let result = core.agg.space().mark_recovered(addr, count).map(drop);
            marked = std::mem::replace(&mut marked, Ok(())).and(result);
        }
    })?;
    marked
}

pub(crate) fn skip_inodes(cp: &Checkpointer) {
    for vol in cp.table().list_volumes() {
        vol.counters.skip_inodes(SKIP_INODES, u64::MAX);
        cp.core().schedule.note_changed(vol.id);
    }
}

fn failed(e: FsError) -> StoreError {
    StoreError::Format(format!("cannot apply the log: {e}").into())
}

impl LiveVolume {
    /// Runs a part of applying a record. The caller holds the epoch lock, so `op` must not wait for
    /// a checkpoint.
    fn within<T>(
        &self,
        mut op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
    ) -> Result<Result<T, FsError>, StoreError> {
        let mut cx = EngineContext::new(Time::EPOCH);
        if self.core.schedule.stopped() {
            // During recovery no checkpoint is in progress.
            return Ok(self.drive_blocking(&mut cx, op));
        }
        loop {
            match op(&mut cx) {
                Ok(value) => return Ok(Ok(value)),
                Err(Stop::Fail(e)) => return Ok(Err(e)),
                Err(Stop::Fetch(ptrs)) => {
                    let frames = block_on(self.core.agg.cache().fetch(&ptrs))?;
                    cx.pin(&ptrs, frames);
                }
                Err(Stop::Wait(_) | Stop::Land) => return Err(StoreError::NoMemory),
            }
        }
    }

    /// Returns an inode for recovery; `None` if it does not exist.
    fn existing(&self, ino: Ino) -> Result<Option<Arc<Inode>>, StoreError> {
        match self.within(|cx| self.inode(cx, ino))? {
            Ok(inode) => {
                let dead = inode.state.read().dead;
                Ok((!dead).then_some(inode))
            }
            Err(FsError::Stale) => Ok(None),
            Err(e) => Err(failed(e)),
        }
    }

    /// Applies one edit to the overlays.
    pub(crate) fn apply(
        &self,
        pass: &ChangePermit<'_>,
        edit: Edit<'_>,
        pages: &mut impl Iterator<Item = Frame>,
    ) -> Result<(), StoreError> {
        let live = pass.live();
        let mut reservation = Reservation::if_possible(&self.core.agg, 4);
        let (Edit::Inode { ino, .. }
        | Edit::Dead { ino }
        | Edit::PutEntry { dir: ino, .. }
        | Edit::DelEntry { dir: ino, .. }
        | Edit::Symlink { ino, .. }
        | Edit::Pages { ino, .. }
        | Edit::Placed { ino, .. }
        | Edit::Side { ino, .. }
        | Edit::Punch { ino, .. }
        | Edit::Share { ino, .. }
        | Edit::Cut { ino, .. }) = edit
        else {
            return Ok(());
        };
        // Saturates: the number comes from the log.
        self.counters.begin_inodes_at(ino.0.saturating_add(1));
        let found = self.existing(ino)?;
        let (inode, new) = match (found, &edit) {
            (Some(inode), _) => (inode, false),
            (None, Edit::Inode { rec, .. }) => (
                Arc::new(Inode::new(ino, InodeRec { blocks: 0, ..*rec })),
                true,
            ),
            (None, edit) => {
                // The edit's pages are skipped with it.
                if let Edit::Pages { count, .. } = edit {
                    pages.take(usize::from(*count)).for_each(drop);
                }
                if let Some((addr, count)) = edit.place() {
                    self.core.agg.space().mark_recovered(addr, count)?;
                    self.core.placements.leave_unused([(addr, count)]);
                }
                if !matches!(edit, Edit::Dead { .. }) {
                    tracing::error!(volume = %self.id, inode = %ino, "cannot replay a record of the log: unknown inode");
                }
                return Ok(());
            }
        };
        let cloned = match &edit {
            Edit::Share {
                first,
                blocks,
                source,
                ..
            } => self.cloned(*source, *blocks, *first)?,
            _ => Contents::default(),
        };
        let mut st = inode.state.write();
        let st = &mut *st;
        match edit {
            Edit::Inode { rec, .. } => {
                self.counters.raise_top(rec.change);
                let was_link = st.rec.kind == FileKind::Symlink;
                let delta = self.touch(pass, &inode, st, &mut reservation);
                delta.new |= new;
                if was_link && rec.kind != FileKind::Symlink {
                    // An inode of another kind has no target.
                    delta.symlink = Some(Box::default());
                }
                st.rec = InodeRec {
                    blocks: st.rec.blocks,
                    ..rec
                };
                if st.rec.nlink == 0 {
                    live.unlinked.insert(ino);
                }
                if new {
                    self.table.insert_new(&inode);
                }
            }
            Edit::Dead { .. } => {
                let nameless = live.unlinked.remove(ino);
                let delta = self.touch(pass, &inode, st, &mut reservation);
                delta.bury();
                delta.unlinked |= nameless;
                st.dead = true;
                st.rec.nlink = 0;
            }
            Edit::PutEntry { cookie, entry, .. } => {
                let delta = self.touch(pass, &inode, st, &mut reservation);
                delta.put_name(cookie, entry.to_owned(), false);
                let charge = reservation.take(1);
                self.charge(delta, charge, ENTRY_BYTES + entry.name.len() as u64);
            }
            Edit::DelEntry { cookie, .. } => {
                let delta = self.touch(pass, &inode, st, &mut reservation);
                delta.remove_name(cookie);
                let charge = reservation.take(1);
                self.charge(delta, charge, ENTRY_BYTES);
            }
            Edit::Symlink { target, .. } => {
                let delta = self.touch(pass, &inode, st, &mut reservation);
                delta.symlink = Some(target.into());
            }
            Edit::Pages { first, count, .. } => {
                let delta = self.touch(pass, &inode, st, &mut reservation);
                for (block, frame) in (first..).zip(pages.take(usize::from(count))) {
                    self.put_recovered(delta, block, Page::logged(frame));
                }
            }
            Edit::Placed {
                first, addr, crcs, ..
            } => {
                let found = self.placed(addr, crcs)?;
                let delta = self.touch(pass, &inode, st, &mut reservation);
                for (block, page) in (first..).zip(found) {
                    self.put_recovered(delta, block, page);
                }
            }
            Edit::Punch { first, blocks, .. } => {
                let delta = self.touch(pass, &inode, st, &mut reservation);
                delta.file().punch(first, first + blocks);
                let charge = reservation.take(2);
                self.charge(delta, charge, RANGE_BYTES);
            }
            Edit::Share { .. } => {
                let delta = self.touch(pass, &inode, st, &mut reservation);
                for (first, share) in cloned.shares {
                    delta.file().share(first, share);
                    let charge = reservation.take(2);
                    self.charge(delta, charge, 2 * RANGE_BYTES);
                }
                for (block, frame) in cloned.pages {
                    if let Some(frame) = frame {
                        self.put_recovered(delta, block, Page::logged(frame));
                    }
                }
            }
            Edit::Side {
                kind, sub, value, ..
            } => {
                let delta = self.touch(pass, &inode, st, &mut reservation);
                let heap = ENTRY_BYTES + value.map_or(0, <[u8]>::len) as u64;
                delta.put_side(kind, sub, value.map(Box::from));
                let charge = reservation.take(1);
                self.charge(delta, charge, heap);
            }
            Edit::Snapshot(_)
            | Edit::VolumeMade { .. }
            | Edit::Call { .. }
            | Edit::Opened
            | Edit::Position(_)
            | Edit::Client { .. } => {}
            Edit::Cut { size, .. } => {
                let tail = self.within(|cx| self.cut_tail(cx, ino, st, size))?;
                let tail = tail.map_err(failed)?;
                let delta = self.touch(pass, &inode, st, &mut reservation);
                delta.file().cut(blocks_of(size));
                if let Some(tail) = tail {
                    self.put_recovered(delta, tail.block, tail.page);
                }
            }
        }
        Ok(())
    }

    /// Applies pages to an inode, if it exists.
    pub(crate) fn apply_pages(
        &self,
        pass: &ChangePermit<'_>,
        ino: Ino,
        pages: impl Iterator<Item = (u64, Page)>,
    ) -> Result<(), StoreError> {
        let Some(inode) = self.existing(ino)? else {
            return Err(failed(FsError::Stale));
        };
        let mut reservation = Reservation::if_possible(&self.core.agg, 4);
        let mut st = inode.state.write();
        let delta = self.touch(pass, &inode, &mut st, &mut reservation);
        for (block, page) in pages {
            self.put_recovered(delta, block, page);
        }
        Ok(())
    }

    /// Finds the contents of a clone at its source, by the target's blocks.
    fn cloned(&self, from: (Ino, u64), blocks: u64, to: u64) -> Result<Contents, StoreError> {
        match self.existing(from.0)? {
            Some(source) => self.replayed_contents(&source, from.1, blocks, to),
            None => {
                tracing::error!(volume = %self.id, inode = %from.0, "cannot replay a clone of the log: unknown inode");
                Ok(Contents::default())
            }
        }
    }

    fn put_recovered(&self, delta: &mut Delta, block: u64, page: Page) {
        let mut reservation = Reservation::if_possible(&self.core.agg, 2);
        self.put_page(delta, block, page, &mut reservation);
    }

    /// Returns the pages that a record describes as stored in place. They are not read: see
    /// [`crate::overlay::direct`].
    fn placed(&self, addr: BlockAddr, crcs: Crcs<'_>) -> Result<Vec<Page>, StoreError> {
        let owned = self.core.agg.space().mark_recovered(addr, crcs.len())?;
        if owned > 0 {
            return Err(StoreError::Corrupt {
                addr,
                what: "the intent log and the trees both refer to it",
            });
        }
        let placed = (addr.0..).zip(crcs.iter()).map(|(addr, crc)| PlacedPage {
            addr: BlockAddr(addr),
            crc,
        });
        Ok(placed.map(|placed| Page::placed(None, placed)).collect())
    }
}
