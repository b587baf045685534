//! Delegations of NFSv4 and the callbacks that recall them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::time::Duration;
use support::callbacks::*;
use support::compound::*;
use support::{NFS, Server, X};
use weir_nfs::Later;

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const TO_END: u64 = u64::MAX;
const ANONYMOUS: [u8; 16] = [0; 16];
const WANT_READ: u32 = 0x100;
const WANT_WRITE: u32 = 0x200;
const DELEG_REVOKED: u32 = 10_087;
const JUKEBOX: u32 = 10_008;

/// The client's connection is lost meanwhile: the request was never made.
fn give_up(c: &Client<'_>, waiting: Later) {
    drop(waiting);
    c.slots.borrow_mut()[0] -= 1;
}

#[test]
fn an_open_that_conflicts_waits_until_the_delegation_is_returned() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let DelegationGrant::Read(id) = given else {
        panic!("{given:?}");
    };
    // Reading is no conflict; there may be any number of them.
    let mut r = b.run(&open(&b, b"f", (1 | WANT_READ, 0)));
    r.ok(22);
    let (_, second) = opened(&mut r);
    assert_eq!(b.status(&give_back(&file, &second.id())), OK);
    assert!(calls.next().is_none());
    let mut waiting = parked(&b, &open(&b, b"f", (2, 0)));
    let mut call = calls.expect(RECALL);
    assert_eq!((call.connection, call.program), (1, 0x4000_0000));
    assert_eq!(call.credential.0, 0, "AUTH_NONE was asked for");
    assert_eq!(
        (&call.session, call.sequence, call.slot),
        (&a.session, 1, 0)
    );
    assert_eq!((call.r.raw(16), call.r.u()), (id.clone(), 0));
    assert_eq!(call.r.o(), file);
    call.reply(&s, OK, X::new());
    assert!(poll(&mut waiting).is_none() && calls.next().is_none());
    assert_eq!(a.status(&give_back(&file, &id)), OK);
    let mut r = poll(&mut waiting).expect("it goes on");
    r.ok(22);
    opened(&mut r);
    assert_eq!(a.status(&give_back(&file, &id)), BAD_STATEID);
    // It was recalled just now.
    let mut r = a.run(&open(&a, b"f", (1 | WANT_READ, 0)));
    r.ok(22);
    assert_eq!(opened(&mut r).1, DelegationGrant::Not(1), "contention");
}

#[test]
fn version_3_recalls_delegations() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let write = |file: &[u8]| {
        let x = X::new().o(file).h(0).u(1).u(2).o(b"x");
        s.from(OTHER).call(NFS, 7, &x).u()
    };
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    assert_eq!(write(&file), JUKEBOX);
    calls.expect(RECALL).reply(&s, OK, X::new());
    assert_eq!(write(&file), JUKEBOX);
    assert!(calls.next().is_none(), "it was asked already");
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    assert_eq!(write(&file), OK);
    let (file, _, given) = delegated(&a, b"g", 3 | WANT_WRITE);
    s.from(OTHER);
    assert_eq!(s.status(6, &X::new().o(&file).h(0).u(9)), JUKEBOX);
    calls.expect(RECALL).reply(&s, OK, X::new());
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    s.from(OTHER);
    assert_eq!(s.status(6, &X::new().o(&file).h(0).u(9)), OK);
}

#[test]
fn what_the_holder_does_itself_recalls_nothing() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let id = given.id();
    let mut r = a.run(&open(&a, b"f", (2, 0)));
    r.ok(22);
    let (writing, given) = opened(&mut r);
    assert_eq!(given, DelegationGrant::None);
    let mode = bitmap(X::new().raw(&ANONYMOUS), &[33]).o(&0o600u32.to_be_bytes());
    let root = a.volume();
    let all = Ops::new()
        .fh(&file)
        .write(&writing, 0, b"one")
        .write(&ANONYMOUS, 3, b"two")
        .op(34, mode)
        .op(73, X::new().u(0).o(b"name").o(b"value"))
        .getattr(&[4]);
    assert_eq!(a.status(&all), OK);
    let lock = Ops::new().fh(&file).lock(2, (0, 9), &writing, b"process");
    assert_eq!(a.status(&lock), OK);
    let link = Ops::new()
        .fh(&file)
        .save()
        .fh(&root)
        .op(11, X::new().o(b"second"));
    assert_eq!(a.status(&link), OK);
    let rename = Ops::new().fh(&root).save().fh(&root);
    let rename = rename.op(29, X::new().o(b"f").o(b"g"));
    assert_eq!(a.status(&rename), OK);
    assert_eq!(a.status(&Ops::new().fh(&root).remove(b"g")), OK);
    // Under the delegation what it allows.
    assert_eq!(a.status(&Ops::new().fh(&file).read(&id, 0, 9)), OK);
    assert_eq!(
        a.status(&Ops::new().fh(&file).write(&id, 0, b"x")),
        OPENMODE
    );
    assert!(calls.next().is_none());
    // Another client's change of a name recalls it.
    let b = Client::new(&s, OTHER, b"b");
    let waiting = parked(&b, &Ops::new().fh(&root).remove(b"second"));
    calls.expect(RECALL);
    give_up(&b, waiting);
}

#[test]
fn a_client_that_does_not_answer_loses_its_delegation() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let id = given.id();
    let mut waiting = parked(&b, &open(&b, b"f", (2, 0)));
    calls.expect(RECALL).reply(&s, OK, X::new());
    // After a tick the other client is to ask again.
    let tick = |seconds| {
        s.clock.advance(Duration::from_secs(seconds));
        s.service.tick();
    };
    tick(1);
    assert_eq!(poll(&mut waiting).expect("patience is lost").status, DELAY);
    let again = open(&b, b"f", (2, 0));
    for _ in 0..3 {
        tick(9);
        assert_eq!(flags(&a), 0);
        give_up(&b, parked(&b, &again));
    }
    tick(9);
    tick(1);
    assert_eq!(b.status(&again), OK);
    assert_eq!(flags(&a), 0x40, "RECALLABLE_STATE_REVOKED");
    assert_eq!(s.vfs.claims.recalls(), (1, 1));
    let read = Ops::new().fh(&file).read(&id, 0, 9);
    assert_eq!(a.status(&read), DELEG_REVOKED);
    assert_eq!(a.status(&give_back(&file, &id)), DELEG_REVOKED);
    let test = Ops::new().op(55, X::new().u(1).raw(&id));
    let test = || {
        let mut r = a.run(&test);
        let r = r.ok(55);
        (r.u(), r.u())
    };
    assert_eq!(test(), (1, DELEG_REVOKED));
    assert_eq!(a.status(&Ops::new().op(45, X::new().raw(&id))), OK);
    assert_eq!(test(), (1, BAD_STATEID));
    assert_eq!(flags(&a), 0);
}

#[test]
fn a_file_is_opened_under_its_delegation_while_that_is_recalled() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 3 | WANT_WRITE);
    let id = given.id();
    assert_eq!(a.status(&Ops::new().fh(&file).write(&id, 0, b"data")), OK);
    let waiting = parked(&b, &open(&b, b"f", (1, 0)));
    calls.expect(RECALL).reply(&s, OK, X::new());
    let x = X::new().u(0).u(3).u(0).h(0).o(b"own").u(0);
    let mut r = a.run(&Ops::new().fh(&file).op(18, x.clone().u(5).raw(&id)));
    r.ok(22);
    let (state, given) = opened(&mut r);
    assert_eq!(given, DelegationGrant::None);
    let root = a.volume();
    let named = x.clone().u(2).raw(&id).o(b"f");
    let mut r = a.run(&Ops::new().fh(&root).op(18, named));
    r.ok(22);
    assert_eq!(opened(&mut r).0[4..], state[4..]);
    assert_eq!(a.status(&give_back(&file, &id)), OK);
    give_up(&b, waiting);
    let late = Ops::new().fh(&file).op(18, x.u(5).raw(&id));
    assert_eq!(a.status(&late), BAD_STATEID);
    assert_eq!(b.status(&open(&b, b"f", (1, 0))), OK);
}

#[test]
fn the_holder_of_a_write_delegation_is_asked_for_attributes() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 3 | WANT_WRITE);
    assert!(matches!(given, DelegationGrant::Write(_)));
    let ops = Ops::new().fh(&file).getattr(&[3, 4]);
    let attributes = |r: &mut Results| {
        r.ok(22);
        let mut r = r.attrs();
        (r.h(), r.h())
    };
    let mut r = a.run(&ops);
    let before = attributes(&mut r);
    assert!(calls.next().is_none(), "it is not asked itself");
    for (change, size, modified) in [(0, before.1, false), (1, 5, true)] {
        let mut waiting = parked(&b, &ops);
        let mut call = calls.expect(GETATTR);
        assert_eq!(call.r.o(), file);
        assert_eq!((call.r.u(), call.r.u()), (1, 0x18));
        let values = X::new().h(before.0 + change).h(size);
        call.reply(&s, OK, X::new().u(1).u(0x18).o(&values.0));
        let after = attributes(&mut poll(&mut waiting).expect("attributes"));
        assert_eq!(after.0 > before.0, modified, "change");
        assert_eq!(after.1, size);
    }
    // Behind operations that have had the attributes it is asked as well.
    let root = b.volume();
    let looks = Ops::new().fh(&root).lookup(b"f").getattr(&[3, 4]);
    let mut waiting = parked(&b, &looks);
    let values = X::new().h(before.0).h(7);
    calls
        .expect(GETATTR)
        .reply(&s, OK, X::new().u(1).u(0x18).o(&values.0));
    let mut r = poll(&mut waiting).expect("attributes");
    r.ok(22);
    r.ok(15);
    let mut r = r.attrs();
    r.h();
    assert_eq!(r.h(), 7);
    // ACCESS asks nothing, and version 3 shows what the server has.
    assert_eq!(b.status(&Ops::new().fh(&file).op(3, X::new().u(1))), OK);
    assert!(calls.next().is_none());
}

#[test]
fn a_test_for_a_lock_waits_for_who_may_have_locked_by_itself() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let test = |file: &[u8]| {
        let x = X::new().u(2).h(0).h(10).h(0).o(b"process");
        Ops::new().fh(file).op(13, x)
    };
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    assert_eq!(
        b.status(&test(&file)),
        OK,
        "it cannot have a lock that excludes"
    );
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    let (file, open, given) = delegated(&a, b"g", 3 | WANT_WRITE);
    assert_eq!(a.status(&test(&file)), OK, "its own");
    let mut waiting = parked(&b, &test(&file));
    calls.expect(RECALL).reply(&s, OK, X::new());
    let lock = Ops::new().fh(&file).lock(2, (0, 10), &open, b"process");
    assert_eq!(a.status(&lock), OK);
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    assert_eq!(poll(&mut waiting).expect("the result").status, DENIED);
}

#[test]
fn a_lost_connection_is_reported_and_calls_are_made_again() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let waiting = parked(&b, &open(&b, b"f", (2, 0)));
    let first = calls.expect(RECALL);
    assert_eq!(flags(&a), 0);
    s.service.connection_ended(&s.conn());
    assert_eq!(flags(&a), 0x201, "CB_PATH_DOWN, CB_PATH_DOWN_SESSION");
    assert!(calls.next().is_none());
    let (.., none) = delegated(&a, b"other", 1 | WANT_READ);
    assert_eq!(none, DelegationGrant::Not(2), "it could not be recalled");
    let bind = |direction: u32| {
        let x = X::new().raw(&a.session).u(direction).u(0);
        let mut r = a.alone(41, x);
        let r = r.ok(41);
        r.raw(16);
        r.u()
    };
    assert_eq!(bind(1), 1);
    assert!(calls.next().is_none(), "for requests alone");
    assert_eq!(bind(3), 3);
    assert_eq!(flags(&a), 0);
    let again = calls.expect(RECALL);
    assert_eq!((again.slot, again.sequence), (first.slot, first.sequence));
    assert_ne!(again.xid, first.xid);
    // The reply to the first has no effect any more.
    first.refuse(&s, 10_052);
    assert_eq!(flags(&a), 0);
    again.refuse(&s, 10_052);
    assert_eq!(flags(&a), 0x400, "BACKCHANNEL_FAULT");
    s.service.tick();
    let third = calls.expect(RECALL);
    assert_eq!(third.sequence, first.sequence, "it was not executed");
    third.reply(&s, OK, X::new());
    assert_eq!(flags(&a), 0);
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    give_up(&b, waiting);
}

#[test]
fn a_client_that_does_not_know_a_delegation_has_none() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let mut waiting = Some(parked(&b, &open(&b, b"f", (2, 0))));
    for n in 1..=5 {
        let call = calls.expect(RECALL);
        assert_eq!(call.sequence, n);
        call.reply(&s, BAD_STATEID, X::new());
        match n {
            5 => {}
            2 => give_up(&b, waiting.take().unwrap()),
            _ => assert!(calls.next().is_none()),
        }
        s.service.tick();
    }
    assert!(calls.next().is_none());
    assert_eq!(b.status(&open(&b, b"f", (2, 0))), OK);
    assert_eq!(a.status(&give_back(&file, &given.id())), BAD_STATEID);
    assert_eq!(flags(&a), 0, "nothing was revoked");
}

#[test]
fn delegations_are_claimed_again_after_a_restart() {
    let mut s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let file = {
        let a = Client::new(&s, HOST, b"a");
        let (file, _, given) = delegated(&a, b"f", 3 | WANT_WRITE);
        assert!(matches!(given, DelegationGrant::Write(_)));
        file
    };
    assert!(calls.next().is_none());
    s.vfs.claims.release_all(weir_vfs::claims::ServiceId(1));
    s.restart();
    let calls = Callbacks::attach_to(&s);
    let a = Client::reclaiming(&s, HOST, b"a", 1);
    let x = X::new().u(0).u(3).u(0).h(0).o(b"o").u(0);
    let mut r = a.run(&Ops::new().fh(&file).op(18, x.u(1).u(2)));
    r.ok(22);
    let (_, given) = opened(&mut r);
    assert!(matches!(given, DelegationGrant::Write(_)));
    // Version 3 waits for the grace period, or for the delegation.
    let write = X::new().o(&file).h(0).u(1).u(2).o(b"x");
    assert_eq!(a.status(&Ops::new().op(58, X::new().u(0))), OK);
    assert_eq!(s.from(OTHER).call(NFS, 7, &write).u(), JUKEBOX);
    calls.expect(RECALL).reply(&s, OK, X::new());
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    assert_eq!(s.from(OTHER).call(NFS, 7, &write).u(), OK);
}

#[test]
fn wishes_for_delegations_are_respected() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let (file, state, given) = delegated(&a, b"f", 3);
    assert_eq!(given, DelegationGrant::None, "it was made just now");
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    let again = |access| {
        let mut r = a.run(&open(&a, b"f", (access, 0)));
        r.ok(22);
        opened(&mut r)
    };
    assert_eq!(again(1 | 0x400).1, DelegationGrant::Not(0), "not wanted");
    assert_eq!(again(1 | 0x500).1, DelegationGrant::Not(7), "cancelled");
    let (_, given) = again(1);
    let DelegationGrant::Read(id) = given else {
        panic!("{given:?}");
    };
    assert_eq!(again(1).1, DelegationGrant::None, "it has one");
    assert_eq!(
        again(3 | WANT_WRITE).1,
        DelegationGrant::Not(5),
        "no upgrade"
    );
    assert_eq!(a.status(&give_back(&file, &id)), OK);
    assert!(matches!(again(3).1, DelegationGrant::Write(_)));
    // Another's open for writing excludes any.
    let b = Client::new(&s, OTHER, b"b");
    let (_, _, given) = delegated(&b, b"g", 2);
    assert_eq!(given, DelegationGrant::None);
    let mut r = a.run(&open(&a, b"g", (1 | WANT_READ, 0)));
    r.ok(22);
    assert_eq!(opened(&mut r).1, DelegationGrant::Not(1));
    assert!(calls.next().is_none());
}

#[test]
fn callbacks_are_sent_with_what_the_client_wants() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let cred = X::new().u(13).o(b"name").u(17).u(19).u(1).u(23);
    let control = X::new().u(0x4000_0001).u(1).u(1).raw(&cred.0);
    assert_eq!(a.status(&Ops::new().op(40, control)), OK);
    delegated(&a, b"f", 1 | WANT_READ);
    let waiting = parked(&b, &open(&b, b"f", (2, 0)));
    let call = calls.expect(RECALL);
    assert_eq!(call.program, 0x4000_0001);
    assert_eq!(call.credential, (1, cred.0));
    give_up(&b, waiting);
}

#[test]
fn nothing_is_left_of_a_client_that_goes() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let before = s.vfs.claims.budget().used();
    let (file, state, given) = delegated(&a, b"f", 1 | WANT_READ);
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    assert_eq!(s.vfs.claims.totals().grants, 0);
    let after = s.vfs.claims.budget().used();
    assert!(
        after <= before + 1024,
        "{before} {after}: the record of the client"
    );
    delegated(&a, b"g", 1 | WANT_READ);
    assert_eq!(s.vfs.claims.totals().grants, 1);
    let again = Client::again(&s, HOST, b"a", 2);
    assert_eq!(s.vfs.claims.totals().grants, 0);
    assert_eq!(again.alone(44, X::new().raw(&again.session)).status, OK);
    assert_eq!(again.alone(57, X::new().h(again.id)).status, OK);
    assert_eq!(s.vfs.claims.budget().used(), 0);
    assert!(calls.next().is_none());
}

/// Returns the status of a LOCK of a kind that waits.
fn lock_waiting(c: &Client<'_>, file: &[u8], open: &[u8], range: (u64, u64)) -> u32 {
    c.status(&Ops::new().fh(file).lock(4, range, open, b"process"))
}

#[test]
fn a_client_that_waits_for_a_lock_is_notified_when_it_is_free() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let clients = [b"a", b"b", b"c"].map(|name| Client::new(&s, HOST, name));
    let [a, b, c] = &clients;
    let opened: Vec<_> = clients
        .iter()
        .map(|c| delegated(c, b"f", 3 | 0x400))
        .collect();
    let file = &opened[0].0;
    let [of_a, of_b, of_c] = [0, 1, 2].map(|n| &opened[n].1[..]);
    let mut r = a.run(&Ops::new().fh(file).lock(2, (0, 10), of_a, b"process"));
    r.ok(22);
    let held = r.ok(12).raw(16);
    assert_eq!(lock_waiting(b, file, of_b, (0, 10)), DENIED);
    assert_eq!(lock_waiting(c, file, of_c, (0, 10)), DENIED);
    assert_eq!(s.vfs.claims.totals().waiting, 2);
    let unlock = |c: &Client<'_>, state: &[u8]| {
        assert_eq!(c.status(&Ops::new().fh(file).locku((0, TO_END), state)), OK);
    };
    unlock(a, &held);
    let mut call = calls.expect(NOTIFY_LOCK);
    assert_eq!(call.session, b.session);
    assert_eq!(
        (call.r.o(), call.r.h(), call.r.o()),
        (file.clone(), b.id, b"process".to_vec())
    );
    call.reply(&s, OK, X::new());
    // It is kept for the first one.
    assert_eq!(lock_waiting(c, file, of_c, (0, 10)), DENIED);
    let mut r = b.run(&Ops::new().fh(file).lock(4, (0, 10), of_b, b"process"));
    r.ok(22);
    let held = r.ok(12).raw(16);
    for _ in 0..4 {
        s.clock.advance(Duration::from_secs(1));
        s.service.tick();
    }
    assert_eq!(lock_waiting(a, file, of_a, (0, 1)), DENIED, "it is b's");
    // The next one does not come: it goes to the one behind.
    unlock(b, &held);
    assert_eq!(calls.expect(NOTIFY_LOCK).session, c.session);
    assert_eq!(lock_waiting(b, file, of_b, (5, 1)), DENIED);
    for _ in 0..3 {
        s.clock.advance(Duration::from_secs(1));
        s.service.tick();
    }
    assert_eq!(s.vfs.claims.totals().waiting, 0);
    assert_eq!(
        lock_waiting(c, file, of_c, (0, 10)),
        DENIED,
        "a and b were next"
    );
}

#[test]
fn a_client_that_stops_waiting_for_a_lock_gets_none() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, of_a, _) = delegated(&a, b"f", 3 | 0x400);
    let (_, of_b, _) = delegated(&b, b"f", 3 | 0x400);
    let lock = |c: &Client<'_>, open: &[u8], kind: u32, range: (u64, u64)| {
        let mut r = c.run(&Ops::new().fh(&file).lock(kind, range, open, b"process"));
        r.ok(22);
        (r.status == OK).then(|| r.ok(12).raw(16))
    };
    let held = lock(&a, &of_a, 2, (0, 10)).unwrap();
    // By closing the file.
    assert_eq!(lock(&b, &of_b, 4, (0, 10)), None);
    assert_eq!(b.status(&Ops::new().fh(&file).close(&of_b)), OK);
    assert_eq!(s.vfs.claims.totals().waiting, 0);
    // By asking for something else.
    let (_, of_b, _) = delegated(&b, b"f", 3 | 0x400);
    assert_eq!(lock(&b, &of_b, 4, (0, 10)), None);
    assert_eq!(s.vfs.claims.totals().waiting, 1);
    assert!(lock(&b, &of_b, 4, (20, 10)).is_some());
    assert_eq!(s.vfs.claims.totals().waiting, 0);
    assert_eq!(lock(&b, &of_b, 4, (0, 10)), None, "not queued with a lock");
    assert_eq!(s.vfs.claims.totals().waiting, 0);
    let unlock = Ops::new().fh(&file).locku((0, TO_END), &held);
    assert_eq!(a.status(&unlock), OK);
    assert!(calls.next().is_none());
    // By not asking again.
    let (_, other, _) = delegated(&b, b"g", 3 | 0x400);
    drop(other);
    let held = lock(&a, &of_a, 2, (0, 10)).unwrap();
    let waits = Ops::new().fh(&file).lock(4, (0, 10), &of_b, b"another");
    assert_eq!(b.status(&waits), DENIED);
    for _ in 0..4 {
        s.clock.advance(Duration::from_secs(10));
        assert_eq!((flags(&a), flags(&b)), (0, 0));
        s.service.tick();
    }
    assert_eq!(s.vfs.claims.totals().waiting, 0);
    drop(held);
    assert!(calls.next().is_none());
}

#[test]
fn what_a_revert_ends_is_reported_until_it_is_freed() {
    let s = Server::new();
    let _calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let (file, open, given) = delegated(&a, b"f", 3 | WANT_WRITE);
    let mut r = a.run(&Ops::new().fh(&file).lock(2, (0, 10), &open, b"process"));
    r.ok(22);
    let lock = r.ok(12).raw(16);
    s.volume
        .snapshot_take("before", "", s.current_time())
        .unwrap();
    s.engine.revert("vol1", "before").unwrap();
    let states = [open, lock, given.id()];
    const ADMIN_REVOKED: u32 = 10_047;
    for state in &states {
        let test = Ops::new().op(55, X::new().u(1).raw(state));
        let mut r = a.run(&test);
        let r = r.ok(55);
        assert_eq!((r.u(), r.u()), (1, ADMIN_REVOKED));
        let read = Ops::new().fh(&file).read(state, 0, 9);
        assert_eq!(a.status(&read), ADMIN_REVOKED);
        assert_eq!(flags(&a), 0x20, "ADMIN_STATE_REVOKED");
    }
    for state in &states {
        assert_eq!(a.status(&Ops::new().op(45, X::new().raw(state))), OK);
    }
    assert_eq!(flags(&a), 0);
    let (.., given) = delegated(&a, b"f", 1 | WANT_READ);
    assert!(matches!(given, DelegationGrant::Read(_)));
}

#[test]
fn a_delegation_is_enough_for_a_client_that_says_so() {
    const XOR: u32 = 0x20_0000;
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let mut r = a.run(&Ops::new().root().op(9, bitmap(X::new(), &[86])));
    r.ok(24);
    let mut r = r.attrs();
    let maps: Vec<u32> = (0..5).map(|_| (r.u(), r.u()).1).collect();
    assert_eq!(maps, [0xe, 0xf, 0x30_0038, 0x37, 0xf]);
    let (file, open, given) = delegated(&a, b"f", 1 | WANT_READ | XOR);
    assert_eq!(open, [0; 16]);
    let id = given.id();
    assert_eq!(s.vfs.claims.totals().held, 0, "no open");
    assert_eq!(a.status(&Ops::new().fh(&file).read(&id, 0, 9)), OK);
    let waiting = parked(&b, &Ops::new().fh(&b.volume()).remove(b"f"));
    calls.expect(RECALL).reply(&s, OK, X::new());
    let x = X::new().u(0).u(1).u(0).h(0).o(b"own").u(0);
    let mut r = a.run(&Ops::new().fh(&file).op(18, x.u(5).raw(&id)));
    r.ok(22);
    assert_ne!(support::callbacks::opened(&mut r).0, [0; 16]);
    give_up(&b, waiting);
    // Denial of shares needs an open, and so does a client with another.
    let deny = Ops::new()
        .fh(&a.volume())
        .open(b"g", b"o", (1 | WANT_READ | XOR, 2), Some(0));
    let mut r = a.run(&deny);
    r.ok(22);
    assert_ne!(opened(&mut r).0, [0; 16]);
}
