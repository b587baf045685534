//! Machines that take an aggregate on simulated objects over from each other, clients, and the
//! faults between them, from one seed.
//!
//! The rules are those of [`weir_mirror::owner`], and the operations those of
//! [`weir_rados_store::steps`], on a [cluster](crate::rados) with OSDs that learn of the blocklist
//! late.
//! Operations and their answers are delayed, each client's on one object in order. A machine's
//! process dies, stops properly, or is suspended, with its operations under way or lost or held
//! back; half of the processes are standbys, and one that stops may reserve the aggregate for
//! another one; a machine is cut off; monitors do not answer, or refuse the blocklist; the database
//! forgets; clocks run at different rates. After each event:
//!
//! - a reply leaves only from the newest owner that ever replied;
//! - a reply to a read has every write that was reported before;
//! - an owner that has read the aggregate has every reported write, and no other data.
//!
//! At the end all faults are over: one owner serves, and what is on the objects is complete.

mod image;
mod process;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use weir_mirror::OwnerRole;

use crate::rados::Cluster;
use crate::rand::Choices;
use image::WriteSet;
use process::{Process, Reply, Request, Tag};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Nothing is sealed.
    NoSeal,
    /// Half of the guarded objects are sealed.
    SealHalf,
    /// The log is read while it is being sealed.
    ReadsEarly,
    /// Nobody is put on the blocklist.
    NoBlocklist,
    /// Data is written before the blocklist is in force.
    WritesBeforeBlocklist,
    /// Data is written by a client that does not hold the lock yet.
    WritesBeforeLock,
    /// No client gets a newer map than that of its start.
    NoMap,
    /// An owner that comes to the lock after a later one shuts that out, and does not compare the
    /// epoch again.
    LateLock,
    /// The lock is broken before its holder is on the blocklist.
    BreaksLockFirst,
    /// Replies leave after the lease.
    NoLease,
    /// The lease counts from the answer to a touch.
    LateTouch,
    /// A touch compares nothing.
    UnguardedTouch,
    /// A new owner replies while an earlier one may.
    NoWait,
    /// A standby that found the aggregate free and came too late waits for nobody later.
    KeepsFree,
    /// An owner that has ended is taken for the only one that could reply, however young it was.
    TrustsNewest,
    /// An owner that stops says that nobody replies, before the time of an earlier one is over.
    ReleasesEarly,
    /// The epoch is the database's.
    TrustsRow,
    /// A client that is shut out connects anew, and goes on.
    ReconnectsAfterShutdown,
    /// A write is reported before its batch is written.
    ReportsEarly,
}

/// All bugs, each with a seed before the first one that exposes it.
pub const BUGS: [(Bug, u64); 19] = [
    (Bug::NoSeal, 0),
    (Bug::SealHalf, 0),
    (Bug::ReadsEarly, 980),
    (Bug::NoBlocklist, 60),
    (Bug::WritesBeforeBlocklist, 20),
    (Bug::WritesBeforeLock, 3_000),
    (Bug::NoMap, 100),
    (Bug::LateLock, 400),
    (Bug::BreaksLockFirst, 1_300),
    (Bug::NoLease, 0),
    (Bug::LateTouch, 200),
    (Bug::UnguardedTouch, 0),
    (Bug::NoWait, 0),
    (Bug::KeepsFree, 100),
    (Bug::TrustsNewest, 1_700),
    (Bug::ReleasesEarly, 600),
    (Bug::TrustsRow, 0),
    (Bug::ReconnectsAfterShutdown, 0),
    (Bug::ReportsEarly, 0),
];

/// Machines that can own the aggregate.
const MACHINES: usize = 3;
/// Interval between ticks of a process in microseconds.
const TICK: u64 = 50_000;
/// Duration of the faults in microseconds.
const STORM: u64 = 40_000_000;

enum Event {
    Start(usize),
    Tick(usize),
    /// An operation of a process arrives at the cluster.
    Arrive(usize, String, Request, Tag),
    Answer(usize, Tag, Reply),
    Write,
    Read,
    /// The reply to a read, with the first reported write that it lacks.
    Send(usize, Option<u64>),
    Checkpoint,
    Fault,
}

#[derive(Default)]
struct Machine {
    /// Its running process.
    process: Option<usize>,
    /// True if a start is scheduled.
    starting: bool,
    /// End of the time for which it is cut off from the cluster.
    cut: u64,
    /// Thousandths by which its clock is fast.
    drift: i64,
}

/// Counts of what happened.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Owners that have read the aggregate.
    pub takeovers: u64,
    /// Writes that were reported.
    pub reported: u64,
    /// Checkpoints that were completed.
    pub checkpoints: u64,
    /// Writes that were reported before the blocklist was in force.
    pub early: u64,
}

struct World {
    choices: Choices,
    bug: Option<Bug>,
    cluster: Arc<Cluster>,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, Event>,
    machines: [Machine; MACHINES],
    processes: Vec<Process>,
    /// Last arrival of a client's operations at an object.
    arrivals: BTreeMap<(usize, String), u64>,
    /// End of the time for which no monitor answers.
    stalled: u64,
    /// End of the time for which the blocklist is refused.
    refusing: u64,
    /// The epoch that the database has.
    row: u64,
    reported: WriteSet,
    next: u64,
    /// Greatest epoch that has replied.
    replied: u64,
    /// Clients of the cluster.
    clients: u64,
    calm: bool,
    counts: Counts,
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let choices = Choices::new(seed);
        let machine = |_| Machine {
            drift: choices.below(11) as i64 - 5,
            ..Machine::default()
        };
        let machines = [0, 1, 2].map(machine);
        let mut world = World {
            choices,
            bug,
            cluster: Cluster::new(),
            now: 10_000_000,
            order: 0,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            machines,
            processes: Vec::new(),
            arrivals: BTreeMap::new(),
            stalled: 0,
            refusing: 0,
            row: 0,
            reported: WriteSet::default(),
            next: 0,
            replied: 0,
            clients: 0,
            calm: false,
            counts: Counts::default(),
        };
        for machine in 0..MACHINES {
            world.start_later(machine, 1_000_000);
        }
        for event in [Event::Write, Event::Read, Event::Checkpoint] {
            world.schedule_event(50_000, event);
        }
        world.schedule_event(2_000_000, Event::Fault);
        world
    }

    /// Schedules an event after `delay` microseconds.
    fn schedule_event(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + delay, self.order)));
        self.bodies.insert(self.order, event);
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn clock(&self, process: usize) -> Duration {
        let drift = self.machines[self.processes[process].machine].drift;
        Duration::from_micros((self.now as i64 + self.now as i64 / 1000 * drift) as u64)
    }

    fn delay(&mut self) -> u64 {
        match self.calm {
            true => 200 + self.choices.below(500),
            false => match self.choices.below(60) {
                0 => self.choices.below(3_000_000),
                1..=5 => self.choices.below(300_000),
                _ => 100 + self.choices.below(3_000),
            },
        }
    }

    fn start_later(&mut self, machine: usize, within: u64) {
        if !std::mem::replace(&mut self.machines[machine].starting, true) {
            let within = match self.choices.chance(1, 2) {
                true => within,
                false => within / 20,
            };
            let delay = self.choices.below(within);
            self.schedule_event(delay, Event::Start(machine));
        }
    }

    /// Sends an operation of a process.
    fn send(&mut self, process: usize, object: &str, request: Request, tag: Tag) {
        let delay = self.delay();
        let key = (process, object.to_owned());
        let before = self.arrivals.get(&key).copied().unwrap_or(0);
        let arrival = (self.now + delay).max(before + 1);
        self.arrivals.insert(key, arrival);
        self.processes[process].outstanding += 1;
        let event = Event::Arrive(process, object.to_owned(), request, tag);
        self.schedule_event(arrival - self.now, event);
    }

    fn run(&mut self, until: u64) -> Result<(), String> {
        while let Some(Reverse((time, order))) = self.events.peek().copied() {
            if time > until {
                break;
            }
            self.events.pop();
            self.now = self.now.max(time);
            let event = self.bodies.remove(&order).unwrap();
            if let Some(event) = self.hold_back(event) {
                self.handle(event)?;
            }
        }
        self.now = until;
        Ok(())
    }

    /// Postpones an event of a machine that is cut off, or of a process that is suspended; drops
    /// one of a process that is dead.
    fn hold_back(&mut self, event: Event) -> Option<Event> {
        let (process, network, own) = match &event {
            Event::Tick(process) | Event::Send(process, _) => (*process, false, true),
            Event::Answer(process, ..) => (*process, true, true),
            Event::Arrive(process, ..) => (*process, true, false),
            _ => return Some(event),
        };
        let of = &self.processes[process];
        let lost = match own {
            true => of.dead,
            false => of.dead && of.loses,
        };
        if lost {
            return None;
        }
        let mut until = 0;
        if network {
            until = self.machines[of.machine].cut;
        }
        // The library of a suspended process may have sent it before.
        if (own || of.holds) && !of.dead {
            until = until.max(of.suspended);
        }
        if let Event::Arrive(_, _, Request::Blocklist(_) | Request::ConfirmLock(_), _) = &event {
            until = until.max(self.stalled);
        }
        if until > self.now {
            self.schedule_event(until + 1 - self.now, event);
            return None;
        }
        Some(event)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Start(machine) => self.start(machine),
            Event::Tick(process) => self.tick(process)?,
            Event::Arrive(process, object, request, tag) => {
                let reply = self.arrive(process, &object, request);
                let delay = self.delay();
                self.schedule_event(delay, Event::Answer(process, tag, reply));
            }
            Event::Answer(process, tag, reply) => {
                self.processes[process].outstanding -= 1;
                self.answered(process, tag, reply)?;
            }
            Event::Write => {
                self.write()?;
                let delay = self.choices.below(40_000);
                self.schedule_event(delay, Event::Write);
            }
            Event::Read => {
                self.read();
                let delay = self.choices.below(60_000);
                self.schedule_event(delay, Event::Read);
            }
            Event::Send(process, lacks) => self.reply_to_read(process, lacks)?,
            Event::Checkpoint => {
                if let Some(process) = self.any_owner() {
                    self.begin_checkpoint(process);
                }
                let delay = self.choices.below(300_000);
                self.schedule_event(delay, Event::Checkpoint);
            }
            Event::Fault => {
                if !self.calm {
                    self.fault();
                    let delay = self.choices.below(3_000_000);
                    self.schedule_event(delay, Event::Fault);
                }
            }
        }
        Ok(())
    }

    /// Returns a process that runs and takes itself for the owner.
    fn any_owner(&mut self) -> Option<usize> {
        let of = |machine: &Machine| machine.process;
        let owners: Vec<usize> = self.machines.iter().filter_map(of).collect();
        let serves = |process: &usize| {
            let process = &self.processes[*process];
            let owns = process.rules.role() == OwnerRole::Owning;
            owns && !process.stopping && process.suspended <= self.now
        };
        let owners: Vec<usize> = owners.into_iter().filter(serves).collect();
        (!owners.is_empty()).then(|| *self.choices.pick(&owners))
    }

    /// Checks a reply of this process.
    fn check_reply(&mut self, process: usize) -> Result<(), String> {
        let epoch = self.processes[process].epoch.0;
        if epoch < self.replied {
            let newest = self.replied;
            return Err(format!("both answer: owner {epoch} after owner {newest}"));
        }
        self.replied = epoch;
        Ok(())
    }

    fn report(&mut self, process: usize, writes: &[u64]) -> Result<(), String> {
        if writes.is_empty() {
            return Ok(());
        }
        self.check_reply(process)?;
        for write in writes {
            self.reported.insert(*write);
        }
        self.counts.reported += writes.len() as u64;
        if !self.processes[process].rules.may_write_data() {
            self.counts.early += writes.len() as u64;
        }
        // Later owners that have read the aggregate have them, too.
        let epoch = self.processes[process].epoch;
        for later in self.processes.iter().filter(|p| p.epoch > epoch) {
            let serves = later.rules.role() == OwnerRole::Owning;
            if let Some(lost) = later.image.writes.lacks(&self.reported).filter(|_| serves) {
                let (old, new) = (epoch.0, later.epoch.0);
                return Err(format!(
                    "owner {old} reports {lost}, and owner {new} lacks it"
                ));
            }
        }
        Ok(())
    }

    fn read(&mut self) {
        let Some(process) = self.any_owner() else {
            return;
        };
        if self.may_reply(process) {
            let lacks = self.processes[process].image.writes.lacks(&self.reported);
            let delay = self.choices.below(2_000);
            self.schedule_event(delay, Event::Send(process, lacks));
        }
    }

    fn reply_to_read(&mut self, process: usize, lacks: Option<u64>) -> Result<(), String> {
        if !self.may_reply(process) {
            return Ok(());
        }
        self.check_reply(process)?;
        match lacks {
            None => Ok(()),
            Some(lost) => Err(format!("a read is answered without write {lost}")),
        }
    }

    fn fault(&mut self) {
        let machine = self.choices.index(MACHINES);
        let long = self.choices.below(9_000_000);
        let process = self.machines[machine].process;
        match (self.choices.below(11), process) {
            (0..=2, Some(process)) => {
                let loses = self.choices.chance(1, 2);
                self.end(process, loses);
            }
            (3 | 4, Some(process)) => {
                let holds = self.choices.chance(1, 2);
                let process = &mut self.processes[process];
                process.suspended = self.now + long;
                process.holds = holds;
            }
            (5, _) => self.machines[machine].cut = self.now + long,
            (6, _) => self.stalled = self.now + long,
            (7, _) => {
                self.refusing = self.now + long / 2;
            }
            (8 | 9, Some(process)) => self.processes[process].stopping = true,
            // A database that was restored.
            _ => self.row = self.row.saturating_sub(self.choices.below(3)),
        }
    }

    /// Ends all faults, and checks the result.
    fn check_convergence(&mut self) -> Result<(), String> {
        self.calm = true;
        self.run(self.now + 30_000_000)?;
        let old = self.counts.reported;
        self.run(self.now + 1_000_000)?;
        if self.counts.reported == old {
            let roles: Vec<_> = self.machines.iter().map(|m| m.process).collect();
            let role = |p: &Option<usize>| p.map(|p| self.processes[p].rules.role());
            let roles: Vec<_> = roles.iter().map(role).collect();
            return Err(format!("in the end nothing is written: {roles:?}"));
        }
        let image = self.on_objects()?;
        match image.writes.lacks(&self.reported) {
            None => Ok(()),
            Some(lost) => Err(format!("{lost} was reported, and is gone")),
        }
    }
}

/// Runs one seed.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Counts, String> {
    let mut world = World::new(seed, bug);
    world.run(world.now + STORM)?;
    world.check_convergence()?;
    Ok(world.counts)
}

/// Runs one seed of the suite.
///
/// # Errors
/// The promise that was broken.
pub fn story(seed: u64) -> Result<(), String> {
    run(seed, None).map(drop)
}
