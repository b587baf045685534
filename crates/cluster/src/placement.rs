//! Placement: which node gets an aggregate.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use weir_api::fleet;

use crate::rows::{Aggregate, Assignment, Kind, Role, View};

/// Aggregates and free memory of the nodes that may be given aggregates.
pub struct Load(BTreeMap<String, NodeCapacity>);

#[derive(Clone, Copy)]
struct NodeCapacity {
    aggregates: usize,
    free: u64,
}

impl Load {
    /// Adds the rows of a view up.
    pub fn from_view(view: &View) -> Load {
        let nodes = view.nodes.values().filter(|node| node.takes_aggregates());
        let room = |free| NodeCapacity {
            aggregates: 0,
            free,
        };
        let mut load = Load(
            nodes
                .map(|node| (node.name.clone(), room(node.memory)))
                .collect(),
        );
        for aggregate in view.aggregates.values() {
            load.add(aggregate, &aggregate.nodes);
        }
        load
    }

    fn each(&mut self, nodes: &Assignment, mut change: impl FnMut(&mut NodeCapacity)) {
        let names = [&nodes.owner, &nodes.standby].into_iter().flatten();
        for name in names {
            if let Some(room) = self.0.get_mut(name) {
                change(room);
            }
        }
    }

    fn add(&mut self, aggregate: &Aggregate, nodes: &Assignment) {
        if aggregate.kind != Kind::Rados {
            return;
        }
        let memory = aggregate.settings.memory;
        self.each(nodes, |room| {
            room.aggregates += 1;
            // Saturates: a node may have less memory than before.
            room.free = room.free.saturating_sub(memory);
        });
    }

    /// Replaces the nodes of an aggregate.
    pub fn replace(&mut self, aggregate: &Aggregate, to: Option<&Assignment>) {
        let memory = aggregate.settings.memory;
        if aggregate.kind == Kind::Rados {
            self.each(&aggregate.nodes, |room| {
                room.aggregates -= 1;
                // Saturates: the sum was cut when it was made.
                room.free = room.free.saturating_add(memory);
            });
        }
        if let Some(to) = to {
            self.add(aggregate, to);
        }
    }

    /// Returns true if a node has the memory for an aggregate, or has it already.
    pub fn fits(&self, aggregate: &Aggregate, node: &str) -> bool {
        let room = self.0.get(node);
        let free = room.is_some_and(|room| room.free >= aggregate.settings.memory);
        room.is_some() && (free || aggregate.nodes.has_node(node))
    }

    /// Returns the node with the fewest aggregates, then the most free memory, then the first name.
    /// Never `except`, nor one that lacks the memory.
    pub fn choose(&self, aggregate: &Aggregate, except: Option<&str>) -> Option<String> {
        let fits = self.0.iter();
        let fits =
            fits.filter(|(name, _)| Some(name.as_str()) != except && self.fits(aggregate, name));
        let best = fits.min_by_key(|(name, room)| (room.aggregates, Reverse(room.free), *name));
        best.map(|(name, _)| name.clone())
    }
}

/// Returns the aggregate that gets a new storage pool: the one with the most bytes that are free
/// and promised to nobody, then the least promised, then the first name. Aggregates on one pool of
/// Ceph have the same free space, so that what each has promised decides. `None`: none takes
/// changes.
pub fn roomiest(rooms: &[fleet::AggregateSpace]) -> Option<&str> {
    let takes = rooms.iter().filter(|room| !room.read_only);
    let best = takes.min_by_key(|room| {
        let promised = room.provisioned.saturating_sub(room.used);
        // More may be promised than there is.
        let left = i128::from(room.free) - i128::from(promised);
        (Reverse(left), room.provisioned, &room.aggregate)
    });
    best.map(|room| room.aggregate.as_str())
}

/// A move of an aggregate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    /// The aggregate.
    pub aggregate: String,
    /// Its owner.
    pub from: String,
    /// Its next owner.
    pub to: String,
}

/// Returns the moves after which no node owns two aggregates more than another one that could have
/// them. A standby is moved to first, as it has the server already.
pub fn rebalance(view: &View) -> Vec<Move> {
    let mut owners: BTreeMap<&str, Vec<&Aggregate>> = BTreeMap::new();
    let mut load = Load::from_view(view);
    for node in view.nodes.values().filter(|node| node.takes_aggregates()) {
        owners.insert(&node.name, Vec::new());
    }
    for aggregate in view.aggregates.values() {
        let real = view.real_owner(aggregate);
        let owned = real.and_then(|(node, _)| owners.get_mut(node.name.as_str()));
        if let Some(owned) = owned.filter(|_| aggregate.kind == Kind::Rados) {
            owned.push(aggregate);
        }
    }
    let mut moves = Vec::new();
    // Each move lowers the sum of squares, so this ends. Aggregates that have been moved are at the
    // front of their lists, and the last ones of a list move first.
    while let Some((from, to, at)) = next_move(&owners, &load) {
        let Some(aggregate) = owners.get_mut(from).map(|owned| owned.remove(at)) else {
            break;
        };
        let moved = Assignment {
            owner: Some(to.to_owned()),
            standby: Some(from.to_owned()),
            ..Assignment::default()
        };
        load.replace(aggregate, Some(&moved));
        moves.push(Move {
            aggregate: aggregate.name.clone(),
            from: from.to_owned(),
            to: to.to_owned(),
        });
        // It counts, and is not moved a second time.
        owners.entry(to).or_default().insert(0, aggregate);
    }
    moves
}

/// Returns the node with the most owned aggregates, the one with the fewest, and which aggregate
/// goes from one to the other; `None` if the difference is below two.
fn next_move<'a>(
    owners: &BTreeMap<&'a str, Vec<&Aggregate>>,
    load: &Load,
) -> Option<(&'a str, &'a str, usize)> {
    let (from, most) = owners.iter().max_by_key(|(_, owned)| owned.len())?;
    let mut others: Vec<_> = owners.iter().collect();
    others.sort_by_key(|(_, owned)| owned.len());
    for (to, owned) in others {
        if owned.len() + 2 > most.len() {
            return None;
        }
        let room = load.0.get(*to)?;
        let stands_by = |one: &Aggregate| one.nodes.standby.as_deref() == Some(*to);
        let fits = |one: &Aggregate| room.free >= one.settings.memory;
        let at = most.iter().rposition(|one| stands_by(one));
        if let Some(at) = at.or_else(|| most.iter().rposition(|one| fits(one))) {
            return Some((from, to, at));
        }
    }
    None
}

/// Returns the number of aggregates that a node owns, and of those for which it stands by, as its
/// servers report them.
pub fn counts(view: &View, node: &str) -> (usize, usize) {
    let children = view.nodes.get(node).map(|node| node.children.values());
    let roles: Vec<Role> = children.into_iter().flatten().map(|one| one.role).collect();
    let count = |role| roles.iter().filter(|one| **one == role).count();
    (count(Role::Owner), count(Role::Standby))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pool_goes_where_the_most_is_promised_to_nobody() {
        const GIB: u64 = 1 << 30;
        let room = |aggregate: &str, free, used, provisioned| fleet::AggregateSpace {
            aggregate: aggregate.to_owned(),
            free: free * GIB,
            used: used * GIB,
            provisioned: provisioned * GIB,
            read_only: false,
        };
        assert_eq!(roomiest(&[]), None);
        // The free space counts, less what pools may still take of it.
        let (a, b) = (room("a", 100, 0, 80), room("b", 50, 10, 20));
        assert_eq!(roomiest(&[a.clone(), b]), Some("b"));
        // Data that is written already takes no further space.
        let full = room("b", 50, 200, 200);
        assert_eq!(roomiest(&[a.clone(), full]), Some("b"));
        // Ones that have promised more than they have.
        let over = [room("a", 10, 0, 100), room("b", 10, 0, 90)];
        assert_eq!(roomiest(&over), Some("b"));
        // The first of equal ones, and never one that takes no changes.
        let same = [room("b", 5, 0, 0), room("a", 5, 0, 0)];
        assert_eq!(roomiest(&same), Some("a"));
        let broken = fleet::AggregateSpace {
            read_only: true,
            ..room("c", 500, 0, 0)
        };
        assert_eq!(roomiest(&[a, broken]), Some("a"));
    }
}
