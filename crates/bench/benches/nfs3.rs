//! Cost of the generator itself: its loads over NFSv3 against a server that does nearly nothing,
//! over loopback.
//!
//! `cargo bench -p weir-bench --bench nfs3`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    missing_docs
)]

#[path = "../tests/fake/mod.rs"]
mod fake;

use clap::Parser;
use fake::{Fake, Mischief};
use weir_bench::{BenchArgs, BenchCommand};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() {
    let fake = Fake::start(Mischief::None);
    let server = fake.addr.to_string();
    for load in [
        "null",
        "getattr --files 1000",
        "read -b 4k -s 64m",
        "read -b 8k -s 64m",
        "read -b 64k -d 8 -p sequential -s 64m",
        "read -b 256k -d 8 -p sequential -s 64m",
        "write -b 64k -c 4 -d 8 -p sequential -s 64m",
        "write -b 4k -d 8 --stability file_sync -s 64m",
        "create-write-commit -d 4",
    ] {
        let line = format!("weir-bench nfs3 --server {server} {load} -t 3 --warmup 0.5");
        match Cli::parse_from(line.split_whitespace()).bench.command {
            BenchCommand::Nfs3(args) => {
                println!("{}", weir_bench::run::nfs(&args).unwrap().table())
            }
            _ => unreachable!("the line says nfs3"),
        }
    }
}
