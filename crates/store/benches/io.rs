//! Measurements from which the constants of frame pool, cache, log and device are derived. Prints
//! the costs on this machine.
//!
//! `cargo bench -p weir-store --bench io -- [FOLDER] [NAME...]`: FOLDER (default:
//! the system's temporary folder) decides which disk is measured; the names are
//! `frame`, `cache`, `log`, `device` and `staging`, all without any.

#![allow(clippy::unwrap_used, missing_docs)] // A measurement that fails may stop.

use std::collections::VecDeque;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_base::{BlockAddr, Clock, Generation, Lsn, Rng, SeededRng, SystemClock};
use weir_store::log::{Log, LogId, Record};
use weir_store::{
    BlockPtr, Cache, Class, Device, FileDevice, FileOptions, Frame, FrameMut, FramePool,
};

const RUN: Duration = Duration::from_secs(2);

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let is_name = |a: &String| ["frame", "cache", "log", "device", "staging"].contains(&a.as_str());
    let folder = args
        .iter()
        .find(|a| !is_name(a))
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let want = |name: &str| !args.iter().any(is_name) || args.iter().any(|a| a == name);
    let folder = tempfile::tempdir_in(folder).unwrap();
    let clock = SystemClock::new();
    if want("frame") {
        frame(&clock);
    }
    if want("cache") {
        cache(&clock);
    }
    if want("log") {
        log(&clock, folder.path());
    }
    if want("device") {
        device(&clock, folder.path());
    }
    if want("staging") {
        staging(&clock, folder.path());
    }
}

/// Prints nanoseconds for each of `n` calls.
fn each(clock: &SystemClock, what: &str, n: u64, mut f: impl FnMut(u64)) {
    let start = clock.monotonic();
    for i in 0..n {
        f(i);
    }
    let took = clock.monotonic() - start;
    println!("{what:<52} {:>9.1} ns", took.as_nanos() as f64 / n as f64);
}

fn frame(clock: &SystemClock) {
    let pool = FramePool::new(1 << 16).unwrap();
    each(clock, "frame: take and return", 5_000_000, |_| {
        black_box(pool.alloc(Class::Foreground));
    });
    let f = pool.zeroed(Class::Foreground).unwrap().freeze();
    each(clock, "frame: share and drop", 10_000_000, |_| {
        black_box(f.clone());
    });
    each(clock, "frame: checksum", 1_000_000, |_| {
        black_box(weir_store::block::page_crc(&f));
    });
}

fn cache(clock: &SystemClock) {
    const PAGES: u64 = 1 << 16;
    let pool = FramePool::new(PAGES as usize * 2).unwrap();
    let device = Arc::new(weir_store::MemDevice::new(PAGES));
    let cache = Cache::new(pool.clone(), device);
    let ptr = |n| BlockPtr {
        addr: BlockAddr(n),
        birth: Generation(1),
        crc: 0,
    };
    for n in 0..PAGES {
        cache.insert(ptr(n), pool.alloc(Class::Cp).unwrap().freeze());
    }
    let rng = SeededRng::new(1);
    let random: Vec<BlockPtr> = (0..1 << 20).map(|_| ptr(rng.below(PAGES))).collect();
    each(clock, "cache: hit, one page", 5_000_000, |_| {
        black_box(cache.get(&ptr(77)));
    });
    each(clock, "cache: hit, random over 256 MiB", 1 << 22, |i| {
        black_box(cache.get(&random[i as usize & ((1 << 20) - 1)]));
    });
    each(clock, "cache: hit, 16 neighbours, each", 1 << 22, |i| {
        black_box(cache.get(&ptr((i * 16 / 16) % PAGES)));
    });
    std::thread::scope(|s| {
        for t in 0..2 {
            let (cache, random) = (&cache, &random);
            s.spawn(move || {
                each(clock, "cache: hit, random, two threads", 1 << 22, |i| {
                    black_box(cache.get(&random[(i + t * 999) as usize & ((1 << 20) - 1)]));
                });
            });
        }
    });
    let mut next = PAGES;
    each(clock, "cache: insert with eviction", 1 << 20, |_| {
        let f = cache.alloc(Class::Foreground).unwrap().freeze();
        cache.insert(ptr(next), f);
        next += 1;
    });
}

/// Returns the processor time of the whole process so far: on a shared machine the steadiest
/// measure.
fn cpu() -> Duration {
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    // SAFETY: all-zero is a value of this plain structure, and it outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

fn percentile(sorted: &[Duration], p: usize) -> f64 {
    sorted[(sorted.len() - 1) * p / 100].as_nanos() as f64 / 1000.0
}

/// Keeps `window` records of `pages` pages in flight for a while.
fn drive(clock: &SystemClock, log: &Log, page: &Frame, what: &str, pages: usize, window: usize) {
    let mut flying: VecDeque<(Lsn, Duration)> = VecDeque::new();
    let mut times = Vec::new();
    let (start, busy) = (clock.monotonic(), cpu());
    loop {
        let now = clock.monotonic();
        while flying.front().is_some_and(|(lsn, _)| *lsn <= log.durable()) {
            times.push(now - flying.pop_front().unwrap().1);
        }
        if now - start > RUN {
            break;
        }
        if flying.len() < window {
            let record = Record {
                meta: vec![1; 200],
                pages: (0..pages).map(|_| page.clone()).collect(),
            };
            flying.push_back((log.append(record).unwrap(), now));
        } else {
            log.wait_blocking(flying[0].0).unwrap();
        }
        let (used, size) = log.fill();
        if used > size / 2 {
            let cut = log.cut();
            log.wait_blocking(cut.last()).unwrap();
            log.release(cut.pos);
        }
    }
    times.sort_unstable();
    let rate = times.len() as f64 / (clock.monotonic() - start).as_secs_f64();
    println!(
        "{what:<52} {rate:>9.0} /s {:>7.1} MB/s  p50 {:>8.1} us  p99 {:>8.1} us  CPU {:>6.1} us",
        rate * pages as f64 * 4096.0 / 1e6,
        percentile(&times, 50),
        percentile(&times, 99),
        (cpu() - busy).as_nanos() as f64 / 1e3 / times.len() as f64,
    );
}

fn log(clock: &SystemClock, folder: &Path) {
    let pool = FramePool::new(1 << 12).unwrap();
    let mut page = pool.zeroed(Class::Cp).unwrap();
    SeededRng::new(3).fill(&mut page[..]);
    let page = page.freeze();
    for (name, options) in [
        ("calling thread", FileOptions::log()),
        (
            "no disk",
            FileOptions {
                durable: false,
                ..FileOptions::log()
            },
        ),
    ] {
        let device: Arc<dyn Device> = if name == "no disk" {
            Arc::new(weir_store::MemDevice::new(1 << 14))
        } else {
            let options = options.create((256 << 20) / 4096 + 2);
            Arc::new(FileDevice::open(&folder.join(name), options).unwrap())
        };
        let start = clock.monotonic();
        let log = Log::create(Arc::clone(&device), LogId([1; 16])).unwrap();
        println!("log ({name}): created in {:?}", clock.monotonic() - start);
        for window in [1, 8, 64] {
            drive(
                clock,
                &log,
                &page,
                &format!("log ({name}): 4 KiB, {window} in flight"),
                1,
                window,
            );
        }
        drive(
            clock,
            &log,
            &page,
            &format!("log ({name}): 64 KiB, 64 in flight"),
            16,
            64,
        );
        drive(
            clock,
            &log,
            &page,
            &format!("log ({name}): no page, 64 in flight"),
            0,
            64,
        );
        let cut = log.cut();
        log.wait_blocking(cut.last()).unwrap();
        log.release(cut.pos);
        // A log full of small batches, which is the slowest to read.
        let mut last = Lsn(0);
        while let Ok(lsn) = log.append(Record {
            meta: vec![1; 200],
            pages: [page.clone()].into_iter().collect(),
        }) {
            last = lsn;
            if lsn.0.is_multiple_of(4) {
                log.wait_blocking(lsn).unwrap();
            }
        }
        log.wait_blocking(last).unwrap();
        drop(log);
        let start = clock.monotonic();
        let (_log, replay) = Log::recover(device, LogId([1; 16]), cut, &pool).unwrap();
        let surveyed = clock.monotonic() - start;
        let records = replay.inspect(|r| assert!(r.is_ok())).count();
        println!(
            "log ({name}): {records} records found in {surveyed:?}, read in {:?}",
            clock.monotonic() - start - surveyed
        );
    }
}

fn device(clock: &SystemClock, folder: &Path) {
    const BLOCKS: u64 = 1 << 16;
    let pool = FramePool::new(1 << 13).unwrap();
    // The first touch of each frame is not the device's cost.
    drop(std::iter::from_fn(|| pool.zeroed(Class::Cp)).collect::<Vec<_>>());
    for (name, uring) in [("io_uring", true), ("threads", false)] {
        let options = FileOptions {
            uring,
            ..FileOptions::data(BLOCKS).create(BLOCKS)
        };
        let device = FileDevice::open(&folder.join(name), options).unwrap();
        let start = clock.monotonic();
        let writes: Vec<_> = (0..BLOCKS / 256)
            .map(|n| device.write(BlockAddr(n * 256), vec![Frame::zero(); 256]))
            .collect();
        writes.into_iter().for_each(|w| w.wait().unwrap());
        device.flush().wait().unwrap();
        let rate = BLOCKS as f64 * 4096.0 / 1e6 / (clock.monotonic() - start).as_secs_f64();
        println!("device ({name}): 1 MiB writes and a flush {rate:>24.0} MB/s");
        for (blocks, window) in [(1, 1), (1, 64), (16, 16), (256, 8)] {
            let rng = SeededRng::new(5);
            let mut flying = VecDeque::new();
            let (mut done, start, busy) = (0u64, clock.monotonic(), cpu());
            while clock.monotonic() - start < RUN {
                while flying.len() < window {
                    let into = (0..blocks)
                        .map(|_| pool.alloc(Class::Cp).unwrap())
                        .collect();
                    let at = rng.below(BLOCKS / blocks) * blocks;
                    flying.push_back(device.read(BlockAddr(at), into));
                }
                flying.pop_front().unwrap().wait().unwrap();
                done += 1;
            }
            flying.into_iter().for_each(|r| drop(r.wait()));
            let rate = done as f64 / (clock.monotonic() - start).as_secs_f64();
            println!(
                "device ({name}): read {:>4} KiB, {window:>2} in flight {rate:>18.0} /s {:>8.1} MB/s  CPU {:>6.1} us",
                blocks * 4,
                rate * blocks as f64 * 4096.0 / 1e6,
                (cpu() - busy).as_nanos() as f64 / 1e3 / done as f64,
            );
        }
    }
}

/// Measures operations on scattered frames: the gain of staging buffers on a disk where each
/// segment is costly (`device/staging.rs`). On other disks both columns are equal.
fn staging(clock: &SystemClock, folder: &Path) {
    const BLOCKS: u64 = 1 << 18;
    let path = folder.join("staging");
    let data = FileOptions::data(BLOCKS).create(BLOCKS);
    let log = FileOptions {
        max_len: BLOCKS,
        ..FileOptions::log()
    };
    let pool = FramePool::new(1 << 16).unwrap();
    drop(std::iter::from_fn(|| pool.zeroed(Class::Cp)).collect::<Vec<_>>());
    let write = FileDevice::open(&path, data).unwrap();
    for n in 0..BLOCKS / 256 {
        let done = write.write(BlockAddr(n * 256), vec![Frame::zero(); 256]);
        done.wait().unwrap();
    }
    drop(write);
    let rng = SeededRng::new(6);
    let mut free: Vec<_> = (0..1 << 14)
        .map(|_| pool.alloc(Class::Cp).unwrap())
        .collect();
    for (name, options, blocks, window) in [
        ("read", data, 128, 4),
        ("read", data, 16, 4),
        ("write", data, 64, 8),
        ("durable write", log, 256, 1),
        ("durable write", log, 64, 1),
        ("durable write", log, 16, 1),
        ("durable write", log, 4, 1),
    ] {
        let mut turn = |staged: bool| {
            // Buffers come from a pool of their own, whose frames are in order.
            let buffers = FramePool::new(1 << 16).unwrap();
            let device = match staged {
                true => FileDevice::open_staged(&path, options, &buffers).unwrap(),
                false => FileDevice::open(&path, options).unwrap(),
            };
            let (mut reads, mut writes) = (VecDeque::new(), VecDeque::new());
            let (mut next, mut done) = (0, 0u64);
            let (start, busy) = (clock.monotonic(), cpu());
            while clock.monotonic() - start < RUN / 2 {
                let mut frames: Vec<_> = (0..blocks)
                    .map(|_| free.swap_remove(rng.below(free.len() as u64) as usize))
                    .collect();
                let addr = BlockAddr(next);
                if name == "read" {
                    reads.push_back(device.read(addr, frames));
                } else {
                    let shared: Vec<_> = frames.drain(..).map(FrameMut::freeze).collect();
                    writes.push_back((device.write(addr, shared.clone()), shared));
                }
                if reads.len() == window {
                    free.extend(reads.pop_front().unwrap().wait().unwrap());
                }
                if writes.len() == window {
                    let (write, shared) = writes.pop_front().unwrap();
                    write.wait().unwrap();
                    free.extend(shared.into_iter().map(|f| f.try_into_mut().unwrap()));
                }
                next = (next + blocks) % BLOCKS;
                done += 1;
            }
            let rate = done as f64 / (clock.monotonic() - start).as_secs_f64();
            let busy = (cpu() - busy).as_nanos() as f64 / 1e3 / done as f64;
            for read in reads {
                free.extend(read.wait().unwrap());
            }
            for (write, shared) in writes {
                write.wait().unwrap();
                free.extend(shared.into_iter().map(|f| f.try_into_mut().unwrap()));
            }
            (rate, busy)
        };
        for _ in 0..3 {
            let (one, two) = (turn(false), turn(true));
            println!(
                "staging: {name:>13} of {:>4} KiB, {window} in flight: {:>7.0} /s {:>6.1} us CPU; staged {:>7.0} /s {:>6.1} us CPU",
                blocks * 4,
                one.0,
                one.1,
                two.0,
                two.1,
            );
        }
    }
}
