//! The project's own checks: `cargo run -p xtask -- tidy`.
//!
//! What the compiler cannot see: that crates, and the modules of the layered ones, use each other as ARCHITECTURE.md draws it, that
//! files stay short enough to read, that no defect is absorbed by a count that saturates, and that the prose uses the field's words.

mod absorbed;
mod held;
mod layers;
mod length;
mod modules;
mod source;
mod words;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

/// Where crates and modules are drawn.
const DRAWING: &str = "ARCHITECTURE.md";

/// Crates whose modules are to be drawn.
const LAYERED: &[&str] = &["crates/volume/src", "crates/vfs/src", "crates/control/src"];

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
    let root: &Path = root.trim().as_ref();
    let drawing = std::fs::read_to_string(root.join(DRAWING)).context(DRAWING)?;
    let (packages, edges) = layers::edges(&metadata)?;
    let mut faults = layers::faults(&layers::Picture::read(&drawing)?, &edges, &packages);
    let files: Vec<&str> = files.lines().collect();
    let layered = modules::drawn(&drawing);
    for crate_layers in &layered {
        faults.extend(crate_layers.faults(root, &files)?);
    }
    for source in LAYERED {
        ensure!(
            layered.iter().any(|l| l.source == *source),
            "{DRAWING} has no layers of {source}"
        );
    }
    faults.extend(held::faults(root, &drawing)?);
    faults.extend(length::faults(root, files.iter().copied())?);
    faults.extend(absorbed::faults(root, files.iter().copied())?);
    faults.extend(words::faults(root, files.iter().copied())?);
    if !faults.is_empty() {
        bail!("{} faults\n  {}", faults.len(), faults.join("\n  "));
    }
    println!(
        "tidy: {} dependencies between crates and the modules of {} are as drawn; no file too long, no count that saturates",
        edges.len(),
        layered.len()
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
