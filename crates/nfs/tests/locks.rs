//! NLM version 4 and the status monitor: locks, waiting, restarts of either
//! side.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::net::IpAddr;
use std::time::Duration;
use support::locker::*;
use support::{GRACE, NLM, NSM, R, Server, X, host_record};
use weir_nfs::{Outcome, OutgoingCall};
use weir_vfs::names::{Resolver, Unavailable};
use weir_vfs::{Clients, Export, Flavours, Rule, Squash};

/// The parts of a call of the server's own: procedure and arguments.
fn parts(call: &OutgoingCall) -> (u32, R) {
    let mut r = R(call.message.to_vec(), 0);
    r.u();
    assert_eq!((r.u(), r.u()), (0, 2));
    assert_eq!((r.u(), r.u()), (call.program, call.version));
    let procedure = r.u();
    r.raw(16);
    (procedure, r)
}

/// An RPC reply with an `nlm4_res`.
fn nlm_reply(cookie: &[u8], stat: u32) -> Vec<u8> {
    X::new().u(1).u(1).u(0).u(0).u(0).u(0).o(cookie).u(stat).0
}

#[test]
fn locks_conflict_between_owners_and_say_who_is_in_the_way() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, b, c] = lockers(&s, &file);
    assert_eq!(a.lock(false, true, 10, 10), GRANTED);
    assert_eq!(a.lock(false, true, 10, 10), GRANTED, "asked again");
    assert_eq!(b.lock(false, true, 19, 1), DENIED);
    assert_eq!(b.lock(false, false, 19, 1), DENIED);
    assert_eq!(b.lock(false, true, 20, 0), GRANTED);
    let mut r = c.test(false, 0, 0);
    assert_eq!(
        (r.u(), r.u(), r.u(), r.o()),
        (DENIED, 1, 1, b"1@alpha".to_vec())
    );
    assert_eq!((r.h(), r.h()), (10, 10));
    r.end();
    let mut r = c.test(false, 1000, 1);
    assert_eq!((r.u(), r.u(), r.u()), (DENIED, 1, 2));
    r.o();
    assert_eq!((r.h(), r.h()), (20, 0));
    let mut r = c.test(true, 0, 10);
    assert_eq!(r.u(), GRANTED);
    r.end();
    assert_eq!(a.unlock(0, 0), GRANTED);
    assert_eq!(a.unlock(0, 0), GRANTED, "nothing is left, and that is fine");
    assert_eq!(c.lock(false, false, 0, 20), GRANTED);
    assert_eq!(c.lock(false, false, u64::MAX, 2), FBIG);
    assert_eq!(a.lock(false, true, 5, 1), DENIED);
}

#[test]
fn handles_are_checked() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    assert_eq!(s.status(12, &X::new().o(&root).o(b"file")), 0);
    assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 0), STALE);
    assert_eq!(lockers(&s, b"nonsense")[0].lock(false, true, 0, 0), STALE);
}

#[test]
fn a_blocked_request_is_granted_by_a_call_until_it_is_answered() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    assert_eq!(a.lock(false, true, 0, 0), GRANTED);
    assert_eq!(c.lock(true, true, 5, 7), BLOCKED);
    assert!(s.outgoing().is_empty());
    a.unlock(0, 0);
    let calls = s.outgoing();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (calls[0].to, calls[0].program),
        ("10.0.0.2".parse().unwrap(), 100_021)
    );
    assert_eq!(
        calls[0].from,
        s.conn().local.ip(),
        "from where the client asked"
    );
    let (procedure, mut r) = parts(&calls[0]);
    assert_eq!(procedure, 5);
    let cookie = r.o();
    assert_eq!((r.u(), r.o(), r.o()), (1, b"beta".to_vec(), file.clone()));
    assert_eq!((r.o(), r.u(), r.h(), r.h()), (b"1@beta".to_vec(), 1, 5, 7));
    r.end();
    // No answer: called again after a while.
    s.service.outgoing_done(calls[0].token, None);
    s.service.tick();
    assert!(s.outgoing().is_empty());
    s.clock.advance(Duration::from_secs(10));
    s.service.tick();
    assert_eq!(s.outgoing(), calls);
    s.service
        .outgoing_done(calls[0].token, Some(&nlm_reply(&cookie, GRANTED)));
    s.clock.advance(Duration::from_secs(60));
    s.service.tick();
    assert!(s.outgoing().is_empty());
    assert_eq!(a.lock(false, true, 5, 1), DENIED, "the lock is held");
}

#[test]
fn a_grant_that_is_not_wanted_is_taken_back() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, b, c] = lockers(&s, &file);
    a.lock(false, true, 0, 0);
    assert_eq!(c.lock(true, true, 0, 0), BLOCKED);
    assert_eq!(b.lock(true, true, 0, 0), BLOCKED);
    a.unlock(0, 0);
    let first = s.outgoing();
    let cookie = parts(&first[0]).1.o();
    // The answer may also come as a call of its own (GRANTED_RES).
    let r = s
        .from("10.0.0.2")
        .call(NLM, 15, &X::new().o(&cookie).u(DENIED));
    r.end();
    let second = s.outgoing();
    assert_eq!(
        second[0].to,
        "10.0.0.1".parse::<std::net::IpAddr>().unwrap()
    );
    assert_eq!(c.lock(false, true, 0, 0), DENIED, "it is b's now");
    // A client that gives up before it has answered.
    assert_eq!(b.cancel(true, 0, 0), GRANTED);
    assert_eq!(b.cancel(true, 0, 0), DENIED, "nothing to cancel");
    assert_eq!(c.lock(false, true, 0, 0), GRANTED);
}

#[test]
fn circles_are_refused() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    a.lock(false, true, 0, 1);
    c.lock(false, true, 1, 1);
    assert_eq!(a.lock(true, true, 1, 1), BLOCKED);
    assert_eq!(c.lock(true, true, 0, 1), DEADLOCK);
}

#[test]
fn asynchronous_calls_are_answered_by_calls() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    a.lock(false, true, 0, 0);
    let cases = [
        (6, c.alock(X::new().o(b"cookie").u(1), 0, 1), 11, DENIED),
        (7, c.lock_args(false, true, 0, 1, false), 12, DENIED),
        (
            8,
            c.alock(X::new().o(b"cookie").u(1).u(1), 0, 1),
            13,
            DENIED,
        ),
        (9, c.alock(X::new().o(b"cookie"), 0, 1), 14, GRANTED),
    ];
    for (msg, args, res, stat) in cases {
        s.from(c.addr).call(NLM, msg, &args).end();
        let calls = s.outgoing();
        assert_eq!(calls.len(), 1);
        let (procedure, mut r) = parts(&calls[0]);
        assert_eq!((procedure, r.o(), r.u()), (res, b"cookie".to_vec(), stat));
    }
    // A server's GRANTED_MSG: we are no client of anyone, and do not call a host that pretends that
    // we are.
    let args = c.alock(X::new().o(b"cookie").u(1), 0, 1);
    s.from(c.addr).call(NLM, 10, &args).end();
    assert!(s.outgoing().is_empty());
}

#[test]
fn a_client_that_restarts_loses_its_locks_only() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, b, c] = lockers(&s, &file);
    a.lock(false, true, 0, 1);
    b.lock(false, true, 1, 1);
    c.lock(false, true, 2, 1);
    // Another host of the same name elsewhere is another host.
    let other = Locker {
        addr: "10.0.0.3",
        ..a.clone()
    };
    assert_eq!(other.lock(false, true, 3, 1), GRANTED);
    let notify = X::new().o(b"alpha").u(5);
    tell(&s, "10.0.0.1", NOTIFY, &notify, &Hosts(&[]));
    assert_eq!(c.lock(false, true, 0, 3), GRANTED);
    assert_eq!(c.lock(false, true, 3, 1), DENIED);
    // FREE_ALL does the same.
    s.from("10.0.0.3").call(NLM, 23, &notify).end();
    assert_eq!(c.lock(false, true, 3, 1), GRANTED);
    // A waiting client gets its turn.
    assert_eq!(a.lock(true, true, 0, 1), BLOCKED);
    s.from("10.0.0.2")
        .call(NSM, 6, &X::new().o(b"beta").u(7))
        .end();
    assert_eq!(s.outgoing().len(), 1);
}

#[test]
fn after_a_restart_locks_are_claimed_before_new_ones_are_given() {
    let mut s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    {
        let [a, _, c] = lockers(&s, &file);
        a.lock(false, true, 0, 1);
        c.lock(false, true, 1, 1);
        assert_eq!(a.reclaim(0, 1), DENIED, "no grace period now");
    }
    let recorded = [("10.0.0.1", &b"alpha"[..]), ("10.0.0.2", b"beta")];
    let recorded = recorded.map(|(address, name)| host_record(address, name, &["10.0.0.99"]));
    assert_eq!(s.recorded_hosts(), recorded);
    s.restart();
    let notices = s.outgoing();
    let mut told: Vec<_> = notices
        .iter()
        .map(|n| (n.to.to_string(), n.program))
        .collect();
    told.sort();
    told.dedup();
    assert_eq!(
        told,
        [
            ("10.0.0.1".to_owned(), 100_024),
            ("10.0.0.2".to_owned(), 100_024)
        ]
    );
    let (procedure, mut r) = parts(&notices[0]);
    assert_eq!((procedure, r.o(), r.u()), (6, b"weir".to_vec(), 3));
    {
        let [a, b, c] = lockers(&s, &file);
        assert_eq!(b.lock(false, true, 9, 1), GRACE_PERIOD);
        assert_eq!(b.test(true, 9, 1).u(), GRACE_PERIOD);
        assert_eq!(a.reclaim(0, 1), GRANTED);
        s.clock.advance(GRACE);
        assert_eq!(c.reclaim(1, 1), DENIED, "too late");
        assert_eq!(b.lock(false, true, 0, 1), DENIED, "reclaimed");
        assert_eq!(b.lock(false, true, 1, 1), GRANTED);
        // A host that holds nothing is forgotten, and the next start has no grace.
        for l in [&a, &b, &c] {
            l.unlock(0, 0);
        }
        s.clock.advance(Duration::from_secs(61));
        s.service.tick();
    }
    s.restart();
    assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 1), GRANTED);
}

#[test]
fn reservations() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let share = |p: u32, oh: &[u8], deny: u32, access: u32| {
        let args = X::new()
            .o(b"c")
            .o(b"alpha")
            .o(&file)
            .o(oh)
            .u(deny)
            .u(access)
            .u(0);
        let mut r = s.from("10.0.0.1").call(NLM, p, &args);
        assert_eq!(r.o(), b"c");
        let stat = r.u();
        r.u();
        r.end();
        stat
    };
    assert_eq!(share(20, b"one", 2, 3), GRANTED);
    assert_eq!(share(20, b"two", 0, 2), DENIED);
    assert_eq!(share(20, b"two", 0, 1), GRANTED);
    assert_eq!(share(20, b"one", 1, 3), DENIED, "denies what two does");
    assert_eq!(share(21, b"one", 2, 3), GRANTED);
    assert_eq!(share(20, b"two", 3, 3), GRANTED);
}

#[test]
fn the_lock_manager_of_this_machine_is_told_of_restarts() {
    let mut s = Server::new();
    let mon = X::new()
        .o(b"peer")
        .o(b"me")
        .u(100_021)
        .u(4)
        .u(16)
        .raw(&[7; 16]);
    let mut r = s.from("127.0.0.1").call(NSM, 2, &mon);
    assert_eq!((r.u(), r.u()), (0, 1));
    let mut r = s.from("10.0.0.1").call(NSM, 2, &mon);
    assert_eq!(r.u(), 1, "only from this machine");
    s.from("127.0.0.1")
        .call(NSM, 6, &X::new().o(b"peer").u(9))
        .end();
    let calls = s.outgoing();
    assert_eq!(
        (calls.len(), calls[0].to.is_loopback(), calls[0].program),
        (1, true, 100_021)
    );
    let (procedure, mut r) = parts(&calls[0]);
    assert_eq!(
        (procedure, r.o(), r.u(), r.raw(16)),
        (16, b"peer".to_vec(), 9, vec![7; 16])
    );
    r.end();
    s.call(NSM, 6, &X::new().o(b"stranger").u(9)).end();
    assert!(s.outgoing().is_empty());
    // Others may not say that "peer" has restarted.
    let names = Hosts(&[("peer", &["10.0.0.5"])]);
    tell(&s, "10.0.0.66", NOTIFY, &X::new().o(b"peer").u(11), &names);
    assert!(s.outgoing().is_empty());
    tell(&s, "10.0.0.5", NOTIFY, &X::new().o(b"peer").u(11), &names);
    assert_eq!(s.outgoing().len(), 1);
    let mut r =
        s.from("127.0.0.1")
            .call(NSM, 3, &X::new().o(b"peer").o(b"me").u(100_021).u(4).u(16));
    assert_eq!(r.u(), 1);
    let mut r = s.call(NSM, 2, &mon);
    assert_eq!(r.u(), 0);
    // The server's own restart is one too.
    s.restart();
    assert_eq!(s.outgoing().len(), 1);
    s.from("127.0.0.1")
        .call(NSM, 4, &X::new().o(b"me").u(100_021).u(4).u(16));
    s.restart();
    assert!(s.outgoing().is_empty());
}

#[test]
fn a_simulated_crash_starts_over() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    a.lock(false, true, 0, 1);
    s.from("10.0.0.1").call(NSM, 5, &X::new()).end();
    assert_eq!(c.lock(false, true, 0, 1), DENIED, "not from elsewhere");
    s.from("127.0.0.1").call(NSM, 5, &X::new()).end();
    assert_eq!(c.lock(false, true, 0, 1), GRACE_PERIOD);
    assert_eq!(a.reclaim(0, 1), GRANTED);
    let told = s.outgoing();
    assert!(
        told.iter()
            .any(|o| o.to.to_string() == "10.0.0.1" && o.program == NSM.0)
    );
}

/// A name service that knows these hosts.
struct Hosts(&'static [(&'static str, &'static [&'static str])]);

impl Resolver for Hosts {
    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unavailable> {
        let found = self.0.iter().find(|(host, _)| *host == name);
        Ok(found.map_or_else(Vec::new, |(_, at)| {
            at.iter().map(|a| a.parse().unwrap()).collect()
        }))
    }
    fn name(&self, _: IpAddr) -> Result<Option<String>, Unavailable> {
        Ok(None)
    }
}

/// Sends a call that may have to wait for names, which these hosts know.
fn tell(s: &Server, addr: &str, (program, procedure): ((u32, u32), u32), args: &X, names: &Hosts) {
    let record = s.from(addr).encode(program, procedure, args);
    match s.service.handle(&s.conn(), &record, s.current_time()) {
        Outcome::Later(later) => {
            s.vfs.names.serve_pending(names);
            support::block_on(later);
        }
        _ => s.vfs.names.serve_pending(names),
    }
}

/// NSM's procedure SM_NOTIFY, of version 1.
const NOTIFY: ((u32, u32), u32) = (NSM, 6);

#[test]
fn nobody_releases_the_locks_of_another_host() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    assert_eq!(a.lock(false, true, 0, 1), GRANTED);
    let names = Hosts(&[
        ("alpha", &["10.0.0.1", "10.0.0.7"]),
        ("beta", &["10.9.9.9"]),
    ]);
    let claim = |addr: &str, name: &[u8]| {
        for which in [(NLM, 23), NOTIFY] {
            tell(&s, addr, which, &X::new().o(name).u(5), &names);
        }
    };
    // A stranger with the victim's name; one that has locks itself; one whose own name is another;
    // no name, no host.
    assert_eq!(c.lock(false, true, 9, 1), GRANTED);
    for (addr, name) in [
        ("10.9.9.9", &b"alpha"[..]),
        ("10.0.0.2", b"alpha"),
        ("10.9.9.9", b"beta"),
        ("10.9.9.9", b""),
        ("10.9.9.9", b"10.0.0.1"),
    ] {
        claim(addr, name);
        assert_eq!(a.test(true, 0, 1).u(), GRANTED);
        assert_eq!(
            c.lock(false, true, 0, 1),
            DENIED,
            "{addr} {}",
            String::from_utf8_lossy(name)
        );
    }
    // The host itself from its second address: its name resolves to both.
    claim("10.0.0.7", b"alpha");
    assert_eq!(c.lock(false, true, 0, 1), GRANTED);
}

#[test]
fn of_several_hosts_behind_an_address_the_named_one_is_released() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let at = |host, start| {
        let l = Locker {
            s: &s,
            host,
            addr: "10.0.0.1",
            svid: 1,
            file: file.clone(),
        };
        assert_eq!(l.lock(false, true, start, 1), GRANTED, "{host}");
        l
    };
    let (alpha, beta) = (at("alpha", 0), at("beta.example.com", 1));
    let other = Locker {
        addr: "10.0.0.9",
        ..alpha.clone()
    };
    let notify = |name: &[u8]| {
        s.from("10.0.0.1")
            .call(NSM, 6, &X::new().o(name).u(5))
            .end()
    };
    notify(b"gamma");
    assert_eq!(
        (other.lock(false, true, 0, 1), other.lock(false, true, 1, 1)),
        (DENIED, DENIED)
    );
    notify(b"BETA");
    assert_eq!(
        (other.lock(false, true, 0, 1), other.lock(false, true, 1, 1)),
        (DENIED, GRANTED)
    );
    // Only one is left there: it may know itself by another name.
    notify(b"192.168.1.1");
    assert_eq!(other.lock(false, true, 0, 1), GRANTED);
    drop((alpha, beta));
}

#[test]
fn a_late_notice_releases_nothing_that_was_locked_since() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    let notice = |state| {
        s.from("10.0.0.1")
            .call(NSM, 6, &X::new().o(b"alpha").u(state))
            .end()
    };
    // The requests show state 3.
    assert_eq!(a.lock(false, true, 0, 1), GRANTED);
    notice(3);
    assert_eq!(c.lock(false, true, 0, 1), DENIED);
    notice(5);
    assert_eq!(c.lock(false, true, 0, 1), GRANTED);
}

#[test]
fn hosts_that_are_not_monitored_release_theirs() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    let mut r = s
        .from(a.addr)
        .call(NLM, 22, &a.lock_args(true, true, 0, 1, false));
    assert_eq!((r.o(), r.u()), (b"cookie".to_vec(), GRANTED));
    assert!(s.recorded_hosts().is_empty());
    assert_eq!(c.lock(false, true, 0, 1), DENIED);
    s.from(a.addr)
        .call(NLM, 23, &X::new().o(b"alpha").u(0))
        .end();
    assert_eq!(c.lock(false, true, 0, 1), GRANTED);
}

#[test]
fn the_status_monitor_obeys_root_of_this_machine_only() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    a.lock(false, true, 0, 1);
    s.peer.set("127.0.0.1:40000".parse().unwrap());
    s.call(NSM, 5, &X::new()).end();
    assert_eq!(c.lock(false, true, 0, 1), DENIED, "an unprivileged port");
}

#[test]
fn a_grant_is_answered_by_the_client_that_was_called() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    a.lock(false, true, 0, 0);
    assert_eq!(c.lock(true, true, 0, 0), BLOCKED);
    a.unlock(0, 0);
    let calls = s.outgoing();
    let cookie = parts(&calls[0]).1.o();
    s.from("10.0.0.66")
        .call(NLM, 15, &X::new().o(&cookie).u(DENIED))
        .end();
    assert_eq!(
        a.lock(false, true, 0, 0),
        DENIED,
        "it is held, whatever others say"
    );
    s.from("10.0.0.2")
        .call(NLM, 15, &X::new().o(&cookie).u(DENIED))
        .end();
    assert_eq!(a.lock(false, true, 0, 0), GRANTED);
}

#[test]
fn locking_takes_permission() {
    let s = Server::new();
    let root = s.root();
    s.as_user(0, 0);
    let open = |name: &[u8], mode| s.as_user(7, 7).create(&root, name, mode);
    s.status(2, &X::new().o(&root).sattr(Some(0o777), None).u(0));
    // Owners: the caller's own (7), others (8). For each file: shared and exclusive by the owner,
    // then by others.
    let cases = [
        (0o600, [GRANTED, GRANTED], [FAILED, FAILED]),
        (0o644, [GRANTED, GRANTED], [GRANTED, FAILED]),
        (0o622, [GRANTED, GRANTED], [GRANTED, GRANTED]),
        (0o666, [GRANTED, GRANTED], [GRANTED, GRANTED]),
        (0o000, [GRANTED, GRANTED], [FAILED, FAILED]),
    ];
    for (mode, own, others) in cases {
        let file = open(format!("{mode:o}").as_bytes(), mode);
        let [a, _, _] = lockers(&s, &file);
        for (uid, expected) in [(7, own), (8, others), (0, [GRANTED; 2])] {
            s.as_user(uid, uid);
            let got = [false, true].map(|exclusive| a.lock(false, exclusive, 0, 1));
            assert_eq!(got, expected, "{mode:o} by {uid}");
            let asked = a.test(true, 50, 1).u();
            assert_eq!(
                asked == GRANTED,
                expected[0] == GRANTED,
                "TEST of {mode:o} by {uid}"
            );
            // A lock may always be released.
            s.as_user(9, 9);
            assert_eq!(a.unlock(0, 0), GRANTED);
        }
        let share = |uid, access: u32| {
            let args = X::new()
                .o(b"c")
                .o(b"alpha")
                .o(&file)
                .o(b"o")
                .u(0)
                .u(access)
                .u(0);
            let mut r = s.as_user(uid, uid).from("10.0.0.1").call(NLM, 20, &args);
            r.o();
            r.u()
        };
        let reads = mode & 0o004 != 0;
        let writes = mode & 0o002 != 0;
        assert_eq!(share(8, 1) == GRANTED, reads, "{mode:o}");
        assert_eq!(share(8, 2) == GRANTED, writes, "{mode:o}");
        assert_eq!(share(8, 3) == GRANTED, reads && writes, "{mode:o}");
        assert_eq!(share(7, 3), GRANTED);
    }
    // Folders are not locked.
    assert_eq!(lockers(&s, &root)[0].lock(false, false, 0, 1), FAILED);
}

/// Linux's lockd asks by AUTH_SYS on mounts with Kerberos too.
#[test]
fn exports_for_kerberos_are_locked_by_the_clients_word() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o640);
    let publish = |flavours, writers| {
        let rule = Rule {
            flavours,
            writers,
            ..Rule::open(Squash::None)
        };
        let volume = std::sync::Arc::clone(&s.volume);
        s.vfs
            .publish(vec![Export::new("/vol1", volume, vec![rule])]);
    };
    let [a, b, _] = lockers(&s, &file);
    publish(Flavours::KRB5, Flavours::KRB5_PRIVACY);
    assert_eq!(s.status(1, &X::new().o(&file)), 13, "ACCES");
    assert_eq!(a.lock(false, true, 0, 1), GRANTED);
    assert_ne!(b.lock(false, true, 0, 1), GRANTED, "it is held");
    assert_eq!(a.unlock(0, 1), GRANTED);
    assert_eq!(b.lock(false, true, 0, 1), GRANTED);
    publish(Flavours::KRB5, Flavours::NONE);
    assert_eq!(a.lock(false, true, 5, 1), ROFS);
    assert_eq!(a.lock(false, false, 5, 1), GRANTED);
    publish(Flavours::NONE, Flavours::NONE);
    assert_eq!(a.lock(false, false, 9, 1), FAILED);
}

#[test]
fn what_may_only_be_read_is_locked_for_reading() {
    let rules = [
        ("10.0.0.1", false, Squash::None),
        ("10.0.0.2", true, Squash::None),
        ("10.0.0.3", false, Squash::Root),
    ];
    let rules = rules.map(|(clients, read_only, squash)| Rule {
        clients: Clients::parse(clients).unwrap(),
        writers: match read_only {
            true => Flavours::NONE,
            false => Flavours::SYS,
        },
        ..Rule::open(squash)
    });
    let s = Server::with(rules.to_vec());
    let file = s.create(&s.root(), b"file", 0o640);
    let [a, _, c] = lockers(&s, &file);
    assert_eq!(
        (c.lock(false, false, 0, 1), c.lock(false, true, 0, 1)),
        (GRANTED, ROFS)
    );
    assert_eq!(
        (a.lock(false, false, 0, 1), a.lock(false, true, 5, 1)),
        (GRANTED, GRANTED)
    );
    // Root of a squashed client is nobody; a stranger is not even called back.
    let squashed = Locker {
        addr: "10.0.0.3",
        ..c.clone()
    };
    assert_eq!(squashed.lock(false, false, 9, 1), FAILED);
    let stranger = Locker {
        addr: "10.0.0.66",
        ..c.clone()
    };
    assert_eq!(stranger.lock(false, false, 9, 1), FAILED);
    for verb in [6, 7, 8, 9, 10] {
        let args = match verb {
            6 | 10 => stranger.alock(X::new().o(b"cookie").u(1), 0, 1),
            7 => stranger.lock_args(false, true, 0, 1, false),
            8 => stranger.alock(X::new().o(b"cookie").u(1).u(1), 0, 1),
            _ => stranger.alock(X::new().o(b"cookie"), 0, 1),
        };
        s.from(stranger.addr).call(NLM, verb, &args).end();
        // Nor is a host that sends a handle that this server did not make.
        let nonsense = Locker {
            file: b"nonsense".to_vec(),
            ..a.clone()
        };
        s.from(a.addr)
            .call(NLM, 6, &nonsense.alock(X::new().o(b"cookie").u(1), 0, 1))
            .end();
    }
    assert_eq!(s.outgoing(), []);
}

#[test]
fn locks_of_a_file_that_is_gone_are_given_up() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let [a, _, _] = lockers(&s, &file);
    assert_eq!(a.lock(false, true, 0, 1), GRANTED);
    assert_eq!(s.status(12, &X::new().o(&root).o(b"file")), 0);
    assert_eq!(s.vfs.claims.totals().held, 1);
    assert_eq!(a.unlock(0, 0), GRANTED);
    assert_eq!(s.vfs.claims.totals().held, 0);
}
