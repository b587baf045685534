//! The state of the service, which all its connections share.

use crate::SERVICE;
use crate::open::deletions::Deletions;
use crate::open::leases::{Leases, Mail};
use crate::open::moves::Moves;
use crate::open::notify::Watches;
use crate::open::persistent::{CreatedFiles, Persistents};
use crate::open::session::{Open, Session};
use crate::proto::dialect::Dialect;
use crate::proto::negotiate::{Protection, Server};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weir_auth::domains::Domains;
use weir_auth::penalties::Penalties;
use weir_auth::tickets::Tickets;
use weir_auth::users::{Machine, Users};
use weir_base::{Clock, Lsn, Rng, VolumeId};
use weir_vfs::Vfs;
use weir_vfs::claims::{Notice, Sink};
use weir_vfs::grace::Records;
use weir_vfs::volume::DoneCall;

/// Parts and settings that the service is made of.
pub struct Config {
    /// Exports, claims and limits.
    pub vfs: Arc<Vfs>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Challenges, session numbers and salts.
    pub rng: Arc<dyn Rng>,
    /// The users that may log on.
    pub users: Arc<dyn Users>,
    /// The host name that clients know this server by.
    pub name: String,
    /// Protection that every session's messages need. A share may demand more.
    pub protection: Protection,
    /// Records of the opens that outlive the server.
    pub records: Arc<Records>,
    /// Calls that were carried out before the start ([`weir_vfs::volume::Engine::done_calls`]).
    pub done_calls: Vec<DoneCall>,
}

/// A session as administrators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub id: u64,
    /// The user's name, as it was created.
    pub user: String,
    /// The client's address.
    pub client: IpAddr,
    /// The dialect of its connection.
    pub dialect: Dialect,
    /// True if messages that are neither signed nor encrypted are refused.
    pub signed: bool,
    /// Number of its opens.
    pub opens: usize,
    /// The shares of its tree connects, in order.
    pub shares: Vec<String>,
}

/// Cause of a session's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEndCause {
    /// Reauthentication of its user failed. No open is kept.
    Over,
    /// Its connections are lost, its client has set up another session in its place, or has logged
    /// off: durable opens are kept (§3.3.5.6, §3.3.7.1).
    Lost,
}

/// Receives the notices of the table of claims.
pub(crate) struct News {
    pub deletions: Deletions,
    pub(crate) leases: Arc<Leases>,
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
    pub(crate) sessions: Mutex<HashMap<u64, Weak<Session>>>,
    pub(crate) next_open: AtomicU64,
    /// Files that CREATEs made before the start.
    pub(crate) made: CreatedFiles,
    /// See [`crate::open::moves`].
    pub(crate) moves: RwLock<Moves>,
    /// Persistent opens whose time is over, each with the LSN that has to become durable before it
    /// ends.
    pub(crate) ending: Mutex<Vec<(Lsn, Arc<Open>)>>,
    /// Accepts Kerberos tickets; `None`: Kerberos is not offered.
    pub(crate) tickets: RwLock<Option<Arc<dyn Tickets>>>,
    /// Numbers of the users and groups of domains.
    pub(crate) domains: RwLock<Arc<Domains>>,
    /// See [`Machine`]; `None`: users and groups of this machine are shown as numbers.
    pub(crate) machine: RwLock<Option<Arc<dyn Machine>>>,
}

impl Service {
    /// A service over `config`.
    pub fn new(config: Config) -> Arc<Service> {
        let mut guid = [0; 16];
        config.rng.fill(&mut guid);
        let leases = Leases::new(&config.vfs, Persistents::new(config.records));
        let secret = config.vfs.derive_secret(b"smb creates");
        let made = CreatedFiles::new(secret, &config.done_calls, config.clock.monotonic());
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

    /// Returns the numbers of users and groups of domains.
    pub(crate) fn domains(&self) -> Arc<Domains> {
        Arc::clone(&self.domains.read())
    }

    /// Offers Kerberos to clients that negotiate from now on; `acceptor` takes their tickets.
    /// `None`: it is not offered any more.
    pub fn accept_tickets(&self, acceptor: Option<Arc<dyn Tickets>>) {
        *self.tickets.write() = acceptor;
    }

    /// Returns the acceptor of Kerberos tickets, if Kerberos is offered.
    pub(crate) fn tickets(&self) -> Option<Arc<dyn Tickets>> {
        self.tickets.read().clone()
    }

    /// Sets the sender of messages that clients did not ask for, such as lease breaks. Nothing is
    /// granted before.
    pub fn send_with(&self, mail: Mail) {
        self.leases.send_with(mail);
    }

    /// Ends a session on all its connections.
    pub(crate) fn end(&self, session: &Session, how: SessionEndCause) {
        self.sessions.lock().remove(&session.id);
        // Until they are kept.
        let moves = self.moves.read();
        let (connections, opens) = session.end();
        let (vfs, leases, now) = (&self.vfs, &self.leases, self.clock.monotonic());
        for open in opens {
            let keep = || leases.durables.keep(&open, session, vfs, now);
            let Some(gone) = (how == SessionEndCause::Lost).then(keep).flatten() else {
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
            self.end(&old, SessionEndCause::Lost);
        }
    }

    /// Returns true if a session has a file open below a directory, or will have when its client
    /// comes back.
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

    /// Returns the server's part of a response to NEGOTIATE, with a new salt.
    pub(crate) fn server(&self) -> Server {
        let mut salt = [0; 32];
        self.rng.fill(&mut salt);
        Server {
            guid: self.guid,
            protection: self.protection,
            now: self.clock.current_time(),
            salt,
        }
    }
}
