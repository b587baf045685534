//! An interval tree that finds conflicts in logarithmic time, however many locks overlap.
//!
//! A plain interval tree finds *an* overlapping interval quickly, but not one of *another* owner.
//! Thousands of shared locks may overlap the range without being in the way, and so may the
//! caller's own. So each node stores of its subtree, for exclusive locks and for all, how far the
//! locks reach ([`Reach`]). That is the last byte covered, the owner that covers it, and the last
//! byte covered by any other owner. Whether an owner other than the caller reaches a byte is then
//! one comparison.
//!
//! Nodes are ordered by first byte, owner and a number. One owner's advisory locks of a file are
//! disjoint and have number 0; mandatory ones stack, and are numbered. A subtree to the left of a
//! node that begins in the range begins in the range as well. So if [`Reach`] says that it holds a
//! conflict it does: the search goes down one path and never turns back. The tree is balanced by
//! height (AVL).

use crate::claims::types::Range;
use std::cmp::Ordering;

/// Number of an owner within its file.
pub(in crate::claims) type HolderId = u64;
/// Stands for no owner; owners are numbered from 0 up.
const NOBODY: HolderId = u64::MAX;

#[cfg(test)]
thread_local! {
    /// Nodes and waiting requests visited by this thread: what the tests bound.
    pub(in crate::claims) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one unit of work, in tests.
pub(in crate::claims) fn step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Last bytes that the locks of a subtree cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reach {
    /// Last byte that any lock covers; `owner` holds that lock.
    far: u64,
    owner: HolderId,
    /// Last byte that a lock of any other owner covers.
    other: u64,
    other_owner: HolderId,
}

impl Reach {
    const NONE: Reach = Reach {
        far: 0,
        owner: NOBODY,
        other: 0,
        other_owner: NOBODY,
    };

    fn from_lock(owner: HolderId, last: u64) -> Reach {
        Reach {
            far: last,
            owner,
            ..Reach::NONE
        }
    }

    fn join(self, with: Reach) -> Reach {
        if with.owner == NOBODY {
            return self;
        }
        if self.owner == NOBODY {
            return with;
        }
        let (winner, loser) = match self.far >= with.far {
            true => (self, with),
            false => (with, self),
        };
        // The best of the loser that is not the winner's.
        let (other, other_owner) = match loser.owner == winner.owner {
            true => (loser.other, loser.other_owner),
            false => (loser.far, loser.owner),
        };
        let keep = winner.other_owner != NOBODY && (other_owner == NOBODY || winner.other >= other);
        match keep {
            true => winner,
            false => Reach {
                other,
                other_owner,
                ..winner
            },
        }
    }

    /// Returns true if a lock of another owner than `me` covers `byte` or one behind it.
    fn beyond(&self, me: HolderId, byte: u64) -> bool {
        if self.owner == me {
            self.other_owner != NOBODY && self.other >= byte
        } else {
            self.owner != NOBODY && self.far >= byte
        }
    }
}

type Link = Option<Box<Node>>;
/// First byte, owner, number.
type Key = (u64, HolderId, u64);

/// A lock, as a node of the balanced tree.
pub(in crate::claims) struct Node {
    pub(super) start: u64,
    pub(super) last: u64,
    pub(super) owner: HolderId,
    pub(super) number: u64,
    pub(super) exclusive: bool,
    height: u8,
    all: Reach,
    exclusives: Reach,
    left: Link,
    right: Link,
}

impl Node {
    fn key(&self) -> Key {
        (self.start, self.owner, self.number)
    }

    fn reach(&self, exclusives_only: bool) -> &Reach {
        match exclusives_only {
            true => &self.exclusives,
            false => &self.all,
        }
    }

    /// Recomputes what depends on the children.
    fn update(&mut self) {
        step();
        let of =
            |link: &Link, exclusives| link.as_ref().map_or(Reach::NONE, |n| *n.reach(exclusives));
        let own = Reach::from_lock(self.owner, self.last);
        self.all = own.join(of(&self.left, false)).join(of(&self.right, false));
        let own = match self.exclusive {
            true => own,
            false => Reach::NONE,
        };
        self.exclusives = own.join(of(&self.left, true)).join(of(&self.right, true));
        self.height = 1 + height(&self.left).max(height(&self.right));
    }
}

fn height(link: &Link) -> u8 {
    link.as_ref().map_or(0, |n| n.height)
}

fn rotate_right(mut node: Box<Node>) -> Box<Node> {
    let Some(mut up) = node.left.take() else {
        return node;
    };
    node.left = up.right.take();
    node.update();
    up.right = Some(node);
    up.update();
    up
}

fn rotate_left(mut node: Box<Node>) -> Box<Node> {
    let Some(mut up) = node.right.take() else {
        return node;
    };
    node.right = up.left.take();
    node.update();
    up.left = Some(node);
    up.update();
    up
}

/// Restores the balance of a node whose subtrees are balanced and differ in height by at most two.
fn balance(mut node: Box<Node>) -> Box<Node> {
    let (left, right) = (height(&node.left), height(&node.right));
    if left > right + 1 {
        node.left =
            node.left
                .take()
                .map(|below| match height(&below.left) >= height(&below.right) {
                    true => below,
                    false => rotate_left(below),
                });
        return rotate_right(node);
    }
    if right > left + 1 {
        node.right =
            node.right
                .take()
                .map(|below| match height(&below.right) >= height(&below.left) {
                    true => below,
                    false => rotate_right(below),
                });
        return rotate_left(node);
    }
    node.update();
    node
}

fn insert(link: Link, new: Box<Node>) -> Box<Node> {
    let Some(mut node) = link else {
        return new;
    };
    match new.key().cmp(&node.key()) {
        Ordering::Less => node.left = Some(insert(node.left.take(), new)),
        Ordering::Greater => node.right = Some(insert(node.right.take(), new)),
        Ordering::Equal => unreachable!("two locks of one owner, byte and number"),
    }
    balance(node)
}

/// Takes the leftmost node out.
fn take_first(mut node: Box<Node>) -> (Link, Box<Node>) {
    match node.left.take() {
        None => (node.right.take(), node),
        Some(below) => {
            let (left, first) = take_first(below);
            node.left = left;
            (Some(balance(node)), first)
        }
    }
}

fn remove(link: Link, key: Key) -> Link {
    let mut node = link?;
    match key.cmp(&node.key()) {
        Ordering::Less => node.left = remove(node.left.take(), key),
        Ordering::Greater => node.right = remove(node.right.take(), key),
        Ordering::Equal => {
            let left = node.left.take();
            let Some(right) = node.right.take() else {
                return left;
            };
            let (right, mut next) = take_first(right);
            next.left = left;
            next.right = right;
            return Some(balance(next));
        }
    }
    Some(balance(node))
}

/// Returns the first conflict in order: see the module's head for why this is one path.
fn find<'t>(
    link: &'t Link,
    me: HolderId,
    range: &Range,
    exclusives_only: bool,
) -> Option<&'t Node> {
    let node = link.as_deref()?;
    step();
    if !node.reach(exclusives_only).beyond(me, range.start) {
        return None;
    }
    if let Some(found) = find(&node.left, me, range, exclusives_only) {
        return Some(found);
    }
    if node.start > range.last {
        return None;
    }
    if node.is_in_the_way(me, range, exclusives_only) {
        return Some(node);
    }
    find(&node.right, me, range, exclusives_only)
}

impl Node {
    fn is_in_the_way(&self, me: HolderId, range: &Range, exclusives_only: bool) -> bool {
        self.owner != me && (self.exclusive || !exclusives_only) && self.last >= range.start
    }
}

/// Passes conflicts to `each` until it returns false; returns whether it never did.
fn visit(
    link: &Link,
    me: HolderId,
    range: &Range,
    exclusives_only: bool,
    each: &mut dyn FnMut(&Node) -> bool,
) -> bool {
    let Some(node) = link.as_deref() else {
        return true;
    };
    step();
    if !node.reach(exclusives_only).beyond(me, range.start) {
        return true;
    }
    if !visit(&node.left, me, range, exclusives_only, each) {
        return false;
    }
    if node.start > range.last {
        return true;
    }
    if node.is_in_the_way(me, range, exclusives_only) && !each(node) {
        return false;
    }
    visit(&node.right, me, range, exclusives_only, each)
}

// The nodes stay where they are; only the links to them move.
#[allow(clippy::vec_box)]
fn flatten(link: Link, into: &mut Vec<Box<Node>>) {
    if let Some(mut node) = link {
        let (left, right) = (node.left.take(), node.right.take());
        flatten(left, into);
        into.push(node);
        flatten(right, into);
    }
}

/// Returns a balanced tree of the next `count` nodes.
fn build(nodes: &mut impl Iterator<Item = Box<Node>>, count: usize) -> Link {
    if count == 0 {
        return None;
    }
    let left = build(nodes, count / 2);
    let mut node = nodes.next()?;
    node.left = left;
    node.right = build(nodes, count - count / 2 - 1);
    node.update();
    Some(node)
}

/// The locks of a file.
#[derive(Default)]
pub(super) struct Tree {
    root: Link,
}

impl Tree {
    pub(super) fn insert(&mut self, owner: HolderId, number: u64, range: Range, exclusive: bool) {
        let mut new = Box::new(Node {
            start: range.start,
            last: range.last,
            owner,
            number,
            exclusive,
            height: 1,
            all: Reach::NONE,
            exclusives: Reach::NONE,
            left: None,
            right: None,
        });
        new.update();
        self.root = Some(insert(self.root.take(), new));
    }

    /// Removes the lock of `owner` that begins at `start` and has this number.
    pub(super) fn remove(&mut self, owner: HolderId, start: u64, number: u64) {
        self.root = remove(self.root.take(), (start, owner, number));
    }

    /// Removes all locks that `keep` refuses, in linear time.
    pub(super) fn retain(&mut self, keep: impl Fn(&Node) -> bool) {
        let mut nodes = Vec::new();
        flatten(self.root.take(), &mut nodes);
        nodes.retain(|n| keep(n));
        let count = nodes.len();
        self.root = build(&mut nodes.into_iter(), count);
    }

    /// Returns the first lock that keeps `me` from locking `range`.
    pub(super) fn conflict(
        &self,
        me: Option<HolderId>,
        range: &Range,
        exclusive: bool,
    ) -> Option<&Node> {
        find(&self.root, me.unwrap_or(NOBODY - 1), range, !exclusive)
    }

    /// Passes all such locks to `each`, in order, until it returns false.
    pub(super) fn conflicts(
        &self,
        me: Option<HolderId>,
        range: &Range,
        exclusive: bool,
        each: &mut dyn FnMut(&Node) -> bool,
    ) {
        visit(
            &self.root,
            me.unwrap_or(NOBODY - 1),
            range,
            !exclusive,
            each,
        );
    }

    /// Verifies order, balance and what nodes store of their subtrees; returns the number of nodes.
    #[cfg(test)]
    pub(super) fn check(&self) -> usize {
        fn walk(link: &Link, before: &mut Option<Key>) -> (usize, u8) {
            let Some(n) = link else {
                return (0, 0);
            };
            let (a, left) = walk(&n.left, before);
            assert!(before.is_none_or(|b| b < n.key()), "order");
            *before = Some(n.key());
            let (b, right) = walk(&n.right, before);
            assert!(left.abs_diff(right) <= 1, "balance");
            assert_eq!(n.height, 1 + left.max(right));
            (a + b + 1, n.height)
        }
        walk(&self.root, &mut None).0
    }
}
