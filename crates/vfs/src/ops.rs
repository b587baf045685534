//! File operations as a caller may do them: export policy and permissions are
//! checked here, then the volume acts. Every protocol comes through this.
//!
//! Checks read the attributes first and the operation follows, so a permission that is withdrawn
//! between the two may just still have counted. No protocol guarantees the order of two concurrent
//! requests. READ has them checked within the operation. LOOKUP, which returns the attributes that
//! decide, checks them after it and withholds the result. So the busiest paths walk the volume once
//! instead of twice. Nothing leaks by that but time.

use crate::access::{self, R, W, X};
use crate::claims::{Actor, ClaimsVersion, Event, HolderAttr};
use crate::conflict::{self, Io};
use crate::error::{BadName, Error, Halt, OpResult, Suspend};
use crate::exports::Export;
use crate::handle::{HANDLE_BYTES, Namespace};
use crate::identity::Identity;
use crate::notify::Event as Report;
use crate::pipeline::{
    ChargeProof, DataRead, DataWrite, Exempt, MetadataRead, MetadataWrite, OpContext, Operand,
};
use crate::session::AccessModel;
use crate::snapshot_dir::{FileRef, ReadSource};
use crate::throttle::ClientKey;
use crate::vfs::Vfs;
use crate::{EngineContext, Volume};
use std::borrow::Cow;
use weir_base::Time;
use weir_base::limits::{MAX_NAME, MAX_SYMLINK};
use weir_volume::{
    self as volume, Attr, Change, CreateHow, CreateOut, DirEntry, Done, FileKind, FsError, Guard,
    LinkOut, LookupOut, QuotaEntry, QuotaId, QuotaLimit, QuotaState, ReadDirLimit, ReadDirOut,
    ReadOut, RemoveOut, RenameOut, SetAttr, SetIds, SetTime, Stability, StatFs, WriteOut,
};

type Result<T> = std::result::Result<T, Halt>;

/// Permissions of a caller on an object, as ACCESS reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRights {
    /// Read data or list names.
    pub read: bool,
    /// Change data or entries.
    pub write: bool,
    /// Execute a file or search a directory.
    pub execute: bool,
}

/// Access to a file that a caller must have to lock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAccess {
    /// Read it or write it: for a shared lock, and to test for one.
    Any,
    /// Read it: for a share reservation (NLM SHARE) that reads.
    Read,
    /// Write it: for an exclusive lock.
    Write,
    /// Read it and write it: for a share reservation that does both.
    ReadWrite,
}

/// Checks that an entry can have the name, or that it can be looked up.
pub(crate) fn check_name(name: &[u8]) -> std::result::Result<(), Error> {
    if name.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() {
        return Err(Error::Name(BadName::Empty));
    }
    match name.iter().any(|&b| b == 0 || b == b'/') {
        true => Err(Error::Name(BadName::Character)),
        false => Ok(()),
    }
}

/// Checks that the name can be made or removed: every directory has "." and "..", for ever.
pub(crate) fn check_own_name(name: &[u8]) -> std::result::Result<(), Error> {
    check_name(name)?;
    match name {
        b"." => Err(Error::Name(BadName::Dot)),
        b".." => Err(Error::Name(BadName::DotDot)),
        _ => Ok(()),
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

fn check_times(set: &SetAttr) -> std::result::Result<(), Error> {
    if valid_time(set.atime) && valid_time(set.mtime) {
        Ok(())
    } else {
        Err(Error::Invalid)
    }
}

impl<'t, A: AccessModel> Operand<'t, A> {
    /// Returns the volume itself, for changes: [`Operand::writable`] was checked.
    pub(crate) fn volume(&self) -> &'t Volume {
        &self.export.volume
    }

    /// Returns the volume or the snapshot, for reading.
    pub(crate) fn read_source(&self) -> Result<ReadSource<'t>> {
        ReadSource::new(&self.export.volume, self.file.namespace)
    }

    /// Returns true if changes are refused to every caller.
    pub(crate) fn read_only(&self) -> bool {
        !self.writes
            || self.export.read_only
            || self.file.namespace != Namespace::Live
            || self.export.volume.protected()
    }

    pub(crate) fn writable(&self) -> std::result::Result<(), Error> {
        if self.read_only() {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Returns the attributes of a directory that is to be changed or searched.
    pub(crate) fn directory(&self, cx: &mut EngineContext) -> Result<Attr> {
        let attr = self.attr(cx)?;
        if attr.kind == FileKind::Directory {
            Ok(attr)
        } else {
            Err(Error::NotDir.into())
        }
    }

    pub(crate) fn attr(&self, cx: &mut EngineContext) -> Result<Attr> {
        self.attr_in(cx, self.file.namespace)
    }

    /// Returns the attributes of the same inode elsewhere in the volume.
    pub(crate) fn attr_in(&self, cx: &mut EngineContext, namespace: Namespace) -> Result<Attr> {
        let ino = self.file.ino;
        match namespace {
            Namespace::Snapshots => self.snapshots_attr(cx, ino),
            _ => {
                let mut attr = ReadSource::new(&self.export.volume, namespace)?.getattr(cx, ino)?;
                self.guard(cx, &mut attr)?;
                Ok(attr)
            }
        }
    }

    /// Attributes; any client that has the handle may see them.
    pub fn getattr(&self, cx: &mut OpContext) -> OpResult<Attr> {
        self.run(cx, |cx| {
            let _held = self.hold_attributes()?;
            self.attr(cx)
        })
    }

    /// Returns true if another client may have written what it has not sent yet: one relaxed load.
    pub fn may_be_held(&self) -> bool {
        self.file.namespace == Namespace::Live && !self.claims.version_of(self.file_id()).none()
    }

    /// Returns the attributes, and what another client than `actor` says of them that may have
    /// written what it has not sent yet. That client is asked, and the operation waits for it.
    pub fn getattr_held(
        &self,
        cx: &mut OpContext,
        actor: Actor<'_>,
    ) -> OpResult<(Attr, Option<HolderAttr>)> {
        let attr = self.getattr(cx)?;
        if !self.may_be_held() {
            return Ok((attr, None));
        }
        let file = self.file_id();
        let asked = cx.question.take().filter(|asked| asked.0 == file);
        let question = match asked {
            Some(asked) => Some(asked.1),
            None => self.claims.request_attributes(file, actor),
        };
        match question {
            None => Ok((attr, None)),
            Some(question) if question.ticket().is_over() => Ok((attr, question.answer())),
            Some(question) => {
                let ticket = question.ticket();
                cx.question = Some(Box::new((file, question)));
                Err(Suspend::Recall(ticket).into())
            }
        }
    }

    /// Returns the attributes, if they are in memory: for replies that can do without.
    pub fn attr_at_hand(&self, cx: &mut OpContext) -> Option<Attr> {
        self.attr(&mut cx.engine).ok()
    }

    /// Returns the space and inodes of the file's volume, or of its tree if that is limited.
    pub fn statfs(&self, attr: &Attr) -> StatFs {
        let large = self.large_space();
        large.unwrap_or_else(|| self.volume().statfs_at(attr))
    }

    /// Returns the bytes that may still be written to a file with these attributes, by the space of
    /// the volume and by the quotas of the tree, the user and the group.
    pub fn available_to(&self, attr: &Attr) -> u64 {
        let ids = [QuotaId::user(attr.uid), QuotaId::group(attr.gid)];
        let entries = ids.into_iter().filter_map(|id| self.volume().quota_of(id));
        let left = entries.filter_map(|entry| entry.left());
        left.fold(self.statfs(attr).available, u64::min)
    }

    /// Returns the state of the volume's quotas, and the limits of users without their own.
    pub fn default_quota(&self) -> (QuotaState, QuotaLimit) {
        let volume = self.volume();
        (volume.quota_state(), volume.default_quota())
    }

    /// Returns the usage and limits of a user; `None` unless the volume's quotas hold.
    pub fn quota_of_user(&self, uid: u32) -> Option<QuotaEntry> {
        self.volume().quota_of(QuotaId::user(uid))
    }

    /// Returns up to `most` users with usage or limits of their own, from the number `first` on, in
    /// ascending order; none unless the volume's quotas hold.
    pub fn quota_users(&self, first: u32, most: usize) -> Vec<QuotaEntry> {
        self.volume().quota_users(first, most)
    }

    /// Returns the number of the user that the caller acts as.
    pub fn uid(&self) -> u32 {
        self.who.unix.uid
    }

    /// Returns true if the caller is root, whom quotas do not limit.
    pub fn is_root(&self) -> bool {
        self.who.unix.is_root()
    }

    /// Like [`Operand::available_to`], for files that the caller makes beside the one of `attr`.
    pub fn available_to_caller(&self, attr: &Attr) -> u64 {
        let unix = &self.who.unix;
        let (uid, gid) = (unix.uid, unix.gid);
        match unix.is_root() {
            true => self.statfs(attr).available,
            false => self.available_to(&Attr { uid, gid, ..*attr }),
        }
    }

    /// Returns the bytes that the caller can use in all, in the volume or in the tree of the file
    /// of `attr`.
    pub fn total_for_caller(&self, attr: &Attr) -> u64 {
        let total = self.statfs(attr).total;
        let own = Some(self.uid()).filter(|_| !self.is_root());
        match own.and_then(|uid| self.quota_of_user(uid)) {
            Some(own) if own.limit.bytes > 0 => own.limit.bytes.min(total),
            _ => total,
        }
    }

    /// Changes when data written without stability may have been lost (RFC 1813 §3.3.21).
    pub fn write_verifier(&self) -> [u8; 8] {
        self.volume().write_verifier()
    }

    /// Returns the caller's permissions on the object of `attr`.
    pub fn permitted(&self, attr: &Attr) -> AccessRights {
        let may = |want| access::permits(attr, &self.who.unix, want);
        // Devices, pipes and sockets are written on the client, not here.
        let stored = matches!(
            attr.kind,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink
        );
        let write = may(W) && !(self.read_only() && stored);
        AccessRights {
            read: may(R),
            write,
            execute: may(X),
        }
    }

    /// Looks a name up; needs search permission on the directory.
    pub fn lookup(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataRead>,
        name: &[u8],
    ) -> OpResult<(LookupOut, FileRef)> {
        self.run(cx, |cx| self.find(cx, name))
    }

    pub(crate) fn find(&self, cx: &mut EngineContext, name: &[u8]) -> Result<(LookupOut, FileRef)> {
        if let Err(e) = check_name(name) {
            self.directory(cx)?;
            return Err(e.into());
        }
        if let Some(found) = self.lookup_snapshots(cx, name)? {
            return Ok(found);
        }
        match self.read_source()?.lookup(cx, self.file.ino, name) {
            Ok(mut found) => {
                self.guard(cx, &mut found.dir)?;
                access::require(&found.dir, &self.who.unix, X)?;
                let file = self.near(found.ino);
                Ok((found, file))
            }
            Err(volume::Stop::Fail(e)) => {
                // A caller that may not search must not learn which names do not exist.
                let attr = self.directory(cx)?;
                access::require(&attr, &self.who.unix, X)?;
                Err(e.into())
            }
            Err(stop) => Err(stop.into()),
        }
    }

    /// The target of a symbolic link.
    pub fn readlink(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataRead>,
    ) -> OpResult<(Vec<u8>, Attr)> {
        self.run(cx, |cx| {
            if self.file.namespace == Namespace::Snapshots {
                return Err(Error::Invalid.into());
            }
            Ok(self.read_source()?.readlink(cx, self.file.ino)?)
        })
    }

    /// Makes what was written durable. Any holder of a handle may ask: it
    /// changes nothing that a client can see.
    pub fn commit(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<Exempt>,
        offset: u64,
        len: u64,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            if attr.kind != FileKind::Regular {
                return Err(Error::Invalid.into());
            }
            if self.file.namespace != Namespace::Live || self.volume().protected() {
                return Err(Error::ReadOnly.into());
            }
            Ok(self.volume().commit(cx, self.file.ino, offset, len)?)
        })
    }

    /// Checks the making of `name`; returns the attributes to make it with, and the version of
    /// claims.
    pub(crate) fn check_create(
        &self,
        cx: &mut EngineContext,
        name: &[u8],
        kind: FileKind,
        attrs: &SetAttr,
    ) -> Result<(SetAttr, ClaimsVersion)> {
        self.writable()?;
        let parent = self.directory(cx)?;
        check_own_name(name)?;
        self.not_reserved(name, Error::Exists)?;
        check_times(attrs)?;
        if let Err(e) = access::may_make(&parent, &self.who.unix, kind) {
            // mkdir(2) of a name that exists returns EEXIST to any caller that may search.
            if access::permits(&parent, &self.who.unix, X) {
                return match self.volume().lookup(cx, parent.ino, name) {
                    Ok(_) => Err(Error::Exists.into()),
                    Err(volume::Stop::Fail(_)) => Err(e.into()),
                    Err(stop) => Err(stop.into()),
                };
            }
            return Err(e.into());
        }
        let version = self.pass_names(cx, &[(parent.ino, None)], None)?;
        let attrs = access::for_creation(&parent, &self.who.unix, kind, attrs);
        Ok((self.inherit(cx, &parent, kind, attrs)?, version))
    }

    /// Reports that something was made in this directory, and returns the result.
    fn report_created(
        &self,
        version: ClaimsVersion,
        name: &[u8],
        done: Done<CreateOut>,
    ) -> Done<CreateOut> {
        self.names_changed(version, [(Some(self.file.ino), Event::Entries)]);
        self.report_of(self.file.ino, name, &done.value.attr, Report::Added);
        done
    }

    /// Creates a directory, with the owner and group that [`access::for_creation`] gives it.
    pub fn mkdir(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
        attrs: &SetAttr,
    ) -> OpResult<Done<CreateOut>> {
        self.run(cx, |cx| {
            let _held = self.hold_entry(name)?;
            let (attrs, version) = self.check_create(cx, name, FileKind::Directory, attrs)?;
            let done = self.volume().mkdir(cx, self.file.ino, name, &attrs)?;
            Ok(self.report_created(version, name, done))
        })
    }

    /// Creates a symbolic link.
    pub fn symlink(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
        target: &[u8],
        attrs: &SetAttr,
    ) -> OpResult<Done<CreateOut>> {
        self.run(cx, |cx| {
            let _held = self.hold_entry(name)?;
            let (attrs, version) = self.check_create(cx, name, FileKind::Symlink, attrs)?;
            if target.len() > MAX_SYMLINK {
                return Err(Error::NameTooLong.into());
            }
            if target.is_empty() || target.contains(&0) {
                return Err(Error::Invalid.into());
            }
            let dir = self.file.ino;
            let done = self.volume().symlink(cx, dir, name, target, &attrs)?;
            Ok(self.report_created(version, name, done))
        })
    }

    /// Creates a device (root only), named pipe or socket.
    pub fn mknod(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
        kind: FileKind,
        rdev: (u32, u32),
        attrs: &SetAttr,
    ) -> OpResult<Done<CreateOut>> {
        self.run(cx, |cx| {
            let _held = self.hold_entry(name)?;
            let (attrs, version) = self.check_create(cx, name, kind, attrs)?;
            if matches!(kind, FileKind::Block | FileKind::Char) && !self.who.unix.is_root() {
                return Err(Error::Perm.into());
            }
            let dir = self.file.ino;
            let done = self.volume().mknod(cx, dir, name, kind, rdev, &attrs)?;
            Ok(self.report_created(version, name, done))
        })
    }

    /// Makes the checks of REMOVE and RMDIR.
    pub(crate) fn check_remove(
        &self,
        cx: &mut EngineContext,
        name: &[u8],
    ) -> Result<ClaimsVersion> {
        self.writable()?;
        let parent = self.directory(cx)?;
        check_own_name(name)?;
        self.not_reserved(name, Error::ReadOnly)?;
        self.check_unlink(cx, &parent, name)?;
        self.pass_names(cx, &[(parent.ino, Some(name))], None)
    }

    /// Reports that a name was removed from this directory, and returns the result.
    pub(crate) fn report_removed(
        &self,
        version: ClaimsVersion,
        name: &[u8],
        done: Done<RemoveOut>,
    ) -> Done<RemoveOut> {
        let (dir, child) = (self.file.ino, &done.value.child);
        let changed = [(Some(dir), Event::Entries), (Some(child.ino), Event::Name)];
        self.names_changed(version, changed);
        self.report_of(dir, name, child, Report::Removed);
        done
    }

    /// Removes a name of anything but a directory.
    pub fn remove(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
    ) -> OpResult<Done<RemoveOut>> {
        self.run(cx, |cx| {
            let _held = self.hold_removal(cx, name)?;
            let version = self.check_remove(cx, name)?;
            let done = self.volume().remove(cx, self.file.ino, name)?;
            Ok(self.report_removed(version, name, done))
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
    ) -> OpResult<Done<RemoveOut>> {
        self.run(cx, |cx| {
            let _held = self.hold_removal(cx, name)?;
            let version = self.check_remove(cx, name)?;
            let done = self.volume().rmdir(cx, self.file.ino, name)?;
            Ok(self.report_removed(version, name, done))
        })
    }

    /// Renames `from` to `to` in the directory `target`, replacing what has the new name.
    pub fn rename(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        from: &[u8],
        target: &Operand<'t, A>,
        to: &[u8],
    ) -> OpResult<Done<RenameOut>> {
        self.run(cx, |cx| {
            if target.file.namespace != self.file.namespace {
                // Out of a snapshot, or into one.
                return Err(Error::ReadOnly.into());
            }
            if target.export.volume.id() != self.export.volume.id() {
                return Err(Error::CrossDevice.into());
            }
            let _held = self.hold_rename(cx, from, target, to)?;
            self.writable()?;
            let source_dir = self.directory(cx)?;
            let target_dir = match target.file == self.file {
                true => source_dir,
                false => target.directory(cx)?,
            };
            check_own_name(from)?;
            check_own_name(to)?;
            self.not_reserved(from, Error::ReadOnly)?;
            self.not_reserved(to, Error::Exists)?;
            access::require(&source_dir, &self.who.unix, W | X)?;
            access::require(&target_dir, &self.who.unix, W | X)?;
            if !self.who.unix.is_root() {
                self.check_rename_here(cx, &source_dir, from, &target_dir, to)?;
            }
            let (from_dir, to_dir) = (self.file.ino, target.file.ino);
            let both = [(from_dir, Some(from)), (to_dir, Some(to))];
            let version = self.pass_names(cx, &both, None)?;
            let done = self.volume().rename(cx, from_dir, from, to_dir, to)?;
            let changed = [
                (Some(from_dir), Event::Entries),
                (Some(to_dir), Event::Entries),
                (Some(done.value.moved), Event::Name),
                (done.value.replaced, Event::Name),
            ];
            self.names_changed(version, changed);
            let (moved, replaced) = (done.value.moved, done.value.replaced);
            self.report_rename((from_dir, from), (to_dir, to), (moved, replaced));
            Ok(done)
        })
    }

    /// Makes the checks of a rename that concern what is renamed and replaced.
    fn check_rename_here(
        &self,
        cx: &mut EngineContext,
        source: &Attr,
        from: &[u8],
        target: &Attr,
        to: &[u8],
    ) -> Result<()> {
        let who = &self.who.unix;
        let moved = source.ino != target.ino;
        if moved || source.mode & access::S_ISVTX != 0 {
            let child = self.volume().lookup(cx, source.ino, from)?;
            access::may_unlink(source, &child.attr, who)?;
            if moved && child.attr.kind == FileKind::Directory {
                // Its ".." is written.
                let mut child = child.attr;
                self.guard(cx, &mut child)?;
                access::require(&child, who, W)?;
            }
        }
        if target.mode & access::S_ISVTX != 0 {
            match self.volume().lookup(cx, target.ino, to) {
                Ok(old) => access::may_unlink(target, &old.attr, who)?,
                Err(volume::Stop::Fail(FsError::NotFound)) => {}
                Err(stop) => return Err(stop.into()),
            }
        }
        Ok(())
    }

    /// Makes a hard link to the file, `name` in the directory `dir`.
    pub fn link(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        dir: &Operand<'t, A>,
        name: &[u8],
    ) -> OpResult<Done<LinkOut>> {
        self.run(cx, |cx| {
            if dir.file.namespace != self.file.namespace {
                // Out of a snapshot, or into one.
                dir.writable()?;
                return Err(Error::CrossDevice.into());
            }
            if dir.export.volume.id() != self.export.volume.id() {
                return Err(Error::CrossDevice.into());
            }
            let _held = self.hold_link(dir, name)?;
            self.writable()?;
            let parent = dir.directory(cx)?;
            check_own_name(name)?;
            self.not_reserved(name, Error::Exists)?;
            access::require(&parent, &self.who.unix, W | X)?;
            let (file, dir) = (self.file.ino, dir.file.ino);
            let version = self.pass_names(cx, &[(dir, None)], Some(file))?;
            let done = self.volume().link(cx, file, dir, name)?;
            let changed = [(Some(dir), Event::Entries), (Some(file), Event::Attributes)];
            self.names_changed(version, changed);
            self.report_of(dir, name, &done.value.attr, Report::Added);
            Ok(done)
        })
    }

    /// Lists a directory from `cookie` on, until `each` returns that an entry
    /// did not fit; needs read permission. Each entry comes with the file that its handle is
    /// to name, if that is known.
    pub fn readdir(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataRead>,
        cookie: u64,
        limit: ReadDirLimit,
        each: &mut dyn FnMut(&DirEntry<'_>, Option<FileRef>) -> bool,
    ) -> OpResult<ReadDirOut> {
        self.run(cx, |cx| {
            let attr = self.directory(cx)?;
            access::require(&attr, &self.who.unix, R)?;
            let _held = self.hold_attributes()?;
            self.entries(cx, cookie, limit, each)
        })
    }
}

impl<A: AccessModel> Operand<'_, A> {
    pub(crate) fn may_read(&self, attr: &Attr) -> std::result::Result<(), Error> {
        self.access.may_read(attr, &self.who)
    }

    /// Returns the effect of the caller's changes of contents on the set-user-ID and set-group-ID
    /// bits.
    pub(crate) fn set_ids(&self) -> SetIds {
        match self.who.unix.is_root() {
            true => SetIds::Keep,
            false => SetIds::Clear,
        }
    }

    pub(crate) fn may_write(&self, attr: &Attr) -> std::result::Result<(), Error> {
        self.access.may_write(attr, &self.who)
    }

    /// Checks that the caller may lock the file so. Locks are advisory, but a client that holds one
    /// keeps others waiting. So a lock takes the permission that fcntl(2) takes, to have the file
    /// open for reading or for writing.
    pub fn may_lock(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<Exempt>,
        access: LockAccess,
    ) -> OpResult<()> {
        self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            if attr.kind != FileKind::Regular {
                return Err(Error::Invalid.into());
            }
            let read = self.may_read(&attr);
            let write = self.writable().and_then(|()| self.may_write(&attr));
            Ok(match access {
                LockAccess::Any => read.or(write),
                LockAccess::Read => read,
                LockAccess::Write => write,
                LockAccess::ReadWrite => read.and(write),
            }?)
        })
    }

    /// Sets attributes; with `acl_cache`, only if that is still the ctime.
    pub fn setattr(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            self.writable()?;
            check_times(set)?;
            let mut attr = self.volume().getattr(cx, self.file.ino)?;
            self.guard(cx, &mut attr)?;
            if set.size.is_some() && attr.kind != FileKind::Regular {
                return Err(Error::Invalid.into());
            }
            let set = self.settable(&attr, set)?;
            let may_write = || self.may_write(&attr);
            let set = access::check_setattr(&attr, &self.who.unix, &set, may_write)?;
            let (volume, ino) = (self.volume(), self.file.ino);
            let mut guard = guard;
            if let Some(list) = self.list_under(cx, &attr, set.mode)? {
                if guard.is_some_and(|guard| guard != attr.ctime) {
                    return Err(Error::NotSync.into());
                }
                // First the list with the mode; the rest follows, and is durable after it.
                guard = None;
                self.put_list_first(cx, ino, &list, set.mode.unwrap_or(attr.mode))?;
            }
            conflict::with_claims_check(
                cx,
                |cx, version| {
                    volume.setattr_if(cx, ino, &set, guard, || {
                        self.check_claims_version(ino, version)
                    })
                },
                |_| {
                    let version = self.check_attribute_claims()?;
                    // Under SMB's rules ranges bind READ and WRITE alone: who was granted to write
                    // may cut (smbtorture's smb2.lock.truncate, as Windows has it).
                    let binds = !matches!(self.access.actor(), Actor::Mandatory { .. });
                    if let Some(size) = set.size.filter(|_| binds) {
                        self.check_io_claims(Io::cut(ino, size.min(attr.size)))?;
                    }
                    Ok(version)
                },
            )
        })
    }

    /// Reads at `offset` what was charged for, or less at the end of the file.
    pub fn read(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<DataRead>,
        offset: u64,
    ) -> OpResult<ReadOut> {
        let out = self.run(cx, |cx| {
            if self.file.namespace == Namespace::Snapshots {
                return Err(Error::IsDir.into());
            }
            let (reading, len) = (self.read_source()?, charged.bytes());
            let ino = self.file.ino;
            let read = |cx: &mut EngineContext, guard: Option<Guard>| {
                conflict::with_claims_check(
                    cx,
                    |cx, version| {
                        let allowed = |attr: &Attr| {
                            match (attr.guard, guard) {
                                (Guard::Mode, _) => self.may_read(attr)?,
                                (_, Some(guard)) => self.may_read(&Attr { guard, ..*attr })?,
                                (_, None) => return Err(Halt::Unread),
                            }
                            self.check_claims_version(ino, version)
                        };
                        reading.read_if(cx, ino, offset, len, allowed)
                    },
                    |_| self.check_io_claims(Io::read(ino, offset, len)),
                )
            };
            match read(cx, None) {
                Err(Halt::Unread) => {
                    let guard = self.attr(cx)?.guard;
                    read(cx, Some(guard))
                }
                read => read,
            }
        })?;
        cx.set_moved(out.len);
        Ok(out)
    }

    /// Writes `data` at `offset`, or as much of it from its start as the result says. Writing by
    /// anyone but root takes the set-user-ID and set-group-ID bits away with it.
    pub fn write(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<DataWrite>,
        offset: u64,
        data: &[u8],
        how: Stability,
    ) -> OpResult<Done<WriteOut>> {
        self.write_where(cx, charged, data, how, |_| Ok(offset))
    }

    /// Shares the blocks that `source`, which was charged with this file, has from `from` on with
    /// `len` bytes from `to` on. No bytes at all means up to the source's end
    /// ([`weir_volume::Volume::clone_range`]). It moves no data, so it is charged as a change of
    /// metadata. The caller must be allowed to write the file and to read the source. Like a write
    /// it takes the set-user-ID and set-group-ID bits away.
    pub fn clone_range(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        to: u64,
        (source, from): (&Operand<'_, A>, u64),
        len: u64,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            self.writable()?;
            let one_volume = source.export.volume.id() == self.export.volume.id();
            if !one_volume || source.file.namespace != self.file.namespace {
                return Err(Error::CrossDevice.into());
            }
            let (giver, taker) = (source.attr(cx)?, self.attr(cx)?);
            for attr in [&giver, &taker] {
                match attr.kind {
                    FileKind::Regular => {}
                    FileKind::Directory => return Err(Error::IsDir.into()),
                    _ => return Err(Error::Invalid.into()),
                }
            }
            source.may_read(&giver)?;
            self.may_write(&taker)?;
            let set_ids = self.set_ids();
            let (from, to) = ((source.file.ino, from), (self.file.ino, to));
            let io = |write, (ino, offset)| Io {
                ino,
                write,
                offset,
                len: (len > 0).then_some(len),
            };
            conflict::with_claims_check(
                cx,
                |cx, version| {
                    let (read, written) = version.unzip();
                    let allowed = || {
                        source.check_claims_version(from.0, read)?;
                        self.check_claims_version(to.0, written)
                    };
                    let volume = self.volume();
                    volume.clone_range_if(set_ids, cx, from, to, len, allowed)
                },
                |_| {
                    Ok((
                        source.check_io_claims(io(false, from))?,
                        self.check_io_claims(io(true, to))?,
                    ))
                },
            )
        })
    }

    /// Creates a regular file. UNCHECKED on a file that exists is an open. It needs no write
    /// permission on the directory, but does need it on the file if the file is to be cut.
    pub fn create(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
        how: CreateHow,
        attrs: &SetAttr,
    ) -> OpResult<Done<CreateOut>> {
        self.run(cx, |cx| {
            let _held = self.hold_entry(name)?;
            self.writable()?;
            let dir = self.file.ino;
            let parent = self.directory(cx)?;
            check_own_name(name)?;
            self.not_reserved(name, Error::Exists)?;
            check_times(attrs)?;
            access::require(&parent, &self.who.unix, X)?;
            let existing = match how {
                CreateHow::Unchecked => match self.volume().lookup(cx, dir, name) {
                    Ok(mut found) => {
                        self.guard(cx, &mut found.attr)?;
                        Some(found.attr)
                    }
                    Err(volume::Stop::Fail(FsError::NotFound)) => None,
                    Err(stop) => return Err(stop.into()),
                },
                CreateHow::Guarded | CreateHow::Exclusive(_) => None,
            };
            match existing {
                Some(file) if file.kind == FileKind::Regular && attrs.size.is_some() => {
                    self.may_write(&file)?;
                }
                Some(file) if file.kind == FileKind::Regular => {}
                Some(_) => return Err(Error::Exists.into()),
                None => access::may_make(&parent, &self.who.unix, FileKind::Regular)?,
            }
            let made = match existing {
                Some(_) => None,
                None => Some(self.pass_names(cx, &[(dir, None)], None)?),
            };
            let attrs = access::for_creation(&parent, &self.who.unix, FileKind::Regular, attrs);
            let attrs = self.inherit(cx, &parent, FileKind::Regular, attrs)?;
            let volume = self.volume();
            let done = conflict::with_claims_check(
                cx,
                |cx, version| {
                    let allowed = |ino| self.check_claims_version(ino, version);
                    volume.create_if(cx, dir, name, how, &attrs, allowed)
                },
                |cx| {
                    let found = volume.lookup(cx, dir, name)?;
                    // Unchanged: it is about to be made that long.
                    let size = attrs.size.unwrap_or(found.attr.size);
                    self.check_io_claims(Io::cut(found.ino, size.min(found.attr.size)))
                },
            )?;
            Ok(match made {
                Some(version) => self.report_created(version, name, done),
                None => done,
            })
        })
    }
}

impl Vfs {
    /// Returns the handle of the directory `path` below the root of `export`. The server's own
    /// walk, as root: whether a client may begin below a root is for the export's rules, and what
    /// it may do there for the permissions there.
    pub fn walk(
        &self,
        cx: &mut OpContext,
        export: &Export,
        path: &str,
    ) -> OpResult<[u8; HANDLE_BYTES]> {
        let mut at = Operand {
            export,
            who: Cow::Owned(Identity::default()),
            file: FileRef::live(export.volume.root()),
            access: (),
            writes: false,
            client: ClientKey::OTHERS,
            claims: &self.claims,
            grace: &self.grace,
            watchers: &self.watchers,
            list: None,
            caller: None,
        };
        let names = path.split('/').filter(|n| !n.is_empty() && *n != ".");
        if let Some(root) = self.constituents.root_elsewhere(export.volume.id()) {
            // A way below it begins at the server that has the root (`Constituents::root_server`).
            let whole = names.clone().next().is_none();
            return whole.then_some(root).ok_or(Error::NotSupported.into());
        }
        for name in names {
            if name == ".." {
                return Err(Error::Access.into());
            }
            let (found, file) = at.run(cx, |cx| at.find(cx, name.as_bytes()))?;
            if found.attr.kind != FileKind::Directory {
                return Err(Error::NotDir.into());
            }
            at.file = file;
        }
        Ok(self.handle_of(at.file_id()))
    }
}
