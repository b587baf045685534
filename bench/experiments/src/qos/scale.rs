//! The cases of many: ten thousand volumes, a thousand writers.

use super::cases::{MIB, flow, measure};
use super::load::{self, Flow, Kind};
use super::measure::{SECOND, Unit, latency, rate, within};
use super::server::Limit;
use super::{Row, Run, Verdict};
use serde_json::json;
use std::time::Duration;
use weir_bench::clock;
use weir_bench::error::BenchError;

/// All cases of this module.
pub(super) fn run_cases(run: &mut Run) -> Result<(), BenchError> {
    if run.wants("writers") {
        writers(run)?;
    }
    if run.wants("volumes") && !run.timing.quick {
        volumes(run)?;
    }
    Ok(())
}

/// A thousand throttled writers of 1 MiB, from ten addresses.
fn writers(run: &mut Run) -> Result<(), BenchError> {
    let (connections, clients) = if run.timing.quick { (10, 4) } else { (100, 10) };
    for id in ["w", "beside"] {
        run.server.make_free(id, 1024)?;
    }
    let (w, beside) = (
        run.server.volume("w", 16 << 20)?,
        run.server.volume("beside", 16 << 20)?,
    );
    run.server.limit("w", Limit::Bytes(16 << 20))?;
    let mut flows: Vec<Flow> = (0..clients)
        .map(|n| flow(&w, 10 + n, Kind::Write, 1 << 20, connections, 1))
        .collect();
    flows.push(Flow {
        thread: 1,
        ..flow(&beside, 3, Kind::Read, 4096, 1, 1)
    });
    let running = load::start(run.server.nfs, &flows)?;
    std::thread::sleep(Duration::from_secs(1));
    let from = clock::now_ns();
    let through = |run: &Run| run.server.metric("weir_client_throttled_bytes_total");
    let before = (through(run)?, clock::now_ns());
    let (mut held, mut resident) = (0f64, 0u64);
    for _ in 0..if run.timing.quick { 5 } else { 25 } {
        std::thread::sleep(Duration::from_millis(200));
        held = held.max(run.server.metric("weir_held_bytes")?);
        resident = resident.max(run.server.usage().1);
    }
    let after = (through(run)?, clock::now_ns());
    let said = (after.0 - before.0) / MIB * SECOND as f64 / (after.1 - before.1).max(1) as f64;
    let to = clock::now_ns();
    let limit = run.server.metric("weir_held_limit_bytes")?;
    let done = running.finish()?;
    let (victim, writers) = done
        .split_last()
        .map_or((&[][..], &[][..]), |(last, rest)| (last.as_slice(), rest));
    let all = super::measure::merged(writers);
    let achieved = super::measure::rate(&all, Unit::Bytes, from, to) / MIB;
    let p99 = latency(within(victim, from, to), 0.99);
    let served = within(victim, from, to).len();
    run.row(Row {
        case: format!("writers: {} throttled writers of 1 MiB", connections * u32::from(clients)),
        target: format!("held ≤ {:.0} MiB; 16 MiB/s come through; a neighbour is served", limit / MIB),
        achieved: format!("{:.1} MiB held, {:.0} MiB resident; {achieved:.2} of 16 MiB/s; neighbour p99 {p99:.0} µs", held / MIB, resident as f64 / MIB),
        verdict: Verdict::from_met(held <= limit && served > 100 && (achieved / 16.0 - 1.0).abs() < 0.02 * run.timing.margin),
        data: json!({"held": held, "limit": limit, "resident": resident, "achieved_mibps": achieved, "by_metrics_mibps": said, "neighbour_p99_us": p99, "neighbour_reads": served}),
    });
    // All connections are gone: so is what they held.
    let end = clock::now_ns() + 20_000_000_000;
    let mut left = f64::MAX;
    while clock::now_ns() < end && left > 0.0 {
        std::thread::sleep(Duration::from_millis(100));
        left = run.server.metric("weir_held_bytes")?
            + run.server.metric("weir_throttle_queue_length")?;
    }
    run.row(Row {
        case: "writers: what is held after all have gone".into(),
        target: "0".into(),
        achieved: format!("{left:.0}"),
        verdict: if left == 0.0 {
            Verdict::Met
        } else {
            Verdict::Missed
        },
        data: json!({"left": left}),
    });
    Ok(())
}

/// Ten thousand volumes with limits, a hundred of them at work.
fn volumes(run: &mut Run) -> Result<(), BenchError> {
    const ALL: usize = 10_000;
    const ACTIVE: usize = 100;
    run.server
        .pool("many", "EXTREME", 200 * 1024, json!({"qosType": "MANUAL"}))?;
    let begun = clock::now_ns();
    let server = &run.server;
    let made: Result<(), BenchError> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                scope.spawn(move || {
                    for n in (worker..ALL).step_by(8) {
                        server.make_volume(
                            &format!("m{n:05}"),
                            "many",
                            1,
                            json!({"throughputMibps": 1}),
                        )?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            let failed = |_| Err(BenchError::Usage("a thread failed".into()));
            worker.join().unwrap_or_else(failed)
        })
    });
    made?;
    let creation = (clock::now_ns() - begun) as f64 / 1e9;
    let mut flows = Vec::new();
    for n in 0..ACTIVE {
        let volume = run
            .server
            .volume(&format!("m{:05}", n * (ALL / ACTIVE)), 1 << 20)?;
        flows.push(flow(&volume, 10 + (n % 50) as u8, Kind::Read, 16384, 1, 8));
    }
    let idle = run.server.usage();
    std::thread::sleep(Duration::from_secs(1));
    let rest = run.server.usage().0 - idle.0;
    let seconds = run.timing.least.max(5.0);
    let before = run.server.usage().0;
    let measured = measure(run, &flows, 1.0, seconds)?;
    let (after, resident) = run.server.usage();
    let rates: Vec<f64> = (0..ACTIVE).map(|n| measured.rate(n, Unit::Bytes)).collect();
    let worst = rates
        .iter()
        .fold(0.0f64, |worst, rate| worst.max((rate / MIB - 1.0).abs()));
    let cpu = (after - before) / (seconds + 1.0) * 100.0;
    run.row(Row {
        case: format!("volumes: {ALL} with limits of 1 MiB/s, by the API, {ACTIVE} at work"),
        target: "each 1 MiB/s ± 1 %".into(),
        achieved: format!(
            "at most {:.2} % off; {cpu:.0} % of a core, {:.0} MiB resident (idle {:.1} %); made in {creation:.0} s",
            worst * 100.0,
            resident as f64 / MIB,
            rest * 100.0
        ),
        verdict: if worst <= 0.01 { Verdict::Met } else { Verdict::Missed },
        data: json!({"rates": rates, "cpu_percent": cpu, "resident": resident, "creation_s": creation}),
    });
    changed_among_many(run, &flows)?;
    watched(run, &flows)
}

/// One limit changed among ten thousand, all hundred at work.
fn changed_among_many(run: &mut Run, flows: &[Flow]) -> Result<(), BenchError> {
    let running = load::start(run.server.nfs, flows)?;
    std::thread::sleep(Duration::from_secs(1));
    let asked = clock::now_ns();
    let body = json!({"throughputMibps": 4});
    run.server
        .change("PATCH", "volumes/m00000?updateMask=throughputMibps", &body)?;
    let took = (clock::now_ns() - asked) as f64 / 1e6;
    std::thread::sleep(Duration::from_secs(2));
    let end = clock::now_ns();
    let done = running.finish()?;
    let done = done.first().map_or(&[][..], Vec::as_slice);
    let achieved = rate(done, Unit::Bytes, asked + SECOND / 10, end) / MIB;
    let good = (achieved / 4.0 - 1.0).abs() <= 0.01;
    run.row(Row {
        case: "volumes: one of them changed from 1 to 4 MiB/s under load".into(),
        target: "in force within 100 ms".into(),
        achieved: format!("{achieved:.2} MiB/s from 100 ms on; the API took {took:.0} ms"),
        verdict: if good { Verdict::Met } else { Verdict::Missed },
        data: json!({"achieved": achieved, "api_ms": took}),
    });
    Ok(())
}

/// Measures what it costs to be watched: `/metrics` asked for every second, with ten thousand
/// limited volumes.
fn watched(run: &mut Run, flows: &[Flow]) -> Result<(), BenchError> {
    let cpu = |run: &Run, watch: bool| -> Result<(f64, f64, usize), BenchError> {
        let running = load::start(run.server.nfs, flows)?;
        std::thread::sleep(Duration::from_secs(1));
        let (before, mut slowest, mut bytes) = (run.server.usage().0, 0.0f64, 0);
        for _ in 0..5 {
            let begun = clock::now_ns();
            if watch {
                bytes = run.server.http("GET", "/metrics", None)?.1.len();
                slowest = slowest.max((clock::now_ns() - begun) as f64 / 1e6);
            }
            let spent = Duration::from_nanos(clock::now_ns() - begun);
            std::thread::sleep(Duration::from_secs(1).saturating_sub(spent));
        }
        let used = run.server.usage().0 - before;
        running.finish()?;
        Ok((used / 5.0 * 100.0, slowest, bytes))
    };
    let (alone, ..) = cpu(run, false)?;
    let (with, slowest, bytes) = cpu(run, true)?;
    run.row(Row {
        case: "volumes: /metrics asked for every second".into(),
        target: "stated".into(),
        achieved: format!(
            "{with:.0} % of a core instead of {alone:.0} %; {:.1} MiB in at most {slowest:.0} ms",
            bytes as f64 / MIB
        ),
        verdict: Verdict::Stated,
        data: json!({"cpu_percent": with, "cpu_percent_unwatched": alone, "slowest_ms": slowest, "bytes": bytes}),
    });
    Ok(())
}
