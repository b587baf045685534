//! `weir scrub`: asks a running server to scrub.

use std::path::Path;

use anyhow::Result;
use weir_node::control_socket;

use crate::cli::Scrub;

/// Asks the server of a data folder to scrub.
pub fn run(args: &Scrub) -> Result<()> {
    if args.rate.0 == 0 {
        return Err(crate::usage::error("--rate must be greater than 0"));
    }
    let summary = control_socket::ask(Path::new(&args.data), &format!("scrub {}", args.rate.0))?;
    println!("{summary}");
    Ok(())
}
