//! Many threads at once, with checkpoints, shortage of memory and eviction beside them; it ends in
//! a check of everything.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Machine, crash, create, fixed_time, mkdir, names, read, run, write};
use weir_base::{Ino, Rng, SeededRng};
use weir_volume::{CreateHow, FsError, SetAttr, Stability, Volume};

const THREADS: u64 = 4;

/// Each worker has a file of its own, whose contents it knows; everything else is shared, and any
/// error that concurrency explains is fine.
fn work(vol: &Volume, dirs: &[Ino], own: Ino, seed: u64, steps: u64) -> Vec<u8> {
    let rng = SeededRng::new(seed);
    let mut mine = Vec::new();
    let set = SetAttr::default();
    for _ in 0..steps {
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        let to = dirs[rng.below(dirs.len() as u64) as usize];
        let name = format!("s{}", rng.below(20)).into_bytes();
        let other = format!("s{}", rng.below(20)).into_bytes();
        let shared = match rng.below(12) {
            0 | 1 => run(vol, |cx| {
                vol.create(cx, dir, &name, CreateHow::Guarded, &set)
            })
            .map(drop),
            2 => run(vol, |cx| vol.mkdir(cx, dir, &name, &set)).map(drop),
            3 | 4 => run(vol, |cx| vol.remove(cx, dir, &name)).map(drop),
            5 => run(vol, |cx| vol.rmdir(cx, dir, &name)).map(drop),
            6 | 7 => run(vol, |cx| vol.rename(cx, dir, &name, to, &other)).map(drop),
            8 => run(vol, |cx| vol.lookup(cx, dir, &name))
                .and_then(|found| run(vol, |cx| vol.link(cx, found.ino, to, &other)).map(drop)),
            9 => run(vol, |cx| vol.lookup(cx, dir, &name)).and_then(|found| {
                let data = vec![rng.next_u64() as u8; 1 + rng.below(30_000) as usize];
                let off = rng.below(50_000);
                run(vol, |cx| {
                    vol.write(cx, found.ino, off, &data, Stability::Unstable)
                })
                .map(drop)
            }),
            10 => {
                names(vol, dir);
                Ok(())
            }
            _ => {
                let off = rng.below(300_000) as usize;
                let data = vec![rng.next_u64() as u8; 1 + rng.below(40_000) as usize];
                let how = match rng.below(2) {
                    0 => Stability::Unstable,
                    _ => Stability::FileSync,
                };
                run(vol, |cx| vol.write(cx, own, off as u64, &data, how)).unwrap();
                if mine.len() < off + data.len() {
                    mine.resize(off + data.len(), 0);
                }
                mine[off..off + data.len()].copy_from_slice(&data);
                if rng.below(4) == 0 {
                    run(vol, |cx| vol.commit(cx, own, 0, 0)).unwrap();
                }
                let at = rng.below(mine.len() as u64) as usize;
                let end = (at + 9000).min(mine.len());
                assert!(read(vol, own, at as u64, 9000) == mine[at..end]);
                Ok(())
            }
        };
        match shared {
            Ok(())
            | Err(
                FsError::NotFound
                | FsError::Exists
                | FsError::IsDir
                | FsError::NotDir
                | FsError::NotEmpty
                | FsError::Invalid
                | FsError::Stale,
            ) => {}
            Err(e) => panic!("{e}"),
        }
    }
    mine
}

#[test]
fn threads_do_not_disturb_each_other() {
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    let mut m = Machine::new(seed);
    // Less than the files' contents: blocks and inodes are evicted all the time.
    m.frames = 1500;
    m.inodes = 1;
    let (engine, vol) = m.format();
    let root = vol.root();
    let dirs: Vec<Ino> = std::iter::once(root)
        .chain((0..3).map(|i| mkdir(&vol, root, &format!("d{i}"))))
        .collect();
    let own: Vec<Ino> = (0..THREADS)
        .map(|i| create(&vol, root, &format!("own{i}")))
        .collect();
    let engine = Arc::new(engine);
    let stop = AtomicBool::new(false);
    let contents: Vec<Vec<u8>> = std::thread::scope(|s| {
        let workers: Vec<_> = own
            .iter()
            .zip(seed * 100..)
            .map(|(own, seed)| {
                let (vol, dirs) = (&vol, &dirs);
                s.spawn(move || work(vol, dirs, *own, seed, 8000))
            })
            .collect();
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                engine.cp_now().unwrap();
            }
        });
        let all = workers.into_iter().map(|w| w.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        all
    });
    for (ino, mine) in own.iter().zip(&contents) {
        assert!(read(&vol, *ino, 0, 1 << 20) == *mine);
    }
    engine.shutdown().unwrap();
    drop((vol, engine));
    let report = m.check();
    assert!(report.clean(), "{report}");
    let (engine, vol) = m.open();
    for (ino, mine) in own.iter().zip(&contents) {
        assert!(read(&vol, *ino, 0, 1 << 20) == *mine);
    }
    // Back to the start: no overlay left, nothing reserved.
    engine.cp_now().unwrap();
    assert_eq!(engine.aggregate().space().stats().reserved, 0);
}

/// While threads write, others make, read, delete and revert to snapshots. Each writer writes a
/// number to its first file and then to its second. So in every snapshot the second file is as far
/// as the first or one behind, and no snapshot is behind the changes acknowledged before its
/// request.
#[test]
fn snapshots_are_of_one_moment() {
    use std::sync::atomic::AtomicU64;
    let m = Machine::new(77);
    let (engine, vol) = m.format();
    let root = vol.root();
    let files: Vec<[Ino; 2]> = (0..3)
        .map(|t| ["a", "b"].map(|n| create(&vol, root, &format!("{n}{t}"))))
        .collect();
    for pair in &files {
        for ino in pair {
            write(&vol, *ino, 0, &[0; 20_000], Stability::FileSync);
        }
    }
    let number = |vol: &Volume, ino: Ino| {
        let bytes = read(vol, ino, 9_000, 8);
        u64::from_le_bytes(bytes.try_into().unwrap())
    };
    let answered: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for (t, pair) in files.iter().enumerate() {
            let (vol, answered, stop) = (&vol, &answered, &stop);
            s.spawn(move || {
                for n in 1u64.. {
                    for ino in pair {
                        let how = match n % 3 {
                            0 => Stability::FileSync,
                            _ => Stability::Unstable,
                        };
                        write(vol, *ino, 9_000, &n.to_le_bytes(), how);
                    }
                    answered[t].store(n, Ordering::SeqCst);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for i in 0..120u32 {
            let before: Vec<u64> = answered.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            let name = format!("s{i}");
            vol.snapshot_create(&name, fixed_time()).unwrap();
            if i % 5 == 0 {
                let view = vol.open_snapshot(&name).unwrap();
                for (pair, before) in files.iter().zip(&before) {
                    let [a, b] = pair.map(|ino| number(&view, ino));
                    assert!(a >= *before && (b == a || b + 1 == a), "{before} {a} {b}");
                }
            }
            if i % 7 == 6 {
                vol.snapshot_delete(&format!("s{}", i - 3)).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for s in vol.snapshots() {
        let view = vol.open_snapshot(&s.name).unwrap();
        for pair in &files {
            let [a, b] = pair.map(|ino| number(&view, ino));
            assert!(b == a || b + 1 == a, "{}: {a} {b}", s.name);
        }
    }
    // Readers and writers continue while the volume is reverted.
    let at = number(&vol.open_snapshot("s50").unwrap(), files[0][0]);
    stop.store(false, Ordering::Relaxed);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for pair in &files {
                    let [a, b] = pair.map(|ino| number(&vol, ino));
                    assert!(b <= a + 1, "{a} {b}");
                }
            }
        });
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                write(&vol, files[2][1], 0, &[7; 4096], Stability::Unstable);
            }
        });
        engine.revert("vol1", "s50").unwrap();
        assert_eq!(number(&vol, files[0][0]), at);
        stop.store(true, Ordering::Relaxed);
    });
    engine.cp_now().unwrap();
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
}
