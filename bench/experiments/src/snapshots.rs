//! `bench/experiment snapshots`: what snapshots cost beside a load, through the product's API.
//!
//! A server of its own, one volume, and clients that overwrite 64 KiB at places all over its file
//! as fast as they get replies. Then, in this order, each beside that load:
//!
//! 1. so many snapshots are taken, a few milliseconds apart; the last ones find a thousand there
//!    already. The time of each is that of the whole request: connection, rules, catalog, engine,
//!    catalog, response.
//! 2. nothing, with all of them there: the throughput that deletion is compared with, and again
//!    behind it, since a machine is not the same from minute to minute.
//! 3. all of them are deleted, one after the other, until their space has come back.
//!
//! The throughput with no load but the clients' is reported as well, since it shows what keeping
//! old blocks costs.

use crate::qos::load::{self, Done, Flow, Kind};
use crate::qos::measure::{SECOND, Unit, merged, rate};
use crate::qos::server::{self, Server, Volume};
use crate::qos::{Row, Verdict, verdict_name};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_bench::clock::{self, sleep};
use weir_bench::control::Control;
use weir_bench::error::BenchError;
use weir_bench::rpc::Credential;

const MIB: f64 = 1_048_576.0;
/// Time between two snapshots.
const PAUSE: Duration = Duration::from_millis(5);
/// Most milliseconds of the 99th percentile of creation.
const CREATION_MS: f64 = 10.0;
/// Least part of the throughput that is left beside deletion.
const BESIDE_DELETION: f64 = 0.9;
/// Space has come back when the free space grows by less than this in [`SETTLED`].
const SETTLED_BYTES: u64 = 8 << 20;
const SETTLED: Duration = Duration::from_secs(2);

/// Measures what snapshots cost beside a load.
#[derive(Args, Debug, Clone)]
pub struct SnapshotsArgs {
    /// The server's program [default: weir beside this program, or else in PATH]
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Folder of the server's data while the run lasts
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub scratch: PathBuf,
    /// Write the table and the raw data into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Memory of the server
    #[arg(long, default_value = "1G")]
    pub memory: String,
    /// Snapshots that are there before creation counts
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub existing: u64,
    /// Snapshots whose creation counts
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    pub count: u64,
    /// Bytes of the file
    #[arg(long, default_value = "256m", value_parser = weir_bench::args::parse_size)]
    pub size: u64,
    /// Calls in flight
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Seconds of each throughput that is compared
    #[arg(long, default_value_t = 6.0)]
    pub seconds: f64,
}

/// A stretch of time, in nanoseconds.
type Span = (u64, u64);

fn span(work: impl FnOnce() -> Result<(), BenchError>) -> Result<Span, BenchError> {
    let from = clock::now_ns();
    work()?;
    Ok((from, clock::now_ns()))
}

/// Milliseconds that each call of `work` took.
fn times(
    count: u64,
    mut work: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<Vec<f64>, BenchError> {
    let mut all = Vec::new();
    for n in 0..count {
        let began = clock::now_ns();
        work(n)?;
        all.push((clock::now_ns() - began) as f64 / 1e6);
        std::thread::sleep(PAUSE);
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = ((sorted.len().max(1) - 1) as f64 * q).ceil() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

fn quantiles(sorted: &[f64]) -> Value {
    json!({
        "count": sorted.len(),
        "p50_ms": quantile(sorted, 0.5),
        "p99_ms": quantile(sorted, 0.99),
        "max_ms": quantile(sorted, 1.0),
    })
}

/// Runs it. `false` if a target was missed.
///
/// # Errors
/// What kept it from being measured.
pub fn snapshots(args: &SnapshotsArgs) -> Result<bool, BenchError> {
    let weir = server::program(args.weir.as_deref());
    let server = Server::start(&weir, &args.scratch, &args.memory)?;
    server.pool("s", "UNLIMITED", 64, json!({}))?;
    server.make_volume("s", "s", 64, json!({}))?;
    let volume = server.volume("s", args.size)?;
    let flow = Flow {
        client: 2,
        dir: volume.root,
        file: volume.file,
        size: volume.size,
        kind: Kind::Write,
        block: 64 << 10,
        connections: 2,
        depth: args.depth.div_ceil(2),
        thread: 0,
        on: None,
        every: None,
    };
    let running = load::start(server.nfs, &[flow])?;
    // Behind the load's threads, which represent other machines: an administrator's requests do not
    // wait for the processors of clients.
    weir_base::short_slice();
    sleep(2.0);
    let alone = span(|| {
        sleep(args.seconds);
        Ok(())
    })?;
    let take = |n: u64| {
        let path = format!("volumes/s/snapshots?snapshotId=s{n:06}");
        server.change("POST", &path, &json!({}))
    };
    let few = times(args.existing, take)?;
    let mut taking = (0, 0);
    let many = {
        let began = clock::now_ns();
        let all = times(args.count, |n| take(args.existing + n))?;
        taking.0 = began;
        taking.1 = clock::now_ns();
        all
    };
    let rest = || {
        span(|| {
            sleep(args.seconds);
            Ok(())
        })
    };
    let with_all = rest()?;
    let total = args.existing + args.count;
    let mut deletions = Vec::new();
    let deleting = span(|| {
        for n in 0..total {
            let began = clock::now_ns();
            server.change(
                "DELETE",
                &format!("volumes/s/snapshots/s{n:06}"),
                &Value::Null,
            )?;
            deletions.push((clock::now_ns() - began) as f64 / 1e6);
        }
        Ok(())
    })?;
    let reclaiming = span(|| until_settled(&server, &volume))?;
    let afterwards = rest()?;
    let done = merged(&running.finish()?);
    deletions.sort_by(f64::total_cmp);
    let rows = judge(&Measurements {
        done: &done,
        existing: args.existing,
        few: &few,
        many: &many,
        deletions: &deletions,
        spans: [alone, taking, with_all, deleting, reclaiming, afterwards],
    });
    tell(&rows, args.out.as_deref())
}

struct Measurements<'a> {
    done: &'a [Done],
    existing: u64,
    few: &'a [f64],
    many: &'a [f64],
    deletions: &'a [f64],
    spans: [Span; 6],
}

fn judge(m: &Measurements<'_>) -> Vec<Row> {
    let mibps = |(from, to): Span| rate(m.done, Unit::Bytes, from, to) / MIB;
    let [alone, taking, with_all, deleting, reclaiming, afterwards] = m.spans;
    let (p99, median) = (quantile(m.many, 0.99), quantile(m.many, 0.5));
    let mut rows = vec![Row {
        case: format!("creation with {} existing, under writes", m.existing),
        target: format!("p99 ≤ {CREATION_MS} ms"),
        achieved: format!(
            "p99 {p99:.2} ms, median {median:.2} ms, most {:.2} ms",
            quantile(m.many, 1.0)
        ),
        verdict: Verdict::from_met(p99 <= CREATION_MS),
        data: json!({"existing": quantiles(m.many), "before": quantiles(m.few)}),
    }];
    let without = f64::midpoint(mibps(with_all), mibps(afterwards));
    let whole = (deleting.0, reclaiming.1);
    let ratio = mibps(whole) / without.max(f64::MIN_POSITIVE);
    rows.push(Row {
        case: format!("writes while {} are deleted", m.deletions.len()),
        target: format!("≥ {BESIDE_DELETION} of without"),
        achieved: format!("{ratio:.3}: {:.0} of {without:.0} MiB/s", mibps(whole)),
        verdict: Verdict::from_met(ratio >= BESIDE_DELETION),
        data: json!({
            "ratio": ratio,
            "seconds": (whole.1 - whole.0) as f64 / SECOND as f64,
            "requests_mibps": mibps(deleting),
            "reclaiming_mibps": mibps(reclaiming),
            "before_mibps": mibps(with_all),
            "afterwards_mibps": mibps(afterwards),
            "requests": quantiles(m.deletions),
        }),
    });
    rows.push(Row {
        case: "writes alone, while snapshots are taken, with all of them".to_owned(),
        target: "-".to_owned(),
        achieved: format!(
            "{:.0}, {:.0}, {:.0} MiB/s",
            mibps(alone),
            mibps(taking),
            mibps(with_all)
        ),
        verdict: Verdict::Stated,
        data: json!({"alone_mibps": mibps(alone), "taking_mibps": mibps(taking), "with_all_mibps": mibps(with_all)}),
    });
    rows
}

/// Waits until deleted snapshots' space has come back.
fn until_settled(server: &Server, volume: &Volume) -> Result<(), BenchError> {
    let root = Credential { uid: 0, gid: 0 };
    let patience = Duration::from_secs(120);
    let mut control = Control::connect(server.nfs, Some(&root), clock::now_ns() as u32, patience)?;
    let mut free = control.fsstat(&volume.root)?;
    loop {
        std::thread::sleep(SETTLED);
        let now = control.fsstat(&volume.root)?;
        if now < free.saturating_add(SETTLED_BYTES) {
            return Ok(());
        }
        free = now;
    }
}

/// Prints the rows, and writes them where that is asked for. `false` if a target was missed.
pub(crate) fn tell(rows: &[Row], out: Option<&Path>) -> Result<bool, BenchError> {
    let mut table = String::from("| Case | Target | Achieved | |\n|---|---|---|---|\n");
    for row in rows {
        let verdict = verdict_name(row.verdict);
        // The reader of a pipe may stop reading.
        let _ = writeln!(
            std::io::stdout(),
            "{verdict:<8} {:<60} {:<22} {}",
            row.case,
            row.target,
            row.achieved
        );
        table += &format!(
            "| {} | {} | {} | {verdict} |\n",
            row.case, row.target, row.achieved
        );
    }
    if let Some(out) = out {
        let failed = || BenchError::io(format!("write to {}", out.display()));
        std::fs::create_dir_all(out).map_err(failed())?;
        let text = serde_json::to_string_pretty(rows).unwrap_or_default();
        std::fs::write(out.join("snapshots.json"), text).map_err(failed())?;
        std::fs::write(out.join("table.md"), table).map_err(failed())?;
    }
    Ok(rows.iter().all(|row| row.verdict != Verdict::Missed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_told() {
        let done: Vec<Done> = (0..600)
            .map(|n| Done {
                at: n * SECOND / 10,
                took: 0,
                bytes: if (300..400).contains(&n) { 80 } else { 100 } << 20,
            })
            .collect();
        let at = |from: u64, to: u64| (from * SECOND, to * SECOND);
        let measure = |many: &[f64], deleting, reclaiming| {
            judge(&Measurements {
                done: &done,
                existing: 1000,
                few: &[1.0],
                many,
                deletions: &[1.0],
                spans: [
                    at(0, 10),
                    at(10, 20),
                    at(20, 30),
                    deleting,
                    reclaiming,
                    at(45, 55),
                ],
            })
        };
        let verdicts = |rows: Vec<Row>| rows.iter().map(|r| r.verdict).collect::<Vec<_>>();
        let quick = vec![5.0; 99];
        assert_eq!(
            verdicts(measure(&quick, at(30, 32), at(32, 40))),
            [Verdict::Met, Verdict::Missed, Verdict::Stated]
        );
        let slow = [vec![5.0; 90], vec![11.0; 10]].concat();
        assert_eq!(
            verdicts(measure(&slow, at(40, 42), at(42, 45))),
            [Verdict::Missed, Verdict::Met, Verdict::Stated]
        );
    }
}
