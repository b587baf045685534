//! The context that commands run in: their chain, the request and its session. Commands know this
//! module and none above it; the runner is [`crate::chain`].

use crate::conn::connection::Connection;
use crate::conn::operation;
use crate::conn::reply::{self, ChainOperations, Part};
use crate::conn::server::Service;
use crate::context::step::Step;
use crate::open::channel::{Channel, Security};
use crate::open::session::{Access, Open, Session, Target, Tree};
use crate::proto::compression::Algorithms;
use crate::proto::dialect::Dialect;
use crate::proto::header::{Header, command, flag};
use crate::proto::keys::Signer;
use crate::proto::negotiate::Protection;
use crate::proto::status::Status;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_auth::wire::DecodeError;
use weir_base::{Lsn, Time};
use weir_vfs::signal::Signal;
use weir_vfs::stats::Done;
use weir_vfs::volume::ReadOut;
use weir_vfs::{
    Admissions, ChargeProof, Cost, Error, ExportTable, FileId, Flavour, OpContext, Protocol, Stop,
    Transport,
};

/// The FileId by which a related request means the file of the ones before it.
pub(crate) const SAME: (u64, u64) = (u64::MAX, u64::MAX);
/// A command's failure.
pub(crate) enum Failure {
    /// The response has this status.
    Status(Status),
    /// The response has this status, and its data are so many error contexts.
    With(Status, u8, Vec<u8>),
    /// The connection is to be closed.
    Close(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Status(error.into())
    }
}

impl From<DecodeError> for Failure {
    fn from(malformed: DecodeError) -> Failure {
        Failure::Status(malformed.into())
    }
}

impl weir_vfs::Failure for Failure {}

impl From<Status> for Stop<Failure> {
    fn from(status: Status) -> Stop<Failure> {
        Stop::Failed(Failure::Status(status))
    }
}

/// Outcome of a command: its status. The body is written if the status is no error.
pub(crate) type CommandResult = Result<Status, Stop<Failure>>;

/// The preauthentication hash that a response is added to.
pub(crate) enum Hash {
    Connection,
    Setup(u64),
}

/// A chain, kept while it waits.
pub(crate) struct Chain {
    pub(crate) now: Time,
    pub(crate) flow: u64,
    pub(crate) arrived: Option<u64>,
    /// Offset in the record of the current request.
    pub(crate) at: usize,
    /// State of the current request once it has begun: its header, with the ids taken from earlier
    /// requests, and its tree connect.
    pub(crate) begun: Option<CurrentRequest>,
    pub out: Vec<u8>,
    pub(crate) parts: Vec<Part>,
    /// The last response's data.
    pub payload: Option<Box<ReadOut>>,
    /// Algorithms for compressing the payload; `None`: it is sent as it is.
    pub compresses: Option<Algorithms>,
    pub(crate) lsn: Option<Lsn>,
    /// The request's part of the log that its response waits for.
    pub(crate) depends: Option<Lsn>,
    pub(crate) session: Option<Rc<Channel>>,
    /// The channel of a message that was encrypted.
    pub sealed: Option<Rc<Channel>>,
    pub(crate) tree: Option<Arc<Tree>>,
    /// The file of the requests before.
    pub file: Option<u64>,
    pub(crate) last: Status,
    /// The context of the operation that is run.
    pub cx: OpContext,
    /// Bytes that the operations of the request before that one have moved.
    pub(crate) moved: usize,
    /// Operations that the requests so far count as.
    pub(crate) done: ChainOperations,
    /// Progress of the current command.
    pub step: Step,
    /// Renames of directories before the CREATE that is run walked its path
    /// ([`crate::open::moves`]).
    pub walked: u64,
    /// Status with which the awaited event failed.
    pub failed: Option<Status>,
    /// The lease context of the response to a CREATE.
    pub lease: Option<Vec<u8>>,
    /// The CREATE with a CreateGuid that is run.
    pub creating: Option<crate::context::step::PendingCreate>,
    /// Signs the response to a SESSION_SETUP.
    pub signs: Option<Arc<Signer>>,
    /// The tree connect that the response names.
    pub connected: Option<u32>,
    /// The session that the response names.
    pub named_session: Option<u64>,
    pub hash: Option<Hash>,
    /// The answer waits for this.
    pub delay: Option<Arc<Signal<()>>>,
    /// The async id that an interim response gave the request.
    pub async_id: Option<u64>,
}

pub(crate) struct CurrentRequest {
    pub header: Header,
    /// The status with which it is refused instead of being run.
    pub(crate) refused: Option<Status>,
    pub credits: u16,
    /// Credits that it asks for and a client without a session is not granted.
    pub(crate) withheld: u16,
    /// Signs the response.
    pub signer: Option<Arc<Signer>>,
}

impl Chain {
    pub fn new(now: Time, flow: u64, arrived: Option<u64>, sealed: Option<Rc<Channel>>) -> Chain {
        Chain {
            now,
            flow,
            arrived,
            at: 0,
            begun: None,
            out: reply::start(),
            parts: Vec::new(),
            payload: None,
            compresses: None,
            lsn: None,
            depends: None,
            session: None,
            sealed,
            tree: None,
            file: None,
            last: Status::SUCCESS,
            cx: OpContext::new(now, flow, arrived),
            moved: 0,
            done: ChainOperations::default(),
            step: Step::Nothing,
            walked: 0,
            failed: None,
            lease: None,
            creating: None,
            signs: None,
            connected: None,
            named_session: None,
            hash: None,
            delay: None,
            async_id: None,
        }
    }

    /// The operation that was run is over, and another of the same request follows, charged for
    /// itself.
    pub fn renew(&mut self, vfs: &weir_vfs::Vfs) {
        self.cx.settle_charge(&vfs.throttle);
        self.moved += self.cx.moved();
        self.cx.renew();
    }

    /// Counts the request that was run, if it was on a volume. Not if an interim response was sent
    /// before: how long such a one takes is what another client does, and its histogram would say
    /// nothing of the server.
    pub(crate) fn count(&mut self, command: u16, waited: bool) {
        let bytes = std::mem::take(&mut self.moved) + self.cx.moved();
        let target = self.tree.as_ref().map(|tree| tree.target);
        if let Some(Target::Volume(root)) = target.filter(|_| !waited)
            && let (Some(operation), Some(arrived)) = (operation::number(command), self.arrived)
        {
            self.done.add(Done {
                volume: root.volume,
                operation,
                // Saturates: a copy within the server may be longer than a request.
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                arrived,
            });
        }
    }

    /// The request that is run has failed: what was written of its response from there on goes.
    pub(crate) fn fails(&mut self, body: usize) {
        self.out.truncate(body);
        self.payload = None;
        self.depends = None;
    }

    /// The response is true when the log is durable up to `lsn`.
    pub fn wait_for(&mut self, lsn: Option<Lsn>) {
        self.depends = self.depends.max(lsn);
    }

    /// The request that it stopped at, if that is the only one of its message.
    pub fn stopped_at(&mut self) -> Option<&mut CurrentRequest> {
        let alone = self.parts.is_empty() && self.async_id.is_none();
        let begun = self.begun.as_mut()?;
        (alone && begun.header.next == 0).then_some(begun)
    }

    /// The file of the requests before, for a request that names none.
    pub fn related_file(&self) -> Result<u64, Status> {
        match self.file {
            Some(file) => Ok(file),
            None if self.last.is_error() => Err(self.last),
            None => Err(Status::INVALID_PARAMETER),
        }
    }
}

/// One request of a chain while it is run.
pub(crate) struct Run<'a> {
    pub s: &'a Arc<Service>,
    pub conn: &'a Rc<Connection>,
    pub admitted: &'a Admissions,
    pub table: &'a ExportTable,
    pub c: &'a mut Chain,
    pub header: Header,
    /// The request from its header on.
    pub message: &'a [u8],
}

pub(crate) type Operand<'r> = weir_vfs::Operand<'r, Access<'r>>;

impl<'a> Run<'a> {
    /// The request behind its header.
    pub fn body(&self) -> &'a [u8] {
        &self.message[crate::proto::header::HEADER..]
    }

    /// The session, which the entrance has found.
    pub fn session(&self) -> Result<Rc<Channel>, Status> {
        self.c.session.clone().ok_or(Status::USER_SESSION_DELETED)
    }

    /// The tree connect, likewise.
    pub fn tree(&self) -> Result<Arc<Tree>, Status> {
        self.c.tree.clone().ok_or(Status::NETWORK_NAME_DELETED)
    }

    /// The open that a request names by both halves of its FileId.
    pub fn open(&mut self, halves: (u64, u64)) -> Result<Arc<Open>, Status> {
        let id = match halves {
            SAME if self.header.has_flag(flag::RELATED) => self.c.related_file()?,
            (a, b) if a == b => a,
            _ => return Err(Status::FILE_CLOSED),
        };
        let session = self.session()?;
        let open = session.open(id).ok_or(Status::FILE_CLOSED)?;
        if open.tree.load(Ordering::Relaxed) != self.header.tree {
            return Err(Status::FILE_CLOSED);
        }
        let changes = [command::WRITE, command::SET_INFO, command::IOCTL];
        if session.negotiated.dialect >= Dialect::Smb300
            && !open.is_current(self.header.sequence)
            && changes.contains(&self.header.command)
        {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        self.c.file = Some(id);
        Ok(open)
    }

    /// Returns what export rules judge the request by.
    pub fn security(&self) -> Security {
        let Some(session) = &self.c.session else {
            return (Flavour::None, Transport::Clear);
        };
        let signed =
            self.header.has_flag(flag::SIGNED) || session.protection != Protection::Offered;
        session.security(signed, self.c.sealed.is_some())
    }

    /// Admits the session to a file and charges it.
    pub fn enter<'r, C: Cost>(
        &mut self,
        session: &'r Session,
        file: FileId,
        access: Access<'r>,
        cost: C,
    ) -> Result<(Operand<'r>, ChargeProof<C>), Stop<Failure>>
    where
        'a: 'r,
    {
        let (s, table) = (self.s, self.table);
        let (flavour, transport) = self.security();
        let session = weir_vfs::Session {
            origin: self.conn.peer,
            protocol: Protocol::Smb,
            flavour,
            transport,
            identity: Some(&session.identity),
            access,
            client: session.client_key,
            admitted: self.admitted,
        };
        let admitted = s.vfs.admit_file(table, file, &session)?;
        Ok(admitted.charge(&s.vfs, &mut self.c.cx, cost)?)
    }

    /// Fails unless the request was charged the credits that so many bytes cost (§3.3.5.2.5).
    pub fn charged(&self, bytes: usize) -> Result<(), Status> {
        let due = (bytes.max(1) - 1) / 65_536 + 1;
        match usize::from(self.header.charge.max(1)) >= due {
            true => Ok(()),
            false => Err(Status::INVALID_PARAMETER),
        }
    }
}
