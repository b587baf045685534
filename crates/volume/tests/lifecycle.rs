//! Deletion of volumes, snapshots and reverts: all space comes back, at every step.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use common::*;
use weir_volume::{Engine, FsError, Stability};

fn free(engine: &Engine) -> u64 {
    engine.aggregate().space().stats().free
}

/// Runs background jobs until none is left.
fn finish_background_jobs(engine: &Engine) {
    engine.cp_now().unwrap();
    while engine.reclaiming() {
        engine.cp_now().unwrap();
    }
    // Blocks freed last become available with the next checkpoint.
    engine.cp_now().unwrap();
    engine.cp_now().unwrap();
}

#[test]
fn a_deleted_volume_gives_everything_back() {
    let m = Machine::new(31);
    let (engine, vol1) = m.format();
    finish_background_jobs(&engine);
    let before = free(&engine);
    let vol = engine
        .create_volume("second", (0, 0), 0o755, fixed_time(), &*m.rng)
        .unwrap();
    let root = vol.root();
    let f = create(&vol, root, "f");
    for i in 0..20u8 {
        write(
            &vol,
            f,
            u64::from(i) << 20,
            &vec![i; 1 << 20],
            Stability::Unstable,
        );
        let g = create(&vol, root, &format!("g{i}"));
        write(&vol, g, 0, &[i; 5000], Stability::FileSync);
        if i % 4 == 0 {
            vol.snapshot_create(&format!("s{i}"), fixed_time()).unwrap();
        }
        if i % 3 == 0 {
            engine.cp_now().unwrap();
        }
    }
    let id = vol.id();
    // Changes that are in no checkpoint yet are deleted with the volume.
    write(&vol, f, 0, &[9; 100_000], Stability::Unstable);
    engine.delete_volume("second").unwrap();
    engine.delete_volume("second").unwrap();
    assert_eq!(
        run(&vol, |cx| vol.getattr(cx, f)).map(|_| ()),
        Err(FsError::Stale)
    );
    assert_eq!(
        run(&vol, |cx| vol.getattr(cx, root)).map(|_| ()),
        Err(FsError::Stale)
    );
    assert_eq!(
        run(&vol, |cx| vol.remove(cx, root, b"f")).map(|_| ()),
        Err(FsError::Stale)
    );
    assert_eq!(vol.snapshot_create("x", fixed_time()), Err(FsError::Stale));
    assert!(engine.volume("second").is_none());
    drop(vol);
    crash(engine, vol1);
    assert!(m.check().clean(), "{}", m.check());
    let (engine, vol1) = m.open();
    assert_eq!(engine.volumes().len(), 1);
    finish_background_jobs(&engine);
    assert!(free(&engine) + 4 >= before, "{} of {before}", free(&engine));
    let third = engine
        .create_volume("second", (0, 0), 0o755, fixed_time(), &*m.rng)
        .unwrap();
    assert!(third.id() > id, "numbers are not used again");
    drop(third);
    crash(engine, vol1);
    assert!(m.check().clean(), "{}", m.check());
}

#[test]
fn a_revert_is_the_past_again() {
    let m = Machine::new(32);
    let (engine, vol) = m.format();
    let root = vol.root();
    let f = create(&vol, root, "f");
    write(&vol, f, 0, &[1; 300_000], Stability::FileSync);
    vol.snapshot_create("first", fixed_time()).unwrap();
    write(&vol, f, 0, &[2; 100_000], Stability::FileSync);
    vol.snapshot_create("second", fixed_time()).unwrap();
    finish_background_jobs(&engine);
    let at_second = free(&engine);
    write(&vol, f, 0, &[3; 1_000_000], Stability::Unstable);
    let g = create(&vol, root, "g");
    vol.snapshot_create("third", fixed_time()).unwrap();
    run(&vol, |cx| vol.remove(cx, root, b"f")).unwrap();
    assert_eq!(engine.revert("vol1", "nothing"), Err(FsError::NotFound));
    engine.revert("vol1", "second").unwrap();
    let names: Vec<String> = vol.snapshots().into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(read(&vol, f, 0, 100_000), vec![2; 100_000]);
    assert_eq!(read(&vol, f, 100_000, 1 << 20), vec![1; 200_000]);
    assert_eq!(
        run(&vol, |cx| vol.getattr(cx, g)).map(|_| ()),
        Err(FsError::Stale)
    );
    finish_background_jobs(&engine);
    assert!(
        free(&engine) + 4 >= at_second,
        "{} of {at_second}",
        free(&engine)
    );
    // And continues from there.
    let h = create(&vol, root, "h");
    assert!(h > g);
    write(&vol, f, 0, &[4; 150_000], Stability::FileSync);
    vol.snapshot_create("fourth", fixed_time()).unwrap();
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
    let (engine, vol) = m.open();
    for (name, byte, len) in [
        ("first", 1, 300_000),
        ("second", 2, 100_000),
        ("fourth", 4, 150_000),
    ] {
        let view = vol.open_snapshot(name).unwrap();
        assert_eq!(read(&view, f, 0, len), vec![byte; len], "{name}");
    }
    finish_background_jobs(&engine);
    for name in ["second", "first", "fourth"] {
        vol.snapshot_delete(name).unwrap();
        finish_background_jobs(&engine);
        assert_eq!(read(&vol, f, 0, 150_000), vec![4; 150_000]);
    }
    assert_eq!(vol.snapshot_used(), 0);
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
}

#[test]
fn a_snapshot_is_durable_before_a_checkpoint() {
    let m = Machine::new(33);
    let (engine, vol) = m.format();
    let root = vol.root();
    let f = create(&vol, root, "f");
    for i in 1..=9u8 {
        write(&vol, f, 0, &vec![i; 10_000], Stability::FileSync);
        create(&vol, root, &format!("x{i}"));
        vol.snapshot_take(&format!("s{i}"), "daily", fixed_time())
            .unwrap();
    }
    vol.snapshot_delete("s4").unwrap();
    vol.snapshot_rename("s5", "five").unwrap();
    vol.snapshot_label("s6", "weekly").unwrap();
    assert_eq!(
        vol.snapshot_create("five", fixed_time()),
        Err(FsError::Exists)
    );
    assert_eq!(vol.snapshot_rename("s6", "five"), Err(FsError::Exists));
    assert_eq!(vol.snapshot_delete("s4"), Err(FsError::NotFound));
    write(&vol, f, 0, &[99; 10_000], Stability::FileSync);
    crash(engine, vol);
    let (engine, vol) = m.open();
    let list = vol.snapshots();
    let names: Vec<&str> = list.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["s1", "s2", "s3", "five", "s6", "s7", "s8", "s9"]);
    assert!(
        list.iter()
            .all(|s| s.label == if s.name == "s6" { "weekly" } else { "daily" })
    );
    for (name, byte) in [("s1", 1), ("five", 5), ("s9", 9)] {
        let view = vol.open_snapshot(name).unwrap();
        assert_eq!(read(&view, f, 0, 10_000), vec![byte; 10_000]);
        assert_eq!(common::names(&view, root).len(), usize::from(byte) + 1);
    }
    assert_eq!(read(&vol, f, 0, 10_000), vec![99; 10_000]);
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
}

#[test]
fn what_a_snapshot_holds_is_known() {
    let m = Machine::new(34);
    let (engine, vol) = m.format();
    let root = vol.root();
    let f = create(&vol, root, "f");
    write(&vol, f, 0, &[0; 40 * 4096], Stability::Unstable);
    for i in 1..=4u8 {
        vol.snapshot_create(&format!("s{i}"), fixed_time()).unwrap();
        // The first ten blocks are new in each.
        write(&vol, f, 0, &vec![i; 10 * 4096], Stability::Unstable);
    }
    finish_background_jobs(&engine);
    let used = |name: &str| vol.snapshot(name).unwrap().used / 4096;
    for name in ["s1", "s2", "s3", "s4"] {
        // Ten blocks, and a few nodes.
        assert!((10..14).contains(&used(name)), "{name}: {}", used(name));
    }
    assert!((40..56).contains(&(vol.snapshot_used() / 4096)));
    vol.snapshot_delete("s2").unwrap();
    engine.cp_now().unwrap();
    assert!((30..42).contains(&(vol.snapshot_used() / 4096)));
    assert!(
        (10..14).contains(&used("s1")),
        "nothing was shared by two alone"
    );
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
}

#[test]
fn a_new_volume_is_in_the_log_before_any_checkpoint() {
    let m = Machine {
        background: false,
        ..Machine::new(41)
    };
    let (engine, vol1) = m.format();
    let generation = engine.aggregate().generation();
    let make = |engine: &Engine, name: &str| {
        engine
            .create_volume(name, (5, 6), 0o750, fixed_time(), &*m.rng)
            .unwrap()
    };
    let vol = make(&engine, "second");
    let f = create(&vol, vol.root(), "f");
    write(&vol, f, 0, b"data", Stability::FileSync);
    assert_eq!(
        engine
            .create_volume("second", (0, 0), 0o755, fixed_time(), &*m.rng)
            .err(),
        Some(FsError::Exists)
    );
    // A volume that is created and deleted without another one in between.
    let id = make(&engine, "gone").id();
    engine.delete_volume("gone").unwrap();
    let third = make(&engine, "third").id();
    assert!(third > id, "numbers are not used again");
    assert_eq!(engine.aggregate().generation().0, generation.0 + 1);
    drop(vol);
    crash(engine, vol1);
    assert!(m.check().clean(), "{}", m.check());

    let (engine, vol1) = m.open();
    assert!(engine.volume("gone").is_none());
    assert_eq!(engine.volume("third").unwrap().id(), third);
    let vol = engine.volume("second").unwrap();
    let attr = run(&vol, |cx| vol.getattr(cx, vol.root())).unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (5, 6, 0o750));
    assert_eq!(read(&vol, f, 0, 10), b"data");
    assert_eq!(lookup(&vol, vol.root(), "f"), Ok(f));
    assert!(make(&engine, "fourth").id() > third);
    engine.shutdown().unwrap();
    drop((vol, vol1, engine));
    let (engine, _vol1) = m.open();
    assert_eq!(engine.recovered().records, 0);
    assert_eq!(engine.volumes().len(), 4);
    assert!(engine.volume("fourth").is_some());
}

#[test]
fn volumes_are_made_by_many_at_once() {
    let m = Machine::new(42);
    let (engine, vol1) = m.format();
    std::thread::scope(|s| {
        for t in 0..8 {
            let (engine, m) = (&engine, &m);
            s.spawn(move || {
                for i in 0..100 {
                    // Of two with one name, one is first.
                    let name = format!("v{}", (t / 2) * 1000 + i);
                    match engine.create_volume(&name, (0, 0), 0o755, fixed_time(), &*m.rng) {
                        Ok(vol) => {
                            create(&vol, vol.root(), "f");
                        }
                        Err(error) => assert_eq!(error, FsError::Exists),
                    }
                }
            });
        }
    });
    assert_eq!(engine.volumes().len(), 401);
    crash(engine, vol1);
    let (engine, _vol1) = m.open();
    assert_eq!(engine.volumes().len(), 401);
    for vol in engine.volumes().iter().filter(|v| v.name() != "vol1") {
        lookup(vol, vol.root(), "f").unwrap();
    }
}

#[test]
fn a_clone_shares_until_it_is_split() {
    let m = Machine::new(35);
    let (engine, vol) = m.format();
    let root = vol.root();
    let d = mkdir(&vol, root, "d");
    let f = create(&vol, d, "f");
    let g = create(&vol, d, "g");
    write(&vol, f, 0, &[1; 800_000], Stability::FileSync);
    write(&vol, g, 0, &[2; 200_000], Stability::FileSync);
    for i in 0..300 {
        create(&vol, d, &format!("small{i}"));
    }
    vol.snapshot_create("base", fixed_time()).unwrap();
    finish_background_jobs(&engine);
    let before = free(&engine);
    assert_eq!(
        engine.clone_volume("vol1", "none", "copy").map(|_| ()),
        Err(FsError::NotFound)
    );
    let copy = engine.clone_volume("vol1", "base", "copy").unwrap();
    assert!(free(&engine) + 16 >= before, "nothing is copied");
    assert_eq!(vol.snapshot("base").unwrap().clones, 1);
    assert_eq!(vol.snapshot_delete("base"), Err(FsError::Busy));
    assert_eq!(engine.delete_volume("vol1"), Err(FsError::Busy));
    // Both change independently.
    write(&vol, f, 0, &[3; 300_000], Stability::FileSync);
    write(&copy, f, 400_000, &[4; 100_000], Stability::FileSync);
    run(&copy, |cx| copy.remove(cx, d, b"g")).unwrap();
    copy.snapshot_create("own", fixed_time()).unwrap();
    write(&copy, f, 0, &[5; 10_000], Stability::FileSync);
    finish_background_jobs(&engine);
    let expected = {
        let mut bytes = vec![1; 800_000];
        bytes[400_000..500_000].fill(4);
        bytes
    };
    assert_eq!(
        read(&copy.open_snapshot("own").unwrap(), f, 0, 1 << 20),
        expected
    );
    assert_eq!(read(&vol, g, 0, 1 << 20), vec![2; 200_000]);
    drop(copy);
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
    let (engine, vol) = m.open();
    let copy = engine.volume("copy").unwrap();
    assert_eq!(vol.snapshot("base").unwrap().clones, 1);
    assert_eq!(
        engine.split_clone("copy"),
        Err(FsError::Busy),
        "it has a snapshot"
    );
    engine.revert("copy", "own").unwrap();
    assert_eq!(read(&copy, f, 0, 1 << 20), expected);
    copy.snapshot_delete("own").unwrap();
    engine.split_clone("copy").unwrap();
    assert!(copy.origin().is_none() || copy.splitting());
    while copy.origin().is_some() {
        engine.cp_now().unwrap();
    }
    finish_background_jobs(&engine);
    assert_eq!(read(&copy, f, 0, 1 << 20), expected);
    assert_eq!(names(&copy, d).len(), 301);
    vol.snapshot_delete("base").unwrap();
    engine.delete_volume("vol1").unwrap();
    finish_background_jobs(&engine);
    assert_eq!(read(&copy, f, 0, 1 << 20), expected);
    engine.delete_volume("copy").unwrap();
    drop((copy, vol));
    finish_background_jobs(&engine);
    assert!(free(&engine) >= before + 200);
    drop(engine);
    assert!(m.check().clean(), "{}", m.check());
}

/// Random changes, snapshots, clones, reverts, splits, deletions and crashes; after each step every
/// volume and every snapshot has its expected contents, and at the end nothing is left.
#[test]
fn histories_hold() {
    for seed in 0..12 {
        history(seed);
    }
}

/// Contents of a volume: the first byte of each block of its files.
type Model = std::collections::BTreeMap<String, Vec<u8>>;

struct Branch {
    now: Model,
    snapshots: Vec<(String, Model)>,
    origin: Option<(String, String)>,
}

fn contents(vol: &weir_volume::Volume) -> Model {
    let root = vol.root();
    let mut model = Model::new();
    for (_, name) in names(vol, root) {
        let ino = lookup(vol, root, &name).unwrap();
        let bytes = read(vol, ino, 0, 1 << 20);
        let blocks = bytes.chunks(4096).map(|b| {
            assert!(b.iter().all(|x| *x == b[0]), "a torn block");
            b[0]
        });
        model.insert(name, blocks.collect());
    }
    model
}

fn history(seed: u64) {
    use weir_base::Rng;
    let mut m = Machine::new(1000 + seed);
    m.background = false;
    let rng = weir_base::SeededRng::new(seed);
    let (engine, vol) = m.format();
    finish_background_jobs(&engine);
    let empty = free(&engine);
    drop(vol);
    let mut engine = engine;
    let mut branches: std::collections::BTreeMap<String, Branch> = Default::default();
    branches.insert(
        "vol1".into(),
        Branch {
            now: Model::new(),
            snapshots: Vec::new(),
            origin: None,
        },
    );
    let mut serial = 0u32;
    for step in 0..160 {
        let all: Vec<String> = branches.keys().cloned().collect();
        let name = all[rng.below(all.len() as u64) as usize].clone();
        let vol = engine.volume(&name).unwrap();
        let root = vol.root();
        let pinned = |branches: &std::collections::BTreeMap<String, Branch>, snap: &str| {
            let origin = Some((name.clone(), snap.to_owned()));
            branches.values().any(|b| b.origin == origin)
        };
        let mut context = format!("seed {seed} step {step} {name}: ");
        match rng.below(20) {
            0..=6 => {
                let file = format!("f{}", rng.below(5));
                let branch = branches.get_mut(&name).unwrap();
                let ino = match lookup(&vol, root, &file) {
                    Ok(ino) => ino,
                    Err(_) => create(&vol, root, &file),
                };
                let blocks = branch.now.entry(file).or_default();
                let at = rng.below(blocks.len() as u64 + 1) as usize;
                let byte = 1 + rng.below(250) as u8;
                let len = 1 + rng.below(12) as usize;
                write(
                    &vol,
                    ino,
                    at as u64 * 4096,
                    &vec![byte; len * 4096],
                    Stability::FileSync,
                );
                blocks.resize(blocks.len().max(at + len), 0);
                blocks[at..at + len].fill(byte);
                context += "write";
            }
            7 => {
                let branch = branches.get_mut(&name).unwrap();
                if let Some(file) = branch.now.keys().next().cloned() {
                    run(&vol, |cx| vol.remove(cx, root, file.as_bytes())).unwrap();
                    branch.now.remove(&file);
                }
                context += "remove";
            }
            8..=11 => {
                serial += 1;
                let snap = format!("s{serial}");
                let taken = vol.snapshot_take(&snap, "", fixed_time());
                if vol.splitting() {
                    assert_eq!(taken, Err(FsError::Busy));
                } else {
                    taken.unwrap();
                    let branch = branches.get_mut(&name).unwrap();
                    branch.snapshots.push((snap, branch.now.clone()));
                }
                context += "snapshot";
            }
            12 | 13 => {
                let count = branches[&name].snapshots.len() as u64;
                if count > 0 {
                    let at = rng.below(count) as usize;
                    let snap = branches[&name].snapshots[at].0.clone();
                    let result = vol.snapshot_delete(&snap);
                    if pinned(&branches, &snap) {
                        assert_eq!(result, Err(FsError::Busy));
                    } else {
                        result.unwrap();
                        branches.get_mut(&name).unwrap().snapshots.remove(at);
                    }
                }
                context += "delete snapshot";
            }
            14 => {
                let count = branches[&name].snapshots.len() as u64;
                if count > 0 {
                    let at = rng.below(count) as usize;
                    let later = branches[&name].snapshots[at + 1..].to_vec();
                    let busy = later.iter().any(|(s, _)| pinned(&branches, s));
                    let snap = branches[&name].snapshots[at].0.clone();
                    let result = engine.revert(&name, &snap);
                    if busy {
                        assert_eq!(result, Err(FsError::Busy));
                    } else {
                        result.unwrap();
                        let branch = branches.get_mut(&name).unwrap();
                        branch.snapshots.truncate(at + 1);
                        branch.now = branch.snapshots[at].1.clone();
                    }
                }
                context += "revert";
            }
            15 => {
                let count = branches[&name].snapshots.len() as u64;
                if count > 0 && branches.len() < 5 {
                    serial += 1;
                    let copy = format!("c{serial}");
                    let (snap, model) =
                        branches[&name].snapshots[rng.below(count) as usize].clone();
                    engine.clone_volume(&name, &snap, &copy).unwrap();
                    let branch = Branch {
                        now: model,
                        snapshots: Vec::new(),
                        origin: Some((name.clone(), snap)),
                    };
                    branches.insert(copy, branch);
                }
                context += "clone";
            }
            16 => {
                let result = engine.split_clone(&name);
                let branch = branches.get_mut(&name).unwrap();
                if branch.origin.is_some() && !branch.snapshots.is_empty() {
                    assert_eq!(result, Err(FsError::Busy));
                } else {
                    result.unwrap();
                    while vol.splitting() {
                        engine.cp_now().unwrap();
                    }
                    assert_eq!(vol.origin(), None);
                    branch.origin = None;
                }
                context += "split";
            }
            17 => {
                let busy = branches[&name]
                    .snapshots
                    .iter()
                    .any(|(s, _)| pinned(&branches, s));
                if name != "vol1" {
                    let result = engine.delete_volume(&name);
                    if busy {
                        assert_eq!(result, Err(FsError::Busy));
                    } else {
                        result.unwrap();
                        branches.remove(&name);
                    }
                }
                context += "delete volume";
            }
            18 => {
                engine.cp_now().unwrap();
                context += "checkpoint";
            }
            _ => {
                drop(vol);
                let vol1 = engine.volume("vol1").unwrap();
                crash(engine, vol1);
                let report = m.check();
                assert!(report.clean(), "{context}crash: {report}");
                let (again, vol1) = m.open();
                drop(vol1);
                engine = again;
                context += "crash";
            }
        }
        for (name, branch) in &branches {
            let vol = engine.volume(name).unwrap();
            assert_eq!(contents(&vol), branch.now, "{context}, of {name}");
            let listed: Vec<String> = vol.snapshots().into_iter().map(|s| s.name).collect();
            let wanted: Vec<&str> = branch.snapshots.iter().map(|(s, _)| s.as_str()).collect();
            assert_eq!(listed, wanted, "{context}, of {name}");
            // Opening a new snapshot takes a checkpoint, which would leave nothing to find between
            // two; so not each time.
            if rng.below(4) == 0 {
                for (snap, model) in &branch.snapshots {
                    let view = vol.open_snapshot(snap).unwrap();
                    assert_eq!(contents(&view), *model, "{context}, {snap} of {name}");
                }
            }
        }
    }
    // Clones first: the deepest were made last.
    while branches.len() > 1 || !branches["vol1"].snapshots.is_empty() {
        let names: Vec<String> = branches.keys().filter(|n| *n != "vol1").cloned().collect();
        for name in names {
            if engine.delete_volume(&name).is_ok() {
                branches.remove(&name);
            }
        }
        if branches.len() == 1 {
            let vol = engine.volume("vol1").unwrap();
            for (snap, _) in std::mem::take(&mut branches.get_mut("vol1").unwrap().snapshots) {
                vol.snapshot_delete(&snap).unwrap();
            }
        }
    }
    let vol = engine.volume("vol1").unwrap();
    for (_, name) in names(&vol, vol.root()) {
        run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).unwrap();
    }
    finish_background_jobs(&engine);
    assert_eq!(vol.snapshot_used(), 0);
    assert!(
        free(&engine) + 4 >= empty,
        "seed {seed}: {} of {empty}",
        free(&engine)
    );
    crash(engine, vol);
    let report = m.check();
    assert!(report.clean(), "seed {seed}: {report}");
}

#[test]
fn an_annotation_stays_with_its_volume() {
    let m = Machine::new(91);
    let (engine, vol) = m.format();
    let long = "x".repeat(weir_volume::MAX_ANNOTATION);
    assert_eq!(
        engine.annotate(&vol, &format!("{long}x")),
        Err(FsError::Invalid)
    );
    engine.annotate(&vol, "first").unwrap();
    engine.cp_now().unwrap();
    engine.annotate(&vol, &long).unwrap();
    engine.cp_now().unwrap();
    // Its last pieces are removed; of the others one has changed.
    let long = format!("{}y{}", &long[..2000], &long[..2000]);
    engine.annotate(&vol, &long).unwrap();
    vol.snapshot_create("s", fixed_time()).unwrap();
    let clone = engine.clone_volume("vol1", "s", "clone").unwrap();
    assert_eq!(&*clone.annotation(), "");
    engine.annotate(&clone, "of the clone").unwrap();
    engine.shutdown().unwrap();
    drop((vol, clone, engine));

    let report = m.check();
    assert!(report.clean(), "{report}");
    assert!(report.names.iter().eq(["clone", "vol1"]));
    let (engine, vol) = m.open();
    assert_eq!(*vol.annotation(), *long);
    let clone = engine.volume("clone").unwrap();
    assert_eq!(&*clone.annotation(), "of the clone");
    engine.annotate(&clone, "").unwrap();
    engine.cp_now().unwrap();
    drop(clone);
    engine.delete_volume("clone").unwrap();
    vol.snapshot_delete("s").unwrap();
    engine.delete_volume("vol1").unwrap();
    // A volume that is in the log only.
    engine
        .create_volume("v-2", (0, 0), 0o755, fixed_time(), &*m.rng)
        .unwrap();
    drop((vol, engine));
    let report = m.check();
    assert!(report.clean(), "{report}");
    assert!(report.names.iter().eq(["v-2"]), "{:?}", report.names);
}
