//! Files and directories that become links, and links that become files and directories again.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::sync::Arc;

use common::{Machine, crash, create, lookup, mkdir, names, read, run, write};
use weir_base::Ino;
use weir_volume::{
    Attr, Conversion, DIRECTORY_LINK, Engine, FileKind, FsError, SetAttr, SetHow, Stability, Volume,
};

fn convert(
    vol: &Volume,
    place: (Ino, &str),
    ino: Ino,
    to: Conversion<'_>,
) -> Result<Attr, FsError> {
    let place = (place.0, place.1.as_bytes());
    let done = run(vol, |cx| vol.convert(cx, place, ino, to));
    done.map(|done| done.value.after)
}

fn attr(vol: &Volume, ino: Ino) -> Attr {
    run(vol, |cx| vol.getattr(cx, ino)).unwrap()
}

fn target(vol: &Volume, ino: Ino) -> Result<Vec<u8>, FsError> {
    run(vol, |cx| vol.readlink(cx, ino)).map(|(target, _)| target)
}

/// Event between two operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Between {
    Nothing,
    Checkpoint,
    Crash,
    /// A checkpoint and then a crash: the log is applied to a tree that already has all of it.
    Both,
}

fn pass(m: &Machine, live: (Engine, Arc<Volume>), between: Between) -> (Engine, Arc<Volume>) {
    let (engine, vol) = live;
    if matches!(between, Between::Checkpoint | Between::Both) {
        engine.cp_now().unwrap();
    }
    match between {
        Between::Nothing | Between::Checkpoint => (engine, vol),
        Between::Crash | Between::Both => {
            crash(engine, vol);
            let report = m.check();
            assert!(report.clean(), "{report}");
            m.open()
        }
    }
}

#[test]
fn a_file_or_directory_becomes_a_link_and_is_itself_again() {
    let all = [
        Between::Nothing,
        Between::Checkpoint,
        Between::Crash,
        Between::Both,
    ];
    for directory in [false, true] {
        for between in all {
            let m = Machine::new(91);
            let (engine, vol) = m.format();
            let root = vol.root();
            let dir = mkdir(&vol, root, "dir");
            let ino = match directory {
                false => create(&vol, dir, "it"),
                true => mkdir(&vol, dir, "it"),
            };
            // A file's data is freed, and does not become the content of a link.
            if !directory {
                write(&vol, ino, 0, &[7; 9000], Stability::FileSync);
                engine.cp_now().unwrap();
                let cut = SetAttr {
                    size: Some(0),
                    ..SetAttr::default()
                };
                run(&vol, |cx| vol.setattr(cx, ino, &cut, None)).unwrap();
            }
            let set = |name: &[u8], value: &[u8]| {
                run(&vol, |cx| {
                    vol.set_xattr(cx, ino, name, Some(value), SetHow::Either)
                })
            };
            set(b"user.x", b"kept").unwrap();
            run(&vol, |cx| vol.set_acl(cx, ino, Some(b"list"))).unwrap();
            let before = attr(&vol, ino);
            let links = |vol: &Volume| attr(vol, dir).nlink;
            let had = links(&vol);

            let mut live = pass(&m, (engine, vol), between);
            // Longer and shorter ones, whose first pieces are the same.
            let targets = [vec![b'a'; 4095], vec![b'a'; 1500], b"../else".to_vec()];
            for wanted in &targets {
                let vol = &live.1;
                let parent = attr(vol, dir);
                let after = convert(vol, (dir, "it"), ino, Conversion::Link(wanted)).unwrap();
                assert_eq!(after.kind, FileKind::Symlink);
                assert_eq!(
                    (after.nlink, after.size, after.used),
                    (1, wanted.len() as u64, 0)
                );
                assert_eq!((after.mode, after.guard), (before.mode, before.guard));
                assert!(after.change > before.change && after.ctime > before.ctime);
                let changed = attr(vol, dir).change > parent.change;
                assert_eq!(changed, wanted == &targets[0], "the directory's entry");
                live = pass(&m, live, between);
                let vol = &live.1;
                assert_eq!(target(vol, ino).as_ref(), Ok(wanted));
                assert_eq!(lookup(vol, dir, "it"), Ok(ino));
                assert_eq!(attr(vol, ino).dos & DIRECTORY_LINK != 0, directory);
                assert_eq!(links(vol), had - u32::from(directory));
                assert_eq!(
                    run(vol, |cx| vol.xattr(cx, ino, b"user.x")).unwrap(),
                    b"kept"
                );
            }
            let plain = Conversion::Plain(Some(0o640));
            let after = convert(&live.1, (dir, "it"), ino, plain).unwrap();
            live = pass(&m, live, between);
            let vol = &live.1;
            assert_eq!(attr(vol, ino).kind, before.kind);
            assert_eq!(
                (after.nlink, after.size, after.mode),
                (before.nlink, before.size, 0o640)
            );
            assert_eq!((after.dos & DIRECTORY_LINK, links(vol)), (0, had));
            assert_eq!(target(vol, ino), Err(FsError::Invalid));
            let list = run(vol, |cx| vol.acl(cx, ino)).unwrap();
            assert_eq!(list.as_deref(), Some(&b"list"[..]));
            // It is in use again, and as a link once more it has nothing of its former data.
            match directory {
                true => {
                    create(vol, ino, "inside");
                    assert_eq!(
                        convert(vol, (dir, "it"), ino, Conversion::Link(b"t")),
                        Err(FsError::NotEmpty)
                    );
                    let up = run(vol, |cx| vol.lookup(cx, ino, b".."));
                    assert_eq!(up.unwrap().ino, dir);
                    assert_eq!(names(vol, ino).len(), 1);
                }
                false => {
                    write(vol, ino, 0, b"data", Stability::FileSync);
                    assert_eq!(read(vol, ino, 0, 9), b"data");
                }
            }
            let (engine, vol) = live;
            engine.shutdown().unwrap();
            drop((engine, vol));
            let report = m.check();
            assert!(report.clean(), "{directory} {between:?}: {report}");
        }
    }
}

#[test]
fn what_cannot_become_a_link_stays_what_it_is() {
    let m = Machine::new(92);
    let (engine, vol) = m.format();
    let root = vol.root();
    let to = Conversion::Link(b"target");
    let set = SetAttr::default();
    let full = create(&vol, root, "full");
    write(&vol, full, 0, b"data", Stability::Unstable);
    let twice = create(&vol, root, "twice");
    run(&vol, |cx| vol.link(cx, twice, root, b"again")).unwrap();
    let streamed = create(&vol, root, "streamed");
    run(&vol, |cx| vol.make_stream(cx, streamed, b"s")).unwrap();
    let fifo = run(&vol, |cx| {
        vol.mknod(cx, root, b"fifo", FileKind::Fifo, (0, 0), &set)
    });
    let fifo = fifo.unwrap().value.ino;
    let link = run(&vol, |cx| vol.symlink(cx, root, b"link", b"old", &set));
    let link = link.unwrap().value.ino;
    run(&vol, |cx| vol.link(cx, link, root, b"link2")).unwrap();
    let plain = create(&vol, root, "plain");
    let all = names(&vol, root);
    for (name, ino, to, why) in [
        ("full", full, to, FsError::Invalid),
        ("twice", twice, to, FsError::Invalid),
        ("streamed", streamed, to, FsError::Invalid),
        ("fifo", fifo, to, FsError::Invalid),
        ("link", link, Conversion::Plain(None), FsError::Invalid),
        ("plain", plain, Conversion::Plain(None), FsError::Invalid),
        ("plain", plain, Conversion::Link(b""), FsError::Invalid),
        ("plain", plain, Conversion::Link(b"a\0b"), FsError::Invalid),
        (
            "plain",
            plain,
            Conversion::Link(&[b'x'; 4096]),
            FsError::NameTooLong,
        ),
        // Another inode has the name, or none has it.
        ("plain", full, to, FsError::NotFound),
        ("none", plain, to, FsError::NotFound),
    ] {
        let before = run(&vol, |cx| vol.getattr(cx, ino)).unwrap();
        assert_eq!(convert(&vol, (root, name), ino, to), Err(why), "{name}");
        assert_eq!(attr(&vol, ino), before, "{name}");
    }
    assert_eq!(convert(&vol, (plain, "x"), full, to), Err(FsError::NotDir));
    assert_eq!(names(&vol, root), all);
    // A link of several names may get another target.
    assert_eq!(convert(&vol, (root, "link2"), link, to).unwrap().nlink, 2);
    assert_eq!(target(&vol, link).unwrap(), b"target");
    // A file that had a stream and has none can be converted.
    run(&vol, |cx| vol.remove_stream(cx, streamed, b"s")).unwrap();
    convert(&vol, (root, "streamed"), streamed, to).unwrap();
    engine.shutdown().unwrap();
    drop((engine, vol));
    let report = m.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn a_snapshot_keeps_what_was_there_before() {
    let m = Machine::new(93);
    let (engine, vol) = m.format();
    let root = vol.root();
    let ino = create(&vol, root, "it");
    let set = SetAttr::default();
    let other = run(&vol, |cx| vol.symlink(cx, root, b"other", b"old", &set));
    let other = other.unwrap().value.ino;
    vol.snapshot_create("before", common::fixed_time()).unwrap();
    convert(&vol, (root, "it"), ino, Conversion::Link(b"new")).unwrap();
    convert(&vol, (root, "other"), other, Conversion::Plain(None)).unwrap();
    for _ in 0..2 {
        let old = vol.open_snapshot("before").unwrap();
        assert_eq!(attr(&old, ino).kind, FileKind::Regular);
        assert_eq!(target(&old, other).unwrap(), b"old");
        assert_eq!(target(&vol, ino).unwrap(), b"new");
        assert_eq!(attr(&vol, other).kind, FileKind::Regular);
        assert_eq!(
            convert(&old, (root, "it"), ino, Conversion::Link(b"x")),
            Err(FsError::ReadOnly)
        );
        drop(old);
        engine.cp_now().unwrap();
    }
    drop(vol);
    engine.shutdown().unwrap();
    drop(engine);
    let report = m.check();
    assert!(report.clean(), "{report}");
}
