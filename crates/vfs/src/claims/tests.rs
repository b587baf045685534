use std::time::Duration;

use super::file::tree::STEPS;
use super::*;
use std::future::Future;
use weir_base::{Ino, VolumeId};

pub(super) const NFS: ServiceId = ServiceId(0);

pub(super) fn table() -> Claims {
    Claims::new(Budget::new(256 << 20))
}

/// A sink that keeps its notices.
#[derive(Default)]
pub(super) struct Notices(Mutex<Vec<Notice>>);

impl Notices {
    pub(super) fn attached(to: &Claims) -> Arc<Notices> {
        let sink = Arc::new(Notices::default());
        for service in 0..ServiceId::COUNT {
            let sink: Weak<dyn Sink> = Arc::downgrade(&(Arc::clone(&sink) as Arc<dyn Sink>));
            to.attach(ServiceId(service as u8), sink);
        }
        sink
    }

    pub(super) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.lock())
    }

    /// The locks that were granted to requests that waited, and nothing else.
    fn grants(&self) -> Vec<Lock> {
        let of = |notice| match notice {
            Notice::Granted(grant) => grant.lock,
            other => panic!("{other:?}"),
        };
        self.take().into_iter().map(of).collect()
    }

    /// The processes of their owners.
    fn owners(&self) -> Vec<u32> {
        self.grants().iter().map(|l| l.owner.process()).collect()
    }
}

impl Sink for Notices {
    fn notify(&self, notice: Notice) {
        self.0.lock().push(notice);
    }
}

pub(super) fn file(n: u64) -> FileId {
    FileId {
        namespace: crate::Namespace::Live,
        volume: VolumeId(1),
        ino: Ino(n),
    }
}

pub(super) fn client(n: u8) -> Client {
    Client {
        service: NFS,
        address: IpAddr::from([10, 0, 0, n]),
        name: Arc::from(&b"host"[..]),
    }
}

fn owner(n: u32) -> Owner {
    Owner {
        client: client(1),
        who: OwnerId::Process(n),
        shown: Arc::from(&b"shown"[..]),
    }
}

fn make_lock(owner: Owner, start: u64, length: u64, exclusive: bool) -> Lock {
    Lock {
        owner,
        range: Range::new(start, length).unwrap(),
        exclusive,
        mandatory: false,
    }
}

fn lock(n: u32, start: u64, length: u64, exclusive: bool) -> Lock {
    make_lock(owner(n), start, length, exclusive)
}

fn request_lock(t: &Claims, file: FileId, want: Lock, wait: bool) -> Verdict {
    t.lock(file, &want, &want.owner.who, wait)
}

/// Reserves a file as NLM does.
fn share(t: &Claims, file: FileId, owner: &Owner, access: u8, deny: u8) -> OpenOutcome {
    t.open(
        file,
        &OpenRequest {
            owner,
            key: &owner.who,
            access: Modes(access),
            deny: Modes(deny),
            enforced: false,
            overwrite: false,
        },
    )
}

pub(super) const NOTHING: Totals = Totals {
    held: 0,
    grants: 0,
    waiting: 0,
    bytes: 0,
};

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
    let sink = Notices::attached(&t);
    assert_eq!(
        request_lock(&t, file(1), lock(1, 0, 10, true), true),
        Verdict::Granted
    );
    for n in 2..5 {
        assert_eq!(
            request_lock(&t, file(1), lock(n, 0, 10, n == 2), true),
            Verdict::Queued
        );
    }
    // Asking again does not queue twice.
    assert_eq!(
        request_lock(&t, file(1), lock(2, 0, 10, true), true),
        Verdict::Queued
    );
    assert_eq!((t.totals().held, t.totals().waiting), (1, 3));
    t.unlock(file(1), &owner(1), Range::ALL).unwrap();
    assert_eq!(sink.owners(), [2]);
    // Both readers go together.
    t.unlock(file(1), &owner(2), Range::ALL).unwrap();
    assert_eq!(sink.owners(), [3, 4]);
    assert!(t.holds(file(1), &lock(3, 2, 2, false)));
    assert!(!t.holds(file(1), &lock(3, 2, 2, true)));
    t.release(&[client(1)]);
    assert_eq!(t.totals(), NOTHING);
}

#[test]
fn a_lock_that_becomes_shared_lets_readers_go_on() {
    let t = table();
    let sink = Notices::attached(&t);
    request_lock(&t, file(1), lock(1, 0, 10, true), false);
    for (n, exclusive) in [(2, false), (3, true), (4, false)] {
        assert_eq!(
            request_lock(&t, file(1), lock(n, 5, 1, exclusive), true),
            Verdict::Queued
        );
    }
    assert_eq!(
        request_lock(&t, file(1), lock(1, 5, 5, false), false),
        Verdict::Granted
    );
    assert_eq!(sink.owners(), [2, 4]);
    assert_eq!(
        t.test(file(1), &lock(9, 0, 5, false)).unwrap().owner,
        owner(1)
    );
}

#[test]
fn a_grant_shows_what_its_request_showed() {
    let t = table();
    let sink = Notices::attached(&t);
    request_lock(&t, file(1), lock(1, 0, 10, true), false);
    request_lock(&t, file(1), lock(2, 50, 1, true), false);
    let mut want = lock(2, 0, 10, true);
    want.owner.shown = Arc::from(&b"another"[..]);
    assert_eq!(request_lock(&t, file(1), want, true), Verdict::Queued);
    t.unlock(file(1), &owner(1), Range::ALL).unwrap();
    assert_eq!(*sink.grants()[0].owner.shown, *b"another");
}

#[test]
fn cancelled_requests_are_not_granted() {
    let t = table();
    let sink = Notices::attached(&t);
    request_lock(&t, file(1), lock(1, 0, 10, true), false);
    request_lock(&t, file(1), lock(2, 0, 10, true), true);
    assert!(t.cancel(file(1), &lock(2, 0, 10, true)));
    assert!(!t.cancel(file(1), &lock(2, 0, 10, true)));
    t.unlock(file(1), &owner(1), Range::ALL).unwrap();
    assert_eq!(sink.take(), []);
    assert_eq!(t.totals().bytes, 0);
}

#[test]
fn circles_of_waiting_owners_are_refused() {
    let t = table();
    for n in 1..4 {
        assert_eq!(
            request_lock(&t, file(n.into()), lock(n, 0, 1, true), false),
            Verdict::Granted
        );
    }
    assert_eq!(
        request_lock(&t, file(2), lock(1, 0, 1, true), true),
        Verdict::Queued
    );
    assert_eq!(
        request_lock(&t, file(3), lock(2, 0, 1, true), true),
        Verdict::Queued
    );
    assert_eq!(
        request_lock(&t, file(1), lock(3, 0, 1, true), true),
        Verdict::Deadlock
    );
    assert_eq!(
        request_lock(&t, file(1), lock(3, 5, 1, true), true),
        Verdict::Granted
    );
    // Without waiting there is no cycle.
    assert!(matches!(
        request_lock(&t, file(1), lock(3, 0, 1, true), false),
        Verdict::Denied(_)
    ));
    // Once one of them has given up there is none any more.
    assert!(t.cancel(file(3), &lock(2, 0, 1, true)));
    assert_eq!(
        request_lock(&t, file(1), lock(3, 0, 1, true), true),
        Verdict::Queued
    );
}

#[test]
fn a_cycle_is_found_behind_thousands_of_shared_locks() {
    let t = table();
    for n in 0..5000 {
        request_lock(&t, file(1), lock(n, 0, 1, false), false);
    }
    request_lock(&t, file(2), lock(9999, 0, 1, true), false);
    // The last of them waits for 9999, which then must not wait for the shared locks.
    assert_eq!(
        request_lock(&t, file(2), lock(4999, 0, 1, true), true),
        Verdict::Queued
    );
    let (work, verdict) = steps(|| request_lock(&t, file(1), lock(9999, 0, 1, true), true));
    assert_eq!(verdict, Verdict::Deadlock);
    assert!(work < 10_000, "{work}");
}

#[test]
fn reservations_exclude_what_they_deny() {
    let t = table();
    assert_eq!(share(&t, file(1), &owner(1), 1, 2), OpenOutcome::Granted);
    assert_eq!(share(&t, file(1), &owner(2), 1, 0), OpenOutcome::Granted);
    assert_eq!(share(&t, file(1), &owner(3), 2, 0), OpenOutcome::Denied);
    assert_eq!(share(&t, file(1), &owner(3), 1, 1), OpenOutcome::Denied);
    // An owner's second reservation replaces its first, which is not in its way.
    assert_eq!(share(&t, file(1), &owner(1), 3, 2), OpenOutcome::Granted);
    assert_eq!(t.totals().held, 2);
    t.close(file(1), &owner(1));
    assert_eq!(share(&t, file(1), &owner(3), 2, 0), OpenOutcome::Granted);
    t.release(&[client(1)]);
    assert_eq!(t.totals(), NOTHING);
}

/// Checks that nothing a client can do makes the table work more than a multiple of the logarithm.
#[test]
fn the_work_of_a_call_is_bounded() {
    let t = table();
    let f = file(1);
    let n = 40_000u32;
    // Other owners' shared locks, all over each other; another owner's exclusive ones behind them;
    // and ours.
    for i in 0..n {
        request_lock(&t, f, lock(i, 0, 1 << 20, false), false);
        request_lock(&t, f, lock(n, (1 << 20) + 2 * u64::from(i), 1, true), false);
        request_lock(
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
        let (work, _) = steps(|| request_lock(&t, f, want.clone(), false));
        assert!(work <= 300, "LOCK of {what}: {work}");
    }
    // Nobody waits: there is no search.
    let (work, verdict) = steps(|| request_lock(&t, f, lock(me + 9, 0, 0, true), true));
    assert_eq!(verdict, Verdict::Queued);
    assert!(
        work <= 300,
        "a request that waits for {n} shared locks: {work}"
    );
    // One owner does: the search compares with that one only.
    let (work, verdict) = steps(|| request_lock(&t, f, lock(me + 10, 0, 0, true), true));
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
    let sink = Notices::attached(&t);
    let f = file(1);
    request_lock(&t, f, lock(0, 0, 1, true), false);
    let crowd = MAX_WAITING as u32;
    for n in 1..=crowd {
        assert_eq!(
            request_lock(&t, f, lock(n, 0, 1, true), true),
            Verdict::Queued
        );
    }
    for n in 0..10 {
        let (work, _) = steps(|| t.unlock(f, &owner(n), Range::ALL).unwrap());
        assert_eq!(sink.owners(), [n + 1]);
        assert!(work <= 2 * u64::from(crowd) + 300, "{work}");
    }
}

#[test]
fn the_search_for_deadlocks_ends() {
    let t = table();
    // Owners of many addresses hold a byte each and wait for all of them, in two files: everyone
    // may wait for everyone.
    let many = |n: u32, owner: u32| Owner {
        client: client((n % 16) as u8),
        ..self::owner(owner)
    };
    for n in 0..3000 {
        request_lock(&t, file(1), make_lock(many(n, n), 0, 0, false), false);
        request_lock(&t, file(2), make_lock(many(n, n), 0, 0, false), false);
    }
    let mut most = 0;
    for n in 3000..6000 {
        let (work, verdict) = steps(|| {
            request_lock(
                &t,
                file(1 + u64::from(n % 2)),
                make_lock(many(n, n), 0, 0, true),
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
    let t = Claims::new(Arc::clone(&budget));
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
            match request_lock(
                &t,
                file(f),
                make_lock(by(address, process), start, 1, false),
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
        request_lock(&t, file(1), make_lock(by(4, 1), 1, 1, false), false),
        Verdict::Granted
    );
    assert_eq!(share(&t, file(3), &by(1, 1), 1, 0), OpenOutcome::Full);
    let full = make_lock(by(1, 1), 0, 1, true);
    assert!(
        matches!(request_lock(&t, file(2), full, true), Verdict::Full),
        "no room to wait either"
    );
    // Splitting a lock takes room; joining and unlocking do not.
    let whole = make_lock(by(4, 1), 0, 0, false);
    assert_eq!(request_lock(&t, file(9999), whole, false), Verdict::Granted);
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
    assert_eq!(t.totals(), NOTHING);
    assert_eq!(budget.used(), 0);
}

#[test]
fn few_requests_of_an_address_wait() {
    let t = table();
    request_lock(&t, file(1), lock(0, 0, 0, true), false);
    for n in 0..MAX_WAITING as u32 {
        assert_eq!(
            request_lock(&t, file(1), lock(n + 1, 0, 0, true), true),
            Verdict::Queued
        );
    }
    assert_eq!(
        request_lock(&t, file(1), lock(99_999, 0, 0, true), true),
        Verdict::Full
    );
    let elsewhere = Owner {
        client: client(2),
        ..owner(1)
    };
    assert_eq!(
        request_lock(&t, file(1), make_lock(elsewhere, 0, 0, true), true),
        Verdict::Queued
    );
    assert!(t.cancel(file(1), &lock(1, 0, 0, true)));
    assert_eq!(
        request_lock(&t, file(1), lock(99_999, 0, 0, true), true),
        Verdict::Queued
    );
}

#[test]
fn a_host_that_goes_leaves_the_others_theirs() {
    let t = table();
    let sink = Notices::attached(&t);
    let by = |address: u8, name: &[u8]| Owner {
        client: Client {
            name: Arc::from(name),
            ..client(address)
        },
        ..owner(1)
    };
    let (a, b, c) = (by(1, b"a"), by(1, b"b"), by(2, b"a"));
    for (at, o) in [&a, &b, &c].into_iter().enumerate() {
        request_lock(&t, file(1), make_lock(o.clone(), at as u64, 1, true), false);
        request_lock(
            &t,
            file(2 + at as u64),
            make_lock(o.clone(), 0, 1, true),
            false,
        );
    }
    assert_eq!(
        request_lock(&t, file(1), make_lock(c.clone(), 0, 1, true), true),
        Verdict::Queued
    );
    assert_eq!(
        t.clients_at(NFS, c.client.address),
        std::slice::from_ref(&c.client)
    );
    t.release(std::slice::from_ref(&a.client));
    let grants = sink.grants();
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].owner, c);
    assert!(!t.has_client(&a.client) && t.has_client(&b.client) && t.has_client(&c.client));
    t.release_all(NFS);
    assert_eq!(t.totals(), NOTHING);
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
                        1 => drop(t.cancel(f, &make_lock(me.clone(), start, length, true))),
                        _ => {
                            let want = make_lock(me.clone(), start, length, x >> 32 & 1 == 0);
                            request_lock(t, f, want, x >> 33 & 1 == 0);
                        }
                    }
                }
                t.release(&[me.client]);
            });
        }
    });
    // Grants to an owner after it released everything remain; they are held by someone.
    t.release_all(NFS);
    assert_eq!(t.totals(), NOTHING);
    assert!(t.graph.lock().is_empty());
}

/// A client of another service at the same address as `client(n)`.
pub(super) fn smb(n: u8, who: u128) -> Owner {
    Owner {
        client: Client {
            service: ServiceId(2),
            ..client(n)
        },
        who: OwnerId::key(who),
        shown: Arc::default(),
    }
}

pub(super) fn open(
    t: &Claims,
    file: FileId,
    owner: &Owner,
    access: Modes,
    deny: Modes,
) -> OpenOutcome {
    t.open(
        file,
        &OpenRequest {
            owner,
            key: &owner.who,
            access,
            deny,
            enforced: true,
            overwrite: false,
        },
    )
}

#[test]
fn room_is_made_by_those_who_are_parked() {
    let t = Claims::new(Budget::new(1 << 20));
    let sink = Notices::attached(&t);
    for n in 1..=3 {
        let owner = smb(n, 1);
        for f in 0..60 {
            assert_eq!(
                open(&t, file(f), &owner, Modes::READ, Modes::NONE),
                OpenOutcome::Granted
            );
        }
        t.park(&owner.client);
    }
    assert_eq!(sink.take(), []);
    // Others take what is left, and then what the first ones had that were parked longest.
    let mut others = 4;
    while t.has_client(&smb(1, 1).client) {
        let fill = smb(others, 1);
        for f in 1000..1200 {
            let opened = open(&t, file(f), &fill, Modes::READ, Modes::NONE);
            if opened == OpenOutcome::Full {
                break;
            }
        }
        others += 1;
        assert!(others < 20, "nobody had to go");
    }
    let notices = sink.take();
    assert_eq!(
        notices.iter().filter(|n| **n == Notice::Recall).count(),
        ServiceId::COUNT,
        "each service is asked once between two ticks"
    );
    let dropped = notices.iter().filter_map(|n| match n {
        Notice::Dropped { owner, .. } => Some(owner.client.address),
        _ => None,
    });
    assert!(dropped.clone().count() >= 60);
    assert_eq!(dropped.into_iter().next(), Some(client(1).address));
    // An address that has its part does not take others'.
    let greedy = smb(3, 2);
    let before = t.has_client(&smb(3, 1).client);
    let mut f = 5000;
    while open(&t, file(f), &greedy, Modes::READ, Modes::NONE) == OpenOutcome::Granted {
        f += 1;
    }
    assert!(before && t.ledger.bytes(client(3).address) <= (1 << 20) / ledger::SHARE);
    for n in 1..others {
        t.release(&[smb(n, 1).client]);
    }
    assert_eq!(t.totals(), NOTHING);
}

#[test]
fn clients_that_were_parked_and_dropped_are_forgotten() {
    let t = table();
    for n in 0..10_000 {
        let mut owner = smb(1, 1);
        owner.client.name = Arc::from(format!("client {n}").as_bytes());
        let opened = open(&t, file(1), &owner, Modes::READ, Modes::WRITE);
        assert_eq!(opened, OpenOutcome::Granted);
        t.park(&owner.client);
        let passage = t.io(file(1), Actor::Stateless, true, Range::ALL);
        assert_eq!(passage, Passage::Free);
        assert!(t.parked.lock().len() < 1100, "{n}");
    }
    assert_eq!(t.totals(), NOTHING);
}

#[test]
fn thousands_of_caches_and_of_operations_that_break_them_cost_a_pass() {
    let t = table();
    let sink = Notices::attached(&t);
    let n = 20_000;
    for i in 0..n {
        let holder = smb((i % 16) as u8, i);
        let (work, given) =
            steps(|| t.grant(file(1), &holder, Kind::Lease, CacheRights::READ_HANDLE));
        assert_eq!(given, CacheRights::READ_HANDLE);
        assert!(work < 100, "a lease beside {i}: {work}");
    }
    let (work, passage) = steps(|| t.io(file(1), Actor::Stateless, false, Range::ALL));
    assert_eq!(passage, Passage::Free, "reading takes nothing from readers");
    assert!(work < 100, "{work}");
    let passage = t.io(file(1), Actor::Stateless, true, Range::ALL);
    let Passage::Breaking(ticket) = passage else {
        panic!("{passage:?}")
    };
    assert_eq!(sink.take().len(), n as usize);
    for _ in 0..100 {
        let (work, passage) = steps(|| t.io(file(1), Actor::Stateless, true, Range::ALL));
        assert!(matches!(passage, Passage::Breaking(_)));
        assert!(work < 100, "behind a break: {work}");
    }
    assert_eq!(sink.take(), [], "nobody is asked twice");
    t.tick(Duration::from_secs(1));
    t.tick(Duration::from_secs(35));
    assert!(!ticket.is_over());
    t.tick(Duration::from_secs(36));
    assert!(ticket.is_over());
    assert_eq!(sink.take().len(), n as usize, "revoked");
    assert_eq!(
        t.io(file(1), Actor::Stateless, true, Range::ALL),
        Passage::Free
    );
    assert_eq!(t.totals(), NOTHING);
}

#[test]
fn who_waits_for_a_break_is_woken_by_its_answer() {
    use std::task::{Context, Wake};
    #[derive(Default)]
    struct WakeFlag(AtomicBool);
    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let t = table();
    let sink = Notices::attached(&t);
    let holder = smb(1, 1);
    assert_eq!(
        t.grant(file(1), &holder, Kind::Lease, CacheRights::ALL),
        CacheRights::ALL
    );
    let opened = open(&t, file(1), &smb(2, 1), Modes::READ, Modes::NONE);
    let OpenOutcome::Breaking(ticket) = opened else {
        panic!("{opened:?}")
    };
    let to = sink.take();
    assert!(matches!(
        to[..],
        [Notice::Break {
            to: CacheRights::READ_HANDLE,
            answer: true,
            ..
        }]
    ));
    let woken = Arc::new(WakeFlag::default());
    let waker = Arc::clone(&woken).into();
    let mut over = std::pin::pin!(ticket.wait());
    let mut poll = || {
        over.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
    };
    assert!(!poll());
    assert!(
        !t.acknowledge(file(1), &holder, CacheRights::ALL),
        "more than it may keep"
    );
    assert!(!poll() && !woken.0.load(Ordering::Relaxed));
    assert!(t.acknowledge(file(1), &holder, CacheRights::READ_HANDLE));
    assert!(woken.0.load(Ordering::Relaxed) && poll());
    assert_eq!(
        open(&t, file(1), &smb(2, 1), Modes::READ, Modes::NONE),
        OpenOutcome::Granted
    );
    // An owner that gives up its open while the other waits, too.
    assert_eq!(
        t.grant(file(1), &holder, Kind::Lease, CacheRights::READ_HANDLE),
        CacheRights::READ_HANDLE
    );
    let passage = t.io(file(1), Actor::Stateless, true, Range::ALL);
    let Passage::Breaking(ticket) = passage else {
        panic!("{passage:?}")
    };
    t.release(&[holder.client]);
    assert!(ticket.is_over());
}

#[test]
fn a_snapshot_is_cached_without_being_remembered() {
    let t = table();
    let f = FileId {
        namespace: crate::Namespace::Snapshot(3),
        ..file(1)
    };
    let kept = t.grant(f, &smb(1, 1), Kind::Lease, CacheRights::ALL);
    assert_eq!(kept, CacheRights::READ_HANDLE);
    assert_eq!(t.totals(), NOTHING);
    assert!(t.acknowledge(f, &smb(1, 1), CacheRights::NONE));
}

#[test]
fn threads_share_opens_caches_and_parking() {
    let t = table();
    let sink = Notices::attached(&t);
    std::thread::scope(|s| {
        for thread in 0..4u8 {
            let t = &t;
            s.spawn(move || {
                let mut x = u64::from(thread) + 1;
                for _ in 0..6000 {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    let f = file(x % 3);
                    let me = smb(thread, u128::from(x >> 8 & 3));
                    let modes = |at: u32| Modes((x >> at & 7) as u8);
                    let range = Range::exact(x >> 20 & 15, x >> 24 & 7).unwrap();
                    match x >> 40 & 15 {
                        0..=3 => drop(open(t, f, &me, modes(12), modes(16) & modes(28))),
                        4..=5 => drop(t.close(f, &me)),
                        6..=7 => drop(t.grant(f, &me, Kind::Lease, CacheRights(modes(12).0))),
                        8 => drop(t.acknowledge(f, &me, CacheRights::NONE)),
                        9 => drop(t.io(f, Actor::Stateless, x >> 50 & 1 == 0, range)),
                        10 => t.park(&me.client),
                        11 => t.unpark(&me.client),
                        12 => drop(t.unlock_exact(f, &me, range)),
                        13 => t.release(&[me.client]),
                        _ => {
                            let mut want = make_lock(me.clone(), 0, 1, x >> 50 & 1 == 0);
                            (want.range, want.mandatory) = (range, true);
                            t.lock(f, &want, &me.who, x >> 51 & 1 == 0);
                        }
                    }
                }
            });
        }
    });
    drop(sink);
    t.release_all(ServiceId(2));
    assert_eq!(t.totals(), NOTHING);
    assert!((0..3).all(|f| t.version_of(file(f)).none()));
    assert!(t.graph.lock().is_empty());
}

/// Only another client that uses the file, or denies a use, is in the way of one that is to have it
/// alone. A client that is away is not, nor one whose close is under way.
#[test]
fn a_file_is_had_alone_when_no_other_client_uses_it() {
    let t = table();
    let f = file(1);
    let (me, mine, other) = (smb(1, 1), smb(1, 2), smb(2, 1));
    let sole = || t.sole(f, &me, &me.who);
    assert_eq!(sole(), Passage::Free, "nobody has it");
    for owner in [&me, &mine] {
        let all = Modes::BOTH | Modes::DELETE;
        assert_eq!(open(&t, f, owner, all, Modes::NONE), OpenOutcome::Granted);
    }
    assert_eq!(sole(), Passage::Free, "the same client");
    assert_eq!(
        open(&t, f, &other, Modes::NONE, Modes::NONE),
        OpenOutcome::Granted
    );
    assert_eq!(sole(), Passage::Free, "attributes alone");
    assert_eq!(
        open(&t, f, &other, Modes::READ, Modes::NONE),
        OpenOutcome::Granted
    );
    assert_eq!(sole(), Passage::Denied);
    t.park(&other.client);
    assert_eq!(sole(), Passage::Free);
    assert!(
        !t.has_client(&other.client),
        "one without a connection goes"
    );
    // A close that it has put off under its lease.
    let later = smb(3, 1);
    assert_eq!(
        open(&t, f, &later, Modes::READ, Modes::NONE),
        OpenOutcome::Granted
    );
    let kept = CacheRights::READ | CacheRights::HANDLE;
    assert_eq!(t.grant(f, &later, Kind::Lease, kept), kept);
    let Passage::Breaking(ticket) = sole() else {
        panic!("it is not asked")
    };
    t.close(f, &later);
    t.acknowledge(f, &later, CacheRights::READ);
    assert!(ticket.is_over());
    assert_eq!(sole(), Passage::Free);
}
