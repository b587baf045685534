//! One table of byte-range locks and share reservations for all protocols.
//!
//! The rules are POSIX's (fcntl): the locks of one owner on a file never
//! conflict with each other; a new lock replaces what the owner had in its
//! range; unlocking part of a range splits it. Owners are opaque: a client, and
//! a number and bytes by which the client tells its processes apart.
//!
//! A request that may wait is queued in arrival order. Whenever a range becomes
//! free, the queue of that file is run through and every request that no longer
//! conflicts is granted, in order; the caller tells the owners. A wait that
//! would close a circle of owners who wait for each other is refused.
//!
//! The table is one mutex. Locking is rare next to reading and writing and an
//! operation takes about a microsecond; in return the search for deadlocks sees
//! one consistent state. The number of locks and waiters is bounded.

use crate::handle::FileId;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Most locks, waiters and reservations in all. At about 100 bytes each they
/// stay below 64 MiB.
pub const MAX_LOCKS: usize = 500_000;

/// A client host, as its protocol names it.
pub type Client = Arc<[u8]>;

/// Who holds or wants a lock.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The host.
    pub client: Client,
    /// The process on it.
    pub process: u32,
    /// What the protocol shows others of the owner; takes no part in equality.
    pub shown: Arc<[u8]>,
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.process == other.process && self.client == other.client
    }
}

impl Eq for Owner {}

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

    fn touches(&self, other: &Range) -> bool {
        self.start <= other.last.saturating_add(1) && other.start <= self.last.saturating_add(1)
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

impl Lock {
    fn conflicts(&self, other: &Lock) -> bool {
        (self.exclusive || other.exclusive)
            && self.range.overlaps(&other.range)
            && self.owner != other.owner
    }
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
    /// The table is full.
    Full,
}

/// A queued request that was granted: its owner must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The file.
    pub file: FileId,
    /// The lock that is held now.
    pub lock: Lock,
}

/// A share reservation (DOS open modes, X/Open NLM `fsh4_access`, `fsh4_mode`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    owner: Owner,
    access: u32,
    deny: u32,
}

#[derive(Default)]
struct File {
    held: Vec<Lock>,
    waiting: Vec<Lock>,
    shares: Vec<Share>,
}

impl File {
    fn conflict(&self, want: &Lock) -> Option<&Lock> {
        self.held.iter().find(|l| l.conflicts(want))
    }

    fn count(&self) -> usize {
        self.held.len() + self.waiting.len() + self.shares.len()
    }

    /// Takes `range` away from `owner`, splitting what reaches beyond.
    fn cut(&mut self, owner: &Owner, range: Range) {
        let mut rest = Vec::new();
        self.held.retain_mut(|l| {
            if l.owner != *owner || !l.range.overlaps(&range) {
                return true;
            }
            let whole = l.range;
            let before = (whole.start < range.start).then(|| Range {
                start: whole.start,
                last: range.start - 1,
            });
            let after = (whole.last > range.last).then(|| Range {
                start: range.last + 1,
                last: whole.last,
            });
            match (before, after) {
                (None, None) => return false,
                (Some(b), None) => l.range = b,
                (None, Some(a)) => l.range = a,
                (Some(b), Some(a)) => {
                    l.range = b;
                    rest.push(Lock {
                        range: a,
                        ..l.clone()
                    });
                }
            }
            true
        });
        self.held.append(&mut rest);
    }

    /// Installs a lock that does not conflict, joined with its neighbours.
    fn install(&mut self, mut lock: Lock) {
        self.cut(&lock.owner, lock.range);
        self.held.retain(|l| {
            let join = l.owner == lock.owner
                && l.exclusive == lock.exclusive
                && l.range.touches(&lock.range);
            if join {
                lock.range.start = lock.range.start.min(l.range.start);
                lock.range.last = lock.range.last.max(l.range.last);
            }
            !join
        });
        self.held.push(lock);
    }

    /// Grants what waits and no longer conflicts, in arrival order.
    fn wake(&mut self, file: FileId, grants: &mut Vec<Grant>) {
        let mut i = 0;
        while let Some(lock) = self.waiting.get(i) {
            if self.conflict(lock).is_some() {
                i += 1;
                continue;
            }
            let lock = self.waiting.remove(i);
            self.install(lock.clone());
            grants.push(Grant { file, lock });
        }
    }
}

#[derive(Default)]
struct State {
    files: HashMap<FileId, File>,
    /// The files that somebody waits for: usually few.
    blocked: HashSet<FileId>,
    /// Locks, waiters and reservations in all files.
    total: usize,
}

impl State {
    /// Runs `change` on a file and keeps the count and the map tidy.
    fn on<T>(&mut self, file: FileId, change: impl FnOnce(&mut File) -> T) -> T {
        let f = self.files.entry(file).or_default();
        let before = f.count();
        let out = change(f);
        let after = f.count();
        if f.waiting.is_empty() {
            self.blocked.remove(&file);
        } else {
            self.blocked.insert(file);
        }
        self.total = self.total.saturating_sub(before) + after;
        if after == 0 {
            self.files.remove(&file);
        }
        out
    }

    /// Whether `owner`, once it waits for `want` on `file`, is part of a circle:
    /// a depth-first search from the owners in its way along what they wait for.
    fn deadlock(&self, file: FileId, want: &Lock) -> bool {
        let mut seen: Vec<&Owner> = Vec::new();
        let mut next: Vec<(FileId, &Lock)> = vec![(file, want)];
        while let Some((file, lock)) = next.pop() {
            let Some(f) = self.files.get(&file) else {
                continue;
            };
            for holder in f.held.iter().filter(|h| h.conflicts(lock)) {
                if holder.owner == want.owner {
                    return true;
                }
                if seen.contains(&&holder.owner) {
                    continue;
                }
                seen.push(&holder.owner);
                for id in &self.blocked {
                    let Some(g) = self.files.get(id) else {
                        continue;
                    };
                    let theirs = g.waiting.iter().filter(|w| w.owner == holder.owner);
                    next.extend(theirs.map(|w| (*id, w)));
                }
            }
        }
        false
    }
}

/// The table.
#[derive(Default)]
pub struct LockTable {
    state: Mutex<State>,
}

impl LockTable {
    /// A lock in the way of `want`, if there is one.
    pub fn test(&self, file: FileId, want: &Lock) -> Option<Lock> {
        self.state
            .lock()
            .files
            .get(&file)
            .and_then(|f| f.conflict(want))
            .cloned()
    }

    /// Asks for a lock; `wait` queues the request if it conflicts. Asking again
    /// while queued keeps the place in the queue.
    pub fn lock(&self, file: FileId, want: Lock, wait: bool) -> Verdict {
        let mut state = self.state.lock();
        if let Some(holder) = state
            .files
            .get(&file)
            .and_then(|f| f.conflict(&want))
            .cloned()
        {
            if !wait {
                return Verdict::Denied(holder);
            }
            if state
                .files
                .get(&file)
                .is_some_and(|f| f.waiting.contains(&want))
            {
                return Verdict::Queued;
            }
            if state.total >= MAX_LOCKS {
                return Verdict::Full;
            }
            if state.deadlock(file, &want) {
                return Verdict::Deadlock;
            }
            state.on(file, |f| f.waiting.push(want));
            return Verdict::Queued;
        }
        // A lock can split one of the owner's own into three.
        if state.total.saturating_add(2) >= MAX_LOCKS {
            return Verdict::Full;
        }
        state.on(file, |f| {
            f.waiting.retain(|w| *w != want);
            f.install(want);
        });
        Verdict::Granted
    }

    /// Whether the owner holds all of `lock`'s range in at least its mode.
    pub fn holds(&self, file: FileId, lock: &Lock) -> bool {
        let state = self.state.lock();
        let Some(f) = state.files.get(&file) else {
            return false;
        };
        f.held.iter().any(|l| {
            l.owner == lock.owner
                && l.exclusive >= lock.exclusive
                && l.range.start <= lock.range.start
                && l.range.last >= lock.range.last
        })
    }

    /// Gives a range back; returns what could be granted then.
    pub fn unlock(&self, file: FileId, owner: &Owner, range: Range) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut state = self.state.lock();
        if state.files.contains_key(&file) {
            state.on(file, |f| {
                f.cut(owner, range);
                f.wake(file, &mut grants);
            });
        }
        grants
    }

    /// Takes a queued request back; `false` if it is not queued (any more).
    pub fn cancel(&self, file: FileId, want: &Lock) -> bool {
        let mut state = self.state.lock();
        if !state.files.contains_key(&file) {
            return false;
        }
        state.on(file, |f| {
            let before = f.waiting.len();
            f.waiting.retain(|w| w != want);
            f.waiting.len() != before
        })
    }

    /// Gives back everything of the clients that `gone` selects: their hosts
    /// restarted or gave up. Returns what could be granted then.
    pub fn release(&self, gone: impl Fn(&Client) -> bool) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut state = self.state.lock();
        let files: Vec<FileId> = state.files.keys().copied().collect();
        for file in files {
            state.on(file, |f| {
                f.held.retain(|l| !gone(&l.owner.client));
                f.waiting.retain(|l| !gone(&l.owner.client));
                f.shares.retain(|s| !gone(&s.owner.client));
                f.wake(file, &mut grants);
            });
        }
        grants
    }

    /// Reserves a file: the owner will use it in the ways of `access` and
    /// denies others those of `deny` (bit 0 read, bit 1 write). A second
    /// reservation of the same owner replaces its first.
    pub fn share(&self, file: FileId, owner: &Owner, access: u32, deny: u32) -> Verdict {
        let mut state = self.state.lock();
        let others = state
            .files
            .get(&file)
            .map(|f| f.shares.as_slice())
            .unwrap_or_default();
        let clash = others
            .iter()
            .find(|s| s.owner != *owner && (s.access & deny != 0 || s.deny & access != 0));
        if let Some(s) = clash {
            let range = Range {
                start: 0,
                last: u64::MAX,
            };
            return Verdict::Denied(Lock {
                owner: s.owner.clone(),
                range,
                exclusive: true,
            });
        }
        if state.total >= MAX_LOCKS {
            return Verdict::Full;
        }
        state.on(file, |f| {
            f.shares.retain(|s| s.owner != *owner);
            f.shares.push(Share {
                owner: owner.clone(),
                access,
                deny,
            });
        });
        Verdict::Granted
    }

    /// Ends the owner's reservation of a file.
    pub fn unshare(&self, file: FileId, owner: &Owner) {
        let mut state = self.state.lock();
        if state.files.contains_key(&file) {
            state.on(file, |f| f.shares.retain(|s| s.owner != *owner));
        }
    }

    /// The clients that have anything in the table.
    pub fn clients(&self) -> HashSet<Client> {
        let state = self.state.lock();
        let mut out = HashSet::new();
        for f in state.files.values() {
            out.extend(
                f.held
                    .iter()
                    .chain(&f.waiting)
                    .map(|l| l.owner.client.clone()),
            );
            out.extend(f.shares.iter().map(|s| s.owner.client.clone()));
        }
        out
    }

    /// Locks, waiters and reservations in all.
    pub fn total(&self) -> usize {
        self.state.lock().total
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
