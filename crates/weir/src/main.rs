//! Weir: the one binary.
//!
//! Reading order: `serve` (what runs, in which order), `net` (connections), `storage` (the
//! engine behind them).

mod announce;
mod callbacks;
mod cli;
mod exports;
mod logging;
mod net;
mod os;
mod rpcbind;
mod serve;
mod size;
mod state;
mod storage;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    logging::start();
    let outcome = match &cli.command {
        cli::Command::Serve(args) => {
            logging::abort_on_panic();
            serve::run(args)
        }
        cli::Command::Bench(args) => return weir_bench::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error:#}");
            ExitCode::FAILURE
        }
    }
}
