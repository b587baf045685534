//! The experiment's cases, in its order, and those that measure more.

use super::copy::Plain;
use super::pair::{RunningTransfer, SVM, Transfer, does};
use super::{Line, MIB, Run};
use crate::qos::Verdict;
use crate::qos::measure::median;
use crate::qos::plot::Line as Plot;
use serde_json::{Value, json};
use std::time::Duration;
use weir_bench::clock::{self, sleep};
use weir_bench::error::BenchError;

const SOURCE: &str = "vol_test";
const MIRROR: &str = "vol_test_dst";
const VAULT: &str = "vol_test_1_dst";
/// Tolerance of a data phase, as a part of the limit.
const TOLERANCE: f64 = 0.01;
/// Within so many milliseconds a change has to act.
const ACTS_MS: f64 = 200.0;
/// Least part of a plain copy's speed.
const SPEED: f64 = 0.7;
/// Between two samples of what has been received.
const SAMPLE: Duration = Duration::from_millis(20);
/// Seconds between two values of the plots.
pub(super) const WINDOW: f64 = 0.05;
/// Bytes that a throttle gives out at once.
const PIECE: u64 = 64 << 10;
const SECOND: f64 = 1e9;

/// When, and how many bytes had been received by then.
type Samples = Vec<(u64, u64)>;

impl Run {
    /// Writes so much anew.
    fn write(&self, bytes: u64) -> Result<(), BenchError> {
        self.pair.source.volume(SOURCE, bytes)?;
        // As long as it takes to type the next command.
        sleep(self.pause);
        Ok(())
    }

    /// Takes a snapshot that the vault copies.
    fn daily(&mut self) -> Result<(), BenchError> {
        self.snapshots += 1;
        does(
            &self.pair.source,
            &format!(
                "snapshot create -vserver {SVM} -volume {SOURCE} -snapshot daily.{} -snapmirror-label daily",
                self.snapshots
            ),
        )
        .map(drop)
    }

    fn throttle(&self, kbs: &str) -> Result<(), BenchError> {
        does(
            &self.pair.destination,
            &format!("snapmirror modify -destination-path {SVM}:{MIRROR} -throttle {kbs}"),
        )
        .map(drop)
    }

    fn update(&self, to: &str) -> Result<Transfer, BenchError> {
        self.pair.succeeds(self.pair.begin("update", to, "")?)
    }

    /// Samples until so many bytes have come since `from`.
    fn until(&self, from: u64, bytes: u64, samples: &mut Samples) -> Result<(), BenchError> {
        loop {
            let now = self.pair.received()?;
            samples.push((clock::now_ns(), now));
            if now.saturating_sub(from) >= bytes {
                return Ok(());
            }
            std::thread::sleep(SAMPLE);
        }
    }

    /// Samples until all transfers have ended well.
    fn all_end(
        &self,
        mut running: Vec<RunningTransfer>,
        samples: &mut Samples,
    ) -> Result<Vec<Transfer>, BenchError> {
        let mut ended = Vec::new();
        let mut next = 0;
        while !running.is_empty() {
            let now = clock::now_ns();
            samples.push((now, self.pair.received()?));
            // Sampling is to be cheap: states are asked for five times a second.
            if now >= next {
                next = now + 200_000_000;
                let mut left = Vec::new();
                for mut begun in running {
                    match self.pair.look(&mut begun)? {
                        Some(done) => ended.push(done),
                        None => left.push(begun),
                    }
                }
                running = left;
            }
            std::thread::sleep(SAMPLE);
        }
        ended.sort_by(|a, b| b.to.cmp(&a.to));
        match ended.iter().find(|t| t.state != "success") {
            Some(bad) => Err(BenchError::Usage(format!(
                "the transfer to {}: {}",
                bad.to, bad.state
            ))),
            None => Ok(ended),
        }
    }

    /// The verdict on rates, MB/s, that are to be `limit`.
    fn held(&self, rates: &[f64], limit: f64, binds: &str, transfers: &[Transfer]) -> RateCheck {
        let off = |rate: f64| (rate / limit - 1.0) * 100.0;
        let within = |rate: &f64| off(*rate).abs() <= TOLERANCE * 100.0 * self.margin;
        let told = transfers
            .iter()
            .all(|t| t.limited_by.iter().all(|by| by == binds) && !t.limited_by.is_empty());
        let shown: Vec<String> = rates
            .iter()
            .map(|rate| format!("{rate:.3} MB/s ({:+.2} %)", off(*rate)))
            .collect();
        RateCheck {
            target: format!("{limit:.0} MB/s ± 1 %"),
            achieved: match told {
                true => format!("{}; told: {binds}", shown.join(", ")),
                false => format!("{}; {binds} was not told to bind", shown.join(", ")),
            },
            verdict: Verdict::from_met(rates.iter().all(within) && told),
        }
    }

    fn plot(&mut self, name: &str, samples: &Samples, limit: &[(u64, f64)]) {
        let Some((began, first)) = samples.first().copied() else {
            return;
        };
        let mut values: Vec<f64> = Vec::new();
        let mut before = first;
        for (at, bytes) in samples {
            let window = ((at - began) as f64 / SECOND / WINDOW) as usize;
            values.resize(values.len().max(window + 1), 0.0);
            if let Some(value) = values.get_mut(window) {
                *value += bytes.saturating_sub(before) as f64 / MIB / WINDOW;
            }
            before = *bytes;
        }
        let limit = limit
            .iter()
            .map(|(at, rate)| (at.saturating_sub(began) as f64 / SECOND, *rate));
        self.plots.push(Plot {
            name: name.to_owned(),
            unit: "MB/s",
            limit: limit.collect(),
            values,
        });
    }
}

struct RateCheck {
    target: String,
    achieved: String,
    verdict: Verdict,
}

impl RateCheck {
    fn line(self, case: &str, seed: &str, transfers: Vec<Transfer>, data: Value) -> Line {
        Line {
            case: case.to_owned(),
            seed: seed.to_owned(),
            transfers,
            target: self.target,
            achieved: self.achieved,
            verdict: self.verdict,
            data,
        }
    }
}

fn rates(transfers: &[Transfer]) -> Vec<f64> {
    transfers.iter().map(|t| t.rate as f64 / MIB).collect()
}

type Case = fn(&mut Run) -> Result<(), BenchError>;

/// All cases of the experiment.
pub(super) fn run_cases(run: &mut Run) -> Result<(), BenchError> {
    let cases: [(&str, Case); 10] = [
        ("unlimited", unlimited),
        ("relationship", relationship),
        ("another relationship", another),
        ("relationship, changed in flight", changed),
        ("relationship, restarted from a checkpoint", restarted),
        ("global, one transfer", one),
        ("global, two transfers", two),
        ("global, lifted in flight", lifted),
        ("global, lowered in flight", lowered),
        ("global, outgoing", outgoing),
    ];
    if !cases.iter().any(|(name, _)| run.wants(name)) {
        return Ok(());
    }
    run.pair.volume(SOURCE)?;
    run.write(run.size)?;
    run.daily()?;
    run.pair.mirror(SOURCE, MIRROR, "MirrorLatest")?;
    run.pair.mirror(SOURCE, VAULT, "XDPDefault")?;
    for (name, case) in cases {
        if run.wants(name) {
            case(run)?;
        }
    }
    Ok(())
}

/// 1. Without a limit; and, in alternation with it, the plain copy.
fn unlimited(run: &mut Run) -> Result<(), BenchError> {
    let plain = Plain::new(&run.scratch, run.size)?;
    let (mut copies, mut speeds, mut transfers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..run.rounds {
        run.write(run.size)?;
        copies.push(plain.copy()? / MIB);
        let transfer = run.update(MIRROR)?;
        let ms = transfer.setup_ms + transfer.data_ms + transfer.finalize_ms;
        speeds.push(transfer.logical as f64 / MIB / (ms.max(1) as f64 / 1000.0));
        transfers.push(transfer);
    }
    let (copy, speed) = (median(copies.clone()), median(speeds.clone()));
    let ratio = speed / copy;
    run.line(Line {
        case: "unlimited".to_owned(),
        seed: "524.8 MB, 41 s, 12.8".to_owned(),
        transfers,
        target: format!("≥ {SPEED} of a plain copy"),
        achieved: format!("{ratio:.2}: {speed:.0} of {copy:.0} MB/s, setup to end"),
        verdict: Verdict::from_met(ratio >= SPEED / run.margin),
        data: json!({"copies_mbps": copies, "transfers_mbps": speeds, "ratio": ratio}),
    });
    Ok(())
}

/// 2. A relationship's throttle of 8 MB/s.
fn relationship(run: &mut Run) -> Result<(), BenchError> {
    run.throttle("8192")?;
    run.write(run.size)?;
    let transfers = vec![run.update(MIRROR)?];
    run.throttle("unlimited")?;
    let held = run.held(&rates(&transfers), 8.0, "relationship", &transfers);
    run.line(held.line(
        "relationship, 8 MB/s",
        "524.9 MB, 90 s, 5.83",
        transfers,
        Value::Null,
    ));
    Ok(())
}

/// The experiment's proof that it is that relationship's only.
fn another(run: &mut Run) -> Result<(), BenchError> {
    run.throttle("8192")?;
    run.write(run.size)?;
    run.daily()?;
    let transfers = vec![run.update(VAULT)?];
    run.throttle("unlimited")?;
    let rate = rates(&transfers).first().copied().unwrap_or(0.0);
    run.line(Line {
        case: "another relationship beside it".to_owned(),
        seed: "524.9 MB, 27 s, 19.4".to_owned(),
        transfers,
        target: "not limited".to_owned(),
        achieved: format!("{rate:.0} MB/s"),
        verdict: Verdict::from_met(rate > 16.0),
        data: Value::Null,
    });
    Ok(())
}

/// 3. Changed from 8 to 4 MB/s in flight: this transfer keeps its 8.
fn changed(run: &mut Run) -> Result<(), BenchError> {
    run.throttle("8192")?;
    run.write(run.size)?;
    let mut samples = Samples::new();
    let from = run.pair.received()?;
    let begun = run.pair.begin("update", MIRROR, "")?;
    run.until(from, run.size / 8, &mut samples)?;
    run.throttle("4096")?;
    let transfers = vec![run.pair.succeeds(begun)?];
    run.throttle("unlimited")?;
    let held = run.held(&rates(&transfers), 8.0, "relationship", &transfers);
    run.line(held.line(
        "relationship, 8 changed to 4 MB/s in flight",
        "524.9 MB, 80 s, 6.56",
        transfers,
        Value::Null,
    ));
    Ok(())
}

/// Case that the experiment quotes: aborted and begun again, it takes the new value from the
/// checkpoint.
fn restarted(run: &mut Run) -> Result<(), BenchError> {
    let size = run.size.min(128 << 20);
    run.throttle("8192")?;
    run.write(size)?;
    let mut samples = Samples::new();
    let from = run.pair.received()?;
    let begun = run.pair.begin("update", MIRROR, "")?;
    run.until(from, size / 2, &mut samples)?;
    run.throttle("4096")?;
    does(
        &run.pair.destination,
        &format!("snapmirror abort -destination-path {SVM}:{MIRROR}"),
    )?;
    let aborted = run.pair.ends(begun)?;
    let again = run.update(MIRROR)?;
    run.throttle("unlimited")?;
    let received = run.pair.received()? - from;
    let twice = received.saturating_sub(again.wire);
    let transfers = vec![again];
    let held = run.held(&rates(&transfers), 4.0, "relationship", &transfers);
    let all = [vec![aborted], transfers].concat();
    let mut line = held.line(
        "relationship, aborted, restarted at 4 MB/s",
        "-",
        all,
        json!({"sent_twice": twice}),
    );
    line.achieved += &format!("; {:.2} MB sent twice", twice as f64 / MIB);
    run.line(line);
    Ok(())
}

/// 4. A global throttle of 4 MB/s on what comes in, one transfer.
fn one(run: &mut Run) -> Result<(), BenchError> {
    run.write(run.size)?;
    run.daily()?;
    run.pair.global(true, Some(4096))?;
    let transfers = vec![run.update(VAULT)?];
    run.pair.global(true, None)?;
    let held = run.held(&rates(&transfers), 4.0, "incoming", &transfers);
    run.line(held.line(
        "global, 4 MB/s, one transfer",
        "524.9 MB, 147 s, 3.57",
        transfers,
        Value::Null,
    ));
    Ok(())
}

fn both(run: &mut Run) -> Result<Vec<RunningTransfer>, BenchError> {
    run.write(run.size)?;
    run.daily()?;
    run.pair.global(true, Some(4096))?;
    Ok(vec![
        run.pair.begin("update", MIRROR, "")?,
        run.pair.begin("update", VAULT, "")?,
    ])
}

/// The rate of the sum, MB/s, from the first byte that was seen to the last.
fn sum(samples: &Samples) -> f64 {
    let moved = |pair: &&[(u64, u64)]| matches!(pair, [(_, a), (_, b)] if b > a);
    let first = samples.windows(2).find(moved).and_then(<[_]>::last);
    let last = samples.windows(2).rfind(moved).and_then(<[_]>::last);
    match (first, last) {
        (Some((from, a)), Some((to, b))) if to > from => {
            (b - a) as f64 / MIB / ((to - from) as f64 / SECOND)
        }
        _ => 0.0,
    }
}

/// 5. The same with two transfers: the limit is on their sum.
fn two(run: &mut Run) -> Result<(), BenchError> {
    let mut samples = vec![(clock::now_ns(), run.pair.received()?)];
    let running = both(run)?;
    let transfers = run.all_end(running, &mut samples)?;
    run.pair.global(true, None)?;
    let sum = sum(&samples);
    let held = run.held(&[sum], 4.0, "incoming", &transfers);
    let each = rates(&transfers);
    let mut line = held.line(
        "global, 4 MB/s, two transfers",
        "524.9 MB, 281 s, 1.87 and 524.9 MB, 255 s, 2.06",
        transfers,
        json!({"sum_mbps": sum, "each_mbps": each}),
    );
    line.achieved = format!("sum {}", line.achieved);
    run.line(line);
    Ok(())
}

/// 6. The global throttle set to unlimited in flight.
fn lifted(run: &mut Run) -> Result<(), BenchError> {
    let from = run.pair.received()?;
    let running = both(run)?;
    let mut samples = Samples::new();
    run.until(from, run.size / 8, &mut samples)?;
    let asked = clock::now_ns();
    run.pair.global(true, None)?;
    let answered = clock::now_ns();
    let transfers = run.all_end(running, &mut samples)?;
    let limit = 4.0 * MIB / SECOND;
    let acts = samples.windows(2).find_map(|pair| match pair {
        [(a, before), (b, after)] if *b > asked => {
            // More than twice what the old limit and a sample's grain allow.
            let most = 2.0 * (limit * (b - a) as f64 + PIECE as f64);
            ((after - before) as f64 > most).then(|| (b - asked) as f64 / 1e6)
        }
        _ => None,
    });
    let ms = acts.unwrap_or(f64::INFINITY);
    run.plot(
        "global, 4 MB/s lifted in flight",
        &samples,
        &[(samples.first().map_or(0, |s| s.0), 4.0), (asked, 0.0)],
    );
    run.line(Line {
        case: "global, lifted in flight".to_owned(),
        seed: "524.9 MB, 178 s and 524.9 MB, 77 s".to_owned(),
        transfers,
        target: format!("acts within {ACTS_MS:.0} ms"),
        achieved: format!(
            "{ms:.0} ms after it was asked for ({:.0} ms until it was answered)",
            (answered - asked) as f64 / 1e6
        ),
        verdict: Verdict::from_met(ms <= ACTS_MS * run.margin),
        data: json!({"acts_ms": acts, "asked_to_answered_ms": (answered - asked) as f64 / 1e6, "sample_ms": SAMPLE.as_millis()}),
    });
    Ok(())
}

/// And the other way: lowered from 16 to 4 MB/s. What comes in more than the new limit allows came
/// at the old one's rate.
fn lowered(run: &mut Run) -> Result<(), BenchError> {
    let size = (run.size / 4).max(16 << 20);
    run.write(size)?;
    run.pair.global(true, Some(16 << 10))?;
    let from = run.pair.received()?;
    let begun = run.pair.begin("update", MIRROR, "")?;
    let mut samples = Samples::new();
    run.until(from, size / 4, &mut samples)?;
    let asked = clock::now_ns();
    run.pair.global(true, Some(4096))?;
    run.until(from, size / 2, &mut samples)?;
    run.pair.global(true, None)?;
    let transfers = vec![run.pair.succeeds(begun)?];
    let at = samples.iter().rposition(|(at, _)| *at <= asked);
    let before = at.and_then(|at| samples.get(at));
    let ms = match (samples.first(), before, samples.last()) {
        (Some(first), Some(before), Some(last)) => {
            let bytes = |a: &(u64, u64), b: &(u64, u64)| b.1.saturating_sub(a.1) as f64;
            let time = |from: u64, to: u64| to.saturating_sub(from) as f64 / SECOND;
            let old = bytes(first, before) / time(first.0, before.0).max(f64::MIN_POSITIVE);
            let new = 4.0 * MIB;
            // Since the sample before the change: so long at the old rate, the rest at the new.
            let at_old = (bytes(before, last) - new * time(before.0, last.0)) / (old - new);
            (at_old - time(before.0, asked)).max(0.0) * 1000.0
        }
        _ => f64::INFINITY,
    };
    run.plot(
        "global, 16 lowered to 4 MB/s in flight",
        &samples,
        &[(samples.first().map_or(0, |s| s.0), 16.0), (asked, 4.0)],
    );
    run.line(Line {
        case: "global, 16 lowered to 4 MB/s in flight".to_owned(),
        seed: "-".to_owned(),
        transfers,
        target: format!("acts within {ACTS_MS:.0} ms"),
        achieved: format!("{ms:.0} ms after it was asked for"),
        verdict: Verdict::from_met(ms <= ACTS_MS * run.margin),
        data: json!({"acts_ms": ms, "sample_ms": SAMPLE.as_millis()}),
    });
    Ok(())
}

/// A limit of the source's node, which the destination is to know of.
fn outgoing(run: &mut Run) -> Result<(), BenchError> {
    run.write(run.size.clamp(16 << 20, 128 << 20))?;
    run.pair.global(false, Some(8192))?;
    let transfers = vec![run.update(MIRROR)?];
    run.pair.global(false, None)?;
    let held = run.held(&rates(&transfers), 8.0, "outgoing", &transfers);
    run.line(held.line("global, outgoing, 8 MB/s", "-", transfers, Value::Null));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_from_the_first_byte_to_the_last() {
        let second = 1_000_000_000;
        let samples = vec![
            (0, 5),
            (second, 5),
            (2 * second, 5 + (1 << 20)),
            (3 * second, 5 + (5 << 20)),
            (4 * second, 5 + (9 << 20)),
            (5 * second, 5 + (9 << 20)),
        ];
        assert_eq!(sum(&samples), 4.0);
        assert_eq!(sum(&vec![(0, 5), (second, 5)]), 0.0);
    }
}
