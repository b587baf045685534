//! Full devices, volumes and logs: the right error, nothing lost, and deletion works.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use common::{Machine, crash, create, fixed_time, lookup, names, read, run, write};
use weir_base::Ino;
use weir_volume::{CreateHow, FsError, SetAttr, Stability, Volume};

/// Writes files of 1 MiB until there is no space; returns them.
fn fill(vol: &Volume, how: Stability) -> Vec<Ino> {
    let mut files = Vec::new();
    for i in 0..1000 {
        let name = format!("fill{i}");
        let set = SetAttr::default();
        let made = run(vol, |cx| {
            vol.create(cx, vol.root(), name.as_bytes(), CreateHow::Guarded, &set)
        });
        let f = match made {
            Ok(done) => done.value.ino,
            Err(e) => {
                assert_eq!(e, FsError::NoSpace);
                return files;
            }
        };
        files.push(f);
        for part in 0..16u64 {
            let data = vec![i as u8; 65_536];
            if let Err(e) = run(vol, |cx| vol.write(cx, f, part * 65_536, &data, how)) {
                assert_eq!(e, FsError::NoSpace);
                return files;
            }
        }
    }
    panic!("the device never filled");
}

fn verify(vol: &Volume, files: &[Ino]) {
    for (i, f) in files.iter().enumerate() {
        let data = read(vol, *f, 0, 1 << 20);
        assert!(data.iter().all(|b| *b == i as u8), "file {i}");
        assert!(i + 1 == files.len() || data.len() == 1 << 20);
    }
}

#[test]
fn a_full_device_refuses_writes_keeps_data_and_lets_files_be_removed() {
    for (seed, how) in [(1, Stability::FileSync), (2, Stability::Unstable)] {
        let m = Machine::new(seed);
        let (engine, vol) = m.format();
        let files = fill(&vol, how);
        assert!(
            files.len() > 40,
            "most of the device is usable: {}",
            files.len()
        );
        verify(&vol, &files);
        engine.cp_now().unwrap();
        verify(&vol, &files);
        let stat = vol.statfs();
        assert!(stat.available < 2 << 20, "{stat:?}");
        // Overwriting needs space as well: it is refused or done, never lost.
        for f in &files {
            let _ = run(&vol, |cx| {
                vol.write(cx, *f, 0, &[1; 4096], Stability::FileSync)
            });
        }
        assert_eq!(engine.poisoned(), None);
        for i in 0..files.len() {
            let name = format!("fill{i}");
            run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).unwrap();
        }
        engine.cp_now().unwrap();
        engine.cp_now().unwrap();
        assert!(names(&vol, vol.root()).is_empty());
        let again = fill(&vol, how);
        assert!(
            again.len() + 2 >= files.len(),
            "{} {}",
            again.len(),
            files.len()
        );
        engine.shutdown().unwrap();
        drop((vol, engine));
        let report = m.check();
        assert!(report.clean(), "{report}");
    }
}

#[test]
fn many_small_files_on_a_full_device_can_all_be_removed() {
    let m = Machine::new(3);
    let (engine, vol) = m.format();
    let set = SetAttr::default();
    let mut count = 0;
    loop {
        let name = format!("f{count}");
        let made = run(&vol, |cx| {
            vol.create(cx, vol.root(), name.as_bytes(), CreateHow::Guarded, &set)
        });
        let Ok(done) = made else { break };
        let _ = run(&vol, |cx| {
            vol.write(cx, done.value.ino, 0, &[7; 4096], Stability::Unstable)
        });
        count += 1;
        assert!(count < 100_000);
    }
    assert!(count > 5000, "{count}");
    for i in (0..count).rev() {
        let name = format!("f{i}");
        run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).unwrap();
    }
    assert_eq!(engine.poisoned(), None);
    engine.shutdown().unwrap();
    drop((vol, engine));
    let report = m.check();
    assert!(report.clean(), "{report}");
    assert_eq!(report.inodes, 1);
}

#[test]
fn a_large_file_is_deleted_over_several_checkpoints() {
    let mut m = Machine::new(6);
    m.device = std::sync::Arc::new(weir_store::MemDevice::new(50_000));
    m.frames = 20_000;
    let (engine, vol) = m.format();
    let free = |engine: &weir_volume::Engine| engine.aggregate().space().stats().free;
    let before = free(&engine);
    let f = create(&vol, vol.root(), "f");
    // A block in each window: more than one checkpoint deletes.
    for i in 0..34_000u64 {
        write(&vol, f, i * 131_072, b"x", Stability::Unstable);
    }
    engine.cp_now().unwrap();
    assert!(free(&engine) + 34_000 < before);
    run(&vol, |cx| vol.remove(cx, vol.root(), b"f")).unwrap();
    engine.cp_now().unwrap();
    assert_eq!(lookup(&vol, vol.root(), "f"), Err(FsError::NotFound));
    assert_eq!(run(&vol, |cx| vol.getattr(cx, f)), Err(FsError::Stale));
    drop((vol, engine));
    let report = m.check();
    assert!(report.clean(), "{report}");
    let (engine, vol) = m.open();
    for _ in 0..3 {
        engine.cp_now().unwrap();
    }
    assert!(free(&engine) + 100 > before, "{} {before}", free(&engine));
    engine.shutdown().unwrap();
    drop((vol, engine));
    let report = m.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn a_limited_volume_is_full_before_the_device() {
    let m = Machine::new(4);
    let (engine, vol) = m.format();
    engine.set_limit(&vol, 10 << 20);
    let files = fill(&vol, Stability::Unstable);
    assert!((8..=10).contains(&files.len()), "{}", files.len());
    let stat = vol.statfs();
    assert_eq!(stat.total, 10 << 20);
    assert!(stat.available < 1 << 20);
    verify(&vol, &files);
    engine.set_limit(&vol, 0);
    write(&vol, files[0], 2 << 20, &[9; 100_000], Stability::FileSync);
    engine.shutdown().unwrap();
    drop((vol, engine));
    let (_engine, vol) = m.open();
    assert_eq!(vol.limit(), 0);
}

#[test]
fn what_is_kept_for_snapshots_is_theirs_and_no_more() {
    let m = Machine::new(6);
    let (engine, vol) = m.format();
    let file = create(&vol, vol.root(), "f");
    let fill = |n: u8| {
        for part in 0..64 {
            write(
                &vol,
                file,
                part << 16,
                &vec![n; 1 << 16],
                Stability::FileSync,
            );
        }
    };
    fill(1);
    engine.set_limit(&vol, 20 << 20);
    engine.set_snapshot_reserve(&vol, 10 << 20);
    engine.cp_now().unwrap();
    let used = |vol: &Volume| {
        let stat = vol.statfs();
        assert_eq!(stat.total, 10 << 20);
        (stat.total - stat.available) >> 20
    };
    assert_eq!(used(&vol), 4);
    // Three times the live data: snapshots hold 8 MiB, which the reserve takes.
    for n in 0..2u8 {
        vol.snapshot_create(&format!("s{n}"), fixed_time()).unwrap();
        fill(n);
        engine.cp_now().unwrap();
    }
    assert!(vol.snapshot_used() >= 8 << 20);
    assert_eq!(used(&vol), 4);
    // Beyond the reserve, they take space from live data.
    vol.snapshot_create("s2", fixed_time()).unwrap();
    fill(9);
    engine.cp_now().unwrap();
    assert!((6..=7).contains(&used(&vol)), "{}", used(&vol));
    engine.set_snapshot_reserve(&vol, 0);
    assert!(vol.statfs().total == 20 << 20);
}

#[test]
fn a_small_log_and_little_memory_only_slow_down() {
    let mut m = Machine::new(5);
    m.frames = 600;
    let (engine, vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    for round in 0..3u8 {
        for i in 0..40u64 {
            let how = match i % 2 {
                0 => Stability::FileSync,
                _ => Stability::Unstable,
            };
            write(&vol, f, i * 300_000, &vec![round + i as u8; 300_000], how);
        }
    }
    for i in 0..40u64 {
        assert!(
            read(&vol, f, i * 300_000, 300_000)
                .iter()
                .all(|b| *b == 2 + i as u8)
        );
    }
    // More data than the log takes in one record.
    write(&vol, f, 1, &vec![77; 1 << 20], Stability::FileSync);
    crash(engine, vol);
    let (_engine, vol) = m.open();
    assert!(read(&vol, f, 1, 1 << 20).iter().all(|b| *b == 77));
    assert_eq!(lookup(&vol, vol.root(), "f"), Ok(f));
}

/// Snapshots hold overwritten blocks until the device is full. That refuses writes and poisons
/// nothing; deleting snapshots makes room again.
#[test]
fn snapshots_fill_the_device_and_give_it_back() {
    let m = Machine::new(55);
    let (engine, vol) = m.format();
    let root = vol.root();
    let f = create(&vol, root, "f");
    let mut refused = 0;
    let mut round = 0u64;
    for life in 0..3 {
        while refused <= life {
            round += 1;
            let name = format!("s{round}");
            match vol.snapshot_create(&name, fixed_time()) {
                Ok(()) | Err(FsError::NoSpace) => {}
                Err(e) => panic!("snapshot: {e}"),
            }
            // Scattered blocks, so that trees grow as well.
            for i in 0..40u64 {
                let off = (i * 7919 + round * 104_729) % 1500 * 4096;
                match run(&vol, |cx| {
                    vol.write(cx, f, off, &[round as u8; 8192], Stability::Unstable)
                }) {
                    Ok(_) => {}
                    Err(FsError::NoSpace) => {
                        refused += 1;
                        break;
                    }
                    Err(e) => panic!("write in round {round}: {e}"),
                }
            }
            assert_eq!(engine.poisoned(), None, "round {round}");
        }
        let all = vol.snapshots();
        assert!(all.len() > 20);
        let half = all.len() / 2;
        for s in all.into_iter().step_by(2).take(half) {
            vol.snapshot_delete(&s.name).unwrap();
        }
        engine.cp_now().unwrap();
        while engine.reclaiming() {
            engine.cp_now().unwrap();
        }
        engine.cp_now().unwrap();
    }
    for s in vol.snapshots() {
        vol.snapshot_delete(&s.name).unwrap();
    }
    while engine.reclaiming() || vol.snapshot_used() > 0 {
        engine.cp_now().unwrap();
    }
    engine.cp_now().unwrap();
    write(&vol, f, 0, &[1; 1 << 20], Stability::FileSync);
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
}
