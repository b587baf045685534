//! The grid: one volume, one limit, at every rate, size and kind.
//!
//! **Side by side.** What one volume's limit does to it does not depend on other volumes, so cases
//! run side by side, each on a volume of its own, as long as what they may move together is below
//! [`SHARE`] of what the machine moves without limits: slow cases, which are most, then cost one
//! stretch of time together. A case that takes more of the machine than that runs alone. A request
//! that waits costs several times one of a load that runs as fast as it can, with requests that
//! come and go in large batches. With a third of the machine's operations under limits side by
//! side, on two cores, the 99th percentile of latencies was 13 ms, more than the burst makes good,
//! and a volume at 256 MiB/s by 4 KiB lost a fifth of its limit; alone it came within 0.1 %. How
//! busy the machine was is reported with each case.

use super::cases::{BURST, MIB, WARM, flow, measure};
use super::load::{Flow, Kind};
use super::measure::{SECOND, Unit, variation, windows};
use super::plot::Line;
use super::server::Limit;
use super::{Row, Run, Verdict};
use serde_json::json;
use std::collections::HashMap;
use weir_bench::error::BenchError;

/// The part of what the machine moves that cases may take up side by side.
const SHARE: f64 = 0.12;
/// Cases side by side at most.
const ABREAST: usize = 18;
/// Bytes of each volume's file.
const FILE: u64 = 16 << 20;

/// One case of the grid.
struct Cell {
    name: String,
    given: Limit,
    unit: Unit,
    limit: f64,
    kind: Kind,
    block: u32,
}

impl Cell {
    /// Returns what one request takes of the limit.
    fn request(&self) -> f64 {
        match self.unit {
            Unit::Bytes => f64::from(self.block),
            Unit::Ops => 1.0,
        }
    }

    /// The limit in requests a second.
    fn requests(&self) -> f64 {
        self.limit / self.request()
    }

    fn format_value(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => format!("{:.2} MiB/s", value / MIB),
            Unit::Ops => format!("{value:.2} /s"),
        }
    }
}

pub(super) fn size(block: u32) -> String {
    match block {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

fn cells(run: &Run) -> Vec<Cell> {
    let kinds = [Kind::Read, Kind::Write, Kind::Mixed];
    let (rates, blocks, kinds, ops): (&[u32], &[u32], &[Kind], &[u32]) = match run.timing.quick {
        true => (&[16], &[4096, 65536], &kinds[..2], &[1000]),
        false => (
            &[1, 8, 64, 256],
            &[4096, 65536, 1 << 20],
            &kinds,
            &[100, 1000, 5000, 20_000],
        ),
    };
    let mut cells = Vec::new();
    for rate in rates {
        for block in blocks {
            for kind in kinds {
                let name = match kind {
                    Kind::Mixed => "reads and writes",
                    Kind::Read => "reads",
                    _ => "writes",
                };
                let bytes = u64::from(*rate) << 20;
                cells.push(Cell {
                    name: format!("rate: {rate} MiB/s, {} {name}", size(*block)),
                    given: Limit::Bytes(bytes),
                    unit: Unit::Bytes,
                    limit: bytes as f64,
                    kind: *kind,
                    block: *block,
                });
            }
        }
    }
    for rate in ops {
        for kind in [Kind::Read, Kind::Write] {
            cells.push(Cell {
                name: format!("operations: {rate} {}s/s of 4 KiB", kind.name()),
                given: Limit::Ops(u64::from(*rate)),
                unit: Unit::Ops,
                limit: f64::from(*rate),
                kind,
                block: 4096,
            });
        }
    }
    cells.retain(|cell| run.wants(&cell.name));
    cells
}

/// Connections and depth that offer more than any limit of the table, whatever the size of
/// requests.
fn shape(block: u32) -> (u32, u32) {
    match block {
        b if b >= 1 << 20 => (4, 2),
        b if b >= 1 << 16 => (4, 8),
        _ => (4, 32),
    }
}

/// All cases of the grid.
pub(super) fn run_grid(run: &mut Run) -> Result<(), BenchError> {
    let cells = cells(run);
    if cells.is_empty() {
        return Ok(());
    }
    let mut volumes = Vec::new();
    for n in 0..cells.len().min(ABREAST) {
        let name = format!("grid{n:02}");
        run.server.make_free(&name, 100)?;
        volumes.push(run.server.volume(&name, FILE)?);
    }
    let loaded = |volume: usize, cell: &Cell| -> Option<Flow> {
        let (connections, depth) = shape(cell.block);
        let client = 10 + volume as u8;
        Some(flow(
            volumes.get(volume)?,
            client,
            cell.kind,
            cell.block,
            connections,
            depth,
        ))
    };
    let mut offers: HashMap<(u32, &str), f64> = HashMap::new();
    let mut groups: Vec<(f64, Vec<Cell>)> = Vec::new();
    for cell in cells {
        let requests = match offers.get(&(cell.block, cell.kind.name())) {
            Some(offer) => *offer,
            None => {
                let flows: Vec<Flow> = loaded(0, &cell).into_iter().collect();
                let offer = measure(run, &flows, 0.3, 0.7)?.rate(0, Unit::Ops);
                offers.insert((cell.block, cell.kind.name()), offer);
                offer
            }
        };
        if requests < cell.requests() * 1.05 {
            let offered = cell.format_value(requests * cell.request());
            run.row(Row {
                case: cell.name.clone(),
                target: format!("{} ± 1 %", cell.format_value(cell.limit)),
                achieved: format!("the load offers {offered} without limits"),
                verdict: Verdict::NotOffered,
                data: json!({"limit": cell.limit, "offered": requests * cell.request()}),
            });
            continue;
        }
        let share = cell.requests() / requests;
        let found = groups
            .iter_mut()
            .find(|(sum, group)| *sum + share <= SHARE && group.len() < volumes.len());
        match found {
            Some((sum, group)) => {
                *sum += share;
                group.push(cell);
            }
            None => groups.push((share, vec![cell])),
        }
    }
    for (_, group) in groups {
        for (volume, cell) in volumes.iter().zip(&group) {
            run.server.limit(&volume.name, cell.given)?;
        }
        let flows: Vec<Flow> = group
            .iter()
            .enumerate()
            .filter_map(|(volume, cell)| loaded(volume, cell))
            .collect();
        // Requests at either end do not count (see `measure::rate`), but timers do, and 20 requests
        // make a rate.
        let slowest = group.iter().map(Cell::requests).fold(f64::MAX, f64::min);
        let seconds = run.timing.least.max(20.0 / slowest).min(30.0);
        let measured = measure(run, &flows, WARM + 2.0 / slowest, seconds)?;
        let beside = Beside {
            abreast: group.len(),
            busy: measured.busy,
        };
        for (n, cell) in group.iter().enumerate() {
            let done = measured.flows.get(n).map_or(&[][..], Vec::as_slice);
            let achieved = measured.rate(n, cell.unit);
            let tenths = windows(done, cell.unit, measured.from, measured.to, SECOND / 10);
            told(
                run,
                cell,
                achieved,
                seconds,
                &tenths,
                beside,
                measured.p99(n),
            );
        }
    }
    Ok(())
}

/// The least deviation of 100 ms windows that whole requests allow.
fn least_variation(cell: &Cell) -> f64 {
    let each = cell.requests() / 10.0;
    let part = each.fract();
    (part * (1.0 - part)).sqrt() / each
}

/// Other activity during a case.
#[derive(Clone, Copy)]
struct Beside {
    /// Cases at once, with this one.
    abreast: usize,
    /// The part of the time that the machine's processors were busy.
    busy: f64,
}

fn told(
    run: &mut Run,
    cell: &Cell,
    achieved: f64,
    seconds: f64,
    tenths: &[u64],
    beside: Beside,
    p99: f64,
) {
    let error = achieved / cell.limit - 1.0;
    let bound = (BURST + cell.request() / cell.limit) / seconds;
    let (smooth, least) = (variation(tenths), least_variation(cell));
    run.row(Row {
        case: cell.name.clone(),
        target: format!("{} ± {:.0} %", cell.format_value(cell.limit), run.timing.margin),
        achieved: format!(
            "{} ({:+.2} %); any {seconds:.0} s within {:.2} %; 100 ms windows σ {:.1} % (whole requests: {:.1} %)",
            cell.format_value(achieved),
            error * 100.0,
            bound * 100.0,
            smooth * 100.0,
            least * 100.0
        ),
        verdict: Verdict::from_met(error.abs() <= 0.01 * run.timing.margin),
        data: json!({"limit": cell.limit, "achieved": achieved, "seconds": seconds, "error": error, "bound": bound,
            "abreast": beside.abreast, "machine_busy": beside.busy, "sigma_100ms": smooth, "sigma_of_whole_requests": least,
            "windows_100ms": tenths, "p99_us": p99}),
    });
    let drawn = match cell.unit {
        Unit::Bytes => cell.block == 65536,
        Unit::Ops => cell.kind == Kind::Read,
    };
    if drawn {
        let (scale, unit) = match cell.unit {
            Unit::Bytes => (10.0 / MIB, "MiB/s"),
            Unit::Ops => (10.0, "/s"),
        };
        run.plots.push(Line {
            name: format!("{}: σ {:.1} %", cell.name, smooth * 100.0),
            unit,
            limit: vec![(0.0, cell.limit * scale / 10.0)],
            values: tenths.iter().map(|sum| *sum as f64 * scale).collect(),
        });
    }
}
