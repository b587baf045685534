//! A tree of limits that releases requests at their time, in a fair order.
//!
//! **Problem.** A request of a client to a volume in a pool has to satisfy the limits of all three.
//! When the pool's limit binds, its throughput has to be shared among its volumes by weight, and
//! within a volume among its clients. Virtual clocks ([`crate::meter`]) alone enforce the limits
//! but share by arrival: a client that sends more gets more.
//!
//! **Algorithm.** Every node has its meters. Requests queue at leaves, by direction. A node is
//! *ready* for a direction when its own meters are and something ready is below it. For each
//! direction a node keeps the children that are ready now, ordered by virtual service, and those
//! that will be, ordered by time. To release a request, walk down from the root. Each step is to
//! the ready child with the least service relative to its weight (start-time fair queueing, Goyal,
//! Vin and Cheng 1996). Then charge every node of the path at once.
//!
//! Service is counted in the time that a request takes up the tightest limit of the parent and of
//! all above it. So shares come out in bytes where bytes bind and in operations where operations
//! bind. A child behind its configured minimum has priority over all that are not (the reservation
//! tag of mClock, Gulati, Merchant and Varman 2010).
//!
//! Walking from the root, rather than giving each request a release time on arrival, makes the
//! shaper work-conserving. A changed limit, an emptied queue and a closed connection all count from
//! the next release on.
//!
//! **Cost.** A request that finds its path ready and no other request waiting costs a few
//! comparisons a level and touches no queue. One that has to wait costs two ordered-set updates a
//! level.
//!
//! One `Shaper` is one tree; trees share nothing, so each pool has its own, behind its own lock.

mod limit_time;

use std::collections::BTreeSet;

use weir_base::{invariant, less};

use crate::limits::{Direction, Limits, Metadata, Meters};
use crate::meter::Nanos;
use crate::queue::{Queue, QueuedRequest};

pub use limit_time::{LEVELS, LimitDelays};

/// An instant later than any other: never ready.
const NEVER: Nanos = Nanos::MAX;
/// Units of virtual service in a nanosecond, so that division by a weight loses no relevant
/// precision.
const TAG_SCALE: u64 = 1 << 20;

/// Returns the virtual service of a request of `cost` nanoseconds to a node of that weight.
fn scaled(cost: Nanos, weight: u32) -> u128 {
    let weight = u64::from(weight.max(1));
    match cost.checked_mul(TAG_SCALE) {
        // Most nodes have weight 1, and a division is the largest cost of a request here.
        Some(cost) if weight == 1 => u128::from(cost),
        // 64 bits suffice for costs below some hours.
        Some(cost) => u128::from(cost / weight),
        None => u128::from(cost) * u128::from(TAG_SCALE) / u128::from(weight),
    }
}

/// A node of one [`Shaper`]. An id of a removed node is recognised as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    index: u32,
    stamp: u32,
}

/// Result of submitting a request.
#[derive(Debug, PartialEq, Eq)]
pub enum SubmitOutcome<T> {
    /// All limits allow it now; it has been charged.
    Start(T),
    /// The request waits; [`Shaper::release`] will return it.
    Queued,
    /// The node does not exist, or has children.
    Refused(T),
}

/// A waiting request that was removed from the tree.
#[derive(Debug)]
pub struct EvictedRequest<T> {
    /// The leaf at which it waited.
    pub node: NodeId,
    /// The connection that it came from.
    pub flow: u64,
    /// Direction of the request.
    pub direction: Direction,
    /// Size in bytes, as submitted.
    pub bytes: u64,
    /// The payload that was submitted.
    pub payload: T,
}

/// Counters of a node, from its creation on, and its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes charged, by direction.
    pub bytes: [u64; 2],
    /// Requests charged, by direction.
    pub ops: [u64; 2],
    /// Operations charged for metadata ([`Metadata`]).
    pub metadata: u64,
    /// Requests that had to wait, by direction.
    pub delayed: [u64; 2],
    /// Sum of the waiting times of all released requests, by direction, in nanoseconds.
    pub waited: [Nanos; 2],
    /// Requests waiting now at this node and below it, by direction.
    pub queued: [usize; 2],
    /// Bytes of the requests waiting now, by direction.
    pub queued_bytes: [u64; 2],
}

impl Usage {
    /// Returns the number of requests waiting now, of both directions.
    pub fn waiting(&self) -> usize {
        self.queued.iter().sum()
    }

    /// Notes that a request begins to wait.
    fn enter(&mut self, direction: Direction, bytes: u64) {
        let at = direction as usize;
        if let (Some(queued), Some(sum), Some(delayed)) = (
            self.queued.get_mut(at),
            self.queued_bytes.get_mut(at),
            self.delayed.get_mut(at),
        ) {
            *queued += 1;
            *sum += bytes;
            *delayed += 1;
        }
    }

    /// Notes that `requests` requests, of `bytes` together, stop waiting.
    fn leave(&mut self, direction: Direction, requests: usize, bytes: u64) {
        let at = direction as usize;
        if let (Some(queued), Some(sum)) = (self.queued.get_mut(at), self.queued_bytes.get_mut(at))
        {
            *queued = less(*queued, requests, "requests that wait");
            *sum = less(*sum, bytes, "bytes that wait");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Idle,
    Later(Nanos),
    Ready { tag: u128, due: Option<Nanos> },
}

/// The children of a node that have requests of one direction.
#[derive(Debug, Default)]
struct Kids {
    later: BTreeSet<(Nanos, u32)>,
    ready: BTreeSet<(u128, u32)>,
    /// Ready children with a minimum, by the time at which they fall behind it.
    due: BTreeSet<(Nanos, u32)>,
}

#[derive(Debug)]
struct Node<T> {
    stamp: u32,
    parent: Option<u32>,
    children: u32,
    limits: Limits,
    meters: Meters,
    /// Virtual service received from the parent.
    tag: u128,
    /// Virtual time of this node's children: the tag of the one served last.
    vtime: u128,
    ready_at: [Nanos; 2],
    place: [Readiness; 2],
    kids: [Kids; 2],
    queue: [Queue<T>; 2],
    /// Cost released from each of a leaf's queues; the one with less is served next.
    served: [u128; 2],
    /// Time, by direction, from which the waiting at a leaf has not been counted in `bound`.
    held_since: [Nanos; 2],
    /// Causes of waiting; `None` for a node at which nothing had to wait.
    bound: Option<Box<LimitDelays>>,
    usage: Usage,
}

/// A tree of limits.
#[derive(Debug)]
pub struct Shaper<T> {
    nodes: Vec<Option<Node<T>>>,
    free: Vec<u32>,
    stamp: u32,
}

const ROOT: u32 = 0;

impl<T> Shaper<T> {
    /// Creates a tree with only a root.
    pub fn new(limits: Limits) -> Self {
        let mut shaper = Self {
            nodes: Vec::new(),
            free: Vec::new(),
            stamp: 0,
        };
        shaper.insert(None, limits);
        shaper
    }

    /// Returns the root, which cannot be removed.
    pub fn root(&self) -> NodeId {
        NodeId {
            index: ROOT,
            stamp: 1,
        }
    }

    /// Adds a child. Returns `None` if the parent does not exist or has requests of its own
    /// waiting.
    pub fn add(&mut self, parent: NodeId, limits: Limits) -> Option<NodeId> {
        let node = self.get_mut(parent)?;
        if node.queue.iter().any(|queue| !queue.is_empty()) {
            return None;
        }
        node.children += 1;
        Some(self.insert(Some(parent.index), limits))
    }

    fn insert(&mut self, parent: Option<u32>, limits: Limits) -> NodeId {
        self.stamp = self.stamp.wrapping_add(1).max(1);
        let node = Node {
            stamp: self.stamp,
            parent,
            children: 0,
            meters: Meters::new(&limits),
            limits,
            tag: 0,
            vtime: 0,
            ready_at: [NEVER; 2],
            place: [Readiness::Idle; 2],
            kids: Default::default(),
            queue: Default::default(),
            served: [0; 2],
            held_since: [0; 2],
            bound: None,
            usage: Usage::default(),
        };
        let index = self.free.pop().unwrap_or(self.nodes.len() as u32);
        match self.nodes.get_mut(index as usize) {
            Some(slot) => *slot = Some(node),
            None => self.nodes.push(Some(node)),
        }
        NodeId {
            index,
            stamp: self.stamp,
        }
    }

    /// Removes a node with its subtree, and returns the requests that waited there. The root cannot
    /// be removed.
    pub fn remove(&mut self, id: NodeId, now: Nanos) -> Vec<EvictedRequest<T>> {
        let mut evicted = Vec::new();
        let Some(parent) = self.get(id).and_then(|node| node.parent) else {
            return evicted;
        };
        let inside = |shaper: &Self, mut at: u32| {
            while at != id.index {
                match shaper.node_at(at).and_then(|node| node.parent) {
                    Some(up) => at = up,
                    None => return false,
                }
            }
            true
        };
        // Leaves come and go with clients. A larger subtree is removed rarely: a search of all
        // nodes avoids lists of children.
        let gone: Vec<u32> = match self.get(id).is_some_and(|node| node.children == 0) {
            true => vec![id.index],
            false => (0..self.nodes.len() as u32)
                .filter(|at| self.node_at(*at).is_some() && inside(self, *at))
                .collect(),
        };
        self.unplace(id.index);
        if let Some(usage) = self.get(id).map(|node| node.usage) {
            let waiting = usage.queued.into_iter().zip(usage.queued_bytes);
            for (direction, (requests, bytes)) in Direction::ALL.into_iter().zip(waiting) {
                self.count(id.index, |usage| usage.leave(direction, requests, bytes));
            }
        }
        for at in gone {
            let Some(mut node) = self.nodes.get_mut(at as usize).and_then(Option::take) else {
                invariant!(false, "node {at} is removed twice");
                continue;
            };
            let own = NodeId {
                index: at,
                stamp: node.stamp,
            };
            for (queue, direction) in node.queue.iter_mut().zip(Direction::ALL) {
                while let Some(waiting) = queue.pop() {
                    evicted.push(evict(own, direction, waiting));
                }
            }
            self.free.push(at);
        }
        if let Some(node) = self.node_at_mut(parent) {
            node.children = less(node.children, 1, "children of a node");
        }
        self.refresh(parent, now);
        evicted
    }

    /// Removes the requests of one connection that wait at a leaf.
    pub fn remove_flow(&mut self, id: NodeId, flow: u64, now: Nanos) -> Vec<EvictedRequest<T>> {
        let mut evicted = Vec::new();
        let Some(node) = self.get_mut(id) else {
            return evicted;
        };
        for (queue, direction) in node.queue.iter_mut().zip(Direction::ALL) {
            evicted.extend(
                queue
                    .remove_flow(flow)
                    .into_iter()
                    .map(|waiting| evict(id, direction, waiting)),
            );
        }
        for gone in &evicted {
            self.count(id.index, |usage| usage.leave(gone.direction, 1, gone.bytes));
        }
        self.refresh(id.index, now);
        evicted
    }

    /// Changes a node's limits; they hold from now on. Returns `false` if there is no such node.
    pub fn configure(&mut self, id: NodeId, limits: Limits, now: Nanos) -> bool {
        let Some(node) = self.get_mut(id) else {
            return false;
        };
        node.meters.retune(now, &limits);
        node.limits = limits;
        self.refresh(id.index, now);
        true
    }

    /// Drains the credit that a node has accumulated below its limits, so that from `now` on it
    /// gets exactly its rates. It is for work that is measured against the limit over its whole
    /// length; a request that finds the node idle still starts. Returns `false` if there is no such
    /// node.
    pub fn drain_credit(&mut self, id: NodeId, now: Nanos) -> bool {
        let Some(node) = self.get_mut(id) else {
            return false;
        };
        node.meters.drain_credit(now);
        self.refresh(id.index, now);
        true
    }

    /// Returns true if a node could be removed and recreated without changing any client's share:
    /// nothing waits, and every charge has drained.
    pub fn is_settled(&self, id: NodeId, now: Nanos) -> bool {
        self.get(id)
            .is_some_and(|node| node.usage.waiting() == 0 && node.meters.settled(now))
    }

    /// Returns the effective limits of a node.
    pub fn limits(&self, id: NodeId) -> Option<&Limits> {
        self.get(id).map(|node| &node.limits)
    }

    /// Returns the counters of a node.
    pub fn usage(&self, id: NodeId) -> Option<Usage> {
        self.get(id).map(|node| node.usage)
    }

    /// Charges a request of `bytes` at a leaf if it may start at once: its path is ready, and no
    /// waiting request is.
    pub fn try_start(&mut self, id: NodeId, direction: Direction, bytes: u64, now: Nanos) -> bool {
        let clear = self.get(id).is_some_and(|node| node.children == 0)
            && self.is_clear(id.index, direction, now);
        if clear {
            self.charge(id.index, direction, bytes, now);
        }
        clear
    }

    /// Reserves `ops` requests of a leaf, of `bytes` in all. They may start without another check
    /// until [`Shaper::settle_reservation`].
    ///
    /// A reservation is possible only if nothing waits in the tree and no limit of the path would
    /// bind if all its requests came now. Until it is settled, every other request counts them as
    /// if they had come. So in no interval do more requests start than the limits allow. A
    /// reservation has to be settled before anything waits because of it, before limits change and
    /// before the leaf is removed.
    pub fn reserve(
        &mut self,
        id: NodeId,
        direction: Direction,
        bytes: u64,
        ops: u64,
        now: Nanos,
    ) -> bool {
        if self.next_release().is_some() || self.get(id).is_none_or(|node| node.children > 0) {
            return false;
        }
        let mut at = Some(id.index);
        while let Some(node) = at.and_then(|at| self.node_at(at)) {
            if !node.meters.has_room(now, direction, bytes, ops) {
                return false;
            }
            at = node.parent;
        }
        at = Some(id.index);
        while let Some(node) = at.and_then(|at| self.node_at_mut(at)) {
            node.meters.reserve(direction, bytes, ops);
            at = node.parent;
        }
        true
    }

    /// Settles a reservation, as requests and their bytes: charges those that came by `by`, and
    /// releases those that are left.
    pub fn settle_reservation(
        &mut self,
        id: NodeId,
        direction: Direction,
        came: (u64, u64),
        left: (u64, u64),
        by: Nanos,
    ) {
        if self.get(id).is_none() {
            return;
        }
        let mut at = Some(id.index);
        while let Some(node) = at.and_then(|at| self.node_at_mut(at)) {
            if let (Some(ops), Some(bytes)) = (
                node.usage.ops.get_mut(direction as usize),
                node.usage.bytes.get_mut(direction as usize),
            ) {
                (*ops, *bytes) = (*ops + came.0, *bytes + came.1);
            }
            node.meters.settle_reservation(by, direction, came, left);
            at = node.parent;
        }
    }

    /// Submits a request of `bytes` at a leaf. `flow` names its connection.
    pub fn submit(
        &mut self,
        id: NodeId,
        flow: u64,
        direction: Direction,
        bytes: u64,
        now: Nanos,
        payload: T,
    ) -> SubmitOutcome<T> {
        if self.get(id).is_none_or(|node| node.children > 0) {
            return SubmitOutcome::Refused(payload);
        }
        if self.try_start(id, direction, bytes, now) {
            return SubmitOutcome::Start(payload);
        }
        if let Some(node) = self.node_at_mut(id.index) {
            let at = direction as usize;
            if let (Some(queue), Some(since)) =
                (node.queue.get_mut(at), node.held_since.get_mut(at))
            {
                if queue.is_empty() {
                    *since = now;
                }
                queue.push(QueuedRequest {
                    flow,
                    bytes,
                    since: now,
                    payload,
                });
            }
        }
        self.refresh(id.index, now);
        self.count(id.index, |usage| usage.enter(direction, bytes));
        SubmitOutcome::Queued
    }

    /// Returns the next request that may start at `now`, charged. Call it until it returns `None`.
    pub fn release(&mut self, now: Nanos) -> Option<(NodeId, T)> {
        self.next_release().filter(|at| *at <= now)?;
        let (leaf, direction) = self.select(now)?;
        let node = self.node_at_mut(leaf)?;
        let id = NodeId {
            index: leaf,
            stamp: node.stamp,
        };
        let waiting = node.queue.get_mut(direction as usize)?.pop()?;
        // Saturates: the times come from several threads.
        let waited = now.saturating_sub(waiting.since);
        // Counted before the charge moves the meters.
        self.count_bound(leaf, direction, waited, now);
        self.charge(leaf, direction, waiting.bytes, now);
        self.count(leaf, |usage| {
            usage.leave(direction, 1, waiting.bytes);
            if let Some(sum) = usage.waited.get_mut(direction as usize) {
                *sum += waited;
            }
        });
        Some((id, waiting.payload))
    }

    /// Returns the time at which [`Shaper::release`] will next have a request; `None` while nothing
    /// waits.
    pub fn next_release(&self) -> Option<Nanos> {
        let at = self.node_at(ROOT)?.ready_at.iter().copied().min()?;
        (at != NEVER).then_some(at)
    }

    /// Returns the connection whose request is likely to be released next. Requests that arrive
    /// meanwhile may change it, so it is only a hint for choosing the core that releases: the
    /// connection's.
    pub fn next_flow(&self) -> Option<u64> {
        let mut node = self.node_at(ROOT)?;
        while node.children > 0 {
            let ready = node.kids.iter().filter_map(|kids| kids.ready.first());
            let child = match ready.min() {
                Some((_, child)) => *child,
                None => {
                    let later = node.kids.iter().filter_map(|kids| kids.later.first());
                    later.min()?.1
                }
            };
            node = self.node_at(child)?;
        }
        let queues = node.queue.iter().zip(node.served);
        let waiting = queues.filter_map(|(queue, served)| Some((served, queue.turn()?)));
        waiting
            .min_by_key(|(served, _)| *served)
            .map(|(_, flow)| flow)
    }

    /// Charges metadata at a leaf, with its share of the data's operations. It does not wait, even
    /// while other requests do.
    pub fn charge_metadata(&mut self, id: NodeId, kind: Metadata, now: Nanos) {
        if self.get(id).is_none() {
            return;
        }
        let mut at = Some(id.index);
        let mut charged = 0;
        while let Some(node) = at.and_then(|at| self.node_at_mut(at)) {
            let whole = node.meters.charge_metadata(now, kind);
            node.usage.metadata += whole;
            charged += whole;
            at = node.parent;
        }
        if charged > 0 {
            self.refresh(id.index, now);
        }
    }

    /// Refunds bytes that were charged and then not moved, by a READ that came out short. The
    /// operation stays charged; it took place.
    pub fn refund(&mut self, id: NodeId, direction: Direction, bytes: u64, now: Nanos) {
        if bytes > 0 {
            self.give_back(id, direction, bytes, 0, now);
        }
    }

    /// Refunds a whole charge: the request never ran.
    pub fn uncharge(&mut self, id: NodeId, direction: Direction, bytes: u64, now: Nanos) {
        self.give_back(id, direction, bytes, 1, now);
    }

    fn give_back(&mut self, id: NodeId, direction: Direction, bytes: u64, ops: u64, now: Nanos) {
        if self.get(id).is_none() {
            return;
        }
        let mut at = Some(id.index);
        while let Some(node) = at.and_then(|at| self.node_at_mut(at)) {
            node.meters.refund(direction, bytes, ops);
            if let (Some(sum), Some(count)) = (
                node.usage.bytes.get_mut(direction as usize),
                node.usage.ops.get_mut(direction as usize),
            ) {
                *sum = less(*sum, bytes, "bytes that were charged");
                *count = less(*count, ops, "requests that were charged");
            }
            at = node.parent;
        }
        // Meters all along the path became ready earlier: each level's place depends on the one
        // below.
        self.refresh(id.index, now);
    }

    /// Returns true if a request may start before all waiting ones: its path is ready, and no
    /// waiting request is.
    fn is_clear(&self, leaf: u32, direction: Direction, now: Nanos) -> bool {
        if self.next_release().is_some_and(|at| at <= now) {
            return false;
        }
        if self
            .node_at(leaf)
            .and_then(|node| node.queue.get(direction as usize))
            .is_none_or(|queue| !queue.is_empty())
        {
            return false;
        }
        let mut at = Some(leaf);
        while let Some(node) = at.and_then(|at| self.node_at(at)) {
            if !node.meters.has_room(now, direction, 0, 0) {
                return false;
            }
            at = node.parent;
        }
        true
    }

    /// Walks down to the leaf to serve next.
    fn select(&mut self, now: Nanos) -> Option<(u32, Direction)> {
        let mut at = ROOT;
        let mut open = self.open(ROOT, [true; 2], now);
        loop {
            if self.node_at(at)?.children == 0 {
                return Some((at, self.leaf_turn(at, open)?));
            }
            self.advance(at, now);
            at = self.choose(at, open, now)?;
            open = self.open(at, open, now);
        }
    }

    /// Returns the directions in which a node is ready, among those in which its parent is.
    fn open(&self, at: u32, above: [bool; 2], now: Nanos) -> [bool; 2] {
        let ready_at = self.node_at(at).map_or([NEVER; 2], |node| node.ready_at);
        std::array::from_fn(|dir| {
            above.get(dir) == Some(&true) && ready_at.get(dir).is_some_and(|ready| *ready <= now)
        })
    }

    fn leaf_turn(&self, leaf: u32, open: [bool; 2]) -> Option<Direction> {
        let node = self.node_at(leaf)?;
        let may = |dir: &Direction| open.get(*dir as usize) == Some(&true);
        Direction::ALL
            .into_iter()
            .filter(may)
            .min_by_key(|dir| node.served.get(*dir as usize).copied())
    }

    /// Moves children that have become ready to the set of ready ones.
    fn advance(&mut self, at: u32, now: Nanos) {
        for dir in 0..2 {
            loop {
                let first = self
                    .node_at(at)
                    .and_then(|node| node.kids.get(dir))
                    .and_then(|kids| kids.later.first().copied());
                match first {
                    Some((time, child)) if time <= now => self.place(child, now),
                    _ => break,
                }
            }
        }
    }

    fn choose(&self, at: u32, open: [bool; 2], now: Nanos) -> Option<u32> {
        let node = self.node_at(at)?;
        let kids = || {
            node.kids
                .iter()
                .zip(open)
                .filter(|(_, open)| *open)
                .map(|(kids, _)| kids)
        };
        let due = kids()
            .filter_map(|kids| kids.due.first())
            .filter(|(due, _)| *due <= now)
            .min();
        match due {
            Some((_, child)) => Some(*child),
            None => kids()
                .filter_map(|kids| kids.ready.first())
                .min()
                .map(|(_, child)| *child),
        }
    }

    /// Charges a request to all nodes from a leaf to the root.
    fn charge(&mut self, leaf: u32, direction: Direction, bytes: u64, now: Nanos) {
        let cost = self.charge_path(leaf, direction, bytes, now);
        if let Some(node) = self.node_at_mut(leaf) {
            let other = node
                .served
                .get(1 - direction as usize)
                .copied()
                .unwrap_or(0);
            let idle = node
                .queue
                .get(1 - direction as usize)
                .is_none_or(Queue::is_empty);
            if let Some(served) = node.served.get_mut(direction as usize) {
                *served += u128::from(cost.unwrap_or(bytes).max(1));
                // A direction without requests saves up no service.
                if idle {
                    *served = (*served).min(other);
                }
            }
        }
        self.refresh(leaf, now);
    }

    /// Charges a node and all above it. Returns the service that the request costs its children:
    /// the time for which it takes up the tightest limit there or above. Returns `None` if nothing
    /// is limited there; then service is counted in bytes.
    fn charge_path(
        &mut self,
        at: u32,
        direction: Direction,
        bytes: u64,
        now: Nanos,
    ) -> Option<Nanos> {
        let node = self.node_at_mut(at)?;
        let own = node.meters.charge(now, direction, bytes, 1);
        if let (Some(sum), Some(ops)) = (
            node.usage.bytes.get_mut(direction as usize),
            node.usage.ops.get_mut(direction as usize),
        ) {
            *sum += bytes;
            *ops += 1;
        }
        let (weight, tag) = (node.limits.weight, node.tag);
        let Some(parent) = node.parent else {
            return own;
        };
        // The recursion is as deep as the tree: a few levels.
        let above = self.charge_path(parent, direction, bytes, now);
        let vtime = self.node_at(parent).map_or(0, |above| above.vtime);
        let start = tag.max(vtime);
        if let Some(above) = self.node_at_mut(parent) {
            above.vtime = start;
        }
        if let Some(node) = self.node_at_mut(at) {
            node.tag = start + scaled(above.unwrap_or(bytes).max(1), weight);
        }
        own.max(above)
    }

    /// Recomputes when a node is ready, and its place among its siblings, and so on up to the root.
    fn refresh(&mut self, from: u32, now: Nanos) {
        // Requests are counted after they are queued and before they are removed.
        let none =
            |node: &Node<T>| node.usage.waiting() == 0 && node.queue.iter().all(Queue::is_empty);
        if self.next_release().is_none() && self.node_at(from).is_none_or(none) {
            // Nothing waits anywhere.
            return;
        }
        let mut at = Some(from);
        while let Some(index) = at {
            let Some(node) = self.node_at_mut(index) else {
                invariant!(false, "node {index} has a child, and is not there");
                return;
            };
            let before = node.ready_at;
            for (dir, direction) in Direction::ALL.into_iter().enumerate() {
                let below = match (node.queue.get(dir), node.kids.get(dir)) {
                    (Some(queue), _) if !queue.is_empty() => 0,
                    (_, Some(kids)) if !kids.ready.is_empty() => 0,
                    (_, Some(kids)) => kids.later.first().map_or(NEVER, |(time, _)| *time),
                    _ => NEVER,
                };
                let own = node.meters.ready_at(direction);
                if let Some(ready) = node.ready_at.get_mut(dir) {
                    *ready = if below == NEVER {
                        NEVER
                    } else {
                        below.max(own)
                    };
                }
            }
            at = node.parent;
            // Nothing waits here and nothing did: the node has no place. Requests elsewhere below
            // the upper levels wait at their meters too, which may have changed.
            if before != [NEVER; 2] || node.ready_at != before {
                self.place(index, now);
            }
        }
    }

    /// Inserts a node at its place among its siblings.
    fn place(&mut self, index: u32, now: Nanos) {
        let Some(parent) = self.node_at(index).and_then(|node| node.parent) else {
            // The root has no siblings.
            return;
        };
        let before = self.unplace(index);
        let vtime = self.node_at(parent).map_or(0, |node| node.vtime);
        let Some(node) = self.node_at_mut(index) else {
            invariant!(false, "node {index} was there just now");
            return;
        };
        let is_ready = node.ready_at.iter().any(|ready| *ready <= now);
        let was_ready = before
            .iter()
            .any(|place| matches!(place, Readiness::Ready { .. }));
        if is_ready && !was_ready {
            // Time in which the node could not have been served gives no credit.
            node.tag = node.tag.max(vtime);
        }
        let (tag, due) = (node.tag, node.meters.due_at());
        node.place = node.ready_at.map(|ready| match ready {
            NEVER => Readiness::Idle,
            ready if ready <= now => Readiness::Ready { tag, due },
            ready => Readiness::Later(ready),
        });
        let place = node.place;
        let Some(above) = self.node_at_mut(parent) else {
            invariant!(false, "node {index} is below {parent}, which is not there");
            return;
        };
        for (kids, place) in above.kids.iter_mut().zip(place) {
            match place {
                Readiness::Idle => {}
                Readiness::Later(time) => {
                    kids.later.insert((time, index));
                }
                Readiness::Ready { tag, due } => {
                    kids.ready.insert((tag, index));
                    if let Some(due) = due {
                        kids.due.insert((due, index));
                    }
                }
            }
        }
    }

    /// Removes a node from its parent's sets, and returns its former places.
    fn unplace(&mut self, index: u32) -> [Readiness; 2] {
        let Some(node) = self.node_at_mut(index) else {
            return [Readiness::Idle; 2];
        };
        let places = std::mem::replace(&mut node.place, [Readiness::Idle; 2]);
        let Some(above) = node.parent.and_then(|parent| self.node_at_mut(parent)) else {
            return places;
        };
        for (kids, place) in above.kids.iter_mut().zip(places) {
            match place {
                Readiness::Idle => {}
                Readiness::Later(time) => {
                    kids.later.remove(&(time, index));
                }
                Readiness::Ready { tag, due } => {
                    kids.ready.remove(&(tag, index));
                    if let Some(due) = due {
                        kids.due.remove(&(due, index));
                    }
                }
            }
        }
        places
    }

    fn count(&mut self, leaf: u32, mut change: impl FnMut(&mut Usage)) {
        let mut at = Some(leaf);
        while let Some(node) = at.and_then(|at| self.node_at_mut(at)) {
            change(&mut node.usage);
            at = node.parent;
        }
    }

    fn node_at(&self, index: u32) -> Option<&Node<T>> {
        self.nodes.get(index as usize)?.as_ref()
    }

    fn node_at_mut(&mut self, index: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(index as usize)?.as_mut()
    }

    fn get(&self, id: NodeId) -> Option<&Node<T>> {
        self.node_at(id.index).filter(|node| node.stamp == id.stamp)
    }

    fn get_mut(&mut self, id: NodeId) -> Option<&mut Node<T>> {
        self.node_at_mut(id.index)
            .filter(|node| node.stamp == id.stamp)
    }
}

fn evict<T>(node: NodeId, direction: Direction, waiting: QueuedRequest<T>) -> EvictedRequest<T> {
    let QueuedRequest {
        flow,
        bytes,
        payload,
        ..
    } = waiting;
    EvictedRequest {
        node,
        flow,
        direction,
        bytes,
        payload,
    }
}
