//! File operations as a caller may do them: export policy and permissions are
//! checked here, then the volume acts. Every protocol comes through this.
//!
//! Checks read the attributes first and the operation follows, so a permission
//! that is withdrawn between the two may just still have counted; the order of
//! two concurrent requests is nobody's promise. Where the operation itself
//! returns the attributes that decide (lookup, read), they are checked after it
//! and the result is withheld: one walk of the volume instead of two on the
//! busiest paths. Nothing leaks by that but time.

use crate::access::{self, R, W, X};
use crate::exports::{Export, Rule};
use crate::handle::Place;
use crate::identity::Creds;
use crate::snapdir::{self, Reading, Spot};
use crate::{Cx, Volume};
use weir_base::limits::{MAX_NAME, MAX_SYMLINK};
use weir_base::{Ino, Time};
use weir_volume::{
    Attr, Change, CreateHow, Created, DirEntry, Done, FileKind, Found, FsError, Linked,
    ReadDirLimit, ReadDirOut, ReadOut, Removed, Renamed, SetAttr, SetTime, Stability, Stop,
    Written,
};

/// Result of an operation; `Stop::Fail` is the answer to the client.
pub type Outcome<T> = Result<T, Stop>;

/// A caller on one export: the identity after squashing, and what the export
/// lets it do.
pub struct Subject<'t> {
    /// The export.
    pub export: &'t Export,
    /// The rule that admitted the client.
    pub rule: &'t Rule,
    /// Who acts.
    pub who: Creds,
    /// Where the handle leads.
    pub place: Place,
}

/// What a caller may do with an object, as ACCESS reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permitted {
    /// Read data or list names.
    pub read: bool,
    /// Change data or entries.
    pub write: bool,
    /// Execute a file or search a directory.
    pub execute: bool,
}

/// What a caller must be allowed to do with a file to lock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAccess {
    /// Read it or write it: for a shared lock, and to ask who has one.
    Any,
    /// Read it.
    Read,
    /// Write it: for an exclusive lock.
    Write,
    /// Both.
    ReadWrite,
}

/// A name that may stand in a directory, or be asked for. A name that is empty
/// or holds NUL or `/` is refused with [`FsError::Access`], which every NFSv3
/// procedure with a name may answer (RFC 1813 §3.3).
fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.len() > MAX_NAME {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() || name.iter().any(|&b| b == 0 || b == b'/') {
        return Err(FsError::Access);
    }
    Ok(())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The name of something new; "." and ".." exist (RFC 1813 §3.3.8).
fn check_new_name(name: &[u8]) -> Result<(), FsError> {
    check_name(name)?;
    if is_dots(name) {
        Err(FsError::Exists)
    } else {
        Ok(())
    }
}

fn valid_time(t: SetTime) -> bool {
    !matches!(
        t,
        SetTime::Client(Time {
            nanos: 1_000_000_000..,
            ..
        })
    )
}

fn check_times(set: &SetAttr) -> Result<(), FsError> {
    if valid_time(set.atime) && valid_time(set.mtime) {
        Ok(())
    } else {
        Err(FsError::Invalid)
    }
}

impl<'t> Subject<'t> {
    /// The volume itself, for changes: [`Subject::writable`] has been asked.
    fn volume(&self) -> &'t Volume {
        &self.export.volume
    }

    /// The volume or the snapshot, for reading.
    pub(crate) fn reading(&self) -> Outcome<Reading<'t>> {
        Reading::new(&self.export.volume, self.place)
    }

    /// Whether changes are refused, whoever asks.
    pub fn read_only(&self) -> bool {
        self.rule.read_only
            || self.export.read_only
            || self.place != Place::Live
            || self.export.volume.protected()
    }

    fn writable(&self) -> Result<(), FsError> {
        if self.read_only() {
            Err(FsError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Attributes of a directory that is to be changed or searched.
    fn directory(&self, cx: &mut Cx, dir: Ino) -> Outcome<Attr> {
        let attr = self.getattr(cx, dir)?;
        if attr.kind == FileKind::Directory {
            Ok(attr)
        } else {
            Err(FsError::NotDir.into())
        }
    }

    /// Attributes; anyone who has the handle may see them.
    pub fn getattr(&self, cx: &mut Cx, ino: Ino) -> Outcome<Attr> {
        match self.place {
            Place::Snapshots => self.snapshots_attr(cx, ino),
            _ => self.reading()?.getattr(cx, ino),
        }
    }

    /// What the caller may do with the object of `attr`.
    pub fn permitted(&self, attr: &Attr) -> Permitted {
        let may = |want| access::permits(attr, &self.who, want);
        // Devices, pipes and sockets are written on the client, not here.
        let stored = matches!(
            attr.kind,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink
        );
        let write = may(W) && !(self.read_only() && stored);
        Permitted {
            read: may(R),
            write,
            execute: may(X),
        }
    }

    /// Whether the caller may lock a file so. Locks are advisory, but whoever holds one keeps others waiting: that takes
    /// the permission that fcntl(2) takes, to have the file open for reading or for writing, with the allowance that the
    /// owner always has it (see `access`).
    pub fn may_lock(&self, cx: &mut Cx, ino: Ino, access: LockAccess) -> Outcome<()> {
        let attr = self.getattr(cx, ino)?;
        if attr.kind != FileKind::Regular {
            return Err(FsError::Invalid.into());
        }
        let read = access::may_read(&attr, &self.who);
        let write = self
            .writable()
            .and_then(|()| access::may_write(&attr, &self.who));
        match access {
            LockAccess::Any => read.or(write),
            LockAccess::Read => read,
            LockAccess::Write => write,
            LockAccess::ReadWrite => read.and(write),
        }
        .map_err(Stop::from)
    }

    /// Sets attributes; with `guard`, only if that is still the ctime.
    pub fn setattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Outcome<Done<Change>> {
        self.writable()?;
        check_times(set)?;
        let attr = self.volume().getattr(cx, ino)?;
        if set.size.is_some() && attr.kind != FileKind::Regular {
            return Err(FsError::Invalid.into());
        }
        let set = access::check_setattr(&attr, &self.who, set)?;
        self.volume().setattr(cx, ino, &set, guard)
    }

    /// Looks a name up; needs search permission on the directory.
    pub fn lookup(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Outcome<(Found, Spot)> {
        if let Err(e) = check_name(name) {
            self.directory(cx, dir)?;
            return Err(e.into());
        }
        if let Some(found) = self.lookup_snapshots(cx, dir, name)? {
            return Ok(found);
        }
        match self.reading()?.lookup(cx, dir, name) {
            Ok(found) => {
                access::require(&found.dir, &self.who, X)?;
                let spot = self.spot(found.ino);
                Ok((found, spot))
            }
            Err(Stop::Fail(e)) => {
                // Who may not search must not learn what is not there.
                let attr = self.directory(cx, dir)?;
                access::require(&attr, &self.who, X)?;
                Err(e.into())
            }
            Err(stop) => Err(stop),
        }
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, cx: &mut Cx, ino: Ino) -> Outcome<(Vec<u8>, Attr)> {
        if self.place == Place::Snapshots {
            return Err(FsError::Invalid.into());
        }
        self.reading()?.readlink(cx, ino)
    }

    /// Reads `len` bytes at `offset`.
    pub fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, len: usize) -> Outcome<ReadOut> {
        if self.place == Place::Snapshots {
            return Err(FsError::IsDir.into());
        }
        let out = self.reading()?.read(cx, ino, offset, len)?;
        access::may_read(&out.attr, &self.who)?;
        Ok(out)
    }

    /// Writes `data` at `offset`. Writing by anyone but root takes the
    /// set-user-ID and set-group-ID bits away, before the data is there.
    pub fn write(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        data: &[u8],
        how: Stability,
    ) -> Outcome<Done<Written>> {
        self.writable()?;
        let attr = self.volume().getattr(cx, ino)?;
        if attr.kind != FileKind::Regular {
            return Err(FsError::Invalid.into());
        }
        access::may_write(&attr, &self.who)?;
        if !self.who.is_root() && !data.is_empty() {
            if let Some(mode) = access::mode_after_change(&attr) {
                let set = SetAttr {
                    mode: Some(mode),
                    ..SetAttr::default()
                };
                self.volume().setattr(cx, ino, &set, None)?;
            }
        }
        self.volume().write(cx, ino, offset, data, how)
    }

    /// Makes what was written durable. Whoever holds a handle may ask: it
    /// changes nothing that anyone can see.
    pub fn commit(&self, cx: &mut Cx, ino: Ino, offset: u64, len: u64) -> Outcome<Done<Change>> {
        let attr = self.getattr(cx, ino)?;
        if attr.kind != FileKind::Regular {
            return Err(FsError::Invalid.into());
        }
        if self.place != Place::Live || self.volume().protected() {
            return Err(FsError::ReadOnly.into());
        }
        self.volume().commit(cx, ino, offset, len)
    }

    /// Creates a regular file. UNCHECKED on a file that exists is an open: it
    /// needs no write permission on the directory, but does need it on the file
    /// if the file is to be cut.
    pub fn create(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        how: CreateHow,
        attrs: &SetAttr,
    ) -> Outcome<Done<Created>> {
        self.writable()?;
        let parent = self.directory(cx, dir)?;
        check_new_name(name)?;
        self.not_reserved(name, FsError::Exists)?;
        check_times(attrs)?;
        access::require(&parent, &self.who, X)?;
        let existing = match how {
            CreateHow::Unchecked => match self.volume().lookup(cx, dir, name) {
                Ok(found) => Some(found.attr),
                Err(Stop::Fail(FsError::NotFound)) => None,
                Err(stop) => return Err(stop),
            },
            CreateHow::Guarded | CreateHow::Exclusive(_) => None,
        };
        match existing {
            Some(file) if file.kind == FileKind::Regular && attrs.size.is_some() => {
                access::may_write(&file, &self.who)?;
            }
            Some(file) if file.kind == FileKind::Regular => {}
            Some(_) => return Err(FsError::Exists.into()),
            None => access::require(&parent, &self.who, W)?,
        }
        let attrs = access::for_creation(&parent, &self.who, FileKind::Regular, attrs);
        self.volume().create(cx, dir, name, how, &attrs)
    }

    /// Checks the making of `name` in `dir`; returns the attributes to make it
    /// with.
    fn making(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        attrs: &SetAttr,
    ) -> Outcome<SetAttr> {
        self.writable()?;
        let parent = self.directory(cx, dir)?;
        check_new_name(name)?;
        self.not_reserved(name, FsError::Exists)?;
        check_times(attrs)?;
        if let Err(e) = access::require(&parent, &self.who, W | X) {
            // mkdir(2) of what exists says so to whoever may search.
            if access::permits(&parent, &self.who, X) && self.volume().lookup(cx, dir, name).is_ok()
            {
                return Err(FsError::Exists.into());
            }
            return Err(e.into());
        }
        Ok(access::for_creation(&parent, &self.who, kind, attrs))
    }

    /// Creates a directory.
    pub fn mkdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        attrs: &SetAttr,
    ) -> Outcome<Done<Created>> {
        let attrs = self.making(cx, dir, name, FileKind::Directory, attrs)?;
        self.volume().mkdir(cx, dir, name, &attrs)
    }

    /// Creates a symbolic link.
    pub fn symlink(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        attrs: &SetAttr,
    ) -> Outcome<Done<Created>> {
        let attrs = self.making(cx, dir, name, FileKind::Symlink, attrs)?;
        if target.len() > MAX_SYMLINK {
            return Err(FsError::NameTooLong.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid.into());
        }
        self.volume().symlink(cx, dir, name, target, &attrs)
    }

    /// Creates a device (root only), named pipe or socket.
    pub fn mknod(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        rdev: (u32, u32),
        attrs: &SetAttr,
    ) -> Outcome<Done<Created>> {
        let attrs = self.making(cx, dir, name, kind, attrs)?;
        if matches!(kind, FileKind::Block | FileKind::Char) && !self.who.is_root() {
            return Err(FsError::Perm.into());
        }
        self.volume().mknod(cx, dir, name, kind, rdev, &attrs)
    }

    /// Checks that the entry may be taken out of `dir`, and returns it if that
    /// had to be looked up.
    fn unlinking(&self, cx: &mut Cx, dir: &Attr, name: &[u8]) -> Outcome<()> {
        access::require(dir, &self.who, W | X)?;
        if dir.mode & access::S_ISVTX != 0 && !self.who.is_root() {
            let child = self.volume().lookup(cx, dir.ino, name)?;
            access::may_unlink(dir, &child.attr, &self.who)?;
        }
        Ok(())
    }

    /// Removes a name of anything but a directory.
    pub fn remove(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Outcome<Done<Removed>> {
        self.writable()?;
        let parent = self.directory(cx, dir)?;
        check_name(name)?;
        if is_dots(name) {
            return Err(FsError::Access.into());
        }
        self.not_reserved(name, FsError::ReadOnly)?;
        self.unlinking(cx, &parent, name)?;
        self.volume().remove(cx, dir, name)
    }

    /// Removes an empty directory. "." cannot be meant, ".." is not empty
    /// (RFC 1813 §3.3.13).
    pub fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Outcome<Done<Removed>> {
        self.writable()?;
        let parent = self.directory(cx, dir)?;
        check_name(name)?;
        match name {
            b"." => return Err(FsError::Invalid.into()),
            b".." => return Err(FsError::Exists.into()),
            _ => {}
        }
        self.not_reserved(name, FsError::ReadOnly)?;
        self.unlinking(cx, &parent, name)?;
        self.volume().rmdir(cx, dir, name)
    }

    /// Renames, replacing what has the new name.
    pub fn rename(
        &self,
        cx: &mut Cx,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
    ) -> Outcome<Done<Renamed>> {
        self.writable()?;
        let source = self.directory(cx, from_dir)?;
        let target = if to_dir == from_dir {
            source
        } else {
            self.directory(cx, to_dir)?
        };
        check_name(from)?;
        check_name(to)?;
        if is_dots(from) || is_dots(to) {
            return Err(FsError::Invalid.into());
        }
        self.not_reserved(from, FsError::ReadOnly)?;
        self.not_reserved(to, FsError::Exists)?;
        access::require(&source, &self.who, W | X)?;
        access::require(&target, &self.who, W | X)?;
        if !self.who.is_root() {
            self.renaming(cx, &source, from, &target, to)?;
        }
        self.volume().rename(cx, from_dir, from, to_dir, to)
    }

    /// The checks of a rename that look at what is renamed and replaced.
    fn renaming(
        &self,
        cx: &mut Cx,
        source: &Attr,
        from: &[u8],
        target: &Attr,
        to: &[u8],
    ) -> Outcome<()> {
        let moved = source.ino != target.ino;
        if moved || source.mode & access::S_ISVTX != 0 {
            let child = self.volume().lookup(cx, source.ino, from)?;
            access::may_unlink(source, &child.attr, &self.who)?;
            if moved && child.attr.kind == FileKind::Directory {
                // Its ".." is written.
                access::require(&child.attr, &self.who, W)?;
            }
        }
        if target.mode & access::S_ISVTX != 0 {
            match self.volume().lookup(cx, target.ino, to) {
                Ok(old) => access::may_unlink(target, &old.attr, &self.who)?,
                Err(Stop::Fail(FsError::NotFound)) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    /// Makes a hard link.
    pub fn link(&self, cx: &mut Cx, file: Ino, dir: Ino, name: &[u8]) -> Outcome<Done<Linked>> {
        self.writable()?;
        let parent = self.directory(cx, dir)?;
        check_new_name(name)?;
        self.not_reserved(name, FsError::Exists)?;
        access::require(&parent, &self.who, W | X)?;
        self.volume().link(cx, file, dir, name)
    }

    /// Lists a directory from `cookie` on, until `each` answers that an entry
    /// did not fit; needs read permission. Each entry comes with what its handle is
    /// to name, if one can be told.
    pub fn readdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        limit: ReadDirLimit,
        each: &mut dyn FnMut(&DirEntry<'_>, Option<Spot>) -> bool,
    ) -> Outcome<ReadDirOut> {
        let attr = self.directory(cx, dir)?;
        access::require(&attr, &self.who, R)?;
        if self.place == Place::Snapshots {
            return self.list_snapshots(cx, dir, cookie, each);
        }
        // Also where it is not listed (any more): a listing that began with it goes on.
        if self.is_live_root(dir) && cookie <= snapdir::COOKIE {
            return self.list_with_snapshots(cx, dir, cookie, limit, each);
        }
        let mut each = |entry: &DirEntry<'_>| each(entry, Some(self.spot(entry.ino)));
        self.reading()?.readdir(cx, dir, cookie, limit, &mut each)
    }
}
