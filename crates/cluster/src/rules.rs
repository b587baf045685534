//! Decisions: those of the leader about the rows, and those of a daemon about its servers. Pure
//! functions of a view.
//!
//! RADOS decides who owns an aggregate; the rows say only which nodes are to run a server of it.
//! So the wanted owner follows the real one, and nothing here can make two servers answer. A server
//! that owns its aggregate is never ended by a row; it is asked to switch to a standby that is
//! ready, and only for a target of its own epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_base::limits::cluster::LEARNING;

use crate::placement::Load;
use crate::rows::{Aggregate, Assignment, Child, Kind, Role, View};

/// A change of an aggregate's row, if it is still of this version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The aggregate.
    pub aggregate: String,
    /// Version of the row that was read.
    pub version: i64,
    /// Its new nodes; `None` removes the row.
    pub to: Option<Assignment>,
}

/// Returns the changes that a leader makes, `tenure` after it became the leader or the database
/// was out of reach. None while it learns which nodes live.
pub fn decide(view: &View, tenure: Duration) -> Vec<Change> {
    if tenure < LEARNING {
        return Vec::new();
    }
    let mut load = Load::from_view(view);
    let mut draining = nodes_with_targets(view);
    let mut changes = Vec::new();
    for aggregate in view.aggregates.values() {
        if let Some(to) = decide_one(view, aggregate, &mut load, &mut draining) {
            load.replace(aggregate, to.as_ref());
            changes.push(Change {
                aggregate: aggregate.name.clone(),
                version: aggregate.version,
                to,
            });
        }
    }
    changes
}

/// Returns the nodes from which an aggregate moves away.
fn nodes_with_targets(view: &View) -> BTreeSet<String> {
    let all = view.aggregates.values();
    let moving = all.filter(|aggregate| aggregate.nodes.target.is_some());
    moving.filter_map(|one| one.nodes.owner.clone()).collect()
}

/// Returns the change of one aggregate: `Some(None)` removes it.
fn decide_one(
    view: &View,
    aggregate: &Aggregate,
    load: &mut Load,
    draining: &mut BTreeSet<String>,
) -> Option<Option<Assignment>> {
    if aggregate.deleting {
        let name = &aggregate.name;
        let runs = view
            .nodes
            .values()
            .any(|node| node.children.contains_key(name));
        return (!runs).then_some(None);
    }
    let mut to = aggregate.nodes.clone();
    follow_owner(view, aggregate, &mut to);
    if aggregate.kind == Kind::Pair {
        follow_pair(aggregate, &mut to);
    }
    check_target(view, aggregate, &mut to);
    if aggregate.kind == Kind::Rados {
        place_owner(view, aggregate, &mut to, load);
    }
    drain_owner(view, aggregate, &mut to, load, draining);
    if aggregate.kind == Kind::Rados {
        place_standby(view, aggregate, &mut to, load);
    }
    (to != aggregate.nodes).then_some(Some(to))
}

/// Makes the wanted owner the real one. The former owner stands by, if its node lives.
fn follow_owner(view: &View, aggregate: &Aggregate, to: &mut Assignment) {
    let Some((node, child)) = view.real_owner(aggregate) else {
        return;
    };
    to.epoch = child.epoch;
    if to.owner.as_deref() == Some(&node.name) {
        return;
    }
    let former = to.owner.replace(node.name.clone());
    if to.standby.as_deref() == Some(&node.name) {
        to.standby = former;
    }
}

/// Makes the other node of a pair the standby: a pair's nodes do not change.
fn follow_pair(aggregate: &Aggregate, to: &mut Assignment) {
    let sides = aggregate.sides();
    let owner = to.owner.as_deref();
    let known = sides
        .iter()
        .find(|(side, _)| owner == Some(side))
        .or(sides.first());
    let Some((owner, _)) = known else { return };
    let other = sides.iter().find(|(side, _)| side != owner);
    to.owner = Some((*owner).to_owned());
    to.standby = other.map(|(side, _)| (*side).to_owned());
}

/// Drops a target that is reached, that is of another epoch, or whose node cannot have it.
fn check_target(view: &View, aggregate: &Aggregate, to: &mut Assignment) {
    let Some(target) = &to.target else { return };
    let node = view.nodes.get(&target.node);
    let fits = node.is_some_and(|node| node.takes_aggregates());
    let other = aggregate.kind == Kind::Pair && to.standby.as_ref() != Some(&target.node);
    if !fits || other || target.epoch != to.epoch || to.owner.as_ref() == Some(&target.node) {
        to.target = None;
    } else {
        to.standby = Some(target.node.clone());
    }
}

/// Places an aggregate that nobody has owned yet.
fn place_owner(view: &View, aggregate: &Aggregate, to: &mut Assignment, load: &Load) {
    let fits = |name: &String| {
        view.nodes
            .get(name)
            .is_some_and(|node| node.takes_aggregates())
    };
    if to.epoch == 0 && !to.owner.as_ref().is_some_and(fits) {
        let owner = load.choose(aggregate, to.standby.as_deref());
        to.owner = owner.or_else(|| to.owner.take());
    }
}

/// Gives an aggregate of a drained node a target: its standby, or else the best node. One at a time
/// for each node.
fn drain_owner(
    view: &View,
    aggregate: &Aggregate,
    to: &mut Assignment,
    load: &Load,
    draining: &mut BTreeSet<String>,
) {
    let Some((owner, _)) = view.real_owner(aggregate) else {
        return;
    };
    if !owner.drained || to.target.is_some() || draining.contains(&owner.name) {
        return;
    }
    let ready = |name: &&String| {
        let node = view.nodes.get(*name);
        node.is_some_and(|node| node.takes_aggregates()) && **name != owner.name
    };
    let standby = to.standby.as_ref().filter(ready).cloned();
    let movable = aggregate.kind == Kind::Rados;
    let other = || {
        load.choose(aggregate, Some(&owner.name))
            .filter(|_| movable)
    };
    let Some(node) = standby.or_else(other) else {
        return;
    };
    draining.insert(owner.name.clone());
    to.standby = Some(node.clone());
    to.target = Some(crate::rows::Target {
        node,
        epoch: to.epoch,
    });
}

/// Replaces a standby that is the owner, is drained, or does not live. One that only does not live
/// stays if there is no other: it may return.
fn place_standby(view: &View, aggregate: &Aggregate, to: &mut Assignment, load: &Load) {
    let Some(owner) = to.owner.clone() else {
        return;
    };
    if to.epoch == 0 {
        // Two that start at once would race for a new aggregate.
        return;
    }
    let named = to.standby.clone();
    let node = named.as_ref().and_then(|name| view.nodes.get(name));
    let wrong = named.as_ref() == Some(&owner);
    let drained = node.is_none_or(|node| node.drained);
    let lives = node.is_some_and(|node| node.is_up());
    if !wrong && !drained && lives {
        return;
    }
    match load.choose(aggregate, Some(&owner)) {
        Some(other) => to.standby = Some(other),
        None if wrong || drained => to.standby = None,
        None => {}
    }
}

/// An act of a daemon on one of its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Start the aggregate's server.
    Start(String),
    /// End the aggregate's server, which stands by or belongs to an aggregate that is deleted.
    Stop(String),
    /// Have the aggregate's server switch to the standby of this process.
    Switch(String, String),
    /// Enter the aggregate, which is served here, into the tables, which lack it.
    Enter(String),
}

/// Returns what the daemon of node `this` does about its servers. From a view that is not `fresh`,
/// because the database is out of reach, it only starts servers.
pub fn act(view: &View, this: &str, running: &BTreeMap<String, Child>, fresh: bool) -> Vec<Act> {
    let mut acts = Vec::new();
    let wanted = |aggregate: &Aggregate| !aggregate.deleting && aggregate.belongs_to(this);
    for aggregate in view.aggregates.values().filter(|one| wanted(one)) {
        let Some(child) = running.get(&aggregate.name) else {
            acts.push(Act::Start(aggregate.name.clone()));
            continue;
        };
        if let Some(heir) = heir(view, aggregate, child).filter(|_| fresh) {
            acts.push(Act::Switch(aggregate.name.clone(), heir.process.clone()));
        }
    }
    if !fresh {
        return acts;
    }
    for (name, child) in running {
        let Some(aggregate) = view.aggregates.get(name) else {
            // The tables are older than the aggregate: a deletion ends its servers first.
            if child.role == Role::Owner {
                acts.push(Act::Enter(name.clone()));
            }
            continue;
        };
        let idle = child.role == Role::Standby;
        if aggregate.deleting || (idle && !wanted(aggregate)) {
            acts.push(Act::Stop(name.clone()));
        }
    }
    acts
}

/// Returns the server that is to own an aggregate in the place of `child`, once it stands by.
fn heir<'a>(view: &'a View, aggregate: &Aggregate, child: &Child) -> Option<&'a Child> {
    let target = aggregate.nodes.target.as_ref()?;
    if child.role != Role::Owner || child.epoch != target.epoch {
        return None;
    }
    let heir = view.child(&target.node, &aggregate.name)?;
    let ready = heir.role == Role::Standby && heir.fault.is_none() && heir.epoch == child.epoch;
    ready.then_some(heir)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::rows::{Node, Settings, Target};

    use super::*;

    fn node(name: &str, role: Role, epoch: u64) -> Node {
        let child = Child {
            role,
            epoch,
            process: format!("side of {name}"),
            ..Child::default()
        };
        Node {
            name: name.to_owned(),
            address: String::new(),
            version: String::new(),
            memory: 0,
            drained: false,
            silent: Duration::ZERO,
            children: BTreeMap::from([("p".to_owned(), child)]),
            api: None,
        }
    }

    #[test]
    fn a_pair_is_followed_and_switched_to_its_other_node_only() {
        let pair = Aggregate {
            name: "p".to_owned(),
            kind: Kind::Pair,
            place: "pair:n1=/a,n2=/b".to_owned(),
            settings: Settings::default(),
            nodes: Assignment::default(),
            deleting: false,
            created: 0,
            version: 0,
        };
        let mut view = View::default();
        for (name, role, term) in [
            ("n1", Role::Standby, 4),
            ("n2", Role::Owner, 4),
            ("n3", Role::Starting, 0),
        ] {
            view.nodes.insert(name.to_owned(), node(name, role, term));
        }
        view.aggregates.insert("p".to_owned(), pair);
        let decided = |view: &View| decide(view, LEARNING).pop().and_then(|change| change.to);
        let mut nodes = decided(&view).unwrap();
        assert_eq!(nodes.owner.as_deref(), Some("n2"));
        assert_eq!(nodes.standby.as_deref(), Some("n1"));
        assert_eq!(nodes.epoch, 4);

        // A node that has no copy is no target; the other one is, in this term.
        let target = |node: &str, epoch| {
            Some(Target {
                node: node.to_owned(),
                epoch,
            })
        };
        for (to, kept) in [
            (target("n3", 4), false),
            (target("n1", 3), false),
            (target("n1", 4), true),
        ] {
            nodes.target = to;
            view.aggregates.get_mut("p").unwrap().nodes = nodes.clone();
            let after = decided(&view).map_or(nodes.target.clone(), |nodes| nodes.target);
            assert_eq!(after.is_some(), kept, "{:?}", nodes.target);
        }
        let running = view.nodes["n2"].children.clone();
        let acts = act(&view, "n2", &running, true);
        assert_eq!(acts, [Act::Switch("p".to_owned(), "side of n1".to_owned())]);
        // Both sides are watched, and no other node.
        assert_eq!(
            act(&view, "n1", &BTreeMap::new(), true),
            [Act::Start("p".to_owned())]
        );
        assert_eq!(act(&view, "n3", &BTreeMap::new(), true), []);
    }
}
