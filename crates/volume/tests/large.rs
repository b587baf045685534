//! Large stable data: written once, in place, and found there after a crash.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::sync::Arc;

use common::{Machine, crash, create, fixed_time, read, run, write};
use weir_base::{BlockAddr, Ino};
use weir_store::{Device, MemDevice};
use weir_volume::check::Fault;
use weir_volume::{Engine, EngineContext, FsError, Stability, Stop, Volume};

const BLOCK: usize = 4096;

/// Returns bytes that identify their file block and version.
fn contents(blocks: std::ops::Range<u64>, version: u64) -> Vec<u8> {
    let mut data = Vec::new();
    for block in blocks {
        let mut page = [0; BLOCK];
        page.chunks_exact_mut(16).for_each(|chunk| {
            let (a, b) = chunk.split_at_mut(8);
            a.copy_from_slice(&(block + 1).to_le_bytes());
            b.copy_from_slice(&version.to_le_bytes());
        });
        data.extend_from_slice(&page);
    }
    data
}

/// Returns the blocks of the device that hold this page.
fn copies(m: &Machine, page: &[u8]) -> Vec<BlockAddr> {
    let mut found = Vec::new();
    for addr in 0..m.device.length() {
        m.device.tamper(BlockAddr(addr), |bytes| {
            if bytes[..] == *page {
                found.push(BlockAddr(addr));
            }
        });
    }
    found
}

/// Returns the number of blocks that could be reserved after a checkpoint.
fn free(engine: &Engine) -> u64 {
    for _ in 0..2 {
        engine.cp_now().unwrap();
    }
    let space = engine.aggregate().space();
    space.reclaim();
    let stats = space.stats();
    assert_eq!(stats.reserved, 0);
    stats.free
}

/// Runs the first step of a large write: its data is in flight.
fn begin(vol: &Volume, cx: &mut EngineContext, file: Ino, off: u64, data: &[u8]) {
    let stop = vol.write(cx, file, off, data, Stability::FileSync);
    assert_eq!(stop.unwrap_err(), Stop::Land);
}

fn quiet(seed: u64) -> (Machine, Engine, Arc<Volume>, Ino) {
    let m = Machine {
        background: false,
        behind: 0,
        // Half of it is more than a test writes to it.
        log: Arc::new(MemDevice::new(16 << 8)),
        ..Machine::new(seed)
    };
    let (engine, vol) = m.format();
    let file = create(&vol, vol.root(), "f");
    engine.cp_now().unwrap();
    (m, engine, vol, file)
}

#[test]
fn it_is_written_once_and_survives() {
    let (m, engine, vol, file) = quiet(1);
    let data = contents(0..64, 1);
    let before = engine.aggregate().log().fill().0;
    let mut cx = EngineContext::new(fixed_time());
    begin(&vol, &mut cx, file, 0, &data);
    assert_eq!(vol.resume_blocking(&mut cx, Stop::Land), Ok(()));
    assert!(
        read(&vol, file, 0, 1).is_empty(),
        "it is not seen before its record"
    );
    let done = vol
        .write(&mut cx, file, 0, &data, Stability::FileSync)
        .unwrap();
    engine.wait_durable(done.lsn).unwrap();
    let logged = engine.aggregate().log().fill().0 - before;
    assert!(logged <= BLOCK as u64, "{logged} bytes logged");
    assert_eq!(read(&vol, file, 0, data.len()), data);
    crash(engine, vol);

    let report = m.check();
    assert!(report.clean(), "{report}");
    let (engine, vol) = m.open();
    assert_eq!(engine.recovered().records, 2);
    assert_eq!(read(&vol, file, 0, data.len()), data);
    engine.shutdown().unwrap();
    drop((engine, vol));
    let report = m.check();
    assert!(report.clean(), "{report}");
    assert_eq!(report.blocks, 64);
    for page in data.chunks(BLOCK) {
        assert_eq!(copies(&m, page).len(), 1, "nobody wrote it again");
    }
    let (_engine, vol) = m.open();
    assert_eq!(read(&vol, file, 0, data.len()), data);
}

/// With threads that flush for all requests, and the log for a single request.
#[test]
fn it_goes_through_a_log_that_keeps_up() {
    for (behind, logged) in [(1 << 20, true), (0, false)] {
        let m = Machine {
            behind,
            ..Machine::new(10)
        };
        let (engine, vol) = m.format();
        let file = create(&vol, vol.root(), "f");
        let before = engine.aggregate().log().fill().0;
        for i in 0..8 {
            let data = contents(i * 16..i * 16 + 16, 1);
            let off = i * 16 * BLOCK as u64;
            let done = run(&vol, |cx| {
                vol.write(cx, file, off, &data, Stability::FileSync)
            });
            engine.wait_durable(done.unwrap().lsn).unwrap();
        }
        let bytes = engine.aggregate().log().fill().0 - before;
        assert_eq!(bytes >= 8 << 16, logged, "{bytes} bytes logged");
        std::thread::scope(|s| {
            for i in 0..8 {
                let vol = &vol;
                s.spawn(move || {
                    for version in 2..20 {
                        let data = contents(i * 16..i * 16 + 16, version);
                        let off = i * 16 * BLOCK as u64;
                        write(vol, file, off, &data, Stability::FileSync);
                    }
                });
            }
        });
        crash(engine, vol);
        let report = m.check();
        assert!(report.clean(), "{report}");
        let (_engine, vol) = m.open();
        assert_eq!(read(&vol, file, 0, 1 << 20), contents(0..128, 19));
    }
}

#[test]
fn its_edges_go_through_the_log() {
    let (m, engine, vol, file) = quiet(2);
    write(&vol, file, 0, &contents(0..70, 1), Stability::FileSync);
    let mut wanted = contents(0..70, 1);
    let (off, len) = (100, 200_000);
    let new = contents(0..50, 2);
    write(&vol, file, off as u64, &new[..len], Stability::FileSync);
    wanted[off..off + len].copy_from_slice(&new[..len]);
    // Beyond the end, in the middle of a block.
    let off = 80 * BLOCK + 7;
    write(&vol, file, off as u64, &new[..len], Stability::FileSync);
    wanted.resize(off, 0);
    wanted.extend_from_slice(&new[..len]);
    assert_eq!(read(&vol, file, 0, 1 << 20), wanted);
    crash(engine, vol);
    let (engine, vol) = m.open();
    assert_eq!(read(&vol, file, 0, 1 << 20), wanted);
    engine.shutdown().unwrap();
    drop((engine, vol));
    let report = m.check();
    assert!(report.clean(), "{report}");
    let (_engine, vol) = m.open();
    assert_eq!(read(&vol, file, 0, 1 << 20), wanted);
}

/// While the log refers to blocks, no other page gets them, even if their page is gone; a
/// checkpoint later all but those of the last contents are free.
#[test]
fn blocks_are_free_again_when_the_log_refers_to_them_no_more() {
    let (m, engine, vol, file) = quiet(3);
    let other = create(&vol, vol.root(), "g");
    let empty = free(&engine);
    for version in 1..=20 {
        write(
            &vol,
            file,
            0,
            &contents(0..64, version),
            Stability::FileSync,
        );
        // Overwritten by small pages, and cut.
        write(&vol, file, 5000, b"small", Stability::FileSync);
        let size = weir_volume::SetAttr {
            size: Some(40 * BLOCK as u64 + 11),
            ..weir_volume::SetAttr::default()
        };
        run(&vol, |cx| vol.setattr(cx, file, &size, None)).unwrap();
        write(
            &vol,
            other,
            0,
            &contents(0..64, version),
            Stability::FileSync,
        );
    }
    run(&vol, |cx| vol.remove(cx, vol.root(), b"g")).unwrap();
    let wanted = read(&vol, file, 0, 1 << 20);
    crash(engine, vol);
    let report = m.check();
    assert!(report.clean(), "{report}");
    let (engine, vol) = m.open();
    assert_eq!(read(&vol, file, 0, 1 << 20), wanted);
    assert_eq!(empty - free(&engine), 41, "its blocks alone");
    assert_eq!(read(&vol, file, 0, 1 << 20), wanted);
    drop((engine, vol));
    let report = m.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn what_is_given_up_half_way_leaves_nothing() {
    let (_m, engine, vol, file) = quiet(4);
    let before = free(&engine);
    for landed in [false, true] {
        let mut cx = EngineContext::new(fixed_time());
        begin(&vol, &mut cx, file, 0, &contents(0..64, 1));
        if landed {
            vol.resume_blocking(&mut cx, Stop::Land).unwrap();
        }
        drop(cx);
        assert_eq!(free(&engine), before, "{landed}");
        assert!(read(&vol, file, 0, 1).is_empty());
    }
}

#[test]
fn snapshots_and_deleted_volumes_have_theirs() {
    let (m, engine, vol, file) = quiet(5);
    write(&vol, file, 0, &contents(0..64, 1), Stability::FileSync);
    vol.snapshot_create("s", fixed_time()).unwrap();
    write(&vol, file, 0, &contents(0..32, 2), Stability::FileSync);
    crash(engine, vol);
    let (engine, vol) = m.open();
    engine.cp_now().unwrap();
    let then = vol.open_snapshot("s").unwrap();
    assert_eq!(read(&then, file, 0, 64 * BLOCK), contents(0..64, 1));
    let mut wanted = contents(0..32, 2);
    wanted.extend(contents(32..64, 1));
    assert_eq!(read(&vol, file, 0, 64 * BLOCK), wanted);
    drop(then);
    let before = free(&engine);
    let gone = engine
        .create_volume("gone", (0, 0), 0o755, fixed_time(), &*m.rng)
        .unwrap();
    let large = create(&gone, gone.root(), "large");
    write(&gone, large, 0, &contents(0..64, 3), Stability::FileSync);
    engine.delete_volume("gone").unwrap();
    drop(gone);
    assert!(before - free(&engine) <= 2, "a node more at most");
    drop((engine, vol));
    let report = m.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn damage_in_the_log_s_data_costs_what_it_covers() {
    let (m, engine, vol, file) = quiet(6);
    let data = contents(0..64, 1);
    write(&vol, file, 0, &data, Stability::FileSync);
    crash(engine, vol);
    let [addr] = copies(&m, &data[17 * BLOCK..18 * BLOCK])[..] else {
        panic!("one block has these contents")
    };
    m.device.tamper(addr, |bytes| bytes[77] ^= 1);
    for recovered in [false, true] {
        let report = m.check();
        assert!(
            matches!(report.faults[..], [Fault::Data { ino, block: 17, .. }] if ino == file),
            "{report}"
        );
        let (engine, vol) = m.open();
        assert_eq!(engine.recovered().records > 0, !recovered);
        assert_eq!(read(&vol, file, 0, 1 << 20), data[..17 * BLOCK]);
        let bad = run(&vol, |cx| vol.read(cx, file, 17 * BLOCK as u64, 1));
        assert_eq!(bad.err(), Some(FsError::Io));
        assert_eq!(
            read(&vol, file, 18 * BLOCK as u64, 1 << 20),
            data[18 * BLOCK..]
        );
        engine.shutdown().unwrap();
    }
    let (engine, vol) = m.open();
    write(&vol, file, 0, &data, Stability::FileSync);
    assert_eq!(read(&vol, file, 0, 1 << 20), data);
    engine.shutdown().unwrap();
    drop((engine, vol));
    assert!(m.check().clean());
}

/// A log with more changes than memory can hold is applied in parts, with checkpoints in between:
/// those must not take blocks that the rest of the log refers to.
#[test]
fn recovery_in_parts_takes_nothing_from_the_rest_of_the_log() {
    let (mut m, engine, vol, file) = quiet(7);
    let other = create(&vol, vol.root(), "g");
    engine.cp_now().unwrap();
    // More than the frames of the next run hold.
    const SMALL: u64 = 120;
    // Data is stored where a checkpoint of the next run begins to allocate; most of what that
    // checkpoint writes comes before it in the log.
    let large = |i: u64| contents(i * 64..i * 64 + 64, 1);
    for i in 0..SMALL {
        write(
            &vol,
            other,
            i << 16,
            &contents(0..12, i),
            Stability::FileSync,
        );
        if i % 4 == 3 {
            let at = i / 4 * 64 * BLOCK as u64;
            write(&vol, file, at, &large(i / 4), Stability::FileSync);
        }
    }
    crash(engine, vol);
    m.frames = 1024;
    let (engine, vol) = m.open();
    assert!(engine.recovered().points > 0);
    for i in 0..SMALL {
        assert_eq!(read(&vol, other, i << 16, 12 * BLOCK), contents(0..12, i));
        if i % 4 == 3 {
            let at = i / 4 * 64 * BLOCK as u64;
            assert_eq!(read(&vol, file, at, 64 * BLOCK), large(i / 4));
        }
    }
    engine.shutdown().unwrap();
    drop((engine, vol));
    let report = m.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn a_large_commit_writes_once_too() {
    let (m, engine, vol, file) = quiet(8);
    for at in (0..2000).step_by(200) {
        let data = contents(at..at + 200, 1);
        write(&vol, file, at * BLOCK as u64, &data, Stability::Unstable);
    }
    let before = engine.aggregate().log().fill().0;
    let mut cx = EngineContext::new(fixed_time());
    let mut rounds = 0;
    let done = loop {
        match vol.commit(&mut cx, file, 0, 0) {
            Ok(done) => break done,
            Err(Stop::Land) => vol.resume_blocking(&mut cx, Stop::Land).unwrap(),
            Err(stop) => panic!("{stop:?}"),
        }
        rounds += 1;
    };
    assert_eq!(rounds, 1);
    engine.wait_durable(done.lsn).unwrap();
    let logged = engine.aggregate().log().fill().0 - before;
    assert!(logged < 64 * BLOCK as u64, "{logged} bytes logged");
    crash(engine, vol);
    let report = m.check();
    assert!(report.clean(), "{report}");
    let (engine, vol) = m.open();
    for at in (0..2000).step_by(200) {
        let read = read(&vol, file, at * BLOCK as u64, 200 * BLOCK);
        assert_eq!(read, contents(at..at + 200, 1));
    }
    engine.shutdown().unwrap();
    drop((engine, vol));
    assert!(m.check().clean());
    for block in [0, 1, 1023, 1024, 1999] {
        assert_eq!(copies(&m, &contents(block..block + 1, 1)).len(), 1);
    }
}

/// Pages that change during a commit: contents that the log already has are newer, and the others
/// are as old as the commit.
#[test]
fn a_commit_is_not_undone_by_what_happens_meanwhile() {
    let (m, engine, vol, file) = quiet(9);
    write(&vol, file, 0, &contents(0..100, 1), Stability::Unstable);
    let mut cx = EngineContext::new(fixed_time());
    assert_eq!(vol.commit(&mut cx, file, 0, 0).unwrap_err(), Stop::Land);
    let page = |block: u64, version| contents(block..block + 1, version);
    write(
        &vol,
        file,
        10 * BLOCK as u64,
        &page(10, 2),
        Stability::FileSync,
    );
    write(
        &vol,
        file,
        20 * BLOCK as u64,
        &page(20, 2),
        Stability::Unstable,
    );
    write(
        &vol,
        file,
        30 * BLOCK as u64,
        &contents(30..60, 2),
        Stability::FileSync,
    );
    let size = weir_volume::SetAttr {
        size: Some(90 * BLOCK as u64),
        ..weir_volume::SetAttr::default()
    };
    run(&vol, |cx| vol.setattr(cx, file, &size, None)).unwrap();
    vol.resume_blocking(&mut cx, Stop::Land).unwrap();
    // As if another client continued: the page is unstable when the record is written.
    let done = vol.commit(&mut cx, file, 0, 0).unwrap();
    engine.wait_durable(done.lsn).unwrap();
    let mut wanted = contents(0..90, 1);
    for block in [10, 20].into_iter().chain(30..60) {
        let at = block as usize * BLOCK;
        wanted[at..at + BLOCK].copy_from_slice(&page(block, 2));
    }
    assert_eq!(read(&vol, file, 0, 1 << 20), wanted);
    crash(engine, vol);
    let report = m.check();
    assert!(report.clean(), "{report}");
    let (engine, vol) = m.open();
    assert_eq!(read(&vol, file, 0, 1 << 20), wanted);
    let rest = free(&engine);
    write(&vol, file, 0, &contents(0..90, 3), Stability::FileSync);
    assert_eq!(free(&engine), rest, "nothing has leaked");
    drop((engine, vol));
    let report = m.check();
    assert!(report.clean(), "{report}");
}
