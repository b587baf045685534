//! Clients and their sessions: EXCHANGE_ID, CREATE_SESSION, the lease (RFC 8881 §2.4, §8.3, §18.35 to §18.37, §18.50).
//!
//! A client is known by its owner string. The record that EXCHANGE_ID makes is *unconfirmed* until CREATE_SESSION; only then
//! does it take the place of what the same owner had before. A record ends when its owner comes back with another verifier
//! (it has restarted), when the client says so, or when its lease has run out and something else is in need of what it has.
//!
//! **Identities.** A client id is (start, number): one of an earlier start is recognised as stale. A session id is the client
//! id and a random number. An identity is never used twice.
//!
//! **The lease.** Each SEQUENCE renews it: one store, and only if the second has changed. A client whose lease has run out is
//! *courteous* ([`Claims::park`](weir_vfs::claims::Claims::park)): it keeps its claims until one is in the way of a
//! request, or until memory is short, and then loses all.
//!
//! **Bounds.** Clients, sessions and kept replies take three quarters of the memory for claims at most. One address may have a
//! part of that memory, and of the clients; the last part is for addresses that have little. So what a host makes up keeps
//! nobody else out. When there are too many clients, those go first whose lease has run out and that have nothing. When that is
//! not enough, the oldest client without state goes of the address that has the most, for one that has less than half of that.
//!
//! **Callers** that may speak for a client: see [`Reach`].
//!
//! **Locks.** The table of clients is under one mutex, which SEQUENCE does not take; sessions are under a lock that it takes
//! for reading, unless its connection remembers the session. Nothing of the table of claims is called under either.

use super::args::{
    CREATE_SESSION, CreateSession, DESTROY_CLIENTID, DESTROY_SESSION, EXCHANGE_ID, ExchangeId,
};
use super::backchannel::flag::CB_PATH_DOWN;
use super::callback::Callback;
use super::kept::Record;
use super::offload::Offload;
use super::protect::{MACHINE_MAY, MACHINE_MUST, MachineOps, Principal, Protect, is_protected};
use super::reach::Reach;
use super::remembered::ConnInfo;
use super::session::{self, Session};
use super::state::{DELEGATIONS, StateCounts, States};
use super::status::Status;
use super::types::SessionId;
use crate::rpc::message::Credential;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_base::{Budget, Reservation, Rng};
use weir_vfs::claims::{self, LITTLE, Owner, RESERVE, ServiceId};
use weir_vfs::grace::{Claimant, LEASE};

/// Our clients' number among the services in the table of claims.
pub const SERVICE: ServiceId = ServiceId(1);
/// Clients at most; another gets an error.
const MAX_CLIENTS: usize = 16_384;
/// Of them, clients at most that introduce themselves from one address.
const MAX_AT_ADDRESS: usize = MAX_CLIENTS / 4;
/// The part of the memory that all clients may have: numerator and denominator.
const ALL: (usize, usize) = (3, 4);
/// One address may have this part of the memory.
const SHARE: usize = 4;
/// Clients at most that have no session yet; of more the oldest are dropped.
const MAX_UNCONFIRMED: usize = 1024;
/// Time for which a client is known whose lease has run out.
const COURTESY: Duration = Duration::from_secs(24 * 60 * 60);
/// What a client is charged besides its owner.
const CLIENT_BYTES: usize = 1024;

/// The message for a caller that is not at the client's address.
pub const IN_USE: &str = "cannot serve an NFSv4 client: its name is that of a client at another address \
                          (wait until that one has ended, or give each host its own nfs4_unique_id)";

/// `EXCHGID4_FLAG_*` (§18.35.3), of requests and replies.
mod flag {
    pub const UPDATE: u32 = 0x4000_0000;
    pub const CONFIRMED: u32 = 0x8000_0000;
    pub const NON_PNFS: u32 = 0x0001_0000;
    /// What a client may say in minor version 1, and what version 2 adds.
    pub const ASKED: u32 = 0x4007_0103;
    pub const FENCE_OPS: u32 = 0x0000_0004;
}

/// The caller of an operation that decides on a client.
pub struct Caller<'a> {
    /// The connection that the call came over.
    pub conn: &'a ConnInfo,
    /// The caller's credential.
    pub credential: &'a Credential,
    /// The monotonic time.
    pub now: Duration,
}

/// How far CREATE_SESSION has come with a client (§18.36.4).
#[derive(Default)]
struct Creation {
    /// The number of the last one; the next must be one more.
    sequence: u32,
    /// Its result, for a retransmission.
    reply: Option<Box<[u8]>>,
}

/// See the module's head.
pub struct Client {
    /// The client id, unique over restarts of the server.
    pub id: u64,
    /// Its name for itself.
    pub owner: Arc<[u8]>,
    /// Which run of the client.
    verifier: [u8; 8],
    principal: Principal,
    /// What its machine alone may ask for, and may ask for in place of users (SP4_MACH_CRED), if it wanted that.
    pub machine: Option<MachineOps>,
    /// Where it introduced itself: its memory and its limits are counted there, over all its addresses.
    pub address: IpAddr,
    /// From where it is reached.
    pub(super) reach: Mutex<Reach>,
    /// A caller elsewhere was refused, and that was logged.
    reported: AtomicBool,
    /// What the table of claims knows it as.
    pub claims: claims::Client,
    /// As which it holds its delegations there.
    pub own: Owner,
    /// What SEQUENCE says of it: bits of `sr_status_flags`.
    pub status: AtomicU32,
    /// Its sessions that have a back channel.
    pub backs: Mutex<Vec<Weak<Session>>>,
    /// What it is to be asked or notified of when it has a back channel.
    pub due: Mutex<Vec<Callback>>,
    /// Calls reach it over one of its sessions.
    callable: AtomicBool,
    confirmed: AtomicBool,
    /// It lost what it had while its lease had run out.
    expired: AtomicBool,
    /// Whether its lease had run out when that was last checked.
    courteous: AtomicBool,
    /// The last sign of life, in seconds on the monotonic clock.
    renewed: AtomicU64,
    /// It claims nothing any more of what it had before the restart.
    pub reclaimed: AtomicBool,
    /// The name that it keeps over restarts.
    pub recorded: Arc<[u8]>,
    /// Its record, once there is one.
    pub(super) record: Mutex<Option<Record>>,
    creation: Mutex<Creation>,
    /// What it has open and locked.
    pub states: RwLock<States>,
    /// What is copied for it in the background.
    pub offloads: Mutex<Vec<Arc<Offload>>>,
    /// What all that is charged.
    pub memory: Mutex<Reservation>,
}

impl Client {
    /// A client without a name that it keeps over restarts, and without anything else.
    fn new(id: u64, owner: Arc<[u8]>, address: IpAddr, memory: Reservation) -> Client {
        let claims = claims::Client {
            service: SERVICE,
            address,
            name: Arc::from(id.to_be_bytes()),
        };
        let own = Owner {
            client: claims.clone(),
            who: DELEGATIONS.clone(),
            shown: Arc::default(),
        };
        Client {
            id,
            owner,
            verifier: [0; 8],
            principal: Principal::NONE,
            machine: None,
            address,
            reach: Mutex::new(Reach::at(address)),
            reported: AtomicBool::new(false),
            claims,
            own,
            status: AtomicU32::new(0),
            backs: Mutex::default(),
            due: Mutex::default(),
            callable: AtomicBool::new(false),
            confirmed: AtomicBool::new(false),
            expired: AtomicBool::new(false),
            courteous: AtomicBool::new(false),
            renewed: AtomicU64::new(0),
            reclaimed: AtomicBool::new(false),
            recorded: Arc::default(),
            record: Mutex::default(),
            creation: Mutex::default(),
            states: RwLock::new(States::new((id >> 32) as u32, id as u32)),
            offloads: Mutex::default(),
            memory: Mutex::new(memory),
        }
    }

    /// WRONG_CRED for an operation that only its machine may ask for, by another principal or unprotected (§2.10.8.3).
    pub fn may_ask(&self, operation: u32, credential: &Credential) -> Result<(), Status> {
        match &self.machine {
            Some(ops) if ops.must.has(operation) && !self.is_machine(credential) => {
                Err(Status::WrongCred)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a caller must not speak for the client: it is alive at another address. The first such caller is
    /// logged.
    fn is_kept_from(&self, caller: &Caller<'_>) -> bool {
        let proven =
            self.principal.is_proven() && self.principal == Principal::of(caller.credential);
        let kept =
            !proven && self.idle(caller.now) < LEASE && self.reach.lock().is_elsewhere(caller.conn);
        if kept && !self.reported.swap(true, Ordering::Relaxed) {
            let (name, at) = (String::from_utf8_lossy(&self.owner), self.address);
            let from = caller.conn.address();
            tracing::warn!(%from, ?name, %at, "{}", IN_USE);
        }
        kept
    }

    /// Whether a credential is that of the client's machine.
    pub fn is_machine(&self, credential: &Credential) -> bool {
        is_protected(credential) && self.principal == Principal::of(credential)
    }

    /// Whether calls reach it over one of its sessions, as far as is known.
    pub fn is_callable(&self) -> bool {
        self.callable.load(Ordering::Relaxed)
    }

    /// Takes note of whether calls reach it, and whether any back channel has a connection.
    pub fn note_path(&self, callable: bool, connected: bool) {
        self.callable.store(callable, Ordering::Relaxed);
        match connected {
            true => self.status.fetch_and(!CB_PATH_DOWN, Ordering::Relaxed),
            false => self.status.fetch_or(CB_PATH_DOWN, Ordering::Relaxed),
        };
    }

    /// The lease begins anew.
    pub fn renew(&self, now: Duration) {
        let now = now.as_secs();
        if self.renewed.load(Ordering::Relaxed) != now {
            self.renewed.store(now, Ordering::Relaxed);
        }
    }

    fn idle(&self, now: Duration) -> Duration {
        let renewed = Duration::from_secs(self.renewed.load(Ordering::Relaxed));
        now.saturating_sub(renewed)
    }

    /// Whether it was courteous, which it is no more.
    pub fn comes_back(&self) -> bool {
        self.courteous.load(Ordering::Relaxed) && self.courteous.swap(false, Ordering::AcqRel)
    }

    /// Whether its lease had run out when that was last checked, and it has not come back.
    pub fn is_courteous(&self) -> bool {
        self.courteous.load(Ordering::Acquire)
    }

    /// It lost what it had.
    pub fn expire(&self) {
        self.expired.store(true, Ordering::Release);
    }

    /// Whether it lost what it had.
    pub fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }

    /// What it has open and locked, to enter a claim with: what ends the client releases all that was entered under this lock, and
    /// nothing is entered behind it.
    ///
    /// # Errors
    /// EXPIRED if it has lost what it had.
    pub fn claiming(&self) -> Result<RwLockWriteGuard<'_, States>, Status> {
        let states = self.states.write();
        match self.is_expired() {
            true => Err(Status::Expired),
            false => Ok(states),
        }
    }

    /// The claimant of what the client had before the restart.
    pub fn claimant(&self) -> Claimant {
        Claimant {
            service: SERVICE,
            name: Arc::clone(&self.recorded),
        }
    }
}

/// What EXCHANGE_ID returns.
pub struct Introduced {
    /// The client id, new or known before.
    pub client: u64,
    /// The number that the next CREATE_SESSION must have.
    pub sequence: u32,
    /// `eir_flags`: bits of `EXCHGID4_FLAG_*`.
    pub flags: u32,
    /// Which operations SP4_MACH_CRED holds for, if it was granted.
    pub machine: Option<MachineOps>,
    /// The client that had the owner's name, and nothing in use under it.
    pub replaced: Option<Arc<Client>>,
}

#[derive(Default)]
struct Table {
    clients: HashMap<u64, Arc<Client>>,
    /// By owner: confirmed ones.
    confirmed: HashMap<Arc<[u8]>, u64>,
    /// By owner: those that are not.
    unconfirmed: HashMap<Arc<[u8]>, u64>,
    /// How many there are at each address.
    at: HashMap<IpAddr, usize>,
    next: u32,
}

impl Table {
    fn confirmed(&self, owner: &[u8]) -> Option<Arc<Client>> {
        self.clients.get(self.confirmed.get(owner)?).cloned()
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Client>> {
        let client = self.clients.remove(&id)?;
        if let Entry::Occupied(mut count) = self.at.entry(client.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        for index in [&mut self.confirmed, &mut self.unconfirmed] {
            if index.get(&client.owner) == Some(&id) {
                index.remove(&client.owner);
            }
        }
        Some(client)
    }

    fn insert(&mut self, client: Client) {
        *self.at.entry(client.address).or_default() += 1;
        self.clients.insert(client.id, Arc::new(client));
    }

    /// Whether there is no room for another client at an address.
    fn is_full(&self, address: IpAddr) -> bool {
        self.clients.len() >= MAX_CLIENTS || self.is_full_at(address)
    }

    fn is_full_at(&self, address: IpAddr) -> bool {
        self.at
            .get(&address)
            .is_some_and(|count| *count >= MAX_AT_ADDRESS)
    }

    /// The unconfirmed client that has to go for one at an address: the oldest of that address, if there is one.
    fn oldest_unconfirmed(&self, address: IpAddr) -> Option<u64> {
        let there = |id: &&u64| self.clients.get(id).is_some_and(|c| c.address == address);
        let ids = self.unconfirmed.values();
        let oldest = ids.clone().filter(there).min();
        oldest.or_else(|| ids.min()).copied()
    }

    /// Makes room for a client at an address by removing the one that has been silent for the longest time, of those whose
    /// lease has run out and that have nothing.
    fn make_room(&mut self, address: IpAddr, now: Duration) -> Option<Arc<Client>> {
        let here = self.is_full_at(address);
        let clients = self.clients.values();
        let idle = clients.filter(|c| {
            let reach = !here || c.address == address;
            reach && c.idle(now) >= LEASE && c.states.read().is_empty()
        });
        let oldest = idle.min_by_key(|c| c.renewed.load(Ordering::Relaxed));
        let of_most = || {
            let count = |at: &IpAddr| self.at.get(at).copied().unwrap_or(0);
            self.oldest_of_greediest(address, &count)
        };
        let oldest = oldest.or_else(|| if here { None } else { of_most() })?;
        let id = oldest.id;
        self.remove(id)
    }

    /// Returns the oldest client without state of the address that has the most, if that is more than twice as much as
    /// `address` has.
    fn oldest_of_greediest(
        &self,
        address: IpAddr,
        has: &dyn Fn(&IpAddr) -> usize,
    ) -> Option<&Arc<Client>> {
        let most = 2 * has(&address);
        if self.at.keys().all(|at| has(at) <= most) {
            return None;
        }
        let clients = self.clients.values();
        let stateless = clients.filter(|c| has(&c.address) > most && c.states.read().is_empty());
        stateless.max_by_key(|c| (has(&c.address), std::cmp::Reverse(c.id)))
    }
}

/// Makes of an owner what is recorded of it.
type Recorded = dyn Fn(&[u8]) -> Box<[u8]> + Send + Sync;

/// A session that was made, or made before by the same request.
pub struct Created {
    /// The encoded result, which a retransmission gets again.
    pub reply: Box<[u8]>,
    /// The client whose place this one takes.
    pub replaced: Option<Arc<Client>>,
    /// The session, if it is new.
    pub session: Option<Arc<Session>>,
}

/// How many clients and sessions there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients whose leases run.
    pub clients: usize,
    /// Clients that keep what they have although their leases have run out.
    pub courteous: usize,
    /// Sessions of all clients.
    pub sessions: usize,
    /// Slots of all sessions.
    pub slots: u64,
    /// What all clients have open, locked and delegated.
    pub states: StateCounts,
}

/// All clients and sessions.
pub struct Registry {
    /// Which start of the server.
    pub start: u32,
    /// Bytes that all clients may have.
    budget: Arc<Budget>,
    /// Bytes of it that those at an address may have.
    share: usize,
    /// Bytes that are left to addresses that have little.
    reserve: usize,
    rng: Arc<dyn Rng>,
    /// Makes the name that an owner keeps over restarts.
    recorded: Box<Recorded>,
    table: Mutex<Table>,
    /// What each address may have, of those that have something.
    shares: Mutex<HashMap<IpAddr, Weak<Budget>>>,
    sessions: RwLock<HashMap<SessionId, Arc<Session>>>,
}

/// What time has done to clients.
#[derive(Default)]
pub struct Passed {
    /// Their lease has run out.
    pub courteous: Vec<Arc<Client>>,
    /// They are forgotten, with all they had.
    pub gone: Vec<Arc<Client>>,
}

impl Registry {
    /// A registry without clients.
    pub fn new(
        budget: Arc<Budget>,
        rng: Arc<dyn Rng>,
        recorded: impl Fn(&[u8]) -> Box<[u8]> + Send + Sync + 'static,
    ) -> Registry {
        let total = budget.total();
        let (part, parts) = ALL;
        Registry {
            share: total / SHARE,
            reserve: total / RESERVE,
            // Never 0, so that no identity is that of a special stateid.
            start: rng.next_u64() as u32 | 1,
            budget: Budget::part_of(&budget, total / parts * part),
            rng,
            recorded: Box::new(recorded),
            table: Mutex::default(),
            shares: Mutex::default(),
            sessions: RwLock::default(),
        }
    }

    /// What the clients at an address may have together.
    fn share(&self, address: IpAddr) -> Arc<Budget> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(&address).and_then(Weak::upgrade) {
            return share;
        }
        if shares.len() >= MAX_CLIENTS {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Budget::share_of(&self.budget, self.share, LITTLE, self.reserve);
        shares.insert(address, Arc::downgrade(&share));
        share
    }

    /// Takes out the client that gives way for one at an address, since there is no memory: see the module's head. The caller
    /// ends it.
    pub fn give_way(&self, address: IpAddr) -> Option<Arc<Client>> {
        let shares: HashMap<IpAddr, usize> = {
            let shares = self.shares.lock();
            let used = |share: &Weak<Budget>| share.upgrade().map_or(0, |share| share.used());
            shares
                .iter()
                .map(|(at, share)| (*at, used(share)))
                .collect()
        };
        let has = |at: &IpAddr| shares.get(at).copied().unwrap_or(0);
        let mut table = self.table.lock();
        let id = table.oldest_of_greediest(address, &has)?.id;
        let gone = table.remove(id);
        drop(table);
        gone.inspect(|client| self.end_sessions(client))
    }

    /// Clients, sessions and slots at this moment.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let clients: Vec<Arc<Client>> = self.table.lock().clients.values().cloned().collect();
        for client in clients {
            match client.is_courteous() {
                true => counts.courteous += 1,
                false => counts.clients += 1,
            }
            let states = client.states.read().counts();
            counts.states.opens += states.opens;
            counts.states.lock_owners += states.lock_owners;
            counts.states.delegations += states.delegations;
            counts.states.revoked += states.revoked;
        }
        for session in self.sessions.read().values() {
            counts.sessions += 1;
            counts.slots += u64::from(session.slots.count());
        }
        counts
    }

    /// The session of a request, taken out of the connection's memory or found in the table. It is put there again with the reply:
    /// so the requests of one session write no counter of references, which its other connections' cores would have to fetch.
    /// With true if the client is seen at an address for the first time.
    pub fn take_session(&self, conn: &ConnInfo, id: &SessionId) -> Option<(Arc<Session>, bool)> {
        let mut remembered = conn.state.session.borrow_mut();
        match remembered.take_if(|session| session.id == *id && !session.is_dead()) {
            Some(session) => Some((session, false)),
            None => {
                let session = self.sessions.read().get(id).cloned()?;
                let moved = session.client.reach.lock().add(conn);
                Some((session, moved))
            }
        }
    }

    /// A session, by the connection's memory or the table.
    pub fn session(&self, conn: &ConnInfo, id: &SessionId) -> Option<Arc<Session>> {
        if let Some(session) = conn.state.session.borrow().as_ref()
            && session.id == *id
            && !session.is_dead()
        {
            return Some(Arc::clone(session));
        }
        let session = self.sessions.read().get(id).cloned()?;
        *conn.state.session.borrow_mut() = Some(Arc::clone(&session));
        Some(session)
    }

    /// All sessions.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().values().cloned().collect()
    }

    /// A client by its id.
    pub fn client(&self, id: u64) -> Option<Arc<Client>> {
        self.table.lock().clients.get(&id).cloned()
    }

    /// All clients.
    pub fn clients(&self) -> Vec<Arc<Client>> {
        self.table.lock().clients.values().cloned().collect()
    }

    /// EXCHANGE_ID (§18.35.4).
    ///
    /// # Errors
    /// INVAL, NOENT, NOT_SAME, PERM, CLID_INUSE, WRONG_CRED, DELAY.
    pub fn exchange_id(
        &self,
        minor: u32,
        args: &ExchangeId<'_>,
        caller: &Caller<'_>,
    ) -> Result<Introduced, Status> {
        let (credential, now, address) = (caller.credential, caller.now, caller.conn.address());
        let asked = match minor {
            1 => flag::ASKED,
            _ => flag::ASKED | flag::FENCE_OPS,
        };
        if args.flags & !asked != 0 {
            return Err(Status::Inval);
        }
        let machine = match args.protect {
            Protect::None => None,
            // What can be changed on the way could be given other operations.
            Protect::Machine(_) if !is_protected(credential) => return Err(Status::Inval),
            Protect::Machine(asked) => Some(MachineOps {
                must: asked.must.and(&MACHINE_MUST),
                may: asked.may.and(&MACHINE_MAY),
            }),
            Protect::Ssv => return Err(Status::EncrAlgUnsupp),
        };
        let principal = Principal::of(credential);
        let mut table = self.table.lock();
        let known = table.confirmed(args.owner);
        let update = args.flags & flag::UPDATE != 0;
        let mut takes_over = None;
        match (&known, update) {
            (None, true) => return Err(Status::NoEnt),
            (Some(c), true) if c.verifier != args.verifier => return Err(Status::NotSame),
            (Some(c), true) if c.principal != principal => return Err(Status::Perm),
            (Some(c), false) if c.principal != principal => {
                let in_use = c.idle(now) < LEASE && self.in_use(c);
                if in_use {
                    return Err(Status::ClidInUse);
                }
                takes_over = Some(c.id);
            }
            _ => {}
        }
        let same = |c: &Client| c.verifier == args.verifier && c.principal == principal;
        if known
            .as_ref()
            .is_some_and(|c| !same(c) && c.is_kept_from(caller))
        {
            return Err(Status::ClidInUse);
        }
        if let Some(c) = known.filter(|c| same(c)) {
            c.may_ask(EXCHANGE_ID, credential)?;
            // What was begun and not confirmed is given up (§18.35.4, case 2).
            if let Some(other) = table.unconfirmed.get(args.owner).copied() {
                table.remove(other);
            }
            return Ok(Introduced {
                client: c.id,
                sequence: c.creation.lock().sequence.wrapping_add(1),
                flags: flag::NON_PNFS | flag::CONFIRMED,
                machine: c.machine,
                replaced: None,
            });
        }
        if let Some(other) = table.unconfirmed.get(args.owner).copied() {
            table.remove(other);
        }
        if table.unconfirmed.len() >= MAX_UNCONFIRMED {
            let oldest = table.oldest_unconfirmed(address);
            oldest.and_then(|id| table.remove(id));
        }
        let memory = self
            .share(address)
            .try_reserve(CLIENT_BYTES + args.owner.len());
        let memory = memory.ok_or(Status::Delay)?;
        // Nothing fails behind this: what is taken out here is ended by the caller.
        let replaced = match takes_over {
            Some(id) => table.remove(id),
            None if table.is_full(address) => {
                Some(table.make_room(address, now).ok_or(Status::Delay)?)
            }
            None => None,
        };
        table.next += 1;
        let id = u64::from(self.start) << 32 | u64::from(table.next);
        let owner: Arc<[u8]> = args.owner.into();
        let client = Client {
            verifier: args.verifier,
            principal,
            machine,
            renewed: AtomicU64::new(now.as_secs()),
            recorded: (self.recorded)(args.owner).into(),
            ..Client::new(id, Arc::clone(&owner), address, memory)
        };
        client.reach.lock().add(caller.conn);
        table.insert(client);
        table.unconfirmed.insert(owner, id);
        Ok(Introduced {
            client: id,
            sequence: 1,
            flags: flag::NON_PNFS,
            machine,
            replaced,
        })
    }

    /// Whether a client has a session or state.
    fn in_use(&self, client: &Client) -> bool {
        let sessions = self.sessions.read();
        let mut sessions = sessions.values();
        !client.states.read().is_empty() || sessions.any(|s| s.client.id == client.id)
    }

    /// CREATE_SESSION (§18.36.4).
    ///
    /// # Errors
    /// STALE_CLIENTID, WRONG_CRED, SEQ_MISORDERED, CLID_INUSE, TOOSMALL, DELAY.
    pub fn create_session(
        &self,
        args: &CreateSession<'_>,
        caller: &Caller<'_>,
        minor: u32,
        encode: impl FnOnce(&Session) -> Vec<u8>,
    ) -> Result<Created, Status> {
        let (credential, now) = (caller.credential, caller.now);
        let client = self.client(args.client).ok_or(Status::StaleClientId)?;
        client.may_ask(CREATE_SESSION, credential)?;
        // A result that was sent before names a session: it is for the same caller alone.
        if client.principal != Principal::of(credential) || client.is_kept_from(caller) {
            return Err(Status::ClidInUse);
        }
        let known = self.table.lock().confirmed(&client.owner);
        if let Some(old) = known.filter(|old| old.id != client.id) {
            // It may have come back since this one introduced itself.
            let others = || old.principal != client.principal;
            let in_use = || old.idle(now) < LEASE && self.in_use(&old);
            if old.is_kept_from(caller) || (others() && in_use()) {
                return Err(Status::ClidInUse);
            }
        }
        let mut creation = client.creation.lock();
        if args.sequence == creation.sequence {
            let reply = creation.reply.clone().ok_or(Status::SeqMisordered)?;
            return Ok(Created {
                reply,
                replaced: None,
                session: None,
            });
        }
        if args.sequence != creation.sequence.wrapping_add(1) {
            return Err(Status::SeqMisordered);
        }
        if args.flags & !7 != 0 {
            return Err(Status::Inval);
        }
        let mut id = [0; 16];
        let (left, right) = id.split_at_mut(8);
        left.copy_from_slice(&client.id.to_be_bytes());
        right.copy_from_slice(&self.rng.next_u64().to_be_bytes());
        let share = self.share(client.address);
        let session = Arc::new(Session::new(id, &client, args, minor, &share)?);
        let reply: Box<[u8]> = encode(&session).into();
        creation.sequence = args.sequence;
        creation.reply = Some(reply.clone());
        drop(creation);
        let replaced = {
            let mut table = self.table.lock();
            if !table.clients.contains_key(&client.id) {
                return Err(Status::StaleClientId);
            }
            match client.confirmed.swap(true, Ordering::AcqRel) {
                true => None,
                false => {
                    table.unconfirmed.remove(&client.owner);
                    let owner = Arc::clone(&client.owner);
                    let old = table.confirmed.insert(owner, client.id);
                    old.and_then(|old| table.remove(old))
                }
            }
        };
        if let Some(old) = &replaced {
            self.end_sessions(old);
        }
        client.renew(now);
        client.reach.lock().add(caller.conn);
        if session.back.is_asked() {
            let mut backs = client.backs.lock();
            backs.retain(|s| s.strong_count() > 0);
            backs.push(Arc::downgrade(&session));
        }
        self.sessions.write().insert(id, Arc::clone(&session));
        Ok(Created {
            reply,
            replaced,
            session: Some(session),
        })
    }

    /// A session of before the restart for one request that was sent again, and for nothing else: it is in no table, and its client
    /// has no claims.
    ///
    /// # Errors
    /// DELAY if there is no memory.
    pub fn session_that_was(&self, id: SessionId, address: IpAddr) -> Result<Arc<Session>, Status> {
        let share = self.share(address);
        let memory = share.try_reserve(CLIENT_BYTES);
        let memory = memory.ok_or(Status::Delay)?;
        let number = session::client_of(&id);
        let client = Arc::new(Client::new(number, Arc::default(), address, memory));
        let asked = session::as_asked(&client);
        Ok(Arc::new(Session::new(id, &client, &asked, 2, &share)?))
    }

    fn end_sessions(&self, client: &Client) {
        self.sessions.write().retain(|_, session| {
            let stays = session.client.id != client.id;
            if !stays {
                session.end();
            }
            stays
        });
    }

    /// DESTROY_SESSION (§18.37). `slot`: in which the request itself came over that session.
    ///
    /// # Errors
    /// BADSESSION, WRONG_CRED, CONN_NOT_BOUND_TO_SESSION; DELAY while requests are under way.
    pub fn destroy_session(
        &self,
        id: &SessionId,
        slot: Option<u32>,
        caller: &Caller<'_>,
    ) -> Result<Arc<Session>, Status> {
        let mut sessions = self.sessions.write();
        let session = sessions.get(id).ok_or(Status::BadSession)?;
        session.client.may_ask(DESTROY_SESSION, caller.credential)?;
        if session.client.is_kept_from(caller) {
            return Err(Status::ConnNotBound);
        }
        if session.slots.busy_beside(slot) {
            return Err(Status::Delay);
        }
        session.end();
        sessions.remove(id).ok_or(Status::BadSession)
    }

    /// DESTROY_CLIENTID (§18.50).
    ///
    /// # Errors
    /// STALE_CLIENTID, WRONG_CRED, CLIENTID_BUSY.
    pub fn destroy_client(&self, id: u64, caller: &Caller<'_>) -> Result<Arc<Client>, Status> {
        let mut table = self.table.lock();
        let client = table.clients.get(&id).ok_or(Status::StaleClientId)?;
        client.may_ask(DESTROY_CLIENTID, caller.credential)?;
        if self.in_use(client) || client.is_kept_from(caller) {
            return Err(Status::ClientIdBusy);
        }
        table.remove(id).ok_or(Status::StaleClientId)
    }

    /// Forgets a client and its sessions.
    pub fn remove(&self, client: &Client) {
        self.table.lock().remove(client.id);
        self.end_sessions(client);
    }

    /// Checks all leases at the time `now`; about once a second.
    pub fn tick(&self, now: Duration) -> Passed {
        let mut passed = Passed::default();
        let mut table = self.table.lock();
        for client in table.clients.values() {
            let idle = client.idle(now);
            let confirmed = client.confirmed.load(Ordering::Acquire);
            match () {
                () if idle < LEASE && !client.is_expired() => {}
                () if !confirmed || client.is_expired() || idle >= COURTESY => {
                    passed.gone.push(Arc::clone(client));
                }
                () if !client.courteous.swap(true, Ordering::AcqRel) => {
                    passed.courteous.push(Arc::clone(client));
                }
                () => {}
            }
        }
        for client in &passed.gone {
            table.remove(client.id);
        }
        drop(table);
        passed.gone.iter().for_each(|c| self.end_sessions(c));
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_lost_what_it_had_claims_nothing() {
        let budget = Budget::new(1 << 20);
        let memory = budget.try_reserve(CLIENT_BYTES).unwrap();
        let address = IpAddr::from([10, 0, 0, 1]);
        let client = Client::new(1, Arc::default(), address, memory);
        assert!(client.claiming().is_ok());
        client.expire();
        assert_eq!(client.claiming().err(), Some(Status::Expired));
    }
}
