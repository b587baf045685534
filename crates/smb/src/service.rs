//! One message in, one message out: the service and its entrance.
//!
//! `handle` runs on the thread that read the message, and for all that is in memory to its end. What waits becomes a future
//! that owns a copy of the message and goes on at the command where the chain stopped ([`crate::chain`]).

use crate::chain::{Chain, Close, Finished};
use crate::channel::Channel;
use crate::compression::{self, COMPRESSED};
use crate::connection::{self, ConnInfo, Connection};
use crate::deletions::Deletions;
use crate::domains::Domains;
use crate::header::{HEADER, Header, PROTOCOL, SMB1, command, link};
use crate::kerberos::{MAX_TOKEN, Tickets};
use crate::leases::{Leases, Mail};
use crate::legacy::Key;
use crate::moves::Moves;
use crate::negotiate::{Dialect, Protection, Server};
use crate::notify::Watches;
use crate::penalties::Penalties;
use crate::pending::{self, Place};
use crate::persistent::{Made, Persistent, Persistents};
use crate::reply::Reply;
use crate::sealing::{self, TRANSFORM};
use crate::session::{Open, Session};
use crate::status::Status;
use crate::wire::Malformed;
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weir_base::limits::net::{MAX_RECORD, SMB_SMALL};
use weir_base::{Clock, Lsn, Rng, VolumeId};
use weir_conn::{Arrival, Parts, Request, Resumed, resume};
use weir_vfs::claims::{Notice, ServiceId, Sink};
use weir_vfs::grace::Records;
use weir_vfs::signal::Signal;
use weir_vfs::volume::DoneCall;
use weir_vfs::{Admissions, Identity, Stop, Suspend, Vfs};

/// The number of this service in the table of claims.
pub const SERVICE: ServiceId = ServiceId(2);

/// What a message that waits takes up besides its bytes.
const HELD_OVERHEAD: usize = 4096;

/// A user who may log on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, as it was created.
    pub name: String,
    /// See [`crate::ntlm::nt_hash`].
    pub nt_hash: Key,
    /// On whose behalf the user's sessions act.
    pub identity: Identity,
}

/// The users who may log on.
pub trait Users: Send + Sync {
    /// The user of this name, in any case. Called on event loops: it must not block.
    fn find(&self, name: &str) -> Option<Arc<User>>;

    /// The user who acts as this number; of several the first by name. Likewise.
    fn with_uid(&self, uid: u32) -> Option<Arc<User>>;

    /// All that [`Users::with_uid`] finds, in ascending order of their numbers. Likewise.
    fn all(&self) -> Arc<[Arc<User>]>;
}

/// This machine's users and groups, as its name service has them. What is not known yet is looked up meanwhile: the error is what to wait for.
pub trait Machine: Send + Sync {
    /// The name of the group, or user, with this number.
    ///
    /// # Errors
    /// It is not known yet.
    fn name(&self, group: bool, number: u32) -> Result<Option<String>, Arc<Signal<()>>>;

    /// The number of the group, or user, of this name.
    ///
    /// # Errors
    /// Likewise.
    fn number(&self, group: bool, name: &str) -> Result<Option<u32>, Arc<Signal<()>>>;

    /// Gives up what takes too long; about once a second.
    fn tick(&self);
}

/// What the service is made of.
pub struct Config {
    /// Exports, claims and limits.
    pub vfs: Arc<Vfs>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Challenges, session numbers and salts.
    pub rng: Arc<dyn Rng>,
    /// Who may log on.
    pub users: Arc<dyn Users>,
    /// What clients know this server as: its host name.
    pub name: String,
    /// What is required of every session's messages; of a share's, the share may say more.
    pub protection: Protection,
    /// Where opens are recorded that outlive the server.
    pub records: Arc<Records>,
    /// What was carried out before the start ([`weir_vfs::volume::Engine::done_calls`]).
    pub done_calls: Vec<DoneCall>,
}

/// A message that is suspended.
pub type Later = weir_conn::Pending<Reply>;

/// The outcome of a message.
pub type Outcome = weir_conn::Outcome<Reply>;

/// What administrators see of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub id: u64,
    /// The user's name, as it was created.
    pub user: String,
    /// The client's address.
    pub client: IpAddr,
    /// What its connection speaks.
    pub dialect: Dialect,
    /// What is not signed, nor encrypted, is refused.
    pub signed: bool,
    /// How much it has open.
    pub opens: usize,
    /// The shares of its tree connects, in order.
    pub shares: Vec<String>,
}

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Its user is not who they were.
    Over,
    /// Its connections are lost, its client has begun another, or has logged off: what is durable stays (§3.3.5.6, §3.3.7.1).
    Lost,
}

/// Where the news of the table of claims go.
pub(crate) struct News {
    pub deletions: Deletions,
    leases: Arc<Leases>,
}

impl Sink for News {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::Delete { file, removal, .. } => self.deletions.due(file, removal),
            notice => self.leases.notify(&notice),
        }
    }
}

/// SMB behind one entrance.
pub struct Service {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) users: Arc<dyn Users>,
    pub(crate) name: String,
    pub(crate) protection: Protection,
    pub(crate) guid: [u8; 16],
    pub(crate) news: Arc<News>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) penalties: Penalties,
    /// All sessions, to find one that another replaces or that a connection is to be bound to.
    sessions: Mutex<HashMap<u64, Weak<Session>>>,
    pub(crate) next_open: AtomicU64,
    /// What CREATEs made before the start.
    pub(crate) made: Made,
    /// See [`crate::moves`].
    pub(crate) moves: RwLock<Moves>,
    /// Persistent opens whose time is over, and when that is durable.
    ending: Mutex<Vec<(Lsn, Arc<Open>)>>,
    /// Who accepts tickets of Kerberos; `None`: it is not offered.
    tickets: RwLock<Option<Arc<dyn Tickets>>>,
    /// Which numbers users and groups of domains have.
    domains: RwLock<Arc<Domains>>,
    /// See [`Machine`]; `None`: users and groups of this machine are shown as numbers.
    machine: RwLock<Option<Arc<dyn Machine>>>,
}

impl Service {
    /// A service over `config`.
    pub fn new(config: Config) -> Arc<Service> {
        let mut guid = [0; 16];
        config.rng.fill(&mut guid);
        let leases = Leases::new(&config.vfs, Persistents::new(config.records));
        let secret = config.vfs.derive_secret(b"smb creates");
        let made = Made::new(secret, &config.done_calls, config.clock.monotonic());
        let watches = Watches::new(&config.vfs);
        let news = Arc::new(News {
            deletions: Deletions::new(&config.vfs),
            leases: Arc::clone(&leases),
        });
        let sink: Weak<News> = Arc::downgrade(&news);
        config.vfs.claims.attach(SERVICE, sink);
        Arc::new(Service {
            vfs: config.vfs,
            clock: config.clock,
            rng: config.rng,
            users: config.users,
            name: config.name,
            protection: config.protection,
            guid,
            news,
            leases,
            watches,
            penalties: Penalties::default(),
            sessions: Mutex::default(),
            next_open: AtomicU64::new(1),
            made,
            moves: RwLock::default(),
            ending: Mutex::default(),
            tickets: RwLock::default(),
            domains: RwLock::default(),
            machine: RwLock::default(),
        })
    }

    /// Shows users and groups of this machine by the names that `machine` has for them.
    pub fn name_by(&self, machine: Arc<dyn Machine>) {
        *self.machine.write() = Some(machine);
    }

    /// See [`Machine`].
    pub(crate) fn machine(&self) -> Option<Arc<dyn Machine>> {
        self.machine.read().clone()
    }

    /// Users and groups of domains have the numbers that `domains` gives them.
    pub fn number_domains(&self, domains: Arc<Domains>) {
        *self.domains.write() = domains;
    }

    /// Which numbers users and groups of domains have.
    pub(crate) fn domains(&self) -> Arc<Domains> {
        Arc::clone(&self.domains.read())
    }

    /// Offers Kerberos to clients that negotiate from now on; `acceptor` takes their tickets. `None`: it is not offered any more.
    pub fn accept_tickets(&self, acceptor: Option<Arc<dyn Tickets>>) {
        *self.tickets.write() = acceptor;
    }

    /// Who accepts tickets of Kerberos.
    pub(crate) fn tickets(&self) -> Option<Arc<dyn Tickets>> {
        self.tickets.read().clone()
    }

    /// Messages that clients did not ask for, as breaks of what they cache, are sent with this. Before, nothing is granted.
    pub fn send_with(&self, mail: Mail) {
        self.leases.send_with(mail);
    }

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
            // What others gain by its end, they keep over a crash.
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
        let sessions = std::mem::take(&mut connection.state.lock().sessions);
        for channel in sessions.values() {
            let last = channel.channels.lock().remove(conn.id);
            if last {
                self.end(channel, How::Lost);
            }
        }
    }

    /// Ends a session on all its connections.
    pub(crate) fn end(&self, session: &Session, how: How) {
        self.sessions.lock().remove(&session.id);
        // Until they are kept.
        let moves = self.moves.read();
        let (connections, opens) = session.end();
        let (vfs, leases, now) = (&self.vfs, &self.leases, self.clock.monotonic());
        for open in opens {
            let keep = || leases.durables.keep(&open, session, vfs, now);
            let Some(gone) = (how == How::Lost).then(keep).flatten() else {
                open.end(vfs, leases);
                continue;
            };
            gone.iter().for_each(|open| open.end(vfs, leases));
            // It may have been broken as it was put there.
            if !open.hold.outlives()
                && !open.is_persistent()
                && let Some(open) = leases.durables.take_one(open.id)
            {
                open.end(vfs, leases);
            }
        }
        drop(moves);
        for connection in connections {
            connection.state.lock().sessions.remove(&session.id);
            connection.cancel_all_of(session.id);
        }
    }

    /// The session of this number, on whatever connections.
    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).and_then(Weak::upgrade)
    }

    /// Enters a session; ends the one that it replaces, if that is the same user's (§3.3.5.5.3).
    pub(crate) fn enter(&self, session: &Arc<Session>, previous: u64) {
        let replaced = {
            let mut sessions = self.sessions.lock();
            sessions.insert(session.id, Arc::downgrade(session));
            let found = sessions.get(&previous).filter(|_| previous != session.id);
            found.and_then(Weak::upgrade)
        };
        if let Some(old) = replaced.filter(|old| old.user == session.user) {
            self.end(&old, How::Lost);
        }
    }

    /// Whether a session has something open below a directory, or will have when its client comes back.
    pub(crate) fn has_open_below(&self, volume: VolumeId, path: &str) -> bool {
        if self.leases.durables.has_persistent_below(volume, path) {
            return true;
        }
        let sessions = self.sessions.lock();
        let mut alive = sessions.values().filter_map(Weak::upgrade);
        alive.any(|session| session.has_open_below(volume, path))
    }

    /// All sessions.
    pub(crate) fn all_sessions(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock();
        sessions.values().filter_map(Weak::upgrade).collect()
    }

    /// Sessions, tree connects and opens at this moment.
    pub fn counts(&self) -> (usize, usize, usize) {
        let sessions = self.sessions.lock();
        let alive = sessions.values().filter_map(Weak::upgrade);
        alive.fold((0, 0, 0), |(n, trees, opens), session| {
            let (t, o) = session.counts();
            (n + 1, trees + t, opens + o)
        })
    }

    /// Opens that outlive the server, with or without a session, at this moment.
    pub fn persistent(&self) -> usize {
        self.leases.persistents.count()
    }

    /// The sessions at this moment.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let sessions = self.sessions.lock();
        let alive = sessions.values().filter_map(Weak::upgrade);
        let info = alive.map(|session| SessionInfo {
            id: session.id,
            user: session.user.clone(),
            client: session.client.address,
            dialect: session.negotiated.dialect,
            signed: session.protection != Protection::Offered,
            opens: session.counts().1,
            shares: session.shares(),
        });
        info.collect()
    }

    /// A number that is hard to guess and not 0.
    pub(crate) fn number(&self) -> u64 {
        self.rng.next_u64().max(1)
    }

    /// The number of the next open.
    pub(crate) fn open_number(&self) -> u64 {
        self.next_open.fetch_add(1, Ordering::Relaxed)
    }

    /// What NEGOTIATE says of the server.
    pub(crate) fn server(&self) -> Server {
        let mut salt = [0; 32];
        self.rng.fill(&mut salt);
        Server {
            guid: self.guid,
            protection: self.protection,
            now: self.clock.now(),
            salt,
        }
    }

    /// Whether memory may be taken for a message of so many bytes of which only `head` is there: it has to be of a user's session. Only
    /// WRITE and SET_INFO are that long, or a chain; or a SESSION_SETUP with a ticket that names many groups. What a stranger can have
    /// memory taken for is thus bounded by [`MAX_TOKEN`].
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
            Some(&TRANSFORM) => sealing::session_of(head),
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
        let connection = connection::of(conn);
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
        sealed: Option<Arc<Channel>>,
    ) -> Outcome {
        let plain = match decompressed(connection::of(conn), message) {
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
        sealed: Option<Arc<Channel>>,
    ) -> Outcome {
        let connection = connection::of(conn);
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
                    let Finished { reply, lsn, .. } = finished;
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

    /// Has a chain wait whose first run was suspended. The client is notified if it waits on purpose and that is possible.
    #[cold]
    fn suspend(
        self: &Arc<Self>,
        conn: &ConnInfo,
        mut chain: Chain,
        record: Cow<'_, [u8]>,
        suspend: Suspend,
    ) -> Outcome {
        let connection = connection::of(conn);
        let (mut place, mut parked) = (None, None);
        if suspend.is_deliberate() {
            let refusal = pending::refusal(&mut chain);
            let id = self.open_number();
            let interim = pending::interim(&mut chain, id).map(|(header, interim)| {
                place = Some(Place::new(connection, id, &header));
                interim
            });
            // One of several requests of a message is not parked: they are bounded by what a connection may have under way.
            parked = refusal.map(|refusal| (refusal, interim));
        }
        // The memory of a message that waits for its limits is accounted to its client's credit.
        let limited = suspend.is_limit();
        let bytes = record.len() + HELD_OVERHEAD;
        let held = limited.then(|| self.vfs.throttle.hold(connection.peer, bytes));
        let waiting = Waiting {
            service: Arc::clone(self),
            connection: Arc::clone(connection),
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

/// What an encrypted message says, and the channel that it is for. What is not as it should be ends the connection
/// (§3.3.5.2.1.1).
fn open(connection: &Connection, record: &[u8]) -> Result<(Vec<u8>, Arc<Channel>), &'static str> {
    let session = sealing::session_of(record).ok();
    let session = session.filter(|_| sealing::length_fits(record));
    let session = session.ok_or("a malformed encrypted message")?;
    let channel = connection.session(session);
    let channel = channel.ok_or("an encrypted message of no session")?;
    let plain = channel.sealing.as_ref().and_then(|keys| keys.open(record));
    let plain = plain.ok_or("a message that cannot be decrypted")?;
    Ok((plain, channel))
}

/// What a compressed message says: as much as this server takes uncompressed, which of strangers is little. What is not as it
/// should be ends the connection (§3.3.5.2.1.2), another transform within it as well.
fn decompressed(connection: &Connection, message: &[u8]) -> Result<Vec<u8>, &'static str> {
    let with = connection.compression();
    let with = with.ok_or("a compressed message where that was not negotiated")?;
    let most = match connection.has_users() {
        true => MAX_RECORD,
        false => SMB_SMALL,
    };
    let plain = compression::decompress(message, with, most);
    let plain = plain.map_err(|Malformed| "a malformed compressed message")?;
    match plain.starts_with(&PROTOCOL) && plain.len() >= HEADER {
        true => Ok(plain),
        false => Err("a compressed message that is none of SMB2"),
    }
}

/// A chain that waits. What has not been done when it is dropped is charged for nothing.
struct Waiting {
    service: Arc<Service>,
    connection: Arc<Connection>,
    admitted: Admissions,
    record: Vec<u8>,
    chain: Chain,
    /// Its place among the requests that can be cancelled.
    place: Option<Place>,
    /// The reply, which is delayed.
    delayed: Option<(Reply, Option<Lsn>)>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.chain.cx.settle(&self.service.vfs.throttle);
    }
}

impl Request for Waiting {
    type Reply = Reply;
    type Cancel = Status;

    fn parts(&mut self) -> Parts<'_, Status> {
        Parts {
            vfs: &self.service.vfs,
            cx: &mut self.chain.cx,
            patience: None,
            cancelled: self.place.as_ref().map(Place::cancelled),
        }
    }

    fn resume(&mut self, resumed: Resumed<Status>) -> Result<Outcome, Suspend> {
        if let Some((reply, lsn)) = self.delayed.take() {
            return Ok(Outcome::Reply(reply, lsn));
        }
        let chain = &mut self.chain;
        chain.failed = match resumed {
            Resumed::Ready => None,
            Resumed::Failed(error) => Some(error.into()),
            Resumed::Cancelled(status) => Some(status),
            Resumed::NotRecalled | Resumed::NotNamed => {
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
