//! The stream of durable appends that a log is.

use crate::clock;
use crate::error::BenchError;
use hdrhistogram::Histogram;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use weir_base::limits::engine::LOG_BATCH;
use weir_base::{BLOCK_SIZE, Rng, SeededRng};

/// Most bytes of one write, as of one batch of the intent log.
const BATCH: u64 = LOG_BATCH * BLOCK_SIZE as u64;
/// Longest latency that is distinguished, in nanoseconds; longer ones count as this.
const MAX_LATENCY_NS: u64 = 600_000_000_000;

/// A block that direct I/O can take.
#[repr(align(4096))]
struct Block([u8; BLOCK_SIZE]);

/// Appends of one size and depth, over all rounds: how many became durable, in what time, and how
/// long each waited.
#[derive(Debug, Clone, Serialize)]
pub struct AppendStats {
    /// Appends that became durable.
    count: u64,
    /// Nanoseconds that they took in all.
    elapsed_ns: u64,
    /// Nanoseconds from asking to being durable, an append.
    #[serde(serialize_with = "quantiles")]
    latency: Histogram<u64>,
}

fn quantiles<S: serde::Serializer>(of: &Histogram<u64>, s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(
        [
            ("p50_us", 0.5),
            ("p99_us", 0.99),
            ("p999_us", 0.999),
            ("max_us", 1.0),
        ]
        .map(|(name, q)| (name, of.value_at_quantile(q) as f64 / 1e3)),
    )
}

impl Default for AppendStats {
    fn default() -> Self {
        Self {
            count: 0,
            elapsed_ns: 0,
            latency: Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
                .unwrap_or_else(|_| unreachable!("constant bounds")),
        }
    }
}

impl AppendStats {
    /// Notes an operation that took so many nanoseconds and ended `elapsed_ns` after the first one
    /// began.
    pub fn record(&mut self, latency_ns: u64, elapsed_ns: u64) {
        self.latency.saturating_record(latency_ns);
        self.count += 1;
        self.elapsed_ns = elapsed_ns;
    }

    /// Adds another round of the same.
    pub fn add(&mut self, other: &Self) -> Result<(), BenchError> {
        self.count += other.count;
        self.elapsed_ns += other.elapsed_ns;
        self.latency
            .add(&other.latency)
            .map_err(|e| BenchError::Protocol(format!("latencies do not add up: {e}")))
    }

    /// Appends that became durable in each second of `elapsed_ns`, the mean.
    pub fn per_second(&self) -> f64 {
        self.count as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// The latency that this part of the appends did not exceed, in microseconds.
    pub fn quantile_us(&self, q: f64) -> f64 {
        self.latency.value_at_quantile(q) as f64 / 1e3
    }

    #[cfg(test)]
    pub fn from_latencies(elapsed_ns: u64, latencies: &[u64]) -> Self {
        let mut all = Self {
            count: latencies.len() as u64,
            elapsed_ns,
            ..Self::default()
        };
        latencies
            .iter()
            .for_each(|&ns| all.latency.saturating_record(ns));
        all
    }
}

/// A prepared file, open for durable appends. It has no name: nothing is left behind, however the
/// run ends.
pub struct Appender {
    file: OwnedFd,
    what: String,
    size: u64,
    /// Offset of the next append.
    at: u64,
    /// One batch of bytes that no device can compress.
    blocks: Vec<Block>,
}

impl Appender {
    /// Makes a file of `size` bytes, rounded up to whole batches, in `dir`, and writes each block
    /// of it.
    ///
    /// # Errors
    /// The folder takes no such file, has no room, or allows no direct I/O.
    pub fn prepare(dir: &Path, size: u64) -> Result<Self, BenchError> {
        let what = dir.display().to_string();
        let size = size.max(1).next_multiple_of(BATCH);
        let stat = rustix::fs::statvfs(dir).map_err(io(&what))?;
        let room = stat.f_bavail.saturating_mul(stat.f_frsize);
        if room < size {
            return Err(BenchError::Usage(format!(
                "{what}: {} MiB are needed and {} are free",
                size >> 20,
                room >> 20
            )));
        }
        let path = dir.join(format!(
            ".weir-bench-log-{}-{}",
            std::process::id(),
            clock::now_ns()
        ));
        let flags = OFlags::CREATE
            | OFlags::EXCL
            | OFlags::RDWR
            | OFlags::DIRECT
            | OFlags::DSYNC
            | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        // Some file systems have made the file when they refuse direct I/O.
        let unlinked = rustix::fs::unlink(&path);
        let file = opened.map_err(|e| match e {
            rustix::io::Errno::INVAL => BenchError::Usage(format!(
                "{what}: no direct I/O here, so nothing says when a write is durable"
            )),
            other => io(&what)(other),
        })?;
        unlinked.map_err(io(&what))?;
        let random = SeededRng::new(clock::now_ns());
        let block = |_| {
            let mut block = Block([0; BLOCK_SIZE]);
            random.fill(&mut block.0);
            block
        };
        let mut appender = Self {
            file,
            what,
            size,
            at: 0,
            blocks: (0..LOG_BATCH).map(block).collect(),
        };
        for _ in 0..size / BATCH {
            appender.write(BATCH)?;
        }
        Ok(appender)
    }

    /// Writes so many bytes, at most a batch, behind the last ones; returns when they are durable.
    fn write(&mut self, bytes: u64) -> Result<(), BenchError> {
        if self.at + bytes > self.size {
            self.at = 0;
        }
        let count = bytes.div_ceil(BLOCK_SIZE as u64) as usize;
        let slices: Vec<IoSlice<'_>> = self.blocks[..count]
            .iter()
            .map(|b| IoSlice::new(&b.0))
            .collect();
        let written = rustix::io::pwritev(&self.file, &slices, self.at).map_err(io(&self.what))?;
        if written as u64 != bytes {
            return Err(BenchError::Protocol(format!(
                "{}: a write of {bytes} bytes wrote {written}",
                self.what
            )));
        }
        self.at += bytes;
        Ok(())
    }

    /// Appends of `bytes` bytes, a multiple of a block and at most a batch, for `span`. So many
    /// wait at any time: each write takes all that wait, up to a batch, and whose append became
    /// durable asks for the next one at once.
    ///
    /// # Errors
    /// The first write that failed, or one that the device took in part.
    pub fn run(
        &mut self,
        bytes: u64,
        waiting: u32,
        span: Duration,
    ) -> Result<AppendStats, BenchError> {
        let began = clock::now_ns();
        let mut asked: VecDeque<u64> = (0..waiting).map(|_| began).collect();
        let share = (BATCH / bytes).max(1) as usize;
        let mut done = AppendStats::default();
        loop {
            let batch = share.min(asked.len());
            self.write(bytes * batch as u64)?;
            let now = clock::now_ns();
            for at in asked.drain(..batch) {
                done.latency.saturating_record(now - at);
            }
            asked.extend(std::iter::repeat_n(now, batch));
            done.count += batch as u64;
            done.elapsed_ns = now - began;
            if u128::from(done.elapsed_ns) >= span.as_nanos() {
                return Ok(done);
            }
        }
    }
}

fn io(what: &str) -> impl FnOnce(rustix::io::Errno) -> BenchError + '_ {
    move |e| BenchError::Io(what.to_owned(), e.into())
}
