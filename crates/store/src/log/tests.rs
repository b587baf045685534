//! The log against a device that tears its last write at sector boundaries and then stops, over
//! many lives of one log.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex as Lock;
use proptest::prelude::*;
use smallvec::smallvec;
use weir_base::{BlockAddr, Rng, SeededRng};

use super::*;
use crate::device::{Io, MemDevice};
use crate::error::{IoError, IoKind};
use crate::frame::{Class, Frame, FrameMut};

const SECTOR: usize = 512;
const ID: LogId = LogId([0x5A; 16]);

/// A device that is durable at once. The write chosen to fail is torn, and all later ones fail.
struct Torn {
    disk: MemDevice,
    fate: Lock<Fate>,
    /// Writes since the list was last taken: address and blocks.
    writes: Lock<Vec<(u64, u64)>>,
    gate: Lock<()>,
}

#[derive(Default)]
struct Fate {
    /// Writes until the crash.
    left: Option<usize>,
    dead: bool,
    seed: u64,
    /// Selects the blocks of the torn write that are new; if `None`, single sectors are, at random.
    blocks: Option<fn(usize) -> bool>,
}

impl Torn {
    fn new(blocks: u64) -> Arc<Torn> {
        Arc::new(Torn {
            disk: MemDevice::new(blocks),
            fate: Lock::default(),
            writes: Lock::default(),
            gate: Lock::default(),
        })
    }

    fn crash_after(&self, left: usize, seed: u64) {
        *self.fate.lock() = Fate {
            left: Some(left),
            seed,
            ..Fate::default()
        };
    }

    fn revive(&self) {
        *self.fate.lock() = Fate::default();
    }
}

impl Device for Torn {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        self.disk.read(addr, into)
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        drop(self.gate.lock());
        let mut fate = self.fate.lock();
        let failed = || IoError::new(IoKind::Write, addr, 0, io::Error::other("power lost"));
        if fate.dead {
            return Io::ready(Err(failed()));
        }
        if fate.left == Some(0) {
            fate.dead = true;
            let rng = SeededRng::new(fate.seed);
            // From no new sector to all of them, and all mixtures between.
            let odds = rng.below(5);
            for (i, frame) in from.iter().enumerate() {
                self.disk.tamper(BlockAddr(addr.0 + i as u64), |old| {
                    for s in (0..BLOCK_SIZE).step_by(SECTOR) {
                        let chance = rng.below(4) < odds;
                        if fate.blocks.map_or(chance, |new| new(i)) {
                            old[s..s + SECTOR].copy_from_slice(&frame[s..s + SECTOR]);
                        }
                    }
                });
            }
            return Io::ready(Err(failed()));
        }
        fate.left = fate.left.map(|n| n - 1);
        self.writes.lock().push((addr.0, from.len() as u64));
        self.disk.write(addr, from)
    }

    fn flush(&self) -> Io<()> {
        Io::ready(Ok(()))
    }

    fn discard(&self, _: BlockAddr, _: u64) -> Io<()> {
        Io::ready(Ok(()))
    }

    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn grow(&self, _: u64) -> io::Result<u64> {
        Ok(self.length())
    }
}

fn record(pool: &FramePool, meta: &[u8], pages: &[u8]) -> Record {
    let pages = pages
        .iter()
        .map(|b| {
            let mut f = pool.alloc(Class::Cp).unwrap();
            f.fill(*b);
            f.freeze()
        })
        .collect();
    Record {
        meta: meta.to_vec(),
        pages,
    }
}

/// Records that the log must contain: in LSN order, from `base` on.
#[derive(Default)]
struct Model {
    base: u64,
    records: Vec<(Vec<u8>, Vec<u8>)>,
}

fn replayed(replay: Replay) -> Vec<(u64, Vec<u8>, Vec<u8>)> {
    replay
        .map(|r| {
            let r = r.unwrap();
            for p in &r.pages {
                assert!(p.iter().all(|b| *b == p[0]));
            }
            (r.lsn.0, r.meta, r.pages.iter().map(|p| p[0]).collect())
        })
        .collect()
}

/// Runs many lives of one log in a tiny ring. Each has random records, cuts and releases, and a
/// crash with a torn last write at any moment (recovery's own write included). Often the same
/// payload is written at the same place again.
fn lives(seed: u64, blocks: u64, lives: u64) {
    let rng = SeededRng::new(seed);
    let pool = FramePool::new(4096).unwrap();
    let device = Torn::new(blocks);
    let dyn_device: Arc<dyn Device> = device.clone();
    // Some rings are prepared while they are used.
    let at_once = if rng.below(2) == 0 {
        8
    } else {
        prepare::AT_ONCE
    };
    let mut log = Log::create_with(dyn_device.clone(), ID, at_once).unwrap();
    let mut from = LogCut::START;
    let mut model = Model {
        base: 1,
        records: vec![],
    };
    for life in 0..lives {
        device.crash_after(rng.below(12) as usize, rng.next_u64());
        // Sometimes every life appends alike, so that dead pages have the contents of live ones.
        let shape = if rng.below(2) == 0 {
            seed
        } else {
            rng.next_u64()
        };
        let shapes = SeededRng::new(shape);
        for i in 0..200u64 {
            let gate = (rng.below(3) == 0).then(|| device.gate.lock());
            for _ in 0..=shapes.below(4) {
                let mut meta = format!("{life}/{i}/").into_bytes();
                if shapes.below(6) == 0 {
                    meta.resize(shapes.below(9000) as usize, 7);
                }
                let (max_meta, max_pages) = log.max_record();
                meta.truncate(max_meta);
                let pages: Vec<u8> = (0..shapes.below(1 + 4.min(max_pages as u64)))
                    .map(|_| shapes.below(2) as u8)
                    .collect();
                match log.append(record(&pool, &meta, &pages)) {
                    Ok(lsn) => {
                        assert_eq!(lsn.0, model.base + model.records.len() as u64);
                        model.records.push((meta, pages));
                    }
                    Err(AppendError::Full) => {
                        let (used, size) = log.fill();
                        assert!(used > size / 4, "full at {used} of {size}");
                        break;
                    }
                    Err(AppendError::Poisoned(_)) => break,
                    Err(AppendError::TooLarge) => panic!("seed {seed}: within the limit"),
                }
            }
            drop(gate);
            if log.poisoned().is_some() {
                break;
            }
            if rng.below(8) == 0 || log.fill().0 > log.fill().1 / 2 {
                let cut = log.cut();
                // A checkpoint needs the log up to the cut.
                if log.wait_blocking(cut.last()).is_err() {
                    break;
                }
                model.records.drain(..(cut.next.0 - model.base) as usize);
                model.base = cut.next.0;
                from = cut;
                log.release(cut.pos);
            } else if rng.below(3) == 0 {
                let last = Lsn(model.base + model.records.len() as u64 - 1);
                if log.wait_blocking(last).is_err() {
                    break;
                }
            }
        }
        let durable = log.durable().0;
        drop(log);
        device.revive();
        if rng.below(4) == 0 {
            // The crash after the crash: recovery's own write is torn.
            device.crash_after(0, rng.next_u64());
            let again = Log::recover(dyn_device.clone(), ID, from, &pool);
            match again {
                Err(LogError::Io(_)) => {}
                Ok((l, _)) => drop(l), // The ring was full: nothing was written.
                Err(e) => panic!("seed {seed} life {life}: {e}"),
            }
            device.revive();
        }
        let recovered = Log::recover(dyn_device.clone(), ID, from, &pool);
        let (l, replay) = match recovered {
            Ok(r) => r,
            Err(e) => panic!("seed {seed} life {life}: {e}"),
        };
        log = l;
        let found = replayed(replay);
        let upto = model.base + found.len() as u64;
        assert!(
            upto > durable,
            "seed {seed} life {life}: acknowledged {durable}, found to {upto}"
        );
        assert!(
            found.len() <= model.records.len(),
            "seed {seed} life {life}: more than written"
        );
        for (i, (lsn, meta, pages)) in found.iter().enumerate() {
            assert_eq!(*lsn, model.base + i as u64);
            assert!(
                (meta, pages) == (&model.records[i].0, &model.records[i].1),
                "seed {seed} life {life}: record {lsn} is not the one appended"
            );
        }
        model.records.truncate(found.len());
        assert_eq!(log.durable().0 + 1, upto);
    }
}

#[test]
fn survives_many_crashes() {
    for seed in 0..60 {
        lives(seed, 34 + 8 * (seed % 5), 30);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn survives_crashes_of_any_seed(seed in any::<u64>(), extra in 0u64..300) {
        lives(seed, 34 + extra, 12);
    }
}

/// The head of a torn batch stays behind; the next life writes the same page at that batch's place,
/// and is torn too. The dead batch must not become valid: blocks that it refers to may have new
/// owners.
#[test]
fn a_torn_batch_is_never_completed_by_a_later_one() {
    let (device, as_dyn, pool, log) = open(34);
    let kept = log.append(record(&pool, b"kept", &[1])).unwrap();
    log.wait_blocking(kept).unwrap();
    let tear = |log: Arc<Log>, meta: &[u8], blocks: fn(usize) -> bool| {
        *device.fate.lock() = Fate {
            left: Some(0),
            blocks: Some(blocks),
            ..Fate::default()
        };
        let lsn = log.append(record(&pool, meta, &[7, 7, 7])).unwrap();
        log.wait_blocking(lsn).unwrap_err();
        drop(log);
        device.revive();
        let (log, replay) = Log::recover(as_dyn.clone(), ID, LogCut::START, &pool).unwrap();
        let found: Vec<_> = replayed(replay).into_iter().map(|r| r.1).collect();
        assert_eq!(found, [b"kept".to_vec()]);
        log
    };
    let log = tear(log, b"dead", |block| block == 0);
    tear(log, b"next", |block| block > 0);
}

fn open(blocks: u64) -> (Arc<Torn>, Arc<dyn Device>, Arc<FramePool>, Arc<Log>) {
    let device = Torn::new(blocks);
    let as_dyn: Arc<dyn Device> = device.clone();
    let log = Log::create(as_dyn.clone(), ID).unwrap();
    device.writes.lock().clear();
    (device, as_dyn, FramePool::new(2048).unwrap(), log)
}

/// During the preparation the log writes only prepared blocks. Afterwards the header says that the
/// ring is prepared, and the next start does not repeat the preparation.
#[test]
fn the_ring_is_prepared_ahead_of_the_log() {
    let device = Torn::new(66);
    let as_dyn: Arc<dyn Device> = device.clone();
    for block in 0..66 {
        device.disk.tamper(BlockAddr(block), |b| b.fill(0xAA));
    }
    let pool = FramePool::new(512).unwrap();
    let log = Log::create_with(as_dyn.clone(), ID, 16).unwrap();
    let mut records = Vec::new();
    for i in 0..20u8 {
        let lsn = log.append(record(&pool, &[i], &[i])).unwrap();
        log.wait_blocking(lsn).unwrap();
        records.push((lsn.0, vec![i], vec![i]));
    }
    let upto = || log.shared.prepared.wait_for(LogPos(u64::MAX));
    assert!(upto());
    drop(log);
    let zero = |b: &mut [u8; BLOCK_SIZE]| assert!(b.iter().all(|byte| *byte == 0));
    // The header is followed by 20 batches of two blocks; the rest holds zeroes.
    for block in 2 + 40..66 {
        device.disk.tamper(BlockAddr(block), zero);
    }
    device.writes.lock().clear();
    let (log, replay) = Log::recover(as_dyn, ID, LogCut::START, &pool).unwrap();
    assert_eq!(replayed(replay), records);
    drop(log);
    assert_eq!(device.writes.lock().len(), 1, "the mark of the end");
}

#[test]
fn nothing_is_prepared_where_nothing_is_gained() {
    let device = Arc::new(MemDevice::new(66));
    let old = |b: &mut [u8; BLOCK_SIZE]| b.fill(0xAA);
    (0..66).for_each(|block| device.tamper(BlockAddr(block), old));
    let as_dyn: Arc<dyn Device> = device.clone();
    let log = Log::create_with(as_dyn.clone(), ID, 16).unwrap();
    let pool = FramePool::new(512).unwrap();
    let lsn = log.append(record(&pool, &[1], &[1])).unwrap();
    log.wait_blocking(lsn).unwrap();
    drop(log);
    let untouched = |b: &mut [u8; BLOCK_SIZE]| assert!(b.iter().all(|byte| *byte == 0xAA));
    (4..66).for_each(|block| device.tamper(BlockAddr(block), untouched));
    let (_, replay) = Log::recover(as_dyn, ID, LogCut::START, &pool).unwrap();
    assert_eq!(replayed(replay), [(lsn.0, vec![1], vec![1])]);
}

/// A start in the middle of the preparation continues behind the log's end.
#[test]
fn what_is_left_to_prepare_is_prepared_by_the_next_start() {
    let device = Torn::new(66);
    let as_dyn: Arc<dyn Device> = device.clone();
    let pool = FramePool::new(512).unwrap();
    device.crash_after(5, 1); // Two steps, two headers, one batch.
    let log = Log::create_with(as_dyn.clone(), ID, 16);
    let log = log.unwrap();
    let first = log.append(record(&pool, b"first", &[1, 2]));
    let kept = first.is_ok_and(|lsn| log.wait_blocking(lsn).is_ok());
    drop(log);
    device.revive();
    let (log, replay) = Log::recover(as_dyn.clone(), ID, LogCut::START, &pool).unwrap();
    let found = replayed(replay);
    assert!(!kept || found.len() == 1);
    let last = log.append(record(&pool, b"last", &[3])).unwrap();
    log.wait_blocking(last).unwrap();
    assert!(log.shared.prepared.wait_for(LogPos(u64::MAX)));
    drop(log);
    let (_, replay) = Log::recover(as_dyn, ID, LogCut::START, &pool).unwrap();
    assert_eq!(replayed(replay).len(), found.len() + 1);
}

/// Damage to any used sector of any batch but the last is reported. In the last batch damage is a
/// torn write.
#[test]
fn damage_before_the_last_batch_is_reported() {
    let (device, as_dyn, pool, log) = open(34);
    for i in 0..9u8 {
        let pages = vec![i + 1; usize::from(i % 4)];
        let lsn = log.append(record(&pool, &[i; 700], &pages)).unwrap();
        log.wait_blocking(lsn).unwrap();
    }
    drop(log);
    let writes = device.writes.lock().clone();
    assert_eq!(writes.len(), 9);
    for (n, (addr, blocks)) in writes.iter().enumerate() {
        for block in 0..*blocks {
            // The first two sectors of the meta block are used, and all sectors of a page.
            for sector in 0..if block == 0 { 2 } else { 8 } {
                let at = BlockAddr(addr + block);
                let flip = |b: &mut [u8; BLOCK_SIZE]| b[sector * SECTOR + 17] ^= 0x40;
                device.disk.tamper(at, flip);
                device.fate.lock().dead = true;
                match Log::recover(as_dyn.clone(), ID, LogCut::START, &pool) {
                    Err(LogError::DamagedMiddle { later, .. }) => {
                        assert!(n < 8, "the last batch counts as torn");
                        assert!(later > LogPos(addr - 2));
                    }
                    // Recovery took the block for the end and was about to mark it.
                    Err(LogError::Io(_)) => assert_eq!(n, 8, "batch {n} block {block}"),
                    other => panic!("batch {n} block {block} sector {sector}: {other:?}"),
                }
                device.disk.tamper(at, flip);
            }
        }
    }
    device.revive();
    let (_, replay) = Log::recover(as_dyn, ID, LogCut::START, &pool).unwrap();
    assert_eq!(replayed(replay).len(), 9);
}

#[test]
fn damage_is_noticed_across_segments() {
    let (device, as_dyn, pool, log) = open(2 + 64);
    let mut ends = vec![];
    for i in 0..20u8 {
        let lsn = log.append(record(&pool, &[i], &[i, i])).unwrap();
        log.wait_blocking(lsn).unwrap();
        ends.push(log.cut().pos);
    }
    drop(log);
    // A whole segment and more is gone, but a later one exists.
    for addr in 2 + 3..2 + 16 {
        device.disk.tamper(BlockAddr(addr), |b| b.fill(0));
    }
    match Log::recover(as_dyn, ID, LogCut::START, &pool) {
        Err(LogError::DamagedMiddle { at: LogPos(3), .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unreadable_block_is_not_the_end() {
    struct Unreadable(Arc<Torn>);
    impl Device for Unreadable {
        fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
            if (addr.0..addr.0 + into.len() as u64).contains(&6) {
                let e = io::Error::from_raw_os_error(libc::EIO);
                return Io::ready(Err(IoError::new(IoKind::Read, addr, 1, e)));
            }
            self.0.read(addr, into)
        }
        fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
            self.0.write(addr, from)
        }
        fn flush(&self) -> Io<()> {
            Io::ready(Ok(()))
        }
        fn discard(&self, _: BlockAddr, _: u64) -> Io<()> {
            Io::ready(Ok(()))
        }
        fn length(&self) -> u64 {
            self.0.length()
        }
        fn grow(&self, _: u64) -> io::Result<u64> {
            Ok(self.length())
        }
    }
    let (device, _, pool, log) = open(34);
    drop(log);
    let found = Log::recover(Arc::new(Unreadable(device)), ID, LogCut::START, &pool);
    assert!(matches!(found, Err(LogError::Io(_))), "{found:?}");
}

#[test]
fn what_is_queued_together_is_written_together() {
    let (device, _, pool, log) = open(2 + 4096);
    let gate = device.gate.lock();
    let mut last = Lsn(0);
    for i in 0..64u8 {
        last = log.append(record(&pool, b"x", &[i])).unwrap();
    }
    assert_eq!(log.durable(), Lsn(0));
    drop(gate);
    log.wait_blocking(last).unwrap();
    let writes = device.writes.lock().len();
    assert!(writes <= 2, "{writes} writes for 64 records");
}

#[test]
fn it_tells_how_far_it_is_behind() {
    let (device, _, pool, log) = open(2 + 4096);
    assert_eq!(log.queued(), 0);
    let gate = device.gate.lock();
    let mut last = Lsn(0);
    for _ in 0..600 {
        last = log.append(record(&pool, b"x", &[1])).unwrap();
    }
    // At most one batch is being written; each has a block of its own before the pages.
    let queued = log.queued() / BLOCK_SIZE as u64;
    assert!((600 - BATCH_BLOCKS..=604).contains(&queued), "{queued}");
    drop(gate);
    log.wait_blocking(last).unwrap();
    assert_eq!(log.queued(), 0);
}

#[test]
fn what_a_thread_gathers_wakes_a_sleeping_log_once() {
    let (device, _, pool, log) = open(2 + 4096);
    let asleep = || {
        while !log.shared.queue.lock().idle {
            std::thread::yield_now();
        }
    };
    asleep();
    let gather = log.gather();
    let lsns = [1, 2, 3].map(|i| log.append(record(&pool, b"x", &[i])).unwrap());
    assert!(log.shared.queue.lock().idle, "it was woken for the first");
    drop(gather);
    log.wait_blocking(lsns[2]).unwrap();
    assert_eq!(device.writes.lock().len(), 1);
    // A thread that waits for a record it is gathering would wait for ever.
    asleep();
    let _gather = log.gather();
    let lsn = log.append(record(&pool, b"x", &[4])).unwrap();
    log.wait_blocking(lsn).unwrap();
    // A gathering thread does not affect another log.
    let (_, _, pool, other) = open(2 + 4096);
    let _gather = log.gather();
    let lsn = other.append(record(&pool, b"x", &[5])).unwrap();
    while other.durable() < lsn {
        std::thread::yield_now();
    }
}

#[test]
fn batches_are_bounded_and_never_cross_a_segment() {
    let (device, _, pool, log) = open(2 + 4096);
    let mut last = Lsn(0);
    for _ in 0..3 {
        let gate = device.gate.lock();
        for i in 0..700usize {
            last = log.append(record(&pool, &[1; 100], &[3][..i % 2])).unwrap();
        }
        drop(gate);
        log.wait_blocking(last).unwrap();
    }
    let mut total = 0;
    for (addr, blocks) in device.writes.lock().iter() {
        assert!(*blocks <= BATCH_BLOCKS);
        let pos = addr - 2;
        assert_eq!(pos / 1024, (pos + blocks - 1) / 1024, "{pos}+{blocks}");
        total += blocks;
    }
    assert!(total > 1050);
    assert_eq!(last, Lsn(2100));
}

#[test]
fn the_ring_refuses_what_would_overwrite_unreleased_records() {
    let (_, as_dyn, pool, log) = open(34);
    let mut lsns = vec![];
    let e = loop {
        match log.append(record(&pool, b"r", &[1, 2])) {
            Ok(lsn) => lsns.push(lsn),
            Err(e) => break e,
        }
    };
    assert_eq!(e, AppendError::Full);
    log.wait_blocking(*lsns.last().unwrap()).unwrap();
    let cut = log.cut();
    log.release(cut.pos);
    assert_eq!(log.fill().0, 0);
    let lsn = log.append(record(&pool, b"again", &[1, 2])).unwrap();
    log.wait_blocking(lsn).unwrap();
    drop(log);
    let (_, replay) = Log::recover(as_dyn, ID, cut, &pool).unwrap();
    let found = replayed(replay);
    assert_eq!(found, [(lsn.0, b"again".to_vec(), vec![1, 2])]);
}

#[test]
fn records_have_limits() {
    for blocks in [34, 258, 2 + 4096] {
        let (_, as_dyn, pool, log) = open(blocks);
        let (meta, pages) = log.max_record();
        assert!(log.fits(meta, pages));
        assert!(!log.fits(MAX_RECORD_META + 1, 0));
        assert!(!log.fits(0, usize::MAX));
        let page = record(&pool, b"", &[9]).pages.remove(0);
        let big = || Record {
            meta: vec![1; meta],
            pages: smallvec![page.clone(); pages],
        };
        let lsn = log.append(big()).unwrap();
        log.append(Record {
            pages: smallvec![page.clone(); 2000],
            ..big()
        })
        .unwrap_err();
        log.wait_blocking(lsn).unwrap();
        drop(log);
        let (_, replay) = Log::recover(as_dyn, ID, LogCut::START, &pool).unwrap();
        let found = replayed(replay);
        assert_eq!(found, [(lsn.0, vec![1; meta], vec![9; pages])]);
    }
}

#[test]
fn a_failed_write_poisons() {
    let (device, _, pool, log) = open(34);
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    log.on_advance(Arc::new(move || {
        seen.fetch_add(1, Ordering::SeqCst);
    }));
    let good = log.append(record(&pool, b"good", &[])).unwrap();
    log.wait_blocking(good).unwrap();
    device.crash_after(0, 1);
    let gate = device.gate.lock();
    let bad = log.append(record(&pool, b"bad", &[])).unwrap();
    let after = log.append(record(&pool, b"after", &[])).unwrap();
    drop(gate);
    for lsn in [bad, after] {
        let why = log.wait_blocking(lsn).unwrap_err();
        assert!(why.to_string().contains("power lost"), "{why}");
    }
    assert_eq!(log.wait_blocking(good), Ok(()));
    assert_eq!(log.durable(), good);
    device.revive();
    assert!(matches!(
        log.append(record(&pool, b"no", &[])),
        Err(AppendError::Poisoned(_))
    ));
    drop(log);
    assert!(calls.load(Ordering::SeqCst) >= 2);
}

#[test]
fn nothing_is_written_once_an_invariant_is_violated() {
    let (device, _, pool, log) = open(34);
    let gate = device.gate.lock();
    let first = log.append(record(&pool, b"first", &[])).unwrap();
    while log.queued() > 0 {
        // The batch is being written: the next record goes to another one.
        std::thread::yield_now();
    }
    let second = log.append(record(&pool, b"second", &[])).unwrap();
    device.writes.lock().clear();
    log.guard().as_in_release();
    assert!(!invariant!(log.guard() => second < first, "{second} after {first}"));
    assert!(matches!(
        log.append(record(&pool, b"third", &[])),
        Err(AppendError::Poisoned(_))
    ));
    drop(gate);
    assert_eq!(log.wait_blocking(first), Ok(()), "it was on its way");
    let why = log.wait_blocking(second).unwrap_err();
    assert!(why.to_string().contains("2 after 1"), "{why}");
    assert_eq!(log.durable(), first);
    assert_eq!(device.writes.lock().len(), 1);
}

#[test]
fn closing_wakes_whoever_waits() {
    let (_, _, _, log) = open(34);
    let wait = log.wait(Lsn(1));
    drop(log);
    let (done, io) = Io::<()>::pair();
    drop(done);
    assert!(io.wait().is_err());
    assert_eq!(pollster(wait), Err(LogPoisonError("it was closed".into())));
}

fn pollster<F: std::future::Future>(f: F) -> F::Output {
    struct Thread(std::thread::Thread, AtomicBool);
    impl std::task::Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::SeqCst);
            self.0.unpark();
        }
    }
    let flag = Arc::new(Thread(std::thread::current(), AtomicBool::new(false)));
    let waker = std::task::Waker::from(Arc::clone(&flag));
    let mut f = std::pin::pin!(f);
    loop {
        let mut cx = std::task::Context::from_waker(&waker);
        if let std::task::Poll::Ready(out) = f.as_mut().poll(&mut cx) {
            return out;
        }
        while !flag.1.swap(false, Ordering::SeqCst) {
            std::thread::park();
        }
    }
}

#[test]
fn many_threads_append_and_await() {
    let (_, as_dyn, pool, log) = open(2 + 4096);
    std::thread::scope(|s| {
        for t in 0..4u8 {
            let (log, pool) = (&log, &pool);
            s.spawn(move || {
                for i in 0..100u8 {
                    let lsn = log.append(record(pool, &[t, i], &[])).unwrap();
                    if i % 2 == 0 {
                        pollster(log.wait(lsn)).unwrap();
                    } else {
                        log.wait_blocking(lsn).unwrap();
                    }
                    assert!(log.durable() >= lsn);
                }
            });
        }
    });
    drop(log);
    let (_, replay) = Log::recover(as_dyn, ID, LogCut::START, &pool).unwrap();
    let mut next = [0u8; 4];
    for r in replay {
        let r = r.unwrap();
        assert_eq!(r.meta[1], next[usize::from(r.meta[0])]);
        next[usize::from(r.meta[0])] += 1;
    }
    assert_eq!(next, [100; 4]);
}

#[test]
fn foreign_and_broken_logs_are_refused() {
    let (device, as_dyn, pool, log) = open(34);
    drop(log);
    let other = LogId([1; 16]);
    let recover = |id, from| Log::recover(as_dyn.clone(), id, from, &pool).map(|_| ());
    assert!(matches!(
        recover(other, LogCut::START),
        Err(LogError::WrongId(ID))
    ));
    let absurd = LogCut {
        pos: LogPos(u64::MAX),
        next: Lsn(1),
    };
    assert!(matches!(
        recover(ID, absurd),
        Err(LogError::Inconsistent { .. })
    ));
    device.disk.tamper(BlockAddr(0), |b| b[3] ^= 1);
    recover(ID, LogCut::START).unwrap();
    device.disk.tamper(BlockAddr(1), |b| b[40] ^= 1);
    assert!(matches!(recover(ID, LogCut::START), Err(LogError::NotALog)));
    let tiny: Arc<dyn Device> = Arc::new(MemDevice::new(33));
    assert!(matches!(Log::create(tiny, ID), Err(LogError::TooSmall)));
}

#[test]
fn replay_needs_no_more_frames_than_its_pages() {
    let (_, as_dyn, pool, log) = open(258);
    for i in 0..40u8 {
        log.append(record(&pool, &[i], &[i])).unwrap();
    }
    log.wait_blocking(Lsn(40)).unwrap();
    drop(log);
    let small = FramePool::new(16).unwrap();
    let (_log, replay) = Log::recover(as_dyn.clone(), ID, LogCut::START, &small).unwrap();
    for (i, r) in replay.enumerate() {
        assert!(r.unwrap().pages[0].iter().all(|b| usize::from(*b) == i));
    }
    // If all pages are kept, they do not fit: an error, and then the end.
    let (_log, mut replay) = Log::recover(as_dyn, ID, LogCut::START, &small).unwrap();
    let kept: Vec<_> = replay.by_ref().map_while(Result::ok).collect();
    assert!(kept.len() < 40);
    assert!(replay.next().is_none());
}
