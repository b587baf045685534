//! Results of a run: the file `run.json`, from which every report is made.
//!
//! It holds each repetition by itself, not summaries, so that reports made later can
//! ask it something new; and the whole definition, so that a run can be resumed and
//! compared without the file it came from.

use super::spec::{Definition, Unit};
use super::stats::{Little, Spread, Steady};
use super::units::{MIB, Size};
use crate::args::Version;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the file format; another one is refused.
pub const FORMAT: u32 = 1;

/// Quantiles that every latency is reported at.
pub const QUANTILES: [f64; 14] = [
    0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999,
];

/// A whole run, as `run.json` holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// Name and version of the program.
    pub tool: String,
    /// The command line of the run.
    pub command: String,
    /// A name given to the run, for comparisons.
    pub label: String,
    /// Start, in seconds since 1970.
    pub started: u64,
    /// Last change, in seconds since 1970.
    pub updated: u64,
    /// Definition that was measured, after scaling.
    pub definition: Definition,
    /// Differences from the definition as given.
    pub changes: Vec<String>,
    /// Settings of the measurement.
    pub settings: Settings,
    /// The machine that measured.
    pub machine: BTreeMap<String, String>,
    /// Cores of the machine that measured.
    pub cores: u32,
    /// Memory of the machine that measured.
    pub memory: Size,
    /// The targets that were measured.
    pub targets: Vec<TargetFacts>,
    /// The results, a cell for each point.
    pub cells: Vec<Cell>,
    /// End of the run, if it has ended.
    pub state: State,
}

/// Settings of a run.
#[derive(Debug, Clone, Serialize, Deserialize, Default)]
pub struct Settings {
    /// The targets as given.
    pub targets: Vec<String>,
    /// The protocol of nfs:// targets that name none.
    #[serde(default)]
    pub nfs: Version,
    /// Hosts that run fio, in client/server mode.
    pub hosts: Vec<String>,
    /// The command that makes caches cold.
    pub cold_command: Option<String>,
    /// A limit that the target is known to have, in MiB/s.
    pub cap_mib_s: Option<f64>,
    /// A limit that the target is known to have, in operations a second.
    pub cap_iops: Option<f64>,
    /// The target holds each stable write on two machines before it replies.
    pub mirrored: bool,
    /// Threads of the own generator [default: by the number of cores].
    pub threads: Option<u32>,
    /// Buffered instead of direct I/O on paths.
    pub buffered: bool,
    /// Path or name of the fio program.
    pub fio: String,
    /// Process id of the server on this machine.
    pub server_pid: Option<u32>,
    /// Leave the working set behind.
    pub keep: bool,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The run has not ended.
    Running,
    /// The run has ended, and everything was measured.
    Complete,
    /// The user has interrupted the run.
    Interrupted,
    /// The run has failed. The cause.
    Failed(String),
}

/// Facts about a target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TargetFacts {
    /// Its name in the results.
    pub label: String,
    /// The target as given on the command line.
    pub given: String,
    /// The protocol it was measured over, or the file system.
    pub protocol: String,
    /// Generator of the load.
    pub generator: String,
    /// True if the server is on this machine as well; `None` when unknown.
    pub local: Option<bool>,
    /// Addresses that clients were spread over.
    #[serde(default = "one_address")]
    pub addresses: u32,
    /// Anything else worth keeping, by name.
    pub facts: BTreeMap<String, String>,
}

fn one_address() -> u32 {
    1
}

/// One point of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Number of the target.
    pub target: usize,
    /// Number of the table.
    pub table: usize,
    /// Share of reads in percent.
    pub read_percent: u32,
    /// Number of hosts or simulated clients.
    pub clients: u32,
    /// Number of jobs of each client.
    pub jobs: u32,
    /// In flight of each job.
    pub depth: u32,
    /// Connections of each client.
    pub nconnect: u32,
    /// Offered by an open loop.
    pub rate: Option<f64>,
}

impl Point {
    /// Returns the operations that a closed loop keeps in flight.
    pub fn in_flight(&self) -> f64 {
        f64::from(self.clients) * f64::from(self.jobs) * f64::from(self.depth)
    }
}

/// A point and its measurements.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// The point that was measured.
    pub point: Point,
    /// Its measurements, in order of time.
    pub repetitions: Vec<Repetition>,
    /// Cause for which a repetition is missing.
    #[serde(default)]
    pub failed: Option<String>,
}

/// One measurement of a point.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Repetition {
    /// Start, in seconds since 1970.
    pub started: u64,
    /// Seconds of load before it.
    pub warmup_s: f64,
    /// Seconds that the measurement took.
    pub seconds: f64,
    /// Reads; `None` if the point has none.
    pub read: Option<Side>,
    /// Writes; `None` if the point has none.
    pub write: Option<Side>,
    /// Operations on names and attributes.
    pub other: Option<Side>,
    /// COMMITs (fsyncs) on top.
    pub commits_per_s: f64,
    /// Rates over the time of the measurement.
    pub series: Vec<Moment>,
    /// Steadiness of the load when the measurement began.
    pub warm: Option<Steady>,
    /// Steadiness throughout.
    pub steady: Option<Steady>,
    /// The self-check by Little's law.
    pub little: Little,
    /// Durability that the operations asked for, in words.
    pub durability: String,
    /// The tier that this is.
    pub tier: Tier,
    /// Limit of the result.
    pub bound: LimitingFactor,
    /// Share of its time that the generator's busiest thread ran.
    pub generator_busy: f64,
    /// Cores that the whole machine kept busy.
    pub machine_busy_cores: f64,
    /// Cores kept busy by neither generator nor server, where both are known.
    #[serde(default)]
    pub other_cores: Option<f64>,
    /// Cores' worth of time that the hypervisor gave to others.
    pub stolen_cores: f64,
    /// Share of the time in which the busiest local disk had work.
    pub disk_busy: Option<f64>,
    /// Processor time of the server an operation, in microseconds.
    pub server_cpu_us_per_op: Option<f64>,
    /// The user ended it before its time.
    pub cut_short: bool,
    /// Faults that make it a failed one.
    pub faults: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Reads, or writes, or other operations of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Rate in operations a second.
    pub ops_per_s: f64,
    /// Rate in MiB a second.
    pub mib_per_s: f64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Greatest latency, in microseconds.
    pub max_us: f64,
    /// Latencies at the [`QUANTILES`], in microseconds.
    pub quantiles_us: Vec<f64>,
}

impl Side {
    /// The latency at one of the [`QUANTILES`].
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let at = QUANTILES.iter().position(|x| (x - q).abs() < 1e-9)?;
        self.quantiles_us.get(at).copied()
    }

    /// Unit of a table.
    pub fn value(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Throughput => self.mib_per_s,
            Unit::Iops => self.ops_per_s,
        }
    }
}

/// One sample of the series over time: rates since the sample before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the start.
    pub at_s: f64,
    /// Rate in reads a second.
    pub reads: f64,
    /// Other operations a second.
    pub others: f64,
    /// Rate in MiB a second.
    pub mib: f64,
}

/// Place of a write's data when the reply comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// The load did not write.
    Nothing,
    /// The memory of the server (or of this machine).
    Memory,
    /// Stable storage of one machine.
    Local,
    /// Stable storage of two machines.
    Mirrored,
}

impl Tier {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing written",
            Self::Memory => "memory",
            Self::Local => "local log",
            Self::Mirrored => "mirrored",
        }
    }
}

/// Limit of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitingFactor {
    /// The rate that was offered.
    Offered,
    /// A limit set on the target.
    Cap(String),
    /// The generator's own processor time.
    Generator,
    /// The processors of the machine.
    Processors,
    /// A disk of this machine that always had work.
    Disk,
    /// The processors and a disk at once.
    ProcessorsAndDisk,
    /// Nothing of the above: latency, with so many in flight.
    Concurrency,
}

impl LimitingFactor {
    /// In a few words.
    pub fn name(&self) -> String {
        match self {
            Self::Offered => "offered rate".into(),
            Self::Cap(what) => format!("cap of {what}"),
            Self::Generator => "the generator".into(),
            Self::Processors => "processors".into(),
            Self::Disk => "disk".into(),
            Self::ProcessorsAndDisk => "processors, disk".into(),
            Self::Concurrency => "latency × depth".into(),
        }
    }
}

/// Reads, writes or the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationClass {
    /// Reads of file data.
    Read,
    /// Writes of file data.
    Write,
    /// Operations on names and attributes.
    Other,
}

impl OperationClass {
    /// All, in the order of rows.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Other => "Names and attributes",
        }
    }
}

impl Repetition {
    /// One side of it.
    pub fn side(&self, which: OperationClass) -> Option<&Side> {
        match which {
            OperationClass::Read => self.read.as_ref(),
            OperationClass::Write => self.write.as_ref(),
            OperationClass::Other => self.other.as_ref(),
        }
    }

    /// The sum over all sides.
    pub fn total(&self, unit: Unit) -> f64 {
        OperationClass::ALL
            .into_iter()
            .filter_map(|w| self.side(w))
            .map(|s| s.value(unit))
            .sum()
    }
}

impl Cell {
    /// The measurements that count: whole ones, or all of them when none is whole.
    pub fn counted(&self) -> Vec<&Repetition> {
        let whole: Vec<&Repetition> = self.repetitions.iter().filter(|r| !r.cut_short).collect();
        if whole.is_empty() {
            self.repetitions.iter().collect()
        } else {
            whole
        }
    }

    /// A figure over the repetitions.
    pub fn spread(&self, figure: impl Fn(&Repetition) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.counted().into_iter().filter_map(figure).collect();
        Spread::from_values(&values)
    }

    /// The rate of one side.
    pub fn rate(&self, which: OperationClass, unit: Unit) -> Option<Spread> {
        self.spread(|r| r.side(which).map(|s| s.value(unit)))
    }

    /// A latency quantile of one side, in microseconds.
    pub fn quantile(&self, which: OperationClass, q: f64) -> Option<Spread> {
        self.spread(|r| r.side(which).and_then(|s| s.quantile(q)))
    }

    /// The repetition with the median total (the lower of the two middle ones), for charts
    /// of a single one.
    pub fn typical(&self) -> Option<&Repetition> {
        let mut by_total = self.counted();
        by_total.sort_by(|a, b| a.total(Unit::Iops).total_cmp(&b.total(Unit::Iops)));
        by_total.get(by_total.len().checked_sub(1)? / 2).copied()
    }

    /// Whole repetitions so far.
    pub fn whole(&self) -> usize {
        self.repetitions.iter().filter(|r| !r.cut_short).count()
    }
}

impl Run {
    /// The cell of a point.
    pub fn cell(&self, point: &Point) -> Option<&Cell> {
        self.cells.iter().find(|c| c.point == *point)
    }

    /// Returns the cell of a point, made when there is none.
    pub fn cell_mut(&mut self, point: &Point) -> Option<&mut Cell> {
        let at = match self.cells.iter().position(|c| c.point == *point) {
            Some(at) => at,
            None => {
                self.cells.push(Cell {
                    point: *point,
                    repetitions: Vec::new(),
                    failed: None,
                });
                self.cells.len() - 1
            }
        };
        self.cells.get_mut(at)
    }

    /// Faults and failures of all cells, with where they happened.
    pub fn faults(&self) -> Vec<String> {
        let mut out = Vec::new();
        for cell in &self.cells {
            let place = self.describe(&cell.point);
            if let Some(f) = &cell.failed {
                out.push(format!("{place}: {f}"));
            }
            for f in cell.repetitions.iter().flat_map(|r| &r.faults) {
                out.push(format!("{place}: {f}"));
            }
        }
        out
    }

    /// A point in words.
    pub fn describe(&self, p: &Point) -> String {
        let heading = self
            .definition
            .tables
            .get(p.table)
            .map(super::spec::Table::heading)
            .unwrap_or_default();
        let mut text = String::new();
        if self.targets.len() > 1 {
            if let Some(t) = self.targets.get(p.target) {
                text.push_str(&t.label);
                text.push_str(", ");
            }
        }
        text.push_str(&heading);
        match p.rate {
            Some(rate) => text.push_str(&format!(", {rate:.0} ops/s offered")),
            None => text.push_str(&format!(" {}/{}", p.read_percent, 100 - p.read_percent)),
        }
        if let Some(t) = self.definition.tables.get(p.table) {
            for (name, sweep, value) in [
                ("clients", &t.clients, p.clients),
                ("jobs", &t.jobs, p.jobs),
                ("nconnect", &t.nconnect, p.nconnect),
                ("depth", &t.depth, p.depth),
            ] {
                if sweep.as_ref().is_some_and(|s| s.values().len() > 1) {
                    text.push_str(&format!(", {name} {value}"));
                }
            }
        }
        text
    }

    /// Bytes of a table's working set.
    pub fn working_set(&self, table: usize) -> Size {
        self.definition
            .tables
            .get(table)
            .and_then(|t| t.working_set)
            .unwrap_or(self.definition.load.working_set)
    }
}

/// Rates between the samples of a cumulative series.
pub fn rates(samples: &[crate::phases::Sample]) -> Vec<Moment> {
    let mut before = crate::phases::Sample::default();
    let mut out = Vec::with_capacity(samples.len());
    for s in samples {
        let dt = s.at_s - before.at_s;
        // The last sample may come right behind the one before; a rate over next to
        // nothing says nothing.
        if dt < 1e-3 {
            continue;
        }
        let reads = s.reads.saturating_sub(before.reads) as f64;
        let ops = s.ops.saturating_sub(before.ops) as f64;
        out.push(Moment {
            at_s: s.at_s,
            reads: reads / dt,
            others: (ops - reads).max(0.0) / dt,
            mib: s.bytes.saturating_sub(before.bytes) as f64 / MIB / dt,
        });
        before = *s;
    }
    out
}
