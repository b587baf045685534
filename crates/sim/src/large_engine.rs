//! The protocol of large volumes on volumes of the engine: three machines with a constituent each.
//!
//! Every record of the protocol is one [`Volume::change_constituent`], with the protocol's state in
//! the volume's tokens. The power of a machine fails between any two steps; messages to it are lost
//! then. Messages are repeated and overtake each other. At the end every token is settled, the tree
//! over the three volumes is the model's, and each volume passes the offline check.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_base::{Ino, Lsn, Time};
use weir_constituents::codec::Entry;
use weir_constituents::number::local_number;
use weir_constituents::{
    Attributes, Change, Constituent, Durable, Kind, Message, Namespace, Note, Object, Output,
    Protocol, ROOT, Record, Refusal, Request, Target, Ticket, Token,
};
use weir_store::FramePool;
use weir_volume::check::{CheckOptions, check_on};
use weir_volume::{
    ConstituentChange, EngineContext, FileKind, FsError, SetAttr, Stop, Volume, elsewhere,
    is_elsewhere,
};

use crate::machine::{DATA, LOG, Machine, RunningEngine, Sizes};
use crate::model::op::{self, CreateMode, Name, Op, Set, Slot};
use crate::model::tree::{Model, RootAttr, Rules};
use crate::rand::Choices;

/// Constituents.
const MEMBERS: u8 = 3;
/// Steps of a story.
const STEPS: u64 = 400;

/// Identity of a token's value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Epoch,
    Part(Ticket),
    Decision(Token),
}

/// A volume as a constituent's part of the tree.
struct ConstituentVolume {
    own: Constituent,
    volume: Arc<Volume>,
    now: Time,
    /// Numbers of the tokens that the volume has.
    numbers: BTreeMap<Key, u64>,
    /// The newest record.
    last: Option<Lsn>,
    /// Requests that the records since the last call carried out.
    done: Vec<u64>,
}

impl ConstituentVolume {
    fn drive<T>(
        &self,
        op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        self.volume
            .drive_blocking(&mut EngineContext::new(self.now), op)
    }

    /// Returns the number by which the volume names an inode of the large volume.
    fn stored(&self, ino: Ino) -> Ino {
        let (constituent, local) = (Constituent::of_inode(ino), Ino(local_number(ino)));
        match constituent == self.own {
            true => local,
            false => elsewhere(constituent.0, local).unwrap(),
        }
    }

    /// The inverse of `stored`.
    fn global(&self, ino: Ino) -> Ino {
        match is_elsewhere(ino) {
            true => Constituent((ino.0 >> 56) as u8 - 1)
                .inode(local_number(ino))
                .unwrap(),
            false => self.own.inode(ino.0).unwrap(),
        }
    }

    /// Returns the protocol's state as the volume's tokens have it.
    fn durable(&mut self) -> Durable {
        let tokens = self.drive(|cx| self.volume.tokens(cx)).unwrap();
        let mut durable = Durable::default();
        for (number, value) in tokens {
            let key = match Entry::decode(&value).unwrap() {
                Entry::Epoch(epoch) => {
                    durable.epoch = epoch;
                    Key::Epoch
                }
                Entry::Prepared(ticket, prepared) => {
                    durable.prepared.insert(ticket, prepared);
                    Key::Part(ticket)
                }
                Entry::Decided(token, parts) => {
                    durable.decided.insert(token, parts);
                    Key::Decision(token)
                }
            };
            self.numbers.insert(key, number);
        }
        durable
    }

    /// Returns the number of a token: that which it has, or the lowest free one.
    fn number(&self, key: Key) -> u64 {
        let used: BTreeSet<u64> = self.numbers.values().copied().collect();
        let free = (0..).find(|number| !used.contains(number)).unwrap();
        self.numbers.get(&key).copied().unwrap_or(free)
    }

    fn change<'a>(&self, change: &'a Change) -> ConstituentChange<'a> {
        let stored = |ino: &Ino| self.stored(*ino);
        match change {
            Change::Make { ino, object, .. } => ConstituentChange::Make {
                ino: stored(ino),
                kind: file_kind(object.kind),
                parent: stored(&object.parent),
                attrs: SetAttr::default(),
            },
            Change::Delete { ino } => ConstituentChange::RemoveDirectory { ino: stored(ino) },
            Change::AddLink { ino } => ConstituentChange::AddLink { ino: stored(ino) },
            Change::DropLink { ino } => ConstituentChange::DropLink { ino: stored(ino) },
            Change::SetParent { ino, parent, .. } => ConstituentChange::SetParent {
                ino: stored(ino),
                parent: stored(parent),
            },
            Change::Insert {
                directory,
                name,
                target,
            } => ConstituentChange::Insert {
                dir: stored(directory),
                name,
                ino: stored(&target.ino),
                kind: file_kind(target.kind),
            },
            Change::Remove {
                directory, name, ..
            } => ConstituentChange::Remove {
                dir: stored(directory),
                name,
            },
            Change::TakeSnapshot { .. }
            | Change::KeepSnapshot { .. }
            | Change::DropSnapshot { .. } => panic!("there are no snapshots here"),
        }
    }
}

fn fixed(name: &Name) -> Box<[u8]> {
    name.0.clone().into()
}

fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::Directory => FileKind::Directory,
        Kind::File => FileKind::Regular,
    }
}

fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Directory => Kind::Directory,
        _ => Kind::File,
    }
}

impl Namespace for ConstituentVolume {
    fn object(&self, ino: Ino) -> Option<Object> {
        let found = self.drive(|cx| self.volume.constituent_inode(cx, self.stored(ino)));
        let found = found.ok()?;
        Some(Object {
            kind: kind_of(found.attr.kind),
            links: found.attr.nlink,
            entries: found.entries,
            parent: self.global(found.parent),
            depth: 0,
        })
    }

    fn entry(&self, directory: Ino, name: &[u8]) -> Option<Target> {
        let found = self.drive(|cx| self.volume.entry(cx, self.stored(directory), name));
        let (ino, kind) = found.ok()?;
        Some(Target {
            ino: self.global(ino),
            kind: kind_of(kind),
        })
    }

    fn new_number(&mut self) -> Ino {
        self.own.inode(self.volume.new_inode_number().0).unwrap()
    }

    fn append(&mut self, record: Record) -> Result<(), Refusal> {
        let changes: Vec<_> = record
            .changes
            .iter()
            .map(|change| self.change(change))
            .collect();
        let (key, entry) = match &record.note {
            Note::None => (None, None),
            Note::Epoch(epoch) => (Some(Key::Epoch), Some(Entry::Epoch(*epoch))),
            Note::Prepared { ticket, prepared } => {
                let entry = Entry::Prepared(*ticket, prepared.clone());
                (Some(Key::Part(*ticket)), Some(entry))
            }
            Note::Finished(ticket) => (Some(Key::Part(*ticket)), None),
            Note::Decided { token, parts } => {
                let entry = Entry::Decided(*token, parts.clone());
                (Some(Key::Decision(*token)), Some(entry))
            }
            Note::Forgotten(token) => (Some(Key::Decision(*token)), None),
        };
        let value = entry.map(|entry| entry.encode());
        let number = key.map(|key| self.number(key));
        let tokens: Vec<_> = number
            .map(|number| (number, value.as_deref()))
            .into_iter()
            .collect();
        let done = self.drive(|cx| self.volume.change_constituent(cx, &changes, &tokens));
        match done {
            Ok(done) => self.last = self.last.max(done.lsn),
            Err(FsError::NoSpace) => return Err(Refusal::Full),
            Err(error) => panic!("{record:?}: {error:?}"),
        }
        if let (Some(key), Some(number)) = (key, number) {
            match value {
                Some(_) => self.numbers.insert(key, number),
                None => self.numbers.remove(&key),
            };
        }
        self.done.extend(record.caller);
        Ok(())
    }
}

struct Node {
    machine: Machine,
    process: Option<(RunningEngine, ConstituentVolume, Protocol)>,
}

/// A request, and the operation of the model.
struct Operation {
    op: Op,
    request: Request,
    made: Option<Ino>,
    done: bool,
}

struct Story {
    choices: Choices,
    nodes: Vec<Node>,
    messages: Vec<(Constituent, Constituent, Message)>,
    operations: Vec<Operation>,
    model: Model,
    inodes: BTreeMap<Slot, Ino>,
}

impl Story {
    fn new(seed: u64) -> Result<Story, String> {
        let choices = Choices::new(seed);
        let mut nodes = Vec::new();
        for _ in 0..MEMBERS {
            let machine = Machine::new(Sizes::small(), &choices)?;
            let process = None;
            nodes.push(Node { machine, process });
        }
        let root = RootAttr {
            mode: 0o755,
            uid: 0,
            gid: 0,
            time: Time::EPOCH,
        };
        Ok(Story {
            choices,
            nodes,
            messages: Vec::new(),
            operations: Vec::new(),
            model: Model::new(root, Rules::ENGINE),
            inodes: BTreeMap::from([(op::ROOT, ROOT)]),
        })
    }

    fn start(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].process.is_some() {
            return Ok(());
        }
        let running = self.nodes[node].machine.boot()?;
        let mut namespace = ConstituentVolume {
            own: Constituent(node as u8),
            volume: Arc::clone(&running.volume),
            now: self.nodes[node].machine.current_time(),
            numbers: BTreeMap::new(),
            last: None,
            done: Vec::new(),
        };
        let durable = namespace.durable();
        let members = (0..MEMBERS).map(Constituent).collect();
        let protocol = Protocol::start(namespace.own, members, durable, &mut namespace);
        let protocol = protocol.map_err(|refusal| format!("start: {refusal:?}"))?;
        self.nodes[node].process = Some((running, namespace, protocol));
        self.release(node)
    }

    /// Cuts the power of a machine.
    fn crash(&mut self, node: usize) {
        let of = &mut self.nodes[node];
        if let Some(process) = of.process.take() {
            of.machine.world.crash();
            drop(process);
            of.machine.reboot(&self.choices);
        }
    }

    fn call(
        &mut self,
        node: usize,
        call: impl FnOnce(&mut Protocol, &mut ConstituentVolume),
    ) -> Result<(), String> {
        if let Some((_, namespace, protocol)) = &mut self.nodes[node].process {
            call(protocol, namespace);
            self.release(node)?;
        }
        Ok(())
    }

    /// Waits for the log, and passes on what waited for it; or the machine fails just before.
    fn release(&mut self, node: usize) -> Result<(), String> {
        let Some((running, namespace, protocol)) = &mut self.nodes[node].process else {
            return Ok(());
        };
        let durable = running.engine.wait_durable(namespace.last);
        durable.map_err(|error| format!("log: {error:?}"))?;
        let (outputs, done) = (protocol.take_outputs(), std::mem::take(&mut namespace.done));
        for output in &outputs {
            if let Output::Reply {
                caller,
                reply: Ok(Some(made)),
            } = output
            {
                self.operations[*caller as usize].made = Some(*made);
            }
        }
        for operation in done {
            self.take_effect(operation as usize)?;
        }
        if self.choices.chance(1, 60) {
            self.crash(node);
            return Ok(());
        }
        for output in outputs {
            if let Output::Send { to, message } = output {
                let copies = self
                    .choices
                    .between(1, 1 + u64::from(self.choices.chance(1, 10)));
                for _ in 0..copies {
                    let from = Constituent(node as u8);
                    self.messages.push((from, to, message.clone()));
                }
            }
        }
        Ok(())
    }

    fn take_effect(&mut self, number: usize) -> Result<(), String> {
        let operation = &mut self.operations[number];
        if std::mem::replace(&mut operation.done, true) {
            return Err(format!("carried out twice: {:?}", operation.op));
        }
        let slot = Slot(number as u32 + 1);
        let applied = self.model.apply(&operation.op, Time::EPOCH, slot);
        applied.map_err(|errors| format!("{:?} had to fail: {errors:?}", operation.op))?;
        if let Some(made) = operation.made {
            self.inodes.insert(slot, made);
        }
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), String> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let index = self.choices.index(self.messages.len());
        let (from, to, message) = self.messages.swap_remove(index);
        self.call(usize::from(to.0), |protocol, namespace| {
            protocol.message(namespace, from, message);
        })
    }

    fn any_dir(&self) -> Slot {
        let nodes = self
            .model
            .nodes()
            .filter(|(_, node)| node.entries().is_some());
        let dirs: Vec<Slot> = nodes.map(|(slot, _)| slot).collect();
        *self.choices.pick(&dirs)
    }

    fn any_entry(&self) -> (Slot, Name) {
        let dir = self.any_dir();
        let entries = self.model.node(dir).and_then(|node| node.entries());
        let names: Vec<Name> = entries
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect();
        match names.is_empty() {
            true => (dir, Name::from("a")),
            false => (dir, self.choices.pick(&names).clone()),
        }
    }

    /// Returns a request that makes a name.
    fn any_new(&self) -> (Op, Request) {
        let (dir, name) = (
            self.any_dir(),
            Name::from(*self.choices.pick(&["a", "b", "c"])),
        );
        let (directory, fixed) = (self.inodes[&dir], fixed(&name));
        let set = Set::default();
        let files = self
            .model
            .nodes()
            .filter(|(_, node)| node.entries().is_none());
        let files: Vec<Slot> = files.map(|(slot, _)| slot).collect();
        match self.choices.weighted(&[3, 5, 2]) {
            1 => {
                let on = Constituent(self.choices.below(u64::from(MEMBERS)) as u8);
                let request = Request::MakeDirectory {
                    directory,
                    name: fixed,
                    on,
                    attributes: Attributes::default(),
                };
                (Op::Mkdir { dir, name, set }, request)
            }
            2 if !files.is_empty() => {
                let object = *self.choices.pick(&files);
                let request = Request::Link {
                    file: self.inodes[&object],
                    directory,
                    name: fixed,
                };
                (Op::Link { object, dir, name }, request)
            }
            _ => {
                let how = CreateMode::Guarded;
                let op = Op::Create {
                    dir,
                    name,
                    how,
                    set,
                };
                let request = Request::Create {
                    directory,
                    name: fixed,
                };
                (op, request)
            }
        }
    }

    /// Returns a request that removes or moves a name.
    fn any_old(&self) -> (Op, Request) {
        let (dir, name) = self.any_entry();
        let (directory, old) = (self.inodes[&dir], fixed(&name));
        match self.choices.weighted(&[2, 2, 6]) {
            0 => {
                let request = Request::Remove {
                    directory,
                    name: old,
                };
                (Op::Remove { dir, name }, request)
            }
            1 => {
                let request = Request::RemoveDirectory {
                    directory,
                    name: old,
                };
                (Op::Rmdir { dir, name }, request)
            }
            _ => {
                let (to_dir, to) = match self.choices.chance(1, 3) {
                    true => self.any_entry(),
                    false => (self.any_dir(), Name::from(*self.choices.pick(&["a", "b"]))),
                };
                let request = Request::Rename {
                    from_directory: directory,
                    from: old,
                    to_directory: self.inodes[&to_dir],
                    to: fixed(&to),
                };
                let op = Op::Rename {
                    from_dir: dir,
                    from: name,
                    to_dir,
                    to,
                };
                (op, request)
            }
        }
    }

    fn submit(&mut self) -> Result<(), String> {
        let (op, request) = match self.choices.chance(1, 2) {
            true => self.any_new(),
            false => self.any_old(),
        };
        let number = self.operations.len() as u64;
        let decider = usize::from(request.decider().0);
        self.operations.push(Operation {
            op,
            request: request.clone(),
            made: None,
            done: false,
        });
        self.call(decider, |protocol, namespace| {
            protocol.request(namespace, number, request);
        })
    }

    fn step(&mut self) -> Result<(), String> {
        let node = self.choices.index(self.nodes.len());
        match self.choices.below(30) {
            0 => {
                self.crash(node);
                Ok(())
            }
            1..=3 => self.start(node),
            4 => match &self.nodes[node].process {
                Some((running, ..)) => {
                    let taken = running.engine.cp_now();
                    taken.map_err(|error| format!("checkpoint: {error:?}"))
                }
                None => Ok(()),
            },
            5..=6 => self.call(node, |protocol, namespace| protocol.tick(namespace)),
            7..=12 => self.submit(),
            _ => self.deliver(),
        }
    }

    /// Settles every token, and compares everything.
    fn finish(&mut self) -> Result<(), String> {
        for _ in 0..200 {
            for node in 0..self.nodes.len() {
                self.start(node)?;
                self.call(node, |protocol, namespace| protocol.tick(namespace))?;
            }
            while !self.messages.is_empty() {
                self.deliver()?;
            }
            let idle = |node: &Node| node.process.as_ref().is_some_and(|(.., p)| p.is_idle());
            if self.nodes.iter().all(idle) {
                return self.compare();
            }
        }
        let last = self.operations.last().map(|operation| &operation.request);
        Err(format!(
            "in the end changes are left; the last request was {last:?}"
        ))
    }

    fn compare(&mut self) -> Result<(), String> {
        for (slot, node) in self.model.nodes() {
            let ino = self.inodes[&slot];
            let of = &self.nodes[usize::from(Constituent::of_inode(ino).0)].process;
            let (_, namespace, _) = of.as_ref().ok_or("a machine is off")?;
            let object = namespace.object(ino);
            let entries = node.entries().map_or(0, BTreeMap::len) as u64;
            let found = object.map(|object| (object.links, object.entries));
            if found != Some((node.nlink, entries)) {
                return Err(format!(
                    "inode {ino} is {object:?}, and the model has {node:?}"
                ));
            }
            for (name, slot) in node.entries().into_iter().flatten() {
                let target = namespace.entry(ino, name).map(|target| target.ino);
                if target != Some(self.inodes[slot]) {
                    return Err(format!("{name:?} of {ino} is {target:?}"));
                }
            }
        }
        let mut count = 0;
        for node in &mut self.nodes {
            if let Some((running, namespace, _)) = node.process.take() {
                drop(namespace);
                let stopped = running.engine.shutdown();
                stopped.map_err(|error| format!("shutdown: {error:?}"))?;
            }
            count += inodes_of(&node.machine)?;
        }
        // The roots of the other constituents have no names.
        let expected = self.model.len() as u64 + u64::from(MEMBERS) - 1;
        match count == expected {
            true => Ok(()),
            false => Err(format!("{count} inodes, and the model has {expected}")),
        }
    }
}

/// Checks a machine's disks. Returns the number of inodes.
fn inodes_of(machine: &Machine) -> Result<u64, String> {
    machine.check()?;
    let copy = machine.world.copy();
    let pool = FramePool::new(machine.frames()).map_err(|error| format!("frames: {error}"))?;
    let options = CheckOptions::default();
    let report = check_on(copy.device(DATA), copy.device(LOG), &pool, &options);
    let report = report.map_err(|error| format!("check: {error}"))?;
    Ok(report.inodes)
}

/// Runs one seed.
///
/// # Errors
/// The promise that was broken.
pub fn story(seed: u64) -> Result<(), String> {
    let mut story = Story::new(seed)?;
    for node in 0..story.nodes.len() {
        story.start(node)?;
    }
    for _ in 0..STEPS {
        story.step()?;
    }
    story.finish()
}
