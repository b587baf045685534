//! Files that are open when they lose their last name.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::sync::Arc;

use common::*;
use weir_base::Ino;
use weir_volume::{Engine, FsError, Pin, Stability, Volume};

fn pin(vol: &Arc<Volume>, ino: Ino) -> Result<Pin, FsError> {
    run(vol, |cx| vol.pin(cx, ino))
}

fn remove(vol: &Volume, name: &str) {
    run(vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).unwrap();
}

fn alive(vol: &Volume, ino: Ino) -> Result<u32, FsError> {
    run(vol, |cx| vol.getattr(cx, ino)).map(|attr| attr.nlink)
}

fn again(m: &Machine, engine: Engine, vol: Arc<Volume>) -> (Engine, Arc<Volume>) {
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
    m.open()
}

#[test]
fn an_open_file_lives_until_its_last_close() {
    let m = Machine::new(61);
    let (engine, vol) = m.format();
    let root = vol.root();
    for when in 0..3 {
        let file = create(&vol, root, "file");
        write(&vol, file, 0, &[1; 10_000], Stability::FileSync);
        if when == 1 {
            engine.cp_now().unwrap();
        }
        let (first, second) = (pin(&vol, file).unwrap(), pin(&vol, file).unwrap());
        remove(&vol, "file");
        assert_eq!(alive(&vol, file), Ok(0));
        let linked = run(&vol, |cx| vol.link(cx, file, root, b"again"));
        assert_eq!(linked.map(|_| ()), Err(FsError::Stale));
        if when == 2 {
            engine.cp_now().unwrap();
            assert_eq!(vol.used(), 3 * 4096);
        }
        write(&vol, file, 5000, &[2; 10_000], Stability::Unstable);
        drop(first);
        engine.cp_now().unwrap();
        assert_eq!(read(&vol, file, 4999, 3), [1, 2, 2]);
        assert_eq!(vol.used(), 4 * 4096);
        let third = pin(&vol, file).unwrap();
        drop(second);
        engine.cp_now().unwrap();
        assert_eq!(alive(&vol, file), Ok(0));
        drop(third);
        engine.cp_now().unwrap();
        assert_eq!(alive(&vol, file), Err(FsError::Stale));
        assert_eq!(pin(&vol, file).map(|_| ()), Err(FsError::Stale));
        engine.cp_now().unwrap();
        assert_eq!(vol.used(), 0);
    }
    // The inode that a rename replaces.
    let (a, b) = (create(&vol, root, "a"), create(&vol, root, "b"));
    let open = pin(&vol, b).unwrap();
    run(&vol, |cx| vol.rename(cx, root, b"a", root, b"b")).unwrap();
    assert_eq!((alive(&vol, a), alive(&vol, b)), (Ok(1), Ok(0)));
    drop(open);
    engine.cp_now().unwrap();
    assert_eq!(
        (alive(&vol, a), alive(&vol, b)),
        (Ok(1), Err(FsError::Stale))
    );
    // A directory ends with its name.
    let dir = mkdir(&vol, root, "dir");
    let open = pin(&vol, dir).unwrap();
    run(&vol, |cx| vol.rmdir(cx, root, b"dir")).unwrap();
    assert_eq!(alive(&vol, dir), Err(FsError::Stale));
    drop(open);
    // An inode that no client has open ends with its name.
    remove(&vol, "b");
    assert_eq!(alive(&vol, a), Err(FsError::Stale));
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
}

#[test]
fn an_open_file_lives_through_crashes_until_grace_is_over() {
    let m = Machine::new(62);
    let (mut engine, mut vol) = m.format();
    let lsn = run(&vol, |_| engine.client_records().set(1, Some(b"client"))).unwrap();
    engine.wait_durable(Some(lsn)).unwrap();
    let root = vol.root();
    let file = create(&vol, root, "file");
    let other = create(&vol, root, "other");
    write(&vol, file, 0, &[1; 10_000], Stability::FileSync);
    let pins = (pin(&vol, file).unwrap(), pin(&vol, other).unwrap());
    remove(&vol, "file");
    remove(&vol, "other");
    write(&vol, file, 10_000, &[2; 10_000], Stability::FileSync);
    drop(pins);
    // Once it is only in the log, once in the tree.
    (engine, vol) = again(&m, engine, vol);
    for round in 0..3 {
        assert_eq!(read(&vol, file, 9_999, 2), [1, 2]);
        engine.cp_now().unwrap();
        engine.cp_now().unwrap();
        assert_eq!((alive(&vol, file), alive(&vol, other)), (Ok(0), Ok(0)));
        write(&vol, file, 0, &[3 + round], Stability::FileSync);
        (engine, vol) = again(&m, engine, vol);
        assert_eq!(read(&vol, file, 0, 2), [3 + round, 1]);
    }
    // One client has reclaimed its open.
    let reclaimed = pin(&vol, file).unwrap();
    engine.client_records().end_grace();
    engine.cp_now().unwrap();
    assert_eq!(
        (alive(&vol, file), alive(&vol, other)),
        (Ok(0), Err(FsError::Stale))
    );
    drop(reclaimed);
    engine.cp_now().unwrap();
    assert_eq!(alive(&vol, file), Err(FsError::Stale));
    (engine, vol) = again(&m, engine, vol);
    assert_eq!(alive(&vol, file), Err(FsError::Stale));
    engine.cp_now().unwrap();
    assert_eq!(vol.used(), 0);
}

#[test]
fn without_clients_to_wait_for_nothing_is_kept_over_a_restart() {
    let m = Machine::new(63);
    let (engine, vol) = m.format();
    let file = create(&vol, vol.root(), "file");
    write(&vol, file, 0, &[1; 10_000], Stability::FileSync);
    let open = pin(&vol, file).unwrap();
    remove(&vol, "file");
    engine.cp_now().unwrap();
    drop(open);
    let (engine, vol) = again(&m, engine, vol);
    engine.cp_now().unwrap();
    assert_eq!(alive(&vol, file), Err(FsError::Stale));
    engine.cp_now().unwrap();
    assert_eq!(vol.used(), 0);
}

#[test]
fn snapshots_and_reverts_know_of_open_files() {
    let m = Machine::new(64);
    let (engine, vol) = m.format();
    let root = vol.root();
    let (file, kept) = (create(&vol, root, "file"), create(&vol, root, "kept"));
    write(&vol, file, 0, &[1; 10_000], Stability::FileSync);
    let open = pin(&vol, kept).unwrap();
    let short = pin(&vol, file).unwrap();
    remove(&vol, "file");
    remove(&vol, "kept");
    vol.snapshot_create("then", fixed_time()).unwrap();
    drop(short);
    engine.cp_now().unwrap();
    assert_eq!(
        (alive(&vol, file), alive(&vol, kept)),
        (Err(FsError::Stale), Ok(0))
    );
    write(&vol, kept, 0, b"later", Stability::FileSync);
    engine.revert("vol1", "then").unwrap();
    assert_eq!(read(&vol, kept, 0, 5), b"");
    engine.cp_now().unwrap();
    assert_eq!(
        (alive(&vol, file), alive(&vol, kept)),
        (Err(FsError::Stale), Ok(0))
    );
    let clone = engine.clone_volume("vol1", "then", "clone").unwrap();
    engine.cp_now().unwrap();
    assert_eq!(alive(&clone, kept), Err(FsError::Stale));
    drop((open, clone));
    vol.snapshot_create("again", fixed_time()).unwrap();
    crash(engine, vol);
    let report = m.check();
    assert!(report.clean(), "{report}");
}
