//! Entrance of the service: one message in, one message out.
//!
//! `handle` runs on the thread that read the message, and completes if all data are in memory. A
//! message that has to wait becomes a future with a copy of the message, which resumes at the
//! suspended command of the chain ([`crate::chain`]).

use crate::chain::{ChainReply, Close};
use crate::conn::connection::{self, ConnInfo, Connection};
use crate::conn::reply::Reply;
use crate::conn::server::{Service, SessionEndCause};
use crate::context::run::Chain;
use crate::open::channel::Channel;
use crate::open::persistent::Persistent;
use crate::pending_requests::{self, PendingEntry};
use crate::proto::compression::{self, COMPRESSED};
use crate::proto::encryption::{self, TRANSFORM};
use crate::proto::header::{HEADER, Header, PROTOCOL, SMB1, command, link};
use crate::proto::status::Status;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use weir_auth::tickets::MAX_TOKEN;
use weir_auth::wire::DecodeError;
use weir_base::Lsn;
use weir_base::limits::net::{MAX_RECORD, SMB_SMALL};
use weir_conn::{Arrival, Parts, Request, WaitOutcome, resume};
use weir_vfs::{Admissions, Stop, Suspend};

/// Memory of a waiting message besides its bytes.
const HELD_OVERHEAD: usize = 4096;

/// A message that is suspended.
pub type Later = weir_conn::RequestFuture<Reply>;

/// The outcome of a message.
pub type Outcome = weir_conn::Outcome<Reply>;

impl Service {
    /// Does what is due by time: to be called about once a second.
    pub fn tick(&self) {
        let now = self.clock.monotonic();
        self.penalties.tick(now);
        if let Some(machine) = self.machine() {
            machine.tick();
        }
        self.leases.tick();
        self.leases.durables.arrived();
        let records = &self.leases.persistents.records;
        records.tick();
        let mut over = Vec::new();
        let mut ending = self.ending.lock();
        for (lsn, open) in std::mem::take(&mut *ending) {
            match records.is_durable(lsn) {
                true => over.push(open),
                false => ending.push((lsn, open)),
            }
        }
        for open in self.leases.durables.expired(now) {
            // The end is durable before another client can profit from it.
            match open.persistent.get().map(Persistent::erase) {
                Some(Ok(Some(lsn))) => ending.push((lsn, open)),
                _ => over.push(open),
            }
        }
        drop(ending);
        over.iter()
            .for_each(|open| open.end(&self.vfs, &self.leases));
    }

    /// Deletes for ever what sessions that ended without closing their opens were to delete.
    pub async fn background(self: Arc<Self>) {
        loop {
            let deletion = self.news.deletions.next().await;
            self.delete(deletion).await;
        }
    }

    /// The peer sends nothing more on this connection: sessions that have no other end.
    pub fn connection_ended(&self, conn: &ConnInfo) {
        let Some(connection) = conn.state.get() else {
            return;
        };
        for channel in connection.take_sessions() {
            let last = channel.channels.lock().remove(conn.id);
            if last {
                self.end(&channel, SessionEndCause::Lost);
            }
        }
    }

    /// Returns true if memory may be taken for a message of `bytes` bytes, of which only `head` has
    /// arrived. It has to belong to a user's session: only WRITE, SET_INFO and chains are that
    /// long. The exception is a SESSION_SETUP whose ticket names many groups, so [`MAX_TOKEN`]
    /// bounds the memory that is taken for a client without a user.
    pub fn takes_long(&self, conn: &ConnInfo, head: &[u8], bytes: usize) -> bool {
        /// Bytes of a SESSION_SETUP that are none of its token.
        const AROUND: usize = 256;
        if let Ok(header) = Header::decode(head)
            && header.command == command::SESSION_SETUP
            && bytes <= MAX_TOKEN + AROUND
            && self.tickets.read().is_some()
        {
            return true;
        }
        let Some(connection) = conn.state.get() else {
            return false;
        };
        let session = match head.first_chunk::<4>() {
            Some(&TRANSFORM) => encryption::session_of(head),
            // Its session may be in what is compressed.
            Some(&COMPRESSED) => {
                return connection.has_users() && connection.compression().is_some();
            }
            _ => Header::decode(head).map(|header| header.session),
        };
        session.is_ok_and(|session| connection.session(session).is_some())
    }

    /// Returns true if a user has been authenticated on the connection.
    pub fn knows(&self, conn: &ConnInfo) -> bool {
        conn.state.get().is_some_and(|c| c.has_users())
    }

    /// Serves one message, without its mark.
    pub fn handle(self: &Arc<Self>, conn: &ConnInfo, record: &[u8], now: Arrival) -> Outcome {
        let connection = connection::get_or_create(conn);
        match record.first_chunk::<4>() {
            Some(&PROTOCOL) if record.len() >= HEADER => {
                self.handle_plain(conn, now, Cow::Borrowed(record), None)
            }
            Some(&TRANSFORM) => match open(connection, record) {
                Ok((plain, channel)) => match plain.first_chunk::<4>() {
                    Some(&PROTOCOL) if plain.len() >= HEADER => {
                        self.handle_plain(conn, now, Cow::Owned(plain), Some(channel))
                    }
                    Some(&COMPRESSED) => self.handle_compressed(conn, now, &plain, Some(channel)),
                    _ => Outcome::Close("an encrypted message that is none of SMB2"),
                },
                Err(why) => Outcome::Close(why),
            },
            Some(&COMPRESSED) => self.handle_compressed(conn, now, record, None),
            Some(&SMB1) => self.began_as_smb1(connection, record),
            _ => Outcome::Close("not a message of SMB2"),
        }
    }

    /// Serves a compressed message, which may have been encrypted.
    fn handle_compressed(
        self: &Arc<Self>,
        conn: &ConnInfo,
        now: Arrival,
        message: &[u8],
        sealed: Option<Rc<Channel>>,
    ) -> Outcome {
        let plain = match decompressed(connection::get_or_create(conn), message) {
            Ok(plain) => plain,
            Err(why) => return Outcome::Close(why),
        };
        let more = plain.len().saturating_sub(message.len());
        match self.handle_plain(conn, now, Cow::Owned(plain), sealed) {
            waits @ (Outcome::Later(_) | Outcome::Held(_) | Outcome::Parked(..)) => {
                Outcome::Larger(Box::new(waits), more)
            }
            outcome => outcome,
        }
    }

    fn handle_plain(
        self: &Arc<Self>,
        conn: &ConnInfo,
        now: Arrival,
        record: Cow<'_, [u8]>,
        sealed: Option<Rc<Channel>>,
    ) -> Outcome {
        let connection = connection::get_or_create(conn);
        // The one command without a response (§3.3.5.16).
        if let Ok((header, _)) = link(&record, 0)
            && header.command == command::CANCEL
        {
            connection.cancel(&header);
            return Outcome::Drop;
        }
        let mut chain = Chain::new(now.time, conn.id, now.monotonic, sealed);
        match self.run(connection, &conn.admitted, &mut chain, &record) {
            Ok(finished) => match finished.delay {
                Some(delay) => {
                    let ChainReply { reply, lsn, .. } = finished;
                    Outcome::Later(Box::pin(async move {
                        delay.settled().await;
                        Outcome::Reply(reply, lsn)
                    }))
                }
                None => Outcome::Reply(finished.reply, finished.lsn),
            },
            Err(Stop::Failed(Close(why))) => Outcome::Close(why),
            Err(Stop::Suspended(suspend)) => self.suspend(conn, chain, record, suspend),
        }
    }

    /// Suspends a chain whose first run could not finish. The client is notified if the wait is
    /// deliberate and a notification is possible.
    #[cold]
    fn suspend(
        self: &Arc<Self>,
        conn: &ConnInfo,
        mut chain: Chain,
        record: Cow<'_, [u8]>,
        suspend: Suspend,
    ) -> Outcome {
        let connection = connection::get_or_create(conn);
        let (mut place, mut parked) = (None, None);
        if suspend.is_deliberate() {
            let refusal = pending_requests::refusal(&mut chain);
            let id = self.open_number();
            let interim = pending_requests::interim(&mut chain, id).map(|(header, interim)| {
                place = Some(PendingEntry::new(&connection.line, id, &header, &chain));
                interim
            });
            // One of several requests of a message is not parked: they are bounded by what a
            // connection may have under way.
            parked = refusal.map(|refusal| (refusal, interim));
        }
        // The memory of a message that waits for its limits is accounted to its client's credit.
        let limited = suspend.is_limit();
        let bytes = record.len() + HELD_OVERHEAD;
        let held = limited.then(|| self.vfs.throttle.hold(connection.peer, bytes));
        let waiting = PendingChain {
            service: Arc::clone(self),
            connection: Rc::clone(connection),
            admitted: conn.admitted.clone(),
            record: record.into_owned(),
            chain,
            place,
            delayed: None,
        };
        let later = Box::pin(resume(waiting, suspend, held));
        match parked {
            Some((refusal, interim)) => Outcome::Parked(later, refusal, interim),
            None if limited => Outcome::Held(later),
            None => Outcome::Later(later),
        }
    }
}

/// Decrypts a message, and returns its channel with it. Any error ends the connection
/// (§3.3.5.2.1.1).
fn open(connection: &Connection, record: &[u8]) -> Result<(Vec<u8>, Rc<Channel>), &'static str> {
    let session = encryption::session_of(record).ok();
    let session = session.filter(|_| encryption::length_fits(record));
    let session = session.ok_or("a malformed encrypted message")?;
    let channel = connection.session(session);
    let channel = channel.ok_or("an encrypted message of no session")?;
    let plain = channel.sealing.as_ref().and_then(|keys| keys.open(record));
    let plain = plain.ok_or("a message that cannot be decrypted")?;
    Ok((plain, channel))
}

/// Decompresses a message. Its size is bounded as that of a message that is not compressed, which
/// is small for a client without a user. Any error ends the connection (§3.3.5.2.1.2), and so does
/// another transform within the message.
fn decompressed(connection: &Connection, message: &[u8]) -> Result<Vec<u8>, &'static str> {
    let with = connection.compression();
    let with = with.ok_or("a compressed message where that was not negotiated")?;
    let most = match connection.has_users() {
        true => MAX_RECORD,
        false => SMB_SMALL,
    };
    let plain = compression::decompress(message, with, most);
    let plain = plain.map_err(|DecodeError| "a malformed compressed message")?;
    match plain.starts_with(&PROTOCOL) && plain.len() >= HEADER {
        true => Ok(plain),
        false => Err("a compressed message that is none of SMB2"),
    }
}

/// A chain that waits. Its charges are settled when it is dropped.
struct PendingChain {
    service: Arc<Service>,
    connection: Rc<Connection>,
    admitted: Admissions,
    record: Vec<u8>,
    chain: Chain,
    /// Its place among the requests that can be cancelled.
    place: Option<PendingEntry>,
    /// The reply, which is delayed.
    delayed: Option<(Reply, Option<Lsn>)>,
}

impl Drop for PendingChain {
    fn drop(&mut self) {
        self.chain.cx.settle_charge(&self.service.vfs.throttle);
    }
}

impl Request for PendingChain {
    type Reply = Reply;
    type Cancel = Status;

    fn parts(&mut self) -> Parts<'_, Status> {
        Parts {
            vfs: &self.service.vfs,
            cx: &mut self.chain.cx,
            patience: None,
            cancelled: self.place.as_ref().map(PendingEntry::cancelled),
        }
    }

    fn resume(&mut self, resumed: WaitOutcome<Status>) -> Result<Outcome, Suspend> {
        if let Some((reply, lsn)) = self.delayed.take() {
            return Ok(Outcome::Reply(reply, lsn));
        }
        let chain = &mut self.chain;
        chain.failed = match resumed {
            WaitOutcome::Ready => None,
            WaitOutcome::Failed(error) => Some(error.into()),
            WaitOutcome::Cancelled(status) => Some(status),
            WaitOutcome::NotRecalled | WaitOutcome::NotNamed => {
                unreachable!("a request of SMB waits for as long as it takes")
            }
        };
        let service = &self.service;
        let ran = service.run(&self.connection, &self.admitted, chain, &self.record);
        match ran {
            Ok(finished) => match finished.delay {
                Some(delay) => {
                    self.delayed = Some((finished.reply, finished.lsn));
                    Err(Suspend::Thread(Box::pin(delay.settled())))
                }
                None => Ok(Outcome::Reply(finished.reply, finished.lsn)),
            },
            Err(Stop::Failed(Close(why))) => Ok(Outcome::Close(why)),
            Err(Stop::Suspended(again)) => Err(again),
        }
    }
}
