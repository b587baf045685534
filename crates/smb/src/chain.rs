//! A chain of requests and how it is run (MS-SMB2 §3.3.5.2): each in turn, its response behind the ones before it.
//!
//! Of each request, once: its message numbers are used up, its session is found and its signature verified, its tree connect
//! is found; then its command runs. Related requests take session, tree connect and file from those before them, and fail as
//! these failed. What a command waits for stops the chain where it is; it goes on there, and repeats nothing that was done
//! ([`Step`]).

use crate::channel::{Channel, Security};
use crate::compression::Algorithms;
use crate::connection::Connection;
use crate::header::{Header, command, flag, link};
use crate::keys::Signer;
use crate::negotiate::{Dialect, Protection};
use crate::operation;
use crate::reply::{self, Counted, Part, Reply};
use crate::service::Service;
use crate::session::{Access, Open, Session, Target, Tree};
use crate::shares;
use crate::status::Status;
use crate::wire::{Malformed, Put};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_base::{Lsn, Time};
use weir_vfs::signal::Signal;
use weir_vfs::stats::Done;
use weir_vfs::volume::ReadOut;
use weir_vfs::{
    Admissions, Charged, Cost, Error, ExportTable, FileId, Flavour, OpContext, Protocol, Stop,
    Transport,
};

/// The FileId by which a related request means the file of the ones before it.
const SAME: (u64, u64) = (u64::MAX, u64::MAX);
/// Requests of one chain at most.
const MOST: usize = 256;

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

impl weir_vfs::Failure for Failure {}

impl From<Status> for Stop<Failure> {
    fn from(status: Status) -> Stop<Failure> {
        Stop::Failed(Failure::Status(status))
    }
}

impl From<Malformed> for Stop<Failure> {
    fn from(malformed: Malformed) -> Stop<Failure> {
        Stop::Failed(Failure::Status(malformed.into()))
    }
}

/// What a command comes to: its status, with its body written if that is no error.
pub(crate) type CommandResult = Result<Status, Stop<Failure>>;

/// What a command has done that is not to be done again when it goes on.
#[derive(Default)]
pub(crate) enum Step {
    /// Nothing.
    #[default]
    Nothing,
    /// CREATE has made the file.
    Made(Box<crate::create::Found>),
    /// CREATE has opened it, and it is to be cut.
    Opened(Arc<Open>),
    /// CREATE has an open that is as it is to be.
    Claimed(crate::create::Claimed),
    /// WRITE has written so many bytes.
    Written(usize),
    /// CLOSE has closed, and a name is to be removed. The attributes for the response.
    Deleting(
        Box<crate::deletions::Deletion>,
        Option<weir_vfs::volume::Attr>,
    ),
    /// CLOSE has removed the record of a persistent open, with the attributes for the response.
    Erased(Arc<Open>, Option<weir_vfs::volume::Attr>),
    /// TREE_DISCONNECT removes records of persistent opens: the last one's LSN so far; `None`: it has waited for that.
    Disconnects(Option<Option<Lsn>>),
    /// LOCK has done all of it, and is to be recorded; what it frees.
    Locked(crate::files::Freed),
    /// LOCK is recorded.
    Recorded(crate::files::Freed),
    /// LOCK waits for another's lock.
    Waits(Box<crate::waits::Waiting>),
    /// CHANGE_NOTIFY waits for a change.
    Watches(Box<crate::notify::Asked>),
    /// CREATE has waited for the open that it takes over.
    Awaited,
    /// The last cursor of a longer search.
    Done,
    /// A copy within the server has come so far.
    Copying(Box<crate::fsctl::Copying>),
    /// SESSION_SETUP waits for what becomes of a ticket.
    Authenticates(Box<crate::kerberos::Waiting>),
    /// A search for what is allocated has.
    Ranges(Box<crate::fsctl::Ranges>),
}

/// Reason why a chain ends without a response: the connection is to be closed.
pub(crate) struct Close(pub &'static str);

/// Which hash a response belongs to.
pub(crate) enum Hash {
    Connection,
    Setup(u64),
}

/// A chain, kept while it waits.
pub(crate) struct Chain {
    now: Time,
    flow: u64,
    arrived: Option<u64>,
    /// Where the request that is run begins in the record.
    at: usize,
    /// What it has come to, once it has begun: its header with the ids that it takes from others, and its tree connect.
    begun: Option<Begun>,
    pub out: Vec<u8>,
    parts: Vec<Part>,
    /// The last response's data.
    pub payload: Option<Box<ReadOut>>,
    /// How those data are to be compressed, if at all.
    pub compresses: Option<Algorithms>,
    lsn: Option<Lsn>,
    /// The request's part of the log that its response waits for.
    depends: Option<Lsn>,
    session: Option<Arc<Channel>>,
    /// The message was encrypted, for this channel.
    pub sealed: Option<Arc<Channel>>,
    tree: Option<Arc<Tree>>,
    /// The file of the requests before.
    pub file: Option<u64>,
    last: Status,
    /// The context of the operation that is run.
    pub cx: OpContext,
    /// Bytes that the operations of the request before that one have moved.
    moved: usize,
    /// What the requests so far count as.
    done: Counted,
    /// What has been done of the command that is run.
    pub step: Step,
    /// Renames of directories before the CREATE that is run walked its path ([`crate::moves`]).
    pub walked: u64,
    /// What it waited for failed: its status.
    pub failed: Option<Status>,
    /// What the response to a CREATE says of its lease.
    pub lease: Option<Vec<u8>>,
    /// The CREATE with a CreateGuid that is run.
    pub creating: Option<crate::durable::Creating>,
    /// What signs the response to a SESSION_SETUP.
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

pub(crate) struct Begun {
    pub header: Header,
    /// Why it is not run.
    refused: Option<Status>,
    pub credits: u16,
    /// Credits that it asks for and a client without a session is not granted.
    withheld: u16,
    /// What signs the response.
    pub signer: Option<Arc<Signer>>,
}

/// A chain at its end.
pub(crate) struct Finished {
    pub reply: Reply,
    pub lsn: Option<Lsn>,
    pub delay: Option<Arc<Signal<()>>>,
}

impl Chain {
    pub fn new(now: Time, flow: u64, arrived: Option<u64>, sealed: Option<Arc<Channel>>) -> Chain {
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
            done: Counted::default(),
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

    /// The operation that was run is over, and another of the same request follows, charged for itself.
    pub fn renew(&mut self, vfs: &weir_vfs::Vfs) {
        self.cx.settle(&vfs.throttle);
        self.moved += self.cx.moved();
        self.cx.renew();
    }

    /// Counts the request that was run, if it was on a volume. Not if an interim response was sent before: how long such a one takes
    /// is what another client does, and its histogram would say nothing of the server.
    fn count(&mut self, command: u16, waited: bool) {
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
    fn fails(&mut self, body: usize) {
        self.out.truncate(body);
        self.payload = None;
        self.depends = None;
    }

    /// The response is true when the log is durable up to `lsn`.
    pub fn wait_for(&mut self, lsn: Option<Lsn>) {
        self.depends = self.depends.max(lsn);
    }

    /// The request that it stopped at, if that is the only one of its message.
    pub fn stopped_at(&mut self) -> Option<&mut Begun> {
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
    pub conn: &'a Arc<Connection>,
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
        &self.message[crate::header::HEADER..]
    }

    /// The session, which the entrance has found.
    pub fn session(&self) -> Result<Arc<Channel>, Status> {
        self.c.session.clone().ok_or(Status::USER_SESSION_DELETED)
    }

    /// The tree connect, likewise.
    pub fn tree(&self) -> Result<Arc<Tree>, Status> {
        self.c.tree.clone().ok_or(Status::NETWORK_NAME_DELETED)
    }

    /// The open that a request names by both halves of its FileId.
    pub fn open(&mut self, halves: (u64, u64)) -> Result<Arc<Open>, Status> {
        let id = match halves {
            SAME if self.header.has(flag::RELATED) => self.c.related_file()?,
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
        let signed = self.header.has(flag::SIGNED) || session.protection != Protection::Offered;
        session.security(signed, self.c.sealed.is_some())
    }

    /// Admits the session to a file and charges it.
    pub fn enter<'r, C: Cost>(
        &mut self,
        session: &'r Session,
        file: FileId,
        access: Access<'r>,
        cost: C,
    ) -> Result<(Operand<'r>, Charged<C>), Stop<Failure>>
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

    fn command(&mut self) -> CommandResult {
        match self.header.command {
            command::NEGOTIATE => self.negotiate(),
            command::SESSION_SETUP => self.session_setup(),
            command::LOGOFF => self.logoff(),
            command::TREE_CONNECT => self.tree_connect(),
            command::TREE_DISCONNECT => self.tree_disconnect(),
            command::CREATE => self.create(),
            command::CLOSE => self.close(),
            command::FLUSH => self.flush(),
            command::READ => self.read(),
            command::WRITE => self.write(),
            command::LOCK => self.lock(),
            command::IOCTL => self.ioctl(),
            command::ECHO => {
                self.c.out.put_u16(4);
                self.c.out.put_u16(0);
                Ok(Status::SUCCESS)
            }
            command::QUERY_DIRECTORY => self.query_directory(),
            command::CHANGE_NOTIFY => self.change_notify(),
            command::QUERY_INFO => self.query_info(),
            command::SET_INFO => self.set_info(),
            command::OPLOCK_BREAK => self.oplock_break(),
            _ => Err(Status::INVALID_PARAMETER.into()),
        }
    }
}

/// Commands that need no session, and those that need no tree connect.
fn needs(command: u16) -> (bool, bool) {
    match command {
        command::NEGOTIATE | command::SESSION_SETUP => (false, false),
        command::LOGOFF | command::TREE_CONNECT | command::ECHO => (true, false),
        _ => (true, true),
    }
}

/// Whether a session may still send this whose user's ticket is over (§3.3.5.2.9): what frees something, and another ticket. As
/// Windows does, an ECHO is answered, and a LOCK that does not unlock refused (smbtorture's smb2.session.expire2s).
fn outlives_a_ticket(command: u16, message: &[u8]) -> bool {
    /// The flags of the first lock, and the bit by which it is unlocked (§2.2.26).
    const FLAGS: usize = crate::header::HEADER + 40;
    const UNLOCK: u8 = 4;
    match command {
        command::SESSION_SETUP | command::LOGOFF | command::CLOSE | command::ECHO => true,
        command::LOCK => message.get(FLAGS).is_some_and(|flags| flags & UNLOCK != 0),
        _ => false,
    }
}

impl Service {
    /// Runs a chain from where it is.
    pub(crate) fn run(
        self: &Arc<Self>,
        conn: &Arc<Connection>,
        admitted: &Admissions,
        chain: &mut Chain,
        record: &[u8],
    ) -> Result<Finished, Stop<Close>> {
        let table = self.vfs.exports();
        loop {
            let Ok((header, message)) = link(record, chain.at) else {
                return Err(Stop::Failed(Close("a message that is none of SMB2")));
            };
            let begun = match chain.begun.take() {
                Some(begun) => begun,
                None => self.begin((conn, &table), chain, header, message)?,
            };
            let (mut credits, signer) = (begun.credits, begun.signer.clone());
            let at = chain.out.len();
            begun.header.put_response(&mut chain.out, 0, credits);
            let body = chain.out.len();
            let failed = chain.failed.take().or(begun.refused);
            let mut run = Run {
                s: self,
                conn,
                admitted,
                table: &table,
                c: chain,
                header: begun.header,
                message,
            };
            let outcome = match failed {
                Some(status) => Err(Stop::Failed(Failure::Status(status))),
                None => run.command(),
            };
            let status = match outcome {
                Ok(status) => status,
                Err(Stop::Failed(Failure::Status(status))) => {
                    chain.fails(body);
                    reply::put_error(&mut chain.out);
                    status
                }
                Err(Stop::Failed(Failure::With(status, contexts, data))) => {
                    chain.fails(body);
                    reply::put_error_with(&mut chain.out, contexts, &data);
                    status
                }
                Err(Stop::Suspended(suspend)) => {
                    chain.out.truncate(at);
                    chain.payload = None;
                    chain.begun = Some(begun);
                    return Err(Stop::Suspended(suspend));
                }
                Err(Stop::Failed(Failure::Close(why))) => return Err(Stop::Failed(Close(why))),
            };
            chain.cx.settle(&self.vfs.throttle);
            chain.creating = None;
            let mut header = begun.header;
            header.tree = chain.connected.take().unwrap_or(header.tree);
            header.session = chain.named_session.take().unwrap_or(header.session);
            if header.command == command::SESSION_SETUP && status == Status::SUCCESS {
                // The first request on a new channel may be a chain, and Linux fails with EDEADLK where it has too few for it.
                credits += conn.state.lock().window.grant(begun.withheld);
                chain.out[at + 14..at + 16].copy_from_slice(&credits.to_le_bytes());
            }
            chain.out.set_u32(at + 8, status.0);
            chain.out.set_u32(at + 36, header.tree);
            chain.out[at + 40..at + 48].copy_from_slice(&header.session.to_le_bytes());
            let async_id = chain.async_id.take();
            if let Some(id) = async_id {
                reply::put_async(&mut chain.out[at..], id);
            }
            if begun.refused.is_none() {
                chain.count(header.command, async_id.is_some());
            }
            let depends = chain.depends.take();
            chain.lsn = chain.lsn.max(depends);
            chain.parts.push(Part {
                at,
                header,
                credits,
                signer: chain.signs.take().or(signer),
                promises: depends.is_some(),
                async_id,
            });
            chain.last = status;
            if header.next == 0 {
                return Ok(self.finish(conn, chain));
            }
            if chain.parts.len() == MOST {
                return Err(Stop::Failed(Close("a chain that is too long")));
            }
            if let Some(payload) = chain.payload.take() {
                // Only the last one's data leaves by reference.
                payload.slices().for_each(|slice| chain.out.put(slice));
                chain.compresses = None;
            }
            // The mark in front is no part of the message, but half as long as what it is aligned to.
            chain.out.align(4, 8);
            chain.at += header.next as usize;
            chain.step = Step::Nothing;
            chain.cx = OpContext::new(chain.now, chain.flow, chain.arrived);
        }
    }

    fn finish(&self, conn: &Connection, chain: &mut Chain) -> Finished {
        let out = std::mem::take(&mut chain.out);
        let parts = std::mem::take(&mut chain.parts);
        let sealed = chain.sealed.take();
        let hash = chain.hash.take().filter(|_| sealed.is_none());
        let payload = chain.payload.take();
        let mut reply = Reply::compressed(out, payload, parts, sealed, chain.compresses.take());
        reply.count_as(std::mem::take(&mut chain.done));
        match hash {
            Some(Hash::Connection) => conn.state.lock().preauth.add(reply.message()),
            Some(Hash::Setup(id)) => {
                if let Some(setup) = conn.state.lock().setups.get_mut(&id) {
                    setup.preauth.add(reply.message());
                }
            }
            None => {}
        }
        Finished {
            reply,
            lsn: chain.lsn.take(),
            delay: chain.delay.take(),
        }
    }

    /// What comes before any command: message numbers, session, signature, tree connect.
    fn begin(
        &self,
        (conn, table): (&Connection, &ExportTable),
        chain: &mut Chain,
        mut header: Header,
        message: &[u8],
    ) -> Result<Begun, Stop<Close>> {
        if header.has(flag::RESPONSE) {
            return Err(Stop::Failed(Close("a response that nothing asked for")));
        }
        let (credits, withheld) = {
            let mut state = conn.state.lock();
            let negotiated = state.negotiated.as_ref();
            if negotiated.is_none() && header.command != command::NEGOTIATE {
                return Err(Stop::Failed(Close("a request before NEGOTIATE")));
            }
            if negotiated.is_some() && header.command == command::NEGOTIATE {
                return Err(Stop::Failed(Close("a second NEGOTIATE")));
            }
            if negotiated.is_none() {
                header.charge = header.charge.min(1);
            }
            if header.command == command::CANCEL {
                return Err(Stop::Failed(Close("CANCEL in a chain")));
            }
            if !state.window.take(header.message, header.charge) {
                return Err(Stop::Failed(Close("a message number that may not be used")));
            }
            let (wanted, withheld) = match (state.sessions.is_empty(), header.credits) {
                (true, asked) => (asked.min(1), asked - asked.min(1)),
                (false, asked) => (asked.max(1), 0),
            };
            (state.window.grant(wanted), withheld)
        };
        let mut begun = Begun {
            header,
            refused: None,
            credits,
            withheld,
            signer: None,
        };
        let related = header.has(flag::RELATED);
        if related && chain.parts.is_empty() {
            begun.refused = Some(Status::INVALID_PARAMETER);
            return Ok(begun);
        }
        let (session, tree) = needs(header.command);
        if !related {
            (chain.session, chain.tree, chain.file) = (None, None, None);
            chain.last = Status::SUCCESS;
            chain.session = conn.session(header.session);
        }
        let alone = header.command == command::ECHO && header.session == 0;
        let Some(found) = chain.session.clone().filter(|s| !s.has_ended()) else {
            if session && !alone {
                if header.command != command::ECHO {
                    tracing::debug!(peer = %conn.peer, "a request without a session");
                }
                begun.refused = Some(Status::USER_SESSION_DELETED);
            }
            return Ok(begun);
        };
        begun.header.session = found.id;
        if header.command == command::NEGOTIATE {
            return Ok(begun);
        }
        let signed = header.has(flag::SIGNED);
        // A request that need not be signed is answered as it came (§3.3.4.1.1).
        if signed || found.protection != Protection::Offered {
            begun.signer = Some(Arc::clone(&found.signer));
        }
        let protected = match (&chain.sealed, found.protection) {
            // Who encrypts for one session says nothing for another (§3.3.5.2.1.1).
            (Some(sealed), _) => sealed.id == found.id,
            (None, Protection::Encrypted) if header.command != command::SESSION_SETUP => false,
            (None, Protection::Offered) if !signed => {
                // Or the preauthentication hash would protect nothing (§3.3.5.7).
                if header.command == command::TREE_CONNECT
                    && found.negotiated.dialect == Dialect::Smb311
                {
                    return Err(Stop::Failed(Close(
                        "a TREE_CONNECT of 3.1.1 without a signature",
                    )));
                }
                true
            }
            (None, _) => signed && found.signer.verify(message),
        };
        if !protected {
            // Also of a SESSION_SETUP that renews the session (§3.3.5.2.4).
            tracing::warn!(peer = %conn.peer, user = found.user, "a request with a wrong signature, or none, or not encrypted");
            begun.refused = Some(Status::ACCESS_DENIED);
            return Ok(begun);
        }
        if found.expires.has_passed(&*self.clock) && !outlives_a_ticket(header.command, message) {
            begun.refused = Some(Status::NETWORK_SESSION_EXPIRED);
            return Ok(begun);
        }
        if tree {
            if !related {
                chain.tree = found.tree(header.tree);
            }
            match &chain.tree {
                Some(tree) => {
                    begun.header.tree = tree.id;
                    // §3.3.5.2.11.
                    if chain.sealed.is_none() && shares::must_seal(table, tree.target) {
                        tracing::warn!(peer = %conn.peer, user = found.user, share = tree.share, "a request that is not encrypted, of a share with ENCRYPT_DATA");
                        begun.refused = Some(Status::ACCESS_DENIED);
                    }
                }
                None => begun.refused = Some(Status::NETWORK_NAME_DELETED),
            }
        }
        Ok(begun)
    }
}
