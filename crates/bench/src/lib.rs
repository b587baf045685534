//! Load generators for Weir and its peers.
//!
//! The NFSv3 generator is a client of its own, from XDR up: it shares no code with
//! the server, so each checks the other's reading of the standards. It is built to
//! cost little beside the server that it measures on the same machine; how, is said
//! in [`engine`].
//!
//! | Module | Responsibility |
//! |---|---|
//! | [`command`], [`args`] | command line, settings of loads |
//! | [`xdr`], [`rpc`], [`nfs3`] | encoding of calls, decoding of replies |
//! | [`control`], [`working_set`] | mount; making, filling and removing the working set |
//! | [`mod@load`], [`eda_mix`] | which call comes next, and whether its reply is right |
//! | [`arrivals`] | when it comes, in an open loop |
//! | [`outbox`], [`engine`] | sending and receiving, many calls at a time |
//! | [`pattern`] | contents that prove where they belong |
//! | [`counters`], [`figures`], [`report`] | counting and reporting |
//! | [`machine`], [`clock`] | processor time, memory, time |
//! | [`mod@run`], [`phases`], [`tcp`] | the two measurements |
//! | [`smb`] | the SMB generator, a client of its own as well |
//! | [`log`] | durable appends to a device, without a server |
//! | [`delay_proxy`] | a link between two machines on one |
//! | [`lab`] | matrices of measurements, definitions, reports, comparisons |

pub mod args;
pub mod arrivals;
pub mod ceph;
pub mod clock;
pub mod command;
pub mod control;
pub mod counters;
pub mod delay_proxy;
pub mod eda_mix;
pub mod engine;
pub mod error;
pub mod figures;
pub mod interrupt;
pub mod lab;
pub mod load;
pub mod log;
pub mod machine;
pub mod nfs3;
pub mod nfs4;
pub mod outbox;
pub mod pattern;
pub mod phases;
pub mod report;
pub mod rpc;
pub mod run;
pub mod smb;
pub mod tcp;
pub mod wire;
pub mod working_set;
pub mod xdr;

pub use command::{BenchArgs, BenchCommand, Cli};

use lab::runner::RunOutcome;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs what the command line asks for and prints the result. The exit code is 0
/// for a sound run, 1 when it could not be done or the protocol was violated, 2 when it
/// was done but its replies show faults, and 130 when the user ended it.
pub fn run(args: &BenchArgs) -> ExitCode {
    let result = match &args.command {
        BenchCommand::Nfs3(a) => load(&a.settled()),
        BenchCommand::Nfs4(a) => load(&a.settings()),
        BenchCommand::Smb(a) => smb::run(a).and_then(|report| {
            show(a.json.as_deref(), &report, &report.table())?;
            Ok(ending(&report.figures.faults))
        }),
        BenchCommand::Tcp(a) => tcp::tcp(a).and_then(|report| {
            show(a.json.as_deref(), &report, &report.table())?;
            Ok(RunOutcome::Sound)
        }),
        BenchCommand::Log(a) => log::log(a).and_then(|report| {
            show(a.json.as_deref(), &report, &report.table())?;
            Ok(RunOutcome::Sound)
        }),
        BenchCommand::Ceph(a) => ceph::ceph(a).and_then(|report| {
            show(a.json.as_deref(), &report, &report.table())?;
            Ok(RunOutcome::Sound)
        }),
        BenchCommand::Relay(a) => delay_proxy::relay(a).map(|()| RunOutcome::Sound),
        BenchCommand::Matrix(a) => lab::runner::matrix(a),
        BenchCommand::Presets(a) => lab::presets_text(a).and_then(|t| print(&t)),
        BenchCommand::Compare(a) => lab::compare::compare(a).and_then(|t| print(&t)),
        BenchCommand::Report(a) => lab::report_again(a).and_then(|t| print(&t)),
    };
    match result {
        Ok(RunOutcome::Sound) => ExitCode::SUCCESS,
        Ok(RunOutcome::Failed) => ExitCode::FAILURE,
        Ok(RunOutcome::Faulty) => ExitCode::from(2),
        Ok(RunOutcome::Interrupted) => ExitCode::from(130),
        Err(e) => {
            // Nothing is left to do when even this cannot be written.
            let _ = writeln!(std::io::stderr(), "weir bench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn load(args: &args::NfsArgs) -> Result<RunOutcome, error::BenchError> {
    let report = run::nfs(args)?;
    show(args.json.as_deref(), &report, &report.table())?;
    Ok(ending(&report.figures.faults))
}

fn ending<T>(faults: &[T]) -> RunOutcome {
    if faults.is_empty() {
        RunOutcome::Sound
    } else {
        RunOutcome::Faulty
    }
}

fn print(text: &str) -> Result<RunOutcome, error::BenchError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()) {
        // The reader of a pipe may stop reading.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error::BenchError::io("write to the standard output")(e))
        }
        _ => Ok(RunOutcome::Sound),
    }
}

fn show<T: serde::Serialize>(
    json: Option<&Path>,
    report: &T,
    table: &str,
) -> Result<(), error::BenchError> {
    let mut stdout = std::io::stdout().lock();
    let failed = error::BenchError::io("write the result");
    let text = |e: serde_json::Error| std::io::Error::other(e);
    let done = match json {
        Some(path) if path == Path::new("-") => serde_json::to_string_pretty(report)
            .map_err(text)
            .and_then(|s| writeln!(stdout, "{s}")),
        Some(path) => serde_json::to_string_pretty(report)
            .map_err(text)
            .and_then(|s| std::fs::write(path, s))
            .and_then(|()| stdout.write_all(table.as_bytes())),
        None => stdout.write_all(table.as_bytes()),
    };
    done.map_err(failed)
}
