//! NLM version 4 and the status monitor: locks, waiting, restarts of either
//! side.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::sync::Arc;
use std::time::Duration;
use support::{GRACE, NLM, NSM, R, Server, X};
use weir_nfs::Outgoing;

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const GRACE_PERIOD: u32 = 4;
const DEADLOCK: u32 = 5;
const STALE: u32 = 7;
const FBIG: u32 = 8;

/// A process of a host that locks `file`.
#[derive(Clone)]
struct Locker<'s> {
    s: &'s Server,
    host: &'static str,
    addr: &'static str,
    svid: u32,
    file: Vec<u8>,
}

impl Locker<'_> {
    fn alock(&self, x: X, start: u64, len: u64) -> X {
        let owner = format!("{}@{}", self.svid, self.host);
        x.o(self.host.as_bytes())
            .o(&self.file)
            .o(owner.as_bytes())
            .u(self.svid)
            .h(start)
            .h(len)
    }
    fn call(&self, procedure: u32, args: &X) -> R {
        let mut r = self.s.from(self.addr).call(NLM, procedure, args);
        assert_eq!(r.o(), b"cookie");
        r
    }
    fn lock_args(&self, block: bool, exclusive: bool, start: u64, len: u64, reclaim: bool) -> X {
        let head = X::new().o(b"cookie").u(block.into()).u(exclusive.into());
        self.alock(head, start, len).u(reclaim.into()).u(3)
    }
    fn lock(&self, block: bool, exclusive: bool, start: u64, len: u64) -> u32 {
        self.call(2, &self.lock_args(block, exclusive, start, len, false))
            .u()
    }
    fn reclaim(&self, start: u64, len: u64) -> u32 {
        self.call(2, &self.lock_args(false, true, start, len, true))
            .u()
    }
    fn unlock(&self, start: u64, len: u64) -> u32 {
        self.call(4, &self.alock(X::new().o(b"cookie"), start, len))
            .u()
    }
    fn cancel(&self, exclusive: bool, start: u64, len: u64) -> u32 {
        let head = X::new().o(b"cookie").u(1).u(exclusive.into());
        self.call(3, &self.alock(head, start, len)).u()
    }
    fn test(&self, exclusive: bool, start: u64, len: u64) -> R {
        let head = X::new().o(b"cookie").u(exclusive.into());
        self.call(1, &self.alock(head, start, len))
    }
}

fn lockers<'s>(s: &'s Server, file: &[u8]) -> [Locker<'s>; 3] {
    let l = |host, addr, svid| Locker {
        s,
        host,
        addr,
        svid,
        file: file.to_vec(),
    };
    [
        l("alpha", "10.0.0.1", 1),
        l("alpha", "10.0.0.1", 2),
        l("beta", "10.0.0.2", 1),
    ]
}

/// The parts of a call of the server's own: procedure and arguments.
fn parts(call: &Outgoing) -> (u32, R) {
    let mut r = R(call.message.clone(), 0);
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
    assert!(s.service.take_outgoing().is_empty());
    a.unlock(0, 0);
    let calls = s.service.take_outgoing();
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
    assert!(s.service.take_outgoing().is_empty());
    s.clock.advance(Duration::from_secs(10));
    s.service.tick();
    assert_eq!(s.service.take_outgoing(), calls);
    s.service
        .outgoing_done(calls[0].token, Some(&nlm_reply(&cookie, GRANTED)));
    s.clock.advance(Duration::from_secs(60));
    s.service.tick();
    assert!(s.service.take_outgoing().is_empty());
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
    let first = s.service.take_outgoing();
    let cookie = parts(&first[0]).1.o();
    // The answer may also come as a call of its own (GRANTED_RES).
    let r = s
        .from("10.0.0.2")
        .call(NLM, 15, &X::new().o(&cookie).u(DENIED));
    r.end();
    let second = s.service.take_outgoing();
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
        (10, c.alock(X::new().o(b"cookie").u(1), 0, 1), 15, DENIED),
    ];
    for (msg, args, res, stat) in cases {
        s.from(c.addr).call(NLM, msg, &args).end();
        let calls = s.service.take_outgoing();
        assert_eq!(calls.len(), 1);
        let (procedure, mut r) = parts(&calls[0]);
        assert_eq!((procedure, r.o(), r.u()), (res, b"cookie".to_vec(), stat));
    }
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
    s.from("10.0.0.1").call(NSM, 6, &notify).end();
    assert_eq!(c.lock(false, true, 0, 3), GRANTED);
    assert_eq!(c.lock(false, true, 3, 1), DENIED);
    // FREE_ALL does the same; from an unknown address the name decides.
    s.from("10.9.9.9").call(NLM, 23, &notify).end();
    assert_eq!(c.lock(false, true, 3, 1), GRANTED);
    // A waiting client gets its turn.
    assert_eq!(a.lock(true, true, 0, 1), BLOCKED);
    s.from("10.0.0.2")
        .call(NSM, 6, &X::new().o(b"beta").u(7))
        .end();
    assert_eq!(s.service.take_outgoing().len(), 1);
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
    let record = String::from_utf8(s.store.0.lock().unwrap().clone().unwrap()).unwrap();
    assert!(
        record.contains("host 10.0.0.1 10.0.0.99") && record.contains("host 10.0.0.2"),
        "{record}"
    );
    s.restart();
    let notices = s.service.take_outgoing();
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
        // Whoever holds nothing is forgotten, and the next start has no grace.
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
    s.call(NSM, 6, &X::new().o(b"peer").u(9)).end();
    let calls = s.service.take_outgoing();
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
    assert!(s.service.take_outgoing().is_empty());
    // The server's own restart is one too.
    s.restart();
    assert_eq!(s.service.take_outgoing().len(), 1);
    s.from("127.0.0.1")
        .call(NSM, 4, &X::new().o(b"me").u(100_021).u(4).u(16));
    s.restart();
    assert!(s.service.take_outgoing().is_empty());
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
    let told = s.service.take_outgoing();
    assert!(
        told.iter()
            .any(|o| o.to.to_string() == "10.0.0.1" && o.program == NSM.0)
    );
}

#[test]
fn a_record_that_cannot_be_read_does_not_stop_the_server() {
    for text in [
        "",
        "something else",
        "weir lock hosts, version 1\nhost x y\nstate -1\nmonitor\nhost 1.2.3.4 1.2.3.4 zz",
    ] {
        let store = Arc::new(support::MemoryStore::default());
        *store.0.lock().unwrap() = Some(text.as_bytes().to_vec());
        let s = Server::with(vec![weir_vfs::Rule::open(weir_vfs::Squash::None)], store);
        let file = s.create(&s.root(), b"file", 0o644);
        assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 0), GRANTED);
    }
}
