//! Cache of clients' names, for export rules that use names.
//!
//! **The problem.** A rule may say `*.example.com`, and all that a request shows is an address.
//! Asking the resolver takes milliseconds at best and half a minute at worst, and the thread that
//! has the request serves thousands of others. And names are said by others. The owner of an
//! address can give it any name, so a name counts only if looking it up leads back to the address.
//!
//! **How.** Questions go to threads of their own ([`Names::serve`]). Their answers are kept here,
//! with a bound on the number of entries, and looked up again while they are in use. A rule that
//! needs a name that is not known yet decides nothing. The search ends as *unknown*, never at a
//! later rule, which might admit a client that the unknown one would have refused. The caller waits
//! for the answer for some seconds; after that it gets an error that asks it to come back. An
//! answer outlives a resolver that is down, for as long as [`STALE`]; after that it is unknown
//! again.
//!
//! **What it costs a request.** Nothing: connections remember how they were admitted until the
//! export table or [`Names::generation`] changes (see `admission`). The generation moves whenever
//! an answer changes, and now and then besides, so that connections ask again and it is seen which
//! entries are in use.

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use weir_base::limits::protocol::{
    NAME_ENTRIES as ENTRIES, NAME_FRESH as FRESH, NAME_RECHECK as RECHECK, NAME_RETRY as RETRY,
    NAME_STALE as STALE, NAME_UNUSED as UNUSED,
};

/// The resolver had no answer, neither that there is something nor that there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// Source of names. Calls may take as long as they need.
pub trait Resolver {
    /// Returns the addresses of a host; none if there is no such host.
    ///
    /// # Errors
    /// [`Unavailable`].
    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unavailable>;

    /// Returns the name that an address claims to have, if any.
    ///
    /// # Errors
    /// [`Unavailable`].
    fn name(&self, address: IpAddr) -> Result<Option<String>, Unavailable>;
}

/// Wait for a name that is not known for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The question is queued or with a resolver: it is worth waiting.
    pub coming: bool,
    seen: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Question {
    Client(IpAddr),
    Host(Arc<str>),
}

struct Entry<T> {
    /// The answer that was found last, and when.
    answer: Option<(T, u64)>,
    /// Time at which the resolver was last asked in vain, if that was the last time.
    failed: Option<u64>,
    /// Time at which a rule last needed it.
    used: u64,
    /// True if it is in the queue or with a resolver.
    asked: bool,
}

/// Questions of one kind and their answers.
struct AnswerCache<K, T>(HashMap<K, Entry<T>>);

impl<K, T> Default for AnswerCache<K, T> {
    fn default() -> Self {
        AnswerCache(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash, T: PartialEq> AnswerCache<K, T> {
    /// Returns the answer, or true in `Err` if the question is to be put now.
    fn look(&mut self, key: &K, now: u64) -> Result<&T, bool> {
        if !self.0.contains_key(key) {
            self.make_room();
            let entry = Entry {
                answer: None,
                failed: None,
                used: now,
                asked: false,
            };
            self.0.insert(key.clone(), entry);
        }
        let Some(entry) = self.0.get_mut(key) else {
            return Err(false);
        };
        entry.used = now;
        match &entry.answer {
            Some((answer, _)) => Ok(answer),
            None if entry.asked => Err(false),
            None => {
                let ask = entry.failed.is_none_or(|at| now >= at + RETRY);
                entry.asked = ask;
                Err(ask)
            }
        }
    }

    fn coming(&self, key: &K) -> bool {
        self.0.get(key).is_some_and(|e| e.asked)
    }

    fn make_room(&mut self) {
        if self.0.len() < ENTRIES {
            return;
        }
        let idle = self.0.iter().filter(|(_, e)| !e.asked);
        if let Some(oldest) = idle.min_by_key(|(_, e)| e.used).map(|(k, _)| k.clone()) {
            self.0.remove(&oldest);
        }
    }

    /// Stores what a resolver found; returns whether that changes anything.
    fn store_answer(&mut self, key: &K, found: Result<T, Unavailable>, now: u64) -> bool {
        let Some(entry) = self.0.get_mut(key) else {
            return false;
        };
        entry.asked = false;
        match found {
            Ok(found) => {
                let changed = entry.answer.as_ref().is_none_or(|(a, _)| *a != found);
                entry.answer = Some((found, now));
                entry.failed = None;
                changed
            }
            Err(Unavailable) => {
                entry.failed = Some(now);
                let outdated = entry
                    .answer
                    .as_ref()
                    .is_some_and(|(_, at)| now >= at + STALE);
                if outdated {
                    entry.answer = None;
                }
                outdated
            }
        }
    }

    /// Drops entries that are not in use; returns those to be looked up again.
    fn refresh(&mut self, now: u64) -> Vec<K> {
        self.0.retain(|_, e| e.asked || now < e.used + UNUSED);
        let mut due = Vec::new();
        for (key, entry) in &mut self.0 {
            let tried = entry.failed.is_none_or(|at| now >= at + RETRY);
            let old = entry
                .answer
                .as_ref()
                .is_some_and(|(_, at)| now >= at + FRESH);
            let in_use = now < entry.used + 2 * RECHECK;
            if !entry.asked && old && tried && in_use {
                entry.asked = true;
                due.push(key.clone());
            }
        }
        due
    }
}

#[derive(Default)]
struct State {
    clients: AnswerCache<IpAddr, Vec<String>>,
    hosts: AnswerCache<Arc<str>, Vec<IpAddr>>,
    queue: VecDeque<Question>,
    waiting: Vec<Waker>,
    /// Seconds since the start, as last reported by the caller.
    now: u64,
    closed: bool,
}

/// Names of clients and their resolution (see the module's head).
#[derive(Default)]
pub struct Names {
    state: Mutex<State>,
    work: Condvar,
    generation: AtomicU64,
    /// Counts the events that waiters wait for: an answer, or a second that has passed.
    events: AtomicU64,
}

impl Names {
    /// Returns a number that changes when an answer that was given may not be right any more.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns true if `client` is an address of the host `name`, in lower case.
    ///
    /// # Errors
    /// If that is not known.
    pub fn is_host(&self, name: &Arc<str>, client: IpAddr) -> Result<bool, Wait> {
        let mut state = self.state.lock();
        let now = state.now;
        let ask = match state.hosts.look(name, now) {
            Ok(addresses) => return Ok(addresses.contains(&client)),
            Err(ask) => ask,
        };
        if ask {
            self.put(&mut state, Question::Host(Arc::clone(name)));
        }
        Err(self.wait_for(state.hosts.coming(name)))
    }

    /// Returns true if a verified name of `client` is `like` this.
    pub(crate) fn has_name(
        &self,
        client: IpAddr,
        like: impl Fn(&str) -> bool,
    ) -> Result<bool, Wait> {
        let mut state = self.state.lock();
        let now = state.now;
        let ask = match state.clients.look(&client, now) {
            Ok(names) => return Ok(names.iter().any(|name| like(name))),
            Err(ask) => ask,
        };
        if ask {
            self.put(&mut state, Question::Client(client));
        }
        Err(self.wait_for(state.clients.coming(&client)))
    }

    fn put(&self, state: &mut State, question: Question) {
        state.queue.push_back(question);
        self.work.notify_one();
    }

    fn wait_for(&self, coming: bool) -> Wait {
        Wait {
            coming,
            seen: self.events.load(Ordering::Relaxed),
        }
    }

    /// Resolves at the next answer, or when a second has passed.
    pub fn news(&self, since: Wait) -> impl Future<Output = ()> + Send + '_ {
        News {
            names: self,
            seen: since.seen,
        }
    }

    /// Returns the seconds that have passed, as far as [`Names::tick`] was called.
    pub fn seconds(&self) -> u64 {
        self.state.lock().now
    }

    /// Counts a second: looks up again what is in use, and forgets what is not. To be called once a
    /// second.
    pub fn tick(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.now += 1;
        let now = state.now;
        if now.is_multiple_of(RECHECK) {
            let clients = state.clients.refresh(now).into_iter().map(Question::Client);
            let hosts = state.hosts.refresh(now).into_iter().map(Question::Host);
            state.queue.extend(clients.chain(hosts));
            if !state.queue.is_empty() {
                self.work.notify_all();
            }
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        self.happened(state);
    }

    fn happened(&self, state: &mut State) {
        self.events.fetch_add(1, Ordering::Relaxed);
        for waker in state.waiting.drain(..) {
            waker.wake();
        }
    }

    /// Resolves queued questions until [`Names::close`]: for a thread, or several.
    pub fn serve(&self, resolver: &dyn Resolver) {
        loop {
            let question = {
                let mut state = self.state.lock();
                loop {
                    if state.closed {
                        return;
                    }
                    if let Some(question) = state.queue.pop_front() {
                        break question;
                    }
                    self.work.wait(&mut state);
                }
            };
            self.answer(question, resolver);
        }
    }

    /// Resolves the questions that are queued, then returns.
    pub fn serve_pending(&self, resolver: &dyn Resolver) {
        loop {
            let question = self.state.lock().queue.pop_front();
            match question {
                Some(question) => self.answer(question, resolver),
                None => return,
            }
        }
    }

    /// Ends [`Names::serve`] in all its threads.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }

    fn answer(&self, question: Question, resolver: &dyn Resolver) {
        let changed = match question {
            Question::Client(address) => {
                let found = verified(resolver, address);
                tracing::debug!(client = %address, ?found, "looked up a client's name");
                let mut state = self.state.lock();
                let now = state.now;
                state.clients.store_answer(&address, found, now)
            }
            Question::Host(name) => {
                let found = resolver
                    .addresses(&name)
                    .map(|found| found.iter().map(IpAddr::to_canonical).collect::<Vec<_>>());
                tracing::debug!(host = %name, ?found, "looked up a host's addresses");
                let mut state = self.state.lock();
                let now = state.now;
                state.hosts.store_answer(&name, found, now)
            }
        };
        if changed {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        self.happened(&mut self.state.lock());
    }
}

/// Returns the names of an address that lead back to it.
fn verified(resolver: &dyn Resolver, address: IpAddr) -> Result<Vec<String>, Unavailable> {
    let Some(name) = resolver.name(address)? else {
        return Ok(Vec::new());
    };
    let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
    // Looking up what is an address needs nobody's zone to confirm it.
    if name.is_empty() || name.parse::<IpAddr>().is_ok() {
        return Ok(Vec::new());
    }
    let back = resolver.addresses(&name)?;
    let leads_back = back.iter().any(|a| a.to_canonical() == address);
    if !leads_back {
        tracing::warn!(client = %address, %name, "cannot use a name of the name service: it does not resolve to this address");
    }
    Ok(leads_back.then_some(name).into_iter().collect())
}

struct News<'a> {
    names: &'a Names,
    seen: u64,
}

impl Future for News<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The count moves under this lock.
        let mut state = self.names.state.lock();
        if self.names.events.load(Ordering::Relaxed) != self.seen {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|w| w.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
