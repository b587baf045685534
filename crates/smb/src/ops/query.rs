//! QUERY_INFO and SET_INFO (MS-SMB2 §3.3.5.20, §3.3.5.21).

use crate::context::run::{CommandResult, Failure, Operand, Run};
use crate::context::step::Step;
use crate::info::access::listed;
use crate::info::ea;
use crate::info::entry::{self, attributes, class};
use crate::open::deletions::{Marker, RemovalKind};
use crate::open::persistent::Deletes;
use crate::open::session::{Access, Base, File, Open, OpenName, Session};
use crate::ops::create::has_room;
use crate::ops::read_write::is_regular;
use crate::proto::dialect::MAX_TRANSFER;
use crate::proto::security::{self, DescriptorUpdate};
use crate::proto::status::Status;
use crate::proto::{filter, mask, names};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_auth::wire::{Put, Reader, from_filetime, from_utf16, part};
use weir_base::{BLOCK_SIZE, Time};
use weir_vfs::claims::{DeleteMode, MarkOutcome, Modes, OpenOutcome, OpenRequest, Owner, Removal};
use weir_vfs::volume::{
    Attr, DIRECTORY_LINK, FileKind, Guard, ReadDirLimit, SetAttr, SetTime, StatFs,
};
use weir_vfs::{
    ChargeProof, Error, FileId, FileRef, MetadataRead, MetadataWrite, Namespace, Stop, Suspend,
};

/// InfoType (§2.2.37).
mod kind {
    pub const FILE: u8 = 1;
    pub const FILESYSTEM: u8 = 2;
    pub const SECURITY: u8 = 3;
    pub const QUOTA: u8 = 4;
}

/// Bytes of the response before the information.
const FIXED: usize = 8;

/// Bits of FileDispositionInformationEx and FileRenameInformationEx (MS-FSCC §2.4.11, §2.4.42).
const DISPOSITION_DELETE: u32 = 1;
const POSIX_SEMANTICS: u32 = 2;
const IGNORE_READONLY: u32 = 0x10;
const REPLACE: u32 = 1;

/// Bits of FileModeInformation (MS-FSCC §2.4.31).
mod mode {
    /// FILE_SYNCHRONOUS_IO_ALERT and FILE_SYNCHRONOUS_IO_NONALERT, which exclude each other.
    pub const SYNCHRONOUS: u32 = 0x30;
    /// All defined bits.
    pub const ALL: u32 = 0x103e;
}

/// Location of a new name.
struct NewName {
    /// The directory, within its volume and among all.
    at: FileRef,
    dir: FileId,
    name: Vec<u8>,
    /// Stored form of an existing name that is equal but for case.
    existing: Option<Box<[u8]>>,
    /// The path as clients see it.
    shown: String,
}

/// Returns the status that refuses a change of what cannot be changed. Nobody has the right to
/// manage quotas over SMB (MS-SMB2 §3.3.5.21.4).
fn refusal(kind: u8, class: u8) -> Status {
    match (kind, class) {
        (kind::QUOTA, _) | (kind::FILESYSTEM, entry::FS_CONTROL) => Status::ACCESS_DENIED,
        _ => Status::NOT_SUPPORTED,
    }
}

/// The least room that a class of fixed size needs.
fn least(class: u8) -> usize {
    match class {
        class::BASIC => 40,
        class::STANDARD => 24,
        class::INTERNAL | class::POSITION | class::ATTRIBUTE_TAG => 8,
        class::EA | class::MODE | class::ALIGNMENT | class::ACCESS => 4,
        class::ALL => 104,
        class::STREAM => 32,
        class::ALTERNATE_NAME | class::NORMALIZED_NAME => 8,
        class::NETWORK_OPEN => 56,
        class::COMPRESSION => 16,
        class::ID => 24,
        class::POSIX => 80,
        _ => 0,
    }
}

impl Run<'_> {
    /// QUERY_INFO.
    pub(crate) fn query_info(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 41 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (kind, class) = (r.u8()?, r.u8()?);
        let most = r.u32()?;
        let input_at = usize::from(r.u16()?);
        r.u16()?;
        let input_len = r.u32()? as usize;
        let parts = r.u32()?;
        r.u32()?;
        let halves = (r.u64()?, r.u64()?);
        if most > MAX_TRANSFER {
            return Err(Status::INVALID_PARAMETER.into());
        }
        self.charged(most as usize)?;
        let most = most as usize;
        let (session, open) = (self.session()?, self.open(halves)?);
        if kind == kind::QUOTA {
            let input = part(self.message, input_at, input_len)?;
            return self.query_quotas(&session, &open, (input, most));
        }
        let Some(file) = open.file() else {
            return self.query_special(&session, &open, (kind, class), most);
        };
        if (kind, class) == (kind::FILE, class::FULL_EA) {
            let wanted = part(self.message, input_at, input_len)?;
            let (status, data) = self.query_eas(&session, &open, file, (wanted, most))?;
            self.put_info(&data);
            return Ok(status);
        }
        let eas = match (kind, class) {
            (kind::FILE, class::EA | class::ALL) => ea::size(&self.eas(&session, &open, file)?),
            _ => 0,
        };
        let (operand, _) = self.enter(&session, file.id, Access::Open(&open), MetadataRead)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        let attr = self.whole(&session, &open, file, attr)?;
        let mut data = Vec::new();
        match kind {
            kind::FILE => {
                let needed = match class {
                    class::BASIC
                    | class::ALL
                    | class::NETWORK_OPEN
                    | class::ATTRIBUTE_TAG
                    | class::POSIX => mask::READ_ATTRIBUTES,
                    _ => 0,
                };
                if !open.may(needed) {
                    return Err(Status::ACCESS_DENIED.into());
                }
                if class == class::STREAM {
                    self.put_streams(&session, &open, file, &mut data)?;
                }
                let deleting = self.s.vfs.claims.delete_pending(file.id);
                let known = self.s.domains().known();
                entry::put_file(
                    &mut data,
                    class,
                    (&open, file),
                    &attr,
                    (deleting, eas),
                    &known,
                )?;
                if most < least(class) {
                    return Err(Status::INFO_LENGTH_MISMATCH.into());
                }
            }
            kind::FILESYSTEM => self.put_fs(&mut data, (class, most), &operand, &attr)?,
            kind::SECURITY => {
                data = self.descriptor(&session, &open, (file, &attr), parts)?;
                if data.len() > most {
                    // How much room it needs (§2.2.2.1).
                    let out = &mut self.c.out;
                    out.put_u16(9);
                    out.put_u16(0);
                    out.put_u32(4);
                    out.put_u32(data.len() as u32);
                    return Ok(Status::BUFFER_TOO_SMALL);
                }
            }
            _ => return Err(Status::INVALID_PARAMETER.into()),
        }
        Ok(self.put_cut(data, most))
    }

    /// Returns the parts of a file's security descriptor that are asked for.
    fn descriptor(
        &mut self,
        session: &Session,
        open: &Open,
        (file, attr): (&File, &Attr),
        parts: u32,
    ) -> Result<Vec<u8>, Stop<Failure>> {
        // The audit list takes a privilege that nobody has.
        if !open.may(mask::READ_CONTROL) || parts & security::SACL != 0 {
            return Err(Status::ACCESS_DENIED.into());
        }
        let list = match attr.guard {
            Guard::Mode => None,
            Guard::Acl | Guard::Granted(_) => {
                let access = Access::Made(&open.owner, &open.key);
                let (main, _) = self.enter(session, file.main().id, access, MetadataRead)?;
                Some(main.acl(&mut self.c.cx)?)
            }
        };
        let known = self.s.domains().known();
        Ok(security::descriptor(attr, list.as_ref(), parts, &known))
    }

    /// Writes the response with as much of the information as the client has room for.
    fn put_cut(&mut self, mut data: Vec<u8>, most: usize) -> Status {
        let status = match data.len() > most {
            true => Status::BUFFER_OVERFLOW,
            false => Status::SUCCESS,
        };
        data.truncate(most);
        self.put_info(&data);
        status
    }

    /// Writes information about the file system, of which the client takes `most` bytes.
    fn put_fs(
        &self,
        data: &mut Vec<u8>,
        (class, most): (u8, usize),
        operand: &Operand<'_>,
        attr: &Attr,
    ) -> Result<(), Status> {
        let (quotas, default) = operand.default_quota();
        let space = entry::FsSpace {
            stat: StatFs {
                available: operand.available_to_caller(attr),
                ..operand.statfs(attr)
            },
            total_for_caller: operand.total_for_caller(attr),
            quotas,
            hard_bytes: default.bytes,
            soft_bytes: default.soft_bytes,
        };
        entry::put_fs(data, class, &self.tree()?.share, attr, &space)?;
        match most < entry::least_fs(class) {
            true => Err(Status::INFO_LENGTH_MISMATCH),
            false => Ok(()),
        }
    }

    /// QUERY_INFO of a pipe, or of the file system on an open of the index of quotas.
    fn query_special(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        (kind, class): (u8, u8),
        most: usize,
    ) -> CommandResult {
        let mut data = Vec::new();
        match (open.in_volume(session), (kind, class)) {
            (Some((root, access)), (kind::FILESYSTEM, class)) => {
                let (operand, _) = self.enter(session, root, access, MetadataRead)?;
                let attr = operand.getattr(&mut self.c.cx)?;
                self.put_fs(&mut data, (class, most), &operand, &attr)?;
                return Ok(self.put_cut(data, most));
            }
            (None, (kind::FILE, class::STANDARD)) => {}
            _ => return Err(Status::NOT_SUPPORTED.into()),
        }
        data.put_u64(4096);
        data.put_u64(0);
        data.put_u32(1);
        data.put(&[1, 0, 0, 0]);
        self.put_info(&data);
        Ok(Status::SUCCESS)
    }

    /// Writes the response with the information.
    pub(crate) fn put_info(&mut self, data: &[u8]) {
        let out = &mut self.c.out;
        out.put_u16(9);
        out.put_u16((crate::proto::header::HEADER + FIXED) as u16);
        out.put_u32(data.len() as u32);
        out.put(data);
    }

    /// SET_INFO.
    pub(crate) fn set_info(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 33 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (kind, class) = (r.u8()?, r.u8()?);
        let (len, offset) = (r.u32()? as usize, usize::from(r.u16()?));
        r.u16()?;
        let parts = r.u32()?;
        let halves = (r.u64()?, r.u64()?);
        let data = part(self.message, offset, len)?;
        self.charged(data.len())?;
        let (session, open) = (self.session()?, self.open(halves)?);
        let file = open.file().ok_or(refusal(kind, class))?;
        match kind {
            kind::FILE => {}
            kind::SECURITY => {
                self.set_security(&session, &open, file, data, parts)?;
                self.c.out.put_u16(2);
                return Ok(Status::SUCCESS);
            }
            _ => return Err(refusal(kind, class).into()),
        }
        let mut r = Reader::new(data);
        let short = |_| Status::INFO_LENGTH_MISMATCH;
        match class {
            class::BASIC => {
                let mut times = [0; 4];
                for time in &mut times {
                    *time = r.u64().map_err(short)?;
                }
                // 0, −1 and −2 have meanings of their own (MS-FSCC §2.4.7).
                if times.iter().any(|time| time.cast_signed() < -2) {
                    return Err(Status::INVALID_PARAMETER.into());
                }
                let dos = r.u32().map_err(short)?;
                self.set_basic(&session, &open, file, times, dos)?;
            }
            class::END_OF_FILE => {
                let size = r.u64().map_err(short)?;
                self.set_size(&session, &open, file, size)?;
            }
            class::ALLOCATION => {
                // Allocation ahead of the end has no effect; below the end it truncates (MS-FSA
                // §2.1.5.15.1).
                let size = r.u64().map_err(short)?;
                self.set_allocation(&session, &open, file, size)?;
            }
            class::DISPOSITION => {
                let flags = match r.u8().map_err(short)? {
                    0 => 0,
                    _ => DISPOSITION_DELETE,
                };
                self.set_disposition(&session, &open, file, flags)?;
            }
            class::DISPOSITION_EX => {
                let flags = r.u32().map_err(short)?;
                self.set_disposition(&session, &open, file, flags)?;
            }
            class::RENAME | class::RENAME_EX => {
                let flags = r.u32().map_err(short)?;
                r.u32().map_err(short)?;
                let to = new_name(&mut r)?;
                let flags = match (class, flags & 0xff) {
                    (class::RENAME, 0) => 0,
                    (class::RENAME, _) => REPLACE,
                    _ => flags,
                };
                self.rename(&session, &open, file, &to, flags)?;
            }
            class::LINK => {
                let replace = r.u64().map_err(short)? & 0xff != 0;
                let to = new_name(&mut r)?;
                self.link(&session, &open, file, &to, replace)?;
            }
            class::POSITION => {
                let position = r.u64().map_err(short)?;
                if position > i64::MAX as u64 {
                    return Err(Status::INVALID_PARAMETER.into());
                }
                file.position.store(position, Ordering::Relaxed);
            }
            class::FULL_EA => {
                self.set_eas(&session, &open, file, data)?;
                self.modified(&session, &open, filter::EA);
            }
            class::MODE => {
                let mode = r.u32().map_err(short)?;
                let synchronous = mode & mode::SYNCHRONOUS;
                if mode & !mode::ALL != 0 || synchronous == mode::SYNCHRONOUS {
                    return Err(Status::INVALID_PARAMETER.into());
                }
                // The mode is the client's own business.
            }
            _ => return Err(Status::NOT_SUPPORTED.into()),
        }
        self.c.out.put_u16(2);
        Ok(Status::SUCCESS)
    }

    fn set_basic(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        [btime, atime, mtime, ctime]: [u64; 4],
        dos: u32,
    ) -> Result<(), Stop<Failure>> {
        if !open.may(mask::WRITE_ATTRIBUTES) {
            return Err(Status::ACCESS_DENIED.into());
        }
        // Holes are not its business, nor is what a link was made of.
        let (mut kept, mut guard) = (0, None);
        let (main, access) = (file.main().id, Access::Open(open));
        let (operand, charged) = self.enter(session, main, access, MetadataWrite)?;
        if dos != 0 {
            let attr = operand.getattr(&mut self.c.cx)?;
            kept = u32::from(attr.dos) & (attributes::SPARSE | u32::from(DIRECTORY_LINK));
            guard = Some(attr.ctime);
            let is_directory = entry::shows_directory(&attr) && file.base.is_none();
            let directory = dos & attributes::DIRECTORY != 0;
            let temporary = dos & attributes::TEMPORARY != 0;
            if (directory && !is_directory) || (temporary && is_directory) {
                return Err(Status::INVALID_PARAMETER.into());
            }
        }
        let set_time = |time| from_filetime(time).map_or(SetTime::Keep, SetTime::Client);
        let set = SetAttr {
            atime: set_time(atime),
            mtime: set_time(mtime),
            ctime: from_filetime(ctime),
            btime: from_filetime(btime),
            dos: (dos != 0).then_some((dos & attributes::SETTABLE | kept) as u16),
            ..SetAttr::default()
        };
        if set == SetAttr::default() {
            return Ok(());
        }
        self.set_attributes(&operand, charged, &set, guard)?;
        let kept = |time| time == SetTime::Keep;
        let mut bits = 0;
        for (changed, bit) in [
            (set.dos.is_some(), filter::ATTRIBUTES),
            (!kept(set.mtime), filter::LAST_WRITE),
            (!kept(set.atime), filter::LAST_ACCESS),
            (set.btime.is_some(), filter::CREATION),
        ] {
            bits |= if changed { bit } else { 0 };
        }
        self.modified(session, open, bits);
        Ok(())
    }

    /// Sets the parts of a security descriptor. To set the same again changes nothing more.
    fn set_security(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        data: &[u8],
        parts: u32,
    ) -> Result<(), Stop<Failure>> {
        let owns = parts & (security::OWNER | security::GROUP) != 0;
        let needed = [
            (owns, mask::WRITE_OWNER),
            (parts & security::DACL != 0, mask::WRITE_DAC),
            // It takes a privilege that nobody has.
            (parts & security::SACL != 0, u32::MAX),
        ];
        if needed.iter().any(|(asks, bit)| *asks && !open.may(*bit)) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let wanted = DescriptorUpdate::decode(data, parts)?;
        self.put_security(session, file.main(), &open.owner, &wanted)?;
        self.modified(session, open, filter::SECURITY);
        Ok(())
    }

    /// Gives a file the owner, the group and the list that are wanted.
    pub(crate) fn put_security(
        &mut self,
        session: &Session,
        Base {
            id: file,
            directory,
        }: Base,
        owner: &Owner,
        wanted: &DescriptorUpdate,
    ) -> Result<(), Stop<Failure>> {
        let access = Access::Made(owner, &owner.who);
        let (operand, charged) = self.enter(session, file, access, MetadataWrite)?;
        let mut attr = operand.getattr(&mut self.c.cx)?;
        let known = self.s.domains().known();
        let (uid, gid) = (wanted.uid(&attr, &known)?, wanted.gid(&attr, &known)?);
        let set = SetAttr {
            uid: uid.filter(|uid| *uid != attr.uid),
            gid: gid.filter(|gid| *gid != attr.gid),
            ..SetAttr::default()
        };
        if set != SetAttr::default() {
            let done = match operand.setattr(&mut self.c.cx, charged, &set, None) {
                Err(Stop::Failed(Error::Perm)) => return Err(Status::INVALID_OWNER.into()),
                done => done?,
            };
            self.c.wait_for(done.lsn);
            attr = done.value.after;
        }
        // Its entries are for the owner that it has by now.
        if let Some(list) = wanted.list(&attr, directory, &known) {
            let (operand, charged) = self.enter(session, file, access, MetadataWrite)?;
            let done = operand.set_acl(&mut self.c.cx, charged, &list)?;
            self.c.wait_for(done.lsn);
        }
        Ok(())
    }

    fn set_size(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        size: u64,
    ) -> Result<(), Stop<Failure>> {
        may_resize(open, file, size)?;
        let entered = self.enter(session, file.id, Access::Open(open), MetadataWrite)?;
        self.resize(session, open, entered, size, None)
    }

    fn set_allocation(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        size: u64,
    ) -> Result<(), Stop<Failure>> {
        may_resize(open, file, size)?;
        let (operand, charged) = self.enter(session, file.id, Access::Open(open), MetadataWrite)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        if !is_regular(&attr) {
            return Ok(());
        }
        // Whole clusters are allocated, so that the last one is cut or kept as a whole.
        let size = size.next_multiple_of(BLOCK_SIZE as u64);
        if size >= attr.size {
            return Ok(has_room(&operand, &attr, size, attr.used)?);
        }
        self.resize(session, open, (operand, charged), size, Some(attr.ctime))
    }

    fn resize(
        &mut self,
        session: &Session,
        open: &Open,
        (operand, charged): (Operand<'_>, ChargeProof<MetadataWrite>),
        size: u64,
        guard: Option<Time>,
    ) -> Result<(), Stop<Failure>> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.set_attributes(&operand, charged, &set, guard)?;
        self.s.leases.changes(&open.hold);
        self.modified(session, open, filter::SIZE | filter::LAST_WRITE);
        Ok(())
    }

    /// Sets attributes of an admitted file. If `guard` is not its change time any more, the request
    /// is decided anew.
    pub(crate) fn set_attributes(
        &mut self,
        operand: &Operand<'_>,
        charged: ChargeProof<MetadataWrite>,
        set: &SetAttr,
        guard: Option<Time>,
    ) -> Result<(), Stop<Failure>> {
        match operand.setattr(&mut self.c.cx, charged, set, guard) {
            Err(Stop::Failed(Error::NotSync)) => Err(Suspend::Turn.into()),
            done => {
                self.c.wait_for(done?.lsn);
                Ok(())
            }
        }
    }

    /// FileDispositionInformation: it goes with the last close, or stays after all.
    fn set_disposition(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        file: &File,
        flags: u32,
    ) -> Result<(), Stop<Failure>> {
        if !open.may(mask::DELETE) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let claims = &self.s.vfs.claims;
        if flags & DISPOSITION_DELETE == 0 {
            claims.unmark(file.id, &open.owner);
            self.s.news.deletions.unmark(file.id);
            let lsn = self.s.leases.persistents.stays(file.id);
            self.c.wait_for(lsn);
            return Ok(());
        }
        let named = file.named.lock().clone();
        let Some(dir) = named.dir.filter(|_| file.claimed) else {
            return Err(Status::CANNOT_DELETE.into());
        };
        let main = file.main().id;
        let (operand, charged) = self.enter(session, main, Access::Open(open), MetadataRead)?;
        let cx = &mut self.c.cx;
        let attr = operand.getattr(cx)?;
        if u32::from(attr.dos) & attributes::READONLY != 0 && flags & IGNORE_READONLY == 0 {
            return Err(Status::CANNOT_DELETE.into());
        }
        drop((operand, charged));
        if file.directory() && !self.is_empty(session, file.id, &open.owner)? {
            return Err(Status::DIRECTORY_NOT_EMPTY.into());
        }
        if !file.directory() {
            crate::ops::delete::outlast_caches(&self.s.vfs, file.id, Access::Open(open))?;
        }
        let removal = Removal {
            dir,
            name: Arc::from(&*named.name),
            alone: file.posix || flags & POSIX_SEMANTICS != 0,
        };
        let by = (self.conn.peer, self.security());
        let what = RemovalKind::from_base(file.base.as_ref());
        let deletions = &self.s.news.deletions;
        deletions.mark(
            file.id,
            Marker::from_session(session, open.parent.clone(), by),
            what,
        );
        let mark = || claims.mark(file.id, &open.owner, DeleteMode::Now, &removal);
        let address = open.owner.client.address;
        match self.s.with_room(address, mark, |m| *m == MarkOutcome::Full) {
            MarkOutcome::Yes => {
                if file.directory() {
                    self.s.watches.goes(file.id);
                }
                let (when, alone) = (DeleteMode::Now, removal.alone);
                self.note_deletion(open, file, Deletes::Yes { when, alone });
                Ok(())
            }
            MarkOutcome::NotOpen | MarkOutcome::Full => {
                self.s.news.deletions.unmark(file.id);
                Err(Status::INSUFFICIENT_RESOURCES.into())
            }
        }
    }

    /// Returns true if a directory has no entries.
    pub(crate) fn is_empty(
        &mut self,
        session: &Session,
        dir: FileId,
        owner: &Owner,
    ) -> Result<bool, Stop<Failure>> {
        let limit = ReadDirLimit {
            entries: 3,
            bytes: 4096,
            attrs: false,
        };
        let mut empty = true;
        let (operand, charged) =
            self.enter(session, dir, Access::Made(owner, &owner.who), MetadataRead)?;
        operand.list_on(&mut self.c.cx, &charged, 0, limit, &mut |entry, _| {
            empty &= matches!(entry.name, b"." | b"..");
            true
        })?;
        Ok(empty)
    }

    /// Finds the location of a new name. `exact`: for a client with POSIX extensions.
    fn place(
        &mut self,
        session: &Session,
        to: &str,
        exact: bool,
    ) -> Result<NewName, Stop<Failure>> {
        let to: Cow<'_, str> = match exact {
            true => names::of_posix(to).into(),
            false => to.into(),
        };
        let tree = self.tree()?;
        let crate::open::session::Target::Volume(root) = tree.target else {
            return Err(Status::INVALID_PARAMETER.into());
        };
        let path = names::path(to.strip_prefix('\\').unwrap_or(&to))?;
        let (last, dirs) = path.split_last().ok_or(Status::OBJECT_NAME_INVALID)?;
        let access = Access::Permissions(&session.walker);
        let (operand, _) = self.enter(session, root, access, MetadataRead)?;
        let mut at = FileRef {
            ino: root.ino,
            namespace: root.namespace,
        };
        let mut shown = String::new();
        let cx = &mut self.c.cx;
        for name in dirs {
            let (found, next, stored) = match listed(&operand.with_file(at), cx, name, exact) {
                Err(Stop::Failed(Error::NotFound | Error::NotDir)) => {
                    return Err(Status::OBJECT_PATH_NOT_FOUND.into());
                }
                found => found?,
            };
            if found.attr.kind != FileKind::Directory {
                return Err(Status::OBJECT_PATH_NOT_FOUND.into());
            }
            shown.push_str(&names::to_client_name(&stored));
            shown.push('\\');
            at = next;
        }
        shown.push_str(&names::to_client_name(last));
        let existing = match listed(&operand.with_file(at), cx, last, exact) {
            Ok((_, _, stored)) => Some(stored),
            Err(Stop::Failed(Error::NotFound)) => None,
            Err(why) => return Err(why.into()),
        };
        let dir = FileId {
            volume: root.volume,
            ino: at.ino,
            namespace: at.namespace,
        };
        Ok(NewName {
            at,
            dir,
            name: last.clone(),
            existing,
            shown,
        })
    }

    /// Returns true if the file could be opened for deletion, with this denial, beside other opens.
    pub(crate) fn passes(
        &self,
        session: &Session,
        file: FileId,
        deny: Modes,
    ) -> Result<bool, Stop<Failure>> {
        let request = OpenRequest {
            owner: &session.walker,
            key: &session.walker.who,
            access: Modes::DELETE,
            deny,
            enforced: false,
            overwrite: false,
        };
        let claims = &self.s.vfs.claims;
        let address = session.walker.client.address;
        let ask = || claims.open(file, &request);
        match self.s.with_room(address, ask, |o| *o == OpenOutcome::Full) {
            OpenOutcome::Granted => {
                claims.close(file, &session.walker);
                Ok(true)
            }
            OpenOutcome::Breaking(ticket) => Err(Suspend::Recall(ticket).into()),
            OpenOutcome::Denied | OpenOutcome::DeletePending => Ok(false),
            OpenOutcome::Full => Err(Status::INSUFFICIENT_RESOURCES.into()),
        }
    }

    /// FileRenameInformation (MS-FSA §2.1.5.15.11), as rename(2) has it with POSIX semantics.
    fn rename(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        file: &File,
        to: &str,
        flags: u32,
    ) -> Result<(), Stop<Failure>> {
        let replace = flags & REPLACE != 0;
        let posix = file.posix || flags & POSIX_SEMANTICS != 0;
        if !open.may(mask::DELETE) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let named = file.named.lock().clone();
        let from = named.dir.ok_or(Status::ACCESS_DENIED)?;
        if file.id.namespace != Namespace::Live {
            return Err(Status::MEDIA_WRITE_PROTECTED.into());
        }
        if matches!(self.c.step, Step::Done) {
            return Ok(());
        }
        if let Some(base) = file.base {
            return self.rename_stream(session, open, (file, base), (to, replace));
        }
        let seen = self.s.moves.read().count();
        let NewName {
            at,
            dir,
            name,
            existing,
            shown,
        } = self.place(session, to, file.posix)?;
        // Another case of its own name is no other file.
        let itself = |old: &[u8]| at.ino == from && *old == *named.name;
        let other = existing.filter(|old| !itself(old));
        let access = Access::Open(open);
        if let Some(old) = &other {
            if !replace {
                return Err(Status::OBJECT_NAME_COLLISION.into());
            }
            let walk = Access::Permissions(&session.walker);
            let (operand, _) = self.enter(session, dir, walk, MetadataWrite)?;
            let (found, victim) = operand.listed(&mut self.c.cx, old)?;
            let victim = FileId {
                volume: dir.volume,
                ino: victim.ino,
                namespace: victim.namespace,
            };
            if !posix && (found.attr.kind == FileKind::Directory || file.directory()) {
                return Err(Status::ACCESS_DENIED.into());
            }
            // An open file is not replaced. With POSIX semantics it is, unless one of its opens
            // denies deletion.
            let deny = match posix {
                true => Modes::NONE,
                false => Modes::BOTH | Modes::DELETE,
            };
            if !self.passes(session, victim, deny)? {
                return Err(Status::ACCESS_DENIED.into());
            }
        }
        // As if the directory were opened to be changed (MS-FSA §2.1.5.15.11).
        if !self.passes(session, dir, Modes::DELETE)? {
            return Err(Status::SHARING_VIOLATION.into());
        }
        let volume = file.id.volume;
        let over_opens = posix || session.is_apple.load(Ordering::Relaxed);
        if file.directory() && !over_opens && self.s.has_open_below(volume, &named.path) {
            return Err(Status::ACCESS_DENIED.into());
        }
        if file.directory() && !self.s.may_move(volume, &named.path, &shown) {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        let source = FileId {
            volume: file.id.volume,
            ino: from,
            namespace: Namespace::Live,
        };
        let (operand, charged) = self.enter(session, source, access, MetadataWrite)?;
        let target = operand.with_file(at);
        let to_name = other.as_deref().unwrap_or(&name);
        if let Some(persistent) = open.persistent.get() {
            let named = OpenName {
                dir: Some(at.ino),
                name: to_name.into(),
                path: shown.clone(),
            };
            let locks = file.locks.lock().len();
            if !persistent.has_room(&named, locks) {
                return Err(Status::INSUFFICIENT_RESOURCES.into());
            }
        }
        let done = operand.rename(&mut self.c.cx, charged, &named.name, &target, to_name)?;
        self.c.wait_for(done.lsn);
        self.c.step = Step::Done;
        if !file.directory() {
            // Windows has it so: it sets the bit of what is to be archived.
            open.changed(filter::ATTRIBUTES | filter::CREATION);
        }
        let renamed = OpenName {
            dir: Some(at.ino),
            name: to_name.into(),
            path: shown,
        };
        self.remember(open, file, renamed, seen);
        Ok(())
    }

    /// Gives an open its new name, which was looked up after `seen` renames of directories; and if
    /// it is a directory, those below it their new paths.
    fn remember(&mut self, open: &Arc<Open>, file: &File, mut new: OpenName, seen: u64) {
        if file.directory() {
            for open in self.s.moved(file.id.volume, open, new, seen) {
                if let Some(file) = open.file() {
                    self.note(&open, file);
                }
            }
            return;
        }
        let moves = self.s.moves.read();
        moves.follow(seen, file.id.volume, &mut new.path);
        *file.named.lock() = new;
        drop(moves);
        self.note(open, file);
    }

    /// FileLinkInformation.
    fn link(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        file: &File,
        to: &str,
        replace: bool,
    ) -> Result<(), Stop<Failure>> {
        if file.directory() {
            return Err(Status::FILE_IS_A_DIRECTORY.into());
        }
        let NewName {
            at, name, existing, ..
        } = self.place(session, to, file.posix)?;
        match (existing, replace) {
            (None, _) => {}
            (Some(_), false) => return Err(Status::OBJECT_NAME_COLLISION.into()),
            (Some(_), true) => return Err(Status::ACCESS_DENIED.into()),
        }
        let (operand, charged) = self.enter(session, file.id, Access::Open(open), MetadataWrite)?;
        let dir = operand.with_file(at);
        let done = operand.link(&mut self.c.cx, charged, &dir, &name)?;
        self.c.wait_for(done.lsn);
        Ok(())
    }
}

/// Reads the RootDirectory and the name of a rename or a link. Over SMB there is no root but the
/// share's (MS-SMB2 §3.3.5.21.1).
fn new_name(r: &mut Reader<'_>) -> Result<String, Stop<Failure>> {
    let short = |_| Status::INFO_LENGTH_MISMATCH;
    let (root, len) = (r.u64().map_err(short)?, r.u32().map_err(short)?);
    if root != 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(from_utf16(r.bytes(len as usize).map_err(short)?)?)
}

/// Checks that an open may change its file's size or allocation to `size` bytes.
fn may_resize(open: &Open, file: &File, size: u64) -> Result<(), Stop<Failure>> {
    if file.directory() || size > i64::MAX as u64 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    match open.may(mask::WRITE_DATA) {
        true => Ok(()),
        false => Err(Status::ACCESS_DENIED.into()),
    }
}
