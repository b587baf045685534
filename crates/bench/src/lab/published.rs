//! The published figures that the presets repeat, in the form they were published in,
//! and a run of one's own beside them.
//!
//! Figures of other machines prove little about one's own. So nothing is scaled unless
//! asked for, and then by what the source states: its number of clients, or the cores of
//! those clients (the servers' are not stated anywhere). Each table says what was done.
//!
//! Sources: NetApp Volumes' performance benchmarks page (six n2-standard-32 clients; a large volume
//! at six addresses),
//! Filestore's performance page, and an article on DataKeeper for Windows (one
//! N2-Standard-8). The tests hold a copy of every figure by document and key.

mod eda;

use super::outcome::{OperationClass, Run};
use super::spec::{Pattern, Unit};
use super::units::{MIB, Size, thousands};
use super::view::{Axis, Column, Row, View, figure, views};
use crate::error::BenchError;
use clap::ValueEnum;
use serde::Serialize;

/// Scaling of published figures.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// Not at all.
    None,
    /// Both divided by their number of clients.
    Client,
    /// The published ones divided by the clients' cores, one's own by this machine's.
    Core,
}

/// A table over the five mixes 100/0, 75/25, 50/50, 25/75 and 0/100.
pub struct Mixes {
    /// Its key in the source list.
    pub key: &'static str,
    /// Set it belongs to.
    pub set: &'static str,
    /// The protocol, NFSv3 or SMB.
    pub protocol: &'static str,
    /// Bytes of a block.
    pub block: u64,
    /// Order of the blocks.
    pub pattern: Pattern,
    /// Reads, in the order of [`MIXES`].
    pub read: [f64; 5],
    /// Writes, in the order of [`MIXES`].
    pub write: [f64; 5],
}

/// The mixes of the columns.
pub const MIXES: [u32; 5] = [100, 75, 50, 25, 0];
/// Clients of the NetApp Volumes runs, and the cores of each.
const NETAPP_CLIENTS: f64 = 6.0;
const NETAPP_CORES: f64 = 32.0;
/// Cores of the DataKeeper article's machine.
const DATAKEEPER_CORES: f64 = 8.0;

const SEQ: Pattern = Pattern::Sequential;
const RAND: Pattern = Pattern::Random;

/// The tables of NetApp Volumes' page.
pub const NETAPP: [Mixes; 10] = [
    mixes(
        "FlexFile.NFS.64K.seq",
        "netapp-flex",
        "NFSv3",
        64,
        SEQ,
        [4304.0, 2963.0, 1345.0, 464.0, 0.0],
        [0.0, 989.0, 1344.0, 1390.0, 1476.0],
    ),
    mixes(
        "FlexFile.NFS.8K.rand",
        "netapp-flex",
        "NFSv3",
        8,
        RAND,
        [126_397.0, 101_740.0, 57_223.0, 23_600.0, 0.0],
        [0.0, 33_916.0, 57_217.0, 70_751.0, 78_582.0],
    ),
    mixes(
        "Extreme.NFS.64K.seq",
        "netapp-extreme",
        "NFSv3",
        64,
        SEQ,
        [5237.0, 2284.0, 1415.0, 610.0, 0.0],
        [0.0, 764.0, 1416.0, 1835.0, 2172.0],
    ),
    mixes(
        "Extreme.NFS.256K.seq",
        "netapp-extreme",
        "NFSv3",
        256,
        SEQ,
        [4928.0, 2522.0, 1638.0, 677.0, 0.0],
        [0.0, 839.0, 1640.0, 2036.0, 2440.0],
    ),
    mixes(
        "Extreme.NFS.4K.rand",
        "netapp-extreme",
        "NFSv3",
        4,
        RAND,
        [380_000.0, 172_000.0, 79_800.0, 32_000.0, 0.0],
        [0.0, 57_300.0, 79_800.0, 96_200.0, 118_000.0],
    ),
    mixes(
        "Extreme.NFS.8K.rand",
        "netapp-extreme",
        "NFSv3",
        8,
        RAND,
        [265_000.0, 132_000.0, 66_900.0, 30_200.0, 0.0],
        [0.0, 44_100.0, 66_900.0, 90_500.0, 104_000.0],
    ),
    mixes(
        "Extreme.SMB.64K.seq",
        "netapp-extreme",
        "SMB",
        64,
        SEQ,
        [5128.0, 2675.0, 1455.0, 559.0, 0.0],
        [0.0, 892.0, 1454.0, 1676.0, 1781.0],
    ),
    mixes(
        "Extreme.SMB.256K.seq",
        "netapp-extreme",
        "SMB",
        256,
        SEQ,
        [4617.0, 2708.0, 1533.0, 584.0, 0.0],
        [0.0, 900.0, 1534.0, 1744.0, 1826.0],
    ),
    mixes(
        "Extreme.SMB.4K.rand",
        "netapp-extreme",
        "SMB",
        4,
        RAND,
        [390_900.0, 164_700.0, 84_200.0, 32_822.0, 0.0],
        [0.0, 54_848.0, 84_200.0, 98_500.0, 109_300.0],
    ),
    mixes(
        "Extreme.SMB.8K.rand",
        "netapp-extreme",
        "SMB",
        8,
        RAND,
        [271_800.0, 135_900.0, 65_700.0, 28_093.0, 0.0],
        [0.0, 45_293.0, 65_900.0, 84_400.0, 85_500.0],
    ),
];

const fn mixes(
    key: &'static str,
    set: &'static str,
    protocol: &'static str,
    kib: u64,
    pattern: Pattern,
    read: [f64; 5],
    write: [f64; 5],
) -> Mixes {
    Mixes {
        key,
        set,
        protocol,
        block: kib << 10,
        pattern,
        read,
        write,
    }
}

/// A row of Filestore's table.
pub struct Tier {
    /// Its key in the source list.
    pub key: &'static str,
    /// Name of the tier, and its capacity.
    pub name: &'static str,
    /// 4 KiB reads and writes a second.
    pub iops: (f64, f64),
    /// MB/s (powers of ten) of 1 MiB reads and writes.
    pub mb_s: (f64, f64),
}

/// Filestore's table; the last row is that of 10 TB of the High Scale tier, which is
/// also the limit of one client.
pub const FILESTORE: [Tier; 6] = [
    tier(
        "BASIC_HDD.1-10TB",
        "BASIC_HDD 1–10 TB",
        (600.0, 1000.0),
        (100.0, 100.0),
    ),
    tier(
        "BASIC_HDD.10-63.9TB",
        "BASIC_HDD 10–63.9 TB",
        (1000.0, 5000.0),
        (180.0, 120.0),
    ),
    tier(
        "BASIC_SSD.2.5-63.9TB",
        "BASIC_SSD 2.5–63.9 TB",
        (60_000.0, 25_000.0),
        (1200.0, 350.0),
    ),
    tier(
        "HIGH_SCALE_SSD.60TB",
        "HIGH_SCALE_SSD 60 TB",
        (90_000.0, 30_000.0),
        (3000.0, 660.0),
    ),
    tier(
        "HIGH_SCALE_SSD.320TB",
        "HIGH_SCALE_SSD 320 TB",
        (480_000.0, 160_000.0),
        (16_000.0, 3520.0),
    ),
    tier(
        "HS.per10TB_and_per_client",
        "High Scale, one client",
        (15_000.0, 5000.0),
        (500.0, 110.0),
    ),
];

const fn tier(key: &'static str, name: &'static str, iops: (f64, f64), mb_s: (f64, f64)) -> Tier {
    Tier {
        key,
        name,
        iops,
        mb_s,
    }
}

/// A row of the DataKeeper article's tables.
pub struct Mirror {
    /// Its key in the source list.
    pub key: &'static str,
    /// Bytes of a block.
    pub block: u64,
    /// MiB/s with the mirror and without (diskspd's "MB" are of two).
    pub mib_s: (f64, f64),
    /// Mean latency in ms, with the mirror and without.
    pub ms: (f64, f64),
    /// Throughput lost in percent, as printed.
    pub rate_overhead: f64,
    /// Latency added in percent, as printed: divided by the mirrored latency.
    pub latency_overhead: f64,
}

/// The DataKeeper article's tables.
pub const DATAKEEPER: [Mirror; 3] = [
    Mirror {
        key: "64k",
        block: 64 << 10,
        mib_s: (240.01, 240.02),
        ms: (6.247, 6.248),
        rate_overhead: 0.0,
        latency_overhead: -0.02,
    },
    Mirror {
        key: "8k",
        block: 8 << 10,
        mib_s: (58.87, 96.8),
        ms: (3.183, 1.935),
        rate_overhead: 39.18,
        latency_overhead: 39.21,
    },
    Mirror {
        key: "4k",
        block: 4 << 10,
        mib_s: (29.34, 37.54),
        ms: (3.194, 2.495),
        rate_overhead: 21.84,
        latency_overhead: 21.88,
    },
];

/// Names of the sets of published figures.
pub const SETS: [&str; 5] = [
    "netapp-extreme",
    "netapp-flex",
    "netapp-eda",
    "filestore",
    "datakeeper",
];

/// A table of published figures and one's own.
pub struct Beside {
    /// Heading of the table.
    pub heading: String,
    /// Text of the corner cell: what the columns are.
    pub corner: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Published figures and the run's, a row each.
    pub rows: Vec<Row>,
}

/// A run beside a published set: the tables, and how they were scaled.
pub fn beside(run: &Run, set: &str, per: Per) -> Result<(Vec<Beside>, String), BenchError> {
    let cores = f64::from(run.cores);
    match set {
        "netapp-extreme" | "netapp-flex" => {
            let note = match per {
                Per::None => format!(
                    "Not scaled: the published figures are of six n2-standard-32 clients (192 cores) and a service of unknown size, this run's of {} client(s) and {cores} cores in all.",
                    run.definition.load.clients
                ),
                Per::Client => format!(
                    "Per client: the published figures divided by 6, this run's by its {} client(s); clients here share {cores} cores.",
                    run.definition.load.clients
                ),
                Per::Core => format!(
                    "Per core of the clients: the published figures divided by 6 × 32, this run's by this machine's {cores} (which ran the server too, if it is local). The service's own cores are not published."
                ),
            };
            Ok((netapp(run, set, per), note))
        }
        "netapp-eda" => match per {
            Per::None => Ok(eda::beside(run)),
            Per::Client | Per::Core => Err(BenchError::Usage(
                "the figure of a large volume names neither clients nor cores to divide by (--per none has it by address)".into(),
            )),
        },
        "filestore" => match per {
            Per::Core => Err(BenchError::Usage(
                "the Filestore page names no number of cores to divide by (--per none or client)".into(),
            )),
            _ => Ok((
                filestore(run, per),
                match per {
                    Per::Client => "Beside the limits of one client of the High Scale tier, which is all that is published per client.".into(),
                    _ => "Not scaled: the published figures are what a whole instance is expected to do; the basic tiers have no limit per client.".into(),
                },
            )),
        },
        "datakeeper" => Ok((
            datakeeper(run, per),
            match per {
                Per::Core => format!(
                    "Per core: the published figures divided by 8 (N2-Standard-8), this run's by {cores}. Overheads are ratios and need no scaling."
                ),
                _ => "Not scaled (both are one client); overheads are ratios and need no scaling. The article's disk was limited to 240 MB/s.".into(),
            },
        )),
        other => Err(BenchError::Usage(format!(
            "no published set {other:?}; there are {}",
            SETS.join(", ")
        ))),
    }
}

/// Returns the tables that the report of a run has beside published figures, and how they were
/// scaled: of a set whose figures are no side of a column, which comparisons alone would show.
pub fn in_report(run: &Run) -> Option<(Vec<Beside>, String)> {
    let set = run.definition.published.as_deref()?;
    (set == "netapp-eda").then(|| eda::beside(run))
}

/// A published figure.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Figure {
    /// Key of the source, name of a tier, or with a mirror or without.
    pub name: String,
    /// The figure, in the set's unit.
    pub value: f64,
}

/// Returns the number of clients and of their cores that made a set's figures, where they are
/// known.
pub fn machines(set: &str) -> (Option<u32>, Option<u32>) {
    match set {
        "netapp-extreme" | "netapp-flex" => (
            Some(NETAPP_CLIENTS as u32),
            Some((NETAPP_CLIENTS * NETAPP_CORES) as u32),
        ),
        "datakeeper" => (Some(1), Some(DATAKEEPER_CORES as u32)),
        _ => (None, None),
    }
}

/// Returns the name of a unit in a set: Filestore's page has megabytes of ten.
pub fn unit(set: &str, unit: Unit) -> &'static str {
    match (set, unit) {
        ("filestore", Unit::Throughput) => "MB/s",
        _ => unit.name(),
    }
}

/// Returns the factor that takes a run's figures to a set's unit.
pub fn factor(set: &str, unit: Unit) -> f64 {
    match (set, unit) {
        ("filestore", Unit::Throughput) => MIB / 1e6,
        _ => 1.0,
    }
}

/// Returns a set's figures for one side of a column, unscaled; none where it has none.
pub fn figures(
    run: &Run,
    set: &str,
    view: &View<'_>,
    column: &Column<'_>,
    which: OperationClass,
) -> Vec<Figure> {
    let Some(table) = run.definition.tables.get(view.table) else {
        return Vec::new();
    };
    let figure = |name: &str, value: f64| Figure {
        name: name.to_owned(),
        value,
    };
    match (set, which) {
        (_, OperationClass::Other) => Vec::new(),
        ("netapp-extreme" | "netapp-flex", _) if view.axis == Axis::Mix => {
            let of_table = mixes_of(run, set, view);
            let found = of_table.and_then(|p| {
                let value = p.figure(which, column.point.read_percent)?;
                (value > 0.0).then(|| figure(p.key, value))
            });
            found.into_iter().collect()
        }
        ("filestore", _) => { FILESTORE.iter() }
            .map(|tier| figure(tier.name, tier.figure(view.unit, which)))
            .collect(),
        ("datakeeper", OperationClass::Write) if view.unit == Unit::Throughput => {
            let row = DATAKEEPER.iter().find(|p| p.block == table.block_size.0);
            // The first target is the baseline, as in the article.
            row.map(|p| match view.target {
                0 => figure("without a mirror", p.mib_s.1),
                _ => figure("mirrored", p.mib_s.0),
            })
            .into_iter()
            .collect()
        }
        _ => Vec::new(),
    }
}

impl Mixes {
    /// The figure of one side at a share of reads.
    fn figure(&self, which: OperationClass, read_percent: u32) -> Option<f64> {
        let at = MIXES.iter().position(|mix| *mix == read_percent)?;
        let side = match which {
            OperationClass::Read => &self.read,
            _ => &self.write,
        };
        side.get(at).copied()
    }
}

impl Tier {
    fn figure(&self, unit: Unit, which: OperationClass) -> f64 {
        match (unit, which) {
            (Unit::Iops, OperationClass::Read) => self.iops.0,
            (Unit::Iops, _) => self.iops.1,
            (Unit::Throughput, OperationClass::Read) => self.mb_s.0,
            (Unit::Throughput, _) => self.mb_s.1,
        }
    }
}

/// Returns the published table of a table's protocol, block size and order.
fn mixes_of(run: &Run, set: &str, view: &View<'_>) -> Option<&'static Mixes> {
    let table = run.definition.tables.get(view.table)?;
    let protocol = if smb(run, view) { "SMB" } else { "NFSv3" };
    NETAPP.iter().find(|p| {
        p.set == set
            && p.protocol == protocol
            && p.block == table.block_size.0
            && p.pattern == table.pattern
    })
}

fn smb(run: &Run, view: &View<'_>) -> bool {
    run.targets
        .get(view.target)
        .is_some_and(|t| t.protocol.starts_with("SMB"))
}

fn netapp(run: &Run, set: &str, per: Per) -> Vec<Beside> {
    let mut out = Vec::new();
    for view in views(run).iter().filter(|v| v.axis == Axis::Mix) {
        let Some(p) = mixes_of(run, set, view) else {
            continue;
        };
        let (theirs, ours) = match per {
            Per::None => (1.0, 1.0),
            Per::Client => (
                NETAPP_CLIENTS,
                f64::from(view.columns.first().map_or(1, |c| c.point.clients)),
            ),
            Per::Core => (NETAPP_CLIENTS * NETAPP_CORES, f64::from(run.cores)),
        };
        let mut rows = Vec::new();
        for which in [OperationClass::Read, OperationClass::Write] {
            let find = |percent: u32| p.figure(which, percent).map(|f| f / theirs);
            let mut published = Vec::new();
            let mut own = Vec::new();
            let mut ratio = Vec::new();
            for c in &view.columns {
                let theirs = find(c.point.read_percent);
                let mine = c.cell.and_then(|cell| {
                    let factor = 1.0 / ours;
                    cell.spread(|r| r.side(which).map(|s| s.value(view.unit) * factor))
                });
                published.push(theirs.map_or_else(|| "–".into(), |v| thousands(rounded(v))));
                own.push(match (&mine, c.cell) {
                    (Some(s), _) => figure(s),
                    (None, Some(cell)) if !cell.repetitions.is_empty() => "0".into(),
                    _ => "–".into(),
                });
                ratio.push(match (theirs, &mine) {
                    (Some(t), Some(m)) if t > 0.0 => format!("{:.3}", m.median / t),
                    _ => String::new(),
                });
            }
            let name = format!("{} {}", which.name(), view.unit.name());
            rows.push(Row {
                label: format!("{name}, published"),
                cells: published,
                main: true,
            });
            rows.push(Row {
                label: format!("{name}, this run"),
                cells: own,
                main: true,
            });
            rows.push(Row {
                label: "ratio".into(),
                cells: ratio,
                main: false,
            });
        }
        out.push(Beside {
            heading: format!("{} beside {}", view.heading, p.key),
            corner: view.axis.name().into(),
            columns: view.columns.iter().map(|c| c.label.clone()).collect(),
            rows,
        });
    }
    out
}

/// Whole numbers from 100 on, as published.
fn rounded(v: f64) -> f64 {
    if v >= 100.0 { v.round() } else { v }
}

fn filestore(run: &Run, per: Per) -> Vec<Beside> {
    let mut rows = Vec::new();
    let tiers: Vec<&Tier> = FILESTORE
        .iter()
        .filter(|t| (t.key == "HS.per10TB_and_per_client") == (per == Per::Client))
        .collect();
    for view in views(run) {
        let Some(table) = run.definition.tables.get(view.table) else {
            continue;
        };
        for column in &view.columns {
            let Some(cell) = column.cell else { continue };
            for which in [OperationClass::Read, OperationClass::Write] {
                let clients = if per == Per::Client {
                    f64::from(column.point.clients)
                } else {
                    1.0
                };
                let of = |t: &Tier| t.figure(view.unit, which);
                let factor = factor("filestore", view.unit) / clients;
                let mine = cell.spread(|r| r.side(which).map(|s| s.value(view.unit) * factor));
                let Some(mine) = mine else { continue };
                let unit = unit("filestore", view.unit);
                let mut cells = vec![figure(&mine)];
                cells.extend(
                    tiers
                        .iter()
                        .map(|t| format!("{} (×{:.3})", thousands(of(t)), mine.median / of(t))),
                );
                rows.push(Row {
                    label: format!(
                        "{}, {} {unit}",
                        table.heading(),
                        which.name().to_lowercase()
                    ),
                    cells,
                    main: true,
                });
            }
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    vec![Beside {
        heading: "Beside Filestore's expected performance".into(),
        corner: "this run as a multiple of it".into(),
        columns: std::iter::once("this run".to_owned())
            .chain(tiers.iter().map(|t| t.name.to_owned()))
            .collect(),
        rows,
    }]
}

fn datakeeper(run: &Run, per: Per) -> Vec<Beside> {
    let (theirs, ours) = match per {
        Per::Core => (DATAKEEPER_CORES, f64::from(run.cores)),
        _ => (1.0, 1.0),
    };
    let mut rows = Vec::new();
    for p in &DATAKEEPER {
        for (label, mib_s, ms, overhead) in [
            ("without a mirror", p.mib_s.1, p.ms.1, None),
            (
                "mirrored",
                p.mib_s.0,
                p.ms.0,
                Some((p.rate_overhead, super::overhead::of_latency(p.ms.1, p.ms.0))),
            ),
        ] {
            let percent = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.2} %"));
            rows.push(Row {
                label: format!("{}, {label}, published", Size(p.block)),
                cells: vec![
                    format!("{:.2}", mib_s / theirs),
                    percent(overhead.map(|o| o.0)),
                    format!("{ms:.3}"),
                    percent(overhead.map(|o| o.1)),
                ],
                main: false,
            });
        }
    }
    for t in super::overhead::tables(run) {
        for mut row in t.rows {
            if let Some(first) = row.cells.first_mut() {
                if let Ok(v) = first.replace(',', "").parse::<f64>() {
                    *first = thousands(v / ours);
                }
            }
            row.label = format!("{}, this run", row.label);
            rows.push(row);
        }
    }
    if run.targets.len() < 2 {
        for view in views(run) {
            for c in &view.columns {
                let Some(cell) = c.cell else { continue };
                let side = |f: fn(&super::outcome::Side) -> f64| {
                    cell.spread(|r| r.write.as_ref().map(f)).map(|s| s.median)
                };
                let (Some(rate), Some(us)) = (side(|s| s.mib_per_s), side(|s| s.mean_us)) else {
                    continue;
                };
                rows.push(Row {
                    label: format!("{}, this run", view.heading),
                    cells: vec![
                        thousands(rate / ours),
                        String::new(),
                        format!("{:.3}", us / 1000.0),
                        String::new(),
                    ],
                    main: true,
                });
            }
        }
    }
    vec![Beside {
        heading: "Beside the DataKeeper article".into(),
        corner: String::new(),
        columns: [
            "MiB/s",
            "throughput lost",
            "mean latency, ms",
            "latency added",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every figure by document and key, with the text it was printed in.
    const FIXTURE: &str = include_str!("../../tests/fixtures/published.tsv");

    fn fixture() -> BTreeMap<(&'static str, &'static str), (f64, &'static str, &'static str)> {
        FIXTURE
            .lines()
            .skip(1)
            .map(|l| {
                let f: Vec<&str> = l.split('\t').collect();
                ((f[0], f[1]), (f[2].parse().unwrap(), f[3], f[4]))
            })
            .collect()
    }

    #[test]
    fn every_published_figure_is_that_of_its_source() {
        let mut left = fixture();
        let mut take = |doc: &'static str, key: &str, value: f64, unit: &str| {
            let found = left
                .iter()
                .find(|((d, k), _)| *d == doc && *k == key)
                .map(|(k, _)| *k);
            let (expected, u, _) = left
                .remove(&found.unwrap_or_else(|| panic!("{doc} {key} is not in the source")))
                .unwrap();
            assert_eq!((value, unit), (expected, u), "{doc} {key}");
        };
        for t in &NETAPP {
            let unit = if t.pattern == Pattern::Sequential {
                "MiB/s"
            } else {
                "IOPS"
            };
            for (i, m) in MIXES.iter().enumerate() {
                let mix = format!("{}.{m}/{}", t.key, 100 - m);
                take("004", &format!("{mix}.read"), t.read[i], unit);
                take("004", &format!("{mix}.write"), t.write[i], unit);
            }
        }
        for t in &FILESTORE {
            take("001", &format!("{}.read_iops", t.key), t.iops.0, "IOPS");
            take("001", &format!("{}.write_iops", t.key), t.iops.1, "IOPS");
            take("001", &format!("{}.read", t.key), t.mb_s.0, "MB/s");
            take("001", &format!("{}.write", t.key), t.mb_s.1, "MB/s");
        }
        for t in &DATAKEEPER {
            for (name, value, unit) in [
                ("mirror", t.mib_s.0, "MiB/s"),
                ("nomirror", t.mib_s.1, "MiB/s"),
                ("tput_overhead", t.rate_overhead, "%"),
                ("lat_mirror", t.ms.0, "ms"),
                ("lat_nomirror", t.ms.1, "ms"),
                ("lat_overhead_as_printed", t.latency_overhead, "%"),
            ] {
                take("002", &format!("{}.{name}", t.key), value, unit);
            }
        }
        let large = eda::EDA;
        take("004", "LargeVolume.EDA.iops", large.iops, "IOPS");
        take(
            "004",
            "LargeVolume.EDA.read_and_write",
            large.gib_s,
            "GiB/s",
        );
        assert!(
            left.is_empty(),
            "figures of the source that are not here: {left:?}"
        );
    }

    /// Our table form prints a published row as it was printed.
    #[test]
    fn rows_are_printed_as_published() {
        let f = fixture();
        for t in &NETAPP {
            for (side, figures) in [("read", &t.read), ("write", &t.write)] {
                let printed: Vec<String> = figures.iter().map(|v| thousands(*v)).collect();
                let (key, (_, _, literal)) = f
                    .iter()
                    .find(|((_, k), _)| k.starts_with(t.key) && k.ends_with(side))
                    .unwrap();
                assert_eq!(printed.join(" "), *literal, "{key:?}");
            }
        }
    }

    /// Little's law holds for the article: 24 in flight.
    #[test]
    fn the_article_is_consistent_with_its_24_in_flight() {
        for t in &DATAKEEPER {
            for (mib, ms) in [(t.mib_s.0, t.ms.0), (t.mib_s.1, t.ms.1)] {
                let l = mib * MIB / t.block as f64 * ms / 1000.0;
                assert!((l - 24.0).abs() < 0.1, "{} {l}", t.key);
            }
        }
    }
}
