//! The generator's inner loop: one thread, some connections, epoll.
//!
//! The generator shares the machine with the server it measures, so its own work
//! per operation must be small beside the server's:
//!
//! * no task and no allocation per operation: a connection has as many *slots* as
//!   it may have calls in flight, and a slot's number is part of the XID, which makes
//!   finding the call of a reply an array access;
//! * replies are parsed where they were received, as many as one `recv` brought, and
//!   the calls they give rise to leave in one `sendmsg`;
//! * READ data that is not checked is not kept: what of it is not received yet when its header is
//!   parsed is skipped, and large remainders are discarded inside the kernel (`MSG_TRUNC`,
//!   tcp(7)) without being copied.
//!
//! Time is taken once a batch. In an open loop ([`crate::arrivals`]) a slot without an
//! operation that is due waits in a list of its connection, and a timer in the same
//! epoll wakes the thread for the next one.

use crate::arrivals::Arrivals;
use crate::clock;
use crate::counters::{Class, Tally};
use crate::error::BenchError;
use crate::load::{Call, Load, Step};
use crate::outbox::{Flush, Outbox};
use crate::rpc::{self, LAST_FRAGMENT};
use crate::xdr::Reader;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bits of the XID that hold the slot; depth is at most 2^SLOT_BITS.
const SLOT_BITS: u32 = 10;
/// Receive buffer of a connection. Sixteen 4 KiB READs' replies fit twice.
const BUFFER: usize = 144 << 10;
/// Length of a READ reply's head with attributes: record mark, RPC header, status,
/// post_op_attr, count, eof, length of the data.
const READ_HEAD: usize = 132;
/// From this many bytes of unwanted data on, discarding in the kernel beats
/// receiving: below, the extra system call costs more than the copy.
const DISCARD_MIN: usize = 16 << 10;
/// Greatest record that is not a protocol error.
const MAX_RECORD: usize = 4 << 20;
/// Receive calls on one connection before the others are served.
pub(crate) const RECEIVES_PER_TURN: usize = 8;
/// Longest wait of the event loop, which is how late a change of phase is seen.
pub(crate) const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
/// Pause before a call that got NFS3ERR_JUKEBOX is repeated.
const JUKEBOX_PAUSE_NS: u64 = 20_000_000;
/// Number of an open loop's timer in epoll; connections have their numbers.
const TIMER: u64 = u64::MAX;
/// Failed operations after which a run is stopped.
const MAX_FAILURES: u64 = 1000;

/// Phase of a run, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Load that is not counted.
    Warmup = 0,
    /// Load that is counted.
    Measure = 1,
    /// No new operations; wait for those in flight, then COMMIT.
    Drain = 2,
    /// Give up at once: another thread failed.
    Abort = 3,
}

/// State that the threads of a run and its conductor share.
pub struct Stage {
    phase: AtomicU8,
    /// Operations begun, against the limit.
    begun: AtomicU64,
    limit: u64,
    /// Operations completed, for the series over time.
    pub progress: AtomicU64,
    /// READs among the completed operations.
    pub reads: AtomicU64,
    /// Bytes of file data moved by them.
    pub bytes: AtomicU64,
    /// Threads that have finished.
    pub finished: AtomicU64,
}

impl Stage {
    /// A run that starts no more than `limit` operations.
    pub fn new(limit: Option<u64>) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Warmup as u8),
            begun: AtomicU64::new(0),
            limit: limit.unwrap_or(u64::MAX),
            progress: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            finished: AtomicU64::new(0),
        }
    }

    /// Moves the run on; it never goes back.
    pub fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
    }

    /// Returns the phase of the run.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Warmup,
            1 => Phase::Measure,
            2 => Phase::Drain,
            _ => Phase::Abort,
        }
    }

    /// Returns true if another operation may be begun, which it then counts as.
    pub(crate) fn may_begin(&self) -> bool {
        self.limit == u64::MAX || self.begun.fetch_add(1, Ordering::Relaxed) < self.limit
    }
}

/// Result of a thread.
pub struct ThreadResult {
    /// Its counts and latencies.
    pub tally: Tally,
    /// Processor time it used in the measured phase, in nanoseconds.
    pub cpu_ns: u64,
    /// Time at which its last operation completed (monotonic clock, in nanoseconds).
    pub end_ns: u64,
}

/// The counts of a thread, and how far it has followed its stage.
pub(crate) struct Meter {
    pub tally: Tally,
    /// Not the stage's phase: a thread that gets the processor late must still go through those
    /// that it missed, or it would begin operations for ever in a run that is draining.
    seen: Phase,
    cpu_start_ns: u64,
    end_ns: u64,
    /// Operations, READs and bytes that the stage knows of.
    reported: [u64; 3],
}

impl Meter {
    pub fn new() -> Self {
        Self {
            tally: Tally::default(),
            seen: Phase::Warmup,
            cpu_start_ns: clock::thread_cpu_ns(),
            end_ns: clock::now_ns(),
            reported: [0; 3],
        }
    }

    /// Follows the stage into its phase, if that is a new one, and returns it.
    pub fn follow(&mut self, stage: &Stage) -> Option<Phase> {
        let phase = stage.phase();
        if phase == self.seen {
            return None;
        }
        if phase == Phase::Measure {
            self.reported = [0; 3];
            self.cpu_start_ns = clock::thread_cpu_ns();
        }
        if phase == Phase::Measure || (phase == Phase::Drain && self.seen == Phase::Warmup) {
            self.tally.restart();
        }
        self.seen = phase;
        Some(phase)
    }

    /// The last operation is complete.
    pub fn complete(&mut self) {
        self.end_ns = clock::now_ns();
    }

    /// Adds what was completed to the stage's counts.
    pub fn report(&mut self, stage: &Stage) {
        let now = [
            self.tally.ops(),
            self.tally.class(Class::Read).latency.len(),
            self.tally.bytes(),
        ];
        let before = std::mem::replace(&mut self.reported, now);
        let counters = [&stage.progress, &stage.reads, &stage.bytes];
        for ((counter, now), before) in counters.into_iter().zip(now).zip(before) {
            // Saturates: a tally that was restarted counts from 0 again.
            counter.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        }
    }

    /// Returns an error once so many operations have failed that the run is stopped. `faults`
    /// returns the tally's faults in words.
    pub fn check_failures(
        &self,
        faults: impl FnOnce(&Tally) -> Vec<String>,
    ) -> Result<(), BenchError> {
        match self.tally.failures() {
            0..=MAX_FAILURES => Ok(()),
            _ => Err(BenchError::Protocol(format!(
                "too many failures: {}",
                faults(&self.tally).join("; ")
            ))),
        }
    }

    /// Ends the thread with the `result` of its run; one that failed ends the other threads'.
    pub fn end(
        self,
        result: Result<(), BenchError>,
        stage: &Stage,
    ) -> Result<ThreadResult, BenchError> {
        if result.is_err() {
            stage.enter(Phase::Abort);
        }
        stage.finished.fetch_add(1, Ordering::SeqCst);
        result?;
        Ok(ThreadResult {
            tally: self.tally,
            cpu_ns: clock::thread_cpu_ns() - self.cpu_start_ns,
            end_ns: self.end_ns,
        })
    }
}

#[derive(Clone, Copy)]
struct Slot {
    xid: u32,
    call: Call,
    started_ns: u64,
    busy: bool,
}

struct Connection<'a> {
    stream: TcpStream,
    load: Load<'a>,
    slots: Vec<Slot>,
    outbox: Outbox,
    wants_write: bool,
    sequence: u32,
    in_flight: usize,
    /// Slots that wait to repeat their call: due time and slot.
    later: Vec<(u64, usize)>,
    /// Times at which operations are due, in an open loop, and the slots that wait for them.
    arrivals: Option<Arrivals>,
    idle: Vec<usize>,
    /// No new operations: draining, or none left.
    exhausted: bool,
    done: bool,
    last_reply_ns: u64,

    buffer: Vec<u8>,
    filled: usize,
    /// Bytes of the current READ's data still to be discarded, and its slot.
    skip: usize,
    skipping: Option<(usize, u64, Step)>,
    /// Length of the record that is being waited for, with its mark.
    needed: usize,
    /// Fragments of a record before its last.
    joined: Vec<u8>,
    /// Receive only a reply's head at a time, because the rest is discarded.
    heads_only: bool,
}

/// The settings of a thread that are not the load's.
#[derive(Clone, Copy)]
pub struct Options<'r> {
    /// The constant payload region.
    pub region: &'r [u8],
    /// Longest wait for a reply, in nanoseconds.
    pub timeout_ns: u64,
    /// Replies are large READs; their data is discarded.
    pub heads_only: bool,
}

/// A connection and what it is to do.
pub struct Link<'a> {
    /// The connection to the server.
    pub stream: TcpStream,
    /// The load that it generates.
    pub load: Load<'a>,
    /// Calls it may have in flight.
    pub depth: usize,
    /// Times at which its operations are due; `None` for a closed loop.
    pub arrivals: Option<Arrivals>,
}

/// Runs the loads on their connections until the stage is [`Phase::Drain`] and all replies have
/// come, or nothing is left to do.
pub fn run(
    connections: Vec<Link<'_>>,
    options: Options<'_>,
    stage: &Stage,
) -> Result<ThreadResult, BenchError> {
    let mut thread = Thread::new(connections, options)?;
    let result = thread.run(stage);
    thread.meter.end(result, stage)
}

struct Thread<'a, 'r> {
    epoll: OwnedFd,
    /// The timer of an open loop, and what it is set to.
    timer: Option<(OwnedFd, u64)>,
    connections: Vec<Connection<'a>>,
    options: Options<'r>,
    meter: Meter,
}

impl<'a, 'r> Thread<'a, 'r> {
    fn new(links: Vec<Link<'a>>, options: Options<'r>) -> Result<Self, BenchError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
        let now = clock::now_ns();
        let timer = match links.iter().any(|l| l.arrivals.is_some()) {
            true => Some((timer(&epoll)?, 0)),
            false => None,
        };
        let mut connections = Vec::new();
        for (i, link) in links.into_iter().enumerate() {
            let Link {
                stream,
                load,
                depth,
                arrivals,
            } = link;
            stream
                .set_nonblocking(true)
                .map_err(BenchError::io("socket options"))?;
            let number = EventData::new_u64(i as u64);
            epoll::add(&epoll, &stream, number, EventFlags::IN).map_err(failed("epoll"))?;
            connections.push(Connection {
                heads_only: options.heads_only && load.discards_reads(),
                stream,
                load,
                slots: vec![
                    Slot {
                        xid: 0,
                        call: Call::Null,
                        started_ns: 0,
                        busy: false,
                    };
                    depth
                ],
                outbox: Outbox::default(),
                wants_write: false,
                // Spread, so that a server that knows callers by address and XID does
                // not take a new run for the repetition of an old one.
                sequence: (now >> 10) as u32 ^ (i as u32).wrapping_mul(0x0009_e377),
                in_flight: 0,
                later: Vec::new(),
                arrivals,
                idle: Vec::new(),
                exhausted: false,
                done: false,
                last_reply_ns: now,
                buffer: vec![0; BUFFER],
                filled: 0,
                skip: 0,
                skipping: None,
                needed: 0,
                joined: Vec::new(),
            });
        }
        Ok(Self {
            epoll,
            timer,
            connections,
            options,
            meter: Meter::new(),
        })
    }

    fn run(&mut self, stage: &Stage) -> Result<(), BenchError> {
        let now = clock::now_ns();
        for i in 0..self.connections.len() {
            self.begin_all(i, now, stage);
            self.flush(i)?;
        }
        let mut events = [MaybeUninit::uninit(); 64];
        let mut checked_ns = now;
        loop {
            match self.meter.follow(stage) {
                Some(Phase::Drain) => self.connections.iter_mut().for_each(|c| c.exhausted = true),
                Some(Phase::Abort) => return Ok(()),
                Some(Phase::Warmup | Phase::Measure) | None => {}
            }
            if self.finish_idle(stage)? {
                self.meter.complete();
                return Ok(());
            }
            self.set_timer()?;
            let ready = match epoll::wait(&self.epoll, &mut events, Some(&TICK)) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(failed("epoll")(e)),
            };
            self.meter.tally.wakeups += 1;
            let idle = ready.is_empty();
            for event in ready {
                let (number, flags) = (event.data.u64(), event.flags);
                if number == TIMER {
                    continue;
                }
                let index = number as usize;
                if flags != EventFlags::OUT {
                    self.receive(index, stage)?;
                }
                self.flush(index)?;
            }
            self.begin_due(stage)?;
            self.meter.report(stage);
            if idle || clock::now_ns() - checked_ns > 5_000_000 {
                checked_ns = clock::now_ns();
                self.repeat_due(checked_ns)?;
                self.watch(checked_ns)?;
            }
        }
    }

    /// Starts an operation in every idle slot of connection `i`.
    fn begin_all(&mut self, i: usize, now: u64, stage: &Stage) {
        let Some(c) = self.connections.get_mut(i) else {
            return;
        };
        for slot in 0..c.slots.len() {
            c.begin(slot, now, stage);
        }
    }

    /// Begins what is due in an open loop.
    fn begin_due(&mut self, stage: &Stage) -> Result<(), BenchError> {
        if self.timer.is_none() {
            return Ok(());
        }
        let now = clock::now_ns();
        for i in 0..self.connections.len() {
            let Some(c) = self.connections.get_mut(i) else {
                continue;
            };
            while c.arrivals.as_ref().is_some_and(|a| a.due_ns() <= now) {
                match c.idle.pop() {
                    Some(slot) => c.begin(slot, now, stage),
                    None => break,
                }
            }
            self.flush(i)?;
        }
        Ok(())
    }

    /// Sets the timer to the next operation that is due and has a slot.
    fn set_timer(&mut self) -> Result<(), BenchError> {
        let Some((timer, set)) = &mut self.timer else {
            return Ok(());
        };
        let due = self
            .connections
            .iter()
            .filter(|c| !c.exhausted && !c.idle.is_empty())
            .filter_map(|c| c.arrivals.as_ref().map(Arrivals::due_ns))
            .min();
        let Some(due) = due.filter(|due| due != set) else {
            return Ok(());
        };
        *set = due;
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (due / 1_000_000_000) as i64,
                tv_nsec: (due % 1_000_000_000) as i64,
            },
        };
        rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &spec)
            .map_err(failed("timer"))?;
        Ok(())
    }

    /// Lets connections that have nothing in flight and nothing to begin send the
    /// COMMITs they owe; true when all are done.
    fn finish_idle(&mut self, _stage: &Stage) -> Result<bool, BenchError> {
        let mut all_done = true;
        for i in 0..self.connections.len() {
            let Some(c) = self.connections.get_mut(i) else {
                continue;
            };
            if c.done {
                continue;
            }
            if c.exhausted && c.in_flight == 0 {
                let now = clock::now_ns();
                for slot in 0..c.slots.len() {
                    match c.load.last() {
                        Some(call) => c.issue(slot, call, now),
                        None => break,
                    }
                }
                if c.in_flight == 0 {
                    c.done = true;
                    continue;
                }
                self.flush(i)?;
            }
            all_done = false;
        }
        Ok(all_done)
    }

    /// Repeats calls that have paused for long enough.
    fn repeat_due(&mut self, now: u64) -> Result<(), BenchError> {
        for i in 0..self.connections.len() {
            let Some(c) = self.connections.get_mut(i) else {
                continue;
            };
            let mut k = 0;
            while let Some(&(due, slot)) = c.later.get(k) {
                if due > now {
                    k += 1;
                    continue;
                }
                c.later.swap_remove(k);
                c.send_again(slot);
            }
            self.flush(i)?;
        }
        Ok(())
    }

    /// Fails when a server has gone silent, or fails too often.
    fn watch(&self, now: u64) -> Result<(), BenchError> {
        for c in &self.connections {
            if c.in_flight > c.later.len()
                && now.saturating_sub(c.last_reply_ns) > self.options.timeout_ns
            {
                return Err(BenchError::Protocol(format!(
                    "no reply for {} s with {} calls in flight on a connection",
                    now.saturating_sub(c.last_reply_ns) / 1_000_000_000,
                    c.in_flight
                )));
            }
        }
        self.meter.check_failures(Tally::faults)
    }

    fn flush(&mut self, i: usize) -> Result<(), BenchError> {
        let Some(c) = self.connections.get_mut(i) else {
            return Ok(());
        };
        let sending = (&mut c.outbox, &mut c.wants_write);
        flush(&self.epoll, (i, &c.stream), sending, self.options.region)
    }

    fn receive(&mut self, i: usize, stage: &Stage) -> Result<(), BenchError> {
        let Some(c) = self.connections.get_mut(i) else {
            return Ok(());
        };
        for _ in 0..RECEIVES_PER_TURN {
            self.meter.tally.receives += 1;
            let (asked, got) = if c.skip >= DISCARD_MIN {
                let got = recv(&c.stream, None, c.skip)?;
                c.skip -= got.unwrap_or(0);
                (usize::MAX, got)
            } else {
                let want = if c.heads_only && c.skip == 0 && c.filled < READ_HEAD {
                    READ_HEAD
                } else {
                    c.buffer.len()
                };
                let Some(room) = c.buffer.get_mut(c.filled..want.max(c.filled)) else {
                    return Err(BenchError::Protocol("receive buffer overrun".into()));
                };
                let asked = room.len();
                let got = recv(&c.stream, Some(room), asked)?;
                c.filled += got.unwrap_or(0);
                (asked, got)
            };
            let Some(got) = got else { break };
            let now = clock::now_ns();
            c.last_reply_ns = now;
            c.parse(now, &mut self.meter.tally, stage)?;
            if got < asked && c.skip == 0 && !c.heads_only {
                break;
            }
        }
        Ok(())
    }
}

impl Connection<'_> {
    fn begin(&mut self, slot: usize, now: u64, stage: &Stage) {
        if self.exhausted {
            return;
        }
        let started = match &mut self.arrivals {
            None => now,
            Some(a) if a.due_ns() <= now => {
                let due = a.due_ns();
                a.advance();
                due
            }
            Some(_) => {
                self.idle.push(slot);
                return;
            }
        };
        let call = if stage.may_begin() {
            self.load.next(slot)
        } else {
            None
        };
        match call {
            Some(call) => self.issue(slot, call, started),
            None => self.exhausted = true,
        }
    }

    /// Sends an operation's first call; its latency counts from `started_ns` on.
    fn issue(&mut self, slot: usize, call: Call, started_ns: u64) {
        if let Some(s) = self.slots.get_mut(slot) {
            s.call = call;
            s.started_ns = started_ns;
            s.busy = true;
            self.in_flight += 1;
            self.send_again(slot);
        }
    }

    /// Sends the slot's call under a new XID.
    fn send_again(&mut self, slot: usize) {
        self.sequence = self.sequence.wrapping_add(1);
        if let Some(s) = self.slots.get_mut(slot) {
            s.xid = (self.sequence << SLOT_BITS) | slot as u32;
            self.load.encode(slot, &s.call, s.xid, &mut self.outbox);
        }
    }

    /// Handles all complete replies in the buffer, and the beginnings of READs.
    fn parse(&mut self, now: u64, tally: &mut Tally, stage: &Stage) -> Result<(), BenchError> {
        if self.skip == 0 {
            self.end_skip(now, tally, stage);
        }
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let take = self.skip.min(self.filled - at);
                self.skip -= take;
                at += take;
                if self.skip > 0 {
                    break;
                }
                self.end_skip(now, tally, stage);
            }
            let buffer = std::mem::take(&mut self.buffer);
            let result = self.record(
                buffer.get(at..self.filled).unwrap_or(&[]),
                now,
                tally,
                stage,
            );
            self.buffer = buffer;
            match result? {
                0 => break,
                used => at += used,
            }
        }
        if at > 0 {
            self.buffer.copy_within(at..self.filled, 0);
            self.filled -= at;
        }
        if self.needed > self.buffer.len() {
            self.buffer.resize(self.needed, 0);
        }
        self.needed = 0;
        Ok(())
    }

    fn end_skip(&mut self, now: u64, tally: &mut Tally, stage: &Stage) {
        match self.skipping.take() {
            Some((slot, started, Step::Done { class, bytes })) => {
                tally.done(class, now.saturating_sub(started), bytes);
                self.in_flight -= 1;
                self.begin(slot, now, stage);
            }
            Some((slot, _, Step::Then(call))) => self.go_on(slot, call),
            _ => {}
        }
    }

    /// Sends the next call of a slot's operation.
    fn go_on(&mut self, slot: usize, call: Call) {
        if let Some(s) = self.slots.get_mut(slot) {
            s.call = call;
        }
        self.send_again(slot);
    }

    /// Handles the record at the beginning of `data`; returns the bytes used, 0 when
    /// it is too incomplete.
    fn record(
        &mut self,
        data: &[u8],
        now: u64,
        tally: &mut Tally,
        stage: &Stage,
    ) -> Result<usize, BenchError> {
        let Some((mark, rest)) = data.split_first_chunk::<4>() else {
            return Ok(0);
        };
        let mark = u32::from_be_bytes(*mark);
        let len = (mark & !LAST_FRAGMENT) as usize;
        if len + self.joined.len() > MAX_RECORD {
            return Err(BenchError::Protocol(format!("record of {len} bytes")));
        }
        let whole = rest.get(..len);
        if mark & LAST_FRAGMENT == 0 || !self.joined.is_empty() {
            let Some(fragment) = whole else {
                return Ok(self.wait_for(len));
            };
            self.joined.extend_from_slice(fragment);
            if mark & LAST_FRAGMENT != 0 {
                let record = std::mem::take(&mut self.joined);
                self.handle(&record, 0, now, tally, stage)?;
            }
            return Ok(4 + len);
        }
        match whole {
            Some(record) => {
                self.handle(record, 0, now, tally, stage)?;
                Ok(4 + len)
            }
            None => {
                if data.len() >= READ_HEAD && self.load.discards_reads() {
                    let missing = len - rest.len();
                    if self.handle(rest, missing, now, tally, stage)? {
                        self.skip = missing;
                        return Ok(data.len());
                    }
                }
                Ok(self.wait_for(len))
            }
        }
    }

    /// Notes that a record of `len` bytes must fit into the buffer; uses nothing of it.
    fn wait_for(&mut self, len: usize) -> usize {
        self.needed = 4 + len;
        0
    }

    /// Handles one reply, of which `missing` bytes are not there yet; false when
    /// it takes more of it.
    fn handle(
        &mut self,
        record: &[u8],
        missing: usize,
        now: u64,
        tally: &mut Tally,
        stage: &Stage,
    ) -> Result<bool, BenchError> {
        let mut r = Reader::new(record);
        let xid = r.u32()?;
        let index = (xid & ((1 << SLOT_BITS) - 1)) as usize;
        let slot = match self.slots.get(index) {
            Some(s) if s.busy && s.xid == xid => *s,
            _ => {
                return Err(BenchError::Protocol(format!(
                    "reply to no call in flight: XID {xid:#x}"
                )));
            }
        };
        if missing > 0 && !matches!(slot.call, Call::Read { .. }) {
            return Ok(false);
        }
        rpc::accept(&mut r)?;
        let step = self.load.reply(index, &slot.call, &mut r, missing, tally)?;
        match step {
            Step::Incomplete => return Ok(false),
            Step::Done { class, bytes } => {
                if let Some(s) = self.slots.get_mut(index) {
                    s.busy = false;
                }
                if missing > 0 {
                    self.skipping = Some((index, slot.started_ns, step));
                    return Ok(true);
                }
                tally.done(class, now.saturating_sub(slot.started_ns), bytes);
                self.in_flight -= 1;
                self.begin(index, now, stage);
            }
            Step::Failed => {
                if let Some(s) = self.slots.get_mut(index) {
                    s.busy = false;
                }
                self.in_flight -= 1;
                self.begin(index, now, stage);
            }
            Step::Then(_) if missing > 0 => {
                self.skipping = Some((index, slot.started_ns, step));
            }
            Step::Then(call) => self.go_on(index, call),
            Step::Again => {
                tally.jukebox += 1;
                self.later.push((now + JUKEBOX_PAUSE_NS, index));
            }
        }
        Ok(true)
    }
}

/// Receives into `into`, or discards up to `len` bytes; `None` when nothing is there.
pub(crate) fn recv(
    stream: &TcpStream,
    into: Option<&mut [u8]>,
    len: usize,
) -> Result<Option<usize>, BenchError> {
    let (pointer, flags) = match into {
        Some(b) => (b.as_mut_ptr(), libc::MSG_DONTWAIT),
        None => (std::ptr::null_mut(), libc::MSG_DONTWAIT | libc::MSG_TRUNC),
    };
    loop {
        // SAFETY: `pointer` has room for `len` bytes, or is null with MSG_TRUNC, with
        // which TCP copies nothing.
        let n = unsafe { libc::recv(stream.as_raw_fd(), pointer.cast(), len, flags) };
        match usize::try_from(n) {
            Ok(0) if len > 0 => {
                return Err(BenchError::Protocol(
                    "the server closed the connection".into(),
                ));
            }
            Ok(n) => return Ok(Some(n)),
            Err(_) => {
                let e = io::Error::last_os_error();
                match e.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(BenchError::Io("receive".into(), e)),
                }
            }
        }
    }
}

/// Sends what connection `i` has to send. Epoll reports when the socket takes more, while it has
/// not taken all of it.
pub(crate) fn flush(
    epoll: &OwnedFd,
    (i, stream): (usize, &TcpStream),
    (outbox, wants_write): (&mut Outbox, &mut bool),
    region: &[u8],
) -> Result<(), BenchError> {
    if outbox.is_empty() && !*wants_write {
        return Ok(());
    }
    let sent = outbox.flush(stream, region);
    let blocked = sent.map_err(BenchError::io("send"))? == Flush::Blocked;
    if blocked != *wants_write {
        *wants_write = blocked;
        let flags = match blocked {
            true => EventFlags::IN | EventFlags::OUT,
            false => EventFlags::IN,
        };
        let number = EventData::new_u64(i as u64);
        epoll::modify(epoll, stream, number, flags).map_err(failed("epoll"))?;
    }
    Ok(())
}

/// A timer of the monotonic clock in the epoll set. Edge-triggered, so that it need
/// not be read: setting it anew clears it (timerfd_create(2)).
fn timer(epoll: &OwnedFd) -> Result<OwnedFd, BenchError> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer =
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed("timer"))?;
    let number = EventData::new_u64(TIMER);
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(epoll, &timer, number, flags).map_err(failed("epoll"))?;
    Ok(timer)
}

pub(crate) fn failed(what: &'static str) -> impl Fn(Errno) -> BenchError {
    move |e| BenchError::Io(what.into(), e.into())
}
