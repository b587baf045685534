//! Operations of protocols with opens beyond NFSv3: opening, extended attributes, holes.

use crate::EngineContext;
use crate::access::{self, X};
use crate::claims::{Actor, Event, Passage};
use crate::conflict::{self, Io};
use crate::error::{Error, Halt, OpResult, Suspend};
use crate::handle::Namespace;
use crate::ops::check_name;
use crate::pipeline::{ChargeProof, DataWrite, MetadataRead, MetadataWrite, OpContext, Operand};
use crate::session::AccessModel;
use crate::snapshot_dir::FileRef;
use std::cell::Cell;
use std::time::Duration;
use weir_base::Time;
use weir_base::limits::MAX_IO;
use weir_base::{Ino, Lsn};
use weir_volume::{
    self as volume, AtEnd, Attr, Change, Conversion, DIRECTORY_LINK, DirEntry, Done, FileKind,
    FsError, Guard, LookupOut, Pin, ReadDirLimit, ReadDirOut, RemoveOut, Seek, SetAttr, SetHow,
    SetTime, Snapshot, Sought, Stability, Stream, WriteOut,
};

impl<A: AccessModel> Operand<'_, A> {
    /// Checks that the file may be opened for reading, writing or both, and returns its attributes.
    /// Refuses files that are not regular.
    pub fn may_open(&self, cx: &mut OpContext, read: bool, write: bool) -> OpResult<Attr> {
        self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            match attr.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Error::IsDir.into()),
                _ => return Err(Error::Invalid.into()),
            }
            if write {
                self.writable()?;
                self.may_write(&attr)?;
            }
            if read {
                self.may_read(&attr)?;
            }
            Ok(attr)
        })
    }

    /// Sets the times at which the file was last read (`accessed`) and written (`modified`) under a
    /// delegation, as its holder says. It acts on behalf of the holder, so the caller needs no
    /// permission, and no cache is broken: who may have modified the file is the only holder. A
    /// time of access changes nothing else, and is not kept where nothing can be changed, as
    /// everywhere. Nor does a time of modification that the file has.
    pub fn set_held_times(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        accessed: Option<Time>,
        modified: Option<Time>,
    ) -> OpResult<Option<Lsn>> {
        self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            let Some(modified) = modified.filter(|t| *t != attr.mtime) else {
                if let Some(at) = accessed.filter(|_| !self.read_only()) {
                    self.volume().note_access(cx, self.file.ino, at)?;
                }
                return Ok(None);
            };
            self.writable()?;
            Ok(self.note_modified(cx, attr, accessed, modified)?.lsn)
        })
    }

    /// Notes that the holder of a write cache has changed the content, at the time `modified` if it
    /// keeps the file's times. Times and change counter show that from now on, as if the data had
    /// been sent. On behalf of the holder, so the caller needs no permission.
    pub fn note_held_change(
        &self,
        cx: &mut OpContext,
        accessed: Option<Time>,
        modified: Option<Time>,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| match modified {
            Some(modified) => {
                let attr = self.attr(cx)?;
                Ok(self.note_modified(cx, attr, accessed, modified)?)
            }
            None => {
                let set = SetAttr {
                    mtime: SetTime::Server,
                    ..SetAttr::default()
                };
                Ok(self.volume().setattr(cx, self.file.ino, &set, None)?)
            }
        })
    }

    /// Moves the change time along with a time of modification that a client says. It becomes that
    /// time, not now (RFC 9754 §5), but moves on in any case, since clients of NFSv3 notice changes
    /// by it. `attr`: as the file is, or was.
    fn note_modified(
        &self,
        cx: &mut EngineContext,
        mut attr: Attr,
        accessed: Option<Time>,
        modified: Time,
    ) -> Result<Done<Change>, volume::Stop> {
        loop {
            let next = attr.ctime.plus(Duration::from_nanos(1));
            let set = SetAttr {
                atime: accessed.map_or(SetTime::Keep, SetTime::Client),
                mtime: SetTime::Client(modified),
                ctime: Some(modified.max(next)),
                ..SetAttr::default()
            };
            let (volume, ino) = (self.volume(), self.file.ino);
            match volume.setattr(cx, ino, &set, Some(attr.ctime)) {
                // It has been changed meanwhile.
                Err(volume::Stop::Fail(FsError::NotSync)) => attr = volume.getattr(cx, ino)?,
                done => return done,
            }
        }
    }

    /// Keeps the file for as long as the pin lives, also without a name; `None` for what never
    /// ends, in a snapshot.
    pub fn pin(&self, cx: &mut OpContext) -> OpResult<Option<Pin>> {
        let volume = &self.export.volume;
        match self.file.namespace {
            Namespace::Live if !volume.protected() => {
                let ino = self.file.ino;
                self.run(cx, |cx| Ok(Some(volume.pin(cx, ino)?)))
            }
            _ => Ok(None),
        }
    }

    /// As [`weir_volume::Volume::note_call`].
    pub fn note_call(&self, cx: &mut OpContext, word: Ino) -> OpResult<Option<Lsn>> {
        self.run(cx, |cx| Ok(self.volume().note_call(cx, word)?))
    }

    /// Returns another file near this one in the same volume or snapshot, which was charged with
    /// it.
    #[must_use]
    pub fn with_file(&self, file: FileRef) -> Self
    where
        A: Copy,
    {
        Operand {
            export: self.export,
            writes: self.writes,
            who: self.who.clone(),
            file,
            access: self.access,
            client: self.client,
            claims: self.claims,
            grace: self.grace,
            watchers: self.watchers,
            list: None,
            caller: None,
        }
    }

    /// Removes a name of anything, of a directory if that is empty: for protocols that have one
    /// operation for both.
    pub fn remove_any(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
    ) -> OpResult<Done<RemoveOut>> {
        self.run(cx, |cx| {
            let version = self.check_remove(cx, name)?;
            let (volume, dir) = (self.volume(), self.file.ino);
            // Which of both it is may change in between: then the second answer counts.
            let done = match volume.remove(cx, dir, name) {
                Err(volume::Stop::Fail(FsError::IsDir)) => volume.rmdir(cx, dir, name)?,
                done => done?,
            };
            Ok(self.report_removed(version, name, done))
        })
    }

    /// Writes behind all bytes that there are at that moment. Others that append overwrite none of
    /// it. It is not stable: stable data may be placed on the device before the end is known.
    pub fn append(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<DataWrite>,
        data: &[u8],
    ) -> OpResult<Done<WriteOut>> {
        self.write_where(cx, charged, data, Stability::Unstable, Ok)
    }

    /// Writes at `from`, if there are no bytes there or behind it at that moment.
    ///
    /// # Errors
    /// Also [`Error::Access`]: there are bytes at `from`.
    pub fn append_at(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<DataWrite>,
        from: u64,
        data: &[u8],
        how: Stability,
    ) -> OpResult<Done<WriteOut>> {
        self.write_where(cx, charged, data, how, |size| {
            if from >= size {
                Ok(from)
            } else {
                Err(Error::Access)
            }
        })
    }

    /// Writes where `place` says for the size that the file has under its lock.
    pub(crate) fn write_where(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<DataWrite>,
        data: &[u8],
        how: Stability,
        place: impl Fn(u64) -> Result<u64, Error>,
    ) -> OpResult<Done<WriteOut>> {
        assert!(
            data.len() <= charged.bytes(),
            "no more is written than was charged"
        );
        let done = self.run(cx, |cx| {
            self.writable()?;
            let ino = self.file.ino;
            let mut attr = self.volume().getattr(cx, ino)?;
            self.guard(cx, &mut attr)?;
            if attr.kind != FileKind::Regular {
                return Err(Error::Invalid.into());
            }
            self.may_write(&attr)?;
            let set_ids = self.set_ids();
            let volume = self.volume();
            let offset = Cell::new(place(attr.size)?);
            conflict::with_claims_check(
                cx,
                |cx, version| {
                    let allowed = |size| {
                        let now = place(size)?;
                        if offset.replace(now) != now {
                            // The table is asked about the bytes that it would be by now.
                            return Err(Halt::Claimed);
                        }
                        self.check_claims_version(ino, version)
                    };
                    volume.write_if(set_ids, cx, ino, offset.get(), data, how, allowed)
                },
                |_| self.check_io_claims(Io::write(ino, offset.get(), data.len())),
            )
        })?;
        cx.set_moved(done.value.len);
        Ok(done)
    }

    /// As [`Operand::lookup`], of an entry of a listing that was charged.
    pub fn listed(&self, cx: &mut OpContext, name: &[u8]) -> OpResult<(LookupOut, FileRef)> {
        self.run(cx, |cx| self.find(cx, name))
    }

    /// Looks a name up like [`Operand::listed`], in any case, and returns it as it is stored.
    pub fn listed_folded(
        &self,
        cx: &mut OpContext,
        name: &[u8],
    ) -> OpResult<(LookupOut, FileRef, Box<[u8]>)> {
        self.run(cx, |cx| {
            check_name(name)?;
            if let Some((found, file)) = self.lookup_snapshots(cx, name)? {
                return Ok((found, file, name.into()));
            }
            match self.read_source()?.lookup_folded(cx, self.file.ino, name) {
                Ok((mut found, stored)) => {
                    self.guard(cx, &mut found.dir)?;
                    access::require(&found.dir, &self.who.unix, X)?;
                    self.guard(cx, &mut found.attr)?;
                    let file = self.near(found.ino);
                    Ok((found, file, stored))
                }
                Err(volume::Stop::Fail(e)) => {
                    // As in a lookup of the exact name: who may not search learns nothing.
                    let attr = self.directory(cx)?;
                    access::require(&attr, &self.who.unix, X)?;
                    Err(e.into())
                }
                Err(stop) => Err(stop.into()),
            }
        })
    }

    /// Returns the snapshots of this file's volume, the oldest first: when each was taken, and its
    /// root. None if they are not shown.
    pub fn snapshots(&self) -> Vec<(Time, FileRef)> {
        let volume = &self.export.volume;
        if !self.export.snapshot_directory {
            return Vec::new();
        }
        let all = volume.snapshots().into_iter();
        let root = |snapshot: Snapshot| FileRef {
            ino: volume.root(),
            namespace: Namespace::Snapshot(snapshot.id),
        };
        all.map(|snapshot| (snapshot.created, root(snapshot)))
            .collect()
    }

    /// Returns true if the file could be changed at all, whatever its permissions.
    pub fn may_change(&self) -> bool {
        self.writable().is_ok()
    }

    /// Returns true if the caller may read the file of a listing's entry, by its mode or access
    /// control list.
    pub fn may_read_entry(&self, cx: &mut OpContext, attr: &Attr) -> OpResult<bool> {
        self.run(cx, |cx| {
            let mut attr = *attr;
            self.guard(cx, &mut attr)?;
            Ok(access::permits(&attr, &self.who.unix, access::R))
        })
    }

    /// Lists like [`Operand::readdir`], again and again for one listing that was charged once, by a
    /// caller whose open may list.
    pub fn list_on(
        &self,
        cx: &mut OpContext,
        _: &ChargeProof<MetadataRead>,
        cookie: u64,
        limit: ReadDirLimit,
        each: &mut dyn FnMut(&DirEntry<'_>, Option<FileRef>) -> bool,
    ) -> OpResult<ReadDirOut> {
        self.run(cx, |cx| {
            let attr = self.directory(cx)?;
            self.may_read(&attr)?;
            self.entries(cx, cookie, limit, each)
        })
    }

    /// Returns true if the caller owns the object of `attr`, as far as permissions go.
    pub fn owns(&self, attr: &Attr) -> bool {
        access::owns(attr, &self.who.unix)
    }

    /// The value of an extended attribute; needs permission to read.
    pub fn xattr(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataRead>,
        name: &[u8],
    ) -> OpResult<Vec<u8>> {
        self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            self.may_read(&attr)?;
            if self.file.namespace == Namespace::Snapshots {
                return Err(Error::NotFound.into());
            }
            Ok(self.read_source()?.xattr(cx, self.file.ino, name)?)
        })
    }

    /// The names of all extended attributes; needs permission to read.
    pub fn xattrs(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataRead>,
    ) -> OpResult<Vec<Vec<u8>>> {
        self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            self.may_read(&attr)?;
            if self.file.namespace == Namespace::Snapshots {
                return Ok(Vec::new());
            }
            Ok(self.read_source()?.xattrs(cx, self.file.ino)?)
        })
    }

    /// Sets an extended attribute, or removes it (`None`); needs permission to write.
    pub fn set_xattr(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetHow,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            self.writable()?;
            let attr = self.attr(cx)?;
            self.may_write(&attr)?;
            let (volume, ino) = (self.volume(), self.file.ino);
            conflict::with_claims_check(
                cx,
                |cx, version| {
                    let allowed = || self.check_claims_version(ino, version);
                    volume.set_xattr_if(cx, ino, name, value, how, allowed)
                },
                |_| self.check_attribute_claims(),
            )
        })
    }

    /// All named streams of the file or directory, in an order that stays.
    pub fn streams(
        &self,
        cx: &mut OpContext,
        charged: ChargeProof<MetadataRead>,
    ) -> OpResult<Vec<Stream>> {
        self.streams_on(cx, &charged)
    }

    /// As [`Operand::streams`], of an entry of a listing that was charged.
    pub fn streams_on(
        &self,
        cx: &mut OpContext,
        _: &ChargeProof<MetadataRead>,
    ) -> OpResult<Vec<Stream>> {
        self.run(cx, |cx| match self.file.namespace {
            Namespace::Snapshots => Ok(Vec::new()),
            _ => Ok(self.read_source()?.streams(cx, self.file.ino)?),
        })
    }

    /// The named stream of this name, in any case.
    pub fn stream(&self, cx: &mut OpContext, name: &[u8]) -> OpResult<(Stream, FileRef)> {
        self.run(cx, |cx| {
            check_name(name)?;
            if self.file.namespace == Namespace::Snapshots {
                return Err(Error::NotFound.into());
            }
            let found = self.read_source()?.stream(cx, self.file.ino, name)?;
            let file = self.near(found.attr.ino);
            Ok((found, file))
        })
    }

    /// Makes an empty named stream; needs permission to write.
    pub fn make_stream(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
    ) -> OpResult<(Done<Stream>, FileRef)> {
        self.run(cx, |cx| {
            self.change_streams(cx)?;
            check_name(name)?;
            let done = self.volume().make_stream(cx, self.file.ino, name)?;
            let file = self.near(done.value.attr.ino);
            Ok((done, file))
        })
    }

    /// Removes a named stream, or gives it another name; needs permission to write.
    pub fn move_stream(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        name: &[u8],
        to: Option<&[u8]>,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            self.change_streams(cx)?;
            let (volume, ino) = (self.volume(), self.file.ino);
            Ok(match to {
                None => volume.remove_stream(cx, ino, name)?,
                Some(to) => {
                    check_name(to)?;
                    volume.rename_stream(cx, ino, name, to)?
                }
            })
        })
    }

    /// Checks that the caller may change what streams the file has, and that others let it.
    fn change_streams(&self, cx: &mut EngineContext) -> Result<(), Halt> {
        self.writable()?;
        let attr = self.attr(cx)?;
        self.may_write(&attr)?;
        if self.may_be_held() {
            self.check_attribute_claims()?;
        }
        Ok(())
    }

    /// Makes a symbolic link of the file, or no link any more, under its name in `dir`, which was
    /// charged with it. A link that was made as one has the mode of a new file then.
    ///
    /// The caller has it open with the permission to change it, which the protocol checks. It must
    /// own the file or be allowed to take its name away, since a user who follows a link trusts the
    /// directory that it is in. On a volume of NTFS style its list decides alone. No other client
    /// may have it open ([`Error::Busy`]).
    pub fn convert(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        (dir, name): (&Operand<'_, A>, &[u8]),
        target: Option<&[u8]>,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            self.writable()?;
            check_name(name)?;
            let ino = self.file.ino;
            let (parent, attr) = (dir.directory(cx)?, self.attr(cx)?);
            let listed = self.is_ntfs() && attr.guard != Guard::Mode;
            if !listed && !access::owns(&attr, &self.who.unix) {
                dir.check_unlink(cx, &parent, name)?;
            }
            if let Actor::Mandatory { owner, key, .. } = self.access.actor() {
                match self.claims.sole(self.claimed(ino), owner, key) {
                    Passage::Denied => return Err(Error::Busy.into()),
                    passage => conflict::result(passage)?,
                }
            }
            let to = match target {
                Some(target) => Conversion::Link(target),
                None => Conversion::Plain(self.mode_of_plain(&attr)),
            };
            let version = dir.pass_names(cx, &[(parent.ino, Some(name))], None)?;
            let done = self.volume().convert(cx, (parent.ino, name), ino, to)?;
            let changed = [(Some(parent.ino), Event::Entries), (Some(ino), Event::Name)];
            dir.names_changed(version, changed);
            Ok(done)
        })
    }

    /// Returns the mode that a link has when it is none any more; `None`: its own. Everybody may do
    /// everything with links that were made as such, as far as their mode says.
    fn mode_of_plain(&self, attr: &Attr) -> Option<u32> {
        let open = attr.mode & 0o777 == 0o777 && attr.guard == Guard::Mode;
        let directory = attr.dos & DIRECTORY_LINK != 0;
        let all = if directory { 0o777 } else { 0o666 };
        let left = if self.is_ntfs() { 0o700 } else { 0o755 };
        open.then_some(all & left)
    }

    /// Returns the first byte from `from` on that is of data or of a hole, and the file's size if
    /// there is none; needs permission to read.
    pub fn seek(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataRead>,
        from: u64,
        what: Seek,
    ) -> OpResult<Sought> {
        let start = from.max(cx.progress);
        let sought = self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            self.may_read(&attr)?;
            if self.file.namespace == Namespace::Snapshots {
                return Err(Error::IsDir.into());
            }
            if self.may_be_held() {
                // Bytes that another client has written and not sent yet are data.
                self.check_io_claims(Io::read(self.file.ino, from, MAX_IO))?;
            }
            Ok(self.read_source()?.seek(cx, self.file.ino, start, what)?)
        })?;
        match sought {
            Sought::NotBefore(next) => {
                cx.progress = next;
                Err(Suspend::Turn.into())
            }
            sought => Ok(sought),
        }
    }

    /// Makes `len` bytes from `offset` on a hole, and the file as long as `at_end` says; needs
    /// permission to write. As a write it takes the set-user-ID and set-group-ID bits away.
    pub fn punch(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        (offset, len): (u64, u64),
        at_end: AtEnd,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            self.writable()?;
            let attr = self.attr(cx)?;
            self.may_write(&attr)?;
            let (volume, ino) = (self.volume(), self.file.ino);
            let io = match len {
                // Bytes behind the end are changed.
                0 => Io::cut(ino, offset.min(attr.size)),
                len => Io {
                    ino,
                    write: true,
                    offset,
                    len: Some(len),
                },
            };
            let (set_ids, hole) = (self.set_ids(), (offset, len));
            conflict::with_claims_check(
                cx,
                |cx, version| {
                    let allowed = || self.check_claims_version(ino, version);
                    volume.punch_if(set_ids, cx, ino, hole, at_end, allowed)
                },
                |_| self.check_io_claims(io),
            )
        })
    }
}
