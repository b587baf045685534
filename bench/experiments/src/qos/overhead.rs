//! Cost of limits that do not bind: the same load with them and without, in alternation.
//!
//! **Problem.** The bound is one part in fifty, and fifteen pairs of turns of a second
//! distinguished 2 % from nothing no better than a coin.
//!
//! **Method.** One stretch of load, in which the limits of the volume and of its pool come and go
//! ([`turns`]), by the API. The result is the median of the pairs' ratios, which a few disturbed
//! pairs do not move, with the interval from order statistics ([`middle`]), which presumes no
//! distribution. On a calm machine with two cores the interval of 107 pairs reached 1.0 to 1.5 % to
//! either side, in which one and the same server came out as 0.974 to 0.995; that of 428 pairs
//! reached 0.6 %. The processor time that the server takes for a request is stated beside it, which
//! says nothing of waiting.

use super::cases::{WARM, flow};
use super::load::{self, Done, Kind};
use super::measure::{Unit, median, merged, middle, rate, within};
use super::server::{Limit, Volume};
use super::turns::{self, Plan, Turn};
use super::{Row, Run, Verdict};
use serde_json::json;
use weir_bench::clock::sleep;
use weir_bench::error::BenchError;

const PLAN: Plan = Plan {
    pairs: 214,
    settle: 0.05,
    counts: 0.23,
};

/// Requests that came through in a second, and the processor time of a request in nanoseconds.
#[derive(Clone, Copy)]
struct Pace {
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
    /// Returns the ratio of the two of each pair in one quantity.
    fn from_pairs(pairs: &[(&Pace, &Pace)], what: fn(&Pace) -> f64) -> Ratio {
        let ratio = |(a, b): &(&Pace, &Pace)| what(a) / what(b).max(1e-9);
        let all: Vec<f64> = pairs.iter().map(ratio).collect();
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

/// Limits that do not bind against none.
pub(super) fn run_cases(run: &mut Run, a: &Volume) -> Result<(), BenchError> {
    // As much as a volume of its level can be given.
    let huge = Limit::Bytes(4608 << 20);
    for (block, unit, name) in [
        (4096, Unit::Ops, "operations of 4 KiB"),
        (65536, Unit::Bytes, "throughput of 64 KiB"),
    ] {
        let flow = flow(a, 2, Kind::Read, block, 4, 16);
        let running = load::start(run.server.nfs, std::slice::from_ref(&flow))?;
        sleep(WARM);
        let switch = |limited| {
            let limit = if limited { huge } else { Limit::None };
            run.server.limit(&a.name, limit)
        };
        let taken = turns::take(PLAN, switch, || run.server.processor_ns())?;
        let done = merged(&running.finish()?);
        let pace = |(from, to), cpu| Pace {
            speed: rate(&done, unit, from, to),
            cost: cpu as f64 / count(&done, from, to),
        };
        let turns: Vec<Turn<Pace>> = taken.into_iter().map(|turn| turn.map(pace)).collect();
        let pairs = turns::unlike(&turns);
        let speed = Ratio::from_pairs(&pairs, |pace| pace.speed);
        let cost = Ratio::from_pairs(&pairs, |pace| pace.cost);
        let same = Ratio::from_pairs(&turns::alike(&turns), |pace| pace.speed);
        let of = |limited: bool, what: fn(&Pace) -> f64| -> Vec<f64> {
            let kind = turns.iter().filter(|turn| turn.on == limited);
            kind.map(|turn| what(&turn.of)).collect()
        };
        run.row(Row {
            case: format!("overhead: limits that do not bind, {name} reads"),
            target: "≥ 0.98 of none".into(),
            achieved: format!(
                "{speed}, median of {} pairs with its 95 % interval; turns alike {same}; processor time of a request {cost}",
                PLAN.pairs
            ),
            verdict: Verdict::from_met(speed.median >= 0.98),
            data: json!({
                "off": of(false, |pace| pace.speed), "on": of(true, |pace| pace.speed),
                "off_ns": of(false, |pace| pace.cost), "on_ns": of(true, |pace| pace.cost),
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
    use crate::qos::turns::tests::made;

    /// Limits that cost a tenth, on a machine that gets slower and is disturbed at times.
    #[test]
    fn a_cost_is_told_from_drift_and_disturbance() {
        let turns = made(PLAN.pairs, |turn, limited| {
            let drift = 1000.0 - turn as f64;
            let disturbed = if turn % 17 < 2 { 0.5 } else { 1.0 };
            let speed = drift * disturbed * if limited { 0.9 } else { 1.0 };
            Pace {
                speed,
                cost: 1.0 / speed,
            }
        });
        let speed = Ratio::from_pairs(&turns::unlike(&turns), |pace| pace.speed);
        assert!((speed.median - 0.9).abs() < 0.002, "{speed}");
        assert!(speed.middle[0] > 0.89 && speed.middle[1] < 0.91, "{speed}");
        let same = Ratio::from_pairs(&turns::alike(&turns), |pace| pace.speed);
        assert!((same.median - 1.0).abs() < 0.003, "{same}");
        assert_eq!(speed.all.len(), PLAN.pairs);
    }
}
