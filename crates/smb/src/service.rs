//! One message in, one message out: the service and its entrance.
//!
//! `handle` runs on the thread that read the message, and for all that is in memory to its end. What waits becomes a future
//! that owns a copy of the message and goes on at the command where the chain stopped ([`crate::chain`]).

use crate::chain::{Chain, Finished, Stopped};
use crate::channel::Channel;
use crate::compression::{self, COMPRESSED};
use crate::connection::Connection;
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
use crate::pending::{self, Parked, Place};
use crate::persistent::{Made, Persistent, Persistents};
use crate::reply::Reply;
use crate::sealing::{self, TRANSFORM};
use crate::session::{Open, Session};
use crate::status::Status;
use crate::wire::Malformed;
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weir_base::limits::net::{MAX_RECORD, SMB_SMALL};
use weir_base::{Clock, Lsn, Rng, Time, VolumeId};
use weir_vfs::claims::{Notice, ServiceId, Sink};
use weir_vfs::grace::Records;
use weir_vfs::signal::Signal;
use weir_vfs::volume::DoneCall;
use weir_vfs::{Admissions, Identity, Suspend, Vfs};

/// The number of this service in the table of claims.
pub const SERVICE: ServiceId = ServiceId(2);

/// Mutexes that the connections are dealt to.
const SHARDS: u64 = 64;
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

/// A response that is not there yet.
pub type Later = Pin<Box<dyn Future<Output = Option<(Reply, Option<Lsn>)>> + Send>>;

/// What became of a message.
pub enum Handled {
    /// The response. With an [`Lsn`] it may be sent when the log is durable up to there; if the log fails before, send
    /// [`Reply::into_failure`] in its place.
    Reply(Reply, Option<Lsn>),
    /// It waits. Dropping it is safe: what has not been done then is not.
    Later(Later),
    /// It waits on purpose. The second is sent in its place if too many do; otherwise the third at once.
    Parked(Later, Reply, Option<Reply>),
    /// It waits for the limits of its volume; its memory is accounted to the client's credit.
    Held(Later),
    /// The first, one of those that wait, of a message that takes up so many bytes more than have arrived: it was compressed.
    Larger(Box<Handled>, usize),
    /// There is no response (CANCEL).
    Drop,
    /// The connection is to be closed.
    Close(&'static str),
}

/// Where and when a message arrived.
#[derive(Clone, Copy)]
pub struct Arrived<'a> {
    /// Number of the connection, unique in this run of the server.
    pub connection: u64,
    /// The client's address.
    pub peer: IpAddr,
    /// The server's address.
    pub local: IpAddr,
    /// How the connection's last requests were admitted.
    pub admitted: &'a Admissions,
    /// Civil time.
    pub time: Time,
    /// Nanoseconds on the monotonic clock.
    pub monotonic: Option<u64>,
}

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
    /// Taken by the event loop of a connection alone, so nobody waits.
    connections: Vec<Mutex<HashMap<u64, Arc<Connection>>>>,
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
            connections: (0..SHARDS).map(|_| Mutex::default()).collect(),
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

    fn shard(&self, connection: u64) -> &Mutex<HashMap<u64, Arc<Connection>>> {
        &self.connections[(connection % SHARDS) as usize]
    }

    fn connection(&self, id: u64, (peer, local): (IpAddr, IpAddr)) -> Arc<Connection> {
        let mut shard = self.shard(id).lock();
        let new = || Arc::new(Connection::new(id, peer, local));
        Arc::clone(shard.entry(id).or_insert_with(new))
    }

    /// The peer sends nothing more on this connection: sessions that have no other end.
    pub fn connection_ended(&self, id: u64) {
        let Some(connection) = self.shard(id).lock().remove(&id) else {
            return;
        };
        let sessions = std::mem::take(&mut connection.state.lock().sessions);
        for channel in sessions.values() {
            let last = channel.channels.lock().remove(id);
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
    pub fn takes_long(&self, connection: u64, head: &[u8], bytes: usize) -> bool {
        /// Bytes of a SESSION_SETUP that are none of its token.
        const AROUND: usize = 256;
        if let Ok(header) = Header::decode(head)
            && header.command == command::SESSION_SETUP
            && bytes <= MAX_TOKEN + AROUND
            && self.tickets.read().is_some()
        {
            return true;
        }
        let known = self.shard(connection).lock().get(&connection).cloned();
        let Some(connection) = known else {
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

    /// Whether a user has been authenticated on the connection.
    pub fn knows(&self, connection: u64) -> bool {
        let shard = self.shard(connection).lock();
        shard.get(&connection).is_some_and(|c| c.has_users())
    }

    /// Serves one message, without its mark.
    pub fn handle(self: &Arc<Self>, at: Arrived<'_>, record: &[u8]) -> Handled {
        let connection = self.connection(at.connection, (at.peer, at.local));
        match record.first_chunk::<4>() {
            Some(&PROTOCOL) if record.len() >= HEADER => {
                self.handle_plain(at, connection, Cow::Borrowed(record), None)
            }
            Some(&TRANSFORM) => match open(&connection, record) {
                Ok((plain, channel)) => match plain.first_chunk::<4>() {
                    Some(&PROTOCOL) if plain.len() >= HEADER => {
                        self.handle_plain(at, connection, Cow::Owned(plain), Some(channel))
                    }
                    Some(&COMPRESSED) => {
                        self.handle_compressed(at, connection, &plain, Some(channel))
                    }
                    _ => Handled::Close("an encrypted message that is none of SMB2"),
                },
                Err(why) => Handled::Close(why),
            },
            Some(&COMPRESSED) => self.handle_compressed(at, connection, record, None),
            Some(&SMB1) => self.began_as_smb1(&connection, record),
            _ => Handled::Close("not a message of SMB2"),
        }
    }

    /// Serves a compressed message, which may have been encrypted.
    fn handle_compressed(
        self: &Arc<Self>,
        at: Arrived<'_>,
        connection: Arc<Connection>,
        message: &[u8],
        sealed: Option<Arc<Channel>>,
    ) -> Handled {
        let plain = match decompressed(&connection, message) {
            Ok(plain) => plain,
            Err(why) => return Handled::Close(why),
        };
        let more = plain.len().saturating_sub(message.len());
        match self.handle_plain(at, connection, Cow::Owned(plain), sealed) {
            waits @ (Handled::Later(_) | Handled::Held(_) | Handled::Parked(..)) => {
                Handled::Larger(Box::new(waits), more)
            }
            handled => handled,
        }
    }

    fn handle_plain(
        self: &Arc<Self>,
        at: Arrived<'_>,
        connection: Arc<Connection>,
        record: Cow<'_, [u8]>,
        sealed: Option<Arc<Channel>>,
    ) -> Handled {
        // The one command without a response (§3.3.5.16).
        if let Ok((header, _)) = link(&record, 0)
            && header.command == command::CANCEL
        {
            connection.cancel(&header);
            return Handled::Drop;
        }
        let mut chain = Chain::new(at.time, at.connection, at.monotonic, sealed);
        match self.run(&connection, at.admitted, &mut chain, &record) {
            Ok(finished) => match finished.delay {
                Some(delay) => {
                    let Finished { reply, lsn, .. } = finished;
                    Handled::Later(Box::pin(async move {
                        delay.settled().await;
                        Some((reply, lsn))
                    }))
                }
                None => Handled::Reply(finished.reply, finished.lsn),
            },
            Err(Stopped::Close(why)) => Handled::Close(why),
            Err(Stopped::Park(parked)) => {
                self.park(at, chain, connection, record, Wait::Park(parked))
            }
            Err(Stopped::Later(work)) => {
                let waiting = Waiting {
                    service: Arc::clone(self),
                    chain,
                };
                let (admitted, record) = (at.admitted.clone(), record.into_owned());
                let (on, wait) = ((connection, None), Wait::Park(work));
                Handled::Later(Box::pin(later(waiting, on, admitted, record, wait)))
            }
            Err(Stopped::Wait(suspend @ Suspend::Recall(_))) => {
                self.park(at, chain, connection, record, Wait::Suspend(suspend))
            }
            Err(Stopped::Wait(suspend)) => {
                let limited = matches!(suspend, Suspend::Limit(_));
                let bytes = record.len() + HELD_OVERHEAD;
                let held = limited.then(|| self.vfs.throttle.hold(connection.peer, bytes));
                let waiting = Waiting {
                    service: Arc::clone(self),
                    chain,
                };
                let (admitted, record) = (at.admitted.clone(), record.into_owned());
                let later = Box::pin(async move {
                    let _held = held;
                    let wait = Wait::Suspend(suspend);
                    later(waiting, (connection, None), admitted, record, wait).await
                });
                match limited {
                    true => Handled::Held(later),
                    false => Handled::Later(later),
                }
            }
        }
    }
}

/// What a chain waits for.
enum Wait {
    Suspend(Suspend),
    /// On purpose.
    Park(Parked),
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

impl Service {
    /// Has a chain wait on purpose, of which its client is notified if that is possible.
    fn park(
        self: &Arc<Self>,
        at: Arrived<'_>,
        mut chain: Chain,
        connection: Arc<Connection>,
        record: Cow<'_, [u8]>,
        wait: Wait,
    ) -> Handled {
        let refusal = pending::refusal(&mut chain);
        let id = self.open_number();
        let interim = pending::interim(&mut chain, id);
        let (place, interim) = match interim {
            Some((header, interim)) => (Some(Place::new(&connection, id, &header)), Some(interim)),
            None => (None, None),
        };
        let waiting = Waiting {
            service: Arc::clone(self),
            chain,
        };
        let (admitted, record) = (at.admitted.clone(), record.into_owned());
        let on = (connection, place);
        let later = Box::pin(later(waiting, on, admitted, record, wait));
        match refusal {
            Some(refusal) => Handled::Parked(later, refusal, interim),
            // One of several requests of a message: they are bounded by what a connection may have under way.
            None => Handled::Later(later),
        }
    }
}

/// A chain that waits. What of it is not done when it is dropped is charged for nothing.
struct Waiting {
    service: Arc<Service>,
    chain: Chain,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.chain.cx.settle(&self.service.vfs.throttle);
    }
}

async fn later(
    mut waiting: Waiting,
    (connection, place): (Arc<Connection>, Option<Place>),
    admitted: Admissions,
    record: Vec<u8>,
    mut wait: Wait,
) -> Option<(Reply, Option<Lsn>)> {
    let Waiting { service, chain } = &mut waiting;
    loop {
        let cx = &mut chain.cx;
        let ended = async {
            match wait {
                Wait::Park(parked) => {
                    parked.await;
                    Ok(())
                }
                Wait::Suspend(suspend) => {
                    let resumed = cx.resume(&service.vfs, suspend).await;
                    resumed.map_err(Status::from)
                }
            }
        };
        let ended = match &place {
            Some(place) => place.unless_cancelled(ended).await.and_then(|ended| ended),
            None => ended.await,
        };
        chain.failed = ended.err();
        match service.run(&connection, &admitted, chain, &record) {
            Ok(finished) => {
                if let Some(delay) = finished.delay {
                    delay.settled().await;
                }
                return Some((finished.reply, finished.lsn));
            }
            Err(Stopped::Wait(again)) => wait = Wait::Suspend(again),
            Err(Stopped::Park(again) | Stopped::Later(again)) => wait = Wait::Park(again),
            Err(Stopped::Close(_)) => return None,
        }
    }
}
