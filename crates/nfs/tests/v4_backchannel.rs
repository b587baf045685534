//! Clients of NFSv4 with more than one session: which of them calls are made over, and what
//! SEQUENCE says of their back channels.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::cell::{Cell, RefCell};
use std::time::Duration;
use support::callbacks::*;
use support::compound::*;
use support::{NFS, Server, X};

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const WANT_READ: u32 = 0x100;
const CB_PATH_DOWN: u32 = 0x1;
const CB_PATH_DOWN_SESSION: u32 = 0x200;
const BACKCHANNEL_FAULT: u32 = 0x400;

/// A further session of the client, the `number`th, made over this connection.
fn session<'s>(c: &Client<'s>, number: u32, connection: u64) -> Client<'s> {
    c.s.connection.set(connection);
    let mut r = c.alone(43, creation(c.id, number, 4));
    let session = r.ok(43).raw(16);
    Client {
        session,
        slots: RefCell::new(vec![0; 4]),
        last_lsn: Cell::new(None),
        ..*c
    }
}

fn lose(s: &Server, connection: u64) {
    s.connection.set(connection);
    s.service.connection_ended(&s.conn());
}

/// BIND_CONN_TO_SESSION, both ways.
fn bind(c: &Client<'_>, connection: u64) {
    c.s.connection.set(connection);
    let x = X::new().raw(&c.session).u(3).u(0);
    assert_eq!(c.alone(41, x).status, OK);
}

fn destroy(c: &Client<'_>) {
    assert_eq!(c.alone(44, X::new().raw(&c.session)).status, OK);
}

#[test]
fn another_session_takes_over_the_calls_of_one_that_is_lost() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let second = session(&a, 2, 2);
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let _waiting = parked(&b, &open(&b, b"f", (2, 0)));
    let lost = calls.expect(RECALL);
    assert_eq!((lost.connection, &lost.session), (2, &second.session));
    lose(&s, 2);
    // The client may not have got it.
    let anew = calls.expect(RECALL);
    assert_eq!((anew.connection, &anew.session), (1, &a.session));
    anew.reply(&s, OK, X::new());
    assert_eq!((flags(&second), flags(&a)), (CB_PATH_DOWN_SESSION, 0));
    let (.., other) = delegated(&second, b"g", 1 | WANT_READ);
    assert!(
        matches!(other, DelegationGrant::Read(_)),
        "it can be recalled"
    );
    // Or it did: only over this session it can tell.
    bind(&second, 3);
    assert_eq!((flags(&second), flags(&a)), (0, 0));
    let again = calls.expect(RECALL);
    assert_eq!((again.connection, &again.session), (3, &second.session));
    assert_eq!((again.slot, again.sequence), (lost.slot, lost.sequence));
    lose(&s, 3);
    assert!(calls.next().is_none(), "over the other session it was made");
    bind(&second, 4);
    calls.expect(RECALL).reply(&s, OK, X::new());
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    assert!(calls.next().is_none());
}

#[test]
fn what_waits_goes_over_the_first_session_that_has_a_connection() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let second = session(&a, 2, 2);
    delegated(&a, b"f", 1 | WANT_READ);
    lose(&s, 1);
    assert_eq!((flags(&second), flags(&a)), (0, CB_PATH_DOWN_SESSION));
    lose(&s, 2);
    let down = CB_PATH_DOWN | CB_PATH_DOWN_SESSION;
    assert_eq!((flags(&second), flags(&a)), (down, down));
    let (.., none) = delegated(&a, b"other", 1 | WANT_READ);
    assert_eq!(none, DelegationGrant::Not(2), "it could not be recalled");
    let _waiting = parked(&b, &open(&b, b"f", (2, 0)));
    assert!(calls.next().is_none());
    bind(&a, 3);
    let call = calls.expect(RECALL);
    assert_eq!((call.connection, &call.session), (3, &a.session));
    assert_eq!((flags(&second), flags(&a)), (CB_PATH_DOWN_SESSION, 0));
    call.reply(&s, OK, X::new());
    bind(&second, 4);
    assert!(calls.next().is_none());
}

#[test]
fn calls_outlive_the_session_that_they_were_made_over() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let second = session(&a, 2, 2);
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let mut waiting = parked(&b, &open(&b, b"f", (2, 0)));
    assert_eq!(calls.expect(RECALL).session, second.session);
    destroy(&second);
    assert_eq!(calls.expect(RECALL).session, a.session);
    // Its only one, which it makes anew.
    destroy(&a);
    assert!(calls.next().is_none());
    let third = session(&a, 3, 5);
    let call = calls.expect(RECALL);
    assert_eq!((call.connection, &call.session), (5, &third.session));
    assert_eq!(flags(&third), 0);
    call.reply(&s, OK, X::new());
    assert_eq!(third.status(&give_back(&file, &given.id())), OK);
    assert!(poll(&mut waiting).is_some());
}

#[test]
fn a_call_that_is_not_answered_is_made_over_another_session_too() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let second = session(&a, 2, 2);
    delegated(&a, b"f", 1 | WANT_READ);
    let _waiting = parked(&b, &open(&b, b"f", (2, 0)));
    let silent = calls.expect(RECALL);
    assert_eq!(silent.session, second.session);
    s.clock.advance(Duration::from_secs(14));
    s.service.tick();
    assert!(calls.next().is_none());
    s.clock.advance(Duration::from_secs(1));
    s.service.tick();
    assert_eq!((flags(&second), flags(&a)), (BACKCHANNEL_FAULT, 0));
    let anew = calls.expect(RECALL);
    assert_eq!(anew.session, a.session);
    anew.reply(&s, OK, X::new());
    s.service.tick();
    assert!(calls.next().is_none(), "once");
    // Late is not never.
    silent.reply(&s, OK, X::new());
    assert_eq!(flags(&second), 0);
}

#[test]
fn a_call_that_is_lost_keeps_its_slot() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let [c, d, e] = [b"c", b"d", b"e"].map(|owner| Client::new(&s, OTHER, owner));
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    for name in [b"g", b"h", b"i"] {
        delegated(&a, name, 1 | WANT_READ);
    }
    let _g = parked(&b, &open(&b, b"g", (2, 0)));
    let first = calls.expect(RECALL);
    let _f = parked(&c, &open(&c, b"f", (2, 0)));
    let lost = calls.expect(RECALL);
    assert_eq!((first.slot, lost.slot), (0, 1));
    first.reply(&s, OK, X::new());
    lose(&s, 1);
    // Over, as far as the server knows; whether the client has executed it, it has still to say.
    s.connection.set(2);
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    bind(&a, 2);
    let again = calls.expect(RECALL);
    assert_eq!((again.slot, again.sequence), (lost.slot, lost.sequence));
    // The client has executed another call under this number, which is therefore used up.
    again.refuse(&s, SEQ_FALSE_RETRY);
    let _h = parked(&d, &open(&d, b"h", (2, 0)));
    assert_eq!(calls.expect(RECALL).slot, 0);
    let _i = parked(&e, &open(&e, b"i", (2, 0)));
    let next = calls.expect(RECALL);
    assert_eq!((next.slot, next.sequence), (lost.slot, lost.sequence + 1));
}

#[test]
fn no_recall_is_lost_however_many_wait() {
    const FILES: usize = 1100;
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let files: Vec<_> = (0..FILES)
        .map(|n| {
            let name = format!("f{n}");
            let (file, _, given) = delegated(&a, name.as_bytes(), 1 | WANT_READ);
            assert!(matches!(given, DelegationGrant::Read(_)), "{given:?}");
            file
        })
        .collect();
    lose(&s, 1);
    for file in &files {
        let x = X::new().o(file).sattr(Some(0o600), None).u(0);
        let record = s.encode(NFS, 2, &x);
        drop(s.service.handle(&s.conn(), &record, s.current_time()));
    }
    bind(&a, 2);
    let mut recalled = 0;
    loop {
        let made = calls.take_calls();
        if made.is_empty() {
            break;
        }
        for call in made {
            assert_eq!(call.operation, RECALL);
            call.reply(&s, OK, X::new());
            recalled += 1;
        }
    }
    assert_eq!(recalled, FILES);
}
