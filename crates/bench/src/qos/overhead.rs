//! What limits cost that do not bind: the same load with them and without, by turns.
//!
//! **Problem.** One part in fifty is asked for, and on a machine that serves, generates the load and has whatever else to
//! do with the same processors, two seconds in succession differ by several in a hundred: fifteen pairs of turns of a
//! second told 2 % from nothing no better than a coin.
//!
//! **Method.** One stretch of load, in which limits come and go: many short turns in place of few long ones, since what
//! disturbs lasts for seconds and then meets both turns of a pair. Which comes first changes from pair to pair by the
//! sequence of Thue and Morse: what drifts cancels, and what comes back every second, as work of servers and kernels
//! does, falls in with no rhythm of ours, as it does with an order that repeats itself every second. The beginning of
//! each turn, in which the change is carried out, does not count. The result is the median of the pairs' ratios, which a
//! few disturbed pairs do not move, with the interval from order statistics ([`middle`]), which presumes no
//! distribution.
//!
//! **What it can tell** shows in each run: turns of the same kind follow each other too, from one pair to the next, and
//! their ratios go through the same arithmetic. They have to come out as 1; how far their interval reaches is what cannot
//! be told: 1.001 (0.980 to 1.017) and 1.007 (0.979 to 1.017) in a run on two cores that others used too; in calmer ones
//! it reached 0.8 to 1.4 % to either side. The processor time that the server takes for a request is stated beside
//! it, which says nothing of waiting.

use super::cases::{WARM, flow, volume_limits};
use super::load::{self, Done, Kind};
use super::measure::{Unit, median, merged, middle, rate, within};
use super::server::Volume;
use super::{Row, Run, Verdict};
use crate::clock::{self, sleep};
use crate::error::BenchError;
use serde_json::json;

/// Pairs of turns.
const PAIRS: usize = 107;
/// Seconds of a turn that count.
const TURN: f64 = 0.23;
/// Seconds before them, for the change.
const SETTLE: f64 = 0.05;

/// A turn: what came through in a second, and the processor time of a request in nanoseconds.
#[derive(Clone, Copy)]
struct Turn {
    limited: bool,
    speed: f64,
    cost: f64,
}

/// Ratios of one thing, summed up.
struct Ratio {
    all: Vec<f64>,
    median: f64,
    middle: [f64; 2],
}

impl Ratio {
    fn of(all: Vec<f64>) -> Ratio {
        Ratio {
            median: median(all.clone()),
            middle: middle(all.clone()),
            all,
        }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [from, to] = self.middle;
        write!(f, "{:.3} ({from:.3} to {to:.3})", self.median)
    }
}

/// What is limited relative to what is not, pair by pair.
fn unlike(turns: &[Turn], what: impl Fn(&Turn) -> f64) -> Ratio {
    let pairs = turns.as_chunks::<2>().0.iter();
    Ratio::of(
        pairs
            .map(|[a, b]| match a.limited {
                true => what(a) / what(b).max(1e-9),
                false => what(b) / what(a).max(1e-9),
            })
            .collect(),
    )
}

/// The last turn of a pair and the first of the next, where they are alike, the one relative to the other by turns.
fn alike(turns: &[Turn], what: impl Fn(&Turn) -> f64) -> Ratio {
    let borders = turns.get(1..).unwrap_or_default().as_chunks::<2>().0.iter();
    let same = borders.filter(|[a, b]| a.limited == b.limited);
    Ratio::of(
        same.enumerate()
            .map(|(n, [a, b])| match n % 2 {
                0 => what(a) / what(b).max(1e-9),
                _ => what(b) / what(a).max(1e-9),
            })
            .collect(),
    )
}

/// Whether a turn is one with limits: the first or the second of its pair, by the sequence of Thue and Morse.
fn is_limited(turn: usize) -> bool {
    ((turn / 2).count_ones() as usize + turn) % 2 == 1
}

/// Limits that do not bind against none.
pub(super) fn all(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    let huge = json!({"bytes": 1u64 << 40, "ops": 1u64 << 30});
    let on = json!({"pools": [{"id": 1, "total": huge}], "volumes": [{"name": a.name, "pool": 1, "total": huge, "client": {"total": huge}}]});
    let off = volume_limits(&[]);
    for (block, unit, name) in [
        (4096, Unit::Ops, "operations of 4 KiB"),
        (65536, Unit::Bytes, "throughput of 64 KiB"),
    ] {
        let flow = flow(a, 2, Kind::Read, block, 4, 16);
        let running = load::start(run.server.nfs, std::slice::from_ref(&flow))?;
        sleep(WARM);
        let mut spans = Vec::new();
        for round in 0..2 * PAIRS {
            let limited = is_limited(round);
            run.server.limits(if limited { &on } else { &off })?;
            sleep(SETTLE);
            let before = run.server.processor_ns();
            let from = clock::now_ns();
            sleep(TURN);
            let to = clock::now_ns();
            spans.push((limited, from, to, run.server.processor_ns() - before));
        }
        let done = merged(&running.finish()?);
        let turn = |(limited, from, to, cpu): (bool, u64, u64, u64)| Turn {
            limited,
            speed: rate(&done, unit, from, to),
            cost: cpu as f64 / count(&done, from, to),
        };
        let turns: Vec<Turn> = spans.into_iter().map(turn).collect();
        let speed = unlike(&turns, |turn| turn.speed);
        let cost = unlike(&turns, |turn| turn.cost);
        let same = alike(&turns, |turn| turn.speed);
        let of = |limited: bool, what: fn(&Turn) -> f64| -> Vec<f64> {
            let kind = turns.iter().filter(|turn| turn.limited == limited);
            kind.map(what).collect()
        };
        run.row(Row {
            case: format!("overhead: limits that do not bind, {name} reads"),
            target: "≥ 0.98 of none".into(),
            achieved: format!(
                "{speed}, median of {PAIRS} pairs with its 95 % interval; turns alike {same}; processor time of a request {cost}"
            ),
            verdict: Verdict::of(speed.median >= 0.98),
            data: json!({
                "off": of(false, |turn| turn.speed), "on": of(true, |turn| turn.speed),
                "off_ns": of(false, |turn| turn.cost), "on_ns": of(true, |turn| turn.cost),
                "ratio": speed.median, "interval": speed.middle, "ratios": speed.all,
                "alike": same.median, "alike_interval": same.middle,
                "processor": cost.median, "processor_interval": cost.middle,
            }),
        });
    }
    Ok(())
}

fn count(done: &[Done], from: u64, to: u64) -> f64 {
    within(done, from, to).len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits that cost a tenth, on a machine that gets slower and is disturbed at times.
    #[test]
    fn a_cost_is_told_from_drift_and_disturbance() {
        let turns: Vec<Turn> = (0..2 * PAIRS)
            .map(|round| {
                let limited = is_limited(round);
                let drift = 1000.0 - round as f64;
                let disturbed = if round % 17 < 2 { 0.5 } else { 1.0 };
                let speed = drift * disturbed * if limited { 0.9 } else { 1.0 };
                Turn {
                    limited,
                    speed,
                    cost: 1.0 / speed,
                }
            })
            .collect();
        let speed = unlike(&turns, |turn| turn.speed);
        assert!((speed.median - 0.9).abs() < 0.002, "{speed}");
        assert!(speed.middle[0] > 0.89 && speed.middle[1] < 0.91, "{speed}");
        let same = alike(&turns, |turn| turn.speed);
        assert!((same.median - 1.0).abs() < 0.003, "{same}");
        assert_eq!(speed.all.len(), PAIRS);
    }
}
