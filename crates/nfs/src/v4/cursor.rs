//! The cursor through a COMPOUND, and the context that its operations run in. They know this module
//! and none above it; the runner is [`super::compound`].

use super::args::{self, Args, Head};
use super::client::Client;
use super::copying::Copying;
use super::persistent::{Repeated, Request};
use super::pseudo::{self, Pseudo};
use super::referral::Referral;
use super::remembered::ConnInfo;
use super::server::Nfs4;
use super::session::Session;
use super::slot::Results;
use super::state::DELEGATIONS;
use super::status::Status;
use super::types::{Bitmap, COMPOUND, StateId};
use crate::rpc;
use crate::rpc::failure::Cut;
use crate::rpc::message::Credential;
use crate::rpc::operation;
use crate::rpc::reply::{Payload, ReplyBuf};
use crate::rpc::xdr::{Put, Reader};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_base::{Lsn, Time, VolumeId};
use weir_conn::Arrival;
use weir_vfs::access::{R, W, X, permits};
use weir_vfs::claims::{Actor, Owner};
use weir_vfs::stats::Done;
use weir_vfs::volume::{Attr, CallKey, Guard};
use weir_vfs::{
    AccessModel, Admitted, Charged, Cost, Error, Exempt, ExportTable, FileId, Flavours,
    HANDLE_BYTES, Identity, Looks, Namespace, OpContext, Protocol, Stop,
};

/// How contents are checked, and for which owner (see [`AccessModel`]).
#[derive(Clone, Copy)]
pub(super) enum Access<'o> {
    /// By the mode: OPEN, on behalf of an open owner, and what no claim is concerned by. A caller that may execute a file may
    /// read it, since that is how it is executed.
    Mode(Option<&'o Owner>),
    /// By the mode as well: changes of names and attributes, special stateids. By the client, whose delegation
    /// they do not break.
    Client {
        owner: &'o Owner,
        /// The client claims nothing again any more.
        settled: bool,
    },
    /// By what an open was granted.
    Open {
        owner: &'o Owner,
        read: bool,
        write: bool,
    },
    /// By the mode, or as the file's owner: what was open before a restart. The mode may have been narrower than the
    /// open from the start, since the maker of a file has it open whatever its mode says.
    Reclaim(&'o Owner),
}

impl Client {
    /// Returns the access of its operations outside of an open.
    pub(super) fn outside(&self) -> Access<'_> {
        Access::Client {
            owner: &self.own,
            settled: self.reclaimed.load(Ordering::Acquire),
        }
    }
}

impl AccessModel for Access<'_> {
    fn may_read(&self, attr: &Attr, who: &Identity) -> Result<(), Error> {
        let may = match self {
            Access::Mode(_) | Access::Client { .. } => {
                permits(attr, &who.unix, R) || permits(attr, &who.unix, X)
            }
            Access::Open { read, .. } => *read,
            Access::Reclaim(_) => attr.uid == who.unix.uid || permits(attr, &who.unix, R),
        };
        may.then_some(()).ok_or(Error::Access)
    }

    fn may_write(&self, attr: &Attr, who: &Identity) -> Result<(), Error> {
        let may = match self {
            Access::Mode(_) | Access::Client { .. } => permits(attr, &who.unix, W),
            Access::Open { write, .. } => *write,
            Access::Reclaim(_) => attr.uid == who.unix.uid || permits(attr, &who.unix, W),
        };
        may.then_some(()).ok_or(Error::Access)
    }

    fn actor(&self) -> Actor<'_> {
        match self {
            Access::Mode(None) => Actor::Stateless,
            Access::Client { owner, .. } => Actor::Client { owner },
            Access::Mode(Some(owner)) | Access::Open { owner, .. } | Access::Reclaim(owner) => {
                Actor::Advisory {
                    owner,
                    key: &DELEGATIONS,
                }
            }
        }
    }

    fn awaits_reclaims(&self) -> bool {
        match self {
            Access::Mode(None) => true,
            // Before that it would wait for itself.
            Access::Client { settled, .. } => *settled,
            _ => false,
        }
    }
}

pub(super) type Operand<'a, 'o> = weir_vfs::Operand<'a, Access<'o>>;

/// A current or saved file handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fh {
    #[default]
    None,
    /// A directory of the pseudo file system.
    Pseudo(u64),
    /// A file of a volume.
    File(FileId),
}

impl weir_vfs::Failure for Status {}

impl From<Status> for Stop<Status> {
    fn from(status: Status) -> Stop<Status> {
        Stop::Failed(status)
    }
}

/// What becomes of an operation. A status that is not OK has its results behind it already.
pub(super) type OperationResult = Result<Status, Stop<Status>>;

/// A request's slot, which is busy until this ends.
pub(super) struct Hold {
    pub(super) session: Arc<Session>,
    pub(super) slot: u32,
    /// The request as the log knows it.
    pub(super) request: Request,
    pub(super) cache: bool,
    /// Bytes of the results at most, from the status on.
    pub(super) most: usize,
}

/// What an OPEN has found or made, as far as it has come.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) file: FileId,
    /// The directory's change, if OPEN went by a name.
    pub(super) dir: Option<(u64, u64)>,
    /// It was made by this OPEN.
    pub(super) made: bool,
    /// It is to be cut.
    pub(super) cut: bool,
    /// Which attributes are set.
    pub(super) set: Bitmap,
    /// Stateid of the open, once the file is open.
    pub(super) opened: Option<StateId>,
}

impl Made {
    /// A file that was there.
    pub(super) fn found(file: FileId) -> Made {
        Made {
            file,
            dir: None,
            made: false,
            cut: false,
            set: Bitmap::default(),
            opened: None,
        }
    }
}

/// See the module's head.
pub(super) struct Cursor {
    pub(super) minor: u32,
    pub(super) count: u32,
    /// The operation that is being carried out.
    pub(super) index: u32,
    /// Where it begins in the call's arguments.
    pub(super) at: usize,
    /// The operation behind it.
    pub(super) next: Option<u32>,
    pub(super) current: Fh,
    pub(super) saved: Fh,
    pub(super) state: StateId,
    pub(super) saved_state: StateId,
    /// The reply so far.
    pub(super) out: Vec<u8>,
    /// Data that follows `out` by reference.
    pub(super) payload: Option<Box<Payload>>,
    /// Where the results begin, with the status, and where their number is.
    pub(super) results: usize,
    pub(super) number: usize,
    pub(super) hold: Option<Hold>,
    /// The client for which something is done that is no request.
    pub(super) on_behalf: Option<Arc<Client>>,
    pub(super) made: Option<Made>,
    pub(super) copying: Option<Box<Copying>>,
    /// What was carried out before the restart, if the request is a retransmission of one of then.
    pub(super) repeated: Option<Box<Repeated>>,
    pub(super) cx: OpContext,
    /// The operation has used its context.
    pub(super) used: bool,
    pub(super) now: Arrival,
    /// Attributes that an operation had of a file that is the current one now, for those that follow it at once.
    pub(super) seen: Option<(FileId, Attr)>,
    pub(super) lsn: Option<Lsn>,
    pub(super) cut: Option<Cut>,
    /// Number of the operation that is being run.
    pub(super) operation_at_hand: u32,
    /// Some operation has changed something.
    pub(super) changed: bool,
    /// A metadata operation has been charged.
    pub(super) charged: bool,
    pub(super) counted: Option<Done>,
    pub(super) more: Vec<Done>,
}

impl Cursor {
    pub(super) fn new(xid: u32, head: &Head<'_>, at: usize, now: Arrival, flow: u64) -> Cursor {
        let mut out = ReplyBuf::start(512);
        rpc::put_accepted(&mut out, xid);
        let results = out.len();
        out.put_u32(0);
        out.put_opaque(head.tag);
        let number = out.len();
        out.put_u32(0);
        Cursor {
            minor: head.minor,
            count: head.count,
            index: 0,
            at,
            next: None,
            current: Fh::None,
            saved: Fh::None,
            state: StateId::ANONYMOUS,
            saved_state: StateId::ANONYMOUS,
            out,
            payload: None,
            results,
            number,
            hold: None,
            on_behalf: None,
            made: None,
            copying: None,
            repeated: None,
            cx: OpContext::new(now.time, flow, now.monotonic),
            used: false,
            now,
            seen: None,
            lsn: None,
            cut: None,
            operation_at_hand: 0,
            changed: false,
            charged: false,
            counted: None,
            more: Vec::new(),
        }
    }

    /// The time of day at which the request arrived.
    pub(super) fn time(&self) -> Time {
        self.now.time
    }

    /// When the request arrived, on the monotonic clock, if the caller knows.
    pub(super) fn arrived(&self) -> Option<Duration> {
        self.now.monotonic.map(Duration::from_nanos)
    }

    pub(super) fn put_at(&mut self, at: usize, value: u32) {
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// The COMPOUND's status, and how many results there are.
    pub(super) fn close(&mut self, status: Status, results: u32) {
        self.put_at(self.results, status as u32);
        self.put_at(self.number, results);
    }

    /// The COMPOUND's status as it was closed, unless that is OK.
    fn failed_with(&self) -> Option<u32> {
        let status = self.out.get(self.results..)?.first_chunk()?;
        Some(u32::from_be_bytes(*status)).filter(|status| *status != Status::Ok as u32)
    }

    /// The reply, and the log record that it waits for. What is to be kept of it is. The connection remembers the session.
    pub(super) fn take_reply(&mut self, s: &Nfs4, conn: &ConnInfo) -> (ReplyBuf, Option<Lsn>) {
        self.cx.settle(&s.vfs.throttle);
        if let Some(status) = self.failed_with() {
            // An operation that does not exist, or none at all, counts as the COMPOUND.
            let operation = operation::nfs4(self.operation_at_hand.max(COMPOUND));
            let operation = operation.or_else(|| operation::nfs4(COMPOUND));
            s.vfs.count_failure(conn.id, operation, status);
        }
        if let Some(hold) = self.hold.take() {
            let kept = hold.cache.then(|| {
                let mut results = self.out.get(self.results..).unwrap_or_default().to_vec();
                if let Some(payload) = &self.payload {
                    payload.flatten(&mut results);
                }
                Results {
                    bytes: results.into(),
                    lsn: self.lsn,
                    cut: self.cut,
                }
            });
            hold.session.slots.end(hold.slot, kept);
            if self.repeated.is_none() {
                conn.state.session.replace(Some(hold.session));
            }
        }
        let out = std::mem::take(&mut self.out);
        let mut reply = ReplyBuf::compound(out, self.payload.take(), self.cut);
        if let Some(done) = self.counted {
            reply.count_as(done);
        }
        if !self.more.is_empty() {
            reply.count_also(std::mem::take(&mut self.more));
        }
        (reply, self.lsn)
    }

    /// The request is dropped while it waits: see `slot`.
    pub(super) fn abandon(&mut self, s: &Nfs4) {
        self.cx.settle(&s.vfs.throttle);
        let Some(hold) = self.hold.take() else {
            return;
        };
        if !self.changed {
            return hold.session.slots.undo(hold.slot);
        }
        self.fail(Status::Delay);
        let results = self.out.get(self.results..).unwrap_or_default();
        let kept = Results {
            bytes: results.into(),
            lsn: self.lsn,
            cut: self.cut,
        };
        hold.session.slots.end(hold.slot, Some(kept));
    }

    /// The operation that waited has failed.
    pub(super) fn fail(&mut self, status: Status) {
        self.out.put_u32(self.operation_at_hand);
        self.out.put_u32(status as u32);
        if self.operation_at_hand == SETATTR {
            self.out.put_u32(0);
        }
        self.close(status, self.index + 1);
    }

    /// An operation that has changed something is durable with this record.
    pub(super) fn wait_for(&mut self, lsn: Option<Lsn>) {
        self.changed = true;
        self.depends_on(lsn);
    }

    /// The reply waits for this record.
    pub(super) fn depends_on(&mut self, lsn: Option<Lsn>) {
        if let Some(lsn) = lsn
            && self.lsn.is_none_or(|highest| lsn > highest)
        {
            self.lsn = Some(lsn);
        }
    }

    /// Bytes of results so far, from the status on.
    pub(super) fn len(&self) -> usize {
        let payload = self.payload.as_ref().map_or(0, |p| p.encoded_len());
        self.out.len() - self.results + payload
    }

    /// Bytes of results that there is room for.
    pub(super) fn room(&self) -> usize {
        let most = self.hold.as_ref().map_or(usize::MAX / 2, |h| h.most);
        most.saturating_sub(self.len())
    }

    pub(super) fn count(&mut self, done: Done) {
        match self.counted {
            None => self.counted = Some(done),
            Some(_) => self.more.push(done),
        }
    }
}

/// The part of a long request that is not read.
#[derive(Clone, Copy)]
pub(super) struct Unread {
    /// Bytes of the arguments that are missing.
    pub(super) bytes: usize,
    /// What the operation fails with that has the data.
    pub(super) status: Status,
}

/// A run of a cursor: what it needs besides.
pub(super) struct Run<'a> {
    pub(super) s: &'a Nfs4,
    pub(super) conn: &'a ConnInfo,
    pub(super) credential: &'a Credential,
    pub(super) table: &'a ExportTable,
    /// Bytes of the whole request.
    pub(super) bytes: usize,
    /// The call's arguments, of which `c` has the position.
    pub(super) args: &'a [u8],
    /// Set if the data of a long request are not there and will not be read.
    pub(super) unread: Option<Unread>,
    pub(super) c: &'a mut Cursor,
}

pub(super) const ACCESS: u32 = 3;
pub(super) const GETATTR: u32 = 9;
pub(super) const GETFH: u32 = 10;
pub(super) const PUTFH: u32 = 22;
pub(super) const RESTOREFH: u32 = 31;
pub(super) const SETATTR: u32 = 34;

impl<'a> Run<'a> {
    /// Where else clients are to go for a directory of the pseudo file system.
    pub(super) fn referral(&self, number: u64) -> Option<Arc<Referral>> {
        self.s.referrals.get()?;
        self.pseudo().referral(number).map(Arc::clone)
    }

    /// What the operation has been charged so far is settled; what it goes on to do is charged anew.
    pub(super) fn renew_context(&mut self) {
        self.c.cx.settle(&self.s.vfs.throttle);
        self.c.cx.renew();
    }

    pub(super) fn too_big(&self) -> Status {
        let cached = self
            .c
            .hold
            .as_ref()
            .is_some_and(|h| h.cache && h.most < h.session.fore.max_response as usize);
        match cached {
            true => Status::RepTooBigToCache,
            false => Status::RepTooBig,
        }
    }

    /// What the operation's context changes from now on has the operation's key, if that is to outlive the server.
    pub(super) fn leave_key(&mut self) {
        let hold = self.c.hold.as_ref();
        let key = hold.and_then(|hold| self.s.key_of(hold, self.c.index));
        self.c.cx.set_call(key);
    }

    /// The current file handle; NOFILEHANDLE if there is none, MOVED in an absent file system.
    pub(super) fn here(&self) -> Result<Fh, Status> {
        match self.c.current {
            Fh::None => Err(Status::NoFileHandle),
            Fh::Pseudo(number) if self.referral(number).is_some() => Err(Status::Moved),
            fh => Ok(fh),
        }
    }

    /// The current handle as a file of a volume; `error` for a directory of the pseudo file system.
    pub(super) fn file(&self, error: Status) -> Result<FileId, Status> {
        match self.here()? {
            Fh::File(file) => Ok(file),
            _ => Err(error),
        }
    }

    /// The client of the session.
    pub(super) fn client(&self) -> Arc<Client> {
        match (&self.c.hold, &self.c.on_behalf) {
            (Some(hold), _) => Arc::clone(&hold.session.client),
            (None, Some(client)) => Arc::clone(client),
            (None, None) => unreachable!("an operation of a session has a client"),
        }
    }

    /// Attributes that an operation had of `file`, which the next one may want: as they were at a moment of this request, which
    /// is all that it promises. Those of a file with an access control list depend on the caller, and are read anew.
    pub(super) fn note_seen(&mut self, file: FileId, attr: &Attr) {
        let plain = attr.guard == Guard::Mode && file.namespace == Namespace::Live;
        self.c.seen = plain.then_some((file, *attr));
    }

    /// The attributes of the current file.
    #[inline]
    pub(super) fn attr_of(&mut self, operand: &Operand<'_, '_>) -> Result<Attr, Stop> {
        match &self.c.seen {
            Some((file, attr)) if Fh::File(*file) == self.c.current => Ok(*attr),
            _ => operand.getattr(&mut self.c.cx),
        }
    }

    #[inline]
    pub(super) fn caller<'o>(&self, access: Access<'o>) -> weir_vfs::Session<'a, Access<'o>> {
        let origin = self.conn.peer.ip().to_canonical();
        let client = match &self.c.hold {
            Some(hold) => Some(&hold.session.client),
            None => self.c.on_behalf.as_ref(),
        };
        weir_vfs::Session {
            origin,
            protocol: Protocol::Nfsv4,
            flavour: self.credential.flavour(),
            transport: self.conn.transport,
            identity: self.credential.identity(),
            access,
            client: client.map_or(origin, |c| c.address).into(),
            admitted: &self.conn.admitted,
        }
    }

    /// The flavours by which the client may use the volume of the current handle; `None` in the pseudo file system, which is
    /// open to each.
    #[inline]
    pub(super) fn flavours(&self) -> Result<Option<Flavours>, Stop> {
        let Fh::File(file) = self.c.current else {
            return Ok(None);
        };
        let caller = self.caller(Access::Mode(None));
        let flavours = self.s.vfs.flavours(self.table, file.volume, &caller)?;
        Ok(Some(flavours))
    }

    /// NFS4ERR_WRONGSEC if the volume of the current handle wants another flavour. Whether it is there, and for the client,
    /// the next operation finds out.
    #[inline]
    pub(super) fn right_flavour(&self) -> OperationResult {
        match self.flavours() {
            Ok(Some(flavours))
                if !flavours.contains(self.credential.flavour()) && !self.machine_acts() =>
            {
                Err(Status::WrongSec.into())
            }
            Err(Stop::Suspended(wait)) => Err(wait.into()),
            Ok(_) | Err(Stop::Failed(_)) => Ok(Status::Ok),
        }
    }

    /// What an operation that sets the current handle ends with: NFS4ERR_WRONGSEC unless the next operation sets another one,
    /// tells the client which flavour to use, or may fail with that itself (§2.6.3.1.1).
    #[inline]
    pub(super) fn may_stand(&self) -> OperationResult {
        match self.c.next {
            None | Some(11 | 15 | 16 | 18 | 22..=24 | 29 | 31..=33 | 52) => Ok(Status::Ok),
            Some(_) => self.right_flavour(),
        }
    }

    /// Admits the caller to a file's volume.
    #[inline]
    pub(super) fn admit<'o>(
        &mut self,
        file: FileId,
        access: Access<'o>,
    ) -> Result<Admitted<'a, Access<'o>>, Stop<Status>> {
        let session = self.caller(access);
        self.c.used = true;
        match self.s.vfs.admit_file(self.table, file, &session) {
            Err(Stop::Failed(Error::WrongFlavour)) if self.machine_acts() => {
                Ok(self.s.vfs.admit_any_flavour(self.table, file, &session)?)
            }
            admitted => Ok(admitted?),
        }
    }

    /// Whether the caller is the client's machine, and asks in this request for something that SP4_MACH_CRED allows it in place
    /// of a user, whatever flavour the user's requests have to have (§18.35.3).
    #[cold]
    pub(super) fn machine_acts(&self) -> bool {
        let hold = self.c.hold.as_ref();
        let Some(ops) = hold.and_then(|hold| hold.session.client.machine.as_ref()) else {
            return false;
        };
        // What such requests consist of besides; nothing that shows contents.
        let at_hand = self.c.operation_at_hand;
        if !ops.may.has(at_hand) && !matches!(at_hand, GETATTR | PUTFH | RESTOREFH) {
            return false;
        }
        let mut r = Reader::new(self.args.get(self.c.at..).unwrap_or_default());
        let mut operations = (self.c.index..self.c.count).map_while(|_| {
            let operation = r.u32().ok()?;
            match args::decode(self.c.minor, operation, &mut r) {
                Ok(Args::Illegal) | Err(_) => None,
                Ok(_) => Some(operation),
            }
        });
        self.client_ref().is_machine(self.credential) && operations.any(|op| ops.may.has(op))
    }

    /// Admits the caller to a file's volume, and charges it.
    #[inline]
    pub(super) fn enter<'o, C: Cost>(
        &mut self,
        file: FileId,
        access: Access<'o>,
        cost: C,
    ) -> Result<(Operand<'a, 'o>, Charged<C>), Stop<Status>> {
        let admitted = self.admit(file, access)?;
        let charged = admitted.charge(&self.s.vfs, &mut self.c.cx, cost)?;
        self.c.charged = true;
        Ok(charged)
    }

    /// As `enter`, to read a file's attributes: free along with another operation, as the attributes that version 3 sends
    /// with each.
    #[inline]
    pub(super) fn look(&mut self, file: FileId) -> Result<Operand<'a, 'static>, Stop<Status>> {
        Ok(match self.c.charged {
            true => self.enter(file, Access::Mode(None), Exempt)?.0,
            false => self.enter(file, Access::Mode(None), Looks)?.0,
        })
    }

    pub(super) fn handle(&self, fh: Fh) -> [u8; HANDLE_BYTES] {
        let file = match fh {
            Fh::File(file) => file,
            Fh::Pseudo(number) => pseudo::file(number),
            Fh::None => unreachable!("a handle that was tested"),
        };
        self.s.vfs.handle_of(file)
    }

    pub(super) fn pseudo(&self) -> Arc<Pseudo> {
        self.s.pseudo(self.table)
    }

    /// The root directory at the address that the client has come to.
    pub(super) fn pseudo_root(&self) -> u64 {
        self.pseudo().root(self.table, self.conn.local.ip())
    }

    /// The directory of the pseudo file system that an export covers for the client.
    pub(super) fn covered(&self, volume: VolumeId) -> Option<u64> {
        let local = self.conn.local.ip();
        self.pseudo().covered(self.table, local, volume)
    }

    /// Whether the client sees a directory of the pseudo file system.
    pub(super) fn sees(&self, pseudo: &Pseudo, number: u64) -> bool {
        let client = self.conn.peer.ip().to_canonical();
        pseudo.visible(&self.s.vfs, self.table, client, number)
    }
}

impl Nfs4 {
    /// The key of the operation at `place` of the request in a slot, if that is to outlive the server.
    pub(super) fn key_of(&self, hold: &Hold, place: u32) -> Option<CallKey> {
        let key = || {
            hold.request
                .key(self.before_start.secret, &hold.session.id, place)
        };
        hold.session.is_persistent().then(key)
    }
}
