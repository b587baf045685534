//! One table of what clients claim of files, for all protocols: opens, byte ranges, and the right
//! to cache.
//!
//! **Why one.** NLM, NFSv4 and SMB ask the same question of a file: does this conflict with what
//! was granted to another holder? Three tables would have to agree three ways. A file has three
//! lists: *opens*, *ranges* and *caching grants*. Opens have the modes that they use and deny, with
//! deletion as the third mode. Ranges are advisory as fcntl's or mandatory as SMB's. Grants are R,
//! W and H: leases contain delegations, the reverse does not hold. `rules` has which conflict, in
//! tables.
//!
//! **Nothing waits here.** A test returns Granted, Denied, or Breaking with a [`Ticket`]. With
//! Breaking others may cache what the request concerns: they have been asked to stop, and the
//! caller asks again when the ticket is over. What waiting means is the caller's: NFSv3 replies
//! JUKEBOX, NFSv4 waits shortly and replies DELAY, SMB replies STATUS_PENDING. No mutex is held
//! meanwhile. A break that is not answered in [`BREAK_PATIENCE`] ends by revocation
//! ([`Claims::tick`]).
//!
//! **Advisory ranges** follow POSIX (fcntl): the locks of one owner on a file never conflict with
//! each other; a new lock replaces what the owner had in its range; unlocking part of a range
//! splits it. Mandatory ones stack (`file::mandatory_ranges`). A request that may wait is queued in
//! the order of arrival. When a range becomes free, the requests queued for it that no longer
//! conflict are granted, in order, and their owners' services notified. A wait that would close a
//! cycle of owners that wait for each other is refused, as far as a search of bounded length finds
//! it (`graph`). SMB, which has no such search, stays outside of it.
//!
//! **Parked** is a holder without an active client at the moment: a courteous NFSv4 client whose
//! lease has run out, a durable SMB handle without connection. It keeps what it has until that
//! conflicts with a request. Then all that it has in the file goes, and its service is notified
//! ([`Notice::Dropped`]), which ends the rest of the client if its protocol says so. It is asked
//! nothing, since no client would answer. No parked holder is ever in the way of a request that
//! waits.
//!
//! **Work.** A call costs O(log n) of the claims of its file (`file::tree`, `file::opens`,
//! `file::grants`), plus O(log n) for each that it removes or breaks, which an earlier call has
//! paid for. Queued requests are few ([`MAX_WAITING`] an address, [`MAX_WAITING_FILE`] a file), and
//! those that do not overlap what became free cost a comparison.
//!
//! **Memory.** Everything is charged, before it is allocated, to a budget and to the client's
//! address, which may have a part of it (`ledger`). A claim that does not fit makes room first.
//! Services are asked to have clients return what they do not need ([`Notice::Recall`]), and the
//! clients parked longest lose what they have; then it is refused. All memory is released with the
//! claims.
//!
//! **Without claims the cost is one load.** Reads and writes of files without a binding claim are
//! let through by `hints`.
//!
//! **Locks of the table itself.** Files are dealt to shards, each under a short mutex. The order
//! is: graph, one shard, one part of the ledger. Only the holder of the graph's mutex takes one
//! shard after the other, and never two at once. Lists of breaks and of parked clients are taken
//! alone. Services are notified while none is held.
//!
//! **Revoked** is everything in a volume when that is deleted or becomes something else
//! ([`Claims::revoke`]), and what is cached of it when its content is replaced
//! ([`Claims::revoke_caches`]).
//!
//! # How NFSv4 uses it
//! A client id is a [`Client`] (address: that of its EXCHANGE_ID). An open owner is numbered per
//! client: `Who::key(n)`; the delegation of a client is held by `Who::key(0)`, which is the `key`
//! of all its requests. A stateid's *other* names (file, owner) in nfs, its *seqid* counts there.
//! - OPEN: `grace.admit_new`, then [`Claims::open`] with `enforced`. Granted: [`Claims::grant`] of
//!   [`CacheRights::READ_HANDLE`] or [`CacheRights::ALL`] as [`Kind::Delegation`] if the client
//!   wants one; none is no error. Denied: SHARE_DENIED. Breaking: wait for the ticket a second at
//!   most, then DELAY. An upgrade or OPEN_DOWNGRADE is the same call with other modes.
//! - READ, WRITE, SETATTR of the size: [`Claims::io`] as [`Actor::Advisory`], or [`Actor::Client`]
//!   for special stateids. Denied is LOCKED. REMOVE, RENAME, LINK, CREATE, SETATTR: as
//!   [`Actor::Client`] too, so that a client does not break its own delegation.
//! - LOCK, LOCKT, LOCKU: [`Claims::lock`], [`Claims::test`], [`Claims::unlock`] with the lock
//!   owner's key, as NLM. CB_NOTIFY_LOCK: `wait`, and at [`Notice::Granted`] keep the lock for the
//!   lease or unlock it.
//! - [`Notice::Break`]: CB_RECALL; DELEGRETURN is [`Claims::acknowledge`] of nothing.
//!   [`Notice::Revoked`]: mark the stateid.
//! - GETATTR of a file that another writes under a delegation: `Operand::getattr_held`, which asks
//!   ([`Claims::request_attributes`]); [`Notice::Asked`]: CB_GETATTR, and [`Claims::reply`].
//! - A lease runs out: [`Claims::park`]; any SEQUENCE: [`Claims::unpark`]. [`Notice::Dropped`]: the
//!   client is expired, [`Claims::release`] it.
//!
//! # How SMB uses it
//! A ClientGuid is a [`Client`]. Each open is an owner of its own, `Who::key(file id)`, its lease
//! held by `Who::key(lease key)`; an open without a lease uses its file id as key (an oplock).
//! - CREATE: [`Claims::open`] with access and the complement of the sharing as denial (nothing for
//!   an open of attributes alone), `overwrite` by its disposition. Denied: SHARING_VIOLATION.
//!   Breaking: interim reply, ask again at the ticket. Then [`Claims::grant`] as [`Kind::Lease`].
//! - READ, WRITE: [`Claims::io`] as [`Actor::Mandatory`]; Locked is FILE_LOCK_CONFLICT. LOCK:
//!   mandatory [`Claims::lock`], [`Claims::unlock_exact`].
//! - [`Notice::Break`]: break notification; its acknowledgement is [`Claims::acknowledge`].
//! - Rename, delete: [`Claims::names`] as the open's actor on both ends. CLOSE: [`Claims::close`].
//! - FILE_DELETE_ON_CLOSE, FileDispositionInformation: [`Claims::mark`]; [`Notice::Delete`] when
//!   the last open is closed.
//! - Connection lost under a durable handle: [`Claims::park_owner`]; reconnect:
//!   [`Claims::unpark_owner`]; a persistent one is not parked.

mod caching;
mod delete_on_close;
mod file;
mod graph;
mod hints;
mod ledger;
mod map;
mod opening;
mod parked_holders;
mod revocation;
pub mod rules;
mod types;

pub use delete_on_close::DeleteMode;
pub use hints::ClaimsVersion;
pub use ledger::{LITTLE, RESERVE};
pub use rules::{Event, Kind, Style};
pub use types::{
    Actor, CacheRights, Client, Full, Grant, HolderAttr, Lock, MarkOutcome, Modes, Notice,
    OpenOutcome, OpenRequest, Owner, OwnerId, Passage, Question, Range, Removal, ServiceId, Sink,
    Ticket, Totals, Verdict,
};

use crate::handle::FileId;
use caching::Breaks;
use file::holder::Holder;
use file::{File, Waiter};
use foldhash::fast::RandomState;
use graph::Graph;
use hints::Hints;
use ledger::{GRANT, Ledger, OPEN, PIECE, STACKED, WAITER};
use map::HashMap;
use parked_holders::ParkedClients;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
pub use weir_base::limits::protocol::{BREAK_PATIENCE, MAX_WAITING, MAX_WAITING_FILE};
use weir_base::{Budget, VolumeId, invariant};

/// Mutexes that the files are dealt to.
const SHARDS: usize = 64;

type Shard = HashMap<FileId, Box<File>>;
type Sinks = [Option<Weak<dyn Sink>>; ServiceId::COUNT];

/// The table of claims of all protocols; safe for concurrent use.
pub struct Claims {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    hints: Hints,
    ledger: Ledger,
    graph: Mutex<Graph>,
    sinks: Mutex<Sinks>,
    breaks: Mutex<Breaks>,
    parked: Mutex<ParkedClients>,
    /// True if clients have been asked since the last tick to return what they do not need.
    recalled: AtomicBool,
    next_waiter: AtomicU64,
    held: AtomicUsize,
    grants: AtomicUsize,
    waiting: AtomicUsize,
    /// Grants that others had to be asked for, and those of them that were revoked, since the
    /// start.
    broken: AtomicU64,
    revoked: AtomicU64,
}

/// Effects of a change of a file elsewhere, to be carried out when no shard is locked any more.
#[derive(Default)]
struct Effects {
    /// Requests that left their queues: to be removed from the graph.
    left: Vec<(Owner, u64)>,
    notices: Vec<Notice>,
    /// Breaks that have begun.
    breaks: Vec<(FileId, Owner, Ticket)>,
}

impl Claims {
    /// Creates a table that takes at most what `budget` has.
    pub fn new(budget: Arc<Budget>) -> Claims {
        Claims {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            hints: Hints::new(),
            ledger: Ledger::new(budget),
            graph: Mutex::default(),
            sinks: Mutex::new([const { None }; ServiceId::COUNT]),
            breaks: Mutex::default(),
            parked: Mutex::default(),
            recalled: AtomicBool::new(false),
            next_waiter: AtomicU64::new(1),
            held: AtomicUsize::new(0),
            grants: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            broken: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
        }
    }

    /// Sends the notices of a service's clients to `sink` from now on.
    pub fn attach(&self, service: ServiceId, sink: Weak<dyn Sink>) {
        self.sinks.lock()[usize::from(service.0)] = Some(sink);
    }

    fn sink(&self, service: usize) -> Option<Arc<dyn Sink>> {
        self.sinks.lock()[service].as_ref()?.upgrade()
    }

    fn shard(&self, file: FileId) -> MutexGuard<'_, Shard> {
        let at = self.hasher.hash_one(file) as usize % self.shards.len();
        self.shards[at].lock()
    }

    fn count(&self, by: i64) {
        self.held.fetch_add(by as usize, Ordering::Relaxed);
    }

    /// Changes a file's shard under its lock, and then does what that brought about elsewhere.
    fn in_shard<T>(&self, file: FileId, change: impl FnOnce(&mut Shard, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let outcome = change(&mut self.shard(file), &mut effects);
        self.deliver(effects);
        outcome
    }

    /// Does what a change brought about elsewhere. No shard may be locked.
    fn deliver(&self, effects: Effects) {
        self.forget(effects.left);
        if !effects.breaks.is_empty() {
            self.breaks.lock().add(effects.breaks);
        }
        for notice in effects.notices {
            let service = match &notice {
                Notice::Granted(grant) => grant.lock.owner.client.service,
                Notice::Break { owner, .. }
                | Notice::Asked { owner, .. }
                | Notice::Revoked { owner, .. }
                | Notice::Dropped { owner, .. }
                | Notice::Lost { owner, .. }
                | Notice::Delete { owner, .. } => owner.client.service,
                Notice::Recall => {
                    let all = (0..ServiceId::COUNT).filter_map(|n| self.sink(n));
                    all.for_each(|sink| sink.notify(Notice::Recall));
                    continue;
                }
            };
            if let Some(sink) = self.sink(usize::from(service.0)) {
                sink.notify(notice);
            }
        }
    }

    /// Returns a lock in the way of `want`, if there is one.
    pub fn test(&self, file: FileId, want: &Lock) -> Option<Lock> {
        let shard = self.shard(file);
        let found = shard.get(&file)?.conflict(want);
        found.map(|(_, lock)| lock)
    }

    /// Asks for a lock; `wait` queues the request if it conflicts. Asking again while queued keeps
    /// the place in the queue. An exclusive lock that becomes a shared one may let others go on.
    /// `key`: under which the client has a grant that this does not break.
    pub fn lock(&self, file: FileId, want: &Lock, key: &OwnerId, wait: bool) -> Verdict {
        self.with_room(want.owner.client.address, |effects| {
            let verdict = self.try_lock(file, want, key, wait, effects);
            let full = verdict == Verdict::Full;
            (verdict, full)
        })
    }

    fn try_lock(
        &self,
        file: FileId,
        want: &Lock,
        key: &OwnerId,
        wait: bool,
        effects: &mut Effects,
    ) -> Verdict {
        let mut shard = self.shard(file);
        let event = match want.exclusive {
            true => Event::LockExclusive,
            false => Event::LockShared,
        };
        if let Some(ticket) =
            self.break_for(&mut shard, file, Some((&want.owner, key)), event, effects)
        {
            return Verdict::Breaking(ticket);
        }
        match self.conflict(&mut shard, file, want, effects) {
            None => self.hold(shard, file, want, effects),
            Some(holder) if !wait => Verdict::Denied(holder),
            Some(_) => {
                drop(shard);
                self.queue(file, want, effects)
            }
        }
    }

    /// Returns the lock in the way of `want`, after parked holders that were have gone.
    fn conflict(
        &self,
        shard: &mut Shard,
        file: FileId,
        want: &Lock,
        effects: &mut Effects,
    ) -> Option<Lock> {
        let f = shard.get(&file)?;
        f.conflict(want)?;
        for holder in f.parked_ranges(want) {
            self.drop_parked(shard, file, &holder, effects);
        }
        let found = shard.get(&file)?.conflict(want);
        found.map(|(_, lock)| lock)
    }

    /// Returns the owner's entry in the file, charged and made if it is not there.
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

    /// Ends a change of a file: removes the owner's entry, and the file's, if nothing is left of
    /// them, and brings the hints up to date.
    fn leave(&self, shard: &mut Shard, file: FileId, holder: &Holder) {
        let Some(f) = shard.get_mut(&file) else {
            // It went with its last claim.
            return;
        };
        // It may have left already.
        let there = f.holder(&holder.owner).is_some_and(|h| h.id == holder.id);
        let idle = there && holder.idle();
        if idle {
            f.leave(holder);
        }
        f.tidy();
        let binds = f.binds_others();
        self.hints.change(file, f.hinted, binds);
        f.hinted = binds;
        self.leave_empty(shard, file);
        if idle {
            let owner = &holder.owner;
            self.ledger.leave(&owner.client, file, owner.extra());
        }
    }

    /// Removes a file's entry if there is nothing in it.
    fn leave_empty(&self, shard: &mut Shard, file: FileId) {
        if shard.get(&file).is_some_and(|f| f.is_empty()) {
            shard.remove(&file);
            ledger::shrink(shard);
        }
    }

    /// Takes a lock that does not conflict.
    fn hold(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        file: FileId,
        want: &Lock,
        effects: &mut Effects,
    ) -> Verdict {
        let address = want.owner.client.address;
        let Some(holder) = self.enter(&mut shard, file, &want.owner) else {
            return Verdict::Full;
        };
        // An advisory one can split one of the owner's own into three.
        let charge = match want.mandatory {
            true => STACKED,
            false => 2 * PIECE,
        };
        if !self.ledger.take(address, charge) {
            self.leave(&mut shard, file, &holder);
            return Verdict::Full;
        }
        let mut weaker = false;
        if let Some(f) = shard.get_mut(&file) {
            for number in f.queued_by(&holder, |w| w.is(want)) {
                self.unqueue(f, number, effects);
            }
            if want.mandatory {
                f.more_mut()
                    .stacked
                    .put(&holder, want.range, want.exclusive);
                self.count(1);
            } else {
                let done = f.install(&holder, want.range, want.exclusive);
                self.count(done.added);
                self.ledger.give(address, pieces(2 - done.added));
                weaker = done.weaker;
            }
        }
        if weaker {
            self.wake(&mut shard, file, want.range, effects);
        }
        self.leave(&mut shard, file, &holder);
        Verdict::Granted
    }

    /// Takes a queued request out of its file, and releases what it was charged.
    fn unqueue(&self, f: &mut File, number: u64, effects: &mut Effects) {
        let Some(w) = f.unqueue(number) else {
            // Granted or given up meanwhile.
            return;
        };
        let address = w.holder.owner.client.address;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.ledger.waited(address);
        self.ledger.give(address, WAITER + w.shown.len());
        effects.left.push((w.holder.owner.clone(), number));
    }

    /// Grants what waited for `freed`.
    fn wake(&self, shard: &mut Shard, file: FileId, freed: Range, effects: &mut Effects) {
        let Some(f) = shard.get_mut(&file) else {
            // Nothing waits where nothing is claimed.
            return;
        };
        f.wake(freed, &mut |number, w, added| {
            let address = w.holder.owner.client.address;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.count(added);
            self.ledger.waited(address);
            // The request was charged for the locks that it may become.
            let becomes = match w.mandatory {
                true => STACKED as i64,
                false => added * PIECE as i64,
            };
            let rest = WAITER as i64 + w.shown.len() as i64 - becomes;
            if invariant!(rest >= 0, "a request was charged less than its lock") {
                self.ledger.give(address, rest as usize);
            }
            effects.left.push((w.holder.owner.clone(), number));
            let lock = w.lock();
            effects.notices.push(Notice::Granted(Grant { file, lock }));
        });
    }

    fn forget(&self, left: Vec<(Owner, u64)>) {
        if !left.is_empty() {
            let mut graph = self.graph.lock();
            for (owner, number) in left {
                graph.remove(&owner, number);
            }
        }
    }

    /// Queues a request that conflicts.
    fn queue(&self, file: FileId, want: &Lock, effects: &mut Effects) -> Verdict {
        let mut graph = self.graph.lock();
        if graph.has_wait(&want.owner, file, want) {
            return Verdict::Queued;
        }
        if !want.mandatory && graph.closes_cycle(self, file, want) {
            return Verdict::Deadlock;
        }
        let mut shard = self.shard(file);
        if self.conflict(&mut shard, file, want, effects).is_none() {
            drop(graph);
            return self.hold(shard, file, want, effects);
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
            mandatory: want.mandatory,
            shown: Arc::clone(&want.owner.shown),
        };
        if let Some(f) = shard.get_mut(&file) {
            f.queue(number, waiter);
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        graph.add(owner, file, number, want);
        Verdict::Queued
    }

    /// Returns true if the owner holds all of an advisory `lock`'s range in at least its mode.
    pub fn holds(&self, file: FileId, lock: &Lock) -> bool {
        self.shard(file).get(&file).is_some_and(|f| f.holds(lock))
    }

    /// Unlocks a range of advisory locks.
    ///
    /// # Errors
    /// [`Full`], and nothing is unlocked, if the middle of a lock is unlocked, which makes two of
    /// it, and the budget or the client's part of it is used up.
    pub fn unlock(&self, file: FileId, owner: &Owner, range: Range) -> Result<(), Full> {
        self.with_room(owner.client.address, |effects| {
            let done = self.try_unlock(file, owner, range, effects);
            (done, done.is_err())
        })
    }

    fn try_unlock(
        &self,
        file: FileId,
        owner: &Owner,
        range: Range,
        effects: &mut Effects,
    ) -> Result<(), Full> {
        let mut shard = self.shard(file);
        let Some(f) = shard.get_mut(&file) else {
            return Ok(());
        };
        let Some(holder) = f.holder(owner).cloned() else {
            return Ok(());
        };
        let address = holder.owner.client.address;
        if f.splits(&holder, range) && !self.ledger.take(address, PIECE) {
            return Err(Full);
        }
        let (added, any) = f.cut(&holder, range);
        self.count(added);
        self.ledger.give(address, pieces((-added).max(0)));
        if any {
            self.wake(&mut shard, file, range, effects);
        }
        self.leave(&mut shard, file, &holder);
        Ok(())
    }

    /// Removes one mandatory range that is exactly this; `false` if there is none.
    pub fn unlock_exact(&self, file: FileId, owner: &Owner, range: Range) -> bool {
        self.in_shard(file, |shard, effects| {
            let Some(f) = shard.get_mut(&file) else {
                return false;
            };
            let Some(holder) = f.holder(owner).cloned() else {
                return false;
            };
            if f.more().is_none() || !f.more_mut().stacked.unlock(holder.id, range) {
                return false;
            }
            self.count(-1);
            self.ledger.give(holder.owner.client.address, STACKED);
            self.wake(shard, file, range, effects);
            self.leave(shard, file, &holder);
            true
        })
    }

    /// Takes a queued request back; `false` if it is not queued (any more).
    pub fn cancel(&self, file: FileId, want: &Lock) -> bool {
        self.in_shard(file, |shard, effects| {
            if let Some(f) = shard.get_mut(&file)
                && let Some(holder) = f.holder(&want.owner).cloned()
            {
                for number in f.queued_by(&holder, |w| w.is(want)) {
                    self.unqueue(f, number, effects);
                }
                self.leave(shard, file, &holder);
            }
            !effects.left.is_empty()
        })
    }

    /// Releases everything of these clients: they restarted, expired or gave up. Costs what they
    /// had.
    pub fn release(&self, gone: &[Client]) {
        let mut files = BTreeSet::new();
        for client in gone {
            self.parked.lock().remove(client);
            files.extend(self.ledger.files(client));
        }
        for file in files {
            self.release_in(file, |owner| gone.contains(&owner.client));
        }
    }

    /// Releases everything of a service's clients, as its restart does.
    pub fn release_all(&self, service: ServiceId) {
        let mut files = BTreeSet::new();
        for client in self.ledger.clients(service) {
            self.parked.lock().remove(&client);
            files.extend(self.ledger.files(&client));
        }
        for file in files {
            self.release_in(file, |owner| owner.client.service == service);
        }
    }

    /// Removes all that the owners that `select` chooses have in a file.
    fn release_in(&self, file: FileId, select: impl Fn(&Owner) -> bool) {
        self.in_shard(file, |shard, effects| {
            let holders = shard
                .get(&file)
                .map_or_else(Vec::new, |f| f.holders_of(select));
            for holder in &holders {
                self.strip(shard, file, holder, effects);
            }
            self.wake(shard, file, Range::ALL, effects);
            for holder in &holders {
                self.leave(shard, file, holder);
            }
        });
    }

    /// Removes all that an owner has in a file.
    fn strip(&self, shard: &mut Shard, file: FileId, holder: &Arc<Holder>, effects: &mut Effects) {
        let Some(f) = shard.get_mut(&file) else {
            // Nothing is claimed of the file.
            return;
        };
        let address = holder.owner.client.address;
        for number in f.queued_by(holder, |_| true) {
            self.unqueue(f, number, effects);
        }
        let (added, _) = f.cut(holder, Range::ALL);
        self.count(added);
        let mut bytes = pieces(-added);
        if f.more().is_some() {
            let more = f.more_mut();
            let stacked = more.stacked.clear(holder.id);
            self.count(-(stacked as i64));
            bytes += stacked * STACKED;
            let closed = more.opens.remove(holder.id).is_some();
            if closed {
                holder.count(false, -1);
                self.count(-1);
                bytes += OPEN;
            }
            if let Some(held) = more.grants.remove(holder.id) {
                self.end_grant(&held);
                bytes += GRANT;
            }
            if closed {
                self.closed(f, file, holder, effects);
            }
        }
        self.ledger.give(address, bytes);
    }

    /// Returns the clients of a service at an address that have anything in the table.
    pub fn clients_at(&self, service: ServiceId, address: IpAddr) -> Vec<Client> {
        self.ledger.clients_at(service, address)
    }

    /// Returns true if an owner has anything in a file.
    pub fn has_in(&self, file: FileId, owner: &Owner) -> bool {
        let shard = self.shard(file);
        let holder = shard.get(&file).and_then(|f| f.holder(owner));
        holder.is_some_and(|holder| !holder.idle())
    }

    /// Returns true if a client has anything in the table.
    pub fn has_client(&self, client: &Client) -> bool {
        self.ledger.has_client(client)
    }

    /// Returns the files in which a client has anything.
    pub fn files(&self, client: &Client) -> Vec<FileId> {
        self.ledger.files(client)
    }

    /// Returns the budget that everything is charged to; for what else the services have to
    /// remember.
    pub fn budget(&self) -> &Arc<Budget> {
        self.ledger.budget()
    }

    /// Returns the numbers of claims in the table.
    pub fn totals(&self) -> Totals {
        Totals {
            held: self.held.load(Ordering::Relaxed),
            grants: self.grants.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            bytes: self.ledger.budget().used(),
        }
    }

    /// Grants that their holders were asked to give up since the start, and those of them that were
    /// revoked.
    pub fn recalls(&self) -> (u64, u64) {
        (
            self.broken.load(Ordering::Relaxed),
            self.revoked.load(Ordering::Relaxed),
        )
    }

    /// Returns the hints' state of the claims in a file that bind others, without asking the table:
    /// one relaxed load.
    pub fn version_of(&self, file: FileId) -> ClaimsVersion {
        self.hints.version_of(file)
    }

    /// Returns the hints' state for all files of the volume: one relaxed load.
    pub fn version_in(&self, volume: VolumeId) -> ClaimsVersion {
        self.hints.version_in(volume)
    }
}

/// Returns the charge for so many locks, which are not fewer than none.
fn pieces(count: i64) -> usize {
    match invariant!(count >= 0, "fewer locks than none") {
        true => count as usize * PIECE,
        false => 0,
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
