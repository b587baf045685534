//! Delegations whose holders keep the file's times (RFC 9754 §5), and WANT_DELEGATION.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::time::Duration;
use support::callbacks::*;
use support::compound::*;
use support::{NFS, Server, X};
use weir_base::Time;

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const ANONYMOUS: [u8; 16] = [0; 16];
const READ: u32 = 0x100;
const WRITE: u32 = 0x200;
const ANY: u32 = 0x300;
const TIMES: u32 = 0x10_0000;
const ACCESSED: u32 = 84;
const MODIFIED: u32 = 85;
const NOTSUPP: u32 = 10_004;

fn time(x: X, t: Time) -> X {
    x.h(t.secs as u64).u(t.nanos)
}

/// SETATTR of times under a stateid.
fn set(file: &[u8], state: &[u8], times: &[(u32, Time)]) -> Ops {
    let numbers: Vec<u32> = times.iter().map(|(number, _)| *number).collect();
    let values = times.iter().fold(X::new(), |x, (_, t)| time(x, *t));
    let x = bitmap(X::new().raw(state), &numbers).o(&values.0);
    Ops::new().fh(file).op(34, x)
}

/// Change, time of access, time of modification.
type FileTimes = (u64, Time, Time);

const SHOWN: [u32; 3] = [3, 47, 53];

fn decode_times(mut r: Results) -> FileTimes {
    r.ok(22);
    let mut r = r.attrs();
    let change = r.h();
    let mut time = || Time {
        secs: r.h() as i64,
        nanos: r.u(),
    };
    (change, time(), time())
}

fn later(t: Time, secs: i64) -> Time {
    Time {
        secs: t.secs + secs,
        nanos: 7,
    }
}

#[test]
fn the_times_of_a_file_are_those_that_the_holder_of_a_delegation_says() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, state, given) = delegated(&a, b"f", 3 | WRITE | TIMES);
    let DelegationGrant::WriteTimes(id) = given else {
        panic!("{given:?}");
    };
    let look = Ops::new().fh(&file).getattr(&SHOWN);
    let begun = decode_times(a.run(&look));
    s.clock.advance(Duration::from_secs(100));
    let now = s.current_time();
    let said = (later(begun.1, 10), later(begun.2, 20));
    let mut before = begun.0;
    // The holder's times count, except those before the grant; future ones become now.
    for (sent, want, moves) in [
        (said, said, true),
        (said, said, false),
        ((later(begun.1, -9), later(begun.2, -9)), said, false),
        ((later(now, 50), later(now, 60)), (now, now), true),
    ] {
        let mut waiting = parked(&b, &look);
        let mut call = calls.expect(GETATTR);
        assert_eq!(call.r.o(), file);
        assert_eq!(
            (call.r.u(), call.r.u(), call.r.u(), call.r.u()),
            (3, 0x18, 0, 3 << 20)
        );
        let values = time(time(X::new().h(begun.0).h(0), sent.0), sent.1);
        call.reply(&s, OK, X::new().u(3).u(0x18).u(0).u(3 << 20).o(&values.0));
        let (change, accessed, modified) = decode_times(poll(&mut waiting).expect("attributes"));
        assert_eq!((accessed, modified), want);
        assert_eq!(change > before, moves, "as the time of modification");
        before = change;
    }
    // The holder must set the times under its delegation, and need not own the file.
    let sets = |state: &[u8], number, at| a.status(&set(&file, state, &[(number, at)]));
    s.uid.set((77, 77));
    for wrong in [&state[..], &ANONYMOUS] {
        assert_eq!(sets(wrong, MODIFIED, now), BAD_STATEID);
    }
    assert_eq!(
        sets(
            &id,
            MODIFIED,
            Time {
                secs: 5,
                nanos: 1_000_000_000
            }
        ),
        INVAL
    );
    let (accessed, modified) = (later(begun.1, 30), later(begun.2, 40));
    let both = set(&file, &id, &[(ACCESSED, accessed), (MODIFIED, modified)]);
    assert_eq!(a.status(&both), OK);
    assert_eq!(sets(&id, MODIFIED, later(begun.2, -1)), OK, "and ignored");
    s.uid.set((0, 0));
    assert_eq!(a.status(&give_back(&file, &id)), OK);
    let after = decode_times(b.run(&look));
    assert!(after.0 > begun.0);
    assert_eq!((after.1, after.2), (accessed, modified));
    assert_eq!(sets(&id, MODIFIED, now), BAD_STATEID, "it was returned");
    assert!(calls.next().is_none());
}

/// RFC 9754 §5: it goes to the time of modification, not to now, and not along with the time of
/// access.
#[test]
fn the_change_time_follows_the_time_of_modification_that_a_holder_says() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 3 | WRITE | TIMES);
    let id = given.id();
    // Change, time of the last change, time of modification.
    let look = Ops::new().fh(&file).getattr(&[3, 52, 53]);
    let sets = |times: &[(u32, Time)]| {
        assert_eq!(a.status(&set(&file, &id, times)), OK);
        decode_times(a.run(&look))
    };
    let begun = decode_times(a.run(&look));
    s.clock.advance(Duration::from_secs(100));
    assert_eq!(sets(&[(ACCESSED, later(begun.1, 10))]), begun);
    assert_eq!(sets(&[(MODIFIED, begun.2)]), begun, "it has that");
    let modified = later(begun.2, 40);
    let after = sets(&[(MODIFIED, modified)]);
    assert_eq!((after.1, after.2), (modified, modified));
    assert!(after.0 > begun.0);
    // Back to what it was at the grant, which is not before that; the last change was later all the
    // same.
    let back = sets(&[(MODIFIED, begun.2)]);
    assert_eq!(back.2, begun.2);
    assert!(back.0 > after.0 && back.1 > modified && back.1 < later(modified, 1));
    // So it is when it says so because it is asked; what another client has seen stays.
    let asked = later(begun.2, 60);
    let mut waiting = parked(&b, &look);
    let values = time(time(X::new().h(begun.0).h(0), begun.1), asked);
    let body = X::new().u(3).u(0x18).u(0).u(3 << 20).o(&values.0);
    calls.expect(GETATTR).reply(&s, OK, body);
    let seen = decode_times(poll(&mut waiting).expect("attributes"));
    assert_eq!((seen.1, seen.2), (asked, asked));
    assert!(seen.0 > back.0);
    assert_eq!(decode_times(a.run(&look)), seen);
}

#[test]
fn the_holder_of_a_read_delegation_says_when_it_read_and_disturbs_nobody() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, _, given) = delegated(&a, b"f", 1 | READ | TIMES);
    let DelegationGrant::ReadTimes(id) = given else {
        panic!("{given:?}");
    };
    let (.., other) = delegated(&b, b"f", 1 | READ);
    let DelegationGrant::Read(plain) = other else {
        panic!("{other:?}");
    };
    let look = Ops::new().fh(&file).getattr(&SHOWN);
    let begun = decode_times(a.run(&look));
    s.clock.advance(Duration::from_secs(100));
    let read = later(begun.1, 10);
    assert_eq!(a.status(&set(&file, &id, &[(ACCESSED, read)])), OK);
    assert_eq!(decode_times(b.run(&look)), (begun.0, read, begun.2));
    assert_eq!(a.status(&set(&file, &id, &[(MODIFIED, read)])), OPENMODE);
    assert_eq!(
        b.status(&set(&file, &plain, &[(ACCESSED, read)])),
        BAD_STATEID
    );
    assert!(calls.next().is_none());
}

#[test]
fn times_that_holders_keep_are_set_and_not_asked_for() {
    let s = Server::new();
    let _calls = Callbacks::attach_to(&s);
    let mut a = Client::new(&s, HOST, b"a");
    let (file, state, given) = delegated(&a, b"f", 3 | WRITE | TIMES);
    let look = Ops::new().fh(&file).getattr(&[ACCESSED]);
    assert_eq!(a.status(&look), INVAL);
    // Not of what is made.
    let root = a.volume();
    let made = bitmap(X::new().u(2).o(b"d"), &[ACCESSED]).o(&[0; 12]);
    assert_eq!(a.status(&Ops::new().fh(&root).op(6, made)), INVAL);
    // The length and the time of modification at once: the time is what was said.
    s.clock.advance(Duration::from_secs(100));
    let begun = decode_times(a.run(&Ops::new().fh(&file).getattr(&SHOWN)));
    let modified = later(begun.2, 3);
    let values = time(X::new().h(5), modified);
    let x = bitmap(X::new().raw(&given.id()), &[4, MODIFIED]).o(&values.0);
    assert_eq!(a.status(&Ops::new().fh(&file).op(34, x)), OK);
    assert_eq!(
        decode_times(a.run(&Ops::new().fh(&file).getattr(&SHOWN))).2,
        modified
    );
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    // Minor version 1 has no such attributes, and no such delegations.
    a.minor = 1;
    let root = a.volume();
    let ops = Ops::new()
        .fh(&root)
        .open(b"g", b"o", (3 | WRITE | TIMES, 0), Some(0));
    let mut r = a.run(&ops);
    r.ok(22);
    assert!(matches!(opened(&mut r).1, DelegationGrant::Write(_)));
}

#[test]
fn delegations_with_times_are_claimed_again() {
    let mut s = Server::new();
    let _calls = Callbacks::attach_to(&s);
    let file = delegated(&Client::new(&s, HOST, b"a"), b"f", 3 | WRITE | TIMES).0;
    s.vfs.claims.release_all(weir_vfs::claims::ServiceId(1));
    s.restart();
    let _calls = Callbacks::attach_to(&s);
    let a = Client::reclaiming(&s, HOST, b"a", 1);
    let x = X::new().u(0).u(3).u(0).h(0).o(b"o").u(0);
    let mut r = a.run(&Ops::new().fh(&file).op(18, x.u(1).u(5)));
    r.ok(22);
    let (_, given) = opened(&mut r);
    assert!(matches!(given, DelegationGrant::WriteTimes(_)), "{given:?}");
    assert_eq!(a.status(&give_back(&file, &given.id())), OK);
    // And without an OPEN.
    let mut r = a.run(&want(&file, 0, X::new().u(1).u(4)));
    assert!(matches!(wanted(&mut r), DelegationGrant::ReadTimes(_)));
    // Values that are no delegation cannot be reclaimed.
    assert_eq!(a.status(&want(&file, 0, X::new().u(1).u(3))), INVAL);
    assert_eq!(a.status(&want(&file, READ, X::new().u(4))), GRACE);
}

/// WANT_DELEGATION with a claim.
fn want(file: &[u8], wishes: u32, claim: X) -> Ops {
    Ops::new().fh(file).op(56, X::new().u(wishes).raw(&claim.0))
}

fn wanted(r: &mut Results) -> DelegationGrant {
    r.ok(22);
    given(r.ok(56))
}

#[test]
fn a_delegation_is_given_without_an_open() {
    let s = Server::new();
    let calls = Callbacks::attach_to(&s);
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, state, none) = delegated(&a, b"f", 3);
    assert_eq!(none, DelegationGrant::None);
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    let current = || X::new().u(4);
    let ask = |c: &Client<'_>, wishes| wanted(&mut c.run(&want(&file, wishes, current())));
    // The stateid is the current one for what follows.
    let follows =
        want(&file, READ, current()).read(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, 9);
    let mut r = a.run(&follows);
    let DelegationGrant::Read(id) = wanted(&mut r) else {
        panic!("a read delegation");
    };
    r.ok(25);
    assert_eq!(ask(&a, READ), DelegationGrant::Not(0), "it has one");
    assert_eq!(ask(&a, WRITE), DelegationGrant::Not(5), "no upgrade");
    assert!(matches!(
        ask(&b, READ | TIMES),
        DelegationGrant::ReadTimes(_)
    ));
    assert_eq!(a.status(&give_back(&file, &id)), OK);
    assert_eq!(ask(&a, WRITE), DelegationGrant::Not(1), "another has it");
    assert_eq!(s.vfs.claims.totals().held, 0, "nothing is open");
    // It is recalled as any other.
    let write = X::new().o(&file).h(0).u(1).u(2).o(b"x");
    assert_eq!(s.from(HOST).call(NFS, 7, &write).u(), 10_008);
    calls.expect(RECALL);
    // Invalid wishes.
    for wishes in [0, 0x400, 0x600, READ | 4, READ | 0x80_0000] {
        assert_eq!(
            a.status(&want(&file, wishes, current())),
            INVAL,
            "{wishes:#x}"
        );
    }
    assert_eq!(ask(&a, 0x500), DelegationGrant::Not(7), "cancelled");
    assert_eq!(a.status(&want(&file, READ, X::new().u(6))), NOTSUPP);
    assert_eq!(a.status(&want(&file, READ, X::new().u(0))), BADXDR);
    assert_eq!(a.status(&want(&file, READ, X::new().u(1).u(1))), NO_GRACE);
    assert_eq!(a.status(&Ops::new().op(56, X::new().u(READ).u(4))), 10_020);
    let root = a.volume();
    for dir in [Ops::new().root(), Ops::new().fh(&root)] {
        let mut r = a.run(&dir.op(56, X::new().u(READ).u(4)));
        let operation = r.r.u();
        assert_eq!((r.r.u(), [22, 24].contains(&operation)), (OK, true));
        assert_eq!(given(r.ok(56)), DelegationGrant::Not(8), "a directory");
    }
}

#[test]
fn who_may_not_open_a_file_gets_no_delegation_of_it() {
    let s = Server::new();
    let _calls = Callbacks::attach_to(&s);
    let a = Client::new(&s, HOST, b"a");
    let (file, state, _) = delegated(&a, b"f", 3);
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    let ask = |wishes| a.run(&want(&file, wishes, X::new().u(4)));
    // Its mode is 0644.
    s.uid.set((77, 77));
    assert_eq!(ask(WRITE).status, ACCESS);
    let DelegationGrant::Read(id) = wanted(&mut ask(ANY)) else {
        panic!("what it may");
    };
    assert_eq!(a.status(&give_back(&file, &id)), OK);
    s.uid.set((0, 0));
    assert!(matches!(wanted(&mut ask(ANY)), DelegationGrant::Write(_)));
}
