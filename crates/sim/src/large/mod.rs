//! A large volume over three constituents, clients, and the faults between them, from one seed.
//!
//! The rules are those of [`weir_constituents`], on constituents of plain maps with a log each.
//! Messages are delayed, repeated, overtaken and lost by partitions; constituents crash at any
//! moment and lose what is not durable. Clients make, remove, rename, link, look up and list.
//!
//! A change takes effect when the record that decides it is durable: the [model](crate::model)
//! carries it out at this moment and has to have the same result. A refusal, a look-up, a listing
//! and attributes have to be right at the moment at which the constituent's log is durable up to
//! where they were found. So every operation takes effect at one moment between its request and its
//! reply. At the end all faults are over: every token is settled, and the tree over all
//! constituents is that of the model, as is the tree of every snapshot.

mod check;
mod client;
mod state;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_base::{Ino, Time};
use weir_constituents::{
    Change, Constituent, Durable, Message, Note, Output, Part, Protocol, ROOT, Record, Refusal,
    Ticket, Token,
};

use crate::model::op::{self, Slot};
use crate::model::tree::{Model, RootAttr, Rules};
use crate::rand::Choices;
use client::Operation;
use state::{Item, Member, Observation, State};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Messages do not wait for the log.
    SendsEarly,
    /// Replies do not wait for the log.
    RepliesEarly,
    /// A decision does not survive the decider.
    ForgetsDecisions,
    /// A decision is forgotten before the parts are finished.
    ForgetsEarly,
    /// A prepared part does not survive the participant.
    ForgetsPrepared,
    /// The lock of moves does not survive its constituent.
    ForgetsLock,
    /// Nobody takes the lock of moves.
    NoLock,
    /// A moved directory is not searched for above its new parent.
    NoWalk,
    /// A constituent that starts numbers its changes as before.
    RepeatsEpoch,
    /// A part that is prepared again is finished for the first one.
    IgnoresTickets,
    /// A participant that starts takes changes for not decided.
    PresumesAbort,
    /// A participant that starts takes changes for decided.
    PresumesCommit,
    /// A decider says that a change is not decided, and decides it afterwards.
    AnswersUndecided,
    /// Locked entries and inodes can be read.
    ReadsLocked,
    /// A snapshot is taken of constituents that have changed since they closed their gates.
    IgnoresClosings,
}

/// All bugs, each with a seed before the first one that exposes it.
pub const BUGS: [(Bug, u64); 15] = [
    (Bug::SendsEarly, 0),
    (Bug::RepliesEarly, 0),
    (Bug::ForgetsDecisions, 0),
    (Bug::ForgetsEarly, 0),
    (Bug::ForgetsPrepared, 0),
    (Bug::ForgetsLock, 1_800),
    (Bug::NoLock, 0),
    (Bug::NoWalk, 0),
    (Bug::RepeatsEpoch, 0),
    (Bug::IgnoresTickets, 0),
    (Bug::PresumesAbort, 0),
    (Bug::PresumesCommit, 0),
    (Bug::AnswersUndecided, 0),
    (Bug::ReadsLocked, 0),
    (Bug::IgnoresClosings, 0),
];

/// Interval between ticks of a constituent in microseconds.
const TICK: u64 = 20_000;
/// Duration of the faults in microseconds.
const STORM: u64 = 1_500_000;
/// Clients, each with one operation at a time.
const CLIENTS: usize = 6;

enum Event {
    Start(usize),
    Tick(usize),
    Flush(usize),
    /// A message arrives, with the reason why the refusal in it is wrong.
    Deliver(Constituent, usize, Message, Option<String>),
    /// A request arrives.
    Request(usize),
    /// A client begins its next operation.
    Client(usize),
    /// A client waits no longer.
    Timeout(usize),
    Crash(usize),
    Fault,
}

/// Counts of what happened.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Changes that took effect.
    pub changes: u64,
    /// Changes among them that concerned several constituents.
    pub tokens: u64,
    /// Directories that got another parent.
    pub moves: u64,
    /// Crashes of a constituent.
    pub crashes: u64,
    /// Parts that a start found prepared, or decided and not finished.
    pub settled: u64,
    /// Snapshots of all constituents.
    pub snapshots: u64,
}

struct World {
    choices: Choices,
    bug: Option<Bug>,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, Event>,
    members: Vec<Member>,
    /// Ends of the times for which two constituents cannot reach each other.
    cuts: BTreeMap<(usize, usize), u64>,
    operations: Vec<Operation>,
    /// Operation that each client waits for.
    clients: [Option<usize>; CLIENTS],
    /// Operation of each change under way.
    tokens: BTreeMap<Token, usize>,
    model: Model,
    inodes: BTreeMap<Slot, Ino>,
    /// Closings for which snapshots were requested, where they are ignored.
    closings: BTreeMap<(Token, usize), Ticket>,
    /// The model at the moment of each snapshot.
    cut_models: BTreeMap<Token, Model>,
    calm: bool,
    counts: Counts,
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let choices = Choices::new(seed);
        let count = choices.between(3, 4) as u8;
        let states = (0..count).map(|own| State::new(Constituent(own)));
        let root = RootAttr {
            mode: 0o755,
            uid: 0,
            gid: 0,
            time: Time::EPOCH,
        };
        let model = Model::new(root, Rules::ENGINE);
        let inodes = BTreeMap::from([(op::ROOT, ROOT)]);
        let mut world = World::with_states(choices, bug, states.collect(), model, inodes);
        for member in &mut world.members {
            member.memory.refuses = 150;
        }
        for client in 0..CLIENTS {
            world.schedule_event(10_000, Event::Client(client));
        }
        world.schedule_event(30_000, Event::Fault);
        world
    }

    /// Returns a world of constituents in these states that are to be started.
    fn with_states(
        choices: Choices,
        bug: Option<Bug>,
        states: Vec<State>,
        model: Model,
        inodes: BTreeMap<Slot, Ino>,
    ) -> World {
        let member = |state| Member::new(state, choices.fork());
        let members = states.into_iter().map(member).collect();
        let mut world = World {
            choices,
            bug,
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            members,
            cuts: BTreeMap::new(),
            operations: Vec::new(),
            clients: [None; CLIENTS],
            tokens: BTreeMap::new(),
            model,
            inodes,
            closings: BTreeMap::new(),
            cut_models: BTreeMap::new(),
            calm: false,
            counts: Counts::default(),
        };
        for member in 0..world.members.len() {
            world.schedule_event(member as u64, Event::Start(member));
            world.schedule_event(TICK + member as u64, Event::Tick(member));
            world.schedule_event(100, Event::Flush(member));
        }
        world
    }

    fn schedule_event(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + delay, self.order)));
        self.bodies.insert(self.order, event);
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
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
        match event {
            Event::Start(member) => self.start(member),
            Event::Tick(member) => {
                self.call(member, None, |protocol, memory| protocol.tick(memory))?;
                self.schedule_event(TICK, Event::Tick(member));
            }
            Event::Flush(member) => {
                let count = self.members[member].queue.len() as u64;
                let count = match self.choices.chance(1, 2) {
                    true => count,
                    false => self.choices.below(count + 1),
                };
                for _ in 0..count {
                    self.complete(member)?;
                }
                let delay = match self.choices.chance(1, 20) {
                    true => self.choices.below(30_000),
                    false => self.choices.below(1_500),
                };
                self.schedule_event(delay + 50, Event::Flush(member));
            }
            Event::Deliver(from, to, message, wrong) => self.deliver(from, to, message, wrong)?,
            Event::Request(operation) => self.request(operation)?,
            Event::Client(client) => self.next_operation(client),
            Event::Timeout(operation) => {
                let client = self.operations[operation].client;
                if self.clients[client] == Some(operation) {
                    self.clients[client] = None;
                    self.schedule_event(1, Event::Client(client));
                }
            }
            Event::Crash(member) => {
                if !self.calm {
                    self.crash(member)?;
                }
            }
            Event::Fault => {
                if !self.calm {
                    self.fault()?;
                    let delay = self.choices.below(120_000);
                    self.schedule_event(delay, Event::Fault);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, member: usize) {
        let count = self.members.len() as u8;
        let of = &mut self.members[member];
        if of.protocol.is_some() {
            return;
        }
        let mut durable: Durable = of.device.durable.clone();
        self.counts.settled += (durable.prepared.len() + durable.decided.len()) as u64;
        match self.bug {
            Some(Bug::ForgetsDecisions) => durable.decided.clear(),
            Some(Bug::ForgetsPrepared) => durable.prepared.clear(),
            Some(Bug::ForgetsLock) => {
                let prepared = &mut durable.prepared;
                prepared.retain(|_, prepared| prepared.part != Part::LockMoves);
            }
            Some(Bug::RepeatsEpoch) => durable.epoch = durable.epoch.saturating_sub(1),
            _ => {}
        }
        let presumed: Vec<(Ticket, Token)> = durable
            .prepared
            .iter()
            .map(|(ticket, prepared)| (*ticket, prepared.token))
            .collect();
        let own = Constituent(member as u8);
        let members = (0..count).map(Constituent).collect();
        let Ok(protocol) = Protocol::start(own, members, durable, &mut of.memory) else {
            self.schedule_event(1_000, Event::Start(member));
            return;
        };
        of.protocol = Some(protocol);
        self.take(member, None);
        if self.has_bug(Bug::PresumesAbort) || self.has_bug(Bug::PresumesCommit) {
            for (ticket, token) in presumed {
                let finish = Message::Finish {
                    token,
                    ticket,
                    commit: self.has_bug(Bug::PresumesCommit),
                };
                self.schedule_event(0, Event::Deliver(token.decider, member, finish, None));
            }
        }
    }

    /// Ends the process of a constituent. Some of what was not durable may be.
    fn crash(&mut self, member: usize) -> Result<(), String> {
        if self.members[member].protocol.take().is_none() {
            return Ok(());
        }
        self.counts.crashes += 1;
        let survive = self
            .choices
            .below(self.members[member].queue.len() as u64 + 1);
        for _ in 0..survive {
            if let Some((_, Item::Record(record, operation))) =
                self.members[member].queue.pop_front()
            {
                self.carry_out(member, &record, operation)?;
            }
        }
        let of = &mut self.members[member];
        of.queue.clear();
        of.memory.state = of.device.clone();
        of.memory.appended.clear();
        let delay = match self.choices.chance(1, 2) {
            true => self.choices.below(4_000),
            false => self.choices.below(150_000),
        };
        self.schedule_event(delay, Event::Start(member));
        Ok(())
    }

    /// Calls a constituent that runs. `wrong` is the reason why the refusal that it gets is wrong.
    fn call(
        &mut self,
        member: usize,
        refused: Option<Option<String>>,
        call: impl FnOnce(&mut Protocol, &mut state::Memory),
    ) -> Result<(), String> {
        let of = &mut self.members[member];
        if let Some(protocol) = &mut of.protocol {
            call(protocol, &mut of.memory);
            if let Some(wrong) = self.take(member, refused) {
                return Err(wrong);
            }
        }
        self.handle_held(member)
    }

    /// Passes what a gate held to its constituent, input by input.
    fn handle_held(&mut self, member: usize) -> Result<(), String> {
        loop {
            let of = &mut self.members[member];
            let Some(protocol) = &mut of.protocol else {
                return Ok(());
            };
            if !protocol.handle_held(&mut of.memory) {
                return Ok(());
            }
            if let Some(wrong) = self.take(member, None) {
                return Err(wrong);
            }
        }
    }

    fn push(&mut self, member: usize, item: Item) {
        self.order += 1;
        let order = self.order;
        self.members[member].queue.push_back((order, item));
    }

    /// Queues what a call of a constituent has appended and handed out. Returns an error if the
    /// call passed on a refusal that is wrong.
    fn take(&mut self, member: usize, refused: Option<Option<String>>) -> Option<String> {
        let records = std::mem::take(&mut self.members[member].memory.appended);
        let mut changed = Vec::new();
        for record in records {
            let operation = record.caller.map(|caller| caller as usize);
            changed.extend(operation);
            for change in &record.changes {
                if let Change::TakeSnapshot { token } = change {
                    self.cut(*token);
                }
            }
            self.push(member, Item::Record(record, operation));
        }
        let of = &mut self.members[member];
        let outputs = of.protocol.as_mut().map(Protocol::take_outputs);
        let mut wrong = None;
        for output in outputs.into_iter().flatten() {
            match output {
                Output::Send { to, message } => self.queue_message(member, to, message),
                Output::Reply { caller, reply } => {
                    let operation = caller as usize;
                    if let Ok(Some(made)) = reply {
                        self.operations[operation].made = Some(made);
                    }
                    let checked = match (&reply, &refused) {
                        (Err(Refusal::Busy | Refusal::Full), _) => true,
                        // The participant's refusal was compared when it was sent.
                        (Err(_), Some(reason)) => {
                            wrong = wrong.or(reason.clone());
                            true
                        }
                        _ => changed.contains(&operation),
                    };
                    if !checked {
                        self.push(member, Item::Check(operation, Observation::Reply(reply)));
                    }
                    match self.has_bug(Bug::RepliesEarly) {
                        true => wrong = wrong.or(self.replied(operation, reply).err()),
                        false => self.push(member, Item::Reply(operation, reply)),
                    }
                }
            }
        }
        wrong
    }

    fn queue_message(&mut self, member: usize, to: Constituent, mut message: Message) {
        if let Message::Vote {
            token,
            part: Part::Snapshot { closing },
            ..
        } = &mut message
            && let Some(requested) = self.closings.get(&(*token, member))
        {
            *closing = *requested;
        }
        if let Message::Prepare { token, .. } = &message {
            let protocol = self.members[member].protocol.as_ref();
            if let Some(caller) = protocol.and_then(|protocol| protocol.caller(*token)) {
                self.tokens.insert(*token, caller as usize);
            }
        }
        if let (
            Bug::ForgetsEarly,
            Message::Finish {
                token,
                ticket,
                commit: true,
            },
        ) = (self.bug.unwrap_or(Bug::NoWalk), &message)
        {
            let (token, ticket) = (*token, *ticket);
            let finished = Message::Finished { token, ticket };
            self.schedule_event(1, Event::Deliver(to, member, finished, None));
        }
        let operation = match &message {
            Message::Vote {
                token,
                answer: Err(refusal),
                ..
            } if !matches!(refusal, Refusal::Busy | Refusal::Full) => {
                self.tokens.get(token).copied()
            }
            _ => None,
        };
        match self.has_bug(Bug::SendsEarly) {
            true => self.transmit(member, to, message, None),
            false => self.push(member, Item::Send(to, message, operation)),
        }
    }

    /// Makes the oldest step of a constituent durable.
    fn complete(&mut self, member: usize) -> Result<(), String> {
        let Some((_, item)) = self.members[member].queue.pop_front() else {
            return Ok(());
        };
        match item {
            Item::Record(record, operation) => self.carry_out(member, &record, operation),
            Item::Check(operation, seen) => self.check(operation, &seen),
            Item::Reply(operation, reply) => self.replied(operation, reply),
            Item::Send(to, message, operation) => {
                let wrong = match (&message, operation) {
                    (
                        Message::Vote {
                            answer: Err(refusal),
                            ..
                        },
                        Some(operation),
                    ) => self
                        .check(operation, &Observation::Reply(Err(*refusal)))
                        .err(),
                    _ => None,
                };
                self.transmit(member, to, message, wrong);
                Ok(())
            }
        }
    }

    /// Carries out a durable record, and the operation that it decides.
    fn carry_out(
        &mut self,
        member: usize,
        record: &Record,
        operation: Option<usize>,
    ) -> Result<(), String> {
        self.members[member].device.apply(record);
        if record.note != Note::None && !self.calm && self.choices.chance(1, 60) {
            let delay = self.choices.below(4_000);
            self.schedule_event(delay, Event::Crash(member));
        }
        if let Note::Decided { token, parts } = &record.note {
            let moves = |(on, ticket): &(Constituent, Ticket)| {
                let of = self.members.get(usize::from(on.0));
                let prepared = of.and_then(|of| of.device.durable.prepared.get(ticket));
                prepared.is_some_and(|prepared| prepared.part == Part::LockMoves)
            };
            self.counts.moves += u64::from(parts.iter().any(moves));
            self.counts.tokens += 1;
            let taken = self.cut_models.contains_key(token);
            self.counts.snapshots += u64::from(taken);
        }
        match operation {
            Some(operation) => self.take_effect(operation),
            None => Ok(()),
        }
    }

    /// Sends a message over the network.
    fn transmit(
        &mut self,
        member: usize,
        to: Constituent,
        message: Message,
        wrong: Option<String>,
    ) {
        let target = usize::from(to.0);
        let pair = (member.min(target), member.max(target));
        let until = self.cuts.get(&pair).copied().unwrap_or(0);
        if until > self.now || !self.calm && self.choices.chance(1, 40) {
            return;
        }
        let copies = match !self.calm && self.choices.chance(1, 15) {
            true => 2,
            false => 1,
        };
        for _ in 0..copies {
            let delay = match self.calm {
                true => self.choices.below(2_000),
                false => match self.choices.below(40) {
                    0 => self.choices.below(400_000),
                    1..=4 => self.choices.below(40_000),
                    _ => self.choices.below(2_000),
                },
            };
            let from = Constituent(member as u8);
            let event = Event::Deliver(from, target, message.clone(), wrong.clone());
            self.schedule_event(delay, event);
        }
    }

    fn deliver(
        &mut self,
        from: Constituent,
        to: usize,
        mut message: Message,
        wrong: Option<String>,
    ) -> Result<(), String> {
        if self.members[to].protocol.is_none() {
            return Ok(());
        }
        if let Some(answer) = self.answer_wrongly(to, &mut message) {
            self.transmit(to, from, answer, None);
            return Ok(());
        }
        let refused = match &message {
            Message::Vote {
                answer: Err(refusal),
                ..
            } if !matches!(refusal, Refusal::Busy | Refusal::Full) => Some(wrong),
            _ => None,
        };
        if self.has_bug(Bug::IgnoresClosings) {
            self.close_late(from, to, &mut message);
        }
        self.call(to, refused, |protocol, memory| {
            protocol.message(memory, from, message);
        })
    }

    /// Closes the gate at the moment of the snapshot.
    fn close_late(&mut self, from: Constituent, to: usize, message: &mut Message) {
        let of = &mut self.members[to];
        let (
            Some(protocol),
            Message::Prepare {
                token,
                part: Part::Snapshot { closing },
            },
        ) = (&mut of.protocol, message)
        else {
            return;
        };
        let prepared = of.memory.state.durable.prepared.values();
        let mut prepared = prepared.filter(|prepared| prepared.token == *token);
        if let Some(Part::Snapshot { closing: first }) = prepared.next().map(|first| &first.part) {
            *closing = *first;
            return;
        }
        if of.memory.state.snapshots.contains_key(token) {
            return;
        }
        protocol.message(&mut of.memory, from, Message::Close { token: *token });
        let closed = protocol.take_outputs().pop();
        if let Some(Output::Send {
            message: Message::Closed { ticket, .. },
            ..
        }) = closed
        {
            self.closings.entry((*token, to)).or_insert(*closing);
            *closing = ticket;
        }
    }

    /// Returns the answer of a constituent that leaves out a rule, or changes the message for one.
    fn answer_wrongly(&self, to: usize, message: &mut Message) -> Option<Message> {
        let of = &self.members[to];
        match (self.bug?, message) {
            (Bug::NoLock, Message::Prepare { token, part }) if *part == Part::LockMoves => {
                let ticket = Ticket {
                    epoch: 0,
                    number: 0,
                };
                Some(Message::Vote {
                    token: *token,
                    part: part.clone(),
                    answer: Ok((ticket, None)),
                })
            }
            (Bug::NoWalk, Message::Parent { token, directory }) => Some(Message::ParentIs {
                token: *token,
                directory: *directory,
                answer: Ok(ROOT),
            }),
            (Bug::AnswersUndecided, Message::Ask { token, ticket })
                if of.protocol.as_ref()?.caller(*token).is_some() =>
            {
                Some(Message::Finish {
                    token: *token,
                    ticket: *ticket,
                    commit: false,
                })
            }
            (Bug::IgnoresTickets, Message::Finish { token, ticket, .. }) => {
                let prepared = &of.memory.state.durable.prepared;
                let other = prepared.iter().find(|(_, other)| other.token == *token);
                if let Some((other, _)) = other.filter(|_| !prepared.contains_key(ticket)) {
                    *ticket = *other;
                }
                None
            }
            _ => None,
        }
    }

    fn fault(&mut self) -> Result<(), String> {
        let member = self.choices.index(self.members.len());
        let other = self.choices.index(self.members.len());
        match self.choices.below(3) {
            0 => {
                let until = self.now + self.choices.below(250_000);
                self.cuts
                    .insert((member.min(other), member.max(other)), until);
                Ok(())
            }
            _ => self.crash(member),
        }
    }

    /// Ends all faults, and compares everything.
    fn check_convergence(&mut self) -> Result<(), String> {
        self.calm = true;
        for member in &mut self.members {
            member.memory.refuses = 0;
        }
        self.cuts.clear();
        for member in 0..self.members.len() {
            self.schedule_event(1, Event::Start(member));
        }
        for _ in 0..40 {
            self.run(self.now + 50_000)?;
            let idle = |member: &Member| {
                let idle = member.protocol.as_ref().is_some_and(Protocol::is_idle);
                idle && member.queue.is_empty()
            };
            if self.clients.iter().all(Option::is_none) && self.members.iter().all(idle) {
                return self.compare();
            }
        }
        let left: Vec<_> = self
            .members
            .iter()
            .map(|m| &m.memory.state.durable)
            .collect();
        Err(format!("in the end changes are left: {left:?}"))
    }

    fn check_snapshots(&mut self) -> Result<(), String> {
        let snapshots = |member: &Member| -> Vec<(Token, bool)> {
            let snapshots = member.device.snapshots.iter();
            snapshots
                .map(|(token, snapshot)| (*token, snapshot.kept))
                .collect()
        };
        let first = self.members.first().map(snapshots).unwrap_or_default();
        for member in &self.members {
            if snapshots(member) != first || first.iter().any(|(_, kept)| !kept) {
                let all: Vec<_> = self.members.iter().map(snapshots).collect();
                return Err(format!("constituents have different snapshots: {all:?}"));
            }
        }
        for (token, _) in first {
            let states = self.members.iter();
            let states = states.map(|member| member.device.snapshots[&token].state.clone());
            let model = self.cut_models[&token].clone();
            let (choices, inodes) = (self.choices.fork(), self.inodes.clone());
            let mut restored = World::with_states(choices, None, states.collect(), model, inodes);
            let settled = restored.check_convergence();
            settled.map_err(|why| format!("snapshot {token}: {why}"))?;
        }
        Ok(())
    }
}

/// Runs one seed.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Counts, String> {
    let mut world = World::new(seed, bug);
    world.run(STORM)?;
    world.check_convergence()?;
    world.check_snapshots()?;
    Ok(world.counts)
}

/// Runs one seed of the suite.
///
/// # Errors
/// The promise that was broken.
pub fn story(seed: u64) -> Result<(), String> {
    run(seed, None).map(drop)
}
