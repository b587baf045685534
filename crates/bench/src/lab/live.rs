//! A measurement of the own generator's: followed while it lasts, and made into a repetition.

use super::driver::Context;
use super::outcome::{LimitingFactor, Point, QUANTILES, Repetition, Side, rates};
use super::progress::Display;
use super::spec::Table;
use super::stats::{Little, ROUNDS, Steady};
use super::trust::{self, Observations};
use super::units::thousands;
use super::{facts, units};
use crate::clock;
use crate::counters::{Class, ClassTally, Tally};
use crate::figures::Figures;
use crate::phases::{Moment, Observer, Sample};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait for a reply under load, in seconds.
pub const TIMEOUT_S: f64 = 60.0;
/// Shortest and longest time between two samples, in seconds.
const INTERVAL: (f64, f64) = (0.1, 1.0);
/// Samples of a measurement, within these bounds.
const SAMPLES: f64 = 40.0;

/// Measurement of a generator.
pub struct GeneratorMeasurement<'a> {
    /// Counts, rates and times.
    pub figures: &'a Figures,
    /// All counts and latencies.
    pub tally: &'a Tally,
    /// The measurement over time.
    pub samples: &'a [Sample],
    /// The user ended it before its time.
    pub cut_short: bool,
    /// Durability that writes asked for, in words.
    pub durability: String,
    /// Share of reads in percent, of what tells how durable the load is.
    pub read_percent: u32,
    /// Anything to say beside the figures' own notes.
    pub note: Option<String>,
}

fn side(tally: &ClassTally, seconds: f64) -> Option<Side> {
    let latency = &tally.latency;
    if latency.is_empty() {
        return None;
    }
    let us = |ns: u64| ns as f64 / 1000.0;
    Some(Side {
        ops_per_s: latency.len() as f64 / seconds,
        mib_per_s: tally.bytes as f64 / seconds / units::MIB,
        mean_us: latency.mean() / 1000.0,
        max_us: us(latency.max()),
        quantiles_us: QUANTILES
            .iter()
            .map(|q| us(latency.value_at_quantile(*q)))
            .collect(),
    })
}

/// Follows a measurement, draws it, and decides when it is warm.
pub struct Live<'a> {
    display: &'a Display,
    started: u64,
    disks: BTreeMap<String, u64>,
    interval: f64,
    measure: f64,
    warmup_at_most: f64,
    warm: Cell<Option<Steady>>,
    warmed_s: Cell<f64>,
}

impl<'a> Live<'a> {
    /// Begins to follow one: what the disks do is watched from here on.
    pub fn new(context: &Context<'_>, display: &'a Display) -> Self {
        let time = &context.definition.time;
        Self {
            display,
            started: clock::unix_seconds(),
            disks: facts::disk_busy_ms(),
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
                thousands(((last.bytes - first.bytes) as f64 / dt / units::MIB).round()),
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

impl Live<'_> {
    /// The repetition that was measured; `local`: the server's disks are this machine's.
    pub fn finished(
        &self,
        context: &Context<'_>,
        table: &Table,
        point: &Point,
        m: &GeneratorMeasurement<'_>,
        local: bool,
    ) -> Repetition {
        let mut repetition = self.repetition(context, table, point, m);
        if local {
            // From before the warm-up on.
            let watched = repetition.warmup_s + repetition.seconds;
            repetition.disk_busy = facts::disk_busy(&self.disks, &facts::disk_busy_ms(), watched);
        }
        repetition.bound = trust::bound(&Observations {
            // COMMITs are among what was offered.
            ops_per_s: m.figures.ops_per_s + repetition.commits_per_s,
            mib_per_s: m.figures.mib_per_s,
            offered: point.rate,
            cap_mib_s: context.settings.cap_mib_s,
            cap_iops: context.settings.cap_iops,
            generator_busy: repetition.generator_busy,
            busy_cores: repetition.machine_busy_cores,
            cores: f64::from(context.cores),
            disk_busy: repetition.disk_busy,
        });
        repetition
    }

    /// Without what bound it.
    fn repetition(
        &self,
        context: &Context<'_>,
        table: &Table,
        point: &Point,
        m: &GeneratorMeasurement<'_>,
    ) -> Repetition {
        let figures = m.figures;
        let seconds = figures.elapsed_s;
        let side = |class| side(m.tally.class(class), seconds);
        let client_cores = figures.client.cpu_us_per_op * figures.ops as f64 / 1e6 / seconds;
        let server_cores = figures.server.as_ref().map_or(0.0, |s| s.cores);
        let mut notes = figures.notes.clone();
        notes.extend(m.note.clone());
        let samples = m.samples.iter();
        let cumulative: Vec<(f64, f64)> = samples.map(|s| (s.at_s, s.ops as f64)).collect();
        Repetition {
            started: self.started,
            warmup_s: self.warmed_s.get(),
            seconds,
            read: side(Class::Read),
            write: side(Class::Write),
            other: side(Class::Op),
            commits_per_s: m.tally.class(Class::Commit).latency.len() as f64 / seconds,
            series: rates(m.samples),
            warm: self.warm.get(),
            steady: Steady::of_cumulative(&cumulative),
            little: Little::new(
                figures.in_flight,
                point.rate.is_none().then(|| point.in_flight()),
            ),
            durability: m.durability.clone(),
            tier: trust::tier(
                m.read_percent,
                context.definition.durability(table),
                context.settings.mirrored,
            ),
            bound: LimitingFactor::Concurrency,
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
            cut_short: m.cut_short,
            faults: figures.faults.clone(),
            notes,
        }
    }
}
