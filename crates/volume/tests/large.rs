//! Large stable writes: through the log while it keeps up, in a consistency point when not.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::io;
use std::sync::Arc;

use common::{create, now, read, run};
use parking_lot::Mutex;
use weir_base::{BlockAddr, Lsn, ManualClock, SeededRng};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{Device, Frame, FrameMut, FramePool, Io, MemDevice};
use weir_volume::{Cx, Engine, EngineOptions, Stability, Stop};

/// A device whose writes wait as long as somebody holds the gate.
struct Gated {
    disk: MemDevice,
    gate: Mutex<()>,
}

impl Device for Gated {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        self.disk.read(addr, into)
    }
    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        drop(self.gate.lock());
        self.disk.write(addr, from)
    }
    fn flush(&self) -> Io<()> {
        self.disk.flush()
    }
    fn discard(&self, addr: BlockAddr, blocks: u64) -> Io<()> {
        self.disk.discard(addr, blocks)
    }
    fn length(&self) -> u64 {
        self.disk.length()
    }
    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.disk.grow(blocks)
    }
}

const LARGE: usize = 64 << 10;

#[test]
fn large_stable_writes_leave_a_log_that_falls_behind() {
    let log = Arc::new(Gated {
        disk: MemDevice::new(64 << 8),
        gate: Mutex::default(),
    });
    let device = Arc::new(MemDevice::new(64 << 8));
    let rng = Arc::new(SeededRng::new(7));
    let env = || Env {
        pool: FramePool::new(8192).unwrap(),
        clock: Arc::new(ManualClock::default()),
        rng: Arc::clone(&rng) as _,
    };
    let (agg, replay) =
        Aggregate::create_on(Arc::clone(&device) as _, Arc::clone(&log) as _, env()).unwrap();
    let engine = Engine::open(agg, replay, &*rng, EngineOptions::default()).unwrap();
    let vol = engine
        .create_volume("vol1", (0, 0), 0o755, now(), &*rng)
        .unwrap();
    let file = create(&vol, vol.root(), "f");
    engine.cp_now().unwrap();

    let fill = |i: u64| vec![i as u8 + 1; LARGE];
    let at = |i: u64| i * LARGE as u64;
    let mut cx = Cx::new(now());
    let held = log.gate.lock();
    let mut logged = 0;
    let waits = loop {
        match vol.write(
            &mut cx,
            file,
            at(logged),
            &fill(logged),
            Stability::FileSync,
        ) {
            Ok(done) => assert!(done.lsn.is_some_and(|lsn| lsn > Lsn(0))),
            Err(stop) => break stop,
        }
        logged += 1;
    };
    assert!(matches!(waits, Stop::Wait(_)), "{waits:?}");
    // Two MiB wait, and a batch of one MiB at most is being written.
    assert!((32..=48).contains(&logged), "{logged}");
    // What is small goes on through the log.
    let mut small = Cx::new(now());
    let done = vol
        .write(
            &mut small,
            file,
            at(logged + 1),
            b"small",
            Stability::FileSync,
        )
        .unwrap();
    assert!(done.lsn.is_some());
    drop(held);
    // The same call goes on when the consistency point is there; nothing goes into the log.
    let done = vol
        .drive_blocking(&mut cx, |cx| {
            vol.write(cx, file, at(logged), &fill(logged), Stability::FileSync)
        })
        .unwrap();
    assert_eq!(done.lsn, None);
    // With nobody waiting, the log is the way again.
    let done = run(&vol, |cx| {
        vol.write(cx, file, 0, &fill(77), Stability::FileSync)
    });
    let last = done.unwrap().lsn;
    assert!(last.is_some());
    engine.wait_durable(last).unwrap();
    drop((vol, engine));

    let (agg, replay) = Aggregate::open_on(device as _, log as _, env()).unwrap();
    let engine = Engine::open(agg, replay, &*rng, EngineOptions::default()).unwrap();
    let vol = engine.volume("vol1").unwrap();
    assert_eq!(read(&vol, file, 0, LARGE), fill(77));
    for i in 1..=logged {
        assert_eq!(read(&vol, file, at(i), LARGE), fill(i), "{i}");
    }
    assert_eq!(read(&vol, file, at(logged + 1), 5), b"small");
}
