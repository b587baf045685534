//! Named streams: found in any case, deleted with their file, and there after a crash.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::sync::Arc;

use common::*;
use weir_base::Ino;
use weir_volume::{Engine, FsError, Stability, Volume};

fn make(vol: &Volume, file: Ino, name: &str) -> Result<Ino, FsError> {
    let made = run(vol, |cx| vol.make_stream(cx, file, name.as_bytes()));
    made.map(|done| done.value.attr.ino)
}

fn names(vol: &Volume, file: Ino) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = run(vol, |cx| vol.streams(cx, file))
        .unwrap()
        .into_iter()
        .map(|s| (String::from_utf8(s.name.to_vec()).unwrap(), s.attr.size))
        .collect();
    all.sort();
    all
}

fn remove(vol: &Volume, file: Ino, name: &str) -> Result<(), FsError> {
    run(vol, |cx| vol.remove_stream(cx, file, name.as_bytes())).map(drop)
}

fn is_there(vol: &Volume, ino: Ino) -> bool {
    match run(vol, |cx| vol.getattr(cx, ino)) {
        Ok(_) => true,
        Err(FsError::Stale) => false,
        Err(error) => panic!("{error:?}"),
    }
}

fn again(m: &Machine, engine: Engine, vol: Arc<Volume>) -> (Engine, Arc<Volume>) {
    // Every earlier change is durable.
    let lsn = run(&vol, |_| engine.client_records().set(9, None)).unwrap();
    engine.wait_durable(Some(lsn)).unwrap();
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
    m.open()
}

#[test]
fn streams_are_made_found_renamed_and_removed() {
    let m = Machine::new(71);
    let (mut engine, mut vol) = m.format();
    let root = vol.root();
    let file = create(&vol, root, "file");
    for stored in [false, true] {
        let first = make(&vol, file, "Zone.Identifier").unwrap();
        let second = make(&vol, file, "AFP_AfpInfo").unwrap();
        assert_eq!(make(&vol, file, "zone.IDENTIFIER"), Err(FsError::Exists));
        write(&vol, first, 0, &[7; 5000], Stability::FileSync);
        if stored {
            engine.cp_now().unwrap();
            assert!(m.check().clean(), "{}", m.check());
        }
        (engine, vol) = again(&m, engine, vol);
        let expected = [
            ("AFP_AfpInfo".to_owned(), 0),
            ("Zone.Identifier".to_owned(), 5000),
        ];
        assert_eq!(names(&vol, file), expected);
        let found = run(&vol, |cx| vol.stream(cx, file, b"ZONE.identifier")).unwrap();
        assert_eq!(
            (found.attr.ino, &*found.name),
            (first, &b"Zone.Identifier"[..])
        );
        assert_eq!(read(&vol, first, 4999, 2), [7]);
        let to = |to: &'static str| {
            run(&vol, |cx| {
                vol.rename_stream(cx, file, b"AFP_afpinfo", to.as_bytes())
            })
            .map(drop)
        };
        assert_eq!(to("zone.identifier"), Err(FsError::Exists));
        assert_eq!(to("afp_AfpInfo"), Ok(()));
        assert_eq!(
            run(&vol, |cx| vol.rename_stream(
                cx,
                file,
                b"AFP_AfpInfo",
                b"other"
            ))
            .map(drop),
            Ok(())
        );
        (engine, vol) = again(&m, engine, vol);
        assert_eq!(names(&vol, file)[1].0, "other");
        assert_eq!(remove(&vol, file, "AFP_AfpInfo"), Err(FsError::NotFound));
        assert_eq!(remove(&vol, file, "OTHER"), Ok(()));
        assert_eq!(remove(&vol, file, "Zone.Identifier"), Ok(()));
        assert!(!is_there(&vol, first) && !is_there(&vol, second));
        (engine, vol) = again(&m, engine, vol);
        assert_eq!(names(&vol, file), []);
        engine.cp_now().unwrap();
        assert_eq!(vol.used(), 0);
        assert!(m.check().clean(), "{}", m.check());
    }
    // Inodes that cannot have a stream, and missing streams.
    let stream = make(&vol, root, "of a directory").unwrap();
    assert_eq!(make(&vol, stream, "x"), Err(FsError::Invalid));
    for bad in ["a/b", "", ".", ".."] {
        assert_eq!(make(&vol, file, bad), Err(FsError::Invalid), "{bad}");
    }
    assert_eq!(
        make(&vol, file, &"x".repeat(256)),
        Err(FsError::NameTooLong)
    );
}

#[test]
fn streams_go_with_their_file() {
    for (stored, way) in [
        (false, 0),
        (true, 0),
        (false, 1),
        (true, 1),
        (true, 2),
        (false, 3),
        (true, 3),
    ] {
        let m = Machine::new(72);
        let (engine, vol) = m.format();
        let root = vol.root();
        let file = match way {
            2 => mkdir(&vol, root, "file"),
            _ => create(&vol, root, "file"),
        };
        let (one, two) = (
            make(&vol, file, "one").unwrap(),
            make(&vol, file, "two").unwrap(),
        );
        write(&vol, one, 0, &[1; 9000], Stability::FileSync);
        run(&vol, |cx| {
            vol.set_xattr(cx, file, b"kept", Some(b"too"), weir_volume::SetHow::Either)
        })
        .unwrap();
        if stored {
            engine.cp_now().unwrap();
        }
        // An open stream outlives its file, and an open file loses its streams with its name.
        let open = run(&vol, |cx| vol.pin(cx, two)).unwrap();
        let held = (way == 3).then(|| run(&vol, |cx| vol.pin(cx, file)).unwrap());
        match way {
            1 => {
                create(&vol, root, "other");
                run(&vol, |cx| vol.rename(cx, root, b"other", root, b"file")).unwrap();
            }
            2 => drop(run(&vol, |cx| vol.rmdir(cx, root, b"file")).unwrap()),
            _ => drop(run(&vol, |cx| vol.remove(cx, root, b"file")).unwrap()),
        }
        assert!(!is_there(&vol, one) && is_there(&vol, two));
        assert_eq!(is_there(&vol, file), held.is_some());
        if held.is_some() {
            assert_eq!(names(&vol, file), []);
            assert_eq!(make(&vol, file, "late"), Err(FsError::Stale));
        }
        write(&vol, two, 0, &[2; 10], Stability::Unstable);
        engine.cp_now().unwrap();
        drop((open, held));
        engine.cp_now().unwrap();
        engine.cp_now().unwrap();
        assert_eq!(vol.used(), 0, "{way}");
        let (engine, vol) = again(&m, engine, vol);
        assert!(!is_there(&vol, two) && !is_there(&vol, file));
        drop((engine, vol));
    }
}

#[test]
fn a_snapshot_has_the_streams_of_its_time() {
    let m = Machine::new(73);
    let (engine, vol) = m.format();
    let file = create(&vol, vol.root(), "file");
    let stream = make(&vol, file, "s").unwrap();
    write(&vol, stream, 0, &[3; 4096], Stability::FileSync);
    vol.snapshot_create("then", fixed_time()).unwrap();
    remove(&vol, file, "s").unwrap();
    make(&vol, file, "later").unwrap();
    engine.cp_now().unwrap();
    let id = vol.snapshot("then").unwrap().id;
    let view = run(&vol, |_| vol.view(id)).unwrap();
    assert_eq!(names(&view, file), [("s".to_owned(), 4096)]);
    assert_eq!(read(&view, stream, 0, 2), [3, 3]);
    assert_eq!(names(&vol, file), [("later".to_owned(), 0)]);
    assert!(m.check().clean(), "{}", m.check());
}
