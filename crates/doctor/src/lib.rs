//! `weir doctor`: what a Linux client of a file server is set to, what of it costs speed or safety, and the exact fix.
//!
//! A client's throughput is its concurrency times its block size, divided by the latency (Little's law), so most
//! findings come down to one of three questions: how many requests may be under way (connections × slots), how much
//! does each move (rsize, wsize, read-ahead), and does anything make them wait for nothing (synchronous mounts,
//! retransmissions, a shared connection). The kernel says all of it in files:
//!
//! - [`source`]: the files, read from `/` or from a folder that `--capture` filled on another machine;
//! - [`mountstats`], [`mountinfo`], [`settings`]: their formats, without judgement;
//! - [`facts`]: what they say together, a record a mount;
//! - [`rules`]: one function a question; each looks at the facts and gives findings;
//! - [`finding`]: what was seen, why it matters, the fix, the gain to expect;
//! - [`fix`]: showing and writing what a fix puts into files;
//! - [`ping`]: latency of each address of a server, to find the nearest zone.
//!
//! Because rules see facts and never files, each is tested against captured files of several kernels.

pub mod args;
pub mod facts;
pub mod finding;
pub mod fix;
pub mod mountinfo;
pub mod mountstats;
pub mod ping;
pub mod report;
pub mod rules;
pub mod settings;
pub mod source;

use std::io::Write;
use std::process::ExitCode;

use args::{Args, Command};
use finding::Severity;

/// Runs the command; the exit code is 1 where something was found that is worse than a hint, 2 on failure.
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
    let mut facts = facts::Facts::read(&source)?;
    if let Some(server) = &args.server {
        facts.only_server(server)?;
    }
    let findings = rules::all(&facts);
    let mounts = rules::together(&facts, &findings);
    let mut out = std::io::stdout().lock();
    match args.json {
        true => report::json(&mut out, &facts, &findings, &mounts)?,
        false => report::text(&mut out, &facts, &findings, &mounts)?,
    }
    out.flush()?;
    if args.fix {
        anyhow::ensure!(
            args.from.is_none(),
            "--fix changes the machine it runs on; leave out --from"
        );
        fix::apply(&source, &findings, &mounts, args.yes)?;
    }
    Ok(match findings.iter().any(|f| f.severity > Severity::Hint) {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}
