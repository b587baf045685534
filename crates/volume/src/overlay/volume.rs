//! One volume: its tree, the inodes in memory, and what all operations share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use weir_base::{BLOCK_SIZE, Ino, VolumeId, invariant};
use weir_store::RootLife;
use weir_store::node::Key;
use weir_store::tree::{self, TreeRoot, Value};

use crate::format::catalog::{Catalog, Origin, VolumeRec};
use crate::format::hash::KeyCell;
use crate::format::record::{InodeRec, ROOT_INO, kind};
use crate::overlay::core::Core;
use crate::overlay::cx::{Cx, Source};
use crate::overlay::delta::{Charge, DELTA_BYTES, Delta, PAGE_BYTES, Page, Put};
use crate::overlay::gate::Pass;
use crate::overlay::inode::{Inode, Inodes, State, malformed};
use crate::overlay::receiving::Receiving;
use crate::overlay::reservation::Promise;
use crate::overlay::root::RootState;
use crate::overlay::snapshots::{Sealed, Shown, Snaps};
use crate::overlay::unlinked::Unlinked;
use crate::types::{Attr, FsError, Pressure, Stop};

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
    pub(crate) snaps: Mutex<Snaps<Volume>>,
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

impl Volume {
    /// A volume with nothing in memory.
    pub(crate) fn new(core: Arc<Core>, id: VolumeId, rec: VolumeRec) -> Volume {
        Volume {
            id,
            name: rec.name.clone(),
            key: KeyCell::new(rec.key),
            root: ArcSwap::new(RootState::new(rec.root)),
            table: core.inodes.inodes(),
            dirty: Mutex::default(),
            segment: AtomicU64::new(1),
            sealed: Mutex::default(),
            snaps: Mutex::new(Snaps::new(rec.next_snapshot, (core.agg.id(), id))),
            admin: Mutex::new(()),
            hold: AtomicU64::new(0),
            dead_blocks: AtomicU64::new(rec.dead_blocks),
            change_base: AtomicU64::new(rec.change_base),
            change_top: AtomicU64::new(rec.change_top),
            origin: Mutex::new(rec.origin),
            splitting: AtomicBool::new(false),
            swapping: AtomicBool::new(false),
            snapshot: 0,
            shown_as: 0,
            mirror: Mutex::default(),
            protected: AtomicBool::new(false),
            exported: ArcSwapOption::empty(),
            next_ino: AtomicU64::new(rec.next_ino),
            limit: AtomicU64::new(rec.limit),
            annotation: Mutex::default(),
            reserve: AtomicU64::new(0),
            used: AtomicU64::new(rec.used),
            charged: AtomicU64::new(0),
            catalog: Mutex::new(Catalog {
                rec,
                stored: false,
                snapshots: BTreeMap::new(),
                orphans: Vec::new(),
                annotation: Arc::default(),
            }),
            unlinked: Unlinked::default(),
            renames: Mutex::new(()),
            read_only: false,
            core,
        }
    }

    /// A snapshot as a volume that cannot be changed; `exported`: shown as the volume itself.
    pub(crate) fn view_as(&self, id: u32, exported: bool) -> Result<Arc<Volume>, Stop> {
        let mut snaps = self.snaps.lock();
        let change_base = match exported {
            true => self.change_base.load(Ordering::Acquire),
            false => 0,
        };
        let shown = match exported {
            true => Shown::AsVolume { change_base },
            false => Shown::AsSnapshot,
        };
        if let Some(view) = snaps.kept_view(id, shown) {
            return Ok(view);
        }
        let Some(stored) = snaps.stored(id)? else {
            return Err(Stop::Wait(Pressure::Epoch(self.core.gate().epoch())));
        };
        let rec = VolumeRec {
            name: self.name.clone(),
            root: stored.root,
            key: self.key.get(),
            next_ino: 0,
            limit: 0,
            used: stored.used,
            next_snapshot: 0,
            dead: TreeRoot::EMPTY,
            dead_blocks: 0,
            change_base,
            change_top: 0,
            origin: None,
            mirror: None,
        };
        let mut view = Volume::new(Arc::clone(&self.core), self.id, rec);
        view.read_only = true;
        view.snapshot = id;
        view.shown_as = if exported { 0 } else { id };
        let view = Arc::new(view);
        snaps.keep_view(id, shown, &view);
        Ok(view)
    }

    /// Nothing leads to this view's or volume's root any more; `life` is of the last
    /// consistency point that had it. What is still being read keeps its blocks.
    pub(crate) fn retire(&self, life: &Arc<RootLife>) {
        self.hold.store(GONE, Ordering::SeqCst);
        self.table.retire(true);
        self.root.load().supersede(Arc::clone(life));
        self.root.store(RootState::new(TreeRoot::EMPTY));
    }

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
        self.core.fsid_base() ^ self.id.0 ^ snapshot
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
        let pass = self.core.gate().enter();
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
                self.core.schedule.note_changed(self.id);
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
        self.core.totals().add(charge);
    }

    /// Takes back what `delta` was charged, once it is dropped.
    pub(crate) fn discharge(&self, delta: &Delta) {
        let taken = delta.charge.blocks + delta.charge.placed;
        let charged = self.charged.fetch_sub(taken, Ordering::Relaxed);
        invariant!(self.core.agg.guard() => charged >= taken, "an overlay is discharged of {taken} blocks, of {charged} of its volume");
        self.core.totals().sub(delta.charge);
        self.core.agg.space().fulfil(delta.charge.blocks);
    }

    /// Inodes in memory, of all volumes of the engine.
    pub fn cached_inodes(&self) -> usize {
        self.table.len()
    }
}
