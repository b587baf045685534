//! The effect of losing a name on an inode, in its record, in the log and in the overlay.

use std::sync::Arc;

use weir_base::{Ino, Poison};

use crate::format::edit::Edits;
use crate::format::record::InodeRec;
use crate::overlay::inode::{Inode, State, stamped};
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, Volume};
use crate::types::{FileKind, FsError, Stop};

/// Maximum number of blocks that an operation on a few names makes a checkpoint write: a leaf for
/// each of up to three inodes and entries, and their shares above.
pub(crate) const NAME_BLOCKS: u64 = 12;

/// Checks that a name of this inode may be removed as that of a directory or of another inode.
pub(crate) fn removable(child: &State, want_dir: bool) -> Result<(), Stop> {
    match (child.rec.kind == FileKind::Directory, want_dir) {
        (true, false) => Err(FsError::IsDir.into()),
        (false, true) => Err(FsError::NotDir.into()),
        (true, true) if child.rec.entries > 0 => Err(FsError::NotEmpty.into()),
        _ => Ok(()),
    }
}

/// Returns the record after one of its names is removed; a directory has only one.
pub(crate) fn unlinked(guard: &Poison, rec: InodeRec, now: weir_base::Time) -> InodeRec {
    let mut rec = stamped(rec, now, false);
    rec.nlink = match rec.kind {
        FileKind::Directory => 0,
        _ => guard.less(rec.nlink, 1, "links of a file that has a name"),
    };
    rec
}

/// Returns true if an inode that lost a name ends with it. Its lock is held.
fn ends(entered: &ChangePermit<'_>, ino: Ino, rec: &InodeRec) -> bool {
    let open = || rec.kind != FileKind::Directory && entered.live().unlinked.is_pinned(ino);
    rec.nlink == 0 && !open()
}

/// Adds the edit for an inode that lost a name.
pub(crate) fn log_unlinked(
    entered: &ChangePermit<'_>,
    edits: &mut Edits,
    ino: Ino,
    rec: &InodeRec,
) {
    match ends(entered, ino, rec) {
        true => edits.dead(ino),
        false => edits.inode(ino, rec),
    }
}

impl Volume {
    /// Applies the changes of [`unlinked`] and [`log_unlinked`] to an inode.
    pub(crate) fn apply_unlinked(
        &self,
        entered: &ChangePermit<'_>,
        inode: &Arc<Inode>,
        st: &mut State,
        rec: InodeRec,
        reservation: &mut Reservation<'_>,
    ) {
        let ends = ends(entered, inode.ino, &rec);
        let counted = self.quota.note(st);
        let delta = self.touch(entered, inode, st, reservation);
        if ends {
            delta.bury();
            st.dead = true;
        } else if rec.nlink == 0 {
            entered.live().unlinked.insert(inode.ino);
        }
        self.quota.held(counted).finish(st, rec);
    }
}
