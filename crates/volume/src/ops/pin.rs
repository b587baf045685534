//! Pins: keep inodes that have lost their last name and are still open.
//!
//! A protocol that opens files (NFSv4, SMB) *pins* an inode for as long as one of its clients has
//! it open. A pinned inode whose last name is removed lives on without one: it can be read and
//! written. A record in the volume's tree ([`kind::ORPHAN`](crate::format::record::kind::ORPHAN),
//! beside an inode with no links) says so. The removal's log record has the inode with no links in
//! place of its end, so this survives a crash (NFSv4's OPEN4_RESULT_PRESERVE_UNLINKED, RFC 8881
//! section 18.16). NFSv3 opens nothing, pins nothing, and pays one load from memory for each
//! removal of a last name.
//!
//! **The end.** Pins are in memory only. After a start it is unknown which inodes clients still
//! have open until they have reclaimed their opens. So nothing is deleted before the grace period
//! is over ([`ClientRecords::end_grace`](crate::ClientRecords::end_grace)); there is none if no
//! client was recorded. From then on, each checkpoint deletes inodes without a name and a pin. It
//! does so between two operations, and writes nothing to the log for it: after a crash before it is
//! durable, a later checkpoint repeats it.
//!
//! An inode without links is in the volume's set of these, or it is being deleted: an operation
//! that loads one from an outdated tree checks the set.

use std::sync::Arc;

use weir_base::Ino;

use crate::format::edit::Edits;
use crate::overlay::context::EngineContext;
use crate::overlay::inode::alive;
use crate::overlay::reservation::Reservation;
use crate::overlay::role::State;
use crate::overlay::volume::{Live, Volume};
use crate::types::Stop;

/// Number of inodes that one entry of the stream ends.
const ENDED_EDITS: usize = 1024;

/// Keeps an inode, even without a name, until it is dropped.
pub struct Pin {
    volume: Arc<Volume>,
    ino: Ino,
}

impl Pin {
    /// Returns the pinned inode's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let Some(live) = self.volume.as_live() else {
            // Inodes of a snapshot are never deleted.
            return;
        };
        if live.unlinked.unpin(self.ino) {
            self.volume.core.schedule.note_changed(self.volume.id);
        }
    }
}

impl Volume {
    /// Keeps the inode until the pin is dropped, even if it loses its names; a directory still ends
    /// with its name. An inode may have any number of pins.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn pin(self: &Arc<Self>, cx: &mut EngineContext, ino: Ino) -> Result<Pin, Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        alive(&st)?;
        if let Some(live) = self.as_live() {
            live.unlinked.pin(ino, st.rec.nlink > 0)?;
        }
        Ok(Pin {
            volume: Arc::clone(self),
            ino,
        })
    }

    /// Tells the partner, which has no pins, that inodes have ended: it ends them when it reads
    /// this. An inode of a volume that is deleted or reverted ends with that.
    fn ship_ended(&self, live: &Live, ended: &[Ino]) {
        if !self.core.log.ships()
            || !matches!(
                live.standing.state(),
                State::Serving(_) | State::Held { .. }
            )
        {
            return;
        }
        for some in ended.chunks(ENDED_EDITS) {
            let mut edits = Edits::new(self.id, 9 * some.len());
            some.iter().for_each(|ino| edits.dead(*ino));
            if self.core.log.ship(edits).is_err() {
                // The log is poisoned: this becomes durable nowhere.
                return;
            }
        }
    }

    /// Ends the inodes that have no name and are not open. Called while the epoch lock is held
    /// exclusively, before the changed inodes are taken. Returns those whose records are all in the
    /// tree.
    pub(crate) fn end_unlinked(&self, live: &Live) -> Vec<Ino> {
        if self.core.in_grace() || self.protected() {
            return Vec::new();
        }
        let mut stored = Vec::new();
        let ended = live.unlinked.take();
        self.ship_ended(live, &ended);
        for ino in ended {
            let Some(inode) = self.table.get(ino) else {
                stored.push(ino);
                continue;
            };
            let mut st = inode.state.write();
            let st = &mut *st;
            let counted = self.quota.note(st);
            st.dead = true;
            if st.active.is_none() && st.frozen.is_empty() {
                stored.push(ino);
                continue;
            }
            let mut reservation = Reservation::if_possible(&self.core.agg, 2);
            let delta = self.touch_closed(live, &inode, st, &mut reservation);
            delta.bury();
            delta.unlinked = true;
            self.quota.change(counted, st);
        }
        stored
    }
}
