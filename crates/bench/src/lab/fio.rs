//! A point of the matrix on a path or block device, through fio.
//!
//! fio does what it does well and is not done again here: we write a job file, start the
//! program, follow its status lines, and read its JSON. With hosts, fio's own
//! client/server mode runs the same job on each (`fio --server` there, the target
//! mounted at the same path).

use super::driver::{Context, Driver, run_shell, table_and_set};
use super::facts;
use super::fio_job::{self, Job, Location, Preparation};
use super::fio_json::{self, Result as FioResult};
use super::outcome::{LimitingFactor, Point, Repetition, Run, TargetFacts};
use super::plan::Set;
use super::progress::Display;
use super::spec::{Cache, Kind};
use super::stats::{Little, Steady};
use super::target::TargetKind;
use super::trust::{self, Observations};
use crate::clock;
use crate::error::BenchError;
use crate::interrupt;
use crate::machine::{self, MachineSample};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Oldest fio that has the options used here: `sync=dsync` and percentiles of the whole latency. It
/// is what Debian 11 has; older ones were not tried.
const LEAST_VERSION: (u32, u32) = (3, 25);
/// Time between two polls of a running fio.
const POLL: Duration = Duration::from_millis(50);
/// Time that an interrupted fio has to write its results.
const GRACE_NS: u64 = 10_000_000_000;
/// Folder of the working sets, below the target.
const FOLDER: &str = "weir-bench";

/// The driver of one path or device.
pub struct FioDriver {
    program: String,
    version: String,
    location: Location,
    hosts: Vec<String>,
    /// Our folder for job files and results.
    scratch: PathBuf,
    made: BTreeSet<Set>,
    /// Sets that were read once.
    warmed: BTreeSet<Set>,
    made_folder: bool,
}

impl FioDriver {
    /// For this place; says what is missing.
    pub fn new(place: &TargetKind, run: &Run, destroy_device: bool) -> Result<Self, BenchError> {
        let settings = &run.settings;
        let version = version(&settings.fio)?;
        let definition = &run.definition;
        for table in &definition.tables {
            if table.kind != Kind::Data {
                return Err(BenchError::Usage(format!(
                    "{}: {} needs operations on names or many directories, which fio does not have; give an nfs:// target",
                    definition.name,
                    table.heading()
                )));
            }
            if table
                .nconnect
                .as_ref()
                .is_some_and(|n| n.values().len() > 1)
            {
                return Err(BenchError::Usage(format!(
                    "{}: nconnect is an option of the mount, so a path cannot be swept over it; give an nfs:// target",
                    definition.name
                )));
            }
        }
        let writes = definition
            .tables
            .iter()
            .any(|t| t.mixes.iter().any(|m| *m < 100));
        let location = match place {
            // Hosts need not share what is below the path, so nothing is made there.
            TargetKind::Directory(p) if !settings.hosts.is_empty() => {
                Location::Directory(p.clone())
            }
            TargetKind::Directory(p) => Location::Directory(p.join(FOLDER)),
            TargetKind::Device(p) => {
                // Even a run of reads alone may write: fio lays nothing out on a device,
                // but a definition with writes overwrites it.
                if writes && !destroy_device {
                    return Err(BenchError::Usage(format!(
                        "{} is a block device and this definition writes: everything on it would be lost (--destroy-device lets it)",
                        p.display()
                    )));
                }
                Location::Device(p.clone())
            }
            TargetKind::Nfs(_) | TargetKind::Smb(_) => {
                return Err(BenchError::Usage(
                    "fio needs a path; mount the export".into(),
                ));
            }
        };
        let scratch = std::env::temp_dir().join(format!(
            "weir-bench-{}-{:x}",
            std::process::id(),
            clock::now_ns()
        ));
        fs::create_dir(&scratch).map_err(BenchError::io(format!("make {}", scratch.display())))?;
        Ok(Self {
            program: settings.fio.clone(),
            version,
            location,
            hosts: settings.hosts.clone(),
            scratch,
            made: BTreeSet::new(),
            warmed: BTreeSet::new(),
            made_folder: false,
        })
    }

    fn job(&self, context: &Context<'_>, point: &Point) -> Result<Job, BenchError> {
        let (table, set) = table_and_set(context, point)?;
        Ok(Job {
            location: self.location.clone(),
            set,
            jobs: if self.hosts.is_empty() {
                point.clients * point.jobs
            } else {
                point.jobs
            },
            depth: point.depth,
            block: table.block_size.0,
            pattern: table.pattern,
            read_percent: point.read_percent,
            durability: context.definition.durability(table),
            cache: context.definition.cache(table),
            buffered: context.settings.buffered,
            warmup: context.definition.time.warmup,
            measure: context.definition.time.measure,
            rate: point.rate,
            spacing: table.arrivals,
            own: table.fio.clone(),
            log: Some(self.scratch.join("series")),
        })
    }

    /// Makes the working set, so that no measurement writes to holes and none is warm from
    /// that although it is to be cold; and reads it once where a cache is to be warm.
    /// Definitions with options of their own say all that themselves.
    fn prepare(&mut self, job: &Job, display: &Display) -> Result<(), BenchError> {
        let cached = !(job.direct() && on_local_disk(&self.location));
        let warm = job.cache == Cache::Warm && job.read_percent > 0 && cached;
        let what = if warm && !self.warmed.contains(&job.set) {
            Preparation::ReadOnce
        } else if !self.made.contains(&job.set) && matches!(self.location, Location::Directory(_)) {
            Preparation::LayOut
        } else {
            return Ok(());
        };
        self.made.insert(job.set);
        if !job.own.is_empty() {
            return Ok(());
        }
        display.draw("making the working set", 0.0);
        let job_file = self.scratch.join("prepare.fio");
        let output = self.scratch.join("prepare.json");
        fs::write(&job_file, fio_job::preparing(job, what))
            .map_err(BenchError::io("write the job file"))?;
        let mut watched = MachineActivity {
            samples: VecDeque::new(),
        };
        let (errors, cut_short) = self.follow(&job_file, &output, display, &mut watched)?;
        if cut_short {
            return Err(BenchError::Interrupted);
        }
        let text = fs::read_to_string(&output).unwrap_or_default();
        match fio_json::parse(&text) {
            Ok(r) => match r.error {
                Some(error) => return Err(os_failure(error, &errors)),
                None if what == Preparation::ReadOnce => {
                    self.warmed.insert(job.set);
                }
                None => {}
            },
            Err(e) => return Err(failure(&errors, &text, &e)),
        }
        Ok(())
    }

    /// The bandwidth logs in our folder: one, or one of each host, which fio fetches from
    /// there and names after it.
    fn logs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.scratch).into_iter().flatten().flatten();
        entries
            .map(|e| e.path())
            .filter(|p| {
                p.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with("series_bw.log"))
            })
            .collect()
    }

    fn command(&self, job_file: &Path, output: &Path) -> Command {
        let mut c = Command::new(&self.program);
        // Histograms come with json+, and are needed where several hosts' are added up.
        let format = if self.hosts.is_empty() {
            "json"
        } else {
            "json+"
        };
        c.arg(format!("--output-format={format}"))
            .arg(format!("--output={}", output.display()))
            .arg("--eta=always")
            .arg("--eta-newline=1")
            .current_dir(&self.scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C goes to the foreground group; fio gets it from us, once.
            .process_group(0);
        if self.hosts.is_empty() {
            c.arg(job_file);
        }
        for host in &self.hosts {
            c.arg(format!("--client={host}")).arg(job_file);
        }
        c
    }
}

/// The version of a fio program, once it is known to be recent enough.
fn version(program: &str) -> Result<String, BenchError> {
    let out = Command::new(program).arg("--version").output().map_err(|e| {
        BenchError::Usage(format!(
            "{program}: {e}; fio measures paths and devices: install it (apt-get install fio, dnf install fio)"
        ))
    })?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    match parse_version(&text) {
        Some(v) if v >= LEAST_VERSION => Ok(text),
        Some(_) => Err(BenchError::Usage(format!(
            "{program} is {text}; fio-{}.{} or newer is needed",
            LEAST_VERSION.0, LEAST_VERSION.1
        ))),
        None => Err(BenchError::Usage(format!(
            "{program} --version says {text:?}, which is no version of fio"
        ))),
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.strip_prefix("fio-")?;
    let mut parts = numbers.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Activity of the machine, sampled while fio ran.
struct MachineActivity {
    samples: VecDeque<(u64, MachineSample, BTreeMap<String, u64>)>,
}

impl MachineActivity {
    fn sample(&mut self) {
        self.samples
            .push_back((clock::now_ns(), machine::machine(), facts::disk_busy_ms()));
    }

    /// Busy and stolen cores, and the busiest disk, over the last `seconds`.
    fn last(&self, seconds: f64) -> Option<(f64, f64, Option<f64>)> {
        let end = self.samples.back()?;
        let from = end.0.saturating_sub((seconds * 1e9) as u64);
        let start = self.samples.iter().find(|s| s.0 >= from)?;
        let dt = end.0.saturating_sub(start.0) as f64;
        if dt < 1e8 {
            return None;
        }
        let busy = end.1.busy_ns.saturating_sub(start.1.busy_ns) as f64 / dt;
        let stolen = end.1.steal_ns.saturating_sub(start.1.steal_ns) as f64 / dt;
        Some((busy, stolen, facts::disk_busy(&start.2, &end.2, dt / 1e9)))
    }
}

impl Driver for FioDriver {
    fn describe(&self, facts: &mut TargetFacts) {
        facts.generator = if self.hosts.is_empty() {
            self.version.clone()
        } else {
            format!("{} on {}", self.version, self.hosts.join(", "))
        };
    }

    fn measure(
        &mut self,
        context: &Context<'_>,
        point: &Point,
        display: &Display,
    ) -> Result<Repetition, BenchError> {
        let job = self.job(context, point)?;
        if let Location::Directory(folder) = &self.location {
            if !folder.exists() && self.hosts.is_empty() {
                fs::create_dir(folder)
                    .map_err(BenchError::io(format!("make {}", folder.display())))?;
                self.made_folder = true;
            }
        }
        self.prepare(&job, display)?;
        if job.cache == Cache::Cold {
            if let Some(command) = &context.settings.cold_command {
                run_shell(command)?;
            }
        }
        let _ = fs::remove_file(self.scratch.join("result.json"));
        for old in self.logs() {
            let _ = fs::remove_file(old);
        }
        let job_file = self.scratch.join("job.fio");
        let output = self.scratch.join("result.json");
        fs::write(&job_file, fio_job::text(&job)).map_err(BenchError::io("write the job file"))?;
        let started = clock::unix_seconds();
        let mut watched = MachineActivity {
            samples: VecDeque::new(),
        };
        let (errors, cut_short) = self.follow(&job_file, &output, display, &mut watched)?;
        let text = fs::read_to_string(&output).unwrap_or_default();
        let result = match fio_json::parse(&text) {
            Ok(r) => r,
            Err(_) if cut_short => return Err(BenchError::Interrupted),
            Err(e) => return Err(failure(&errors, &text, &e)),
        };
        if let Some(error) = result.error {
            return Err(os_failure(error, &errors));
        }
        if result.total_ops() == 0 {
            return Err(if cut_short {
                BenchError::Interrupted
            } else {
                failure(&errors, &text, "nothing was done")
            });
        }
        let mut r = repetition(context, point, &job, &result);
        r.started = started;
        r.cut_short = cut_short;
        r.notes.extend(errors);
        let log: String = self
            .logs()
            .iter()
            .filter_map(|l| fs::read_to_string(l).ok())
            .collect();
        r.series = fio_json::series(&log, job.block, job.interval_s(), r.seconds);
        r.steady = steady(&r);
        let mut seen = Observations {
            ops_per_s: r.total(super::spec::Unit::Iops),
            mib_per_s: r.total(super::spec::Unit::Throughput),
            offered: point.rate,
            cap_mib_s: context.settings.cap_mib_s,
            cap_iops: context.settings.cap_iops,
            generator_busy: r.generator_busy,
            ..Observations::default()
        };
        if self.hosts.is_empty() {
            if let Some((busy, stolen, disk)) = watched.last(r.seconds) {
                (r.machine_busy_cores, r.stolen_cores) = (busy, stolen);
                seen.busy_cores = busy;
                seen.cores = f64::from(context.cores);
                if matches!(&self.location, Location::Device(_)) || on_local_disk(&self.location) {
                    r.disk_busy = disk;
                    seen.disk_busy = disk;
                }
            }
        }
        r.bound = trust::bound(&seen);
        Ok(r)
    }

    fn alive(&self) -> Result<(), BenchError> {
        let path = match &self.location {
            Location::Directory(p) => p.parent().unwrap_or(p),
            Location::Device(p) => p,
        };
        fs::metadata(path)
            .map(|_| ())
            .map_err(BenchError::io(path.display().to_string()))
    }

    fn clean(&mut self) -> Result<(), BenchError> {
        let _ = fs::remove_dir_all(&self.scratch);
        let Location::Directory(folder) = &self.location else {
            return Ok(());
        };
        let ours: Vec<String> = self.made.iter().map(Set::name).collect();
        self.made.clear();
        let failed = || BenchError::io(format!("clear {}", folder.display()));
        let Ok(entries) = fs::read_dir(folder) else {
            return Ok(());
        };
        for entry in entries {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // In client/server mode fio puts the client's address before the name.
            if ours.iter().any(|o| name.contains(&format!("{o}."))) {
                fs::remove_file(entry.path()).map_err(failed())?;
            }
        }
        if self.made_folder {
            // Another run may have its files there by now.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }
}

impl Drop for FioDriver {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

fn on_local_disk(location: &Location) -> bool {
    match location {
        Location::Directory(p) => super::target::is_local(p),
        Location::Device(_) => true,
    }
}

fn steady(r: &Repetition) -> Option<Steady> {
    let mut sum = 0.0;
    let mut before = 0.0;
    let points: Vec<(f64, f64)> = r
        .series
        .iter()
        .map(|m| {
            sum += m.mib * (m.at_s - before);
            before = m.at_s;
            (m.at_s, sum)
        })
        .collect();
    Steady::of_cumulative(&points)
}

fn repetition(context: &Context<'_>, point: &Point, job: &Job, result: &FioResult) -> Repetition {
    let in_flight: f64 = [&result.read, &result.write]
        .into_iter()
        .flatten()
        .map(|s| s.ops_per_s * s.mean_us / 1e6)
        .sum();
    let mut notes = Vec::new();
    if point.rate.is_some() {
        notes.push("fio counts latency from sending, not from when an operation was due".into());
    }
    Repetition {
        started: 0,
        warmup_s: job.ramp(),
        seconds: result.seconds,
        read: result.read.clone(),
        write: result.write.clone(),
        other: None,
        commits_per_s: if result.seconds > 0.0 {
            result.syncs as f64 / result.seconds
        } else {
            0.0
        },
        series: Vec::new(),
        warm: None,
        steady: None,
        // A synchronous engine has one operation in flight, whatever the depth says.
        little: Little::new(
            in_flight,
            (point.rate.is_none() && job.own.is_empty()).then(|| point.in_flight()),
        ),
        durability: job.durability_in_words(),
        tier: trust::tier(
            point.read_percent,
            job.durability,
            context.settings.mirrored,
        ),
        bound: LimitingFactor::Concurrency,
        generator_busy: result.busy,
        machine_busy_cores: 0.0,
        other_cores: None,
        stolen_cores: 0.0,
        disk_busy: None,
        server_cpu_us_per_op: None,
        cut_short: false,
        faults: Vec::new(),
        notes,
    }
}

/// Returns the error of a run of fio without results, made from its output.
fn failure(errors: &[String], output: &str, what: &str) -> BenchError {
    let mut said: Vec<&str> = errors.iter().map(String::as_str).collect();
    said.extend(
        output
            .lines()
            .take_while(|l| !l.starts_with('{'))
            .filter(|l| !l.trim().is_empty()),
    );
    said.truncate(5);
    let text = said.join("; ");
    if text.contains("No space left") {
        return os_failure(libc::ENOSPC, errors);
    }
    let hint = if text.contains("Invalid argument") && text.contains("O_DIRECT") {
        " (the file system refuses direct I/O: --buffered)"
    } else {
        ""
    };
    BenchError::Usage(format!(
        "fio: {}{hint}",
        if text.is_empty() { what } else { &text }
    ))
}

fn os_failure(error: i32, errors: &[String]) -> BenchError {
    let what = errors
        .iter()
        .find(|e| e.contains("error") || e.contains("fio:"))
        .map_or_else(|| "fio".to_owned(), |e| e.trim().to_owned());
    BenchError::Io(what, std::io::Error::from_raw_os_error(error))
}

impl FioDriver {
    /// Runs fio to its end; returns what it complained about, and whether it was
    /// interrupted.
    fn follow(
        &self,
        job_file: &Path,
        output: &Path,
        display: &Display,
        watched: &mut MachineActivity,
    ) -> Result<(Vec<String>, bool), BenchError> {
        let mut child = self
            .command(job_file, output)
            .spawn()
            .map_err(BenchError::io(format!("start {}", self.program)))?;
        let status = Arc::new(Mutex::new(String::new()));
        let reader = child.stdout.take().map(|out| {
            let status = Arc::clone(&status);
            std::thread::spawn(move || keep_last_line(out, &status))
        });
        let complaints = child.stderr.take().map(|mut err| {
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = err.read_to_string(&mut text);
                text
            })
        });
        let mut interrupted_ns = None;
        loop {
            match child.try_wait().map_err(BenchError::io("wait for fio"))? {
                Some(_) => break,
                None => std::thread::sleep(POLL),
            }
            watched.sample();
            let line = status.lock().map(|s| s.clone()).unwrap_or_default();
            if let Some((figure, share)) = fio_json::status(&line) {
                display.draw(&figure, share);
            } else {
                display.draw("fio starts", 0.0);
            }
            if interrupt::requested() {
                let since = *interrupted_ns.get_or_insert_with(|| {
                    signal(&child, Signal::INT);
                    clock::now_ns()
                });
                if clock::now_ns() - since > GRACE_NS {
                    signal(&child, Signal::KILL);
                }
            }
        }
        watched.sample();
        let errors = complaints
            .and_then(|t| t.join().ok())
            .unwrap_or_default()
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !is_chatter(l))
            .map(str::to_owned)
            .collect();
        if let Some(r) = reader {
            let _ = r.join();
        }
        Ok((errors, interrupted_ns.is_some()))
    }
}

/// Returns true for lines of fio's standard error that mean no fault.
fn is_chatter(line: &str) -> bool {
    line.contains("terminating on signal")
        || line.contains("both iodepth >= 1 and synchronous I/O engine are selected")
}

/// The child has not been waited for, so its number is still its own.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Keeps the last line that fio wrote; its status lines end with a newline or a return.
fn keep_last_line(mut from: impl Read, status: &Mutex<String>) {
    let mut buffer = [0; 4096];
    let mut line = Vec::new();
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        for b in buffer.iter().take(n) {
            if matches!(b, b'\n' | b'\r') {
                if !line.is_empty() {
                    if let Ok(mut s) = status.lock() {
                        *s = String::from_utf8_lossy(&line).into_owned();
                    }
                }
                line.clear();
            } else if line.len() < 4096 {
                line.push(*b);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("fio-3.33"), Some((3, 33)));
        assert_eq!(parse_version("fio-3.7"), Some((3, 7)));
        assert_eq!(parse_version("fio-3.36-10-g1234"), Some((3, 36)));
        assert_eq!(parse_version("fio 3"), None);
        assert!((3, 7) < LEAST_VERSION);
        let error = version("/no/such/fio").unwrap_err().to_string();
        assert!(error.contains("apt-get install fio"), "{error}");
        let error = version("true").unwrap_err().to_string();
        assert!(error.contains("no version of fio"), "{error}");
    }
}
