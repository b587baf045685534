//! Operations on a constituent of a large volume.
//!
//! An operation on this constituent alone is the ordinary one, with the names held
//! ([`Operand::hold_entry`]). One on an entry that names an inode of another constituent is a
//! change that this constituent, which has the entry, decides with the others
//! ([`weir_large::Member::request`]). What permissions need to know of inodes elsewhere their
//! servers are asked for.
//!
//! An operation that waits for others is run again from its start like every other one. Its
//! [`Steps`](crate::large::Steps) say what it has requested and what came of it.

use std::sync::Arc;

use weir_base::Ino;
use weir_base::signal::Signal;
use weir_large::{
    Attributes, Constituent, InodeAnswer, Member, NamesGuard, Node, ROOT, Refusal, Request,
};
use weir_volume::{
    Attr, Change, CreateHow, CreateOut, Done, FileKind, Guard, RenameOut, SetAttr, StatFs,
    is_elsewhere,
};

use crate::EngineContext;
use crate::access::{self, W, X};
use crate::error::{Error, Halt, OpResult, Stop, Suspend};
use crate::large::Elsewhere;
use crate::ops::check_own_name;
use crate::pipeline::{ChargeProof, MetadataRead, MetadataWrite, OpContext, Operand};
use crate::session::AccessModel;
use crate::snapshot_dir::FileRef;

type Result<T> = std::result::Result<T, Halt>;

/// Result of a look-up.
#[derive(Clone, Copy, Debug)]
pub struct LookupReply {
    /// The file.
    pub file: FileRef,
    /// Its attributes; `None` if another server has it.
    pub attr: Option<Attr>,
    /// Attributes of the directory.
    pub dir: Attr,
}

/// Result of making something in a directory.
#[derive(Clone, Copy, Debug)]
pub struct CreateReply {
    /// The file.
    pub file: FileRef,
    /// Its attributes; `None` if another server has it.
    pub attr: Option<Attr>,
    /// Attributes of the directory around the operation; `None` if other servers had part in it.
    pub dir: Option<Change>,
}

/// Returns the error of a change that was refused.
fn error_of(refusal: Refusal) -> Error {
    match refusal {
        Refusal::NotFound => Error::NotFound,
        Refusal::Exists => Error::Exists,
        Refusal::NotDirectory => Error::NotDir,
        Refusal::IsDirectory => Error::IsDir,
        Refusal::NotEmpty => Error::NotEmpty,
        Refusal::Stale => Error::Stale,
        Refusal::Loop => Error::Invalid,
        Refusal::Full => Error::NoSpace,
        Refusal::TooManyLinks => Error::TooManyLinks,
        Refusal::Busy => Error::Delay,
    }
}

/// Returns the suspension of an operation until a signal is set.
fn until<T: Copy + Send + 'static>(signal: &Arc<Signal<T>>) -> Stop {
    let settled = Arc::clone(signal).settled();
    Suspend::Thread(Box::pin(async move {
        settled.await;
    }))
    .into()
}

/// Returns attributes by which permissions on an inode elsewhere are checked.
fn attr_of(node: &Node, like: &Attr) -> Attr {
    Attr {
        kind: node.kind,
        mode: u32::from(node.mode),
        uid: node.uid,
        gid: node.gid,
        guard: Guard::Mode,
        ..*like
    }
}

fn done<T>(value: T) -> Done<T> {
    // The record is durable already.
    Done { value, lsn: None }
}

impl<'t, A: AccessModel> Operand<'t, A> {
    /// Returns the constituent that the volume is.
    #[inline]
    fn constituent(&self) -> Option<&'t Arc<Member>> {
        self.export.constituent.as_ref()
    }

    /// Returns true if the operation has requested its change, or an earlier run of the same call
    /// whose connection was lost.
    fn has_requested(&self, cx: &mut OpContext) -> bool {
        let known = cx.steps.as_ref();
        if known.is_some_and(|steps| steps.request.is_some()) {
            return true;
        }
        let (member, call) = (self.constituent(), cx.engine.call);
        let before = member.and_then(|member| member.recall(call?));
        let found = before.is_some();
        if found {
            cx.steps.get_or_insert_default().request = before;
        }
        found
    }

    /// Returns the number by which clients know an inode that an entry of the volume names.
    pub fn shown_number(&self, ino: Ino) -> u64 {
        self.export.volume.shown_number(ino)
    }

    /// Returns the space of the large volume, if the volume is a constituent.
    pub(crate) fn large_space(&self) -> Option<StatFs> {
        self.constituent().map(|member| member.space())
    }

    /// Holds the names for an operation on an entry of this directory; `None` if the volume is no
    /// constituent.
    pub(crate) fn hold_entry(&self, name: &[u8]) -> Result<Option<NamesGuard<'t>>> {
        let Some(member) = self.constituent() else {
            return Ok(None);
        };
        let held = member.hold()?;
        held.name(self.file.ino, name)?;
        Ok(Some(held))
    }

    /// Holds the names like [`Operand::hold_entry`], also for what the entry names, which is to
    /// lose it.
    ///
    /// # Errors
    /// `NotSupported` if that is elsewhere.
    pub(crate) fn hold_removal(
        &self,
        cx: &mut EngineContext,
        name: &[u8],
    ) -> Result<Option<NamesGuard<'t>>> {
        let held = self.hold_entry(name)?;
        if let Some(held) = &held {
            self.hold_child(cx, held, name)?;
        }
        Ok(held)
    }

    fn hold_child(&self, cx: &mut EngineContext, held: &NamesGuard<'_>, name: &[u8]) -> Result<()> {
        match self.export.volume.entry(cx, self.file.ino, name) {
            Ok((ino, _)) if is_elsewhere(ino) => Err(Error::NotSupported.into()),
            Ok((ino, FileKind::Directory)) => Ok(held.emptiness(ino)?),
            Ok((ino, _)) => Ok(held.inode(ino)?),
            // The operation finds it out.
            Err(weir_volume::Stop::Fail(_)) => Ok(()),
            Err(stop) => Err(stop.into()),
        }
    }

    /// Holds the names for a rename from this directory.
    ///
    /// # Errors
    /// `NotSupported` if it concerns other constituents, or a directory gets another parent: there
    /// is one lock for that in the large volume.
    pub(crate) fn hold_rename(
        &self,
        cx: &mut EngineContext,
        from: &[u8],
        target: &Operand<'t, A>,
        to: &[u8],
    ) -> Result<Option<NamesGuard<'t>>> {
        let held = self.hold_entry(from)?;
        let Some(held) = held else {
            return Ok(None);
        };
        held.name(target.file.ino, to)?;
        match self.export.volume.entry(cx, self.file.ino, from) {
            Ok((ino, kind)) => {
                let moves = kind == FileKind::Directory && self.file != target.file;
                if moves || is_elsewhere(ino) {
                    return Err(Error::NotSupported.into());
                }
            }
            Err(weir_volume::Stop::Fail(_)) => {}
            Err(stop) => return Err(stop.into()),
        }
        target.hold_child(cx, &held, to)?;
        Ok(Some(held))
    }

    /// Holds the names for a link to this file in the directory `dir`.
    pub(crate) fn hold_link(
        &self,
        dir: &Operand<'t, A>,
        name: &[u8],
    ) -> Result<Option<NamesGuard<'t>>> {
        let held = dir.hold_entry(name)?;
        if let Some(held) = &held {
            held.inode(self.file.ino)?;
        }
        Ok(held)
    }

    /// Holds the names while attributes or entries of this inode are read.
    #[inline]
    pub(crate) fn hold_attributes(&self) -> Result<Option<NamesGuard<'t>>> {
        let Some(member) = self.constituent() else {
            return Ok(None);
        };
        let held = member.hold()?;
        held.attributes(self.file.ino)?;
        Ok(Some(held))
    }

    /// Looks a name up like [`Operand::lookup`], also one of an inode that another server has.
    #[inline]
    pub fn look(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<MetadataRead>,
        name: &[u8],
    ) -> OpResult<LookupReply> {
        let Some(member) = self.constituent() else {
            let (found, file) = self.lookup(cx, charged, name)?;
            return Ok(LookupReply {
                file,
                attr: Some(found.attr),
                dir: found.dir,
            });
        };
        self.run(cx, |cx| {
            let held = member.hold()?;
            held.lookup(self.file.ino, name)?;
            match self.find(cx, name) {
                Err(Halt::Failed(Error::NotSupported)) => {}
                found => {
                    let (found, file) = found?;
                    held.attributes(found.ino)?;
                    return Ok(LookupReply {
                        file,
                        attr: Some(found.attr),
                        dir: found.dir,
                    });
                }
            }
            let (volume, dir) = (&self.export.volume, self.directory(cx)?);
            let ino = match name {
                b".." => volume.constituent_inode(cx, dir.ino)?.parent,
                _ => volume.entry(cx, dir.ino, name)?.0,
            };
            Ok(LookupReply {
                file: self.near(ino),
                attr: None,
                dir,
            })
        })
    }

    /// Creates a regular file like [`Operand::create`]. If another server has the file of this
    /// name, it is opened as it is.
    pub fn make_file(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<MetadataWrite>,
        name: &[u8],
        how: CreateHow,
        attrs: &SetAttr,
    ) -> OpResult<Done<CreateReply>> {
        match self.create(cx, charged, name, how, attrs) {
            Err(Stop::Failed(Error::NotSupported)) if self.constituent().is_some() => {}
            created => return Ok(self.report_created_here(created?)),
        }
        let file = self.run(cx, |cx| {
            let (ino, kind) = self.export.volume.entry(cx, self.file.ino, name)?;
            match (how, kind) {
                (CreateHow::Guarded | CreateHow::Exclusive(_), _) | (_, FileKind::Directory) => {
                    Err(Error::Exists.into())
                }
                (CreateHow::Unchecked, _) if attrs.size.is_some() => {
                    // Only its own server can cut it.
                    Err(Error::NotSupported.into())
                }
                (CreateHow::Unchecked, _) => Ok(self.near(ino)),
            }
        })?;
        Ok(done(CreateReply {
            file,
            attr: None,
            dir: None,
        }))
    }

    /// Returns the result of making something on this constituent alone.
    pub fn report_created_here(&self, created: Done<CreateOut>) -> Done<CreateReply> {
        let Done { value, lsn } = created;
        let value = CreateReply {
            file: self.near(value.ino),
            attr: Some(value.attr),
            dir: Some(value.dir),
        };
        Done { value, lsn }
    }

    /// Creates a directory like [`Operand::mkdir`]; in a large volume in the constituent with the
    /// best place for it.
    pub fn make_directory(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<MetadataWrite>,
        name: &[u8],
        attrs: &SetAttr,
    ) -> OpResult<Done<CreateReply>> {
        let Some(member) = self.constituent() else {
            return Ok(self.report_created_here(self.mkdir(cx, charged, name, attrs)?));
        };
        if !self.has_requested(cx) {
            let on = self.run(cx, |cx| self.place(cx, member))?;
            if on == member.membership().own {
                return Ok(self.report_created_here(self.mkdir(cx, charged, name, attrs)?));
            }
            let attributes = self.run(cx, |cx| {
                let (attrs, _) = self.check_create(cx, name, FileKind::Directory, attrs)?;
                let who = &self.who.unix;
                Ok(Attributes {
                    // Permission bits are twelve.
                    mode: (attrs.mode.unwrap_or(0) & 0o7777) as u16,
                    uid: attrs.uid.unwrap_or(who.uid),
                    gid: attrs.gid.unwrap_or(who.gid),
                })
            })?;
            let request = Request::MakeDirectory {
                directory: member.global(self.file.ino),
                name: name.into(),
                on,
                attributes,
            };
            begin(cx, member, request);
        }
        let made = outcome(cx)?.ok_or(Error::Stale)?;
        Ok(done(CreateReply {
            file: self.near(member.stored(made)),
            attr: None,
            dir: None,
        }))
    }

    /// Returns the constituent of a new directory in this one.
    fn place(&self, cx: &mut EngineContext, member: &Member) -> Result<Constituent> {
        let found = self.export.volume.constituent_inode(cx, self.file.ino)?;
        let depth = match (member.global(self.file.ino), member.global(found.parent)) {
            (ROOT, _) => 1,
            (_, ROOT) => 2,
            _ => 3,
        };
        Ok(member.place(depth))
    }

    /// Removes a name: of a directory, or of anything else. Returns the attributes of the directory
    /// around the operation, unless other servers had part in it.
    pub fn unlink(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<MetadataWrite>,
        name: &[u8],
        directory: bool,
    ) -> OpResult<Done<Option<Change>>> {
        if !self.has_requested(cx) {
            let removed = match directory {
                true => self.rmdir(cx, charged, name),
                false => self.remove(cx, charged, name),
            };
            match removed {
                Err(Stop::Failed(Error::NotSupported)) if self.constituent().is_some() => {}
                removed => {
                    let Done { value, lsn } = removed?;
                    let value = Some(value.dir);
                    return Ok(Done { value, lsn });
                }
            }
        }
        let member = self.constituent().ok_or(Error::NotSupported)?;
        if !self.has_requested(cx) {
            let (dir, child) = self.run(cx, |cx| {
                self.writable()?;
                let dir = self.directory(cx)?;
                check_own_name(name)?;
                access::require(&dir, &self.who.unix, W | X)?;
                let (ino, _) = self.export.volume.entry(cx, dir.ino, name)?;
                Ok((dir, ino))
            })?;
            if self.is_bound_by_sticky(&dir) {
                let node = inspect(cx, member, 0, (member.global(child), None))?.node;
                access::may_unlink(&dir, &attr_of(&node, &dir), &self.who.unix)?;
            }
            let (dir, name) = (member.global(self.file.ino), name.into());
            let request = match directory {
                true => Request::RemoveDirectory {
                    directory: dir,
                    name,
                },
                false => Request::Remove {
                    directory: dir,
                    name,
                },
            };
            begin(cx, member, request);
        }
        outcome(cx)?;
        Ok(done(None))
    }

    /// Returns true if the owner of an entry decides whether the caller may take it out of `dir`.
    fn is_bound_by_sticky(&self, dir: &Attr) -> bool {
        dir.mode & access::S_ISVTX != 0 && !access::owns(dir, &self.who.unix)
    }

    /// Renames `from` of a directory of the same large volume to `to` in this directory.
    pub fn rename_from(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        source: Elsewhere,
        from: &[u8],
        to: &[u8],
    ) -> OpResult<Done<()>> {
        let member = self.constituent().ok_or(Error::CrossDevice)?;
        if member.membership().large != source.large {
            return Err(Error::CrossDevice.into());
        }
        self.rename_in_large(cx, member, source.ino, from, to)
    }

    /// Renames `from` to `to` in the directory `target`, like [`Operand::rename`]. Returns the
    /// attributes around the operation, unless it was a change of a large volume.
    pub fn rename_any(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<MetadataWrite>,
        from: &[u8],
        target: &Operand<'t, A>,
        to: &[u8],
    ) -> OpResult<Done<Option<RenameOut>>> {
        if !self.has_requested(cx) {
            match self.rename(cx, charged, from, target, to) {
                Err(Stop::Failed(Error::NotSupported)) if self.constituent().is_some() => {}
                renamed => {
                    let Done { value, lsn } = renamed?;
                    let value = Some(value);
                    return Ok(Done { value, lsn });
                }
            }
        }
        let member = self.constituent().ok_or(Error::NotSupported)?;
        let source = member.global(self.file.ino);
        target.rename_in_large(cx, member, source, from, to)?;
        Ok(done(None))
    }

    fn rename_in_large(
        &self,
        cx: &mut OpContext,
        member: &Member,
        source: Ino,
        from: &[u8],
        to: &[u8],
    ) -> OpResult<Done<()>> {
        if !self.has_requested(cx) {
            self.check_rename(cx, member, source, from, to)?;
            let request = Request::Rename {
                from_directory: source,
                from: from.into(),
                to_directory: member.global(self.file.ino),
                to: to.into(),
            };
            begin(cx, member, request);
        }
        outcome(cx)?;
        Ok(done(()))
    }

    /// Makes the checks of a rename into this directory.
    fn check_rename(
        &self,
        cx: &mut OpContext,
        member: &Member,
        source: Ino,
        from: &[u8],
        to: &[u8],
    ) -> OpResult<()> {
        let who = &self.who.unix;
        let (target, replaced) = self.run(cx, |cx| {
            self.writable()?;
            let dir = self.directory(cx)?;
            check_own_name(from)?;
            check_own_name(to)?;
            access::require(&dir, who, W | X)?;
            let replaced = match self.export.volume.entry(cx, dir.ino, to) {
                Ok((ino, _)) => Some(ino),
                Err(weir_volume::Stop::Fail(_)) => None,
                Err(stop) => return Err(stop.into()),
            };
            Ok((dir, replaced))
        })?;
        let seen = inspect(cx, member, 0, (source, Some(from)))?;
        let source_dir = attr_of(&seen.node, &target);
        if source_dir.kind != FileKind::Directory {
            return Err(Error::NotDir.into());
        }
        access::require(&source_dir, who, W | X)?;
        let child = seen.child.ok_or(Error::NotFound)?;
        if who.is_root() {
            return Ok(());
        }
        let mut next = 1;
        let mut node_of = |cx: &mut OpContext, ino: Ino| {
            next += 1;
            inspect(cx, member, next - 1, (ino, None)).map(|seen| seen.node)
        };
        let moves = child.directory && source != member.global(self.file.ino);
        if moves || self.is_bound_by_sticky(&source_dir) {
            let node = match child.node {
                Some(node) => node,
                None => node_of(cx, child.ino)?,
            };
            let attr = attr_of(&node, &target);
            access::may_unlink(&source_dir, &attr, who)?;
            if moves {
                // Its ".." is written.
                access::require(&attr, who, W)?;
            }
        }
        if let Some(replaced) = replaced.filter(|_| self.is_bound_by_sticky(&target)) {
            let node = node_of(cx, member.global(replaced))?;
            access::may_unlink(&target, &attr_of(&node, &target), who)?;
        }
        Ok(())
    }

    /// Makes a hard link to a file that another server has, `name` in this directory.
    pub fn link_from(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        file: Elsewhere,
        name: &[u8],
    ) -> OpResult<Done<()>> {
        let member = self.constituent().ok_or(Error::CrossDevice)?;
        if member.membership().large != file.large {
            return Err(Error::CrossDevice.into());
        }
        if !self.has_requested(cx) {
            self.run(cx, |cx| {
                self.writable()?;
                let dir = self.directory(cx)?;
                check_own_name(name)?;
                Ok(access::require(&dir, &self.who.unix, W | X)?)
            })?;
            let request = Request::Link {
                file: file.ino,
                directory: member.global(self.file.ino),
                name: name.into(),
            };
            begin(cx, member, request);
        }
        outcome(cx)?;
        Ok(done(()))
    }
}

/// Requests the change of an operation.
fn begin(cx: &mut OpContext, member: &Member, request: Request) {
    let reply = member.request(request, cx.engine.call);
    cx.steps.get_or_insert_default().request = Some(reply);
}

/// Returns what came of the change that the operation has requested.
fn outcome(cx: &OpContext) -> OpResult<Option<Ino>> {
    let request = cx.steps.as_ref().and_then(|steps| steps.request.as_ref());
    let request = request.ok_or(Error::Delay)?;
    match request.get() {
        None => Err(until(request)),
        Some(reply) => reply.map_err(|refusal| error_of(refusal).into()),
    }
}

/// Returns what a constituent says of an inode and of an entry of it: the question of number `at`
/// of the operation.
fn inspect(
    cx: &mut OpContext,
    member: &Member,
    at: usize,
    (ino, name): (Ino, Option<&[u8]>),
) -> OpResult<InodeAnswer> {
    let inspected = &mut cx.steps.get_or_insert_default().inspected;
    if inspected.len() <= at {
        inspected.push(member.inspect(ino, name));
    }
    let answer = inspected.get(at).ok_or(Error::Delay)?;
    match answer.get() {
        None => Err(until(answer)),
        Some(answer) => answer.map_err(|refusal| error_of(refusal).into()),
    }
}
