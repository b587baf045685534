//! States that a connection remembers for its READs and WRITEs: never used once they have changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use support::callbacks::*;
use support::compound::*;
use support::{R, Server, X};
use weir_nfs::{ConnInfo, Outcome};

const HOST: &str = "10.0.0.1";
const WANT_READ: u32 = 0x100;
const ADMIN_REVOKED: u32 = 10_047;

/// Returns the status of operations over this very connection.
fn compound_status(conn: &ConnInfo, c: &Client<'_>, ops: &Ops) -> u32 {
    let record = c.s.encode(NFS4, 1, &c.next_args(ops, true));
    match c.s.service.handle(conn, &record, c.s.current_time()) {
        Outcome::Reply(reply, _) => R(reply.message(), 24).u(),
        _ => panic!("no reply"),
    }
}

/// The stateid with another seqid.
fn with_seqid(state: &[u8], seqid: u32) -> Vec<u8> {
    [&seqid.to_be_bytes(), &state[4..]].concat()
}

#[test]
fn what_a_connection_remembers_of_an_open_changes_with_it() {
    let s = Server::new();
    let conn = s.conn();
    let a = Client::new(&s, HOST, b"a");
    let (file, state) = a.open(b"f", b"o", (3, 0));
    let write =
        |state: &[u8]| compound_status(&conn, &a, &Ops::new().fh(&file).write(state, 0, b"x"));
    let newest = with_seqid(&state, 0);
    for id in [&newest, &state, &newest] {
        assert_eq!(write(id), OK);
    }
    assert_eq!(write(&with_seqid(&state, 2)), BAD_STATEID);
    // The stateid with another file, and with another client.
    let (other, _) = a.open(b"other", b"o", (3, 0));
    let elsewhere = Ops::new().fh(&other).write(&state, 0, b"x");
    assert_eq!(compound_status(&conn, &a, &elsewhere), BAD_STATEID);
    assert_eq!(write(&newest), OK);
    let b = Client::new(&s, HOST, b"b");
    let steals = Ops::new().fh(&file).read(&newest, 0, 9);
    assert_eq!(compound_status(&conn, &b, &steals), BAD_STATEID);
    assert_eq!(write(&newest), OK);
    // Opened again for reading and given up for writing.
    let mut r = a.run(&open(&a, b"f", (1, 0)));
    r.ok(22);
    let state = r.opened();
    assert_eq!(write(&newest), OK);
    let gives_up = X::new().raw(&state).u(0).u(1).u(0);
    let mut r = a.run(&Ops::new().fh(&file).op(21, gives_up));
    r.ok(22);
    let state = r.ok(21).raw(16);
    assert_eq!(write(&newest), OPENMODE);
    let read = |state: &[u8]| compound_status(&conn, &a, &Ops::new().fh(&file).read(state, 0, 9));
    assert_eq!(read(&state), OK);
    assert_eq!(read(&with_seqid(&state, 2)), OLD_STATEID);
    assert_eq!(read(&state), OK);
    // Closed, without a name: the file goes although the connection has used it.
    let root = a.volume();
    assert_eq!(a.status(&Ops::new().fh(&root).remove(b"f")), OK);
    assert_eq!(read(&state), OK);
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    s.service.tick();
    s.engine.cp_now().unwrap();
    assert_eq!(a.status(&Ops::new().fh(&file).getattr(&[4])), STALE);
    assert_eq!(read(&newest), BAD_STATEID);
}

#[test]
fn what_a_connection_remembers_ends_with_what_it_is_of() {
    let s = Server::new();
    let _calls = Callbacks::attach_to(&s);
    let conn = s.conn();
    let a = Client::new(&s, HOST, b"a");
    let (file, _, given) = delegated(&a, b"f", 1 | WANT_READ);
    let id = given.id();
    let read =
        |file: &[u8], id: &[u8]| compound_status(&conn, &a, &Ops::new().fh(file).read(id, 0, 9));
    assert_eq!(read(&file, &id), OK);
    assert_eq!(a.status(&give_back(&file, &id)), OK);
    assert_eq!(read(&file, &id), BAD_STATEID);
    // Revoked, with its volume.
    let (file, state) = a.open(b"g", b"o", (3, 0));
    assert_eq!(read(&file, &state), OK);
    s.volume
        .snapshot_take("before", "", s.current_time())
        .unwrap();
    s.engine.revert("vol1", "before").unwrap();
    assert_eq!(read(&file, &state), ADMIN_REVOKED);
}

/// GETATTR shows the same attributes after operations that have already read them.
#[test]
fn attributes_are_the_same_behind_whatever_operation() {
    let s = Server::new();
    let a = Client::new(&s, HOST, b"a");
    let (file, _) = a.open(b"f", b"o", (3, 0));
    let root = a.volume();
    // All that Linux asks, with the number of what a directory covers; the handle, space and the
    // list beside it.
    let numbers = [
        1, 3, 4, 8, 12, 19, 20, 33, 35, 36, 37, 41, 42, 45, 47, 52, 53, 55,
    ];
    let last = |ops: Ops, before: &[u32]| {
        let mut r = a.run(&ops.getattr(&numbers));
        for operation in before {
            let result = r.ok(*operation);
            result.raw(if *operation == 3 { 8 } else { 0 });
        }
        let mut r = r.attrs();
        let len = r.0.len() - r.1;
        r.raw(len)
    };
    for handle in [&file, &root] {
        let alone = last(Ops::new().fh(handle), &[22]);
        let access = Ops::new().fh(handle).op(3, X::new().u(1));
        assert_eq!(last(access, &[22, 3]), alone);
    }
    let alone = last(Ops::new().fh(&file), &[22]);
    let lookup = Ops::new().fh(&root).lookup(b"f");
    assert_eq!(last(lookup, &[22, 15]), alone);
    // And what of it is asked of every object.
    let few = [1, 3, 4, 20, 55];
    let mask = |ops: Ops| ops.getattr(&few);
    let mut r = a.run(&mask(Ops::new().fh(&file)));
    r.ok(22);
    let mut alone = r.attrs();
    let mut r = a.run(&mask(Ops::new().fh(&root).lookup(b"f")));
    r.ok(22);
    r.ok(15);
    let mut behind = r.attrs();
    assert_eq!(behind.raw(36), alone.raw(36));
}
