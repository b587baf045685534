//! Read-ahead, on an engine that has just been opened.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::sync::Arc;

use common::{Machine, create, fixed_time, write};
use weir_base::{Ino, Rng, SeededRng};
use weir_store::cache::CacheStats;
use weir_volume::{Engine, EngineContext, Stability, Stop, Volume};

const FILE: u64 = 24 << 20;
const PART: usize = 1 << 20;

/// The eight bytes at `off`, a multiple of eight, of file `n`.
fn word(n: u64, off: u64) -> [u8; 8] {
    ((n << 56) | off)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .to_le_bytes()
}

struct TestVolume {
    engine: Engine,
    vol: Arc<Volume>,
    /// Number of reads that had to wait for the device.
    waited: u64,
}

impl TestVolume {
    /// Two files of [`FILE`] bytes, none of them in memory.
    fn new(machine: &Machine) -> (TestVolume, [Ino; 2]) {
        let (engine, vol) = machine.format();
        let files = ["a", "b"].map(|name| create(&vol, vol.root(), name));
        for (n, ino) in (0..).zip(files) {
            for off in (0..FILE).step_by(PART) {
                let words = (off..off + PART as u64).step_by(8);
                let data: Vec<u8> = words.flat_map(|off| word(n, off)).collect();
                write(&vol, ino, off, &data, Stability::Unstable);
            }
            engine.cp_now().unwrap();
        }
        engine.shutdown().unwrap();
        drop((vol, engine));
        let (engine, vol) = machine.open();
        let opened = TestVolume {
            engine,
            vol,
            waited: 0,
        };
        (opened, files)
    }

    fn read(&mut self, n: u64, ino: Ino, off: u64, len: usize) {
        let mut cx = EngineContext::new(fixed_time());
        let mut waited = false;
        let out = loop {
            match self.vol.read(&mut cx, ino, off, len) {
                Ok(out) => break out,
                Err(stop) => {
                    waited |= matches!(stop, Stop::Fetch(_));
                    self.vol.resume_blocking(&mut cx, stop).unwrap();
                }
            }
        };
        self.waited += u64::from(waited);
        let bytes: Vec<u8> = out.pages.iter().flat_map(|page| page.to_vec()).collect();
        assert_eq!(out.len, len);
        for (at, found) in (off..).step_by(8).zip(bytes[out.first..][..len].chunks(8)) {
            assert_eq!(found, word(n, at), "file {n} at {at}");
        }
    }

    fn stats(&self) -> CacheStats {
        self.engine.aggregate().cache().stats()
    }
}

fn machine() -> Machine {
    Machine {
        // A tenth of the files' size.
        frames: 1200,
        ..Machine::new(5)
    }
}

#[test]
fn a_sequential_reader_hardly_ever_waits() {
    for len in [4096, 65_536, PART] {
        let machine = machine();
        let (mut opened, files) = TestVolume::new(&machine);
        for off in (0..FILE).step_by(len) {
            opened.read(0, files[0], off, len);
        }
        let stats = opened.stats();
        // The first two requests, a few that come before another thread has verified the blocks
        // read for them, and those for which the memory for read-ahead is less than a request.
        let requests = FILE / len as u64;
        let expected = if len == PART {
            requests
        } else {
            6 + requests / 50
        };
        assert!(opened.waited <= expected, "{len}: {}", opened.waited);
        assert!(stats.ahead_wasted <= 64, "{len}: {stats:?}");
    }
}

#[test]
fn two_files_and_two_places_are_four_streams() {
    let machine = machine();
    let (mut opened, files) = TestVolume::new(&machine);
    let half = FILE / 2;
    for off in (0..half).step_by(16_384) {
        for (n, ino) in (0..).zip(files) {
            for start in [0, half] {
                opened.read(n, ino, start + off, 16_384);
            }
        }
    }
    assert!(
        opened.waited <= 4 * 4 + 2 * FILE / 16_384 / 50,
        "{} {:?}",
        opened.waited,
        opened.stats()
    );
    assert!(opened.stats().ahead_wasted <= 64, "{:?}", opened.stats());
}

#[test]
fn random_readers_do_not_pay() {
    let machine = machine();
    let (mut opened, files) = TestVolume::new(&machine);
    let rng = SeededRng::new(9);
    let requests = 5000;
    for _ in 0..requests {
        let n = rng.next_u64() % 2;
        let off = rng.next_u64() % (FILE / 4096) * 4096;
        opened.read(n, files[n as usize], off, 4096);
    }
    let stats = opened.stats();
    assert!(stats.ahead <= requests * 3 / 100, "{stats:?}");
}

/// Read-ahead blocks have the file's present contents, not those at the time of the prediction.
#[test]
fn a_writer_before_the_reader_is_seen() {
    let machine = machine();
    let (mut opened, files) = TestVolume::new(&machine);
    for off in (0..8 << 20).step_by(65_536) {
        opened.read(0, files[0], off, 65_536);
        // Far enough to be read ahead by now, and on the device again before it is read.
        let next = off + (1 << 20);
        let words = (next..next + 4096).step_by(8);
        let data: Vec<u8> = words.flat_map(|off| word(0, off)).collect();
        let (vol, file) = (&opened.vol, files[0]);
        write(vol, file, next, &vec![0xEE; 4096], Stability::Unstable);
        if off % (4 << 20) == 0 {
            opened.engine.cp_now().unwrap();
        }
        write(vol, file, next, &data, Stability::Unstable);
        if off % (3 << 20) == 0 {
            opened.engine.cp_now().unwrap();
        }
    }
}
