//! `weir csi`: the CSI driver of a Weir server.

use clap::{CommandFactory as _, Parser as _};
use weir_csi::args::Cli;

fn main() -> std::process::ExitCode {
    if let Some(code) = weir_help::answer(Cli::command) {
        return code;
    }
    weir_csi::run(&Cli::parse())
}
