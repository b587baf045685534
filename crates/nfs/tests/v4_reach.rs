//! Callers at other addresses cannot claim the name of a client that is alive.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::time::Duration;
use support::compound::*;
use support::gss::{NONE, User, server};
use support::{Server, X};
use weir_vfs::Flavours;
use weir_vfs::claims::ServiceId;

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const CLID_INUSE: u32 = 10_017;
const STALE_CLIENTID: u32 = 10_022;
const CONN_NOT_BOUND: u32 = 10_055;
const CLIENTID_BUSY: u32 = 10_074;

/// One operation without a session.
fn alone(s: &Server, from: &str, number: u32, x: X) -> Results {
    let ops = Ops::new().op(number, x);
    let args = X::new().o(b"tag").u(2).u(1).raw(&ops.out.0);
    send(s, from, &args)
}

/// EXCHANGE_ID and CREATE_SESSION under the name `a`: the first status that is an error.
fn begin(s: &Server, from: &str, verifier: u64) -> u32 {
    let mut r = alone(s, from, 42, exchange(b"a", verifier, 0));
    if r.status != OK {
        return r.status;
    }
    let r = r.ok(42);
    let (id, sequence) = (r.h(), r.u());
    alone(s, from, 43, creation(id, sequence, 4)).status
}

/// A client whose connection stays open, with a file open that denies everything.
fn alive(s: &Server) -> (Client<'_>, Vec<u8>, Vec<u8>) {
    s.keep(HOST);
    let a = Client::new(s, HOST, b"a");
    let (file, state) = a.open(b"f", b"o", (3, 3));
    (a, file, state)
}

#[test]
fn a_client_that_is_alive_is_spoken_for_from_its_own_address_alone() {
    let s = Server::new();
    let (a, file, state) = alive(&s);
    s.keep(OTHER);
    let refused = || {
        // Another run of the client, and the same one, whose verifier an eavesdropper knows.
        assert_eq!(begin(&s, OTHER, 2), CLID_INUSE);
        assert_eq!(begin(&s, OTHER, 1), CLID_INUSE);
        // The first session's result again would name that session.
        for sequence in [1, 2] {
            let made = alone(&s, OTHER, 43, creation(a.id, sequence, 4));
            assert_eq!(made.status, CLID_INUSE, "{sequence}");
        }
        let ends = X::new().raw(&a.session);
        assert_eq!(alone(&s, OTHER, 44, ends).status, CONN_NOT_BOUND);
        let ends = X::new().h(a.id);
        assert_eq!(alone(&s, OTHER, 57, ends).status, CLIENTID_BUSY);
    };
    refused();
    let write = Ops::new().fh(&file).write(&state, 0, b"x");
    assert_eq!(a.status(&write), OK);
    // Without a session and without state it is still the client's name.
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    assert_eq!(alone(&s, HOST, 44, X::new().raw(&a.session)).status, OK);
    let ends = X::new().h(a.id);
    assert_eq!(alone(&s, OTHER, 57, ends.clone()).status, CLIENTID_BUSY);
    assert_eq!(alone(&s, HOST, 57, ends).status, OK);
    assert_eq!(begin(&s, OTHER, 2), OK);
}

#[test]
fn a_client_that_has_begun_anew_is_believed() {
    let s = Server::new();
    let (a, ..) = alive(&s);
    // At its own address at once.
    assert_eq!(begin(&s, HOST, 2), OK);
    assert_eq!(s.vfs.claims.totals().held, 0);
    assert_eq!(a.alone(57, X::new().h(a.id)).status, STALE_CLIENTID);
    // Elsewhere when its old connection has ended.
    assert_eq!(begin(&s, OTHER, 3), CLID_INUSE);
    s.hang_up(HOST);
    assert_eq!(begin(&s, OTHER, 3), OK);
    // Or when its lease has run out.
    s.keep(OTHER);
    assert_eq!(begin(&s, OTHER, 3), OK);
    assert_eq!(begin(&s, HOST, 4), CLID_INUSE);
    s.clock.advance(Duration::from_secs(31));
    assert_eq!(begin(&s, HOST, 4), OK);
}

#[test]
fn addresses_from_which_a_session_is_used_are_the_clients() {
    let s = Server::new();
    let (mut a, ..) = alive(&s);
    a.addr = OTHER;
    assert_eq!(a.status(&Ops::new().root()), OK);
    assert_eq!(begin(&s, OTHER, 2), OK);
}

#[test]
fn a_client_is_confirmed_from_its_own_address_alone() {
    let s = Server::new();
    s.keep(HOST);
    let id = alone(&s, HOST, 42, exchange(b"a", 1, 0)).ok(42).h();
    assert_eq!(alone(&s, OTHER, 43, creation(id, 1, 4)).status, CLID_INUSE);
    assert_eq!(alone(&s, HOST, 43, creation(id, 1, 4)).status, OK);
    // A principal that introduced itself before takes nobody's place.
    let other = Server::new();
    other.uid.set((77, 77));
    let id = alone(&other, OTHER, 42, exchange(b"a", 1, 0)).ok(42).h();
    other.uid.set((0, 0));
    let _alive = alive(&other);
    let made = alone(&other, OTHER, 43, creation(id, 1, 4));
    assert!([STALE_CLIENTID, CLID_INUSE].contains(&made.status));
}

/// RFC 8881 §18.36.4, phase 3.
#[test]
fn a_client_that_is_confirmed_may_make_sessions_under_another_principal() {
    let s = Server::new();
    let id = alone(&s, HOST, 42, exchange(b"a", 1, 0)).ok(42).h();
    s.uid.set((77, 77));
    assert_eq!(alone(&s, HOST, 43, creation(id, 1, 4)).status, CLID_INUSE);
    s.uid.set((0, 0));
    assert_eq!(alone(&s, HOST, 43, creation(id, 1, 4)).status, OK);
    s.uid.set((77, 77));
    for sequence in [1, 2] {
        let made = alone(&s, HOST, 43, creation(id, sequence, 4));
        assert_eq!(made.status, OK, "{sequence}");
    }
}

#[test]
fn what_is_recorded_of_a_client_is_for_its_addresses() {
    let mut s = Server::new();
    let file = {
        let (mut a, file, _) = alive(&s);
        a.addr = "10.0.0.3";
        assert_eq!(a.status(&Ops::new().root()), OK);
        file
    };
    s.kept.borrow_mut().clear();
    s.vfs.claims.release_all(ServiceId(1));
    s.crash();
    assert_eq!(begin(&s, OTHER, 1), CLID_INUSE);
    let a = Client::reclaiming(&s, "10.0.0.3", b"a", 1);
    let again = Ops::new().fh(&file).open_again(b"o", (3, 3));
    assert_eq!(a.status(&again), OK);
    assert_eq!(a.status(&Ops::new().op(58, X::new().u(0))), OK);
    s.vfs.claims.release_all(ServiceId(1));
    s.crash();
    assert_eq!(begin(&s, OTHER, 1), CLID_INUSE);
    // It has not come back.
    s.clock.advance(support::GRACE);
    s.service.tick();
    assert_eq!(begin(&s, OTHER, 1), OK);
}

#[test]
fn a_principal_that_kerberos_has_established_is_believed_from_anywhere() {
    let s = server(Flavours::KRB5);
    s.keep(HOST);
    let by = |from: &str, user: &User, sequence, ops: Ops| {
        let args = ops.compound(b"", 2);
        let call = (NFS4.0, NFS4.1, 1);
        user.call(s.from(from), call, sequence, NONE, &args)
    };
    let machine = User::by(s.from(HOST), &[1, 0]);
    let introduces = |verifier| Ops::new().op(42, exchange(b"a", verifier, 0));
    let mut r = by(HOST, &machine, 1, introduces(1));
    assert_eq!(r.u(), OK);
    r.raw(4 + 4 + 8);
    let (id, sequence) = (r.h(), r.u());
    let session = Ops::new().op(43, creation(id, sequence, 4));
    assert_eq!(by(HOST, &machine, 2, session).u(), OK);
    assert_eq!(by(OTHER, &machine, 3, introduces(2)).u(), OK);
    assert_eq!(begin(&s, OTHER, 2), CLID_INUSE, "AUTH_SYS");
}

#[test]
fn a_client_that_begins_anew_counts_once_at_its_address() {
    let s = Server::new();
    for verifier in 1..5000 {
        assert_eq!(begin(&s, HOST, verifier), OK, "{verifier}");
    }
}
