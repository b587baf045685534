//! MOUNT version 3.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use support::{MOUNT, NLM, R, Server, X};
use weir_vfs::{Clients, Rule, Squash};

fn mnt(s: &Server, path: &[u8]) -> R {
    s.call(MOUNT, 1, &X::new().o(path))
}

#[test]
fn mounting_gives_the_handle_and_the_flavours() {
    let s = Server::new();
    let mut r = mnt(&s, b"/vol1");
    assert_eq!(r.u(), 0);
    let root = r.o();
    assert_eq!((r.u(), r.u()), (1, 1));
    r.end();
    assert_eq!(s.getattr(&root).kind, 2);
    assert_eq!(mnt(&s, b"/vol1/").u(), 0);
    let below = s.mkdir(&s.mkdir(&root, b"a", 0o700), b"b", 0o700);
    s.create(&root, b"file", 0o644);
    s.as_user(12, 12);
    let mut r = mnt(&s, b"/vol1/a//b/.");
    assert_eq!((r.u(), r.o()), (0, below));
    for (path, want) in [
        (&b"/vol2"[..], 2),
        (b"/vol1x", 2),
        (b"", 2),
        (b"/", 2),
        (b"vol1", 2),
        (b"/vol1/absent", 2),
        (b"/vol1/file", 20),
        (b"/vol1/a/..", 13),
        (b"\xff\xfe", 2),
    ] {
        let mut r = mnt(&s, path);
        assert_eq!(r.u(), want, "{path:?}");
        r.end();
    }
    let long = [b"/vol1/".as_slice(), &[b'x'; 256]].concat();
    assert_eq!(mnt(&s, &long).u(), 63);
}

#[test]
fn calls_that_are_about_a_volume_are_counted_as_its_operations() {
    let s = Server::new();
    let operation = || {
        let done = s.last_done.get()?;
        assert_eq!(done.bytes, 0);
        Some((done.volume, weir_nfs::operation::name(done.operation)?))
    };
    let root = s.root();
    s.getattr(&root);
    let (volume, getattr) = operation().unwrap();
    assert_eq!(getattr, ("nfsv3", "GETATTR"));
    assert_eq!(mnt(&s, b"/vol1").u(), 0);
    assert_eq!(operation(), Some((volume, ("mountv3", "MNT"))));
    assert_eq!(mnt(&s, b"/vol1/absent").u(), 2);
    assert_eq!(operation(), Some((volume, ("mountv3", "MNT"))));
    s.call(MOUNT, 3, &X::new().o(b"/vol1/")).end();
    assert_eq!(operation(), Some((volume, ("mountv3", "UMNT"))));
    let file = s.create(&root, b"file", 0o644);
    let lock = X::new().o(b"cookie").u(1).o(b"host").o(&file).o(b"owner");
    s.call(NLM, 1, &lock.u(1).h(0).h(0));
    assert_eq!(operation(), Some((volume, ("nlmv4", "TEST"))));
    // Calls about no volume are not counted.
    for (program, procedure) in [(MOUNT, 0), (MOUNT, 5), (NLM, 0)] {
        s.call(program, procedure, &X::new());
        assert_eq!(operation(), None);
    }
    mnt(&s, b"/vol2");
    assert_eq!(operation(), None);
}

#[test]
fn clients_that_no_rule_admits_are_refused() {
    let only = Rule {
        clients: Clients::Net {
            address: "10.0.0.0".parse().unwrap(),
            prefix: 24,
        },
        ..Rule::open(Squash::Root)
    };
    let s = Server::with(vec![only]);
    assert_eq!(mnt(s.from("10.0.0.200"), b"/vol1").u(), 0);
    assert_eq!(mnt(s.from("::ffff:10.0.0.200"), b"/vol1").u(), 0);
    assert_eq!(mnt(s.from("10.0.1.1"), b"/vol1").u(), 13);
    assert_eq!(s.call(MOUNT, 5, &X::new()).u(), 0, "not in its list either");
    s.from("10.0.0.200");
    let mut r = s.call(MOUNT, 5, &X::new());
    assert_eq!((r.u(), r.o()), (1, b"/vol1".to_vec()));
    assert_eq!((r.u(), r.o()), (1, b"10.0.0.0/24".to_vec()));
    assert_eq!((r.u(), r.u()), (0, 0));
    r.end();
}

fn dump(s: &Server) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut r = s.call(MOUNT, 2, &X::new());
    let mut list = Vec::new();
    while r.u() == 1 {
        list.push((r.o(), r.o()));
    }
    r.end();
    list
}

#[test]
fn the_list_of_mounts_follows_what_clients_say() {
    let s = Server::new();
    let root = s.root();
    s.mkdir(&root, b"d", 0o755);
    mnt(&s, b"/vol1");
    mnt(&s, b"/vol1/d");
    mnt(s.from("10.0.0.2"), b"/vol1/");
    let entry = |host: &str, path: &str| (host.as_bytes().to_vec(), path.as_bytes().to_vec());
    let all = [
        entry("10.0.0.1", "/vol1"),
        entry("10.0.0.1", "/vol1/d"),
        entry("10.0.0.2", "/vol1"),
    ];
    assert_eq!(dump(&s), all);
    s.from("10.0.0.1")
        .call(MOUNT, 3, &X::new().o(b"/vol1"))
        .end();
    assert_eq!(dump(&s), all[1..]);
    s.call(MOUNT, 4, &X::new()).end();
    assert_eq!(dump(&s), all[2..]);
    // Bounded, whatever clients do.
    for i in 0..5000u32 {
        mnt(s.from(&std::net::Ipv4Addr::from(i).to_string()), b"/vol1");
    }
    assert_eq!(dump(&s).len(), 4096);
}
