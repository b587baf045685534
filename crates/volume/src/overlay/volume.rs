//! One volume: its tree, the inodes in memory, and what all operations share.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, RwLockWriteGuard};
use smallvec::SmallVec;
use weir_base::{BLOCK_SIZE, Ino, Time, VolumeId, invariant};
use weir_store::cache::Cache;
use weir_store::node::Key;
use weir_store::tree::{self, NodeSource, TreeRoot, Value};
use weir_store::{BlockPtr, Frame, RootLife, StoreError};

use crate::format::catalog::{Catalog, Origin};
use crate::format::hash::{KeyCell, VARIANTS, first_cookie};
use crate::format::record::{DirentRef, InodeRec, ROOT_INO, kind};
use crate::lifecycle::receive::Receiving;
use crate::lifecycle::snapshot::{Sealed, Snaps};
use crate::overlay::admission::Promise;
use crate::overlay::core::Core;
use crate::overlay::cx::Cx;
use crate::overlay::delta::{Charge, DELTA_BYTES, Delta, PAGE_BYTES, Page, Put};
use crate::overlay::gate::Pass;
use crate::overlay::inode::{Inode, Inodes, State};
use crate::overlay::unlinked::Unlinked;
use crate::types::{Attr, FileKind, FsError, Pressure, Stop};

/// A committed tree. While it is held, none of its blocks is reused.
///
/// As long as it is the root of its volume or snapshot nothing that it refers to is
/// freed. When it no longer is, whoever takes its place gives it the life of the last
/// consistency point that had it, and from then on it is that which keeps the blocks.
/// So a volume that nobody changes keeps nothing.
pub(crate) struct RootState {
    pub(crate) root: TreeRoot,
    life: OnceLock<Arc<RootLife>>,
}

impl RootState {
    pub(crate) fn new(root: TreeRoot) -> Arc<RootState> {
        Arc::new(RootState {
            root,
            life: OnceLock::new(),
        })
    }

    /// It is about to lose its place; `life` is of the last consistency point that
    /// had it. Before blocks that only it refers to can be reused.
    pub(crate) fn supersede(&self, life: Arc<RootLife>) {
        // The first is the one: a root is superseded once.
        let _ = self.life.set(life);
    }
}

/// A volume. See the crate's head for how operations run.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) key: KeyCell,
    pub(crate) root: ArcSwap<RootState>,
    pub(crate) table: Inodes,
    /// Inodes with changes of the current segment.
    pub(crate) dirty: Mutex<Vec<Arc<Inode>>>,
    /// The number of the current segment: it changes while the gate is closed.
    pub(crate) segment: AtomicU64,
    /// Segments that a snapshot has ended, for the next consistency point.
    pub(crate) sealed: Mutex<Vec<Sealed>>,
    /// The snapshots, as users see them.
    pub(crate) snaps: Mutex<Snaps>,
    /// Held by whoever changes the volume as a whole, or its snapshots.
    pub(crate) admin: Mutex<()>,
    /// 0: operations may change the volume; [`GONE`]: it is deleted; [`CLOSED`]: the engine
    /// has been shut down; otherwise they wait for this consistency point, which reverts it.
    pub(crate) hold: AtomicU64,
    pub(crate) next_ino: AtomicU64,
    /// Capacity in bytes; 0: no limit.
    pub(crate) limit: AtomicU64,
    /// What the control plane has stored with it; empty: nothing. The next consistency point stores it.
    pub(crate) annotation: Mutex<Arc<str>>,
    /// Bytes of it that are kept for what only snapshots hold.
    pub(crate) reserve: AtomicU64,
    /// Data blocks that the committed tree uses; its nodes are not counted.
    pub(crate) used: AtomicU64,
    /// Blocks that overlays of this volume may come to need.
    pub(crate) charged: AtomicU64,
    /// Blocks that only snapshots refer to.
    pub(crate) dead_blocks: AtomicU64,
    /// Added to each inode's change counter: see [`crate::checkpoint::change`].
    pub(crate) change_base: AtomicU64,
    /// No counter has been higher, as of the last consistency point and of what was replayed.
    pub(crate) change_top: AtomicU64,
    /// What is stored of the volume beside its tree; locked by consistency points.
    pub(crate) catalog: Mutex<Catalog>,
    /// Inodes that are open, and those without a name.
    pub(crate) unlinked: Unlinked,
    /// Held by renames that move a directory to another parent, so that no two
    /// of them can make a cycle together.
    pub(crate) renames: Mutex<()>,
    /// What it is a clone of.
    pub(crate) origin: Mutex<Option<Origin>>,
    /// A clone that is being split from its origin.
    pub(crate) splitting: AtomicBool,
    /// A revert is being published: nothing may be loaded.
    pub(crate) swapping: AtomicBool,
    /// A snapshot's view: nothing can be changed.
    pub(crate) read_only: bool,
    /// The snapshot's identity; 0: the volume itself.
    pub(crate) snapshot: u32,
    /// The snapshot whose file-system identity clients see; 0: the volume's own.
    pub(crate) shown_as: u32,
    /// What it is as the destination of a replication.
    pub(crate) mirror: Mutex<Receiving>,
    /// It is one: clients change nothing, and do not see what is in it.
    pub(crate) protected: AtomicBool,
    /// But this view of a snapshot.
    pub(crate) exported: ArcSwapOption<Volume>,
}

/// See [`Volume::hold`].
pub(crate) const GONE: u64 = u64::MAX;

/// See [`Volume::hold`].
pub(crate) const CLOSED: u64 = u64::MAX - 1;

/// Several inodes, locked for writing in the order of their numbers.
pub(crate) struct Locked<'a> {
    held: SmallVec<[(&'a Arc<Inode>, RwLockWriteGuard<'a, State>); 4]>,
}

impl<'a> Locked<'a> {
    /// Locks these inodes, each once.
    pub(crate) fn new(inodes: &[&'a Arc<Inode>]) -> Locked<'a> {
        let mut order: SmallVec<[&'a Arc<Inode>; 4]> = SmallVec::from_slice(inodes);
        order.sort_unstable_by_key(|i| i.ino);
        order.dedup_by_key(|i| i.ino);
        Locked {
            held: order.into_iter().map(|i| (i, i.state.write())).collect(),
        }
    }

    pub(crate) fn get(&self, ino: Ino) -> Result<&State, Stop> {
        self.held
            .iter()
            .find(|(i, _)| i.ino == ino)
            .map(|(_, s)| &**s)
            .ok_or(Stop::Fail(FsError::Invalid))
    }

    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<(&'a Arc<Inode>, &mut State)> {
        let found = self.held.iter_mut().find(|(i, _)| i.ino == ino);
        // What is logged by now has to be changed.
        invariant!(
            found.is_some(),
            "inode {ino} is to be changed, and is not locked"
        );
        found.map(|(i, s)| (*i, &mut **s))
    }
}

/// A directory entry that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    pub(crate) cookie: u64,
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
}

/// A place for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Free {
    pub(crate) cookie: u64,
    /// Neither overlays nor the tree mention the cookie.
    pub(crate) bare: bool,
}

/// What a search for a name gives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Search {
    Hit(Hit),
    /// Absent; this cookie is free for it, if any is.
    Miss(Option<Free>),
}

/// Nodes for operations: from the cache or what the request has pinned.
pub(crate) struct Source<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) cx: &'a Cx,
}

impl NodeSource for Source<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, tree::Stop> {
        if let Some(frame) = self.cache.get(ptr) {
            return Ok(frame);
        }
        if let Some(frame) = self.cx.pinned(ptr) {
            return Ok(frame.clone());
        }
        if self.cx.is_bad(ptr) {
            return Err(tree::Stop::Fail(StoreError::Corrupt {
                addr: ptr.addr,
                what: "could not be read",
            }));
        }
        Err(tree::Stop::fetch(*ptr))
    }
}

impl Search {
    /// What a search found in a directory whose change number was `then`, if
    /// that is still true: every change of a directory's entries raises it.
    pub(crate) fn still(self, then: u64, st: &State) -> Option<Search> {
        (st.rec.change == then).then_some(self)
    }
}

/// Reports a record that its checksum vouches for and that makes no sense.
pub(crate) fn malformed(volume: VolumeId, ino: Ino, what: &'static str) -> Stop {
    tracing::error!(%volume, inode = %ino, what, "malformed record");
    Stop::Fail(FsError::Io)
}

/// Whether an inode still exists.
pub(crate) fn alive(st: &State) -> Result<(), Stop> {
    if st.moved {
        // Nothing to wait for: the repetition finds the inode that took its place.
        return Err(Stop::Wait(Pressure::Epoch(0)));
    }
    if st.dead {
        return Err(Stop::Fail(FsError::Stale));
    }
    Ok(())
}

/// Whether it is a directory that still exists.
pub(crate) fn alive_dir(st: &State) -> Result<(), Stop> {
    alive(st)?;
    if st.rec.kind != FileKind::Directory {
        return Err(Stop::Fail(FsError::NotDir));
    }
    Ok(())
}

/// Whether a name can stand in a directory.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Stop> {
    if name.len() > weir_base::limits::MAX_NAME {
        return Err(Stop::Fail(FsError::NameTooLong));
    }
    if name.is_empty() || name.iter().any(|b| *b == b'/' || *b == 0) {
        return Err(Stop::Fail(FsError::Invalid));
    }
    Ok(())
}

/// Whether it is "." or "..", which cannot be made or removed.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// The record after a change at `now`: a change time strictly later than before
/// (clients compare it to notice changes), and a new change number.
pub(crate) fn stamped(mut rec: InodeRec, now: Time, content: bool) -> InodeRec {
    let after = rec.ctime.plus(std::time::Duration::from_nanos(1));
    rec.ctime = now.max(after);
    if content {
        rec.mtime = rec.ctime;
    }
    rec.change = rec.change.wrapping_add(1);
    rec
}

impl Volume {
    /// The volume's number.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The volume's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What [`crate::Engine::annotate`] has stored with it; empty: nothing.
    pub fn annotation(&self) -> Arc<str> {
        Arc::clone(&self.annotation.lock())
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        ROOT_INO
    }

    /// The snapshot that this is a view of; `None` for the volume itself.
    pub fn snapshot_id(&self) -> Option<u32> {
        (self.snapshot != 0).then_some(self.snapshot)
    }

    /// Identifies the volume, or the snapshot, to clients: from the aggregate's
    /// identity and the volume's and the snapshot's number, so that it survives
    /// restarts.
    pub fn fsid(&self) -> u64 {
        // Odd, so that no two snapshots of a volume have one.
        let snapshot = u64::from(self.shown_as).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.core.fsid_base ^ self.id.0 ^ snapshot
    }

    /// Changes when data written without stability may have been lost: at each
    /// start, and when a failed write has poisoned the aggregate (RFC 1813
    /// section 3.3.21).
    pub fn write_verifier(&self) -> [u8; 8] {
        self.core.verifier().to_be_bytes()
    }

    pub(crate) fn attr_of(&self, ino: Ino, st: &State) -> Attr {
        let base = self.change_base.load(Ordering::Relaxed);
        st.attr(ino, self.fsid(), base)
    }

    /// Whether changes are possible at all.
    pub(crate) fn writable(&self) -> Result<(), Stop> {
        if self.read_only || self.core.is_poisoned() {
            return Err(Stop::Fail(FsError::ReadOnly));
        }
        Ok(())
    }

    /// Passes the gate to change something.
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Stop> {
        let pass = self.enter_as_admin()?;
        match self.protected.load(Ordering::Relaxed) {
            false => Ok(pass),
            true => Err(Stop::Fail(FsError::ReadOnly)),
        }
    }

    /// As [`Volume::enter`], also if clients may change nothing.
    pub(crate) fn enter_as_admin(&self) -> Result<Pass<'_>, Stop> {
        let pass = self.core.gate.enter();
        match self.hold.load(Ordering::Relaxed) {
            0 => Ok(pass),
            GONE => Err(Stop::Fail(FsError::Stale)),
            CLOSED => Err(Stop::Fail(FsError::Delay)),
            epoch => Err(Stop::Wait(Pressure::Epoch(epoch))),
        }
    }

    /// Blocks that count towards [`Volume::room`]: its data, what overlays may come to
    /// need, and what only its snapshots hold beyond what is kept for that.
    pub(crate) fn blocks_used(&self) -> u64 {
        let kept = self.reserve.load(Ordering::Relaxed) / BLOCK_SIZE as u64;
        let dead = self.dead_blocks.load(Ordering::Relaxed);
        self.used.load(Ordering::Relaxed)
            + self.charged.load(Ordering::Relaxed)
            // Saturates: more may be kept than is held.
            + dead.saturating_sub(kept)
    }

    /// Bytes of the capacity that are not kept for snapshots; 0: no limit.
    pub(crate) fn room(&self) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        match limit {
            0 => 0,
            limit => limit
                // Saturates: likewise.
                .saturating_sub(self.reserve.load(Ordering::Relaxed))
                .max(1),
        }
    }

    /// Turns the store's stop into ours.
    pub(crate) fn stop(&self, cx: &mut Cx, root: &Arc<RootState>, stop: tree::Stop) -> Stop {
        match stop {
            tree::Stop::Fetch(ptrs) => {
                cx.hold(root);
                Stop::Fetch(ptrs)
            }
            tree::Stop::Wait(_) => Stop::Wait(crate::types::Pressure::Memory),
            tree::Stop::Fail(error) => {
                tracing::error!(volume = %self.id, %error, "cannot read the tree");
                Stop::Fail(FsError::Io)
            }
        }
    }

    /// The record of `key` in the committed tree.
    pub(crate) fn tree_get(&self, cx: &mut Cx, key: &Key) -> Result<Option<Value>, Stop> {
        let root = self.root.load();
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        tree::get(&src, &root.root, key).map_err(|s| self.stop(cx, &root, s))
    }

    /// The inode's object, loaded from the tree if need be.
    pub(crate) fn inode(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Stop> {
        match self.table.get(ino) {
            Some(inode) => Ok(inode),
            None => self.load(cx, ino),
        }
    }

    #[cold]
    fn load(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Stop> {
        loop {
            match self.hold.load(Ordering::Acquire) {
                GONE => return Err(Stop::Fail(FsError::Stale)),
                epoch if epoch > 0 && self.swapping.load(Ordering::Acquire) => {
                    return Err(Stop::Wait(Pressure::Epoch(epoch)));
                }
                _ => {}
            }
            let root = self.root.load_full();
            let src = Source {
                cache: self.core.agg.cache(),
                cx,
            };
            let key = Key::new(ino.0, kind::INODE, 0);
            let value = tree::get(&src, &root.root, &key).map_err(|s| self.stop(cx, &root, s))?;
            let current = || {
                Arc::ptr_eq(&root, &self.root.load())
                    && !self.swapping.load(Ordering::SeqCst)
                    && self.hold.load(Ordering::SeqCst) != GONE
            };
            let Some(value) = value else {
                // Absent from an outdated tree means nothing.
                if let Some(inode) = self.table.get(ino) {
                    return Ok(inode);
                }
                if current() {
                    return Err(Stop::Fail(FsError::Stale));
                }
                continue;
            };
            let rec = InodeRec::decode(&value).ok_or_else(|| malformed(self.id, ino, "inode"))?;
            // Without links it is on its way out, unless the volume knows of it.
            let stays = || rec.nlink > 0 || self.read_only || self.unlinked.contains(ino);
            if let Some(inode) = self.table.insert_loaded(ino, rec, || current() && stays()) {
                return Ok(inode);
            }
            if !stays() {
                return Err(Stop::Fail(FsError::Stale));
            }
        }
    }

    /// Searches a directory, whose lock the caller holds, for a name.
    pub(crate) fn find(
        &self,
        cx: &mut Cx,
        dir: Ino,
        st: &State,
        name: &[u8],
    ) -> Result<Search, Stop> {
        let first = first_cookie(self.key.get(), name);
        let last = first | (VARIANTS - 1);
        // Bit sets over the disambiguators: what an upper layer decides, and
        // what is taken by another name.
        let mut decided: Variants = [0; _];
        let mut taken: Variants = [0; _];
        let bit = |cookie: u64| {
            let at = cookie % VARIANTS;
            ((at / 64) as usize, 1u64 << (at % 64))
        };
        for delta in st.layers() {
            let before = decided;
            for (cookie, entry) in delta.names().range(first..=last) {
                let (word, mask) = bit(*cookie);
                if before.get(word).is_some_and(|w| w & mask != 0) {
                    continue;
                }
                if let Some(w) = decided.get_mut(word) {
                    *w |= mask;
                }
                if let Some(entry) = entry.entry() {
                    if *entry.name == *name {
                        return Ok(Search::Hit(Hit {
                            cookie: *cookie,
                            ino: entry.ino,
                            kind: entry.kind,
                        }));
                    }
                    if let Some(w) = taken.get_mut(word) {
                        *w |= mask;
                    }
                }
            }
            if delta.fresh {
                return Ok(Search::Miss(free_place(first, &taken, &decided)));
            }
        }
        let mut hit = None;
        let mut bad = false;
        let root = self.root.load();
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        tree::scan(
            &src,
            &root.root,
            Key::new(dir.0, kind::DIRENT, first),
            Key::new(dir.0, kind::DIRENT, last),
            &mut |key, value| {
                let (word, mask) = bit(key.sub);
                if decided.get(word).is_some_and(|w| w & mask != 0) {
                    return ControlFlow::Continue(());
                }
                let Some(entry) = DirentRef::decode(value) else {
                    bad = true;
                    return ControlFlow::Continue(());
                };
                if entry.name == name {
                    hit = Some(Hit {
                        cookie: key.sub,
                        ino: entry.ino,
                        kind: entry.kind,
                    });
                    return ControlFlow::Break(());
                }
                if let Some(w) = taken.get_mut(word) {
                    *w |= mask;
                }
                ControlFlow::Continue(())
            },
        )
        .map_err(|s| self.stop(cx, &root, s))?;
        match hit {
            Some(hit) => Ok(Search::Hit(hit)),
            None if bad => Err(malformed(self.id, dir, "directory entry")),
            None => Ok(Search::Miss(free_place(first, &taken, &decided))),
        }
    }

    /// The active overlay for a change under `pass`. Must be called before
    /// `st.rec` is changed: it may freeze what an ended segment left behind.
    pub(crate) fn touch<'s>(
        &self,
        _pass: &Pass<'_>,
        inode: &Arc<Inode>,
        st: &'s mut State,
        promise: &mut Promise<'_>,
    ) -> &'s mut Delta {
        self.touch_closed(inode, st, promise)
    }

    /// As [`Volume::touch`], for whoever has closed the gate.
    pub(crate) fn touch_closed<'s>(
        &self,
        inode: &Arc<Inode>,
        st: &'s mut State,
        promise: &mut Promise<'_>,
    ) -> &'s mut Delta {
        let segment = self.segment.load(Ordering::Relaxed);
        if st.active.as_ref().is_some_and(|d| d.segment != segment) {
            st.freeze();
        }
        if st.active.is_none() {
            let mut dirty = self.dirty.lock();
            if dirty.is_empty() {
                self.core.note_changed(self.id);
            }
            dirty.push(Arc::clone(inode));
        }

        (st.active.get_or_insert_with(|| {
            let mut delta = Box::new(Delta::new(segment));
            // A leaf and its share of the path above.
            self.charge(&mut delta, promise.take(2), DELTA_BYTES);
            delta
        })) as _
    }

    /// Counts promised blocks and bytes that an overlay has come to need.
    pub(crate) fn charge(&self, delta: &mut Delta, promised: Charge, heap: u64) {
        self.add_charge(delta, Charge { heap, ..promised });
    }

    /// As [`Volume::charge`], for pages that are new in the overlay.
    pub(crate) fn charge_pages(&self, delta: &mut Delta, promised: Charge, pages: u64) {
        let heap = pages * PAGE_BYTES;
        self.add_charge(
            delta,
            Charge {
                pages,
                heap,
                ..promised
            },
        );
    }

    /// Sets one page of an overlay, and charges what that takes.
    pub(crate) fn put_page(
        &self,
        delta: &mut Delta,
        block: u64,
        page: Page,
        promise: &mut Promise<'_>,
    ) {
        let placed = page.placed.is_some();
        let frames = u64::from(page.frame.is_some());
        match delta.file().put(block, page) {
            Put::New if placed => {
                let share = promise.take(1);
                let charge = Charge { placed: 1, ..share };
                match frames {
                    0 => self.charge(delta, charge, PAGE_BYTES),
                    _ => self.charge_pages(delta, charge, frames),
                }
            }
            Put::New => self.charge_pages(delta, promise.take(2), 1),
            Put::OverPlaced if !placed => self.charge(delta, promise.take(1), 0),
            Put::Over | Put::OverPlaced => {}
        }
    }

    fn add_charge(&self, delta: &mut Delta, charge: Charge) {
        delta.charge.blocks += charge.blocks;
        delta.charge.unpromised += charge.unpromised;
        delta.charge.placed += charge.placed;
        delta.charge.pages += charge.pages;
        delta.charge.heap += charge.heap;
        self.charged
            .fetch_add(charge.blocks + charge.placed, Ordering::Relaxed);
        self.core.totals.add(charge);
    }

    /// Takes back what `delta` was charged, once it is dropped.
    pub(crate) fn discharge(&self, delta: &Delta) {
        let taken = delta.charge.blocks + delta.charge.placed;
        let charged = self.charged.fetch_sub(taken, Ordering::Relaxed);
        invariant!(self.core.agg.guard() => charged >= taken, "an overlay is discharged of {taken} blocks, of {charged} of its volume");
        self.core.totals.sub(delta.charge);
        self.core.agg.space().fulfil(delta.charge.blocks);
    }

    /// Inodes in memory, of all volumes of the engine.
    pub fn cached_inodes(&self) -> usize {
        self.table.len()
    }
}

/// A bit for each name with one hash.
type Variants = [u64; VARIANTS as usize / 64];

/// The lowest cookie that is not taken. It is bare unless an overlay decided
/// about it: then a layer below may still have what the overlay hides.
fn free_place(first: u64, taken: &Variants, decided: &Variants) -> Option<Free> {
    taken
        .iter()
        .zip(decided)
        .enumerate()
        .find(|(_, (taken, _))| **taken != u64::MAX)
        .map(|(i, (taken, decided))| Free {
            cookie: first | (i as u64 * 64 + u64::from(taken.trailing_ones())),
            bare: decided >> taken.trailing_ones() & 1 == 0,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_disambiguator() {
        const FIRST: u64 = 1 << 16;
        let bits = |low: u64, next: u64| {
            let mut all: Variants = [0; _];
            [all[0], all[1]] = [low, next];
            all
        };
        let place = |taken: Variants, decided: Variants| {
            free_place(FIRST, &taken, &decided).map(|f| (f.cookie - FIRST, f.bare))
        };
        let none = bits(0, 0);
        assert_eq!(place(none, none), Some((0, true)));
        assert_eq!(place(none, bits(1, 0)), Some((0, false)));
        assert_eq!(place(bits(0b1011, 0), bits(0b1011, 0)), Some((2, true)));
        assert_eq!(place(bits(0b1011, 0), bits(0b100, 0)), Some((2, false)));
        assert_eq!(place(bits(u64::MAX, 1), bits(0, 2)), Some((65, false)));
        assert_eq!(place([u64::MAX; _], none), None);
    }

    #[test]
    fn change_times_strictly_increase() {
        let now = Time { secs: 10, nanos: 5 };
        let rec = InodeRec::new(FileKind::Regular, 0, now);
        let a = stamped(rec, now, true);
        let b = stamped(a, Time { secs: 1, nanos: 0 }, false);
        assert!(rec.ctime < a.ctime && a.ctime < b.ctime);
        assert_eq!(a.mtime, a.ctime);
        assert_eq!(b.mtime, a.mtime);
        assert_eq!(b.change, rec.change + 2);
    }
}
