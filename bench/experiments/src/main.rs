//! Runs an experiment. Exits with 0 if its targets are met, 2 if one is missed, 1 if it could not
//! be run.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weir_experiments::qos::{self, QosArgs};
use weir_experiments::snapmirror::{self, SnapmirrorArgs};
use weir_experiments::snapshots::{self, SnapshotsArgs};

/// Acceptance experiments of Weir.
#[derive(Parser)]
#[command(name = "experiment", version, max_term_width = 100)]
struct Cli {
    /// The experiment.
    #[command(subcommand)]
    experiment: Experiment,
}

/// Experiments.
#[derive(Subcommand)]
enum Experiment {
    /// Measure how exactly limits on throughput hold
    Qos(Box<QosArgs>),
    /// Measure what snapshots cost beside a load
    Snapshots(Box<SnapshotsArgs>),
    /// Repeat a published experiment with SnapMirror's throttles between two servers
    Snapmirror(Box<SnapmirrorArgs>),
}

fn main() -> ExitCode {
    let met = match &Cli::parse().experiment {
        Experiment::Qos(args) => qos::qos(args),
        Experiment::Snapshots(args) => snapshots::snapshots(args),
        Experiment::Snapmirror(args) => snapmirror::snapmirror(args),
    };
    match met {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("experiment: {error}");
            ExitCode::FAILURE
        }
    }
}
