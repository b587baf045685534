//! `weir bench ceph`: the rates that a pool of Ceph gives, and the cost of an intent log in it.
//!
//! Closed loops of one client on 4 MiB objects: reads and writes at random places, one at a time
//! and many at once, and appends as an intent log makes them. A log has one write in flight, and
//! each write compares an attribute of its object in the same operation, which keeps an earlier
//! owner out. Beside it stands the same without the comparison.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use weir_base::limits::rados::{DATA_BYTES, DATA_OPERATIONS, OBJECT_BLOCKS};
use weir_base::{BLOCK_SIZE, Rng, SeededRng};
use weir_rados::{Bounds, Cluster, Comparison, Objects, Options, Step};

use crate::clock;
use crate::error::BenchError;
use crate::interrupt;
use crate::lab::text::aligned;
use crate::lab::units::{latency, thousands};
use crate::lab::view::Row;
use crate::log::append::AppendStats;
use crate::log::seconds;

/// Bytes of an object.
const OBJECT: u64 = OBJECT_BLOCKS * BLOCK_SIZE as u64;
/// Attribute that a log's writes compare.
const GUARD: &str = "epoch";
/// Value of the attribute.
const EPOCH: &[u8] = b"0000000000000001";

/// Measures a pool of Ceph, and an intent log in it.
#[derive(Args, Debug, Clone, Serialize)]
pub struct CephArgs {
    /// The pool. Objects are made in a namespace of their own, and removed at the end
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// Ceph's configuration file [default: /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    pub ceph_conf: Option<PathBuf>,
    /// The keyring of Ceph's user [default: as the configuration says]
    #[arg(long, value_name = "FILE")]
    pub ceph_keyring: Option<PathBuf>,
    /// The user of Ceph, such as client.weir [default: client.admin]
    #[arg(long, value_name = "NAME")]
    pub ceph_user: Option<String>,
    /// Operations at once in the second half of the table
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=256))]
    pub depth: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Objects of 4 MiB that are read and written
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub objects: u32,
    /// Write the result as JSON into this file; - for the standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Kind {
    Write,
    Read,
    /// Appends that compare the guard, one behind the other.
    Log,
    /// Appends without the guard.
    Unguarded,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Log => "log",
            Kind::Unguarded => "log without guard",
        }
    }
}

/// Kinds and sizes in KiB. A log has one operation in flight.
const LOADS: [(Kind, u64); 12] = [
    (Kind::Write, 4),
    (Kind::Read, 4),
    (Kind::Write, 64),
    (Kind::Read, 64),
    (Kind::Write, 4096),
    (Kind::Read, 4096),
    (Kind::Log, 4),
    (Kind::Unguarded, 4),
    (Kind::Log, 64),
    (Kind::Unguarded, 64),
    (Kind::Log, 1024),
    (Kind::Unguarded, 1024),
];

/// The result.
#[derive(Debug, Serialize)]
pub struct CephReport {
    /// The settings of the run.
    pub settings: CephArgs,
    /// A row for each load.
    rows: Vec<Figures>,
}

/// Times of one load.
#[derive(Debug, Serialize)]
struct Figures {
    kind: Kind,
    bytes: u64,
    /// One operation at a time.
    alone: AppendStats,
    /// Many at a time; none of a log.
    together: Option<AppendStats>,
}

/// The objects under measurement. They are removed when this is dropped.
struct Pool {
    objects: Arc<dyn Objects>,
    count: u32,
    /// Bytes that nothing can compress.
    bytes: Vec<u8>,
    random: SeededRng,
}

impl Drop for Pool {
    fn drop(&mut self) {
        let (tell, told) = channel();
        for name in (0..self.count).flat_map(|n| [data_object(n), log_object(n)]) {
            let tell: Sender<()> = tell.clone();
            // Nobody waits for the last ones if this thread panics.
            let done = Box::new(move |_| tell.send(()).unwrap_or_default());
            self.objects.operate(&name, vec![Step::Remove], done);
        }
        drop(tell);
        while told.recv().is_ok() {}
    }
}

fn data_object(number: u32) -> String {
    format!("d.{number:08x}")
}

fn log_object(number: u32) -> String {
    format!("l.{number:08x}")
}

/// Measures the loads one after the other.
///
/// # Errors
/// The cluster cannot be reached, or refuses an operation.
pub fn ceph(args: &CephArgs) -> Result<CephReport, BenchError> {
    interrupt::watch();
    let pool = Pool::prepare(args)?;
    let span = Duration::from_secs_f64(args.seconds);
    let mut rows = Vec::new();
    for (kind, kib) in LOADS {
        let bytes = kib << 10;
        let alone = pool.run(kind, bytes, 1, span)?;
        let together = match kind {
            Kind::Write | Kind::Read => Some(pool.run(kind, bytes, args.depth, span)?),
            Kind::Log | Kind::Unguarded => None,
        };
        rows.push(Figures {
            kind,
            bytes,
            alone,
            together,
        });
    }
    Ok(CephReport {
        settings: args.clone(),
        rows,
    })
}

impl Pool {
    fn prepare(args: &CephArgs) -> Result<Pool, BenchError> {
        let options = Options {
            conf: args.ceph_conf.clone(),
            keyring: args.ceph_keyring.clone(),
            user: args.ceph_user.clone(),
        };
        let cluster = Cluster::connect(&options).map_err(BenchError::io("connect to Ceph"))?;
        let namespace = format!("weir-bench-{}", std::process::id());
        let bounds = Bounds {
            operations: DATA_OPERATIONS,
            bytes: DATA_BYTES,
        };
        let pool = cluster.pool(&args.pool, &namespace, bounds);
        let pool = pool.map_err(BenchError::io(format!("open the pool {}", args.pool)))?;
        let random = SeededRng::new(clock::now_ns());
        let mut bytes = vec![0; OBJECT as usize];
        random.fill(&mut bytes);
        let pool = Pool {
            objects: Arc::new(pool),
            count: args.objects,
            bytes,
            random,
        };
        for number in 0..args.objects {
            pool.go_on()?;
            let write = Step::Replace(pool.bytes.clone());
            let guard = Step::Set {
                attribute: GUARD,
                value: EPOCH.to_vec(),
            };
            for (object, steps) in [
                (data_object(number), vec![write]),
                (log_object(number), vec![guard]),
            ] {
                let made = pool.objects.operate_wait(&object, steps);
                made.map_err(BenchError::io(format!("make the object {object}")))?;
            }
        }
        Ok(pool)
    }

    fn go_on(&self) -> Result<(), BenchError> {
        match interrupt::requested() {
            true => Err(BenchError::Interrupted),
            false => Ok(()),
        }
    }

    /// Keeps `depth` operations in flight for `span`.
    fn run(
        &self,
        kind: Kind,
        bytes: u64,
        depth: u32,
        span: Duration,
    ) -> Result<AppendStats, BenchError> {
        let (tell, told): (Sender<(u64, std::io::Result<()>)>, Receiver<_>) = channel();
        let began = clock::now_ns();
        let mut done = AppendStats::default();
        let (mut position, mut in_flight) = (0, 0);
        for _ in 0..depth {
            self.begin(kind, bytes, &mut position, &tell);
            in_flight += 1;
        }
        while in_flight > 0 {
            let (sent, result) = told
                .recv()
                .map_err(|_| BenchError::Protocol("an operation was lost".to_owned()))?;
            in_flight -= 1;
            result.map_err(BenchError::io(format!("{} of {bytes} bytes", kind.name())))?;
            let now = clock::now_ns();
            done.record(now - sent, now - began);
            self.go_on()?;
            if u128::from(now - began) < span.as_nanos() {
                self.begin(kind, bytes, &mut position, &tell);
                in_flight += 1;
            }
        }
        Ok(done)
    }

    /// Begins an operation, the end of which is sent with the time of its beginning. `position` is
    /// that of the log, in bytes.
    fn begin(
        &self,
        kind: Kind,
        bytes: u64,
        position: &mut u64,
        tell: &Sender<(u64, std::io::Result<()>)>,
    ) {
        let tell = tell.clone();
        let now = clock::now_ns();
        let some = u64::from(self.count);
        let places = (OBJECT / bytes).max(1);
        let (number, offset) = match kind {
            Kind::Write | Kind::Read => {
                (self.random.below(some), self.random.below(places) * bytes)
            }
            Kind::Log | Kind::Unguarded => {
                let at = *position;
                *position += bytes;
                (at / OBJECT % some, at % OBJECT)
            }
        };
        let number = number as u32;
        if kind == Kind::Read {
            let done = move |read: std::io::Result<Vec<u8>>| drop(tell.send((now, read.map(drop))));
            let object = data_object(number);
            return self
                .objects
                .read(&object, offset, bytes as usize, Box::new(done));
        }
        let part = self.bytes.get(..bytes as usize).unwrap_or(&self.bytes);
        let write = Step::Write {
            offset,
            bytes: part.to_vec(),
        };
        let guard = Step::Compare {
            attribute: GUARD,
            comparison: Comparison::Equal,
            value: EPOCH.to_vec(),
        };
        let (object, steps) = match kind {
            Kind::Log => (log_object(number), vec![guard, write]),
            Kind::Unguarded => (log_object(number), vec![write]),
            Kind::Write | Kind::Read => (data_object(number), vec![write]),
        };
        let done = move |written| drop(tell.send((now, written)));
        self.objects.operate(&object, steps, Box::new(done));
    }
}

impl CephReport {
    /// The table and the verdict, for people.
    pub fn table(&self) -> String {
        let settings = &self.settings;
        let mut out = format!("pool {}: objects of 4 MiB, one client\n\n", settings.pool);
        let columns: Vec<String> = ["", &format!("{} at once: ", settings.depth)]
            .iter()
            .flat_map(|depth| ["a second", "MiB/s", "p50", "p99"].map(|c| format!("{depth}{c}")))
            .collect();
        let rows: Vec<Row> = self.rows.iter().map(Figures::row).collect();
        out += &aligned("operation", &columns, &rows);
        out.push('\n');
        for line in self.verdict() {
            out += &line;
            out.push('\n');
        }
        out
    }

    fn find_appends(&self, kind: Kind, bytes: u64) -> Option<&AppendStats> {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.kind == kind && row.bytes == bytes);
        row.map(|row| &row.alone)
    }

    /// The cost of a log in the pool.
    fn verdict(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(small) = self.find_appends(Kind::Log, 4 << 10) {
            lines.push(format!(
                "a stable operation alone waits {} for the log (p50), {} in 99 of 100 cases",
                latency(small.quantile_us(0.5)),
                latency(small.quantile_us(0.99))
            ));
        }
        if let Some(large) = self.find_appends(Kind::Log, 1 << 20) {
            lines.push(format!(
                "many stable operations share batches of up to 1 MiB: {} MiB/s at most",
                thousands(large.per_second().round())
            ));
        }
        let pair = (
            self.find_appends(Kind::Log, 4 << 10),
            self.find_appends(Kind::Unguarded, 4 << 10),
        );
        if let (Some(guarded), Some(plain)) = pair {
            let part = guarded.quantile_us(0.5) / plain.quantile_us(0.5).max(f64::MIN_POSITIVE);
            lines.push(match part > 1.0 {
                true => format!("the guard makes a write of 4 KiB {part:.2} times as long (p50)"),
                false => "the guard costs a write of 4 KiB less than its time varies".to_owned(),
            });
        }
        lines
    }
}

impl Figures {
    fn row(&self) -> Row {
        let cells = |a: &AppendStats| {
            [
                thousands(a.per_second().round()),
                thousands((a.per_second() * self.bytes as f64 / 1_048_576.0).round()),
                latency(a.quantile_us(0.5)),
                latency(a.quantile_us(0.99)),
            ]
        };
        let none = || ["-", "-", "-", "-"].map(str::to_owned);
        let size = match self.bytes >> 20 {
            0 => format!("{} KiB", self.bytes >> 10),
            mib => format!("{mib} MiB"),
        };
        Row {
            label: format!("{} {size}", self.kind.name()),
            cells: [
                cells(&self.alone),
                self.together.as_ref().map_or_else(none, cells),
            ]
            .concat(),
            main: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_log_is_named() {
        let row = |kind, bytes, ns, count: usize| Figures {
            kind,
            bytes,
            alone: AppendStats::from_latencies(1_000_000_000, &vec![ns; count]),
            together: None,
        };
        let report = CephReport {
            settings: CephArgs {
                pool: "weir".to_owned(),
                ceph_conf: None,
                ceph_keyring: None,
                ceph_user: None,
                depth: 16,
                seconds: 1.0,
                objects: 1,
                json: None,
            },
            rows: vec![
                row(Kind::Log, 4 << 10, 1_500_000, 600),
                row(Kind::Unguarded, 4 << 10, 1_000_000, 900),
                row(Kind::Log, 1 << 20, 9_000_000, 100),
            ],
        };
        let text = report.table();
        assert!(text.contains("log without guard 4 KiB"), "{text}");
        assert!(text.contains("alone waits 1.50 ms"), "{text}");
        assert!(text.contains("100 MiB/s at most"), "{text}");
        assert!(text.contains("1.50 times as long"), "{text}");
    }
}
