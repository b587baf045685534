//! Crash tests of the aggregate over a device that loses unflushed writes. After a crash at any
//! moment, the newest acknowledged checkpoint is there, undamaged, and nothing else is.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::{BLOCK_SIZE, BlockAddr, ManualClock, Rng, SeededRng, VolumeId};

use super::*;
use crate::checkpoint::Run;
use crate::device::{Hints, Io, MemDevice};
use crate::error::{IoError, IoKind};
use crate::frame::Class;
use crate::log::Record;
use crate::node::Key;
use crate::space::Usage;
use crate::tree::{self, Edit, Visitor};

type Page = Box<[u8; BLOCK_SIZE]>;

/// A device whose unflushed writes a crash drops, tears or keeps, each at random, and which fails
/// after a given number of calls.
struct Volatile {
    stable: MemDevice,
    pending: Mutex<Vec<(u64, Page)>>,
    /// Number of calls that still succeed.
    fuse: AtomicU64,
    /// Blocks that must not be written: those that the durable superblock refers to.
    guarded: Mutex<std::collections::HashSet<u64>>,
    strict: AtomicBool,
    /// Callback run at the next flush.
    at_flush: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Volatile {
    fn new(length: u64, max: u64) -> Arc<Volatile> {
        Arc::new(Volatile {
            stable: MemDevice::growable(length, max),
            pending: Mutex::default(),
            fuse: AtomicU64::new(u64::MAX),
            guarded: Mutex::default(),
            strict: AtomicBool::new(false),
            at_flush: Mutex::default(),
        })
    }

    fn blown(&self) -> bool {
        let less = |fuse: u64| Some(fuse.saturating_sub(1));
        self.fuse
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            == Ok(0)
    }

    fn make_stable(&self, addr: u64, page: &[u8; BLOCK_SIZE]) {
        self.stable.tamper(BlockAddr(addr), |block| *block = *page);
    }

    /// Simulates a power failure and restart.
    fn crash(&self, rng: &SeededRng) {
        for (addr, page) in std::mem::take(&mut *self.pending.lock()) {
            match rng.next_u64() % 4 {
                0 => {}
                1 => {
                    let sectors = rng.next_u64();
                    self.stable.tamper(BlockAddr(addr), |block| {
                        let pairs = block.chunks_exact_mut(512).zip(page.chunks_exact(512));
                        for (i, (old, new)) in pairs.enumerate() {
                            if sectors >> i & 1 == 1 {
                                old.copy_from_slice(new);
                            }
                        }
                    });
                }
                _ => self.make_stable(addr, &page),
            }
        }
        self.fuse.store(u64::MAX, Ordering::SeqCst);
    }

    fn failed<T>(&self, kind: IoKind, addr: BlockAddr) -> Io<T> {
        Io::ready(Err(IoError::new(kind, addr, 0, io::Error::other("fuse"))))
    }
}

impl Device for Volatile {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        let mut frames = match self.stable.read(addr, into).wait() {
            Ok(frames) => frames,
            Err(e) => return Io::ready(Err(e)),
        };
        let pending: HashMap<u64, Page> = self.pending.lock().iter().cloned().collect();
        for (at, frame) in (addr.0..).zip(&mut frames) {
            if let Some(page) = pending.get(&at) {
                frame.copy_from_slice(&page[..]);
            }
        }
        Io::ready(Ok(frames))
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        if self.blown() {
            return self.failed(IoKind::Write, addr);
        }
        assert!(addr.0 + from.len() as u64 <= self.length());
        let guarded = self.guarded.lock();
        for (at, frame) in (addr.0..).zip(&from) {
            assert!(
                !self.strict.load(Ordering::SeqCst) || !guarded.contains(&at),
                "block {at} of the durable checkpoint was written over"
            );
            self.pending.lock().push((at, Box::new(**frame)));
        }
        Io::ready(Ok(()))
    }

    fn flush(&self) -> Io<()> {
        if self.blown() {
            return self.failed(IoKind::Flush, BlockAddr(0));
        }
        for (addr, page) in std::mem::take(&mut *self.pending.lock()) {
            self.make_stable(addr, &page);
        }
        if let Some(act) = self.at_flush.lock().take() {
            act();
        }
        Io::ready(Ok(()))
    }

    fn discard(&self, _: BlockAddr, _: u64) -> Io<()> {
        Io::ready(Ok(()))
    }

    fn length(&self) -> u64 {
        self.stable.length()
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.stable.grow(blocks)
    }
}

#[test]
fn checkpoints_write_as_much_at_a_time_as_the_device_likes() {
    for (longest_write, writes_in_flight) in [(64, 512), (256, 1024), (256, 100)] {
        let hints = Hints {
            longest_write,
            writes_in_flight,
            ..Hints::DISK
        };
        let device = Arc::new(MemDevice::new(32_768).hinting(hints));
        let env = Env {
            pool: FramePool::new(65_536).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(SeededRng::new(1)),
        };
        let log = Arc::new(MemDevice::new(256));
        let (agg, _) = Aggregate::create_on(device.clone(), log, env).unwrap();
        let mut cp = agg.begin().unwrap();
        let (addr, count) = cp.alloc(1500, None).unwrap();
        for n in 0..u64::from(count) {
            cp.write(BlockAddr(addr.0 + n), vec![Frame::zero()])
                .unwrap();
        }
        agg.commit(cp, TreeRoot::EMPTY, agg.log().cut()).unwrap();
        let longest = longest_write.min(writes_in_flight) as u64;
        assert_eq!((count, device.longest_write()), (1500, longest));
    }
}

type Model = BTreeMap<Key, Vec<u8>>;

struct Harness {
    device: Arc<Volatile>,
    log: Arc<MemDevice>,
    env: Env,
    agg: Arc<Aggregate>,
    rng: SeededRng,
    /// The tree of each checkpoint that may be found after a crash.
    possible: Vec<(Generation, Model)>,
    model: Model,
    held: Vec<(Arc<RootPin>, TreeRoot, Model)>,
}

impl Harness {
    fn new(seed: u64, length: u64, max: u64) -> Harness {
        let device = Volatile::new(length, max);
        let log = Arc::new(MemDevice::new(256));
        let env = Env {
            pool: FramePool::new(4096).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(SeededRng::new(seed)),
        };
        let (agg, replay) = Aggregate::create_on(device.clone(), log.clone(), env.clone()).unwrap();
        assert_eq!((replay.findings.len(), replay.records.count()), (0, 0));
        Harness {
            device,
            log,
            env,
            agg,
            rng: SeededRng::new(seed),
            possible: vec![(Generation(1), Model::new())],
            model: Model::new(),
            held: Vec::new(),
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn edits(&self) -> Vec<Edit> {
        let size = [1, 10, 300][self.below(3) as usize];
        let mut edits = BTreeMap::new();
        for _ in 0..size {
            let key = Key::new(self.below(3000), 1, 0);
            let edit = match self.below(3) {
                0 => Edit::Del(key),
                _ => Edit::Put(key, vec![self.below(256) as u8; self.below(200) as usize]),
            };
            edits.insert(key, edit);
        }
        edits.into_values().collect()
    }

    /// Takes a checkpoint with random edits. Blocks reachable before it are guarded against
    /// overwriting.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.guard();
        let edits = self.edits();
        let mut next = self.model.clone();
        for edit in &edits {
            match edit {
                Edit::Put(key, value) => next.insert(*key, value.clone()),
                Edit::Del(key) => next.remove(key),
            };
        }
        let lsn = self.agg.log().append(Record {
            meta: vec![1; 100],
            pages: Default::default(),
        });
        assert!(lsn.is_ok() || self.agg.poisoned().is_some(), "{lsn:?}");
        let cut = self.agg.log().cut();
        let root = self.agg.root();
        let mut cp = self.agg.begin()?;
        self.possible.push((cp.generation(), next.clone()));
        let agg = Arc::clone(&self.agg);
        let merged = tree::apply(
            &mut cp,
            &agg.source(),
            VolumeId(1),
            &root,
            edits.into_iter(),
        );
        let root = match merged {
            Ok(root) => root,
            Err(e) => {
                drop(cp);
                return Err(e);
            }
        };
        let life = agg.commit(cp, root, cut)?;
        self.model = next;
        self.possible.drain(..self.possible.len() - 1);
        if self.below(3) == 0 {
            self.held.push((life, root, self.model.clone()));
        }
        while self.held.len() > 4 {
            self.held.remove(self.below(4) as usize);
        }
        Ok(())
    }

    fn guard(&self) {
        let mut guarded = self.device.guarded.lock();
        guarded.clear();
        let mut roots = vec![self.agg.root()];
        roots.extend(self.held.iter().map(|(_, root, _)| *root));
        for root in roots {
            struct Guard<'a>(&'a mut std::collections::HashSet<u64>);
            impl Visitor for Guard<'_> {
                fn node(&mut self, ptr: &BlockPtr, _: u8) -> bool {
                    self.0.insert(ptr.addr.0);
                    true
                }
                fn record(&mut self, _: Key, _: &[u8]) {}
                fn fault(&mut self, _: &BlockPtr, _: Key, error: &StoreError) {
                    panic!("{error}");
                }
            }
            tree::walk(&self.agg.source(), &root, &mut Guard(&mut guarded));
        }
        self.device.strict.store(true, Ordering::SeqCst);
    }

    /// Checks the tree against the model, and the map against the blocks that the tree reaches.
    fn check(&self) {
        let read = |root: &TreeRoot| {
            let mut found = Model::new();
            tree::scan(
                &self.agg.source(),
                root,
                Key::MIN,
                Key::MAX,
                &mut |key, value| {
                    found.insert(key, value.to_vec());
                    ControlFlow::Continue(())
                },
            )
            .unwrap();
            found
        };
        assert!(
            read(&self.agg.root()) == self.model,
            "the tree is not the model's"
        );
        for (_, root, model) in &self.held {
            assert!(read(root) == *model, "an old root has changed");
        }
        struct Claim(Usage);
        impl Visitor for Claim {
            fn node(&mut self, ptr: &BlockPtr, _: u8) -> bool {
                assert_eq!(self.0.claim(ptr.addr, 1), 0);
                true
            }
            fn record(&mut self, _: Key, _: &[u8]) {}
            fn fault(&mut self, _: &BlockPtr, _: Key, error: &StoreError) {
                panic!("{error}");
            }
        }
        let mut claim = Claim(Usage::new());
        tree::walk(&self.agg.source(), &self.agg.root(), &mut claim);
        assert_eq!(self.agg.space().compare(&claim.0).unwrap(), []);
        assert_eq!(self.agg.space().faults(), []);
    }

    fn reopen(&mut self) -> Vec<Finding> {
        self.held.clear();
        self.device.strict.store(false, Ordering::SeqCst);
        // The old aggregate still lives, and a log has one writer at a time. So it must have
        // nothing left to write, or have ended.
        let queued = self.agg.log().cut().last();
        let written = self.agg.log().wait_blocking(queued);
        assert!(written.is_ok() || self.agg.poisoned().is_some());
        let (agg, replay) =
            Aggregate::open_on(self.device.clone(), self.log.clone(), self.env.clone()).unwrap();
        for record in replay.records {
            assert_eq!(record.unwrap().meta, [1; 100]);
        }
        self.agg = agg;
        let found = self.agg.generation();
        let (_, model) = self
            .possible
            .iter()
            .find(|(generation, _)| *generation == found)
            .unwrap_or_else(|| panic!("found {found}, a checkpoint from the past"));
        self.model = model.clone();
        self.possible = vec![(found, self.model.clone())];
        self.check();
        replay.findings
    }

    fn crash(&mut self) {
        self.device.crash(&self.rng);
        for finding in self.reopen() {
            assert!(matches!(finding, Finding::CopyDamaged { .. }), "{finding}");
        }
    }
}

#[test]
fn checkpoints_survive_crashes_at_any_call() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut h = Harness::new(seed, 4096 + seed * 400, 40_000);
        for _ in 0..25 {
            match h.below(4) {
                0 => {
                    // The power fails, or writes do, at some call of this checkpoint.
                    h.device.fuse.store(h.below(20), Ordering::SeqCst);
                    let result = h.checkpoint();
                    if result.is_err() {
                        assert!(h.agg.poisoned().is_some());
                        assert!(matches!(h.agg.begin(), Err(StoreError::Poisoned(_))));
                    }
                    h.crash();
                }
                1 => {
                    let findings = h.reopen();
                    assert_eq!(findings, []);
                }
                _ => {
                    h.checkpoint().unwrap();
                    h.check();
                }
            }
        }
        // Every block freed on the way is free again.
        h.held.clear();
        h.checkpoint().unwrap();
        h.checkpoint().unwrap();
        h.held.clear();
        h.agg.space().reclaim();
        let free = h.agg.space().stats().free;
        h.reopen();
        assert_eq!(h.agg.space().stats().free, free);
    }
}

#[test]
fn a_checkpoint_may_be_larger_than_memory() {
    let device = Arc::new(MemDevice::growable(8192, 100_000));
    let log = Arc::new(MemDevice::new(256));
    let env = Env {
        pool: FramePool::new(320).unwrap(),
        clock: Arc::new(ManualClock::default()),
        rng: Arc::new(SeededRng::new(1)),
    };
    let (agg, _) = Aggregate::create_on(device.clone(), log.clone(), env.clone()).unwrap();
    // Other users hold most of the memory, as dirty pages do.
    let held: Vec<_> = (0..280)
        .map(|_| env.pool.alloc(Class::Foreground).unwrap())
        .collect();
    let batch = |agg: &Arc<Aggregate>, root, edits: &mut dyn Iterator<Item = Edit>| {
        let mut cp = agg.begin().unwrap();
        let root = tree::apply(&mut cp, &agg.source(), VolumeId(1), &root, edits).unwrap();
        agg.commit(cp, root, agg.log().cut()).unwrap();
        root
    };
    let put = |i: u64| Edit::Put(Key::new(i, 1, 0), vec![i as u8; 200]);
    let root = batch(&agg, TreeRoot::EMPTY, &mut (0..60_000).map(put));
    let root = batch(&agg, root, &mut (0..120_000).step_by(7).map(put));
    drop((held, agg));
    let (agg, _) = Aggregate::open_on(device, log, env).unwrap();
    assert_eq!(agg.root(), root);
    let mut keys = 0;
    tree::scan(
        &agg.source(),
        &root,
        Key::MIN,
        Key::MAX,
        &mut |key, value| {
            assert_eq!(value, vec![key.ino as u8; 200]);
            keys += 1;
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert!(keys > 60_000);
}

#[test]
fn one_damaged_copy_costs_nothing_and_two_are_reported() {
    let mut h = Harness::new(1, 8192, 8192);
    for _ in 0..5 {
        h.checkpoint().unwrap();
    }
    let generation = h.agg.generation();
    let serving = Superblock::slot(generation);
    let copies = layout::superblock(serving);
    for at in copies {
        h.device.stable.tamper(at, |page| page[40] ^= 1);
        assert_eq!(
            h.reopen(),
            [Finding::CopyDamaged {
                at: at.0,
                generation
            }]
        );
        // The damaged copy was repaired.
        assert_eq!(h.reopen(), []);
    }
    let bad = |h: &Harness| copies.map(|at| h.device.stable.tamper(at, |page| page[40] ^= 1));
    bad(&h);
    let (agg, replay) = Aggregate::open_on(h.device.clone(), h.log.clone(), h.env.clone()).unwrap();
    let before = Generation(generation.0 - 1);
    assert_eq!(agg.generation(), before);
    assert_eq!(
        replay.findings,
        [Finding::SlotDamaged {
            slot: serving,
            serving: before
        }]
    );
    // The numbers of the lost checkpoints are not used again.
    let cp = agg.begin().unwrap();
    assert_eq!(cp.generation(), Generation(before.0 + 3));
    assert_eq!(Superblock::slot(cp.generation()), serving);
    drop(cp);
    for at in layout::superblock(serving.other()) {
        h.device.stable.tamper(at, |page| page[40] ^= 1);
    }
    let opened = Aggregate::open_on(h.device.clone(), h.log.clone(), h.env.clone());
    assert!(matches!(opened, Err(StoreError::Format(why)) if why.contains("damaged")));
}

#[test]
fn wrong_devices_are_refused() {
    let h = Harness::new(2, 8192, 8192);
    let other = Harness::new(3, 8192, 8192);
    let open = |device: Arc<dyn Device>, log: Arc<dyn Device>| match Aggregate::open_on(
        device,
        log,
        h.env.clone(),
    ) {
        Ok(_) => panic!("it was opened"),
        Err(e) => e.to_string(),
    };
    assert!(open(h.device.clone(), other.log.clone()).contains("another aggregate"));
    assert!(open(Volatile::new(8192, 8192), h.log.clone()).contains("no aggregate"));
    assert!(open(Volatile::new(100, 100), h.log.clone()).contains("smaller"));
    // A truncated device.
    let short = Arc::new(MemDevice::new(6000));
    let frames = (0..4096)
        .map(|_| h.env.pool.alloc(Class::Cp))
        .take_while(Option::is_some);
    let frames: Vec<_> = frames.flatten().take(2200).collect();
    let read = h.device.read(BlockAddr(0), frames).wait().unwrap();
    let read = read.into_iter().map(FrameMut::freeze).collect();
    short.write(BlockAddr(0), read).wait().unwrap();
    assert!(open(short, h.log.clone()).contains("truncated"));
    let inspected = Aggregate::inspect_on(h.device.clone(), &h.env.pool).unwrap();
    assert_eq!(inspected.superblock.id, h.agg.id());
}

#[test]
fn blocks_wait_for_readers_of_all_older_roots() {
    let mut h = Harness::new(4, 8192, 8192);
    h.checkpoint().unwrap();
    let oldest = (h.agg.life(), h.agg.root(), h.model.clone());
    h.held.clear();
    for _ in 0..30 {
        h.checkpoint().unwrap();
        h.held.clear();
    }
    h.held.push(oldest);
    h.check();
    h.agg.space().reclaim();
    let held = h.agg.space().stats().free;
    h.held.clear();
    h.agg.space().reclaim();
    assert!(h.agg.space().stats().free > held, "the reader held nothing");
}

#[test]
fn data_runs_are_freed_retained_and_released() {
    let h = Harness::new(5, 8192, 8192);
    let commit = |cp| {
        h.agg
            .commit(cp, TreeRoot::EMPTY, h.agg.log().cut())
            .unwrap()
    };
    let free = || {
        h.agg.space().reclaim();
        h.agg.space().stats().free
    };
    let empty = free();
    let mut cp = h.agg.begin().unwrap();
    assert!(h.agg.begin().is_err(), "one at a time");
    let birth = cp.generation();
    let (addr, count) = cp.alloc(20, None).unwrap();
    assert_eq!(count, 20);
    cp.write(addr, (0..20).map(|_| Frame::zero()).collect())
        .unwrap();
    // The foreground reserves blocks at the same time.
    let (direct, n) = h
        .agg
        .space()
        .allocate(5, None, crate::Stream::Data, Class::Foreground)
        .unwrap();
    cp.commit(direct, n).unwrap();
    drop(commit(cp));
    assert_eq!(free(), empty - 25);

    let mut cp = h.agg.begin().unwrap();
    cp.retain(Some(birth));
    cp.freed_run(Run {
        addr,
        count: 10,
        birth,
    });
    cp.freed_run(Run {
        addr: BlockAddr(addr.0 + 10),
        count: 4,
        birth,
    });
    let dead = cp.take_retained();
    assert_eq!(
        dead,
        [Run {
            addr,
            count: 14,
            birth
        }]
    );
    cp.freed_run(Run {
        addr: direct,
        count: 1,
        birth: birth.next(),
    });
    cp.release(Run {
        addr: BlockAddr(addr.0 + 14),
        count: 6,
        birth,
    });
    drop(commit(cp));
    assert_eq!(free(), empty - 25 + 7);

    let mut cp = h.agg.begin().unwrap();
    for run in dead {
        cp.release(run);
    }
    drop(commit(cp));
    assert_eq!(free(), empty - 4);

    // Dropping a checkpoint before any change does no harm; afterwards it poisons.
    drop(h.agg.begin().unwrap());
    let mut cp = h.agg.begin().unwrap();
    let (addr, _) = cp.alloc(1, None).unwrap();
    cp.write(addr, vec![Frame::zero()]).unwrap();
    drop(cp);
    assert!(h.agg.poisoned().unwrap().contains("given up"));
}

/// A checkpoint is not committed if an invariant is violated while its blocks are written, or just
/// before its superblock is.
#[test]
fn no_superblock_is_written_once_an_invariant_is_violated() {
    for late in [false, true] {
        found_wrong(late);
    }
}

fn found_wrong(late: bool) {
    let mut h = Harness::new(11, 4096, 4096);
    h.checkpoint().unwrap();
    let (generation, root) = (h.agg.generation(), h.agg.root());
    let mut cp = h.agg.begin().unwrap();
    let edits = vec![Edit::Put(Key::new(9000, 1, 0), vec![1])];
    let new = {
        let agg = Arc::clone(&h.agg);
        let edits = edits.into_iter();
        tree::apply(&mut cp, &agg.source(), VolumeId(1), &root, edits).unwrap()
    };
    assert_ne!(new, root);
    h.agg.guard().as_in_release();
    let space = Arc::clone(h.agg.space());
    let violate = move || space.release_reserved(1);
    match late {
        false => violate(),
        true => *h.device.at_flush.lock() = Some(Box::new(violate)),
    }
    assert_eq!(h.agg.poisoned().is_some(), !late);
    let cut = h.agg.log().cut();
    assert!(matches!(
        h.agg.commit(cp, new, cut),
        Err(StoreError::Poisoned(_))
    ));
    assert!(matches!(h.agg.begin(), Err(StoreError::Poisoned(_))));
    let why = h.agg.poisoned().unwrap();
    assert!(why.contains("0 are reserved"), "{why}");
    let Harness {
        agg,
        device,
        log,
        env,
        ..
    } = h;
    drop(agg);
    let (agg, _) = Aggregate::open_on(device, log, env).unwrap();
    assert_eq!((agg.generation(), agg.root()), (generation, root));
    assert_eq!(agg.poisoned(), None);
}
