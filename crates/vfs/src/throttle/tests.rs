//! Limits by hand, in virtual time: what waits, what is released when, and what is left behind.

use super::*;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Poll, Wake};
use std::time::Duration;
use weir_base::ManualClock;
use weir_qos::{Direction, Limits, PoolPlan, Rate, SharedPart, VolumePlan};

const MIB: u64 = 1 << 20;
const SECOND: Nanos = 1_000_000_000;

/// Result of a request.
type Gate = Result<Option<Charge>, Box<LimitWait>>;

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bed {
    clock: Arc<ManualClock>,
    throttle: Arc<Throttle>,
    wakes: Arc<Count>,
    generation: u64,
}

impl Bed {
    fn new() -> Bed {
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(1000));
        let limits = CreditLimits::of_budget(64 << 20);
        Bed {
            throttle: Throttle::new(Arc::clone(&clock) as Arc<dyn Clock>, 2, limits),
            clock,
            wakes: Arc::default(),
            generation: 0,
        }
    }

    fn apply(&mut self, pools: &[(u64, Limits)], volumes: &[(u64, u64, Limits)]) {
        self.generation += 1;
        let pools = pools.iter().map(|(id, limits)| PoolPlan {
            id: *id,
            name: format!("p{id}").into(),
            limits: *limits,
            source: "".into(),
            shared: None,
        });
        let volumes = volumes.iter().map(|(id, pool, limits)| VolumePlan {
            volume: *id,
            name: format!("v{id}").into(),
            pool: *pool,
            limits: *limits,
            client: Limits::default(),
            source: "".into(),
            shared: None,
        });
        let plan = Plan {
            generation: self.generation,
            pools: pools.collect(),
            volumes: volumes.collect(),
        };
        assert!(self.throttle.apply(&plan));
    }

    fn gate(&self, volume: u64, flow: u64, bytes: u64) -> Gate {
        self.gate_at(volume, flow, bytes, None)
    }

    /// With `now` the request may be let through by a lease.
    fn gate_at(&self, volume: u64, flow: u64, bytes: u64, now: Option<Nanos>) -> Gate {
        let request = Request {
            volume: VolumeId(volume),
            client: IpAddr::from([10, 0, 0, 1]).into(),
            flow,
            direction: Direction::Write,
            bytes,
        };
        let mut charge = None;
        let gate = self.throttle.gate(&request, now, &mut charge);
        gate.map(|()| charge)
    }

    #[track_caller]
    fn held(&self, volume: u64, flow: u64, bytes: u64) -> Pin<Box<LimitWait>> {
        match self.gate(volume, flow, bytes) {
            Err(held) => Pin::from(held),
            _ => panic!("not held"),
        }
    }

    fn poll(&self, held: &mut Pin<Box<LimitWait>>) -> Option<Option<Charge>> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        match held.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(charge) => Some(charge),
            Poll::Pending => None,
        }
    }

    /// Lets time pass, with every shard polled when it is due.
    fn pass(&self, nanos: Nanos) {
        let end = self.throttle.current_time() + nanos;
        loop {
            let next = (0..2)
                .filter_map(|shard| self.throttle.next_expiry(shard))
                .min();
            let next = next
                .unwrap_or(Nanos::MAX)
                .min(end)
                .max(self.throttle.current_time());
            self.clock
                .advance(Duration::from_nanos(next - self.throttle.current_time()));
            (0..2).for_each(|shard| self.throttle.expire(shard));
            if next == end {
                return;
            }
        }
    }

    #[track_caller]
    fn nothing_left(&self) {
        for pool in self.throttle.pools() {
            let usage = pool.usage;
            assert_eq!((usage.queued, usage.queued_bytes), ([0; 2], [0; 2]));
        }
    }
}

fn bytes(rate: u64) -> Limits {
    Limits {
        total: Rate::bytes(rate),
        ..Limits::default()
    }
}

fn ops(rate: u64) -> Limits {
    Limits {
        total: Rate {
            bytes: None,
            ops: Some(rate),
        },
        ..Limits::default()
    }
}

#[test]
fn nothing_is_charged_where_nothing_is_limited() {
    let mut bed = Bed::new();
    assert!(matches!(bed.gate(1, 1, MIB), Ok(None)));
    bed.apply(
        &[(1, Limits::default())],
        &[(1, 1, Limits::default()), (2, 1, bytes(MIB))],
    );
    assert!(matches!(bed.gate(1, 1, MIB), Ok(None)));
    assert!(matches!(bed.gate(3, 1, MIB), Ok(None)), "not in the plan");
    assert!(matches!(bed.gate(2, 1, MIB), Ok(Some(_))));
    let _held = bed.held(2, 1, MIB);
}

#[test]
fn what_waits_is_released_in_time_by_the_wheel() {
    let mut bed = Bed::new();
    bed.apply(&[(1, Limits::default())], &[(1, 1, bytes(MIB))]);
    assert!(matches!(bed.gate(1, 1, MIB), Ok(Some(_))));
    let mut held: Vec<_> = (0..3).map(|_| bed.held(1, 1, MIB)).collect();
    assert!(held.iter_mut().all(|held| bed.poll(held).is_none()));
    for n in 1..=3 {
        bed.pass(SECOND);
        assert_eq!(bed.wakes.0.load(Ordering::Relaxed), n);
        let mut next = held.remove(0);
        assert!(matches!(bed.poll(&mut next), Some(Some(_))));
        assert!(held.iter_mut().all(|held| bed.poll(held).is_none()));
    }
    bed.nothing_left();
    assert_eq!(bed.throttle.next_expiry(0), None);
    assert_eq!(bed.throttle.next_expiry(1), None);
}

#[test]
fn a_raised_limit_releases_at_once_and_a_stale_plan_does_nothing() {
    let mut bed = Bed::new();
    bed.apply(&[(1, bytes(1000))], &[(1, 1, Limits::default())]);
    assert!(matches!(bed.gate(1, 1, MIB), Ok(Some(_))));
    let mut held = bed.held(1, 1, MIB);
    assert!(bed.poll(&mut held).is_none());
    let status = bed.throttle.status(VolumeId(1)).unwrap();
    let binding = Binding {
        level: Level::Pool,
        limit: weir_qos::Limit::TotalBytes,
    };
    assert_eq!(status.binding, Some(binding));
    assert!(!bed.throttle.apply(&Plan::default()), "an older plan");
    bed.apply(&[(1, bytes(1 << 40))], &[(1, 1, Limits::default())]);
    assert_eq!(bed.wakes.0.load(Ordering::Relaxed), 1);
    assert!(matches!(bed.poll(&mut held), Some(Some(_))));
    // And lifted altogether.
    bed.apply(&[(1, bytes(1))], &[(1, 1, Limits::default())]);
    assert!(bed.gate(1, 1, MIB).is_ok());
    let mut held = bed.held(1, 1, MIB);
    bed.apply(&[(1, Limits::default())], &[(1, 1, Limits::default())]);
    assert!(bed.poll(&mut held).is_some());
    bed.nothing_left();
}

#[test]
fn what_is_charged_together_is_charged_as_one_by_one() {
    for rate in [100, 2_000, 3_000, 20_000, 1_000_000] {
        let limits = Limits {
            total: Rate {
                bytes: Some(rate * 5000),
                ops: Some(rate),
            },
            ..Limits::default()
        };
        let mut beds = [Bed::new(), Bed::new()];
        for bed in &mut beds {
            bed.apply(&[(1, limits)], &[(1, 1, Limits::default()), (2, 1, limits)]);
        }
        let run = |bed: &Bed, step: u64, leased: bool| -> Vec<bool> {
            let now = leased.then(|| bed.throttle.current_time());
            // Runs of one kind, short ones, and what came out shorter than was asked for.
            let one = |n: u64| {
                let volume = if n % 40 < 30 { 1 } else { 1 + (n % 2) };
                match bed.gate_at(volume, 1, 4096 + n % 3, now) {
                    Ok(Some(charge)) if (n + step) % 23 == 0 => {
                        bed.throttle.refund(&charge, 1000);
                        true
                    }
                    gate => matches!(gate, Ok(Some(_))),
                }
            };
            (0..60).map(one).collect()
        };
        for step in 0..200 {
            let [together, alone] = &beds;
            let passed = run(together, step, true);
            assert_eq!(
                passed,
                run(alone, step, false),
                "{rate} a second, step {step}"
            );
            for bed in &beds {
                bed.pass(1_000_000);
            }
        }
        let usage = beds.each_ref().map(|bed| {
            let volumes = bed.throttle.volumes();
            volumes.iter().map(|v| v.usage).collect::<Vec<_>>()
        });
        assert_eq!(usage[0], usage[1]);
        assert!(usage[0][0].ops[1] > 0);
        beds[0].nothing_left();
    }
}

#[test]
fn metadata_takes_a_part_of_operations_and_waits_for_nothing() {
    let mut bed = Bed::new();
    let ops = Limits {
        total: Rate::ops(100),
        ..Limits::default()
    };
    bed.apply(
        &[(1, bytes(MIB)), (2, ops)],
        &[(1, 1, Limits::default()), (2, 2, Limits::default())],
    );
    let charged = |bed: &Bed| -> Vec<u64> {
        let pools = bed.throttle.pools();
        pools.iter().map(|pool| pool.usage.metadata).collect()
    };
    let look_around = |bed: &Bed| {
        for volume in [1, 2, 3] {
            for _ in 0..8 {
                let client = IpAddr::from([10, 0, 0, 1]).into();
                bed.throttle
                    .charge_metadata(VolumeId(volume), client, Metadata::Look, None);
            }
        }
    };
    look_around(&bed);
    assert_eq!(charged(&bed), [0, 1], "a limit on bytes is not its affair");
    // An operation of data has to wait for it.
    assert!(matches!(bed.gate(2, 1, 1), Ok(Some(_))));
    let mut held = bed.held(2, 1, 1);
    assert!(bed.poll(&mut held).is_none());
    bed.pass(SECOND / 50);
    assert!(matches!(bed.poll(&mut held), Some(Some(_))));
    // A pool that was limited in bytes comes to be limited in operations too, with the volumes that
    // it has.
    let both = Limits {
        total: Rate {
            bytes: Some(MIB),
            ops: Some(100),
        },
        ..Limits::default()
    };
    bed.apply(
        &[(1, both), (2, ops)],
        &[(1, 1, Limits::default()), (2, 2, Limits::default())],
    );
    bed.pass(SECOND);
    look_around(&bed);
    assert_eq!(charged(&bed), [1, 2]);
}

#[test]
fn what_waits_follows_its_volume_to_another_pool_and_out_of_limits() {
    let mut bed = Bed::new();
    let pools = [(1, bytes(1000)), (2, bytes(2000))];
    bed.apply(&pools, &[(1, 1, Limits::default())]);
    assert!(matches!(bed.gate(1, 1, MIB), Ok(Some(_))));
    let mut held = bed.held(1, 1, 2000);
    let mut other = bed.held(1, 2, 2000);
    assert!(bed.poll(&mut held).is_none() && bed.poll(&mut other).is_none());
    bed.apply(&pools, &[(1, 2, Limits::default())]);
    // The new pool owes nothing yet.
    assert!(matches!(bed.poll(&mut held), Some(Some(_))));
    assert!(bed.poll(&mut other).is_none());
    bed.pass(SECOND);
    assert!(matches!(bed.poll(&mut other), Some(Some(_))));
    let mut last = bed.held(1, 2, 2000);
    assert!(bed.poll(&mut last).is_none());
    bed.apply(&pools, &[]);
    assert!(
        matches!(bed.poll(&mut last), Some(None)),
        "gone, so nothing limits it"
    );
    bed.nothing_left();
}

#[test]
fn a_connection_that_ends_leaves_nothing_and_costs_nothing() {
    let mut bed = Bed::new();
    bed.apply(&[(1, Limits::default())], &[(1, 1, bytes(MIB))]);
    assert!(matches!(bed.gate(1, 1, MIB), Ok(Some(_))));
    for _ in 0..100 {
        // It comes, asks for much, and disconnects before it was granted anything.
        let held: Vec<_> = (0..50).map(|_| bed.held(1, 7, MIB)).collect();
        drop(held);
        bed.nothing_left();
    }
    // Or it goes after it was released and before it ran: what it was charged is refunded.
    let mut held = bed.held(1, 7, MIB);
    assert!(bed.poll(&mut held).is_none());
    bed.pass(SECOND);
    drop(held);
    let usage = bed.throttle.status(VolumeId(1)).unwrap().usage;
    assert_eq!((usage.bytes, usage.ops), ([0, MIB], [0, 1]));
    assert!(
        matches!(bed.gate(1, 8, MIB), Ok(Some(_))),
        "as if it had not been there"
    );
    // Those of another connection stay where they are.
    let mut stays = bed.held(1, 8, MIB);
    drop(bed.held(1, 7, MIB));
    assert!(bed.poll(&mut stays).is_none());
    bed.pass(SECOND);
    assert!(matches!(bed.poll(&mut stays), Some(Some(_))));
}

#[test]
fn clients_that_rest_are_forgotten_when_it_makes_no_difference() {
    let mut bed = Bed::new();
    bed.apply(&[(1, Limits::default())], &[(1, 1, bytes(MIB))]);
    assert!(matches!(bed.gate(1, 1, 200 * MIB), Ok(Some(_))));
    let clients = || bed.throttle.status(VolumeId(1)).unwrap().clients.len();
    assert_eq!(clients(), 1);
    bed.pass(30 * SECOND);
    bed.throttle.tidy();
    assert_eq!(clients(), 1);
    bed.pass(180 * SECOND);
    bed.throttle.tidy();
    assert_eq!(clients(), 0);
}

#[test]
fn a_change_touches_what_it_names_and_what_hangs_under_it() {
    let mut bed = Bed::new();
    let free = Limits::default();
    bed.apply(
        &[(1, free), (2, free)],
        &[(1, 1, bytes(MIB)), (2, 2, free), (3, 2, free)],
    );
    let change = |bed: &mut Bed, change: Change| {
        bed.generation += 1;
        let generation = bed.generation;
        assert!(bed.throttle.change(&Change {
            generation,
            ..change
        }));
    };
    let pool = |id: u64, limits| PoolPlan {
        id,
        name: "p".into(),
        limits,
        source: "".into(),
        shared: None,
    };
    let volume = |volume, pool, limits| VolumePlan {
        volume,
        name: "v".into(),
        pool,
        limits,
        client: Limits::default(),
        source: "".into(),
        shared: None,
    };
    let known = |bed: &Bed| -> Vec<u64> {
        let all = bed.throttle.volumes();
        all.iter().map(|v| v.volume.0).collect()
    };
    assert!(matches!(bed.gate(1, 1, MIB), Ok(Some(_))));
    let mut held = bed.held(1, 1, MIB);
    assert!(bed.poll(&mut held).is_none());

    // A pool that begins to be limited: its volumes are, though no plan of theirs is named.
    let limit = Change {
        pools: vec![pool(2, bytes(MIB))],
        ..Change::default()
    };
    change(&mut bed, limit);
    assert_eq!(known(&bed), [1, 2, 3]);
    assert!(matches!(bed.gate(2, 1, MIB), Ok(Some(_))));
    let mut other = bed.held(3, 2, MIB);
    assert!(bed.poll(&mut other).is_none());
    assert!(bed.poll(&mut held).is_none(), "nobody spoke of this one");
    let lift = Change {
        pools: vec![pool(2, Limits::default())],
        ..Change::default()
    };
    change(&mut bed, lift);
    assert!(bed.poll(&mut other).is_some());
    assert!(matches!(bed.gate(3, 1, MIB), Ok(None)));

    // One volume goes, one comes, one moves; all in one step.
    let step = Change {
        pools: vec![pool(3, bytes(MIB))],
        volumes: vec![
            volume(4, 3, Limits::default()),
            volume(3, 3, Limits::default()),
        ],
        volumes_gone: vec![2],
        ..Change::default()
    };
    change(&mut bed, step);
    assert_eq!(known(&bed), [1, 3, 4]);
    assert_eq!(bed.throttle.status(VolumeId(3)).unwrap().pool, 3);
    assert!(matches!(bed.gate(2, 1, MIB), Ok(None)));
    assert!(matches!(bed.gate(4, 1, MIB), Ok(Some(_))));
    let mut shared = bed.held(3, 1, MIB);
    assert!(bed.poll(&mut shared).is_none());
    assert!(bed.poll(&mut held).is_none());
    bed.pass(SECOND);
    assert!(matches!(bed.poll(&mut held), Some(Some(_))));
    assert!(matches!(bed.poll(&mut shared), Some(Some(_))));

    // The last that is limited goes: nothing is asked for any more.
    let end = Change {
        pools_gone: vec![3],
        volumes_gone: vec![1, 3, 4],
        ..Change::default()
    };
    change(&mut bed, end);
    assert!(known(&bed).is_empty());
    assert_eq!(bed.throttle.pools().len(), 2);
    assert!(!bed.throttle.active.load(Ordering::Relaxed));
    bed.nothing_left();
    let old = Change::default();
    assert!(!bed.throttle.change(&old), "an older one");
}

#[test]
fn a_release_is_due_on_the_event_loop_of_the_connection_whose_turn_it_is() {
    let mut bed = Bed::new();
    bed.apply(&[(1, Limits::default())], &[(1, 1, bytes(MIB))]);
    assert!(matches!(bed.gate(1, 2, MIB), Ok(Some(_))));
    let mut held: Vec<_> = [3, 2, 3].map(|flow| bed.held(1, flow, MIB)).into();
    for shard in [1, 0, 1] {
        let due = [0, 1].map(|shard| bed.throttle.next_expiry(shard));
        assert!(due[shard].is_some() && due[1 - shard].is_none(), "{due:?}");
        bed.pass(SECOND);
        assert!(matches!(bed.poll(&mut held.remove(0)), Some(Some(_))));
    }
    let due = [0, 1].map(|shard| bed.throttle.next_expiry(shard));
    assert_eq!(due, [None; 2]);
}

/// Requests by one thread, leased as often as they can be, that take a limit's whole credit and
/// more, beside those of another that ask each for itself.
#[test]
fn what_is_leased_is_neither_stranded_nor_let_through_twice() {
    for every in [20_000, 150_000, 700_000] {
        let mut bed = Bed::new();
        bed.apply(&[(1, ops(20_000))], &[(1, 1, Limits::default())]);
        // An idle limit lets its burst through at once, whichever client asks: 200 requests.
        let at_once = |leased: u64| {
            let ask = |n: u64| {
                let now = (n < leased).then(|| bed.throttle.current_time());
                bed.gate_at(1, 1 + u64::from(now.is_none()), 4096, now)
            };
            let passed = |gate: &Gate| matches!(gate, Ok(Some(_)));
            (0..300).map(ask).filter(passed).count() as u64
        };
        for leased in [0, 1, 2, 30, 70, 300] {
            bed.pass(SECOND);
            let passed = at_once(leased);
            // The request that finds any credit is let through; a lease is charged as though it
            // came at its end.
            assert!((190..=201).contains(&passed), "{passed} of {leased} leased");
        }
        bed.pass(SECOND);
        // And in no stretch of time more than the rate and the burst.
        let from = bed.throttle.current_time();
        let mut passed: u64 = 0;
        for n in 0..30_000u64 {
            let now = (n % 7 < 6).then(|| bed.throttle.current_time());
            passed += u64::from(matches!(bed.gate_at(1, 1, 4096, now), Ok(Some(_))));
            let most = (bed.throttle.current_time() - from) * 20_000 / SECOND + 201;
            assert!(passed <= most, "{passed} of {most}");
            if n % 10 == 9 {
                bed.pass(every);
            }
        }
        let usage = bed.throttle.pools().first().unwrap().usage;
        assert!(usage.ops[1] >= passed, "{usage:?}");
    }
}

/// The requests that came under a lease have been drained by the time that went by since. The
/// unused rest belongs to no request: neither takes from a later burst, nor adds to it.
#[test]
fn a_lease_of_long_ago_makes_no_difference() {
    for metadata in [0, 1] {
        let mut bed = Bed::new();
        bed.apply(&[(1, ops(20_000))], &[(1, 1, Limits::default())]);
        let now = Some(bed.throttle.current_time());
        let leased = || (0..60).all(|_| bed.gate_at(1, 1, 4096, now).is_ok());
        assert!(std::thread::scope(|scope| scope
            .spawn(leased)
            .join()
            .unwrap()));
        bed.pass(SECOND);
        for _ in 0..metadata {
            let client = IpAddr::from([10, 0, 0, 1]).into();
            let volume = VolumeId(1);
            bed.throttle
                .charge_metadata(volume, client, Metadata::Change, None);
        }
        let gates: Vec<Gate> = (0..300).map(|_| bed.gate(1, 2, 4096)).collect();
        let passed = gates.iter().filter(|gate| gate.is_ok()).count();
        // The request that finds any credit is let through; a lease is charged as though it came at
        // its end.
        assert!((190..=201 - metadata).contains(&passed), "{passed}");
    }
}

#[test]
fn a_lease_ends_when_limits_change_and_is_counted_when_sums_are_read() {
    let mut bed = Bed::new();
    bed.apply(&[(1, ops(100_000))], &[(1, 1, Limits::default())]);
    let now = Some(bed.throttle.current_time());
    for n in 1..=50 {
        assert!(matches!(bed.gate_at(1, 1, 4096, now), Ok(Some(_))));
        let usage = bed.throttle.pools().first().unwrap().usage;
        assert_eq!((usage.ops[1], usage.bytes[1]), (n, n * 4096));
    }
    bed.apply(&[(1, ops(100))], &[(1, 1, Limits::default())]);
    let passed = |_: &u32| matches!(bed.gate_at(1, 1, 4096, now), Ok(Some(_)));
    assert!((0..100).filter(passed).count() <= 1);
}

#[test]
fn threads_that_lease_at_the_same_time_share_one_limit() {
    let mut bed = Bed::new();
    bed.apply(&[(1, ops(200_000))], &[(1, 1, Limits::default())]);
    for _ in 0..20 {
        bed.pass(SECOND);
        let before = bed.throttle.pools().first().unwrap().usage.ops[1];
        let now = Some(bed.throttle.current_time());
        let ask = &|flow: u64| {
            let gates = (0..1500).map(|_| bed.gate_at(1, flow, 4096, now));
            // Kept to the end: what waits must not be let through by what is given up.
            gates.collect::<Vec<_>>()
        };
        let all: Vec<Gate> = std::thread::scope(|scope| {
            let threads = [1, 2, 3].map(|flow| scope.spawn(move || ask(flow)));
            let gates = threads.into_iter().map(|thread| thread.join().unwrap());
            gates.flatten().collect()
        });
        let passed = all.iter().filter(|gate| matches!(gate, Ok(Some(_))));
        let passed = passed.count() as u64;
        // The burst is 2,000; a lease is charged as though it came at its end.
        assert!((1899..=2001).contains(&passed), "{passed}");
        drop(all);
        let after = bed.throttle.pools().first().unwrap().usage.ops[1];
        assert_eq!(after - before, passed);
    }
    bed.nothing_left();
}

/// A volume at its limit is said to be held by it at every look, and a second after the last wait
/// at none.
#[test]
fn what_holds_requests_back_is_named_at_every_look() {
    // A request every 20 ms; the timer that releases it comes late now and then.
    let cause = |level, limit| Some(Binding { level, limit });
    let limit = weir_qos::Limit::TotalBytes;
    for (pool, volume, level) in [
        (Limits::default(), bytes(50 * 4096), Level::Volume),
        (bytes(50 * 4096), Limits::default(), Level::Pool),
    ] {
        let mut bed = Bed::new();
        bed.apply(&[(1, pool)], &[(1, 1, volume)]);
        let mut held = Vec::new();
        for n in 0..100u64 {
            while held.len() < 4 {
                match bed.gate(1, 1, 4096) {
                    Ok(_) => {}
                    Err(one) => held.push(Pin::from(one)),
                }
            }
            // Looks fall before, at and behind releases.
            bed.clock.advance(Duration::from_micros(50_000 + 77 * n));
            let status = bed.throttle.status(VolumeId(1)).unwrap();
            assert_eq!(status.binding, cause(level, limit), "look {n}");
            (0..2).for_each(|shard| bed.throttle.expire(shard));
            let status = bed.throttle.status(VolumeId(1)).unwrap();
            assert_eq!(
                status.binding,
                cause(level, limit),
                "look {n}, after releases"
            );
            held.retain_mut(|held| bed.poll(held).is_none());
        }
        drop(held);
        let status = bed.throttle.status(VolumeId(1)).unwrap();
        let bound = *status.bound.unwrap();
        let times: Vec<_> = bound.times().filter(|(.., nanos)| *nanos > 0).collect();
        let [(at, Direction::Write, of, nanos)] = times[..] else {
            panic!("{times:?}");
        };
        assert_eq!((Level::ALL[at], of), (level, limit));
        // All of the time but what the first request took, and the little that timers were late.
        assert!((5_000_000_000..5_500_000_000).contains(&nanos), "{nanos}");
        assert_eq!(
            bound.waited().iter().sum::<u64>(),
            status.usage.waited.iter().sum::<u64>()
        );
        let of_pool = bed.throttle.pools().remove(0).bound.unwrap();
        assert_eq!(*of_pool, bound);
        bed.pass(SECOND);
        assert_eq!(bed.throttle.status(VolumeId(1)).unwrap().binding, None);
    }
}

#[test]
fn a_share_is_in_force_in_place_of_an_equal_part_and_the_pool_follows() {
    let mut bed = Bed::new();
    let pool = PoolPlan {
        id: 1,
        name: "p".into(),
        limits: bytes(100 * MIB),
        source: "".into(),
        shared: None,
    };
    let own = |volume, shared: Option<SharedPart>| VolumePlan {
        volume,
        name: "v".into(),
        pool: 1,
        limits: bytes(48 * MIB),
        client: Limits::default(),
        source: "".into(),
        shared,
    };
    let part = SharedPart {
        limit: 7,
        part: 0,
        parts: 3,
    };
    let change = |bed: &mut Bed, volumes: Vec<VolumePlan>, gone: Vec<u64>| {
        bed.generation += 1;
        let change = Change {
            generation: bed.generation,
            pools: vec![pool.clone()],
            volumes,
            volumes_gone: gone,
            ..Change::default()
        };
        assert!(bed.throttle.change(&change));
    };
    let rates = |bed: &Bed| {
        let volume = bed.throttle.status(VolumeId(1));
        let volume = volume.and_then(|status| status.limits.total.bytes);
        let pool = bed.throttle.pools()[0].limits.total.bytes;
        (volume.map(|rate| rate / MIB), pool.map(|rate| rate / MIB))
    };
    change(&mut bed, vec![own(1, Some(part)), own(2, None)], vec![]);
    assert_eq!(rates(&bed), (Some(3), Some(55)), "the least share");
    bed.throttle.set_share(7, 144 * MIB);
    bed.throttle.set_share(8, MIB);
    assert_eq!(rates(&bed), (Some(144), Some(196)));
    let other = bed.throttle.status(VolumeId(2)).unwrap();
    assert_eq!(other.limits, bytes(48 * MIB));
    // A new plan keeps the share.
    change(&mut bed, vec![own(1, Some(part))], vec![]);
    assert_eq!(rates(&bed), (Some(144), Some(196)));
    // Requests wait for it, and that shows.
    assert!(matches!(bed.gate(1, 1, 144 * MIB), Ok(Some(_))));
    let mut held = bed.held(1, 1, MIB);
    bed.pass(SECOND / 2);
    let shared = bed.throttle.shared();
    let status = SharedStatus {
        part,
        provisioned: 48 * MIB,
        bytes: 144 * MIB,
        waits: true,
        waiting: 1,
    };
    assert_eq!(shared, [status]);
    bed.throttle.set_share(7, 1 << 40);
    assert!(bed.poll(&mut held).is_some(), "more is in force at once");
    change(&mut bed, vec![], vec![1]);
    assert_eq!(rates(&bed), (None, Some(100)));
    assert_eq!(bed.throttle.shared(), []);
    change(&mut bed, vec![own(1, Some(part))], vec![]);
    assert_eq!(rates(&bed), (Some(3), Some(55)), "it begins anew");
}
