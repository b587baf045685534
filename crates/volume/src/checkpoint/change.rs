//! The change counter that clients see: one value never stands for two contents.
//!
//! A client that has cached a file compares the counter (NFSv4 `change`, RFC 8881 section 5.8.1.4)
//! with its remembered value, and keeps its cache if they are equal. An inode's own counter goes up
//! with every change, but it also goes back. A crash loses changes that are not in the log, a
//! revert restores the past, and a transfer brings the source's counters. If the counter then goes
//! up again, a value shown for one content is shown for another. A client that missed the changes
//! between would use its old cache for ever.
//!
//! So a volume has a *base*, and clients see base + counter. Whenever counters may have gone back,
//! the base rises above every value shown before. Values therefore only increase for each inode,
//! which NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR (RFC 7862 section 12.2.3) requires: a client may take a
//! smaller value for a late reply. (Raising the counters of changed inodes alone would keep the
//! other caches valid. But after a crash it is unknown which inodes had changed, and those that
//! fell back would show smaller values than before.)
//!
//! **Size of the rise.** The *top* of each volume is known: no inode that it has or had counts
//! higher. Checkpoints take it from the inodes that they merge and store it with the volume; replay
//! takes it from the records. So the highest value shown is base + top, plus the changes lost in a
//! crash that were in no checkpoint and no record. [`LOST`] is far more than one inode can change
//! between two checkpoints.
//!
//! **Durable before it is shown.** A checkpoint carries out a revert or a transfer, and stores the
//! base with it. At a start, the base rises unless the aggregate was closed cleanly. A clean close
//! is in the aggregate's record, written by the last checkpoint of
//! [`Engine::shutdown`](crate::Engine::shutdown), after which nothing changes. Each start writes a
//! record to the log ([`Edit::Opened`](crate::format::edit::Edit::Opened)) before anything is
//! served. It tells the next start of this one, even if this one takes no checkpoint. The next
//! start then raises the bases once for this start, and once for itself.
//!
//! A snapshot never changes and has an identity of its own for clients, so its base is 0. But the
//! snapshot that a destination shows as itself has the destination's base.

use crate::checkpoint::table::VolumeTable;
use crate::overlay::volume::Volume;

/// Maximum number of changes of one inode that a crash loses.
const LOST: u64 = 1 << 32;

impl Volume {
    /// Returns the next base after all counters may have gone back, none of which was above `top`.
    pub(crate) fn next_change_base(&self, top: u64) -> u64 {
        let base = self.counters.base();
        base.wrapping_add(top).wrapping_add(1)
    }

    /// Raises the base because values shown since the last checkpoint may be lost. No client is
    /// served yet.
    fn raise_after_crash(&self) {
        let top = self.counters.top();
        let next = self.next_change_base(top.wrapping_add(LOST));
        self.counters.set_base(next);
        self.core.schedule.note_changed(self.id);
    }
}

impl VolumeTable {
    /// Raises all bases, when the aggregate has been opened, or is being opened after an unclean
    /// close.
    pub(crate) fn raise_change_bases(&self) {
        for vol in self.list_volumes() {
            vol.raise_after_crash();
        }
    }
}
