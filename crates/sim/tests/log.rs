//! The intent log on a disk that loses power: what was acknowledged is found again, in order, and
//! nothing is invented.
//!
//! The log's disk is held, so that the test decides when a batch becomes durable and which records
//! queue up behind it; the whole run follows from its seed.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::sync::Arc;

use weir_sim::disk::{DiskId, DiskOptions, Fault, World};
use weir_sim::rand::{Choices, seeds};
use weir_store::log::{AppendError, Log, LogCut, LogError, LogId, Record};
use weir_store::{Class, Device, Frame, FramePool, IoKind};

const DISK: DiskId = DiskId(0);
const ID: LogId = LogId([7; 16]);

fn world() -> Arc<World> {
    World::new(&[DiskOptions {
        length: 257,
        max: 257,
        durable: true,
    }])
}

/// Returns the content of the record with this LSN, which is recomputed when it is read back.
fn contents(salt: u64, lsn: u64, pool: &Arc<FramePool>) -> (Vec<u8>, Vec<Frame>) {
    let choices = Choices::new(salt ^ lsn.wrapping_mul(0x9e37_79b9));
    let len = match choices.below(8) {
        0 => choices.between(0, 20_000),
        _ => choices.between(0, 300),
    };
    let meta = (0..len).map(|_| choices.bits() as u8).collect();
    let pages = match choices.below(6) {
        0..=2 => 0,
        3 | 4 => 1,
        _ => choices.below(12),
    };
    let pages = (0..pages)
        .map(|_| {
            let mut frame = pool.alloc(Class::Foreground).unwrap();
            let word = choices.bits().to_le_bytes();
            for chunk in frame.chunks_mut(8) {
                chunk.copy_from_slice(&word);
            }
            frame.freeze()
        })
        .collect();
    (meta, pages)
}

struct Tester {
    choices: Choices,
    pool: Arc<FramePool>,
    world: Arc<World>,
    log: Arc<Log>,
    /// Beginning of replay, as a superblock would record it.
    from: LogCut,
    /// Salt of each record that may be found from `from` on, by position.
    salts: VecDeque<u64>,
    last: u64,
    salt: u64,
}

impl Tester {
    fn new(seed: u64) -> Tester {
        let world = world();
        let log = Log::create(world.device(DISK), ID).unwrap();
        world.hold(DISK, true);
        Tester {
            choices: Choices::new(seed),
            pool: FramePool::new(4096).unwrap(),
            world,
            log,
            from: LogCut::START,
            salts: VecDeque::new(),
            last: 0,
            salt: seed,
        }
    }

    /// Waits until the log's thread has submitted what it can.
    fn wait_for_log(&self) {
        let (log, last) = (&self.log, self.last);
        self.world.wait_until(|held| {
            !held.is_empty() || log.durable().0 == last || log.poisoned().is_some()
        });
    }

    fn append(&mut self) {
        let lsn = self.last + 1;
        let (meta, pages) = contents(self.salt, lsn, &self.pool);
        let record = Record {
            meta,
            pages: pages.into_iter().collect(),
        };
        match self.log.append(record) {
            Ok(got) => {
                assert_eq!(got.0, lsn);
                self.last = lsn;
                self.salts.push_back(self.salt);
            }
            Err(AppendError::Full) => self.free(),
            Err(error) => panic!("append: {error}"),
        }
        self.wait_for_log();
    }

    fn release_one(&self) {
        if let Some(held) = self.world.held().first() {
            let before = self.log.durable();
            self.world.release(held.id);
            let log = &self.log;
            self.world
                .wait_until(|_| log.durable() > before || log.poisoned().is_some());
        }
        self.wait_for_log();
    }

    /// Releases the log up to now, as a checkpoint does.
    fn free(&mut self) {
        let cut = self.log.cut();
        while self.log.durable() < cut.last() {
            self.wait_for_log();
            self.release_one();
        }
        let gone = cut.next.0 - self.from.next.0;
        self.salts.drain(..gone as usize);
        self.from = cut;
        self.log.release(cut.pos);
    }

    /// Power fails and the log is recovered; `crashes` times it fails again during recovery.
    fn crash(&mut self, crashes: u64) {
        let acknowledged = self.log.durable().0;
        let mut world = self.world.reboot(&self.choices);
        for _ in 0..crashes {
            world.crash_at(1);
            let again = Log::recover(world.device(DISK), ID, self.from, &self.pool);
            assert!(again.is_err() || !world.crashed());
            world = world.reboot(&self.choices);
        }
        let (log, replay) = Log::recover(world.device(DISK), ID, self.from, &self.pool)
            .unwrap_or_else(|error| panic!("recovery: {error}"));
        let mut next = self.from.next.0;
        for record in replay {
            let record = record.unwrap();
            assert_eq!(record.lsn.0, next);
            let salt = self.salts[(next - self.from.next.0) as usize];
            let (meta, pages) = contents(salt, next, &self.pool);
            assert_eq!(record.meta, meta, "meta of record {next}");
            assert!(
                record
                    .pages
                    .iter()
                    .map(|f| &f[..])
                    .eq(pages.iter().map(|f| &f[..])),
                "pages of record {next}"
            );
            next += 1;
        }
        let found = next - 1;
        assert!(
            (acknowledged..=self.last).contains(&found),
            "found up to {found}; acknowledged {acknowledged}, appended {}",
            self.last
        );
        assert_eq!(log.durable().0, found);
        self.salts.truncate((found + 1 - self.from.next.0) as usize);
        self.last = found;
        // Lost records' numbers are used again, for other contents.
        self.salt = self.choices.bits();
        world.hold(DISK, true);
        self.world = world;
        self.log = log;
    }
}

impl Drop for Tester {
    fn drop(&mut self) {
        self.world.release_all(DISK);
    }
}

#[test]
fn acknowledged_records_survive_any_crash() {
    for seed in seeds(150) {
        eprintln!("seed {seed}");
        let mut tester = Tester::new(seed);
        for _ in 0..120 {
            match tester.choices.below(40) {
                0 => {
                    let again = tester.choices.below(3);
                    tester.crash(again);
                }
                1 => tester.free(),
                2..=14 => tester.release_one(),
                _ => tester.append(),
            }
        }
        tester.crash(0);
    }
}

#[test]
fn a_failed_write_poisons_and_what_was_acknowledged_is_found() {
    for seed in seeds(20) {
        eprintln!("seed {seed}");
        let mut tester = Tester::new(seed);
        for _ in 0..10 {
            tester.append();
            tester.release_one();
        }
        tester.world.inject(Fault {
            disk: DISK,
            on: IoKind::Write,
            blocks: None,
            skip: tester.choices.below(3),
            times: Some(1),
        });
        tester.world.hold(DISK, false);
        while let Some(held) = tester.world.held().first() {
            tester.world.release(held.id);
        }
        let mut refused = 0;
        for _ in 0..10 {
            let lsn = tester.last + 1;
            let (meta, pages) = contents(tester.salt, lsn, &tester.pool);
            let record = Record {
                meta,
                pages: pages.into_iter().collect(),
            };
            match tester.log.append(record) {
                Ok(lsn) => {
                    tester.last = lsn.0;
                    tester.salts.push_back(tester.salt);
                    if tester.log.wait_blocking(lsn).is_err() {
                        refused += 1;
                    }
                }
                Err(AppendError::Poisoned(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused >= 7, "a poisoned log accepted records: {refused}");
        tester.crash(0);
    }
}

#[test]
fn a_damaged_batch_in_the_middle_is_reported_and_not_taken_for_the_end() {
    let (mut reported, mut silent) = (0, 0);
    for seed in seeds(40) {
        let mut tester = Tester::new(seed);
        tester.world.hold(DISK, false);
        for _ in 0..12 {
            tester.append();
            let last = weir_base::Lsn(tester.last);
            tester.log.wait_blocking(last).unwrap();
        }
        let (used, _) = tester.log.fill();
        let world = tester.world.reboot(&tester.choices);
        // Somewhere in the first half of what was written: later batches prove that it was durable.
        let damaged = 1 + tester.choices.below(used / 4096 / 2);
        let before = world.peek(DISK, damaged);
        world.damage(DISK, damaged, |block| block[77] ^= 1);
        assert_ne!(before, world.peek(DISK, damaged));
        match Log::recover(world.device(DISK), ID, LogCut::START, &tester.pool) {
            Err(LogError::DamagedMiddle { .. } | LogError::Inconsistent { .. }) => reported += 1,
            Err(other) => panic!("seed {seed}: {other}"),
            // A byte that no checksum covers: the rest of a head or meta block.
            Ok((log, replay)) => {
                let found = replay.found();
                assert_eq!(
                    found, tester.last,
                    "seed {seed}: damage at {damaged} lost records silently"
                );
                assert_eq!(log.durable().0, tester.last);
                silent += 1;
            }
        }
    }
    assert!(reported > silent, "reported {reported}, harmless {silent}");
}

#[test]
fn a_log_that_cannot_be_read_is_an_error_and_not_the_end() {
    let mut tester = Tester::new(5);
    tester.world.hold(DISK, false);
    for _ in 0..20 {
        tester.append();
    }
    tester
        .log
        .wait_blocking(weir_base::Lsn(tester.last))
        .unwrap();
    let world = tester.world.reboot(&tester.choices);
    let fault = Fault {
        disk: DISK,
        on: IoKind::Read,
        blocks: None,
        skip: 1,
        times: Some(1),
    };
    world.inject(fault);
    let device: Arc<dyn Device> = world.device(DISK);
    assert!(matches!(
        Log::recover(Arc::clone(&device), ID, LogCut::START, &tester.pool),
        Err(LogError::Io(_))
    ));
    // The fault was transient: nothing was changed, nothing is lost.
    let (_log, replay) = Log::recover(device, ID, LogCut::START, &tester.pool).unwrap();
    assert_eq!(replay.found(), tester.last);
}
