//! Names: lookup, creation, links and removal.

use std::sync::Arc;

use weir_base::limits::{MAX_LINKS, MAX_SYMLINK, MAX_VALUE};
use weir_base::{Ino, Lsn};

use crate::format::edit::Edits;
use crate::format::record::{DirentRef, InodeRec, flag, kind};
use crate::ops::admission::SMALL_OP;
use crate::ops::attr::with_attrs;
use crate::ops::constituent::check_here;
use crate::ops::directory::{Hit, Search, check_name, is_dots};
use crate::ops::unlink::{NAME_BLOCKS, log_unlinked, removable, unlinked};
use crate::overlay::context::EngineContext;
use crate::overlay::delta::ENTRY_BYTES;
use crate::overlay::inode::{Inode, LockedInodes, State, alive, alive_dir, malformed, stamped};
use crate::overlay::volume::Volume;
use crate::types::{
    Attr, Change, CreateHow, CreateOut, Done, FileKind, FsError, LinkOut, LookupOut, RemoveOut,
    SetAttr, Stop,
};

/// Description of a new inode.
struct NewInode<'a> {
    rec: InodeRec,
    target: Option<&'a [u8]>,
    /// True for the folder of a new tree; all else belongs to the tree of its directory.
    founds_tree: bool,
}

impl NewInode<'_> {
    fn from_record(rec: InodeRec) -> NewInode<'static> {
        NewInode {
            rec,
            target: None,
            founds_tree: false,
        }
    }

    /// Returns the expected length of the edits that create it with this name and a list of so many
    /// bytes.
    fn edit_bytes(&self, name: &[u8], listed: usize) -> usize {
        let target = self.target.map_or(0, <[u8]>::len);
        2 * InodeRec::TREE_LEN + 64 + name.len() + target + listed
    }
}

/// Refuses a new name in `dir` for an inode that cannot have one there.
fn check_linkable(st: &State, dir: &State) -> Result<(), Stop> {
    if st.rec.kind == FileKind::Directory {
        return Err(FsError::IsDir.into());
    }
    if st.rec.nlink == 0 {
        // An open inode without a name cannot get one again.
        return Err(FsError::Stale.into());
    }
    if st.rec.nlink >= MAX_LINKS {
        return Err(FsError::TooManyLinks.into());
    }
    match st.rec.tree == dir.rec.tree {
        true => Ok(()),
        false => Err(FsError::CrossDevice.into()),
    }
}

impl Volume {
    /// Looks up a name in a directory, including "." and "..".
    ///
    /// # Errors
    /// `NotFound`, `NotDir`, `NameTooLong`, `Invalid`, `Stale`, `Io`.
    pub fn lookup(&self, cx: &mut EngineContext, dir: Ino, name: &[u8]) -> Result<LookupOut, Stop> {
        // A child that was removed between the two steps is looked up again.
        loop {
            let parent = self.inode(cx, dir)?;
            let (hit, dir_attr) = {
                let st = parent.state.read();
                alive_dir(&st)?;
                let dir_attr = self.attr_of(dir, &st);
                match name {
                    b"." => {
                        return Ok(LookupOut {
                            ino: dir,
                            attr: dir_attr,
                            dir: dir_attr,
                        });
                    }
                    b".." => (self.parent_of(dir, &st), dir_attr),
                    _ => {
                        check_name(name)?;
                        match self.find(cx, dir, &st, name)? {
                            Search::Hit(hit) => (hit.ino, dir_attr),
                            Search::Miss(_) => return Err(FsError::NotFound.into()),
                        }
                    }
                }
            };
            check_here(hit)?;
            if hit == dir {
                return Ok(LookupOut {
                    ino: dir,
                    attr: dir_attr,
                    dir: dir_attr,
                });
            }
            let child = match self.inode(cx, hit) {
                Err(Stop::Fail(FsError::Stale)) => {
                    self.still_named(cx, &parent, name, hit)?;
                    continue;
                }
                other => other?,
            };
            let st = child.state.read();
            if st.dead {
                continue;
            }
            return Ok(LookupOut {
                ino: hit,
                attr: self.attr_of(hit, &st),
                dir: dir_attr,
            });
        }
    }

    /// Like [`Volume::lookup`], for a name in any case. Returns the inode, and its name as it is
    /// stored. The exact name has priority; of several others, the choice does not change while
    /// they stay.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn lookup_folded(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
    ) -> Result<(LookupOut, Box<[u8]>), Stop> {
        if is_dots(name) {
            return Ok((self.lookup(cx, dir, name)?, name.into()));
        }
        check_name(name)?;
        // A child that was renamed or removed between the two steps is looked up again.
        loop {
            let stored = {
                let parent = self.inode(cx, dir)?;
                let st = parent.state.read();
                alive_dir(&st)?;
                self.find_folded(cx, dir, &st, name)?
            };
            let stored = stored.ok_or(FsError::NotFound)?;
            match self.lookup(cx, dir, &stored) {
                Err(Stop::Fail(FsError::NotFound)) => {}
                found => return Ok((found?, stored)),
            }
        }
    }

    /// Returns the parent of a directory; the root is its own.
    pub(crate) fn parent_of(&self, dir: Ino, st: &State) -> Ino {
        if dir == self.root() {
            dir
        } else {
            st.rec.parent
        }
    }

    /// Checks an entry that leads to a missing inode. If the entry is still there, that is damage;
    /// if not, it was removed meanwhile.
    fn still_named(
        &self,
        cx: &mut EngineContext,
        parent: &Arc<Inode>,
        name: &[u8],
        ino: Ino,
    ) -> Result<(), Stop> {
        let st = parent.state.read();
        alive_dir(&st)?;
        match self.find(cx, parent.ino, &st, name)? {
            Search::Hit(hit) if hit.ino == ino => {
                Err(malformed(self.id, parent.ino, "entry without inode"))
            }
            _ => Ok(()),
        }
    }

    /// Creates a regular file, or opens an existing one as `how` says. Durable once the log has
    /// reached `Done::lsn`.
    ///
    /// # Errors
    /// `Exists`, `IsDir` (an existing name that is not a regular file), `NotDir`, `NameTooLong`,
    /// `Invalid`, `NoSpace`, `ReadOnly`, `Stale`, `Io`.
    pub fn create(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
        how: CreateHow,
        attrs: &SetAttr,
    ) -> Result<Done<CreateOut>, Stop> {
        self.create_if(cx, dir, name, how, attrs, |_| Ok(()))
    }

    /// Like [`Volume::create`]; an existing file is only truncated if `allowed` permits it, as in
    /// [`Volume::setattr_if`].
    ///
    /// # Errors
    /// As [`Volume::create`], and the errors of `allowed`.
    pub fn create_if<E: From<Stop> + From<FsError>>(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
        how: CreateHow,
        attrs: &SetAttr,
        allowed: impl FnOnce(Ino) -> Result<(), E>,
    ) -> Result<Done<CreateOut>, E> {
        let mut rec = InodeRec::new(FileKind::Regular, attrs.mode.unwrap_or(0), cx.now);
        rec = with_attrs(rec, attrs, cx.now);
        rec.size = attrs.size.unwrap_or(0);
        if rec.size > weir_base::limits::MAX_FILE_SIZE {
            return Err(FsError::FileTooBig.into());
        }
        if let CreateHow::Exclusive(verifier) = how {
            rec.verifier = Some(verifier);
        }
        loop {
            match self.make(cx, dir, name, NewInode::from_record(rec)) {
                Err(Stop::Fail(FsError::Exists)) if how != CreateHow::Guarded => {}
                other => return Ok(other?),
            }
            match self.lookup(cx, dir, name) {
                // The name was removed between the two steps, and is free again.
                Err(Stop::Fail(FsError::NotFound)) => {}
                found => return self.open_existing(cx, found?, how, attrs, allowed),
            }
        }
    }

    /// Returns the result of a create whose name exists.
    fn open_existing<E: From<Stop> + From<FsError>>(
        &self,
        cx: &mut EngineContext,
        found: LookupOut,
        how: CreateHow,
        attrs: &SetAttr,
        allowed: impl FnOnce(Ino) -> Result<(), E>,
    ) -> Result<Done<CreateOut>, E> {
        let unchanged = Change {
            before: found.dir,
            after: found.dir,
        };
        let answer = |attr: Attr, lsn: Option<Lsn>| {
            Ok(Done {
                value: CreateOut {
                    ino: found.ino,
                    attr,
                    dir: unchanged,
                },
                lsn,
            })
        };
        if found.attr.kind != FileKind::Regular {
            return Err(match found.attr.kind {
                FileKind::Directory if how == CreateHow::Unchecked => FsError::IsDir,
                _ => FsError::Exists,
            }
            .into());
        }
        match how {
            CreateHow::Exclusive(verifier) => {
                // A retransmission of the request that created the file gets the reply of the first
                // (RFC 1813 section 3.3.8). Its record may still be on its way to the log, ahead of
                // everything appended from now on.
                let inode = self.inode(cx, found.ino)?;
                if inode.state.read().rec.verifier != Some(verifier) {
                    return Err(FsError::Exists.into());
                }
                answer(found.attr, self.core.log.last_appended())
            }
            _ => {
                let truncate = SetAttr {
                    size: attrs.size,
                    ..SetAttr::default()
                };
                if attrs.size.is_none() {
                    return answer(found.attr, self.core.log.last_appended());
                }
                let allowed = || allowed(found.ino);
                let done = self.setattr_if(cx, found.ino, &truncate, None, allowed)?;
                answer(done.value.after, done.lsn)
            }
        }
    }

    /// Creates a directory. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// As [`Volume::create`] guarded, and `TooManyLinks`.
    pub fn mkdir(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
        attrs: &SetAttr,
    ) -> Result<Done<CreateOut>, Stop> {
        let mut rec = InodeRec::new(FileKind::Directory, attrs.mode.unwrap_or(0), cx.now);
        rec = with_attrs(rec, attrs, cx.now);
        rec.parent = dir;
        self.make(cx, dir, name, NewInode::from_record(rec))
    }

    /// Creates a tree (qtree): a directory in the root directory whose inode's number, cut to 32
    /// bits, is the tree's. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// As [`Volume::mkdir`], and `NotSupported` if the format has no trees.
    pub fn create_tree(
        &self,
        cx: &mut EngineContext,
        name: &[u8],
        attrs: &SetAttr,
    ) -> Result<Done<CreateOut>, Stop> {
        if !self.core.has_trees() || !self.core.counts_usage() {
            return Err(FsError::NotSupported.into());
        }
        let mut rec = InodeRec::new(FileKind::Directory, attrs.mode.unwrap_or(0), cx.now);
        rec = with_attrs(rec, attrs, cx.now);
        rec.parent = self.root();
        let new = NewInode {
            founds_tree: true,
            ..NewInode::from_record(rec)
        };
        self.make(cx, self.root(), name, new)
    }

    /// Creates a symbolic link to `target`, which may be any bytes but NUL. Durable once the log
    /// has reached `Done::lsn`.
    ///
    /// # Errors
    /// As [`Volume::create`] guarded; `NameTooLong` for a target above `MAX_SYMLINK` bytes,
    /// `Invalid` for an empty one.
    pub fn symlink(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        attrs: &SetAttr,
    ) -> Result<Done<CreateOut>, Stop> {
        if target.len() > MAX_SYMLINK {
            return Err(FsError::NameTooLong.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid.into());
        }
        let mut rec = InodeRec::new(FileKind::Symlink, attrs.mode.unwrap_or(0o777), cx.now);
        rec = with_attrs(rec, attrs, cx.now);
        rec.size = target.len() as u64;
        let new = NewInode {
            target: Some(target),
            ..NewInode::from_record(rec)
        };
        self.make(cx, dir, name, new)
    }

    /// Creates a device node, socket or named pipe. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// As [`Volume::create`] guarded; `Invalid` for other kinds.
    pub fn mknod(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        rdev: (u32, u32),
        attrs: &SetAttr,
    ) -> Result<Done<CreateOut>, Stop> {
        let mut rec = InodeRec::new(kind, attrs.mode.unwrap_or(0), cx.now);
        rec = with_attrs(rec, attrs, cx.now);
        match kind {
            FileKind::Block | FileKind::Char => rec.rdev = rdev,
            FileKind::Socket | FileKind::Fifo => {}
            _ => return Err(FsError::Invalid.into()),
        }
        self.make(cx, dir, name, NewInode::from_record(rec))
    }

    /// Creates an inode with a new name.
    fn make(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
        mut new: NewInode<'_>,
    ) -> Result<Done<CreateOut>, Stop> {
        let list = cx.list.take();
        if list.is_some() {
            new.rec.flags |= flag::ACL;
        }
        let pieces = || list.iter().flat_map(|list| list.chunks(MAX_VALUE));
        if is_dots(name) {
            return Err(FsError::Exists.into());
        }
        check_name(name)?;
        let is_dir = new.rec.kind == FileKind::Directory;
        let parent = self.inode(cx, dir)?;
        // The reply for an existing name needs no space.
        let (found, change) = {
            let st = parent.state.read();
            alive_dir(&st)?;
            (self.find(cx, dir, &st, name)?, st.rec.change)
        };
        if let Search::Hit(_) = found {
            return Err(FsError::Exists.into());
        }
        self.writable()?;
        let listed = list.as_ref().map_or(0, |list| list.len());
        let mut reservation = self.reserve(cx, NAME_BLOCKS + pieces().count() as u64)?;
        let target = new.target.map_or(0, |t| t.len() as u64);
        let bytes = SMALL_OP + target + 2 * listed as u64;
        self.core.schedule.admit(bytes)?;

        let pass = self.enter()?;
        let mut st = parent.state.write();
        let st = &mut *st;
        alive_dir(st)?;
        let found = match found.still(change, st) {
            Some(found) => found,
            None => self.find(cx, dir, st, name)?,
        };
        let free = match found {
            Search::Hit(_) => return Err(FsError::Exists.into()),
            Search::Miss(free) => free.ok_or(FsError::NoSpace)?,
        };
        if is_dir && st.rec.nlink >= MAX_LINKS {
            return Err(FsError::TooManyLinks.into());
        }
        // The number of a tree has to be known before room is taken in it.
        let founded = new.founds_tree.then(|| self.take_tree(cx)).transpose()?;
        new.rec.tree = founded.map_or(st.rec.tree, |(_, number)| number);
        let held = self.hold_new(cx, &pass, &new.rec)?;
        let before = self.attr_of(dir, st);
        let mut dir_rec = stamped(st.rec, cx.now, true);
        dir_rec.entries += 1;
        dir_rec.nlink += u32::from(is_dir);
        let ino = founded.map_or_else(|| Ino(self.counters.take_ino()), |(ino, _)| ino);
        let entry = DirentRef {
            ino,
            kind: new.rec.kind,
            name,
        };
        let mut edits = Edits::new(self.id, new.edit_bytes(name, listed));
        edits.inode(ino, &new.rec);
        if let Some(target) = new.target {
            edits.symlink(ino, target);
        }
        for (sub, piece) in (0..).zip(pieces()) {
            edits.side(ino, kind::ACL, sub, Some(piece));
        }
        edits.put_entry(dir, free.cookie, entry);
        edits.inode(dir, &dir_rec);
        let lsn = self.core.log.append_call(cx, self.id, edits, ino)?;

        let inode = Arc::new(Inode::new(ino, new.rec));
        let attr = {
            let mut child = inode.state.write();
            let delta = self.touch(&pass, &inode, &mut child, &mut reservation);
            delta.new = true;
            delta.symlink = new.target.map(Box::from);
            for (sub, piece) in (0..).zip(pieces()) {
                delta.put_side(kind::ACL, sub, Some(piece.into()));
                let charge = reservation.take(1);
                self.charge(delta, charge, ENTRY_BYTES + piece.len() as u64);
            }
            held.settle_reservation(&child);
            self.attr_of(ino, &child)
        };
        self.table.insert_new(&inode);
        let delta = self.touch(&pass, &parent, st, &mut reservation);
        delta.put_name(free.cookie, entry.to_owned(), free.bare);
        let charge = reservation.take(1);
        self.charge(delta, charge, ENTRY_BYTES + name.len() as u64);
        st.rec = dir_rec;
        Ok(Done {
            value: CreateOut {
                ino,
                attr,
                dir: Change {
                    before,
                    after: self.attr_of(dir, st),
                },
            },
            lsn: Some(lsn),
        })
    }

    /// Appends the result of the call of `cx` after the records of its changes: a value of the
    /// protocol in place of an inode. Returns `None` if the call has no key.
    ///
    /// # Errors
    /// `ReadOnly`, `Io`.
    pub fn note_call(&self, cx: &mut EngineContext, word: Ino) -> Result<Option<Lsn>, Stop> {
        if cx.call.is_none() {
            return Ok(None);
        }
        self.core.schedule.admit(SMALL_OP)?;
        let _pass = self.enter()?;
        let edits = Edits::new(self.id, 0);
        Ok(Some(self.core.log.append_call(cx, self.id, edits, word)?))
    }

    /// Adds a name for an existing inode that is not a directory. Durable once the log has reached
    /// `Done::lsn`.
    ///
    /// # Errors
    /// `Exists`, `IsDir` if `ino` is a directory, `CrossDevice` if `dir` is in another tree,
    /// `TooManyLinks`, `NotDir`, `NameTooLong`, `Invalid`, `NoSpace`, `ReadOnly`, `Stale`, `Io`.
    pub fn link(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        dir: Ino,
        name: &[u8],
    ) -> Result<Done<LinkOut>, Stop> {
        self.writable()?;
        if is_dots(name) {
            return Err(FsError::Exists.into());
        }
        check_name(name)?;
        let parent = self.inode(cx, dir)?;
        let inode = self.inode(cx, ino)?;
        let mut reservation = self.reserve(cx, NAME_BLOCKS)?;
        self.core.schedule.admit(SMALL_OP)?;

        let pass = self.enter()?;
        let mut locked = LockedInodes::new(&[&parent, &inode]);
        alive_dir(locked.get(dir)?)?;
        let child = locked.get(ino)?;
        alive(child)?;
        let st = locked.get(dir)?;
        check_linkable(child, st)?;
        let free = match self.find(cx, dir, st, name)? {
            Search::Hit(_) => return Err(FsError::Exists.into()),
            Search::Miss(free) => free.ok_or(FsError::NoSpace)?,
        };
        let before = self.attr_of(dir, st);
        let mut dir_rec = stamped(st.rec, cx.now, true);
        dir_rec.entries += 1;
        let mut rec = stamped(child.rec, cx.now, false);
        rec.nlink += 1;
        let entry = DirentRef {
            ino,
            kind: rec.kind,
            name,
        };
        let mut edits = Edits::new(self.id, 2 * InodeRec::LEN + 64 + name.len());
        edits.inode(ino, &rec);
        edits.put_entry(dir, free.cookie, entry);
        edits.inode(dir, &dir_rec);
        let lsn = self.core.log.append_call(cx, self.id, edits, ino)?;

        if let Some((inode, st)) = locked.get_mut(ino) {
            self.touch(&pass, inode, st, &mut reservation);
            st.rec = rec;
            st.unlogged = false;
        }
        if let Some((inode, st)) = locked.get_mut(dir) {
            let delta = self.touch(&pass, inode, st, &mut reservation);
            delta.put_name(free.cookie, entry.to_owned(), free.bare);
            let charge = reservation.take(1);
            self.charge(delta, charge, ENTRY_BYTES + name.len() as u64);
            st.rec = dir_rec;
        }
        Ok(Done {
            value: LinkOut {
                dir: Change {
                    before,
                    after: self.attr_of(dir, locked.get(dir)?),
                },
                attr: self.attr_of(ino, locked.get(ino)?),
            },
            lsn: Some(lsn),
        })
    }

    /// Removes a name of an inode that is not a directory. Durable once the log has reached
    /// `Done::lsn`.
    ///
    /// # Errors
    /// `NotFound`, `IsDir`, `NotDir`, `NameTooLong`, `Invalid`, `ReadOnly`, `Stale`, `Io`.
    pub fn remove(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
    ) -> Result<Done<RemoveOut>, Stop> {
        if is_dots(name) {
            return Err(FsError::IsDir.into());
        }
        self.unlink(cx, dir, name, false)
    }

    /// Removes an empty directory. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `NotDir`, `NameTooLong`, `Invalid` for ".", `ReadOnly`, `Stale`,
    /// `Io`.
    pub fn rmdir(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
    ) -> Result<Done<RemoveOut>, Stop> {
        match name {
            b"." => Err(FsError::Invalid.into()),
            b".." => Err(FsError::NotEmpty.into()),
            _ => self.unlink(cx, dir, name, true),
        }
    }

    fn unlink(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
        want_dir: bool,
    ) -> Result<Done<RemoveOut>, Stop> {
        self.writable()?;
        check_name(name)?;
        let parent = self.inode(cx, dir)?;
        loop {
            let (hit, change) = {
                let st = parent.state.read();
                alive_dir(&st)?;
                (self.need(cx, dir, &st, name)?, st.rec.change)
            };
            let inode = self.child(cx, &parent, name, hit)?;
            let Some(inode) = inode else { continue };
            let doomed = self.doomed(cx, &inode)?;
            let blocks = NAME_BLOCKS + 2 * doomed.len() as u64;
            let mut reservation = self.reserve_for_delete(cx, blocks)?;
            self.core
                .schedule
                .admit(SMALL_OP * (1 + doomed.len() as u64))?;

            let pass = self.enter()?;
            let mut locked = match doomed.len() {
                0 => LockedInodes::new(&[&parent, &inode]),
                _ => {
                    let all = [&parent, &inode].into_iter().chain(doomed.inodes());
                    LockedInodes::new(&all.collect::<Vec<_>>())
                }
            };
            let st = locked.get(dir)?;
            alive_dir(st)?;
            if st.rec.change != change && self.need(cx, dir, st, name)? != hit {
                continue;
            }
            let child = locked.get(hit.ino)?;
            alive(child)?;
            removable(child, want_dir)?;
            if !self.still_doomed(cx, hit.ino, child, &doomed)? {
                continue;
            }
            let before = self.attr_of(dir, st);
            let mut dir_rec = stamped(st.rec, cx.now, true);
            let guard = self.core.agg.guard();
            dir_rec.entries = guard.less(dir_rec.entries, 1, "entries of a directory");
            if want_dir {
                dir_rec.nlink = guard.less(dir_rec.nlink, 1, "links of a directory");
            }
            let mut rec = unlinked(guard, child.rec, cx.now);
            let mut edits = Edits::new(self.id, 2 * InodeRec::LEN + 64);
            edits.del_entry(dir, hit.cookie);
            let streams = (hit.ino, &mut rec);
            let ended = self.log_doomed((&pass, &locked), &mut edits, streams, &doomed, cx.now)?;
            log_unlinked(&pass, &mut edits, hit.ino, &rec);
            edits.inode(dir, &dir_rec);
            let lsn = self.core.log.append_call(cx, self.id, edits, Ino(0))?;

            let streams = (hit.ino, &doomed);
            self.apply_doomed(&pass, &mut locked, streams, ended, &mut reservation);
            let attr = match locked.get_mut(hit.ino) {
                Some((inode, st)) => {
                    self.apply_unlinked(&pass, inode, st, rec, &mut reservation);
                    self.attr_of(hit.ino, st)
                }
                None => return Err(FsError::Invalid.into()),
            };
            if let Some((inode, st)) = locked.get_mut(dir) {
                let delta = self.touch(&pass, inode, st, &mut reservation);
                if !delta.remove_name(hit.cookie) {
                    let charge = reservation.take(1);
                    self.charge(delta, charge, ENTRY_BYTES);
                }
                st.rec = dir_rec;
            }
            return Ok(Done {
                value: RemoveOut {
                    dir: Change {
                        before,
                        after: self.attr_of(dir, locked.get(dir)?),
                    },
                    child: attr,
                },
                lsn: Some(lsn),
            });
        }
    }

    /// Returns the entry of a name that must exist.
    pub(crate) fn need(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        st: &State,
        name: &[u8],
    ) -> Result<Hit, Stop> {
        match self.find(cx, dir, st, name)? {
            Search::Hit(hit) => Ok(hit),
            Search::Miss(_) => Err(FsError::NotFound.into()),
        }
    }

    /// Returns the inode that an entry leads to; `None` if both are gone by now.
    pub(crate) fn child(
        &self,
        cx: &mut EngineContext,
        parent: &Arc<Inode>,
        name: &[u8],
        hit: Hit,
    ) -> Result<Option<Arc<Inode>>, Stop> {
        check_here(hit.ino)?;
        match self.inode(cx, hit.ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Stop::Fail(FsError::Stale)) => {
                self.still_named(cx, parent, name, hit.ino)?;
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }
}
