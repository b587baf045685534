//! The inner loop: one thread, some connections, epoll. As [`crate::engine`], but messages are
//! checked and decrypted where they were received, and built whole, because a signature covers the
//! data.

use super::args::SmbArgs;
use super::link::{self, Link, MAX_MESSAGE};
use super::load::{Load, MOST, Op};
use super::wire::{Response, status_name};
use crate::clock;
use crate::counters::Tally;
use crate::engine::{
    Meter, Phase, RECEIVES_PER_TURN, Stage, TICK, ThreadResult, failed, flush, recv,
};
use crate::error::BenchError;
use crate::outbox::Outbox;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// Receive buffer of a connection, in bytes; it grows to the longest message.
const BUFFER: usize = 256 << 10;
/// Messages whose numbers are kept apart: more than a server may let a connection have in flight.
const NUMBERS: usize = 1 << 15;

#[derive(Clone, Copy)]
struct Slot {
    op: Op,
    started_ns: u64,
    /// Numbers of its messages: the first, and how many.
    numbers: (u64, u64),
    /// Responses that are still to come; 0: it is idle, or waits for credits.
    left: usize,
    good: bool,
}

struct Connection<'a> {
    link: &'a mut Link,
    load: Load<'a>,
    slots: Vec<Slot>,
    /// Slot and place in its chain, by the number of the message.
    places: Vec<u32>,
    /// Slots whose operation waits for credits.
    waiting: Vec<usize>,
    outbox: Outbox,
    wants_write: bool,
    in_flight: usize,
    /// No new operations: draining, or none left.
    exhausted: bool,
    done: bool,
    last_reply_ns: u64,
    buffer: Vec<u8>,
    filled: usize,
}

/// Runs the work on its connections until the stage is [`Phase::Drain`] and all responses have
/// come, or nothing is left to do.
pub fn run(
    share: Vec<(&mut Link, Load<'_>)>,
    args: &SmbArgs,
    region: &[u8],
    stage: &Stage,
) -> Result<ThreadResult, BenchError> {
    let mut thread = Thread::new(share, args, region)?;
    let result = thread.run(stage);
    thread.meter.end(result, stage)
}

struct Thread<'a, 'r> {
    epoll: OwnedFd,
    connections: Vec<Connection<'a>>,
    region: &'r [u8],
    timeout_ns: u64,
    meter: Meter,
}

impl<'a, 'r> Thread<'a, 'r> {
    fn new(
        share: Vec<(&'a mut Link, Load<'a>)>,
        args: &SmbArgs,
        region: &'r [u8],
    ) -> Result<Self, BenchError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
        let now = clock::now_ns();
        let mut connections = Vec::new();
        for (i, (link, load)) in share.into_iter().enumerate() {
            let number = EventData::new_u64(i as u64);
            epoll::add(&epoll, &link.stream, number, EventFlags::IN).map_err(failed("epoll"))?;
            let idle = Slot {
                op: Op::Echo,
                started_ns: 0,
                numbers: (0, 0),
                left: 0,
                good: true,
            };
            connections.push(Connection {
                link,
                load,
                slots: vec![idle; args.depth as usize],
                places: vec![0; NUMBERS],
                waiting: Vec::new(),
                outbox: Outbox::default(),
                wants_write: false,
                in_flight: 0,
                exhausted: false,
                done: false,
                last_reply_ns: now,
                buffer: vec![0; BUFFER],
                filled: 0,
            });
        }
        Ok(Self {
            epoll,
            connections,
            region,
            timeout_ns: (args.timeout * 1e9) as u64,
            meter: Meter::new(),
        })
    }

    fn run(&mut self, stage: &Stage) -> Result<(), BenchError> {
        let mut checked_ns = clock::now_ns();
        for i in 0..self.connections.len() {
            for slot in 0..self.connections[i].slots.len() {
                self.connections[i].begin(slot, checked_ns, stage, self.region);
            }
            self.flush(i)?;
        }
        let mut events = [MaybeUninit::uninit(); 64];
        loop {
            match self.meter.follow(stage) {
                Some(Phase::Drain) => self.connections.iter_mut().for_each(|c| c.exhausted = true),
                Some(Phase::Abort) => return Ok(()),
                Some(Phase::Warmup | Phase::Measure) | None => {}
            }
            if self.finish_idle()? {
                self.meter.complete();
                return Ok(());
            }
            let ready = match epoll::wait(&self.epoll, &mut events, Some(&TICK)) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(failed("epoll")(e)),
            };
            self.meter.tally.wakeups += 1;
            for event in ready {
                let (index, flags) = (event.data.u64() as usize, event.flags);
                if flags != EventFlags::OUT {
                    self.receive(index, stage)?;
                }
                self.flush(index)?;
            }
            self.meter.report(stage);
            let now = clock::now_ns();
            if now - checked_ns > 5_000_000 {
                checked_ns = now;
                self.watch(now)?;
            }
        }
    }

    /// Lets connections that have nothing in flight and nothing to begin send the FLUSHes they owe;
    /// true when all are done.
    fn finish_idle(&mut self) -> Result<bool, BenchError> {
        let now = clock::now_ns();
        let mut all_done = true;
        for i in 0..self.connections.len() {
            let c = &mut self.connections[i];
            if c.done {
                continue;
            }
            if c.exhausted && c.in_flight == 0 {
                for slot in 0..c.slots.len() {
                    match c.load.last() {
                        Some(op) => c.issue(slot, op, now, self.region),
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

    /// Fails when a server has gone silent, or fails too often.
    fn watch(&self, now: u64) -> Result<(), BenchError> {
        for c in &self.connections {
            let silent_ns = now.saturating_sub(c.last_reply_ns);
            if c.in_flight > 0 && silent_ns > self.timeout_ns {
                return Err(BenchError::Protocol(format!(
                    "no response for {} s with {} operations in flight on a connection that has {} credits",
                    silent_ns / 1_000_000_000,
                    c.in_flight,
                    c.link.credits
                )));
            }
        }
        self.meter
            .check_failures(|tally| tally.faults_named(status_name))
    }

    fn flush(&mut self, i: usize) -> Result<(), BenchError> {
        let c = &mut self.connections[i];
        let sending = (&mut c.outbox, &mut c.wants_write);
        flush(&self.epoll, (i, &c.link.stream), sending, self.region)
    }

    fn receive(&mut self, i: usize, stage: &Stage) -> Result<(), BenchError> {
        let c = &mut self.connections[i];
        for _ in 0..RECEIVES_PER_TURN {
            self.meter.tally.receives += 1;
            let room = &mut c.buffer[c.filled..];
            let asked = room.len();
            let Some(got) = recv(&c.link.stream, Some(room), asked)? else {
                break;
            };
            c.filled += got;
            let now = clock::now_ns();
            c.last_reply_ns = now;
            c.parse(now, &mut self.meter.tally, stage, self.region)?;
            if got < asked {
                break;
            }
        }
        Ok(())
    }
}

impl Connection<'_> {
    fn begin(&mut self, slot: usize, now: u64, stage: &Stage, region: &[u8]) {
        if self.exhausted {
            return;
        }
        let op = match stage.may_begin() {
            true => self.load.next(slot),
            false => None,
        };
        match op {
            Some(op) => self.issue(slot, op, now, region),
            None => self.exhausted = true,
        }
    }

    /// Begins an operation; its latency counts from now on, also while it waits for credits.
    fn issue(&mut self, slot: usize, op: Op, now: u64, region: &[u8]) {
        let state = &mut self.slots[slot];
        (state.op, state.started_ns, state.good) = (op, now, true);
        self.in_flight += 1;
        if !(self.waiting.is_empty() && self.send(slot, region)) {
            self.waiting.push(slot);
        }
    }

    /// Sends the slot's operation, if there are credits for it.
    fn send(&mut self, slot: usize, region: &[u8]) -> bool {
        let state = &mut self.slots[slot];
        let (link, outbox, places) = (&mut *self.link, &mut self.outbox, &mut self.places);
        self.load.encode(slot, &state.op, region, |requests| {
            if link.credits < Link::cost(requests) {
                return false;
            }
            debug_assert!(requests.len() <= MOST);
            let mut number = link.next;
            for (place, request) in requests.iter().enumerate() {
                places[number as usize % NUMBERS] = (slot * (MOST + 1) + place) as u32;
                number += u64::from(request.charge());
            }
            state.numbers = (link.next, number - link.next);
            state.left = requests.len();
            outbox.encode(|o| link.put(o, requests));
            true
        })
    }

    /// Handles all complete messages in the buffer.
    fn parse(
        &mut self,
        now: u64,
        tally: &mut Tally,
        stage: &Stage,
        region: &[u8],
    ) -> Result<(), BenchError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut at = 0;
        while let Some(mark) = buffer[at..self.filled].first_chunk::<4>() {
            let len = link::length(*mark)?;
            debug_assert!(len <= MAX_MESSAGE);
            let end = at + 4 + len;
            if end > self.filled {
                if end - at > buffer.len() {
                    buffer.resize(end - at, 0);
                }
                break;
            }
            self.message(&mut buffer[at + 4..end], now, tally, stage, region)?;
            at = end;
        }
        buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        self.buffer = buffer;
        // What the responses granted.
        while let Some(&slot) = self.waiting.first() {
            if !self.send(slot, region) {
                break;
            }
            self.waiting.remove(0);
        }
        Ok(())
    }

    fn message(
        &mut self,
        message: &mut [u8],
        now: u64,
        tally: &mut Tally,
        stage: &Stage,
        region: &[u8],
    ) -> Result<(), BenchError> {
        // At most a chain's: the slots that are complete.
        let mut complete = [None; 2 * MOST];
        let (load, slots, places) = (&mut self.load, &mut self.slots, &self.places);
        let mut used = 0;
        self.link.take(message, |_, response| {
            if let Some(slot) = answered(load, slots, places, &response, tally)? {
                let room = complete.get_mut(used);
                *room.ok_or_else(|| BenchError::Protocol("a chain of many operations".into()))? =
                    Some(slot);
                used += 1;
            }
            Ok(())
        })?;
        for slot in complete.into_iter().flatten() {
            let state = self.slots[slot];
            self.in_flight -= 1;
            if state.good {
                let (class, bytes) = self.load.counts(&state.op);
                tally.done(class, now.saturating_sub(state.started_ns), bytes);
            }
            self.begin(slot, now, stage, region);
        }
        Ok(())
    }
}

/// Judges a response; the slot whose operation is complete with it.
fn answered(
    load: &mut Load<'_>,
    slots: &mut [Slot],
    places: &[u32],
    response: &Response<'_>,
    tally: &mut Tally,
) -> Result<Option<usize>, BenchError> {
    let packed = places[response.message as usize % NUMBERS] as usize;
    let (slot, place) = (packed / (MOST + 1), packed % (MOST + 1));
    let state = slots.get_mut(slot).filter(|s| {
        let (first, count) = s.numbers;
        s.left > 0 && response.message.wrapping_sub(first) < count
    });
    let Some(state) = state else {
        return Err(BenchError::Protocol(format!(
            "a response to no request in flight: message {}",
            response.message
        )));
    };
    // After the first failure of a chain the others fail for its sake.
    if state.good {
        state.good = load.reply(slot, &state.op, place, response, tally)?;
    }
    state.left -= 1;
    Ok((state.left == 0).then_some(slot))
}
