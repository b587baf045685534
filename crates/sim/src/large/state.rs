//! A constituent of plain maps, with a log of which a crash loses what is not durable.

use std::collections::{BTreeMap, VecDeque};

use weir_base::Ino;
use weir_constituents::{
    Change, Constituent, Durable, Kind, Message, Namespace, Object, Protocol, ROOT, Record,
    Refusal, Reply, Target, Token,
};

use crate::model::op::Name;
use crate::rand::Choices;

/// Snapshot of a constituent.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub kept: bool,
    pub state: State,
}

/// The state that the records of a constituent make.
#[derive(Clone, Debug)]
pub struct State {
    own: Constituent,
    pub objects: BTreeMap<Ino, Object>,
    pub entries: BTreeMap<Ino, BTreeMap<Name, Target>>,
    next: u64,
    pub durable: Durable,
    pub snapshots: BTreeMap<Token, Snapshot>,
}

impl State {
    pub fn new(own: Constituent) -> State {
        let mut objects = BTreeMap::new();
        if Constituent::of_inode(ROOT) == own {
            objects.insert(ROOT, Object::directory(ROOT, 0));
        }
        State {
            own,
            objects,
            entries: BTreeMap::new(),
            next: 16,
            durable: Durable::default(),
            snapshots: BTreeMap::new(),
        }
    }

    pub fn apply(&mut self, record: &Record) {
        for change in &record.changes {
            self.change(change);
        }
        self.durable.apply(&record.note);
    }

    fn object_mut(&mut self, ino: Ino) -> &mut Object {
        let object = self.objects.get_mut(&ino);
        object.unwrap_or_else(|| panic!("inode {ino} does not exist"))
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Make { ino, object, .. } => {
                self.next = self
                    .next
                    .max(weir_constituents::number::local_number(*ino) + 1);
                assert!(self.objects.insert(*ino, *object).is_none());
            }
            Change::Delete { ino } => {
                let object = self.objects.remove(ino);
                let object = object.unwrap_or_else(|| panic!("directory {ino} does not exist"));
                assert_eq!((object.kind, object.entries), (Kind::Directory, 0));
            }
            Change::AddLink { ino } => self.object_mut(*ino).links += 1,
            Change::DropLink { ino } => {
                let object = self.object_mut(*ino);
                assert_eq!(object.kind, Kind::File);
                object.links -= 1;
                if object.links == 0 {
                    self.objects.remove(ino);
                }
            }
            Change::SetParent { ino, parent, depth } => {
                let object = self.object_mut(*ino);
                (object.parent, object.depth) = (*parent, *depth);
            }
            Change::Insert {
                directory,
                name,
                target,
            } => {
                let entries = self.entries.entry(*directory).or_default();
                assert!(entries.insert(Name::from(&**name), *target).is_none());
                let object = self.object_mut(*directory);
                object.entries += 1;
                object.links += u32::from(target.kind == Kind::Directory);
            }
            Change::Remove {
                directory,
                name,
                kind,
            } => {
                let entries = self.entries.entry(*directory).or_default();
                let removed = entries.remove(&**name).map(|target| target.kind);
                assert_eq!(removed, Some(*kind));
                let object = self.object_mut(*directory);
                object.entries -= 1;
                object.links -= u32::from(*kind == Kind::Directory);
            }
            Change::TakeSnapshot { token } => {
                let mut state = self.clone();
                state.snapshots.clear();
                self.snapshots
                    .insert(*token, Snapshot { kept: false, state });
            }
            Change::KeepSnapshot { token } => {
                if let Some(snapshot) = self.snapshots.get_mut(token) {
                    snapshot.kept = true;
                }
            }
            Change::DropSnapshot { token } => drop(self.snapshots.remove(token)),
        }
    }
}

/// The state in memory, with the records that were appended since it was looked at.
#[derive(Debug)]
pub struct Memory {
    pub state: State,
    pub appended: Vec<Record>,
    /// Refuses one record in this many; 0: none.
    pub refuses: u64,
    pub refusals: Choices,
}

impl Namespace for Memory {
    fn object(&self, ino: Ino) -> Option<Object> {
        self.state.objects.get(&ino).copied()
    }

    fn entry(&self, directory: Ino, name: &[u8]) -> Option<Target> {
        self.state.entries.get(&directory)?.get(name).copied()
    }

    fn new_number(&mut self) -> Ino {
        let local = self.state.next;
        self.state.next += 1;
        self.state.own.inode(local).unwrap()
    }

    fn append(&mut self, record: Record) -> Result<(), Refusal> {
        if self.refuses > 0 && self.refusals.below(self.refuses) == 0 {
            return Err(*self.refusals.pick(&[Refusal::Full, Refusal::Busy]));
        }
        self.state.apply(&record);
        self.appended.push(record);
        Ok(())
    }
}

/// A result as a client saw it.
#[derive(Clone, Debug)]
pub enum Observation {
    /// The result of a change.
    Reply(Reply),
    /// The inode that an entry names.
    Entry(Option<Ino>),
    /// An inode, and of a directory the listing.
    Object(Option<Object>, BTreeMap<Name, Ino>),
}

/// One step of a constituent in the order of its log.
#[derive(Clone, Debug)]
pub enum Item {
    /// A record, with the operation that it carries out.
    Record(Record, Option<usize>),
    /// The result of an operation that changed nothing.
    Check(usize, Observation),
    /// A message that waits for the records before it, with the operation that it refuses.
    Send(Constituent, Message, Option<usize>),
    /// A reply that waits for the records before it.
    Reply(usize, Reply),
}

/// A constituent: the process, if it runs, and the device.
pub struct Member {
    pub protocol: Option<Protocol>,
    pub memory: Memory,
    /// The durable state.
    pub device: State,
    /// Steps since then, each with its number in the order of all constituents.
    pub queue: VecDeque<(u64, Item)>,
}

impl Member {
    pub fn new(device: State, refusals: Choices) -> Member {
        Member {
            protocol: None,
            memory: Memory {
                state: device.clone(),
                appended: Vec::new(),
                refuses: 0,
                refusals,
            },
            device,
            queue: VecDeque::new(),
        }
    }
}
