//! States and requests of NFSv4 to which something else happens: leases that run out, clients that
//! begin anew, connections that are lost, restarts, denials.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::time::Duration;
use support::callbacks::*;
use support::compound::*;
use support::{R, Server, X};
use weir_nfs::Outcome;
use weir_vfs::claims::ServiceId;

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const WANT_READ: u32 = 0x100;
const REP_TOO_BIG_TO_CACHE: u32 = 10_067;

fn mkdir(ops: Ops, name: &[u8]) -> Ops {
    ops.op(6, bitmap(X::new().u(2).o(name), &[]).o(b""))
}

#[test]
fn a_client_that_comes_back_in_time_has_what_it_had() {
    let s = Server::new();
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, state) = a.open(b"f", b"o", (3, 3));
    s.clock.advance(Duration::from_secs(40));
    assert_eq!(b.status(&Ops::new().root()), OK);
    s.service.tick();
    assert_eq!(a.status(&Ops::new().root()), OK);
    assert_eq!(b.status(&open(&b, b"f", (3, 0))), SHARE_DENIED);
    assert_eq!(a.status(&Ops::new().fh(&file).write(&state, 0, b"x")), OK);
}

#[test]
fn a_client_that_begins_anew_opens_nothing_by_what_still_waits() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, state, given) = delegated(&b, b"f", 1 | WANT_READ);
    let mut waiting = parked(&a, &open(&a, b"f", (2, 0)));
    calls.expect(RECALL).reply(&s, OK, X::new());
    let _again = Client::again(&s, HOST, b"a", 2);
    let gives = give_back(&file, &given.id()).close(&state);
    assert_eq!(b.status(&gives), OK);
    assert_eq!(poll(&mut waiting).expect("it goes on").status, DELAY);
    assert_eq!(s.vfs.claims.totals().held, 0);
}

#[test]
fn an_open_that_is_opened_again_has_both_shares() {
    let s = Server::new();
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _) = a.open(b"f", b"o", (2, 2));
    let mut r = a.run(&open(&a, b"f", (1, 0)));
    r.ok(22);
    let state = r.opened();
    assert_eq!(a.status(&Ops::new().fh(&file).write(&state, 0, b"x")), OK);
    assert_eq!(b.status(&open(&b, b"f", (2, 0))), SHARE_DENIED);
}

#[test]
fn nothing_is_claimed_anew_before_reclaiming_is_over() {
    let s = Server::new();
    let a = Client::reclaiming(&s, HOST, b"a", 1);
    let root = a.volume();
    let make = Ops::new().fh(&root).open(b"f", b"o", (3, 0), Some(0));
    assert_eq!(a.status(&make), GRACE);
    assert_eq!(a.status(&Ops::new().op(58, X::new().u(0))), OK);
    assert_eq!(a.status(&make), OK);
}

#[test]
fn the_first_state_of_a_client_waits_for_its_record() {
    let s = Server::new();
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    a.open(b"f", b"o", (3, 0));
    let ops = open(&b, b"f", (1, 0));
    assert_eq!(b.last_lsn.get(), None, "LOOKUP changes nothing");
    assert_eq!(b.status(&ops), OK);
    assert!(b.last_lsn.get().is_some(), "it could not claim it again");
}

#[test]
fn a_file_that_was_recalled_is_not_delegated_for_a_while() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, state, given) = delegated(&a, b"f", 1 | WANT_READ);
    let mut waiting = parked(&b, &open(&b, b"f", (2, 0)));
    calls.expect(RECALL).reply(&s, OK, X::new());
    let gives = give_back(&file, &given.id()).close(&state);
    assert_eq!(a.status(&gives), OK);
    let mut r = poll(&mut waiting).expect("it goes on");
    r.ok(22);
    let (written, given) = opened(&mut r);
    assert_eq!(
        given,
        DelegationGrant::None,
        "neither to who had it recalled"
    );
    assert_eq!(b.status(&Ops::new().fh(&file).close(&written)), OK);
    assert_eq!(
        delegated(&a, b"f", 1 | WANT_READ).2,
        DelegationGrant::Not(1)
    );
    s.clock.advance(Duration::from_secs(29));
    assert_eq!(
        delegated(&a, b"f", 1 | WANT_READ).2,
        DelegationGrant::Not(1)
    );
    s.clock.advance(Duration::from_secs(1));
    assert!(matches!(
        delegated(&a, b"f", 1 | WANT_READ).2,
        DelegationGrant::Read(_)
    ));
}

#[test]
fn what_was_revoked_is_reported_until_the_last_of_it_is_freed() {
    let s = Server::new();
    let a = Client::new(&s, HOST, b"a");
    let states = [b"f", b"g"].map(|name| a.open(name, b"o", (3, 0)).1);
    s.volume
        .snapshot_take("before", "", s.current_time())
        .unwrap();
    s.engine.revert("vol1", "before").unwrap();
    for (state, left) in states.iter().zip([0x20, 0]) {
        assert_eq!(flags(&a), 0x20, "ADMIN_STATE_REVOKED");
        assert_eq!(a.status(&Ops::new().op(45, X::new().raw(state))), OK);
        assert_eq!(flags(&a), left);
    }
}

#[test]
fn a_lock_takes_an_open_for_it_and_no_memory_when_it_is_denied() {
    let s = Server::new();
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, writes) = a.open(b"f", b"o", (2, 0));
    let mut r = b.run(&open(&b, b"f", (1, 0)));
    r.ok(22);
    let reads = r.opened();
    let lock = |kind, state: &[u8]| Ops::new().fh(&file).lock(kind, (0, 9), state, b"process");
    assert_eq!(b.status(&lock(2, &reads)), OPENMODE);
    assert_eq!(a.status(&lock(1, &writes)), OPENMODE);
    assert_eq!(a.status(&lock(2, &writes)), OK);
    let before = s.vfs.claims.budget().used();
    for _ in 0..9 {
        assert_eq!(b.status(&lock(1, &reads)), DENIED);
    }
    // The replies are kept in one slot.
    let after = s.vfs.claims.budget().used();
    assert!(after < before + 384, "{before} {after}");
}

#[test]
fn a_reply_that_is_too_long_to_keep_is_none() {
    let s = Server::new();
    let a = Client::new(&s, HOST, b"a");
    let root = a.volume();
    let make = bitmap(X::new().u(5).o(&[b'x'; 4000]).o(b"link"), &[]).o(b"");
    assert_eq!(a.status(&Ops::new().fh(&root).op(6, make)), OK);
    let read = Ops::new().fh(&root).lookup(b"link").op(27, X::new());
    assert_eq!(a.status(&read), REP_TOO_BIG_TO_CACHE);
    assert_eq!(a.send(&a.next_args(&read, false)).status, OK);
}

#[test]
fn what_a_request_had_done_is_not_done_again_when_its_connection_is_lost() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    delegated(&a, b"f", 1 | WANT_READ);
    let root = b.volume();
    let ops = mkdir(Ops::new().fh(&root), b"d").fh(&root);
    let args = b.next_args(&ops.open(b"f", b"o", (2, 0), None), true);
    drop(waits(&b, &args));
    calls.expect(RECALL);
    let mut r = b.send(&args);
    assert_eq!((r.status, r.count), (DELAY, 5));
    r.sequence();
    r.ok(22);
    r.ok(6);
}

#[test]
fn the_grace_period_does_not_wait_for_a_client_that_has_gone() {
    let mut s = Server::new();
    Client::new(&s, HOST, b"a").open(b"f", b"o", (3, 0));
    s.vfs.claims.release_all(ServiceId(1));
    s.restart();
    let a = Client::reclaiming(&s, HOST, b"a", 1);
    let b = Client::new(&s, OTHER, b"b");
    assert_eq!(b.status(&open(&b, b"f", (1, 2))), GRACE);
    assert_eq!(a.alone(44, X::new().raw(&a.session)).status, OK);
    assert_eq!(a.alone(57, X::new().h(a.id)).status, OK);
    assert_eq!(b.status(&open(&b, b"f", (1, 2))), OK);
}

#[test]
fn a_request_of_before_a_restart_makes_no_state() {
    let mut s = Server::new();
    let args = {
        let a = Client::new(&s, HOST, b"a");
        a.open(b"f", b"o", (3, 0));
        let root = a.volume();
        let ops = mkdir(Ops::new().fh(&root), b"d").fh(&root);
        let args = a.next_args(&ops.open(b"f", b"other", (1, 0), None), true);
        assert_eq!(a.send(&args).status, OK);
        args
    };
    s.vfs.claims.release_all(ServiceId(1));
    s.restart();
    let mut r = send(&s, HOST, &args);
    assert_eq!((r.status, r.count), (GRACE, 5));
    r.sequence();
    r.ok(22);
    r.ok(6);
    assert_eq!(s.vfs.claims.totals().held, 0);
}

#[test]
fn a_request_of_before_a_restart_does_not_end_reclaiming() {
    let mut s = Server::new();
    let args = {
        let a = Client::reclaiming(&s, HOST, b"a", 1);
        let ops = mkdir(Ops::new().fh(&a.volume()), b"d");
        let args = a.next_args(&ops.op(58, X::new().u(0)), true);
        assert_eq!(a.send(&args).status, OK);
        args
    };
    s.restart();
    let mut r = send(&s, HOST, &args);
    assert_eq!((r.status, r.count), (GRACE, 4));
    r.sequence();
    r.ok(22);
    r.ok(6);
}

#[test]
fn a_connection_that_remembers_a_session_learns_of_its_end() {
    let s = Server::new();
    let conn = s.conn();
    let a = Client::new(&s, HOST, b"a");
    let over = |args: &X| match s
        .service
        .handle(&conn, &s.encode(NFS4, 1, args), s.current_time())
    {
        Outcome::Reply(reply, _) => R(reply.message(), 24).u(),
        _ => panic!("no reply"),
    };
    assert_eq!(over(&a.next_args(&Ops::new().root(), false)), OK);
    let bind = X::new().raw(&a.session).u(1).u(0);
    let bind = a.compound(&Ops::new().op(41, bind));
    assert_eq!(over(&bind), OK);
    let _again = Client::again(&s, HOST, b"a", 2);
    assert_eq!(over(&bind), BADSESSION);
}

#[test]
fn a_lock_that_was_kept_and_cannot_be_taken_is_free() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, of_a) = a.open(b"f", b"o", (3, 0));
    let mut r = b.run(&open(&b, b"f", (3, 0)));
    r.ok(22);
    let of_b = r.opened();
    let lock = |c: &Client<'_>, open: &[u8], kind, range| {
        let mut r = c.run(&Ops::new().fh(&file).lock(kind, range, open, b"process"));
        r.ok(22);
        let status = r.next(12);
        (status, (status == OK).then(|| r.r.raw(16)))
    };
    let unlock = |c: &Client<'_>, state: Option<Vec<u8>>, range| {
        let state = state.expect("a lock");
        assert_eq!(c.status(&Ops::new().fh(&file).locku(range, &state)), OK);
    };
    // The owner has a stateid already, so that nothing is missing but memory for the lock.
    unlock(&b, lock(&b, &of_b, 2, (20, 10)).1, (20, 10));
    let held = lock(&a, &of_a, 2, (0, 10)).1;
    assert_eq!(lock(&b, &of_b, 4, (0, 10)).0, DENIED);
    unlock(&a, held, (0, 10));
    calls.expect(NOTIFY_LOCK).reply(&s, OK, X::new());
    assert_eq!(lock(&a, &of_a, 2, (0, 10)).0, DENIED, "it is kept");
    let budget = s.vfs.claims.budget();
    let memory = budget.try_reserve(budget.available()).expect("memory");
    assert_eq!(lock(&b, &of_b, 4, (0, 10)).0, DELAY);
    drop(memory);
    assert_eq!(lock(&a, &of_a, 2, (0, 10)).0, OK);
}

#[test]
fn a_client_that_is_busy_has_no_faulty_back_channel() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    delegated(&a, b"f", 1 | WANT_READ);
    let _waiting = parked(&b, &open(&b, b"f", (2, 0)));
    calls.expect(RECALL).refuse(&s, DELAY);
    assert_eq!(flags(&a), 0);
    s.service.tick();
    calls.expect(RECALL);
}
