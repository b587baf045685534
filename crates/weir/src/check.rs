//! `weir check`: verifies a data folder that nobody serves.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use weir_base::{BLOCK_SIZE, SystemClock, SystemRng};
use weir_store::{Env, FramePool};
use weir_volume::check::{CheckOptions, check};

use crate::cli::Check;
use crate::{os, storage};

/// Memory for reading: a share of the machine's, within these bounds.
const MEMORY_SHARE: u64 = 8;
const MEMORY_LEAST: u64 = 64 << 20;
const MEMORY_MOST: u64 = 2 << 30;

/// Verifies everything and prints what is wrong, then a summary. Faults make it an error.
pub fn run(args: &Check) -> Result<()> {
    let memory = os::usable_memory().map_or(0, |size| size.0 / MEMORY_SHARE);
    let memory = memory.clamp(MEMORY_LEAST, MEMORY_MOST);
    let env = Env {
        pool: FramePool::new(usize::try_from(memory)? / BLOCK_SIZE).context("reserving memory")?,
        clock: Arc::new(SystemClock::new()),
        rng: Arc::new(SystemRng),
    };
    let location = storage::location(&args.data, args.log_dir.as_deref());
    let report = check(&location, &env, CheckOptions::default(), args.repair)?;
    writeln!(std::io::stdout(), "{report}")?;
    if !report.clean() {
        bail!("{} is not as it should be", args.data.display());
    }
    Ok(())
}
