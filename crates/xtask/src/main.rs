//! The project's own checks: `cargo run -p xtask -- tidy`.
//!
//! They cover what the compiler cannot see: that crates, and the modules of the layered ones, use
//! each other as the documents draw it, that modules import each other in no circle, that functions
//! stay short enough to read, that no defect is absorbed by a count that saturates, that the prose
//! uses the field's words, and that links lead somewhere.
//!
//! `tidy --write-lists` writes today's exceptions to `crates/xtask/lists`. `modules CRATE` prints
//! the layers of a crate's modules.

mod circles;
mod crates;
mod documents;
mod functions;
mod invariant_index;
mod layers;
mod length;
mod lists;
mod modules;
mod prose;
mod silent_faults;
mod source;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use circles::{Graph, Module};
use crates::File;
use lists::{Compare, Figures, List, Reason};
use modules::MODULES;

/// Document in which crates are drawn.
const DRAWING: &str = "ARCHITECTURE.md";

/// Crates whose modules are to be drawn.
const LAYERED: &[&str] = &["crates/volume/src", "crates/vfs/src", "crates/control/src"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy(false),
        ["tidy", "--write-lists"] => tidy(true),
        ["modules", name] => draw_modules(name),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy [--write-lists] | modules CRATE");
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

/// Runs all checks; an error lists everything that is wrong. `write_lists` replaces the lists of
/// exceptions by today's.
fn tidy(write_lists: bool) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata =
        output(Command::new(cargo).args(["metadata", "--no-deps", "--format-version=1"]))?;
    let root = root()?;
    let root: &Path = root.as_ref();
    let files = listed_files()?;
    let files: Vec<&str> = files.lines().collect();
    let drawing = std::fs::read_to_string(root.join(DRAWING)).context(DRAWING)?;
    let (packages, edges) = layers::edges(&metadata)?;
    let mut faults = layers::faults(&layers::Picture::read(&drawing)?, &edges, &packages);
    let pictures = std::fs::read_to_string(root.join(MODULES)).context(MODULES)?;
    let layered = modules::drawn(&pictures);
    for crate_layers in &layered {
        faults.extend(crate_layers.faults(root, &files)?);
    }
    for source in LAYERED {
        ensure!(
            layered.iter().any(|l| l.source == *source),
            "{MODULES} has no layers of {source}"
        );
    }
    let crates = crates::read(root, &files)?;
    faults.extend(exceptions(root, &crates, write_lists)?);
    faults.extend(invariant_index::faults(root)?);
    faults.extend(tests_elsewhere(&files));
    faults.extend(length::faults(root, files.iter().copied())?);
    faults.extend(silent_faults::faults(root, files.iter().copied())?);
    faults.extend(words::faults(root, files.iter().copied())?);
    faults.extend(documents::faults(root, &files)?);
    if !faults.is_empty() {
        bail!("{} faults\n  {}", faults.len(), faults.join("\n  "));
    }
    println!(
        "tidy: {} dependencies between {} crates and the modules of {} folders are as drawn; no list of exceptions has grown, each long function has its reason",
        edges.len(),
        crates.len(),
        layered.len()
    );
    Ok(())
}

/// A line for each file of tests that is neither a module `tests` nor in a crate's `tests/`.
fn tests_elsewhere(files: &[&str]) -> Vec<String> {
    let elsewhere = files.iter().filter(|file| file.ends_with("_tests.rs"));
    let fault = |file: &&str| format!("{file}: name it tests.rs, in the folder of its module");
    elsewhere.map(fault).collect()
}

/// Compares circles, long functions and faults of prose with the lists of those that may be there.
fn exceptions(
    root: &Path,
    crates: &BTreeMap<String, Vec<File>>,
    write_lists: bool,
) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (file, compare, reason, unit, head, today) in [
        (
            "circles.txt",
            Compare::Exactly,
            Reason::Free,
            "circles of modules:",
            "Circles of more than four modules: crate, modules of each circle.",
            circles_today(crates),
        ),
        (
            "functions.txt",
            Compare::ByNumber,
            Reason::Needed,
            "lines",
            "Functions of more than 70 lines: crate, name, lines: the reason why it is not split.",
            functions_today(crates),
        ),
        (
            "prose.txt",
            Compare::Exactly,
            Reason::Free,
            "places",
            "Places by crate: comments over 100 columns (wide), doc comments that open with a question \
             word (openings), messages without operation and object (messages).",
            prose_today(crates),
        ),
    ] {
        let list = List::read(root, file, compare, reason)?;
        if write_lists {
            list.write(head, &today)?;
        } else {
            faults.extend(list.faults(unit, &today));
        }
    }
    Ok(faults)
}

fn circles_today(crates: &BTreeMap<String, Vec<File>>) -> Figures {
    let found = crates.iter().map(|(name, files)| {
        let circles = graph(files).circles();
        (name.clone(), circles.iter().map(Vec::len).collect())
    });
    found
        .filter(|(_, sizes): &(_, Vec<usize>)| !sizes.is_empty())
        .collect()
}

fn functions_today(crates: &BTreeMap<String, Vec<File>>) -> Figures {
    let mut figures = Figures::new();
    for (name, files) in crates {
        let product = files.iter().filter(|file| file.is_product());
        for long in product.flat_map(|file| functions::long(&file.text)) {
            let label = format!("{name} {}", long.name);
            figures.entry(label).or_default().push(long.lines);
        }
    }
    for lines in figures.values_mut() {
        lines.sort_by_key(|lines| std::cmp::Reverse(*lines));
    }
    figures
}

fn prose_today(crates: &BTreeMap<String, Vec<File>>) -> Figures {
    let mut figures = Figures::new();
    for (name, files) in crates {
        for file in files {
            let counts = prose::count(&file.text);
            let messages = if file.is_product() {
                counts.messages
            } else {
                0
            };
            for (kind, count) in [
                ("wide", counts.wide),
                ("openings", counts.openings),
                ("messages", messages),
            ] {
                let total = figures.entry(format!("{name} {kind}")).or_insert(vec![0]);
                total[0] += count;
            }
        }
    }
    figures.retain(|_, count| *count != [0]);
    figures
}

fn graph(files: &[File]) -> Graph {
    let product = files.iter().filter(|file| file.is_product());
    Graph::new(product.filter_map(|file| Some((file.module.clone()?, file.text.clone()))))
}

/// Prints the layers of a crate's modules, the highest first, and the imports within each circle.
fn draw_modules(name: &str) -> Result<()> {
    let (root, files) = (root()?, listed_files()?);
    let files: Vec<&str> = files.lines().collect();
    let crates = crates::read(root.as_ref(), &files)?;
    let files = crates
        .get(name)
        .with_context(|| format!("no crate {name}"))?;
    let shown = |module: &Module| {
        if module.is_empty() {
            "(root)".to_owned()
        } else {
            module.join("::")
        }
    };
    let list = |modules: &mut dyn Iterator<Item = &Module>| {
        let names: Vec<String> = modules.map(shown).collect();
        names.join(" ")
    };
    let graph = graph(files);
    let layers = graph.layers();
    for layer in &layers {
        let parts = layer.iter().map(|part| {
            let names = list(&mut part.iter());
            if part.len() > 1 {
                format!("({names})")
            } else {
                names
            }
        });
        println!("{}", parts.collect::<Vec<_>>().join("  "));
    }
    for circle in layers.iter().flatten().filter(|part| part.len() > 1) {
        println!();
        for module in circle {
            let used = list(&mut graph.imports(module, circle));
            println!("{} → {used}", shown(module));
        }
    }
    Ok(())
}

/// Returns the root of the repository.
fn root() -> Result<String> {
    let root = output(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    Ok(root.trim().to_owned())
}

/// Returns the paths of all files of the repository, a line each, those that are not committed yet
/// included.
fn listed_files() -> Result<String> {
    output(Command::new("git").args([
        "ls-files",
        "--full-name",
        "--cached",
        "--others",
        "--exclude-standard",
        ":/",
    ]))
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
