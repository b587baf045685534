//! SP4_MACH_CRED (RFC 8881 §2.10.8.3): operations on a client and its sessions are reserved for its
//! machine, which may also end its users' state.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::cell::Cell;
use support::compound::*;
use support::gss::{INTEGRITY, NONE, PRIVACY, User, server};
use support::{Server, X};
use weir_vfs::Flavours;

const WRONG_CRED: u32 = 10_082;
const CONN_NOT_BOUND: u32 = 10_055;
/// Operations that Linux asks to be enforced, and those it asks to be allowed.
const MUST: [u32; 5] = [41, 42, 43, 44, 57];
const MAY: [u32; 10] = [4, 5, 8, 14, 21, 33, 38, 45, 52, 55];

/// A principal that sends COMPOUNDs protected so.
struct Caller<'s> {
    s: &'s Server,
    user: User,
    service: u32,
    sequence: Cell<u32>,
}

impl<'s> Caller<'s> {
    fn new(s: &'s Server, key: u8, uid: u8, service: u32) -> Caller<'s> {
        Caller::by(s, &[key, uid], service)
    }

    fn by(s: &'s Server, token: &[u8], service: u32) -> Caller<'s> {
        Caller {
            s,
            user: User::by(s, token),
            service,
            sequence: Cell::new(0),
        }
    }

    fn send(&self, ops: &Ops) -> Results {
        self.sequence.set(self.sequence.get() + 1);
        let args = ops.compound(b"", 2);
        let mut r = self
            .user
            .call(self.s, NFS4_CALL, self.sequence.get(), self.service, &args);
        let (status, _, count) = (r.u(), r.o(), r.u());
        Results { status, count, r }
    }

    fn alone(&self, operation: u32, x: X) -> Results {
        self.send(&Ops::new().op(operation, x))
    }
}

const NFS4_CALL: (u32, u32, u32) = (NFS4.0, NFS4.1, 1);

/// EXCHANGE_ID that asks for SP4_MACH_CRED.
fn introduction(verifier: u64) -> X {
    let x = X::new().h(verifier).o(b"client").u(0).u(1);
    bitmap(bitmap(x, &MUST), &MAY).u(0)
}

/// A session in which requests are sent in the first slot.
struct Session {
    id: Vec<u8>,
    next: Cell<u32>,
}

impl Session {
    fn args(&self, ops: &Ops) -> Ops {
        self.next.set(self.next.get() + 1);
        let x = X::new().raw(&self.id).u(self.next.get()).u(0).u(0).u(0);
        Ops::new().op(53, x).and(ops)
    }

    fn run(&self, caller: &Caller<'_>, ops: &Ops) -> Results {
        let mut r = caller.send(&self.args(ops));
        r.sequence();
        r
    }
}

/// Returns the client id, and the granted operations: enforced, and allowed.
fn introduced(machine: &Caller<'_>) -> (u64, u32) {
    let mut r = machine.alone(42, introduction(1));
    let r = r.ok(42);
    let (id, sequence, _) = (r.h(), r.u(), r.u());
    assert_eq!(r.u(), 1, "SP4_MACH_CRED");
    let mut map = || {
        let words = r.u() as usize;
        let words: Vec<u32> = (0..words).map(|_| r.u()).collect();
        let has = |n: &u32| {
            words
                .get(*n as usize / 32)
                .is_some_and(|w| w >> (n % 32) & 1 != 0)
        };
        (0..96).filter(has).collect::<Vec<u32>>()
    };
    assert_eq!((map(), map()), (MUST.to_vec(), MAY.to_vec()));
    (id, sequence)
}

fn session(machine: &Caller<'_>, (id, sequence): (u64, u32)) -> Session {
    let mut r = machine.alone(43, creation(id, sequence, 4));
    Session {
        id: r.ok(43).raw(16),
        next: Cell::new(0),
    }
}

#[test]
fn the_machine_alone_decides_on_its_client() {
    let s = server(Flavours::KRB5.or(Flavours::SYS));
    let machine = Caller::new(&s, 7, 1, INTEGRITY);
    let unprotected = Caller::new(&s, 8, 1, NONE);
    let other = Caller::new(&s, 9, 2, INTEGRITY);
    assert_eq!(unprotected.alone(42, introduction(1)).status, INVAL);
    let client = introduced(&machine);
    for wrong in [&unprotected, &other] {
        assert_eq!(
            wrong.alone(43, creation(client.0, client.1, 4)).status,
            WRONG_CRED
        );
    }
    let session = session(&machine, client);
    let plain = exchange(b"client", 1, 0);
    assert_eq!(unprotected.alone(42, plain).status, WRONG_CRED);
    let direction = || X::new().raw(&session.id).u(1).u(0);
    for wrong in [&unprotected, &other] {
        assert_eq!(wrong.alone(41, direction()).status, WRONG_CRED);
        assert_eq!(
            wrong.alone(44, X::new().raw(&session.id)).status,
            WRONG_CRED
        );
        assert_eq!(wrong.alone(57, X::new().h(client.0)).status, WRONG_CRED);
    }
    // Encrypted is protected as well.
    let sealed = Caller::new(&s, 7, 1, PRIVACY);
    assert_eq!(sealed.alone(41, direction()).status, OK);
    assert_eq!(machine.alone(44, X::new().raw(&session.id)).status, OK);
    assert_eq!(machine.alone(57, X::new().h(client.0)).status, OK);
}

#[test]
fn another_principal_that_is_no_user_is_another_machine() {
    let s = server(Flavours::KRB5);
    let [a, b] = [[7, 99, 1], [8, 99, 2]].map(|token| Caller::by(&s, &token, INTEGRITY));
    let client = introduced(&a);
    assert_eq!(
        b.alone(43, creation(client.0, client.1, 4)).status,
        WRONG_CRED
    );
    session(&a, client);
    assert_eq!(b.alone(42, introduction(1)).status, 10_017, "CLID_INUSE");
}

#[test]
fn requests_come_over_connections_that_the_machine_has_bound() {
    let s = server(Flavours::KRB5.or(Flavours::SYS));
    let machine = Caller::new(&s, 7, 1, INTEGRITY);
    let user = Caller::new(&s, 8, 100, NONE);
    let session = session(&machine, introduced(&machine));
    let root = Ops::new().root();
    assert_eq!(session.run(&user, &root).status, OK);
    s.connection.set(2);
    assert_eq!(user.send(&session.args(&root)).status, CONN_NOT_BOUND);
    session.next.set(session.next.get() - 1);
    let bind = X::new().raw(&session.id).u(1).u(0);
    assert_eq!(machine.alone(41, bind).status, OK);
    assert_eq!(session.run(&user, &root).status, OK);
}

#[test]
fn the_machine_ends_what_users_began_whatever_the_export_wants() {
    let s = server(Flavours::KRB5_PRIVACY);
    let machine = Caller::new(&s, 7, 1, INTEGRITY);
    let user = Caller::new(&s, 8, 0, PRIVACY);
    let session = session(&machine, introduced(&machine));
    assert_eq!(
        session.run(&user, &Ops::new().op(58, X::new().u(0))).status,
        OK
    );
    let dir = Ops::new().root().lookup(b"vol1");
    let open = dir.clone().open(b"f", b"o", (3, 0), Some(0)).getfh();
    let mut r = session.run(&user, &open);
    r.ok(24);
    r.ok(15);
    let state = r.opened();
    let file = r.handle();
    // Nothing else, and no contents beside it.
    let here = || Ops::new().fh(&file);
    let look = here().getattr(&[4]);
    assert_eq!(session.run(&machine, &look).status, WRONGSEC);
    let steal = here().read(&state, 0, 9).close(&state);
    assert_eq!(session.run(&machine, &steal).status, WRONGSEC);
    // As a user it is none.
    let integrity = Caller::new(&s, 9, 100, INTEGRITY);
    assert_eq!(
        session.run(&integrity, &here().close(&state)).status,
        WRONGSEC
    );
    let writes = here().write(&state, 0, b"data").op(5, X::new().h(0).u(0));
    assert_eq!(session.run(&machine, &writes).status, OK);
    let closes = here().getattr(&[4]).close(&state);
    assert_eq!(session.run(&machine, &closes).status, OK);
    assert_eq!(s.vfs.claims.totals().held, 0);
}

#[test]
fn who_asks_for_no_protection_has_none() {
    let s = server(Flavours::KRB5.or(Flavours::SYS));
    let machine = Caller::new(&s, 7, 1, INTEGRITY);
    let mut r = machine.alone(42, exchange(b"client", 1, 0));
    let r = r.ok(42);
    let (id, sequence, _) = (r.h(), r.u(), r.u());
    assert_eq!(r.u(), 0, "SP4_NONE");
    let session = session(&machine, (id, sequence));
    let user = Caller::new(&s, 8, 100, NONE);
    s.connection.set(2);
    assert_eq!(session.run(&user, &Ops::new().root()).status, OK);
    assert_eq!(user.alone(44, X::new().raw(&session.id)).status, OK);
}
