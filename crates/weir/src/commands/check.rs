//! `weir check`: verifies a data folder that no server has open.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use weir_base::{BLOCK_SIZE, SystemClock, SystemRng, VolumeId};
use weir_control::Inspection;
use weir_store::{Env, FramePool};
use weir_volume::check::{CheckOptions, Fault, Report, check};

use crate::aggregate::place::AggregatePlace;
use crate::cli::Check;
use crate::cli::progress::Task;
use crate::control::plane;
use weir_node::os;

/// Memory for reading: a share of the machine's, within these bounds.
const MEMORY_SHARE: u64 = 8;
const MEMORY_LEAST: u64 = 64 << 20;
const MEMORY_MOST: u64 = 2 << 30;

/// Returns the environment of tools that open a data folder by themselves: a pool of frames, the
/// clock and random numbers.
pub fn environment() -> Result<Env> {
    let memory = os::usable_memory().map_or(0, |size| size.0 / MEMORY_SHARE);
    let memory = memory.clamp(MEMORY_LEAST, MEMORY_MOST);
    Ok(Env {
        pool: FramePool::new(usize::try_from(memory)? / BLOCK_SIZE).context("reserving memory")?,
        clock: Arc::new(SystemClock::new()),
        rng: Arc::new(SystemRng),
    })
}

/// Verifies everything and prints what is wrong, then a summary. Faults make it an error.
pub fn run(args: &Check) -> Result<()> {
    let env = environment()?;
    let place = AggregatePlace::find(&args.rados, &args.data, args.catalog.as_deref())?;
    let taken = place.take("check")?;
    let location = taken.location(args.log_dir.as_deref());
    let left = match args.repair {
        true => "run it again; a repair that was cut short loses nothing",
        false => "nothing was changed",
    };
    let options = CheckOptions::default();
    let progress = Arc::clone(&options.progress);
    let what = format!("checking {}", args.data.display());
    let task = Task::of_blocks(&what, left, move || progress.blocks())?;
    let report = check(&location, &env, &options, args.repair)?;
    drop(task);
    if !args.output.json {
        writeln!(std::io::stdout(), "{report}")?;
    }
    let catalog = catalog(&place.catalog_url()?, &report)?;
    if args.output.json {
        args.output.print(&data(&report, &catalog), "")?;
    } else {
        show(&catalog)?;
    }
    if !report.clean() || !catalog.faults.is_empty() {
        bail!("{} is not as it should be", args.data.display());
    }
    Ok(())
}

/// Returns the findings for programs.
fn data(report: &Report, catalog: &Inspection) -> Value {
    let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    json!({
        "clean": report.clean() && catalog.faults.is_empty(),
        "aggregate": report.aggregate,
        "checkpoint": report.generation,
        "volumes": report.volumes,
        "snapshots": report.snapshots,
        "inodes": report.inodes,
        "entries": report.entries,
        "treeNodes": report.nodes,
        "dataBlocks": report.blocks,
        "logRecords": report.log_records,
        "faults": faults,
        "repaired": report.repaired,
        "catalog": {
            "volumes": catalog.volumes,
            "instances": catalog.instances,
            "snapshots": catalog.snapshots,
            "damaged": catalog.damaged,
            "faults": catalog.faults,
        },
    })
}

/// Checks the catalog against the volumes that the aggregate has.
fn catalog(url: &str, report: &Report) -> Result<Inspection> {
    let runtime = plane::event_loop()?;
    let looking = weir_control::inspect(url, &report.aggregate, &report.names);
    let mut seen = runtime.block_on(looking);
    let unread = |fault: &Fault| {
        matches!(
            fault,
            Fault::Node {
                tree: VolumeId(0),
                ..
            }
        )
    };
    if report.faults.iter().any(unread) {
        // The volumes of a damaged aggregate are not known, so rows of the catalog for others are
        // no faults.
        seen.faults.retain(|_| seen.damaged);
    }
    Ok(seen)
}

/// Prints what is wrong with the catalog, then a summary.
fn show(seen: &Inspection) -> Result<()> {
    let mut out = std::io::stdout();
    for fault in &seen.faults {
        writeln!(out, "fault: catalog: {fault}")?;
    }
    let verdict = match seen.faults.len() {
        0 => "clean".to_owned(),
        1 => "1 fault".to_owned(),
        n => format!("{n} faults"),
    };
    let Inspection {
        volumes,
        instances,
        snapshots,
        ..
    } = seen;
    writeln!(
        out,
        "catalog: {volumes} volumes, {instances} instances, {snapshots} snapshots: {verdict}"
    )?;
    Ok(())
}
