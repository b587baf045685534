//! The event loops, one per core, and the state that the connections of a core share.
//!
//! Everything here except [`Wakeups`] and the ledger belongs to one thread. A connection that waits
//! for the intent log or for memory leaves its waker in its core's list, with the log sequence
//! number that it waits for. The log thread, or a thread that frees memory, only rings the core's
//! wakeup once per event, and the core wakes the connections that may proceed. A log batch that
//! completes a hundred requests therefore costs one cross-thread wake-up per core.
//!
//! Most of the time even that one is saved. While replies wait for the log, the core polls the
//! log's progress between serving its sockets, and sleeps only when nothing has happened for
//! [`SPINS`] times. Waking a thread on an idle core takes as long as half a write of the log, and a
//! core that slept at once would add that to every durable operation. Between polls the core yields
//! its processor to other threads. If polling was in vain because the log's device takes longer, or
//! if others kept the processor for long, the core does not poll for the next [`SPIN_BACKOFF`]
//! times.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::TcpStream as StdStream;
use std::os::fd::RawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::LocalSet;
use weir_base::limits::net as limits;
use weir_base::{Clock, Lsn};

use super::connection::Conn;
use super::connections::ConnectionRegistry;
use super::ledger::{Account, ConnectionMemory, Ledger};
use super::mail::{Mailbox, Message};
use super::{Backend, Log, Services};

/// Polls of the log's progress before a core sleeps: about 100 µs if no other thread wants the
/// processor, two writes of a fast device.
const SPINS: u32 = 100;

/// Number of times that a core sleeps at once after it polled in vain.
const SPIN_BACKOFF: u32 = 32;

/// Settings of the event loops.
#[derive(Clone)]
pub struct Settings {
    /// Number of event loops, one thread each; at least 1.
    pub cores: usize,
    /// Budget of all connections together.
    pub ledger: Arc<Ledger>,
    /// Registry of the open connections.
    pub connected: Arc<ConnectionRegistry>,
    /// Longest stall of a peer.
    pub stall: Duration,
    /// Source of time for requests.
    pub clock: Arc<dyn Clock>,
}

/// A core's wakeup: rung from any thread, handled on the core.
#[derive(Default)]
struct Wakeup {
    notify: Notify,
    /// Set if some connection of the core waits for the log and the core sleeps.
    log: AtomicBool,
    /// Set if some connection of the core waits for memory.
    memory: AtomicBool,
    /// Set if memory was freed since the core last polled.
    freed: AtomicBool,
    /// Messages to the core's connections.
    mailbox: Mailbox,
    /// Number of sweeps so far.
    beats: AtomicU64,
}

/// Rings the cores when an event has happened that connections wait for.
#[derive(Clone)]
pub struct Wakeups {
    wakeups: Arc<[Wakeup]>,
}

impl Wakeups {
    /// Creates the wakeups of `cores` event loops.
    pub fn new(cores: usize) -> Wakeups {
        Wakeups {
            wakeups: (0..cores.max(1)).map(|_| Wakeup::default()).collect(),
        }
    }

    /// Returns a counter for each event loop that grows while the loop runs.
    pub fn beats(&self) -> Vec<u64> {
        let beats = self.wakeups.iter().map(|wakeup| &wakeup.beats);
        beats.map(|beats| beats.load(Ordering::Relaxed)).collect()
    }

    /// Reports that the intent log is durable further than before, or has failed.
    pub fn log_advanced(&self) {
        // Pairs with the fences in `Core`: either the core sees the progress, or this thread sees
        // that the core sleeps.
        fence(Ordering::SeqCst);
        for wakeup in self.wakeups.iter() {
            if wakeup.log.load(Ordering::SeqCst) && wakeup.log.swap(false, Ordering::SeqCst) {
                wakeup.notify.notify_one();
            }
        }
    }

    /// Sends `message` to a connection, by its number in `weir_nfs::ConnInfo`.
    ///
    /// # Errors
    /// [`Full`](super::mail::Full) if the mailbox has no room for `message`.
    pub fn send(&self, connection: u64, message: Message) -> Result<(), super::mail::Full> {
        // See `Core::connection_number`.
        let core = connection % self.wakeups.len() as u64;
        let wakeup = &self.wakeups[core as usize];
        wakeup.mailbox.put(connection, message)?;
        wakeup.notify.notify_one();
        Ok(())
    }

    /// Reports that bytes were returned to the budget.
    pub fn memory_released(&self) {
        fence(Ordering::SeqCst);
        for wakeup in self.wakeups.iter() {
            if wakeup.memory.load(Ordering::SeqCst) && wakeup.memory.swap(false, Ordering::SeqCst) {
                wakeup.freed.store(true, Ordering::SeqCst);
                wakeup.notify.notify_one();
            }
        }
    }
}

/// A number that the log never reaches.
const NEVER: Lsn = Lsn(u64::MAX);

/// State of a connection in which its peer may have stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StallState {
    /// Not stalled: it moves, or it is at rest.
    No,
    /// The peer takes no replies.
    Writing,
    /// The peer has begun a request and does not continue it.
    Reading,
    /// Not stalled: its large request waits for memory, and could proceed.
    Waiting,
}

/// State of a connection for the sweeper.
pub(super) struct Watch {
    /// Bytes that were read from the peer, and bytes that it has taken.
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
    /// Complete requests so far.
    pub requests: Cell<u64>,
    /// Action of the peer that the connection waits for.
    pub waits: Cell<StallState>,
    /// Bytes that its end would free, or that it waits for.
    pub holds: Cell<usize>,
    /// For a request that waits for memory: bytes that were read, and bytes still to read.
    pub backlog: Cell<usize>,
    pub rest: Cell<usize>,
    /// Reason for which the sweeper ends the connection; `None` while it may continue.
    pub dropped: Cell<Option<&'static str>>,
    /// The socket while it is not read from: no read then shows that the peer is gone.
    pub paused: Cell<Option<RawFd>>,
    /// The socket, while the connection lives.
    pub socket: Cell<Option<RawFd>>,
    /// Messages that the peer did not ask for.
    pub mail: RefCell<VecDeque<Message>>,
    /// Wakes the task that serves the connection.
    pub waker: RefCell<Option<Waker>>,
    account: Arc<Account>,
    /// Set if the connection has to end to make room for another one.
    closed: Arc<AtomicBool>,
    /// True while the connection is in its core's list of waiting connections.
    listed: Cell<bool>,
    /// Number up to which the log has to be durable for the connection to be woken.
    due: Cell<Lsn>,
    /// True if the connection is woken when memory was freed.
    waiting_for_memory: Cell<bool>,
    /// True if the connection is woken after a pause.
    comes_back: Cell<bool>,
    /// True while it waits for its turn to run a request with a large reply, and when it has its
    /// turn.
    queued: Cell<bool>,
    has_turn: Cell<bool>,
    /// State at the last sweep.
    seen: Cell<SweepState>,
    /// Time for which it has waited for the same request, or for the peer to take as much as a
    /// reply of the largest size.
    age: Cell<Duration>,
    /// Bytes of replies that the peer has taken during `age`.
    taken: Cell<u64>,
    /// Time by which the peer is behind the least rate during `age`.
    behind: Cell<Duration>,
    /// Bytes that the peer had taken at the last check for relief, and the number of checks since
    /// without progress.
    untaken: Cell<(u64, u32)>,
}

/// State of one sweep that the next one compares with.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SweepState {
    waits: StallState,
    requests: u64,
    /// Bytes moved in the direction that the connection waits for.
    moved: u64,
}

impl Watch {
    fn new(holding: &ConnectionMemory) -> Watch {
        Watch {
            received: Cell::new(0),
            sent: Cell::new(0),
            requests: Cell::new(0),
            waits: Cell::new(StallState::No),
            holds: Cell::new(0),
            backlog: Cell::new(0),
            rest: Cell::new(0),
            dropped: Cell::new(None),
            paused: Cell::new(None),
            socket: Cell::new(None),
            mail: RefCell::default(),
            waker: RefCell::new(None),
            account: Arc::clone(holding.account()),
            closed: Arc::clone(holding.closed()),
            listed: Cell::new(false),
            due: Cell::new(NEVER),
            waiting_for_memory: Cell::new(false),
            comes_back: Cell::new(false),
            queued: Cell::new(false),
            has_turn: Cell::new(false),
            seen: Cell::new(SweepState {
                waits: StallState::No,
                requests: 0,
                moved: 0,
            }),
            age: Cell::new(Duration::ZERO),
            taken: Cell::new(0),
            behind: Cell::new(Duration::ZERO),
            untaken: Cell::new((0, 0)),
        }
    }

    /// Returns true if the peer has taken no replies for some time and its address holds much.
    /// Called every [`limits::RELIEF`] while others wait for memory.
    fn takes_nothing(&self, ledger: &Ledger) -> bool {
        let (before, looks) = self.untaken.get();
        // Bytes in the kernel are not taken yet. If the kernel has none, this side is late.
        let kept = self.socket.get().map_or(0, untaken);
        let taken = self.sent.get().saturating_sub(kept);
        let stuck = self.waits.get() == StallState::Writing && kept > 0 && before == taken;
        let looks = if stuck { looks + 1 } else { 0 };
        self.untaken.set((taken, looks));
        let greedy = self.account.wanted() > 0 || self.account.is_greedy(ledger);
        looks >= looks_for(taken) && greedy && self.dropped.get().is_none()
    }

    /// Called every [`limits::SWEEP`]. A peer that is waited for falls behind by the time that has
    /// passed. It catches up by the time that the bytes it moved take at the least rate. So neither
    /// a byte now and then nor a high rate in the past excuses it.
    fn sweep(&self, limit: Duration) {
        if self.paused.get().is_some_and(hung_up) {
            return self.drop_because("is gone while its requests waited");
        }
        if self.closed.load(Ordering::Relaxed) {
            return self.drop_because("has not authenticated, and the connection limit is reached");
        }
        let waits = self.waits.get();
        let now = SweepState {
            waits,
            requests: match waits {
                StallState::Reading => self.requests.get(),
                _ => 0,
            },
            moved: match waits {
                StallState::Writing => self.sent.get(),
                StallState::Waiting => self.arrived(),
                _ => self.received.get(),
            },
        };
        let enough = self.rest.get().min(limits::WAITING_BYTES) as u64;
        let at_rest = match waits {
            StallState::No => true,
            StallState::Waiting => now.moved >= enough,
            _ => false,
        };
        let seen = self.seen.replace(now);
        if at_rest || (seen.waits, seen.requests) != (waits, now.requests) {
            self.age.set(Duration::ZERO);
            self.taken.set(0);
            self.behind.set(Duration::ZERO);
            return;
        }
        let moved = now.moved.saturating_sub(seen.moved);
        let caught_up = Duration::from_millis(moved * 1000 / limits::LEAST_RATE);
        self.age.set(self.age.get() + limits::SWEEP);
        if waits == StallState::Writing {
            self.count_taken(moved);
        }
        self.behind
            .set((self.behind.get() + limits::SWEEP).saturating_sub(caught_up));
        if self.behind.get() >= limit {
            self.drop_because(match waits {
                StallState::Writing => "took no answers for too long",
                _ => "left a request unfinished for too long",
            });
        }
    }

    /// Counts bytes that the peer has taken, and restarts `age` after as many as the largest reply
    /// has. A peer that takes one reply after the other would otherwise look as if it took a single
    /// one for that long.
    fn count_taken(&self, bytes: u64) {
        self.taken.set(self.taken.get() + bytes);
        if self.taken.get() >= limits::MAX_RECORD as u64 {
            self.age.set(Duration::ZERO);
            self.taken.set(0);
        }
    }

    /// Returns the bytes that have arrived of a request that is not read from the socket now.
    fn arrived(&self) -> u64 {
        self.backlog.get() as u64 + self.paused.get().map_or(0, readable)
    }

    /// Returns true if the connection is closed when others wait for its memory: the peer is slow,
    /// or has taken long while its address holds much.
    fn is_in_the_way(&self, ledger: &Ledger) -> bool {
        let own = self.account.wanted() > 0;
        let moves = self.waits.get() == StallState::No || self.dropped.get().is_some();
        if moves || !(own || ledger.is_short()) {
            return false;
        }
        let greedy = own || self.account.is_greedy(ledger);
        self.behind.get() >= limits::SLOW || (greedy && self.age.get() >= limits::OLD)
    }

    pub fn drop_because(&self, why: &'static str) {
        self.dropped.set(Some(why));
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Returns the number of checks without progress after which a peer that has taken `taken` bytes is
/// dropped.
pub(super) fn looks_for(taken: u64) -> u32 {
    let earned = taken / limits::MAX_RECORD as u64;
    let most = u64::from(limits::MOST_RELIEF_LOOKS - limits::RELIEF_LOOKS);
    limits::RELIEF_LOOKS + u32::try_from(earned.min(most)).unwrap_or(0)
}

/// Drops connections in order until they free the memory that others wait for.
fn drop_first(connections: Vec<Rc<Watch>>, ledger: &Ledger) {
    let mut freed = 0;
    for watch in connections {
        if freed < ledger.wanted().max(watch.account.wanted()) {
            freed += watch.holds.get();
            watch.drop_because("held memory that others wait for");
        }
    }
}

/// Returns true if the peer has closed its end, also if unread data is before that.
fn hung_up(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: one descriptor is passed, valid for the call, which does not wait.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// Returns the bytes that can be read from a socket.
fn readable(fd: RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer to the address that it is passed.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Returns the bytes that the kernel still has of those sent to a peer: not sent yet, or not
/// acknowledged.
pub(super) fn untaken(fd: RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer to the address that it is passed.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// State that the connections of a core share.
pub struct Core<L> {
    pub log: L,
    pub ledger: Arc<Ledger>,
    pub connected: Arc<ConnectionRegistry>,
    pub clock: Arc<dyn Clock>,
    pub wakeups: Wakeups,
    /// Buffer for requests. Borrowed only within one call of a connection's `poll`.
    pub receive: RefCell<Box<[u8]>>,
    /// Buffer for data decrypted by TLS, at most as much as is received and one record. Borrowed
    /// like `receive`.
    pub opened: RefCell<Vec<u8>>,
    index: usize,
    /// Number of connections dealt to this core so far.
    connections: Cell<u64>,
    /// Connections that wait for the log or for memory.
    waiting: RefCell<Vec<Rc<Watch>>>,
    /// True while the core polls for those: a new one need not notify it.
    looking: Cell<bool>,
    watched: RefCell<Vec<Weak<Watch>>>,
    /// Connections whose next request has a large reply and that wait for their turn.
    turns: RefCell<Vec<Rc<Watch>>>,
    turns_bell: Notify,
    /// Start of the current interval in nanoseconds, and bytes of large replies that have run in
    /// it.
    large: Cell<(u64, usize)>,
    /// The open connections, by number.
    numbered: RefCell<HashMap<u64, Weak<Watch>>>,
    /// True when the server is stopping: connections finish the requests in flight and end.
    pub draining: Cell<bool>,
}

impl<L: Log> Core<L> {
    /// Returns the time in nanoseconds on the monotonic clock.
    pub fn monotonic(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Creates the core with this index, one of those that `wakeups` was made for.
    pub fn new(settings: &Settings, wakeups: Wakeups, log: L, index: usize) -> Core<L> {
        Core {
            log,
            ledger: Arc::clone(&settings.ledger),
            connected: Arc::clone(&settings.connected),
            clock: Arc::clone(&settings.clock),
            wakeups,
            receive: RefCell::new(vec![0; limits::RECEIVE_BUFFER].into()),
            opened: RefCell::default(),
            index,
            connections: Cell::new(0),
            waiting: RefCell::default(),
            looking: Cell::new(false),
            watched: RefCell::default(),
            turns: RefCell::default(),
            turns_bell: Notify::new(),
            large: Cell::default(),
            numbered: RefCell::default(),
            draining: Cell::new(false),
        }
    }

    /// Wakes the connection when the log is durable up to `due`, or has failed. Only the last call
    /// counts.
    pub(super) fn wait_for_log(&self, who: &Rc<Watch>, due: Lsn) {
        who.due.set(due);
        self.list(who);
        // A core that polls sees the connection; it does not poll before this thread returns to it.
        if !self.looking.replace(true)
            && let Some(wakeup) = self.wakeup()
        {
            wakeup.notify.notify_one();
        }
    }

    /// Wakes the connection after a pause, or earlier if an earlier wake-up is already requested.
    pub(super) fn come_back(&self, who: &Rc<Watch>, pause: Duration) {
        if who.comes_back.replace(true) {
            return;
        }
        let who = Rc::downgrade(who);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(pause).await;
            if let Some(who) = who.upgrade() {
                who.comes_back.set(false);
                who.wake();
            }
        });
    }

    /// Returns true if there are so many connections that large replies take turns.
    pub(super) fn is_crowded(&self) -> bool {
        self.numbered.borrow().len() > limits::CROWD
    }

    /// Returns the bytes of replies that a connection may queue for its socket, and send before
    /// others are served. It has sent `sent` bytes so far.
    pub(super) fn turn_bytes(&self, sent: u64) -> usize {
        if self.is_crowded() || sent < limits::PROVEN_READER {
            limits::CROWDED_TURN_BYTES
        } else {
            limits::SEND_BYTES
        }
    }

    /// Returns true if a request with a large reply may run now. If not, the connection is woken at
    /// its turn. One connection has its turn at a time, so that a small call waits for one large
    /// reply and not for all.
    pub(super) fn takes_turn(&self, who: &Rc<Watch>, bytes: usize, now: u64) -> bool {
        if who.has_turn.take() {
            return true;
        }
        let every = limits::LARGE_EVERY.as_nanos() as u64;
        let (since, run) = match self.large.get() {
            (since, run) if now < since + every => (since, run),
            _ => (now, 0),
        };
        let mut turns = self.turns.borrow_mut();
        if turns.is_empty() && run < limits::LARGE_BYTES {
            self.large.set((since, run + bytes));
            return true;
        }
        if !who.queued.replace(true) {
            turns.push(Rc::clone(who));
            self.turns_bell.notify_one();
        }
        false
    }

    /// Gives turns, to the address that holds least first, until the loop ends.
    async fn deal_turns(&self) {
        loop {
            self.turns_bell.notified().await;
            loop {
                // Sockets and connections come first.
                tokio::task::yield_now().await;
                let mut turns = self.turns.borrow_mut();
                let all = turns.iter().enumerate();
                let Some((next, _)) = all.min_by_key(|(_, who)| who.account.used()) else {
                    break;
                };
                let who = turns.remove(next);
                who.queued.set(false);
                who.has_turn.set(true);
                who.wake();
            }
        }
    }

    /// Wakes the connection when memory was freed. The caller reads the ledger after this call.
    pub(super) fn wait_for_memory(&self, who: &Rc<Watch>) {
        who.waiting_for_memory.set(true);
        self.list(who);
        if let Some(wakeup) = self.wakeup() {
            wakeup.memory.store(true, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }

    fn list(&self, who: &Rc<Watch>) {
        if !who.listed.replace(true) {
            self.waiting.borrow_mut().push(Rc::clone(who));
        }
    }

    fn wakeup(&self) -> Option<&Wakeup> {
        self.wakeups.wakeups.get(self.index)
    }

    /// Wakes the connections that may proceed, and removes them from the list. Returns whether any
    /// was woken, and whether others still wait for the log.
    fn wake_due(&self, freed: bool) -> (bool, bool) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            return (false, false);
        }
        // In this order: records that became durable before the failure are durable.
        let failed = self.log.log_failed();
        let durable = self.log.durable();
        let (mut woken, mut more) = (false, false);
        waiting.retain(|who| {
            let due = who.due.get();
            if due <= durable || (failed && due != NEVER) || (freed && who.waiting_for_memory.get())
            {
                who.listed.set(false);
                who.due.set(NEVER);
                who.waiting_for_memory.set(false);
                who.wake();
                woken = true;
                return false;
            }
            more |= due != NEVER;
            true
        });
        (woken, more)
    }

    /// Returns a number that no other connection of this run has.
    pub fn connection_number(&self) -> u64 {
        let turn = self.connections.get() + 1;
        self.connections.set(turn);
        turn * self.wakeups.wakeups.len() as u64 + self.index as u64
    }

    pub(super) fn watch(&self, number: u64, holding: &ConnectionMemory) -> Rc<Watch> {
        let watch = Rc::new(Watch::new(holding));
        self.watched.borrow_mut().push(Rc::downgrade(&watch));
        let numbered = &mut *self.numbered.borrow_mut();
        numbered.insert(number, Rc::downgrade(&watch));
        watch
    }

    /// Removes a connection that is over.
    pub(super) fn forget(&self, number: u64) {
        self.numbered.borrow_mut().remove(&number);
    }

    /// Passes the messages in the core's mailbox to its connections.
    fn deliver(&self) {
        let Some(wakeup) = self.wakeup() else {
            return;
        };
        for (number, message) in wakeup.mailbox.take() {
            let watch = self.numbered.borrow().get(&number).and_then(Weak::upgrade);
            if let Some(watch) = watch {
                watch.mail.borrow_mut().push_back(message);
                watch.wake();
            }
        }
    }

    /// Handles the core's wakeup until the loop ends.
    pub async fn answer_bell(&self) {
        let Some(wakeup) = self.wakeup() else {
            return;
        };
        let mut backoff = 0u32;
        let mut under_pressure = 0u32;
        loop {
            wakeup.notify.notified().await;
            self.looking.set(true);
            // Others need not ring: this core polls the progress before it sleeps next.
            wakeup.log.store(false, Ordering::SeqCst);
            let mut looks = 0;
            loop {
                self.deliver();
                let freed = wakeup.freed.swap(false, Ordering::SeqCst);
                let (woken, more) = self.wake_due(freed);
                if !more {
                    break;
                }
                if under_pressure > 0 {
                    under_pressure -= 1;
                    break;
                }
                if woken {
                    if looks > 0 {
                        backoff = 0;
                    }
                    looks = 0;
                } else if backoff > 0 {
                    backoff -= 1;
                    break;
                } else if looks == SPINS {
                    backoff = SPIN_BACKOFF;
                    break;
                }
                looks += 1;
                // Sockets and connections come first, then other threads.
                tokio::task::yield_now().await;
                if weir_base::yield_timed() {
                    under_pressure = SPIN_BACKOFF;
                }
            }
            self.looking.set(false);
            wakeup.log.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.wake_due(false).0 {
                wakeup.notify.notify_one();
            }
        }
    }

    /// Checks for stalled peers until the loop ends.
    async fn sweep(&self, stall: Duration) {
        let mut tick = tokio::time::interval(limits::RELIEF);
        let each = (limits::SWEEP.as_millis() / limits::RELIEF.as_millis()) as u32;
        for turn in (0..each).cycle() {
            tick.tick().await;
            self.relieve();
            if turn == 0 {
                self.sweep_once(stall);
                let wakeup = &self.wakeups.wakeups[self.index];
                wakeup.beats.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Drops peers that take nothing while others wait for memory. Those of the address that holds
    /// most come first, and no more are dropped than needed.
    pub fn relieve(&self) {
        let ledger = &*self.ledger;
        let short = ledger.is_short();
        let mut stuck: Vec<Rc<Watch>> = self
            .watched
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|watch| short || watch.account.wanted() > 0)
            .filter(|watch| watch.takes_nothing(ledger))
            .collect();
        stuck.sort_by_cached_key(|watch| std::cmp::Reverse(watch.account.used()));
        drop_first(stuck, ledger);
    }

    /// Drops the peers that have fallen behind by `stall`, and those that block others.
    pub fn sweep_once(&self, stall: Duration) {
        let ledger = &*self.ledger;
        let short = ledger.is_short();
        let mut in_the_way = Vec::new();
        self.watched
            .borrow_mut()
            .retain(|watch| match watch.upgrade() {
                Some(watch) => {
                    watch.sweep(match short || watch.account.wanted() > 0 {
                        true => stall.min(limits::STALL_SHORT_OF_MEMORY),
                        false => stall,
                    });
                    if watch.is_in_the_way(ledger) {
                        in_the_way.push(watch);
                    }
                    true
                }
                None => false,
            });
        // The oldest first, and no more than needed.
        in_the_way.sort_by_key(|watch| std::cmp::Reverse(watch.age.get()));
        drop_first(in_the_way, ledger);
    }

    /// Returns the sweeper's state of the open connections.
    #[cfg(test)]
    pub(super) fn watched(&self) -> Vec<Rc<Watch>> {
        let watched = self.watched.borrow();
        watched.iter().filter_map(Weak::upgrade).collect()
    }

    fn wake_all(&self) {
        for watch in self.watched.borrow().iter().filter_map(Weak::upgrade) {
            watch.wake();
        }
    }
}

/// Slot on an event loop for a connection that was just accepted.
pub struct LoopSlot<'c, L> {
    core: &'c Rc<Core<L>>,
    /// Dropped when the connection is over.
    alive: mpsc::Sender<()>,
}

impl<L: Log> LoopSlot<'_, L> {
    /// Serves the connection with `backend`.
    ///
    /// # Errors
    /// The connection is lost already, or there are too many.
    pub fn serve<B: Backend<Log = L>>(
        self,
        backend: &Arc<B>,
        stream: StdStream,
    ) -> std::io::Result<()> {
        let conn = Conn::new(Rc::clone(self.core), Arc::clone(backend), stream)?;
        tokio::task::spawn_local(async move {
            conn.await;
            drop(self.alive);
        });
        Ok(())
    }
}

/// An accepted connection, and the protocol of its listener.
pub type AcceptedConnection<W> = (StdStream, W);

/// The running event loops.
pub struct Cores<W> {
    queues: Vec<mpsc::UnboundedSender<AcceptedConnection<W>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl<W: Copy + Send + 'static> Cores<W> {
    /// Starts the event loops. `wakeups` must have been made for as many cores.
    pub fn start<S: Services<Wire = W>>(
        settings: &Settings,
        wakeups: &Wakeups,
        services: &Arc<S>,
    ) -> std::io::Result<Cores<W>> {
        let (stop, _) = watch::channel(false);
        let mut cores = Cores {
            queues: Vec::new(),
            threads: Vec::new(),
            stop,
        };
        for index in 0..settings.cores.max(1) {
            let (sender, receiver) = mpsc::unbounded_channel();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let (settings, wakeups) = (settings.clone(), wakeups.clone());
            let (services, stopped) = (Arc::clone(services), cores.stop.subscribe());
            let thread = std::thread::Builder::new()
                .name(format!("weir-net-{index}"))
                .spawn(move || {
                    let core = Rc::new(Core::new(&settings, wakeups, services.log(), index));
                    let tasks = LocalSet::new();
                    let run = run(core, &*services, settings.stall, receiver, stopped);
                    tasks.block_on(&runtime, run);
                })?;
            cores.queues.push(sender);
            cores.threads.push(thread);
        }
        Ok(cores)
    }

    /// Returns the queues by which connections are dealt to the cores.
    pub fn queues(&self) -> Vec<mpsc::UnboundedSender<AcceptedConnection<W>>> {
        self.queues.clone()
    }

    /// Stops reading requests, lets replies in flight leave for a few seconds at most, closes all
    /// connections and joins the threads.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("network thread panicked");
            }
        }
    }
}

async fn run<S: Services>(
    core: Rc<Core<S::Log>>,
    services: &S,
    stall: Duration,
    mut queue: mpsc::UnboundedReceiver<AcceptedConnection<S::Wire>>,
    mut stopped: watch::Receiver<bool>,
) {
    let helper = Rc::clone(&core);
    tokio::task::spawn_local(async move { helper.answer_bell().await });
    let helper = Rc::clone(&core);
    tokio::task::spawn_local(async move { helper.deal_turns().await });
    let helper = Rc::clone(&core);
    tokio::task::spawn_local(async move { helper.sweep(stall).await });
    if let Some(background_task) = services.background_task(core.index) {
        tokio::task::spawn_local(background_task);
    }
    // Counts the open connections: each task holds a clone of the sender.
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    loop {
        tokio::select! {
            stream = queue.recv() => match stream {
                Some((stream, wire)) => {
                    let seat = LoopSlot {
                        core: &core,
                        alive: alive.clone(),
                    };
                    if let Err(error) = services.serve(seat, stream, wire) {
                        tracing::debug!(%error, "connection lost before it was served");
                    }
                }
                None => break,
            },
            // An error means that the sender is gone, which is a stop too.
            _ = stopped.wait_for(|stop| *stop) => break,
        }
    }
    core.draining.set(true);
    core.wake_all();
    drop(alive);
    if tokio::time::timeout(limits::DRAIN, all_gone.recv())
        .await
        .is_err()
    {
        tracing::warn!("connections were closed with answers under way");
    }
}
