//! Clients and their sessions: EXCHANGE_ID, CREATE_SESSION, the lease (RFC 8881 §2.4, §8.3, §18.35
//! to §18.37, §18.50).
//!
//! A client is identified by its owner string. The record that EXCHANGE_ID makes is *unconfirmed*
//! until CREATE_SESSION; only then does it replace the previous record of that owner. A record ends
//! when its owner comes back with another verifier (it has restarted), when the client destroys it,
//! or when its lease has expired and its claims or memory are needed by others.
//!
//! **Identities.** A client id is (start, number), so an id from an earlier start is recognised as
//! stale. A session id is the client id and a random number. An id is never reused.
//!
//! **The lease.** Each SEQUENCE renews it: one store, and only if the second has changed. A client
//! whose lease has expired is *courteous* ([`Claims::park`](weir_vfs::claims::Claims::park)). It
//! keeps its claims until one conflicts with a request, or until memory is short; then it loses all
//! of them.
//!
//! **Bounds.** Clients, sessions and kept replies take at most three quarters of the memory for
//! claims. One address may have a part of that memory, and of the clients; the last part is
//! reserved for addresses that have little. So one host, even with invented clients, cannot exclude
//! another. If there are too many clients, those without state whose lease has expired are removed
//! first. If that is not enough, the oldest client without state is removed at the address that has
//! the most, in favour of an address that has less than half of that.
//!
//! **Callers** that may act for a client: see [`Reach`].
//!
//! **Locks.** The table of clients is under one mutex, which SEQUENCE does not take. Sessions are
//! under a lock that SEQUENCE takes for reading, unless its connection remembers the session. The
//! table of claims is never called under either lock.

use super::args::{
    CREATE_SESSION, CreateSession, DESTROY_CLIENTID, DESTROY_SESSION, EXCHANGE_ID, ExchangeId,
};
use super::backchannel::flag::CB_PATH_DOWN;
use super::callback::Callback;
use super::client_records::Record;
use super::connection_cache::ConnInfo;
use super::offload::Offload;
use super::protect::{MACHINE_MAY, MACHINE_MUST, MachineOps, Principal, Protect, is_protected};
use super::reach::Reach;
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

/// Number of NFSv4's clients among the services in the table of claims.
pub const SERVICE: ServiceId = ServiceId(1);
/// Maximum number of clients; another one gets an error.
const MAX_CLIENTS: usize = 16_384;
/// Maximum number of clients that introduce themselves from one address.
const MAX_AT_ADDRESS: usize = MAX_CLIENTS / 4;
/// Part of the memory for claims that all clients may have together: numerator and denominator.
const ALL: (usize, usize) = (3, 4);
/// Divisor of the memory for claims that gives the maximum of one address.
const SHARE: usize = 4;
/// Maximum number of clients without a session; the oldest of more are dropped.
const MAX_UNCONFIRMED: usize = 1024;
/// Time for which a client is kept without a sign of life.
const COURTESY: Duration = Duration::from_secs(24 * 60 * 60);
/// Memory charged for a client besides its owner, in bytes.
const CLIENT_BYTES: usize = 1024;

/// The message for a caller that is not at the client's address.
pub const IN_USE: &str = "cannot serve an NFSv4 client: its name is that of a client at another address \
                          (wait until that one has ended, or give each host its own nfs4_unique_id)";

/// `EXCHGID4_FLAG_*` (§18.35.3), of requests and replies.
mod flag {
    pub const UPDATE: u32 = 0x4000_0000;
    pub const CONFIRMED: u32 = 0x8000_0000;
    pub const NON_PNFS: u32 = 0x0001_0000;
    /// Flags that a client may set in minor version 1; version 2 adds `FENCE_OPS`.
    pub const ASKED: u32 = 0x4007_0103;
    pub const FENCE_OPS: u32 = 0x0000_0004;
}

/// Caller of an operation on a client as a whole.
pub struct Caller<'a> {
    /// The connection that the call came over.
    pub conn: &'a ConnInfo,
    /// The caller's credential.
    pub credential: &'a Credential,
    /// The monotonic time.
    pub now: Duration,
}

/// Progress of CREATE_SESSION for a client (§18.36.4).
#[derive(Default)]
struct Creation {
    /// Number of the last one; the next must be one more.
    sequence: u32,
    /// Its result, for a retransmission.
    reply: Option<Box<[u8]>>,
}

/// See the module's head.
pub struct Client {
    /// The client id, unique over restarts of the server.
    pub id: u64,
    /// The name that it chose for itself.
    pub owner: Arc<[u8]>,
    /// Identifies this run of the client.
    verifier: [u8; 8],
    principal: Principal,
    /// Operations under SP4_MACH_CRED, if it asked for that: those that only its machine may call,
    /// and those that its machine may call in place of users.
    pub machine: Option<MachineOps>,
    /// Address from which it introduced itself. Its memory and its limits are counted there, for
    /// all its addresses.
    pub address: IpAddr,
    /// Addresses from which it is reached.
    pub(super) reach: Mutex<Reach>,
    /// True if the refusal of a caller at another address was logged.
    reported: AtomicBool,
    /// Its identity in the table of claims.
    pub claims: claims::Client,
    /// The owner of its delegations in the table of claims.
    pub own: Owner,
    /// Status flags for SEQUENCE: bits of `sr_status_flags`.
    pub status: AtomicU32,
    /// Its sessions that have a back channel.
    pub backs: Mutex<Vec<Weak<Session>>>,
    /// Calls to be sent once it has a back channel.
    pub due: Mutex<Vec<Callback>>,
    /// True if calls reach it over one of its sessions.
    callable: AtomicBool,
    confirmed: AtomicBool,
    /// True if it lost its claims after its lease had expired.
    expired: AtomicBool,
    /// True if its lease had expired at the last check.
    courteous: AtomicBool,
    /// Time of the last sign of life, in seconds on the monotonic clock.
    renewed: AtomicU64,
    /// True once it reclaims nothing from before the restart any more.
    pub reclaimed: AtomicBool,
    /// Name under which it is recorded over restarts.
    pub recorded: Arc<[u8]>,
    /// Its record, once there is one.
    pub(super) record: Mutex<Option<Record>>,
    creation: Mutex<Creation>,
    /// Its opens, locks and delegations.
    pub states: RwLock<States>,
    /// Its copies in the background.
    pub offloads: Mutex<Vec<Arc<Offload>>>,
    /// Memory charged for the client and its state.
    pub memory: Mutex<Reservation>,
}

impl Client {
    /// Creates a client without a recorded name, and without state.
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
            reach: Mutex::new(Reach::from_address(address)),
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

    /// Returns WRONG_CRED if only the client's machine may call `operation`, and the caller is
    /// another principal or unprotected (§2.10.8.3).
    pub fn may_ask(&self, operation: u32, credential: &Credential) -> Result<(), Status> {
        match &self.machine {
            Some(ops) if ops.must.contains(operation) && !self.is_machine(credential) => {
                Err(Status::WrongCred)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a caller must not act for the client, which is alive at another address. The
    /// first such caller is logged.
    fn is_kept_from(&self, caller: &Caller<'_>) -> bool {
        let proven = self.principal.is_proven()
            && self.principal == Principal::from_credential(caller.credential);
        let kept =
            !proven && self.idle(caller.now) < LEASE && self.reach.lock().is_elsewhere(caller.conn);
        if kept && !self.reported.swap(true, Ordering::Relaxed) {
            let (name, at) = (String::from_utf8_lossy(&self.owner), self.address);
            let from = caller.conn.address();
            tracing::warn!(%from, ?name, %at, "{}", IN_USE);
        }
        kept
    }

    /// Returns true if a credential may make a session: the client's own one, and once the client
    /// is confirmed any other (§18.36.4, phase 3), unless Kerberos has established the client's.
    fn may_make_session(&self, credential: &Credential) -> bool {
        self.principal == Principal::from_credential(credential)
            || (!self.principal.is_proven() && self.confirmed.load(Ordering::Acquire))
    }

    /// Returns true if a credential is that of the client's machine.
    pub fn is_machine(&self, credential: &Credential) -> bool {
        is_protected(credential) && self.principal == Principal::from_credential(credential)
    }

    /// Returns true if calls reach it over one of its sessions, as far as is known.
    pub fn is_callable(&self) -> bool {
        self.callable.load(Ordering::Relaxed)
    }

    /// Records whether calls reach it, and whether any back channel has a connection.
    pub fn note_path(&self, callable: bool, connected: bool) {
        self.callable.store(callable, Ordering::Relaxed);
        match connected {
            true => self.status.fetch_and(!CB_PATH_DOWN, Ordering::Relaxed),
            false => self.status.fetch_or(CB_PATH_DOWN, Ordering::Relaxed),
        };
    }

    /// Starts the lease anew.
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

    /// Ends its courteous state; returns true if it was courteous.
    pub fn comes_back(&self) -> bool {
        self.courteous.load(Ordering::Relaxed) && self.courteous.swap(false, Ordering::AcqRel)
    }

    /// Returns true if its lease had expired at the last check, and it has not come back.
    pub fn is_courteous(&self) -> bool {
        self.courteous.load(Ordering::Acquire)
    }

    /// Marks it as having lost its claims.
    pub fn expire(&self) {
        self.expired.store(true, Ordering::Release);
    }

    /// Returns true if it has lost its claims.
    pub fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }

    /// Locks its state, to add a claim. Ending the client releases everything that was added under
    /// this lock, and nothing can be added afterwards.
    ///
    /// # Errors
    /// EXPIRED if it has lost its claims.
    pub fn claiming(&self) -> Result<RwLockWriteGuard<'_, States>, Status> {
        let states = self.states.write();
        match self.is_expired() {
            true => Err(Status::Expired),
            false => Ok(states),
        }
    }

    /// Returns the claimant of its claims from before the restart.
    pub fn claimant(&self) -> Claimant {
        Claimant {
            service: SERVICE,
            name: Arc::clone(&self.recorded),
        }
    }
}

/// Result of EXCHANGE_ID.
pub struct ExchangeIdResult {
    /// The client id, new or known before.
    pub client: u64,
    /// The number that the next CREATE_SESSION must have.
    pub sequence: u32,
    /// `eir_flags`: bits of `EXCHGID4_FLAG_*`.
    pub flags: u32,
    /// Operations under SP4_MACH_CRED, if that was granted.
    pub machine: Option<MachineOps>,
    /// Previous client of the owner, under another principal, or one removed to make room. The
    /// caller ends it.
    pub replaced: Option<Arc<Client>>,
}

#[derive(Default)]
struct Table {
    clients: HashMap<u64, Arc<Client>>,
    /// Confirmed clients, by owner.
    confirmed: HashMap<Arc<[u8]>, u64>,
    /// Unconfirmed clients, by owner.
    unconfirmed: HashMap<Arc<[u8]>, u64>,
    /// Number of clients at each address.
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

    /// Returns true if there is no room for another client at an address.
    fn is_full(&self, address: IpAddr) -> bool {
        self.clients.len() >= MAX_CLIENTS || self.is_full_at(address)
    }

    fn is_full_at(&self, address: IpAddr) -> bool {
        self.at
            .get(&address)
            .is_some_and(|count| *count >= MAX_AT_ADDRESS)
    }

    /// Returns the unconfirmed client to remove for a new one at an address: the oldest of that
    /// address, or the oldest of all if there is none.
    fn oldest_unconfirmed(&self, address: IpAddr) -> Option<u64> {
        let there = |id: &&u64| self.clients.get(id).is_some_and(|c| c.address == address);
        let ids = self.unconfirmed.values();
        let oldest = ids.clone().filter(there).min();
        oldest.or_else(|| ids.min()).copied()
    }

    /// Makes room for a client at an address. Removes the client without state that has been silent
    /// longest, among those whose lease has expired.
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

    /// Returns the oldest client without state at the address that has the most, if that is more
    /// than twice as much as `address` has.
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

/// Returns the recorded name of an owner.
type RecordNameFn = dyn Fn(&[u8]) -> Box<[u8]> + Send + Sync;

/// A session that was created, or by an earlier copy of the request.
pub struct CreatedSession {
    /// The encoded result, which is repeated for a retransmission.
    pub reply: Box<[u8]>,
    /// The client that this one replaces.
    pub replaced: Option<Arc<Client>>,
    /// The session, if it is new.
    pub session: Option<Arc<Session>>,
}

/// Numbers of clients, sessions and their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients whose leases have not expired.
    pub clients: usize,
    /// Clients that keep their state although their leases have expired.
    pub courteous: usize,
    /// Sessions of all clients.
    pub sessions: usize,
    /// Slots of all sessions.
    pub slots: u64,
    /// State of all clients: opens, locks and delegations.
    pub states: StateCounts,
}

/// All clients and sessions.
pub struct Registry {
    /// Identifies this start of the server.
    pub start: u32,
    /// Memory that all clients may have.
    budget: Arc<Budget>,
    /// Memory that the clients at one address may have, in bytes.
    share: usize,
    /// Memory reserved for addresses that have little, in bytes.
    reserve: usize,
    rng: Arc<dyn Rng>,
    /// Returns the name under which an owner is recorded over restarts.
    recorded: Box<RecordNameFn>,
    table: Mutex<Table>,
    /// Budget of each address that has memory charged.
    shares: Mutex<HashMap<IpAddr, Weak<Budget>>>,
    sessions: RwLock<HashMap<SessionId, Arc<Session>>>,
}

/// Clients whose state a tick has changed.
#[derive(Default)]
pub struct TickOutcome {
    /// Clients whose lease has expired.
    pub courteous: Vec<Arc<Client>>,
    /// Clients that were removed, with all they had.
    pub gone: Vec<Arc<Client>>,
}

impl Registry {
    /// Creates a registry without clients.
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
            // Never 0, so that no id equals that of a special stateid.
            start: rng.next_u64() as u32 | 1,
            budget: Budget::part_of(&budget, total / parts * part),
            rng,
            recorded: Box::new(recorded),
            table: Mutex::default(),
            shares: Mutex::default(),
            sessions: RwLock::default(),
        }
    }

    /// Returns the memory budget that the clients at an address share.
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

    /// Removes the client that gives way to one at an address when memory is short: see the
    /// module's head. The caller ends it.
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

    /// Returns the current numbers of clients, sessions and slots.
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

    /// Takes the session of a request from the connection's state, or from the table. It is put
    /// back with the reply, so that requests of one session change no reference count, which would
    /// have to travel between cores. Returns true with it if the client is seen at an address for
    /// the first time.
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

    /// Returns a session, from the connection's state or the table.
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

    /// Returns all sessions.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().values().cloned().collect()
    }

    /// Returns a client by its id.
    pub fn client(&self, id: u64) -> Option<Arc<Client>> {
        self.table.lock().clients.get(&id).cloned()
    }

    /// Returns all clients.
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
    ) -> Result<ExchangeIdResult, Status> {
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
            // Unprotected arguments could be changed on the way, to name other operations.
            Protect::Machine(_) if !is_protected(credential) => return Err(Status::Inval),
            Protect::Machine(asked) => Some(MachineOps {
                must: asked.must.and(&MACHINE_MUST),
                may: asked.may.and(&MACHINE_MAY),
            }),
            Protect::Ssv => return Err(Status::EncrAlgUnsupp),
        };
        let principal = Principal::from_credential(credential);
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
            // An unconfirmed record of the owner is dropped (§18.35.4, case 2).
            if let Some(other) = table.unconfirmed.get(args.owner).copied() {
                table.remove(other);
            }
            return Ok(ExchangeIdResult {
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
        // Nothing fails from here on, so the caller gets every removed client, and ends it.
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
        Ok(ExchangeIdResult {
            client: id,
            sequence: 1,
            flags: flag::NON_PNFS,
            machine,
            replaced,
        })
    }

    /// Returns true if a client has a session or state.
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
    ) -> Result<CreatedSession, Status> {
        let (credential, now) = (caller.credential, caller.now);
        let client = self.client(args.client).ok_or(Status::StaleClientId)?;
        client.may_ask(CREATE_SESSION, credential)?;
        // An earlier result contains a session id, so no other host may get it.
        if !client.may_make_session(credential) || client.is_kept_from(caller) {
            return Err(Status::ClidInUse);
        }
        let known = self.table.lock().confirmed(&client.owner);
        if let Some(old) = known.filter(|old| old.id != client.id) {
            // The other client may have come back since this one introduced itself.
            let others = || old.principal != client.principal;
            let in_use = || old.idle(now) < LEASE && self.in_use(&old);
            if old.is_kept_from(caller) || (others() && in_use()) {
                return Err(Status::ClidInUse);
            }
        }
        let mut creation = client.creation.lock();
        if args.sequence == creation.sequence {
            let reply = creation.reply.clone().ok_or(Status::SeqMisordered)?;
            return Ok(CreatedSession {
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
        Ok(CreatedSession {
            reply,
            replaced,
            session: Some(session),
        })
    }

    /// Returns a stand-in for a session from before the restart, for one request that was sent
    /// again. It is in no table, and its client has no claims.
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

    /// DESTROY_SESSION (§18.37). `slot` is that of the request itself, if it came over that
    /// session.
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

    /// Checks all leases at the time `now`. Call it about once a second.
    pub fn tick(&self, now: Duration) -> TickOutcome {
        let mut passed = TickOutcome::default();
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
