//! Figures of any load: rates, latencies, and what they cost the server, the generator and the
//! machine.

use crate::counters::{Class, ClassTally};
use crate::phases::RunResults;
use serde::Serialize;
use std::fmt::Write as _;

/// Name and version of the generator.
pub const TOOL: &str = concat!("weir-bench ", env!("CARGO_PKG_VERSION"));
/// A generator thread busier than this share of the time limits the result.
const SATURATED: f64 = 0.95;

/// Latencies of a class, in microseconds.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// One class of operations.
#[derive(Debug, Clone, Serialize)]
pub struct ClassReport {
    /// Name of the class.
    pub class: &'static str,
    /// Operations completed in the measurement.
    pub ops: u64,
    /// Rate in operations a second.
    pub ops_per_s: f64,
    /// Bytes of file data moved.
    pub bytes: u64,
    /// MiB of file data a second.
    pub mib_per_s: f64,
    /// Latency of an operation, in microseconds.
    pub latency_us: Latency,
}

/// The server process during the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct ServerReport {
    /// Id of the process.
    pub pid: u32,
    /// Processor time an operation, in microseconds.
    pub cpu_us_per_op: f64,
    /// Part of it in the kernel on its behalf.
    pub system_us_per_op: f64,
    /// Cores that it kept busy.
    pub cores: f64,
    /// Threads at the end.
    pub threads: u64,
    /// Resident memory at the end, in bytes.
    pub rss: u64,
    /// Greatest resident memory of its life, in bytes.
    pub peak_rss: u64,
}

/// The generator itself during the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct ClientReport {
    /// Processor time an operation, in microseconds.
    pub cpu_us_per_op: f64,
    /// Share of the time that its busiest thread ran, 0 to 1.
    pub busiest_thread: f64,
    /// True if that makes it the bottleneck.
    pub saturated: bool,
    /// Calls of `epoll_wait` an operation.
    pub wakeups_per_op: f64,
    /// Calls of `recv` an operation.
    pub receives_per_op: f64,
}

/// The machine during the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct MachineReport {
    /// Cores kept busy by neither server nor generator (and by the server, when its
    /// process id was not given).
    pub other_cores: f64,
    /// Cores' worth of time that the hypervisor gave to others.
    pub stolen_cores: f64,
}

/// Measured values.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Seconds from the measurement's start to its last reply.
    pub elapsed_s: f64,
    /// Operations (COMMITs that go with WRITEs not counted).
    pub ops: u64,
    /// Rate in operations a second.
    pub ops_per_s: f64,
    /// MiB of file data a second.
    pub mib_per_s: f64,
    /// Mean number in flight by Little's law (rate × mean latency), to be compared
    /// with connections × depth.
    pub in_flight: f64,
    /// Directory entries listed a second.
    pub entries_per_s: f64,
    /// By class of operation.
    pub classes: Vec<ClassReport>,
    /// Operations completed in each second of the measurement.
    pub series: Vec<u64>,
    /// The server, when its process id was given.
    pub server: Option<ServerReport>,
    /// The generator's own use of the machine.
    pub client: ClientReport,
    /// Other activity of the machine.
    pub machine: MachineReport,
    /// Faults that make the run a failed one.
    pub faults: Vec<String>,
    /// A few faults in detail.
    pub notes: Vec<String>,
}

fn class_report(class: Class, t: &ClassTally, seconds: f64) -> ClassReport {
    let us = |ns: u64| ns as f64 / 1000.0;
    let q = |q: f64| us(t.latency.value_at_quantile(q));
    ClassReport {
        class: class.name(),
        ops: t.latency.len(),
        ops_per_s: t.latency.len() as f64 / seconds,
        bytes: t.bytes,
        mib_per_s: t.bytes as f64 / seconds / f64::from(1 << 20),
        latency_us: Latency {
            min: us(t.latency.min()),
            mean: t.latency.mean() / 1000.0,
            p50: q(0.5),
            p90: q(0.9),
            p99: q(0.99),
            p999: q(0.999),
            max: us(t.latency.max()),
        },
    }
}

impl Figures {
    /// Derives them from what the threads counted. `faults`: of the tally, in the words of its
    /// protocol.
    pub fn new(m: &RunResults, faults: Vec<String>) -> Self {
        let seconds = (m.elapsed_ns as f64 / 1e9).max(1e-9);
        let elapsed_ns = m.elapsed_ns.max(1) as f64;
        let ops = m.tally.ops();
        let per_op = |ns: f64| ns / 1000.0 / (ops.max(1) as f64);
        let classes: Vec<_> = Class::ALL
            .into_iter()
            .map(|c| (c, m.tally.class(c)))
            .filter(|(_, t)| !t.latency.is_empty())
            .map(|(c, t)| class_report(c, t, seconds))
            .collect();
        let client_ns: u64 = m.thread_cpu_ns.iter().sum();
        let busiest = m.thread_cpu_ns.iter().max().copied().unwrap_or(0) as f64 / elapsed_ns;
        let mut server_ns = 0;
        let server = m.server.map(|(pid, before, after)| {
            let user = after.user_ns.saturating_sub(before.user_ns);
            let system = after.system_ns.saturating_sub(before.system_ns);
            server_ns = user + system;
            ServerReport {
                pid,
                cpu_us_per_op: per_op(server_ns as f64),
                system_us_per_op: per_op(system as f64),
                cores: server_ns as f64 / elapsed_ns,
                threads: after.threads,
                rss: after.rss,
                peak_rss: after.peak_rss,
            }
        });
        let (before, after) = m.machine;
        let busy = after.busy_ns.saturating_sub(before.busy_ns);
        let steal = after.steal_ns.saturating_sub(before.steal_ns);
        let other = busy.saturating_sub(client_ns + server_ns + steal);
        Self {
            elapsed_s: seconds,
            ops,
            ops_per_s: ops as f64 / seconds,
            mib_per_s: classes.iter().map(|c| c.mib_per_s).sum(),
            in_flight: classes
                .iter()
                .map(|c| c.ops_per_s * c.latency_us.mean / 1e6)
                .sum(),
            entries_per_s: m.tally.entries as f64 / seconds,
            classes,
            series: m.series.clone(),
            server,
            client: ClientReport {
                cpu_us_per_op: per_op(client_ns as f64),
                busiest_thread: busiest,
                saturated: busiest > SATURATED,
                wakeups_per_op: m.tally.wakeups as f64 / ops.max(1) as f64,
                receives_per_op: m.tally.receives as f64 / ops.max(1) as f64,
            },
            machine: MachineReport {
                other_cores: other as f64 / elapsed_ns,
                stolen_cores: steal as f64 / elapsed_ns,
            },
            faults,
            notes: m.tally.notes.clone(),
        }
    }

    /// The figures as a table for a terminal.
    pub fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let mib = |b: u64| b as f64 / f64::from(1 << 20);
        writeln!(
            out,
            "{:<7} {:>10} {:>11} {:>9}  {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}  latency in µs",
            "class", "ops", "ops/s", "MiB/s", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for c in &self.classes {
            let l = &c.latency_us;
            writeln!(
                out,
                "{:<7} {:>10} {:>11.0} {:>9.1}  {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>9.0}",
                c.class,
                c.ops,
                c.ops_per_s,
                c.mib_per_s,
                l.mean,
                l.p50,
                l.p90,
                l.p99,
                l.p999,
                l.max
            )?;
        }
        if self.entries_per_s > 0.0 {
            writeln!(out, "entries listed: {:.0}/s", self.entries_per_s)?;
        }
        if let Some(s) = &self.server {
            writeln!(
                out,
                "server: {:.2} µs CPU an operation ({:.2} in the kernel), {:.2} cores, {:.0} MiB resident (peak {:.0}), {} threads",
                s.cpu_us_per_op,
                s.system_us_per_op,
                s.cores,
                mib(s.rss),
                mib(s.peak_rss),
                s.threads
            )?;
        }
        let c = &self.client;
        writeln!(
            out,
            "generator: {:.2} µs CPU an operation, busiest thread {:.0} %; {:.2} wake-ups, {:.2} receives an operation; in flight {:.1}",
            c.cpu_us_per_op,
            c.busiest_thread * 100.0,
            c.wakeups_per_op,
            c.receives_per_op,
            self.in_flight
        )?;
        writeln!(
            out,
            "machine: others kept {:.2} cores busy, {:.2} stolen",
            self.machine.other_cores, self.machine.stolen_cores
        )?;
        if c.saturated {
            writeln!(
                out,
                "WARNING: the generator was the bottleneck; use more --jobs"
            )?;
        }
        Ok(())
    }

    /// Writes the faults, a line each.
    pub fn write_faults(&self, out: &mut String) -> std::fmt::Result {
        for f in &self.faults {
            writeln!(out, "FAULT: {f}")?;
        }
        for n in &self.notes {
            writeln!(out, "note: {n}")?;
        }
        Ok(())
    }
}
