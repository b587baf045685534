//! Calls under a security context (RFC 2203), with a mechanism of the test's own in place of
//! Kerberos: the wire, the window, the bounds and whose identity counts. That Kerberos itself works
//! is shown where it can be installed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails loudly.

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use support::compound::Ops;
use support::gss::*;
use support::{NFS, R, Server, X, block_on};
use weir_auth::gss::{AcceptOutcome, Acceptor, ESTABLISHING, MAX_TOKEN};
use weir_nfs::gss::window;
use weir_nfs::{ConnInfo, Outcome};
use weir_vfs::Flavours;

/// Reason for the denial of a call.
fn denied(mut r: R) -> u32 {
    r.u();
    assert_eq!((r.u(), r.u(), r.u()), (1, 1, 1), "AUTH_ERROR");
    r.u()
}

const GETATTR: (u32, u32, u32) = (NFS.0, 3, 1);
const ACCESS: (u32, u32, u32) = (NFS.0, 3, 4);
const READ: (u32, u32, u32) = (NFS.0, 3, 6);
const CREATE: (u32, u32, u32) = (NFS.0, 3, 8);
const READDIRPLUS: (u32, u32, u32) = (NFS.0, 3, 17);

#[test]
fn calls_are_opened_and_replies_sealed_in_each_service() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let data: Vec<u8> = (0..9999u32).map(|n| n as u8).collect();
    s.write(&file, 0, &data);
    s.as_user(0, 0);
    let user = User::new(&s, 7, 100);
    for (n, service) in [NONE, INTEGRITY, PRIVACY].into_iter().enumerate() {
        let sequence = 10 * n as u32;
        let mut r = user.call(&s, GETATTR, sequence + 1, service, &X::new().o(&file));
        assert_eq!(r.u(), 0);
        assert_eq!(r.fattr().size, data.len() as u64);
        // Data that goes out by reference otherwise.
        let args = X::new().o(&file).h(0).u(20_000);
        let mut r = user.call(&s, READ, sequence + 2, service, &args);
        assert_eq!(r.u(), 0);
        r.post_op();
        assert_eq!((r.u(), r.u()), (data.len() as u32, 1));
        assert_eq!(r.o(), data);
        r.end();
        // NULL has no results, but they are protected.
        let r = user.call(&s, (NFS.0, 3, 0), sequence + 3, service, &X::new());
        assert_eq!(r.0.len() - r.1, 0);
    }
}

/// A long listing is not copied to be sealed, unless it is encrypted.
#[test]
fn long_results_are_sealed_where_they_are() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let root = s.root();
    for n in 0..100 {
        s.create(&root, format!("a long name of file {n}").as_bytes(), 0o644);
    }
    s.as_user(0, 0);
    let args = X::new().o(&root).h(0).h(0).u(60_000).u(60_000);
    let plain = s.nfs(READDIRPLUS.2, &args);
    let plain = &plain.0[plain.1..];
    assert!(plain.len() > 10_000);
    let user = User::new(&s, 7, 100);
    for (sequence, service, pieces) in [(1, NONE, 2), (2, INTEGRITY, 3), (3, PRIVACY, 1)] {
        let record = user.record(READDIRPLUS, sequence, service, &args);
        let Outcome::Reply(reply, None) = s.handle(&record) else {
            panic!("no reply")
        };
        let mut slices = Vec::new();
        reply.slices(0, &mut slices);
        assert_eq!(slices.len(), pieces, "service {service}");
        assert_eq!(
            slices.iter().map(|slice| slice.len()).sum::<usize>(),
            reply.len()
        );
        assert!(reply.held() >= plain.len());
        let r = user.open(R(reply.message(), 0), sequence, service);
        assert_eq!(&r.0[r.1..], plain, "service {service}");
    }
}

#[test]
fn the_caller_is_whom_the_mechanism_says() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let root = s.root();
    let mut r = s.nfs(2, &X::new().o(&root).sattr(Some(0o777), None).u(0));
    assert_eq!(r.u(), 0);
    let user = User::new(&s, 7, 100);
    let args = X::new().o(&root).o(b"mine").u(0).sattr(Some(0o600), None);
    let mut r = user.call(&s, CREATE, 1, PRIVACY, &args);
    assert_eq!((r.u(), r.u()), (0, 1));
    let file = r.o();
    let attr = s.getattr(&file);
    assert_eq!((attr.uid, attr.gid), (100, 500));
    // More groups than AUTH_SYS has room for.
    let shared = s.create(&root, b"shared", 0o060);
    let mut r = s.nfs(
        2,
        &X::new()
            .o(&shared)
            .u(0)
            .u(0)
            .u(1)
            .u(639)
            .u(0)
            .u(0)
            .u(0)
            .u(0),
    );
    assert_eq!(r.u(), 0);
    let mut r = user.call(&s, ACCESS, 2, NONE, &X::new().o(&shared).u(0x3f));
    assert_eq!(r.u(), 0);
    r.post_op();
    assert_ne!(r.u() & 1, 0, "READ, by the last of forty groups");
}

#[test]
fn a_rule_may_demand_protection() {
    for (flavours, least) in [
        (Flavours::KRB5, NONE),
        (Flavours::KRB5_INTEGRITY, INTEGRITY),
        (Flavours::KRB5_PRIVACY, PRIVACY),
    ] {
        let s = server(flavours);
        let root = s.vfs.exports().iter().next().unwrap().root();
        let root = s.vfs.handle_of(root);
        assert_ne!(s.status(1, &X::new().o(&root)), 0, "AUTH_SYS");
        let user = User::new(&s, 9, 100);
        for (n, service) in [NONE, INTEGRITY, PRIVACY].into_iter().enumerate() {
            let mut r = user.call(&s, GETATTR, 1 + n as u32, service, &X::new().o(&root));
            assert_eq!(r.u() == 0, service >= least, "{service} of {least}");
        }
    }
}

#[test]
fn what_is_not_under_the_context_is_refused() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let args = X::new().o(&s.root());
    let user = User::new(&s, 7, 100);
    let stranger = User {
        handle: user.handle.clone(),
        key: 8,
    };
    let unknown = User {
        handle: vec![0; 16],
        key: 7,
    };
    for other in [&stranger, &unknown] {
        let record = other.record(GETATTR, 1, NONE, &args);
        assert_eq!(denied(s.send(&record)), CRED_PROBLEM);
    }
    // A changed byte anywhere: never as if nothing were wrong.
    let good = user.record(GETATTR, 1, INTEGRITY, &args);
    for at in 4..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        if let Outcome::Reply(reply, _) = s.handle(&bad) {
            let message = reply.message();
            let accepted = message[8..12] == [0; 4];
            let success = accepted && message.len() > 40 && message[12..16] == [0, 0, 0, 6] && {
                let mut r = R(message.clone(), 16);
                r.o();
                r.u() == 0
            };
            assert!(!success, "byte {at}");
        }
    }
    // A number that differs inside.
    for service in [INTEGRITY, PRIVACY] {
        let record = user.sealed((GETATTR, DATA), 20 + service, service, 5, &args);
        let mut r = s.send(&record);
        r.raw(8);
        assert_eq!((r.u(), r.u(), r.u(), r.u()), (0, 0, 0, 4), "GARBAGE_ARGS");
    }
    let record = user.record(GETATTR, window::MAX_SEQUENCE, NONE, &args);
    assert_eq!(denied(s.send(&record)), CTX_PROBLEM);
    // Calls that failed verification have not moved the context's window.
    user.call(&s, GETATTR, 2, INTEGRITY, &args);
}

#[test]
fn a_number_is_taken_once() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let args = X::new().o(&s.root());
    let user = User::new(&s, 7, 100);
    let first = user.record(GETATTR, 1, NONE, &args);
    assert!(matches!(s.handle(&first), Outcome::Reply(..)));
    assert!(matches!(s.handle(&first), Outcome::Drop));
    user.call(&s, GETATTR, window::SIZE, NONE, &args);
    user.call(&s, GETATTR, 2, NONE, &args);
    user.call(&s, GETATTR, window::SIZE + 4, NONE, &args);
    let below = user.record(GETATTR, 3, NONE, &args);
    assert!(matches!(s.handle(&below), Outcome::Close(_)));
}

/// The flavour that a call bears inside must not come from outside.
#[test]
fn flavours_of_our_own_are_refused_off_the_wire() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let root = s.root();
    for flavour in [390_003, 390_004, 390_005] {
        let cred = X::new().u(0).o(b"").u(0).u(0).u(0);
        let x = X::new().u(1).u(0).u(2).u(NFS.0).u(3).u(1);
        let record = x.u(flavour).o(&cred.0).u(0).u(0).o(&root).0;
        assert_eq!(denied(s.send(&record)), 1, "AUTH_BADCRED");
        // Nor do they make a long record be read.
        let cx = std::task::Context::from_waker(std::task::Waker::noop());
        let begin = s.service.begin(&s.conn(), &record, 1 << 20, &cx);
        assert!(matches!(begin, weir_nfs::Begin::Refuse(..)));
    }
    let without = Server::new();
    let x = head(GETATTR, INIT, 0, NONE, &[]).u(0).u(0).o(b"x");
    assert_eq!(denied(without.send(&x.0)), 1, "no mechanism: AUTH_BADCRED");
}

#[test]
fn a_context_that_cannot_be_established_is_said_so() {
    let s = server(Flavours::KRB5);
    let mut r = init(&s, INIT, b"nonsense");
    assert_eq!((r.u(), r.u(), r.u(), r.u(), r.u()), (0, 1, 0, 0, 0));
    assert_eq!((r.u(), r.u()), (0, 0), "no handle");
    assert_eq!((r.u(), r.u()), (9 << 16, 77));
    assert_eq!(denied(init(&s, CONTINUE, b"more")), CRED_PROBLEM);
    assert_eq!(s.service.gss().unwrap().contexts(), 0);
}

/// A ticket of Active Directory has its user's groups in it.
#[test]
fn long_tokens_are_read_and_other_long_records_of_strangers_are_not() {
    let s = server(Flavours::KRB5);
    let cx = std::task::Context::from_waker(std::task::Waker::noop());
    let goes = |record: &[u8], bytes| {
        let begin = s.service.begin(&s.conn(), record, bytes, &cx);
        matches!(begin, weir_nfs::Begin::Go(None))
    };
    let x = head((NFS.0, 3, 0), INIT, 0, NONE, &[]).u(0).u(0).0;
    assert!(goes(&x, MAX_TOKEN));
    assert!(!goes(&x, MAX_TOKEN + 2000));
    let stranger = User {
        handle: vec![0; 16],
        key: 7,
    };
    let args = X::new().o(&[0; 32]);
    assert!(!goes(&stranger.record(GETATTR, 1, PRIVACY, &args), 1 << 20));
    let user = User::new(&s, 7, 100);
    assert!(goes(&user.record(GETATTR, 1, PRIVACY, &args), 1 << 20));
    let mut token = vec![7, 100, 255];
    token.resize(40_000, 9);
    let mut r = init(&s, INIT, &token);
    r.raw(12);
    assert_eq!(r.u(), 6, "a verifier: it is established");
}

/// Its client establishes another one, which it notices by RPCSEC_GSS_CREDPROBLEM.
#[test]
fn contexts_end() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let args = X::new().o(&s.root());
    let contexts = || s.service.gss().unwrap().contexts();
    let user = User::new(&s, 7, 100);
    let record = user.sealed(((NFS.0, 3, 0), DESTROY), 1, NONE, 1, &X::new());
    user.open(s.send(&record), 1, NONE).end();
    assert_eq!(contexts(), 0);
    assert_eq!(
        denied(s.send(&user.record(GETATTR, 2, NONE, &args))),
        CRED_PROBLEM
    );
    let user = User::new(&s, 7, 100);
    user.call(&s, GETATTR, 1, NONE, &args);
    s.clock.advance(Duration::from_secs(101));
    assert_eq!(
        denied(s.send(&user.record(GETATTR, 2, NONE, &args))),
        CRED_PROBLEM
    );
    s.service.tick();
    assert_eq!(contexts(), 0);
}

/// The least recently used context is removed.
#[test]
fn contexts_are_bounded_by_the_budget() {
    let s = server(Flavours::SYS.or(Flavours::KRB5));
    let args = X::new().o(&s.root());
    let budget = Arc::clone(s.vfs.claims.budget());
    let all = budget.try_reserve(budget.available() - 40_000).unwrap();
    let first = User::new(&s, 7, 100);
    for n in 0..20 {
        s.clock.advance(Duration::from_secs(2));
        first.call(&s, GETATTR, 1 + n, NONE, &args);
        User::new(&s, 8, 101);
    }
    assert!((1..10).contains(&s.service.gss().unwrap().contexts()));
    first.call(&s, GETATTR, 100, NONE, &args);
    drop(all);
}

/// Threads that accept contexts may be slow.
#[test]
fn few_contexts_are_established_at_once() {
    struct Slow;
    impl Acceptor for Slow {
        fn accept(&self, _: Vec<u8>) -> Pin<Box<dyn Future<Output = AcceptOutcome> + Send>> {
            Box::pin(std::future::pending())
        }
    }
    let s = Server::new();
    s.service.accept_contexts(Arc::new(Slow));
    let record = head((NFS.0, 3, 0), INIT, 0, NONE, &[]).u(0).u(0).o(b"x").0;
    let begin = || s.service.handle(&s.conn(), &record, s.current_time());
    let waiting: Vec<Outcome> = (0..ESTABLISHING).map(|_| begin()).collect();
    assert!(waiting.iter().all(|h| matches!(h, Outcome::Later(_))));
    assert!(matches!(begin(), Outcome::Reply(..)), "SYSTEM_ERR");
    drop(waiting);
    assert!(matches!(begin(), Outcome::Later(_)));
}

/// A COMPOUND, and a READ that waits for the device: the reply is sealed when it comes.
#[test]
fn compounds_and_calls_that_wait_are_sealed() {
    let mut s = server(Flavours::SYS.or(Flavours::KRB5));
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    s.write(&file, 0, &[5; 70_000]);
    for service in [NONE, INTEGRITY, PRIVACY] {
        s.cold_start();
        s.service.accept_contexts(Arc::new(Mechanism));
        let user = User::new(&s, 7, 100);
        let args = X::new().o(&file).h(0).u(65_536);
        let record = user.record(READ, 1, service, &args);
        let conn: ConnInfo = s.conn();
        let Outcome::Later(later) = s.service.handle(&conn, &record, s.current_time()) else {
            panic!("it is in memory")
        };
        drop(record);
        let Outcome::Reply(reply, _) = block_on(later) else {
            panic!("no reply")
        };
        let mut r = user.open(R(reply.message(), 0), 1, service);
        assert_eq!(r.u(), 0);
        r.post_op();
        assert_eq!(r.u(), 65_536);
    }
    let user = User::new(&s, 7, 100);
    // EXCHANGE_ID needs no session; its owner is the context's user.
    let ops = Ops::new().op(42, support::compound::exchange(b"client", 1, 0));
    let args = ops.compound(b"", 1);
    let mut r = user.call(&s, (NFS.0, 4, 1), 2, INTEGRITY, &args);
    assert_eq!((r.u(), r.u(), r.u(), r.u(), r.u()), (0, 0, 1, 42, 0));
}
