//! Cursor through a COMPOUND, and the context in which its operations run. The operations depend on
//! this module and on none above it; the runner is [`super::compound`].

use super::args::{self, Args, Head};
use super::client::Client;
use super::connection_cache::ConnInfo;
use super::copy_progress::CopyProgress;
use super::persistent::{RecoveredResults, Request};
use super::pseudo::{self, Pseudo};
use super::referral::Referral;
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
    AccessModel, AdmittedFile, ChargeProof, Cost, Error, Exempt, ExportTable, FileId, Flavours,
    HANDLE_BYTES, Identity, MetadataRead, Namespace, OpContext, Protocol, Stop,
};

/// Access check for contents, with the owner on whose behalf it is made (see [`AccessModel`]).
#[derive(Clone, Copy)]
pub(super) enum Access<'o> {
    /// By the mode: OPEN, on behalf of an open owner, and operations that conflict with no claim. A
    /// caller that may execute a file may read it, since that is how it is executed.
    Mode(Option<&'o Owner>),
    /// By the mode, on behalf of the client, whose own delegation does not conflict: changes of
    /// names and attributes, special stateids.
    Client {
        owner: &'o Owner,
        /// True once the client reclaims nothing any more.
        settled: bool,
    },
    /// By the access granted to an open.
    Open {
        owner: &'o Owner,
        read: bool,
        write: bool,
    },
    /// By the mode, or as the file's owner: a file that was open before a restart. The mode may
    /// never have allowed the open's access, since the creator of a file has it open whatever its
    /// mode.
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
            // Before that the client would wait for itself.
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

/// Result of an operation. A status other than OK comes with its results already appended.
pub(super) type OperationResult = Result<Status, Stop<Status>>;

/// A request's slot, which is busy until the request ends.
pub(super) struct Hold {
    pub(super) session: Arc<Session>,
    pub(super) slot: u32,
    /// Identifies the request in the log.
    pub(super) request: Request,
    pub(super) cache: bool,
    /// Maximum size of the results in bytes, from the status on.
    pub(super) most: usize,
}

/// Progress of an OPEN: the file that it has found or created.
#[derive(Clone, Copy)]
pub(super) struct OpenProgress {
    pub(super) file: FileId,
    /// Change attribute of the directory before and after, if OPEN went by a name.
    pub(super) dir: Option<(u64, u64)>,
    /// True if this OPEN created the file.
    pub(super) made: bool,
    /// True if the file is to be truncated.
    pub(super) cut: bool,
    /// Attributes that were set.
    pub(super) set: Bitmap,
    /// Stateid of the open, once the file is open.
    pub(super) opened: Option<StateId>,
}

impl OpenProgress {
    /// Returns the progress for an existing file.
    pub(super) fn found(file: FileId) -> OpenProgress {
        OpenProgress {
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
    /// Number of the current operation, from 0.
    pub(super) index: u32,
    /// Position of the current operation in the call's arguments.
    pub(super) at: usize,
    /// Number of the operation that follows.
    pub(super) next: Option<u32>,
    pub(super) current: Fh,
    pub(super) saved: Fh,
    pub(super) state: StateId,
    pub(super) saved_state: StateId,
    /// The reply so far.
    pub(super) out: Vec<u8>,
    /// Data that follows `out` by reference.
    pub(super) payload: Option<Box<Payload>>,
    /// Position of the results in `out`: of the status, and of the number of results.
    pub(super) results: usize,
    pub(super) number: usize,
    pub(super) hold: Option<Hold>,
    /// The client for which work without a request is done.
    pub(super) on_behalf: Option<Arc<Client>>,
    pub(super) made: Option<OpenProgress>,
    pub(super) copying: Option<Box<CopyProgress>>,
    /// Operations carried out before the restart, if the request is a retransmission of an earlier
    /// one.
    pub(super) repeated: Option<Box<RecoveredResults>>,
    pub(super) cx: OpContext,
    /// True if the operation has used its context.
    pub(super) used: bool,
    pub(super) now: Arrival,
    /// Attributes of the current file that an operation has read, for those that follow at once.
    pub(super) seen: Option<(FileId, Attr)>,
    pub(super) lsn: Option<Lsn>,
    pub(super) cut: Option<Cut>,
    /// Operation number of the current operation.
    pub(super) operation_at_hand: u32,
    /// True if some operation has changed something.
    pub(super) changed: bool,
    /// True if a metadata operation has been charged.
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

    /// Returns the time of day at which the request arrived.
    pub(super) fn time(&self) -> Time {
        self.now.time
    }

    /// Returns the time at which the request arrived on the monotonic clock, if it is known.
    pub(super) fn arrived(&self) -> Option<Duration> {
        self.now.monotonic.map(Duration::from_nanos)
    }

    pub(super) fn put_at(&mut self, at: usize, value: u32) {
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Sets the COMPOUND's status, and the number of results.
    pub(super) fn close(&mut self, status: Status, results: u32) {
        self.put_at(self.results, status as u32);
        self.put_at(self.number, results);
    }

    /// Returns the COMPOUND's status, unless it is OK.
    fn failed_with(&self) -> Option<u32> {
        let status = self.out.get(self.results..)?.first_chunk()?;
        Some(u32::from_be_bytes(*status)).filter(|status| *status != Status::Ok as u32)
    }

    /// Takes the reply, and the log record that it waits for. Keeps the results in the slot if
    /// asked to, and puts the session back into the connection's state.
    pub(super) fn take_reply(&mut self, s: &Nfs4, conn: &ConnInfo) -> (ReplyBuf, Option<Lsn>) {
        self.cx.settle_charge(&s.vfs.throttle);
        if let Some(status) = self.failed_with() {
            // An unknown operation, or none at all, is counted as COMPOUND.
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

    /// Frees the slot of a request that is dropped while it is suspended: see `slot`.
    pub(super) fn abandon(&mut self, s: &Nfs4) {
        self.cx.settle_charge(&s.vfs.throttle);
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

    /// Appends the failure of the current operation.
    pub(super) fn fail(&mut self, status: Status) {
        self.out.put_u32(self.operation_at_hand);
        self.out.put_u32(status as u32);
        if self.operation_at_hand == SETATTR {
            self.out.put_u32(0);
        }
        self.close(status, self.index + 1);
    }

    /// Marks that an operation has changed something, and makes the reply wait for this record.
    pub(super) fn wait_for(&mut self, lsn: Option<Lsn>) {
        self.changed = true;
        self.depends_on(lsn);
    }

    /// Makes the reply wait for this record.
    pub(super) fn depends_on(&mut self, lsn: Option<Lsn>) {
        if let Some(lsn) = lsn
            && self.lsn.is_none_or(|highest| lsn > highest)
        {
            self.lsn = Some(lsn);
        }
    }

    /// Returns the size of the results so far in bytes, from the status on.
    pub(super) fn len(&self) -> usize {
        let payload = self.payload.as_ref().map_or(0, |p| p.encoded_len());
        self.out.len() - self.results + payload
    }

    /// Returns the number of bytes left for results.
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

/// The part of a long request that will not be read.
#[derive(Clone, Copy)]
pub(super) struct Unread {
    /// Number of missing bytes of the arguments.
    pub(super) bytes: usize,
    /// Status of the operation that has the data.
    pub(super) status: Status,
}

/// Context of a run of a cursor.
pub(super) struct Run<'a> {
    pub(super) s: &'a Nfs4,
    pub(super) conn: &'a ConnInfo,
    pub(super) credential: &'a Credential,
    pub(super) table: &'a ExportTable,
    /// Size of the whole request in bytes.
    pub(super) bytes: usize,
    /// The call's arguments; `c` has the position in them.
    pub(super) args: &'a [u8],
    /// Set if the data of a long request is missing and will not be read.
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
    /// Returns the other servers to use in place of a directory of the pseudo file system.
    pub(super) fn referral(&self, number: u64) -> Option<Arc<Referral>> {
        let directory = self.s.vfs.directory();
        if self.s.referrals.get().is_none() && directory.generation() == 0 {
            return None;
        }
        self.pseudo().referral(number).map(Arc::clone)
    }

    /// Settles the operation's charges so far; its further work is charged anew.
    pub(super) fn renew_context(&mut self) {
        self.c.cx.settle_charge(&self.s.vfs.throttle);
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

    /// Attaches the operation's key to its further changes, if the key is to survive a restart.
    pub(super) fn leave_key(&mut self) {
        let hold = self.c.hold.as_ref();
        let key = hold.and_then(|hold| self.s.key_of(hold, self.c.index));
        self.c.cx.set_call(key);
    }

    /// Returns the current file handle; NOFILEHANDLE if there is none, MOVED in an absent file
    /// system.
    pub(super) fn here(&self) -> Result<Fh, Status> {
        match self.c.current {
            Fh::None => Err(Status::NoFileHandle),
            Fh::Pseudo(number) if self.referral(number).is_some() => Err(Status::Moved),
            fh => Ok(fh),
        }
    }

    /// Returns the file of a volume that the current handle means; `error` for a directory of the
    /// pseudo file system.
    pub(super) fn file(&self, error: Status) -> Result<FileId, Status> {
        match self.here()? {
            Fh::File(file) => Ok(file),
            _ => Err(error),
        }
    }

    /// Returns the client of the session.
    pub(super) fn client(&self) -> Arc<Client> {
        match (&self.c.hold, &self.c.on_behalf) {
            (Some(hold), _) => Arc::clone(&hold.session.client),
            (None, Some(client)) => Arc::clone(client),
            (None, None) => unreachable!("an operation of a session has a client"),
        }
    }

    /// Keeps attributes of `file` for the next operation. They were valid at some time during this
    /// request, which is all that the reply promises. Those of a file with an access control list
    /// depend on the caller, and are read anew.
    pub(super) fn note_seen(&mut self, file: FileId, attr: &Attr) {
        let plain = attr.guard == Guard::Mode && file.namespace == Namespace::Live;
        self.c.seen = plain.then_some((file, *attr));
    }

    /// Returns the attributes of the current file.
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

    /// Returns the flavours by which the client may use the volume of the current handle; `None` in
    /// the pseudo file system, which is open to every flavour.
    #[inline]
    pub(super) fn flavours(&self) -> Result<Option<Flavours>, Stop> {
        let Fh::File(file) = self.c.current else {
            return Ok(None);
        };
        let caller = self.caller(Access::Mode(None));
        let flavours = self.s.vfs.flavours(self.table, file.volume, &caller)?;
        Ok(Some(flavours))
    }

    /// Returns NFS4ERR_WRONGSEC if the volume of the current handle requires another flavour. If
    /// the volume is missing or closed to the client, the next operation reports that.
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

    /// Returns the result of an operation that sets the current handle. It is NFS4ERR_WRONGSEC for
    /// a wrong flavour, unless the next operation sets another handle, tells the client which
    /// flavour to use, or may fail with that status itself (§2.6.3.1.1).
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
    ) -> Result<AdmittedFile<'a, Access<'o>>, Stop<Status>> {
        let session = self.caller(access);
        self.c.used = true;
        match self.s.vfs.admit_file(self.table, file, &session) {
            Err(Stop::Failed(Error::WrongFlavour)) if self.machine_acts() => {
                Ok(self.s.vfs.admit_any_flavour(self.table, file, &session)?)
            }
            admitted => Ok(admitted?),
        }
    }

    /// Returns true if the caller is the client's machine, and the request contains an operation
    /// that SP4_MACH_CRED allows it in place of a user. The flavour required of the user does not
    /// matter then (§18.35.3).
    #[cold]
    pub(super) fn machine_acts(&self) -> bool {
        let hold = self.c.hold.as_ref();
        let Some(ops) = hold.and_then(|hold| hold.session.client.machine.as_ref()) else {
            return false;
        };
        // Such requests may contain these operations as well, none of which shows contents.
        let at_hand = self.c.operation_at_hand;
        if !ops.may.contains(at_hand) && !matches!(at_hand, GETATTR | PUTFH | RESTOREFH) {
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
        self.client_ref().is_machine(self.credential) && operations.any(|op| ops.may.contains(op))
    }

    /// Admits the caller to a file's volume, and charges it.
    #[inline]
    pub(super) fn enter<'o, C: Cost>(
        &mut self,
        file: FileId,
        access: Access<'o>,
        cost: C,
    ) -> Result<(Operand<'a, 'o>, ChargeProof<C>), Stop<Status>> {
        let admitted = self.admit(file, access)?;
        let charged = admitted.charge(&self.s.vfs, &mut self.c.cx, cost)?;
        self.c.charged = true;
        Ok(charged)
    }

    /// Admits the caller as `enter` does, to read a file's attributes. It is free along with
    /// another operation, like the attributes in the replies of version 3.
    #[inline]
    pub(super) fn look(&mut self, file: FileId) -> Result<Operand<'a, 'static>, Stop<Status>> {
        Ok(match self.c.charged {
            true => self.enter(file, Access::Mode(None), Exempt)?.0,
            false => self.enter(file, Access::Mode(None), MetadataRead)?.0,
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

    /// Returns the root directory for the address that the client called.
    pub(super) fn pseudo_root(&self) -> u64 {
        self.pseudo().root(self.table, self.conn.local.ip())
    }

    /// Returns the directory of the pseudo file system that an export covers for the client.
    pub(super) fn covered(&self, volume: VolumeId) -> Option<u64> {
        let local = self.conn.local.ip();
        self.pseudo().covered(self.table, local, volume)
    }

    /// Returns true if the client sees a directory of the pseudo file system.
    pub(super) fn sees(&self, pseudo: &Pseudo, number: u64) -> bool {
        let client = self.conn.peer.ip().to_canonical();
        pseudo.visible(&self.s.vfs, self.table, client, number)
    }
}

impl Nfs4 {
    /// Returns the key of the operation at `place` of the request in a slot, if the key is to
    /// survive a restart.
    pub(super) fn key_of(&self, hold: &Hold, place: u32) -> Option<CallKey> {
        let key = || {
            hold.request
                .key(self.before_start.secret, &hold.session.id, place)
        };
        hold.session.is_persistent().then(key)
    }
}
