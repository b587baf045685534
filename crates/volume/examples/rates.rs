//! Measures the CPU time of single operations, from memory: `cargo run --release -p weir-volume
//! --example rates`. The device and the log are in memory as well, so only this crate, the cache
//! and the trees are measured.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // A tool for people.
#![allow(clippy::disallowed_methods)] // It measures.

use std::sync::Arc;
use std::time::Instant;

use weir_base::{Ino, Rng, SeededRng, SystemClock, Time};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{FramePool, MemDevice};
use weir_volume::{
    CreateHow, Engine, EngineContext, EngineOptions, SetAttr, Stability, Stop, Volume,
};

fn measure(what: &str, times: u64, mut op: impl FnMut(u64)) {
    let start = Instant::now();
    for i in 0..times {
        op(i);
    }
    let each = start.elapsed().as_nanos() as f64 / times as f64;
    println!("{what:28} {each:9.0} ns");
}

fn run<T>(vol: &Volume, now: Time, op: impl FnMut(&mut EngineContext) -> Result<T, Stop>) -> T {
    vol.drive_blocking(&mut EngineContext::new(now), op)
        .unwrap()
}

fn main() {
    let rng = Arc::new(SeededRng::new(1));
    let env = Env {
        pool: FramePool::new(1 << 18).unwrap(),
        clock: Arc::new(SystemClock::new()),
        rng: Arc::clone(&rng) as Arc<dyn Rng>,
    };
    let device = Arc::new(MemDevice::new(1 << 19));
    let log = Arc::new(MemDevice::new(1 << 16));
    let (agg, replay) = Aggregate::create_on(device, log, env).unwrap();
    let engine = Engine::open(agg, replay, &*rng, EngineOptions::default()).unwrap();
    let now = Time { secs: 1, nanos: 0 };
    let vol = engine
        .create_volume("v", (0, 0), 0o755, now, &*rng)
        .unwrap();
    let root = vol.root();
    let set = SetAttr::default();

    let n = 100_000;
    let mut files: Vec<Ino> = Vec::new();
    measure("create", n, |i| {
        let name = format!("file{i}");
        files.push(
            run(&vol, now, |cx| {
                vol.create(cx, root, name.as_bytes(), CreateHow::Guarded, &set)
            })
            .value
            .ino,
        );
    });
    let names: Vec<String> = (0..n).map(|i| format!("file{i}")).collect();
    let pick = |i: u64| (i.wrapping_mul(7_919) % n) as usize;
    for state in ["overlay", "tree"] {
        measure(&format!("getattr ({state})"), 1_000_000, |i| {
            run(&vol, now, |cx| vol.getattr(cx, files[pick(i)]));
        });
        measure(&format!("lookup ({state})"), 1_000_000, |i| {
            run(&vol, now, |cx| {
                vol.lookup(cx, root, names[pick(i)].as_bytes())
            });
        });
        engine.cp_now().unwrap();
    }
    let big = files[0];
    let page = vec![7u8; 4096];
    let mib = vec![7u8; 1 << 20];
    measure("write 1 MiB unstable", 256, |i| {
        run(&vol, now, |cx| {
            vol.write(cx, big, i << 20, &mib, Stability::Unstable)
        });
    });
    for state in ["overlay", "tree"] {
        measure(&format!("read 4 KiB ({state})"), 1_000_000, |_| {
            let off = rng.below(65_536) * 4096;
            run(&vol, now, |cx| vol.read(cx, big, off, 4096));
        });
        measure(&format!("read 256 KiB ({state})"), 20_000, |_| {
            let off = rng.below(1020) * (256 << 10);
            run(&vol, now, |cx| vol.read(cx, big, off, 256 << 10));
        });
        engine.cp_now().unwrap();
    }
    for how in [Stability::Unstable, Stability::FileSync] {
        measure(&format!("write 4 KiB {how:?}"), 40_000, |_| {
            let off = rng.below(65_536) * 4096;
            run(&vol, now, |cx| vol.write(cx, big, off, &page, how));
        });
        engine.cp_now().unwrap();
        measure(&format!("write 100 B {how:?}"), 20_000, |_| {
            let off = rng.below(65_536) * 4096 + 77;
            run(&vol, now, |cx| vol.write(cx, big, off, &page[..100], how));
        });
        engine.cp_now().unwrap();
    }
    let start = Instant::now();
    engine.cp_now().unwrap();
    println!("an empty checkpoint {:?}", start.elapsed());
    measure("rename", 50_000, |i| {
        let to = format!("moved{i}");
        run(&vol, now, |cx| {
            vol.rename(cx, root, names[i as usize].as_bytes(), root, to.as_bytes())
        });
    });
    measure("remove", 50_000, |i| {
        let name = names[50_000 + i as usize].as_bytes();
        run(&vol, now, |cx| vol.remove(cx, root, name));
    });
    let start = Instant::now();
    engine.cp_now().unwrap();
    println!("a checkpoint with 100,000 changes {:?}", start.elapsed());
}
