//! The quotas of a volume, and the usage that they limit, in memory.
//!
//! Trees have the usage as of the last checkpoint, always ([`crate::format::usage`]). Memory has it
//! only while the volume has rules: an operation on a volume without any pays one load. The usage
//! in memory is the sum over all inodes of what callers see as used
//! ([`State::used`](crate::overlay::inode::State::used)). So an operation adds the difference of
//! two numbers that it knows anyway, and a checkpoint adds the same difference when it drops an
//! overlay.
//!
//! **The beginning.** Rules are set at any time. The next checkpoint that begins has the epoch lock
//! exclusively for an instant. There it sums up what the overlays change, and from then on
//! operations add their changes. The checkpoint reads the usage in the tree below these overlays,
//! and adds it when it publishes. Until then an operation that needs room waits for that
//! checkpoint, so that there is no moment in which rules exist and do not hold. A tree in which
//! not all inodes are counted is walked first, which may take long; its rules hold afterwards.
//!
//! **The estimate.** Pages of an overlay may replace blocks of the tree, which only the checkpoint
//! finds out. So the used blocks of a sparse file may be too high until then, as they are for
//! callers. An operation that a limit refuses waits for a checkpoint first, at most twice, if the
//! usage of the last one leaves it room, or something was cut or punched out since.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::BLOCK_SIZE;
use weir_base::limits::engine::SPACE_WAITS;

use crate::format::record::InodeRec;
use crate::format::usage::{self, Ids, Owners, Usages};
use crate::overlay::context::{EngineContext, Limits};
use crate::overlay::inode::{InoHasher, State as InodeState};
use crate::types::{
    Backpressure, FsError, QuotaEntry, QuotaId, QuotaKind, QuotaLimit, QuotaRules, QuotaState,
    QuotaUsage, Stop,
};

/// Progress from rules to limits that hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// There are no rules.
    Off,
    /// The next checkpoint begins to track usage.
    Requested,
    /// A checkpoint is reading the usage.
    Loading,
    /// The inodes of the tree have to be counted.
    Uncounted,
    /// The inodes of the tree are being counted.
    Counting,
    /// Limits hold.
    On,
}

const PHASES: [Phase; 6] = [
    Phase::Off,
    Phase::Requested,
    Phase::Loading,
    Phase::Uncounted,
    Phase::Counting,
    Phase::On,
];

/// Usage of an owner.
#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    now: QuotaUsage,
    /// Usage in the tree of the last checkpoint.
    stored: QuotaUsage,
    /// The last round of checkpoints that finds out how much less the usage is.
    loose: u64,
}

#[derive(Default)]
struct Inner {
    rules: QuotaRules,
    cells: HashMap<QuotaId, Cell, BuildHasherDefault<InoHasher>>,
    /// Number of checkpoints that have taken changes of the volume, and have published them.
    taken: u64,
    published: u64,
    /// Result of a count, and the lineage that it belongs to; `None`: any.
    miscounts: Option<(Usages, Option<u64>)>,
}

/// The quotas of a volume.
pub(crate) struct Quota {
    phase: AtomicU8,
    /// Number of the checkpoint that loads the usage.
    until: AtomicU64,
    /// Rises whenever the volume's contents are replaced as a whole.
    lineage: AtomicU64,
    inner: Mutex<Inner>,
}

/// Usage that one inode counts for its owners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeUsage {
    owners: Owners,
    usage: QuotaUsage,
}

impl InodeUsage {
    pub(crate) fn from_state(st: &InodeState) -> InodeUsage {
        InodeUsage::with(st, st.used() / BLOCK_SIZE as u64)
    }

    /// Returns what an inode counts that uses so many blocks.
    pub(crate) fn with(st: &InodeState, used: u64) -> InodeUsage {
        let owners = Owners::from_record(&st.rec);
        let usage = match st.dead {
            true => QuotaUsage::default(),
            false => usage::of_inode(used),
        };
        InodeUsage { owners, usage }
    }

    /// Returns what an inode will count that does not exist yet.
    pub(crate) fn nothing(owners: Owners) -> InodeUsage {
        let usage = QuotaUsage::default();
        InodeUsage { owners, usage }
    }
}

/// Room that an operation has taken for the growth of usage; released on drop.
pub(crate) struct QuotaReservation<'q> {
    quota: Option<&'q Quota>,
    was: Option<InodeUsage>,
    ids: Ids,
    taken: QuotaUsage,
    loose: bool,
}

impl QuotaReservation<'_> {
    /// Notes that the inode may count less than can be seen before the next checkpoint, if `loose`.
    pub(crate) fn loosely(mut self, loose: bool) -> Self {
        self.loose = loose;
        self
    }

    /// Gives the inode its new record, which the log has, and replaces the room by what it counts
    /// then.
    pub(crate) fn finish(self, st: &mut InodeState, rec: InodeRec) {
        st.rec = rec;
        st.unlogged = false;
        self.settle_reservation(st);
    }

    /// Replaces the room by what the inode counts now.
    pub(crate) fn settle_reservation(mut self, st: &InodeState) {
        let (Some(quota), Some(was)) = (self.quota.take(), self.was) else {
            // Usage is not tracked.
            return;
        };
        let now = InodeUsage::from_state(st);
        let back = std::mem::take(&mut self.taken).negated();
        if was.owners == now.owners {
            let mut change = was.usage.negated();
            change.add(now.usage);
            change.add(back);
            if change != QuotaUsage::default() || self.loose {
                let mut inner = quota.inner.lock();
                inner.add(&now.owners.ids(), change);
                inner.loosen(&now.owners.ids(), self.loose);
            }
            return;
        }
        let mut inner = quota.inner.lock();
        inner.loosen(&now.owners.ids(), self.loose);
        inner.add(&self.ids, back);
        inner.add(&was.owners.ids(), was.usage.negated());
        inner.add(&now.owners.ids(), now.usage);
    }
}

impl Drop for QuotaReservation<'_> {
    fn drop(&mut self) {
        if let Some(quota) = self.quota
            && self.taken != QuotaUsage::default()
        {
            quota.inner.lock().add(&self.ids, self.taken.negated());
        }
    }
}

impl Inner {
    /// Returns the usage and limits of an owner.
    fn entry(&self, id: QuotaId) -> QuotaEntry {
        let cell = self.cells.get(&id).copied().unwrap_or_default();
        QuotaEntry {
            id,
            usage: cell.now,
            limit: self.rules.limit_of(id).unwrap_or_default(),
        }
    }

    fn add(&mut self, ids: &[QuotaId], change: QuotaUsage) {
        if change == QuotaUsage::default() {
            return;
        }
        for id in ids {
            self.cells.entry(*id).or_default().now.add(change);
        }
    }

    fn loosen(&mut self, ids: &[QuotaId], loose: bool) {
        for id in ids.iter().filter(|_| loose) {
            self.cells.entry(*id).or_default().loose = self.taken + 1;
        }
    }

    /// Takes room for growth, if the limits admit it. `Err(true)`: the next checkpoint may find
    /// room for it.
    fn take(&mut self, ids: &[QuotaId], growth: QuotaUsage, limits: Limits) -> Result<(), bool> {
        for id in ids.iter().filter(|id| limits.hold_for(id.kind)) {
            let Some(limit) = self.rules.limit_of(*id) else {
                // The owner has no limits.
                continue;
            };
            let cell = self.cells.get(id).copied().unwrap_or_default();
            if !limit.admits(cell.now, growth) {
                let loose = cell.loose > self.published;
                return Err(loose || limit.admits(cell.stored, growth));
            }
        }
        self.add(ids, growth);
        Ok(())
    }
}

impl Quota {
    pub(crate) fn new() -> Quota {
        Quota {
            phase: AtomicU8::new(0),
            until: AtomicU64::new(0),
            lineage: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        let at = usize::from(self.phase.load(Ordering::Relaxed));
        PHASES.get(at).copied().unwrap_or(Phase::Off)
    }

    fn set_phase(&self, phase: Phase) {
        let at = PHASES.iter().position(|p| *p == phase).unwrap_or(0);
        self.phase.store(at as u8, Ordering::Relaxed);
    }

    /// Returns true if operations add their changes.
    pub(crate) fn is_tracked(&self) -> bool {
        matches!(self.phase(), Phase::Loading | Phase::On)
    }

    /// Replaces the rules. Returns true if the next checkpoint has to load the usage.
    pub(crate) fn set_rules(&self, rules: QuotaRules) -> bool {
        let mut inner = self.inner.lock();
        let none = rules.is_empty();
        inner.rules = rules;
        match (none, self.phase()) {
            (true, _) => {
                self.set_phase(Phase::Off);
                inner.cells = HashMap::default();
                false
            }
            (false, Phase::Off) => {
                self.set_phase(Phase::Requested);
                true
            }
            (false, _) => false,
        }
    }

    /// Notes that the checkpoint `epoch` takes the volume's changes. Begins to track usage if that
    /// is requested, with what the overlays change, which `pending` computes. Returns true if it
    /// does. The epoch lock is held exclusively.
    pub(crate) fn begin(&self, epoch: u64, pending: impl FnOnce() -> Usages) -> bool {
        match self.phase() {
            Phase::Loading | Phase::On => {
                self.inner.lock().taken += 1;
                return false;
            }
            Phase::Requested => {}
            Phase::Off | Phase::Uncounted | Phase::Counting => return false,
        }
        let pending = pending();
        let mut inner = self.inner.lock();
        if self.phase() != Phase::Requested {
            return false;
        }
        let cell = |now| Cell {
            now,
            ..Cell::default()
        };
        inner.cells = pending.into_iter().map(|(id, u)| (id, cell(u))).collect();
        inner.taken += 1;
        self.until.store(epoch, Ordering::Relaxed);
        self.set_phase(Phase::Loading);
        true
    }

    /// Adds the usage of the tree below the overlays. Limits hold from now on.
    pub(crate) fn load(&self, usages: Usages) {
        let mut inner = self.inner.lock();
        if self.phase() != Phase::Loading {
            return;
        }
        for (id, usage) in usages {
            let cell = inner.cells.entry(id).or_default();
            cell.now.add(usage);
            cell.stored.add(usage);
        }
        self.set_phase(Phase::On);
    }

    /// Notes that not all inodes of the tree are counted: they have to be first.
    pub(crate) fn await_count(&self) {
        let mut inner = self.inner.lock();
        if self.is_tracked() {
            inner.cells = HashMap::default();
            self.set_phase(Phase::Uncounted);
        }
    }

    /// Begins a count of all inodes. Returns true if it is needed, and has not begun.
    pub(crate) fn begin_count(&self) -> bool {
        let _inner = self.inner.lock();
        let begins = self.phase() == Phase::Uncounted;
        if begins {
            self.set_phase(Phase::Counting);
        }
        begins
    }

    /// Makes the next checkpoint change the usage in the tree by the result of a count, if the
    /// volume's contents are still of this lineage (`None`: in any case).
    pub(crate) fn correct(&self, changes: Usages, lineage: Option<u64>) {
        self.inner.lock().miscounts = Some((changes, lineage));
    }

    /// Takes the changes of usage that a count has found, for a checkpoint.
    pub(crate) fn take_corrections(&self) -> Option<Usages> {
        let (changes, lineage) = self.inner.lock().miscounts.take()?;
        lineage
            .is_none_or(|of| of == self.lineage())
            .then_some(changes)
    }

    /// Notes that a count has ended: the next checkpoint loads the usage.
    pub(crate) fn end_count(&self) {
        let _inner = self.inner.lock();
        if self.phase() == Phase::Counting {
            self.set_phase(Phase::Requested);
        }
    }

    /// Replaces all usage by that of a tree: the volume's contents were replaced.
    pub(crate) fn replace(&self, usages: Usages) {
        let mut inner = self.inner.lock();
        if !self.is_tracked() {
            return;
        }
        let cell = |now| Cell {
            now,
            stored: now,
            loose: 0,
        };
        inner.cells = usages.into_iter().map(|(id, u)| (id, cell(u))).collect();
        self.set_phase(Phase::On);
    }

    /// Notes that the volume's contents were replaced as a whole, and published.
    pub(crate) fn note_replaced(&self) {
        self.lineage.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of times that the volume's contents were replaced.
    pub(crate) fn lineage(&self) -> u64 {
        self.lineage.load(Ordering::SeqCst)
    }

    /// Adds the changes that a checkpoint has made to the usage in the tree. Those of `ended`
    /// inodes no operation has added.
    pub(crate) fn publish(&self, stored: &Usages, ended: &Usages) {
        if !self.is_tracked() {
            return;
        }
        let mut inner = self.inner.lock();
        inner.published = inner.taken;
        for (id, change) in stored {
            inner.cells.entry(*id).or_default().stored.add(*change);
        }
        for (id, change) in ended {
            inner.cells.entry(*id).or_default().now.add(*change);
        }
        for id in stored.keys().chain(ended.keys()) {
            if let Entry::Occupied(cell) = inner.cells.entry(*id)
                && cell.get().now == QuotaUsage::default()
                && cell.get().stored == QuotaUsage::default()
            {
                cell.remove();
            }
        }
    }

    /// Returns what the inode counts, if operations add their changes.
    pub(crate) fn note(&self, st: &InodeState) -> Option<InodeUsage> {
        self.is_tracked().then(|| InodeUsage::from_state(st))
    }

    /// Replaces what the inode counted by what it counts now. No limit is checked.
    pub(crate) fn change(&self, was: Option<InodeUsage>, st: &InodeState) {
        self.held(was).settle_reservation(st);
    }

    /// Returns a change of what the inode counted. It takes no room.
    pub(crate) fn held(&self, was: Option<InodeUsage>) -> QuotaReservation<'_> {
        QuotaReservation {
            quota: was.is_some().then_some(self),
            was,
            ids: Ids::new(),
            taken: QuotaUsage::default(),
            loose: false,
        }
    }

    /// Takes room for an inode at these owners. `growth` returns what it counts now, and how much
    /// more it will count for them at most. `epoch` is the current one.
    ///
    /// # Errors
    /// `Quota`, or a wait, if the context says that limits hold for the caller.
    #[inline]
    pub(crate) fn hold(
        &self,
        cx: &mut EngineContext,
        epoch: u64,
        ids: impl FnOnce() -> Ids,
        growth: impl FnOnce() -> (InodeUsage, QuotaUsage),
    ) -> Result<QuotaReservation<'_>, Stop> {
        let phase = self.phase();
        if phase == Phase::Off {
            return Ok(self.held(None));
        }
        let (was, growth) = growth();
        if growth.blocks <= 0 && growth.files <= 0 {
            return Ok(self.held(self.is_tracked().then_some(was)));
        }
        self.hold_tracked(cx, (phase, epoch), ids(), (was, growth))
    }

    fn hold_tracked(
        &self,
        cx: &mut EngineContext,
        (phase, epoch): (Phase, u64),
        ids: Ids,
        (was, growth): (InodeUsage, QuotaUsage),
    ) -> Result<QuotaReservation<'_>, Stop> {
        let limits = cx.limits;
        let enforced = ids.iter().any(|id| limits.hold_for(id.kind));
        let mut held = QuotaReservation {
            ids,
            ..self.held(Some(was))
        };
        match phase {
            Phase::Requested if enforced => Err(Stop::Wait(Backpressure::Epoch(epoch))),
            Phase::Loading if enforced => {
                let until = self.until.load(Ordering::Relaxed);
                Err(Stop::Wait(Backpressure::Epoch(until)))
            }
            Phase::Off | Phase::Requested | Phase::Uncounted | Phase::Counting => {
                held.quota = None;
                Ok(held)
            }
            _ if held.ids.is_empty() => Ok(held),
            Phase::Loading | Phase::On => {
                let taken = self.inner.lock().take(&held.ids, growth, limits);
                match taken {
                    Ok(()) => {
                        held.taken = growth;
                        Ok(held)
                    }
                    Err(true) if cx.space_waits < SPACE_WAITS => {
                        cx.space_waits += 1;
                        Err(Stop::Wait(Backpressure::Space))
                    }
                    Err(_) => Err(FsError::Quota.into()),
                }
            }
        }
    }

    pub(crate) fn state(&self) -> QuotaState {
        match self.phase() {
            Phase::Off => QuotaState::Off,
            Phase::On => QuotaState::On,
            Phase::Requested | Phase::Loading | Phase::Uncounted | Phase::Counting => {
                QuotaState::Initializing
            }
        }
    }

    /// Returns the usage and limits of an owner; `None` while limits do not hold.
    pub(crate) fn entry(&self, id: QuotaId) -> Option<QuotaEntry> {
        if self.phase() != Phase::On {
            return None;
        }
        Some(self.inner.lock().entry(id))
    }

    /// Returns up to `most` users with usage or limits of their own, from the number `first` on, in
    /// ascending order; none while limits do not hold.
    pub(crate) fn users(&self, first: u32, most: usize) -> Vec<QuotaEntry> {
        if self.phase() != Phase::On || most == 0 {
            return Vec::new();
        }
        let inner = self.inner.lock();
        let all = inner.rules.own.keys().chain(inner.cells.keys()).copied();
        let wanted = |id: &QuotaId| id.kind == QuotaKind::User && id.id >= first;
        let mut ids: Vec<QuotaId> = all.filter(wanted).collect();
        // An owner may be in both. Without a sort of all, since there may be many pages.
        // Saturates: there are fewer owners.
        let both = most.saturating_mul(2);
        if both < ids.len() {
            ids.select_nth_unstable(both);
            ids.truncate(both);
        }
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(most);
        ids.into_iter().map(|id| inner.entry(id)).collect()
    }

    pub(crate) fn default_user(&self) -> QuotaLimit {
        self.inner.lock().rules.default_user.unwrap_or_default()
    }

    /// Returns the usage and limits of all owners that have either, by kind and number.
    pub(crate) fn entries(&self) -> Vec<QuotaEntry> {
        let inner = self.inner.lock();
        let mut ids: Vec<QuotaId> = inner.rules.own.keys().copied().collect();
        ids.extend(inner.cells.keys());
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| inner.entry(id)).collect()
    }
}
