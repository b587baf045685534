//! One volume, or a view of one of its snapshots: its tree, its inodes in memory, and the state
//! that all operations share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use weir_base::{Ino, VolumeId};
use weir_store::RootPin;
use weir_store::node::Key;
use weir_store::tree::{self, TreeRoot, Value};

use crate::format::catalog::{Catalog, VolumeRec};
use crate::format::hash::KeyCell;
use crate::format::record::{InodeRec, ROOT_INO, kind};
use crate::format::usage::Owners;
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::core::Core;
use crate::overlay::counters::Counters;
use crate::overlay::delta::{Charge, DELTA_BYTES, Delta};
use crate::overlay::epoch_lock::OpGuard;
use crate::overlay::file_delta::{PAGE_BYTES, Page, Put};
use crate::overlay::inode::{Inode, Inodes, State as InodeState, malformed};
use crate::overlay::open_inodes::UnlinkedInodes;
use crate::overlay::quota::Quota;
use crate::overlay::reservation::Reservation;
use crate::overlay::role::{Ancestry, AtomicState, State, Writers};
use crate::overlay::root::RootState;
use crate::overlay::segments::Segments;
use crate::overlay::snapshots::{Snaps, ViewRole};
use crate::overlay::space::Space;
use crate::overlay::transfer_state::DestinationState;
use crate::types::{Attr, Backpressure, FsError, LOCAL_BITS, Stop};

/// A volume, or a view of a snapshot. See the crate's head for how operations run.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) key: KeyCell,
    pub(crate) root: ArcSwap<RootState>,
    pub(crate) table: Inodes,
    pub(crate) space: Space,
    pub(crate) quota: Quota,
    pub(crate) counters: Counters,
    /// Its number in the large volume that it is a constituent of, plus 1.
    part: OnceLock<u8>,
    /// Identity for clients, without the snapshot's part.
    fsid: AtomicU64,
    role: Role,
}

/// Role of a volume, fixed for its life.
#[expect(
    clippy::large_enum_variant,
    reason = "operations on a volume should not follow one pointer more; views are few"
)]
enum Role {
    Live(Live),
    View(View),
}

/// State of a volume of the aggregate, which is changed and has snapshots.
pub(crate) struct Live {
    pub(crate) standing: AtomicState,
    pub(crate) segments: Segments,
    /// The snapshots, as users see them.
    pub(crate) snaps: Mutex<Snaps<Volume>>,
    /// Held during changes of the volume as a whole, or of its snapshots.
    pub(crate) admin: Mutex<()>,
    /// Text stored by the control plane; may be empty. The next checkpoint stores it.
    pub(crate) annotation: Mutex<Arc<str>>,
    /// Stored state of the volume beside its tree; locked by checkpoints.
    pub(crate) catalog: Mutex<Catalog>,
    /// Open inodes, and those without a name.
    pub(crate) unlinked: UnlinkedInodes,
    /// Held by renames that move a directory to another parent, so that no two of them can make a
    /// cycle together.
    pub(crate) renames: Mutex<()>,
    pub(crate) ancestry: Mutex<Ancestry>,
    /// State of the volume as the destination of a replication.
    pub(crate) receiving: Mutex<DestinationState>,
    /// View that clients of a destination see.
    pub(crate) exported: ArcSwapOption<Volume>,
}

/// State of a view of a snapshot.
struct View {
    snapshot: u32,
    shown: ViewRole,
    /// True after the snapshot was deleted.
    ended: AtomicBool,
}

/// A volume of the aggregate, not a view: only these are in the volume table, are merged by
/// checkpoints, and are written by transfers.
#[derive(Clone)]
pub(crate) struct LiveVolume(Arc<Volume>);

impl Deref for LiveVolume {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.0
    }
}

impl LiveVolume {
    /// Creates a volume with nothing in memory.
    pub(crate) fn new(core: Arc<Core>, id: VolumeId, rec: VolumeRec) -> LiveVolume {
        let writers = match rec.mirror {
            Some(_) => Writers::Transfers,
            None => Writers::Clients,
        };
        let mut snaps = Snaps::new(rec.next_snapshot, rec.next_place, (core.agg.id(), id));
        let exported = rec.mirror.map(|mirror| mirror.exported);
        snaps.export(exported.filter(|id| *id != 0));
        LiveVolume(Arc::new(Volume {
            id,
            name: rec.name.clone(),
            key: KeyCell::new(rec.key),
            root: ArcSwap::new(RootState::new(rec.root)),
            table: core.inodes.inodes(),
            space: Space::new(rec.limit, rec.used, rec.dead_blocks),
            quota: Quota::new(),
            counters: Counters::new(rec.change_base, rec.change_top, rec.next_ino),
            part: OnceLock::new(),
            fsid: AtomicU64::new(core.fsid_base() ^ id.0),
            role: Role::Live(Live {
                standing: AtomicState::new(writers),
                segments: Segments::new(),
                snaps: Mutex::new(snaps),
                admin: Mutex::new(()),
                annotation: Mutex::default(),
                ancestry: Mutex::new(Ancestry::new(rec.origin)),
                receiving: Mutex::new(DestinationState::new(rec.mirror)),
                exported: ArcSwapOption::empty(),
                catalog: Mutex::new(Catalog {
                    rec,
                    stored: false,
                    snapshots: BTreeMap::new(),
                    orphans: Vec::new(),
                    annotation: Arc::default(),
                    corrections: Vec::new(),
                }),
                unlinked: UnlinkedInodes::default(),
                renames: Mutex::new(()),
            }),
            core,
        }))
    }

    /// Returns the state that a view does not have.
    pub(crate) fn live(&self) -> &Live {
        match &self.0.role {
            Role::Live(live) => live,
            Role::View(_) => unreachable!("the constructors make no other"),
        }
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.0
    }
}

/// Permission to change a volume: the epoch lock is held, and the volume is not a view. All changes
/// made under it are in one checkpoint.
pub(crate) struct ChangePermit<'a> {
    pass: OpGuard<'a>,
    live: &'a Live,
}

impl<'a> ChangePermit<'a> {
    /// Creates it without a check of the volume's state: for recovery, and for creating the volume.
    pub(crate) fn with(pass: OpGuard<'a>, vol: &'a LiveVolume) -> ChangePermit<'a> {
        let live = vol.live();
        ChangePermit { pass, live }
    }

    /// Returns the epoch that every change made under it belongs to.
    pub(crate) fn epoch(&self) -> u64 {
        self.pass.epoch()
    }

    pub(crate) fn live(&self) -> &'a Live {
        self.live
    }
}

impl Volume {
    /// Returns the volume itself, if this is not a view.
    pub(crate) fn to_live(self: &Arc<Self>) -> Result<LiveVolume, FsError> {
        self.live().map(|_| LiveVolume(Arc::clone(self)))
    }

    /// Returns the state that a view does not have.
    ///
    /// # Errors
    /// `ReadOnly` if this is a view.
    pub(crate) fn live(&self) -> Result<&Live, FsError> {
        self.as_live().ok_or(FsError::ReadOnly)
    }

    /// Like [`Volume::live`]; `None` for a view.
    pub(crate) fn as_live(&self) -> Option<&Live> {
        match &self.role {
            Role::Live(live) => Some(live),
            Role::View(_) => None,
        }
    }

    /// Returns the volume's state as a whole; `None` for a view of a snapshot.
    pub fn state(&self) -> Option<State> {
        self.as_live().map(|live| live.standing.state())
    }

    /// Returns true for the destination of a replication: clients change nothing, and see
    /// [`Volume::serving`].
    pub fn protected(&self) -> bool {
        self.state().and_then(State::writers) == Some(Writers::Transfers)
    }

    /// Opens a snapshot as a read-only volume; `exported`: shown as the volume itself.
    pub(crate) fn view_as(&self, id: u32, exported: bool) -> Result<Arc<Volume>, Stop> {
        let mut snaps = self.live()?.snaps.lock();
        let change_base = match exported {
            true => self.counters.base(),
            false => 0,
        };
        let shown = match exported {
            true => ViewRole::AsVolume { change_base },
            false => ViewRole::AsSnapshot,
        };
        if let Some(view) = snaps.kept_view(id, shown) {
            return Ok(view);
        }
        let Some(stored) = snaps.stored(id)? else {
            return Err(Stop::Wait(Backpressure::Epoch(
                self.core.epoch_lock().epoch(),
            )));
        };
        let view = Arc::new(Volume {
            core: Arc::clone(&self.core),
            id: self.id,
            name: self.name.clone(),
            key: KeyCell::new(self.key.get()),
            root: ArcSwap::new(RootState::new(stored.root)),
            table: self.core.inodes.inodes(),
            space: Space::new(0, stored.used, 0),
            quota: Quota::new(),
            counters: Counters::new(change_base, 0, 0),
            part: OnceLock::new(),
            fsid: AtomicU64::new(self.fsid.load(Ordering::Relaxed)),
            role: Role::View(View {
                snapshot: id,
                shown,
                ended: AtomicBool::new(false),
            }),
        });
        snaps.keep_view(id, shown, &view);
        Ok(view)
    }

    /// Ends this view, because nothing leads to its root any more; `life` is the pin of the last
    /// checkpoint that had it. Readers in progress keep its blocks.
    pub(crate) fn retire(&self, life: &Arc<RootPin>) {
        let Role::View(view) = &self.role else {
            unreachable!("a volume ends by its state");
        };
        view.ended.store(true, Ordering::SeqCst);
        self.table.retire(true);
        self.root.load().supersede(Arc::clone(life));
        self.root.store(RootState::new(TreeRoot::EMPTY));
    }

    /// Returns the volume's number, unique in the aggregate and never reused.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Returns the volume's name, unique in the aggregate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text stored by [`crate::Engine::annotate`]; may be empty.
    pub fn annotation(&self) -> Arc<str> {
        let stored = self
            .as_live()
            .map(|live| Arc::clone(&live.annotation.lock()));
        stored.unwrap_or_default()
    }

    /// Returns the inode number of the root directory.
    pub fn root(&self) -> Ino {
        ROOT_INO
    }

    /// Returns the snapshot that this is a view of; `None` for the volume itself.
    pub fn snapshot_id(&self) -> Option<u32> {
        match &self.role {
            Role::Live(_) => None,
            Role::View(view) => Some(view.snapshot),
        }
    }

    /// Lets clients see the volume under another identity than its own. In memory only: to be
    /// called before clients are admitted.
    pub fn present_as(&self, fsid: u64) {
        self.fsid.store(fsid, Ordering::Relaxed);
    }

    /// Returns an identity of the volume, or the snapshot, for clients. It is derived from the
    /// aggregate's identity and the numbers of the volume and the snapshot, so that it survives
    /// restarts. A volume that came from another aggregate keeps the identity that it had there,
    /// and a constituent has that of its large volume ([`Volume::present_as`]).
    pub fn fsid(&self) -> u64 {
        let shown_as = match &self.role {
            Role::View(view) if view.shown == ViewRole::AsSnapshot => view.snapshot,
            Role::View(_) | Role::Live(_) => 0,
        };
        // Odd, so that no two snapshots of a volume have the same identity.
        let snapshot = u64::from(shown_as).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.fsid.load(Ordering::Relaxed) ^ snapshot
    }

    /// Returns the write verifier, which changes when unstable writes may have been lost (RFC 1813
    /// section 3.3.21). It changes at each start, unless this side has been handed all of them
    /// ([`crate::Engine::take_verifier`]), and when a failed write has poisoned the aggregate.
    pub fn write_verifier(&self) -> [u8; 8] {
        self.core.verifier().to_be_bytes()
    }

    pub(crate) fn attr_of(&self, ino: Ino, st: &InodeState) -> Attr {
        let mut attr = st.attr(ino, self.fsid(), self.counters.base());
        attr.constituent = self.part.get().copied().unwrap_or_default();
        attr
    }

    /// Shows clients the volume as the constituent of this number of a large volume with this
    /// identity, from now on. Only the first call has an effect.
    pub fn show_as_constituent(&self, fsid: u64, constituent: u8) {
        // Saturates: never, constituents are below 48.
        if self.part.set(constituent.saturating_add(1)).is_ok() {
            self.present_as(fsid);
        }
    }

    /// Returns the number by which clients know an inode that an entry or a directory names.
    pub fn shown_number(&self, ino: Ino) -> u64 {
        let Some(constituent) = self.part.get() else {
            return ino.0;
        };
        let (other, local) = (ino.0 >> LOCAL_BITS, ino.0 & ((1 << LOCAL_BITS) - 1));
        let constituent = match other {
            0 => u64::from(*constituent),
            other => other,
        };
        // Both are one more than the number of the constituent.
        (constituent - 1) << LOCAL_BITS | local
    }

    /// Checks that changes are possible at all.
    pub(crate) fn writable(&self) -> Result<&Live, Stop> {
        if self.core.is_poisoned() {
            return Err(Stop::Fail(FsError::ReadOnly));
        }
        Ok(self.live()?)
    }

    /// Takes the epoch lock to change something.
    pub(crate) fn enter(&self) -> Result<ChangePermit<'_>, Stop> {
        let live = self.live()?;
        let pass = self.core.epoch_lock().enter();
        live.standing.admits_clients()?;
        self.core.log.strict().admits(self.id)?;
        Ok(ChangePermit { pass, live })
    }

    /// Returns true if its changes are held, because it is strict and the partner of the pair is
    /// lost.
    pub fn is_held(&self) -> bool {
        self.core.log.strict().holds(self.id)
    }

    /// Like [`Volume::enter`], even if clients may change nothing.
    pub(crate) fn enter_as_admin(&self) -> Result<ChangePermit<'_>, Stop> {
        let live = self.live()?;
        let pass = self.core.epoch_lock().enter();
        live.standing.admits_admin()?;
        Ok(ChangePermit { pass, live })
    }

    /// Converts a stop of the store into one of the engine.
    pub(crate) fn stop(
        &self,
        cx: &mut EngineContext,
        root: &Arc<RootState>,
        stop: tree::Stop,
    ) -> Stop {
        match stop {
            tree::Stop::Fetch(ptrs) => {
                cx.hold(root);
                Stop::Fetch(ptrs)
            }
            tree::Stop::Wait(_) => Stop::Wait(crate::types::Backpressure::Memory),
            tree::Stop::Fail(error) => {
                tracing::error!(volume = %self.id, %error, "cannot read the tree");
                Stop::Fail(FsError::Io)
            }
        }
    }

    /// Returns the record of `key` in the committed tree.
    pub(crate) fn tree_get(
        &self,
        cx: &mut EngineContext,
        key: &Key,
    ) -> Result<Option<Value>, Stop> {
        let root = self.root.load();
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        tree::get(&src, &root.root, key).map_err(|s| self.stop(cx, &root, s))
    }

    /// Checks that inodes may be loaded from the current root.
    fn loadable(&self) -> Result<(), Stop> {
        let state = match &self.role {
            Role::Live(live) => live.standing.state(),
            Role::View(view) if view.ended.load(Ordering::SeqCst) => State::Deleted,
            Role::View(_) => return Ok(()),
        };
        match state {
            State::Deleted => Err(FsError::Stale.into()),
            State::Turning {
                until,
                swapping: true,
                ..
            } => Err(Stop::Wait(Backpressure::Epoch(until))),
            State::Serving(_) | State::Held { .. } | State::Turning { .. } | State::Closed(_) => {
                Ok(())
            }
        }
    }

    /// Returns the inode's object, loaded from the tree if necessary.
    pub(crate) fn inode(&self, cx: &mut EngineContext, ino: Ino) -> Result<Arc<Inode>, Stop> {
        match self.table.get(ino) {
            Some(inode) => Ok(inode),
            None => self.load(cx, ino),
        }
    }

    #[cold]
    fn load(&self, cx: &mut EngineContext, ino: Ino) -> Result<Arc<Inode>, Stop> {
        loop {
            self.loadable()?;
            let root = self.root.load_full();
            let src = Source {
                cache: self.core.agg.cache(),
                cx,
            };
            let key = Key::new(ino.0, kind::INODE, 0);
            let value = tree::get(&src, &root.root, &key).map_err(|s| self.stop(cx, &root, s))?;
            let current = || Arc::ptr_eq(&root, &self.root.load()) && self.loadable().is_ok();
            let Some(value) = value else {
                // Absence from an outdated tree proves nothing.
                if let Some(inode) = self.table.get(ino) {
                    return Ok(inode);
                }
                if current() {
                    return Err(Stop::Fail(FsError::Stale));
                }
                continue;
            };
            let rec = InodeRec::decode(&value).ok_or_else(|| malformed(self.id, ino, "inode"))?;
            // An inode without links is being deleted, unless it is in the volume's set.
            let unlinked = || {
                self.as_live()
                    .is_none_or(|live| live.unlinked.contains(ino))
            };
            let stays = || rec.nlink > 0 || unlinked();
            if let Some(inode) = self.table.insert_loaded(ino, rec, || current() && stays()) {
                return Ok(inode);
            }
            if !stays() {
                return Err(Stop::Fail(FsError::Stale));
            }
        }
    }

    /// Returns the active overlay for a change. It must be called before `st.rec` is changed: it
    /// may freeze the changes of an ended segment.
    pub(crate) fn touch<'s>(
        &self,
        entered: &ChangePermit<'_>,
        inode: &Arc<Inode>,
        st: &'s mut InodeState,
        reservation: &mut Reservation<'_>,
    ) -> &'s mut Delta {
        self.touch_closed(entered.live, inode, st, reservation)
    }

    /// Like [`Volume::touch`], for callers that hold the epoch lock exclusively.
    pub(crate) fn touch_closed<'s>(
        &self,
        live: &Live,
        inode: &Arc<Inode>,
        st: &'s mut InodeState,
        reservation: &mut Reservation<'_>,
    ) -> &'s mut Delta {
        let segment = live.segments.current();
        if st.active.as_ref().is_some_and(|d| d.segment != segment) {
            st.freeze();
        }
        if st.active.is_none() && live.segments.add_dirty(inode) {
            self.core.schedule.note_changed(self.id);
        }

        (st.active.get_or_insert_with(|| {
            let mut delta = Box::new(Delta::new(segment, Owners::from_record(&st.rec)));
            // A leaf and its share of the path above.
            self.charge(&mut delta, reservation.take(2), DELTA_BYTES);
            delta
        })) as _
    }

    /// Charges reserved blocks and bytes to an overlay.
    pub(crate) fn charge(&self, delta: &mut Delta, reserved: Charge, heap: u64) {
        self.add_charge(delta, Charge { heap, ..reserved });
    }

    /// Like [`Volume::charge`], for pages that are new in the overlay.
    pub(crate) fn charge_pages(&self, delta: &mut Delta, reserved: Charge, pages: u64) {
        let heap = pages * PAGE_BYTES;
        self.add_charge(
            delta,
            Charge {
                pages,
                heap,
                ..reserved
            },
        );
    }

    /// Sets one page of an overlay, and charges its memory and blocks.
    pub(crate) fn put_page(
        &self,
        delta: &mut Delta,
        block: u64,
        page: Page,
        reservation: &mut Reservation<'_>,
    ) {
        let placed = page.placed.is_some();
        let frames = u64::from(page.frame.is_some());
        match delta.file().put(block, page) {
            Put::New if placed => {
                let share = reservation.take(1);
                let charge = Charge { placed: 1, ..share };
                match frames {
                    0 => self.charge(delta, charge, PAGE_BYTES),
                    _ => self.charge_pages(delta, charge, frames),
                }
            }
            Put::New => self.charge_pages(delta, reservation.take(2), 1),
            Put::OverPlaced if !placed => self.charge(delta, reservation.take(1), 0),
            Put::Over | Put::OverPlaced => {}
        }
    }

    fn add_charge(&self, delta: &mut Delta, charge: Charge) {
        delta.charge.blocks += charge.blocks;
        delta.charge.unreserved += charge.unreserved;
        delta.charge.placed += charge.placed;
        delta.charge.pages += charge.pages;
        delta.charge.heap += charge.heap;
        self.space.charge(charge.blocks + charge.placed);
        self.core.totals().add(charge);
    }

    /// Takes back the charge of `delta`, once it is dropped.
    pub(crate) fn discharge(&self, delta: &Delta) {
        let taken = delta.charge.blocks + delta.charge.placed;
        self.space
            .discharge(self.core.agg.guard(), taken, "an overlay");
        self.core.totals().sub(delta.charge);
        self.core.agg.space().release_reserved(delta.charge.blocks);
    }

    /// Returns the number of inodes in memory, of all volumes of the engine.
    pub fn cached_inodes(&self) -> usize {
        self.table.len()
    }
}
