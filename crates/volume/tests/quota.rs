//! Quotas: usage is that of the inodes after any operations, checkpoints, crashes and reverts, and
//! limits hold exactly. A failure prints its seed; `WEIR_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Machine, create, fixed_time, run, write};
use weir_base::{Ino, Rng, SeededRng};
use weir_volume::{
    Engine, EngineContext, FileKind, FsError, Limits, Pin, QuotaId, QuotaLimit, QuotaRules,
    QuotaState, QuotaUsage, SetAttr, SetIds, Stability, Stop, Volume,
};

const BLOCK: u64 = 4096;

/// Runs an operation of a caller whom quotas limit.
fn limited<T>(
    vol: &Volume,
    op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
) -> Result<T, FsError> {
    let mut cx = EngineContext::new(fixed_time());
    cx.limits = Limits::All;
    vol.drive_blocking(&mut cx, op)
}

fn bytes(blocks: u64) -> QuotaLimit {
    QuotaLimit {
        bytes: blocks * BLOCK,
        ..QuotaLimit::default()
    }
}

fn files(files: u64) -> QuotaLimit {
    QuotaLimit {
        files,
        ..QuotaLimit::default()
    }
}

fn rules(own: &[(QuotaId, QuotaLimit)]) -> QuotaRules {
    QuotaRules {
        own: own.iter().copied().collect(),
        ..QuotaRules::default()
    }
}

fn chown(vol: &Volume, ino: Ino, uid: u32, gid: u32) {
    let set = SetAttr {
        uid: Some(uid),
        gid: Some(gid),
        ..SetAttr::default()
    };
    run(vol, |cx| vol.setattr(cx, ino, &set, None)).unwrap();
}

fn used(vol: &Volume, id: QuotaId) -> (i64, i64) {
    let usage = vol.quota_of(id).unwrap().usage;
    (usage.blocks, usage.files)
}

/// Usage of these inodes, as callers see it.
fn sum(vol: &Volume, inodes: &BTreeSet<Ino>) -> BTreeMap<QuotaId, QuotaUsage> {
    let mut sum: BTreeMap<QuotaId, QuotaUsage> = BTreeMap::new();
    for ino in inodes {
        let attr = run(vol, |cx| vol.getattr(cx, *ino)).unwrap();
        let tree = Some(QuotaId::tree(attr.tree)).filter(|id| id.id != 0);
        let owners = [QuotaId::user(attr.uid), QuotaId::group(attr.gid)];
        for id in owners.into_iter().chain(tree) {
            let usage = sum.entry(id).or_default();
            usage.files += 1;
            if attr.kind == FileKind::Regular {
                usage.blocks += (attr.used / BLOCK) as i64;
            }
        }
    }
    sum
}

fn reported(vol: &Volume) -> BTreeMap<QuotaId, QuotaUsage> {
    let entries = vol.quota_report().into_iter();
    let some = entries.filter(|entry| entry.usage != QuotaUsage::default());
    some.map(|entry| (entry.id, entry.usage)).collect()
}

struct Run {
    machine: Machine,
    rng: SeededRng,
    live: Option<(Engine, Arc<Volume>)>,
    /// Files in the root directory and in trees (`t1/n3`), and open ones without a name.
    named: BTreeMap<String, Ino>,
    open: BTreeMap<Ino, Pin>,
    /// Trees by name.
    trees: BTreeMap<String, Ino>,
    /// Names and trees in the snapshot "s".
    kept: Option<(BTreeMap<String, Ino>, BTreeMap<String, Ino>)>,
}

impl Run {
    fn below(&self, n: u64) -> u64 {
        self.rng.below(n)
    }

    fn vol(&self) -> Arc<Volume> {
        Arc::clone(&self.live.as_ref().unwrap().1)
    }

    fn engine(&self) -> &Engine {
        &self.live.as_ref().unwrap().0
    }

    /// Sets rules that refuse nothing, so that usage is tracked.
    fn watch(&self) {
        self.vol()
            .set_quotas(rules(&[(QuotaId::user(99), bytes(1 << 30))]))
            .unwrap();
    }

    fn inodes(&self) -> BTreeSet<Ino> {
        let root = self.vol().root();
        let all = self.named.values().chain(self.open.keys());
        let all = all.chain(self.trees.values()).copied();
        all.chain([root]).collect()
    }

    /// Returns a random path: in the root directory, or in a tree.
    fn path(&self) -> String {
        let leaf = format!("n{}", self.below(12));
        let at = self.below(1 + self.trees.len() as u64) as usize;
        match self.trees.keys().nth(at) {
            Some(tree) => format!("{tree}/{leaf}"),
            None => leaf,
        }
    }

    /// Returns the directory and the name of a path.
    fn place<'p>(&self, path: &'p str) -> (Ino, &'p [u8]) {
        match path.split_once('/') {
            Some((tree, leaf)) => (self.trees[tree], leaf.as_bytes()),
            None => (self.vol().root(), path.as_bytes()),
        }
    }

    fn pick(&self) -> Option<(String, Ino)> {
        let at = self.below(self.named.len().max(1) as u64) as usize;
        let (name, ino) = self.named.iter().nth(at)?;
        Some((name.clone(), *ino))
    }

    fn step(&mut self) {
        let vol = self.vol();
        let picked = self.pick();
        let name = self.path();
        match (self.below(108), picked) {
            (0..=14, _) if !self.named.contains_key(&name) => {
                let (dir, leaf) = self.place(&name);
                let ino = create(&vol, dir, std::str::from_utf8(leaf).unwrap());
                chown(&vol, ino, self.below(4) as u32, self.below(3) as u32);
                self.named.insert(name, ino);
            }
            (15..=39, Some((_, ino))) => self.write(&vol, ino),
            (40..=46, Some((_, ino))) => {
                let set = SetAttr {
                    size: Some(self.below(40) * 1000),
                    ..SetAttr::default()
                };
                run(&vol, |cx| vol.setattr(cx, ino, &set, None)).unwrap();
            }
            (47..=54, Some((_, ino))) => {
                chown(&vol, ino, self.below(4) as u32, self.below(3) as u32);
            }
            (55..=58, Some((_, ino))) => {
                let (off, len) = (self.below(40_000), 1 + self.below(30_000));
                run(&vol, |cx| vol.punch(cx, ino, off, len)).unwrap();
            }
            (59..=64, Some((_, to))) => self.clone_range(&vol, to),
            (65..=72, Some((name, ino))) => self.remove(&vol, &name, ino),
            (73..=76, Some((name, ino))) => self.rename(&vol, name, ino),
            (77..=79, Some((_, ino))) => {
                run(&vol, |cx| vol.commit(cx, ino, 0, 0)).unwrap();
            }
            (80..=87, _) => self.engine().cp_now().unwrap(),
            (88..=89, _) => {
                let first = self.open.keys().next().copied();
                drop(first.and_then(|ino| self.open.remove(&ino)));
                // The next checkpoint ends what is open no more.
                self.engine().cp_now().unwrap();
            }
            (90..=92, _) => self.keep(&vol),
            (93..=94, _) => self.revert(),
            (95..=96, _) => {
                vol.set_quotas(QuotaRules::default()).unwrap();
                assert_eq!(vol.quota_state(), QuotaState::Off);
                self.watch();
            }
            (97..=99, _) => self.restart(),
            (100..=107, _) => self.step_trees(&vol),
            _ => {}
        }
    }

    fn rename(&mut self, vol: &Volume, name: String, ino: Ino) {
        let to = self.path();
        if self.named.get(&to) == Some(&ino) {
            return;
        }
        let ((from_dir, from), (to_dir, new)) = (self.place(&name), self.place(&to));
        let done = run(vol, |cx| vol.rename(cx, from_dir, from, to_dir, new));
        let linked = |to: &str| {
            let (dir, leaf) = self.place(to);
            run(vol, |cx| vol.link(cx, ino, dir, leaf)).map(|_| ())
        };
        if from_dir != to_dir {
            assert_eq!(done.map(|_| ()), Err(FsError::CrossDevice));
            assert_eq!(linked(&to), Err(FsError::CrossDevice));
            return;
        }
        done.unwrap();
        self.named.remove(&name);
        self.named.insert(to, ino);
    }

    /// Makes, renames and removes trees.
    fn step_trees(&mut self, vol: &Arc<Volume>) {
        let name = format!("t{}", self.below(4));
        let root = vol.root();
        let set = SetAttr::default();
        match (self.below(4), self.trees.get(&name).copied()) {
            (_, None) => {
                let made = run(vol, |cx| vol.create_tree(cx, name.as_bytes(), &set));
                self.trees.insert(name, made.unwrap().value.ino);
            }
            (0, Some(_)) => {
                let below = format!("{name}/");
                let full = self.named.keys().any(|path| path.starts_with(&below));
                let gone = run(vol, |cx| vol.rmdir(cx, root, name.as_bytes()));
                assert_eq!(gone.err(), full.then_some(FsError::NotEmpty));
                if full {
                    vol.remove_all(fixed_time(), name.as_bytes(), &|_, _| (), &|| false)
                        .unwrap();
                }
                self.named.retain(|path, _| !path.starts_with(&below));
                self.trees.remove(&name);
            }
            (1, Some(ino)) => {
                let to = format!("t{}", self.below(8));
                if self.trees.contains_key(&to) {
                    return;
                }
                let (from, new) = (name.as_bytes(), to.as_bytes());
                run(vol, |cx| vol.rename(cx, root, from, root, new)).unwrap();
                self.trees.remove(&name);
                self.trees.insert(to.clone(), ino);
                let moved = |path: String| match path.split_once('/') {
                    Some((tree, leaf)) if tree == name => format!("{to}/{leaf}"),
                    _ => path,
                };
                let all = std::mem::take(&mut self.named).into_iter();
                self.named = all.map(|(path, ino)| (moved(path), ino)).collect();
            }
            _ => {}
        }
    }

    /// Compares the trees with those that were made, and the number of each file's with its own.
    fn compare_trees(&self) {
        let vol = self.vol();
        let trees = vol.trees(fixed_time()).unwrap();
        let named = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        let found: BTreeMap<String, Ino> = trees.iter().map(|t| (named(&t.name), t.ino)).collect();
        assert_eq!(found, self.trees);
        let of = |ino: Ino| run(&vol, |cx| vol.getattr(cx, ino)).unwrap().tree;
        for (path, ino) in &self.named {
            assert_eq!(of(*ino), of(self.place(path).0), "{path}");
        }
    }

    fn write(&self, vol: &Volume, ino: Ino) {
        let (off, len) = (self.below(60_000), 1 + self.below(30_000) as usize);
        let how = match self.below(2) {
            0 => Stability::Unstable,
            _ => Stability::FileSync,
        };
        write(vol, ino, off, &vec![7; len], how);
    }

    fn clone_range(&self, vol: &Volume, to: Ino) {
        let Some((_, from)) = self.pick().filter(|(_, from)| *from != to) else {
            return;
        };
        let size = run(vol, |cx| vol.getattr(cx, from)).unwrap().size;
        let blocks = size / BLOCK;
        if blocks == 0 {
            return;
        }
        let first = self.below(blocks);
        let (len, at) = (
            (1 + self.below(blocks - first)) * BLOCK,
            self.below(8) * BLOCK,
        );
        let (from, to) = ((from, first * BLOCK), (to, at));
        run(vol, |cx| vol.clone_range(SetIds::Keep, cx, from, to, len)).unwrap();
    }

    fn remove(&mut self, vol: &Arc<Volume>, name: &str, ino: Ino) {
        if self.below(3) == 0 {
            let pin = run(vol, |cx| vol.pin(cx, ino)).unwrap();
            self.open.insert(ino, pin);
        }
        let (dir, leaf) = self.place(name);
        run(vol, |cx| vol.remove(cx, dir, leaf)).unwrap();
        self.named.remove(name);
    }

    fn keep(&mut self, vol: &Volume) {
        if self.kept.take().is_some() {
            vol.snapshot_delete("s").unwrap();
        }
        vol.snapshot_create("s", fixed_time()).unwrap();
        self.kept = Some((self.named.clone(), self.trees.clone()));
    }

    fn revert(&mut self) {
        let Some(kept) = self.kept.clone() else {
            return;
        };
        self.open.clear();
        self.engine().revert("vol1", "s").unwrap();
        (self.named, self.trees) = kept;
        // Ends what had no name when the snapshot was made.
        self.engine().cp_now().unwrap();
    }

    fn restart(&mut self) {
        self.open.clear();
        let (engine, vol) = self.live.take().unwrap();
        match self.below(2) {
            0 => {
                drop(vol);
                engine.shutdown().unwrap();
                drop(engine);
                let report = self.machine.check();
                assert!(report.clean(), "{report}");
            }
            _ => common::crash(engine, vol),
        }
        self.live = Some(self.machine.open());
        self.watch();
    }

    /// Compares the usage with that of the inodes.
    fn compare(&self) {
        let vol = self.vol();
        if vol.quota_state() != QuotaState::On {
            self.engine().cp_now().unwrap();
        }
        assert_eq!(vol.quota_state(), QuotaState::On);
        assert_eq!(reported(&vol), sum(&vol, &self.inodes()));
        self.compare_trees();
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..count).collect(),
    }
}

#[test]
fn usage_is_that_of_the_inodes_whatever_happens() {
    for seed in seeds(12) {
        println!("seed {seed}");
        let machine = Machine {
            background: false,
            ..Machine::new(seed)
        };
        let live = machine.format();
        let mut run = Run {
            rng: SeededRng::new(seed),
            machine,
            live: Some(live),
            named: BTreeMap::new(),
            open: BTreeMap::new(),
            trees: BTreeMap::new(),
            kept: None,
        };
        run.watch();
        for step in 0..400 {
            run.step();
            if step % 3 == 0 {
                run.compare();
            }
        }
        run.compare();
    }
}

/// An engine without threads, whose volume has a file of user 1 and group 5.
fn with_file(machine: &Machine) -> (Engine, Arc<Volume>, Ino) {
    let (engine, vol) = machine.format();
    let ino = create(&vol, vol.root(), "f");
    chown(&vol, ino, 1, 5);
    (engine, vol, ino)
}

fn machine() -> Machine {
    Machine {
        background: false,
        ..Machine::new(1)
    }
}

fn put(vol: &Volume, ino: Ino, block: u64, blocks: u64) -> Result<(), FsError> {
    let data = vec![1; (blocks * BLOCK) as usize];
    let how = Stability::Unstable;
    limited(vol, |cx| vol.write(cx, ino, block * BLOCK, &data, how)).map(|_| ())
}

#[test]
fn a_block_limit_is_exact() {
    let (engine, vol, ino) = with_file(&machine());
    let user = QuotaId::user(1);
    vol.set_quotas(rules(&[(user, bytes(10))])).unwrap();
    // The first write waits until the usage is known.
    put(&vol, ino, 0, 10).unwrap();
    assert_eq!(vol.quota_state(), QuotaState::On);
    assert_eq!(used(&vol, user), (10, 1));
    assert_eq!(put(&vol, ino, 10, 1), Err(FsError::Quota));
    // What is there can be written again, truncated and removed.
    put(&vol, ino, 3, 5).unwrap();
    engine.cp_now().unwrap();
    put(&vol, ino, 0, 10).unwrap();
    assert_eq!(put(&vol, ino, 9, 2), Err(FsError::Quota));
    let set = SetAttr {
        size: Some(8 * BLOCK),
        ..SetAttr::default()
    };
    limited(&vol, |cx| vol.setattr(cx, ino, &set, None)).unwrap();
    assert_eq!(used(&vol, user), (8, 1));
    put(&vol, ino, 8, 2).unwrap();
    assert_eq!(put(&vol, ino, 10, 1), Err(FsError::Quota));
    // Root is not limited, and its writes count for the owner.
    write(&vol, ino, 10 * BLOCK, &[1; 4096], Stability::FileSync);
    assert_eq!(used(&vol, user), (11, 1));
    assert_eq!(used(&vol, QuotaId::group(5)), (11, 1));
    // A limit that is changed holds at once.
    vol.set_quotas(rules(&[(user, bytes(12))])).unwrap();
    put(&vol, ino, 11, 1).unwrap();
    assert_eq!(put(&vol, ino, 12, 1), Err(FsError::Quota));
    run(&vol, |cx| vol.remove(cx, vol.root(), b"f")).unwrap();
    assert_eq!(used(&vol, user), (0, 0));
}

#[test]
fn blocks_of_snapshots_do_not_count_and_sparse_files_count_what_they_store() {
    let (engine, vol, ino) = with_file(&machine());
    let user = QuotaId::user(1);
    vol.set_quotas(rules(&[(user, bytes(4))])).unwrap();
    put(&vol, ino, 0, 2).unwrap();
    put(&vol, ino, 1000, 2).unwrap();
    assert_eq!(put(&vol, ino, 500, 1), Err(FsError::Quota));
    vol.snapshot_create("s", fixed_time()).unwrap();
    engine.cp_now().unwrap();
    // In memory these might be new blocks; the operation waits until a checkpoint has found out.
    put(&vol, ino, 1000, 2).unwrap();
    put(&vol, ino, 0, 2).unwrap();
    engine.cp_now().unwrap();
    assert_eq!(used(&vol, user), (4, 1));
    run(&vol, |cx| vol.punch(cx, ino, 0, 2 * BLOCK)).unwrap();
    put(&vol, ino, 500, 2).unwrap();
    assert_eq!(put(&vol, ino, 600, 1), Err(FsError::Quota));
    engine.revert("vol1", "s").unwrap();
    engine.cp_now().unwrap();
    assert_eq!(used(&vol, user), (4, 1));
}

#[test]
fn a_file_limit_counts_inodes_and_new_owners_are_checked() {
    let (_engine, vol, ino) = with_file(&machine());
    let rules = QuotaRules {
        default_user: Some(files(2)),
        default_group: Some(bytes(3)),
        ..rules(&[(QuotaId::user(7), files(0))])
    };
    vol.set_quotas(rules).unwrap();
    let make = |name: &str, uid: u32| {
        let set = SetAttr {
            uid: Some(uid),
            gid: Some(6),
            ..SetAttr::default()
        };
        limited(&vol, |cx| vol.mkdir(cx, vol.root(), name.as_bytes(), &set))
    };
    make("a", 1).unwrap();
    assert_eq!(make("b", 1).map(|_| ()), Err(FsError::Quota));
    make("b", 2).unwrap();
    make("c", 2).unwrap();
    for name in ["d", "e", "f2"] {
        // A rule without limits is an exception from the default, and root has none.
        make(name, 7).unwrap();
        make(&format!("{name}0"), 0).unwrap();
    }
    put(&vol, ino, 0, 2).unwrap();
    let other = SetAttr {
        uid: Some(2),
        ..SetAttr::default()
    };
    let taken = limited(&vol, |cx| vol.setattr(cx, ino, &other, None));
    assert_eq!(taken.map(|_| ()), Err(FsError::Quota));
    assert_eq!(used(&vol, QuotaId::user(1)), (2, 2));
    assert_eq!(used(&vol, QuotaId::user(2)), (0, 2));
    let regroup = SetAttr {
        gid: Some(6),
        ..SetAttr::default()
    };
    limited(&vol, |cx| vol.setattr(cx, ino, &regroup, None)).unwrap();
    assert_eq!(used(&vol, QuotaId::group(6)), (2, 10));
    assert_eq!(used(&vol, QuotaId::group(5)), (0, 0));
    let clone = |to| {
        let from = (ino, 0);
        limited(&vol, |cx| {
            vol.clone_range(SetIds::Keep, cx, from, to, 2 * BLOCK)
        })
    };
    let twin = create(&vol, vol.root(), "twin");
    chown(&vol, twin, 7, 6);
    assert_eq!(clone((twin, 0)).map(|_| ()), Err(FsError::Quota));
    chown(&vol, twin, 7, 0);
    clone((twin, 0)).unwrap();
    assert_eq!(used(&vol, QuotaId::user(7)).0, 2);
}

#[test]
fn a_volume_from_before_is_counted_once() {
    let mut machine = Machine {
        usage: false,
        ..machine()
    };
    let (engine, vol, ino) = with_file(&machine);
    write(&vol, ino, 0, &[1; 3 * 4096], Stability::FileSync);
    assert_eq!(
        vol.set_quotas(rules(&[(QuotaId::user(1), bytes(9))])),
        Err(FsError::NotSupported)
    );
    vol.snapshot_create("s", fixed_time()).unwrap();
    engine.shutdown().unwrap();
    drop((engine, vol));
    machine.usage = true;
    let (engine, vol) = machine.open();
    // Checkpoints count changes before anybody asks for the whole.
    write(&vol, ino, 3 * BLOCK, &[1; 4096], Stability::FileSync);
    let other = create(&vol, vol.root(), "g");
    chown(&vol, other, 1, 5);
    engine.cp_now().unwrap();
    let user = QuotaId::user(1);
    vol.set_quotas(rules(&[(user, bytes(5))])).unwrap();
    while vol.quota_state() != QuotaState::On {
        engine.cp_now().unwrap();
    }
    assert_eq!(used(&vol, user), (4, 2));
    put(&vol, other, 0, 1).unwrap();
    assert_eq!(put(&vol, other, 1, 1), Err(FsError::Quota));
    // The snapshot's tree is not counted yet.
    engine.revert("vol1", "s").unwrap();
    while vol.quota_state() != QuotaState::On {
        engine.cp_now().unwrap();
    }
    assert_eq!(used(&vol, user), (3, 1));
    engine.shutdown().unwrap();
    drop((engine, vol));
    let report = machine.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn a_clone_has_the_usage_of_its_snapshot_and_a_check_mends_it() {
    let mut machine = machine();
    let (engine, vol, ino) = with_file(&machine);
    write(&vol, ino, 0, &[1; 3 * 4096], Stability::FileSync);
    vol.snapshot_create("s", fixed_time()).unwrap();
    write(&vol, ino, 3 * BLOCK, &[1; 4096], Stability::FileSync);
    engine.clone_volume("vol1", "s", "twin").unwrap();
    let twin = engine.volume("twin").unwrap();
    let user = QuotaId::user(1);
    for vol in [&vol, &twin] {
        vol.set_quotas(rules(&[(user, bytes(9))])).unwrap();
    }
    engine.cp_now().unwrap();
    assert_eq!((used(&vol, user), used(&twin, user)), ((4, 1), (3, 1)));
    engine.shutdown().unwrap();
    drop((engine, vol, twin));
    // A program that does not count leaves the records as they were.
    machine.usage = false;
    let (engine, vol) = machine.open();
    chown(&vol, ino, 2, 5);
    engine.shutdown().unwrap();
    drop((engine, vol));
    let report = machine.check();
    assert_eq!(report.faults.len(), 2, "{report}");
    machine.usage = true;
    let report = machine.repair();
    assert!(report.clean() && !report.repaired.is_empty(), "{report}");
    let (engine, vol) = machine.open();
    vol.set_quotas(rules(&[(user, bytes(9))])).unwrap();
    engine.cp_now().unwrap();
    assert_eq!(used(&vol, user), (0, 0));
    assert_eq!(used(&vol, QuotaId::user(2)), (4, 1));
}

/// Runs an operation of root, whom only the limits of trees hold for.
fn as_root<T>(
    vol: &Volume,
    op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
) -> Result<T, FsError> {
    let mut cx = EngineContext::new(fixed_time());
    cx.limits = Limits::Trees;
    vol.drive_blocking(&mut cx, op)
}

/// Makes a tree; returns its folder and its number.
fn tree(vol: &Volume, name: &str) -> (Ino, QuotaId) {
    let made = run(vol, |cx| {
        vol.create_tree(cx, name.as_bytes(), &SetAttr::default())
    });
    let made = made.unwrap().value;
    (made.ino, QuotaId::tree(made.attr.tree))
}

#[test]
fn a_trees_limit_holds_for_everybody_and_is_what_is_seen_of_the_volume() {
    let (engine, vol, outside) = with_file(&machine());
    let ((dir, id), (other, others)) = (tree(&vol, "q1"), tree(&vol, "q2"));
    let file = create(&vol, dir, "f");
    let deep = common::mkdir(&vol, dir, "d");
    let below = create(&vol, deep, "g");
    let stream = run(&vol, |cx| vol.make_stream(cx, file, b"s"));
    stream.unwrap();
    let set = QuotaRules {
        default_tree: Some(files(2)),
        ..rules(&[(
            id,
            QuotaLimit {
                files: 6,
                ..bytes(10)
            },
        )])
    };
    vol.set_quotas(set).unwrap();
    put(&vol, file, 0, 4).unwrap();
    // The folder, two files, a directory and a stream.
    assert_eq!(used(&vol, id), (4, 5));
    put(&vol, below, 0, 6).unwrap();
    let data = [1; BLOCK as usize];
    let more = |ino, at: u64| {
        let how = Stability::Unstable;
        as_root(&vol, |cx| vol.write(cx, ino, at * BLOCK, &data, how)).map(|_| ())
    };
    assert_eq!(put(&vol, below, 6, 1), Err(FsError::Quota));
    assert_eq!(more(below, 6), Err(FsError::Quota));
    more(outside, 0).unwrap();
    // The server itself is not limited.
    write(&vol, below, 6 * BLOCK, &data, Stability::FileSync);
    let attr = |ino| run(&vol, |cx| vol.getattr(cx, ino)).unwrap();
    let seen = vol.statfs_at(&attr(file));
    assert_eq!((seen.total, seen.free, seen.available), (10 * BLOCK, 0, 0));
    assert_eq!((seen.files, seen.files_free), (6, 1));
    assert_eq!(vol.statfs_at(&attr(outside)), vol.statfs());
    let make = |dir, name: &str| {
        let set = SetAttr::default();
        as_root(&vol, |cx| vol.mkdir(cx, dir, name.as_bytes(), &set)).map(|_| ())
    };
    make(deep, "x").unwrap();
    assert_eq!(make(deep, "y"), Err(FsError::Quota));
    // The other tree has the limit of every tree.
    make(other, "x").unwrap();
    assert_eq!(make(other, "y"), Err(FsError::Quota));
    assert_eq!(used(&vol, others), (0, 2));
    engine.cp_now().unwrap();
    assert_eq!((used(&vol, id), used(&vol, others)), ((11, 6), (0, 2)));
}

#[test]
fn nothing_leaves_its_tree() {
    let machine = machine();
    let (engine, vol, outside) = with_file(&machine);
    let ((q1, id), (q2, _)) = (tree(&vol, "q1"), tree(&vol, "q2"));
    let root = vol.root();
    let file = create(&vol, q1, "f");
    let dir = common::mkdir(&vol, q1, "d");
    let plain = common::mkdir(&vol, root, "plain");
    let rename = |from: (Ino, &str), to: (Ino, &str)| {
        let ((from_dir, from), (to_dir, to)) = (from, to);
        run(&vol, |cx| {
            vol.rename(cx, from_dir, from.as_bytes(), to_dir, to.as_bytes())
        })
        .map(|_| ())
    };
    let crosses = Err(FsError::CrossDevice);
    for (from, to) in [
        ((q1, "f"), (root, "f2")),
        ((q1, "f"), (q2, "f")),
        ((q1, "d"), (root, "d")),
        ((root, "f"), (q1, "f")),
        ((root, "f"), (q1, "new")),
        // The folders of trees stay in the root directory, and are not replaced.
        ((root, "q1"), (plain, "q1")),
        ((root, "q1"), (q2, "q1")),
        ((root, "q1"), (root, "q2")),
        ((root, "q1"), (root, "plain")),
        ((root, "plain"), (root, "q2")),
    ] {
        assert_eq!(rename(from, to), crosses, "{from:?} {to:?}");
    }
    for (ino, to) in [(file, root), (file, q2), (outside, q1)] {
        let link = run(&vol, |cx| vol.link(cx, ino, to, b"link"));
        assert_eq!(link.map(|_| ()), crosses);
    }
    run(&vol, |cx| vol.link(cx, file, dir, b"link")).unwrap();
    rename((dir, "link"), (q1, "f3")).unwrap();
    rename((root, "q1"), (root, "renamed")).unwrap();
    let found = vol.tree_named(fixed_time(), b"renamed").unwrap();
    assert_eq!((found.ino, QuotaId::tree(found.number)), (q1, id));
    for name in [&b"q1"[..], b"plain", b"f", b".", b".."] {
        assert_eq!(vol.tree_named(fixed_time(), name), Err(FsError::NotFound));
    }
    let names = |vol: &Volume| {
        let all = vol.trees(fixed_time()).unwrap().into_iter();
        all.map(|t| String::from_utf8(t.name.into_vec()).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&vol), ["q2", "renamed"]);
    vol.snapshot_create("s", fixed_time()).unwrap();
    engine.clone_volume("vol1", "s", "twin").unwrap();
    let twin = engine.volume("twin").unwrap();
    assert_eq!(names(&twin), ["q2", "renamed"]);
    // All that is in it, in directories below each other as well, goes with it.
    let mut at = q1;
    for _ in 0..40 {
        create(&vol, at, "file");
        at = common::mkdir(&vol, at, "below");
    }
    assert_eq!(
        vol.remove_all(fixed_time(), b"renamed", &|_, _| (), &|| true),
        Err(FsError::Delay)
    );
    vol.remove_all(fixed_time(), b"renamed", &|_, _| (), &|| false)
        .unwrap();
    assert_eq!(names(&vol), ["q2"]);
    vol.set_quotas(rules(&[(id, bytes(9))])).unwrap();
    engine.cp_now().unwrap();
    assert_eq!(used(&vol, id), (0, 0));
    engine.shutdown().unwrap();
    drop((engine, vol, twin));
    let report = machine.check();
    assert!(report.clean(), "{report}");
}
