//! fio's job file for a point.

use super::outcome::QUANTILES;
use super::plan::Set;
use super::spec::{Cache, Durability, FioValue, Pattern};
use crate::arrivals::Spacing;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Place of fio's files.
#[derive(Debug, Clone)]
pub enum Location {
    /// Files in this folder.
    Directory(PathBuf),
    /// This device, in parts.
    Device(PathBuf),
}

/// Parameters of a job file.
pub struct Job {
    /// Folder or device that fio uses.
    pub location: Location,
    /// Files and their sizes.
    pub set: Set,
    /// Processes on each host.
    pub jobs: u32,
    /// In flight of each.
    pub depth: u32,
    /// Bytes of a block.
    pub block: u64,
    /// Order of the blocks.
    pub pattern: Pattern,
    /// Share of reads in percent.
    pub read_percent: u32,
    /// Durability that writes ask for.
    pub durability: Durability,
    /// State of caches when the measurement begins.
    pub cache: Cache,
    /// Through the page cache, not O_DIRECT.
    pub buffered: bool,
    /// Seconds of load before the measurement.
    pub warmup: f64,
    /// Seconds of the measurement.
    pub measure: f64,
    /// Operations a second in all, in an open loop.
    pub rate: Option<f64>,
    /// Spacing of an open loop's operations.
    pub spacing: Option<Spacing>,
    /// The definition's own options.
    pub own: BTreeMap<String, FioValue>,
    /// File to log throughput over time to.
    pub log: Option<PathBuf>,
}

impl Job {
    /// Seconds of load before the measurement. What is cold must not be warmed up, and
    /// jobs that end with their files have no time to lose.
    pub fn ramp(&self) -> f64 {
        if self.cache == Cache::Cold || !self.timed() {
            0.0
        } else {
            self.warmup
        }
    }

    /// Returns true if it runs for a time, rather than over its files so many times.
    fn timed(&self) -> bool {
        !self.own.contains_key("loops")
    }

    /// Seconds between two entries of the log.
    pub fn interval_s(&self) -> f64 {
        (self.measure / 20.0).clamp(0.1, 1.0)
    }

    /// Returns true if it goes past the caches of the machine that fio runs on.
    pub fn direct(&self) -> bool {
        // Unstable writes are those that the memory of this machine or the server's may
        // hold: buffered. Reads alone go past our own cache all the same.
        !self.buffered && (self.durability == Durability::Stable || self.read_percent == 100)
    }

    /// The durability in words.
    pub fn durability_in_words(&self) -> String {
        if self.read_percent == 100 {
            return "nothing written".into();
        }
        match (self.durability, self.direct()) {
            (Durability::Stable, true) => "O_DSYNC and O_DIRECT".into(),
            (Durability::Stable, false) => "O_DSYNC".into(),
            (Durability::Unstable, _) => "buffered, fsync at the end".into(),
        }
    }
}

/// Preparation of a working set before it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// Files are made and filled.
    LayOut,
    /// They are read from end to end as well.
    ReadOnce,
}

/// A job file that prepares the working set of `job`.
pub fn preparing(job: &Job, what: Preparation) -> String {
    const CHUNK: u64 = 1 << 20;
    let chunk = if job.set.file_size % CHUNK == 0 {
        CHUNK
    } else {
        job.block
    };
    let mut out = format!(
        "[{}]\nrw=read\nbs={chunk}\nnumjobs={}\nsize={}\nioengine=psync\ndirect={}\n\
         refill_buffers=1\nrandrepeat=0\ninvalidate=0\nthread=1\ngroup_reporting=1\n",
        job.set.name(),
        job.jobs,
        job.set.file_size,
        u8::from(job.direct())
    );
    for (k, v) in place(job) {
        out.push_str(&format!("{k}={v}\n"));
    }
    if what == Preparation::LayOut {
        out.push_str("create_only=1\n");
    }
    out
}

/// Place of a job's files.
fn place(job: &Job) -> [(&'static str, String); 2] {
    let escaped = |p: &PathBuf| p.display().to_string().replace(':', "\\:");
    match &job.location {
        Location::Directory(p) => [
            ("directory", escaped(p)),
            ("filename_format", "$jobname.$jobnum".into()),
        ],
        Location::Device(p) => [
            ("filename", escaped(p)),
            ("offset_increment", job.set.file_size.to_string()),
        ],
    }
}

/// The job file that measures `job`.
pub fn text(job: &Job) -> String {
    let mut options: Vec<(String, String)> = Vec::new();
    let mut set = |k: &str, v: String| options.push((k.to_owned(), v));
    let rw = match (job.pattern, job.read_percent) {
        (Pattern::Sequential, 100) => "read",
        (Pattern::Sequential, 0) => "write",
        (Pattern::Sequential, _) => "rw",
        (Pattern::Random, 100) => "randread",
        (Pattern::Random, 0) => "randwrite",
        (Pattern::Random, _) => "randrw",
    };
    set("rw", rw.into());
    if !matches!(job.read_percent, 0 | 100) {
        set("rwmixread", job.read_percent.to_string());
    }
    set("bs", job.block.to_string());
    set("numjobs", job.jobs.to_string());
    set("size", job.set.file_size.to_string());
    set(
        "ioengine",
        if job.depth > 1 { "libaio" } else { "psync" }.into(),
    );
    set("iodepth", job.depth.to_string());
    set("direct", u8::from(job.direct()).to_string());
    if job.read_percent < 100 {
        match job.durability {
            Durability::Stable => set("sync", "dsync".into()),
            Durability::Unstable => set("end_fsync", "1".into()),
        }
    }
    // Blocks drawn evenly, with repetition, as the own generator and diskspd do.
    if job.pattern == Pattern::Random {
        set("norandommap", "1".into());
    }
    set("randrepeat", "0".into());
    // Contents that do not compress: fio's random buffers, changed for every write.
    set("refill_buffers", "1".into());
    set("invalidate", u8::from(job.cache != Cache::AsIs).to_string());
    set("runtime", format!("{:.0}ms", job.measure * 1000.0));
    if job.timed() {
        set("time_based", "1".into());
    }
    if job.ramp() > 0.0 {
        set("ramp_time", format!("{:.0}ms", job.ramp() * 1000.0));
    }
    if let Some(rate) = job.rate {
        let each = rate / f64::from(job.jobs.max(1));
        let reads = each * f64::from(job.read_percent) / 100.0;
        // fio takes whole operations a second; less than one would mean no limit.
        let whole = |r: f64| (r.round() as u64).max(1);
        set(
            "rate_iops",
            match job.read_percent {
                0 | 100 => whole(each).to_string(),
                _ => format!("{},{}", whole(reads), whole(each - reads)),
            },
        );
        if job.spacing != Some(Spacing::Constant) {
            set("rate_process", "poisson".into());
        }
    }
    for (key, value) in place(job) {
        set(key, value);
    }
    set("thread", "1".into());
    set("group_reporting", "1".into());
    set("lat_percentiles", "1".into());
    set("clat_percentiles", "0".into());
    let quantiles: Vec<String> = QUANTILES.iter().map(|q| format!("{}", q * 100.0)).collect();
    set("percentile_list", quantiles.join(":"));
    if let Some(log) = &job.log {
        set("write_bw_log", log.display().to_string());
        set("log_avg_msec", format!("{:.0}", job.interval_s() * 1000.0));
        set("per_job_logs", "0".into());
    }
    for (key, value) in &job.own {
        options.retain(|(k, _)| k != key);
        options.push((key.clone(), value.to_string()));
    }
    let mut out = format!("[{}]\n", job.set.name());
    for (k, v) in options {
        out.push_str(&format!("{k}={v}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::super::spec::Kind;
    use super::*;

    fn job() -> Job {
        Job {
            location: Location::Directory("/mnt/a:b/weir-bench".into()),
            set: Set {
                target: 0,
                files: 8,
                file_size: 1 << 20,
                dirs: 1,
                kind: Kind::Data,
            },
            jobs: 8,
            depth: 3,
            block: 65536,
            pattern: Pattern::Random,
            read_percent: 0,
            durability: Durability::Stable,
            cache: Cache::Warm,
            buffered: false,
            warmup: 5.0,
            measure: 10.0,
            rate: None,
            spacing: None,
            own: BTreeMap::new(),
            log: None,
        }
    }

    /// diskspd's -r -w100 -t8 -o3 -b64K -Sh, as fio says it.
    #[test]
    fn a_job_says_what_the_point_says() {
        let text = text(&job());
        for line in [
            "[s8x1048576]",
            "rw=randwrite",
            "bs=65536",
            "numjobs=8",
            "iodepth=3",
            "direct=1",
            "sync=dsync",
            "runtime=10000ms",
            "ramp_time=5000ms",
            "directory=/mnt/a\\:b/weir-bench",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("rwmixread"));
    }

    #[test]
    fn mixes_rates_and_caches() {
        let mut j = job();
        j.read_percent = 75;
        j.rate = Some(800.0);
        j.durability = Durability::Unstable;
        j.cache = Cache::Cold;
        let text = text(&j);
        for line in [
            "rw=randrw",
            "rwmixread=75",
            "rate_iops=75,25",
            "rate_process=poisson",
            "direct=0",
            "end_fsync=1",
            "invalidate=1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("ramp_time") && !text.contains("sync=dsync"));
    }

    /// A set is made, and read where a cache may hold it, as the measurement finds it.
    #[test]
    fn preparations_are_of_the_same_files() {
        let mut j = job();
        let text = preparing(&j, Preparation::LayOut);
        for line in [
            "[s8x1048576]",
            "rw=read",
            "bs=1048576",
            "numjobs=8",
            "create_only=1",
            "directory=/mnt/a\\:b/weir-bench",
            "filename_format=$jobname.$jobnum",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        j.set.file_size = 3 << 16;
        let text = preparing(&j, Preparation::ReadOnce);
        assert!(
            text.contains("bs=65536\n") && !text.contains("create_only"),
            "{text}"
        );
    }

    /// The options of the published command lines reach fio as they are, once each.
    #[test]
    fn a_definitions_own_options_win() {
        let d = presets::load("filestore").unwrap();
        let mut j = job();
        j.own.clone_from(&d.tables[1].fio);
        let text = text(&j);
        for line in [
            "ioengine=sync",
            "direct=0",
            "sync=1",
            "loops=10",
            "fallocate=none",
            "end_fsync=1",
        ] {
            assert_eq!(
                text.lines().filter(|l| *l == line).count(),
                1,
                "{line} in\n{text}"
            );
        }
        assert_eq!(
            text.lines().filter(|l| l.starts_with("iodepth=")).count(),
            1
        );
        assert!(!text.contains("time_based") && !text.contains("ramp_time"));
    }
}
