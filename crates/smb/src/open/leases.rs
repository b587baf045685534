//! Leases and oplocks (MS-SMB2 §3.3.1.12, §3.3.4.6, §3.3.4.7, §3.3.5.9.8, §3.3.5.9.11, §3.3.5.22),
//! which let clients cache.
//!
//! The table of claims ([`weir_vfs::claims`]) decides what may be cached. It grants R, W and H to a
//! holder, and takes them away when another client, over any protocol, does something that they
//! exclude. This module translates that to SMB. A *lease* is held by all opens of a client under
//! one key. An *oplock* is held by one open, and is one of three sets: II is R, exclusive is RW,
//! batch is RWH. A broken oplock is II or none, so any other right ends with the answer.
//!
//! A break is sent on a connection of a session that has the file open, the newest that takes it. A
//! holder without a connection gives up everything at once. If all connections are full, the break
//! waits for room: a client that was not asked may still rely on its cache, and no other proceeds
//! before the client has answered or its time is over. Breaks are neither signed nor encrypted, and
//! have no message number.
//!
//! A client with a persistent open may come back ([`crate::open::persistent`]). A break waits for
//! it while it has no connection, and is sent to the session that takes the open over.

pub use crate::open::caching::LeaseRequest;
pub use crate::open::caching::level;
use crate::open::caching::{
    BREAK_IN_PROGRESS, PARENT_KEY_SET, directory_holder, from_wire, lease_break, level_of,
    of_level, oplock_break, to_wire,
};
use crate::open::durable::Durables;
use crate::open::line::Line;
use crate::open::persistent::Persistents;
use crate::open::session::{Open, Session};
use crate::open::waits::Waits;
use crate::proto::status::Status;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use weir_auth::wire::Put;
use weir_vfs::claims::{Actor, CacheRights, Client, Event, Kind, Notice, Owner, OwnerId, Style};
use weir_vfs::{FileId, Vfs};

/// Mutexes that leases and holders are dealt to.
const SHARDS: usize = 32;

/// Name by which a client's lease is found: the ClientGuid and the LeaseKey.
type Name = ([u8; 16], [u8; 16]);

#[derive(Default)]
struct LeaseState {
    /// Opens under it.
    opens: usize,
    /// Sessions of these opens, without those that have ended.
    sessions: Vec<Weak<Session>>,
    granted: CacheRights,
    /// The rights that remain after the break in progress.
    breaking: Option<CacheRights>,
    epoch: u16,
    /// Opens under it that are persistent.
    persistent: usize,
    /// True for a lease from before the start, which may have more rights than its client had.
    restored: bool,
}

/// A lease.
pub struct Lease {
    name: Name,
    /// Its holder in the table of claims.
    owner: Owner,
    file: FileId,
    /// Version 2 only: the key of the directory's lease, if the client has one.
    second: Option<Option<[u8; 16]>>,
    state: Mutex<LeaseState>,
}

/// The oplock of one open.
pub struct Oplock {
    number: u64,
    owner: Owner,
    file: FileId,
    session: Mutex<Weak<Session>>,
    state: Mutex<OplockState>,
}

#[derive(Default)]
struct OplockState {
    level: u8,
    /// The level to which it is being broken.
    breaking: Option<u8>,
    over: bool,
    /// Its open is persistent.
    persistent: bool,
}

/// The lease or oplock of a holder in the table of claims.
#[derive(Clone)]
enum Holder {
    Lease(Arc<Lease>),
    Oplock(Arc<Oplock>),
}

/// Sends a message that was not asked for on a connection; false if it cannot be sent now.
pub type Mail = Arc<dyn Fn(u64, Box<[u8]>) -> bool + Send + Sync>;

/// Outcome of sending a break.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendOutcome {
    Yes,
    /// The break is sent when a connection has room for it.
    Later,
    /// The client has no connection.
    No,
}

/// All leases and oplocks.
pub struct Leases {
    vfs: Weak<Vfs>,
    mail: OnceLock<Mail>,
    hasher: RandomState,
    by_name: [Mutex<HashMap<Name, Arc<Lease>>>; SHARDS],
    by_number: [Mutex<HashMap<u64, Holder>>; SHARDS],
    /// Breaks that wait for room, in order: as many as there are holders at most.
    unsent: Mutex<Vec<(Weak<Session>, Vec<u8>)>>,
    /// Locks that wait.
    pub waits: Waits,
    /// Opens without a session.
    pub durables: Durables,
    /// Opens that outlive the server.
    pub persistents: Arc<Persistents>,
}

/// The lease or oplock of an open, given up with the open.
pub enum Hold {
    /// It asked for no caching, or got none.
    Nothing,
    /// The oplock of this open alone.
    Oplock(Arc<Oplock>),
    /// The lease that all opens with the client's LeaseKey share.
    Lease(LeaseAttachment),
}

/// An open's part of a lease, given up at the latest when it is dropped.
pub struct LeaseAttachment {
    lease: Arc<Lease>,
    table: Arc<Leases>,
    left: AtomicBool,
    /// Its open is persistent.
    persistent: AtomicBool,
}

impl LeaseAttachment {
    /// The client and the key that it is held under.
    pub fn owner(&self) -> &Owner {
        &self.lease.owner
    }

    /// Returns true if `wanted` has the key and the version of this lease.
    pub fn is_the_one(&self, wanted: &LeaseRequest) -> bool {
        self.lease.name.1 == wanted.key && self.lease.second.is_some() == wanted.is_second()
    }

    fn leave(&self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            let persistent = self.persistent.load(Ordering::Relaxed);
            self.table.leave(&self.lease, persistent);
        }
    }
}

impl Drop for LeaseAttachment {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Hold {
    /// The lease, if it is one.
    pub fn lease(&self) -> Option<&LeaseAttachment> {
        match self {
            Hold::Lease(attached) => Some(attached),
            Hold::Nothing | Hold::Oplock(_) => None,
        }
    }

    /// Returns true if an open with it may outlive its connections: any conflicting access breaks
    /// the caching first, so the client is asked.
    pub fn outlives(&self) -> bool {
        match self {
            Hold::Nothing => false,
            Hold::Oplock(oplock) => {
                let state = oplock.state.lock();
                state.level == level::BATCH && state.breaking.is_none() && !state.over
            }
            Hold::Lease(attached) => {
                let state = attached.lease.state.lock();
                let after = state.breaking.unwrap_or(state.granted);
                after.any(CacheRights::HANDLE)
            }
        }
    }

    /// Its open is persistent from now on: a break waits for its client.
    pub fn persists(&self) {
        match self {
            Hold::Nothing => {}
            Hold::Oplock(oplock) => oplock.state.lock().persistent = true,
            Hold::Lease(attached) => {
                if !attached.persistent.swap(true, Ordering::Relaxed) {
                    attached.lease.state.lock().persistent += 1;
                }
            }
        }
    }

    /// Its open is ending: no more breaks are sent for its oplock, or for its lease if that has no
    /// other open. Effects of the close, such as the file's deletion, may cause a break before the
    /// caching rights are given up.
    pub fn stands_alone(&self) {
        match self {
            Hold::Nothing => {}
            Hold::Oplock(oplock) => *oplock.session.lock() = Weak::new(),
            Hold::Lease(attached) => {
                let mut state = attached.lease.state.lock();
                if state.opens == 1 {
                    state.sessions.clear();
                }
            }
        }
    }

    /// Assigns it to a session, which breaks are sent to from now on. Returns the break that could
    /// not be sent before, if there is one, to be sent to the session.
    fn belongs_to(&self, session: &Arc<Session>) -> Option<Vec<u8>> {
        match self {
            Hold::Nothing => None,
            Hold::Oplock(oplock) => {
                *oplock.session.lock() = Arc::downgrade(session);
                let breaking = oplock.state.lock().breaking;
                breaking.map(|to| oplock_break(session.id, oplock.number, to))
            }
            Hold::Lease(attached) => {
                let lease = &attached.lease;
                lease.state.lock().joins(lease, session)
            }
        }
    }
}

impl LeaseState {
    /// Adds a session with opens under the lease. Returns the break that could not be sent before,
    /// if there is one, to be sent to the session.
    fn joins(&mut self, lease: &Lease, session: &Arc<Session>) -> Option<Vec<u8>> {
        self.sessions.retain(|s| s.strong_count() > 0);
        let alive = |s: &Weak<Session>| s.upgrade().is_some_and(|s| !s.has_ended());
        let alone = !self.sessions.iter().any(alive);
        let new = Arc::downgrade(session);
        if !self.sessions.iter().any(|s| s.ptr_eq(&new)) {
            self.sessions.push(new);
        }
        let to = self.breaking.filter(|_| alone)?;
        Some(lease.message(self, to, true))
    }
}

impl Lease {
    /// The break of the lease to what is left (§2.2.23.2).
    fn message(&self, state: &LeaseState, to: CacheRights, answer: bool) -> Vec<u8> {
        let epoch = match self.second {
            Some(_) => state.epoch,
            None => 0,
        };
        lease_break(&self.name.1, epoch, (state.granted, to), answer)
    }
}

impl Leases {
    /// Starts without leases.
    pub fn new(vfs: &Arc<Vfs>, persistents: Arc<Persistents>) -> Arc<Leases> {
        Arc::new(Leases {
            vfs: Arc::downgrade(vfs),
            mail: OnceLock::new(),
            hasher: RandomState::default(),
            by_name: Default::default(),
            by_number: Default::default(),
            unsent: Mutex::default(),
            waits: Waits::default(),
            durables: Durables::default(),
            persistents,
        })
    }

    /// Breaks are sent with this from now on; before, nothing is granted.
    pub fn send_with(&self, mail: Mail) {
        let _ = self.mail.set(mail);
    }

    fn name_shard(&self, name: &Name) -> &Mutex<HashMap<Name, Arc<Lease>>> {
        &self.by_name[self.hasher.hash_one(name) as usize % SHARDS]
    }

    fn numbered(&self, number: u64) -> &Mutex<HashMap<u64, Holder>> {
        &self.by_number[number as usize % SHARDS]
    }

    /// The lease of this name for one more open of a file, made with `number` if there is none.
    ///
    /// # Errors
    /// It is of another file (§3.3.5.9.8).
    pub fn attach(
        self: &Arc<Self>,
        session: &Arc<Session>,
        (file, directory): (FileId, bool),
        wanted: &LeaseRequest,
        number: impl FnOnce() -> u64,
    ) -> Result<LeaseAttachment, Status> {
        let of = (session.negotiated.offer.guid, &session.client);
        let attached = self.attach_for(of, (file, directory), wanted, number)?;
        let mut state = attached.lease.state.lock();
        if let Some(owed) = state.joins(&attached.lease, session) {
            self.unsent.lock().push((Arc::downgrade(session), owed));
        }
        drop(state);
        Ok(attached)
    }

    /// Joins or creates a lease as [`Leases::attach`] does, for a client without a session.
    ///
    /// # Errors
    /// See [`Leases::attach`].
    pub fn attach_for(
        self: &Arc<Self>,
        (guid, client): ([u8; 16], &Client),
        (file, directory): (FileId, bool),
        wanted: &LeaseRequest,
        number: impl FnOnce() -> u64,
    ) -> Result<LeaseAttachment, Status> {
        let name = (guid, wanted.key);
        let mut leases = self.name_shard(&name).lock();
        let lease = match leases.get(&name) {
            Some(lease) if lease.file != file => return Err(Status::INVALID_PARAMETER),
            Some(lease) => Arc::clone(lease),
            None => {
                // That of a directory is held under its key, by which requests within the directory
                // know it.
                let number = (!directory).then(number);
                let owner = match number {
                    Some(number) => owner(client, number),
                    None => directory_holder(client, &wanted.key),
                };
                let lease = Arc::new(Lease {
                    name,
                    owner,
                    file,
                    second: wanted.second.map(|(parent, _)| parent),
                    state: Mutex::new(LeaseState {
                        epoch: wanted.second.map_or(0, |(_, epoch)| epoch),
                        ..LeaseState::default()
                    }),
                });
                leases.insert(name, Arc::clone(&lease));
                if let Some(number) = number {
                    let mut numbered = self.numbered(number).lock();
                    numbered.insert(number, Holder::Lease(Arc::clone(&lease)));
                }
                lease
            }
        };
        lease.state.lock().opens += 1;
        Ok(LeaseAttachment {
            lease,
            table: Arc::clone(self),
            left: AtomicBool::new(false),
            persistent: AtomicBool::new(false),
        })
    }

    /// An open under a lease is over.
    fn leave(&self, lease: &Arc<Lease>, persistent: bool) {
        let mut leases = self.name_shard(&lease.name).lock();
        let last = {
            let mut state = lease.state.lock();
            state.opens -= 1;
            state.persistent -= usize::from(persistent);
            state.opens == 0
        };
        if !last {
            return;
        }
        leases.remove(&lease.name);
        drop(leases);
        self.forget(lease.file, &lease.owner);
    }

    /// Gives up all that a holder has.
    fn forget(&self, file: FileId, owner: &Owner) {
        if let Some(number) = number_of(owner) {
            self.numbered(number).lock().remove(&number);
        }
        if let Some(vfs) = self.vfs.upgrade() {
            vfs.claims.acknowledge(file, owner, CacheRights::NONE);
        }
    }

    /// Grants an open what it asks for of its lease, as far as there is room for it; what the
    /// response says of it (§2.2.14.2.10, §2.2.14.2.11).
    pub fn grant(&self, attached: &LeaseAttachment, wanted: &LeaseRequest) -> Vec<u8> {
        let lease = &attached.lease;
        let mut state = lease.state.lock();
        // More than there is: all of it, and more. A lease that is being broken stays what it is.
        let more = wanted.caching.has(state.granted) && wanted.caching != state.granted;
        if more && state.breaking.is_none() && self.mail.get().is_some() {
            let vfs = self.vfs.upgrade();
            let granted = vfs.map_or(CacheRights::NONE, |vfs| {
                let (file, owner) = (lease.file, &lease.owner);
                vfs.claims.grant(file, owner, Kind::Lease, wanted.caching)
            });
            if granted != state.granted {
                state.granted = granted;
                state.epoch = state.epoch.wrapping_add(1);
            }
        }
        drop(state);
        self.encode_lease_context(attached)
    }

    /// Encodes the lease context of a response (§2.2.14.2.10).
    pub fn encode_lease_context(&self, attached: &LeaseAttachment) -> Vec<u8> {
        let lease = &attached.lease;
        let state = lease.state.lock();
        let mut out = Vec::with_capacity(52);
        out.put(&lease.name.1);
        out.put_u32(to_wire(state.granted));
        let mut flags = 0;
        if state.breaking.is_some() {
            flags |= BREAK_IN_PROGRESS;
        }
        let parent = lease.second.flatten();
        if parent.is_some() {
            flags |= PARENT_KEY_SET;
        }
        out.put_u32(flags);
        out.put_u64(0);
        if lease.second.is_some() {
            out.put(&parent.unwrap_or_default());
            out.put_u16(state.epoch);
            out.put_u16(0);
        }
        out
    }

    /// An oplock for an open that is in the table of claims as `owner`, as far as there is room for
    /// it. `None`: there is none.
    pub fn oplock(
        &self,
        session: &Arc<Session>,
        number: u64,
        file: FileId,
        owner: &Owner,
        wanted: u8,
    ) -> Option<Arc<Oplock>> {
        let caching = of_level(wanted);
        if caching.is_none() || self.mail.get().is_none() {
            return None;
        }
        let vfs = self.vfs.upgrade()?;
        let oplock = Arc::new(Oplock {
            number,
            owner: owner.clone(),
            file,
            session: Mutex::new(Arc::downgrade(session)),
            state: Mutex::default(),
        });
        self.numbered(number)
            .lock()
            .insert(number, Holder::Oplock(Arc::clone(&oplock)));
        let mut state = oplock.state.lock();
        let granted = vfs.claims.grant(file, owner, Kind::Lease, caching);
        state.level = level_of(granted);
        let kept = of_level(state.level);
        if kept != granted {
            vfs.claims.acknowledge(file, owner, kept);
        }
        let any = state.level != level::NONE;
        drop(state);
        if !any {
            self.numbered(number).lock().remove(&number);
        }
        any.then_some(oplock)
    }

    /// The oplock of a persistent open of before the start, in the table of claims as `owner`;
    /// [`Leases::cache_again`] grants it.
    pub fn oplock_again(&self, number: u64, file: FileId, owner: &Owner, level: u8) -> Hold {
        if of_level(level).is_none() {
            return Hold::Nothing;
        }
        let oplock = Arc::new(Oplock {
            number,
            owner: owner.clone(),
            file,
            session: Mutex::default(),
            state: Mutex::default(),
        });
        let mut numbered = self.numbered(number).lock();
        numbered.insert(number, Holder::Oplock(Arc::clone(&oplock)));
        Hold::Oplock(oplock)
    }

    /// Lets the client of an open of before the start cache again: by its oplock as much as it had
    /// (`level`), by a lease as much as others leave room for; as far as there is that room.
    pub fn cache_again(&self, hold: &Hold, level: u8) {
        let Some(vfs) = self.vfs.upgrade() else {
            return;
        };
        match hold {
            Hold::Nothing => {}
            Hold::Oplock(oplock) => {
                let (file, owner) = (oplock.file, &oplock.owner);
                let mut state = oplock.state.lock();
                let granted = vfs.claims.grant(file, owner, Kind::Lease, of_level(level));
                state.level = level_of(granted);
                let kept = of_level(state.level);
                if kept != granted {
                    vfs.claims.acknowledge(file, owner, kept);
                }
            }
            Hold::Lease(attached) => {
                let lease = &attached.lease;
                let mut state = lease.state.lock();
                state.granted =
                    vfs.claims
                        .grant(lease.file, &lease.owner, Kind::Lease, CacheRights::ALL);
                state.restored = true;
            }
        }
    }

    /// The client of an open is back, on this session.
    pub fn returns(&self, hold: &Hold, session: &Arc<Session>, wanted: Option<&LeaseRequest>) {
        if let Some(owed) = hold.belongs_to(session) {
            let mut unsent = self.unsent.lock();
            unsent.push((Arc::downgrade(session), owed));
        }
        if let (Hold::Lease(attached), Some(wanted)) = (hold, wanted) {
            self.reduce(&attached.lease, wanted);
        }
    }

    /// Leaves a lease of before the start no more than its client asks for, if nobody has had it
    /// broken since.
    fn reduce(&self, lease: &Lease, wanted: &LeaseRequest) {
        let mut state = lease.state.lock();
        if !std::mem::take(&mut state.restored) || state.breaking.is_some() {
            return;
        }
        state.granted = Kind::Lease.left(state.granted & wanted.caching, CacheRights::NONE);
        state.epoch = wanted.second.map_or(0, |(_, epoch)| epoch.wrapping_add(1));
        self.give_up(lease.file, &lease.owner, state.granted);
    }

    /// Gives up the caching rights of an open that ends.
    pub fn end(&self, hold: &Hold) {
        match hold {
            Hold::Nothing => {}
            Hold::Lease(attached) => attached.leave(),
            Hold::Oplock(oplock) => {
                let was = std::mem::replace(&mut oplock.state.lock().over, true);
                if !was {
                    self.forget(oplock.file, &oplock.owner);
                }
            }
        }
    }

    /// An open changes data or locks them: its own oplock of level II is over, as it would be if
    /// another had (MS-FSA §2.1.4.12). A lease is not broken by its own client.
    pub fn changes(&self, hold: &Hold) {
        let Hold::Oplock(oplock) = hold else {
            return;
        };
        if oplock.level() == level::II {
            self.break_oplock(oplock, CacheRights::NONE, false);
            self.give_up(oplock.file, &oplock.owner, CacheRights::NONE);
        }
    }

    /// Returns true if the client holds a lease with this key on another file.
    pub fn is_elsewhere(&self, session: &Session, file: FileId, wanted: &LeaseRequest) -> bool {
        let name = (session.negotiated.offer.guid, wanted.key);
        let leases = self.name_shard(&name).lock();
        leases.get(&name).is_some_and(|lease| lease.file != file)
    }

    /// Returns the lease or oplock that the table of claims knows as `owner`.
    fn holder(&self, owner: &Owner) -> Option<Holder> {
        match &owner.who {
            OwnerId::Opaque(key) => {
                let key = key.first_chunk::<16>().filter(|_| key.len() == 16)?;
                let guid = owner.client.name.first_chunk::<16>()?;
                let name = (*guid, *key);
                let lease = self.name_shard(&name).lock().get(&name).cloned();
                lease.map(Holder::Lease)
            }
            _ => {
                let number = number_of(owner)?;
                self.numbered(number).lock().get(&number).cloned()
            }
        }
    }

    /// News of the table of claims.
    pub fn notify(&self, notice: &Notice) {
        let (owner, to) = match notice {
            Notice::Break {
                owner, to, answer, ..
            } => (owner, Some((*to, *answer))),
            Notice::Revoked { owner, .. }
            | Notice::Lost { owner, .. }
            | Notice::Dropped { owner, .. } => (owner, None),
            // Clients of SMB cannot be asked for a size: they send what they have.
            Notice::Asked { file, .. } => {
                if let Some(vfs) = self.vfs.upgrade() {
                    let claims = &vfs.claims;
                    let _ = claims.names(*file, Actor::Stateless, Event::Read, Style::Unix);
                }
                return;
            }
            Notice::Granted(grant) => return self.waits.granted(&grant.lock),
            _ => return,
        };
        let holder = self.holder(owner);
        match (holder, to) {
            (Some(Holder::Lease(lease)), Some((to, answer))) => {
                self.break_lease(lease, to, answer);
            }
            (Some(Holder::Oplock(oplock)), Some((to, answer))) => {
                self.break_oplock(&oplock, to, answer);
            }
            (Some(Holder::Lease(lease)), None) => {
                let mut state = lease.state.lock();
                (state.granted, state.breaking) = (CacheRights::NONE, None);
                drop(state);
                self.purge(&Holder::Lease(lease));
            }
            (Some(Holder::Oplock(oplock)), None) => {
                let mut state = oplock.state.lock();
                (state.level, state.breaking) = (level::NONE, None);
                drop(state);
                self.purge(&Holder::Oplock(oplock));
            }
            (None, _) => {}
        }
        if let Notice::Lost { owner, .. } = notice {
            // Those that have a session go with it; their records at once.
            number_of(owner)
                .into_iter()
                .for_each(|open| self.persistents.lost(open));
            self.end_all(|open| open.owner == *owner);
        }
    }

    fn break_lease(&self, lease: Arc<Lease>, to: CacheRights, answer: bool) {
        let mut state = lease.state.lock();
        state.epoch = state.epoch.wrapping_add(1);
        let out = lease.message(&state, to, answer);
        match answer {
            true => state.breaking = Some(to),
            false => state.granted = to,
        }
        let sessions = state.sessions.iter().filter_map(Weak::upgrade);
        // The client of a persistent open gets it when it comes back.
        if self.send_or_queue(sessions, out) || state.persistent > 0 {
            return;
        }
        (state.granted, state.breaking) = (CacheRights::NONE, None);
        drop(state);
        let (file, owner) = (lease.file, lease.owner.clone());
        self.purge(&Holder::Lease(lease));
        self.give_up(file, &owner, CacheRights::NONE);
    }

    /// Ends the opens without a session that cache by `holder`, but for persistent ones: their
    /// client is not there to be asked.
    fn purge(&self, holder: &Holder) {
        let by = |open: &Open| match (&open.hold, holder) {
            (Hold::Lease(attached), Holder::Lease(lease)) => Arc::ptr_eq(&attached.lease, lease),
            (Hold::Oplock(own), Holder::Oplock(oplock)) => Arc::ptr_eq(own, oplock),
            _ => false,
        };
        self.end_all(|open| !open.is_persistent() && by(open));
    }

    /// Ends the opens without a session that `which` selects.
    fn end_all(&self, which: impl Fn(&Open) -> bool) {
        let gone = self.durables.take_all(which);
        if let Some(vfs) = self.vfs.upgrade() {
            gone.iter().for_each(|open| open.end(&vfs, self));
        }
    }

    fn break_oplock(&self, oplock: &Arc<Oplock>, to: CacheRights, answer: bool) {
        let mut state = oplock.state.lock();
        let to = match to.any(CacheRights::READ) {
            true => level::II,
            false => level::NONE,
        };
        match answer {
            true => state.breaking = Some(to),
            false => state.level = to,
        }
        let session = oplock.session.lock().upgrade();
        let id = session.as_ref().map_or(0, |session| session.id);
        let out = oplock_break(id, oplock.number, to);
        if self.send_or_queue(session.into_iter(), out) || state.persistent {
            return;
        }
        (state.level, state.breaking) = (level::NONE, None);
        drop(state);
        self.purge(&Holder::Oplock(Arc::clone(oplock)));
        self.give_up(oplock.file, &oplock.owner, CacheRights::NONE);
    }

    /// Leaves a holder no more than `keeps`.
    fn give_up(&self, file: FileId, owner: &Owner, keeps: CacheRights) {
        if let Some(vfs) = self.vfs.upgrade() {
            vfs.claims.acknowledge(file, owner, keeps);
        }
    }

    /// Sends a message on the newest connection of a session that takes it.
    fn send(&self, session: &Session, message: &[u8]) -> SendOutcome {
        let connections = session.channels.lock().newest_first();
        let Some(mail) = self.mail.get().filter(|_| !connections.is_empty()) else {
            return SendOutcome::No;
        };
        let takes = |on: &Arc<Line>| mail(on.id, message.into());
        match connections.iter().any(takes) {
            true => SendOutcome::Yes,
            false => SendOutcome::Later,
        }
    }

    /// Sends a break to one of these sessions, or has it wait for room; false: nobody is there.
    fn send_or_queue(
        &self,
        sessions: impl Iterator<Item = Arc<Session>>,
        message: Vec<u8>,
    ) -> bool {
        let mut full = None;
        for session in sessions {
            match self.send(&session, &message) {
                SendOutcome::Yes => return true,
                SendOutcome::Later => full = full.or(Some(session)),
                SendOutcome::No => {}
            }
        }
        let Some(session) = full else {
            return false;
        };
        let mut unsent = self.unsent.lock();
        unsent.push((Arc::downgrade(&session), message));
        true
    }

    /// Sends what waits for room: to be called about once a second.
    pub fn tick(&self) {
        let mut unsent = self.unsent.lock();
        unsent.retain(|(session, message)| {
            let session = session.upgrade();
            // A session that has ended has given up its rights, so its breaks are dropped.
            session.is_some_and(|session| self.send(&session, message) == SendOutcome::Later)
        });
    }

    /// The answer to the break of a lease (§3.3.5.22.2); what the lease is now.
    pub fn answer_lease(&self, name: Name, bits: u32) -> Result<(), Status> {
        let lease = self.name_shard(&name).lock().get(&name).cloned();
        let lease = lease.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        let mut state = lease.state.lock();
        let to = state.breaking.ok_or(Status::UNSUCCESSFUL)?;
        let keeps = from_wire(bits);
        if bits > 7 || !to.has(keeps) {
            return Err(Status::REQUEST_NOT_ACCEPTED);
        }
        state.breaking = None;
        state.granted = keeps;
        self.give_up(lease.file, &lease.owner, keeps);
        Ok(())
    }

    /// The answer to the break of an oplock (§3.3.5.22.1); what the oplock is now.
    pub fn answer_oplock(&self, oplock: &Oplock, level: u8) -> Result<u8, Status> {
        let mut state = oplock.state.lock();
        let Some(to) = state.breaking.take() else {
            return Err(match state.level {
                level::EXCLUSIVE | level::BATCH => Status::INVALID_DEVICE_STATE,
                _ => Status::INVALID_OPLOCK_PROTOCOL,
            });
        };
        let right = matches!(level, level::NONE | level::II);
        state.level = match right {
            true => level.min(to),
            false => level::NONE,
        };
        self.give_up(oplock.file, &oplock.owner, of_level(state.level));
        match right {
            true => Ok(state.level),
            false => Err(Status::INVALID_OPLOCK_PROTOCOL),
        }
    }
}

impl Oplock {
    /// Returns the current oplock level.
    pub fn level(&self) -> u8 {
        self.state.lock().level
    }
}

/// The client's owner of this number.
pub fn owner(client: &Client, number: u64) -> Owner {
    Owner {
        client: client.clone(),
        who: OwnerId::key(u128::from(number)),
        shown: Arc::default(),
    }
}

/// The number of an open or a lease.
fn number_of(owner: &Owner) -> Option<u64> {
    match owner.who {
        OwnerId::Key(0, number) => Some(number),
        _ => None,
    }
}
