//! Reports of fio: its JSON, its bandwidth log, its status line.

use super::outcome::{Moment, QUANTILES, Side};
use super::units::MIB;
use serde_json::Value;
use std::collections::BTreeMap;

/// Values that are taken from fio's JSON.
#[derive(Debug, Default)]
pub struct Result {
    /// Seconds that fio measured.
    pub seconds: f64,
    /// Reads; `None` if there were none.
    pub read: Option<Side>,
    /// Writes; `None` if there were none.
    pub write: Option<Side>,
    /// Number of fsyncs of all jobs.
    pub syncs: u64,
    /// Share of its time that a job's thread ran, on average.
    pub busy: f64,
    /// The system's error number that ended a job.
    pub error: Option<i32>,
    ops: u64,
}

impl Result {
    /// Reads and writes that were done.
    pub fn total_ops(&self) -> u64 {
        self.ops
    }
}

/// Reads the JSON of a single group, or of fio's client mode (`json+`). fio may put
/// messages before it.
///
/// With several hosts fio adds up everything but the percentiles: those come from the
/// hosts' histograms, merged here.
pub fn parse(text: &str) -> std::result::Result<Result, String> {
    let start = text.find('{').ok_or("no results")?;
    // Messages may follow as well: only the first value is taken.
    let value: Value = serde_json::Deserializer::from_str(text.get(start..).unwrap_or(""))
        .into_iter()
        .next()
        .ok_or("no results")?
        .map_err(|e| format!("results that are no JSON: {e}"))?;
    let jobs = value
        .get("jobs")
        .or_else(|| value.get("client_stats"))
        .and_then(Value::as_array)
        .ok_or("results without jobs")?;
    // Several hosts: fio adds an entry that sums them up.
    let job = jobs
        .iter()
        .find(|j| j.get("jobname").and_then(Value::as_str) == Some("All clients"))
        .or_else(|| jobs.first())
        .ok_or("results without jobs")?;
    let error = jobs
        .iter()
        .filter_map(|j| j.get("error").and_then(Value::as_i64))
        .find(|e| *e != 0)
        .and_then(|e| i32::try_from(e).ok());
    let number = |v: &Value, key: &str| v.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let mut out = Result {
        error,
        busy: (number(job, "usr_cpu") + number(job, "sys_cpu")) / 100.0,
        syncs: job
            .get("sync")
            .and_then(|s| s.get("total_ios"))
            .and_then(Value::as_u64)
            .unwrap_or(0),
        ..Result::default()
    };
    for (key, slot) in [("read", &mut out.read), ("write", &mut out.write)] {
        let Some(v) = job.get(key) else { continue };
        let ops = v.get("total_ios").and_then(Value::as_u64).unwrap_or(0);
        if ops == 0 {
            continue;
        }
        out.ops += ops;
        out.seconds = out.seconds.max(number(v, "runtime") / 1000.0);
        let mut side = side(v, ops);
        if let Some(merged) = merged_quantiles(jobs, key) {
            side.quantiles_us = merged;
        }
        *slot = Some(side);
    }
    Ok(out)
}

fn side(v: &Value, ops: u64) -> Side {
    let number = |v: &Value, key: &str| v.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let none = Value::Null;
    let latency = v.get("lat_ns").unwrap_or(&none);
    let percentiles = latency.get("percentile").unwrap_or(&none);
    let runtime_s = number(v, "runtime") / 1000.0;
    // `iops` is rounded in client mode; the count over the time is not.
    let ops_per_s = if runtime_s > 0.0 {
        ops as f64 / runtime_s
    } else {
        number(v, "iops")
    };
    Side {
        ops_per_s,
        mib_per_s: number(v, "bw_bytes") / MIB,
        mean_us: number(latency, "mean") / 1000.0,
        max_us: number(latency, "max") / 1000.0,
        quantiles_us: QUANTILES
            .iter()
            .map(|q| number(percentiles, &format!("{:.6}", q * 100.0)) / 1000.0)
            .collect(),
    }
}

/// The quantiles of all hosts' operations of one direction, from the histograms that
/// each host's entry has (`bins`: nanoseconds and how many took them); `None` when there
/// are none, as in the results of a single host.
fn merged_quantiles(jobs: &[Value], key: &str) -> Option<Vec<f64>> {
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for job in jobs {
        let host = job.get(key).and_then(|v| v.get("lat_ns")?.get("bins"));
        for (ns, count) in host.and_then(Value::as_object).into_iter().flatten() {
            if let (Ok(ns), Some(count)) = (ns.parse(), count.as_u64()) {
                *bins.entry(ns).or_insert(0) += count;
            }
        }
    }
    let total: u64 = bins.values().sum();
    let at = |q: f64| {
        let wanted = (q * total as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        bins.iter()
            .find(|(_, count)| {
                below += **count;
                below >= wanted
            })
            .map_or(0.0, |(ns, _)| *ns as f64 / 1000.0)
    };
    (total > 0).then(|| QUANTILES.iter().map(|q| at(*q)).collect())
}

/// The series from a bandwidth log with lines of: milliseconds, KiB/s over the time since that
/// job's entry before, direction (0 read, 1 write), and more. Every job has its own lines; they are
/// added up by interval. Entries after the last whole interval are left out.
pub fn series(log: &str, block: u64, interval_s: f64, seconds: f64) -> Vec<Moment> {
    let mut buckets: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for line in log.lines() {
        let mut fields = line.split(',').map(str::trim);
        let mut next = || fields.next().and_then(|f| f.parse::<f64>().ok());
        let (Some(ms), Some(kib_s), Some(direction)) = (next(), next(), next()) else {
            continue;
        };
        // An entry is dated at the end of its interval, a little late.
        let bucket = (ms / 1000.0 / interval_s + 0.5).floor().max(1.0) as u64;
        let at = buckets.entry(bucket).or_default();
        if direction == 0.0 {
            at.0 += kib_s;
        } else {
            at.1 += kib_s;
        }
    }
    let kib = block as f64 / 1024.0;
    buckets
        .into_iter()
        .map(|(bucket, (read, write))| Moment {
            at_s: bucket as f64 * interval_s,
            reads: read / kib,
            others: write / kib,
            mib: (read + write) / 1024.0,
        })
        .filter(|m| m.at_s <= seconds + interval_s * 0.25)
        .collect()
}

/// The figure and the share that is done, from a status line such as
/// `Jobs: 8 (f=8): [m(8)][40.0%][r=123MiB/s,w=41MiB/s][r=1970,w=656 IOPS][eta 00m:06s]`.
pub fn status(line: &str) -> Option<(String, f64)> {
    let groups: Vec<&str> = line
        .split('[')
        .skip(1)
        .filter_map(|g| g.split(']').next())
        .collect();
    let share = groups
        .iter()
        .find_map(|g| g.strip_suffix('%')?.parse::<f64>().ok())?;
    let figure: Vec<&str> = groups
        .iter()
        .filter(|g| g.contains("B/s") || g.contains("IOPS"))
        .copied()
        .collect();
    Some((figure.join(" "), share / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts that are read, as fio 3.33 writes them.
    const SINGLE: &str = r#"fio: file hash not empty on exit
{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "s8x1048576", "groupid" : 0, "error" : 0, "elapsed" : 4,
      "read" : {"io_bytes" : 8192000, "bw_bytes" : 4096000, "bw" : 4000, "iops" : 999.9, "runtime" : 2000, "total_ios" : 2000,
        "lat_ns" : {"min" : 1000, "max" : 9000000, "mean" : 250000.0, "stddev" : 1, "N" : 2000,
          "percentile" : {"1.000000" : 100000, "50.000000" : 200000, "99.000000" : 800000, "99.990000" : 8900000}}},
      "write" : {"io_bytes" : 0, "bw_bytes" : 0, "runtime" : 0, "total_ios" : 0, "lat_ns" : {"mean" : 0.0}},
      "sync" : {"total_ios" : 7},
      "usr_cpu" : 12.5, "sys_cpu" : 30.0
    }
  ],
  "disk_util" : []
}
trailing words"#;

    #[test]
    fn a_single_group_is_read() {
        let r = parse(SINGLE).unwrap();
        let read = r.read.as_ref().unwrap();
        assert_eq!((r.seconds, r.total_ops(), r.syncs), (2.0, 2000, 7));
        assert_eq!(read.ops_per_s, 1000.0);
        assert!((read.mib_per_s - 3.90625).abs() < 1e-9);
        assert_eq!((read.mean_us, read.max_us), (250.0, 9000.0));
        assert_eq!(read.quantile(0.5), Some(200.0));
        assert_eq!(read.quantile(0.99), Some(800.0));
        assert_eq!(read.quantile(0.9999), Some(8900.0));
        assert!(r.write.is_none() && r.error.is_none());
        assert!((r.busy - 0.425).abs() < 1e-9);
    }

    #[test]
    fn client_mode_and_errors_are_read() {
        let text = r#"{"client_stats":[
            {"jobname":"a","error":0,"read":{"total_ios":1,"runtime":1000,"bw_bytes":1}},
            {"jobname":"b","error":28,"read":{"total_ios":1,"runtime":1000,"bw_bytes":1}},
            {"jobname":"All clients","error":0,"read":{"total_ios":20,"runtime":1000,"bw_bytes":1048576}}]}"#;
        let r = parse(text).unwrap();
        assert_eq!(r.error, Some(28));
        assert_eq!(r.read.unwrap().mib_per_s, 1.0);
        for bad in [
            "",
            "fio: engine libaio not loadable",
            "{\"jobs\":",
            "{}",
            "{\"jobs\":[]}",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    /// 90 operations of 100 µs on one host and 10 of 5 ms on the other.
    #[test]
    fn percentiles_of_several_hosts_are_those_of_all_operations() {
        let host = |name: &str, bins: &str, ops: u32| {
            format!(
                r#"{{"jobname":"{name}","error":0,"read":{{"total_ios":{ops},"runtime":1000,"bw_bytes":1,
                   "lat_ns":{{"mean":1.0,"percentile":{{"50.000000":7}},"bins":{{{bins}}}}}}}}}"#
            )
        };
        let text = format!(
            r#"{{"client_stats":[{},{},
               {{"jobname":"All clients","error":0,"read":{{"total_ios":100,"runtime":1000,"bw_bytes":1,"lat_ns":{{"mean":590000.0}}}}}}]}}"#,
            host("s", r#""100000": 60, "99000": 30"#, 90),
            host("s", r#""5000000": 10"#, 10)
        );
        let read = parse(&text).unwrap().read.unwrap();
        assert_eq!(read.ops_per_s, 100.0);
        assert_eq!(read.mean_us, 590.0);
        for (q, us) in [(0.25, 99.0), (0.5, 100.0), (0.9, 100.0), (0.95, 5000.0)] {
            assert_eq!(read.quantile(q), Some(us), "{q}");
        }
    }

    #[test]
    fn the_log_of_several_jobs_is_added_up() {
        let log = "500, 1024, 0, 0, 0\n501, 1024, 0, 0, 0\n500, 512, 1, 0, 0\n\
                   1002, 2048, 0, 0, 0\nnonsense\n1600, 9999, 0, 0, 0\n";
        let s = series(log, 4096, 0.5, 1.0);
        assert_eq!(s.len(), 2, "what lies beyond the end is left out");
        assert_eq!((s[0].at_s, s[0].mib), (0.5, 2.5));
        assert_eq!((s[0].reads, s[0].others), (512.0, 128.0));
        assert_eq!((s[1].at_s, s[1].mib), (1.0, 2.0));
    }

    #[test]
    fn the_status_line_is_understood() {
        let line =
            "Jobs: 8 (f=8): [m(8)][40.0%][r=123MiB/s,w=41MiB/s][r=1970,w=656 IOPS][eta 00m:06s]";
        assert_eq!(
            status(line),
            Some(("r=123MiB/s,w=41MiB/s r=1970,w=656 IOPS".into(), 0.4))
        );
        assert_eq!(status("Jobs: 1 (f=1): [/(1)][-.-%][eta 00m:05s]"), None);
        assert_eq!(status(""), None);
    }
}
