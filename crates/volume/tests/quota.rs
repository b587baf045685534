//! Quotas: usage is that of the inodes after any operations, checkpoints, crashes and reverts, and
//! limits hold exactly. A failure prints its seed; `WEIR_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Machine, create, now, run, write};
use weir_base::{Ino, Rng, SeededRng};
use weir_volume::{
    Engine, EngineContext, FileKind, FsError, Pin, QuotaId, QuotaLimit, QuotaRules, QuotaState,
    QuotaUsage, SetAttr, SetIds, Stability, Stop, Volume,
};

const BLOCK: u64 = 4096;

/// Runs an operation of a caller whom quotas limit.
fn limited<T>(
    vol: &Volume,
    op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
) -> Result<T, FsError> {
    let mut cx = EngineContext::new(now());
    cx.quotas = true;
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
        for id in [QuotaId::user(attr.uid), QuotaId::group(attr.gid)] {
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
    /// Files in the root directory by name, and open ones without a name.
    named: BTreeMap<String, Ino>,
    open: BTreeMap<Ino, Pin>,
    /// Names in the snapshot "s".
    kept: Option<BTreeMap<String, Ino>>,
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
        let all = self.named.values().chain(self.open.keys()).copied();
        all.chain([root]).collect()
    }

    fn pick(&self) -> Option<(String, Ino)> {
        let at = self.below(self.named.len().max(1) as u64) as usize;
        let (name, ino) = self.named.iter().nth(at)?;
        Some((name.clone(), *ino))
    }

    fn step(&mut self) {
        let vol = self.vol();
        let picked = self.pick();
        let name = format!("n{}", self.below(20));
        match (self.below(100), picked) {
            (0..=14, _) if !self.named.contains_key(&name) => {
                let ino = create(&vol, vol.root(), &name);
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
            (73..=76, Some((name, ino))) => {
                let to = format!("n{}", self.below(20));
                if self.named.get(&to) != Some(&ino) {
                    let (root, from) = (vol.root(), name.as_bytes());
                    run(&vol, |cx| vol.rename(cx, root, from, root, to.as_bytes())).unwrap();
                    self.named.remove(&name);
                    self.named.insert(to, ino);
                }
            }
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
            _ => {}
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
        run(vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).unwrap();
        self.named.remove(name);
    }

    fn keep(&mut self, vol: &Volume) {
        if self.kept.take().is_some() {
            vol.snapshot_delete("s").unwrap();
        }
        vol.snapshot_create("s", now()).unwrap();
        self.kept = Some(self.named.clone());
    }

    fn revert(&mut self) {
        let Some(kept) = self.kept.clone() else {
            return;
        };
        self.open.clear();
        self.engine().revert("vol1", "s").unwrap();
        self.named = kept;
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
    vol.snapshot_create("s", now()).unwrap();
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
    vol.snapshot_create("s", now()).unwrap();
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
    vol.snapshot_create("s", now()).unwrap();
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
