//! Latency of an unlimited volume's requests beside a throttled volume's load.
//!
//! **Problem.** The quantile of 99 % is on the steep part of the latencies: a few hundred requests
//! a second more that meet other work on the way move it by a tenth. Seven pairs of stretches of
//! five seconds distinguished 1.27 from 1.12 no better than ±0.15, since other work of the machine
//! moves it as well.
//!
//! **Method.** The neighbour's load runs through, on the same connections; the throttled load comes
//! and goes ([`turns`]): it connects, and takes its connections down in the midst of what waits.
//! All latencies of a state make one distribution, and the result is the ratio of the two
//! quantiles, with its interval when the pairs of turns are drawn anew ([`Quantile::interval`]).
//! What the server defers, such as writing the throttled load's data to its device, falls into both
//! states and is no part of the ratio: so some seconds before the first of the throttled load are
//! stated beside it.
//!
//! The same load without a limit, from a client that offers that rate by itself, separates the cost
//! of limits from that of the admitted requests: p99 was 1.10 times that alone (1.06 to 1.15)
//! beside such writes, and 1.17 (1.12 to 1.22) beside those that a limit delayed, in the same
//! minutes on two cores that the load's own threads shared.

use super::cases::{WARM, flow};
use super::load::{self, Done, Flow, Kind};
use super::measure::{SECOND, latency, within};
use super::server::{Limit, Volume};
use super::turns::{self, Plan, Turn};
use super::{Row, Run, Timing, Verdict};
use hdrhistogram::Histogram;
use serde_json::json;
use weir_bench::clock::{self, sleep};
use weir_bench::error::BenchError;
use weir_bench::pattern::Rand;

/// Most of p99 beside the load relative to p99 alone.
const MOST: f64 = 1.2;
/// The throttled volume's limit in bytes a second, and bytes of its requests.
const LIMIT: u64 = 16 << 20;
const BLOCK: u32 = 64 << 10;
/// Pace of the same rate without a limit: nanoseconds from one request to the next.
const EVERY: u64 = SECOND * BLOCK as u64 / LIMIT;
/// Number of times that pairs are drawn anew.
const DRAWS: usize = 400;
/// Seconds before the throttled load comes for the first time.
const BEFORE: f64 = 4.0;

fn plan(timing: &Timing) -> Plan {
    Plan {
        pairs: match (timing.quick, timing.least > 10.0) {
            (true, _) => 3,
            (_, false) => 36,
            (_, true) => 72,
        },
        settle: 0.08,
        counts: 0.27,
    }
}

/// A histogram of latencies in nanoseconds.
type Latencies = Histogram<u32>;

fn latencies(done: &[Done]) -> Latencies {
    // The bounds are constants that the constructor accepts; were they not, one that grows serves
    // too.
    let mut all = Histogram::new_with_bounds(1, 1 << 32, 3)
        .or_else(|_| Histogram::new(3))
        .unwrap_or_else(|_| unreachable!("constant bounds"));
    for done in done {
        all.saturating_record(u64::from(done.took).max(1));
    }
    all
}

/// A quantile of all latencies on either side of some pairs, and their ratio.
#[derive(Clone, Copy)]
struct Quantile {
    /// The quantile on either side, in microseconds.
    sides: [f64; 2],
    ratio: f64,
    /// Interval of 95 % of the ratio.
    interval: [f64; 2],
}

impl Quantile {
    fn from_pairs(pairs: &[(&Latencies, &Latencies)]) -> Quantile {
        let sides = Quantile::sides(pairs.iter());
        Quantile {
            sides,
            ratio: Quantile::ratio(sides),
            interval: Quantile::interval(pairs),
        }
    }

    fn sides<'a>(pairs: impl Iterator<Item = &'a (&'a Latencies, &'a Latencies)>) -> [f64; 2] {
        let mut both = [latencies(&[]), latencies(&[])];
        let [left, right] = &mut both;
        for (a, b) in pairs {
            // All have the same bounds.
            let _ = left.add(*a);
            let _ = right.add(*b);
        }
        both.map(|all| all.value_at_quantile(0.99) as f64 / 1000.0)
    }

    fn ratio([a, b]: [f64; 2]) -> f64 {
        a / b.max(1e-9)
    }

    /// The interval that holds 95 % of the ratios of as many pairs drawn from these with
    /// replacement (Efron's bootstrap, by percentiles): what is drawn is pairs and not requests,
    /// since requests that are near each other are disturbed together.
    fn interval(pairs: &[(&Latencies, &Latencies)]) -> [f64; 2] {
        let mut rand = Rand::new(1);
        let mut ratios: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let mut any = || pairs.get(rand.below(pairs.len() as u64) as usize);
                Quantile::ratio(Quantile::sides(pairs.iter().filter_map(|_| any())))
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        [DRAWS / 40, DRAWS - 1 - DRAWS / 40].map(|at| ratios.get(at).copied().unwrap_or(0.0))
    }
}

impl std::fmt::Display for Quantile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [from, to] = self.interval;
        write!(f, "{:.2} × ({from:.2} to {to:.2})", self.ratio)
    }
}

/// Beside writes, beside the same without a limit, and beside reads.
pub(super) fn run_cases(run: &mut Run, a: &Volume, b: &Volume) -> Result<(), BenchError> {
    let neighbour = flow(b, 3, Kind::Read, 4096, 2, 1);
    let plan = plan(&run.timing);
    for (kind, paced) in [
        (Kind::Write, false),
        (Kind::Write, true),
        (Kind::Read, false),
    ] {
        let (limit, every) = match paced {
            false => (Limit::Bytes(LIMIT), None),
            true => (Limit::None, Some(EVERY)),
        };
        run.server.limit(&a.name, limit)?;
        let throttled = [Flow {
            every,
            ..flow(a, 2, kind, BLOCK, 4, 8)
        }];
        let Stretch {
            done,
            turns,
            before,
        } = beside(run, &neighbour, &throttled, plan)?;
        let of = |(from, to), _| latencies(within(&done, from, to));
        let turns: Vec<Turn<Latencies>> = turns.into_iter().map(|turn| turn.map(of)).collect();
        let result = Quantile::from_pairs(&turns::unlike(&turns));
        let same = Quantile::from_pairs(&turns::alike(&turns));
        let [beside, alone] = result.sides;
        let each = |on: bool| -> Vec<f64> {
            let kind = turns.iter().filter(|turn| turn.on == on);
            kind.map(|turn| turn.of.value_at_quantile(0.99) as f64 / 1000.0)
                .collect()
        };
        run.row(Row {
            case: match paced {
                false => format!("neighbour: an unlimited volume beside throttled {}s", kind.name()),
                true => "neighbour: an unlimited volume beside as many writes without a limit".into(),
            },
            target: match paced {
                false => format!("p99 ≤ {MOST} × alone"),
                true => "what the work itself costs".into(),
            },
            achieved: format!(
                "{alone:.0} µs alone, {beside:.0} µs beside: {result}, {} pairs with their 95 % interval; turns alike {same}; \
                 {before:.0} µs before all",
                plan.pairs
            ),
            verdict: match paced {
                false => Verdict::from_met(result.ratio <= MOST * run.timing.margin),
                true => Verdict::Stated,
            },
            data: json!({
                "without_us": each(false), "with_us": each(true), "alone_us": alone, "beside_us": beside,
                "ratio": result.ratio, "interval": result.interval,
                "alike": same.ratio, "alike_interval": same.interval, "before_us": before,
            }),
        });
    }
    Ok(())
}

/// A stretch of the neighbour's load.
struct Stretch {
    /// Completions of the neighbour's requests.
    done: Vec<Done>,
    turns: Vec<Turn<u64>>,
    /// Its p99 before the first turn, in microseconds.
    before: f64,
}

/// The neighbour's load, beside which the other comes and goes.
fn beside(
    run: &Run,
    neighbour: &Flow,
    throttled: &[Flow],
    plan: Plan,
) -> Result<Stretch, BenchError> {
    let running = load::start(run.server.nfs, std::slice::from_ref(neighbour))?;
    sleep(WARM);
    let from = clock::now_ns();
    sleep(BEFORE);
    let to = clock::now_ns();
    let mut other = None;
    let switch = |on: bool| {
        if let Some(running) = other.take() {
            load::RunningLoad::finish(running)?;
        }
        if on {
            other = Some(load::start(run.server.nfs, throttled)?);
        }
        Ok(())
    };
    let turns = turns::take(plan, switch, || 0)?;
    if let Some(running) = other {
        running.finish()?;
    }
    let done = running.finish()?.into_iter().next().unwrap_or_default();
    let before = latency(within(&done, from, to), 0.99);
    Ok(Stretch {
        done,
        turns,
        before,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::turns::tests::made;

    /// Requests of 30 to 40 µs, two in a hundred of which are slower; beside, a tenth more so.
    #[test]
    fn the_slow_part_is_told_from_drift() {
        let mut rand = Rand::new(7);
        let rand = std::cell::RefCell::new(&mut rand);
        let turns = made(100, |turn, on| {
            let some = (0..2000u64).map(|n| {
                let slow = 40_000.0 * if on { 1.1 } else { 1.0 } * (1.0 + turn as f64 / 400.0);
                let took = match n % 50 {
                    0 => slow as u64 + rand.borrow_mut().below(2000),
                    _ => 30_000 + rand.borrow_mut().below(10_000),
                };
                Done {
                    at: n,
                    took: took as u32,
                    bytes: 4096,
                }
            });
            latencies(&some.collect::<Vec<_>>())
        });
        let result = Quantile::from_pairs(&turns::unlike(&turns));
        assert!((result.ratio - 1.1).abs() < 0.02, "{result}");
        let [from, to] = result.interval;
        assert!(from < result.ratio && result.ratio < to, "{result}");
        assert!(from > 1.05 && to < 1.15, "{result}");
        let same = Quantile::from_pairs(&turns::alike(&turns));
        assert!(same.interval[0] < 1.0 && same.interval[1] > 1.0, "{same}");
        assert!((same.ratio - 1.0).abs() < 0.03, "{same}");
    }
}
