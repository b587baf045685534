//! The load generator on its own, without the server binary.

use clap::Parser;

/// Load generators for Weir and its peers.
#[derive(Parser)]
#[command(name = "weir-bench", version)]
struct Cli {
    #[command(flatten)]
    bench: weir_bench::BenchArgs,
}

fn main() -> std::process::ExitCode {
    weir_bench::run(&Cli::parse().bench)
}
