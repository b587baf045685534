//! Punches holes in files (NFSv4.2 DEALLOCATE, RFC 7862 section 15.4; SMB's FSCTL_SET_ZERO_DATA).
//!
//! Whole blocks become holes. The overlay hides the layers below, the next checkpoint frees the
//! stored blocks, and blocks that a snapshot still refers to stay as with any other change. At the
//! edges, within a block, zeroes are written, unless there is a hole already. The record in the log
//! has the range and the two pages, so replaying it computes nothing.

use smallvec::SmallVec;
use weir_base::limits::MAX_FILE_SIZE;
use weir_base::{BLOCK_SIZE, Ino};
use weir_store::Frame;

use crate::format::edit::Edits;
use crate::format::record::{InodeRec, blocks_of};
use crate::ops::admission::SMALL_OP;
use crate::overlay::context::EngineContext;
use crate::overlay::file_delta::{Page, RANGE_BYTES};
use crate::overlay::inode::{State, alive, stamped};
use crate::overlay::volume::Volume;
use crate::types::{AtEnd, Change, Done, FileKind, FsError, SetIds, Stop};

const BLOCK: u64 = BLOCK_SIZE as u64;

impl Volume {
    /// Makes `len` bytes from `off` on read as zeroes, and frees the whole blocks among them. Bytes
    /// beyond the end of the file are a hole already; its size stays. Durable once the log has
    /// reached `Done::lsn`.
    ///
    /// # Errors
    /// `Invalid` or `IsDir` for anything but a regular file, `Invalid` for a length of 0;
    /// `FileTooBig`; `NoSpace` (for the edges), `ReadOnly`, `Stale`, `Io`.
    pub fn punch(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        off: u64,
        len: u64,
    ) -> Result<Done<Change>, Stop> {
        let hole = (off, len);
        self.punch_if(SetIds::Keep, cx, ino, hole, AtEnd::Keep, || Ok(()))
    }

    /// Like [`Volume::punch`], with the size set as `at_end` says (which may be the only effect,
    /// with a length of 0), if `allowed` permits it at the moment of the change. `allowed` is
    /// evaluated under the file's lock. It must not wait for anything.
    ///
    /// # Errors
    /// As [`Volume::punch`], and the errors of `allowed`.
    pub fn punch_if<E: From<Stop> + From<FsError>>(
        &self,
        set_ids: SetIds,
        cx: &mut EngineContext,
        ino: Ino,
        (off, len): (u64, u64),
        at_end: AtEnd,
        allowed: impl FnOnce() -> Result<(), E>,
    ) -> Result<Done<Change>, E> {
        self.writable()?;
        let end = off
            .checked_add(len)
            .filter(|end| *end <= MAX_FILE_SIZE)
            .ok_or(FsError::FileTooBig)?;
        if len == 0 && at_end == AtEnd::Keep {
            return Err(FsError::Invalid.into());
        }
        // Deleting must work on a full volume.
        let mut reservation = self.reserve_for_delete(cx, 10)?;
        self.core.schedule.admit(SMALL_OP + 2 * BLOCK)?;
        let inode = self.inode(cx, ino)?;
        let pass = self.enter()?;
        let mut st = inode.state.write();
        let st = &mut *st;
        alive(st)?;
        match st.rec.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDir.into()),
            _ => return Err(FsError::Invalid.into()),
        }
        let before = self.attr_of(ino, st);
        let mut rec = stamped(st.rec, cx.now, true);
        if at_end == AtEnd::Grow {
            rec.size = rec.size.max(end);
        }
        rec.mode = set_ids.after_write(rec.mode);
        let end = match end >= st.rec.size {
            true => blocks_of(st.rec.size) * BLOCK,
            false => end,
        };
        let (first, behind) = (off.div_ceil(BLOCK), end / BLOCK);
        let mut edges: SmallVec<[(u64, Frame); 2]> = SmallVec::new();
        if off < end {
            let (head, tail) = (off / BLOCK, (end - 1) / BLOCK);
            if off % BLOCK != 0 {
                edges.extend(self.zeroed(cx, ino, st, (off, end.min((head + 1) * BLOCK)))?);
            }
            if end % BLOCK != 0 && (tail != head || off % BLOCK == 0) {
                edges.extend(self.zeroed(cx, ino, st, (off.max(tail * BLOCK), end))?);
            }
        }
        allowed()?;
        let mut edits = Edits::new(self.id, 2 * InodeRec::LEN);
        if first < behind {
            edits.punch(ino, first, behind - first);
        }
        edits.pages(ino, edges.iter().map(|(block, page)| (*block, page)));
        edits.inode(ino, &rec);
        let lsn = self.core.log.append_call(cx, self.id, edits, ino)?;
        let counted = self.quota.note(st);
        let delta = self.touch(&pass, &inode, st, &mut reservation);
        if first < behind {
            delta.file().punch(first, behind);
            // The windows at both ends.
            let charge = reservation.take(2);
            self.charge(delta, charge, RANGE_BYTES);
        }
        for (block, page) in edges {
            self.put_page(delta, block, Page::logged(page), &mut reservation);
        }
        self.quota.held(counted).loosely(true).finish(st, rec);
        Ok(Done {
            value: Change {
                before,
                after: self.attr_of(ino, st),
            },
            lsn: Some(lsn),
        })
    }

    /// Returns the block that contains these bytes, with zeroes in their place; `None` if it is a
    /// hole.
    fn zeroed(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        (from, to): (u64, u64),
    ) -> Result<Option<(u64, Frame)>, Stop> {
        let block = from / BLOCK;
        let Some(base) = self.block(cx, ino, st, block)? else {
            return Ok(None);
        };
        let mut frame = self.frame()?;
        frame.copy_from_slice(&base.frame[..]);
        let start = block * BLOCK;
        frame[(from - start) as usize..(to - start) as usize].fill(0);
        Ok(Some((block, frame.freeze())))
    }
}
