//! `weir bench log`: what a device makes of an intent log, placement by placement.
//!
//! A durable write is answered when the log has it, so the log's device sets the latency of stable
//! writes and, with so many of them waiting, their rate. A data sheet does not tell either: it
//! gives bandwidth and the rate of independent writes, and a log is one stream of small durable
//! appends, one in flight. So the table is measured, in each folder that is under consideration,
//! with what a log does and nothing else:
//!
//! * a file whose blocks were all written before, so that no append makes the file system commit
//!   its own journal;
//! * `O_DIRECT | O_DSYNC`, one write in flight;
//! * one appender, which is the latency that a lone client sees; and several that wait at once and
//!   share writes (group commit), which is the rate that many clients get.
//!
//! The placements take turns, round by round: a shared disk is not the same from minute to minute.

pub(crate) mod append;

use crate::args::parse_size;
use crate::error::BenchError;
use crate::interrupt;
use crate::lab::text::aligned;
use crate::lab::units::{latency, thousands};
use crate::lab::view::Row;
use append::{AppendStats, Appender};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use weir_base::Placement;

/// Sizes of the appends, in KiB.
const SIZES: [u64; 5] = [4, 8, 64, 128, 1024];
/// The size by which placements are compared: most records of metadata and small writes are of one
/// block.
const COMPARED: u64 = 4;
/// Two logs that differ by more than this in rate make a mirrored pair noticeably slower than the
/// faster one.
const UNEQUAL: f64 = 0.2;

/// Measures durable appends to folders, as an intent log makes them.
#[derive(Args, Debug, Clone, Serialize)]
pub struct LogArgs {
    /// Folders to try, each with a name of its own if wished
    #[arg(required = true, value_name = "[NAME=]DIR", value_parser = NamedFolder::parse)]
    pub folders: Vec<NamedFolder>,
    /// Appends that wait at once in the second half of the table
    #[arg(long, value_name = "COUNT", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub waiting: u32,
    /// Seconds of each measurement in each round
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds in which the folders take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Bytes of the file that is appended to, again from its start at its end
    #[arg(long, default_value = "256m", value_parser = parse_size)]
    pub size: u64,
    /// Write the result as JSON into this file; - for the standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A folder and what to call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedFolder {
    /// Name in the table and the verdict: the folder's path unless another name was given.
    pub name: String,
    /// Folder of the file that is appended to.
    pub dir: PathBuf,
}

impl NamedFolder {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, dir) = text.split_once('=').unwrap_or((text, text));
        match name.is_empty() || dir.is_empty() {
            true => Err("expected DIR or NAME=DIR".to_owned()),
            false => Ok(Self {
                name: name.to_owned(),
                dir: dir.into(),
            }),
        }
    }
}

/// Parses the seconds of a measurement.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.01..=3600.0).contains(&s) => Ok(s),
        _ => Err("expected 0.01 to 3600 seconds".to_owned()),
    }
}

/// The result: a table a placement.
#[derive(Debug, Serialize)]
pub struct LogReport {
    /// The settings of the run.
    pub settings: LogArgs,
    /// A table a folder, in the order of the command line.
    pub placements: Vec<Table>,
}

/// Measurements in one folder.
#[derive(Debug, Serialize)]
pub struct Table {
    /// As [`NamedFolder::name`].
    pub name: String,
    /// File system and device.
    #[serde(with = "PlacementFields")]
    pub placement: Placement,
    /// By size of the appends.
    pub rows: Vec<Figures>,
}

/// Fields of a [`Placement`] in a report.
#[derive(Serialize)]
#[serde(remote = "Placement")]
struct PlacementFields {
    filesystem: Option<String>,
    disk: Option<String>,
    model: Option<String>,
}

/// Times of appends of one size.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Bytes of an append.
    pub bytes: u64,
    /// One at a time.
    pub alone: AppendStats,
    /// With so many waiting at once.
    pub together: AppendStats,
}

/// Measures the folders in turns: ten measurements a folder and round.
///
/// # Errors
/// What kept a folder from being measured: no room, no direct I/O, a write that failed.
pub fn log(args: &LogArgs) -> Result<LogReport, BenchError> {
    interrupt::watch();
    let mut appenders = Vec::new();
    for named in &args.folders {
        let placement = Placement::read(&named.dir).map_err(BenchError::io("find the device"))?;
        appenders.push((placement, Appender::prepare(&named.dir, args.size)?));
    }
    let span = Duration::from_secs_f64(args.seconds);
    let mut measured: Vec<Vec<[AppendStats; 2]>> = args
        .folders
        .iter()
        .map(|_| SIZES.iter().map(|_| Default::default()).collect())
        .collect();
    for _ in 0..args.rounds {
        for (size, kib) in SIZES.into_iter().enumerate() {
            for ((_, appender), of) in appenders.iter_mut().zip(&mut measured) {
                for (depth, done) in [1, args.waiting].into_iter().zip(&mut of[size]) {
                    if interrupt::requested() {
                        return Err(BenchError::Interrupted);
                    }
                    done.add(&appender.run(kib << 10, depth, span)?)?;
                }
            }
        }
    }
    let tables = args.folders.iter().zip(appenders).zip(measured);
    Ok(LogReport {
        settings: args.clone(),
        placements: tables
            .map(|((named, (placement, _)), of)| Table {
                name: named.name.clone(),
                placement,
                rows: SIZES
                    .into_iter()
                    .zip(of)
                    .map(|(kib, [alone, together])| Figures {
                        bytes: kib << 10,
                        alone,
                        together,
                    })
                    .collect(),
            })
            .collect(),
    })
}

impl LogReport {
    /// The tables and the verdict, for people.
    pub fn table(&self) -> String {
        let waiting = self.settings.waiting;
        let mut out = String::from("durable appends: O_DIRECT|O_DSYNC, one write in flight\n");
        let columns: Vec<String> = ["", &format!("{waiting}: ")]
            .iter()
            .flat_map(|depth| {
                ["a second", "MiB/s", "p50", "p99", "p99.9"].map(|c| format!("{depth}{c}"))
            })
            .collect();
        for of in &self.placements {
            out += &format!("\n{}: {}\n", of.name, of.placement);
            let rows: Vec<Row> = of.rows.iter().map(Figures::row).collect();
            out += &aligned("append", &columns, &rows);
        }
        out.push('\n');
        for line in self.verdict() {
            out += &line;
            out.push('\n');
        }
        out
    }

    /// Returns the placement to choose, and warnings about it.
    fn verdict(&self) -> Vec<String> {
        let rate = |t: &Table| {
            t.rows
                .iter()
                .find(|r| r.bytes == COMPARED << 10)
                .map_or(0.0, |r| r.together.per_second())
        };
        let mut ranked: Vec<(&Table, f64)> = self.placements.iter().map(|t| (t, rate(t))).collect();
        ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let mut lines = Vec::new();
        let waiting = self.settings.waiting;
        if let [(best, most), rest @ ..] = &ranked[..] {
            if !rest.is_empty() {
                lines.push(format!(
                    "{COMPARED} KiB with {waiting} waiting: {} is the fastest, {} appends a second",
                    best.name,
                    thousands(most.round())
                ));
            }
            for (other, its) in rest {
                let part = its / most.max(f64::MIN_POSITIVE);
                lines.push(format!("  {}: {part:.2} of that", other.name));
                if part < 1.0 - UNEQUAL {
                    lines.push(format!(
                        "  a pair with its logs on {} and {} has the pace of {}",
                        best.name, other.name, other.name
                    ));
                }
            }
        }
        for (of, _) in &ranked {
            if let Some(why) = of.placement.ephemeral() {
                lines.push(format!(
                    "{}: {why}: what was acknowledged is gone when the machine stops; no place for the log of a machine \
                     that stands alone",
                    of.name
                ));
            }
        }
        lines
    }
}

impl Figures {
    fn row(&self) -> Row {
        let cells = |a: &AppendStats| {
            let at = |q| latency(a.quantile_us(q));
            [
                thousands(a.per_second().round()),
                thousands((a.per_second() * self.bytes as f64 / 1_048_576.0).round()),
                at(0.5),
                at(0.99),
                at(0.999),
            ]
        };
        Row {
            label: match self.bytes >> 20 {
                0 => format!("{} KiB", self.bytes >> 10),
                mib => format!("{mib} MiB"),
            },
            cells: [cells(&self.alone), cells(&self.together)].concat(),
            main: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(placements: &[(&str, u64, Option<&str>)]) -> LogReport {
        let named = |name: &str| NamedFolder::parse(name).expect("a name");
        LogReport {
            settings: LogArgs {
                folders: placements.iter().map(|(n, _, _)| named(n)).collect(),
                waiting: 24,
                seconds: 1.0,
                rounds: 1,
                size: 1 << 20,
                json: None,
            },
            placements: placements
                .iter()
                .map(|&(name, per_second, model)| Table {
                    name: name.to_owned(),
                    placement: Placement {
                        filesystem: Some("ext4".to_owned()),
                        disk: Some("nvme0n1".to_owned()),
                        model: model.map(str::to_owned),
                    },
                    rows: vec![Figures {
                        bytes: COMPARED << 10,
                        alone: AppendStats::from_latencies(1_000_000_000, &[100_000; 10]),
                        together: AppendStats::from_latencies(
                            1_000_000_000,
                            &vec![50_000; per_second as usize],
                        ),
                    }],
                })
                .collect(),
        }
    }

    #[test]
    fn the_fastest_is_named_and_a_slower_partner_sets_the_pace() {
        let text = report(&[
            ("boot", 1000, None),
            ("local", 5000, None),
            ("other", 4500, None),
        ])
        .table();
        assert!(
            text.contains("local is the fastest, 5,000 appends a second"),
            "{text}"
        );
        assert!(
            text.contains("  other: 0.90 of that\n  boot: 0.20 of that\n"),
            "{text}"
        );
        assert!(
            text.contains("on local and boot has the pace of boot"),
            "{text}"
        );
        assert!(!text.contains("on local and other"), "{text}");
    }

    #[test]
    fn a_disk_that_goes_with_its_machine_is_named() {
        let model = Some("Amazon EC2 NVMe Instance Storage");
        let text = report(&[
            ("a", 10, model),
            ("b", 10, Some("Amazon Elastic Block Store")),
        ])
        .table();
        let warned: Vec<&str> = text.lines().filter(|l| l.contains("gone when")).collect();
        assert_eq!(warned.len(), 1, "{text}");
        assert!(warned[0].starts_with("a: "), "{text}");
    }

    #[test]
    fn folders_are_given_with_names_or_without() {
        let parsed = |text| NamedFolder::parse(text).map(|n| (n.name, n.dir.display().to_string()));
        assert_eq!(parsed("/a"), Ok(("/a".into(), "/a".into())));
        assert_eq!(parsed("Boot=/a=b"), Ok(("Boot".into(), "/a=b".into())));
        assert!(parsed("=/a").is_err() && parsed("a=").is_err());
    }

    #[test]
    fn a_folder_is_measured() {
        let dir = std::env::current_dir().expect("a current folder");
        let args = LogArgs {
            folders: vec![NamedFolder::parse(&format!("here={}", dir.display())).expect("a name")],
            waiting: 3,
            seconds: 0.01,
            rounds: 2,
            size: 4 << 20,
            json: None,
        };
        let before = std::fs::read_dir(&dir).expect("listed").count();
        let report = log(&args).expect("measured");
        let rows = &report.placements[0].rows;
        assert_eq!(rows.len(), SIZES.len());
        for row in rows {
            assert!(row.alone.per_second() > 0.0 && row.together.per_second() > 0.0);
            assert!(row.alone.quantile_us(0.5) > 0.0);
        }
        assert_eq!(
            std::fs::read_dir(&dir).expect("listed").count(),
            before,
            "a file was left behind"
        );
    }
}
