//! Paths of NFSv4 for which other servers are to be asked (RFC 8881 §11.3, §11.4).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails loudly.

mod support;

use support::compound::*;
use support::{R, Server, X};
use weir_nfs::v4::{Location, Referral};
use weir_vfs::directory::{Directory, Remote, RemoteVolume};

const HOST: &str = "192.0.2.7";
const TYPE: u32 = 1;
const FSID: u32 = 8;
const RDATTR_ERROR: u32 = 11;
const FILEID: u32 = 20;
const FS_LOCATIONS: u32 = 24;
const MOUNTED_ON_FILEID: u32 = 55;
const FS_LOCATIONS_INFO: u32 = 67;
const MOVED: u32 = 10_019;

fn server() -> Server {
    let s = Server::new();
    let to = |server: &str, path: &str| Location {
        server: server.to_owned(),
        path: path.to_owned(),
    };
    let referral = |path: &str, locations| Referral {
        path: path.to_owned(),
        locations,
    };
    s.service.refer(vec![
        referral("/a/far", vec![to("h1", "/x/y"), to("10.0.0.2.8.2", "/")]),
        // An export has priority over a referral.
        referral("/vol1", vec![to("h3", "/vol1")]),
    ]);
    s
}

fn far() -> Ops {
    Ops::new().root().lookup(b"a").lookup(b"far")
}

/// The numbers of attributes and the values of a `fattr4`.
fn fattr(r: &mut R) -> (Vec<u32>, R) {
    let words: Vec<u32> = (0..r.u()).map(|_| r.u()).collect();
    let has = |n: &u32| {
        words
            .get(*n as usize / 32)
            .is_some_and(|w| w & 1 << (n % 32) != 0)
    };
    ((0..96).filter(has).collect(), R(r.o(), 0))
}

fn path(r: &mut R) -> Vec<Vec<u8>> {
    (0..r.u()).map(|_| r.o()).collect()
}

#[test]
fn who_asks_is_sent_on() {
    let s = server();
    let c = Client::new(&s, HOST, b"client");
    // Going there is no error, doing something there is.
    assert_eq!(c.status(&far()), OK);
    for (ops, what) in [
        (far().getfh(), "GETFH"),
        (far().lookup(b"f"), "LOOKUP"),
        (far().op(16, X::new()), "LOOKUPP"),
        (far().save(), "SAVEFH"),
        (far().op(3, X::new().u(1)), "ACCESS"),
        (
            far().op(26, bitmap(X::new().h(0).h(0).u(999).u(999), &[])),
            "READDIR",
        ),
        (far().open(b"f", b"o", (1, 0), Some(0)), "OPEN"),
        (far().remove(b"f"), "REMOVE"),
        (far().op(52, X::new().u(0)), "SECINFO_NO_NAME"),
        (far().getattr(&[FSID, TYPE]), "GETATTR"),
        (far().getattr(&[FSID, RDATTR_ERROR]), "GETATTR"),
    ] {
        assert_eq!(c.status(&ops), MOVED, "{what}");
    }
    let asked = [
        TYPE,
        FSID,
        RDATTR_ERROR,
        FILEID,
        FS_LOCATIONS,
        MOUNTED_ON_FILEID,
    ];
    let mut r = c.run(&far().getattr(&asked));
    assert_eq!(r.status, OK);
    r.ok(24);
    r.ok(15);
    r.ok(15);
    let (there, mut values) = fattr(r.ok(9));
    assert_eq!(there, [FSID, RDATTR_ERROR, FS_LOCATIONS, MOUNTED_ON_FILEID]);
    let fsid = (values.h(), values.h());
    assert_eq!(values.u(), OK);
    assert_eq!(path(&mut values), [b"a".to_vec(), b"far".to_vec()]);
    assert_eq!((values.u(), values.u(), values.o()), (2, 1, b"h1".to_vec()));
    assert_eq!(path(&mut values), [b"x".to_vec(), b"y".to_vec()]);
    assert_eq!((values.u(), values.o()), (1, b"10.0.0.2.8.2".to_vec()));
    assert_eq!(path(&mut values), Vec::<Vec<u8>>::new());
    assert_ne!(values.h(), 0, "the directory that it covers");
    values.end();
    // It is a file system of its own.
    let mut r = c.run(&Ops::new().root().lookup(b"a").getattr(&[FSID]));
    r.ok(24);
    r.ok(15);
    let (_, mut values) = fattr(r.ok(9));
    assert_ne!((values.h(), values.h()), fsid);
    // VERIFY: the same attributes, and no others.
    let value = X::new().h(fsid.0).h(fsid.1).u(2);
    let verify = |numbers: &[u32], value: &X| far().op(37, bitmap(X::new(), numbers).o(&value.0));
    assert_eq!(
        c.status(&verify(&[FSID], &X::new().h(fsid.0).h(fsid.1))),
        MOVED
    );
    assert_eq!(c.status(&verify(&[TYPE, FS_LOCATIONS], &value)), MOVED);
    assert_eq!(c.status(&verify(&[FSID, FS_LOCATIONS], &value)), NOT_SAME);
    // Exports of this server are not referred.
    let here = Ops::new().root().lookup(b"vol1").getfh();
    assert_eq!(c.status(&here.getattr(&[TYPE, FS_LOCATIONS])), OK);
}

/// A directory of a cluster with one other server.
fn cluster(path: &str, nfs: &[&str]) -> Directory {
    let remote = Remote {
        aggregate: "b".to_owned(),
        identity: [9; 16],
        nfs: nfs.iter().map(|at| at.parse().unwrap()).collect(),
        smb: Vec::new(),
        others: Vec::new(),
        transfers: Vec::new(),
        fingerprint: String::new(),
    };
    let volume = |path: &str| RemoteVolume {
        paths: vec![path.to_owned()],
        share: None,
        constituent: None,
        origin: None,
    };
    let volumes = vec![volume(path), volume("/vol1"), volume("/a/far")];
    Directory::new(None, vec![(remote, volumes)])
}

#[test]
fn volumes_of_other_servers_of_the_cluster_are_referred() {
    let s = server();
    s.vfs
        .publish_directory(cluster("/p/q", &["10.0.0.2:2049", "10.0.0.3:3049"]));
    let c = Client::new(&s, HOST, b"client");
    let there = || Ops::new().root().lookup(b"p").lookup(b"q");
    assert_eq!(c.status(&there().getfh()), MOVED);
    let mut r = c.run(&there().getattr(&[TYPE, FS_LOCATIONS_INFO]));
    assert_eq!(r.status, OK);
    r.ok(24);
    r.ok(15);
    r.ok(15);
    let (has, mut values) = fattr(r.ok(9));
    assert_eq!(has, [FS_LOCATIONS_INFO]);
    assert_eq!((values.u(), values.u()), (0, 0));
    assert_eq!(path(&mut values), [b"p".to_vec(), b"q".to_vec()]);
    assert_eq!(values.u(), 2, "locations");
    for server in ["10.0.0.2", "10.0.0.3.11.233"] {
        assert_eq!((values.u(), values.u(), values.o().len()), (1, 0, 12));
        assert_eq!(values.o(), server.as_bytes());
        assert_eq!(path(&mut values), [b"p".to_vec(), b"q".to_vec()]);
    }
    values.end();
    // An export has priority, and so has a referral that an administrator made.
    let here = Ops::new().root().lookup(b"vol1").getfh();
    assert_eq!(c.status(&here.getattr(&[TYPE, FS_LOCATIONS_INFO])), OK);
    let mut r = c.run(&far().getattr(&[FS_LOCATIONS]));
    r.ok(24);
    r.ok(15);
    r.ok(15);
    let (_, mut values) = fattr(r.ok(9));
    path(&mut values);
    assert_eq!((values.u(), values.u(), values.o()), (2, 1, b"h1".to_vec()));
    // It moves; the tree follows.
    s.vfs.publish_directory(cluster("/r", &["10.0.0.9:2049"]));
    assert_eq!(c.status(&there()), NOENT);
    assert_eq!(c.status(&Ops::new().root().lookup(b"r").getfh()), MOVED);
}

#[test]
fn listings_name_what_is_elsewhere() {
    let s = server();
    let c = Client::new(&s, HOST, b"client");
    let list = |mask: &[u32]| {
        let x = bitmap(X::new().h(0).h(0).u(4096).u(4096), mask);
        let mut r = c.run(&Ops::new().root().lookup(b"a").op(26, x));
        if r.status != OK {
            return Err(r.status);
        }
        r.ok(24);
        r.ok(15);
        let r = r.ok(26);
        r.raw(8);
        assert_eq!(r.u(), 1, "an entry");
        r.h();
        assert_eq!(r.o(), b"far");
        let (there, values) = fattr(r);
        assert_eq!((r.u(), r.u()), (0, 1), "the end");
        Ok((there, values))
    };
    assert_eq!(list(&[TYPE, FSID]).err(), Some(MOVED));
    let (there, mut values) = list(&[TYPE, FSID, RDATTR_ERROR, MOUNTED_ON_FILEID]).unwrap();
    assert_eq!(there, [FSID, RDATTR_ERROR, MOUNTED_ON_FILEID]);
    values.raw(16);
    assert_eq!(values.u(), MOVED);
    let (there, mut values) = list(&[TYPE, RDATTR_ERROR, FS_LOCATIONS]).unwrap();
    assert_eq!(there, [RDATTR_ERROR, FS_LOCATIONS]);
    assert_eq!(values.u(), OK);
}
