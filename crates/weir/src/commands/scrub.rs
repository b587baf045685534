//! `weir scrub`: asks a running server to scrub.

use anyhow::Result;

use crate::cli::Scrub;
use crate::cli::progress::Task;

/// Asks the server of a data folder to scrub.
pub fn run(args: &Scrub) -> Result<()> {
    if args.rate.0 == 0 {
        return Err(crate::cli::usage::error("--rate must be greater than 0"));
    }
    let _task = Task::begin(
        &format!("scrubbing {}", args.data.display()),
        "the scrub in the server ends within seconds; nothing was changed",
    )?;
    args.output
        .send_request(&args.data, &format!("scrub {}", args.rate.0))
}
