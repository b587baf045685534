//! The directory of snapshots as a client sees it.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use support::*;
use weir_vfs::{Export, Rule, Squash};

const NOENT: u32 = 2;
const IO: u32 = 5;
const XDEV: u32 = 18;
const EXIST: u32 = 17;
const ROFS: u32 = 30;
const STALE: u32 = 70;

fn publish(s: &Server, shown: bool) {
    let rules = vec![Rule::open(Squash::None)];
    let mut export = Export::new("/vol1", Arc::clone(&s.volume), rules);
    export.snapshot_directory = shown;
    s.vfs.publish(vec![export]);
}

fn lookup(s: &Server, dir: &[u8], name: &[u8]) -> Result<(Vec<u8>, Fattr), u32> {
    let mut r = s.nfs(3, &X::new().o(dir).o(name));
    match r.u() {
        0 => {
            let handle = r.o();
            let attr = r.post_op().unwrap();
            r.post_op().unwrap();
            r.end();
            assert_eq!(s.getattr(&handle), attr);
            Ok((handle, attr))
        }
        status => Err(status),
    }
}

/// Name, file number and cookie of a directory's entries, a few at a time.
fn list(s: &Server, dir: &[u8], plus: bool) -> Vec<(String, u64, u64)> {
    let mut out: Vec<(String, u64, u64)> = Vec::new();
    loop {
        let cookie = out.last().map_or(0, |(_, _, c)| *c);
        let args = X::new().o(dir).h(cookie).raw(&[0; 8]);
        let mut r = match plus {
            true => s.nfs(17, &args.u(400).u(800)),
            false => s.nfs(16, &args.u(250)),
        };
        assert_eq!(r.u(), 0);
        r.post_op().unwrap();
        r.raw(8);
        while r.u() == 1 {
            let (id, name, cookie) = (r.h(), r.o(), r.h());
            if plus {
                let attr = r.post_op();
                let handle = (r.u() == 1).then(|| r.o());
                if let (Some(attr), Some(handle)) = (attr, handle) {
                    assert_eq!(s.getattr(&handle), attr);
                    assert_eq!(attr.fileid, id);
                }
            }
            out.push((String::from_utf8(name).unwrap(), id, cookie));
        }
        if r.u() == 1 {
            return out;
        }
    }
}

fn names(s: &Server, dir: &[u8]) -> Vec<String> {
    let entries = list(s, dir, false);
    assert_eq!(entries, list(s, dir, true));
    let cookies: BTreeSet<u64> = entries.iter().map(|(_, _, c)| *c).collect();
    assert_eq!(cookies.len(), entries.len());
    entries.into_iter().map(|(name, ..)| name).collect()
}

#[test]
fn the_past_is_below_dot_snapshot() {
    let s = Server::new();
    publish(&s, true);
    let root = s.root();
    let dir = s.mkdir(&root, b"dir", 0o755);
    let file = s.create(&dir, b"file", 0o644);
    s.write(&file, 0, b"first");
    s.volume.snapshot_create("one", s.current_time()).unwrap();
    s.write(&file, 0, b"other");
    let young = s.mkdir(&root, b"young", 0o755);
    s.volume.snapshot_create("two", s.current_time()).unwrap();
    assert_eq!(s.status(12, &X::new().o(&dir).o(b"file")), 0);

    assert_eq!(names(&s, &root)[..3], [".", "..", ".snapshot"]);
    assert_eq!(names(&s, &root).len(), 5);
    assert_eq!(names(&s, &dir), [".", ".."], "listed in the root only");
    let (top, top_attr) = lookup(&s, &root, b".snapshot").unwrap();
    assert_eq!(names(&s, &top), [".", "..", "one", "two"]);
    assert_eq!((top_attr.kind, top_attr.mode), (2, 0o555));
    let live = s.getattr(&root);
    assert_eq!(top_attr.fsid, live.fsid);
    assert_ne!(top_attr.fileid, live.fileid);
    assert_eq!(lookup(&s, &top, b"..").unwrap().0, root);
    assert_eq!(lookup(&s, &top, b"three"), Err(NOENT));

    for (name, wanted) in [(&b"one"[..], &b"first"[..]), (b"two", b"other")] {
        let (then, attr) = lookup(&s, &top, name).unwrap();
        assert_eq!(attr.fileid, live.fileid);
        assert_ne!(attr.fsid, live.fsid);
        assert_eq!(lookup(&s, &then, b"..").unwrap().0, top);
        let (dir_then, _) = lookup(&s, &then, b"dir").unwrap();
        let (old, attr) = lookup(&s, &dir_then, b"file").unwrap();
        assert_eq!(attr.size, 5);
        assert_eq!(s.read(&old, 0, 100), (wanted.to_vec(), true));
        // The other way in.
        let (inner, _) = lookup(&s, &dir, b".snapshot").unwrap();
        assert_eq!(names(&s, &inner), [".", "..", "one", "two"]);
        assert_eq!(lookup(&s, &inner, name).unwrap().0, dir_then);
        // Nothing can be changed.
        for (p, args) in [
            (2, X::new().o(&old).sattr(Some(0o600), None).u(0)),
            (7, X::new().o(&old).h(0).u(1).u(2).o(b"x")),
            (8, X::new().o(&dir_then).o(b"new").u(0).sattr(None, None)),
            (9, X::new().o(&dir_then).o(b"new").sattr(None, None)),
            (12, X::new().o(&dir_then).o(b"file")),
            (14, X::new().o(&dir_then).o(b"file").o(&dir).o(b"back")),
            (14, X::new().o(&root).o(b"young").o(&dir_then).o(b"in")),
            (15, X::new().o(&old).o(&dir).o(b"linked")),
        ] {
            let status = s.status(p, &args);
            assert_eq!(status, if p == 15 { XDEV } else { ROFS }, "procedure {p}");
        }
        // COMMIT has no ROFS to answer.
        assert_eq!(s.status(21, &X::new().o(&old).h(0).u(0)), IO);
        let mut r = s.nfs(4, &X::new().o(&old).u(0x3f));
        assert_eq!(r.u(), 0);
        r.post_op();
        assert_eq!(r.u(), 0x01, "reading, no writing");
    }
    let (inner, _) = lookup(&s, &young, b".snapshot").unwrap();
    assert_eq!(
        names(&s, &inner),
        [".", "..", "two"],
        "it was not there at one"
    );
    assert_eq!(lookup(&s, &inner, b"one"), Err(NOENT));
    for (p, args) in [
        (8, X::new().o(&top).o(b"new").u(0).sattr(None, None)),
        (9, X::new().o(&top).o(b"new").sattr(None, None)),
        (13, X::new().o(&top).o(b"one")),
        (13, X::new().o(&root).o(b".snapshot")),
        (14, X::new().o(&root).o(b".snapshot").o(&root).o(b"x")),
    ] {
        assert_eq!(s.status(p, &args), ROFS, "procedure {p}");
    }
    let args = X::new().o(&root).o(b".snapshot").sattr(None, None);
    assert_eq!(s.status(9, &args), EXIST);
    for p in [18, 19, 20] {
        assert_eq!(s.status(p, &X::new().o(&top)), 0);
    }
    // It can be mounted.
    let mut r = s.call(MOUNT, 1, &X::new().o(b"/vol1/.snapshot/one/dir"));
    assert_eq!(r.u(), 0);
    assert_eq!(names(&s, &r.o()), [".", "..", "file"]);
}

#[test]
fn the_directory_of_snapshots_is_listed_while_there_is_one() {
    let s = Server::new();
    publish(&s, true);
    let root = s.root();
    s.create(&root, b"file", 0o644);
    // Listed or not, it can be entered and nothing else can have its name.
    let reachable = |expected: &[&str]| {
        let (top, attr) = lookup(&s, &root, b".snapshot").unwrap();
        assert_eq!((attr.kind, attr.mode), (2, 0o555));
        assert_eq!(names(&s, &top), expected);
        let args = X::new().o(&root).o(b".snapshot").sattr(None, None);
        assert_eq!(s.status(9, &args), EXIST);
    };
    assert_eq!(names(&s, &root), [".", "..", "file"]);
    reachable(&[".", ".."]);
    s.volume.snapshot_create("one", s.current_time()).unwrap();
    assert_eq!(names(&s, &root), [".", "..", ".snapshot", "file"]);
    reachable(&[".", "..", "one"]);
    // A listing that began before goes on.
    let mut r = s.nfs(16, &X::new().o(&root).h(3).raw(&[0; 8]).u(4096));
    s.volume.snapshot_delete("one").unwrap();
    assert_eq!(r.u(), 0);
    let mut r = s.nfs(16, &X::new().o(&root).h(3).raw(&[0; 8]).u(4096));
    assert_eq!(r.u(), 0);
    r.post_op().unwrap();
    r.raw(8);
    assert_eq!(r.u(), 1);
    r.h();
    assert_eq!(r.o(), b"file");
    assert_eq!(names(&s, &root), [".", "..", "file"]);
    reachable(&[".", ".."]);
}

#[test]
fn handles_outlive_restarts_and_end_with_their_snapshot() {
    let mut s = Server::new();
    publish(&s, true);
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    s.write(&file, 0, b"kept");
    s.volume.snapshot_create("a", s.current_time()).unwrap();
    s.volume.snapshot_create("b", s.current_time()).unwrap();
    let (top, before) = lookup(&s, &root, b".snapshot").unwrap();
    let old = |s: &Server, name: &[u8]| {
        let (then, _) = lookup(s, &top, name).unwrap();
        lookup(s, &then, b"file").unwrap()
    };
    let (in_a, in_b) = (old(&s, b"a"), old(&s, b"b"));
    assert_ne!(in_a.1.fsid, in_b.1.fsid);
    s.cold_start();
    publish(&s, true);
    assert_eq!(s.getattr(&in_a.0), in_a.1);
    s.volume.snapshot_delete("a").unwrap();
    assert_eq!(s.status(1, &X::new().o(&in_a.0)), STALE);
    assert_eq!(s.read(&in_b.0, 0, 10).0, b"kept");
    assert_eq!(names(&s, &top), [".", "..", "b"]);
    let after = s.getattr(&top);
    assert_ne!((after.mtime, after.ctime), (before.mtime, before.ctime));
    // A new one of the same name is another one.
    s.volume.snapshot_create("a", s.current_time()).unwrap();
    assert_eq!(s.status(1, &X::new().o(&in_a.0)), STALE);
    s.engine.revert("vol1", "b").unwrap();
    assert_eq!(s.getattr(&in_b.0), in_b.1, "reverting to it leaves it");
    assert_eq!(lookup(&s, &top, b"a"), Err(NOENT));
    // Not shown: not there.
    publish(&s, false);
    assert_eq!(lookup(&s, &root, b".snapshot"), Err(NOENT));
    assert_eq!(s.status(1, &X::new().o(&top)), STALE);
    assert_eq!(s.status(1, &X::new().o(&in_b.0)), STALE);
    assert_eq!(names(&s, &root), [".", "..", "file"]);
}

#[test]
fn a_destination_shows_its_last_complete_snapshot_and_changes_nothing() {
    let mut s = Server::new();
    publish(&s, true);
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    s.write(&file, 0, b"first");
    s.volume.snapshot_create("one", s.current_time()).unwrap();
    s.write(&file, 0, b"later");
    let young = s.create(&root, b"young", 0o644);
    let live = s.getattr(&root);
    let one = s.volume.snapshot("one").unwrap().identity;
    s.engine.resync("vol1", one).unwrap();
    for restarted in [false, true] {
        if restarted {
            s.cold_start();
            publish(&s, true);
        }
        assert_eq!(s.read(&file, 0, 10).0, b"first");
        assert_eq!(s.status(1, &X::new().o(&young)), STALE);
        assert_eq!(s.getattr(&root).fsid, live.fsid);
        assert_eq!(names(&s, &root), [".", "..", ".snapshot", "file"]);
        let (top, _) = lookup(&s, &root, b".snapshot").unwrap();
        assert_eq!(names(&s, &top), [".", "..", "one"]);
        let write = X::new().o(&file).h(0).u(1).u(2).o(b"x");
        assert_eq!(s.status(7, &write), ROFS);
        assert_eq!(s.status(12, &X::new().o(&root).o(b"file")), ROFS);
        // COMMIT has no such answer; what was not committed is gone.
        assert_eq!(s.status(21, &X::new().o(&file).h(0).u(0)), IO);
    }
    s.engine.break_off("vol1").unwrap();
    assert_eq!(s.read(&file, 0, 10).0, b"first");
    s.write(&file, 0, b"again");
    assert_eq!(s.read(&file, 0, 10).0, b"again");
}
