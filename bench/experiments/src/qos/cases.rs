//! The cases of one and of few volumes.

use super::grid::{self, size};
use super::load::{self, Done, Flow, Kind};
use super::measure::{SECOND, Unit, densest, latency, median, merged, rate, windows, within};
use super::plot::Line;
use super::server::{Limit, Volume};
use super::{Row, Run, Verdict, neighbour, overhead};
use serde_json::json;
use weir_bench::clock::{self, sleep};
use weir_bench::error::BenchError;

pub(super) const MIB: f64 = 1_048_576.0;
/// The burst of a limit in seconds (crates/qos/src/limits.rs).
pub(super) const BURST: f64 = 0.01;
/// Load before anything is measured, in seconds: the burst is spent, queues have formed.
pub(super) const WARM: f64 = 0.6;

/// A flow of a volume by one client.
pub(super) fn flow(
    volume: &Volume,
    client: u8,
    kind: Kind,
    block: u32,
    connections: u32,
    depth: u32,
) -> Flow {
    Flow {
        client,
        dir: volume.root,
        file: volume.file,
        size: volume.size,
        kind,
        block,
        connections,
        depth,
        thread: 0,
        on: None,
        every: None,
    }
}

/// Completions of each flow, and the time in which they count.
pub(super) struct Measurement {
    pub(super) flows: Vec<Vec<Done>>,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The part of the time that the machine's processors were busy.
    pub(super) busy: f64,
}

/// Ticks of all processors together that were busy, and all.
fn processors() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let all: f64 = ticks.iter().sum();
    // The fourth is idle time, the fifth waiting for devices.
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// Runs flows for a while and discards the beginning.
pub(super) fn measure(
    run: &Run,
    flows: &[Flow],
    warm: f64,
    seconds: f64,
) -> Result<Measurement, BenchError> {
    let running = load::start(run.server.nfs, flows)?;
    sleep(warm);
    let before = processors();
    let from = clock::now_ns();
    sleep(seconds);
    let to = clock::now_ns();
    let after = processors();
    let flows = running.finish()?;
    Ok(Measurement {
        flows,
        from,
        to,
        busy: (after.0 - before.0) / (after.1 - before.1).max(1.0),
    })
}

impl Measurement {
    pub(super) fn rate(&self, flow: usize, unit: Unit) -> f64 {
        let done = self.flows.get(flow).map_or(&[][..], Vec::as_slice);
        rate(done, unit, self.from, self.to)
    }

    pub(super) fn p99(&self, flow: usize) -> f64 {
        let done = self.flows.get(flow).map_or(&[][..], Vec::as_slice);
        latency(within(done, self.from, self.to), 0.99)
    }
}

/// All cases of this module.
pub(super) fn run_cases(run: &mut Run) -> Result<(), BenchError> {
    run.server.pools()?;
    for id in ["a", "b"] {
        run.server.make_free(id, 1024)?;
    }
    let a = run.server.volume("a", 64 << 20)?;
    let b = run.server.volume("b", 64 << 20)?;
    grid::run_grid(run)?;
    if run.wants("change") {
        changes(run, &a)?;
    }
    if run.wants("weights") {
        weights(run)?;
    }
    if run.wants("clients") {
        clients(run, &a)?;
    }
    if run.wants("neighbour") {
        neighbour::run_cases(run, &a, &b)?;
        neighbour_on_one_connection(run, &a, &b)?;
    }
    if run.wants("metadata") {
        metadata(run, &a)?;
    }
    if run.wants("overhead") && !run.timing.quick {
        overhead::run_cases(run, &a)?;
    }
    Ok(())
}

/// When a limit was requested, and when it was effective.
struct Step {
    asked: u64,
    done: u64,
    mibps: u32,
}

/// 64 → 16 → 128 MiB/s under load, by the API. The new rate is expected from 100 ms after it was
/// *requested* on, so what the API takes counts. What no window may exceed holds from the moment at
/// which the API reported the limit as effective to the moment at which the next one is requested.
fn changes(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    let set = |run: &Run, mibps: u32| -> Result<Step, BenchError> {
        let asked = clock::now_ns();
        run.server
            .limit(&a.name, Limit::Bytes(u64::from(mibps) << 20))?;
        Ok(Step {
            asked,
            done: clock::now_ns(),
            mibps,
        })
    };
    let mut steps = vec![set(run, 64)?];
    let running = load::start(run.server.nfs, &[flow(a, 2, Kind::Read, 65536, 4, 8)])?;
    sleep(1.0);
    let begun = clock::now_ns();
    for mibps in [16, 128] {
        sleep(2.0);
        steps.push(set(run, mibps)?);
    }
    sleep(2.0);
    let end = clock::now_ns();
    let done = merged(&running.finish()?);
    let tenth = SECOND / 10;
    for (n, step) in steps.iter().enumerate().skip(1) {
        let to = steps.get(n + 1).map_or(end, |next| next.asked);
        let limit = f64::from(step.mibps) * MIB;
        let from = step.asked + tenth;
        let settled = rate(&done, Unit::Bytes, from, to.min(from + 9 * tenth));
        let error = settled / limit - 1.0;
        let most = densest(&done, Unit::Bytes, step.done, to, SECOND / 4) as f64;
        let took = (step.done - step.asked) as f64 / 1e6;
        // What the bound lets through: the limit over the window, the burst, the request that is
        // never split.
        let bound = limit * (0.25 + BURST) + 65536.0;
        let good = error.abs() <= 0.01 * run.timing.margin
            && most <= bound * (1.0 + 0.1 * (run.timing.margin - 1.0));
        run.row(Row {
            case: format!("change: to {} MiB/s under load, by the API", step.mibps),
            target: format!("in force within 100 ms; any 250 ms ≤ {:.2} MiB", bound / MIB),
            achieved: format!(
                "{:.2} MiB/s from 100 ms on ({:+.2} %); densest 250 ms {:.2} MiB; the API took {took:.0} ms",
                settled / MIB,
                error * 100.0,
                most / MIB
            ),
            verdict: Verdict::from_met(good),
            data: json!({"limit": limit, "achieved": settled, "densest_250ms": most, "bound_250ms": bound, "api_ms": took}),
        });
    }
    let fine = windows(&done, Unit::Bytes, begun, end, SECOND / 20);
    let since = |step: &Step| step.done.saturating_sub(begun) as f64 / SECOND as f64;
    run.changes.push(Line {
        name: "64 → 16 → 128 MiB/s, 64 KiB reads".into(),
        unit: "MiB/s",
        limit: steps
            .iter()
            .map(|step| (since(step), f64::from(step.mibps)))
            .collect(),
        values: fine.iter().map(|sum| *sum as f64 * 20.0 / MIB).collect(),
    });
    Ok(())
}

/// Shares of rates: each within a part of what it should be.
fn shares(run: &mut Run, case: &str, target: &str, rates: &[f64], weights: &[f64], whole: f64) {
    let (sum, weight) = (rates.iter().sum::<f64>(), weights.iter().sum::<f64>());
    let off: Vec<f64> = rates
        .iter()
        .zip(weights)
        .map(|(rate, w)| rate / (whole * w / weight) - 1.0)
        .collect();
    let worst = off.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    let each: Vec<String> = rates
        .iter()
        .map(|rate| format!("{:.2}", rate / MIB))
        .collect();
    run.row(Row {
        case: case.to_owned(),
        target: target.to_owned(),
        achieved: format!(
            "{} MiB/s, at most {:.2} % off; sum {:.2}",
            each.join(" : "),
            worst * 100.0,
            sum / MIB
        ),
        verdict: Verdict::from_met(worst <= 0.02 * run.timing.margin),
        data: json!({"rates": rates, "off": off}),
    });
}

/// Three volumes of a Flex pool, by the API.
fn weights(run: &mut Run) -> Result<(), BenchError> {
    run.server.pool("flex", "FLEX", 7 * 1024, json!({}))?;
    let mut flows = Vec::new();
    for (n, (id, tib)) in [("flex1", 1), ("flex2", 2), ("flex4", 4)]
        .into_iter()
        .enumerate()
    {
        run.server.make_volume(id, "flex", tib * 1024, json!({}))?;
        let volume = run.server.volume(id, 32 << 20)?;
        flows.push(flow(&volume, 2 + n as u8, Kind::Read, 65536, 2, 16));
    }
    let measured = measure(run, &flows, WARM, run.timing.least.max(3.0))?;
    let rates: Vec<f64> = (0..3).map(|n| measured.rate(n, Unit::Bytes)).collect();
    shares(
        run,
        "weights: Flex volumes of 1, 2, 4 TiB, by the API",
        "1 : 2 : 4 of 112 MiB/s ± 2 %",
        &rates,
        &[1.0, 2.0, 4.0],
        112.0 * MIB,
    );
    Ok(())
}

/// Sixteen connections against one.
fn clients(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    for (block, depth) in [(4096, 8), (65536, 4)] {
        run.server.limit(&a.name, Limit::Bytes(32 << 20))?;
        let flows = [
            flow(a, 2, Kind::Read, block, 16, depth),
            flow(a, 3, Kind::Read, block, 1, depth * 4),
        ];
        let measured = measure(run, &flows, WARM, run.timing.least.max(3.0))?;
        let rates: Vec<f64> = (0..2).map(|n| measured.rate(n, Unit::Bytes)).collect();
        let case = format!("clients: 16 connections against 1, {} reads", size(block));
        shares(
            run,
            &case,
            "half of 32 MiB/s each ± 2 %",
            &rates,
            &[1.0, 1.0],
            32.0 * MIB,
        );
    }
    Ok(())
}

/// Latencies alone and beside something else, in alternation, so that what else happens on the
/// machine affects both; the verdict is on the median of the pairs' ratios.
fn compared(
    run: &mut Run,
    case: &str,
    most: f64,
    [without, with]: [&str; 2],
    alone: &[Flow],
    beside: &[Flow],
) -> Result<(), BenchError> {
    let (pairs, seconds) = match (run.timing.quick, run.timing.least > 10.0) {
        (true, _) => (1, 1.0),
        (_, full) => (7, if full { 5.0 } else { 3.0 }),
    };
    let (mut one, mut two, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs {
        let first = measure(run, alone, WARM, seconds)?.p99(0);
        let second = measure(run, beside, WARM, seconds)?.p99(0);
        one.push(first);
        two.push(second);
        ratios.push(second / first.max(1e-9));
    }
    let ratio = median(ratios.clone());
    let least = ratios.iter().copied().fold(f64::MAX, f64::min);
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    run.row(Row {
        case: case.to_owned(),
        target: format!("p99 ≤ {most} × {without}"),
        achieved: format!(
            "{:.0} µs {without}, {:.0} µs {with}: {ratio:.2} × (median of {pairs} pairs, {least:.2} to {worst:.2})",
            median(one.clone()),
            median(two.clone())
        ),
        verdict: Verdict::from_met(ratio <= most * run.timing.margin),
        data: json!({"without_us": one, "with_us": two, "ratios": ratios}),
    });
    Ok(())
}

/// An unthrottled volume beside a throttled one, for one client that uses both over one connection.
/// Other load on the connection takes its time on the wire and in the client whatever limits
/// do, so it is held against the same load over two connections: the difference is what requests
/// that wait hold up.
fn neighbour_on_one_connection(run: &mut Run, a: &Volume, b: &Volume) -> Result<(), BenchError> {
    run.server.limit(&a.name, Limit::Bytes(16 << 20))?;
    let victim = flow(b, 3, Kind::Read, 4096, 1, 1);
    for kind in [Kind::Write, Kind::Read] {
        let apart = flow(a, 3, kind, 65536, 1, 32);
        let together = Flow {
            on: Some(0),
            ..apart.clone()
        };
        compared(
            run,
            &format!(
                "neighbour: on one connection with throttled {}s",
                kind.name()
            ),
            1.2,
            ["over two", "over one"],
            &[victim.clone(), apart],
            &[victim.clone(), together],
        )?;
    }
    Ok(())
}

/// Metadata beside a saturated data limit of the same volume and client.
fn metadata(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    run.server.limit(&a.name, Limit::Bytes(16 << 20))?;
    for kind in [Kind::Getattr, Kind::Create] {
        let quick = Flow {
            thread: 1,
            ..flow(a, 2, kind, 0, 1, 1)
        };
        compared(
            run,
            &format!("metadata: {} beside saturated writes", kind.name()),
            5.0,
            ["alone", "beside"],
            std::slice::from_ref(&quick),
            &[quick.clone(), flow(a, 2, Kind::Write, 65536, 4, 16)],
        )?;
    }
    Ok(())
}
