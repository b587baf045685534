//! Simulation of some machines, a database and RADOS, from one seed. A tick is a second.
//!
//! Machines and daemons die and return, single ones and all lose the database, the database is
//! restored to an older state, nodes are drained, aggregates are created, moved and deleted. After
//! each change and each end of a server:
//!
//! - no row has one node as owner and standby, and none changes while the leader learns;
//! - a server that owns its aggregate ends only by a fault, by a deletion, or by a switch that was
//!   asked for in this epoch or that empties a drained node;
//! - a standby that lives, is heard and is not drained is replaced only by a target, or by a
//!   takeover.
//!
//! When all faults are over, each aggregate is served, its row names its owner, a standby stands by
//! on another node that is not drained, and nothing else runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_base::limits::cluster::{GAP, LEADER_LEASE, LEARNING};
use weir_base::{Rng, SeededRng};

use crate::placement;
use crate::rows::{Aggregate, Assignment, Child, Kind, Leader, Node, Role, Settings, Target, View};
use crate::rules::{Act, act, decide};

const MEMORY: u64 = 100;
const NODES: usize = 4;
const FAULTS: u64 = 400;
const CALM: u64 = 200;
const SEEDS: u64 = 300;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// A new leader decides at once.
    NoLearning,
    /// The wanted owner stays what the row says.
    TrustsRow,
    /// A target of an earlier epoch is followed.
    OldTarget,
    /// A drained node is placed on.
    IgnoresDrain,
    /// A row ends a server that owns its aggregate.
    EndsOwner,
    /// The last report of a silent node counts as if it were new.
    OldReports,
}

#[derive(Clone, Default)]
struct Kid {
    role: Role,
    epoch: u64,
    born: u64,
}

#[derive(Clone, Default)]
struct Machine {
    alive: bool,
    daemon: bool,
    cut: bool,
    kids: BTreeMap<String, Kid>,
    view: View,
    fresh: bool,
    term: Option<(i64, u64)>,
    round: Option<u64>,
    incarnation: u64,
}

#[derive(Clone, Default)]
struct Database {
    beats: BTreeMap<String, (u64, Node)>,
    drained: BTreeSet<String>,
    aggregates: BTreeMap<String, Aggregate>,
    leader: (String, i64, u64),
}

struct World {
    rng: SeededRng,
    bug: Option<Bug>,
    now: u64,
    machines: BTreeMap<String, Machine>,
    database: Database,
    up: bool,
    copies: Vec<Database>,
    /// Owner and epoch of each aggregate, and the tick since which nobody serves it.
    rados: BTreeMap<String, (Option<String>, u64, u64)>,
    /// Epochs in which a switch was asked for.
    asked: BTreeSet<(String, u64)>,
    deleted: BTreeSet<String>,
    /// Tick at which each node was heard, lived and was not drained last.
    unfit: BTreeMap<String, u64>,
    drained_at: BTreeMap<String, u64>,
    /// Tick of the last loss of the database, for all nodes.
    outage: u64,
    faults: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    serial: u64,
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let names = (0..NODES).map(|n| format!("n{n}"));
        let machine = Machine {
            alive: true,
            daemon: true,
            ..Machine::default()
        };
        World {
            rng: SeededRng::new(seed),
            bug,
            now: 1,
            machines: names.map(|name| (name, machine.clone())).collect(),
            database: Database::default(),
            up: true,
            copies: Vec::new(),
            rados: BTreeMap::new(),
            asked: BTreeSet::new(),
            deleted: BTreeSet::new(),
            unfit: BTreeMap::new(),
            drained_at: BTreeMap::new(),
            outage: 0,
            faults: Vec::new(),
            counts: BTreeMap::new(),
            serial: 0,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn some_node(&self) -> String {
        format!("n{}", self.rng.below(NODES as u64))
    }

    fn some_aggregate(&self) -> Option<String> {
        let names: Vec<_> = self.database.aggregates.keys().cloned().collect();
        let at = self.rng.below(names.len() as u64);
        names.get(usize::try_from(at).unwrap()).cloned()
    }

    /// Ends a server; its aggregate has no owner then.
    fn end(&mut self, node: &str, aggregate: &str) {
        let kid = self.machines.get_mut(node).unwrap().kids.remove(aggregate);
        if kid.is_some_and(|kid| kid.role == Role::Owner) {
            let owner = self.rados.get_mut(aggregate).unwrap();
            if owner.0.as_deref() == Some(node) {
                *owner = (None, owner.1, self.now);
            }
        }
    }

    fn create(&mut self) {
        if self.database.aggregates.len() >= 6 {
            return;
        }
        let name = format!("a{}", self.serial);
        self.serial += 1;
        self.rados.insert(name.clone(), (None, 0, 0));
        let row = new_row(&name, Assignment::default());
        self.database.aggregates.insert(name, row);
    }

    /// A user's command, through a database that is up.
    fn command(&mut self) {
        let node = self.some_node();
        match self.rng.below(8) {
            0 | 1 => self.create(),
            2 if self.database.drained.len() < NODES - 2 => {
                self.database.drained.insert(node);
            }
            3 => {
                self.database.drained.remove(&node);
            }
            4 if self.rng.below(4) == 0 => {
                if let Some(name) = self.some_aggregate() {
                    let row = self.database.aggregates.get_mut(&name).unwrap();
                    row.deleting = true;
                    row.version += 1;
                    self.deleted.insert(name);
                }
            }
            _ => {
                let Some(name) = self.some_aggregate() else {
                    return;
                };
                let row = self.database.aggregates.get_mut(&name).unwrap();
                let epoch = row.nodes.epoch;
                row.nodes.target = Some(Target { node, epoch });
                row.version += 1;
                self.asked.insert((name, epoch));
            }
        }
    }

    fn fault(&mut self) {
        let node = self.some_node();
        match self.rng.below(12) {
            0 => self.lose(&node),
            1 => self.machines.get_mut(&node).unwrap().daemon = false,
            2..=4 => self.heal(&node),
            5 => {
                let machine = self.machines.get_mut(&node).unwrap();
                machine.cut = !machine.cut;
            }
            6 => self.up = !self.up,
            7 => {
                let kids: Vec<_> = self.machines[&node].kids.keys().cloned().collect();
                if let Some(kid) = kids.first() {
                    self.end(&node, kid);
                }
            }
            8 => {
                if !self.copies.is_empty() {
                    let at = self.rng.below(self.copies.len() as u64);
                    self.database = self.copies[usize::try_from(at).unwrap()].clone();
                    self.outage = self.now;
                    self.count("restored");
                }
            }
            9 => self.copies.push(self.database.clone()),
            _ => self.up = true,
        }
    }

    fn heal(&mut self, node: &str) {
        self.serial += 1;
        let machine = self.machines.get_mut(node).unwrap();
        machine.alive = true;
        machine.cut = false;
        if !machine.daemon {
            machine.daemon = true;
            machine.term = None;
            machine.round = None;
            machine.incarnation = self.serial;
        }
    }

    /// RADOS and the servers: standbys take over, servers that start become standbys.
    fn servers(&mut self) {
        for (aggregate, (owner, epoch, since)) in &mut self.rados {
            for (name, machine) in &mut self.machines {
                let Some(kid) = machine.kids.get_mut(aggregate) else {
                    continue;
                };
                if kid.role == Role::Starting && self.now > kid.born + self.rng.below(3) {
                    kid.role = Role::Standby;
                }
                let free = owner.is_none() && self.now > *since + self.rng.below(4);
                if kid.role == Role::Standby && free {
                    *epoch += 1;
                    *owner = Some(name.clone());
                    kid.role = Role::Owner;
                }
                if kid.role != Role::Starting {
                    kid.epoch = *epoch;
                }
            }
        }
    }

    fn reports(&self, name: &str) -> BTreeMap<String, Child> {
        let kids = self.machines[name].kids.iter();
        kids.map(|(aggregate, kid)| {
            let child = Child {
                role: kid.role,
                epoch: kid.epoch,
                process: name.to_owned(),
                ..Child::default()
            };
            (aggregate.clone(), child)
        })
        .collect()
    }

    fn view(&self) -> View {
        let nodes = self.database.beats.iter().map(|(name, (beat, node))| {
            let mut node = node.clone();
            node.silent = Duration::from_secs(self.now.saturating_sub(*beat));
            node.drained = self.database.drained.contains(name);
            if self.bug == Some(Bug::OldReports) {
                node.silent = Duration::ZERO;
            }
            (name.clone(), node)
        });
        let (leader, term, expires) = &self.database.leader;
        View {
            nodes: nodes.collect(),
            aggregates: self.database.aggregates.clone(),
            tokens: Vec::new(),
            shares: BTreeMap::new(),
            leader: (*expires > self.now).then(|| Leader {
                node: leader.clone(),
                term: *term,
            }),
        }
    }

    /// One round of a node's daemon.
    fn round(&mut self, name: &str) {
        let children = self.reports(name);
        let reached = self.up && !self.machines[name].cut;
        if reached {
            let node = Node {
                name: name.to_owned(),
                address: String::new(),
                version: String::new(),
                memory: MEMORY,
                drained: false,
                silent: Duration::ZERO,
                children: children.clone(),
                api: None,
            };
            self.database
                .beats
                .insert(name.to_owned(), (self.now, node));
            self.lead(name);
        }
        let now = self.now;
        let machine = self.machines.get_mut(name).unwrap();
        machine.fresh = reached;
        if reached {
            machine.round = Some(now);
        } else {
            machine.term = None;
        }
        if reached {
            let view = self.view();
            self.machines.get_mut(name).unwrap().view = view;
        }
        let machine = &self.machines[name];
        let (view, fresh) = (machine.view.clone(), machine.fresh);
        let mut running = children;
        if self.bug == Some(Bug::EndsOwner) {
            running
                .values_mut()
                .for_each(|child| child.role = Role::Standby);
        }
        let view = if self.bug == Some(Bug::OldTarget) {
            with_new_targets(view, &running)
        } else {
            view
        };
        for act in act(&view, name, &running, fresh) {
            self.carry_out(name, &act);
        }
    }

    /// Takes or renews the lease, and decides.
    fn lead(&mut self, name: &str) {
        let machine = &self.machines[name];
        let holder = format!("{name}/{}", machine.incarnation);
        let (held, term, expires) = self.database.leader.clone();
        let mine = machine
            .term
            .filter(|(own, _)| held == holder && *own == term);
        let lease = self.now + LEADER_LEASE.as_secs();
        let since = if let Some((_, since)) = mine {
            self.database.leader.2 = lease;
            let gap = machine
                .round
                .is_none_or(|round| self.now - round >= GAP.as_secs());
            if gap { self.now } else { since }
        } else if expires <= self.now {
            self.database.leader = (holder, term + 1, lease);
            self.now
        } else {
            self.machines.get_mut(name).unwrap().term = None;
            return;
        };
        let term = self.database.leader.1;
        self.machines.get_mut(name).unwrap().term = Some((term, since));
        let mut tenure = Duration::from_secs(self.now - since);
        let learns = tenure < LEARNING;
        if self.bug == Some(Bug::NoLearning) {
            tenure = LEARNING;
        }
        self.decide(tenure, learns);
    }

    fn decide(&mut self, tenure: Duration, learns: bool) {
        let mut view = self.view();
        if self.bug == Some(Bug::IgnoresDrain) {
            view.nodes
                .values_mut()
                .for_each(|node| node.drained = false);
        }
        for change in decide(&view, tenure) {
            let row = self
                .database
                .aggregates
                .get(&change.aggregate)
                .unwrap()
                .clone();
            assert_eq!(row.version, change.version);
            let Some(mut to) = change.to else {
                self.database.aggregates.remove(&change.aggregate);
                continue;
            };
            if self.bug == Some(Bug::TrustsRow) && row.nodes.owner.is_some() {
                to.owner.clone_from(&row.nodes.owner);
                to.standby.clone_from(&row.nodes.standby);
            }
            self.check_change(&row, &to, learns);
            let row = self.database.aggregates.get_mut(&change.aggregate).unwrap();
            row.nodes = to;
            row.version += 1;
        }
    }

    fn check_change(&mut self, row: &Aggregate, to: &Assignment, learns: bool) {
        let at = self.now;
        if to.owner.is_some() && to.owner == to.standby {
            self.faults
                .push(format!("{at}: {} has one node twice: {to:?}", row.name));
        }
        if learns {
            self.faults
                .push(format!("{at}: {} changed while learning", row.name));
        }
        let (Some(before), after) = (&row.nodes.standby, &to.standby) else {
            return;
        };
        let unfit = self.unfit.get(before).is_some_and(|unfit| at - unfit < 12);
        let reason = to.target.is_some() || to.owner != row.nodes.owner || unfit;
        if after.as_ref() != Some(before) && !reason && at - self.outage >= 2 * LEARNING.as_secs() {
            self.faults.push(format!(
                "{at}: {} lost the standby {before}, which lives",
                row.name
            ));
        }
    }

    fn carry_out(&mut self, node: &str, act: &Act) {
        match act {
            Act::Start(name) => {
                let kid = Kid {
                    born: self.now,
                    ..Kid::default()
                };
                let machine = self.machines.get_mut(node).unwrap();
                machine.kids.insert(name.clone(), kid);
            }
            Act::Stop(name) => {
                let owns = self.machines[node].kids[name].role == Role::Owner;
                if owns && !self.deleted.contains(name) {
                    let at = self.now;
                    self.faults
                        .push(format!("{at}: {name} was ended on its owner {node}"));
                }
                self.end(node, name);
            }
            Act::Switch(name, heir) => self.switch(node, name, heir),
            Act::Enter(name) => {
                let lacks = !self.database.aggregates.contains_key(name);
                let (_, epoch, _) = self.rados[name];
                if lacks && !self.deleted.contains(name) {
                    let nodes = Assignment {
                        owner: Some(node.to_owned()),
                        epoch,
                        ..Assignment::default()
                    };
                    let row = new_row(name, nodes);
                    self.database.aggregates.insert(name.clone(), row);
                }
            }
        }
    }

    fn switch(&mut self, node: &str, name: &str, heir: &str) {
        self.count("switched");
        let epoch = self.rados[name].1;
        let drained = self
            .drained_at
            .get(node)
            .is_some_and(|at| self.now - at < 60);
        if !self.asked.contains(&(name.to_owned(), epoch)) && !drained {
            let at = self.now;
            self.faults.push(format!(
                "{at}: {name} left {node} in epoch {epoch}, which nobody asked for"
            ));
        }
        self.machines
            .get_mut(node)
            .unwrap()
            .kids
            .get_mut(name)
            .unwrap()
            .role = Role::Standby;
        let kid = self.machines.get_mut(heir).unwrap().kids.get_mut(name);
        match kid {
            Some(kid) if kid.role == Role::Standby => {
                kid.role = Role::Owner;
                self.rados.insert(
                    name.to_owned(),
                    (Some(heir.to_owned()), epoch + 1, self.now),
                );
            }
            _ => {
                self.rados.insert(name.to_owned(), (None, epoch, self.now));
            }
        }
    }

    fn tick(&mut self) {
        self.now += 1;
        self.servers();
        if !self.up {
            self.outage = self.now;
        }
        for (name, machine) in &self.machines {
            let drained = self.database.drained.contains(name);
            if drained {
                self.drained_at.insert(name.clone(), self.now);
            }
            if drained || machine.cut || !machine.daemon || !machine.alive {
                self.unfit.insert(name.clone(), self.now);
            }
        }
        let names: Vec<_> = self.machines.keys().cloned().collect();
        for name in names {
            if self.machines[&name].alive && self.machines[&name].daemon {
                self.round(&name);
            }
        }
    }

    fn run(&mut self) {
        self.create();
        self.create();
        for _ in 0..FAULTS {
            if self.rng.below(8) == 0 {
                self.fault();
            }
            if self.up && self.rng.below(15) == 0 {
                self.command();
            }
            self.tick();
        }
        self.up = true;
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            self.heal(&name);
        }
        self.lose_one();
        for _ in 0..CALM {
            self.tick();
        }
        self.check_calm();
    }

    /// In half of the runs one machine is gone for good, if two remain for aggregates.
    fn lose_one(&mut self) {
        let node = self.some_node();
        let drained = &self.database.drained;
        let others = self.machines.keys();
        let others = others.filter(|name| **name != node && !drained.contains(*name));
        if self.rng.below(2) == 0 && others.count() >= 2 {
            self.lose(&node);
        }
    }

    fn lose(&mut self, node: &str) {
        let kids: Vec<_> = self.machines[node].kids.keys().cloned().collect();
        kids.iter().for_each(|kid| self.end(node, kid));
        let machine = self.machines.get_mut(node).unwrap();
        (machine.alive, machine.daemon) = (false, false);
    }

    fn check_calm(&mut self) {
        let mut faults = Vec::new();
        let view = self.view();
        let lost = self.machines.values().any(|machine| !machine.alive);
        for (name, row) in &self.database.aggregates {
            if row.deleting && lost {
                // It waits for the machine, whose server may still run.
                continue;
            }
            let (owner, _, _) = &self.rados[name];
            if *owner != row.nodes.owner || owner.is_none() {
                faults.push(format!(
                    "{name}: {owner:?} owns it, and its row says {:?}",
                    row.nodes
                ));
            }
            for node in [owner, &row.nodes.standby].into_iter().flatten() {
                if self.database.drained.contains(node) {
                    faults.push(format!(
                        "{name} is on {node}, which is drained: {:?}",
                        row.nodes
                    ));
                }
            }
            let standby = row.nodes.standby.as_ref();
            let kid = standby.and_then(|standby| self.machines[standby].kids.get(name));
            if kid.is_none_or(|kid| kid.role != Role::Standby) {
                faults.push(format!("{name}: its standby {standby:?} does not stand by"));
            }
            if let Some(target) = &row.nodes.target {
                faults.push(format!("{name} is not yet at {target:?}"));
            }
            for (node, machine) in &self.machines {
                if machine.kids.contains_key(name) && !row.nodes.has_node(node) {
                    faults.push(format!("{name} has a server too many on {node}"));
                }
            }
        }
        let mut moved = BTreeMap::new();
        for one in placement::rebalance(&view) {
            moved.insert(one.aggregate, one.to);
        }
        let spread = self.spread(&moved);
        if spread.is_some_and(|spread| spread > 1) {
            faults.push(format!("after rebalancing the spread is {spread:?}"));
        }
        self.faults.extend(faults);
    }

    /// Returns the difference between the most and the fewest aggregates that a node owns which is
    /// not drained, after `moved`.
    fn spread(&self, moved: &BTreeMap<String, String>) -> Option<usize> {
        let alive = self.machines.iter().filter(|(_, machine)| machine.alive);
        let fits = alive.filter(|(name, _)| !self.database.drained.contains(*name));
        let mut counts: BTreeMap<&String, usize> = fits.map(|(name, _)| (name, 0)).collect();
        let rows = self.database.aggregates.iter();
        for (aggregate, row) in rows.filter(|(_, row)| !row.deleting) {
            let node = moved.get(aggregate).or(row.nodes.owner.as_ref())?;
            *counts.get_mut(node)? += 1;
        }
        Some(counts.values().max()? - counts.values().min()?)
    }
}

fn new_row(name: &str, nodes: Assignment) -> Aggregate {
    Aggregate {
        name: name.to_owned(),
        kind: Kind::Rados,
        place: format!("rados:p/{name}"),
        settings: Settings {
            memory: 10,
            ..Settings::default()
        },
        nodes,
        deleting: false,
        created: 0,
        version: 0,
    }
}

/// Makes all targets those of the current epoch.
fn with_new_targets(mut view: View, running: &BTreeMap<String, Child>) -> View {
    for (name, row) in &mut view.aggregates {
        let epoch = running.get(name).map(|child| child.epoch);
        if let (Some(target), Some(epoch)) = (&mut row.nodes.target, epoch) {
            target.epoch = epoch;
        }
    }
    view
}

fn faults(seed: u64, bug: Option<Bug>) -> Vec<String> {
    let mut world = World::new(seed, bug);
    world.run();
    world.faults
}

#[test]
fn the_rows_follow_the_servers_and_interrupt_none() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut world = World::new(seed, None);
        world.run();
        assert_eq!(world.faults, Vec::<String>::new(), "seed {seed}");
        for (what, count) in world.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    assert!(
        counts["restored"] > 200 && counts["switched"] > 1000,
        "{counts:?}"
    );
}

#[test]
fn rules_that_are_left_out_are_missed() {
    for bug in [
        Bug::NoLearning,
        Bug::TrustsRow,
        Bug::OldTarget,
        Bug::IgnoresDrain,
        Bug::EndsOwner,
        Bug::OldReports,
    ] {
        let found = (0..200).find(|seed| !faults(*seed, Some(bug)).is_empty());
        assert!(found.is_some(), "{bug:?} is not found");
        println!("{bug:?}: seed {}", found.unwrap());
    }
}
