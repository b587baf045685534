//! The simulated disks themselves: what they promise, and that they break every promise they do not
//! make.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use weir_base::BlockAddr;
use weir_sim::disk::{DiskId, DiskOptions, Fault, World};
use weir_sim::rand::Choices;
use weir_store::{Class, Device, Frame, FramePool, IoKind};

const DATA: DiskId = DiskId(0);
const LOG: DiskId = DiskId(1);

fn world() -> Arc<World> {
    let options = DiskOptions {
        length: 64,
        max: 128,
        durable: false,
    };
    World::new(&[
        options,
        DiskOptions {
            durable: true,
            ..options
        },
    ])
}

fn filled(pool: &Arc<FramePool>, with: u8, count: usize) -> Vec<Frame> {
    (0..count)
        .map(|_| {
            let mut frame = pool.alloc(Class::Foreground).unwrap();
            frame.fill(with);
            frame.freeze()
        })
        .collect()
}

#[test]
fn flushed_and_durable_writes_survive_and_others_suffer_every_fate() {
    let pool = FramePool::new(256).unwrap();
    let (mut old, mut new, mut torn, mut reordered) = (0, 0, 0, 0);
    for seed in 0..200 {
        let world = world();
        let (data, log) = (world.device(DATA), world.device(LOG));
        data.write(BlockAddr(0), filled(&pool, 1, 4))
            .wait()
            .unwrap();
        data.flush().wait().unwrap();
        data.write(BlockAddr(0), filled(&pool, 2, 2))
            .wait()
            .unwrap();
        data.write(BlockAddr(2), filled(&pool, 2, 2))
            .wait()
            .unwrap();
        log.write(BlockAddr(5), filled(&pool, 3, 1)).wait().unwrap();
        let after = world.reboot(&Choices::new(seed));
        assert!(data.flush().wait().is_err(), "the old machine is off");
        assert_eq!(after.peek(LOG, 5), [3; 4096]);
        let blocks: Vec<_> = (0..4).map(|n| after.peek(DATA, n)).collect();
        for block in &blocks {
            assert!(
                block
                    .chunks(512)
                    .all(|sector| sector == [1; 512] || sector == [2; 512])
            );
            old += u32::from(*block == [1; 4096]);
            new += u32::from(*block == [2; 4096]);
            torn += u32::from(*block != [1; 4096] && *block != [2; 4096]);
        }
        reordered += u32::from(blocks[0] == [1; 4096] && blocks[2] == [2; 4096]);
    }
    for (what, seen) in [
        ("old", old),
        ("new", new),
        ("torn", torn),
        ("reordered", reordered),
    ] {
        assert!(seen > 10, "{what} was seen {seen} times");
    }
}

#[test]
fn a_flush_covers_only_what_was_complete_when_it_started() {
    let pool = FramePool::new(64).unwrap();
    let mut lost = 0;
    for seed in 0..50 {
        let world = world();
        let data = world.device(DATA);
        world.hold(DATA, true);
        let write = data.write(BlockAddr(1), filled(&pool, 7, 1));
        let flush = data.flush();
        let held = world.held();
        assert_eq!(held.len(), 2);
        for operation in held {
            assert!(world.release(operation.id));
        }
        write.wait().unwrap();
        flush.wait().unwrap();
        let after = world.reboot(&Choices::new(seed));
        lost += u32::from(after.peek(DATA, 1) != [7; 4096]);
    }
    assert!(lost > 0);
}

#[test]
fn power_fails_at_the_chosen_event() {
    let pool = FramePool::new(64).unwrap();
    let world = world();
    let log = world.device(LOG);
    world.crash_at(2);
    log.write(BlockAddr(0), filled(&pool, 1, 1)).wait().unwrap();
    assert!(!world.crashed());
    assert!(log.write(BlockAddr(1), filled(&pool, 1, 1)).wait().is_err());
    assert!(world.crashed());
    let after = world.reboot(&Choices::new(1));
    assert_eq!(after.peek(LOG, 0), [1; 4096]);
}

#[test]
fn faults_hit_what_they_are_aimed_at() {
    let pool = FramePool::new(64).unwrap();
    let world = world();
    let data = world.device(DATA);
    world.inject(Fault {
        disk: DATA,
        on: IoKind::Write,
        blocks: Some(10..12),
        skip: 1,
        times: Some(1),
    });
    let write = |at| data.write(BlockAddr(at), filled(&pool, 1, 2)).wait();
    assert!(write(0).is_ok());
    assert!(write(9).is_ok(), "skipped");
    assert!(write(0).is_ok());
    assert!(write(11).is_err());
    assert!(write(11).is_ok(), "once");
    world.set_host_free(10);
    assert!(data.grow(75).is_err());
    assert_eq!(data.grow(70).unwrap(), 70);
    assert!(data.grow(75).is_err());
    assert!(
        data.write(BlockAddr(70), filled(&pool, 1, 1))
            .wait()
            .is_err()
    );
}

#[test]
fn a_scrambler_completes_everything_in_another_order() {
    let pool = FramePool::new(256).unwrap();
    let world = world();
    let data = world.device(DATA);
    world.hold(DATA, true);
    world.hold_reads(DATA, true);
    let scrambler = world.scramble(Choices::new(3));
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (data, pool) = (&data, &pool);
            scope.spawn(move || {
                for round in 0..50u64 {
                    let at = BlockAddr(u64::from(thread) * 10 + round % 10);
                    data.write(at, filled(pool, thread, 1)).wait().unwrap();
                    let frame = pool.alloc(Class::Foreground).unwrap();
                    let got = data.read(at, vec![frame]).wait().unwrap();
                    assert_eq!(got[0][0], thread);
                }
            });
        }
    });
    drop(scrambler);
    assert!(world.held().is_empty());
}

#[test]
fn a_crash_undoes_discards_that_were_not_flushed_wholly_or_in_part() {
    let thin = DiskOptions {
        length: 4096,
        max: 4096,
        durable: false,
    };
    let (mut none, mut some, mut all) = (0, 0, 0);
    for seed in 0..60 {
        let world = World::new(&[thin]);
        let data = world.device(DATA);
        data.discard(BlockAddr(0), 1024).wait().unwrap();
        data.flush().wait().unwrap();
        data.discard(BlockAddr(1024), 1024).wait().unwrap();
        assert_eq!(world.holes(DATA), 2048);
        let after = world.reboot(&Choices::new(seed));
        match after.holes(DATA) {
            1024 => none += 1,
            2048 => all += 1,
            holes => {
                assert!((1025..2048).contains(&holes), "{holes}");
                some += 1;
            }
        }
        let data = after.device(DATA);
        data.provision(BlockAddr(0), 2048).unwrap();
        let again = after.reboot(&Choices::new(seed));
        assert_eq!(again.holes(DATA), 0, "what was provisioned stays so");
    }
    assert!(none > 5 && some > 5 && all > 5, "{none} {some} {all}");
}

#[test]
#[should_panic(expected = "which has no space")]
fn a_write_to_discarded_space_is_found() {
    let world = world();
    let data = world.device(DATA);
    data.discard(BlockAddr(8), 8).wait().unwrap();
    assert!(
        data.write(BlockAddr(4), vec![Frame::zero(); 5])
            .wait()
            .is_err()
    );
    let _ = world.copy();
}
