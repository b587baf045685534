//! Clients: what they request, and what they see.

use std::collections::BTreeMap;

use weir_base::Ino;
use weir_constituents::placement::{Fill, place_directory};
use weir_constituents::{Attributes, Constituent, Refusal, Reply, Request};

use super::state::{Item, Observation};
use super::{Event, World};
use crate::model::op::{CreateMode, Kind, Name, Op, ROOT, Set, Slot};

/// Most repetitions of an operation that is refused as busy.
const REPEATS: u32 = 6;

/// An operation of a client. Its number is the slot of what it makes.
#[derive(Clone, Debug)]
pub struct Operation {
    pub client: usize,
    pub op: Op,
    request: Option<Request>,
    /// Inode that it makes.
    pub made: Option<Ino>,
    /// True once it took effect.
    pub done: bool,
    /// Reply that the client has.
    pub reply: Option<Reply>,
    repeats: u32,
}

fn fixed(name: &Name) -> Box<[u8]> {
    name.0.clone().into()
}

impl World {
    /// Returns the slot of a new operation: slot 0 is the root.
    pub fn slot(operation: usize) -> Slot {
        Slot(operation as u32 + 1)
    }

    fn any_name(&mut self) -> Name {
        Name::from(*self.choices.pick(&["a", "b", "c"]))
    }

    /// Returns a slot, mostly of what exists.
    fn any_slot(&mut self, kind: Kind) -> Slot {
        if self.choices.chance(1, 20) {
            let slots: Vec<Slot> = self.inodes.keys().copied().collect();
            return *self.choices.pick(&slots);
        }
        let nodes = self.model.nodes().filter(|(_, node)| node.kind() == kind);
        let slots: Vec<Slot> = nodes.map(|(slot, _)| slot).collect();
        if slots.is_empty() {
            return ROOT;
        }
        *self.choices.pick(&slots)
    }

    fn any_entry(&mut self) -> (Slot, Name) {
        let dir = self.any_slot(Kind::Dir);
        let names = self.model.node(dir).and_then(|node| node.entries());
        let names: Vec<Name> =
            names.map_or(Vec::new(), |entries| entries.keys().cloned().collect());
        if names.is_empty() || self.choices.chance(1, 10) {
            return (dir, self.any_name());
        }
        (dir, self.choices.pick(&names).clone())
    }

    fn any_operation(&mut self) -> Op {
        let (dir, name) = (self.any_slot(Kind::Dir), self.any_name());
        let set = Set::default();
        match self.choices.weighted(&[12, 18, 10, 8, 20, 10, 6, 6, 4, 14]) {
            0 => Op::Create {
                dir,
                name,
                how: CreateMode::Guarded,
                set,
            },
            1 => Op::Mkdir { dir, name, set },
            2 => {
                let (dir, name) = self.any_entry();
                Op::Remove { dir, name }
            }
            3 => {
                let (dir, name) = self.any_entry();
                Op::Rmdir { dir, name }
            }
            4 => {
                let (from_dir, from) = self.any_entry();
                let (to_dir, to) = match self.choices.chance(1, 2) {
                    true => (dir, name),
                    false => self.any_entry(),
                };
                Op::Rename {
                    from_dir,
                    from,
                    to_dir,
                    to,
                }
            }
            5 => {
                let object = self.any_slot(Kind::File);
                Op::Link { object, dir, name }
            }
            6 => {
                let (dir, name) = self.any_entry();
                Op::Lookup { dir, name }
            }
            7 => {
                let kind = *self.choices.pick(&[Kind::File, Kind::Dir]);
                let object = self.any_slot(kind);
                Op::Getattr { object }
            }
            8 => Op::Readdir { dir, entries: 0 },
            _ => self.any_move(),
        }
    }

    /// Returns a move of a directory into another one.
    fn any_move(&mut self) -> Op {
        let (to_dir, to) = (self.any_slot(Kind::Dir), self.any_name());
        let mut entries = Vec::new();
        for (from_dir, node) in self.model.nodes() {
            for (name, slot) in node.entries().into_iter().flatten() {
                let node = self.model.node(*slot);
                if node.is_some_and(|node| node.kind() == Kind::Dir) {
                    entries.push((from_dir, name.clone()));
                }
            }
        }
        if entries.is_empty() {
            return Op::Readdir {
                dir: ROOT,
                entries: 0,
            };
        }
        let (from_dir, from) = self.choices.pick(&entries).clone();
        Op::Rename {
            from_dir,
            from,
            to_dir,
            to,
        }
    }

    /// Returns the request of an operation that changes something.
    fn request_of(&mut self, op: &Op) -> Option<Request> {
        let ino = |slot: &Slot| self.inodes[slot];
        Some(match op {
            Op::Create { dir, name, .. } => Request::Create {
                directory: ino(dir),
                name: fixed(name),
            },
            Op::Mkdir { dir, name, .. } => Request::MakeDirectory {
                directory: ino(dir),
                name: fixed(name),
                on: self.place(ino(dir)),
                attributes: Attributes::default(),
            },
            Op::Remove { dir, name } => Request::Remove {
                directory: ino(dir),
                name: fixed(name),
            },
            Op::Rmdir { dir, name } => Request::RemoveDirectory {
                directory: ino(dir),
                name: fixed(name),
            },
            Op::Rename {
                from_dir,
                from,
                to_dir,
                to,
            } => Request::Rename {
                from_directory: ino(from_dir),
                from: fixed(from),
                to_directory: ino(to_dir),
                to: fixed(to),
            },
            Op::Link { object, dir, name } => Request::Link {
                file: ino(object),
                directory: ino(dir),
                name: fixed(name),
            },
            _ => return None,
        })
    }

    /// Returns the constituent of a new directory: any of them may be nearly full.
    fn place(&self, parent: Ino) -> Constituent {
        let own = Constituent::of_inode(parent);
        let object = self.members.get(usize::from(own.0));
        let object = object.and_then(|member| member.device.objects.get(&parent));
        let depth = object.map_or(1, |object| object.depth.saturating_add(1));
        let fill = |number| Fill {
            constituent: Constituent(number),
            capacity_bytes: 1000,
            free_bytes: self.choices.below(200),
            load_permille: self.choices.below(1000) as u16,
            reachable: true,
        };
        let fills: Vec<Fill> = (0..self.members.len() as u8).map(fill).collect();
        place_directory(own, depth, &fills, self.order)
    }

    pub fn next_operation(&mut self, client: usize) {
        if self.calm || self.clients[client].is_some() {
            return;
        }
        let snapshot = client == 0 && self.choices.chance(1, 12);
        let op = match snapshot {
            true => Op::Getattr { object: ROOT },
            false => self.any_operation(),
        };
        let request = match snapshot {
            true => Some(Request::Snapshot),
            false => self.request_of(&op),
        };
        self.submit(client, op, request, 0);
    }

    fn submit(&mut self, client: usize, op: Op, request: Option<Request>, repeats: u32) {
        let number = self.operations.len();
        self.operations.push(Operation {
            client,
            op,
            request,
            made: None,
            done: false,
            reply: None,
            repeats,
        });
        self.clients[client] = Some(number);
        let delay = self.choices.below(1_000);
        self.schedule_event(delay, Event::Request(number));
        self.schedule_event(400_000, Event::Timeout(number));
    }

    pub fn request(&mut self, number: usize) -> Result<(), String> {
        let operation = self.operations[number].clone();
        if let Some(request) = operation.request {
            let member = usize::from(request.decider().0);
            return self.call(member, None, |protocol, memory| {
                protocol.request(memory, number as u64, request);
            });
        }
        let directory = match &operation.op {
            Op::Lookup { dir, .. } | Op::Readdir { dir, .. } => *dir,
            Op::Getattr { object } => *object,
            _ => return Ok(()),
        };
        let ino = self.inodes[&directory];
        let member = usize::from(Constituent::of_inode(ino).0);
        let of = &self.members[member];
        let Some(protocol) = &of.protocol else {
            return Ok(());
        };
        let state = &of.memory.state;
        let (locked, seen) = match &operation.op {
            Op::Lookup { name, .. } => {
                let entries = state.entries.get(&ino);
                let target = entries.and_then(|entries| entries.get(name));
                let seen = Observation::Entry(target.map(|target| target.ino));
                (protocol.check_lookup(ino, &name.0), seen)
            }
            _ => {
                let entries = state.entries.get(&ino).into_iter().flatten();
                let listing: BTreeMap<Name, Ino> = entries
                    .map(|(name, target)| (name.clone(), target.ino))
                    .collect();
                let seen = Observation::Object(state.objects.get(&ino).copied(), listing);
                (protocol.check_attributes(ino), seen)
            }
        };
        match locked {
            Err(refusal) if !self.has_bug(super::Bug::ReadsLocked) => {
                self.push(member, Item::Reply(number, Err(refusal)));
            }
            _ => {
                self.push(member, Item::Check(number, seen));
                self.push(member, Item::Reply(number, Ok(None)));
            }
        }
        Ok(())
    }

    /// Gives a reply to its client.
    pub fn replied(&mut self, number: usize, reply: Reply) -> Result<(), String> {
        let operation = &mut self.operations[number];
        if operation.reply.replace(reply).is_some() {
            return Err(format!("two replies: {operation:?}"));
        }
        let changes = operation.request.is_some() && reply.is_ok();
        let nothing = matches!(operation.op, Op::Rename { .. });
        if changes && !operation.done && !nothing {
            return Err(format!(
                "a reply before the change is durable: {operation:?}"
            ));
        }
        let (client, repeats) = (operation.client, operation.repeats + 1);
        if self.clients[client] != Some(number) {
            return Ok(());
        }
        self.clients[client] = None;
        let operation = self.operations[number].clone();
        if reply == Err(Refusal::Busy) && repeats < REPEATS && !self.calm {
            self.submit(client, operation.op, operation.request, repeats);
        } else {
            let delay = self.choices.below(3_000);
            self.schedule_event(delay, Event::Client(client));
        }
        Ok(())
    }
}
