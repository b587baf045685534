//! The measurement of SnapMirror's throttles runs through, on little data. What it measures then
//! means nothing and is not checked.

#![allow(clippy::unwrap_used)] // Tests fail loudly.

use std::ffi::OsStr;

use clap::Parser as _;
use serde_json::Value;
use weir_experiments::snapmirror::{SnapmirrorArgs, snapmirror};

/// The experiment's command line.
#[derive(clap::Parser)]
struct Args {
    #[command(flatten)]
    experiment: SnapmirrorArgs,
}

#[test]
fn the_experiment_runs_and_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (scratch, out) = (path("scratch"), path("out"));
    std::fs::create_dir(&scratch).unwrap();
    let args = Args::parse_from([
        OsStr::new("snapmirror"),
        OsStr::new("--quick"),
        OsStr::new("--memory"),
        OsStr::new("256M"),
        OsStr::new("--weir"),
        OsStr::new(env!("CARGO_BIN_EXE_weir")),
        OsStr::new("--scratch"),
        scratch.as_os_str(),
        OsStr::new("--out"),
        out.as_os_str(),
    ]);
    snapmirror(&args.experiment).unwrap();
    let raw = std::fs::read(out.join("raw.json")).unwrap();
    let lines: Vec<Value> = serde_json::from_slice(&raw).unwrap();
    assert_eq!(lines.len(), 11);
    for line in &lines {
        let transfers = line["transfers"].as_array().unwrap();
        assert_eq!(transfers.last().unwrap()["state"], "success", "{line}");
    }
    let summary = std::fs::read_to_string(out.join("summary.md")).unwrap();
    for words in [
        "global, 4 MB/s, two transfers | 524.9 MB, 281 s",
        "sent twice",
        "rustls",
    ] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    for file in ["command", "machine.json", "changes.svg"] {
        assert!(out.join(file).exists(), "{file}");
    }
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}
