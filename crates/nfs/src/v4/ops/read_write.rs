//! Operations on one object: handles, attributes, ACCESS, READLINK, READ, WRITE, COMMIT, holes.

use crate::idmap::Names;
use crate::rpc::reply::Payload;
use crate::rpc::xdr::Put;
use crate::v4::args::{Attrs, Bytes, CloneArgs, Write};
use crate::v4::attrs::{self, Absent, New, Object};
use crate::v4::client::Client;
use crate::v4::cursor::{ACCESS, Access, Fh, GETATTR, Operand, OperationResult, Run};
use crate::v4::pseudo;
use crate::v4::referral::Referral;
use crate::v4::state::{Basis, READ, State, WRITE};
use crate::v4::status::Status;
use crate::v4::types::{Bitmap, StateId};
use std::sync::Arc;
use weir_base::Time;
use weir_base::limits::{MAX_FILE_SIZE, MAX_IO};
use weir_vfs::acl::Acl;
use weir_vfs::claims::{Actor, Owner};
use weir_vfs::volume::{AtEnd, Attr, FileKind, Seek, Sought, Stability, StatFs};
use weir_vfs::{
    AccessRights, BadHandle, DataRead, DataWrite, Error, Exempt, FileId, Flavour, HANDLE_BYTES,
    MetadataRead, MetadataWrite, Stop, Suspend,
};

/// ACCESS4 bits (§18.1, RFC 8276 §8.5).
mod bits {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
    pub const XAREAD: u32 = 0x40;
    pub const XAWRITE: u32 = 0x80;
    pub const XALIST: u32 = 0x100;
    pub const OF_1: u32 = 0x3f;
    pub const ALL: u32 = 0x1ff;
}

/// Number of bytes of the results of a READ or READ_PLUS besides data.
const READ_RESULT: usize = 64;

/// Times of the last access and the last modification.
type Times = (Option<Time>, Option<Time>);

/// The state under which a file is read or written.
pub(in crate::v4) enum Stated {
    /// A special stateid of the client.
    Special(Arc<Client>),
    /// An open, locks under an open, or a delegation.
    State(State),
    /// An open or a delegation that the connection is to remember.
    Basis(Arc<Basis>),
}

impl Stated {
    /// Returns the access check for changes of contents.
    pub(in crate::v4) fn access(&self) -> Access<'_> {
        match self.opened() {
            Err(client) => client.outside(),
            Ok((owner, access)) => opened_as(owner, access),
        }
    }

    /// Returns the access check for reads of contents.
    ///
    /// A client that writes part of a page reads the rest of it under an open for writing alone. It
    /// may read what the mode allows its caller (§18.22.3).
    pub(in crate::v4) fn reading(&self) -> Access<'_> {
        match self.opened() {
            Ok((owner, access)) if access & READ == 0 => Access::Mode(Some(owner)),
            _ => self.access(),
        }
    }

    /// Returns the owner and `share_access` of the open or delegation; the client for a special
    /// stateid.
    fn opened(&self) -> Result<(&Owner, u32), &Arc<Client>> {
        match self {
            Stated::Special(client) => Err(client),
            Stated::State(state) => Ok((state.owner(), state.access())),
            Stated::Basis(basis) => Ok((&basis.owner, basis.access())),
        }
    }

    /// Limits the times that a delegation's holder sends (RFC 9754 §5), see
    /// [`Delegation::vetted`](crate::v4::state::Delegation::vetted); BAD_STATEID under any other
    /// state.
    fn vetted(&self, sent: (Option<Time>, Option<Time>), now: Time) -> Result<Times, Status> {
        let vetted = match self {
            Stated::State(State::Delegation(delegation)) => delegation.vetted(sent, now),
            _ => None,
        };
        vetted.ok_or(Status::BadStateId)
    }

    /// Returns OPENMODE for a state that does not allow writing.
    pub(in crate::v4) fn may_write(&self) -> Result<(), Status> {
        match self {
            Stated::State(state) if state.access() & WRITE == 0 => Err(Status::OpenMode),
            _ => Ok(()),
        }
    }
}

fn opened_as(owner: &Owner, access: u32) -> Access<'_> {
    Access::Open {
        owner,
        read: access & READ != 0,
        write: access & WRITE != 0,
    }
}

/// Returns the ACCESS bits that apply to the object, and those that are granted.
fn granted(attr: &Attr, may: AccessRights, minor: u32) -> (u32, u32) {
    let bit = |on: bool, bits: u32| if on { bits } else { 0 };
    let xattrs = match minor {
        1 => (0, 0),
        _ => (
            bits::XAREAD | bits::XAWRITE | bits::XALIST,
            bit(may.read, bits::XAREAD | bits::XALIST) | bit(may.write, bits::XAWRITE),
        ),
    };
    let read = bit(may.read, bits::READ);
    let (meaning, granted) = match attr.kind {
        FileKind::Directory => (
            bits::READ | bits::LOOKUP | bits::MODIFY | bits::EXTEND | bits::DELETE,
            read | bit(may.write, bits::MODIFY | bits::EXTEND | bits::DELETE)
                | bit(may.execute, bits::LOOKUP),
        ),
        FileKind::Regular => (
            bits::READ | bits::MODIFY | bits::EXTEND | bits::EXECUTE,
            read | bit(may.write, bits::MODIFY | bits::EXTEND) | bit(may.execute, bits::EXECUTE),
        ),
        _ => (
            bits::READ | bits::MODIFY | bits::EXTEND,
            read | bit(may.write, bits::MODIFY | bits::EXTEND),
        ),
    };
    (meaning | xattrs.0, granted | xattrs.1)
}

/// Returns the reason for a failure to decode attributes: a name is being looked up, or else
/// `status`.
fn lacking(names: &Names<'_>, status: Status) -> Stop<Status> {
    match names.lacked() {
        Some(coming) => Suspend::Users(coming).into(),
        None => status.into(),
    }
}

/// Returns the status for reading or writing an object that is no regular file.
fn wrong_kind(kind: FileKind) -> Status {
    match kind {
        FileKind::Directory => Status::IsDir,
        FileKind::Symlink => Status::Symlink,
        _ => Status::WrongType,
    }
}

impl<'a> Run<'a> {
    /// PUTFH (§18.19): makes a handle the current one.
    pub(in crate::v4) fn putfh(&mut self, handle: &[u8]) -> OperationResult {
        let file = self.s.vfs.file_id(handle);
        let file = file.map_err(|BadHandle| Status::BadHandle)?;
        self.c.current = match file.volume {
            pseudo::VOLUME => {
                let pseudo = self.pseudo();
                if !self.sees(&pseudo, file.ino.0) {
                    return Err(Status::Stale.into());
                }
                Fh::Pseudo(file.ino.0)
            }
            _ => Fh::File(file),
        };
        self.c.state = StateId::ANONYMOUS;
        self.may_stand()
    }

    /// GETFH (§18.8): returns the current handle.
    pub(in crate::v4) fn getfh(&mut self) -> OperationResult {
        let handle = self.handle(self.here()?);
        self.c.out.put_opaque(&handle);
        Ok(Status::Ok)
    }

    /// Returns the attributes of the current object, and its operand unless it is in the pseudo
    /// file system.
    #[inline]
    fn attributes(&mut self) -> Result<(Attr, AttrOperand<'a>), Stop<Status>> {
        match self.here()? {
            Fh::Pseudo(number) => Ok((self.pseudo().attr(number), None)),
            Fh::File(file) => {
                let operand = self.look(file)?;
                let attr = self.attr_of(&operand)?;
                if matches!(self.c.next, Some(ACCESS | GETATTR)) {
                    self.note_seen(file, &attr);
                }
                Ok((attr, Some(operand)))
            }
            Fh::None => unreachable!("a handle that was tested"),
        }
    }

    /// Returns the attributes of a file that another client may have written under a delegation.
    /// That client is asked, and its changes are valid from now on (§10.4.3). If it keeps the
    /// file's times, its times are stored (RFC 9754 §5), so that no time that was seen goes back.
    #[cold]
    fn held(&mut self, operand: &Operand<'_, '_>, attr: Attr) -> Result<Attr, Stop<Status>> {
        let client = self.client();
        let actor = Actor::Client { owner: &client.own };
        let (_, Some(held)) = operand.getattr_held(&mut self.c.cx, actor)? else {
            return Ok(attr);
        };
        let mut attr = attr;
        let touched = held.modified.is_some_and(|t| t != attr.mtime);
        if held.change > 0 || touched {
            let (cx, accessed) = (&mut self.c.cx, held.accessed);
            let done = operand.note_held_change(cx, accessed, held.modified)?;
            self.c.depends_on(done.lsn);
            attr = Attr {
                size: held.size,
                ..done.value.after
            };
        }
        attr.atime = held.accessed.unwrap_or(attr.atime);
        attr.mtime = held.modified.unwrap_or(attr.mtime);
        Ok(attr)
    }

    /// Calls `each` with the current object's attributes.
    #[inline]
    fn with_object<T>(
        &mut self,
        mask: &Bitmap,
        each: impl FnOnce(&Object<'_>, &mut Vec<u8>) -> T,
    ) -> Result<T, Stop<Status>> {
        let (mut attr, operand) = self.attributes()?;
        if let Some(o) = &operand
            && attrs::of_content(mask)
            && o.may_be_held()
        {
            attr = self.held(o, attr)?;
        }
        // The handle needs a hash, and few clients ask for it.
        let handle = match mask.contains(attrs::FILEHANDLE) {
            true => self.handle(self.c.current),
            false => [0; HANDLE_BYTES],
        };
        let space = match &operand {
            Some(o) if attrs::wants_volume(mask) => {
                let available = o.available_to(&attr);
                Some(StatFs {
                    available,
                    ..o.statfs(&attr)
                })
            }
            _ => None,
        };
        let covers = match &operand {
            Some(o) if o.is_live_root() => self.covered(o.file_id().volume),
            _ => None,
        };
        let acl = match (&operand, attrs::wants_list(mask)) {
            (_, false) => None,
            (Some(o), true) => Some(o.acl(&mut self.c.cx)?),
            (None, true) => Some(Acl::from_mode(attr.mode, true)),
        };
        let names = self.names_sent();
        let object = Object {
            minor: self.c.minor,
            attr: &attr,
            handle: &handle,
            covers,
            space,
            acl,
            names: names.as_ref(),
        };
        let done = each(&object, &mut self.c.out);
        match names.as_ref().and_then(Names::lacked) {
            Some(coming) => Err(Suspend::Users(coming).into()),
            None => Ok(done),
        }
    }

    /// Returns the names of users and groups for replies to this caller; `None` to send numbers.
    pub(in crate::v4) fn names_sent(&self) -> Option<Names<'a>> {
        let map = self.s.idmap.get()?;
        let flavours = [Flavour::Krb5, Flavour::Krb5Integrity, Flavour::Krb5Privacy];
        let by_name = flavours.contains(&self.credential.flavour());
        by_name.then(|| Names::new(Some(map)))
    }

    /// Decodes attributes to set, of an existing file or of a new one (`made`).
    pub(in crate::v4) fn new_attrs(&self, a: &Attrs<'_>, made: bool) -> Result<New, Stop<Status>> {
        let names = Names::new(self.s.idmap.get());
        let new = match made {
            true => New::decode_for_creation(self.c.minor, a, &names),
            false => New::decode(self.c.minor, a, &names),
        };
        new.map_err(|status| lacking(&names, status))
    }

    /// Decodes the access control list among them.
    pub(in crate::v4) fn new_list(
        &self,
        new: &New,
        a: &Attrs<'_>,
    ) -> Result<Option<Acl>, Stop<Status>> {
        let names = Names::new(self.s.idmap.get());
        let list = new.list(a, &names);
        list.map_err(|status| lacking(&names, status))
    }

    /// GETATTR (§18.7): returns the attributes in `mask`.
    pub(in crate::v4) fn getattr(&mut self, mask: &Bitmap) -> OperationResult {
        if attrs::write_only(mask) {
            return Err(Status::Inval.into());
        }
        if let Some((number, referral)) = self.absent(mask)? {
            let error = Status::Ok;
            Absent {
                number,
                referral: &referral,
                error,
            }
            .put(mask, &mut self.c.out);
        } else if !self.put_seen(mask) {
            self.with_object(mask, |object, out| object.put(mask, out))?;
        }
        Ok(Status::Ok)
    }

    /// Returns the absent file system of the current handle, if it is in one; MOVED if the client
    /// does not ask for its locations.
    fn absent(&self, mask: &Bitmap) -> Result<Option<(u64, Arc<Referral>)>, Status> {
        let Fh::Pseudo(number) = self.c.current else {
            return Ok(None);
        };
        match self.referral(number) {
            Some(_) if !attrs::wants_locations(mask) => Err(Status::Moved),
            referral => Ok(referral.map(|referral| (number, referral))),
        }
    }

    /// Appends attributes of a file that an operation of this request has just read. The caller was
    /// admitted to the volume and charged then, so the attributes that clients usually ask for need
    /// nothing else. Returns false if there are none, or a holder of a delegation may know better.
    #[inline]
    fn put_seen(&mut self, mask: &Bitmap) -> bool {
        let Some((file, attr)) = &self.c.seen else {
            return false;
        };
        // A directory may cover another one, and names need a look-up.
        let plain = attr.kind != FileKind::Directory && self.s.idmap.get().is_none();
        let current = Fh::File(*file) == self.c.current;
        if !plain
            || !current
            || attrs::wants_more(mask)
            || !self.s.vfs.claims.version_of(*file).none()
        {
            return false;
        }
        let object = Object {
            minor: self.c.minor,
            attr,
            handle: &[],
            covers: None,
            space: None,
            acl: None,
            names: None,
        };
        object.put(mask, &mut self.c.out);
        true
    }

    /// VERIFY (`same`) and NVERIFY (§18.30, §18.15).
    pub(in crate::v4) fn verify(&mut self, a: &Attrs<'_>, same: bool) -> OperationResult {
        let mask = a.mask;
        if !mask.within(&attrs::supported(self.c.minor)) {
            self.here()?;
            return Err(Status::AttrNotSupp.into());
        }
        if attrs::write_only(&mask) || mask.contains(attrs::RDATTR_ERROR) {
            return Err(Status::Inval.into());
        }
        let mut values = Vec::with_capacity(a.values.len());
        match self.absent(&mask)? {
            Some(_) if !Absent::has_all(&mask) => return Err(Status::Moved.into()),
            Some((number, referral)) => {
                let error = Status::Ok;
                Absent {
                    number,
                    referral: &referral,
                    error,
                }
                .put_values(&mask, &mut values);
            }
            None => self.with_object(&mask, |object, _| object.put_values(&mask, &mut values))?,
        }
        let are = values == a.values;
        match (are, same) {
            (true, true) | (false, false) => Ok(Status::Ok),
            (false, true) => Err(Status::NotSame.into()),
            (true, false) => Err(Status::Same.into()),
        }
    }

    /// ACCESS (§18.1): returns the bits asked for that are supported, and those that are granted.
    pub(in crate::v4) fn access(&mut self, asked: u32) -> OperationResult {
        let known = match self.c.minor {
            1 => bits::OF_1,
            _ => bits::ALL,
        };
        if asked & !known != 0 {
            self.here()?;
            return Err(Status::Inval.into());
        }
        let (attr, operand) = self.attributes()?;
        let may = match &operand {
            Some(operand) => operand.permitted(&attr),
            None => AccessRights {
                read: true,
                write: false,
                execute: true,
            },
        };
        let (meaning, granted) = granted(&attr, may, self.c.minor);
        self.c.out.put_u32(asked & meaning);
        self.c.out.put_u32(asked & granted);
        Ok(Status::Ok)
    }

    /// READLINK (§18.24): returns the target of a symbolic link.
    pub(in crate::v4) fn readlink(&mut self) -> OperationResult {
        let file = self.file(Status::WrongType)?;
        let (link, charged) = self.enter(file, Access::Mode(None), MetadataRead)?;
        match link.readlink(&mut self.c.cx, charged) {
            Ok((target, _)) => {
                self.c.out.put_opaque(&target);
                Ok(Status::Ok)
            }
            Err(Stop::Failed(Error::Invalid)) => Err(Status::WrongType.into()),
            Err(why) => Err(why.into()),
        }
    }

    /// Returns the state that a stateid names, which must be of the current file (§8.2.3, §9.1.1).
    pub(in crate::v4) fn stated(&self, id: &StateId, file: FileId) -> Result<Stated, Status> {
        let id = self.resolved(id)?;
        if matches!(id, StateId::ANONYMOUS | StateId::BYPASS) {
            return Ok(Stated::Special(self.client()));
        }
        let state = self.client_ref().states.read().find(&id)?;
        match state.file() == file {
            true => Ok(Stated::State(state)),
            false => Err(Status::BadStateId),
        }
    }

    /// Returns the state for READ and WRITE, which the connection may remember: see
    /// [`Run::remember`].
    fn stated_for_data(&self, id: &StateId, file: FileId) -> Result<Stated, Status> {
        let id = self.resolved(id)?;
        if matches!(id, StateId::ANONYMOUS | StateId::BYPASS) {
            return Ok(Stated::Special(self.client()));
        }
        let client = self.client_ref();
        // The stateid contains the client's id.
        let own = id.other.starts_with(&client.id.to_be_bytes());
        let known = self.conn.state.states.take(&id).filter(|_| own);
        let found = match known {
            Some(basis) => Ok(basis),
            None => client.states.read().find_basis(&id)?,
        };
        let stated = match found {
            Ok(basis) => (basis.file, Stated::Basis(basis)),
            Err(state) => (state.file(), Stated::State(state)),
        };
        match stated {
            (of, stated) if of == file => Ok(stated),
            _ => Err(Status::BadStateId),
        }
    }

    /// Lets the connection remember the state under which its request has read or written.
    fn remember(&self, id: &StateId, stated: Stated) {
        if let (Stated::Basis(basis), Ok(id)) = (stated, self.resolved(id)) {
            self.conn.state.states.put(&id, basis);
        }
    }

    /// Replaces the special stateid for the current one.
    pub(in crate::v4) fn resolved(&self, id: &StateId) -> Result<StateId, Status> {
        match *id {
            StateId::CURRENT if self.c.state == StateId::ANONYMOUS => Err(Status::BadStateId),
            StateId::CURRENT => Ok(self.c.state),
            StateId::INVALID => Err(Status::BadStateId),
            id => Ok(id),
        }
    }

    /// Translates a failure of reading or writing to this protocol's status.
    pub(in crate::v4) fn io_failed(
        &mut self,
        why: Stop,
        operand: &Operand<'_, '_>,
        stated: Option<&Stated>,
    ) -> Stop<Status> {
        match why {
            Stop::Failed(Error::Invalid | Error::IsDir) => {
                let attr = operand.attr_at_hand(&mut self.c.cx);
                let kind = attr.map_or(FileKind::Regular, |a| a.kind);
                match kind {
                    FileKind::Regular => Status::Inval.into(),
                    kind => wrong_kind(kind).into(),
                }
            }
            Stop::Failed(Error::Access)
                if matches!(stated, Some(Stated::State(_) | Stated::Basis(_))) =>
            {
                Status::OpenMode.into()
            }
            why => why.into(),
        }
    }

    /// READ (§18.22). At or beyond the end it returns no bytes, and eof.
    pub(in crate::v4) fn read(&mut self, a: &Bytes) -> OperationResult {
        let out = self.read_data(a)?;
        self.c.out.put_bool(out.eof);
        self.c.out.put_u32(out.len as u32);
        self.c.payload = Some(Box::new(Payload::new(out)));
        Ok(Status::Ok)
    }

    /// READ_PLUS (RFC 7862 §15.10): returns one segment of data, or of a hole if nothing else is in
    /// the range. Data may include holes, since clients are better off with few long segments.
    pub(in crate::v4) fn read_plus(&mut self, a: &Bytes) -> OperationResult {
        const DATA: u32 = 0;
        const HOLE: u32 = 1;
        let read = self.read_data(a)?;
        let out = &mut self.c.out;
        out.put_bool(read.eof);
        if read.len == 0 {
            out.put_u32(0);
            return Ok(Status::Ok);
        }
        out.put_u32(1);
        out.put_u32(if read.is_hole() { HOLE } else { DATA });
        out.put_u64(a.offset);
        match read.is_hole() {
            true => out.put_u64(read.len as u64),
            false => {
                out.put_u32(read.len as u32);
                self.c.payload = Some(Box::new(Payload::new(read)));
            }
        }
        Ok(Status::Ok)
    }

    /// SEEK (RFC 7862 §15.11): returns the start of the next data or hole.
    pub(in crate::v4) fn seek(&mut self, id: &StateId, offset: u64, what: u32) -> OperationResult {
        let what = match what {
            0 => Seek::Data,
            1 => Seek::Hole,
            _ => return Err(Status::UnionNotSupp.into()),
        };
        let file = self.file(Status::WrongType)?;
        let stated = self.stated(id, file)?;
        let (operand, charged) = self.enter(file, stated.reading(), MetadataRead)?;
        let sought = match operand.seek(&mut self.c.cx, charged, offset, what) {
            Ok(sought) => sought,
            Err(why) => return Err(self.io_failed(why, &operand, Some(&stated))),
        };
        let (at, eof) = match sought {
            Sought::At(at) | Sought::NotBefore(at) => (at, false),
            Sought::End(size) if offset >= size => return Err(Status::NxIo.into()),
            Sought::End(size) => (size, true),
        };
        self.c.out.put_bool(eof);
        self.c.out.put_u64(at);
        Ok(Status::Ok)
    }

    fn read_data(&mut self, a: &Bytes) -> Result<weir_vfs::volume::ReadOut, Stop<Status>> {
        let file = self.file(Status::IsDir)?;
        let stated = self.stated_for_data(&a.state, file)?;
        let room = self.c.room().saturating_sub(READ_RESULT);
        let len = usize::try_from(a.count).unwrap_or(MAX_IO);
        let len = len.min(MAX_IO).min(room).min(self.c.now.reads);
        if len == 0 && a.count > 0 {
            return Err(self.too_big().into());
        }
        let (operand, charged) = self.enter(file, stated.reading(), DataRead(len))?;
        let out = match operand.read(&mut self.c.cx, charged, a.offset) {
            Ok(out) => out,
            Err(why) => return Err(self.io_failed(why, &operand, Some(&stated))),
        };
        drop(operand);
        self.remember(&a.state, stated);
        Ok(out)
    }

    /// WRITE (§18.32). Data beyond the maximum size is not written: the client sends the rest.
    pub(in crate::v4) fn write(&mut self, a: &Write<'_>) -> OperationResult {
        let file = self.file(Status::IsDir)?;
        let stated = self.stated_for_data(&a.state, file)?;
        let data = a.data.get(..MAX_IO).unwrap_or(a.data);
        let (operand, charged) = self.enter(file, stated.access(), DataWrite(data.len()))?;
        match operand.write(&mut self.c.cx, charged, a.offset, data, a.stable) {
            Ok(done) => {
                self.c.wait_for(done.lsn);
                let written = done.value;
                self.note_seen(file, &written.change.after);
                self.c.out.put_u32(written.len as u32);
                self.c.out.put_u32(match written.granted {
                    Stability::Unstable => 0,
                    Stability::DataSync => 1,
                    Stability::FileSync => 2,
                });
                self.c.out.put_fixed(&operand.write_verifier());
                drop(operand);
                self.remember(&a.state, stated);
                Ok(Status::Ok)
            }
            Err(why) => Err(self.io_failed(why, &operand, Some(&stated))),
        }
    }

    /// COMMIT (§18.3). Count 0 means to the end of the file.
    pub(in crate::v4) fn commit(&mut self, offset: u64, count: u32) -> OperationResult {
        let file = self.file(Status::IsDir)?;
        let (operand, charged) = self.enter(file, Access::Mode(None), Exempt)?;
        let len = match count {
            0 => u64::MAX - offset,
            n => u64::from(n).min(u64::MAX - offset),
        };
        match operand.commit(&mut self.c.cx, charged, offset, len) {
            Ok(done) => {
                self.c.wait_for(done.lsn);
                self.c.out.put_fixed(&operand.write_verifier());
                Ok(Status::Ok)
            }
            Err(why) => Err(self.io_failed(why, &operand, None)),
        }
    }

    /// SETATTR (§18.30). Setting the size needs a stateid.
    pub(in crate::v4) fn setattr(&mut self, id: &StateId, a: &Attrs<'_>) -> OperationResult {
        let here = self.here()?;
        let new = self.new_attrs(a, false)?;
        let Fh::File(file) = here else {
            return Err(Status::RoFs.into());
        };
        // A stateid matters only for the size (§18.30.3) and for the times of a delegation.
        let stated = match new.set.size.is_some() || new.is_of_holder() {
            true => self.stated(id, file)?,
            false => Stated::Special(self.client()),
        };
        if new.set.size.is_some() || new.held.1.is_some() {
            stated.may_write()?;
        }
        let times = match new.is_of_holder() {
            true => Some(stated.vetted(new.held, self.c.time())?),
            false => None,
        };
        if let Some(acl) = self.new_list(&new, a)? {
            if new.sets_more() || times.is_some() {
                // The key is attached to the last of several changes, which completes the
                // operation.
                self.c.cx.set_call(None);
            }
            let (operand, charged) = self.enter(file, stated.access(), MetadataWrite)?;
            let done = operand.set_acl(&mut self.c.cx, charged, &acl)?;
            self.c.wait_for(done.lsn);
            if !new.sets_more() && times.is_none() {
                new.mask.put(&mut self.c.out);
                return Ok(Status::Ok);
            }
            self.renew_context();
            self.leave_key();
        }
        if let Some((accessed, modified)) = times {
            if new.sets_more() {
                self.c.cx.set_call(None);
                self.set_more(file, &new, &stated)?;
                self.renew_context();
                self.leave_key();
            }
            // Set after the changes that set the times to now.
            let (operand, charged) = self.enter(file, stated.access(), MetadataWrite)?;
            let cx = &mut self.c.cx;
            let lsn = operand.set_held_times(cx, charged, accessed, modified)?;
            self.c.wait_for(lsn);
        } else {
            self.set_more(file, &new, &stated)?;
        }
        new.mask.put(&mut self.c.out);
        Ok(Status::Ok)
    }

    /// Sets everything but a list and the times of a delegation.
    fn set_more(&mut self, file: FileId, new: &New, stated: &Stated) -> Result<(), Stop<Status>> {
        let (operand, charged) = self.enter(file, stated.access(), MetadataWrite)?;
        let old = match new.needs_old() {
            true => {
                let attr = operand.getattr(&mut self.c.cx)?;
                (attr.mode, attr.dos)
            }
            false => (0, 0),
        };
        let mut set = new.combine_with(old);
        set.mode = set.mode.map(|mode| mode & !set.umask);
        match operand.setattr(&mut self.c.cx, charged, &set, None) {
            Ok(done) => {
                self.c.wait_for(done.lsn);
                Ok(())
            }
            Err(why) if set.size.is_some() => Err(self.io_failed(why, &operand, None)),
            Err(why) => Err(why.into()),
        }
    }

    /// Returns the current file, in which `bytes` are to be changed under an open for writing.
    fn writable(&mut self, a: &Bytes) -> Result<(FileId, Stated), Stop<Status>> {
        let file = self.file(Status::WrongType)?;
        let stated = self.stated(&a.state, file)?;
        stated.may_write()?;
        let end = a.offset.checked_add(a.count);
        match end {
            None => Err(Status::Inval.into()),
            Some(end) if end > MAX_FILE_SIZE => Err(Status::FBig.into()),
            Some(_) if a.count == 0 => Err(Status::Inval.into()),
            Some(_) => Ok((file, stated)),
        }
    }

    /// DEALLOCATE (RFC 7862 §15.4).
    pub(in crate::v4) fn deallocate(&mut self, a: &Bytes) -> OperationResult {
        let (file, stated) = self.writable(a)?;
        let (operand, charged) = self.enter(file, stated.access(), MetadataWrite)?;
        let hole = (a.offset, a.count);
        match operand.punch(&mut self.c.cx, charged, hole, AtEnd::Keep) {
            Ok(done) => {
                self.c.wait_for(done.lsn);
                Ok(Status::Ok)
            }
            Err(why) => Err(self.io_failed(why, &operand, Some(&stated))),
        }
    }

    /// ALLOCATE (RFC 7862 §15.1): extends the file to the range's end, if the volume has the space
    /// now. No blocks are reserved, since a later write takes new ones in any case.
    pub(in crate::v4) fn allocate(&mut self, a: &Bytes) -> OperationResult {
        let (file, stated) = self.writable(a)?;
        let (operand, charged) = self.enter(file, stated.access(), MetadataWrite)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        if attr.kind != FileKind::Regular {
            return Err(wrong_kind(attr.kind).into());
        }
        operand.may_open(&mut self.c.cx, false, true)?;
        if operand.statfs(&attr).available < a.count {
            return Err(Status::NoSpc.into());
        }
        if operand.available_to(&attr) < a.count && !operand.is_root() {
            return Err(Status::DQuot.into());
        }
        let end = a.offset + a.count;
        if end <= attr.size {
            return Ok(Status::Ok);
        }
        // Another client may have written beyond the range meanwhile, so the file is never
        // truncated.
        match operand.punch(&mut self.c.cx, charged, (end, 0), AtEnd::Grow) {
            Ok(done) => {
                self.c.wait_for(done.lsn);
                Ok(Status::Ok)
            }
            Err(why) => Err(self.io_failed(why, &operand, Some(&stated))),
        }
    }

    /// CLONE (RFC 7862 §15.13): makes the destination share the source's blocks.
    pub(in crate::v4) fn clone_range(&mut self, a: &CloneArgs) -> OperationResult {
        let to = self.file(Status::WrongType)?;
        let from = match self.c.saved {
            Fh::File(file) => file,
            Fh::Pseudo(_) => return Err(Status::WrongType.into()),
            Fh::None => return Err(Status::NoFileHandle.into()),
        };
        let (reads, writes) = (self.stated(&a.from, from)?, self.stated(&a.to, to)?);
        writes.may_write()?;
        let source = self.admit(from, reads.reading())?;
        let (operand, charged) = self.enter(to, writes.access(), MetadataWrite)?;
        let source = operand.beside(&mut self.c.cx, source)?;
        let source = (&source, a.from_offset);
        let cloned = operand.clone_range(&mut self.c.cx, charged, a.to_offset, source, a.count);
        self.c.wait_for(cloned?.lsn);
        Ok(Status::Ok)
    }

    /// IO_ADVISE (RFC 7862 §15.5): ignores all hints.
    pub(in crate::v4) fn io_advise(&mut self, a: &Bytes, _: &Bitmap) -> OperationResult {
        let file = self.file(Status::WrongType)?;
        self.stated(&a.state, file)?;
        Bitmap::default().put(&mut self.c.out);
        Ok(Status::Ok)
    }

    pub(in crate::v4) fn client_ref(&self) -> &crate::v4::client::Client {
        match (&self.c.hold, &self.c.on_behalf) {
            (Some(hold), _) => &hold.session.client,
            (None, Some(client)) => client,
            (None, None) => unreachable!("an operation of a session has a client"),
        }
    }
}

/// The operand of an object whose attributes are read; `None` in the pseudo file system.
type AttrOperand<'a> = Option<Operand<'a, 'static>>;
