use super::tree::STEPS;
use super::*;
use proptest::prelude::*;
use weir_base::{Ino, VolumeId};

fn table() -> LockTable {
    LockTable::new(Budget::new(256 << 20))
}

fn file(n: u64) -> FileId {
    FileId {
        place: crate::Place::Live,
        volume: VolumeId(1),
        ino: Ino(n),
    }
}

fn client(n: u8) -> Client {
    Client {
        address: IpAddr::from([10, 0, 0, n]),
        name: Arc::from(&b"host"[..]),
    }
}

fn owner(n: u32) -> Owner {
    Owner {
        client: client(1),
        who: Who::Process(n),
        shown: Arc::from(&b"shown"[..]),
    }
}

fn of(owner: Owner, start: u64, length: u64, exclusive: bool) -> Lock {
    Lock {
        owner,
        range: Range::new(start, length).unwrap(),
        exclusive,
    }
}

fn lock(n: u32, start: u64, length: u64, exclusive: bool) -> Lock {
    of(owner(n), start, length, exclusive)
}

fn ask(t: &LockTable, file: FileId, want: Lock, wait: bool) -> Verdict {
    let mut grants = Vec::new();
    let verdict = t.lock(file, want, wait, &mut grants);
    assert!(grants.is_empty());
    verdict
}

fn owners(grants: Vec<Grant>) -> Vec<u32> {
    grants.iter().map(|g| g.lock.owner.process()).collect()
}

/// The work of `call`: nodes and requests visited.
fn steps<T>(call: impl FnOnce() -> T) -> (u64, T) {
    let before = STEPS.get();
    let out = call();
    (STEPS.get() - before, out)
}

#[test]
fn ranges_reach_to_the_end_and_refuse_overflow() {
    let range = |start, last| Some(Range { start, last });
    assert_eq!(Range::new(5, 0), range(5, u64::MAX));
    assert_eq!(Range::new(u64::MAX, 1), range(u64::MAX, u64::MAX));
    assert_eq!(Range::new(u64::MAX, 2), None);
    assert_eq!(Range::new(5, 3).unwrap().length(), 3);
    assert_eq!(Range::new(5, 0).unwrap().length(), 0);
}

#[test]
fn a_queue_is_served_in_order() {
    let t = table();
    assert_eq!(
        ask(&t, file(1), lock(1, 0, 10, true), true),
        Verdict::Granted
    );
    for n in 2..5 {
        assert_eq!(
            ask(&t, file(1), lock(n, 0, 10, n == 2), true),
            Verdict::Queued
        );
    }
    // Asking again does not queue twice.
    assert_eq!(
        ask(&t, file(1), lock(2, 0, 10, true), true),
        Verdict::Queued
    );
    assert_eq!((t.totals().held, t.totals().waiting), (1, 3));
    assert_eq!(
        owners(t.unlock(file(1), &owner(1), Range::ALL).unwrap()),
        [2]
    );
    // Both readers go together.
    assert_eq!(
        owners(t.unlock(file(1), &owner(2), Range::ALL).unwrap()),
        [3, 4]
    );
    assert!(t.holds(file(1), &lock(3, 2, 2, false)));
    assert!(!t.holds(file(1), &lock(3, 2, 2, true)));
    t.release(&[client(1)]);
    assert_eq!(
        t.totals(),
        Totals {
            held: 0,
            waiting: 0,
            bytes: 0
        }
    );
}

#[test]
fn a_lock_that_becomes_shared_lets_readers_go_on() {
    let t = table();
    let mut grants = Vec::new();
    t.lock(file(1), lock(1, 0, 10, true), false, &mut grants);
    for (n, exclusive) in [(2, false), (3, true), (4, false)] {
        assert_eq!(
            t.lock(file(1), lock(n, 5, 1, exclusive), true, &mut grants),
            Verdict::Queued
        );
    }
    assert_eq!(
        t.lock(file(1), lock(1, 5, 5, false), false, &mut grants),
        Verdict::Granted
    );
    assert_eq!(owners(grants), [2, 4]);
    assert_eq!(
        t.test(file(1), &lock(9, 0, 5, false)).unwrap().owner,
        owner(1)
    );
}

#[test]
fn a_grant_shows_what_its_request_showed() {
    let t = table();
    ask(&t, file(1), lock(1, 0, 10, true), false);
    ask(&t, file(1), lock(2, 50, 1, true), false);
    let mut want = lock(2, 0, 10, true);
    want.owner.shown = Arc::from(&b"another"[..]);
    assert_eq!(ask(&t, file(1), want, true), Verdict::Queued);
    let grants = t.unlock(file(1), &owner(1), Range::ALL).unwrap();
    assert_eq!(*grants[0].lock.owner.shown, *b"another");
}

#[test]
fn cancelled_requests_are_not_granted() {
    let t = table();
    ask(&t, file(1), lock(1, 0, 10, true), false);
    ask(&t, file(1), lock(2, 0, 10, true), true);
    assert!(t.cancel(file(1), &lock(2, 0, 10, true)));
    assert!(!t.cancel(file(1), &lock(2, 0, 10, true)));
    assert!(t.unlock(file(1), &owner(1), Range::ALL).unwrap().is_empty());
    assert_eq!(t.totals().bytes, 0);
}

#[test]
fn circles_of_waiting_owners_are_refused() {
    let t = table();
    for n in 1..4 {
        assert_eq!(
            ask(&t, file(n.into()), lock(n, 0, 1, true), false),
            Verdict::Granted
        );
    }
    assert_eq!(ask(&t, file(2), lock(1, 0, 1, true), true), Verdict::Queued);
    assert_eq!(ask(&t, file(3), lock(2, 0, 1, true), true), Verdict::Queued);
    assert_eq!(
        ask(&t, file(1), lock(3, 0, 1, true), true),
        Verdict::Deadlock
    );
    assert_eq!(
        ask(&t, file(1), lock(3, 5, 1, true), true),
        Verdict::Granted
    );
    // Without waiting there is no cycle.
    assert!(matches!(
        ask(&t, file(1), lock(3, 0, 1, true), false),
        Verdict::Denied(_)
    ));
    // Once one of them has given up there is none any more.
    assert!(t.cancel(file(3), &lock(2, 0, 1, true)));
    assert_eq!(ask(&t, file(1), lock(3, 0, 1, true), true), Verdict::Queued);
}

#[test]
fn a_cycle_is_found_behind_thousands_of_shared_locks() {
    let t = table();
    for n in 0..5000 {
        ask(&t, file(1), lock(n, 0, 1, false), false);
    }
    ask(&t, file(2), lock(9999, 0, 1, true), false);
    // The last of them waits for 9999, which then must not wait for the shared locks.
    assert_eq!(
        ask(&t, file(2), lock(4999, 0, 1, true), true),
        Verdict::Queued
    );
    let (work, verdict) = steps(|| ask(&t, file(1), lock(9999, 0, 1, true), true));
    assert_eq!(verdict, Verdict::Deadlock);
    assert!(work < 10_000, "{work}");
}

#[test]
fn reservations_exclude_what_they_deny() {
    let t = table();
    assert_eq!(t.share(file(1), &owner(1), 1, 2), Some(true));
    assert_eq!(t.share(file(1), &owner(2), 1, 0), Some(true));
    assert_eq!(t.share(file(1), &owner(3), 2, 0), Some(false));
    assert_eq!(t.share(file(1), &owner(3), 1, 1), Some(false));
    // An owner's second reservation replaces its first, which is not in its way.
    assert_eq!(t.share(file(1), &owner(1), 3, 2), Some(true));
    assert_eq!(t.totals().held, 2);
    t.unshare(file(1), &owner(1));
    assert_eq!(t.share(file(1), &owner(3), 2, 0), Some(true));
    t.release(&[client(1)]);
    assert_eq!(
        t.totals(),
        Totals {
            held: 0,
            waiting: 0,
            bytes: 0
        }
    );
}

/// What a client can do to make the table work: none of it may cost more than a multiple of the logarithm.
#[test]
fn the_work_of_a_call_is_bounded() {
    let t = table();
    let f = file(1);
    let n = 40_000u32;
    // Other owners' shared locks, all over each other; another owner's exclusive ones behind them; and ours.
    for i in 0..n {
        ask(&t, f, lock(i, 0, 1 << 20, false), false);
        ask(&t, f, lock(n, (1 << 20) + 2 * u64::from(i), 1, true), false);
        ask(
            &t,
            f,
            lock(n + 1, (1 << 21) + 2 * u64::from(i), 1, true),
            false,
        );
    }
    let me = n + 1;
    let cases = [
        ("a shared lock among shared ones", lock(me + 1, 5, 5, false)),
        ("an exclusive one among them", lock(me + 1, 5, 5, true)),
        ("everything", lock(me, 0, 0, true)),
        ("behind all own ones", lock(me, (1 << 20) + 1, 0, true)),
        ("past the end", lock(me, 1 << 40, 0, true)),
        ("a gap", lock(me + 1, (1 << 20) + 40_001, 1, true)),
    ];
    for (what, want) in cases {
        let (work, _) = steps(|| t.test(f, &want));
        assert!(work <= 64, "TEST of {what}: {work}");
        let (work, _) = steps(|| ask(&t, f, want.clone(), false));
        assert!(work <= 300, "LOCK of {what}: {work}");
    }
    // Nobody waits: there is no search.
    let (work, verdict) = steps(|| ask(&t, f, lock(me + 9, 0, 0, true), true));
    assert_eq!(verdict, Verdict::Queued);
    assert!(
        work <= 300,
        "a request that waits for {n} shared locks: {work}"
    );
    // Somebody does: the search compares with that one only.
    let (work, verdict) = steps(|| ask(&t, f, lock(me + 10, 0, 0, true), true));
    assert_eq!(verdict, Verdict::Queued);
    assert!(work <= 2000, "the second: {work}");
    let (work, _) = steps(|| t.unlock(f, &owner(7), Range::ALL));
    assert!(work <= 300, "UNLOCK of one shared lock: {work}");
    // Own locks are removed in one pass.
    let (work, _) = steps(|| t.unlock(f, &owner(me), Range::ALL));
    assert!(work <= 4 * u64::from(n), "UNLOCK of {n} own locks: {work}");
}

#[test]
fn a_crowd_that_waits_for_one_byte_costs_a_pass() {
    let t = table();
    let f = file(1);
    ask(&t, f, lock(0, 0, 1, true), false);
    let crowd = MAX_WAITING as u32;
    for n in 1..=crowd {
        assert_eq!(ask(&t, f, lock(n, 0, 1, true), true), Verdict::Queued);
    }
    for n in 0..10 {
        let (work, grants) = steps(|| t.unlock(f, &owner(n), Range::ALL).unwrap());
        assert_eq!(owners(grants), [n + 1]);
        assert!(work <= 2 * u64::from(crowd) + 300, "{work}");
    }
}

#[test]
fn the_search_for_deadlocks_ends() {
    let t = table();
    // Owners of many addresses hold a byte each and wait for all of them, in two files: everyone may wait for everyone.
    let many = |n: u32, owner: u32| Owner {
        client: client((n % 16) as u8),
        ..self::owner(owner)
    };
    for n in 0..3000 {
        ask(&t, file(1), of(many(n, n), 0, 0, false), false);
        ask(&t, file(2), of(many(n, n), 0, 0, false), false);
    }
    let mut most = 0;
    for n in 3000..6000 {
        let (work, verdict) = steps(|| {
            ask(
                &t,
                file(1 + u64::from(n % 2)),
                of(many(n, n), 0, 0, true),
                true,
            )
        });
        assert_eq!(verdict, Verdict::Queued);
        most = most.max(work);
    }
    assert!(most < 4 * graph::SEARCH as u64, "{most}");
}

/// File, owner and offset of the n-th lock.
type Nth = fn(u32) -> (u64, u32, u64);

#[test]
fn an_address_has_a_part_of_the_budget_and_gives_it_back() {
    let budget = Budget::new(4 << 20);
    let t = LockTable::new(Arc::clone(&budget));
    let part = budget.total() / ledger::SHARE;
    let by = |address: u8, n: u32| Owner {
        client: client(address),
        ..owner(n)
    };
    // In one file, in many files, and by many owners: each until it is refused.
    let ways: [(u8, Nth); 3] = [
        (1, |n| (1, 1, 2 * u64::from(n))),
        (2, |n| (u64::from(n) + 10, 1, 0)),
        (3, |n| (2, n, 0)),
    ];
    for (address, way) in ways {
        let mut n = 0;
        loop {
            let (f, process, start) = way(n);
            match ask(
                &t,
                file(f),
                of(by(address, process), start, 1, false),
                false,
            ) {
                Verdict::Granted => n += 1,
                Verdict::Full => break,
                other => panic!("{other:?}"),
            }
        }
        let charged = t.ledger.bytes(client(address).address);
        assert!(
            charged <= part && charged > part - 4096,
            "{charged} of {part} after {n}"
        );
    }
    // Others still get theirs, and what is refused leaves no trace.
    assert_eq!(
        ask(&t, file(1), of(by(4, 1), 1, 1, false), false),
        Verdict::Granted
    );
    assert_eq!(t.share(file(3), &by(1, 1), 1, 0), None);
    let full = of(by(1, 1), 0, 1, true);
    assert!(
        matches!(ask(&t, file(2), full, true), Verdict::Full),
        "no room to wait either"
    );
    // Splitting a lock takes room; joining and unlocking do not.
    let whole = of(by(4, 1), 0, 0, false);
    assert_eq!(ask(&t, file(9999), whole, false), Verdict::Granted);
    let mut cut = 0;
    let full = loop {
        match t.unlock(
            file(9999),
            &by(4, 1),
            Range {
                start: 2 * cut,
                last: 2 * cut,
            },
        ) {
            Ok(_) => cut += 1,
            Err(full) => break full,
        }
    };
    assert_eq!(full, Full);
    assert!(t.unlock(file(9999), &by(4, 1), Range::ALL).is_ok());
    for address in 1..5 {
        t.release(&[client(address)]);
    }
    assert_eq!(
        t.totals(),
        Totals {
            held: 0,
            waiting: 0,
            bytes: 0
        }
    );
    assert_eq!(budget.used(), 0);
}

#[test]
fn few_requests_of_an_address_wait() {
    let t = table();
    ask(&t, file(1), lock(0, 0, 0, true), false);
    for n in 0..MAX_WAITING as u32 {
        assert_eq!(
            ask(&t, file(1), lock(n + 1, 0, 0, true), true),
            Verdict::Queued
        );
    }
    assert_eq!(
        ask(&t, file(1), lock(99_999, 0, 0, true), true),
        Verdict::Full
    );
    let elsewhere = Owner {
        client: client(2),
        ..owner(1)
    };
    assert_eq!(
        ask(&t, file(1), of(elsewhere, 0, 0, true), true),
        Verdict::Queued
    );
    assert!(t.cancel(file(1), &lock(1, 0, 0, true)));
    assert_eq!(
        ask(&t, file(1), lock(99_999, 0, 0, true), true),
        Verdict::Queued
    );
}

#[test]
fn a_host_that_goes_leaves_the_others_theirs() {
    let t = table();
    let by = |address: u8, name: &[u8]| Owner {
        client: Client {
            name: Arc::from(name),
            ..client(address)
        },
        ..owner(1)
    };
    let (a, b, c) = (by(1, b"a"), by(1, b"b"), by(2, b"a"));
    for (at, o) in [&a, &b, &c].into_iter().enumerate() {
        ask(&t, file(1), of(o.clone(), at as u64, 1, true), false);
        ask(&t, file(2 + at as u64), of(o.clone(), 0, 1, true), false);
    }
    assert_eq!(
        ask(&t, file(1), of(c.clone(), 0, 1, true), true),
        Verdict::Queued
    );
    assert_eq!(
        t.clients_at(c.client.address),
        std::slice::from_ref(&c.client)
    );
    let grants = t.release(std::slice::from_ref(&a.client));
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].lock.owner, c);
    assert!(!t.has(&a.client) && t.has(&b.client) && t.has(&c.client));
    t.release_all();
    assert_eq!(
        t.totals(),
        Totals {
            held: 0,
            waiting: 0,
            bytes: 0
        }
    );
}

#[test]
fn threads_share_the_table() {
    let t = table();
    std::thread::scope(|s| {
        for thread in 0..4u32 {
            let t = &t;
            s.spawn(move || {
                let me = Owner {
                    client: client(thread as u8),
                    ..owner(thread)
                };
                let mut x = u64::from(thread) + 1;
                for _ in 0..4000 {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    let (f, start, length) = (file(x % 3), x >> 8 & 15, x >> 16 & 7);
                    match x >> 24 & 3 {
                        0 => drop(t.unlock(f, &me, Range::new(start, length).unwrap())),
                        1 => drop(t.cancel(f, &of(me.clone(), start, length, true))),
                        _ => {
                            let want = of(me.clone(), start, length, x >> 32 & 1 == 0);
                            t.lock(f, want, x >> 33 & 1 == 0, &mut Vec::new());
                        }
                    }
                }
                t.release(&[me.client]);
            });
        }
    });
    // Grants to an owner after it released everything remain; they are held by someone.
    t.release_all();
    assert_eq!(
        t.totals(),
        Totals {
            held: 0,
            waiting: 0,
            bytes: 0
        }
    );
    assert!(t.graph.lock().is_empty());
}

/// The naive table: for each byte who holds it and how, and who waits, in order.
#[derive(Default, Clone)]
struct Model {
    bytes: Vec<Vec<(u32, bool)>>,
    queue: Vec<Lock>,
}

const BYTES: u64 = 40;
/// Starts are below this and lengths below half of it, so that only a range to
/// the end of the file passes the model's last byte.
const STARTS: u64 = 24;

fn bytes(r: Range) -> impl Iterator<Item = usize> {
    (r.start..=r.last.min(BYTES - 1)).map(|b| b as usize)
}

impl Model {
    fn conflicts(&self, l: &Lock) -> bool {
        let me = l.owner.process();
        bytes(l.range).any(|b| {
            self.bytes[b]
                .iter()
                .any(|&(o, x)| o != me && (x || l.exclusive))
        })
    }

    fn clear(&mut self, process: u32, r: Range) {
        bytes(r).for_each(|b| self.bytes[b].retain(|&(o, _)| o != process));
    }

    fn set(&mut self, l: &Lock) {
        self.clear(l.owner.process(), l.range);
        bytes(l.range).for_each(|b| self.bytes[b].push((l.owner.process(), l.exclusive)));
    }

    /// Grants from the front whatever does not conflict, until nothing does.
    fn wake(&mut self) -> Vec<Lock> {
        let mut out = Vec::new();
        while let Some(at) = (0..self.queue.len()).find(|at| !self.conflicts(&self.queue[*at])) {
            let l = self.queue.remove(at);
            self.set(&l);
            out.push(l);
        }
        out
    }

    /// Whether `l` would wait for its owner, over any number of others.
    fn deadlock(&self, l: &Lock) -> bool {
        let blockers = |l: &Lock| -> HashSet<u32> {
            let at = bytes(l.range).flat_map(|b| &self.bytes[b]);
            at.filter(|(o, x)| *o != l.owner.process() && (*x || l.exclusive))
                .map(|(o, _)| *o)
                .collect()
        };
        let (mut seen, mut next) = (HashSet::new(), vec![l]);
        while let Some(lock) = next.pop() {
            for o in blockers(lock) {
                if o == l.owner.process() {
                    return true;
                }
                if seen.insert(o) {
                    next.extend(self.queue.iter().filter(|w| w.owner.process() == o));
                }
            }
        }
        false
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lock(u32, u64, u64, bool, bool),
    Unlock(u32, u64, u64),
    Test(u32, u64, u64, bool),
    Cancel(usize),
    Gone(u32),
}

fn random_steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..STARTS, 0..STARTS / 2);
    let step = prop_oneof![
        6 => (1..5u32, range(), any::<bool>(), any::<bool>()).prop_map(|(o, (s, l), x, w)| Step::Lock(o, s, l, x, w)),
        4 => (1..5u32, range()).prop_map(|(o, (s, l))| Step::Unlock(o, s, l)),
        2 => (1..5u32, range(), any::<bool>()).prop_map(|(o, (s, l), x)| Step::Test(o, s, l, x)),
        1 => (0..8usize).prop_map(Step::Cancel),
        1 => (1..5u32).prop_map(Step::Gone),
    ];
    proptest::collection::vec(step, 0..80)
}

/// An owner of its own host, so that hosts can go.
fn host(n: u32) -> Owner {
    Owner {
        client: client(n as u8),
        ..owner(n)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn the_table_does_what_the_model_does(steps in random_steps()) {
        let t = table();
        let f = file(1);
        let mut model = Model { bytes: vec![Vec::new(); BYTES as usize], ..Model::default() };
        for step in steps {
            let mut grants = Vec::new();
            match step {
                Step::Lock(o, s, l, x, wait) => {
                    let want = of(host(o), s, l, x);
                    let clash = model.conflicts(&want);
                    let cycle = clash && wait && model.deadlock(&want);
                    let queued = model.queue.contains(&want);
                    let got = t.lock(f, want.clone(), wait, &mut grants);
                    match (clash, wait) {
                        (false, _) => {
                            prop_assert_eq!(got, Verdict::Granted);
                            model.queue.retain(|w| *w != want);
                            model.set(&want);
                        }
                        (true, false) => {
                            let Verdict::Denied(holder) = got else { panic!("{got:?}") };
                            prop_assert!(holder.owner != want.owner && (x || holder.exclusive));
                            prop_assert!(holder.range.overlaps(&want.range));
                        }
                        (true, true) if queued => prop_assert_eq!(got, Verdict::Queued),
                        (true, true) if cycle => prop_assert_eq!(got, Verdict::Deadlock),
                        (true, true) => {
                            prop_assert_eq!(got, Verdict::Queued);
                            model.queue.push(want);
                        }
                    }
                }
                Step::Unlock(o, s, l) => {
                    let r = Range::new(s, l).unwrap();
                    grants = t.unlock(f, &host(o), r).unwrap();
                    model.clear(o, r);
                }
                Step::Test(o, s, l, x) => {
                    let want = of(host(o), s, l, x);
                    prop_assert_eq!(t.test(f, &want).is_some(), model.conflicts(&want));
                }
                Step::Cancel(n) => {
                    if n < model.queue.len() {
                        let w = model.queue.remove(n);
                        prop_assert!(t.cancel(f, &w));
                    }
                }
                Step::Gone(o) => {
                    grants = t.release(&[client(o as u8)]);
                    model.clear(o, Range::ALL);
                    model.queue.retain(|w| w.owner != host(o));
                }
            }
            let granted: Vec<Lock> = grants.into_iter().map(|g| g.lock).collect();
            prop_assert_eq!(granted, model.wake());
            // Every byte is as the model has it.
            let held = t.shard(f).get(&f).map_or_else(Vec::new, |f| f.held());
            for b in 0..BYTES {
                let on = held.iter().filter(|l| l.range.start <= b && b <= l.range.last);
                let mut now: Vec<(u32, bool)> = on.map(|l| (l.owner.process(), l.exclusive)).collect();
                let mut want = model.bytes[b as usize].clone();
                now.sort_unstable();
                want.sort_unstable();
                prop_assert_eq!(now, want, "byte {}", b);
            }
            let totals = t.totals();
            prop_assert_eq!((totals.held, totals.waiting), (held.len(), model.queue.len()));
        }
        t.release_all();
        prop_assert_eq!(t.totals(), Totals { held: 0, waiting: 0, bytes: 0 });
    }
}
