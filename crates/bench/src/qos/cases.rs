//! The cases of one and of few volumes.

use super::load::{self, Done, Flow, Kind};
use super::measure::{
    SECOND, Unit, densest, latency, median, merged, rate, variation, windows, within,
};
use super::plot::Line;
use super::server::Volume;
use super::{Row, Run, Verdict};
use crate::clock;
use crate::error::BenchError;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

pub(super) const MIB: f64 = 1_048_576.0;
/// The burst of a limit in seconds (crates/qos/src/limits.rs).
pub(super) const BURST: f64 = 0.01;
/// Load before anything is measured, in seconds: the burst is spent, queues have formed.
const WARM: f64 = 0.6;

fn sleep(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

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
    }
}

/// What was completed by whom, and when it counts.
pub(super) struct Measured {
    pub(super) flows: Vec<Vec<Done>>,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Runs flows for a while and throws the beginning away.
pub(super) fn measure(
    run: &Run,
    flows: &[Flow],
    warm: f64,
    seconds: f64,
) -> Result<Measured, BenchError> {
    let running = load::start(run.server.nfs, flows)?;
    sleep(warm);
    let from = clock::now_ns();
    sleep(seconds);
    let to = clock::now_ns();
    let flows = running.finish()?;
    Ok(Measured { flows, from, to })
}

impl Measured {
    pub(super) fn rate(&self, flow: usize, unit: Unit) -> f64 {
        let done = self.flows.get(flow).map_or(&[][..], Vec::as_slice);
        rate(done, unit, self.from, self.to)
    }

    pub(super) fn p99(&self, flow: usize) -> f64 {
        let done = self.flows.get(flow).map_or(&[][..], Vec::as_slice);
        latency(within(done, self.from, self.to), 0.99)
    }
}

/// Limits of volumes as the control socket takes them.
pub(super) fn volume_limits(limits: &[(&str, Value)]) -> Value {
    let volumes = limits.iter().map(|(name, limits)| {
        let mut volume = limits.clone();
        if let Some(object) = volume.as_object_mut() {
            object.insert("name".into(), json!(name));
            object.insert("pool".into(), json!(1));
        }
        volume
    });
    json!({"pools": [{"id": 1}], "volumes": volumes.collect::<Vec<_>>()})
}

fn size(block: u32) -> String {
    match block {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

/// All of them.
pub(super) fn all(run: &mut Run) -> Result<(), BenchError> {
    // Manual limits up to 12,800 MiB/s in all; thinly provisioned.
    run.server
        .pool("extreme", "EXTREME", 102_400, json!({"qosType": "MANUAL"}))?;
    for id in ["a", "b"] {
        run.server
            .make_volume(id, "extreme", 1024, json!({"throughputMibps": 4096}))?;
    }
    let a = run.server.volume("a", 64 << 20)?;
    let b = run.server.volume("b", 64 << 20)?;
    rates(run, &a)?;
    operations(run, &a)?;
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
        neighbour(run, &a, &b)?;
    }
    if run.wants("metadata") {
        metadata(run, &a)?;
    }
    if run.wants("overhead") && !run.timing.quick {
        overhead(run, &a)?;
    }
    run.server.limits(&volume_limits(&[]))
}

/// Connections and depth that offer more than any limit of the table, whatever the size of requests.
fn shape(block: u32) -> (u32, u32) {
    match block {
        b if b >= 1 << 20 => (4, 2),
        b if b >= 1 << 16 => (4, 8),
        _ => (4, 32),
    }
}

/// One volume, one limit.
struct Held<'a> {
    case: String,
    limits: Value,
    unit: Unit,
    limit: f64,
    flow: Flow,
    volume: &'a Volume,
    offered: f64,
}

fn held(run: &mut Run, held: Held<'_>) -> Result<Option<Measured>, BenchError> {
    let Held {
        case,
        limits,
        unit,
        limit,
        flow,
        volume,
        offered,
    } = held;
    let (shown, name) = match unit {
        Unit::Bytes => (MIB, "MiB/s"),
        Unit::Ops => (1.0, "/s"),
    };
    let target = format!("{:.0} {name} ± {:.0} %", limit / shown, run.timing.margin);
    if offered < limit * 1.05 {
        run.row(Row {
            case,
            target,
            achieved: format!(
                "the load offers {:.1} {name} without limits",
                offered / shown
            ),
            verdict: Verdict::NotOffered,
            data: json!({"limit": limit, "offered": offered}),
        });
        return Ok(None);
    }
    run.server
        .limits(&volume_limits(&[(&volume.name, limits)]))?;
    let request = match unit {
        Unit::Bytes => f64::from(flow.block),
        Unit::Ops => 1.0,
    };
    // Until the bound is a fifth of the tolerance; requests at either end do not count (see `measure::rate`), but timers
    // do, and 20 requests make a rate.
    let seconds = run.timing.least.max(20.0 * request / limit).min(30.0);
    let measured = measure(run, &[flow], WARM + 2.0 * request / limit, seconds)?;
    let achieved = measured.rate(0, unit);
    let error = achieved / limit - 1.0;
    let done = measured.flows.first().map_or(&[][..], Vec::as_slice);
    let tenths = windows(done, unit, measured.from, measured.to, SECOND / 10);
    run.row(Row {
        case,
        target,
        achieved: format!("{:.2} {name} ({:+.2} %), 100 ms windows σ {:.1} %", achieved / shown, error * 100.0, variation(&tenths) * 100.0),
        verdict: if error.abs() <= 0.01 * run.timing.margin { Verdict::Met } else { Verdict::Missed },
        data: json!({"limit": limit, "achieved": achieved, "seconds": seconds, "error": error,
            "bound": (BURST + request / limit) / seconds, "windows_100ms": tenths, "p99_us": measured.p99(0)}),
    });
    Ok(Some(measured))
}

fn rates(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    let (rates, blocks, kinds): (&[u32], &[u32], &[Kind]) = match run.timing.quick {
        true => (&[16], &[4096, 65536], &[Kind::Read, Kind::Write]),
        false => (
            &[1, 8, 64, 256],
            &[4096, 65536, 1 << 20],
            &[Kind::Read, Kind::Write, Kind::Mixed],
        ),
    };
    let mut offered: HashMap<(u32, &str), f64> = HashMap::new();
    for rate in rates {
        for block in blocks {
            for kind in kinds {
                let case = format!("rate: {rate} MiB/s, {} {}s", size(*block), kind.name());
                if !run.wants(&case) {
                    continue;
                }
                let (connections, depth) = shape(*block);
                let flow = flow(a, 2, *kind, *block, connections, depth);
                let offer = match offered.get(&(*block, kind.name())) {
                    Some(offer) => *offer,
                    None => {
                        run.server.limits(&volume_limits(&[]))?;
                        let free = measure(run, std::slice::from_ref(&flow), 0.3, 0.7)?;
                        let offer = free.rate(0, Unit::Bytes);
                        offered.insert((*block, kind.name()), offer);
                        offer
                    }
                };
                let limit = f64::from(*rate) * MIB;
                let measured = held(
                    run,
                    Held {
                        case: case.clone(),
                        limits: json!({"total": {"bytes": limit as u64}}),
                        unit: Unit::Bytes,
                        limit,
                        flow,
                        volume: a,
                        offered: offer,
                    },
                )?;
                if let Some(measured) = measured.filter(|_| *block == 65536) {
                    let done = measured.flows.first().map_or(&[][..], Vec::as_slice);
                    let tenths =
                        windows(done, Unit::Bytes, measured.from, measured.to, SECOND / 10);
                    run.plots.push(Line {
                        name: case,
                        limit: vec![(0.0, f64::from(*rate))],
                        values: tenths.iter().map(|sum| *sum as f64 * 10.0 / MIB).collect(),
                    });
                }
            }
        }
    }
    Ok(())
}

fn operations(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    let rates: &[u32] = if run.timing.quick {
        &[1000]
    } else {
        &[100, 1000, 5000, 20_000]
    };
    for rate in rates {
        for kind in [Kind::Read, Kind::Write] {
            let case = format!("operations: {rate} {}s/s of 4 KiB", kind.name());
            if !run.wants(&case) {
                continue;
            }
            let flow = flow(a, 2, kind, 4096, 4, 32);
            run.server.limits(&volume_limits(&[]))?;
            let free = measure(run, std::slice::from_ref(&flow), 0.3, 0.5)?.rate(0, Unit::Ops);
            let limit = f64::from(*rate);
            held(
                run,
                Held {
                    case,
                    limits: json!({"total": {"ops": rate}}),
                    unit: Unit::Ops,
                    limit,
                    flow,
                    volume: a,
                    offered: free,
                },
            )?;
        }
    }
    Ok(())
}

/// 64 → 16 → 128 MiB/s under load, by the API.
fn changes(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    let set = |run: &Run, mibps: u32| {
        let body = json!({"throughputMibps": mibps});
        run.server.change(
            "PATCH",
            &format!("volumes/{}?updateMask=throughputMibps", a.name),
            &body,
        )
    };
    set(run, 64)?;
    let running = load::start(run.server.nfs, &[flow(a, 2, Kind::Read, 65536, 4, 8)])?;
    sleep(1.0);
    let begun = clock::now_ns();
    let mut steps = vec![(begun, 64u32)];
    for mibps in [16, 128] {
        sleep(2.0);
        set(run, mibps)?;
        steps.push((clock::now_ns(), mibps));
    }
    sleep(2.0);
    let end = clock::now_ns();
    let done = merged(&running.finish()?);
    set(run, 4096)?;
    let tenth = SECOND / 10;
    for (n, (at, mibps)) in steps.iter().enumerate().skip(1) {
        let to = steps.get(n + 1).map_or(end, |(next, _)| *next);
        let limit = f64::from(*mibps) * MIB;
        let settled = rate(&done, Unit::Bytes, at + tenth, to.min(at + 10 * tenth));
        let error = settled / limit - 1.0;
        let most = densest(&done, Unit::Bytes, *at, to, SECOND / 4) as f64;
        // What the bound lets through: the limit over the window, the burst, the request that is never split.
        let bound = limit * (0.25 + BURST) + 65536.0;
        let good = error.abs() <= 0.02 * run.timing.margin
            && most <= bound * (1.0 + 0.1 * (run.timing.margin - 1.0));
        run.row(Row {
            case: format!("change: to {mibps} MiB/s under load, by the API"),
            target: format!("in force within 100 ms; 250 ms ≤ {:.2} MiB", bound / MIB),
            achieved: format!("{:.2} MiB/s from 100 ms on ({:+.2} %); densest 250 ms {:.2} MiB", settled / MIB, error * 100.0, most / MIB),
            verdict: if good { Verdict::Met } else { Verdict::Missed },
            data: json!({"limit": limit, "achieved": settled, "densest_250ms": most, "bound_250ms": bound}),
        });
    }
    let fine = windows(&done, Unit::Bytes, begun, end, SECOND / 20);
    run.changes.push(Line {
        name: "64 → 16 → 128 MiB/s, 64 KiB reads".into(),
        limit: steps
            .iter()
            .map(|(at, mibps)| ((at - begun) as f64 / SECOND as f64, f64::from(*mibps)))
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
        verdict: if worst <= 0.02 * run.timing.margin {
            Verdict::Met
        } else {
            Verdict::Missed
        },
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
        run.server.limits(&volume_limits(&[(
            &a.name,
            json!({"total": {"bytes": 32u64 << 20}}),
        )]))?;
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

/// An unthrottled volume beside a throttled one.
fn neighbour(run: &mut Run, a: &Volume, b: &Volume) -> Result<(), BenchError> {
    let limited = volume_limits(&[(&a.name, json!({"total": {"bytes": 16u64 << 20}}))]);
    run.server.limits(&limited)?;
    let victim = Flow {
        thread: 1,
        ..flow(b, 3, Kind::Read, 4096, 2, 1)
    };
    let seconds = run.timing.least.max(2.0);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let measured = measure(run, std::slice::from_ref(&victim), WARM, seconds)?;
        alone.push(measured.p99(0));
        let both = [victim.clone(), flow(a, 2, Kind::Write, 65536, 4, 8)];
        beside.push(measure(run, &both, WARM, seconds)?.p99(0));
    }
    compared(
        run,
        "neighbour: p99 of an unlimited volume beside a throttled one",
        1.2,
        &alone,
        &beside,
    );
    Ok(())
}

fn compared(run: &mut Run, case: &str, most: f64, alone: &[f64], beside: &[f64]) {
    let (one, two) = (median(alone.to_vec()), median(beside.to_vec()));
    let ratio = two / one.max(1e-9);
    run.row(Row {
        case: case.to_owned(),
        target: format!("≤ {most} × alone"),
        achieved: format!("{one:.0} µs alone, {two:.0} µs beside: {ratio:.2} ×"),
        verdict: if ratio <= most * run.timing.margin {
            Verdict::Met
        } else {
            Verdict::Missed
        },
        data: json!({"alone_us": alone, "beside_us": beside}),
    });
}

/// Metadata beside a saturated data limit of the same volume and client.
fn metadata(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    run.server.limits(&volume_limits(&[(
        &a.name,
        json!({"total": {"bytes": 16u64 << 20}}),
    )]))?;
    for kind in [Kind::Getattr, Kind::Create] {
        let quick = Flow {
            thread: 1,
            ..flow(a, 2, kind, 0, 1, 1)
        };
        let seconds = run.timing.least.max(2.0);
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            alone.push(measure(run, std::slice::from_ref(&quick), WARM, seconds)?.p99(0));
            let both = [quick.clone(), flow(a, 2, Kind::Write, 65536, 4, 16)];
            beside.push(measure(run, &both, WARM, seconds)?.p99(0));
        }
        let case = format!("metadata: p99 of {} beside saturated writes", kind.name());
        compared(run, &case, 5.0, &alone, &beside);
    }
    Ok(())
}

/// Limits that do not bind against none.
fn overhead(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    let huge = json!({"bytes": 1u64 << 40, "ops": 1u64 << 30});
    let on = json!({"pools": [{"id": 1, "total": huge}], "volumes": [{"name": a.name, "pool": 1, "total": huge, "client": {"total": huge}}]});
    let off = volume_limits(&[]);
    for (block, unit, name) in [
        (4096, Unit::Ops, "operations of 4 KiB"),
        (65536, Unit::Bytes, "throughput of 64 KiB"),
    ] {
        let flow = flow(a, 2, Kind::Read, block, 4, 16);
        let mut sums = [Vec::new(), Vec::new()];
        // Alternately, so that what else happens on the machine meets both.
        for round in 0..10 {
            let which = round % 2;
            run.server.limits(if which == 0 { &off } else { &on })?;
            let rate = measure(run, std::slice::from_ref(&flow), 0.3, 1.2)?.rate(0, unit);
            if let Some(sum) = sums.get_mut(which) {
                sum.push(rate);
            }
        }
        let [off, on] = sums.map(median);
        let ratio = on / off.max(1e-9);
        run.row(Row {
            case: format!("overhead: limits that do not bind, {name} reads"),
            target: "≥ 0.98 of none".into(),
            achieved: format!("{ratio:.3}"),
            verdict: if ratio >= 0.98 {
                Verdict::Met
            } else {
                Verdict::Missed
            },
            data: json!({"off": off, "on": on}),
        });
    }
    Ok(())
}
