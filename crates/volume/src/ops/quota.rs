//! Quotas: the room that operations take, the rules, and reports.

use std::ops::Range;

use weir_base::{BLOCK_SIZE, Ino};

use crate::format::record::{InodeRec, blocks_of};
use crate::format::usage::{Owners, of_inode};
use crate::overlay::context::EngineContext;
use crate::overlay::inode::State;
use crate::overlay::quota::{InodeUsage, QuotaReservation};
use crate::overlay::volume::{ChangePermit, Volume};
use crate::types::{
    Backpressure, FsError, QuotaEntry, QuotaId, QuotaLimit, QuotaRules, QuotaState, QuotaUsage,
    Stop,
};

impl Volume {
    /// Takes room for changes of a range of blocks of a file, which will have `size` bytes.
    pub(crate) fn hold_growth(
        &self,
        cx: &mut EngineContext,
        pass: &ChangePermit<'_>,
        (ino, st): (Ino, &State),
        range: Range<u64>,
        size: u64,
    ) -> Result<QuotaReservation<'_>, Stop> {
        let blocks = range.end - range.start;
        match self.hold_blocks(cx, pass, st, blocks, size) {
            Err(Stop::Fail(FsError::Quota) | Stop::Wait(Backpressure::Space)) => {
                // Some of them may be stored already, and are replaced.
                let holes = self.holes(cx, ino, st, range)?;
                self.hold_blocks(cx, pass, st, holes, size)
            }
            held => held,
        }
    }

    /// Takes room for up to `blocks` more blocks of a file, which will have `size` bytes.
    fn hold_blocks(
        &self,
        cx: &mut EngineContext,
        pass: &ChangePermit<'_>,
        st: &State,
        blocks: u64,
        size: u64,
    ) -> Result<QuotaReservation<'_>, Stop> {
        let owners = Owners::from_record(&st.rec);
        self.quota.hold(
            cx,
            pass.epoch(),
            || owners.ids(),
            || {
                let used = st.used() / BLOCK_SIZE as u64;
                // Saturates: what is used may be more than an overlay will have.
                let more = (used + blocks).min(blocks_of(size)).saturating_sub(used);
                let growth = QuotaUsage {
                    files: 0,
                    ..of_inode(more)
                };
                (InodeUsage::with(st, used), growth)
            },
        )
    }

    /// Takes room for an inode at its new owners, if `rec` has others.
    pub(crate) fn hold_owners(
        &self,
        cx: &mut EngineContext,
        pass: &ChangePermit<'_>,
        st: &State,
        rec: &InodeRec,
    ) -> Result<QuotaReservation<'_>, Stop> {
        let (old, new) = (Owners::from_record(&st.rec), Owners::from_record(rec));
        let others = || {
            let old = old.ids();
            let new = new.ids().into_iter();
            new.filter(|id| !old.contains(id)).collect()
        };
        self.quota.hold(cx, pass.epoch(), others, || {
            (
                InodeUsage::from_state(st),
                of_inode(st.used() / BLOCK_SIZE as u64),
            )
        })
    }

    /// Takes room for a new inode.
    pub(crate) fn hold_new(
        &self,
        cx: &mut EngineContext,
        pass: &ChangePermit<'_>,
        rec: &InodeRec,
    ) -> Result<QuotaReservation<'_>, Stop> {
        let owners = Owners::from_record(rec);
        self.quota.hold(
            cx,
            pass.epoch(),
            || owners.ids(),
            || (InodeUsage::nothing(owners), of_inode(0)),
        )
    }

    /// Replaces the volume's quotas. They hold once the next checkpoint has completed; operations
    /// that need room wait for it. If the volume is older than the counting of usage, all its
    /// inodes are counted first, and the quotas hold afterwards. The rules are in memory only, and
    /// have to be set again after each start.
    ///
    /// # Errors
    /// `NotSupported` if the engine does not count usage, `ReadOnly` for a view of a snapshot.
    pub fn set_quotas(&self, rules: QuotaRules) -> Result<(), FsError> {
        self.live()?;
        if !self.core.counts_usage() && !rules.is_empty() {
            return Err(FsError::NotSupported);
        }
        if self.quota.set_rules(rules) {
            self.core.schedule.note_changed(self.id);
            self.core.schedule.want(self.core.epoch_lock().epoch());
        }
        Ok(())
    }

    /// Returns the state of the volume's quotas.
    pub fn quota_state(&self) -> QuotaState {
        self.quota.state()
    }

    /// Returns the usage and limits of an owner; `None` unless quotas hold.
    pub fn quota_of(&self, id: QuotaId) -> Option<QuotaEntry> {
        self.quota.entry(id)
    }

    /// Returns the limits of users without a rule of their own; all 0: none.
    pub fn default_quota(&self) -> QuotaLimit {
        self.quota.default_user()
    }

    /// Returns up to `most` users with usage or limits of their own, from the number `first` on, in
    /// ascending order; none unless quotas hold.
    pub fn quota_users(&self, first: u32, most: usize) -> Vec<QuotaEntry> {
        self.quota.users(first, most)
    }

    /// Returns all owners with usage or limits, by kind and number; none without quotas.
    pub fn quota_report(&self) -> Vec<QuotaEntry> {
        self.quota.entries()
    }
}
