//! The standby's side of a pair: applies the stream of another engine's changes.
//!
//! **Everything is logged.** Each entry becomes one record of this side's own log, whether the
//! primary logged it or not. The record contains the entry's position ([`Edit::Position`] as its
//! last edit). So the state after any crash is exactly that of the position that recovery finds: a
//! prefix of the primary's history, unstable data included. The stream continues after it. There is
//! no second position after which some of the data is missing. An acknowledgement always means that
//! this entry and all before it are durable here.
//!
//! A change of a whole volume is not a record: it is carried out, a checkpoint makes it durable,
//! and then a record of its own stores the position. After a crash between the two it is carried
//! out again, which changes nothing.
//!
//! **In two steps.** [`Engine::prepare_entry`] waits for everything that an entry needs. That is
//! room in the log and in memory, inodes and blocks to be read, snapshots to be made by a
//! checkpoint. [`Engine::apply_entry`] does not wait: it appends and applies under the epoch lock,
//! so that a checkpoint has the whole entry or nothing of it. [`Engine::try_entry`] does both for
//! an entry that has all it needs, as almost all do, so the receiving thread can call it. Only one
//! thread at a time may call them.
//!
//! **Pages in advance.** The primary sends the data of a large stable write before the entry
//! ([`weir_store::log::advance`]). It is written in [place](AdvanceWrite) here at once, as on the
//! primary ([`crate::overlay::direct`]). The record then names the location. It may wait for the
//! data to arrive; an entry that is not durable yet is not acknowledged either way.
//!
//! A standby engine has no other source of changes, and unlinked inodes stay until the primary ends
//! them.

use std::fmt;

use weir_base::{BLOCK_SIZE, Ino, Lsn, Time, VolumeId};
use weir_store::frame::FrameMut;
use weir_store::{Class, Frame, StoreError};

use crate::format::calls::DoneCall;
use crate::format::catalog::{AGGREGATE_TREE, StreamPosition};
use crate::format::edit::{self, Edit, Edits, SnapshotEdit};
use crate::format::mark::MarkId;
use crate::format::record::InodeRec;
use crate::format::step::Step;
use crate::format::volume_change::VolumeChange;
use crate::lifecycle::engine::Engine;
use crate::lifecycle::recovery;
use crate::overlay::context::EngineContext;
use crate::overlay::direct::{Direct, DirectBlock};
use crate::overlay::event::block_on;
use crate::overlay::file_delta::Page;
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, LiveVolume};
use crate::types::{Backpressure, FsError, Stop};
use weir_base::limits::engine::SEALED_MOST;

/// Reason why an entry was not applied. Except after [`StandbyError::Engine`], the copy cannot
/// continue from its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StandbyError {
    /// The entry does not follow the position.
    Gap {
        /// The position of this copy.
        at: StreamPosition,
        /// The position of the entry.
        got: StreamPosition,
    },
    /// The entry does not decode.
    Malformed(String),
    /// The entry does not fit the local state: the copies are not equal.
    Diverged(String),
    /// This copy does not have the base mark of the difference.
    NoMark(MarkId),
    /// This side failed: no space, or it is poisoned.
    Engine(FsError),
}

impl fmt::Display for StandbyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandbyError::Gap { at, got } => {
                write!(f, "entry {got:?} does not follow {at:?}")
            }
            StandbyError::Malformed(what) => write!(f, "malformed entry: {what}"),
            StandbyError::Diverged(what) => write!(f, "the copies are not equal: {what}"),
            StandbyError::NoMark(mark) => write!(f, "mark {mark} does not exist here"),
            StandbyError::Engine(e) => write!(f, "cannot apply the entry: {e}"),
        }
    }
}

impl std::error::Error for StandbyError {}

impl From<FsError> for StandbyError {
    fn from(e: FsError) -> StandbyError {
        StandbyError::Engine(e)
    }
}

/// Data of a future entry that is being written in place on this side. Dropping it gives up the
/// blocks.
pub struct AdvanceWrite(Direct);

/// Pages of an entry that were sent before it.
pub struct Ahead {
    /// Number of pages before them that come with the entry; the other pages come after them.
    pub first: usize,
    /// The pages that came before the entry.
    pub placing: AdvanceWrite,
}

/// The effect of an entry whose data is already in place: a write of an inode.
struct PlacedWrite<'a> {
    ino: Ino,
    rec: &'a InodeRec,
    /// The file block of the first page.
    block: u64,
    ahead: Ahead,
}

/// A decoded entry.
enum DecodedEntry<'a> {
    Step(Step<'a>),
    Change(VolumeId, VolumeChange<'a>),
    Record(VolumeId, Vec<Edit<'a>>),
}

fn parse(meta: &[u8], pages: usize) -> Result<DecodedEntry<'_>, StandbyError> {
    let malformed = |what: &dyn fmt::Display| StandbyError::Malformed(what.to_string());
    match Step::decode(meta) {
        Some(Ok(_)) if pages > 0 => return Err(malformed(&"pages that nothing refers to")),
        Some(Ok(step)) => return Ok(DecodedEntry::Step(step)),
        Some(Err(())) => return Err(malformed(&"a step towards a mark")),
        None => {}
    }
    match VolumeChange::decode(meta) {
        Some(Ok(_)) if pages > 0 => Err(malformed(&"pages that nothing refers to")),
        Some(Ok((volume, change))) => Ok(DecodedEntry::Change(volume, change)),
        Some(Err(())) => Err(malformed(&"a change of a volume")),
        None => {
            let (volume, edits) = edit::decode(meta, pages).map_err(|e| malformed(&e))?;
            if edits.is_empty() || edits.iter().any(|edit| edit.place().is_some()) {
                return Err(malformed(&"nothing, or blocks of another device"));
            }
            Ok(DecodedEntry::Record(volume, edits))
        }
    }
}

impl Engine {
    /// Allocates a page to receive into; waits for memory.
    ///
    /// # Errors
    /// `ReadOnly`, `Delay`.
    pub fn blank_page(&self) -> Result<FrameMut, FsError> {
        loop {
            if let Some(frame) = self.core.agg.cache().alloc(Class::Foreground) {
                return Ok(frame);
            }
            block_on(self.core.relieved(Backpressure::Memory))?;
        }
    }

    /// Starts writing these pages, at least one, in place on this side: an entry will follow that
    /// has them. Returns `None` if there is no space or memory without waiting.
    pub fn place(&self, pages: &[Box<[u8]>]) -> Option<AdvanceWrite> {
        let cache = self.core.agg.cache();
        let frames = pages.iter().map(|page| {
            let mut frame = cache.alloc(Class::Foreground)?;
            frame.copy_from_slice(page);
            Some(frame.freeze())
        });
        let frames: Option<Vec<(u64, Frame)>> = (0..)
            .zip(frames)
            .map(|(at, frame)| Some((at, frame?)))
            .collect();
        let frames = frames?;
        let mut reservation = Reservation::try_new(&self.core.agg, frames.len() as u64)?;
        let direct = Direct::begin(&self.core.placements, &mut reservation, frames)?;
        Some(AdvanceWrite(direct))
    }

    /// Takes over: the applied state is what clients see from now on. `at`: the beginning of a term
    /// of this side's own. No further entry of the old primary is applied. Durable on return.
    ///
    /// State that the primary has shown to clients and this side never got is lost as in a crash:
    /// inode numbers and change counters continue above it.
    ///
    /// # Errors
    /// `Invalid` for a position before the present one; `ReadOnly`, `Delay`.
    pub fn take_over(&self, at: StreamPosition) -> Result<(), FsError> {
        let core = &self.core;
        if at < core.log.position() {
            return Err(FsError::Invalid);
        }
        core.schedule.admit_blocking(128)?;
        let lsn = core.epoch_lock().exclusive(|| {
            let mut opened = Edits::new(AGGREGATE_TREE, 9);
            opened.opened();
            core.log.append(opened).map_err(Stop::refusal)?;
            let mut edits = Edits::new(AGGREGATE_TREE, 17);
            edits.position(at);
            let lsn = core.log.append(edits).map_err(Stop::refusal)?;
            recovery::skip_inodes(&self.cp);
            self.cp.table().raise_change_bases();
            core.log.note_position(at);
            Ok(lsn)
        })?;
        if core.clients.is_empty() {
            core.end_grace();
        }
        self.wait_durable(Some(lsn))
    }

    /// Waits for everything that [`Engine::apply_entry`] needs for this entry of the primary's
    /// stream, which has `pages` pages besides those that came before. May take checkpoints.
    ///
    /// # Errors
    /// [`StandbyError`].
    pub fn prepare_entry(
        &self,
        meta: &[u8],
        pages: usize,
        ahead: Option<&mut Ahead>,
    ) -> Result<(), StandbyError> {
        let before = came_before(ahead.as_deref());
        let DecodedEntry::Record(id, edits) = parse(meta, pages + before)? else {
            return Ok(());
        };
        if let Some(ahead) = ahead {
            let landed = block_on(ahead.placing.0.land());
            landed.map_err(|error| self.core.unwritten(&error))?;
        }
        let bytes = meta.len() + pages * BLOCK_SIZE + 64;
        self.core.schedule.admit_blocking(bytes as u64)?;
        let needed = 2 * pages as u64 + 8 * edits.len() as u64;
        if self.core.capacity().1 < needed {
            // A checkpoint releases excess reservations.
            self.cp_now()?;
            if self.core.capacity().1 < needed {
                return Err(FsError::NoSpace.into());
            }
        }
        let Some(vol) = self.cp.table().get(id) else {
            return Ok(());
        };
        for edit in &edits {
            match edit {
                Edit::Snapshot(edit) => self.prepare_snapshot(&vol, *edit)?,
                edit => vol.load_for(edit)?,
            }
        }
        Ok(())
    }

    /// Returns true if [`Engine::prepare_entry`] would not wait.
    fn has_all(&self, meta: &[u8], id: VolumeId, edits: &[Edit<'_>], pages: usize) -> bool {
        let bytes = meta.len() + pages * BLOCK_SIZE + 64;
        let needed = 2 * pages as u64 + 8 * edits.len() as u64;
        if self.core.schedule.admit(bytes as u64).is_err() || self.core.capacity().1 < needed {
            return false;
        }
        let Some(vol) = self.cp.table().get(id) else {
            return true;
        };
        edits.iter().all(|edit| match edit {
            // Waits until no other operation runs, and perhaps for a checkpoint.
            Edit::Snapshot(_) => false,
            edit => vol.has_loaded(edit),
        })
    }

    /// Prepares and applies the entry at `at`, unless it would have to wait: then it returns
    /// `None`, and nothing has changed. The entry is durable when the log has reached the LSN.
    ///
    /// # Errors
    /// As [`Engine::apply_entry`].
    pub fn try_entry(
        &self,
        at: StreamPosition,
        meta: &[u8],
        pages: &[Box<[u8]>],
        ahead: &mut Option<Ahead>,
    ) -> Result<Option<Lsn>, StandbyError> {
        let before = came_before(ahead.as_ref());
        let parsed = parse(meta, pages.len() + before)?;
        let DecodedEntry::Record(id, edits) = &parsed else {
            return Ok(None);
        };
        if let Some(ahead) = ahead {
            let landed = ahead.placing.0.landed();
            if !landed.map_err(|error| self.core.unwritten(&error))? {
                return Ok(None);
            }
        }
        if !self.has_all(meta, *id, edits, pages.len()) {
            return Ok(None);
        }
        let mut frames = Vec::with_capacity(pages.len());
        for page in pages {
            let Some(mut frame) = self.core.agg.cache().alloc(Class::Foreground) else {
                return Ok(None);
            };
            frame.copy_from_slice(page);
            frames.push(frame.freeze());
        }
        let ahead = ahead.take();
        self.apply_parsed(at, meta, parsed, frames, ahead).map(Some)
    }

    /// Waits for progress of background jobs, which have to continue before `what` can be done.
    pub(crate) fn go_on(&self, what: &str) -> Result<(), StandbyError> {
        let pending = self.reclaiming();
        self.cp_now()?;
        match pending || self.reclaiming() {
            true => Ok(()),
            false => Err(StandbyError::Diverged(what.to_owned())),
        }
    }

    fn prepare_snapshot(
        &self,
        vol: &LiveVolume,
        edit: SnapshotEdit<'_>,
    ) -> Result<(), StandbyError> {
        let live = vol.live();
        match edit {
            SnapshotEdit::Made { .. } => {
                while vol.splitting() {
                    self.go_on("a snapshot of a clone that is being split")?;
                }
                if live.segments.sealed() >= SEALED_MOST {
                    self.cp_now()?;
                }
            }
            SnapshotEdit::Gone { id } => {
                let needed = || {
                    let snapshot = live.snaps.lock().get(id);
                    snapshot.is_some_and(|s| s.clones > 0)
                };
                if needed() {
                    self.cp_now()?;
                }
                while needed() {
                    self.go_on("a snapshot is deleted that a clone depends on")?;
                }
            }
            SnapshotEdit::Named { .. } => {}
        }
        Ok(())
    }

    /// Applies the entry at `at`, for which [`Engine::prepare_entry`] has just returned. It is
    /// durable when the log has reached the LSN.
    ///
    /// # Errors
    /// [`StandbyError`]; the engine is poisoned if the entry may have been applied in part.
    pub fn apply_entry(
        &self,
        at: StreamPosition,
        meta: &[u8],
        pages: Vec<Frame>,
        ahead: Option<Ahead>,
    ) -> Result<Lsn, StandbyError> {
        let before = came_before(ahead.as_ref());
        let parsed = parse(meta, pages.len() + before)?;
        self.apply_parsed(at, meta, parsed, pages, ahead)
    }

    fn apply_parsed(
        &self,
        at: StreamPosition,
        meta: &[u8],
        parsed: DecodedEntry<'_>,
        pages: Vec<Frame>,
        ahead: Option<Ahead>,
    ) -> Result<Lsn, StandbyError> {
        let before = self.core.log.position();
        let begins = matches!(parsed, DecodedEntry::Step(Step::Begin { .. }));
        let next = before.sequence.checked_add(1);
        let follows = before.term == at.term && next == Some(at.sequence);
        if at.mark().is_some() && begins && at.entries() == 1 {
            // A round may begin at any position of the copy.
        } else if !follows || begins {
            return Err(StandbyError::Gap {
                at: before,
                got: at,
            });
        }
        if let DecodedEntry::Record(_, edits) = &parsed {
            self.check_trees(edits)?;
        }
        match (parsed, ahead) {
            (DecodedEntry::Record(id, edits), Some(ahead)) => {
                let write = placed_write(&edits, pages.len(), ahead)?;
                self.apply_placed(at, id, write, pages)
            }
            (DecodedEntry::Record(id, edits), None) => {
                self.apply_record(at, meta, id, edits, pages)
            }
            (DecodedEntry::Step(step), _) => self.apply_step(at, step),
            (DecodedEntry::Change(id, change), _) => {
                self.change_volume(id, change)?;
                self.note_position(at).map_err(|stop| stop.refusal().into())
            }
        }
    }

    /// Applies a write whose data is mostly in place.
    fn apply_placed(
        &self,
        at: StreamPosition,
        id: VolumeId,
        write: PlacedWrite<'_>,
        pages: Vec<Frame>,
    ) -> Result<Lsn, StandbyError> {
        let core = &self.core;
        let PlacedWrite {
            ino,
            rec,
            block,
            ahead: Ahead { first, placing },
        } = write;
        let (from, count) = (block + first as u64, placing.0.len() as u64);
        let numbers = (block..from).chain(from + count..);
        let around: Vec<(u64, Frame)> = numbers.zip(pages).collect();
        let vol = self.cp.table().get(id).ok_or_else(|| unknown(id))?;
        let mut edits = Edits::new(id, 180 + 4 * count as usize);
        edits.inode(ino, rec);
        edits.pages(ino, around.iter().map(|(block, page)| (*block, page)));
        let places = placing.0.sent().iter().map(DirectBlock::place);
        edits.placed(ino, places.map(|(at, placed)| (from + at, placed)));
        edits.position(at);
        let pass = core.epoch_lock().enter();
        let lsn = core.log.append(edits).map_err(Stop::refusal)?;
        let pass = ChangePermit::with(pass, &vol);
        let sent = placing.0.taken().into_iter();
        let pages = around
            .into_iter()
            .map(|(block, frame)| (block, Page::logged(frame)))
            .chain(sent.map(|sent| sent.behind(from).page()));
        let mut none = std::iter::empty();
        vol.apply(&pass, Edit::Inode { ino, rec: *rec }, &mut none)
            .and_then(|()| vol.apply_pages(&pass, ino, pages))
            .map_err(|e| self.half(&e))?;
        core.log.note_position(at);
        core.schedule.note_change();
        Ok(lsn)
    }

    fn apply_record(
        &self,
        at: StreamPosition,
        meta: &[u8],
        id: VolumeId,
        edits: Vec<Edit<'_>>,
        pages: Vec<Frame>,
    ) -> Result<Lsn, StandbyError> {
        let core = &self.core;
        let table = self.cp.table();
        let append = || {
            let record = Edits::again(meta, &pages, at);
            core.log.append(record).map_err(Stop::refusal)
        };
        let noted = |lsn| {
            core.log.note_position(at);
            core.schedule.note_change();
            Ok(lsn)
        };
        match edits.first() {
            // These edits concern the primary alone.
            Some(Edit::Opened | Edit::Position(_)) => {
                return self.note_position(at).map_err(|stop| stop.refusal().into());
            }
            Some(Edit::Client { number, record }) => {
                let _pass = core.epoch_lock().enter();
                return noted(core.clients.record(*number, *record, append)?);
            }
            Some(Edit::Snapshot(edit)) => {
                let vol = table.get(id).ok_or_else(|| unknown(id))?;
                return core.epoch_lock().exclusive(|| {
                    let lsn = append()?;
                    vol.replay_snapshot(vol.live(), *edit);
                    noted(lsn)
                });
            }
            _ => {}
        }
        let pass = core.epoch_lock().enter();
        let (vol, lsn) = match (table.get(id), edits.first()) {
            (Some(vol), _) => (vol, append()?),
            (None, Some(Edit::VolumeMade { key, name })) => {
                let lsn = append()?;
                (table.add_empty(core, id, *key, name), lsn)
            }
            (None, _) => return Err(unknown(id)),
        };
        let pass = ChangePermit::with(pass, &vol);
        let mut pages = pages.into_iter();
        for edit in edits {
            match edit {
                Edit::VolumeMade { .. } => {}
                Edit::Call { ino, key, secs } => core.log.calls().push(DoneCall {
                    key,
                    volume: id,
                    ino,
                    secs,
                }),
                edit => vol
                    .apply(&pass, edit, &mut pages)
                    .map_err(|e| self.half(&e))?,
            }
        }
        noted(lsn)
    }

    /// Poisons the engine because an entry was applied in part.
    fn half(&self, error: &StoreError) -> StandbyError {
        let why = format!("cannot apply an entry of the primary's stream: {error}");
        self.core.agg.poison(&why);
        StandbyError::Engine(FsError::ReadOnly)
    }

    /// Makes the same change to a volume that the primary made to its own. Durable on return.
    fn change_volume(&self, id: VolumeId, change: VolumeChange<'_>) -> Result<(), StandbyError> {
        let Some(vol) = self.cp.table().get(id) else {
            return match change {
                // Carried out before a crash, or for a volume that no longer exists.
                VolumeChange::Retired
                | VolumeChange::Limit { .. }
                | VolumeChange::Annotated { .. } => Ok(()),
                _ => Err(unknown(id)),
            };
        };
        match change {
            VolumeChange::Retired => {
                self.patiently("a volume is deleted", || self.retire_volume(vol.name()))?;
            }
            VolumeChange::Reverted { snapshot } => {
                let revert = || self.revert(vol.name(), snapshot);
                self.patiently("a volume is reverted", revert)?;
            }
            VolumeChange::Cloned {
                number,
                snapshot,
                name,
            } => {
                let made = match self.cp.table().find_by_name(name) {
                    Some(clone) => clone.id,
                    None => {
                        let clone = || self.clone_as(vol.name(), snapshot, name, Some(number));
                        self.patiently("a volume is cloned", clone)?.id()
                    }
                };
                if made != number {
                    let what = format!("clone {name} has number {made}, not {number}");
                    return Err(StandbyError::Diverged(what));
                }
            }
            VolumeChange::Split => {
                self.patiently("a clone is split", || self.split_clone(vol.name()))?;
            }
            VolumeChange::Limit { bytes } => self.set_limit(&vol, bytes),
            VolumeChange::Annotated { text } => self.annotate(&vol, text)?,
        }
        Ok(self.cp_now()?)
    }

    /// Refuses inodes in trees if the format of this folder has none: a program that does not know
    /// them would take them for damage.
    fn check_trees(&self, edits: &[Edit<'_>]) -> Result<(), StandbyError> {
        let in_tree = |edit: &Edit<'_>| matches!(edit, Edit::Inode { rec, .. } if rec.tree != 0);
        match !self.core.has_trees() && edits.iter().any(in_tree) {
            true => Err(StandbyError::Malformed(
                "an inode of a qtree, and the data folder has no qtrees (stop this node and run `weir upgrade`)"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Retries an operation as long as background jobs, which the primary has completed, are in the
    /// way.
    pub(crate) fn patiently<T>(
        &self,
        what: &str,
        act: impl Fn() -> Result<T, FsError>,
    ) -> Result<T, StandbyError> {
        loop {
            match act() {
                Err(FsError::Busy) => self.go_on(what)?,
                Err(e @ (FsError::ReadOnly | FsError::Io | FsError::Delay)) => return Err(e.into()),
                Err(e) => return Err(StandbyError::Diverged(format!("{what}: {e}"))),
                Ok(done) => return Ok(done),
            }
        }
    }
}

/// Returns the write of an entry of which `ahead` came before, and `pages` more with it.
fn placed_write<'a>(
    edits: &'a [Edit<'_>],
    pages: usize,
    ahead: Ahead,
) -> Result<PlacedWrite<'a>, StandbyError> {
    match edits {
        [
            Edit::Inode { ino, rec },
            Edit::Pages {
                ino: of,
                first: block,
                count,
            },
        ] if ino == of
            && ahead.first <= pages
            && usize::from(*count) == pages + ahead.placing.0.len() =>
        {
            Ok(PlacedWrite {
                ino: *ino,
                rec,
                block: *block,
                ahead,
            })
        }
        _ => Err(StandbyError::Malformed(
            "pages that came before it, and it is no write of them".to_owned(),
        )),
    }
}

/// Returns the number of pages of an entry that came before it.
fn came_before(ahead: Option<&Ahead>) -> usize {
    ahead.map_or(0, |ahead| ahead.placing.0.len())
}

fn unknown(id: VolumeId) -> StandbyError {
    StandbyError::Diverged(format!("there is no volume {id}"))
}

/// Returns the inodes that applying the edit needs.
fn inodes_of(edit: &Edit<'_>) -> impl Iterator<Item = Ino> {
    let (ino, source) = match edit {
        Edit::Inode { ino, .. }
        | Edit::Dead { ino }
        | Edit::PutEntry { dir: ino, .. }
        | Edit::DelEntry { dir: ino, .. }
        | Edit::Symlink { ino, .. }
        | Edit::Pages { ino, .. }
        | Edit::Side { ino, .. }
        | Edit::Punch { ino, .. }
        | Edit::Cut { ino, .. } => (Some(*ino), None),
        Edit::Share { ino, source, .. } => (Some(*ino), Some(source.0)),
        _ => (None, None),
    };
    source.into_iter().chain(ino)
}

impl LiveVolume {
    /// Loads everything that applying the edit needs.
    fn load_for(&self, edit: &Edit<'_>) -> Result<(), FsError> {
        inodes_of(edit).try_for_each(|ino| self.load_one(edit, ino))
    }

    /// Returns true if [`LiveVolume::load_for`] would not wait.
    fn has_loaded(&self, edit: &Edit<'_>) -> bool {
        let mut cx = EngineContext::new(Time::EPOCH);
        inodes_of(edit).all(|ino| match (self.inode(&mut cx, ino), edit) {
            (Ok(inode), Edit::Cut { size, .. }) => {
                let state = inode.state.read();
                self.cut_tail(&mut cx, ino, &state, *size).is_ok()
            }
            // The entry creates it.
            (Ok(_) | Err(Stop::Fail(FsError::Stale)), _) => true,
            (Err(_), _) => false,
        })
    }

    fn load_one(&self, edit: &Edit<'_>, ino: Ino) -> Result<(), FsError> {
        let mut cx = EngineContext::new(Time::EPOCH);
        let inode = match self.drive_blocking(&mut cx, |cx| self.inode(cx, ino)) {
            Ok(inode) => inode,
            // The entry creates it.
            Err(FsError::Stale) => return Ok(()),
            Err(e) => return Err(e),
        };
        if let Edit::Cut { size, .. } = edit {
            self.drive_blocking(&mut cx, |cx| {
                self.cut_tail(cx, ino, &inode.state.read(), *size).map(drop)
            })?;
        }
        Ok(())
    }
}
