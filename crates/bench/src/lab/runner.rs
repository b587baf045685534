//! One run: every point of the definition, repetition by repetition, each result on
//! disk as soon as it is there.

use super::cli::MatrixArgs;
use super::drive_nfs::NfsDriver;
use super::drive_smb::SmbDriver;
use super::driver::{Context, Driver};
use super::fio::FioDriver;
use super::outcome::{
    FORMAT, OperationClass, Point, Repetition, Run, Settings, State, TargetFacts,
};
use super::plan;
use super::progress::Display;
use super::scale::Scale;
use super::spec::{Cache, Definition};
use super::target::{Target, TargetKind};
use super::units::{Size, duration, latency, stamp, thousands};
use super::{facts, files, presets, report, summary, text};
use crate::clock;
use crate::error::BenchError;
use crate::interrupt;
use crate::nfs3;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Share of the free space that working sets may take.
const MAX_FILL: f64 = 0.9;

/// End of a run, for the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// Everything was measured and is sound.
    Sound,
    /// Everything was measured, but replies showed faults.
    Faulty,
    /// Something could not be measured.
    Failed,
    /// The user ended it.
    Interrupted,
}

/// `weir bench matrix`: measures, or resumes a run.
pub fn matrix(args: &MatrixArgs) -> Result<RunOutcome, BenchError> {
    let (mut run, folder) = match &args.resume {
        Some(folder) => (resumed(folder)?, folder.clone()),
        None => prepared(args)?,
    };
    if args.dry_run {
        return say(&outline(&run)).map(|()| RunOutcome::Sound);
    }
    let targets = find_targets(&run.settings.targets, &run.settings)?;
    let mut drivers = Vec::new();
    for t in &targets {
        drivers.push(driver(t, &run, args)?);
    }
    if args.resume.is_none() {
        run.targets = targets
            .iter()
            .zip(&drivers)
            .map(|(t, d)| describe(t, d.as_ref()))
            .collect();
        check_space(&targets, &run.definition)?;
        check_blocks(&targets, &run.definition)?;
        check_addresses(&targets, &run.definition)?;
        check_cold(&targets, &run)?;
        files::folder(&folder, args.force)?;
    }
    run.state = State::Running;
    files::save(&folder, &run)?;
    interrupt::watch();
    let ending = measure(&mut run, &mut drivers, &folder, args.quiet);
    interrupt::dismiss();
    if !run.settings.keep {
        clean(&mut drivers, &run, args.quiet);
    }
    run.updated = clock::unix_seconds();
    files::save(&folder, &run)?;
    files::write(&folder.join(files::MARKDOWN), &text::markdown(&run))?;
    files::write(&folder.join(files::HTML), &report::run_page(&run))?;
    files::write(&folder.join(files::SUMMARY), &summary::json(&run))?;
    if !args.quiet {
        say(&text::terminal(&run))?;
        say(&format!("\nwritten to {}\n", folder.display()))?;
    }
    ending
}

fn say(text: &str) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .map_err(BenchError::io("write to the standard output"))
}

/// Reads the preset or the file that defines the run.
fn definition(args: &MatrixArgs) -> Result<Definition, BenchError> {
    match (&args.preset, &args.definition) {
        (Some(name), _) => presets::load(name),
        (None, Some(path)) => {
            let shown = path.display().to_string();
            let text =
                std::fs::read_to_string(path).map_err(BenchError::io(format!("read {shown}")))?;
            Definition::parse(&text, &shown)
        }
        (None, None) => {
            let names: Vec<&str> = presets::PRESETS.iter().map(|(n, _)| *n).collect();
            Err(BenchError::Usage(format!(
                "give --preset ({}) or --definition FILE",
                names.join(", ")
            )))
        }
    }
}

/// Returns the changes that the arguments make to a definition.
fn scale(args: &MatrixArgs) -> Result<Scale, BenchError> {
    if args.scale.is_some_and(|s| !(1e-9..=1e6).contains(&s)) {
        return Err(BenchError::Usage(
            "--scale is a factor greater than 0".into(),
        ));
    }
    if args.rate_scale.is_some_and(|s| !(1e-9..=1e6).contains(&s)) {
        return Err(BenchError::Usage(
            "--rate-scale is a factor greater than 0".into(),
        ));
    }
    Ok(Scale {
        factor: args.scale,
        max_size: args.max_size.map(Size),
        clients: args
            .clients
            .or((!args.host.is_empty()).then_some(args.host.len() as u32)),
        jobs: args.jobs,
        depth: args.depth,
        nconnect: args.nconnect,
        warmup: args.warmup,
        measure: args.measure,
        repetitions: args.repetitions,
        durability: args.durability,
        cache: args.cache,
        rates: args.rate_scale,
        only: args.only.clone(),
        budget: args.budget,
    })
}

/// A new run: its definition, scaled, and its folder.
fn prepared(args: &MatrixArgs) -> Result<(Run, PathBuf), BenchError> {
    if args.targets.is_empty() {
        return Err(BenchError::Usage(
            "what is to be measured? give nfs://HOST/EXPORT, smb://USER@HOST/SHARE, a mounted folder, or a block device"
                .into(),
        ));
    }
    let mut definition = definition(args)?;
    let changes = scale(args)?.apply(&mut definition, args.targets.len())?;
    let now = clock::unix_seconds();
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{}-{}", stamp(now), definition.name)));
    if !args.dry_run {
        for name in files::ALL {
            files::refuse_existing(&folder.join(name), args.force)?;
        }
    }
    let label = if args.label.is_empty() {
        format!("{} of {}", definition.name, args.targets.join(", "))
    } else {
        args.label.clone()
    };
    let run = Run {
        format: FORMAT,
        tool: concat!("weir bench ", env!("CARGO_PKG_VERSION")).into(),
        command: command_line(),
        label,
        started: now,
        updated: now,
        definition,
        changes,
        settings: Settings {
            targets: args.targets.clone(),
            nfs: args.nfs.unwrap_or_default().with_slots(args.slots),
            hosts: args.host.clone(),
            cold_command: args.cold_command.clone(),
            cap_mib_s: args.cap_mib_s,
            cap_iops: args.cap_iops,
            mirrored: args.mirrored,
            threads: args.threads,
            buffered: args.buffered,
            fio: args.fio.clone(),
            server_pid: args.server_pid,
            keep: args.keep,
        },
        machine: facts::machine(),
        cores: facts::cores(),
        memory: facts::memory(),
        targets: Vec::new(),
        cells: Vec::new(),
        state: State::Running,
    };
    Ok((run, folder))
}

/// A run to go on with: what was cut short or failed is measured again.
fn resumed(folder: &Path) -> Result<Run, BenchError> {
    let mut run = files::read(folder)?;
    for cell in &mut run.cells {
        cell.repetitions.retain(|r| !r.cut_short);
        cell.failed = None;
    }
    Ok(run)
}

/// The command line, with the program's name instead of its path.
fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(first) = words.first_mut() {
        if let Some(name) = Path::new(first.as_str()).file_name() {
            *first = name.to_string_lossy().into_owned();
        }
    }
    let quoted: Vec<String> = words
        .into_iter()
        .map(|w| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
            if !w.is_empty() && w.chars().all(plain) {
                w
            } else {
                format!("'{}'", w.replace('\'', "'\\''"))
            }
        })
        .collect();
    quoted.join(" ")
}

fn find_targets(given: &[String], settings: &Settings) -> Result<Vec<Target>, BenchError> {
    let mut targets: Vec<Target> = Vec::new();
    for text in given {
        let t = Target::find(text, settings.nfs)?;
        if targets.iter().any(|o| o.label == t.label) {
            return Err(BenchError::Usage(format!(
                "two targets are called {:?}; name them NAME=TARGET",
                t.label
            )));
        }
        if !settings.hosts.is_empty() && matches!(t.place, TargetKind::Nfs(_) | TargetKind::Smb(_))
        {
            return Err(BenchError::Usage(
                "several hosts run fio: mount the export on each and give the path".into(),
            ));
        }
        targets.push(t);
    }
    Ok(targets)
}

fn driver(target: &Target, run: &Run, args: &MatrixArgs) -> Result<Box<dyn Driver>, BenchError> {
    Ok(match &target.place {
        TargetKind::Nfs(nfs) => Box::new(NfsDriver::new(nfs.clone())),
        TargetKind::Smb(smb) => Box::new(SmbDriver::new((**smb).clone(), &run.definition)?),
        place => Box::new(FioDriver::new(place, run, args.destroy_device)?),
    })
}

fn describe(target: &Target, driver: &dyn Driver) -> TargetFacts {
    let mut facts = TargetFacts {
        label: target.label.clone(),
        given: target.given.clone(),
        protocol: target.protocol(),
        generator: String::new(),
        local: target.local(),
        addresses: target.address_count(),
        facts: target.facts(),
    };
    driver.describe(&mut facts);
    facts
}

/// Checks before hours are spent on filling that the working sets fit.
fn check_space(targets: &[Target], definition: &Definition) -> Result<(), BenchError> {
    let needed = plan::footprint(definition);
    for t in targets {
        if let Some(free) = t.free() {
            if needed.0 as f64 > free.0 as f64 * MAX_FILL {
                return Err(BenchError::Usage(format!(
                    "the working sets take {needed} and {} has {free} free; --max-size SIZE makes them smaller",
                    t.label
                )));
            }
        }
    }
    Ok(())
}

/// Checks that the server moves each block size in one call.
fn check_blocks(targets: &[Target], definition: &Definition) -> Result<(), BenchError> {
    for t in targets {
        let most = match &t.place {
            TargetKind::Nfs(nfs) => nfs.fsinfo.rtmax.min(nfs.fsinfo.wtmax).into(),
            TargetKind::Smb(smb) => smb.most.into(),
            TargetKind::Directory(_) | TargetKind::Device(_) => continue,
        };
        for table in &definition.tables {
            if table.block_size.0 > most {
                return Err(BenchError::Usage(format!(
                    "{} moves at most {} a call; {} blocks cannot be measured there",
                    t.label,
                    Size(most),
                    table.block_size
                )));
            }
        }
    }
    Ok(())
}

/// Checks that there is a client for each address of a target.
fn check_addresses(targets: &[Target], definition: &Definition) -> Result<(), BenchError> {
    for table in &definition.tables {
        let clients = definition.axis(table.clients.as_ref(), definition.load.clients);
        let least = clients.into_iter().min().unwrap_or(1);
        if let Some(t) = targets.iter().find(|t| t.address_count() > least) {
            let addresses = t.address_count();
            return Err(BenchError::Usage(format!(
                "{}: {} has {addresses} addresses, which {least} client(s) do not all reach; --clients {addresses} or more",
                table.heading(),
                t.label
            )));
        }
    }
    Ok(())
}

/// A cache that nothing here can empty is not measured as a cold one.
fn check_cold(targets: &[Target], run: &Run) -> Result<(), BenchError> {
    let d = &run.definition;
    let cold = d.tables.iter().any(|t| d.cache(t) == Cache::Cold);
    match targets.iter().find(|t| t.caches_elsewhere()) {
        Some(t) if cold && run.settings.cold_command.is_none() => Err(BenchError::Usage(format!(
            "{}: the server's caches are cold only after --cold-command (one that drops them or restarts the server)",
            t.label
        ))),
        _ => Ok(()),
    }
}

/// Returns an outline of what would be measured.
fn outline(run: &Run) -> String {
    let d = &run.definition;
    let targets = run.settings.targets.len();
    let points = plan::points(d, targets);
    let mut out = format!(
        "{}: {}\n{} points × {} repetition(s), about {}, working sets of {} a target\n",
        d.name,
        d.title,
        points.len(),
        d.time.repetitions,
        duration(plan::seconds(d, targets)),
        plan::footprint(d)
    );
    for c in &run.changes {
        out.push_str(&format!("  {c}\n"));
    }
    for table in &d.tables {
        let n = d.tables.iter().position(|t| t == table).unwrap_or(0);
        let count = points.iter().filter(|p| p.table == n).count();
        out.push_str(&format!("  {}: {count} points\n", table.heading()));
    }
    out
}

fn measure(
    run: &mut Run,
    drivers: &mut [Box<dyn Driver>],
    folder: &Path,
    quiet: bool,
) -> Result<RunOutcome, BenchError> {
    let definition = run.definition.clone();
    let settings = run.settings.clone();
    let context = Context {
        definition: &definition,
        settings: &settings,
        cores: run.cores,
    };
    let points = plan::points(&definition, drivers.len());
    let repetitions = definition.time.repetitions as usize;
    let left: usize = points
        .iter()
        .map(|p| repetitions.saturating_sub(run.cell(p).map_or(0, |c| c.whole())))
        .sum();
    let each = definition.time.warmup + definition.time.measure + 0.25;
    let display = Display::new(left, each, quiet);
    display.say(&format!(
        "{}: {left} measurements, about {}",
        definition.name,
        duration(left as f64 * each)
    ));
    for repetition in 0..repetitions {
        for point in &points {
            if run.cell(point).map_or(0, |c| c.whole()) > repetition {
                continue;
            }
            if plan::beyond_peak(run, point, repetition) {
                display.skip();
                continue;
            }
            let what = run.describe(point);
            display.begin(&what);
            let Some(driver) = drivers.get_mut(point.target) else {
                continue;
            };
            let result = driver.measure(&context, point, &display);
            let verdict = match result {
                Ok(r) => {
                    let cut = r.cut_short;
                    display.end(&format!("{what}: {}", one_line(&r)));
                    if let Some(cell) = run.cell_mut(point) {
                        cell.repetitions.push(r);
                    }
                    if cut { Some(State::Interrupted) } else { None }
                }
                Err(BenchError::Interrupted) => Some(State::Interrupted),
                Err(e) => {
                    let why = explain(&e);
                    display.end(&format!("{what}: FAILED: {why}"));
                    if let Some(cell) = run.cell_mut(point) {
                        cell.failed = Some(why.clone());
                    }
                    after_failure(run, point, driver.as_ref(), &e, why)
                }
            };
            run.updated = clock::unix_seconds();
            if let Some(state) = verdict {
                run.state = state;
            }
            files::save(folder, run)?;
            if run.state != State::Running {
                return ended(run, &display, folder);
            }
        }
    }
    run.state = State::Complete;
    ended(run, &display, folder)
}

fn ended(run: &Run, display: &Display, folder: &Path) -> Result<RunOutcome, BenchError> {
    let kept = run
        .cells
        .iter()
        .filter(|c| !c.repetitions.is_empty())
        .count();
    let resume = format!(
        "{kept} points are kept; go on with: weir bench matrix --resume {}",
        folder.display()
    );
    Ok(match &run.state {
        State::Interrupted => {
            display.say(&format!("interrupted; {resume}"));
            RunOutcome::Interrupted
        }
        State::Failed(why) => {
            display.say(&format!("{why}; {resume}"));
            RunOutcome::Failed
        }
        _ if run.cells.iter().any(|c| c.failed.is_some()) => RunOutcome::Failed,
        _ if !run.faults().is_empty() => RunOutcome::Faulty,
        _ => RunOutcome::Sound,
    })
}

/// Returns true if the run can go on after a point that failed: not when the target is full or
/// gone.
fn after_failure(
    run: &Run,
    point: &Point,
    driver: &dyn Driver,
    error: &BenchError,
    why: String,
) -> Option<State> {
    let label = run
        .targets
        .get(point.target)
        .map(|t| t.label.clone())
        .unwrap_or_default();
    if is_full(error) {
        return Some(State::Failed(why));
    }
    match driver.alive() {
        Ok(()) => None,
        Err(e) => Some(State::Failed(format!("{label} no longer answers: {e}"))),
    }
}

fn is_full(error: &BenchError) -> bool {
    matches!(error, BenchError::Status(_, nfs3::NOSPC | nfs3::DQUOT))
        || matches!(error, BenchError::Io(_, e) if e.raw_os_error() == Some(libc::ENOSPC))
}

fn explain(error: &BenchError) -> String {
    if is_full(error) {
        format!("the target is full ({error}); --max-size makes working sets smaller")
    } else {
        error.to_string()
    }
}

fn one_line(r: &Repetition) -> String {
    let mut parts = Vec::new();
    for which in OperationClass::ALL {
        if let Some(s) = r.side(which) {
            let p99 = s.quantile(0.99).unwrap_or(0.0);
            parts.push(format!(
                "{} {} MiB/s, {} ops/s, p99 {}",
                which.name().to_lowercase(),
                thousands(s.mib_per_s.round()),
                thousands(s.ops_per_s.round()),
                latency(p99)
            ));
        }
    }
    parts.push(format!("bound by {}", r.bound.name()));
    if r.cut_short {
        parts.push("cut short".into());
    }
    if !r.faults.is_empty() {
        parts.push(format!("FAULTS: {}", r.faults.join("; ")));
    }
    parts.join(" · ")
}

fn clean(drivers: &mut [Box<dyn Driver>], run: &Run, quiet: bool) {
    for (driver, target) in drivers.iter_mut().zip(&run.targets) {
        if let Err(e) = driver.clean() {
            if !quiet {
                let _ = writeln!(
                    std::io::stderr(),
                    "weir bench: the working set on {} could not be removed: {e}",
                    target.label
                );
            }
        }
    }
}
