//! Threads of a generator through the phases of a run: warm-up, measurement, drain.

use crate::clock;
use crate::counters::Tally;
use crate::engine::{Phase, Stage, ThreadResult};
use crate::error::BenchError;
use crate::interrupt;
use crate::machine::{self, MachineSample, ProcessSample};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Stack of a generator thread, in bytes.
const STACK: usize = 1 << 20;

/// Work done up to a moment of a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the phase began.
    pub at_s: f64,
    /// Operations completed in it.
    pub ops: u64,
    /// READs among the completed operations.
    pub reads: u64,
    /// Bytes of file data moved.
    pub bytes: u64,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// The working set is being made.
    Preparing,
    /// Load, not counted; the samples so far.
    Warming(&'a [Sample]),
    /// Load, counted; the samples so far.
    Measuring(&'a [Sample]),
}

/// Follows a run, and decides when it is warm.
pub trait Observer {
    /// Time between two samples.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Called at every sample.
    fn see(&self, _moment: Moment<'_>) {}

    /// Returns true if the warm-up may end; `at_least` seconds are what the settings ask for.
    fn warm(&self, elapsed_s: f64, at_least: f64, _samples: &[Sample]) -> bool {
        elapsed_s >= at_least
    }
}

/// Duration of a run, and the process whose processor time counts.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Seconds of load before the measurement.
    pub warmup_s: f64,
    /// Seconds of the measurement.
    pub duration_s: f64,
    /// Process id of the server on this machine.
    pub server_pid: Option<u32>,
    /// Reads what that process, or it and its children, have used so far.
    pub sample: fn(u32) -> Option<ProcessSample>,
}

/// Results of a run's threads.
pub struct RunResults {
    /// The sum of all threads' counts.
    pub tally: Tally,
    /// Start, in seconds since 1970.
    pub unix_time: u64,
    /// Start of the measurement, on the monotonic clock in nanoseconds.
    pub began_ns: u64,
    /// Length of the measurement, in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time of each generator thread, in nanoseconds.
    pub thread_cpu_ns: Vec<u64>,
    /// The measurement over time.
    pub samples: Vec<Sample>,
    /// Operations in each second.
    pub series: Vec<u64>,
    /// The server's process id, and the server before and after.
    pub server: Option<(u32, ProcessSample, ProcessSample)>,
    /// The machine before and after.
    pub machine: (MachineSample, MachineSample),
    /// The user ended it before its time.
    pub cut_short: bool,
}

/// Samples of the conductor at the measurement's start.
struct Start {
    ns: u64,
    unix_time: u64,
    server: Option<ProcessSample>,
    machine: MachineSample,
    progress: [u64; 3],
}

impl Start {
    /// Samples, and lets the threads count from now on.
    fn begin_measurement(schedule: Schedule, stage: &Stage) -> Self {
        let start = Self {
            server: schedule.server_pid.and_then(schedule.sample),
            machine: machine::machine(),
            unix_time: clock::unix_seconds(),
            ns: clock::now_ns(),
            progress: [&stage.progress, &stage.reads, &stage.bytes]
                .map(|c| c.load(Ordering::Relaxed)),
        };
        stage.enter(Phase::Measure);
        start
    }
}

/// Runs `body` on a thread for each of `shares`, and `lead`, with their number, on this one.
fn on_threads<T: Send, L>(
    stage: &Stage,
    shares: Vec<T>,
    body: impl Fn(T) -> Result<ThreadResult, BenchError> + Sync,
    lead: impl FnOnce(u64) -> L,
) -> Result<(Vec<Result<ThreadResult, BenchError>>, L), BenchError> {
    let body = &body;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for share in shares {
            let spawned = std::thread::Builder::new()
                .name("weir-bench".into())
                .stack_size(STACK)
                .spawn_scoped(scope, move || {
                    let _watch = Fallen(stage);
                    body(share)
                });
            match spawned {
                Ok(t) => threads.push(t),
                Err(e) => {
                    stage.enter(Phase::Abort);
                    return Err(BenchError::Io("start a thread".into(), e));
                }
            }
        }
        let _watch = Fallen(stage);
        let led = lead(threads.len() as u64);
        let results = threads
            .into_iter()
            .map(|t| {
                t.join()
                    .unwrap_or_else(|_| Err(BenchError::Usage("a generator thread failed".into())))
            })
            .collect();
        Ok((results, led))
    })
}

/// Runs `body` on a thread for each of `shares`, and leads the threads through the phases. `body`
/// is over when the stage drains and nothing is in flight, or nothing is left to do.
pub fn race<T: Send>(
    schedule: Schedule,
    stage: &Stage,
    observer: &dyn Observer,
    shares: Vec<T>,
    body: impl Fn(T) -> Result<ThreadResult, BenchError> + Sync,
) -> Result<RunResults, BenchError> {
    // Without warm-up, not even the first replies may go uncounted.
    let at_once = (schedule.warmup_s == 0.0).then(|| Start::begin_measurement(schedule, stage));
    let lead = |threads| conduct(schedule, stage, threads, at_once, observer);
    let (results, conducted) = on_threads(stage, shares, body, lead)?;
    let server_after = schedule.server_pid.and_then(schedule.sample);
    let machine_after = machine::machine();
    if stage.phase() == Phase::Abort {
        return Err(results
            .into_iter()
            .find_map(Result::err)
            .unwrap_or_else(|| BenchError::Usage("a generator thread failed".into())));
    }
    let PhaseRecord {
        start,
        samples,
        cut_short,
    } = conducted;
    let mut tally = Tally::default();
    let mut thread_cpu_ns = Vec::new();
    let mut end_ns = start.ns + 1;
    for result in results {
        let r = result?;
        tally.add(&r.tally);
        thread_cpu_ns.push(r.cpu_ns);
        end_ns = end_ns.max(r.end_ns);
    }
    let server = match (schedule.server_pid, start.server, server_after) {
        (Some(pid), Some(before), Some(after)) => Some((pid, before, after)),
        (Some(_), ..) => {
            return Err(BenchError::Usage("--server-pid: no such process".into()));
        }
        (None, ..) => None,
    };
    let series = match observer.interval() <= Duration::from_secs(1) {
        true => per_second(&samples),
        false => Vec::new(),
    };
    Ok(RunResults {
        tally,
        unix_time: start.unix_time,
        began_ns: start.ns,
        elapsed_ns: end_ns - start.ns,
        thread_cpu_ns,
        samples,
        series,
        server,
        machine: (start.machine, machine_after),
        cut_short,
    })
}

/// Ends the run when the thread that holds it panics: the conductor waits for every thread to
/// finish or for one to fail, and they wait for its phases.
struct Fallen<'s>(&'s Stage);

impl Drop for Fallen<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Phase::Abort);
        }
    }
}

/// Operations in each whole second, from samples that come once a second or more often.
fn per_second(samples: &[Sample]) -> Vec<u64> {
    let (mut before, mut whole) = (0, 1.0);
    let mut series = Vec::new();
    for sample in samples {
        if sample.at_s >= whole {
            series.push(sample.ops.saturating_sub(before));
            before = sample.ops;
            whole = sample.at_s.floor() + 1.0;
        }
    }
    series
}

/// Result of [`conduct`].
struct PhaseRecord {
    start: Start,
    samples: Vec<Sample>,
    cut_short: bool,
}

/// Takes a sample every interval of a phase, for as long as `go_on` says.
struct Sampler<'a> {
    stage: &'a Stage,
    observer: &'a dyn Observer,
    threads: u64,
}

impl Sampler<'_> {
    fn is_over(&self) -> bool {
        self.stage.finished.load(Ordering::SeqCst) == self.threads
            || self.stage.phase() == Phase::Abort
    }

    fn counters(&self) -> [u64; 3] {
        [&self.stage.progress, &self.stage.reads, &self.stage.bytes]
            .map(|c| c.load(Ordering::Relaxed))
    }

    /// Samples until `end` (seconds of the phase, asked again at each sample) or the
    /// load is over or interrupted.
    fn sample(
        &self,
        start_ns: u64,
        base: [u64; 3],
        mut end: impl FnMut(f64, &[Sample]) -> Option<f64>,
        phase: Phase,
    ) -> Vec<Sample> {
        let interval_ns = (self.observer.interval().as_nanos() as u64).max(1_000_000);
        let mut samples = Vec::new();
        let elapsed = || (clock::now_ns() - start_ns) as f64 / 1e9;
        let mut tick_ns = start_ns;
        while let Some(end_s) = end(elapsed(), &samples) {
            tick_ns += interval_ns;
            let until_ns = tick_ns.min(start_ns + (end_s * 1e9) as u64);
            loop {
                let now = clock::now_ns();
                if now >= until_ns || self.is_over() || interrupt::requested() {
                    break;
                }
                std::thread::sleep(Duration::from_nanos((until_ns - now).min(20_000_000)));
            }
            let [ops, reads, bytes] = self.counters();
            samples.push(Sample {
                at_s: elapsed(),
                ops: ops.saturating_sub(base[0]),
                reads: reads.saturating_sub(base[1]),
                bytes: bytes.saturating_sub(base[2]),
            });
            self.observer.see(match phase {
                Phase::Warmup => Moment::Warming(&samples),
                _ => Moment::Measuring(&samples),
            });
            if self.is_over() || interrupt::requested() {
                break;
            }
        }
        samples
    }
}

/// Leads the threads through warm-up (unless `start` says that there is none),
/// measurement and drain.
fn conduct(
    schedule: Schedule,
    stage: &Stage,
    threads: u64,
    start: Option<Start>,
    observer: &dyn Observer,
) -> PhaseRecord {
    let sampler = Sampler {
        stage,
        observer,
        threads,
    };
    let start = start.unwrap_or_else(|| {
        let began_ns = clock::now_ns();
        let at_least = schedule.warmup_s;
        sampler.sample(
            began_ns,
            sampler.counters(),
            |elapsed, samples| {
                let warm = observer.warm(elapsed, at_least, samples);
                (!warm).then_some(if elapsed < at_least {
                    at_least
                } else {
                    f64::from(u32::MAX)
                })
            },
            Phase::Warmup,
        );
        Start::begin_measurement(schedule, stage)
    });
    let samples = sampler.sample(
        start.ns,
        start.progress,
        |elapsed, _| (elapsed < schedule.duration_s).then_some(schedule.duration_s),
        Phase::Measure,
    );
    let cut_short = interrupt::requested();
    stage.enter(Phase::Drain);
    while !sampler.is_over() {
        std::thread::sleep(Duration::from_millis(1));
    }
    PhaseRecord {
        start,
        samples,
        cut_short,
    }
}
