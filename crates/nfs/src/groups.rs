//! Resolves users who have more than sixteen groups, by the name service.
//!
//! **Problem.** AUTH_SYS has room for sixteen groups (RFC 5531 Appendix A). A client sends the
//! first sixteen of a user who has more, so access that the other groups allow is refused.
//!
//! **Solution** (optional). A call whose credential is full is served with all groups that this
//! machine's name service knows of its user. A credential with fewer groups is complete and costs
//! no look-up. The groups sent by the client count if the name service knows no more, or does not
//! answer within [`PATIENCE`]. The user id is the client's word in either case.
//!
//! **Waiting.** The look-up is a call of the name service that may take seconds, on a thread of the
//! [`Directory`]'s own; the call waits for it as for a device. At most [`USERS`] results are kept,
//! for [`KEPT`] each. Calls of one user share one look-up.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use weir_base::Clock;
use weir_vfs::Groups;

/// Number of groups from which on a credential may be incomplete.
pub const FULL: usize = 16;
/// Time for which a user's groups are cached.
pub const KEPT: Duration = Duration::from_secs(600);
/// Time for which a user counts as unknown if the name service does not find it or does not answer.
const KEPT_UNKNOWN: Duration = Duration::from_secs(60);
/// Maximum time that a call waits for the name service.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of users in the cache.
pub const USERS: usize = 4096;

/// A user's groups, the primary one not among them; `None` if the user is not known.
pub type ResolvedGroups = Option<Groups>;

/// The name service.
pub trait Directory: Send + Sync {
    /// Begins to look a user up. `done` is called once, from any thread, or dropped.
    fn look_up(&self, uid: u32, done: Answer);
}

/// Receives the result of a look-up. If it is dropped without one, the user counts as unknown.
pub struct Answer {
    cache: Arc<Cache>,
    uid: u32,
    found: ResolvedGroups,
}

impl Answer {
    /// Reports the user's groups.
    pub fn found(mut self, groups: ResolvedGroups) {
        self.found = groups;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.cache.answered(self.uid, self.found.take());
    }
}

enum Entry {
    /// Being looked up, since then; these wait.
    Asked(Duration, Vec<Waker>),
    /// Found, good until then.
    Known(Duration, ResolvedGroups),
}

struct Cache {
    entries: Mutex<HashMap<u32, Entry>>,
    clock: Arc<dyn Clock>,
}

impl Cache {
    fn answered(&self, uid: u32, found: ResolvedGroups) {
        let kept = match found {
            Some(_) => KEPT,
            None => KEPT_UNKNOWN,
        };
        let until = self.clock.monotonic() + kept;
        let before = self.entries.lock().insert(uid, Entry::Known(until, found));
        if let Some(Entry::Asked(_, waiting)) = before {
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes those who have waited for long enough; about once a second.
    fn tick(&self) {
        let now = self.clock.monotonic();
        let mut late = Vec::new();
        for entry in self.entries.lock().values_mut() {
            if let Entry::Asked(since, waiting) = entry
                && now >= *since + PATIENCE
            {
                late.append(waiting);
            }
        }
        late.into_iter().for_each(Waker::wake);
    }
}

/// State of a user in the cache.
pub enum GroupsLookup {
    /// The result.
    Yes(ResolvedGroups),
    /// The look-up is under way.
    Coming(PendingLookup),
}

/// A look-up under way, to be waited for.
pub struct PendingLookup {
    cache: Arc<Cache>,
    uid: u32,
}

impl Future for PendingLookup {
    type Output = ResolvedGroups;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ResolvedGroups> {
        let now = self.cache.clock.monotonic();
        match self.cache.entries.lock().get_mut(&self.uid) {
            Some(Entry::Known(_, found)) => Poll::Ready(found.clone()),
            Some(Entry::Asked(since, _)) if now >= *since + PATIENCE => Poll::Ready(None),
            Some(Entry::Asked(_, waiting)) => {
                if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }
}

/// See the module's head.
pub struct UserGroups {
    directory: Arc<dyn Directory>,
    cache: Arc<Cache>,
}

impl UserGroups {
    /// Groups as `directory` knows them.
    pub fn new(directory: Arc<dyn Directory>, clock: Arc<dyn Clock>) -> UserGroups {
        let entries = Mutex::default();
        let cache = Arc::new(Cache { entries, clock });
        UserGroups { directory, cache }
    }

    /// Wakes calls that have waited for long enough; about once a second.
    pub fn tick(&self) {
        self.cache.tick();
    }

    /// Returns the groups of a user, or the look-up of them, which is started if necessary.
    pub fn find_groups(&self, uid: u32) -> GroupsLookup {
        let now = self.cache.clock.monotonic();
        {
            let mut entries = self.cache.entries.lock();
            match entries.get(&uid) {
                Some(Entry::Known(until, found)) if now < *until => {
                    return GroupsLookup::Yes(found.clone());
                }
                Some(Entry::Asked(..)) => return GroupsLookup::Coming(self.coming(uid)),
                _ => {}
            }
            if entries.len() >= USERS {
                // Expired entries are removed first. If none has expired, all are removed except
                // for look-ups under way.
                entries.retain(|_, e| !matches!(e, Entry::Known(until, _) if now >= *until));
                if entries.len() >= USERS {
                    entries.retain(|_, e| matches!(e, Entry::Asked(..)));
                }
                if entries.len() >= USERS {
                    return GroupsLookup::Yes(None);
                }
            }
            entries.insert(uid, Entry::Asked(now, Vec::new()));
        }
        // Not under the lock: the result may come at once.
        let answer = Answer {
            cache: Arc::clone(&self.cache),
            uid,
            found: None,
        };
        self.directory.look_up(uid, answer);
        GroupsLookup::Coming(self.coming(uid))
    }

    fn coming(&self, uid: u32) -> PendingLookup {
        PendingLookup {
            cache: Arc::clone(&self.cache),
            uid,
        }
    }
}
