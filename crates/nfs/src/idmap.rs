//! Maps users and groups to `name@domain` (RFC 8881 §5.9), by the name service.
//!
//! **Form.** If a domain is configured, an owner, a group or an entry of an ACL that a client sends
//! may be a number or a name in that domain. The server sends numbers under AUTH_SYS, where client
//! and server share their numbers, and names under Kerberos, where they share names. It sends a
//! number if the name service knows no name. An unknown name, or one of another domain, is refused
//! with BADOWNER.
//!
//! **Waiting.** A look-up may take seconds. It runs on a thread of the [`Accounts`]' own, and the
//! operation that needs it is run again when the result has arrived. At most [`MOST`] results are
//! kept, for [`KEPT`] each. A result that does not arrive within [`PATIENCE`] counts as unknown for
//! a while.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use weir_base::Clock;
use weir_vfs::signal::Signal;

/// Time for which a result is cached.
pub const KEPT: Duration = Duration::from_secs(600);
/// Time for which a name or number counts as unknown if the name service does not find it or does
/// not answer.
const KEPT_UNKNOWN: Duration = Duration::from_secs(60);
/// Maximum time that an operation waits for the name service.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of results in the cache.
pub const MOST: usize = 8192;
/// Longest name that is looked up.
const MAX_NAME: usize = 256;

/// A question to the name service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// The number of the user of this name.
    User(Box<[u8]>),
    /// The number of the group of this name.
    Group(Box<[u8]>),
    /// The name of the user with this number.
    Uid(u32),
    /// The name of the group with this number.
    Gid(u32),
}

/// The result of a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryOutcome {
    /// There is no such user or group.
    Nobody,
    /// The number of a user or group.
    Number(u32),
    /// The name of a user or group.
    Name(Arc<[u8]>),
}

/// The name service.
pub trait Accounts: Send + Sync {
    /// Begins a look-up. `done` is called once, from any thread, or dropped.
    fn look_up(&self, query: Query, done: Answer);
}

/// Receives the result of a look-up. If it is dropped without one, the name or number counts as
/// unknown.
pub struct Answer {
    cache: Arc<Cache>,
    query: Query,
    found: QueryOutcome,
}

impl Answer {
    /// Reports the result.
    pub fn found(mut self, found: QueryOutcome) {
        self.found = found;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let found = std::mem::replace(&mut self.found, QueryOutcome::Nobody);
        self.cache.answered(&self.query, found);
    }
}

enum Entry {
    /// Being looked up, since then.
    Asked(Duration, Arc<Signal<()>>),
    /// Found, good until then.
    Known(Duration, QueryOutcome),
}

struct Cache {
    entries: Mutex<HashMap<Query, Entry>>,
    clock: Arc<dyn Clock>,
}

impl Cache {
    fn answered(&self, query: &Query, found: QueryOutcome) {
        let kept = match found {
            QueryOutcome::Nobody => KEPT_UNKNOWN,
            _ => KEPT,
        };
        let until = self.clock.monotonic() + kept;
        let known = Entry::Known(until, found);
        let before = self.entries.lock().insert(query.clone(), known);
        if let Some(Entry::Asked(_, over)) = before {
            over.set(());
        }
    }
}

/// See the module's head.
pub struct IdMap {
    accounts: Arc<dyn Accounts>,
    domain: Box<[u8]>,
    cache: Arc<Cache>,
}

/// A look-up under way; set when its result is in the cache.
pub type PendingQuery = Arc<Signal<()>>;

impl IdMap {
    /// Creates a map for names in `domain`, which `accounts` resolves.
    pub fn new(domain: &str, accounts: Arc<dyn Accounts>, clock: Arc<dyn Clock>) -> IdMap {
        let entries = Mutex::default();
        IdMap {
            accounts,
            domain: domain.as_bytes().into(),
            cache: Arc::new(Cache { entries, clock }),
        }
    }

    /// Returns the domain.
    pub fn domain(&self) -> &[u8] {
        &self.domain
    }

    /// Gives up look-ups that have taken too long; about once a second.
    pub fn tick(&self) {
        let now = self.cache.clock.monotonic();
        let mut late = Vec::new();
        for entry in self.cache.entries.lock().values_mut() {
            if let Entry::Asked(since, over) = entry
                && now >= *since + PATIENCE
            {
                late.push(Arc::clone(over));
                *entry = Entry::Known(now + KEPT_UNKNOWN, QueryOutcome::Nobody);
            }
        }
        late.iter().for_each(|over| over.set(()));
    }

    /// Returns the number of the user or group that a client calls `text`, which is no number;
    /// `None` if there is none.
    ///
    /// # Errors
    /// The look-up to wait for.
    pub fn number(&self, group: bool, text: &[u8]) -> Result<Option<u32>, PendingQuery> {
        let at = text.iter().rposition(|byte| *byte == b'@');
        let Some((name, [_, domain @ ..])) = at.map(|at| text.split_at(at)) else {
            return Ok(None);
        };
        match domain.eq_ignore_ascii_case(&self.domain) {
            true => self.number_of(group, name),
            false => Ok(None),
        }
    }

    /// Returns the number of the user or group of this name, without a domain; `None` if there is
    /// none.
    ///
    /// # Errors
    /// The look-up to wait for.
    pub fn number_of(&self, group: bool, name: &[u8]) -> Result<Option<u32>, PendingQuery> {
        if name.is_empty() || name.len() > MAX_NAME || name.contains(&0) {
            return Ok(None);
        }
        let query = match group {
            true => Query::Group(name.into()),
            false => Query::User(name.into()),
        };
        Ok(match self.look_up(query)? {
            QueryOutcome::Number(number) => Some(number),
            _ => None,
        })
    }

    /// Returns the name of the user or group with this number; `None` if there is none.
    ///
    /// # Errors
    /// The look-up to wait for.
    pub fn name(&self, group: bool, number: u32) -> Result<Option<Arc<[u8]>>, PendingQuery> {
        let query = match group {
            true => Query::Gid(number),
            false => Query::Uid(number),
        };
        Ok(match self.look_up(query)? {
            QueryOutcome::Name(name) => Some(name),
            _ => None,
        })
    }

    fn look_up(&self, query: Query) -> Result<QueryOutcome, PendingQuery> {
        let now = self.cache.clock.monotonic();
        let over = {
            let mut entries = self.cache.entries.lock();
            match entries.get(&query) {
                Some(Entry::Known(until, found)) if now < *until => return Ok(found.clone()),
                Some(Entry::Asked(_, over)) => return Err(Arc::clone(over)),
                _ => {}
            }
            if entries.len() >= MOST {
                // Expired entries are removed first. If none has expired, all are removed except
                // for look-ups under way.
                entries.retain(|_, e| !matches!(e, Entry::Known(until, _) if now >= *until));
                if entries.len() >= MOST {
                    entries.retain(|_, e| matches!(e, Entry::Asked(..)));
                }
                if entries.len() >= MOST {
                    return Ok(QueryOutcome::Nobody);
                }
            }
            let over: PendingQuery = Arc::default();
            entries.insert(query.clone(), Entry::Asked(now, Arc::clone(&over)));
            over
        };
        // Not under the lock: the result may come at once.
        let answer = Answer {
            cache: Arc::clone(&self.cache),
            query: query.clone(),
            found: QueryOutcome::Nobody,
        };
        self.accounts.look_up(query.clone(), answer);
        match self.cache.entries.lock().get(&query) {
            Some(Entry::Known(_, found)) => Ok(found.clone()),
            _ => Err(over),
        }
    }
}

/// Resolves the names of users and groups for one operation. Keeps the look-up that the operation
/// has to wait for before it is run again.
#[derive(Default)]
pub struct Names<'m> {
    map: Option<&'m IdMap>,
    lacked: RefCell<Option<PendingQuery>>,
}

impl<'m> Names<'m> {
    /// Resolves names by `map`; without one, allows numbers only.
    pub fn new(map: Option<&'m IdMap>) -> Names<'m> {
        Names {
            map,
            lacked: RefCell::default(),
        }
    }

    /// Takes the look-up that the operation has to wait for.
    pub fn lacked(&self) -> Option<PendingQuery> {
        self.lacked.take()
    }

    fn lacks<T>(&self, found: Result<Option<T>, PendingQuery>) -> Option<T> {
        found.unwrap_or_else(|coming| {
            self.lacked.replace(Some(coming));
            None
        })
    }

    /// Returns the number of the user or group that a client calls `text`; `None` if it is unknown,
    /// or not known yet.
    pub fn number(&self, group: bool, text: &[u8]) -> Option<u32> {
        if text.iter().all(u8::is_ascii_digit) {
            return std::str::from_utf8(text).ok()?.parse().ok();
        }
        self.lacks(self.map?.number(group, text))
    }

    /// Returns the name of a user or group for clients, `name@domain`; `None` if it has no name, or
    /// is not known yet.
    pub fn name(&self, group: bool, number: u32) -> Option<Vec<u8>> {
        let map = self.map?;
        let name = self.lacks(map.name(group, number))?;
        Some([&name, &b"@"[..], map.domain()].concat())
    }
}
