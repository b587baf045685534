//! A point of the matrix on an NFS export, through the own generator.
//!
//! What a host with `nconnect` does is repeated on the wire: each client has that many
//! connections, and its jobs' operations are spread over them. Every job has a file of
//! its own. The working set is made once for all points that share it, and removed at
//! the end of the run.

use super::driver::{Context, Driver};
use super::outcome::{Point, QUANTILES, Repetition, Side, TargetFacts, rates};
use super::plan::Set;
use super::progress::Display;
use super::spec::{Cache, Durability, Kind, Pattern, Table};
use super::stats::{Little, ROUNDS, Steady};
use super::target::Nfs;
use super::trust::{self, Seen};
use super::units::thousands;
use super::{driver, facts};
use crate::args::{self, LoadKind, NfsArgs};
use crate::arrivals::Spacing;
use crate::error::BenchError;
use crate::nfs3::Stable;
use crate::race::{Moment, Observer, Sample};
use crate::run::{self, Outcome};
use crate::tally::{Class, ClassTally};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

/// Directories of the blend's working set.
const BLEND_DIRS: u32 = 32;
/// Shortest and longest time between two samples, in seconds.
const INTERVAL: (f64, f64) = (0.1, 1.0);
/// Samples of a measurement, within these bounds.
const SAMPLES: f64 = 40.0;
/// Longest wait for a reply, in seconds.
const TIMEOUT_S: f64 = 60.0;

/// The driver of one export.
pub struct NfsDriver {
    nfs: Nfs,
    /// Sets that were made; to be removed.
    made: BTreeSet<Set>,
    /// Sets that were read once.
    warmed: BTreeSet<Set>,
}

impl NfsDriver {
    /// Without any working set yet.
    pub fn new(nfs: Nfs) -> Self {
        Self {
            nfs,
            made: BTreeSet::new(),
            warmed: BTreeSet::new(),
        }
    }

    fn arguments(&self, context: &Context<'_>, table: &Table, point: &Point, set: &Set) -> NfsArgs {
        let load = match (table.kind, point.read_percent) {
            (Kind::Eda, _) => LoadKind::Eda,
            (Kind::Data, 100) => LoadKind::Read,
            (Kind::Data, 0) => LoadKind::Write,
            (Kind::Data, _) => LoadKind::Mix,
        };
        let each = point.jobs * point.depth;
        let per_client = point.nconnect.min(each);
        let connections = point.clients * per_client;
        let threads = context
            .settings
            .threads
            .unwrap_or((context.cores / 2).max(1));
        let durability = table
            .durability
            .unwrap_or(context.definition.load.durability);
        let mut a = self.set_arguments(set, context.definition.time.measure);
        a.load = load;
        a.connections = connections;
        a.depth = each.div_ceil(per_client);
        a.in_flight = Some(point.clients * each);
        a.clients = point.clients;
        a.rate = point.rate;
        a.arrivals = table.arrivals.unwrap_or(Spacing::Poisson);
        a.jobs = threads.min(connections);
        a.block_size = table.block_size.0;
        a.pattern = match table.pattern {
            Pattern::Sequential => args::Pattern::Sequential,
            Pattern::Random => args::Pattern::Random,
        };
        a.read_percent = point.read_percent;
        a.stability = match durability {
            Durability::Stable => Stable::FileSync,
            Durability::Unstable => Stable::Unstable,
        };
        a.warmup = Some(match self.cache(context, table) {
            // What is cold must not be warmed up.
            Cache::Cold => 0.0,
            _ => context.definition.time.warmup,
        });
        a.server_pid = context.settings.server_pid;
        a
    }

    fn cache(&self, context: &Context<'_>, table: &Table) -> Cache {
        table.cache.unwrap_or(context.definition.load.cache)
    }

    /// The settings that name a working set; the rest are defaults.
    fn set_arguments(&self, set: &Set, duration: f64) -> NfsArgs {
        NfsArgs {
            load: if set.many_small {
                LoadKind::Eda
            } else {
                LoadKind::Read
            },
            version: self.nfs.version,
            server: self.nfs.server.clone(),
            mount_port: Some(self.nfs.mount_port),
            rpcbind: false,
            export: self.nfs.export.clone(),
            dir: format!("weir-bench-{}", set.name()),
            connections: 1,
            nconnect: None,
            depth: 1,
            in_flight: None,
            clients: 1,
            rate: None,
            arrivals: Spacing::Poisson,
            jobs: 1,
            block_size: 4096,
            size: set.bytes(),
            files: Some(set.files),
            dirs: BLEND_DIRS,
            pattern: args::Pattern::Random,
            read_percent: 100,
            stability: Stable::Unstable,
            commit_every: 0,
            warmup: None,
            run: args::RunArgs {
                duration,
                ops: None,
                verify: false,
                reuse: true,
                keep: true,
                no_preread: true,
                seed: 1,
            },
            uid: 0,
            gid: 0,
            server_pid: None,
            timeout: TIMEOUT_S,
            json: None,
            samples: None,
            label: String::new(),
        }
    }
}

impl Driver for NfsDriver {
    fn describe(&self, facts: &mut TargetFacts) {
        facts.generator = concat!("weir bench ", env!("CARGO_PKG_VERSION")).into();
    }

    fn measure(
        &mut self,
        context: &Context<'_>,
        point: &Point,
        display: &Display,
    ) -> Result<Repetition, BenchError> {
        let (table, set) = driver::table_and_set(context, point)?;
        let mut args = self.arguments(context, table, point, &set);
        let cache = self.cache(context, table);
        if cache == Cache::Cold {
            // That there is a command was checked before the run.
            if let Some(command) = &context.settings.cold_command {
                // The set is made before: making it would warm what is to be cold.
                if !self.made.contains(&set) {
                    display.draw("making the working set", 0.0);
                    self.made.insert(set);
                    run::prepare(&args)?;
                }
                driver::run_shell(command)?;
                driver::wait_until("the server answers again", || self.nfs.answers())?;
            }
        }
        let reads = args.load != LoadKind::Write;
        args.run.no_preread = !(reads && cache == Cache::Warm && !self.warmed.contains(&set));
        self.made.insert(set);
        let observer = Live::new(context, display);
        let started = crate::clock::unix_seconds();
        let disks = facts::disk_busy_ms();
        let outcome = run::observed(&args, &observer)?;
        let disks = (disks, facts::disk_busy_ms());
        if reads && !args.run.no_preread {
            self.warmed.insert(set);
        }
        let mut repetition = repetition(context, table, point, &args, &outcome, &observer);
        repetition.started = started;
        if self.nfs.address.ip().is_loopback() {
            // The disks were watched from before the warm-up on.
            let watched = repetition.warmup_s + repetition.seconds;
            repetition.disk_busy = facts::disk_busy(&disks.0, &disks.1, watched);
        }
        repetition.bound = trust::bound(&Seen {
            // COMMITs are among what was offered.
            ops_per_s: outcome.report.figures.ops_per_s + repetition.commits_per_s,
            mib_per_s: outcome.report.figures.mib_per_s,
            offered: point.rate,
            cap_mib_s: context.settings.cap_mib_s,
            cap_iops: context.settings.cap_iops,
            generator_busy: repetition.generator_busy,
            busy_cores: repetition.machine_busy_cores,
            cores: f64::from(context.cores),
            disk_busy: repetition.disk_busy,
        });
        Ok(repetition)
    }

    fn alive(&self) -> Result<(), BenchError> {
        self.nfs.answers()
    }

    fn clean(&mut self) -> Result<(), BenchError> {
        for set in std::mem::take(&mut self.made) {
            run::discard(&self.set_arguments(&set, 1.0))?;
        }
        Ok(())
    }
}

fn repetition(
    context: &Context<'_>,
    table: &Table,
    point: &Point,
    args: &NfsArgs,
    outcome: &Outcome,
    observer: &Live<'_>,
) -> Repetition {
    let report = &outcome.report;
    let figures = &report.figures;
    let seconds = figures.elapsed_s;
    let side = |class| side(outcome.tally.class(class), seconds);
    let client_cores = figures.client.cpu_us_per_op * figures.ops as f64 / 1e6 / seconds;
    let server_cores = figures.server.as_ref().map_or(0.0, |s| s.cores);
    let mut notes = figures.notes.clone();
    if report.jukebox > 0 {
        notes.push(format!(
            "{} calls repeated after NFS3ERR_JUKEBOX or NFS4ERR_DELAY",
            report.jukebox
        ));
    }
    let cumulative: Vec<(f64, f64)> = outcome
        .samples
        .iter()
        .map(|s| (s.at_s, s.ops as f64))
        .collect();
    Repetition {
        started: report.unix_time,
        warmup_s: observer.warmed_s.get(),
        seconds,
        read: side(Class::Read),
        write: side(Class::Write),
        other: side(Class::Op),
        commits_per_s: outcome.tally.class(Class::Commit).latency.len() as f64 / seconds,
        series: rates(&outcome.samples),
        warm: observer.warm.get(),
        steady: Steady::of_cumulative(&cumulative),
        little: Little::new(
            figures.in_flight,
            point.rate.is_none().then(|| point.in_flight()),
        ),
        durability: report.durability.clone(),
        tier: trust::tier(
            if args.load == LoadKind::Eda {
                0
            } else {
                point.read_percent
            },
            table
                .durability
                .unwrap_or(context.definition.load.durability),
            context.settings.mirrored,
        ),
        bound: super::outcome::Bound::Concurrency,
        generator_busy: figures.client.busiest_thread,
        machine_busy_cores: figures.machine.other_cores
            + server_cores
            + client_cores
            + figures.machine.stolen_cores,
        other_cores: figures
            .server
            .is_some()
            .then_some(figures.machine.other_cores),
        stolen_cores: figures.machine.stolen_cores,
        disk_busy: None,
        server_cpu_us_per_op: figures.server.as_ref().map(|s| s.cpu_us_per_op),
        cut_short: outcome.cut_short,
        faults: figures.faults.clone(),
        notes,
    }
}

fn side(tally: &ClassTally, seconds: f64) -> Option<Side> {
    let latency = &tally.latency;
    if latency.is_empty() {
        return None;
    }
    let us = |ns: u64| ns as f64 / 1000.0;
    Some(Side {
        ops_per_s: latency.len() as f64 / seconds,
        mib_per_s: tally.bytes as f64 / seconds / super::units::MIB,
        mean_us: latency.mean() / 1000.0,
        max_us: us(latency.max()),
        quantiles_us: QUANTILES
            .iter()
            .map(|q| us(latency.value_at_quantile(*q)))
            .collect(),
    })
}

/// Follows a measurement, draws it, and decides when it is warm.
struct Live<'a> {
    display: &'a Display,
    interval: f64,
    measure: f64,
    warmup_at_most: f64,
    warm: Cell<Option<Steady>>,
    warmed_s: Cell<f64>,
}

impl<'a> Live<'a> {
    fn new(context: &Context<'_>, display: &'a Display) -> Self {
        let time = &context.definition.time;
        Self {
            display,
            interval: (time.measure / SAMPLES).clamp(INTERVAL.0, INTERVAL.1),
            measure: time.measure,
            warmup_at_most: time.warmup_at_most,
            warm: Cell::new(None),
            warmed_s: Cell::new(0.0),
        }
    }
}

impl Observer for Live<'_> {
    fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }

    fn see(&self, moment: Moment<'_>) {
        let figure = |samples: &[Sample]| {
            // The rate of the last second or so.
            let Some(last) = samples.last() else {
                return String::new();
            };
            let first = samples
                .iter()
                .rev()
                .find(|s| last.at_s - s.at_s >= 1.0)
                .copied()
                .unwrap_or_default();
            let dt = (last.at_s - first.at_s).max(1e-3);
            format!(
                "{} MiB/s, {} ops/s",
                thousands(((last.bytes - first.bytes) as f64 / dt / super::units::MIB).round()),
                thousands(((last.ops - first.ops) as f64 / dt).round())
            )
        };
        match moment {
            Moment::Preparing => self.display.draw("making the working set", 0.0),
            Moment::Warming(s) => {
                self.warmed_s.set(s.last().map_or(0.0, |s| s.at_s));
                self.display
                    .draw(&format!("warming up, {}", figure(s)), 0.0);
            }
            Moment::Measuring(s) => {
                let at = s.last().map_or(0.0, |s| s.at_s);
                self.display.draw(
                    &format!("{at:.0} of {:.0} s, {}", self.measure, figure(s)),
                    at / self.measure,
                );
            }
        }
    }

    /// Warm is: for as long as was asked for, and steady over that long by the five
    /// rounds' criterion; or not steady, but waited for long enough.
    fn warm(&self, elapsed_s: f64, at_least: f64, samples: &[Sample]) -> bool {
        if at_least <= 0.0 {
            return true;
        }
        if elapsed_s < at_least {
            return false;
        }
        let from = elapsed_s - at_least;
        let base = samples
            .iter()
            .rev()
            .find(|s| s.at_s <= from)
            .copied()
            .unwrap_or_default();
        let window: Vec<(f64, f64)> = samples
            .iter()
            .filter(|s| s.at_s > base.at_s)
            .map(|s| (s.at_s - base.at_s, (s.ops - base.ops) as f64))
            .collect();
        let judged = Steady::of_cumulative(&window);
        self.warm.set(judged);
        let enough = window.len() >= ROUNDS;
        judged.is_some_and(|s| s.steady && enough) || elapsed_s >= self.warmup_at_most.max(at_least)
    }
}
