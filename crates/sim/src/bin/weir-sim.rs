//! Runs simulated suites and bounded fuzzing for as many seeds as asked.
//!
//! `weir-sim [SUITE…] [--seeds N] [--start S]` runs the suites named (all, if none is) and stops at
//! the first failure; `weir-sim fuzz [TARGET…] [--seeds N] [--start S]` runs fuzz targets with N ×
//! 1000 mutations; `weir-sim corpus DIR` writes the fuzz targets' valid inputs to files, to start a
//! coverage-guided run from.

use std::process::ExitCode;

use weir_sim::fuzz;
use weir_sim::suites::SUITES;

struct Arguments {
    names: Vec<String>,
    seeds: u64,
    start: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        names: Vec::new(),
        seeds: 100,
        start: 0,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut number = || -> Result<u64, String> {
            let text = rest.next().ok_or(format!("{argument} needs a number"))?;
            text.parse()
                .map_err(|_| format!("{argument}: {text} is not a number"))
        };
        match argument.as_str() {
            "--seeds" => parsed.seeds = number()?,
            "--start" => parsed.start = number()?,
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            name => parsed.names.push(name.to_owned()),
        }
    }
    Ok(parsed)
}

fn run() -> Result<(), String> {
    if !cfg!(debug_assertions) {
        return Err(
            "this build checks no invariants: run weir-sim with the development profile".to_owned(),
        );
    }
    let Arguments {
        names,
        seeds,
        start,
    } = arguments()?;
    match names.split_first() {
        Some((first, rest)) if first == "fuzz" => return run_fuzz(rest, seeds, start),
        Some((first, rest)) if first == "corpus" => {
            let dir = rest.first().ok_or("corpus needs a directory")?;
            return write_corpus(dir);
        }
        _ => {}
    }
    let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!(
            "unknown suite {unknown}; there are: {}",
            known.join(", ")
        ));
    }
    for suite in SUITES {
        if !names.is_empty() && !names.iter().any(|name| name == suite.name) {
            continue;
        }
        println!("{}: {}", suite.name, suite.about);
        for seed in start..start + seeds {
            suite.run_seed(seed)?;
            if (seed + 1 - start) % 100 == 0 {
                println!("{}: {} seeds done", suite.name, seed + 1 - start);
            }
        }
        println!(
            "{}: seeds {start} to {} passed",
            suite.name,
            start + seeds - 1
        );
    }
    Ok(())
}

fn run_fuzz(names: &[String], seeds: u64, start: u64) -> Result<(), String> {
    for target in fuzz::targets() {
        if !names.is_empty() && !names.iter().any(|name| name == target.name) {
            continue;
        }
        println!("{}: {seeds} seeds from {start}", target.name);
        for seed in start..start + seeds {
            fuzz::mutate::run(&target, seed, 1000)
                .map_err(|crash| format!("seed {seed}: {crash:02x?}"))?;
        }
    }
    Ok(())
}

fn write_corpus(dir: &str) -> Result<(), String> {
    for target in fuzz::targets() {
        let folder = std::path::Path::new(dir).join(target.name);
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (index, input) in (target.seeds)().iter().enumerate() {
            let file = folder.join(format!("seed-{index}"));
            std::fs::write(&file, input).map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}
