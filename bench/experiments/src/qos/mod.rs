//! `bench/experiment qos`: do limits hold?
//!
//! Each case sets limits, starts a load that offers more, and reports what was admitted: the
//! target, the achieved rate, the verdict. The load is this crate's own client ([`load`]); clients
//! are distinguished by address, so each has one of its own on the loopback network. Limits are set
//! by the product's API.
//!
//! **How long.** No shaper that does not split requests is more exact over a time T than
//! `(burst + request) / (rate × T)`. A case of the grid ([`grid`]) runs for [`Timing::least`] and
//! until there are requests enough to make a rate; `--full` makes it 30 s. Where the load offers
//! less than 1.05 times the limit on this machine, as a short run without limits measures, there is
//! nothing to hold, and the case says so.

mod cases;
mod grid;
pub mod load;
pub mod measure;
mod neighbour;
mod overhead;
pub mod plot;
mod run;
mod scale;
pub mod server;
mod turns;

use clap::Args;
pub(crate) use run::{Only, Run, Timing, verdict_name};
pub use run::{Row, Verdict};
use server::Server;
use std::io::Write;
use std::path::PathBuf;
use weir_bench::error::BenchError;

/// Do limits hold?
#[derive(Args, Debug, Clone)]
pub struct QosArgs {
    /// The server's program [default: weir beside this program, or else in PATH]
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Folder of the server's data while the run lasts
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub scratch: PathBuf,
    /// Write the table, the raw data and the plots into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Memory of the server
    #[arg(long, default_value = "2G")]
    pub memory: String,
    /// Only cases whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// A few short cases with wide margins
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// 30 s a case of rates and operations; some twenty minutes in all
    #[arg(long)]
    pub full: bool,
}

/// Runs all cases. `false` if a target was missed.
pub fn qos(args: &QosArgs) -> Result<bool, BenchError> {
    let weir = server::program(args.weir.as_deref());
    let timing = match (args.quick, args.full) {
        (true, _) => Timing {
            quick: true,
            least: 1.0,
            margin: 10.0,
        },
        (_, full) => Timing {
            quick: false,
            least: if full { 30.0 } else { 3.0 },
            margin: 1.0,
        },
    };
    let mut run = Run {
        server: Server::start(&weir, &args.scratch, &args.memory)?,
        timing,
        rows: Vec::new(),
        plots: Vec::new(),
        changes: Vec::new(),
        asked: Only::new(&args.only),
    };
    cases::run_cases(&mut run)?;
    scale::run_cases(&mut run)?;
    run.asked.found(run.rows.is_empty())?;
    if let Some(out) = &args.out {
        write(&run, out)?;
    }
    let missed = run
        .rows
        .iter()
        .filter(|row| row.verdict == Verdict::Missed)
        .count();
    let met = run
        .rows
        .iter()
        .filter(|row| row.verdict == Verdict::Met)
        .count();
    let _ = writeln!(
        std::io::stdout(),
        "{met} met, {missed} missed, of {}",
        run.rows.len()
    );
    Ok(missed == 0)
}

fn write(run: &Run, out: &std::path::Path) -> Result<(), BenchError> {
    let failed = || BenchError::io(format!("write to {}", out.display()));
    std::fs::create_dir_all(out).map_err(failed())?;
    let text = serde_json::to_string_pretty(&run.rows).unwrap_or_default();
    std::fs::write(out.join("qos.json"), text).map_err(failed())?;
    let mut table = format!(
        "Burst of each limit: {:.0} ms of it.\n\n| Case | Target | Achieved | |\n|---|---|---|---|\n",
        cases::BURST * 1000.0
    );
    for row in &run.rows {
        let verdict = verdict_name(row.verdict);
        table += &format!(
            "| {} | {} | {} | {verdict} |\n",
            row.case, row.target, row.achieved
        );
    }
    std::fs::write(out.join("table.md"), table).map_err(failed())?;
    for (name, title, step, lines) in [
        (
            "smoothness.svg",
            "Steady limits, windows of 100 ms",
            0.1,
            &run.plots,
        ),
        (
            "changes.svg",
            "A limit changed under load, windows of 50 ms",
            0.05,
            &run.changes,
        ),
    ] {
        if !lines.is_empty() {
            std::fs::write(out.join(name), plot::svg(title, step, lines)).map_err(failed())?;
        }
    }
    Ok(())
}
