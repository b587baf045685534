//! State of a client by stateid: opens, locks and delegations (RFC 8881 §8.2, §9).
//!
//! The claims themselves are in the table that all protocols share (`weir_vfs::claims`); a stateid
//! names an owner and a file there. Open owners and lock owners are identified there by a keyed
//! hash of their bytes, so that no table of owners is needed. A lock owner's bytes are kept with
//! its locks, for the clients that are denied a lock.
//!
//! A delegation is a grant in that table, held by the client under the key [`DELEGATIONS`].
//!
//! A revoked state has no claim any more; its stateid is kept until the client frees it (§10.2.1,
//! §8.4.2).
//!
//! A stateid is (start, client's number, number of the state), so one of another client or of an
//! earlier start is recognised. Its seqid begins at 1 and counts changes.
//!
//! A look-up takes the client's lock for reading, unless the connection remembers the state
//! ([`Recent`]). OPEN, CLOSE, LOCK and LOCKU take it for writing while they call the table of
//! claims, so that a stateid and its claim change together. The table's notices never take it.

use super::callback::CALL_BYTES;
use super::status::Status;
use super::types::StateId;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_base::Time;
use weir_vfs::FileId;
use weir_vfs::claims::{Modes, Owner, OwnerId};
use weir_vfs::grace::{FileKey, Had, Kinds};
use weir_vfs::volume::{Attr, Pin};

/// Key under which a client holds its delegations: opens and I/O of its own do not break them.
pub static DELEGATIONS: OwnerId = OwnerId::key(0);

/// Memory charged for an open besides its claim, in bytes.
pub const OPEN_BYTES: usize = 512;
/// Memory charged for a delegation besides its grant, in bytes. Includes its recall and one call to
/// its holder, which may be queued.
pub const DELEGATION_BYTES: usize = 384 + 2 * CALL_BYTES;
/// Memory charged for a lock owner's state in a file, in bytes.
pub const LOCK_BYTES: usize = 384;

/// Read bits of `share_access` and `share_deny`: OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_READ
/// (§18.16.1).
pub const READ: u32 = 1;
/// Write bits of both: OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_WRITE.
pub const WRITE: u32 = 2;

/// Converts `share_access` or `share_deny` to modes.
pub fn modes(share: u32) -> Modes {
    let mut modes = Modes::NONE;
    if share & READ != 0 {
        modes = modes | Modes::READ;
    }
    if share & WRITE != 0 {
        modes = modes | Modes::WRITE;
    }
    modes
}

/// Returns the kinds of claims that an open with these denials is.
pub fn open_kinds(deny: u32) -> Kinds {
    let reads = Kinds::READS.when(deny & READ != 0);
    Kinds::OPENS
        .or(reads)
        .or(Kinds::WRITES.when(deny & WRITE != 0))
}

/// Returns the kinds of claims that a delegation is.
pub fn delegation_kinds(write: bool) -> Kinds {
    if write {
        Kinds::WRITE_DELEGATION
    } else {
        Kinds::READ_DELEGATION
    }
}

/// The part of an open or a delegation that READ and WRITE need. It does not pin the file, so it
/// may outlive the state: a connection remembers some ([`Recent`]).
pub struct Basis {
    /// The file of the state.
    pub file: FileId,
    /// Owner in the table of claims for operations under the state.
    pub owner: Owner,
    /// `share_access` in force.
    access: AtomicU32,
    seqid: AtomicU32,
    /// True if the state was closed, returned or revoked.
    over: AtomicBool,
}

impl Basis {
    fn new(file: FileId, owner: Owner, access: u32) -> Arc<Basis> {
        Arc::new(Basis {
            file,
            owner,
            access: AtomicU32::new(access),
            seqid: AtomicU32::new(1),
            over: AtomicBool::new(false),
        })
    }

    /// Returns `share_access` in force.
    pub fn access(&self) -> u32 {
        self.access.load(Ordering::Relaxed)
    }

    /// Returns true if the state was closed, returned or revoked.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends it; returns true if it had already ended.
    fn end(&self) -> bool {
        self.over.swap(true, Ordering::AcqRel)
    }

    /// Returns true if `seqid` is the newest of the state (§8.2.2).
    fn is_newest(&self, seqid: u32) -> bool {
        seqid == 0 || seqid == self.seqid.load(Ordering::Relaxed)
    }
}

/// States of a connection's last READs and WRITEs, by stateid. A state found here needs neither the
/// lock of the client's states nor a reference count. The requests of all the client's connections
/// would write to both.
#[derive(Default)]
pub struct Recent(RefCell<Option<Box<[Option<RecentEntry>; RECENT]>>>);

/// The `other` of a stateid, and its state.
type RecentEntry = ([u8; 12], Arc<Basis>);

/// Maximum number of states that a connection remembers.
const RECENT: usize = 16;

impl Recent {
    fn slot_index(other: &[u8; 12]) -> usize {
        usize::from(other[11]) % RECENT
    }

    /// Takes the state of a stateid, if the stateid is its newest and it has not ended.
    pub fn take(&self, id: &StateId) -> Option<Arc<Basis>> {
        let mut all = self.0.borrow_mut();
        let place = all.as_mut()?.get_mut(Self::slot_index(&id.other))?;
        let found = place.take_if(|(other, _)| *other == id.other);
        let (_, basis) = found.filter(|(_, b)| !b.is_over() && b.is_newest(id.seqid))?;
        Some(basis)
    }

    /// Puts a state there, or back.
    pub fn put(&self, id: &StateId, basis: Arc<Basis>) {
        let mut all = self.0.borrow_mut();
        let all = all.get_or_insert_default();
        if let Some(place) = all.get_mut(Self::slot_index(&id.other)) {
            *place = Some((id.other, basis));
        }
    }
}

/// A clone is empty: a suspended request remembers no states.
impl Clone for Recent {
    fn clone(&self) -> Recent {
        Recent::default()
    }
}

impl std::fmt::Debug for Recent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recent")
    }
}

/// An open of a file by an open owner.
pub struct Open {
    basis: Arc<Basis>,
    /// `share_deny` in force.
    deny: AtomicU32,
    /// Set of the combinations that were opened, as bits access + 4 × deny: OPEN_DOWNGRADE may
    /// return to them.
    opened: AtomicU32,
    /// Keeps the file after it has lost its last name; `None` in snapshots.
    _pin: Option<Pin>,
    /// Numbers of the lock owners' states.
    locks: Mutex<Vec<u32>>,
}

impl Deref for Open {
    type Target = Basis;
    fn deref(&self) -> &Basis {
        &self.basis
    }
}

impl Open {
    /// Returns `share_access` and `share_deny` in force.
    pub fn shares(&self) -> (u32, u32) {
        (
            self.access.load(Ordering::Relaxed),
            self.deny.load(Ordering::Relaxed),
        )
    }

    /// Returns true if it was opened only once.
    pub fn is_new(&self) -> bool {
        self.seqid.load(Ordering::Relaxed) == 1
    }

    /// Sets the shares in force; `opened` is added to the combinations that were opened.
    fn set(&self, access: u32, deny: u32, opened: Option<(u32, u32)>) {
        self.access.store(access, Ordering::Relaxed);
        self.deny.store(deny, Ordering::Relaxed);
        if let Some((access, deny)) = opened {
            self.opened
                .fetch_or(1 << (access + 4 * deny), Ordering::Relaxed);
        }
    }

    /// Returns true if these shares are a union of some that were opened (§18.18.3).
    pub fn was_opened_as(&self, access: u32, deny: u32) -> bool {
        let opened = self.opened.load(Ordering::Relaxed);
        let within = (0..16).filter(|at| opened & 1 << at != 0);
        let within = within.map(|at| (at & 3, at >> 2));
        let within = within.filter(|(a, d)| a & !access == 0 && d & !deny == 0);
        let union = within.fold((0, 0), |(a, d), (x, y)| (a | x, d | y));
        union == (access, deny)
    }
}

/// Locks of a lock owner in a file, under an open.
pub struct Locks {
    /// The open under which it locks.
    pub open: Arc<Open>,
    /// The lock owner in the table of claims.
    pub owner: Owner,
    seqid: AtomicU32,
}

/// A delegation of a file to the client (§10.4).
pub struct Delegation {
    /// The file, and the client as the holder of the grant.
    basis: Arc<Basis>,
    /// True if the client may cache writes, too.
    pub write: bool,
    /// Change and size at the grant, as sent to the client.
    pub granted: (u64, u64),
    /// Times of access and of modification at the grant, if the client keeps the file's times from
    /// then on (RFC 9754 §5).
    times: Option<(Time, Time)>,
    /// The stateid.
    pub id: StateId,
    number: u32,
    /// Keeps the file after it has lost its last name.
    _pin: Option<Pin>,
}

impl Deref for Delegation {
    type Target = Basis;
    fn deref(&self) -> &Basis {
        &self.basis
    }
}

impl Delegation {
    /// Returns true if its holder keeps the file's times.
    pub fn has_times(&self) -> bool {
        self.times.is_some()
    }

    /// Limits the times that its holder sends at `now` (RFC 9754 §5). Times from before the grant
    /// are dropped, and future ones replaced by `now`. Returns `None` if the holder does not keep
    /// the times.
    pub fn vetted(
        &self,
        (accessed, modified): (Option<Time>, Option<Time>),
        now: Time,
    ) -> Option<(Option<Time>, Option<Time>)> {
        let (atime, mtime) = self.times?;
        let vet = |sent: Option<Time>, granted| sent.filter(|t| *t >= granted).map(|t| t.min(now));
        Some((vet(accessed, atime), vet(modified, mtime)))
    }
}

/// A state, as named by a stateid.
#[derive(Clone)]
pub enum State {
    /// A delegation.
    Delegation(Arc<Delegation>),
    /// An open, with its shares.
    Open(Arc<Open>),
    /// A lock owner's locks.
    Locks(Arc<Locks>),
}

impl State {
    fn seqid(&self) -> &AtomicU32 {
        match self {
            State::Open(open) => &open.seqid,
            State::Locks(locks) => &locks.seqid,
            State::Delegation(delegation) => &delegation.seqid,
        }
    }

    /// Returns the memory charged for it in bytes.
    fn bytes(&self) -> usize {
        match self {
            State::Open(_) => OPEN_BYTES,
            State::Locks(_) => LOCK_BYTES,
            State::Delegation(_) => DELEGATION_BYTES,
        }
    }

    /// Returns its part of the record of its client.
    fn claim(&self) -> (FileKey, Kinds) {
        let kinds = match self {
            State::Open(open) => open_kinds(open.shares().1),
            State::Locks(_) => Kinds::RANGES,
            State::Delegation(delegation) => delegation_kinds(delegation.write),
        };
        (self.file().into(), kinds)
    }

    /// Returns the file of the state.
    pub fn file(&self) -> FileId {
        match self {
            State::Open(open) => open.file,
            State::Locks(locks) => locks.open.file,
            State::Delegation(delegation) => delegation.file,
        }
    }

    /// Returns the `share_access` that it allows.
    pub fn access(&self) -> u32 {
        match self {
            State::Open(open) => open.access(),
            State::Locks(locks) => locks.open.access(),
            State::Delegation(delegation) => delegation.access(),
        }
    }

    /// Returns the owner in the table of claims for operations under the state.
    pub fn owner(&self) -> &Owner {
        match self {
            State::Open(open) => &open.owner,
            State::Locks(locks) => &locks.open.owner,
            State::Delegation(delegation) => &delegation.owner,
        }
    }

    /// Returns the part that a connection may remember.
    fn basis(&self) -> Option<&Arc<Basis>> {
        match self {
            State::Open(open) => Some(&open.basis),
            State::Delegation(delegation) => Some(&delegation.basis),
            State::Locks(_) => None,
        }
    }
}

fn stateid(start: u32, client: u32, number: u32, seqid: u32) -> StateId {
    let mut other = [0; 12];
    for (place, part) in other.chunks_exact_mut(4).zip([start, client, number]) {
        place.copy_from_slice(&part.to_be_bytes());
    }
    StateId { seqid, other }
}

/// Keys are numbers of the server, and keyed hashes of clients' data.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// State of a client: opens, locks and delegations.
pub struct States {
    start: u32,
    client: u32,
    next: u32,
    all: HashMap<u32, State>,
    opens: HashMap<(FileId, OwnerId), u32>,
    locks: HashMap<(FileId, OwnerId), u32>,
    delegations: HashMap<FileId, u32>,
    /// Revoked states that the client has not freed yet: the status that it gets, and the memory
    /// charged for the state.
    revoked: HashMap<u32, (Status, usize)>,
}

/// Number of states of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Opens.
    pub opens: usize,
    /// Lock owners with a state.
    pub lock_owners: usize,
    /// Delegations.
    pub delegations: usize,
    /// Revoked states that their clients have not freed yet.
    pub revoked: usize,
}

/// A revoked state that was freed.
pub struct FreedState {
    /// Status that the client got for it.
    pub status: Status,
    /// Memory charged for it in bytes.
    pub bytes: usize,
    /// True if other revoked states with this status remain.
    pub others: bool,
}

impl States {
    /// Returns the number of states of each kind.
    pub fn counts(&self) -> StateCounts {
        StateCounts {
            opens: self.opens.len(),
            lock_owners: self.locks.len(),
            delegations: self.delegations.len(),
            revoked: self.revoked.len(),
        }
    }

    /// Creates an empty set for the client with this number.
    pub fn new(start: u32, client: u32) -> States {
        States {
            start,
            client,
            next: 0,
            all: HashMap::default(),
            opens: HashMap::default(),
            locks: HashMap::default(),
            delegations: HashMap::default(),
            revoked: HashMap::default(),
        }
    }

    /// Marks all states as ended.
    pub fn end(&self) {
        for basis in self.all.values().filter_map(State::basis) {
            basis.end();
        }
    }

    /// Returns the claims that the client's record has to cover, with at most `most` files.
    pub fn had(&self, most: usize) -> Had {
        Had::collect(self.all.values().map(State::claim), most)
    }

    /// Returns true if there are no states.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.revoked.is_empty()
    }

    fn stateid(&self, number: u32, seqid: u32) -> StateId {
        stateid(self.start, self.client, number, seqid)
    }

    /// Returns the number of the state that a stateid names, if it is one of this client.
    fn number(&self, id: &StateId) -> Option<u32> {
        let (prefix, number) = id.other.split_at(8);
        let own = self.stateid(0, 0).other;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        (prefix == own.get(..8)?).then_some(number)
    }

    /// Returns the state that a stateid names.
    ///
    /// # Errors
    /// BAD_STATEID, OLD_STATEID, DELEG_REVOKED, ADMIN_REVOKED.
    pub fn find(&self, id: &StateId) -> Result<State, Status> {
        self.get(id).cloned()
    }

    /// Returns the part of a state that a connection may remember, or the state itself if it has
    /// none.
    ///
    /// # Errors
    /// As [`States::find`].
    pub fn find_basis(&self, id: &StateId) -> Result<Result<Arc<Basis>, State>, Status> {
        let state = self.get(id)?;
        Ok(state.basis().map(Arc::clone).ok_or_else(|| state.clone()))
    }

    fn get(&self, id: &StateId) -> Result<&State, Status> {
        let number = self.number(id).ok_or(Status::BadStateId)?;
        let Some(state) = self.all.get(&number) else {
            let revoked = self.revoked.get(&number);
            return Err(revoked.map_or(Status::BadStateId, |(status, _)| *status));
        };
        match (id.seqid, state.seqid().load(Ordering::Relaxed)) {
            (0, _) => Ok(state),
            (asked, now) if asked == now => Ok(state),
            // Comparisons wrap around (§8.2.2).
            (asked, now) if (asked.wrapping_sub(now) as i32) < 0 => Err(Status::OldStateId),
            _ => Err(Status::BadStateId),
        }
    }

    /// Returns the open of a file by an owner.
    pub fn open_of(&self, file: FileId, owner: &Owner) -> Option<Arc<Open>> {
        let number = self.opens.get(&(file, owner.who.clone()))?;
        match self.all.get(number)? {
            State::Open(open) => Some(Arc::clone(open)),
            _ => None,
        }
    }

    fn enter(&mut self, state: State) -> u32 {
        self.enter_with(|_| state)
    }

    fn enter_with(&mut self, state: impl FnOnce(u32) -> State) -> u32 {
        // Wraps around after four thousand million opens; numbers still in use are skipped.
        loop {
            self.next = self.next.wrapping_add(1);
            if let std::collections::hash_map::Entry::Vacant(place) = self.all.entry(self.next) {
                place.insert(state(self.next));
                return self.next;
            }
        }
    }

    /// Returns the stateid of a copy in the background, which is not among the states.
    pub fn id_of_copy(&mut self) -> StateId {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.all.contains_key(&self.next) {
                return self.stateid(self.next, 1);
            }
        }
    }

    /// Adds an open; returns its stateid.
    pub fn add_open(
        &mut self,
        file: FileId,
        owner: Owner,
        (access, deny): (u32, u32),
        pin: Option<Pin>,
    ) -> StateId {
        let key = (file, owner.who.clone());
        let open = Open {
            basis: Basis::new(file, owner, 0),
            deny: AtomicU32::new(0),
            opened: AtomicU32::new(0),
            _pin: pin,
            locks: Mutex::default(),
        };
        open.set(access, deny, Some((access, deny)));
        let number = self.enter(State::Open(Arc::new(open)));
        self.opens.insert(key, number);
        self.stateid(number, 1)
    }

    /// Sets the shares of an open that was opened again, or downgraded.
    pub fn change_open(
        &self,
        open: &Open,
        (access, deny): (u32, u32),
        opened: Option<(u32, u32)>,
    ) -> Result<StateId, Status> {
        let key = (open.file, open.owner.who.clone());
        let number = self.opens.get(&key).ok_or(Status::BadStateId)?;
        open.set(access, deny, opened);
        Ok(self.step(*number, &open.seqid))
    }

    fn step(&self, number: u32, seqid: &AtomicU32) -> StateId {
        let next = match seqid.load(Ordering::Relaxed).wrapping_add(1) {
            0 => 1,
            next => next,
        };
        seqid.store(next, Ordering::Relaxed);
        self.stateid(number, next)
    }

    /// Ends an open and the lock owners' states under it, which are returned.
    pub fn close(&mut self, open: &Open) -> Vec<Arc<Locks>> {
        open.end();
        let key = (open.file, open.owner.who.clone());
        if let Some(number) = self.opens.remove(&key) {
            self.all.remove(&number);
        }
        let numbers = std::mem::take(&mut *open.locks.lock());
        let ended = numbers
            .into_iter()
            .filter_map(|n| match self.all.remove(&n) {
                Some(State::Locks(locks)) => Some(locks),
                _ => None,
            });
        let ended: Vec<Arc<Locks>> = ended.collect();
        for locks in &ended {
            self.locks.remove(&(open.file, locks.owner.who.clone()));
        }
        ended
    }

    /// Returns the state of a lock owner in a file.
    pub fn locks_of(&self, file: FileId, owner: &Owner) -> Option<Arc<Locks>> {
        let number = self.locks.get(&(file, owner.who.clone()))?;
        match self.all.get(number)? {
            State::Locks(locks) => Some(Arc::clone(locks)),
            _ => None,
        }
    }

    /// Adds the state of a lock owner at its first lock of a file.
    pub fn add_locks(&mut self, open: &Arc<Open>, owner: Owner) -> StateId {
        let key = (open.file, owner.who.clone());
        let locks = Locks {
            open: Arc::clone(open),
            owner,
            seqid: AtomicU32::new(1),
        };
        let number = self.enter(State::Locks(Arc::new(locks)));
        self.locks.insert(key, number);
        open.locks.lock().push(number);
        self.stateid(number, 1)
    }

    /// Counts a change of a lock owner's locks; returns the new stateid.
    pub fn change_locks(&self, locks: &Locks) -> Result<StateId, Status> {
        let key = (locks.open.file, locks.owner.who.clone());
        let number = self.locks.get(&key).ok_or(Status::BadStateId)?;
        Ok(self.step(*number, &locks.seqid))
    }

    /// Ends the state of a lock owner without locks.
    pub fn free_locks(&mut self, locks: &Locks) {
        let key = (locks.open.file, locks.owner.who.clone());
        if let Some(number) = self.locks.remove(&key) {
            self.all.remove(&number);
            locks.open.locks.lock().retain(|n| *n != number);
        }
    }

    /// Returns the delegation of a file, unless it was revoked.
    pub fn delegation_of(&self, file: FileId) -> Option<Arc<Delegation>> {
        match self.all.get(self.delegations.get(&file)?)? {
            State::Delegation(delegation) => Some(Arc::clone(delegation)),
            _ => None,
        }
    }

    /// Returns the number of delegations that were not revoked.
    pub fn delegations(&self) -> usize {
        self.delegations.len()
    }

    /// Adds a delegation of a file without one; returns its stateid.
    pub fn add_delegation(
        &mut self,
        file: FileId,
        own: Owner,
        write: bool,
        granted: &Attr,
        times: bool,
        pin: Option<Pin>,
    ) -> StateId {
        let (start, client) = (self.start, self.client);
        let number = self.enter_with(|number| {
            State::Delegation(Arc::new(Delegation {
                basis: Basis::new(file, own, if write { READ | WRITE } else { READ }),
                write,
                granted: (granted.change, granted.size),
                times: times.then_some((granted.atime, granted.mtime)),
                id: stateid(start, client, number, 1),
                number,
                _pin: pin,
            }))
        });
        self.delegations.insert(file, number);
        self.stateid(number, 1)
    }

    /// Ends a delegation; returns false if it had ended.
    pub fn end_delegation(&mut self, delegation: &Delegation) -> bool {
        if delegation.end() {
            return false;
        }
        self.delegations.remove(&delegation.file);
        self.all.remove(&delegation.number);
        true
    }

    /// Revokes a state. The caller drops the returned state without any lock.
    fn revoke(&mut self, number: u32, status: Status) -> Option<State> {
        let state = self.all.remove(&number)?;
        if let Some(basis) = state.basis() {
            basis.end();
        }
        self.revoked.insert(number, (status, state.bytes()));
        Some(state)
    }

    /// Revokes the delegation of a file; `None` if there is none.
    pub fn revoke_delegation(&mut self, file: FileId, status: Status) -> Option<State> {
        let number = self.delegations.remove(&file)?;
        self.revoke(number, status)
    }

    /// Revokes the open or the locks of an owner in a file; `None` if it had none.
    pub fn revoke_owner(&mut self, file: FileId, owner: &Owner) -> Option<State> {
        let key = (file, owner.who.clone());
        let open = self.opens.remove(&key);
        let number = open.or_else(|| self.locks.remove(&key))?;
        let state = self.revoke(number, Status::AdminRevoked);
        if let Some(State::Locks(locks)) = &state {
            locks.open.locks.lock().retain(|n| *n != number);
        }
        state
    }

    /// Frees the stateid of a revoked state; `None` if it does not name one.
    pub fn free_revoked(&mut self, id: &StateId) -> Option<FreedState> {
        let number = self.number(id)?;
        let (status, bytes) = self.revoked.remove(&number)?;
        Some(FreedState {
            status,
            bytes,
            others: self.revoked.values().any(|(s, _)| *s == status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Ino, VolumeId};
    use weir_vfs::Namespace;
    use weir_vfs::claims::{Client, ServiceId};

    #[test]
    fn a_connection_finds_what_it_remembers_while_that_is_in_force() {
        let file = FileId {
            volume: VolumeId(1),
            ino: Ino(2),
            namespace: Namespace::Live,
        };
        let owner = Owner {
            client: Client {
                service: ServiceId(1),
                address: [10, 0, 0, 1].into(),
                name: Arc::default(),
            },
            who: OwnerId::key(7),
            shown: Arc::default(),
        };
        let (recent, basis) = (Recent::default(), Basis::new(file, owner, READ));
        let id = stateid(1, 2, 3, 0);
        recent.put(&id, Arc::clone(&basis));
        let newest = stateid(1, 2, 3, 1);
        let found = recent.take(&newest).expect("it was put there");
        assert!(recent.take(&newest).is_none(), "it was taken out");
        // A stateid with the same place, and one that is not the newest.
        for (wrong, why) in [(stateid(9, 2, 3, 1), "other"), (stateid(1, 2, 3, 2), "old")] {
            recent.put(&id, Arc::clone(&found));
            assert!(recent.take(&wrong).is_none(), "{why}");
        }
        recent.put(&id, found);
        basis.end();
        assert!(recent.take(&newest).is_none(), "it is over");
    }
}
