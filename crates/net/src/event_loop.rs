//! The event loops, one per core, and what the connections of one core share.
//!
//! Everything here except [`Wakeups`] and the ledger belongs to one thread. A connection that
//! waits for the intent log or for memory leaves its waker in its core's list, with the log sequence number that it
//! waits for; the log thread (or a thread that frees memory) only rings the core's wakeup once per event, and the core
//! wakes the connections whose number has come. So a log batch that completes a hundred requests costs one cross-thread
//! wake-up per core.
//!
//! Nor that one, most of the time: while answers wait for the log, the core polls the log's progress between serving
//! its sockets, and sleeps only when nothing has happened for [`SPINS`] times. Waking a thread on an idle core takes as
//! long as half a write of the log, so a core that slept at once would add that to every durable operation. Between
//! polls it yields its processor to other threads. When polling was in vain (the log's device takes longer), or others
//! kept the processor for long, it does without for the next [`SPIN_BACKOFF`] times.

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

use super::connected::Connected;
use super::connection::Conn;
use super::ledger::{Account, Holding, Ledger};
use super::mail::{Mailbox, Message};
use super::{Backend, Log, Services};

/// Times that a core polls the log's progress before it sleeps: some 100 µs when no other thread wants the processor,
/// two writes of a fast device.
const SPINS: u32 = 100;

/// Times that a core sleeps at once after it polled in vain.
const SPIN_BACKOFF: u32 = 32;

/// What the event loops are started with.
#[derive(Clone)]
pub struct Settings {
    /// Number of event loops, one thread each; at least 1.
    pub cores: usize,
    /// What all connections together may hold.
    pub ledger: Arc<Ledger>,
    /// Which connections there are.
    pub connected: Arc<Connected>,
    /// How long a peer may stall.
    pub stall: Duration,
    /// The source of time for requests.
    pub clock: Arc<dyn Clock>,
}

/// One core's wakeup: rung from any thread, handled on the core.
#[derive(Default)]
struct Wakeup {
    notify: Notify,
    /// Some connection of the core waits for the log, and the core sleeps.
    log: AtomicBool,
    /// Some connection of the core waits for memory.
    memory: AtomicBool,
    /// Memory was freed since the core last polled.
    freed: AtomicBool,
    /// Messages to its connections.
    mailbox: Mailbox,
    /// Sweeps so far.
    beats: AtomicU64,
}

/// Rings the cores when something that connections wait for has happened.
#[derive(Clone)]
pub struct Wakeups {
    wakeups: Arc<[Wakeup]>,
}

impl Wakeups {
    /// Wakeups for `cores` event loops.
    pub fn new(cores: usize) -> Wakeups {
        Wakeups {
            wakeups: (0..cores.max(1)).map(|_| Wakeup::default()).collect(),
        }
    }

    /// Counts that grow while each event loop turns.
    pub fn beats(&self) -> Vec<u64> {
        let beats = self.wakeups.iter().map(|wakeup| &wakeup.beats);
        beats.map(|beats| beats.load(Ordering::Relaxed)).collect()
    }

    /// The intent log has become durable further than before, or has failed.
    pub fn log_advanced(&self) {
        // Pairs with the fences in `Core`: either the core sees the progress, or this sees that
        // the core sleeps.
        fence(Ordering::SeqCst);
        for wakeup in self.wakeups.iter() {
            if wakeup.log.load(Ordering::SeqCst) && wakeup.log.swap(false, Ordering::SeqCst) {
                wakeup.notify.notify_one();
            }
        }
    }

    /// Sends `message` to a connection, by the number that [`ConnInfo`](weir_nfs::ConnInfo) has of it.
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

    /// Bytes went back to the budget.
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

/// The log never gets there.
const NEVER: Lsn = Lsn(u64::MAX);

/// Why a connection is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    /// Nothing: it moves, or it is at rest.
    No,
    /// The peer takes no replies.
    Writing,
    /// The peer has begun a request and does not go on.
    Reading,
    /// Nothing: its large request waits for memory, and could go on.
    Waiting,
}

/// What the sweeper sees of a connection.
pub(super) struct Watch {
    /// Bytes that were read, and that the peer has taken.
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
    /// Requests that came in whole.
    pub requests: Cell<u64>,
    /// What the connection waits for the peer to do.
    pub waits: Cell<Stalled>,
    /// Bytes that its end would free, or that it waits for.
    pub holds: Cell<usize>,
    /// Of the request that waits for memory, bytes that have been read and that are still to be.
    pub backlog: Cell<usize>,
    pub rest: Cell<usize>,
    /// Set by the sweeper: the connection is to end, for this reason.
    pub dropped: Cell<Option<&'static str>>,
    /// The socket, while it is not read from: that the peer is gone then shows in no read.
    pub paused: Cell<Option<RawFd>>,
    /// The socket, while the connection lives.
    pub socket: Cell<Option<RawFd>>,
    /// Messages that the peer did not ask for.
    pub mail: RefCell<VecDeque<Message>>,
    /// Wakes the task that serves the connection.
    pub waker: RefCell<Option<Waker>>,
    account: Arc<Account>,
    /// Set when the connection is to end for another.
    closed: Arc<AtomicBool>,
    /// True while the connection is in its core's list of waiting ones.
    listed: Cell<bool>,
    /// It is to be woken when the log is durable up to here.
    due: Cell<Lsn>,
    /// It is to be woken when memory was freed.
    waiting_for_memory: Cell<bool>,
    /// It is going to be woken after a pause.
    comes_back: Cell<bool>,
    /// It waits for its turn to run a request with a large reply, or has it.
    queued: Cell<bool>,
    has_turn: Cell<bool>,
    /// The state at the last sweep.
    seen: Cell<Seen>,
    /// Time that it has waited for the same request, or for the peer to take as much as a reply of
    /// the largest size.
    age: Cell<Duration>,
    /// Bytes of replies that the peer has taken meanwhile.
    taken: Cell<u64>,
    /// How far the peer is behind the least rate meanwhile.
    behind: Cell<Duration>,
    /// What it had taken at the last look for relief, and for how many it has taken no more.
    untaken: Cell<(u64, u32)>,
}

/// What [`Watch::sweep`] compares with the sweep before.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    waits: Stalled,
    requests: u64,
    /// Bytes moved in the direction that is waited for.
    moved: u64,
}

impl Watch {
    fn new(holding: &Holding) -> Watch {
        Watch {
            received: Cell::new(0),
            sent: Cell::new(0),
            requests: Cell::new(0),
            waits: Cell::new(Stalled::No),
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
            seen: Cell::new(Seen {
                waits: Stalled::No,
                requests: 0,
                moved: 0,
            }),
            age: Cell::new(Duration::ZERO),
            taken: Cell::new(0),
            behind: Cell::new(Duration::ZERO),
            untaken: Cell::new((0, 0)),
        }
    }

    /// Called every [`limits::RELIEF`] while others wait for memory. Whether the peer has taken nothing of its replies for
    /// some time, and its address holds much.
    fn takes_nothing(&self, ledger: &Ledger) -> bool {
        let (before, looks) = self.untaken.get();
        // What the kernel has is not taken yet; if it has nothing, it is this side that is late.
        let kept = self.socket.get().map_or(0, untaken);
        let taken = self.sent.get().saturating_sub(kept);
        let stuck = self.waits.get() == Stalled::Writing && kept > 0 && before == taken;
        let looks = if stuck { looks + 1 } else { 0 };
        self.untaken.set((taken, looks));
        let greedy = self.account.wanted() > 0 || self.account.is_greedy(ledger);
        looks >= looks_for(taken) && greedy && self.dropped.get().is_none()
    }

    /// Called every [`limits::SWEEP`]. A peer that is waited for falls behind by the time that has passed, and catches up
    /// by what the bytes that it moved take at the least rate: so neither a byte now and then nor much in the past excuses it.
    fn sweep(&self, limit: Duration) {
        if self.paused.get().is_some_and(hung_up) {
            return self.drop_because("is gone while its requests waited");
        }
        if self.closed.load(Ordering::Relaxed) {
            return self.drop_because("has not authenticated, and the connection limit is reached");
        }
        let waits = self.waits.get();
        let now = Seen {
            waits,
            requests: match waits {
                Stalled::Reading => self.requests.get(),
                _ => 0,
            },
            moved: match waits {
                Stalled::Writing => self.sent.get(),
                Stalled::Waiting => self.arrived(),
                _ => self.received.get(),
            },
        };
        let enough = self.rest.get().min(limits::WAITING_BYTES) as u64;
        let at_rest = match waits {
            Stalled::No => true,
            Stalled::Waiting => now.moved >= enough,
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
        if waits == Stalled::Writing {
            self.count_taken(moved);
        }
        self.behind
            .set((self.behind.get() + limits::SWEEP).saturating_sub(caught_up));
        if self.behind.get() >= limit {
            self.drop_because(match waits {
                Stalled::Writing => "took no answers for too long",
                _ => "left a request unfinished for too long",
            });
        }
    }

    /// A peer that takes one reply after the other may be found at it at every sweep, which is not
    /// the same as to take one for so long.
    fn count_taken(&self, bytes: u64) {
        self.taken.set(self.taken.get() + bytes);
        if self.taken.get() >= limits::MAX_RECORD as u64 {
            self.age.set(Duration::ZERO);
            self.taken.set(0);
        }
    }

    /// Bytes that have arrived of what is not read on from.
    fn arrived(&self) -> u64 {
        self.backlog.get() as u64 + self.paused.get().map_or(0, readable)
    }

    /// Whether it is closed if others wait for its memory: the peer is slow, or has taken long and its address holds
    /// much.
    fn is_in_the_way(&self, ledger: &Ledger) -> bool {
        let own = self.account.wanted() > 0;
        let moves = self.waits.get() == Stalled::No || self.dropped.get().is_some();
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

/// Looks for relief without progress after which a peer that has taken `taken` bytes is dropped.
pub(super) fn looks_for(taken: u64) -> u32 {
    let earned = taken / limits::MAX_RECORD as u64;
    let most = u64::from(limits::MOST_RELIEF_LOOKS - limits::RELIEF_LOOKS);
    limits::RELIEF_LOOKS + u32::try_from(earned.min(most)).unwrap_or(0)
}

/// Drops connections until they free what others wait for.
fn drop_first(connections: Vec<Rc<Watch>>, ledger: &Ledger) {
    let mut freed = 0;
    for watch in connections {
        if freed < ledger.wanted().max(watch.account.wanted()) {
            freed += watch.holds.get();
            watch.drop_because("held memory that others wait for");
        }
    }
}

/// Whether the peer has closed its end, also behind data that has not been read.
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

/// Bytes that could be read from a socket.
fn readable(fd: RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer to the address that it is passed.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Bytes that the kernel has of what was sent to a peer: not sent yet, or not acknowledged.
pub(super) fn untaken(fd: RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer to the address that it is passed.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// What the connections of one core share.
pub struct Core<L> {
    pub log: L,
    pub ledger: Arc<Ledger>,
    pub connected: Arc<Connected>,
    pub clock: Arc<dyn Clock>,
    pub wakeups: Wakeups,
    /// Where requests are read to. Borrowed only within one call of a connection's `poll`.
    pub receive: RefCell<Box<[u8]>>,
    /// Where what came over TLS is opened to. Borrowed likewise; at most what is received, and one record.
    pub opened: RefCell<Vec<u8>>,
    index: usize,
    /// Connections that this core has been dealt.
    connections: Cell<u64>,
    /// Connections that wait for the log or for memory.
    waiting: RefCell<Vec<Rc<Watch>>>,
    /// Set while the core polls for those: a new one need not notify it.
    looking: Cell<bool>,
    watched: RefCell<Vec<Weak<Watch>>>,
    /// Connections whose next request has a large reply, while there are many such.
    turns: RefCell<Vec<Rc<Watch>>>,
    turns_bell: Notify,
    /// Bytes of such replies that were run since this time, in nanoseconds.
    large: Cell<(u64, usize)>,
    /// The connections that are alive, by number.
    numbered: RefCell<HashMap<u64, Weak<Watch>>>,
    /// True when the server is stopping: connections finish what is under way and end.
    pub draining: Cell<bool>,
}

impl<L: Log> Core<L> {
    /// Returns the time in nanoseconds on the monotonic clock.
    pub fn monotonic(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The event loop with this index, of those that `wakeups` was made for.
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

    /// Wakes the connection when the log is durable up to `due`, or has failed; only the last
    /// call counts.
    pub(super) fn wait_for_log(&self, who: &Rc<Watch>, due: Lsn) {
        who.due.set(due);
        self.list(who);
        // A core that polls will see it; none does before this thread comes to it.
        if !self.looking.replace(true)
            && let Some(wakeup) = self.wakeup()
        {
            wakeup.notify.notify_one();
        }
    }

    /// Wakes the connection after a pause, or earlier if that was asked for already.
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

    /// Whether so many connections are here that large replies take turns.
    pub(super) fn is_crowded(&self) -> bool {
        self.numbered.borrow().len() > limits::CROWD
    }

    /// Returns the bytes of replies that one connection, which has sent `sent` bytes, may have for its
    /// socket, and send before the others are served.
    pub(super) fn turn_bytes(&self, sent: u64) -> usize {
        if self.is_crowded() || sent < limits::PROVEN_READER {
            limits::CROWDED_TURN_BYTES
        } else {
            limits::SEND_BYTES
        }
    }

    /// Whether a request with a large reply may be run now. If not, the connection is woken when it has its turn: one at
    /// a time, so that small calls that arrive meanwhile wait for one of them and not for all.
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

    /// Deals turns for as long as the loop runs, to the address that holds least first.
    async fn deal_turns(&self) {
        loop {
            self.turns_bell.notified().await;
            loop {
                // Sockets and connections have their turn.
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

    /// Wakes the connection when memory was freed. Read the ledger after this.
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

    /// Wakes the connections for which what they waited for has come, and drops those that wait no more from the list.
    /// Returns whether any was woken, and whether others still wait for the log.
    fn wake_due(&self, freed: bool) -> (bool, bool) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            return (false, false);
        }
        // In this order: what became durable before the failure is true.
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

    /// A number that no other connection of this run has.
    pub fn connection_number(&self) -> u64 {
        let turn = self.connections.get() + 1;
        self.connections.set(turn);
        turn * self.wakeups.wakeups.len() as u64 + self.index as u64
    }

    pub(super) fn watch(&self, number: u64, holding: &Holding) -> Rc<Watch> {
        let watch = Rc::new(Watch::new(holding));
        self.watched.borrow_mut().push(Rc::downgrade(&watch));
        let numbered = &mut *self.numbered.borrow_mut();
        numbered.insert(number, Rc::downgrade(&watch));
        watch
    }

    /// The connection is over.
    pub(super) fn forget(&self, number: u64) {
        self.numbered.borrow_mut().remove(&number);
    }

    /// Hands the messages in the core's mailbox to its connections.
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

    /// Handles the core's wakeup for as long as the loop runs.
    pub async fn answer_bell(&self) {
        let Some(wakeup) = self.wakeup() else {
            return;
        };
        let mut backoff = 0u32;
        let mut under_pressure = 0u32;
        loop {
            wakeup.notify.notified().await;
            self.looking.set(true);
            // No need to ring: progress is polled before the next sleep.
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
                // Sockets and connections have their turn, then other threads.
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

    /// Searches for stalled peers for ever.
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

    /// Drops peers that take nothing while others wait for memory: those of the address that holds most first, and no
    /// more than what is waited for.
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

    /// Drops the peers that have fallen behind by `stall`, and those that are in the way of others.
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
        // The oldest first, and no more than what others wait for.
        in_the_way.sort_by_key(|watch| std::cmp::Reverse(watch.age.get()));
        drop_first(in_the_way, ledger);
    }

    /// What the sweeper sees of the connections that are alive.
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

/// A place on an event loop for a connection that has just been accepted.
pub struct Seat<'c, L> {
    core: &'c Rc<Core<L>>,
    /// Dropped when the connection is over.
    alive: mpsc::Sender<()>,
}

impl<L: Log> Seat<'_, L> {
    /// Has `backend` serve the connection.
    ///
    /// # Errors
    /// It is lost already, or there are too many.
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

/// A connection that was accepted, and what its listener's connections speak.
pub type Accepted<W> = (StdStream, W);

/// The running event loops.
pub struct Cores<W> {
    queues: Vec<mpsc::UnboundedSender<Accepted<W>>>,
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

    /// The queues by which connections are dealt to the cores.
    pub fn queues(&self) -> Vec<mpsc::UnboundedSender<Accepted<W>>> {
        self.queues.clone()
    }

    /// Stops reading requests, lets answers under way leave (for a few seconds at most), closes
    /// all connections and ends the threads.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a network thread ended in a panic");
            }
        }
    }
}

async fn run<S: Services>(
    core: Rc<Core<S::Log>>,
    services: &S,
    stall: Duration,
    mut queue: mpsc::UnboundedReceiver<Accepted<S::Wire>>,
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
    // Counts the connections that are alive: each task holds a clone of the sender.
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    loop {
        tokio::select! {
            stream = queue.recv() => match stream {
                Some((stream, wire)) => {
                    let seat = Seat {
                        core: &core,
                        alive: alive.clone(),
                    };
                    if let Err(error) = services.serve(seat, stream, wire) {
                        tracing::debug!(%error, "connection lost before it was served");
                    }
                }
                None => break,
            },
            // An error means that the sender is gone, which is a stop as well.
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
