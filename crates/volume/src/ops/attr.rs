//! Attributes: getting and setting them, truncation, link targets, space.

use weir_base::limits::{MAX_FILE_SIZE, MAX_SYMLINK};
use weir_base::{BLOCK_SIZE, Ino, Time};
use weir_store::node::Key;

use crate::format::edit::Edits;
use crate::format::record::{DOS_ATTRIBUTES, InodeRec, SYMLINK_PIECE, blocks_of, kind};
use crate::ops::admission::SMALL_OP;
use crate::overlay::context::EngineContext;
use crate::overlay::file_delta::Page;
use crate::overlay::inode::{State, alive, malformed, stamped};
use crate::overlay::volume::Volume;
use crate::types::{Attr, Change, Done, FileKind, FsError, SetAttr, SetTime, StatFs, Stop};

/// Returns `rec` with the attributes in `set`, except the size. Does not update timestamps.
pub(crate) fn with_attrs(mut rec: InodeRec, set: &SetAttr, now: Time) -> InodeRec {
    if let Some(mode) = set.mode {
        rec.mode = (mode & 0o7777) as u16;
    }
    rec.uid = set.uid.unwrap_or(rec.uid);
    rec.gid = set.gid.unwrap_or(rec.gid);
    match set.atime {
        SetTime::Keep => {}
        SetTime::Server => rec.atime = now,
        SetTime::Client(t) => rec.atime = t,
    }
    match set.mtime {
        SetTime::Keep => {}
        SetTime::Server => rec.mtime = now,
        SetTime::Client(t) => rec.mtime = t,
    }
    rec.ctime = set.ctime.unwrap_or(rec.ctime);
    rec.btime = set.btime.unwrap_or(rec.btime);
    rec.dos = set.dos.map_or(rec.dos, |dos| dos & DOS_ATTRIBUTES);
    rec
}

/// The last page after a truncation to the middle of a block.
pub(crate) struct CutTail {
    pub(crate) block: u64,
    pub(crate) page: Page,
}

impl Volume {
    /// Returns the attributes of an inode.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn getattr(&self, cx: &mut EngineContext, ino: Ino) -> Result<Attr, Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        alive(&st)?;
        Ok(self.attr_of(ino, &st))
    }

    /// Sets attributes. With `guard`, only if the change time equals it (RFC 1813 section 3.3.2).
    /// Durable once the log has reached `Done::lsn`.
    /// log has reached `Done::lsn`.
    ///
    /// # Errors
    /// `Stale`, `NotSync`, `Invalid` (a size of something other than a regular file; `IsDir` for a
    /// directory), `FileTooBig`, `NoSpace`, `ReadOnly`, `Io`.
    pub fn setattr(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Result<Done<Change>, Stop> {
        self.setattr_if(cx, ino, set, guard, || Ok(()))
    }

    /// Like [`Volume::setattr`], if `allowed` permits it at the moment of the change. `allowed` is
    /// evaluated under the inode's lock, so each read is either before or after it. It must not
    /// wait for anything.
    ///
    /// # Errors
    /// As [`Volume::setattr`], and the errors of `allowed`.
    pub fn setattr_if<E: From<Stop> + From<FsError>>(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        set: &SetAttr,
        guard: Option<Time>,
        allowed: impl FnOnce() -> Result<(), E>,
    ) -> Result<Done<Change>, E> {
        self.writable()?;
        let given = |t| match t {
            SetTime::Client(t) => Some(t),
            SetTime::Keep | SetTime::Server => None,
        };
        let mut times = [given(set.atime), given(set.mtime), set.ctime, set.btime].into_iter();
        if times.any(|t| t.is_some_and(|t| t.nanos >= 1_000_000_000)) {
            return Err(FsError::Invalid.into());
        }
        if set.size.is_some_and(|s| s > MAX_FILE_SIZE) {
            return Err(FsError::FileTooBig.into());
        }
        // Deleting must work on a full volume, and truncation is deleting.
        let mut reservation = match set.size {
            Some(_) => self.reserve_for_delete(cx, 6)?,
            None => self.reserve(cx, 4)?,
        };
        self.core.schedule.admit(SMALL_OP)?;
        let inode = self.inode(cx, ino)?;
        let pass = self.enter()?;
        let mut st = inode.state.write();
        let st = &mut *st;
        alive(st)?;
        allowed()?;
        let before = self.attr_of(ino, st);
        if guard.is_some_and(|g| g != before.ctime) {
            return Err(FsError::NotSync.into());
        }
        if set.size.is_some() {
            match st.rec.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(FsError::IsDir.into()),
                _ => return Err(FsError::Invalid.into()),
            }
        }
        let mut rec = stamped(st.rec, cx.now, set.size.is_some_and(|s| s != st.rec.size));
        rec = with_attrs(rec, set, cx.now);
        let held = self.hold_owners(cx, &pass, st, &rec)?;
        let mut tail = None;
        let mut edits = Edits::new(self.id, 160);
        if let Some(size) = set.size {
            if size < st.rec.size {
                tail = self.cut_tail(cx, ino, st, size)?;
                edits.cut(ino, size);
            }
            rec.size = size;
        }
        edits.inode(ino, &rec);
        let lsn = self.core.log.append_call(cx, self.id, edits, ino)?;
        let shrinks = rec.size < st.rec.size;
        let delta = self.touch(&pass, &inode, st, &mut reservation);
        if shrinks {
            delta.file().cut(blocks_of(rec.size));
            if let Some(CutTail { block, page }) = tail {
                self.put_page(delta, block, page, &mut reservation);
            }
        }
        held.loosely(shrinks).finish(st, rec);
        Ok(Done {
            value: Change {
                before,
                after: self.attr_of(ino, st),
            },
            lsn: Some(lsn),
        })
    }

    /// Records a read of the content that this volume did not see. Kept in memory only, like the
    /// access times of reads.
    ///
    /// # Errors
    /// `Stale`, `ReadOnly`, `Io`.
    pub fn note_access(&self, cx: &mut EngineContext, ino: Ino, at: Time) -> Result<Attr, Stop> {
        self.writable()?;
        let inode = self.inode(cx, ino)?;
        let mut st = inode.state.write();
        alive(&st)?;
        st.rec.atime = at;
        Ok(self.attr_of(ino, &st))
    }

    /// Returns the last block of a file cut to `size`, zeroed after its end, if that is needed.
    /// Bytes after the end must read as zeros should the file grow.
    pub(crate) fn cut_tail(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        size: u64,
    ) -> Result<Option<CutTail>, Stop> {
        let within = (size % BLOCK_SIZE as u64) as usize;
        if within == 0 {
            return Ok(None);
        }
        let block = size / BLOCK_SIZE as u64;
        let Some(base) = self.block(cx, ino, st, block)? else {
            return Ok(None);
        };
        let mut frame = self.frame()?;
        let (keep, zero) = frame.split_at_mut(within);
        keep.copy_from_slice(base.frame.get(..within).unwrap_or_default());
        zero.fill(0);
        // Replaying the cut makes the same page from a page that the log has. If the log does not
        // have the old page, the new one is not durable either.
        let page = if base.durable {
            Page::logged(frame.freeze())
        } else {
            Page::unlogged(frame.freeze())
        };
        Ok(Some(CutTail { block, page }))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` if it is not a link, `Stale`, `Io`.
    pub fn readlink(&self, cx: &mut EngineContext, ino: Ino) -> Result<(Vec<u8>, Attr), Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        alive(&st)?;
        if st.rec.kind != FileKind::Symlink {
            return Err(FsError::Invalid.into());
        }
        let attr = self.attr_of(ino, &st);
        for delta in st.layers() {
            if let Some(target) = &delta.symlink {
                return Ok((target.to_vec(), attr));
            }
        }
        let len = usize::try_from(st.rec.size)
            .ok()
            .filter(|n| *n <= MAX_SYMLINK)
            .ok_or_else(|| malformed(self.id, ino, "link size"))?;
        let mut target = Vec::with_capacity(len);
        for piece in 0..len.div_ceil(SYMLINK_PIECE) as u64 {
            let key = Key::new(ino.0, kind::SYMLINK, piece);
            match self.tree_get(cx, &key)? {
                Some(value) => target.extend_from_slice(&value),
                None => return Err(malformed(self.id, ino, "link without target")),
            }
        }
        if target.len() != len {
            return Err(malformed(self.id, ino, "link target"));
        }
        Ok((target, attr))
    }

    /// Returns space and inodes: of the volume's limit if it has one, and never more than the
    /// aggregate has.
    pub fn statfs(&self) -> StatFs {
        let block = BLOCK_SIZE as u64;
        let used = self.space.blocks_used();
        let (agg_total, agg_free) = self.core.capacity();
        let limit = self.space.room();
        let total = if limit == 0 { agg_total * block } else { limit };
        // Saturates: a limit may be below the used space.
        let free = total.saturating_sub(used * block).min(agg_free * block);
        // An inode with its entry takes some 250 bytes of a leaf; inode numbers themselves do not
        // run out.
        let files_free = free / 256;
        StatFs {
            total,
            free,
            available: free,
            files: total / 256,
            files_free,
        }
    }

    /// Returns the bytes of data in the last checkpoint: at most seconds old, and read without any
    /// lock.
    pub fn used(&self) -> u64 {
        self.space.used() * BLOCK_SIZE as u64
    }

    /// Returns the bytes of the capacity reserved for blocks that only snapshots hold.
    pub fn snapshot_reserve(&self) -> u64 {
        self.space.snapshot_reserve()
    }

    /// Returns the capacity limit in bytes; 0: none.
    pub fn limit(&self) -> u64 {
        self.space.limit()
    }
}
