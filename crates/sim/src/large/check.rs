//! Comparison with the model.

use std::collections::{BTreeMap, BTreeSet};

use weir_base::{Ino, Time};
use weir_constituents::{Constituent, Kind, Object, ROOT, Refusal, Token};

use super::World;
use super::state::{Item, Observation};
use crate::model::op::{self, Errno, Name, Op, Slot};
use crate::model::tree::{Body, Model, Node};

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::NotFound => Errno::NotFound,
        Refusal::Exists => Errno::Exists,
        Refusal::NotDirectory => Errno::NotDir,
        Refusal::IsDirectory => Errno::IsDir,
        Refusal::NotEmpty => Errno::NotEmpty,
        Refusal::Stale => Errno::Stale,
        Refusal::Loop => Errno::Invalid,
        Refusal::Busy => Errno::Delay,
        Refusal::Full => Errno::NoSpace,
        Refusal::TooManyLinks => Errno::TooManyLinks,
    }
}

impl World {
    /// Carries out an operation whose deciding record is durable.
    pub fn take_effect(&mut self, number: usize) -> Result<(), String> {
        let operation = &mut self.operations[number];
        if operation.done {
            return Err(format!("carried out twice: {operation:?}"));
        }
        if let Some(reply) = &operation.reply {
            return Err(format!(
                "carried out after the reply {reply:?}: {operation:?}"
            ));
        }
        operation.done = true;
        let (op, made) = (operation.op.clone(), operation.made);
        let slot = World::slot(number);
        let applied = self.model.apply(&op, Time::EPOCH, slot);
        applied.map_err(|errors| format!("{op:?} was carried out, and had to fail: {errors:?}"))?;
        if let Some(made) = made {
            self.inodes.insert(slot, made);
        }
        self.counts.changes += 1;
        Ok(())
    }

    /// Compares a result that changed nothing with the model at this moment.
    pub fn check(&self, number: usize, seen: &Observation) -> Result<(), String> {
        let operation = &self.operations[number];
        let fail = |expected: &dyn std::fmt::Debug| {
            let op = &operation.op;
            Err(format!(
                "{op:?} found {seen:?}, and the model has {expected:?}"
            ))
        };
        match seen {
            Observation::Reply(reply) => {
                let mut model = self.model.clone();
                let applied = model.apply(&operation.op, Time::EPOCH, World::slot(number));
                match (reply, applied) {
                    (Err(refusal), Err(errors)) if errors.admits(errno(*refusal)) => Ok(()),
                    // Nothing was to be done.
                    (Ok(_), Ok(_)) if same_entries(&model, &self.model) => Ok(()),
                    (_, applied) => fail(&applied),
                }
            }
            Observation::Entry(found) => {
                let Op::Lookup { dir, name } = &operation.op else {
                    return Ok(());
                };
                let entries = self.model.node(*dir).and_then(|node| node.entries());
                let slot = entries.and_then(|entries| entries.get(name));
                let expected = slot.map(|slot| self.inodes[slot]);
                match expected == *found {
                    true => Ok(()),
                    false => fail(&expected),
                }
            }
            Observation::Object(object, listing) => {
                let slot = match &operation.op {
                    Op::Getattr { object } => *object,
                    Op::Readdir { dir, .. } => *dir,
                    _ => return Ok(()),
                };
                let expected = self.model.node(slot);
                match self.is_same(*object, listing, expected) {
                    true => Ok(()),
                    false => fail(&expected),
                }
            }
        }
    }

    /// Compares an inode, and a directory's entries, with the model's.
    fn is_same(
        &self,
        object: Option<Object>,
        listing: &BTreeMap<Name, Ino>,
        node: Option<&Node>,
    ) -> bool {
        let (Some(object), Some(node)) = (object, node) else {
            return object.is_none() && node.is_none();
        };
        match &node.body {
            Body::Dir { entries, parent } => {
                let inode = |slot: &Slot| self.inodes.get(slot).copied();
                let named = entries.iter().map(|(name, slot)| (name, inode(slot)));
                let found = listing.iter().map(|(name, ino)| (name, Some(*ino)));
                let counted = object.entries == entries.len() as u64;
                let same = named.eq(found) && counted && object.links == node.nlink;
                same && object.kind == Kind::Directory && inode(parent) == Some(object.parent)
            }
            _ => object.kind == Kind::File && object.links == node.nlink,
        }
    }

    /// Notes the model at the moment of a snapshot, with what is appended and not durable.
    pub fn cut(&mut self, token: Token) {
        if self.cut_models.contains_key(&token) {
            return;
        }
        let mut pending = Vec::new();
        for member in &self.members {
            for (order, item) in &member.queue {
                if let Item::Record(_, Some(operation)) = item {
                    pending.push((*order, *operation));
                }
            }
        }
        pending.sort_unstable();
        let mut model = self.model.clone();
        for (_, number) in pending {
            let op = &self.operations[number].op;
            // It fails again, and is reported, when the record is durable.
            let _ = model.apply(op, Time::EPOCH, World::slot(number));
        }
        self.cut_models.insert(token, model);
    }

    /// Compares the tree over all constituents with the model.
    pub fn compare(&self) -> Result<(), String> {
        let mut reached = BTreeSet::new();
        let mut next = vec![(op::ROOT, ROOT)];
        while let Some((slot, ino)) = next.pop() {
            if !reached.insert(ino) && ino_is_directory(&self.model, slot) {
                return Err(format!("directory {ino} has two names"));
            }
            let state = &self.members[usize::from(Constituent::of_inode(ino).0)].device;
            let object = state.objects.get(&ino).copied();
            let entries = state.entries.get(&ino).into_iter().flatten();
            let listing: BTreeMap<Name, Ino> = entries
                .map(|(name, target)| (name.clone(), target.ino))
                .collect();
            let node = self.model.node(slot);
            if object.is_none() || !self.is_same(object, &listing, node) {
                return Err(format!(
                    "inode {ino} is {object:?} with {listing:?}, and the model has {node:?}"
                ));
            }
            let entries = node.and_then(Node::entries).into_iter().flatten();
            next.extend(entries.map(|(_, slot)| (*slot, self.inodes[slot])));
        }
        for member in &self.members {
            let inodes = member.device.objects.keys();
            if let Some(orphan) = inodes.clone().find(|ino| !reached.contains(ino)) {
                return Err(format!("inode {orphan} has no name"));
            }
        }
        if reached.len() != self.model.len() {
            return Err(format!(
                "{} inodes, and the model has {}",
                reached.len(),
                self.model.len()
            ));
        }
        Ok(())
    }
}

fn ino_is_directory(model: &Model, slot: Slot) -> bool {
    let node = model.node(slot);
    node.is_some_and(|node| node.entries().is_some())
}

/// Returns true if two models have the same names.
fn same_entries(one: &Model, other: &Model) -> bool {
    let entries = |model: &Model| -> Vec<(Slot, Option<BTreeMap<Name, Slot>>)> {
        let nodes = model.nodes();
        nodes
            .map(|(slot, node)| (slot, node.entries().cloned()))
            .collect()
    };
    entries(one) == entries(other)
}
