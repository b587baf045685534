//! The command line of the lab.

#![allow(rustdoc::broken_intra_doc_links)] // Brackets in help texts enclose what may be left out.

use super::spec::{Cache, Durability};
use crate::args::{Version, parse_size};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Measures block sizes × read/write mixes × access patterns against targets, as tables.
///
/// A target is nfs://HOST[:PORT][,HOST[:PORT]]…/EXPORT[?version=4.1] (several hosts are addresses
/// of one volume, over which clients are spread) or
/// smb://USER@HOST[:PORT]/SHARE?password-file=FILE (through the own generators), a directory (a
/// mount of anything) or a block device (both through fio). NAME=TARGET names it in the results.
/// Several targets are measured in alternation.
#[derive(Args, Debug, Clone, Default)]
pub struct MatrixArgs {
    /// Targets to measure.
    #[arg(value_name = "[NAME=]TARGET")]
    pub targets: Vec<String>,
    /// A definition that comes with this program (see `weir bench presets list`).
    #[arg(long, short = 'p', conflicts_with = "definition")]
    pub preset: Option<String>,
    /// A definition of your own (TOML; `weir bench presets show NAME` prints one to start
    /// from).
    #[arg(long, value_name = "FILE")]
    pub definition: Option<PathBuf>,
    /// Only tables whose heading contains this, such as "4 KiB random" (repeatable).
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Multiply working sets by this.
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// Working sets of at most this size, such as 2g.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_size: Option<u64>,
    /// Multiply the rates that open loops offer by this.
    #[arg(long, value_name = "FACTOR")]
    pub rate_scale: Option<f64>,
    /// Choose times so that the whole run takes about this long, such as 8m or 90s.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub budget: Option<f64>,
    /// Seconds of each measurement.
    #[arg(long, short = 't', value_name = "SECONDS")]
    pub measure: Option<f64>,
    /// Seconds of load before each measurement, at the least.
    #[arg(long, value_name = "SECONDS")]
    pub warmup: Option<f64>,
    /// Measurements of each point.
    #[arg(long, short = 'r')]
    pub repetitions: Option<u32>,
    /// Clients, instead of the definition's.
    #[arg(long)]
    pub clients: Option<u32>,
    /// Jobs of each client, likewise.
    #[arg(long)]
    pub jobs: Option<u32>,
    /// Operations in flight of each job, likewise.
    #[arg(long)]
    pub depth: Option<u32>,
    /// Connections of each client, likewise (own generator; for a path, mount it so).
    #[arg(long)]
    pub nconnect: Option<u32>,
    /// Protocol version of nfs:// targets that name none: 3, 4.1 or 4.2 [default: 3].
    #[arg(long, value_name = "VERSION", value_parser = Version::parse)]
    pub nfs: Option<Version>,
    /// Slots that each client's session asks for (NFSv4 targets that name none).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub slots: Option<u32>,
    /// Durability that a write asks for, instead of the definition's.
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// State of caches when a measurement begins, instead of the definition's.
    #[arg(long, value_enum)]
    pub cache: Option<Cache>,
    /// A command that makes the target's caches cold, run before each measurement.
    #[arg(long, value_name = "COMMAND")]
    pub cold_command: Option<String>,
    /// The target's own limit, if it has one: results at it are marked.
    #[arg(long, value_name = "MIB_S")]
    pub cap_mib_s: Option<f64>,
    /// Rate in operations a second.
    #[arg(long, value_name = "IOPS")]
    pub cap_iops: Option<f64>,
    /// The target has each stable write on two machines before it replies.
    #[arg(long)]
    pub mirrored: bool,
    /// Threads of the own generator [default: half the cores].
    #[arg(long)]
    pub threads: Option<u32>,
    /// Buffered instead of direct I/O on paths.
    #[arg(long)]
    pub buffered: bool,
    /// A host that runs `fio --server` with the target mounted at the same path
    /// (repeatable; each host is a client).
    #[arg(long, value_name = "HOST[,PORT]")]
    pub host: Vec<String>,
    /// The fio program.
    #[arg(long, default_value = "fio", value_name = "PROGRAM")]
    pub fio: String,
    /// Let a block device be written to: everything on it is lost.
    #[arg(long)]
    pub destroy_device: bool,
    /// Process id of the server on this machine: report its CPU time.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// A name of the run, for comparisons [default: the definition's and the targets'].
    #[arg(long, default_value = "")]
    pub label: String,
    /// Folder for run.json, summary.json, report.html and report.md [default: <date>-<definition>].
    #[arg(long, short = 'o', value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace the reports of an earlier run in that folder.
    #[arg(long)]
    pub force: bool,
    /// Go on with the run in this folder, with its own settings.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["targets", "preset", "definition", "out"])]
    pub resume: Option<PathBuf>,
    /// Leave the working sets on the targets, for the next run.
    #[arg(long)]
    pub keep: bool,
    /// Say what would be measured and how long it would take, and measure nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// No display and no tables; files only.
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// Definitions that come with this program.
#[derive(Args, Debug, Clone)]
pub struct PresetsArgs {
    /// Command.
    #[command(subcommand)]
    pub command: PresetsCommand,
}

/// Commands on presets.
#[derive(Subcommand, Debug, Clone)]
pub enum PresetsCommand {
    /// Name them.
    List,
    /// Print one, as a file to start from.
    Show {
        /// Its name.
        name: String,
    },
}

/// Runs side by side, as ratios with their spread.
#[derive(Args, Debug, Clone)]
pub struct CompareArgs {
    /// Folders of runs, or their run.json; the first is what the others are divided by.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Also beside published figures: netapp-extreme, netapp-flex, netapp-eda, filestore,
    /// datakeeper.
    #[arg(long, value_name = "NAME")]
    pub published: Option<String>,
    /// Scaling of published figures to the run.
    #[arg(long, value_enum, default_value = "none")]
    pub per: super::published::Per,
    /// Write the comparison to this file as well.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write Markdown to this file.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long)]
    pub force: bool,
}

/// Makes the reports of a run again.
#[derive(Args, Debug, Clone)]
pub struct ReportArgs {
    /// Folder of a run, or its run.json.
    pub run: PathBuf,
    /// Write this file [default: print the tables].
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write Markdown to this file.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write the summary that a Weir server shows, RUN/summary.json, to this file.
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long)]
    pub force: bool,
}

/// Reads `90`, `90s`, `8m` or `2h` as seconds.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().last() {
        Some((at, c)) if c.is_ascii_alphabetic() => text.split_at(at),
        _ => (text, "s"),
    };
    let each = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("unknown unit {other:?} (s, m, h)")),
    };
    number
        .trim()
        .parse::<f64>()
        .ok()
        .map(|n| n * each)
        .filter(|s| (1.0..1e7).contains(s))
        .ok_or_else(|| format!("{text:?} is no time of a second or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_seconds("90"), Ok(90.0));
        assert_eq!(parse_seconds("1.5m"), Ok(90.0));
        assert_eq!(parse_seconds("2h"), Ok(7200.0));
        assert!(parse_seconds("2d").is_err());
        assert!(parse_seconds("").is_err());
        assert!(parse_seconds("0").is_err());
    }
}
