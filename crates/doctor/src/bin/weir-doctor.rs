//! `weir doctor`: examines a Linux client of a file server.

use clap::{CommandFactory as _, Parser as _};
use weir_doctor::args::Cli;

fn main() -> std::process::ExitCode {
    if let Some(code) = weir_help::answer(Cli::command) {
        return code;
    }
    weir_doctor::run(&Cli::parse().doctor)
}
