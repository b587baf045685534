//! NFSv3 as a client sees it: results, errors and what comes with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use support::{R, Server, X};
use weir_nfs::Outcome;
use weir_vfs::{Clients, Flavours, Rule, Squash};

const PERM: u32 = 1;
const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const NOTDIR: u32 = 20;
const ISDIR: u32 = 21;
const INVAL: u32 = 22;
const FBIG: u32 = 27;
const ROFS: u32 = 30;
const NAMETOOLONG: u32 = 63;
const NOTEMPTY: u32 = 66;
const STALE: u32 = 70;
const BADHANDLE: u32 = 10_001;
const NOT_SYNC: u32 = 10_002;
const BAD_COOKIE: u32 = 10_003;
const TOOSMALL: u32 = 10_005;
const BADTYPE: u32 = 10_007;

/// Minimal valid arguments of each procedure on `dir`, a directory, and `file`.
fn samples(dir: &[u8], file: &[u8]) -> Vec<X> {
    let at = |name: &[u8]| X::new().o(dir).o(name);
    vec![
        X::new(),
        X::new().o(file),
        X::new().o(file).sattr(Some(0o644), None).u(0),
        at(b"file"),
        X::new().o(file).u(0x3f),
        X::new().o(file),
        X::new().o(file).h(0).u(100),
        X::new().o(file).h(0).u(4).u(2).o(b"data"),
        at(b"new").u(0).sattr(Some(0o600), None),
        at(b"newdir").sattr(Some(0o700), None),
        at(b"newlink").sattr(None, None).o(b"target"),
        at(b"newfifo").u(7).sattr(Some(0o600), None),
        at(b"gone"),
        at(b"gonedir"),
        at(b"gone").o(dir).o(b"gone2"),
        X::new().o(file).o(dir).o(b"link"),
        X::new().o(dir).h(0).h(0).u(4096),
        X::new().o(dir).h(0).h(0).u(4096).u(8192),
        X::new().o(dir),
        X::new().o(dir),
        X::new().o(dir),
        X::new().o(file).h(0).u(0),
    ]
}

/// Reads the failure results of a procedure (RFC 1813 §3.3, each `resfail`).
fn read_failure(procedure: u32, r: &mut R) -> usize {
    let mut attrs = 0;
    let mut post = |r: &mut R| attrs += usize::from(r.post_op().is_some());
    let wcc = |r: &mut R| assert_eq!(r.u(), 0, "no attributes of before with a failure");
    match procedure {
        1 => {}
        3..=6 | 16..=20 => post(r),
        2 | 7..=13 | 21 => {
            wcc(r);
            post(r);
        }
        14 => {
            wcc(r);
            post(r);
            wcc(r);
            post(r);
        }
        15 => {
            post(r);
            wcc(r);
            post(r);
        }
        _ => unreachable!(),
    }
    r.end();
    attrs
}

#[test]
fn handles_are_told_apart_as_bad_and_stale() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let doomed = s.create(&root, b"doomed", 0o644);
    let mut forged = file.clone();
    forged[15] ^= 1;
    assert_eq!(s.status(12, &X::new().o(&root).o(b"doomed")), 0);
    for handle in [&b""[..], b"short", &[0; 32], &[1; 64], &forged] {
        for (p, args) in samples(handle, handle).iter().enumerate().skip(1) {
            let mut r = s.nfs(p as u32, args);
            assert_eq!(r.u(), BADHANDLE, "procedure {p}");
            assert_eq!(read_failure(p as u32, &mut r), 0);
        }
    }
    for (p, args) in samples(&doomed, &doomed).iter().enumerate().skip(1) {
        let mut r = s.nfs(p as u32, args);
        assert_eq!(r.u(), STALE, "procedure {p}");
        assert_eq!(read_failure(p as u32, &mut r), 0, "procedure {p}");
    }
    // The volume is not exported any more.
    s.vfs.publish(Vec::new());
    assert_eq!(s.status(1, &X::new().o(&file)), STALE);
}

#[test]
fn failures_carry_the_attributes_they_have_room_for() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let dir = s.mkdir(&root, b"dir", 0o755);
    s.create(&dir, b"inside", 0o644);
    let at = |name: &[u8]| X::new().o(&root).o(name);
    let cases: Vec<(u32, X, u32, usize)> = vec![
        (
            2,
            X::new().o(&file).sattr(Some(0), None).u(1).u(1).u(1),
            NOT_SYNC,
            1,
        ),
        (2, X::new().o(&dir).sattr(None, Some(0)).u(0), INVAL, 1),
        (3, at(b"absent"), NOENT, 1),
        (3, X::new().o(&file).o(b"x"), NOTDIR, 1),
        (5, X::new().o(&file), INVAL, 1),
        (5, X::new().o(&dir), INVAL, 1),
        (6, X::new().o(&dir).h(0).u(1), INVAL, 1),
        (7, X::new().o(&dir).h(0).u(1).u(0).o(b"x"), INVAL, 1),
        (7, X::new().o(&file).h(0).u(5).u(0).o(b"four"), INVAL, 1),
        (7, X::new().o(&file).h(0).u(3).u(0).o(b"four"), INVAL, 1),
        (
            7,
            X::new().o(&file).h(u64::MAX - 1).u(4).u(0).o(b"four"),
            FBIG,
            1,
        ),
        (
            7,
            X::new()
                .o(&file)
                .h(i64::MAX as u64 - 2)
                .u(4)
                .u(0)
                .o(b"four"),
            FBIG,
            1,
        ),
        (8, at(b"file").u(1).sattr(None, None), EXIST, 1),
        (8, at(b"dir").u(0).sattr(None, None), EXIST, 1),
        (9, at(b"file").sattr(None, None), EXIST, 1),
        (10, at(b"file").sattr(None, None).o(b"t"), EXIST, 1),
        (
            10,
            at(b"long").sattr(None, None).o(&[b'x'; 4096]),
            NAMETOOLONG,
            1,
        ),
        (11, at(b"file").u(7).sattr(None, None), EXIST, 1),
        (11, at(b"odd").u(1), BADTYPE, 1),
        (11, at(b"odd").u(2), BADTYPE, 1),
        (11, at(b"odd").u(5), BADTYPE, 1),
        (12, at(b"absent"), NOENT, 1),
        (12, at(b"dir"), ISDIR, 1),
        (13, at(b"absent"), NOENT, 1),
        (13, at(b"file"), NOTDIR, 1),
        (13, at(b"dir"), NOTEMPTY, 1),
        (14, at(b"absent").o(&dir).o(b"x"), NOENT, 2),
        (14, at(b"dir").o(&dir).o(b"below"), INVAL, 2),
        (14, at(b"file").o(&root).o(b"dir"), ISDIR, 2),
        (14, at(b"dir").o(&root).o(b"file"), NOTDIR, 2),
        (15, X::new().o(&file).o(&root).o(b"dir"), EXIST, 2),
        (15, X::new().o(&dir).o(&root).o(b"hard"), ISDIR, 2),
        (16, X::new().o(&file).h(0).h(0).u(4096), NOTDIR, 1),
        (17, X::new().o(&file).h(0).h(0).u(4096).u(4096), NOTDIR, 1),
        (16, X::new().o(&root).h(0).h(0).u(60), TOOSMALL, 1),
        (17, X::new().o(&root).h(0).h(0).u(4096).u(200), TOOSMALL, 1),
        (17, X::new().o(&root).h(0).h(0).u(8).u(4096), TOOSMALL, 1),
        (16, X::new().o(&root).h(1).h(12345).u(4096), BAD_COOKIE, 1),
        (21, X::new().o(&dir).h(0).u(0), INVAL, 1),
    ];
    for (p, args, want, attrs) in cases {
        let mut r = s.nfs(p, &args);
        assert_eq!(r.u(), want, "procedure {p} {args:?}");
        assert_eq!(read_failure(p, &mut r), attrs, "procedure {p} {args:?}");
        assert_eq!(s.last_lsn.get(), None);
    }
}

#[test]
fn names_that_cannot_be() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let long = [b'n'; 256];
    let with = |p: u32, name: &[u8]| match p {
        3 | 12 | 13 => X::new().o(&root).o(name),
        8 => X::new().o(&root).o(name).u(0).sattr(None, None),
        9 => X::new().o(&root).o(name).sattr(None, None),
        10 => X::new().o(&root).o(name).sattr(None, None).o(b"t"),
        11 => X::new().o(&root).o(name).u(7).sattr(None, None),
        14 => X::new().o(&root).o(b"file").o(&root).o(name),
        _ => X::new().o(&file).o(&root).o(name),
    };
    for p in [3, 8, 9, 10, 11, 12, 13, 14, 15] {
        assert_eq!(s.status(p, &with(p, &long)), NAMETOOLONG, "{p}");
        for name in [&b""[..], b"a/b", b"a\0b", b"/"] {
            assert_eq!(s.status(p, &with(p, name)), ACCES, "{p} {name:?}");
        }
        for name in [&b"."[..], b".."] {
            let want = match (p, name) {
                (3, _) => 0,
                (12, _) => ACCES,
                (13, b".") => INVAL,
                (13, _) => EXIST,
                (14, _) => INVAL,
                _ => EXIST,
            };
            assert_eq!(s.status(p, &with(p, name)), want, "{p} {name:?}");
        }
    }
    assert_eq!(s.status(8, &with(8, &long[..255])), 0);
    let odd: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
    assert_eq!(s.status(8, &with(8, &odd)), 0);
    assert_eq!(s.status(3, &with(3, &odd)), 0);
}

#[test]
fn results_are_encoded_as_the_rfc_has_them() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o640);
    s.write(&file, 0, b"hello");
    let a = s.getattr(&file);
    assert_eq!(
        (a.kind, a.mode, a.nlink, a.uid, a.gid, a.size),
        (1, 0o640, 1, 0, 0, 5)
    );
    // LOOKUP: handle, attributes of the object and of the directory.
    let mut r = s.nfs(3, &X::new().o(&root).o(b"file"));
    assert_eq!((r.u(), r.o()), (0, file.clone()));
    assert_eq!(r.post_op(), Some(a));
    assert_eq!(r.post_op(), Some(s.getattr(&root)));
    r.end();
    // SETATTR: both halves of wcc_data.
    let mut r = s.nfs(2, &X::new().o(&file).sattr(Some(0o600), None).u(0));
    assert!(s.last_lsn.get().is_some(), "a change waits for the log");
    assert_eq!(r.u(), 0);
    let (before, after) = r.wcc();
    assert!(before && after == Some(s.getattr(&file)));
    r.end();
    // WRITE: wcc_data, count, committed, verifier.
    for stable in 0..3 {
        let mut r = s.nfs(7, &X::new().o(&file).h(5).u(6).u(stable).o(b" world"));
        assert!(stable == 0 || s.last_lsn.get().is_some());
        assert_eq!(r.u(), 0);
        assert_eq!(r.wcc(), (true, Some(s.getattr(&file))));
        assert_eq!(r.u(), 6);
        assert!(r.u() >= stable, "never less stable than asked");
        assert_eq!(r.raw(8), s.volume.write_verifier());
        r.end();
    }
    // COMMIT: wcc_data and the same verifier.
    let mut r = s.nfs(21, &X::new().o(&file).h(0).u(0));
    assert_eq!(r.u(), 0);
    assert_eq!(r.wcc(), (true, Some(s.getattr(&file))));
    assert_eq!(r.raw(8), s.volume.write_verifier());
    r.end();
    // MKDIR, SYMLINK, MKNOD: handle, attributes, wcc_data of the directory.
    for (p, args, kind) in [
        (9, X::new().o(&root).o(b"d").sattr(Some(0o755), None), 2),
        (
            10,
            X::new().o(&root).o(b"l").sattr(None, None).o(b"to/where"),
            5,
        ),
        (
            11,
            X::new()
                .o(&root)
                .o(b"c")
                .u(4)
                .sattr(Some(0o600), None)
                .u(5)
                .u(6),
            4,
        ),
        (
            11,
            X::new()
                .o(&root)
                .o(b"b")
                .u(3)
                .sattr(Some(0o600), None)
                .u(7)
                .u(8),
            3,
        ),
        (
            11,
            X::new().o(&root).o(b"s").u(6).sattr(Some(0o600), None),
            6,
        ),
        (
            11,
            X::new().o(&root).o(b"p").u(7).sattr(Some(0o600), None),
            7,
        ),
    ] {
        let mut r = s.nfs(p, &args);
        assert_eq!((r.u(), r.u()), (0, 1));
        let handle = r.o();
        let attr = r.post_op().unwrap();
        assert_eq!(attr.kind, kind);
        assert_eq!(attr, s.getattr(&handle));
        assert_eq!(r.wcc(), (true, Some(s.getattr(&root))));
        r.end();
        if kind == 4 {
            assert_eq!(attr.rdev, (5, 6));
        }
        if kind == 5 {
            let mut r = s.nfs(5, &X::new().o(&handle));
            assert_eq!(r.u(), 0);
            assert!(r.post_op().is_some());
            assert_eq!(r.o(), b"to/where");
            r.end();
        }
    }
    // LINK, RENAME, REMOVE, RMDIR.
    let mut r = s.nfs(15, &X::new().o(&file).o(&root).o(b"hard"));
    assert_eq!(r.u(), 0);
    assert_eq!(r.post_op().unwrap().nlink, 2);
    assert!(r.wcc().0);
    r.end();
    let mut r = s.nfs(14, &X::new().o(&root).o(b"hard").o(&root).o(b"moved"));
    assert_eq!(r.u(), 0);
    assert!(r.wcc().0 && r.wcc() == (true, Some(s.getattr(&root))));
    r.end();
    for (p, name) in [(12, b"moved"), (13, b"d\0\0\0\0")] {
        let name: Vec<u8> = name.iter().copied().filter(|b| *b != 0).collect();
        let mut r = s.nfs(p, &X::new().o(&root).o(&name));
        assert_eq!(r.u(), 0);
        assert_eq!(r.wcc(), (true, Some(s.getattr(&root))));
        r.end();
    }
    // FSSTAT, FSINFO, PATHCONF.
    let mut r = s.nfs(18, &X::new().o(&root));
    assert!(r.u() == 0 && r.post_op().is_some());
    let stat: Vec<u64> = (0..6).map(|_| r.h()).collect();
    assert!(stat[0] >= stat[1] && stat[1] >= stat[2] && stat[2] > 0 && stat[3] >= stat[4]);
    assert_eq!(r.u(), 0);
    r.end();
    let mut r = s.nfs(19, &X::new().o(&root));
    assert!(r.u() == 0 && r.post_op().is_some());
    let sizes: Vec<u32> = (0..7).map(|_| r.u()).collect();
    assert_eq!(
        sizes,
        [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 65536]
    );
    assert_eq!((r.h(), r.u(), r.u(), r.u()), (i64::MAX as u64, 0, 1, 0x1b));
    r.end();
    let mut r = s.nfs(20, &X::new().o(&root));
    assert!(r.u() == 0 && r.post_op().is_some());
    r.u();
    assert_eq!((r.u(), r.u(), r.u(), r.u(), r.u()), (255, 1, 1, 0, 1));
    r.end();
}

#[test]
fn reading_at_and_beyond_the_end() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    assert_eq!(s.read(&file, 0, 10), (vec![], true));
    let data: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    s.write(&file, 0, &data);
    assert_eq!(s.read(&file, 0, 10_000), (data.clone(), true));
    assert_eq!(s.read(&file, 0, 9_999), (data[..9_999].to_vec(), false));
    assert_eq!(s.read(&file, 4095, 3), (data[4095..4098].to_vec(), false));
    assert_eq!(s.read(&file, 9_999, 100), (data[9_999..].to_vec(), true));
    assert_eq!(s.read(&file, 10_000, 100), (vec![], true));
    assert_eq!(s.read(&file, u64::MAX, 100), (vec![], true));
    assert_eq!(s.read(&file, 5, 0), (vec![], false));
    assert_eq!(s.read(&file, 0, u32::MAX), (data, true));
}

#[test]
fn a_write_beyond_wtmax_is_done_in_part() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let big = vec![7; (1 << 20) + 512];
    let mut r = s.nfs(7, &X::new().o(&file).h(0).u(big.len() as u32).u(0).o(&big));
    assert_eq!(r.u(), 0);
    r.wcc();
    assert_eq!(r.u(), 1 << 20);
    assert_eq!(s.getattr(&file).size, 1 << 20);
    let (data, eof) = s.read(&file, 0, u32::MAX);
    assert!(eof && data.len() == 1 << 20 && data.iter().all(|b| *b == 7));
}

#[test]
fn create_in_its_three_ways() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o600);
    s.write(&file, 0, b"content");
    // UNCHECKED without a size leaves the content and the attributes.
    assert_eq!(s.create(&root, b"file", 0o777), file);
    let a = s.getattr(&file);
    assert_eq!((a.size, a.mode), (7, 0o600));
    // With size 0 it cuts.
    let mut r = s.nfs(8, &X::new().o(&root).o(b"file").u(0).sattr(None, Some(0)));
    assert_eq!((r.u(), r.u(), r.o()), (0, 1, file.clone()));
    assert_eq!(s.getattr(&file).size, 0);
    // EXCLUSIVE repeated with its verifier is the same file, with another it exists.
    let exclusive = |v: u64| X::new().o(&root).o(b"excl").u(2).h(v);
    let mut r = s.nfs(8, &exclusive(5));
    assert_eq!((r.u(), r.u()), (0, 1));
    let handle = r.o();
    let mut r = s.nfs(8, &exclusive(5));
    assert_eq!((r.u(), r.u(), r.o()), (0, 1, handle));
    assert_eq!(s.status(8, &exclusive(6)), EXIST);
    assert_eq!(s.status(8, &X::new().o(&root).o(b"file").u(2).h(5)), EXIST);
}

#[test]
fn guarded_setattr_wants_the_current_ctime() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o600);
    let (secs, nanos) = s.getattr(&file).ctime;
    let guarded = |sec: u32, nsec: u32| {
        X::new()
            .o(&file)
            .sattr(Some(0o640), None)
            .u(1)
            .u(sec)
            .u(nsec)
    };
    assert_eq!(s.status(2, &guarded(secs, nanos ^ 1)), NOT_SYNC);
    assert_eq!(s.getattr(&file).mode, 0o600);
    assert_eq!(s.status(2, &guarded(secs, nanos)), 0);
    assert_eq!(s.getattr(&file).mode, 0o640);
    assert_eq!(s.status(2, &guarded(secs, nanos)), NOT_SYNC);
    // A time with more nanoseconds than a second has.
    let odd = X::new()
        .o(&file)
        .u(0)
        .u(0)
        .u(0)
        .u(0)
        .u(0)
        .u(2)
        .u(1)
        .u(1_000_000_000)
        .u(0);
    assert_eq!(s.status(2, &odd), INVAL);
    let set = X::new()
        .o(&file)
        .u(0)
        .u(0)
        .u(0)
        .u(0)
        .u(2)
        .u(11)
        .u(12)
        .u(2)
        .u(13)
        .u(14)
        .u(0);
    assert_eq!(s.status(2, &set), 0);
    let a = s.getattr(&file);
    assert_eq!((a.atime, a.mtime), ((11, 12), (13, 14)));
}

#[test]
fn access_answers_only_what_was_asked() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o754);
    let dir = s.mkdir(&root, b"dir", 0o754);
    let fifo = X::new().o(&root).o(b"fifo").u(7).sattr(Some(0o777), None);
    let mut r = s.nfs(11, &fifo);
    assert_eq!((r.u(), r.u()), (0, 1));
    let fifo = r.o();
    let bits = |object: &[u8], asked: u32| {
        let mut r = s.nfs(4, &X::new().o(object).u(asked));
        assert_eq!(r.u(), 0);
        assert!(r.post_op().is_some());
        let got = r.u();
        r.end();
        got
    };
    assert_eq!(
        (bits(&file, !0), bits(&dir, !0), bits(&fifo, !0)),
        (0x2d, 0x1f, 0x0d)
    );
    s.as_user(5, 0);
    assert_eq!((bits(&file, !0), bits(&dir, !0)), (0x21, 0x03));
    s.as_user(5, 5);
    assert_eq!((bits(&file, !0), bits(&dir, !0)), (0x01, 0x01));
    for asked in 0..64 {
        s.as_user(0, 0);
        assert_eq!(bits(&file, asked), asked & 0x2d);
        assert_eq!(bits(&dir, asked), asked & 0x1f);
    }
}

#[test]
fn permissions_decide_as_posix_says() {
    let s = Server::new();
    let root = s.root();
    assert_eq!(
        s.status(2, &X::new().o(&root).sattr(Some(0o1777), None).u(0)),
        0
    );
    s.as_user(10, 10);
    let mine = s.create(&root, b"mine", 0o000);
    // The owner may, whatever the mode.
    s.write(&mine, 0, b"abc");
    assert_eq!(s.read(&mine, 0, 3).0, b"abc");
    let closed = s.mkdir(&root, b"closed", 0o700);
    s.create(&closed, b"inside", 0o666);
    s.as_user(11, 11);
    let at = |dir: &[u8], name: &[u8]| X::new().o(dir).o(name);
    assert_eq!(s.status(6, &X::new().o(&mine).h(0).u(1)), ACCES);
    assert_eq!(
        s.status(7, &X::new().o(&mine).h(0).u(1).u(0).o(b"x")),
        ACCES
    );
    assert_eq!(
        s.status(2, &X::new().o(&mine).sattr(Some(0o777), None).u(0)),
        PERM
    );
    assert_eq!(
        s.status(2, &X::new().o(&mine).sattr(None, Some(0)).u(0)),
        ACCES
    );
    // UNCHECKED with a size on another's file is a truncation.
    assert_eq!(
        s.status(8, &at(&root, b"mine").u(0).sattr(None, Some(0))),
        ACCES
    );
    assert_eq!(s.status(8, &at(&root, b"mine").u(0).sattr(None, None)), 0);
    // Nothing is learned of a directory that may not be searched.
    assert_eq!(s.status(3, &at(&closed, b"inside")), ACCES);
    assert_eq!(s.status(3, &at(&closed, b"absent")), ACCES);
    assert_eq!(s.status(16, &X::new().o(&closed).h(0).h(0).u(4096)), ACCES);
    assert_eq!(
        s.status(8, &at(&closed, b"new").u(0).sattr(None, None)),
        ACCES
    );
    // Sticky directory: neither removed nor renamed nor replaced by others.
    assert_eq!(s.status(12, &at(&root, b"mine")), PERM);
    assert_eq!(
        s.status(14, &at(&root, b"mine").o(&root).o(b"stolen")),
        PERM
    );
    s.create(&root, b"other", 0o644);
    assert_eq!(s.status(14, &at(&root, b"other").o(&root).o(b"mine")), PERM);
    // Devices are root's.
    assert_eq!(
        s.status(11, &at(&root, b"dev").u(4).sattr(None, None).u(1).u(1)),
        PERM
    );
    // A user that may execute a file may read it.
    s.as_user(10, 10);
    let program = s.create(&root, b"program", 0o711);
    s.write(&program, 0, b"#!");
    s.as_user(11, 11);
    assert_eq!(s.read(&program, 0, 2).0, b"#!");
}

#[test]
fn writing_takes_set_id_bits_away() {
    let s = Server::new();
    let root = s.root();
    s.as_user(10, 10);
    assert_eq!(
        s.as_user(0, 0)
            .status(2, &X::new().o(&root).sattr(Some(0o777), None).u(0)),
        0
    );
    s.as_user(10, 10);
    let file = s.create(&root, b"file", 0o6777);
    assert_eq!(s.getattr(&file).mode, 0o6777);
    s.as_user(11, 11).write(&file, 0, b"x");
    assert_eq!(s.getattr(&file).mode, 0o777);
    s.as_user(0, 0);
    let file = s.create(&root, b"file2", 0o6777);
    s.write(&file, 0, b"x");
    assert_eq!(s.getattr(&file).mode, 0o6777, "root's writing keeps them");
}

/// Every bound from nothing to more than enough: the results never exceed it, and continuing from
/// the last cookie lists every name exactly once.
#[test]
fn listings_keep_their_bounds_exactly() {
    let s = Server::new();
    let root = s.root();
    let mut names: Vec<Vec<u8>> = vec![b".".to_vec(), b"..".to_vec()];
    for i in 0..9usize {
        let name = [&b"name"[..], &vec![b'0' + i as u8; i * 3]].concat();
        s.create(&root, &name, 0o644);
        names.push(name);
    }
    names.sort();
    for plus in [false, true] {
        for bound in (0..2400u32).step_by(4) {
            let (mut cookie, mut verifier, mut got) = (0, 0, Vec::new());
            loop {
                let args = X::new().o(&root).h(cookie).h(verifier);
                let mut r = if plus {
                    s.nfs(17, &args.u(bound / 3).u(bound))
                } else {
                    s.nfs(16, &args.u(bound))
                };
                let status = r.u();
                if status == TOOSMALL {
                    assert!(bound < if plus { 900 } else { 200 });
                    break;
                }
                assert_eq!(status, 0);
                let start = r.1;
                assert!(r.post_op().is_some());
                verifier = r.h();
                let mut bare = 0;
                let mut any = false;
                while r.u() == 1 {
                    any = true;
                    let at = r.1;
                    r.h();
                    got.push(r.o());
                    cookie = r.h();
                    bare += 4 + r.1 - at;
                    if plus {
                        let attr = r.post_op().unwrap();
                        assert_eq!(r.u(), 1);
                        assert_eq!(s.getattr(&r.o()), attr);
                    }
                }
                let eof = r.u() == 1;
                r.end();
                assert!(r.1 - start <= bound as usize, "{} > {bound}", r.1 - start);
                assert!(!plus || bare <= bound as usize / 3);
                assert!(any || eof);
                if eof {
                    got.sort();
                    assert_eq!(got, names, "bound {bound}");
                    break;
                }
            }
        }
    }
}

#[test]
fn exports_decide_who_and_how() {
    let rule = |net: &str, read_only, squash| Rule {
        clients: Clients::Net {
            address: net.parse().unwrap(),
            prefix: 32,
        },
        writers: match read_only {
            true => Flavours::NONE,
            false => Flavours::SYS,
        },
        ..Rule::open(squash)
    };
    let rules = vec![
        rule("10.0.0.1", false, Squash::None),
        rule("10.0.0.2", true, Squash::None),
        rule("10.0.0.3", false, Squash::Root),
        rule("10.0.0.4", false, Squash::All),
    ];
    let s = Server::with(rules);
    let root = s.root();
    assert_eq!(
        s.status(2, &X::new().o(&root).sattr(Some(0o777), None).u(0)),
        0
    );
    let file = s.create(&root, b"file", 0o644);
    // Read-only: every change is refused, reading goes on.
    s.from("10.0.0.2");
    for (p, args) in samples(&root, &file).iter().enumerate().skip(1) {
        let changes = matches!(p, 2 | 7..=15);
        let status = s.status(p as u32, args);
        assert_eq!(status == ROFS, changes, "procedure {p}: {status}");
    }
    let mut r = s.nfs(4, &X::new().o(&file).u(0x3f));
    assert_eq!(r.u(), 0);
    r.post_op();
    assert_eq!(r.u(), 0x01);
    // Squashed: root is nobody; everyone is nobody.
    s.from("10.0.0.3").as_user(0, 0);
    assert_eq!(s.getattr(&s.create(&root, b"squashed", 0o644)).uid, 65_534);
    s.as_user(5, 6);
    let a = s.getattr(&s.create(&root, b"kept", 0o644));
    assert_eq!((a.uid, a.gid), (5, 6));
    s.from("10.0.0.4");
    let a = s.getattr(&s.create(&root, b"all", 0o644));
    assert_eq!((a.uid, a.gid), (65_534, 65_534));
    // Nobody else.
    s.from("10.0.0.5");
    for (p, args) in samples(&root, &file).iter().enumerate().skip(1) {
        let mut r = s.nfs(p as u32, args);
        assert_eq!(r.u(), ACCES);
        assert_eq!(read_failure(p as u32, &mut r), 0, "nothing is disclosed");
    }
}

#[test]
fn a_repeated_call_is_answered_again_and_not_run_again() {
    let s = Server::new();
    let root = s.root();
    s.create(&root, b"file", 0o644);
    let remove = s.encode(support::NFS, 12, &X::new().o(&root).o(b"file"));
    let first = s.send(&remove).0;
    let lsn = s.last_lsn.get();
    assert!(lsn.is_some());
    // From another port, as after a lost connection; the stamp may differ.
    s.peer.set("10.0.0.1:1234".parse().unwrap());
    let mut again = remove.clone();
    again[32..36].copy_from_slice(&[9; 4]);
    assert_eq!(s.send(&again).0, first);
    assert_eq!(
        s.last_lsn.get(),
        lsn,
        "a replay waits for the same log position"
    );
    // Another client's call of the same bytes is another call.
    let mut r = s.from("10.0.0.2").send(&remove);
    r.raw(24);
    assert_eq!(r.u(), NOENT);
}

#[test]
fn a_held_reply_can_be_turned_into_a_failure_of_the_same_shape() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    for name in [&b"gone"[..], b"gone3"] {
        s.create(&root, name, 0o644);
    }
    s.mkdir(&root, b"gonedir", 0o755);
    for (p, args) in samples(&root, &file).iter().enumerate().skip(1) {
        let record = s.encode(support::NFS, p as u32, args);
        let Outcome::Reply(reply, _) = s.handle(&record) else {
            panic!("no reply")
        };
        let mut r = R(reply.into_failure().message(), 0);
        assert_eq!(r.raw(4), record[..4]);
        assert_eq!(
            r.raw(20),
            [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(r.u(), 5, "NFS3ERR_IO");
        assert_eq!(read_failure(p as u32, &mut r), 0);
    }
}
