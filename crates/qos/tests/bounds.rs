//! The shaper against a reference: leaky buckets in exact arithmetic, which determine for every
//! moment whether a request may start. Random trees of any depth, random limits of all kinds,
//! random loads, refunds and changes, in virtual time.
//!
//! - **Conservation**: when a request starts, every limit of its path has admitted at most `rate ×
//!   (window + burst)` before it, over *any* window up to that start. A reservation counts from
//!   when it is made.
//! - **Work conservation**: while a request waits, some limit of its path has no room for it, at
//!   every moment until the next release. An unused reservation costs no client anything.
//! - **Fairness**: two clients that wait all the time differ by no more than one request of each,
//!   relative to their weights, over any stretch (the bound of start-time fair queueing).
//! - **No starvation**: the time that one of them goes without service is bounded by its share.
//! - **Exactness** over hours, at 4 KB/s and at 100 GiB/s.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_qos::{Direction, Limits, Metadata, Meter, Nanos, NodeId, Rate, Shaper, SubmitOutcome};

const SECOND: Nanos = 1_000_000_000;
const HOUR: Nanos = 3600 * SECOND;
const MIB: u64 = 1 << 20;

/// One limit as a bucket that leaks at its rate, in units × nanoseconds. It has two fillings as
/// bounds: units admitted before a change may or may not have been taken over as a debt, and units
/// started under a reservation count from some time between their start and its settling.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: u64,
    burst: Nanos,
    least: u128,
    most: u128,
    /// Units of outstanding reservations that have not started.
    ahead: u128,
    at: Nanos,
}

impl Bucket {
    fn new(rate: u64, burst: Nanos, now: Nanos) -> Bucket {
        Bucket {
            rate,
            burst,
            least: 0,
            most: 0,
            ahead: 0,
            at: now,
        }
    }

    fn leak(&mut self, now: Nanos) {
        let gone = u128::from(self.rate) * u128::from(now - self.at);
        self.least = self.least.saturating_sub(gone);
        self.most = self.most.saturating_sub(gone);
        self.at = now;
    }

    /// Returns true if a start now keeps the limit. The shaper counts in whole nanoseconds: one is
    /// granted.
    fn allows(mut self, now: Nanos) -> bool {
        self.leak(now);
        self.least + self.ahead <= u128::from(self.rate) * u128::from(self.burst + 1)
    }

    /// Returns true if the limit gives a reason not to start now.
    fn holds_back(mut self, now: Nanos) -> bool {
        self.leak(now);
        self.most + u128::from(self.rate) > u128::from(self.rate) * u128::from(self.burst)
    }

    fn fill(&mut self, now: Nanos, units: u64) {
        self.leak(now);
        self.least += u128::from(units) * u128::from(SECOND);
        self.most += u128::from(units) * u128::from(SECOND);
    }

    fn reserve(&mut self, units: u64) {
        self.ahead += u128::from(units) * u128::from(SECOND);
    }

    /// Notes that units of a reservation start.
    fn came(&mut self, now: Nanos, units: u64) {
        self.leak(now);
        let units = u128::from(units) * u128::from(SECOND);
        (self.ahead, self.least) = (self.ahead - units, self.least + units);
    }

    /// Settles a reservation: `came` is charged, `left` is released.
    fn settle_reservation(&mut self, now: Nanos, came: u64, left: u64) {
        self.leak(now);
        self.ahead -= u128::from(left) * u128::from(SECOND);
        self.most += u128::from(came) * u128::from(SECOND);
    }

    fn empty(&mut self, now: Nanos, units: u64) {
        self.leak(now);
        self.least = self
            .least
            .saturating_sub(u128::from(units) * u128::from(SECOND));
        self.most = self
            .most
            .saturating_sub(u128::from(units) * u128::from(SECOND));
    }

    /// Changes the rate: no debt takes longer than before, and it may have been forgiven.
    fn change(&mut self, now: Nanos, rate: u64) {
        self.leak(now);
        self.most = self.most.div_ceil(u128::from(self.rate)) * u128::from(rate);
        (self.least, self.rate) = (0, rate);
    }
}

/// Returns the limits of a node: bytes and operations of both directions, of reads, of writes.
fn rates(limits: &Limits) -> [Option<u64>; 6] {
    let Limits {
        total, read, write, ..
    } = limits;
    [
        total.bytes,
        total.ops,
        read.bytes,
        read.ops,
        write.bytes,
        write.ops,
    ]
}

/// Returns the limits that a request is charged to, and the units for each.
fn charged(direction: Direction, bytes: u64) -> [(usize, u64); 4] {
    let own = match direction {
        Direction::Read => 2,
        Direction::Write => 4,
    };
    [(0, bytes), (1, 1), (own, bytes), (own + 1, 1)]
}

struct Node {
    id: NodeId,
    parent: Option<usize>,
    limits: Limits,
    buckets: [Option<Bucket>; 6],
}

/// A client that keeps some requests in flight; a released one comes back after `think`.
#[derive(Clone, Debug)]
struct Client {
    node: usize,
    flow: u64,
    direction: Direction,
    /// Sizes of its requests in bytes, used cyclically.
    sizes: Vec<u64>,
    depth: usize,
    think: Nanos,
    /// Period of short requests: one in this many moves only half of its bytes; 0 for none.
    short: u64,
    /// Number of requests to reserve, if there is room; 0 for none.
    ahead: u64,
}

/// Lifetime of a reservation in nanoseconds.
const LIFE: Nanos = 500_000;

/// A client's outstanding reservation.
struct Lease {
    /// Requests and bytes that have come and are not accounted for, and those that may come.
    came: (u64, u64),
    left: (u64, u64),
    until: Nanos,
}

#[derive(Clone, Copy)]
struct ClientRequest {
    client: usize,
    bytes: u64,
}

struct World {
    shaper: Shaper<ClientRequest>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    now: Nanos,
    slack: Nanos,
    serial: u64,
    arrivals: BTreeMap<(Nanos, u64), ClientRequest>,
    waiting: BTreeMap<usize, usize>,
    /// Leases by client. None while anything waits.
    leases: BTreeMap<usize, Lease>,
    /// Time, client and bytes of every start.
    starts: Vec<(Nanos, usize, u64)>,
    /// Number of starts under a reservation.
    leased: usize,
}

impl World {
    fn new(tree: &[(usize, Limits)], slack: Nanos) -> World {
        let root = tree[0].1;
        let shaper = Shaper::new(root);
        let mut world = World {
            nodes: Vec::new(),
            clients: Vec::new(),
            now: 1_000_000 * SECOND,
            slack,
            serial: 0,
            arrivals: BTreeMap::new(),
            waiting: BTreeMap::new(),
            leases: BTreeMap::new(),
            starts: Vec::new(),
            leased: 0,
            shaper,
        };
        for (n, (parent, limits)) in tree.iter().enumerate() {
            let (id, parent) = match n {
                0 => (world.shaper.root(), None),
                _ => {
                    let parent = parent % n;
                    let above = world.nodes[parent].id;
                    (world.shaper.add(above, *limits).unwrap(), Some(parent))
                }
            };
            let bucket = |rate: Option<u64>| Some(Bucket::new(rate?, limits.burst, world.now));
            world.nodes.push(Node {
                id,
                parent,
                limits: *limits,
                buckets: rates(limits).map(bucket),
            });
        }
        world
    }

    fn is_leaf(&self, node: usize) -> bool {
        self.nodes.iter().all(|other| other.parent != Some(node))
    }

    fn path(&self, leaf: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(leaf), |at| self.nodes[*at].parent)
    }

    fn enter(&mut self, client: Client) {
        let at = self.clients.len();
        let depth = client.depth;
        self.clients.push(client);
        for _ in 0..depth {
            self.schedule_request(at, self.now);
        }
    }

    fn schedule_request(&mut self, client: usize, at: Nanos) {
        let sizes = &self.clients[client].sizes;
        let bytes = sizes[self.serial as usize % sizes.len()];
        self.serial += 1;
        self.arrivals
            .insert((at, self.serial), ClientRequest { client, bytes });
    }

    /// Calls `what` with each bucket of a client's path and the units that requests and bytes count
    /// for there.
    fn tell(
        &mut self,
        client: usize,
        requests: u64,
        bytes: u64,
        what: impl Fn(&mut Bucket, bool, u64),
    ) {
        let Client {
            node, direction, ..
        } = self.clients[client];
        let path: Vec<usize> = self.path(node).collect();
        for at in path {
            for (which, _) in charged(direction, 0) {
                let is_bytes = which % 2 == 0;
                let units = if is_bytes { bytes } else { requests };
                if let Some(bucket) = &mut self.nodes[at].buckets[which] {
                    what(bucket, is_bytes, units);
                }
            }
        }
    }

    /// Notes the start of a request that the shaper has admitted by itself.
    fn started(&mut self, asked: ClientRequest) {
        let now = self.now;
        self.tell(asked.client, 1, asked.bytes, |bucket, _, units| {
            assert!(bucket.allows(now), "a limit was exceeded: {bucket:?}");
            bucket.fill(now, units);
        });
        self.goes_on(asked);
    }

    fn goes_on(&mut self, asked: ClientRequest) {
        let ClientRequest { client, bytes } = asked;
        let Client {
            node,
            direction,
            think,
            short,
            ..
        } = self.clients[client];
        self.starts.push((self.now, client, bytes));
        self.schedule_request(client, self.now + think.max(1));
        if short > 0 && self.serial % short == 0 {
            let (now, back) = (self.now, bytes / 2);
            self.count_leases();
            self.shaper
                .refund(self.nodes[node].id, direction, back, now);
            self.tell(client, 0, back, |bucket, is_bytes, units| {
                if is_bytes {
                    bucket.empty(now, units);
                }
            });
        }
    }

    /// Starts a request under a reservation: an outstanding one, or one made now with others.
    fn starts_ahead(&mut self, asked: ClientRequest) -> bool {
        let ClientRequest { client, bytes } = asked;
        let (now, until) = (self.now, self.now + LIFE);
        let goes_in =
            |lease: &Lease| now <= lease.until && lease.left.0 > 0 && lease.left.1 >= bytes;
        if !self.leases.get(&client).is_some_and(goes_in) {
            self.end_lease(client);
            let Client {
                node,
                direction,
                ahead,
                ..
            } = self.clients[client];
            let (id, all) = (self.nodes[node].id, bytes * ahead);
            if ahead == 0 || !self.shaper.reserve(id, direction, all, ahead, now) {
                return false;
            }
            self.tell(client, ahead, all, |bucket, _, units| {
                bucket.reserve(units);
                assert!(bucket.allows(now), "a limit was exceeded: {bucket:?}");
            });
            let lease = Lease {
                came: (0, 0),
                left: (ahead, all),
                until,
            };
            self.leases.insert(client, lease);
        }
        if let Some(lease) = self.leases.get_mut(&client) {
            lease.came = (lease.came.0 + 1, lease.came.1 + bytes);
            lease.left = (lease.left.0 - 1, lease.left.1 - bytes);
        }
        self.tell(client, 1, bytes, |bucket, _, units| bucket.came(now, units));
        self.leased += 1;
        self.goes_on(asked);
        true
    }

    fn end_lease(&mut self, client: usize) {
        self.count_lease(client);
        let Some(Lease { left, until, .. }) = self.leases.remove(&client) else {
            return;
        };
        let Client {
            node, direction, ..
        } = self.clients[client];
        let (id, now) = (self.nodes[node].id, self.now);
        self.shaper
            .settle_reservation(id, direction, (0, 0), left, now.min(until));
        self.tell(client, left.0, left.1, |bucket, _, units| {
            bucket.settle_reservation(now, 0, units);
        });
    }

    /// Accounts for the requests that came of a lease.
    fn count_lease(&mut self, client: usize) {
        let Some(lease) = self.leases.get_mut(&client) else {
            return;
        };
        let (came, now) = (std::mem::take(&mut lease.came), self.now);
        let by = now.min(lease.until);
        let Client {
            node, direction, ..
        } = self.clients[client];
        let id = self.nodes[node].id;
        self.shaper
            .settle_reservation(id, direction, came, (0, 0), by);
        self.tell(client, came.0, came.1, |bucket, _, units| {
            bucket.settle_reservation(now, units, 0);
        });
    }

    fn end_leases(&mut self, which: impl Fn(&Lease) -> bool) {
        let of = |(client, lease): (&usize, &Lease)| which(lease).then_some(*client);
        let clients: Vec<usize> = self.leases.iter().filter_map(of).collect();
        clients
            .into_iter()
            .for_each(|client| self.end_lease(client));
    }

    fn count_leases(&mut self) {
        let clients: Vec<usize> = self.leases.keys().copied().collect();
        clients
            .into_iter()
            .for_each(|client| self.count_lease(client));
    }

    /// Submits a request: it starts, or waits.
    fn comes(&mut self, asked: ClientRequest) {
        let now = self.now;
        self.end_leases(|lease| lease.until < now);
        if self.starts_ahead(asked) {
            return;
        }
        let Client {
            node,
            flow,
            direction,
            ..
        } = self.clients[asked.client];
        let id = self.nodes[node].id;
        if self.shaper.try_start(id, direction, asked.bytes, now) {
            return self.started(asked);
        }
        self.end_leases(|_| true);
        match self
            .shaper
            .submit(id, flow, direction, asked.bytes, now, asked)
        {
            SubmitOutcome::Start(asked) => self.started(asked),
            SubmitOutcome::Queued => *self.waiting.entry(asked.client).or_default() += 1,
            SubmitOutcome::Refused(_) => panic!("refused"),
        }
    }

    /// Asserts that each waiting request is at a limit without room at `now`.
    fn no_idle_token(&self, now: Nanos) {
        for (client, count) in &self.waiting {
            let Client {
                node, direction, ..
            } = self.clients[*client];
            let held = self.path(node).any(|at| {
                charged(direction, 0)
                    .into_iter()
                    .filter_map(|(which, _)| self.nodes[at].buckets[which])
                    .any(|bucket| bucket.holds_back(now))
            });
            assert!(
                held || *count == 0,
                "client {client} waits for nothing at {now}"
            );
        }
    }

    fn run_until(&mut self, end: Nanos) {
        loop {
            let release = self.shaper.next_release().map(|at| at.max(self.now));
            let late = release.map(|at| at + self.slack);
            let arrival = self.arrivals.keys().next().map(|(at, _)| *at);
            let Some(next) = late
                .into_iter()
                .chain(arrival)
                .min()
                .filter(|next| *next < end)
            else {
                break;
            };
            // Until then, or until the timer could have gone off, nothing may start.
            let until = next.min(release.unwrap_or(next)).saturating_sub(1);
            self.no_idle_token(until.max(self.now));
            self.now = self.now.max(next);
            // Due requests go first: a request that comes now must not overtake them.
            self.release();
            while let Some((&key, &asked)) = self.arrivals.first_key_value() {
                if key.0 > self.now {
                    break;
                }
                self.arrivals.remove(&key);
                self.comes(asked);
            }
            self.release();
            self.no_idle_token(self.now);
        }
        self.now = end;
    }

    fn release(&mut self) {
        while let Some((id, asked)) = self.shaper.release(self.now) {
            assert_eq!(id, self.nodes[self.clients[asked.client].node].id);
            *self.waiting.get_mut(&asked.client).unwrap() -= 1;
            self.started(asked);
        }
    }

    /// Charges metadata at a leaf, which takes some of the operations and does not wait.
    fn metadata(&mut self, leaf: usize, kind: Metadata) {
        let now = self.now;
        self.end_leases(|lease| lease.until < now);
        let taken = |world: &World, at: usize| {
            let usage = world.shaper.usage(world.nodes[at].id);
            usage.unwrap().metadata
        };
        let path: Vec<usize> = self.path(leaf).collect();
        let before: Vec<u64> = path.iter().map(|at| taken(self, *at)).collect();
        self.shaper
            .charge_metadata(self.nodes[leaf].id, kind, self.now);
        for (at, before) in path.into_iter().zip(before) {
            let took = taken(self, at) - before;
            match &mut self.nodes[at].buckets[1] {
                Some(bucket) => bucket.fill(self.now, took),
                None => assert_eq!(took, 0, "of no limit on operations"),
            }
        }
    }

    /// Changes a node's limits: each that it has is multiplied.
    fn change(&mut self, node: usize, by: f64) {
        let scale = |rate: Option<u64>| rate.map(|rate| ((rate as f64 * by) as u64).max(1));
        let limits = &mut self.nodes[node].limits;
        for rate in [&mut limits.total, &mut limits.read, &mut limits.write] {
            (rate.bytes, rate.ops) = (scale(rate.bytes), scale(rate.ops));
        }
        let limits = *limits;
        self.end_leases(|_| true);
        assert!(self.shaper.configure(self.nodes[node].id, limits, self.now));
        for (bucket, rate) in self.nodes[node].buckets.iter_mut().zip(rates(&limits)) {
            if let (Some(bucket), Some(rate)) = (bucket, rate) {
                bucket.change(self.now, rate);
            }
        }
        // A change of a limit releases the requests that it then allows.
        self.release();
    }
}

prop_compose! {
    fn some_rate()(bytes in prop::option::weighted(0.35, 100_000u64..200 * MIB), ops in prop::option::weighted(0.25, 50u64..20_000)) -> Rate {
        Rate { bytes, ops }
    }
}

prop_compose! {
    fn some_limits()(total in some_rate(), read in some_rate(), write in some_rate(), minimum in prop::option::weighted(0.2, 10_000u64..MIB), weight in 1u32..100, burst in 0u64..30_000_000) -> Limits {
        Limits { total, read, write, minimum: Rate { bytes: minimum, ops: None }, weight, burst }
    }
}

prop_compose! {
    fn some_client()(node in any::<usize>(), flow in 0u64..4, write in any::<bool>(), sizes in prop::collection::vec(1u64..MIB, 1..5), depth in 1usize..24, think in 50_000u64..5_000_000, short in 0u64..4, ahead in prop_oneof![Just(0), 2u64..300]) -> Client {
        let direction = if write { Direction::Write } else { Direction::Read };
        Client { node, flow, direction, sizes, depth, think, short, ahead }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_passes_a_limit_and_no_token_lies_idle(
        tree in prop::collection::vec((any::<usize>(), some_limits()), 1..14),
        clients in prop::collection::vec(some_client(), 1..12),
        changes in prop::collection::vec((any::<usize>(), 0.05f64..20.0, 1u64..300_000_000), 0..6),
        metadata in prop::collection::vec((any::<usize>(), 0usize..3, 1u64..50_000_000), 0..30),
        slack in 0u64..200_000,
    ) {
        let mut world = World::new(&tree, slack);
        let leaves: Vec<usize> = (0..tree.len()).filter(|node| world.is_leaf(*node)).collect();
        for client in clients {
            let node = leaves[client.node % leaves.len()];
            world.enter(Client { node, ..client });
        }
        for (leaf, kind, after) in metadata {
            world.run_until(world.now + after);
            // The timer may be late, but not from one stretch to the next.
            world.release();
            let kind = [Metadata::Protocol, Metadata::Look, Metadata::Change][kind];
            (0..leaf % 20).for_each(|_| world.metadata(leaves[leaf % leaves.len()], kind));
        }
        for (node, by, after) in changes {
            world.run_until(world.now + after);
            world.change(node % tree.len(), by);
        }
        world.run_until(world.now + SECOND / 2);
        prop_assert!(!world.starts.is_empty());
        world.end_leases(|_| true);
        let usage = world.shaper.usage(world.shaper.root()).unwrap();
        let waiting = Direction::ALL.map(|direction| {
            let of = |(client, count): (&usize, &usize)| (world.clients[*client].direction == direction).then_some(*count);
            world.waiting.iter().filter_map(of).sum::<usize>()
        });
        prop_assert_eq!(usage.queued, waiting);
        prop_assert_eq!(usage.ops.iter().sum::<u64>(), world.starts.len() as u64);
    }

    /// Volumes of any weights with clients of any sizes under one binding limit.
    #[test]
    fn those_that_wait_share_by_weight_over_any_stretch_and_none_starves(
        rate in 5u64..100,
        ops in any::<bool>(),
        volumes in prop::collection::vec((1u32..64, prop::collection::vec((1u32..64, prop::collection::vec(16_384u64..MIB, 1..5), any::<bool>()), 1..4)), 2..6),
        slack in 0u64..100_000,
    ) {
        let weighted = |weight| Limits { weight, ..Limits::default() };
        // By operations, every request costs the same, whatever its size.
        let root = Limits { total: if ops { Rate::ops(rate * 10) } else { Rate::bytes(rate * MIB) }, ..Limits::default() };
        let cost = |bytes: u64| if ops { 1.0 / (rate * 10) as f64 } else { bytes as f64 / (rate * MIB) as f64 };
        let mut tree = vec![(0, root)];
        // Siblings: pairs of (weight, clients).
        let mut families: Vec<Vec<(u32, Vec<usize>)>> = vec![Vec::new()];
        let mut clients = Vec::new();
        for (weight, below) in &volumes {
            let volume = tree.len();
            tree.push((0, weighted(*weight)));
            let mut family = Vec::new();
            for (weight, sizes, write) in below {
                let direction = if *write { Direction::Write } else { Direction::Read };
                // Three in flight: while one is under way, others wait.
                clients.push(Client { node: tree.len(), flow: 0, direction, sizes: sizes.clone(), depth: 3, think: 1, short: 0, ahead: 0 });
                family.push((*weight, vec![clients.len() - 1]));
                tree.push((volume, weighted(*weight)));
            }
            let all = family.iter().flat_map(|(_, clients)| clients.clone()).collect();
            families[0].push((*weight, all));
            families.push(family);
        }
        let mut world = World::new(&tree, slack);
        // The parent of node n is n's own choice modulo n: choices are smaller here.
        for client in clients {
            world.enter(client);
        }
        world.run_until(world.now + 2 * SECOND);
        let from = world.starts[0].0 + SECOND / 10;
        let largest = |clients: &[usize]| {
            clients.iter().flat_map(|client| world.clients[*client].sizes.iter().map(|b| cost(*b))).fold(0.0, f64::max)
        };
        for (n, family) in families.iter().enumerate() {
            for (a, (weight, clients)) in family.iter().enumerate() {
                for (weight_b, clients_b) in &family[a + 1..] {
                    // The service of one less that of the other, at its maximum and its minimum.
                    let (mut ahead, mut most, mut least) = (0.0f64, 0.0f64, 0.0f64);
                    for (at, client, bytes) in &world.starts {
                        if *at < from { continue }
                        if clients.contains(client) { ahead += cost(*bytes) / f64::from(*weight) }
                        if clients_b.contains(client) { ahead -= cost(*bytes) / f64::from(*weight_b) }
                        (most, least) = (most.max(ahead), least.min(ahead));
                    }
                    let bound = largest(clients) / f64::from(*weight) + largest(clients_b) / f64::from(*weight_b);
                    prop_assert!(most - least <= bound * 1.0001, "family {}: {} > {}", n, most - least, bound);
                }
                // Only the root has a rate of its own to bound a wait by.
                if n == 0 {
                    let all = family.iter().map(|(weight, _)| f64::from(*weight)).sum::<f64>();
                    let others: f64 = family.iter().map(|(_, clients)| largest(clients)).sum();
                    let bound = largest(clients) * all / f64::from(*weight) + 2.0 * others + 0.0101 + slack as f64 / 1e9;
                    let own = world.starts.iter().filter(|(_, client, _)| clients.contains(client)).map(|(at, ..)| *at);
                    let mut last = world.starts[0].0;
                    for at in own.chain([world.now]) {
                        prop_assert!((at - last) as f64 / 1e9 <= bound, "starved for {} ns, bound {} s", at - last, bound);
                        last = at;
                    }
                }
            }
        }
    }
}

/// Clients that use reservations while they may, and one that occasionally sends more than the
/// limit leaves.
#[test]
fn what_comes_ahead_passes_no_limit_and_is_taken_back_when_one_binds() {
    let limits = |total| Limits {
        total,
        ..Limits::default()
    };
    let tree = [
        (0, limits(Rate::bytes(200 * MIB))),
        (0, limits(Rate::ops(40_000))),
        (0, limits(Rate::bytes(100 * MIB))),
    ];
    let mut world = World::new(&tree, 50_000);
    let client = |node, sizes, depth, think, ahead| Client {
        node,
        flow: 0,
        direction: Direction::Read,
        sizes,
        depth,
        think,
        short: 3,
        ahead,
    };
    world.enter(client(1, vec![4096, 512], 4, 200_000, 64));
    world.enter(client(2, vec![4096], 2, 700_000, 16));
    world.enter(client(1, vec![4096], 1, 900_000, 64));
    world.enter(client(2, vec![MIB, 4096], 8, 60_000_000, 0));
    world.run_until(world.now + 2 * SECOND);
    let usage = world.shaper.usage(world.shaper.root()).unwrap();
    assert!(world.leased > 10_000, "{} came ahead", world.leased);
    assert!(usage.delayed[0] > 100, "{usage:?}");
}

/// Runs a backlogged path of three levels that all have the same limit, with late timers, for
/// `span` of virtual time.
fn exact(rate: u64, sizes: &[u64], span: Nanos) {
    let limits = Limits {
        total: Rate::bytes(rate),
        ..Limits::default()
    };
    let mut shaper = Shaper::new(limits);
    let volume = shaper.add(shaper.root(), limits).unwrap();
    let leaf = shaper.add(volume, limits).unwrap();
    let (mut now, mut sum, mut n) = (0, 0u128, 0);
    while now < span {
        let bytes = sizes[n % sizes.len()];
        match shaper.submit(leaf, 0, Direction::Write, bytes, now, ()) {
            SubmitOutcome::Start(()) => {}
            SubmitOutcome::Queued => {
                // Up to 61 µs late.
                now = shaper.next_release().unwrap() + n as u64 % 61_000;
                assert!(shaper.release(now).is_some());
            }
            SubmitOutcome::Refused(()) => panic!("refused"),
        }
        (sum, n) = (sum + u128::from(bytes), n + 1);
    }
    let due = u128::from(rate) * u128::from(now) / u128::from(SECOND);
    let most = u128::from(rate) * u128::from(limits.burst + 1) / u128::from(SECOND)
        + u128::from(*sizes.iter().max().unwrap());
    assert!(
        sum <= due + most + 1 && sum + most >= due,
        "{sum} instead of {due} ± {most}"
    );
}

#[test]
fn a_path_is_exact_over_hours_at_the_slowest_rate() {
    exact(4_000, &[4096, 700, 1, 65_536, 123_457], 10 * HOUR);
    exact(4_000, &[3], HOUR / 6);
    // A rate that divides nothing.
    exact(3_999_971, &[4096], HOUR / 60);
}

#[test]
fn a_path_is_exact_at_the_fastest_rate() {
    exact(100 << 30, &[MIB, 4096, 999_983], 20 * SECOND);
    exact(100 << 30, &[4096], SECOND / 50);
}

/// Hours at 100 GiB/s are 10⁹ requests of a mebibyte. So only the meter, which the exactness
/// depends on, takes requests of sixteen.
#[test]
fn a_meter_is_exact_over_hours_at_the_fastest_rate() {
    let (rate, burst) = (100u64 << 30, 10_000_000);
    let request = (16 << 20) - 3;
    let mut meter = Meter::new(rate, burst);
    let (mut now, mut sum) = (0, 0u128);
    while now < 3 * HOUR {
        now = now.max(meter.ready_at());
        meter.charge(now, request);
        sum += u128::from(request);
    }
    let due = u128::from(rate) * u128::from(now) / u128::from(SECOND);
    // The burst, the unsplit request, and the nanosecond in which time is counted.
    let most = u128::from(rate) * u128::from(burst + 1) / u128::from(SECOND) + u128::from(request);
    assert!(
        sum <= due + most && sum + most >= due,
        "{sum} instead of {due} ± {most}"
    );
}
