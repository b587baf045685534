//! The change counter that clients see: one value never names two contents.
//!
//! A client that has cached a file compares the counter (NFSv4 `change`, RFC 8881 section 5.8.1.4) with the one it
//! remembers, and keeps its cache if they are equal. An inode's own counter goes up with every change, but it also goes
//! back: a crash loses what the log does not have, a revert is the past again, and what a transfer brings counts as the
//! source counted. If the counter then goes up again, a value that has been shown for one content is shown for another,
//! and a client that missed what came between reads its old cache for ever.
//!
//! So a volume has a *base*, and what is shown is base + counter. Whenever counters may have gone back the base rises
//! above everything that was shown before. Values therefore only increase for each inode, across all of it, which is what
//! NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR (RFC 7862 section 12.2.3) requires: a client may take a smaller value for a late
//! reply. (Raising the counters of changed inodes alone would spare the caches of all the others. But after a crash it is
//! unknown which inodes had changed, and those that fell back would show smaller values than before.)
//!
//! **How far it rises.** Of each volume the *top* is known: no inode that it has or had counts further. Checkpoints
//! take it from the inodes that they merge and store it with the volume; replay takes it from the records. So the
//! greatest value shown is base + top, plus what a crash has lost that was in no checkpoint and no
//! record: [`LOST`] is far more than one inode can change between two checkpoints.
//!
//! **Durable before it is shown.** A revert or a transfer is carried out by a checkpoint, which stores the base with
//! it. At a start, the base rises unless the aggregate was closed cleanly: its record says so, the last checkpoint
//! of [`Engine::shutdown`](crate::Engine::shutdown) having written that, after which nothing is changed any more. Each start
//! writes a record to the log ([`Edit::Opened`](crate::format::edit::Edit::Opened)) before anything is served. From it a next start
//! knows that this one has been, though it may not have come to a checkpoint, and raises the bases once for it,
//! as this one did, and then once for itself.
//!
//! A snapshot never changes and has an identity of its own for clients, so its base is 0; but the one that a destination
//! shows as itself has the destination's.

use crate::checkpoint::table::VolumeTable;
use crate::overlay::volume::Volume;

/// Changes of one inode that a crash loses at most.
const LOST: u64 = 1 << 32;

impl Volume {
    /// The base that follows when all counters may have gone back, none of which was above `top`.
    pub(crate) fn next_change_base(&self, top: u64) -> u64 {
        let base = self.counters.base();
        base.wrapping_add(top).wrapping_add(1)
    }

    /// What was shown since the last checkpoint may be lost. No client is served yet.
    fn raise_after_crash(&self) {
        let top = self.counters.top();
        let next = self.next_change_base(top.wrapping_add(LOST));
        self.counters.set_base(next);
        self.core.schedule.note_changed(self.id);
    }
}

impl VolumeTable {
    /// The aggregate was opened here, or is being opened after it was not closed cleanly.
    pub(crate) fn raise_change_bases(&self) {
        for vol in self.all() {
            vol.raise_after_crash();
        }
    }
}
