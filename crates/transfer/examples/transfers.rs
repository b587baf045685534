//! Measures the cost of transfers: `cargo run --release -p weir-transfer --example transfers -- DIR
//! [FILES] [MIB]`.
//!
//! One engine with its aggregate in DIR, both sides of each transfer on one thread, without a
//! network: a volume of FILES empty files (1,000,000) in directories of 1,000, transferred whole;
//! an update after 100 of them have changed; and MIB mebibytes (1,024) of data in one file.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // A measurement.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use weir_base::{Clock, Ino, Rng, SystemClock, SystemRng};
use weir_store::FramePool;
use weir_store::aggregate::{Aggregate, Env, FolderLocation};
use weir_transfer::pipe::{Pipe, Ran};
use weir_transfer::send::SendOptions;
use weir_volume::{CreateHow, Engine, EngineContext, EngineOptions, SetAttr, Stability, Volume};

fn transfer(what: &str, from: &Arc<Volume>, base: Option<&str>, name: &str, to: &Arc<Volume>) {
    let begin = Instant::now();
    let mut pipe = Pipe::new(from, base, name, to, SendOptions::default(), 0).unwrap();
    let mut steps = 0u64;
    while pipe.step(0, &mut |_| {}).unwrap() == Ran::More {
        steps += 1;
    }
    let secs = begin.elapsed().as_secs_f64();
    let mib = pipe.receiver.progress().logical as f64 / 1048576.0;
    println!(
        "{what}: {mib:.1} MiB in {steps} frames, {secs:.2} s, {:.0} MiB/s",
        mib / secs
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap());
    let mut number = |or: u64| args.next().map_or(or, |text| text.parse().unwrap());
    let (files, mib) = (number(1_000_000), number(1024));
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let env = Env {
        pool: FramePool::new(262_144).unwrap(),
        clock: Arc::clone(&clock),
        rng: Arc::clone(&rng),
    };
    let (agg, replay) = Aggregate::create(&FolderLocation::new(&dir).into(), env).unwrap();
    let engine = Engine::open(agg, replay, &*rng, EngineOptions::default()).unwrap();
    let volume = |name: &str| {
        engine
            .create_volume(name, (0, 0), 0o755, clock.current_time(), &*rng)
            .unwrap()
    };
    let (src, dst) = (volume("src"), volume("dst"));
    engine.protect("dst").unwrap();
    let set = SetAttr::default();
    let create = |dir: Ino, name: &str| {
        let mut cx = EngineContext::new(clock.current_time());
        let how = CreateHow::Guarded;
        src.drive_blocking(&mut cx, |cx| {
            src.create(cx, dir, name.as_bytes(), how, &set)
        })
        .unwrap()
        .value
        .ino
    };
    let mut made: Vec<Ino> = Vec::new();
    let mut dir = src.root();
    for i in 0..files {
        if i % 1000 == 0 {
            let name = format!("d{}", i / 1000);
            let mut cx = EngineContext::new(clock.current_time());
            let done = src.drive_blocking(&mut cx, |cx| {
                src.mkdir(cx, src.root(), name.as_bytes(), &set)
            });
            dir = done.unwrap().value.ino;
        }
        made.push(create(dir, &format!("file-{i}")));
    }
    src.snapshot_create("files", clock.current_time()).unwrap();
    engine.cp_now().unwrap();
    transfer("whole", &src, None, "files", &dst);
    for i in 0..100 {
        let ino = made[(i * made.len() / 100).min(made.len() - 1)];
        let mut cx = EngineContext::new(clock.current_time());
        src.drive_blocking(&mut cx, |cx| {
            src.write(cx, ino, 0, &[i as u8; 4096], Stability::FileSync)
        })
        .unwrap();
    }
    src.snapshot_create("changed", clock.current_time())
        .unwrap();
    transfer("100 changed", &src, Some("files"), "changed", &dst);
    let big = create(src.root(), "big");
    let mut data = vec![0; 1 << 20];
    for at in 0..mib {
        rng.fill(&mut data);
        let mut cx = EngineContext::new(clock.current_time());
        src.drive_blocking(&mut cx, |cx| {
            src.write(cx, big, at << 20, &data, Stability::Unstable)
        })
        .unwrap();
    }
    src.snapshot_create("data", clock.current_time()).unwrap();
    engine.cp_now().unwrap();
    transfer("data", &src, Some("changed"), "data", &dst);
    engine.shutdown().unwrap();
}
