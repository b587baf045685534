//! The project's own checks: `cargo run -p xtask -- tidy`.
//!
//! What the compiler cannot see: which crate may use which (ARCHITECTURE.md), that files stay
//! short enough to read, and that no defect is absorbed by a count that saturates.

mod absorbed;
mod layers;
mod length;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all checks; an error lists everything that is wrong.
fn tidy() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata =
        output(Command::new(cargo).args(["metadata", "--no-deps", "--format-version=1"]))?;
    let files = output(Command::new("git").args(["ls-files", "--full-name", ":/"]))?;
    let root = output(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    let edges = layers::edges(&metadata)?;
    let mut faults = layers::faults(&edges);
    faults.extend(length::faults(root.trim().as_ref(), files.lines())?);
    faults.extend(absorbed::faults(root.trim().as_ref(), files.lines())?);
    if !faults.is_empty() {
        bail!("{} faults\n  {}", faults.len(), faults.join("\n  "));
    }
    println!(
        "tidy: {} dependencies between crates, all downward; no file too long, no count that saturates",
        edges.len()
    );
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
