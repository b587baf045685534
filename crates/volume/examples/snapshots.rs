//! Measures the cost of snapshots under load: `cargo run --release -p weir-volume --example
//! snapshots -- DIR`.
//!
//! One thread overwrites 64 KiB at random places of a 256 MiB file, a tenth of the writes stable.
//! It runs first alone; then while snapshots are made every 5 ms, up to 1,000, and 500 more with
//! those there; then while all of them are deleted.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // A measurement.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_base::{Clock, Rng, SystemClock, SystemRng};
use weir_store::FramePool;
use weir_store::aggregate::{Aggregate, Env, FolderLocation};
use weir_volume::{CreateHow, Engine, EngineContext, EngineOptions, SetAttr, Stability};

const FILE: u64 = 256 << 20;
const WRITE: usize = 64 << 10;

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).unwrap());
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let env = Env {
        pool: FramePool::new(65_536).unwrap(),
        clock: Arc::clone(&clock),
        rng: Arc::clone(&rng),
    };
    let (agg, replay) = Aggregate::create(&FolderLocation::new(&dir).into(), env).unwrap();
    let engine = Engine::open(agg, replay, &*rng, EngineOptions::default()).unwrap();
    let vol = engine
        .create_volume("v", (0, 0), 0o755, clock.current_time(), &*rng)
        .unwrap();
    let file = {
        let mut cx = EngineContext::new(clock.current_time());
        let how = CreateHow::Guarded;
        let attrs = SetAttr::default();
        vol.drive_blocking(&mut cx, |cx| vol.create(cx, vol.root(), b"f", how, &attrs))
            .unwrap()
            .value
            .ino
    };
    let write = |off: u64, how| {
        let data = vec![off as u8; WRITE];
        let mut cx = EngineContext::new(clock.current_time());
        let done = vol
            .drive_blocking(&mut cx, |cx| vol.write(cx, file, off, &data, how))
            .unwrap();
        engine.wait_durable(done.lsn).unwrap();
    };
    for off in (0..FILE).step_by(WRITE) {
        write(off, Stability::Unstable);
    }
    engine.cp_now().unwrap();

    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let off = rng.next_u64() % (FILE / WRITE as u64) * WRITE as u64;
                let how = match rng.next_u64() % 10 {
                    0 => Stability::FileSync,
                    _ => Stability::Unstable,
                };
                write(off, how);
                written.fetch_add(WRITE as u64, Ordering::Relaxed);
            }
        });
        let rate = |name: &str, work: &mut dyn FnMut()| {
            let (at, begin) = (written.load(Ordering::Relaxed), Instant::now());
            work();
            let bytes = written.load(Ordering::Relaxed) - at;
            let secs = begin.elapsed().as_secs_f64();
            println!(
                "{name}: {:.0} MiB/s over {secs:.1} s",
                bytes as f64 / secs / 1048576.0
            );
        };
        rate("alone", &mut || std::thread::sleep(Duration::from_secs(6)));
        // The time of a small durable change meanwhile.
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..500 {
            let begin = Instant::now();
            let mut cx = EngineContext::new(clock.current_time());
            let done = vol
                .drive_blocking(&mut cx, |cx| {
                    vol.setattr(cx, vol.root(), &SetAttr::default(), None)
                })
                .unwrap();
            engine.wait_durable(done.lsn).unwrap();
            times.push(begin.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        print(&mut times, "a small change");
        let mut made = 0;
        for (name, count) in [("up to 1,000", 1000), ("500 more", 500)] {
            let mut times: Vec<Duration> = Vec::new();
            rate(&format!("making {name}"), &mut || {
                for _ in 0..count {
                    let begin = Instant::now();
                    vol.snapshot_create(&format!("s{made}"), clock.current_time())
                        .unwrap();
                    times.push(begin.elapsed());
                    made += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            print(&mut times, "making one");
        }
        println!("held by snapshots: {} MiB", vol.snapshot_used() >> 20);
        rate("with 1,500", &mut || {
            std::thread::sleep(Duration::from_secs(6))
        });
        rate("deleting all", &mut || {
            for i in 0..made {
                vol.snapshot_delete(&format!("s{i}")).unwrap();
            }
            while engine.reclaiming() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        rate("afterwards", &mut || {
            std::thread::sleep(Duration::from_secs(6))
        });
        stop.store(true, Ordering::Relaxed);
    });
    engine.shutdown().unwrap();
}

fn print(times: &mut [Duration], what: &str) {
    times.sort();
    let at = |p: usize| times[(times.len() * p / 1000).min(times.len() - 1)];
    println!(
        "  {what}: median {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
        at(500),
        at(990),
        at(999),
        times[times.len() - 1]
    );
}
