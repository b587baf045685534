//! The sending side of a synchronisation: brings a copy from one mark, or from nothing, to a newer
//! one.
//!
//! **A round.** The primary makes a mark: a snapshot of all volumes at one moment
//! ([`crate::format::mark`]). The copy lacks the difference between the trees of two marks, or of
//! one and nothing, which is found at a cost proportional to it ([`weir_store::tree::Diff`]). It
//! travels as records of the log's form and is applied like a stream ([`crate::lifecycle::copy`]),
//! so the numbers of inodes, cookies and snapshots are the same. Snapshots between the two marks
//! come one after the other, each as the difference to the one before; a clone begins as its
//! origin's snapshot.
//!
//! **Writes never stop.** A round takes as long as there is data to read, and meanwhile clients
//! change more. Each further round is shorter. The last one begins, at its mark, a stream that
//! [follows](weir_store::log::stream): the copy becomes that mark, and then gets the stream's
//! entries. If they exceed the window, another round follows.
//!
//! **After an interruption** a round resumes after the last entry that the copy has. Entries come
//! in the same order each time, since the trees of a mark do not change. A restarted primary finds
//! the mark as well ([`Engine::reopen_round`]), if everything that it held still exists: positions
//! contain a digest of the plan.
//!
//! Only the plan is held in memory: some hundred bytes for each volume and snapshot, and one entry.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use weir_base::limits::MAX_SYMLINK;
use weir_base::{Ino, VolumeId};
use weir_store::log::stream::{ChangeStream, Sequence};
use weir_store::node::Key;
use weir_store::tree::{Diff, TreeRoot};
use weir_store::{BlockPtr, Frame};

use crate::checkpoint::orphans::read_orphans;
use crate::format::catalog::StreamPosition;
use crate::format::edit::{Edits, SnapshotEdit};
use crate::format::mark::MarkId;
use crate::format::reading::get;
use crate::format::record::{DirentRef, InodeRec, SYMLINK_PIECE, Window, kind};
use crate::format::step::{Step, VolumeStep};
use crate::lifecycle::engine::Engine;
use crate::lifecycle::sending::Source;
use crate::overlay::root::RootState;
use crate::overlay::snapshots::Snapshot;
use crate::overlay::volume::{LiveVolume, Volume};
use crate::types::FsError;

/// Bytes of edits, and pages, after which an entry is complete.
const ENTRY_META: usize = 24 << 10;
const ENTRY_PAGES: usize = 64;
/// Number of calls in one step.
const STEP_CALLS: usize = 1000;

/// The next entry for the copy to apply.
#[derive(Debug)]
pub struct RoundEntry {
    /// Position of the copy once it has applied the entry.
    pub at: StreamPosition,
    /// Edits, encoded as in an entry of a stream.
    pub meta: Vec<u8>,
    /// Contents, verified when they were read.
    pub pages: SmallVec<[Frame; 2]>,
}

/// An entry, and the blocks that contain its pages.
type Unread = (Vec<u8>, Vec<BlockPtr>);

/// A tree whose blocks are kept until this is dropped.
#[derive(Clone)]
struct HeldTree {
    state: Arc<RootState>,
    /// View through which the root learns of the snapshot's end.
    _view: Option<Arc<Volume>>,
}

impl HeldTree {
    fn from_snapshot(vol: &Volume, snapshot: u32) -> Result<HeldTree, FsError> {
        let mut cx = crate::overlay::context::EngineContext::new(weir_base::Time::EPOCH);
        let view = vol.drive_blocking(&mut cx, |_| vol.view(snapshot))?;
        Ok(HeldTree {
            state: view.root.load_full(),
            _view: Some(view),
        })
    }

    fn empty() -> HeldTree {
        HeldTree {
            state: RootState::new(TreeRoot::EMPTY),
            _view: None,
        }
    }
}

/// The difference from one tree to the next.
struct Leg {
    old: HeldTree,
    new: HeldTree,
    /// Inode number after the last one in the old tree.
    next_ino: u64,
    /// Entry that makes a snapshot of the resulting state.
    made: Vec<u8>,
}

/// A volume of a round.
struct RoundVolume {
    vol: Arc<Volume>,
    /// Entries before the legs.
    head: Vec<Vec<u8>>,
    legs: Vec<Leg>,
}

/// Position of a round in a leg.
struct Walk {
    diff: Diff,
    /// Inodes that are being deleted, or are gone: none of their records is sent.
    gone: BTreeSet<u64>,
    /// The new tree.
    root: TreeRoot,
    /// Link whose target differs. It is sent as a whole: a piece of it may be equal.
    link: Option<u64>,
    over: bool,
}

/// A round: see the module's head.
pub struct Round {
    mark: MarkId,
    base: Option<MarkId>,
    volumes: Vec<RoundVolume>,
    tail: Vec<Vec<u8>>,
    digest: u16,
    /// Number of entries made so far.
    made: u64,
    volume: usize,
    leg: usize,
    walk: Option<Walk>,
    /// Entries that are ready.
    ready: VecDeque<Vec<u8>>,
    begun: bool,
    tailing: bool,
}

/// State of a volume at the moment of the mark that is in no tree.
struct VolumeMetadata {
    vol: LiveVolume,
    limit: u64,
    annotation: Arc<str>,
    change: (u64, u64),
    origin: Option<(VolumeId, u32)>,
    snapshots: Vec<Snapshot>,
    marks: Vec<(MarkId, u32)>,
}

impl VolumeMetadata {
    fn from_volume(vol: &LiveVolume) -> VolumeMetadata {
        let snaps = vol.live().snaps.lock();
        VolumeMetadata {
            vol: vol.clone(),
            limit: vol.space.limit(),
            annotation: Arc::default(),
            change: (vol.counters.base(), vol.counters.top()),
            origin: None,
            snapshots: snaps.listing(),
            marks: snaps.marks(),
        }
        .with_rest()
    }

    fn with_rest(mut self) -> VolumeMetadata {
        self.annotation = self.vol.annotation();
        self.origin = self.vol.origin();
        self
    }

    fn id_of(&self, mark: MarkId) -> Option<u32> {
        let found = self.marks.iter().find(|(of, _)| *of == mark);
        found.map(|(_, id)| *id)
    }
}

impl Engine {
    /// Begins a round to a new mark, which this makes, for a copy that has `base`; `None`: a copy
    /// that must have nothing else. `follow` is for the last round, if it is short enough: the
    /// position at which a stream begins that follows, and its window in bytes. The copy is at that
    /// position when the round has ended. Marks other than the two are dropped.
    ///
    /// # Errors
    /// `NotFound` if there is no such mark here; `Busy` as for [`Engine::make_mark`], and if there
    /// is a stream already; `NotSupported` as for [`Engine::begin_stream`]; `Invalid` for a
    /// position not after the present one; `NoSpace`, `ReadOnly`, `Io`.
    pub fn begin_round(
        &self,
        base: Option<MarkId>,
        follow: Option<(StreamPosition, u32)>,
    ) -> Result<(Round, Option<Arc<ChangeStream>>), FsError> {
        let core = &self.core;
        if base.is_some_and(|base| !self.marks().contains(&base)) {
            return Err(FsError::NotFound);
        }
        let volumes = self.cp.table().list_volumes();
        // No operation on a whole volume runs until the roots are known.
        let admins: Vec<_> = volumes.iter().map(|vol| vol.live().admin.lock()).collect();
        self.prepare_mark(&volumes)?;
        let mark = self.next_mark();
        let ids: Vec<VolumeId> = volumes.iter().map(|vol| vol.id).collect();
        let (known, mut tail, stream) = core.epoch_lock().exclusive(|| {
            let table = self.cp.table();
            let now: Vec<VolumeId> = table.list_volumes().iter().map(|vol| vol.id).collect();
            if now != ids {
                return Err(FsError::Busy);
            }
            if volumes.iter().any(|vol| vol.protected()) {
                return Err(FsError::NotSupported);
            }
            // Changes since the present position have no number. It must not be taken for the
            // position at which the stream begins.
            if follow.is_some_and(|(at, _)| at <= core.log.position()) {
                return Err(FsError::Invalid);
            }
            if core.log.ships() {
                return Err(FsError::Busy);
            }
            self.seal_mark(mark, &volumes)?;
            let known: Vec<VolumeMetadata> =
                volumes.iter().map(VolumeMetadata::from_volume).collect();
            let mut tail = Vec::new();
            let mut stream = None;
            if let Some((at, window)) = follow {
                tail = self.not_in_trees();
                let begun = core
                    .agg
                    .log()
                    .attach_following(Sequence(at.sequence), window);
                stream = Some(begun.ok_or(FsError::Busy)?);
                core.log.note_position(at);
                core.schedule.note_change();
            }
            let next_volume = table.next();
            let at = follow.map_or(StreamPosition::at_mark(mark), |(at, _)| at);
            tail.push(Step::End { next_volume, at }.encode());
            Ok((known, std::mem::take(&mut tail), stream))
        })?;
        let round = self
            .cp_now()
            .and_then(|()| self.plan(base, mark, &known, std::mem::take(&mut tail)));
        drop(admins);
        let round = round.inspect_err(|_| self.end_stream())?;
        self.drop_marks(|other| other != mark && Some(other) != base)?;
        Ok((round, stream))
    }

    /// Reopens a round that this side began before it was restarted, to the mark that a copy says
    /// it is receiving.
    ///
    /// # Errors
    /// `NotFound` if it cannot be resumed: another round is needed; `Io`, `ReadOnly`.
    pub fn reopen_round(&self, base: Option<MarkId>, at: StreamPosition) -> Result<Round, FsError> {
        let mark = at.mark().ok_or(FsError::NotFound)?;
        let marks = self.marks();
        let there = |mark: &MarkId| marks.contains(mark);
        if !there(&mark) || base.is_some_and(|base| !there(&base)) {
            return Err(FsError::NotFound);
        }
        let volumes = self.cp.table().list_volumes();
        let admins: Vec<_> = volumes.iter().map(|vol| vol.live().admin.lock()).collect();
        let all = volumes.iter().map(VolumeMetadata::from_volume);
        let known: Vec<VolumeMetadata> = all.filter(|k| k.id_of(mark).is_some()).collect();
        let end = Step::End {
            next_volume: self.cp.table().next(),
            at: StreamPosition::at_mark(mark),
        };
        let round = self.plan(base, mark, &known, vec![end.encode()])?;
        drop(admins);
        match round.digest == at.plan() {
            true => Ok(round),
            false => Err(FsError::NotFound),
        }
    }

    /// Returns the steps and records that transfer the known calls and clients. The epoch lock is
    /// held exclusively.
    fn not_in_trees(&self) -> Vec<Vec<u8>> {
        let mut out = vec![Step::Forget.encode()];
        for (number, record) in self.core.clients.list() {
            let mut edits = Edits::new(crate::format::catalog::AGGREGATE_TREE, 64);
            edits.client(number, Some(&record));
            out.push(edits.meta);
        }
        for calls in self.done_calls().chunks(STEP_CALLS) {
            out.push(Step::Calls(calls.to_vec()).encode());
        }
        out
    }

    fn plan(
        &self,
        base: Option<MarkId>,
        mark: MarkId,
        known: &[VolumeMetadata],
        tail: Vec<Vec<u8>>,
    ) -> Result<Round, FsError> {
        let mut volumes = Vec::with_capacity(known.len());
        let mut digest = Sha256::new();
        for k in known {
            let based = base.filter(|base| is_based(known, k, *base));
            let planned = self.plan_volume(based, mark, k)?;
            let numbers = [
                k.vol.id.0,
                planned.head.len() as u64,
                planned.legs.len() as u64,
            ];
            for number in numbers {
                digest.update(number.to_le_bytes());
            }
            for leg in &planned.legs {
                digest.update(&leg.made);
            }
            volumes.push(planned);
        }
        let [a, b, ..]: [u8; 32] = digest.finalize().into();
        Ok(Round {
            mark,
            base,
            volumes,
            tail,
            // Never all ones: that marks a complete copy.
            digest: u16::from_le_bytes([a, b & 0x7F]),
            made: 0,
            volume: 0,
            leg: 0,
            walk: None,
            ready: VecDeque::new(),
            begun: false,
            tailing: false,
        })
    }

    fn plan_volume(
        &self,
        base: Option<MarkId>,
        mark: MarkId,
        k: &VolumeMetadata,
    ) -> Result<RoundVolume, FsError> {
        let vol = k.vol.volume();
        let target = k.id_of(mark).ok_or(FsError::NotFound)?;
        let based = base.and_then(|base| Some((base, k.id_of(base)?)));
        let mut old = HeldTree::empty();
        let after = match (based, k.origin) {
            (Some((_, id)), _) => {
                old = HeldTree::from_snapshot(vol, id)?;
                id
            }
            (None, Some((origin, id))) => {
                let parent = self.cp.table().get(origin).ok_or(FsError::NotFound)?;
                old = HeldTree::from_snapshot(parent.volume(), id)?;
                0
            }
            (None, None) => 0,
        };
        let kept = |s: &&Snapshot| s.id <= after;
        let key = vol.key.get();
        let step = Step::Volume(VolumeStep {
            number: vol.id,
            base: based.map(|(base, _)| base),
            key,
            limit: k.limit,
            change: k.change,
            origin: k.origin,
            kept: k.snapshots.iter().filter(kept).map(|s| s.id).collect(),
            name: vol.name(),
            annotation: &k.annotation,
        });
        let mut head = vec![step.encode()];
        for s in k.snapshots.iter().filter(kept) {
            let mut edits = Edits::new(vol.id, 64 + s.name.len() + s.label.len());
            edits.snapshot(SnapshotEdit::Named {
                id: s.id,
                name: &s.name,
                label: &s.label,
            });
            head.push(edits.meta);
        }
        let mut legs = Vec::new();
        let name = mark.name();
        let between = k.snapshots.iter().filter(|s| s.id > after && s.id < target);
        let between = between.map(|s| (s.id, s.created, &*s.name, &*s.label));
        let last = k.vol.live().snaps.lock().get(target);
        let last = last.ok_or(FsError::NotFound)?;
        for (id, created, name, label) in between.chain([(target, last.created, &*name, "")]) {
            let next_ino = k.vol.live().snaps.lock().next_ino(id);
            let new = HeldTree::from_snapshot(vol, id)?;
            let mut edits = Edits::new(vol.id, 64 + name.len() + label.len());
            edits.snapshot(SnapshotEdit::Made {
                id,
                created,
                name,
                label,
            });
            legs.push(Leg {
                old: std::mem::replace(&mut old, new.clone()),
                new,
                next_ino: next_ino.ok_or(FsError::NotFound)?,
                made: edits.meta,
            });
        }
        Ok(RoundVolume {
            vol: Arc::clone(vol),
            head,
            legs,
        })
    }
}

/// Returns true if a copy that returns to the mark keeps the volume. It has the mark, and so has
/// its origin if it is a clone, since an origin without the mark (it was reverted to before) is
/// deleted with all its clones.
fn is_based(known: &[VolumeMetadata], k: &VolumeMetadata, base: MarkId) -> bool {
    let origin = |(id, _): (VolumeId, u32)| known.iter().find(|other| other.vol.id == id);
    k.id_of(base).is_some()
        && k.origin
            .and_then(origin)
            .is_none_or(|origin| is_based(known, origin, base))
}

fn unreadable(vol: &Volume, error: &dyn std::fmt::Display) -> FsError {
    tracing::error!(volume = %vol.id, %error, "cannot read a mark to send it");
    FsError::Io
}

impl Walk {
    fn new(vol: &Volume, leg: &Leg) -> Result<Walk, FsError> {
        let mut gone = BTreeSet::new();
        for root in [&leg.old.state.root, &leg.new.state.root] {
            let orphans = read_orphans(&vol.core.agg.source(), root);
            let orphans = orphans.map_err(|e| unreadable(vol, &e))?;
            gone.extend(orphans.dying.iter().map(|ino| ino.0));
        }
        Ok(Walk {
            diff: Diff::new(&leg.old.state.root, &leg.new.state.root),
            gone,
            root: leg.new.state.root,
            link: None,
            over: false,
        })
    }

    /// Returns the next entry's edits, and the blocks with their contents.
    fn fill(&mut self, vol: &Volume) -> Result<Unread, FsError> {
        let mut edits = Edits::new(vol.id, 4096);
        let empty = edits.meta.len();
        let mut blocks = Vec::new();
        while edits.meta.len() < ENTRY_META && blocks.len() < ENTRY_PAGES {
            let found = self.diff.advance(&Source(vol)).map_err(|stop| {
                let error = crate::format::reading::blocking(stop);
                unreadable(vol, &error)
            })?;
            let Some(found) = found else {
                self.over = true;
                self.end_link(vol, None, &mut edits)?;
                break;
            };
            let key = found.key;
            self.end_link(vol, Some(key), &mut edits)?;
            self.put(
                key,
                found.old.as_deref(),
                found.new.as_deref(),
                &mut edits,
                &mut blocks,
            )
            .ok_or_else(|| unreadable(vol, &format!("the record {key} is malformed")))?;
        }
        if edits.meta.len() == empty {
            edits.meta.clear();
        }
        Ok((edits.meta, blocks))
    }

    fn put(
        &mut self,
        key: Key,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
        edits: &mut Edits,
        blocks: &mut Vec<BlockPtr>,
    ) -> Option<()> {
        if key.ino == 0 || kind::OWN.contains(&key.kind) {
            // Unlinked inodes follow from their records; the copy has its own counts.
            return Some(());
        }
        let ino = Ino(key.ino);
        if key.kind == kind::INODE && new.is_none() {
            self.gone.insert(key.ino);
            edits.dead(ino);
            return Some(());
        }
        if self.gone.contains(&key.ino) {
            return Some(());
        }
        match (key.kind, new) {
            (kind::INODE, Some(value)) => edits.inode(ino, &InodeRec::decode(value)?),
            (kind::DIRENT, Some(value)) => {
                edits.put_entry(ino, key.sub, DirentRef::decode(value)?);
            }
            (kind::DIRENT, None) => edits.del_entry(ino, key.sub),
            (kind::SYMLINK, _) => self.link = Some(key.ino),
            (kind::XATTR | kind::ACL | kind::STREAM | kind::TOKEN, value) => {
                edits.side(ino, key.kind, key.sub, value);
            }
            (kind::EXTENT, _) => window(key, old, new, edits, blocks)?,
            _ => return None,
        }
        Some(())
    }

    /// Sends the target of a link whose pieces have all been passed. An inode that is no longer a
    /// link has none; its own record says so.
    fn end_link(
        &mut self,
        vol: &Volume,
        next: Option<Key>,
        edits: &mut Edits,
    ) -> Result<(), FsError> {
        let goes_on = |ino: u64| next.is_some_and(|k| k.ino == ino && k.kind == kind::SYMLINK);
        let Some(ino) = self.link.take_if(|ino| !goes_on(*ino)) else {
            return Ok(());
        };
        let mut target = Vec::new();
        for piece in 0..MAX_SYMLINK.div_ceil(SYMLINK_PIECE) as u64 {
            let key = Key::new(ino, kind::SYMLINK, piece);
            let found = get(&vol.core.agg.source(), &self.root, &key);
            match found.map_err(|e| unreadable(vol, &e))? {
                Some(bytes) => target.extend_from_slice(&bytes),
                None => break,
            }
        }
        if !target.is_empty() {
            edits.symlink(Ino(ino), &target);
        }
        Ok(())
    }
}

/// Returns the difference in a window of blocks.
fn window(
    key: Key,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    edits: &mut Edits,
    blocks: &mut Vec<BlockPtr>,
) -> Option<()> {
    let decode = |value: Option<&[u8]>| value.map_or(Some(Window::EMPTY), Window::decode);
    let (old, new) = (decode(old)?, decode(new)?);
    let mut places = SmallVec::<[u64; 32]>::new();
    for (place, (old, new)) in (key.sub..).zip(old.blocks.iter().zip(&new.blocks)) {
        match (old, new) {
            (Some(_), None) => edits.punch(Ino(key.ino), place, 1),
            (old, Some(stored)) if old.as_ref() != Some(stored) => {
                places.push(place);
                blocks.push(stored.ptr());
            }
            _ => {}
        }
    }
    edits.page_places(Ino(key.ino), places.into_iter());
    Some(())
}

impl Round {
    /// Returns the mark that the copy equals when the round has ended.
    pub fn mark(&self) -> MarkId {
        self.mark
    }

    /// Returns the mark from which the round begins.
    pub fn base(&self) -> Option<MarkId> {
        self.base
    }

    /// Returns the position of a copy that has this many of its entries.
    fn position_after(&self, entries: u64) -> StreamPosition {
        StreamPosition::in_round(self.mark, self.digest, entries)
    }

    /// Returns true if its next entry is the one that a copy at this position applies next.
    pub fn goes_on_at(&self, at: StreamPosition) -> bool {
        match self.made {
            0 => at.mark() != Some(self.mark) || at.entries() == 0,
            _ => at == self.position_after(self.made),
        }
    }

    /// Moves to the entry after those of a copy at this position, without reading contents. Returns
    /// false if the copy is receiving something else, and needs this round from its beginning.
    ///
    /// # Errors
    /// `Io`.
    pub fn seek(&mut self, at: StreamPosition) -> Result<bool, FsError> {
        let entries = at.entries();
        self.rewind();
        let same = at.mark() == Some(self.mark) && !at.is_whole();
        if !same || entries > 0 && at.plan() != self.digest {
            return Ok(false);
        }
        while self.made < entries {
            if self.step()?.is_none() {
                break;
            }
            if self.tailing {
                // The entries after the trees are few, and may differ from before.
                self.rewind_tail(entries);
                break;
            }
        }
        Ok(true)
    }

    /// Restarts at the first entry.
    pub fn rewind(&mut self) {
        (self.made, self.volume, self.leg) = (0, 0, 0);
        (self.begun, self.tailing) = (false, false);
        self.walk = None;
        self.ready.clear();
    }

    fn rewind_tail(&mut self, entries: u64) {
        self.ready = self.tail.iter().cloned().collect();
        self.made = entries;
    }

    /// Returns the next entry; `None` at the end. Blocks the thread while it reads.
    ///
    /// # Errors
    /// `Io`.
    pub fn advance(&mut self) -> Result<Option<RoundEntry>, FsError> {
        let Some((meta, blocks)) = self.step()? else {
            return Ok(None);
        };
        let mut pages = SmallVec::new();
        if let Some(planned) = self.volumes.get(self.volume).filter(|_| !blocks.is_empty()) {
            let vol = &planned.vol;
            let read = Source(vol).read(&blocks);
            pages = read.map_err(|e| unreadable(vol, &e))?.into();
        }
        Ok(Some(RoundEntry {
            at: self.position_after(self.made),
            meta,
            pages,
        }))
    }

    fn step(&mut self) -> Result<Option<Unread>, FsError> {
        let found = self.find()?;
        self.made += u64::from(found.is_some());
        Ok(found)
    }

    fn find(&mut self) -> Result<Option<Unread>, FsError> {
        loop {
            if !self.begun {
                self.begun = true;
                let begin = Step::Begin { base: self.base };
                self.ready.push_back(begin.encode());
                self.enter_volume();
            }
            if let Some(meta) = self.ready.pop_front() {
                return Ok(Some((meta, Vec::new())));
            }
            let Some(planned) = self.volumes.get(self.volume) else {
                if std::mem::replace(&mut self.tailing, true) {
                    return Ok(None);
                }
                self.ready.extend(self.tail.iter().cloned());
                continue;
            };
            let Some(leg) = planned.legs.get(self.leg) else {
                (self.volume, self.leg) = (self.volume + 1, 0);
                self.enter_volume();
                continue;
            };
            let vol = &planned.vol;
            let walk = match &mut self.walk {
                Some(walk) => walk,
                none => none.insert(Walk::new(vol, leg)?),
            };
            if !walk.over {
                let (meta, blocks) = walk.fill(vol)?;
                if !meta.is_empty() {
                    return Ok(Some((meta, blocks)));
                }
                continue;
            }
            self.walk = None;
            self.leg += 1;
            if let Some(ino) = leg.unused_ino(vol)? {
                let mut edits = Edits::new(vol.id, 9);
                edits.dead(ino);
                self.ready.push_back(edits.meta);
            }
            self.ready.push_back(leg.made.clone());
        }
    }

    fn enter_volume(&mut self) {
        if let Some(planned) = self.volumes.get(self.volume) {
            self.ready.extend(planned.head.iter().cloned());
        }
    }
}

impl Leg {
    /// Returns the last assigned number, if no inode has it: its removal tells the copy that it was
    /// used.
    fn unused_ino(&self, vol: &Volume) -> Result<Option<Ino>, FsError> {
        let Some(last) = self.next_ino.checked_sub(1).filter(|last| *last > 1) else {
            return Ok(None);
        };
        let key = Key::new(last, kind::INODE, 0);
        let found = get(&vol.core.agg.source(), &self.new.state.root, &key);
        let found = found.map_err(|e| unreadable(vol, &e))?;
        Ok(found.is_none().then_some(Ino(last)))
    }
}
