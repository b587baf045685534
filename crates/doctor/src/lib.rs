//! `weir doctor`: what a Linux client of a file server is set to, what of it costs speed or safety,
//! and the exact fix.
//!
//! A client's throughput is its concurrency times its block size, divided by the latency (Little's
//! law), so most findings come down to one of three questions: how many requests may be under way
//! (connections × slots), how much does each move (rsize, wsize, read-ahead), and does anything
//! make them wait without need (synchronous mounts, retransmissions, a shared connection). The
//! kernel says all of it in files:
//!
//! - [`source`]: the files, read from `/` or from a folder that `--capture` filled on another
//!   machine;
//! - [`mountstats`], [`mountinfo`], [`settings`]: their formats, without judgement;
//! - [`facts`]: what they say together, a record a mount;
//! - [`rules`]: one function a question; each takes the facts and returns findings;
//! - [`finding`]: what was seen, why it matters, the fix, the gain to expect;
//! - [`plan`], [`draft`]: all fixes together, each file once, and the commands in an order that
//!   works;
//! - [`fix`]: showing and writing the files of the plan;
//! - [`ping`]: latency of each address of a server, to find the nearest zone.
//!
//! Because rules see facts and never files, each is tested against captured files of several
//! kernels. Plans are tested on copies of what distributions install, by running every printed
//! command and examining the result again.

pub mod args;
pub mod draft;
pub mod facts;
pub mod finding;
pub mod fix;
pub mod mountinfo;
pub mod mountstats;
pub mod ping;
pub mod plan;
pub mod report;
pub mod rules;
pub mod settings;
pub mod source;

use std::io::Write;
use std::process::ExitCode;

use args::{Args, Command};
use finding::Severity;

/// Runs the command; the exit code is 1 where something was found that is worse than a hint, 2 on
/// failure.
pub fn run(args: &Args) -> ExitCode {
    let outcome = match &args.command {
        Some(Command::Ping(ping)) => ping::run(ping).map(|()| ExitCode::SUCCESS),
        None => examine(args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("weir doctor: {error:#}");
        ExitCode::from(2)
    })
}

/// The facts, the findings from them, and the plan for all findings.
pub fn diagnose(
    source: &source::Source,
    server: Option<&str>,
) -> anyhow::Result<(facts::Facts, Vec<finding::Finding>, finding::Plan)> {
    let mut facts = facts::Facts::read(source)?;
    if let Some(server) = server {
        facts.only_server(server)?;
    }
    let findings = rules::collect_findings(&facts);
    let plan = plan::plan(source, &facts, &findings);
    Ok((facts, findings, plan))
}

fn examine(args: &Args) -> anyhow::Result<ExitCode> {
    let source = source::Source::new(args.from.clone());
    if let Some(folder) = &args.capture {
        let files = source.capture(folder)?;
        println!(
            "{files} files captured in {}; look at them elsewhere with --from",
            folder.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let (facts, findings, plan) = diagnose(&source, args.server.as_deref())?;
    let mut out = std::io::stdout().lock();
    match args.json {
        true => report::json(&mut out, &facts, &findings, &plan)?,
        false => report::text(&mut out, &facts, &findings, &plan)?,
    }
    out.flush()?;
    if args.fix {
        anyhow::ensure!(
            args.from.is_none(),
            "--fix changes the machine it runs on; leave out --from"
        );
        if fix::apply(&source, &plan, args.yes)? {
            // What was written is read again: a fix that leaves something to write was none.
            let (_, _, left) = diagnose(&source, args.server.as_deref())?;
            let left: Vec<&str> = left.files.iter().map(|file| file.path.as_str()).collect();
            anyhow::ensure!(
                left.is_empty(),
                "{} should be changed still: this is a mistake of weir doctor's; the former files stand beside",
                left.join(", ")
            );
        }
        if !plan.commands.is_empty() {
            println!("the commands that are printed above last are yours to run");
        }
    }
    Ok(match findings.iter().any(|f| f.severity > Severity::Hint) {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}
