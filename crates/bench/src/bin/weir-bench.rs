//! `weir bench`: the load generators.

use clap::{CommandFactory as _, Parser as _};
use weir_bench::Cli;

fn main() -> std::process::ExitCode {
    if let Some(code) = weir_help::answer(Cli::command) {
        return code;
    }
    weir_bench::run(&Cli::parse().bench)
}
