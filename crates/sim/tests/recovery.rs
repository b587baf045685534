//! A log that holds more than memory does is recovered in parts, whatever fails on the way.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

use std::sync::Arc;

use weir_base::{Ino, Time};
use weir_sim::machine::{Machine, RunningEngine, Sizes};
use weir_sim::rand::Choices;
use weir_volume::{CreateHow, EngineContext, FsError, SetAttr, Stability, Stop, Volume};

const FILES: u64 = 40;
const BLOCKS: u64 = 48;
const BLOCK: usize = 4096;

fn run<T>(
    vol: &Volume,
    op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
) -> Result<T, FsError> {
    vol.drive_blocking(&mut EngineContext::new(Time::EPOCH), op)
}

fn name(file: u64) -> Vec<u8> {
    format!("file {file}").into_bytes()
}

/// Returns the content of a block after write `turn`; every third block is written twice.
fn contents(file: u64, block: u64, turn: u64) -> Vec<u8> {
    let fill = file * 1000 + block * 10 + turn;
    fill.to_le_bytes().repeat(BLOCK / 8)
}

/// Files with names and data in the log alone; every fourth one is removed again.
fn fill(running: &RunningEngine) {
    let vol = &running.volume;
    let write = |ino: Ino, file: u64, block: u64, turn: u64| {
        let data = contents(file, block, turn);
        let at = block * BLOCK as u64;
        run(vol, |cx| vol.write(cx, ino, at, &data, Stability::FileSync)).unwrap();
    };
    let attrs = SetAttr::default();
    for file in 0..FILES {
        let name = name(file);
        let how = CreateHow::Guarded;
        let made = run(vol, |cx| vol.create(cx, vol.root(), &name, how, &attrs)).unwrap();
        for block in 0..BLOCKS {
            write(made.value.ino, file, block, 0);
        }
        for block in (0..BLOCKS).step_by(3) {
            write(made.value.ino, file, block, 1);
        }
        if file > 0 && (file - 1) % 4 == 3 {
            let name = self::name(file - 1);
            run(vol, |cx| vol.remove(cx, vol.root(), &name)).unwrap();
        }
    }
    let last = run(vol, |cx| vol.setattr(cx, vol.root(), &attrs, None));
    running.engine.wait_durable(last.unwrap().lsn).unwrap();
}

fn verify(vol: &Arc<Volume>) {
    for file in 0..FILES {
        let name = name(file);
        let found = run(vol, |cx| vol.lookup(cx, vol.root(), &name));
        if file % 4 == 3 && file + 1 < FILES {
            assert_eq!(found.map(|f| f.ino), Err(FsError::NotFound), "file {file}");
            continue;
        }
        let ino = found.unwrap().ino;
        for block in 0..BLOCKS {
            let at = block * BLOCK as u64;
            let got = run(vol, |cx| vol.read(cx, ino, at, BLOCK)).unwrap();
            let turn = u64::from(block % 3 == 0);
            assert_eq!(got.to_vec(), contents(file, block, turn), "{file}/{block}");
        }
    }
}

#[test]
fn a_log_larger_than_memory_is_recovered_in_parts() {
    let mut interrupted = 0u32;
    for seed in 0..16 {
        let choices = Choices::new(seed);
        let sizes = Sizes {
            log_blocks: 16_385,
            frames: 16_384,
            ..Sizes::small()
        };
        let mut machine = Machine::new(sizes, &choices).unwrap();
        let running = machine.boot().unwrap();
        fill(&running);
        machine.world.crash();
        drop(running);
        machine.reboot(&choices);
        // Half of what the log holds.
        machine.set_frames(1024);
        // In every fourth case recovery is left alone: only such a one shows how many parts it
        // takes.
        let whole = seed % 4 == 0;
        for again in 0..if whole { 0 } else { choices.between(1, 6) } {
            machine.world.crash_at(choices.between(1, 60));
            let started = machine.boot();
            if let (Err(error), false) = (&started, machine.world.crashed()) {
                panic!("seed {seed}, recovery {again}: {error}");
            }
            interrupted += u32::from(started.is_err());
            drop(started);
            machine.reboot(&choices);
            machine.check().unwrap();
        }
        let running = machine.boot().unwrap();
        let parts = running.engine.recovered().points;
        assert!(!whole || parts > 1, "seed {seed}: {parts} parts");
        verify(&running.volume);
        running.engine.shutdown().unwrap();
        drop(running);
        machine.check().unwrap();
        let running = machine.boot().unwrap();
        assert_eq!(running.engine.recovered().records, 0);
        verify(&running.volume);
    }
    assert!(interrupted > 12, "interrupted recoveries: {interrupted}");
}
