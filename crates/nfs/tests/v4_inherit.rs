//! Access control lists that new objects inherit from their directories.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::compound::*;
use support::{NFS, Server, X};

const HOST: &str = "10.0.0.1";
const READ: u32 = 0x1;
const WRITE: u32 = 0x6;
const EXECUTE: u32 = 0x20;
const FILE: u32 = 0x1;
const DIRECTORY: u32 = 0x2;
const INHERIT_ONLY: u32 = 0x8;

/// SETATTR of a list.
fn set(ops: Ops, list: &X) -> Ops {
    ops.op(34, bitmap(X::new().raw(&[0; 16]), &[12]).o(&list.0))
}

/// `fattr4` with mode and umask.
fn mode_umask(x: X, mode: u32, umask: u32) -> X {
    bitmap(x, &[81]).o(&X::new().u(mode).u(umask).0)
}

/// Type, flags, mask and name.
type Entry = (u32, u32, u32, Vec<u8>);

/// The list and the mode of a file.
fn list_of(c: &Client<'_>, file: &[u8]) -> (Vec<Entry>, u32) {
    let mut r = c.run(&Ops::new().fh(file).getattr(&[12, 33]));
    r.ok(22);
    let mut r = r.attrs();
    let count = r.u();
    let entries = (0..count).map(|_| (r.u(), r.u(), r.u(), r.o()));
    (entries.collect(), r.u())
}

/// Returns whether a user may read a file, and whether it may write the file, over NFSv3.
fn may(s: &Server, file: &[u8], uid: u32) -> (bool, bool) {
    s.as_user(uid, uid);
    let read = s.status(6, &X::new().o(file).h(0).u(4));
    let write = s.status(7, &X::new().o(file).h(0).u(1).u(2).o(b"d"));
    s.as_user(0, 0);
    (read == OK, write == OK)
}

#[test]
fn what_is_made_in_a_directory_has_what_its_list_passes_on() {
    let mut s = Server::new();
    let named = READ | WRITE | EXECUTE;
    let (file, sub, below) = {
        let c = Client::new(&s, HOST, b"client");
        let root = c.volume();
        let make = bitmap(X::new().u(2).o(b"dir"), &[33]).o(&0o755u32.to_be_bytes());
        assert_eq!(c.status(&Ops::new().fh(&root).op(6, make)), OK);
        let dir = || Ops::new().fh(&root).lookup(b"dir");
        let list = acl(&[
            (0, FILE | DIRECTORY | INHERIT_ONLY, named, b"500"),
            (0, 0, READ | WRITE | EXECUTE, b"OWNER@"),
            (0, 0, READ | EXECUTE, b"EVERYONE@"),
        ]);
        assert_eq!(c.status(&set(dir(), &list)), OK);
        // A file: the umask does not count for what is passed on.
        let open = X::new().u(0).u(3).u(0).h(0).o(b"o").u(1).u(1);
        let open = mode_umask(open, 0o666, 0o077).u(0).o(b"file");
        let mut r = c.run(&dir().op(18, open).getfh().getattr(&[33]));
        for operation in [22, 15] {
            r.ok(operation);
        }
        r.opened();
        let file = r.handle();
        assert_eq!(r.attrs().u(), 0o600);
        assert_eq!(c.status(&set(Ops::new().fh(&file), &list)), INVAL);
        // A directory, and a file in it whose mode leaves the group less.
        let make = mode_umask(X::new().u(2).o(b"sub"), 0o777, 0o022);
        let mut r = c.run(&dir().op(6, make).getfh());
        for operation in [22, 15] {
            r.ok(operation);
        }
        let made = r.ok(6);
        made.raw(20);
        let words = made.u() as usize;
        made.raw(4 * words);
        let sub = r.handle();
        let create = X::new().o(&sub).o(b"below").u(1);
        let create = create.sattr(Some(0o640), None);
        assert_eq!(s.from(HOST).call(NFS, 8, &create).u(), OK);
        let mut r = c.run(&Ops::new().fh(&sub).lookup(b"below").getfh());
        r.ok(22);
        r.ok(15);
        (file, sub, r.handle())
    };
    s.engine.wait_durable(s.last_lsn.get()).unwrap();
    type Restart = (fn(&mut Server), &'static [u8]);
    let restarts: [Restart; 3] = [
        (|_| (), b"other"),
        (Server::crash, b"client"),
        (Server::cold_start, b"client"),
    ];
    for (restart, client) in restarts {
        restart(&mut s);
        let c = Client::new(&s, HOST, client);
        let of_500 = |file: &[u8]| {
            let (list, mode) = list_of(&c, file);
            let own = list.into_iter().filter(|(.., who)| who == b"500");
            let own: Vec<_> = own.map(|(_, flags, mask, _)| (flags, mask)).collect();
            (own, mode)
        };
        assert_eq!(of_500(&file), (vec![(0, READ | WRITE)], 0o600));
        let passed = FILE | DIRECTORY | INHERIT_ONLY;
        assert_eq!(of_500(&sub), (vec![(passed, named), (0, named)], 0o755));
        assert_eq!(of_500(&below), (vec![(0, READ)], 0o640));
        assert_eq!(may(&s, &file, 500), (true, true));
        assert_eq!(may(&s, &file, 501), (false, false));
        assert_eq!(may(&s, &below, 500), (true, false));
        assert_eq!(may(&s, &below, 501), (false, false));
    }
    // A file in a directory that passes nothing on has no list, and a mode under the umask.
    let c = Client::new(&s, HOST, b"another");
    let root = c.volume();
    let open = X::new().u(0).u(3).u(0).h(0).o(b"o").u(1).u(1);
    let open = mode_umask(open, 0o666, 0o027).u(0).o(b"plain");
    let mut r = c.run(&Ops::new().fh(&root).op(18, open).getattr(&[33]));
    r.ok(22);
    r.opened();
    assert_eq!(r.attrs().u(), 0o640);
}

/// A list that a client sets on a new file replaces the inherited one.
#[test]
fn what_is_made_with_a_list_has_that_list() {
    let mut s = Server::new();
    let (file, sub) = {
        let c = Client::new(&s, HOST, b"client");
        let root = c.volume();
        let passes_on = acl(&[
            (0, FILE | DIRECTORY, READ, b"501"),
            (0, 0, READ, b"EVERYONE@"),
        ]);
        assert_eq!(c.status(&set(Ops::new().fh(&root), &passes_on)), OK);
        let list = acl(&[
            (0, 0, READ | WRITE, b"OWNER@"),
            (0, 0, READ | WRITE, b"500"),
        ]);
        // The list determines the permission bits of the mode; the others are kept.
        let values = X::new().raw(&list.0).u(0o4777);
        let open = X::new().u(0).u(3).u(0).h(0).o(b"o").u(1).u(1);
        let open = bitmap(open, &[12, 33]).o(&values.0).u(0).o(b"file");
        let mut r = c.run(&Ops::new().fh(&root).op(18, open).getfh());
        assert_eq!(r.status, OK);
        r.ok(22);
        let open = r.ok(18);
        open.raw(16 + 20);
        let _flags = open.u();
        let words: Vec<u32> = (0..open.u()).map(|_| open.u()).collect();
        assert_eq!(words, [1 << 12, 1 << 1], "list and mode are set");
        assert_eq!(open.u(), 0, "a delegation");
        let file = r.handle();
        // A directory, by the newer form, which has flags.
        let list = acl(&[
            (0, DIRECTORY, READ | EXECUTE, b"500"),
            (0, 0, READ, b"GROUP@"),
        ]);
        let values = X::new().u(0).raw(&list.0);
        let make = |name: &[u8], kind: X| bitmap(kind.o(name), &[58]).o(&values.0);
        let made = Ops::new().fh(&root).op(6, make(b"sub", X::new().u(2)));
        let mut r = c.run(&made.getfh());
        assert_eq!(r.status, OK);
        r.ok(22);
        r.ok(6).raw(20 + 4 + 2 * 4);
        let sub = r.handle();
        // Entries that can be inherited are for directories only; a link has no list.
        let link = make(b"link", X::new().u(5).o(b"target"));
        for made in [make(b"fifo", X::new().u(7)), link] {
            assert_eq!(c.status(&Ops::new().fh(&root).op(6, made)), INVAL);
        }
        let open = X::new().u(0).u(3).u(0).h(0).o(b"o").u(1).u(1);
        let open = bitmap(open, &[58]).o(&values.0).u(0).o(b"other");
        assert_eq!(c.status(&Ops::new().fh(&root).op(18, open)), INVAL);
        assert_eq!(c.status(&Ops::new().fh(&root).lookup(b"other")), NOENT);
        (file, sub)
    };
    s.engine.wait_durable(s.last_lsn.get()).unwrap();
    s.crash();
    let c = Client::new(&s, HOST, b"client");
    let who = |file: &[u8]| {
        let (list, mode) = list_of(&c, file);
        let names: Vec<_> = list
            .into_iter()
            .map(|(_, flags, _, who)| (flags, who))
            .collect();
        (names, mode)
    };
    let entry = |flags: u32, name: &str| (flags, name.as_bytes().to_vec());
    assert_eq!(
        who(&file),
        (vec![entry(0, "OWNER@"), entry(0, "500")], 0o4600)
    );
    assert_eq!(
        who(&sub),
        (vec![entry(DIRECTORY, "500"), entry(0x40, "GROUP@")], 0o040)
    );
    assert_eq!(may(&s, &file, 500), (true, true));
    assert_eq!(may(&s, &file, 501), (false, false));
}
