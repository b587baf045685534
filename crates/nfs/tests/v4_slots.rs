//! Shortage of memory: clients of NFSv4 are asked to give up slots and unused delegations, and some
//! requests must not take memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::Duration;
use support::callbacks::*;
use support::compound::*;
use support::{R, Server, X};
use weir_base::Reservation;
use weir_nfs::Begin;
use weir_vfs::{Clients, Export, Rule, Squash};

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const WANT_READ: u32 = 0x100;
const RECALL_ANY: u32 = 8;
const RECALL_SLOT: u32 = 10;

/// Takes all memory for clients but `left` bytes.
fn shortage(s: &Server, left: usize) -> Reservation {
    let budget = s.vfs.claims.budget();
    budget.try_reserve(budget.available() - left).unwrap()
}

/// A further session with so many slots.
fn session(c: &mut Client<'_>, number: u32, slots: u32) {
    let mut r = c.alone(43, creation(c.id, number, slots));
    c.session = r.ok(43).raw(16);
    *c.slots.borrow_mut() = vec![0; slots as usize];
}

/// A request in a slot, of a client that uses no slot beyond `highest`: the highest slot, the one
/// that it is to use.
fn sequence(c: &Client<'_>, slot: u32, highest: u32, cache: bool) -> (u32, u32) {
    let number = {
        let mut slots = c.slots.borrow_mut();
        slots[slot as usize] += 1;
        slots[slot as usize]
    };
    let x = X::new().raw(&c.session).u(number).u(slot).u(highest);
    let ops = Ops::new().op(53, x.u(cache.into())).root().getattr(&[1]);
    let mut r = c.send(&c.compound(&ops));
    let r = r.ok(53);
    r.raw(16 + 8);
    (r.u(), r.u())
}

#[test]
fn a_client_uses_fewer_slots_while_memory_is_short() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let mut c = Client::new(&s, HOST, b"client");
    session(&mut c, 2, 64);
    assert_eq!(sequence(&c, 63, 63, true), (63, 63));
    let kept = s.vfs.claims.budget().used();
    let memory = shortage(&s, 0);
    // The reply is not kept, which is found at the next tick.
    assert_eq!(sequence(&c, 0, 63, true), (63, 63));
    assert!(calls.next().is_none());
    s.service.tick();
    let mut call = calls.expect(RECALL_SLOT);
    assert_eq!((&call.session, call.r.u()), (&c.session, 31));
    call.r.end();
    call.reply(&s, OK, X::new());
    // All slots are accepted, and what is kept stays until the client has followed.
    // A neighbour of it has been used; one that is used for the first time takes memory.
    assert_eq!(sequence(&c, 60, 63, false), (63, 31));
    assert_eq!(s.vfs.claims.budget().available(), 0);
    assert_eq!(sequence(&c, 1, 31, false), (63, 31));
    assert!(s.vfs.claims.budget().available() > 0, "of slot 63");
    // As long as it lasts, it is half of that again, down to eight.
    for highest in [15, 7] {
        let rest = shortage(&s, 0);
        sequence(&c, 0, 7, true);
        drop(rest);
        s.service.tick();
        assert_eq!(calls.expect(RECALL_SLOT).r.u(), highest);
    }
    sequence(&c, 0, 7, true);
    drop(memory);
    s.service.tick();
    for (passed, highest) in [(29, 7), (1, 15), (29, 15), (1, 31), (30, 63), (60, 63)] {
        s.clock.advance(Duration::from_secs(passed));
        s.service.tick();
        assert_eq!(sequence(&c, 0, 7, false), (63, highest));
    }
    // In a slot that was given up and is used again, the count goes on.
    assert_eq!(sequence(&c, 63, 63, true), (63, 63));
    assert!(s.vfs.claims.budget().used() <= kept);
}

#[test]
fn delegations_are_asked_back_when_memory_is_short() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let root = a.volume();
    for name in [b"f", b"g", b"h", b"i"] {
        let open = Ops::new()
            .fh(&root)
            .open(name, b"o", (1 | WANT_READ, 0), Some(0));
        let mut r = a.run(&open);
        r.ok(22);
        assert!(matches!(opened(&mut r).1, DelegationGrant::Read(_)));
    }
    let b = Client::new(&s, OTHER, b"b");
    let root = b.volume();
    let open = |name| Ops::new().fh(&root).open(name, b"o", (1, 0), Some(0));
    let memory = shortage(&s, 0);
    assert_eq!(b.status(&open(b"x")), DELAY);
    // To b, which has no delegations, and none of whose four slots is asked for.
    let mut call = calls.expect(RECALL_ANY);
    assert_eq!(call.r.u(), 2, "half of them");
    call.reply(&s, OK, X::new());
    drop(memory);
    assert_eq!(b.status(&open(b"x")), OK);
}

/// Sends the head of a WRITE so long that the head decides if it is read. Returns the reply if it
/// is not read.
fn begun(s: &Server, args: &X) -> Option<R> {
    let head = s.encode(NFS4, 1, args);
    let cx = std::task::Context::from_waker(std::task::Waker::noop());
    match s.service.begin(&s.conn(), &head, 1 << 20, &cx) {
        Begin::Go(_) => None,
        Begin::Refuse(reply, _) => {
            let mut r = R(reply.message(), 0);
            r.raw(24);
            Some(r)
        }
        _ => panic!("neither read nor answered"),
    }
}

/// As that of a session of before a restart.
#[test]
fn a_long_request_of_an_unknown_session_is_told_so() {
    let s = Server::new();
    let file = s.create(&s.root(), b"f", 0o644);
    let client = Client::new(&s, HOST, b"client");
    let write = Ops::new().fh(&file).write(&[0; 16], 0, &[7; 64]);
    assert!(begun(&s, &client.next_args(&write, true)).is_none());
    let session = X::new().raw(&client.session);
    assert_eq!(client.alone(44, session).status, OK, "DESTROY_SESSION");
    let mut r = begun(&s, &client.next_args(&write, true)).unwrap();
    assert_eq!((r.u(), r.o()), (BADSESSION, b"tag".to_vec()));
    assert_eq!((r.u(), r.u(), r.u()), (1, 53, BADSESSION));
}

/// A WRITE that must fail is not read. It fails in its place: SEQUENCE and PUTFH before it are
/// carried out.
#[test]
fn a_long_request_that_cannot_be_carried_out_fails_in_its_place() {
    let s = Server::new();
    let file = s.create(&s.root(), b"f", 0o644);
    let client = Client::new(&s, HOST, b"client");
    let write = Ops::new().fh(&file).write(&[0; 16], 0, &[7; 64]);
    let failed = |args: &X, status: u32| {
        let mut r = begun(&s, args).expect("it is not read");
        assert_eq!((r.u(), r.o(), r.u()), (status, b"tag".to_vec(), 3));
        assert_eq!((r.u(), r.u()), (53, OK));
        r.raw(16 + 5 * 4);
        assert_eq!((r.u(), r.u()), (22, OK));
        assert_eq!((r.u(), r.u()), (38, status), "WRITE");
        r.end();
    };
    let others = Rule {
        clients: Clients::parse("10.9.9.9").unwrap(),
        ..Rule::open(Squash::None)
    };
    let denied = Export::new("/vol1", Arc::clone(&s.volume), vec![others]);
    s.vfs.publish(vec![denied]);
    let args = client.next_args(&write, true);
    failed(&args, ACCESS);
    // Its slot has moved: sent again it gets the same, another request under the same number is an
    // error.
    failed(&args, ACCESS);
    s.vfs.publish(Vec::new());
    s.engine.delete_volume("vol1").unwrap();
    failed(&client.next_args(&write, true), STALE);
    assert_eq!(client.status(&Ops::new().root().getattr(&[1])), OK);
}
