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
mod scale;
pub mod server;
mod turns;

use clap::Args;
use serde::Serialize;
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

/// Duration of cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) quick: bool,
    /// Least seconds of a case.
    pub(crate) least: f64,
    /// Factor of tolerances.
    pub(crate) margin: f64,
}

/// Verdict on a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The target is met.
    Met,
    /// The target is not met.
    Missed,
    /// The load does not offer what it takes.
    NotOffered,
    /// There is no target: a figure to know.
    Stated,
}

impl Verdict {
    /// Returns the verdict on a case that has a target.
    pub(crate) fn of(met: bool) -> Verdict {
        match met {
            true => Verdict::Met,
            false => Verdict::Missed,
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// The target, in words.
    pub target: String,
    /// Measured value, in words.
    pub achieved: String,
    /// Verdict on it.
    pub verdict: Verdict,
    /// The numbers behind it, for the JSON.
    pub data: serde_json::Value,
}

/// `--only TEXT`: which cases are run. It remembers the names of all that it was asked about, for
/// the message that none is meant.
#[derive(Debug, Default)]
pub(crate) struct Only {
    text: String,
    names: std::cell::RefCell<Vec<String>>,
}

impl Only {
    pub(crate) fn new(text: &str) -> Only {
        Only {
            text: text.to_owned(),
            names: std::cell::RefCell::default(),
        }
    }

    /// Returns true if a case is one of them.
    pub(crate) fn wants(&self, case: &str) -> bool {
        let mut names = self.names.borrow_mut();
        if !names.iter().any(|name| name == case) {
            names.push(case.to_owned());
        }
        case.contains(&self.text)
    }

    /// An error if nothing was run: a run without cases would pass.
    pub(crate) fn found(&self, nothing: bool) -> Result<(), BenchError> {
        let names = self.names.borrow();
        match nothing {
            true => Err(BenchError::Usage(format!(
                "--only '{}' leaves no case to run; there are: {}",
                self.text,
                names.join(", ")
            ))),
            false => Ok(()),
        }
    }
}

/// A run under way.
pub(crate) struct Run {
    pub(crate) server: Server,
    pub(crate) timing: Timing,
    pub(crate) rows: Vec<Row>,
    pub(crate) plots: Vec<plot::Line>,
    pub(crate) changes: Vec<plot::Line>,
    asked: Only,
}

impl Run {
    /// Returns true if a case was asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.asked.wants(case)
    }

    pub(crate) fn row(&mut self, row: Row) {
        let verdict = verdict_name(row.verdict);
        // The reader of a pipe may stop reading.
        let _ = writeln!(
            std::io::stdout(),
            "{verdict:<12} {:<58} {:<34} {}",
            row.case,
            row.target,
            row.achieved
        );
        self.rows.push(row);
    }
}

pub(crate) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed => "MISSED",
        Verdict::NotOffered => "not offered",
        Verdict::Stated => "-",
    }
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
    cases::all(&mut run)?;
    scale::all(&mut run)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_no_case_is_an_error_with_the_names() {
        let only = Only::new("chang");
        assert!(only.wants("change") && !only.wants("weights"));
        assert!(only.found(false).is_ok());
        let only = Only::new("chanqe");
        assert!(!only.wants("change") && !only.wants("weights"));
        let error = only.found(true).unwrap_err().to_string();
        assert!(
            error.contains("chanqe") && error.contains("change, weights"),
            "{error}"
        );
    }
}
