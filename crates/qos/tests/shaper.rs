//! The shaper in virtual time: closed-loop clients, whole seconds in milliseconds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_qos::{Direction, Limits, Metadata, Nanos, NodeId, Rate, Shaper, SubmitOutcome};

const SECOND: Nanos = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// A client that keeps `depth` requests in flight at a leaf; a released one comes back after
/// `think`.
#[derive(Clone, Debug)]
struct Client {
    leaf: usize,
    flow: u64,
    direction: Direction,
    bytes: u64,
    depth: usize,
    think: Nanos,
}

/// Runs clients against a shaper and records every release.
struct Run {
    shaper: Shaper<usize>,
    leaves: Vec<NodeId>,
    clients: Vec<Client>,
    now: Nanos,
    /// Requests by the time at which they are submitted, with their client.
    arrivals: BTreeMap<(Nanos, u64), usize>,
    serial: u64,
    /// (time, leaf, direction, bytes) of each start.
    starts: Vec<(Nanos, usize, Direction, u64)>,
    /// Delay of releases in nanoseconds: a coarse timer.
    slack: Nanos,
}

impl Run {
    fn new(shaper: Shaper<usize>, leaves: Vec<NodeId>, clients: Vec<Client>, slack: Nanos) -> Self {
        let mut run = Run {
            shaper,
            leaves,
            clients,
            now: 0,
            arrivals: BTreeMap::new(),
            serial: 0,
            starts: Vec::new(),
            slack,
        };
        for client in 0..run.clients.len() {
            for _ in 0..run.clients[client].depth {
                run.arrive(client, 0);
            }
        }
        run
    }

    fn arrive(&mut self, client: usize, at: Nanos) {
        self.serial += 1;
        self.arrivals.insert((at, self.serial), client);
    }

    fn started(&mut self, client: usize) {
        let Client {
            leaf,
            direction,
            bytes,
            think,
            ..
        } = self.clients[client];
        self.starts.push((self.now, leaf, direction, bytes));
        self.arrive(client, self.now + think.max(1));
    }

    fn run_until(&mut self, end: Nanos) {
        loop {
            let release = self
                .shaper
                .next_release()
                .map(|at| at.max(self.now) + self.slack);
            let arrival = self.arrivals.keys().next().map(|(at, _)| *at);
            let Some(next) = release.into_iter().chain(arrival).min() else {
                break;
            };
            if next >= end {
                break;
            }
            self.now = self.now.max(next);
            while let Some((&(at, serial), &client)) = self.arrivals.iter().next() {
                if at > self.now {
                    break;
                }
                self.arrivals.remove(&(at, serial));
                let Client {
                    leaf,
                    flow,
                    direction,
                    bytes,
                    ..
                } = self.clients[client];
                match self.shaper.submit(
                    self.leaves[leaf],
                    flow,
                    direction,
                    bytes,
                    self.now,
                    client,
                ) {
                    SubmitOutcome::Start(client) => self.started(client),
                    SubmitOutcome::Queued => {}
                    SubmitOutcome::Refused(_) => panic!("refused"),
                }
            }
            if release.is_some_and(|at| at <= self.now) || self.slack == 0 {
                while let Some((leaf, client)) = self.shaper.release(self.now) {
                    assert_eq!(leaf, self.leaves[self.clients[client].leaf]);
                    self.started(client);
                }
                // Work conservation: a limit delays the remaining requests, not the shaper.
                assert!(self.shaper.next_release().is_none_or(|at| at > self.now));
            }
        }
        self.now = end;
    }

    fn bytes(&self, leaf: usize, from: Nanos, to: Nanos) -> u64 {
        let inside =
            |(at, l, ..): &&(Nanos, usize, Direction, u64)| *l == leaf && *at >= from && *at < to;
        self.starts
            .iter()
            .filter(inside)
            .map(|(.., bytes)| bytes)
            .sum()
    }

    fn ops(&self, leaf: usize, from: Nanos, to: Nanos) -> usize {
        self.starts
            .iter()
            .filter(|(at, l, ..)| *l == leaf && *at >= from && *at < to)
            .count()
    }
}

fn bytes(rate: u64) -> Limits {
    Limits {
        total: Rate {
            bytes: Some(rate),
            ops: None,
        },
        ..Limits::default()
    }
}

fn tree(root: Limits, leaves: &[Limits]) -> (Shaper<usize>, Vec<NodeId>) {
    let mut shaper = Shaper::new(root);
    let root = shaper.root();
    let leaves = leaves
        .iter()
        .map(|limits| shaper.add(root, *limits).unwrap())
        .collect();
    (shaper, leaves)
}

fn client(leaf: usize, size: u64, depth: usize) -> Client {
    Client {
        leaf,
        flow: leaf as u64,
        direction: Direction::Read,
        bytes: size,
        depth,
        think: 1000,
    }
}

#[track_caller]
fn close(got: f64, want: f64, tolerance: f64) {
    assert!(
        (got / want - 1.0).abs() <= tolerance,
        "got {got}, wanted {want} ± {}",
        want * tolerance
    );
}

#[test]
fn one_volume_gets_its_limit_at_every_rate_and_size() {
    for rate in [1, 8, 64, 256] {
        for size in [4096, 65536, MIB] {
            let (shaper, leaves) = tree(Limits::default(), &[bytes(rate * MIB)]);
            let mut run = Run::new(shaper, leaves, vec![client(0, size, 16)], 60_000);
            run.run_until(30 * SECOND);
            // The bound of any shaper that does not split requests: the burst and one request over
            // the time.
            let bound = (0.01 * rate as f64 + size as f64 / MIB as f64) / (rate as f64 * 30.0);
            close(
                run.bytes(0, 0, 30 * SECOND) as f64,
                (30 * rate * MIB) as f64,
                bound + 0.0005,
            );
        }
    }
}

#[test]
fn operations_are_held_to_their_limit() {
    for rate in [100, 1_000, 20_000] {
        let limits = Limits {
            total: Rate {
                bytes: None,
                ops: Some(rate),
            },
            ..Limits::default()
        };
        let (shaper, leaves) = tree(Limits::default(), &[limits]);
        let mut run = Run::new(shaper, leaves, vec![client(0, 8192, 64)], 60_000);
        run.run_until(10 * SECOND);
        close(run.ops(0, 0, 10 * SECOND) as f64, (10 * rate) as f64, 0.002);
    }
}

#[test]
fn metadata_never_waits_and_takes_half_of_the_operations_at_most() {
    let ops = Limits {
        total: Rate::ops(1000),
        ..Limits::default()
    };
    // Operations left for data, out of a thousand a second.
    for (limits, kind, a_second, data) in [
        (ops, Metadata::Change, 300, 700.0),
        (ops, Metadata::Change, 5000, 500.0),
        (ops, Metadata::Look, 800, 900.0),
        (ops, Metadata::Protocol, 5000, 1000.0),
        (bytes(1000 * 4096), Metadata::Change, 5000, 1000.0),
    ] {
        let (shaper, leaves) = tree(Limits::default(), &[limits]);
        let leaf = leaves[0];
        let mut run = Run::new(shaper, leaves, vec![client(0, 4096, 16)], 0);
        for n in 0..10 * a_second {
            run.run_until(n * SECOND / a_second);
            run.shaper.charge_metadata(leaf, kind, run.now);
        }
        run.run_until(10 * SECOND);
        close(run.ops(0, 0, 10 * SECOND) as f64, 10.0 * data, 0.01);
        let charged = run.shaper.usage(leaf).unwrap().metadata;
        close(charged as f64 + 1.0, 10_001.0 - 10.0 * data, 0.02);
    }
}

#[test]
fn weights_share_a_binding_parent() {
    let weighted = |weight| Limits {
        weight,
        ..Limits::default()
    };
    let (shaper, leaves) = tree(bytes(70 * MIB), &[weighted(1), weighted(2), weighted(4)]);
    // Request sizes and depths differ, so that nothing but the weights can bring the shares about.
    let clients = vec![
        client(0, MIB, 64),
        client(1, 4096, 200),
        client(2, 65536, 8),
    ];
    let mut run = Run::new(shaper, leaves, clients, 60_000);
    run.run_until(10 * SECOND);
    for (leaf, share) in [(0, 10), (1, 20), (2, 40)] {
        close(
            run.bytes(leaf, SECOND, 10 * SECOND) as f64,
            (9 * share * MIB) as f64,
            0.02,
        );
    }
}

#[test]
fn sixteen_connections_gain_nothing_over_one() {
    let mut shaper = Shaper::new(Limits::default());
    let volume = shaper.add(shaper.root(), bytes(32 * MIB)).unwrap();
    let leaves: Vec<_> = (0..2)
        .map(|_| shaper.add(volume, Limits::default()).unwrap())
        .collect();
    let mut clients = vec![Client {
        flow: 100,
        ..client(0, 65536, 16)
    }];
    clients.extend((0..16).map(|flow| Client {
        flow,
        ..client(1, 65536, 16)
    }));
    let mut run = Run::new(shaper, leaves, clients, 60_000);
    run.run_until(10 * SECOND);
    for leaf in 0..2 {
        close(
            run.bytes(leaf, SECOND, 10 * SECOND) as f64,
            (9 * 16 * MIB) as f64,
            0.02,
        );
    }
}

#[test]
fn unused_share_goes_to_those_who_want_it() {
    let (shaper, leaves) = tree(
        bytes(60 * MIB),
        &[bytes(10 * MIB), Limits::default(), Limits::default()],
    );
    let clients = vec![
        client(0, 65536, 16),
        client(1, 65536, 16),
        client(2, 65536, 16),
    ];
    let mut run = Run::new(shaper, leaves, clients, 60_000);
    run.run_until(10 * SECOND);
    for (leaf, share) in [(0, 10), (1, 25), (2, 25)] {
        close(
            run.bytes(leaf, SECOND, 10 * SECOND) as f64,
            (9 * share * MIB) as f64,
            0.02,
        );
    }
}

#[test]
fn a_minimum_is_met_before_weights_count() {
    let minimum = Limits {
        minimum: Rate {
            bytes: Some(30 * MIB),
            ops: None,
        },
        ..Limits::default()
    };
    let heavy = Limits {
        weight: 100,
        ..Limits::default()
    };
    let (shaper, leaves) = tree(bytes(40 * MIB), &[minimum, heavy]);
    let mut run = Run::new(
        shaper,
        leaves,
        vec![client(0, 65536, 16), client(1, 65536, 16)],
        60_000,
    );
    run.run_until(10 * SECOND);
    close(
        run.bytes(0, SECOND, 10 * SECOND) as f64,
        (9 * 30 * MIB) as f64,
        0.02,
    );
    close(
        run.bytes(1, SECOND, 10 * SECOND) as f64,
        (9 * 10 * MIB) as f64,
        0.05,
    );
}

#[test]
fn reads_and_writes_have_limits_of_their_own() {
    let limits = Limits {
        read: Rate {
            bytes: Some(50 * MIB),
            ops: None,
        },
        write: Rate {
            bytes: Some(11 * MIB),
            ops: None,
        },
        ..Limits::default()
    };
    let (shaper, leaves) = tree(Limits::default(), &[limits]);
    let writer = Client {
        direction: Direction::Write,
        flow: 9,
        ..client(0, 65536, 16)
    };
    let mut run = Run::new(shaper, leaves, vec![client(0, 65536, 16), writer], 60_000);
    run.run_until(10 * SECOND);
    for (direction, rate) in [(Direction::Read, 50), (Direction::Write, 11)] {
        let sum: u64 = run
            .starts
            .iter()
            .filter(|start| start.2 == direction)
            .map(|start| start.3)
            .sum();
        close(sum as f64, (10 * rate * MIB) as f64, 0.005);
    }
}

#[test]
fn a_change_of_limit_acts_at_once_and_never_overshoots() {
    let (shaper, leaves) = tree(Limits::default(), &[bytes(64 * MIB)]);
    let mut run = Run::new(shaper, leaves, vec![client(0, 65536, 32)], 60_000);
    let mut from = 0;
    for (rate, until) in [(64, 3), (16, 6), (128, 9)] {
        let leaf = run.leaves[0];
        assert!(run.shaper.configure(leaf, bytes(rate * MIB), run.now));
        run.run_until(until * SECOND);
        let tenth = SECOND / 10;
        close(
            run.bytes(0, from, from + tenth) as f64,
            (rate * MIB / 10) as f64,
            0.11,
        );
        close(
            run.bytes(0, from + tenth, until * SECOND) as f64,
            (rate * MIB) as f64 * 2.9,
            0.01,
        );
        let mut at = from;
        while at + SECOND / 4 <= until * SECOND {
            let most = rate * MIB / 4 + rate * MIB / 100 + 65536;
            assert!(run.bytes(0, at, at + SECOND / 4) <= most);
            at += SECOND / 100;
        }
        from = until * SECOND;
    }
}

#[test]
fn a_refund_is_spent_again() {
    let (mut shaper, leaves) = tree(Limits::default(), &[bytes(MIB)]);
    let mut now = 0;
    let mut moved = 0;
    while now < 20 * SECOND {
        match shaper.submit(leaves[0], 0, Direction::Read, 65536, now, 0) {
            SubmitOutcome::Queued => {
                now = shaper.next_release().unwrap().max(now);
                assert!(shaper.release(now).is_some());
            }
            SubmitOutcome::Start(_) => {}
            SubmitOutcome::Refused(_) => unreachable!(),
        }
        // Half of the requested bytes exist.
        shaper.refund(leaves[0], Direction::Read, 32768, now);
        moved += 32768;
    }
    close(moved as f64, (20 * MIB) as f64, 0.01);
    assert_eq!(shaper.usage(leaves[0]).unwrap().bytes[0], moved);
}

#[test]
fn a_removed_node_hands_back_what_waited_and_leaves_nothing_behind() {
    let (mut shaper, leaves) = tree(bytes(1000), &[Limits::default(), Limits::default()]);
    for (n, leaf) in [0, 0, 1, 0, 1, 1].into_iter().enumerate() {
        shaper.submit(leaves[leaf], n as u64, Direction::Write, 100_000, 0, n);
    }
    let gone: Vec<_> = shaper
        .remove(leaves[0], 0)
        .into_iter()
        .map(|e| e.payload)
        .collect();
    assert_eq!(gone, [1, 3], "the first one had started");
    assert!(matches!(
        shaper.submit(leaves[0], 0, Direction::Read, 1, 0, 9),
        SubmitOutcome::Refused(9)
    ));
    assert_eq!(shaper.remove_flow(leaves[1], 4, 0).len(), 1);
    let mut rest = Vec::new();
    while let Some(at) = shaper.next_release() {
        while let Some((_, n)) = shaper.release(at) {
            rest.push(n);
        }
    }
    assert_eq!(rest, [2, 5]);
    let usage = shaper.usage(shaper.root()).unwrap();
    assert_eq!((usage.queued, usage.queued_bytes), ([0; 2], [0; 2]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Random trees and loads. No node ever exceeds its limit and burst, nothing is delayed while
    /// all limits of its path allow it (asserted in `run_until`), and every client is served.
    #[test]
    fn any_tree_holds_its_limits_and_starves_nobody(
        pool in prop::option::of(30u64..200),
        volumes in prop::collection::vec((prop::option::of(2u64..100), 1u32..8, 1usize..4), 1..6),
        loads in prop::collection::vec((0u64..3, 1usize..40, any::<bool>(), 0u64..3_000_000), 1..20),
        slack in 0u64..100_000,
    ) {
        let limit = |rate: Option<u64>, weight| Limits { weight, ..rate.map_or(Limits::default(), |rate| bytes(rate * MIB)) };
        let mut shaper = Shaper::new(limit(pool, 1));
        let (mut leaves, mut volume_of) = (Vec::new(), Vec::new());
        for (n, (rate, weight, clients)) in volumes.iter().enumerate() {
            let volume = shaper.add(shaper.root(), limit(*rate, *weight)).unwrap();
            for _ in 0..*clients {
                leaves.push(shaper.add(volume, Limits::default()).unwrap());
                volume_of.push(n);
            }
        }
        let clients: Vec<_> = loads.iter().enumerate().map(|(n, (size, depth, write, think))| Client {
            leaf: n % leaves.len(),
            flow: n as u64,
            direction: if *write { Direction::Write } else { Direction::Read },
            bytes: 4096 << (3 * size),
            depth: *depth,
            // An unlimited closed loop without thinking would never let time pass.
            think: think + 200_000,
        }).collect();
        let largest = clients.iter().map(|client| client.bytes).max().unwrap();
        let busy: Vec<usize> = clients.iter().map(|client| client.leaf).collect();
        let mut run = Run::new(shaper, leaves, clients, slack);
        run.run_until(2 * SECOND);

        let mut limited: Vec<(Option<u64>, Vec<usize>)> = vec![(pool, (0..volume_of.len()).collect())];
        for (n, (rate, ..)) in volumes.iter().enumerate() {
            limited.push((*rate, (0..volume_of.len()).filter(|leaf| volume_of[*leaf] == n).collect()));
        }
        for (rate, below) in limited {
            let Some(rate) = rate else { continue };
            for from in (0..20).map(|n| n * SECOND / 10) {
                for span in [SECOND / 50, SECOND / 4, SECOND] {
                    let sum: u64 = below.iter().map(|leaf| run.bytes(*leaf, from, from + span)).sum();
                    let most = u128::from(rate * MIB) * u128::from(span + 10_000_000) / 1_000_000_000;
                    prop_assert!(u128::from(sum) <= most + u128::from(largest) + 1);
                }
            }
        }
        for leaf in busy {
            prop_assert!(run.ops(leaf, 0, 2 * SECOND) > 0, "leaf {} starved", leaf);
        }
        let root = run.shaper.root();
        let usage = run.shaper.usage(root).unwrap();
        prop_assert_eq!(usage.ops.iter().sum::<u64>(), run.starts.len() as u64);
    }
}
