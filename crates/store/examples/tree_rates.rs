//! Rates of the tree, without a device: everything is in memory, and writes are
//! dropped. It measures the processor time of lookups, of merging batches
//! and of writing checkpoints.
//!
//! `cargo run --release -p weir-store --example tree_rates [records]`
//!
//! Seen on a virtual machine with two cores that was busy with other work, a
//! million records of 96 bytes (33,664 nodes, four levels), in ns: lookup 296 if
//! the path is in the processor's caches (74 a level), 1,100 at random; scan 36 a
//! record; merging 200 an edit when building and 41 when deleting everything,
//! 363 for two edits in three records, 6,600 for one in a hundred (nearly a
//! leaf an edit); a node written costs 5,000 to 7,000, of which the kernel's
//! clearing of memory touched for the first time is the largest part.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use weir_base::{BlockAddr, Rng, SeededRng, SystemClock, VolumeId};
use weir_store::device::{Device, Io, MemDevice};
use weir_store::{
    Aggregate, Edit, Env, Frame, FrameMut, FramePool, Key, StoreError, TreeRoot, tree,
};

/// A device that keeps the superblocks and forgets all other writes.
struct Forgetful(MemDevice);

impl Device for Forgetful {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        self.0.read(addr, into)
    }
    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        if addr.0 < 4096 {
            self.0.write(addr, from)
        } else {
            Io::ready(Ok(()))
        }
    }
    fn flush(&self) -> Io<()> {
        Io::ready(Ok(()))
    }
    fn discard(&self, _: BlockAddr, _: u64) -> Io<()> {
        Io::ready(Ok(()))
    }
    fn length(&self) -> u64 {
        self.0.length()
    }
    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.0.grow(blocks)
    }
}

/// Returns the processor time of this thread. It is the same on a busy machine as on an idle one,
/// except for the effect of others on the caches.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `time`, which outlives it.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Bench {
    agg: Arc<Aggregate>,
    root: TreeRoot,
}

impl Bench {
    fn batch(&mut self, what: &str, edits: Vec<Edit>) -> Result<(), StoreError> {
        let count = edits.len();
        let start = cpu_time();
        let mut cp = self.agg.begin()?;
        let source = self.agg.source();
        self.root = tree::apply(&mut cp, &source, VolumeId(1), &self.root, edits.into_iter())?;
        let merged = cpu_time() - start;
        let nodes = cp.written();
        self.agg.commit(cp, self.root, self.agg.cut())?;
        let all = cpu_time() - start;
        println!(
            "{what:34} {count:>9} edits {:>8.0} ns/edit, {nodes:>7} nodes {:>6.0} ns/node, commit {:>6.1} ms",
            ns(merged, count),
            ns(merged, nodes as usize),
            (all - merged).as_secs_f64() * 1e3,
        );
        Ok(())
    }

    fn time(&self, what: &str, count: usize, mut run: impl FnMut(usize)) {
        let start = cpu_time();
        for i in 0..count {
            run(i);
        }
        let spent = cpu_time() - start;
        println!(
            "{what:34} {count:>9} calls {:>8.0} ns/call",
            ns(spent, count)
        );
    }
}

fn ns(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count.max(1) as f64
}

fn main() -> Result<(), StoreError> {
    let records: u64 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let device = Arc::new(Forgetful(MemDevice::growable(1 << 18, 1 << 22)));
    let pool = FramePool::new(1 << 19).map_err(|_| StoreError::NoMemory)?;
    let env = Env {
        pool,
        clock: Arc::new(SystemClock::new()),
        rng: Arc::new(SeededRng::new(1)),
    };
    let (agg, _) = Aggregate::create_on(device, Arc::new(MemDevice::new(1024)), env)?;
    let mut b = Bench {
        agg,
        root: TreeRoot::EMPTY,
    };
    let rng = SeededRng::new(7);
    let key = |i: u64| Key::new(i, 1, 0);
    let value = |i: u64| vec![i as u8; 96];

    b.batch(
        "build",
        (0..records).map(|i| Edit::Put(key(i), value(i))).collect(),
    )?;
    println!("height {}", b.root.height);

    let root = b.root;
    let source = b.agg.source();
    let keys: Vec<Key> = (0..records.min(1 << 20))
        .map(|_| key(rng.next_u64() % records))
        .collect();
    for _ in 0..2 {
        b.time("get, at random", keys.len(), |i| {
            black_box(tree::get(&source, &root, &keys[i]).ok());
        });
    }
    b.time("get, of 64 keys", 1 << 20, |i| {
        black_box(tree::get(&source, &root, &keys[i % 64]).ok());
    });
    b.time("scan of 100 records", 100_000, |i| {
        let from = keys[i % keys.len()];
        let mut left = 100;
        let each = &mut |key: Key, value: &[u8]| {
            black_box((key, value));
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let _ = tree::scan(&source, &root, from, Key::MAX, each);
    });
    for count in [100, 100, 100, 10_000, 10_000, 1_000_000] {
        let touched: BTreeSet<u64> = (0..count).map(|_| rng.next_u64() % records).collect();
        let edits = touched.into_iter().map(|i| Edit::Put(key(i), value(i + 1)));
        b.batch("replace, at random", edits.collect())?;
    }
    let new = (0..100_000).map(|i| Edit::Put(key(records + i), value(i)));
    b.batch("append", new.collect())?;
    let all = (0..records + 100_000).map(|i| Edit::Del(key(i)));
    b.batch("delete all", all.collect())?;
    Ok(())
}
