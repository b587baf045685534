//! Each operation's plain behaviour, before and after checkpoints and
//! restarts.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use common::{Machine, crash, create, fixed_time, lookup, mkdir, names, read, run, write};
use weir_base::{Ino, Rng, Time};
use weir_volume::{CreateHow, FileKind, FsError, SetAttr, SetTime, Stability, Volume};

#[test]
fn a_file_survives_checkpoints_and_restarts() {
    let m = Machine::new(1);
    let (engine, vol) = m.format();
    let root = vol.root();
    let f = create(&vol, root, "a");
    let data: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    write(&vol, f, 100, &data, Stability::FileSync);
    let check = |vol: &Volume| {
        let all = read(vol, f, 0, 1 << 20);
        assert_eq!(all.len(), 20_100);
        assert!(all[..100].iter().all(|b| *b == 0));
        assert_eq!(all[100..], data[..]);
        assert_eq!(read(vol, f, 5000, 10), data[4900..4910]);
        assert!(read(vol, f, 30_000, 10).is_empty());
        assert_eq!(lookup(vol, root, "a"), Ok(f));
    };
    check(&vol);
    engine.cp_now().unwrap();
    check(&vol);
    write(&vol, f, 100, &data[..1], Stability::FileSync);
    check(&vol);
    engine.wait_durable(Some(engine.durable())).unwrap();
    let lsn = run(&vol, |cx| {
        vol.write(cx, f, 100, &data[..3], Stability::FileSync)
    })
    .unwrap()
    .lsn;
    engine.wait_durable(lsn).unwrap();
    drop(vol);
    drop(engine);

    let (engine, vol) = m.open();
    assert!(engine.recovered().records > 0);
    check(&vol);
    engine.shutdown().unwrap();
    drop(vol);
    drop(engine);

    let (engine, vol) = m.open();
    assert_eq!(engine.recovered().records, 0, "a clean stop leaves no log");
    check(&vol);
    let attr = run(&vol, |cx| vol.getattr(cx, f)).unwrap();
    assert_eq!(attr.used, 5 * 4096);
}

#[test]
fn unstable_data_is_durable_after_commit_and_may_be_lost_before() {
    for size in [3000usize, 2_000_000] {
        let m = Machine::new(2);
        let (engine, vol) = m.format();
        let f = create(&vol, vol.root(), "f");
        let data = vec![7u8; size];
        for (i, part) in data.chunks(1 << 20).enumerate() {
            write(&vol, f, (i << 20) as u64, part, Stability::Unstable);
        }
        let done = run(&vol, |cx| vol.commit(cx, f, 0, 0)).unwrap();
        engine.wait_durable(done.lsn).unwrap();
        write(&vol, f, 0, b"later", Stability::Unstable);
        drop(vol);
        drop(engine);
        let (_engine, vol) = m.open();
        let back = read(&vol, f, 0, 1 << 20);
        assert_eq!(back[5..], data[5..data.len().min(1 << 20)]);
        assert!(back[..5] == data[..5] || &back[..5] == b"later");
    }
}

#[test]
fn truncation_leaves_zeros_behind() {
    let m = Machine::new(3);
    let (engine, vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    let set = |size: u64| {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        run(&vol, |cx| vol.setattr(cx, f, &set, None)).unwrap()
    };
    for cp in [false, true] {
        write(&vol, f, 0, &[9; 300_000], Stability::FileSync);
        if cp {
            engine.cp_now().unwrap();
        }
        set(5000);
        if cp {
            engine.cp_now().unwrap();
        }
        let done = set(400_000);
        assert_eq!(done.value.after.size, 400_000);
        let back = read(&vol, f, 0, 400_000);
        assert_eq!(back.len(), 400_000);
        assert!(back[..5000].iter().all(|b| *b == 9));
        assert!(back[5000..].iter().all(|b| *b == 0));
        if cp {
            engine.cp_now().unwrap();
            let attr = run(&vol, |cx| vol.getattr(cx, f)).unwrap();
            assert_eq!(attr.used, 2 * 4096);
        }
    }
}

#[test]
fn offsets_reach_8_eib() {
    let m = Machine::new(4);
    let (engine, vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    let last = i64::MAX as u64 - 5;
    write(&vol, f, last, b"hello", Stability::FileSync);
    engine.cp_now().unwrap();
    let attr = run(&vol, |cx| vol.getattr(cx, f)).unwrap();
    assert_eq!((attr.size, attr.used), (i64::MAX as u64, 4096));
    assert_eq!(read(&vol, f, last, 100), b"hello");
    assert_eq!(
        run(&vol, |cx| vol.write(
            cx,
            f,
            last,
            b"hello!",
            Stability::Unstable
        )),
        Err(FsError::FileTooBig)
    );
    assert_eq!(
        run(&vol, |cx| vol.write(
            cx,
            f,
            u64::MAX,
            b"h",
            Stability::Unstable
        )),
        Err(FsError::FileTooBig)
    );
}

#[test]
fn directories_of_many_entries() {
    let m = Machine::new(5);
    let (engine, vol) = m.format();
    let d = mkdir(&vol, vol.root(), "d");
    for i in 0..1000 {
        create(&vol, d, &format!("file{i}"));
        if i == 400 {
            engine.cp_now().unwrap();
        }
    }
    let mut cookies = names(&vol, d);
    assert_eq!(cookies.len(), 1000);
    for i in (0..1000).step_by(2) {
        run(&vol, |cx| vol.remove(cx, d, format!("file{i}").as_bytes())).unwrap();
        if i == 500 {
            engine.cp_now().unwrap();
        }
    }
    cookies.retain(|(_, n)| n[4..].parse::<u32>().unwrap() % 2 == 1);
    assert_eq!(names(&vol, d), cookies, "cookies do not change");
    crash(engine, vol);
    let (engine, vol) = m.open();
    assert_eq!(names(&vol, d), cookies);
    engine.cp_now().unwrap();
    assert_eq!(names(&vol, d), cookies);
    assert_eq!(
        run(&vol, |cx| vol.rmdir(cx, vol.root(), b"d")),
        Err(FsError::NotEmpty)
    );
    for (_, name) in cookies {
        run(&vol, |cx| vol.remove(cx, d, name.as_bytes())).unwrap();
    }
    run(&vol, |cx| vol.rmdir(cx, vol.root(), b"d")).unwrap();
    assert_eq!(lookup(&vol, vol.root(), "d"), Err(FsError::NotFound));
    assert_eq!(run(&vol, |cx| vol.getattr(cx, d)), Err(FsError::Stale));
    engine.cp_now().unwrap();
    assert_eq!(run(&vol, |cx| vol.getattr(cx, d)), Err(FsError::Stale));
}

#[test]
fn links_and_link_counts() {
    let m = Machine::new(6);
    let (engine, vol) = m.format();
    let root = vol.root();
    let d = mkdir(&vol, root, "d");
    assert_eq!(run(&vol, |cx| vol.getattr(cx, root)).unwrap().nlink, 3);
    let f = create(&vol, root, "f");
    let done = run(&vol, |cx| vol.link(cx, f, d, b"g")).unwrap();
    assert_eq!(done.value.attr.nlink, 2);
    assert_eq!(
        run(&vol, |cx| vol.link(cx, d, root, b"x")),
        Err(FsError::IsDir)
    );
    assert_eq!(
        run(&vol, |cx| vol.link(cx, f, d, b"g")),
        Err(FsError::Exists)
    );
    engine.cp_now().unwrap();
    let gone = run(&vol, |cx| vol.remove(cx, root, b"f")).unwrap();
    assert_eq!(gone.value.child.nlink, 1);
    let gone = run(&vol, |cx| vol.remove(cx, d, b"g")).unwrap();
    assert_eq!(gone.value.child.nlink, 0);
    assert_eq!(run(&vol, |cx| vol.getattr(cx, f)), Err(FsError::Stale));
}

#[test]
fn symlinks_and_special_files() {
    let m = Machine::new(7);
    let (engine, vol) = m.format();
    let root = vol.root();
    let target = vec![b't'; 4095];
    let set = SetAttr::default();
    let l = run(&vol, |cx| vol.symlink(cx, root, b"l", &target, &set))
        .unwrap()
        .value;
    let n = run(&vol, |cx| {
        vol.mknod(cx, root, b"n", FileKind::Block, (8, 1), &set)
    })
    .unwrap()
    .value;
    assert_eq!(n.attr.rdev, (8, 1));
    for _ in 0..2 {
        let (back, attr) = run(&vol, |cx| vol.readlink(cx, l.ino)).unwrap();
        assert_eq!((back, attr.size), (target.clone(), 4095));
        assert_eq!(
            run(&vol, |cx| vol.readlink(cx, n.ino)),
            Err(FsError::Invalid)
        );
        engine.cp_now().unwrap();
    }
    crash(engine, vol);
    let (_engine, vol) = m.open();
    assert_eq!(run(&vol, |cx| vol.readlink(cx, l.ino)).unwrap().0, target);
}

#[test]
fn exclusive_create_recognises_its_repetition() {
    let m = Machine::new(8);
    let (engine, vol) = m.format();
    let root = vol.root();
    let set = SetAttr::default();
    let how = CreateHow::Exclusive([1; 8]);
    let a = run(&vol, |cx| vol.create(cx, root, b"x", how, &set)).unwrap();
    engine.cp_now().unwrap();
    let b = run(&vol, |cx| vol.create(cx, root, b"x", how, &set)).unwrap();
    assert_eq!(a.value.ino, b.value.ino);
    let other = CreateHow::Exclusive([2; 8]);
    assert_eq!(
        run(&vol, |cx| vol.create(cx, root, b"x", other, &set)).map(|d| d.value.ino),
        Err(FsError::Exists)
    );
    write(&vol, a.value.ino, 0, b"data", Stability::FileSync);
    let c = run(&vol, |cx| {
        vol.create(cx, root, b"x", CreateHow::Unchecked, &set)
    })
    .unwrap();
    assert_eq!(
        c.value.attr.size, 4,
        "unchecked create without a size keeps the data"
    );
}

#[test]
fn renames() {
    let m = Machine::new(9);
    let (engine, vol) = m.format();
    let root = vol.root();
    let a = mkdir(&vol, root, "a");
    let b = mkdir(&vol, a, "b");
    let f = create(&vol, a, "f");
    let ren = |from: Ino, x: &str, to: Ino, y: &str| {
        run(&vol, |cx| {
            vol.rename(cx, from, x.as_bytes(), to, y.as_bytes())
        })
        .map(|_| ())
    };
    let nlink = |ino: Ino| run(&vol, |cx| vol.getattr(cx, ino)).unwrap().nlink;
    assert_eq!(ren(root, "a", b, "x"), Err(FsError::Invalid), "into itself");
    assert_eq!(ren(root, "a", a, "x"), Err(FsError::Invalid));
    assert_eq!(ren(root, "nope", a, "x"), Err(FsError::NotFound));
    assert_eq!(ren(a, "f", root, "a"), Err(FsError::IsDir));
    assert_eq!(ren(a, "b", a, "f"), Err(FsError::NotDir));
    ren(a, "f", root, "f").unwrap();
    assert_eq!(lookup(&vol, root, "f"), Ok(f));
    assert_eq!(lookup(&vol, a, "f"), Err(FsError::NotFound));
    engine.cp_now().unwrap();
    ren(a, "b", root, "c").unwrap();
    assert_eq!((nlink(root), nlink(a), nlink(b)), (4, 2, 2));
    assert_eq!(lookup(&vol, b, ".."), Ok(root));
    let g = create(&vol, b, "g");
    assert_eq!(ren(root, "a", root, "c"), Err(FsError::NotEmpty));
    ren(b, "g", root, "f").unwrap();
    assert_eq!(
        run(&vol, |cx| vol.getattr(cx, f)),
        Err(FsError::Stale),
        "replaced"
    );
    assert_eq!(lookup(&vol, root, "f"), Ok(g));
    ren(root, "a", root, "c").unwrap();
    assert_eq!(run(&vol, |cx| vol.getattr(cx, b)), Err(FsError::Stale));
    assert_eq!(nlink(root), 3);
    let h = run(&vol, |cx| vol.link(cx, g, root, b"h"))
        .unwrap()
        .value
        .attr
        .ino;
    ren(root, "h", root, "f").unwrap();
    assert_eq!(lookup(&vol, root, "h"), Ok(h), "two names of one file stay");
    ren(root, "f", root, "f").unwrap();
    crash(engine, vol);
    let (_engine, vol) = m.open();
    let mut all: Vec<String> = names(&vol, root).into_iter().map(|(_, n)| n).collect();
    all.sort();
    assert_eq!(all, ["c", "f", "h"]);
}

#[test]
fn attributes_and_guards() {
    let m = Machine::new(10);
    let (_engine, vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    let before = run(&vol, |cx| vol.getattr(cx, f)).unwrap();
    let set = SetAttr {
        mode: Some(0o107_777),
        uid: Some(u32::MAX - 1),
        gid: Some(7),
        atime: SetTime::Server,
        mtime: SetTime::Client(Time { secs: -3, nanos: 7 }),
        ..SetAttr::default()
    };
    let done = run(&vol, |cx| vol.setattr(cx, f, &set, Some(before.ctime))).unwrap();
    let after = done.value.after;
    assert_eq!(
        (after.mode, after.uid, after.gid),
        (0o7777, u32::MAX - 1, 7)
    );
    assert_eq!(after.mtime, Time { secs: -3, nanos: 7 });
    assert_eq!(after.atime, fixed_time());
    assert!(after.ctime > before.ctime);
    assert_eq!(
        run(&vol, |cx| vol.setattr(cx, f, &set, Some(before.ctime))),
        Err(FsError::NotSync)
    );
}

#[test]
fn names_are_any_bytes() {
    let m = Machine::new(11);
    let (_engine, vol) = m.format();
    let root = vol.root();
    let set = SetAttr::default();
    let make = |name: &[u8]| {
        run(&vol, |cx| {
            vol.create(cx, root, name, CreateHow::Guarded, &set)
        })
    };
    assert!(make(&[0xFF; 255]).is_ok());
    assert_eq!(make(&[b'a'; 256]).map(|_| ()), Err(FsError::NameTooLong));
    assert_eq!(make(b"").map(|_| ()), Err(FsError::Invalid));
    assert_eq!(make(b"a/b").map(|_| ()), Err(FsError::Invalid));
    assert_eq!(make(b"..").map(|_| ()), Err(FsError::Exists));
    for b in (1..=255u8).filter(|b| !b"/.".contains(b)) {
        make(&[b]).unwrap();
    }
    assert_eq!(names(&vol, root).len(), 254);
}

#[test]
fn snapshots_keep_what_the_volume_drops() {
    let m = Machine::new(12);
    let (engine, vol) = m.format();
    let root = vol.root();
    let f = create(&vol, root, "f");
    write(&vol, f, 0, &[1; 100_000], Stability::FileSync);
    vol.snapshot_create("one", fixed_time()).unwrap();
    write(&vol, f, 0, &[2; 50_000], Stability::FileSync);
    create(&vol, root, "g");
    vol.snapshot_create("two", fixed_time()).unwrap();
    run(&vol, |cx| vol.remove(cx, root, b"f")).unwrap();
    engine.cp_now().unwrap();
    for i in 0..20 {
        let x = create(&vol, root, &format!("x{i}"));
        write(&vol, x, 0, &[3; 100_000], Stability::FileSync);
        engine.cp_now().unwrap();
    }
    crash(engine, vol);
    let (engine, vol) = m.open();
    let one = vol.open_snapshot("one").unwrap();
    let two = vol.open_snapshot("two").unwrap();
    assert!(read(&one, f, 0, 1 << 20).iter().all(|b| *b == 1));
    assert_eq!(read(&two, f, 0, 50_000), vec![2; 50_000]);
    assert_eq!(lookup(&one, root, "g"), Err(FsError::NotFound));
    assert!(lookup(&two, root, "g").is_ok());
    assert_eq!(
        run(&one, |cx| one.remove(cx, root, b"f")).map(|_| ()),
        Err(FsError::ReadOnly)
    );
    let diff = one.diff(&two).unwrap();
    assert!(diff.iter().any(|d| d.ino == f && d.in_old && d.in_new));
    assert!(
        diff.iter()
            .all(|d| d.ino == f || d.ino == root || d.ino == lookup(&two, root, "g").unwrap())
    );
    drop((one, two));
    let free = |engine: &weir_volume::Engine| engine.aggregate().space().stats().free;
    engine.cp_now().unwrap();
    let before = free(&engine);
    vol.snapshot_delete("one").unwrap();
    engine.cp_now().unwrap();
    let two = vol.open_snapshot("two").unwrap();
    assert_eq!(read(&two, f, 0, 50_000), vec![2; 50_000]);
    assert!(read(&two, f, 50_000, 50_000).iter().all(|b| *b == 1));
    drop(two);
    let between = free(&engine);
    assert!(
        between >= before + 12,
        "the blocks only the first had are free"
    );
    vol.snapshot_delete("two").unwrap();
    engine.cp_now().unwrap();
    assert!(free(&engine) >= between + 24);
    assert!(vol.snapshots().is_empty());
}

#[test]
fn removed_files_give_their_space_back() {
    let m = Machine::new(13);
    let (engine, vol) = m.format();
    let root = vol.root();
    engine.cp_now().unwrap();
    let free = |engine: &weir_volume::Engine| engine.aggregate().space().stats().free;
    let before = free(&engine);
    for i in 0..30 {
        let f = create(&vol, root, &format!("f{i}"));
        for j in 0..4 {
            write(
                &vol,
                f,
                j << 20,
                &vec![i as u8; 1 << 20],
                Stability::Unstable,
            );
        }
        if m.rng.below(3) == 0 {
            engine.cp_now().unwrap();
        }
        run(&vol, |cx| vol.remove(cx, root, format!("f{i}").as_bytes())).unwrap();
    }
    engine.cp_now().unwrap();
    engine.cp_now().unwrap();
    engine.cp_now().unwrap();
    assert!(free(&engine) + 16 >= before, "{} {before}", free(&engine));
    assert_eq!(
        vol.statfs().total,
        engine.aggregate().space().stats().total * 4096
    );
}

#[test]
fn the_first_read_after_a_change_is_noted() {
    let m = Machine::new(14);
    let (_engine, vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    write(&vol, f, 0, b"data", Stability::FileSync);
    let at = |secs: i64| {
        let mut cx = weir_volume::EngineContext::new(Time { secs, nanos: 0 });
        let out = vol
            .drive_blocking(&mut cx, |cx| vol.read(cx, f, 0, 10))
            .unwrap();
        let attr = run(&vol, |cx| vol.getattr(cx, f)).unwrap();
        assert_eq!(out.attr, attr);
        attr.atime.secs - fixed_time().secs
    };
    assert_eq!(at(fixed_time().secs + 5), 5);
    assert_eq!(at(fixed_time().secs + 6), 5, "nothing was written since");
    assert_eq!(at(fixed_time().secs + 100_000), 100_000, "a day has passed");
    assert_eq!(at(fixed_time().secs), 100_000, "never back");
}
