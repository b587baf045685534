//! A violated invariant on the real engine, with the behaviour of a release build: changes are
//! refused, everything stays readable, and the next start finds the durable state.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, create, fixed_time, run};
use weir_base::invariant;
use weir_volume::{EngineContext, FsError, SetAttr, Stability};

#[test]
fn a_violated_invariant_ends_changes_and_nothing_else() {
    let m = Machine::new(1);
    let (engine, vol) = m.format();
    let root = vol.root();
    let old = create(&vol, root, "old");
    let write = |ino, data: &[u8], how| {
        let done = run(&vol, |cx| vol.write(cx, ino, 0, data, how))?;
        engine.wait_durable(done.lsn)
    };
    write(old, b"in a checkpoint", Stability::FileSync).unwrap();
    engine.cp_now().unwrap();
    let new = create(&vol, root, "new");
    write(new, b"in the log", Stability::FileSync).unwrap();
    let verifier = vol.write_verifier();

    let guard = engine.aggregate().guard();
    guard.as_in_release();
    assert!(!invariant!(guard => engine.poisoned().is_some(), "for the test"));

    assert!(engine.poisoned().unwrap().contains("for the test"));
    let refused = FsError::ReadOnly;
    assert_eq!(write(new, b"late", Stability::FileSync), Err(refused));
    assert_eq!(write(new, b"late", Stability::Unstable), Err(refused));
    let set = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    assert_eq!(
        run(&vol, |cx| vol.setattr(cx, old, &set, None)).unwrap_err(),
        refused
    );
    assert_eq!(
        run(&vol, |cx| vol.remove(cx, root, b"old")).unwrap_err(),
        refused
    );
    assert_eq!(
        vol.snapshot_create("late", fixed_time()).unwrap_err(),
        refused
    );
    assert_eq!(engine.cp_now(), Err(refused));
    assert_ne!(vol.write_verifier(), verifier, "clients have to notice");
    let read = |vol: &weir_volume::Volume, ino| run(vol, |cx| vol.read(cx, ino, 0, 100)).unwrap();
    assert_eq!(read(&vol, old).to_vec(), b"in a checkpoint");
    assert_eq!(read(&vol, new).to_vec(), b"in the log");
    assert_eq!(
        run(&vol, |cx| vol.lookup(cx, root, b"new")).unwrap().ino,
        new
    );
    assert_eq!(engine.shutdown(), Err(refused));

    drop((vol, engine));
    let (engine, vol) = m.open();
    assert_eq!(engine.poisoned(), None);
    assert_eq!(read(&vol, old).to_vec(), b"in a checkpoint");
    assert_eq!(read(&vol, new).to_vec(), b"in the log");
    let mode = run(&vol, |cx| vol.getattr(cx, old)).unwrap().mode;
    assert_ne!(mode, 0o600);
    create(&vol, root, "goes on");
    engine.shutdown().unwrap();
    drop((vol, engine));
    assert_eq!(m.check().faults, []);
}

/// A waiting thread gets an error: nothing hangs on a poisoned aggregate.
#[test]
fn whoever_waits_for_durability_is_told() {
    let m = Machine::new(2);
    let (engine, vol) = m.format();
    let guard = engine.aggregate().guard();
    guard.as_in_release();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| {
            for n in 0.. {
                let mut cx = EngineContext::new(fixed_time());
                let name = format!("file {n}");
                let how = weir_volume::CreateHow::Guarded;
                let made = vol.drive_blocking(&mut cx, |cx| {
                    vol.create(cx, vol.root(), name.as_bytes(), how, &SetAttr::default())
                });
                let durable = made.and_then(|made| engine.wait_durable(made.lsn));
                if let Err(error) = durable {
                    return error;
                }
            }
            FsError::Stale
        });
        while engine.durable().0 < 20 {
            std::thread::yield_now();
        }
        invariant!(guard => false, "for the test");
        let error = waiting.join().unwrap();
        assert!(
            matches!(error, FsError::Io | FsError::ReadOnly),
            "{error:?}"
        );
    });
}
