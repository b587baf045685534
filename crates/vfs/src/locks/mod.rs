//! One table of byte-range locks and share reservations for all protocols.
//!
//! The rules are POSIX's (fcntl): the locks of one owner on a file never conflict with each other; a new lock replaces
//! what the owner had in its range; unlocking part of a range splits it. Owners are opaque: a client, and a number or
//! bytes by which the client distinguishes its processes.
//!
//! A request that may wait is queued in the order of arrival. When a range becomes free, the requests queued for it that
//! no longer conflict are granted, in order; the caller notifies the owners. A wait that would close a cycle of owners
//! that wait for each other is refused, as far as a search of bounded length finds it (`graph`).
//!
//! **Work.** A call costs O(log n) of the locks of its file (`tree`), plus O(log n) for each own lock that it removes,
//! which an earlier call of the same owner has paid for. Queued requests are few ([`MAX_WAITING`] an address,
//! [`MAX_WAITING_FILE`] a file), and those that do not overlap what became free cost a comparison.
//!
//! **Memory.** Everything is charged, before it is allocated, to a budget and to the client's address, which may have
//! a part of it (`ledger`); what does not fit is refused ([`Verdict::Full`]). All of it is released with the locks.
//!
//! **Locks of the table itself.** Files are dealt to shards, each under a short mutex. The order is: graph, one shard,
//! one part of the ledger. Only the holder of the graph's mutex takes one shard after the other, and never two at once.

mod file;
mod graph;
mod ledger;
mod tree;

use crate::handle::FileId;
use file::{File, Holder, Waiter};
use graph::Graph;
use ledger::{Ledger, PIECE, RESERVATION, WAITER};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use weir_base::Budget;

/// Queued requests of one client address at most.
pub const MAX_WAITING: usize = 1024;
/// Queued requests for one file at most.
pub const MAX_WAITING_FILE: usize = 16_384;
/// Mutexes that the files are dealt to.
const SHARDS: usize = 64;

/// A client host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Where its requests come from.
    pub address: IpAddr,
    /// What it calls itself. Names alone are not unique ("localhost"), and anyone can use any.
    pub name: Arc<[u8]>,
}

/// Which process or open file of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// The process with this number.
    Process(u32),
    /// What the client distinguishes by these bytes.
    Opaque(Arc<[u8]>),
}

/// Who holds or wants a lock.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The host.
    pub client: Client,
    /// The process on it.
    pub who: Who,
    /// What the protocol shows others of the owner; takes no part in equality.
    pub shown: Arc<[u8]>,
}

impl Owner {
    /// The number of the process; 0 for what has none.
    pub fn process(&self) -> u32 {
        match self.who {
            Who::Process(number) => number,
            Who::Opaque(_) => 0,
        }
    }

    /// Bytes that the owner takes besides those of a number.
    fn extra(&self) -> usize {
        let bytes = match &self.who {
            Who::Process(_) => 0,
            Who::Opaque(bytes) => bytes.len(),
        };
        bytes + self.shown.len()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.who == other.who && self.client == other.client
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.client.hash(state);
        self.who.hash(state);
    }
}

/// Bytes `start` to `last`, both included. `last` of `u64::MAX` means: to the
/// end of the file wherever it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte, at least `start`.
    pub last: u64,
}

impl Range {
    /// Every byte.
    pub const ALL: Range = Range {
        start: 0,
        last: u64::MAX,
    };

    /// `length` bytes from `start`; length 0 means to the end of the file.
    /// `None` if the range passes the largest offset.
    pub fn new(start: u64, length: u64) -> Option<Range> {
        let last = match length {
            0 => u64::MAX,
            n => start.checked_add(n - 1)?,
        };
        Some(Range { start, last })
    }

    /// The length; 0 for a range to the end of the file.
    pub fn length(&self) -> u64 {
        if self.last == u64::MAX {
            0
        } else {
            self.last - self.start + 1
        }
    }

    fn overlaps(&self, other: &Range) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    fn hull(&self, other: &Range) -> Range {
        Range {
            start: self.start.min(other.start),
            last: self.last.max(other.last),
        }
    }

    /// What is left of it outside of `cut`, which overlaps it.
    fn without(self, cut: &Range) -> impl Iterator<Item = Range> + use<> {
        let before = (self.start < cut.start).then(|| Range {
            start: self.start,
            last: cut.start - 1,
        });
        let after = (self.last > cut.last).then(|| Range {
            start: cut.last + 1,
            last: self.last,
        });
        before.into_iter().chain(after)
    }
}

/// A lock that is held or wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose.
    pub owner: Owner,
    /// Of which bytes.
    pub range: Range,
    /// Exclusive (write) or shared (read).
    pub exclusive: bool,
}

/// What became of a request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is held now.
    Granted,
    /// Another owner's lock is in the way.
    Denied(Lock),
    /// In the way as well, but the request is queued.
    Queued,
    /// Waiting would never end.
    Deadlock,
    /// The budget or the client's part of it is used up, or too many wait.
    Full,
}

/// The budget or the client's part of it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A queued request that was granted: its owner must be notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The file.
    pub file: FileId,
    /// The lock that is held now.
    pub lock: Lock,
}

/// What the table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Locks and share reservations.
    pub held: usize,
    /// Queued requests.
    pub waiting: usize,
    /// Bytes charged.
    pub bytes: usize,
}

type Shard = HashMap<FileId, Box<File>>;

/// The table.
pub struct LockTable {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    ledger: Ledger,
    graph: Mutex<Graph>,
    next_waiter: AtomicU64,
    held: AtomicUsize,
    waiting: AtomicUsize,
}

/// Requests that left their queues: to be removed from the graph when no shard is locked any more.
type Left = Vec<(Owner, u64)>;

impl LockTable {
    /// A table that takes at most what `budget` has.
    pub fn new(budget: Arc<Budget>) -> LockTable {
        LockTable {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            ledger: Ledger::new(budget),
            graph: Mutex::default(),
            next_waiter: AtomicU64::new(1),
            held: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    fn shard(&self, file: FileId) -> MutexGuard<'_, Shard> {
        let at = self.hasher.hash_one(file) as usize % self.shards.len();
        self.shards[at].lock()
    }

    fn count(&self, by: i64) {
        let by = by as isize;
        self.held.fetch_add(by as usize, Ordering::Relaxed);
    }

    /// A lock in the way of `want`, if there is one.
    pub fn test(&self, file: FileId, want: &Lock) -> Option<Lock> {
        self.shard(file).get(&file)?.conflict(want)
    }

    /// Asks for a lock; `wait` queues the request if it conflicts. Asking again while queued keeps the place in the queue.
    /// An exclusive lock that becomes a shared one may let others go on: `grants` receives them.
    pub fn lock(&self, file: FileId, want: Lock, wait: bool, grants: &mut Vec<Grant>) -> Verdict {
        let shard = self.shard(file);
        match shard.get(&file).and_then(|f| f.conflict(&want)) {
            None => self.hold(shard, file, want, grants),
            Some(holder) if !wait => Verdict::Denied(holder),
            Some(_) => {
                drop(shard);
                self.queue(file, want, grants)
            }
        }
    }

    /// The owner's entry in the file, charged and made if it is not there.
    fn enter(&self, shard: &mut Shard, file: FileId, owner: &Owner) -> Option<Arc<Holder>> {
        if let Some(holder) = shard.get(&file).and_then(|f| f.holder(owner)) {
            return Some(Arc::clone(holder));
        }
        let client = self.ledger.enter(&owner.client, file, owner.extra())?;
        let owner = Owner {
            client,
            ..owner.clone()
        };
        Some(shard.entry(file).or_default().enter(owner))
    }

    /// Removes the owner's entry, and the file's, if nothing is left of them.
    fn leave(&self, shard: &mut Shard, file: FileId, holder: &Holder) {
        if !holder.idle() {
            return;
        }
        if let Some(f) = shard.get_mut(&file) {
            f.leave(holder);
            if f.is_empty() {
                shard.remove(&file);
                ledger::shrink(shard);
            }
        }
        let owner = &holder.owner;
        self.ledger.leave(&owner.client, file, owner.extra());
    }

    /// Takes a lock that does not conflict.
    fn hold(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        file: FileId,
        want: Lock,
        grants: &mut Vec<Grant>,
    ) -> Verdict {
        let address = want.owner.client.address;
        let Some(holder) = self.enter(&mut shard, file, &want.owner) else {
            return Verdict::Full;
        };
        // It can split one of the owner's own into three.
        if !self.ledger.take(address, 2 * PIECE) {
            self.leave(&mut shard, file, &holder);
            return Verdict::Full;
        }
        let mut left = Left::new();
        if let Some(f) = shard.get_mut(&file) {
            for number in f.queued_by(&holder, |w| w.is(&want)) {
                self.unqueue(f, number, &mut left);
            }
            let done = f.install(&holder, want.range, want.exclusive);
            self.count(done.added);
            self.ledger.give(address, pieces(2 - done.added));
            if done.weaker {
                self.wake(&mut shard, file, want.range, grants, &mut left);
            }
        }
        drop(shard);
        self.forget(left);
        Verdict::Granted
    }

    /// Takes a queued request out of its file, and releases what it was charged.
    fn unqueue(&self, f: &mut File, number: u64, left: &mut Left) {
        let Some(w) = f.unqueue(number) else {
            return;
        };
        let address = w.holder.owner.client.address;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.ledger.waited(address);
        self.ledger.give(address, WAITER + w.shown.len());
        left.push((w.holder.owner.clone(), number));
    }

    /// Grants what waited for `freed`.
    fn wake(
        &self,
        shard: &mut Shard,
        file: FileId,
        freed: Range,
        grants: &mut Vec<Grant>,
        left: &mut Left,
    ) {
        let Some(f) = shard.get_mut(&file) else {
            return;
        };
        f.wake(freed, &mut |number, w, added| {
            let address = w.holder.owner.client.address;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.count(added);
            self.ledger.waited(address);
            // The request was charged for the locks that it may become.
            let rest = WAITER as i64 + w.shown.len() as i64 - added * PIECE as i64;
            debug_assert!(rest >= 0);
            self.ledger.give(address, rest as usize);
            left.push((w.holder.owner.clone(), number));
            let lock = w.lock();
            grants.push(Grant { file, lock });
        });
    }

    fn forget(&self, left: Left) {
        if !left.is_empty() {
            let mut graph = self.graph.lock();
            for (owner, number) in left {
                graph.remove(&owner, number);
            }
        }
    }

    /// Queues a request that conflicts.
    fn queue(&self, file: FileId, want: Lock, grants: &mut Vec<Grant>) -> Verdict {
        let mut graph = self.graph.lock();
        if graph.has(&want.owner, file, &want) {
            return Verdict::Queued;
        }
        if graph.closes_cycle(self, file, &want) {
            return Verdict::Deadlock;
        }
        let mut shard = self.shard(file);
        if shard.get(&file).is_none_or(|f| f.conflict(&want).is_none()) {
            drop(graph);
            return self.hold(shard, file, want, grants);
        }
        if shard
            .get(&file)
            .is_some_and(|f| f.waiting.len() >= MAX_WAITING_FILE)
        {
            return Verdict::Full;
        }
        let address = want.owner.client.address;
        let Some(holder) = self.enter(&mut shard, file, &want.owner) else {
            return Verdict::Full;
        };
        let bytes = WAITER + want.owner.shown.len();
        if !self.ledger.take(address, bytes) {
            self.leave(&mut shard, file, &holder);
            return Verdict::Full;
        }
        if !self.ledger.wait(address, MAX_WAITING) {
            self.ledger.give(address, bytes);
            self.leave(&mut shard, file, &holder);
            return Verdict::Full;
        }
        let number = self.next_waiter.fetch_add(1, Ordering::Relaxed);
        let owner = holder.owner.clone();
        let waiter = Waiter {
            holder,
            range: want.range,
            exclusive: want.exclusive,
            shown: want.owner.shown,
        };
        if let Some(f) = shard.get_mut(&file) {
            f.queue(number, waiter);
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        graph.add(owner, file, number, want.range, want.exclusive);
        Verdict::Queued
    }

    /// Whether the owner holds all of `lock`'s range in at least its mode.
    pub fn holds(&self, file: FileId, lock: &Lock) -> bool {
        self.shard(file).get(&file).is_some_and(|f| f.holds(lock))
    }

    /// Unlocks a range; returns what could be granted then.
    ///
    /// # Errors
    /// [`Full`], and nothing is unlocked, if the middle of a lock is unlocked, which makes two of it, and the budget or the
    /// client's part of it is used up.
    pub fn unlock(&self, file: FileId, owner: &Owner, range: Range) -> Result<Vec<Grant>, Full> {
        let (mut grants, mut left) = (Vec::new(), Left::new());
        let mut shard = self.shard(file);
        let Some(f) = shard.get_mut(&file) else {
            return Ok(grants);
        };
        let Some(holder) = f.holder(owner).cloned() else {
            return Ok(grants);
        };
        let address = holder.owner.client.address;
        if f.splits(&holder, range) && !self.ledger.take(address, PIECE) {
            return Err(Full);
        }
        let (added, any) = f.cut(&holder, range);
        self.count(added);
        self.ledger.give(address, pieces((-added).max(0)));
        if any {
            self.wake(&mut shard, file, range, &mut grants, &mut left);
        }
        self.leave(&mut shard, file, &holder);
        drop(shard);
        self.forget(left);
        Ok(grants)
    }

    /// Takes a queued request back; `false` if it is not queued (any more).
    pub fn cancel(&self, file: FileId, want: &Lock) -> bool {
        let mut left = Left::new();
        let mut shard = self.shard(file);
        if let Some(f) = shard.get_mut(&file)
            && let Some(holder) = f.holder(&want.owner).cloned()
        {
            for number in f.queued_by(&holder, |w| w.is(want)) {
                self.unqueue(f, number, &mut left);
            }
            self.leave(&mut shard, file, &holder);
        }
        drop(shard);
        let any = !left.is_empty();
        self.forget(left);
        any
    }

    /// Releases everything of these clients: their hosts restarted or gave up. Returns what could be granted then. Costs
    /// what they had.
    pub fn release(&self, gone: &[Client]) -> Vec<Grant> {
        let mut grants = Vec::new();
        let addresses: HashSet<IpAddr> = gone.iter().map(|c| c.address).collect();
        for file in addresses.into_iter().flat_map(|a| self.ledger.files(a)) {
            let mut left = Left::new();
            let mut shard = self.shard(file);
            let of = |owner: &Owner| gone.contains(&owner.client);
            let holders = shard.get(&file).map_or_else(Vec::new, |f| f.holders_of(of));
            for holder in &holders {
                self.strip(&mut shard, file, holder, &mut left);
            }
            self.wake(&mut shard, file, Range::ALL, &mut grants, &mut left);
            for holder in &holders {
                self.leave(&mut shard, file, holder);
            }
            drop(shard);
            self.forget(left);
        }
        grants
    }

    /// Removes all that an owner has in a file.
    fn strip(&self, shard: &mut Shard, file: FileId, holder: &Arc<Holder>, left: &mut Left) {
        let Some(f) = shard.get_mut(&file) else {
            return;
        };
        let address = holder.owner.client.address;
        for number in f.queued_by(holder, |_| true) {
            self.unqueue(f, number, left);
        }
        let (added, _) = f.cut(holder, Range::ALL);
        self.count(added);
        self.ledger.give(address, pieces(-added));
        if f.unreserve(holder) {
            self.count(-1);
            self.ledger.give(address, RESERVATION);
        }
    }

    /// Releases everything, granting nothing: as a restart does.
    pub fn release_all(&self) {
        for address in self.ledger.addresses() {
            let clients = self.clients_at(address);
            for file in self.ledger.files(address) {
                let mut left = Left::new();
                let mut shard = self.shard(file);
                let of = |owner: &Owner| clients.contains(&owner.client);
                let holders = shard.get(&file).map_or_else(Vec::new, |f| f.holders_of(of));
                for holder in holders {
                    self.strip(&mut shard, file, &holder, &mut left);
                    self.leave(&mut shard, file, &holder);
                }
                drop(shard);
                self.forget(left);
            }
        }
    }

    /// Reserves a file: the owner will use it in the ways of `access` and
    /// denies others those of `deny` (bit 0 read, bit 1 write; DOS open modes, X/Open NLM `fsh4_access`, `fsh4_mode`). A
    /// second reservation of the same owner replaces its first. False if another's is in the way; `None` if the budget is
    /// used up.
    pub fn share(&self, file: FileId, owner: &Owner, access: u32, deny: u32) -> Option<bool> {
        let mut shard = self.shard(file);
        if shard
            .get(&file)
            .is_some_and(|f| f.reserved(owner, access, deny))
        {
            return Some(false);
        }
        let address = owner.client.address;
        let holder = self.enter(&mut shard, file, owner)?;
        if !self.ledger.take(address, RESERVATION) {
            self.leave(&mut shard, file, &holder);
            return None;
        }
        let new = shard
            .get_mut(&file)
            .is_some_and(|f| f.reserve(&holder, access, deny));
        match new {
            true => self.count(1),
            false => self.ledger.give(address, RESERVATION),
        }
        Some(true)
    }

    /// Ends the owner's reservation of a file.
    pub fn unshare(&self, file: FileId, owner: &Owner) {
        let mut shard = self.shard(file);
        let Some(f) = shard.get_mut(&file) else {
            return;
        };
        let Some(holder) = f.holder(owner).cloned() else {
            return;
        };
        if f.unreserve(&holder) {
            self.count(-1);
            self.ledger.give(owner.client.address, RESERVATION);
            self.leave(&mut shard, file, &holder);
        }
    }

    /// The clients at an address that have anything in the table.
    pub fn clients_at(&self, address: IpAddr) -> Vec<Client> {
        let names = self.ledger.names(address).into_iter();
        names.map(|name| Client { address, name }).collect()
    }

    /// Whether a client has anything in the table.
    pub fn has(&self, client: &Client) -> bool {
        self.ledger.has(client)
    }

    /// The budget that everything is charged to; for what else the lock service has to remember.
    pub fn budget(&self) -> &Arc<Budget> {
        self.ledger.budget()
    }

    /// What the table holds.
    pub fn totals(&self) -> Totals {
        Totals {
            held: self.held.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            bytes: self.ledger.budget().used(),
        }
    }
}

/// The charge for so many locks, which are not fewer than none.
fn pieces(count: i64) -> usize {
    debug_assert!(count >= 0);
    usize::try_from(count).unwrap_or(0) * PIECE
}

#[cfg(test)]
mod tests;
