//! `bench/experiment snapmirror`: a published experiment with SnapMirror's throttles, repeated.
//!
//! The experiment (Classmethod, "SnapMirrorの帯域制御をやってみる", 4 May 2023, on Amazon FSx for NetApp
//! ONTAP) writes 512 MiB anew and transfers them: without a limit, under a relationship's throttle
//! of 8 MB/s, with that changed to 4 on the way, under a global throttle of 4 with one transfer and
//! with two, and with the global one lifted on the way. Its rates are size by duration, and miss
//! the limits by 7 to 27 %. That is not the shaper's doing but time before and after the data: so
//! here setup, data and finalizing are measured apart, and a limit is held against the data phase,
//! in bytes on the wire, which is what it counts.
//!
//! Source and destination are two processes of `weir serve` on loopback, paired over TLS. Beside
//! the experiment's cases: speed without a limit, held against a plain copy through the same TLS
//! ([`copy`]), how soon a global limit that changes acts, a restart from a checkpoint under another
//! throttle, and an update of a hundred files among a million.

mod cases;
mod copy;
mod files;
mod pair;
mod report;

use crate::qos::plot::Line as Plot;
use crate::qos::server;
use crate::qos::{Only, Verdict, verdict_name};
use clap::Args;
use pair::{Pair, Transfer};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use weir_bench::error::BenchError;

const MIB: f64 = 1_048_576.0;

/// Do SnapMirror's throttles hold, and how fast is it without?
#[derive(Args, Debug, Clone)]
pub struct SnapmirrorArgs {
    /// The servers' program [default: weir beside this program, or else in PATH]
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Folder of the servers' data while the run lasts
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub scratch: PathBuf,
    /// Write the table, the raw data and the plots into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Memory of each server
    #[arg(long, default_value = "1G")]
    pub memory: String,
    /// Only cases whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// New data of each transfer; the experiment has 512 MiB, which takes some ten minutes in all
    #[arg(long, default_value = "512m", value_parser = weir_bench::args::parse_size)]
    pub size: u64,
    /// Files of the volume of which a hundred are changed
    #[arg(long, default_value_t = 1_000_000)]
    pub files: u64,
    /// 8 MiB a transfer, 2,000 files, wide margins: whether it works at all
    #[arg(long)]
    pub quick: bool,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
struct Line {
    /// Name of the case.
    case: String,
    /// Figures that the experiment printed: size, duration, MB/s of the two.
    seed: String,
    /// The transfers of the case.
    transfers: Vec<Transfer>,
    /// The target, in words.
    target: String,
    /// The result, in words.
    achieved: String,
    /// Verdict on it.
    verdict: Verdict,
    /// The numbers behind it, for the JSON.
    data: serde_json::Value,
}

/// A run under way.
struct Run {
    pair: Pair,
    scratch: PathBuf,
    size: u64,
    files: u64,
    /// Factor of tolerances.
    margin: f64,
    rounds: usize,
    /// Seconds between writing and transferring.
    pause: f64,
    lines: Vec<Line>,
    plots: Vec<Plot>,
    asked: Only,
    snapshots: u32,
}

impl Run {
    /// Returns true if a case was asked for.
    fn wants(&self, case: &str) -> bool {
        self.asked.wants(case)
    }

    fn line(&mut self, line: Line) {
        // The reader of a pipe may stop reading.
        let _ = writeln!(
            std::io::stdout(),
            "{:<8} {:<46} {:<26} {}",
            verdict_name(line.verdict),
            line.case,
            line.target,
            line.achieved
        );
        for transfer in &line.transfers {
            let _ = writeln!(std::io::stdout(), "         {}", report::words(transfer));
        }
        self.lines.push(line);
    }
}

/// Runs it. `false` if a target was missed.
///
/// # Errors
/// What kept it from being measured.
pub fn snapmirror(args: &SnapmirrorArgs) -> Result<bool, BenchError> {
    let weir = server::program(args.weir.as_deref());
    let mut run = Run {
        pair: Pair::start(&weir, &args.scratch, &args.memory)?,
        scratch: args.scratch.clone(),
        size: if args.quick { 8 << 20 } else { args.size },
        files: if args.quick { 2000 } else { args.files },
        margin: if args.quick { 10.0 } else { 1.0 },
        rounds: if args.quick { 1 } else { 3 },
        pause: if args.quick { 0.0 } else { 1.0 },
        lines: Vec::new(),
        plots: Vec::new(),
        asked: Only::new(&args.only),
        snapshots: 0,
    };
    let facts = weir_bench::lab::facts::machine();
    cases::run_cases(&mut run)?;
    if run.wants("files") {
        files::update(&mut run)?;
    }
    run.asked.found(run.lines.is_empty())?;
    if let Some(out) = &args.out {
        report::write(&run, args, &facts, out)?;
    }
    let missed = |line: &&Line| line.verdict == Verdict::Missed;
    let missed = run.lines.iter().filter(missed).count();
    let _ = writeln!(std::io::stdout(), "{missed} missed, of {}", run.lines.len());
    Ok(missed == 0)
}
