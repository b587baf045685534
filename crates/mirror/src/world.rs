//! Simulation of two nodes, a witness, clients, and the faults between them, from one seed.
//!
//! Messages are delayed, lost, duplicated and reordered; links break in one direction or both. A
//! node's process dies and comes back, or stalls and continues; clocks run at different rates. Each
//! node has a history of writes, which is durable at once, except in two kinds of pairs
//! ([`Keeps`]). In a pair that acknowledges received changes, some of them are lost with a
//! standby's process. In a pair whose logs do not outlive their machines, everything after the last
//! checkpoint is lost, now and then, on one side at a time. An entry carries the whole history.
//! After each event:
//!
//! - a write is reported only by a node whose note gives its role, and while no other node is alone
//!   without it;
//! - an answered read has every write that was reported before the read;
//! - a standby's history is a prefix of its primary's, and loses no reported write.
//!
//! At the end all faults are over: one node serves, the pair is in sync, both have the same
//! history.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use weir_base::{Rng, SeededRng};

use crate::node::{Action, Node, Replies, Role, Timing};
use crate::register::{MemoryWitness, Register, Side, Swap, Witness};

const ID: [u8; 16] = [1; 16];

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// A standby promises nothing.
    NoPromise,
    /// A primary answers reads whatever its lease says.
    NoLease,
    /// A primary in sync reports writes that nobody has acknowledged.
    NoWait,
    /// A lost partner is left without the witness.
    NoWitness,
    /// The role is not noted before changes are reported alone.
    NoNote,
    /// A standby that takes over continues to acknowledge, and keeps none of it.
    LateAcks,
    /// A node that starts assumes that it has promised nothing.
    Forgetful,
    /// Half of the acknowledged changes are not kept.
    Careless,
    /// The register changes from any version.
    NoCompare,
    /// In a pair that acknowledges received changes, a standby that starts takes over as if it had
    /// everything.
    Sure,
    /// A standby asks to become primary before it keeps the acknowledged changes.
    Hasty,
    /// In a pair with logs that are lost with their machines, a node whose log is gone continues as
    /// if it were not.
    Trusting,
    /// A node that is alone reports changes that are only in its log.
    Unchecked,
    /// A node whose partner is in sync reports them too, before the witness says so.
    Early,
}

/// State that outlives a node's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeps {
    /// Every acknowledged change.
    Everything,
    /// Every acknowledged change except the ones received last.
    Written,
    /// Every acknowledged change except the ones received last, or the changes in its last
    /// checkpoint.
    Checkpoints,
}

#[derive(Clone, Debug)]
enum Message {
    Beat(u64, u64, Duration),
    Answer(u64, Duration),
    /// Between the processes with these numbers: the contents of a connection do not outlive
    /// either.
    Entry(u64, [u64; 2], Vec<u64>),
    Ack(u64, usize),
    Ask(Option<Register>),
    Reply(Swap),
}

#[derive(Clone, Debug)]
enum Event {
    Tick(Side),
    /// To a node, in its process with that number.
    Deliver(Side, Message),
    Witness(Side, Message),
    /// A write of a client.
    Write,
    Read,
    /// The reply to a read that was evaluated with a number of writes, and the writes that had to
    /// be there.
    Send(Side, u64, Vec<u64>, Vec<u64>),
    Noted(Side, u64, Register),
    Resume(Side),
    Fault,
}

struct Machine {
    node: Option<Node>,
    process: u64,
    note: Register,
    history: Vec<u64>,
    /// Number of writes at its end that are in memory only.
    received: usize,
    /// Number of writes that are in a checkpoint.
    checkpoint: usize,
    /// True if its log was lost, and it has not been resynced since.
    lacking: bool,
    /// Term of the primary from which it has got everything.
    caught: Option<u64>,
    /// Unreported writes, by their place in the history.
    pending: Vec<u64>,
    paused: bool,
    queue: Vec<Event>,
    /// Thousandths by which its clock is fast.
    drift: i64,
}

struct World {
    rng: SeededRng,
    bug: Option<Bug>,
    keeps: Keeps,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, Event>,
    machines: [Machine; 2],
    witness: MemoryWitness,
    /// Broken links: from, to; the witness is 2.
    broken: [[bool; 3]; 3],
    reported: Vec<u64>,
    next: u64,
    calm: bool,
    takeovers: u64,
    alone: u64,
}

fn index(side: Side) -> usize {
    match side {
        Side::A => 0,
        Side::B => 1,
    }
}

impl World {
    fn new(seed: u64, bug: Option<Bug>, keeps: Keeps) -> World {
        let rng = SeededRng::new(seed);
        let first = Register::new(Side::A);
        let mut witness = MemoryWitness::default();
        witness.swap(ID, first).unwrap();
        let machine = || Machine {
            node: None,
            process: 0,
            note: first,
            history: Vec::new(),
            received: 0,
            checkpoint: 0,
            lacking: false,
            caught: None,
            pending: Vec::new(),
            paused: false,
            queue: Vec::new(),
            drift: rng.below(21) as i64 - 10,
        };
        let machines = [machine(), machine()];
        let mut world = World {
            rng,
            bug,
            keeps,
            now: 10_000_000,
            order: 0,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            machines,
            witness,
            broken: Default::default(),
            reported: Vec::new(),
            next: 0,
            calm: false,
            takeovers: 0,
            alone: 0,
        };
        for side in [Side::A, Side::B] {
            world.start(side);
        }
        world.schedule_event(50_000, Event::Write);
        world.schedule_event(60_000, Event::Read);
        world.schedule_event(1_000_000, Event::Fault);
        world
    }

    /// Schedules an event after `delay` microseconds.
    fn schedule_event(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + delay, self.order)));
        self.bodies.insert(self.order, event);
    }

    fn clock(&self, side: Side) -> Duration {
        let drift = self.machines[index(side)].drift;
        Duration::from_micros((self.now as i64 + self.now as i64 / 1000 * drift) as u64)
    }

    fn timing(&self) -> Timing {
        let timing = Timing::default();
        match self.bug {
            Some(Bug::Forgetful) => Timing {
                patience: Duration::from_millis(300),
                ..timing
            },
            Some(Bug::NoPromise) => Timing {
                promise: Duration::ZERO,
                patience: Duration::from_millis(300),
                ..timing
            },
            _ => timing,
        }
    }

    fn start(&mut self, side: Side) {
        self.lose_log(side);
        let (now, timing) = (self.clock(side), self.timing());
        let machine = &mut self.machines[index(side)];
        machine.process += 1;
        machine.pending.clear();
        machine.caught = None;
        let kept = machine.history.len() - std::mem::take(&mut machine.received);
        machine.history.truncate(kept);
        let forgetful = self.bug == Some(Bug::Forgetful);
        let started = match forgetful {
            true => now - timing.promise,
            false => now,
        };
        let node = Node::start(side, machine.note, timing, started);
        machine.node = Some(match self.keeps {
            Keeps::Written if self.bug != Some(Bug::Sure) => node.unsure(),
            Keeps::Checkpoints if machine.lacking && self.bug != Some(Bug::Trusting) => {
                node.lacking()
            }
            _ => node,
        });
        self.schedule_event(0, Event::Tick(side));
    }

    /// Loses the log of a node that is down, unless the other one lacks reported writes, since the
    /// loss of two logs is one too many.
    fn lose_log(&mut self, side: Side) {
        let other = &self.machines[index(side.other())];
        if self.keeps != Keeps::Checkpoints || other.lacking || self.calm || self.rng.below(2) == 0
        {
            return;
        }
        let has_all = |history: &[u64]| lacks(history, &self.reported).is_none();
        let own = &self.machines[index(side)];
        if has_all(&other.history)
            || has_all(&own.history[..own.checkpoint])
            || self.bug == Some(Bug::Unchecked)
        {
            let machine = &mut self.machines[index(side)];
            machine.history.truncate(machine.checkpoint);
            machine.lacking = true;
        }
    }

    fn delay(&mut self) -> u64 {
        match self.calm {
            true => 200 + self.rng.below(500),
            false => match self.rng.below(40) {
                0 => self.rng.below(6_000_000),
                1..=5 => self.rng.below(300_000),
                _ => 100 + self.rng.below(3_000),
            },
        }
    }

    fn send(&mut self, from: usize, to: usize, event: Event) {
        let faulty = !self.calm;
        if self.broken[from][to] || faulty && self.rng.below(60) == 0 {
            return;
        }
        if faulty && self.rng.below(60) == 0 {
            let delay = self.delay();
            self.schedule_event(delay, event.clone());
        }
        let delay = self.delay();
        self.schedule_event(delay, event);
    }

    fn act(&mut self, side: Side, actions: Vec<Action>) {
        let (me, other) = (index(side), index(side.other()));
        for action in actions {
            match action {
                Action::Beat {
                    term,
                    version,
                    sent,
                } => {
                    let beat = Message::Beat(term, version, sent);
                    self.send(me, other, Event::Deliver(side.other(), beat));
                    self.send_entry(side, term);
                }
                Action::Answer { term, sent } => {
                    let answer = Message::Answer(term, sent);
                    self.send(me, other, Event::Deliver(side.other(), answer));
                }
                Action::Read => self.send(me, 2, Event::Witness(side, Message::Ask(None))),
                Action::Swap(to) => {
                    // Its log is written before it asks, with a checkpoint if that is what it
                    // keeps.
                    if self.bug != Some(Bug::Hasty) {
                        let machine = &mut self.machines[me];
                        machine.received = 0;
                        machine.checkpoint = machine.history.len();
                    }
                    if self.bug == Some(Bug::NoWitness) {
                        let reply = Message::Reply(Swap::Done(to));
                        self.schedule_event(0, Event::Deliver(side, reply));
                    } else {
                        self.send(me, 2, Event::Witness(side, Message::Ask(Some(to))));
                    }
                }
                Action::Note(register) => {
                    if side != self.machines[me].note.primary {
                        self.takeovers += 1;
                    }
                    let process = self.machines[me].process;
                    if self.bug == Some(Bug::NoNote) {
                        let now = self.clock(side);
                        self.with(side, |node| node.noted(now, register));
                    }
                    let delay = self.rng.below(20_000);
                    self.schedule_event(delay, Event::Noted(side, process, register));
                }
            }
        }
    }

    fn send_entry(&mut self, side: Side, term: u64) {
        let (me, other) = (index(side), index(side.other()));
        let processes = self.machines.each_ref().map(|m| m.process);
        let entry = Message::Entry(term, processes, self.machines[me].history.clone());
        self.send(me, other, Event::Deliver(side.other(), entry));
    }

    fn with(&mut self, side: Side, act: impl FnOnce(&mut Node) -> Vec<Action>) {
        let Some(node) = &mut self.machines[index(side)].node else {
            return;
        };
        let actions = act(node);
        self.act(side, actions);
    }

    fn run(&mut self, until: u64) -> Result<(), String> {
        while let Some(Reverse((time, order))) = self.events.peek().copied() {
            if time > until {
                break;
            }
            self.events.pop();
            self.now = self.now.max(time);
            let event = self.bodies.remove(&order).unwrap();
            self.handle(event)?;
        }
        self.now = until;
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let to = match &event {
            Event::Tick(side) | Event::Deliver(side, _) | Event::Noted(side, ..) => Some(*side),
            Event::Send(side, ..) => Some(*side),
            _ => None,
        };
        if let Some(side) = to {
            let machine = &mut self.machines[index(side)];
            if machine.paused {
                machine.queue.push(event);
                return Ok(());
            }
        }
        match event {
            Event::Tick(side) => {
                let now = self.clock(side);
                self.with(side, |node| node.tick(now));
                if self.machines[index(side)].node.is_some() {
                    self.schedule_event(20_000, Event::Tick(side));
                }
            }
            Event::Noted(side, process, register) => {
                let now = self.clock(side);
                let machine = &mut self.machines[index(side)];
                if machine.process == process {
                    machine.note = register;
                    machine.received = 0;
                    machine.lacking = false;
                    self.with(side, |node| node.noted(now, register));
                }
            }
            Event::Witness(side, message) => self.query_witness(side, &message),
            Event::Deliver(side, message) => self.deliver(side, message)?,
            Event::Write => {
                self.write()?;
                let delay = self.rng.below(60_000);
                self.schedule_event(delay, Event::Write);
            }
            Event::Read => {
                self.read();
                let delay = self.rng.below(60_000);
                self.schedule_event(delay, Event::Read);
            }
            Event::Send(side, process, seen, wanted) => {
                return self.answer(side, process, &seen, &wanted);
            }
            Event::Resume(side) => {
                let machine = &mut self.machines[index(side)];
                machine.paused = false;
                for event in std::mem::take(&mut machine.queue) {
                    self.schedule_event(0, event);
                }
            }
            Event::Fault => {
                if !self.calm {
                    self.fault();
                    let delay = self.rng.below(4_000_000);
                    self.schedule_event(delay, Event::Fault);
                }
            }
        }
        Ok(())
    }

    fn query_witness(&mut self, side: Side, message: &Message) {
        let Message::Ask(change) = message else {
            return;
        };
        let reply = match change {
            None => Swap::Lost(self.witness.read(ID).unwrap().unwrap()),
            Some(to) => {
                if self.bug == Some(Bug::NoCompare) {
                    self.witness = MemoryWitness::default();
                    let mut forged = *to;
                    forged.version = 1;
                    self.witness.swap(ID, forged).unwrap();
                    for version in 2..=to.version {
                        self.witness.swap(ID, Register { version, ..*to }).unwrap();
                    }
                }
                self.witness.swap(ID, *to).unwrap()
            }
        };
        self.send(2, index(side), Event::Deliver(side, Message::Reply(reply)));
    }

    fn deliver(&mut self, side: Side, message: Message) -> Result<(), String> {
        let now = self.clock(side);
        let (me, other) = (index(side), index(side.other()));
        match message {
            Message::Beat(term, version, sent) => {
                self.with(side, |node| node.heard_beat(now, term, version, sent));
            }
            Message::Answer(term, sent) => {
                if let Some(node) = &mut self.machines[me].node {
                    node.heard_answer(now, term, sent);
                }
            }
            Message::Reply(reply) => self.with(side, |node| node.witness(now, reply)),
            Message::Entry(term, processes, history) => {
                if processes != self.machines.each_ref().map(|m| m.process) {
                    return Ok(());
                }
                let late = self.bug == Some(Bug::LateAcks);
                let machine = &mut self.machines[me];
                let Some(node) = &machine.node else {
                    return Ok(());
                };
                let role = node.role();
                let taking = matches!(role, Role::TakingOver | Role::Noting | Role::Alone);
                let careless = self.bug == Some(Bug::Careless) && self.rng.below(2) == 0;
                if late && taking || careless && node.acknowledges(term) {
                    let ack = Message::Ack(term, history.len());
                    self.send(me, other, Event::Deliver(side.other(), ack));
                    return Ok(());
                }
                // Messages of an older term's connection do not arrive after a newer one has
                // replaced it.
                if !node.acknowledges(term) || machine.caught.is_some_and(|newer| term < newer) {
                    return Ok(());
                }
                let own = &mut machine.history;
                if role == Role::Behind && machine.caught != Some(term) {
                    machine.caught = Some(term);
                    *own = history;
                } else if history.starts_with(own) {
                    *own = history;
                } else if !own.starts_with(&history) {
                    return Err(format!("{side:?} has {own:?}, its primary {history:?}"));
                }
                let ack = Message::Ack(term, own.len());
                if self.keeps == Keeps::Written {
                    machine.received = self.rng.below(4).min(own.len() as u64) as usize;
                }
                machine.lacking = false;
                let some = self.rng.below(own.len() as u64 + 1) as usize;
                machine.checkpoint = machine.checkpoint.min(own.len()).max(some);
                self.with(side, |node| node.has_everything(now, term));
                self.send(me, other, Event::Deliver(side.other(), ack));
            }
            Message::Ack(term, len) => {
                let Machine {
                    node: Some(node),
                    history,
                    pending,
                    checkpoint,
                    ..
                } = &mut self.machines[me]
                else {
                    return Ok(());
                };
                let complete = len == history.len();
                if node.register().term == term && node.role() == Role::Alone && complete {
                    self.with(side, |node| node.caught_up(now));
                } else if node.replies() == Replies::WithPartner(term) {
                    // Before the register has both in sync, this side may be the only survivor.
                    if !node.register().mirrored && self.bug != Some(Bug::Early) {
                        *checkpoint = history.len();
                    }
                    let have = history.get(..len).unwrap_or(history);
                    let (done, rest): (Vec<u64>, _) = std::mem::take(pending)
                        .into_iter()
                        .partition(|write| lacks(have, &[*write]).is_none());
                    *pending = rest;
                    self.report(side, &done)?;
                }
            }
            Message::Ask(_) => {}
        }
        Ok(())
    }

    fn report(&mut self, side: Side, writes: &[u64]) -> Result<(), String> {
        if writes.is_empty() {
            return Ok(());
        }
        // A node that has taken over after acknowledging them, which is not known here yet, has
        // them.
        let other = &self.machines[index(side.other())];
        let alone = other
            .node
            .as_ref()
            .is_some_and(|node| node.replies() == Replies::Alone);
        if alone && lacks(&other.history, writes).is_some() {
            return Err(format!(
                "both answer: {side:?} reports {writes:?}, and its partner is alone"
            ));
        }
        for write in writes {
            let at = self.reported.partition_point(|before| before < write);
            // With a rule left out it may have been reported before.
            if self.reported.get(at) != Some(write) {
                self.reported.insert(at, *write);
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), String> {
        let side = [Side::A, Side::B][self.rng.below(2) as usize];
        let no_wait = self.bug == Some(Bug::NoWait);
        let machine = &mut self.machines[index(side)];
        let Some(node) = machine.node.as_ref().filter(|_| !machine.paused) else {
            return Ok(());
        };
        let (replies, register) = (node.replies(), node.register());
        if replies == Replies::Held {
            return Ok(());
        }
        self.next += 1;
        assert!(machine.history.last() < Some(&self.next), "numbers ascend");
        machine.history.push(self.next);
        let write = self.next;
        match replies {
            Replies::WithPartner(term) => {
                machine.pending.push(write);
                self.send_entry(side, term);
                if no_wait {
                    self.report(side, &[write])?;
                }
            }
            _ => {
                if machine.note != register {
                    return Err(format!(
                        "{side:?} is alone, and its note says {:?}",
                        machine.note
                    ));
                }
                if self.bug != Some(Bug::Unchecked) {
                    machine.checkpoint = machine.history.len();
                }
                self.alone += 1;
                self.report(side, &[write])?;
            }
        }
        Ok(())
    }

    fn read(&mut self) {
        let side = [Side::A, Side::B][self.rng.below(2) as usize];
        let now = self.clock(side);
        let machine = &self.machines[index(side)];
        let Some(node) = machine.node.as_ref().filter(|_| !machine.paused) else {
            return;
        };
        let free = self.bug == Some(Bug::NoLease) && node.role() == Role::Primary;
        if !free && !node.may_read(now) {
            return;
        }
        let (seen, process) = (machine.history.clone(), machine.process);
        let wanted = self.reported.clone();
        let delay = self.rng.below(2_000);
        self.schedule_event(delay, Event::Send(side, process, seen, wanted));
    }

    fn answer(
        &mut self,
        side: Side,
        process: u64,
        seen: &[u64],
        wanted: &[u64],
    ) -> Result<(), String> {
        let now = self.clock(side);
        let machine = &self.machines[index(side)];
        let Some(node) = machine.node.as_ref().filter(|_| machine.process == process) else {
            return Ok(());
        };
        let free = self.bug == Some(Bug::NoLease) && node.role() == Role::Primary;
        if !free && !node.may_read(now) {
            return Ok(());
        }
        match lacks(seen, wanted) {
            None => Ok(()),
            Some(lost) => Err(format!(
                "{side:?} answers a read without {lost}: {:?}",
                node.role()
            )),
        }
    }

    fn fault(&mut self) {
        let side = [Side::A, Side::B][self.rng.below(2) as usize];
        let me = index(side);
        let long = self.rng.below(12_000_000);
        match self.rng.below(7) {
            0 | 1 => {
                if self.machines[me].node.take().is_some() {
                    self.machines[me].process += 1;
                } else {
                    self.machines[me].queue.clear();
                    self.start(side);
                }
            }
            2 if !self.machines[me].paused => {
                self.machines[me].paused = true;
                self.schedule_event(long, Event::Resume(side));
            }
            3 => {
                let (from, to) = (self.rng.below(3) as usize, self.rng.below(3) as usize);
                self.broken[from][to] = true;
            }
            4 => {
                let (one, two) = (me, 1 - me);
                self.broken[one][two] = true;
                self.broken[two][one] = true;
            }
            _ => self.broken = Default::default(),
        }
        // A node that is down restarts.
        if self.rng.below(2) == 0 && self.machines[me].node.is_none() {
            self.start(side);
        }
    }

    /// Ends all faults and checks the result.
    fn check_convergence(&mut self) -> Result<(), String> {
        self.calm = true;
        self.broken = Default::default();
        for side in [Side::A, Side::B] {
            if self.machines[index(side)].node.is_none() {
                self.machines[index(side)].queue.clear();
                self.start(side);
            }
        }
        // Delayed messages arrive meanwhile, and no process is stalled any more.
        self.run(self.now + 40_000_000)?;
        let roles = self
            .machines
            .each_ref()
            .map(|m| m.node.as_ref().unwrap().role());
        let sound = roles.contains(&Role::Primary) && roles.contains(&Role::Standby);
        if !sound {
            let register = self.witness.read(ID);
            return Err(format!("in the end they are {roles:?}, by {register:?}"));
        }
        let old = self.reported.clone();
        self.run(self.now + 1_000_000)?;
        if self.reported.len() == old.len() {
            return Err("in the end nothing is written".into());
        }
        let [a, b] = &self.machines;
        for machine in [a, b] {
            // The last entries may be in transit.
            if let Some(lost) = lacks(&machine.history, &old) {
                return Err(format!("{lost} was reported, and is gone"));
            }
        }
        Ok(())
    }
}

/// Returns the first of these writes that a history does not have; both are ascending.
fn lacks(history: &[u64], writes: &[u64]) -> Option<u64> {
    if let [write] = writes {
        return history.binary_search(write).err().map(|_| *write);
    }
    let mut rest = history.iter();
    let mut has = |write: &u64| rest.any(|one| one == write);
    writes.iter().find(|write| !has(write)).copied()
}

fn story(seed: u64, bug: Option<Bug>, keeps: Keeps) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, bug, keeps);
    world.run(world.now + 60_000_000)?;
    world.check_convergence()?;
    Ok((world.takeovers, world.alone))
}

fn seeds(most: u64) -> u64 {
    let asked = std::env::var("WEIR_SEEDS").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(most)
}

#[test]
fn at_most_one_answers_and_nothing_that_was_reported_is_lost() {
    let (mut takeovers, mut alone) = (0, 0);
    for seed in 0..seeds(40) {
        let (over, by_itself) =
            story(seed, None, Keeps::Everything).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        takeovers += over;
        alone += by_itself;
    }
    assert!(
        takeovers > 12 && alone > 250,
        "{takeovers} takeovers, {alone} writes alone"
    );
}

#[test]
fn what_one_side_does_not_keep_is_lost_with_no_single_process() {
    for keeps in [Keeps::Written, Keeps::Checkpoints] {
        let mut takeovers = 0;
        for seed in 0..seeds(40) {
            let done = story(seed, None, keeps);
            takeovers += done
                .unwrap_or_else(|e| panic!("{keeps:?}, seed {seed}: {e}"))
                .0;
        }
        assert!(takeovers > 12, "{keeps:?}: {takeovers} takeovers");
    }
}

#[test]
fn a_rule_that_is_left_out_is_noticed() {
    // Each bug with the first seed that exposes it; after a change of the world a later one may.
    let bugs = [
        (Bug::NoPromise, Keeps::Everything, 0),
        (Bug::NoLease, Keeps::Everything, 117),
        (Bug::NoWait, Keeps::Everything, 7),
        (Bug::NoWitness, Keeps::Everything, 0),
        (Bug::NoNote, Keeps::Everything, 2),
        (Bug::LateAcks, Keeps::Everything, 97),
        (Bug::Forgetful, Keeps::Everything, 8),
        (Bug::Careless, Keeps::Everything, 2),
        (Bug::NoCompare, Keeps::Everything, 0),
        (Bug::Sure, Keeps::Written, 0),
        (Bug::Hasty, Keeps::Written, 0),
        (Bug::Hasty, Keeps::Checkpoints, 0),
        (Bug::Trusting, Keeps::Checkpoints, 0),
        (Bug::Unchecked, Keeps::Checkpoints, 0),
        (Bug::Early, Keeps::Checkpoints, 100),
    ];
    for (bug, keeps, first) in bugs {
        let noticed = (first..first + 200).any(|seed| story(seed, Some(bug), keeps).is_err());
        assert!(
            noticed,
            "{bug:?} is not noticed where a node keeps {keeps:?}"
        );
    }
}

#[test]
fn a_primary_without_its_log_leaves_it_to_its_partner_whenever_it_learns_of_it() {
    let alone = Register::new(Side::A).alone(Side::A);
    let both = alone.joined();
    let at = Duration::from_secs;
    let timing = Timing::default();
    let mut node = Node::start(Side::A, alone, timing, at(100)).lacking();
    node.tick(at(100));
    // The first reply equals its note: it alone has every reported change.
    node.witness(at(101), Swap::Lost(alone));
    assert_eq!(node.role(), Role::Deciding);
    node.witness(at(102), Swap::Lost(both));
    assert_eq!(node.role(), Role::Yielding(Duration::MAX));
    for second in 103..200 {
        let asks = node.tick(at(second));
        assert!(asks.iter().all(|action| matches!(action, Action::Read)));
        node.witness(at(second), Swap::Lost(both));
    }
    // Until a late request of an earlier process is carried out: that had everything in a
    // checkpoint, and the partner is out.
    let mut late = node.clone();
    let asks = late.witness(at(200), Swap::Lost(both.alone(Side::A)));
    let again = both.alone(Side::A).alone(Side::A);
    assert_eq!(asks, [Action::Swap(again)]);
    assert_eq!(
        late.witness(at(201), Swap::Done(again)),
        [Action::Note(again)]
    );
    // Or until the partner has taken over.
    node.witness(at(200), Swap::Lost(both.alone(Side::B)));
    assert_eq!(node.role(), Role::Behind);
}
